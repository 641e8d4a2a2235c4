"""`crowdrank compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank.cli import options as o
from crowdrank.cli.console import say, say_json, show_cells
from crowdrank.errors import UsageError

if TYPE_CHECKING:
    from crowdrank.evaluation.comparison import Comparison


@o.limits_size
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Rankings to compare, as FILE or NAME=FILE; the first is the baseline.", show_default=False
        ),
    ],
    gold: o.GoldFile,
    measures: o.Measures = "nDCG@10,nDCG,AP,Tau",
    baseline: Annotated[
        str | None, typer.Option(help="The run to test the others against; the first by default.")
    ] = None,
    test: Annotated[str, typer.Option(help="fisher (randomization) or t (paired).")] = "fisher",
    seed: Annotated[int, typer.Option(help="Seed of randomization and bootstrap.")] = 0,
    gains: o.Gains = "exponential",
    ties: o.Ties = "expected",
    unjudged: o.Unjudged = "skip",
    no_relevant: o.NoRelevant = "skip",
    gold_format: o.GoldFormat = None,
    gold_columns: o.GoldColumns = None,
    gold_grades: o.GoldGrades = None,
    gold_unjudgeable: o.GoldUnjudgeable = None,
    unjudgeable_as: o.GoldUnjudgeableAs = "lowest",
    per_query: o.PerQuery = None,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Compare rankings: means, differences with intervals, significance (Holm-corrected)."""
    import pyarrow as pa

    from crowdrank.evaluation.comparison import compare as contest
    from crowdrank.evaluation.measures import parse_measures
    from crowdrank.judgments.read import read_gold, read_run
    from crowdrank.judgments.write import check_outputs, write_table

    named = name_runs(runs)
    asked = parse_measures(measures)
    check_outputs({"--per-query": per_query}, [gold, *map(Path, named.values())])
    experts = read_gold(
        gold, **o.gold_options(gold_format, gold_columns, gold_grades, gold_unjudgeable, unjudgeable_as)
    )
    comparison = contest(
        {name: read_run(path, scale=experts.scale) for name, path in named.items()},
        experts.frame,
        asked,
        baseline=baseline,
        test=test,
        random_state=seed,
        gains=gains,
        ties=ties,
        unjudged=unjudged,
        no_relevant=no_relevant,
    )
    if per_query is not None:
        write_table(pa.Table.from_pandas(comparison.per_query, preserve_index=False), per_query, csv_safe=csv_safe)
    if json:
        say_json(comparison.to_dict())
        return
    show_comparison(comparison)
    show_differences(comparison)


def name_runs(runs: list[str]) -> dict[str, str]:
    """Names and paths of NAME=FILE or FILE (named by its stem)."""
    named: dict[str, str] = {}
    for run in runs:
        name, equals, path = run.partition("=")
        if not equals or Path(run).exists():
            name, path = Path(run).name.split(".")[0], run
        if name in named:
            raise UsageError(f"Two runs are called '{name}'; name them, as in {name}-2={path}.")
        named[name] = path
    return named


def show_comparison(comparison: Comparison) -> None:
    """The table: the best in bold, a mark where a run is above or below the baseline beyond chance."""
    measures = [str(measure) for measure in comparison.measures]
    details = {(row["run"], row["measure"]): row for row in comparison.rows.to_pylist()}
    rows = [[run, *(_cell(details[run, measure]) for measure in measures)] for run in comparison.evaluations]
    show_cells(["run", *measures], rows, [True] + [False] * len(measures))
    first = next(iter(comparison.evaluations.values()))
    say(
        f"Bold (*): the best. ▲ ▼: above or below {comparison.baseline} beyond chance ({comparison.test} test, Holm's "
        f"correction over the runs, {comparison.alpha:.0%}). {first.counts.queries:,} queries."
    )
    for sentence in first.conventions.sentences(comparison.measures):
        say(sentence)


def show_differences(comparison: Comparison) -> None:
    """Every run's difference to the baseline with its interval, p and effect size."""
    told = [row for row in comparison.rows.to_pylist() if row["run"] != comparison.baseline]
    rows = [
        [
            row["run"],
            row["measure"],
            f"{row['difference']:+.4f}",
            f"[{row['lower']:+.4f}, {row['upper']:+.4f}]",
            f"{row['p_holm']:.4f}",
            f"{row['effect_size']:+.2f}",
        ]
        for row in told
    ]
    names = [
        "run",
        "measure",
        f"to {comparison.baseline}",
        f"{1 - comparison.alpha:.0%} interval",
        "p (Holm)",
        "effect",
    ]
    show_cells(names, rows, [True, True, False, False, False, False])


def _cell(row: dict[str, Any]) -> Any:
    from rich.text import Text

    mark = " " if not row["significant"] else "▲" if row["difference"] > 0 else "▼"
    # In a pipe nothing is bold: a star says it there too.
    return Text(f"{'*' if row['best'] else ''}{row['mean']:.4f}{mark}", style="bold" if row["best"] else "")
