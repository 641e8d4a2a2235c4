"""The commands `run` and `report`: train and compare rankers, and show the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.aggregate_command import describe_unused, preference_counts
from crowdrank.cli.console import (
    print_cells,
    print_columns,
    print_json,
    print_line,
    print_paragraph,
    print_read_report,
    print_status,
    render,
)
from crowdrank.cli.from_settings import CommandLineOptions, FieldsOf
from crowdrank.cli.options import parse_settings
from crowdrank.consensus import get_aggregator
from crowdrank.errors import Fix, UsageError, find_interrupt
from crowdrank.pipeline.run_settings import PREFIXES, RunConfig, RunFiles, RunSettings, read_config
from crowdrank.readers.read_options import GoldReadOptions, PreferenceReadOptions, ReadOptions

if TYPE_CHECKING:
    from crowdrank.judgments.preferences import Preferences
    from crowdrank.pipeline.feature_labels import FeatureLabels
    from crowdrank.pipeline.run_result import RankerResults, RunResult
    from crowdrank.pipeline.stage_cache import RunProfile
    from crowdrank.readers.texts import Texts

REPORT_NAME = "report.html"


def report(
    folder: Annotated[Path, typer.Argument(help="Folder that `crowdrank run` wrote.", show_default=False)],
    output: Annotated[Path | None, o.output_option("HTML file.", show_default="report.html in the folder")] = None,
    texts: Annotated[
        list[Path] | None,
        typer.Option(
            help="Texts of queries and documents to show: JSON Lines, CSV or Parquet with the columns document, query, "
            "text, title, url, query_text. Repeatable.",
            show_default=False,
        ),
    ] = None,
    json: o.AsJson = False,
) -> None:
    """Write the report of a run: one HTML file that opens offline.

    Examples:
        crowdrank report out
        crowdrank report out --texts documents.jsonl
        crowdrank report out -o shared/report.html
    """
    from crowdrank.reports.page import write_report

    path = write_report(folder, output, texts=texts or None)
    _note_missing_charts()
    if json:
        print_json({"report": path, "bytes": path.stat().st_size})
        return
    print_line(f"Report: {path}")


def report_writer(texts: Texts | None = None) -> Callable[[RunResult, Path], object]:
    """Return a function that writes the report of a result, and the texts in it, into the folder of its run."""

    def write(result: RunResult, folder: Path) -> None:
        from crowdrank.reports.page import add_report

        add_report(result, folder, texts)
        _note_missing_charts()

    return write


def _note_missing_charts() -> None:
    """Print a note if the report has no charts."""
    from crowdrank.reports.svg_images import can_draw

    if not can_draw():
        print_status("The report has tables but no charts; for charts: pip install 'crowdrank[report]'")


def run(
    options: Annotated[
        CommandLineOptions,
        FieldsOf(RunFiles, "Files"),
        FieldsOf(RunSettings, "Settings"),
        FieldsOf(ReadOptions, o.READING),
        FieldsOf(GoldReadOptions, o.GOLD, prefix=PREFIXES[GoldReadOptions]),
        FieldsOf(PreferenceReadOptions, o.PREFERENCES, prefix=PREFIXES[PreferenceReadOptions]),
    ],
    model: Annotated[o.ModelOptions, FieldsOf(o.ModelOptions, "Settings", only=("setting",))],
    computation: Annotated[o.EngineOptions, FieldsOf(o.EngineOptions, o.COMPUTATION, without=("n_jobs",))],
    config: Annotated[
        Path | None,
        typer.Argument(
            help="TOML file with any of the options (judgments, features, expert, output, measure, ...); options on "
            "the command line override it.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and an estimate of the time, and stop.")
    ] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Print time and memory of each stage at the end.")] = False,
    json: o.AsJson = False,
) -> None:
    """Compute labels from judgments, and train and compare rankers on them.

    Without features there is no ranker: the report is about the labels and the assessors.

    Examples:
        crowdrank run -j labels.csv -o out
        crowdrank run -j labels.csv -f features.letor -e experts.qrels -o out
        crowdrank run -j labels.csv --preferences preferences.csv -f features.letor -e experts.qrels -o out
        crowdrank run run.toml --measure AP --seed 1
        crowdrank run -j labels.csv -f features.letor --method gda -s difficulty=true --dry-run
    """
    from crowdrank._folders import check_output_folder
    from crowdrank.pipeline.run_result import RUN

    task = RunConfig.from_options(_merge_options(config, options, model.setting))
    output, computation = task.files.output, replace(computation, n_jobs=task.settings.n_jobs)
    if output is not None:
        check_output_folder(output, RUN)
    if dry_run:
        from crowdrank.pipeline.dry_run import plan

        inputs, preferences = _read_inputs(task)
        lines = plan(*inputs, preferences=preferences, note_text=render, **vars(task.settings))
        if json:
            print_json({"plan": lines})
            return
        for line in lines:
            print_line(line)
        return
    if output is None:
        raise UsageError("A run needs a folder for its results", fix=Fix("name it with {}", "output"))
    engine = None if computation.engine == "local" else computation.engine
    command = run_command(config, {**options, "setting": model.setting, "engine": engine})
    try:
        result = _run(task, output, computation, command)
    except (KeyboardInterrupt, SystemError) as problem:
        if (interrupt := find_interrupt(problem)) is None:
            raise
        interrupt.add_note(f"Finished stages are kept in {output}: the same command continues from there.")
        raise interrupt from None
    print_run(result, output, profile=profile, json=json)


def _merge_options(config_path: Path | None, options: CommandLineOptions, model_settings: list[str]) -> dict[str, Any]:
    """Merge the options of a TOML file with those of the command line, which override the file."""
    merged = {**({} if config_path is None else read_config(config_path)), **options}
    if model_settings:
        method = get_aggregator(str(merged.get("method", RunSettings.method)))
        merged["method_settings"] = {**merged.get("method_settings", {}), **parse_settings(model_settings, method)}
    return merged


def _read_inputs(run_config: RunConfig) -> tuple[tuple[Any, ...], Preferences | None]:
    """Return what `RunConfig.read` returns, and the preferences (None without a file).

    Print which columns were read, with notes and skipped rows.
    """
    from crowdrank.readers.read_options import excluded_ids, share_excluded

    inputs = run_config.read()
    preferences = run_config.read_preferences()
    if preferences is not None:
        reports = share_excluded(inputs[0], preferences, excluded_ids(run_config.reading.exclude))
        inputs = (replace(inputs[0], report=reports[0]), *inputs[1:])
        preferences = replace(preferences, report=reports[1])
    # The run has its own notes about skipped rows, and repeats warnings.
    notes = tuple(note for note in inputs[0].report.notes if note.severity == "note")
    print_read_report(replace(inputs[0].report, skipped={}, notes=notes), run_config.files.judgments)
    if inputs[1] is not None:
        print_columns(inputs[1].columns, run_config.files.features)
    if inputs[2] is not None and run_config.files.expert is not None:
        print_read_report(inputs[2].report, [run_config.files.expert])
    if preferences is not None:
        print_read_report(preferences.report, run_config.files.preferences)
    return inputs, preferences


def _run(run_config: RunConfig, output_folder: Path, computation: o.EngineOptions, command: str) -> RunResult:
    """Read the inputs, run, and write the results and the report."""
    from crowdrank.pipeline.run import run as run_pipeline
    from crowdrank.pipeline.run_result import Provenance
    from crowdrank.pipeline.stage_cache import Profiler

    profiler, texts = Profiler(), None
    with computation.open() as engine:
        with profiler, profiler.stage("read"):
            (inputs, preferences), paths = _read_inputs(run_config), run_config.files.texts
            if paths:
                from crowdrank.readers.texts import read_texts

                texts = read_texts(paths, inputs[0].queries, inputs[0].documents)
        return run_pipeline(
            *inputs,
            preferences=preferences,
            output=output_folder,
            progress=True,
            engine=None if computation.engine == "local" else engine,
            provenance=Provenance(command),
            report=report_writer(texts),
            profiler=profiler,
            **vars(run_config.settings),
        )


def print_run(result: RunResult, output_folder: Path, *, json: bool, profile: bool = False) -> None:
    """Print the result of a run: the answer, the candidates, what to check, where the report is, and the profile."""
    from crowdrank.reports.cards import short_answers
    from crowdrank.reports.report_data import ReportData

    report = output_folder / REPORT_NAME
    if json:
        read = result.model.judgments_.report
        counts = {name: getattr(read, name) for name in ("rows", "repeats", "excluded")}
        measured = {"profile": result.profile.to_dict(), **preference_counts(result.model)}
        print_json(
            {
                **result.to_dict(),
                **measured,
                "output": output_folder,
                "report": report if report.exists() else None,
                "columns": dict(read.columns),
                "skipped": dict(read.skipped),
                **counts,
            }
        )
        return
    for question, answer in short_answers(ReportData(result, output_folder)):
        print_paragraph(f"{question:<24} {answer}", indent=" " * 25)
    print_line("")
    if found := preference_counts(result.model):
        read = found["preferences"]
        parts = [counted(read["rows"], "preference") + " read", *describe_unused(read), f"{read['used']:,} used"]
        print_paragraph(f"- {'; '.join(parts)}", indent="  ")
    for text in result.summary:
        print_paragraph(f"- {text}", indent="  ")
    if result.rankers is not None:
        print_line("")
        print_candidates(result, result.rankers)
    if result.feature_labels is not None:
        print_feature_labels(result.feature_labels)
    for note in result.notes:
        print_paragraph(f"{note.severity.capitalize()}: {render(note)}")
    if result.changes:
        print_line("Changes since the previous run:")
    for change in result.changes:
        print_paragraph(f"- {change}", indent="  ")
    if profile:
        print_profile(result.profile)
    print_line(f"Report: {report}" if report.exists() else f"Results: {output_folder}")


def print_profile(profile: RunProfile) -> None:
    """Print a table of the stages of a run, at most 80 characters wide."""
    rows = profile.rows()
    print_line("")
    print_cells(list(rows[0]), [list(row.values()) for row in rows], title="Time and peak memory of each stage")


def print_candidates(result: RunResult, rankers: RankerResults) -> None:
    """Print a table of the candidates and their results, at most 80 characters wide."""
    measure, failed = result.settings.measure, rankers.left_out
    table = result.tables["comparison"].to_pylist()
    rows = [_candidate_cells(row, measure) for row in table if row["candidate"] not in failed]
    names = ["candidate", "select", "test", "gain", "lower", "upper", "p (Holm)"]
    filled = [place for place in range(len(names)) if place == 0 or any(row[place] for row in rows)]
    if len(filled) == 1:  # nothing was measured
        print_line(f"Candidates (*: selected): {', '.join(row[0] for row in rows)}.")
    else:
        gain = f"; gain over {rankers.baseline} with 95% interval" if 3 in filled else ""
        cells = [[row[place] for place in filled] for row in rows]
        title = f"{measure} of the candidates (*: selected{gain})"
        print_cells([names[place] for place in filled], cells, title=title)
    for name, reason in failed.items():
        print_paragraph(f"Not trained: {name} ({reason}).")


def print_feature_labels(labels: FeatureLabels) -> None:
    """Print the figures of labels with and without features, at most 80 characters wide."""
    from crowdrank.pipeline.feature_labels import WITH_FEATURES, WITHOUT_FEATURES

    columns = {
        "figure": "figure",
        WITHOUT_FEATURES: "without",
        WITH_FEATURES: "with",
        "difference": "difference",
        "p": "p",
    }
    cells = [[row[name] for name in columns] for row in labels.rows()]
    print_line("")
    print_cells(list(columns.values()), cells, title="Labels with and without features")


def _candidate_cells(row: Mapping[str, Any], measure: str) -> list[str]:
    from crowdrank._text import format_p

    means = [_format_number(row.get(name)) for name in ("selection_mean", f"{measure} mean")]
    gains = [_format_number(row.get(f"{measure} {name}"), "+") for name in ("difference", "lower", "upper")]
    p = row.get(f"{measure} p_holm")
    name = f"{row['candidate']} *" if row["chosen"] is True else row["candidate"]
    return [name, *means, *gains, "" if p is None or p != p else format_p(p)]


def _format_number(value: float | None, sign: str = "") -> str:
    return "" if value is None or value != value else f"{value:{sign if value else ''}.4f}"


def run_command(config_path: Path | None, options: Mapping[str, Any]) -> str:
    """Return the shell command that repeats a run.

    >>> options = {"judgments": [Path("my labels.csv")], "features": [Path("a.letor"), Path("b.letor")], "test": 0.5}
    >>> run_command(None, options)
    "crowdrank run --judgments 'my labels.csv' --features a.letor --features b.letor --test 0.5"
    """
    return join(["crowdrank", "run", *([] if config_path is None else [str(config_path)]), *command_options(options)])


def command_options(options: Mapping[str, Any]) -> list[str]:
    """Return options as command-line arguments; options that are None are left out.

    >>> command_options({"refit": False, "candidates": "gda,gls", "setting": ["n_iter=10"], "seed": None})
    ['--no-refit', '--candidates', 'gda,gls', '--set', 'n_iter=10']
    """
    words: list[str] = []
    for name, value in options.items():
        flag = "set" if name == "setting" else name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            for one in value if isinstance(value, list) else [value]:
                words += [f"--{flag}", str(one)]
    return words
