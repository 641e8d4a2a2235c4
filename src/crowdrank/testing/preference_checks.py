"""Checks that an aggregator refuses preferences between documents, or uses them well."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from crowdrank._typing import Floats
from crowdrank.consensus.model import Aggregator
from crowdrank.engine.passes import LocalEngine
from crowdrank.errors import ConvergenceWarning, DataWarning, UsageError
from crowdrank.testing.estimator_checks import assert_frames_close, raises

N_QUERIES, N_DOCUMENTS, N_PREFERENCES, N_ASSESSORS = 20, 8, 600, 6
"""Number of queries, of documents per query, of preferences, and of assessors of the simulated preferences."""
N_COVERAGE_SEEDS, COVERAGE = 6, (0.93, 0.97)
"""Number of simulated worlds, and range of the share of intervals of level 0.95 that contain the true relevance."""
MIN_CORRELATION = 0.97
"""Minimum rank correlation of relevance before and after an assessor without information is added."""


def example_preferences(random_state: int = 0) -> tuple[pd.DataFrame, Floats]:
    """Return preferences by assessors of different sharpness and position bias, and the true relevance."""
    rng = np.random.default_rng(random_state)
    relevance = rng.normal(size=(N_QUERIES, N_DOCUMENTS))
    sharpness, bias = np.exp(rng.normal(0.5, 0.4, N_ASSESSORS)), rng.normal(0.3, 0.4, N_ASSESSORS)
    sizes = (N_QUERIES, N_DOCUMENTS, N_ASSESSORS)
    query, left, assessor = (rng.integers(0, size, N_PREFERENCES) for size in sizes)
    right = (left + rng.integers(1, N_DOCUMENTS, N_PREFERENCES)) % N_DOCUMENTS
    latent = sharpness[assessor] * (relevance[query, left] - relevance[query, right]) + bias[assessor]
    latent += rng.logistic(size=N_PREFERENCES)
    names = {"query": ("q", query), "left": ("d", left), "right": ("d", right), "assessor": ("w", assessor)}
    columns = {name: [f"{letter}{code}" for code in codes] for name, (letter, codes) in names.items()}
    answer = np.where(np.abs(latent) < 0.3, 0, -np.sign(latent)).astype(np.int64)
    frame = pd.DataFrame({**columns, "preference": answer})
    return frame.drop_duplicates(["query", "left", "right", "assessor"], ignore_index=True), relevance


def _fit(model: Aggregator, preferences: pd.DataFrame, **options: Any) -> Aggregator:
    """Return a copy of the model, fitted to preferences alone without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        return model.unfitted().fit(None, preferences=preferences, **options)


def _document_table(model: Aggregator) -> pd.DataFrame:
    frame: pd.DataFrame = model.consensus_.document_table.to_pandas()
    return frame.set_index(["query", "document"]).sort_index()


def _takes_preferences(model: Aggregator) -> bool:
    try:
        model._check_preferences()
    except UsageError:
        return False
    return True


def _for_preferences(check: Callable[[Aggregator], None]) -> Callable[[Aggregator], None]:
    """Return a check that passes for models that do not take preferences."""

    def checked(model: Aggregator) -> None:
        if _takes_preferences(model):
            check(model)

    checked.__name__, checked.__doc__ = check.__name__, check.__doc__
    return checked


def check_preferences(model: Aggregator) -> None:
    """Check that a model refuses preferences, or counts them and gives finite relevance within its interval."""
    frame, _ = example_preferences()
    if not _takes_preferences(model):
        with raises(UsageError, "preferences for another model", kind="no-preferences", parameter="preferences"):
            model.unfitted().fit(None, preferences=frame)
        return
    table = _document_table(_fit(model, frame))
    assert table["preferences"].sum() == 2 * len(frame), "each preference must count for two documents"
    assert np.isfinite(table[["relevance", "sd", "lower", "upper"]]).all(axis=None), "relevance must be finite"
    assert table["relevance"].between(table["lower"], table["upper"]).all(), "relevance must be between the bounds"
    assert "grade" not in table, "there must be no grades without judgments"


@_for_preferences
def check_mirrored_preferences(model: Aggregator) -> None:
    """Check that exchanged sides with the opposite answers give the same relevance and the opposite position bias."""
    frame, _ = example_preferences()
    mirrored = frame.rename(columns={"left": "right", "right": "left"}).assign(preference=-frame["preference"])
    one, other = _fit(model, frame), _fit(model, mirrored)
    columns = ["relevance", "sd", "lower", "upper"]
    assert_frames_close(_document_table(one)[columns], _document_table(other)[columns], 1e-5, "exchanging the sides")
    biases = [fitted.consensus_.assessor_table.to_pandas().set_index("assessor") for fitted in (one, other)]
    if "position_bias" in biases[0]:
        gap = (biases[0]["position_bias"] + biases[1]["position_bias"].reindex(biases[0].index)).abs().max()
        assert gap < 1e-5, "exchanging the sides must change the sign of the position bias"


@_for_preferences
def check_ids_of_preferences_do_not_matter(model: Aggregator) -> None:
    """Check that other ids and another order of the rows give the same results."""
    frame, _ = example_preferences()
    renamed = frame.sample(frac=1, random_state=1)
    for column in ("query", "left", "right", "assessor"):
        renamed[column] = renamed[column].map(lambda name: f"{9 - int(name[-1])}-{name}")
    one, other = _document_table(_fit(model, frame)), _document_table(_fit(model, renamed))
    other.index = pd.MultiIndex.from_tuples(
        [tuple(name[2:] for name in pair) for pair in other.index], names=one.index.names
    )
    assert_frames_close(one, other.sort_index(), 1e-5, "renaming ids")


@_for_preferences
def check_an_assessor_without_information(model: Aggregator) -> None:
    """Check that an assessor who answers at random hardly changes the order of documents."""
    frame, _ = example_preferences()
    rng = np.random.default_rng(1)
    random = frame.sample(len(frame) // N_ASSESSORS, random_state=1)
    random = random.assign(assessor="random", preference=rng.choice([-1, 1], len(random)))
    one, other = (_document_table(_fit(model, table))["relevance"] for table in (frame, pd.concat([frame, random])))
    correlation = one.corr(other.reindex(one.index), "spearman")
    assert correlation > MIN_CORRELATION, f"an assessor without information changes the order ({correlation:.3f})"


@_for_preferences
def check_coverage_of_preferences(model: Aggregator) -> None:
    """Check that intervals of level 0.95 contain the true relevance in 93% to 97% of the cases."""
    model, inside = model.set_params(interval=0.95), []
    for seed in range(N_COVERAGE_SEEDS):
        frame, relevance = example_preferences(seed)
        table = _document_table(_fit(model, frame))
        truth = np.array([relevance[int(query[1:]), int(document[1:])] for query, document in table.index])
        truth = (truth - truth.mean()) / truth.std()
        inside.append((table["lower"] <= truth) & (truth <= table["upper"]))
    share = float(np.concatenate(inside).mean())
    assert COVERAGE[0] <= share <= COVERAGE[1], f"intervals of level 0.95 contain {share:.1%} of the true relevance"


@_for_preferences
def check_threads_and_storage_of_preferences(model: Aggregator) -> None:
    """Check that threads do not change results, and that a loaded model has the results and the preferences."""
    frame, _ = example_preferences()
    fitted, threads = (_fit(model, frame, engine=LocalEngine(n_jobs, shard_size=100)) for n_jobs in (1, 3))
    same = fitted.consensus_.document_table.equals(threads.consensus_.document_table)
    assert same, "the number of threads must not change results"
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "model")
        loaded = type(model).load(Path(folder) / "model")
    assert loaded.consensus_.document_table.equals(fitted.consensus_.document_table), "load must restore the documents"
    assert loaded.preferences_ is not None, "load must restore the preferences"
    assert len(loaded.preferences_) == len(frame), "load must restore the preferences"
