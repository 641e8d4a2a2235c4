"""Build a consensus from the rows that a model made of documents, in memory or shard by shard on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crowdrank._folders import write_folder
from crowdrank._typing import Arrays
from crowdrank.consensus import diagnostics
from crowdrank.consensus.diagnostics import Evidence
from crowdrank.consensus.gold_accuracy import Agreements, count_agreements, gold_accuracy
from crowdrank.consensus.information import information
from crowdrank.consensus.on_disk import (
    ASSESSORS,
    CONSENSUS,
    DOCUMENTS,
    ShardWriter,
    StoredConsensus,
    output_of,
    summed,
    write_about,
)
from crowdrank.consensus.result import Consensus, document_table, grade_labels
from crowdrank.engine.base import Passes
from crowdrank.errors import DataWarning
from crowdrank.judgments.gold import ItemGold, ShardGold
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import Judgments

if TYPE_CHECKING:
    from crowdrank.consensus._base import Aggregator


def conclude(
    model: Aggregator,
    prepared: Judgments | ShardedJudgments,
    passes: Passes,
    theta: Arrays,
    statistics: Arrays,
    gold: Any,
) -> tuple[Consensus, list[DataWarning]]:
    """Return the consensus of a fit and its data warnings.

    Args:
        model: the model.
        prepared: judgments as the model uses them.
        passes: passes over them after the last iteration.
        theta: parameters.
        statistics: summed statistics.
        gold: codes of the expert grades, if any.

    """
    if isinstance(prepared, ShardedJudgments):
        return _conclude_on_disk(model, prepared, passes, theta, statistics, gold)
    rows = passes.finish(theta)
    evidence = Evidence(
        prepared.assessors,
        overlapping=lambda: bool((np.diff(prepared.offsets) > 1).any()),
        groups=lambda: diagnostics.groups_of(prepared, None if gold is None else gold.code),
        by_relevance=lambda: diagnostics.moments(diagnostics.mean_grades(prepared), rows["relevance"]),
        by_experts=None if gold is None else lambda: diagnostics.by_experts(prepared, gold.code),
    )
    consensus = build_consensus(model, prepared, rows, theta, statistics, gold)
    return consensus, diagnostics.data_warnings(evidence, model.assessor_arrays, model.on_a_line)


def _conclude_on_disk(
    model: Aggregator,
    prepared: ShardedJudgments,
    passes: Passes,
    theta: Arrays,
    statistics: Arrays,
    gold: ShardGold | None,
) -> tuple[Consensus, list[DataWarning]]:
    """Write the consensus shard by shard into its folder."""
    output, method = output_of(prepared), type(model).__name__
    with write_folder(output, CONSENSUS) as folder:
        (folder / DOCUMENTS).mkdir()
        total = summed(passes.finish_into(theta, ShardWriter(prepared, gold, str(folder / DOCUMENTS))))
        agreements = None if gold is None else Agreements(total["agreed"], total["asked"])
        table = assessor_table(model, prepared, prepared.counts[:, 0], theta, statistics, agreements)
        pq.write_table(table, folder / ASSESSORS)
        labels, n_documents = grade_labels(prepared), int(total["documents"][0])
        write_about(folder, method, len(prepared), prepared.main_scale, labels, n_documents)
    evidence = Evidence(
        prepared.assessors,
        overlapping=lambda: bool(total["overlapping"][0]),
        groups=lambda: total["groups"],
        by_relevance=lambda: total["by_relevance"],
        by_experts=None if gold is None else lambda: total["by_experts"],
    )
    return StoredConsensus(output), diagnostics.data_warnings(evidence, model.assessor_arrays, model.on_a_line)


def build_consensus(
    model: Aggregator,
    judgments: Judgments,
    rows: Arrays,
    theta: Arrays,
    statistics: Arrays,
    gold: ItemGold | None,
) -> Consensus:
    """Return the consensus of judgments in memory."""
    counts = np.bincount(judgments.assessor, minlength=judgments.n_assessors)
    agreements = None if gold is None else count_agreements(judgments, gold)
    return Consensus(
        type(model).__name__,
        document_table(judgments, rows),
        assessor_table(model, judgments, counts, theta, statistics, agreements),
        judgments.main_scale,
        grade_labels(judgments),
        judgments.backend,
    )


def assessor_table(
    model: Aggregator,
    judgments: Judgments | ShardedJudgments,
    counts: NDArray[np.int64],
    theta: Arrays,
    statistics: Arrays,
    agreements: Agreements | None,
) -> pa.Table:
    """Return one row per assessor: number of judgments, parameters, informativeness, accuracy on expert grades."""
    states = model._states(theta)
    columns: dict[str, Any] = {
        "assessor": judgments.assessors,
        **_family_names(judgments),
        "judgments": counts,
        **model._assessor_columns(theta, statistics),
        **({} if states is None else {"informativeness": information(*states)[0]}),
        **({} if agreements is None else gold_accuracy(judgments, agreements)),
    }
    return pa.table(columns)


def _family_names(judgments: Judgments | ShardedJudgments) -> dict[str, pa.Array]:
    """Return the column with the family of each assessor, if there are families."""
    if judgments.families is None or judgments.assessor_family is None or not len(judgments.families):
        return {}
    family = judgments.assessor_family
    return {"family": judgments.families.take(pa.array(np.maximum(family, 0), mask=family < 0))}
