"""Consensus models, one file each; `model.py` has their contract and the story of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crowdrank._estimator import load_estimator_class, unknown_name_error

if TYPE_CHECKING:
    from crowdrank.consensus.model import Aggregator

METHODS = {
    "majority": "votes.MajorityVote",
    "average": "votes.Average",
    "family-mean": "votes.FamilyMean",
    "highest": "votes.Highest",
    "bwa": "bwa.BWA",
    "dawid-skene": "dawid_skene.DawidSkene",
    "one-coin": "dawid_skene.OneCoinDawidSkene",
    "threshold-dawid-skene": "threshold_dawid_skene.ThresholdDawidSkene",
    "glad": "glad.GLAD",
    "rasch": "rasch.Rasch",
    "gda": "gda.GDA",
    "gda-pairwise": "gda_pairwise.GDAPairwise",
    "auto": "auto.Auto",
}
"""Location of each model by its name on the command line, simplest first; modules are loaded when needed."""
DEFAULT_METHOD = "gda"


def get_aggregator(name: str, **parameters: Any) -> Aggregator:
    """Return an aggregator by its name on the command line.

    Args:
        name: a name such as `dawid-skene`, `gda` or `auto`.
        parameters: parameters of the model.

    Raises:
        UsageError: there is no such model, or it has no such parameter.

    >>> get_aggregator("gda", difficulty=True)
    GDA(difficulty=True)

    """
    if name not in METHODS:
        raise unknown_name_error("method", name, METHODS)
    model: Aggregator = load_estimator_class("consensus", METHODS[name])().set_params(**parameters)
    return model
