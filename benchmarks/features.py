"""Time of fits with a prior from features, compared with fits without."""

from __future__ import annotations

import time
import warnings
from typing import Any
from unittest.mock import patch

from benchmarks.measure import Result, at_most, best, in_own_process
from experiments.documents import crowd_over, dl20_documents, mq2008

MODELS = {"GDA": 3, "DawidSkene": 3, "GDAPairwise": 1}
"""Number of runs of each model."""
GOAL = 3.0


def _documents(data: str) -> tuple[Any, Any]:
    """Return features and judgments."""
    if data == "DL20":
        return dl20_documents()
    features, _ = mq2008()
    return features, crowd_over(features, seed=0)


def _seconds(name: str, data: str, runs: int) -> tuple[float, float, float]:
    """Return the CPU time of a fit without features, of one with features without its regressions, and of these."""
    import crowdrank
    from crowdrank.consensus.feature_scores import UsableFeatures

    warnings.simplefilter("ignore")
    features, judgments = _documents(data)
    in_regressions: list[float] = []
    learn_scores = UsableFeatures.learn_scores

    def timed(*arguments: Any) -> Any:
        start = time.process_time()
        scores = learn_scores(*arguments)
        in_regressions.append(time.process_time() - start)
        return scores

    model = getattr(crowdrank, name)
    model(n_iter=2, tol=1.0).fit(judgments, features=features)  # compiles, and imports LightGBM
    without = best(lambda: model().fit(judgments), 2 * runs, time.process_time)
    rest, trees = [], []
    with patch.object(UsableFeatures, "learn_scores", timed):
        for _ in range(runs):
            in_regressions.clear()
            total = best(lambda: model().fit(judgments, features=features), 1, time.process_time)
            trees.append(sum(in_regressions))
            rest.append(total - trees[-1])
    return without, min(rest), min(trees)


def feature_prior() -> list[Result]:
    """Divide the time of a fit with features, without that of the trees, by the time of a fit without features."""
    results = []
    for data in ("DL20", "MQ2008"):
        for name, runs in MODELS.items():
            without, rest, trees = in_own_process(_seconds, name, data, runs)
            total = (rest + trees) / (without + trees)
            details = {
                "without": without,
                "with, except trees": rest,
                "trees": trees,
                "with / (without + trees)": total,
            }
            results.append(
                at_most(
                    f"{name}, {data}, CPU time: fit with features, except its trees / without features",
                    rest / without,
                    GOAL,
                    **details,
                )
            )
    return results
