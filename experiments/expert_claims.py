"""Test of the papers' claims in the experiment `experts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crowdrank.evaluation.comparison import Comparison
from experiments.base import Row, Table, claim_word, count_words, describe_difference, pair_rows
from experiments.expert_candidates import CONTROLS, MARTS

MAIN = "DCG@10"
BASELINE = "majority"
CLAIMS: Mapping[str, tuple[str, ...]] = {"MGBDT": ("boosted-t", "boosted-w+t"), "REMAP": ("linear-w+t",)}
"""Runs that beat all LambdaMART baselines, as claimed by each paper."""
BACKGROUND = "gls-average"
"""Ranker that remappers are learned through, with the same features and ridges, on labels that are not learned."""
MIN_GAIN = 0.01
"""Smallest gain that supports a claim, as a share of the baseline; the papers report several percent."""


def headline(comparison: Comparison, paper: str) -> str | None:
    """Return whether a paper's claim is confirmed, refuted or undecided; None if a run is missing."""
    words = []
    for run in CLAIMS[paper]:
        rows = pair_rows(comparison, run, MARTS, MAIN)
        if not rows:
            return None
        words.append(claim_word(rows, MIN_GAIN * comparison.evaluations[BASELINE].means[MAIN]))
    if "refuted" in words:
        return "refuted"
    return "confirmed" if set(words) == {"confirmed"} else "undecided"


def describe_headline(comparison: Comparison, paper: str) -> list[str]:
    """Return sentences about a paper's claim, and about its runs compared with the controls."""
    word, best = headline(comparison, paper), best_of(comparison, MARTS)
    if word is None or best is None:
        return []
    sentences = [f"{paper}'s claim ({' and '.join(CLAIMS[paper])} beat every LambdaMART baseline) is {word} here."]
    for run in CLAIMS[paper]:
        sentences += describe_difference(comparison, run, best, MAIN)
    ours, control = best_of(comparison, CLAIMS[paper]), best_of(comparison, CONTROLS)
    # What least squares gains over LambdaMART by itself is no merit of the learned labels.
    for other in dict.fromkeys(name for name in (BACKGROUND, control) if name is not None):
        sentences += describe_difference(comparison, str(ours), other, MAIN)
    return sentences


def best_of(comparison: Comparison, runs: Sequence[str]) -> str | None:
    """Return the run with the highest mean, or None if none of them was trained."""
    trained = [run for run in runs if run in comparison.evaluations]
    return max(trained, key=lambda run: comparison.evaluations[run].means[MAIN]) if trained else None


def claim_table(tables: Sequence[Table]) -> list[Table]:
    """Return a table of the papers' claims on all data sets, or nothing if they were not tested."""
    rows: list[Row] = []
    for table in tables:
        assert table.comparison is not None
        for paper, claimed in CLAIMS.items():
            word = headline(table.comparison, paper)
            if word is None:
                continue
            row: Row = {"run": f"{table.name}, {paper}"}
            for role, runs in (("claimed", claimed), ("baseline", MARTS), ("control", CONTROLS)):
                best = best_of(table.comparison, runs)
                row[role] = best or ""
                row[f"{role} %"] = float("nan") if best is None else table.row(best)[f"{MAIN} %"]
            rows.append({**row, "headline": word})
    if not rows:
        return []
    words = count_words([row["headline"] for row in rows])
    note = f"That learned labels beat every LambdaMART baseline is {words}. The best run of each kind is shown."
    return [Table("claim", f"The papers' claims, gains in {MAIN} over {BASELINE}", tuple(rows), (note,))]
