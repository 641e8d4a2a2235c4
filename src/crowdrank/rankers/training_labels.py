"""Labels and training instances, from a consensus, expert grades, judgments or a table (OVERLAP 4-6)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._estimator import require_integer, require_number, require_one_of
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.consensus.fit_data import as_judgments
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.pair_probabilities import PairProbabilities
from crowdrank.consensus.result import Consensus
from crowdrank.errors import CrowdrankWarning, DataWarning, Fix, InputError, UsageError, shown
from crowdrank.evaluation.measures import MAX_GRADE
from crowdrank.judgments import ids
from crowdrank.judgments.columns import FEATURES_USED, PRIOR_RELEVANCE, Roles, parse_column_map
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.pair_index import PairIndex
from crowdrank.judgments.table import Judgments
from crowdrank.rankers import RANKERS, InstanceKind, get_ranker
from crowdrank.rankers.training_data import checked_weights
from crowdrank.readers.cells import parse_floats
from crowdrank.readers.features import Features, as_features
from crowdrank.readers.formats import open_source
from crowdrank.readers.read import read_gold
from crowdrank.readers.sources import BadRows, Source, no_rows_error

if TYPE_CHECKING:
    from crowdrank.rankers.ranker import Ranker

TARGETS = ("probabilities", "expected-grade", "grade", "relevance")
PROBABILITY_COLUMN = re.compile(r"(p|true)(\d+)")
"""Name of a column with the probability of a grade."""
MISSING_FEATURE_ACTIONS = ("warn", "skip", "error")
"""What to do with labeled documents without features."""
LEARNED_FOR = "learned_for"
"""Name of the column with the name of the ranker for which targets were learned."""
LABEL_TARGET_COLUMNS = ("assessor", "target", "weight")
"""Columns of a table with the learned target of each single label."""
MAX_DOCUMENTS_IN_MESSAGE = 3
"""Maximum number of documents without features that a message names."""


@dataclass(frozen=True, eq=False)
class Labels:
    """One label per document: a number, and the probabilities of grades if they are known.

    `learned_for` has the names of the rankers for which the labels were learned, if they were.
    """

    query: pa.Array  # (n,) ids
    document: pa.Array  # (n,) ids
    relevance: Floats  # (n,)
    probabilities: Floats | None = None  # (n, n_grades) of the grades 0, 1, ...
    source: str = "the labels"
    learned_for: tuple[str, ...] = ()

    def warn_other_ranker(self, ranker: Ranker) -> None:
        """Warn if the labels were learned for a ranker of another class."""
        names = [name for name in self.learned_for if name in RANKERS]
        if not names or any(isinstance(ranker, type(get_ranker(name))) for name in names):
            return
        problem = (
            f"{self.source}: the targets were learned for {' and '.join(names)}, and {type(ranker).__name__} may lose "
            "what was learned"
        )
        fixes = (Fix("rank with the remapper itself (`crowdrank rank -m`)"), Fix("train with {}", "ranker", names[0]))
        warnings.warn(DataWarning(problem, kind=LEARNED_FOR, fix=fixes), stacklevel=2)

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
    if set(LABEL_TARGET_COLUMNS) <= set(opened.names):
        problem = "it has learned targets of single labels, and training needs one label per document"
        fix = "give the file of documents that `crowdrank remap apply` can write as well"
        raise InputError(problem, source=opened.name, kind="label-targets", fix=fix)
    if PRIOR_RELEVANCE in opened.names:
        _warn_of_features()
    probabilities = list(_probability_columns(opened.names).values())
    has_relevance = "relevance" in opened.names and not {"grade", "label", "gold"} & set(opened.names)
    if len(probabilities) < 2 and not has_relevance:
        name = str(source) if isinstance(source, str | Path) else opened.name
        gold = read_gold(source, format=format, columns=columns, grades=grades)  # type: ignore[arg-type]
        return _labels_of_gold(gold, name)
    required = ("document",) if probabilities else ("document", "score")
    roles = Roles(required, ("query",)).find_columns(opened.names, opened.name, parse_column_map(columns))
    values = [name for name in opened.names if name in ("relevance", LEARNED_FOR) or name in probabilities]
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
        raise InputError(problem, source=opened.name, place=opened.locate_row(row), column="weight", fix=fix)
    if not weight.any():
        fix = "give some documents a weight above 0"
        raise InputError("every weight is 0", source=opened.name, column="weight", fix=fix)
    index = PairIndex.from_unique_ids(*_id_columns(table, opened.name, opened), opened.name)
    position = index.positions(labels.query, labels.document)
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
    named = pc.unique(table[LEARNED_FOR].cast(pa.string())).to_pylist() if LEARNED_FOR in table.column_names else []
    learned_for = tuple(sorted(filter(None, named)))
    return Labels(*_id_columns(table, source, opened), relevance, probabilities, source, learned_for)


def _id_columns(table: pa.Table, source: str, opened: Source | None) -> tuple[pa.Array, pa.Array]:
    """Return the ids of query and document; without a column, all documents belong to the query 'all'."""
    query = table["query"] if "query" in table.column_names else pa.chunked_array([["all"] * len(table)])
    return _complete_ids(query, "query", source, opened), _complete_ids(table["document"], "document", source, opened)


def _grade_probabilities(table: pa.Table, source: str, opened: Source | None) -> Floats | None:
    """Return the probabilities of the grades 0, 1, ..., or None without such columns; a missing column means 0."""
    columns = _probability_columns(table.column_names)
    if len(columns) < 2:
        return None
    if max(columns) > MAX_GRADE:
        raise InputError(f"{columns[max(columns)]} is the probability of a grade above {MAX_GRADE}", source=source)
    probabilities = np.zeros((len(table), max(columns) + 1))
    for grade, name in columns.items():
        probabilities[:, grade] = _parse_numbers(table, name, source, opened)
    total = probabilities.sum(axis=1)
    invalid = (np.abs(total - 1) > 1e-3) | (probabilities < 0).any(axis=1)
    if invalid.any():
        row = int(np.argmax(invalid))
        problem, fix = (
            f"the probabilities of the grades sum to {total[row]:.3g}",
            f"let {', '.join(columns.values())} sum to 1 in each row",
        )
        raise InputError(problem, source=source, place=_row_location(row, opened), fix=fix)
    scaled: Floats = probabilities / total[:, None]
    return scaled


def _probability_columns(names: Iterable[str]) -> dict[int, str]:
    """Return the columns with the probabilities of grades, by grade.

    They are true0, true1, ... if there are any, because relevance is the mean of these; otherwise p0, p1, ...

    >>> _probability_columns(["document", "p0", "p1", "true0", "true1"])
    {0: 'true0', 1: 'true1'}
    """
    found: dict[str, dict[int, str]] = {"true": {}, "p": {}}
    for name in names:
        if match := PROBABILITY_COLUMN.fullmatch(name):
            found[match[1]][int(match[2])] = name
    return found["true"] or found["p"]


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
    raise InputError(problem, source=source, place=_row_location(row, opened), column=name, fix="write a number")


def _complete_ids(column: pa.ChunkedArray, name: str, source: str, opened: Source | None) -> pa.Array:
    """Return a column of ids; raise InputError if one is missing."""
    codes, names = ids.encode(column)
    if (codes < 0).any():
        place = _row_location(int(np.argmax(codes < 0)), opened)
        raise InputError(f"the {name} is missing", source=source, place=place, fix="fill it in")
    return names.take(pa.array(codes))


def _row_location(row: int, opened: Source | None) -> str:
    return f"row {row + 1}" if opened is None else opened.locate_row(row)


@dataclass(frozen=True)
class InstanceCounts:
    """Numbers of documents with labels and features.

    Attributes:
        documents: number of documents with both.
        labels: number of labels.
        without_features: number of labeled documents without features.
        without_labels: number of documents with features but without a label.
        examples: some labeled documents without features.
        unlabeled: some documents with features but without a label.

    """

    documents: int
    labels: int
    without_features: int
    without_labels: int
    examples: tuple[str, ...] = ()
    unlabeled: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, row: Integers, features: Features, query: pa.Array, document: pa.Array, n_labels: int
    ) -> InstanceCounts:
        """Count documents (query, document) by their row of features, which is -1 without features."""
        absent = np.flatnonzero(row < 0)
        unlabeled = np.setdiff1d(np.arange(len(features.query)), row)
        return cls(
            documents=int((row >= 0).sum()),
            labels=n_labels,
            without_features=len(absent),
            without_labels=len(unlabeled),
            examples=_name_documents(query, document, absent),
            unlabeled=_name_documents(features.query, features.document, unlabeled),
        )

    def notes(self) -> list[str]:
        """Return sentences about the documents that were left out."""
        notes = []
        for n, examples, present, absent in (
            (self.without_features, self.examples, "a label", "features"),
            (self.without_labels, self.unlabeled, "features", "a label"),
        ):
            if n:
                verb = "was" if n == 1 else "were"
                notes.append(f"{_describe(n, examples, present, absent)} {verb} left out.")
        return notes

    def check(self, missing: str) -> None:
        """Raise InputError if no document has labels and features; handle documents without features by `missing`."""
        require_one_of("missing", missing, MISSING_FEATURE_ACTIONS)
        if not self.documents:
            features = f"the features have {self.unlabeled[0]}" if self.unlabeled else "there are no features"
            labels = f", the labels {self.examples[0]}" if self.examples else ""
            fix = "check that both use the same ids of queries and documents"
            raise InputError(f"no labeled document has features ({features}{labels})", kind="no-features", fix=fix)
        if not self.without_features or missing == "skip":
            return
        problem = _describe(self.without_features, self.examples, "a label", "features")
        if missing == "error":
            fixes = [Fix("add their features"), Fix("leave them out with {}", "missing", "skip")]
            raise InputError(problem, kind="documents-without-features", fix=fixes)
        verb = "was" if self.without_features == 1 else "were"
        warnings.warn(CrowdrankWarning(f"{problem} {verb} left out", kind="documents-without-features"), stacklevel=4)


def _describe(n: int, examples: tuple[str, ...], present: str, absent: str) -> str:
    more = ", ..." if n > len(examples) else ""
    return f"{counted(n, 'document')} with {present} but without {absent} ({'; '.join(examples)}{more})"


def _name_documents(query: pa.Array, document: pa.Array, rows: Integers) -> tuple[str, ...]:
    return tuple(
        f"{shown(document[int(row)].as_py())} of query {shown(query[int(row)].as_py())}"
        for row in rows[:MAX_DOCUMENTS_IN_MESSAGE]
    )


@dataclass(frozen=True, eq=False)
class Instances:
    """Training instances; a document that was judged several times can have several rows.

    Attributes:
        features: query, document and features of each row.
        y: (n,) grades, or (n, n_grades) probabilities of grades.
        lists: (n,) number of the list of each row: its query, or one of several lists of its query.
        weight: (n,) or None.
        counts: numbers of documents that were joined and left out.
        pairs: joint posterior whose probabilities of pairs are the targets of `LambdaMART`, or None.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=20, documents=8, labels=3, random_state=1)
    >>> rows = Instances.from_judgments(world.judgments, world.features, "majority")
    >>> ranker = crowdrank.LambdaMART(n_estimators=10).fit(**rows.arguments)
    >>> rows.counts.documents == len(rows) == len(ranker.predict(rows.features))
    True

    """

    features: Features
    y: Floats
    lists: Integers
    weight: Floats | None
    counts: InstanceCounts
    pairs: PairProbabilities | None = None

    def __len__(self) -> int:
        return len(self.lists)

    def __repr__(self) -> str:
        lists = counted(len(np.unique(self.lists)), "list")
        return f"<Instances: {counted(len(self), 'row')} of {counted(self.counts.documents, 'document')} in {lists}>"

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of a ranker's `fit`: `ranker.fit(**instances.arguments)`."""
        arguments = {"X": self.features, "y": self.y, "query": self.lists, "sample_weight": self.weight}
        if self.pairs is None:
            return arguments
        items = self.pairs.positions(self.features.query, self.features.document)
        offsets = np.concatenate([[0], np.flatnonzero(np.diff(self.lists)) + 1, [len(self.lists)]])
        return {**arguments, "pair_probabilities": self.pairs.of_queries(items, offsets)}

    @property
    def eval_set(self) -> tuple[Features, Floats, Integers]:
        """Argument `eval_set` of a ranker's `fit`."""
        return self.features, self.y, self.lists

    def split(self, share: float, random_state: int = 0) -> tuple[Instances, Instances]:
        """Split randomly by query; the second part has about this share of the queries."""
        require_number("share", share, 0, exclusive=True)
        codes, names = ids.encode(pa.chunked_array([self.features.query]))
        n = min(round(share * len(names)), len(names) - 1)
        if share >= 1 or n < 1:
            problem = f"of {share:g} leaves one part of {counted(len(names), 'query')} empty"
            raise UsageError(problem, parameter="share", kind="empty-part")
        second = np.isin(codes, np.random.default_rng(random_state).permutation(len(names))[:n])
        return self._take(np.flatnonzero(~second)), self._take(np.flatnonzero(second))

    def _take(self, rows: Integers) -> Instances:
        weight = None if self.weight is None else self.weight[rows]
        return replace(self, features=self.features.take(rows), y=self.y[rows], lists=self.lists[rows], weight=weight)

    @classmethod
    def from_judgments(
        cls,
        judgments: Any,
        features: Any,
        instances: InstanceKind = "overlap",
        *,
        k: int | None = None,
        good: float = 2,
        good_weight: float = 3.0,
        random_state: int | None = None,
        unjudgeable_as: str = "lowest",
        missing: str = "warn",
    ) -> Instances:
        """Return training instances from single judgments, without a model of assessors.

        Args:
            judgments: `Judgments`, a path or a DataFrame.
            features: `Features`, a path or a DataFrame.
            instances: the rows of a document:

                - `single`: its first label;
                - `overlap`: every label is a row, in one list per query, where a document competes with itself;
                - `per-judge-lists`: every label is a row; a list has the first labels of all documents, another one the
                  second labels, and so on;
                - `per-assessor-lists`: every label is a row, one list per assessor of the query;
                - `majority`, `highest`, `average`: one row with the majority vote, the highest or the mean grade;
                - `weighted`: as `overlap`, but labels of at least `good` have the weight `good_weight` (OVERLAP's
                  if-good-xk).
            k: maximum number of labels per document; all by default.
            good: lowest grade of a good label.
            good_weight: weight of a good label, if `instances` is `weighted`.
            random_state: random choice of the labels; by default the first ones.
            unjudgeable_as: use 'cannot judge' answers as the lowest grade (`lowest`) or leave them out (`drop`).
            missing: `warn`, `skip` or `error` if documents have no features. Documents without judgments are counted.

        """
        require_one_of("instances", instances, get_args(InstanceKind))
        require_number("good_weight", good_weight, 0, exclusive=True)
        require_one_of("unjudgeable_as", unjudgeable_as, ("lowest", "drop"))
        table, known = as_judgments(judgments).to_one_scale().with_unjudgeable(unjudgeable_as), as_features(features)
        judgment, number, item = _first_labels(table, 1 if instances == "single" else k, random_state)
        grade = np.array(table.scale.values)[table.grade[judgment]]
        query, document = table.item_ids()
        row = known.positions(query, document)
        counts = InstanceCounts.of(row, known, query, document, len(judgment))
        counts.check(missing)
        weight = np.where(grade >= good, float(good_weight), 1.0) if instances == "weighted" else None
        if instances in ("majority", "highest", "average"):
            grade, item = _combine_grades(instances, grade, item, table)
        one_list = np.zeros(len(item), np.int64)
        sublists = {"per-judge-lists": number, "per-assessor-lists": table.assessor[judgment].astype(np.int64)}
        return _join(known, row[item], grade, sublists.get(instances, one_list), weight, counts)

    @classmethod
    def from_labels(
        cls, labels: Any, features: Any, *, target: str = "probabilities", weights: Any = None, missing: str = "warn"
    ) -> Instances:
        """Return one training instance per label.

        Args:
            labels: a `Consensus` (or the fitted model), `Gold`, or the file or DataFrame of either.
            features: `Features`, a path or a DataFrame.
            target: value of a consensus to train on: the `probabilities` of grades (for expected gains and soft pair
                targets), the `expected-grade`, the most probable `grade`, or the `relevance` on the model's scale.
            weights: None; `certainty`, which gives less weight to uncertain labels; or a number per label.
            missing: `warn`, `skip` or `error` if labeled documents have no features. Documents without labels are
                counted.

        """
        known = as_features(features)
        table = labels if isinstance(labels, Labels) else read_labels(labels)
        row = known.positions(table.query, table.document)
        PairIndex.from_unique_ids(table.query, table.document, table.source)
        counts = InstanceCounts.of(row, known, table.query, table.document, len(row))
        counts.check(missing)
        weight = table.certainty() if isinstance(weights, str) and weights == "certainty" else weights
        weight = checked_weights(weight, len(row))  # here, while rows are those of the labels
        return _join(known, row, table.target(target), np.zeros(len(row), np.int64), weight, counts)

    @classmethod
    def from_posterior(cls, model: Aggregator, features: Any, *, missing: str = "warn") -> Instances:
        """Return one training instance per document, with the probabilities of pairs by a model's joint posterior.

        Gains come from the probabilities of grades, or, if the model was fitted to preferences alone, from relevance,
        counted from the lowest one. The instances train `LambdaMART`.

        Args:
            model: fitted model whose relevance is on a line, such as `GDA` with preferences.
            features: `Features`, a path or a DataFrame.
            missing: as in :meth:`from_labels`.

        >>> import crowdrank
        >>> world = crowdrank.simulate(queries=20, documents=8, random_state=1)
        >>> rows = Instances.from_posterior(crowdrank.GDA().fit(world.judgments), world.features)
        >>> crowdrank.LambdaMART(n_estimators=10).fit(**rows.arguments).n_features_in_
        20

        """
        pairs, labels = PairProbabilities.from_model(model), read_labels(model)
        if labels.probabilities is None:
            labels = replace(labels, relevance=labels.relevance - labels.relevance.min())
        return replace(cls.from_labels(labels, features, missing=missing), pairs=pairs)


def _first_labels(table: Judgments, k: int | None, random_state: int | None) -> tuple[Integers, Integers, Integers]:
    """Return up to k judgments of each item: their rows, their numbers within the item, and their items."""
    if k is not None:
        require_integer("k", k, 1)
    item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))
    order = np.arange(len(item))
    if random_state is not None:
        order = np.lexsort((np.random.default_rng(random_state).random(len(item)), item))
    number = np.arange(len(item)) - table.offsets[item]
    chosen = slice(None) if k is None else number < k
    return order[chosen], number[chosen], item[chosen]


def _combine_grades(how: str, grade: Floats, item: Integers, table: Judgments) -> tuple[Floats, Integers]:
    """Return the majority (of tied grades the upper middle one), highest or mean grade of each item, and the items."""
    items, group = np.unique(item, return_inverse=True)
    values = np.array(table.scale.values)
    votes = np.zeros((len(items), len(values)))
    np.add.at(votes, (group, np.searchsorted(values, grade)), 1)
    if how == "majority":
        return values[choose_grades(votes / votes.sum(axis=1, keepdims=True), "mode")], items
    if how == "highest":
        return values[votes.shape[1] - 1 - (votes[:, ::-1] > 0).argmax(axis=1)], items
    return np.asarray(votes @ values / votes.sum(axis=1)), items


def _join(
    features: Features, row: Integers, y: Floats, sublist: Integers, weight: Floats | None, counts: InstanceCounts
) -> Instances:
    """Return the instances that have features, list by list, with documents in the order of the features.

    Args:
        features: features of documents.
        row: (n,) row of features of each instance, or -1.
        y: (n,) or (n, n_grades) labels.
        sublist: (n,) number of the list within the query.
        weight: (n,) or None.
        counts: numbers of documents.

    """
    present = np.flatnonzero(row >= 0)
    codes, names = ids.encode(pa.chunked_array([features.query]))
    if 1 + np.count_nonzero(np.diff(codes)) > len(names):
        problem = "The rows of a query are not adjacent in the features; they were sorted by query"
        warnings.warn(CrowdrankWarning(problem, kind="unsorted-queries"), stacklevel=3)
    query = codes[row[present]].astype(np.int64)
    order = np.lexsort((row[present], sublist[present], query))
    used = present[order]
    key = np.stack([query[order], sublist[used]])
    lists = np.append(0, np.cumsum((np.diff(key, axis=1) != 0).any(axis=0)))
    return Instances(features.take(row[used]), y[used], lists, None if weight is None else weight[used], counts)
