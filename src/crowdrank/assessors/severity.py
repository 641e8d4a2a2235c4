"""Severity (bias) of assessors: how much higher or lower they grade, by a joint fit of assessors and documents.

The answer of assessor a to document d is modeled as effect(d) + bias(a) + noise and fitted by least squares. The mean
difference from the other assessors of the same documents would instead make the partner of a strict assessor seem
lenient.
Experts are one more assessor, whose bias is 0. Documents are eliminated from the normal equations, which leaves one
equation per assessor: the Laplacian of the graph of assessors who share documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import connected_components

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.judgments.table import Judgments

MIN_CONNECTED_ASSESSORS = 3
"""Minimum number of connected assessors to tell who is strict without experts: of two, either may be."""
MAX_EXACT_ASSESSORS = 1500
"""Maximum number of assessors whose standard errors are computed exactly; those of more are estimated from draws."""
_N_SIGN_DRAWS = 64
"""Number of random sign changes of the residuals for the standard errors of many assessors."""
_CG_TOLERANCE, _MAX_CG_ITERATIONS = 1e-10, 500
"""Relative residual at which conjugate gradients stop, and their maximum number of iterations."""


@dataclass(frozen=True, eq=False)
class Severity:
    """Bias of each assessor from the joint fit, in grades.

    Attributes:
        bias: (n_assessors,) mean answer minus that of the reference to the same documents; NaN if unknown.
        error: standard error of the bias, with documents as independent clusters; infinite if unknown.
        by_experts: whether the reference is the experts; otherwise the mean of the connected assessors, weighted by
            their judgments.
        group: (n_assessors,) code of the group of assessors who are connected by shared documents.

    """

    bias: Floats
    error: Floats
    by_experts: Booleans
    group: Integers


def fit_severity(
    judgments: Judgments,
    expert_grade: Floats | None = None,
    left_out: Booleans | None = None,
    max_level_error: float = np.inf,
) -> Severity:
    """Fit assessor and document effects jointly and return the bias of each assessor.

    Args:
        judgments: judgments on one scale.
        expert_grade: (n_items,) expert grade of each document as a position on that scale; NaN if unknown.
        left_out: (n_assessors,) assessors who do not influence the effects of documents, such as random ones; their
            bias is measured against the documents that the others judged.
        max_level_error: maximum standard error of the mean bias of a group relative to the experts; if it is larger,
            the biases of the group are relative to its own mean.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> truth, bias = [0, 1, 2, 3] * 5, {"strict": -1, "partner": 0, "x": 0, "y": 0}
    >>> rows = [(d, who, truth[d] + 1 + bias[who]) for d in range(20) for who in bias
    ...         if who in (("strict", "partner") if d < 15 else bias)]
    >>> table = read_judgments(pd.DataFrame(rows, columns=["document", "assessor", "grade"]))
    >>> experts = np.full(20, np.nan)
    >>> experts[-2:] = 3.0, 4.0
    >>> severity = fit_severity(table, experts)
    >>> dict(zip(table.assessors.to_pylist(), (severity.bias.round(6) + 0.0).tolist()))
    {'strict': -1.0, 'partner': 0.0, 'x': 0.0, 'y': 0.0}
    """
    n_assessors, n_items = judgments.n_assessors, judgments.n_items
    kept = np.ones(n_assessors, bool) if left_out is None else ~left_out
    judged = judgments.grade >= 0
    assessor, item = judgments.assessor[judged].astype(np.int64), judgments.item[judged]
    answer = judgments.grade[judged].astype(np.float64)
    used = kept[assessor]
    rows = item[used], assessor[used], answer[used]
    if expert_grade is not None:
        graded = np.flatnonzero(~np.isnan(expert_grade))
        experts = graded, np.full(len(graded), n_assessors), expert_grade[graded]
        rows = tuple(np.concatenate(parts) for parts in zip(rows, experts, strict=True))  # type: ignore[assignment]
    fit = _fit_effects(*rows, n_items, n_assessors + 1)  # the experts are the last one
    bias, error, by_experts = _bias_against_reference(fit, max_level_error)
    group = fit.group[:n_assessors].copy()
    zero = np.where(by_experts, fit.bias[-1], fit.center)  # bias of the reference before it was set to 0
    document = fit.document + zero[fit.group_of_item]
    document[fit.n_by_item == 0] = np.nan
    bias, error, by_assessor = bias[:-1], error[:-1], by_experts[fit.group[:-1]]
    for who in np.flatnonzero(~kept):
        own = (assessor == who) & ~np.isnan(document[item])
        if own.sum() > 1:
            difference = answer[own] - document[item[own]]
            bias[who], error[who] = difference.mean(), difference.std(ddof=1) / np.sqrt(len(difference))
            by_assessor[who] = by_experts[fit.group_of_item[item[own]]].all()
    return Severity(bias, error, by_assessor, group)


@dataclass(frozen=True, eq=False)
class _Effects:
    """Least-squares fit of the effects of assessors and documents; the zero of each group is arbitrary."""

    bias: Floats  # (n_assessors,) experts last
    document: Floats  # (n_items,)
    n: Integers  # (n_assessors,) number of answers
    n_by_item: Integers
    group: Integers  # (n_assessors,)
    group_of_item: Integers
    center: Floats  # (n_groups,) mean bias of the assessors, weighted by their answers, without the experts
    spreads: tuple[Floats, Floats]  # columns whose squares sum to the variances, by documents and by pooled residuals


def _fit_effects(item: Integers, assessor: Integers, answer: Floats, n_items: int, n_assessors: int) -> _Effects:
    ones = np.ones(len(item))
    shares = csr_array((ones, (item, assessor)), shape=(n_items, n_assessors))
    n_by_item, n = np.bincount(item, minlength=n_items), np.bincount(assessor, minlength=n_assessors)
    weight = 1 / np.maximum(n_by_item, 1)
    laplacian = csr_array(diags_array(n.astype(np.float64)) - shares.T @ (diags_array(weight) @ shares))
    n_groups, codes = connected_components(laplacian, directed=False)
    group = np.asarray(codes, np.int64)
    group_of_item = np.zeros(n_items, np.int64)
    group_of_item[item] = group[assessor]
    mean = np.bincount(item, answer, n_items) * weight
    right: Floats = np.bincount(assessor, answer - mean[item], n_assessors).astype(np.float64)
    solve = _LaplacianSolver(laplacian, group, n_groups)
    bias = solve(right[:, None])[:, 0]
    document = (np.bincount(item, answer - bias[assessor], n_items)) * weight
    residual = answer - bias[assessor] - document[item]
    by_document = csr_array((residual, (item, assessor)), shape=(n_items, n_assessors))
    freedom = len(item) - int((n_by_item > 0).sum()) - int((n > 0).sum()) + int(n_groups)
    pooled = float(np.sqrt(float(residual @ residual) / max(freedom, 1)))
    if n_assessors <= MAX_EXACT_ASSESSORS:
        scores = np.asarray((by_document.T @ by_document).toarray())
        inverse = solve(np.eye(n_assessors))
        spreads = _square_root_columns(inverse @ scores @ inverse), pooled * _square_root_columns(inverse)
    else:
        rng = np.random.default_rng(0)
        signs = rng.choice([-1.0, 1.0], (n_items, _N_SIGN_DRAWS))
        noise = [rng.choice([-1.0, 1.0], len(item)) for _ in range(_N_SIGN_DRAWS)]
        of_mean = [(np.bincount(item, one, n_items) * weight)[item] for one in noise]
        drawn = [np.bincount(assessor, one - mean, n_assessors) for one, mean in zip(noise, of_mean, strict=True)]
        by_noise = pooled * solve(np.stack(drawn, axis=1))
        spreads = solve(by_document.T @ signs) / np.sqrt(_N_SIGN_DRAWS), by_noise / np.sqrt(_N_SIGN_DRAWS)
    people = np.where(np.arange(n_assessors) == n_assessors - 1, 0, n)
    total = np.maximum(np.bincount(group, people, n_groups), 1)
    center = np.bincount(group, people * bias, n_groups) / total
    return _Effects(bias, document, n, n_by_item, group, group_of_item, center, spreads)


def _square_root_columns(covariance: Floats) -> Floats:
    """Return a matrix F with F @ F.T = covariance."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


class _LaplacianSolver:
    """Callable that solves laplacian @ x = right_side; x has mean 0 in each connected group."""

    def __init__(self, laplacian: csr_array, group: Integers, n_groups: int) -> None:
        self.laplacian, self.group, self.n_groups = laplacian, group, n_groups
        self.diagonal = np.maximum(laplacian.diagonal(), 1e-9)
        self.membership = csr_array((np.ones(len(group)), (group, np.arange(len(group)))))
        self.size = np.maximum(np.bincount(group, minlength=n_groups), 1)
        self.dense = (
            np.linalg.pinv(laplacian.toarray(), rcond=1e-10, hermitian=True)
            if len(group) <= MAX_EXACT_ASSESSORS
            else None
        )

    def __call__(self, right_side: Floats) -> Floats:
        if self.dense is not None:
            return np.asarray(self.dense @ right_side)
        return self._conjugate_gradients(self._center_within_groups(right_side))

    def _center_within_groups(self, values: Floats) -> Floats:
        means = (self.membership @ values) / self.size[:, None]
        return np.asarray(values - means[self.group])

    def _conjugate_gradients(self, right_side: Floats) -> Floats:
        """Solve for all columns at once, preconditioned by the diagonal."""
        x, residual = np.zeros_like(right_side), right_side.copy()
        z = residual / self.diagonal[:, None]
        direction, product = z.copy(), (residual * z).sum(axis=0)
        limit = _CG_TOLERANCE**2 * np.maximum(product, 1e-300)
        for _ in range(_MAX_CG_ITERATIONS):
            if (product <= limit).all():
                break
            image = self.laplacian @ direction
            curvature = (direction * image).sum(axis=0)
            step = np.divide(product, curvature, out=np.zeros_like(product), where=curvature > 0)
            x += step * direction
            residual -= step * image
            z = residual / self.diagonal[:, None]
            new = (residual * z).sum(axis=0)
            direction = z + np.divide(new, product, out=np.zeros_like(new), where=product > 0) * direction
            product = new
        return self._center_within_groups(x)


def _bias_against_reference(fit: _Effects, max_level_error: float) -> tuple[Floats, Floats, Booleans]:
    """Return biases and errors relative to the reference of each group, and whether that is the experts, by group."""
    expert, group, n_groups = len(fit.bias) - 1, fit.group, len(fit.center)
    people = np.where(np.arange(len(fit.bias)) == expert, 0, fit.n).astype(np.float64)
    total = np.maximum(np.bincount(group, people, n_groups), 1)
    membership = csr_array((people / total[group], (group, np.arange(len(group)))), shape=(n_groups, len(group)))
    correction = np.sqrt(fit.n / np.maximum(fit.n - 1, 1))
    spreads = [(one, np.asarray(membership @ one)) for one in fit.spreads]
    level_error = max(float(np.linalg.norm(center[group[expert]] - one[expert])) for one, center in spreads)
    by_experts = np.zeros(n_groups, bool)
    by_experts[group[expert]] = fit.n[expert] > 1 and level_error <= max_level_error
    use = by_experts[group]
    bias = fit.bias - np.where(use, fit.bias[expert], fit.center[group])
    # A single document that connects two groups has hardly a residual: the pooled one is a lower bound.
    zeros = [np.where(use[:, None], one[expert], center[group]) for one, center in spreads]
    errors = [np.linalg.norm(one - zero, axis=1) for (one, _), zero in zip(spreads, zeros, strict=True)]
    error = np.maximum(*errors)
    n_people = np.bincount(group[:-1][fit.n[:-1] > 0], minlength=n_groups)
    known = (fit.n > 1) & (use | (n_people[group] >= MIN_CONNECTED_ASSESSORS))
    return np.where(known, bias, np.nan), np.where(known, error * correction, np.inf), by_experts
