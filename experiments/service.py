"""Answers that the judging service saves by handing out pairs by a model, with simulated judges over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from crowdrank._files import write_file
from crowdrank._typing import Floats, Integers
from crowdrank.collection.model_policies import TopGain
from crowdrank.collection.policy import Policy
from crowdrank.collection.replay import replay
from crowdrank.collection.requests import PoolState
from crowdrank.consensus.model import Aggregator
from crowdrank.evaluation.comparison import compare_evaluations
from crowdrank.evaluation.evaluate import Evaluation, evaluate
from crowdrank.service.model.fits import MIN_ANSWERS, MIN_SHARED
from experiments.answers_needed import RESAMPLES, Curves, Need, answers_needed
from experiments.base import (
    UNJUDGED,
    Experiment,
    Row,
    Table,
    Tell,
    average_repeats,
    comparison_table,
    quiet,
    seeds_text,
    select_names,
    testing_protocol,
)
from experiments.judging_worlds import MAIN, SETTINGS, Setting, World
from experiments.simulated_judging import AT_ONCE, SECONDS, SESSION, SPREAD, Arm, simulate_judging

SEEDS = (0, 1, 2, 3, 4)
LABELS, STEERED_LABELS = 5.0, 3.5
"""Answers per document of the baseline, and of the other runs."""
STEP, SHOWN_STEP = 0.25, 0.5
"""Answers per document between two evaluations, and between two columns of a table."""
EQUAL = 2.5
"""Answers per document at which runs are compared."""
MIN_INFORMATION = 0.5
"""Information per price, relative to the average, below which judges are not asked."""
REPLAY_ROUNDS = 6
"""Rounds of the replay between two evaluations."""
GOAL = 0.6
"""Share of the baseline's answers with which a run must reach its quality."""
BASELINE, STEERED, INFORMATIVE = "random", "ndcg@10-60s", "ndcg@10-60s-informative"
REPLAYS = {"ndcg@10-replay": False, "ndcg@10-replay-judges": True}
"""Runs of the policy without the service, and whether it chooses the judges, too."""
ARMS = {
    arm.name: arm
    for arm in (
        Arm(BASELINE, "random", LABELS),
        Arm("random-informative", "random", LABELS, 60, {"min_information": MIN_INFORMATION}),
        Arm("ndcg@10-0s", "ndcg@10", STEERED_LABELS, 0),
        Arm(STEERED, "ndcg@10", LABELS, 60),
        Arm("ndcg@10-10min", "ndcg@10", STEERED_LABELS, 600),
        Arm("ndcg@10-60s-any-query", "ndcg@10", STEERED_LABELS, 60, kind="llm"),
        Arm("ndcg@10-60s-pause", "ndcg@10", STEERED_LABELS, 60, {"flag_action": "pause"}),
        Arm(INFORMATIVE, "ndcg@10", LABELS, 60, {"min_information": MIN_INFORMATION}),
    )
}
RUNS = (*ARMS, *REPLAYS)
CONFIGURATIONS = (
    f"{INFORMATIVE} was chosen on other worlds: a simulation of the same judges without HTTP, which is not part of "
    "the repository, compared 26 ways to hand out pairs by ndcg@10 on eight worlds (seeds 100 to 107) of "
    "generated, and 14 of them on eight of dl20. They varied the number of best pairs among which one is drawn at "
    "random, when people leave a query, updates after each answer, pauses of flagged judges, if the best judges "
    "get the best pairs, and the minimum of information (50%, 75% or 100%, from 10 to 30 answers on). The chosen "
    "setting did not have the highest mean; it leaves nobody out before their answers can be compared with those "
    "of others. The other runs have one configuration each. Seeds 0 to 4 were seen before: earlier versions of "
    "this experiment had further runs (entropy, random order with a stop rule or with pauses). Each run was "
    "simulated once per seed, so the experiment does not measure how much the random numbers of a run matter. A "
    f"run that earlier versions called a repetition with other random numbers had the same answers as {STEERED} "
    "here, so it was none."
)

Run = Sequence[Integers]
"""Rows of the world's judgments in the order of the answers, for each seed."""


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    keep: Path | None = None,
    seeds: Sequence[int] = SEEDS,
    tell: Tell = quiet,
) -> Experiment:
    """Return the tables of all settings, or of those in `only`; an interrupted experiment resumes from `keep`."""
    names = select_names(methods, dict.fromkeys(RUNS), "run")
    if BASELINE not in names:
        names = [BASELINE, *names]
    settings = [SETTINGS[name] for name in select_names(only, SETTINGS, "data set")]
    tables = [table for one in settings for table in setting_tables(one, names, seeds, keep, tell=tell)]
    return Experiment("service", tuple(tables), tuple(_protocol(settings, seeds, tables)))


def _protocol(settings: Sequence[Setting], seeds: Sequence[int], tables: Sequence[Table]) -> list[str]:
    return [
        f"The judging service runs with its web server and an SQLite database. {AT_ONCE} judges at a time ask for a "
        "pair and answer it by the HTTP API, each with a token of its own. Its clock is simulated: an answer takes "
        f"{SECONDS:g} seconds in the median (log-normal, sigma {SPREAD:g}), and after {SESSION} answers on average "
        "another judge takes over. Requests are sent one after the other in the order of simulated time.",
        *(setting.about for setting in settings),
        f"The worlds are drawn with {seeds_text(seeds)}.",
        f"{BASELINE} hands out pairs in random order, in rounds: every pair gets one answer before any gets two, up to "
        f"{LABELS:g}. With ndcg@10, each fit of the model sets targets and priorities of pairs. Fits are 60 seconds or "
        "10 minutes apart in simulated time; -0s is the service's own schedule: the consensus of a pair is updated "
        "after each answer, and the assessors every minute or 50 answers. Judges come by themselves: the policy does "
        "not choose them. People stay at their query while one of its pairs is among the best 50; with -any-query they "
        "do not, as LLM judges. With -informative, fits every 60 seconds find judges whose answers carry less than "
        f"{MIN_INFORMATION:.0%} of the average information, from {MIN_ANSWERS} answers on, {MIN_SHARED} of them to "
        "pairs that others have answered, too; these get no pairs, and other judges take their places. With -pause, "
        "the fits pause judges whom they flag as careless, random or reversed. "
        f"{', '.join(name for name, arm in ARMS.items() if arm.labels == LABELS)} end after {LABELS:g} answers per "
        f"document, the others after {STEERED_LABELS:g}.",
        "ndcg@10-replay is the policy without the service, as an upper bound: any judge can answer any pair at once, "
        "and the judge of each pair is drawn at random. In ndcg@10-replay-judges the policy chooses the judge, too. A "
        f"fit follows after every {STEP / REPLAY_ROUNDS:.3g} answers per document.",
        "The consensus that is scored is GDA, fitted from scratch to the first answers of a run, after every "
        f"{STEP:g} answers per document; it is the same for all runs. Documents without an answer have the mean score. "
        "No fit and no policy sees gold.",
        f"Answers needed: the mean of {MAIN} over seeds and queries by answers is made monotone (isotonic regression) "
        f"for each run, and interpolated. The target is the value of {BASELINE} after all its answers; the ratio "
        f"divides by the answers with which {BASELINE} first has it. Intervals are 95% bootstrap intervals "
        f"({RESAMPLES:,} draws of seeds, and of queries within them; the same draws for all runs).",
        CONFIGURATIONS,
        *testing_protocol(next(table for table in tables if table.comparison is not None)),
    ]


def setting_tables(
    setting: Setting, names: Sequence[str], seeds: Sequence[int], keep: Path | None = None, *, tell: Tell = quiet
) -> list[Table]:
    """Return three tables: answers needed, quality at equal numbers of answers, and quality by answers."""
    worlds = [setting.draw(seed) for seed in seeds]
    names = [name for name in names if name not in ARMS or ARMS[name].kind != worlds[0].kind]
    runs = {name: [answers_of(world, name, keep, tell) for world in worlds] for name in names}
    tell(f"quality on {setting.name}")
    curves = {name: measure_curves(worlds, run, project_labels(name)) for name, run in runs.items()}
    needs = answers_needed(curves, BASELINE, same_queries=setting.same_queries)
    return [
        needed_table(setting, worlds, runs, curves, needs),
        equal_table(setting, worlds, runs),
        curve_table(setting, curves),
    ]


def project_labels(name: str) -> float:
    """Return the answers per document at which a run ends."""
    return ARMS[name].labels if name in ARMS else STEERED_LABELS


# Runs.


def answers_of(world: World, name: str, keep: Path | None, tell: Tell) -> Integers:
    """Return the rows of the answers of a run in their order; what was simulated before is read from `keep`."""
    arm = asdict(ARMS[name]) if name in ARMS else name
    key = {"world": world.name, "seed": world.seed, "run": arm, "pairs": world.judgments.n_items}
    path = None if keep is None else keep / f"{world.name}-{world.seed}-{name}.json"
    if path is not None and path.is_file() and (stored := json.loads(path.read_text())).pop("rows_of") == key:
        return np.array(stored["rows"], np.int64)
    tell(f"{name} on {world.name}, seed {world.seed}")
    if name in REPLAYS:
        rows = replay_answers(world, chooses_judges=REPLAYS[name])
    else:
        rows = simulate_judging(world, ARMS[name])
    if path is not None:
        with write_file(path) as draft:
            draft.write_text(json.dumps({"rows_of": key, "rows": rows.tolist()}))
    return rows


class PairsOnly(TopGain):
    """The policy ndcg@10 with random assessors."""

    def assessor_scores(self, state: PoolState, model: Aggregator | None, pair: Integers) -> Floats | None:
        """Return random scores."""
        return Policy.assessor_scores(self, state, model, pair)


def replay_answers(world: World, *, chooses_judges: bool) -> Integers:
    """Return the rows of the answers that the policy requests without the service, in the order of its rounds."""
    n_rounds = round(STEERED_LABELS / STEP) * REPLAY_ROUNDS
    policy = (TopGain if chooses_judges else PairsOnly)(settled=None, random_state=world.seed)
    budget = STEERED_LABELS * world.judgments.n_items
    curve = replay(policy, world.crowd, world.gold, [MAIN], budget=budget, rounds=n_rounds)
    bought = np.array([point.bought for point in curve.points])
    first_round = np.where(bought.any(axis=0), bought.argmax(axis=0), len(bought))
    order = np.argsort(first_round, kind="stable")
    return np.asarray(order[: bought[-1].sum()])


# Quality.


def measure_curves(worlds: Sequence[World], run: Run, labels: float) -> Curves:
    """Return the quality of a run after each step of answers per document; a run that ended stays where it is."""
    steps = np.arange(1.0, labels + STEP / 2, STEP)
    values = [
        [world.quality(rows[: round(step * world.judgments.n_items)]) for step in steps]
        for world, rows in zip(worlds, run, strict=True)
    ]
    return Curves(steps.tolist(), np.array(values).transpose(0, 2, 1))


def evaluate_run(setting: Setting, worlds: Sequence[World], run: Run, labels: float) -> Evaluation:
    """Evaluate a run after a number of answers per document: means over seeds, or the queries of all seeds."""
    rankings = [
        world.rank(rows[: round(labels * world.judgments.n_items)]) for world, rows in zip(worlds, run, strict=True)
    ]
    golds = [world.gold for world in worlds]
    if not setting.same_queries:
        rankings, golds = [pd.concat(rankings)], [pd.concat(golds)]
    found = [
        evaluate(ranking, gold, [MAIN, "Tau"], unjudged=UNJUDGED) for ranking, gold in zip(rankings, golds, strict=True)
    ]
    return average_repeats(found)


# Tables.


def needed_table(
    setting: Setting,
    worlds: Sequence[World],
    runs: Mapping[str, Run],
    curves: Mapping[str, Curves],
    needs: Mapping[str, Need],
) -> Table:
    """Return the answers that each run needs for the final quality of the baseline."""
    rows: list[Row] = []
    for name, need in needs.items():
        given = [len(answers) / world.judgments.n_items for answers, world in zip(runs[name], worlds, strict=True)]
        found = {"answers needed": need.labels, "ratio": need.ratio, "lower": need.lower, "upper": need.upper}
        reached = {column: value if np.isfinite(value) else float("nan") for column, value in found.items()}
        rows.append({"run": name, "answers given": float(np.mean(given)), **reached})
    final = float(curves[BASELINE].mean()[-1])
    notes = [
        f"Answers per document, given in all and needed for the final {MAIN} of {BASELINE}, {final:.4f}; the ratio "
        "divides by what random needs. Blank: not reached."
    ]
    notes += [describe_need(name, needs[name]) for name in (STEERED, INFORMATIVE) if name in needs]
    return Table(f"{setting.name}-needed", f"{setting.name}: answers at equal {MAIN}", tuple(rows), tuple(notes))


def describe_need(name: str, need: Need) -> str:
    """Return a sentence that says whether a run reaches the goal.

    >>> describe_need("model", Need(2.0, 0.5, 0.4, 0.7))
    'model needs 50% of the answers of random at equal nDCG@10, 95% interval 40% to 70% (goal: at most 60%, reached by
    the mean, not by the whole interval).'
    """
    if not np.isfinite(need.ratio):
        return f"{name} does not reach the final quality of {BASELINE} with its answers (goal: at most {GOAL:.0%})."
    interval = f"{need.lower:.0%} to {need.upper:.0%}" if np.isfinite(need.upper) else f"{need.lower:.0%} or more"
    if need.ratio > GOAL:
        verdict = "not reached"
    else:
        verdict = (
            "reached by the whole interval" if need.upper <= GOAL else "reached by the mean, not by the whole interval"
        )
    return (
        f"{name} needs {need.ratio:.0%} of the answers of {BASELINE} at equal {MAIN}, 95% interval {interval} "
        f"(goal: at most {GOAL:.0%}, {verdict})."
    )


def equal_table(setting: Setting, worlds: Sequence[World], runs: Mapping[str, Run]) -> Table:
    """Return the quality of all runs after the same number of answers, with paired tests."""
    evaluations = {name: evaluate_run(setting, worlds, run, EQUAL) for name, run in runs.items()}
    full = {f"random, {LABELS:g} answers": evaluate_run(setting, worlds, runs[BASELINE], LABELS)}
    return comparison_table(
        f"{setting.name}-equal",
        f"{setting.name}: {EQUAL:g} answers per document",
        compare_evaluations({**evaluations, **full}, baseline=BASELINE),
    )


def curve_table(setting: Setting, curves: Mapping[str, Curves]) -> Table:
    """Return the main measure by answers per document."""
    longest = max((curve.labels for curve in curves.values()), key=len)
    rows: list[Row] = []
    for name, curve in curves.items():
        values = dict(zip(curve.labels, curve.raw_mean().tolist(), strict=True))
        rows.append(
            {"run": name, **{f"{step:g}": values.get(step, float("nan")) for step in longest if step % 0.5 == 0}}
        )
    note = f"{MAIN} by answers per document. Means over seeds and queries, not made monotone; there are no tests."
    return Table(f"{setting.name}-curve", f"{setting.name}: {MAIN} by answers", tuple(rows), (note,))
