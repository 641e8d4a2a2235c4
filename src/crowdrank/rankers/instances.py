"""Training instances: the rows that a ranker learns from, made of judgments or labels (OVERLAP 4-6)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from crowdrank._base import require_integer, require_number, require_one_of
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.consensus._coerce import as_judgments
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.errors import CrowdrankWarning, Fix, InputError, UsageError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.features import Features, as_features
from crowdrank.judgments.table import Judgments
from crowdrank.rankers import InstanceKind
from crowdrank.rankers.labels import Labels, pair_positions, read_labels
from crowdrank.rankers.ranking_data import checked_weights

MISSING = ("warn", "skip", "error")
MAX_NAMED = 3
"""Maximum number of documents that a message names."""


@dataclass(frozen=True)
class Counts:
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
    def of(cls, row: Integers, features: Features, query: pa.Array, document: pa.Array, n_labels: int) -> Counts:
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
        require_one_of("missing", missing, MISSING)
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
        f"{shown(document[int(row)].as_py())} of query {shown(query[int(row)].as_py())}" for row in rows[:MAX_NAMED]
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
    counts: Counts

    def __len__(self) -> int:
        return len(self.lists)

    def __repr__(self) -> str:
        lists = counted(len(np.unique(self.lists)), "list")
        return f"<Instances: {counted(len(self), 'row')} of {counted(self.counts.documents, 'document')} in {lists}>"

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of a ranker's `fit`: `ranker.fit(**instances.arguments)`."""
        return {"X": self.features, "y": self.y, "query": self.lists, "sample_weight": self.weight}

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
        return Instances(self.features.take(rows), self.y[rows], self.lists[rows], weight, self.counts)

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
        table, known = as_judgments(judgments).on_one_scale().with_unjudgeable(unjudgeable_as), as_features(features)
        judgment, number, item = _first_labels(table, 1 if instances == "single" else k, random_state)
        grade = np.array(table.scale.values)[table.grade[judgment]]
        query, document = table.queries.take(table.item_query), table.documents.take(table.item_document)
        row = pair_positions(known.query, known.document, query, document, "the features")
        counts = Counts.of(row, known, query, document, len(judgment))
        counts.check(missing)
        weight = np.where(grade >= good, float(good_weight), 1.0) if instances == "weighted" else None
        if instances in ("majority", "highest", "average"):
            grade, item = _combine(instances, grade, item, table)
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
        row = pair_positions(known.query, known.document, table.query, table.document, "the features")
        require_unique_documents(table.query, table.document, table.source)
        counts = Counts.of(row, known, table.query, table.document, len(row))
        counts.check(missing)
        weight = table.certainty() if isinstance(weights, str) and weights == "certainty" else weights
        weight = checked_weights(weight, len(row))  # here, while rows are those of the labels
        return _join(known, row, table.target(target), np.zeros(len(row), np.int64), weight, counts)


def require_unique_documents(query: pa.Array, document: pa.Array, source: str) -> None:
    """Raise InputError if a document of a query occurs twice."""
    pair_positions(query, document, query[:0], document[:0], source)


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


def _combine(how: str, grade: Floats, item: Integers, table: Judgments) -> tuple[Floats, Integers]:
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
    features: Features, row: Integers, y: Floats, sublist: Integers, weight: Floats | None, counts: Counts
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
