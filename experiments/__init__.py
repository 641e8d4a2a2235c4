"""Experiments on public data, one file each: every figure comes with the protocol that it was made by."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from crowdrank.errors import UsageError, near

if TYPE_CHECKING:
    from experiments.base import Experiment

EXPERIMENTS = {
    "rf10": "consensus of a web crowd against NIST's grades (TREC RF10), injected assessors",
    "web5": "consensus on five grades of web pages",
    "dl20": "consensus of LLM judges against NIST's grades (TREC DL20), with fewer judges too",
    "auto": "what is lost by choosing the method without gold, on all three sets and elsewhere",
    "grades": "error of the consensus grade by median, mode and mean of P(grade)",
    "expert-scale": "binary expert grades for a crowd on five grades: whether they help or harm",
    "preferences": "preferences beside grades: image search, TREC DL20, and coverage of intervals in simulated worlds",
    "calibration": "whether intervals and probabilities hold on data drawn from the model",
    "robustness": "goals of the consensus on short tasks, unused grades, families, probabilities and assessors",
    "difficulty": "difficulty of documents and order of grades in GDA, on simulated crowds",
    "feature-prior": "what a prior from features adds to the labels of a consensus, and what useless features cost",
    "rankers": "every ranker on the given labels of MQ2008, next to LightGBM's and XGBoost's own",
    "crowd-rankers": "rankers on a crowd's labels (simulated crowds, LLM judges), tested on expert grades",
    "rigor": "whether learned targets of labels grow with the rigor of assessors (REMAP's first experiment)",
    "quality": "whether learned weights of labels grow with the quality of assessors (REMAP's second experiment)",
    "experts": "targets and weights learned from experts, next to the papers' baselines and every control",
    "expert-budget": "run's candidates and its choice with 5 to 100 expert-graded queries",
    "learned-labels": "what learned labels add to the same ranker by the number of expert queries, and pooled labels",
    "ensemble-members": "further members of run's ensemble: soft pairs, tree features, learned labels on them",
    "pointwise-trees": "pointwise trees on expected grades as a member of run's ensemble",
    "distillation": "what is lost when one forest replaces the ranker that run selects",
    "next-label": "quality against labels bought for every policy (RF10, DL20), experts next to LLM judges",
    "next-label-features": "labels that policies save when features predict relevance (DL20, MQ2008), with controls",
    "settled": "whether settled pairs keep their grade when all labels are in, and the rules compared for it",
    "service": "answers that the judging service saves by handing out pairs by a model, with simulated judges",
    "estimate": "which system is better, from LLM labels and few expert grades (DL20), and whether intervals hold",
    "estimate-coverage": "coverage of intervals, type I error and RMSE of estimates on a grid of simulated comparisons",
    "plan": "whether plans of expert grades come true: predicted and realized intervals; typical values (DL20)",
    "looks": "looking at a comparison while grades arrive: false alarms, power, grades that are saved",
    "gate": "false alarms and misses of the gate for pull requests by number of expert grades (DL20)",
    "null-worlds": "significant summaries of run if no ranker is better, and coverage of intervals with few queries",
    "overlap": "labeling schemes: what each costs and how good a ranker it makes (simulated 11-judge sets, mslr-5k)",
}
"""Names of the experiments, each a module (with _ for -), and their questions."""

PARTS = (
    "preferences",
    "robustness",
    "rigor",
    "quality",
    "experts",
    "expert-budget",
    "learned-labels",
    "ensemble-members",
    "pointwise-trees",
    "distillation",
    "next-label-features",
    "settled",
    "service",
    "estimate-coverage",
    "plan",
    "overlap",
)
"""Experiments whose parts can be selected by name (`only`)."""
KEEPING = (
    "robustness",
    "crowd-rankers",
    "rigor",
    "quality",
    "experts",
    "expert-budget",
    "learned-labels",
    "ensemble-members",
    "pointwise-trees",
    "service",
    "estimate-coverage",
)
"""Experiments that store fitted models, answers or figures in a folder (`keep`) and can resume."""
PRICED = ("preferences",)
"""Experiments in which the price of a preference, relative to a label, is an option (`price`)."""
QUICK = ("estimate-coverage",)
"""Experiments that have a smaller form (`quick`)."""


def get_experiment(name: str) -> Callable[..., Experiment]:
    """Return the function that runs an experiment.

    >>> get_experiment("rf11")
    Traceback (most recent call last):
    crowdrank.errors.UsageError: There is no experiment 'rf11' (did you mean 'rf10'?); the experiments are: rf10,
    web5, dl20, auto, grades, expert-scale, preferences, calibration, robustness, difficulty, feature-prior, rankers,
    crowd-rankers, rigor, quality, experts, expert-budget, learned-labels, ensemble-members, pointwise-trees,
    distillation, next-label, next-label-features, settled, service, estimate,
    estimate-coverage, plan, looks, gate, null-worlds, overlap.
    """
    if name not in EXPERIMENTS:
        raise UsageError(
            f"There is no experiment '{name}'{near(name, EXPERIMENTS)}; the experiments are: {', '.join(EXPERIMENTS)}."
        )
    module = importlib.import_module(f"experiments.{name.replace('-', '_')}")
    function: Callable[..., Experiment] = module.experiment
    return function
