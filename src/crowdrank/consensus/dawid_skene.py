"""Dawid and Skene's model (1979): assessors have confusion matrices, documents a true grade."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crowdrank._folders import MAX_SAVED_FLOAT, PROBABILITY_RANGE
from crowdrank._numba import map_in_order, njit
from crowdrank._typing import Arrays
from crowdrank.consensus.careful_assessor import careful_curves
from crowdrank.consensus.e_step import expectation_step, expected_counts
from crowdrank.consensus.families import FamilyAggregator, assessor_weights, prior_weights
from crowdrank.consensus.feature_prior import FeatureAggregator, GradePrior, LabelEstimates, count_by_score
from crowdrank.consensus.grade_rules import DEFAULT_RULE
from crowdrank.consensus.model import Inputs, States, ThetaArray
from crowdrank.consensus.result import discrete_rows, restrict_to_gold
from crowdrank.consensus.votes import shard_votes
from crowdrank.constraints import Constraints, Number, OneOf, SequenceOf
from crowdrank.engine.passes import Passes, tree_sum
from crowdrank.engine.shards import Shard
from crowdrank.judgments.columns import PRIOR_RELEVANCE

if TYPE_CHECKING:
    import pandas as pd

MIN_PROBABILITY = 1e-10
"""Minimum expected count, probability of a grade and probability of an answer, so that logarithms are finite."""
WEAK_PSEUDO_COUNTS = (1.0, 0.1)
"""Initial pseudo-counts of a learned prior: of the correct answer and of each wrong one."""
ASSESSORS_PER_BLOCK = 1 << 13
"""Number of assessors whose sums are computed together; it does not depend on the number of threads."""


def prior_matrix(prior: float | tuple[float, float], n_grades: int) -> NDArray[np.float64]:
    """Return the matrix of pseudo-counts, (n_grades, n_grades).

    Args:
        prior: pseudo-counts (on, off) the diagonal, or one number for both.
        n_grades: number of grades.

    >>> prior_matrix((1.0, 0.1), 2).tolist()
    [[1.0, 0.1], [0.1, 1.0]]
    """
    diagonal, off = (prior, prior) if isinstance(prior, int | float) else prior
    matrix: NDArray[np.float64] = np.where(np.eye(n_grades, dtype=bool), float(diagonal), float(off))
    return matrix


def learn_pseudo_counts(
    counts: NDArray[np.float64],
    initial: NDArray[np.float64],
    first_correct: int = 0,
    n_jobs: int = 1,
    weights: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return the pseudo-counts of the Dirichlet prior of answers given the true grade, (n_answers, n_true).

    Column c maximizes the likelihood of counts[a, :, c] of all assessors a under a Dirichlet-multinomial distribution
    by Minka's fixed-point iteration (2000). One assessor with the counts `WEAK_PSEUDO_COUNTS` is added, so that a few
    assessors who agree do not make the prior infinitely strong.

    Args:
        counts: expected number of answers by true grade, (n_assessors, n_answers, n_true).
        initial: pseudo-counts to start from, (n_answers, n_true).
        first_correct: correct answer to the first true grade; the next answer is correct for the next true grade.
        n_jobs: number of threads.
        weights: weight of each assessor, (n_assessors,); None: all are 1.

    """
    n_answers, n_true = initial.shape
    counts = np.concatenate(
        [counts, prior_matrix(WEAK_PSEUDO_COUNTS, n_answers)[None, :, first_correct : first_correct + n_true]]
    )
    weights = np.ones(len(counts)) if weights is None else np.append(weights, 1.0)
    totals, pseudo = counts.sum(axis=1), np.clip(initial, 1e-3, 1e3)
    for _ in range(20):
        seen, asked = _dirichlet_sums(counts, totals, weights, pseudo, n_jobs)
        pseudo, change = dirichlet_step(pseudo, seen, asked, 1e-3, 1e3)
        if change < 1e-3:
            break
    return pseudo


def _dirichlet_sums(
    counts: NDArray[np.float64],
    totals: NDArray[np.float64],
    weights: NDArray[np.float64],
    pseudo: NDArray[np.float64],
    n_jobs: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the result of :func:`dirichlet_sums`, computed in blocks of assessors by several threads."""
    n_blocks = -(-len(counts) // ASSESSORS_PER_BLOCK)
    if n_blocks == 1:  # small fits make thousands of these calls
        seen, asked = dirichlet_sums(counts, totals, weights, pseudo)
        return seen, asked

    def block_sums(block: int) -> Arrays:
        some = slice(block * ASSESSORS_PER_BLOCK, (block + 1) * ASSESSORS_PER_BLOCK)
        sums = dirichlet_sums(counts[some], totals[some], weights[some], pseudo)
        return dict(zip(("seen", "asked"), sums, strict=True))

    total = tree_sum(map_in_order(block_sums, range(n_blocks), min(n_jobs, n_blocks)), n_blocks)
    return total["seen"], total["asked"]


class DawidSkene(FamilyAggregator, FeatureAggregator):
    """Dawid-Skene: every assessor has a confusion matrix, estimated together with the true grades by EM.

    Args:
        n_iter: maximum number of iterations.
        tol: smallest change of the mean log posterior per judgment; iterations end below it.
        prior: pseudo-counts of the confusion matrices. `learned` shrinks each row of a matrix to that of the whole
            crowd, the more the more alike the assessors are (empirical Bayes). It ranks better than 0 on TREC RF10.
            Its grades can be worse: on web-5grade they are, unless the nine assessors whose majority is the expert
            grade take part. Or fixed: (on, off) the diagonal, or one number for both. 0 is plain maximum likelihood,
            with a floor of 1e-10 and the rows of each assessor normalized over the grades that the assessor used, as in
            crowd-kit.
        families: assessors who err together: from the family `column` of the judgments, or `none`; `auto` uses the
            column and warns of groups found in the answers, `found` uses these groups.
        family_correlation: correlation rho of the errors within a family: the n judgments of a family on a document
            count as n / (1 + (n - 1) rho). With levels of families, one number per level, coarsest first.
        unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`) or left out (`drop`).
        interval: level of the interval from `lower` to `upper`.
        grade_by: rule for the grade: `median`, `mode` or `mean` of P(true grade).

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"task": ["a", "a", "a", "b", "b", "b"], "worker": ["x", "y", "z"] * 2,
    ...                       "label": [1, 1, 0, 0, 0, 0]})
    >>> DawidSkene().fit_predict(votes).to_dict()
    {'a': 1, 'b': 0}

    """

    takes: ClassVar[Inputs] = ("soft labels",)
    theta_arrays: ClassVar[Mapping[str, ThetaArray]] = {
        "likelihood": ThetaArray(by_assessor=True, bounds=PROBABILITY_RANGE),
        "shares": ThetaArray(bounds=PROBABILITY_RANGE),
        "pseudo": ThetaArray(bounds=(0.0, MAX_SAVED_FLOAT)),
        "feature_shares": ThetaArray(bounds=PROBABILITY_RANGE),
        "typical": ThetaArray(bounds=PROBABILITY_RANGE),
    }
    carries: ClassVar[tuple[str, ...]] = ()
    _parameter_constraints: ClassVar[Constraints] = {
        "prior": [OneOf("learned", 0), Number(0, above=True), SequenceOf(Number(0, above=True), length=2)],
    }

    def __init__(
        self,
        n_iter: int = 100,
        tol: float = 1e-5,
        *,
        prior: str | float | tuple[float, float] = "learned",
        families: str = "column",
        family_correlation: float | tuple[float, ...] = 1.0,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
        grade_by: str = DEFAULT_RULE,
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol
        self.prior = prior
        self.families = families
        self.family_correlation = family_correlation
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval
        self.grade_by = grade_by

    def _with_states(self, shard: Shard) -> Shard:
        """Return the shard with a grade for documents that cannot be judged, of the lowest value, if it is modeled."""
        if not self._models_unjudgeable:
            return shard
        values = np.append(shard.values, shard.values[0])
        return replace(shard, values=values, gold_sets=np.pad(shard.gold_sets, ((0, 0), (0, 1))))

    def _start(self, shard: Shard) -> Arrays:
        """Return the initial posterior: shares of votes, restricted to the grades that an expert grade stands for."""
        shard, local = self._with_states(shard), self._shard_weights(shard)
        votes = shard_votes(shard, local.get("weight"))
        posterior = votes / votes.sum(axis=1, keepdims=True)
        restrict_to_gold(posterior, shard)
        return {**local, "posterior": posterior}

    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """Run the E-step; in the first pass, the posterior is that of `_start`."""
        shard, weight = self._with_states(shard), local.get("weight")
        if theta is None:
            posterior = local["posterior"]
            counts = expected_counts(shard, posterior, shard.n_grades)
            statistics = {"counts": counts, "state_counts": posterior.sum(axis=0), "log_likelihood": np.zeros(1)}
            statistics |= assessor_weights(shard, weight)
            return local, statistics | self._sum_score_products(shard, posterior, weight)
        prior = theta["shares"] if shard.score is None else self._item_priors(shard, theta)
        gold = shard.gold_sets.astype(np.float64)
        # The posterior of the previous pass is overwritten, because new memory takes time.
        reused, frequencies = local.get("posterior"), theta.get("frequencies", theta["shares"])
        new, statistics = expectation_step(shard, theta["likelihood"], gold, prior, weight, frequencies, reused)
        statistics |= assessor_weights(shard, weight)
        return {**local, **new}, statistics | self._sum_score_products(shard, new["posterior"], weight)

    def _sum_score_products(
        self, shard: Shard, posterior: NDArray[np.float64], weight: NDArray[np.float64] | None
    ) -> Arrays:
        """Return `score_classes`, the expected number of items by score bin and state, or nothing without features."""
        return {} if shard.score is None else {"score_classes": count_by_score(shard, posterior, weight)}

    def _item_priors(self, shard: Shard, theta: Arrays) -> NDArray[np.float64]:
        """Return log P(true grade | score) of each item, (n_items, n_states); the score comes from features."""
        assert shard.score is not None
        return GradePrior.of(theta).log_priors(shard.score, self._levels(len(theta["shares"])), theta["shares"])

    def _start_features(self, theta: Arrays, estimates: LabelEstimates) -> Arrays:
        """Return the parameters with those of an initial regression of grades on the scores from features."""
        return {**theta, **GradePrior.of(theta).to_arrays()}

    def _learn_features(self, theta: Arrays | None, statistics: Arrays) -> Arrays:
        """Return the parameters of the regression of grades on the scores from features; nothing without features."""
        if "score_classes" not in statistics:
            return {}
        counts = statistics["score_classes"]
        before = GradePrior.of({"shares": counts.sum(axis=0) + 1.0} if theta is None else theta)
        return before.updated(counts, self._levels(counts.shape[1])).to_arrays()

    def _levels(self, n_states: int) -> NDArray[np.int64]:
        """Return the position of each state on the scale; documents that cannot be judged are at the lowest."""
        levels = np.arange(n_states)
        return np.append(levels[:-1], 0) if self._models_unjudgeable else levels

    def _restart(self, shard: Shard) -> Arrays:
        """Return local state without votes, which a pass with known parameters does not need."""
        return self._shard_weights(shard)

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        state_counts = statistics["state_counts"]
        shares = np.maximum(state_counts / state_counts.sum(), MIN_PROBABILITY)
        weights = prior_weights(statistics, statistics["counts"].sum(axis=(1, 2)))
        pseudo = self._pseudo_counts(theta, statistics["counts"], n_jobs, weights)
        likelihood = self._likelihood(statistics["counts"], pseudo)
        by_features = self._learn_features(theta, statistics)
        return {"shares": shares, "likelihood": likelihood, "pseudo": pseudo, **by_features}

    def _pseudo_counts(
        self,
        theta: Arrays | None,
        counts: NDArray[np.float64],
        n_jobs: int,
        weights: NDArray[np.float64] | None,
    ) -> NDArray[np.float64]:
        """Return the pseudo-counts of answer g given true grade c as [g, c]."""
        if self.prior == "learned":
            before = prior_matrix(WEAK_PSEUDO_COUNTS, counts.shape[1]) if theta is None else theta["pseudo"]
            return learn_pseudo_counts(counts, before, n_jobs=n_jobs, weights=weights)
        assert not isinstance(self.prior, str)
        return prior_matrix(self.prior, counts.shape[1])

    def _likelihood(self, counts: NDArray[np.float64], pseudo: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return P(answer g | true grade c) as [assessor, g, c]."""
        likelihood: NDArray[np.float64] = confusions(counts, pseudo, MIN_PROBABILITY)
        return likelihood

    def _objective(self, theta: Arrays, statistics: Arrays, n: int) -> float:
        return float(statistics["log_likelihood"][0] + self._log_prior(theta)) / n

    def _after_iterations(self, passes: Passes, theta: Arrays, statistics: Arrays) -> tuple[Arrays, Arrays]:
        """Return the parameters with P(answer | true grade) of a typical careful assessor, and the statistics.

        'Cannot judge' is no grade: the probabilities are those of the grades, given that the answer is a grade.
        """
        judgments = statistics.get("assessor_weight", statistics["counts"].sum(axis=(1, 2)))
        states, likelihood = self._states(theta)
        n_grades = len(states) - self._models_unjudgeable
        typical = careful_curves(judgments, likelihood, states)[:n_grades, :n_grades]
        return {**theta, "typical": typical / typical.sum(axis=0)}, statistics

    def _log_prior(self, theta: Arrays) -> float:
        if self.prior == "learned" or not theta["pseudo"].any():
            return 0.0  # a learned prior changes with the data: convergence is that of the likelihood
        return float((theta["pseudo"] * np.log(theta["likelihood"])).sum())

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """Return the estimates of items; P(cannot be judged) is added to that of the lowest grade."""
        grades, more = local["posterior"], {}
        if self._models_unjudgeable:
            more["unjudgeable"] = grades[:, -1]
            grades = grades[:, :-1].copy()
            grades[:, 0] += more["unjudgeable"]
        if shard.score is not None:
            more[PRIOR_RELEVANCE] = np.exp(self._item_priors(shard, theta)) @ self._with_states(shard).values
        rows = discrete_rows(grades, grades @ theta["typical"].T, shard, self.interval)
        return {**rows, **more, **self._effective_sizes(shard)}

    def _states(self, theta: Arrays) -> States:
        return theta["shares"] / theta["shares"].sum(), theta["likelihood"]

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        """Return the accuracy and the confusion matrix: `says_2_if_1` is P(answer 2 | true grade 1)."""
        n_grades = len(theta["shares"]) - self._models_unjudgeable
        shares, likelihood = theta["shares"][:n_grades], theta["likelihood"][:, :n_grades, :n_grades]
        grades = range(n_grades)
        return {
            "accuracy": np.einsum("acc,c->a", likelihood, shares / shares.sum()),
            **{f"says_{g}_if_{c}": likelihood[:, g, c] for c in grades for g in grades},
        }

    @property
    def priors_(self) -> pd.Series[Any]:
        """Prior probabilities of the true grades, by label (crowd-kit's name)."""
        import pandas as pd

        self._require_fitted()
        labels = self.consensus_.labels
        return pd.Series(self.theta_["shares"][: len(labels)], index=pd.Index(labels, name="label"), name="prior")

    @property
    def errors_(self) -> pd.DataFrame:
        """P(label | true label): one row per worker and label, one column per true label (crowd-kit's name)."""
        import pandas as pd

        self._require_fitted()
        labels, workers = self.consensus_.labels, self.consensus_.assessor_table["assessor"].to_pandas()
        k = len(labels)
        index = pd.MultiIndex.from_product([workers, labels], names=["worker", "label"])
        return pd.DataFrame(self.theta_["likelihood"][:, :k, :k].reshape(-1, k), index=index, columns=list(labels))


class OneCoinDawidSkene(DawidSkene):
    """Dawid-Skene with one parameter per assessor, the accuracy; all wrong answers are equally likely.

    The parameters are those of :class:`DawidSkene`.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"task": ["a", "a", "a", "b", "b", "b"], "worker": ["x", "y", "z"] * 2,
    ...                       "label": [1, 1, 0, 0, 0, 0]})
    >>> model = OneCoinDawidSkene().fit(votes)
    >>> model.consensus_.assessors["accuracy"].idxmin()
    2
    """

    def _pseudo_counts(
        self,
        theta: Arrays | None,
        counts: NDArray[np.float64],
        n_jobs: int,
        weights: NDArray[np.float64] | None,
    ) -> NDArray[np.float64]:
        """Return pseudo-counts, (n_grades, n_grades); their sums on and off the diagonal are a Beta prior."""
        n_grades = counts.shape[1]
        if self.prior != "learned":
            fixed: NDArray[np.float64] = super()._pseudo_counts(theta, counts, n_jobs, weights) / n_grades
            return fixed
        right = np.trace(counts, axis1=1, axis2=2)
        answers = np.stack([right, counts.sum(axis=(1, 2)) - right], axis=1)[:, :, None]  # as for one true grade
        before = np.array([1.0, 0.5]) if theta is None else _sum_correct_and_wrong(theta["pseudo"])
        learned = learn_pseudo_counts(answers, before[:, None], n_jobs=n_jobs, weights=weights)
        (right_count,), (wrong_count,) = learned
        return prior_matrix((right_count / n_grades, wrong_count / (n_grades * (n_grades - 1))), n_grades)

    def _likelihood(self, counts: NDArray[np.float64], pseudo: NDArray[np.float64]) -> NDArray[np.float64]:
        n_grades = counts.shape[1]
        counts = counts + pseudo
        skill = (np.trace(counts, axis1=1, axis2=2) / counts.sum(axis=(1, 2)))[:, None, None]
        likelihood = np.where(np.eye(n_grades, dtype=bool), skill, (1 - skill) / (n_grades - 1))
        return np.asarray(likelihood.clip(MIN_PROBABILITY, 1 - MIN_PROBABILITY), np.float64)

    def _log_prior(self, theta: Arrays) -> float:
        if self.prior == "learned":
            return 0.0
        right, wrong = _sum_correct_and_wrong(theta["pseudo"])
        skill = theta["likelihood"][:, 0, 0]
        return float((right * np.log(skill) + wrong * np.log1p(-skill)).sum())

    def _assessor_columns(self, theta: Arrays, statistics: Arrays) -> Arrays:
        return {"accuracy": theta["likelihood"][:, 0, 0]}

    @property
    def skills_(self) -> pd.Series[Any]:
        """Accuracy of each worker (crowd-kit's name)."""
        return self._assessor_series("accuracy", "skill")


def _sum_correct_and_wrong(pseudo_counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums of pseudo-counts on and off the diagonal: of correct and of wrong answers, (2,)."""
    right = np.trace(pseudo_counts)
    return np.array([right, pseudo_counts.sum() - right])


def _confusions(counts: NDArray[np.float64], pseudo: NDArray[np.float64], floor: float) -> NDArray[np.float64]:
    out = counts + pseudo
    if not pseudo.any():
        used = np.logical_or.reduce([one > 0.0 for one in counts.transpose(2, 0, 1)])
        out = np.maximum(out, np.where(used, floor, 0.0)[:, :, None])
    # Short axes are faster one by one.
    return np.asarray(out / np.add.reduce(list(out.transpose(1, 0, 2)))[:, None])


@njit(nogil=True, numpy=_confusions)
def confusions(counts: NDArray[np.float64], pseudo: NDArray[np.float64], floor: float) -> NDArray[np.float64]:
    """Return P(answer g | true grade c) as [assessor, g, c]: normalized sums of counts and pseudo-counts.

    If all pseudo-counts are 0, probabilities are those of crowd-kit: an answer that an assessor never gave has
    probability 0 for every true grade, and the counts of other answers are at least `floor`.
    """
    # counts (n_assessors, n_grades, n_grades) as [a, g, c], pseudo (n_grades, n_grades) -> as counts
    n_assessors, n_grades, _ = counts.shape
    plain = not pseudo.any()
    out = np.empty_like(counts)
    for a in range(n_assessors):
        for g in range(n_grades):
            used = False
            for c in range(n_grades):
                used |= counts[a, g, c] > 0.0
            for c in range(n_grades):
                least = floor if plain and used else 0.0
                out[a, g, c] = max(counts[a, g, c] + pseudo[g, c], least)
        for c in range(n_grades):
            total = 0.0
            for g in range(n_grades):
                total += out[a, g, c]
            for g in range(n_grades):
                out[a, g, c] /= total
    return out


@njit(nogil=True)
def digamma(x: float) -> float:
    """Return the derivative of log gamma for x > 0, to 1e-12 (scipy's makes a fit on RF10 1.7 times as slow).

    For small x the recurrence is applied eight times, then the asymptotic series. The sum of 1 / (x + i), i = 0..7, is
    computed as one fraction, because divisions would take most of the time.
    """
    below = 0.0
    if x < 8.0:
        # x (x + 7), (x + 1) (x + 6), ... differ by constants, and 1 / x + 1 / (x + 7) = (2 x + 7) / (x (x + 7)).
        a = x * (x + 7.0)
        b, c, d = a + 6.0, a + 10.0, a + 12.0
        below = (2.0 * x + 7.0) * ((a + b) * c * d + a * b * (c + d)) / (a * b * c * d)
        x += 8.0
    r = 1.0 / (x * x)
    series = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132 - r * 691 / 32760)))))
    return float(np.log(x) - 0.5 / x - series - below)


def _digamma(x: NDArray[np.float64]) -> NDArray[np.float64]:
    a = x * (x + 7.0)
    b, c, d = a + 6.0, a + 10.0, a + 12.0
    cd, ab, x = c * d, a * b, x + 8.0
    r = 1.0 / (x * x)
    series = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132 - r * (691 / 32760))))))
    return np.asarray(np.log(x) - 0.5 / x - series - (2.0 * x - 9.0) * ((a + b) * cd + ab * (c + d)) / (ab * cd))


def _dirichlet_sums_numpy(
    counts: NDArray[np.float64], totals: NDArray[np.float64], weights: NDArray[np.float64], pseudo: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    n_assessors, n_answers, n_true = counts.shape
    strength = pseudo.sum(axis=0)
    # One call for all: a row for the total of the answers, and before the assessors one without answers.
    values = np.empty((n_assessors + 1, n_answers + 1, n_true))
    values[0, :-1], values[0, -1] = pseudo, strength
    np.add(counts, pseudo, out=values[1:, :-1])
    np.add(totals, strength, out=values[1:, -1])
    values = _digamma(values)
    sums = ((values[1:] - values[0]) * weights[:, None, None]).sum(axis=0)
    return sums[:-1], sums[-1]


@njit(nogil=True, numpy=_dirichlet_sums_numpy)
def dirichlet_sums(
    counts: NDArray[np.float64], totals: NDArray[np.float64], weights: NDArray[np.float64], pseudo: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weighted sums over assessors of digamma(count + pseudo) - digamma(pseudo): by answer, and for totals."""
    # counts (n_assessors, n_answers, n_true), totals (n_assessors, n_true), weights (n_assessors,),
    # pseudo (n_answers, n_true)
    # -> (n_answers, n_true), (n_true,)
    n_assessors, n_answers, n_true = counts.shape
    seen, asked = np.zeros((n_answers, n_true)), np.zeros(n_true)
    strength, floor, floors = np.zeros(n_true), np.empty((n_answers, n_true)), np.empty(n_true)
    for c in range(n_true):
        for g in range(n_answers):
            strength[c] += pseudo[g, c]
            floor[g, c] = digamma(pseudo[g, c])
        floors[c] = digamma(strength[c])
    for a in range(n_assessors):
        for g in range(n_answers):
            for c in range(n_true):
                count = counts[a, g, c]
                if count > 0.0:
                    seen[g, c] += weights[a] * (digamma(count + pseudo[g, c]) - floor[g, c])
        for c in range(n_true):
            asked[c] += weights[a] * (digamma(totals[a, c] + strength[c]) - floors[c])
    return seen, asked


def dirichlet_step(
    pseudo_counts: NDArray[np.float64],
    answer_sums: NDArray[np.float64],
    total_sums: NDArray[np.float64],
    lowest: float,
    highest: float,
) -> tuple[NDArray[np.float64], float]:
    """Return the pseudo-counts after one step of Minka's fixed-point iteration, and their largest relative change."""
    # pseudo_counts, answer_sums (n_answers, n_true), total_sums (n_true,)
    after = np.clip(pseudo_counts * answer_sums / total_sums, lowest, highest)
    return after, float(np.abs(after / pseudo_counts - 1.0).max())
