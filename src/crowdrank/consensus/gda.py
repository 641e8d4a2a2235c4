"""GDA: every grade of every assessor is a Gaussian on the line of relevance (Metrikov, Pavlu, Aslam 2015)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._saved import LARGEST, PROBABILITY, require_range
from crowdrank._typing import Arrays
from crowdrank.consensus import curves as curves_of
from crowdrank.consensus import experts, kernels
from crowdrank.consensus._base import Aggregator, Table
from crowdrank.consensus.curves import answer_curves, careful_curves
from crowdrank.consensus.dawid_skene import learn_pseudo_counts
from crowdrank.consensus.families import family_weights, find_families
from crowdrank.consensus.latent import (
    DIFFICULTIES,
    N_NODES,
    NODES,
    PRIOR,
    expect_nodes,
    expect_voices,
    points,
    rows_on_nodes,
    states_prior,
    use_of_answers,
)
from crowdrank.consensus.result import modal_grades, restrict_to_gold
from crowdrank.constraints import Constraints, Flag, Number, OneOf
from crowdrank.engine.shards import Shard
from crowdrank.judgments import ids
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

UNJUDGEABLE_SHARE = 0.05
"""The share of documents first thought to be such that nobody can judge them."""
UNJUDGEABLE_SLOPE = -0.5
"""The slope first thought of the answer 'cannot judge', where a document could be judged."""
GOLD_STEPS = 20
"""Newton steps on the gold documents alone, where the rest starts from: a crowd in reverse is seen in time."""


class GDA(Aggregator):
    """P(grade g | relevance r) is proportional to alpha_g N(r; mu_g, w_g eps): Gaussians per assessor and grade.

    This is the paper's likelihood of single documents (eq. 1), as a softmax of lines (or parabolas) in r. Relevance is
    integrated out on nodes, and the curves of assessors have a common normal prior whose mean and covariance are
    learned (empirical Bayes), so that sparse assessors are drawn to what the crowd does and a random one to no curve at
    all. `relevance` is on a line of its own (standard normal over documents); `grade` and `p0..` are what a typical
    careful assessor would give. Assessors may use different scales; each scale has its own prior, and grades are shown
    on the one with the most grades.

    Assessors of one family (prompts of one language model, copies of one spammer) err together. Their n judgments on a
    document count as n / (1 + (n - 1) family_correlation), so with 1 a family has one voice, however many members.

    Args:
        n_iter, tol: the loop ends after `n_iter` iterations, or when the mean log likelihood per judgment changes by
            less than `tol`.
        estimation: `marginal`, or `joint`: relevance and curves of the highest posterior together, with a fixed prior
            (the paper's way; overconfident where assessors are sparse).
        ordinal: force slopes not to fall from grade to grade; a reversed assessor then counts as a random one.
        difficulty: let every document have an eps of its own, integrated out on a small grid; the column `difficulty`
            then shows its mean, and higher is harder.
        tied_variance: one width w for all grades of an assessor (the paper's choice), or one for each.
        families: who errs together: as the family `column` of the judgments says, found from the correlation of what
            the model leaves unexplained (`auto`), or nobody (`none`).
        family_correlation: how much the errors of a family's members agree, from 0 (independent) to 1 (copies). For
            prompts of one language model 1 ranks best; for a vendor's crowd, whose members err more on their own, a
            half or a quarter gives better grades.
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

    shrinks: ClassVar[bool] = True
    takes_scales: ClassVar[bool] = True
    on_a_line: ClassVar[bool] = True
    on_nodes: ClassVar[bool] = True
    assessor_arrays: ClassVar[tuple[str, ...]] = ("curves", "likelihood", "scale_of")
    theta_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "likelihood": PROBABILITY,
        "shares": PROBABILITY,
        "typical": PROBABILITY,
        "broken": (0.0, LARGEST),
    }
    carries: ClassVar[tuple[str, ...]] = ()
    _parameter_constraints: ClassVar[Constraints] = {
        "estimation": [OneOf("marginal", "joint")],
        "ordinal": [Flag()],
        "difficulty": [Flag()],
        "tied_variance": [Flag()],
        "families": [OneOf("column", "auto", "none")],
        "family_correlation": [Number(0, 1)],
        "unjudgeable_as": [OneOf("lowest", "drop", "model")],
    }

    def __init__(
        self,
        n_iter: int = 100,
        tol: float = 1e-5,
        *,
        estimation: str = "marginal",
        ordinal: bool = False,
        difficulty: bool = False,
        tied_variance: bool = True,
        families: str = "column",
        family_correlation: float = 1.0,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
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

    def _fit(self, table: Any, *rest: Any) -> Self:
        if self.families == "auto":
            # On disk they are looked for in a sample of whole queries.
            seen = table.sample() if isinstance(table, ShardedJudgments) else table
            found = find_families(self._prepare(seen.with_families(None, None)))
            table = _in_families(table, seen.assessors, found)
        return super()._fit(table, *rest)

    def _prepare(self, table: Table) -> Table:
        """The families as told, found or none; as an answer of its own, 'cannot judge' comes after the grades."""
        prepared = super()._prepare(table)
        if self.families == "none":
            prepared = prepared.with_families(None, None)
        if self.families == "auto" and prepared.families is None and hasattr(self, "judgments_"):
            prepared = _in_families(prepared, self.judgments_.assessors, self.judgments_.family_of)
        return prepared.with_unjudgeable_answer() if self._models_unjudgeable else prepared

    @property
    def _models_unjudgeable(self) -> bool:
        return self.unjudgeable_as == "model"

    def _difficulties(self) -> NDArray[np.float64]:
        return DIFFICULTIES if self.difficulty else np.ones(1)

    def _features(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return curves_of.features(self._difficulties(), self.tied_variance)

    def _start(self, shard: Shard) -> Arrays:
        """What each judgment counts where families err together."""
        local = {"posterior": np.empty((shard.n_items, 0))}
        weight = self._voices(shard.offsets, shard.assessor, shard.family)
        return local if weight is None else {**local, "weight": weight}

    def _voices(
        self, offsets: NDArray[np.int64], assessor: NDArray[np.int32], family: NDArray[np.int32]
    ) -> NDArray[np.float64] | None:
        if self.family_correlation == 0 or int(family.max(initial=0)) + 1 == len(family):
            return None  # everybody is alone
        counted: NDArray[np.float64] = family_weights(offsets, assessor, family, self.family_correlation)
        return counted

    def _judgment_weights(self, prepared: Judgments) -> NDArray[np.float64] | None:
        """The voice of each judgment, where families share one."""
        return self._voices(prepared.offsets, prepared.assessor, prepared.family_of)

    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Posteriors on the states and the answers given there; before the first pass, how answers are used."""
        if theta is None:
            used = use_of_answers(shard, more=int(self._models_unjudgeable))
            return local, {**used, **experts.count_answers(shard, used["used"].shape[1])}
        gold = self._gold(theta)
        if "weight" in local:
            new, statistics = expect_voices(shard, local["weight"], theta["likelihood"], gold, theta["shares"])
        else:
            new, statistics = expect_nodes(shard, theta["likelihood"], gold, theta["shares"])
        if self.estimation == "joint":
            statistics["counts"][:] = 0.0
            at = points(new["posterior"], len(self._difficulties()))
            kernels.count_confusions(shard.offsets, shard.assessor, shard.grade, at, statistics["counts"])
        statistics["expert_states"] = experts.count_states(shard, new["posterior"])
        return {**local, **new}, statistics

    def _gold(self, theta: Arrays) -> NDArray[np.float64]:
        """Return P(expert grade | state); experts never answer that a document cannot be judged."""
        curves = np.tile(experts.expert_curves(theta["expert_cuts"], NODES), len(self._difficulties()))
        return np.pad(curves, ((0, 0), (0, 1)), constant_values=1e-6) if self._models_unjudgeable else curves

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """Each assessor's curves by a Newton step, then the prior that the curves of each scale come from."""
        if theta is None:
            return self._initial(statistics)
        counts, missing = statistics["counts"], theta["missing"][theta["scale_of"]]
        learned = self._curves_from(theta, counts)
        broken, shares = theta["broken"], theta["shares"]
        if self._models_unjudgeable:
            broken = learn_pseudo_counts(counts[:, :, -1:], broken, right=len(broken) - 1)
            share = float(statistics["nodes"][-1] / statistics["nodes"].sum())
            shares = np.append(states_prior(self._difficulties()) * (1 - share), share)
        there = counts[:, :, -1:] if self._models_unjudgeable else None
        return {
            **theta,
            **learned,
            "likelihood": self._likelihood(learned["curves"], missing, broken, there),
            "shares": shares,
            "broken": broken,
            "typical": self._typical(learned["curves"], missing, counts.sum(axis=(1, 2))),
            "expert_cuts": self._expert_cuts(theta, statistics["expert_states"]),
        }

    def _expert_cuts(self, theta: Arrays, expert_states: NDArray[np.float64]) -> NDArray[np.float64]:
        n_on_line = len(self._difficulties()) * N_NODES
        relevance = np.tile(NODES, len(self._difficulties()))
        return experts.estimate_cuts(theta["expert_cuts"], expert_states[:, :n_on_line], relevance)

    def _curves_from(self, theta: Arrays, counts: NDArray[np.float64]) -> Arrays:
        """Curves, and their prior, a step nearer to the answers counted at each state."""
        states, sds = self._features()
        scale_of, missing = theta["scale_of"], theta["missing"][theta["scale_of"]]
        curves, spread = curves_of.newton_step(
            counts[:, :, : len(states)],
            theta["curves"],
            states,
            theta["mean"][scale_of],
            np.linalg.inv(theta["covariance"])[scale_of],
            missing,
        )
        if self.ordinal:
            sizes = (~missing).sum(axis=1) - self._models_unjudgeable
            curves = curves_of.in_grade_order(curves, spread, sizes)
        mean, covariance = theta["mean"].copy(), theta["covariance"].copy()
        if self.estimation == "marginal":
            first_variance = np.repeat(sds**2, counts.shape[1])
            for number in np.unique(scale_of):
                of = scale_of == number
                mean[number], covariance[number] = curves_of.learn_prior(
                    curves[of], spread[of], theta["first_mean"][number], first_variance
                )
        return {"curves": curves, "mean": mean, "covariance": covariance}

    def _initial(self, statistics: Arrays) -> Arrays:
        """Everyone alike, by the use of the answers on the scale; then what the answers on gold documents tell."""
        used, scale_of = statistics["used"], statistics["given"].argmax(axis=1)
        n_scales, n_answers = used.shape
        missing, (_, sds) = np.isnan(used), self._features()
        mean = np.stack([self._first_mean(use) for use in used])
        curves = mean[scale_of]
        broken = np.where(np.arange(n_answers) == n_answers - 1, 4.0, 0.5)[:, None]
        prior = states_prior(self._difficulties())
        shares = np.append(prior * (1 - UNJUDGEABLE_SHARE), UNJUDGEABLE_SHARE) if self._models_unjudgeable else prior
        theta = {
            "curves": curves,
            "scale_of": scale_of,
            "missing": missing,
            "mean": mean,
            "covariance": np.tile(np.diag(np.repeat(sds**2, n_answers)), (n_scales, 1, 1)),
            "first_mean": mean,
            "expert_cuts": experts.first_cuts(statistics["expert_grades"]),
        }
        if statistics["expert_grades"].any():
            at_states = self._gold(theta)[:, : len(prior)] * prior
            on_gold = statistics["on_gold"] @ (at_states / at_states.sum(axis=1, keepdims=True))
            for _ in range(GOLD_STEPS):
                theta |= self._curves_from(theta, on_gold)
        return {
            **theta,
            "likelihood": self._likelihood(theta["curves"], missing[scale_of], broken, None),
            "shares": shares,
            "broken": broken,
            "typical": self._typical(theta["curves"], missing[scale_of], statistics["given"].sum(axis=1)),
        }

    def _first_mean(self, used: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the curves of a scale are first thought to be; the answers that it has not (NaN) stay at 0."""
        # (n_answers,) -> (n_features * n_answers,)
        n_features = self._features()[0].shape[1]
        has = ~np.isnan(used)
        first = np.zeros((n_features, len(used)))
        first[:, has] = curves_of.first_curves(used[has], n_features, self.difficulty)
        if self._models_unjudgeable:
            graded = np.flatnonzero(has)[:-1]
            first[0, graded] = curves_of.first_curves(used[graded], n_features, self.difficulty)[0]
            first[0, -1] = UNJUDGEABLE_SLOPE
        return first.ravel()

    def _likelihood(
        self,
        curves: NDArray[np.float64],
        missing: NDArray[np.bool_],
        broken: NDArray[np.float64],
        there: NDArray[np.float64] | None,
    ) -> NDArray[np.float64]:
        """P(answer | state), the last state being a document that cannot be judged, where these are modeled.

        What was answered `there` (n_assessors, n_answers, 1) adds to the pseudo-counts `broken`.
        """
        likelihood = answer_curves(curves, self._features()[0], missing)
        if not self._models_unjudgeable:
            return likelihood
        counted = np.where(missing[:, :, None], 0.0, broken + (0.0 if there is None else there))
        given = counted / counted.sum(axis=1, keepdims=True)
        return np.ascontiguousarray(np.concatenate([likelihood, given], axis=2))

    def _plain(self, curves: NDArray[np.float64], missing: NDArray[np.bool_]) -> NDArray[np.float64]:
        """P(answer | node) for documents of middling difficulty."""
        n_difficulties = len(self._difficulties())
        middle = n_difficulties // 2 * N_NODES
        return answer_curves(curves, self._features()[0][middle : middle + N_NODES], missing)

    def _typical(
        self, curves: NDArray[np.float64], missing: NDArray[np.bool_], judgments: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """P(grade | node) of a typical careful assessor with the main scale."""
        on_main = (~missing).sum(axis=1) == missing.shape[1]
        return careful_curves(judgments * on_main, self._plain(curves, missing))

    def _objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        """The log likelihood per judgment, relevance integrated out; of the joint estimate, the log posterior."""
        if self.estimation == "marginal":
            return float(statistics["log_likelihood"][0]) / n
        counts, at = statistics["counts"], statistics["nodes"]
        gain = (counts * np.log(np.maximum(theta["likelihood"], 1e-300))).sum()
        off = theta["curves"] - theta["mean"][theta["scale_of"]]
        penalty = 0.5 * (off**2 / np.diagonal(theta["covariance"], axis1=1, axis2=2)[theta["scale_of"]]).sum()
        return float(gain + at @ np.log(theta["shares"]) - penalty) / n

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """Relevance and its spread on the latent line; grades as a typical careful assessor would give them."""
        posterior = self._line_posterior(local)
        typical = theta["typical"][: shard.n_grades]
        rows = rows_on_nodes(posterior, typical / typical.sum(axis=0), self.interval)
        if self.estimation == "joint":
            rows["relevance"] = points(posterior, 1) @ NODES
            rows["lower"] = np.minimum(rows["lower"], rows["relevance"])
            rows["upper"] = np.maximum(rows["upper"], rows["relevance"])
        restrict_to_gold(rows["p"], shard)
        rows["grade"] = modal_grades(rows["p"])
        if self._models_unjudgeable:
            rows["unjudgeable"] = local["posterior"][:, -1]
        if self.difficulty:
            shares = self._split(local).sum(axis=2)
            rows["difficulty"] = shares @ self._difficulties() / np.maximum(shares.sum(axis=1), 1e-300)
        return rows

    def _split(self, local: Arrays) -> NDArray[np.float64]:
        """The posterior by difficulty and node: (n_items, n_difficulties, n_nodes)."""
        n_difficulties = len(self._difficulties())
        on_line = local["posterior"][:, : n_difficulties * N_NODES]
        return on_line.reshape(len(on_line), n_difficulties, N_NODES)

    def _line_posterior(self, local: Arrays) -> NDArray[np.float64]:
        """Over all difficulties; what cannot be judged counts as the least relevant there is."""
        posterior: NDArray[np.float64] = self._split(local).sum(axis=1)
        if self._models_unjudgeable:
            posterior[:, 0] += local["posterior"][:, -1]
        return posterior

    def _states(self, theta: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Points of the latent line (for documents of middling difficulty), and the state of what cannot be judged."""
        if not self.difficulty:
            return theta["shares"], theta["likelihood"]
        plain = self._plain(theta["curves"], theta["missing"][theta["scale_of"]])
        if not self._models_unjudgeable:
            return PRIOR, plain
        share = theta["shares"][-1]
        return np.append(PRIOR * (1 - share), share), np.concatenate([plain, theta["likelihood"][:, :, -1:]], axis=2)

    def _all_states(self, theta: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Points of the latent line for every difficulty."""
        return theta["shares"], theta["likelihood"]

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """How the answers rise with relevance, and how many grades above a careful assessor they lie."""
        n_answers = theta["missing"].shape[1]
        n_grades = n_answers - self._models_unjudgeable
        missing = theta["missing"][theta["scale_of"]]
        highest = (~missing[:, :n_grades]).sum(axis=1) - 1
        slopes = theta["curves"][:, :n_grades]
        curves = self._plain(theta["curves"], missing)[:, :n_grades]
        expected = np.einsum("g,agm->am", np.arange(n_grades), curves) / curves.sum(axis=1)
        typical = theta["typical"][:n_grades]
        usual = np.arange(n_grades) @ typical / typical.sum(axis=0)
        # On another scale a grade is another step: there the bias is in steps of the assessor's own.
        steps = np.maximum(highest, 1) / max(n_grades - 1, 1)
        return {
            "slope": slopes[np.arange(len(slopes)), highest] - slopes[:, 0],
            "bias": (expected - usual * steps[:, None]) @ PRIOR,
        }

    def _check_theta(self, theta: Arrays, example: Arrays, n_assessors: int) -> None:
        """Check that scales are in range and covariances positive definite, too."""
        super()._check_theta(theta, example, n_assessors)
        require_range("scale_of", theta["scale_of"], 0, len(theta["mean"]) - 1)
        np.linalg.cholesky(theta["covariance"])  # raises LinAlgError

    def _new_assessors(self, theta: Arrays, name: str, scale_of: NDArray[np.int8]) -> NDArray[Any]:
        """What the prior says."""
        if name == "scale_of":
            return scale_of
        curves = theta["mean"][scale_of]
        if name == "curves":
            return curves
        return self._likelihood(curves, theta["missing"][scale_of], theta["broken"], None)


def _in_families(table: Table, assessors: pa.Array, family: NDArray[np.int32]) -> Table:
    """The judgments with the families (n_assessors,) of those `assessors`; others, and who is alone, have none."""
    place = ids.match(assessors, table.assessors)
    shared = np.bincount(family)[family] > 1
    number = np.where(shared, np.cumsum(np.bincount(family) > 1)[family] - 1, -1)
    of = np.where(place < 0, -1, number[np.maximum(place, 0)]).astype(np.int32)
    names = pa.array([f"family {one + 1}" for one in range(int(number.max(initial=-1)) + 1)], pa.string())
    return table.with_families(names, of)
