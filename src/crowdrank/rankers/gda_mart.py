"""GDA-PW-MART: boosted trees that maximize the likelihood of judgments (Metrikov, Pavlu, Aslam 2015, eq. 14)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from crowdrank._progress import Report
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.constraints import Constraint, Constraints, Number, Parsed
from crowdrank.errors import CrowdrankWarning, InputError, UsageError
from crowdrank.evaluation.measures import Measure, effective_gains
from crowdrank.judgments import ids
from crowdrank.rankers.boosting import BoostedTrees, Loss
from crowdrank.rankers.lambdas import PairwiseObjective, SwapMeasure, check_measure
from crowdrank.rankers.ranker import Request, require_differences
from crowdrank.rankers.training_data import NamedMatrix, RankingData, as_matrix, checked_weights, id_column

if TYPE_CHECKING:
    from crowdrank.consensus.gda_pairwise import GDAPairwise
    from crowdrank.engine.passes import Engine


class PairwiseModel(Constraint):
    """A GDAPairwise, whose module is imported only if there is a value: a saved ranker does not need it."""

    def accepts(self, value: Any) -> bool:
        """Return whether the value is a GDAPairwise."""
        if value is None:
            return False
        from crowdrank.consensus.gda_pairwise import GDAPairwise

        return isinstance(value, GDAPairwise)

    def __str__(self) -> str:
        return "a fitted GDAPairwise"


class GDAPairwiseMART(BoostedTrees):
    """Boosted trees whose scores take the place of relevance in the pairwise model of judgments.

    A pair of documents costs |dZ| times the sum over its judgments of -log p(g | g', s - s') - log p(g' | g, s - s'),
    with the parameters of assessors and the difficulties of documents as `GDAPairwise` estimated them. Documents with
    uncertain labels thus have small gradients. Judgments of a family count as in the model.

    A saved ranker predicts without the model; to be fitted again, it needs one.

    GDA-PW-MART (eq. 14) of Metrikov, Pavlu, Aslam 2015: Aggregation of Crowdsourced Ordinal Assessments and Integration
    with Learning to Rank: A Latent Trait Model (CIKM).

    Args:
        model: a fitted `GDAPairwise`.
        measure, gains, truncation: as in `LambdaMART`; gains are expected gains.
        max_pairs: maximum number of pairs of judgments per pair of documents; a random sample stands for all.
        min_curvature: minimum of the Hessian per pair of judgments.
        n_estimators, learning_rate, num_leaves, min_child_samples, validate_by, patience, lightgbm, n_jobs: as in
            `LambdaMART`.
        random_state: random seed of LightGBM and of the pairs of judgments.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=15, documents=8, labels=3, random_state=1)
    >>> model = crowdrank.GDAPairwise().fit(world.judgments)
    >>> ranker = GDAPairwiseMART(model, n_estimators=10).fit(world.features)
    >>> len(ranker.feature_importances_)
    20

    """

    _parameter_constraints: ClassVar[Constraints] = {
        "model": [PairwiseModel(), None],
        "measure": [Parsed(check_measure)],
        "truncation": [Number(1, integer=True)],
        "max_pairs": [Number(1, integer=True)],
        "min_curvature": [Number(0, above=True)],
    }
    _default_requests: ClassVar[Mapping[str, Mapping[str, Request]]] = {
        **BoostedTrees._default_requests,
        "fit": {**BoostedTrees._default_requests["fit"], "document": True, "items": None},
    }

    def __init__(
        self,
        model: GDAPairwise | None = None,
        *,
        measure: str | Measure | None = "nDCG",
        gains: str | Sequence[float] = "exponential",
        truncation: int = 30,
        max_pairs: int = 9,
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
        self.max_pairs = max_pairs
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
        items: Any = None,
        engine: Engine | None = None,
    ) -> Self:
        """Fit the ranker to the judgments of the consensus model; other arguments are those of `Ranker.fit`.

        Args:
            X: `Features` or a frame with the columns query and document; or features without ids, with `query` and
                `document` as arguments.
            y: labels whose gains weight each pair, by the change of the measure if the two swap ranks; by default the
                probabilities of grades in the model's consensus.
            query: queries by which rows are grouped; judgments are found by the ids in X if it has them.
            document: id of each row's document. Rows without judgments are left out, with a warning.
            items: (n,) row of each document in the model's consensus, -1 if it has no judgments; ids are then not
                needed to find judgments.

        """
        from crowdrank.rankers.training_labels import read_labels

        self._check_parameters()
        if self.model is None:
            raise UsageError("must be a fitted GDAPairwise", parameter="model", kind="no-model")
        self.model._require_fitted()
        if items is None:
            query_ids, document_ids = _row_ids(X, query, document)
            items = self.model._prepare(self.model.judgments_).positions(query_ids, document_ids)
            query = query_ids if query is None else _normalized_ids(query)
        else:
            items = _checked_items(items, len(as_matrix(X)[0]), self.model.consensus_.document_table.num_rows)
            query = id_column(X, "query") if query is None else query
        rows = np.flatnonzero(items >= 0)
        if not len(rows):
            fix = "check that both use the same ids of queries and documents"
            raise InputError("no document has judgments in the model", kind="no-judgments", fix=fix)
        if len(rows) < len(items):
            left_out = counted(len(items) - len(rows), "document")
            problem = f"{left_out} without judgments in the model were left out"
            warnings.warn(CrowdrankWarning(problem, kind="without-judgments"), stacklevel=2)
        labels = read_labels(self.model).target("probabilities")[items] if y is None else np.asarray(y)
        weight = checked_weights(sample_weight, len(items))
        return self._fit(
            _take_rows(X, rows),
            labels[rows] if len(labels) == len(items) else labels,
            None if query is None else np.asarray(query)[rows],
            None if weight is None else weight[rows],
            eval_set,
            progress,
            engine,
            items=items[rows],
        )

    def _loss(self, data: RankingData, n_jobs: int, items: Integers | None = None) -> Loss:
        if self.model is None or items is None:
            raise UsageError("GDAPairwiseMART cannot be a member: it needs the ids of documents", kind="no-ids")
        if self.measure is not None:  # without differences in gain no swap changes a measure
            require_differences(data.gain(effective_gains(self.measure, self.gains)), data.offsets)
        return Loss(JudgmentObjective(data, self, self.model, items[data.order], n_jobs))

    def _needs_differences(self) -> bool:
        return self.measure is not None  # without a measure, the labels are not used

    def _fitted_parameters(self) -> tuple[str, ...]:
        return ("model",)

    def _saved_parameters(self) -> dict[str, Any]:
        return {**super()._saved_parameters(), "model": None}


class JudgmentObjective(PairwiseObjective):
    """Gradient and Hessian of eq. 14.

    If two documents have more than `max_pairs` pairs of judgments, a sample is used in which every judgment is equally
    likely; it is the same in every iteration.

    Args:
        data: documents with features and labels.
        ranker: provides measure, gains, truncation, max_pairs, min_curvature and random_state.
        model: fitted model of the judgments.
        items: (n,) item number of each row in the model.
        n_jobs: number of threads.

    """

    def __init__(
        self, data: RankingData, ranker: GDAPairwiseMART, model: GDAPairwise, items: Integers, n_jobs: int = 1
    ) -> None:
        super().__init__(data, ranker.truncation, n_jobs)
        gain = data.gain(effective_gains(ranker.measure, ranker.gains))
        self.swaps = SwapMeasure.from_gains(data, gain, ranker.measure, ranker.truncation)
        self.max_pairs, self.min_curvature = ranker.max_pairs, float(ranker.min_curvature)
        self.items, self.random_state = np.asarray(items, dtype=np.int64), int(ranker.random_state)
        self.weight = np.ones(0) if data.weight is None else data.weight
        table = model._prepare(model.judgments_)
        sizes = np.diff(table.offsets)[items]
        self.judged = np.append(0, np.cumsum(sizes))
        chosen = np.repeat(table.offsets[items] - self.judged[:-1], sizes) + np.arange(self.judged[-1])
        # A sample consists of adjacent judgments of a document, so their order must be random.
        random_key = np.random.default_rng(self.random_state).random(len(table.assessor))[chosen]
        chosen = chosen[np.lexsort((random_key, np.repeat(np.arange(len(items)), sizes)))]
        self.assessor, self.grade = table.assessor[chosen], table.grade[chosen]
        weights = model._judgment_weights(table)
        self.judgment_weight = np.ones(len(chosen)) if weights is None else weights[chosen]
        self.params = np.ascontiguousarray(model.theta_["params"])
        self.ease = np.ones(len(items))
        if "difficulty" in model.consensus_.document_table.column_names:
            self.ease = model.consensus_.document_table["difficulty"].to_numpy()[items] ** -0.5

    def _write_gradients(self, first: int, end: int, score: Floats, gradient: Floats, hessian: Floats) -> None:
        from crowdrank.rankers import lambda_kernels

        lambda_kernels.judgment_gradients(
            self.data.offsets,
            first,
            end,
            score,
            *self.swaps,
            self.weight,
            self.judged,
            self.assessor,
            self.grade,
            self.judgment_weight,
            self.ease,
            self.params,
            self.truncation,
            self.items,
            self.max_pairs,
            self.random_state,
            self.min_curvature,
            gradient,
            hessian,
        )


def _checked_items(items: Any, n_rows: int, n_items: int) -> Integers:
    """Return the items of the rows; raise UsageError unless there is one per row, from -1 to the last item."""
    array = np.asarray(items)
    is_valid = array.shape == (n_rows,) and array.dtype.kind in "iu" and bool(((array >= -1) & (array < n_items)).all())
    if not is_valid:
        raise UsageError(f"must be {n_rows:,} integers from -1 to {n_items - 1:,}", parameter="items", kind="bad-items")
    return array.astype(np.int64)


def _row_ids(X: Any, query: Any, document: Any) -> tuple[pa.Array, pa.Array]:
    """Return the ids of each row's query and document, from the features or else from the arguments."""
    n, arrays = len(as_matrix(X)[0]), []
    for role, argument in (("query", query), ("document", document)):
        column = id_column(X, role)
        column = argument if column is None else column
        if column is None:
            fix = "give Features, or a frame with the columns query and document"
            raise UsageError(
                f"is missing: judgments are found by the {role} ids", parameter=role, kind="no-ids", fix=fix
            )
        arrays.append(_normalized_ids(column))
        if len(column) != n:
            problem = f"there are {n:,} rows, but {len(column):,} {role} ids"
            raise InputError(problem, fix=f"give the {role} of each row")
    return arrays[0], arrays[1]


def _normalized_ids(column: Any) -> pa.Array:
    """Return a column of ids of any type as an Arrow array of normalized ids."""
    codes, known = ids.encode(column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([pa.array(column)]))
    return known.take(pa.array(codes, mask=codes < 0))


def _take_rows(X: Any, rows: Integers) -> Any:
    """Return some rows of features, with names if X has them."""
    matrix, names = as_matrix(X)
    return matrix[rows] if names is None else NamedMatrix(matrix[rows], names)
