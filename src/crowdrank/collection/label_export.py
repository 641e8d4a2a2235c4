"""Final grades of a collection for other programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from crowdrank._files import check_output_file
from crowdrank._text import counted
from crowdrank.collection.platforms import write_json
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus.result import Consensus
from crowdrank.consensus.votes import MajorityVote
from crowdrank.judgments.table import Judgments
from crowdrank.judgments.write import check_output, is_qrels, write_table


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
