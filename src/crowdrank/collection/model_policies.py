"""Policies that request the labels that a model expects to be most useful, and a random baseline."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import ClassVar

import numpy as np

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection import SETTLED_PROBABILITY
from crowdrank.collection.belief import Belief, gains_if_known
from crowdrank.collection.policy import NO_LABEL, Policy, shuffled
from crowdrank.collection.requests import Budget, PairStatus, PoolState, RankedRequests, Requests
from crowdrank.consensus.model import Aggregator
from crowdrank.constraints import Constraints, Number
from crowdrank.errors import Message

VARIETY = 0.35
"""Default of `variety`: the middle of the best two of 0, 0.25, 0.5 and 1 on half of RF10's topics."""
MIN_DCG = 1e-12
"""Minimum expected DCG@k by which the increase of a query's DCG@k is divided, so that it is not divided by 0."""


class Random(Policy):
    """Request labels of random pairs, those with the fewest labels first; the baseline for other policies.

    A round requests at most one label per pair, and none while a request is outstanding.

    Args:
        k: maximum number of labels per pair.
        random_state: random seed.

    >>> import crowdrank
    >>> from crowdrank.collection.pool import Pool
    >>> world = crowdrank.simulate(queries=2, documents=3, labels=1, random_state=1)
    >>> judgments = crowdrank.read_judgments(world.judgments)
    >>> len(Random(k=2).next(Pool.of(judgments), judgments, None, 3))
    3

    """

    _parameter_constraints: ClassVar[Constraints] = {"k": [Number(1, integer=True), None]}

    def __init__(self, k: int | None = None, *, random_state: int | None = 0) -> None:
        self.k = k
        self.random_state = random_state

    def rank_requests(self, state: PoolState, model: Aggregator | None) -> RankedRequests:
        """Rank the pairs without an outstanding request by their number of labels, equal ones at random."""
        count = state.n_labels
        is_open = ~state.pool.is_honeypot & (state.n_requested == 0) & (True if self.k is None else count < self.k)
        rng = np.random.default_rng([self.random_state or 0, int(state.n_labels.sum())])
        pair = rng.permutation(np.flatnonzero(is_open))
        reason = (state.n_labels[pair] > 0).astype(np.int8)
        return RankedRequests(pair, -count[pair].astype(np.float64), reason, (NO_LABEL, "random choice"))


class ModelPolicy(Policy):
    """Base of policies that use a model; settled pairs are not requested.

    Pairs about which the model knows nothing come first: those without a label whose features, if the model was fitted
    with features, predict nothing. A pair without a label that has a prediction competes with all others, but is never
    settled.

    A round requests at most one label per pair, and none while a request is outstanding. With a roster, each request
    goes to the assessor with the highest expected information per price, divided by a power (`variety`) of the number
    of their labels: the errors of one assessor are correlated, and little is known about new ones.

    Args:
        settled: pairs with a label and at least this certainty (:meth:`Belief.certainty`) are not requested; None: all
            may be. With GDA and Rasch, of pairs settled at 95% at least 93% kept their grade when all labels were in
            (experiment `settled`); with Dawid-Skene and the one-coin model fewer did, of which `next` warns.
        variety: preference for assessors with few labels; 0 for none.
        random_state: random order of equal pairs; by default the order of the pool.

    """

    takes_model: ClassVar[bool] = True
    other_pairs: ClassVar[PairStatus] = "settled"
    reason: ClassVar[str]
    """Why labels of the pairs are requested."""
    _parameter_constraints: ClassVar[Constraints] = {
        "settled": [Number(0, 1, above=True, below=True), None],
        "variety": [Number(0)],
    }

    def __init__(
        self, *, settled: float | None = SETTLED_PROBABILITY, variety: float = VARIETY, random_state: int | None = None
    ) -> None:
        self.settled = settled
        self.variety = variety
        self.random_state = random_state

    @abstractmethod
    def priority(self, belief: Belief, pair: Integers, bound: Floats | None = None) -> Floats:
        """Return the priority of each pair (n,), given its upper bound if there is one."""

    def priority_upper_bound(self, belief: Belief, pair: Integers) -> Floats | None:
        """Return an upper bound of the priority that is fast to compute (n,), or None."""
        return None

    def rank_requests(self, state: PoolState, model: Aggregator | None) -> RankedRequests:
        """Rank pairs about which nothing is known first, then the others by priority."""
        assert model is not None
        belief = Belief.from_model(state, model)
        pair = shuffled(np.flatnonzero(state.open_pairs), self.random_state)
        bound = self.priority_upper_bound(belief, pair)
        if bound is None:
            pair = pair[self._is_unsettled(belief, pair)]
        priority = self.priority(belief, pair) if bound is None else bound
        is_unknown = belief.is_unknown(pair)
        bonus = (priority.max() + 1.0) * is_unknown if is_unknown.any() else np.zeros(len(pair))

        def exact_priority(rows: Integers) -> Floats:
            exact = self.priority(belief, pair[rows], None if bound is None else bound[rows]) + bonus[rows]
            exact[~self._is_unsettled(belief, pair[rows])] = np.nan
            return exact

        reasons = (NO_LABEL, self.reason.format(**self.get_params()))
        lazy = None if bound is None else exact_priority
        return RankedRequests(pair, priority + bonus, (~is_unknown).astype(np.int8), reasons, lazy)

    def _choose_requests(
        self, state: PoolState, model: Aggregator | None, budget: Budget, notes: list[Message]
    ) -> Requests:
        """Choose requests; warn if pairs that the model takes as settled need not keep their grade."""
        assert model is not None
        if self.settled is not None and (problem := Belief.from_model(state, model).overconfidence_warning()):
            warnings.warn(problem, stacklevel=3)
        return super()._choose_requests(state, model, budget, notes)

    def _is_unsettled(self, belief: Belief, pair: Integers) -> Booleans:
        return np.ones(len(pair), bool) if self.settled is None else ~belief.is_settled(pair, self.settled)

    def assessor_scores(self, state: PoolState, model: Aggregator | None, pair: Integers) -> Floats | None:
        """Return the expected information of each assessor, lower for those with many labels."""
        if model is None or state.pool.roster is None:
            return None
        information = Belief.from_model(state, model).assessor_information(pair, state.pool.roster)
        return information / (1.0 + state.load) ** self.variety


class WidestInterval(ModelPolicy):
    """Request labels of the pairs with the widest credible interval of relevance.

    >>> import crowdrank
    >>> from crowdrank.collection.pool import Pool
    >>> world = crowdrank.simulate(queries=4, documents=6, labels=3, random_state=1)
    >>> judgments = crowdrank.read_judgments(world.judgments)
    >>> WidestInterval().next(Pool.of(judgments), judgments, crowdrank.DawidSkene().fit(judgments), 5).reasons()
    {'wide interval': 5}
    """

    reason = "wide interval"

    def priority(self, belief: Belief, pair: Integers, bound: Floats | None = None) -> Floats:
        """Return the width of the interval."""
        return self.priority_upper_bound(belief, pair) if bound is None else bound

    def priority_upper_bound(self, belief: Belief, pair: Integers) -> Floats:
        """Return the priority itself, the width of the interval; the widest one for pairs without a row."""
        width = belief.column("upper") - belief.column("lower")
        return np.append(width, width.max(initial=0.0))[belief.row[pair]]  # pairs without a row have -1


class InformationGain(ModelPolicy):
    """Request labels of the pairs whose entropy one more label is expected to decrease most."""

    reason = "high expected information"

    def priority(self, belief: Belief, pair: Integers, bound: Floats | None = None) -> Floats:
        """Return the expected decrease of entropy."""
        return belief.information(pair)


class TopGain(ModelPolicy):
    """Request labels of the pairs from which the nDCG@k of their query is expected to gain most.

    The priority is the gain expected if the true state of the pair became known, times the share of its entropy that
    one label is expected to remove. (The gain expected of one label alone is 0 wherever no single answer changes the
    ranking, however uncertain the ranking is.)

    Args:
        k: rank up to which documents count.
        settled, variety, random_state: as in :class:`ModelPolicy`.

    """

    reason = "may change the top {k}"
    _parameter_constraints: ClassVar[Constraints] = {"k": [Number(1, integer=True)]}

    def __init__(
        self,
        k: int = 10,
        *,
        settled: float | None = SETTLED_PROBABILITY,
        variety: float = VARIETY,
        random_state: int | None = None,
    ) -> None:
        super().__init__(settled=settled, variety=variety, random_state=random_state)
        self.k = k

    def priority(self, belief: Belief, pair: Integers, bound: Floats | None = None) -> Floats:
        """Return the expected gain of nDCG@k."""
        gain = self._gain_of_knowledge(belief)[pair] if bound is None else bound
        return gain * belief.relative_information(pair)

    def priority_upper_bound(self, belief: Belief, pair: Integers) -> Floats | None:
        """Return the expected gain if the state became known; on the latent scale the exact priority is as fast."""
        return None if belief.is_latent else self._gain_of_knowledge(belief)[pair]

    def _gain_of_knowledge(self, belief: Belief) -> Floats:
        """Return the expected gain of nDCG@k if the state of a pair became known, for each pair of the pool."""
        return gains_if_known(belief.state, belief.gain_distribution, self.k, MIN_DCG)
