"""Labels of documents to train on, from a consensus, expert grades or a table."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._base import require_one_of
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.consensus.result import Consensus
from crowdrank.errors import DataWarning, InputError, UsageError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.bad_rows import BadRows, no_rows_error
from crowdrank.judgments.cells import parse_floats
from crowdrank.judgments.columns import FEATURES_USED, PRIOR_RELEVANCE, Roles, parse_column_map
from crowdrank.judgments.formats import open_source
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.read import read_gold
from crowdrank.judgments.sources import Source
from crowdrank.rankers.ranking_data import MAX_GRADE

TARGETS = ("probabilities", "expected-grade", "grade", "relevance")
PROBABILITY_COLUMN = re.compile(r"p(\d+)")
"""Name of a column with the probability of a grade."""


@dataclass(frozen=True, eq=False)
class Labels:
    """One label per document: a number, and the probabilities of grades if they are known."""

    query: pa.Array  # (n,) ids
    document: pa.Array  # (n,) ids
    relevance: Floats  # (n,)
    probabilities: Floats | None = None  # (n, n_grades) of the grades 0, 1, ...
    source: str = "the labels"

    def target(self, name: str) -> Floats:
        """Return the values to train on: `probabilities` if there are any, or one number per document.

        >>> labels = Labels(pa.array([1]), pa.array(["a"]), np.array([0.3]), np.array([[0.6, 0.4]]))
        >>> [labels.target(name).tolist() for name in TARGETS]
        [[[0.6, 0.4]], [0.4], [0.0], [0.3]]
        """
        require_one_of("target", name, TARGETS)
        if self.probabilities is None or name == "relevance":
            return self.relevance
        if name == "probabilities":
            return self.probabilities
        if name == "grade":
            return choose_grades(self.probabilities, "mode").astype(np.float64)
        return _expected_grade(self.probabilities)

    def certainty(self) -> Floats:
        """Return weights 1 / (1 + variance of the grade / mean variance), scaled to mean 1."""
        if self.probabilities is None:
            problem = "'certainty' needs labels with the probabilities of grades, as a consensus has them"
            raise UsageError(problem, parameter="weights", kind="no-probabilities")
        grades = np.arange(self.probabilities.shape[1])
        variance = np.maximum(self.probabilities @ grades**2 - _expected_grade(self.probabilities) ** 2, 0.0)
        mean = variance.mean()
        weight = 1 / (1 + variance / mean) if mean > 0 else np.ones(len(variance))
        return np.asarray(weight / weight.mean(), dtype=np.float64)


def _expected_grade(probabilities: Floats) -> Floats:
    return np.asarray(probabilities @ np.arange(probabilities.shape[1]), dtype=np.float64)


def read_labels(
    source: Any,
    *,
    format: str | None = None,
    columns: str | Mapping[str, str] | None = None,
    grades: str | None = None,
) -> Labels:
    """Read labels from a consensus, expert grades, or a table of either; other tables need one number per document.

    Args:
        source: `Consensus` or fitted model, `Gold`, a path or a DataFrame.
        format, columns, grades: as in `read_gold`.

    >>> import pandas as pd
    >>> read_labels(pd.DataFrame({"document": ["a", "b"], "p0": [0.9, 0.2], "p1": [0.1, 0.8]})).target("expected-grade")
    array([0.1, 0.8])

    """
    if isinstance(source, Aggregator):
        source._require_fitted()
    consensus = getattr(source, "consensus_", source)
    if isinstance(consensus, Consensus):
        if consensus.features_used:
            _warn_of_features()
        return _labels_of_table(consensus.document_table, f"the consensus by {consensus.method}")
    if isinstance(source, Gold):
        return _labels_of_gold(source, "the expert grades")
    opened, _ = open_source(source, format, None)
    if PRIOR_RELEVANCE in opened.names:
        _warn_of_features()
    probabilities = [name for name in opened.names if PROBABILITY_COLUMN.fullmatch(name)]
    has_relevance = "relevance" in opened.names and not {"grade", "label", "gold"} & set(opened.names)
    if len(probabilities) < 2 and not has_relevance:
        name = str(source) if isinstance(source, str | Path) else opened.name
        gold = read_gold(source, format=format, columns=columns, grades=grades)  # type: ignore[arg-type]
        return _labels_of_gold(gold, name)
    required = ("document",) if probabilities else ("document", "score")
    roles = Roles(required, ("query",)).find_columns(opened.names, opened.name, parse_column_map(columns))
    values = [name for name in opened.names if name == "relevance" or name in probabilities]
    table = opened.read(list(dict.fromkeys([*roles.values(), *values])), BadRows())
    if not len(table):
        raise no_rows_error(opened.name)
    new_names = {roles["document"]: "document", roles.get("query", ""): "query", roles.get("score", ""): "relevance"}
    table = table.rename_columns([new_names.get(name, name) for name in table.column_names])
    return _labels_of_table(table, opened.name, opened)


def _warn_of_features() -> None:
    problem = "The labels used features of the documents: a ranker that is trained on the same features gains nothing"
    fix = "train on labels without features"
    warnings.warn(DataWarning(problem, kind=FEATURES_USED, fix=fix), stacklevel=3)


def read_weights(source: Any, labels: Labels) -> Floats:
    """Read the weight of each label from a table of query, document and weight; raise InputError if one is missing.

    >>> import pandas as pd
    >>> labels = read_labels(pd.DataFrame({"document": ["a", "b"], "grade": [1, 0]}))
    >>> read_weights(pd.DataFrame({"document": ["b", "a"], "weight": [2, 3]}), labels).tolist()
    [3.0, 2.0]
    """
    opened, _ = open_source(source, None, None)
    if "weight" not in opened.names:
        fix = f"the columns are: {', '.join(opened.names)}"
        raise InputError("there is no column 'weight'", source=opened.name, fix=fix)
    roles = Roles(("document",), ("query",)).find_columns(opened.names, opened.name)
    table = opened.read([*roles.values(), "weight"], BadRows()).rename_columns([*roles, "weight"])
    weight = _parse_numbers(table, "weight", opened.name, opened)
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        problem, fix = f"the weight {weight[row]:g} is below 0", "write a number of at least 0"
        raise InputError(problem, source=opened.name, place=opened.place(row), column="weight", fix=fix)
    if not weight.any():
        fix = "give some documents a weight above 0"
        raise InputError("every weight is 0", source=opened.name, column="weight", fix=fix)
    position = pair_positions(*_id_columns(table, opened.name, opened), labels.query, labels.document, opened.name)
    if (position < 0).any():
        first, n = int(np.argmax(position < 0)), int((position < 0).sum())
        document, query = shown(labels.document[first].as_py()), shown(labels.query[first].as_py())
        problem = (
            f"{counted(n, 'label')} {'has' if n == 1 else 'have'} no weight (the first: {document} of query {query})"
        )
        raise InputError(problem, source=opened.name, fix="give each labeled document a weight")
    return weight[position]


def _labels_of_gold(gold: Gold, source: str) -> Labels:
    """Return expert grades as labels."""
    return Labels(gold.query, gold.document, np.array(gold.scale.values)[gold.code], None, source)


def _labels_of_table(table: pa.Table, source: str, opened: Source | None = None) -> Labels:
    """Return the labels of a document table of a consensus."""
    probabilities = _grade_probabilities(table, source, opened)
    if "relevance" in table.column_names:
        relevance = _parse_numbers(table, "relevance", source, opened)
    else:
        assert probabilities is not None
        relevance = _expected_grade(probabilities)
    return Labels(*_id_columns(table, source, opened), relevance, probabilities, source)


def _id_columns(table: pa.Table, source: str, opened: Source | None) -> tuple[pa.Array, pa.Array]:
    """Return the ids of query and document; without a column, all documents belong to the query 'all'."""
    query = table["query"] if "query" in table.column_names else pa.chunked_array([["all"] * len(table)])
    return _complete_ids(query, "query", source, opened), _complete_ids(table["document"], "document", source, opened)


def _grade_probabilities(table: pa.Table, source: str, opened: Source | None) -> Floats | None:
    """Return the probabilities of the grades 0, 1, ... from columns p0, p1, ..., or None; a missing column means 0."""
    columns = {int(match[1]): name for name in table.column_names if (match := PROBABILITY_COLUMN.fullmatch(name))}
    if len(columns) < 2:
        return None
    if max(columns) > MAX_GRADE:
        raise InputError(f"p{max(columns)} is the probability of a grade above {MAX_GRADE}", source=source)
    probabilities = np.zeros((len(table), max(columns) + 1))
    for grade, name in columns.items():
        probabilities[:, grade] = _parse_numbers(table, name, source, opened)
    total = probabilities.sum(axis=1)
    invalid = (np.abs(total - 1) > 1e-3) | (probabilities < 0).any(axis=1)
    if invalid.any():
        row = int(np.argmax(invalid))
        problem, fix = (
            f"the probabilities of the grades sum to {total[row]:.3g}",
            "let p0, p1, ... sum to 1 in each row",
        )
        raise InputError(problem, source=source, place=_place(row, opened), fix=fix)
    scaled: Floats = probabilities / total[:, None]
    return scaled


def _parse_numbers(table: pa.Table, name: str, source: str, opened: Source | None) -> Floats:
    """Return a column as finite numbers; raise InputError for the first cell that is not one."""
    values = parse_floats(table[name])
    if values is not None and np.isfinite(values).all():
        return values
    if values is None:
        cells = (parse_floats(table[name].slice(row, 1)) for row in range(len(table)))
        row = next((row for row, cell in enumerate(cells) if cell is None or not np.isfinite(cell).all()), 0)
    else:
        row = int(np.argmax(~np.isfinite(values)))
    cell = table[name][row].as_py()
    problem = "the cell is empty" if cell is None or cell == "" else f"{shown(cell)} is not a finite number"
    raise InputError(problem, source=source, place=_place(row, opened), column=name, fix="write a number")


def _complete_ids(column: pa.ChunkedArray, name: str, source: str, opened: Source | None) -> pa.Array:
    """Return a column of ids; raise InputError if one is missing."""
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
    """Return the row of each wanted pair among (query, document), or -1; raise InputError if a pair occurs twice."""
    queries, documents = query.unique(), document.unique()
    keys = _pair_keys(queries, documents, query, document)
    order = np.argsort(keys, kind="stable")
    repeated = np.flatnonzero(np.diff(keys[order]) == 0)
    if len(repeated):
        row = int(order[repeated[0]])
        problem = f"the document {shown(document[row].as_py())} of query {shown(query[row].as_py())} occurs twice"
        fix = "leave one row for each document of a query"
        raise InputError(problem, source=source, kind="repeated-document", fix=fix)
    wanted = _pair_keys(queries, documents, wanted_query, wanted_document)
    nearest = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    return np.where((wanted >= 0) & (keys[nearest] == wanted), nearest, -1)


def _pair_keys(queries: pa.Array, documents: pa.Array, query: pa.Array, document: pa.Array) -> Integers:
    """Return one number per pair; -1 if one of the two ids is unknown."""
    q, d = ids.match(queries, query), ids.match(documents, document)
    return np.where((q >= 0) & (d >= 0), q * len(documents) + d, -1)
