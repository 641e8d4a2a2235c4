"""Rankings of documents (runs), as tables or in TREC's format, and the features to rank by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from crowdrank._files import check_output_file
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.features import Features, read_features
from crowdrank.judgments.letor import feature_position, is_letor_feature
from crowdrank.judgments.write import TABLE_SUFFIXES, check_output, output_stream, table_writer
from crowdrank.rankers.base import Ranker

TREC_SUFFIXES = (".trec", ".run")
"""Suffixes of TREC run files; .gz can follow."""


def rank_documents(ranker: Ranker, features: Features) -> pa.Table:
    """Return query, document, rank and score of every document, sorted by query and rank.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=10, documents=5, random_state=1)
    >>> features = crowdrank.read_features(world.features)
    >>> gls = crowdrank.GLS().fit(features, world.gold["grade"], query=features.query)
    >>> rank_documents(gls, features).column_names
    ['query', 'document', 'rank', 'score']
    """
    score = ranker.predict(features, features.query)
    codes, _ = ids.encode(pa.chunked_array([features.query]))
    order = np.lexsort((-score, codes))
    first = np.flatnonzero(np.diff(codes[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order)))) + 1
    return pa.table(
        {
            "query": features.query.take(pa.array(order)),
            "document": features.document.take(pa.array(order)),
            "rank": rank,
            "score": score[order],
        }
    )


def check_run(path: str | Path) -> None:
    """Raise an error if a run cannot be written to a path."""
    if is_trec(path):
        check_output_file(path)
    elif Path(path).name.lower().removesuffix(".gz").endswith(TABLE_SUFFIXES):
        check_output(path)
    else:
        suffixes = ", ".join((*TREC_SUFFIXES, *TABLE_SUFFIXES))
        fix = f"end its name with one of {suffixes} (or these with .gz)"
        raise UsageError(f"Cannot write {path}: the format is unknown", kind="unknown-suffix", fix=fix)


def is_trec(path: str | Path) -> bool:
    """Return whether a path has the suffix of a TREC run.

    >>> is_trec("out.trec"), is_trec("out.run.gz"), is_trec("out.csv")
    (True, True, False)
    """
    return Path(path).name.lower().removesuffix(".gz").endswith(TREC_SUFFIXES)


@contextmanager
def run_writer(
    path: str | Path, tag: str = "crowdrank", *, csv_safe: bool = False
) -> Iterator[Callable[[pa.Table], None]]:
    """Yield a function that appends queries to a run file; the file is put in place when the block succeeds.

    The file is a TREC run (`query Q0 document rank score tag`) or a table, depending on the suffix of the path.
    """
    check_run(path)
    if not is_trec(path):
        with table_writer(path, csv_safe=csv_safe) as write:
            yield write
        return
    _require_no_spaces({"tag": [tag]})
    with output_stream(path) as stream:
        yield lambda run: stream.writelines(_trec_lines(run, tag))


def _trec_lines(run: pa.Table, tag: str) -> Iterator[bytes]:
    columns = [run[name].to_pylist() for name in ("query", "document", "rank", "score")]
    _require_no_spaces({"query": columns[0], "document": columns[1]})
    for query, document, rank, score in zip(*columns, strict=True):
        yield f"{query} Q0 {document} {rank} {score!r} {tag}\n".encode()


def _require_no_spaces(columns: dict[str, list[object]]) -> None:
    for role, names in columns.items():
        for name in names:
            if len(str(name).split()) != 1:
                problem = f"the {role} {shown(name)} has a space, which TREC's format does not allow"
                raise InputError(problem, kind="space-in-id", fix="write a .csv or .parquet file instead")


def join_features(paths: list[Path], format: str | None = None, columns: str | None = None) -> Features:
    """Read and concatenate the features of several files; LETOR files can omit features that are 0."""
    parts = [read_features(path, format=format, columns=columns) for path in paths]  # type: ignore[arg-type]
    names = _shared_names(parts)
    for path, part in zip(paths, parts, strict=True):
        if part.names != names and not (part.zeros_omitted and set(part.names) <= set(names)):
            fix = "give files with the same columns"
            raise InputError("its features differ from those of the other files", source=str(path), fix=fix)
    grades = [part.grade for part in parts if part.grade is not None]
    return Features(
        _concat_ids([part.query for part in parts]),
        _concat_ids([part.document for part in parts]),
        np.vstack([part.on_columns(names).matrix for part in parts]),
        names,
        np.concatenate(grades) if len(grades) == len(parts) else None,
        zeros_omitted=all(part.zeros_omitted for part in parts),
        columns=parts[0].columns,
        notes=tuple(note for part in parts for note in part.notes),
    )


def _shared_names(parts: list[Features]) -> tuple[str, ...]:
    """Return the features of all LETOR files by position, or those of the file with the most."""
    if all(part.zeros_omitted for part in parts):
        return tuple(sorted({name for part in parts for name in part.names}, key=feature_position))
    return max(parts, key=lambda part: len(part.names)).names


def pad_letor(features: Features, names: tuple[str, ...]) -> Features:
    """Return LETOR features in the columns `names`, with zeros for omitted ones; return other features unchanged."""
    if not features.zeros_omitted or not all(map(is_letor_feature, names)) or set(names) <= set(features.names):
        return features
    return features.on_columns(names)


def _concat_ids(arrays: list[pa.Array]) -> pa.Array:
    types = {array.type for array in arrays}
    return pa.concat_arrays(arrays if len(types) == 1 else [array.cast(pa.string()) for array in arrays])
