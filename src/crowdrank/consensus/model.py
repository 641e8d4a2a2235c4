"""Contract of all aggregators, and the fit of a model by EM in the order in which it runs.

    fit                   check the parameters; read judgments, expert grades and features
    _fit                  choose where to start: the parameters of another model, or the data
    _estimate             annotate the judgments, learn predictions from features, run EM, warn
    _run                  prepare the judgments, open passes over their shards, resume a checkpoint
    iterate               M-step, E-step of all shards and objective, until `has_converged`
    ConsensusBuilder.build     the consensus from the rows of the documents

A model implements the hooks `_start` and `_accumulate` (E-step), `_maximize` (M-step) and `_finish` (rows). Afterwards
`infer` applies the parameters to other judgments, `add` continues with more, `save` and `load` store them.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._estimator import load_estimator_class
from crowdrank._folders import MAX_SAVED_FLOAT, Fields, FolderKind, check_output_folder
from crowdrank._progress import ProgressBar, Report, reporting
from crowdrank._saved_estimators import FittedEstimator
from crowdrank._text import counted, heading, panel, paragraph
from crowdrank._typing import Arrays
from crowdrank.consensus import METHODS, inspection, saved_models
from crowdrank.consensus.assembly import CONSENSUS_FOLDER, ConsensusBuilder
from crowdrank.consensus.crowdkit import CrowdKitMethods
from crowdrank.consensus.data_warnings import families_unused, hard_labels_used
from crowdrank.consensus.fit_data import as_gold, as_judgments, as_preferences, match_gold
from crowdrank.consensus.grade_rules import DEFAULT_RULE, GRADE_RULES
from crowdrank.consensus.inspection import InspectionMethods
from crowdrank.consensus.latent import first_cuts
from crowdrank.consensus.result import Consensus
from crowdrank.consensus.saved_models import Checkpoint, CheckpointedFit, FitState, FullFit
from crowdrank.constraints import Constraints, Number, OneOf, check_parameter
from crowdrank.engine.passes import Engine, LocalEngine, LocalPasses, Passes, single_blas_thread
from crowdrank.engine.shards import JUDGMENTS_PER_SHARD, Shard
from crowdrank.errors import ClusterError, ConvergenceWarning, DataWarning, Fix, InputError, UsageError, find_interrupt
from crowdrank.judgments import ids
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.joined import JoinedJudgments, join, no_judgments
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.scale import GradeMapLike
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk.joined_shards import JoinedShards
from crowdrank.on_disk.sharded import ShardedJudgments
from crowdrank.readers.combine import combine
from crowdrank.readers.features import Features, as_features
from crowdrank.readers.preference_files import combine_preferences

if TYPE_CHECKING:
    from crowdrank.consensus.feature_scores import FeatureScores

Inputs = tuple[Literal["scales", "soft labels"], ...]
"""Inputs that not all models can use.

`scales`: assessors with different scales; other models need a map of each scale to a common one.
`soft labels`: probabilities of grades; other models use the label of each judgment.
"""
ITERATIONS_AFTER_ADD = 10
"""Default number of iterations of :meth:`Aggregator.add`."""
MAX_GROWTH, MAX_CHANGE = 0.05, 0.02
"""Maximum growth of the judgments, and maximum change of expected grades, by updates since the last full fit.

The change is the 95% quantile over documents, in steps of the scale. The distance from a full fit is about as large,
unless more judgments lead a full fit to another local maximum.
"""
MODEL = FolderKind("model", 1, "saved model", "save")
"""Kind of the folder of a saved model."""
Table = TypeVar("Table", Judgments, ShardedJudgments)
"""Judgments in memory or on disk."""
States = tuple[NDArray[np.float64], NDArray[np.float64]]
"""P(state), (n_states,), and P(answer | state) as [assessor, answer, state]."""
Gaussians = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""Mean, width (variance) and weight of each assessor and grade, (n_assessors, n_grades) each; NaN: no such grade."""


@dataclass(frozen=True)
class ThetaArray:
    """Declaration of an array of parameters.

    Attributes:
        by_assessor: whether its first axis is the assessors; a warm start then matches its rows by their ids.
        bounds: smallest and largest valid value in a saved model.

    """

    by_assessor: bool = False
    bounds: tuple[float, float] = (-MAX_SAVED_FLOAT, MAX_SAVED_FLOAT)


@dataclass(frozen=True)
class FitOptions:
    """Options of a fit: engine, progress and checkpoint, which do not change its result; features and preferences."""

    engine: Engine | None = None
    progress: bool | Report = False
    checkpoint: str | Path | Checkpoint | None = None
    features: Features | None = None
    preferences: Preferences | None = None


@dataclass(frozen=True, eq=False)
class FitStart:
    """Parameters and predictions from which the iterations of a fit start.

    Attributes:
        theta: parameters to start from, if any.
        scores: predictions of relevance from features, if any.
        warnings: problems of the features.
        consensus: consensus of the same judgments by `theta`, if the fit is an update; one that ends far from it is
            repeated from the data.

    """

    theta: Arrays | None
    scores: FeatureScores | None = None
    warnings: tuple[DataWarning, ...] = ()
    consensus: Consensus | None = None


class Aggregator(CrowdKitMethods, InspectionMethods, FittedEstimator):
    """Contract of all models that turn judgments into a consensus.

    To write a model, derive from :class:`EMAggregator`.

    Attributes:
        consensus_: the :class:`Consensus`.
        judgments_: the judgments of the fit.
        gold_: the expert grades of the fit, if any.
        preferences_: the preferences of the fit, if any.
        history_: the objective after each iteration.
        n_iter_: number of iterations.
        converged_: whether the fit converged.

    """

    takes: ClassVar[Inputs] = ()
    """Inputs that the model uses as they are: `scales`, `soft labels`, or both."""

    _folder: ClassVar[FolderKind] = MODEL
    _file: ClassVar[str] = "model"
    _parameter_constraints: ClassVar[Constraints] = {
        "unjudgeable_as": [OneOf("lowest", "drop")],
        "interval": [Number(0, 1, above=True, below=True)],
        "grade_by": [OneOf(*GRADE_RULES)],
    }

    unjudgeable_as: str
    interval: float
    grade_by: str = DEFAULT_RULE

    consensus_: Consensus
    judgments_: Judgments  # or ShardedJudgments
    gold_: Gold | None
    preferences_: Preferences | None = None
    history_: list[float]
    n_iter_: int
    converged_: bool

    def fit(
        self,
        judgments: Any,
        gold: Any = None,
        *,
        gold_map: GradeMapLike | None = None,
        features: Any = None,
        preferences: Any = None,
        init: Aggregator | None = None,
        engine: Engine | None = None,
        progress: bool | Report = False,
        checkpoint: str | Path | Checkpoint | None = None,
        output: str | Path | None = None,
    ) -> Self:
        """Estimate the consensus.

        Args:
            judgments: `Judgments`, a path, or a DataFrame (query, document, assessor, grade; or task, worker, label);
                or `ShardedJudgments`, which stay on disk.
            gold: expert grades (`Gold`, a path, a DataFrame, or a Series of labels indexed by task), which fix the
                grades of their items.
            gold_map: the grades that each expert grade stands for, if the experts' scale is another one: `0=0-1,1=2-4`
                or `{0: [0, 1], 1: [2, 3, 4]}`.
            features: features of documents (`Features`, a path or a DataFrame), from which relevance gets a prior. They
                may include documents without judgments, which then get a prediction. Labels that used features must not
                serve to compare rankers that use the same features.
            preferences: preferences between two documents (`Preferences`, a path or a DataFrame), for :class:`GDA`.
                With preferences, `judgments` can be None. They are used in memory.
            init: a fitted model of the same class to start from.
            engine: where the passes run; by default on this machine in one thread.
            progress: show a progress bar, or call a function with (iteration, n_iter, objective).
            checkpoint: a folder for the state of an unfinished fit; a fit of the same data resumes from it.
            output: a new folder for the consensus of judgments on disk: a Parquet file of documents for each shard,
                and a table of assessors. By default a temporary folder beside the shards.

        """
        self._check_parameters()
        if preferences is not None:
            self._check_preferences()
            preferences = as_preferences(preferences)
            judgments = no_judgments(preferences.backend) if judgments is None else judgments
        table: Any = judgments if isinstance(judgments, ShardedJudgments) else as_judgments(judgments)
        if output is not None:
            table = _with_output(table, Path(output))
        if init is not None:
            if type(init) is not type(self):
                problem = f"must be a fitted {type(self).__name__}, not {type(init).__name__}"
                raise UsageError(problem, parameter="init", kind="other-model")
            init._require_fitted()
        if features is not None:
            self._check_features()
            features = as_features(features)
        options = FitOptions(engine, progress, checkpoint, features, preferences)
        self._fit(table, as_gold(gold, table, gold_map), init, options)
        if isinstance(self, EMAggregator) and self.on_a_line and len(self.judgments_):
            from crowdrank.consensus.posterior_check import excess_agreement

            for warning in excess_agreement(self, self.judgments_):
                warnings.warn(warning, stacklevel=2)
        return self

    def infer(self, judgments: Any = None, *, preferences: Any = None) -> Consensus:
        """Return the consensus of other judgments and preferences with the fitted parameters.

        Args:
            judgments: as in :meth:`fit`.
            preferences: as in :meth:`fit`. Without judgments and preferences, the consensus is that of the fit.

        """
        self._require_fitted()
        if preferences is None:
            return self.consensus_ if judgments is None else self._infer(as_judgments(judgments, self.judgments_))
        self._check_preferences()
        preferences = as_preferences(preferences)
        if judgments is None:
            judgments = no_judgments(preferences.backend, self.judgments_)
        return self._infer(as_judgments(judgments, self.judgments_), preferences)

    def add(
        self,
        judgments: Any = None,
        *,
        preferences: Any = None,
        n_iter: int | None = ITERATIONS_AFTER_ADD,
        engine: Engine | None = None,
        progress: bool | Report = False,
    ) -> Self:
        """Add judgments or preferences; a new one replaces the previous one of its assessor on the same documents.

        Documents are estimated from all their judgments, starting from the parameters of the assessors, which are
        then updated in a few iterations over all judgments. An update can end far from where a full fit ends. So the
        model is fitted again from the start if, since the last full fit, the number of judgments and preferences has
        grown by more than 5%, or updates have changed the expected grades of more than 5% of the documents by more than
        0.02 (without grades, the relevance).

        Args:
            judgments: as in :meth:`fit`.
            preferences: as in :meth:`fit`.
            n_iter: number of iterations; 0 keeps the parameters of assessors, None iterates until convergence. A full
                fit always iterates until convergence.
            engine: as in :meth:`fit`.
            progress: as in :meth:`fit`.

        """
        self._require_fitted()
        check_parameter("n_iter", n_iter, [Number(0, integer=True), None])
        if judgments is None and preferences is None:
            fixes = [Fix("give {}", "judgments"), Fix("give {}", "preferences")]
            raise UsageError("there is nothing to add", kind="no-input", fix=fixes)
        table = as_judgments(self.judgments_)
        if judgments is not None:
            new = as_judgments(judgments, table if len(table) else None)
            table = combine(table, new) if len(table) else new
        if preferences is not None:
            self._check_preferences()
            preferences = combine_preferences(self.preferences_, as_preferences(preferences))
        else:
            preferences = self.preferences_
        return self._add(table, n_iter, FitOptions(engine, progress, preferences=preferences))

    def _check_features(self) -> None:
        """Raise UsageError if the model, with its parameters, cannot use features."""
        fix = "use a model with a prior of relevance, such as gda"
        raise UsageError(f"cannot be used by {type(self).__name__}", parameter="features", kind="no-prior", fix=fix)

    def _check_preferences(self) -> None:
        """Raise UsageError if the model, with its parameters, cannot use preferences."""
        problem = f"cannot be used by {type(self).__name__}"
        raise UsageError(problem, parameter="preferences", kind="no-preferences", fix="use GDA (gda)")

    @abstractmethod
    def _fit(
        self, judgments: Judgments | ShardedJudgments, gold: Gold | None, init: Self | None, options: FitOptions
    ) -> Self:
        """Fit the model to judgments in their internal form."""

    @abstractmethod
    def _add(self, judgments: Judgments, n_iter: int | None, options: FitOptions) -> Self:
        """Update the fitted model; `judgments`, and the preferences of the options, are all of them, old and new."""

    @abstractmethod
    def _infer(self, judgments: Judgments, preferences: Preferences | None = None) -> Consensus:
        """Return the consensus of judgments that the model was not fitted to, with its fitted parameters."""

    @abstractmethod
    def posterior_table(self, judgments: Any = None) -> pa.Table:
        """Return :meth:`posterior` as an Arrow table."""

    @property
    @abstractmethod
    def assessor_estimator_(self) -> EMAggregator:
        """Fitted model whose parameters of assessors are reported; a meta-estimator returns one of its models."""

    @property
    @abstractmethod
    def in_grades(self) -> bool:
        """Whether relevance is in grades; otherwise it is in standard deviations from the mean document."""

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "consensus_")

    def _repr_html_(self) -> str:
        if not self.__sklearn_is_fitted__():
            return panel(heading(repr(self)), paragraph("not fitted yet"))
        ended = f"{counted(self.n_iter_, 'iteration')}, {'converged' if self.converged_ else 'not converged'}"
        return panel(heading(repr(self)), paragraph(ended), self.consensus_._repr_html_())

    @classmethod
    def _registered_classes(cls) -> Iterable[type[Any]]:
        return (load_estimator_class("consensus", location) for location in METHODS.values())


class EMAggregator(Aggregator):
    """Base of models that are fitted in passes over shards: EM, or one pass.

    A subclass implements `_start`, `_accumulate`, `_maximize` and `_finish`. Iterations, convergence, progress,
    checkpoints, expert grades, warm starts and storage are shared.

    Attributes:
        theta_: the parameters of the model as named arrays.
        full_fit_: the last full fit before updates, :class:`FullFit`.
        feature_scores_: predictions of relevance from features, if features were used.

    """

    theta_arrays: ClassVar[Mapping[str, ThetaArray]] = {}
    """Arrays of theta that have a row per assessor or bounds; others need no declaration."""
    carries: ClassVar[tuple[str, ...] | None] = None
    """Names of the arrays of local state that a pass reads from the previous one; None: all of them.

    If local state is on disk, only these are stored; `_restart` or another pass makes the others.
    """
    locality: ClassVar[str] = "item"
    """What a shard keeps together: the judgments of an `item`, or the items of a `query`."""
    on_a_line: ClassVar[bool] = False
    """Whether relevance is a latent trait on a line."""

    _parameter_constraints: ClassVar[Constraints] = {
        "n_iter": [Number(1, integer=True)],
        "tol": [Number(0, finite=False)],
    }

    n_iter: int
    tol: float
    theta_: Arrays
    full_fit_: FullFit
    feature_scores_: FeatureScores | None = None

    # The hooks of a model.

    @abstractmethod
    def _start(self, shard: Shard) -> Arrays:
        """Return the local state of a shard (named arrays that stay with it between passes) before the first pass."""

    @abstractmethod
    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Return the new local state and the statistics of a shard (E-step); statistics of shards are summed.

        If theta is None, the local state is that of `_start`.
        """

    @abstractmethod
    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """Return new parameters from the summed statistics (M-step)."""

    @abstractmethod
    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """Return the estimates of the items of a shard after the last iteration.

        Returns:
            Arrays `relevance`, `sd`, `lower`, `upper` of shape (n_items,), `p` (the probability of each grade) of
            shape (n_items, n_grades), and optionally `difficulty` and `unjudgeable`.

        """

    # A fit: where it starts.

    def _fit(self, judgments: Any, gold: Gold | None, init: Self | None, options: FitOptions) -> Self:
        theta = None if init is None else self._start_from(init, judgments, gold, options.preferences)
        return self._estimate(judgments, gold, FitStart(theta), options)

    def _start_from(
        self, init: EMAggregator, table: Judgments, gold: Gold | None, preferences: Preferences | None = None
    ) -> Arrays | None:
        """Return the parameters of a fitted model for these judgments and experts, or None if grades or states differ.

        New assessors get the parameters of `_new_assessors`. If the number of expert grades differs, the cut points
        between them start from the shares of these grades.
        """
        prepared = self._prepare_with(table, preferences)
        same_states = init._models_unjudgeable == self._models_unjudgeable
        if not same_states or init._prepare(init.judgments_).scales != prepared.scales:
            return None
        known = ids.match(init.consensus_.assessor_table["assessor"].combine_chunks(), prepared.assessors)
        theta = dict(init.theta_)
        for name in set(self._assessor_arrays()) & set(theta):
            rows = init.theta_[name][np.maximum(known, 0)]
            rows[known < 0] = self._new_assessors(init.theta_, name, prepared.assessor_scale[known < 0])
            theta[name] = rows
        n_grades = 0 if gold is None else len(gold.scale)
        if "expert_cuts" in theta and n_grades != (0 if init.gold_ is None else len(init.gold_.scale)):
            codes = np.zeros(0, np.int8) if gold is None else gold.code
            theta["expert_cuts"] = first_cuts(np.bincount(codes, minlength=n_grades).astype(np.float64))
        return self._start_preferences(theta, prepared)

    def _start_preferences(self, theta: Arrays, prepared: Judgments) -> Arrays:
        """Return the parameters with those of preferences, if the prepared judgments have any, and else without."""
        return theta

    def _new_assessors(self, theta: Arrays, name: str, scale_of: NDArray[np.int8]) -> NDArray[Any]:
        """Return rows of theta[name] for new assessors with these scales: by default the mean of all assessors."""
        return np.repeat(theta[name].mean(axis=0, keepdims=True), len(scale_of), axis=0)

    def _annotate(self, table: Table, gold: Gold | None) -> tuple[Table, list[DataWarning]]:
        """Return the judgments with what is estimated before the fit, such as families of assessors; and warnings."""
        return table, []

    def _start_fit(self, table: Any, gold: Gold | None, start: FitStart, options: FitOptions) -> FitStart:
        """Return where EM starts; a model may first estimate further values, such as predictions from features."""
        return start

    def _prepare(self, table: Table) -> Table:
        """Return the judgments as the model uses them: on its scales, with 'cannot judge' answers replaced.

        A modeled 'cannot judge' is the answer after the grades.
        """
        keeps_scales = "scales" in self.takes and not table.maps_to_one_scale
        used = table if "soft labels" in self.takes else table.with_hard_labels()
        prepared = (used if keeps_scales else used.to_one_scale()).with_unjudgeable(self.unjudgeable_as)
        return prepared.with_unjudgeable_answer() if self._models_unjudgeable else prepared

    def _prepare_with(self, table: Table, preferences: Preferences | None) -> Table:
        """Return the judgments as the model uses them, joined with preferences if there are any."""
        prepared: Any = self._prepare(table)
        return prepared if preferences is None else cast("Table", self._join(prepared, preferences))

    def _join(self, prepared: Judgments | ShardedJudgments, preferences: Preferences) -> JoinedJudgments | JoinedShards:
        """Return prepared judgments joined with preferences."""
        if isinstance(prepared, ShardedJudgments):
            return JoinedShards.of(prepared, preferences)
        return join(prepared, preferences)

    @property
    def _models_unjudgeable(self) -> bool:
        """Whether 'cannot judge' is one more answer, and documents that cannot be judged one more state."""
        return self.unjudgeable_as == "model"

    # A fit: iterations, warnings and the result.

    def _estimate(
        self, judgments: Any, gold: Gold | None, start: FitStart, options: FitOptions, n_iter: int | None = None
    ) -> Self:
        """Run EM for `n_iter` iterations, or until convergence, and set the attributes of a fitted model."""
        table, early_warnings = self._annotate(judgments, gold)
        start = self._start_fit(table, gold, start, options)
        state, consensus, data_warnings = self._run(table, gold, start, options, n_iter)
        full_fit = FullFit(count_answers(table, options.preferences))
        if start.consensus is not None:
            change = self.full_fit_.change + grade_change_quantile(start.consensus, consensus)
            if change <= MAX_CHANGE:
                full_fit = replace(self.full_fit_, change=change)
            else:
                start, n_iter = FitStart(None, start.scores), None
                state, consensus, data_warnings = self._run(table, gold, start, options, n_iter)
        self.full_fit_ = full_fit
        self.theta_, self.feature_scores_ = state.theta, start.scores
        self.judgments_, self.gold_, self.consensus_ = table, gold, consensus
        self.preferences_ = options.preferences
        self.history_, self.n_iter_, self.converged_ = state.history, len(state.history), state.converged
        if judgments.has_soft_labels and "soft labels" not in self.takes:
            data_warnings.append(hard_labels_used(type(self).__name__))
        if table.families is not None and self._assessor_arrays() and "families" not in self._parameter_names():
            data_warnings.append(families_unused(type(self).__name__))
        for warning in (*early_warnings, *start.warnings, *data_warnings):
            warnings.warn(warning, stacklevel=4)
        if not self.converged_ and n_iter is None:
            problem = f"{type(self).__name__} stopped after {self.n_iter_} iterations and had not converged"
            warnings.warn(ConvergenceWarning(problem, fix=convergence_fixes(self.history_, self.tol)), stacklevel=4)
        return self

    def _run(
        self, table: Any, gold: Gold | None, start: FitStart, options: FitOptions, n_iter: int | None
    ) -> tuple[FitState, Consensus, list[DataWarning]]:
        """Return the final state, the consensus and data warnings; the model itself is unchanged."""
        name, n_iter = type(self).__name__, self.n_iter if n_iter is None else n_iter
        prepared = self._prepare_with(table, options.preferences)
        n_answers = count_answers(prepared, options.preferences)
        gold_codes = self._match_gold(gold, prepared)
        item_scores = None if start.scores is None else start.scores.for_items(prepared)
        passes = (options.engine or LocalEngine()).open(self, prepared, gold_codes, item_scores)
        checkpoint, state = options.checkpoint, None
        if isinstance(checkpoint, str | Path):
            checkpoint = Checkpoint(checkpoint)
        if checkpoint is not None:
            shard_size = getattr(options.engine, "shard_size", JUDGMENTS_PER_SHARD)
            n_shards = len(passes.shards)
            fit = CheckpointedFit(self, prepared, gold_codes, start.theta, n_shards, shard_size, item_scores)
            state = checkpoint.resume(fit)
        with single_blas_thread(), reporting(options.progress, name) as report:
            if isinstance(report, ProgressBar):
                report.stage(name, n_iter)
                passes.set_progress_callback(report.show_share)
            if state is None:
                state = FitState(start.theta, passes.accumulate(start.theta), [])
            else:
                passes.restore(state.local)
            try:
                iterate(self, passes, state, n_iter, n_answers, report, checkpoint)
            except (KeyboardInterrupt, SystemError, ClusterError) as problem:
                raise_after_failure(problem, passes, state, checkpoint)
            if isinstance(report, ProgressBar):
                report.stage(f"{name}: writing", 1)
            fitted = ConsensusBuilder(self, prepared, state.theta, state.statistics, gold_codes, start.scores)
            consensus, data_warnings = fitted.build(passes)
        if checkpoint is not None:
            checkpoint.remove()
        return state, consensus, data_warnings

    def _match_gold(self, gold: Gold | None, prepared: Judgments | ShardedJudgments) -> Any:
        """Return the codes of the expert grades of the items (`ItemGold` or `ShardGold`), or None."""
        return None if gold is None else match_gold(gold, prepared, "scales" in self.takes)

    def _restart(self, shard: Shard) -> Arrays:
        """Return the state of a shard for a pass with known parameters, without the arrays of earlier passes."""
        return self._start(shard)

    def _objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        """Return the mean log posterior per judgment; NaN if the model has none and needs one iteration."""
        return float("nan")

    def _is_settled(self, theta: Arrays) -> bool:
        """Return whether the fit may stop when the objective has converged; a model can set a further condition."""
        return True

    def _after_iterations(self, passes: Passes, theta: Arrays, statistics: Arrays) -> tuple[Arrays, Arrays]:
        """Return the final parameters and statistics; a model may estimate further parameters after the last M-step."""
        return theta, statistics

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """Return the model's columns of the table of assessors, (n_assessors,) each."""
        return {}

    # After a fit: other judgments, more judgments, storage.

    def _infer(self, judgments: Judgments, preferences: Preferences | None = None) -> Consensus:
        prepared, theta, passes = self._open_passes(judgments, preferences)
        statistics = passes.accumulate(theta)
        assembly = ConsensusBuilder(self, prepared, theta, statistics, scores=self.feature_scores_)
        return assembly.consensus(passes)

    def _open_passes(
        self, table: Judgments, preferences: Preferences | None = None
    ) -> tuple[Judgments, Arrays, LocalPasses[Shard]]:
        """Return the prepared judgments, the fitted parameters for their assessors, and passes over their shards."""
        if preferences is None and table is self.judgments_:
            preferences = self.preferences_
        prepared, theta = self._prepare_with(table, preferences), self._start_from(self, table, self.gold_, preferences)
        if theta is None:
            grades, fitted = (" / ".join(map(str, one.scales)) for one in (prepared, self._prepare(self.judgments_)))
            raise InputError(f"the grades {grades} are not those fitted ({fitted})", kind="other-grades")
        gold = None if self.gold_ is None else self.gold_.for_items(prepared)
        scores = None if self.feature_scores_ is None else self.feature_scores_.for_items(prepared)
        return prepared, theta, LocalEngine().open(self, prepared, gold, scores)

    def _add(self, judgments: Judgments, n_iter: int | None, options: FitOptions) -> Self:
        start = FitStart(self._start_from(self, judgments, self.gold_, options.preferences), self.feature_scores_)
        has_grown = count_answers(judgments, options.preferences) > (1 + MAX_GROWTH) * self.full_fit_.n_judgments
        if start.theta is None or (has_grown and n_iter != 0):
            return self._estimate(judgments, self.gold_, replace(start, theta=None), options)
        full_fit = self.full_fit_
        if n_iter != 0:
            start = replace(start, consensus=self._infer(judgments, options.preferences))
        self._estimate(judgments, self.gold_, start, options, n_iter)
        if n_iter == 0:
            self.full_fit_ = full_fit
        return self

    def _write_state(self, folder: Path) -> dict[str, Any]:
        saved_models.write_model(self, folder)
        return saved_models.saved_fields(self)

    def _read_state(self, folder: Path, fields: Fields, files: Iterable[str]) -> None:
        saved_models.read_data(self, folder, fields, files)
        saved_models.read_results(self, folder)

    def _check_theta(self, theta: Arrays, example: Arrays, n_assessors: int) -> None:
        """Raise ValueError unless saved parameters have the names, types and shapes of an example and valid values."""
        saved_models.check_theta(self, theta, example, n_assessors)

    # What a fitted model says about documents and assessors.

    @property
    def assessor_estimator_(self) -> EMAggregator:
        """The model itself."""
        return self

    @property
    def in_grades(self) -> bool:
        """Whether relevance is in grades; otherwise it is in standard deviations from the mean document."""
        return not self.on_a_line

    def posterior_table(self, judgments: Any = None) -> pa.Table:
        """Return :meth:`posterior` as an Arrow table."""
        return inspection.posterior_table(self, judgments)

    def _line_posterior(self, local: Arrays) -> NDArray[np.float64]:
        """Return P(node) of each item, (n_items, n_nodes), for a model whose theta has `nodes`."""
        return local["posterior"]

    def _states(self, theta: Arrays) -> States | None:
        """Return P(state) and P(answer | state) by these parameters, as in :meth:`answer_states`."""
        return None

    def _all_states(self, theta: Arrays) -> States | None:
        """Return P(state) and P(answer | state) as `_states`, with the difficulty as part of a state."""
        return self._states(theta)

    def _gaussians(self, theta: Arrays) -> Gaussians | None:
        """Return mu, w and alpha of each assessor and grade, or None if grades are not Gaussians over relevance.

        The arrays of theta by assessor may have the rows of some assessors only.
        """
        return None

    def _judgment_weights(self, prepared: Judgments) -> NDArray[np.float64] | None:
        """Return the weight of each judgment, (n,), or None if all are 1."""
        return None

    @classmethod
    def _assessor_arrays(cls) -> list[str]:
        """Return the names of the arrays of theta that have a row per assessor."""
        return [name for name, array in cls.theta_arrays.items() if array.by_assessor]


def iterate(
    model: EMAggregator,
    passes: Passes,
    state: FitState,
    n_iter: int,
    n_judgments: int,
    report: Report | None = None,
    checkpoint: Checkpoint | None = None,
) -> None:
    """Run EM until convergence and update the state.

    A pass follows each M-step, so that local state always belongs to the last theta.
    """
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
    if n_iter:
        state.theta, state.statistics = model._after_iterations(passes, state.theta, state.statistics)


def has_converged(history: list[float], tol: float) -> bool:
    """Return whether the objective changed by less than `tol`; a model without one (NaN) needs one iteration.

    >>> has_converged([-1.2, -1.1999], 1e-3), has_converged([-1.2], 1e-3), has_converged([float("nan")], 1e-3)
    (True, False, True)
    """
    return bool(np.isnan(history[-1])) or (len(history) > 1 and abs(history[-1] - history[-2]) < tol)


def convergence_fixes(history: list[float], tol: float) -> list[Fix]:
    """Return what helps a fit that has not converged.

    More iterations help only while the objective rises; a fit with a falling one can end farther from the truth.

    >>> [fix.parameter for fix in convergence_fixes([-1.2, -1.1], 1e-5)]
    ['n_iter', 'tol']
    >>> [fix.parameter for fix in convergence_fixes([-1.1, -1.2], 1e-5)]
    ['tol']
    """
    is_rising = len(history) < 2 or history[-1] > history[-2]
    return [Fix("raise {}", "n_iter")] * (is_rising and tol > 0) + [Fix("raise {}", "tol")]


def count_answers(judgments: Judgments | ShardedJudgments, preferences: Preferences | None) -> int:
    """Return the number of judgments and preferences together."""
    return len(judgments) + (0 if preferences is None else len(preferences))


def grade_change_quantile(before: Consensus, after: Consensus) -> float:
    """Return the 95% quantile over documents of the change of the expected grade, in steps of the scale.

    Without grades, it is that of relevance.
    """
    values = {"relevance": 1}
    if "grade" in before.document_table.column_names:
        values = {name: code for code, name in enumerate(after.true_share_names)}
    change = sum(value * (after.numbers(name) - before.numbers(name)) for name, value in values.items())
    return float(np.quantile(np.abs(change), 0.95))


def raise_after_failure(
    problem: BaseException, passes: Passes, state: FitState, checkpoint: Checkpoint | None
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


def _with_output(table: Judgments | ShardedJudgments, output: Path) -> ShardedJudgments:
    if isinstance(table, ShardedJudgments):
        check_output_folder(output, CONSENSUS_FOLDER)
        return replace(table, output=output)
    raise UsageError("is for judgments on disk; those in memory have their consensus in consensus_", parameter="output")
