"""Training instances: which rows a ranker sees of documents that were judged, once or often (OVERLAP 4-6)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._base import require_integer, require_number, require_one_of
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.consensus._coerce import as_judgments
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.features import Features
from crowdrank.judgments.table import Judgments
from crowdrank.rankers.labels import Labels, pair_positions, read_labels
from crowdrank.rankers.ranking_data import checked_weights

SCHEMES = ("single", "overlap", "majority", "highest", "average")
LISTS = ("duplicates", "per-judge", "per-assessor")
MISSING = ("warn", "skip", "error")
EXAMPLES = 3
"""How many ids a sentence names."""


@dataclass(frozen=True)
class Counts:
    """What was joined, and what was not."""

    documents: int
    labels: int
    without_features: int
    without_labels: int
    examples: tuple[str, ...] = ()  # labeled documents without features
    unlabeled: tuple[str, ...] = ()  # documents with features and no label

    def notes(self) -> list[str]:
        """What was left out, in plain sentences."""
        told = []
        for number, names, has, lacks in (
            (self.without_features, self.examples, "a label", "features"),
            (self.without_labels, self.unlabeled, "features", "a label"),
        ):
            if number:
                more = ", ..." if number > len(names) else ""
                told.append(
                    f"{counted(number, 'document')} with {has} but without {lacks} "
                    f"{'was' if number == 1 else 'were'} left out ({'; '.join(names)}{more})."
                )
        return told


@dataclass(frozen=True, eq=False)
class Instances:
    """Rows to learn from. A document that was judged often may stand there often.

    Attributes:
        features: query, document and features of each row.
        y: (n,) grades, or (n, n_grades) probabilities of grades.
        lists: (n,) the number of the list that each row stands in: its query, or one of several of its query.
        weight: (n,) or None.
        counts: what was joined and what was left out.

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
        """What `fit` takes: `ranker.fit(**instances.arguments)`."""
        return {"X": self.features, "y": self.y, "query": self.lists, "sample_weight": self.weight}

    @property
    def eval_set(self) -> tuple[Features, Floats, Integers]:
        """What `fit` takes as validation queries: `ranker.fit(..., eval_set=instances.eval_set)`."""
        return self.features, self.y, self.lists

    def split(self, share: float, random_state: int = 0) -> tuple[Instances, Instances]:
        """Two parts by query, the second with about this share of the queries."""
        require_number("share", share, 0, exclusive=True)
        codes, names = ids.encode(pa.chunked_array([self.features.query]))
        n = min(round(share * len(names)), len(names) - 1)
        if share >= 1 or n < 1:
            raise UsageError(f"A share of {share:g} of {counted(len(names), 'query')} leaves one part empty.")
        later = np.isin(codes, np.random.default_rng(random_state).permutation(len(names))[:n])
        return self._rows(np.flatnonzero(~later)), self._rows(np.flatnonzero(later))

    def _rows(self, rows: Integers) -> Instances:
        weight = None if self.weight is None else self.weight[rows]
        return Instances(self.features.take(rows), self.y[rows], self.lists[rows], weight, self.counts)

    @classmethod
    def from_judgments(
        cls,
        judgments: Any,
        features: Any,
        scheme: str = "overlap",
        *,
        k: int | None = None,
        lists: str = "duplicates",
        theta: float = 1.0,
        good: float = 2,
        random_state: int | None = None,
        unjudgeable_as: str = "lowest",
        missing: str = "warn",
    ) -> Instances:
        """Rows from judgments as they are, without a model of who is reliable.

        Args:
            judgments: `Judgments`, a path or a DataFrame.
            features: `Features`, a path or a DataFrame.
            scheme: `single`: one label of each document; `overlap`: every label is a row of its own; `majority`,
                `highest`, `average`: one row with what the labels say together.
            k: only so many labels of each document, of all where it has fewer; all by default.
            lists: where a document stands often (`overlap`): all rows of a query in one list, in which a document
                competes with itself (`duplicates`); one list with the first label of each document, one with the
                second, and so on (`per-judge`); or one list for each assessor of the query (`per-assessor`).
            theta, good: a label (or what the labels say together) of at least `good` has this weight, others have 1:
                OVERLAP's if-good-xk buys one label and counts it k times.
            random_state: draw the labels; the first ones, as they stand, by default.
            unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`) or left out (`drop`).
            missing: documents without features: `warn`, `skip` or `error`. Those without judgments are counted only.

        """
        require_one_of("scheme", scheme, SCHEMES)
        require_one_of("lists", lists, LISTS)
        require_number("theta", theta, 0, exclusive=True)
        if lists != "duplicates" and scheme != "overlap":
            raise UsageError(f"lists='{lists}' takes scheme='overlap': '{scheme}' has one row for each document.")
        require_one_of("unjudgeable_as", unjudgeable_as, ("lowest", "drop"))
        table = as_judgments(judgments).on_one_scale().with_unjudgeable(unjudgeable_as)
        known = as_features(features)
        order, number, item = _first_labels(table, 1 if scheme == "single" else k, random_state)
        value = np.array(table.scale.values)[table.grade[order]]
        row = pair_positions(known.query, known.document, *_items(table), "the features")
        counts = _counted(row, known, *_items(table), len(order))
        _judge(counts, missing, known, table)
        if scheme in ("majority", "highest", "average"):
            value, item = _together(scheme, value, item, table)
            number, assessor = np.zeros(len(item), np.int64), np.zeros(len(item), np.int64)
        else:
            assessor = table.assessor[order].astype(np.int64)
        split = {"duplicates": np.zeros(len(item), np.int64), "per-judge": number, "per-assessor": assessor}[lists]
        weight = None if theta == 1 else np.where(value >= good, float(theta), 1.0)
        return _gathered(known, row[item], value, split, weight, counts)

    @classmethod
    def from_labels(
        cls,
        labels: Any,
        features: Any,
        *,
        target: str = "probabilities",
        weights: Any = None,
        missing: str = "warn",
    ) -> Instances:
        """Rows with one label each, from a consensus, expert grades, or a table.

        Args:
            labels: a `Consensus` (or the fitted model), `Gold`, or the file or DataFrame of either.
            features: `Features`, a path or a DataFrame.
            target: of a consensus: the `probabilities` of grades, from which come expected gains and soft targets; the
                `expected-grade`, the most probable `grade`, or the `relevance` on the model's own scale.
            weights: None; `certainty`: documents whose grade is uncertain count less; or a number for each label.
            missing: labeled documents without features: `warn`, `skip` or `error`. Those without a label are counted
                only.

        """
        known = as_features(features)
        told = labels if isinstance(labels, Labels) else read_labels(labels)
        row = pair_positions(known.query, known.document, told.query, told.document, "the features")
        pair_positions(told.query, told.document, known.query[:1], known.document[:1], told.source)  # refuses doubles
        counts = _counted(row, known, told.query, told.document, len(row))
        _judge(counts, missing, known, told)
        weight = told.certainty() if isinstance(weights, str) and weights == "certainty" else weights
        weight = checked_weights(weight, len(row))  # here, where a row is that of the labels
        return _gathered(known, row, told.target(target), np.zeros(len(row), np.int64), weight, counts)


def as_features(features: Any) -> Features:
    """`Features` as they are; a path or a DataFrame is read."""
    from crowdrank.judgments.features import read_features

    return features if isinstance(features, Features) else read_features(features)


def _first_labels(table: Judgments, k: int | None, random_state: int | None) -> tuple[Integers, Integers, Integers]:
    """Up to k judgments of each item: their rows, their numbers within the item, and the item."""
    if k is not None:
        require_integer("k", k, 1)
    item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))
    order = np.arange(len(item))
    if random_state is not None:
        order = np.lexsort((np.random.default_rng(random_state).random(len(item)), item))
    number = np.arange(len(item)) - table.offsets[item]
    kept = np.ones(len(item), bool) if k is None else number < k
    return order[kept], number[kept], item[kept]


def _together(scheme: str, value: Floats, item: Integers, table: Judgments) -> tuple[Floats, Integers]:
    """What the labels of each item say: the majority (of tied grades the upper middle one), the highest, the mean."""
    items, group = np.unique(item, return_inverse=True)
    values = np.array(table.scale.values)
    votes = np.zeros((len(items), len(values)))
    np.add.at(votes, (group, np.searchsorted(values, value)), 1)
    if scheme == "majority":
        return values[choose_grades(votes / votes.sum(axis=1, keepdims=True), "mode")], items
    if scheme == "highest":
        return values[votes.shape[1] - 1 - (votes[:, ::-1] > 0).argmax(axis=1)], items
    return np.asarray(votes @ values / votes.sum(axis=1)), items


def _items(table: Judgments) -> tuple[pa.Array, pa.Array]:
    return table.queries.take(pa.array(table.item_query)), table.documents.take(pa.array(table.item_document))


def _counted(row: Integers, known: Features, query: pa.Array, document: pa.Array, labels: int) -> Counts:
    lost = np.flatnonzero(row < 0)
    unlabeled = np.setdiff1d(np.arange(len(known.query)), row)
    return Counts(
        documents=int((row >= 0).sum()),
        labels=labels,
        without_features=len(lost),
        without_labels=len(unlabeled),
        examples=_named(query, document, lost),
        unlabeled=_named(known.query, known.document, unlabeled),
    )


def _named(query: pa.Array, document: pa.Array, rows: Integers) -> tuple[str, ...]:
    return tuple(f"{shown(document[int(r)].as_py())} of query {shown(query[int(r)].as_py())}" for r in rows[:EXAMPLES])


def _judge(counts: Counts, missing: str, known: Features, labeled: Any) -> None:
    require_one_of("missing", missing, MISSING)
    if not counts.documents:
        there = f"the features have {counts.unlabeled[0]}" if counts.unlabeled else "there are no features"
        asked = f", the labels {counts.examples[0]}" if counts.examples else ""
        raise InputError(
            f"no labeled document has features ({there}{asked})",
            fix="check that both name queries and documents alike",
        )
    if not counts.without_features or missing == "skip":
        return
    sentence = counts.notes()[0]
    if missing == "error":
        raise InputError(
            sentence.replace(" was left out", "").replace(" were left out", "").rstrip("."),
            fix="add their features, or leave them out (missing skip)",
        )
    warnings.warn(sentence, stacklevel=4)


def _gathered(
    known: Features, row: Integers, y: Floats, split: Integers, weight: Floats | None, counts: Counts
) -> Instances:
    """The rows that have features, list by list, documents in the order of the features."""
    there = np.flatnonzero(row >= 0)
    codes, _ = ids.encode(pa.chunked_array([known.query]))
    if 1 + int((np.diff(codes) != 0).sum()) > codes.max() + 1:  # more stretches than queries
        warnings.warn("The rows of a query are not together in the features; they were sorted by query.", stacklevel=3)
    query = codes[row[there]].astype(np.int64)
    order = np.lexsort((row[there], split[there], query))
    used = there[order]
    key = np.stack([query[order], split[used]])
    lists = np.append(0, np.cumsum((np.diff(key, axis=1) != 0).any(axis=0)))
    return Instances(
        known.take(row[used]), y[used], lists, None if weight is None else np.asarray(weight)[used], counts
    )
