"""One label for each document, whoever it comes from: a consensus, experts, or a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.consensus.result import Consensus
from crowdrank.errors import InputError, UsageError, near, shown
from crowdrank.judgments import ids
from crowdrank.judgments.bad_rows import BadRows, no_rows_error
from crowdrank.judgments.cells import parse_floats
from crowdrank.judgments.columns import Roles, parse_column_map
from crowdrank.judgments.formats import open_source
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.read import read_gold
from crowdrank.judgments.sources import Source
from crowdrank.rankers.ranking_data import LARGEST_GRADE

TARGETS = ("probabilities", "expected-grade", "grade", "relevance")
SHARE = re.compile(r"p(\d+)")
"""The names of a consensus' columns with the probability of a grade."""


@dataclass(frozen=True, eq=False)
class Labels:
    """What documents are worth: a number each, and where it is known the probabilities of grades."""

    query: pa.Array  # (n,) ids
    document: pa.Array  # (n,) ids
    relevance: Floats  # (n,)
    shares: Floats | None = None  # (n, n_grades) of the grades 0, 1, ...
    source: str = "the labels"

    def target(self, name: str) -> Floats:
        """What to train on: `probabilities` where there are any, or one number for each document.

        >>> labels = Labels(pa.array([1]), pa.array(["a"]), np.array([0.3]), np.array([[0.6, 0.4]]))
        >>> [labels.target(name).tolist() for name in TARGETS]
        [[[0.6, 0.4]], [0.4], [0.0], [0.3]]
        """
        if name not in TARGETS:
            raise UsageError(f"The target is one of {', '.join(TARGETS)}, not {name!r}{near(name, TARGETS)}.")
        if self.shares is None or name == "relevance":
            return self.relevance
        if name == "probabilities":
            return self.shares
        if name == "grade":
            return choose_grades(self.shares, "mode").astype(np.float64)
        return np.asarray(self.shares @ np.arange(self.shares.shape[1]), dtype=np.float64)

    def certainty(self) -> Floats:
        """Weights from 1 (certain) downwards, scaled to mean 1: 1 / (1 + variance of the grade / mean variance)."""
        if self.shares is None:
            raise UsageError("Only a consensus says how sure its labels are; these have no probabilities p0, p1, ...")
        grades = np.arange(self.shares.shape[1])
        variance = np.maximum(self.shares @ grades**2 - (self.shares @ grades) ** 2, 0.0)
        middle = variance.mean()
        weight = 1 / (1 + variance / middle) if middle > 0 else np.ones(len(variance))
        return np.asarray(weight / weight.mean(), dtype=np.float64)


def read_labels(
    source: Any,
    *,
    format: str | None = None,
    columns: str | Mapping[str, str] | None = None,
    grades: str | None = None,
) -> Labels:
    """Labels from a `Consensus`, `Gold`, or the file or DataFrame of either; other tables need a number a document.

    >>> import pandas as pd
    >>> read_labels(pd.DataFrame({"document": ["a", "b"], "p0": [0.9, 0.2], "p1": [0.1, 0.8]})).target("expected-grade")
    array([0.1, 0.8])
    """
    if isinstance(source, Aggregator):
        source._require_fitted()
    consensus = getattr(source, "consensus_", source)
    if isinstance(consensus, Consensus):
        return _of_table(consensus.document_table, f"the consensus by {consensus.method}")
    if isinstance(source, Gold):
        return of_gold(source, "the expert grades")
    opened, _ = open_source(source, format, None)
    shares = [name for name in opened.names if SHARE.fullmatch(name)]
    numbers = "relevance" in opened.names and not {"grade", "label", "gold"} & set(opened.names)
    if len(shares) < 2 and not numbers:
        name = str(source) if isinstance(source, str | Path) else opened.name
        return of_gold(read_gold(source, format=format, columns=columns, grades=grades), name)  # type: ignore[arg-type]
    mapped = parse_column_map(columns)
    asked = ["document"] if shares else ["document", "score"]
    found = Roles(tuple(asked), ("query",)).find_columns(opened.names, opened.name, mapped)
    extra = [name for name in opened.names if name == "relevance" or name in shares]
    table = opened.read(list(dict.fromkeys([*found.values(), *extra])), BadRows())
    if not len(table):
        raise no_rows_error(opened.name)
    renamed = {found["document"]: "document", found.get("query", ""): "query", found.get("score", ""): "relevance"}
    table = table.rename_columns([renamed.get(name, name) for name in table.column_names])
    return _of_table(table, opened.name, opened)


def read_weights(source: Any, labels: Labels) -> Floats:
    """The weight of each label from a table of query, document, weight; a label without one is refused.

    >>> import pandas as pd
    >>> labels = read_labels(pd.DataFrame({"document": ["a", "b"], "grade": [1, 0]}))
    >>> read_weights(pd.DataFrame({"document": ["b", "a"], "weight": [2, 3]}), labels).tolist()
    [3.0, 2.0]
    """
    opened, _ = open_source(source, None, None)
    if "weight" not in opened.names:
        listed = ", ".join(opened.names)
        raise InputError("there is no column 'weight'", source=opened.name, fix=f"the columns are: {listed}")
    found = Roles(("document",), ("query",)).find_columns(opened.names, opened.name)
    table = opened.read([*found.values(), "weight"], BadRows())
    table = table.rename_columns([*found, "weight"])
    query = table["query"] if "query" in found else pa.chunked_array([["all"] * len(table)])
    weight = _numbers(table, "weight", opened.name, opened)
    if (weight < 0).any():
        bad = int(np.argmax(weight < 0))
        problem, place = f"the weight {weight[bad]:g} is below 0", opened.place(bad)
        raise InputError(problem, source=opened.name, place=place, column="weight", fix="weights are 0 or more")
    if not weight.any():
        remedy = "give some documents a weight above 0"
        raise InputError("every weight is 0", source=opened.name, column="weight", fix=remedy)
    here = (_whole(query, "query", opened.name, opened), _whole(table["document"], "document", opened.name, opened))
    row = pair_positions(*here, labels.query, labels.document, opened.name)
    if (row < 0).any():
        first, lost = int(np.argmax(row < 0)), int((row < 0).sum())
        raise InputError(
            f"{counted(lost, 'label')} {'has' if lost == 1 else 'have'} no weight (the first: "
            f"{shown(labels.document[first].as_py())} of query {shown(labels.query[first].as_py())})",
            source=opened.name,
            fix="give each labeled document a weight",
        )
    return weight[row]


def of_gold(gold: Gold, source: str) -> Labels:
    """Expert grades as labels: what each grade is worth."""
    return Labels(gold.query, gold.document, np.array(gold.scale.values)[gold.code], None, source)


def _of_table(table: pa.Table, source: str, opened: Source | None = None) -> Labels:
    """Labels from the table of documents that a consensus shows or writes."""
    query = table["query"] if "query" in table.column_names else pa.chunked_array([["all"] * len(table)])
    shares = _shares(table, source, opened)
    if "relevance" in table.column_names:
        relevance = _numbers(table, "relevance", source, opened)
    else:
        assert shares is not None
        relevance = np.asarray(shares @ np.arange(shares.shape[1]), dtype=np.float64)
    return Labels(
        _whole(query, "query", source, opened),
        _whole(table["document"], "document", source, opened),
        relevance,
        shares,
        source,
    )


def _shares(table: pa.Table, source: str, opened: Source | None) -> Floats | None:
    """The probabilities of grades 0, 1, ..., by the columns' names; a grade without a column has none."""
    found = {int(match[1]): name for name in table.column_names if (match := SHARE.fullmatch(name))}
    if len(found) < 2:
        return None
    if max(found) > LARGEST_GRADE:
        raise InputError(f"p{max(found)} is the probability of a grade above {LARGEST_GRADE}", source=source)
    shares = np.zeros((len(table), max(found) + 1))
    for grade, name in found.items():
        shares[:, grade] = _numbers(table, name, source, opened)
    total = shares.sum(axis=1)
    off = (np.abs(total - 1) > 1e-3) | (shares < 0).any(axis=1)
    if off.any():
        row = int(np.argmax(off))
        raise InputError(
            f"the probabilities of the grades sum to {total[row]:.3g}",
            source=source,
            place=_place(row, opened),
            fix="let p0, p1, ... sum to 1 in each row",
        )
    scaled: Floats = shares / total[:, None]
    return scaled


def _numbers(table: pa.Table, name: str, source: str, opened: Source | None) -> Floats:
    values = parse_floats(table[name])
    if values is not None and np.isfinite(values).all():
        return values
    if values is None:
        cells = (parse_floats(table[name].slice(row, 1)) for row in range(len(table)))
        row = next((row for row, cell in enumerate(cells) if cell is None or not np.isfinite(cell).all()), 0)
    else:
        row = int(np.argmax(~np.isfinite(values)))
    cell = table[name][row].as_py()
    raise InputError(
        "the cell is empty" if cell is None or cell == "" else f"{shown(cell)} is no number to use",
        source=source,
        place=_place(row, opened),
        column=name,
        fix="write a number",
    )


def _whole(column: pa.ChunkedArray, name: str, source: str, opened: Source | None) -> pa.Array:
    codes, names = ids.encode(column)
    if (codes < 0).any():
        place = _place(int(np.argmax(codes < 0)), opened)
        raise InputError(f"the {name} is missing", source=source, place=place, fix="fill it in")
    return names.take(pa.array(codes))


def _place(row: int, opened: Source | None) -> str:
    return f"row {row + 1}" if opened is None else opened.place(row)


def pair_positions(
    query: pa.Array, document: pa.Array, wanted_query: pa.Array, wanted_document: pa.Array, source: str
) -> Integers:
    """For each wanted pair of ids its row among (query, document), or -1; a pair that stands there twice is refused."""
    queries, documents = query.unique(), document.unique()
    here = _keys(queries, documents, query, document)
    order = np.argsort(here, kind="stable")
    twice = np.flatnonzero(np.diff(here[order]) == 0)
    if len(twice):
        row = int(order[twice[0]])
        raise InputError(
            f"the document {shown(document[row].as_py())} of query {shown(query[row].as_py())} stands there twice",
            source=source,
            fix="leave one row for each document of a query",
        )
    there = _keys(queries, documents, wanted_query, wanted_document)
    found = order[np.minimum(np.searchsorted(here, there, sorter=order), len(here) - 1)]
    return np.where((there >= 0) & (here[found] == there), found, -1)


def _keys(queries: pa.Array, documents: pa.Array, query: pa.Array, document: pa.Array) -> Integers:
    """One number for each pair; -1 where one of the two ids is not known."""
    q, d = ids.match(queries, query), ids.match(documents, document)
    return np.where((q >= 0) & (d >= 0), q * len(documents) + d, -1)
