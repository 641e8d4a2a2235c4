"""GDA-PW: grades as Gaussians over relevance, fitted to pairs of documents (Metrikov, Pavlu, Aslam 2015, eq. 8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from crowdrank._folders import POSITIVE_RANGE, PROBABILITY_RANGE, require_range
from crowdrank._typing import Arrays, Floats, Grades
from crowdrank.consensus import gda_pairwise_documents, gda_pairwise_likelihood, latent
from crowdrank.consensus.careful_assessor import careful_curves
from crowdrank.consensus.curves import GaussianCurves
from crowdrank.consensus.families import FamilyAggregator
from crowdrank.consensus.feature_prior import (
    INITIAL_WEIGHT,
    MAX_WEIGHT,
    FeatureAggregator,
    LabelEstimates,
    log_node_priors,
    prior_moments,
)
from crowdrank.consensus.gda_pairwise_assessors import (
    PRIOR_SD,
    QUADRATURE,
    answer_curves,
    empty_step_history,
    extend_step_history,
    extrapolated_step,
    grade_moments,
    in_grade_order,
    initial_params,
    limit_steps,
    pairwise_informativeness,
    prior_mean,
    standardized,
    standardized_params,
    step_lengths,
)
from crowdrank.consensus.gda_pairwise_documents import (
    document_priors,
    label_likelihood,
    level_variance,
    posterior_variance,
    query_levels,
    residual_moments,
    residual_sums,
    score_products,
)
from crowdrank.consensus.grade_rules import DEFAULT_RULE
from crowdrank.consensus.latent import NODES, PRIOR, count_answers, normal_quantile, softmax
from crowdrank.consensus.model import EMAggregator, Gaussians, Inputs, States, ThetaArray
from crowdrank.consensus.result import restrict_to_gold
from crowdrank.constraints import MAX_INTEGER, Constraints, Flag, Number, OneOf
from crowdrank.engine.passes import Passes
from crowdrank.engine.shards import Shard
from crowdrank.judgments.columns import PRIOR_RELEVANCE
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.table import Judgments

LOG_EPS_SD = 0.4
"""Prior standard deviation of log difficulty."""
MAX_SETTLED_STEP = 0.03
"""Maximum median length of the last steps of assessors' parameters for a stop, in prior standard deviations."""
MODE_STEPS, RELEVANCE_STEPS = 100, 30
"""Maximum number of Newton steps after the last iteration: for the mode of the posterior of all pairs (`mode`), and for
the relevance of a document given its own judgments (`relevance`)."""
UNIT_STEPS = 2
"""Number of Newton steps of relevance in each pass that learns the unit."""
UNIT_PASSES, UNIT_TOL = 10, 0.001
"""Maximum number of passes that learn the unit of relevance, and the relative change that ends them."""
INITIAL_UNIT = 2.0
"""Initial unit of relevance, before it is learned."""
MAX_UNIT_ACCELERATION = 4.0
"""Maximum factor by which a Newton step of the log unit exceeds a step of the fixed-point iteration."""
UNIT_DOCUMENTS = 10.0
"""Number of pseudo-documents whose spread is the previous unit, which damp the change of the unit."""


class GDAPairwise(FamilyAggregator, FeatureAggregator):
    """Gaussians per assessor and grade, fitted to pairs of judgments on two documents of a query.

    The model is p(g | g', r - r') ~ alpha_g N(r - r'; mu_g - mu'_g', v_g), v_g = sqrt(w_g w'_g' eps eps') (eq. 7).
    Every judgment is explained by each of its partners; these terms have the judgment's weight in total (eq. 8). The
    assessors' parameters maximize the posterior, with fixed normal priors; the uncertainty of relevance is integrated
    out to the second order.

    In eq. 8 a document also serves to explain other documents, which draws documents together at the ends of the scale
    and counts judgments twice. `relevance` is therefore the posterior mode of a document given its own judgments, each
    explained by its partners. Pairs determine neither the origin nor the unit of relevance. The origin is the mean of
    the documents of a query, unless the query has expert grades, which then set it. The unit is learned such that
    relevance has variance 1 within queries. `sd`, `lower` and `upper` are those of the difference from the mean of the
    query, with a normal approximation of the posterior at its mode. The only document of a query has relevance 0 and
    sd 1.

    Only documents of one query can be compared by `relevance`. `grade` and `p0..` are those of a typical careful
    assessor, integrated over the posterior; for them the level of a query is estimated from its grades. Assessors may
    use different scales; grades are shown on the one with the most grades.

    Groups of up to ten times `partners` judgments have all their pairs (a group is a query, or an assessor's judgments
    in a query). In larger ones partners depend on `random_state`, the number of the query and the order of judgments.

    GDA-PW, the likelihood of document pairs (eq. 8) of Metrikov, Pavlu, Aslam 2015: Aggregation of Crowdsourced Ordinal
    Assessments and Integration with Learning to Rank: A Latent Trait Model (CIKM).

    Args:
        n_iter: maximum number of iterations.
        tol: the loop ends when the mean log posterior per judgment changes by less, and half of the assessors take
            short steps.
        partners: number of partners of a judgment in a large group.
        pairs: `all` pairs of judgments on two documents, or only those of the `same-assessor`.
        estimation: `marginal` as described above, or `joint`: maximize eq. 8 over assessors and documents together, as
            in the paper. `relevance` is then its mode, and intervals have the curvature there (Laplace).
        ordinal: force mu_0 <= mu_1 <= ...; a reversed assessor then counts as a random one.
        difficulty: estimate a difficulty eps of each document (column `difficulty`, higher is harder).
        tied_variance: one width w for all grades of an assessor (the paper's choice), or one for each grade.
        families: assessors with correlated errors: by the family `column` of the judgments, or `none`; `auto` uses the
            column and warns of groups found in the answers, `found` uses these groups. The n judgments of a family on
            a document count n / (1 + (n - 1) family_correlation).
        family_correlation: correlation of the errors of a family, from 0 (independent) to 1 (copies); with levels of
            families, one number per level, coarsest first.
        random_state: seed of the partners.
        unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`) or left out (`drop`).
        interval: level of `lower` and `upper`, of a normal posterior.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "a", "a", "b", "b", "b"], "assessor": ["x", "y", "z"] * 2,
    ...                       "grade": [2, 2, 1, 0, 0, 1]})
    >>> model = GDAPairwise().fit(votes)
    >>> model.consensus_.documents.set_index("document")["relevance"].idxmax()
    'a'
    """

    locality: ClassVar[str] = "query"
    on_a_line: ClassVar[bool] = True
    feature_iterations: ClassVar[int] = 1  # features do not change the parameters of assessors
    takes: ClassVar[Inputs] = ("scales",)
    theta_arrays: ClassVar[Mapping[str, ThetaArray]] = {
        "params": ThetaArray(by_assessor=True),
        "n_grades": ThetaArray(by_assessor=True),
        "recent": ThetaArray(by_assessor=True),
        "unit": ThetaArray(bounds=POSITIVE_RANGE),
        "learn_unit": ThetaArray(bounds=(0.0, 2.0)),
        "typical": ThetaArray(bounds=PROBABILITY_RANGE),
        "feature_weight": ThetaArray(bounds=PROBABILITY_RANGE),
    }
    _parameter_constraints: ClassVar[Constraints] = {
        "partners": [Number(1, MAX_INTEGER, integer=True)],
        "pairs": [OneOf("all", "same-assessor")],
        "estimation": [OneOf("marginal", "joint")],
        "ordinal": [Flag()],
        "difficulty": [Flag()],
        "tied_variance": [Flag()],
        "random_state": [Number(0, MAX_INTEGER, integer=True)],
    }

    def __init__(
        self,
        n_iter: int = 200,
        tol: float = 7e-5,
        *,
        partners: int = 20,
        pairs: str = "all",
        estimation: str = "marginal",
        ordinal: bool = False,
        difficulty: bool = False,
        tied_variance: bool = True,
        families: str = "column",
        family_correlation: float | tuple[float, ...] = 1.0,
        random_state: int = 0,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
        grade_by: str = DEFAULT_RULE,
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol
        self.partners = partners
        self.pairs = pairs
        self.estimation = estimation
        self.ordinal = ordinal
        self.difficulty = difficulty
        self.tied_variance = tied_variance
        self.families = families
        self.family_correlation = family_correlation
        self.random_state = random_state
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval
        self.grade_by = grade_by

    def _start(self, shard: Shard) -> Arrays:
        """Return the local state: initial relevance from mean grades, and the groups of judgments that are paired."""
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
        mean = standardized(np.bincount(item, share, minlength=shard.n_items) / np.maximum(sizes, 1), query_items)
        weight = self._family_weights(shard, shard.correlations)
        return {
            "mode": mean,
            "relevance": INITIAL_UNIT * mean,
            "log_eps": np.zeros(shard.n_items),
            "variance": np.zeros(shard.n_items),
            "information": np.zeros(shard.n_items),
            "precision": np.ones(shard.n_items),
            "weight": np.ones(len(item)) if weight is None else weight,
            "item": item,
            "order": order,
            "groups": np.append(groups, len(item)),
            "query_groups": np.append(np.searchsorted(groups, shard.offsets[first]), len(groups)),
            "query_items": query_items,
        }

    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Update the documents; return the derivatives by the assessors' parameters, or the spread of relevance.

        The spread is returned in the passes after the iterations, which learn the unit of relevance.
        """
        n_params = 3 * shard.n_grades
        slope, curve = np.zeros((shard.n_assessors, n_params)), np.zeros((shard.n_assessors, n_params, n_params))
        judgments = np.bincount(shard.assessor, local["weight"], minlength=shard.n_assessors)
        statistics = {"slope": slope, "curve": curve, "judgments": judgments}
        if theta is None:
            grades = latent.count_expert_grades(shard, shard.n_grades)["expert_grades"]
            return local, {
                **statistics,
                **count_answers(shard),
                "moments": grade_moments(shard, local),
                "expert_grades": grades,
                **({} if shard.score is None else {"score_products": np.zeros(3)}),
            }
        if not theta["learn_unit"][0]:
            local, value = self._sweep(shard, local, theta, 1, 0, slope, curve)
            return local, {**statistics, "value": np.array([value])}
        mode_steps = MODE_STEPS if theta["learn_unit"][0] == 1 else 0  # the unit does not change the modes
        local, _ = self._sweep(shard, local, theta, mode_steps, UNIT_STEPS, slope[:0], curve[:0])
        unknown = shard.gold < 0
        shrinkage = local["information"] / (local["precision"] + local["information"])
        shrinkage *= 1 - local["precision"] * level_variance(local)  # relevance is centered within queries
        spread = unknown.sum(), (local["relevance"][unknown] ** 2).sum(), shrinkage[unknown].sum()
        residuals = residual_sums(shard, local, theta["params"])
        statistics = {"judgments": judgments, "spread": np.array(spread, np.float64), "residuals": residuals}
        if shard.score is not None:
            statistics["score_products"] = score_products(shard, local)
        return local, statistics

    def _start_features(self, theta: Arrays, estimates: LabelEstimates) -> Arrays:
        """Return the parameters with an initial correlation of relevance and the score from features."""
        return {**theta, "feature_weight": np.array([estimates.initial_weight()]), "learn_unit": np.zeros(1)}

    def _sweep(
        self,
        shard: Shard,
        local: Arrays,
        theta: Arrays,
        mode_steps: int,
        relevance_steps: int,
        slope: Floats,
        curve: Floats,
    ) -> tuple[Arrays, float]:
        """Return the local state after Newton steps of all documents, and the log likelihood of pairs.

        The derivatives by the assessors' parameters are added to `slope` and `curve` unless they are empty.
        """
        documents = gda_pairwise_documents.DocumentEstimates(
            *(local[name].copy() for name in gda_pairwise_documents.DocumentEstimates._fields)
        )
        value = gda_pairwise_documents.sweep(
            *(local[name] for name in ("order", "item", "groups", "query_groups", "query_items")),
            shard.item_query[local["query_items"][:-1]].astype(np.int64),
            shard.assessor,
            shard.grade,
            local["weight"],
            shard.gold,
            self._kernel_parameters(theta),
            self.partners,
            self.random_state,
            mode_steps,
            0 if self._is_joint else relevance_steps,
            documents,
            slope,
            curve,
        )
        if self._is_joint:
            information = 1 / np.maximum(documents.variance, 1e-300) - documents.precision
            documents = documents._replace(relevance=documents.mode.copy(), information=np.maximum(information, 0.0))
        return local | documents._asdict(), float(value)

    @property
    def _is_joint(self) -> bool:
        return self.estimation == "joint"

    def _kernel_parameters(self, theta: Arrays) -> gda_pairwise_likelihood.Parameters:
        mu, log_alpha, log_width = np.split(theta["params"], 3, axis=1)
        return gda_pairwise_likelihood.Parameters(
            mean=np.ascontiguousarray(mu),
            offset=log_alpha - 0.25 * log_width,
            factor=np.exp(-0.5 * log_width),
            expert=latent.expert_lines(theta["expert_cuts"]),
            unit=float(theta["unit"][0]),
            log_eps_precision=LOG_EPS_SD**-2 if self.difficulty else 0.0,
            uncertain=not self._is_joint,
        )

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """Return the parameters after a Newton step of every assessor, accelerated by previous steps (M-step)."""
        if theta is None:
            return self._initial(statistics)
        params, n_grades = theta["params"], theta["params"].shape[1] // 3
        mean, precision, basis = prior_mean(theta["n_grades"], n_grades), *self._parametrization(n_grades)
        lower = np.tril(statistics["curve"])
        curve = basis.T @ (lower + np.tril(lower, -1).transpose(0, 2, 1)) @ basis + np.diag(precision)
        slope = statistics["slope"] @ basis - precision * ((params - mean) @ np.linalg.pinv(basis).T)
        newton = np.linalg.solve(curve, slope[:, :, None])[:, :, 0] @ basis.T
        covariance = np.linalg.inv(curve) if self.ordinal else None
        step = self._apply_constraints(params + limit_steps(newton), theta, covariance) - params
        extrapolated = limit_steps(extrapolated_step(params, step, theta["recent"]))
        return {
            **theta,
            "params": self._apply_constraints(params + extrapolated, theta, covariance),
            "recent": extend_step_history(theta["recent"], params, step),
        }

    def _apply_constraints(self, params: Floats, theta: Arrays, covariance: Floats | None) -> Floats:
        """Return the parameters with the prior's mean of mu over assessors; in grade order if a covariance is given."""
        n_grades = params.shape[1] // 3
        mean = prior_mean(theta["n_grades"], n_grades)
        if covariance is not None:
            params = in_grade_order(params, self._parametrization(n_grades)[1], covariance, theta["n_grades"])
        present = np.arange(n_grades) < theta["n_grades"][:, None]
        params = params.copy()
        params[:, :n_grades] -= np.where(present, (params - mean)[:, :n_grades][present].mean(), 0.0)
        return params

    def _initial(self, statistics: Arrays) -> Arrays:
        of_scale = (~np.isnan(statistics["used"])).sum(axis=1)
        n_grades = of_scale[statistics["given"].argmax(axis=1)]
        params = initial_params(statistics["moments"], n_grades)
        if self.ordinal:
            basis, size = self._parametrization(params.shape[1] // 3)[1], len(params)
            params = in_grade_order(params, basis, np.tile(np.eye(basis.shape[1]), (size, 1, 1)), n_grades)
        theta = {"params": params, "n_grades": n_grades, "of_scale": of_scale, "residuals": np.array([0.0, 1.0, 0.0])}
        theta |= {"unit": np.array([1.0 if self._is_joint else INITIAL_UNIT]), "learn_unit": np.zeros(1)}
        theta |= {"recent": empty_step_history(params), "expert_cuts": latent.first_cuts(statistics["expert_grades"])}
        if "score_products" in statistics:
            theta["feature_weight"] = np.array([INITIAL_WEIGHT])
        return self._add_typical_curves(theta, statistics)

    def _parametrization(self, n_grades: int) -> tuple[Floats, Floats]:
        """Return prior precisions of the free parameters, and the matrix that maps these to all parameters."""
        basis = np.eye(3 * n_grades)
        if self.tied_variance:
            basis = np.concatenate([basis[:, : 2 * n_grades], basis[:, 2 * n_grades :].sum(axis=1)[:, None]], axis=1)
        sizes = [n_grades, n_grades, basis.shape[1] - 2 * n_grades]
        return np.repeat(PRIOR_SD, sizes) ** -2.0, basis

    def _add_typical_curves(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """Return the parameters with P(grade | node) of a typical careful assessor on the main scale."""
        on_main = theta["n_grades"] == theta["params"].shape[1] // 3
        return {**theta, "typical": careful_curves(statistics["judgments"] * on_main, answer_curves(theta))}

    def _objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        """Return the log posterior of the assessors' parameters per judgment, up to a constant."""
        n_grades = theta["params"].shape[1] // 3
        precision, basis = self._parametrization(n_grades)
        off = (theta["params"] - prior_mean(theta["n_grades"], n_grades)) @ np.linalg.pinv(basis).T
        return (float(statistics["value"][0]) - 0.5 * float((precision * off**2).sum())) / n

    def _is_settled(self, theta: Arrays) -> bool:
        """Return whether the last steps were short; an oscillating objective may hardly change in one iteration."""
        n_params = theta["params"].shape[1]
        return bool(np.median(step_lengths(theta["recent"][:, n_params : 2 * n_params])) < MAX_SETTLED_STEP)

    def _after_iterations(self, passes: Passes, theta: Arrays, statistics: Arrays) -> tuple[Arrays, Arrays]:
        """Return the parameters with the estimated unit of relevance, and the statistics of the last pass."""
        theta = {**theta, "learn_unit": np.ones(1), "recent": empty_step_history(theta["params"])}
        for _ in range(UNIT_PASSES):
            statistics = passes.accumulate(theta)
            if self._is_joint:
                break  # the prior of the modes has set the unit
            unit = float(theta["unit"][0])
            n, squares, shrinkage = statistics["spread"] + UNIT_DOCUMENTS * np.array([1.0, unit**2, 1.0])
            change = np.sqrt(squares / shrinkage) / unit
            # The relative change of this fixed point by the unit is 1 - shrinkage: a Newton step of the log unit.
            change **= min(n / shrinkage, MAX_UNIT_ACCELERATION)
            theta = {**theta, "unit": np.full(1, unit * change), "learn_unit": np.full(1, 2.0)}
            if abs(change - 1) < UNIT_TOL:
                break
        theta = {**theta, "learn_unit": np.ones(1), "residuals": residual_moments(statistics["residuals"])}
        if "score_products" in statistics:
            # Not corrected for the noise of labels: curvatures understate what labels tell, so that the correction
            # would give the features too much weight.
            product, *squares = statistics["score_products"]
            correlation = product / max(np.sqrt(np.prod(squares)), 1e-300)
            theta["feature_weight"] = np.array([np.clip(correlation, 0.0, MAX_WEIGHT)])
        return self._add_typical_curves(theta, statistics), statistics

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """Return the estimates of items given the assessors' parameters, independent of the path of the iterations."""
        mode_steps = 0 if theta["learn_unit"][0] else MODE_STEPS  # passes that learn the unit found the modes
        if self.difficulty:  # the posterior may have several modes: start from the same point
            local, mode_steps = self._start(shard), MODE_STEPS
        nothing = np.empty((0, theta["params"].shape[1]))
        local, _ = self._sweep(shard, local, theta, mode_steps, RELEVANCE_STEPS, nothing, nothing[:, :, None])
        unit = theta["unit"][0]
        level, uncertainty = query_levels(shard, local, theta)
        relevance, variance = local["relevance"] / unit, posterior_variance(local) / unit**2
        rows: Arrays = {}
        if shard.score is not None:
            prior = document_priors(shard, local, theta)
            relevance, variance = prior.combined(*label_likelihood(local, theta))
            rows = {PRIOR_RELEVANCE: prior.mean}
        rows |= self._normal_rows(relevance, variance, level / unit, uncertainty / unit**2, theta)
        restrict_to_gold(rows["p"], shard)
        rows |= self._effective_sizes(shard)
        return {**rows, "difficulty": np.exp(local["log_eps"])} if self.difficulty else rows

    def _item_priors(self, shard: Shard, theta: Arrays) -> Floats:
        """Return log P(node | score) of each item, (n_items, n_nodes); the score comes from features."""
        return log_node_priors(shard, float(theta["feature_weight"][0]), PRIOR, NODES)

    def _predict(self, shard: Shard, theta: Arrays) -> Arrays:
        """Return the estimates of documents without judgments: the prior from features, in an average query."""
        assert shard.score is not None
        mean, variance = prior_moments(shard.score, float(theta["feature_weight"][0]))
        level, uncertainty = np.zeros(len(mean)), np.full(len(mean), theta["residuals"][1] / theta["unit"][0] ** 2)
        rows = {**self._normal_rows(mean, variance, level, uncertainty, theta), PRIOR_RELEVANCE: mean}
        return {**rows, "difficulty": np.ones(len(mean))} if self.difficulty else rows

    def _normal_rows(
        self, relevance: Floats, variance: Floats, level: Floats, level_variance: Floats, theta: Arrays
    ) -> Arrays:
        """Return estimates of items with normal posteriors; P(grade) is that of a typical careful assessor.

        Args:
            relevance: posterior mean, relative to the mean of the query, (n_items,).
            variance: posterior variance, (n_items,).
            level: estimated mean relevance of each item's query, (n_items,).
            level_variance: its variance, (n_items,).
            theta: parameters.

        """
        sd = np.sqrt(variance)
        reach = normal_quantile((1 + self.interval) / 2) * sd
        place, place_sd = relevance + level, np.sqrt(variance + level_variance)
        nodes, weights = QUADRATURE
        shares = sum(
            weight * np.stack([np.interp(place + node * place_sd, NODES, curve) for curve in theta["typical"]], axis=1)
            for node, weight in zip(nodes, weights / weights.sum(), strict=True)
        )
        bounds = {"lower": relevance - reach, "upper": relevance + reach}
        return {"relevance": relevance, "sd": sd, **bounds, "p": np.asarray(shares)}

    def _states(self, theta: Arrays) -> States:
        """Return P(node) and P(grade | node) for documents of average difficulty."""
        return PRIOR, answer_curves(theta)

    def _gaussians(self, theta: Arrays) -> Gaussians:
        """Return mu, w and alpha: as estimated if difficulty is modeled, else of a pair with the average partner."""
        mu, log_alpha, log_width = np.split(standardized_params(theta), 3, axis=1)
        absent = np.arange(mu.shape[1]) >= theta["n_grades"][:, None]
        if self.difficulty:
            mu, width = self._estimated_gaussians(theta)
            alpha = softmax(np.where(absent, -np.inf, log_alpha), axis=1)
            return mu, width, np.where(absent, np.nan, alpha)
        residual, _, log_factor = theta["residuals"]
        mu = mu + residual / theta["unit"][0]
        precision = theta["unit"][0] * np.exp(log_factor - 0.5 * log_width)
        offset = log_alpha - 0.25 * log_width - 0.5 * precision * mu**2
        params = [precision * mu, offset] + [-0.5 * precision] * (not self.tied_variance)
        curves = GaussianCurves(np.ones(1), self.tied_variance, NODES)
        return curves.gaussians(np.concatenate(params, axis=1), absent)

    @staticmethod
    def _estimated_gaussians(theta: Arrays) -> tuple[Floats, Floats]:
        """Return mu and w as estimated, in the unit of relevance; NaN for grades that a scale lacks."""
        mu, _, log_width = np.split(standardized_params(theta), 3, axis=1)
        absent = np.arange(mu.shape[1]) >= theta["n_grades"][:, None]
        return np.where(absent, np.nan, mu), np.where(absent, np.nan, np.exp(log_width))

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """Return means and widths as estimated, separation of the answers, and pairwise informativeness."""
        mu, width = self._estimated_gaussians(theta)
        mean_width = np.exp(np.nanmean(np.log(width), axis=1))
        highest = np.take_along_axis(mu, theta["n_grades"][:, None] - 1, axis=1)[:, 0]
        widths = {} if self.tied_variance else {f"width_{g}": width[:, g] for g in range(width.shape[1])}
        return {
            **{f"mu_{g}": mu[:, g] for g in range(mu.shape[1])},
            "width": mean_width,
            **widths,
            "separation": (highest - mu[:, 0]) / mean_width,
            "pairwise_informativeness": pairwise_informativeness(standardized_params(theta)),
        }

    def _check_theta(self, theta: Arrays, example: Arrays, n_assessors: int) -> None:
        """Raise ValueError unless parameters are valid; numbers of grades are checked, too."""
        super()._check_theta(theta, example, n_assessors)
        for name in ("n_grades", "of_scale"):
            require_range(name, theta[name], 2, theta["params"].shape[1] // 3)
        require_range("residuals", theta["residuals"][1:2], 0, np.inf)

    def _new_assessors(self, theta: Arrays, name: str, scale_of: Grades) -> Any:
        """Return rows of theta[name] for new assessors: at the prior mean, without previous steps."""
        n_grades = theta["of_scale"][scale_of]
        mean = prior_mean(n_grades, theta["params"].shape[1] // 3)
        return {"n_grades": n_grades, "params": mean, "recent": empty_step_history(mean)}[name]

    def _start_from(
        self, init: EMAggregator, table: Judgments, gold: Gold | None, preferences: Preferences | None = None
    ) -> Arrays | None:
        """Return the parameters of a fitted model to start from, or None if they do not fit these judgments."""
        theta = super()._start_from(init, table, gold, preferences)
        return None if theta is None else {**theta, "learn_unit": np.zeros(1)}
