"""Test of the papers' claims in the experiment `experts`."""

from __future__ import annotations

from collections.abc import Sequence

from crowdrank.evaluation.comparison import Comparison
from experiments.base import Row, Table, count_words, describe_difference
from experiments.claims import Claim, best_run, tests_table
from experiments.expert_candidates import CONTROLS, GBDTS, LINEAR, MARTS, TREE_RD

MAIN = "DCG@10"
BASELINE = "majority"
MIN_GAIN = 0.01
"""Smallest gain that supports a claim, as a share of the baseline; the papers report several percent."""
CLAIMS = (
    Claim("MGBDT", ("boosted-t", "boosted-w+t"), (*MARTS, TREE_RD, *LINEAR), MAIN, MIN_GAIN, BASELINE),
    Claim("REMAP", ("linear-w+t",), (*MARTS, *GBDTS, TREE_RD), MAIN, MIN_GAIN, BASELINE),
)
"""Runs of each paper that beat all baselines of its Table 4."""
MODE_CLAIMS = tuple(
    Claim(paper, (run,), (other,), MAIN, MIN_GAIN, BASELINE)
    for paper, run, other in (
        ("REMAP", "linear-t", "linear-w"),
        ("REMAP", "linear-w+t", "linear-w"),
        ("REMAP", "linear-w+t", "linear-t"),
        ("MGBDT", "boosted-t", "boosted-w"),
    )
)
"""What the papers say of targets, weights and both: the first run is better than the second."""
BACKGROUND = "gls-average"
"""Ranker that remappers are learned through, with the same features and ridges, on labels that are not learned."""


def describe_headline(comparison: Comparison, claim: Claim) -> list[str]:
    """Return sentences about a paper's claim, and about its runs compared with the controls."""
    word, best = claim.verdict(comparison), best_run(comparison, claim.baselines, MAIN)
    if word is None or best is None:
        return []
    sentences = [f"{claim.paper}'s claim ({' and '.join(claim.runs)} beat every baseline of the paper) is {word} here."]
    for run in claim.runs:
        sentences += describe_difference(comparison, run, best, MAIN)
    ours, control = best_run(comparison, claim.runs, MAIN), best_run(comparison, CONTROLS, MAIN)
    # What least squares gains over LambdaMART by itself is no merit of the learned labels.
    for other in dict.fromkeys(name for name in (BACKGROUND, control) if name is not None):
        sentences += describe_difference(comparison, str(ours), other, MAIN)
    return sentences


def mode_tables(tables: Sequence[Table]) -> list[Table]:
    """Return a table of what the papers say of learning targets, weights or both; [] if it was not tested."""
    rows: list[Row] = []
    for table in tables:
        for claim in MODE_CLAIMS:
            for test in claim.tests(table.comparison, *claim.runs):
                row: Row = {"run": f"{table.name}, {claim.paper}: {claim.runs[0]} over {test['other']}"}
                row |= {name: test[name] for name in ("difference", "lower", "upper", "p")}
                rows.append({**row, "verdict": claim.verdict(table.comparison)})
    if not rows:
        return []
    note = f"Each row is a test by itself; refuted means significantly worse, or an interval below {MIN_GAIN:.0%}."
    return [Table("modes", f"Targets, weights or both, {MAIN}", tuple(rows), (note,))]


def claim_tables(tables: Sequence[Table]) -> list[Table]:
    """Return the verdicts on the papers' claims on all data sets, and the tests; [] if they were not tested."""
    rows: list[Row] = []
    for table in tables:
        assert table.comparison is not None
        for claim in CLAIMS:
            decision = claim.decision(table.comparison)
            if decision is None:
                continue
            row: Row = {"run": f"{table.name}, {claim.paper}"}
            for role, runs in (("claimed", claim.runs), ("baseline", claim.baselines), ("control", CONTROLS)):
                best = best_run(table.comparison, runs, MAIN)
                row[role] = best or ""
                row[f"{role} %"] = float("nan") if best is None else table.row(best)[f"{MAIN} %"]
            rows.append({**row, "headline": decision[1], "decided by": decision[0]})
    if not rows:
        return []
    words = count_words([str(row["headline"]) for row in rows])
    note = f"That learned labels beat every baseline of their paper is {words}. The best run of each kind is shown."
    verdicts = Table("claim", f"The papers' claims, gains in {MAIN} over {BASELINE}", tuple(rows), (note,))
    tested = {claim.paper: {table.name: (claim, table.comparison) for table in tables} for claim in CLAIMS}
    return [verdicts, *(test for paper, one in tested.items() for test in tests_table(f"claim-{paper}", one))]
