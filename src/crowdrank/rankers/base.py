"""The contract of every ranker: features and labels in, scores out."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._base import load_class
from crowdrank._folders import FolderKind
from crowdrank._model_io import FittedEstimator
from crowdrank._notebook import heading, html_table, panel, paragraph
from crowdrank._progress import Report, reporting
from crowdrank._saved import Fields, is_scalar, require, require_floats
from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.constraints import MAX_INTEGER, Constraints, Number, Parsed
from crowdrank.engine.base import Engine
from crowdrank.errors import CrowdrankWarning, InputError, UsageError
from crowdrank.evaluation.measures import parse_gains
from crowdrank.rankers import RANKERS, store
from crowdrank.rankers.metadata_routing import MetadataRequests, Request
from crowdrank.rankers.ranking_data import Lists, aligned, differ_within, gather, told_queries
from crowdrank.rankers.store import State
from crowdrank.rankers.validation import Validation, check_validation

N_JOBS: Constraints = {"n_jobs": [Number(1, integer=True), None]}
"""Constraint on the number of threads."""


class Ranker(MetadataRequests, FittedEstimator):
    """Base of all rankers.

    A subclass implements `_learn`, `_score`, `_state` and `_restore`. Checks, sorting by query, validation, storage
    and what scikit-learn needs are shared.

    Attributes:
        importances_: importance of each feature, (n_features,), which sum to 1 unless all are 0.
        features_: names of the features; f1, f2, ... if X had no names.
        n_features_in_: number of features.
        feature_names_in_: names of the features as an array; not there if X had no names.
        history_: the validation measure after each round, if there was a validation set.
        validation_queries_: ids of the validation queries.

    """

    takes_blanks: ClassVar[bool] = True
    """Whether missing features (NaN) are used as such; otherwise they are replaced by the mean, with a warning."""
    learns_on_engines: ClassVar[bool] = False
    """Whether `fit` can run on an engine such as a cluster."""

    _folder: ClassVar[FolderKind] = store.RANKER
    _file: ClassVar[str] = store.FILE
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

    importances_: Floats
    features_: tuple[str, ...]
    history_: list[float]
    validation_queries_: tuple[Any, ...] = ()
    _has_feature_names: bool = True

    # Hooks of a ranker.

    @abstractmethod
    def _learn(self, lists: Lists, validation: Validation | None, report: Report, engine: Engine | None) -> None:
        """Learn from lists; set `importances_` and what `_score` needs.

        A subclass may have further optional arguments, which its `fit` passes to `_fit`.
        """

    @abstractmethod
    def _score(self, X: Floats, query: Any = None) -> Floats:
        """Return the scores of rows; their features are in the order of `features_`."""

    @abstractmethod
    def _state(self) -> State:
        """Return what was learned, including the array `importances`."""

    @abstractmethod
    def _restore(self, state: State) -> None:
        """Set what `_state` returned; raise ValueError if it does not fit the features or itself."""

    def _needs_differences(self) -> bool:
        """Return whether the ranker learns only from labels that differ within a query."""
        return True

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
            query: id of the query of each row; not needed if X has it. Rows are sorted by query if they are not.
            sample_weight: weights, (n,), of at least 0.
            eval_set: (X, y, query) of validation queries for early stopping and the choice of hyperparameters.
            progress: show a progress bar, or call a function with (round, rounds, measure).
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
        lists = gather(X, y, query, sample_weight)
        warn_constant_features(lists)
        if self._needs_differences():
            require_differences(lists.labels, lists)
        if not self.takes_blanks:
            warn_missing_values(lists, type(self).__name__)
        self.history_, self.validation_queries_ = [], ()
        validation = self._validation(eval_set, lists)
        with reporting(progress, type(self).__name__) as report:
            self._learn(lists, validation, report, engine, **options)
        self.features_, self._has_feature_names = lists.names, lists.has_names
        return self

    def require_engines(self) -> None:
        """Raise UsageError if the ranker cannot learn on an engine."""
        if not self.learns_on_engines:
            raise UsageError(
                f"is not used by {type(self).__name__}, which learns on this machine",
                parameter="engine",
                fix=["leave it out", "take GLS, RD or LambdaMART"],
            )

    def _validation(self, eval_set: tuple[Any, Any, Any] | None, lists: Lists) -> Validation | None:
        if eval_set is None:
            return None
        if not isinstance(eval_set, tuple | list) or len(eval_set) != 3:
            raise UsageError("must be (X, y, query) of validation queries", parameter="eval_set")
        X, y, query = eval_set
        known = gather(X, y, query, known=lists.names, what=" of eval_set")
        ids = told_queries(X)  # features may have ids while `query` has numbers
        self.validation_queries_ = unique_ids(query if ids is None else ids)
        return Validation(known, getattr(self, "validate_by", "nDCG@10"), getattr(self, "gains", "exponential"))

    # Results.

    def predict(self, X: Any, query: Any = None) -> Floats:
        """Return the score of each row; higher is better.

        Args:
            X: features as in :meth:`fit`; columns with names are found by name.
            query: id of the query of each row, which only some rankers use (`Ensemble`); not needed if X has it.

        """
        self._require_fitted()
        return self._score(aligned(X, self.features_), told_queries(X) if query is None else query)

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
        lists = gather(X, y, query, sample_weight, known=self.features_)
        measure = Validation(lists, "nDCG@10")
        values = measure.per_query(self._score(lists.X, lists.query))
        if lists.weight is None:
            return float(values.mean())
        weight = np.add.reduceat(lists.weight, lists.offsets[:-1]) / np.diff(lists.offsets)
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
            {"feature": self.features_[place], "importance": float(self.importances_[place])}
            for place in np.argsort(-self.importances_, kind="stable")
        ]
        return panel(heading(repr(self)), paragraph(counted(len(rows), "feature")), html_table(rows))

    # Storage.

    @classmethod
    def _registered_classes(cls) -> Iterable[type[Any]]:
        return (load_class("rankers", location) for location in RANKERS.values())

    def _write_state(self, folder: Path) -> dict[str, Any]:
        return {
            "features": list(self.features_),
            "has_feature_names": self._has_feature_names,
            "history": self.history_,
            "validation_queries": list(self.validation_queries_),
            **self._state().write(folder),
        }

    def _read_state(self, folder: Path, fields: Fields, files: Iterable[str]) -> None:
        state = State.read(folder, fields, files)
        self.features_ = tuple(fields.texts("features"))
        require(self.features_, "there are no features")
        self._has_feature_names = "has_feature_names" not in fields or fields.flag("has_feature_names")
        self.history_ = fields.numbers("history")
        self.validation_queries_ = tuple(fields.sequence("validation_queries", is_scalar, "ids"))
        require_floats(state.arrays, ["importances"], (self.n_features_in_,))
        self.importances_ = state.arrays["importances"]
        self._restore(state)


class ConstantFeatureWarning(CrowdrankWarning):
    """Some features are constant or missing in every row, so that a ranker cannot learn from them."""


class MissingValueWarning(CrowdrankWarning):
    """Some features have missing values, which the ranker replaces."""


def warn_constant_features(lists: Lists) -> None:
    """Warn of features that are constant or missing in every row; raise InputError if all are."""
    missing = np.isnan(lists.X).all(axis=0)
    constant = (lists.X[:1] == lists.X).all(axis=0)
    if (missing | constant).all():
        raise InputError(
            "no feature differs between two rows", kind="no-features", fix="give features that tell documents apart"
        )
    for chosen, kind, how in ((constant, "constant-features", "constant"), (missing, "missing-features", "missing")):
        if chosen.any():
            problem = f"{_feature_list(lists, chosen)} {_verb(chosen, 'is')} {how} in every row and not used"
            warnings.warn(ConstantFeatureWarning(problem, kind=kind), stacklevel=4)


@contextmanager
def constant_features_known() -> Iterator[None]:
    """Suppress the warnings of :func:`warn_constant_features` while a ranker fits others to the same features."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantFeatureWarning)
        yield


def require_differences(values: Floats, lists: Lists) -> None:
    """Raise InputError unless some query has two documents with different labels (or gains)."""
    if not differ_within(values, lists.offsets):
        raise InputError(
            "no query has two documents of different labels",
            kind="no-differences",
            fix="give labels that differ within queries: a ranker learns from such differences",
        )


def warn_missing_values(lists: Lists, ranker: str) -> None:
    """Warn of features with missing values, which the ranker replaces by the mean."""
    missing = np.isnan(lists.X)
    some = missing.any(axis=0) & ~missing.all(axis=0)
    if some.any():
        problem = f"{_feature_list(lists, some)} {_verb(some, 'has')} missing values, which {ranker} takes as the mean"
        warnings.warn(MissingValueWarning(problem, kind="missing-values"), stacklevel=4)


def _feature_list(lists: Lists, chosen: Any) -> str:
    """Return the number of features and the names of the first."""
    names = [name for name, is_chosen in zip(lists.names, chosen, strict=True) if is_chosen]
    return f"{counted(len(names), 'feature')} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"


def _verb(chosen: Any, singular: str) -> str:
    return singular if chosen.sum() == 1 else {"is": "are", "has": "have"}[singular]


def unique_ids(query: Any) -> tuple[Any, ...]:
    """Return the distinct ids in the order of their first rows, as plain values.

    >>> unique_ids(np.array([7, 7, 3]))
    (7, 3)
    """
    values = query.to_pylist() if isinstance(query, pa.Array | pa.ChunkedArray) else np.asarray(query).tolist()
    return tuple(dict.fromkeys(values))
