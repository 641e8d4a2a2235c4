"""Decide whether a new ranking may replace the live one, for checks of pull requests."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from crowdrank._text import markdown_table, markdown_text
from crowdrank._typing import Booleans, Integers
from crowdrank.constraints import Number, check_parameter
from crowdrank.errors import DataWarning, Fix, Message
from crowdrank.estimation.by_query import ContrastEstimate
from crowdrank.estimation.estimate import Estimate, check_arguments, summarize
from crowdrank.estimation.forecast import Forecast
from crowdrank.estimation.prepared import PreparedEstimate, Unit, prepare_estimate
from crowdrank.evaluation.evaluate import as_run
from crowdrank.evaluation.measures import JUDGED_CUTOFF, Measure
from crowdrank.readers.sources import BadRows, FrameSource
from crowdrank.readers.texts import Texts

Decision = Literal["pass", "worse", "undecided"]
EXIT_CODES: dict[Decision, int] = {"pass": 0, "worse": 1, "undecided": 3}
"""Exit code of the command by decision; 2 is invalid input."""
MAX_JUDGED_GAP = 0.05
"""Maximum share of first documents by which the new ranking may have fewer labels than the live one to be worse."""
MAX_LISTED_DOCUMENTS = 3
"""Maximum number of documents listed per query that entered or left the first ones."""
MAX_TITLE_LENGTH = 60
"""Maximum number of characters of a title of a document."""
LIVE, NEW = "live", "new"


@dataclass(frozen=True)
class ChangedQuery:
    """A query whose first documents changed.

    Attributes:
        query: its id.
        live: value of the live ranking by the labels.
        new: value of the new ranking by the labels.
        expert_difference: difference of the values by the expert grades; NaN unless experts graded the query.
        entered: first documents of the new ranking that were not among the first before, best first.
        left: first documents of the live ranking that are no longer among the first, best first.

    """

    query: str
    live: float
    new: float
    expert_difference: float
    entered: tuple[str, ...]
    left: tuple[str, ...]

    def to_dict(self, texts: Texts) -> dict[str, Any]:
        """Return the query with its text and the titles of its documents, for JSON."""
        return {
            "query": self.query,
            "text": texts.queries.get(self.query),
            "live": self.live,
            "new": self.new,
            "difference": self.new - self.live,
            "expert_difference": self.expert_difference,
            "entered": [{"document": one, "title": self._title(one, texts)} for one in self.entered],
            "left": [{"document": one, "title": self._title(one, texts)} for one in self.left],
        }

    def row(self, texts: Texts) -> dict[str, Any]:
        """Return a row of the table."""
        text = texts.queries.get(self.query)
        return {
            "query": self.query if text is None else f"{text} ({self.query})",
            "live": self.live,
            "new": self.new,
            "difference": f"{self.new - self.live:+.4f}",
            "by experts": "" if self.expert_difference != self.expert_difference else f"{self.expert_difference:+.4f}",
            "entered": self._listed(self.entered, texts),
            "left": self._listed(self.left, texts),
        }

    def _listed(self, documents: tuple[str, ...], texts: Texts) -> str:
        names = [self._title(one, texts) or one for one in documents[:MAX_LISTED_DOCUMENTS]]
        omitted = len(documents) - len(names)
        return "; ".join([*names, *([f"{omitted} more"] if omitted else [])])

    def _title(self, document: str, texts: Texts) -> str | None:
        known = texts.of_document(self.query, document)
        text = known.get("title") or known.get("text")
        return None if text is None else text if len(text) <= MAX_TITLE_LENGTH else text[: MAX_TITLE_LENGTH - 1] + "…"


@dataclass(frozen=True)
class GateResult:
    """Decision whether a new ranking may replace the live one.

    Attributes:
        decision: 'pass' (not worse by more than the margin), 'worse', or 'undecided' (not enough evidence).
        margin: largest loss that is acceptable.
        difference: estimated difference, new minus live, with its interval.
        forecast: what would suffice for a decision; None if it is decided.
        estimate: the estimates of both rankings.
        changed: queries that changed most, by the labels.
        n_changed: number of queries whose first documents changed.
        warnings: what to check.

    """

    decision: Decision
    margin: float
    difference: ContrastEstimate
    forecast: Forecast | None
    estimate: Estimate
    changed: tuple[ChangedQuery, ...]
    n_changed: int
    warnings: tuple[Message, ...]

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0 pass, 1 worse, 3 undecided."""
        return EXIT_CODES[self.decision]

    def reason(self) -> str:
        """Return the decision and its reason in a sentence or two."""
        one, level = self.difference, f"{self.estimate.level:.4g} interval"
        found = f"{one.value:+.4f} {self.estimate.measure}, {level} {one.lower:+.4f} to {one.upper:+.4f}"
        if self.decision == "pass":
            return f"Not worse by more than {self.margin:g} ({found})."
        if self.decision == "worse":
            return f"Worse ({found})."
        n_grades, n_queries = self.estimate.n_expert_grades, self.estimate.n_queries
        missing = "labels of all first documents of both rankings"
        if self.forecast is not None:
            missing = self.forecast.sentence(n_grades, n_queries)
        return f"Not enough evidence ({found}; margin {self.margin:g}). What would suffice: {missing}."

    def to_dict(self, texts: Texts | None = None) -> dict[str, Any]:
        """Return the decision as a dictionary that JSON can represent, with texts if they are given."""
        known = Texts() if texts is None else texts
        return {
            "decision": self.decision,
            "exit_code": self.exit_code,
            "reason": self.reason(),
            "margin": self.margin,
            "difference": self.difference.value,
            "lower": self.difference.lower,
            "upper": self.difference.upper,
            "forecast": None if self.forecast is None else self.forecast.to_dict(),
            "changed_queries": self.n_changed,
            "changed": [one.to_dict(known) for one in self.changed],
            **self.estimate.to_dict(),
            "warnings": [{"kind": warning.kind, "problem": warning.problem} for warning in self.warnings],
        }

    def markdown(self, texts: Texts | None = None, write_message: Callable[[Message], str] = str) -> str:
        """Return the decision in Markdown, as a comment of a pull request; ids and texts are escaped.

        Args:
            texts: texts of queries and documents.
            write_message: function that writes a warning as text; by default with the parameters of Python.

        """
        known, title = Texts() if texts is None else texts, {"pass": "passes", "worse": "is worse"}
        cutoff = self.estimate.measure.cutoff or JUDGED_CUTOFF
        rows = [
            {
                "ranking": row["run"],
                str(self.estimate.measure): f"{row['estimate']:.4f}",
                "interval": f"{row['lower']:.4f} to {row['upper']:.4f}",
                f"judged@{cutoff}": f"{row['judged']:.1%}",
                f"graded@{cutoff}": "" if row["graded"] != row["graded"] else f"{row['graded']:.1%}",
            }
            for row in self.estimate.rows.to_pylist()
        ]
        lines = [
            f"## The new ranking {title.get(self.decision, 'cannot be judged yet')}",
            "",
            markdown_text(self.reason()),
            "",
            *markdown_table(rows),
            "",
            *self._changed_lines(known),
            *(f"- Warning: {markdown_text(write_message(warning))}" for warning in self.warnings),
            *(f"- {markdown_text(sentence)}" for sentence in self.estimate.protocol()),
        ]
        return "\n".join(lines) + "\n"

    def _changed_lines(self, texts: Texts) -> list[str]:
        """Return the section about changed queries; none if none is listed."""
        if not self.changed:
            return []
        return [
            f"### Queries that changed most ({len(self.changed)} of {self.n_changed:,})",
            "",
            *markdown_table([one.row(texts) for one in self.changed]),
            "",
            "The values of single queries are by the labels.",
            "",
        ]


def gate(
    new: Any,
    live: Any,
    labels: Any,
    expert: Any = None,
    *,
    margin: float = 0.005,
    measure: str | Measure = "nDCG@10",
    level: float = 0.95,
    unit: Unit = "auto",
    n_changed: int = 10,
    random_state: int = 0,
    allow_feature_labels: bool = False,
) -> GateResult:
    """Decide whether a new ranking may replace the live one.

    It passes if the interval of the difference (new minus live) is above -`margin`: if the new ranking is worse by more
    than the margin, this happens with probability (1 - `level`) / 2 at most. It is worse if the interval is below 0 and
    it does not pass. Otherwise the evidence is not enough. A ranking is not called worse if it has clearly fewer labels
    than the live one, because documents without a label count as not relevant.

    Args:
        new: ranking: a DataFrame with query, document and score, a path, or a consensus.
        live: ranking to compare it with.
        labels: labels of the documents, as in :func:`crowdrank.estimate`.
        expert: expert grades, as in :func:`crowdrank.estimate`; without them, the decision trusts the labels.
        margin: largest loss that is acceptable.
        measure: the measure.
        level: level of the interval.
        unit: 'query', 'document', or 'auto': by document if the expert grades have probabilities.
        n_changed: number of queries that changed most to list.
        random_state: random seed.
        allow_feature_labels: whether labels that used features may be used without expert grades.

    Raises:
        InputError: the inputs cannot be used.
        UsageError: an argument has an invalid value.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=40, random_state=1)
    >>> labels = crowdrank.MajorityVote().fit(world.judgments).consensus_
    >>> good, bad = world.gold.assign(score=world.gold.grade), world.gold.assign(score=-world.gold.grade)
    >>> crowdrank.gate(good, bad, labels, world.gold).decision, crowdrank.gate(bad, good, labels, world.gold).decision
    ('pass', 'worse')

    """
    check_parameter("margin", margin, [Number(0)])
    check_parameter("n_changed", n_changed, [Number(0, integer=True)])
    runs = {LIVE: live, NEW: new}
    check_arguments(runs, LIVE, level, unit)
    prepared = prepare_estimate(runs, labels, expert, measure, unit, random_state, allow_feature_labels)
    difference = prepared.difference(NEW, LIVE, level)
    is_changed = ~prepared.joined.equal_rankings(prepared.measure)
    decision = decide(difference, margin) if is_changed.any() else "pass"
    messages = prepared.warnings
    has_labels = prepared.judged[NEW] >= prepared.judged[LIVE] - MAX_JUDGED_GAP
    if decision == "worse" and not has_labels:
        decision = "undecided"
        problem = (
            f"the new ranking has labels for {prepared.judged[NEW]:.1%} of its first documents, the live one for "
            f"{prepared.judged[LIVE]:.1%}, so that it may only look worse"
        )
        messages = (*messages, Message(problem, "fewer-labels", "warning", fixes=(Fix("label its first documents"),)))
    forecast = None
    if decision == "undecided" and has_labels:
        forecast = prepared.forecast(difference, max(difference.value + margin, -difference.value))
    for message in messages:
        warnings.warn(DataWarning(message), stacklevel=2)
    changed = _changed_queries(prepared, is_changed, runs, n_changed)
    result = summarize(prepared, LIVE, level)
    return GateResult(decision, margin, difference, forecast, result, changed, int(is_changed.sum()), messages)


def decide(difference: ContrastEstimate, margin: float) -> Decision:
    """Return the decision by the interval of the difference, new minus live.

    >>> [decide(ContrastEstimate(0.0, *ends, 1.0, 0.0), 0.01) for ends in ((-0.005, 0.1), (-0.1, -0.02), (-0.1, 0.1))]
    ['pass', 'worse', 'undecided']
    """
    if difference.lower > -margin:
        return "pass"
    return "worse" if difference.upper < 0 else "undecided"


def _changed_queries(
    prepared: PreparedEstimate, is_changed: Booleans, runs: dict[str, Any], n_changed: int
) -> tuple[ChangedQuery, ...]:
    """Return the queries whose values by the labels differ most; of equal ones, the first."""
    joined, measure = prepared.joined, prepared.measure
    values = joined.label_values(measure)
    places = np.flatnonzero(is_changed)
    order = np.argsort(-np.abs(values[places, 1] - values[places, 0]), kind="stable")
    chosen: Integers = places[order[:n_changed]]
    experts = np.full(len(values), np.nan)
    if prepared.unit == "query":
        graded = joined.is_expert_query[joined.queries]
        experts[graded] = np.diff(joined.expert_values(measure))[graded, 0]
    ids = [joined.first.queries[int(joined.queries[place])].as_py() for place in chosen]
    top = {name: first_documents(run, ids, measure.cutoff or JUDGED_CUTOFF) for name, run in runs.items()}
    return tuple(
        ChangedQuery(
            str(query),
            float(values[place, 0]),
            float(values[place, 1]),
            float(experts[place]),
            tuple(one for one in top[NEW][query] if one not in top[LIVE][query]),
            tuple(one for one in top[LIVE][query] if one not in top[NEW][query]),
        )
        for place, query in zip(chosen, ids, strict=True)
    )


def first_documents(run: Any, queries: list[Any], cutoff: int) -> dict[Any, list[str]]:
    """Return the first documents of each query, best first; of equal scores, in the order of the ids."""
    table = FrameSource(as_run(run), "the run").read(["query", "document", "score"], BadRows())
    wanted, by_query = {str(query): query for query in queries}, dict[Any, list[tuple[float, str]]]()
    for query, document, score in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
        if str(query) in wanted:
            by_query.setdefault(wanted[str(query)], []).append((-float(score), str(document)))
    return {query: [document for _, document in sorted(rows)[:cutoff]] for query, rows in by_query.items()}
