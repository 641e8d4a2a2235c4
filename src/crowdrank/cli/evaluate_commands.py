"""The commands `evaluate` and `compare`: score rankings on expert grades."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crowdrank._options import option
from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_cells, print_columns, print_json, print_line, print_message
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.errors import UsageError
from crowdrank.readers.read_options import RunReadOptions

if TYPE_CHECKING:
    from crowdrank.evaluation.comparison import Comparison
    from crowdrank.judgments.scale import Scale
    from crowdrank.readers.runs import RunTable


def evaluate(
    run: Annotated[
        Path,
        typer.Argument(
            help="Ranking: a consensus, a table of scores, or a TREC run (.trec, .run).", show_default=False
        ),
    ],
    expert: o.GoldFile,
    scoring: o.Scoring,
    reading: Annotated[RunReadOptions, FieldsOf(RunReadOptions, "Reading the ranking")],
    gold_reading: o.GoldReading,
    size_limit: o.SizeLimit,
    per_query: o.PerQuery = None,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Score a ranking against expert grades.

    Examples:
        crowdrank evaluate run.trec --expert experts.qrels --measures nDCG@10,AP
        crowdrank evaluate consensus.csv --expert sample.qrels --unjudged skip
    """
    from crowdrank.evaluation.evaluate import evaluate as score
    from crowdrank.evaluation.measures import parse_measures
    from crowdrank.readers.inputs import open_input, read_scale_column
    from crowdrank.readers.runs import read_run_table
    from crowdrank.readers.write import check_outputs

    measures = parse_measures(scoring.measures)
    check_outputs({"per_query": per_query}, [expert, run])
    inputs = open_input(run, reading.format, allow_books=False)
    grades = o.read_gold_file(expert, gold_reading, read_scale_column(inputs))
    ranking = read_run_table(inputs, reading.columns, grades.scale)
    print_columns(ranking.columns, [run])
    for message in ranking.notes:
        print_message(message)
    scores = score(ranking.frame, grades, measures, **scoring.conventions)
    o.write_tables([(per_query, scores.per_query)], csv_safe=csv_safe)
    if json:
        roles = {"gold": dict(grades.report.columns), "run": dict(ranking.columns)}
        result = {"run": run, "means": scores.means, "judged": scores.judged, "notes": scores.notes()}
        result["warnings"] = [{"kind": one.kind, "problem": one.problem} for one in scores.warnings]
        used_features = {"gold": grades.used_features, "run": bool(ranking.notes)}
        print_json({**result, "columns": roles, "used_features": used_features})
        return
    means = {**scores.means, **scores.judged}
    print_cells(["measure", "mean"], [[name, f"{mean:.4f}"] for name, mean in means.items()])
    for note in scores.notes():
        print_line(note)
    for message in scores.warnings:
        print_message(message)


@dataclass(frozen=True)
class CompareOptions:
    """Options for the comparison with a baseline."""

    baseline: str | None = option(None, "Name of the ranking to test the others against.", show_default="the first")
    test: Literal["fisher", "t"] = option("fisher", "Significance test: fisher (randomization) or t (paired).")
    random_state: int = option(0, "Random seed.")


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(help="Rankings, as FILE or NAME=FILE; the first is the baseline.", show_default=False),
    ],
    expert: o.GoldFile,
    comparing: Annotated[CompareOptions, FieldsOf(CompareOptions)],
    *,
    scoring: o.Scoring,
    gold_reading: o.GoldReading,
    size_limit: o.SizeLimit,
    per_query: o.PerQuery = None,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Compare rankings: means, differences with intervals, and p-values with Holm's correction.

    Examples:
        crowdrank compare majority.csv gda.csv --expert experts.qrels
        crowdrank compare old=old.trec new=new.trec --expert experts.qrels --per-query values.csv
    """
    import pyarrow as pa

    from crowdrank.evaluation.comparison import compare as compare_runs
    from crowdrank.evaluation.measures import parse_measures
    from crowdrank.readers.inputs import open_input, read_scale_column
    from crowdrank.readers.write import check_outputs

    files = parse_run_names(runs)
    measures = parse_measures(scoring.measures)
    check_outputs({"per_query": per_query}, [expert, *map(Path, files.values())])
    scales = (read_scale_column(open_input(path, allow_books=False)) for path in files.values())
    grades = o.read_gold_file(expert, gold_reading, next(filter(None, scales), None))
    tables = read_run_tables(files, grades.scale)
    rankings = {name: table.frame for name, table in tables.items()}
    comparison = compare_runs(rankings, grades, measures, **asdict(comparing), **scoring.conventions)
    values = pa.Table.from_pandas(comparison.per_query, preserve_index=False)
    o.write_tables([(per_query, values)], csv_safe=csv_safe)
    if json:
        used_features = {"gold": grades.used_features, "runs": [name for name, table in tables.items() if table.notes]}
        columns = {"gold": dict(grades.report.columns)}
        print_json({**comparison.to_dict(), "columns": columns, "used_features": used_features})
        return
    print_comparison(comparison)
    print_differences(comparison)


def read_rankings(files: Mapping[str, str]) -> dict[str, Any]:
    """Return the ranking of each file by name; print which columns were read, and notes."""
    return {name: table.frame for name, table in read_run_tables(files).items()}


def read_run_tables(files: Mapping[str, str], scale: Scale | None = None) -> dict[str, RunTable]:
    """Read the ranking of each file by name; print which columns were read, and notes."""
    from crowdrank.readers.inputs import open_input
    from crowdrank.readers.runs import read_run_table

    tables = {}
    for name, path in files.items():
        tables[name] = read_run_table(open_input(path, allow_books=False), scale=scale)
        print_columns(tables[name].columns, [Path(path)])
        for message in tables[name].notes:
            print_message(message)
    return tables


def parse_run_names(run_arguments: list[str]) -> dict[str, str]:
    """Return the path of each ranking by name, from NAME=FILE or FILE (named by the file name up to the first dot)."""
    named: dict[str, str] = {}
    for run in run_arguments:
        name, equals, path = run.partition("=")
        if not equals or Path(run).exists():
            name, path = Path(run).name.split(".")[0], run
        if name in named:
            raise UsageError(f"Two rankings are called '{name}'", fix=f"name them, such as {name}-2={path}")
        named[name] = path
    return named


def print_comparison(comparison: Comparison) -> None:
    """Print the mean of each measure and Judged@k per ranking; mark the best and significant differences."""
    from crowdrank.evaluation.evaluate import GOLD_USED_FEATURES_NOTE

    details = {(row["run"], row["measure"]): row for row in comparison.rows.to_pylist()}
    first = next(iter(comparison.evaluations.values()))
    judged = [name for name in first.judged if name not in first.means]
    rows = [
        [
            run,
            *(_format_mean(details[run, name]) for name in one.means),
            *(f"{one.judged[name]:.4f}" for name in judged),
        ]
        for run, one in comparison.evaluations.items()
    ]
    print_cells(["run", *first.means, *judged], rows)
    print_line(
        f"Bold (*): the best. ▲ ▼: significantly above or below {comparison.baseline} ({comparison.test} test, Holm's "
        f"correction over the rankings, {comparison.alpha:.0%}). {counted(first.counts.queries, 'query')}."
    )
    for sentence in (*first.conventions.sentences(comparison.measures), *first.relevance_notes()):
        print_line(sentence)
    if first.gold_used_features:
        print_line(GOLD_USED_FEATURES_NOTE)


def print_differences(comparison: Comparison) -> None:
    """Print the difference of each ranking from the baseline with its interval, p-value and effect size."""
    rows = [
        [
            row["run"],
            row["measure"],
            f"{row['difference']:+.4f}",
            f"[{row['lower']:+.4f}, {row['upper']:+.4f}]",
            f"{row['p_holm']:.4f}",
            f"{row['effect_size']:+.2f}",
        ]
        for row in comparison.rows.to_pylist()
        if row["run"] != comparison.baseline
    ]
    names = [
        "run",
        "measure",
        f"minus {comparison.baseline}",
        f"{1 - comparison.alpha:.0%} interval",
        "p (Holm)",
        "effect",
    ]
    print_cells(names, rows, [True, True, False, False, False, False])


def _format_mean(row: dict[str, Any]) -> Any:
    from rich.text import Text

    mark = " " if not row["significant"] else "▲" if row["difference"] > 0 else "▼"
    # The star shows the best where nothing is bold, as in a pipe.
    return Text(f"{'*' if row['best'] else ''}{row['mean']:.4f}{mark}", style="bold" if row["best"] else "")
