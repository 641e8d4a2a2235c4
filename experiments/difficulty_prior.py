"""Prior of GDA with difficulty: whether difficulty follows relevance, and whether it changes the ranking of RF10."""

from __future__ import annotations

import warnings

import numpy as np

from crowdrank.consensus.gda import GDA
from crowdrank.readers.datasets import dataset
from experiments.agreement import spearman
from experiments.base import compared_runs, ranking
from experiments.difficulty import draw_skewed
from experiments.rf10 import MEASURES
from experiments.robustness import Goal

SEEDS = range(3100, 3105)
"""Random states that were not used while the prior was developed."""


def skewed_correlations(seed: int) -> tuple[float, float]:
    """Return rank correlations of the estimated difficulty with true relevance and with true difficulty."""
    judgments, relevance, log_difficulty = draw_skewed(seed)
    documents = GDA(difficulty=True).fit(judgments).consensus_.documents
    item, difficulty = documents["document"].to_numpy(int), documents["difficulty"].to_numpy()
    return spearman(difficulty, relevance[item]), spearman(difficulty, log_difficulty[item])


def rf10_changes() -> dict[str, float]:
    """Return the changes of the measures on RF10 by difficulty."""
    data = dataset("trec-rf10")
    judgments, gold = data.read_judgments(), data.read_gold()
    models = {name: GDA(difficulty=name == "difficulty") for name in ("plain", "difficulty")}
    runs = {name: ranking(model.fit(judgments)) for name, model in models.items()}
    table = compared_runs("crowd", "", runs, gold.frame, MEASURES, baseline="plain")
    rows = {row["run"]: row for row in table.rows}
    return {name: float(rows["difficulty"][name]) - float(rows["plain"][name]) for name in MEASURES}


def goals() -> list[Goal]:
    """Return correlations of difficulty on draws from eq. 1 with skewed grades, and the changes on RF10."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with_relevance, with_difficulty = np.transpose([skewed_correlations(seed) for seed in SEEDS])
        changes = rf10_changes()
    return [
        Goal("largest |correlation| of difficulty and relevance", float(np.abs(with_relevance).max()), at_most=0.2),
        Goal("lowest correlation with true difficulty", float(with_difficulty.min()), at_least=0.3),
        *(Goal(f"RF10: change of {name} by difficulty", change, at_least=0) for name, change in changes.items()),
    ]
