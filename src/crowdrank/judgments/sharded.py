"""Judgments on disk: shards of whole queries are loaded one at a time; assessors and scales are in memory.

A shard is two files: its codes (`codes-00000.npy`), which every pass reads, and its ids (`ids-00000.arrow`), which
only results need. Assessors have the same codes in all shards; queries and documents are coded within their shard.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crowdrank._base import require_one_of
from crowdrank._folders import FolderKind, open_folder
from crowdrank._saved import Fields, loading, read_array, read_ipc, read_parquet, require, require_range
from crowdrank._text import counted
from crowdrank._typing import Codes, Integers
from crowdrank.errors import InputError, OnDiskError
from crowdrank.judgments import ids as id_codes
from crowdrank.judgments.codes import check_assessors, check_codes
from crowdrank.judgments.storage import header_from, header_of, padded_to
from crowdrank.judgments.table import (
    UNJUDGEABLE,
    AssessorTable,
    Judgments,
    JudgmentsLike,
    assessor_fields,
    no_judgment_left,
)

ABOUT_FILE = "judgments.json"
SHARDS = FolderKind("shards", 1, "folder of shards", "read_partitions with work=")
MAX_SHARDS, MAX_ROWS = 10**6, 2**31 - 1
"""Maximum numbers of shards, and of judgments, documents or queries of a shard."""
MAX_SAMPLE = 1 << 20
"""Maximum number of judgments in a sample."""
NO_SHARDS, READ_AGAIN = "it holds no shards of judgments", "read the partitions again"


@dataclass(frozen=True)
class StoredShard:
    """Counts and digest of a shard."""

    number: int  # in the names of its files
    judgments: int
    items: int
    judgeable: int  # judgments without 'cannot judge' answers
    judgeable_items: int  # items with such a judgment
    queries: int
    documents: int
    digest: str  # of its codes


@dataclass(frozen=True, eq=False, kw_only=True)
class ShardedJudgments(JudgmentsLike):
    """Judgments on disk, in shards. Make one with :func:`crowdrank.read_partitions`.

    Methods such as :meth:`with_unjudgeable` change what :meth:`load` returns, not the files. The object is small and
    can be sent to other processes, each of which loads the shards that it works on.
    """

    folder: str
    shards: tuple[StoredShard, ...]
    stored: AssessorTable  # assessors and scales as coded in the files
    counts: Integers  # (n_assessors, 2) judgments of each assessor, with and without 'cannot judge' answers
    new_codes: Codes | None = None  # by an assessor's code in the files: the code here, or -1
    steps: tuple[str, ...] = ()  # changes that `load` makes to a shard
    whole_queries: bool = True  # whether each query is in one shard
    output: Path | None = None  # folder for a consensus

    def __getattr__(self, name: str) -> Any:
        if name in _IN_MEMORY:
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
        """Number of queries with a judgment; a query in several shards counts in each."""
        return sum(shard.queries for shard in self.shards)

    @property
    def n_unjudgeable(self) -> int:
        """Number of 'cannot judge' answers."""
        return int((self.counts[:, 0] - self.counts[:, 1]).sum())

    def on_one_scale(self) -> Self:
        """Return the judgments with every grade mapped to the common scale."""
        changes = self._on_common_scale()
        return replace(self, steps=(*self.steps, "one-scale"), **changes) if changes else self

    def with_unjudgeable(self, how: str) -> Self:
        """Return the judgments with 'cannot judge' as the lowest grade, left out (`drop`) or as it is (`model`)."""
        require_one_of("unjudgeable_as", how, ("lowest", "drop", "model"))
        if how == "model" or not self.n_unjudgeable:
            return self
        if how == "lowest":
            return replace(self, steps=(*self.steps, "lowest"))
        if not self.counts[:, 1].any():
            raise no_judgment_left()
        left = tuple(
            replace(shard, judgments=shard.judgeable, items=shard.judgeable_items)
            for shard in self.shards
            if shard.judgeable
        )
        dropped = replace(self, shards=left, steps=(*self.steps, "drop"), counts=self.counts[:, [1, 1]])
        return dropped.without_unused_assessors()

    def with_unjudgeable_answer(self) -> Self:
        """Return the judgments with 'cannot judge' coded as one more answer after the grades of all scales."""
        return replace(self, steps=(*self.steps, "answer"))

    def without_unused_assessors(self) -> Self:
        """Leave out assessors without a judgment, and families without an assessor."""
        rows, new_codes = np.flatnonzero(self.counts[:, 0]), self.new_codes
        if len(rows) < len(self.counts):
            here = np.full(len(self.counts) + 1, -1, np.int32)
            here[rows] = np.arange(len(rows))
            new_codes = here[:-1] if self.new_codes is None else here[self.new_codes]
        elif self.families is None:
            return self
        return replace(self, counts=self.counts[rows], new_codes=new_codes, **assessor_fields(self.of_assessors(rows)))

    # Shards.

    def iterate(self) -> Iterator[Judgments]:
        """Yield the shards."""
        return map(self.load, range(len(self.shards)))

    def load(self, place: int, *, ids: bool = True) -> Judgments:
        """Return the shard at a position of `shards`, with the assessors of all shards.

        Args:
            place: position in `shards`.
            ids: whether to read the ids of queries and documents; without, only their codes are known.

        """
        shard = self.shards[place]
        loaded = self._stored_shard(shard)
        for step in self.steps:
            loaded = _STEPS[step](loaded)
        if ids:
            queries, documents = self._ids(shard)
            loaded = replace(loaded, queries=queries, documents=documents)
        assessor = loaded.assessor if self.new_codes is None else self.new_codes[loaded.assessor]
        if assessor.min(initial=0) < 0:
            raise _damaged(self.folder, "an assessor without judgments has some")
        return replace(
            loaded,
            assessor=assessor,
            assessors=self.assessors,
            assessor_scale=self.assessor_scale,
            families=self.families,
            assessor_family=self.assessor_family,
        )

    def _stored_shard(self, shard: StoredShard) -> Judgments:
        """Read the codes of a shard as they are in its file, and check them."""
        path = self._path("codes", shard, ".npy")
        with _reading(path), path.open("rb") as stream:
            assessor = read_array(stream, "assessor", np.int32)
            grade = read_array(stream, "grade", np.int8, len(assessor))
            sizes = read_array(stream, "sizes", np.int32)
            item_query, item_document = (
                read_array(stream, name, np.int32, len(sizes)) for name in ("item_query", "item_document")
            )
            _verify_digest(stream, shard, (assessor, grade, sizes, item_query, item_document))
            stored = Judgments(
                queries=pa.nulls(shard.queries),
                documents=pa.nulls(shard.documents),
                item_query=item_query,
                item_document=item_document,
                offsets=_offsets(sizes),
                assessor=assessor,
                grade=grade,
                **assessor_fields(self.stored),
            )
            self._check(shard, stored)
        no_ids = pa.array([], pa.string())
        return replace(stored, queries=no_ids, documents=no_ids)

    def _check(self, shard: StoredShard, stored: Judgments) -> None:
        """Check the codes of a shard and their numbers."""
        check_codes(stored)
        dropped = "drop" in self.steps  # the numbers in `shards` are then those of graded judgments
        graded = int((stored.grade != UNJUDGEABLE).sum())
        known = (shard.judgeable, graded) if dropped else (shard.judgments, len(stored))
        require(known[0] == known[1] and shard.judgeable == graded, "there are more or fewer judgments than were read")
        require(dropped or shard.items == stored.n_items, "there are more or fewer documents than were read")

    def query_numbers(self, place: int) -> Codes:
        """Return the number of each query of a shard among all queries, in order of first appearance."""
        shard = self.shards[place]
        path = self._path("queries", shard, ".npy")
        with _reading(path), path.open("rb") as stream:
            numbers: Codes = read_array(stream, "queries", np.int32, shard.queries)
            require_range("queries", numbers, 0, np.iinfo(np.int32).max)
        return numbers

    def _ids(self, shard: StoredShard) -> tuple[pa.Array, pa.Array]:
        path = self._path("ids", shard, ".arrow")
        with _reading(path):
            table = read_ipc(path)
            found = [table[name].combine_chunks() for name in ("queries", "documents")]
            ids = [column.slice(0, n) for column, n in zip(found, (shard.queries, shard.documents), strict=True)]
            for column, n in zip(ids, (shard.queries, shard.documents), strict=True):
                require(column.type in (pa.string(), pa.int64()), "the ids are not texts or whole numbers")
                require(len(column) == n and not column.null_count, "there are fewer ids than were read")
        return ids[0], ids[1]

    def _path(self, kind: str, shard: StoredShard, suffix: str) -> Path:
        return shard_path(self.folder, kind, shard.number, suffix)

    def iterate_ids(self, role: str) -> Iterator[pa.Array]:
        """Yield the ids of the queries or documents of each shard."""
        for shard in self.shards:
            yield self._ids(shard)[0 if role == "query" else 1]

    def sample(self, most: int = MAX_SAMPLE) -> Judgments:
        """Return the first shards, with at most `most` judgments but at least one shard; their queries are random."""
        taken, n = [self.load(0)], self.shards[0].judgments
        for place in range(1, len(self.shards)):
            n += self.shards[place].judgments
            if n > most:
                break
            taken.append(self.load(place))
        with loading(self.folder, NO_SHARDS, READ_AGAIN):
            together = concat_shards(taken)
        return together.where(np.ones(len(together), dtype=bool))

    def fingerprint(self) -> str:
        """Return a digest of the judgments, their shards and the steps of :meth:`load`."""
        digest = hashlib.blake2b(repr((self.steps, [shard.digest for shard in self.shards])).encode())
        for array in (self.new_codes, self.assessor_scale, self.assessor_family):
            digest.update(b"-" if array is None else array.tobytes())
        return digest.hexdigest()

    # Storage.

    def save(self) -> None:
        """Write the assessors and the counts of the shards into their folder, for `load_sharded`.

        All assessors must be there, as coded in the files.
        """
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
        about = {
            "shards": [asdict(shard) for shard in self.shards],
            **header_of(stored),
            "families": None if stored.families is None else stored.families.to_pylist(),
            "whole_queries": self.whole_queries,
        }
        (folder / ABOUT_FILE).write_text(json.dumps(about))


def load_sharded(folder: str | Path) -> ShardedJudgments:
    """Load judgments from a folder of shards.

    Raises:
        InputError: the folder has no shards, or one of its files was damaged or altered.

    """
    open_folder(folder, SHARDS)
    with loading(folder, NO_SHARDS, READ_AGAIN):
        about = Fields.read(Path(folder) / ABOUT_FILE)
        table = read_parquet(Path(folder) / "assessors.parquet")
        column = {name: table[name].combine_chunks() for name in table.column_names}
        families = about.values["families"]
        stored = AssessorTable(
            assessors=column["assessor"],
            assessor_scale=np.asarray(column["scale"]),
            families=None if families is None else pa.array(families, None if families else pa.string()),
            assessor_family=np.asarray(column["family"]) if "family" in column else None,
            **header_from(about),
        )
        check_assessors(stored)
        shards = tuple(_shard_from(shard) for shard in about.sequence("shards"))
        counts = np.stack([_counts(column, name) for name in ("judgments", "judgeable")], axis=1)
        _check_counts(shards, counts)
        whole_queries = about.flag("whole_queries")
    return sharded_judgments(folder, shards, stored, counts, whole_queries=whole_queries).without_unused_assessors()


def sharded_judgments(
    folder: str | Path, shards: tuple[StoredShard, ...], stored: AssessorTable, counts: Integers, *, whole_queries: bool
) -> ShardedJudgments:
    """Return the judgments of the shards in a folder, with the assessors as coded in the files."""
    return ShardedJudgments(
        folder=str(folder),
        shards=shards,
        stored=stored,
        counts=counts,
        whole_queries=whole_queries,
        **assessor_fields(stored),
    )


def _shard_from(stored: Any) -> StoredShard:
    about = Fields(stored if isinstance(stored, dict) else {})
    names = [field.name for field in fields(StoredShard)]
    require(set(about.values) == set(names), "a shard is incomplete")
    most = dict.fromkeys(names, MAX_ROWS) | {"number": MAX_SHARDS}
    numbers = {name: about.integer(name, maximum=most[name]) for name in names if name != "digest"}
    return StoredShard(**numbers, digest=about.text("digest"))


def _counts(column: dict[str, pa.Array], name: str) -> Integers:
    counts = column[name]
    require(counts.type == pa.int64() and not counts.null_count, f"{name} is not a column of numbers")
    require_range(name, np.asarray(counts), 0, MAX_ROWS * MAX_SHARDS)
    return np.asarray(counts)


def _check_counts(shards: Sequence[StoredShard], counts: Integers) -> None:
    """Check the numbers of judgments of shards and of assessors against each other."""
    require(shards, "there are no shards")
    require(len({shard.number for shard in shards}) == len(shards), "a shard occurs twice")
    require((counts[:, 1] <= counts[:, 0]).all(), "the numbers of judgments do not add up")
    for column, name in enumerate(("judgments", "judgeable")):
        known = sum(getattr(shard, name) for shard in shards)
        require(known == int(counts[:, column].sum()), f"the numbers of {name} do not add up")
    require(
        all(shard.judgeable <= shard.judgments and 0 < shard.items <= shard.judgments for shard in shards),
        "the numbers of judgments do not add up",
    )


def _damaged(path: str | Path, problem: str) -> InputError:
    return InputError(f"{NO_SHARDS} ({problem})", source=str(path), fix=READ_AGAIN)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    with loading(path, "the shard was changed after it was written", READ_AGAIN):
        yield


_verified: set[tuple[str, int, int, int]] = set()
"""Files of codes whose digest was verified: name, inode, size and time of the last change."""


def _verify_digest(stream: BinaryIO, shard: StoredShard, codes: Sequence[NDArray[Any]]) -> None:
    """Check the digest of a shard's codes, once for each state of its file: it takes as long as half a pass."""
    now = os.fstat(stream.fileno())
    state = (stream.name, now.st_ino, now.st_size, now.st_mtime_ns)
    if state not in _verified:
        require(_digest(codes) == shard.digest, "its digest is another one")
        _verified.add(state)


def _digest(codes: Sequence[NDArray[Any]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in codes:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def shard_path(folder: str | Path, kind: str, number: int, suffix: str) -> Path:
    """Return the path of a file of a shard."""
    return Path(folder) / f"{kind}-{number:05d}{suffix}"


def write_shard(folder: str | Path, number: int, judgments: Judgments) -> StoredShard:
    """Write a shard; its assessors are coded as in all shards."""
    codes: list[NDArray[Any]] = [
        judgments.assessor,
        judgments.grade,
        np.diff(judgments.offsets).astype(np.int32),
        judgments.item_query,
        judgments.item_document,
    ]
    with shard_path(folder, "codes", number, ".npy").open("wb") as stream:
        for array in codes:
            np.save(stream, array)
    n = max(len(judgments.queries), len(judgments.documents))
    padded = pa.table({"queries": padded_to(judgments.queries, n), "documents": padded_to(judgments.documents, n)})
    with (
        pa.OSFile(str(shard_path(folder, "ids", number, ".arrow")), "wb") as file,
        pa.ipc.new_file(file, padded.schema) as writer,
    ):
        writer.write_table(padded)
    graded = judgments.grade != UNJUDGEABLE
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
    return StoredShard(
        number=number,
        judgments=len(judgments),
        items=judgments.n_items,
        judgeable=int(graded.sum()),
        judgeable_items=judgments.n_items if graded.all() else len(np.unique(item[graded])),
        queries=len(judgments.queries),
        documents=len(judgments.documents),
        digest=_digest(codes),
    )


def concat_shards(shards: Sequence[Judgments]) -> Judgments:
    """Return shards as one table; a query in several shards stays several queries."""
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
        offsets=_offsets(np.concatenate([np.diff(shard.offsets) for shard in shards])),
        assessor=np.concatenate([shard.assessor for shard in shards]),
        grade=np.concatenate([shard.grade for shard in shards]),
    )


def _offsets(sizes: NDArray[Any]) -> Integers:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _judgeable(judgments: Judgments) -> Judgments:
    """Return the judgments without 'cannot judge' answers; queries and documents keep their codes."""
    rows = np.flatnonzero(judgments.grade != UNJUDGEABLE)
    if len(rows) == len(judgments):
        return judgments
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))[rows]
    sizes = np.bincount(item, minlength=judgments.n_items)
    left = sizes > 0
    return replace(
        judgments,
        item_query=judgments.item_query[left],
        item_document=judgments.item_document[left],
        offsets=_offsets(sizes[left]),
        assessor=judgments.assessor[rows],
        grade=judgments.grade[rows],
    )


_IN_MEMORY = {field.name for field in fields(Judgments)} | {"frame", "to_arrow", "where", "positions", "query_offsets"}
"""Attributes of judgments in memory only."""
_STEPS = {
    "one-scale": Judgments.on_one_scale,
    "lowest": lambda judgments: judgments.with_unjudgeable("lowest"),
    "drop": _judgeable,
    "answer": Judgments.with_unjudgeable_answer,
}
"""Changes to judgments that can be made to each shard on its own."""
