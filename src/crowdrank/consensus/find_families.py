"""Find families: groups of assessors whose answers show correlated errors.

Grades are taken as normal variables cut at thresholds; two strict assessors would otherwise look similar, because both
use few grades. The correlation of these variables of assessors a and b is modeled as

    l_a l_b + (rho_family + rho_finer) u_a u_b,    u = sqrt(1 - l^2),

where l is the reliability (correlation with relevance), rho_family is the correlation of errors within a family, and
rho_finer that within a finer family of it. Least squares on Fisher's z of the observed correlations given the families
alternates with average linkage of error correlations given the reliabilities, from several starts. No consensus is
needed, which would follow the largest family.

Answers alone do not tell everything: if the members of a family are independent given a view that they share, one
family and many single assessors fit as well as a family of these assessors and single members of the first. Such a
result is `ambiguous`, unless expert grades decide: an expert is one more assessor, who is in no family.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._typing import Codes, Floats, Integers
from crowdrank.consensus.family_weights import correlation_increments, effective_n_assessors
from crowdrank.engine.shards import items_of
from crowdrank.judgments.table import Judgments

MAX_ASSESSORS = 300
"""Maximum number of assessors to compare, the most active ones: the work grows with the third power."""
MIN_COMMON_DOCUMENTS = 30
"""Minimum number of documents that two assessors must have in common to be compared."""
MIN_ERROR_CORRELATION = 0.15
"""Minimum mean error correlation of two families that are joined."""
MIN_STANDARD_ERRORS = 4.0
"""Minimum error correlation of two families that are joined, in standard errors."""
FAMILY_PENALTY = 12.0
"""Minimum decrease of the loss (half of a chi-squared statistic) by a family."""
START_FAMILY_COUNTS = (2, 3, 4, 6, 8, 12)
"""Numbers of clusters from which the search starts, besides a start without families."""
MAX_ALTERNATIONS = 5
"""Maximum number of alternations of fit and linkage from one start."""
MAX_CORRELATION = 0.99
"""Largest correlation in the fit: Fisher's z of 1 is infinite."""
HERMITE_TERMS = 30
"""Number of terms of the series of the covariance of cut normal variables."""
MIN_LARGE_FAMILY = 4
"""Minimum number of assessors whose shared errors the model could mistake for relevance."""
MAX_DISSOLVED_SIZE = 8
"""Maximum size of a family that may be dissolved, so that its members can join a larger one."""
MAX_DETECTABLE_CORRELATION = 0.7
"""Maximum of the smallest detectable error correlation; if it is larger, families are untestable."""


@dataclass(frozen=True, eq=False)
class FoundFamilies:
    """Families found in the answers of assessors.

    Attributes:
        assessors: ids of the assessors that were compared.
        family: code of the family of each assessor, (n_assessors,), numbered by first member; an assessor in no
            family has a code of its own.
        finer: code of the finer family (a subset of the family) of each assessor, (n_assessors,).
        correlation: error correlation within the family of each assessor, (n_assessors,).
        finer_correlation: error correlation within the finer family of each assessor, (n_assessors,).
        n_eff: effective number of independent assessors.
        detectable: smallest error correlation of two assessors that the data can show.
        untestable: whether assessors have too few documents in common to find families.
        ambiguous: whether the answers do not tell which of two groups is the family; both are then families.
        copies: groups of assessors who gave the same answer to every common document.

    """

    assessors: pa.Array
    family: Codes
    finer: Codes
    correlation: Floats
    finer_correlation: Floats
    n_eff: float
    detectable: float
    untestable: bool
    ambiguous: bool
    copies: tuple[tuple[int, ...], ...]

    @property
    def groups(self) -> list[Integers]:
        """Indices of the assessors of each family with two or more members, largest family first."""
        sizes = np.bincount(self.family)
        order = np.argsort(-sizes, kind="stable")
        return [np.flatnonzero(self.family == code) for code in order if sizes[code] > 1]

    def to_dict(self) -> dict[str, Any]:
        """Return the families with the ids of their members, and what limits them, as values for JSON."""
        names = self.assessors.to_pylist()
        return {
            "groups": [[names[one] for one in group] for group in self.groups],
            "correlations": [float(self.correlation[group[0]]) for group in self.groups],
            "n_eff": self.n_eff,
            "detectable": self.detectable,
            "untestable": self.untestable,
            "ambiguous": self.ambiguous,
        }


def find_families(judgments: Judgments, expert_grade: Floats | None = None) -> FoundFamilies:
    """Return the families of assessors whose answers are more similar than their reliabilities explain.

    Args:
        judgments: judgments on one scale.
        expert_grade: expert grade of each item, (n_items,), NaN without one; it helps to distinguish relevance from
            shared errors.

    >>> from crowdrank import read_judgments, simulate
    >>> world = simulate(queries=40, documents=20, assessors=12, labels=12, families=3, random_state=1)
    >>> [len(group) for group in find_families(read_judgments(world.judgments)).groups]
    [4, 3, 3]

    """
    counts = np.bincount(judgments.assessor, minlength=judgments.n_assessors)
    active = np.sort(np.argsort(-counts, kind="stable")[:MAX_ASSESSORS])
    correlation, common = assessor_correlations(judgments, active, expert_grade)
    shares = [np.bincount(judgments.grade[judgments.assessor == one]) for one in active]
    shares += [] if expert_grade is None else [np.bincount(expert_grade[np.isfinite(expert_grade)].astype(np.int64))]
    latent, efficiency = latent_correlations(correlation, shares)
    precision, has_expert = np.where(common >= MIN_COMMON_DOCUMENTS, common - 3.0, 0.0), expert_grade is not None
    search = FamilySearch(latent, precision * efficiency, has_expert=has_expert)
    best, untestable = search.run()
    best, ambiguous = (best, False) if untestable else search.check_ambiguity(best)
    n = len(active)
    family, finer = (
        _expand_to_all_assessors(codes[:n], active, judgments.n_assessors)
        for codes in (best.coarse_family, best.fine_family)
    )
    rho, finer_rho = np.zeros((2, judgments.n_assessors))
    answers = FamilySearch(correlation, precision, has_expert=has_expert)  # weights are those of the answers as given
    coarse_rho, fine_rho = answers.error_correlations(
        answers.fit(best.coarse_family, best.fine_family, best.reliability)
    )
    rho[active], finer_rho[active] = (
        coarse_rho[best.coarse_family[:n]],
        (coarse_rho[best.coarse_family] + fine_rho[best.fine_family])[:n],
    )
    if ambiguous:
        rho, finer_rho = (np.where(np.bincount(family)[family] > 1, 1.0, 0.0) for _ in range(2))
    is_single = np.bincount(family)[family] == 1
    rho[is_single], finer_rho[is_single] = 0.0, 0.0
    levels = np.stack([family, finer])
    return FoundFamilies(
        judgments.assessors,
        family,
        finer,
        rho,
        finer_rho,
        effective_n_assessors(levels, correlation_increments(1.0, levels, np.stack([rho, finer_rho]))),
        search.detectable,
        untestable,
        ambiguous,
        find_copies(judgments, active),
    )


def assessor_correlations(
    judgments: Judgments, assessors: Integers, expert_grade: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return the correlation of the grades of each two assessors over common items, and the number of common items.

    Both have the shape (n, n) for n `assessors`; with expert grades (n + 1, n + 1), the expert being the last. The
    correlation is 0 if one of the two gave the same answer to all common items.
    """
    import scipy.sparse

    item, grade = items_of(judgments.offsets), judgments.grade.astype(np.float64)
    shape = (judgments.n_items, judgments.n_assessors)

    def by_item(values: Floats, of_expert: Floats) -> scipy.sparse.csc_array:
        columns = scipy.sparse.coo_array((values, (item, judgments.assessor)), shape=shape).tocsc()[:, assessors]
        if expert_grade is None:
            return columns
        return scipy.sparse.hstack([columns, scipy.sparse.csc_array(of_expert[:, None])], format="csc")

    known = np.zeros(0) if expert_grade is None else np.isfinite(expert_grade).astype(np.float64)
    answer = np.zeros(0) if expert_grade is None else np.nan_to_num(expert_grade)
    judged, grades = by_item(np.ones(len(grade)), known), by_item(grade, answer)
    squares = by_item(grade**2, answer**2)
    common = (judged.T @ judged).toarray()
    n = np.maximum(common, 1.0)
    mean, mean_square = (grades.T @ judged).toarray() / n, (squares.T @ judged).toarray() / n
    covariance = (grades.T @ grades).toarray() / n - mean * mean.T
    variance = np.maximum(mean_square - mean**2, 0.0)
    scale = np.sqrt(variance * variance.T)
    return np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 1e-12), common


def latent_correlations(grade_correlation: Floats, grade_counts: list[Integers]) -> tuple[Floats, Floats]:
    """Return polychoric correlations (of the normal variables behind the grades) and their efficiencies, (n, n) each.

    The covariance of two cut normal variables with correlation rho is the sum over k of rho^k h_k h'_k / k!, where h_k
    is the sum of phi(t) He_(k-1)(t) over the thresholds t (Hermite polynomials). The efficiency is the precision of
    Fisher's z of rho relative to that of a correlation of the same number of uncut variables.

    Args:
        grade_correlation: correlation of the grades, (n, n).
        grade_counts: for each assessor, the number of answers with each grade, (n_grades,).

    """
    from scipy.special import ndtri

    coefficients = np.zeros((len(grade_counts), HERMITE_TERMS))
    for row, counts in enumerate(grade_counts):
        below = np.cumsum(counts)[:-1] / max(counts.sum(), 1)
        threshold = ndtri(below[(below > 0) & (below < 1)])
        before, current = np.zeros_like(threshold), np.exp(-(threshold**2) / 2) / np.sqrt(2 * np.pi)
        grade = np.repeat(np.arange(len(counts)), counts)
        deviation = max(float(grade.std()), 1e-9)
        for k in range(HERMITE_TERMS):  # current: phi(t) He_k(t) / sqrt(k!)
            coefficients[row, k] = current.sum() / np.sqrt(k + 1) / deviation
            before, current = current, (threshold * current - np.sqrt(k) * before) / np.sqrt(k + 1)
    products = coefficients.T[:, :, None] * coefficients.T[:, None, :]

    def expected(rho: Floats) -> Floats:
        value: Floats = np.zeros_like(rho)
        for product in products[::-1]:
            value = (value + product) * rho
        return np.asarray(value)

    low, high = np.full(grade_correlation.shape, -MAX_CORRELATION), np.full(grade_correlation.shape, MAX_CORRELATION)
    for _ in range(30):
        middle = (low + high) / 2
        is_below = expected(middle) < grade_correlation
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    rho = (low + high) / 2
    slope = (expected(rho + 1e-4) - expected(rho - 1e-4)) / 2e-4
    efficiency = (
        slope * (1 - rho**2) / np.maximum(1 - np.minimum(np.abs(grade_correlation), MAX_CORRELATION) ** 2, 1e-12)
    )
    return rho, np.minimum(efficiency**2, 1.0)


def find_copies(judgments: Judgments, assessors: Integers) -> tuple[tuple[int, ...], ...]:
    """Return groups of assessors who gave equal answers to all of at least `MIN_COMMON_DOCUMENTS` common documents."""
    import scipy.sparse
    from scipy.sparse.csgraph import connected_components

    item, shape = items_of(judgments.offsets), (judgments.n_items, judgments.n_assessors)

    def common(rows: Integers) -> Floats:
        cells = (np.ones(len(rows)), (item[rows], judgments.assessor[rows]))
        judged = scipy.sparse.coo_array(cells, shape=shape).tocsc()[:, assessors]
        return np.asarray((judged.T @ judged).toarray())

    n_common = common(np.arange(len(judgments)))
    equal = sum(common(np.flatnonzero(judgments.grade == grade)) for grade in np.unique(judgments.grade))
    _, group = connected_components((equal == n_common) & (n_common >= MIN_COMMON_DOCUMENTS), directed=False)
    sizes = np.bincount(group)
    return tuple(tuple(assessors[group == code].tolist()) for code in np.flatnonzero(sizes > 1))


def _expand_to_all_assessors(codes: Codes, compared: Integers, n_assessors: int) -> Codes:
    """Return family codes of all assessors from those of the `compared` ones; each other assessor is alone in a family.

    Families are numbered by first member.
    """
    spread = len(codes) + np.arange(n_assessors)
    spread[compared] = _renumber(codes)
    _, first, number = np.unique(spread, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number].astype(np.int32)


def _renumber(codes: Codes) -> Codes:
    """Return the codes renumbered from 0 without gaps."""
    return np.unique(codes, return_inverse=True)[1].astype(np.int32)


def _membership_matrix(codes: Codes | Integers) -> Floats:
    """Return 1.0 where an assessor is in a family, else 0.0, (n, n_families)."""
    return np.asarray(codes[:, None] == np.unique(codes), np.float64)


@dataclass(frozen=True, eq=False)
class FamilyFit:
    """Least-squares fit of the correlations of assessors, given their families.

    Attributes:
        coarse_family: code of the family of each assessor, (n,).
        fine_family: code of the finer family of each assessor, (n,).
        reliability: correlation of each assessor with relevance, (n,).
        fitted: fitted correlation of each two assessors, (n, n).
        loss: half of the weighted sum of squared residuals of Fisher's z.

    """

    coarse_family: Codes
    fine_family: Codes
    reliability: Floats
    fitted: Floats
    loss: float

    @property
    def penalized_loss(self) -> float:
        """Loss plus `FAMILY_PENALTY` for every family and finer family of two or more members."""
        sizes = np.bincount(self.coarse_family)
        finer = [
            code
            for code in np.unique(self.fine_family)
            if 1 < (own := self.fine_family == code).sum() < sizes[self.coarse_family[own][0]]
        ]
        return self.loss + FAMILY_PENALTY * (int((sizes > 1).sum()) + len(finer))

    def without(self, family: int) -> tuple[Codes, Codes]:
        """Return family codes without one family, which is split into its finer families or into single assessors."""
        rows, n = self.coarse_family == family, len(self.coarse_family)
        coarse_family, fine_family = self.coarse_family.copy(), self.fine_family.copy()
        coarse_family[rows] = n + fine_family[rows]
        if len(np.unique(fine_family[rows])) == 1:
            coarse_family[rows] = fine_family[rows] = 2 * n + np.flatnonzero(rows)
        return _renumber(coarse_family), _renumber(fine_family)


class FamilySearch:
    """Search for the families that fit the correlations of assessors best.

    Args:
        correlation: correlation of each two assessors, (n, n).
        precision: precision of Fisher's z of the correlations, (n, n); 0 for assessors who are not compared.
        has_expert: the last assessor is an expert, who is in no family.

    """

    def __init__(self, correlation: Floats, precision: Floats, *, has_expert: bool) -> None:
        n = len(correlation)
        known = (precision > 0) & ~np.eye(n, dtype=bool)
        self.r = np.where(known, np.clip(correlation, -MAX_CORRELATION, MAX_CORRELATION), 0.0)
        self.z, self.precision = np.arctanh(self.r), np.where(known, precision, 0.0)
        self.freedom = max(known.sum() / 2 - n, 1.0)
        self.is_expert = np.zeros(n, dtype=bool)
        self.is_expert[n - has_expert :] = True
        total = np.maximum(self.precision.sum(axis=1), 1e-9)
        self.start = np.sqrt(np.clip((self.precision * self.r).sum(axis=1) / total, 0.05, 0.9))
        alone = np.arange(n, dtype=np.int32)
        self.single = self.fit(alone, alone, self.start)
        _, weight = self.error_correlation_sums(self.single)
        tested = known[np.triu_indices(n, 1)]
        errors = 1 / np.sqrt(np.maximum(weight[np.triu_indices(n, 1)], 1e-12))
        self.detectable = float(MIN_STANDARD_ERRORS * np.median(np.where(tested, errors, np.inf))) if n > 1 else np.inf

    def run(self) -> tuple[FamilyFit, bool]:
        """Return the best fit, and whether families are untestable because of too few common documents."""
        if self.detectable > MAX_DETECTABLE_CORRELATION or len(self.r) < 3:
            return self.single, True
        best = self.single
        seen: set[bytes] = set()
        for coarse_family in self.starts():
            one = self.fit(coarse_family, coarse_family, self.start)
            for _ in range(MAX_ALTERNATIONS):
                families = self.agglomerate(one)
                key = b"".join(codes.tobytes() for codes in families)
                one = self.fit(*families, one.reliability)
                if key in seen:
                    break
                seen.add(key)
            if one.penalized_loss < best.penalized_loss - 1e-6:
                best = one
        return self.dissolve_small_families(self.join_single_assessors(self.drop_useless_families(best))), False

    def starts(self) -> Iterator[Codes]:
        """Yield family codes, (n,), to start from: no families, then clusters of similar correlations."""
        from scipy.cluster.hierarchy import fcluster, linkage
        from scipy.spatial.distance import squareform

        n, squares = len(self.r), (self.r**2).sum(axis=1)
        yield np.arange(n, dtype=np.int32)
        norm = np.maximum(squares[:, None] - self.r**2, 1e-9) * np.maximum(squares - self.r**2, 1e-9)
        distance = 1 - np.clip(self.r @ self.r / np.sqrt(norm), -1, 1)
        np.fill_diagonal(distance, 0.0)
        tree = linkage(squareform(distance, checks=False), "average")
        for size in START_FAMILY_COUNTS:
            if size < n:
                coarse_family = np.where(self.is_expert, 2 * n, fcluster(tree, size, "maxclust"))
                yield _renumber(coarse_family)

    def fit(
        self, coarse_family: Codes, fine_family: Codes, reliability: Floats, *, shared_view: bool = False
    ) -> FamilyFit:
        """Fit reliabilities and the correlations of families by least squares on Fisher's z.

        With `shared_view`, the members of a family are independent given a latent variable of the family: its term is
        rho l_a l_b instead of rho u_a u_b.
        """
        from scipy.optimize import minimize

        n = len(self.r)
        families, finer = _membership_matrix(coarse_family), _membership_matrix(fine_family)
        sizes, finer_sizes = families.sum(axis=0), finer.sum(axis=0)
        size_above = (finer * sizes[coarse_family][:, None]).max(axis=0)
        shares = np.hstack([families[:, sizes > 1], finer[:, (finer_sizes > 1) & (finer_sizes < size_above)]])

        def model(values: Floats) -> tuple[Floats, ...]:
            loading = values[:n]
            error = np.sqrt(1 - loading**2)
            base = loading if shared_view else error
            within = (shares * values[n:]) @ shares.T
            fitted = np.outer(loading, loading) + within * np.outer(base, base)
            return loading, error, base, within, np.minimum(fitted, MAX_CORRELATION)

        def loss(values: Floats) -> tuple[float, Floats]:
            loading, error, base, within, fitted = model(values)
            gap = self.z - np.arctanh(fitted)
            pull = self.precision * gap / (1 - fitted**2) * (fitted < MAX_CORRELATION)
            slope = pull @ loading + (within * pull) @ base * (1.0 if shared_view else -loading / error)
            by_family = (shares * ((pull * np.outer(base, base)) @ shares)).sum(axis=0)
            return 0.5 * float((self.precision * gap**2).sum()), np.concatenate([-2 * slope, -by_family])

        found = minimize(
            loss,
            np.append(reliability, np.full(shares.shape[1], 0.2)),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.02, 0.98)] * n + [(0.0, 9.0 if shared_view else 0.97)] * shares.shape[1],
            options={"maxiter": 120, "ftol": 1e-6},
        )
        return FamilyFit(coarse_family, fine_family, found.x[:n], model(found.x)[4], float(found.fun))

    def error_correlation_sums(self, fit: FamilyFit) -> tuple[Floats, Floats]:
        """Return precision * error correlation and precision of each two assessors, (n, n) each; 0 for the expert."""
        error = np.sqrt(1 - fit.reliability**2)
        scale = np.outer(error, error)
        weight = self.precision / (1 - fit.fitted**2) ** 2 * ~np.logical_or.outer(self.is_expert, self.is_expert)
        return weight * scale * (self.r - np.outer(fit.reliability, fit.reliability)), weight * scale**2

    def residual_variance(self, fit: FamilyFit) -> float:
        """Return the variance of the residuals divided by their sampling variance, at least 1."""
        return max(1.0, float(fit.loss / self.freedom))

    def agglomerate(self, fit: FamilyFit) -> tuple[Codes, Codes]:
        """Return family codes by average linkage of error correlations, and codes of the best finer families."""
        product, weight = self.error_correlation_sums(fit)
        n, coarse_family = len(product), np.arange(len(product), dtype=np.int32)
        merges: list[tuple[int, int]] = []
        sums, weights = product.copy(), weight.copy()
        value = _excess_over_bound(sums, weights)
        while (best := int(value.argmax())) >= 0 and value.flat[best] > 0:
            keep, drop = sorted(divmod(best, n))
            merges.append((keep, drop))
            coarse_family[coarse_family == drop] = keep
            for matrix in (sums, weights):
                matrix[keep] += matrix[drop]
                matrix[:, keep] = matrix[keep]
                matrix[drop] = matrix[:, drop] = 0.0
                matrix[keep, keep] = 0.0
            value[keep] = _excess_over_bound(sums[keep], weights[keep])
            value[:, keep] = value[keep]
            value[drop] = value[:, drop] = -np.inf
        fine_family = coarse_family.copy()
        for family in np.flatnonzero(np.bincount(coarse_family, minlength=n) > 1):
            rows = np.flatnonzero(coarse_family == family)
            own = [merge for merge in merges if coarse_family[merge[0]] == family]
            block = np.ix_(rows, rows)
            fine_family[rows] = rows[
                _best_finer_families(product[block], weight[block], rows, own, self.residual_variance(fit))
            ]
        return _renumber(coarse_family), _renumber(fine_family)

    def drop_useless_families(self, fit: FamilyFit) -> FamilyFit:
        """Return the fit without families whose removal increases the loss by less than the penalty."""
        while True:
            families = np.flatnonzero(np.bincount(fit.coarse_family) > 1)
            others = [self.fit(*fit.without(int(code)), fit.reliability) for code in families]
            best = min(others, key=lambda one: one.loss, default=None)
            if best is None or best.loss > fit.loss + FAMILY_PENALTY * self.residual_variance(fit):
                return fit
            fit = best

    def join_single_assessors(self, fit: FamilyFit) -> FamilyFit:
        """Return the fit after moving single assessors into a large family where that lowers the loss enough.

        Linkage misses such members: outside of its family, a member seems reliable instead of correlated.
        """
        for one in np.flatnonzero((np.bincount(fit.coarse_family)[fit.coarse_family] == 1) & ~self.is_expert):
            others = []
            for code in np.flatnonzero(np.bincount(fit.coarse_family) >= MIN_LARGE_FAMILY):
                coarse_family, fine_family = fit.coarse_family.copy(), fit.fine_family.copy()
                finer = np.unique(fine_family[coarse_family == code])
                coarse_family[one], fine_family[one] = code, finer[0] if len(finer) == 1 else fine_family[one]
                others.append(self.fit(_renumber(coarse_family), _renumber(fine_family), fit.reliability))
            best = min(others, key=lambda other: other.loss, default=fit)
            if best.loss < fit.loss - FAMILY_PENALTY / 2 * self.residual_variance(fit):
                fit = best
        return fit

    def dissolve_small_families(self, fit: FamilyFit) -> FamilyFit:
        """Return a fit without those small families whose members fit better alone or in a large family.

        Linkage may join single assessors with a member of a large family.
        """
        sizes = np.bincount(fit.coarse_family)
        if sizes.max() <= MAX_DISSOLVED_SIZE:
            return fit
        for code in np.flatnonzero((sizes > 1) & (sizes <= MAX_DISSOLVED_SIZE)):
            other = self.join_single_assessors(self.fit(*fit.without(int(code)), fit.reliability))
            if other.penalized_loss < fit.penalized_loss:
                return self.dissolve_small_families(other)
        return fit

    def check_ambiguity(self, fit: FamilyFit) -> tuple[FamilyFit, bool]:
        """Return the fit, and whether it is ambiguous: the single assessors may be the family instead.

        With one family and many single assessors, the latent variable that the model takes for relevance may be the
        shared error of the single assessors. If both readings fit, both groups are families of the result. With two or
        more families there is no such ambiguity.
        """
        alone = (np.bincount(fit.coarse_family)[fit.coarse_family] == 1) & ~self.is_expert
        families = np.unique(fit.coarse_family[~alone & ~self.is_expert])
        if alone.sum() < MIN_LARGE_FAMILY or len(families) != 1:
            return fit, False
        n, (family,) = len(fit.coarse_family), families
        rows, unit = fit.coarse_family == family, FAMILY_PENALTY * self.residual_variance(fit)
        is_sure = self.fit(*fit.without(family), fit.reliability).loss > fit.loss + 4 * unit
        if rows.sum() < MIN_LARGE_FAMILY or not is_sure:
            return fit, False
        coarse_family, fine_family = (
            _renumber(np.where(alone, 2 * n, codes)) for codes in (fit.coarse_family, fit.fine_family)
        )
        both = FamilyFit(coarse_family, fine_family, fit.reliability, fit.fitted, fit.loss)
        other = both.without(coarse_family[rows][0])
        losses = [self.fit(*other, fit.reliability, shared_view=view).loss for view in (False, True)]
        if min(losses) > fit.loss + 2.5 * unit:
            return fit, False
        return self.fit(coarse_family, fine_family, fit.reliability), True

    def error_correlations(self, fit: FamilyFit) -> tuple[Floats, Floats]:
        """Return the error correlation within each family, (n_families,), and its increase within each finer family."""
        product, weight = self.error_correlation_sums(fit)
        families, finer = _membership_matrix(fit.coarse_family), _membership_matrix(fit.fine_family)
        same = fit.fine_family[:, None] == fit.fine_family
        is_flat = np.array(
            [len(np.unique(fit.fine_family[fit.coarse_family == code])) == 1 for code in range(families.shape[1])]
        )
        rho = np.where(
            is_flat,
            _mean_error_correlations(families, product, weight),
            _mean_error_correlations(families, product * ~same, weight * ~same),
        )
        above = np.zeros(finer.shape[1], np.int64)
        above[fit.fine_family] = fit.coarse_family
        increase = np.maximum(_mean_error_correlations(finer, product, weight) - rho[above], 0.0)
        return rho, np.where(is_flat[above] | (np.bincount(fit.fine_family) == 1), 0.0, increase)


def _excess_over_bound(weighted_sums: Floats, weights: Floats) -> Floats:
    """Return the mean error correlation of two families minus the bound for joining them; -inf without common data."""
    weights_or_tiny = np.maximum(weights, 1e-12)
    bound = np.maximum(MIN_ERROR_CORRELATION, MIN_STANDARD_ERRORS / np.sqrt(weights_or_tiny))
    return np.where(weights > 0, weighted_sums / weights_or_tiny - bound, -np.inf)


def _best_finer_families(
    weighted_correlation: Floats,
    weight: Floats,
    members: Integers,
    merges: list[tuple[int, int]],
    residual_ratio: float,
) -> Integers:
    """Return the split of a family into finer families that explains most, or zeros for no split, (m,).

    The finer family of a member is given as the position of one of its members.

    Args:
        weighted_correlation: precision * error correlation of each two members, (m, m).
        weight: precisions, (m, m).
        members: indices of the members, (m,).
        merges: pairs of members that the linkage joined, in its order.
        residual_ratio: variance of the residuals divided by their sampling variance.

    """
    place = {int(row): index for index, row in enumerate(members)}
    part, best, best_gain = np.arange(len(members)), np.zeros(len(members), np.int64), 0.0
    for keep, drop in merges[:-1]:
        part[part == place[drop]] = place[keep]
        shares = _membership_matrix(part)
        sums, weights = shares.T @ weighted_correlation @ shares, shares.T @ weight @ shares
        inside = np.diag(weights) > 0
        rho = np.diag(sums)[inside] / np.diag(weights)[inside]
        between, between_weight = sums.sum() - np.trace(sums), max(weights.sum() - np.trace(weights), 1e-12)
        explained = (rho**2 * np.diag(weights)[inside]).sum() + between**2 / between_weight
        gain = (
            explained - weighted_correlation.sum() ** 2 / weight.sum()
        ) / 2 / residual_ratio - FAMILY_PENALTY * inside.sum()
        if gain > best_gain and (rho - between / between_weight > MIN_ERROR_CORRELATION).all():
            best_gain, best = gain, part.copy()
    return best


def _mean_error_correlations(membership: Floats, weighted_correlation: Floats, weight: Floats) -> Floats:
    """Return the precision-weighted mean error correlation within each family, (n_families,)."""
    total = np.maximum((membership * (weight @ membership)).sum(axis=0), 1e-12)
    rho: Floats = np.clip((membership * (weighted_correlation @ membership)).sum(axis=0) / total, 0.0, 0.98)
    return rho
