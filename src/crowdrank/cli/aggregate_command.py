"""The command `crowdrank aggregate`: estimate a consensus from judgments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from crowdrank._estimator import require_integer
from crowdrank._files import locked
from crowdrank._options import option
from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import (
    print_cells,
    print_json,
    print_line,
    print_note,
    print_table,
    print_unjudged_gold,
)
from crowdrank.cli.from_settings import CommandLineOptions, FieldsOf
from crowdrank.cli.options import read_folder, require_unset
from crowdrank.consensus import METHODS
from crowdrank.consensus.families import effective_assessors
from crowdrank.errors import Fix, Location, Message, UsageError
from crowdrank.readers.read_options import GoldReadOptions, PreferenceReadOptions, ReadOptions

if TYPE_CHECKING:
    from crowdrank.consensus.model import Aggregator
    from crowdrank.judgments.preferences import Preferences
    from crowdrank.judgments.table import Judgments, ReadReport
    from crowdrank.on_disk.sharded import ShardedJudgments

SHOWN_COLUMNS = ["query", "document", "relevance", "sd", "lower", "upper", "grade", "judgments"]
"""Columns of the consensus table that the terminal shows."""


@dataclass(frozen=True)
class AggregateOptions(o.EngineOptions):
    """Options for the engine that fits a model, and for folders of intermediate results."""

    checkpoint: Path | None = option(None, "Folder for the state of a fit; the same command resumes from it.")
    work: Path | None = option(None, "New folder for the shards of a folder of judgments.", show_default="temporary")


@dataclass(frozen=True)
class UpdateOptions:
    """Options for updating a saved model with new judgments."""

    update: Path | None = option(
        None,
        "Saved model to add the judgments to, instead of fitting a new one. The updated model replaces it, or is "
        "written to --save.",
    )
    iterations: int | None = option(
        None,
        "Number of iterations after the judgments are added; 0 keeps the parameters of assessors.",
        show_default="10",
    )

    def __post_init__(self) -> None:
        if self.iterations is not None:
            require_integer("iterations", self.iterations, 0)


@dataclass(frozen=True)
class Outputs:
    """Options for the files and folders that `aggregate` writes."""

    output: Path | None = option(
        None,
        "File for the consensus: .csv, .tsv, .parquet, .jsonl or .qrels; for a folder of judgments, a new folder. Its "
        "columns p0, p1, ... are the probabilities of one more careful answer, and true0, true1, ... those of the true "
        "grade, which the scores of Dawid-Skene and similar models rest on.",
        "-o",
    )
    assessors: Path | None = option(None, "File for the table of assessors.")
    posterior: Path | None = option(None, "File for the posterior distribution of each document.")
    save: Path | None = option(None, "Folder for the fitted model.")

    def write(self, model: Aggregator, *, csv_safe: bool) -> None:
        """Write all requested results together, or none if one cannot be written."""
        from crowdrank._files import write_together
        from crowdrank.readers.write import is_qrels

        first = next((path for path in asdict(self).values() if path is not None), None)
        if first is None:
            return
        with write_together(first):
            if is_qrels(self.output) and model.consensus_.features_used:
                print_note(_unrecorded(str(self.output), "features-unrecorded", "that its labels used features"))
            if is_qrels(self.output) and model.gold_ is not None:
                what = "which documents had an expert grade, so that `evaluate` cannot leave them out"
                print_note(_unrecorded(str(self.output), "expert-grades-unrecorded", what))
            posterior = None if self.posterior is None else model.posterior_table()
            tables = model.consensus_.all_documents(), model.consensus_.assessor_table, posterior
            paths = self.output, self.assessors, self.posterior
            o.write_tables(list(zip(paths, tables, strict=True)), csv_safe=csv_safe)
            if self.save is not None:
                model.save(self.save)


@dataclass(frozen=True)
class Inputs:
    """Input files of `aggregate`, and how to read them."""

    files: list[Path]
    preferences: list[Path]
    expert: Path | None
    reading: ReadOptions
    gold_reading: GoldReadOptions
    preference_reading: PreferenceReadOptions

    @property
    def on_disk(self) -> bool:
        """Whether the judgments are a folder of Parquet files, which is processed on disk."""
        from crowdrank.readers.files import is_parquet_folder

        return len(self.files) == 1 and is_parquet_folder(self.files[0])

    @property
    def paths(self) -> list[Path | None]:
        """All files that are read."""
        return o.input_files(self.files, self.reading, self.expert, *self.preferences)

    def read_preferences(self) -> Preferences | None:
        """Read the preferences, if there are any."""
        if not self.preferences:
            return None
        return o.read_preference_files(self.preferences, self.preference_reading, self.reading, alone=not self.files)


def aggregate(
    model_options: o.Model,
    typed_options: Annotated[CommandLineOptions, FieldsOf(o.ModelOptions, o.MODEL)],
    outputs: Annotated[Outputs, FieldsOf(Outputs, o.OUTPUT)],
    judgments: o.MaybeJudgmentFilesOrFolder = None,
    preferences: o.PreferenceFiles = None,
    expert: o.MaybeGoldFile = None,
    *,
    calibrate: o.Calibrate = True,
    prior: o.Prior,
    updating: Annotated[UpdateOptions, FieldsOf(UpdateOptions, "Updating a saved model")],
    computation: Annotated[AggregateOptions, FieldsOf(AggregateOptions, o.COMPUTATION)],
    reading: o.Reading,
    gold_reading: o.MappedGoldReading,
    preference_reading: o.PreferenceReading,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Estimate the relevance of documents and the reliability of assessors.

    Examples:
        crowdrank aggregate labels.csv -o consensus.csv --save model
        crowdrank aggregate labels.csv --grades 0-4 -s n_iter=200 --assessors assessors.csv
        crowdrank aggregate monday.csv tuesday.csv --expert experts.qrels -o consensus.parquet
        crowdrank aggregate labels.csv --features features.csv -o consensus.csv
        crowdrank aggregate labels.csv --preferences preferences.csv -o consensus.csv
        crowdrank aggregate --update model new-labels.csv -o consensus.csv
    """
    files = judgments or [], preferences or []
    inputs = Inputs(*files, expert, reading, gold_reading, preference_reading)
    computation.set_arrow_threads()
    if updating.update is not None:
        fixed = {**typed_options, "expert": expert, "checkpoint": computation.checkpoint, "work": computation.work}
        fixed |= {"features": prior.features or None, "signal": prior.signal}
        _check_update_options(inputs, fixed)
        outputs = outputs if outputs.save is not None else replace(outputs, save=updating.update)
        if not updating.update.parent.is_dir():  # a lock needs the folder
            from crowdrank.consensus.model import Aggregator

            Aggregator.load(updating.update)  # raises an error
        with locked(updating.update):  # from reading to writing, so that no concurrent update is lost
            model, summary = _update_model(updating, inputs, outputs, computation)
            summary |= _calibrate(model, calibrate)
            outputs.write(model, csv_safe=csv_safe)
    else:
        if updating.iterations is not None:
            fix = Fix("name the model with {}", "update")
            raise UsageError("is for the update of a saved model", parameter="iterations", fix=fix)
        model = model_options.build()
        o.require_preference_options(judgments, preferences, model)
        report = _fit_model(model, inputs, prior, outputs, computation)
        summary = {**_summary(model_options.method, model, report, outputs), **_calibrate(model, calibrate)}
        (replace(outputs, output=None) if inputs.on_disk else outputs).write(model, csv_safe=csv_safe)
    _print_result(summary, model, json)


def _fit_model(
    model: Aggregator, inputs: Inputs, prior: o.PriorOptions, outputs: Outputs, computation: AggregateOptions
) -> ReadReport:
    """Check options, read the inputs and fit the model; return the report on the judgments."""
    from crowdrank._folders import check_output_folder
    from crowdrank.consensus.saved_models import CHECKPOINT
    from crowdrank.readers.write import check_qrels, is_qrels

    if computation.checkpoint is not None:
        check_output_folder(computation.checkpoint, CHECKPOINT)
    if inputs.on_disk:
        _check_folder_options(inputs, outputs, prior)
    else:
        _check_file_options(inputs, outputs, computation.work, prior)
    has_files = bool(inputs.files) and not inputs.on_disk
    preferences = inputs.read_preferences()
    table: Any = o.read_judgment_files(inputs.files, inputs.reading, preferences) if has_files else None
    if has_files and is_qrels(outputs.output):
        check_qrels(table)
    grades = o.read_maybe_gold_file(inputs.expert, inputs.gold_reading, table)
    features = prior.read(inputs.files, inputs.reading)
    fit_options: dict[str, Any] = {"gold": grades, "features": features, "checkpoint": computation.checkpoint}
    if preferences is not None:
        fit_options["preferences"] = preferences
    with computation.open() as engine:
        if inputs.on_disk:
            table = read_folder(inputs.files[0], computation.work, engine, inputs.reading)
            o.print_judgment_report(table, preferences, inputs.reading, inputs.files)
            fit_options["output"] = outputs.output
        model.fit(table, engine=engine, progress=True, **fit_options)
    return model.judgments_.report


def _check_update_options(inputs: Inputs, fixed_options: dict[str, Any]) -> None:
    """Raise UsageError if options do not apply to the update of a saved model."""
    for name, value in fixed_options.items():
        if value is not None:
            fix = Fix("leave it out, or fit a new model without {}", "update")
            raise UsageError("cannot be used when a saved model is updated", parameter=name, fix=fix)
    if inputs.on_disk:
        problem = f"A saved model is updated in memory, and {inputs.files[0]} is a folder of Parquet files"
        raise UsageError(problem, fix="name the files")


def _update_model(
    updating: UpdateOptions, inputs: Inputs, outputs: Outputs, computation: AggregateOptions
) -> tuple[Aggregator, dict[str, Any]]:
    """Add judgments to a saved model; return the model and a summary."""
    from crowdrank.consensus.fit_data import scale_options
    from crowdrank.consensus.model import ITERATIONS_AFTER_ADD, Aggregator
    from crowdrank.readers.write import check_qrels, is_qrels

    assert updating.update is not None
    model: Aggregator = Aggregator.load(updating.update)
    o.require_preference_options(inputs.files, inputs.preferences, model)
    n_before = len(model.judgments_)
    _check_file_options(inputs, outputs)
    scale = scale_options(model.judgments_) if n_before else {}
    unset = {name: value for name, value in scale.items() if getattr(inputs.reading, name) is None}
    new = inputs.read_preferences()
    table = o.read_judgment_files(inputs.files, replace(inputs.reading, **unset), new) if inputs.files else None
    n_compared = 0 if model.preferences_ is None else len(model.preferences_)
    n_iter = ITERATIONS_AFTER_ADD if updating.iterations is None else updating.iterations
    with computation.open() as engine:
        model.add(table, preferences=new, n_iter=n_iter, engine=engine, progress=True)
    if is_qrels(outputs.output):
        check_qrels(model.judgments_)
    method = next(name for name, path in METHODS.items() if path.endswith(f".{type(model).__name__}"))
    added, replaced = len(model.judgments_) - n_before, 0
    if table is not None:
        replaced = len(table) - added
    summary = _summary(method, model, model.judgments_.report if table is None else table.report, outputs)
    if new is not None:
        assert model.preferences_ is not None
        more = len(model.preferences_) - n_compared
        summary["preferences"] |= {"added": more, "replaced": len(new) - more}
    return model, {**summary, "added": added, "replaced": replaced}


def _check_folder_options(inputs: Inputs, outputs: Outputs, prior: o.PriorOptions) -> None:
    """Raise an error if options are invalid for a folder of judgments, or its consensus cannot be written."""
    from crowdrank._folders import check_output_folder
    from crowdrank.consensus.assembly import CONSENSUS_FOLDER
    from crowdrank.readers.files import is_within, to_address
    from crowdrank.readers.write import check_outputs

    folder, reading = inputs.files[0], inputs.reading
    require_unset(
        posterior=outputs.posterior,
        save=outputs.save,
        format=reading.format,
        separator=reading.separator,
        assessor_name=reading.assessor_name,
        assessor_kind=reading.assessor_kind,
    )
    if prior.signal is not None and not prior.features:
        fix = Fix("name the file of the column with {}", "features")
        raise UsageError("cannot be a column of judgments on disk", parameter="signal", fix=fix)
    if outputs.output is None:
        raise UsageError(f"{folder} is a folder", fix=Fix("name a folder for its consensus too, with {}", "output"))
    if is_within(outputs.output, to_address(folder)):
        raise UsageError(f"is {outputs.output}, which is read", parameter="output", fix="choose another name")
    check_outputs({"assessors": outputs.assessors}, [inputs.expert, *prior.features])
    check_output_folder(outputs.output, CONSENSUS_FOLDER)


def _check_file_options(
    inputs: Inputs, outputs: Outputs, work_folder: Path | None = None, prior: o.PriorOptions | None = None
) -> None:
    """Raise an error if options are invalid for files of judgments, or their consensus cannot be written."""
    from crowdrank._folders import check_output_folder
    from crowdrank.consensus.model import MODEL
    from crowdrank.readers.write import check_outputs

    if work_folder is not None:
        problem = f"is for a folder of Parquet files, and {[*inputs.files, *inputs.preferences][0]} is not one"
        raise UsageError(problem, parameter="work", fix="leave it out")
    tables = {"output": outputs.output, "assessors": outputs.assessors, "posterior": outputs.posterior}
    read_files = [*inputs.paths, *(prior.features if prior else ())]
    check_outputs(tables, read_files, qrels_parameters=("output",) if inputs.files else ())
    if outputs.save is not None:
        check_output_folder(outputs.save, MODEL)


def _print_result(summary: dict[str, Any], model: Aggregator, as_json: bool) -> None:
    print_unjudged_gold(summary["gold_unjudged"])
    o.print_copies(model.judgments_)
    if as_json:
        print_json(summary)
        return
    first = next(model.consensus_.document_parts())
    shown = [name for name in (*SHOWN_COLUMNS, "preferences") if name in first.column_names]
    print_table(first.select(shown), total_rows=model.consensus_.n_documents)
    if "choice" in summary:
        _print_model_choice(summary)
        print_line(str(model.reason_))  # type: ignore[attr-defined]
    if "calibration" in summary:
        print_line(f"{summary['calibration']['text']}.")
    print_line(_summary_sentence(summary, model.judgments_, model.preferences_))


def _summary(method: str, model: Aggregator, report: ReadReport, outputs: Outputs) -> dict[str, Any]:
    judgments: Judgments | ShardedJudgments = model.judgments_
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
        "features_used": list(model.consensus_.features_used),
        "predicted": _n_predicted(model),
        "gold_unjudged": _n_unused_gold(model),
        **_family_sizes(model),
        **_model_choice(model),
        **preference_counts(model),
        "output": outputs.output,
        "assessors_output": outputs.assessors,
        "posterior": outputs.posterior,
        "saved": outputs.save,
    }


def _calibrate(model: Aggregator, wanted: bool) -> dict[str, Any]:
    """Calibrate the grade probabilities if there are expert grades; return the summary of the calibration."""
    if model.gold_ is None or not wanted or not len(model.judgments_):  # preferences alone
        return {}
    from crowdrank.consensus.calibration import calibrate_model

    calibration = calibrate_model(model)
    return {"calibration": {**calibration.to_dict(), "text": str(calibration)}}


def _n_unused_gold(model: Aggregator) -> int:
    """Return the number of expert grades of documents without judgments and preferences."""
    if model.gold_ is None:
        return 0
    from crowdrank.judgments.columns import EXPERT_GRADED

    if model.preferences_ is None:
        return model.gold_.n_unjudged(model.judgments_)
    return len(model.gold_) - int(model.consensus_.numbers(EXPERT_GRADED).sum())


def _n_predicted(model: Aggregator) -> int:
    """Return the number of documents without judgments that have a prediction."""
    consensus = model.consensus_
    if not consensus.features_used:
        return 0
    return sum(int((part["judgments"].to_numpy() == 0).sum()) for part in consensus.document_parts())


def _unrecorded(path: str, kind: str, what: str) -> Message:
    fix = Fix("write a .csv or .parquet file too")
    return Message(f"a qrels file cannot record {what}", kind, "warning", Location(path), (fix,))


def preference_counts(model: Aggregator) -> dict[str, Any]:
    """Return the number of preferences, and of rows that were not used; {} without preferences."""
    table = model.preferences_
    if table is None:
        return {}
    counts = {"used": len(table), "rows": table.report.rows, "skipped": dict(table.report.skipped)}
    counts |= {"repeats": table.report.repeats, "excluded": table.report.excluded}
    return {"preferences": counts | {"contradictions": table.contradictions}}


def describe_unused(counts: Mapping[str, Any]) -> list[str]:
    """Return texts about the preferences that are not used or contradict each other, from the counts of them."""
    skipped = [f"{counted(n, 'preference')} skipped ({reason})" for reason, n in counts["skipped"].items()]
    nouns = {"repeats": "repeated preference", "excluded": "excluded preference", "contradictions": "contradiction"}
    return skipped + [counted(counts[name], noun) for name, noun in nouns.items() if counts[name]]


def _model_choice(model: Aggregator) -> dict[str, Any]:
    """Return the models that `auto` compared, their scores and the reason for its choice; {} for other models."""
    if not hasattr(model, "choice_table_"):
        return {}
    return {"choice": model.choice_table_.to_pylist(), "reason": asdict(model.reason_)}  # type: ignore[attr-defined]


def _print_model_choice(summary: dict[str, Any]) -> None:
    names = ["method", "ranking", "grades", "chosen_for", "note"]
    cells = [
        [row["method"], *(_format_score(row[name]) for name in ("ranking", "grades")), row["chosen_for"], row["note"]]
        for row in summary["choice"]
    ]
    print_cells(names, cells, [True, False, False, True, True], "Log score of held-out judgments")


def _format_score(score: float | None) -> str:
    return "" if score is None else f"{score:.4f}"


def _family_sizes(model: Aggregator) -> dict[str, Any]:
    """Return the sizes of the families that the model found, if it searched, and how many assessors all count as."""
    found = getattr(model.assessor_estimator_, "found_families_", None)
    sizes: dict[str, Any] = {}
    if found is not None:
        sizes = {"families": [len(group) for group in found.groups], "found_families": found.to_dict()}
    n_eff = effective_assessors(model)
    return sizes | ({} if n_eff is None else {"n_eff": n_eff})


def _added_text(counts: dict[str, Any], noun: str) -> str:
    replaced = f", {counts['replaced']:,} replaced" if counts["replaced"] else ""
    return f"{counted(counts['added'], noun)} added{replaced}"


def _summary_sentence(
    summary: dict[str, Any], judgments: Judgments | ShardedJudgments, preferences: Preferences | None
) -> str:
    tables = [table for table in (judgments, preferences) if table is not None and len(table)]
    described = " and ".join(repr(table).strip("<>").partition(": ")[2] for table in tables)
    parts = [f"{summary['method']} on {described}"]
    if "preferences" in summary:
        counts = summary["preferences"]
        parts += describe_unused(counts)
        parts += [_added_text(counts, "preference")] if "added" in counts else []
    if "added" in summary:
        parts.append(_added_text(summary, "judgment"))
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
        found = summary["found_families"]
        limit = f"error correlations from {found['detectable']:.2f} on can be found"
        what = f"{f'families of {sizes} assessors' if sizes else 'no families'} found ({limit})"
        parts.append("families untestable" if found["untestable"] else what)
    if "n_eff" in summary:
        parts.append(f"{counted(summary['assessors'], 'assessor')} count as {summary['n_eff']:.1f}")
    if summary["features_used"]:
        parts.append(f"prior of relevance from {counted(len(summary['features_used']), 'feature')}")
    if summary["predicted"]:
        parts.append(f"{counted(summary['predicted'], 'document')} without judgments predicted")
    if summary["iterations"] > 1 and "choice" not in summary:
        parts.append(f"{'converged' if summary['converged'] else 'stopped'} after {summary['iterations']} iterations")
    names = ("assessors_output", "posterior", "saved", "output")
    written = [str(summary[name]) for name in names if summary[name] is not None]
    return "; ".join([*parts, *([f"written to {', '.join(written)}"] if written else [])]) + "."
