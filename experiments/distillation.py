"""What is lost when one forest replaces the ranker that `run` selects?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from crowdrank import Features, simulate
from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.cli.demo_commands import DEFAULT_N_QUERIES, MAX_EXPERT_QUERIES
from crowdrank.errors import UsageError
from crowdrank.judgments.table import Judgments
from crowdrank.pipeline.run import run
from crowdrank.pipeline.run_result import Deployable
from crowdrank.rankers.distillation import N_TREES
from experiments.base import Experiment, Row, Table, Tell, quiet, seeds_text, select_names
from experiments.dl20 import drawn_judges
from experiments.documents import crowd_over, dl20_documents, mq2008

MEASURE = "nDCG@10"
SEEDS = tuple(range(10, 15))
"""Seeds that were not used when the distillation was designed (0 to 4 were)."""
MAX_LOSS = 0.003
"""Largest mean loss that is acceptable."""
JUDGES_PER_FAMILY = 9
"""Maximum number of DL20's judges per family."""
Inputs = tuple[Any, Any, Any]
"""Judgments, features and expert grades."""


def demo_world(seed: int) -> Inputs:
    """Return the simulated data of `crowdrank demo`."""
    world = simulate(queries=DEFAULT_N_QUERIES, gold_queries=MAX_EXPERT_QUERIES, random_state=seed)
    return world.judgments, world.features, world.gold


def mq2008_crowd(seed: int) -> Inputs:
    """Return MQ2008 with a simulated crowd."""
    features = mq2008()[0]
    return _with_experts(features, crowd_over(features, seed))


def dl20_judges(seed: int) -> Inputs:
    """Return DL20 with some of its LLM judges."""
    features, judges = dl20_documents()
    return _with_experts(features, judges.where(drawn_judges(judges, JUDGES_PER_FAMILY, seed=seed)[judges.assessor]))


def _with_experts(features: Features, crowd: Judgments) -> Inputs:
    """Return judgments, features without grades, and the grades as those of experts."""
    ids = {"query": features.query.to_pandas(), "document": features.document.to_pandas()}
    return crowd, replace(features, grade=None), pd.DataFrame({**ids, "grade": features.grade})


SETTINGS: Mapping[str, Callable[[int], Inputs]] = {"demo": demo_world, "mq2008": mq2008_crowd, "dl20": dl20_judges}


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    seeds: Sequence[int] = SEEDS,
    tell: Tell = quiet,
) -> Experiment:
    """Compare the selected ranker with one forest on all data sets, or on those in `only`."""
    if methods is not None:
        raise UsageError("The experiment distillation tries what `run` tries; --methods is for other experiments.")
    names = select_names(only, SETTINGS, "data set")
    rows = [row for name in names for row in setting_rows(name, seeds, tell)]
    return Experiment("distillation", (loss_table(rows, seeds),), tuple(_protocol(seeds)))


def _protocol(seeds: Sequence[int]) -> list[str]:
    return [
        "`crowdrank run` with its defaults on the simulated data of `crowdrank demo`, on MQ2008 with a simulated crowd "
        f"(3 labels per document), and on DL20 with at most {JUDGES_PER_FAMILY} LLM judges of each family and NIST as "
        f"the experts; {seeds_text(seeds)}, each with other test queries.",
        f"distilled is one forest of {N_TREES} trees that is fitted to the scores of the selected ranker without the "
        "test queries and without labels; --deployable is the best single forest by cross-validation.",
        f"The difference in {MEASURE} to the ranker that `run` selects is the mean over seeds; its 95% interval is "
        "Student's over seeds. Correlation is the mean of Kendall's tau-b within test queries.",
        "Number of leaves and of mixed rows were chosen on seeds 0 to 4 by the correlation with the imitated ranker on "
        "held-out queries; seven settings were tried, and their nDCG@10 was seen.",
    ]


def setting_rows(name: str, seeds: Sequence[int], tell: Tell) -> list[Row]:
    """Return the rows of a data set: the imitation, and the best single forest."""
    forests: dict[str, list[Deployable]] = {"distilled": [], "--deployable": []}
    for seed in seeds:
        tell(f"{name}, seed {seed}")
        for way, one in zip(forests, run_both(SETTINGS[name](seed), seed), strict=True):
            forests[way].append(one)
    return [{"run": f"{name}, {way}", **figures(results)} for way, results in forests.items()]


def run_both(inputs: Inputs, seed: int) -> tuple[Deployable, Deployable]:
    """Return the forest of a run with default settings, and of one that selects among forests only."""
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options: dict[str, Any] = {"output": Path(folder) / "run", "measure": MEASURE, "random_state": seed}
        results = [run(*inputs, **options, deployable=only_forests) for only_forests in (False, True)]
    forests = [result.rankers.deployable for result in results if result.rankers is not None]
    assert forests[0] is not None
    assert forests[1] is not None
    return forests[0], forests[1]


def figures(forests: Sequence[Deployable]) -> Row:
    """Return the mean difference to the selected ranker with its interval over seeds, and the rank correlation.

    A forest that is the selected ranker itself has the difference 0 and the correlation 1.
    """
    contrasts = [one.contrast for one in forests]
    difference = np.array([0.0 if one is None else one.difference for one in contrasts])
    correlation = [1.0 if one.rank_correlation is None else one.rank_correlation for one in forests]
    lower, upper = student_interval(difference)
    means = [(one.other_mean, one.mean) for one in contrasts if one is not None]
    selected, forest = np.mean(means, axis=0) if means else (np.nan, np.nan)
    return {
        f"selected {MEASURE}": float(selected),
        f"forest {MEASURE}": float(forest),
        "difference": float(difference.mean()),
        "lower": lower,
        "upper": upper,
        "correlation": float(np.mean(correlation)),
        "trees": max(one.n_trees for one in forests),
    }


def student_interval(values: Floats, level: float = 0.95) -> tuple[float, float]:
    """Return Student's confidence interval of a mean.

    >>> [round(end, 3) for end in student_interval(np.array([1.0, 2.0, 3.0]))]
    [-0.484, 4.484]
    """
    half = student.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def loss_table(rows: Sequence[Row], seeds: Sequence[int]) -> Table:
    """Return the table, with a note on the largest loss."""
    losses = {row["run"]: -row["difference"] for row in rows if row["run"].endswith("distilled")}
    met = [name for name, loss in losses.items() if loss <= MAX_LOSS]
    note = (
        f"The distilled forest loses at most {MAX_LOSS} on {len(met)} of {counted(len(losses), 'data set')} (mean over "
        f"{counted(len(seeds), 'seed')}); the largest mean loss is {max(losses.values()):.4f}."
    )
    return Table("loss", "One forest instead of the selected ranker", tuple(rows), (note,))
