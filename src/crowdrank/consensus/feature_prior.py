"""Models with a prior of relevance from features of documents, such as retrieval scores.

The prediction g of a document, with mean 0 and variance 1 over the labeled documents, sets its prior:

    r ~ N(rho g, 1 - rho^2)

Over all documents relevance keeps mean 0 and variance 1. The model learns rho together with its other parameters by
maximum likelihood of the labels (empirical Bayes): rho is 0 for useless features, and the prior is then the one without
features.

The features predict relevance by a regression that is fitted to the labels of other queries (out of fold). Models of
relevance on a line learn how much the prediction counts (`learn_weight`), models of true grades an ordinal
regression of the grade on the prediction (`GradePrior`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from crowdrank._typing import Arrays, Booleans, Floats, Integers
from crowdrank.consensus.e_step import SMALLEST
from crowdrank.consensus.latent import softmax
from crowdrank.consensus.model import EMAggregator, FitOptions, FitStart, count_answers, iterate
from crowdrank.consensus.saved_models import FitState
from crowdrank.engine.passes import LocalEngine, Passes, single_blas_thread
from crowdrank.engine.shards import MAX_SCORE, ItemScores, Shard, items_of
from crowdrank.judgments.gold import Gold
from crowdrank.on_disk.sharded import ShardedJudgments
from crowdrank.readers.features import Features

MIN_LABEL_WEIGHT = 1.5
"""Total weight of labels above which a document is used to learn the prior."""
INITIAL_WEIGHT = 0.5
MAX_WEIGHT = 0.99
"""Initial and maximum correlation of relevance with the prediction from features."""
SCORE_BINS: Floats = np.linspace(-MAX_SCORE, MAX_SCORE, 25)
"""Centers of the bins of scores from which models of true grades learn their prior."""
NEWTON_STEPS = 5
"""Number of Newton steps of the regression of grades on scores in each M-step."""


class FeatureAggregator(EMAggregator):
    """Base of models in which features of documents can set the prior of relevance.

    A subclass implements `_start_features` and `_item_priors`, and its passes use the `score` of shards. The names of
    arrays of theta that exist only in a fit with features begin with `feature_`.
    """

    feature_iterations: ClassVar[int] = 2
    """Number of fits of the regression on features, each to the relevance that labels imply by the last fit."""

    @abstractmethod
    def _start_features(self, theta: Arrays, estimates: LabelEstimates) -> Arrays:
        """Return the parameters of a fit without features, plus initial parameters of the prior from features."""

    @abstractmethod
    def _item_priors(self, shard: Shard, theta: Arrays) -> Floats:
        """Return log P(state | score) of each item, (n_items, n_states); the score is a prediction from features."""

    def _predict(self, shard: Shard, theta: Arrays) -> Arrays:
        """Return the estimates of documents without judgments, from their scores alone."""
        local, _ = self._accumulate(shard, self._restart(shard), theta)
        return self._finish(shard, local, theta)

    def _check_features(self) -> None:
        """Check nothing: models of this class can use features."""

    def _start_fit(self, table: Any, gold: Gold | None, start: FitStart, options: FitOptions) -> FitStart:
        """Return the start of the fit, with predictions from features if there are any."""
        if options.features is not None:
            start = self._learn_scores(table, gold, start.theta, options, options.features)
        if start.scores is not None or start.theta is None:
            return start
        theta = {name: array for name, array in start.theta.items() if not name.startswith("feature_")}
        return replace(start, theta=theta)

    def _learn_scores(
        self, table: Any, gold: Gold | None, start: Arrays | None, options: FitOptions, features: Features
    ) -> FitStart:
        """Return parameters to start from, predictions from features, and warnings about the features.

        The model is fitted without features, then with predictions from them; a regression is fitted after each fit to
        the relevance that the labels alone imply. Features that cannot be used, or do not predict the labels of other
        queries, leave the start as it is, so that the fit is the one without features.

        Raises:
            InputError: features are functions of the answers.

        """
        from crowdrank.consensus.answer_features import answer_features_error, find_answer_features
        from crowdrank.consensus.feature_scores import usable_features, useless_features_warning

        prepared = self._prepare_with(table, options.preferences)
        usable, found = usable_features(features, prepared)
        if usable is None:
            return FitStart(start, None, found)
        sample = table.sample() if isinstance(table, ShardedJudgments) else table
        leaks = find_answer_features(usable, sample) if len(sample) else []  # preferences alone
        if leaks:
            raise answer_features_error(leaks)
        gold_codes = self._match_gold(gold, prepared)
        engine = options.engine or LocalEngine()
        theta, scores, item_scores = start, None, None
        with single_blas_thread():
            for number in range(self.feature_iterations):
                passes = engine.open(self, prepared, gold_codes, item_scores)
                state = FitState(theta, passes.accumulate(theta), [])
                iterate(self, passes, state, self.n_iter, count_answers(table, options.preferences))
                if item_scores is not None:
                    passes = engine.open(self, prepared, gold_codes)
                estimates = label_estimates(passes, state.theta)
                scores = usable.learn_scores(estimates.relevance, number)
                if number == 0 and not usable.are_predictive(scores, estimates.relevance):
                    return FitStart(start, None, (*found, useless_features_warning()))
                item_scores = scores.for_rows(usable.rows)
                theta = self._start_features(state.theta, estimates.with_scores(item_scores))
        return FitStart(theta, scores, found)


@dataclass(frozen=True, eq=False)
class LabelEstimates:
    """Estimates of each item from its labels alone, and the prediction from its features.

    Attributes:
        relevance: posterior mean without features, (n_items,).
        sd: posterior standard deviation without features, (n_items,).
        score: prediction from features, (n_items,); NaN without one.

    """

    relevance: Floats
    sd: Floats
    score: Floats

    def with_scores(self, scores: ItemScores) -> LabelEstimates:
        """Return the estimates with predictions from features."""
        return replace(self, score=np.concatenate(scores))

    def initial_weight(self) -> float:
        """Return an estimate of rho: the covariance of relevance and score, divided by the reliability of relevance."""
        known = ~np.isnan(self.score)
        reliability = max(1 - float(np.mean(self.sd[known] ** 2)), 0.05)
        product = float(np.mean(self.relevance[known] * self.score[known]))
        return float(np.clip(product / reliability, 0.05, 0.95))


def label_estimates(passes: Passes, theta: Arrays) -> LabelEstimates:
    """Run the final pass without features; return relevance and sd of each item, with NaN as score."""
    parts = list(passes.finish_into(theta, _relevance_rows))
    relevance, sd = (np.concatenate([part[name] for part in parts]) for name in ("relevance", "sd"))
    return LabelEstimates(relevance, sd, np.full(len(relevance), np.nan))


def _relevance_rows(shard_index: int, rows: Arrays) -> Arrays:
    return {name: rows[name] for name in ("relevance", "sd")}


def items_informing_prior(shard: Shard, weight: Floats | None) -> Booleans:
    """Return whether each item is used to learn the prior, (n_items,): it has a score and about two independent labels.

    A preference counts as a label of both documents.

    Items with one label identify only the product of the assessor's slope and rho. With them, the likelihood of a crowd
    without overlap would increase up to the maximum of rho.

    Args:
        shard: the shard, with scores.
        weight: weight of each judgment, (n,); None: all are 1.

    """
    assert shard.score is not None
    item = items_of(shard.offsets)
    labels = np.bincount(item, weight, minlength=shard.n_items)
    if shard.preferences is not None:
        labels = labels + shard.preferences.per_item(shard.n_items)
    informs: Booleans = ~np.isnan(shard.score) & (labels > MIN_LABEL_WEIGHT)
    return informs


def log_node_priors(shard: Shard, correlation: float, state_prior: Floats, nodes: Floats) -> Floats:
    """Return the log prior of each item on the states, (n_items, n_states).

    Args:
        shard: the shard, with the `score` of each item.
        correlation: correlation rho of relevance and score.
        state_prior: P(state) without features, (n_states,): nodes by difficulty, then perhaps 'cannot be judged'.
        nodes: (n_nodes,).

    """
    assert shard.score is not None
    mean, variance = prior_moments(shard.score, correlation)
    density = -0.5 * (nodes - mean[:, None]) ** 2 / variance[:, None]
    density -= np.log(np.exp(density).sum(axis=1, keepdims=True))
    plain = -0.5 * nodes**2
    change = density - (plain - np.log(np.exp(plain).sum()))
    n_difficulties = len(state_prior) // len(nodes)
    logs = np.tile(np.log(np.maximum(state_prior, 1e-300)), (len(mean), 1))
    logs[:, : n_difficulties * len(nodes)] += np.tile(change, n_difficulties)
    return logs


def prior_moments(score: Floats, correlation: float) -> tuple[Floats, Floats]:
    """Return mean rho * score and variance 1 - rho**2 of the prior of each item; 0 and 1 without a score."""
    known = ~np.isnan(score)
    return np.where(known, correlation * np.nan_to_num(score), 0.0), np.where(known, 1 - correlation**2, 1.0)


def sum_score_products(shard: Shard, relevance: Floats, weight: Floats | None) -> Arrays:
    """Return `score_products`, (2,): sums of relevance * score and of score**2 over the items that inform the prior."""
    assert shard.score is not None
    used = items_informing_prior(shard, weight)
    score = shard.score[used]
    return {"score_products": np.array([relevance[used] @ score, score @ score])}


def learn_weight(previous: Floats, products: Floats, scale: float, pseudo_documents: float) -> Floats:
    """Return rho, (1,): the regression coefficient of relevance / scale on the score, from 0 to `MAX_WEIGHT`.

    Args:
        previous: rho to return if no document informs the prior, (1,).
        products: sums of relevance * score and of score**2, (2,).
        scale: standard deviation of relevance.
        pseudo_documents: number of documents with relevance 0 that are added (shrinkage).

    """
    if products[1] == 0:
        return previous
    weight = products[0] / (products[1] + pseudo_documents) / scale
    return np.array([np.clip(weight, 0.0, MAX_WEIGHT)])


@dataclass(frozen=True, eq=False)
class GradePrior:
    """Ordinal regression of the true grade on the score: P(c | g) = softmax_c(intercept_c + slope level_c g).

    Attributes:
        intercept: (n_states,).
        slope: slope of the log odds of a grade to the next lower one.
        shares: P(state) over all documents, (n_states,).

    """

    intercept: Floats
    slope: float
    shares: Floats

    @classmethod
    def of(cls, theta: Arrays) -> GradePrior:
        """Return the regression that is stored in the parameters theta, or an initial one if there is none."""
        if "feature_slope" not in theta:
            shares = theta["shares"] / theta["shares"].sum()
            return cls(np.log(shares), INITIAL_WEIGHT, shares)
        return cls(theta["feature_intercept"], float(theta["feature_slope"][0]), theta["feature_shares"])

    def to_arrays(self) -> Arrays:
        """Return the regression as named arrays of the parameters theta."""
        return {
            "feature_intercept": self.intercept,
            "feature_slope": np.array([self.slope]),
            "feature_shares": self.shares,
        }

    def probabilities(self, score: Floats, levels: Integers) -> Floats:
        """Return P(state | score) of each document, (n, n_states); P(state) for documents without a score."""
        logits = self.intercept + self.slope * np.nan_to_num(score)[:, None] * levels
        return np.where(np.isnan(score)[:, None], self.shares, softmax(logits, axis=1))

    def log_priors(self, score: Floats, levels: Integers, shares: Floats) -> Floats:
        """Return the log prior of each document for a model whose prior is `shares`, (n, n_states).

        It is proportional to `shares` times P(state | score) / P(state). Without information in the score it is
        `shares`, also if these are fixed (such as uniform ones) and differ from the estimated P(state).
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
            p = softmax(design @ params, axis=1)
            gradient = np.einsum("bs,bsk->k", counts - totals[:, None] * p, design) - penalty * params
            mean = np.einsum("bs,bsk->bk", p, design)
            hessian = np.einsum("b,bs,bsk,bsl->kl", totals, p, design, design) - (mean.T * totals) @ mean
            params = params + np.clip(np.linalg.solve(hessian + np.diag(penalty), gradient), -1.0, 1.0)
        shares = counts.sum(axis=0) + 1e-3
        return GradePrior(params[:-1], max(float(params[-1]), 0.0), shares / shares.sum())


def count_by_score(shard: Shard, posterior: Floats, weight: Floats | None) -> Floats:
    """Return the expected number of items by score bin and state, (n_bins, n_states), over `items_informing_prior`."""
    assert shard.score is not None
    used = items_informing_prior(shard, weight)
    n_bins = len(SCORE_BINS)
    nearest = np.rint((shard.score[used] + MAX_SCORE) * (n_bins - 1) / (2 * MAX_SCORE)).astype(np.int64)
    return np.stack([np.bincount(nearest, of_state, n_bins) for of_state in posterior[used].T], axis=1)
