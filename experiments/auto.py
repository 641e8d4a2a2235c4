"""Auto: how much is lost by letting held-out judgments choose the method, against the best method in hindsight."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa

from crowdrank.consensus import METHODS
from crowdrank.consensus.auto import Auto
from crowdrank.judgments.datasets import dataset
from crowdrank.judgments.read import read_judgments
from crowdrank.judgments.table import Judgments
from crowdrank.simulation.world import simulate
from experiments import dl20, rf10, web5
from experiments.base import (
    SEEDS,
    Experiment,
    Fits,
    Row,
    Table,
    Tell,
    Variants,
    choose,
    figures,
    fit_all,
    gold_in,
    quiet,
    seeds_told,
)
from experiments.subsample import equal_count

LOWER_IS_BETTER = ("GradeMAE",)
GRADES = ("GradeAccuracy", "GradeMAE")
LABELS = 3
SLOW = ("auto", "gda-pairwise")
"""What the many fits of the last table do without."""
SIMULATED = {
    "simulated, 2 labels": {"queries": 100, "labels": 2},
    "simulated, 5 labels": {"queries": 100, "labels": 5},
    "simulated, 10 queries": {"queries": 10, "assessors": 20, "labels": 5},
    "simulated, families of copies": {"queries": 100, "labels": 8, "families": 4, "copies": 0.5},
}
SIMULATED_MEASURES = ("nDCG@10", "AP(rel=2)", "Tau", *GRADES)
TRIED = (
    "The rule of Auto was chosen with this data in view; 34 rules were tried. 28 ways of scoring: for ranking 12 "
    "that predict the answer from the rank and 4 that predict which of two documents is preferred, for grades 12 "
    "from P(grade) or the grade. Then 3 weights of pairs by the difference of their answers, which changed "
    "nothing; keeping the default unless another is better by 1 or by 2 standard errors over folds; and the "
    "grades alone for data with one query.",
    "Preferences and the two standard errors had the least regret on simulated worlds (drawn with other seeds "
    "than those of the last table). The rule for one query concerns web5 only. So the first table does not show "
    "the regret on unseen data.",
    "The candidates are the methods with their defaults, and gda with the unjudgeable class. gda with a width for "
    "each grade was tried as one more and left out: it predicts held-out grades best on web5, where gold prefers "
    "Dawid-Skene.",
)


@dataclass(frozen=True)
class Setting:
    """Judgments, their gold, and the columns that are scored."""

    name: str
    judgments: Judgments
    gold: pd.DataFrame
    measures: tuple[str, ...]
    variants: Variants


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """Regret on the three sets and their columns, what was chosen, and regret on parts of the sets and elsewhere."""
    named = None if methods is None else [method for method in methods if method != "auto"]
    sets = public_sets()
    outcomes = {one.name: outcome(one, named, tell=tell) for one in sets}
    tables = (
        regret_table(sets, outcomes),
        *(scores_table(one, outcomes[one.name]) for one in sets),
        elsewhere_table(sets, named, seeds=seeds, tell=tell),
    )
    return Experiment("auto", tables, tuple(_protocol(seeds)))


def _protocol(seeds: Sequence[int]) -> list[str]:
    return [
        "Data, gold and measures are those of the experiments rf10, web5 and dl20, with all their judgments (in dl20 "
        "of the thorough judges).",
        "Regret is how far auto's figure is from that of the method that is best in the column, with gold in view; "
        "every method of the package that can take the judgments counts, with the variants of the experiments. Auto "
        "may be better than all, having its ranking and its grades from different methods.",
        "Auto ran once with its defaults and saw no gold.",
        *TRIED,
        f"Subsamples and simulated worlds were drawn with {seeds_told(seeds)}; there are no tests.",
    ]


PUBLIC_SETS = {"rf10": ("trec-rf10", rf10), "web5": ("web-5grade", web5), "dl20": ("trec-dl20", dl20)}
"""Data sets and experiments whose measures and variants are used."""


def public_sets(names: Sequence[str] = tuple(PUBLIC_SETS)) -> list[Setting]:
    """Return public judgments and gold as their own experiments take them."""
    found = []
    for name in names:
        source, module = PUBLIC_SETS[name]
        data = dataset(source)
        judgments, gold = data.read_judgments(), data.read_gold()
        if name == "dl20":
            judgments = dl20.thorough(judgments, dl20.COVERED)
        found.append(Setting(name, judgments, gold_in(gold, judgments), module.MEASURES, module.VARIANTS))
    return found


@dataclass(frozen=True)
class Outcome:
    """What auto chose, and the figures of every run and of auto."""

    auto: Auto
    runs: dict[str, dict[str, float]]
    notes: tuple[str, ...]

    def of_auto(self, measure: str) -> float:
        """Auto's figure."""
        return self.runs["auto"][measure]

    def best(self, measure: str) -> tuple[str, float]:
        """The run with the best figure, auto apart, and that figure."""
        others = {run: row[measure] for run, row in self.runs.items() if run != "auto"}
        run = (min if measure in LOWER_IS_BETTER else max)(others, key=lambda run: others[run])
        return run, others[run]

    def regret(self, measure: str) -> float:
        """How much better the best is than auto.

        >>> Outcome(Auto(), {"a": {"AP": 0.5}, "b": {"AP": 0.7}, "auto": {"AP": 0.6}}, ()).regret("AP")
        0.1
        """
        gap = self.best(measure)[1] - self.of_auto(measure)
        return round(-gap if measure in LOWER_IS_BETTER else gap, 12) + 0.0  # no -0


def outcome(one: Setting, methods: Sequence[str] | None, *, tell: Tell) -> Outcome:
    """Auto and all others on one setting; grades are scored too, whatever the columns."""
    fits = fit_all(choose(methods, one.variants), one.judgments, on=one.name, tell=tell)
    tell(f"auto on {one.name}")
    auto = Auto().fit(one.judgments)
    both = Fits({**fits.models, "auto": auto}, ())
    return Outcome(auto, figures(both, one.gold, list(dict.fromkeys((*one.measures, *GRADES)))), fits.notes)


def regret_table(sets: Sequence[Setting], outcomes: Mapping[str, Outcome]) -> Table:
    """One row per set and column, and their mean; then the grades of sets whose experiment has no column for them."""
    columns = [(one.name, measure) for one in sets for measure in one.measures]
    beyond = [(one.name, measure) for one in sets for measure in GRADES if measure not in one.measures]
    rows = [_regret_row(name, measure, outcomes[name]) for name, measure in columns]
    also = [_regret_row(name, measure, outcomes[name]) for name, measure in beyond]
    mean, mean_of_all = (float(np.mean([row["regret"] for row in part])) for part in (rows, rows + also))
    notes = (
        f"Mean regret over the {len(rows)} columns of the three experiments: {mean:.4f}; with the {len(also)} rows of "
        f"grades beyond them: {mean_of_all:.4f}.",
        *(f"{name}: {note}" for name, found in outcomes.items() for note in found.notes),
    )
    blank: Row = {"chosen": "", "auto": float("nan"), "best": "", "figure": float("nan")}
    last: tuple[Row, ...] = ({"run": "mean", **blank, "regret": mean},)
    marked = [{**row, "run": f"{row['run']} (beyond)"} for row in also]
    return Table("regret", "Auto against the best method of each column", (*rows, *last, *marked), notes)


def _regret_row(name: str, measure: str, found: Outcome) -> Row:
    best, figure = found.best(measure)
    return {
        "run": f"{name} {measure}",
        "chosen": _chosen(found.auto, "grades" if measure in GRADES else "ranking"),
        "auto": found.of_auto(measure),
        "best": best,
        "figure": figure,
        "regret": found.regret(measure),
    }


def _chosen(auto: Auto, what: str) -> str:
    return next(str(row["method"]) for row in auto.choice_table_.to_pylist() if what in row["chosen_for"])


def scores_table(one: Setting, found: Outcome) -> Table:
    """The candidates with auto's scores beside their figures."""
    rows = []
    for row in found.auto.choice_table_.to_pylist():
        if row["ranking"] is None or row["method"] not in found.runs:
            continue
        run: Row = {"run": row["method"], "score by rank": row["ranking"], "score by grade": row["grades"]}
        rows.append({**run, **found.runs[row["method"]]})
    notes = (str(found.auto.reason_), "Scores are mean log probabilities of held-out judgments and know no gold.")
    return Table(
        f"scores-{one.name}", f"Candidates on {one.name}: scores without gold, figures with", tuple(rows), notes
    )


def elsewhere_table(
    sets: Sequence[Setting], methods: Sequence[str] | None, *, seeds: Sequence[int], tell: Tell
) -> Table:
    """Mean regret where the judgments are fewer, and on simulated worlds."""
    rows, quick = [], methods or [method for method in METHODS if method not in SLOW]
    for name, make in elsewhere(sets).items():
        found = []
        for seed in seeds:
            one = make(seed)
            found.append((one, outcome(one, quick, tell=tell)))
        ranking = [np.mean([out.regret(m) for m in one.measures if m not in GRADES]) for one, out in found]
        grades = [np.mean([out.regret(m) for m in GRADES]) for _, out in found]
        chosen = [dict.fromkeys(_chosen(out.auto, what) for _, out in found) for what in ("ranking", "grades")]
        rows.append(
            {
                "run": name,
                "ranking": float(np.mean(ranking)),
                "chosen for ranking": ", ".join(chosen[0]),
                "grades": float(np.mean(grades)),
                "chosen for grades": ", ".join(chosen[1]),
            }
        )
    notes = (
        f"Mean regret over the columns and {seeds_told(seeds)}: for ranking over the measures of the set's experiment, "
        "for grades over GradeAccuracy and GradeMAE (simulated: nDCG@10, AP(rel=2) and Tau for ranking). Unless named, "
        "gda-pairwise does not take part here, being slow.",
    )
    return Table("elsewhere", "Regret with fewer judgments, and on simulated worlds", tuple(rows), notes)


def elsewhere(sets: Sequence[Setting]) -> dict[str, Callable[[int], Setting]]:
    """How to draw each further setting from a seed."""
    crowd, web, judges = sets
    found: dict[str, Callable[[int], Setting]] = {
        f"{one.name}, {LABELS} labels": partial(_with_few_labels, one) for one in (crowd, web)
    }
    found |= {f"dl20, {n} of each family": partial(_with_few_judges, judges, n) for n in dl20.PER_FAMILY}
    return found | {name: partial(simulated, name) for name in SIMULATED}


def _with_few_labels(one: Setting, seed: int) -> Setting:
    return _part(one, equal_count(one.judgments, LABELS, seed))


def _with_few_judges(one: Setting, per_family: int, seed: int) -> Setting:
    drawn = dl20.drawn_judges(one.judgments, per_family, seed)
    return _part(one, one.judgments.where(drawn[one.judgments.assessor]))


def _part(one: Setting, part: Judgments) -> Setting:
    there = part.positions(pa.array(one.gold["query"]), pa.array(one.gold["document"])) >= 0
    return Setting(f"part of {one.name}", part, one.gold[there], one.measures, one.variants)


def simulated(name: str, seed: int) -> Setting:
    """Return a simulated crowd and its true grades."""
    world = simulate(**SIMULATED[name], random_state=100 + seed)  # type: ignore[arg-type]
    return Setting(name, read_judgments(world.judgments), world.gold, SIMULATED_MEASURES, {})
