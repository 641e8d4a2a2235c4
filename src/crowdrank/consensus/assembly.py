"""Build a consensus from the rows that a model computes for documents, in memory or shard by shard on disk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._arrow import to_numpy, to_table
from crowdrank._numba import njit
from crowdrank._typing import Arrays
from crowdrank.consensus import diagnostics
from crowdrank.consensus.diagnostics import Evidence
from crowdrank.consensus.feature_scores import FeatureScores
from crowdrank.consensus.gold_accuracy import Agreements, count_agreements, gold_accuracy
from crowdrank.consensus.information import information
from crowdrank.consensus.on_disk import ShardWriter, StoredConsensus, add_shard_sums, writing_consensus
from crowdrank.consensus.result import Consensus, document_table, estimate_columns, grade_labels
from crowdrank.engine.base import Passes
from crowdrank.engine.shards import split
from crowdrank.errors import DataWarning
from crowdrank.judgments.sharded import ShardedJudgments, numbered_path
from crowdrank.judgments.table import Judgments

if TYPE_CHECKING:
    from crowdrank.consensus._base import EMAggregator
    from crowdrank.consensus.feature_aggregator import FeatureAggregator


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
        return consensus, diagnostics.data_warnings(evidence, self.model.assessor_arrays, self.model.on_a_line)

    def _collect(self, passes: Passes) -> tuple[Consensus, Evidence]:
        judgments, gold = self.judgments, self.gold
        assert isinstance(judgments, Judgments)
        consensus = replace(self.consensus(passes), prediction_table=self.predictions())
        relevance = to_numpy(consensus.document_table["relevance"].chunk(0))
        evidence = Evidence(
            judgments.assessors,
            overlapping=lambda: len(judgments) > judgments.n_items,
            groups=lambda: diagnostics.assessor_groups(judgments, None if gold is None else gold.code),
            by_relevance=lambda: diagnostics.covariance_sums(diagnostics.mean_grades(judgments), relevance),
            by_experts=None if gold is None else lambda: diagnostics.by_experts(judgments, gold.code),
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
        (shard,) = split(items, locality=self.model.locality, scores=(unlabeled.score,))
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
