"""Base class of policies, which choose the labels to request next."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from functools import partial
from typing import Any, ClassVar

import numpy as np

from crowdrank._base import Estimator
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.collection.assignment import assign
from crowdrank.collection.pool import as_pool
from crowdrank.collection.request_ledger import OutstandingRequests
from crowdrank.collection.requests import Budget, RankedRequests, Requests
from crowdrank.collection.state import PoolState
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus._coerce import as_judgments
from crowdrank.constraints import Constraints, Number
from crowdrank.errors import DataWarning, Fix, Message, UsageError
from crowdrank.judgments.table import Judgments

NO_LABEL = "no label so far"
"""Reason for the first request of a pair."""


class Policy(Estimator, ABC):
    """Base of all policies, which choose the labels to request next.

    A subclass implements :meth:`rank_requests`. :meth:`next` applies the budget, the assessors who may judge each
    pair, and the maximum number of labels per assessor; no assessor judges a pair twice.
    """

    takes_model: ClassVar[bool] = False
    """Whether the policy uses a fitted model."""
    random_state: int | None
    _parameter_constraints: ClassVar[Constraints] = {"random_state": [Number(0, integer=True), None]}

    @abstractmethod
    def rank_requests(self, state: PoolState, model: Aggregator | None) -> RankedRequests:
        """Return requests for labels, the most wanted first, for pairs that are not honeypots.

        Args:
            state: labels and outstanding requests of each pair.
            model: the fitted model, if the policy takes one.

        """

    def assessor_scores(self, state: PoolState, model: Aggregator | None, pair: Integers) -> Floats | None:
        """Return how much each assessor is preferred for each pair (n_pairs, n_assessors).

        By default random numbers if there is a random state; otherwise None: assessors with few labels are preferred.
        """
        if self.random_state is None or state.pool.roster is None:
            return None
        rng = np.random.default_rng([self.random_state, int(state.n_labels.sum()), len(pair), int(pair[0])])
        return 1.0 - rng.random((len(pair), len(state.pool.roster)))

    def next(
        self,
        pool: Any,
        judgments: Any = None,
        consensus: Any = None,
        budget: Budget | float = 100,
        outstanding: OutstandingRequests | None = None,
        *,
        features: Any = None,
    ) -> Requests:
        """Return the labels to request now.

        Args:
            pool: the pairs that may be judged: `Pool`, a path or a DataFrame.
            judgments: the judgments so far: `Judgments`, a path, a DataFrame, or None.
            consensus: a model fitted to them, if the policy uses one (`takes_model`); by default GDA is fitted.
            budget: `Budget`, or an amount of money.
            outstanding: requests without an answer, which are not repeated.
            features: features of documents (`Features`, a path or a DataFrame) for the GDA that is fitted by default;
                pairs without a label then have the prior that their features predict.

        """
        self._check_parameters()
        if features is not None:
            self._check_features(consensus)
        state = PoolState.of(as_pool(pool), None if judgments is None else as_judgments(judgments), outstanding)
        terms = budget if isinstance(budget, Budget) else Budget(budget)
        if self.takes_model and not (state.item >= 0).any():
            what = "There are no judgments yet" if state.judgments is None else "No document of the pool is judged yet"
            problem = f"{what}, so no model can be fitted: one label per pair is requested first"
            warnings.warn(DataWarning(problem, kind="no-judgments-yet"), stacklevel=2)
            return assign(first_requests(state, self.random_state), state, terms, self.random_state)
        model = self._fitted_model(consensus, state.judgments, features) if self.takes_model else None
        notes = []
        if state.n_outside:
            problem = f"{counted(state.n_outside, 'judged document')} not in the pool; they are not requested"
            notes.append(Message(problem, "judgments-outside-pool", "note"))
        return self._choose_requests(state, model, terms, notes)

    def _choose_requests(
        self, state: PoolState, model: Aggregator | None, budget: Budget, notes: list[Message]
    ) -> Requests:
        """Return the labels to request now, by priority as far as the budget reaches."""
        ranked, scores = self.rank_requests(state, model), partial(self.assessor_scores, state, model)
        return assign(ranked, state, budget, self.random_state, scores, notes)

    def _check_features(self, consensus: Any = None, parameter: str = "features") -> None:
        """Raise UsageError unless features have a use: the policy takes a model, which is not fitted yet."""
        if not self.takes_model:
            fix = Fix("use {}", "policy", "ndcg@10")
            raise UsageError("needs a policy with a model", parameter=parameter, kind="no-model", fix=fix)
        if consensus is not None:
            problem = "cannot be used by a model that is fitted already"
            raise UsageError(problem, parameter=parameter, kind="fitted-model", fix="fit the model with them")

    def _fitted_model(self, consensus: Any, judgments: Judgments | None, features: Any) -> Aggregator:
        if consensus is None:
            from crowdrank.consensus.gda import GDA

            if features is not None:
                return GDA().fit(judgments, features=features)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                return GDA().fit(judgments)
        if not isinstance(consensus, Aggregator) or not hasattr(consensus, "consensus_"):
            problem = f"must be a fitted model, not {type(consensus).__name__}"
            raise UsageError(problem, parameter="consensus", kind="not-a-fitted-model")
        return consensus


def first_requests(state: PoolState, random_state: int | None) -> RankedRequests:
    """Return one request for every pair without label or request, in the order of the pool or at random."""
    pair = shuffled(np.flatnonzero(state.open_pairs & (state.n_labels == 0)), random_state)
    return RankedRequests(pair, np.zeros(len(pair)), np.zeros(len(pair), np.int8), (NO_LABEL,))


def shuffled(pair: Integers, random_state: int | None) -> Integers:
    """Return the pairs in random order, or unchanged without a random state."""
    return pair if random_state is None else np.random.default_rng(random_state).permutation(pair)
