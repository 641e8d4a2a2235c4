"""The commands `train`, `rank`, `distill` and `export`: train a ranker, and use a saved one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crowdrank._options import option
from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_cells, print_columns, print_json, print_line, print_message, print_table, render
from crowdrank.cli.from_settings import FieldsOf, complete_from
from crowdrank.cli.options import parse_settings
from crowdrank.errors import Fix, Message, UsageError, parameter_prefix
from crowdrank.rankers import RANKERS, InstanceKind, get_ranker
from crowdrank.rankers.export import EXPORTERS
from crowdrank.readers.read_options import FeatureReadOptions, Format, ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from crowdrank.consensus.model import Aggregator
    from crowdrank.judgments.preferences import Preferences
    from crowdrank.rankers.ranker import Ranker
    from crowdrank.rankers.training_labels import Instances
    from crowdrank.readers.features import Features

CERTAINTY_WEIGHTS = "certainty"
FEW_ITERATIONS = 5
"""Number of iterations up to which a note tells that validation stopped the training early."""
MAX_PRINTED_FEATURES = 10
"""Maximum number of features that are printed."""


@dataclass(frozen=True)
class RankerOptions:
    """Options for a ranker and its parameters."""

    ranker: str = option("lambdamart", f"Ranker: {', '.join(RANKERS)}.", "-r", autocompletion=complete_from(RANKERS))
    setting: list[str] = o.setting_option("ranker", "-s n_estimators=300")
    random_state: int = option(0, "Random seed of the ranker and of the split for validation.")

    def build(self, n_jobs: int | None) -> Ranker:
        """Return the unfitted ranker."""
        ranker = get_ranker(self.ranker).set_params(random_state=self.random_state)
        if "n_jobs" in ranker.get_params(deep=False):
            ranker.set_params(n_jobs=n_jobs)
        settings = parse_settings(self.setting, ranker)
        if settings.get("estimator") in RANKERS:  # a ranker inside of a ranker, such as the regression of rd
            settings["estimator"] = get_ranker(settings["estimator"])
        return ranker.set_params(**settings)


@dataclass(frozen=True)
class LabelOptions:
    """Options for the labels to train on, and for reading them."""

    labels: Path | None = option(
        None,
        "Consensus that `aggregate` wrote, expert grades, or a table of query, document and relevance.",
        show_default="the grades in the feature files",
    )
    consensus: Path | None = option(
        None, "Model that `aggregate --save` wrote, for gda-pairwise-mart; without --labels, its consensus is used."
    )
    target: Literal["probabilities", "expected-grade", "grade", "relevance"] = option(
        "probabilities", "Value of a consensus to train on; probabilities gives expected gains."
    )
    weights: str | None = option(None, "Table of query, document and weight; or `certainty`, that of a consensus.")
    labels_format: Format | None = option(None, "Format of the labels.")
    labels_columns: str | None = option(None, "Column of each role in the labels.")
    labels_grades: str | None = option(None, "Scale of expert grades, such as 0-4 or Bad,Fair,Good.")
    missing: Literal["skip", "error"] = option("skip", "Labeled documents without features: skip them, or stop.")

    @property
    def reading(self) -> dict[str, Any]:
        """Keyword arguments of `read_labels` for a file of labels."""
        return {"format": self.labels_format, "columns": self.labels_columns, "grades": self.labels_grades}


@dataclass(frozen=True)
class JudgmentOptions:
    """Options for judgments to train on instead of labels."""

    judgments: list[Path] = option([], "Judgments to train on directly, instead of labels. Repeatable.")
    instances: InstanceKind = option("overlap", "Training instances that judgments become.")
    k: int | None = option(None, "Maximum number of labels per document.", "--k")
    good: float = option(2.0, "Lowest grade of a good label, for weighted instances.")
    good_weight: float = option(3.0, "Weight of a good label, for weighted instances.")

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of `Instances.from_judgments`."""
        return {"instances": self.instances, "k": self.k, "good": self.good, "good_weight": self.good_weight}


TRAIN_PREFERENCES_HELP = (
    "Preferences between two documents: LambdaMART is trained on the probability of each order, by GDA from these "
    "preferences and from --judgments, if there are any. Repeatable."
)
JUDGMENT_READING = ("format", "columns", "separator", "grades", "unjudgeable", "repeats", "assessor_name")
"""Options for reading judgments that `train` offers."""


@dataclass(frozen=True)
class ValidationOptions:
    """Options for the validation data that decide when training stops."""

    validation: str | None = option(
        None, "Share of the queries, such as 0.2, or a file of labels or of LETOR, to stop by."
    )
    validation_features: list[Path] = option(
        [], "Features (and grades) of the validation queries, if they are in other files. Repeatable."
    )


@dataclass(frozen=True)
class TrainingEngine(o.EngineOptions):
    """Options for the engine that trains a ranker."""

    n_jobs: int | None = option(None, "Number of threads, or of processes of dask.", show_default="by data size")


def train(
    features: o.FeatureFiles,
    output: Annotated[Path, o.output_option("Folder for the ranker.")],
    ranker: Annotated[RankerOptions, FieldsOf(RankerOptions, "Ranker")],
    labels: Annotated[LabelOptions, FieldsOf(LabelOptions, "Labels")],
    judgments: Annotated[JudgmentOptions, FieldsOf(JudgmentOptions, "Judgments")],
    judgment_reading: Annotated[
        ReadOptions, FieldsOf(ReadOptions, "Judgments", prefix="judgments_", only=JUDGMENT_READING)
    ],
    preference_reading: o.PreferenceReading,
    validation: Annotated[ValidationOptions, FieldsOf(ValidationOptions, "Validation")],
    computation: Annotated[TrainingEngine, FieldsOf(TrainingEngine, o.COMPUTATION)],
    reading: o.FeatureReading,
    size_limit: o.SizeLimit,
    preferences: Annotated[list[Path] | None, o.path_option(TRAIN_PREFERENCES_HELP, metavar="<path>")] = None,
    json: o.AsJson = False,
) -> None:
    """Train a ranker on features and labels.

    Examples:
        crowdrank train -f features.letor --labels consensus.parquet -o ranker
        crowdrank train -f features.letor --labels consensus.parquet -s pair_targets=posterior -o ranker
        crowdrank train -f features.letor --judgments labels.csv --instances per-judge-lists -o ranker
        crowdrank train -f features.letor --preferences preferences.csv -o ranker
        crowdrank train -f train.letor -r gls -s mu=auto -s tree_features=auto --validation 0.2 -o ranker
    """
    from crowdrank._folders import check_output_folder
    from crowdrank.consensus.model import Aggregator
    from crowdrank.rankers.rank_files import join_features
    from crowdrank.rankers.ranker import RANKER

    model = ranker.build(computation.n_jobs)
    consensus = None if labels.consensus is None else Aggregator.load(labels.consensus)
    if "model" in model.get_params(deep=False):
        if consensus is None:
            problem = f"{ranker.ranker} needs a model of the judgments"
            raise UsageError(problem, fix=Fix("name it with {}", "consensus"))
        model.set_params(model=consensus)
    check_output_folder(output, RANKER)
    table = join_features(features, reading.format, reading.columns)
    print_columns(table.columns, features)
    limited = replace(judgment_reading, max_bytes=size_limit.max_bytes)
    if preferences:
        _require_pair_ranker(ranker.ranker, labels, judgments)
        read = o.read_preference_files(preferences, preference_reading, limited, alone=not judgments.judgments)
        rows = _join_posterior(table, read, judgments.judgments, limited, labels.missing)
    elif judgments.judgments:
        _require_no_labels(labels, "judgments")
        rows = _join_judgments(table, judgments, limited, labels.missing)
    else:
        rows = _join_labels(table, consensus if labels.labels is None else labels.labels, labels, model)
    rows, held_out = _split_for_validation(rows, table, labels, validation, reading, ranker.random_state)
    _require_gains(model, rows, held_out)
    _fit(model, rows, held_out, computation)
    model.save(output)
    summary = _summary(ranker.ranker, model, rows, held_out, output)
    if computation.n_jobs is not None and "n_jobs" not in model.get_params(deep=False):
        note = Message("has no effect on this ranker", severity="note", parameter="n_jobs")
        summary["notes"].append(render(note))
    if json:
        print_json(summary)
        return
    _print_importances(model)
    for note in summary["notes"]:
        print_line(note)
    print_line(_summary_sentence(summary))


def _split_for_validation(
    instances: Instances,
    features: Features,
    labels: LabelOptions,
    validation: ValidationOptions,
    reading: FeatureReadOptions,
    random_state: int,
) -> tuple[Instances, Instances | None]:
    """Return the instances for training and those for validation, or None without validation."""
    from crowdrank.rankers.rank_files import join_features, pad_letor

    text, files = validation.validation, validation.validation_features
    if text is not None and not files and _is_letor(text):
        files, text = [Path(text)], None  # it has features and grades
    if text is not None and (share := _parse_share(text)) is not None:
        return instances.split(share, random_state)
    if text is None and not files:
        return instances, None
    table = pad_letor(join_features(files, reading.format, reading.columns), features.names) if files else features
    unweighted = replace(labels, weights=None)
    held_out = _join_labels(table, None if text is None else Path(text), unweighted)
    _require_distinct_queries(instances, held_out)
    return instances, held_out


def _is_letor(path: str) -> bool:
    """Return whether a path is a file in LETOR's format."""
    from crowdrank.readers.inputs import open_input
    from crowdrank.readers.letor import LetorSource

    return Path(path).is_file() and isinstance(open_input(path).sources[0], LetorSource)


def _fit(model: Ranker, instances: Instances, held_out: Instances | None, computation: o.EngineOptions) -> None:
    arguments = {**instances.arguments, "eval_set": None if held_out is None else held_out.eval_set, "progress": True}
    if computation.engine == "local":
        model.fit(**arguments)
        return
    model.require_engines()  # before a cluster is started in vain
    with computation.open() as engine:
        model.fit(**arguments, engine=engine)


def _join_labels(
    features: Features, label_source: Aggregator | Path | None, options: LabelOptions, ranker: Ranker | None = None
) -> Instances:
    """Join features with labels from a model or file; without one, with the grades in the feature files.

    Warn if the labels were learned for another ranker than the one that is to be trained.
    """
    from crowdrank.rankers.training_labels import Instances, Labels, read_labels, read_weights

    if label_source is not None:
        with parameter_prefix("labels_"):
            labels = read_labels(label_source, **(options.reading if isinstance(label_source, Path) else {}))
        if ranker is not None:
            labels.warn_other_ranker(ranker)
    elif features.grade is not None:
        labels = Labels(features.query, features.document, features.grade, None, "the features")
    else:
        raise UsageError("The features have no grades", fix=Fix("name a file of labels with {}", "labels"))
    weights = options.weights if options.weights in (None, CERTAINTY_WEIGHTS) else read_weights(options.weights, labels)
    return Instances.from_labels(labels, features, target=options.target, weights=weights, missing=options.missing)


def _require_no_labels(labels: LabelOptions, source: str) -> None:
    """Raise UsageError if labels or their weights are given besides judgments or preferences."""
    for parameter in ("labels", "consensus", "weights"):
        if getattr(labels, parameter) is not None:
            fix = Fix("leave out {}", parameter)
            raise UsageError("are used instead of labels", parameter=source, kind=f"labels-and-{source}", fix=fix)


def _require_pair_ranker(name: str, labels: LabelOptions, judgments: JudgmentOptions) -> None:
    """Raise UsageError if a ranker or an option cannot be used with preferences."""
    if name != "lambdamart":
        fix = (Fix("train {}", "ranker", "lambdamart"), Fix("train on the consensus of `aggregate` with {}", "labels"))
        problem = f"train LambdaMART, not {name}"
        raise UsageError(problem, parameter="preferences", kind="no-pair-probabilities", fix=fix)
    _require_no_labels(labels, "preferences")
    if labels.target != LabelOptions().target:
        problem = "cannot be used together with preferences"
        raise UsageError(problem, parameter="target", kind="with-preferences", fix="leave it out")
    for parameter, value in judgments.arguments.items():
        if value != JudgmentOptions().arguments[parameter]:
            problem = "cannot be used together with preferences"
            raise UsageError(problem, parameter=parameter, kind="with-preferences", fix="leave it out")


def _join_posterior(
    features: Features, preferences: Preferences, judgments: list[Path], reading: ReadOptions, missing: str
) -> Instances:
    """Join features with the joint posterior of documents by preferences, and by judgments if there are any."""
    from crowdrank.consensus.gda import GDA
    from crowdrank.rankers.training_labels import Instances

    with parameter_prefix("judgments_"):
        table = o.read_judgment_files(judgments, reading, preferences) if judgments else None
    model = GDA().fit(table, preferences=preferences, progress=True)
    return Instances.from_posterior(model, features, missing=missing)


def _join_judgments(features: Features, options: JudgmentOptions, reading: ReadOptions, missing: str) -> Instances:
    """Join features with judgments, of which a document can have several."""
    from crowdrank.rankers.training_labels import Instances

    with parameter_prefix("judgments_"):
        table = o.read_judgment_files(options.judgments, reading)
    return Instances.from_judgments(table, features, **options.arguments, missing=missing)


def _parse_share(text: str) -> float | None:
    """Parse a share between 0 and 1; return None if the text is not a number."""
    try:
        share = float(text)
    except ValueError:
        return None
    if not 0 < share < 1:
        raise UsageError(f"must be a share between 0 and 1 or a file of labels, not {text}", parameter="validation")
    return share


def _require_distinct_queries(instances: Instances, held_out: Instances) -> None:
    """Raise UsageError if a query is used for both training and validation."""
    from crowdrank.judgments import ids

    shared = int((ids.match(instances.features.query.unique(), held_out.features.query.unique()) >= 0).sum())
    if shared:
        verb = "is" if shared == 1 else "are"
        problem = f"{counted(shared, 'query')} of the validation labels {verb} also trained on"
        raise UsageError(problem, fix="remove them from one of the two")


def _require_gains(model: Ranker, instances: Instances, held_out: Instances | None) -> None:
    """Raise an error that names the document if a label has no gain; the error of the ranker names only the row."""
    from crowdrank.errors import shown
    from crowdrank.evaluation.measures import effective_gains
    from crowdrank.rankers.training_data import require_gains

    settings = model.get_params(deep=False)
    for part, measure in ((instances if model._needs_gains() else None, "measure"), (held_out, "validate_by")):
        if part is not None and part.y.ndim == 1:
            gains = effective_gains(settings.get(measure), settings.get("gains", "exponential"))
            ids = part.features.document.to_pylist(), part.features.query.to_pylist()

            def name(row: int, ids: Any = ids) -> str:
                return f"document {shown(ids[0][row])} of query {shown(ids[1][row])}"

            require_gains(part.y, gains, name)


def _summary(
    ranker_name: str, model: Ranker, instances: Instances, held_out: Instances | None, output_folder: Path
) -> dict[str, Any]:
    order = sorted(
        zip(model.feature_importances_.tolist(), model.feature_names_in_, strict=True), key=lambda pair: -pair[0]
    )
    validation_queries = model.validation_queries_
    validation_notes = [o.validation_queries_text(validation_queries)] if len(validation_queries) else []
    return {
        "ranker": ranker_name,
        "rows": len(instances),
        "queries": len(instances.features.query.unique()),
        "features": len(model.feature_names_in_),
        "validation_queries": 0 if held_out is None else len(held_out.features.query.unique()),
        "validation_query_ids": list(validation_queries),
        "validated_by": getattr(model, "validate_by", "nDCG@10"),
        "validation": max(model.history_) if model.history_ else None,
        "iterations": getattr(model, "best_iteration_", None),
        "settings": {key: str(value) for key, value in model.get_params(deep=False).items()},
        "importances": {feature: share for share, feature in order},
        "notes": [*instances.counts.notes(), *validation_notes, *_early_stop_notes(model)],
        "output": output_folder,
    }


def _early_stop_notes(model: Ranker) -> list[str]:
    """Return a note if validation ended the training in the first iterations."""
    best, most = getattr(model, "best_iteration_", None), getattr(model, "n_estimators", 0)
    if not model.history_ or best is None or best > min(FEW_ITERATIONS, most // 10) or max(model.history_) > 0.999:
        return []
    problem = f"the ranker has {counted(best, 'iteration')} of {most}: more were no better on the validation queries"
    fixes = (Fix("check that their labels are like those for training"), Fix("leave out {}", "validation"))
    return [f"Note: {render(Message(problem, 'early-stop', 'note', fixes=fixes))}"]


def _summary_sentence(summary: dict[str, Any]) -> str:
    rows, queries = counted(summary["rows"], "row"), counted(summary["queries"], "query")
    parts = [f"{summary['ranker']} on {rows} in {queries}, {counted(summary['features'], 'feature')}"]
    if summary["iterations"]:
        parts.append(counted(summary["iterations"], "iteration"))
    if summary["validation"] is not None:
        held_out = counted(summary["validation_queries"], "validation query")
        parts.append(f"{summary['validated_by']} {summary['validation']:.4f} on {held_out}")
    return "; ".join([*parts, f"written to {summary['output']}"]) + "."


def _print_importances(model: Ranker) -> None:
    order = model.feature_importances_.argsort(kind="stable")[::-1][:MAX_PRINTED_FEATURES]
    cells = [[model.feature_names_in_[place], f"{model.feature_importances_[place]:.3f}"] for place in order]
    print_cells(["feature", "importance"], cells)
    if (more := len(model.feature_names_in_) - MAX_PRINTED_FEATURES) > 0:
        print_line(f"... and {counted(more, 'more feature')}")


MAX_CHECKED_FEATURES = 50
"""Maximum number of features in the table of `--check`."""


def rank(
    model: Annotated[Path, o.path_option("Folder of a ranker that `train` wrote, or of a remapper.", "--model", "-m")],
    features: o.FeatureFiles,
    output: Annotated[
        Path | None, o.output_option("File for the ranking: .trec, .run, .csv, .tsv, .parquet or .jsonl.")
    ] = None,
    tag: Annotated[
        str, typer.Option(help="Name of the ranking in a TREC run.", rich_help_panel=o.OUTPUT)
    ] = "crowdrank",
    check: Annotated[
        bool, typer.Option("--check", help="Compare the features with those of the training.", rich_help_panel=o.OUTPUT)
    ] = False,
    *,
    reading: o.FeatureReading,
    size_limit: o.SizeLimit,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Score and sort the documents of each query with a trained ranker.

    Files are read in parts, so that they can be larger than the memory if the rows of each query are adjacent.

    Examples:
        crowdrank rank -m ranker -f features.letor -o run.trec
        crowdrank rank -m remapper -f features.letor -o run.trec
        crowdrank rank -m ranker -f today.parquet -o run.parquet --check
    """
    from crowdrank.rankers.rank_files import FeatureBatches, check_run, rank_files
    from crowdrank.rankers.ranker import Ranker
    from crowdrank.readers.write import check_distinct_paths

    if output is not None:
        check_run(output)
        check_distinct_paths({"output": output}, features)
    ranker = Ranker.load(model)
    batches = FeatureBatches(features, ranker.features_, format=reading.format, columns=reading.columns)
    print_columns(batches.columns, features)
    ranked = rank_files(ranker, batches, output, tag=tag, csv_safe=csv_safe, check=check)
    for message in ranked.messages:
        print_message(message)
    name, written = type(ranker).__name__, None if output is None else str(output)
    if json:
        summary = {"ranker": name, "documents": ranked.n_documents, "queries": ranked.n_queries, "output": written}
        summary["messages"] = [message.to_dict() for message in ranked.messages]
        print_json({**summary, "check": ranked.check.to_pylist()} if ranked.check is not None else summary)
        return
    print_table(ranked.first_rows, total_rows=ranked.n_documents)
    if ranked.check is not None:
        _print_check(ranked.check)
    counts = f"{counted(ranked.n_documents, 'document')} in {counted(ranked.n_queries, 'query')}"
    print_line(f"{name} on {counts}{'' if written is None else f'; written to {written}'}.")


def _print_check(check: pa.Table) -> None:
    if len(check):
        print_table(check, "Features that differ from those of the training", max_rows=MAX_CHECKED_FEATURES)
    else:
        print_line("No feature differs from those of the training.")


@dataclass(frozen=True)
class ForestOptions:
    """Options for the forest."""

    n_trees: int = option(500, "Number of trees.", "--trees")
    random_state: int = option(0, "Random seed.")
    n_jobs: int | None = option(None, "Number of threads.", show_default="one per core for large files")


def distill(
    model: Annotated[
        Path, typer.Argument(help="Folder of a ranker, such as an ensemble, or of a remapper.", metavar="<model>")
    ],
    features: o.FeatureFiles,
    output: Annotated[Path, o.output_option("Folder for the forest.")],
    forest_options: Annotated[ForestOptions, FieldsOf(ForestOptions, "Forest")],
    reading: o.FeatureReading,
    size_limit: o.SizeLimit,
    json: o.AsJson = False,
) -> None:
    """Fit one forest that ranks documents as another ranker does, for search engines.

    No labels are needed: any documents with features serve. `crowdrank run` does this for the ranker that it selects.

    Examples:
        crowdrank distill ranker -f features.letor -o forest
    """
    from crowdrank._folders import check_output_folder
    from crowdrank.rankers.distillation import distill as distill_ranker
    from crowdrank.rankers.distillation import rank_correlation
    from crowdrank.rankers.rank_files import join_features, pad_letor
    from crowdrank.rankers.ranker import RANKER, Ranker

    check_output_folder(output, RANKER)
    ranker = Ranker.load(model)
    table = join_features(features, reading.format, reading.columns)
    print_columns(table.columns, features)
    table = pad_letor(table, ranker.features_)
    forest = distill_ranker(ranker, table, **vars(forest_options), progress=True)
    correlation = rank_correlation(ranker.predict(table), forest.predict(table), table.query)
    forest.save(output)
    if json:
        print_json({"trees": forest.best_iteration_, "rank_correlation": correlation, "output": str(output)})
        return
    print_line(
        f"One forest of {counted(forest.best_iteration_, 'tree')} imitates {type(ranker).__name__} (rank correlation "
        f"{correlation:.3f} on these documents); written to {output}."
    )


def export(
    model: Annotated[
        Path,
        typer.Argument(help="Folder of a ranker that `train` or `run` wrote, or of a remapper.", show_default=False),
    ],
    to: Annotated[
        str,
        typer.Option(
            help=f"Search engine: {', '.join(EXPORTERS)}.",
            metavar="ENGINE",
            autocompletion=complete_from(EXPORTERS),
            show_default=False,
        ),
    ],
    output: Annotated[Path, o.output_option("Folder for the files.")],
    name: Annotated[
        str, typer.Option(help="Name of the model in the search engine.", rich_help_panel=o.OUTPUT)
    ] = "crowdrank",
    json: o.AsJson = False,
) -> None:
    """Write a ranker as files for a search engine, with an upload command. Nothing is sent anywhere.

    Examples:
        crowdrank export out/deployable --to elasticsearch-ltr -o export
        crowdrank export ranker --to solr --name products -o export
    """
    from crowdrank.rankers.export import get_exporter
    from crowdrank.rankers.export.exporter import export as write_export
    from crowdrank.rankers.ranker import Ranker

    exporter = get_exporter(to)
    ranker = Ranker.load(model)
    folder = write_export(ranker, to, output, name=name)
    files = sorted(path.name for path in folder.iterdir() if path.is_file())
    kind = type(ranker).__name__
    if json:
        features = list(ranker.features_)
        print_json({"ranker": kind, "to": to, "features": features, "files": files, "output": str(output)})
        return
    print_line(
        f"{kind} on {counted(ranker.n_features_in_, 'feature')} for {exporter.title}; written to {output}. "
        f"{output / 'README.md'} has the next steps."
    )
