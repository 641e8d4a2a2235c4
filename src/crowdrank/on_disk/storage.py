"""Save judgments to a Parquet file, and load and check them: kernels use codes as indices without bounds checks."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank import _folders
from crowdrank._assessor_kinds import KINDS, UNKNOWN_KIND
from crowdrank._folders import Fields, is_integer, is_text, require, require_array, require_range
from crowdrank.judgments.columns import PROBABILITY_COLUMN_PATTERN, PROBABILITY_SUM_TOLERANCE
from crowdrank.judgments.preferences import MAX_PREFERENCE, Preferences
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import NO_HONEYPOT, UNJUDGEABLE, AssessorTable, Judgments, ReadReport
from crowdrank.readers.files import arrow_file

EXTRA_DTYPES = {
    "time": np.dtype("datetime64[us]"),
    "duration": np.dtype(np.float64),
    "cost": np.dtype(np.float64),
    "honeypot": np.dtype(np.int8),
    "kind": np.dtype(np.int8),
}
"""NumPy types of the optional columns of judgments."""
JSON_TYPES: Mapping[type, tuple[Callable[[Any], bool], str]] = {
    int: (lambda value: is_integer(value) and value >= 0, "a whole number from 0 up"),
    str: (is_text, "text"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
}
"""Check and description of each plain type in JSON."""
FRAME_LIBRARIES = ("pandas", "polars", "pyarrow", "modin", "cudf")
"""Names of the DataFrame libraries that results can be returned in."""
EXTRA_PREFIX = "extra:"
"""Prefix of the names of extra columns in a saved file."""
PREFERENCE_CODES = {name: pa.int32() for name in ("query", "left", "right", "assessor")} | {"answer": pa.int8()}
"""Names and types of the columns of codes of preferences."""
FORMAT_VERSION = 1
"""Version of the format of a saved file."""


def _report_to_json(report: ReadReport) -> dict[str, Any]:
    """Return a read report without the ids to exclude, which concern only the command that reads the files.

    The number of contradictions, which only preferences have, is left out if it is 0.
    """
    omitted = {"excluded_ids", *(() if report.contradictions else ("contradictions",))}
    return {name: value for name, value in asdict(report).items() if name not in omitted}


def _report_from_json(fields: Mapping[str, Any]) -> ReadReport:
    """Return the read report from its saved fields."""
    report: ReadReport = value_from_json(
        ReadReport, {"contradictions": 0, **fields, "excluded_ids": []}, "the read report"
    )
    return report


def save(judgments: Judgments, path: str | Path) -> None:
    """Write judgments to a Parquet file that :func:`load` reads.

    Columns of ids are shorter than the columns of judgments; they are padded with nulls.
    """
    import pyarrow.parquet as pq

    n_rows = len(judgments)
    columns = {
        "query": pa.array(judgments.by_row(judgments.item_query)),
        "document": pa.array(judgments.by_row(judgments.item_document)),
        "assessor": pa.array(judgments.assessor),
        "grade": pa.array(judgments.grade),
        "queries": pad_with_nulls(judgments.queries, n_rows),
        "documents": pad_with_nulls(judgments.documents, n_rows),
        "assessors": pad_with_nulls(judgments.assessors, n_rows),
        "assessor_scale": pad_with_nulls(pa.array(judgments.assessor_scale), n_rows),
        **{EXTRA_PREFIX + name: pa.array(column) for name, column in judgments.extras.items()},
    }
    if judgments.families is not None:
        columns["families"] = pad_with_nulls(judgments.families, n_rows)
        columns["assessor_family"] = pad_with_nulls(pa.array(judgments.assessor_family), n_rows)
    metadata = {
        "format": FORMAT_VERSION,
        **header_to_json(judgments),
        "labels": judgments.labels,
        "backend": judgments.backend,
    }
    pq.write_table(pa.table(columns).replace_schema_metadata({"crowdrank": json.dumps(metadata)}), path)


def save_preferences(preferences: Preferences, path: str | Path) -> None:
    """Write preferences to a Parquet file that :func:`load_preferences` reads; short columns are padded with nulls."""
    import pyarrow.parquet as pq

    columns = {name: pa.array(getattr(preferences, name)) for name in PREFERENCE_CODES}
    columns |= {name: getattr(preferences, name) for name in ("queries", "documents", "assessors")}
    if preferences.families is not None:
        columns |= {"families": preferences.families, "assessor_family": pa.array(preferences.assessor_family)}
    n_rows = max(map(len, columns.values()))
    metadata = {
        "format": FORMAT_VERSION,
        "has_positions": preferences.has_positions,
        "backend": preferences.backend,
        "report": _report_to_json(preferences.report),
    }
    table = pa.table({name: pad_with_nulls(column, n_rows) for name, column in columns.items()})
    pq.write_table(table.replace_schema_metadata({"crowdrank": json.dumps(metadata)}), path)


def load_preferences(path: str | Path) -> Preferences:
    """Read preferences that :func:`save_preferences` wrote."""
    with _folders.loading(path, "it holds no saved preferences", "name a file that save wrote"):
        table = _folders.read_parquet(path)
        columns = {name: table[name].combine_chunks().drop_null() for name in table.column_names}
        metadata = _metadata(table)
        codes = {name: _code_column(columns, name, code_type) for name, code_type in PREFERENCE_CODES.items()}
        families = columns.get("families")
        preferences = Preferences(
            **codes,
            **{name: columns[name] for name in ("queries", "documents", "assessors")},
            has_positions=metadata.flag("has_positions"),
            families=families,
            assessor_family=None if families is None else _code_column(columns, "assessor_family", pa.int32()),
            report=_report_from_json(metadata.object("report")),
            backend=restore_backend(metadata.text("backend")),
        )
        _check_preferences(preferences)
    return preferences


def _check_preferences(preferences: Preferences) -> None:
    """Raise ValueError unless saved preferences are complete and consistent."""
    require(len(preferences) > 0, "there are no preferences")
    tables = {"query": "queries", "left": "documents", "right": "documents", "assessor": "assessors"}
    for name, table in tables.items():
        check_ids(table, getattr(preferences, table))
        require_array(name, getattr(preferences, name), np.int32, (len(preferences),))
        require_range(name, getattr(preferences, name), 0, len(getattr(preferences, table)) - 1)
    require((np.diff(preferences.query) >= 0).all(), "the rows are not sorted by query")
    require((preferences.left != preferences.right).all(), "a document is compared with itself")
    require_range("answer", preferences.answer, -MAX_PREFERENCE, MAX_PREFERENCE)
    if preferences.families is not None and preferences.assessor_family is not None:
        check_ids("families", preferences.families)
        require_array("assessor_family", preferences.assessor_family, np.int32, (len(preferences.assessors),))
        require_range("assessor_family", preferences.assessor_family, -1, len(preferences.families) - 1)


def header_to_json(table: AssessorTable) -> dict[str, Any]:
    """Return the scales and the read report of a table as a JSON object."""
    return {
        "scales": [scale_to_json(scale) for scale in table.scales],
        "scale_maps": table.scale_maps,
        "common_scale": scale_to_json(table.common_scale),
        "family_separator": table.family_separator,
        "family_correlations": dict(table.family_correlations),
        "unjudgeable": table.unjudgeable,
        "report": _report_to_json(table.report),
    }


def header_from_json(header: Fields) -> dict[str, Any]:
    """Return the fields of an assessor table, by name, from the object that :func:`header_to_json` returned."""
    common, separator = header.values["common_scale"], header.values["family_separator"]
    correlations = header.object("family_correlations")
    require(separator is None or _folders.is_text(separator), "the separator of families is not text")
    require(all(0.0 <= value <= 1.0 for value in correlations.values()), "a correlation is not from 0 to 1")
    return {
        "scales": tuple(map(scale_from_json, header.sequence("scales"))),
        "scale_maps": tuple(None if codes is None else tuple(codes) for codes in header.sequence("scale_maps")),
        "common_scale": None if common is None else scale_from_json(common),
        "family_separator": separator,
        "family_correlations": correlations,
        "unjudgeable": tuple(header.texts("unjudgeable")),
        "report": _report_from_json(header.object("report")),
    }


def pad_with_nulls(column: pa.Array, length: int) -> pa.Array:
    """Return a column with nulls appended up to a length."""
    return pa.concat_arrays([column, pa.nulls(length - len(column), column.type)])


def scale_to_json(scale: Scale | None) -> list[list[Any]] | None:
    """Return a scale as the JSON list [names, values]."""
    return None if scale is None else [list(scale.names), list(scale.values)]


def load(path: str | Path) -> Judgments:
    """Read judgments that :func:`save` wrote.

    >>> import pandas as pd
    >>> import tempfile
    >>> from crowdrank import read_judgments
    >>> path = Path(tempfile.mkdtemp()) / "judgments.parquet"
    >>> save(read_judgments(pd.DataFrame({"document": ["d"], "assessor": ["ann"], "grade": [1]})), path)
    >>> load(path).frame["assessor"].tolist()
    ['ann']
    """
    with _folders.loading(path, "it holds no saved judgments", "name a file that save wrote"):
        judgments = _load_unchecked(path)
        check_judgments(judgments)
    return judgments


def _load_unchecked(path: str | Path) -> Judgments:
    with arrow_file(path, text=False) as rewind:
        table = _folders.read_parquet(rewind())
    metadata = _metadata(table)
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    query, document, assessor = (_code_column(columns, name, pa.int32()) for name in ("query", "document", "assessor"))
    first_rows = np.flatnonzero(np.diff(query, prepend=-1) | np.diff(document, prepend=-1))
    families = columns["families"].drop_null() if "families" in columns else None
    labels = metadata.values["labels"]
    return Judgments(
        queries=columns["queries"].drop_null(),
        documents=columns["documents"].drop_null(),
        assessors=columns["assessors"].drop_null(),
        item_query=query[first_rows],
        item_document=document[first_rows],
        offsets=np.append(first_rows, len(query)),
        assessor=assessor,
        grade=_code_column(columns, "grade", pa.int8()),
        assessor_scale=np.asarray(columns["assessor_scale"].drop_null()),
        families=families,
        assessor_family=None if families is None else np.asarray(columns["assessor_family"].drop_null()),
        extras={
            name.removeprefix(EXTRA_PREFIX): columns[name].to_numpy(zero_copy_only=False)
            for name in columns
            if name.startswith(EXTRA_PREFIX)
        },
        labels=None if labels is None else tuple(metadata.sequence("labels", _folders.is_scalar, "plain values")),
        backend=restore_backend(metadata.text("backend")),
        **header_from_json(metadata),
    )


def _metadata(table: pa.Table) -> Fields:
    """Return the metadata of a saved file; raise an error if they are missing or in another format."""
    require(b"crowdrank" in (table.schema.metadata or {}), "its metadata are missing")
    metadata = Fields.parse(table.schema.metadata[b"crowdrank"], "the metadata")
    version = metadata.integer("format")
    require(version == FORMAT_VERSION, f"it is in format {version}, and this version reads format {FORMAT_VERSION}")
    return metadata


def _code_column(columns: dict[str, pa.Array], name: str, code_type: pa.DataType) -> NDArray[Any]:
    """Return a column of codes; raise an error if it has another type or a null."""
    codes = columns[name]
    require(codes.type == code_type and codes.null_count == 0, f"{name} is not a column of codes")
    return np.asarray(codes)


# Checks.


def check_judgments(judgments: Judgments) -> None:
    """Raise ValueError unless saved judgments are complete and consistent."""
    check_assessors(judgments)
    for name in ("queries", "documents"):
        check_ids(name, getattr(judgments, name))
    require(len(judgments) > 0, "there are no judgments")
    check_codes(judgments)
    item = judgments.item_query.astype(np.int64) * len(judgments.documents) + judgments.item_document
    require((np.diff(item) > 0).all() or len(np.unique(item)) == len(item), "a document of a query occurs twice")
    for name, column in judgments.extras.items():
        is_share = PROBABILITY_COLUMN_PATTERN.fullmatch(name) is not None
        require(is_share or name in EXTRA_DTYPES, f"there is an unknown column {name!r}")
        require_array(name, column, np.dtype(np.float64) if is_share else EXTRA_DTYPES[name], (len(judgments),))
    check_grade_probabilities(judgments)
    if "honeypot" in judgments.extras:
        _check_grades("honeypot", judgments.extras["honeypot"], judgments, NO_HONEYPOT)
    if "kind" in judgments.extras:
        require_range("kind", judgments.extras["kind"], UNKNOWN_KIND, len(KINDS) - 1)
    if judgments.labels is not None:
        require(len(judgments.scales) == 1, "there are labels of several scales")
        require(0 < len(judgments.labels) <= len(judgments.scale), "the labels do not fit the scale")
        label_type = pa.array(judgments.labels).type
        is_plain = not pa.types.is_nested(label_type) and not pa.types.is_null(label_type)
        require(is_plain, "the labels are not plain values")
        require(len(set(judgments.labels)) == len(judgments.labels), "a label occurs twice")


def check_grade_probabilities(judgments: Judgments) -> None:
    """Raise ValueError unless the probabilities of the grades of each soft label sum to 1."""
    columns = [column for name, column in judgments.extras.items() if PROBABILITY_COLUMN_PATTERN.fullmatch(name)]
    if columns:
        table, by_grade = np.column_stack(columns), judgments.shares()
        is_hard = np.isnan(table).all(axis=1)
        require(((table >= 0) & (table <= 1) | np.isnan(table)).all(), "a probability is not from 0 to 1")
        is_off = np.abs(np.nansum(table, axis=1) - 1) > PROBABILITY_SUM_TOLERANCE
        require(not (is_off & ~is_hard).any(), "probabilities do not sum to 1")
        on_scale = is_hard if by_grade is None else is_hard == np.isnan(by_grade).all(axis=1)
        require(on_scale.all(), "probabilities are of grades off the scale")


def check_codes(judgments: Judgments) -> None:
    """Raise ValueError unless every code is a valid index into its table; the ids in the tables are not checked.

    Types and lengths of the arrays were checked as they were read. Call :func:`check_assessors` first, once for all
    shards.
    """
    for name, table in (("item_query", "queries"), ("item_document", "documents")):
        require_range(name, getattr(judgments, name), 0, len(getattr(judgments, table)) - 1)
    require((np.diff(judgments.item_query) >= 0).all(), "the rows are not sorted by query")
    ends = judgments.offsets[0] == 0 and judgments.offsets[-1] == len(judgments.grade)
    require(ends and (np.diff(judgments.offsets) > 0).all(), "offsets do not increase from 0 to the end")
    require_range("assessor", judgments.assessor, 0, judgments.n_assessors - 1)
    _check_grades("grade", judgments.grade, judgments, UNJUDGEABLE)


def _check_grades(column_name: str, codes: NDArray[np.int8], judgments: Judgments, minimum: int) -> None:
    """Raise ValueError unless each grade code is at least `minimum` and on the scale of the row's assessor."""
    sizes = np.array([len(scale) for scale in judgments.scales], np.int8)
    require_range(column_name, codes, minimum, int(sizes.max()) - 1)
    if len(sizes) > 1:
        row_sizes = sizes[judgments.assessor_scale[judgments.assessor]]
        require((codes < row_sizes).all(), f"a code of {column_name} is not on the scale of its assessor")


def check_assessors(table: AssessorTable) -> None:
    """Raise ValueError unless each assessor has a valid scale and, if there are families, a valid family."""
    check_ids("assessors", table.assessors)
    n_assessors, scales, scale_maps = table.n_assessors, table.scales, table.scale_maps
    require(0 < len(scales) <= np.iinfo(np.int8).max, "the number of scales is not between 1 and 127")
    require_array("assessor_scale", table.assessor_scale, np.int8, (n_assessors,))
    require_range("assessor_scale", table.assessor_scale, 0, len(scales) - 1)
    require(not scale_maps or len(scale_maps) == len(scales), "the maps do not fit the scales")
    for scale, scale_map in zip(scales, scale_maps, strict=False):
        _check_scale_map(scale, scale_map, table.common_scale)
    families, family = table.families, table.assessor_family
    require((families is None) == (family is None), "the families are incomplete")
    if families is not None and family is not None:
        check_ids("families", families)
        require_array("assessor_family", family, np.int32, (n_assessors,))
        require_range("assessor_family", family, -1, len(families) - 1)


def _check_scale_map(scale: Scale, scale_map: tuple[int, ...] | None, common_scale: Scale | None) -> None:
    """Raise ValueError unless a map gives each grade of a scale a grade of the common scale, in increasing order."""
    if scale_map is None:
        return
    require(common_scale is not None and len(scale_map) == len(scale), f"the map of the scale {scale} does not fit it")
    assert common_scale is not None
    is_valid = all(is_integer(code) and 0 <= code < len(common_scale) for code in scale_map)
    is_valid = is_valid and list(scale_map) == sorted(scale_map)
    require(is_valid, f"the map of the scale {scale} is not on the common scale")


def check_ids(table_name: str, ids: pa.Array) -> None:
    """Raise ValueError unless ids are distinct strings or distinct integers."""
    require(ids.type in (pa.string(), pa.int64()), f"{table_name} are not texts or whole numbers")
    are_distinct = ids.null_count == 0 and pc.count_distinct(ids).as_py() == len(ids)
    require(are_distinct, f"one of {table_name} is missing or occurs twice")


def scale_from_json(names_and_values: Any) -> Scale:
    """Return a scale from its saved form, [names, values].

    >>> str(scale_from_json([["0", "1", "2"], [0.0, 1.0, 2.0]]))
    '0-2'
    """
    names, values = names_and_values
    require(isinstance(names, list) and all(map(is_text, names)), "the grades of a scale are not texts")
    scale = Scale.parse(names)
    is_same = scale.names == tuple(names) and scale.values == tuple(values)
    require(is_same, "the values of a scale do not fit its grades")
    return scale


def value_from_json(expected_type: Any, json_value: Any, name: str) -> Any:
    """Return a value of a type from its JSON form; raise ValueError if it is of another type.

    Args:
        expected_type: int (of at least 0), str, bool, a dataclass, or a tuple, mapping or union of these; other types
            are not checked.
        json_value: the JSON value.
        name: name of the value in errors.

    >>> value_from_json(Mapping[str, tuple[int, int]], {"ann": [2, 1]}, "repeats")
    {'ann': (2, 1)}

    """
    origin, kinds = get_origin(expected_type), get_args(expected_type)
    if expected_type in JSON_TYPES:
        is_valid, description = JSON_TYPES[expected_type]
        require(is_valid(json_value), f"{name} is not {description}")
        return json_value
    if isinstance(expected_type, type) and is_dataclass(expected_type):
        hints = get_type_hints(expected_type)
        require(isinstance(json_value, dict) and set(json_value) == set(hints), f"{name} is incomplete")
        return expected_type(**{key: value_from_json(hints[key], one, key) for key, one in json_value.items()})
    if origin is tuple:
        kinds = kinds[:1] * len(json_value) if kinds[1:] == (...,) else kinds
        require(
            isinstance(json_value, list) and len(json_value) == len(kinds), f"{name} is not a list of the right length"
        )
        return tuple(value_from_json(one_kind, one, name) for one_kind, one in zip(kinds, json_value, strict=True))
    if origin is Mapping:
        require(isinstance(json_value, dict) and all(map(is_text, json_value)), f"{name} is not a table")
        return {key: value_from_json(kinds[1], one, name) for key, one in json_value.items()}
    if origin is UnionType:
        return None if json_value is None else value_from_json(kinds[0], json_value, name)
    if origin is Literal:
        require(json_value in kinds, f"{name} is not one of {', '.join(kinds)}")
    return json_value


def restore_backend(saved_name: str) -> str:
    """Return the saved name of a DataFrame library, or 'pandas' if that library is not installed."""
    require(saved_name in FRAME_LIBRARIES, f"backend is not one of {', '.join(FRAME_LIBRARIES)}: {saved_name!r}")
    return saved_name if importlib.util.find_spec(saved_name) is not None else "pandas"
