"""Judgments that stay on disk: shards of whole queries, loaded one at a time; assessors and scales in memory.

A shard is two files: its codes (`codes-00000.npy`), which every pass reads, and its ids (`ids-00000.arrow`), which
only results need. Assessors have one code throughout, items are coded within their shard.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crowdrank._folders import FolderKind, open_folder, reason
from crowdrank.errors import InputError, OnDiskError
from crowdrank.judgments import combine
from crowdrank.judgments.grades import Scale, one_of
from crowdrank.judgments.table import UNJUDGEABLE, Judgments, ReadReport, counted

ABOUT_FILE = "judgments.json"
SHARDS = FolderKind("shards", 1, "folder of shards", "read_partitions with work=")
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
        one_of(("lowest", "drop", "model"), how, "--unjudgeable-as")
        if how == "model" or not self.n_unjudgeable:
            return self
        if how == "lowest":
            return replace(self, steps=(*self.steps, "lowest"))
        if not self.counts[:, 1].any():
            raise InputError("no judgment is left", remedy="loosen what is left out")
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
        with self._path("codes", shard, ".npy").open("rb") as stream:
            assessor, grade, sizes, item_query, item_document = (np.load(stream) for _ in range(5))
        loaded = replace(
            self.stored,
            item_query=item_query,
            item_document=item_document,
            offsets=_offsets(sizes),
            assessor=assessor,
            grade=grade,
        )
        for step in self.steps:
            loaded = _STEPS[step](loaded)
        if ids:
            queries, documents = self._ids(shard)
            loaded = replace(loaded, queries=queries, documents=documents)
        return replace(
            loaded,
            assessor=loaded.assessor if self.onto is None else self.onto[loaded.assessor],
            assessors=self.about.assessors,
            assessor_scale=self.about.assessor_scale,
            families=self.about.families,
            assessor_family=self.about.assessor_family,
        )

    def query_numbers(self, place: int) -> NDArray[np.int32]:
        """For each query of a shard its number among all, in order of first appearance."""
        with self._path("queries", self.shards[place], ".npy").open("rb") as stream:
            numbers: NDArray[np.int32] = np.load(stream)
        return numbers

    def _ids(self, shard: StoredShard) -> tuple[pa.Array, pa.Array]:
        with pa.OSFile(str(self._path("ids", shard, ".arrow"))) as file:
            table = pa.ipc.open_file(file).read_all()
        columns = [table[name].combine_chunks() for name in ("queries", "documents")]
        return columns[0].slice(0, shard.queries), columns[1].slice(0, shard.documents)

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
            "scales": [combine.scale_out(scale) for scale in stored.scales],
            "scale_maps": stored.scale_maps,
            "common_scale": combine.scale_out(stored.common_scale),
            "families": None if stored.families is None else stored.families.to_pylist(),
            "unjudgeable": stored.unjudgeable,
            "report": asdict(stored.report),
            "whole_queries": self.whole_queries,
        }
        (folder / ABOUT_FILE).write_text(json.dumps(about))


def load_sharded(folder: str | Path) -> ShardedJudgments:
    """Load judgments whose shards are in a folder already."""
    open_folder(folder, SHARDS)
    try:
        about = json.loads((Path(folder) / ABOUT_FILE).read_text())
        table = pq.read_table(Path(folder) / "assessors.parquet")
    except (OSError, ValueError) as problem:
        raise InputError(
            f"it holds no shards of judgments ({reason(problem, folder)})",
            source=str(folder),
            remedy="read the partitions again",
        ) from problem
    column = {name: table[name].combine_chunks() for name in table.column_names}
    stored = header(
        column["assessor"],
        tuple(combine.scale_in(scale) for scale in about["scales"]),
        np.asarray(column["scale"]),
        scale_maps=tuple(None if codes is None else tuple(codes) for codes in about["scale_maps"]),
        common_scale=None if about["common_scale"] is None else combine.scale_in(about["common_scale"]),
        families=None if about["families"] is None else pa.array(about["families"]),
        assessor_family=np.asarray(column["family"]) if "family" in column else None,
        unjudgeable=tuple(about["unjudgeable"]),
        report=ReadReport(**about["report"]),
    )
    counts = np.stack([np.asarray(column["judgments"]), np.asarray(column["judgeable"])], axis=1)
    shards = tuple(StoredShard(**shard) for shard in about["shards"])
    found = ShardedJudgments(str(folder), shards, stored, stored, counts, whole_queries=about["whole_queries"])
    return found.heard()


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
    digest = hashlib.blake2b(digest_size=16)
    with shard_path(folder, "codes", number, ".npy").open("wb") as stream:
        for array in codes:
            np.save(stream, array)
            digest.update(np.ascontiguousarray(array).data)
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
        digest=digest.hexdigest(),
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
