"""Join runs, labels and expert grades by query and document, and refuse what cannot be estimated from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.errors import Fix, InputError, Message, UsageError, shown
from crowdrank.estimation.by_document import Sample
from crowdrank.evaluation.alignment import NO_GOLD_ROW, Alignment, GoldGrades, align
from crowdrank.evaluation.evaluate import RunScoring, as_gold, as_run
from crowdrank.evaluation.measures import JUDGED_CUTOFF, Measure
from crowdrank.judgments import ids
from crowdrank.judgments.columns import find_probability_columns
from crowdrank.judgments.frames import is_frame
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.scale import MAX_GRADES, Scale
from crowdrank.readers.cells import SAMPLE_COLUMNS, read_grade_probabilities, read_sample_columns
from crowdrank.readers.inputs import RoleTable
from crowdrank.readers.read import read_sample
from crowdrank.readers.sources import BadRows, FrameSource, Origin, no_rows_error

MIN_RANKED_SHARE = 0.5
"""Minimum share of the drawn documents that are in a run; with fewer, they were drawn for other runs."""
MIN_EQUAL_EXPERT_GRADES = 20
"""Number of expert grades that all equal certain labels, from which experts are assumed to have made the labels."""
MIN_EQUAL_HARD_LABELS = 30
"""The same if labels have no probabilities: good judges agree with 30 of 30 experts by chance, but very rarely."""


@dataclass(frozen=True)
class JoinedRuns:
    """Runs joined with labels and expert grades; rows are the documents with a label or an expert grade.

    Attributes:
        alignments: the runs by name; their gold are the labels, and grade 0 for rows without a label.
        is_labeled: (n_rows,) whether the row has a label.
        sample: the expert grades; None if there are none.
        has_probabilities: whether the probabilities of the sample are known.
        queries: (n,) the queries that are used: those of the runs that have labels.
        warnings: what the user should check.

    """

    alignments: dict[str, Alignment]
    is_labeled: Booleans
    sample: Sample | None
    has_probabilities: bool
    queries: Integers
    warnings: tuple[Message, ...] = ()

    @property
    def first(self) -> Alignment:
        """The first run."""
        return next(iter(self.alignments.values()))

    @property
    def is_expert_query(self) -> Booleans:
        """For each query, whether experts graded at least one of its documents, (n_queries,)."""
        is_expert = np.zeros(self.first.ranking.n_queries, np.bool_)
        if self.sample is not None:
            is_expert[self.query_of_row[self.sample.row]] = True
        return is_expert

    @property
    def query_of_row(self) -> Integers:
        """Query of each row, (n_rows,)."""
        query = np.empty(len(self.is_labeled), np.int64)
        query[self.first.gold.row] = self.first.gold.query
        return query

    def label_values(self, measure: Measure) -> Floats:
        """Return the value of each run by query from the labels, (n_queries, n_runs)."""
        return self._values(measure, self.first.grades)

    def expert_values(self, measure: Measure) -> Floats:
        """Return the value of each run by query from the expert grades, (n_queries, n_runs).

        Documents that experts did not grade have the grades that experts give to others with such labels: without them,
        the ideal DCG and the number of relevant documents would be smaller than those of the labels.
        """
        assert self.sample is not None
        if not self.is_ungraded.any():
            grades = np.zeros(len(self.is_labeled))
            grades[self.sample.row] = self.sample.grade
            return self._values(measure, GoldGrades(grades))
        return self._values(measure, _complete_grades(self.first.grades, self.sample))

    @property
    def is_ungraded(self) -> Booleans:
        """Whether each row is a labeled document of an expert query that experts did not grade, (n_rows,)."""
        assert self.sample is not None
        is_ungraded = self.is_labeled & self.is_expert_query[self.query_of_row]
        is_ungraded[self.sample.row] = False
        return np.asarray(is_ungraded)

    def _values(self, measure: Measure, grades: GoldGrades) -> Floats:
        scorings = (RunScoring(replace(one, grades=grades), skip_unjudged=False) for one in self.alignments.values())
        return np.column_stack([scoring.values(measure) for scoring in scorings])[self.queries]

    def equal_rankings(self, measure: Measure) -> Booleans:
        """For each used query, return whether all runs have the same first documents in the same order, (n,).

        Ties count as equal if the same documents are tied; documents without a label and expert grade count alike.
        """
        cutoff, is_equal, seen = measure.cutoff, np.ones(self.first.ranking.n_queries, np.bool_), list[Any]()
        for aligned in self.alignments.values():
            ranking = aligned.ranking
            position = np.arange(len(ranking.query)) - ranking.offsets[:-1][ranking.query]
            group = np.cumsum(ranking.new_group) - 1
            first = position[np.flatnonzero(ranking.new_group)][group]
            kept = slice(None) if cutoff is None else first < cutoff
            order = np.lexsort((ranking.row[kept], first[kept], ranking.query[kept]))
            seen.append(np.column_stack([ranking.query[kept], first[kept], ranking.row[kept]])[order])
        for other in seen[1:]:
            is_equal &= _equal_parts(seen[0], other, len(is_equal))
        return is_equal[self.queries]

    def n_first_documents(self, measure: Measure) -> int:
        """Return the number of documents with a label or an expert grade among the first k of any run."""
        is_first = np.zeros(len(self.is_labeled), np.bool_)
        for aligned in self.alignments.values():
            ranking = aligned.ranking
            position = np.arange(len(ranking.query)) - ranking.offsets[:-1][ranking.query]
            is_counted = ranking.judged & (position < (measure.cutoff or len(position)))
            is_first[ranking.row[is_counted]] = True
        return int(is_first.sum())

    def graded(self, measure: Measure) -> dict[str, float]:
        """Return the share of the first documents of each run that experts graded, in the queries of the experts."""
        assert self.sample is not None
        rows = np.zeros(len(self.is_labeled), np.bool_)
        rows[self.sample.row] = True
        return self.judged(measure, rows, np.flatnonzero(self.is_expert_query))

    def judged(self, measure: Measure, is_judged: Booleans, queries: Integers) -> dict[str, float]:
        """Return the share of the first k documents of each run for which `is_judged` (n_rows,) is true."""
        cutoff = Measure("Judged", cutoff=measure.cutoff or JUDGED_CUTOFF)
        shares = {}
        for name, aligned in self.alignments.items():
            ranking = aligned.ranking
            row = np.where(np.append(is_judged, False)[ranking.row], ranking.row, NO_GOLD_ROW)
            marked = replace(aligned, ranking=replace(ranking, row=row))
            shares[name] = float(RunScoring(marked, skip_unjudged=False).values(cutoff)[queries].mean())
        return shares


def _complete_grades(labels: GoldGrades, sample: Sample) -> GoldGrades:
    """Return the grades of the experts in the rows of the sample, and what the labels say of experts in the others.

    The probability of an expert grade, given that of the label, is estimated from the sample; one grade that agrees is
    added for each grade of the labels.
    """
    known = labels.grades if labels.values is None or labels.shares is None else labels.values
    values = np.union1d(known, sample.grade)
    shares = np.zeros((len(labels.grades), len(values)))
    if labels.values is None or labels.shares is None:
        shares[np.arange(len(shares)), np.searchsorted(values, labels.grades)] = 1.0
    else:
        shares[:, np.searchsorted(values, labels.values)] = labels.shares
    experts = (values == sample.grade[:, None]).astype(np.float64)
    counts = shares[sample.row].T @ experts + np.eye(len(values))
    shares = shares @ (counts / counts.sum(axis=1, keepdims=True))
    shares[sample.row] = experts
    return GoldGrades(values[shares.argmax(axis=1)], shares, values)


def _equal_parts(one: Integers, other: Integers, n_queries: int) -> Booleans:
    """Return for each query (first column, ascending) whether its rows are equal in both, (n_queries,)."""
    sizes = [np.bincount(rows[:, 0], minlength=n_queries) for rows in (one, other)]
    is_equal = sizes[0] == sizes[1]
    kept = [rows[is_equal[rows[:, 0]]] for rows in (one, other)]
    is_equal[np.unique(kept[0][(kept[0] != kept[1]).any(axis=1), 0])] = False
    return np.asarray(is_equal)


def join_runs(runs: Mapping[str, Any], labels: Any, expert: Any) -> JoinedRuns:
    """Join runs with labels and expert grades.

    Args:
        runs: DataFrames, paths or consensuses by name.
        labels: a consensus, a DataFrame or a path, with the columns query, document, grade and, if known, p0, p1, ...
        expert: a DataFrame, a path or a `Gold` with query, document, grade and optionally probability and draw.

    Raises:
        InputError: a document occurs twice, a probability is invalid, or the inputs have nothing in common.

    """
    label_source = _frame_source(as_gold(labels), "labels")
    label_rows = _role_table(label_source)
    expert_source = None if expert is None else FrameSource(as_sample(expert).frame, "the expert grades")
    expert_rows = None if expert_source is None else _role_table(expert_source)
    tables = [label_rows, *([] if expert_rows is None else [expert_rows])]
    coded = {role: ids.concat([table.coded_ids(role) for table in tables]) for role in ("query", "document")}
    keys = coded["query"][0].astype(np.int64) * len(coded["document"][1]) + coded["document"][0]
    n_labels = len(label_rows)
    row = ids.match(pa.array(keys[:n_labels]), pa.array(keys[n_labels:]))
    is_new = row < 0
    row[is_new] = n_labels + np.arange(is_new.sum())
    picked = np.append(np.arange(n_labels), n_labels + np.flatnonzero(is_new))
    columns = {role: names.take(pa.array(codes[picked])) for role, (codes, names) in coded.items()}
    gold = pa.table({**columns, **_label_columns(label_source, label_rows, int(is_new.sum()))})
    alignments = {
        name: align(as_run(run), gold, ties="expected", with_grades=False, run_name=f"run {shown(name)}")
        for name, run in runs.items()
    }
    sample = None if expert_rows is None else _make_sample(expert_rows, row)
    joined = JoinedRuns(
        alignments,
        np.arange(len(gold)) < n_labels,
        sample,
        expert_source is not None and SAMPLE_COLUMNS[0] in expert_source.names,
        _common_queries(alignments, columns["query"], n_labels),
    )
    return _restrict_expert_grades(joined)


def as_sample(expert: Any, scale: Scale | None = None) -> Gold:
    """Return expert grades of a DataFrame or a path; a `Gold` is returned unchanged.

    Args:
        expert: expert grades.
        scale: the scale of named grades, if `expert` does not state it.

    """
    return expert if isinstance(expert, Gold) else read_sample(expert, scale=scale)


def _frame_source(frame: Any, parameter: str) -> FrameSource:
    if not is_frame(frame):
        raise UsageError(f"must be a DataFrame or a path, not a {type(frame).__name__}", parameter=parameter)
    return FrameSource(frame, f"the {parameter}")


def _role_table(source: FrameSource) -> RoleTable:
    for name in ("query", "document", "grade"):
        if name not in source.names:
            fix = f"rename one of its columns ({', '.join(source.names)})"
            raise InputError(f"there is no column {name!r}", source=source.name, kind="no-column", fix=fix)
    table = source.read(["query", "document", "grade"], BadRows())
    if not len(table):
        raise no_rows_error(source.name)
    roles = {name: name for name in table.column_names}
    return RoleTable(Origin(source, roles), {name: table[name] for name in roles})


def _label_columns(source: FrameSource, rows: RoleTable, n_unlabeled: int) -> dict[str, Floats]:
    """Return the grades of the labels and their probabilities, followed by grade 0 for rows without a label."""
    columns = {"grade": np.append(rows.floats("grade"), np.zeros(n_unlabeled))}
    names = find_probability_columns(source.names)
    if names:
        shares = dict(zip(names, read_grade_probabilities(source).T, strict=True))
        for name in ("p0", *(one for one in names if one != "p0")):
            known = shares.get(name, np.zeros(len(rows)))
            columns[name] = np.append(known, np.full(n_unlabeled, float(name == "p0")))
    return columns


def _make_sample(rows: RoleTable, row: Integers) -> Sample:
    source, grades = rows.origin.source, rows.floats("grade")
    names = [name for name in SAMPLE_COLUMNS if name in source.names]
    draws = dict(zip(names, read_sample_columns(source, names).T, strict=True)) if names else {}
    is_grade = (grades >= 0) & (grades < MAX_GRADES)
    source.require(is_grade, "grade", f"the grade is not between 0 and {MAX_GRADES - 1}", "correct it", "invalid-grade")
    ones = np.ones(len(row))
    return Sample(row, grades, draws.get("probability", ones), draws.get("draw", ones))


def _common_queries(alignments: Mapping[str, Alignment], query: pa.Array, n_labels: int) -> Integers:
    """Return the queries that have labels and are in all runs; raise InputError if the runs differ in queries."""
    first_name, first = next(iter(alignments.items()))
    has_label = ids.match(query.slice(0, n_labels), first.queries) >= 0
    ranked = {name: (np.diff(one.ranking.offsets) > 0) & has_label for name, one in alignments.items()}
    for name, present in ranked.items():
        other = present != ranked[first_name]
        if other.any():
            place = int(np.argmax(other))
            has, lacks = (name, first_name) if present[place] else (first_name, name)
            query_id = shown(first.queries[place].as_py())
            problem = (
                f"the runs have different queries: {counted(int(other.sum()), 'query')} of the labels in only one of "
                f"{shown(first_name)} and {shown(name)}, such as {query_id}, which {shown(has)} has"
            )
            fix = "give each run documents of the same queries"
            raise InputError(problem, source=f"run {shown(lacks)}", kind="queries-differ", fix=fix)
    return np.flatnonzero(ranked[first_name])


def _restrict_expert_grades(joined: JoinedRuns) -> JoinedRuns:
    """Leave out expert grades of queries without runs or labels, with a warning."""
    if joined.sample is None:
        return joined
    is_used = np.isin(joined.query_of_row[joined.sample.row], joined.queries)
    if not is_used.any():
        problem = "no expert grade is for a query that has labels and is in the runs"
        raise InputError(problem, source="the expert grades", kind="nothing-in-common", fix="use the same ids in all")
    if joined.has_probabilities:
        _refuse_draws_of_other_runs(joined, joined.sample, is_used)
    if is_used.all():
        return joined
    problem = f"{counted(int((~is_used).sum()), 'expert grade')} for queries without labels or runs are not used"
    warning = Message(problem, "expert-grades-unused", "warning", fixes=(Fix("label these queries too"),))
    one = joined.sample
    used = Sample(one.row[is_used], one.grade[is_used], one.probability[is_used], one.draw[is_used])
    return replace(joined, sample=used, warnings=(*joined.warnings, warning))


def _refuse_draws_of_other_runs(joined: JoinedRuns, sample: Sample, is_used: Booleans) -> None:
    """Raise InputError if most of the drawn documents are in no run."""
    is_ranked = np.zeros(len(joined.is_labeled), np.bool_)
    for aligned in joined.alignments.values():
        is_ranked[aligned.ranking.row[aligned.ranking.judged]] = True
    n_known = int((is_used & is_ranked[sample.row]).sum())
    if n_known < MIN_RANKED_SHARE * len(sample):
        drawn = counted(len(sample), "drawn document")
        problem = f"{n_known:,} of {drawn} are in the runs, so they were drawn for other runs or another project"
        fix = "give the documents that were drawn for these runs"
        raise InputError(problem, source="the expert grades", kind="other-project", fix=fix)


def experts_made_the_labels(joined: JoinedRuns) -> bool:
    """Return whether every expert grade is a certain label, although other labels are not certain.

    This is so if the consensus was fitted with these expert grades, which it takes as known. Labels without
    probabilities are assumed to be such a consensus if they equal many different expert grades.
    """
    sample, grades = joined.sample, joined.first.grades
    if sample is None:
        return False
    others = joined.is_labeled.copy()
    others[sample.row] = False
    if grades.shares is None or grades.values is None:
        equal = joined.is_labeled[sample.row] & (grades.grades[sample.row] == sample.grade)
        is_varied = np.ptp(sample.grade) > 0
        return bool(len(sample) >= MIN_EQUAL_HARD_LABELS and equal.all() and is_varied and others.any())
    certain = grades.shares.max(axis=1) > 1 - 1e-9
    equal = grades.values[grades.shares.argmax(axis=1)][sample.row] == sample.grade
    is_enough = len(sample) >= MIN_EQUAL_EXPERT_GRADES
    return bool(is_enough and (certain[sample.row] & equal).all() and not certain[others].all())
