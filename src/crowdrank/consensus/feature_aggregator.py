"""Base class of models with a prior of relevance from features of documents, such as retrieval scores.

The features predict relevance by a regression that is fitted to the labels of other queries (out of fold). Models of
relevance on a line learn how much the prediction counts (`relevance_prior.py`), models of true grades an ordinal
regression of the grade on the prediction (`grade_prior.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from crowdrank._typing import Arrays, Floats
from crowdrank.consensus._base import EMAggregator
from crowdrank.consensus._coerce import match_gold
from crowdrank.consensus.checkpoints import State
from crowdrank.consensus.em_loop import FitOptions, FitStart, iterate
from crowdrank.consensus.relevance_prior import LabelEstimates, label_estimates
from crowdrank.consensus.usable_features import usable_features, useless_features
from crowdrank.engine.blas import single_blas_thread
from crowdrank.engine.local import LocalEngine
from crowdrank.engine.shards import Shard
from crowdrank.judgments.features import Features
from crowdrank.judgments.gold import Gold


class FeatureAggregator(EMAggregator):
    """Base of models with a prior of relevance from features.

    A subclass implements `_start_features` and `_item_priors`, and its passes use the `score` of shards.
    """

    feature_rounds: ClassVar[int] = 2
    """Number of fits of the regression on features, each to the relevance that labels imply by the last fit."""
    feature_arrays: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays of theta that exist only in a fit with features."""

    @abstractmethod
    def _start_features(self, theta: Arrays, estimates: LabelEstimates) -> Arrays:
        """Return parameters for passes with scores from features, given parameters and estimates without scores."""

    @abstractmethod
    def _item_priors(self, shard: Shard, theta: Arrays) -> Floats:
        """Return log P(state) of each item of a shard with scores, (n_items, n_states)."""

    def _predict(self, shard: Shard, theta: Arrays) -> Arrays:
        """Return the rows of documents without judgments, from their scores."""
        local, _ = self._accumulate(shard, self._restart(shard), theta)
        return self._finish(shard, local, theta)

    def _check_features(self) -> None:
        """Accept features."""

    def _start_fit(self, table: Any, gold: Gold | None, start: FitStart, options: FitOptions) -> FitStart:
        """Return the start with predictions from the features, if there are any."""
        if options.features is not None:
            start = self._learn_scores(table, gold, start.theta, options, options.features)
        if start.scores is not None or start.theta is None:
            return start
        theta = {name: array for name, array in start.theta.items() if name not in self.feature_arrays}
        return FitStart(theta, None, start.warnings)

    def _learn_scores(
        self, table: Any, gold: Gold | None, start: Arrays | None, options: FitOptions, features: Features
    ) -> FitStart:
        """Return parameters to start from, predictions from features, and warnings about the features.

        The model is fitted without features, then with predictions from them; a regression is fitted after each fit to
        the relevance that the labels alone imply. Features that cannot be used, or do not predict the labels of other
        queries, leave the start as it is, so that the fit is the one without features.
        """
        prepared = self._prepare(table)
        usable, found = usable_features(features, prepared)
        if usable is None:
            return FitStart(start, None, found)
        gold_codes: Any = None if gold is None else match_gold(gold, prepared, self.takes_scales)
        engine = options.engine or LocalEngine()
        theta, scores, item_scores = start, None, None
        with single_blas_thread():
            for number in range(self.feature_rounds):
                passes = engine.open(self, prepared, gold_codes, item_scores)
                state = State(theta, passes.accumulate(theta), [])
                iterate(self, passes, state, self.n_iter, len(prepared))
                theta, _ = self._after_iterations(passes, state.theta, state.statistics)
                if item_scores is not None:
                    passes = engine.open(self, prepared, gold_codes)
                estimates = label_estimates(passes, theta)
                scores = usable.learn_scores(estimates.relevance, number)
                if number == 0 and not usable.are_predictive(scores, estimates.relevance):
                    return FitStart(start, None, (*found, useless_features()))
                item_scores = scores.for_rows(usable.rows)
                theta = self._start_features(theta, estimates.with_scores(item_scores))
        return FitStart(theta, scores, found)
