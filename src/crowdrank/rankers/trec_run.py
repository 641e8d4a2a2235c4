"""What a ranker says of documents: a run, as a table or in TREC's format."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa

from crowdrank._files import check_output_file, write_file
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.features import Features, read_features
from crowdrank.judgments.letor import feature_position, is_letor_feature
from crowdrank.judgments.write import TABLE_SUFFIXES, check_output, write_table
from crowdrank.rankers.base import Ranker

TREC = (".trec", ".run")
"""Names of TREC run files end so, or so with .gz."""
"""The names of features that have only a place, as in LETOR files."""


def rank_documents(ranker: Ranker, features: Features) -> pa.Table:
    """Query, document, rank and score of every document, the best of each query first.

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
    place = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    at = pa.array(order)
    return pa.table(
        {
            "query": features.query.take(at),
            "document": features.document.take(at),
            "rank": place + 1,
            "score": score[order],
        }
    )


def check_run(path: str | Path) -> None:
    """Refuse a path that no run can be written to, before any work is done."""
    if is_trec(path):
        check_output_file(path)
        return
    if Path(path).name.lower().removesuffix(".gz").endswith(TABLE_SUFFIXES):
        check_output(path)
        return
    raise UsageError(
        f"Cannot write {path}: its name ends in none of {', '.join((*TREC, *TABLE_SUFFIXES))} (or these with .gz)."
    )


def is_trec(path: str | Path) -> bool:
    """Whether a file's name promises a TREC run.

    >>> is_trec("out.trec"), is_trec("out.run.gz"), is_trec("out.csv")
    (True, True, False)
    """
    return Path(path).name.lower().removesuffix(".gz").endswith(TREC)


def write_run(run: pa.Table, path: str | Path, tag: str = "crowdrank", *, csv_safe: bool = False) -> None:
    """Write a run as TREC's `query Q0 document rank score tag`, or as a table (see `write_table`), by the suffix."""
    check_run(path)
    if not is_trec(path):
        write_table(run, path, csv_safe=csv_safe)
        return
    columns = [run[name].to_pylist() for name in ("query", "document", "rank", "score")]
    _refuse_spaces({"query": columns[0], "document": columns[1], "tag": [tag]})
    lines = (f"{q} Q0 {d} {rank} {score!r} {tag}\n" for q, d, rank, score in zip(*columns, strict=True))
    with write_file(path) as draft:
        text = "".join(lines).encode()
        # Without a time inside, the same run makes the same bytes.
        draft.write_bytes(gzip.compress(text, mtime=0) if Path(path).suffix.lower() == ".gz" else text)


def _refuse_spaces(columns: dict[str, list[object]]) -> None:
    for role, names in columns.items():
        for name in names:
            if len(str(name).split()) != 1:
                raise InputError(
                    f"the {role} {shown(name)} holds a space, which TREC's format cannot",
                    fix="write a .csv or .parquet instead",
                )


def join_features(paths: list[Path], format: str | None = None, columns: str | None = None) -> Features:
    """Join the features of several files; LETOR files need not name the same features."""
    parts = [read_features(path, format=format, columns=columns) for path in paths]  # type: ignore[arg-type]
    names = _shared_names(parts)
    for path, part in zip(paths, parts, strict=True):
        if part.names != names and not (part.zeros_omitted and set(part.names) <= set(names)):
            raise InputError(
                "it has other features than the other files",
                source=str(path),
                fix="give files with the same columns",
            )
    grades = [part.grade for part in parts if part.grade is not None]
    return Features(
        _joined([part.query for part in parts]),
        _joined([part.document for part in parts]),
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


def padded(features: Features, names: tuple[str, ...]) -> Features:
    """Return LETOR features in the columns `names`, with zeros where no line names them; others as they are."""
    if not features.zeros_omitted or not all(map(is_letor_feature, names)) or set(names) <= set(features.names):
        return features
    return features.on_columns(names)


def _joined(arrays: list[pa.Array]) -> pa.Array:
    kinds = {array.type for array in arrays}
    return pa.concat_arrays(arrays if len(kinds) == 1 else [array.cast(pa.string()) for array in arrays])
