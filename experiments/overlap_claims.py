"""Verdicts on OVERLAP: the paper's claims at fixed queries, and our question about equal label budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crowdrank.evaluation.comparison import Comparison
from experiments.base import Row, Table, describe_difference
from experiments.claims import Claim, best_run, tests_table

MAIN = "nDCG@3"
"""Main measure of the paper."""
BASELINE, CLAIMED = "single", "if-good-3"
MIN_GAIN = 0.004
"""Smallest gain that supports a claim, about that of the paper on Clean+, its smallest."""
OTHERS = (
    "overlap-3",
    "overlap-11",
    "majority-3",
    "majority-11",
    "if-good-x3",
    "highest-3",
    "good-till-bad",
    BASELINE,
)
"""Settings of the paper other than the claimed one."""
CLAIMS = {False: Claim("OVERLAP", (CLAIMED,), OTHERS, MAIN, MIN_GAIN)}
CLAIMS[True] = Claim("OVERLAP", ("if-good-2",), ("if-good-3", "if-good-x3", BASELINE), MAIN, MIN_GAIN)
"""The claimed scheme and the other settings, by whether the set was labeled by if-good-3 (Clean+)."""


def claim_tables(tables: Mapping[str, Table], bought_by_scheme: Sequence[str]) -> list[Table]:
    """Return the verdicts on the paper's claims for every ranker and label set, and the tests that decide.

    Args:
        tables: table of each ranker and label set, by a title such as `LambdaMART A`.
        bought_by_scheme: titles of those whose set was labeled by if-good-3.

    """
    rows: list[Row] = []
    for title, table in tables.items():
        claim = CLAIMS[title in bought_by_scheme]
        word, comparison = claim.verdict(table.comparison), table.comparison
        if word is None or comparison is None:
            continue
        (run,), rest = claim.runs, [name for name in claim.baselines if name != BASELINE]
        (test,) = Claim(claim.paper, claim.runs, (BASELINE,), MAIN, MIN_GAIN).tests(comparison, run)
        best = str(best_run(comparison, rest, MAIN))
        means = {name: comparison.evaluations[name].means[MAIN] for name in (run, best)}
        rows.append(
            {
                "run": title,
                "claimed": run,
                "its mean": means[run],
                "over single": test["difference"],
                "lower": test["lower"],
                "upper": test["upper"],
                "p": test["p"],
                "better than single": Claim("", (run,), (BASELINE,), MAIN, MIN_GAIN).verdict(comparison),
                "best other": best,
                "mean of it": means[best],
                "best of all": word,
            }
        )
    if not rows:
        return []
    note = (
        "The paper claims that if-good-k is significantly better than one label per document (every table), and "
        f"better than the other settings. A claim is refuted if the interval of the gain lies below {MIN_GAIN:g}."
    )
    verdicts = Table("claim", f"The paper's claims for if-good-k at the same queries, {MAIN}", tuple(rows), (note,))
    tests: list[Table] = []
    for kind, name in ((False, "claim-tests"), (True, "claim-tests-plus")):
        some = {title: table for title, table in tables.items() if (title in bought_by_scheme) == kind}
        tests += tests_table(name, {title: (CLAIMS[kind], table.comparison) for title, table in some.items()})
    return [verdicts, *tests]


# Equal budgets.


def _tests_of_others(comparison: Comparison | None) -> list[dict[str, Any]]:
    """Return the tests of schemes other than the claimed one, whatever its lists."""
    rows = [] if comparison is None else comparison.rows.to_pylist()
    return [row for row in rows if row["measure"] == MAIN and not row["run"].startswith(CLAIMED)]


def equal_budget_verdict(table: Table) -> str | None:
    """Return whether if-good-3 is best in a table of equal budgets: yes, no or undecided; None if it was not tested."""
    if table.comparison is None or table.comparison.baseline != CLAIMED:
        return None
    rows = _tests_of_others(table.comparison)
    if any(row["significant"] and row["difference"] > 0 for row in rows):
        return "no"
    return "yes" if all(row["significant"] and row["difference"] < 0 for row in rows) else "undecided"


def equal_budget_notes(table: Table) -> list[str]:
    """Return sentences about the verdict of a table of equal budgets."""
    word = equal_budget_verdict(table)
    if word is None:
        return []
    rows = [row for row in _tests_of_others(table.comparison) if row["significant"]]
    better, worse = ([row["run"] for row in rows if row["difference"] * sign > 0] for sign in (1, -1))
    return [
        f"Is {CLAIMED} the best scheme for its cost here? {word}. Significantly better: "
        f"{', '.join(better) or 'none'}; significantly worse: {', '.join(worse) or 'none'}.",
        *describe_difference(table.comparison, f"{CLAIMED}, a list per judge", BASELINE, MAIN),
    ]


def equal_budget_summary(tables: Sequence[Table]) -> Table:
    """Return the answer to our question for every ranker and label set."""
    rows: list[Row] = []
    for table in tables:
        means = {row["run"]: row[MAIN] for row in table.rows}
        best = max(means, key=lambda run: means[run])
        row = {"run": table.name, CLAIMED: means.get(CLAIMED, float("nan")), "best": best, MAIN: means[best]}
        rows.append({**row, "if-good-3 is best": equal_budget_verdict(table) or ""})
    note = "The question is ours: the paper compares schemes on the same queries, whatever they cost."
    title = f"Our question: the best scheme at equal label budgets, {MAIN}"
    return Table("equal-budgets", title, tuple(rows), (note,))
