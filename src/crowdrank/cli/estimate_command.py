"""The command `crowdrank estimate`: which system is better, and how sure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crowdrank._options import option
from crowdrank.cli import options as o
from crowdrank.cli.console import print_cells, print_json, print_line, print_read_report
from crowdrank.cli.evaluate_commands import parse_run_names, read_run_tables
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.errors import parameter_prefix
from crowdrank.judgments.columns import FEATURES_USED
from crowdrank.readers.read_options import GoldReadOptions

if TYPE_CHECKING:
    from crowdrank.estimation.estimate import Estimate
    from crowdrank.judgments.gold import Gold
    from crowdrank.judgments.table import ReadReport


@dataclass(frozen=True)
class EstimateOptions:
    """Options for the estimate."""

    measure: str = option("nDCG@10", "Measure: DCG@k, nDCG@k, P@k, RR, AP, ERR@k; by document DCG, nDCG and P.")
    baseline: str | None = option(None, "Name of the ranking to compare the others with.", show_default="the first")
    level: float = option(0.95, "Level of the intervals.")
    unit: Literal["auto", "query", "document"] = option(
        "auto", "What was drawn for the experts; auto: documents if the expert grades have probabilities."
    )
    random_state: int = option(0, "Random seed.")
    allow_feature_labels: bool = option(
        False, "Use labels that used features of the documents, although no expert grades correct them."
    )


@dataclass(frozen=True)
class WatchOptions:
    """Options for looking at a comparison several times while expert grades arrive."""

    looks: int | None = option(
        None,
        "Number of times that you plan to look while grades arrive; intervals then hold at every look. By default, "
        "that of the project whose database has the expert grades, unless --planned-grades is given.",
    )
    look: int | None = option(None, "Number of the present look.", show_default="the number of draws")
    planned_grades: int | None = option(
        None, "Number of expert grades planned in all, for looks that are not planned, in place of --looks."
    )
    margin: float | None = option(
        None, "Largest difference that does not matter. By default, that of the project whose database has the grades."
    )


LabelFile = Annotated[
    Path,
    o.path_option(
        "Labels of all documents: a consensus, a table of grades (p0, p1, ... are probabilities of grades), or a "
        "database of the judging service, whose labels at the first draw are used. They must be made without the "
        "expert grades.",
        callback=o.local_files,
    ),
]
SampleFile = Annotated[
    Path | None,
    o.expert_option(
        "Expert grades of complete queries, or of documents drawn with known `probability`. From a database of the "
        "judging service, the answers to the pairs that the policy compare drew are read.",
        "Options",
    ),
]
SampleReading = Annotated[
    GoldReadOptions, FieldsOf(GoldReadOptions, o.GOLD, prefix="expert_", only=("grades", "unjudgeable"))
]


def estimate(
    runs: Annotated[
        list[str],
        typer.Argument(help="Rankings, as FILE or NAME=FILE; the first is the baseline.", show_default=False),
    ],
    labels: LabelFile,
    expert: SampleFile = None,
    *,
    settings: Annotated[EstimateOptions, FieldsOf(EstimateOptions)],
    watching: Annotated[WatchOptions, FieldsOf(WatchOptions, "Watching")],
    reading: SampleReading,
    size_limit: o.SizeLimit,
    output: Annotated[Path | None, o.output_option("File for the table of estimates.")] = None,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Estimate which ranking is better, and how sure, from many labels and few expert grades.

    Examples:
        crowdrank estimate live.trec new.trec --labels consensus.parquet --expert sample.csv --measure nDCG@10
        crowdrank estimate live.trec new.trec --labels consensus.parquet -o estimates.csv
        crowdrank estimate live.trec new.trec --labels consensus.parquet --expert expert.csv --looks 5 --margin 0.01
    """
    from crowdrank.estimation.estimate import estimate as estimate_runs
    from crowdrank.readers.write import check_outputs

    files = parse_run_names(runs)
    check_outputs({"output": output}, [labels, expert, *map(Path, files.values())])
    known, sample = read_labels_and_sample(labels, expert, reading)
    tables = read_run_tables(files)
    rankings = {name: table.frame for name, table in tables.items()}
    watching = planned_watching(watching, expert)
    result = estimate_runs(rankings, known, sample, **asdict(settings), **asdict(watching))
    o.write_tables([(output, result.rows)], csv_safe=csv_safe)
    if json:
        used_features = {"labels": known.used_features, "runs": [name for name, one in tables.items() if one.notes]}
        print_json({**result.to_dict(), "used_features": used_features})
        return
    print_estimate(result)


def planned_watching(options: WatchOptions, expert: Path | None) -> WatchOptions:
    """Return the options, with the looks and the margin of the project if expert grades are in a database."""
    from crowdrank.readers.judging_database import read_comparison_plan

    plan = read_comparison_plan(expert)
    looks = plan.looks if options.looks is None and options.planned_grades is None else options.looks
    return replace(options, looks=looks, margin=plan.margin if options.margin is None else options.margin)


def read_labels_and_sample(labels: Path, expert: Path | None, reading: GoldReadOptions) -> tuple[Gold, Gold | None]:
    """Read labels and expert grades; print which columns were read, and notes."""
    from crowdrank.readers.read import read_labels, read_sample

    known, sample = read_labels(labels), None
    print_read_report(without_estimate_notes(known.report), [labels])
    if expert is not None:
        with parameter_prefix("expert_"):
            sample = read_sample(expert, grades=reading.grades, unjudgeable=reading.unjudgeable, scale=known.scale)
        print_read_report(without_estimate_notes(sample.report), [expert])
    return known, sample


def without_estimate_notes(report: ReadReport) -> ReadReport:
    """Return the report without warnings and without notes on features, which the estimate repeats."""
    kept = (note for note in report.notes if note.kind != FEATURES_USED and note.severity == "note")
    return replace(report, notes=tuple(kept))


def print_estimate(result: Estimate) -> None:
    """Print the estimate of each ranking, its difference to the baseline, and what each source gives alone."""
    rows = result.rows.to_pylist()
    cells = [
        [
            row["run"],
            f"{row['estimate']:.4f}",
            f"[{row['lower']:.4f}, {row['upper']:.4f}]",
            *_differences(row, row["run"] == result.baseline),
        ]
        for row in rows
    ]
    level = f"{result.level:.4g} interval"
    names = ["run", str(result.measure), level, f"minus {result.baseline}", level, "p (Holm)"]
    print_cells(names, cells, [True, False, False, False, False, False])
    sources = ("labels_only", "experts_only", "bias", "weight", "difference_weight", "worth", "difference_worth")
    shares = ("judged", "graded")
    beside = [
        [
            row["run"],
            *(_format_number(row[name], name) for name in sources),
            *(_format_share(row[name]) for name in shares),
        ]
        for row in rows
    ]
    names = ["run", "labels only", "experts only", "bias of labels", "weight", "weight (difference)"]
    names += ["worth in grades", "worth (difference)", *shares]
    print_cells(names, beside, [True] + [False] * (len(names) - 1))
    for sentence in (*result.answer_sentences(), *result.protocol()):
        print_line(sentence)


def _differences(row: dict[str, Any], is_baseline: bool) -> list[str]:
    if is_baseline:
        return ["", "", ""]
    from crowdrank._text import format_p

    interval = f"[{row['difference_lower']:+.4f}, {row['difference_upper']:+.4f}]"
    return [f"{row['difference']:+.4f}", interval, format_p(row["p_holm"])]


def _format_share(value: float) -> str:
    return "" if value != value else f"{value:.1%}"


def _format_number(value: float, name: str) -> str:
    if value != value:  # NaN: without experts, or no difference
        return ""
    return f"{value:.0f}" if name.endswith("worth") else f"{value:+.4f}" if name == "bias" else f"{value:.4f}"
