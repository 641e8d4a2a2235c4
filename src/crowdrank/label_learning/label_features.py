"""Features of every label: who gave it, and how likely it is to be correct (REMAP Table 1, MGBDT Table 2)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._estimator import require_number, require_one_of
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.assessors.agreement import honeypot_accuracy
from crowdrank.consensus.dawid_skene import DawidSkene
from crowdrank.consensus.fit_data import as_gold, as_judgments
from crowdrank.consensus.gda import GDA
from crowdrank.consensus.glad import GLAD
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.result import Consensus
from crowdrank.engine.passes import Engine
from crowdrank.errors import ConvergenceWarning, InputError, UsageError, near, shown
from crowdrank.judgments import frames, ids
from crowdrank.judgments.columns import Roles
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import NO_HONEYPOT, Judgments
from crowdrank.readers.cells import parse_floats

KINDS = ("remap", "mgbdt", "all")
PSEUDO_HONEYPOTS = 2.0
"""Number of honeypot answers of an average assessor that are added to those of each assessor."""
MAX_FAMILIES = 20
"""Maximum number of families with an indicator feature each; if there are more, only the size of a family is used."""
FAMILY_PREFIX = "family_is_"
"""Prefix of the indicator features of families."""
REMAP_ONLY = ("bad_dawid_skene", "bad_glad")
"""Features of REMAP that MGBDT leaves out: 1 minus the probability of a good document."""
Columns = dict[str, Floats]


@dataclass(frozen=True, eq=False)
class LabelFeatures:
    """Features of every label, without honeypots. Create one with :func:`label_features`.

    Attributes:
        judgments: the labels, on one scale, sorted by query and document.
        names: names of the features.
        matrix: (n_labels, n_features).
        start: (n_labels,) the label itself, from 0 (lowest grade) to 1 (highest grade).
        expected: (n_labels,) the grade of its document expected under Dawid-Skene, from 0 to 1.
        arguments: arguments of :func:`label_features` that compute the same features of other labels.
        gold_queries: queries whose expert grades a consensus model has used.

    """

    judgments: Judgments
    names: tuple[str, ...]
    matrix: Floats
    start: Floats
    expected: Floats
    arguments: Mapping[str, Any] = field(default_factory=dict)
    gold_queries: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))

    @classmethod
    def of(cls, judgments: Judgments, columns: Mapping[str, Any]) -> LabelFeatures:
        """Create label features from columns of your own, in the order of the rows of the judgments.

        >>> import pandas as pd, crowdrank
        >>> labels = crowdrank.read_judgments(pd.DataFrame(
        ...     {"document": ["a", "a"], "assessor": ["x", "y"], "grade": [1, 0]}))
        >>> LabelFeatures.of(labels, {"hour": [9, 23]})
        <LabelFeatures: 1 feature of 2 labels of 1 document>
        """
        if not columns:
            raise UsageError("must have at least one column", parameter="columns")
        table = judgments.to_one_scale().with_unjudgeable("lowest")
        matrix = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns.values()])
        if len(matrix) != len(table):
            raise InputError(f"there are {len(table):,} labels, but features of {len(matrix):,}", kind="wrong-length")
        if without_honeypots(table) is not table:
            raise InputError(
                "some of the documents are honeypots", kind="honeypots", fix="remove the judgments of honeypots"
            )
        start = _LabelColumns(table, None).start
        return cls(table, tuple(columns), matrix, start, start)

    def __len__(self) -> int:
        return len(self.matrix)

    def __repr__(self) -> str:
        labels, features = counted(len(self), "label"), counted(len(self.names), "feature")
        return f"<LabelFeatures: {features} of {labels} of {counted(self.judgments.n_items, 'document')}>"

    @cached_property
    def item(self) -> Integers:
        """Index of the document of each label in `judgments`, (n_labels,)."""
        return np.repeat(np.arange(self.judgments.n_items), np.diff(self.judgments.offsets))

    def column(self, name: str) -> Floats:
        """Return one feature of every label."""
        if name not in self.names:
            raise UsageError(
                f"There is no label feature '{name}'{near(name, self.names)}; there are: {', '.join(self.names)}",
                kind="unknown-name",
            )
        column: Floats = self.matrix[:, self.names.index(name)]
        return column

    @property
    def frame(self) -> Any:
        """Query, document, assessor, grade and the features as a DataFrame of the judgments' library."""
        table = self.judgments.to_arrow().select(["query", "document", "assessor", "grade"])
        for number, name in enumerate(self.names):
            table = table.append_column(name, pa.array(self.matrix[:, number]))
        return frames.from_arrow(table, self.judgments.backend)

    def where(self, keep: NDArray[np.bool_]) -> LabelFeatures:
        """Return a subset of the labels by a mask (n_labels,); features are not computed again."""
        if keep.all():
            return self
        return replace(
            self,
            judgments=self.judgments.where(keep),
            matrix=self.matrix[keep],
            start=self.start[keep],
            expected=self.expected[keep],
        )

    def aligned(self, names: tuple[str, ...]) -> Floats:
        """Return the features with these names, in this order; indicators of unknown families are 0.

        Raises:
            InputError: a feature is missing.

        """
        missing = [name for name in names if name not in self.names and not name.startswith(FAMILY_PREFIX)]
        if missing:
            raise InputError(
                f"the labels lack {counted(len(missing), 'feature')} that the functions were learned on "
                f"({', '.join(map(shown, missing[:3]))}{', ...' if len(missing) > 3 else ''})",
                kind="missing-label-features",
                fix="give labels on the same scale and with the same columns",
            )
        if names == self.names:
            return self.matrix
        zeros = np.zeros(len(self))
        return np.column_stack([self.column(name) if name in self.names else zeros for name in names])


def label_features(
    judgments: Any,
    *,
    kind: str = "all",
    by_grade: bool | None = None,
    good: float | None = None,
    gold: Any = None,
    dawid_skene: Aggregator | None = None,
    glad: Aggregator | None = None,
    latent: Aggregator | None = None,
    more: Any = None,
    engine: Engine | None = None,
) -> LabelFeatures:
    """Compute features of every label that predict whether it is correct and what its document is worth.

    Answers to honeypots are used for features of assessors; honeypots have no label features themselves.

    REMAP: Ustinovskiy, Fedorova, Gusev, Serdyukov 2016: An Optimization Framework for Remapping and Reweighting Noisy
    Relevance Labels (SIGIR). MGBDT: Ustinovskiy, Fedorova, Gusev, Serdyukov 2016: Meta-Gradient Boosted Decision Tree
    Model for Weight and Target Learning (ICML).

    Args:
        judgments: `Judgments`, a path or a DataFrame.
        kind: `mgbdt`: the features of MGBDT (13 for labels of two grades); `remap`: the 15 features of REMAP; `all`:
            those of MGBDT, expected grades if there are more than two grades, results of a latent model (relevance and
            its sd; informativeness, slope and bias of the assessor), the family, and numeric columns of the judgments.
        by_grade: repeat each feature except the label for every grade, with 0 for labels of another grade, so that a
            linear function has a coefficient per grade; by default True for `remap` (29 features of two grades).
        good: lowest grade of a good document; by default the middle of the scale.
        gold: expert grades for the consensus models. Give only grades of training queries; those of validation and
            test queries would leak into the features.
        dawid_skene, glad, latent: fitted models; by default they are fitted on these judgments without honeypots.
        more: a DataFrame or path with query, document, assessor and further numeric columns to use as features; missing
            for labels that it lacks.
        engine: where the models are fitted; by default in memory, in one thread.

    Returns:
        The features, one row per label.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=10, documents=5, label_grades=2, random_state=1)
    >>> features = label_features(world.judgments, kind="mgbdt")
    >>> features.names
    ('label', 'says_0_if_0', 'says_1_if_0', 'says_0_if_1', 'says_1_if_1', 'ability', 'right_dawid_skene', 'right_glad',
     'good_dawid_skene', 'good_glad', 'log_tasks', 'share_bad', 'honeypots_right')
    >>> len(label_features(world.judgments, kind="remap").names)
    29

    """
    require_one_of("kind", kind, KINDS)
    all_judgments = as_judgments(judgments).to_one_scale().with_unjudgeable("lowest")
    gold = as_gold(gold, all_judgments)
    table = without_honeypots(all_judgments)
    labels = _LabelColumns(table, good)
    models = [_fitted(model, cls, table, gold, engine) for model, cls in ((dawid_skene, DawidSkene), (glad, GLAD))]
    ds, ability = (model.infer(table) for model in models)
    _require_column(ds, f"says_{len(labels.values) - 1}_if_0", "dawid_skene", "DawidSkene")
    _require_column(ability, "ability", "glad", "GLAD")
    columns = _published_features(labels, ds, ability, _honeypot_shares(all_judgments, table))
    if kind != "remap":
        columns = {name: column for name, column in columns.items() if name not in REMAP_ONLY}
    if kind == "all":
        models.append(_fitted(latent, GDA, table, gold, engine))
        if len(labels.values) > 2:
            expected = {"dawid_skene": ds, "glad": ability}
            columns |= {f"expected_{name}": labels.expected_grade(consensus) for name, consensus in expected.items()}
        columns |= _latent_features(labels, models[-1].infer(table)) | _family_features(table) | _extra_columns(table)
    columns |= _read_more_columns(more, table, tuple(columns))
    by_grade = kind == "remap" if by_grade is None else by_grade
    if by_grade:
        columns = _per_grade(columns, labels)
    return LabelFeatures(
        table,
        tuple(columns),
        np.column_stack(list(columns.values())),
        labels.start,
        labels.share_of_scale(labels.expected_grade(ds)),
        {"kind": kind, "by_grade": by_grade, "good": labels.good},
        _gold_queries(models),
    )


class _LabelColumns:
    """Tables of documents and assessors, expanded to one row per label.

    Args:
        table: judgments.
        good: lowest grade of a good document; None for the middle of the scale.

    """

    def __init__(self, table: Judgments, good: float | None) -> None:
        self.table = table
        self.values = np.array(table.scale.values, dtype=np.float64)
        if good is not None:
            require_number("good", good, -np.inf)
        self.good = float((self.values[0] + self.values[-1]) / 2 if good is None else good)
        self.item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))
        self.label = self.values[table.grade]

    @property
    def start(self) -> Floats:
        """The labels, from 0 to 1."""
        return self.share_of_scale(self.label)

    def share_of_scale(self, grade: Floats) -> Floats:
        """Scale grades to [0, 1]."""
        span = self.values[-1] - self.values[0]
        return (grade - self.values[0]) / span if span > 0 else np.zeros(len(grade))

    def of_document(self, consensus: Consensus, name: str) -> Floats:
        """Return a column of the document table, per label."""
        return np.asarray(consensus.document_table[name].to_numpy(), dtype=np.float64)[self.item]

    def of_assessor(self, consensus: Consensus, name: str) -> Floats:
        """Return a column of the assessor table, per label."""
        return np.asarray(consensus.assessor_table[name].to_numpy(), dtype=np.float64)[self.table.assessor]

    def grade_probabilities(self, consensus: Consensus) -> Floats:
        """Return the probability of each true grade of the label's document, (n_labels, n_grades)."""
        return np.column_stack([self.of_document(consensus, name) for name in consensus.true_share_names])

    def correct_probability(self, consensus: Consensus) -> Floats:
        """Return the probability that the label is the true grade of its document."""
        probability: Floats = self.grade_probabilities(consensus)[np.arange(len(self.label)), self.table.grade]
        return probability

    def good_probability(self, consensus: Consensus) -> Floats:
        """Return the probability that the label's document is good."""
        probability: Floats = self.grade_probabilities(consensus)[:, self.values >= self.good].sum(axis=1)
        return probability

    def expected_grade(self, consensus: Consensus) -> Floats:
        """Return the expected grade of the label's document."""
        return np.asarray(self.grade_probabilities(consensus) @ self.values)


def without_honeypots(table: Judgments) -> Judgments:
    """Return the judgments of documents that are not honeypots."""
    is_answer = table.extras.get("honeypot", np.full(len(table), NO_HONEYPOT)) != NO_HONEYPOT
    if not is_answer.any():
        return table
    is_honeypot = np.add.reduceat(is_answer, table.offsets[:-1]) > 0
    if is_honeypot.all():
        raise InputError(
            "every judged document is a honeypot", kind="honeypots", fix="give judgments of other documents"
        )
    return table.where(~np.repeat(is_honeypot, np.diff(table.offsets)))


def _fitted(
    model: Aggregator | None, cls: type[Aggregator], table: Judgments, gold: Gold | None, engine: Engine | None
) -> Aggregator:
    """Return the model; if there is none, fit one of the class on the judgments."""
    if model is not None:
        return model
    if gold is not None and (table.positions(gold.query, gold.document) < 0).all():
        gold = None  # the experts graded other documents, which is usual
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # features need no more digits
        return cls().fit(table, gold, engine=engine)


def _require_column(consensus: Consensus, name: str, parameter: str, cls: str) -> None:
    if name not in consensus.assessor_table.column_names:
        raise UsageError(
            f"must be a fitted {cls} of these grades; {consensus.method} has no '{name}'", parameter=parameter
        )


def _published_features(labels: _LabelColumns, ds: Consensus, glad: Consensus, honeypot_share: Floats) -> Columns:
    """Return the features of REMAP Table 1; those of MGBDT are a subset."""
    table, grades = labels.table, range(len(labels.values))
    tasks = np.bincount(table.assessor, minlength=table.n_assessors)
    n_bad = np.bincount(table.assessor, labels.label < labels.good, table.n_assessors)
    names = [int(value) for value in labels.values]
    good_ds, good_glad = labels.good_probability(ds), labels.good_probability(glad)
    return {
        "label": labels.label,
        **{
            f"says_{names[given]}_if_{names[true]}": labels.of_assessor(ds, f"says_{given}_if_{true}")
            for true in grades
            for given in grades
        },
        "ability": labels.of_assessor(glad, "ability"),
        "right_dawid_skene": labels.correct_probability(ds),
        "right_glad": labels.correct_probability(glad),
        "good_dawid_skene": good_ds,
        "good_glad": good_glad,
        "bad_dawid_skene": 1 - good_ds,
        "bad_glad": 1 - good_glad,
        "log_tasks": np.log(tasks)[table.assessor],
        "share_bad": (n_bad / tasks)[table.assessor],
        "honeypots_right": honeypot_share[table.assessor],
    }


def _per_grade(columns: Columns, labels: _LabelColumns) -> Columns:
    """Repeat each feature except the label for every grade, with 0 for labels of another grade."""
    repeated: Columns = {"label": columns["label"]}
    for code in reversed(range(len(labels.values))):
        has_grade = labels.table.grade == code
        for name in list(columns)[1:]:
            repeated[f"{name}_of_{int(labels.values[code])}"] = np.where(has_grade, columns[name], 0.0)
    return repeated


def _honeypot_shares(all_judgments: Judgments, table: Judgments) -> Floats:
    """Return each assessor's share of honeypots answered correctly, shrunk towards the overall share."""
    accuracy = honeypot_accuracy(all_judgments)
    answered, correct = (np.asarray(accuracy[name], dtype=np.float64) for name in ("asked", "right"))
    overall = (correct.sum() + 1) / (answered.sum() + 2)
    share = (correct + PSEUDO_HONEYPOTS * overall) / (answered + PSEUDO_HONEYPOTS)
    smoothed: Floats = share[ids.match(all_judgments.assessors, table.assessors)]
    return smoothed


def _latent_features(labels: _LabelColumns, consensus: Consensus) -> Columns:
    """Return the columns of a latent model that its consensus has."""
    documents, assessors = consensus.document_table.column_names, consensus.assessor_table.column_names
    of_document = [name for name in ("relevance", "sd") if name in documents]
    of_assessor = [name for name in ("informativeness", "separation", "shift") if name in assessors]
    return {
        **{f"latent_{name}": labels.of_document(consensus, name) for name in of_document},
        **{name: labels.of_assessor(consensus, name) for name in of_assessor},
    }


def _family_features(table: Judgments) -> Columns:
    """Return the size of the assessor's family, and an indicator per family if there are few."""
    if table.families is None or table.assessor_family is None:
        return {}
    family = table.family_of
    size = np.bincount(family)[family][table.assessor].astype(np.float64)
    columns = {"family_size": size}
    if len(table.families) <= MAX_FAMILIES:
        family_of_label = table.assessor_family[table.assessor]
        for code, name in enumerate(table.families.to_pylist()):
            columns[f"{FAMILY_PREFIX}{name}"] = (family_of_label == code).astype(np.float64)
    return columns


def _extra_columns(table: Judgments) -> Columns:
    """Return the numeric columns of the judgments, such as duration and cost."""
    return {
        name: np.asarray(column, dtype=np.float64)
        for name, column in table.extras.items()
        if name not in ("honeypot", "time")
    }


def _read_more_columns(more: Any, table: Judgments, used_names: tuple[str, ...]) -> Columns:
    """Read numeric columns from a table with query, document and assessor; missing for labels that it lacks."""
    if more is None:
        return {}
    from crowdrank.readers.formats import open_source
    from crowdrank.readers.sources import BadRows

    source, _ = open_source(more, None, None)
    roles = Roles(("document", "assessor"), ("query",)).find_columns(source.names, source.name)
    read = source.read(source.names, BadRows())
    query = read[roles["query"]] if "query" in roles else pa.chunked_array([["all"] * len(read)])
    id_columns = (column.combine_chunks() for column in (query, read[roles["document"]], read[roles["assessor"]]))
    label, found = _label_positions(table, *id_columns)
    columns: Columns = {}
    for name in source.names:
        if name in roles.values() or name in ("grade", "honeypot"):
            continue
        if name in used_names:
            problem, kind, fix = "a label feature has the same name", "duplicate-name", "rename it"
            raise InputError(problem, source=source.name, column=name, kind=kind, fix=fix)
        values = parse_floats(read[name])
        if values is None:
            problem, kind, fix = "some values are not numbers", "not-numeric", "remove the column"
            raise InputError(problem, source=source.name, column=name, kind=kind, fix=fix)
        columns[name] = np.full(len(table), np.nan)
        columns[name][label[found]] = values[found]
    return columns


def _label_positions(table: Judgments, query: Any, document: Any, assessor: Any) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the row of the label with each query, document and assessor, and whether there is one."""
    item, assessor_code = table.positions(query, document), ids.match(table.assessors, assessor)
    key = np.repeat(np.arange(table.n_items), np.diff(table.offsets)) * table.n_assessors + table.assessor
    order = np.argsort(key)
    wanted = np.where((item >= 0) & (assessor_code >= 0), item * table.n_assessors + assessor_code, -1)
    position = order[np.minimum(np.searchsorted(key, wanted, sorter=order), len(key) - 1)]
    return position, key[position] == wanted


def _gold_queries(models: list[Aggregator]) -> pa.Array:
    """Return the queries whose expert grades one of the models has used, as text."""
    queries = [model.gold_.query.cast(pa.string()) for model in models if model.gold_ is not None]
    return pa.chunked_array(queries, pa.string()).unique() if queries else pa.array([], pa.string())
