"""Evaluate a run against gold grades, per query and on average."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._base import require_one_of
from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation import kernels
from crowdrank.evaluation.alignment import Alignment, Counts, align
from crowdrank.evaluation.measures import (
    CORRELATIONS,
    GAIN_MEASURES,
    GRADE_MEASURES,
    Gains,
    Measure,
    parse_gains,
    parse_measure,
    parse_measures,
)
from crowdrank.judgments.frames import column_names, frame_library, from_arrow
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.read import read_gold, read_run

_ALL_RANKS = int(np.iinfo(np.int32).max)
_LARGEST_EXPONENT = 1023

_TIES = {
    "expected": "Equal scores count as the exact expectation over all orders of the tied documents",
    "document": "Equal scores are ordered by document id, descending as text, as trec_eval does",
    "given": "Equal scores keep the order of the rows",
}
_UNJUDGED = {
    "skip": "Documents without gold are left out of the ranking",
    "nonrelevant": "Documents without gold count as grade 0, except in rank correlations and grade measures",
}
_NO_RELEVANT = {
    "skip": "Queries without a relevant document are left out of the mean",
    "zero": "Queries without a relevant document count 0",
    "one": "Queries without a relevant document count 1",
}
_GAINS = {"linear": "the grade", "exponential": "2^grade - 1"}


@dataclass(frozen=True)
class Conventions:
    """Treatment of ties, documents without gold and queries without relevant documents; see :func:`evaluate`.

    >>> Conventions().sentences()[0]
    'Equal scores count as the exact expectation over all orders of the tied documents.'
    """

    ties: str = "expected"
    unjudged: str = "skip"
    no_relevant: str = "skip"
    gains: Gains = "linear"

    def __post_init__(self) -> None:
        for name, known in (("ties", _TIES), ("unjudged", _UNJUDGED), ("no_relevant", _NO_RELEVANT)):
            require_one_of(name, getattr(self, name), known)

    def sentences(self, measures: Iterable[str | Measure] = ()) -> list[str]:
        """Describe the conventions in sentences, including those that concern the given measures only.

        >>> Conventions(gains="exponential").sentences(["nDCG@10"])[-1]
        'The gain of a document in nDCG@10 is 2^grade - 1.'
        """
        sentences = [f"{_TIES[self.ties]}.", f"{_UNJUDGED[self.unjudged]}.", f"{_NO_RELEVANT[self.no_relevant]}."]
        parsed = [parse_measure(measure) for measure in measures]
        if self.no_relevant == "one" and any(measure.name in CORRELATIONS for measure in parsed):
            sentences.append("Queries whose gold grades are all equal are left out of rank correlations.")
        gains = {str(m): _gain_text(m.gains or self.gains) for m in parsed if m.name in GAIN_MEASURES}
        sentences += [f"The gain of a document in {names} is {gain}." for gain, names in _group_by_text(gains)]
        highest = {str(m): f"{m.max_grade} as the highest grade (gdeval: 4)" for m in parsed if m.name == "ERR"}
        return sentences + [f"{names} uses {grade}." for grade, names in _group_by_text(highest)]


@dataclass(frozen=True)
class Evaluation:
    """Values of some measures for one run.

    Attributes:
        per_query: Arrow table with the query and one column per measure; NaN if a query is excluded.
        means: mean of each measure over the queries that are not excluded.
        counts: number of queries and documents that were evaluated or excluded.
        without_relevant: number of queries without a relevant document, by measure.
        measures: the measures.
        conventions: treatment of ties and of missing gold.
        backend: library of the run's DataFrame, for `frame`.

    >>> import pandas as pd
    >>> run = pd.DataFrame({"query": [1, 1, 2], "document": ["a", "b", "c"], "score": [0.9, 0.2, 0.1]})
    >>> gold = pd.DataFrame({"query": [1, 1, 2], "document": ["a", "b", "c"], "grade": [0, 1, 0]})
    >>> evaluation = evaluate(run, gold, ["RR", "P@1"])
    >>> evaluation.frame
       query   RR  P@1
    0      1  0.5  0.0
    1      2  NaN  NaN
    >>> evaluation.means
    {'RR': 0.5, 'P@1': 0.0}

    """

    per_query: pa.Table
    means: dict[str, float]
    counts: Counts
    without_relevant: dict[str, int]
    measures: tuple[Measure, ...]
    conventions: Conventions
    backend: str

    @property
    def frame(self) -> Any:
        """The values per query, as a DataFrame of the same library as the run."""
        return from_arrow(self.per_query, self.backend)

    def values(self, measure: str | Measure) -> Floats:
        """Return the values of one measure, in the order of the queries.

        >>> import pandas as pd
        >>> table = pd.DataFrame({"document": ["a", "b"], "score": [2, 1], "grade": [1, 0]})
        >>> evaluate(table, table, "nDCG").values("nDCG")
        array([1.])
        """
        name = str(parse_measure(measure))
        if name not in self.means:
            raise UsageError(f"{name} was not evaluated; the evaluated measures are {', '.join(self.means)}")
        values: Floats = self.per_query.column(name).to_numpy()
        return values

    def notes(self) -> list[str]:
        """Describe in sentences what was excluded and how ties and missing gold were treated.

        >>> import pandas as pd
        >>> run = pd.DataFrame({"document": ["a", "b", "c"], "score": [1, 1, 0]})
        >>> gold = pd.DataFrame({"document": ["a", "b"], "grade": [1, 0]})
        >>> for note in evaluate(run, gold, "AP").notes():
        ...     print(note)
        1 query and 2 documents were scored.
        Equal scores count as the exact expectation over all orders of the tied documents (2 tied documents).
        1 document of the run has no gold and was left out.
        """
        return [
            f"{counted(self.counts.queries, 'query')} and {counted(self.counts.documents_scored, 'document')} "
            f"{'were' if self.counts.queries + self.counts.documents_scored != 1 else 'was'} scored.",
            f"{_TIES[self.conventions.ties]} ({counted(self.counts.documents_tied, 'tied document')}).",
            *self._run_notes(),
            *self._gold_notes(),
            *self._measure_notes(),
        ]

    def _run_notes(self) -> list[str]:
        counts, notes = self.counts, []
        if nonrelevant := counts.documents_as_nonrelevant:
            notes.append(
                f"{counted(nonrelevant, 'document')} of the run {_verb(nonrelevant, 'has', 'have')} no gold and "
                f"{_verb(nonrelevant, 'counts', 'count')} as grade 0, except in rank correlations and grade measures."
            )
        if excluded := counts.documents_without_gold - counts.documents_as_nonrelevant:
            notes.append(
                f"{counted(excluded, 'document')} of the run {_verb(excluded, 'has', 'have')} no gold and "
                f"{_verb(excluded, 'was', 'were')} left out."
            )
        if unknown := counts.run_queries_without_gold:
            notes.append(f"{counted(unknown, 'query')} of the run {_verb(unknown, 'has', 'have')} no gold at all.")
        return notes

    def _gold_notes(self) -> list[str]:
        counts, notes = self.counts, []
        if missing := counts.gold_documents_missing:
            notes.append(
                f"{counted(missing, 'document')} with gold {_verb(missing, 'is', 'are')} not in the run; "
                f"{_verb(missing, 'it counts', 'they count')} as not retrieved; rank correlations and grade measures "
                f"ignore {_verb(missing, 'it', 'them')}."
            )
        if missing := counts.gold_queries_missing:
            notes.append(
                f"{counted(missing, 'query')} with gold {_verb(missing, 'has', 'have')} no scored document in the run "
                f"and {_verb(missing, 'counts', 'count')} 0 (grade measures leave {_verb(missing, 'it', 'them')} out)."
            )
        return notes

    def _measure_notes(self) -> list[str]:
        notes = {}
        for measure in self.measures:
            without = self.without_relevant[str(measure)]
            if without:
                lack = "gold grades that differ" if measure.name in CORRELATIONS else "relevant document"
                treatments = {
                    "skip": f"{_verb(without, 'was', 'were')} left out",
                    "zero": "counted 0",
                    "one": "counted 1",
                }
                fill = _fill_for(measure, self.conventions.no_relevant)
                notes[str(measure)] = f"{counted(without, 'query')} without {lack} {treatments[fill]}"
        sentences = [f"{note} in {names}." for note, names in _group_by_text(notes)]
        return sentences + self.conventions.sentences(self.measures)[3:]


def evaluate(
    run: Any,
    gold: Any,
    measures: str | Measure | Iterable[str | Measure],
    *,
    ties: str = "expected",
    unjudged: str = "skip",
    no_relevant: str = "skip",
    gains: str | Sequence[float] | None = None,
) -> Evaluation:
    """Evaluate a run against gold grades.

    If neither the run nor the gold has a query column, all documents belong to one query, 'all'. Ids of different types
    are joined as text. A gold document that the run does not rank counts as not retrieved. A query that the run lacks
    counts 0 and is excluded from the grade measures.

    Args:
        run: DataFrame with columns query, document, and relevance or score (and grade, for the grade measures), a
            path, or a consensus.
        gold: DataFrame with columns query, document and grade, a path, or a `Gold`.
        measures: measures or their names, such as `nDCG@10`; a text can contain several, separated by spaces.
        ties: 'expected' takes the exact expectation over random orders of equal scores; 'document' orders them by
            document id, descending as text (trec_eval); 'given' keeps the order of the rows. Rank correlations treat
            ties by their own definitions.
        unjudged: documents of the run without gold are excluded ('skip') or count as grade 0 ('nonrelevant',
            trec_eval). Rank correlations and grade measures always exclude them.
        no_relevant: a query without a relevant document is excluded ('skip': NaN) or counts 0 or 1 ('zero', 'one').
            This depends on the gold only, so that all runs are averaged over the same queries. For rank correlations,
            these are the queries whose gold grades are all equal; 'one' means 'skip' there.
        gains: 'linear', 'exponential' or the gains of grades 0, 1, 2, ...; for DCG and nDCG without own gains.

    Returns:
        The values per query, their means, and notes on what was excluded.

    Raises:
        InputError: the run or the gold cannot be used.
        UsageError: an argument has an invalid value.

    >>> import pandas as pd
    >>> run = pd.DataFrame({"document": ["a", "b", "c"], "score": [0.9, 0.5, 0.5]})
    >>> gold = pd.DataFrame({"document": ["a", "b", "c"], "grade": [0, 2, 1]})
    >>> evaluate(run, gold, "nDCG@2 Tau").means
    {'nDCG@2': 0.3597..., 'Tau': -0.6666...}

    """
    parsed = parse_measures(measures)
    run, gold = as_run(run), as_gold(gold)
    conventions = Conventions(ties, unjudged, no_relevant, parse_gains("linear" if gains is None else gains))
    aligned = align(run, gold, ties=ties, unjudged=unjudged, with_grades=_needs_grades(run, parsed))
    scoring = _Scoring(aligned, conventions.gains)
    columns, without_relevant = {}, {}
    for measure in parsed:
        values, undefined = scoring.score(measure)
        without_relevant[str(measure)] = int(undefined.sum())
        fill = {"skip": np.nan, "zero": 0.0, "one": 1.0}[_fill_for(measure, no_relevant)]
        columns[str(measure)] = np.where(undefined, fill, values)
    return Evaluation(
        per_query=pa.table({"query": aligned.queries, **columns}),
        means={name: _mean(values) for name, values in columns.items()},
        counts=aligned.counts,
        without_relevant=without_relevant,
        measures=parsed,
        conventions=conventions,
        backend=frame_library(run),
    )


def as_run(run: Any) -> Any:
    """Return a run as a DataFrame; read a path, take the documents of a consensus."""
    if isinstance(run, str | Path):
        return read_run(run)
    return getattr(run, "documents", run)


def as_gold(gold: Any) -> Any:
    """Return gold as a DataFrame; read a path, take the frame of a `Gold`."""
    if isinstance(gold, str | Path):
        gold = read_gold(gold)
    return gold.frame if isinstance(gold, Gold) else gold


class _Scoring:
    """Compute measures of one run; each returns its value per query and the queries for which it is undefined."""

    def __init__(self, aligned: Alignment, gains: Gains) -> None:
        self.ranking, self.gold, self.ideal, self.gains = aligned.ranking, aligned.gold, aligned.ideal, gains
        self.n_queries = aligned.counts.queries
        self.by_name: dict[str, Callable[[Measure], tuple[Floats, Booleans]]] = {
            "DCG": self.dcg,
            "nDCG": self.ndcg,
            "AP": self.average_precision,
            "ERR": self.expected_reciprocal_rank,
            "P": self.precision,
            "RR": self.reciprocal_rank,
            "Tau": self.tau,
            "TauB": self.tau_b,
            "Spearman": self.spearman,
            "GradeAccuracy": self.grade_accuracy,
            "GradeMAE": self.grade_mae,
        }

    def score(self, measure: Measure) -> tuple[Floats, Booleans]:
        return self.by_name[measure.name](measure)

    def dcg(self, measure: Measure) -> tuple[Floats, Booleans]:
        gains = measure.gains or self.gains
        values = self._ranked(
            kernels.discounted_gain, _gains(self.ranking.gold, gains, measure), measure, self.discounts
        )
        return values, self._none_of(_gains(self.ideal.grades, gains, measure) > 0)

    def ndcg(self, measure: Measure) -> tuple[Floats, Booleans]:
        values, undefined = self.dcg(measure)
        gains = _gains(self.ideal.grades, measure.gains or self.gains, measure)
        ideal = kernels.ideal_gain(gains, self.ideal.offsets, self.discounts, measure.cutoff or _ALL_RANKS)
        return _ratio(values, ideal), undefined

    def average_precision(self, measure: Measure) -> tuple[Floats, Booleans]:
        total = self._ranked(kernels.precision_sum, self.ranking.gold >= measure.rel, measure)
        relevant = self._per_query(self.gold.grades >= measure.rel, self.gold.query)
        return _ratio(total, relevant), relevant == 0

    def precision(self, measure: Measure) -> tuple[Floats, Booleans]:
        relevant = (self.ranking.gold >= measure.rel).astype(np.float64)
        undiscounted = np.arange(self.discounts.size, dtype=np.float64)
        found = self._ranked(kernels.discounted_gain, relevant, measure, undiscounted)
        return found / float(measure.cutoff or 1), self._none_of(self.ideal.grades >= measure.rel)

    def reciprocal_rank(self, measure: Measure) -> tuple[Floats, Booleans]:
        values = self._ranked(kernels.reciprocal_rank, self.ranking.gold >= measure.rel, measure)
        return values, self._none_of(self.ideal.grades >= measure.rel)

    def expected_reciprocal_rank(self, measure: Measure) -> tuple[Floats, Booleans]:
        highest = self.gold.grades.max()
        if highest > measure.max_grade:
            raise UsageError(
                f"{measure} uses {measure.max_grade} as the highest grade, but the gold has grade {highest:g}",
                kind="grade-above-maximum",
                fix=f"write ERR(max_grade={int(np.ceil(highest))})",
            )
        stops = (np.exp2(self.ranking.gold) - 1) / 2.0**measure.max_grade
        values = self._ranked(kernels.expected_reciprocal_rank, stops, measure)
        return values, self._none_of(self.ideal.grades > 0)

    def tau(self, measure: Measure) -> tuple[Floats, Booleans]:
        net, pairs, _, same_grade = self.pair_counts
        return _ratio(net, pairs - same_grade), self._all_grades_equal

    def tau_b(self, measure: Measure) -> tuple[Floats, Booleans]:
        net, pairs, same_score, same_grade = self.pair_counts
        return _ratio(net, np.sqrt((pairs - same_score) * (pairs - same_grade))), self._all_grades_equal

    def spearman(self, measure: Measure) -> tuple[Floats, Booleans]:
        scores, grades, offsets = self.judged
        values: Floats = kernels.spearman(scores, grades, offsets)
        return values, self._all_grades_equal

    def grade_accuracy(self, measure: Measure) -> tuple[Floats, Booleans]:
        return self._mean_of_judged(lambda own, gold: (own == gold).astype(np.float64))

    def grade_mae(self, measure: Measure) -> tuple[Floats, Booleans]:
        return self._mean_of_judged(lambda own, gold: np.abs(own - gold))

    @cached_property
    def discounts(self) -> Floats:
        """Cumulative sums of the discounts: of the first 0, 1, 2, ... ranks."""
        longest = max(np.diff(self.ranking.offsets).max(), np.diff(self.ideal.offsets).max())
        return np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(longest) + 2))])

    @cached_property
    def judged(self) -> tuple[Floats, Floats, Integers]:
        """Scores, gold grades and offsets of the documents that have gold."""
        keep = self.ranking.judged
        query = self.ranking.query[keep]
        offsets = np.searchsorted(query, np.arange(self.n_queries + 1)).astype(np.int64)
        return self.ranking.scores[keep], self.ranking.gold[keep], offsets

    @cached_property
    def pair_counts(self) -> Floats:
        scores, grades, offsets = self.judged
        counts: Integers = kernels.pair_counts(scores, grades, offsets)
        return counts.T.astype(np.float64)

    @property
    def _all_grades_equal(self) -> Booleans:
        starts = self.gold.offsets[:-1]
        lowest = np.minimum.reduceat(self.gold.grades, starts)
        return np.asarray(lowest == np.maximum.reduceat(self.gold.grades, starts))

    def _ranked(self, kernel: Any, values: NDArray[Any], measure: Measure, *more: Floats) -> Floats:
        ranking = self.ranking
        scored: Floats = kernel(values, ranking.new_group, ranking.offsets, *more, measure.cutoff or _ALL_RANKS)
        return scored

    def _mean_of_judged(self, compared: Callable[[Floats, Floats], Floats]) -> tuple[Floats, Booleans]:
        keep, ranking = self.ranking.judged, self.ranking
        if ranking.grades is None:
            raise UsageError("the run has no grades to compare", kind="no-grades")
        total = self._per_query(compared(ranking.grades[keep], ranking.gold[keep]), ranking.query[keep])
        documents = np.bincount(ranking.query[keep], minlength=self.n_queries)
        # The value of a query without a document to compare is unknown.
        return np.where(documents > 0, _ratio(total, documents), np.nan), np.zeros(self.n_queries, dtype=np.bool_)

    def _per_query(self, weights: NDArray[Any], query: Integers) -> Floats:
        # np.bincount returns integers if there are no rows, although weights are floats.
        return np.asarray(np.bincount(query, weights=weights, minlength=self.n_queries), dtype=np.float64)

    def _none_of(self, positive: Booleans) -> Booleans:
        return np.asarray(self._per_query(positive, self.ideal.query) == 0)


def _needs_grades(run: Any, measures: Iterable[Measure]) -> bool:
    names = [str(measure) for measure in measures if measure.name in GRADE_MEASURES]
    if names and "grade" not in column_names(run):
        raise UsageError(
            f"{' and '.join(names)} compare{'s' if len(names) == 1 else ''} grades, but the run has no column 'grade'",
            kind="no-grades",
            fix=["add the column", "omit the measure"],
        )
    return bool(names)


def _gains(grades: Floats, gains: Gains, measure: Measure) -> Floats:
    if gains == "linear":
        return grades
    highest = grades.max(initial=0.0)
    if gains == "exponential":
        if highest > _LARGEST_EXPONENT:
            raise InputError(
                f"the gain 2^grade - 1 of grade {highest:g} is too large for a floating-point number",
                source="the gold",
                column="grade",
                kind="gain-overflow",
                fix=["use linear gains", "use smaller grades"],
            )
        return np.exp2(grades) - 1
    if highest > len(gains) - 1 or np.any(grades != np.floor(grades)):
        bad = grades[(grades > len(gains) - 1) | (grades != np.floor(grades))][0]
        raise UsageError(
            f"the gains of {measure} are for grades 0 to {len(gains) - 1}, but the gold has grade {bad:g}",
            kind="no-gain",
            fix="give a gain for each grade",
        )
    return np.asarray(gains, dtype=np.float64)[grades.astype(np.int64)]


def _ratio(numerator: Floats, denominator: NDArray[Any]) -> Floats:
    """Divide; the result is 0 where the denominator is not positive."""
    ratio: Floats = np.divide(numerator, denominator, out=np.zeros(numerator.size), where=denominator > 0)
    return ratio


def _mean(values: Floats) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else float("nan")


def _fill_for(measure: Measure, no_relevant: str) -> str:
    return "skip" if measure.name in CORRELATIONS and no_relevant == "one" else no_relevant


def _gain_text(gains: Gains) -> str:
    if isinstance(gains, str):
        return _GAINS[gains]
    return f"{', '.join(f'{gain:g}' for gain in gains)} for grades 0 to {len(gains) - 1}"


def _group_by_text(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return each distinct text with the names of the measures that have it."""
    measures: dict[str, list[str]] = {}
    for measure, text in texts.items():
        measures.setdefault(text, []).append(measure)
    return [(text, ", ".join(names)) for text, names in measures.items()]


def _verb(n: int, singular: str, plural: str) -> str:
    return singular if n == 1 else plural
