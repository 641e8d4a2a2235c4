"""Settled pairs: whether they keep their grade when all labels are in, and the rules that were compared for it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection import SETTLED_PROBABILITY, get_policy
from crowdrank.collection.belief import Belief, normal_on_nodes
from crowdrank.collection.pool import Pool
from crowdrank.collection.replay import Crowd, refit
from crowdrank.collection.requests import PoolState
from crowdrank.consensus import get_aggregator
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.consensus.model import Aggregator
from crowdrank.errors import InputError
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import dataset
from crowdrank.readers.read import read_judgments
from crowdrank.simulation.world import simulate
from experiments.base import SEEDS, Experiment, Row, Table, Tell, quiet, seeds_text, select_names
from experiments.dl20 import COVERED, thorough
from experiments.subsample import equal_count

PROMISED = 0.93
"""Share of the pairs settled at 95% that shall keep their grade."""
STAGES = (1, 2, 3, 5, 10)
"""Numbers of labels per pair."""
RF10_LABELS = 5
LABELS = 20
"""Number of labels per pair of the simulated crowds."""
WORLDS: Mapping[str, Mapping[str, Any]] = {
    "simulated": {},
    "simulated, noisy": {"noise": 1.6},
    "simulated, 3 grades": {"grades": 3},
    "simulated, skewed": {"grades": 4, "grade_ratio": 0.3, "spammers": 0.0, "adversaries": 0.0},
    "simulated, families": {"families": 4, "family_error": 0.6},
}
"""Parameters of the simulated crowds."""
DATA = (*WORLDS, "rf10", "dl23", "dl20")
METHODS = ("gda", "rasch", "dawid-skene", "one-coin")
CHOSEN = "range of a grade"
RULES = (CHOSEN, "most probable grade", "half a grade", "P(grade)")
POLICY, SHARE_PER_ROUND, MAX_ROUNDS = "entropy", 0.5, 40
"""Policy of the replays with the stop rule, labels per pair in a round, and maximum number of rounds."""


def experiment(
    methods: Sequence[str] | None = None,
    *,
    seeds: Sequence[int] = SEEDS,
    only: Sequence[str] | None = None,
    tell: Tell = quiet,
) -> Experiment:
    """Return which rules keep their promise, by data set and number of labels, by model, and with the stop rule."""
    names = select_names(only, dict.fromkeys(DATA), "data set")
    models = select_names(methods, dict.fromkeys(METHODS), "method")
    stages = {
        (method, name): found
        for method in models
        for name in names
        if (found := _stages(name, method, seeds if name in WORLDS else seeds[:1], tell))
    }
    tables = [models_table(stages)]
    if "gda" in models:
        own = {name: found for (method, name), found in stages.items() if method == "gda"}
        stop = [stop_row(name, seed, tell) for name in names if name != "dl20" for seed in seeds[:1]]
        tables = [rules_table(own), labels_table(own), stop_table(stop), *tables]
    return Experiment("settled", tuple(tables), tuple(_protocol(seeds)))


@dataclass(frozen=True, eq=False)
class Stage:
    """Pairs after some labels: their certainty by rule, and whether they keep their grade when all labels are in."""

    n_labels: int
    certainty: Mapping[str, Floats]
    is_kept: Booleans

    def settled(self, rule: str) -> Booleans:
        """Return whether each pair is settled by a rule."""
        return self.certainty[rule] >= SETTLED_PROBABILITY


def read_crowd(name: str, seed: int) -> Judgments:
    """Return all judgments of a data set, or a simulated crowd."""
    if name in WORLDS:
        world = simulate(queries=40, documents=25, labels=LABELS, honeypots=0.0, random_state=seed, **WORLDS[name])
        return read_judgments(world.judgments)
    if name == "rf10":
        return equal_count(dataset("trec-rf10").read_judgments(), RF10_LABELS, seed)
    if name == "dl20":
        return thorough(dataset("trec-dl20").read_judgments(), COVERED)
    return dataset("llmjudge-dl23").read_judgments()


def _stages(name: str, method: str, seeds: Sequence[int], tell: Tell) -> list[Stage]:
    """Return the stages of a data set; DL20 is fitted by GDA only."""
    if name == "dl20" and method != "gda":
        return []
    found = []
    for seed in seeds:
        tell(f"{method} on {name}, seed {seed}")
        everything = read_crowd(name, seed)
        final = consensus_grades(_fit(everything, method))
        for n_labels in STAGES:
            if n_labels >= np.diff(everything.offsets).min():
                break
            part = equal_count(everything, n_labels, seed)
            model = _fit(part, method)
            kept = consensus_grades(model) == final[everything.positions(*part.item_ids())]
            found.append(Stage(n_labels, certainties(model), kept))
    return found


def _fit(judgments: Judgments, method: str) -> Aggregator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_aggregator(method).fit(judgments)


def consensus_grades(model: Aggregator) -> Integers:
    """Return the code of the consensus grade of each pair."""
    return choose_grades(_shares(model), model.grade_by).astype(np.int64)


def _shares(model: Aggregator) -> Floats:
    return np.column_stack([model.consensus_.numbers(name) for name in model.consensus_.true_share_names])


def certainties(model: Aggregator) -> dict[str, Floats]:
    """Return the certainty of each pair by each rule; in a model without a latent scale all rules are P(grade)."""
    judgments = model.judgments_
    belief, pair = Belief.from_model(PoolState.of(Pool.of(judgments), judgments), model), np.arange(judgments.n_items)
    found = {CHOSEN: belief.certainty(pair), "P(grade)": _shares(model).max(axis=1)}
    if not belief.is_latent:
        return dict.fromkeys(RULES, found["P(grade)"]) | {CHOSEN: found[CHOSEN]}
    curves = belief.grade_given_state[:, : belief.n_nodes]
    p = normal_on_nodes(model.consensus_.numbers("relevance"), model.consensus_.numbers("sd"), belief.n_nodes)
    found["most probable grade"] = (np.eye(len(curves))[curves.argmax(axis=0)].T @ p).max(axis=0)
    expected = np.arange(len(curves)) @ curves
    found["half a grade"] = np.einsum("sn,sn->n", np.abs(expected[:, None] - expected @ p) <= 0.5, p)
    return found


def _counts(stages: Sequence[Stage], rule: str = CHOSEN) -> Row:
    """Return the shares of settled pairs, and of those that keep their grade, over all stages."""
    settled = np.concatenate([stage.settled(rule) for stage in stages])
    kept = np.concatenate([stage.is_kept for stage in stages])
    share = float(kept[settled].mean()) if settled.any() else float("nan")
    return {"settled pairs": int(settled.sum()), "settled": float(settled.mean()), "keep their grade": share}


def rules_table(stages: Mapping[str, Sequence[Stage]]) -> Table:
    """Return the rules side by side, by data set."""
    rows = []
    for name, found in stages.items():
        row: Row = {"run": name}
        for rule in RULES:
            counts = _counts(found, rule)
            row |= {f"{rule}: settled": counts["settled"], f"{rule}: keep": counts["keep their grade"]}
        rows.append(row)
    n_kept = {rule: sum(not row[f"{rule}: keep"] < PROMISED for row in rows) for rule in RULES}
    listed = ", ".join(f"{rule} {number}" for rule, number in n_kept.items())
    notes = (
        f"Share of pairs settled at {SETTLED_PROBABILITY:.0%} by each rule over all numbers of labels, and the share "
        "of these that have the same grade when all labels are in (GDA).",
        f"Data sets of {len(rows)} on which at least {PROMISED:.0%} of the settled pairs keep their grade, or none is "
        f"settled: {listed}.",
    )
    return Table("rules", "Rules for settled pairs", tuple(rows), notes)


def labels_table(stages: Mapping[str, Sequence[Stage]]) -> Table:
    """Return the chosen rule by data set and number of labels."""
    rows = []
    for name, found in stages.items():
        for n_labels in dict.fromkeys(stage.n_labels for stage in found):
            some = [stage for stage in found if stage.n_labels == n_labels]
            kept = np.concatenate([stage.is_kept for stage in some])
            row = {"run": name, "labels": n_labels, "pairs": len(kept), **_counts(some)}
            rows.append({**row, "all pairs keep theirs": float(kept.mean())})
    note = f"Pairs settled at {SETTLED_PROBABILITY:.0%} after so many random labels per pair, next to all pairs (GDA)."
    return Table("labels", "Settled pairs by number of labels", tuple(rows), (note,))


def models_table(stages: Mapping[tuple[str, str], Sequence[Stage]]) -> Table:
    """Return the chosen rule by model and data set."""
    rows = [{"run": method, "data": name, **_counts(found)} for (method, name), found in stages.items()]
    note = "GDA and Rasch have relevance on a line; Dawid-Skene and the one-coin model have a true grade, and P(grade)."
    return Table("models", "Settled pairs by model", tuple(rows), (note,))


def stop_row(name: str, seed: int, tell: Tell = quiet) -> Row:
    """Return what a policy with the stop rule spends of all labels, and how many settled pairs keep their grade."""
    tell(f"{POLICY} until settled on {name}, seed {seed}")
    everything = read_crowd(name, seed)
    crowd, policy = Crowd.of(everything), get_policy(POLICY)
    bought, known = np.zeros(len(everything), bool), None
    model: Aggregator | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(MAX_ROUNDS):
            try:
                requests = policy.next(crowd.pool, known, model, max(SHARE_PER_ROUND * everything.n_items, 1))
            except InputError as error:
                if error.kind != "nobody-left":
                    raise
                break
            if not len(requests):
                break
            bought[crowd.rows(requests)] = True
            known = everything.where(bought)
            model = refit(lambda: get_aggregator("gda"), known, model)
    assert known is not None
    model = _fit(known, "gda")
    place = everything.positions(*known.item_ids())
    kept = consensus_grades(model) == consensus_grades(_fit(everything, "gda"))[place]
    stage = Stage(0, certainties(model), kept)
    row: Row = {"run": name, "labels bought": float(bought.mean()), **_counts([stage])}
    return {**row, "all pairs keep theirs": float(kept.mean())}


def stop_table(rows: Sequence[Row]) -> Table:
    """Return the replays with the stop rule."""
    note = (
        f"The policy {POLICY} requests labels of pairs that are not settled, {SHARE_PER_ROUND:g} labels per pair in a "
        f"round, until no other can be had (at most {MAX_ROUNDS} rounds). Labels bought: share of all labels."
    )
    return Table("stop", "With the stop rule", tuple(rows), (note,))


def _protocol(seeds: Sequence[int]) -> list[str]:
    return [
        f"A pair is settled if its certainty is at least {SETTLED_PROBABILITY:.0%}. Rules for the certainty: "
        f"'{CHOSEN}' (used by crowdrank) is the probability that relevance lies in the range in which the median of a "
        "careful assessor's answer is one grade; 'most probable grade' is the same with the mode; 'half a grade' is "
        "the probability that the expected grade is within half a grade of its mean, so that an interval is at most "
        "one grade wide; 'P(grade)' is the highest probability of a grade in the consensus.",
        "The rule was chosen on simulated crowds and then checked on RF10, DL23 and DL20; expert grades are not used. "
        "Five rules were looked at: these four, and the range of the grade that the consensus has, which settles the "
        "same pairs. One level, 95%, was used.",
        f"Simulated crowds: 40 queries of 25 documents, {LABELS} labels each ({seeds_text(seeds)}). RF10: "
        f"{RF10_LABELS} labels of every pair that has as many. DL23: 33 LLM judges; DL20: the LLM judges of more than "
        f"{COVERED:,} items ({seeds_text(seeds[:1])}).",
        "The grade of a pair after some labels is compared with that of the same model fitted to all labels, which "
        "include the former.",
    ]
