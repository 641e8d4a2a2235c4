"""Estimate whether the selected ranker is better than a ranking in a file or a saved ranker, on the test queries.

Experts graded these queries, and no ranker was trained on their labels. Labels of other queries cannot make the
estimate more precise: these queries trained or selected the ranker, so that their labels would flatter it. The estimate
is therefore that of the experts, and the labels of the same queries show how biased labels alone would be.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.consensus.result import Consensus
from crowdrank.errors import CrowdrankError, DataWarning, Fix, InputError, Message
from crowdrank.estimation.estimate import Estimate, estimate
from crowdrank.evaluation.measures import JUDGED_CUTOFF, parse_measure
from crowdrank.judgments import ids
from crowdrank.pipeline.baseline import baseline_ranking
from crowdrank.pipeline.contrasts import ALPHA
from crowdrank.pipeline.ranker_test import RankerTest
from crowdrank.pipeline.run_data import RunData

QUESTION = "Is the new ranker better than your current ranking?"
EXPLANATION = (
    "Both rankings with all their documents, on the test queries only. Documents without an expert grade count as "
    "grade 0; the comparison of candidates leaves them out, so its figures differ if there are any. Labels of other "
    "queries would flatter the new ranker, which was trained or selected on them, so they are not used: the estimate "
    "is that of the experts, and the labels of the same queries show the bias of labels alone."
)


def estimate_to_dict(result: Estimate) -> dict[str, Any]:
    """Return everything of an estimate but its table, ready for JSON."""
    return {
        "measure": str(result.measure),
        "baseline": result.baseline,
        "level": result.level,
        "unit": result.unit,
        "queries": result.n_queries,
        "expert_queries": result.n_expert_queries,
        "expert_grades": result.n_expert_grades,
        "warnings": [message.to_dict() for message in result.warnings],
    }


def estimate_from_dict(fields: Mapping[str, Any], rows: pa.Table) -> Estimate:
    """Return the estimate of the dictionary that :func:`estimate_to_dict` returned, with the table of its rows."""
    columns = {name: rows[name] if name == "run" else pc.fill_null(rows[name], np.nan) for name in rows.column_names}
    return Estimate(
        rows=pa.table(columns),
        measure=parse_measure(fields["measure"]),
        baseline=fields["baseline"],
        level=fields["level"],
        unit=fields["unit"],
        n_queries=fields["queries"],
        n_expert_queries=fields["expert_queries"],
        n_expert_grades=fields["expert_grades"],
        warnings=tuple(Message.from_dict(one) for one in fields["warnings"]),
    )


def estimate_rows(result: Estimate) -> list[dict[str, str]]:
    """Return the figures of both rankings side by side, as text."""
    base, ours = _base_and_other(result)
    cutoff = result.measure.cutoff or JUDGED_CUTOFF
    bias = ours["labels_difference"] - ours["difference"]
    figures = [
        (
            f"{result.measure} by experts",
            *(f"{row['estimate']:.4f}" for row in (base, ours)),
            f"{ours['difference']:+.4f}",
            _interval(ours),
        ),
        (
            f"{result.measure} by labels alone",
            *(f"{row['labels_only']:.4f}" for row in (base, ours)),
            *(f"{ours['labels_difference']:+.4f}", ""),
        ),
        ("bias of the labels", *(f"{row['bias']:+.4f}" for row in (base, ours)), f"{bias:+.4f}", ""),
        (f"graded by experts@{cutoff}", *(f"{row['graded']:.1%}" for row in (base, ours)), "", ""),
        (f"labeled@{cutoff}", *(f"{row['judged']:.1%}" for row in (base, ours)), "", ""),
    ]
    names = ("figure", f"{base['run']} (current)", f"{ours['run']} (new)", "difference", "95% interval")
    return [dict(zip(names, row, strict=True)) for row in figures]


def _base_and_other(result: Estimate) -> list[dict[str, Any]]:
    return sorted(result.rows.to_pylist(), key=lambda row: row["run"] != result.baseline)


def _interval(row: Mapping[str, Any]) -> str:
    return f"{row['difference_lower']:+.4f} to {row['difference_upper']:+.4f}"


def describe_estimate(result: Estimate) -> str:
    """Return the difference between the selected ranker and the current ranking, in a sentence or two."""
    base, ours = _base_and_other(result)
    difference = f"{ours['difference']:+.4f}, 95% interval {_interval(ours)}"
    return (
        f"With all documents of both rankings on {counted(result.n_queries, 'test query')}, {result.measure} is "
        f"{ours['estimate']:.4f} instead of {base['estimate']:.4f} of {result.baseline} "
        f"({difference}). Labels alone show a difference of {ours['labels_difference']:+.4f}."
    )


def estimate_baseline(test: RankerTest, consensus: Consensus) -> tuple[Estimate | None, list[Message]]:
    """Estimate the selected ranker and a baseline that is a run file or a saved ranker, on the test queries.

    Args:
        test: test of the candidates; its baseline is the path of a run or of a saved ranker.
        consensus: labels without features.

    Returns:
        The estimate, or None with a note why there is none.

    """
    data, settings = test.training.data, test.settings
    try:
        runs = _runs(test)
        labels, expert = (_of_queries(table, runs[test.chosen]) for table in _grades(data, consensus))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # the report shows them
            result = estimate(
                runs,
                labels,
                expert,
                measure=settings.measure,
                level=1 - ALPHA,
                random_state=settings.random_state,
            )
    except CrowdrankError as problem:
        text = f"The baseline is not estimated from labels: {str(problem).removesuffix('.')}"
        return None, [Message(text, "no-estimate", "note")]
    found = _documents_without_features(data, next(iter(runs.values())), settings.measure)
    return replace(result, warnings=(*result.warnings, *found), backend=data.judgments.backend), []


def _runs(test: RankerTest) -> dict[str, pa.Table]:
    """Return the rankings of the test queries that the file ranks, without honeypots; the baseline is the first."""
    data, path = test.training.data, Path(test.baseline)
    ranking = baseline_ranking(data, path)
    rows = data.rows_of(test.split.test)
    known = data.features.take(rows)
    scores = test.outcome.scores[test.chosen][rows]
    ours = pa.table({"query": known.query, "document": known.document, "score": scores})
    name = test.baseline if path.name == test.chosen else path.name
    runs = {name: _of_queries(ranking, ours), test.chosen: _of_queries(ours, ranking)}
    return {name: _without_honeypots(run, data) for name, run in runs.items()}


def _without_honeypots(run: pa.Table, data: RunData) -> pa.Table:
    query, document = (run[name].combine_chunks() for name in ("query", "document"))
    return run.filter(pa.array(~data.is_honeypot(query, document)))


def _of_queries(table: pa.Table, other: pa.Table) -> pa.Table:
    """Return the rows of a table whose query is also in another table."""
    own, known = (one["query"].combine_chunks() for one in (table, other))
    return table.filter(pa.array(ids.match(known.unique(), own) >= 0))


def _grades(data: RunData, consensus: Consensus) -> tuple[pa.Table, pa.Table]:
    """Return the labels with the probabilities of expert grades, and the expert grades, both counted from 0."""
    assert data.gold is not None
    expert = np.array(data.gold.scale.values)
    graded = pa.table(
        {
            "query": data.gold.query,
            "document": data.gold.document,
            "grade": (expert - expert[0])[data.gold.code].astype(np.int64),
        }
    )
    table = consensus.document_table
    shares = np.column_stack([table[name].to_numpy() for name in consensus.share_names])
    by_value = expert_shares(shares, data)
    columns = {f"p{value}": by_value[:, value] for value in range(by_value.shape[1])}
    names = {"query": table["query"], "document": table["document"], "grade": by_value.argmax(axis=1)}
    return pa.table({**names, **columns}), graded


def expert_shares(shares: Floats, data: RunData) -> Floats:
    """Return the probabilities of expert grades counted from 0, (n, n_values), from those of the judgments' grades.

    Raises:
        InputError: a grade of the judgments does not stand for exactly one expert grade.

    """
    values = data.on_expert_scale(np.array(data.labels.main_scale.values, dtype=np.float64))
    places = np.round(values).astype(np.int64)
    if not np.allclose(values, places):
        raise InputError(replace(data.scales_differ(), severity="error"))
    by_value = np.zeros((len(shares), int(places.max()) + 1))
    for place, column in zip(places, shares.T, strict=True):
        by_value[:, place] += column
    return np.asarray(by_value / by_value.sum(axis=1, keepdims=True))


def _documents_without_features(data: RunData, ranking: pa.Table, measure: str) -> list[Message]:
    """Return a warning if the selected ranker cannot rank some of the first documents of the baseline."""
    cutoff = parse_measure(measure).cutoff or JUDGED_CUTOFF
    ordered = ranking.to_pandas().sort_values("score", ascending=False, kind="stable")
    first = pa.Table.from_pandas(ordered.groupby("query", sort=False).head(cutoff), preserve_index=False)
    query, document = (first[name].combine_chunks() for name in ("query", "document"))
    row = data.features.positions(query, document)
    n_missing = int((row < 0).sum())
    if not n_missing:
        return []
    problem = (
        f"{n_missing:,} of the first {len(row):,} documents of the baseline have no features, so that the new ranker "
        "cannot rank them"
    )
    return [Message(problem, "no-features", "warning", fixes=(Fix("add their features"),))]
