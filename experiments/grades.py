"""Grades by median, mode and mean of P(grade): mean absolute error and accuracy by rule, method and data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from crowdrank.consensus import METHODS
from crowdrank.consensus.grade_rules import DEFAULT_RULE, GRADE_RULES, choose_grades
from crowdrank.consensus.model import Aggregator
from experiments.auto import SIMULATED, SLOW, Setting, public_sets, simulated
from experiments.base import (
    ONE_CONFIGURATION,
    SEEDS,
    Experiment,
    Row,
    Table,
    Tell,
    averaged,
    choose,
    fit_all,
    quiet,
    seeds_text,
)

OWN_RULE = ("majority", "highest")
"""Methods whose grade follows from their definition."""
NEAR = 0.01
"""A rule is near the best one if its mean absolute error is at most this much larger."""


WEB5_GOLD = (
    "The expert grades of web5 are the majority of nine of its own assessors, so its rows show how well a rule repeats "
    "these nine."
)


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """Compare the rules on the three public sets and on simulated crowds."""
    left_out = (*SLOW, *OWN_RULE)
    names = [method for method in METHODS if method not in left_out] if methods is None else list(methods)
    tables = [rules_table(one.name, [one], names, tell=tell) for one in public_sets()]
    for name in SIMULATED:
        tables.append(rules_table(name, [simulated(name, seed) for seed in seeds], names, tell=tell))
    protocol = (
        "Each method is fitted once; its P(grade) gives three grades for each document: the median (least expected "
        "absolute error), the mode (least probability of an error) and the grade nearest to the mean (least expected "
        "squared error). Measures are over all documents with an expert grade.",
        f"Data and expert grades are those of the experiments rf10, web5 and dl20; simulated crowds are drawn with "
        f"{seeds_text(seeds)}.",
        WEB5_GOLD,
        f"One rule is the default of all methods: {DEFAULT_RULE}.",
        ONE_CONFIGURATION,
    )
    return Experiment("grades", (summary_table(tables), *tables), protocol)


def summary_table(tables: Sequence[Table]) -> Table:
    """Return one row per data set: each rule's mean absolute error averaged over methods, and its excess."""
    rows: list[Row] = [{"run": table.name.removeprefix("rules-"), **_mean_errors(table)} for table in tables]
    excess = {rule: max(row[rule] - row["best"] for row in rows) for rule in GRADE_RULES}
    near = [rule for rule, largest in excess.items() if largest <= NEAR]
    last: Row = {"run": "largest excess over the best", **excess, "best": float("nan")}
    note = f"Within {NEAR} of the best rule on every set, averaged over methods: {', '.join(near) or 'no rule'}."
    return Table("summary", "Mean absolute error by rule, averaged over methods", (*rows, last), (note,))


def _mean_errors(table: Table) -> dict[str, float]:
    means = {rule: float(np.mean([row[f"MAE {rule}"] for row in table.rows])) for rule in GRADE_RULES}
    return {**means, "best": min(means.values())}


def rules_table(name: str, settings: Sequence[Setting], methods: Sequence[str], *, tell: Tell) -> Table:
    """Return one row per method with both measures of every rule, averaged over settings."""
    draws, notes = [], dict[str, None]()
    for one in settings:
        fits = fit_all(choose(methods), one.judgments, on=one.name, tell=tell)
        draws.append({run: dict(rule_measures(model, one)) for run, model in fits.models.items()})
        notes |= dict.fromkeys(fits.notes)
    rows = [{key: value for key, value in row.items() if not key.endswith(" sd")} for row in averaged(draws)]
    return Table(f"rules-{name}", f"Grade by rule: {name}", tuple(rows), tuple(notes))


def rule_measures(model: Aggregator, one: Setting) -> Iterator[tuple[str, float]]:
    """Yield the mean absolute error and the accuracy of the grades that each rule chooses."""
    table, values = model.consensus_.document_table, np.array(model.consensus_.scale.values)
    shares = np.column_stack([table[name] for name in model.consensus_.true_share_names])
    place = one.judgments.positions(pa.array(one.gold["query"]), pa.array(one.gold["document"]))
    expert = one.gold["grade"].to_numpy().astype(float)
    for rule in GRADE_RULES:
        error = np.abs(values[choose_grades(shares[place], rule)] - expert)
        yield f"MAE {rule}", float(error.mean())
    for rule in GRADE_RULES:
        yield f"accuracy {rule}", float((values[choose_grades(shares[place], rule)] == expert).mean())
