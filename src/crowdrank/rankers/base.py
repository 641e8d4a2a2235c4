"""The contract of every ranker: features and labels in, scores out."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from crowdrank._base import Parametrized, require_whole
from crowdrank._notebook import heading, panel, rows_of, words
from crowdrank._progress import Report, reporting
from crowdrank._saved import require_floats
from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.engine.base import Engine
from crowdrank.errors import InputError, NotFittedError, UsageError
from crowdrank.rankers import store
from crowdrank.rankers.ranking_data import Lists, aligned, differ_within, gather, told_queries
from crowdrank.rankers.store import State
from crowdrank.rankers.validation import Validation


class Ranker(Parametrized, ABC):
    """Features and labels in, scores out. The constructor only stores; what is learned ends in an underscore.

    A ranker states `_learn`, `_score`, `_state` and `_restore`; checks, lists, validation and storage are here.

    Attributes:
        importances_: how much each feature counts, (n_features,), summing to 1 where any does.
        feature_names_in_: the names of the features, f1, f2, ... where they had none.
        history_: the validation measure after each round, where there was a validation set.
        validation_queries_: the ids of the validation queries, where there were any.

    """

    random_state: int

    importances_: Floats
    feature_names_in_: tuple[str, ...]
    history_: list[float]
    validation_queries_: tuple[Any, ...] = ()

    takes_blanks: ClassVar[bool] = True
    """Whether a blank feature (NaN) is something to learn from; else it counts as the mean, which is said."""
    learns_on_engines: ClassVar[bool] = False
    """Whether it can learn on an engine, a cluster for one; else it learns here."""

    _engine: Engine | None = None
    """While it learns: where."""

    def _repr_html_(self) -> str:
        if not hasattr(self, "importances_"):
            return panel(heading(repr(self)), words("not fitted yet"))
        rows = [
            {"feature": self.feature_names_in_[place], "importance": float(self.importances_[place])}
            for place in np.argsort(-self.importances_, kind="stable")
        ]
        return panel(heading(repr(self)), words(counted(len(rows), "feature")), rows_of(rows))

    # What a ranker states.

    @abstractmethod
    def _learn(self, lists: Lists, validation: Validation | None, report: Report) -> None:
        """Learn from lists; set `importances_` and whatever scoring needs."""

    @abstractmethod
    def _score(self, X: Floats, query: Any = None) -> Floats:
        """Return the scores of rows with features in the order of `feature_names_in_`."""

    @abstractmethod
    def _state(self) -> State:
        """What was learned, to be written."""

    @abstractmethod
    def _restore(self, state: State) -> None:
        """Take back what `_state` gave, and raise ValueError where it does not fit the features or itself."""

    def _check(self) -> None:
        """Refuse settings that mean nothing."""
        require_whole("random_state", self.random_state, 0)

    def _needs_differences(self) -> bool:
        """Whether it learns from labels that differ within a query, and from nothing else."""
        return True

    # What users call.

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
        """Learn to rank.

        Args:
            X: a matrix, a DataFrame (its column names are kept; query and document are ids, no features) or `Features`;
                one row a document of a query.
            y: (n,) grades, whole or not; or (n, n_grades) probabilities of the grades 0, 1, ...
            query: the id of each row's query; not needed where X tells it. Rows of one query should stand together;
                else they are sorted.
            sample_weight: (n,) weights of 0 or more.
            eval_set: (X, y, query) of validation queries; when to stop, or what to choose, is told by them.
            progress: show a bar when it takes long, or call a function with (round, most, measure).
            engine: where it learns, for the rankers that can learn elsewhere; by default here.

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
    ) -> Self:
        self._check()
        if engine is not None:
            self.require_engines()
        lists = gather(X, y, query, sample_weight)
        say_flat(lists)
        if self._needs_differences():
            require_differences(lists.labels, lists)
        if not self.takes_blanks:
            say_blanks(lists, type(self).__name__)
        self.history_, self.validation_queries_ = [], ()
        validation = self._validation(eval_set, lists)
        self._engine = engine
        try:
            with reporting(progress, type(self).__name__) as report:
                self._learn(lists, validation, report)
        finally:
            del self._engine
        self.feature_names_in_ = lists.names
        return self

    def require_engines(self) -> None:
        """Refuse to learn on an engine where it cannot."""
        if not self.learns_on_engines:
            name = type(self).__name__
            raise UsageError(
                f"{name} learns on this machine only; leave the engine out, or take GLS, RD or LambdaMART."
            )

    def _validation(self, eval_set: tuple[Any, Any, Any] | None, lists: Lists) -> Validation | None:
        if eval_set is None:
            return None
        if not isinstance(eval_set, tuple | list) or len(eval_set) != 3:
            raise UsageError("eval_set is (X, y, query) of validation queries.")
        X, y, query = eval_set
        known = gather(X, y, query, known=lists.names, what=" of eval_set")
        ids = told_queries(X)  # lists may be known by number, where the features know their queries
        self.validation_queries_ = unique_ids(query if ids is None else ids)
        return Validation(known, getattr(self, "validate_by", "nDCG@10"), getattr(self, "gains", "exponential"))

    def predict(self, X: Any, query: Any = None) -> Floats:
        """The score of each row; higher is better. Only some rankers (`Ensemble`) look at the query."""
        self._require_fitted()
        return self._score(aligned(X, self.feature_names_in_), told_queries(X) if query is None else query)

    def save(self, path: str | Path) -> None:
        """Write the fitted ranker into a folder: JSON, Parquet, and trees as LightGBM's text; no pickle."""
        self._require_fitted()
        store.write(path, self, self._stored_parameters(), self._state())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote; `Ranker.load` reads any ranker.

        Raises:
            InputError: the folder has no saved ranker, or one of its files was damaged or altered.

        """
        about, state = store.read(path)
        from crowdrank.rankers import RANKERS, ranker_class

        known = {ranker_class(name).__name__: ranker_class(name) for name in RANKERS}
        with store.reading(path):
            found = known.get(about.text("ranker"))
            if found is None or not issubclass(found, cls):
                raise InputError(f"it holds a {about.text('ranker')}, not a {cls.__name__}", source=str(path))
            ranker = found().set_params(**store.tuples(about.object("parameters")))
            ranker._check()
            ranker.feature_names_in_ = tuple(about.texts("features"))
            ranker.history_ = about.numbers("history")
            ranker.validation_queries_ = tuple(about.sequence("validation_queries"))
            require_floats(state.arrays, ["importances"], (len(ranker.feature_names_in_),))
            ranker.importances_ = state.arrays["importances"]
            ranker._restore(state)
        return ranker

    def _stored_parameters(self) -> dict[str, Any]:
        return self.get_params()

    def _require_fitted(self) -> None:
        if not hasattr(self, "feature_names_in_"):
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet; call fit first.")

    def unfitted(self) -> Self:
        """A ranker with the same settings that has learned nothing."""
        return type(self)(**self.get_params())


FLAT = "the same in every row, so that nothing is learned from"
BLANK = "blank in every row, so that nothing is learned from"


def say_flat(lists: Lists) -> None:
    """Say which features are blank or the same everywhere; refuse if no feature tells two documents apart."""
    blank = np.isnan(lists.X).all(axis=0)
    flat = (lists.X[:1] == lists.X).all(axis=0)
    if (blank | flat).all():
        raise InputError("no feature differs between two rows", fix="give features that tell documents apart")
    for found, how in ((flat, FLAT), (blank, BLANK)):
        number = int(found.sum())
        if number:
            is_, it = ("is", "it") if number == 1 else ("are", "them")
            warnings.warn(f"{_features(lists, found)} {is_} {how} {it}.", stacklevel=4)


@contextmanager
def flat_said() -> Iterator[None]:
    """Where one ranker teaches others on the same features, what :func:`say_flat` said is not said again."""
    with warnings.catch_warnings():
        for how in (FLAT, BLANK):
            warnings.filterwarnings("ignore", message=f".*{how}")
        yield


def require_differences(values: Floats, lists: Lists) -> None:
    """Refuse labels (or their gains) that tell no two documents of a query apart."""
    if not differ_within(values, lists.offsets):
        raise InputError(
            "no query has two documents of different labels", fix="a ranker learns from differences within a query"
        )


def say_blanks(lists: Lists, ranker: str) -> None:
    """Say which features have blanks that count as the mean; those that are blank everywhere count as nothing."""
    missing = np.isnan(lists.X)
    some = missing.any(axis=0) & ~missing.all(axis=0)
    number = int(some.sum())
    if number:
        has = "has" if number == 1 else "have"
        warnings.warn(f"{_features(lists, some)} {has} blanks, which {ranker} takes as the mean.", stacklevel=4)


def _features(lists: Lists, chosen: Any) -> str:
    """How many features, and the names of the first."""
    names = [name for name, is_one in zip(lists.names, chosen, strict=True) if is_one]
    return f"{counted(len(names), 'feature')} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"


def unique_ids(query: Any) -> tuple[Any, ...]:
    """The ids in the order of their first rows, as plain values.

    >>> unique_ids(np.array([7, 7, 3]))
    (7, 3)
    """
    values = query.to_pylist() if isinstance(query, pa.Array | pa.ChunkedArray) else np.asarray(query).tolist()
    return tuple(dict.fromkeys(values))
