"""Compare runs with a baseline: means, differences, confidence intervals, significance tests and effect sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._base import require_one_of
from crowdrank._notebook import heading, html_table, panel, paragraph
from crowdrank._typing import Floats
from crowdrank.errors import UsageError, near
from crowdrank.evaluation.evaluate import Evaluation, evaluate
from crowdrank.evaluation.measures import Measure, parse_measures
from crowdrank.evaluation.significance import (
    bootstrap_intervals,
    effect_size,
    fisher_p_values,
    holm,
    paired_t,
)
from crowdrank.judgments.frames import from_arrow

_RESAMPLES = 10_000
_TESTS = {
    "fisher": f"Fisher's randomization test, two-sided ({_RESAMPLES:,} random sign changes, or all if there are fewer)",
    "t": "the paired t-test, two-sided",
}


@dataclass(frozen=True)
class Comparison:
    """Comparison of runs with a baseline.

    `table` has one row per run with the mean of each measure, `details` one row per measure and run, and `per_query`
    one row per run and query; these DataFrames are of the same library as the first run. `evaluations` has the
    Evaluation of each run.

    >>> import pandas as pd
    >>> gold = pd.DataFrame({"query": [1, 1, 2, 2], "document": [1, 2, 1, 2], "grade": [1, 0, 0, 1]})
    >>> good, bad = gold.assign(score=gold.grade), gold.assign(score=-gold.grade)
    >>> comparison = compare({"bad": bad, "good": good}, gold, "RR")
    >>> comparison.table
        run   RR
    0   bad  0.5
    1  good  1.0
    >>> comparison.to_dict()["details"][1]["p"]
    0.5
    """

    evaluations: dict[str, Evaluation]
    measures: tuple[Measure, ...]
    baseline: str
    test: str
    alpha: float
    rows: pa.Table

    @property
    def table(self) -> Any:
        """One row per run: its name and the mean of each measure."""
        means = {
            str(measure): [evaluation.means[str(measure)] for evaluation in self.evaluations.values()]
            for measure in self.measures
        }
        return self._frame(pa.table({"run": list(self.evaluations), **means}))

    @property
    def details(self) -> Any:
        """One row per measure and run.

        Columns: measure, run, mean; queries (paired with the baseline), difference (to the baseline), lower and upper
        (of its bootstrap interval), p, p_holm (adjusted over the runs of the measure), effect_size, significant, best.
        """
        return self._frame(self.rows)

    @property
    def per_query(self) -> Any:
        """One row per run and query with the value of each measure."""
        tables = [
            evaluation.per_query.add_column(0, "run", pa.repeat(run, evaluation.per_query.num_rows))
            for run, evaluation in self.evaluations.items()
        ]
        return self._frame(pa.concat_tables(_with_same_ids(tables)))

    def _repr_html_(self) -> str:
        names = ["measure", "run", "mean", "difference", "lower", "upper", "p", "p_holm", "significant"]
        rows = [{name: row[name] for name in names} for row in self.rows.to_pylist()]
        text = f"{len(self.evaluations)} runs; differences are to {self.baseline}; {_TESTS[self.test]}"
        tables = [html_table([row for row in rows if row["measure"] == str(one)], names) for one in self.measures]
        return panel(heading("Comparison"), paragraph(text), *tables)

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
            "means": {
                run: {name: _or_none(mean) for name, mean in evaluation.means.items()}
                for run, evaluation in self.evaluations.items()
            },
            "details": [{name: _or_none(value) for name, value in row.items()} for row in self.rows.to_pylist()],
            "protocol": self.protocol(),
        }

    def protocol(self) -> list[str]:
        """Describe in sentences how the comparison was made.

        >>> import pandas as pd
        >>> frame = pd.DataFrame({"document": ["a", "b"], "score": [2, 1], "grade": [1, 0]})
        >>> compare({"mine": frame, "other": frame}, frame, "AP").protocol()[0]
        "2 runs are compared on 1 query with gold; differences are to 'mine'."
        """
        first = next(iter(self.evaluations.values()))
        queries = first.counts.queries
        runs = len(self.evaluations)
        return [
            f"{runs} run{'' if runs == 1 else 's'} {'is' if runs == 1 else 'are'} compared on {queries:,} "
            f"quer{'y' if queries == 1 else 'ies'} with gold; differences are to '{self.baseline}'.",
            "Runs are paired query by query; a query that a run lacks counts 0.",
            *first.conventions.sentences(self.measures),
            f"p is the p-value of {_TESTS[self.test]}.",
            "p_holm is p adjusted by Holm's method over the runs of each measure; "
            f"a difference with p_holm of at most {self.alpha:g} is significant.",
            f"Intervals are {1 - self.alpha:.4g} percentile bootstrap intervals of the mean difference over queries.",
            "The effect size is the mean difference divided by the standard deviation of the differences.",
        ]

    def _frame(self, table: pa.Table) -> Any:
        return from_arrow(table, next(iter(self.evaluations.values())).backend)


def compare(
    runs: Mapping[str, Any],
    gold: Any,
    measures: str | Measure | Iterable[str | Measure],
    *,
    baseline: str | None = None,
    test: str = "fisher",
    alpha: float = 0.05,
    random_state: int = 0,
    ties: str = "expected",
    unjudged: str = "skip",
    no_relevant: str = "skip",
    gains: str | Sequence[float] | None = None,
) -> Comparison:
    """Evaluate runs and test their differences to a baseline.

    Args:
        runs: DataFrames, paths or consensuses by name.
        gold: as in :func:`crowdrank.evaluation.evaluate`, as are all parameters after `random_state`.
        measures: measures or their names.
        baseline: name of a run, by default the first.
        test: 'fisher' (randomization test) or 't' (paired t-test).
        alpha: significance level; intervals have the level 1 - alpha.
        random_state: random seed of the randomization test and the bootstrap.

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
    base = _check_arguments(runs, baseline, test, alpha)
    parsed = parse_measures(measures)
    evaluations = {
        str(run): evaluate(frame, gold, parsed, ties=ties, unjudged=unjudged, no_relevant=no_relevant, gains=gains)
        for run, frame in runs.items()
    }
    return _compare(evaluations, base, test=test, alpha=alpha, random_state=random_state)


def compare_evaluations(
    evaluations: Mapping[str, Evaluation],
    *,
    baseline: str | None = None,
    test: str = "fisher",
    alpha: float = 0.05,
    random_state: int = 0,
) -> Comparison:
    """Compare runs that are evaluated already, all against the same gold; see :func:`compare`.

    >>> import pandas as pd
    >>> gold = pd.DataFrame({"query": [1, 1, 2, 2], "document": [1, 2, 1, 2], "grade": [1, 0, 0, 1]})
    >>> bad, good = (evaluate(gold.assign(score=sign * gold.grade), gold, "RR") for sign in (-1, 1))
    >>> compare_evaluations({"bad": bad, "good": good}).to_dict()["details"][1]["difference"]
    0.5
    """
    base = _check_arguments(evaluations, baseline, test, alpha)
    first = next(iter(evaluations.values()))
    for run, evaluation in evaluations.items():
        alike = evaluation.measures == first.measures and evaluation.per_query["query"] == first.per_query["query"]
        if not alike:
            raise UsageError(f"the run '{run}' was evaluated with other measures or on other queries than the first")
    return _compare(dict(evaluations), base, test=test, alpha=alpha, random_state=random_state)


def _compare(
    evaluations: dict[str, Evaluation], base: str, *, test: str, alpha: float, random_state: int
) -> Comparison:
    measures = next(iter(evaluations.values())).measures
    rows = _details(evaluations, measures, base, test=test, alpha=alpha, random_state=random_state)
    return Comparison(evaluations, measures, base, test, float(alpha), pa.Table.from_pylist(rows))


def _check_arguments(runs: Mapping[str, Any], baseline: str | None, test: str, alpha: float) -> str:
    if not isinstance(runs, Mapping) or not runs:
        raise UsageError("must be a mapping of names to DataFrames with at least one run", parameter="runs")
    names = [str(run) for run in runs]
    if baseline is not None and baseline not in names:
        known = f"one of the runs ({', '.join(names)})"
        raise UsageError(f"must be {known}, not {baseline!r}{near(baseline, names)}", parameter="baseline")
    require_one_of("test", test, _TESTS)
    if not 0 < alpha < 1:
        raise UsageError(f"must be between 0 and 1, such as 0.05, not {alpha}", parameter="alpha")
    return names[0] if baseline is None else baseline


def _details(
    evaluations: dict[str, Evaluation],
    measures: tuple[Measure, ...],
    baseline: str,
    *,
    test: str,
    alpha: float,
    random_state: int,
) -> list[dict[str, Any]]:
    others = [run for run in evaluations if run != baseline]
    pairs = [(measure, run) for measure in measures for run in others]
    differences = np.empty((evaluations[baseline].per_query.num_rows, len(pairs)))
    for column, (measure, run) in enumerate(pairs):
        differences[:, column] = evaluations[run].values(measure) - evaluations[baseline].values(measure)
    p = _p_values(differences, test, random_state)
    intervals = _intervals(differences, 1 - alpha, random_state)
    adjusted = np.concatenate([holm(part) for part in p.reshape(len(measures), len(others))]) if pairs else p

    rows = []
    for measure in measures:
        best = _best_runs(measure, evaluations)
        for run, evaluation in evaluations.items():
            row = {"measure": str(measure), "run": run, "mean": evaluation.means[str(measure)]}
            if run == baseline:
                row |= _baseline_row(evaluation.values(measure))
            else:
                column = pairs.index((measure, run))
                row |= _tested_row(differences[:, column], intervals[column], p[column], adjusted[column], alpha)
            rows.append(row | {"best": run in best})
    return rows


def _baseline_row(values: Floats) -> dict[str, Any]:
    undefined = dict.fromkeys(("lower", "upper", "p", "p_holm", "effect_size"), float("nan"))
    return {"queries": int((~np.isnan(values)).sum()), "difference": 0.0, **undefined, "significant": False}


def _tested_row(differences: Floats, interval: Floats, p: float, adjusted: float, alpha: float) -> dict[str, Any]:
    paired = differences[~np.isnan(differences)]
    return {
        "queries": paired.size,
        "difference": float(paired.mean()) if paired.size else float("nan"),
        "lower": float(interval[0]),
        "upper": float(interval[1]),
        "p": float(p),
        "p_holm": float(adjusted),
        "effect_size": effect_size(paired, np.zeros(paired.size)),
        "significant": bool(adjusted <= alpha),
    }


def _best_runs(measure: Measure, evaluations: dict[str, Evaluation]) -> set[str]:
    means = {run: evaluation.means[str(measure)] for run, evaluation in evaluations.items()}
    known = [mean for mean in means.values() if not math.isnan(mean)]
    if not known:
        return set()
    top = max(known) if measure.higher_is_better else min(known)
    return {run for run, mean in means.items() if mean == top}


def _p_values(differences: Floats, test: str, random_state: int) -> Floats:
    if test == "t":
        zeros = np.zeros(differences.shape[0])
        return np.array([paired_t(column, zeros) for column in differences.T])
    p = np.ones(differences.shape[1])
    for columns, queries in _with_same_queries(differences):
        p[columns] = fisher_p_values(differences[np.ix_(queries, columns)], n=_RESAMPLES, random_state=random_state)
    return p


def _intervals(differences: Floats, level: float, random_state: int) -> Floats:
    intervals = np.full((differences.shape[1], 2), np.nan)
    for columns, queries in _with_same_queries(differences):
        part = differences[np.ix_(queries, columns)]
        intervals[columns] = bootstrap_intervals(part, level=level, n=_RESAMPLES, random_state=random_state)
    return intervals


def _with_same_queries(differences: Floats) -> list[tuple[list[int], Any]]:
    """Group the columns that have values for the same queries, so that they can share resamples."""
    groups: dict[bytes, list[int]] = {}
    present = ~np.isnan(differences)
    for column in range(differences.shape[1]):
        groups.setdefault(present[:, column].tobytes(), []).append(column)
    return [(columns, np.flatnonzero(present[:, columns[0]])) for columns in groups.values()]


def _with_same_ids(tables: list[pa.Table]) -> list[pa.Table]:
    """Convert query ids to text if some tables have text and others numbers."""
    if len({table.schema.field("query").type for table in tables}) == 1:
        return tables
    return [table.set_column(1, "query", pc.cast(table.column("query"), pa.large_string())) for table in tables]


def _or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
