"""Data of a run: documents with features, crowd judgments and expert grades, aligned by row."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.consensus.fit_data import as_judgments, example_map
from crowdrank.consensus.result import item_ids
from crowdrank.errors import Fix, InputError, Message, shown
from crowdrank.evaluation.measures import MAX_GRADE
from crowdrank.judgments.columns import FEATURES_USED
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.scale import GradeMap, GradeMapLike, Scale
from crowdrank.judgments.summary import one_document_warnings, uncertain_scale_note, unused_judgment_notes
from crowdrank.judgments.table import NO_HONEYPOT, UNJUDGEABLE, Judgments, ReadReport
from crowdrank.pipeline.stage_cache import digest
from crowdrank.readers.features import Features, as_features
from crowdrank.readers.leak_check import Leak, find_leaks
from crowdrank.readers.preference_files import read_preferences
from crowdrank.readers.read import read_gold

if TYPE_CHECKING:
    from crowdrank.rankers.training_data import NamedMatrix, SharedMatrix

EXPERT_DOUBTS = ("shifted-ids", "experts-disagree", "reversed-grades")
"""Kinds of warnings that expert grades seem to be those of other documents, or in reverse order."""
MAX_SHARED_MATRICES = 4
"""Maximum number of feature matrices, each of other rows, that are kept for several rankers."""
MAX_IDS_IN_MESSAGE = 3
"""Maximum number of documents that an error names."""


@dataclass(frozen=True, eq=False)
class RunData:
    """Documents of a run, one row each; the rows of a query are adjacent.

    Attributes:
        features: query, document and features of each row.
        query: (n_rows,) query code of each row, in ascending order.
        query_ids: (n_queries,) id of each query code.
        offsets: (n_queries + 1,) first row of each query.
        judgments: crowd judgments including those of honeypots, on a common scale if they can be mapped to one.
        labels: crowd judgments that rankers may be trained on: those of documents that are not honeypots.
        item: (n_rows,) index of the row's document in `labels`, -1 without a judgment.
        expert: (n_rows,) expert grade, counted from 0 for the lowest grade of the scale; NaN without one.
        gold: expert grades as read, without those of honeypots.
        preferences: preferences between documents of `labels`, or None.
        digests: digests of the features, judgments and labels, for cache keys.
        notes: messages about data that are not used.

    """

    features: Features
    query: Integers
    query_ids: pa.Array
    offsets: Integers
    judgments: Judgments
    labels: Judgments
    item: Integers
    expert: Floats
    gold: Gold | None = None
    preferences: Preferences | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[Message, ...] = ()
    _recent: dict[str, SharedMatrix] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def has_features(self) -> bool:
        """Whether there are features; otherwise the rows are the judged documents."""
        return bool(self.features.names)

    @property
    def has_families(self) -> bool:
        """Whether the judgments name families of assessors."""
        family = self.labels.assessor_family
        return family is not None and bool((family >= 0).any())

    @cached_property
    def n_labels(self) -> Integers:
        """(n_rows,) number of labels of each row."""
        return np.where(self.item >= 0, np.diff(self.labels.offsets)[self.item], 0)

    @cached_property
    def is_graded(self) -> Booleans:
        """(n_rows,) whether a row has an expert grade."""
        return ~np.isnan(self.expert)

    @cached_property
    def graded_queries(self) -> Integers:
        """Queries with two different expert grades; only these can compare rankings."""
        return np.flatnonzero(self._grade_ranges() > 0)

    @property
    def n_expert_queries(self) -> int:
        """Number of queries with an expert grade."""
        return int((self._grade_ranges() >= 0).sum())

    def _grade_ranges(self) -> Floats:
        """Return the highest minus the lowest expert grade of each query, -inf without expert grades."""
        low = np.minimum.reduceat(np.where(self.is_graded, self.expert, np.inf), self.offsets[:-1])
        high = np.maximum.reduceat(np.where(self.is_graded, self.expert, -np.inf), self.offsets[:-1])
        return np.asarray(high - low)

    @cached_property
    def expert_values(self) -> Floats | None:
        """Mean expert grade, counted from 0, that each grade of the judgments stands for; None if it is not known.

        Grades correspond by the map of expert grades, or by position if both scales have the same length.
        """
        if self.gold is None:
            return None
        sets, values = self.gold.grade_sets(self.labels.main_scale), np.array(self.gold.scale.values)
        if sets is None or not sets.any(axis=0).all():
            return None
        return np.asarray((values - values[0]) @ sets / sets.sum(axis=0))

    def on_expert_scale(self, grade: Floats) -> Floats:
        """Return expected grades of the judgments as expert grades, counted from 0.

        Raises:
            InputError: the scales have different lengths and there is no complete map between them.

        """
        if self.expert_values is None:
            raise InputError(replace(self.scales_differ(), severity="error"))
        return np.asarray(np.interp(grade, self.labels.main_scale.values, self.expert_values))

    def scales_differ(self) -> Message:
        """Return the warning that expert grades cannot be compared with grades of the judgments."""
        assert self.gold is not None
        scale, expert = self.labels.main_scale, self.gold.scale
        problem = f"the experts' scale {expert} is not the judgments' scale {scale}, and no map says which grades match"
        return Message(problem, "scales-differ", "warning", fixes=self._scale_fixes("say"))

    def scales_match_by_position(self) -> Message:
        """Return the warning that expert grades and grades of the judgments differ and are matched by position."""
        assert self.gold is not None
        scale, expert = self.labels.main_scale, self.gold.scale
        problem = (
            f"the expert grades are on the scale {expert} and the judgments on {scale}; they are matched by position, "
            f"the expert grade {expert.names[0]} with the grade {scale.names[0]}"
        )
        return Message(problem, "scales-differ", "warning", fixes=self._scale_fixes("if that is wrong, say"))

    def _scale_fixes(self, say: str) -> tuple[Fix, ...]:
        """Return fixes for scales that differ; first, the scale of the judgments if its lowest grades are not used."""
        assert self.gold is not None
        scale, expert = self.labels.main_scale, self.gold.scale
        by_map = f"{say} which grades each expert grade stands for with {{}}"
        fixes = (Fix(by_map, "expert_map", example_map(expert, scale)),)
        if not scale.numeric or expert.names[0] == scale.names[0] or not set(expert.names) < set(scale.names):
            return fixes
        return (Fix("if the experts use the same scale, name it with {}", "expert_grades", str(scale)), *fixes)

    @property
    def doubts_experts(self) -> bool:
        """Whether the expert grades agree with the judgments so badly that their ids or their order seem wrong."""
        return any(note.kind in EXPERT_DOUBTS for note in self.notes)

    def feature_table(self) -> pa.Table:
        """Return the name, the share of missing values and the range of each feature."""
        from crowdrank.rankers.training_data import FeatureStatistics

        statistics = FeatureStatistics.from_matrix(self.features.matrix)
        return pa.table(
            {
                "feature": list(self.features.names),
                "missing": statistics.missing_share,
                "minimum": pa.array(statistics.minimum, from_pandas=True),
                "maximum": pa.array(statistics.maximum, from_pandas=True),
            }
        )

    def by_row(self, values: Floats) -> Floats:
        """Return values of the items of `labels` as values of the rows, NaN without a judgment."""
        by_row = values[self.item].astype(np.float64)
        by_row[self.item < 0] = np.nan
        return by_row

    def is_honeypot(self, query: pa.Array, document: pa.Array) -> Booleans:
        """Return which documents are honeypots."""
        if self.labels is self.judgments:
            return np.zeros(len(query), np.bool_)
        in_judgments, in_labels = (one.positions(query, document) >= 0 for one in (self.judgments, self.labels))
        return np.asarray(in_judgments & ~in_labels)

    def rows_of(self, queries: Integers) -> Integers:
        """Return the rows of some queries, in ascending order."""
        queries = np.sort(queries)
        sizes = self.offsets[queries + 1] - self.offsets[queries]
        before = np.cumsum(sizes) - sizes
        return np.asarray(np.arange(sizes.sum()) + np.repeat(self.offsets[queries] - before, sizes))

    def leaks(self) -> list[Leak]:
        """Return the features that hold the expert grades or the answers."""
        if not self.has_features:
            return []
        expert = np.full(len(self.query), np.nan)
        rows = self.graded_rows(self.graded_queries)
        expert[rows] = self.expert[rows]
        return find_leaks(self.features.names, self.features.matrix, expert, self.query, self.labels, self.item)

    def graded_rows(self, queries: Integers) -> Integers:
        """Return the rows of some queries that have an expert grade, in ascending order."""
        rows = self.rows_of(queries)
        return rows[self.is_graded[rows]]

    def matrix(self, rows: Integers) -> NamedMatrix:
        """Return the features of some rows as a matrix with column names."""
        from crowdrank.rankers.training_data import NamedMatrix

        return NamedMatrix(self._values(rows), self.features.names)

    def shared_matrix(self, rows: Integers) -> SharedMatrix:
        """Return the features of some rows; the same object for the same rows, as long as it was used recently."""
        from crowdrank.rankers.training_data import SharedMatrix

        key = digest(rows)
        with self._lock:
            shared = self._recent.pop(key, None) or SharedMatrix(self._values(rows), self.features.names)
            self._recent[key] = shared  # the last one is the most recent
            while len(self._recent) > MAX_SHARED_MATRICES:
                del self._recent[next(iter(self._recent))]
        return shared

    def release_matrices(self) -> None:
        """Drop the features that are kept for several rankers."""
        with self._lock:
            self._recent.clear()

    def _values(self, rows: Integers) -> Floats:
        """Return the features of some rows, without a copy if they are adjacent and in order."""
        first, n = (int(rows[0]), len(rows)) if len(rows) else (0, 0)
        if np.array_equal(rows, np.arange(first, first + n)):
            return self.features.matrix[first : first + n]
        return self.features.matrix[rows]

    def with_preferences(self, preferences: Any) -> RunData:
        """Return the data with the preferences between documents of `labels`, and notes about the others.

        Args:
            preferences: `Preferences`, a path or a DataFrame.

        Raises:
            InputError: there is no preference between judged documents.

        """
        table = preferences if isinstance(preferences, Preferences) else read_preferences(preferences)
        notes = [note for note in table.report.notes if note.severity == "warning"]
        for reason, n in table.report.skipped.items():
            notes.append(_warning("rows-skipped", f"{counted(n, 'preference')} skipped ({reason})"))
        query, document = table.item_ids()
        is_known = self.labels.positions(query, document) >= 0
        used = is_known[table.item_index[0]] & is_known[table.item_index[1]]
        if not used.any():
            at = f"document {shown(document[0].as_py())} of query {shown(query[0].as_py())}"
            fix = "check that both use the same ids of queries and documents"
            problem = f"no preference is between two judged documents (the first compares {at})"
            raise InputError(problem, kind="nothing-in-common", fix=fix)
        if not used.all():
            problem = f"{counted(int((~used).sum()), 'preference')} of documents without judgments are not used"
            fix = "train on them without judgments (`crowdrank train`)"
            notes.append(_warning("preferences-not-used", problem, fix))
        kept = table if used.all() else table.where(used)
        digests = {**self.digests, "preferences": digest(kept)}
        return replace(self, preferences=kept, digests=digests, notes=(*self.notes, *notes))

    def restrict_judgments(self, rows: Integers) -> RunData:
        """Return the data with the crowd judgments of some rows only."""
        chosen = pa.array(rows)
        query, document = self.features.query.take(chosen), self.features.document.take(chosen)
        judgments = _judgments_of(self.judgments, self.judgments.positions(query, document))
        labels = _without_honeypots(judgments)
        item = labels.positions(self.features.query, self.features.document)
        digests = {**self.digests, **_judgment_digests(judgments, labels)}
        return replace(self, judgments=judgments, labels=labels, item=item, digests=digests)


def _judgments_of(judgments: Judgments, items: Integers) -> Judgments:
    is_chosen = np.zeros(judgments.n_items + 1, bool)
    is_chosen[items] = True  # the last element stands for -1, no item
    return judgments.where(np.repeat(is_chosen[:-1], np.diff(judgments.offsets)))


def _judgment_digests(judgments: Judgments, labels: Judgments) -> dict[str, str]:
    all_judgments = digest(judgments)
    return {"judgments": all_judgments, "labels": all_judgments if labels is judgments else digest(labels)}


def build_run_data(
    judgments: Any,
    features: Any,
    expert: Any = None,
    honeypots: Any = None,
    *,
    unjudgeable_as: str = "lowest",
    expert_map: GradeMapLike | None = None,
) -> RunData:
    """Read the inputs of a run and align them with the rows of the features.

    Args:
        judgments: `Judgments`, a path or a DataFrame.
        features: `Features`, a path or a DataFrame; None for a run without rankers.
        expert: `Gold`, a path or a DataFrame with expert grades.
        honeypots: the same with the correct grades of honeypots.
        unjudgeable_as: how to use 'cannot judge' answers, as in `RunSettings`.
        expert_map: grades of the judgments that each expert grade stands for, such as `0=0-1,1=2-4`.

    """
    table, notes = _read_judgments(judgments, honeypots, unjudgeable_as)
    labels = _without_honeypots(table)
    _require_different_grades(labels)
    if features is None:  # one row without features per judged document
        rows = Features(**item_ids(labels), matrix=np.empty((labels.n_items, 0)), names=())
    else:
        rows = as_features(features)
    rows, query, query_ids = _group_by_query(rows)
    item = labels.positions(rows.query, rows.document)
    if (item < 0).all():
        raise no_common_documents("judged", **item_ids(labels), features=rows)
    n_without_features = labels.n_items - int((item >= 0).sum())
    if n_without_features:
        problem = f"{counted(n_without_features, 'judged document')} without features: no ranker is trained on them"
        notes.append(_warning("no-features", problem, "add their features"))
    data = RunData(
        rows if rows.grade is None else replace(rows, grade=None),
        query,
        query_ids,
        np.searchsorted(query, np.arange(len(query_ids) + 1)),
        table,
        labels,
        item,
        np.full(len(query), np.nan),
        digests={"features": digest(rows), **_judgment_digests(table, labels)},
        notes=tuple(notes),
    )
    gold = None if expert is None else _as_gold(expert, table.main_scale)
    if gold is not None and expert_map is not None:
        gold = replace(gold, grade_map=GradeMap.parse(expert_map))
    if gold is None:
        return data
    return _with_expert_grades(data, gold, rows.positions(gold.query, gold.document))


def _warning(kind: str, problem: str, fix: str = "") -> Message:
    return Message(problem, kind, "warning", fixes=(Fix(fix),) if fix else ())


def _read_judgments(judgments: Any, honeypots: Any, unjudgeable_as: str) -> tuple[Judgments, list[Message]]:
    """Return the judgments with honeypots marked, on a common scale if possible, and notes about them."""
    table = as_judgments(judgments)
    _refuse_features(table.report, "judgments")
    scale_note = uncertain_scale_note(table)
    notes = [*([] if scale_note is None else [scale_note]), *one_document_warnings(table)]
    notes += [note for note in table.report.notes if note.severity == "warning"]
    notes += unused_judgment_notes(table.report)
    for reason, n in table.report.skipped.items():
        notes.append(_warning("rows-skipped", f"{counted(n, 'row')} of the judgments skipped ({reason})"))
    if honeypots is not None:
        table, note = mark_honeypots(table, _as_gold(honeypots, table.main_scale))
        notes.append(note)
    table = table.to_one_scale() if table.maps_to_one_scale else table
    return table.with_unjudgeable(unjudgeable_as), notes


def _as_gold(grades: Any, scale: Scale) -> Gold:
    """Return expert grades; `scale` is that of named grades of a table that does not state it."""
    gold = grades if isinstance(grades, Gold) else read_gold(grades, scale=scale)
    _refuse_features(gold.report, "expert grades")
    return gold


def _refuse_features(report: ReadReport, what: str) -> None:
    """Raise InputError for labels of a consensus that used features: rankers would be judged by their own features."""
    if report.used_features:
        raise InputError(
            f"the {what} are a consensus that used features of the documents; no ranker is trained or tested on it",
            kind=FEATURES_USED,
            fix="give the judgments themselves, or a consensus without features",
        )


def _group_by_query(features: Features) -> tuple[Features, Integers, pa.Array]:
    """Return features whose rows of a query are adjacent, the query code of each row, and the query ids."""
    codes, query_ids = features.pair_index.query
    query = codes.astype(np.int64)
    if (np.diff(query) < 0).any():
        order = np.argsort(query, kind="stable")
        features, query = features.take(order), query[order]
    return features, query, query_ids


def _with_expert_grades(data: RunData, gold: Gold, row: Integers) -> RunData:
    """Return the data with expert grades, except those of honeypots; `row` is that of the features of each grade."""
    values = np.array(gold.scale.values, dtype=np.float64)
    if values[0] < 0 or values[-1] > MAX_GRADE:
        raise InputError(
            f"the expert grades {gold.scale} are not within 0 and {MAX_GRADE}",
            fix="name the scale from the lowest grade up, or leave out what means 'cannot judge'",
        )
    from crowdrank.readers.validation import check_expert_grades

    has_row = row >= 0
    if not has_row.any():
        owned = "features" if data.has_features else "judgments"
        raise no_common_documents("expert-graded", gold.query, gold.document, data.features, owned)
    is_honeypot = data.is_honeypot(gold.query, gold.document)
    used = has_row & ~is_honeypot
    grade = np.full(len(data.query), np.nan)
    grade[row[used]] = values[gold.code[used]] - values[0]
    graded = replace(data, expert=grade, gold=gold.take(np.flatnonzero(~is_honeypot)))
    n_honeypots, n_without_features = int((is_honeypot & has_row).sum()), int((~has_row).sum())
    notes = list(data.notes)
    if n_without_features and data.has_features:
        number = counted(n_without_features, "expert-graded document")
        problem = f"{number} without features: they do not select or test rankers"
        notes.append(_warning("no-features", problem, "add their features"))
    if n_honeypots:
        problem = f"Expert grades of {counted(n_honeypots, 'honeypot')} do not select or test rankers"
        notes.append(Message(problem, "honeypot-grades", "note"))
    found = [] if graded.gold is None else check_expert_grades(graded.gold, data.labels)
    if graded.expert_values is None:
        notes.append(graded.scales_differ())
    elif gold.grade_map is None and any(one.kind == "scales-differ" and one.severity == "warning" for one in found):
        notes.append(graded.scales_match_by_position())
    notes += [one for one in found if one.kind in EXPERT_DOUBTS]
    return replace(graded, notes=(*notes, *_constant_query_notes(graded)))


def _without_honeypots(judgments: Judgments) -> Judgments:
    """Return the judgments of documents that are not honeypots."""
    if "honeypot" not in judgments.extras:
        return judgments
    from crowdrank.label_learning.label_features import without_honeypots

    return without_honeypots(judgments)


def _constant_query_notes(data: RunData) -> list[Message]:
    """Return a note on expert-graded queries whose grades are all equal, which cannot compare rankings."""
    is_constant = data._grade_ranges() == 0
    n, n_constant = data.n_expert_queries, int(is_constant.sum())
    if not n_constant or not data.has_features:
        return []
    has_ungraded = is_constant & np.logical_or.reduceat(~data.is_graded, data.offsets[:-1])
    verb = "has" if n_constant == 1 else "have"
    problem = (
        f"{counted(n_constant, 'expert-graded query')} of {n:,} {verb} only one grade and cannot select or test rankers"
    )
    if has_ungraded.any():
        return [_warning("one-grade", problem, "have more of their documents graded by experts")]
    problem += ", although all of their documents are graded"
    return [_warning("one-grade", problem, "have other queries graded by experts")]


def mark_honeypots(table: Judgments, honeypots: Gold) -> tuple[Judgments, Message]:
    """Return the judgments with the correct answers of honeypots, and a note about them."""
    answer = honeypots.codes_by_name(table)
    n_judged = int((answer >= 0).sum())
    if not n_judged:
        raise InputError(
            f"none of the {counted(len(honeypots), 'honeypot')} was judged (the first: "
            f"{shown(honeypots.document[0].as_py())} of query {shown(honeypots.query[0].as_py())})",
            kind="no-honeypots",
            fix="check that both files use the same ids of queries and documents",
        )
    correct = np.repeat(answer, np.diff(table.offsets)).astype(np.int8)
    marked = table.extras.get("honeypot", np.full(len(table), NO_HONEYPOT, np.int8))
    problem = f"{n_judged:,} of {counted(len(honeypots), 'honeypot')} were judged; no ranker is trained on them"
    extras = {**table.extras, "honeypot": np.where(correct >= 0, correct, marked)}
    return replace(table, extras=extras), Message(problem, "honeypots", "note")


def _require_different_grades(labels: Judgments) -> None:
    answers = np.unique(labels.grade)
    if len(labels.scales) == 1 and len(answers) == 1:
        grade = "cannot judge" if answers[0] == UNJUDGEABLE else labels.scale.names[int(answers[0])]
        raise InputError(
            f"every judgment has the same grade ({grade}), so no ranker can learn",
            kind="one-grade",
            fix="give judgments with different grades",
        )


def no_common_documents(
    what: str, query: pa.Array, document: pa.Array, features: Features, owned: str = "features"
) -> InputError:
    """Return the error that no document of a file has features (or judgments), with examples of both sides."""
    theirs, ours = (_examples(*side) for side in ((query, document), (features.query, features.document)))
    return InputError(
        f"no {what} document has {owned} ({what}: {theirs}; with {owned}: {ours})",
        kind="no-common-documents",
        fix="use the same ids of queries and documents in both files",
    )


def _examples(query: pa.Array, document: pa.Array) -> str:
    pairs = zip(query[:MAX_IDS_IN_MESSAGE].to_pylist(), document[:MAX_IDS_IN_MESSAGE].to_pylist(), strict=True)
    return ", ".join(f"document {shown(d)} of query {shown(q)}" for q, d in pairs)
