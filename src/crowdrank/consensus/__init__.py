"""Models of what is true and who is reliable, one file each; `base.py` owns the loop."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from crowdrank.errors import UsageError, near

if TYPE_CHECKING:
    from crowdrank.consensus.base import Aggregator

METHODS = {
    "majority": "votes.MajorityVote",
    "average": "votes.Average",
    "family-mean": "votes.FamilyMean",
    "highest": "votes.Highest",
    "bwa": "bwa.BWA",
    "dawid-skene": "dawid_skene.DawidSkene",
    "one-coin": "dawid_skene.OneCoinDawidSkene",
    "glad": "glad.GLAD",
    "rasch": "rasch.Rasch",
    "gda": "gda.GDA",
    "gda-pairwise": "gda_pairwise.GDAPairwise",
    "auto": "auto.Auto",
}
"""The names of the models on the command line, simplest first, and where each lives (loaded when asked for)."""


def model_class(method: str) -> type[Aggregator]:
    """The class of a method by its name on the command line.

    >>> model_class("average").__name__
    'Average'
    """
    if method not in METHODS:
        raise UsageError(
            f"There is no method '{method}'{near(method, METHODS)}; the methods are: {', '.join(METHODS)}."
        )
    module, name = METHODS[method].split(".")
    found: type[Aggregator] = getattr(importlib.import_module(f"crowdrank.consensus.{module}"), name)
    return found
