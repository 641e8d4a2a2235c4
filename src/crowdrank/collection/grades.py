"""The grades as they are known, for those who go on with them, and how many answers each rests on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crowdrank._text import counted
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus.result import Consensus
from crowdrank.consensus.votes import MajorityVote
from crowdrank.judgments.table import Judgments


@dataclass(frozen=True, eq=False)
class Grades:
    """A consensus to write, and what to know of it."""

    consensus: Consensus
    single: int  # documents with one answer
    doubted: int = 0  # of these, where the model's grade is another than the answer
    answers: bool = False  # whether they are the answers themselves, as no document was judged twice

    def told(self, path: str | Path) -> str:
        """In one sentence, once they are written."""
        number = counted(self.consensus.n_documents, "document")
        if self.answers:
            return f"Grades of {number} written to {path}: to each its only answer, as no document was judged twice."
        said = f"Grades of {number} written to {path}; {self.single:,} of them from a single answer"
        if self.doubted:
            said += (
                f" ({self.doubted:,} with another grade than that answer, by what the model knows of who gave it; -m "
                "majority writes the answers themselves)"
            )
        return f"{said}."


def grades_of(judgments: Judgments, model: Aggregator) -> Grades:
    """The grades of a fitted model, or the answers themselves where no document was judged twice.

    Then nothing tells who is strict and who is careless, and a model's grade of one answer is worth less than the
    answer.

    >>> import pandas as pd
    >>> from crowdrank import GDA, read_judgments
    >>> once = read_judgments(pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "y"], "grade": [2, 0]}))
    >>> known = grades_of(once, MajorityVote().fit(once))
    >>> known.answers, known.single, known.consensus.documents["grade"].tolist()
    (True, 2, [2, 0])
    """
    own = model.consensus_
    alone = own.document_table["judgments"].to_numpy() == 1
    if not judgments.maps_to_one_scale:  # each has a scale of their own: an answer is no grade of the common one
        return Grades(own, int(alone.sum()))
    how = "lowest" if model.unjudgeable_as == "model" else model.unjudgeable_as
    votes = MajorityVote(unjudgeable_as=how).fit(judgments).consensus_
    if alone.all():
        return Grades(votes, len(alone), answers=True)
    grades = [np.array(one.document_table["grade"].to_pylist(), object) for one in (own, votes)]
    return Grades(own, int(alone.sum()), int((alone & (grades[0] != grades[1])).sum()))
