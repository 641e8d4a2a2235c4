"""The command `crowdrank aggregate`: estimate a consensus from judgments."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from crowdrank._options import option
from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import (
    print_cells,
    print_json,
    print_line,
    print_read_report,
    print_table,
    print_unjudged_gold,
)
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.cli.partitioned import read_folder, require_unset
from crowdrank.errors import Fix, UsageError
from crowdrank.judgments.read_options import ReadOptions

if TYPE_CHECKING:
    from crowdrank.consensus._base import Aggregator
    from crowdrank.judgments.sharded import ShardedJudgments
    from crowdrank.judgments.table import Judgments

SHOWN_COLUMNS = ["query", "document", "relevance", "sd", "lower", "upper", "grade", "judgments"]
"""Columns of the consensus table that the terminal shows."""


@dataclass(frozen=True)
class AggregateModel(o.ModelOptions):
    """Options for the consensus model of `aggregate`; the default method is fast."""

    method: str = o.method_option("dawid-skene")


@dataclass(frozen=True)
class FitOptions(o.EngineOptions):
    """Options for the engine that fits a model, and for folders of intermediate results."""

    checkpoint: Path | None = option(None, "Folder for the state of a fit; the same command resumes from it.")
    work: Path | None = option(None, "New folder for the shards of a folder of judgments.", show_default="temporary")


@dataclass(frozen=True)
class Outputs:
    """Options for the files and folders that `aggregate` writes."""

    output: Path | None = option(
        None,
        "File for the consensus: .csv, .tsv, .parquet, .jsonl or .qrels; for a folder of judgments, a new folder.",
        "-o",
    )
    assessors: Path | None = option(None, "File for the table of assessors.")
    posterior: Path | None = option(None, "File for the posterior distribution of each document.")
    save: Path | None = option(None, "Folder for the fitted model.")

    def write(self, model: Aggregator, *, csv_safe: bool) -> None:
        """Write all requested results together, or none if one cannot be written."""
        from crowdrank._files import write_together
        from crowdrank.judgments.write import write_table

        first = next((path for path in asdict(self).values() if path is not None), None)
        if first is None:
            return
        with write_together(first):
            if self.output is not None:
                write_table(model.consensus_.document_table, self.output, csv_safe=csv_safe)
            if self.assessors is not None:
                write_table(model.consensus_.assessor_table, self.assessors, csv_safe=csv_safe)
            if self.posterior is not None:
                write_table(model.posterior_table(), self.posterior, csv_safe=csv_safe)
            if self.save is not None:
                model.save(self.save)


def aggregate(
    judgments: o.JudgmentFilesOrFolder,
    model_options: Annotated[AggregateModel, FieldsOf(AggregateModel, o.MODEL)],
    outputs: Annotated[Outputs, FieldsOf(Outputs, o.OUTPUT)],
    gold: o.MaybeGoldFile = None,
    *,
    computation: Annotated[FitOptions, FieldsOf(FitOptions, o.COMPUTATION)],
    reading: o.Reading,
    gold_reading: o.MappedGoldReading,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Estimate the relevance of documents and the reliability of assessors.

    Examples:
        crowdrank aggregate labels.csv -m gda -o consensus.csv
        crowdrank aggregate labels.csv --grades 0-4 -s n_iter=200 --assessors assessors.csv
        crowdrank aggregate monday.csv tuesday.csv --gold experts.qrels -o consensus.parquet
    """
    from crowdrank._folders import check_output_folder
    from crowdrank.consensus.checkpoints import CHECKPOINT
    from crowdrank.judgments.addresses import is_parquet_folder
    from crowdrank.judgments.table import Judgments
    from crowdrank.judgments.write import check_qrels, is_qrels

    model = model_options.build()
    if computation.checkpoint is not None:
        check_output_folder(computation.checkpoint, CHECKPOINT)
    on_disk = len(judgments) == 1 and is_parquet_folder(judgments[0])
    if on_disk:
        _check_folder_options(judgments[0], gold, outputs, reading)
    else:
        _check_file_options(judgments, gold, outputs, reading, computation.work)
    table: Judgments | ShardedJudgments | None = None if on_disk else o.read_judgment_files(judgments, reading)
    if isinstance(table, Judgments) and is_qrels(outputs.output):
        check_qrels(table)
    grades = None if gold is None else o.read_gold_file(gold, gold_reading)
    with computation.open() as engine:
        if table is None:
            table = read_folder(judgments[0], computation.work, engine, reading)
            print_read_report(table.report, judgments)
        folder: dict[str, Any] = {"output": outputs.output} if on_disk else {}
        model.fit(table, gold=grades, engine=engine, progress=True, checkpoint=computation.checkpoint, **folder)
    (replace(outputs, output=None) if on_disk else outputs).write(model, csv_safe=csv_safe)
    _print_result(_summary(model_options.method, model, table, outputs), model, table, json)


def _check_folder_options(
    judgment_folder: Path, gold_file: Path | None, outputs: Outputs, reading: ReadOptions
) -> None:
    """Raise an error if options are invalid for a folder of judgments, or its consensus cannot be written."""
    from crowdrank._folders import check_output_folder
    from crowdrank.consensus.on_disk import CONSENSUS
    from crowdrank.judgments.addresses import is_within, to_address
    from crowdrank.judgments.write import check_outputs

    require_unset(
        posterior=outputs.posterior,
        save=outputs.save,
        format=reading.format,
        separator=reading.separator,
        assessor_name=reading.assessor_name,
    )
    if outputs.output is None:
        raise UsageError(
            f"{judgment_folder} is a folder", fix=Fix("name a folder for its consensus too, with {}", "output")
        )
    if is_within(outputs.output, to_address(judgment_folder)):
        raise UsageError(f"is {outputs.output}, which is read", parameter="output", fix="choose another name")
    check_outputs({"assessors": outputs.assessors}, [gold_file])
    check_output_folder(outputs.output, CONSENSUS)


def _check_file_options(
    judgment_files: list[Path], gold_file: Path | None, outputs: Outputs, reading: ReadOptions, work_folder: Path | None
) -> None:
    """Raise an error if options are invalid for files of judgments, or their consensus cannot be written."""
    from crowdrank._folders import check_output_folder
    from crowdrank.consensus._base import MODEL
    from crowdrank.judgments.write import check_outputs

    if work_folder is not None:
        problem = f"is for a folder of Parquet files, and {judgment_files[0]} is not one"
        raise UsageError(problem, parameter="work", fix="leave it out")
    tables = {"output": outputs.output, "assessors": outputs.assessors, "posterior": outputs.posterior}
    check_outputs(tables, o.input_files(judgment_files, reading, gold_file), qrels_parameters=("output",))
    if outputs.save is not None:
        check_output_folder(outputs.save, MODEL)


def _print_result(
    summary: dict[str, Any], model: Aggregator, judgments: Judgments | ShardedJudgments, as_json: bool
) -> None:
    print_unjudged_gold(summary["gold_unjudged"])
    if as_json:
        print_json(summary)
        return
    first = next(model.consensus_.document_parts())
    print_table(first.select(SHOWN_COLUMNS), total_rows=model.consensus_.n_documents)
    if "choice" in summary:
        _print_model_choice(summary)
    print_line(_summary_sentence(summary, judgments))


def _summary(
    method: str, model: Aggregator, judgments: Judgments | ShardedJudgments, outputs: Outputs
) -> dict[str, Any]:
    report = judgments.report
    paths = {name: None if path is None else str(path) for name, path in asdict(outputs).items()}
    return {
        "method": method,
        "documents": model.consensus_.n_documents,
        "assessors": len(model.consensus_.assessor_table),
        "judgments": len(judgments),
        "columns": dict(report.columns),
        "rows": report.rows,
        "skipped": dict(report.skipped),
        "repeats": report.repeats,
        "excluded": report.excluded,
        "unjudgeable": judgments.n_unjudgeable,
        "iterations": model.n_iter_,
        "converged": model.converged_,
        "unjudgeable_as": model.unjudgeable_as,
        "gold_unjudged": 0 if model.gold_ is None else model.gold_.n_unjudged(judgments),
        **_family_sizes(model),
        **_model_choice(model),
        "output": paths["output"],
        "assessors_output": paths["assessors"],
        "posterior": paths["posterior"],
        "saved": paths["save"],
    }


def _model_choice(model: Aggregator) -> dict[str, Any]:
    """Return the models that `auto` compared, their scores and the reason for its choice; {} for other models."""
    from crowdrank.consensus.auto import Auto

    return {"choice": model.choice_table.to_pylist(), "reason": model.reason_} if isinstance(model, Auto) else {}


def _print_model_choice(summary: dict[str, Any]) -> None:
    names = ["method", "ranking", "grades", "chosen_for", "note"]
    cells = [
        [row["method"], *(_format_score(row[name]) for name in ("ranking", "grades")), row["chosen_for"], row["note"]]
        for row in summary["choice"]
    ]
    print_cells(names, cells, [True, False, False, True, True], "Log score of held-out judgments")
    print_line(summary["reason"])


def _format_score(score: float | None) -> str:
    return "" if score is None else f"{score:.4f}"


def _family_sizes(model: Aggregator) -> dict[str, Any]:
    """Return the sizes of the families (groups of related assessors) that the model found, if it searched for them."""
    if model.get_params().get("families") != "auto":
        return {}
    family = model.judgments_.assessor_family
    codes = [] if family is None else [int(code) for code in family if code >= 0]
    return {"families": sorted((codes.count(code) for code in set(codes)), reverse=True)}


def _summary_sentence(summary: dict[str, Any], judgments: Judgments | ShardedJudgments) -> str:
    parts = [f"{summary['method']} on {repr(judgments).strip('<>').partition(': ')[2]}"]
    parts += [f"{counted(n, 'row')} skipped ({reason})" for reason, n in summary["skipped"].items()]
    if summary["repeats"]:
        parts.append(counted(summary["repeats"], "repeated judgment"))
    if summary["excluded"]:
        parts.append(f"{counted(summary['excluded'], 'judgment')} excluded")
    if summary["unjudgeable"]:
        use = {"lowest": "counted as the lowest grade", "drop": "dropped", "model": "modeled as an answer of its own"}
        answers = counted(summary["unjudgeable"], "'cannot judge' answer")
        parts.append(f"{answers} {use[summary['unjudgeable_as']]}")
    if "families" in summary:
        sizes = ", ".join(f"{size:,}" for size in summary["families"])
        parts.append(f"families of {sizes} assessors found" if sizes else "no families found")
    if summary["iterations"] > 1 and "choice" not in summary:
        parts.append(f"{'converged' if summary['converged'] else 'stopped'} after {summary['iterations']} iterations")
    written = [summary[name] for name in ("assessors_output", "posterior", "saved", "output") if summary[name]]
    return "; ".join([*parts, *([f"written to {', '.join(written)}"] if written else [])]) + "."
