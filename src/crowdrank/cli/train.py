"""`crowdrank train`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import say, say_json, show_cells
from crowdrank.errors import UsageError
from crowdrank.rankers import RANKERS, get_ranker

if TYPE_CHECKING:
    from crowdrank.judgments.read import Features
    from crowdrank.rankers.base import Ranker
    from crowdrank.rankers.instances import Instances

LABELED = "Labels"
CERTAINTY = "certainty"
MOST_SHOWN = 10
"""How many features, or validation queries, the terminal shows."""


@o.limits_size
def train(
    features: Annotated[
        list[Path],
        typer.Option(
            "--features", "-f", help="Features: LETOR, CSV, Parquet, ... May be given several times.", metavar="<path>"
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder to save the ranker into.", show_default=False)
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            help="A consensus as `aggregate` writes it, expert grades (qrels, CSV, ...), or a table of query, "
            "document, relevance; by default the grades in the features' own file.",
            show_default=False,
        ),
    ] = None,
    ranker: Annotated[
        str, typer.Option("--ranker", "-r", help=f"One of: {', '.join(RANKERS)}.", autocompletion=o.among(RANKERS))
    ] = "lambdamart",
    consensus: Annotated[
        Path | None,
        typer.Option(
            help="A model that `aggregate -m gda-pairwise --save` wrote: gda-pairwise-mart explains its judgments. "
            "Without --labels, its consensus is the labels.",
            rich_help_panel=LABELED,
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            help="Of a consensus: probabilities (expected gains), expected-grade, grade, relevance.",
            rich_help_panel=LABELED,
        ),
    ] = "probabilities",
    weights: Annotated[
        str | None,
        typer.Option(
            help="A table of query, document, weight; or certainty: what a consensus is unsure of counts less.",
            rich_help_panel=LABELED,
        ),
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(help="A share of the queries, as in 0.2, or a file of labels: when to stop is told by them."),
    ] = None,
    validation_features: Annotated[
        list[Path] | None,
        typer.Option(
            help="Their features, where they are in other files; with grades, --validation is not needed.",
            metavar="<path>",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", help="A setting of the ranker, as in -s n_estimators=300 -s measure=ERR."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the ranker and of the validation queries drawn.")] = 0,
    threads: Annotated[
        int | None,
        typer.Option(
            help="How many threads to use; by default one for small data, else as many as there are.",
            show_default=False,
        ),
    ] = None,
    engine: o.EngineName = "local",
    dashboard: o.Dashboard = False,
    format: Annotated[
        str | None, typer.Option(help="The format of the features, where the suffix does not tell it.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Which column of the features is query and document.")] = None,
    labels_format: Annotated[
        str | None, typer.Option(help="The format of the labels.", rich_help_panel=LABELED)
    ] = None,
    labels_columns: Annotated[
        str | None, typer.Option(help="Which column of the labels is what.", rich_help_panel=LABELED)
    ] = None,
    labels_grades: Annotated[
        str | None, typer.Option(help="The scale of expert grades, as 0-4 or Bad,Fair,Good.", rich_help_panel=LABELED)
    ] = None,
    missing: Annotated[
        str,
        typer.Option(
            help="Labeled documents without features: skip (and count them) or error.", rich_help_panel=LABELED
        ),
    ] = "skip",
    json: o.AsJson = False,
) -> None:
    """Train a ranker on features and labels."""
    from crowdrank._folders import check_output_folder
    from crowdrank.rankers.store import RANKER
    from crowdrank.rankers.trec_run import join_features, padded

    model = _ranker(ranker, setting or [], seed, threads)
    judged = None if consensus is None else _consensus(consensus)
    if "model" in model.get_params():
        if judged is None:
            raise UsageError(f"{ranker} explains judgments: name a model with --consensus.")
        model.set_params(model=judged)
    check_output_folder(output, RANKER)
    known = join_features(features, format, columns)
    how = {"format": labels_format, "columns": labels_columns, "grades": labels_grades}
    rows = _instances(known, judged if labels is None else labels, how, target, weights, missing)
    held_out = None
    if validation is not None and (share := _share(validation)) is not None:
        rows, held_out = rows.split(share, seed)
    elif validation is not None or validation_features:
        theirs = (
            padded(join_features(validation_features, format, columns), known.names) if validation_features else known
        )
        path = None if validation is None else Path(validation)
        held_out = _instances(theirs, path, how, target, None, missing)
        _refuse_shared(rows, held_out)
    _refuse_labels(model, rows, held_out)
    told = {**rows.arguments, "eval_set": None if held_out is None else held_out.eval_set, "progress": True}
    if engine == "local":
        model.fit(**told)
    else:
        model.require_engines()  # before a cluster is started for nothing
        with o.engine(engine, threads, dashboard) as running:
            model.fit(**told, engine=running)
    model.save(output)
    summary = _summary(ranker, model, rows, held_out, output)
    if threads is not None and "n_jobs" not in model.get_params():
        summary["notes"].append(f"{ranker} has no threads of its own; --threads was not used.")
    if json:
        say_json(summary)
        return
    _show(model)
    for note in summary["notes"]:
        say(note)
    say(_sentence(summary))


def _ranker(name: str, settings: list[str], seed: int, threads: int | None) -> Ranker:
    if threads is not None and threads < 1:
        raise UsageError(f"--threads is a whole number from 1 up, not {threads}.")
    model = get_ranker(name, random_state=seed)
    if "n_jobs" in model.get_params():
        model.set_params(n_jobs=threads)
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"--set cannot read '{setting}'; write name=value, as in n_estimators=300.")
        model.set_params(**{key: _value(text)})
    return model


def _consensus(folder: Path) -> Any:
    from crowdrank.consensus.base import Aggregator

    return Aggregator.load(folder)


def _value(text: str) -> Any:
    try:
        value = json_module.loads(text)
    except ValueError:
        return None if text == "None" else text
    return tuple(value) if isinstance(value, list) else value


def _instances(
    features: Features, labels: Any, how: dict[str, Any], target: str, weights: str | None, missing: str
) -> Instances:
    from crowdrank.rankers.instances import Instances
    from crowdrank.rankers.labels import Labels, read_labels, read_weights

    if missing not in ("skip", "error"):
        raise UsageError(f"--missing is skip or error, not '{missing}'.")
    if labels is not None:
        told = read_labels(labels, **(how if isinstance(labels, Path) else {}))
    elif features.grade is not None:
        told = Labels(features.query, features.document, features.grade, None, "the features")
    else:
        raise UsageError("The features have no grades; name a file of labels with --labels.")
    weight = weights if weights in (None, CERTAINTY) else read_weights(weights, told)
    return Instances.from_labels(told, features, target=target, weights=weight, missing=missing)


def _share(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    if not 0 < share < 1:
        raise UsageError(f"--validation is a share between 0 and 1 or a file of labels, not {text}.")
    return share


def _refuse_shared(rows: Instances, held_out: Instances) -> None:
    from crowdrank._text import counted
    from crowdrank.judgments import ids

    theirs = held_out.features.query.unique()
    shared = int((ids.match(rows.features.query.unique(), theirs) >= 0).sum())
    if shared:
        raise UsageError(
            f"{counted(shared, 'query')} of the validation labels {'is' if shared == 1 else 'are'} also trained on; "
            "leave them out of one side."
        )


def _refuse_labels(model: Ranker, rows: Instances, held_out: Instances | None) -> None:
    """Refuse labels that have no gain, by the names of their documents; a ranker knows only rows."""
    from crowdrank.errors import shown
    from crowdrank.evaluation.measures import parse_gains
    from crowdrank.rankers.ranking_data import require_gains

    settings = model.get_params(deep=False)
    gains = parse_gains(settings.get("gains", "exponential"))
    # Linear rankers learn from any number, and so do pairs without a measure; validation always takes gains.
    takes = "mu" not in settings and settings.get("measure", "nDCG") is not None
    for part in (rows if takes else None, held_out):
        if part is not None and part.y.ndim == 1:
            ids = part.features.document.to_pylist(), part.features.query.to_pylist()

            def name(row: int, ids: Any = ids) -> str:
                return f"document {shown(ids[0][row])} of query {shown(ids[1][row])}"

            require_gains(part.y, gains, name)


def _summary(name: str, model: Ranker, rows: Instances, held_out: Instances | None, output: Path) -> dict[str, Any]:
    order = sorted(zip(model.importances_.tolist(), model.features_, strict=True), key=lambda pair: -pair[0])
    return {
        "ranker": name,
        "rows": len(rows),
        "queries": len(rows.features.query.unique()),
        "features": len(model.features_),
        "validation_queries": 0 if held_out is None else len(held_out.features.query.unique()),
        "validation_query_ids": list(model.validation_queries_),
        "validated_by": getattr(model, "validate_by", "nDCG@10"),
        "validation": max(model.history_) if model.history_ else None,
        "rounds": getattr(model, "best_iteration_", None),
        "settings": {key: str(value) for key, value in model.get_params(deep=False).items()},
        "importances": {feature: share for share, feature in order},
        "notes": [*rows.counts.notes(), *_validated(model)],
        "output": str(output),
    }


def _validated(model: Ranker) -> list[str]:
    """Which queries were looked at to stop or to choose: whoever tests the ranker must know."""
    ids = [str(query) for query in model.validation_queries_]
    if not ids:
        return []
    more = f", ... ({len(ids):,} in all; ranker.json has them)" if len(ids) > MOST_SHOWN else ""
    return [f"Validation queries: {', '.join(ids[:MOST_SHOWN])}{more}."]


def _sentence(summary: dict[str, Any]) -> str:
    from crowdrank._text import counted

    rows, queries = counted(summary["rows"], "row"), counted(summary["queries"], "query")
    parts = [f"{summary['ranker']} on {rows} in {queries}, {counted(summary['features'], 'feature')}"]
    if summary["rounds"]:
        parts.append(counted(summary["rounds"], "round"))
    if summary["validation"] is not None:
        held_out = counted(summary["validation_queries"], "validation query")
        parts.append(f"{summary['validated_by']} {summary['validation']:.4f} on {held_out}")
    return "; ".join([*parts, f"written to {summary['output']}"]) + "."


def _show(model: Ranker) -> None:
    order = model.importances_.argsort(kind="stable")[::-1][:MOST_SHOWN]
    cells = [[model.features_[place], f"{model.importances_[place]:.3f}"] for place in order]
    show_cells(["feature", "importance"], cells, [True, False])
    if len(model.features_) > MOST_SHOWN:
        say(f"... and {len(model.features_) - MOST_SHOWN:,} features more")
