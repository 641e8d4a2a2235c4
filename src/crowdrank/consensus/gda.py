"""GDA: each grade of each assessor is a Gaussian over relevance (Metrikov, Pavlu and Aslam 2015)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._folders import MAX_SAVED_FLOAT, PROBABILITY_RANGE, require_range
from crowdrank._typing import Arrays, Booleans, Floats, Grades, Integers
from crowdrank.consensus import latent
from crowdrank.consensus.careful_assessor import careful_curves, learn_careful_curves
from crowdrank.consensus.curves import GaussianCurves
from crowdrank.consensus.e_step import expectation_step, expected_counts, relative_likelihood
from crowdrank.consensus.families import FamilyAggregator, assessor_weights, prior_weights
from crowdrank.consensus.feature_prior import (
    INITIAL_WEIGHT,
    FeatureAggregator,
    LabelEstimates,
    learn_weight,
    log_node_priors,
    prior_moments,
    sum_score_products,
)
from crowdrank.consensus.grade_rules import DEFAULT_RULE
from crowdrank.consensus.latent import (
    DIFFICULTIES,
    N_NODES,
    NODES,
    PRIOR_DOCUMENTS,
    by_difficulty,
    count_answers,
    document_estimates,
    example_on_nodes,
    mode_weights,
    node_prior,
    node_statistics,
    refined_nodes,
    relevance_moments,
    states_prior,
)
from crowdrank.consensus.model import EMAggregator, Gaussians, Inputs, States, ThetaArray
from crowdrank.consensus.preference_assessors import (
    MAX_LOG,
    MIN_SD,
    continued_assessors,
    initial_assessors,
    preference_columns,
    update_assessors,
)
from crowdrank.consensus.preference_posterior import count_preferences, joint_posterior
from crowdrank.consensus.result import restrict_to_gold
from crowdrank.constraints import Constraints, Flag, OneOf
from crowdrank.engine.passes import Passes
from crowdrank.engine.shards import Shard
from crowdrank.errors import Fix, UsageError
from crowdrank.judgments.columns import PRIOR_RELEVANCE
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.joined import JoinedJudgments
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk.joined_shards import JoinedShards

UNJUDGEABLE_SHARE = 0.05
"""Initial share of documents that cannot be judged."""
GOLD_STEPS = 20
"""Number of initial Newton steps on expert-graded documents, so that a crowd that reverses the scale is recognized."""


class GDA(FamilyAggregator, FeatureAggregator):
    """Gaussian model of assessors: P(grade g | relevance r) is proportional to alpha_g N(r; mu_g, w_g eps).

    This is the likelihood of single documents (eq. 1 of the paper). Relevance has the prior N(0, 1) and is integrated
    out on a grid of nodes. The parameters of assessors have a common normal prior whose mean and covariance are learned
    (empirical Bayes): an assessor with few judgments is shrunk towards the crowd, and a random one towards flat curves.

    `fit` takes preferences between two documents besides judgments, or alone: P(answer) is an ordered logit of
    s (r_left - r_right) + o, with the sharpness s, the position bias o and the cut points of each assessor.

    `relevance` is in standard deviations from the mean document. `grade` and `p0..` are the grades of a typical careful
    assessor. Assessors may use different scales; each scale has its own prior, and grades are shown on the scale with
    the most grades. :meth:`grade_gaussians` returns mu, w and alpha of each assessor.

    GDA, the likelihood of documents (eq. 2) of Metrikov, Pavlu, Aslam 2015: Aggregation of Crowdsourced Ordinal
    Assessments and Integration with Learning to Rank: A Latent Trait Model (CIKM).

    Args:
        n_iter: maximum number of iterations.
        tol: the fit stops if the mean log likelihood per judgment changes by less than this.
        estimation: `marginal`, or `joint`: maximize over relevance and parameters together, with a fixed prior (as in
            the paper; overconfident for assessors with few judgments).
        ordinal: higher grades never become less likely relative to lower ones as relevance rises, so that a reversed
            assessor counts as a random one. With one width per assessor this means mu_0 <= mu_1 <= ...; with a width
            per grade it holds within 3 standard deviations of relevance, which includes the order of the means there.
        difficulty: each document has a difficulty eps, integrated out on a grid; the column `difficulty` has its mean
            (higher is harder).
        tied_variance: one width w for all grades of an assessor (as in the paper) instead of one per grade.
        families: groups of assessors who make the same errors: those of the family `column` of the judgments, or
            `none`; `auto` uses the column and warns of groups that it finds in the answers; `found` uses these groups
            with their estimated correlations in place of the column.
        family_correlation: correlation of the errors in a family, from 0 (independent) to 1 (copies). n judgments of a
            family on a document count as n / (1 + (n - 1) family_correlation). For prompts of one language model 1
            ranks best; for the crowd of one vendor, 0.25 or 0.5 gives better grades. With levels of families, one
            number per level, coarsest first; a single one is that of the finest level, and each coarser level has half.
        unjudgeable_as: how to use 'cannot judge' answers: as the `lowest` grade, not at all (`drop`), or as one more
            answer (`model`). With `model`, a document either has a relevance or cannot be judged and ranks low.
        interval: level of the interval from `lower` to `upper`.
        grade_by: rule for the grade: `median`, `mode` or `mean` of P(grade).

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "a", "b", "b", "b"], "assessor": ["x", "y", "z"] * 2,
    ...                       "grade": [2, 2, 1, 0, 0, 1]})
    >>> model = GDA().fit(votes)
    >>> model.consensus_.documents.set_index("document")["relevance"].idxmax()
    'a'
    """

    on_a_line: ClassVar[bool] = True
    takes: ClassVar[Inputs] = ("scales", "soft labels")
    theta_arrays: ClassVar[Mapping[str, ThetaArray]] = {
        "curves": ThetaArray(by_assessor=True),
        "likelihood": ThetaArray(by_assessor=True, bounds=PROBABILITY_RANGE),
        "scale_of": ThetaArray(by_assessor=True),
        "shares": ThetaArray(bounds=PROBABILITY_RANGE),
        "typical": ThetaArray(bounds=PROBABILITY_RANGE),
        "unjudgeable_counts": ThetaArray(bounds=(0.0, MAX_SAVED_FLOAT)),
        "feature_weight": ThetaArray(bounds=PROBABILITY_RANGE),
        "preference_params": ThetaArray(by_assessor=True, bounds=(-MAX_LOG, MAX_LOG)),
        "preference_mean": ThetaArray(bounds=(-MAX_LOG, MAX_LOG)),
        "preference_sd": ThetaArray(bounds=(MIN_SD, MAX_SAVED_FLOAT)),
        "preference_active": ThetaArray(bounds=PROBABILITY_RANGE),
    }
    carries: ClassVar[tuple[str, ...]] = ("mode",)
    _parameter_constraints: ClassVar[Constraints] = {
        "estimation": [OneOf("marginal", "joint")],
        "ordinal": [Flag()],
        "difficulty": [Flag()],
        "tied_variance": [Flag()],
        "unjudgeable_as": [OneOf("lowest", "drop", "model")],
    }

    def __init__(
        self,
        n_iter: int = 500,
        tol: float = 1e-5,
        *,
        estimation: str = "marginal",
        ordinal: bool = False,
        difficulty: bool = False,
        tied_variance: bool = True,
        families: str = "column",
        family_correlation: float | tuple[float, ...] = 1.0,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
        grade_by: str = DEFAULT_RULE,
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol
        self.estimation = estimation
        self.ordinal = ordinal
        self.difficulty = difficulty
        self.tied_variance = tied_variance
        self.families = families
        self.family_correlation = family_correlation
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval
        self.grade_by = grade_by

    def _check_features(self) -> None:
        super()._check_features()
        if self.estimation == "joint":
            problem = "cannot be used by the joint estimation, which has no prior of relevance"
            fix = Fix("use {}", "estimation", "marginal")
            raise UsageError(problem, parameter="features", kind="no-prior", fix=fix)

    def _check_preferences(self) -> None:
        if self.estimation == "joint":
            problem, fix = "cannot be used by the joint estimation", Fix("use {}", "estimation", "marginal")
            raise UsageError(problem, parameter="preferences", kind="no-preferences", fix=fix)

    def _difficulties(self) -> Floats:
        return DIFFICULTIES if self.difficulty else np.ones(1)

    def _curves(self, theta: Arrays) -> GaussianCurves:
        return GaussianCurves(self._difficulties(), self.tied_variance, theta["nodes"])

    def _start_from(
        self, init: EMAggregator, table: Judgments, gold: Gold | None, preferences: Preferences | None = None
    ) -> Arrays | None:
        """Return the parameters of a fitted model, or None if its grades or the kind of its parameters differ."""
        if isinstance(init, GDA) and init._kind != self._kind:
            return None
        theta = super()._start_from(init, table, gold, preferences)
        if theta is not None and self.ordinal:
            curves, scale_of = theta["curves"], theta["scale_of"]
            n_ordered = self._n_grades(theta["missing"])[scale_of]
            step, covariance = np.zeros(curves.shape), theta["covariance"][scale_of]
            theta["curves"] = self._curves(theta).in_grade_order(curves, step, covariance, n_ordered)
        return theta

    def _start_preferences(self, theta: Arrays, prepared: Judgments) -> Arrays:
        """Return the parameters with those of preferences, if the prepared judgments have any, and else without."""
        without = {name: array for name, array in theta.items() if not name.startswith("preference_")}
        if not isinstance(prepared, JoinedJudgments | JoinedShards):
            return without
        return without | continued_assessors(theta, prepared.preference_answers, prepared.has_positions)

    @property
    def _kind(self) -> tuple[bool, ...]:
        return self.difficulty, self.tied_variance, self._models_unjudgeable

    def _n_grades(self, missing: Booleans) -> Integers:
        """Return the number of grades of the scale in each row of `missing`, (n_rows,)."""
        n_grades: Integers = (~missing).sum(axis=1) - self._models_unjudgeable
        return n_grades

    def _start(self, shard: Shard) -> Arrays:
        """Return an empty posterior, and the weights of judgments if families make them differ from 1."""
        weights = self._shard_weights(shard) | self._preference_weights(shard)
        return {"posterior": np.empty((shard.n_items, 0)), **weights}

    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Run the E-step, or count the answers of each assessor if there are no parameters yet."""
        if theta is None:
            weight = local.get("weight")
            used = count_answers(shard, int(self._models_unjudgeable), weight) | assessor_weights(shard, weight)
            scores = {} if shard.score is None else {"score_products": np.zeros(2)}
            counted = latent.count_expert_grades(shard, used["used"].shape[1]) | count_preferences(shard)
            return local, {**used, **counted, **scores}
        n_nodes, gold = len(theta["nodes"]), self._gold(theta)
        prior = theta["shares"] if shard.score is None else self._item_priors(shard, theta)
        table, weight = theta["likelihood"], local.get("weight")
        new, statistics = expectation_step(shard, table, gold, prior, weight, theta["shares"])
        if shard.preferences is not None:
            new, statistics = self._add_preferences(shard, local | new, theta, statistics)
        statistics |= node_statistics(new["posterior"], statistics["state_counts"], n_nodes)
        if shard.score is not None:
            statistics |= sum_score_products(shard, self._line_posterior(new) @ theta["nodes"], local.get("weight"))
        if self.estimation == "joint":
            relative = None if shard.soft is None else relative_likelihood(table, theta["shares"])
            at = mode_weights(new["posterior"], n_nodes)
            statistics["counts"] = expected_counts(shard, at, table.shape[1], relative)
        statistics["expert_states"] = latent.count_states(shard, new["posterior"])
        statistics |= assessor_weights(shard, weight)
        return {**local, **new}, statistics

    def _add_preferences(self, shard: Shard, local: Arrays, theta: Arrays, before: Arrays) -> tuple[Arrays, Arrays]:
        """Return local state and statistics by grades and preferences, given those by grades alone."""
        assert shard.preferences is not None
        on_line = self._split(local).sum(axis=1)
        on_line /= np.maximum(on_line.sum(axis=1, keepdims=True), 1e-300)
        joint = joint_posterior(
            shard.preferences, on_line, theta["nodes"], theta, local["preference_weight"], local.get("mode")
        )
        factor = np.tile(joint.messages, len(self._difficulties()))
        if self._models_unjudgeable:
            factor = np.pad(factor, ((0, 0), (0, 1)))
        shares = theta["shares"]
        own = np.log(np.maximum(shares, 1e-300)) if shard.score is None else self._item_priors(shard, theta)
        prior = own + factor
        new, statistics = expectation_step(
            shard, theta["likelihood"], self._gold(theta), prior, local.get("weight"), shares
        )
        statistics |= joint.statistics | count_preferences(shard)
        statistics["log_likelihood"] = before["log_likelihood"] + statistics.pop("preference_log_likelihood")
        return new | {"mode": joint.mode}, statistics

    def _item_priors(self, shard: Shard, theta: Arrays) -> Floats:
        """Return log P(state | score) of each item, (n_items, n_states); the score comes from features."""
        return log_node_priors(shard, float(theta["feature_weight"][0]), theta["shares"], theta["nodes"])

    def _gold(self, theta: Arrays) -> Floats:
        """Return P(expert grade | state), (n_expert_grades, n_states); near 0 if a document cannot be judged."""
        curves = np.tile(latent.expert_curves(theta["expert_cuts"], theta["nodes"]), len(self._difficulties()))
        return np.pad(curves, ((0, 0), (0, 1)), constant_values=1e-6) if self._models_unjudgeable else curves

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """Return the parameters after a Newton step, with the prior learned from them (M-step)."""
        if theta is None:
            return self._initial(statistics)
        counts = statistics["counts"]
        judgments = counts.sum(axis=(1, 2))
        weights = prior_weights(statistics, judgments)
        new = {**theta, **self._update_curves(theta, counts, weights)}
        new["expert_cuts"] = self._expert_cuts(theta, statistics["expert_states"])
        if self.estimation == "marginal":
            location, scale = relevance_moments(statistics)
            new |= self._standardize(new, location, scale)
            if "preference_counts" in statistics:
                new |= update_assessors(theta, statistics, scale)
            if "score_products" in statistics:
                products = statistics["score_products"]
                new["feature_weight"] = learn_weight(theta["feature_weight"], products, scale, PRIOR_DOCUMENTS)
        new["nodes"] = refined_nodes(statistics)
        unjudgeable = 0.0
        if self._models_unjudgeable:
            from crowdrank.consensus.dawid_skene import learn_pseudo_counts

            before = theta["unjudgeable_counts"]
            new["unjudgeable_counts"] = learn_pseudo_counts(counts[:, :, -1:], before, len(before) - 1, weights=weights)
            unjudgeable = float(statistics["state_counts"][-1] / statistics["state_counts"].sum())
        new["shares"] = self._prior(unjudgeable, len(new["nodes"]))
        return self._with_probabilities(new, statistics.get("assessor_weight", judgments), counts[:, :, -1:])

    def _expert_cuts(self, theta: Arrays, expert_states: Floats) -> Floats:
        by_node = by_difficulty(expert_states, len(theta["nodes"])).sum(axis=1)
        return latent.estimate_cuts(theta["expert_cuts"], by_node, theta["nodes"])

    def _start_features(self, theta: Arrays, estimates: LabelEstimates) -> Arrays:
        """Return the parameters with an initial correlation of relevance and the score from features."""
        return {**theta, "feature_weight": np.array([estimates.initial_weight()])}

    def _update_curves(self, theta: Arrays, counts: Floats, weights: Floats | None = None) -> Arrays:
        """Return the parameters of curves after a Newton step, and the mean and covariance of their prior."""
        scale_of, curves = theta["scale_of"], self._curves(theta)
        missing = theta["missing"][scale_of]
        params, posterior_covariance = curves.step(
            counts[:, :, : len(curves.features)],
            theta["curves"],
            theta["mean"][scale_of],
            np.linalg.inv(theta["covariance"])[scale_of],
            missing,
            self._n_grades(missing) if self.ordinal else None,
        )
        mean, covariance = theta["mean"].copy(), theta["covariance"].copy()
        if self.estimation == "marginal":
            n_answers, n_labels = counts.shape[1], counts.sum(axis=(1, 2))
            fixed = curves.fixed_variances(n_answers, n_answers - self._models_unjudgeable)
            for scale in np.flatnonzero(np.bincount(scale_of)):
                rows = scale_of == scale
                mean[scale], covariance[scale] = curves.learn_prior(
                    params[rows],
                    posterior_covariance[rows],
                    theta["initial_mean"][scale],
                    n_labels[rows],
                    theta["missing"][scale],
                    fixed,
                    weights=None if weights is None else weights[rows],
                )
        return {"curves": params, "mean": mean, "covariance": covariance}

    def _standardize(self, theta: Arrays, location: float, scale: float) -> Arrays:
        """Return curves, their prior and cut points in terms of (relevance - location) / scale."""
        curves, change = self._curves(theta), (location, scale)
        covariance = [
            curves.standardized_covariance(*of_scale, *change)
            for of_scale in zip(theta["covariance"], theta["mean"], strict=True)
        ]
        params, mean = (curves.standardized(theta[name], *change) for name in ("curves", "mean"))
        cuts = (theta["expert_cuts"] - location) / scale
        return {"curves": params, "mean": mean, "covariance": np.stack(covariance), "expert_cuts": cuts}

    def _initial(self, statistics: Arrays) -> Arrays:
        """Return initial parameters: equal for all assessors of a scale, then fitted to expert-graded documents."""
        used, scale_of = statistics["used"], statistics["given"].argmax(axis=1)
        n_scales, n_answers = used.shape
        curves, n_grades = self._curves({"nodes": NODES}), n_answers - self._models_unjudgeable
        mean = np.stack([curves.initial_mean(row, n_grades) for row in used])
        theta = {
            "nodes": NODES,
            "curves": mean[scale_of],
            "scale_of": scale_of,
            "missing": np.isnan(used),
            "mean": mean,
            "covariance": np.tile(np.diag(curves.initial_sd(n_answers) ** 2), (n_scales, 1, 1)),
            "initial_mean": mean,
            "unjudgeable_counts": np.where(np.arange(n_answers) == n_answers - 1, 4.0, 0.5)[:, None],
            "shares": self._prior(UNJUDGEABLE_SHARE, N_NODES),
            "expert_cuts": latent.first_cuts(statistics["expert_grades"]),
        }
        if "score_products" in statistics:
            theta["feature_weight"] = np.array([INITIAL_WEIGHT])
        if "preference_answers" in statistics:
            theta |= initial_assessors(statistics)
        if statistics["expert_grades"].any():
            prior = states_prior(self._difficulties())
            at_states = self._gold(theta)[:, : len(prior)] * prior
            on_gold = statistics["on_gold"] @ (at_states / at_states.sum(axis=1, keepdims=True))
            weights = prior_weights(statistics, statistics["given"].sum(axis=1))
            for _ in range(GOLD_STEPS):
                theta |= self._update_curves(theta, on_gold, weights)
        judgments = statistics.get("assessor_weight", statistics["given"].sum(axis=1))
        return self._with_probabilities(theta, judgments, 0.0)

    def _prior(self, unjudgeable: float, n_nodes: int) -> Floats:
        """Return P(state), (n_states,); the last state is 'cannot be judged' if that is modeled."""
        prior = states_prior(self._difficulties(), n_nodes)
        return np.append(prior * (1 - unjudgeable), unjudgeable) if self._models_unjudgeable else prior

    def _with_probabilities(self, theta: Arrays, judgments: Floats, on_unjudgeable: Floats | float) -> Arrays:
        """Return the parameters with P(answer | state) of each assessor and of a typical careful one added.

        Args:
            theta: the other parameters.
            judgments: number of judgments, (n_assessors,).
            on_unjudgeable: number of answers on documents that cannot be judged, (n_assessors, n_answers, 1).

        """
        missing = theta["missing"][theta["scale_of"]]
        has_main_scale = (~missing).sum(axis=1) == missing.shape[1]
        likelihood = self._likelihood(theta, theta["curves"], missing, theta["unjudgeable_counts"] + on_unjudgeable)
        plain = likelihood[:, :, : len(theta["nodes"])]
        if self.difficulty:
            plain = self._curves(theta).probabilities(theta["curves"], missing, plain=True)
        return {
            **theta,
            "likelihood": likelihood,
            "typical": careful_curves(judgments * has_main_scale if judgments.any() else np.ones(len(plain)), plain),
        }

    def _after_iterations(self, passes: Passes, theta: Arrays, statistics: Arrays) -> tuple[Arrays, Arrays]:
        """Return the parameters with learned curves of a typical careful assessor, and the statistics."""
        counts, missing = statistics["counts"], theta["missing"][theta["scale_of"]]
        if not counts.any():  # preferences alone
            return theta, statistics
        n_grades = missing.shape[1] - self._models_unjudgeable
        plain = self._curves(theta).probabilities(theta["curves"], missing, plain=True)
        n_judgments = statistics.get("assessor_weight", counts.sum(axis=(1, 2))) * ~missing.any(axis=1)
        return {**theta, "typical": learn_careful_curves(n_judgments, plain, counts[:, :n_grades])}, statistics

    def _likelihood(self, theta: Arrays, params: Floats, missing: Booleans, unjudgeable_counts: Floats) -> Floats:
        """Return P(answer | state), (n_assessors, n_answers, n_states)."""
        likelihood = self._curves(theta).probabilities(params, missing)
        if not self._models_unjudgeable:
            return likelihood
        counts = np.where(missing[:, :, None], 0.0, unjudgeable_counts)
        unjudgeable = counts / counts.sum(axis=1, keepdims=True)
        return np.ascontiguousarray(np.concatenate([likelihood, unjudgeable], axis=2))

    def _objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        """Return the mean log likelihood per judgment, or the mean log posterior for joint estimation."""
        if self.estimation == "marginal":
            return float(statistics["log_likelihood"][0]) / n
        log_likelihood = (statistics["counts"] * np.log(np.maximum(theta["likelihood"], 1e-300))).sum()
        away = theta["curves"] - theta["mean"][theta["scale_of"]]
        penalty = 0.5 * (away**2 / np.diagonal(theta["covariance"], axis1=1, axis2=2)[theta["scale_of"]]).sum()
        return float(log_likelihood + statistics["state_counts"] @ np.log(theta["shares"]) - penalty) / n

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """Return the estimates of items: relevance with its interval, and P(grade) of a typical careful assessor."""
        posterior = self._line_posterior(local)
        typical = theta["typical"][: shard.n_grades]
        estimates = document_estimates(posterior, typical / typical.sum(axis=0), self.interval)
        if self.estimation == "joint":
            estimates["relevance"] = mode_weights(posterior, posterior.shape[1]) @ theta["nodes"]
            estimates["lower"] = np.minimum(estimates["lower"], estimates["relevance"])
            estimates["upper"] = np.maximum(estimates["upper"], estimates["relevance"])
        restrict_to_gold(estimates["p"], shard)
        estimates |= self._effective_sizes(shard)
        if shard.score is not None:
            estimates[PRIOR_RELEVANCE] = prior_moments(shard.score, float(theta["feature_weight"][0]))[0]
        if self._models_unjudgeable:
            estimates["unjudgeable"] = local["posterior"][:, -1]
        if self.difficulty:
            shares = self._split(local).sum(axis=2)
            estimates["difficulty"] = shares @ self._difficulties() / np.maximum(shares.sum(axis=1), 1e-300)
        return estimates

    def _split(self, local: Arrays) -> Floats:
        """Return the posterior by difficulty and node, (n_items, n_difficulties, n_nodes)."""
        n_states = local["posterior"].shape[1] - self._models_unjudgeable
        return by_difficulty(local["posterior"], n_states // len(self._difficulties()))

    def _line_posterior(self, local: Arrays) -> Floats:
        """Return P(node) of each item, (n_items, n_nodes); P(cannot be judged) is added to the lowest node."""
        posterior: Floats = self._split(local).sum(axis=1)
        if self._models_unjudgeable:
            posterior[:, 0] += local["posterior"][:, -1]
        return posterior

    def _states(self, theta: Arrays) -> States:
        """Return P(state) and P(answer | state) for difficulty 1."""
        if not self.difficulty:
            return theta["shares"], theta["likelihood"]
        plain = self._curves(theta).probabilities(theta["curves"], theta["missing"][theta["scale_of"]], plain=True)
        prior = node_prior(len(theta["nodes"]))
        if not self._models_unjudgeable:
            return prior, plain
        share = theta["shares"][-1]
        return np.append(prior * (1 - share), share), np.concatenate([plain, theta["likelihood"][:, :, -1:]], axis=2)

    def _all_states(self, theta: Arrays) -> States:
        """Return P(state) and P(answer | state) for all difficulties."""
        return theta["shares"], theta["likelihood"]

    def _gaussians(self, theta: Arrays) -> Gaussians:
        """Return mu, w and alpha of each assessor and grade."""
        missing = theta["missing"][theta["scale_of"]]
        n_grades = missing.shape[1] - self._models_unjudgeable
        not_grades = missing | (np.arange(missing.shape[1]) >= n_grades)
        mu, width, alpha = self._curves(theta).gaussians(theta["curves"], not_grades)
        return mu[:, :n_grades], width[:, :n_grades], alpha[:, :n_grades]

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """Return `separation`, slope of log P(highest) / P(lowest grade), and `shift`, mean grade minus typical."""
        missing = theta["missing"][theta["scale_of"]]
        n_grades = missing.shape[1] - self._models_unjudgeable
        highest = self._n_grades(missing) - 1
        slopes = theta["curves"][:, :n_grades]
        curves = self._curves(theta).probabilities(theta["curves"], missing, plain=True)[:, :n_grades]
        expected = np.einsum("g,agm->am", np.arange(n_grades), curves) / curves.sum(axis=1)
        typical = theta["typical"][:n_grades]
        expected_typical = np.arange(n_grades) @ typical / typical.sum(axis=0)
        # For assessors on a shorter scale, the shift is in grades of that scale.
        relative_length = np.maximum(highest, 1) / max(n_grades - 1, 1)
        columns = {
            "separation": slopes[np.arange(len(slopes)), highest] - slopes[:, 0],
            "shift": (expected - expected_typical * relative_length[:, None]) @ node_prior(len(theta["nodes"])),
        }
        if "preference_answers" not in statistics:
            return columns
        has_grades = statistics["assessor_weight"] > 0
        columns = {name: np.where(has_grades, values, np.nan) for name, values in columns.items()}
        return columns | preference_columns(theta, statistics["preference_answers"])

    def _check_theta(self, theta: Arrays, example: Arrays, n_assessors: int) -> None:
        """Raise an error unless parameters are valid; scale codes and covariances are checked, too."""
        super()._check_theta(theta, example_on_nodes(example, theta.get("nodes", NODES)), n_assessors)
        require_range("scale_of", theta["scale_of"], 0, len(theta["mean"]) - 1)
        np.linalg.cholesky(theta["covariance"])  # raises LinAlgError

    def _new_assessors(self, theta: Arrays, name: str, scale_of: Grades) -> NDArray[Any]:
        """Return rows of theta[name] for new assessors, at the prior mean."""
        if name == "scale_of":
            return scale_of
        if name == "preference_params":
            return np.tile(theta["preference_mean"], (len(scale_of), 1))
        params = theta["mean"][scale_of]
        if name == "curves":
            return params
        return self._likelihood(theta, params, theta["missing"][scale_of], theta["unjudgeable_counts"])
