"""Posterior predictive checks: compare judgments with what a model predicts from the other judgments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._numba import njit
from crowdrank.consensus.e_step import expectation_step
from crowdrank.consensus.feature_prior import FeatureAggregator
from crowdrank.consensus.gda import GDA
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.rasch import Rasch
from crowdrank.engine.shards import items_of, split_into_shards
from crowdrank.errors import DataWarning, InputError, UsageError
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk.sharded import ShardedJudgments

MAX_PAIRS = 200_000
"""Maximum number of pairs of judgments; a sample is drawn if there are more."""
MIN_REPORTED_Z = 3.0
"""Minimum number of standard errors of a difference that is reported; high, because many assessors are tested."""
MAX_CHECKED_DOCUMENTS = 1_000
"""Maximum number of documents that are checked after each fit; a sample is drawn if there are more."""
MIN_EXCESS_AGREEMENT = 0.1
"""Minimum excess of the share of pairs of judgments that agree over the expected one that is reported after a fit.

It is at most 0.05 on TREC RF10, AdultContent2, DL19, DL23, a web search crowd and draws from the model, 0.09 on DL20's
related LLM judges, and 0.13 to 0.31 if wrong judgments are random grades.
"""


AGREEMENT_CAUSES = {
    "more": "assessors share errors, or wrong judgments are not close to the right grade as the model assumes",
    "less": "wrong judgments are farther apart than the model assumes",
}
"""Causes of judgments that agree more or less often than expected."""


@dataclass(frozen=True)
class PosteriorCheck:
    """Expected and observed values: log score, agreement of pairs of judgments, and use of grades per assessor."""

    log_score: float  # mean log probability of a judgment, that judgment left out
    chance_log_score: float  # the same for the crowd's shares of the grades
    agreement: pa.Table  # pairs, expected, observed, z: of all pairs, within and between families
    assessors: pa.Table  # assessor, judgments, answer, expected, observed, z: largest |z| first
    sentences: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the results, ready for JSON."""
        return {
            "log_score": self.log_score,
            "chance_log_score": self.chance_log_score,
            "agreement": self.agreement.to_pylist(),
            "assessors": self.assessors.to_pylist(),
            "sentences": self.sentences,
        }


def check(model: Aggregator, judgments: Judgments, *, random_state: int = 0) -> PosteriorCheck:
    """Compare judgments (of the fit, or others of the same assessors) with the predictions of a fitted model.

    Each judgment is predicted from the other judgments of its document, each pair of judgments of a document from the
    rest of them.

    Args:
        model: fitted model.
        judgments: judgments on the model's scale.
        random_state: random seed of the sample of pairs.

    >>> from crowdrank import DawidSkene, read_judgments, simulate
    >>> judgments = read_judgments(simulate(queries=20, documents=8, random_state=1).judgments)
    >>> result = check(DawidSkene().fit(judgments), judgments)
    >>> result.log_score > result.chance_log_score
    True

    """
    prepared, posterior, weight, table = _posteriors(model, judgments)
    item = items_of(prepared.offsets)
    predicted = predict_left_out(posterior, item, prepared.assessor, prepared.grade, weight, table)
    own = predicted[np.arange(len(prepared)), prepared.grade]
    shares = np.bincount(prepared.grade, minlength=table.shape[1]) / len(prepared)
    agreement = pa.Table.from_pylist(
        _agreement(prepared, posterior, weight, table, np.random.default_rng(random_state))
    )
    assessors = _compare_grade_use(prepared, predicted)
    log_score = float(np.log(np.maximum(own, 1e-300)).mean())
    chance = float((shares * np.log(np.maximum(shares, 1e-300))).sum())
    return PosteriorCheck(
        log_score, chance, agreement, assessors, _describe_results(log_score, chance, agreement, assessors)
    )


def excess_agreement(model: Aggregator, judgments: Judgments | ShardedJudgments) -> list[DataWarning]:
    """Return a warning if judgments agree far more often than a fitted GDA or Rasch model expects.

    A sample of documents is checked. Agreement within declared families is not counted, and agreement in almost all
    cases is not reported.
    """
    if not isinstance(model, GDA | Rasch):
        return []
    rng = np.random.default_rng(0)
    if isinstance(judgments, ShardedJudgments):
        judgments = judgments.sample(MAX_PAIRS)
    if judgments.n_items > MAX_CHECKED_DOCUMENTS:
        chosen = np.zeros(judgments.n_items, dtype=bool)
        chosen[rng.choice(judgments.n_items, MAX_CHECKED_DOCUMENTS, replace=False)] = True
        judgments = judgments.keep_rows(chosen[judgments.item])
    rows = {row["pairs"]: row for row in _agreement(*_posteriors(model, judgments), rng)}
    row = rows.get("all pairs" if judgments.families is None else "between families")
    if row is None or row["z"] < MIN_REPORTED_Z or row["observed"] > 1 - MIN_EXCESS_AGREEMENT:
        return []
    if row["observed"] - row["expected"] < MIN_EXCESS_AGREEMENT:
        return []
    problem = (
        f"Two judgments of a document agree in {row['observed']:.0%} of the cases, {type(model).__name__} expects "
        f"{row['expected']:.0%}: {AGREEMENT_CAUSES['more']}. Majority votes may be right more often than its grades"
    )
    fix = ["let auto choose the model", "declare families of assessors that share errors"]
    return [DataWarning(problem, kind="excess-agreement", fix=fix)]


def _posteriors(
    model: Aggregator, judgments: Judgments
) -> tuple[Judgments, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the prepared judgments, posteriors, weights, and P(answer | state) of the assessors."""
    model = model.assessor_estimator_
    if model._states(model.theta_) is None:
        problem = f"{type(model).__name__} has no probabilities of single judgments, so that it cannot be checked"
        raise UsageError(problem, kind="no-likelihood", fix="check another model, such as GDA")
    prepared = model._prepare(judgments)
    is_of_fit = prepared.assessors is model.judgments_.assessors
    theta = model.theta_ if is_of_fit else model._start_from(model, judgments, model.gold_)
    states = None if theta is None else model._all_states(theta)
    if theta is None or states is None:
        raise InputError("the grades are not those that the model was fitted to", kind="scales-differ")
    shares_of_states, table = states
    weight = model._judgment_weights(prepared)
    weight = np.ones(len(prepared)) if weight is None else weight
    scores = None if model.feature_scores_ is None else model.feature_scores_.for_items(prepared)
    (shard,) = split_into_shards(prepared.with_hard_labels(), shard_size=len(prepared) + 1, scores=scores)
    prior = shares_of_states
    if isinstance(model, FeatureAggregator) and scores is not None:
        prior = model._item_priors(shard, theta)
    local, _ = expectation_step(shard, table, np.ones(table.shape[1:]), prior, weight)
    return prepared, local["posterior"], weight, table


def _agreement(
    judgments: Judgments,
    posterior: NDArray[np.float64],
    weight: NDArray[np.float64],
    likelihood: NDArray[np.float64],
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """Return the expected and the observed share of pairs of judgments of a document that agree, by kind of pairs."""
    one, other, item = _sample_pairs(judgments, rng)
    expected = expect_agreement(posterior, item, judgments.assessor, judgments.grade, one, other, weight, likelihood)
    observed = judgments.grade[one] == judgments.grade[other]
    family = judgments.family_of[judgments.assessor]
    same = family[one] == family[other]
    groups = {"all pairs": np.ones(len(one), dtype=bool)}
    if judgments.families is not None:
        groups |= {"within a family": same, "between families": ~same}
    rows = [_agreement_row(name, expected[mask], observed[mask]) for name, mask in groups.items() if mask.any()]
    return rows or [_agreement_row("all pairs", np.zeros(0), np.zeros(0))]


def _agreement_row(name: str, expected: NDArray[np.float64], observed: NDArray[Any]) -> dict[str, Any]:
    n = max(len(expected), 1)
    error = np.sqrt(max(float((expected * (1 - expected)).sum()), 1e-12))
    gap = float(observed.sum() - expected.sum())
    return {
        "pairs": name,
        "number": len(expected),
        "expected": float(expected.sum()) / n,
        "observed": float(observed.sum()) / n,
        "z": gap / error if len(expected) else 0.0,
    }


def _sample_pairs(
    judgments: Judgments, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs of judgments of the same item: rows of both judgments and the item, (n_pairs,) each.

    Each judgment, or each of a sample, has one partner.
    """
    sizes = np.diff(judgments.offsets)
    item = np.repeat(np.arange(judgments.n_items), sizes)
    rows = np.flatnonzero(sizes[item] > 1)
    rows = rng.choice(rows, MAX_PAIRS, replace=False) if len(rows) > MAX_PAIRS else rows
    place = rows - judgments.offsets[item[rows]]
    distance = 1 + (rng.random(len(rows)) * (sizes[item[rows]] - 1)).astype(np.int64)
    partner = judgments.offsets[item[rows]] + (place + distance) % sizes[item[rows]]
    return rows, partner, item[rows]


def _compare_grade_use(judgments: Judgments, predicted: NDArray[np.float64]) -> pa.Table:
    """Return the answer of each assessor whose frequency differs most from the expected one."""
    n_assessors, n_answers = judgments.n_assessors, predicted.shape[1]
    expected, spread = np.zeros((n_assessors, n_answers)), np.zeros((n_assessors, n_answers))
    observed = np.zeros((n_assessors, n_answers))
    np.add.at(expected, judgments.assessor, predicted)
    np.add.at(spread, judgments.assessor, predicted * (1 - predicted))
    np.add.at(observed, (judgments.assessor, judgments.grade), 1.0)
    z = (observed - expected) / np.sqrt(np.maximum(spread, 0.25))
    worst = np.abs(z).argmax(axis=1)
    row = np.arange(n_assessors)
    n = observed.sum(axis=1)
    table = pa.table(
        {
            "assessor": judgments.assessors,
            "judgments": n.astype(np.int64),
            "answer": worst,
            "expected": expected[row, worst] / n,
            "observed": observed[row, worst] / n,
            "z": z[row, worst],
        }
    )
    return table.take(pa.array(np.argsort(-np.abs(z[row, worst]), kind="stable")))


def _describe_results(log_score: float, chance: float, agreement: pa.Table, assessors: pa.Table) -> list[str]:
    sentences = [
        f"The probability of a left-out judgment is {np.exp(log_score - chance):.2f} times that by "
        f"the frequency of its grade alone (log score {log_score:.3f}, frequencies {chance:.3f})."
    ]
    for row in agreement.to_pylist():
        if abs(row["z"]) > MIN_REPORTED_Z:
            more = "more" if row["z"] > 0 else "less"
            sentences.append(
                f"Judgments of one document agree {more} often than the model expects ({row['pairs']}: "
                f"{row['observed']:.1%}, expected {row['expected']:.1%}): {AGREEMENT_CAUSES[more]}."
            )
    n_unexpected = int((np.abs(assessors["z"].to_numpy()) > MIN_REPORTED_Z).sum())
    sentences.append(
        f"{n_unexpected:,} of {len(assessors):,} assessors use a grade more or less often than expected by more than "
        f"{MIN_REPORTED_Z:g} standard errors."
    )
    return sentences


@njit(cache=True, nogil=True)
def predict_left_out(
    posterior: NDArray[np.float64],
    item: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    weight: NDArray[np.float64],
    likelihood: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return P(answer) of every judgment, (n, n_answers), given the other judgments of its item.

    The likelihood of the judgment itself is divided out of the posterior.
    """
    # posterior (n_items, n_states); item, assessor, grade, weight (n,); likelihood (n_assessors, n_answers, n_states)
    _, n_answers, n_states = likelihood.shape
    out = np.zeros((len(item), n_answers))
    for j in range(len(item)):
        norm = 0.0
        for s in range(n_states):
            rest = posterior[item[j], s] / max(likelihood[assessor[j], grade[j], s], 1e-12) ** weight[j]
            norm += rest
            for g in range(n_answers):
                out[j, g] += rest * likelihood[assessor[j], g, s]
        for g in range(n_answers):
            out[j, g] /= norm
    return out


def _expect_agreement_in_numpy(
    posterior: NDArray[np.float64],
    item: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    first_row: NDArray[np.int64],
    second_row: NDArray[np.int64],
    weight: NDArray[np.float64],
    likelihood: NDArray[np.float64],
) -> NDArray[np.float64]:
    rest, both = posterior[item], np.ones((1, 1, 1))
    for rows in (first_row, second_row):
        own = np.maximum(likelihood[assessor[rows], grade[rows]], 1e-12)
        rest = rest / own ** weight[rows, None]
        both = both * likelihood[assessor[rows]]
    return np.asarray((rest * both.sum(axis=1)).sum(axis=1) / rest.sum(axis=1))


@njit(cache=True, nogil=True, numpy=_expect_agreement_in_numpy, small=1 << 18)
def expect_agreement(
    posterior: NDArray[np.float64],
    item: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    first_row: NDArray[np.int64],
    second_row: NDArray[np.int64],
    weight: NDArray[np.float64],
    likelihood: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the probability that the judgments of each pair agree, (n_pairs,), given the item's other judgments."""
    # item, one, other (n_pairs,): judgments `first_row` and `second_row` are on `item`
    _, n_answers, n_states = likelihood.shape
    out = np.zeros(len(first_row))
    for pair in range(len(first_row)):
        a, b = assessor[first_row[pair]], assessor[second_row[pair]]
        g, h = grade[first_row[pair]], grade[second_row[pair]]
        norm, agree = 0.0, 0.0
        for s in range(n_states):
            rest = posterior[item[pair], s] / max(likelihood[a, g, s], 1e-12) ** weight[first_row[pair]]
            rest /= max(likelihood[b, h, s], 1e-12) ** weight[second_row[pair]]
            norm += rest
            for answer in range(n_answers):
                agree += rest * likelihood[a, answer, s] * likelihood[b, answer, s]
        out[pair] = agree / norm
    return out
