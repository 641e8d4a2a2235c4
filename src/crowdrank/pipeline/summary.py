"""What a trial means: the figures of the test, and one honest paragraph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.evaluation.comparison import Comparison, compare
from crowdrank.evaluation.measures import parse_measure
from crowdrank.evaluation.significance import bootstrap_intervals, fisher_randomization, format_p
from crowdrank.pipeline.candidates import BY_NAME
from crowdrank.pipeline.selection import (
    ENSEMBLES,
    LEAD,
    LEAST_CHOICE,
    SAFE,
    CandidateSelection,
    ExpertScorer,
    ExpertSplit,
    Outcome,
)
from crowdrank.pipeline.settings import Settings
from crowdrank.rankers.ensemble import N_HALVES, PRIOR_QUERIES

REMAPPED = ("linear-gls", "linear-remap", "boosted-gls", "boosted-remap")
PLAIN = ("majority", "average", "dawid-skene", "gda", "family-mean", "gls")
ALPHA = 0.05
FEW = 20
"""With fewer test queries than this, how wide the interval is must be said."""
LEAST_TEST = 6
"""With fewer test queries random signs give every difference a p above 0.05."""
BOUGHT = 50
POWER = 2.8
"""So many standard errors apart, a difference is found significant four times in five."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """The test in figures and words.

    Attributes:
        comparison: every candidate on the test queries against the baseline; None where nothing was tested.
        development: the mean of every candidate on the queries for the choice.
        paragraph: what was found.
        protocol: how, in sentences.

    """

    comparison: Comparison | None
    development: dict[str, float]
    paragraph: str
    protocol: list[str]
    baseline: str

    @classmethod
    def of(cls, trial: CandidateSelection, settings: Settings, *, stand_in: bool) -> Verdict:
        """Test the candidates once, and say what came of it."""
        outcome = trial.outcome
        development = {name: float(values.mean()) for name, values in outcome.values.items()}
        baseline = settings.baseline if settings.baseline in outcome.scores else next(iter(outcome.scores))
        comparison = None if stand_in else _tested(trial, settings, baseline)
        teller = SummaryWriter(trial, settings, comparison, baseline)
        paragraph = teller.without_experts() if stand_in else teller.with_experts()
        return cls(comparison, development, paragraph, protocol(trial, settings, comparison, stand_in), baseline)


def _tested(trial: CandidateSelection, settings: Settings, baseline: str) -> Comparison | None:
    """Every candidate on the test queries."""
    material, queries = trial.material, trial.outcome.parts.test
    if not len(queries):
        return None
    rows = np.flatnonzero(np.isin(material.query, queries) & ~np.isnan(material.expert))
    pairs = pd.DataFrame({"query": material.query[rows], "document": rows, "grade": material.expert[rows].astype(int)})
    runs = {name: pairs.assign(score=score[rows]) for name, score in trial.outcome.scores.items()}
    measures = [parse_measure(f"nDCG@{cutoff}").with_gains(settings.gains) for cutoff in (1, 5, 10)]
    return compare(
        runs,
        pairs,
        [settings.measure, *measures],
        baseline=baseline,
        alpha=ALPHA,
        random_state=settings.random_state,
    )


@dataclass(frozen=True, eq=False)
class SummaryWriter:
    """Write the summary paragraphs of a run."""

    trial: CandidateSelection
    settings: Settings
    comparison: Comparison | None
    baseline: str

    @property
    def outcome(self) -> Outcome:
        """What the trial found."""
        return self.trial.outcome

    @property
    def parts(self) -> ExpertSplit:
        """Which queries were for what."""
        return self.outcome.parts

    def with_experts(self) -> str:
        """The paragraph where experts graded something."""
        sentences = [self._chosen()]
        if self.comparison is not None:
            sentences += [self._gain(), self._best(), self._remapping(), self._few()]
        else:
            sentences.append("Nothing was tested: no expert-graded query was set aside for it.")
        return " ".join(sentence for sentence in sentences if sentence)

    def _chosen(self) -> str:
        name, n = self.outcome.chosen, len(self.trial.material.graded_queries)
        test, chosen_by = len(self.parts.test), len(self.parts.development)
        if not self.parts.folds:
            return (
                f"With {counted(n, 'expert-graded query')} none can be spared to choose by (at least {LEAST_CHOICE} "
                f"besides those for the test), so {name} ({about(name)}) is taken without a choice."
            )
        shares = f"{chosen_by} to choose by, {test} to test on" if test else "all to choose by"
        return f"With your {n} expert queries ({shares}), {name} ({about(name)}) is chosen: {self.outcome.why}."

    def _gain(self) -> str:
        """The choice against the baseline, and against averages."""
        name, measure = self.outcome.chosen, self.settings.measure
        mean = self._mean(name)
        if name == self.baseline:
            return f"On the test queries its {measure} is {mean:.4f}."
        told = [f"On the test queries its {measure} is {mean:.4f}, {self._against(name, self.baseline)}"]
        if "average" in self.outcome.scores and name != "average" and self.baseline != "average":
            told.append(self._against(name, "average"))
        return " and ".join(told) + "."

    def _against(self, name: str, other: str) -> str:
        """How a candidate compares with another on the test queries: part, difference, interval, p."""
        off = self._values(name) - self._values(other)
        lower, upper = bootstrap_intervals(off[:, None], level=1 - ALPHA, random_state=self.settings.random_state)[0]
        p = fisher_randomization(self._values(name), self._values(other), random_state=self.settings.random_state)
        base = self._mean(other)
        part = f"{100 * off.mean() / base:+.1f}% " if base > 0 else ""
        chance = "" if p <= ALPHA else ", within chance"
        return f"{part}against {other} ({off.mean():+.4f} [{lower:+.4f}, {upper:+.4f}], p {format_p(p)}{chance})"

    def _best(self) -> str:
        """Whether something else would have been better."""
        means = {name: self._mean(name) for name in self.outcome.scores}
        best = max(means, key=lambda name: means[name])
        if best == self.outcome.chosen:
            return "No other candidate did better there."
        return (
            f"In hindsight {best} was best there ({means[best]:.4f}); the choice is "
            f"{self._against(self.outcome.chosen, best)}."
        )

    def _remapping(self) -> str:
        """Whether learning labels from experts helped, by those that the choice queries liked best."""
        tried = [name for name in REMAPPED if name in self.outcome.values]
        plain = [name for name in PLAIN if name in self.outcome.values]
        if not tried or not plain:
            return ""
        liked, rival = (
            max(names, key=lambda name: float(self.outcome.values[name].mean())) for names in (tried, plain)
        )
        off = self._values(liked) - self._values(rival)
        p = fisher_randomization(self._values(liked), self._values(rival), random_state=self.settings.random_state)
        said = "helped here" if off.mean() > 0 and p <= ALPHA else "did not help here"
        if off.mean() > 0 and p > ALPHA:
            said = "did not help beyond chance here"
        return f"Remapping {said}: {liked} is {self._against(liked, rival)}."

    def _few(self) -> str:
        n = len(self.parts.test)
        if n >= FEW or self.outcome.chosen == self.baseline:
            return ""
        off = self._values(self.outcome.chosen) - self._values(self.baseline)
        if n < LEAST_TEST:
            return f"With {counted(n, 'test query')} no difference, however large, can be told from chance."
        told = POWER * float(off.std(ddof=1)) / np.sqrt(n)
        return (
            f"So few test queries ({n}) show a difference reliably (four times in five) only from about {told:.3f} on."
        )

    def without_experts(self) -> str:
        """The paragraph where experts graded nothing: what was made, and what experts would buy."""
        name = self.outcome.chosen
        told = f"Without expert grades nothing was chosen or tested by them: the ranker is {name} ({about(name)})."
        if not len(self.parts.test):
            return f"{told} There are too few judged queries to say what expert grades would buy."
        return (
            f"{told} {what_experts_would_buy(self._values(name), self._values(self.baseline), self.settings.measure)}"
        )

    @cached_property
    def _judge(self) -> ExpertScorer:
        return ExpertScorer(self.trial.material, self.parts.test, self.settings)

    def _values(self, name: str) -> Floats:
        return self._judge.values(self.outcome.scores[name])

    def _mean(self, name: str) -> float:
        return float(self._values(name).mean())


def what_experts_would_buy(ours: Floats, theirs: Floats, measure: str, n: int = BOUGHT) -> str:
    """What so many expert-graded queries would tell, by how much two rankers differ from query to query.

    >>> what_experts_would_buy(np.array([0.5, 0.7, 0.4]), np.array([0.5, 0.5, 0.5]), "nDCG@10", 50)
    '50 expert-graded queries would show differences in nDCG@10 of 0.060 and more (four times in five, judging by how
    much two of these rankers differ from query to query), let a ranker be chosen by them, and labels be remapped.'
    """
    sd = float(np.std(ours - theirs, ddof=1)) if len(ours) > 1 else float("nan")
    return (
        f"{n} expert-graded queries would show differences in {measure} of {POWER * sd / np.sqrt(n):.3f} and more "
        "(four times in five, judging by how much two of these rankers differ from query to query), let a ranker be "
        "chosen by them, and labels be remapped."
    )


def about(name: str) -> str:
    """What a candidate is."""
    return ENSEMBLES.get(name) or BY_NAME[name].about


def protocol(trial: CandidateSelection, settings: Settings, comparison: Comparison | None, stand_in: bool) -> list[str]:
    """How the trial was made."""
    parts, material = trial.outcome.parts, trial.material
    told = [
        "Consensus methods see every crowd label but no expert grade and no honeypot; rankers learn from crowd labels "
        "of queries that they are not judged on.",
    ]
    if stand_in:
        told.append(
            f"Without experts, {counted(len(parts.test), 'judged query')} were ranked by rankers that did not learn "
            f"from them, and the consensus by {settings.method} stood in for experts, only to see how much rankers "
            "differ."
        )
        return told
    graded = len(material.graded_queries)
    told.append(
        f"Of {counted(graded, 'expert-graded query')} with two different grades, {len(parts.test)} were drawn for the "
        f"test (seed {settings.random_state}) and {len(parts.development)} serve the choice, dealt into "
        f"{counted(len(parts.folds), 'fold')}: a fold is ranked by what learned from the others, and neither its crowd "
        "labels nor its expert grades were seen."
    )
    both = np.isin(material.query[material.judged > 0], material.graded_queries)
    if both.any():
        n = len(np.unique(material.query[material.judged > 0][both]))
        told.append(
            f"{counted(n, 'expert-graded query')} also {'has' if n == 1 else 'have'} crowd labels: they are learned "
            "from only where the query is not ranked."
        )
    if parts.folds:
        told.append(
            f"The choice is by the mean {settings.measure} over those queries; {SAFE} is taken unless another leads it "
            f"by more than {LEAD:g} standard errors of the difference. Parts of ensembles are found likewise, a fold's "
            f"by the other folds: on {N_HALVES} halves of their queries, averaged, and drawn towards equal parts as if "
            f"{PRIOR_QUERIES} more queries spoke for these."
        )
    if settings.refit and len(parts.test):
        told.append(
            "The ranker that is written was fitted once more on everything, test queries included; the figures are "
            "those of the same recipe without them."
        )
    if comparison is not None:
        told.append(
            "What is said of the choice against the baseline and against averages are tests settled beforehand, each "
            "by itself; p by Holm in the table is adjusted over all candidates."
        )
        told += comparison.protocol()
    return told
