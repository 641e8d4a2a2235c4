"""What the experiment of experts makes of the papers' headline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crowdrank.evaluation.comparison import Comparison, compare_evaluations
from experiments.base import Row, Table
from experiments.expert_lessons import CONTROLS, MAIN, MARTS
from experiments.rankers import against

BASELINE = "majority"
CLAIMS: Mapping[str, tuple[str, ...]] = {"MGBDT": ("boosted-t", "boosted-w+t"), "REMAP": ("linear-w+t",)}
"""Who beats them, by which paper."""
BACKGROUND = "gls-average"
"""The ranker that remappers learn through, on labels that nobody learned."""
ROOM = 0.01
"""The papers' gains are of several percent: one below this part of the baseline is none."""


def judged(comparison: Comparison, run: str) -> str | None:
    """What a comparison makes of the claim that a run beats all LambdaMART baselines; None where it lacks some."""
    evaluations = comparison.evaluations
    if not {run, *MARTS} <= set(evaluations):
        return None
    part = compare_evaluations({name: evaluations[name] for name in (run, *MARTS)}, baseline=run)
    rows = [row for row in part.rows.to_pylist() if row["measure"] == MAIN and row["run"] != run]
    if all(row["significant"] and row["difference"] < 0 for row in rows):
        return "confirmed"
    if any(row["significant"] and row["difference"] > 0 for row in rows):
        return "refuted"
    best = max(rows, key=lambda row: row["mean"])
    room = ROOM * evaluations[BASELINE].means[MAIN]
    # The differences are the baselines' to the run: the run's gain is at most minus the lower end.
    return "refuted" if -best["lower"] < room else "undecided"


def headline(comparison: Comparison, paper: str) -> str | None:
    """The word on all runs that a paper's headline names."""
    words = [judged(comparison, run) for run in CLAIMS[paper]]
    if None in words:
        return None
    if "refuted" in words:
        return "refuted"
    return "confirmed" if set(words) == {"confirmed"} else "undecided"


def verdict(comparison: Comparison, paper: str) -> list[str]:
    """What a comparison makes of a paper's headline, in sentences, and of its runs next to the best control."""
    word = headline(comparison, paper)
    if word is None:
        return []
    best = best_of(comparison, MARTS)
    table = Table("", "", (), comparison=comparison)
    said = [f"{paper}'s headline ({' and '.join(CLAIMS[paper])} beat every LambdaMART baseline) is {word} here."]
    for run in CLAIMS[paper]:
        said += against(table, run, best, MAIN)
    ours, control = best_of(comparison, CLAIMS[paper]), best_of(comparison, CONTROLS)
    # What least squares gains over LambdaMART by itself is no merit of what was learned.
    for other in dict.fromkeys(name for name in (BACKGROUND, control) if name in comparison.evaluations):
        said += against(table, ours, other, MAIN)
    return said


def best_of(comparison: Comparison, runs: Sequence[str]) -> Any:
    """The run of the highest mean; None where none of them ran."""
    there = [run for run in runs if run in comparison.evaluations]
    return max(there, key=lambda run: comparison.evaluations[run].means[MAIN]) if there else None


def claim_table(tables: Sequence[Table]) -> list[Table]:
    """The papers' headlines in all settings at a glance; nothing where they were not put to the test."""
    rows: list[Row] = []
    for table in tables:
        assert table.comparison is not None
        for paper, claimed in CLAIMS.items():
            word = headline(table.comparison, paper)
            if word is None:
                continue
            row: Row = {"run": f"{table.name}, {paper}"}
            for what, runs in (("claimed", claimed), ("baseline", MARTS), ("control", CONTROLS)):
                best = best_of(table.comparison, runs)
                row[what] = best or ""
                row[f"{what} %"] = float("nan") if best is None else table.row(best)[f"{MAIN} %"]
            rows.append({**row, "headline": word})
    if not rows:
        return []
    counts = [(word, sum(row["headline"] == word for row in rows)) for word in ("confirmed", "refuted", "undecided")]
    told = ", ".join(f"{word} in {n} of {len(rows)}" for word, n in counts if n)
    note = (
        f"That learned targets (and weights) beat every LambdaMART baseline is {told}. The best run of a kind is shown."
    )
    return [Table("claim", f"The papers' headline, gains in {MAIN} over {BASELINE}", tuple(rows), (note,))]
