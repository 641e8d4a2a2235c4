"""`crowdrank remap`: learn targets and weights of labels from expert grades, and apply them to new labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crowdrank._options import option
from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_cells, print_columns, print_json, print_line, print_table
from crowdrank.cli.from_settings import FieldsOf, add_command, command_group
from crowdrank.cli.options import parse_settings
from crowdrank.errors import parameter_prefix

if TYPE_CHECKING:
    from crowdrank.label_learning.remapper import Remapper

MAX_PRINTED_FEATURES = 10
"""Maximum number of label features that are printed."""


@dataclass(frozen=True)
class RemapperOptions:
    """Options for a remapper and its parameters."""

    remapper: Literal["linear", "boosted"] = option(
        "boosted", "Functions from label features to target and weight: linear (REMAP) or boosted trees (MGBDT).", "-r"
    )
    setting: list[str] = o.setting_option("remapper", "-s mode=T or -s tree_features=0")
    random_state: int = option(0, "Random seed of the split for validation and of the trees.")
    n_jobs: int | None = option(None, "Number of threads for the trees.", show_default="by data size")

    def build(self) -> Remapper:
        """Return the unfitted remapper; raise UsageError if a parameter is invalid."""
        from crowdrank.label_learning.boosted_remapper import BoostedRemapper
        from crowdrank.label_learning.linear_remapper import LinearRemapper

        remapper = BoostedRemapper() if self.remapper == "boosted" else LinearRemapper()
        remapper.set_params(random_state=self.random_state, n_jobs=self.n_jobs)
        remapper.set_params(**parse_settings(self.setting, remapper))
        remapper._check_parameters()
        return remapper


def remap_fit(
    judgments: o.JudgmentFiles,
    features: o.FeatureFiles,
    expert: o.GoldFile,
    output: Annotated[Path, o.output_option("Folder for the remapper.")],
    remapper: Annotated[RemapperOptions, FieldsOf(RemapperOptions, o.MODEL)],
    *,
    reading: o.Reading,
    gold_reading: o.GoldReading,
    features_reading: o.PrefixedFeatureReading,
    json: o.AsJson = False,
) -> None:
    """Learn from expert grades which target and weight a label should have in training.

    The expert-graded documents need features but no judgments. Their queries are divided into folds (-s folds=3):
    each is ranked by what the others steer, and all of them choose the parameters and the number of steps.

    Examples:
        crowdrank remap fit labels.csv -f features.letor --expert experts.qrels -o remapper
        crowdrank remap fit labels.csv -f features.letor --expert experts.qrels -r linear -s mode=T -o remapper
        crowdrank remap fit labels.csv -f features.letor --expert experts.qrels -s tree_features=0 -o remapper
    """
    from crowdrank._folders import check_output_folder
    from crowdrank.rankers.rank_files import join_features
    from crowdrank.rankers.ranker import REMAPPER

    model = remapper.build()
    check_output_folder(output, REMAPPER)
    table = o.read_judgment_files(judgments, reading)
    with parameter_prefix("features_"):
        documents = join_features(features, features_reading.format, features_reading.columns)
    print_columns(documents.columns, features)
    model.fit(table, documents, o.read_gold_file(expert, gold_reading, table.main_scale), progress=True)
    model.save(output)
    summary = _fit_summary(remapper.remapper, model, output)
    if json:
        print_json(summary)
        return
    _print_fit(summary)


def _fit_summary(remapper_name: str, model: Remapper, output: Path) -> dict[str, Any]:
    starts = (step for step in model.history_ if step["iteration"] == 0)
    return {
        "remapper": remapper_name,
        "mode": model.mode,
        "objective": str(model.objective),
        "labels": len(model.targets_),
        "documents": model.label_features_.judgments.n_items,
        "label_features": len(model.feature_names_in_),
        "step": model.best_iteration_,
        "parameters": model.best_params_,
        "tree_measures": model.tree_measures_,
        "validation": model.validation_,
        "validation_at_start": max(step["validation"] for step in starts),
        "validation_query_ids": list(model.validation_queries_),
        "importances": model.importances_.to_dict("records"),
        "output": output,
    }


def _print_fit(summary: dict[str, Any]) -> None:
    if summary["step"] == 0:
        print_line("No step improved the validation measure: targets and weights stay as they were before learning.")
    else:
        rows = summary["importances"][:MAX_PRINTED_FEATURES]
        cells = [[row["feature"], f"{row['target']:.3f}", f"{row['weight']:.3f}"] for row in rows]
        print_cells(["label feature", "target", "weight"], cells)
    if summary["tree_measures"]:
        by_trees = ", ".join(f"{value:.4f} with {count}" for count, value in summary["tree_measures"].items())
        print_line(
            f"{summary['objective']} by number of trees, before learning and without the own labels: {by_trees}."
        )
    queries = summary["validation_query_ids"]
    print_line(o.validation_queries_text(queries))
    parameters = ", ".join(f"{name}={value:g}" for name, value in summary["parameters"].items())
    print_line(
        f"{summary['remapper']} {summary['mode']} on {counted(summary['labels'], 'label')} of "
        f"{counted(summary['documents'], 'document')}; step {summary['step']} with {parameters}; "
        f"{summary['objective']} {summary['validation']:.4f} on {counted(len(queries), 'validation query')} "
        f"({summary['validation_at_start']:.4f} before learning); written to {summary['output']}."
    )


def remap_apply(
    model: Annotated[Path, typer.Argument(help="Folder of a remapper that `remap fit` wrote.", show_default=False)],
    judgments: o.JudgmentFiles,
    output: Annotated[
        Path | None, o.output_option("File for target and weight of every label: .csv, .tsv, .parquet or .jsonl.")
    ] = None,
    documents: Annotated[
        Path | None,
        o.path_option(
            "File for relevance (targets scaled to 0-1) and weight of every document, for `train --labels` and "
            "`--weights`.",
            help_panel=o.OUTPUT,
        ),
    ] = None,
    *,
    reading: o.Reading,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Compute target and weight of labels with a saved remapper; no expert grades are needed.

    Examples:
        crowdrank remap apply remapper new-labels.csv -o targets.csv
        crowdrank remap apply remapper new-labels.csv --documents targets.csv
    """
    from crowdrank.label_learning.remapper import Remapper
    from crowdrank.readers.write import check_outputs

    check_outputs({"output": output, "documents": documents}, o.input_files(judgments, reading))
    remapper = Remapper.load(model)
    remapped = remapper.transform(o.read_judgment_files(judgments, reading))
    tables = [(output, remapped.table), (documents, remapped.training_table)]
    written = o.write_tables(tables, csv_safe=csv_safe)
    n_labels, n_documents = len(remapped.target), remapped.labels.judgments.n_items
    if json:
        print_json({"labels": n_labels, "documents": n_documents, "output": written})
        return
    print_table(remapped.table if documents is None else remapped.training_table)
    files = f"; written to {' and '.join(map(str, written))}" if written else ""
    amounts = f"{counted(n_labels, 'label')} of {counted(n_documents, 'document')}"
    print_line(f"{type(remapper).__name__} on {amounts}{files}.")


remap = command_group("remap", "Learn targets and weights of labels from expert grades, and apply them to new labels.")
add_command(remap, remap_fit, command_name="fit")
add_command(remap, remap_apply, command_name="apply")
