"""GDA: every grade of every assessor is a Gaussian on the line of relevance (Metrikov, Pavlu, Aslam 2015)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank.consensus.base import Aggregator
from crowdrank.consensus.dawid_skene import learn_pseudo_counts
from crowdrank.consensus.information import information
from crowdrank.consensus.latent import N_NODES, NODES, PRIOR, expect_nodes, gold_curves, rows_on_nodes, softmax
from crowdrank.engine.base import Arrays
from crowdrank.engine.shards import Shard
from crowdrank.judgments.table import UNJUDGEABLE, Judgments

FEW = 5.0
"""So many assessors of the first guess stand behind the prior that is learned: a crowd of three learns little."""


def first_variance(n_answers: int) -> NDArray[np.float64]:
    """How much slopes and offsets are first thought to vary among assessors."""
    return np.repeat([0.5**2, 0.7**2], n_answers)


UNJUDGEABLE_SHARE = 0.05
"""The share of documents first thought to be such that nobody can judge them."""


class GDA(Aggregator):
    """P(grade g | relevance r) = softmax_g(slope_g r + offset_g), one set of slopes and offsets per assessor.

    With Gaussians of one width this is the paper's likelihood of single documents (eq. 1). Relevance is integrated
    out on nodes, and the curves of assessors have a common normal prior whose mean and covariance are learned
    (empirical Bayes), so that sparse assessors are drawn to what the crowd does and a random one to no curve at all.
    `relevance` is on a line of its own (standard normal over documents); `grade` and `p0..` are what a typical careful
    assessor would give.

    Args:
        n_iter, tol: the loop ends after `n_iter` iterations, or when the mean log likelihood per judgment changes by
            less than `tol`.
        unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`), left out (`drop`), or as an answer of its
            own (`model`): a document is then either on the line or one that cannot be judged, and these sink.
        interval: the level of `lower` and `upper`.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "a", "b", "b", "b"], "assessor": ["x", "y", "z"] * 2,
    ...                       "grade": [2, 2, 1, 0, 0, 1]})
    >>> model = GDA().fit(votes)
    >>> model.consensus_.documents.set_index("document")["relevance"].idxmax()
    'a'
    """

    learns_prior: ClassVar[bool] = True
    assessor_arrays: ClassVar[tuple[str, ...]] = ("curves", "likelihood")

    def __init__(
        self,
        n_iter: int = 100,
        tol: float = 1e-5,
        *,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval

    def _prepared(self, table: Judgments) -> Judgments:
        """As an answer of its own, 'cannot judge' comes after the grades."""
        prepared = super()._prepared(table)
        if self.unjudgeable_as != "model":
            return prepared
        answer = np.where(prepared.grade == UNJUDGEABLE, len(prepared.scale), prepared.grade)
        return replace(prepared, grade=answer.astype(np.int8))

    @property
    def _models_unjudgeable(self) -> bool:
        return self.unjudgeable_as == "model"

    def start(self, shard: Shard) -> Arrays:
        """Nothing is known."""
        return {"posterior": np.empty((shard.n_items, 0))}

    def accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Posteriors on the nodes and the answers given there; before the first pass, how often each answer is used."""
        if theta is None:
            used = np.bincount(shard.grade, minlength=shard.n_grades + self._models_unjudgeable).astype(float)
            return local, {"used": used, "assessors": np.zeros(shard.n_assessors)}
        return expect_nodes(shard, theta["likelihood"], self._gold(shard.n_grades), theta["shares"])

    def _gold(self, n_grades: int) -> NDArray[np.float64]:
        """The expert's curves, who never says that a document cannot be judged."""
        curves = gold_curves(n_grades)
        return np.pad(curves, ((0, 1), (0, 1)), constant_values=1e-6) if self._models_unjudgeable else curves

    def maximise(self, theta: Arrays | None, statistics: Arrays) -> Arrays:
        """Each assessor's curves by a Newton step, then the prior that the curves come from."""
        if theta is None:
            return self._initial(statistics)
        counts = statistics["counts"]
        precision = np.linalg.inv(theta["covariance"])
        curves, spread = newton_step(counts[:, :, :N_NODES], theta["curves"], theta["mean"], precision)
        mean, covariance = learn_curves(curves, spread, theta["first_mean"])
        broken = theta["broken"]
        likelihood, shares = answer_curves(curves), PRIOR
        if self._models_unjudgeable:
            there = counts[:, :, N_NODES:]
            broken = learn_pseudo_counts(there, broken, right=len(broken) - 1)
            given = (there + broken) / (there + broken).sum(axis=1, keepdims=True)
            likelihood = np.ascontiguousarray(np.concatenate([likelihood, given], axis=2))
            share = float(statistics["nodes"][N_NODES] / statistics["nodes"].sum())
            shares = np.append(PRIOR * (1 - share), share)
        return {
            "curves": curves,
            "mean": mean,
            "covariance": covariance,
            "likelihood": likelihood,
            "shares": shares,
            "broken": broken,
            "typical": careful_curves(counts.sum(axis=(1, 2)), likelihood[:, :, :N_NODES]),
            "first_mean": theta["first_mean"],
        }

    def _initial(self, statistics: Arrays) -> Arrays:
        """Slopes in the order of the grades, or the ranking may come out reversed; offsets by the use of the grades."""
        n_answers, n_assessors = len(statistics["used"]), len(statistics["assessors"])
        n_grades = n_answers - self._models_unjudgeable
        log_used = np.log(statistics["used"] + 1.0)
        slopes = np.append(np.linspace(-1.2, 1.2, n_grades), [-0.5] * (n_answers - n_grades))
        mean = np.concatenate([slopes, log_used - log_used.mean()])
        curves = np.tile(mean, (n_assessors, 1))
        likelihood, shares = answer_curves(curves), PRIOR
        broken = np.where(np.arange(n_answers) == n_grades, 4.0, 0.5)[:, None]
        if self._models_unjudgeable:
            given = np.broadcast_to(broken / broken.sum(), (n_assessors, n_answers, 1))
            likelihood = np.ascontiguousarray(np.concatenate([likelihood, given], axis=2))
            shares = np.append(PRIOR * (1 - UNJUDGEABLE_SHARE), UNJUDGEABLE_SHARE)
        return {
            "curves": curves,
            "mean": mean,
            "covariance": np.diag(first_variance(n_answers)),
            "likelihood": likelihood,
            "shares": shares,
            "broken": broken,
            "typical": answer_curves(mean[None])[0],
            "first_mean": mean,
        }

    def objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        """The log likelihood per judgment, relevance integrated out."""
        return float(statistics["log_likelihood"][0]) / n

    def finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """Relevance and its spread on the latent line; grades as a typical careful assessor would give them."""
        posterior = local["posterior"][:, :N_NODES].copy()
        if self._models_unjudgeable:  # what cannot be judged counts as the least relevant there is
            posterior[:, 0] += local["posterior"][:, N_NODES]
        typical = theta["typical"][: shard.n_grades]
        rows = rows_on_nodes(posterior, typical / typical.sum(axis=0), self.interval)
        known = shard.gold >= 0
        rows["grade"][known] = shard.gold[known]
        rows["p"][known] = np.eye(shard.n_grades)[shard.gold[known]]
        if self._models_unjudgeable:
            rows["unjudgeable"] = local["posterior"][:, N_NODES]
        return rows

    def states(self, theta: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Points of the latent line, and the state of what cannot be judged."""
        return theta["shares"], theta["likelihood"]

    def assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """How the answers rise with relevance, and how many grades above a careful assessor they lie."""
        n_grades = len(theta["mean"]) // 2 - self._models_unjudgeable
        grades = np.arange(n_grades)
        curves = theta["likelihood"][:, :n_grades, :N_NODES]
        expected = np.einsum("g,agm->am", grades, curves) / curves.sum(axis=1)
        typical = theta["typical"][:n_grades]
        usual = grades @ typical / typical.sum(axis=0)
        return {
            "slope": theta["curves"][:, n_grades - 1] - theta["curves"][:, 0],
            "bias": (expected - usual) @ PRIOR,
        }

    def newcomers(self, theta: Arrays, name: str, n: int) -> NDArray[np.float64]:
        """What the prior says."""
        curves = np.repeat(theta["mean"][None], n, axis=0)
        if name == "curves":
            return curves
        likelihood = answer_curves(curves)
        if not self._models_unjudgeable:
            return likelihood
        given = np.broadcast_to(theta["broken"] / theta["broken"].sum(), (*likelihood.shape[:2], 1))
        return np.concatenate([likelihood, given], axis=2)


def careful_curves(judgments: NDArray[np.float64], likelihood: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(answer | node) of a typical careful assessor: the mean over assessors, by judgments and informativeness.

    The square of the informativeness: a crowd may be mostly careless, and its mean curve then hardly rises.
    """
    # judgments (n_assessors,), likelihood (n_assessors, n_answers, n_nodes) -> (n_answers, n_nodes)
    informativeness, _ = information(PRIOR, likelihood)
    weights = judgments * (informativeness**2 + 1e-9)
    curves: NDArray[np.float64] = np.einsum("a,agm->gm", weights / weights.sum(), likelihood)
    return curves


def learn_curves(
    curves: NDArray[np.float64], spread: NDArray[np.float64], first_mean: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and covariance of the assessors' curves, as if a few assessors of the first guess were among them."""
    n, n_answers = len(curves), curves.shape[1] // 2
    mean = (curves.sum(axis=0) + FEW * first_mean) / (n + FEW)
    off = curves - mean
    total = off.T @ off + spread.sum(axis=0) + FEW * np.diag(first_variance(n_answers))
    return mean, total / (n + FEW)


def answer_curves(curves: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(answer | node) from slopes and offsets (n_assessors, 2 n_answers): (n_assessors, n_answers, n_nodes)."""
    n_answers = curves.shape[1] // 2
    slopes, offsets = curves[:, :n_answers, None], curves[:, n_answers:, None]
    return np.ascontiguousarray(softmax(slopes * NODES + offsets, axis=1))


def newton_step(
    counts: NDArray[np.float64],
    curves: NDArray[np.float64],
    mean: NDArray[np.float64],
    precision: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One Newton step of every assessor's penalised multinomial regression on the nodes, and the Laplace covariances.

    The problem is concave; a step that would lower it is halved until it does not.
    """
    # counts (n_assessors, n_answers, n_nodes), curves (n_assessors, 2 n_answers)
    n_answers = counts.shape[1]
    shares = answer_curves(curves)
    total = counts.sum(axis=1)  # (n_assessors, n_nodes)
    residual = counts - total[:, None, :] * shares
    off = curves - mean
    slope = np.concatenate([residual @ NODES, residual.sum(axis=2)], axis=1) - off @ precision
    weighted = shares * total[:, None, :]
    design = np.stack([NODES, np.ones(N_NODES)])  # slope and offset see the node and 1
    curvature = np.empty((len(counts), 2 * n_answers, 2 * n_answers))
    for i in range(2):
        for j in range(2):
            power = design[i] * design[j]
            block = -np.einsum("agm,ahm->agh", weighted * power, shares)
            place = np.arange(n_answers)
            block[:, place, place] += (weighted * power).sum(axis=2)
            curvature[:, i * n_answers : (i + 1) * n_answers, j * n_answers : (j + 1) * n_answers] = block
    curvature += precision
    spread = np.linalg.inv(curvature)
    step = np.einsum("aij,aj->ai", spread, slope)
    before = _penalised(counts, curves, mean, precision)
    size = np.ones(len(curves))
    for _ in range(8):
        tried = curves + size[:, None] * step
        worse = _penalised(counts, tried, mean, precision) < before - 1e-9
        if not worse.any():
            break
        size[worse] /= 2
    return curves + size[:, None] * step, spread


def _penalised(
    counts: NDArray[np.float64],
    curves: NDArray[np.float64],
    mean: NDArray[np.float64],
    precision: NDArray[np.float64],
) -> NDArray[np.float64]:
    off = curves - mean
    penalty = 0.5 * np.einsum("ai,ij,aj->a", off, precision, off)
    gain = np.einsum("agm,agm->a", counts, np.log(np.maximum(answer_curves(curves), 1e-300)))
    value: NDArray[np.float64] = gain - penalty
    return value
