"""Probabilities of a pair's state under a fitted model, and the information expected from another label.

The state of a pair is its true grade, or a node of the latent scale. Its probabilities come from the consensus table:
P(grade), or a normal distribution with the mean and sd of relevance. A pair without a label has the prediction from its
features, if the model was fitted with features, otherwise the prior of all pairs. Functions of mean and sd alone are
tabulated on a grid and interpolated, so that a million pairs take less time than a pass over the judgments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property, partial

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.collection import policy_kernels
from crowdrank.collection.pool import Pool, Roster
from crowdrank.collection.requests import PoolState
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.consensus.latent import N_NODES, NODES, entropy, expert_curves, first_cuts, standard_nodes
from crowdrank.consensus.model import Aggregator, EMAggregator
from crowdrank.consensus.result import Consensus
from crowdrank.errors import DataWarning, Fix, UsageError
from crowdrank.judgments import ids
from crowdrank.judgments.pair_index import PairIndex
from crowdrank.judgments.scale import Scale

GRID_MEANS = np.linspace(-3.4, 3.4, 137)
"""Means of the normal distributions of relevance for which functions are tabulated."""
GRID_SDS = np.linspace(0.0, 1.3, 53)
"""Standard deviations of the normal distributions of relevance for which functions are tabulated."""
GRID = tuple((float(axis[0]), float(axis[1] - axis[0])) for axis in (GRID_MEANS, GRID_SDS))
"""First value and step of each axis of the grid."""
HERMITE_POINTS = np.asarray(np.polynomial.hermite_e.hermegauss(5)[0], np.float64)
"""Gauss-Hermite points of the standard normal distribution, at which a function is evaluated for its expectation."""
HERMITE_WEIGHTS = np.asarray(np.polynomial.hermite_e.hermegauss(5)[1], np.float64)
HERMITE_WEIGHTS /= HERMITE_WEIGHTS.sum()
"""Weights of these points in the expectation, which sum to 1."""
PAIRS_PER_CHUNK = 1 << 14
"""Number of pairs in memory at a time, for gains and functions of one answer."""
PAIRS_PER_SMALL_CHUNK = 16
"""Number of pairs in memory at a time, for functions of the answers of all assessors."""
MIN_PROBABILITY = 1e-300
UNLABELED = (0.0, 1.0)
"""Mean and standard deviation of the relevance of a pair without a label and without a prediction."""
EXPERT_ACCURACY = 0.95
"""Assumed probability that an unknown expert gives the true grade."""
MAX_EXPONENT = 100
"""Maximum grade in the exponent of a gain."""
MODELS = ("gda", "rasch", "dawid-skene", "one-coin")
"""Models that describe how assessors answer."""


def describes_answers(model: Aggregator) -> bool:
    """Return whether a fitted model has P(answer | state), from which the value of another answer follows.

    >>> import crowdrank
    >>> votes = crowdrank.simulate(queries=2, documents=3, labels=2, assessors=4).judgments
    >>> describes_answers(crowdrank.DawidSkene().fit(votes)), describes_answers(crowdrank.MajorityVote().fit(votes))
    (True, False)
    """
    states = model.answer_states()
    return states is not None and (
        _has_latent_nodes(model.assessor_estimator_) or states[1].shape[2] == len(model.consensus_.scale)
    )


def _has_latent_nodes(model: EMAggregator) -> bool:
    states = model.answer_states()
    return bool(model.on_a_line) and states is not None and states[1].shape[2] >= N_NODES


@dataclass(frozen=True, eq=False)
class Belief:
    """Probability of the states of each pair of a pool, and of the answers of each assessor by state.

    >>> import pandas as pd
    >>> from crowdrank import DawidSkene, read_judgments
    >>> from crowdrank.collection.pool import Pool
    >>> rows = {"document": list("aabbcc"), "assessor": list("xyxyxy"), "grade": [1, 1, 0, 0, 0, 1]}
    >>> votes = read_judgments(pd.DataFrame(rows))
    >>> belief = Belief.from_model(PoolState.of(Pool.of(votes), votes), DawidSkene().fit(votes))
    >>> belief.posterior(np.arange(3)).shape
    (3, 2)
    """

    state: PoolState
    model: EMAggregator
    row: Integers  # (n_pairs,) row among the documents of the consensus, or -1
    prior: Floats  # (n_states,)
    likelihood: Floats  # (n_assessors, n_answers, n_states) for the assessors of the model
    is_latent: bool  # whether states are nodes of the latent scale
    _columns: dict[str, Floats] = field(default_factory=dict, repr=False)

    @classmethod
    def from_model(cls, state: PoolState, model: Aggregator) -> Belief:
        """Return the belief of a fitted model; raise UsageError if it does not describe answers."""
        estimator = model.assessor_estimator_
        states = estimator.answer_states()
        if states is None or not describes_answers(model):
            problem = f"The policy needs a model of how assessors answer, which {type(model).__name__} is not"
            fix = Fix(f"set {{}} (or {', '.join(MODELS[1:])})", "method", MODELS[0])
            raise UsageError(problem, kind="no-answer-model", fix=fix)
        return cls(
            state, estimator, consensus_rows(state, estimator), states[0], states[1], _has_latent_nodes(estimator)
        )

    @property
    def _has_unjudgeable_state(self) -> bool:
        """Whether the last state, after the nodes, is that of documents that cannot be judged."""
        return self.is_latent and len(self.prior) > self.n_nodes

    @property
    def n_nodes(self) -> int:
        """Number of nodes of the relevance scale; the state with this index is 'cannot be judged'."""
        return len(self.model.theta_.get("nodes", NODES))

    @property
    def _grid(self) -> tuple[float, float]:
        """The first node and the distance between nodes."""
        nodes = standard_nodes(self.n_nodes)
        return float(nodes[0]), float(nodes[1] - nodes[0])

    def is_unknown(self, pair: Integers) -> Booleans:
        """Return whether each pair has neither a label nor a prediction (n,)."""
        return np.asarray((self.row[pair] < 0) & (self.state.n_labels[pair] == 0))

    def posterior(self, pair: Integers) -> Floats:
        """Return P(state) of the document of each pair, (n_pairs, n_states)."""
        return np.ascontiguousarray(self._state_probabilities(pair).T)

    def _state_probabilities(self, pair: Integers) -> Floats:
        """Return the transpose of :meth:`posterior`, (n_states, n_pairs): the states are columns of the consensus."""
        row = self.row[pair]
        is_known, known_row = row >= 0, np.maximum(row, 0)
        if self.is_latent:
            mean = np.where(is_known, self.column("relevance")[known_row], 0.0)
            p = normal_on_nodes(mean, self.column("sd")[known_row], self.n_nodes)
            if self._has_unjudgeable_state:
                unjudgeable = self.column("unjudgeable")[known_row]
                p = np.vstack([p * (1 - unjudgeable), unjudgeable])
        else:
            p = np.empty((len(self.prior), len(row)))
            for state, name in enumerate(self.model.consensus_.true_share_names):
                np.take(self.column(name), known_row, out=p[state], mode="clip")
        if not is_known.all():
            p[:, ~is_known] = self.prior[:, None]
        return p

    def column(self, name: str) -> Floats:
        """Return a column of the model's consensus, which `row` indexes, (n_rows,); it is read once."""
        if name not in self._columns:
            self._columns[name] = self.model.consensus_.numbers(name)
        return self._columns[name]

    @cached_property
    def mean_likelihood(self) -> Floats:
        """P(answer | state) of the average judgment (n_answers, n_states)."""
        n_judgments = self.model.consensus_.assessor_table["judgments"].to_numpy().astype(np.float64)
        return np.asarray(np.einsum("a,ags->gs", n_judgments / n_judgments.sum(), self.likelihood))

    @cached_property
    def grade_given_state(self) -> Floats:
        """P(grade | state) of a typical careful assessor (n_grades, n_states)."""
        n_grades = len(self.model.consensus_.scale)
        if not self.is_latent:
            return np.eye(n_grades)
        p: Floats = self.model.theta_.get("typical", self.mean_likelihood)[:n_grades, : self.n_nodes]
        p = p / p.sum(axis=0)
        return np.hstack([p, np.eye(n_grades)[:, :1]]) if self._has_unjudgeable_state else p

    @cached_property
    def gain(self) -> Floats:
        """Expected gain 2^grade - 1 in each state (n_states,)."""
        return exponential_gains(self.model.consensus_.scale) @ self.grade_given_state

    @cached_property
    def grade_of_state(self) -> Floats:
        """Grade of a pair that is known to be in a state, as 1 at the grade and 0 elsewhere (n_grades, n_states)."""
        shares = np.ascontiguousarray(self.grade_given_state.T)
        return np.asarray(np.eye(shares.shape[1])[choose_grades(shares, self.model.grade_by)].T)

    def certainty(self, pair: Integers) -> Floats:
        """Return the probability that the most probable grade of each pair is its grade if its state is known, (n,).

        On the latent scale each grade has a range of relevance, in which the model's rule (the median, by default)
        chooses it from the answers of a careful assessor. The certainty is the probability of the most probable range.
        P(grade) of the consensus is another one: it stays below 1 however certain the relevance is, because a careful
        assessor also errs.
        """
        return self._evaluate(pair, lambda p: np.asarray((self.grade_of_state @ p).max(axis=0)))

    def is_settled(self, pair: Integers, level: float) -> Booleans:
        """Return whether each pair has a label and a certainty of at least `level` (n,)."""
        return np.asarray((self.state.n_labels[pair] > 0) & (self.certainty(pair) >= level))

    def overconfidence_warning(self) -> DataWarning | None:
        """Return a warning that settled pairs need not keep their grade, or None for relevance on a line.

        P(true grade) of models without a line of relevance takes assessors as independent, and is too high with few
        labels.
        """
        if self.is_latent:
            return None
        problem = (
            "Settled documents may not keep their grade: with few labels the probability of the grade by "
            f"{type(self.model).__name__} is too high"
        )
        fix = Fix(f"use {{}} (or {MODELS[1]})", "method", MODELS[0])
        return DataWarning(problem, kind="overconfident-model", fix=fix)

    def settled_entropy(self, level: float) -> float:
        """Return the entropy of a pair whose grade has the probability `level`, and the other grades equal ones.

        On the latent scale, that of a normal distribution of which an interval of one grade's width has `level`.
        """
        n_grades = len(self.grade_given_state)
        if not self.is_latent:
            other = (1 - level) / max(n_grades - 1, 1)
            return float(-level * np.log(level) - (1 - level) * np.log(other))
        sd = float(-NODES[0]) / n_grades / float(ndtri((1 + level) / 2))
        return float(column_entropy(normal_on_nodes(np.zeros(1), np.array([sd]), self.n_nodes))[0])

    def entropy(self, pair: Integers) -> Floats:
        """Return the entropy of the state in nats (n,)."""
        return self._evaluate(pair, column_entropy)

    def information(self, pair: Integers) -> Floats:
        """Return the expected decrease of entropy by an answer of an average assessor (n,)."""
        return self._evaluate(pair, partial(mutual_information, self.mean_likelihood))

    def relative_information(self, pair: Integers) -> Floats:
        """Return :meth:`information` divided by :meth:`entropy` (n,)."""
        likelihood = self.mean_likelihood
        return self._evaluate(pair, lambda p: mutual_information(likelihood, p) / np.maximum(column_entropy(p), 1e-12))

    def gain_distribution(self, pair: Integers) -> tuple[Floats, Floats]:
        """Return the possible gains of each pair and their probabilities, each (n_points, n) or broadcastable to it.

        The points are the true grades, or Gauss-Hermite points of the pair's normal distribution.
        """
        if not self.is_latent:
            return self._state_probabilities(pair), self.gain[:, None]
        row, gain = self.row[pair], np.empty((len(HERMITE_POINTS), len(pair)))
        mean, sd = self.column("relevance"), self.column("sd")
        policy_kernels.interpolate_at_points(
            row, mean, sd, UNLABELED, HERMITE_POINTS, self._grid, self.gain[: self.n_nodes], gain
        )
        if not self._has_unjudgeable_state:
            return HERMITE_WEIGHTS[:, None], gain
        unjudgeable = np.where(row >= 0, self.column("unjudgeable")[np.maximum(row, 0)], self.prior[-1])
        return np.vstack([HERMITE_WEIGHTS[:, None] * (1 - unjudgeable), unjudgeable]), np.vstack(
            [gain, np.zeros(len(pair))]
        )

    def _evaluate(self, pair: Integers, function: Callable[[Floats], Floats]) -> Floats:
        """Return a function of the state probabilities of each pair (n,), interpolated if possible."""
        values = np.empty(len(pair))
        if not self.is_latent or self._has_unjudgeable_state:
            for start in range(0, len(pair), PAIRS_PER_CHUNK):
                values[start : start + PAIRS_PER_CHUNK] = function(
                    self._state_probabilities(pair[start : start + PAIRS_PER_CHUNK])
                )
            return values
        table = function(grid_probabilities(self.n_nodes)).reshape(len(GRID_MEANS), len(GRID_SDS))
        mean, sd = self.column("relevance"), self.column("sd")
        policy_kernels.interpolate_bilinear(self.row[pair], mean, sd, UNLABELED, GRID, table, values)
        return values

    def assessor_information(self, pair: Integers, roster: Roster) -> Floats:
        """Return the expected decrease of entropy by an answer of each assessor of a roster (n, n_assessors).

        The families of the model count as one assessor each: after n answers of a family, another of its members adds
        1 / (n + 1) of an answer.
        """
        likelihood, p = self._roster_likelihood(roster), self._state_probabilities(pair)
        if self.state.pool.allowed is None:
            information = mutual_information_by_assessor(likelihood, p)
        else:
            information = np.zeros((len(pair), len(roster)))
            noise = entropy(likelihood.transpose(0, 2, 1))
            posterior = np.ascontiguousarray(p.T)
            policy_kernels.allowed_information(posterior, likelihood, noise, pair, self.state.pool.allowed, information)
        family_answers = self._family_answers(pair, roster)
        return information if family_answers is None else information / (1.0 + family_answers)

    def kind_information(self, pair: Integers, roster: Roster) -> dict[str, Floats]:
        """Return the expected decrease of entropy by an answer of a random assessor, by kind of assessor (n,)."""
        likelihood = self._roster_likelihood(roster)
        means = {kind: likelihood[roster.kind == kind].mean(axis=0) for kind in dict.fromkeys(roster.kind)}
        return {kind: self._evaluate(pair, partial(mutual_information, mean)) for kind, mean in means.items()}

    def _roster_likelihood(self, roster: Roster) -> Floats:
        """Return P(answer | state) of the assessors of a roster; unknown ones answer like the average, or an expert."""
        index = ids.match(self.model.consensus_.assessor_table["assessor"].combine_chunks(), roster.assessors)
        likelihood: Floats = self.likelihood[np.maximum(index, 0)]
        likelihood[index < 0] = self.mean_likelihood
        likelihood[(index < 0) & (roster.kind == "expert")] = self._expert_likelihood()
        return likelihood

    def _expert_likelihood(self) -> Floats:
        n_answers, n_states = self.likelihood.shape[1:]
        if not self.is_latent:
            wrong = (1 - EXPERT_ACCURACY) / (n_answers - 1)
            return np.where(np.eye(n_answers, dtype=bool), EXPERT_ACCURACY, wrong)
        p = np.full((n_answers, n_states), 1e-6)
        consensus = self.model.consensus_
        expected = np.array([np.sum(consensus.document_table[name]) for name in consensus.share_names])
        p[: len(expected), : self.n_nodes] = expert_curves(first_cuts(expected), standard_nodes(self.n_nodes))
        return np.asarray(p / p.sum(axis=0))

    def _family_answers(self, pair: Integers, roster: Roster) -> Floats | None:
        """Return how many answers each pair has of each assessor's family (n, n_assessors); None without families."""
        judgments = self.state.judgments
        if judgments is None or judgments.families is None or judgments.assessor_family is None:
            return None
        index = ids.match(judgments.assessors, roster.assessors)
        family = np.where(index >= 0, judgments.assessor_family[np.maximum(index, 0)], -1)
        counts = np.zeros((len(pair), len(judgments.families) + 1))
        for row, item in enumerate(self.state.item[pair].tolist()):
            if item >= 0:
                assessor = judgments.assessor[judgments.offsets[item] : judgments.offsets[item + 1]]
                np.add.at(counts[row], judgments.assessor_family[assessor], 1.0)
        counts[:, -1] = 0.0  # assessors without a family
        return counts[:, family]


def grade_certainty(model: Aggregator) -> Floats:
    """Return the certainty of the grade of each document of a consensus, (n_documents,), as :meth:`Belief.certainty`.

    For a model that does not describe answers, it is the highest probability of a true grade.

    >>> import crowdrank
    >>> votes = crowdrank.simulate(queries=2, documents=3, labels=2, assessors=4).judgments
    >>> grade_certainty(crowdrank.DawidSkene().fit(votes)).shape
    (6,)
    """
    documents = model.consensus_.document_table
    if not describes_answers(model):
        return np.asarray(np.max([documents[name].to_numpy() for name in model.consensus_.true_share_names], axis=0))
    pool = Pool(*(documents[name].combine_chunks() for name in ("query", "document")))
    return Belief.from_model(PoolState.of(pool, model.judgments_), model).certainty(np.arange(len(pool)))


def gains_if_known(
    state: PoolState, gain_distribution: Callable[[Integers], tuple[Floats, Floats]], k: int, least_dcg: float
) -> Floats:
    """Return the expected relative increase of a query's DCG@k if the gain of a pair became known (n_pairs,).

    Args:
        state: state of the pool.
        gain_distribution: function that returns the possible gains of pairs and their probabilities, as
            :meth:`Belief.gain_distribution`.
        k: rank up to which documents count.
        least_dcg: minimum of the expected DCG@k to which the increase is relative.

    """
    order, offsets = _query_order(state)
    discount, gain = 1 / np.log2(np.arange(2, k + 2)), np.empty(len(order))
    first = 0
    while first < len(offsets) - 1:  # whole queries, few enough to fit into the cache of the processor
        last = max(int(np.searchsorted(offsets, offsets[first] + PAIRS_PER_CHUNK, side="right")) - 1, first + 1)
        start, stop = offsets[first], offsets[last]
        chance, outcome = gain_distribution(order[start:stop])
        query_offsets = offsets[first : last + 1] - start
        policy_kernels.top_gains(query_offsets, chance, outcome, k, discount, least_dcg, gain[start:stop])
        first = last
    if state.pool.source is None:
        gain[order] = gain.copy()
    return gain


def value_of_labels(model: Aggregator, k: int = 10) -> Floats:
    """Return the expected relative increase of DCG@k by another label, for each document of a consensus (n_documents,).

    As in :class:`TopGain`, but relative to at least the DCG of one document of the highest grade: otherwise documents
    of queries that are almost surely without a relevant document would come first. For a model that does not describe
    answers, such as a vote, the grade of a document is distributed as its shares with one more answer that is
    distributed as all answers, and another label removes 1 / (n + 1) of the uncertainty that n labels have left.

    >>> import crowdrank
    >>> votes = crowdrank.simulate(queries=2, documents=3, labels=2, assessors=4).judgments
    >>> value_of_labels(crowdrank.MajorityVote().fit(votes)).shape
    (6,)
    """
    consensus, judgments = model.consensus_, model.judgments_
    state = PoolState.of(Pool.of(judgments), judgments)
    gains = exponential_gains(consensus.scale)
    pair = np.arange(len(state.pool))
    if describes_answers(model):
        belief = Belief.from_model(state, model)
        row, share = belief.row, belief.relative_information(pair)
        value = share * gains_if_known(state, belief.gain_distribution, k, float(gains.max()))
    else:
        row, n = consensus_rows(state, model), consensus.numbers("judgments")
        shares = np.stack([consensus.numbers(name) for name in consensus.true_share_names])
        chance = (n * shares + shares.mean(axis=1, keepdims=True)) / (n + 1)

        def distribution(pairs: Integers) -> tuple[Floats, Floats]:
            return chance[:, row[pairs]], gains[:, None]

        value = gains_if_known(state, distribution, k, float(gains.max())) / (n[row] + 1)
    result = np.zeros(len(consensus.document_table))
    is_known = (row >= 0) & (row < len(result))
    result[row[is_known]] = value[is_known]
    return result


def _query_order(state: PoolState) -> tuple[Integers, Integers]:
    """Return the pairs ordered by query (n,), and the offset of each query (n_queries + 1,)."""
    if state.pool.source is not None:
        return np.arange(len(state.pool)), state.pool.source.query_offsets.astype(np.int64)
    query = ids.encode(pa.chunked_array([state.pool.query]))[0]
    order = np.argsort(query, kind="stable")
    starts = np.flatnonzero(np.diff(query[order])) + 1
    return order, np.concatenate([[0], starts, [len(query)]])


def exponential_gains(scale: Scale) -> Floats:
    """Return 2^grade - 1 for each grade of a scale (n_grades,); very high grades have the same, finite gain.

    >>> exponential_gains(Scale.parse("0-3")).tolist()
    [0.0, 1.0, 3.0, 7.0]
    """
    return np.asarray(2.0 ** np.minimum(scale.values, MAX_EXPONENT) - 1)


def normal_on_nodes(mean: Floats, sd: Floats, n_nodes: int = N_NODES) -> Floats:
    """Return normal distributions on the nodes (n_nodes, n); a narrow one is shared by neighboring nodes."""
    nodes = standard_nodes(n_nodes)
    z = (nodes[:, None] - mean) / np.maximum(sd, 0.4 * (nodes[1] - nodes[0]))
    p = np.exp(0.5 * ((z * z).min(axis=0) - z * z))  # at least one is 1, however far the mean is from the nodes
    return np.asarray(p / p.sum(axis=0))


@cache
def grid_probabilities(n_nodes: int = N_NODES) -> Floats:
    """Return the normal distributions of the grid on the nodes (n_nodes, n_means * n_sds)."""
    means, sds = np.meshgrid(GRID_MEANS, GRID_SDS, indexing="ij")
    return normal_on_nodes(means.ravel(), sds.ravel(), n_nodes)


def column_entropy(p: Floats) -> Floats:
    """Return the entropy of each column in nats (n,).

    >>> column_entropy(np.array([[0.5, 1.0], [0.5, 0.0]])).round(3).tolist()
    [0.693, 0.0]
    """
    return np.asarray(0.0 - np.einsum("sn,sn->n", p, np.log(np.maximum(p, MIN_PROBABILITY))))


def mutual_information(likelihood: Floats, p: Floats) -> Floats:
    """Return the mutual information of state and answer (n,).

    Args:
        likelihood: (n_answers, n_states) P(answer | state).
        p: (n_states, n) P(state) of each pair.

    >>> mutual_information(np.eye(2), np.array([[0.5, 1.0], [0.5, 0.0]])).round(3).tolist()
    [0.693, 0.0]

    """
    information: Floats = column_entropy(likelihood @ p) - entropy(likelihood.T) @ p
    return np.maximum(information, 0.0)


def mutual_information_by_assessor(likelihood: Floats, p: Floats) -> Floats:
    """Return the mutual information of state and answer of each assessor (n, n_assessors).

    Args:
        likelihood: (n_assessors, n_answers, n_states) P(answer | state).
        p: (n_states, n) P(state) of each pair.

    """
    n_assessors, n_answers, n_states = likelihood.shape
    flat = np.ascontiguousarray(likelihood.transpose(1, 0, 2)).reshape(n_answers * n_assessors, n_states)
    information = -p.T @ entropy(likelihood.transpose(0, 2, 1)).T
    for start in range(0, p.shape[1], PAIRS_PER_SMALL_CHUNK):
        chunk = slice(start, start + PAIRS_PER_SMALL_CHUNK)
        answers = (p[:, chunk].T @ flat.T).reshape(-1, n_answers, n_assessors)
        information[chunk] -= np.einsum("nga,nga->na", answers, np.log(np.maximum(answers, MIN_PROBABILITY)))
    return np.maximum(information, 0.0)


def consensus_rows(state: PoolState, model: Aggregator) -> Integers:
    """Return the row of each pair among the documents of the consensus (n_pairs,), or -1; predictions come last."""
    if model.consensus_ not in state.consensus_rows:  # finding pairs takes long in a large pool
        row = _judged_rows(state, model)
        state.consensus_rows[model.consensus_] = _with_predictions(row, state.pool, model.consensus_)
    return state.consensus_rows[model.consensus_]


def _with_predictions(row: Integers, pool: Pool, consensus: Consensus) -> Integers:
    """Fill the rows of unjudged pairs (-1) with their rows in the prediction table."""
    others = np.flatnonzero(row < 0)
    if consensus.prediction_table is None or not len(others):
        return row
    found = _find_documents(consensus.prediction_table, pool.query.take(others), pool.document.take(others))
    row = row.copy()
    row[others] = np.where(found >= 0, found + len(consensus.document_table), -1)
    return row


def _judged_rows(state: PoolState, model: Aggregator) -> Integers:
    """Return the row of each pair in the table of judged documents, or -1."""
    table, judgments = model.consensus_.document_table, model.judgments_
    if judgments.n_items != len(table):  # the model left judgments out
        return _find_documents(table, state.pool.query, state.pool.document)
    if judgments is state.judgments:
        return state.item
    return judgments.positions(state.pool.query, state.pool.document)


def _find_documents(table: pa.Table, query: pa.Array, document: pa.Array) -> Integers:
    """Return the row of each (query, document) in a table of documents, or -1."""
    index = PairIndex.from_ids(table["query"].combine_chunks(), table["document"].combine_chunks())
    return index.positions(query, document)
