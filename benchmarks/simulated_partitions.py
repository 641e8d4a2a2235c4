"""Write synthetic judgments larger than memory as partitioned Parquet, one file at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import kernels
from crowdrank._folders import FolderKind, write_folder
from crowdrank._progress import Report, reporting
from crowdrank._text import counted
from crowdrank.errors import UsageError

PARTITIONS = FolderKind("partitions", 1, "folder of simulated judgments", "simulate_partitions")
ROWS_PER_FILE = 1_000_000
"""Default number of judgments per Parquet file."""


def simulate_partitions(
    folder: str | Path,
    *,
    items: int = 20_000_000,
    labels: int = 5,
    assessors: int = 100_000,
    grades: int = 5,
    documents: int = 20,
    rows_per_file: int = ROWS_PER_FILE,
    random_state: int = 0,
    progress: bool | Report = False,
) -> int:
    """Write synthetic judgments into a new folder of Parquet files.

    The judgments of a query are in several files, in random order. All ids are text.

    Args:
        folder: path of the new folder.
        items: number of documents in all queries.
        labels: number of judgments per document.
        assessors: number of assessors.
        grades: number of grades.
        documents: number of documents per query.
        rows_per_file: number of judgments per file.
        random_state: random seed.
        progress: show a progress bar, or call a function.

    Returns:
        The number of judgments.

    >>> import tempfile
    >>> from crowdrank import read_partitions
    >>> folder = Path(tempfile.mkdtemp()) / "world"
    >>> simulate_partitions(folder, items=100, labels=3, assessors=9, rows_per_file=80)
    300
    >>> read_partitions(folder)
    <ShardedJudgments: 300 judgments of 100 documents by 9 assessors in 1 shard, grades 0-4>

    """
    if not 1 <= labels <= assessors:
        raise UsageError(f"must be from 1 to the number of assessors ({assessors}), not {labels}", parameter="labels")
    n_queries = -(-items // documents)
    n_files = max(1, -(-items * labels // rows_per_file))
    rng = np.random.default_rng(random_state)
    with write_folder(folder, PARTITIONS) as draft, reporting(progress, "drawing judgments") as report:
        for number in range(n_files):
            # Each turn begins with another query, so that the judgments of a query are in different files.
            shift = [(number + turn * (n_files // labels + 1)) % n_files for turn in range(labels)]
            queries = [np.arange(first, n_queries, n_files) for first in shift]
            item = [(q[:, None] * documents + np.arange(documents)).ravel() for q in queries]
            turn = np.repeat(np.arange(labels), [len(one) for one in item])
            numbers = np.concatenate(item)
            rows = rng.permutation(np.flatnonzero(numbers < items))
            table = _table(numbers[rows], turn[rows], labels, assessors, grades, documents, random_state)
            pq.write_table(table, draft / f"part-{number:05d}.parquet")
            report(number + 1, n_files, float("nan"))
    return items * labels


def _table(
    item: NDArray[np.int64],
    turn: NDArray[np.int64],
    labels: int,
    assessors: int,
    grades: int,
    documents: int,
    random_state: int,
) -> pa.Table:
    assessor, grade = np.empty(len(item), np.int32), np.empty(len(item), np.int8)
    kernels.draw_labels(item, turn, labels, assessors, grades, random_state, assessor, grade)
    names = numbered_ids("w", np.arange(assessors), 8)
    return pa.table(
        {
            "query": numbered_ids("q", item // documents, 9),
            "document": numbered_ids("d", item, 11),
            "assessor": pa.DictionaryArray.from_arrays(pa.array(assessor), names),
            "grade": grade,
        }
    )


def numbered_ids(letter: str, numbers: NDArray[np.int64], width: int) -> pa.Array:
    """Return ids of a fixed width: a letter and the number with leading zeros.

    >>> numbered_ids("q", np.array([7]), 5).to_pylist()
    ['q0007']
    """
    text = np.empty((len(numbers), width), np.uint8)
    kernels.write_digits(numbers, ord(letter), text)
    if text.nbytes >= 2**31:
        problem = f"is too large: {counted(len(numbers), 'row')} do not fit into one file"
        raise UsageError(problem, parameter="rows_per_file")
    offsets = np.arange(0, (len(numbers) + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(text))
