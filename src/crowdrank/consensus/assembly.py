"""Build the consensus at the end of a fit: the table of documents and the table of assessors.

The tables stay in memory, or are written shard by shard to a folder if the judgments are on disk. `ConsensusBuilder`
comes first. Then follow its parts in the order of use: columns of assessors, agreement with expert grades, the folder
that is written, and the consensus that is read from it.
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
from crowdrank._arrow import from_numpy, to_numpy, to_table
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
from crowdrank.consensus.data_warnings import WarningEvidence
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
from crowdrank.judgments.columns import PREFERENCES, SCALE_COLUMN
from crowdrank.judgments.gold import ItemGold, ShardGold
from crowdrank.judgments.joined import JoinedJudgments
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import Judgments
from crowdrank.on_disk.joined_shards import JoinedShards
from crowdrank.on_disk.sharded import ShardedJudgments, numbered_path
from crowdrank.on_disk.storage import scale_from_json, scale_to_json

if TYPE_CHECKING:
    from crowdrank.consensus.feature_prior import FeatureAggregator
    from crowdrank.consensus.feature_scores import FeatureScores
    from crowdrank.consensus.model import EMAggregator


CONSENSUS_FILE_NAME = "consensus.json"
CONSENSUS_FOLDER = FolderKind("consensus", 1, "consensus", "'crowdrank aggregate'")
DOCUMENTS_FOLDER_NAME, ASSESSORS_FILE_NAME = "documents", "assessors.parquet"
NOT_A_CONSENSUS, LOAD_FIX = "it is not a consensus", "name a folder that a fit wrote"
_DOCUMENT_FILE_PATTERN = re.compile(rf"{DOCUMENTS_FOLDER_NAME}/part-\d+\.parquet")
_temporary_folders: list[ScratchFolder] = []
"""Temporary folders of results for which no folder was given; they exist until Python ends."""


@dataclass(frozen=True, eq=False)
class ConsensusBuilder:
    """Builds the consensus from a model whose iterations have ended.

    Attributes:
        model: the model.
        judgments: judgments as the model uses them.
        theta: fitted parameters, named arrays.
        statistics: statistics of the E-step, summed over all shards.
        gold: codes of the expert grades (`ItemGold`, or `ShardGold` for judgments on disk), or None.
        scores: predictions of relevance from features, or None.

    """

    model: EMAggregator
    judgments: Judgments | ShardedJudgments
    theta: Arrays
    statistics: Arrays
    gold: Any = None
    scores: FeatureScores | None = None

    def build(self, passes: Passes) -> tuple[Consensus, list[DataWarning]]:
        """Run the final pass over the shards; return the consensus and the data warnings."""
        on_disk = isinstance(self.judgments, ShardedJudgments)
        evidence: WarningEvidence | None
        consensus, evidence = self._build_on_disk(passes) if on_disk else self._build_in_memory(passes)
        has_parameters = bool(self.model._assessor_arrays())
        if evidence is None:  # preferences determine the direction of relevance, and connect documents and assessors
            return consensus, []
        return consensus, data_warnings.data_warnings(evidence, has_parameters, self.model.on_a_line)

    def _build_in_memory(self, passes: Passes) -> tuple[Consensus, WarningEvidence | None]:
        """Return the consensus of judgments in memory, and the evidence for data warnings."""
        judgments, gold = self.judgments, self.gold
        assert isinstance(judgments, Judgments)
        consensus = replace(self.consensus(passes), prediction_table=self.predictions())
        if isinstance(judgments, JoinedJudgments):
            return consensus, None
        relevance = to_numpy(consensus.document_table["relevance"].chunk(0))
        evidence = WarningEvidence(
            judgments.assessors,
            has_overlap=lambda: len(judgments) > judgments.n_items,
            groups=lambda: data_warnings.assessor_groups(judgments, None if gold is None else gold.code),
            relevance_covariance=lambda: data_warnings.covariance_sums(data_warnings.mean_grades(judgments), relevance),
            expert_covariance=None if gold is None else lambda: data_warnings.expert_covariance(judgments, gold.code),
        )
        return consensus, evidence

    def _build_on_disk(self, passes: Passes) -> tuple[Consensus, WarningEvidence | None]:
        """Write the consensus to its folder shard by shard; return it with the evidence for data warnings."""
        import pyarrow.parquet as pq

        judgments, gold = self.judgments, self.gold
        assert isinstance(judgments, ShardedJudgments)
        method, scale, labels = type(self.model).__name__, judgments.main_scale, grade_labels(judgments)
        with open_consensus_folder(judgments, method, scale, labels, self.features_used) as output:
            writer = ShardWriter(judgments, gold, str(output.documents), self.model.grade_by)
            total = add_shard_sums(passes.finish_into(self.theta, writer))
            agreements = None if gold is None else Agreements(total["agreed"], total["judged"])
            pq.write_table(self.assessor_table(judgments.counts[:, 0], agreements), output.assessors)
            output.n_documents = int(total["documents"][0])
            if (predictions := self.predictions()) is not None:
                number = 1 + max(shard.number for shard in judgments.shards)
                pq.write_table(predictions, numbered_path(output.documents, "part", number, ".parquet"))
                output.n_documents += len(predictions)
        if isinstance(judgments, JoinedShards):
            return StoredConsensus(output.path), None
        evidence = WarningEvidence(
            judgments.assessors,
            has_overlap=lambda: bool(total["has_overlap"][0]),
            groups=lambda: total["groups"],
            relevance_covariance=lambda: total["relevance_covariance"],
            expert_covariance=None if gold is None else lambda: total["expert_covariance"],
        )
        return StoredConsensus(output.path), evidence

    def consensus(self, passes: Passes) -> Consensus:
        """Run the final pass over judgments in memory and return the consensus, without predictions."""
        judgments = self.judgments
        assert isinstance(judgments, Judgments)
        sink = partial(estimate_columns, self.model.grade_by)
        documents = document_table(judgments, passes.finish(self.theta, sink, judgments.n_items), _codes(self.gold))
        if isinstance(judgments, JoinedJudgments):
            documents = add_preferences(documents, judgments, judgments.preferences_per_item())
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
        rows = estimate_columns(model.grade_by, 0, model._predict(shard, self.theta))
        table = document_table(items, rows, None if self.gold is None else np.full(items.n_items, -1, np.int8))
        if isinstance(self.judgments, JoinedJudgments | JoinedShards):
            return add_preferences(table, self.judgments, np.zeros(items.n_items, np.int64))
        return table

    def assessor_table(self, n_judgments: NDArray[np.int64], agreements: Agreements | None) -> pa.Table:
        """Return one row per assessor: number of judgments, parameters, informativeness, accuracy on expert grades."""
        states = self.model._states(self.theta)
        columns: dict[str, Any] = {
            "assessor": self.judgments.assessors,
            **_family_column(self.judgments),
            "judgments": n_judgments,
            **self.model._assessor_columns(self.theta, self.statistics),
            **({} if states is None else {"informativeness": self._informativeness(states)}),
            **({} if agreements is None else gold_accuracy(self.judgments, agreements)),
        }
        return to_table(columns)

    def _informativeness(self, states: tuple[NDArray[np.float64], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the information of each assessor's grades in nats; NaN for assessors with preferences alone."""
        informativeness = information(*states)[0]
        if isinstance(self.judgments, JoinedJudgments):
            counts = count_codes(self.judgments.assessor, self.judgments.n_assessors)
            return np.where(counts > 0, informativeness, np.nan)
        if isinstance(self.judgments, JoinedShards):
            return np.where(self.judgments.counts[:, 0] > 0, informativeness, np.nan)
        return informativeness


def add_preferences(
    documents: pa.Table, judgments: Judgments | ShardedJudgments, counts: NDArray[np.int64]
) -> pa.Table:
    """Return the table of documents with their number of preferences, and without grades if there are no judgments."""
    documents = documents.append_column(PREFERENCES, from_numpy(counts))
    if len(judgments):
        return documents
    names = {"grade", *judgments.main_scale.share_names, SCALE_COLUMN}
    return documents.select([name for name in documents.column_names if name not in names])


def _codes(gold: ItemGold | None) -> NDArray[np.int8] | None:
    return None if gold is None else gold.code


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
    """Add the number of occurrences of each code to `counts` in place; np.bincount would copy the codes to int64."""
    for row in range(len(codes)):
        counts[codes[row]] += 1


def _family_column(judgments: Judgments | ShardedJudgments) -> dict[str, pa.Array]:
    """Return the column `family` (null for an assessor without one), or nothing if there are no families."""
    if judgments.families is None or judgments.assessor_family is None or not len(judgments.families):
        return {}
    family = judgments.assessor_family
    return {"family": judgments.families.take(pa.array(np.maximum(family, 0), mask=family < 0))}


class Agreements(NamedTuple):
    """Number of judgments of each assessor on expert-graded documents: agreeing ones and all, (n_assessors,) each."""

    agreed: NDArray[np.float64]  # judgments equal to the expert grade
    judged: NDArray[np.float64]  # all judgments


def count_agreements(judgments: Judgments, gold: ItemGold) -> Agreements:
    """Return how many judgments of each assessor agree with the expert grade of their document.

    A judgment agrees if its grade is one of those that the expert grade stands for.
    """
    counts = Agreements(np.zeros(judgments.n_assessors), np.zeros(judgments.n_assessors))
    if gold.sets is not None:
        add_agreements(judgments.offsets, judgments.assessor, judgments.grade, gold.code, gold.sets, *counts)
    return counts


def gold_accuracy(judgments: Judgments | ShardedJudgments, agreements: Agreements) -> dict[str, NDArray[np.generic]]:
    """Return the columns `gold_judgments` (number on expert-graded documents) and `gold_accuracy` (share that agrees).

    They are 0 and NaN for assessors whose scale is not the main one, because expert grades are on the main scale.
    """
    on_main = np.array([scale == judgments.main_scale for scale in judgments.scales])[judgments.assessor_scale]
    agreed, judged = agreements.agreed * on_main, agreements.judged * on_main
    share = np.divide(agreed, judged, out=np.full(len(judged), np.nan), where=judged > 0)
    return {"gold_judgments": judged.astype(np.int64), "gold_accuracy": share}


def _add_agreements(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    reference: NDArray[np.int8],
    accepted_grades: NDArray[np.bool_],
    n_agreed: NDArray[np.float64],
    n_judged: NDArray[np.float64],
) -> None:
    by_row = reference[items_of(offsets)]
    known = by_row >= 0
    n_judged += np.bincount(assessor[known], minlength=len(n_judged))
    n_grades = accepted_grades.shape[1]  # scales of other assessors may have more grades
    agrees = (grade >= 0) & (grade < n_grades) & accepted_grades[by_row, np.clip(grade, 0, n_grades - 1)]
    n_agreed += np.bincount(assessor[known & agrees], minlength=len(n_agreed))


@njit(nogil=True, numpy=_add_agreements)
def add_agreements(
    offsets: NDArray[np.int64],
    assessor: NDArray[np.int32],
    grade: NDArray[np.int8],
    reference: NDArray[np.int8],
    accepted_grades: NDArray[np.bool_],
    n_agreed: NDArray[np.float64],
    n_judged: NDArray[np.float64],
) -> None:
    """Add to `n_judged` and `n_agreed` the judgments of each assessor on items with a reference grade.

    `n_judged` counts all of them, `n_agreed` those whose grade is accepted for the reference grade.
    """
    # reference (n_items,), -1 if there is none; n_agreed, n_judged (n_assessors,)
    # accepted_grades (n_references, n_grades): whether a reference grade stands for a grade
    for item in range(len(offsets) - 1):
        if reference[item] < 0:
            continue
        for j in range(offsets[item], offsets[item + 1]):
            n_judged[assessor[j]] += 1.0
            if 0 <= grade[j] < accepted_grades.shape[1] and accepted_grades[reference[item], grade[j]]:
                n_agreed[assessor[j]] += 1.0


@contextmanager
def open_consensus_folder(
    judgments: ShardedJudgments, method: str, scale: Scale, labels: tuple[Any, ...], features: tuple[str, ...] = ()
) -> Iterator[ConsensusFolder]:
    """Yield the folder of a new consensus, and complete it with its JSON file when the `with` block ends.

    The folder is `judgments.output`, or a temporary one beside the shards. The block must write the tables of documents
    and assessors and set `n_documents`.
    """
    path = judgments.output
    if path is None:
        _temporary_folders.append(ScratchFolder(judgments.folder))
        path = _temporary_folders[-1].path / "consensus"
    with write_folder(path, CONSENSUS_FOLDER) as draft:
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
        (draft / CONSENSUS_FILE_NAME).write_text(json.dumps(about, indent=2))


@dataclass
class ConsensusFolder:
    """Folder of a consensus that is being written.

    Attributes:
        path: final path.
        draft: temporary folder to write to; it is renamed to the final path when it is complete.
        n_documents: number of documents written.

    """

    path: Path
    draft: Path
    n_documents: int = 0

    @property
    def documents(self) -> Path:
        """Path of the folder for the Parquet files of documents."""
        return self.draft / DOCUMENTS_FOLDER_NAME

    @property
    def assessors(self) -> Path:
        """Path of the Parquet file of assessors."""
        return self.draft / ASSESSORS_FILE_NAME


@dataclass(frozen=True, eq=False)
class ShardWriter:
    """Callable that writes the documents of a shard to a Parquet file and returns the sums of :func:`shard_sums`.

    Attributes:
        judgments: judgments as the model uses them.
        gold: codes of the expert grades, if any.
        folder: folder for the Parquet files.
        grade_by: rule that chooses the grade from P(grade): `median`, `mode` or `mean`.

    """

    judgments: ShardedJudgments
    gold: ShardGold | None
    folder: str
    grade_by: str

    def __call__(self, shard_index: int, rows: Arrays) -> Arrays:
        """Write the estimates `rows` of the documents of one shard."""
        import pyarrow.parquet as pq

        table = self.judgments.load(shard_index)
        gold = None if self.gold is None else self.gold.shard(shard_index, table.n_items)
        path = numbered_path(self.folder, "part", self.judgments.shards[shard_index].number, ".parquet")
        documents = document_table(table, estimate_columns(self.grade_by, shard_index, rows), _codes(gold))
        if isinstance(table, JoinedJudgments):
            documents = add_preferences(documents, self.judgments, table.preferences_per_item())
        pq.write_table(documents, path, use_dictionary=["query", "grade", "judgments"])
        return {**shard_sums(table, rows["relevance"], gold), "documents": np.array([table.n_items])}


def shard_sums(judgments: Judgments, relevance: NDArray[np.float64], gold: ItemGold | None) -> Arrays:
    """Return the statistics of a shard that data warnings and the accuracy on expert grades are computed from."""
    if isinstance(judgments, JoinedJudgments):
        return {} if gold is None else dict(count_agreements(judgments, gold)._asdict())
    sums = {
        "has_overlap": np.array([int((np.diff(judgments.offsets) > 1).sum())]),
        "groups": data_warnings.assessor_groups(judgments, None if gold is None else gold.code),
        "relevance_covariance": data_warnings.covariance_sums(data_warnings.mean_grades(judgments), relevance),
    }
    if gold is None:
        return sums
    agreements = count_agreements(judgments, gold)._asdict()
    return {**sums, "expert_covariance": data_warnings.expert_covariance(judgments, gold.code), **agreements}


def add_shard_sums(shards: Iterable[Arrays]) -> Arrays:
    """Add up the results of :func:`shard_sums`; groups of assessors are merged instead of added."""
    total: Arrays = {}
    for one in shards:
        for name, values in one.items():
            add = data_warnings.merge_groups if name == "groups" else np.add
            total[name] = add(total[name], values) if name in total else values
    return total


class StoredConsensus(Consensus):
    """Consensus that is stored in a folder: `documents/part-00000.parquet` and so on, and `assessors.parquet`.

    The table of assessors is in memory. Documents are read on request: all of them by `document_table` or
    `documents`, one file at a time by :meth:`document_parts`.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        manifest = open_folder(folder, CONSENSUS_FOLDER)
        with loading(folder, NOT_A_CONSENSUS, LOAD_FIX):
            about = Fields.read(folder / CONSENSUS_FILE_NAME)
            assessors = read_parquet(folder / ASSESSORS_FILE_NAME)
            check_assessor_table(assessors)
            labels = tuple(about.sequence("labels", is_scalar, "plain values"))
            scale = scale_from_json(about.values["scale"])
            require(0 < len(labels) <= len(scale), "the labels do not fit the scale")
            values = {
                "folder": folder,
                "_documents": about.integer("documents"),
                "_files": sorted(name for name in manifest.entries if _DOCUMENT_FILE_PATTERN.fullmatch(name)),
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
        """Table of all documents, read into memory."""
        with loading(self.folder, NOT_A_CONSENSUS, LOAD_FIX):
            table = concat_documents(self.document_parts())
            require(len(table) == self._documents, "there are more or fewer documents than were written")
        return table

    def document_files(self) -> list[Path]:
        """Return the paths of the Parquet files of documents."""
        return [self.folder / name for name in self._files]

    def document_parts(self) -> Iterator[pa.Table]:
        """Yield the table of documents in parts, one per file."""
        return map(self._read_document_file, self.document_files())

    def _read_document_file(self, path: Path) -> pa.Table:
        with loading(self.folder, NOT_A_CONSENSUS, LOAD_FIX):
            table = read_parquet(path)
            check_documents(table, self.scale, self.labels)
        return table


def join_consensus(ranking: Consensus, grades: Consensus, judgments: Judgments | ShardedJudgments) -> Consensus:
    """Return a consensus with the relevance of `ranking` and the grades and their probabilities of `grades`.

    The table of assessors is that of `ranking` if it has informativeness, otherwise that of `grades`. The result is on
    disk if `ranking` is.
    """
    import pyarrow.parquet as pq

    informed = "informativeness" in ranking.assessor_table.column_names
    assessors = (ranking if informed else grades).assessor_table
    parts = zip(ranking.document_parts(), grades.document_parts(), strict=True)
    shares = [*grades.scale.share_names, *grades.scale.true_share_names]
    documents = (_join_document_tables(one, other, shares) for one, other in parts)
    if not isinstance(ranking, StoredConsensus):
        return Consensus("Auto", next(documents), assessors, grades.scale, grades.labels, grades.backend)
    assert isinstance(judgments, ShardedJudgments)
    with open_consensus_folder(judgments, "Auto", grades.scale, grades.labels) as output:
        for path, table in zip(ranking.document_files(), documents, strict=True):
            pq.write_table(table, output.documents / path.name)
        pq.write_table(assessors, output.assessors)
        output.n_documents = grades.n_documents
    return StoredConsensus(output.path)


def _join_document_tables(ranking: pa.Table, grades: pa.Table, share_names: list[str]) -> pa.Table:
    """Return the rows of `ranking` with the columns `grade` and `share_names` of `grades`, as far as these exist."""
    graded = [name for name in grades.column_names if name in ("grade", *share_names)]
    names = [name for name in ranking.column_names if name not in ("grade", *share_names)]
    place = names.index("judgments")
    return pa.table(
        {name: (grades if name in graded else ranking)[name] for name in [*names[:place], *graded, *names[place:]]}
    )
