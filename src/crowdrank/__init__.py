"""crowdrank: from noisy relevance judgments to a search ranker.

>>> import crowdrank
>>> world = crowdrank.simulate(queries=5, documents=6, random_state=1)
>>> model = crowdrank.DawidSkene().fit(world.judgments)
>>> sorted(model.consensus_.documents.columns)[:3]
['document', 'grade', 'judgments']
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crowdrank import constraints as constraints
    from crowdrank import errors as errors
    from crowdrank import testing as testing
    from crowdrank.assessors.report import assess as assess
    from crowdrank.collection import get_policy as get_policy
    from crowdrank.collection.base import Policy as Policy
    from crowdrank.collection.costs import scheme_costs as scheme_costs
    from crowdrank.collection.pool import Pool as Pool
    from crowdrank.collection.requests import Budget as Budget
    from crowdrank.consensus import get_aggregator as get_aggregator
    from crowdrank.consensus._base import Aggregator as Aggregator
    from crowdrank.consensus._base import EMAggregator as EMAggregator
    from crowdrank.consensus.auto import Auto as Auto
    from crowdrank.consensus.bwa import BWA as BWA
    from crowdrank.consensus.dawid_skene import DawidSkene as DawidSkene
    from crowdrank.consensus.dawid_skene import OneCoinDawidSkene as OneCoinDawidSkene
    from crowdrank.consensus.gda import GDA as GDA
    from crowdrank.consensus.gda_pairwise import GDAPairwise as GDAPairwise
    from crowdrank.consensus.glad import GLAD as GLAD
    from crowdrank.consensus.rasch import Rasch as Rasch
    from crowdrank.consensus.result import Consensus as Consensus
    from crowdrank.consensus.threshold import ThresholdDawidSkene as ThresholdDawidSkene
    from crowdrank.consensus.votes import Average as Average
    from crowdrank.consensus.votes import FamilyMean as FamilyMean
    from crowdrank.consensus.votes import Highest as Highest
    from crowdrank.consensus.votes import MajorityVote as MajorityVote
    from crowdrank.engine.dask import DaskEngine as DaskEngine
    from crowdrank.engine.local import LocalEngine as LocalEngine
    from crowdrank.engine.registry import get_engine as get_engine
    from crowdrank.evaluation.comparison import compare as compare
    from crowdrank.evaluation.evaluate import evaluate as evaluate
    from crowdrank.judgments.features import Features as Features
    from crowdrank.judgments.features import read_features as read_features
    from crowdrank.judgments.gold import Gold as Gold
    from crowdrank.judgments.partitions import read_partitions as read_partitions
    from crowdrank.judgments.read import read_gold as read_gold
    from crowdrank.judgments.read import read_judgments as read_judgments
    from crowdrank.judgments.runs import read_run as read_run
    from crowdrank.judgments.sharded import ShardedJudgments as ShardedJudgments
    from crowdrank.judgments.table import Judgments as Judgments
    from crowdrank.judgments.validation import validate as validate
    from crowdrank.label_learning.boosted import BoostedRemapper as BoostedRemapper
    from crowdrank.label_learning.label_features import LabelFeatures as LabelFeatures
    from crowdrank.label_learning.label_features import label_features as label_features
    from crowdrank.label_learning.linear import LinearRemapper as LinearRemapper
    from crowdrank.label_learning.remapped_labels import Remapped as Remapped
    from crowdrank.label_learning.remapper import Remapper as Remapper
    from crowdrank.pipeline.result import RunResult as RunResult
    from crowdrank.pipeline.run import run as run
    from crowdrank.rankers import get_ranker as get_ranker
    from crowdrank.rankers.base import Ranker as Ranker
    from crowdrank.rankers.distillation import distill as distill
    from crowdrank.rankers.ensemble import Ensemble as Ensemble
    from crowdrank.rankers.export.write import export as export
    from crowdrank.rankers.gda_mart import GDAPairwiseMART as GDAPairwiseMART
    from crowdrank.rankers.instances import Instances as Instances
    from crowdrank.rankers.lambdamart import LambdaMART as LambdaMART
    from crowdrank.rankers.linear import GLS as GLS
    from crowdrank.rankers.linear import TreeFeatureGLS as TreeFeatureGLS
    from crowdrank.rankers.network import LambdaRankNet as LambdaRankNet
    from crowdrank.rankers.pointwise import PointwiseGBDT as PointwiseGBDT
    from crowdrank.rankers.reweighting import RD as RD
    from crowdrank.rankers.tree_features import TreeFeatures as TreeFeatures
    from crowdrank.reports import charts as charts
    from crowdrank.reports.page import write_report as write_report
    from crowdrank.simulation.world import simulate as simulate

__version__ = "0.1.0"

# Public names are loaded on first use, so that `import crowdrank` is fast and does not load numba.
_LOCATIONS = {
    "Aggregator": "consensus._base",
    "EMAggregator": "consensus._base",
    "Auto": "consensus.auto",
    "Average": "consensus.votes",
    "BWA": "consensus.bwa",
    "BoostedRemapper": "label_learning.boosted",
    "Budget": "collection.requests",
    "Consensus": "consensus.result",
    "DaskEngine": "engine.dask",
    "DawidSkene": "consensus.dawid_skene",
    "Ensemble": "rankers.ensemble",
    "FamilyMean": "consensus.votes",
    "Features": "judgments.features",
    "GDA": "consensus.gda",
    "GDAPairwise": "consensus.gda_pairwise",
    "GDAPairwiseMART": "rankers.gda_mart",
    "GLAD": "consensus.glad",
    "GLS": "rankers.linear",
    "Gold": "judgments.gold",
    "Highest": "consensus.votes",
    "Instances": "rankers.instances",
    "Judgments": "judgments.table",
    "LabelFeatures": "label_learning.label_features",
    "LambdaMART": "rankers.lambdamart",
    "LambdaRankNet": "rankers.network",
    "LinearRemapper": "label_learning.linear",
    "LocalEngine": "engine.local",
    "MajorityVote": "consensus.votes",
    "OneCoinDawidSkene": "consensus.dawid_skene",
    "PointwiseGBDT": "rankers.pointwise",
    "Policy": "collection.base",
    "Pool": "collection.pool",
    "RD": "rankers.reweighting",
    "Ranker": "rankers.base",
    "Rasch": "consensus.rasch",
    "RunResult": "pipeline.result",
    "Remapped": "label_learning.remapped_labels",
    "Remapper": "label_learning.remapper",
    "ShardedJudgments": "judgments.sharded",
    "ThresholdDawidSkene": "consensus.threshold",
    "TreeFeatureGLS": "rankers.linear",
    "TreeFeatures": "rankers.tree_features",
    "assess": "assessors.report",
    "compare": "evaluation.comparison",
    "distill": "rankers.distillation",
    "evaluate": "evaluation.evaluate",
    "export": "rankers.export.write",
    "get_aggregator": "consensus",
    "get_engine": "engine.registry",
    "get_policy": "collection",
    "get_ranker": "rankers",
    "label_features": "label_learning.label_features",
    "read_features": "judgments.features",
    "read_gold": "judgments.read",
    "read_judgments": "judgments.read",
    "read_partitions": "judgments.partitions",
    "read_run": "judgments.runs",
    "run": "pipeline.run",
    "scheme_costs": "collection.costs",
    "simulate": "simulation.world",
    "validate": "judgments.validation",
    "write_report": "reports.page",
}
"""Module that defines each public name, relative to the package."""
_MODULES = {"charts": "reports.charts", "constraints": "constraints", "errors": "errors", "testing": "testing"}
"""Path of each public module, relative to the package."""
__all__ = sorted([*_LOCATIONS, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(f"crowdrank.{_MODULES[name]}")
    elif name in _LOCATIONS:
        value = getattr(importlib.import_module(f"crowdrank.{_LOCATIONS[name]}"), name)
    else:
        raise AttributeError(f"module 'crowdrank' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
