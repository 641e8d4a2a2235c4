"""GDA-PW: grades as Gaussians on the line of relevance, by pairs of documents (Metrikov, Pavlu, Aslam 2015, eq. 8)."""

from __future__ import annotations

from statistics import NormalDist
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank.consensus import pairwise_kernels
from crowdrank.consensus.base import Aggregator
from crowdrank.consensus.curves import careful_curves
from crowdrank.consensus.latent import NODES, PRIOR, softmax
from crowdrank.consensus.result import modal_grades
from crowdrank.engine.base import Arrays
from crowdrank.engine.shards import Shard
from crowdrank.errors import UsageError
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
LEVEL_STEPS = 15
"""Newton steps of the queries' levels."""
PAIRS = ("all", "same-assessor")


class GDAPairwise(Aggregator):
    """The chance of a grade given another document's grade and the difference in relevance, for pairs within a query.

    p(g | g', r - r') is proportional to alpha_g N(r - r'; mu_g - mu'_g', sqrt(w w' eps eps')), with one alpha and mu
    per assessor and grade, one w per assessor and one eps per document; every judgment is explained by each of its
    partners, and these explanations have weight 1 in all. Relevance and parameters are those of the highest
    posterior, with normal priors that are fixed. Only differences within a query count: `relevance` compares documents
    of one query, whose mean is about 0. `grade` and `p0..` are what a typical careful assessor would give; for them
    the level of the query is found from its judgments taken one by one.

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
        seed: of the partners.
        unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`) or left out (`drop`).
        interval: the level of `lower` and `upper`, by the normal approximation around the highest posterior.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "a", "b", "b", "b"], "assessor": ["x", "y", "z"] * 2,
    ...                       "grade": [2, 2, 1, 0, 0, 1]})
    >>> model = GDAPairwise().fit(votes)
    >>> model.consensus_.documents.set_index("document")["relevance"].idxmax()
    'a'
    """

    locality: ClassVar[str] = "query"
    learns_prior: ClassVar[bool] = True  # it is fixed, but there it is: without it neither scale nor sign is known
    on_a_line: ClassVar[bool] = True
    assessor_arrays: ClassVar[tuple[str, ...]] = ("params", "base", "step")

    def __init__(
        self,
        n_iter: int = 200,
        tol: float = 1e-5,
        *,
        partners: int = 20,
        pairs: str = "all",
        difficulty: bool = False,
        seed: int = 0,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol
        self.partners = partners
        self.pairs = pairs
        self.difficulty = difficulty
        self.seed = seed
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval

    def start(self, shard: Shard) -> Arrays:
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
        mean = np.bincount(item, shard.grade.astype(float), minlength=shard.n_items) / np.maximum(sizes, 1)
        return {
            "relevance": standardised(mean, query_items),
            "hardness": np.zeros(shard.n_items),
            "item": item,
            "order": order,
            "groups": np.append(groups, len(item)),
            "query_groups": np.append(np.searchsorted(groups, shard.offsets[first]), len(groups)),
            "query_items": query_items,
        }

    def accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """One Newton step of relevance, then slope and curvature of the assessors' parameters."""
        n_params = 2 * shard.n_grades + 1
        slope, curve = np.zeros((shard.n_assessors, n_params)), np.zeros((shard.n_assessors, n_params, n_params))
        value = 0.0
        if theta is not None:
            local = {**local, "relevance": local["relevance"].copy(), "hardness": local["hardness"].copy()}
            value, _ = self._climb(shard, local, theta["params"], 1, slope, curve)
        given = np.bincount(shard.assessor, minlength=shard.n_assessors).astype(float)
        return local, {"slope": slope, "curve": curve, "value": np.array([value]), "given": given}

    def _climb(
        self,
        shard: Shard,
        local: Arrays,
        params: NDArray[np.float64],
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
            params,
            expert_lines(shard.n_grades),
            LOG_EPS_SD**-2 if self.difficulty else 0.0,
            self.partners,
            self.seed,
            n_steps,
            local["relevance"],
            local["hardness"],
            precision,
            slope,
            curve,
        )
        return float(value), precision

    def maximise(self, theta: Arrays | None, statistics: Arrays) -> Arrays:
        """A Newton step of every assessor's parameters; one that turns out too long is taken back by half."""
        n_assessors, n_params = statistics["slope"].shape
        mean, sd = prior(n_params // 2)
        if theta is None:
            params = np.tile(mean, (n_assessors, 1))
            return self._with_curves(params, params, np.zeros_like(params), -np.inf, 1.0, statistics["given"])
        value, params = self._log_posterior(theta, statistics), theta["params"]
        if value < theta["best"][0] and theta["length"][0] > SHORTEST:
            length = theta["length"][0] / 2
            tried = theta["base"] + length * theta["step"]
            return self._with_curves(tried, theta["base"], theta["step"], theta["best"][0], length, statistics["given"])
        lower = np.tril(statistics["curve"])
        whole = lower + np.tril(lower, -1).transpose(0, 2, 1)
        slope = statistics["slope"] - (params - mean) / sd**2
        step = np.linalg.solve(whole + np.diag(sd**-2), slope[:, :, None])[:, :, 0]
        step /= np.maximum((np.abs(step) / sd).max(axis=1, keepdims=True) / LONGEST, 1.0)
        length = min(1.0, 1.5 * theta["length"][0])
        return self._with_curves(params + length * step, params, step, value, length, statistics["given"])

    @staticmethod
    def _with_curves(
        params: NDArray[np.float64],
        base: NDArray[np.float64],
        step: NDArray[np.float64],
        best: float,
        length: float,
        given: NDArray[np.float64],
    ) -> Arrays:
        """Theta, with the typical curve; all centres moved together leave the likelihood as it is, not the prior."""
        n_grades = params.shape[1] // 2
        params = params.copy()
        params[:, :n_grades] -= (params[:, :n_grades] - prior(n_grades)[0][:n_grades]).mean()
        return {
            "params": params,
            "base": base,
            "step": step,
            "best": np.array([best]),
            "length": np.array([length]),
            "typical": careful_curves(given, answer_curves(params)),
        }

    @staticmethod
    def _log_posterior(theta: Arrays, statistics: Arrays) -> float:
        mean, sd = prior(theta["params"].shape[1] // 2)
        return float(statistics["value"][0]) - 0.5 * float((((theta["params"] - mean) / sd) ** 2).sum())

    def objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        """The pairwise log likelihood and the log priors (but for constants), per judgment."""
        return self._log_posterior(theta, statistics) / n

    def finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """Relevance at its highest posterior given the assessors, however the loop came to them."""
        local = self.start(shard)
        nothing = np.empty((0, theta["params"].shape[1]))
        _, precision = self._climb(shard, local, theta["params"], SETTLED, nothing, nothing[:, :, None])
        relevance, sd = local["relevance"], 1 / np.sqrt(precision)
        reach = NormalDist().inv_cdf((1 + self.interval) / 2) * sd
        place = relevance + query_levels(shard, local, theta["params"])
        shares = np.stack([np.interp(place, NODES, curve) for curve in theta["typical"]], axis=1)
        grade, known = modal_grades(shares), shard.gold >= 0
        grade[known] = shard.gold[known]
        shares[known] = np.eye(shard.n_grades)[shard.gold[known]]
        rows = {"relevance": relevance, "sd": sd, "lower": relevance - reach, "upper": relevance + reach}
        rows |= {"grade": grade, "p": shares}
        return {**rows, "difficulty": np.exp(local["hardness"])} if self.difficulty else rows

    def states(self, theta: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Points of the latent line, for documents of middling difficulty."""
        return PRIOR, answer_curves(theta["params"])

    def assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """Where each grade lies on the line, how wide, and how the answers rise with relevance."""
        params = theta["params"]
        n_grades = params.shape[1] // 2
        width = np.exp(params[:, -1])
        return {
            **{f"mu_{grade}": params[:, grade] for grade in range(n_grades)},
            "width": width,
            "slope": (params[:, n_grades - 1] - params[:, 0]) / width,
        }

    def newcomers(self, theta: Arrays, name: str, scale_of: NDArray[np.int8]) -> NDArray[np.float64]:
        """What the prior says."""
        mean, _ = prior(theta["params"].shape[1] // 2)
        return np.zeros((len(scale_of), len(mean))) if name == "step" else np.tile(mean, (len(scale_of), 1))

    def _adopted(self, init: Aggregator, table: Judgments) -> Arrays | None:
        """Other judgments have another posterior: the search begins anew from the parameters."""
        theta = super()._adopted(init, table)
        if theta is not None:
            theta |= {"base": theta["params"], "best": np.array([-np.inf]), "length": np.ones(1)}
        return theta

    def _check(self) -> None:
        super()._check()
        if self.partners < 1:
            raise UsageError(f"partners is a number from 1 up, not {self.partners}.")
        if self.pairs not in PAIRS:
            raise UsageError(f"pairs is one of {', '.join(PAIRS)}, not '{self.pairs}'.")
        if self.seed < 0:
            raise UsageError(f"seed is a number from 0 up, not {self.seed}.")
        if not isinstance(self.difficulty, bool | np.bool_):
            raise UsageError(f"difficulty is True or False, not {self.difficulty!r}.")
        if self.unjudgeable_as == "model":
            raise UsageError("GDAPairwise takes --unjudgeable-as lowest or drop; it has no model of them.")


def prior(n_grades: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of an assessor's mu, log alpha and log w."""
    # (2 n_grades + 1,) each
    mean = np.concatenate([np.linspace(-1, 1, n_grades), np.zeros(n_grades), [np.log(FIRST_W)]])
    return mean, np.repeat([MU_SD, LOG_ALPHA_SD, LOG_W_SD], [n_grades, n_grades, 1])


def answer_curves(params: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(answer | node) of assessors: (n_assessors, n_answers, n_nodes)."""
    n_grades = params.shape[1] // 2
    off = NODES - params[:, :n_grades, None]
    scores = params[:, n_grades:-1, None] - 0.5 * off**2 * np.exp(-params[:, -1])[:, None, None]
    return np.ascontiguousarray(softmax(scores, axis=1))


def expert_lines(n_grades: int) -> NDArray[np.float64]:
    """An expert as one more assessor with steep fixed curves, as slopes and offsets of the scores."""
    # (2, n_grades)
    centres = np.linspace(-1.5, 1.5, n_grades)
    variance = (0.25 * (centres[1] - centres[0])) ** 2
    return np.stack([centres / variance, -0.5 * centres**2 / variance])


def query_levels(shard: Shard, local: Arrays, params: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far each item's query as a whole lies from the middle of the line: standard normal, and the judgments."""
    # (n_items,); P(grade | place) = softmax of lines in the place: Newton's steps climb a concave posterior
    n_queries, n_grades = len(local["query_items"]) - 1, shard.n_grades
    query = np.repeat(np.arange(n_queries), np.diff(local["query_items"]))
    slopes = (params[:, :n_grades] * np.exp(-params[:, -1:]))[shard.assessor]
    offsets = params[:, n_grades:-1] - 0.5 * params[:, :n_grades] ** 2 * np.exp(-params[:, -1:])
    offsets = offsets[shard.assessor] + slopes * local["relevance"][local["item"], None]
    chosen = np.take_along_axis(slopes, shard.grade.astype(np.int64)[:, None], axis=1)[:, 0]
    of, level = query[local["item"]], np.zeros(n_queries)
    for _ in range(LEVEL_STEPS):
        shares = softmax(slopes * level[of, None] + offsets, axis=1)
        mean = (shares * slopes).sum(axis=1)
        variance = (shares * (slopes - mean[:, None]) ** 2).sum(axis=1)
        slope = np.bincount(of, chosen - mean, minlength=n_queries) - level
        level += np.clip(slope / (1.0 + np.bincount(of, variance, minlength=n_queries)), -0.5, 0.5)
    return level[query]


def standardised(values: NDArray[np.float64], bounds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Values within each stretch as standard deviations from its mean.

    >>> standardised(np.array([0.0, 2.0, 5.0]), np.array([0, 2, 3])).tolist()
    [-1.0, 1.0, 0.0]
    """
    sizes = np.diff(bounds)
    off = values - np.repeat(np.add.reduceat(values, bounds[:-1]) / sizes, sizes)
    sd = np.sqrt(np.add.reduceat(off**2, bounds[:-1]) / sizes)
    scaled: NDArray[np.float64] = off / np.repeat(np.where(sd > 0, sd, 1.0), sizes)
    return scaled
