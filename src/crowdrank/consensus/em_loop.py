"""The EM loop: passes over shards until convergence, with progress and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from crowdrank._progress import ProgressBar, Report, reporting
from crowdrank._typing import Arrays
from crowdrank.consensus._coerce import match_gold
from crowdrank.consensus.assembly import Assembly
from crowdrank.consensus.checkpoints import Checkpoint, CheckpointedFit, State
from crowdrank.consensus.feature_scores import FeatureScores
from crowdrank.consensus.result import Consensus
from crowdrank.engine.base import Engine, Passes
from crowdrank.engine.blas import single_blas_thread
from crowdrank.engine.local import LocalEngine
from crowdrank.engine.shards import JUDGMENTS_PER_SHARD
from crowdrank.errors import ClusterError, DataWarning, Fix, find_interrupt
from crowdrank.judgments.features import Features
from crowdrank.judgments.gold import Gold

if TYPE_CHECKING:
    from crowdrank.consensus._base import EMAggregator


@dataclass(frozen=True)
class FitOptions:
    """Options of a fit: engine, progress and checkpoint, which do not change its result, and features."""

    engine: Engine | None = None
    progress: bool | Report = False
    checkpoint: str | Path | Checkpoint | None = None
    features: Features | None = None


@dataclass(frozen=True, eq=False)
class FitStart:
    """State before the first iteration of a fit.

    Attributes:
        theta: parameters to start from, if any.
        scores: predictions of relevance from features, if any.
        warnings: problems of the features.

    """

    theta: Arrays | None
    scores: FeatureScores | None = None
    warnings: tuple[DataWarning, ...] = ()


def estimate(
    model: EMAggregator, judgments: Any, gold: Gold | None, start: FitStart, options: FitOptions, rounds: int | None
) -> tuple[State, Consensus, list[DataWarning]]:
    """Fit a model and return its final state, its consensus and data warnings; the model is unchanged.

    Args:
        model: the model.
        judgments: judgments in memory or on disk.
        gold: expert grades, if any.
        start: parameters and predictions from features to start from.
        options: engine, progress and checkpoint.
        rounds: number of iterations; None: until convergence, at most `n_iter`.

    """
    theta, scores = start.theta, start.scores
    name, n_iter = type(model).__name__, model.n_iter if rounds is None else rounds
    prepared = model._prepare(judgments)
    gold_codes: Any = None if gold is None else match_gold(gold, prepared, model.takes_scales)
    item_scores = None if scores is None else scores.for_items(prepared)
    passes = (options.engine or LocalEngine()).open(model, prepared, gold_codes, item_scores)
    checkpoint = options.checkpoint
    if isinstance(checkpoint, str | Path):
        checkpoint = Checkpoint(checkpoint)
    state = None
    if checkpoint is not None:
        shard_size = getattr(options.engine, "shard_size", JUDGMENTS_PER_SHARD)
        fit = CheckpointedFit(model, prepared, gold_codes, theta, len(passes.shards), shard_size, item_scores)
        state = checkpoint.resume(fit)
    with single_blas_thread(), reporting(options.progress, name) as report:
        if isinstance(report, ProgressBar):
            report.stage(name, n_iter)
            passes.set_progress_callback(report.within)
        if state is None:
            state = State(theta, passes.accumulate(theta), [])
        else:
            passes.restore(state.local)
        try:
            iterate(model, passes, state, n_iter, len(prepared), report, checkpoint)
            if n_iter:
                state.theta, state.statistics = model._after_iterations(passes, state.theta, state.statistics)
        except (KeyboardInterrupt, SystemError, ClusterError) as problem:
            raise_after_failure(problem, passes, state, checkpoint)
        if isinstance(report, ProgressBar):
            report.stage(f"{name}: writing", 1)
        fitted = Assembly(model, prepared, state.theta, state.statistics, gold_codes, scores)
        consensus, data_warnings = fitted.conclude(passes)
    if checkpoint is not None:
        checkpoint.remove()
    return state, consensus, data_warnings


def iterate(
    model: EMAggregator,
    passes: Passes,
    state: State,
    n_iter: int,
    n_judgments: int,
    report: Report | None = None,
    checkpoint: Checkpoint | None = None,
) -> None:
    """Run M-steps and passes, so that local state always belongs to the last theta, and update the state."""
    while len(state.history) < n_iter and not state.converged:
        theta = model._maximize(state.theta, state.statistics, passes.n_jobs)
        statistics = passes.accumulate(theta)
        state.theta, state.statistics = theta, statistics
        state.history.append(model._objective(theta, statistics, n_judgments))
        state.converged = has_converged(state.history, model.tol) and model._is_settled(theta)
        if report is not None:
            report(len(state.history), n_iter, state.history[-1])
        if checkpoint is not None:
            checkpoint.save_if_due(state, passes)


def has_converged(history: list[float], tol: float) -> bool:
    """Return whether the objective changed by less than `tol`; a model without one (NaN) needs one iteration.

    >>> has_converged([-1.2, -1.1999], 1e-3), has_converged([-1.2], 1e-3), has_converged([float("nan")], 1e-3)
    (True, False, True)
    """
    return bool(np.isnan(history[-1])) or (len(history) > 1 and abs(history[-1] - history[-2]) < tol)


def raise_after_failure(
    problem: BaseException, passes: Passes, state: State, checkpoint: Checkpoint | None
) -> NoReturn:
    """Save the state of an interrupted fit, and raise the interrupt or error with a note where the state is."""
    if isinstance(problem, ClusterError):
        if checkpoint is None or not checkpoint.path.exists():
            raise problem
        fix = Fix("continue the fit with {}", "checkpoint", str(checkpoint.path))
        raise ClusterError(replace(problem.message, fixes=(*problem.fixes, fix))) from problem
    if (interrupt := find_interrupt(problem)) is None:
        raise problem
    if checkpoint is not None and state.history:
        checkpoint.save(state, passes)
        interrupt.add_note(f"The fit is kept in {checkpoint.path}: the same command goes on from there.")
    raise interrupt from None
