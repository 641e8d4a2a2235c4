"""Support for commands that process a folder of judgments on disk instead of in memory."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from crowdrank.errors import Fix, UsageError
from crowdrank.judgments.read_options import ReadOptions

if TYPE_CHECKING:
    from crowdrank.engine.base import Engine
    from crowdrank.judgments.sharded import ShardedJudgments

NON_PARQUET_OPTIONS = ("format", "separator", "assessor_name")
"""Names of read options that do not apply to Parquet files."""


def require_unset(**options: object) -> None:
    """Raise UsageError if one of these options is set; they need judgments in memory."""
    for name, value in options.items():
        if value is not None:
            problem = "is not available for a folder of judgments, which is processed on disk"
            raise UsageError(problem, parameter=name, fix="leave it out")


def read_folder(
    judgment_folder: Path, work_folder: Path | None, engine: Engine, read_options: ReadOptions
) -> ShardedJudgments:
    """Read the judgments of a folder into shards on disk, with a progress bar."""
    from crowdrank.judgments.addresses import to_address
    from crowdrank.judgments.partitions import read_partitions

    if work_folder is None and engine.is_remote:
        problem = "the workers of another cluster need a folder for the shards that all of them see"
        raise UsageError(problem, fix=Fix("name it with {}", "work"))
    options = {name: value for name, value in asdict(read_options).items() if name not in NON_PARQUET_OPTIONS}
    return read_partitions(to_address(judgment_folder), work=work_folder, engine=engine, progress=True, **options)
