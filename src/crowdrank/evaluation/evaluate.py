"""Evaluate a run against expert grades, per query and on average."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._estimator import require_one_of
from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.errors import Fix, InputError, Message, UsageError
from crowdrank.evaluation import measure_kernels
from crowdrank.evaluation.alignment import (
    NO_GOLD_ROW,
    Alignment,
    RankableDocuments,
    Ranking,
    align,
    align_codes,
    group_by_query,
    tie_groups,
)
from crowdrank.evaluation.measures import (
    CORRELATIONS,
    GAIN_MEASURES,
    GRADE_MEASURES,
    JUDGED_CUTOFF,
    Gains,
    Measure,
    parse_measure,
    parse_measures,
)
from crowdrank.evaluation.residual import leave_out_used
from crowdrank.judgments.columns import PRIOR_RELEVANCE, SCALE_COLUMN
from crowdrank.judgments.frames import column_names, frame_library, from_arrow, is_frame
from crowdrank.judgments.gold import Gold
from crowdrank.readers.read import read_gold
from crowdrank.readers.runs import read_run

_ALL_RANKS = int(np.iinfo(np.int32).max)
_MAX_GAIN_EXPONENT = 1023
Ties = Literal["expected", "document", "given"]
Unjudged = Literal["nonrelevant", "skip"]
NoRelevant = Literal["skip", "zero", "one"]
EXPECTED_GRADES_NOTE = "The gold has probabilities of grades; gains and relevance are expectations over them."
GOLD_USED_FEATURES_NOTE = (
    "The gold is a consensus that used features of the documents: it favors rankers that use the same features."
)
_JUDGED_ONLY_MEASURES = "rank correlations and grade measures"
_TIES_SENTENCES = {
    "expected": "Equal scores count as the exact expectation over all orders of the tied documents",
    "document": "Equal scores are ordered by document id, descending as text, as trec_eval does",
    "given": "Equal scores keep the order of the rows",
}
_UNJUDGED_SENTENCES = {
    "nonrelevant": f"Documents without gold count as grade 0, except in {_JUDGED_ONLY_MEASURES}",
    "skip": "Documents without gold are left out of the ranking",
}
_NO_RELEVANT_PHRASES = {"skip": "are left out of the mean", "zero": "count 0 in the mean", "one": "count 1 in the mean"}
_NO_RELEVANT_VALUES = {"skip": np.nan, "zero": 0.0, "one": 1.0}


@dataclass(frozen=True)
class Conventions:
    """Treatment of ties, documents without gold and queries without relevant documents; see :func:`evaluate`.

    >>> Conventions().sentences()[0]
    'Equal scores count as the exact expectation over all orders of the tied documents.'
    """

    ties: Ties = "expected"
    unjudged: Unjudged = "nonrelevant"
    no_relevant: NoRelevant = "skip"

    def __post_init__(self) -> None:
        for name, known in (
            ("ties", _TIES_SENTENCES),
            ("unjudged", _UNJUDGED_SENTENCES),
            ("no_relevant", _NO_RELEVANT_PHRASES),
        ):
            require_one_of(name, getattr(self, name), known)

    def no_relevant_in(self, measure: Measure) -> str:
        """Return the convention of a measure for queries without a value; correlations skip them instead of counting 1.

        These are queries without a relevant document, or in correlations those with only one gold grade.
        """
        return "skip" if measure.name in CORRELATIONS and self.no_relevant == "one" else self.no_relevant

    def sentences(self, measures: Iterable[Measure] = ()) -> list[str]:
        """Describe the conventions in sentences, including those that concern the given measures only.

        >>> Conventions().sentences([Measure("nDCG")])[-1]
        'The gain of a grade in DCG and nDCG is 2^grade - 1, unless the measure names other gains.'
        """
        no_relevant = f"Queries without a relevant document {_NO_RELEVANT_PHRASES[self.no_relevant]}."
        return [
            f"{_TIES_SENTENCES[self.ties]}.",
            f"{_UNJUDGED_SENTENCES[self.unjudged]}.",
            no_relevant,
            *self.measure_sentences(measures),
        ]

    def measure_sentences(self, measures: Iterable[Measure]) -> list[str]:
        """Describe the conventions that concern some of the given measures only."""
        names = {measure.name for measure in measures}
        sentences = []
        if self.no_relevant == "one" and names.intersection(CORRELATIONS):
            sentences.append("Queries whose gold grades are all equal are left out of rank correlations.")
        if names.intersection(GAIN_MEASURES):
            sentences.append(
                "The gain of a grade in DCG and nDCG is 2^grade - 1, unless the measure names other gains."
            )
        if "ERR" in names:
            sentences.append("The highest grade in ERR is 4 (as in gdeval), unless the measure names another.")
        return sentences


@dataclass(frozen=True)
class EvaluationCounts:
    """Numbers of queries and documents that were scored or excluded.

    >>> import pandas as pd
    >>> run = pd.DataFrame({"document": ["a", "b", "c"], "score": [3, 2, 1]})
    >>> gold = pd.DataFrame({"document": ["a", "b", "d"], "grade": [1, 0, 2]})
    >>> counts = evaluate(run, gold, "nDCG").counts
    >>> counts.documents_scored, counts.documents_without_gold, counts.gold_documents_missing
    (3, 1, 1)
    """

    queries: int  # queries with gold
    documents_scored: int
    documents_tied: int  # scored documents with the score of another document of the query
    documents_without_gold: int
    documents_as_nonrelevant: int  # documents without gold that count as grade 0
    run_queries_without_gold: int
    gold_documents_missing: int  # gold documents that the run does not rank
    gold_queries_missing: int  # gold queries without a scored document in the run


MIN_JUDGED_SHARE = 0.5
"""Judged@k (share of the first k documents with gold) below which a warning is issued."""


def unjudged_fixes(other_unjudged: str) -> tuple[Fix, ...]:
    """Return what to do if results depend on documents without gold; `other_unjudged` is their other treatment."""
    return Fix("get gold for more documents"), Fix("report the result with {} as well", "unjudged", other_unjudged)


@dataclass(frozen=True)
class Evaluation:
    """Values of some measures for one run.

    Attributes:
        per_query: Arrow table with the query and one column per measure; NaN if a query is excluded.
        means: mean of each measure over the queries that are not excluded.
        judged: mean of Judged@k, the share of the first k documents that have gold, for the cutoffs of the measures.
        counts: number of queries and documents that were evaluated or excluded.
        without_relevant: number of queries without a relevant document, by measure.
        measures: the measures.
        conventions: treatment of ties and of missing gold.
        backend: library of the run's DataFrame, for `frame`.
        expected_grades: whether the gold has probabilities of grades, so that gains and relevance are expectations.
        gold_used_features: whether the gold is a consensus that used features of the documents.
        n_gold_used: number of gold documents that are left out, because the run was fitted with their expert grade.

    >>> import pandas as pd
    >>> run = pd.DataFrame({"query": [1, 1, 2], "document": ["a", "b", "c"], "score": [0.9, 0.2, 0.1]})
    >>> gold = pd.DataFrame({"query": [1, 1, 2], "document": ["a", "b", "c"], "grade": [0, 1, 0]})
    >>> evaluation = evaluate(run, gold, ["RR", "P@1"])
    >>> evaluation.frame
       query   RR  P@1
    0      1  0.5  0.0
    1      2  NaN  NaN
    >>> evaluation.means, evaluation.judged
    ({'RR': 0.5, 'P@1': 0.0}, {'Judged@1': 1.0})

    """

    per_query: pa.Table
    means: dict[str, float]
    judged: dict[str, float]
    counts: EvaluationCounts
    without_relevant: dict[str, int]
    measures: tuple[Measure, ...]
    conventions: Conventions
    backend: str
    expected_grades: bool = False
    gold_used_features: bool = False
    n_gold_used: int = 0

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
        return np.asarray(self.per_query.column(name).to_numpy())

    @property
    def warnings(self) -> tuple[Message, ...]:
        """Warning of kind `few-judged` for each Judged@k below `MIN_JUDGED_SHARE`: values depend on missing gold."""
        other = "skip" if self.conventions.unjudged == "nonrelevant" else "nonrelevant"
        return tuple(
            Message(
                f"only {share:.1%} of the first documents have gold ({name})",
                "few-judged",
                "warning",
                fixes=unjudged_fixes(other),
            )
            for name, share in self.judged.items()
            if share < MIN_JUDGED_SHARE
        )

    def used_notes(self) -> list[str]:
        """Return a sentence if documents are left out because a consensus was fitted with their expert grade."""
        if not self.n_gold_used:
            return []
        are, grades = ("is", "grade") if self.n_gold_used == 1 else ("are", "grades")
        documents = counted(self.n_gold_used, "document")
        reason = f"a consensus was fitted with the expert {grades}"
        return [f"{documents} {are} left out of all rankings and of the gold: {reason}."]

    def relevance_notes(self) -> list[str]:
        """Return a sentence for each measure whose mean leaves out queries, or counts them as 0 or 1."""
        return [
            f"Queries {'with equal gold grades' if measure.name in CORRELATIONS else 'without a relevant document'}"
            f" that {_NO_RELEVANT_PHRASES[self.conventions.no_relevant_in(measure)]} of {measure}: {number:,}."
            for measure in self.measures
            if (number := self.without_relevant[str(measure)])
        ]

    def notes(self) -> list[str]:
        """Describe in sentences what was excluded and how ties and missing gold were treated.

        >>> import pandas as pd
        >>> run = pd.DataFrame({"document": ["a", "b", "c"], "score": [1, 1, 0]})
        >>> gold = pd.DataFrame({"document": ["a", "b"], "grade": [1, 0]})
        >>> for note in evaluate(run, gold, "AP").notes():
        ...     print(note)
        1 query and 3 documents were scored.
        Equal scores count as the exact expectation over all orders of the tied documents (2 tied documents).
        Documents without gold that count as grade 0, except in rank correlations and grade measures: 1.
        """
        counts = self.counts
        left_out = counts.documents_without_gold - counts.documents_as_nonrelevant
        numbers = [
            (
                f"Documents without gold that count as grade 0, except in {_JUDGED_ONLY_MEASURES}",
                counts.documents_as_nonrelevant,
            ),
            ("Documents without gold that are left out", left_out),
            ("Queries of the run without gold that are left out", counts.run_queries_without_gold),
            (
                f"Gold documents that the run does not rank ({_JUDGED_ONLY_MEASURES} ignore them)",
                counts.gold_documents_missing,
            ),
            ("Gold queries without a scored document, which count 0", counts.gold_queries_missing),
        ]
        return [
            f"{counted(counts.queries, 'query')} and {counted(counts.documents_scored, 'document')} were scored.",
            *self.used_notes(),
            f"{_TIES_SENTENCES[self.conventions.ties]} ({counted(counts.documents_tied, 'tied document')}).",
            *(f"{text}: {number:,}." for text, number in numbers if number),
            *self.relevance_notes(),
            *self.conventions.measure_sentences(self.measures),
            *([EXPECTED_GRADES_NOTE] if self.expected_grades else []),
            *([GOLD_USED_FEATURES_NOTE] if self.gold_used_features else []),
        ]


def evaluate(
    run: Any,
    gold: Any,
    measures: str | Measure | Iterable[str | Measure],
    *,
    ties: Ties = "expected",
    unjudged: Unjudged = "nonrelevant",
    no_relevant: NoRelevant = "skip",
) -> Evaluation:
    """Evaluate a run against gold grades.

    If neither the run nor the gold has a query column, all documents belong to one query, 'all'. Ids of different types
    are joined as text. A gold document that the run does not rank counts as not retrieved. A query that the run lacks
    counts 0 and is excluded from the grade measures.

    If the gold has the columns p0, p1, ... of a consensus, the probability of each grade, then gains, relevance and the
    stopping probabilities of ERR are expectations over these, documents being independent; nDCG divides by the DCG of
    the best order by expected gain, AP by the expected number of relevant documents. Rank correlations and grade
    measures use the column grade.

    A consensus that was fitted with expert grades repeats them. Its column `expert_graded` marks these documents; they
    are left out of the run and of the gold.

    Args:
        run: DataFrame with columns query, document, and relevance or score (and grade, for the grade measures), a
            path, or a consensus.
        gold: DataFrame with columns query, document and grade (and p0, p1, ...), a path, a `Gold`, or a consensus.
        measures: measures or their names, such as `nDCG@10`; a text can contain several, separated by spaces.
        ties: 'expected' takes the exact expectation over random orders of equal scores; 'document' orders them by
            document id, descending as text (trec_eval); 'given' keeps the order of the rows. Rank correlations treat
            ties by their own definitions.
        unjudged: documents of the run without gold count as grade 0 ('nonrelevant', as in trec_eval) or are left out
            of the ranking ('skip'). Rank correlations and grade measures always leave them out.
        no_relevant: a query without a relevant document is excluded ('skip': NaN) or counts 0 or 1 ('zero', 'one').
            This depends on the gold only, so that all runs are averaged over the same queries. For rank correlations,
            these are the queries whose gold grades are all equal; 'one' means 'skip' there.

    Returns:
        The values per query, their means, the share of judged documents, and notes on what was excluded.

    Raises:
        InputError: the run or the gold cannot be used.
        UsageError: an argument has an invalid value.

    >>> import pandas as pd
    >>> run = pd.DataFrame({"document": ["a", "b", "c"], "score": [0.9, 0.5, 0.5]})
    >>> gold = pd.DataFrame({"document": ["a", "b", "c"], "grade": [0, 2, 1]})
    >>> evaluate(run, gold, "nDCG@2 Tau").means
    {'nDCG@2': 0.3475..., 'Tau': -0.6666...}

    """
    parsed, conventions = parse_measures(measures), Conventions(ties, unjudged, no_relevant)
    run, gold = as_run(run), load_gold(gold)
    residual = leave_out_used({"run": run}, as_gold(gold))
    aligned = align_for_measures(residual.runs["run"], residual.gold, parsed, ties)
    evaluation = evaluate_alignment(aligned, parsed, conventions, frame_library(run))
    return replace(evaluation, gold_used_features=used_features(gold), n_gold_used=residual.n_left_out)


def evaluate_codes(
    query: Integers, scores: Floats, grades: Floats, queries: pa.Array, measures: tuple[Measure, ...]
) -> Evaluation:
    """Evaluate the scores of documents with gold grades, without other documents; see :func:`align_codes`."""
    conventions = Conventions(unjudged="skip")
    return evaluate_alignment(align_codes(query, scores, grades, queries), measures, conventions, "pandas")


def align_for_measures(run: Any, gold: Any, measures: Iterable[Measure], ties: Ties) -> Alignment:
    """Join a run with the gold; read the grades of the run if a measure needs them."""
    names = [str(measure) for measure in measures if measure.name in GRADE_MEASURES]
    aligned = align(run, as_gold(gold), ties=ties, with_grades=bool(names) and "grade" in column_names(run))
    if names and aligned.ranking.grades is None:
        problem = f"the run has no column 'grade', which {' and '.join(names)} compare with the gold"
        raise UsageError(problem, kind="no-grades", fix=["add the column", "omit the measure"])
    return aligned


def evaluate_alignment(
    aligned: Alignment, measures: tuple[Measure, ...], conventions: Conventions, backend: str
) -> Evaluation:
    """Evaluate a run that is joined with the gold; see :func:`evaluate`."""
    scoring = RunScoring(aligned, skip_unjudged=conventions.unjudged == "skip")
    columns, without_relevant = {}, {}
    for measure in measures:
        undefined = scoring.undefined(measure)
        fill = _NO_RELEVANT_VALUES[conventions.no_relevant_in(measure)]
        columns[str(measure)] = np.where(undefined, fill, scoring.values(measure))
        without_relevant[str(measure)] = int(undefined.sum())
    cutoffs = sorted({measure.cutoff for measure in measures if measure.cutoff is not None}) or [JUDGED_CUTOFF]
    judged = [Measure("Judged", cutoff=cutoff) for cutoff in cutoffs]
    ranked = scoring.ranking
    return Evaluation(
        per_query=pa.table({"query": aligned.queries, **columns}),
        means={name: _mean_without_nan(values) for name, values in columns.items()},
        judged={str(measure): _mean_without_nan(scoring.values(measure)) for measure in judged},
        counts=EvaluationCounts(
            queries=ranked.n_queries,
            documents_scored=len(ranked.query),
            documents_tied=ranked.n_tied,
            documents_without_gold=aligned.documents_without_gold,
            documents_as_nonrelevant=int((~ranked.judged).sum()),
            run_queries_without_gold=aligned.run_queries_without_gold,
            gold_documents_missing=len(aligned.gold.query) - int(ranked.judged.sum()),
            gold_queries_missing=int((np.diff(ranked.offsets) == 0).sum()),
        ),
        without_relevant=without_relevant,
        measures=measures,
        conventions=conventions,
        backend=backend,
        expected_grades=aligned.grades.shares is not None,
    )


def as_run(run: Any) -> Any:
    """Return a run as a DataFrame; read a path, take the documents of a consensus."""
    if isinstance(run, str | Path):
        return read_run(run)
    return getattr(run, "documents", run)


def as_gold(gold: Any) -> Any:
    """Return gold as a DataFrame; read a path, take the frame of a `Gold` or the documents of a consensus.

    Named grades whose order the column `scale` states become numbers.
    """
    gold = load_gold(gold)
    frame = gold.frame if isinstance(gold, Gold) else getattr(gold, "documents", gold)
    return read_gold(frame).frame if is_frame(frame) and SCALE_COLUMN in column_names(frame) else frame


def load_gold(gold: Any) -> Any:
    """Return the `Gold` of a path, and anything else as it is."""
    return read_gold(gold) if isinstance(gold, str | Path) else gold


def used_features(gold: Any) -> bool:
    """Return whether gold is a consensus, or the table of one, that used features of the documents."""
    return gold.used_features if isinstance(gold, Gold) else PRIOR_RELEVANCE in column_names(as_gold(gold))


def _mean_without_nan(values: Floats) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else float("nan")


class RunScoring:
    """Computes measures of one run; with `skip_unjudged`, documents without gold are left out of the ranking."""

    def __init__(self, aligned: Alignment, *, skip_unjudged: bool) -> None:
        self.gold, self.grades, self.complete_ranking = aligned.gold, aligned.grades, aligned.ranking
        self.n_queries = aligned.ranking.n_queries
        self._skip_unjudged = skip_unjudged

    @cached_property
    def judged_ranking(self) -> Ranking:
        """The ranking without documents that have no gold."""
        return self.complete_ranking.only_judged()

    @property
    def ranking(self) -> Ranking:
        """The ranking that measures of rank order score."""
        return self.judged_ranking if self._skip_unjudged else self.complete_ranking

    @cached_property
    def pool(self) -> RankableDocuments:
        """The documents of the ideal order: those with gold, and those that count as grade 0."""
        ranking = self.ranking
        if ranking.judged.all():
            return self.gold
        unjudged = ranking.query[~ranking.judged]
        row = np.append(self.gold.row, np.full(len(unjudged), NO_GOLD_ROW))
        return group_by_query(np.append(self.gold.query, unjudged), row, self.n_queries)

    def values(self, measure: Measure) -> Floats:
        """Return the value of the measure for each query, (n_queries,)."""
        name = measure.name
        if name in CORRELATIONS:
            return self._correlation(name)
        if name in GRADE_MEASURES:
            return self._grade_measure(name)
        if name in GAIN_MEASURES:
            gains = self._gains(measure)
            dcg = self._apply_rank_kernel(measure_kernels.discounted_gain, gains[self.ranking.row], measure)
            return _ratio_or_zero(dcg, self._ideal_dcg(gains, measure)) if name == "nDCG" else dcg
        if name == "Judged":
            return self._judged(measure)
        if name == "ERR":
            return self._apply_rank_kernel(
                measure_kernels.expected_reciprocal_rank, self._stop_probabilities(measure), measure
            )
        relevance = self._relevance(measure)
        relevant = relevance[self.ranking.row]
        if name == "AP":
            n_relevant = self._sum_by_query(relevance[self.gold.row], self.gold.query)
            return _ratio_or_zero(self._apply_rank_kernel(measure_kernels.precision_sum, relevant, measure), n_relevant)
        if name == "RR" and self.grades.shares is None:
            return self._apply_rank_kernel(measure_kernels.reciprocal_rank, relevant > 0, measure)
        if name == "RR":  # a reader who stops at the first relevant document
            return self._apply_rank_kernel(measure_kernels.expected_reciprocal_rank, relevant, measure)
        return _expected_count(self.ranking, relevant, measure) / (measure.cutoff or 1)

    def undefined(self, measure: Measure) -> Booleans:
        """Return whether a query has no relevant document, or no two different gold grades in correlations."""
        if measure.name in CORRELATIONS:
            starts, grades = self.gold.offsets[:-1], self.grades.grades[self.gold.row]
            lowest, highest = (extreme.reduceat(grades, starts) for extreme in (np.minimum, np.maximum))
            return np.asarray(lowest == highest)
        if measure.name in (*GRADE_MEASURES, "Judged"):
            return np.zeros(self.n_queries, dtype=np.bool_)
        if measure.name in GAIN_MEASURES:
            relevance = self._gains(measure)
        elif measure.name == "ERR":
            relevance = self.grades.expected(lambda grade: grade > 0)
        else:
            relevance = self._relevance(measure)
        return np.asarray(self._sum_by_query(relevance[self.pool.row] > 0, self.pool.query) == 0)

    def _gains(self, measure: Measure) -> Floats:
        """Return the expected gain of each row of the gold, and of documents without gold."""
        return self.grades.expected(lambda grade: grade_gains(grade, measure.gains, str(measure)))

    def _relevance(self, measure: Measure) -> Floats:
        """Return the probability that each row of the gold is relevant, and a document without gold."""
        return self.grades.expected(lambda grade: grade >= measure.rel)

    def _ideal_dcg(self, gains: Floats, measure: Measure) -> Floats:
        pool = self.pool
        return ideal_dcg(gains[pool.row], pool.query, pool.offsets, self._discounts, measure.cutoff)

    def _stop_probabilities(self, measure: Measure) -> Floats:
        highest = self.grades.possible_grades.max()
        if highest > measure.max_grade:
            problem = f"{measure} uses {measure.max_grade} as the highest grade, but the gold has grade {highest:g}"
            raise UsageError(problem, kind="grade-above-maximum", fix=f"write ERR(max_grade={int(np.ceil(highest))})")
        return self.grades.expected(_stop_probability(measure.max_grade))[self.ranking.row]

    def _judged(self, measure: Measure) -> Floats:
        ranking = self.complete_ranking
        n_ranked = np.minimum(np.diff(ranking.offsets), measure.cutoff or _ALL_RANKS)
        return _ratio_or_zero(_expected_count(ranking, ranking.judged, measure), n_ranked)

    def _correlation(self, measure_name: str) -> Floats:
        ranking = self.judged_ranking
        if measure_name == "Spearman":
            by_score, by_grade = (self._centered_ranks(values) for values in (ranking.scores, ranking.gold))
            spread = self._sum_by_query(by_score**2, ranking.query) * self._sum_by_query(by_grade**2, ranking.query)
            return _ratio_or_zero(self._sum_by_query(by_score * by_grade, ranking.query), np.sqrt(spread))
        net, pairs, same_score, same_grade = self._pair_counts
        different = pairs - same_grade
        return _ratio_or_zero(net, different if measure_name == "Tau" else np.sqrt((pairs - same_score) * different))

    def _grade_measure(self, measure_name: str) -> Floats:
        ranking = self.judged_ranking
        assert ranking.grades is not None
        same = ranking.grades == ranking.gold
        total = self._sum_by_query(
            same if measure_name == "GradeAccuracy" else np.abs(ranking.grades - ranking.gold), ranking.query
        )
        n_documents = np.diff(ranking.offsets)
        # The value of a query without a document to compare is unknown.
        return np.where(n_documents > 0, _ratio_or_zero(total, n_documents), np.nan)

    def _centered_ranks(self, values: Floats) -> Floats:
        """Return the rank of each judged document within its query, minus the mean rank; ties have their mean rank."""
        query = self.judged_ranking.query
        order = np.lexsort((values, query))
        group = tie_groups(query[order], values[order])
        ranks = np.empty(len(values))
        ranks[order] = (np.bincount(group, weights=np.arange(len(values))) / np.bincount(group))[group]
        return ranks - _ratio_or_zero(self._sum_by_query(ranks, query), np.diff(self.judged_ranking.offsets))[query]

    @cached_property
    def _discounts(self) -> Floats:
        longest = max(np.diff(self.ranking.offsets).max(), np.diff(self.pool.offsets).max())
        return cumulative_discounts(longest)

    @cached_property
    def _pair_counts(self) -> Floats:
        ranking = self.judged_ranking
        counts: Integers = measure_kernels.pair_counts(ranking.scores, ranking.gold, ranking.offsets)
        return counts.T.astype(np.float64)

    def _apply_rank_kernel(self, kernel: Any, values: NDArray[Any], measure: Measure) -> Floats:
        ranking = self.ranking
        discounts = (self._discounts,) if kernel is measure_kernels.discounted_gain else ()
        return np.asarray(kernel(values, ranking.new_group, ranking.offsets, *discounts, measure.cutoff or _ALL_RANKS))

    def _sum_by_query(self, values: NDArray[Any], query: Integers) -> Floats:
        # np.bincount returns integers if there are no rows, although weights are floats.
        return np.asarray(np.bincount(query, weights=values, minlength=self.n_queries), dtype=np.float64)


def _stop_probability(max_grade: int) -> Callable[[Floats], Floats]:
    return lambda grade: np.asarray((np.exp2(grade) - 1) / 2.0**max_grade)


def cumulative_discounts(n_ranks: int) -> Floats:
    """Return the sums of the DCG discounts of the first 0, 1, ..., n_ranks ranks.

    >>> cumulative_discounts(3)
    array([0.        , 1.        , 1.63092975, 2.13092975])
    """
    return np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(n_ranks) + 2))])


def ideal_dcg(gains: Floats, query: Integers, offsets: Integers, discount_sums: Floats, cutoff: int | None) -> Floats:
    """Return the DCG of the best order of each query's documents, (n_queries,)."""
    best = gains[np.lexsort((-gains, query))]
    ideal: Floats = measure_kernels.discounted_gain(
        best, np.ones(best.size, dtype=np.bool_), offsets, discount_sums, cutoff or _ALL_RANKS
    )
    return ideal


def grade_gains(grades: Floats, gains: Gains, measure: str) -> Floats:
    """Return the gain of each grade; raise an error if a grade has none.

    >>> grade_gains(np.array([0.0, 2.0]), "exponential", "nDCG")
    array([0., 3.])
    """
    if gains == "linear":
        return grades
    if gains == "exponential":
        highest = grades.max(initial=0.0)
        if highest > _MAX_GAIN_EXPONENT:
            problem = f"the gain 2^grade - 1 of grade {highest:g} is too large for a floating-point number"
            fix = ["use linear gains, nDCG(dcg='log2')", "use smaller grades"]
            raise InputError(problem, source="the gold", column="grade", kind="gain-overflow", fix=fix)
        return np.asarray(np.exp2(grades) - 1)
    bad = grades[(grades > len(gains) - 1) | (grades != np.floor(grades))]
    if bad.size:
        problem = f"the gains of {measure} are for grades 0 to {len(gains) - 1}, but the gold has grade {bad[0]:g}"
        raise UsageError(problem, kind="no-gain", fix="give a gain for each grade")
    return np.asarray(gains, dtype=np.float64)[grades.astype(np.int64)]


def _expected_count(ranking: Ranking, weights: NDArray[Any], measure: Measure) -> Floats:
    """Return the expected sum of weights down to the cutoff, over orders of ties, (n_queries,)."""
    offsets = ranking.offsets
    ranks = np.arange(np.diff(offsets).max() + 1, dtype=np.float64)
    values = weights.astype(np.float64)
    return np.asarray(
        measure_kernels.discounted_gain(values, ranking.new_group, offsets, ranks, measure.cutoff or _ALL_RANKS)
    )


def _ratio_or_zero(numerator: Floats, denominator: NDArray[Any]) -> Floats:
    """Divide; the result is 0 where the denominator is not positive."""
    return np.asarray(np.divide(numerator, denominator, out=np.zeros(numerator.size), where=denominator > 0))
