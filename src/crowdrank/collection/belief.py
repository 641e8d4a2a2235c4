"""What a fitted model knows of pairs and of assessors, and what one more answer is expected to tell.

A pair is in one of several states: a true grade, or a point of the line of relevance. Its probabilities come from the
consensus table alone: from the shares of grades, or, on the line, as a normal of the consensus' mean and sd; so no pass
over the judgments is needed. What follows from mean and sd alone is worked out on a grid of both and looked up there,
so that a million pairs cost less than a pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy.special import ndtri

from crowdrank._typing import Floats, Integers
from crowdrank.collection import kernels
from crowdrank.collection.base import State
from crowdrank.collection.pool import Roster, find_pairs
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus.information import entropy
from crowdrank.consensus.latent import N_NODES, NODES, gold_curves
from crowdrank.errors import UsageError
from crowdrank.judgments import ids
from crowdrank.judgments.table import Judgments

STEP = float(NODES[1] - NODES[0])
MEANS, SDS = np.linspace(-3.4, 3.4, 137), np.linspace(0.0, 1.3, 53)
"""The grid of means and standard deviations of relevance on which expectations are worked out."""
_NODE, _WEIGHT = np.polynomial.hermite_e.hermegauss(5)
POINTS, WEIGHTS = np.asarray(_NODE, np.float64), np.asarray(_WEIGHT / _WEIGHT.sum(), np.float64)
"""Five points, in standard deviations, and their weights: expectations under a normal, of polynomials to degree 9."""
CHUNK, FEW = 1 << 14, 16
"""Pairs whose probabilities are held at once, of one answer and of all assessors': what a processor keeps at hand."""
TINY = 1e-300
GRID = tuple((float(one[0]), float(one[1] - one[0])) for one in (MEANS, SDS))
NOTHING_KNOWN = (0.0, 1.0)
"""The mean and the standard deviation of a pair without a label."""
SURE = 0.95
"""An expert of whom nothing is known is right as often, where states are grades."""
TELLING = ("gda", "rasch", "dawid-skene", "one-coin")
"""The methods that say how assessors answer."""


def tells(model: Aggregator) -> bool:
    """Whether a fitted model says how assessors answer, so that what one more answer would tell can be reckoned.

    >>> import crowdrank
    >>> votes = crowdrank.simulate(queries=2, documents=3, labels=2, assessors=4).judgments
    >>> tells(crowdrank.DawidSkene().fit(votes)), tells(crowdrank.MajorityVote().fit(votes))
    (True, False)
    """
    states = model._states(model.theta_)
    return states is not None and (_on_line(model) or states[1].shape[2] == len(model.consensus_.scale))


def _on_line(model: Aggregator) -> bool:
    states = model._states(model.theta_)
    return bool(model.on_a_line) and states is not None and states[1].shape[2] >= N_NODES


@dataclass(frozen=True, eq=False)
class Belief:
    """Probabilities of states for each pair of a pool, and of answers for each assessor and state.

    >>> import pandas as pd
    >>> from crowdrank import DawidSkene, read_judgments
    >>> from crowdrank.collection.pool import Pool
    >>> rows = {"document": list("aabbcc"), "assessor": list("xyxyxy"), "grade": [1, 1, 0, 0, 0, 1]}
    >>> votes = read_judgments(pd.DataFrame(rows))
    >>> belief = Belief.of(State.of(Pool.of(votes), votes), DawidSkene().fit(votes))
    >>> belief.posterior(np.arange(3)).shape
    (3, 2)
    """

    state: State
    model: Aggregator
    row: Integers  # (n_pairs,) in the consensus' table of documents, or -1
    prior: Floats  # (n_states,)
    likelihood: Floats  # (n_assessors, n_answers, n_states), of the model's assessors
    on_line: bool

    @classmethod
    def of(cls, state: State, model: Aggregator) -> Belief:
        """What `model` knows; it has to be one of how assessors answer."""
        states = model._states(model.theta_)
        if states is None or not tells(model):
            name = type(model).__name__
            raise UsageError(f"{name} does not say how assessors answer; use one of {', '.join(TELLING)}.")
        return cls(state, model, _rows(state, model), states[0], states[1], _on_line(model))

    def posterior(self, pair: Integers) -> Floats:
        """The probability of each state: (n, n_states)."""
        return np.ascontiguousarray(self._shares(pair).T)

    def _shares(self, pair: Integers) -> Floats:
        """The probability of each state, states first: (n_states, n)."""
        row = self.row[pair]
        known = row >= 0
        at = row if known.all() else np.maximum(row, 0)
        if self.on_line:
            shares = on_nodes(np.where(known, self._column("relevance")[at], 0.0), self._column("sd")[at])
            if len(self.prior) > N_NODES:  # the last state is that of what nobody can judge
                apart = self._column("unjudgeable")[at]
                shares = np.vstack([shares * (1 - apart), apart])
        else:
            shares = np.empty((len(self.prior), len(at)))
            for state, name in enumerate(self._share_names):
                np.take(self._column(name), at, out=shares[state], mode="clip")
        if not known.all():
            shares[:, ~known] = self.prior[:, None]
        return shares

    def _column(self, name: str) -> Floats:
        if name not in self._columns:
            self._columns[name] = self.model.consensus_.document_table[name].to_numpy()
        return self._columns[name]

    @cached_property
    def _share_names(self) -> list[str]:
        return self.model.consensus_.share_names

    @cached_property
    def _columns(self) -> dict[str, Floats]:
        return {}

    @cached_property
    def anyone(self) -> Floats:
        """P(answer | state) of whoever comes: the mean over judgments so far, (n_answers, n_states)."""
        given = self.model.consensus_.assessor_table["judgments"].to_numpy().astype(np.float64)
        mean: Floats = np.einsum("a,ags->gs", given / given.sum(), self.likelihood)
        return mean

    @cached_property
    def careful(self) -> Floats:
        """P(grade | state) of a typical careful assessor, or certainty where states are grades."""
        n_grades = len(self.model.consensus_.scale)
        if not self.on_line:
            return np.eye(n_grades)
        told: Floats = self.model.theta_.get("typical", self.anyone)[:n_grades, :N_NODES]
        told = told / told.sum(axis=0)
        lowest = np.eye(n_grades)[:, :1]
        return np.hstack([told, lowest]) if len(self.prior) > N_NODES else told

    @cached_property
    def gain(self) -> Floats:
        """What a document in each state adds to DCG at the first rank, (n_states,): 2^grade - 1."""
        return (2.0 ** np.array(self.model.consensus_.scale.values) - 1) @ self.careful

    def certainty(self, pair: Integers) -> Floats:
        """How probable the most probable grade is, (n,), if the state were known for certain."""
        return self._looked_up(pair, self._certainties)

    def _certainties(self, shares: Floats) -> Floats:
        if not self.on_line:
            return np.asarray(shares.max(axis=0))
        onto = np.eye(len(self.careful))[self.careful.argmax(axis=0)]  # the grade that each state is seen as
        return np.asarray((onto.T @ shares).max(axis=0))

    def settled_entropy(self, level: float) -> float:
        """The entropy of a pair whose grade is as probable as `level`: what is left shared evenly among the others.

        On the line, that of a normal as wide as a grade's even share of it allows.
        """
        n_grades = len(self.careful)
        if not self.on_line:
            left = (1 - level) / max(n_grades - 1, 1)
            return float(-level * np.log(level) - (1 - level) * np.log(left))
        half = float(-NODES[0]) / n_grades
        sd = half / float(ndtri((1 + level) / 2))
        return float(entropies(on_nodes(np.zeros(1), np.array([sd])))[0])

    def entropy(self, pair: Integers) -> Floats:
        """How much is not known of each pair, in nats: (n,)."""
        return self._looked_up(pair, entropies)

    def drop(self, pair: Integers) -> Floats:
        """By how much an answer of whoever comes is expected to lower the entropy: (n,)."""
        return self._looked_up(pair, self._drops)

    def share_told(self, pair: Integers) -> Floats:
        """The share of what is not known that an answer of whoever comes is expected to tell: (n,)."""
        return self._looked_up(pair, lambda shares: self._drops(shares) / np.maximum(entropies(shares), 1e-12))

    def _drops(self, shares: Floats) -> Floats:
        return told_by(self.anyone, shares)

    def gains(self, pair: Integers) -> tuple[Floats, Floats]:
        """The chance of each thing that a pair may gain, and what: (n_points, n), or (n_points, 1) where all are alike.

        Points are the true grades, or five points of the line that have the moments of the pair's normal.
        """
        if not self.on_line:
            return self._shares(pair), self.gain[:, None]
        row = self.row[pair]
        value = np.empty((len(POINTS), len(pair)))
        line = self._column("relevance"), self._column("sd")
        kernels.along(row, *line, NOTHING_KNOWN, POINTS, (float(NODES[0]), STEP), self.gain[:N_NODES], value)
        if len(self.prior) == N_NODES:
            return WEIGHTS[:, None], value
        apart = np.where(row >= 0, self._column("unjudgeable")[np.maximum(row, 0)], self.prior[-1])
        return np.vstack([WEIGHTS[:, None] * (1 - apart), apart]), np.vstack([value, np.zeros(len(pair))])

    def _looked_up(self, pair: Integers, function: Callable[[Floats], Floats]) -> Floats:
        """A function of probabilities of states, of each pair."""
        found = np.empty(len(pair))
        if not self.on_line or len(self.prior) > N_NODES:
            for start in range(0, len(pair), CHUNK):
                found[start : start + CHUNK] = function(self._shares(pair[start : start + CHUNK]))
            return found
        table = function(on_grid()).reshape(len(MEANS), len(SDS))
        line = self._column("relevance"), self._column("sd")
        kernels.bilinear(self.row[pair], *line, NOTHING_KNOWN, *GRID, table, found)
        return found

    def drops(self, pair: Integers, roster: Roster) -> Floats:
        """As `drop`, for an answer of each assessor of a roster who may judge the pair: (n, n_assessors).

        A family has one voice on a pair: who comes after n of its members adds one n + 1st to it.
        """
        curves = self._of_roster(roster)
        shares = self._shares(pair)
        if self.state.pool.allowed is None:
            told = told_by_each(curves, shares)
        else:
            told = np.zeros((len(pair), len(roster)))
            noise = entropy(curves.transpose(0, 2, 1))
            kernels.information(np.ascontiguousarray(shares.T), curves, noise, pair, *self.state.pool.allowed, told)
        voices = self._voices(pair, roster)
        return told if voices is None else told / (1.0 + voices)

    def _of_roster(self, roster: Roster) -> Floats:
        """P(answer | state) of the assessors of a roster; of whom nothing is known, as anyone's, or as an expert's."""
        place = ids.match(self.model.consensus_.assessor_table["assessor"].combine_chunks(), roster.assessors)
        curves: Floats = self.likelihood[np.maximum(place, 0)]
        curves[place < 0] = self.anyone
        curves[(place < 0) & (roster.kind == "expert")] = self._expert()
        return curves

    def _expert(self) -> Floats:
        n_answers, n_states = self.likelihood.shape[1:]
        if not self.on_line:
            wrong = (1 - SURE) / (n_answers - 1)
            return np.where(np.eye(n_answers, dtype=bool), SURE, wrong)
        told: Floats = np.full((n_answers, n_states), 1e-6)
        sharp = gold_curves(len(self.model.consensus_.scale))
        told[: len(sharp), :N_NODES] = sharp
        return np.asarray(told / told.sum(axis=0))

    def _voices(self, pair: Integers, roster: Roster) -> Floats | None:
        """How many of each assessor's family judged each pair already, (n, n_assessors); None without families."""
        judgments = self.state.judgments
        if judgments is None or judgments.families is None or judgments.assessor_family is None:
            return None
        place = ids.match(judgments.assessors, roster.assessors)
        family = np.where(place >= 0, judgments.assessor_family[np.maximum(place, 0)], -1)
        counts = np.zeros((len(pair), len(judgments.families) + 1))
        rows, owner = _judged(judgments, self.state.item[pair])
        np.add.at(counts, (owner, judgments.assessor_family[judgments.assessor[rows]]), 1.0)
        counts[:, -1] = 0.0  # of no family
        return counts[:, family]


def on_nodes(mean: Floats, sd: Floats) -> Floats:
    """A normal on the nodes, (n_nodes, n); one narrower than they lie apart is shared between its neighbors."""
    off = (NODES[:, None] - mean) / np.maximum(sd, 0.4 * STEP)
    shares = np.exp(-0.5 * off * off)
    return np.asarray(shares / shares.sum(axis=0))


@cache
def on_grid() -> Floats:
    """The normals of the grid on the nodes: (n_nodes, n_means * n_sds)."""
    means, sds = np.meshgrid(MEANS, SDS, indexing="ij")
    return on_nodes(means.ravel(), sds.ravel())


def entropies(shares: Floats) -> Floats:
    """The entropy of each column, in nats: (n,).

    >>> entropies(np.array([[0.5, 1.0], [0.5, 0.0]])).round(3).tolist()
    [0.693, 0.0]
    """
    found: Floats = 0.0 - np.einsum("sn,sn->n", shares, np.log(np.maximum(shares, TINY)))
    return found


def told_by(curves: Floats, shares: Floats) -> Floats:
    """The mutual information of state and answer, (n,): an answer's entropy less what is left if the state is known.

    >>> told_by(np.eye(2), np.array([[0.5, 1.0], [0.5, 0.0]])).round(3).tolist()
    [0.693, 0.0]
    """
    # curves (n_answers, n_states), shares (n_states, n)
    told: Floats = entropies(curves @ shares) - entropy(curves.T) @ shares
    return np.maximum(told, 0.0)


def told_by_each(curves: Floats, shares: Floats) -> Floats:
    """As `told_by`, of each assessor: (n, n_assessors)."""
    # curves (n_assessors, n_answers, n_states), shares (n_states, n)
    n_assessors, n_answers, n_states = curves.shape
    flat = np.ascontiguousarray(curves.transpose(1, 0, 2)).reshape(n_answers * n_assessors, n_states)
    told = -shares.T @ entropy(curves.transpose(0, 2, 1)).T
    for start in range(0, shares.shape[1], FEW):
        answers = (shares[:, start : start + FEW].T @ flat.T).reshape(-1, n_answers, n_assessors)
        told[start : start + FEW] -= np.einsum("nga,nga->na", answers, np.log(np.maximum(answers, TINY)))
    return np.maximum(told, 0.0)


def _rows(state: State, model: Aggregator) -> Integers:
    """Where each pair of the pool stands in the consensus' table."""
    table = model.consensus_.document_table
    judgments = model.judgments_
    if judgments is state.judgments and judgments.n_items == len(table):
        return state.item
    if judgments.n_items == len(table):
        return judgments.positions(state.pool.query, state.pool.document)
    # Judgments were left out: documents are known by their ids alone.
    query, document = (table[name].combine_chunks() for name in ("query", "document"))
    return find_pairs(query, document, state.pool.query, state.pool.document)


def _judged(judgments: Judgments, item: Integers) -> tuple[Integers, Integers]:
    """The rows of the judgments of items, and of which of `item` each is."""
    known = np.flatnonzero(item >= 0)
    start, stop = judgments.offsets[item[known]], judgments.offsets[item[known] + 1]
    counts = stop - start
    rows = np.arange(counts.sum()) + np.repeat(start - (np.cumsum(counts) - counts), counts)
    return rows, np.repeat(known, counts)
