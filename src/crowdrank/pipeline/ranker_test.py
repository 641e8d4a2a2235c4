"""Test of the candidates on held-out queries, and the summary of a run in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from crowdrank._text import counted, enumerate_names
from crowdrank._typing import Floats
from crowdrank.evaluation.comparison import Comparison, compare_evaluations
from crowdrank.evaluation.evaluate import evaluate_codes
from crowdrank.evaluation.measures import parse_measure, parse_measures
from crowdrank.pipeline.baseline import describe_baseline
from crowdrank.pipeline.candidates import BY_NAME
from crowdrank.pipeline.contrasts import (
    ALPHA,
    EXPERT_QUERIES,
    Contrast,
    Verdict,
    adjust_contrasts,
    contrast_values,
    decide_verdict,
    detectable_standard_errors,
    difference_text,
    min_test_queries,
)
from crowdrank.pipeline.ensembles import ENSEMBLES, WEIGHTED
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.selection import (
    MIN_LEAD_STANDARD_ERRORS,
    MIN_SELECTION_QUERIES,
    ExpertScorer,
    ExpertSplit,
    SelectionResult,
    only_crowd,
)
from crowdrank.pipeline.training import CandidateTraining
from crowdrank.rankers.ensemble import EQUAL_WEIGHT_PRIOR_QUERIES, N_RANDOM_HALVES

ALTERNATIVES = ("average", "expert-only", "best-feature")
"""Simple candidates that, like the baseline, the selected one must beat to count as better."""
CONTROLS = (*ALTERNATIVES, "gls")
"""Simple candidates that the selected one is always compared with."""
FEW_TEST_QUERIES = 20
"""With fewer test queries, the summary states the smallest difference that they can show."""


@dataclass(eq=False)
class RankerTest:
    """Test of the candidates: differences between pairs of them, each computed once.

    Attributes:
        training: training on the data of the run.
        outcome: scores, rankers and the selected candidate.
        settings: settings of the run.
        has_experts: whether expert grades test the candidates; otherwise the consensus takes their place.
        contrasts: the differences that were asked for so far; those of `headline` have an adjusted p-value.

    """

    training: CandidateTraining
    outcome: SelectionResult
    settings: RunSettings
    has_experts: bool
    contrasts: dict[tuple[str, str], Contrast] = field(default_factory=dict)

    @property
    def split(self) -> ExpertSplit:
        """Queries for selection and test."""
        return self.outcome.split

    @property
    def chosen(self) -> str:
        """Name of the selected candidate."""
        return self.outcome.chosen

    @property
    def baseline(self) -> str:
        """Name of the baseline: the one of the settings if it was trained, otherwise the first candidate."""
        names = self.outcome.scores
        return self.settings.baseline if self.settings.baseline in names else next(iter(names))

    @cached_property
    def comparison(self) -> Comparison | None:
        """Comparison of all candidates on the test queries; None without expert grades or test queries."""
        data, queries = self.training.data, self.split.test
        if not self.has_experts or not len(queries):
            return None
        rows = data.graded_rows(queries)
        query, query_ids = np.searchsorted(queries, data.query[rows]), data.query_ids.take(pa.array(queries))
        ndcg = [parse_measure(f"nDCG@{cutoff}").with_gains(self.settings.gains) for cutoff in (1, 5, 10)]
        measures = parse_measures([self.settings.measure, *ndcg])
        evaluations = {
            name: evaluate_codes(query, score[rows], data.expert[rows], query_ids, measures)
            for name, score in self.outcome.scores.items()
        }
        seed = self.settings.random_state
        return compare_evaluations(evaluations, baseline=self.baseline, alpha=ALPHA, random_state=seed)

    @property
    def selection_means(self) -> dict[str, float]:
        """Mean of the measure on the selection queries, by candidate."""
        return {name: float(values.mean()) for name, values in self.outcome.values.items()}

    def contrast(self, candidate: str, other: str) -> Contrast:
        """Return the difference between two candidates on the test queries."""
        pair = candidate, other
        if pair not in self.contrasts:
            adjusted = self.headline.get(pair)
            self.contrasts[pair] = self._contrast_scores(pair) if adjusted is None else adjusted
        return self.contrasts[pair]

    @cached_property
    def headline(self) -> dict[tuple[str, str], Contrast]:
        """The differences that the summary tests, with p-values adjusted over all of them.

        They are those of the selected candidate to each alternative, and that of learned to other labels. The test
        queries choose none of them.
        """
        if self.comparison is None:
            return {}
        pairs = [(self.chosen, name) for name in self.alternatives]
        learned = self.best_with_learned_labels()
        pairs = list(dict.fromkeys([*pairs, *([] if learned is None else [learned])]))
        return dict(zip(pairs, adjust_contrasts([self._contrast_scores(pair) for pair in pairs]), strict=True))

    @property
    def alternatives(self) -> list[str]:
        """Names of the baseline and of the simple candidates that the selected one must beat to count as better."""
        names = dict.fromkeys((self.baseline, *ALTERNATIVES))
        return [name for name in names if name in self.outcome.scores and name != self.chosen]

    def best_with_learned_labels(self) -> tuple[str, str] | None:
        """Return the best candidate on learned labels and the best on crowd labels, by the selection queries."""
        means = self.selection_means
        candidates = [candidate for candidate in self.outcome.candidates if candidate.name in means]
        learned = [candidate.name for candidate in candidates if candidate.remapper is not None]
        plain = [candidate.name for candidate in only_crowd(candidates)]
        return (max(learned, key=means.__getitem__), max(plain, key=means.__getitem__)) if learned and plain else None

    def _contrast_scores(self, pair: tuple[str, str]) -> Contrast:
        return self.contrast_scores(pair[0], self.outcome.scores[pair[0]], pair[1])

    def contrast_scores(self, name: str, score: Floats, other: str) -> Contrast:
        """Return the difference between scores (n_rows,) and a candidate on the test queries."""
        seed = self.settings.random_state
        return contrast_values(name, self._scorer.values(score), other, self.values(other), seed)

    @cached_property
    def verdict(self) -> Verdict | None:
        """Whether the selected candidate is better than each alternative; None if nothing was tested."""
        if self.comparison is None:
            return None
        contrasts = [self.contrast(self.chosen, name) for name in self.alternatives]
        return decide_verdict(contrasts, is_baseline=self.chosen == self.baseline)

    @property
    def preferred(self) -> str | None:
        """Name of the alternative that decides the verdict, if the selected candidate is not ahead of it."""
        if self.verdict is None or not self.verdict.decisive:
            return None
        is_ahead = self.contrast(self.chosen, self.verdict.decisive).difference > 0
        return None if is_ahead else self.verdict.decisive

    def test_controls(self) -> None:
        """Compare the selected candidate with the baseline and the simple candidates."""
        for name in dict.fromkeys((self.baseline, *CONTROLS)):
            if name in self.outcome.scores and name != self.chosen:
                self.contrast(self.chosen, name)

    def values(self, name: str) -> Floats:
        """Return the measure of each test query, (n_test_queries,)."""
        return self._scorer.values(self.outcome.scores[name])

    def mean(self, name: str) -> float:
        """Return the mean of the measure on the test queries."""
        return float(self.values(name).mean())

    @cached_property
    def _scorer(self) -> ExpertScorer:
        return ExpertScorer(self.training.data, self.split.test, self.settings)


def describe_candidate(candidate: str) -> str:
    """Return what a candidate or an ensemble is, as a phrase such as 'LambdaMART on majority votes'."""
    if candidate in BY_NAME:
        return BY_NAME[candidate].description
    return ENSEMBLES.get(candidate) or describe_baseline(candidate)


def summarize(test: RankerTest) -> list[str]:
    """Return the result of a run with rankers in short paragraphs, the most important first."""
    if not test.has_experts:
        return _without_experts(test)
    if test.comparison is None:
        return [_selected(test), "No expert-graded query was held out for a test."]
    parts = [
        _describe_verdict_paragraph(test),
        _selected(test),
        _describe_best_candidate(test),
        _learned_labels(test),
        _detectable_difference(test),
    ]
    return [part for part in parts if part]


def _selected(test: RankerTest) -> str:
    name, n, n_selection = test.chosen, len(test.training.data.graded_queries), len(test.split.development)
    if not test.split.folds:
        return (
            f"{counted(n, 'expert-graded query')} {'is' if n == 1 else 'are'} too few to select a ranker (at least "
            f"{MIN_SELECTION_QUERIES} besides the test queries are needed), so the ranker is {name} "
            f"({describe_candidate(name)})."
        )
    queries = f"{n_selection} other expert-graded queries" if n_selection < n else f"all {n} expert-graded queries"
    return f"The ranker {name} ({describe_candidate(name)}) was selected on {queries}: {test.outcome.reason}."


def _describe_verdict_paragraph(test: RankerTest) -> str:
    """Return the verdict: the comparison of the selected candidate with all alternatives."""
    verdict = test.verdict
    assert verdict is not None
    n = counted(len(test.split.test), "test query")
    text = f"On {n}, {test.settings.measure} of the selected ranker, {test.chosen}, is {test.mean(test.chosen):.4f}"
    if not verdict.alternatives:
        return f"{text}."
    names = list(dict.fromkeys([verdict.decisive, *([test.baseline] if test.baseline != test.chosen else [])]))
    differences = ", and ".join(difference_text(test.contrast(test.chosen, name)) for name in names)
    return f"{text}, {describe_verdict(verdict)}: {differences}."


def describe_verdict(verdict: Verdict) -> str:
    """Return a verdict as a phrase.

    >>> describe_verdict(Verdict("better", ("majority", "average"), "average", 0.03, ("majority", "average")))
    'better than majority and average'
    >>> describe_verdict(Verdict("open", ("majority", "average"), "average", 0.3, ("majority",)))
    'better than majority, but not shown to be better than average'
    """
    open_ones = [name for name in verdict.alternatives if name not in verdict.beaten]
    beaten = f"better than {enumerate_names(verdict.beaten)}" if verdict.beaten else ""
    match verdict.answer:
        case "better":
            return beaten
        case "worse":
            return f"worse than {verdict.decisive}"
        case "baseline":
            return "the baseline itself"
        case "open":
            return f"{beaten}{', but ' * bool(beaten)}not shown to be better than {enumerate_names(open_ones)}"


def _describe_best_candidate(test: RankerTest) -> str:
    """Return which candidate has the highest mean on the test queries; they chose it, so that it is not tested."""
    best = max(test.outcome.scores, key=test.mean)
    lead = test.mean(best) - test.mean(test.chosen)
    if np.isclose(lead, 0):
        return "No other candidate has a higher mean on the test queries."
    return (
        f"The highest mean on the test queries is that of {best} ({test.mean(best):.4f}, {lead:+.4f} over the selected "
        f"ranker); the highest of {len(test.outcome.scores)} means is partly luck, so it is not tested."
    )


def _learned_labels(test: RankerTest) -> str:
    """Return whether labels learned from expert grades helped, by the best candidates on the selection queries."""
    learned = test.best_with_learned_labels()
    if learned is None:
        return ""
    contrast = test.contrast(*learned)
    if contrast.difference > 0:
        effect = "helped" if contrast.adjusted_p <= ALPHA else "did not help significantly"
    else:
        effect = "did not help"
    return f"Learning labels from expert grades {effect}: {learned[0]} has {difference_text(contrast)}."


def _detectable_difference(test: RankerTest) -> str:
    """Return the smallest difference that few test queries can show."""
    n = len(test.split.test)
    if n >= FEW_TEST_QUERIES or test.chosen == test.baseline:
        return ""
    n_tests = len(test.headline)
    if n < min_test_queries(n_tests):
        return f"With {counted(n, 'test query')} no difference can be significant."
    off = test.values(test.chosen) - test.values(test.baseline)
    smallest = detectable_standard_errors(n_tests) * float(off.std(ddof=1)) / np.sqrt(n)
    return f"With {n} test queries, a difference is significant with a probability of 80% from about {smallest:.3f} on."


def _without_experts(test: RankerTest) -> list[str]:
    name = test.chosen
    text = (
        f"Without expert grades no ranker can be selected or tested; the ranker is {name} ({describe_candidate(name)})."
    )
    if not len(test.split.test):
        return [text, "There are too few judged queries to estimate what expert grades would show."]
    return [text, benefit_of_experts(test.values(name), test.values(test.baseline), test.settings.measure)]


def benefit_of_experts(ours: Floats, theirs: Floats, measure: str, n: int = EXPERT_QUERIES) -> str:
    """Return what `n` expert-graded queries would show, from the values of two rankers on some queries.

    >>> benefit_of_experts(np.array([0.5, 0.7, 0.4]), np.array([0.5, 0.5, 0.5]), "nDCG@10", 50)
    '50 expert-graded queries would show differences in nDCG@10 from about 0.061 on (with a probability of 80%), and
    would allow to select a ranker and to learn labels.'
    """
    sd = float(np.std(ours - theirs, ddof=1)) if len(ours) > 1 else float("nan")
    return (
        f"{n} expert-graded queries would show differences in {measure} "
        f"from about {detectable_standard_errors() * sd / np.sqrt(n):.3f} "
        "on (with a probability of 80%), and would allow to select a ranker and to learn labels."
    )


def describe_protocol(test: RankerTest) -> tuple[str, ...]:
    """Return how candidates were trained, selected and tested, in sentences."""
    data, split, settings = test.training.data, test.split, test.settings
    lines = [
        "Consensus models use all crowd labels, but no expert grades and no honeypots. Rankers are never evaluated on "
        "queries whose crowd labels they were trained on."
    ]
    if not test.has_experts:
        lines.append(
            f"Without expert grades, {counted(len(split.test), 'judged query')} were held out, and the consensus by "
            f"{settings.method} took the place of expert grades, only to see how much the rankers differ."
        )
        return tuple(lines)
    lines.append(
        f"Of {counted(len(data.graded_queries), 'expert-graded query')} with at least two different grades, "
        f"{len(split.test)} were held out for the test (seed {settings.random_state}) and {len(split.development)} "
        f"select the ranker by cross-validation with {counted(len(split.folds), 'fold')}: the candidates that rank a "
        "fold were trained without its crowd labels and expert grades."
    )
    labeled = data.query[data.item >= 0]
    n_both = len(np.unique(labeled[np.isin(labeled, data.graded_queries)]))
    if n_both:
        lines.append(
            f"{counted(n_both, 'expert-graded query')} also {'has' if n_both == 1 else 'have'} crowd labels; they "
            "train only candidates that do not rank the query."
        )
    if split.folds:
        leads = (
            f" if it leads {WEIGHTED} by more than {MIN_LEAD_STANDARD_ERRORS:g} standard errors of the difference, "
            f"otherwise {WEIGHTED}"
        )
        rule = "" if settings.deployable else leads
        lines.append(
            f"The candidate with the highest mean {settings.measure} is selected{rule}. The weights of ensembles are "
            f"averages over {N_RANDOM_HALVES} halves of the selection queries, shrunk towards equal weights with the "
            f"weight of {EQUAL_WEIGHT_PRIOR_QUERIES} queries; those for a fold are chosen on other folds, which are "
            "ranked by models that have not seen the expert grades of the fold either."
        )
    if settings.deployable:
        lines.append("Only single forests could be selected, so that search engines can evaluate the ranker.")
    else:
        lines.append(
            "If the selected ranker is no single forest, one is fitted to its scores, standardized within each query. "
            "The forest that is tested has not seen the features of the test queries."
        )
    if settings.refit and len(split.test):
        lines.append(
            "The ranker that is written was trained again on all data including the test queries; the figures are "
            "those of the same candidate without them."
        )
    if test.comparison is not None:
        lines.append(
            "The comparisons of the selected ranker with the baseline and the simple candidates, and that of learned "
            "with other labels, were fixed without the test queries. Their p-values in the summary are adjusted by "
            f"Holm's method over these {len(test.headline)}. The ranker counts as better only if it is significantly "
            "better than each alternative. The column p (Holm) of the table is adjusted for all candidates."
        )
        lines += test.comparison.protocol()
    return tuple(lines)
