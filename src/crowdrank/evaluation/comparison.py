"""Compare runs with a baseline: means, differences with intervals, significance tests and effect sizes.

Values are paired by query; pairs with a NaN (an excluded query) are dropped. All columns of differences share the same
random signs and resamples, so that testing several runs together gives the same result as testing each alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from crowdrank._estimator import require_one_of
from crowdrank._text import counted, heading, html_table, panel, paragraph
from crowdrank._typing import Floats
from crowdrank.errors import DataWarning, Message, UsageError, near
from crowdrank.evaluation.evaluate import (
    EXPECTED_GRADES_NOTE,
    GOLD_USED_FEATURES_NOTE,
    Conventions,
    Evaluation,
    NoRelevant,
    Ties,
    Unjudged,
    align_for_measures,
    as_gold,
    as_run,
    evaluate_alignment,
    load_gold,
    unjudged_fixes,
    used_features,
)
from crowdrank.evaluation.measures import Measure, parse_measures
from crowdrank.evaluation.residual import leave_out_used
from crowdrank.judgments.frames import frame_library, from_arrow

_MAX_VALUES_PER_BLOCK = 2**20
"""Maximum number of values in memory in one block of resamples or sign vectors."""
_ROUNDING_TOLERANCE = 1e-12
"""Relative tolerance for rounding errors of sums."""
MAX_JUDGED_DIFFERENCE = 0.01
"""Maximum difference in Judged@k between runs without a warning."""
_N_RESAMPLES = 10_000
_TEST_DESCRIPTIONS = {
    "fisher": f"Fisher's randomization test, two-sided "
    f"({_N_RESAMPLES:,} random sign changes, or all if there are fewer)",
    "t": "the paired t-test, two-sided",
}


@dataclass(frozen=True)
class Comparison:
    """Comparison of runs with a baseline.

    Attributes:
        evaluations: the Evaluation of each run.
        baseline: name of the run that the others are compared with.
        test: 'fisher' or 't'.
        alpha: significance level.
        rows: `details` as an Arrow table.
        other_rows: the same with the other treatment of documents without gold (`unjudged`); None if every ranked
            document has gold.
        warnings: kind `judged-differs` if the runs differ in Judged@k, kind `depends-on-unjudged` for each run whose
            sign or significance changes with the treatment of documents without gold.

    >>> import pandas as pd
    >>> gold = pd.DataFrame({"query": [1, 1, 2, 2], "document": [1, 2, 1, 2], "grade": [1, 0, 0, 1]})
    >>> good, bad = gold.assign(score=gold.grade), gold.assign(score=-gold.grade)
    >>> comparison = compare({"bad": bad, "good": good}, gold, "RR")
    >>> comparison.table
        run   RR  Judged@10
    0   bad  0.5        1.0
    1  good  1.0        1.0
    >>> comparison.to_dict()["details"][1]["p"]
    0.5

    """

    evaluations: dict[str, Evaluation]
    baseline: str
    test: str
    alpha: float
    rows: pa.Table
    other_rows: pa.Table | None = None
    warnings: tuple[Message, ...] = ()

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures, in the order of the columns of `table`."""
        return self._first_evaluation.measures

    @property
    def table(self) -> Any:
        """One row per run: its name, the mean of each measure, and Judged@k."""
        rows = [{"run": run, **one.judged, **one.means} for run, one in self.evaluations.items()]
        names = list(dict.fromkeys(["run", *self._first_evaluation.means, *self._first_evaluation.judged]))
        return self._to_frame(pa.Table.from_pylist(rows).select(names))

    @property
    def details(self) -> Any:
        """One row per measure and run.

        Columns: measure, run, mean; queries (paired with the baseline), difference (to the baseline), lower and upper
        (of its interval), p, p_holm (adjusted over the runs of the measure), effect_size, significant, best,
        depends_on_unjudged (whether the sign or the significance changes with the treatment of documents without gold).
        """
        return self._to_frame(self.rows)

    @property
    def per_query(self) -> Any:
        """One row per run and query with the value of each measure."""
        tables = [
            evaluation.per_query.add_column(0, "run", pa.repeat(run, evaluation.per_query.num_rows))
            for run, evaluation in self.evaluations.items()
        ]
        return self._to_frame(pa.concat_tables(tables))

    def _repr_html_(self) -> str:
        names = ["measure", "run", "mean", "difference", "lower", "upper", "p", "p_holm", "significant"]
        rows = [{name: row[name] for name in names} for row in self.rows.to_pylist()]
        text = f"{len(self.evaluations)} runs; differences are to {self.baseline}; {_TEST_DESCRIPTIONS[self.test]}"
        tables = [html_table([row for row in rows if row["measure"] == str(one)], names) for one in self.measures]
        return panel(heading("Comparison"), paragraph(text), *map(paragraph, map(str, self.warnings)), *tables)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison without the values per query, ready for JSON; NaN becomes None.

        >>> import pandas as pd
        >>> frame = pd.DataFrame({"document": ["a", "b"], "score": [2, 1], "grade": [1, 0]})
        >>> compare({"mine": frame}, frame, "AP").to_dict()["means"]
        {'mine': {'AP': 1.0}}
        """
        return {
            "baseline": self.baseline,
            "test": self.test,
            "alpha": self.alpha,
            "measures": [str(measure) for measure in self.measures],
            "means": {run: without_nan(evaluation.means) for run, evaluation in self.evaluations.items()},
            "judged": {run: without_nan(evaluation.judged) for run, evaluation in self.evaluations.items()},
            "details": [without_nan(row) for row in self.rows.to_pylist()],
            "warnings": [{"kind": warning.kind, "problem": warning.problem} for warning in self.warnings],
            "protocol": self.protocol(),
        }

    def protocol(self) -> list[str]:
        """Describe in sentences how the comparison was made.

        >>> import pandas as pd
        >>> frame = pd.DataFrame({"document": ["a", "b"], "score": [2, 1], "grade": [1, 0]})
        >>> compare({"mine": frame, "other": frame}, frame, "AP").protocol()[0]
        "2 runs are compared on 1 query with gold; differences are to 'mine'."
        """
        queries, verb = (
            counted(self._first_evaluation.counts.queries, "query"),
            "is" if len(self.evaluations) == 1 else "are",
        )
        return [
            f"{counted(len(self.evaluations), 'run')} {verb} compared on {queries} with gold; differences are to "
            f"'{self.baseline}'.",
            *self._first_evaluation.used_notes(),
            "Runs are paired query by query; a query that a run lacks counts 0.",
            *self._first_evaluation.conventions.sentences(self.measures),
            *([EXPECTED_GRADES_NOTE] if self._first_evaluation.expected_grades else []),
            f"p is the p-value of {_TEST_DESCRIPTIONS[self.test]}.",
            "p_holm is p adjusted by Holm's method over the runs of each measure; "
            f"a difference with p_holm of at most {self.alpha:g} is significant.",
            f"Intervals of level {1 - self.alpha:.4g} hold the mean differences that the test does not reject.",
            "The effect size is the mean difference divided by the standard deviation of the differences.",
            *([GOLD_USED_FEATURES_NOTE] if self._first_evaluation.gold_used_features else []),
        ]

    @property
    def _first_evaluation(self) -> Evaluation:
        return next(iter(self.evaluations.values()))

    def _to_frame(self, table: pa.Table) -> Any:
        return from_arrow(table, self._first_evaluation.backend)


def compare(
    runs: Mapping[str, Any],
    gold: Any,
    measures: str | Measure | Iterable[str | Measure],
    *,
    baseline: str | None = None,
    test: str = "fisher",
    alpha: float = 0.05,
    random_state: int = 0,
    ties: Ties = "expected",
    unjudged: Unjudged = "nonrelevant",
    no_relevant: NoRelevant = "skip",
) -> Comparison:
    """Evaluate runs and test their differences to a baseline.

    Issues a :class:`crowdrank.errors.DataWarning` for each entry of `Comparison.warnings`.

    Args:
        runs: DataFrames, paths or consensuses by name.
        gold: as in :func:`crowdrank.evaluation.evaluate`, as are all parameters after `random_state`.
        measures: measures or their names.
        baseline: name of a run, by default the first.
        test: 'fisher' (randomization test) or 't' (paired t-test).
        alpha: significance level; intervals have the level 1 - alpha.
        random_state: random seed of the randomization test and the intervals.
        ties: as in :func:`crowdrank.evaluation.evaluate`.
        unjudged: likewise.
        no_relevant: likewise.

    Returns:
        Means, differences, intervals, p-values and effect sizes.

    >>> import pandas as pd
    >>> gold = pd.DataFrame({"query": [1, 1, 2, 2], "document": [1, 2, 1, 2], "grade": [1, 0, 0, 1]})
    >>> good, bad = gold.assign(score=gold.grade), gold.assign(score=-gold.grade)
    >>> details = compare({"bad": bad, "good": good}, gold, "RR").details
    >>> details[["run", "mean", "difference", "p_holm", "significant", "best"]]
        run  mean  difference  p_holm  significant   best
    0   bad   0.5         0.0     NaN        False  False
    1  good   1.0         0.5     0.5        False   True

    """
    baseline = _check_arguments(runs, baseline, test, alpha)
    parsed, conventions = parse_measures(measures), Conventions(ties, unjudged, no_relevant)
    other_conventions = replace(conventions, unjudged="nonrelevant" if unjudged == "skip" else "skip")
    gold = load_gold(gold)
    by_features, gold = used_features(gold), as_gold(gold)
    frames = {str(name): as_run(run) for name, run in runs.items()}
    residual = leave_out_used(frames, gold)
    aligned = {name: align_for_measures(frame, residual.gold, parsed, ties) for name, frame in residual.runs.items()}

    def compare_with(chosen: Conventions) -> Comparison:
        evaluations = {
            name: replace(
                evaluate_alignment(one, parsed, chosen, frame_library(frames[name])),
                gold_used_features=by_features,
                n_gold_used=residual.n_left_out,
            )
            for name, one in aligned.items()
        }
        return compare_evaluations(evaluations, baseline=baseline, test=test, alpha=alpha, random_state=random_state)

    comparison = compare_with(conventions)
    if all(one.ranking.judged.all() for one in aligned.values()):
        return comparison
    other_rows = compare_with(other_conventions).rows
    comparison = _with_unjudged_check(comparison, other_rows, other_conventions.unjudged)
    for message in comparison.warnings:
        warnings.warn(DataWarning(message), stacklevel=2)
    return comparison


def compare_evaluations(
    evaluations: Mapping[str, Evaluation],
    *,
    baseline: str | None = None,
    test: str = "fisher",
    alpha: float = 0.05,
    random_state: int = 0,
) -> Comparison:
    """Compare runs that are evaluated already, all against the same gold; see :func:`compare`.

    The treatment of documents without gold is not checked, because evaluations have only one of the two.

    >>> import pandas as pd
    >>> from crowdrank.evaluation.evaluate import evaluate
    >>> gold = pd.DataFrame({"query": [1, 1, 2, 2], "document": [1, 2, 1, 2], "grade": [1, 0, 0, 1]})
    >>> bad, good = (evaluate(gold.assign(score=sign * gold.grade), gold, "RR") for sign in (-1, 1))
    >>> compare_evaluations({"bad": bad, "good": good}).to_dict()["details"][1]["difference"]
    0.5
    """
    baseline = _check_arguments(evaluations, baseline, test, alpha)
    first = next(iter(evaluations.values()))
    for run, evaluation in evaluations.items():
        alike = evaluation.measures == first.measures and evaluation.per_query["query"] == first.per_query["query"]
        if not alike:
            raise UsageError(f"the run '{run}' was evaluated with other measures or on other queries than the first")
    rows = _detail_rows(dict(evaluations), baseline, test=test, alpha=alpha, random_state=random_state)
    return Comparison(dict(evaluations), baseline, test, float(alpha), pa.Table.from_pylist(rows))


def _check_arguments(runs: Mapping[str, Any], baseline: str | None, test: str, alpha: float) -> str:
    baseline = choose_baseline(runs, baseline)
    require_one_of("test", test, _TEST_DESCRIPTIONS)
    if not 0 < alpha < 1:
        raise UsageError(f"must be between 0 and 1, such as 0.05, not {alpha}", parameter="alpha")
    return baseline


def choose_baseline(runs: Mapping[str, Any], baseline: str | None) -> str:
    """Return the name of the baseline, by default the first run; raise UsageError if there is no such run.

    >>> choose_baseline({"old": None, "new": None}, None)
    'old'
    """
    if not isinstance(runs, Mapping) or not runs:
        raise UsageError("must be a mapping of names to DataFrames with at least one run", parameter="runs")
    names = [str(run) for run in runs]
    if baseline is not None and baseline not in names:
        known = f"one of the runs ({', '.join(names)})"
        raise UsageError(f"must be {known}, not {baseline!r}{near(baseline, names)}", parameter="baseline")
    return names[0] if baseline is None else baseline


def _detail_rows(
    evaluations: dict[str, Evaluation], baseline: str, *, test: str, alpha: float, random_state: int
) -> list[dict[str, Any]]:
    base = evaluations[baseline]
    pairs = [(measure, run) for measure in base.measures for run in evaluations]
    differences = np.column_stack([evaluations[run].values(measure) - base.values(measure) for measure, run in pairs])
    p, intervals = _p_values_and_intervals(differences, test, 1 - alpha, random_state)
    is_baseline = np.array([run == baseline for _, run in pairs])
    p[is_baseline], intervals[is_baseline] = np.nan, np.nan
    adjusted = np.concatenate([holm(part) for part in np.split(p, len(base.measures))])
    rows = []
    for column, (measure, run) in enumerate(pairs):
        paired = differences[~np.isnan(differences[:, column]), column]
        lower, upper = intervals[column].tolist()
        rows.append(
            {
                "measure": str(measure),
                "run": run,
                "mean": evaluations[run].means[str(measure)],
                "queries": paired.size,
                "difference": float(paired.mean()) if paired.size else float("nan"),
                "lower": lower,
                "upper": upper,
                "p": float(p[column]),
                "p_holm": float(adjusted[column]),
                "effect_size": float("nan") if run == baseline else effect_size(paired, np.zeros(paired.size)),
                "significant": bool(adjusted[column] <= alpha),
                "best": run in _best_runs(measure, evaluations),
                "depends_on_unjudged": False,
            }
        )
    return rows


def _best_runs(measure: Measure, evaluations: dict[str, Evaluation]) -> set[str]:
    means = {run: evaluation.means[str(measure)] for run, evaluation in evaluations.items()}
    known = [mean for mean in means.values() if not math.isnan(mean)]
    if not known:
        return set()
    top = max(known) if measure.higher_is_better else min(known)
    return {run for run, mean in means.items() if mean == top}


def _p_values_and_intervals(
    differences: Floats, test: str, confidence_level: float, random_state: int
) -> tuple[Floats, Floats]:
    """Return the p-value of each column (n_columns,) and its interval (n_columns, 2).

    Columns with values for the same queries share their resamples.
    """
    p, intervals = np.ones(differences.shape[1]), np.full((differences.shape[1], 2), np.nan)
    present = ~np.isnan(differences)
    groups: dict[bytes, list[int]] = {}
    for column in range(differences.shape[1]):
        groups.setdefault(present[:, column].tobytes(), []).append(column)
    for columns in groups.values():
        part = differences[present[:, columns[0]]][:, columns]
        if test == "fisher":
            sampling: dict[str, int] = {"n": _N_RESAMPLES, "random_state": random_state}
            p[columns] = fisher_p_values(part, **sampling)
            intervals[columns] = difference_intervals(part, level=confidence_level, **sampling)
        else:
            p[columns] = [paired_t(column, np.zeros(len(column))) for column in part.T]
            intervals[columns] = _t_intervals(part, confidence_level)
    return p, intervals


def _with_unjudged_check(comparison: Comparison, other_rows: pa.Table, other_unjudged: str) -> Comparison:
    """Add the rows with the other treatment of documents without gold, and warnings where it matters."""
    changed = [
        _significant_sign(row) != _significant_sign(other)
        for row, other in zip(comparison.rows.to_pylist(), other_rows.to_pylist(), strict=True)
    ]
    column = comparison.rows.column_names.index("depends_on_unjudged")
    rows = comparison.rows.set_column(column, "depends_on_unjudged", pa.array(changed))
    fixes = unjudged_fixes(other_unjudged)
    judged = {run: evaluation.judged for run, evaluation in comparison.evaluations.items()}
    messages = []
    for name in next(iter(judged.values())):
        shares = {run: shares[name] for run, shares in judged.items()}
        if max(shares.values()) - min(shares.values()) > MAX_JUDGED_DIFFERENCE:
            listed = ", ".join(f"{run} {share:.1%}" for run, share in shares.items())
            problem = f"the runs differ in the share of their first documents that have gold ({name}: {listed})"
            messages.append(Message(problem, "judged-differs", "warning", fixes=fixes))
    by_run: dict[str, list[str]] = {}
    for row in rows.filter(rows["depends_on_unjudged"]).to_pylist():
        by_run.setdefault(row["run"], []).append(row["measure"])
    for run, names in by_run.items():
        problem = (
            f"the sign or the significance of the difference between '{run}' and '{comparison.baseline}' in "
            f"{', '.join(names)} changes with the treatment of documents without gold"
        )
        messages.append(Message(problem, "depends-on-unjudged", "warning", fixes=fixes))
    return replace(comparison, rows=rows, other_rows=other_rows, warnings=tuple(messages))


def _significant_sign(row: Mapping[str, Any]) -> float:
    """Return the sign of a significant difference, or 0."""
    return float(np.sign(row["difference"])) if row["significant"] else 0.0


def without_nan(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NaN and infinity by None, because JSON has neither."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in mapping.items()
    }


def fisher_randomization(a: ArrayLike, b: ArrayLike, *, n: int = 10_000, random_state: int = 0) -> float:
    """Return the two-sided p-value of Fisher's paired randomization test of the difference of means.

    If there are at most `n` sign vectors (queries without a difference do not count), the test is exact; otherwise `n`
    random ones are used and p = (count + 1) / (n + 1).

    Args:
        a: values of one run, (n_queries,).
        b: values of the other run for the same queries, (n_queries,).
        n: maximum number of sign vectors.
        random_state: random seed.

    >>> fisher_randomization([0.9, 0.8, 0.7], [0.5, 0.6, 0.6])
    0.25

    """
    return float(fisher_p_values(_paired_differences(a, b)[:, None], n=n, random_state=random_state)[0])


def paired_t(a: ArrayLike, b: ArrayLike) -> float:
    """Return the two-sided p-value of the paired t-test; 1 if all differences are 0 or with fewer than two queries.

    >>> round(paired_t([0.9, 0.8, 0.7], [0.5, 0.6, 0.6]), 4)
    0.1181
    """
    differences = _paired_differences(a, b)
    if differences.size < 2 or not differences.any():
        return 1.0
    mean, spread = _mean_and_spread(differences)
    if spread == 0:
        return 0.0
    t = mean / (spread / np.sqrt(differences.size))
    return float(2 * stdtr(differences.size - 1, -abs(t)))


def difference_interval(
    differences: ArrayLike, level: float = 0.95, n: int = 10_000, random_state: int = 0
) -> tuple[float, float]:
    """Return the interval of the mean difference over queries that inverts Fisher's randomization test.

    It holds the differences that the test does not reject, so that it excludes 0 if the p-value is at most 1 - level
    (up to the chance of random subsets, if there are more than `n`). These lie between two quantiles of the means of
    random subsets of the queries (Hartigan, Using subsample values as typical values, JASA 1969). With so few queries
    that the test rejects nothing (five at the level 0.95), it is the interval of Student's t; with fewer than two, it
    is NaN.

    Args:
        differences: differences of two runs by query, (n_queries,); NaN is left out.
        level: probability that the interval holds the mean difference, if differences are symmetric around it.
        n: maximum number of subsets; if there are fewer, all are used.
        random_state: random seed.

    >>> low, high = difference_interval([0.1, 0.2, 0.3, 0.2, 0.1, 0.3])
    >>> round(low, 3), round(high, 3)
    (0.1, 0.3)
    """
    column = np.asarray(differences, dtype=np.float64)
    low, high = difference_intervals(column[~np.isnan(column)][:, None], level=level, n=n, random_state=random_state)[0]
    return float(low), float(high)


def holm(p_values: ArrayLike) -> Floats:
    """Return p-values adjusted for multiple tests by Holm's method; NaN stays NaN.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.size, np.nan)
    order = np.argsort(p, kind="stable")[: int((~np.isnan(p)).sum())]
    steps = p[order] * np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def effect_size(a: ArrayLike, b: ArrayLike) -> float:
    """Return the mean difference divided by the standard deviation of the differences; 0 if all differences are 0.

    >>> round(effect_size([0.9, 0.8, 0.7], [0.5, 0.6, 0.6]), 3)
    1.528
    """
    differences = _paired_differences(a, b)
    if not differences.any():
        return 0.0
    if differences.size < 2:
        return float("nan")
    mean, spread = _mean_and_spread(differences)
    return float(mean / spread) if spread > 0 else float(np.copysign(np.inf, mean))


def fisher_p_values(differences: Floats, *, n: int = 10_000, random_state: int = 0) -> Floats:
    """Return the p-value of `fisher_randomization` for each column of differences, (n_queries, n_columns).

    >>> fisher_p_values(np.array([[0.4, 0.0], [0.2, 0.0], [0.1, 0.0]]))
    array([0.25, 1.  ])
    """
    _require_resamples(n)
    p = np.ones(differences.shape[1])
    exact = (differences != 0).sum(axis=0) < n.bit_length()  # 2^k <= n
    for column in np.flatnonzero(exact):
        nonzero = differences[differences[:, column] != 0, column]
        p[column] = _count_as_extreme(nonzero[:, None], _all_signs(nonzero.size))[0] / 2**nonzero.size
    if not exact.all():
        count = _count_as_extreme(differences[:, ~exact], _random_signs(differences.shape[0], n, random_state))
        p[~exact] = (count + 1) / (n + 1)
    return p


def difference_intervals(differences: Floats, *, level: float = 0.95, n: int = 10_000, random_state: int = 0) -> Floats:
    """Return the `difference_interval` of each column of differences (n_queries, n_columns), as (n_columns, 2).

    >>> difference_intervals(np.array([[1.0, 2.0], [1.0, 2.0]]))
    array([[1., 1.], [2., 2.]])
    """
    _require_resamples(n)
    if not 0 < level < 1:
        raise UsageError(f"must be between 0 and 1, such as 0.95, not {level}", parameter="level")
    n_queries = differences.shape[0]
    exact = n_queries < n.bit_length()  # 2^n_queries <= n
    n_subsets = 2**n_queries if exact else n + 1  # with the empty subset, as in the p-value
    rank = math.floor((1 - level) / 2 * n_subsets + _ROUNDING_TOLERANCE)
    if rank == 0:
        return _t_intervals(differences, level)
    blocks = _all_signs(n_queries) if exact else _random_signs(n_queries, n, random_state)
    means = np.sort(np.concatenate([_subset_means(differences, signs > 0) for signs in blocks]), axis=0)
    return np.asarray(np.stack([means[rank - 1], means[-rank]], axis=1))


def _subset_means(differences: Floats, subsets: NDArray[np.bool_]) -> Floats:
    """Return the mean of each column over each subset of queries that is not empty, (n_subsets, n_columns)."""
    weights = subsets[subsets.any(axis=1)].astype(np.float64)
    return np.asarray(weights @ differences / weights.sum(axis=1, keepdims=True))


def _t_intervals(differences: Floats, level: float) -> Floats:
    """Return the interval of Student's t of each column's mean, (n_columns, 2)."""
    n_queries = differences.shape[0]
    if n_queries < 2:
        return np.full((differences.shape[1], 2), np.nan)
    width = stdtrit(n_queries - 1, (1 + level) / 2) * differences.std(axis=0, ddof=1) / np.sqrt(n_queries)
    return np.asarray(differences.mean(axis=0)[:, None] + width[:, None] * [-1, 1])


def _paired_differences(a: ArrayLike, b: ArrayLike) -> Floats:
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.shape != right.shape or left.ndim != 1:
        problem = f"values are paired by query, but there are {left.size} and {right.size}"
        raise UsageError(problem, kind="not-paired", fix="give one value of each run per query")
    differences = left - right
    return differences[~np.isnan(differences)]


def _mean_and_spread(differences: Floats) -> tuple[float, float]:
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    return mean, spread if spread > _ROUNDING_TOLERANCE * abs(mean) else 0.0


def _count_as_extreme(differences: Floats, sign_blocks: Iterator[Floats]) -> NDArray[np.int64]:
    """Count for each column the sign vectors whose sum is at least as far from 0 as the observed sum."""
    observed = np.abs(differences.sum(axis=0)) - _ROUNDING_TOLERANCE * np.abs(differences).sum(axis=0)
    count = np.zeros(differences.shape[1], dtype=np.int64)
    for signs in sign_blocks:
        count += (np.abs(signs @ differences) >= observed).sum(axis=0)
    return count


def _all_signs(n_queries: int) -> Iterator[Floats]:
    block = max(1, _MAX_VALUES_PER_BLOCK // max(1, n_queries))
    for start in range(0, 2**n_queries, block):
        codes = np.arange(start, min(start + block, 2**n_queries))
        yield _bits_to_signs((codes[:, None] >> np.arange(n_queries)) & 1)


def _random_signs(n_queries: int, n: int, random_state: int) -> Iterator[Floats]:
    rng = np.random.default_rng(random_state)
    block, width = max(1, _MAX_VALUES_PER_BLOCK // n_queries), (n_queries + 7) // 8
    for start in range(0, n, block):
        rows = min(block, n - start)
        packed = np.frombuffer(rng.bytes(rows * width), dtype=np.uint8).reshape(rows, width)
        yield _bits_to_signs(np.unpackbits(packed, axis=1, count=n_queries))


def _bits_to_signs(bits: NDArray[Any]) -> Floats:
    return 2 * bits.astype(np.float64) - 1


def _require_resamples(n: int) -> None:
    if n < 1:
        raise UsageError(f"must be at least 1, not {n}", parameter="n")
