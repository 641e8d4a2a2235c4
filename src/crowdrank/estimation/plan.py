"""Plan how many queries, labels and expert grades a comparison of two rankings needs, and what they cost."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted, markdown_table, markdown_text
from crowdrank.constraints import Number, check_parameter
from crowdrank.errors import DataWarning, Fix, Message, UsageError
from crowdrank.estimation.designs import DesignModel, DesignName, check_runs_differ, designs_of_pilot
from crowdrank.estimation.forecast import Forecast
from crowdrank.estimation.joined_runs import join_runs
from crowdrank.estimation.prepared import Unit, prepare_estimate
from crowdrank.estimation.typical_values import LABELS, TYPICAL_SOURCE, label_factor, typical_designs
from crowdrank.evaluation.evaluate import as_run
from crowdrank.evaluation.measures import Measure, parse_measure
from crowdrank.judgments.frames import frame_library, from_arrow
from crowdrank.readers.read import read_labels

DESIGN_NAMES: dict[DesignName, str] = {
    "experts": "experts alone",
    "query": "by query",
    "document": "by document",
}
MIN_PLANNED_QUERIES = 10
"""Minimum number of queries of a plan, and of documents that are drawn."""
MIN_PILOT_QUERIES = 20
"""Number of expert queries of a pilot below which a warning is issued."""
MIN_PILOT_GRADES = 100
"""Number of grades of drawn documents of a pilot below which a warning is issued."""
MAX_PLANNED_QUERIES = 10_000_000
"""Maximum number of queries of which it is said that they would suffice."""
N_POOL_SIZES = 40
"""Number of sizes of the pool of queries that are compared."""


@dataclass(frozen=True)
class PlanOption:
    """A number of queries, labels and expert grades with the interval that they are expected to give.

    Attributes:
        design: 'experts' (whole queries, no labels), 'query' (whole queries, labels of all), or 'document' (drawn
            documents, labels of all).
        queries: number of queries.
        expert_queries: number of queries that experts grade completely; None by document.
        expert_grades: number of expert grades.
        labels_per_document: number of labels of each document.
        labels: number of labels.
        cost: price of all labels and expert grades.
        half_width: expected half width of the interval of the difference.
        power: probability to find the wished difference; None without one.
        is_precise: whether the option meets the wishes about the interval.
        meets: whether the option meets all wishes.

    """

    design: DesignName
    queries: int
    expert_queries: int | None
    expert_grades: int
    labels_per_document: int
    labels: int
    cost: float
    half_width: float
    power: float | None
    is_precise: bool
    meets: bool


@dataclass(frozen=True)
class Wish:
    """What a plan must reach.

    Attributes:
        level: level of the interval.
        half_width: largest half width of the interval; None if there is no such wish.
        difference: difference that is to be found; None if there is no such wish.
        power: probability to find it.
        budget: largest cost; None if there is no such wish.

    """

    level: float
    half_width: float | None
    difference: float | None
    power: float
    budget: float | None

    @property
    def is_precision(self) -> bool:
        """Whether the wish is about the interval; else it is the narrowest one for the budget."""
        return self.half_width is not None or self.difference is not None

    def is_precise(self, model: DesignModel, n_queries: int, n_grades: float) -> bool:
        """Return whether the interval meets the wish."""
        if self.half_width is not None and model.half_width(n_queries, n_grades, self.level) > self.half_width:
            return False
        power = None if self.difference is None else model.power(n_queries, n_grades, self.level, self.difference)
        return power is None or power >= self.power

    def sentence(self) -> str:
        """Return the wish without a period."""
        parts = []
        if self.half_width is not None:
            parts.append(f"a half width of {self.half_width:g}")
        if self.difference is not None:
            parts.append(f"a power of {self.power:g} at a difference of {self.difference:g}")
        if self.budget is not None:
            parts.append(f"a cost of at most {self.budget:,.2f}")
        return " and ".join(parts)


@dataclass(frozen=True)
class PlanResult:
    """Options for a comparison of two rankings.

    Attributes:
        options: the best option of each design and number of labels per document, the cheapest first.
        best: place of the best option in `options`; None if none meets the wish.
        wish: what the plan must reach.
        measure: the measure.
        n_queries: largest number of queries.
        source: where the predictions come from, in a sentence.
        forecast: what would suffice if no option does; None if one does, or if only the budget is too small.
        backend: library of `table`.

    """

    options: tuple[PlanOption, ...]
    best: int | None
    wish: Wish
    measure: Measure
    n_queries: int
    source: str
    forecast: Forecast | None = None
    backend: str = "pandas"

    @property
    def table(self) -> Any:
        """One row per option; the columns are those of :class:`PlanOption`, and `best`."""
        rows = [{**asdict(one), "best": place == self.best} for place, one in enumerate(self.options)]
        return from_arrow(pa.Table.from_pylist(rows), self.backend)

    def reason(self) -> str:
        """Return the best option and why, or what is missing, in a sentence."""
        if self.best is None:
            if self.forecast is not None:
                if self.forecast.queries is None:
                    return f"No option reaches {self.wish.sentence()}, even with {MAX_PLANNED_QUERIES:,} queries."
                needed = self.forecast.sentence(0, self.n_queries)
                return f"No option reaches {self.wish.sentence()}. What would suffice: {needed}."
            costs = [one.cost for one in self.options if one.is_precise]
            cheapest = f"; the cheapest precise one costs {min(costs):,.2f}" if self.wish.is_precision and costs else ""
            return f"No option reaches {self.wish.sentence()}{cheapest}."
        one = self.options[self.best]
        what = (
            f"{DESIGN_NAMES[one.design]}, {counted(one.expert_grades, 'expert grade')} and "
            f"{counted(one.labels, 'label')} of {counted(one.queries, 'query')}"
        )
        others = [
            other
            for place, other in enumerate(self.options)
            if place != self.best and other.design != one.design and other.meets
        ]
        start = "Cheapest" if self.wish.is_precision else "Narrowest interval"
        if not others:
            return f"{start}: {what} (cost {one.cost:,.2f}, half width {one.half_width:.4f}); no other design does."
        next_one = min(others, key=self._rank)
        if self.wish.is_precision:
            why = f"{DESIGN_NAMES[next_one.design]} would cost {next_one.cost:,.2f}"
        else:
            why = f"{DESIGN_NAMES[next_one.design]} would give {next_one.half_width:.4f}"
        return f"{start}: {what} (cost {one.cost:,.2f}, half width {one.half_width:.4f}); {why}."

    def _rank(self, one: PlanOption) -> tuple[bool, float, float]:
        return rank_option(one, self.wish)

    def rows(self) -> list[dict[str, str]]:
        """Return the options as rows of texts."""
        rows = []
        for place, one in enumerate(self.options):
            row = {
                "": "best" if place == self.best else self._what_is_missing(one),
                "design": DESIGN_NAMES[one.design],
                "queries": f"{one.queries:,}",
                "expert queries": "" if one.expert_queries is None else f"{one.expert_queries:,}",
                "expert grades": f"{one.expert_grades:,}",
                "labels per document": f"{one.labels_per_document}",
                "labels": f"{one.labels:,}",
                "cost": f"{one.cost:,.2f}",
                "half width": f"{one.half_width:.4f}",
            }
            if one.power is not None:
                row[f"power at {self.wish.difference:g}"] = f"{one.power:.2f}"
            rows.append(row)
        return rows

    def _what_is_missing(self, one: PlanOption) -> str:
        if one.meets:
            return ""
        if one.is_precise:
            return "too costly"
        wished = self.wish.half_width
        return "too wide" if wished is not None and one.half_width > wished else "too little power"

    def protocol(self) -> list[str]:
        """Describe in sentences how the options were found."""
        return [
            f"Wish: {self.wish.sentence()}; {self.measure}, level {self.wish.level:g}, at most "
            f"{counted(self.n_queries, 'query')}.",
            self.source,
            "Costs are those of all labels and expert grades of the option, also of those that you have.",
        ]

    def markdown(self) -> str:
        """Return the plan in Markdown."""
        lines = [markdown_text(self.reason()), "", *markdown_table(self.rows()), ""]
        return "\n".join([*lines, *(f"- {markdown_text(one)}" for one in self.protocol())]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a dictionary that JSON can represent."""
        return {
            "best": self.best,
            "reason": self.reason(),
            "options": [asdict(one) for one in self.options],
            "wish": asdict(self.wish),
            "measure": str(self.measure),
            "queries": self.n_queries,
            "forecast": None if self.forecast is None else self.forecast.to_dict(),
            "protocol": self.protocol(),
        }


def plan(
    runs: Mapping[str, Any] | None = None,
    labels: Any = None,
    expert: Any = None,
    *,
    half_width: float | None = None,
    difference: float | None = None,
    power: float = 0.8,
    budget: float | None = None,
    queries: int | None = None,
    expert_price: float = 1.0,
    label_price: float = 0.0,
    labels_per_document: int | Sequence[int] | None = None,
    measure: str | Measure = "nDCG@10",
    level: float = 0.95,
    unit: Unit = "auto",
    random_state: int = 0,
) -> PlanResult:
    """Plan how many queries, labels and expert grades a comparison of two rankings needs.

    State at least one wish: `half_width`, `difference` or `budget`. The variances come from a pilot (`runs`, `labels`
    and `expert`); without `expert`, they are typical ones (TREC DL20) for the documents of the runs.
    A pilot of completely graded queries predicts all designs, one of drawn documents only further draws of documents.

    Args:
        runs: two rankings by name, as in :func:`crowdrank.estimate`.
        labels: labels of the documents, as in :func:`crowdrank.estimate`.
        expert: expert grades of a pilot, as in :func:`crowdrank.estimate`.
        half_width: largest half width of the interval of the difference.
        difference: difference that is to be found.
        power: probability to find it.
        budget: largest cost. If it is the only wish, the narrowest interval for it is planned.
        queries: largest number of queries; by default those of the pilot.
        expert_price: price of an expert grade.
        label_price: price of a label of the crowd or an LLM judge; 0 if you have them.
        labels_per_document: numbers of labels per document to compare. The first is that of the pilot; the gain of
            others is typical of LLM judges. By default 1 with labels, else 1, 3 and 10.
        measure: the measure.
        level: level of the interval.
        unit: 'query', 'document', or 'auto': how the pilot was drawn, as in :func:`crowdrank.estimate`.
        random_state: random seed.

    Raises:
        InputError: the pilot cannot be used.
        UsageError: an argument has an invalid value.

    >>> import crowdrank
    >>> result = crowdrank.plan(half_width=0.05, queries=200, label_price=0.01)
    >>> result.options[result.best].design, len(result.options)
    ('document', 7)

    """
    numbers = _check_numbers(labels_per_document, has_labels=labels is not None)
    n_before = numbers[0] if expert is not None else LABELS[0]
    checks: list[tuple[str, Any, Number, bool]] = [
        ("half_width", half_width, Number(0, above=True), True),
        ("difference", difference, Number(0, above=True), True),
        ("power", power, Number(0, 1, above=True, below=True), False),
        ("budget", budget, Number(0, above=True), True),
        ("queries", queries, Number(MIN_PLANNED_QUERIES, MAX_PLANNED_QUERIES, integer=True), True),
        ("expert_price", expert_price, Number(0), False),
        ("label_price", label_price, Number(0), False),
        ("level", level, Number(0, 1, above=True, below=True), False),
    ]
    for name, value, valid, may_be_missing in checks:
        if value is not None or not may_be_missing:
            check_parameter(name, value, [valid])
    wish = Wish(level, half_width, difference, power, budget)
    if not wish.is_precision and budget is None:
        fixes = [
            Fix("state {}", "half_width", 0.02),
            Fix("state {}", "difference", 0.02),
            Fix("state {}", "budget", 100),
        ]
        raise UsageError("is missing, and so is any other wish", parameter="half_width", kind="no-wish", fix=fixes)
    parsed = parse_measure(measure)
    models, n_queries, source, backend = _models(runs, labels, expert, parsed, queries, unit, random_state)
    prices = (expert_price, label_price)
    found = [
        _best_option(
            model.scale_unexplained_variance(label_factor(parsed, model.name, n_labels, n_before)),
            wish,
            n_queries,
            n_labels,
            prices,
        )
        for model in models
        for n_labels in (numbers if model.name != "experts" else (0,))
    ]
    options = _distinct(sorted(found, key=lambda one: rank_option(one, wish)))
    best = 0 if options[0].meets else None
    is_possible = any(wish.is_precise(model, n_queries, n_queries * model.documents_per_query) for model in models)
    forecast = None if is_possible else Forecast(None, _enough_queries(models, wish))
    return PlanResult(options, best, wish, parsed, n_queries, source, forecast, backend)


def _distinct(options: list[PlanOption]) -> tuple[PlanOption, ...]:
    """Return the options without those of equal cost and precision that grade the same, such as all documents."""
    by_content = {
        (one.queries, one.expert_grades, round(one.cost, 2), round(one.half_width, 6)): one for one in reversed(options)
    }
    return tuple(one for one in options if one in by_content.values())


def rank_option(one: PlanOption, wish: Wish) -> tuple[bool, float, float]:
    """Return a key that sorts options: those that meet the wish, then the cheapest, or the narrowest of a budget."""
    size = (one.cost, one.half_width) if wish.is_precision else (one.half_width, one.cost)
    return not one.meets, *size


def _check_numbers(labels_per_document: int | Sequence[int] | None, *, has_labels: bool) -> tuple[int, ...]:
    """Return the numbers of labels per document to compare."""
    if labels_per_document is None:
        return (1,) if has_labels else LABELS
    numbers = (labels_per_document,) if isinstance(labels_per_document, int) else tuple(labels_per_document)
    for number in numbers or (0,):
        check_parameter("labels_per_document", number, [Number(1, integer=True)])
    return tuple(dict.fromkeys(numbers))


def _models(
    runs: Mapping[str, Any] | None,
    labels: Any,
    expert: Any,
    measure: Measure,
    queries: int | None,
    unit: Unit,
    random_state: int,
) -> tuple[list[DesignModel], int, str, str]:
    """Return the models of the designs, the largest number of queries, where they come from, and a table library."""
    if runs is None or labels is None:
        for name, value, other in (("labels", labels, "runs"), ("expert", expert, "runs"), ("runs", runs, "labels")):
            if value is not None:
                fix = Fix("give {} too", other)
                raise UsageError(f"needs {other} too", parameter=name, kind="incomplete-pilot", fix=fix)
        if queries is None:
            fix = Fix("give it with {}", "queries", 200)
            raise UsageError("is needed without a pilot", parameter="queries", kind="queries-unknown", fix=fix)
        return typical_designs(measure), queries, f"Variances are typical ones: {TYPICAL_SOURCE}.", "pandas"
    if len(runs) != 2:
        problem = f"must be two rankings to compare, not {len(runs)}"
        raise UsageError(problem, parameter="runs", kind="not-two-runs", fix="plan one comparison at a time")
    backend = frame_library(as_run(next(iter(runs.values()))))
    if expert is None:
        models, n_queries = _scaled_designs(runs, labels, measure)
        source = (
            f"Documents are those of the rankings ({counted(n_queries, 'query')}), variances typical ones: "
            f"{TYPICAL_SOURCE}."
        )
        return models, queries or n_queries, source, backend
    prepared = prepare_estimate(runs, labels, expert, measure, unit, random_state, allow_feature_labels=True)
    for message in prepared.warnings:
        warnings.warn(DataWarning(message), stacklevel=3)
    models = designs_of_pilot(prepared, np.array([-1.0, 1.0]))
    n_expert, n_queries = int(prepared.joined.is_expert_query.sum()), len(prepared.joined.queries)
    found, least, noun = n_expert, MIN_PILOT_QUERIES, "query"
    if prepared.unit == "document":
        found, least, noun = prepared.n_expert_grades, MIN_PILOT_GRADES, "drawn document"
    if found < least:
        problem = f"experts graded {counted(found, noun)}; the plan of a pilot below {least} is a matter of chance"
        fix = Fix("let experts grade more, or plan for some more grades")
        warnings.warn(DataWarning(Message(problem, "small-pilot", "warning", fixes=(fix,))), stacklevel=3)
    pilot = f"{counted(prepared.n_expert_grades, 'expert grade')} of {counted(n_expert, 'query')}"
    source = f"Variances are those of the pilot: {pilot}, {counted(n_queries, 'query')} with labels."
    if prepared.unit == "document":
        source += " A pilot of drawn documents predicts further draws of documents only."
    elif models[-1].scale != 1:
        source += (
            " By document, nDCG divides by the ideal DCG of the labels: half widths are converted to the scale of "
            f"whole queries (x {models[-1].scale:.2f})."
        )
    return models, queries or n_queries, source, backend


def _scaled_designs(runs: Mapping[str, Any], labels: Any, measure: Measure) -> tuple[list[DesignModel], int]:
    """Return typical designs with the documents of the runs and the share of the queries in which they differ."""
    known = read_labels(labels) if isinstance(labels, str | Path) else labels
    joined = join_runs({str(name): run for name, run in runs.items()}, known, None)
    share = float((~joined.equal_rankings(measure)).mean())
    check_runs_differ(share)
    n_queries = len(joined.queries)
    models = [
        replace(
            model,
            documents_per_query=joined.n_first_documents(measure) / n_queries,
            query_variance=share * model.query_variance,
            grade_variances=share * model.grade_variances,
            share_different=share,
        )
        for model in typical_designs(measure)
    ]
    return models, n_queries


def _best_option(
    model: DesignModel, wish: Wish, n_queries: int, n_labels: int, prices: tuple[float, float]
) -> PlanOption:
    """Return the cheapest option of a design that meets the wish, or the narrowest one if none does.

    Args:
        model: the design.
        wish: what to reach.
        n_queries: largest number of queries.
        n_labels: number of labels per document.
        prices: price of an expert grade and of a label.

    """
    sizes = np.unique(np.geomspace(min(MIN_PLANNED_QUERIES, n_queries), n_queries, N_POOL_SIZES).round().astype(int))
    options = []
    for size in sizes.tolist():
        n_grades = _needed_grades(model, wish, size, n_labels, prices)
        if n_grades is not None:
            options.append(_make_option(model, wish, size, n_grades, n_labels, prices))
    if not options:
        everything = round(n_queries * model.documents_per_query)
        options.append(_make_option(model, wish, n_queries, everything, n_labels, prices))
    return min(options, key=lambda one: (*rank_option(one, wish), one.queries))


def _needed_grades(
    model: DesignModel, wish: Wish, n_queries: int, n_labels: int, prices: tuple[float, float]
) -> float | None:
    """Return the smallest number of grades that is precise enough, or the largest for the budget; None if none is."""
    per_step = 1.0 if model.name == "document" else model.documents_per_query
    most = int(n_queries * model.documents_per_query / per_step + 1e-9)
    fewest = min(2 if model.name != "document" else MIN_PLANNED_QUERIES, most)
    if not wish.is_precision:
        assert wish.budget is not None
        rest = wish.budget - prices[1] * n_labels * n_queries * model.documents_per_query
        step = min(int(rest / (prices[0] * per_step) + 1e-9), most) if prices[0] else most
        return step * per_step if rest >= 0 and step >= fewest else None

    def is_enough(step: int) -> bool:
        return wish.is_precise(model, n_queries, step * per_step)

    smallest = _smallest(is_enough, fewest, most)
    return None if smallest is None else smallest * per_step


def _smallest(is_enough: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the smallest number that is enough, by bisection; None if the largest is not.

    >>> _smallest(lambda number: number**2 > 50, 1, 100), _smallest(lambda number: number > 5, 1, 5)
    (8, None)
    """
    if not is_enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low


def _make_option(
    model: DesignModel, wish: Wish, n_queries: int, n_grades: float, n_labels: int, prices: tuple[float, float]
) -> PlanOption:
    expert_queries = None if model.name == "document" else round(n_grades / model.documents_per_query)
    if model.name == "experts":
        assert expert_queries is not None
        n_queries = expert_queries
    n_all_labels = round(n_queries * model.documents_per_query * n_labels)
    cost = prices[0] * round(n_grades) + prices[1] * n_all_labels
    power = None if wish.difference is None else model.power(n_queries, n_grades, wish.level, wish.difference)
    is_precise = wish.is_precise(model, n_queries, n_grades)
    return PlanOption(
        design=model.name,
        queries=n_queries,
        expert_queries=expert_queries,
        expert_grades=round(n_grades),
        labels_per_document=n_labels,
        labels=n_all_labels,
        cost=cost,
        half_width=model.half_width(n_queries, n_grades, wish.level),
        power=power,
        is_precise=is_precise,
        meets=is_precise and (wish.budget is None or cost <= wish.budget + 1e-9),
    )


def _enough_queries(models: list[DesignModel], wish: Wish) -> int | None:
    """Return the smallest number of queries with the wanted precision if experts grade all documents, or None."""
    numbers = [
        _smallest(
            lambda size, model=model: wish.is_precise(model, size, size * model.documents_per_query),  # type: ignore[misc]
            MIN_PLANNED_QUERIES,
            MAX_PLANNED_QUERIES,
        )
        for model in models
    ]
    return min((number for number in numbers if number is not None), default=None)
