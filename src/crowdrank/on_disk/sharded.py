"""Judgments on disk, in shards that are loaded one at a time; assessors and scales are in memory.

A shard is two files: its codes (`codes-00000.npy`), which every pass over the data reads, and its ids
(`ids-00000.arrow`), which only results need. Assessors have the same codes in all shards; queries and documents are
coded within their shard.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._estimator import require_one_of
from crowdrank._folders import (
    Fields,
    FolderKind,
    loading,
    open_folder,
    read_array,
    read_ipc,
    read_parquet,
    require,
    require_range,
)
from crowdrank._text import counted
from crowdrank._typing import Codes, Integers
from crowdrank.errors import InputError, OnDiskError
from crowdrank.judgments import ids as id_codes
from crowdrank.judgments.columns import PROBABILITY_COLUMN_PATTERN, find_probability_columns
from crowdrank.judgments.table import (
    UNJUDGEABLE,
    AnyJudgments,
    AssessorTable,
    Judgments,
    assessor_fields,
    no_judgments_left_error,
    offsets_from_sizes,
)
from crowdrank.on_disk import storage

HEADER_FILE = "judgments.json"
"""File with the counts of all shards, the scales and the read report."""
SHARDS_FOLDER = FolderKind("shards", 1, "folder of shards", "read_partitions with work=")
MAX_SHARDS, MAX_ROWS_PER_SHARD = 10**6, 2**31 - 1
"""Maximum number of shards, and of judgments, documents or queries per shard."""
MAX_SAMPLE_JUDGMENTS = 1 << 20
"""Default maximum number of judgments in a sample."""
NO_SHARDS_PROBLEM, READ_AGAIN_ADVICE = "it holds no shards of judgments", "read the partitions again"


@dataclass(frozen=True)
class StoredShard:
    """Counts and digest of a shard on disk. An item is a (query, document) pair."""

    number: int  # in the names of its files
    judgments: int  # number of judgments
    items: int  # number of items
    judgeable: int  # number of judgments without 'cannot judge' answers
    judgeable_items: int  # number of items with such a judgment
    queries: int  # number of queries
    documents: int  # number of documents
    digest: str  # of its codes


@dataclass(frozen=True, eq=False, kw_only=True)
class ShardedJudgments(AnyJudgments):
    """Judgments on disk, in shards. Make one with :func:`crowdrank.read_partitions`.

    Methods such as :meth:`with_unjudgeable` change what :meth:`load` returns, not the files. The object is small and
    can be sent to other processes, each of which loads the shards that it works on.
    """

    folder: str
    shards: tuple[StoredShard, ...]
    stored: AssessorTable  # assessors and scales as coded in the files
    counts: Integers  # (n_assessors, 2) judgments of each assessor, with and without 'cannot judge' answers
    new_codes: Codes | None = None  # code of each stored assessor in `assessors`, or -1 if it is left out there
    steps: tuple[str, ...] = ()  # changes that `load` makes to a shard, as keys of `_STEP_FUNCTIONS`
    whole_queries: bool = True  # whether each query is in one shard
    share_names: tuple[str, ...] = ()  # columns with the probabilities of grades, in the files of each shard
    output: Path | None = None  # folder to which a model writes its consensus

    def __getattr__(self, name: str) -> Any:
        if name in _IN_MEMORY_ATTRIBUTES:
            raise OnDiskError(
                f"These judgments are on disk and have no '{name}'; load one shard at a time, or use read_judgments "
                f"if they all fit into memory."
            )
        raise AttributeError(name)

    def __len__(self) -> int:
        return int(self.counts[:, 0].sum())

    def __repr__(self) -> str:
        grades = " / ".join(str(scale) for scale in self.scales)
        parts = [counted(len(self), "judgment"), counted(self.n_items, "document")]
        parts += [counted(self.n_assessors, "assessor"), counted(len(self.shards), "shard")]
        return f"<ShardedJudgments: {parts[0]} of {parts[1]} by {parts[2]} in {parts[3]}, grades {grades}>"

    @property
    def n_items(self) -> int:
        """Number of (query, document) pairs with a judgment."""
        return sum(shard.items for shard in self.shards)

    @property
    def n_queries(self) -> int:
        """Number of queries with a judgment; a query that is in several shards is counted in each."""
        return sum(shard.queries for shard in self.shards)

    @property
    def n_unjudgeable(self) -> int:
        """Number of 'cannot judge' answers."""
        return int((self.counts[:, 0] - self.counts[:, 1]).sum())

    @property
    def has_soft_labels(self) -> bool:
        """Whether there are columns with the probabilities of grades that :meth:`load` does not leave out."""
        return bool(self.share_names) and "hard-labels" not in self.steps

    def with_hard_labels(self) -> Self:
        """Return the judgments without the probabilities of grades."""
        return replace(self, steps=(*self.steps, "hard-labels")) if self.has_soft_labels else self

    def to_one_scale(self) -> Self:
        """Return the judgments with every grade mapped to the common scale."""
        changed_fields = self._fields_on_common_scale()
        return replace(self, steps=(*self.steps, "one-scale"), **changed_fields) if changed_fields else self

    def with_unjudgeable(self, how: str) -> Self:
        """Return the judgments with 'cannot judge' as the lowest grade, left out (`drop`) or as it is (`model`)."""
        require_one_of("unjudgeable_as", how, ("lowest", "drop", "model"))
        if how == "model" or not self.n_unjudgeable:
            return self
        if how == "lowest":
            return replace(self, steps=(*self.steps, "lowest"))
        if not self.counts[:, 1].any():
            raise no_judgments_left_error()
        remaining_shards = tuple(
            replace(shard, judgments=shard.judgeable, items=shard.judgeable_items)
            for shard in self.shards
            if shard.judgeable
        )
        dropped = replace(self, shards=remaining_shards, steps=(*self.steps, "drop"), counts=self.counts[:, [1, 1]])
        return dropped.without_unused_assessors()

    def with_unjudgeable_answer(self) -> Self:
        """Return the judgments with 'cannot judge' coded as one more answer after the grades of all scales."""
        return replace(self, steps=(*self.steps, "answer"))

    def without_unused_assessors(self) -> Self:
        """Return the judgments without assessors that have no judgment, and without families of no assessor."""
        used_codes, new_codes = np.flatnonzero(self.counts[:, 0]), self.new_codes
        if len(used_codes) < len(self.counts):
            code_after = np.full(len(self.counts) + 1, -1, np.int32)
            code_after[used_codes] = np.arange(len(used_codes))
            new_codes = code_after[:-1] if self.new_codes is None else code_after[self.new_codes]
        elif self.families is None:
            return self
        return replace(
            self,
            counts=self.counts[used_codes],
            new_codes=new_codes,
            **assessor_fields(self.select_assessors(used_codes)),
        )

    # Shards.

    def iterate(self, *, ids: bool = True) -> Iterator[Judgments]:
        """Yield the judgments of each shard."""
        return (self.load(position, ids=ids) for position in range(len(self.shards)))

    def load(self, position: int, *, ids: bool = True) -> Judgments:
        """Return the shard at a position of `shards`, with the assessors of all shards.

        Args:
            position: position in `shards`.
            ids: whether to read the ids of queries and documents; otherwise both are empty.

        """
        shard = self.shards[position]
        loaded = self._read_codes(shard)
        for step in self.steps:
            loaded = _STEP_FUNCTIONS[step](loaded)
        if ids:
            queries, documents = self._read_ids(shard)
            loaded = replace(loaded, queries=queries, documents=documents)
        assessor = loaded.assessor if self.new_codes is None else self.new_codes[loaded.assessor]
        if assessor.min(initial=0) < 0:
            problem = f"{NO_SHARDS_PROBLEM} (an assessor without judgments has some)"
            raise InputError(problem, source=self.folder, fix=READ_AGAIN_ADVICE)
        return replace(loaded, assessor=assessor, **assessor_fields(self))

    def _read_codes(self, shard: StoredShard) -> Judgments:
        """Read and check the codes of a shard, before any step is applied."""
        path = self._path("codes", shard, ".npy")
        with _loading_shard(path), path.open("rb") as stream:
            assessor = read_array(stream, "assessor", np.int32)
            grade = read_array(stream, "grade", np.int8, len(assessor))
            sizes = read_array(stream, "sizes", np.int32)
            item_query, item_document = (
                read_array(stream, name, np.int32, len(sizes)) for name in ("item_query", "item_document")
            )
            extras = {name: read_array(stream, name, np.float64, len(assessor)) for name in self.share_names}
            file_state = _file_state(path, stream.fileno())
            if file_state not in _verified_files:
                codes = (assessor, grade, sizes, item_query, item_document, *extras.values())
                require(_codes_digest(codes) == shard.digest, "its digest is another one")
                _verified_files.add(file_state)
            stored = Judgments(
                queries=pa.nulls(shard.queries),
                documents=pa.nulls(shard.documents),
                item_query=item_query,
                item_document=item_document,
                offsets=offsets_from_sizes(sizes),
                assessor=assessor,
                grade=grade,
                extras=extras,
                **assessor_fields(self.stored),
            )
            self._check_shard(shard, stored)
            if file_state not in _files_with_valid_shares:
                storage.check_grade_probabilities(stored)
                _files_with_valid_shares.add(file_state)
        no_ids = pa.array([], pa.string())
        return replace(stored, queries=no_ids, documents=no_ids)

    def _check_shard(self, shard: StoredShard, codes: Judgments) -> None:
        """Raise an error if the codes of a shard are invalid or contradict its counts."""
        storage.check_codes(codes)
        drops_unjudgeable = "drop" in self.steps  # the numbers in `shards` are then those of graded judgments
        graded = int((codes.grade != UNJUDGEABLE).sum())
        expected, actual = (shard.judgeable, graded) if drops_unjudgeable else (shard.judgments, len(codes))
        require(expected == actual and shard.judgeable == graded, "there are more or fewer judgments than were read")
        require(drops_unjudgeable or shard.items == codes.n_items, "there are more or fewer documents than were read")

    def query_indexes(self, position: int) -> Codes:
        """Return the index of each query of a shard among all queries, which are in order of first appearance.

        Args:
            position: position of the shard in `shards`.

        """
        shard = self.shards[position]
        path = self._path("queries", shard, ".npy")
        with _loading_shard(path), path.open("rb") as stream:
            indexes: Codes = read_array(stream, "queries", np.int32, shard.queries)
            require_range("queries", indexes, 0, np.iinfo(np.int32).max)
        return indexes

    def _read_ids(self, shard: StoredShard) -> tuple[pa.Array, pa.Array]:
        """Read the ids of the queries and of the documents of a shard."""
        path = self._path("ids", shard, ".arrow")
        with _loading_shard(path):
            table = read_ipc(path)
            columns = [table[name].combine_chunks() for name in ("queries", "documents")]
            ids = [column.slice(0, n) for column, n in zip(columns, (shard.queries, shard.documents), strict=True)]
            for column, n in zip(ids, (shard.queries, shard.documents), strict=True):
                require(column.type in (pa.string(), pa.int64()), "the ids are not texts or whole numbers")
                require(len(column) == n and not column.null_count, "there are fewer ids than were read")
        return ids[0], ids[1]

    def _path(self, prefix: str, shard: StoredShard, suffix: str) -> Path:
        return numbered_path(self.folder, prefix, shard.number, suffix)

    def iterate_ids(self, role: str) -> Iterator[pa.Array]:
        """Yield the ids of the queries or documents of each shard."""
        for shard in self.shards:
            yield self._read_ids(shard)[0 if role == "query" else 1]

    def sample(self, max_judgments: int = MAX_SAMPLE_JUDGMENTS) -> Judgments:
        """Return the first shard and those after it that have at most `max_judgments` judgments in total.

        Judgments are assigned to shards by a hash of their query or document, so that this is a random sample of them.
        """
        loaded_shards, n_judgments = [self.load(0)], self.shards[0].judgments
        for position in range(1, len(self.shards)):
            n_judgments += self.shards[position].judgments
            if n_judgments > max_judgments:
                break
            loaded_shards.append(self.load(position))
        with loading(self.folder, NO_SHARDS_PROBLEM, READ_AGAIN_ADVICE):
            combined = concat_shards(loaded_shards)
        return combined.where(np.ones(len(combined), dtype=bool))

    def fingerprint(self) -> str:
        """Return a digest of the shards, the assessors and the changes that :meth:`load` makes."""
        digest = hashlib.blake2b(
            repr((self.steps, [shard.digest for shard in self.shards], self.family_separator)).encode()
        )
        for array in (self.new_codes, self.assessor_scale, self.assessor_family, self.estimated_correlations):
            digest.update(b"-" if array is None else array.tobytes())
        return digest.hexdigest()

    # Storage.

    def save(self) -> None:
        """Write the assessors and the counts of the shards to `folder`, for :func:`load_sharded`.

        Call this before :meth:`without_unused_assessors`.
        """
        import pyarrow.parquet as pq

        folder, stored = Path(self.folder), self.stored
        columns = {
            "assessor": stored.assessors,
            "scale": stored.assessor_scale,
            "judgments": self.counts[:, 0],
            "judgeable": self.counts[:, 1],
        }
        if stored.assessor_family is not None:
            columns["family"] = stored.assessor_family
        pq.write_table(pa.table(columns), folder / "assessors.parquet")
        header = {
            "shards": [asdict(shard) for shard in self.shards],
            **storage.header_to_json(stored),
            "families": None if stored.families is None else stored.families.to_pylist(),
            "whole_queries": self.whole_queries,
            "share_names": self.share_names,
        }
        (folder / HEADER_FILE).write_text(json.dumps(header))


def load_sharded(folder: str | Path) -> ShardedJudgments:
    """Return the judgments of a folder that :func:`crowdrank.read_partitions` wrote.

    Raises:
        InputError: the folder has no shards, or one of its files was damaged or altered.

    """
    states = {_file_state(path, path) for path in Path(folder).glob("codes-*.npy")}
    open_folder(folder, SHARDS_FOLDER)
    _verified_files.update(states)  # the manifest has digests of all files
    with loading(folder, NO_SHARDS_PROBLEM, READ_AGAIN_ADVICE):
        header = Fields.read(Path(folder) / HEADER_FILE)
        table = read_parquet(Path(folder) / "assessors.parquet")
        columns = {name: table[name].combine_chunks() for name in table.column_names}
        families = header.values["families"]
        stored = AssessorTable(
            assessors=columns["assessor"],
            assessor_scale=np.asarray(columns["scale"]),
            families=None if families is None else pa.array(families, None if families else pa.string()),
            assessor_family=np.asarray(columns["family"]) if "family" in columns else None,
            **storage.header_from_json(header),
        )
        storage.check_assessors(stored)
        shards = tuple(_parse_shard(shard) for shard in header.sequence("shards"))
        counts = np.stack([_parse_counts(columns, name) for name in ("judgments", "judgeable")], axis=1)
        _check_counts(shards, counts)
        layout: dict[str, Any] = {"whole_queries": header.flag("whole_queries"), "share_names": _share_names(header)}
    return sharded_judgments(folder, shards, stored, counts, **layout).without_unused_assessors()


def _share_names(header: Fields) -> tuple[str, ...]:
    """Return the columns with the probabilities of grades; shards of earlier versions have none."""
    names = header.sequence("share_names") if "share_names" in header.values else []
    require(
        all(isinstance(name, str) and PROBABILITY_COLUMN_PATTERN.fullmatch(name) for name in names),
        "a column has another name",
    )
    return tuple(names)


def sharded_judgments(
    folder: str | Path,
    shards: tuple[StoredShard, ...],
    assessor_table: AssessorTable,
    counts: Integers,
    *,
    whole_queries: bool,
    share_names: tuple[str, ...] = (),
) -> ShardedJudgments:
    """Return judgments that consist of the shards in a folder, with all stored assessors."""
    return ShardedJudgments(
        folder=str(folder),
        shards=shards,
        stored=assessor_table,
        counts=counts,
        whole_queries=whole_queries,
        share_names=share_names,
        **assessor_fields(assessor_table),
    )


def _parse_shard(json_object: Any) -> StoredShard:
    """Return a shard from its JSON object in the header file."""
    shard: StoredShard = storage.value_from_json(StoredShard, json_object, "a shard")
    sizes = (shard.judgments, shard.items, shard.queries, shard.documents)
    require(shard.number <= MAX_SHARDS and max(sizes) <= MAX_ROWS_PER_SHARD, "a shard is too large")
    return shard


def _parse_counts(columns: dict[str, pa.Array], name: str) -> Integers:
    """Return a column of counts as an array."""
    counts = columns[name]
    require(counts.type == pa.int64() and not counts.null_count, f"{name} is not a column of numbers")
    require_range(name, np.asarray(counts), 0, MAX_ROWS_PER_SHARD * MAX_SHARDS)
    return np.asarray(counts)


def _check_counts(shards: Sequence[StoredShard], counts: Integers) -> None:
    """Raise an error if the counts of the shards and those of the assessors contradict each other."""
    require(shards, "there are no shards")
    require(len({shard.number for shard in shards}) == len(shards), "a shard occurs twice")
    require((counts[:, 1] <= counts[:, 0]).all(), "the numbers of judgments do not add up")
    for column, name in enumerate(("judgments", "judgeable")):
        shard_total = sum(getattr(shard, name) for shard in shards)
        require(shard_total == int(counts[:, column].sum()), f"the numbers of {name} do not add up")
    for shard in shards:
        are_ordered = shard.judgeable <= shard.judgments and 0 < shard.items <= shard.judgments
        require(are_ordered, "the numbers of judgments do not add up")


@contextmanager
def _loading_shard(path: Path) -> Iterator[None]:
    """Raise InputError if the block cannot read a file of a shard."""
    with loading(path, "the shard was changed after it was written", READ_AGAIN_ADVICE):
        yield


FileState = tuple[str, int, int, int]
"""Name, inode, size and modification time of a file, which change when it is written."""
_verified_files: set[FileState] = set()
"""Files whose digest was verified: again only after a change, because this takes half as long as a pass over them."""
_files_with_valid_shares: set[FileState] = set()
"""Files whose probabilities of grades were checked."""


def _file_state(path: Path, file: int | Path) -> FileState:
    """Return the state of a file, given its path and its descriptor or path."""
    status = os.stat(file)  # noqa: PTH116 (of a descriptor)
    return str(path), status.st_ino, status.st_size, status.st_mtime_ns


def _codes_digest(codes: Sequence[NDArray[Any]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in codes:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def numbered_path(folder: str | Path, prefix: str, number: int, suffix: str) -> Path:
    """Return the path of a file whose name has a number: `folder/prefix-00007.suffix`."""
    return Path(folder) / f"{prefix}-{number:05d}{suffix}"


def write_shard(folder: str | Path, shard_number: int, judgments: Judgments) -> StoredShard:
    """Write judgments to the files of a shard; their assessor codes must be those of all shards."""
    codes: list[NDArray[Any]] = [
        judgments.assessor,
        judgments.grade,
        np.diff(judgments.offsets).astype(np.int32),
        judgments.item_query,
        judgments.item_document,
        *(judgments.extras[name] for name in find_probability_columns(judgments.extras)),
    ]
    with numbered_path(folder, "codes", shard_number, ".npy").open("wb") as stream:
        for array in codes:
            np.save(stream, array)
    padded_length = max(len(judgments.queries), len(judgments.documents))
    padded = pa.table(
        {
            "queries": storage.pad_with_nulls(judgments.queries, padded_length),
            "documents": storage.pad_with_nulls(judgments.documents, padded_length),
        }
    )
    with (
        pa.OSFile(str(numbered_path(folder, "ids", shard_number, ".arrow")), "wb") as file,
        pa.ipc.new_file(file, padded.schema) as writer,
    ):
        writer.write_table(padded)
    graded = judgments.grade != UNJUDGEABLE
    return StoredShard(
        number=shard_number,
        judgments=len(judgments),
        items=judgments.n_items,
        judgeable=int(graded.sum()),
        judgeable_items=judgments.n_items if graded.all() else len(np.unique(judgments.item[graded])),
        queries=len(judgments.queries),
        documents=len(judgments.documents),
        digest=_codes_digest(codes),
    )


def concat_shards(shards: Sequence[Judgments]) -> Judgments:
    """Return the judgments of several shards as one table; a query that is in several shards occurs several times."""
    if len(shards) == 1:
        return shards[0]
    first_query = np.cumsum([0, *(len(shard.queries) for shard in shards)])[:-1]
    item_query = [shard.item_query + first for shard, first in zip(shards, first_query, strict=True)]
    item_document, documents = id_codes.concat([(shard.item_document, shard.documents) for shard in shards])
    return replace(
        shards[0],
        queries=pa.concat_arrays([shard.queries for shard in shards]),
        documents=documents,
        item_query=np.concatenate(item_query).astype(np.int32),
        item_document=item_document,
        offsets=offsets_from_sizes(np.concatenate([np.diff(shard.offsets) for shard in shards])),
        assessor=np.concatenate([shard.assessor for shard in shards]),
        grade=np.concatenate([shard.grade for shard in shards]),
        extras={name: np.concatenate([shard.extras[name] for shard in shards]) for name in shards[0].extras},
    )


def _drop_unjudgeable(judgments: Judgments) -> Judgments:
    """Return the judgments without 'cannot judge' answers; the codes of queries and documents do not change."""
    is_judged = judgments.grade != UNJUDGEABLE
    return judgments if is_judged.all() else judgments.keep_rows(is_judged)


_IN_MEMORY_ATTRIBUTES = {field.name for field in fields(Judgments)}
_IN_MEMORY_ATTRIBUTES |= {"frame", "to_arrow", "where", "positions", "query_offsets"}
"""Attributes that only judgments in memory have."""
_STEP_FUNCTIONS = {
    "one-scale": Judgments.to_one_scale,
    "hard-labels": Judgments.with_hard_labels,
    "lowest": lambda judgments: judgments.with_unjudgeable("lowest"),
    "drop": _drop_unjudgeable,
    "answer": Judgments.with_unjudgeable_answer,
}
"""Function for each step of :meth:`ShardedJudgments.load`; each changes one shard without the others."""
