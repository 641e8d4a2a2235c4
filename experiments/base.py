"""Parts that experiments share: results, consensus methods, comparisons and tables."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from crowdrank.consensus import METHODS, get_aggregator
from crowdrank.errors import DataWarning, InputError, UsageError, near
from crowdrank.evaluation.comparison import Comparison, compare_evaluations
from crowdrank.evaluation.evaluate import Evaluation, Unjudged, evaluate
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments

if TYPE_CHECKING:
    import pandas as pd

    from crowdrank.consensus.model import Aggregator

UNJUDGED: Unjudged = "skip"
"""Treatment of documents without gold: rankings are evaluated on graded documents only, as in the papers."""
SEEDS = (0, 1, 2)
ONE_CONFIGURATION = (
    "Every method ran once with its defaults (one configuration each, but for variants that are listed under a name "
    "of their own); nothing was tuned in this experiment, and no method saw gold unless a table says so."
)

Row = dict[str, Any]
Tell = Callable[[str], None]
"""Progress function, called with a description of the next step."""


def quiet(doing: str) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Table:
    """Table of results: one row per method or setting, with notes.

    >>> Table("ratio", "A ratio", ({"run": "a", "x": float("nan")},)).to_dict()["rows"]
    [{'run': 'a', 'x': None}]
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    comparison: Comparison | None = None

    def row(self, run: str) -> Row:
        """Return the row of a run."""
        return next(row for row in self.rows if row["run"] == run)

    def to_dict(self) -> dict[str, Any]:
        """Return the table for JSON; missing numbers are None."""
        return {
            "name": self.name,
            "title": self.title,
            "rows": [{column: _plain(value) for column, value in row.items()} for row in self.rows],
            "notes": list(self.notes),
            "tests": None if self.comparison is None else self.comparison.to_dict(),
        }


@dataclass(frozen=True)
class Experiment:
    """Result of an experiment: tables and their protocol.

    >>> Experiment("none", (), ("Nothing was done.",)).to_dict()
    {'experiment': 'none', 'tables': [], 'protocol': ['Nothing was done.']}
    """

    name: str
    tables: tuple[Table, ...]
    protocol: tuple[str, ...]

    def table(self, name: str) -> Table:
        """Return the table with a name."""
        return next(table for table in self.tables if table.name == name)

    def to_dict(self) -> dict[str, Any]:
        """Return the experiment for JSON."""
        return {
            "experiment": self.name,
            "tables": [table.to_dict() for table in self.tables],
            "protocol": list(self.protocol),
        }


def select_names(names: Sequence[str] | None, known: Mapping[str, Any], what: str = "ranker") -> list[str]:
    """Return names without repetition, by default all known ones; raise UsageError for an unknown name.

    >>> select_names(["b"], {"a": 1, "b": 2})
    ['b']
    """
    if names is None:
        return list(known)
    if not names:
        raise UsageError(f"There is no {what} to run; name some of: {', '.join(known)}.")
    for name in names:
        if name not in known:
            listed = ", ".join(known)
            raise UsageError(f"There is no {what} '{name}' in this experiment{near(name, known)}; it has: {listed}.")
    return list(dict.fromkeys(names))


Chosen = dict[str, "Callable[[], Aggregator]"]
"""Function that returns the unfitted model of each run."""


Variants = Mapping[str, tuple[str, "Mapping[str, Any] | Callable[[], Aggregator]"]]
"""Method of each variant, and its parameters or a function that returns the model, by the name of its run."""


def choose(methods: Sequence[str] | None = None, variants: Variants | None = None) -> Chosen:
    """Return the methods to run, by default all except auto, each followed by its variants; or variants by name.

    Auto selects one of the others and has its own experiment.

    >>> mine = {"mine": ("gda", {"n_iter": 5})}
    >>> [*choose(["gda", "average"], mine)], [*choose(["mine"], mine)]
    (['gda', 'mine', 'average'], ['mine'])
    """
    variants = variants or {}
    known = (*METHODS, *variants)
    if methods is not None and not methods:
        raise UsageError(f"There is no method to run; name some of: {', '.join(known)}.")
    makers = {name: _maker(*variant) for name, variant in variants.items()}
    chosen: Chosen = {}
    for method in [method for method in METHODS if method != "auto"] if methods is None else methods:
        if method in makers:
            chosen[method] = makers[method]
            continue
        if method not in METHODS:
            listed = ", ".join(known)
            raise UsageError(f"There is no method '{method}'{near(method, known)}; the methods are: {listed}.")
        chosen[method] = type(get_aggregator(method))
        chosen |= {name: makers[name] for name, (of, _) in variants.items() if of == method}
    return chosen


def _maker(method: str, options: Mapping[str, Any] | Callable[[], Aggregator]) -> Callable[[], Aggregator]:
    return options if callable(options) else lambda: get_aggregator(method, **options)


@dataclass(frozen=True)
class Fits:
    """Fitted models by run, and notes about warnings and failures."""

    models: dict[str, Aggregator]
    notes: tuple[str, ...]


def fit_all(chosen: Chosen, judgments: Judgments, *, on: str, tell: Tell = quiet) -> Fits:
    """Fit every model; one that cannot be fitted is left out with a note.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> votes = read_judgments(pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [0, 1]}))
    >>> sorted(fit_all(choose(["average", "majority"]), votes, on="two votes").models)
    ['average', 'majority']
    """
    models, notes, cautions = {}, [], dict[str, None]()
    for name, make in chosen.items():
        tell(f"{name} on {on}")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("ignore")
                warnings.simplefilter("always", DataWarning)
                models[name] = make().fit(judgments)
        except (InputError, UsageError) as problem:
            notes.append(f"{name} was left out: {problem}")
            continue
        cautions |= dict.fromkeys(str(caution.message) for caution in caught)
        if not models[name].converged_:
            notes.append(f"{name} had not converged after {models[name].n_iter_} iterations.")
    if not models:
        raise InputError(f"no method can be fitted on {on} ({notes[0]})")
    return Fits(models, (*notes, *cautions))


def ranking(model: Aggregator) -> pd.DataFrame:
    """Return relevance and grade of a consensus; the number of labels is left out, as it depends on gold."""
    scored: pd.DataFrame = model.consensus_.documents[["query", "document", "relevance", "grade"]]
    return scored


def compared(name: str, title: str, fits: Fits, gold: pd.DataFrame, measures: Sequence[str], *, baseline: str) -> Table:
    """Compare models with paired tests; the first one is the baseline if the named one is missing."""
    runs = {run: ranking(model) for run, model in fits.models.items()}
    return compared_runs(name, title, runs, gold, measures, baseline=baseline, notes=fits.notes)


def compared_runs(
    name: str,
    title: str,
    runs: Mapping[str, pd.DataFrame],
    gold: pd.DataFrame,
    measures: Sequence[str],
    *,
    baseline: str,
    notes: Sequence[str] = (),
) -> Table:
    """Compare rankings with paired tests."""
    base = baseline if baseline in runs else next(iter(runs))
    evaluations = {run: evaluate(frame, gold, list(measures), unjudged=UNJUDGED) for run, frame in runs.items()}
    return comparison_table(name, title, compare_evaluations(evaluations, baseline=base), notes)


def comparison_table(name: str, title: str, comparison: Comparison, notes: Sequence[str] = ()) -> Table:
    """Return the table of a comparison: means, and notes on what was evaluated."""
    first = next(iter(comparison.evaluations.values()))
    counts, _, *others = first.notes()  # how ties count stands in the protocol
    common = comparison.protocol()
    all_notes = (common[0], counts, *(note for note in others if note not in common), *notes)
    rows = tuple({"run": run, **evaluation.means} for run, evaluation in comparison.evaluations.items())
    return Table(name, title, rows, all_notes, comparison)


def pair_rows(comparison: Comparison | None, run: str, others: Sequence[str], measure: str) -> list[Row]:
    """Return a row per other run: difference to `run` and p-values adjusted over the rows; [] if a run is missing."""
    evaluations = {} if comparison is None else comparison.evaluations
    if not {run, *others} <= set(evaluations):
        return []
    part = compare_evaluations({name: evaluations[name] for name in (run, *others)}, baseline=run)
    return [
        {
            **row,
            "other": row["run"],
            "difference": -row["difference"],
            "lower": -row["upper"],
            "upper": -row["lower"],
        }
        for row in part.rows.to_pylist()
        if row["measure"] == measure and row["run"] != run
    ]


def describe_difference(comparison: Comparison | None, run: str, other: str, measure: str) -> list[str]:
    """Return a sentence about the difference of two runs, tested by itself; nothing if one of them is missing."""
    return [
        f"By {measure}, {run} is {_direction(row)} {other}: {row['difference']:+.4f} "
        f"[{row['lower']:+.4f}, {row['upper']:+.4f}], p {row['p']:.3f} (a single test)."
        for row in pair_rows(comparison, run, [other], measure)
    ]


def _direction(row: Row) -> str:
    if not row["significant"]:
        return "not significantly different from"
    return f"significantly {'better' if row['difference'] > 0 else 'worse'} than"


def claim_word(rows: Sequence[Row], min_gain: float) -> str:
    """Return whether the claim that a run beats others is confirmed, refuted or undecided.

    Confirmed: significantly better than each. Refuted: significantly worse than one, or the interval of its gain over
    the best one lies below `min_gain`.

    Args:
        rows: test of the run against each of the others, as from `pair_rows`.
        min_gain: smallest gain that would support the claim.

    >>> row = {"mean": 0.5, "difference": 0.1, "upper": 0.2, "significant": True}
    >>> claim_word([row], 0.01), claim_word([{**row, "significant": False}], 0.01), claim_word([row], 0.3)
    ('confirmed', 'undecided', 'confirmed')
    """
    if all(row["significant"] and row["difference"] > 0 for row in rows):
        return "confirmed"
    if any(row["significant"] and row["difference"] < 0 for row in rows):
        return "refuted"
    best = min(rows, key=lambda row: row["difference"])
    return "refuted" if best["upper"] < min_gain else "undecided"


def count_words(words: Sequence[str]) -> str:
    """Return how often a claim is confirmed, refuted and undecided.

    >>> count_words(["confirmed", "undecided", "confirmed"])
    'confirmed in 2 of 3, undecided in 1 of 3'
    """
    counts = [(word, words.count(word)) for word in ("confirmed", "refuted", "undecided")]
    return ", ".join(f"{word} in {n} of {len(words)}" for word, n in counts if n)


def average_repeats(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Return an evaluation whose value of a query is the mean over the repeats that have one."""
    first = evaluations[0]
    table, means = first.per_query, {}
    for measure in first.means:
        repeats = np.array([one.values(measure) for one in evaluations])
        counts = (~np.isnan(repeats)).sum(axis=0)
        values = np.divide(np.nansum(repeats, axis=0), counts, out=np.full(len(counts), np.nan), where=counts > 0)
        table = table.set_column(table.column_names.index(measure), measure, pa.array(values))
        means[measure] = float(np.nanmean(values))
    return replace(first, per_query=table, means=means)


def figures(fits: Fits, gold: pd.DataFrame, measures: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the means of each model, without tests."""
    return {
        run: evaluate(ranking(model), gold, list(measures), unjudged=UNJUDGED).means
        for run, model in fits.models.items()
    }


def averaged(draws: Sequence[Mapping[str, Mapping[str, float]]]) -> tuple[Row, ...]:
    """Return the mean and standard deviation over draws of each measure, by run.

    >>> averaged([{"a": {"AP": 0.5}}, {"a": {"AP": 0.7}}])
    ({'run': 'a', 'AP': 0.6, 'AP sd': 0.1414...},)
    """
    rows = []
    for run in draws[0]:
        row: Row = {"run": run}
        for measure in draws[0][run]:
            values = np.array([draw[run][measure] for draw in draws if run in draw])
            row |= {measure: float(values.mean()), f"{measure} sd": _sd(values)}
        rows.append(row)
    return tuple(rows)


def _sd(values: np.ndarray[Any, Any]) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else float("nan")


def gold_in(gold: Gold, judgments: Judgments) -> pd.DataFrame:
    """Return the gold of judged documents."""
    frame: pd.DataFrame = gold.frame
    return frame[judgments.positions(gold.query, gold.document) >= 0]


def testing_protocol(table: Table) -> list[str]:
    """Return sentences about the tests of a comparison, without the number of queries, which differs by table."""
    return [] if table.comparison is None else table.comparison.protocol()[1:]


def seeds_text(seeds: Sequence[int]) -> str:
    """Return seeds as part of a sentence.

    >>> seeds_text([0, 1, 2]), seeds_text([7])
    ('seeds 0, 1 and 2', 'seed 7')
    """
    *head, last = map(str, seeds)
    return f"seeds {', '.join(head)} and {last}" if head else f"seed {last}"


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
