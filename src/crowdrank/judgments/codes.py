"""Check saved judgments before any kernel reads them: kernels do not check the codes that they index with."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._saved import Fields, is_integer, is_text, require, require_array, require_range
from crowdrank.errors import Message
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import NO_HONEYPOT, UNJUDGEABLE, AssessorTable, Judgments, ReadReport

EXTRAS = {
    "time": np.dtype("datetime64[us]"),
    "duration": np.dtype(np.float64),
    "cost": np.dtype(np.float64),
    "honeypot": np.dtype(np.int8),
}
"""Types of the extra columns."""
BACKENDS = ("pandas", "polars", "pyarrow", "modin", "cudf")
"""Libraries of DataFrames."""


def check_judgments(judgments: Judgments) -> None:
    """Raise ValueError unless saved judgments are complete and all their codes are in range."""
    check_assessors(judgments)
    for name in ("queries", "documents"):
        check_ids(name, getattr(judgments, name))
    require(len(judgments) > 0, "there are no judgments")
    check_codes(judgments)
    item = judgments.item_query.astype(np.int64) * len(judgments.documents) + judgments.item_document
    require((np.diff(item) > 0).all() or len(np.unique(item)) == len(item), "a document of a query occurs twice")
    for name, column in judgments.extras.items():
        require(name in EXTRAS, f"there is an unknown column {name!r}")
        require_array(name, column, EXTRAS[name], (len(judgments),))
    if "honeypot" in judgments.extras:
        _check_grades("honeypot", judgments.extras["honeypot"], judgments, NO_HONEYPOT)
    if judgments.labels is not None:
        require(len(judgments.scales) == 1, "there are labels of several scales")
        require(0 < len(judgments.labels) <= len(judgments.scale), "the labels do not fit the scale")
        kind = pa.array(judgments.labels).type
        require(not pa.types.is_nested(kind) and not pa.types.is_null(kind), "the labels are not plain values")
        require(len(set(judgments.labels)) == len(judgments.labels), "a label occurs twice")


def check_codes(judgments: Judgments) -> None:
    """Raise ValueError unless all codes are in the ranges of their tables; ids are not checked.

    Call :func:`check_assessors` first, once for all shards.
    """
    n, n_items = len(judgments.grade), len(judgments.item_query)
    require_array("assessor", judgments.assessor, np.int32, (n,))
    require_array("grade", judgments.grade, np.int8, (n,))
    for name, of in (("item_query", "queries"), ("item_document", "documents")):
        codes = getattr(judgments, name)
        require_array(name, codes, np.int32, (n_items,))
        require_range(name, codes, 0, len(getattr(judgments, of)) - 1)
    require((np.diff(judgments.item_query) >= 0).all(), "the rows are not sorted by query")
    require_array("offsets", judgments.offsets, np.int64, (n_items + 1,))
    ends = judgments.offsets[0] == 0 and judgments.offsets[-1] == n
    require(ends and (np.diff(judgments.offsets) > 0).all(), "offsets do not increase from 0 to the end")
    require_range("assessor", judgments.assessor, 0, judgments.n_assessors - 1)
    _check_grades("grade", judgments.grade, judgments, UNJUDGEABLE)


def _check_grades(name: str, codes: NDArray[np.int8], judgments: Judgments, lowest: int) -> None:
    """Check that codes are on the scales of their assessors."""
    sizes = np.array([len(scale) for scale in judgments.scales], np.int8)
    require_range(name, codes, lowest, int(sizes.max()) - 1)
    if len(sizes) > 1:
        of_row = sizes[judgments.assessor_scale[judgments.assessor]]
        require((codes < of_row).all(), f"a code of {name} is not on the scale of its assessor")


def check_assessors(table: AssessorTable) -> None:
    """Raise ValueError unless assessors, scales and families fit each other."""
    check_ids("assessors", table.assessors)
    n, scales, maps = table.n_assessors, table.scales, table.scale_maps
    require(0 < len(scales) <= np.iinfo(np.int8).max, "the number of scales is not between 1 and 127")
    require_array("assessor_scale", table.assessor_scale, np.int8, (n,))
    require_range("assessor_scale", table.assessor_scale, 0, len(scales) - 1)
    require(not maps or len(maps) == len(scales), "the maps do not fit the scales")
    for scale, codes in zip(scales, maps, strict=False):
        _check_map(scale, codes, table.common_scale)
    families, family = table.families, table.assessor_family
    require((families is None) == (family is None), "the families are incomplete")
    if families is not None and family is not None:
        check_ids("families", families)
        require_array("assessor_family", family, np.int32, (n,))
        require_range("assessor_family", family, -1, len(families) - 1)


def _check_map(scale: Scale, codes: tuple[int, ...] | None, common: Scale | None) -> None:
    if codes is None:
        return
    require(common is not None and len(codes) == len(scale), f"the map of the scale {scale} does not fit it")
    assert common is not None
    on_scale = all(is_integer(code) and 0 <= code < len(common) for code in codes)
    require(on_scale and list(codes) == sorted(codes), f"the map of the scale {scale} is not on the common scale")


def check_ids(name: str, ids: pa.Array) -> None:
    """Raise ValueError unless ids are distinct texts or distinct whole numbers."""
    require(ids.type in (pa.string(), pa.int64()), f"{name} are not texts or whole numbers")
    require(
        ids.null_count == 0 and pc.count_distinct(ids).as_py() == len(ids), f"one of {name} is missing or occurs twice"
    )


def scale_from(stored: Any) -> Scale:
    """Return the scale that was saved as [names, values].

    >>> str(scale_from([["0", "1", "2"], [0.0, 1.0, 2.0]]))
    '0-2'
    """
    names, values = stored
    require(isinstance(names, list) and all(map(is_text, names)), "the grades of a scale are not texts")
    scale = Scale.parse(names)
    require(
        scale.names == tuple(names) and scale.values == tuple(values), "the values of a scale do not fit its grades"
    )
    return scale


def maps_from(stored: Sequence[Any]) -> tuple[tuple[int, ...] | None, ...]:
    """Return the maps of scales that were saved as lists of codes or nothing."""
    return tuple(None if codes is None else tuple(codes) for codes in stored)


def report_from(stored: dict[str, Any]) -> ReadReport:
    """Return the read report that was saved as an object."""
    about, names = Fields(stored), {field.name for field in fields(ReadReport)}
    require(set(stored) == names, "the read report is incomplete")
    counts, texts = about.object("skipped"), {name: about.object(name) for name in ("units", "columns")}
    require(
        all(is_text(key) and is_integer(value) for key, value in counts.items()), "skipped is not a table of counts"
    )
    for name, table in texts.items():
        require(all(map(is_text, (*table, *table.values()))), f"{name} is not a table of texts")
    return ReadReport(
        rows=about.integer("rows"),
        skipped=counts,
        examples={str(reason): message_from(example) for reason, example in about.object("examples").items()},
        repeats=about.integer("repeats"),
        excluded=about.integer("excluded"),
        guessed=about.flag("guessed"),
        notes=tuple(map(message_from, about.sequence("notes"))),
        **texts,
    )


def message_from(stored: Any) -> Message:
    """Return the message that was saved as an object."""
    require(isinstance(stored, dict), "a message is not an object")
    try:
        message = Message.from_dict(stored)
    except (KeyError, TypeError) as problem:
        raise ValueError("a message is incomplete") from problem
    texts = [message.problem, message.kind, message.severity, *asdict(message.location).values()]
    texts += [text for fix in message.fixes for text in (fix.text, fix.parameter or "")] + [message.parameter or ""]
    require(all(map(is_text, texts)), "a message is not text")
    return message


def backend_from(name: str) -> str:
    """Return the library for DataFrames: the saved one, or pandas where that is not installed."""
    require(name in BACKENDS, f"backend is not one of {', '.join(BACKENDS)}: {name!r}")
    return name if importlib.util.find_spec(name) is not None else "pandas"
