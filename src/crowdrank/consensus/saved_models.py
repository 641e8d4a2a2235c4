"""Write and read the files of saved models and of checkpoints (unfinished fits); all are checked on reading."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from crowdrank._disk import source_digest
from crowdrank._files import recover
from crowdrank._folders import (
    MAX_SAVED_FLOAT,
    Fields,
    FolderKind,
    is_text,
    loading,
    open_folder,
    read_parquet,
    remove_folder,
    require,
    require_array,
    require_range,
    write_folder,
)
from crowdrank._saved_estimators import arrays_to_table, read_arrays
from crowdrank._typing import Arrays
from crowdrank.consensus.fit_data import as_judgments
from crowdrank.consensus.preference_assessors import PREFERENCE_KINDS
from crowdrank.consensus.result import Consensus, check_consensus, grade_labels
from crowdrank.engine.passes import LocalEngine, Passes, ShardModel, select_arrays
from crowdrank.engine.shards import JUDGMENTS_PER_SHARD, MAX_SCORE, ItemScores, Shard, Shards, make_shards
from crowdrank.errors import InputError
from crowdrank.judgments.gold import Gold, ItemGold
from crowdrank.judgments.joined import ItemPreferences, JoinedJudgments, no_judgments
from crowdrank.judgments.scale import GradeMap, Scale
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk import storage
from crowdrank.on_disk.sharded import ShardedJudgments

if TYPE_CHECKING:
    from crowdrank.consensus.feature_scores import FeatureScores
    from crowdrank.consensus.model import EMAggregator


SCORES_FILE_NAME, PREDICTIONS_FILE_NAME = "scores.parquet", "predictions.parquet"
JUDGMENTS_FILE_NAME, PREFERENCES_FILE_NAME = "judgments.parquet", "preferences.parquet"
CHECKPOINT = FolderKind("checkpoint", 1, "checkpoint", "a fit with checkpoint=")
PAIR_FIELDS = tuple(field.name for field in dataclass_fields(ItemPreferences))
"""Names of the fields of preferences that a checkpoint depends on."""
EXAMPLE_ASSESSORS = 509
"""Number of assessors of the example that saved parameters are compared with; no other axis is as long."""
DISPLAY_PARAMETERS = ("interval", "grade_by")
"""Parameters of models that do not change the estimation, only what is reported; a checkpoint ignores them."""


@dataclass(frozen=True)
class FullFit:
    """Last fit of a model that did not start from its own parameters.

    Attributes:
        n_judgments: number of judgments of that fit.
        change: change of expected grades by updates of the parameters since then, summed over the updates.

    """

    n_judgments: int
    change: float = 0.0


def write_model(model: EMAggregator, folder: Path) -> None:
    """Write the parameters, results and data of a fitted model; judgments on disk are refused."""
    import pyarrow.parquet as pq

    judgments, preferences = as_judgments(model.judgments_), model.preferences_
    pq.write_table(model.consensus_.document_table, folder / "documents.parquet")
    pq.write_table(model.consensus_.assessor_table, folder / "assessors.parquet")
    pq.write_table(arrays_to_table(model.theta_), folder / "theta.parquet")
    if len(judgments):
        storage.save(judgments, folder / "judgments.parquet")
    if preferences is not None:
        storage.save_preferences(preferences, folder / PREFERENCES_FILE_NAME)
    if model.feature_scores_ is not None:
        scores = model.feature_scores_
        columns = {"query": scores.query, "document": scores.document, "score": scores.score}
        pq.write_table(pa.table(columns), folder / SCORES_FILE_NAME)
    if model.consensus_.prediction_table is not None:
        pq.write_table(model.consensus_.prediction_table, folder / PREDICTIONS_FILE_NAME)
    if model.gold_ is not None:
        storage.save(model.gold_.as_judgments(), folder / "gold.parquet")


def saved_fields(model: EMAggregator) -> dict[str, Any]:
    """Return the fields of `model.json` that :func:`read_data` reads."""
    grade_map = None if model.gold_ is None else model.gold_.grade_map
    fields: dict[str, Any] = {
        "history": model.history_,
        "converged": model.converged_,
        "full_fit": asdict(model.full_fit_),
    }
    if model.feature_scores_ is not None:
        fields["features"] = list(model.feature_scores_.names)
    return fields if grade_map is None else {**fields, "gold_map": str(grade_map)}


def read_data(model: EMAggregator, folder: Path, fields: Fields, files: Iterable[str]) -> None:
    """Read the history, the judgments and the expert grades of a saved model."""
    model.history_, model.converged_ = fields.numbers("history"), fields.flag("converged")
    model.n_iter_, full_fit = len(model.history_), Fields(fields.object("full_fit"))
    model.full_fit_ = FullFit(full_fit.integer("n_judgments"), full_fit.number("change"))
    model.preferences_ = None
    if PREFERENCES_FILE_NAME in files:
        model.preferences_ = storage.load_preferences(folder / PREFERENCES_FILE_NAME)
    if JUDGMENTS_FILE_NAME in files or model.preferences_ is None:
        model.judgments_ = storage.load(folder / JUDGMENTS_FILE_NAME)
    else:
        model.judgments_ = no_judgments(model.preferences_.backend)
    model.feature_scores_ = None
    if SCORES_FILE_NAME in files:
        names = tuple(fields.sequence("features", is_text, "names"))
        model.feature_scores_ = _read_scores(folder / SCORES_FILE_NAME, names)
    model.gold_ = _read_gold(folder / "gold.parquet", fields) if "gold.parquet" in files else None


def _read_scores(path: Path, names: tuple[str, ...]) -> FeatureScores:
    from crowdrank.consensus.feature_scores import FeatureScores

    table = read_parquet(path)
    require(table.column_names == ["query", "document", "score"], f"{path.name} has other columns")
    require(not any(table[name].null_count for name in table.column_names), f"{path.name} has blanks")
    query, document, score = (table[name].combine_chunks() for name in table.column_names)
    for ids in (query, document):
        require(ids.type in (pa.string(), pa.int64()), f"{path.name} has ids of another type")
    require(score.type == pa.float64(), "the scores are not numbers")
    values = score.to_numpy()
    require_range("score", values, -MAX_SCORE, MAX_SCORE)
    return FeatureScores(query, document, values, names)


def _read_gold(path: Path, fields: Fields) -> Gold:
    judged = storage.load(path)
    require(len(judged) == judged.n_items and not judged.n_unjudgeable, "an expert grade occurs twice or is missing")
    gold = Gold.from_judgments(judged)
    return replace(gold, grade_map=GradeMap.parse(fields.text("gold_map"))) if "gold_map" in fields else gold


def read_results(model: EMAggregator, folder: Path) -> None:
    """Read the parameters and the consensus of a saved model, and check them against its judgments."""
    preferences = model.preferences_
    prepared = model._prepare_with(model.judgments_, preferences)
    n_expert_grades = 0 if model.gold_ is None else len(model.gold_.scale)
    model.theta_ = read_arrays(folder / "theta.parquet")
    has_scores = model.feature_scores_ is not None
    has_preferences = preferences is not None
    theta, statistics = make_example_parameters(
        model, prepared.scales, n_expert_grades, has_scores=has_scores, has_preferences=has_preferences
    )
    model._check_theta(model.theta_, theta, prepared.n_assessors)
    documents, assessors = (read_parquet(folder / name) for name in ("documents.parquet", "assessors.parquet"))
    method, labels = type(model).__name__, grade_labels(prepared)
    names = () if model.feature_scores_ is None else model.feature_scores_.names
    predictions = read_parquet(folder / PREDICTIONS_FILE_NAME) if (folder / PREDICTIONS_FILE_NAME).exists() else None
    scale, backend = prepared.main_scale, prepared.backend
    model.consensus_ = Consensus(method, documents, assessors, scale, labels, backend, names, predictions)
    check_consensus(model.consensus_, prepared)
    columns = {*model._assessor_columns(theta, statistics)}
    columns |= set() if model._states(theta) is None else {"informativeness"}
    columns -= PREFERENCE_KINDS  # they depend on the answers
    missing = columns - set(assessors.column_names)
    require(not missing, f"assessors.parquet has no column {min(missing, default='')}")


def check_theta(model: EMAggregator, theta: Arrays, example: Arrays, n_assessors: int) -> None:
    """Raise ValueError unless parameters have the names, types and shapes of an example and values in range."""
    require(set(theta) == set(example), "the parameters are not those of the model")
    for name, known in example.items():
        shape = tuple(n_assessors if size == EXAMPLE_ASSESSORS else size for size in known.shape)
        require_array(name, theta[name], known.dtype, shape)
        bounds = model.theta_arrays[name].bounds if name in model.theta_arrays else (-MAX_SAVED_FLOAT, MAX_SAVED_FLOAT)
        require_range(name, theta[name], *bounds)


def make_example_parameters(
    model: EMAggregator,
    scales: tuple[Scale, ...],
    n_expert_grades: int,
    *,
    has_scores: bool = False,
    has_preferences: bool = False,
    finished: bool = True,
) -> tuple[Arrays, Arrays]:
    """Return parameters and statistics of a model on a few synthetic judgments with these scales.

    They are those of a finished fit, or those between two iterations.

    The number of assessors differs from every other size, so that shapes show which axes are the assessors.
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
    if has_preferences:
        one = np.ones(1, np.int32)
        pairs = ItemPreferences(np.zeros(1, np.int64), np.ones(1, np.int64), one, one, np.zeros(1, np.int32), True)
        fields = {field.name: getattr(judgments, field.name) for field in dataclass_fields(judgments)}
        judgments = JoinedJudgments(**fields, preferences=pairs)
    gold = ItemGold(np.array([0, n_expert_grades - 1], np.int8), n_expert_grades, None) if n_expert_grades else None
    passes = LocalEngine().open(model, judgments, gold, (np.zeros(2),) if has_scores else None)
    theta = model._maximize(None, passes.accumulate(None))
    return (
        model._after_iterations(passes, theta, passes.accumulate(theta))
        if finished
        else (theta, passes.accumulate(theta))
    )


@dataclass
class FitState:
    """State of the EM loop.

    Attributes:
        theta: parameters, or None before the first iteration.
        statistics: summed statistics of the last pass.
        history: objective after each iteration.
        converged: whether the fit has converged.
        local: local state of each shard, in a state that was loaded.

    """

    theta: Any
    statistics: Arrays
    history: list[float]
    converged: bool = False
    local: Iterable[Arrays] = ()


class Checkpoint:
    """A folder with the state of an unfinished fit.

    A fit of the same model to the same data resumes from it; other fits are refused.

    Args:
        path: the folder.
        every: minimum time between two saves in seconds; an interrupted fit is saved in any case.

    """

    def __init__(self, path: str | Path, every: float = 30.0) -> None:
        self.path, self.every = Path(path), every
        self._last_save = time.monotonic()
        self._fingerprint = ""

    def resume(self, fit: CheckpointedFit) -> FitState | None:
        """Return the saved state of a fit, or None if there is none; saves belong to this fit from now on.

        Raises:
            InputError: the folder has the state of another fit, or a file was damaged or altered.

        """
        self._fingerprint = fit.fingerprint()
        recover(self.path)
        if not self.path.exists() or not any(self.path.iterdir()):
            return None
        open_folder(self.path, CHECKPOINT)
        shards = fit.shards()
        with loading(self.path, "it is not a checkpoint", "name a new folder"):
            about = Fields.read(self.path / "checkpoint.json")
            if about.text("fingerprint") != self._fingerprint:
                raise InputError(
                    "it is the checkpoint of other judgments, another model or another version of crowdrank",
                    source=str(self.path),
                    fix="name another folder, or delete it",
                    kind="other-fit",
                )
            theta, statistics = (read_arrays(self.path / f"{name}.parquet") for name in ("theta", "statistics"))
            history = about.numbers("history")
            require(history, "the history is empty")
            require(about.integer("shards") == len(shards), "the fit was cut into another number of shards")
            fit.check(theta, statistics, shards)
        return FitState(theta, statistics, history, local=_StoredLocals(self.path, fit.model, shards, theta))

    def save_if_due(self, state: FitState, passes: Passes) -> None:
        """Save the state if the last save is long enough ago."""
        if time.monotonic() - self._last_save >= self.every:
            self.save(state, passes)

    def save(self, state: FitState, passes: Passes) -> None:
        """Save the state; the previous one stays until the new one is complete."""
        import pyarrow.parquet as pq

        with write_folder(self.path, CHECKPOINT) as folder:
            shards = 0
            for shards, arrays in enumerate(passes.local_state(), start=1):  # one at a time: they may come from disk
                pq.write_table(arrays_to_table(arrays), folder / f"local-{shards - 1}.parquet")
            for name, arrays in (("theta", state.theta), ("statistics", state.statistics)):
                pq.write_table(arrays_to_table(arrays), folder / f"{name}.parquet")
            about = {"fingerprint": self._fingerprint, "shards": shards, "history": state.history}
            (folder / "checkpoint.json").write_text(json.dumps(about))
        self._last_save = time.monotonic()

    def remove(self) -> None:
        """Delete the state of a completed fit."""
        if self.path.exists():
            remove_folder(self.path, CHECKPOINT)


@dataclass(frozen=True)
class CheckpointedFit:
    """Fit with a checkpoint: what identifies it, and what its saved state is checked against.

    Attributes:
        model: the model.
        judgments: prepared judgments.
        gold: codes of the expert grades.
        theta: parameters that the fit starts from, if any.
        n_shards: number of shards, which the local state in a checkpoint belongs to.
        shard_size: number of judgments per shard.
        scores: predictions from features, if any.

    """

    model: Any
    judgments: Judgments | ShardedJudgments
    gold: Any
    theta: Arrays | None
    n_shards: int
    shard_size: int = JUDGMENTS_PER_SHARD
    scores: ItemScores | None = None

    def shards(self) -> Shards[Shard]:
        """Return the shards of the fit."""
        return make_shards(self.judgments, self.gold, self.model.locality, self.shard_size, self.scores)

    def check(self, theta: Arrays, statistics: Arrays, shards: Shards[Shard]) -> None:
        """Raise ValueError unless saved arrays have the shapes and ranges of the model's and can be used."""
        model, first = self.model, shards.load(0)
        with np.errstate(all="ignore"):
            example, _ = make_example_parameters(
                model,
                self.judgments.scales,
                first.n_expert_grades,
                has_scores=self.scores is not None,
                has_preferences=first.preferences is not None,
                finished=False,
            )
            model._check_theta(theta, example, self.judgments.n_assessors)
            require_same_form(statistics, model._accumulate(first, model._start(first), theta)[1])
            model._maximize(theta, statistics)  # raises an error if a matrix is singular

    def fingerprint(self) -> str:
        """Return a digest of everything that changes the result, except when the fit stops."""
        parameters = self.model.get_params(deep=False)
        settings = {name: parameters[name] for name in parameters if name not in ("n_iter", "tol", *DISPLAY_PARAMETERS)}
        about = (source_digest(), type(self.model).__name__, settings, self.judgments.scales, self.n_shards)
        digest = hashlib.blake2b(repr(about).encode())
        start = {} if self.theta is None else self.theta
        for array in [*self._data_arrays(digest), *(start[name] for name in sorted(start)), *(self.scores or ())]:
            digest.update(b"-" if array is None else repr((array.dtype, array.shape)).encode() + array.tobytes())
        return digest.hexdigest()

    def _data_arrays(self, digest: hashlib.blake2b) -> list[Any]:
        """Return arrays of judgments and expert grades to digest; judgments on disk add their own digest instead."""
        judgments, gold = self.judgments, self.gold
        if isinstance(judgments, ShardedJudgments):
            digest.update(judgments.fingerprint().encode())
            return [] if gold is None else [gold.sets, *(array for grades in gold.graded_items for array in grades)]
        names = (
            "offsets",
            "assessor",
            "grade",
            "item_query",
            "assessor_scale",
            "family_levels",
            "estimated_correlations",
        )
        known = [None] if gold is None else [gold.sets, gold.code]
        pairs = vars(judgments.preferences) if isinstance(judgments, JoinedJudgments) else {}
        compared = [np.asarray(pairs[name]) for name in PAIR_FIELDS if pairs]
        return [*known, *(getattr(judgments, name) for name in names), judgments.shares(), *compared]


class _StoredLocals:
    """Iterable over the saved local state of each shard, read and checked one at a time."""

    def __init__(self, path: Path, model: ShardModel[Shard], shards: Shards[Shard], theta: Arrays) -> None:
        self.path, self.model, self.shards, self.theta = path, model, shards, theta

    def __iter__(self) -> Iterator[Arrays]:
        return map(self._load_shard_state, range(len(self.shards)))

    def _load_shard_state(self, shard_index: int) -> Arrays:
        with loading(self.path, "it is not a checkpoint", "name a new folder"):
            local = read_arrays(self.path / f"local-{shard_index}.parquet")
            shard = self.shards.load(shard_index)
            made, _ = self.model._accumulate(shard, self.model._start(shard), self.theta)
            require_same_form(local, select_arrays(made, self.model.carries))
        return local


def require_same_form(arrays: Arrays, example: Arrays) -> None:
    """Raise ValueError unless saved arrays have the names, types and shapes of those that the model computes.

    Integers must be equal: they are counted from the judgments, and kernels use them as indices.
    """
    require(set(arrays) == set(example), "its arrays are not those of the model")
    for name, known in example.items():
        require_array(name, arrays[name], known.dtype, known.shape)
        if known.dtype.kind != "f":
            require(np.array_equal(arrays[name], known), f"{name} is not that of the judgments")
