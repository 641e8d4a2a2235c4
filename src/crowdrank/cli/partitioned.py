"""Commands on a folder of judgments, which is processed on disk."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from crowdrank.errors import Fix, UsageError
from crowdrank.judgments.read_options import ReadOptions

if TYPE_CHECKING:
    from crowdrank.engine.base import Engine
    from crowdrank.judgments.sharded import ShardedJudgments

ONLY_FILES = ("format", "separator", "assessor_name")
"""Read options that do not apply to Parquet."""


def require_unset(**options: object) -> None:
    """Raise UsageError if an option is set that needs judgments in memory."""
    for name, value in options.items():
        if value is not None:
            problem = "is not available for a folder of judgments, which is processed on disk"
            raise UsageError(problem, parameter=name, fix="leave it out")


def read_folder(folder: Path, work: Path | None, engine: Engine, reading: ReadOptions) -> ShardedJudgments:
    """Read the judgments of a folder into shards on disk, with a progress bar."""
    from crowdrank.judgments.addresses import to_address
    from crowdrank.judgments.partitions import read_partitions

    if work is None and engine.is_remote:
        problem = "the workers of another cluster need a folder for the shards that all of them see"
        raise UsageError(problem, fix=Fix("name it with {}", "work"))
    options = {name: value for name, value in asdict(reading).items() if name not in ONLY_FILES}
    return read_partitions(to_address(folder), work=work, engine=engine, progress=True, **options)
