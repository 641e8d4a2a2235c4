"""What a run works on: documents with features, what the crowd and the experts said of them, joined row by row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.consensus._coerce import as_judgments
from crowdrank.errors import InputError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.features import Features
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.read import read_gold
from crowdrank.judgments.summary import uncertain_scale_note
from crowdrank.judgments.table import NO_HONEYPOT, Judgments
from crowdrank.label_learning.label_features import without_honeypots
from crowdrank.rankers.instances import as_features
from crowdrank.rankers.labels import pair_positions
from crowdrank.rankers.ranking_data import LARGEST_GRADE

EXAMPLES = 3


@dataclass(frozen=True, eq=False)
class Material:
    """Everything that was given, by the rows of the features.

    Attributes:
        features: query, document and features of each row.
        judgments: all of them, honeypots included, on one scale where there is a map to one.
        labels: those that rankers may learn from: no honeypots.
        expert: (n_rows,) expert grades, counted from 0 for the lowest of their scale; NaN where there is none.
        judged: (n_rows,) how many labels the row's document has.
        notes: what was left out or is worth knowing, in sentences.
        gold: expert grades as read, without those of honeypots, with their scale and its map.

    """

    features: Features
    judgments: Judgments
    labels: Judgments
    expert: Floats
    judged: Integers
    notes: tuple[str, ...] = ()
    gold: Gold | None = None

    @cached_property
    def query(self) -> Integers:
        """The number of each row's query."""
        codes, _ = ids.encode(pa.chunked_array([self.features.query]))
        return codes.astype(np.int64)

    @cached_property
    def query_ids(self) -> pa.Array:
        """The id of each query number."""
        return ids.encode(pa.chunked_array([self.features.query]))[1]

    @property
    def has_families(self) -> bool:
        """Whether the judgments name families of assessors."""
        family = self.labels.assessor_family
        return family is not None and bool((family >= 0).any())

    @cached_property
    def graded_queries(self) -> Integers:
        """The queries in which experts told two documents apart: only they can say which ranking is better."""
        graded = ~np.isnan(self.expert)
        query, grade = self.query[graded], self.expert[graded]
        low = np.full(len(self.query_ids), np.inf)
        high = np.full(len(self.query_ids), -np.inf)
        np.minimum.at(low, query, grade)
        np.maximum.at(high, query, grade)
        return np.flatnonzero(high > low)

    def on_expert_scale(self, grade: Floats) -> Floats:
        """Return expected grades of the judgments as expert grades, counted from 0.

        By the map of expert grades, or by position if both scales have the same length; otherwise the lowest and the
        highest grades correspond.
        """
        scale, experts = np.array(self.labels.main_scale.values), self.gold
        assert experts is not None
        values = np.array(experts.scale.values) - experts.scale.values[0]
        sets = experts.grade_sets(self.labels.main_scale)
        if sets is None or not sets.any(axis=0).all():
            return np.asarray(np.interp(grade, [scale[0], scale[-1]], [0.0, values[-1]]))
        return np.asarray(np.interp(grade, scale, values @ sets / sets.sum(axis=0)))

    @cached_property
    def item(self) -> Integers:
        """(n_rows,) the row's item among `labels`, -1 where nobody judged it."""
        return self.labels.positions(self.features.query, self.features.document)

    def by_row(self, values: Floats) -> Floats:
        """Values of the items of `labels` as values of rows, NaN where nobody judged."""
        found = np.full((len(self.item), *values.shape[1:]), np.nan)
        found[self.item >= 0] = values[self.item[self.item >= 0]]
        return found

    def rows_of(self, queries: Integers) -> Integers:
        """The rows of these queries."""
        return np.flatnonzero(np.isin(self.query, queries))

    def taken(self, rows: Integers) -> Features:
        """The features of some rows."""
        return self.features.take(rows)


def gather(
    judgments: Any, features: Any, expert: Any = None, honeypots: Any = None, *, unjudgeable_as: str = "lowest"
) -> Material:
    """Join what was given: `Judgments`, `Features` and `Gold`, or paths and DataFrames of them."""
    table, known = as_judgments(judgments), as_features(features)
    gold = None if expert is None else expert if isinstance(expert, Gold) else read_gold(expert)
    pair_positions(known.query, known.document, known.query[:1], known.document[:1], "the features")  # refuses doubles
    doubt = uncertain_scale_note(table)
    notes = [] if doubt is None else [f"Of the judgments: {doubt}"]
    notes += [
        f"{counted(n, 'row')} of the judgments left out ({reason})." for reason, n in table.report.skipped.items()
    ]
    if honeypots is not None:
        planted = honeypots if isinstance(honeypots, Gold) else read_gold(honeypots)
        table, note = planted_in(table, planted)
        notes.append(note)
    table = (table.on_one_scale() if table.maps_to_one_scale else table).with_unjudgeable(unjudgeable_as)
    labels = without_honeypots(table)
    _refuse_equal(labels)
    item = labels.positions(known.query, known.document)
    if (item < 0).all():
        raise nothing_in_common("judged", labels.queries.take(pa.array(labels.item_query)), _documents(labels), known)
    judged = np.where(item >= 0, np.diff(labels.offsets)[np.maximum(item, 0)], 0)
    without = labels.n_items - int((item >= 0).sum())
    if without:
        notes.append(
            f"{counted(without, 'judged document')} without features cannot be learned from: they tell of assessors, "
            "but no ranker sees them. Add their features to the file of features to use them."
        )
    grade = np.full(len(known.query), np.nan)
    if gold is not None:
        grade, more = _expert_grades(gold, known)
        pots = (table.positions(known.query, known.document) >= 0) & (item < 0) & ~np.isnan(grade)
        if pots.any():
            grade[pots] = np.nan
            more.append(
                f"Expert grades of {counted(int(pots.sum()), 'honeypot')} are left out: planted documents check "
                "assessors, and are no part of the choice and the test of rankers. There is nothing to do."
            )
        notes += [*more, *_flat(grade, known)]
        is_honeypot = (table.positions(gold.query, gold.document) >= 0) & (
            labels.positions(gold.query, gold.document) < 0
        )
        gold = gold.take(np.flatnonzero(~is_honeypot))
    return Material(replace(known, grade=None), table, labels, grade, judged, tuple(notes), gold)


def _documents(labels: Judgments) -> pa.Array:
    return labels.documents.take(pa.array(labels.item_document))


def _expert_grades(gold: Gold, known: Features) -> tuple[Floats, list[str]]:
    """The expert grade of each row; and how many have no features."""
    values = np.array(gold.scale.values, dtype=np.float64)
    if values[0] < 0 or values[-1] > LARGEST_GRADE:
        raise InputError(
            f"the expert grades {gold.scale} are not within 0 and {LARGEST_GRADE}",
            fix="name the scale from the lowest grade up, or leave out what means 'cannot judge'",
        )
    row = pair_positions(known.query, known.document, gold.query, gold.document, "the features")
    if (row < 0).all():
        raise nothing_in_common("expert-graded", gold.query, gold.document, known)
    grade = np.full(len(known.query), np.nan)
    grade[row[row >= 0]] = values[gold.code[row >= 0]] - values[0]
    lost = int((row < 0).sum())
    told = (
        f"{counted(lost, 'expert-graded document')} without features cannot be ranked, and count neither in the choice "
        "nor in the test. Add their features to the file of features to use them."
    )
    return grade, [told] if lost else []


def _flat(grade: Floats, known: Features) -> list[str]:
    """Return a note on expert-graded queries whose grades are all equal, which cannot compare rankings."""
    codes = ids.encode(pa.chunked_array([known.query]))[0][~np.isnan(grade)]
    order = np.argsort(codes, kind="stable")
    grades, starts = grade[~np.isnan(grade)][order], np.unique(codes[order], return_index=True)[1]
    if not len(starts):
        return []
    flat = int((np.minimum.reduceat(grades, starts) == np.maximum.reduceat(grades, starts)).sum())
    if not flat:
        return []
    return [
        f"{counted(flat, 'expert-graded query')} of {len(starts):,} {'has' if flat == 1 else 'have'} one grade only, "
        "which tells no two rankings apart: left out, so that choice and test rest on the others. To use them, let "
        "experts grade more of their documents."
    ]


def planted_in(table: Judgments, honeypots: Gold) -> tuple[Judgments, str]:
    """The judgments with the right answers of honeypots, and a sentence about them."""
    answer = honeypots.codes_by_name(table)
    right = np.repeat(answer, np.diff(table.offsets)).astype(np.int8)
    already = table.extras.get("honeypot", np.full(len(table), NO_HONEYPOT, np.int8))
    codes = np.where(right >= 0, right, already)
    found = int((answer >= 0).sum())
    if not found:
        raise InputError(
            f"none of the {counted(len(honeypots), 'honeypot')} was judged (the first: "
            f"{shown(honeypots.document[0].as_py())} of query {shown(honeypots.query[0].as_py())})",
            fix="check that both files name queries and documents alike",
        )
    note = (
        f"{counted(found, 'honeypot')} of {len(honeypots):,} were judged; no ranker learns from them. They only show "
        "who answers with care (column honeypots of the assessors); there is nothing to do."
    )
    return replace(table, extras={**table.extras, "honeypot": codes}), note


def _refuse_equal(labels: Judgments) -> None:
    scale_of = labels.assessor_scale[labels.assessor]
    if len(labels.scales) == 1 and len(np.unique(labels.grade)) == 1:
        grade = labels.scales[int(scale_of[0])].names[int(labels.grade[0])]
        raise InputError(
            f"every judgment says the same grade ({grade}), from which no ranker can learn",
            fix="give judgments that tell documents apart",
        )


def nothing_in_common(what: str, query: pa.Array, document: pa.Array, known: Features) -> InputError:
    """The error that no document of one file is in the features, with ids of both sides."""
    theirs, ours = (_examples(*side) for side in ((query, document), (known.query, known.document)))
    return InputError(
        f"no {what} document has features ({what}: {theirs}; with features: {ours})",
        fix="let both files name queries and documents alike",
    )


def _examples(query: pa.Array, document: pa.Array) -> str:
    pairs = zip(query[:EXAMPLES].to_pylist(), document[:EXAMPLES].to_pylist(), strict=True)
    return ", ".join(f"document {shown(d)} of query {shown(q)}" for q, d in pairs)
