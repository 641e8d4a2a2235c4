"""Goals of families of correlated assessors: which pairs are found, and whether intervals keep their level.

A world has assessors whose errors correlate within families, declared nowhere. The figures are the share of pairs of a
family that is found (recall), the share of other pairs that are joined (false pairs), and the share of documents whose
true relevance is in the 95% interval of GDA with `families="found"` (coverage). DL23 shows how many independent
judges 33 prompts of LLMs are worth, if the family is the part of the name before the first hyphen.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd

from crowdrank import GDA, read_judgments
from crowdrank._typing import Floats, Integers
from crowdrank.consensus.find_families import FoundFamilies, find_families
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import Dataset
from experiments.robustness import Goal

DOCUMENTS = 1_500
"""Number of documents of a world."""
SEEDS, COVERAGE_SEEDS, NULL_WORLDS = 5, 2, 200
"""Numbers of worlds for pairs and for coverage, and number of worlds without families."""
CUTS = np.array([-0.3, 0.5, 1.3])
"""Thresholds between grades."""
THIRTY = np.arange(30)
DL23 = Dataset(
    "llmjudge-dl23",
    "passages of TREC Deep Learning 2023 judged by 33 LLM judges",
    "https://llm4eval.github.io/LLMJudge-benchmark/",
    ("llm_graded_labels.tsv.gz",),
    ("llm_graded_labels.tsv.gz", {"grades": "0-3", "family_pattern": "([^-]*)-", "on_bad_rows": "skip"}),
)


@dataclass(frozen=True, eq=False)
class World:
    """Families of assessors, and the correlation of errors within a family and, in addition, within a finer one."""

    family: Integers
    correlation: float = 0.6
    finer: Integers | None = None
    finer_correlation: float = 0.0

    def draw(self, seed: int, n_documents: int = DOCUMENTS) -> tuple[Judgments, Floats]:
        """Return the judgments of a world and the true relevance of its documents."""
        rng, size = np.random.default_rng(seed), len(self.family)
        relevance, noise = rng.normal(size=n_documents), 0.8 * np.exp(rng.normal(0, 0.3, size))
        own = np.sqrt(1 - self.correlation - self.finer_correlation) * rng.normal(size=(n_documents, size))
        error = own + np.sqrt(self.correlation) * rng.normal(size=(n_documents, size))[:, self.family]
        if self.finer is not None:
            error += np.sqrt(self.finer_correlation) * rng.normal(size=(n_documents, size))[:, self.finer]
        seen = relevance[:, None] + noise * error
        grade = (seen[..., None] > CUTS + rng.normal(0, 0.2, (size, 1))).sum(axis=-1)
        document, assessor = np.indices(grade.shape)
        frame = pd.DataFrame({"document": document.ravel(), "assessor": assessor.ravel(), "grade": grade.ravel()})
        return read_judgments(frame, grades="0-3"), (relevance - relevance.mean()) / relevance.std()


WORLDS = {
    "6 families of 5, correlation .6": World(THIRTY // 5),
    "6 families of 5, correlation .9": World(THIRTY // 5, 0.9),
    "12 families of 5": World(np.arange(60) // 5),
    "a family of 15 and 15 single": World(np.where(THIRTY < 15, 0, THIRTY)),
    "a family of 25 and 5 single": World(np.where(THIRTY < 25, 0, THIRTY)),
    "2 families of 3 finer ones of 5": World(THIRTY // 15, 0.3, THIRTY // 5, 0.3),
}


def goals() -> list[Goal]:
    """Return the figure of every goal."""
    result = []
    for name, world in WORLDS.items():
        recall, false_pairs = np.mean([_pairs(world, seed) for seed in range(SEEDS)], axis=0)
        result.append(Goal(f"{name}: recall of pairs", float(recall), at_least=0.95))
        result.append(Goal(f"{name}: false pairs", float(false_pairs), at_most=0.01))
        covered = float(np.mean([_coverage(world, 50 + seed) for seed in range(COVERAGE_SEEDS)]))
        result.append(Goal(f"{name}: coverage", covered, at_least=0.93, at_most=0.97))
    null = World(THIRTY, 0.0)
    found = sum(bool(find_families(null.draw(1_000 + seed)[0]).groups) for seed in range(NULL_WORLDS))
    result.append(Goal("worlds with a family of 200 without any", float(found), at_most=0))
    return [*result, Goal("llmjudge-dl23: independent judges of 33", dl23_judges(), at_least=1, at_most=33)]


def dl23_judges() -> float:
    """Return the number of independent judges that the judges of DL23 are worth, if a family counts as one."""
    declared = DL23.read_judgments()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GDA(n_iter=1).fit(declared).n_eff_


def _pairs(world: World, seed: int) -> tuple[float, float]:
    """Return the share of pairs within families that are found, and of other pairs that are joined."""
    found: FoundFamilies = find_families(world.draw(seed)[0])
    upper = np.triu_indices(len(world.family), 1)
    true, joined = (((codes[:, None] == codes)[upper]) for codes in (world.family, found.family))
    return float(joined[true].mean()), float(joined[~true].mean())


def _coverage(world: World, seed: int) -> float:
    """Return the share of documents whose relevance is in the interval of GDA with the families that it finds."""
    judgments, relevance = world.draw(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        documents = GDA(families="found").fit(judgments).consensus_.documents
    true = relevance[documents["document"].to_numpy()]
    return float(((documents["lower"] <= true) & (true <= documents["upper"])).mean())
