"""Rankers: from features and labels to scores. One contract (`base.py`); one file per kind.

>>> ranker_class("gls").__name__
'GLS'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from crowdrank.errors import UsageError, near

if TYPE_CHECKING:
    from crowdrank.rankers.base import Ranker

RANKERS = {
    "lambdamart": "lambdamart.LambdaMART",
    "gls": "linear.GLS",
    "rd": "linear.RD",
    "gda-pairwise-mart": "gda_mart.GDAPairwiseMART",
    "lambdarank-net": "network.LambdaRankNet",
    "ensemble": "ensemble.Ensemble",
    "tree-features": "tree_features.TreeFeatures",
}
"""The names of the rankers on the command line, and where each lives (loaded when asked for)."""


def ranker_class(name: str) -> type[Ranker]:
    """The class of a ranker by its name on the command line.

    >>> ranker_class("lambdamart").__name__
    'LambdaMART'
    """
    if name not in RANKERS:
        raise UsageError(f"There is no ranker '{name}'{near(name, RANKERS)}; the rankers are: {', '.join(RANKERS)}.")
    module, cls = RANKERS[name].split(".")
    found: type[Ranker] = getattr(importlib.import_module(f"crowdrank.rankers.{module}"), cls)
    return found
