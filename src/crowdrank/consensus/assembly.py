"""Build a consensus from the rows that a model computes for documents, in memory or shard by shard on disk.

`Assembly` is the last step of a fit. Its parts follow in the order of use: columns of assessors, agreement with expert
grades, the folder that is written shard by shard, and the consensus that is read from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import crowdrank
from crowdrank._arrow import to_numpy, to_table
from crowdrank._disk import ScratchFolder
from crowdrank._folders import (
    Fields,
    FolderKind,
    is_scalar,
    is_text,
    loading,
    open_folder,
    read_parquet,
    require,
    write_folder,
)
from crowdrank._numba import njit
from crowdrank._text import counted
from crowdrank._typing import Arrays
from crowdrank.consensus import data_warnings
from crowdrank.consensus.data_warnings import Evidence
from crowdrank.consensus.feature_scores import FeatureScores
from crowdrank.consensus.latent import information
from crowdrank.consensus.result import (
    Consensus,
    check_assessor_table,
    check_documents,
    concat_documents,
    document_table,
    estimate_columns,
    grade_labels,
)
from crowdrank.engine.passes import Passes
from crowdrank.engine.shards import items_of, split_into_shards
from crowdrank.errors import DataWarning
from crowdrank.judgments.gold import ItemGold, ShardGold
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk.sharded import ShardedJudgments, numbered_path
from crowdrank.on_disk.storage import scale_from_json, scale_to_json

if TYPE_CHECKING:
    from crowdrank.consensus.feature_prior import FeatureAggregator
    from crowdrank.consensus.model import EMAggregator


CONSENSUS_FILE = "consensus.json"
CONSENSUS = FolderKind("consensus", 1, "consensus", "'crowdrank aggregate'")
DOCUMENTS, ASSESSORS = "documents", "assessors.parquet"
NO_CONSENSUS, REMEDY = "it is not a consensus", "name a folder that a fit wrote"
_PART = re.compile(rf"{DOCUMENTS}/part-\d+\.parquet")
_scratch: list[ScratchFolder] = []
"""Temporary folders of results for which no folder was given; they exist until Python ends."""


@dataclass(frozen=True, eq=False)
class Assembly:
    """A model, its judgments and its estimates, from which a consensus is built.

    Attributes:
        model: the model.
        judgments: judgments as the model uses them.
        theta: parameters.
        statistics: summed statistics.
        gold: codes of the expert grades, if any.
        scores: predictions from features, if any.

    """

    model: EMAggregator
    judgments: Judgments | ShardedJudgments
    theta: Arrays
    statistics: Arrays
    gold: Any = None
    scores: FeatureScores | None = None

    def conclude(self, passes: Passes) -> tuple[Consensus, list[DataWarning]]:
        """Return the consensus and the data warnings after the last pass."""
        on_disk = isinstance(self.judgments, ShardedJudgments)
        consensus, evidence = self._write(passes) if on_disk else self._collect(passes)
        has_parameters = bool(self.model._assessor_arrays())
        return consensus, data_warnings.data_warnings(evidence, has_parameters, self.model.on_a_line)

    def _collect(self, passes: Passes) -> tuple[Consensus, Evidence]:
        judgments, gold = self.judgments, self.gold
        assert isinstance(judgments, Judgments)
        consensus = replace(self.consensus(passes), prediction_table=self.predictions())
        relevance = to_numpy(consensus.document_table["relevance"].chunk(0))
        evidence = Evidence(
            judgments.assessors,
            overlapping=lambda: len(judgments) > judgments.n_items,
            groups=lambda: data_warnings.assessor_groups(judgments, None if gold is None else gold.code),
            by_relevance=lambda: data_warnings.covariance_sums(data_warnings.mean_grades(judgments), relevance),
            by_experts=None if gold is None else lambda: data_warnings.by_experts(judgments, gold.code),
        )
        return consensus, evidence

    def _write(self, passes: Passes) -> tuple[Consensus, Evidence]:
        """Write the consensus into its folder, shard by shard."""
        import pyarrow.parquet as pq

        judgments, gold = self.judgments, self.gold
        assert isinstance(judgments, ShardedJudgments)
        method, scale, labels = type(self.model).__name__, judgments.main_scale, grade_labels(judgments)
        with writing_consensus(judgments, method, scale, labels, self.features_used) as output:
            writer = ShardWriter(judgments, gold, str(output.documents), self.model.grade_by)
            total = add_shard_sums(passes.finish_into(self.theta, writer))
            agreements = None if gold is None else Agreements(total["agreed"], total["judged"])
            pq.write_table(self.assessor_table(judgments.counts[:, 0], agreements), output.assessors)
            output.n_documents = int(total["documents"][0])
            if (predictions := self.predictions()) is not None:
                number = 1 + max(shard.number for shard in judgments.shards)
                pq.write_table(predictions, numbered_path(output.documents, "part", number, ".parquet"))
                output.n_documents += len(predictions)
        evidence = Evidence(
            judgments.assessors,
            overlapping=lambda: bool(total["overlapping"][0]),
            groups=lambda: total["groups"],
            by_relevance=lambda: total["by_relevance"],
            by_experts=None if gold is None else lambda: total["by_experts"],
        )
        return StoredConsensus(output.path), evidence

    def consensus(self, passes: Passes) -> Consensus:
        """Return the consensus of judgments in memory after the last pass."""
        judgments = self.judgments
        assert isinstance(judgments, Judgments)
        sink = partial(estimate_columns, self.model.grade_by)
        documents = document_table(judgments, passes.finish(self.theta, sink, judgments.n_items))
        counts = count_codes(judgments.assessor, judgments.n_assessors)
        agreements = None if self.gold is None else count_agreements(judgments, self.gold)
        return Consensus(
            type(self.model).__name__,
            documents,
            self.assessor_table(counts, agreements),
            judgments.main_scale,
            grade_labels(judgments),
            judgments.backend,
            self.features_used,
        )

    @property
    def features_used(self) -> tuple[str, ...]:
        """Names of the features that set the prior of relevance."""
        return () if self.scores is None else self.scores.names

    def predictions(self) -> pa.Table | None:
        """Return one row per document that has features and no judgments, or None if there is none."""
        if self.scores is None:
            return None
        unlabeled = self.scores.without_labels(self.judgments)
        if not len(unlabeled.score):
            return None
        items = unlabeled.as_items(self.judgments)
        items = replace(items, labels=getattr(self.judgments, "labels", None))
        (shard,) = split_into_shards(items, locality=self.model.locality, scores=(unlabeled.score,))
        model = cast("FeatureAggregator", self.model)  # no other model has scores
        return document_table(items, estimate_columns(model.grade_by, 0, model._predict(shard, self.theta)))

    def assessor_table(self, counts: NDArray[np.int64], agreements: Agreements | None) -> pa.Table:
        """Return one row per assessor: number of judgments, parameters, informativeness, accuracy on expert grades."""
        states = self.model._states(self.theta)
        columns: dict[str, Any] = {
            "assessor": self.judgments.assessors,
            **_family_column(self.judgments),
            "judgments": counts,
            **self.model._assessor_columns(self.theta, self.statistics),
            **({} if states is None else {"informativeness": information(*states)[0]}),
            **({} if agreements is None else gold_accuracy(self.judgments, agreements)),
        }
        return to_table(columns)


def count_codes(codes: NDArray[np.int32], n_codes: int) -> NDArray[np.int64]:
    """Return the number of occurrences of each code.

    >>> count_codes(np.array([0, 2, 2], np.int32), 4).tolist()
    [1, 0, 2, 0]
    """
    counts = np.zeros(n_codes, np.int64)
    add_codes(codes, counts)
    return counts


def _add_codes(codes: NDArray[np.int32], counts: NDArray[np.int64]) -> None:
    counts += np.bincount(codes, minlength=len(counts))


@njit(nogil=True, numpy=_add_codes)
def add_codes(codes: NDArray[np.int32], counts: NDArray[np.int64]) -> None:
    """Add the number of occurrences of each code; np.bincount would copy the codes to int64."""
    for row in range(len(codes)):
        counts[codes[row]] += 1


def _family_column(judgments: Judgments | ShardedJudgments) -> dict[str, pa.Array]:
    """Return the column with the family of each assessor, if there are families."""
    if judgments.families is None or judgments.assessor_family is None or not len(judgments.families):
        return {}
    family = judgments.assessor_family
    return {"family": judgments.families.take(pa.array(np.maximum(family, 0), mask=family < 0))}


class Agreements(NamedTuple):
    """Number of judgments of each assessor on documents with an expert grade, (n_assessors,) each."""

    agreed: NDArray[np.float64]  # judgments equal to the expert grade
    judged: NDArray[np.float64]  # all judgments


def count_agreements(judgments: Judgments, gold: ItemGold) -> Agreements:
    """Return how often each assessor gives a grade that the expert grade stands for."""
    counts = Agreements(np.zeros(judgments.n_assessors), np.zeros(judgments.n_assessors))
    if gold.sets is not None:
        add_agreements(judgments.offsets, judgments.assessor, judgments.grade, gold.code, gold.sets, *counts)
    return counts


def gold_accuracy(judgments: Judgments | ShardedJudgments, counts: Agreements) -> dict[str, NDArray[np.generic]]:
    """Return columns with the number of judgments on expert-graded documents and the share that agrees.

    Assessors with another scale than the main one, which the experts use, have none.
    """
    on_main = np.array([scale == judgments.main_scale for scale in judgments.scales])[judgments.assessor_scale]
    agreed, judged = counts.agreed * on_main, counts.judged * on_main
    share = np.divide(agreed, judged, out=np.full(len(judged), np.nan), where=judged > 0)
    return {"gold_judgments": judged.astype(np.int64), "gold_accuracy": share}


def _add_agreements(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    reference: NDArray[np.int8],
    sets: NDArray[np.bool_],
    agreed: NDArray[np.float64],
    judged: NDArray[np.float64],
) -> None:
    by_row = reference[items_of(offsets)]
    known = by_row >= 0
    judged += np.bincount(assessor[known], minlength=len(judged))
    n_grades = sets.shape[1]  # scales of other assessors may have more grades
    agrees = (grade >= 0) & (grade < n_grades) & sets[by_row, np.clip(grade, 0, n_grades - 1)]
    agreed += np.bincount(assessor[known & agrees], minlength=len(agreed))


@njit(nogil=True, numpy=_add_agreements)
def add_agreements(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    reference: NDArray[np.int8],
    sets: NDArray[np.bool_],
    agreed: NDArray[np.float64],
    judged: NDArray[np.float64],
) -> None:
    """Add, per assessor, the number of judgments of items with a reference grade, and of those that agree with it."""
    # reference (n_items,), -1 if there is none; sets (n_references, n_grades): grades that a reference grade stands for
    # agreed, judged (n_assessors,) are added to
    for item in range(len(offsets) - 1):
        if reference[item] < 0:
            continue
        for j in range(offsets[item], offsets[item + 1]):
            judged[assessor[j]] += 1.0
            if 0 <= grade[j] < sets.shape[1] and sets[reference[item], grade[j]]:
                agreed[assessor[j]] += 1.0


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
        "groups": data_warnings.assessor_groups(judgments, None if gold is None else gold.code),
        "by_relevance": data_warnings.covariance_sums(data_warnings.mean_grades(judgments), relevance),
    }
    if gold is None:
        return sums
    agreements = count_agreements(judgments, gold)._asdict()
    return {**sums, "by_experts": data_warnings.by_experts(judgments, gold.code), **agreements}


def add_shard_sums(shards: Iterable[Arrays]) -> Arrays:
    """Return the sums over all shards; groups of assessors are merged."""
    total: Arrays = {}
    for one in shards:
        for name, values in one.items():
            add = data_warnings.merge_groups if name == "groups" else np.add
            total[name] = add(total[name], values) if name in total else values
    return total


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
            scale = scale_from_json(about.values["scale"])
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


def join_consensus(ranking: Consensus, grades: Consensus, judgments: Judgments | ShardedJudgments) -> Consensus:
    """Return the relevance of one consensus with the grades of another, in memory or on disk as they are.

    Assessors come from the first one that has their informativeness.
    """
    import pyarrow.parquet as pq

    informed = "informativeness" in ranking.assessor_table.column_names
    assessors = (ranking if informed else grades).assessor_table
    parts = zip(ranking.document_parts(), grades.document_parts(), strict=True)
    documents = (_join_documents(one, other, grades.share_names) for one, other in parts)
    if not isinstance(ranking, StoredConsensus):
        return Consensus("Auto", next(documents), assessors, grades.scale, grades.labels, grades.backend)
    assert isinstance(judgments, ShardedJudgments)
    with writing_consensus(judgments, "Auto", grades.scale, grades.labels) as output:
        for path, table in zip(ranking.document_files(), documents, strict=True):
            pq.write_table(table, output.documents / path.name)
        pq.write_table(assessors, output.assessors)
        output.n_documents = grades.n_documents
    return StoredConsensus(output.path)


def _join_documents(ranking: pa.Table, grades: pa.Table, share_names: list[str]) -> pa.Table:
    graded = {"grade", *share_names}
    return pa.table({name: (grades if name in graded else ranking)[name] for name in ranking.column_names})
