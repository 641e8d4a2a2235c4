"""A prior of relevance from features of documents, such as retrieval scores.

The features predict relevance by a regression that is fitted to the labels of other queries (out of fold). The
prediction g of a document, with mean 0 and variance 1 over the labeled documents, sets its prior:

    r ~ N(rho g, 1 - rho^2)

Over all documents relevance keeps mean 0 and variance 1. The model learns rho together with its other parameters by
maximum likelihood of the labels (empirical Bayes): rho is 0 for useless features, and the prior is then the one without
features. Models of true grades learn an ordinal regression of the grade on g instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Arrays, Booleans, Floats, Integers
from crowdrank.engine.shards import ItemScores, Shard
from crowdrank.errors import DataWarning, Fix
from crowdrank.judgments import ids
from crowdrank.judgments.features import Features, require_unique
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import AssessorTable, Judgments, assessor_fields

if TYPE_CHECKING:
    from crowdrank.engine.base import Passes

MIN_LABELED = 20
"""Minimum number of labeled documents with features; with fewer, features are not used."""
MIN_TREE_ROWS = 500
"""Minimum number of labeled documents for boosted trees; with fewer, or with one feature, the regression is linear."""
N_FOLDS = 5
"""Maximum number of folds of queries."""
MIN_LABELS = 1.5
"""Documents with labels of a larger total weight inform the prior."""
MAX_SCORE = 3.0
"""Maximum absolute prediction, in standard deviations, so that priors stay on the grid of relevance."""
INITIAL_WEIGHT = 0.5
MAX_WEIGHT = 0.99
"""Initial and maximum correlation of relevance and prediction."""
N_TREES = 150
TREE_PARAMETERS = {
    "objective": "regression",
    "num_leaves": 15,
    "learning_rate": 0.05,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbose": -1,
}
RIDGE_PENALTIES: Floats = 10.0 ** np.arange(-4.0, 3.0)
"""Penalties of the linear regression per row, among which generalized cross-validation chooses."""

SCORE_BINS: Floats = np.linspace(-MAX_SCORE, MAX_SCORE, 25)
"""Centers of the bins of scores from which models of true grades learn their prior."""
NEWTON_STEPS = 5
SMALLEST = 1e-300

Predictor = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class FeatureScores:
    """Predictions of relevance from features, out of fold.

    Attributes:
        query: query ids, (n,).
        document: document ids, (n,).
        score: prediction for each document, (n,); mean 0 and variance 1 over labeled documents.
        names: names of the features that were used.

    """

    query: pa.Array
    document: pa.Array
    score: Floats
    names: tuple[str, ...]

    def for_items(self, judgments: Judgments | ShardedJudgments) -> ItemScores:
        """Return the prediction for each item of the judgments (of each shard), NaN for items without features."""
        return tuple(self._on_rows(rows) for rows in feature_rows(self.query, self.document, judgments))

    def without_labels(self, judgments: Judgments | ShardedJudgments) -> FeatureScores:
        """Return the predictions for documents that are not among the judgments, sorted by query."""
        known = np.zeros(len(self.score), dtype=bool)
        for rows in feature_rows(self.query, self.document, judgments):
            known[rows[rows >= 0]] = True
        rows = np.flatnonzero(~known)
        rows = rows[np.argsort(query_codes(self.query)[rows], kind="stable")]
        return FeatureScores(self.query.take(rows), self.document.take(rows), self.score[rows], self.names)

    def as_items(self, table: AssessorTable) -> Judgments:
        """Return a table without judgments whose items are these documents."""
        (query, queries), (document, documents) = (
            ids.encode(pa.chunked_array([one])) for one in (self.query, self.document)
        )
        return Judgments(
            **assessor_fields(table),
            queries=queries,
            documents=documents,
            item_query=query,
            item_document=document,
            offsets=np.zeros(len(query) + 1, np.int64),
            assessor=np.zeros(0, np.int32),
            grade=np.zeros(0, np.int8),
        )

    def _on_rows(self, rows: Integers) -> Floats:
        return np.where(rows >= 0, self.score[rows], np.nan)


def query_codes(query: pa.Array) -> Integers:
    """Return the number of each row's query, in the order of first appearance."""
    return ids.encode(pa.chunked_array([query]))[0].astype(np.int64)


def feature_rows(query: pa.Array, document: pa.Array, judgments: Judgments | ShardedJudgments) -> tuple[Integers, ...]:
    """Return the row of each item of the judgments (of each shard) among these ids; -1: none."""
    return tuple(_rows_of(query, document, part) for part in judgments.iterate())


def _rows_of(query: pa.Array, document: pa.Array, judgments: Judgments) -> Integers:
    item = judgments.positions(query, document)
    rows = np.full(judgments.n_items, -1, np.int64)
    rows[item[item >= 0]] = np.flatnonzero(item >= 0)
    return rows


# The regression.


@dataclass(frozen=True, eq=False)
class FeaturePrior:
    """Usable features of a fit, and the rows of the labeled documents.

    Attributes:
        features: the features, without constant columns.
        matrix: the features scaled to 0-1 within queries, (n, n_features).
        group: query of each row as a number, (n,).
        rows: row of each item of the judgments (of each shard), -1 without features.
        warnings: problems of the features, with the fallback that is used.

    """

    features: Features
    matrix: Floats
    group: Integers
    rows: tuple[Integers, ...]
    warnings: tuple[DataWarning, ...]

    def learn_scores(self, relevance: Floats, seed: int) -> FeatureScores:
        """Return predictions from a regression on other folds.

        Args:
            relevance: relevance of each item that its labels alone imply, (n_items,).
            seed: random seed of folds and trees.

        """
        item_rows = np.concatenate(self.rows)
        target = np.full(len(self.matrix), np.nan)
        target[item_rows[item_rows >= 0]] = relevance[item_rows >= 0]
        score = cross_fit(self.matrix, center_within(target, self.group), self.group, seed)
        labeled = ~np.isnan(target)
        mean, sd = score[labeled].mean(), score[labeled].std()
        standardized = (score - mean) / sd if sd > 1e-9 else np.zeros(len(score))
        features = self.features
        clipped = np.clip(standardized, -MAX_SCORE, MAX_SCORE)
        return FeatureScores(features.query, features.document, clipped, features.names)


def usable_features(
    features: Features, judgments: Judgments | ShardedJudgments
) -> tuple[FeaturePrior | None, tuple[DataWarning, ...]]:
    """Return the features as the regression uses them, or None if they cannot be used, and warnings."""
    found: list[DataWarning] = []
    require_unique(features)
    group = query_codes(features.query)
    matrix = scale_within(features.matrix, group)
    rows = feature_rows(features.query, features.document, judgments)
    n_items, n_known = judgments.n_items, int(sum((part >= 0).sum() for part in rows))
    useful = np.array([len(np.unique(column[~np.isnan(column)])) > 1 for column in matrix.T], dtype=bool)
    if not useful.all():
        found.append(_constant_features([name for name, use in zip(features.names, useful, strict=True) if not use]))
    if n_known < MIN_LABELED:
        found.append(_few_documents(n_known))
    if n_known < MIN_LABELED or not useful.any():
        return None, tuple(found)
    if n_known < n_items:
        found.append(_incomplete_features(n_items - n_known, n_items))
    missing = np.isnan(matrix[:, useful])
    if missing.any():
        found.append(_missing_values(int(missing.sum()), missing.size))
    if judgments.n_queries == 1:
        found.append(_one_query())
    names = tuple(name for name, use in zip(features.names, useful, strict=True) if use)
    kept = replace(features, matrix=features.matrix[:, useful], names=names)
    return FeaturePrior(kept, matrix[:, useful], group, rows, tuple(found)), tuple(found)


def scale_within(matrix: Floats, group: Integers) -> Floats:
    """Return columns scaled to 0-1 within groups; columns that are constant in a group are 0 there.

    >>> scale_within(np.array([[1.0], [3.0], [2.0], [7.0]]), np.array([0, 0, 0, 1])).ravel().tolist()
    [0.0, 1.0, 0.5, 0.0]
    """
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    place = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(group))))
    ordered = np.where(np.isfinite(matrix[order]), matrix[order], np.nan)
    low, high = (reduce.reduceat(ordered, starts, axis=0)[place] for reduce in (np.fmin, np.fmax))
    scaled = np.empty(matrix.shape)
    scaled[order] = (ordered - low) / np.where(high > low, high - low, 1.0)
    return scaled


def center_within(target: Floats, group: Integers) -> Floats:
    """Return targets without the mean of their group; NaN stays NaN.

    >>> center_within(np.array([1.0, 3.0, np.nan, 5.0]), np.array([0, 0, 0, 1])).tolist()
    [-1.0, 1.0, nan, 0.0]
    """
    known = ~np.isnan(target)
    count = np.bincount(group, known)
    mean = np.bincount(group, np.where(known, target, 0.0)) / np.maximum(count, 1)
    return target - mean[group]


def cross_fit(matrix: Floats, target: Floats, group: Integers, seed: int) -> Floats:
    """Return a prediction for each row from a regression that has not seen its group.

    If only one group has targets, folds are of rows. Rows outside of all folds get the mean of all predictions.

    Args:
        matrix: features, (n, n_features).
        target: targets, (n,); NaN for rows without one.
        group: group of each row, (n,).
        seed: random seed of folds and trees.

    """
    labeled = ~np.isnan(target)
    fold = assign_folds(group, labeled, seed)
    n_folds = int(fold.max()) + 1
    learn = fit_ridge if matrix.shape[1] == 1 or labeled.sum() < MIN_TREE_ROWS else fit_trees
    scores = np.zeros(len(target))
    for number in range(n_folds):
        train = labeled & (fold != number)
        predict = learn(matrix[train], target[train], seed)
        held_out, outside = fold == number, fold < 0
        scores[held_out] = predict(matrix[held_out])
        scores[outside] += predict(matrix[outside]) / n_folds if outside.any() else 0.0
    return scores


def assign_folds(group: Integers, labeled: Booleans, seed: int) -> Integers:
    """Return the fold of each row: whole groups, or rows if only one group is labeled; -1: not in a fold."""
    units = group if len(np.unique(group[labeled])) > 1 else np.arange(len(group))
    used = np.unique(units[labeled])
    fold_of = np.full(int(units.max()) + 1, -1, np.int64)
    fold_of[np.random.default_rng(seed).permutation(used)] = np.arange(len(used)) % min(N_FOLDS, len(used))
    return fold_of[units]


def fit_trees(matrix: Floats, target: Floats, seed: int) -> Predictor:
    """Return the prediction function of boosted regression trees."""
    import lightgbm

    leaf = min(50, len(target) // 20)
    parameters = {**TREE_PARAMETERS, "min_data_in_leaf": leaf, "seed": seed}
    booster = lightgbm.train(parameters, lightgbm.Dataset(matrix, target), N_TREES)
    return lambda rows: np.asarray(booster.predict(rows, num_threads=1), np.float64)


def fit_ridge(matrix: Floats, target: Floats, seed: int = 0) -> Predictor:
    """Return the prediction function of a ridge regression; missing values have an indicator and the column's mean."""
    missing = np.asarray(np.isnan(matrix).any(axis=0))
    with_indicators = _with_indicators(matrix, missing)
    mean = np.nanmean(np.where(np.isnan(with_indicators).all(axis=0), 0.0, with_indicators), axis=0)
    filled = np.where(np.isnan(with_indicators), mean, with_indicators) - mean
    sd = np.maximum(filled.std(axis=0), 1e-12)
    u, singular, vt = np.linalg.svd(filled / sd, full_matrices=False)
    centered = target - target.mean()
    along = u.T @ centered
    n = len(target)

    def validation_error(penalty: float) -> float:
        shrink = singular**2 / (singular**2 + n * penalty)
        residual = centered - u @ (shrink * along)
        return float(residual @ residual / (1 - (shrink.sum() + 1) / n) ** 2) if shrink.sum() + 1 < n else np.inf

    penalty = min(RIDGE_PENALTIES, key=validation_error)
    coefficients = vt.T @ (singular / (singular**2 + n * penalty) * along) / sd

    def predict(rows: Floats) -> Floats:
        columns = _with_indicators(rows, missing)
        return np.asarray(np.where(np.isnan(columns), 0.0, columns - mean) @ coefficients + target.mean())

    return predict


def _with_indicators(matrix: Floats, missing: Booleans) -> Floats:
    return np.column_stack([matrix, np.isnan(matrix[:, missing]).astype(np.float64)])


# The prior of models with relevance on nodes.


def log_node_priors(shard: Shard, weight: float, shares: Floats, nodes: Floats) -> Floats:
    """Return the log prior of each item on the states, (n_items, n_states).

    Args:
        shard: the shard, with the `score` of each item.
        weight: correlation rho of relevance and score.
        shares: prior of the states without features, (n_states,): nodes by difficulty, and perhaps 'cannot be judged'.
        nodes: (n_nodes,).

    """
    assert shard.score is not None
    mean, variance = prior_moments(shard.score, weight)
    density = -0.5 * (nodes - mean[:, None]) ** 2 / variance[:, None]
    density -= np.log(np.exp(density).sum(axis=1, keepdims=True))
    plain = -0.5 * nodes**2
    change = density - (plain - np.log(np.exp(plain).sum()))
    n_difficulties = len(shares) // len(nodes)
    logs = np.tile(np.log(np.maximum(shares, 1e-300)), (len(mean), 1))
    logs[:, : n_difficulties * len(nodes)] += np.tile(change, n_difficulties)
    return logs


def prior_moments(score: Floats, weight: float) -> tuple[Floats, Floats]:
    """Return mean and variance of the prior of each item; those without a score have 0 and 1."""
    known = ~np.isnan(score)
    return np.where(known, weight * np.nan_to_num(score), 0.0), np.where(known, 1 - weight**2, 1.0)


def informs_prior(shard: Shard, weight: Floats | None) -> Booleans:
    """Return which items have a score and labels that count as at least two independent ones, (n_items,).

    Single labels determine only the product of an assessor's slope and rho: the likelihood of a crowd without overlap
    would rise until the prior explains everything.

    Args:
        shard: the shard, with scores.
        weight: weight of each judgment, (n,); None: all are 1.

    """
    assert shard.score is not None
    item = np.repeat(np.arange(shard.n_items), np.diff(shard.offsets))
    labels = np.bincount(item, weight, minlength=shard.n_items)
    informs: Booleans = ~np.isnan(shard.score) & (labels > MIN_LABELS)
    return informs


def score_statistics(shard: Shard, relevance: Floats, weight: Floats | None) -> Arrays:
    """Return sums over the items that inform the prior: relevance times score, and score squared, (2,)."""
    assert shard.score is not None
    used = informs_prior(shard, weight)
    score = shard.score[used]
    return {"score_products": np.array([relevance[used] @ score, score @ score])}


def learn_weight(before: Floats, products: Floats, scale: float, pseudo_documents: float) -> Floats:
    """Return rho, (1,): the regression coefficient of relevance, in units of `scale`, on the score.

    Without documents that inform the prior it is the previous one, from estimates without features.
    """
    if products[1] == 0:
        return before
    weight = products[0] / (products[1] + pseudo_documents) / scale
    return np.array([np.clip(weight, 0.0, MAX_WEIGHT)])


@dataclass(frozen=True, eq=False)
class LabelEstimates:
    """Relevance and its sd of each item that the labels alone imply, and the prediction from features."""

    relevance: Floats
    sd: Floats
    score: Floats

    def with_scores(self, scores: ItemScores) -> LabelEstimates:
        """Return the estimates with predictions from features."""
        return replace(self, score=np.concatenate(scores))

    def initial_weight(self) -> float:
        """Return rho; the spread of these estimates is less than 1 by their uncertainty."""
        known = ~np.isnan(self.score)
        reliability = max(1 - float(np.mean(self.sd[known] ** 2)), 0.05)
        product = float(np.mean(self.relevance[known] * self.score[known]))
        return float(np.clip(product / reliability, 0.05, 0.95))


def label_estimates(passes: Passes, theta: Arrays) -> LabelEstimates:
    """Return the estimates of passes without scores."""
    parts = list(passes.finish_into(theta, _relevance_rows))
    relevance, sd = (np.concatenate([part[name] for part in parts]) for name in ("relevance", "sd"))
    return LabelEstimates(relevance, sd, np.full(len(relevance), np.nan))


def _relevance_rows(place: int, rows: Arrays) -> Arrays:
    return {name: rows[name] for name in ("relevance", "sd")}


# The prior of models with true grades.


@dataclass(frozen=True, eq=False)
class GradePrior:
    """Ordinal regression of the true grade on the score: P(c | g) = softmax_c(intercept_c + slope level_c g).

    Attributes:
        intercept: (n_states,).
        slope: slope of the log odds of a grade to the next lower one.
        shares: shares of the states over all documents, (n_states,).

    """

    intercept: Floats
    slope: float
    shares: Floats

    @classmethod
    def of(cls, theta: Arrays) -> GradePrior:
        """Return the regression of parameters; before the first one, a weak one."""
        if "feature_slope" not in theta:
            shares = theta["shares"] / theta["shares"].sum()
            return cls(np.log(shares), INITIAL_WEIGHT, shares)
        return cls(theta["feature_intercept"], float(theta["feature_slope"][0]), theta["feature_shares"])

    def to_arrays(self) -> Arrays:
        """Return the regression as parameters of a model."""
        return {
            "feature_intercept": self.intercept,
            "feature_slope": np.array([self.slope]),
            "feature_shares": self.shares,
        }

    def probabilities(self, score: Floats, levels: Integers) -> Floats:
        """Return P(state | score) of each document, (n, n_states); without a score, the shares of all documents."""
        logits = self.intercept + self.slope * np.nan_to_num(score)[:, None] * levels
        raised = np.exp(logits - logits.max(axis=1, keepdims=True))
        by_score = raised / raised.sum(axis=1, keepdims=True)
        return np.where(np.isnan(score)[:, None], self.shares, by_score)

    def log_priors(self, score: Floats, levels: Integers, shares: Floats) -> Floats:
        """Return the log prior of each document for a model whose prior is `shares`, (n, n_states).

        It is `shares` times P(state | score) / P(state), so that a fixed prior such as a uniform one stays in place.
        """
        ratio = self.probabilities(score, levels) / np.maximum(self.shares, SMALLEST)
        prior = shares * ratio
        logs: Floats = np.log(np.maximum(prior / prior.sum(axis=1, keepdims=True), SMALLEST))
        return logs

    def updated(self, counts: Floats, levels: Integers) -> GradePrior:
        """Return the regression after Newton steps on expected counts of states by bin of the score.

        Args:
            counts: (n_bins, n_states).
            levels: position of each state on the scale, (n_states,).

        """
        n_states = len(levels)
        if not counts.any():  # no document has two labels
            return replace(self, slope=0.0)
        design = np.zeros((len(SCORE_BINS), n_states, n_states + 1))
        design[:, np.arange(n_states), np.arange(n_states)] = 1.0
        design[:, :, -1] = SCORE_BINS[:, None] * levels
        params, penalty = np.append(self.intercept - self.intercept.mean(), self.slope), np.full(n_states + 1, 1e-2)
        penalty[-1] = 1.0
        totals = counts.sum(axis=1)
        for _ in range(NEWTON_STEPS):
            logits = design @ params
            raised = np.exp(logits - logits.max(axis=1, keepdims=True))
            p = raised / raised.sum(axis=1, keepdims=True)
            gradient = np.einsum("bs,bsk->k", counts - totals[:, None] * p, design) - penalty * params
            mean = np.einsum("bs,bsk->bk", p, design)
            hessian = np.einsum("b,bs,bsk,bsl->kl", totals, p, design, design) - (mean.T * totals) @ mean
            params = params + np.clip(np.linalg.solve(hessian + np.diag(penalty), gradient), -1.0, 1.0)
        shares = counts.sum(axis=0) + 1e-3
        return GradePrior(params[:-1], max(float(params[-1]), 0.0), shares / shares.sum())


def count_by_score(shard: Shard, posterior: Floats, weight: Floats | None) -> Floats:
    """Return the expected number of items in each state by bin of the score, (n_bins, n_states)."""
    assert shard.score is not None
    used = informs_prior(shard, weight)
    counts = np.zeros((len(SCORE_BINS), posterior.shape[1]))
    nearest = np.abs(shard.score[used, None] - SCORE_BINS).argmin(axis=1)
    np.add.at(counts, nearest, posterior[used])
    return counts


# Warnings.


def _constant_features(names: list[str]) -> DataWarning:
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return DataWarning(
        f"{counted(len(names), 'feature')} with at most one value within each query left out: {listed}",
        kind="constant-features",
        fix="give features that differ between the documents of a query",
    )


def _few_documents(n: int) -> DataWarning:
    return DataWarning(
        f"Features are not used: {counted(n, 'labeled document')} have some, fewer than {MIN_LABELED}",
        kind="few-labeled-documents",
        fix=[Fix("label more documents"), Fix("check that both use the same ids of queries and documents")],
    )


def _incomplete_features(n_missing: int, n_items: int) -> DataWarning:
    return DataWarning(
        f"{n_missing:,} of {n_items:,} labeled documents have no features; their prior is the one without features",
        kind="incomplete-features",
        fix="give the features of all documents",
    )


def _missing_values(n_missing: int, n: int) -> DataWarning:
    return DataWarning(
        f"{n_missing:,} of {n:,} values of features are missing; the regression treats 'missing' as a value of its own",
        kind="missing-features",
        fix="fill them if you know what they stand for",
    )


def _one_query() -> DataWarning:
    return DataWarning(
        "All labels are of one query, so that the regression leaves out documents instead of whole queries",
        kind="one-query",
        fix="label documents of several queries",
    )
