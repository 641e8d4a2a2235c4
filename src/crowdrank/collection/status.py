"""Progress of a collection: settled documents, cost, forecast, disagreements and final grades."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._files import check_output_file
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.collection import SETTLED_PROBABILITY
from crowdrank.collection.belief import Belief, describes_answers
from crowdrank.collection.platform_tasks import write_json
from crowdrank.collection.pool import Pool
from crowdrank.collection.requests import PoolState
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.result import Consensus
from crowdrank.consensus.votes import MajorityVote
from crowdrank.constraints import Number, check_parameter
from crowdrank.judgments.table import UNJUDGEABLE, Judgments
from crowdrank.readers.write import check_output, is_qrels, write_table

MIN_LABEL_INFORMATION = 0.02
"""Floor of the expected information of a label, in nats, in the forecast of the number of labels still needed."""


@dataclass(frozen=True)
class Status:
    """Progress of a collection."""

    documents: int
    judged: int
    settled: int | None  # None if the model does not describe how assessors answer
    level: float  # certainty of its grade at which a document is settled
    labels: int
    assessors: int
    spent: float
    forecast_labels: int | None  # number of labels that the other documents need
    forecast: float | None  # their price


def collection_status(
    pool: Pool, judgments: Judgments, model: Aggregator, *, settled: float = SETTLED_PROBABILITY, price: float = 1.0
) -> Status:
    """Return how many documents are judged and settled, what was spent, and what settling the others may cost.

    Args:
        pool: documents that may be judged.
        judgments: the judgments so far.
        model: model fitted to them; only models of how assessors answer tell which documents are settled.
        settled: certainty of its grade at which a document is settled.
        price: price of a label whose cost is unknown.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=4, documents=5, labels=3, random_state=1)
    >>> judgments = crowdrank.read_judgments(world.judgments)
    >>> status = collection_status(Pool.of(judgments), judgments, crowdrank.DawidSkene().fit(judgments))
    >>> status.judged == judgments.n_items
    True

    """
    check_parameter("settled", settled, [Number(0, 1, above=True, below=True)])
    state = PoolState.of(pool, judgments)
    pair = np.flatnonzero(~pool.is_honeypot)
    cost = judgments.extras.get("cost", np.full(len(judgments), np.nan))
    spent = float(np.where(np.isnan(cost), price, cost).sum())
    n_settled, n_needed = None, None
    if describes_answers(model):
        belief = Belief.from_model(state, model)
        n_settled, n_needed = _count_settled(belief, pair, settled)
        if n_settled and (problem := belief.overconfidence_warning()):
            warnings.warn(problem, stacklevel=2)
    return Status(
        documents=len(pair),
        judged=int((state.n_labels[pair] > 0).sum()),
        settled=n_settled,
        level=settled,
        labels=len(judgments),
        assessors=judgments.n_assessors,
        spent=spent,
        forecast_labels=n_needed,
        forecast=None if n_needed is None else n_needed * spent / len(judgments),
    )


def _count_settled(belief: Belief, pair: Integers, level: float) -> tuple[int, int]:
    """Return the number of settled pairs, and of labels that the others need."""
    is_settled = belief.is_settled(pair, level)
    others = pair[~is_settled]
    needed = labels_needed(belief.entropy(others), belief.information(others), belief.settled_entropy(level))
    return int(is_settled.sum()), int(needed.sum())


def labels_needed(entropy: Floats, information: Floats, settled_entropy: float) -> Integers:
    """Return the number of labels, at least 1, until the entropy is that of a settled document.

    Every label is assumed to have the information of the next one.
    """
    number = np.ceil((entropy - settled_entropy) / np.maximum(information, MIN_LABEL_INFORMATION))
    return np.maximum(number, 1).astype(np.int64)


def disagreements(judgments: Judgments, model: Aggregator | None = None) -> pa.Table:
    """Return the documents on which assessors disagree, those with the largest differences first.

    Args:
        judgments: the judgments.
        model: a fitted model whose grades are added.

    Returns:
        query, document, judgments (their number), spread (mean difference of the grades of two assessors), grades
        (with assessors) and, with a model, grade (the consensus).

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> rows = {"document": ["a", "a", "b", "b"], "assessor": ["x", "y", "x", "y"], "grade": [0, 2, 1, 1]}
    >>> disagreements(read_judgments(pd.DataFrame(rows))).to_pylist()
    [{'query': 'all', 'document': 'a', 'judgments': 2, 'spread': 2.0, 'grades': '0 by x; 2 by y'}]

    """
    table = judgments.to_main_scale()
    values = np.array(table.scale.values)[np.maximum(table.grade, 0)]
    count = np.diff(table.offsets)
    item = np.repeat(np.arange(table.n_items), count)
    order = np.lexsort((values, item))
    # The mean difference over all pairs, from ranks: sum of (2 rank - n - 1) value over the number of pairs.
    rank = np.arange(len(values)) - table.offsets[item] + 1
    total = np.bincount(item, (2 * rank - count[item] - 1) * values[order], table.n_items)
    spread = total / np.maximum(count * (count - 1) / 2, 1)
    items = np.flatnonzero(spread > 0)
    items = items[np.lexsort((-count[items], -spread[items]))]
    query, document = (column.take(pa.array(items)) for column in table.item_ids())
    columns = {
        "query": query,
        "document": document,
        "judgments": count[items],
        "spread": spread[items],
        "grades": pa.array([_grades_by_assessor(table, one) for one in items.tolist()], pa.string()),
    }
    if model is not None:
        row = model.judgments_.positions(query, document)
        grade = model.consensus_.document_table["grade"].combine_chunks()
        columns["grade"] = grade.take(pa.array(np.maximum(row, 0), mask=row < 0))
    return pa.table(columns)


def _grades_by_assessor(table: Judgments, item: int) -> str:
    """Return the grades of an item with their assessors as text."""
    assessors: dict[int, list[str]] = {}
    for row in range(int(table.offsets[item]), int(table.offsets[item + 1])):
        assessors.setdefault(int(table.grade[row]), []).append(str(table.assessors[int(table.assessor[row])].as_py()))
    names = {code: "cannot judge" if code == UNJUDGEABLE else table.scale.names[code] for code in assessors}
    return "; ".join(f"{names[code]} by {', '.join(who)}" for code, who in sorted(assessors.items()))


def confusions(judgments: Judgments) -> list[dict[str, Any]]:
    """Return how often two assessors of a document give each pair of different grades, the most frequent first.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> rows = {"document": ["a", "a", "b", "b"], "assessor": ["x", "y", "x", "y"], "grade": [0, 1, 1, 1]}
    >>> confusions(read_judgments(pd.DataFrame(rows)))
    [{'grades': '0 and 1', 'pairs': 1, 'share': 0.5}]
    """
    table = judgments.to_main_scale().with_unjudgeable("lowest")
    votes = table.vote_counts()
    counts = np.triu(votes.T @ votes, 1)
    n_votes = votes.sum(axis=1)
    n_pairs = max((n_votes * (n_votes - 1) / 2).sum(), 1)
    found = [
        {
            "grades": f"{table.scale.names[low]} and {table.scale.names[high]}",
            "pairs": int(counts[low, high]),
            "share": float(counts[low, high] / n_pairs),
        }
        for low, high in zip(*np.nonzero(counts), strict=True)
    ]
    return sorted(found, key=lambda row: -row["pairs"])


@dataclass(frozen=True, eq=False)
class FinalGrades:
    """Grades of the documents, and how many of them rest on a single answer."""

    consensus: Consensus
    n_single: int  # documents with one answer
    n_overruled: int = 0  # of these, documents whose grade differs from the answer
    are_answers: bool = False  # whether every grade is the only answer


def final_grades(judgments: Judgments, model: Aggregator) -> FinalGrades:
    """Return the grades of a fitted model, or the answers if no document was judged twice.

    Without repeated judgments nothing is known about the assessors, and an answer is better than a model's grade.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> once = read_judgments(pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "y"], "grade": [2, 0]}))
    >>> grades = final_grades(once, MajorityVote().fit(once))
    >>> grades.are_answers, grades.n_single, grades.consensus.documents["grade"].tolist()
    (True, 2, [2, 0])
    """
    consensus = model.consensus_
    is_single = consensus.document_table["judgments"].to_numpy() == 1
    n_single = int(is_single.sum())
    if not judgments.maps_to_one_scale:  # answers on different scales are not grades
        return FinalGrades(consensus, n_single)
    unjudgeable_as = "lowest" if model.unjudgeable_as == "model" else model.unjudgeable_as
    answers = MajorityVote(unjudgeable_as=unjudgeable_as).fit(judgments).consensus_
    if is_single.all():
        return FinalGrades(answers, n_single, are_answers=True)
    grade, answer = (np.array(one.document_table["grade"].to_pylist(), object) for one in (consensus, answers))
    return FinalGrades(consensus, n_single, int((is_single & (grade != answer)).sum()))


def check_grades_output(path: str | Path) -> None:
    """Raise an error if grades cannot be written to a path; call this before long computations."""
    if Path(path).suffix.lower() == ".json":
        check_output_file(path)
    else:
        check_output(path, allow_qrels=True)


def write_grades(consensus: Consensus, path: str | Path) -> None:
    """Write the grades of a consensus as .qrels, .json (a judgment list for OpenSearch) or the whole table.

    >>> import pandas as pd
    >>> import tempfile
    >>> votes = pd.DataFrame({"query": ["q", "q"], "document": ["a", "b"], "assessor": ["x", "x"], "grade": [1, 0]})
    >>> path = Path(tempfile.mkdtemp()) / "grades.qrels"
    >>> write_grades(MajorityVote().fit(votes).consensus_, path)
    >>> print(path.read_text(), end="")
    q 0 a 1
    q 0 b 0
    """
    check_grades_output(path)
    table, is_json = consensus.document_table, Path(path).suffix.lower() == ".json"
    if not is_json and not is_qrels(path):
        write_table(table, path)
        return
    value_of = {label: int(value) for label, value in zip(consensus.labels, consensus.scale.values, strict=False)}
    grade = [value_of[label] for label in table["grade"].to_pylist()]
    if not is_json:
        write_table(pa.table({"query": table["query"], "document": table["document"], "grade": grade}), path)
        return
    ratings: dict[str, list[dict[str, str]]] = {}
    for q, d, g in zip(table["query"].to_pylist(), table["document"].to_pylist(), grade, strict=True):
        ratings.setdefault(str(q), []).append({"docId": str(d), "rating": f"{g:.3f}"})
    n_single = int((table["judgments"].to_numpy() == 1).sum())
    judgment_list = {
        "name": f"crowdrank, {consensus.method}",
        "description": f"Consensus of judgments; {n_single:,} of {counted(len(grade), 'document')} by a single answer",
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": [{"query": query, "ratings": rated} for query, rated in ratings.items()],
    }
    write_json(judgment_list, Path(path))
