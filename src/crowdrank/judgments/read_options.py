"""Options of the readers, for the command line and TOML files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crowdrank._options import option

Format = Literal[
    "csv", "tsv", "parquet", "jsonl", "json", "xlsx", "qrels", "run", "letor", "trec-rf10", "crowd-kit",
    "doccano", "label-studio", "toloka", "mturk", "quepid", "opensearch",
]  # fmt: skip
"""File format of an input."""
Repeats = Literal["last", "first", "keep", "error"]
"""Which of several judgments of one assessor on one document to use; `keep` uses all."""
OnBadRows = Literal["error", "skip"]
"""What to do with rows that cannot be used."""
UnjudgeableAs = Literal["lowest", "drop"]
"""Whether 'cannot judge' answers become the lowest grade or are dropped."""

_FORMAT_HELP = "File format; by default detected from the file name and content."
_COLUMNS_HELP = "Column of each role, such as query=topic,assessor=worker."
_SEPARATOR_HELP = "Separator between the cells of a text file."
_GRADES_HELP = "Scale: a range such as 0-4, or names from least to most relevant such as Bad,Fair,Good."
_UNJUDGEABLE_HELP = "Answers that mean 'cannot judge', separated by commas, such as -2."
_ON_BAD_ROWS_HELP = "What to do with rows that cannot be used: stop, or skip and count them."


@dataclass(frozen=True)
class ReadOptions:
    """Options of :func:`crowdrank.read_judgments`, as written on the command line and in TOML files."""

    format: Format | None = option(None, _FORMAT_HELP)
    columns: str | None = option(None, _COLUMNS_HELP)
    separator: str | None = option(None, _SEPARATOR_HELP)
    grades: str | None = option(None, _GRADES_HELP)
    scales: Path | None = option(None, "CSV file with a scale per assessor or family: assessor, grades, maps_to.")
    unjudgeable: str | None = option(None, _UNJUDGEABLE_HELP)
    repeats: Repeats = option("last", "Which of several judgments of one assessor on one document to use.")
    exclude: Path | None = option(None, "File with the ids of assessors to exclude, one per line.")
    family_pattern: str | None = option(None, "Regular expression for the family in assessor ids, such as '(.*)_p'.")
    assessor_name: str | None = option(
        None, "Assessor of a file without a column for it; by default, and with {file}, the name of each such file."
    )
    on_bad_rows: OnBadRows = option("error", _ON_BAD_ROWS_HELP)
    max_bytes: str = option("16GiB", "Maximum size of a file, uncompressed, such as 500MB, 2GB or 4096.")


@dataclass(frozen=True)
class GoldReadOptions:
    """Options of :func:`crowdrank.read_gold`, as written on the command line and in TOML files."""

    format: Format | None = option(None, _FORMAT_HELP)
    columns: str | None = option(None, "Column of each role, such as query=topic,grade=gold.")
    separator: str | None = option(None, _SEPARATOR_HELP)
    grades: str | None = option(None, _GRADES_HELP)
    unjudgeable: str | None = option(None, _UNJUDGEABLE_HELP)
    unjudgeable_as: UnjudgeableAs = option("lowest", "Use 'cannot judge' answers as the lowest grade, or drop them.")
    map: str | None = option(None, "Grades that each expert grade stands for, such as 0=0-1,1=2-4.", "--expert-map")
    on_bad_rows: OnBadRows = option("error", _ON_BAD_ROWS_HELP)


@dataclass(frozen=True)
class FeatureReadOptions:
    """Options of :func:`crowdrank.read_features`, as written on the command line and in TOML files."""

    format: Format | None = option(None, _FORMAT_HELP)
    columns: str | None = option(None, "Columns of query and document, such as query=qid,document=docid.")


@dataclass(frozen=True)
class RunReadOptions:
    """Options of :func:`crowdrank.read_run`, as written on the command line and in TOML files."""

    format: Format | None = option(None, _FORMAT_HELP)
    columns: str | None = option(None, "Column of each role, such as query=qid,document=docid,score=bm25.")
