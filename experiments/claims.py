"""Verdicts on claims of papers: the claimed runs against every baseline that the paper names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crowdrank.evaluation.comparison import Comparison
from experiments.base import Row, Table, claim_word, count_words, pair_rows


@dataclass(frozen=True)
class Claim:
    """A paper's claim that each of some runs is better than all of some baselines.

    Attributes:
        paper: short name of the paper.
        runs: claimed runs.
        baselines: every baseline that the paper compares them with.
        measure: measure of the tests.
        min_gain: smallest gain that would support the claim.
        share_of: run of whose mean `min_gain` is a share; by default it is a difference.

    """

    paper: str
    runs: tuple[str, ...]
    baselines: tuple[str, ...]
    measure: str
    min_gain: float
    share_of: str = ""

    def tests(self, comparison: Comparison | None, run: str) -> list[Row]:
        """Return the tests of a claimed run against each baseline, p by Holm's method; [] if a run is missing."""
        return pair_rows(comparison, run, self.baselines, self.measure)

    def verdict(self, comparison: Comparison | None) -> str | None:
        """Return whether the claim is confirmed, refuted or undecided; None if a run is missing."""
        return None if (decision := self.decision(comparison)) is None else decision[1]

    def decision(self, comparison: Comparison | None) -> tuple[str, str] | None:
        """Return the run that decides the verdict, and the verdict: the worst one of all runs."""
        words: dict[str, str] = {}
        for run in self.runs:
            tests = self.tests(comparison, run)
            if comparison is None or not tests:
                return None
            unit = comparison.evaluations[self.share_of].means[self.measure] if self.share_of else 1.0
            words[run] = claim_word(tests, self.min_gain * unit)
        run = min(words, key=lambda name: ("refuted", "undecided", "confirmed").index(words[name]))
        return run, words[run]

    def sentence(self, verdicts: Sequence[str]) -> str:
        """Return a sentence with the verdicts on several data sets."""
        named = ", ".join(self.baselines)
        return (
            f"That {' and '.join(self.runs)} beat every baseline of {self.paper} ({named}) is {count_words(verdicts)}."
        )


def best_run(comparison: Comparison, runs: Sequence[str], measure: str) -> str | None:
    """Return the run with the highest mean, or None if none of them was trained."""
    trained = [run for run in runs if run in comparison.evaluations]
    return max(trained, key=lambda run: comparison.evaluations[run].means[measure]) if trained else None


def tests_table(name: str, tested: Mapping[str, tuple[Claim, Comparison | None]]) -> list[Table]:
    """Return the tests that decide a claim: a row per baseline, two columns per test; [] without tests.

    Args:
        name: name of the table.
        tested: claims about the same runs and baselines with their comparisons, by the name of a data set or measure.

    """
    tested = {key: (claim, one) for key, (claim, one) in tested.items() if claim.verdict(one) is not None}
    if not tested:
        return []
    first = next(iter(tested.values()))[0]
    rows: list[Row] = []
    for run in first.runs:
        tests = {key: {test["other"]: test for test in claim.tests(one, run)} for key, (claim, one) in tested.items()}
        for other in first.baselines:
            row: Row = {"run": other if len(first.runs) == 1 else f"{run} over {other}"}
            for key, by_other in tests.items():
                row |= {f"{key} difference": by_other[other]["difference"], f"{key} p": by_other[other]["p_holm"]}
            rows.append(row)
    measures = ", ".join(dict.fromkeys(claim.measure for claim, _ in tested.values()))
    note = (
        f"Difference of {' or '.join(first.runs)} to each baseline in {measures}, and p by Holm's method over the "
        f"{len(first.baselines)} baselines."
    )
    found = ", ".join(f"{key}: {claim.verdict(one)}" for key, (claim, one) in tested.items())
    return [Table(name, f"{first.paper}'s claim against its baselines, {measures}", tuple(rows), (note, f"{found}."))]
