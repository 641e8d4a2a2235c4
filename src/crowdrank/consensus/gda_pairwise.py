"""GDA-PW: grades as Gaussians on the line of relevance, by pairs of documents (Metrikov, Pavlu, Aslam 2015, eq. 8)."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._saved import LARGEST, POSITIVE, PROBABILITY, require_range
from crowdrank._typing import Arrays
from crowdrank.consensus import pairwise_kernels
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus.curves import careful_curves
from crowdrank.consensus.information import pair_information
from crowdrank.consensus.latent import NODES, PRIOR, softmax, use_of_answers
from crowdrank.consensus.result import modal_grades, restrict_to_gold
from crowdrank.constraints import MAX_INTEGER, Constraints, Flag, Number, OneOf
from crowdrank.engine.shards import Shard
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments

MU_SD, LOG_ALPHA_SD, LOG_W_SD, LOG_EPS_SD = 0.5, 0.7, 0.5, 0.4
"""The standard deviations of the priors."""
FIRST_W = 0.7
"""The variance that the prior of w is around; that of mu is around evenly spaced points from -1 to 1."""
SETTLED = 100
"""Newton steps at the end; a few suffice unless documents differ in difficulty."""
LONGEST = 1.0
"""A step is at most so many standard deviations of the prior: Newton's quadratic holds no further."""
SHORTEST = 2.0**-10
"""A step is not halved below this part of itself: what is left is rounding."""
LEVEL_STEPS, ENOUGH = 15, 1e-4
"""Newton steps of the queries' levels, at most; one this short is the last."""
FEW = 3.0
"""So many judgments of each grade stand behind the prior in the first guess."""
DEPTH = 4
"""So many steps are remembered, to guess where they lead."""
STRETCH_STEPS = 20
"""Newton steps of one number."""
UNITS = np.geomspace(0.5, 8.0, 16)
"""So many times its estimate relevance may turn out to be."""
USUAL_UNIT, USUAL_ITEMS, USUAL_INFORMATION = 2.0, 10.0, 10.0
"""What is first thought of the unit: as if of so many documents, each with estimates of that precision."""
ABSENT = -40.0
"""The log alpha of a grade that an assessor's scale has not."""
CHUNK = 4096
"""So many assessors at a time where each takes much room."""


class GDAPairwise(Aggregator):
    """The chance of a grade given another document's grade and the difference in relevance, for pairs within a query.

    p(g | g', r - r') is proportional to alpha_g N(r - r'; mu_g - mu'_g', sqrt(w w' eps eps')), with one alpha and mu
    per assessor and grade, one w per assessor and one eps per document; every judgment is explained by each of its
    partners, and these explanations have weight 1 in all. Relevance and parameters are those of the highest
    posterior, with normal priors that are fixed. Only differences within a query count: `relevance` compares documents
    of one query, whose mean is about 0. Pairs say nothing of its scale either: it is in the unit in which documents
    vary as their prior says, standard normal, and in that unit the prior draws it to 0. `grade` and `p0..` are what a
    typical careful assessor would give; for them the level of the query is found from its judgments taken one by one.
    Assessors may use different scales; grades are shown on the one with the most grades.

    A query of up to ten times `partners` judgments (or an assessor's part of it, where pairs are of the same assessor)
    has all its pairs. In larger ones the partners are scattered over the documents: they depend on the seed, the number
    of the query and the order of its judgments, so that another order gives slightly other results.

    Args:
        n_iter, tol: the loop ends after `n_iter` iterations, or when the mean log posterior per judgment changes by
            less than `tol`.
        partners: how many partners a judgment has in a large query.
        pairs: `all` pairs of judgments of two documents, or only those of the `same-assessor`.
        difficulty: let every document have a width eps of its own; the column `difficulty` then shows it, and higher
            is harder.
        random_state: of the partners.
        unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`) or left out (`drop`).
        interval: the level of `lower` and `upper`, by the normal approximation around the highest posterior. They are
            of relevance within the query; that the assessors' parameters are estimates too is not in them.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "a", "b", "b", "b"], "assessor": ["x", "y", "z"] * 2,
    ...                       "grade": [2, 2, 1, 0, 0, 1]})
    >>> model = GDAPairwise().fit(votes)
    >>> model.consensus_.documents.set_index("document")["relevance"].idxmax()
    'a'
    """

    locality: ClassVar[str] = "query"
    shrinks: ClassVar[bool] = True
    on_a_line: ClassVar[bool] = True
    takes_scales: ClassVar[bool] = True
    assessor_arrays: ClassVar[tuple[str, ...]] = ("params", "n_grades")
    theta_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "best": (-np.inf, np.inf),
        "depth": (0, LARGEST),
        "length": POSITIVE,
        "stretch": POSITIVE,
        "unit": POSITIVE,
        "typical": PROBABILITY,
    }
    _parameter_constraints: ClassVar[Constraints] = {
        "partners": [Number(1, MAX_INTEGER, integer=True)],
        "pairs": [OneOf("all", "same-assessor")],
        "difficulty": [Flag()],
        "random_state": [Number(0, MAX_INTEGER, integer=True)],
    }

    def __init__(
        self,
        n_iter: int = 200,
        tol: float = 7e-5,
        *,
        partners: int = 20,
        pairs: str = "all",
        difficulty: bool = False,
        random_state: int = 0,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol
        self.partners = partners
        self.pairs = pairs
        self.difficulty = difficulty
        self.random_state = random_state
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval

    def _start(self, shard: Shard) -> Arrays:
        """Relevance from the mean grades within the query; who may be paired with whom."""
        sizes = np.diff(shard.offsets)
        item = np.repeat(np.arange(shard.n_items), sizes)
        first = np.flatnonzero(np.diff(shard.item_query, prepend=-1))
        query_items = np.append(first, shard.n_items)
        query = np.searchsorted(first, item, side="right") - 1
        same = self.pairs == "same-assessor"
        order = np.lexsort((shard.assessor, query)) if same else np.arange(len(item))
        key = query[order] * shard.n_assessors + shard.assessor[order] if same else query
        groups = np.flatnonzero(np.diff(key, prepend=-1))
        share = shard.grade / np.maximum(np.array(shard.scale_sizes)[shard.scale_of[shard.assessor]] - 1, 1)
        mean = np.bincount(item, share, minlength=shard.n_items) / np.maximum(sizes, 1)
        return {
            "relevance": standardized(mean, query_items),
            "hardness": np.zeros(shard.n_items),
            "item": item,
            "order": order,
            "groups": np.append(groups, len(item)),
            "query_groups": np.append(np.searchsorted(groups, shard.offsets[first]), len(groups)),
            "query_items": query_items,
        }

    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """One Newton step of relevance, then slope and curvature of the assessors' parameters."""
        n_params = 2 * shard.n_grades + 1
        slope, curve = np.zeros((shard.n_assessors, n_params)), np.zeros((shard.n_assessors, n_params, n_params))
        value, precision = 0.0, np.ones(shard.n_items)
        if theta is not None:
            relevance = local["relevance"] * theta["stretch"][0]
            local = {**local, "relevance": relevance, "hardness": local["hardness"].copy()}
            value, precision = self._climb(shard, local, theta["params"], float(theta["unit"][0]), 1, slope, curve)
        statistics = {"slope": slope, "curve": curve, "value": np.array([value])}
        statistics["given"] = np.bincount(shard.assessor, minlength=shard.n_assessors).astype(float)
        statistics["squares"] = np.array([(local["relevance"] ** 2).sum(), shard.n_items])
        statistics["spreads"] = spreads(local["relevance"], precision)
        if theta is None:
            statistics["moments"] = moments(shard, local["relevance"][local["item"]])
            use = use_of_answers(shard)
            statistics |= {"used": use["used"], "on_scale": use["given"]}
        return local, statistics

    def _climb(
        self,
        shard: Shard,
        local: Arrays,
        params: NDArray[np.float64],
        unit: float,
        n_steps: int,
        slope: NDArray[np.float64],
        curve: NDArray[np.float64],
    ) -> tuple[float, NDArray[np.float64]]:
        """Change the local relevance (and hardness); their log posterior, and the precision of each relevance."""
        precision = np.empty(shard.n_items)
        value = pairwise_kernels.climb(
            local["order"],
            local["item"],
            local["groups"],
            local["query_groups"],
            local["query_items"],
            shard.item_query[local["query_items"][:-1]].astype(np.int64),
            shard.assessor,
            shard.grade,
            shard.gold,
            tuple(range(shard.n_grades)),
            params,
            expert_lines(shard.n_expert_grades) * np.array([[unit], [1.0]]),
            LOG_EPS_SD**-2 if self.difficulty else 0.0,
            self.partners,
            self.random_state,
            n_steps,
            local["relevance"],
            local["hardness"],
            precision,
            slope,
            curve,
        )
        return float(value), precision

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """A Newton step of every assessor's parameters, bent by what came of the steps before.

        One that turns out to lower the posterior is taken back: the bent one for the plain, the plain by half.
        """
        given, (squares, n_items) = statistics["given"], statistics["squares"]
        if theta is None:
            of_scale = (~np.isnan(statistics["used"])).sum(axis=1)
            n_grades = of_scale[statistics["on_scale"].argmax(axis=1)]
            first = {"unit": np.ones(1), "n_grades": n_grades, "of_scale": of_scale}
            return with_curves({**search_from(first_guess(statistics["moments"], n_grades)), **first}, given)
        mean, sd = prior(theta["n_grades"], theta["params"].shape[1] // 2)
        value, params, length = self._log_posterior(theta, statistics), theta["params"], float(theta["length"][0])
        if value < theta["best"][0] and length > SHORTEST:
            bent = bool(theta["depth"][0] > 0)
            length = 1.0 if bent else length / 2
            kept = {"depth": np.zeros(1, np.int64), "stretch": np.ones(1), "length": np.array([length])}
            return with_curves({**theta, **kept, "params": theta["base"] + length * theta["step"]}, given)
        lower = np.tril(statistics["curve"])
        whole = lower + np.tril(lower, -1).transpose(0, 2, 1) + np.diag(sd**-2)
        slope = statistics["slope"] - (params - mean) / sd**2
        step = np.linalg.solve(whole, slope[:, :, None])[:, :, 0]
        step /= np.maximum((np.abs(step) / sd).max(axis=1, keepdims=True) / LONGEST, 1.0)
        depth = min(int(theta["depth"][0]), DEPTH)
        stretch = best_stretch(params + step, mean, squares)
        step = stretched(params + step, stretch) - params
        moves, turns = (np.roll(theta[name], 1, axis=1) for name in ("moves", "turns"))
        moves[:, 0], turns[:, 0] = params - theta["base"], step - theta["step"]
        scale = np.sqrt(np.einsum("aii->ai", whole))
        length = min(1.0, 1.5 * length)
        tried = params + (accelerated(step, moves[:, :depth], turns[:, :depth], scale) if depth else length * step)
        new = {**theta, "params": tried, "base": params, "step": step, "moves": moves, "turns": turns}
        new |= {"best": np.array([value]), "length": np.array([length]), "depth": np.array([depth + 1])}
        new |= {"stretch": np.array([stretch]), "unit": np.array([best_unit(statistics["spreads"], n_items)])}
        return with_curves(new, given)

    @staticmethod
    def _log_posterior(theta: Arrays, statistics: Arrays) -> float:
        mean, sd = prior(theta["n_grades"], theta["params"].shape[1] // 2)
        return float(statistics["value"][0]) - 0.5 * float((((theta["params"] - mean) / sd) ** 2).sum())

    def _objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        """The pairwise log likelihood and the log priors (but for constants), per judgment."""
        return self._log_posterior(theta, statistics) / n

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """Relevance at its highest posterior given the assessors, however the loop came to them."""
        if self.difficulty:  # there may be several highest points: the way to one of them is always the same
            local = self._start(shard)
        local = {**local, "relevance": local["relevance"] * theta["unit"][0]}
        params, nothing = on_the_line(theta), np.empty((0, theta["params"].shape[1]))
        _, precision = self._climb(shard, local, params, 1.0, SETTLED, nothing, nothing[:, :, None])
        relevance, sd = local["relevance"], 1 / np.sqrt(precision)
        reach = NormalDist().inv_cdf((1 + self.interval) / 2) * sd
        place = relevance + query_levels(shard, local, params)
        shares = np.stack([np.interp(place, NODES, curve) for curve in theta["typical"]], axis=1)
        restrict_to_gold(shares, shard)
        grade = modal_grades(shares)
        rows = {"relevance": relevance, "sd": sd, "lower": relevance - reach, "upper": relevance + reach}
        rows |= {"grade": grade, "p": shares}
        return {**rows, "difficulty": np.exp(local["hardness"])} if self.difficulty else rows

    def _states(self, theta: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Points of the latent line, for documents of middling difficulty."""
        return PRIOR, answer_curves(on_the_line(theta))

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """Where each grade lies on the line, how wide, how the answers rise with relevance, what two of them tell."""
        params = on_the_line(theta)
        n_grades = params.shape[1] // 2
        width = np.exp(params[:, -1])
        return {
            **{f"mu_{g}": np.where(g < theta["n_grades"], params[:, g], np.nan) for g in range(n_grades)},
            "width": width,
            "slope": (params[:, n_grades - 1] - params[:, 0]) / width,
            "pairwise_informativeness": pairwise_informativeness(params),
        }

    def _check_theta(self, theta: Arrays, example: Arrays, n_assessors: int) -> None:
        """Check that numbers of grades are in range, too."""
        super()._check_theta(theta, example, n_assessors)
        for name in ("n_grades", "of_scale"):
            require_range(name, theta[name], 2, theta["params"].shape[1] // 2)

    def _new_assessors(self, theta: Arrays, name: str, scale_of: NDArray[np.int8]) -> NDArray[Any]:
        """What the prior says."""
        n_grades = theta["of_scale"][scale_of]
        return n_grades if name == "n_grades" else prior(n_grades, theta["params"].shape[1] // 2)[0]

    def _adopt(self, init: Aggregator, table: Judgments, gold: Gold | None) -> Arrays | None:
        """Return the parameters with the state of a new search: other judgments have another posterior."""
        theta = super()._adopt(init, table, gold)
        return None if theta is None else {**theta, **search_from(theta["params"])}


def prior(own_grades: NDArray[np.int64], n_grades: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean of each assessor's mu, log alpha and log w, and the standard deviations.

    Grades that an assessor's scale has not, of the `n_grades` of the longest scale, lie at 0 and are never given.
    """
    # own_grades (n_assessors,) -> (n_assessors, 2 n_grades + 1), (2 n_grades + 1,)
    mean = np.zeros((len(own_grades), 2 * n_grades + 1))
    for own in np.unique(own_grades):
        of = own_grades == own
        mean[of, :own] = np.linspace(-1, 1, own)
        mean[of, n_grades + own : 2 * n_grades] = ABSENT
    mean[:, -1] = np.log(FIRST_W)
    return mean, prior_sd(n_grades)


def prior_sd(n_grades: int) -> NDArray[np.float64]:
    """The standard deviations of mu, log alpha and log w."""
    return np.repeat([MU_SD, LOG_ALPHA_SD, LOG_W_SD], [n_grades, n_grades, 1])


def search_from(params: NDArray[np.float64]) -> Arrays:
    """The parts of theta that know how the search goes, before its first step."""
    past = np.zeros((len(params), DEPTH, params.shape[1]))
    theta = {"params": params, "base": params, "step": np.zeros_like(params), "moves": past, "turns": past}
    theta |= {"best": np.array([-np.inf]), "length": np.ones(1), "stretch": np.ones(1)}
    return {**theta, "depth": np.zeros(1, np.int64)}


def with_curves(theta: Arrays, given: NDArray[np.float64]) -> Arrays:
    """Theta, with the typical curve; all centres moved together leave the likelihood as it is, not the prior."""
    params = theta["params"].copy()
    n_grades = params.shape[1] // 2
    there = np.arange(n_grades) < theta["n_grades"][:, None]
    off = params[:, :n_grades] - prior(theta["n_grades"], n_grades)[0][:, :n_grades]
    params[:, :n_grades] -= np.where(there, off[there].mean(), 0.0)
    on_main = theta["n_grades"] == n_grades
    return {
        **theta,
        "params": params,
        "typical": careful_curves(given * on_main, answer_curves(on_the_line({**theta, "params": params}))),
    }


def spreads(relevance: NDArray[np.float64], precision: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of relevance's squares, doubt included, in each of UNITS, with a prior of variance 1 there."""
    # relevance, precision (n_items,) with a prior of variance 1 as it is -> (n_units,)
    sums = []
    for unit in UNITS:
        there = precision - 1.0 + unit**2
        sums.append((((relevance * precision / there) ** 2 + 1 / there) * unit**2).sum())
    return np.array(sums)


def best_unit(sums: NDArray[np.float64], n_items: float) -> float:
    """The unit in which relevance has the variance of its prior; where documents cannot be told apart, the largest.

    A few documents of the usual unit count as if they were among them: of very few, nothing can be said.

    >>> round(best_unit(np.zeros(len(UNITS)), 0.0), 1) == USUAL_UNIT
    True
    """
    # sums (n_units,): see spreads
    known = USUAL_INFORMATION
    typical = np.sqrt(known + (known / USUAL_UNIT) ** 2) / (known + 1)  # root mean square of such documents' estimates
    usual = spreads(np.array([typical]), np.array([known + 1]))
    variance = (sums + USUAL_ITEMS * usual) / (n_items + USUAL_ITEMS)
    above = np.flatnonzero(variance > 1.0)
    if len(above) == 0 or above[0] == 0:
        return float(UNITS[-1] if len(above) == 0 else UNITS[0])
    last = above[0]
    share = (1.0 - variance[last - 1]) / (variance[last] - variance[last - 1])
    return float(UNITS[last - 1] * (UNITS[last] / UNITS[last - 1]) ** share)


def on_the_line(theta: Arrays) -> NDArray[np.float64]:
    """The parameters where relevance, its doubt included, has variance 1.

    Pairs say nothing of the scale, and where documents and assessors are both at their most likely it comes out far
    too small: the density of relevance is highest where all is 0, though hardly any of its mass is there.
    """
    return stretched(theta["params"], float(theta["unit"][0]))


def stretched(params: NDArray[np.float64], by: float) -> NDArray[np.float64]:
    """The line drawn out: with relevance drawn out too, every pair is as likely as before."""
    n_grades = params.shape[1] // 2
    drawn: NDArray[np.float64] = params * np.repeat([by, 1.0, 1.0], [n_grades, n_grades, 1])
    drawn[:, -1] += 2 * np.log(by)
    return drawn


def best_stretch(params: NDArray[np.float64], mean: NDArray[np.float64], squares: float) -> float:
    """How far the line should be drawn out for the priors to be highest: alternating steps take long to find it."""
    # mean (n_assessors, n_params) of the prior; squares: the sum over documents of relevance ** 2
    n_grades = params.shape[1] // 2
    sd = prior_sd(n_grades)
    mu, precision = params[:, :n_grades], sd[0] ** -2
    square = squares + precision * (mu**2).sum()
    linear = precision * (mu * mean[:, :n_grades]).sum()
    width, n_widths = (params[:, -1] - mean[:, -1]).sum() / sd[-1] ** 2, len(params) / sd[-1] ** 2
    by = 0.0  # its logarithm
    for _ in range(STRETCH_STEPS):
        slope = -square * np.exp(2 * by) + linear * np.exp(by) - 2 * (width + 2 * by * n_widths)
        curve = 2 * square * np.exp(2 * by) + abs(linear) * np.exp(by) + 4 * n_widths
        by += slope / curve
    return float(np.exp(by))


def accelerated(
    step: NDArray[np.float64],
    moves: NDArray[np.float64],
    turns: NDArray[np.float64],
    scale: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Anderson's mixing: to where, by how steps turned as parameters moved, the next step would be shortest."""
    # step, scale (n_assessors, n_params); moves, turns (n_assessors, depth, n_params): the last differences
    flat = (turns * scale[:, None]).transpose(1, 0, 2).reshape(turns.shape[1], -1)
    matrix = flat @ flat.T
    shares = np.linalg.lstsq(matrix, flat @ (step * scale).ravel(), rcond=1e-10)[0]
    mixed: NDArray[np.float64] = step - np.einsum("d,adp->ap", shares, moves + turns)
    return mixed


def moments(shard: Shard, relevance: NDArray[np.float64]) -> NDArray[np.float64]:
    """How often each assessor gave each grade, and the sums of relevance and its squares there."""
    # relevance (n,) by judgment -> (3, n_assessors, n_grades)
    use = shard.assessor.astype(np.int64) * shard.n_grades + shard.grade
    size = shard.n_assessors * shard.n_grades
    sums = [np.bincount(use, minlength=size), *(np.bincount(use, part, size) for part in (relevance, relevance**2))]
    return np.stack(sums).reshape(3, shard.n_assessors, shard.n_grades)


def first_guess(seen: NDArray[np.float64], own_grades: NDArray[np.int64]) -> NDArray[np.float64]:
    """Parameters from the moments, drawn to the prior as if a few judgments more had followed it."""
    # (3, n_assessors, n_grades), own_grades (n_assessors,) -> (n_assessors, 2 n_grades + 1)
    n, total, squares = seen
    n_grades = n.shape[1]
    mean, _ = prior(own_grades, n_grades)
    mu = (total + FEW * mean[:, :n_grades]) / (n + FEW)
    within = (squares - 2 * mu * total + n * mu**2).sum(axis=1)
    w = (within + FEW * n_grades * FIRST_W) / (n.sum(axis=1) + FEW * n_grades)
    there = np.arange(n_grades) < own_grades[:, None]
    share = np.log(n + FEW)
    share = np.where(there, share - share.mean(axis=1, keepdims=True, where=there), ABSENT)
    return np.concatenate([mu, share, np.log(w)[:, None]], axis=1)


def answer_curves(params: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(answer | node) of assessors, of one document alone: (n_assessors, n_answers, n_nodes).

    The width of a pair is made of the doubt of two documents; one has half of it.
    """
    n_grades = params.shape[1] // 2
    off = NODES - params[:, :n_grades, None]
    scores = params[:, n_grades:-1, None] - 0.5 * off**2 * 2.0 * np.exp(-params[:, -1])[:, None, None]
    return np.ascontiguousarray(softmax(scores, axis=1))


def pairwise_informativeness(params: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much each assessor's grades of two documents tell of their difference, in nats per judgment (eq. 11)."""
    parts = [params[start : start + CHUNK] for start in range(0, len(params), CHUNK)]
    return np.concatenate([pair_information(PRIOR, pair_curves(some))[0] for some in parts])


def pair_curves(params: NDArray[np.float64]) -> NDArray[np.float64]:
    """p(g | g', difference) of assessors who judge both documents, on nodes of the difference, which is N(0, 2)."""
    # (n_assessors, 2 n_grades + 1) -> (n_assessors, n_grades, n_grades, n_nodes) by g, g'
    n_grades = params.shape[1] // 2
    mu, scale = params[:, :n_grades], np.exp(-params[:, -1])[:, None, None, None]
    off = np.sqrt(2.0) * NODES - (mu[:, :, None] - mu[:, None, :])[..., None]
    return softmax(params[:, n_grades:-1, None, None] - 0.5 * off**2 * scale, axis=1)


def expert_lines(n_grades: int) -> NDArray[np.float64]:
    """An expert as one more assessor with steep fixed curves, as slopes and offsets of the scores."""
    # (2, n_grades)
    if n_grades < 2:
        return np.zeros((2, n_grades))
    centres = np.linspace(-1.5, 1.5, n_grades)
    variance = (0.25 * (centres[1] - centres[0])) ** 2
    return np.stack([centres / variance, -0.5 * centres**2 / variance])


def query_levels(shard: Shard, local: Arrays, params: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far each item's query as a whole lies from the middle of the line: standard normal, and the judgments."""
    # (n_items,); P(grade | place) = softmax of lines in the place: Newton's steps climb a concave posterior
    n_queries, n_grades = len(local["query_items"]) - 1, shard.n_grades
    query = np.repeat(np.arange(n_queries), np.diff(local["query_items"]))
    steep = 2.0 * np.exp(-params[:, -1:])  # as in answer_curves
    slopes = (params[:, :n_grades] * steep)[shard.assessor]
    offsets = params[:, n_grades:-1] - 0.5 * params[:, :n_grades] ** 2 * steep
    offsets = offsets[shard.assessor] + slopes * local["relevance"][local["item"], None]
    chosen = np.take_along_axis(slopes, shard.grade.astype(np.int64)[:, None], axis=1)[:, 0]
    of, level = query[local["item"]], np.zeros(n_queries)
    for _ in range(LEVEL_STEPS):
        shares = softmax(slopes * level[of, None] + offsets, axis=1)
        mean = (shares * slopes).sum(axis=1)
        variance = (shares * (slopes - mean[:, None]) ** 2).sum(axis=1)
        slope = np.bincount(of, chosen - mean, minlength=n_queries) - level
        step = np.clip(slope / (1.0 + np.bincount(of, variance, minlength=n_queries)), -0.5, 0.5)
        level += step
        if np.abs(step).max() < ENOUGH:
            break
    return level[query]


def standardized(values: NDArray[np.float64], bounds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Values within each stretch as standard deviations from its mean.

    >>> standardized(np.array([0.0, 2.0, 5.0]), np.array([0, 2, 3])).tolist()
    [-1.0, 1.0, 0.0]
    """
    sizes = np.diff(bounds)
    off = values - np.repeat(np.add.reduceat(values, bounds[:-1]) / sizes, sizes)
    sd = np.sqrt(np.add.reduceat(off**2, bounds[:-1]) / sizes)
    scaled: NDArray[np.float64] = off / np.repeat(np.where(sd > 0, sd, 1.0), sizes)
    return scaled
