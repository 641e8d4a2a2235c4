"""What verbs do with a folder of judgments, which stays on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdrank.errors import UsageError

if TYPE_CHECKING:
    from crowdrank.consensus.base import Aggregator
    from crowdrank.engine.base import Engine
    from crowdrank.judgments.sharded import ShardedJudgments

ONLY_FILES = ("format", "separator", "assessor_name")
"""Options of reading that mean nothing for Parquet."""


def refuse_for_folders(options: dict[str, Any]) -> None:
    """Refuse options that work on what is in memory."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise UsageError(f"{given[0]} is not for a folder of judgments, which stays on disk; leave it out.")


def read_folder(folder: Path, work: Path | None, engine: Engine, reading: dict[str, Any]) -> ShardedJudgments:
    """The judgments of a folder, as shards on disk, with bars."""
    from crowdrank.judgments.addresses import address_of
    from crowdrank.judgments.partitions import read_partitions

    options = {name: value for name, value in reading.items() if name not in ONLY_FILES}
    return read_partitions(address_of(folder), work=work, engine=engine, progress=True, **options)


def aggregate_folder(
    model: Aggregator,
    folder: Path,
    output: Path | None,
    assessors: Path | None,
    work: Path | None,
    engine: Engine,
    reading: dict[str, Any],
    checkpoint: Path | None,
    gold: Path | None,
    expert_options: dict[str, Any],
    csv_safe: bool,
) -> ShardedJudgments:
    """Fit to a folder of judgments, and write the consensus into another."""
    from crowdrank._folders import check_output_folder
    from crowdrank.consensus.on_disk import CONSENSUS
    from crowdrank.judgments.addresses import address_of, is_within
    from crowdrank.judgments.read import read_gold
    from crowdrank.judgments.write import check_outputs, write_table

    if output is None:
        raise UsageError(f"{folder} is a folder: name one for its consensus too, with -o.")
    if is_within(output, address_of(folder)):
        raise UsageError(f"-o names {output}, which is read; choose another name.")
    if work is None and engine.is_remote:
        raise UsageError("On another cluster, name a folder that all its workers see for the shards, with --work.")
    check_outputs({"--assessors": assessors}, [gold])
    check_output_folder(output, CONSENSUS)
    known = read_gold(gold, **expert_options) if gold else None
    table = read_folder(folder, work, engine, reading)
    model.fit(table, gold=known, engine=engine, progress=True, checkpoint=checkpoint, output=output)
    if assessors is not None:
        write_table(model.consensus_.assessor_table, assessors, csv_safe=csv_safe)
    return table
