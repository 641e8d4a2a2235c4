"""Polytomous Rasch model: assessors have thresholds on the scale of relevance and a common slope (GDA, section 3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from crowdrank._folders import POSITIVE_RANGE, PROBABILITY_RANGE, require_range
from crowdrank._typing import Arrays, Floats, Integers
from crowdrank.consensus import latent
from crowdrank.consensus.careful_assessor import careful_curves
from crowdrank.consensus.curves import assessor_blocks, learn_prior
from crowdrank.consensus.e_step import expectation_step
from crowdrank.consensus.grade_rules import DEFAULT_RULE
from crowdrank.consensus.latent import (
    DIFFICULTIES,
    NODES,
    by_difficulty,
    count_answers,
    document_estimates,
    example_on_nodes,
    node_prior,
    node_statistics,
    refined_nodes,
    relevance_moments,
    softmax,
    states_prior,
)
from crowdrank.consensus.model import EMAggregator, Inputs, ThetaArray
from crowdrank.consensus.result import restrict_to_gold
from crowdrank.constraints import Constraints, Flag
from crowdrank.engine.shards import Shard
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.table import Judgments

MAX_HALVINGS = 12
"""Maximum number of times that a Newton step is halved."""
MAX_OBJECTIVE_DECREASE = 1e-9
"""Maximum decrease of the objective in a Newton step that is accepted as a rounding error."""
UNUSED_THRESHOLD = 1e3
"""Threshold of a grade that the scale of an assessor does not have."""


class Rasch(EMAggregator):
    """Polytomous Rasch model with thresholds per assessor.

    P(grade g | relevance r) is proportional to exp(sum of (r - threshold_h) over h = 1..g). All slopes are 1, so
    assessors differ in how strict they are, not in how reliable. Relevance is normal over documents; its mean and
    variance are learned, and it is reported in standard deviations from the mean document. Relevance is integrated out,
    and thresholds have a normal prior whose mean and covariance are learned (empirical Bayes). Assessors may use
    different scales; each scale has its own prior, and grades are reported on the scale with the most grades. With
    difficulty it is a baseline of GDA (Metrikov, Pavlu, Aslam 2015, section 3.4).

    Args:
        n_iter: maximum number of iterations.
        tol: the fit has converged if the mean log likelihood per judgment changes by less.
        difficulty: divide the exponent by a difficulty of the document, which is integrated out on a small grid; the
            column `difficulty` is its posterior mean, and higher is harder.
        unjudgeable_as: count 'cannot judge' answers as the lowest grade (`lowest`) or leave them out (`drop`).
        interval: level of the credible interval from `lower` to `upper`.
        grade_by: rule for the grade: `median`, `mode` or `mean` of P(grade).

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "a", "b", "b", "b"], "assessor": ["x", "y", "z"] * 2,
    ...                       "grade": [2, 2, 1, 0, 0, 0]})
    >>> model = Rasch().fit(votes)
    >>> model.consensus_.documents.set_index("document")["relevance"].idxmax()
    'a'
    >>> model.consensus_.assessors.set_index("assessor")["threshold_2"].idxmax()  # the strictest
    'z'
    """

    on_a_line: ClassVar[bool] = True
    takes: ClassVar[Inputs] = ("scales", "soft labels")
    theta_arrays: ClassVar[Mapping[str, ThetaArray]] = {
        "thresholds": ThetaArray(by_assessor=True),
        "scale_of": ThetaArray(by_assessor=True),
        "likelihood": ThetaArray(bounds=PROBABILITY_RANGE),
        "shares": ThetaArray(bounds=PROBABILITY_RANGE),
        "typical": ThetaArray(bounds=PROBABILITY_RANGE),
        "sd": ThetaArray(bounds=POSITIVE_RANGE),
    }
    carries: ClassVar[tuple[str, ...]] = ()
    _parameter_constraints: ClassVar[Constraints] = {"difficulty": [Flag()]}

    def __init__(
        self,
        n_iter: int = 500,
        tol: float = 1e-5,
        *,
        difficulty: bool = False,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
        grade_by: str = DEFAULT_RULE,
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol
        self.difficulty = difficulty
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval
        self.grade_by = grade_by

    def _difficulties(self) -> Floats:
        return DIFFICULTIES if self.difficulty else np.ones(1)

    def _start(self, shard: Shard) -> Arrays:
        return {"posterior": np.empty((shard.n_items, 0))}

    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Run the E-step; in the first pass, count the answers."""
        if theta is None:
            grades = latent.count_expert_grades(shard, max(shard.scale_sizes))["expert_grades"]
            return local, {**count_answers(shard), "expert_grades": grades}
        n_nodes = len(theta["nodes"])
        gold = np.tile(latent.expert_curves(theta["expert_cuts"], theta["nodes"]), len(self._difficulties()))
        local, statistics = expectation_step(shard, theta["likelihood"], gold, theta["shares"])
        statistics |= node_statistics(local["posterior"], statistics["state_counts"], n_nodes)
        statistics["expert_states"] = latent.count_states(shard, local["posterior"])
        return local, statistics

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """Update the thresholds by a Newton step, and the distributions of thresholds and relevance."""
        if theta is None:
            return self._initial(statistics)
        counts, scale_of, initial_sd = statistics["counts"], theta["scale_of"], theta["initial_sd"][0]
        origin, sd = theta["origin"][0], theta["sd"][0]
        precision = np.linalg.inv(theta["covariance"])[scale_of]
        relevance = origin + sd * theta["nodes"]
        thresholds, spread = threshold_step(
            counts, theta["thresholds"], relevance, self._difficulties(), theta["mean"][scale_of], precision
        )
        mean, covariance = theta["mean"].copy(), theta["covariance"].copy()
        for scale in np.unique(scale_of):
            rows = scale_of == scale
            mean[scale], covariance[scale] = self._learn_prior(
                thresholds[rows], spread[rows], theta["initial_mean"][scale]
            )
        shift, stretch = relevance_moments(statistics, -origin / sd, (initial_sd**2 + origin**2) / sd**2)
        new = {**theta, "thresholds": thresholds, "mean": mean, "covariance": covariance}
        by_node = by_difficulty(statistics["expert_states"], len(theta["nodes"])).sum(axis=1)
        cuts = latent.estimate_cuts(theta["expert_cuts"], by_node, theta["nodes"])
        new["expert_cuts"] = (cuts - shift) / stretch
        new |= {"origin": np.array([origin + sd * shift]), "sd": np.array([sd * stretch])}
        return self._with_curves(new, refined_nodes(statistics), counts.sum(axis=(1, 2)))

    @staticmethod
    def _learn_prior(thresholds: Floats, spread: Floats, initial_mean: Floats) -> tuple[Floats, Floats]:
        return learn_prior(thresholds, spread, initial_mean, np.ones(thresholds.shape[1]))

    def _initial(self, statistics: Arrays) -> Arrays:
        """Return initial parameters: thresholds by the frequency of grades, the same for all assessors of a scale."""
        log_used, scale_of = np.log(statistics["used"] + 1.0), statistics["given"].argmax(axis=1)
        mean = np.nan_to_num(-np.diff(log_used), nan=UNUSED_THRESHOLD)
        sd = np.array([2.4 / mean.shape[1]])  # the extreme grades are as far apart on every scale
        theta = {
            "thresholds": mean[scale_of],
            "scale_of": scale_of,
            "origin": np.zeros(1),
            "sd": sd,
            "initial_sd": sd,
            "mean": mean,
            "initial_mean": mean,
            "covariance": np.tile(np.eye(mean.shape[1]), (len(mean), 1, 1)),
            "expert_cuts": latent.first_cuts(statistics["expert_grades"]),
        }
        return self._with_curves(theta, NODES, statistics["given"].sum(axis=1))

    def _with_curves(self, theta: Arrays, nodes: Floats, n_judgments: Floats) -> Arrays:
        """Return the parameters with P(answer | state) of each assessor and of a typical careful one added."""
        thresholds, difficulties = theta["thresholds"], self._difficulties()
        relevance = theta["origin"] + theta["sd"] * nodes
        likelihood = threshold_curves(thresholds, relevance, difficulties)
        plain = threshold_curves(thresholds, relevance, np.ones(1)) if self.difficulty else likelihood
        has_main_scale = (thresholds < UNUSED_THRESHOLD).all(axis=1)
        return {
            **theta,
            "nodes": nodes,
            "likelihood": likelihood,
            "shares": states_prior(difficulties, len(nodes)),
            "typical": careful_curves(n_judgments * has_main_scale, plain),
        }

    def _objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        return float(statistics["log_likelihood"][0]) / n

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        estimates = document_estimates(self._line_posterior(local), theta["typical"], self.interval)
        restrict_to_gold(estimates["p"], shard)
        if self.difficulty:
            estimates["difficulty"] = self._split(local).sum(axis=2) @ DIFFICULTIES
        return estimates

    def _split(self, local: Arrays) -> Floats:
        return by_difficulty(local["posterior"], local["posterior"].shape[1] // len(self._difficulties()))

    def _line_posterior(self, local: Arrays) -> Floats:
        return np.asarray(self._split(local).sum(axis=1))

    def _states(self, theta: Arrays) -> tuple[Floats, Floats]:
        """Return the nodes as states, for documents of difficulty 1."""
        relevance = theta["origin"] + theta["sd"] * theta["nodes"]
        return node_prior(len(relevance)), threshold_curves(theta["thresholds"], relevance, np.ones(1))

    def _all_states(self, theta: Arrays) -> tuple[Floats, Floats]:
        return theta["shares"], theta["likelihood"]

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """Return the thresholds: the relevance at which each grade is as likely as the one below it."""
        standard = (theta["thresholds"] - theta["origin"]) / theta["sd"]
        standard[theta["thresholds"] >= UNUSED_THRESHOLD] = np.nan
        return {f"threshold_{grade}": column for grade, column in enumerate(standard.T, start=1)}

    def _check_theta(self, theta: Arrays, example: Arrays, n_assessors: int) -> None:
        """Raise ValueError unless the parameters are valid; the grid, scales and covariances are checked, too."""
        super()._check_theta(theta, example_on_nodes(example, theta.get("nodes", NODES)), n_assessors)
        require_range("scale_of", theta["scale_of"], 0, len(theta["mean"]) - 1)
        np.linalg.cholesky(theta["covariance"])  # raises LinAlgError

    def _new_assessors(self, theta: Arrays, name: str, scale_of: Any) -> Any:
        """Return the prior mean."""
        return scale_of if name == "scale_of" else theta["mean"][scale_of]

    def _start_from(
        self, init: EMAggregator, table: Judgments, gold: Gold | None, preferences: Preferences | None = None
    ) -> Arrays | None:
        """Return the parameters with new curves, because the other model may have been without difficulties."""
        theta = super()._start_from(init, table, gold, preferences)
        if theta is None:
            return None
        tables = self._with_curves(theta, theta["nodes"], np.ones(len(theta["thresholds"])))
        return {**tables, "typical": theta["typical"]}


def threshold_curves(thresholds: Floats, relevance: Floats, difficulties: Floats) -> Floats:
    """Return P(answer | state), (n_assessors, n_answers, n_states); a state is a difficulty and a node.

    Args:
        thresholds: (n_assessors, n_answers - 1).
        relevance: relevance at each node, (n_nodes,).
        difficulties: (n_difficulties,).

    """
    falls = np.concatenate([np.zeros((len(thresholds), 1)), np.cumsum(thresholds, axis=1)], axis=1)
    rises = np.arange(falls.shape[1])[:, None] * relevance
    scores = [(rises - falls[:, :, None]) / difficulty for difficulty in difficulties]
    return np.ascontiguousarray(softmax(np.concatenate(scores, axis=2), axis=1))


def threshold_step(
    counts: Floats, thresholds: Floats, relevance: Floats, difficulties: Floats, mean: Floats, precision: Floats
) -> tuple[Floats, Floats]:
    """Return the thresholds of assessors after one Newton step, and their Laplace covariances.

    The objective is concave; a step that lowers it is halved.

    Args:
        counts: expected number of answers by state, (n_assessors, n_answers, n_states).
        thresholds: current thresholds, (n_assessors, n_answers - 1).
        relevance: relevance at each node, (n_nodes,).
        difficulties: (n_difficulties,).
        mean: prior mean of the thresholds, (n_assessors, n_answers - 1).
        precision: prior precision, (n_assessors, n_answers - 1, n_answers - 1).

    """
    steps = [
        _threshold_step(counts[block], thresholds[block], relevance, difficulties, mean[block], precision[block])
        for block in assessor_blocks(len(thresholds))
    ]
    return np.concatenate([stepped for stepped, _ in steps]), np.concatenate([spread for _, spread in steps])


def _threshold_step(
    counts: Floats, thresholds: Floats, relevance: Floats, difficulties: Floats, mean: Floats, precision: Floats
) -> tuple[Floats, Floats]:
    def objective(tried: Floats, curves: Floats, rows: Integers) -> Floats:
        away = (tried - mean[rows])[:, :, None]
        penalty = 0.5 * (away.transpose(0, 2, 1) @ precision[rows] @ away)[:, 0, 0]
        return np.asarray((counts[rows] * np.log(np.maximum(curves, 1e-300))).sum(axis=(1, 2)) - penalty)

    curves = threshold_curves(thresholds, relevance, difficulties)
    gradient, curvature = threshold_derivatives(counts, curves, difficulties)
    gradient -= (precision @ (thresholds - mean)[:, :, None])[:, :, 0]
    spread = np.asarray(np.linalg.inv(curvature + precision))
    step = (spread @ gradient[:, :, None])[:, :, 0]
    rows = np.arange(len(thresholds))
    before = objective(thresholds, curves, rows)
    for _ in range(MAX_HALVINGS):
        tried = thresholds[rows] + step[rows]
        after = objective(tried, threshold_curves(tried, relevance, difficulties), rows)
        rows = rows[after < before[rows] - MAX_OBJECTIVE_DECREASE]
        if not len(rows):
            break
        step[rows] /= 2
    return thresholds + step, spread


def threshold_derivatives(counts: Floats, curves: Floats, difficulties: Floats) -> tuple[Floats, Floats]:
    """Return gradient and negative Hessian of the expected log likelihood by the thresholds of each assessor."""
    n_steps, n_nodes = counts.shape[1] - 1, counts.shape[2] // len(difficulties)
    ease = np.repeat(1 / difficulties, n_nodes)
    # Number and probability of answers with at least grade 1, 2, ...
    observed, expected = (np.cumsum(values[:, ::-1], axis=1)[:, -2::-1] for values in (counts, curves))
    total = counts.sum(axis=1)[:, None, :]
    gradient = -(observed - total * expected) @ ease
    weighted = total * expected * ease**2
    step = np.arange(n_steps)
    higher = weighted.sum(axis=2)[:, np.maximum(step[:, None], step)]
    return gradient, higher - weighted @ expected.transpose(0, 2, 1)
