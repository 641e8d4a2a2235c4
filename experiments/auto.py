"""Auto: what is lost by letting held-out judgments choose the method, against the best method in hindsight."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa

from crowdrank.consensus import METHODS
from crowdrank.consensus.auto import CANDIDATES, Auto
from crowdrank.consensus.model import Aggregator
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import dataset
from crowdrank.readers.read import read_judgments
from crowdrank.simulation.world import simulate
from experiments import dl20, rf10, web5
from experiments.base import (
    SEEDS,
    UNJUDGED,
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
    ranking,
    seeds_text,
)
from experiments.expert_calibration import SETS
from experiments.robustness import Goal
from experiments.subsample import equal_count

LOWER_IS_BETTER = ("GradeMAE",)
GRADES = ("GradeAccuracy", "GradeMAE")
LABELS = 3
SLOW = ("auto", "gda-pairwise")
"""Methods that are left out where many fits are made."""
VARIANTS: Variants = {
    candidate.name: (candidate.method, candidate.parameters)
    for candidate in CANDIDATES.values()
    if candidate.parameters
}
"""Candidates of Auto that are not a method with its defaults."""
SIMULATED = {
    "simulated, 2 labels": {"queries": 100, "labels": 2},
    "simulated, 5 labels": {"queries": 100, "labels": 5},
    "simulated, 10 queries": {"queries": 10, "assessors": 20, "labels": 5},
    "simulated, families of copies": {"queries": 100, "labels": 8, "families": 4, "copies": 0.5},
}
SIMULATED_MEASURES = ("nDCG@10", "AP(rel=2)", "Tau", *GRADES)
TRIED = (
    "The rule of Auto was chosen with this data in view; 35 rules were tried. 28 ways of scoring: for ranking 12 "
    "that predict the answer from the rank and 4 that predict which of two documents is preferred, for grades 12 "
    "from P(grade) or the grade. Then 3 weights of pairs by the difference of their answers, which changed "
    "nothing; keeping the default unless another is better by 1 or by 2 standard errors over folds, or by the "
    "quantile of Student's t that stands for 1; and the grades alone for data with one query (no longer in use).",
    "Preferences had the least regret on simulated worlds (drawn with other seeds than those of the last table). "
    "Keeping the default within one standard error (the rule of Breiman et al.) had less regret there than no "
    "such rule, and two standard errors even less; but on web5 two keep gda, where gold prefers Dawid-Skene with "
    "thresholds. Student's t matters with few folds: dl20 has three families. So the first table does not show the "
    "regret on unseen data.",
    "Later, 4 ways of scoring grades (by the log probability of answers, with one error distribution for all rules or "
    "with that of the rule's loss, and by the loss itself, plain or weighted by how informed assessors are), 2 further "
    "weights of assessors, and 8 ways of deciding between candidates (gda, threshold-dawid-skene or the ranking's "
    "method as default, or the better ranking among candidates with about equally good grades, each within 1 and 2 "
    "standard errors), and the mean of several candidates were compared on 44 simulated crowds of 11 kinds, with one "
    "query or many. The rule in use has less regret there than the one before, in absolute error 0.0165 "
    "instead of 0.0203, and about the same in accuracy, 0.0278 instead of 0.0279. The regret on public sets was seen "
    "for all of these except the mean of several candidates.",
    "The candidates are the methods with their defaults, and gda with the unjudgeable class. gda with a width for "
    "each grade was tried as one more and left out: it predicts held-out grades best on web5, where gold prefers "
    "Dawid-Skene.",
)


ORDER = ("AP(rel=2)", "nDCG", "Tau")
"""Measures of order. Tau-b is left out, because it rewards the ties of votes."""
GRADE_RULES = {"GradeAccuracy": "mode", "GradeMAE": "median"}
"""Rule of grades whose loss each measure averages."""
ONLY_ORDER = ("dl19-people",)
"""Sets whose documents were chosen by their expert grades."""
MAX_MEAN_REGRET, MAX_REGRET = 0.005, 0.015


@dataclass(frozen=True)
class Setting:
    """Judgments, their gold, and the measures of their columns."""

    name: str
    judgments: Judgments
    gold: pd.DataFrame
    measures: tuple[str, ...]


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """Return the regret on three public sets, the scores of candidates, and the regret elsewhere."""
    named = None if methods is None else [method for method in methods if method != "auto"]
    sets = public_sets()
    further = [without_experts(sets[1])]
    outcomes = {one.name: outcome(one, named, tell=tell) for one in (*sets, *further)}
    tables = (
        regret_table(sets, outcomes, further),
        *(scores_table(one, outcomes[one.name]) for one in (*sets, *further)),
        elsewhere_table(sets, named, seeds=seeds, tell=tell),
    )
    return Experiment("auto", tables, tuple(_protocol(seeds)))


def _protocol(seeds: Sequence[int]) -> list[str]:
    return [
        "Data, gold and measures are those of the experiments rf10, web5 and dl20, with all their judgments (in dl20 "
        "of the thorough judges). The gold of web5 is the majority of some of its assessors; web5-crowd leaves these "
        "out.",
        "Regret is how far auto's figure is from that of the method that is best in the column, with gold in view; "
        "every method of the package with its defaults and every candidate of auto counts, if it can take the "
        "judgments. Auto may be better than all, having its ranking and its grades from different methods.",
        "Auto ran once with its defaults and saw no gold.",
        *TRIED,
        f"Subsamples and simulated worlds were drawn with {seeds_text(seeds)}; there are no tests.",
    ]


PUBLIC_SETS = {"rf10": ("trec-rf10", rf10), "web5": ("web-5grade", web5), "dl20": ("trec-dl20", dl20)}
"""Data sets and the experiments whose measures are used."""


def public_sets(names: Sequence[str] = tuple(PUBLIC_SETS)) -> list[Setting]:
    """Return public judgments and gold as their own experiments use them."""
    settings = []
    for name in names:
        source, module = PUBLIC_SETS[name]
        data = dataset(source)
        judgments, gold = data.read_judgments(), data.read_gold()
        if name == "dl20":
            judgments = dl20.thorough(judgments, dl20.COVERED)
        settings.append(Setting(name, judgments, gold_in(gold, judgments), module.MEASURES))
    return settings


def without_experts(one: Setting) -> Setting:
    """Return web5 without the assessors whose majority is its gold."""
    return _part(replace(one, name="web5-crowd"), web5.without_experts(one.judgments))


@dataclass(frozen=True)
class Outcome:
    """A fitted Auto, the figures of every run and of auto, and notes on the fits."""

    auto: Auto
    runs: dict[str, dict[str, float]]
    notes: tuple[str, ...]

    def best(self, measure: str) -> tuple[str, float]:
        """Return the run other than auto with the best figure, and that figure."""
        others = {run: row[measure] for run, row in self.runs.items() if run != "auto"}
        run = (min if measure in LOWER_IS_BETTER else max)(others, key=lambda run: others[run])
        return run, others[run]

    def regret(self, measure: str) -> float:
        """Return how much better the best run is than auto.

        >>> Outcome(Auto(), {"a": {"AP": 0.5}, "b": {"AP": 0.7}, "auto": {"AP": 0.6}}, ()).regret("AP")
        0.1
        """
        gap = self.best(measure)[1] - self.runs["auto"][measure]
        return round(-gap if measure in LOWER_IS_BETTER else gap, 12) + 0.0  # no -0

    def chosen(self, purpose: str) -> str:
        """Return the candidate that was chosen for the ranking or the grades."""
        return str(getattr(self.auto.reason_, purpose))

    def regret_row(self, name: str, measure: str) -> Row:
        """Return the regret of `auto` in one measure on a data set, as a row of the table."""
        best, figure = self.best(measure)
        return {
            "run": f"{name} {measure}",
            "chosen": self.chosen("grades" if measure in GRADES else "ranking"),
            "auto": self.runs["auto"][measure],
            "best": best,
            "figure": figure,
            "regret": self.regret(measure),
        }


def outcome(one: Setting, methods: Sequence[str] | None, *, tell: Tell) -> Outcome:
    """Fit auto, the methods and the candidates to one setting; grades are scored too, whatever the columns."""
    fits = fit_all(choose(methods, VARIANTS), one.judgments, on=one.name, tell=tell)
    tell(f"auto on {one.name}")
    auto = Auto().fit(one.judgments)
    measures = list(dict.fromkeys((*one.measures, *GRADES)))
    return Outcome(auto, figures(Fits({**fits.models, "auto": auto}, ()), one.gold, measures), fits.notes)


def regret_table(sets: Sequence[Setting], outcomes: Mapping[str, Outcome], further: Sequence[Setting] = ()) -> Table:
    """Return one row per column of the sets, their mean and the worst, then the rows that do not count.

    These are the grades of sets whose experiment has no column for them, and the columns of further sets.
    """
    rows = [outcomes[one.name].regret_row(one.name, measure) for one in sets for measure in one.measures]
    beyond = [
        outcomes[one.name].regret_row(one.name, measure)
        for one in sets
        for measure in GRADES
        if measure not in one.measures
    ] + [outcomes[one.name].regret_row(one.name, measure) for one in further for measure in one.measures]
    regrets = [row["regret"] for row in rows]
    mean, worst = float(np.mean(regrets)), float(np.max(regrets))
    notes = (
        f"Over the {len(rows)} columns of the experiments the mean regret is {mean:.4f} and the worst {worst:.4f}; "
        f"with the {len(beyond)} rows beyond them {np.mean([row['regret'] for row in rows + beyond]):.4f} and "
        f"{np.max([row['regret'] for row in rows + beyond]):.4f}.",
        *(f"{name}: {note}" for name, one in outcomes.items() for note in one.notes),
    )
    blank: Row = {"chosen": "", "auto": float("nan"), "best": "", "figure": float("nan")}
    summary: list[Row] = [{"run": "mean", **blank, "regret": mean}, {"run": "worst", **blank, "regret": worst}]
    marked = [{**row, "run": f"{row['run']} (beyond)"} for row in beyond]
    return Table("regret", "Auto against the best method of each column", (*rows, *summary, *marked), notes)


def scores_table(one: Setting, result: Outcome) -> Table:
    """Return the candidates with auto's scores next to their figures."""
    rows = []
    for row in result.auto.choice_table_.to_pylist():
        if row["ranking"] is None or row["method"] not in result.runs:
            continue
        run: Row = {"run": row["method"], "score by rank": row["ranking"], "score by grade": row["grades"]}
        rows.append({**run, **result.runs[row["method"]]})
    notes = (str(result.auto.reason_), "Scores are mean log probabilities of held-out judgments and use no gold.")
    return Table(
        f"scores-{one.name}", f"Candidates on {one.name}: scores without gold, figures with", tuple(rows), notes
    )


def elsewhere_table(
    sets: Sequence[Setting], methods: Sequence[str] | None, *, seeds: Sequence[int], tell: Tell
) -> Table:
    """Return the mean regret with fewer judgments, and on simulated worlds."""
    rows, quick = [], methods or [method for method in METHODS if method not in SLOW]
    for name, make in elsewhere(sets).items():
        draws = [(one, outcome(one, quick, tell=tell)) for one in map(make, seeds)]
        ranking = [np.mean([result.regret(m) for m in one.measures if m not in GRADES]) for one, result in draws]
        grades = [np.mean([result.regret(m) for m in GRADES]) for _, result in draws]
        rows.append(
            {
                "run": name,
                "ranking": float(np.mean(ranking)),
                "chosen for ranking": ", ".join(dict.fromkeys(result.chosen("ranking") for _, result in draws)),
                "grades": float(np.mean(grades)),
                "chosen for grades": ", ".join(dict.fromkeys(result.chosen("grades") for _, result in draws)),
            }
        )
    notes = (
        f"Mean regret over the columns and {seeds_text(seeds)}: for ranking over the measures of the set's experiment, "
        "for grades over GradeAccuracy and GradeMAE (simulated: nDCG@10, AP(rel=2) and Tau for ranking). Unless named, "
        "gda-pairwise does not take part here, being slow.",
    )
    return Table("elsewhere", "Regret with fewer judgments, and on simulated worlds", tuple(rows), notes)


def elsewhere(sets: Sequence[Setting]) -> dict[str, Callable[[int], Setting]]:
    """Return functions that draw each further setting from a seed."""
    crowd, web, judges = sets
    settings: dict[str, Callable[[int], Setting]] = {
        f"{one.name}, {LABELS} labels": partial(_with_few_labels, one) for one in (crowd, web)
    }
    settings |= {f"dl20, {n} of each family": partial(_with_few_judges, judges, n) for n in dl20.PER_FAMILY}
    return settings | {name: partial(simulated, name) for name in SIMULATED}


def _with_few_labels(one: Setting, seed: int) -> Setting:
    return _part(one, equal_count(one.judgments, LABELS, seed))


def _with_few_judges(one: Setting, per_family: int, seed: int) -> Setting:
    drawn = dl20.drawn_judges(one.judgments, per_family, seed)
    return _part(one, one.judgments.where(drawn[one.judgments.assessor]))


def _part(one: Setting, part: Judgments) -> Setting:
    has_gold = part.positions(pa.array(one.gold["query"]), pa.array(one.gold["document"])) >= 0
    return replace(one, judgments=part, gold=one.gold[has_gold])


def simulated(name: str, seed: int) -> Setting:
    """Return a simulated crowd and its true grades."""
    world = simulate(**SIMULATED[name], random_state=100 + seed)  # type: ignore[arg-type]
    return Setting(name, read_judgments(world.judgments), world.gold, SIMULATED_MEASURES)


def goal_figures(name: str) -> dict[str, dict[str, float]]:
    """Return the figures of auto and of every method on a public set, each measure with the rule of its loss."""
    judgments, gold = SETS[name]()
    known = gold_in(gold, judgments)
    rows: dict[str, dict[str, float]] = {}
    for measure, rule in GRADE_RULES.items():
        if name in ONLY_ORDER and measure != "GradeMAE":
            continue
        columns = [measure] * (name not in ONLY_ORDER) + list(ORDER) * (measure == "GradeMAE")
        makers = choose(None, VARIANTS)
        fits = fit_all({run: _with_rule(make, rule) for run, make in makers.items()}, judgments, on=name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            auto = Auto(grade_by=rule).fit(judgments)
        for run, model in {**fits.models, "auto": auto}.items():
            frame, labels = ranking(model), list(model.consensus_.labels)
            codes = frame.assign(grade=[labels.index(label) for label in frame["grade"]])  # names have no order
            rows.setdefault(run, {}).update(evaluate(codes, known, columns, unjudged=UNJUDGED).means)
    return rows


def _with_rule(make: Callable[[], Aggregator], rule: str) -> Callable[[], Aggregator]:
    """Return a maker of the model with a rule for grades, if it has that parameter."""

    def make_with_rule() -> Aggregator:
        model = make()
        return model.set_params(grade_by=rule) if "grade_by" in model._parameter_names() else model

    return make_with_rule


def goals() -> list[Goal]:
    """Return the regret of every column of the public sets, their mean and maximum, and the grades of one set."""
    found: list[Goal] = []
    regrets: list[float] = []
    adult: dict[str, float] = {}
    for name in SETS:
        rows = goal_figures(name)
        adult = rows["auto"] if name == "AdultContent2" else adult
        result = Outcome(Auto(), rows, ())
        for measure in rows["auto"]:
            regrets.append(result.regret(measure))
            best, figure = result.best(measure)
            text = f"{name}, {measure}: regret against {best} ({figure:.3f})"
            found.append(Goal(text, regrets[-1], at_most=MAX_REGRET))
    return [
        Goal("AdultContent2: accuracy", adult["GradeAccuracy"], at_least=0.765),
        Goal("AdultContent2: mean absolute error", adult["GradeMAE"], at_most=0.255),
        Goal(f"mean regret over {len(regrets)} columns", float(np.mean(regrets)), at_most=MAX_MEAN_REGRET),
        *found,
    ]
