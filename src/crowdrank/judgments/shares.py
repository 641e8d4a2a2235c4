"""Probabilities in tables: of grades (columns p0, p1, ... of a consensus), and of being drawn for a sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from crowdrank._typing import Floats, Integers
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.cells import require_floats
from crowdrank.judgments.columns import SHARE_SUM_TOLERANCE, share_columns
from crowdrank.judgments.sources import Source

MIN_PROBABILITY = 1e-9
"""Minimum probability with which a document of a sample was drawn; its inverse is a weight."""
SAMPLE_COLUMNS = ("probability", "round")
"""Columns of a sample: probability with which the document was drawn, and number of the round in which it was."""
NOT_DRAWN = "no probability: not drawn"
"""Reason for which rows are left out."""


class DrawnRows(Source):
    """Rows of a table that were drawn with a known probability; the others are left out and counted.

    >>> import pandas as pd
    >>> from crowdrank.judgments.sources import FrameSource
    >>> table = FrameSource(pd.DataFrame({"document": ["a", "b"], "probability": [None, 0.5]}))
    >>> DrawnRows(table).read(["document"], BadRows()).to_pylist()
    [{'document': 'b'}]

    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name, self.backend, self.names, self.units = source.name, source.backend, source.names, source.units
        self._rows: Integers = np.zeros(0, np.int64)

    def read(self, names: Sequence[str], bad_rows: BadRows) -> pa.Table:
        """Return the columns `names` of the rows with a probability."""
        column = SAMPLE_COLUMNS[0]
        table = self.source.read(list(dict.fromkeys((*names, column))), bad_rows)
        fix = "write the probability with which the document was drawn"
        probability = require_floats(table[column], self.source, column, allow_blanks=True, fixes=[fix])
        self._rows = np.flatnonzero(~np.isnan(probability))
        bad_rows.count_left_out(NOT_DRAWN, len(table) - len(self._rows))
        return table.take(pa.array(self._rows)).select(list(names))

    def place(self, row: int) -> str:
        """Return the place in the file of a row that was read."""
        return self.source.place(int(self._rows[row]))


def read_shares(source: Source, on_bad_rows: str = "error") -> Floats:
    """Read the probability of each grade, (n_rows, n_grades); each row sums to 1.

    Raises:
        InputError: a cell is not a probability, or the probabilities of a row do not sum to 1.

    >>> import pandas as pd
    >>> from crowdrank.judgments.sources import FrameSource
    >>> read_shares(FrameSource(pd.DataFrame({"p0": [0.25], "p1": [0.75]})))
    array([[0.25, 0.75]])

    """
    names, fix = share_columns(source.names), "write probabilities that sum to 1, or drop the columns"
    table = source.read(names, BadRows(on_bad_rows))
    columns = []
    for name in names:
        column = require_floats(table[name], source, name, allow_blanks=False, fixes=[fix])
        is_share = (column >= 0) & (column <= 1)
        source.require(is_share, name, "the probability is not between 0 and 1", fix, "not-a-share")
        columns.append(column)
    shares = np.column_stack(columns)
    total = shares.sum(axis=1)
    problem = f"the probabilities {names[0]} to {names[-1]} do not sum to 1"
    source.require(np.abs(total - 1) <= SHARE_SUM_TOLERANCE, names[0], problem, fix, "not-a-share")
    return np.asarray(shares / total[:, None])


def share_grades(names: Iterable[str]) -> Floats:
    """Return the grades of columns of probabilities.

    >>> share_grades(["p0", "p2"])
    array([0., 2.])
    """
    return np.array([float(name[1:]) for name in names])


def read_draws(source: Source) -> Floats:
    """Read the columns of a sample that the table has, (n_rows, n_columns).

    Raises:
        InputError: a probability is not above 0 and at most 1, or a round is not a number.

    """
    columns = []
    for name in SAMPLE_COLUMNS:
        if name in source.names:
            table = source.read([name], BadRows())
            column = require_floats(table[name], source, name, allow_blanks=False, fixes=["write a number"])
            if name == "probability":
                problem = f"the probability of the draw is not between {MIN_PROBABILITY:g} and 1"
                fix = "write the probability with which the document was drawn"
                source.require((column >= MIN_PROBABILITY) & (column <= 1), name, problem, fix, "not-a-probability")
            columns.append(column)
    return np.column_stack(columns)
