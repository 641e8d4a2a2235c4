"""The consensus of judgments on disk: a folder with a Parquet file of documents per shard and a table of assessors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import crowdrank
from crowdrank._disk import ScratchFolder
from crowdrank._folders import FolderKind, open_folder, write_folder
from crowdrank._saved import Fields, is_scalar, is_text, loading, read_parquet, require
from crowdrank._text import counted
from crowdrank._typing import Arrays
from crowdrank.consensus import diagnostics
from crowdrank.consensus.gold_accuracy import count_agreements
from crowdrank.consensus.result import (
    Consensus,
    check_assessor_table,
    check_documents,
    concat_documents,
    document_table,
    estimate_columns,
)
from crowdrank.judgments.gold import ItemGold, ShardGold
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.sharded import ShardedJudgments, numbered_path
from crowdrank.judgments.storage import restore_scale, scale_to_json
from crowdrank.judgments.table import Judgments

CONSENSUS_FILE = "consensus.json"
CONSENSUS = FolderKind("consensus", 1, "consensus", "'crowdrank aggregate'")
DOCUMENTS, ASSESSORS = "documents", "assessors.parquet"
NO_CONSENSUS, REMEDY = "it is not a consensus", "name a folder that a fit wrote"
_PART = re.compile(rf"{DOCUMENTS}/part-\d+\.parquet")


class StoredConsensus(Consensus):
    """A consensus in a folder: `documents/part-00000.parquet` and so on, and `assessors.parquet`.

    The table of assessors is in memory. Documents are read on request: all of them by `document_table` or
    `documents`, one file at a time by :meth:`document_parts`.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        manifest = open_folder(folder, CONSENSUS)
        with loading(folder, NO_CONSENSUS, REMEDY):
            about = Fields.read(folder / CONSENSUS_FILE)
            assessors = read_parquet(folder / ASSESSORS)
            check_assessor_table(assessors)
            labels = tuple(about.sequence("labels", is_scalar, "plain values"))
            scale = restore_scale(about.values["scale"])
            require(0 < len(labels) <= len(scale), "the labels do not fit the scale")
            values = {
                "folder": folder,
                "_documents": about.integer("documents"),
                "_files": sorted(name for name in manifest.entries if _PART.fullmatch(name)),
                "method": about.text("method"),
                "assessor_table": assessors,
                "scale": scale,
                "labels": labels,
                "backend": "pandas",
                "features_used": tuple(about.sequence("features", is_text, "names")) if "features" in about else (),
                "prediction_table": None,
            }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    folder: Path
    _documents: int
    _files: list[str]

    @property
    def n_documents(self) -> int:
        """Number of documents, without reading them."""
        return self._documents

    def __repr__(self) -> str:
        documents, assessors = counted(self.n_documents, "document"), counted(len(self.assessor_table), "assessor")
        return f"<Consensus by {self.method}: {documents}, {assessors}, in {self.folder}>"

    @cached_property
    def document_table(self) -> pa.Table:
        """Rows of all documents, in memory."""
        with loading(self.folder, NO_CONSENSUS, REMEDY):
            table = concat_documents(self.document_parts())
            require(len(table) == self._documents, "there are more or fewer documents than were written")
        return table

    def document_files(self) -> list[Path]:
        """Return the files with the rows of the documents."""
        return [self.folder / name for name in self._files]

    def document_parts(self) -> Iterator[pa.Table]:
        """Yield the rows of the documents, a file at a time."""
        return map(self._part, self.document_files())

    def _part(self, path: Path) -> pa.Table:
        with loading(self.folder, NO_CONSENSUS, REMEDY):
            table = read_parquet(path)
            check_documents(table, self.scale, self.labels)
        return table


@dataclass(frozen=True, eq=False)
class ShardWriter:
    """Function that writes the rows of a shard's documents and returns the sums that are needed of all shards.

    Attributes:
        judgments: judgments as the model uses them.
        gold: codes of the expert grades, if any.
        folder: folder for the files.
        grade_by: rule for the grades.

    """

    judgments: ShardedJudgments
    gold: ShardGold | None
    folder: str
    grade_by: str

    def __call__(self, place: int, rows: Arrays) -> Arrays:
        """Write the rows of the shard at a place."""
        import pyarrow.parquet as pq

        table = self.judgments.load(place)
        gold = None if self.gold is None else self.gold.shard(place, table.n_items)
        path = numbered_path(self.folder, "part", self.judgments.shards[place].number, ".parquet")
        documents = document_table(table, estimate_columns(self.grade_by, place, rows))
        pq.write_table(documents, path, use_dictionary=["query", "grade", "judgments"])
        return {**shard_sums(table, rows["relevance"], gold), "documents": np.array([table.n_items])}


def shard_sums(judgments: Judgments, relevance: NDArray[np.float64], gold: ItemGold | None) -> Arrays:
    """Return what data warnings and the accuracy on expert grades need of a shard."""
    sums = {
        "overlapping": np.array([int((np.diff(judgments.offsets) > 1).sum())]),
        "groups": diagnostics.assessor_groups(judgments, None if gold is None else gold.code),
        "by_relevance": diagnostics.covariance_sums(diagnostics.mean_grades(judgments), relevance),
    }
    if gold is None:
        return sums
    agreements = count_agreements(judgments, gold)._asdict()
    return {**sums, "by_experts": diagnostics.by_experts(judgments, gold.code), **agreements}


def add_shard_sums(shards: Iterable[Arrays]) -> Arrays:
    """Return the sums over all shards; groups of assessors are merged."""
    total: Arrays = {}
    for one in shards:
        for name, values in one.items():
            add = diagnostics.merge_groups if name == "groups" else np.add
            total[name] = add(total[name], values) if name in total else values
    return total


_scratch: list[ScratchFolder] = []
"""Temporary folders of results for which no folder was given; they exist until Python ends."""


@dataclass
class ConsensusFolder:
    """A folder that is being written: paths in its draft, and its final path."""

    path: Path
    draft: Path
    n_documents: int = 0

    @property
    def documents(self) -> Path:
        """Folder for the files of documents."""
        return self.draft / DOCUMENTS

    @property
    def assessors(self) -> Path:
        """File for the table of assessors."""
        return self.draft / ASSESSORS


@contextmanager
def writing_consensus(
    judgments: ShardedJudgments, method: str, scale: Scale, labels: tuple[Any, ...], features: tuple[str, ...] = ()
) -> Iterator[ConsensusFolder]:
    """Write a consensus into the given folder, or a temporary one beside the shards.

    The block writes the tables and sets `n_documents`.
    """
    path = judgments.output
    if path is None:
        _scratch.append(ScratchFolder(judgments.folder))
        path = _scratch[-1].path / "consensus"
    with write_folder(path, CONSENSUS) as draft:
        output = ConsensusFolder(path, draft)
        output.documents.mkdir()
        yield output
        about = {
            "crowdrank": crowdrank.__version__,
            "method": method,
            "documents": output.n_documents,
            "judgments": len(judgments),
            "scale": scale_to_json(scale),
            "labels": list(labels),
            **({"features": list(features)} if features else {}),
        }
        (draft / CONSENSUS_FILE).write_text(json.dumps(about, indent=2))
