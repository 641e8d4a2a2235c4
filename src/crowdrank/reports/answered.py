"""Who answered what on a document, and how much each answer tells."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from crowdrank.judgments.table import UNJUDGEABLE, Judgments
from crowdrank.reports.findings import Findings, weight_word
from crowdrank.reports.words import plain_id

MOST_ANSWERS = 12
"""Of more answers on a document, those that tell most are named: the page must stay small."""
LONGEST_NAME = 24


class Answered:
    """Tells the answers on documents of `found.documents` in a line each."""

    def __init__(self, found: Findings) -> None:
        assert found.model is not None
        self.found, self.judgments = found, found.model.judgments_
        known = found.assessors.set_index("assessor")
        names = list(map(str, self.judgments.assessors.to_pylist()))
        self.nats = known["informativeness"].reindex(names).fillna(0.0).to_numpy(np.float64)  # (n_assessors,)
        self.flag = known["flag"].reindex(names).fillna("").to_list()
        self.names = [plain_id(name, LONGEST_NAME) for name in names]

    def lines(self, places: Iterable[int]) -> dict[int, str]:
        """The line of each place in `found.documents`."""
        asked = list(places)
        rows = self.found.documents.iloc[asked]
        items = self.judgments.positions(*(pa.array(rows[name].astype(str)) for name in ("query", "document")))
        return {place: self._line(int(item)) for place, item in zip(asked, items, strict=True)}

    def _line(self, item: int) -> str:
        start, end = self.judgments.offsets[item], self.judgments.offsets[item + 1]
        who = self.judgments.assessor[start:end]
        order = np.argsort(-self.nats[who], kind="stable") if self.found.knows_assessors else np.arange(len(who))
        told = [self._answer(int(start + at)) for at in order[:MOST_ANSWERS]]
        more = f" and {len(order) - MOST_ANSWERS:,} more" if len(order) > MOST_ANSWERS else ""
        return f"{', '.join(told)}{more}"

    def _answer(self, row: int) -> str:
        who = int(self.judgments.assessor[row])
        said = f"{self.names[who]}: {answer_of(self.judgments, row)}"
        if not self.found.knows_assessors:
            return said  # votes weigh everybody alike
        word = weight_word(float(self.nats[who]), self.found.usual_information)
        return f"{said} ({'reversed, ' * (self.flag[who] == 'reversed')}{word})"


def answer_of(judgments: Judgments, row: int) -> str:
    """The grade of a judgment, by its name on the scale of the assessor.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> frame = pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": ["Good"]})
    >>> answer_of(read_judgments(frame, grades="Bad,Good"), 0)
    'Good'
    """
    grade = int(judgments.grade[row])
    if grade == UNJUDGEABLE:
        return "cannot judge"
    scale = judgments.scales[int(judgments.assessor_scale[judgments.assessor[row]])]
    return plain_id(scale.names[grade], LONGEST_NAME)
