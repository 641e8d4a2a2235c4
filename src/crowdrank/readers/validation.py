"""Validate judgments, preferences, expert grades, features and runs, alone and against each other."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.errors import DataWarning, Fix, InputError, Message, parameter_prefix, shown
from crowdrank.judgments import ids
from crowdrank.judgments.frames import column_to_arrow
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.pair_index import PairIndex
from crowdrank.judgments.preferences import Preferences, inspect_preferences
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.summary import Inspection, describe_columns, describe_grade_shares, inspect
from crowdrank.judgments.table import AnyJudgments, Judgments
from crowdrank.readers.features import Features, FeaturesLike, read_features
from crowdrank.readers.inputs import TableLike
from crowdrank.readers.leak_check import find_leaks
from crowdrank.readers.preference_files import read_preferences
from crowdrank.readers.read import read_gold, read_judgments
from crowdrank.readers.read_options import UNKNOWN_EXCLUDED, excluded_ids, share_excluded
from crowdrank.readers.runs import read_run

MIN_COPY_CORRELATION = 0.999
"""Minimum correlation of a feature with the expert grade to report it as a copy of the grade."""
MIN_GRADED_DOCUMENTS = 10
"""Minimum number of documents with an expert grade to look for copies of the grade among the features."""
MIN_COMPARED_DOCUMENTS = 30
"""Minimum number of documents with expert grades and judgments to compare them."""
MAX_CHANCE_Z, MIN_SURE_Z = 2.0, 4.0
"""Agreement of two sets of grades, in standard errors: below the first it may be chance, from the second it is not."""
MIN_BETTER_Z = 3.0
"""Minimum difference of two agreements, in standard errors, for the larger one to be clearly better."""
MAX_SHIFTED_ROWS = 50_000
"""Maximum number of expert grades with which to look for shifted ids."""
InputData = TypeVar("InputData")


@dataclass(frozen=True)
class ValidationReport:
    """Facts and messages about each input, and messages about how well the inputs match each other.

    Attributes:
        inputs: inspections by name: `judgments`, `gold`, `features`, `run` and so on.
        fit: messages about inputs that do not match each other.

    """

    inputs: dict[str, Inspection]
    fit: tuple[Message, ...] = ()

    @property
    def problems(self) -> list[Message]:
        """All messages that are errors."""
        inspections = [*self.inputs.values(), Inspection({}, self.fit)]
        return [message for inspection in inspections for message in inspection.problems]

    @property
    def warnings(self) -> list[Message]:
        """All messages that are warnings."""
        messages = [*(message for one in self.inputs.values() for message in one.messages), *self.fit]
        return [message for message in messages if message.severity == "warning"]

    @property
    def is_valid(self) -> bool:
        """Whether there is no error; warnings and notes may remain."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "valid": self.is_valid,
            "warnings": len(self.warnings),
            "inputs": {
                name: {"facts": one.facts, "messages": [message.to_dict() for message in one.messages]}
                for name, one in self.inputs.items()
            },
            "fit": [message.to_dict() for message in self.fit],
        }


@dataclass(frozen=True, eq=False)
class _InputPairs:
    """The (query, document) pairs of an input."""

    name: str
    query: pa.Array
    document: pa.Array


def validate(
    judgments: AnyJudgments | TableLike | None = None,
    *,
    gold: Gold | TableLike | None = None,
    features: FeaturesLike | None = None,
    runs: Sequence[TableLike] = (),
    preferences: Preferences | TableLike | None = None,
    read_options: Mapping[str, Any] | None = None,
    gold_options: Mapping[str, Any] | None = None,
    preference_options: Mapping[str, Any] | None = None,
) -> ValidationReport:
    """Validate inputs, alone or together.

    Args:
        judgments: judgments, files or a DataFrame.
        gold: expert grades, files or a DataFrame.
        features: features, files or a DataFrame.
        runs: files or DataFrames of rankings.
        preferences: preferences between two documents, files or a DataFrame.
        read_options: options of `read_judgments`. Rows that cannot be used are errors, or notes if `on_bad_rows` is
            `skip`; all others are checked in both cases.
        gold_options: options of `read_gold`.
        preference_options: options of `read_preferences`; rows that cannot be used are as in `read_options`.

    Returns:
        The report. An input that cannot be read is an error in it, not an exception.

    >>> import pandas as pd
    >>> labels = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [1, 0]})
    >>> report = validate(labels, gold=pd.DataFrame({"document": ["A"], "grade": [1]}))
    >>> print(report.problems[0].problem)
    no document of the expert grades occurs in the judgments: 'A' (query 'all') but 'a' (query 'all')

    """
    inputs: dict[str, Inspection] = {}

    def read_input(
        name: str, source: Any, reader: Callable[[Any], InputData], summary: Callable[[InputData], Inspection]
    ) -> Any:
        if source is None:
            return None
        try:
            data = reader(source)
        except InputError as error:
            inputs[name] = Inspection({}, (error.message,))
            return None
        inputs[name] = summary(data)
        return data

    options, summary = _skipping(read_options, inspect)
    judgment_table = read_input("judgments", judgments, lambda source: _load_judgments(source, options), summary)
    other_options, other_summary = _skipping(preference_options, _inspect_preferences)
    preference_table = read_input(
        "preferences", preferences, lambda source: _load_preferences(source, other_options), other_summary
    )
    if judgment_table is not None and preference_table is not None:
        excluded = excluded_ids((read_options or {}).get("exclude"))
        reports = share_excluded(judgment_table, preference_table, excluded)
        for name, report in zip(("judgments", "preferences"), reports, strict=True):
            kept = [one for one in inputs[name].messages if one.kind != UNKNOWN_EXCLUDED]
            notes = (one for one in report.notes if one.kind == UNKNOWN_EXCLUDED)
            inputs[name] = replace(inputs[name], messages=(*kept, *notes))
    known = {} if judgment_table is None else {"scale": judgment_table.main_scale}
    expert_grades = read_input(
        "gold", gold, lambda source: _load_gold(source, {**known, **(gold_options or {})}), _inspect_gold
    )
    feature_matrix = read_input("features", features, _load_features, _inspect_features)
    pairs = [] if preference_table is None else [_InputPairs("preferences", *preference_table.item_ids())]
    if feature_matrix is not None:
        pairs.append(_InputPairs("features", feature_matrix.query, feature_matrix.document))
    for run_index, source in enumerate(runs):
        name = "run" if len(runs) == 1 else f"run {run_index + 1}"
        run_pairs = read_input(name, source, partial(_read_run_pairs, input_name=name), _inspect_run)
        pairs += [] if run_pairs is None else [run_pairs]
    fit_messages = list(_mismatch_messages(judgment_table, expert_grades, pairs))
    if feature_matrix is not None:
        fit_messages += _leak_warnings(expert_grades, feature_matrix, judgment_table)
    return ValidationReport(inputs, tuple(fit_messages))


def _load_judgments(source: Any, options: Mapping[str, Any]) -> AnyJudgments:
    return source if isinstance(source, AnyJudgments) else read_judgments(source, **options)


def _load_preferences(source: Any, options: Mapping[str, Any]) -> Preferences:
    if isinstance(source, Preferences):
        return source
    with parameter_prefix("preferences_"):
        return read_preferences(source, **options)


def _load_gold(source: Any, options: Mapping[str, Any]) -> Gold:
    if isinstance(source, Gold):
        return source
    with parameter_prefix("gold_"):
        return read_gold(source, **options)


def _load_features(source: Any) -> Features:
    if isinstance(source, Features):
        return source
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # they are among the notes
        return read_features(source)


def _read_run_pairs(source: Any, input_name: str) -> _InputPairs:
    ranking = read_run(source)
    query, document = (column_to_arrow(ranking, role).combine_chunks() for role in ("query", "document"))
    return _InputPairs(input_name, query, document)


def _skipping(
    options: Mapping[str, Any] | None, inspection: Callable[[InputData], Inspection]
) -> tuple[dict[str, Any], Callable[[InputData], Inspection]]:
    """Return options that skip unusable rows, and an inspection in which these are notes if the user skips them."""

    def with_notes(data: InputData) -> Inspection:
        found = inspection(data)
        notes = (_skipped_note(one) if one.kind == "bad-rows" else one for one in found.messages)
        return replace(found, messages=tuple(notes))

    given = options or {}
    return {**given, "on_bad_rows": "skip"}, with_notes if given.get("on_bad_rows") == "skip" else inspection


def _skipped_note(message: Message) -> Message:
    """Return the message about rows that are skipped as a note without the advice to skip them."""
    fixes = (fix for fix in message.fixes if not (fix.parameter or "").endswith("on_bad_rows"))
    return replace(message, severity="note", fixes=tuple(fixes))


def _inspect_preferences(preferences: Preferences) -> Inspection:
    found = inspect_preferences(preferences)
    # The ids to exclude are those of judgments and preferences.
    messages = (one if one.kind == UNKNOWN_EXCLUDED else one.with_prefix("preferences_") for one in found.messages)
    return replace(found, messages=tuple(messages))


def _inspect_gold(gold: Gold) -> Inspection:
    facts = {
        "rows": f"{gold.report.rows:,}",
        "queries": f"{len(gold.query.unique()):,}",
        "documents": f"{len(gold):,}",
        "columns": describe_columns(gold.report.columns),
        "grades": describe_grade_shares(gold.scale, np.bincount(gold.code, minlength=len(gold.scale))),
    }
    skipped = gold.report.skipped.items()
    left_out = (Message(f"{counted(n, 'row')} left out ({reason})", "rows-left-out", "note") for reason, n in skipped)
    return Inspection(facts, (*left_out, *gold.report.notes))


def _inspect_features(features: Features) -> Inspection:
    matrix = features.matrix
    missing = np.isnan(matrix)
    columns = zip(features.names, matrix.T, strict=True)
    constant = [name for name, column in columns if len(np.unique(column[~np.isnan(column)])) <= 1]
    facts = {
        "queries": f"{len(features.query.unique()):,}",
        "documents": f"{len(matrix):,}",
        "features": f"{len(features.names):,}",
        "missing values": f"{missing.mean():.1%}",
    }
    if features.columns:
        facts["columns"] = describe_columns(features.columns)
    messages = [*_duplicate_errors(_InputPairs("features", features.query, features.document)), *features.notes]
    if constant:
        listed = ", ".join(constant[:5]) + (", ..." if len(constant) > 5 else "")
        problem = f"{counted(len(constant), 'feature')} with the same value in all rows: {listed}"
        messages.append(Message(problem, "constant-features", "note"))
    return Inspection(facts, tuple(messages))


def _inspect_run(run: _InputPairs) -> Inspection:
    facts = {"queries": f"{len(run.query.unique()):,}", "documents": f"{len(run.query):,}"}
    return Inspection(facts, tuple(_duplicate_errors(run)))


def _duplicate_errors(pairs: _InputPairs) -> Iterator[Message]:
    """Yield an error if a (query, document) pair occurs twice."""
    row = PairIndex.from_ids(pairs.query, pairs.document).repeated_row
    if row is not None:
        problem = f"the document {_pair_text(pairs, row)} occurs twice"
        fixes = (Fix("leave one row for each document of a query"),)
        yield Message(problem, "duplicate-documents", fixes=fixes)


def _pair_text(pairs: _InputPairs, row: int) -> str:
    return f"{shown(pairs.document[row].as_py())} (query {shown(pairs.query[row].as_py())})"


def _mismatch_messages(
    judgments: AnyJudgments | None, gold: Gold | None, other_pairs: Sequence[_InputPairs]
) -> Iterator[Message]:
    """Yield messages about pairs and scales that do not match those of the judgments.

    Without judgments, the other inputs are compared with the expert grades.
    """
    if gold is not None and judgments is not None:
        yield from _overlap_messages(_InputPairs("expert grades", gold.query, gold.document), "judgments", judgments)
        yield from check_expert_grades(gold, judgments)
    base = gold.as_judgments() if judgments is None and gold is not None else judgments
    if base is not None:
        for pairs in other_pairs:
            yield from _overlap_messages(pairs, "expert grades" if judgments is None else "judgments", base)


def _overlap_messages(pairs: _InputPairs, base_name: str, base_judgments: AnyJudgments) -> Iterator[Message]:
    """Yield messages about pairs that do not occur in a base input, and about ids that differ only in form.

    Args:
        pairs: pairs of the input to check.
        base_name: name of the base input in messages.
        base_judgments: judgments or expert grades to compare with.

    """
    is_matched = np.zeros(len(pairs.query), bool)
    for table in base_judgments.iterate():
        is_matched |= table.positions(pairs.query, pairs.document) >= 0
    n_matched, total = int(is_matched.sum()), len(is_matched)
    if n_matched == 0:
        example_pair = _InputPairs("", *next(iter(base_judgments.iterate())).item_ids())
        problem = f"no document of the {pairs.name} occurs in the {base_name}: {_pair_text(pairs, 0)} but"
        fixes = (Fix("write the ids of queries and documents in the same form in both"),)
        yield Message(f"{problem} {_pair_text(example_pair, 0)}", "nothing-in-common", fixes=fixes)
    elif n_matched < total:
        share = f"{n_matched:,} of {total:,} documents of the {pairs.name} ({n_matched / total:.1%})"
        yield Message(f"{share} occur in the {base_name}", "partial-overlap", "note")
    if n_matched < total:
        yield from _look_alike_warnings(pairs, base_name, base_judgments)


def _look_alike_warnings(pairs: _InputPairs, base_name: str, base_judgments: AnyJudgments) -> Iterator[Message]:
    """Yield a warning if query ids, and one if document ids, occur in the base input only in another form."""
    for role, input_ids in (("query", pairs.query.unique()), ("document", pairs.document.unique())):
        has_exact, has_alike = np.zeros(len(input_ids), bool), np.zeros(len(input_ids), bool)
        example = ""
        for table in base_judgments.iterate():
            base_ids = table.queries if role == "query" else table.documents
            alike_index = ids.match(normalize_ids(base_ids), normalize_ids(input_ids))
            has_exact |= ids.match(base_ids, input_ids) >= 0
            has_alike |= alike_index >= 0
            differing = np.flatnonzero((alike_index >= 0) & ~has_exact)
            if len(differing) and not example:
                row = int(differing[0])
                example = f"{shown(input_ids[row].as_py())} and {shown(base_ids[int(alike_index[row])].as_py())}"
        if n := int((has_alike & ~has_exact).sum()):
            problem = f"{counted(n, f'{role} id')} of the {pairs.name} found in the {base_name} only in another form"
            fixes = (Fix("ids are compared exactly; write them in the same form in both"),)
            yield Message(f"{problem}, such as {example}", "look-alike-ids", "warning", fixes=fixes)


def normalize_ids(ids: pa.Array) -> pa.Array:
    """Return ids in lower case and in one Unicode form, without white space, leading zeros and a final `.0`.

    >>> normalize_ids(pa.array([" Q007 ", "q7.0"])).to_pylist()
    ['q7', 'q7']
    """
    text = pc.utf8_lower(pc.utf8_normalize(ids.cast(pa.string()), form="NFKC"))
    for pattern, replacement in ((r"\s+", ""), (r"([0-9])\.0+$", r"\1"), (r"(^|[^0-9])0+([0-9])", r"\1\2")):
        text = pc.replace_substring_regex(text, pattern, replacement)
    return text


def check_expert_grades(gold: Gold, judgments: AnyJudgments) -> list[Message]:
    """Return messages about expert grades whose scale or ids do not match those of the judgments.

    Ids probably do not match if the grades agree with the judgments of the same ids no better than by chance, or
    clearly worse than with those of the next or previous row or number.

    >>> import pandas as pd
    >>> from crowdrank.readers.read import read_gold, read_judgments
    >>> ids, grades = [f"d{place}" for place in range(60)], np.random.default_rng(0).integers(3, size=60)
    >>> judgments = read_judgments(pd.DataFrame({"document": ids, "assessor": "x", "grade": grades}))
    >>> shifted = read_gold(pd.DataFrame({"document": ids[1:], "grade": grades[:-1]}))
    >>> [message.kind for message in check_expert_grades(shifted, judgments)]
    ['shifted-ids']
    """
    messages = list(_scale_messages(gold, judgments.main_scale))
    correlation, n = _correlation_in_queries(gold, *_mean_judgments([(gold.query, gold.document)], judgments))
    if n < MIN_COMPARED_DOCUMENTS:
        return messages
    compared = f"the expert grades of {counted(n, 'document')} agree with the judgments"
    shift = _find_id_shift(gold, judgments)
    if shift is not None:
        problem = f"{compared} clearly better if {shift} instead of {correlation:.2f}"
        fixes = (Fix("correct the ids of the expert grades"),)
        return [*messages, Message(problem, "shifted-ids", "warning", fixes=fixes)]
    if correlation * np.sqrt(n) >= MAX_CHANCE_Z:
        return messages
    if correlation * np.sqrt(n) <= -MIN_SURE_Z:
        problem = f"{compared} in reverse (correlation {correlation:.2f} within queries)"
        fixes = (Fix("check the order of the grades in both files"),)
        return [*messages, Message(problem, "reversed-grades", "warning", fixes=fixes)]
    problem = f"{compared} no better than by chance (correlation {correlation:.2f} within queries)"
    fixes = (Fix("check that the ids of queries and documents mean the same in both files"),)
    return [*messages, Message(problem, "experts-disagree", "warning", fixes=fixes)]


def _mean_judgments(pair_lists: Sequence[tuple[pa.Array, pa.Array]], judgments: AnyJudgments) -> list[Floats]:
    """Return the mean judgment of each pair of query and document, on scales from 0 to 1; NaN without judgments.

    Args:
        pair_lists: lists of pairs, each two arrays (n,).
        judgments: the judgments, which are read once.

    """
    means = [np.full(len(query), np.nan) for query, _ in pair_lists]
    for table in judgments.iterate():
        highest = np.array([len(scale) - 1 for scale in table.scales])[table.assessor_scale[table.assessor]]
        is_grade = table.grade >= 0
        item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))
        total = np.bincount(item, np.where(is_grade, table.grade / highest, 0.0), table.n_items)
        count = np.bincount(item, is_grade, table.n_items)
        by_item = np.append(np.where(count > 0, total / np.maximum(count, 1), np.nan), np.nan)
        for place, (query, document) in enumerate(pair_lists):
            position = table.positions(query, document)
            means[place] = np.where(position >= 0, by_item[position], means[place])
    return means


def _correlation_in_queries(gold: Gold, mean_judgments: Floats) -> tuple[float, int]:
    """Return the correlation of expert grades and mean judgments (n,) within queries, and the number of documents.

    Documents count if their query has different expert grades and different mean judgments.
    """
    known = np.flatnonzero(~np.isnan(mean_judgments))
    query = gold.query.take(pa.array(known)).dictionary_encode().indices.to_numpy()
    n_documents = np.maximum(np.bincount(query), 1)
    centered = []
    for values in (gold.code[known].astype(np.float64), mean_judgments[known]):
        centered.append(values - (np.bincount(query, values) / n_documents)[query])
    squares = [np.bincount(query, values**2) for values in centered]
    varies = ((squares[0] > 0) & (squares[1] > 0))[query]
    if not varies.any():
        return 0.0, 0
    grade, judged = (values[varies] for values in centered)
    return float(grade @ judged / np.sqrt((grade @ grade) * (judged @ judged))), int(varies.sum())


def _find_id_shift(gold: Gold, judgments: AnyJudgments) -> str | None:
    """Return how to shift the expert grades so that they agree clearly better with the judgments, or None.

    The first `MAX_SHIFTED_ROWS` grades are compared with the judgments of the same ids, and of ids that are shifted by
    one number or row.
    """
    gold = gold.take(np.arange(min(len(gold), MAX_SHIFTED_ROWS)))
    shifts = {"": (gold.query, gold.document)}
    for step in (1, -1):
        shifts |= {
            f"the number in each document id is {step:+d}": (gold.query, _shifted_ids(gold.document, step)),
            f"the number in each query id is {step:+d}": (_shifted_ids(gold.query, step), gold.document),
            f"the row of each grade is {step:+d}": tuple(
                _shifted_rows(one, step) for one in (gold.query, gold.document)
            ),
        }
    means = _mean_judgments(list(shifts.values()), judgments)
    (own, own_n), *others = (_correlation_in_queries(gold, mean) for mean in means)
    found = {}
    for text, (correlation, n) in zip(list(shifts)[1:], others, strict=True):
        is_sure = n >= MIN_COMPARED_DOCUMENTS and correlation * np.sqrt(n) >= MIN_SURE_Z
        if is_sure and n >= own_n / 2 and _fisher_z(correlation, n, own, own_n) >= MIN_BETTER_Z:
            found[correlation * np.sqrt(n)] = f"{text}: correlation within queries {correlation:.2f}"
    return found[max(found)] if found else None


def _fisher_z(first: float, n_first: int, second: float, n_second: int) -> float:
    """Return the difference of two correlations in standard errors, by Fisher's transformation."""
    values = np.arctanh(np.clip([first, second], -1 + 1e-9, 1 - 1e-9))
    return float((values[0] - values[1]) / np.sqrt(1 / (n_first - 3) + 1 / max(n_second - 3, 1)))


def _shifted_rows(id_column: pa.Array, step: int) -> pa.Array:
    """Return the ids of the next or previous row; the last or first row keeps its id."""
    return id_column.take(pa.array(np.clip(np.arange(len(id_column)) + step, 0, len(id_column) - 1)))


def _shifted_ids(id_column: pa.Array, step: int) -> pa.Array:
    """Return ids whose last number is changed by a step; ids without a number, or with 0 less 1, are unchanged.

    >>> _shifted_ids(pa.array(["d9", "q7-099", "x", "0"]), 1).to_pylist()
    ['d10', 'q7-100', 'x', '1']
    """
    shifted = []
    for name in map(str, id_column.to_pylist()):
        match = re.fullmatch(r"(.*?)(\d{1,18})(\D*)", name, re.ASCII | re.DOTALL)
        number = int(match[2]) + step if match else -1
        shifted.append(f"{match[1]}{number:0{len(match[2])}d}{match[3]}" if match and number >= 0 else name)
    return pa.array(shifted, pa.string())


def _scale_messages(gold: Gold, judgments_scale: Scale) -> Iterator[Message]:
    """Yield a warning if expert grades and judgments are on different scales."""
    gold_scale = gold.scale
    is_named = gold_scale.numeric != judgments_scale.numeric
    if gold_scale == judgments_scale or (is_named and gold_scale.values == judgments_scale.values):
        return
    problem = f"the expert grades are on the scale {gold_scale} and the judgments on {judgments_scale}"
    fixes: tuple[Fix, ...] = (
        Fix("convert the expert grades to the scale of the judgments"),
        Fix("if the judgments are on the same scale, give {}", "grades", str(gold_scale)),
    )
    if gold.report.guessed and gold_scale.numeric and judgments_scale.numeric:
        fixes += (Fix("if the experts use the scale of the judgments, give {}", "gold_grades", str(judgments_scale)),)
    yield Message(problem, "scales-differ", "warning", fixes=fixes)


def _leak_warnings(gold: Gold | None, features: Features, judgments: AnyJudgments | None) -> Iterator[Message]:
    """Yield warnings about features that hold expert grades or answers: the leaks of `run`, and copies of the grade."""
    expert = np.full(len(features.query), np.nan)
    rows = np.empty(0, np.int64)
    if gold is not None:
        table = gold.as_judgments()
        item_index = table.positions(features.query, features.document)
        rows = np.flatnonzero(item_index >= 0)
        expert[rows] = table.grade[table.offsets[item_index[rows]]]
    query = ids.encode(pa.chunked_array([features.query]))[0].astype(np.int64)
    answers = judgments if isinstance(judgments, Judgments) else None
    item = None if answers is None else answers.positions(features.query, features.document)
    leaks = find_leaks(features.names, features.matrix, expert, query, answers, item)
    yield from (leak.message() for leak in leaks)
    matrix, grades = features.matrix[rows], expert[rows]
    if len(rows) < MIN_GRADED_DOCUMENTS:
        return
    leaking = {leak.feature for leak in leaks}
    columns = zip(features.names, matrix.T, strict=True)
    copies = [name for name, column in columns if name not in leaking and _is_copy(column, grades)]
    if copies:
        problem = f"features that equal the expert grade: {', '.join(map(shown, copies))}"
        yield Message(problem, "feature-equals-grade", "warning", fixes=(Fix("remove them from the features"),))


def _is_copy(feature: NDArray[np.float64], grades: NDArray[np.float64]) -> bool:
    """Return whether a feature is perfectly correlated with the expert grades, up to rounding."""
    is_present = ~np.isnan(feature)
    if len(np.unique(feature[is_present])) < 2 or len(np.unique(grades[is_present])) < 2:
        return False
    return bool(abs(np.corrcoef(feature[is_present], grades[is_present])[0, 1]) >= MIN_COPY_CORRELATION)
