"""Recalibrate the grade probabilities of a consensus by expert grades.

Errors that all assessors share cannot be seen in their judgments, so that probabilities may be overconfident, or grades
too high or too low. A temperature T and one offset b_g per grade correct both (Guo et al. 2017, section 4.2):

    calibrated P(g) is proportional to exp(log P(g) / T + b_g)

They are fitted to expert grades by penalized maximum likelihood: a ridge penalty shrinks log T and b towards 0. The
penalty is chosen by cross-validation, and the probabilities stay as they are unless calibration improves them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.consensus.result import Consensus, grade_codes, grade_column
from crowdrank.errors import UsageError
from crowdrank.judgments.gold import ItemGold

if TYPE_CHECKING:
    from crowdrank.consensus.model import Aggregator

IntegerCodes = NDArray[np.integer]
"""Codes of any integer type."""
MIN_EXPERT_GRADES = 20
"""Minimum number of expert grades on judged documents for a calibration."""
CALIBRATE_HELP = f"Calibrate grade probabilities by expert grades, if there are {MIN_EXPERT_GRADES} or more."
"""Description of the setting that leaves the calibration out."""
RIDGES = (1.0, 5.0, 20.0)
"""Candidates for the strength of the ridge penalty, in expert grades."""
MAX_FOLDS = 5
N_BINS = 10
"""Number of bins of confidence, all of the same width."""
N_RESAMPLES = 1000
"""Number of bootstrap resamples for the interval of the calibration error."""
MIN_LOG_ARGUMENT = 1e-6
"""Minimum probability before its logarithm is taken."""
REASONS = {
    "calibrated": "",
    "few-grades": f"fewer than {MIN_EXPERT_GRADES} expert grades on judged documents",
    "scales-differ": "the experts' scale is not that of the judgments, and no map relates them",
    "on-disk": "the judgments are on disk",
    "no-gain": "it does not clearly improve the probability of held-out expert grades",
}
"""Outcomes of a calibration, and the reason why probabilities are as they were."""

KEPT_GRADES = ". The grades stay as they are, because calibrated ones would agree less often with experts"


@dataclass(frozen=True)
class ReliabilityBin:
    """Documents whose most probable grade has a probability in one interval.

    Attributes:
        documents: number of documents.
        confidence: mean probability of the most probable grade.
        accuracy: share of the documents whose expert grade it is.

    """

    documents: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Quality:
    """Quality of grade probabilities on documents with expert grades.

    Attributes:
        calibration_error: expected calibration error, see :func:`expected_calibration_error`.
        log_loss: mean negative log probability of the expert grade.
        accuracy: share of documents whose grade is the expert grade.
        bins: the reliability diagram; bins without documents are left out.
        interval: 95% interval of the calibration error, see :func:`error_interval`; None if it was not computed.

    """

    calibration_error: float
    log_loss: float
    accuracy: float
    bins: tuple[ReliabilityBin, ...]
    interval: tuple[float, float] | None = None

    @property
    def error_text(self) -> str:
        """The calibration error with its interval."""
        if self.interval is None:
            return f"{self.calibration_error:.3f}"
        return f"{self.calibration_error:.3f} (95% interval {self.interval[0]:.3f} to {self.interval[1]:.3f})"

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> Quality:
        """Return the quality from its fields as JSON has them."""
        interval = None if fields["interval"] is None else tuple(fields["interval"])
        return cls(**{**fields, "bins": tuple(ReliabilityBin(**one) for one in fields["bins"]), "interval": interval})


@dataclass(frozen=True)
class Calibration:
    """Calibration of grade probabilities, or the reason why they are as they were.

    Attributes:
        outcome: `calibrated`, or why not: a key of `REASONS`.
        n_expert_grades: number of expert grades on judged documents.
        temperature: temperature; above 1, probabilities become less extreme.
        offsets: offset of each grade, with mean 0; empty without calibration.
        ridge: strength of the ridge penalty; None without calibration.
        keeps_grades: whether grades are those of the probabilities before calibration, because grades of held-out
            documents by calibrated probabilities are less accurate.
        before: quality of the probabilities before calibration; None if there are too few expert grades.
        after: quality of the cross-fitted calibrated probabilities; None if none were fitted.

    """

    outcome: str
    n_expert_grades: int
    temperature: float = 1.0
    offsets: tuple[float, ...] = ()
    ridge: float | None = None
    keeps_grades: bool = False
    before: Quality | None = None
    after: Quality | None = None

    @property
    def is_applied(self) -> bool:
        """Whether the probabilities were calibrated."""
        return self.outcome == "calibrated"

    def apply(self, shares: Floats) -> Floats:
        """Return calibrated grade probabilities, (n, n_grades); without calibration, the same ones."""
        if not self.is_applied:
            return shares
        return _rescale(_log_shares(shares), np.array([-math.log(self.temperature), *self.offsets]))

    def __str__(self) -> str:
        if not self.is_applied or self.before is None or self.after is None:
            return f"The grade probabilities are not calibrated by expert grades: {REASONS[self.outcome]}{self._kept()}"
        offsets = ", ".join(f"{offset:+.2f}" for offset in self.offsets)
        return (
            f"The grade probabilities are calibrated by {counted(self.n_expert_grades, 'expert grade')} (temperature "
            f"{self.temperature:.2f}, offsets of the grades {offsets}); on held-out expert grades, the expected "
            f"calibration error is {self.after.error_text} instead of {self.before.error_text}"
            f"{KEPT_GRADES * self.keeps_grades}"
        )

    def _kept(self) -> str:
        """Return a sentence about the error of probabilities that stay as they are, if it was measured."""
        if self.before is None:
            return ""
        grades = counted(self.n_expert_grades, "expert grade")
        return f". They stay as they are; on {grades}, their expected calibration error is {self.before.error_text}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return {**asdict(self), "offsets": list(self.offsets)}

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> Calibration:
        """Return a calibration from :meth:`to_dict`."""
        quality = {name: None if fields[name] is None else Quality.load(fields[name]) for name in ("before", "after")}
        return cls(**{**fields, "offsets": tuple(fields["offsets"]), **quality})


@dataclass(frozen=True, eq=False)
class CalibrationFit:
    """A calibration and the probabilities of the documents that it was fitted to.

    Attributes:
        calibration: the calibration.
        held_out: cross-fitted probabilities of these documents, (n, n_grades): calibrated by the expert grades of the
            other folds.

    """

    calibration: Calibration
    held_out: Floats


def fit_calibration(
    shares: Floats,
    allowed: Booleans,
    query: IntegerCodes,
    *,
    grade_by: str = "median",
    grades: IntegerCodes | None = None,
) -> CalibrationFit:
    """Fit a calibration to documents with expert grades, or find that there is no reason for one.

    Folds are whole queries, or documents if there is one query. The ridge penalty with the lowest cross-validated log
    loss is compared with no calibration: it must be better by more than one standard error of the difference (over
    queries, or documents of one query). Grades stay as they are if calibrated ones are less accurate.

    Args:
        shares: grade probabilities of documents with expert grades that did not use these grades, (n, n_grades).
        allowed: grades that the expert grade of each document stands for, (n, n_grades).
        query: query of each document, (n,).
        grade_by: rule for the grades by calibrated probabilities.
        grades: grades before calibration, (n,); by default those that the rule chooses from `shares`.

    >>> rng = np.random.default_rng(0)
    >>> true = rng.integers(0, 2, 200)
    >>> answer = np.where(rng.random(200) < 0.7, true, 1 - true)
    >>> overconfident = np.where(np.eye(2, dtype=bool)[answer], 0.95, 0.05)
    >>> calibration = fit_calibration(overconfident, np.eye(2, dtype=bool)[true], np.arange(200)).calibration
    >>> calibration.temperature > 1, calibration.after.calibration_error < calibration.before.calibration_error / 2
    (True, True)

    """
    n = len(shares)
    if n < MIN_EXPERT_GRADES:
        return CalibrationFit(Calibration("few-grades", n), shares)
    logs, fold = _log_shares(shares), assign_folds(query)
    candidates = {ridge: _cross_fit(logs, allowed, fold, ridge) for ridge in RIDGES}
    ridge = min(candidates, key=lambda one: float(log_losses(candidates[one], allowed).mean()))
    held_out = candidates[ridge]
    before = measure_quality(shares, allowed, choose_grades(shares, grade_by) if grades is None else grades, query)
    after = measure_quality(held_out, allowed, choose_grades(held_out, grade_by), query)
    if not _is_clearly_positive(log_losses(shares, allowed) - log_losses(held_out, allowed), query):
        return CalibrationFit(Calibration("no-gain", n, before=before, after=after), shares)
    log_scale, *offsets = _fit_parameters(logs, allowed, ridge).tolist()
    keeps_grades = after.accuracy < before.accuracy
    temperature = math.exp(-log_scale)
    calibration = Calibration("calibrated", n, temperature, tuple(offsets), ridge, keeps_grades, before, after)
    return CalibrationFit(calibration, held_out)


def assign_folds(query: IntegerCodes) -> Integers:
    """Return the fold of each document: whole queries at random, or documents if there is one query.

    >>> assign_folds(np.array([4, 4, 7])).tolist()
    [0, 0, 1]
    """
    found, code = np.unique(query, return_inverse=True)
    code = code if len(found) > 1 else np.arange(len(query))
    n = int(code.max()) + 1
    order = np.random.default_rng(0).permutation(n)
    return np.asarray(order[code] % min(MAX_FOLDS, n))


def measure_quality(
    shares: Floats, allowed: Booleans, grade: IntegerCodes, query: IntegerCodes | None = None
) -> Quality:
    """Return the quality of grade probabilities, and of grades, of documents with expert grades.

    The calibration error has an interval if the query of each document is given.
    """
    return Quality(
        expected_calibration_error(shares, allowed),
        float(log_losses(shares, allowed).mean()),
        float(allowed[np.arange(len(grade)), grade].mean()),
        reliability_bins(shares, allowed),
        None if query is None else error_interval(shares, allowed, query),
    )


def error_interval(shares: Floats, allowed: Booleans, query: IntegerCodes) -> tuple[float, float]:
    """Return a 95% bootstrap interval of the expected calibration error.

    Whole queries are resampled, or documents if there is one query. Noise makes the errors of resamples too large. The
    lower end corrects this by the basic bootstrap (Davison and Hinkley 1997, section 5.2); the upper end is their
    quantile, so that the interval is cautious.

    >>> shares = np.tile([0.2, 0.8], (100, 1))
    >>> lower, upper = error_interval(shares, np.eye(2, dtype=bool)[np.arange(100) % 2], np.zeros(100, int))
    >>> lower < 0.3 < upper
    True
    """
    found, code = np.unique(query, return_inverse=True)
    code = code if len(found) > 1 else np.arange(len(query))
    top, confidence = shares.argmax(axis=1), shares.max(axis=1)
    gap = confidence - allowed[np.arange(len(top)), top]
    n, place = int(code.max()) + 1, _bin_of(confidence)
    sums = np.bincount(code * N_BINS + np.minimum(place, N_BINS - 1), gap, n * N_BINS).reshape(n, N_BINS)
    counts = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), N_RESAMPLES)
    errors = np.abs(counts @ sums).sum(axis=1) / np.maximum(counts @ np.bincount(code, minlength=n), 1)
    high = float(np.quantile(errors, 0.975))
    error = float(np.abs(sums.sum(axis=0)).sum()) / len(code)
    return max(2 * error - high, 0.0), max(high, error)


def expected_calibration_error(shares: Floats, allowed: Booleans, weight: Floats | None = None) -> float:
    """Return the mean difference between the confidence and the accuracy of the most probable grades.

    Documents are gathered in ten bins of confidence (Guo et al. 2017, equation 3).

    >>> expected_calibration_error(np.array([[0.1, 0.9], [0.1, 0.9]]), np.array([[False, True], [True, False]]))
    0.4
    """
    bins = reliability_bins(shares, allowed, weight)
    place = np.unique(_bin_of(shares.max(axis=1)), return_inverse=True)[1]
    size = np.bincount(place, weight)
    gaps = np.abs([one.confidence - one.accuracy for one in bins])
    return float((size * gaps).sum() / size.sum())


def reliability_bins(shares: Floats, allowed: Booleans, weight: Floats | None = None) -> tuple[ReliabilityBin, ...]:
    """Return confidence and accuracy of the most probable grades in ten bins of confidence, those with documents."""
    top, confidence = shares.argmax(axis=1), shares.max(axis=1)
    right = allowed[np.arange(len(top)), top]
    weight = np.ones(len(top)) if weight is None else weight
    place = _bin_of(confidence)
    bins = []
    for number in np.unique(place):
        there = place == number
        means = (float(np.average(values[there], weights=weight[there])) for values in (confidence, right))
        bins.append(ReliabilityBin(int(there.sum()), *means))
    return tuple(bins)


def log_losses(shares: Floats, allowed: Booleans) -> Floats:
    """Return the negative log probability of each expert grade, (n,)."""
    return np.asarray(-np.log(np.maximum((shares * allowed).sum(axis=1), MIN_LOG_ARGUMENT)))


def calibrate(
    consensus: Consensus, gold: ItemGold, query: IntegerCodes, *, grade_by: str, without_gold: Consensus | None = None
) -> tuple[Consensus, Calibration]:
    """Return a consensus with calibrated grade probabilities and grades, and the calibration.

    Relevance and its interval stay as they are. Documents with expert grades get cross-fitted probabilities, or keep
    the grade of the experts if the consensus used it.

    Args:
        consensus: consensus in memory.
        gold: expert grade of each document.
        query: query of each document, (n_items,).
        grade_by: rule for the grades.
        without_gold: consensus of the same documents without the expert grades, if `consensus` used them.

    """
    graded = np.flatnonzero(gold.code >= 0)
    if gold.sets is None:
        return consensus, Calibration("scales-differ", len(graded))
    own, blind = grade_shares(consensus), consensus if without_gold is None else without_gold
    known, grades = grade_shares(blind)[graded], grade_codes(blind.document_table["grade"], blind.labels)[graded]
    fit = fit_calibration(known, gold.sets[gold.code[graded]], query[graded], grade_by=grade_by, grades=grades)
    if not fit.calibration.is_applied:
        return consensus, fit.calibration
    shares = fit.calibration.apply(own)
    shares[graded] = fit.held_out if without_gold is None else own[graded]
    return with_shares(consensus, shares, None if fit.calibration.keeps_grades else grade_by), fit.calibration


def calibrate_model(model: Aggregator) -> Calibration:
    """Calibrate the consensus of a model that was fitted with expert grades, in place; return the calibration.

    The calibration compares expert grades with probabilities that the parameters of the model give without the expert
    grade of the document itself. Documents with an expert grade keep it.

    Raises:
        UsageError: the model was fitted without expert grades.

    >>> from crowdrank import DawidSkene, simulate
    >>> world = simulate(queries=30, documents=10, random_state=1)
    >>> calibrate_model(DawidSkene().fit(world.judgments, world.gold)).n_expert_grades == len(world.gold)
    True

    """
    from crowdrank.consensus.assembly import StoredConsensus
    from crowdrank.consensus.auto import Auto

    gold = model.gold_
    if gold is None:
        raise UsageError("Calibration needs a model that was fitted with expert grades", parameter="gold")
    if isinstance(model.consensus_, StoredConsensus):
        return Calibration("on-disk", len(gold) - gold.n_unjudged(model.judgments_))
    model.consensus_.require_grades()
    estimator = model.grade_estimator_ if isinstance(model, Auto) else model.assessor_estimator_
    prepared = estimator._prepare_with(estimator.judgments_, estimator.preferences_)
    blind = copy.copy(estimator)
    blind.gold_ = None
    estimator.consensus_, calibration = calibrate(
        estimator.consensus_,
        gold.for_items(prepared),
        prepared.item_query,
        grade_by=estimator.grade_by,
        without_gold=blind.infer(estimator.judgments_, preferences=estimator.preferences_),
    )
    if isinstance(model, Auto):
        model._set_estimators(model.ranking_estimator_, estimator, model.judgments_)
    return calibration


def grade_shares(consensus: Consensus) -> Floats:
    """Return the grade probabilities of the judged documents, (n_items, n_grades)."""
    return np.column_stack([consensus.document_table[name].to_numpy() for name in consensus.share_names])


def with_shares(consensus: Consensus, shares: Floats, grade_by: str | None) -> Consensus:
    """Return a consensus with other grade probabilities of the judged documents, and grades by a rule or as before.

    The expert grade is the true grade: P(true grade) is then the same as P(grade).
    """
    columns: dict[str, Any] = dict(zip(consensus.share_names, shares.T, strict=True))
    columns |= dict(zip(consensus.true_share_names, shares.T, strict=True))
    if grade_by is not None:
        columns["grade"] = grade_column(choose_grades(shares, grade_by), consensus.labels)
    table = consensus.document_table
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, [values])
    return replace(consensus, document_table=table)


def _bin_of(confidence: Floats) -> Integers:
    return np.minimum((confidence * N_BINS).astype(np.int64), N_BINS - 1)


def _log_shares(shares: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(shares, MIN_LOG_ARGUMENT)))


def _rescale(logs: Floats, parameters: Floats) -> Floats:
    """Return calibrated probabilities; the parameters are -log T and the offsets."""
    scores = math.exp(parameters[0]) * logs + parameters[1:]
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _cross_fit(logs: Floats, allowed: Booleans, fold: Integers, ridge: float) -> Floats:
    """Return the probabilities of each fold, calibrated by the other folds."""
    held_out = np.empty_like(logs)
    for number in np.unique(fold):
        there = fold == number
        held_out[there] = _rescale(logs[there], _fit_parameters(logs[~there], allowed[~there], ridge))
    return held_out


def _fit_parameters(logs: Floats, allowed: Booleans, ridge: float) -> Floats:
    """Return -log T and the offsets that minimize log loss plus ridge penalty."""
    from scipy.optimize import minimize

    def objective(parameters: Floats) -> tuple[float, Floats]:
        shares = _rescale(logs, parameters)
        expert = np.maximum((shares * allowed).sum(axis=1, keepdims=True), MIN_LOG_ARGUMENT**2)
        slope = shares - shares * allowed / expert  # of the loss, in the scores
        loss = -float(np.log(expert).sum()) + 0.5 * ridge * float(parameters @ parameters)
        by_scale = math.exp(parameters[0]) * float((slope * logs).sum())
        return loss, np.array([by_scale, *slope.sum(axis=0)]) + ridge * parameters

    start = np.zeros(logs.shape[1] + 1)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-12, "gtol": 1e-8})
    return np.asarray(found.x)


def _is_clearly_positive(values: Floats, query: IntegerCodes) -> bool:
    """Return whether the mean of values exceeds its standard error, over queries or over the values of one query."""
    found, code = np.unique(query, return_inverse=True)
    residuals = values - values.mean()
    if len(found) > 1:
        residuals = np.bincount(code, residuals)
    n = len(residuals)
    error = math.sqrt(n / (n - 1) * float(residuals @ residuals)) / len(values)
    return bool(values.mean() > error)
