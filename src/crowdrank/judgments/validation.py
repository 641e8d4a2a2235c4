"""Validate judgments, expert grades, features and runs, and whether they fit each other."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank.errors import DataWarning, Fix, InputError, Message, parameter_prefix, shown
from crowdrank.judgments import ids
from crowdrank.judgments.frames import column_to_arrow
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.inputs import TableLike
from crowdrank.judgments.read import (
    Features,
    FeaturesLike,
    JudgmentsLike,
    read_features,
    read_gold,
    read_judgments,
    read_run,
)
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.summary import Inspection, column_text, grade_shares, inspect
from crowdrank.judgments.table import Judgments

SAME_AS_GRADE = 0.999
"""Correlation with the expert grade from which a feature is reported as a copy of it."""
MIN_GRADED = 10
"""Minimum number of documents with an expert grade for this comparison."""
Data = TypeVar("Data")


@dataclass(frozen=True)
class ValidationReport:
    """Facts and messages per input, and messages about how the inputs fit each other.

    Attributes:
        inputs: inspections by name: `judgments`, `gold`, `features`, `run` and so on.
        fit: messages about pairs of inputs.

    """

    inputs: dict[str, Inspection]
    fit: tuple[Message, ...] = ()

    @property
    def problems(self) -> list[Message]:
        """All errors."""
        inspections = [*self.inputs.values(), Inspection({}, self.fit)]
        return [message for inspection in inspections for message in inspection.problems]

    @property
    def is_valid(self) -> bool:
        """Whether there is no error; warnings and notes may remain."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return the report, ready for JSON."""
        return {
            "valid": self.is_valid,
            "inputs": {
                name: {"facts": one.facts, "messages": [message.to_dict() for message in one.messages]}
                for name, one in self.inputs.items()
            },
            "fit": [message.to_dict() for message in self.fit],
        }


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The (query, document) pairs of an input."""

    name: str
    query: pa.Array
    document: pa.Array


def validate(
    judgments: JudgmentsLike | ShardedJudgments | None = None,
    *,
    gold: Gold | TableLike | None = None,
    features: FeaturesLike | None = None,
    runs: Sequence[TableLike] = (),
    read_options: Mapping[str, Any] | None = None,
    gold_options: Mapping[str, Any] | None = None,
) -> ValidationReport:
    """Validate inputs, alone or together.

    Args:
        judgments: judgments, files or a DataFrame.
        gold: expert grades, files or a DataFrame.
        features: features, files or a DataFrame.
        runs: files or DataFrames of rankings.
        read_options: options of `read_judgments`.
        gold_options: options of `read_gold`.

    Returns:
        The report. An input that cannot be read is an error in it, not an exception.

    >>> import pandas as pd
    >>> labels = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [1, 0]})
    >>> report = validate(labels, gold=pd.DataFrame({"document": ["A"], "grade": [1]}))
    >>> print(report.problems[0].problem)
    no document of the expert grades occurs in the judgments: 'A' (query 'all') but 'a' (query 'all')

    """
    inputs: dict[str, Inspection] = {}

    def read(name: str, source: Any, reader: Callable[[Any], Data], summary: Callable[[Data], Inspection]) -> Any:
        if source is None:
            return None
        try:
            data = reader(source)
        except InputError as error:
            inputs[name] = Inspection({}, (error.message,))
            return None
        inputs[name] = summary(data)
        return data

    options = {**(read_options or {}), "on_bad_rows": "skip"}
    table = read("judgments", judgments, lambda source: _judgments(source, options), inspect)
    experts = read("gold", gold, lambda source: _gold(source, gold_options or {}), _inspect_gold)
    matrix = read("features", features, _features, _inspect_features)
    pairs = [_Pairs("features", matrix.query, matrix.document)] if matrix is not None else []
    for number, source in enumerate(runs):
        name = "run" if len(runs) == 1 else f"run {number + 1}"
        ranking = read(name, source, partial(_run_pairs, name=name), _inspect_run)
        pairs += [] if ranking is None else [ranking]
    fit = list(_fit(table, experts, pairs))
    if experts is not None and matrix is not None:
        fit += _copies_of_grade(experts, matrix)
    return ValidationReport(inputs, tuple(fit))


def _judgments(source: Any, options: Mapping[str, Any]) -> Judgments | ShardedJudgments:
    return source if isinstance(source, Judgments | ShardedJudgments) else read_judgments(source, **options)


def _gold(source: Any, options: Mapping[str, Any]) -> Gold:
    if isinstance(source, Gold):
        return source
    with parameter_prefix("gold_"):
        return read_gold(source, **options)


def _features(source: Any) -> Features:
    if isinstance(source, Features):
        return source
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # they are among the notes
        return read_features(source)


def _run_pairs(source: Any, name: str) -> _Pairs:
    ranking = read_run(source)
    query, document = (column_to_arrow(ranking, role).combine_chunks() for role in ("query", "document"))
    return _Pairs(name, query, document)


def _inspect_gold(gold: Gold) -> Inspection:
    facts = {
        "rows": f"{gold.report.rows:,}",
        "queries": f"{len(gold.query.unique()):,}",
        "documents": f"{len(gold):,}",
        "columns": column_text(gold.report.columns),
        "grades": grade_shares(gold.scale, np.bincount(gold.code, minlength=len(gold.scale))),
    }
    left_out = (
        Message(f"{counted(n, 'row')} left out ({reason})", "rows-left-out", "note")
        for reason, n in gold.report.skipped.items()
    )
    return Inspection(facts, (*left_out, *gold.report.notes))


def _inspect_features(features: Features) -> Inspection:
    matrix = features.matrix
    missing = np.isnan(matrix)
    constant = [
        name
        for name, column in zip(features.names, matrix.T, strict=True)
        if len(np.unique(column[~np.isnan(column)])) <= 1
    ]
    facts = {
        "queries": f"{len(features.query.unique()):,}",
        "documents": f"{len(matrix):,}",
        "features": f"{len(features.names):,}",
        "missing values": f"{missing.mean():.1%}",
    }
    if features.columns:
        facts["columns"] = column_text(features.columns)
    messages = [*_duplicates(_Pairs("features", features.query, features.document)), *features.notes]
    if constant:
        listed = ", ".join(constant[:5]) + (", ..." if len(constant) > 5 else "")
        problem = f"{counted(len(constant), 'feature')} with the same value in all rows: {listed}"
        messages.append(Message(problem, "constant-features", "note"))
    return Inspection(facts, tuple(messages))


def _inspect_run(run: _Pairs) -> Inspection:
    facts = {"queries": f"{len(run.query.unique()):,}", "documents": f"{len(run.query):,}"}
    return Inspection(facts, tuple(_duplicates(run)))


def _duplicates(pairs: _Pairs) -> Iterator[Message]:
    """Yield an error if a document of a query occurs twice."""
    keys, rows = np.unique(_keys(pairs), return_index=True)
    if len(keys) < len(pairs.query):
        row = int(np.setdiff1d(np.arange(len(pairs.query)), rows)[0])
        problem = f"the document {_pair_text(pairs, row)} occurs twice"
        fixes = (Fix("leave one row for each document of a query"),)
        yield Message(problem, "duplicate-documents", fixes=fixes)


def _keys(pairs: _Pairs) -> NDArray[np.int64]:
    """Return one number per pair (n,)."""
    (query, _), (document, documents) = (ids.encode(pa.chunked_array([one])) for one in (pairs.query, pairs.document))
    return query.astype(np.int64) * len(documents) + document


def _pair_text(pairs: _Pairs, row: int) -> str:
    return f"{shown(pairs.document[row].as_py())} (query {shown(pairs.query[row].as_py())})"


def _fit(
    judgments: Judgments | ShardedJudgments | None, gold: Gold | None, others: Sequence[_Pairs]
) -> Iterator[Message]:
    """Yield messages about how the pairs and scales of inputs fit the judgments, or the expert grades without any."""
    if gold is not None and judgments is not None:
        yield from _overlap(_Pairs("expert grades", gold.query, gold.document), "judgments", judgments)
        yield from _scales_fit(gold, judgments.main_scale, judgments.report.guessed)
    base = gold.as_judgments() if judgments is None and gold is not None else judgments
    if base is not None:
        for pairs in others:
            yield from _overlap(pairs, "expert grades" if judgments is None else "judgments", base)


def _overlap(pairs: _Pairs, base_name: str, base: Judgments | ShardedJudgments) -> Iterator[Message]:
    """Yield messages about the share of pairs that occur in the base, and about ids that differ only in form."""
    matched = np.zeros(len(pairs.query), bool)
    for table in _tables(base):
        matched |= table.positions(pairs.query, pairs.document) >= 0
    n, total = int(matched.sum()), len(matched)
    if n == 0:
        table = next(_tables(base))
        item = _Pairs("", table.queries.take(table.item_query[:1]), table.documents.take(table.item_document[:1]))
        problem = f"no document of the {pairs.name} occurs in the {base_name}: {_pair_text(pairs, 0)} but"
        fixes = (Fix("write the ids of queries and documents in the same form in both"),)
        yield Message(f"{problem} {_pair_text(item, 0)}", "nothing-in-common", fixes=fixes)
    elif n < total:
        problem = f"{n:,} of {total:,} documents of the {pairs.name} ({n / total:.1%}) occur in the {base_name}"
        yield Message(problem, "partial-overlap", "note")
    if n < total:
        yield from _look_alikes(pairs, base_name, base)


def _tables(base: Judgments | ShardedJudgments) -> Iterator[Judgments]:
    if isinstance(base, Judgments):
        yield base
    else:
        yield from (base.load(place) for place in range(len(base.shards)))


def _look_alikes(pairs: _Pairs, base_name: str, base: Judgments | ShardedJudgments) -> Iterator[Message]:
    """Yield a warning for each role whose ids differ from ids of the base only in form."""
    for role, wanted in (("query", pairs.query.unique()), ("document", pairs.document.unique())):
        exact, alike = np.zeros(len(wanted), bool), np.zeros(len(wanted), bool)
        example = ""
        for table in _tables(base):
            known = table.queries if role == "query" else table.documents
            form = ids.match(normal_forms(known), normal_forms(wanted))
            exact |= ids.match(known, wanted) >= 0
            alike |= form >= 0
            differing = np.flatnonzero((form >= 0) & ~exact)
            if len(differing) and not example:
                row = int(differing[0])
                example = f"{shown(wanted[row].as_py())} and {shown(known[int(form[row])].as_py())}"
        if n := int((alike & ~exact).sum()):
            problem = f"{counted(n, f'{role} id')} of the {pairs.name} found in the {base_name} only in another form"
            fixes = (Fix("ids are compared exactly; write them in the same form in both"),)
            yield Message(f"{problem}, such as {example}", "look-alike-ids", "warning", fixes=fixes)


def normal_forms(column: pa.Array) -> pa.Array:
    """Return ids without white space, case, Unicode variants, leading zeros and a decimal `.0`.

    >>> normal_forms(pa.array([" Q007 ", "q7.0"])).to_pylist()
    ['q7', 'q7']
    """
    text = pc.utf8_lower(pc.utf8_normalize(column.cast(pa.string()), form="NFKC"))
    for pattern, replacement in ((r"\s+", ""), (r"([0-9])\.0+$", r"\1"), (r"(^|[^0-9])0+([0-9])", r"\1\2")):
        text = pc.replace_substring_regex(text, pattern, replacement)
    return text


def _scales_fit(gold: Gold, scale: Scale, inferred: bool) -> Iterator[Message]:
    """Yield a warning if expert grades and judgments are on different scales."""
    experts = gold.scale
    if experts == scale:
        return
    problem = f"the expert grades are on the scale {experts} and the judgments on {scale}"
    fixes = (
        Fix("convert the expert grades to the scale of the judgments"),
        Fix("if the judgments are on the same scale, give {}", "grades", str(experts)),
    )
    both_inferred = gold.report.guessed and experts.numeric and scale.numeric
    is_part = both_inferred and experts.values[-1] <= scale.values[-1] and experts.values[0] >= scale.values[0]
    severity: Any = "note" if is_part else "warning"
    yield Message(problem, "scales-differ", severity, fixes=fixes)


def _copies_of_grade(gold: Gold, features: Features) -> Iterator[Message]:
    """Yield a warning for features that are copies of the expert grade."""
    table = gold.as_judgments()
    position = table.positions(features.query, features.document)
    rows = np.flatnonzero(position >= 0)
    grade = table.grade[table.offsets[position[rows]]].astype(float)
    if len(rows) < MIN_GRADED:
        return
    columns = zip(features.names, features.matrix[rows].T, strict=True)
    copies = [name for name, column in columns if _correlates(column, grade)]
    if copies:
        problem = f"features that equal the expert grade: {', '.join(map(shown, copies))}"
        yield Message(problem, "feature-equals-grade", "warning", fixes=(Fix("remove them from the features"),))


def _correlates(column: NDArray[np.float64], grade: NDArray[np.float64]) -> bool:
    present = ~np.isnan(column)
    if len(np.unique(column[present])) < 2 or len(np.unique(grade[present])) < 2:
        return False
    return bool(abs(np.corrcoef(column[present], grade[present])[0, 1]) >= SAME_AS_GRADE)
