"""Tables and Markdown that a run writes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._text import counted, format_p, markdown_table, markdown_text
from crowdrank._typing import Floats, Integers
from crowdrank.assessors.assessor_report import best_and_worst
from crowdrank.collection import SETTLED_PROBABILITY
from crowdrank.collection.belief import exponential_gains, grade_certainty, value_of_labels
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.pair_probabilities import PairProbabilities
from crowdrank.consensus.result import Consensus, grade_codes
from crowdrank.evaluation.measures import JUDGED_CUTOFF, parse_measure
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.run_result import NOT_FOR_RANKERS, RunResult, json_number

if TYPE_CHECKING:
    from crowdrank.estimation.estimate import Estimate
    from crowdrank.pipeline.consensus_fits import ConsensusFits
    from crowdrank.pipeline.feature_labels import FeatureLabels
    from crowdrank.pipeline.ranker_test import RankerTest
    from crowdrank.pipeline.selection import SelectionResult
    from crowdrank.rankers.ranker import Ranker

LABEL_COLUMN_BY_METHOD = {
    "majority": "grade",
    "average": "relevance",
    "family-mean": "relevance",
    "dawid-skene": "expected-grade",
    "gda": "expected-grade",
}
"""Label that the table of training labels has in the column of each consensus method, if the method was fitted."""
MIN_LABEL_ERROR = 0.5
"""Minimum difference between a label and the expert grade to check the document, in expert grades."""
TOP_RANKS = 10
"""Number of ranks of a query whose order is reported if there are preferences."""
SETTLED = "settled"
"""Reason of a document of which no other label is needed."""
DIFFERS_FROM_EXPERT = "differs from the expert grade"
"""Reason to check a document in a table of what to label next."""
ASSESSOR_COLUMNS = ("assessor", "judgments", "informativeness", "flag", "evidence")
"""Columns of the table of assessors that the Markdown report shows."""
FIGURES = ("mean", "difference", "lower", "upper", "p", "p_holm", "significant")
"""Figures of the comparison that stand in the table of candidates."""


def documents_table(consensus: Consensus, data: RunData) -> pa.Table:
    """Return the consensus of each judged document and its expert grade, if it has one."""
    expert = np.full(len(consensus.document_table), np.nan)
    if data.gold is not None:
        code = data.gold.for_items(data.labels).code
        expert[code >= 0] = np.array(data.gold.scale.values)[code[code >= 0]]
    return consensus.document_table.append_column("expert", pa.array(expert, from_pandas=True))


def order_table(pairs: PairProbabilities) -> pa.Table:
    """Return the order at the top of each query, and how certain it is.

    One row for each of the `TOP_RANKS` best documents of a query and the one that follows it: query, rank, document,
    next_document, and `probability`, that the document is more relevant than the next one by the joint posterior.
    """
    first, ranks, probability = [], [], []
    for start, stop in pairwise(pairs.offsets):
        top = start + np.argsort(-pairs.relevance[start:stop], kind="stable")[: TOP_RANKS + 1]
        first.append(np.stack([top[:-1], top[1:]]))
        ranks.append(np.arange(1, len(top)))
        probability.append(np.diagonal(pairs.matrix(top), 1))
    document, following = (pa.array(side) for side in np.concatenate(first, axis=1))
    return pa.table(
        {
            "query": pairs.query.take(document),
            "rank": np.concatenate(ranks),
            "document": pairs.document.take(document),
            "next_document": pairs.document.take(following),
            "probability": np.concatenate(probability),
        }
    )


def next_table(documents: pa.Table, model: Aggregator, data: RunData, measure: str) -> pa.Table:
    """Return the documents without an expert grade, those first where another label is most useful.

    The order is that of the policy with the best published gain per label (`BEST_POLICY`): by the expected relative
    increase of DCG@k by another label (column `gain`), settled documents last. If all documents have an expert grade,
    return those whose consensus grade differs from it, the most different first (column `priority`).

    Args:
        documents: table of :func:`documents_table`.
        model: the fitted model that the table is from.
        data: data of the run.
        measure: measure of the run; its cutoff is the number of documents of a query that matter.

    """
    k = parse_measure(measure).cutoff or JUDGED_CUTOFF
    is_open = pc.is_null(documents["expert"]).to_numpy()
    scale = model.consensus_.scale
    shares = np.column_stack([documents[name].to_numpy() for name in scale.share_names])
    gain, reason = value_of_labels(model, k), f"may change the top {k}"
    priority, is_settled = gain, grade_certainty(model) >= SETTLED_PROBABILITY
    if len(is_open) and not is_open.any():
        priority = _differences_to_experts(documents, grade_codes(documents["grade"], model.consensus_.labels), data)
        is_open, reason = priority >= MIN_LABEL_ERROR, DIFFERS_FROM_EXPERT
        is_settled = np.zeros(len(documents), bool)
    width = pc.subtract(documents["upper"], documents["lower"])
    table = documents.append_column("priority", pa.array(priority)).append_column("width", width)
    table = table.append_column("gain", pa.array(gain)).append_column("is_settled", pa.array(is_settled))
    spread = _gain_spread(shares, documents["judgments"].to_numpy(), exponential_gains(scale))
    table = table.append_column("spread", pa.array(spread)).filter(pa.array(is_open))
    # No single label changes the top of a long ranking; there, documents of uncertain gain come first.
    keys = [
        ("is_settled", "ascending"),
        ("priority", "descending"),
        ("spread", "descending"),
        ("judgments", "ascending"),
    ]
    table = table.sort_by(keys)
    reasons = pc.if_else(table["is_settled"], SETTLED, reason)
    table = table.append_column("reason", reasons)
    names = [
        "query",
        "document",
        "priority",
        "gain",
        "reason",
        "relevance",
        "lower",
        "upper",
        "width",
        "grade",
        "judgments",
    ]
    return table.select(names)


def _differences_to_experts(documents: pa.Table, grade: Integers, data: RunData) -> Floats:
    """Return the distance of each consensus grade to the expert grade, in expert grades; 0 if it is not known."""
    if data.gold is None or data.expert_values is None:
        return np.zeros(len(documents))
    expert = documents["expert"].to_numpy() - data.gold.scale.values[0]
    return np.asarray(np.abs(data.expert_values[grade] - expert))


def _gain_spread(shares: Floats, n_judgments: Integers, gains: Floats) -> Floats:
    """Return the standard deviation of the gain of each document, whose shares include one more, average, answer."""
    n = n_judgments[:, None]
    chance = (n * shares + shares.mean(axis=0)) / (n + 1)
    return np.asarray(np.sqrt(np.maximum(chance @ gains**2 - (chance @ gains) ** 2, 0.0)))


def describe_next(table: pa.Table) -> str:
    """Return in a sentence what a table of :func:`next_table` lists."""
    if not len(table):
        return "Every judged document has an expert grade, and no label is known to differ: have new documents judged."
    if table["reason"][0].as_py() == DIFFERS_FROM_EXPERT:
        return "Every judged document has an expert grade. These differ most from the consensus: check them."
    if table["reason"][0].as_py() == SETTLED:
        return "All documents without an expert grade are settled: no other label is likely to change a grade."
    return "Documents where another label is most useful: it may change the order of the first documents of the query."


def comparison_table(test: RankerTest) -> pa.Table:
    """Return one row per candidate, those with the highest mean on the selection queries first."""
    from crowdrank.pipeline.ranker_test import describe_candidate

    means = test.selection_means
    order = sorted(test.outcome.scores, key=lambda name: -means.get(name, 0.0))
    figures = {} if test.comparison is None else _figures(test.comparison.rows)
    rows: list[dict[str, Any]] = [
        {
            "candidate": name,
            "about": describe_candidate(name),
            "chosen": name == test.chosen,
            "selection_mean": means.get(name),
            "selection_queries": len(test.split.development) or None,
            "test_queries": len(test.split.test) if test.comparison is not None else None,
            **figures.get(name, {}),
            "note": _note(test.outcome, name),
        }
        for name in order
    ]
    rows += [
        {"candidate": name, "about": describe_candidate(name), "note": f"left out: {reason}"}
        for name, reason in test.outcome.failed.items()
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: [row.get(name) for row in rows] for name in names})
    floats = [name for name in names if pa.types.is_null(table[name].type)]
    for name in floats:
        table = table.set_column(names.index(name), name, table[name].cast(pa.float64()))
    return table


def _figures(rows: pa.Table) -> dict[str, dict[str, Any]]:
    """Return mean, difference, interval and p-values of each measure in a comparison, by candidate."""
    figures: dict[str, dict[str, Any]] = {}
    for row in rows.to_pylist():
        own = figures.setdefault(row["run"], {})
        own |= {f"{row['measure']} {name}": json_number(row[name]) for name in FIGURES}
    return figures


def _note(outcome: SelectionResult, name: str) -> str:
    """Return the weights of an ensemble, the largest first, or the feature of a single feature."""
    from crowdrank.rankers.single_feature import SingleFeature

    ranker, weights = outcome.rankers.get(name), outcome.weights.get(name, {})
    if isinstance(ranker, SingleFeature):
        return f"{ranker.feature_}{', lower is better' * (ranker.sign_ < 0)}"
    if len(set(weights.values())) == 1:
        return f"{len(weights)} rankers, weight {next(iter(weights.values())):.3f} each"
    ordered = sorted(weights.items(), key=lambda one: -one[1])
    return ", ".join(f"{weight:.2f} {member}" for member, weight in ordered)


def training_table(data: RunData, fits: ConsensusFits, outcome: SelectionResult) -> pa.Table:
    """Return the labels that rankers are trained on: by consensus method, by remapper, and the expert grades."""
    rows = np.flatnonzero((data.item >= 0) | data.is_graded)
    known = data.features.take(rows)
    columns: dict[str, Any] = {
        "query": known.query,
        "document": known.document,
        "part": _query_roles(data, outcome)[rows],
        "labels": data.n_labels[rows],
    }
    for method, target in LABEL_COLUMN_BY_METHOD.items():
        if fits.has(method):
            columns[method.replace("-", "_")] = fits.labels(method, target)[rows]
    for name, remapped in outcome.remapped.items():
        place = remapped.labels.judgments.positions(known.query, known.document)
        for role, values in zip(("target", "weight"), remapped.rescaled(), strict=True):
            columns[f"{name.replace('-', '_')}_{role}"] = np.where(place >= 0, values[place], np.nan)
    columns["expert"] = data.expert[rows]
    return pa.table(
        {
            name: pa.array(column, from_pandas=True) if isinstance(column, np.ndarray) else column
            for name, column in columns.items()
        }
    )


def _query_roles(data: RunData, outcome: SelectionResult) -> Any:
    """Return what the query of each row serves: `test`, `selection` or `train`."""
    names = np.full(len(data.query_ids), "train", dtype=object)
    names[outcome.split.development] = "selection"
    names[outcome.split.test] = "test"
    return names[data.query]


def remapping_table(outcome: SelectionResult) -> pa.Table | None:
    """Return the mean learned target and weight by feature of the labels, for each remapper; None if there is none."""
    tables = []
    for kind, remapped in outcome.remapped.items():
        table = remapped.by_feature()
        tables.append(table.add_column(0, "remapper", pa.array([kind] * len(table))))
    return pa.concat_tables(tables) if tables else None


def per_query_table(test: RankerTest) -> pa.Table | None:
    """Return the value of each candidate on each test query; None if nothing was tested."""
    if test.comparison is None:
        return None
    table = pa.Table.from_pandas(test.comparison.per_query, preserve_index=False)
    return table.rename_columns(["candidate" if name == "run" else name for name in table.column_names])


def feature_table(data: RunData, ranker: Ranker) -> pa.Table:
    """Return each feature with its share of missing values, its range and its importance in the selected ranker."""
    importance = pa.array(ranker.feature_importances_)
    return data.feature_table().append_column("importance", importance).sort_by([("importance", "descending")])


MAX_TABLE_ROWS = 10
"""Maximum number of rows of a table."""


def markdown(result: RunResult) -> str:
    """Return the report in Markdown; ids and notes are escaped, so that they render as plain text.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=30, documents=8, random_state=1)
    >>> result = crowdrank.run(world.judgments, world.features, candidates=["majority", "average"])
    >>> print(markdown(result).splitlines()[0])
    # A ranker from 1,245 judgments
    """
    title = "A ranker" if result.rankers is not None else "Labels"
    assessors = best_and_worst(result.tables["assessors"], MAX_TABLE_ROWS)
    unit = "grades" if result.model.in_grades else "standard deviations, 0 is the mean; grade is the consensus grade"
    lines = [
        f"# {title} from {counted(result.sizes['judgments'], 'judgment')}",
        "",
        *(f"- {markdown_text(text)}" for text in result.summary),
        *([] if result.rankers is None else ["", "## Candidates", "", *markdown_table(_candidates(result))]),
        *([] if result.estimate is None else _estimate(result.estimate)),
        *([] if result.feature_labels is None else _feature_labels(result, result.feature_labels)),
        "",
        "## Assessors",
        "",
        _assessors(result),
        "",
        *markdown_table(assessors.select(list(ASSESSOR_COLUMNS)).to_pylist()),
        "",
        "## What to label next",
        "",
        f"{describe_next(result.tables['next'])} next.csv has all of them. Relevance is in {unit}.",
        "",
        *markdown_table(result.tables["next"].slice(0, MAX_TABLE_ROWS).to_pylist()),
        "",
        "## Protocol",
        "",
        *(
            f"- {markdown_text(str(text))}"
            for text in (*result.protocol, *result.changes, *map(result.note_text, result.notes))
        ),
        f"- crowdrank {result.versions['crowdrank']}, seed {result.settings.random_state}; all settings: run.json.",
    ]
    return "\n".join(lines) + "\n"


def _estimate(estimate: Estimate) -> list[str]:
    """Return the part on the selected ranker and the current ranking."""
    from crowdrank.pipeline.baseline_estimate import EXPLANATION, QUESTION, estimate_rows

    warnings = (f"- {markdown_text(str(message))}" for message in estimate.warnings)
    return [*("", f"## {QUESTION}", "", EXPLANATION, "", *markdown_table(estimate_rows(estimate)), ""), *warnings]


def _feature_labels(result: RunResult, labels: FeatureLabels) -> list[str]:
    """Return the part on labels that used features."""
    return [
        *("", "## Labels with features", "", f"{NOT_FOR_RANKERS} consensus_with_features.parquet has them."),
        *("", *markdown_table(labels.rows())),
        *("", "What to label next by these labels; next_with_features.csv has all documents:"),
        *("", *markdown_table(result.tables["next_with_features"].slice(0, MAX_TABLE_ROWS).to_pylist())),
    ]


def _candidates(result: RunResult) -> list[dict[str, Any]]:
    assert result.rankers is not None
    measure = result.settings.measure
    columns = {
        "selection_mean": f"{measure}, selection",
        f"{measure} mean": f"{measure}, test",
        f"{measure} difference": f"over {result.rankers.baseline}",
        f"{measure} lower": "lower",
        f"{measure} upper": "upper",
        f"{measure} p_holm": "p (Holm)",
        "note": "note",
    }
    rows = []
    for row in result.tables["comparison"].to_pylist():
        name = f"{row['candidate']} (selected)" if row["chosen"] else row["candidate"]
        figures = {new: _figure(new, row.get(old)) for old, new in columns.items()}
        rows.append({"candidate": name, "description": row["about"]} | figures)
    return rows


def _figure(title: str, value: Any) -> Any:
    """Return a cell: p-values are never 0, and differences have a sign."""
    if not isinstance(value, float) or value != value:
        return value
    if title == "p (Holm)":
        return format_p(value)
    return f"{value:+.4f}" if title in ("lower", "upper") or title.startswith("over ") else value


def _assessors(result: RunResult) -> str:
    table = result.tables["assessors"]
    counts = table["flag"].value_counts().to_pylist()
    flags = ", ".join(
        f"{one['counts']:,} {'flagged ' + one['values'] if one['values'] else 'not flagged'}"
        for one in sorted(counts, key=lambda one: -one["counts"])
    )
    offset = "" if result.expert_offset is None else f" {result.expert_offset}."
    which = "All" if len(table) <= MAX_TABLE_ROWS else "The best and the worst"
    return (
        f"{counted(len(table), 'assessor')}: {flags}.{offset} {which}, the most informative first "
        "(assessors.csv has all of them, pairs.csv the agreement of pairs)."
    )
