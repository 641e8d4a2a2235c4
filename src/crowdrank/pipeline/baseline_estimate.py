"""Estimate whether the selected ranker is better than a ranking in a file, on the test queries.

Experts graded these queries, and no ranker was trained on their labels. Labels of other queries cannot make the
estimate more precise: these queries trained or selected the ranker, so that their labels would flatter it. The estimate
is therefore that of the experts, and the labels of the same queries show how biased labels alone would be.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from crowdrank._typing import Floats
from crowdrank.consensus.result import Consensus
from crowdrank.errors import CrowdrankError, DataWarning, Fix, InputError, Message
from crowdrank.estimation.estimate import Estimate, estimate
from crowdrank.evaluation.evaluate import JUDGED_CUTOFF
from crowdrank.evaluation.measures import parse_measure
from crowdrank.judgments import ids
from crowdrank.pipeline.baseline import read_run_table
from crowdrank.pipeline.contrasts import ALPHA
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.summary import RankerTest
from crowdrank.rankers.labels import pair_positions


def estimate_baseline(test: RankerTest, consensus: Consensus) -> tuple[Estimate | None, list[Message]]:
    """Estimate the selected ranker and a baseline that is a run file, on the test queries.

    Args:
        test: test of the candidates; its baseline is the path of a run.
        consensus: labels without features.

    Returns:
        The estimate, or None with a note why there is none.

    """
    data, settings = test.selection.data, test.settings
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
    data, path = test.selection.data, Path(test.baseline)
    ranking = read_run_table(path)
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
    row = pair_positions(data.features.query, data.features.document, query, document, "the features")
    n_missing = int((row < 0).sum())
    if not n_missing:
        return []
    problem = (
        f"{n_missing:,} of the first {len(row):,} documents of the baseline have no features, so that the new ranker "
        "cannot rank them"
    )
    return [Message(problem, "no-features", "warning", fixes=(Fix("add their features"),))]
