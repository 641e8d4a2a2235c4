"""GDA-PW-MART: boosted trees that explain judgments, not labels (Metrikov, Pavlu, Aslam 2015, eq. 14)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from crowdrank._progress import Report
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.consensus.gda_pairwise import GDAPairwise
from crowdrank.constraints import Constraints, InstanceOf, Number, Parsed
from crowdrank.engine.base import Engine
from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation.measures import Measure, effective_gains
from crowdrank.judgments import ids
from crowdrank.rankers import kernels
from crowdrank.rankers.base import require_differences
from crowdrank.rankers.labels import read_labels
from crowdrank.rankers.lambdamart import BoostedTrees, Objective
from crowdrank.rankers.lambdas import CHUNKS, check_measure, measured, parts
from crowdrank.rankers.metadata_routing import Request
from crowdrank.rankers.ranking_data import Lists, Named, as_matrix, checked_weights, told_ids


class GDAPairwiseMART(BoostedTrees):
    """Trees whose scores stand for relevance in the pairwise model of judgments.

    A pair of documents costs |dZ| times the sum over its judgments of -log p(g | g', s - s') - log p(g' | g, s - s'),
    with the assessors' parameters and the documents' difficulties as `GDAPairwise` estimated them. So two documents of
    which little is known pull little, where a single label would pull with all its might. Judgments of a family count
    as in the model.

    Args:
        model: a fitted `GDAPairwise`.
        measure, gains, truncation: as in `LambdaMART`; gains are expected gains.
        most_pairs: of two documents' pairs of judgments, so many are looked at, drawn by `seed`; they count for all.
        min_curvature: a pair of judgments counts at least so much in the curvature, where it is nearly flat.
        n_estimators, learning_rate, num_leaves, min_child_samples, validate_by, patience, lightgbm, n_jobs: as in
            `LambdaMART`.
        random_state: of whatever LightGBM draws, and of the pairs of judgments.

    A saved ranker scores without the model; to be fitted again it must be given one.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=15, documents=8, labels=3, random_state=1)
    >>> model = crowdrank.GDAPairwise().fit(world.judgments)
    >>> ranker = GDAPairwiseMART(model, n_estimators=10).fit(world.features)
    >>> len(ranker.importances_)
    20
    """

    _parameter_constraints: ClassVar[Constraints] = {
        "model": [InstanceOf(GDAPairwise, "a fitted GDAPairwise"), None],
        "measure": [Parsed(check_measure)],
        "truncation": [Number(1, integer=True)],
        "most_pairs": [Number(1, integer=True)],
        "min_curvature": [Number(0, above=True)],
    }
    _default_requests: ClassVar[Mapping[str, Mapping[str, Request]]] = {
        **BoostedTrees._default_requests,
        "fit": {**BoostedTrees._default_requests["fit"], "document": True},
    }

    def __init__(
        self,
        model: GDAPairwise | None = None,
        *,
        measure: str | Measure | None = "nDCG",
        gains: str | Sequence[float] = "exponential",
        truncation: int = 30,
        most_pairs: int = 9,
        min_curvature: float = 0.01,
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        num_leaves: int = 31,
        min_child_samples: int = 20,
        validate_by: str = "nDCG@10",
        patience: int = 50,
        lightgbm: Mapping[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.model = model
        self.measure = measure
        self.gains = gains
        self.truncation = truncation
        self.most_pairs = most_pairs
        self.min_curvature = min_curvature
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.min_child_samples = min_child_samples
        self.validate_by = validate_by
        self.patience = patience
        self.lightgbm = lightgbm
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        query: Any = None,
        sample_weight: Any = None,
        eval_set: tuple[Any, Any, Any] | None = None,
        progress: bool | Report = False,
        document: Any = None,
        engine: Engine | None = None,
    ) -> Self:
        """Learn to rank from the judgments of the model; arguments as in `Ranker.fit`, but for these.

        Args:
            X: `Features` or a frame with the columns query and document, which tell the ids of their documents; or a
                matrix or frame beside `query` and `document`.
            y: what the gains in dZ come from; by default the probabilities of grades in the model's consensus.
            query: the lists; where X tells ids, judgments are found by those.
            document: the id of each row's document. Rows without judgments are left out, which is said.

        """
        self._check_parameters()
        if self.model is None:
            raise UsageError("must be a fitted GDAPairwise, whose judgments the trees explain", parameter="model")
        names, documents = _ids(X, query, document)
        items = judged_items(self.model, names, documents)
        rows = np.flatnonzero(items >= 0)
        if not len(rows):
            raise InputError(
                "no document has judgments in the model", fix="check that both name queries and documents alike"
            )
        if len(rows) < len(items):
            lost = counted(len(items) - len(rows), "document")
            warnings.warn(f"{lost} without judgments in the model were left out.", stacklevel=2)
        labels = read_labels(self.model).target("probabilities")[items] if y is None else np.asarray(y)
        weight = checked_weights(sample_weight, len(items))
        return self._fit(
            _taken(X, rows),
            labels[rows] if len(labels) == len(items) else labels,
            (names if query is None else _array(query)).take(pa.array(rows)),
            None if weight is None else weight[rows],
            eval_set,
            progress,
            engine,
            items=items[rows],
        )

    def _objective(self, lists: Lists, n_jobs: int, items: Integers | None = None) -> Objective:
        assert self.model is not None
        assert items is not None
        gains = effective_gains(self.measure, self.gains)
        if self.measure is not None:  # without differences in gain no swap changes a measure
            require_differences(lists.gain(gains), lists)
        return JudgmentObjective(
            lists,
            self.model,
            items[lists.order],
            measure=self.measure,
            gains=gains,
            truncation=self.truncation,
            most_pairs=self.most_pairs,
            min_curvature=self.min_curvature,
            n_jobs=n_jobs,
            random_state=self.random_state,
        )

    def _needs_differences(self) -> bool:
        return self.measure is not None  # else judgments say everything, and labels nothing

    def _fitted_parameters(self) -> tuple[str, ...]:
        return ("model",)

    def _saved_parameters(self) -> dict[str, Any]:
        return {**super()._saved_parameters(), "model": None}


class JudgmentObjective:
    """Slopes and curvatures of eq. 14 at given scores.

    Where two documents have more than `most_pairs` pairs of judgments, a sample counts for all: every judgment as
    likely as any other, drawn anew for each two documents, and the same whenever these two are looked at.
    """

    def __init__(
        self,
        lists: Lists,
        model: GDAPairwise,
        items: Integers,
        *,
        measure: str | Measure | None = "nDCG",
        gains: Any = "exponential",
        truncation: int = 30,
        most_pairs: int = 9,
        min_curvature: float = 0.01,
        n_jobs: int = 1,
        random_state: int = 0,
    ) -> None:
        self.lists, self.truncation, self.most, self.least = lists, truncation, most_pairs, float(min_curvature)
        self.code, self.value, self.inverse, self.discount = measured(lists, lists.gain(gains), measure, truncation)
        table = model._prepare(model.judgments_)
        sizes = np.diff(table.offsets)[items]
        self.judged = np.append(0, np.cumsum(sizes))
        chosen = np.repeat(table.offsets[items] - self.judged[:-1], sizes) + np.arange(self.judged[-1])
        # A sample is a stretch of a document's judgments: they are shuffled, lest neighbors be of one kind.
        drawn = np.random.default_rng(random_state).random(len(table.assessor))[chosen]
        chosen = chosen[np.lexsort((drawn, np.repeat(np.arange(len(items)), sizes)))]
        self.items, self.random_state = np.asarray(items, dtype=np.int64), int(random_state)
        self.assessor, self.grade = table.assessor[chosen], table.grade[chosen]
        weights = model._judgment_weights(table)
        self.judgment_weight = np.ones(len(chosen)) if weights is None else weights[chosen]
        self.params = np.ascontiguousarray(model.theta_["params"])
        self.ease = np.ones(len(items))
        if "difficulty" in model.consensus_.document_table.column_names:
            self.ease = model.consensus_.document_table["difficulty"].to_numpy()[items] ** -0.5
        self.weight = np.ones(0) if lists.weight is None else lists.weight
        self.parts = parts(lists.offsets, truncation, CHUNKS * n_jobs if n_jobs > 1 else 1)
        self._pool = ThreadPoolExecutor(n_jobs) if n_jobs > 1 else None

    def __call__(self, score: Floats) -> tuple[Floats, Floats]:
        """The slope and the curvature of the loss in every document's score."""
        score = np.ascontiguousarray(score, dtype=np.float64)
        slope, curve = np.empty(len(score)), np.empty(len(score))

        def one(part: tuple[int, int]) -> None:
            kernels.judgment_forces(
                self.lists.offsets,
                *part,
                score,
                self.value,
                self.inverse,
                self.discount,
                self.code,
                self.weight,
                self.judged,
                self.assessor,
                self.grade,
                self.judgment_weight,
                self.ease,
                self.params,
                self.truncation,
                self.items,
                self.most,
                self.random_state,
                self.least,
                slope,
                curve,
            )

        list(map(one, self.parts) if self._pool is None else self._pool.map(one, self.parts))
        return slope, curve


def judged_items(model: GDAPairwise, query: pa.Array, document: pa.Array) -> Integers:
    """For each pair of ids the number of its item in the model's consensus, or -1."""
    model._require_fitted()
    return model._prepare(model.judgments_).positions(query, document)


def _ids(X: Any, query: Any, document: Any) -> tuple[pa.Array, pa.Array]:
    """The ids of each row's query and document: those that the features tell, or those that stand beside."""
    told = told_ids(X, "query"), told_ids(X, "document")
    query, document = (beside if ids is None else ids for ids, beside in zip(told, (query, document), strict=True))
    if query is None or document is None:
        raise UsageError(
            "GDAPairwiseMART finds judgments by ids: give Features, or query and document of each row (beside the "
            "features, or as columns of a frame)."
        )
    n = len(as_matrix(X)[0])
    arrays = _array(query), _array(document)
    for name, array in zip(("query", "document"), arrays, strict=True):
        if len(array) != n:
            raise InputError(f"there are {n:,} rows, but {len(array):,} {name} ids", fix=f"give each row its {name}")
    return arrays


def _array(names: Any) -> pa.Array:
    column = names if isinstance(names, pa.ChunkedArray) else pa.chunked_array([pa.array(names)])
    codes, known = ids.encode(column)
    return known.take(pa.array(codes, mask=codes < 0))


def _taken(X: Any, rows: Integers) -> Any:
    """Some rows of features, with their names."""
    matrix, names = as_matrix(X)
    return matrix[rows] if names is None else Named(matrix[rows], names)
