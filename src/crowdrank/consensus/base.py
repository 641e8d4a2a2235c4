"""The contract of every model that turns judgments into a consensus, and the loop that they share."""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import crowdrank
from crowdrank._array_io import arrays_to_table, read_arrays
from crowdrank._base import Parametrized
from crowdrank._folders import FolderKind, check_output_folder, open_folder, write_folder
from crowdrank._notebook import heading, panel, paragraph
from crowdrank._progress import ProgressBar, Report, reporting
from crowdrank._saved import LARGEST, Fields, loading, read_parquet, require, require_array, require_range
from crowdrank._text import counted
from crowdrank._typing import Arrays
from crowdrank.consensus import METHODS, crowdkit, diagnostics, kernels, model_class
from crowdrank.consensus._coerce import as_gold, as_judgments, gold_of
from crowdrank.consensus.checkpoints import Checkpoint, State, fingerprint
from crowdrank.consensus.information import information
from crowdrank.consensus.latent import NODES
from crowdrank.consensus.on_disk import (
    ASSESSORS,
    CONSENSUS,
    DOCUMENTS,
    ShardWriter,
    StoredConsensus,
    output_of,
    summed,
    write_about,
)
from crowdrank.consensus.result import (
    TIE,
    Consensus,
    check_consensus,
    document_table,
    grade_labels,
    item_ids,
    share_names,
)
from crowdrank.engine.base import Engine, Passes
from crowdrank.engine.blas import single_blas_thread
from crowdrank.engine.local import LocalEngine, LocalPasses
from crowdrank.engine.shards import JUDGMENTS_PER_SHARD, Shard, shards_of
from crowdrank.errors import (
    ClusterError,
    ConvergenceWarning,
    DataWarning,
    Fix,
    InputError,
    NotFittedError,
    UsageError,
    interrupt_in,
    shown,
)
from crowdrank.judgments import frames, ids, storage
from crowdrank.judgments.gold import Gold, ShardGold
from crowdrank.judgments.merge import combine
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

if TYPE_CHECKING:
    import pandas as pd


ROUNDS = 10
"""Iterations over everything after judgments were added."""
EXAMPLE_ASSESSORS = 509
"""Number of assessors in the example that saved parameters are checked against; no other size is as large."""
MODEL_FILE = "model.json"
MODEL = FolderKind("model", 1, "saved model", "save")
Table = TypeVar("Table", Judgments, ShardedJudgments)
"""Judgments in memory or on disk."""


class Aggregator(Parametrized, ABC):
    """Judgments in, consensus out. The constructor only stores; what is learned ends in an underscore.

    A model states four functions (see `engine/base.py`): `start`, `accumulate`, `maximize`, `finish`; the loop,
    convergence, progress, checkpoints, gold, warm starts and storage are here.

    Attributes:
        consensus_: the :class:`Consensus`.
        theta_: the model's parameters, named arrays.
        history_: the objective after each iteration (mean log posterior per judgment).
        n_iter_, converged_: how the loop ended.

    """

    locality: ClassVar[str] = "item"
    shrinks: ClassVar[bool] = False
    """Whether assessors are shrunk to a prior, learned or fixed, that cannot be switched off."""
    on_a_line: ClassVar[bool] = False
    """Whether relevance is a point of a line that common documents tie the assessors' scales to."""
    on_nodes: ClassVar[bool] = False
    """Whether the posterior of relevance is kept on the nodes of `latent.py`."""
    takes_scales: ClassVar[bool] = False
    """Whether assessors may use different scales; otherwise each needs a map to one."""
    assessor_arrays: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays of theta whose first axis is the assessors."""
    theta_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """Lowest and highest values of arrays of theta; any other array has finite values."""
    carries: ClassVar[tuple[str, ...] | None] = None
    """Names of the arrays of local state that a pass reads of the one before; None: all. The others are not kept where
    local state is on disk: `start`, or a pass with the same theta, makes them again."""

    _threads: int = 1
    """While a fit runs: how many threads an M-step may take."""

    n_iter: int
    tol: float
    unjudgeable_as: str
    interval: float

    consensus_: Consensus
    theta_: Arrays
    history_: list[float]
    n_iter_: int
    converged_: bool
    judgments_: Judgments  # or ShardedJudgments, where they stayed on disk
    gold_: Gold | None

    # What a model states.

    @abstractmethod
    def start(self, shard: Shard) -> Arrays:
        """The shard's local state before the first pass."""

    @abstractmethod
    def accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """One pass: new local state and statistics; with no theta, only count what `start` set."""

    def restart(self, shard: Shard) -> Arrays:
        """Local state for a pass with a theta, as far as it is not carried from the pass before: `start`, or less."""
        return self.start(shard)

    @abstractmethod
    def maximize(self, theta: Arrays | None, statistics: Arrays) -> Arrays:
        """New parameters from the summed statistics."""

    @abstractmethod
    def finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """Per item: relevance, sd, lower, upper, grade (a code), p (n_items, n_grades) and, if any, difficulty."""

    def objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        """Mean log posterior per judgment under theta; NaN for models without one, which then need one iteration."""
        return float("nan")

    def assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """The parameters to show per assessor, (n_assessors,) each."""
        return {}

    def states(self, theta: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """The shares of the latent states, and P(answer | state) as [assessor, answer, state], where a model has them.

        A state is a true grade or a point of the latent scale. From these comes the informativeness of assessors.
        """
        return None

    def all_states(self, theta: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """As `states`, with the difficulties of documents among the states, where a model has them."""
        return self.states(theta)

    def weights(self, prepared: Judgments) -> NDArray[np.float64] | None:
        """What each judgment counts (n,), where not all count alike."""
        return None

    def newcomers(self, theta: Arrays, name: str, scale_of: NDArray[np.int8]) -> NDArray[Any]:
        """Rows of theta[name] for assessors of whom nothing but the scale is known: what the crowd as a whole does."""
        return np.repeat(theta[name].mean(axis=0, keepdims=True), len(scale_of), axis=0)

    # The loop.

    def fit(
        self,
        judgments: Any,
        gold: Any = None,
        *,
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
            gold: expert grades (`Gold`, a path, a DataFrame, or a Series of labels indexed by task); their items are
                held at them.
            init: a fitted model of the same class to start from.
            engine: where the passes run; by default here, in one thread.
            progress: show a bar when it takes long, or call a function with (iteration, most, objective).
            checkpoint: a folder that keeps the state of an unfinished fit; a fit of the same data goes on from it.
            output: where the consensus of judgments on disk goes, a new folder: a Parquet file of documents for each
                shard, a table of assessors. By default one beside the shards that goes when Python ends.

        """
        self._check()
        table: Any = judgments if isinstance(judgments, ShardedJudgments) else as_judgments(judgments)
        if output is not None:
            table = _writing_to(table, Path(output))
        known = as_gold(gold, table)
        theta = None if init is None else self.adopted(init, table)
        return self._fit(table, known, theta, engine, progress, checkpoint)

    def add(
        self,
        judgments: Any,
        *,
        rounds: int | None = ROUNDS,
        engine: Engine | None = None,
        progress: bool | Report = False,
    ) -> Self:
        """Fold in more judgments; a new one replaces an old one of its assessor on the same document.

        Documents are known anew from all their judgments with the assessors as they were; then the assessors follow
        in a few rounds over everything.

        Args:
            judgments: as in :meth:`fit`.
            rounds: iterations over everything; 0 leaves the assessors as they are, None goes on until it converges.
            engine, progress: as in :meth:`fit`.

        """
        self._require_fitted()
        if rounds is not None and rounds < 0:
            raise UsageError(f"rounds is a number from 0 up, or None for as many as it takes, not {rounds}.")
        table = combine(as_judgments(self.judgments_), as_judgments(judgments, self.judgments_))
        theta = self.adopted(self, table)
        return self._fit(table, self.gold_, theta, engine, progress, None, None if theta is None else rounds)

    def _fit(
        self,
        table: Any,
        gold: Gold | None,
        theta: Arrays | None,
        engine: Engine | None,
        progress: bool | Report,
        checkpoint: str | Path | Checkpoint | None,
        rounds: int | None = None,
    ) -> Self:
        prepared: Any = self.prepared(table)
        gold_codes: Any = None if gold is None else gold_of(gold, prepared)
        passes = (engine or LocalEngine()).open(self, prepared, gold_codes)
        keeper = Checkpoint(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint
        resumed = None
        if keeper is not None:
            keeper.bind(fingerprint(self, prepared, gold_codes, theta, len(passes.shards)))
            shard_size = getattr(engine, "shard_size", JUDGMENTS_PER_SHARD)
            resumed = keeper.load(self, prepared, shards_of(prepared, gold_codes, self.locality, shard_size))
        with single_blas_thread(), reporting(progress, type(self).__name__) as report:
            most = self.n_iter if rounds is None else rounds
            if isinstance(report, ProgressBar):
                report.stage(type(self).__name__, most)
                passes.watch(report.within)
            self._threads = passes.n_jobs
            try:
                theta, statistics = self._iterate(passes, theta, len(prepared), keeper, resumed, report, most)
            finally:
                del self._threads
            if isinstance(report, ProgressBar):
                report.stage(f"{type(self).__name__}: writing", 1)
            conclude = self._conclude_on_disk if isinstance(prepared, ShardedJudgments) else self._conclude
            consensus, told = conclude(prepared, passes, theta, statistics, gold_codes)
        self.theta_, self.judgments_, self.gold_, self.consensus_ = theta, table, gold, consensus
        if keeper is not None:
            keeper.remove()
        for sentence in told:
            warnings.warn(sentence, DataWarning, stacklevel=3)
        if not self.converged_ and rounds is None:
            warnings.warn(
                f"{type(self).__name__} stopped after {self.n_iter_} iterations and had not converged; "
                f"raise n_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _conclude(
        self, prepared: Judgments, passes: Passes, theta: Arrays, statistics: Arrays, gold: NDArray[np.int8] | None
    ) -> tuple[Consensus, list[str]]:
        """The consensus, and what has to be said of it."""
        rows = passes.finish(theta)
        told = self._cautions(
            prepared.assessors,
            overlapping=lambda: bool((np.diff(prepared.offsets) > 1).any()),
            groups=lambda: diagnostics.groups_of(prepared, gold),
            by_relevance=lambda: diagnostics.moments(diagnostics.mean_grades(prepared), rows["relevance"]),
            by_experts=None if gold is None else lambda: diagnostics.by_experts(prepared, gold),
        )
        return self._consensus(prepared, rows, theta, statistics, gold), told

    def _conclude_on_disk(
        self, prepared: ShardedJudgments, passes: Passes, theta: Arrays, statistics: Arrays, gold: ShardGold | None
    ) -> tuple[Consensus, list[str]]:
        """As `_conclude`, shard by shard into the folder of the consensus."""
        output, method = output_of(prepared), type(self).__name__
        with write_folder(output, CONSENSUS) as folder:
            (folder / DOCUMENTS).mkdir()
            total = summed(passes.finish_to(theta, ShardWriter(prepared, gold, str(folder / DOCUMENTS))))
            accuracy = None if gold is None else (total["agreed"], total["asked"])
            about = self._assessor_table(prepared, prepared.counts[:, 0], theta, statistics, accuracy)
            pq.write_table(about, folder / ASSESSORS)
            labels, n_documents = grade_labels(prepared), int(total["documents"][0])
            write_about(folder, method, len(prepared), prepared.main_scale, labels, n_documents)
        told = self._cautions(
            prepared.assessors,
            overlapping=lambda: bool(total["overlapping"][0]),
            groups=lambda: total["groups"],
            by_relevance=lambda: total["by_relevance"],
            by_experts=None if gold is None else lambda: total["by_experts"],
        )
        return StoredConsensus(output), told

    def _cautions(
        self,
        assessors: pa.Array,
        overlapping: Callable[[], bool],
        groups: Callable[[], NDArray[np.int64]],
        by_relevance: Callable[[], NDArray[np.float64]],
        by_experts: Callable[[], NDArray[np.float64]] | None,
    ) -> list[str]:
        """What had to be taken on trust; only what this model trusts in is looked at."""
        told: list[str | None] = []
        alone = by_experts is None and bool(self.assessor_arrays) and not overlapping()
        if alone:
            told.append(diagnostics.NO_OVERLAP)
        elif self.on_a_line:
            told.append(diagnostics.told_of_groups(groups()[:-1], assessors))
        if by_experts is not None:
            told.append(diagnostics.AGAINST_EXPERTS if diagnostics.against(by_experts()) else None)
        elif self.assessor_arrays:
            told.append(diagnostics.REVERSED if diagnostics.against(by_relevance()) else None)
        return [sentence for sentence in told if sentence is not None]

    def _iterate(
        self,
        passes: Passes,
        theta: Arrays | None,
        n: int,
        keeper: Checkpoint | None,
        resumed: State | None,
        report: Report,
        most: int,
    ) -> tuple[Arrays, Arrays]:
        """Maximize, then pass: the local state is always that of the last theta, so `predict` equals `fit_predict`."""
        self.history_, self.n_iter_, self.converged_ = [], 0, False
        if resumed is None:
            statistics = passes.accumulate(theta)
        else:
            theta, statistics = resumed.theta, resumed.statistics
            self.history_, self.n_iter_ = resumed.history, len(resumed.history)
            passes.restore(resumed.local)
        try:
            while self.n_iter_ < most and not self.converged_:
                new_theta = self.maximize(theta, statistics)
                statistics = passes.accumulate(new_theta)
                theta = new_theta
                self.history_.append(self.objective(theta, statistics, n))
                self.n_iter_ += 1
                self.converged_ = self._has_converged()
                report(self.n_iter_, most, self.history_[-1])
                if keeper is not None:
                    keeper.offer(theta, statistics, passes.local_state, self.history_)
        except (KeyboardInterrupt, SystemError) as problem:
            if (interrupt := interrupt_in(problem)) is None:
                raise
            if keeper is not None and theta is not None and self.history_:
                keeper.save(theta, statistics, passes.local_state(), self.history_)
                interrupt.add_note(f"The fit is kept in {keeper.path}: the same command goes on from there.")
            raise interrupt from None
        except ClusterError as problem:
            if keeper is None or not keeper.path.exists():
                raise
            fix = Fix("continue the fit with {}", "checkpoint", str(keeper.path))
            raise ClusterError(replace(problem.message, fixes=(*problem.fixes, fix))) from problem
        assert theta is not None
        return theta, statistics

    def _has_converged(self) -> bool:
        if np.isnan(self.history_[-1]):
            return True
        return len(self.history_) > 1 and abs(self.history_[-1] - self.history_[-2]) < self.tol

    def prepared(self, table: Table) -> Table:
        """The judgments as the model takes them: which scales, and what 'cannot judge' means."""
        as_they_are = self.takes_scales and not table.maps_to_one_scale
        return (table if as_they_are else table.on_one_scale()).with_unjudgeable(self.unjudgeable_as)

    def _check(self) -> None:
        whole = isinstance(self.n_iter, int | np.integer) and not isinstance(self.n_iter, bool)
        if not whole or self.n_iter < 1:
            raise UsageError(f"n_iter is a whole number from 1 up, not {self.n_iter!r}.")
        if not isinstance(self.tol, int | float) or not self.tol >= 0:
            raise UsageError(f"tol is a number from 0 up, not {self.tol!r}.")
        if not isinstance(self.interval, int | float) or not 0 < self.interval < 1:
            raise UsageError(f"interval is a level between 0 and 1, not {self.interval!r}.")

    def adopted(self, init: Aggregator, table: Judgments) -> Arrays | None:
        """The parameters of a fitted model over the assessors of `table`."""
        if type(init) is not type(self):
            raise UsageError(f"init is a {type(init).__name__}; a {type(self).__name__} starts from its own kind.")
        init._require_fitted()
        prepared = self.prepared(table)
        if init.prepared(init.judgments_).scales != prepared.scales:
            return None  # parameters of other grades say nothing here
        known = ids.match(init.consensus_.assessor_table["assessor"].combine_chunks(), prepared.assessors)
        theta = dict(init.theta_)
        for name in self.assessor_arrays:
            rows = init.theta_[name][np.maximum(known, 0)]
            rows[known < 0] = self.newcomers(init.theta_, name, prepared.assessor_scale[known < 0])
            theta[name] = rows
        return theta

    # Results.

    def predict(self, judgments: Any = None) -> pd.Series[Any]:
        """The label of each document, with the assessors as they were estimated."""
        return crowdkit.label_series(self.infer(judgments))

    def predict_proba(self, judgments: Any = None) -> pd.DataFrame:
        """The probability of each label per document, with the assessors as they were estimated."""
        return crowdkit.label_shares(self.infer(judgments))

    def fit_predict(self, judgments: Any, gold: Any = None, **options: Any) -> pd.Series[Any]:
        """Fit, then the label of each document."""
        return self.fit(judgments, gold, **options).predict()

    def fit_predict_proba(self, judgments: Any, gold: Any = None, **options: Any) -> pd.DataFrame:
        """Fit, then the probability of each label per document."""
        return self.fit(judgments, gold, **options).predict_proba()

    @property
    def labels_(self) -> pd.Series[Any]:
        """The label of each document."""
        return self.predict()

    @property
    def probas_(self) -> pd.DataFrame:
        """The probability of each label per document."""
        return self.predict_proba()

    @property
    def loss_history_(self) -> list[float]:
        """The objective after each iteration, by crowd-kit's name."""
        return self.history_

    def per_assessor(self, column: str, name: str) -> pd.Series[Any]:
        """A column of the table of assessors as a Series indexed by worker."""
        self._require_fitted()
        return crowdkit.worker_series(self.consensus_, column, name)

    def infer(self, judgments: Any = None) -> Consensus:
        """The consensus of other judgments with the assessors as they were estimated; none given, that of the fit."""
        self._require_fitted()
        if judgments is None:
            return self.consensus_
        prepared, theta, passes = self._opened(as_judgments(judgments, self.judgments_))
        statistics = passes.accumulate(theta)
        return self._consensus(prepared, passes.finish(theta), theta, statistics, None)

    def _opened(self, table: Judgments) -> tuple[Judgments, Arrays, LocalPasses[Shard]]:
        """Judgments ready for a pass with the assessors as they were estimated."""
        prepared, theta = self.prepared(table), self.adopted(self, table)
        if theta is None:
            fitted = self.prepared(self.judgments_).scales
            raise InputError(f"the grades {_told(prepared.scales)} are not those fitted ({_told(fitted)})")
        gold = None if self.gold_ is None else self.gold_.for_items(prepared)
        return prepared, theta, LocalEngine().open(self, prepared, gold)

    def posterior(self, judgments: Any = None) -> Any:
        """The whole posterior of each document: its probability at each point of the line, or of each grade.

        One row per (query, document), one column per point, named by its relevance (or per grade, p0..); a DataFrame
        of the library that the judgments came in.

        >>> import pandas as pd
        >>> from crowdrank import GDA
        >>> votes = pd.DataFrame({"document": ["a", "a", "b"], "assessor": ["x", "y", "x"], "grade": [1, 1, 0]})
        >>> list(GDA().fit(votes).posterior().columns)[:4]
        ['query', 'document', '-3.20', '-2.88']
        """
        self._require_fitted()
        return frames.from_arrow(self.posterior_table(judgments), self.consensus_.backend)

    def posterior_table(self, judgments: Any = None) -> pa.Table:
        """As `posterior`, in Arrow."""
        if not self.on_nodes:
            consensus = self.infer(judgments)
            return consensus.document_table.select(["query", "document", *consensus.share_names])
        table = as_judgments(self.judgments_ if judgments is None else judgments, self.judgments_)
        prepared, theta, passes = self._opened(table)
        passes.accumulate(theta)
        shares = np.concatenate([self.line_posterior(local) for local in passes.local_arrays()])
        places = {f"{node + 0.0:.2f}": share for node, share in zip(NODES, shares.T, strict=True)}
        return pa.table({**item_ids(prepared), **places})

    @property
    def in_grades(self) -> bool:
        """Whether relevance is in grades; else it is in standard deviations, and 0 is the mean document."""
        return not self.on_a_line

    @property
    def assessing(self) -> Aggregator:
        """The model by whom assessors are told: itself, unless it chose among others."""
        return self

    def grade_curves(self, assessor: Any = None) -> Any:
        """How each assessor answers: the probability of each grade where a document's relevance is known.

        One row per assessor and point of the line (or true grade, in models of confusion), one column per grade; of
        the `assessor` named, or of all. The GDA paper's Figure 3.

        >>> import pandas as pd
        >>> from crowdrank import GDA
        >>> votes = pd.DataFrame({"document": ["a", "a", "b"], "assessor": ["x", "y", "x"], "grade": [1, 1, 0]})
        >>> GDA().fit(votes).grade_curves("x").columns.tolist()
        ['assessor', 'relevance', 'p0', 'p1']
        """
        self._require_fitted()
        states = self.states(self.theta_)
        if states is None:
            raise UsageError(f"{type(self).__name__} says nothing of single answers, so it has no curves.")
        names, scale = self.consensus_.assessor_table["assessor"].combine_chunks(), self.consensus_.scale
        rows = np.arange(len(names))
        if assessor is not None:
            rows = ids.match(names, pa.array([assessor]).cast(names.type))
            if rows[0] < 0:
                raise InputError(f"there is no assessor {shown(assessor)}", fix="name one that judged")
        at = NODES if self.on_a_line and states[1].shape[2] >= len(NODES) else np.array(scale.values)
        curves = states[1][rows][:, : len(scale), : len(at)].transpose(0, 2, 1).reshape(-1, len(scale))
        table = {"assessor": names.take(pa.array(np.repeat(rows, len(at)))), "relevance": np.tile(at, len(rows))}
        table |= dict(zip(share_names(scale), curves.T, strict=True))
        return frames.from_arrow(pa.table(table), self.consensus_.backend)

    def line_posterior(self, local: Arrays) -> NDArray[np.float64]:
        """Of a model on nodes, each item's probability at each node (n_items, n_nodes)."""
        return local["posterior"]

    def _consensus(
        self, judgments: Judgments, rows: Arrays, theta: Arrays, statistics: Arrays, gold: NDArray[Any] | None
    ) -> Consensus:
        labels = grade_labels(judgments)
        counts = np.bincount(judgments.assessor, minlength=judgments.n_assessors)
        accuracy = None if gold is None else _agreements(judgments, gold)
        about = self._assessor_table(judgments, counts, theta, statistics, accuracy)
        documents = document_table(judgments, rows)
        return Consensus(type(self).__name__, documents, about, judgments.main_scale, labels, judgments.backend)

    def _assessor_table(
        self,
        judgments: Judgments | ShardedJudgments,
        counts: NDArray[np.int64],
        theta: Arrays,
        statistics: Arrays,
        on_gold: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    ) -> pa.Table:
        """One row per assessor; `on_gold` are their judgments that agree with the experts', and all on those items."""
        states = self.states(theta)
        about: dict[str, Any] = {
            "assessor": judgments.assessors,
            **_family_names(judgments),
            "judgments": counts,
            **self.assessor_columns(theta, statistics),
            **({} if states is None else {"informativeness": information(*states)[0]}),
            **({} if on_gold is None else _accuracy(judgments, *on_gold)),
        }
        return pa.table(about)

    def discrete_rows(self, posterior: NDArray[np.float64], values: NDArray[np.float64]) -> Arrays:
        """The rows of a result whose truth is one of the grades, from its posterior (n_items, n_grades)."""
        tail = (1 - self.interval) / 2
        relevance, sd, lower, upper, grade = kernels.summarize(posterior, values, tail, TIE)
        return {"relevance": relevance, "sd": sd, "lower": lower, "upper": upper, "grade": grade, "p": posterior}

    def _repr_html_(self) -> str:
        if not hasattr(self, "consensus_"):
            return panel(heading(repr(self)), paragraph("not fitted yet"))
        ended = "converged" if self.converged_ else "not converged"
        said = f"{counted(self.n_iter_, 'iteration')}, {ended}"
        return panel(heading(repr(self)), paragraph(said), self.consensus_._repr_html_())

    def _require_fitted(self) -> None:
        if not hasattr(self, "consensus_"):
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet; call fit first.")

    # Storage: Parquet and JSON, no pickle.

    def save(self, path: str | Path) -> None:
        """Write the fitted model into a folder: model.json and Parquet tables."""
        self._require_fitted()
        as_judgments(self.judgments_)  # refuses those that stayed on disk, with their consensus
        about = {
            "crowdrank": crowdrank.__version__,
            "model": type(self).__name__,
            "parameters": self.get_params(),
            "history": self.history_,
            "converged": self.converged_,
        }
        with write_folder(path, MODEL) as folder:
            (folder / MODEL_FILE).write_text(json.dumps({**about, **self.keep(folder)}, indent=2))
            pq.write_table(self.consensus_.document_table, folder / "documents.parquet")
            pq.write_table(self.consensus_.assessor_table, folder / "assessors.parquet")
            pq.write_table(arrays_to_table(self.theta_), folder / "theta.parquet")
            storage.save(self.judgments_, folder / "judgments.parquet")
            if self.gold_ is not None:
                storage.save(self.gold_.as_judgments(), folder / "gold.parquet")

    def keep(self, folder: Path) -> dict[str, Any]:
        """Write what this kind has beside the tables into the folder; what is returned goes to model.json."""
        return {}

    def recall(self, folder: Path, about: Fields) -> None:
        """Read the parameters and results from the folder, with what :meth:`keep` wrote; check them."""
        prepared = self.prepared(self.judgments_)
        self.theta_, example = read_arrays(folder / "theta.parquet"), self.example(prepared.scales)
        self.check_theta(self.theta_, example[0], prepared.n_assessors)
        documents, assessors = (read_parquet(folder / name) for name in ("documents.parquet", "assessors.parquet"))
        method, labels = type(self).__name__, grade_labels(prepared)
        self.consensus_ = Consensus(method, documents, assessors, prepared.main_scale, labels, prepared.backend)
        check_consensus(self.consensus_, prepared)
        missing = self._assessor_names(*example) - set(assessors.column_names)
        require(not missing, f"assessors.parquet has no column {min(missing, default='')}")

    def check_theta(self, theta: Arrays, example: Arrays, n_assessors: int) -> None:
        """Raise ValueError unless saved parameters have the names, types and shapes of an example, and valid values."""
        require(set(theta) == set(example), "the parameters are not those of the model")
        for name, known in example.items():
            shape = tuple(n_assessors if size == EXAMPLE_ASSESSORS else size for size in known.shape)
            require_array(name, theta[name], known.dtype, shape)
            require_range(name, theta[name], *self.theta_ranges.get(name, (-LARGEST, LARGEST)))

    def example(self, scales: tuple[Scale, ...]) -> tuple[Arrays, Arrays]:
        """Return parameters and statistics of a few made-up judgments, of which names, types and shapes are right.

        The number of assessors is larger than every other size, so that it shows which axes are the assessors.
        """
        assessor = np.arange(2 * EXAMPLE_ASSESSORS, dtype=np.int32) % EXAMPLE_ASSESSORS
        scale_of = (np.arange(EXAMPLE_ASSESSORS) % len(scales)).astype(np.int8)
        sizes = np.array([len(scale) for scale in scales])[scale_of[assessor]]
        judgments = Judgments(
            queries=pa.array(["q"]),
            documents=pa.array(["a", "b"]),
            assessors=pa.array(np.arange(EXAMPLE_ASSESSORS)),
            item_query=np.zeros(2, np.int32),
            item_document=np.arange(2, dtype=np.int32),
            offsets=np.array([0, EXAMPLE_ASSESSORS, 2 * EXAMPLE_ASSESSORS]),
            assessor=assessor,
            grade=(np.arange(len(assessor)) // len(scales) % sizes).astype(np.int8),
            scales=scales,
            assessor_scale=scale_of,
        )
        passes = LocalEngine().open(self, judgments)
        theta = self.maximize(None, passes.accumulate(None))
        return theta, passes.accumulate(theta)

    def _assessor_names(self, theta: Arrays, statistics: Arrays) -> set[str]:
        """Return the names of the columns that this model shows of assessors."""
        known = set() if self.states(theta) is None else {"informativeness"}
        return {*self.assessor_columns(theta, statistics), *known}

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote; `Aggregator.load` reads any model.

        Raises:
            InputError: the folder has no saved model, or one of its files was damaged or altered.

        """
        folder = Path(path)
        manifest = open_folder(folder, MODEL)
        with loading(folder, "it is not a saved model"):
            about = Fields.read(folder / MODEL_FILE)
            model = cls._class_named(about.text("model"), folder)()
            model.set_params(**_tuples(about.object("parameters")))._check()
            model.history_, model.converged_ = about.numbers("history"), about.flag("converged")
            model.n_iter_ = len(model.history_)
            model.judgments_ = storage.load(folder / "judgments.parquet")
            gold = "gold.parquet" in manifest.entries
            model.gold_ = _load_gold(folder / "gold.parquet") if gold else None
            with np.errstate(all="ignore"):
                model.recall(folder, about)
        return model

    @classmethod
    def _class_named(cls, name: str, folder: Path) -> type[Self]:
        for method in METHODS:
            known = model_class(method)
            if known.__name__ == name and issubclass(known, cls):
                return known
        raise InputError(f"it holds a {name}, not a {cls.__name__}", source=str(folder))


def _load_gold(path: Path) -> Gold:
    judged = storage.load(path)
    require(len(judged) == judged.n_items and not judged.n_unjudgeable, "an expert grade occurs twice or is missing")
    return Gold.of(judged)


def _family_names(judgments: Judgments | ShardedJudgments) -> dict[str, pa.Array]:
    """The family of each assessor by name, where any has one."""
    if judgments.families is None or judgments.assessor_family is None or not len(judgments.families):
        return {}
    family = judgments.assessor_family
    return {"family": judgments.families.take(pa.array(np.maximum(family, 0), mask=family < 0))}


def _agreements(judgments: Judgments, gold: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each assessor the judgments that agree with the experts', and all on the items that experts graded."""
    agreed, asked = np.zeros(judgments.n_assessors), np.zeros(judgments.n_assessors)
    kernels.count_agreements(judgments.offsets, judgments.assessor, judgments.grade, gold, agreed, asked)
    return agreed, asked


def _accuracy(
    judgments: Judgments | ShardedJudgments, agreed: NDArray[np.float64], asked: NDArray[np.float64]
) -> dict[str, NDArray[Any]]:
    on_main = np.array([scale == judgments.main_scale for scale in judgments.scales])[judgments.assessor_scale]
    agreed, asked = agreed * on_main, asked * on_main  # experts grade on the main scale
    share = np.divide(agreed, asked, out=np.full(len(asked), np.nan), where=asked > 0)
    return {"gold_judgments": asked.astype(np.int64), "gold_accuracy": share}


def _writing_to(table: Judgments | ShardedJudgments, output: Path) -> ShardedJudgments:
    if isinstance(table, ShardedJudgments):
        check_output_folder(output, CONSENSUS)
        return replace(table, output=output)
    raise UsageError("output is where the consensus of judgments on disk goes; these are in memory: see consensus_.")


def _told(scales: tuple[Scale, ...]) -> str:
    return " / ".join(map(str, scales))


def _tuples(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()}
