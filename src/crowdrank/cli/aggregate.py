"""`crowdrank aggregate`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import complain, note_unjudged, say, say_json, show_cells, show_table
from crowdrank.cli.messages import render
from crowdrank.cli.partitioned import aggregate_folder, refuse_for_folders
from crowdrank.consensus import get_aggregator
from crowdrank.errors import UsageError

if TYPE_CHECKING:
    from crowdrank.consensus.base import Aggregator


SHOWN = ["query", "document", "relevance", "sd", "lower", "upper", "grade", "judgments"]
"""The columns that the terminal shows of a consensus."""


@o.reads_judgments()
def aggregate(
    judgments: o.JudgmentsFileOrFolder,
    method: o.Method = "dawid-skene",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The consensus: .csv, .tsv, .parquet, .jsonl or .qrels; of a folder of judgments, a new folder.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = None,
    assessors: Annotated[
        Path | None, typer.Option(help="Write the table of assessors here.", rich_help_panel=o.OUTPUT)
    ] = None,
    posterior: Annotated[
        Path | None,
        typer.Option(
            help="Write the whole posterior here: each document's probability at each point of the line, or of each "
            "grade.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Save the fitted model into this folder.", rich_help_panel=o.OUTPUT)
    ] = None,
    gold: o.MaybeGoldFile = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="A setting of the method, as in -s prior=0 -s n_iter=10.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keep the state of an unfinished fit in this folder, and go on from it.")
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            help="Of a folder of judgments: keep their shards in this new folder, and use them again. By default they "
            "are in a temporary one.",
        ),
    ] = None,
    threads: o.Threads = None,
    engine: o.EngineName = "local",
    dashboard: o.Dashboard = False,
    reading: o.Reading = o.TOLD,
    unjudgeable_as: o.UnjudgeableAs = "lowest",
    gold_format: o.GoldFormat = None,
    gold_columns: o.GoldColumns = None,
    gold_grades: o.GoldGrades = None,
    gold_unjudgeable: o.GoldUnjudgeable = None,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Turn judgments into a consensus: what is relevant, how sure, and who is reliable."""
    from crowdrank._folders import check_output_folder
    from crowdrank.consensus.base import MODEL
    from crowdrank.consensus.checkpoints import CHECKPOINT
    from crowdrank.judgments.addresses import is_folder
    from crowdrank.judgments.read import read_gold, read_judgments
    from crowdrank.judgments.summary import scale_in_doubt
    from crowdrank.judgments.write import check_outputs, check_qrels, is_qrels

    model = _model(method, setting or [], unjudgeable_as)
    if checkpoint is not None:
        check_output_folder(checkpoint, CHECKPOINT)
    expert_options = o.gold_options(gold_format, gold_columns, gold_grades, gold_unjudgeable, "lowest")
    if is_folder(judgments):
        only_files = {"--posterior": posterior, "--save": save, "--format": reading["format"]}
        only_files["--assessor-name"] = reading["assessor_name"]
        refuse_for_folders({**only_files, "--separator": reading["separator"]})
        with o.engine(engine, threads, dashboard) as running:
            on_disk = aggregate_folder(
                model, judgments, output, assessors, work, running, reading, checkpoint, gold, expert_options, csv_safe
            )
        written = {"output": output, "assessors_output": assessors}
        _show(_summary(method, model, on_disk, written), model, on_disk, json)
        return
    if work is not None:
        raise UsageError(f"--work is for a folder of Parquet files, and {judgments} is none; leave it out.")
    inputs = [judgments, gold, reading["exclude"], reading["scales"]]
    check_outputs({"-o": output, "--assessors": assessors, "--posterior": posterior}, inputs, qrels=("-o",))
    if save is not None:
        check_output_folder(save, MODEL)
    table = read_judgments(judgments, **reading)
    if is_qrels(output):
        check_qrels(table)
    if (doubt := scale_in_doubt(table)) is not None:
        complain(f"Note: {render(doubt)}")
    known = read_gold(gold, **expert_options) if gold else None
    with o.engine(engine, threads, dashboard) as running:
        model.fit(table, gold=known, engine=running, progress=True, checkpoint=checkpoint)
    _write(model, output, assessors, posterior, save, csv_safe=csv_safe)
    written = {"output": output, "assessors_output": assessors, "posterior": posterior, "saved": save}
    _show(_summary(method, model, table, written), model, table, json)


def _write(
    model: Aggregator,
    output: Path | None,
    assessors: Path | None,
    posterior: Path | None,
    save: Path | None,
    *,
    csv_safe: bool,
) -> None:
    """Write the results that were asked for, all in one step."""
    from crowdrank._files import one_step
    from crowdrank.judgments.write import write_table

    first = next((path for path in (output, assessors, posterior, save) if path is not None), None)
    if first is None:
        return
    with one_step(first):
        if output is not None:
            write_table(model.consensus_.document_table, output, csv_safe=csv_safe)
        if assessors is not None:
            write_table(model.consensus_.assessor_table, assessors, csv_safe=csv_safe)
        if posterior is not None:
            write_table(model.posterior_table(), posterior, csv_safe=csv_safe)
        if save is not None:
            model.save(save)


def _show(summary: dict[str, Any], model: Aggregator, table: Any, json: bool) -> None:
    note_unjudged(summary["gold_unjudged"])
    if json:
        say_json(summary)
        return
    first = next(model.consensus_.document_parts())
    show_table(first.select(SHOWN), of=model.consensus_.n_documents)
    _show_choice(summary)
    _say_summary(summary, repr(table))


def _model(method: str, settings: list[str], unjudgeable_as: str) -> Aggregator:
    model = get_aggregator(method, unjudgeable_as=unjudgeable_as)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"--set cannot read '{setting}'; write name=value, as in n_iter=10.")
        model.set_params(**{name: _value(text)})
    return model


def _value(text: str) -> Any:
    try:
        value = json_module.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value


def _summary(method: str, model: Aggregator, table: Any, written: dict[str, Path | None]) -> dict[str, Any]:
    report = table.report
    return {
        "method": method,
        "documents": model.consensus_.n_documents,
        "assessors": len(model.consensus_.assessor_table),
        "judgments": len(table),
        "rows": report.rows,
        "skipped": dict(report.skipped),
        "repeats": report.repeats,
        "excluded": report.excluded,
        "unjudgeable": table.n_unjudgeable,
        "iterations": model.n_iter_,
        "converged": model.converged_,
        "unjudgeable_as": model.unjudgeable_as,
        "gold_unjudged": 0 if model.gold_ is None else model.gold_.n_unjudged(table),
        **_families_found(model),
        **_chosen(model),
        **{name: None if path is None else str(path) for name, path in written.items()},
    }


def _chosen(model: Aggregator) -> dict[str, Any]:
    """The candidates with their scores, and why the winners won, where the model chose."""
    from crowdrank.consensus.auto import Auto

    return {"choice": model.choice_table.to_pylist(), "reason": model.reason_} if isinstance(model, Auto) else {}


def _show_choice(summary: dict[str, Any]) -> None:
    if "choice" not in summary:
        return
    names = ["method", "ranking", "grades", "chosen_for", "note"]
    scores = [[f"{row[name]:.4f}" if row[name] is not None else "" for name in names[1:3]] for row in summary["choice"]]
    cells = [
        [row["method"], *score, row["chosen_for"], row["note"]]
        for row, score in zip(summary["choice"], scores, strict=True)
    ]
    show_cells(names, cells, [True, False, False, True, True], "How well each predicts held-out judgments (log score)")
    say(summary["reason"])


def _families_found(model: Aggregator) -> dict[str, Any]:
    """How many assessors each family has, where families were looked for."""
    if model.get_params().get("families") != "auto":
        return {}
    found = model.judgments_
    of = [] if found.assessor_family is None else [int(number) for number in found.assessor_family if number >= 0]
    return {"families": sorted((of.count(number) for number in set(of)), reverse=True)}


def _say_summary(summary: dict[str, Any], what: str) -> None:
    from crowdrank._text import counted

    left_out = [f"{counted(n, 'row')} skipped ({reason})" for reason, n in summary["skipped"].items()]
    left_out += [f"{summary[name]:,} {name}" for name in ("repeats", "excluded") if summary[name]]
    if summary["unjudgeable"]:
        used = {"lowest": "counted as the lowest grade", "drop": "left out", "model": "taken as an answer of its own"}
        left_out.append(f"{summary['unjudgeable']:,} 'cannot judge' {used[summary['unjudgeable_as']]}")
    parts = [f"{summary['method']} on {what.strip('<>').partition(': ')[2]}", *left_out]
    if "families" in summary:
        sizes = ", ".join(f"{size:,}" for size in summary["families"])
        parts.append(f"families found, of {sizes} assessors" if sizes else "no families found")
    if summary["iterations"] > 1 and "choice" not in summary:
        parts.append(f"{'converged' if summary['converged'] else 'stopped'} after {summary['iterations']} iterations")
    written = [summary[name] for name in ("assessors_output", "posterior", "saved", "output") if summary.get(name)]
    if written:
        parts.append(f"written to {', '.join(written)}")
    say("; ".join(parts) + ".")
