"""The contract of every ranker: features and labels in, scores out."""

from __future__ import annotations

import re
import sys
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crowdrank._estimator import Estimator, load_estimator_class, unknown_name_error
from crowdrank._files import MANIFEST_FILE_NAME
from crowdrank._folders import Fields, FolderKind, Manifest, is_scalar, require, require_floats
from crowdrank._progress import Report, reporting
from crowdrank._saved_estimators import FittedEstimator, arrays_to_table, read_arrays
from crowdrank._text import counted, heading, html_table, panel, paragraph
from crowdrank._typing import Arrays, Booleans, Floats, Integers
from crowdrank.constraints import MAX_INTEGER, Constraints, Number, Parsed
from crowdrank.errors import CrowdrankWarning, InputError, UsageError
from crowdrank.evaluation.measures import parse_gains
from crowdrank.rankers import RANKERS
from crowdrank.rankers.model_selection import Validation, check_validation
from crowdrank.rankers.training_data import (
    FeatureStatistics,
    RankingData,
    SharedMatrix,
    id_column,
    labels_differ_within_query,
    select_features,
)

if TYPE_CHECKING:
    from crowdrank.engine.passes import Engine

RANKER = FolderKind("ranker", 1, "saved ranker", "save")
REMAPPER = FolderKind("remapper", 1, "saved remapper", "save")
REMAPPER_RANKER = "ranker"
"""Name of the subfolder of a saved remapper with its ranker."""
STATE_FILE = "ranker"
"""Name of the JSON file of saved rankers and remappers."""
_NAME = re.compile(r"[a-z][a-z0-9_-]*")
"""Pattern of the names of texts and parts."""
Request = bool | str | None
"""Whether a method asks for metadata: True, False, None (an error if it is passed), or the name to ask for."""
N_JOBS: Constraints = {"n_jobs": [Number(1, integer=True), None]}
"""Constraint on the number of threads."""


class MetadataRequests(Estimator):
    """Requests for metadata by method, as meta-estimators of scikit-learn read them."""

    _default_requests: ClassVar[Mapping[str, Mapping[str, Request]]] = {}
    """Metadata of each method, and whether it is requested by default."""

    def set_fit_request(self, **requests: Request) -> Self:
        """Set which metadata scikit-learn passes to `fit`; see scikit-learn's user guide on metadata routing.

        Args:
            requests: names of metadata, each with True, False, None or another name.

        """
        return self._set_request("fit", requests)

    def set_predict_request(self, **requests: Request) -> Self:
        """Set which metadata scikit-learn passes to `predict`."""
        return self._set_request("predict", requests)

    def set_score_request(self, **requests: Request) -> Self:
        """Set which metadata scikit-learn passes to `score`."""
        return self._set_request("score", requests)

    def _set_request(self, method: str, requests: Mapping[str, Request]) -> Self:
        known = self._requests()
        for name in requests:
            if name not in known[method]:
                raise unknown_name_error(f"metadata of {method}", name, known[method])
        self._metadata_request = {**known, method: {**known[method], **requests}}
        return self

    def _requests(self) -> dict[str, dict[str, Request]]:
        defaults = {method: dict(requests) for method, requests in self._default_requests.items()}
        changed: dict[str, dict[str, Request]] = vars(self).get("_metadata_request", {})
        return defaults | changed

    def get_metadata_routing(self) -> Any:
        """Return the requests as an object of scikit-learn.

        Returns:
            A :class:`sklearn.utils.metadata_routing.MetadataRequest`.

        """
        from sklearn.utils.metadata_routing import MetadataRequest

        routing = MetadataRequest(owner=self)
        for method, requests in self._requests().items():
            for name, alias in requests.items():
                getattr(routing, method).add_request(param=name, alias=alias)
        return routing


class Ranker(MetadataRequests, FittedEstimator):
    """Base of all rankers.

    A subclass implements `_learn`, `_score`, `_state` and `_restore`. Checks, grouping by query, validation, storage
    and scikit-learn's conventions are shared.

    Attributes:
        feature_importances_: importance of each feature, (n_features,), which sum to 1 unless all are 0.
        feature_statistics_: range and share of missing values of each feature in the training rows; None for a ranker
            that an earlier version saved.
        features_: names of the features; f1, f2, ... if X had no names.
        n_features_in_: number of features.
        feature_names_in_: names of the features as an array; not there if X had no names.
        history_: validation measure after each iteration or value of a grid, if there was a validation set.
        validation_queries_: ids of the validation queries.

    """

    handles_missing: bool = True
    """Whether missing features (NaN) are used as such; otherwise they are replaced by the mean, with a warning."""
    supports_engines: ClassVar[bool] = False
    """Whether `fit` can run on an engine such as a cluster."""
    scores_within_query: ClassVar[bool] = False
    """Whether the score of a document depends on the other documents of its query, so that `predict` needs `query`."""

    _folder: ClassVar[FolderKind] = RANKER
    _file: ClassVar[str] = STATE_FILE
    _default_requests: ClassVar[Mapping[str, Mapping[str, Request]]] = {
        "fit": {"query": True, "sample_weight": None},
        "predict": {"query": True},
        "score": {"query": True, "sample_weight": None},
    }
    _parameter_constraints: ClassVar[Constraints] = {
        "random_state": [Number(0, MAX_INTEGER, integer=True)],
        "validate_by": [Parsed(check_validation)],
        "gains": [Parsed(parse_gains)],
    }

    random_state: int
    validate_by: str = "nDCG@10"
    gains: Any = "exponential"

    feature_importances_: Floats
    feature_statistics_: FeatureStatistics | None = None
    features_: tuple[str, ...]
    history_: list[float]
    validation_queries_: tuple[Any, ...] = ()
    _has_feature_names: bool = True

    # Hooks of a ranker.

    @abstractmethod
    def _learn(self, data: RankingData, validation: Validation | None, report: Report, engine: Engine | None) -> None:
        """Learn from data; set `feature_importances_` and what `_score` needs.

        A subclass may have further optional arguments, which its `fit` passes to `_fit`.
        """

    @abstractmethod
    def _score(self, features: Floats, query: Any = None) -> Floats:
        """Return the scores of rows; their features are in the order of `features_`.

        `query` has the ids of the queries if `scores_within_query`, else it may be None.
        """

    @abstractmethod
    def _state(self) -> SavedState:
        """Return the fitted state; `feature_importances_` and `feature_statistics_` are added to it."""

    @abstractmethod
    def _restore(self, state: SavedState) -> None:
        """Set what `_state` returned; raise ValueError if it does not fit the features or itself."""

    def _needs_differences(self) -> bool:
        """Return whether the ranker learns only from labels that differ within a query."""
        return True

    def _needs_gains(self) -> bool:
        """Return whether training labels must have gains, so that they cannot be any numbers."""
        return getattr(self, "measure", "nDCG") is not None

    # Fit.

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        query: Any = None,
        sample_weight: Any = None,
        eval_set: tuple[Any, Any, Any] | None = None,
        progress: bool | Report = False,
        engine: Engine | None = None,
    ) -> Self:
        """Fit the ranker.

        Args:
            X: features, one row per document of a query: a matrix, a DataFrame or `Features`. The columns `query` and
                `document` of a DataFrame are ids, not features.
            y: grades, (n,), or probabilities of the grades 0, 1, ..., (n, n_grades).
            query: id of the query of each row; not needed if X has it. Integer arrays are used as codes. Rows are
                sorted by query if those of a query are not adjacent.
            sample_weight: weights, (n,), of at least 0.
            eval_set: (X, y, query) of validation queries for early stopping and the choice of hyperparameters.
            progress: show a progress bar, or call a function with (iteration, n_iterations, measure).
            engine: where to learn, for rankers that can learn on a cluster; by default on this machine.

        """
        return self._fit(X, y, query, sample_weight, eval_set, progress, engine)

    def _fit(
        self,
        X: Any,
        y: Any,
        query: Any,
        sample_weight: Any,
        eval_set: tuple[Any, Any, Any] | None,
        progress: bool | Report,
        engine: Engine | None = None,
        **options: Any,
    ) -> Self:
        """Check the arguments of `fit` and learn; `options` are arguments of `_learn` in a subclass."""
        self._check_parameters()
        if engine is not None:
            self.require_engines()
        if query is not None and id_column(X, "query") is None:
            require_routed_score()
        data = RankingData.from_ids(X, y, query, sample_weight)
        warn_constant_features(data)
        if self._needs_differences():
            require_differences(data.labels, data.offsets)
        if not self.handles_missing:
            warn_missing_values(data.features, data.names, type(self).__name__)
        self.validation_queries_ = ()
        validation = None if eval_set is None else self._read_eval_set(eval_set, data.names)
        with reporting(progress, type(self).__name__) as report:
            return self._fit_data(data, validation, report, engine, **options)

    def _fit_data(
        self,
        data: RankingData,
        validation: RankingData | None,
        report: Report,
        engine: Engine | None = None,
        **options: Any,
    ) -> Self:
        """Learn from checked data, for rankers that consist of other rankers."""
        self._check_parameters()
        self.history_ = []
        measure = None if validation is None else Validation(validation, self.validate_by, self.gains)
        self._learn(data, measure, report, engine, **options)
        self.features_, self._has_feature_names = data.names, data.has_names
        original_matrix = data.original_matrix
        self.feature_statistics_ = (
            original_matrix.statistics
            if isinstance(original_matrix, SharedMatrix)
            else FeatureStatistics.from_matrix(data.features)
        )
        return self

    def require_engines(self) -> None:
        """Raise UsageError if the ranker cannot learn on an engine."""
        if not self.supports_engines:
            raise UsageError(
                f"is not used by {type(self).__name__}, which learns on this machine",
                parameter="engine",
                fix=["leave it out", "take GLS, RD or LambdaMART"],
            )

    def _read_eval_set(self, eval_set: tuple[Any, Any, Any], names: tuple[str, ...]) -> RankingData:
        """Check the validation data and set `validation_queries_`."""
        if not isinstance(eval_set, tuple | list) or len(eval_set) != 3:
            raise UsageError("must be (X, y, query) of validation queries", parameter="eval_set")
        X, y, query = eval_set
        data = RankingData.from_ids(X, y, query, names=names, source=" of eval_set")
        ids = id_column(X, "query")  # X may have ids while `query` has codes
        self.validation_queries_ = unique_ids(query if ids is None else ids)
        return data

    # Results.

    def predict(self, X: Any, query: Any = None) -> Floats:
        """Return the score of each row; higher is better. Several threads can call it at the same time.

        Args:
            X: features as in :meth:`fit`. Columns of a DataFrame are found by name, in any order; further columns are
                ignored. The columns of a matrix must be those of the fit, in the same order.
            query: id of the query of each row, which only some rankers use (`Ensemble`); not needed if X has it.

        Raises:
            InputError: X lacks features, has another number of columns, or has values that are not finite numbers.

        """
        self._require_fitted()
        features = select_features(X, self.features_)
        if query is None and self.scores_within_query:
            query = id_column(X, "query")
        return self._score(features, query)

    def score(self, X: Any, y: Any, *, query: Any = None, sample_weight: Any = None) -> float:
        """Return the mean nDCG@10 over the queries that have a relevant document.

        Gains are exponential, and tied scores count as their expectation over all orders.

        Args:
            X: features as in :meth:`fit`.
            y: grades, (n,), or probabilities of grades, (n, n_grades).
            query: id of the query of each row; not needed if X has it.
            sample_weight: weights, (n,); a query has the mean weight of its rows.

        """
        self._require_fitted()
        data = RankingData.from_ids(X, y, query, sample_weight, names=self.features_)
        measure = Validation(data, "nDCG@10")
        values = measure.per_query(self._score(data.features, data.query))
        weight = np.add.reduceat(data.weights, data.offsets[:-1]) / np.diff(data.offsets)
        return float(np.average(values, weights=weight[measure.defined]))

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return len(self.features_)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Names of the features, if X had names."""
        if not self._has_feature_names:
            raise AttributeError(f"this {type(self).__name__} was fitted to features without names")
        return np.array(self.features_, object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "features_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type, tags.target_tags.required, tags.input_tags.allow_nan = "ranker", True, True
        return tags

    def _repr_html_(self) -> str:
        if not self.__sklearn_is_fitted__():
            return panel(heading(repr(self)), paragraph("not fitted yet"))
        rows = [
            {"feature": self.features_[place], "importance": float(self.feature_importances_[place])}
            for place in np.argsort(-self.feature_importances_, kind="stable")
        ]
        return panel(heading(repr(self)), paragraph(counted(len(rows), "feature")), html_table(rows))

    # Storage.

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a ranker that :meth:`save` wrote, or the ranker of a saved remapper.

        Raises:
            InputError: the folder has neither, or one of its files was damaged or altered.

        """
        folder = Path(path)
        return super().load(folder / REMAPPER_RANKER if folder_kind(folder) == REMAPPER.name else folder)

    @classmethod
    def _registered_classes(cls) -> Iterable[type[Any]]:
        return (load_estimator_class("rankers", location) for location in RANKERS.values())

    @classmethod
    def _find_class(cls, class_name: str) -> type[Self] | None:
        """Return the class of a ranker; only its module is loaded, since others need further libraries."""
        for location in RANKERS.values():
            if location.endswith(f".{class_name}"):
                found = load_estimator_class("rankers", location)
                return found if issubclass(found, cls) else None
        return super()._find_class(class_name)

    def _write_state(self, folder: Path) -> dict[str, Any]:
        state = self._state()
        statistics = {} if self.feature_statistics_ is None else self.feature_statistics_.arrays
        state.arrays = {**state.arrays, **statistics, "importances": self.feature_importances_}
        return {
            "features": list(self.features_),
            "has_feature_names": self._has_feature_names,
            "history": self.history_,
            "validation_queries": list(self.validation_queries_),
            **state.write(folder),
        }

    def _read_state(self, folder: Path, fields: Fields, files: Iterable[str]) -> None:
        state = SavedState.read(folder, fields, files)
        self.features_ = tuple(fields.texts("features"))
        require(self.features_, "there are no features")
        self._has_feature_names = "has_feature_names" not in fields or fields.flag("has_feature_names")
        self.history_ = fields.numbers("history")
        self.validation_queries_ = tuple(fields.sequence("validation_queries", is_scalar, "ids"))
        require_floats(state.arrays, ["importances"], (self.n_features_in_,))
        self.feature_importances_ = state.arrays["importances"]
        self.feature_statistics_ = FeatureStatistics.from_arrays(state.arrays, self.n_features_in_)
        self._restore(state)


def is_saved_ranker(folder: str | Path) -> bool:
    """Return whether a folder has a ranker that `Ranker.load` can load: a saved ranker or remapper."""
    return folder_kind(Path(folder)) in (RANKER.name, REMAPPER.name)


def folder_kind(folder: Path) -> str | None:
    """Return the kind of a folder that crowdrank wrote, None for other folders."""
    try:
        return Manifest.read(folder).kind
    except (OSError, ValueError):
        return None


def unique_ids(query: Any) -> tuple[Any, ...]:
    """Return the distinct ids in the order of their first rows, as plain values.

    >>> unique_ids(np.array([7, 7, 3]))
    (7, 3)
    """
    values = query.to_pylist() if isinstance(query, pa.Array | pa.ChunkedArray) else np.asarray(query).tolist()
    return tuple(dict.fromkeys(values))


def divide_by_sum(amounts: Any) -> Floats:
    """Return amounts divided by their sum; unchanged if the sum is 0."""
    values = np.asarray(amounts, dtype=np.float64)
    return values / values.sum() if values.sum() > 0 else values


def require_routed_score() -> None:
    """Raise UsageError if a cross-validation of scikit-learn calls `fit` and will call `score` without the queries.

    Without metadata routing, `GridSearchCV(ranker, grid).fit(X, y, query=query)` passes `query` to `fit` only.
    scikit-learn turns an error of `score` into a score of NaN; it stops if no fit succeeds.
    """
    validation = sys.modules.get("sklearn.model_selection._validation")
    if validation is None or sys.modules["sklearn"].get_config()["enable_metadata_routing"]:
        return
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_globals is vars(validation) and "scorer" in frame.f_locals:
            scorer = frame.f_locals["scorer"]
            scorers = getattr(scorer, "_scorers", {"score": scorer}).values()
            if any(type(one).__name__ == "_PassthroughScorer" for one in scorers):  # the estimator's own `score`
                raise UsageError(
                    "is passed to fit only, and the ranker cannot be scored without it",
                    parameter="query",
                    kind="not-routed",
                    fix=(
                        "give X as a DataFrame with a column 'query'",
                        "call sklearn.set_config(enable_metadata_routing=True) before",
                    ),
                )
            return


class ConstantFeatureWarning(CrowdrankWarning):
    """Some features are constant or missing in every row, so that a ranker cannot learn from them."""


class MissingValueWarning(CrowdrankWarning):
    """Some features have missing values, which the ranker replaces."""


def warn_constant_features(data: RankingData) -> None:
    """Warn of features that are constant or missing in every row; raise InputError if all are."""
    missing = np.asarray(np.isnan(data.features).all(axis=0))
    constant = np.asarray((data.features[:1] == data.features).all(axis=0))
    if (missing | constant).all():
        fix = "give features that differ between documents"
        raise InputError("no feature differs between two rows", kind="no-features", fix=fix)
    for chosen, kind, how in ((constant, "constant-features", "constant"), (missing, "missing-features", "missing")):
        if chosen.any():
            verb = "is" if chosen.sum() == 1 else "are"
            problem = f"{_feature_list(data.names, chosen)} {verb} {how} in every row and not used"
            warnings.warn(ConstantFeatureWarning(problem, kind=kind), stacklevel=4)


def warn_missing_values(features: Floats, names: Sequence[str], ranker: str) -> None:
    """Warn of features with missing values, which the ranker replaces by the mean."""
    missing = np.isnan(features)
    some = np.asarray(missing.any(axis=0) & ~missing.all(axis=0))
    if some.any():
        verb = "has" if some.sum() == 1 else "have"
        problem = f"{_feature_list(names, some)} {verb} missing values, which {ranker} replaces by the mean"
        warnings.warn(MissingValueWarning(problem, kind="missing-values"), stacklevel=4)


def require_differences(values: Floats, offsets: Integers) -> None:
    """Raise InputError unless some query has two documents with different labels (or gains)."""
    if not labels_differ_within_query(values, offsets):
        fix = "give labels that differ within queries"
        raise InputError("no query has two documents of different labels", kind="no-differences", fix=fix)


def _feature_list(names: Sequence[str], chosen: Booleans) -> str:
    """Return the number of chosen features and the names of the first."""
    listed = [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]
    return f"{counted(len(listed), 'feature')} ({', '.join(listed[:3])}{', ...' if len(listed) > 3 else ''})"


@dataclass
class SavedState:
    """Fitted state of an estimator: plain values, named arrays, texts, and other rankers that it consists of."""

    values: dict[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    parts: dict[str, Ranker] = field(default_factory=dict)

    def write(self, folder: Path) -> dict[str, Any]:
        """Write the files of the state into a folder; return values for its JSON file."""
        pq.write_table(arrays_to_table(self.arrays), folder / "arrays.parquet")
        for name, text in self.texts.items():
            (folder / f"{name}.txt").write_text(text, encoding="utf-8", newline="\n")
        for name, part in self.parts.items():
            part.save(folder / name)
        return {"values": self.values, "texts": list(self.texts), "parts": list(self.parts)}

    @classmethod
    def read(cls, folder: Path, fields: Fields, files: Iterable[str]) -> SavedState:
        """Read what :meth:`write` wrote; raise ValueError if a file is missing."""
        texts, parts, existing = fields.texts("texts"), fields.texts("parts"), set(files)
        expected = [(name, f"{name}.txt") for name in texts] + [
            (name, f"{name}/{MANIFEST_FILE_NAME}") for name in parts
        ]
        for name, file in expected:
            require(_NAME.fullmatch(name) and file in existing, f"there is no {name!r} in it")
        return cls(
            fields.object("values"),
            read_arrays(folder / "arrays.parquet"),
            {name: (folder / f"{name}.txt").read_text(encoding="utf-8") for name in texts},
            {name: Ranker.load(folder / name) for name in parts},
        )
