"""Find families of assessors with correlated errors in their answers.

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

import numpy as np

from crowdrank._typing import Codes, Floats, Integers
from crowdrank.consensus.family_weights import correlation_increments, effective_number
from crowdrank.engine.shards import items_of
from crowdrank.judgments.table import Judgments

MAX_ASSESSORS = 300
"""Maximum number of assessors to compare, the most active ones: the work grows with the third power."""
MIN_COMMON = 30
"""Minimum number of documents that two assessors must have in common to be compared."""
MIN_ERROR_CORRELATION = 0.15
"""Minimum mean error correlation of two families that are joined."""
STANDARD_ERRORS = 4.0
"""Minimum number of standard errors of a correlation above 0 for a family."""
PENALTY = 12.0
"""Half of the increase of the sum of squares, in variances, that a family must explain."""
START_SIZES = (2, 3, 4, 6, 8, 12)
"""Numbers of families in the starts of the search, besides a start without families."""
MAX_ROUNDS = 5
"""Maximum number of alternations from one start."""
MAX_CORRELATION = 0.99
"""Largest correlation in the fit: Fisher's z of 1 is infinite."""
HERMITE_TERMS = 30
"""Number of terms of the series of the covariance of cut normal variables."""
LARGE_FAMILY = 4
"""Minimum size of a family that may take the place of relevance."""
MAX_MOVED = 8
"""Maximum size of a family whose members may move to a larger one."""
MAX_DETECTABLE = 0.7
"""Largest value of the smallest detectable correlation of errors; above it, families are untestable."""


@dataclass(frozen=True, eq=False)
class FoundFamilies:
    """Families found in the answers of assessors.

    Attributes:
        family: family of each assessor, (n_assessors,), in the order of first members; most may have one member.
        finer: finer family of each assessor within its family, (n_assessors,).
        correlation: correlation of the errors of two assessors of the same family, (n_assessors,).
        finer_correlation: that of two assessors of the same finer family, (n_assessors,).
        n_eff: number of independent assessors that all together are worth.
        detectable: smallest correlation of the errors of two assessors that would be noticed.
        untestable: whether assessors have too few documents in common to find families.
        ambiguous: whether the answers do not tell which of two groups is the family; both are then families.
        copies: groups of assessors who gave the same answer to every common document.

    """

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
        """The assessors of each family with two or more members, largest first."""
        sizes = np.bincount(self.family)
        order = np.argsort(-sizes, kind="stable")
        return [np.flatnonzero(self.family == code) for code in order if sizes[code] > 1]


def find_families(judgments: Judgments, expert: Floats | None = None) -> FoundFamilies:
    """Return the families of assessors whose answers are more similar than their reliabilities explain.

    Args:
        judgments: judgments on one scale.
        expert: expert grade of each item, (n_items,), NaN without one; it tells relevance from a shared error.

    >>> from crowdrank import read_judgments, simulate
    >>> world = simulate(queries=40, documents=20, assessors=12, labels=12, families=3, random_state=1)
    >>> [len(group) for group in find_families(read_judgments(world.judgments)).groups]
    [4, 3, 3]

    """
    counts = np.bincount(judgments.assessor, minlength=judgments.n_assessors)
    active = np.sort(np.argsort(-counts, kind="stable")[:MAX_ASSESSORS])
    correlation, common = correlations(judgments, active, expert)
    shares = [np.bincount(judgments.grade[judgments.assessor == one]) for one in active]
    shares += [] if expert is None else [np.bincount(expert[np.isfinite(expert)].astype(np.int64))]
    latent, efficiency = latent_correlations(correlation, shares)
    precision, has_expert = np.where(common >= MIN_COMMON, common - 3.0, 0.0), expert is not None
    search = Search(latent, precision * efficiency, has_expert=has_expert)
    best, untestable = search.run()
    best, ambiguous = (best, False) if untestable else search.check_root(best)
    n = len(active)
    family, finer = (_spread(codes[:n], active, judgments.n_assessors) for codes in (best.top, best.sub))
    rho, finer_rho = np.zeros((2, judgments.n_assessors))
    answers = Search(correlation, precision, has_expert=has_expert)  # weights are those of the answers as given
    top_rho, sub_rho = answers.error_correlations(answers.fit(best.top, best.sub, best.reliability))
    rho[active], finer_rho[active] = top_rho[best.top[:n]], (top_rho[best.top] + sub_rho[best.sub])[:n]
    if ambiguous:
        rho, finer_rho = (np.where(np.bincount(family)[family] > 1, 1.0, 0.0) for _ in range(2))
    is_single = np.bincount(family)[family] == 1
    rho[is_single], finer_rho[is_single] = 0.0, 0.0
    levels = np.stack([family, finer])
    return FoundFamilies(
        family,
        finer,
        rho,
        finer_rho,
        effective_number(levels, correlation_increments(1.0, levels, np.stack([rho, finer_rho]))),
        search.detectable,
        untestable,
        ambiguous,
        copies(judgments, active),
    )


def correlations(judgments: Judgments, assessors: Integers, expert: Floats | None = None) -> tuple[Floats, Floats]:
    """Return the correlation of each two assessors over the items that both judged, and the number of these items.

    Both have the shape (n, n), with an expert (n + 1, n + 1), the expert being the last. The correlation is 0 if one of
    the two gave the same answer to all these items.
    """
    import scipy.sparse

    item, grade = items_of(judgments.offsets), judgments.grade.astype(np.float64)
    shape = (judgments.n_items, judgments.n_assessors)

    def by_item(values: Floats, of_expert: Floats) -> scipy.sparse.csc_array:
        columns = scipy.sparse.coo_array((values, (item, judgments.assessor)), shape=shape).tocsc()[:, assessors]
        if expert is None:
            return columns
        return scipy.sparse.hstack([columns, scipy.sparse.csc_array(of_expert[:, None])], format="csc")

    known = np.zeros(0) if expert is None else np.isfinite(expert).astype(np.float64)
    answer = np.zeros(0) if expert is None else np.nan_to_num(expert)
    judged, grades = by_item(np.ones(len(grade)), known), by_item(grade, answer)
    squares = by_item(grade**2, answer**2)
    common = (judged.T @ judged).toarray()
    n = np.maximum(common, 1.0)
    mean, mean_square = (grades.T @ judged).toarray() / n, (squares.T @ judged).toarray() / n
    covariance = (grades.T @ grades).toarray() / n - mean * mean.T
    variance = np.maximum(mean_square - mean**2, 0.0)
    scale = np.sqrt(variance * variance.T)
    return np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 1e-12), common


def latent_correlations(correlation: Floats, shares: list[Integers]) -> tuple[Floats, Floats]:
    """Return the correlations of the normal variables whose cut values are the grades, and their efficiency, (n, n).

    The covariance of two cut normal variables with correlation rho is the sum over k of rho^k h_k h'_k / k!, where h_k
    is the sum of phi(t) He_(k-1)(t) over the thresholds t (Hermite polynomials). The efficiency is the precision of
    Fisher's z of rho relative to that of a correlation of the same number of uncut variables.

    Args:
        correlation: correlation of the grades, (n, n).
        shares: number of answers with each grade, for each assessor.

    """
    from scipy.special import ndtri

    coefficients = np.zeros((len(shares), HERMITE_TERMS))
    for row, counts in enumerate(shares):
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

    low, high = np.full(correlation.shape, -MAX_CORRELATION), np.full(correlation.shape, MAX_CORRELATION)
    for _ in range(30):
        middle = (low + high) / 2
        is_below = expected(middle) < correlation
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    rho = (low + high) / 2
    slope = (expected(rho + 1e-4) - expected(rho - 1e-4)) / 2e-4
    efficiency = slope * (1 - rho**2) / np.maximum(1 - np.minimum(np.abs(correlation), MAX_CORRELATION) ** 2, 1e-12)
    return rho, np.minimum(efficiency**2, 1.0)


def copies(judgments: Judgments, assessors: Integers) -> tuple[tuple[int, ...], ...]:
    """Return groups of assessors with the same answer to every common document, at least `MIN_COMMON` of them."""
    import scipy.sparse
    from scipy.sparse.csgraph import connected_components

    item, shape = items_of(judgments.offsets), (judgments.n_items, judgments.n_assessors)

    def common(rows: Integers) -> Floats:
        cells = (np.ones(len(rows)), (item[rows], judgments.assessor[rows]))
        judged = scipy.sparse.coo_array(cells, shape=shape).tocsc()[:, assessors]
        return np.asarray((judged.T @ judged).toarray())

    n_common = common(np.arange(len(judgments)))
    equal = sum(common(np.flatnonzero(judgments.grade == grade)) for grade in np.unique(judgments.grade))
    _, group = connected_components((equal == n_common) & (n_common >= MIN_COMMON), directed=False)
    sizes = np.bincount(group)
    return tuple(tuple(assessors[group == code].tolist()) for code in np.flatnonzero(sizes > 1))


def _spread(codes: Codes, active: Integers, n_assessors: int) -> Codes:
    """Return codes of all assessors, in the order of first members; those not compared are alone."""
    spread = len(codes) + np.arange(n_assessors)
    spread[active] = _numbered(codes)
    _, first, number = np.unique(spread, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number].astype(np.int32)


def _numbered(codes: Codes) -> Codes:
    """Return codes without gaps."""
    return np.unique(codes, return_inverse=True)[1].astype(np.int32)


def _indicators(codes: Codes | Integers) -> Floats:
    """Return whether each assessor is in each family, (n, n_families)."""
    return np.asarray(codes[:, None] == np.unique(codes), np.float64)


@dataclass(frozen=True, eq=False)
class Fit:
    """Least-squares fit given families: families, finer families, reliabilities, fitted correlations and the loss."""

    top: Codes
    sub: Codes
    reliability: Floats
    fitted: Floats
    loss: float

    @property
    def penalized_loss(self) -> float:
        """Loss with the penalty of every family and finer family of more than one member."""
        sizes = np.bincount(self.top)
        finer = [code for code in np.unique(self.sub) if 1 < (own := self.sub == code).sum() < sizes[self.top[own][0]]]
        return self.loss + PENALTY * (int((sizes > 1).sum()) + len(finer))

    def without(self, family: int) -> tuple[Codes, Codes]:
        """Return the families without one: its finer families take its place, or its members are alone."""
        rows, n = self.top == family, len(self.top)
        top, sub = self.top.copy(), self.sub.copy()
        top[rows] = n + sub[rows]
        if len(np.unique(sub[rows])) == 1:
            top[rows] = sub[rows] = 2 * n + np.flatnonzero(rows)
        return _numbered(top), _numbered(sub)


class Search:
    """Search for the families that fit the correlations of assessors best.

    Args:
        correlation: (n, n).
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
        _, weight = self.excess(self.single)
        tested = known[np.triu_indices(n, 1)]
        errors = 1 / np.sqrt(np.maximum(weight[np.triu_indices(n, 1)], 1e-12))
        self.detectable = float(STANDARD_ERRORS * np.median(np.where(tested, errors, np.inf))) if n > 1 else np.inf

    def run(self) -> tuple[Fit, bool]:
        """Return the best fit, and whether families are untestable."""
        if self.detectable > MAX_DETECTABLE or len(self.r) < 3:
            return self.single, True
        best = self.single
        seen: set[bytes] = set()
        for top in self.starts():
            one = self.fit(top, top, self.start)
            for _ in range(MAX_ROUNDS):
                families = self.agglomerate(one)
                key = b"".join(codes.tobytes() for codes in families)
                one = self.fit(*families, one.reliability)
                if key in seen:
                    break
                seen.add(key)
            if one.penalized_loss < best.penalized_loss - 1e-6:
                best = one
        return self.move_members(self.join_left_out(self.drop_useless(best))), False

    def starts(self) -> Iterator[Codes]:
        """Yield families to start from: none, and clusters of assessors with similar correlations to the others."""
        from scipy.cluster.hierarchy import fcluster, linkage
        from scipy.spatial.distance import squareform

        n, squares = len(self.r), (self.r**2).sum(axis=1)
        yield np.arange(n, dtype=np.int32)
        norm = np.maximum(squares[:, None] - self.r**2, 1e-9) * np.maximum(squares - self.r**2, 1e-9)
        distance = 1 - np.clip(self.r @ self.r / np.sqrt(norm), -1, 1)
        np.fill_diagonal(distance, 0.0)
        tree = linkage(squareform(distance, checks=False), "average")
        for size in START_SIZES:
            if size < n:
                top = np.where(self.is_expert, 2 * n, fcluster(tree, size, "maxclust"))
                yield _numbered(top)

    def fit(self, top: Codes, sub: Codes, reliability: Floats, *, shared_view: bool = False) -> Fit:
        """Fit reliabilities and the correlations of families by least squares on Fisher's z.

        With `shared_view`, the members of a family are independent given a view of relevance that they share: the term
        of a family is rho l_a l_b instead of rho u_a u_b.
        """
        from scipy.optimize import minimize

        n = len(self.r)
        families, finer = _indicators(top), _indicators(sub)
        sizes, finer_sizes = families.sum(axis=0), finer.sum(axis=0)
        size_above = (finer * sizes[top][:, None]).max(axis=0)
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
        return Fit(top, sub, found.x[:n], model(found.x)[4], float(found.fun))

    def excess(self, fit: Fit) -> tuple[Floats, Floats]:
        """Return the error correlations times their precisions, and the precisions, (n, n) each; 0 for the expert."""
        error = np.sqrt(1 - fit.reliability**2)
        scale = np.outer(error, error)
        weight = self.precision / (1 - fit.fitted**2) ** 2 * ~np.logical_or.outer(self.is_expert, self.is_expert)
        return weight * scale * (self.r - np.outer(fit.reliability, fit.reliability)), weight * scale**2

    def spread(self, fit: Fit) -> float:
        """Return the variance of the residuals in the unit of the sampling variance, at least 1."""
        return max(1.0, float(fit.loss / self.freedom))

    def agglomerate(self, fit: Fit) -> tuple[Codes, Codes]:
        """Return families by average linkage of error correlations, and the best finer families of each."""
        product, weight = self.excess(fit)
        n, top = len(product), np.arange(len(product), dtype=np.int32)
        merges: list[tuple[int, int]] = []
        sums, weights = product.copy(), weight.copy()
        value = _surplus(sums, weights)
        while (best := int(value.argmax())) >= 0 and value.flat[best] > 0:
            keep, drop = sorted(divmod(best, n))
            merges.append((keep, drop))
            top[top == drop] = keep
            for matrix in (sums, weights):
                matrix[keep] += matrix[drop]
                matrix[:, keep] = matrix[keep]
                matrix[drop] = matrix[:, drop] = 0.0
                matrix[keep, keep] = 0.0
            value[keep] = _surplus(sums[keep], weights[keep])
            value[:, keep] = value[keep]
            value[drop] = value[:, drop] = -np.inf
        sub = top.copy()
        for family in np.flatnonzero(np.bincount(top, minlength=n) > 1):
            rows = np.flatnonzero(top == family)
            own = [merge for merge in merges if top[merge[0]] == family]
            block = np.ix_(rows, rows)
            sub[rows] = rows[_finer(product[block], weight[block], rows, own, self.spread(fit))]
        return _numbered(top), _numbered(sub)

    def drop_useless(self, fit: Fit) -> Fit:
        """Return the fit without families that explain nothing."""
        while True:
            families = np.flatnonzero(np.bincount(fit.top) > 1)
            others = [self.fit(*fit.without(int(code)), fit.reliability) for code in families]
            best = min(others, key=lambda one: one.loss, default=None)
            if best is None or best.loss > fit.loss + PENALTY * self.spread(fit):
                return fit
            fit = best

    def join_left_out(self, fit: Fit) -> Fit:
        """Return the fit with single assessors in a large family if that fits better.

        A member that was left out looks reliable instead of similar, so that linkage does not find it.
        """
        for one in np.flatnonzero((np.bincount(fit.top)[fit.top] == 1) & ~self.is_expert):
            others = []
            for code in np.flatnonzero(np.bincount(fit.top) >= LARGE_FAMILY):
                top, sub = fit.top.copy(), fit.sub.copy()
                finer = np.unique(sub[top == code])
                top[one], sub[one] = code, finer[0] if len(finer) == 1 else sub[one]
                others.append(self.fit(_numbered(top), _numbered(sub), fit.reliability))
            best = min(others, key=lambda other: other.loss, default=fit)
            if best.loss < fit.loss - PENALTY / 2 * self.spread(fit):
                fit = best
        return fit

    def move_members(self, fit: Fit) -> Fit:
        """Return a fit without small families if their members fit better alone or in a large family.

        A family may hold single assessors together with a member that was left out of its own family.
        """
        sizes = np.bincount(fit.top)
        if sizes.max() <= MAX_MOVED:
            return fit
        for code in np.flatnonzero((sizes > 1) & (sizes <= MAX_MOVED)):
            other = self.join_left_out(self.fit(*fit.without(int(code)), fit.reliability))
            if other.penalized_loss < fit.penalized_loss:
                return self.move_members(other)
        return fit

    def check_root(self, fit: Fit) -> tuple[Fit, bool]:
        """Return the fit, and whether single assessors may be the family and the family relevance.

        In that case, the families of the result are both. With two or more families besides, their correlations decide.
        """
        alone = (np.bincount(fit.top)[fit.top] == 1) & ~self.is_expert
        families = np.unique(fit.top[~alone & ~self.is_expert])
        if alone.sum() < LARGE_FAMILY or len(families) != 1:
            return fit, False
        n, (family,) = len(fit.top), families
        rows, unit = fit.top == family, PENALTY * self.spread(fit)
        is_sure = self.fit(*fit.without(family), fit.reliability).loss > fit.loss + 4 * unit
        if rows.sum() < LARGE_FAMILY or not is_sure:
            return fit, False
        top, sub = (_numbered(np.where(alone, 2 * n, codes)) for codes in (fit.top, fit.sub))
        both = Fit(top, sub, fit.reliability, fit.fitted, fit.loss)
        other = both.without(top[rows][0])
        losses = [self.fit(*other, fit.reliability, shared_view=view).loss for view in (False, True)]
        if min(losses) > fit.loss + 2.5 * unit:
            return fit, False
        return self.fit(top, sub, fit.reliability), True

    def error_correlations(self, fit: Fit) -> tuple[Floats, Floats]:
        """Return the correlation of errors within each family, and its increase within each finer family."""
        product, weight = self.excess(fit)
        families, finer = _indicators(fit.top), _indicators(fit.sub)
        same = fit.sub[:, None] == fit.sub
        is_flat = np.array([len(np.unique(fit.sub[fit.top == code])) == 1 for code in range(families.shape[1])])
        rho = np.where(
            is_flat, _moments(families, product, weight), _moments(families, product * ~same, weight * ~same)
        )
        above = np.zeros(finer.shape[1], np.int64)
        above[fit.sub] = fit.top
        increase = np.maximum(_moments(finer, product, weight) - rho[above], 0.0)
        return rho, np.where(is_flat[above] | (np.bincount(fit.sub) == 1), 0.0, increase)


def _surplus(sums: Floats, weights: Floats) -> Floats:
    """Return how far the mean error correlation of two families is above the bound for joining them."""
    weights_or_tiny = np.maximum(weights, 1e-12)
    bound = np.maximum(MIN_ERROR_CORRELATION, STANDARD_ERRORS / np.sqrt(weights_or_tiny))
    return np.where(weights > 0, sums / weights_or_tiny - bound, -np.inf)


def _finer(product: Floats, weight: Floats, rows: Integers, merges: list[tuple[int, int]], spread: float) -> Integers:
    """Return the finer families of one family (the place of a member of each) that explain most, or one family.

    Args:
        product: error correlations times precisions of its members, (m, m).
        weight: precisions, (m, m).
        rows: its members, (m,).
        merges: its merges in the order of the linkage.
        spread: variance of the residuals in the unit of the sampling variance.

    """
    place = {int(row): index for index, row in enumerate(rows)}
    part, best, best_gain = np.arange(len(rows)), np.zeros(len(rows), np.int64), 0.0
    for keep, drop in merges[:-1]:
        part[part == place[drop]] = place[keep]
        shares = _indicators(part)
        sums, weights = shares.T @ product @ shares, shares.T @ weight @ shares
        inside = np.diag(weights) > 0
        rho = np.diag(sums)[inside] / np.diag(weights)[inside]
        between, between_weight = sums.sum() - np.trace(sums), max(weights.sum() - np.trace(weights), 1e-12)
        explained = (rho**2 * np.diag(weights)[inside]).sum() + between**2 / between_weight
        gain = (explained - product.sum() ** 2 / weight.sum()) / 2 / spread - PENALTY * inside.sum()
        if gain > best_gain and (rho - between / between_weight > MIN_ERROR_CORRELATION).all():
            best_gain, best = gain, part.copy()
    return best


def _moments(shares: Floats, product: Floats, weight: Floats) -> Floats:
    """Return the mean error correlation within each family."""
    total = np.maximum((shares * (weight @ shares)).sum(axis=0), 1e-12)
    rho: Floats = np.clip((shares * (product @ shares)).sum(axis=0) / total, 0.0, 0.98)
    return rho
