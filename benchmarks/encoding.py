"""Time of reading text ids as sorted codes, relative to pyarrow's dictionary encoding of the same columns."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import Result, at_most, best, in_own_process

ROLES = ("query", "document", "assessor")


def _write(path: Path, n: int) -> None:
    """Write `n` judgments by 1,300 assessors in random order, with text ids and five judgments per document."""
    rng = np.random.default_rng(0)
    item = rng.integers(0, n // 5, n)
    codes = {"query": item // 100, "document": item, "assessor": rng.integers(0, 1_300, n)}
    names = {"query": "query-{:06d}", "document": "clueweb09-en0000-{:010d}", "assessor": "A{:013d}"}
    columns = {}
    for role in ROLES:
        known = pa.array(
            [names[role].format(number) for number in range(int(codes[role].max()) + 1)], pa.large_string()
        )
        columns[role] = known.take(pa.array(codes[role]))
    pq.write_table(pa.table({**columns, "grade": rng.integers(0, 5, n).astype(np.int8)}), path)


def _ours(path: Path) -> float:
    from crowdrank import read_judgments

    return best(lambda: read_judgments(path), 3)


def _arrow(path: Path) -> float:
    def read_and_encode() -> None:
        table = pq.read_table(path, columns=list(ROLES))
        for role in ROLES:
            table[role].combine_chunks().dictionary_encode()

    return best(read_and_encode, 3)


def _ours_from_memory(path: Path) -> float:
    from crowdrank import read_judgments

    table = pq.read_table(path)
    return best(lambda: read_judgments(table), 3)


def _arrow_from_memory(path: Path) -> float:
    table = pq.read_table(path)
    return best(lambda: [table[role].combine_chunks().dictionary_encode() for role in ROLES], 3)


def encoding(n: int = 10_000_000) -> list[Result]:
    """Divide our time for codes sorted by query and document by pyarrow's for unsorted codes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "judgments.parquet"
        _write(path, n)
        results = []
        for place, ours, floor in (
            ("from Parquet", _ours, _arrow),
            ("in memory", _ours_from_memory, _arrow_from_memory),
        ):
            seconds, arrow_seconds = in_own_process(ours, path), in_own_process(floor, path)
            name = f"encoding 10M rows of text ids {place}, sorted: crowdrank / pyarrow's dictionary encoding"
            results.append(at_most(name, seconds / arrow_seconds, 1.2, ours=seconds, pyarrow=arrow_seconds))
        return results
