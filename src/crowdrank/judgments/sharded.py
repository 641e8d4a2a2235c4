"""Judgments that stay on disk: shards of whole queries, loaded one at a time; assessors and scales in memory.

A shard is two files: its codes (`codes-00000.npy`), which every pass reads, and its ids (`ids-00000.arrow`), which
only results need. Assessors have one code throughout, items are coded within their shard.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crowdrank._base import require_one_of
from crowdrank._folders import FolderKind, open_folder
from crowdrank._saved import Fields, loading, read_array, read_ipc, read_parquet, require, require_range
from crowdrank._text import counted
from crowdrank.errors import InputError, OnDiskError
from crowdrank.judgments import storage
from crowdrank.judgments.codes import check_assessors, check_codes, maps_from, report_from, scale_from
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import UNJUDGEABLE, Judgments, ReadReport

ABOUT_FILE = "judgments.json"
SHARDS = FolderKind("shards", 1, "folder of shards", "read_partitions with work=")
MOST_SHARDS, MOST_ROWS = 10**6, 2**31 - 1
"""Maximum numbers of shards and of judgments, documents or queries of a shard."""
MOST_IN_SAMPLE = 1 << 20
"""So many judgments are looked at in memory where a model chooses by looking."""


@dataclass(frozen=True)
class StoredShard:
    """What is known of a shard without loading it."""

    number: int  # in the names of its files
    judgments: int
    items: int
    judgeable: int  # judgments but for 'cannot judge'
    judgeable_items: int  # items with such a judgment
    queries: int
    documents: int
    digest: str  # of its codes


@dataclass(frozen=True, eq=False)
class ShardedJudgments:
    """Judgments on disk, in shards. Make one with :func:`crowdrank.read_partitions`.

    What is asked of it changes what :meth:`load` gives, not the files. It is small and can be sent to other processes,
    each of which loads the shards that it works on.
    """

    folder: str
    shards: tuple[StoredShard, ...]
    stored: Judgments  # assessors and scales as the files code them; no judgments
    about: Judgments  # assessors and scales as `load` codes them; no judgments
    counts: NDArray[np.int64]  # (n_assessors, 2) judgments of each assessor, and those but for 'cannot judge'
    onto: NDArray[np.int32] | None = None  # from an assessor's code in the files to that here; -1 is left out
    steps: tuple[str, ...] = ()  # what `load` does to a shard
    whole_queries: bool = True  # whether each query is in one shard
    output: Path | None = None  # where a consensus of these is written

    def __getattr__(self, name: str) -> Any:
        # Only what is not found otherwise comes here.
        if name in _IN_MEMORY:
            raise OnDiskError(
                f"These judgments stay on disk, and have no '{name}'; load shards one at a time, or read_judgments "
                f"where memory holds them all."
            )
        raise AttributeError(name)

    # What is asked of judgments in memory and here alike.

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
        """Number of queries with a judgment; one that is spread over shards counts in each."""
        return sum(shard.queries for shard in self.shards)

    @property
    def n_assessors(self) -> int:
        """Number of assessors with a judgment."""
        return self.about.n_assessors

    @property
    def n_unjudgeable(self) -> int:
        """How many answers were 'cannot judge'."""
        return int((self.counts[:, 0] - self.counts[:, 1]).sum())

    @property
    def assessors(self) -> pa.Array:
        """The ids of the assessors, in order of first appearance."""
        return self.about.assessors

    @property
    def assessor_scale(self) -> NDArray[np.int8]:
        """The scale of each assessor."""
        return self.about.assessor_scale

    @property
    def families(self) -> pa.Array | None:
        """The families of assessors, where there are any."""
        return self.about.families

    @property
    def assessor_family(self) -> NDArray[np.int32] | None:
        """The family of each assessor, or -1."""
        return self.about.assessor_family

    @property
    def family_of(self) -> NDArray[np.int32]:
        """The family of each assessor, numbered; an assessor without one is a family of one."""
        return self.about.family_of

    @property
    def scales(self) -> tuple[Scale, ...]:
        """The scales that assessors use."""
        return self.about.scales

    @property
    def scale(self) -> Scale:
        """The one scale that every assessor uses."""
        return self.about.scale

    @property
    def main_scale(self) -> Scale:
        """The scale with the most grades."""
        return self.about.main_scale

    @property
    def maps_to_one_scale(self) -> bool:
        """Whether there is one scale, or a map to one for each."""
        return self.about.maps_to_one_scale

    @property
    def unjudgeable(self) -> tuple[str, ...]:
        """The answers that were told to mean 'cannot judge'."""
        return self.about.unjudgeable

    @property
    def report(self) -> ReadReport:
        """What reading left out or found."""
        return self.about.report

    @property
    def backend(self) -> str:
        """The library that DataFrames come in."""
        return self.about.backend

    def on_one_scale(self) -> ShardedJudgments:
        """The same judgments with every grade on one scale, by the maps given when reading."""
        about = self.about.on_one_scale()
        return self if about is self.about else replace(self, about=about, steps=(*self.steps, "one-scale"))

    def with_unjudgeable(self, how: str) -> ShardedJudgments:
        """'Cannot judge' answers as the lowest grade (`lowest`), left out (`drop`), or as they are (`model`)."""
        require_one_of("unjudgeable_as", how, ("lowest", "drop", "model"))
        if how == "model" or not self.n_unjudgeable:
            return self
        if how == "lowest":
            return replace(self, steps=(*self.steps, "lowest"))
        if not self.counts[:, 1].any():
            raise InputError("no judgment is left", fix="loosen what is left out")
        left = tuple(
            replace(shard, judgments=shard.judgeable, items=shard.judgeable_items)
            for shard in self.shards
            if shard.judgeable
        )
        dropped = replace(self, shards=left, steps=(*self.steps, "drop"), counts=self.counts[:, [1, 1]])
        return dropped.heard()

    def with_unjudgeable_answer(self) -> ShardedJudgments:
        """'Cannot judge' as an answer of its own, coded after the grades of all scales."""
        return replace(self, steps=(*self.steps, "answer"))

    def with_families(self, families: pa.Array | None, assessor_family: NDArray[np.int32] | None) -> ShardedJudgments:
        """The same judgments, their assessors in these families, or in none."""
        return replace(self, about=self.about.with_families(families, assessor_family))

    def heard(self) -> ShardedJudgments:
        """Without the assessors who have no judgment left."""
        rows = np.flatnonzero(self.counts[:, 0])
        if len(rows) == len(self.counts):
            return self
        here = np.full(len(self.counts) + 1, -1, np.int32)
        here[rows] = np.arange(len(rows))
        onto = here[:-1] if self.onto is None else here[self.onto]
        return replace(self, about=self.about.of_assessors(rows), counts=self.counts[rows], onto=onto)

    # Shards.

    def load(self, place: int, *, ids: bool = True) -> Judgments:
        """The shard at a place of `shards` as judgments of their own; without ids, queries and documents are codes.

        The assessors are those of all shards.
        """
        shard = self.shards[place]
        loaded = self._stored_shard(shard)
        for step in self.steps:
            loaded = _STEPS[step](loaded)
        if ids:
            queries, documents = self._ids(shard)
            loaded = replace(loaded, queries=queries, documents=documents)
        assessor = loaded.assessor if self.onto is None else self.onto[loaded.assessor]
        if assessor.min(initial=0) < 0:
            raise _damaged(self.folder, "an assessor without judgments has some")
        return replace(
            loaded,
            assessor=assessor,
            assessors=self.about.assessors,
            assessor_scale=self.about.assessor_scale,
            families=self.about.families,
            assessor_family=self.about.assessor_family,
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
            stored = replace(
                self.stored,
                queries=pa.nulls(shard.queries),
                documents=pa.nulls(shard.documents),
                item_query=item_query,
                item_document=item_document,
                offsets=_offsets(sizes),
                assessor=assessor,
                grade=grade,
            )
            self._check(shard, stored)
        return replace(stored, queries=self.stored.queries, documents=self.stored.documents)

    def _check(self, shard: StoredShard, stored: Judgments) -> None:
        """Check the codes of a shard against what is known of it."""
        check_codes(stored)
        dropped = "drop" in self.steps  # the numbers in `shards` are then those of graded judgments
        graded = int((stored.grade != UNJUDGEABLE).sum())
        known = (shard.judgeable, graded) if dropped else (shard.judgments, len(stored))
        require(known[0] == known[1] and shard.judgeable == graded, "there are more or fewer judgments than were read")
        require(dropped or shard.items == stored.n_items, "there are more or fewer documents than were read")

    def query_numbers(self, place: int) -> NDArray[np.int32]:
        """Return the number of each query of a shard among all queries, in order of first appearance."""
        shard = self.shards[place]
        path = self._path("queries", shard, ".npy")
        with _reading(path), path.open("rb") as stream:
            numbers: NDArray[np.int32] = read_array(stream, "queries", np.int32, shard.queries)
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

    def sample(self, most: int = MOST_IN_SAMPLE) -> Judgments:
        """Whole shards, at least one and otherwise at most `most` judgments, in memory: queries by chance."""
        taken, n = [self.load(0)], self.shards[0].judgments
        for place in range(1, len(self.shards)):
            n += self.shards[place].judgments
            if n > most:
                break
            taken.append(self.load(place))
        with loading(self.folder, NO_SHARDS, AGAIN):
            together = joined(taken)
        return together.where(np.ones(len(together), dtype=bool))

    def fingerprint(self) -> str:
        """What is the same only for the same judgments in the same shards, taken alike."""
        about = self.about
        digest = hashlib.blake2b(repr((self.steps, [shard.digest for shard in self.shards])).encode())
        for array in (self.onto, about.assessor_scale, about.assessor_family):
            digest.update(b"-" if array is None else array.tobytes())
        return digest.hexdigest()

    # Storage.

    def save(self) -> None:
        """Write what is known of the shards beside them, so that `load_sharded` finds them again."""
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
            "scales": [storage.scale_out(scale) for scale in stored.scales],
            "scale_maps": stored.scale_maps,
            "common_scale": storage.scale_out(stored.common_scale),
            "families": None if stored.families is None else stored.families.to_pylist(),
            "unjudgeable": stored.unjudgeable,
            "report": asdict(stored.report),
            "whole_queries": self.whole_queries,
        }
        (folder / ABOUT_FILE).write_text(json.dumps(about))


def load_sharded(folder: str | Path) -> ShardedJudgments:
    """Load judgments whose shards are in a folder already.

    Raises:
        InputError: the folder has no shards, or one of its files was damaged or altered.

    """
    open_folder(folder, SHARDS)
    with loading(folder, NO_SHARDS, AGAIN):
        about = Fields.read(Path(folder) / ABOUT_FILE)
        table = read_parquet(Path(folder) / "assessors.parquet")
        column = {name: table[name].combine_chunks() for name in table.column_names}
        families, common = about.values["families"], about.values["common_scale"]
        stored = header(
            column["assessor"],
            tuple(map(scale_from, about.sequence("scales"))),
            np.asarray(column["scale"]),
            scale_maps=maps_from(about.sequence("scale_maps")),
            common_scale=None if common is None else scale_from(common),
            families=None if families is None else pa.array(families, None if families else pa.string()),
            assessor_family=np.asarray(column["family"]) if "family" in column else None,
            unjudgeable=tuple(about.texts("unjudgeable")),
            report=report_from(about.object("report")),
        )
        check_assessors(stored)
        shards = tuple(_shard_from(shard) for shard in about.sequence("shards"))
        counts = np.stack([_counts(column, name) for name in ("judgments", "judgeable")], axis=1)
        found = ShardedJudgments(str(folder), shards, stored, stored, counts, whole_queries=about.flag("whole_queries"))
        _check_counts(found)
    return found.heard()


NO_SHARDS, AGAIN = "it holds no shards of judgments", "read the partitions again"


def _shard_from(stored: Any) -> StoredShard:
    about = Fields(stored if isinstance(stored, dict) else {})
    names = [field.name for field in fields(StoredShard)]
    require(set(about.values) == set(names), "a shard is incomplete")
    most = dict.fromkeys(names, MOST_ROWS) | {"number": MOST_SHARDS}
    numbers = {name: about.whole(name, high=most[name]) for name in names if name != "digest"}
    return StoredShard(**numbers, digest=about.text("digest"))


def _counts(column: dict[str, pa.Array], name: str) -> NDArray[np.int64]:
    counts = column[name]
    require(counts.type == pa.int64() and not counts.null_count, f"{name} is not a column of numbers")
    require_range(name, np.asarray(counts), 0, MOST_ROWS * MOST_SHARDS)
    return np.asarray(counts)


def _check_counts(found: ShardedJudgments) -> None:
    """Check the numbers of judgments of shards and of assessors against each other."""
    shards, counts = found.shards, found.counts
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
    return InputError(f"{NO_SHARDS} ({problem})", source=str(path), fix=AGAIN)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    with loading(path, "the shard was changed after it was written", AGAIN):
        yield


_verified: set[tuple[str, int, int, int]] = set()
"""Files of codes whose digest was found to be right: name, inode, size and time of the last change."""


def _verify_digest(stream: BinaryIO, shard: StoredShard, codes: Sequence[NDArray[Any]]) -> None:
    """Check the digest of a shard's codes, once for each state of its file: it costs as much as half a pass."""
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


def header(assessors: pa.Array, scales: tuple[Scale, ...], assessor_scale: NDArray[np.int8], **more: Any) -> Judgments:
    """Assessors and scales of judgments that are elsewhere."""
    nothing, no_ids = np.empty(0, np.int32), pa.array([], pa.string())
    return Judgments(
        queries=no_ids,
        documents=no_ids,
        assessors=assessors,
        item_query=nothing,
        item_document=nothing,
        offsets=np.zeros(1, np.int64),
        assessor=nothing,
        grade=np.empty(0, np.int8),
        scales=scales,
        assessor_scale=assessor_scale,
        **more,
    )


def shard_path(folder: str | Path, kind: str, number: int, suffix: str) -> Path:
    """Where a shard's file of some kind is."""
    return Path(folder) / f"{kind}-{number:05d}{suffix}"


def write_shard(folder: str | Path, number: int, judgments: Judgments) -> StoredShard:
    """Write a shard: judgments with assessors coded as in all shards."""
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
    names = {"queries": judgments.queries, "documents": judgments.documents}
    padded = pa.table({name: pa.concat_arrays([ids, pa.nulls(n - len(ids), ids.type)]) for name, ids in names.items()})
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


def joined(shards: Sequence[Judgments]) -> Judgments:
    """Shards as one table; documents keep the codes of their shards, set apart."""
    if len(shards) == 1:
        return shards[0]
    queries = np.cumsum([0, *(len(shard.queries) for shard in shards)])
    names = [pa.concat_arrays([getattr(shard, name) for shard in shards]) for name in ("queries", "documents")]
    document = _recoded(names[1], [shard.item_document for shard in shards], [len(shard.documents) for shard in shards])
    return replace(
        shards[0],
        queries=names[0],
        documents=document[1],
        item_query=np.concatenate([s.item_query + first for s, first in zip(shards, queries[:-1], strict=True)]).astype(
            np.int32
        ),
        item_document=document[0],
        offsets=_offsets(np.concatenate([np.diff(shard.offsets) for shard in shards])),
        assessor=np.concatenate([shard.assessor for shard in shards]),
        grade=np.concatenate([shard.grade for shard in shards]),
    )


def _recoded(names: pa.Array, codes: list[NDArray[np.int32]], sizes: list[int]) -> tuple[NDArray[np.int32], pa.Array]:
    """Codes over the distinct names of all shards."""
    onto = names.dictionary_encode()
    place, first = np.asarray(onto.indices), np.cumsum([0, *sizes])
    together = [place[start : start + size][code] for start, size, code in zip(first, sizes, codes, strict=False)]
    return np.concatenate(together).astype(np.int32), onto.dictionary


def _offsets(sizes: NDArray[Any]) -> NDArray[np.int64]:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _judgeable(judgments: Judgments) -> Judgments:
    """Only the judgments that grade, and the items that have one; nothing is coded anew."""
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
_STEPS = {
    "one-scale": Judgments.on_one_scale,
    "lowest": lambda judgments: judgments.with_unjudgeable("lowest"),
    "drop": _judgeable,
    "answer": Judgments.with_unjudgeable_answer,
}
"""What can be done to a shard on its own as to all judgments at once."""
