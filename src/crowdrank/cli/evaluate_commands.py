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
from crowdrank.errors import Fix, Message, UsageError
from crowdrank.readers.read_options import FeatureReadOptions, RunReadOptions

if TYPE_CHECKING:
    from crowdrank.evaluation.comparison import Comparison
    from crowdrank.judgments.gold import Gold
    from crowdrank.judgments.scale import Scale
    from crowdrank.readers.runs import RunTable


def evaluate(
    run: Annotated[
        Path,
        typer.Argument(
            help="Ranking: a consensus, a table of scores, or a TREC run (.trec, .run); or the folder of a ranker or "
            "remapper, with --features.",
            show_default=False,
        ),
    ],
    expert: o.GoldFile,
    scoring: o.Scoring,
    reading: Annotated[RunReadOptions, FieldsOf(RunReadOptions, "Reading the ranking")],
    gold_reading: o.GoldReading,
    features_reading: o.PrefixedFeatureReading,
    features: o.RankerFeatureFiles = None,
    *,
    size_limit: o.SizeLimit,
    per_query: o.PerQuery = None,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Score a ranking against expert grades.

    Examples:
        crowdrank evaluate run.trec --expert experts.qrels --measures nDCG@10,AP
        crowdrank evaluate consensus.csv --expert sample.qrels --unjudged skip
        crowdrank evaluate remapper -f new.letor --expert experts.qrels
    """
    from crowdrank.evaluation.evaluate import evaluate as score
    from crowdrank.evaluation.measures import parse_measures
    from crowdrank.readers.write import check_outputs

    measures = parse_measures(scoring.measures)
    check_outputs({"per_query": per_query}, [expert, run, *(features or ())])
    rankings = Rankings({run.name: run}, features, features_reading, reading)
    grades = o.read_gold_file(expert, gold_reading, rankings.scale)
    (ranking,) = rankings.read(grades).values()
    scores = score(ranking.frame, grades, measures, **scoring.conventions)
    o.write_tables([(per_query, scores.per_query)], csv_safe=csv_safe)
    if json:
        roles = {"gold": dict(grades.report.columns), "run": dict(ranking.columns)}
        result = {"run": run, "means": scores.means, "judged": scores.judged, "notes": scores.notes()}
        result["n_gold_used"] = scores.n_gold_used
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
        typer.Argument(
            help="Rankings, as FILE or NAME=FILE; the first is the baseline. With --features, also folders of rankers "
            "or remappers.",
            show_default=False,
        ),
    ],
    expert: o.GoldFile,
    comparing: Annotated[CompareOptions, FieldsOf(CompareOptions)],
    features_reading: o.PrefixedFeatureReading,
    features: o.RankerFeatureFiles = None,
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
        crowdrank compare ranker remapper -f new.letor --expert experts.qrels
    """
    import pyarrow as pa

    from crowdrank.evaluation.comparison import compare as compare_runs
    from crowdrank.evaluation.measures import parse_measures
    from crowdrank.readers.write import check_outputs

    files = {name: Path(path) for name, path in parse_run_names(runs).items()}
    measures = parse_measures(scoring.measures)
    check_outputs({"per_query": per_query}, [expert, *files.values(), *(features or ())])
    rankings = Rankings(files, features, features_reading)
    grades = o.read_gold_file(expert, gold_reading, rankings.scale)
    tables = rankings.read(grades)
    frames = {name: table.frame for name, table in tables.items()}
    comparison = compare_runs(frames, grades, measures, **asdict(comparing), **scoring.conventions)
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


def read_run_tables(files: Mapping[str, str]) -> dict[str, RunTable]:
    """Read the ranking of each file by name; print which columns were read, and notes."""
    return Rankings({name: Path(path) for name, path in files.items()}).read()


class Rankings:
    """Rankings in files, and saved rankers that rank documents.

    Args:
        paths: file of each ranking, or folder of a ranker or remapper, by name.
        features: files with the features of the documents that rankers rank.
        features_reading: options for reading features.
        reading: options for reading rankings.

    Raises:
        UsageError: rankers are named without features, or features without a ranker.

    """

    def __init__(
        self,
        paths: Mapping[str, Path],
        features: list[Path] | None = None,
        features_reading: FeatureReadOptions | None = None,
        reading: RunReadOptions | None = None,
    ) -> None:
        from crowdrank.rankers.ranker import Ranker, is_saved_ranker
        from crowdrank.readers.inputs import open_input

        self.paths, self.features = paths, features or []
        self.features_reading, self.reading = features_reading or FeatureReadOptions(), reading or RunReadOptions()
        rankers = [path for path in paths.values() if is_saved_ranker(path)]
        if rankers and not features:
            command = f"rank documents with it: crowdrank rank -m {rankers[0]} -f FEATURES -o run.trec"
            fixes = (Fix("name features of documents with {}", "features"), command)
            problem = f"{rankers[0]} is a saved ranker, not a ranking"
            raise UsageError(problem, kind="ranker-without-features", fix=fixes)
        if features and not rankers:
            for path in paths.values():
                if path.is_dir():
                    Ranker.load(path)  # its error names the ranker in the folder of a run
                elif not path.exists():
                    open_input(path, self.reading.format, allow_books=False)
            problem, fix = "are not used: no saved ranker is named", "name the folder of a ranker or remapper"
            raise UsageError(problem, parameter="features", kind="features-without-ranker", fix=fix)
        self.inputs = {
            name: open_input(path, self.reading.format, allow_books=False)
            for name, path in paths.items()
            if path not in rankers
        }

    @property
    def scale(self) -> Scale | None:
        """The first scale that a ranking states."""
        from crowdrank.readers.inputs import read_scale_column

        return next(filter(None, map(read_scale_column, self.inputs.values())), None)

    def read(self, gold: Gold | None = None) -> dict[str, RunTable]:
        """Return the rankings by name; print which columns were read, notes and warnings."""
        from crowdrank.readers.runs import read_run_table

        tables = {}
        for name, path in self.paths.items():
            if name in self.inputs:
                scale = None if gold is None else gold.scale
                tables[name] = read_run_table(self.inputs[name], self.reading.columns, scale)
                print_columns(tables[name].columns, [path])
                messages = tables[name].notes
            else:
                tables[name], messages = self._rank(path, gold)
                print_columns(tables[name].columns, self.features)
            for message in messages:
                print_message(message)
        return tables

    def _rank(self, path: Path, gold: Gold | None) -> tuple[RunTable, tuple[Message, ...]]:
        """Return the ranking of the documents by a saved ranker, with notes and warnings."""
        from crowdrank.judgments import frames
        from crowdrank.rankers.rank_files import FeatureBatches, rank_files, validation_queries_warning
        from crowdrank.rankers.ranker import Ranker
        from crowdrank.readers.runs import RunTable

        ranker, reading = Ranker.load(path), self.features_reading
        batches = FeatureBatches(self.features, ranker.features_, format=reading.format, columns=reading.columns)
        ranked = rank_files(ranker, batches, keep=True)
        assert ranked.ranking is not None
        frame = frames.from_arrow(ranked.ranking.drop_columns("rank"), "pandas")
        leaks = [] if gold is None else validation_queries_warning(ranker, str(path), gold.query)
        return RunTable(frame, batches.columns), (*ranked.messages, *leaks)


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
    for sentence in (*first.used_notes(), *first.conventions.sentences(comparison.measures), *first.relevance_notes()):
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
