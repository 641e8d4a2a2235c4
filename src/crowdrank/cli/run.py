"""`crowdrank run`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import say, say_json, show_cells
from crowdrank.cli.report import written
from crowdrank.errors import UsageError, interrupt_in

if TYPE_CHECKING:
    from crowdrank.pipeline.run import Run

EXPERTS = "Expert grades"
REPORT = "report.html"


def run(
    config: Annotated[
        Path | None,
        typer.Argument(
            help="A TOML file with any of these options (judgments, features, expert, output, measure, ...); what is "
            "said here goes before it.",
            show_default=False,
        ),
    ] = None,
    judgments: Annotated[
        Path | None, typer.Option("--judgments", "-j", help="The crowd's judgments.", show_default=False)
    ] = None,
    features: Annotated[
        list[Path] | None,
        typer.Option("--features", "-f", help="Features of documents: LETOR, CSV, ... May be given several times."),
    ] = None,
    expert: Annotated[
        Path | None, typer.Option("--expert", "-e", help="Expert grades of some queries.", show_default=False)
    ] = None,
    honeypots: Annotated[
        Path | None,
        typer.Option(help="Planted documents with their right grades; no ranker learns from them.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The folder for the results.", rich_help_panel=o.OUTPUT),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done, and roughly how long it takes.")
    ] = False,
    method: Annotated[str | None, typer.Option("--method", "-m", help="The consensus to write: gda, auto, ...")] = None,
    measure: Annotated[
        str | None, typer.Option(help="What rankers are chosen and compared by: nDCG@10, AP, ...")
    ] = None,
    gains: Annotated[str | None, typer.Option(help="What a grade gains: exponential, linear, or a table.")] = None,
    candidates: Annotated[
        str | None, typer.Option(help="Only these, as in majority,gda,expert-only; ensembles are made of them.")
    ] = None,
    baseline: Annotated[str | None, typer.Option(help="The candidate that others are compared with.")] = None,
    test: Annotated[float | None, typer.Option(help="The share of expert queries that the choice never sees.")] = None,
    folds: Annotated[int | None, typer.Option(help="Folds of the expert queries for the choice.")] = None,
    refit: Annotated[
        bool | None,
        typer.Option("--refit/--no-refit", help="Let the chosen one learn once more, from everything (the default)."),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="As many as the machine has, unless given.")] = None,
    engine: o.EngineName = "local",
    dashboard: o.Dashboard = False,
    seed: Annotated[int | None, typer.Option(help="Of splits and of whatever is drawn.")] = None,
    format: o.Format = None,
    columns: o.Columns = None,
    grades: o.Grades = None,
    scales: o.Scales = None,
    unjudgeable: o.Unjudgeable = None,
    unjudgeable_as: o.UnjudgeableAs = "lowest",
    repeats: o.Repeats = "last",
    exclude: o.Exclude = None,
    family_pattern: o.FamilyPattern = None,
    on_bad_rows: o.OnBadRows = "error",
    max_bytes: o.MaxBytes = "16GiB",
    expert_format: Annotated[str | None, typer.Option(help="Their format.", rich_help_panel=EXPERTS)] = None,
    expert_columns: Annotated[str | None, typer.Option(help="Which column is what.", rich_help_panel=EXPERTS)] = None,
    expert_grades: Annotated[str | None, typer.Option(help="Their scale.", rich_help_panel=EXPERTS)] = None,
    expert_unjudgeable: Annotated[
        str | None, typer.Option(help="Answers that mean 'cannot judge'.", rich_help_panel=EXPERTS)
    ] = None,
    json: o.AsJson = False,
) -> None:
    """From judgments, features and some expert grades to a ranker, compared with every control."""
    from crowdrank._folders import check_output_folder
    from crowdrank.pipeline.config import Files, read_config
    from crowdrank.pipeline.dry_run import plan
    from crowdrank.pipeline.provenance import Origin
    from crowdrank.pipeline.run import RUN
    from crowdrank.pipeline.run import run as run_all

    given = _given(
        judgments=judgments,
        features=features or None,
        expert=expert,
        honeypots=honeypots,
        output=output,
        method=method,
        measure=measure,
        gains=gains,
        candidates=None if candidates is None else [name.strip() for name in candidates.split(",") if name.strip()],
        baseline=baseline,
        test=test,
        folds=folds,
        refit=refit,
        threads=threads,
        seed=seed,
        format=format,
        columns=columns,
        grades=grades,
        scales=scales,
        unjudgeable=unjudgeable,
        unjudgeable_as=None if unjudgeable_as == "lowest" else unjudgeable_as,
        repeats=None if repeats == "last" else repeats,
        exclude=exclude,
        family_pattern=family_pattern,
        on_bad_rows=None if on_bad_rows == "error" else on_bad_rows,
        max_bytes=None if max_bytes == "16GiB" else max_bytes,
        expert_format=expert_format,
        expert_columns=expert_columns,
        expert_grades=expert_grades,
        expert_unjudgeable=expert_unjudgeable,
    )
    told: dict[str, Any] = {**({} if config is None else read_config(config)), **given}
    files, settings = Files.of(told)
    if files.output is not None:
        check_output_folder(files.output, RUN)
    if dry_run:
        lines = plan(*files.read(), **settings)
        if json:
            say_json({"plan": lines})
            return
        for line in lines:
            say(line)
        return
    if files.output is None:
        raise UsageError("Name a folder for the results with --output.")
    try:
        with o.engine(engine, threads, dashboard) as running:
            cluster = None if engine == "local" else running
            origin = Origin(typed(config, {**given, "engine": None if engine == "local" else engine}))
            report = partial(written, shown_as=files.output)
            done = run_all(
                *files.read(),
                output=files.output,
                progress=True,
                engine=cluster,
                origin=origin,
                report=report,
                **settings,
            )
        show_run(done, files.output, json=json)
    except (KeyboardInterrupt, SystemError) as problem:
        if (interrupt := interrupt_in(problem)) is None:
            raise
        interrupt.add_note(f"What was finished is kept in {files.output}: the same command goes on from there.")
        raise interrupt from None


def show_run(done: Run, output: Path, *, json: bool) -> None:
    """Show the result of a run and where its report is."""
    report = output / REPORT
    if json:
        say_json({**done.about(), "output": str(output), "report": str(report)})
        return
    show_candidates(done)
    for note in done.notes:
        say(f"Note: {note}")
    say(done.paragraph)
    say(f"The report: {report}")


def show_candidates(done: Run) -> None:
    """A table that 80 columns hold: figures with short heads; what is long comes in lines of its own."""
    measure, rows = done.settings.measure, []
    left_out = done.outcome.failed
    for row in done.comparison.to_dict("records"):
        if row["candidate"] in left_out:
            continue
        figures = [_figure(row.get(name)) for name in ("choice_mean", f"{measure} mean")]
        gains = [_figure(row.get(f"{measure} {name}"), "+") for name in ("difference", "lower", "upper")]
        name = f"{row['candidate']} *" if row["chosen"] is True else row["candidate"]
        rows.append([name, *figures, *gains, _p(row.get(f"{measure} p_holm"))])
    names = ["candidate", "choice", "test", "gain", "from", "to", "p (Holm)"]
    there = [place for place in range(len(names)) if place == 0 or any(row[place] for row in rows)]
    if len(there) == 1:  # nothing was measured
        say(f"Candidates (* is chosen): {', '.join(row[0] for row in rows)}.")
    else:
        title = f"Candidates by {measure} (* is chosen"
        title += f"; gain: over {done.verdict.baseline})" if 3 in there else ")"
        cells = [[row[place] for place in there] for row in rows]
        show_cells([names[place] for place in there], cells, [place == 0 for place in there], title)
    for name, why in left_out.items():
        say(f"Left out: {name} ({why}).")


def _figure(value: Any, sign: str = "") -> str:
    return "" if value is None or value != value else f"{value:{sign if value else ''}.4f}"


def _p(value: Any) -> str:
    from crowdrank.evaluation.significance import format_p

    return "" if value is None or value != value else format_p(value)


def typed(config: Path | None, given: Mapping[str, Any]) -> str:
    """The command that was typed, or one that says the same.

    >>> typed(None, {"judgments": Path("my labels.csv"), "features": [Path("a.letor"), Path("b.letor")], "test": 0.5})
    "crowdrank run --judgments 'my labels.csv' --features a.letor --features b.letor --test 0.5"
    """
    return join(["crowdrank", "run", *([] if config is None else [str(config)]), *options_of(given)])


def options_of(given: Mapping[str, Any]) -> list[str]:
    """Options by name as words of a command; those that are None are left out.

    >>> options_of({"refit": False, "candidates": ["gda", "gls"], "on_bad_rows": "skip", "seed": None})
    ['--no-refit', '--candidates', 'gda,gls', '--on-bad-rows', 'skip']
    """
    words: list[str] = []
    for name, value in given.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif name == "candidates" and value is not None:
            words += ["--candidates", ",".join(value)]
        elif value is not None:
            for one in value if isinstance(value, list) else [value]:
                words += [f"--{option}", str(one)]
    return words


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
