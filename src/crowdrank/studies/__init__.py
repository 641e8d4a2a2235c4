"""Studies on public data, one file each: every figure comes with the protocol that it was made by."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from crowdrank.errors import UsageError, near

if TYPE_CHECKING:
    from crowdrank.studies.base import Study

STUDIES = {
    "rf10": "consensus of a web crowd against NIST's grades (TREC RF10), injected assessors",
    "web5": "consensus on five grades of web pages",
    "dl20": "consensus of LLM judges against NIST's grades (TREC DL20), with fewer judges too",
    "auto": "what is lost by choosing the method without gold, on all three sets and elsewhere",
    "calibration": "whether intervals and probabilities hold on data drawn from the model",
    "rankers": "every ranker on the given labels of MQ2008, next to LightGBM's and XGBoost's own",
    "crowd-rankers": "rankers on a crowd's labels (simulated crowds, LLM judges), tested on expert grades",
    "rigor": "whether learnt targets of labels grow with the rigour of assessors (REMAP's first experiment)",
    "quality": "whether learnt weights of labels grow with the quality of assessors (REMAP's second experiment)",
    "experts": "targets and weights learnt from experts, next to the papers' baselines and every control",
    "expert-budget": "run's candidates and its choice with 5 to 100 expert-graded queries",
    "next-label": "quality against labels bought for every policy (RF10, DL20), experts next to LLM judges",
    "overlap": "labelling schemes: what each costs and how good a ranker it makes (simulated 11-judge sets, mslr-5k)",
}
"""The studies and what each is about; a study lives in the file of its name, with _ for - (loaded when asked for)."""

PARTS = ("rigor", "quality", "experts", "expert-budget")
"""Studies of which parts can be asked for by name (`only`)."""
KEEPING = ("expert-budget",)
"""Studies that keep what was fitted in a folder (`keep`) and go on from there."""


def study_named(name: str) -> Callable[..., Study]:
    """The function that runs a study.

    >>> study_named("rf11")
    Traceback (most recent call last):
    crowdrank.errors.UsageError: There is no study 'rf11' (did you mean 'rf10'?); the studies are: rf10, web5, dl20,
    auto, calibration, rankers, crowd-rankers, rigor, quality, experts, expert-budget, next-label, overlap.
    """
    if name not in STUDIES:
        raise UsageError(f"There is no study '{name}'{near(name, STUDIES)}; the studies are: {', '.join(STUDIES)}.")
    module = importlib.import_module(f"crowdrank.studies.{name.replace('-', '_')}")
    found: Callable[..., Study] = module.study
    return found
