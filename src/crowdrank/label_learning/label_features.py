"""What is known of every label: who gave it, and how likely it is to be right (REMAP Table 1, MGBDT Table 2)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._base import require_number, require_one_of
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.assessors.honeypots import honeypot_accuracy
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus._coerce import as_gold, as_judgments
from crowdrank.consensus.dawid_skene import DawidSkene
from crowdrank.consensus.gda import GDA
from crowdrank.consensus.glad import GLAD
from crowdrank.consensus.result import Consensus
from crowdrank.engine.base import Engine
from crowdrank.errors import ConvergenceWarning, InputError, UsageError, near, shown
from crowdrank.judgments import frames, ids
from crowdrank.judgments.cells import parse_floats
from crowdrank.judgments.columns import Roles
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import NO_HONEYPOT, Judgments

KINDS = ("remap", "mgbdt", "all")
PSEUDO_HONEYPOTS = 2.0
"""So many answers of an average assessor are added to each assessor's honeypots."""
MOST_FAMILIES = 20
"""Up to so many families have a feature each; of more, only their sizes are told."""
FAMILY = "family_is_"
"""Features that begin so are 0 for labels among which there is no such family."""
BAD = ("bad_dawid_skene", "bad_glad")
"""REMAP has them, MGBDT has not: they are 1 less the chances of good documents."""
Columns = dict[str, Floats]


@dataclass(frozen=True, eq=False)
class LabelFeatures:
    """Numbers about every label, honeypots left out. Make one with :func:`label_features`.

    Attributes:
        judgments: the labels, on one scale, sorted by query and document.
        names: of the features.
        matrix: (n_labels, n_features).
        start: (n_labels,) what a label says by itself, from 0 (the lowest grade) to 1 (the highest).
        expected: (n_labels,) what Dawid-Skene expects of its document, from 0 to 1.
        recipe: how they were made, to make those of other labels.
        gold_queries: the queries whose expert grades a consensus has seen.

    """

    judgments: Judgments
    names: tuple[str, ...]
    matrix: Floats
    start: Floats
    expected: Floats
    recipe: Mapping[str, Any] = field(default_factory=dict)
    gold_queries: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))

    @classmethod
    def of(cls, judgments: Judgments, columns: Mapping[str, Any]) -> LabelFeatures:
        """Features of one's own: a column for each, in the order of the judgments' rows.

        >>> import pandas as pd, crowdrank
        >>> labels = crowdrank.read_judgments(pd.DataFrame(
        ...     {"document": ["a", "a"], "assessor": ["x", "y"], "grade": [1, 0]}))
        >>> LabelFeatures.of(labels, {"hour": [9, 23]})
        <LabelFeatures: 1 feature of 2 labels of 1 document>
        """
        if not columns:
            raise UsageError("There are no columns; give one for each label feature.")
        table = judgments.on_one_scale().with_unjudgeable("lowest")
        matrix = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns.values()])
        if len(matrix) != len(table):
            raise InputError(f"there are {len(table):,} labels, but features of {len(matrix):,}")
        if without_honeypots(table) is not table:
            raise InputError("some of the documents are honeypots", fix="leave their judgments out")
        values = np.array(table.scale.values, dtype=np.float64)
        start = _Views(table, values, _good(None, values)).start
        return cls(table, tuple(columns), matrix, start, start)

    def __len__(self) -> int:
        return len(self.matrix)

    def __repr__(self) -> str:
        labels, features = counted(len(self), "label"), counted(len(self.names), "feature")
        return f"<LabelFeatures: {features} of {labels} of {counted(self.judgments.n_items, 'document')}>"

    @cached_property
    def item(self) -> Integers:
        """The document of each label, numbered as in the judgments."""
        return np.repeat(np.arange(self.judgments.n_items), np.diff(self.judgments.offsets))

    def column(self, name: str) -> Floats:
        """One feature of every label."""
        if name not in self.names:
            raise UsageError(
                f"There is no label feature '{name}'{near(name, self.names)}; there are: {', '.join(self.names)}."
            )
        column: Floats = self.matrix[:, self.names.index(name)]
        return column

    @property
    def frame(self) -> Any:
        """Query, document, assessor, grade and the features as a DataFrame of the judgments' library."""
        told = self.judgments.to_arrow().select(["query", "document", "assessor", "grade"])
        for number, name in enumerate(self.names):
            told = told.append_column(name, pa.array(self.matrix[:, number]))
        return frames.from_arrow(told, self.judgments.backend)

    def where(self, keep: NDArray[np.bool_]) -> LabelFeatures:
        """Only the labels that `keep` (n_labels,) names; what is known of them stays as it is."""
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
        """The features in another order of names; a family that is not here is the family of no label."""
        missing = [name for name in names if name not in self.names and not name.startswith(FAMILY)]
        if missing:
            raise InputError(
                f"the labels lack {counted(len(missing), 'feature')} that the functions were learned on "
                f"({', '.join(map(shown, missing[:3]))}{', ...' if len(missing) > 3 else ''})",
                fix="give labels on the same scale and with the same columns",
            )
        if names == self.names:
            return self.matrix
        blank = np.zeros(len(self))
        return np.column_stack([self.column(name) if name in self.names else blank for name in names])


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
    """Numbers about every label that say how likely it is to be right, and what it is worth.

    Honeypots tell of their assessors; their own labels are left out everywhere else.

    Args:
        judgments: `Judgments`, a path or a DataFrame.
        kind: `mgbdt`: MGBDT's list (13 features of labels of two grades); `remap`: REMAP's list of 15; `all`: MGBDT's
            list, expected grades where there are more than two, what a latent model knows (relevance, its sd, the
            assessor's informativeness, slope and bias, the family), and the columns that the judgments bring along.
        by_grade: each feature but the label once for every grade, 0 where the label is another one, so that a linear
            function reads it for each grade apart; as in REMAP (29 features of two grades), so for `remap` unless said.
        good: a grade from which a document is good; the upper half of the scale unless said.
        gold: expert grades that the consensus models may see. Only grades of queries that gradients are taken of
            belong here: those of validation and test queries would leak into the features.
        dawid_skene, glad, latent: fitted models; by default they are fitted on these judgments without honeypots.
        more: a DataFrame or path of query, document, assessor and further columns of numbers, which join the features;
            blank for labels that it does not name.
        engine: where the models are fitted; by default here, in one thread.

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
    told = as_judgments(judgments).on_one_scale().with_unjudgeable("lowest")
    known = as_gold(gold, told)
    table = without_honeypots(told)
    values = np.array(table.scale.values, dtype=np.float64)
    good = _good(good, values)
    views = _Views(table, values, good)
    models = [_fitted(given, cls, table, known, engine) for given, cls in ((dawid_skene, DawidSkene), (glad, GLAD))]
    ds, ability = (model.infer(table) for model in models)
    _require_columns(ds, f"says_{len(values) - 1}_if_0", "dawid_skene", "DawidSkene")
    _require_columns(ability, "ability", "glad", "GLAD")
    columns = _published(views, ds, ability, _honeypots(told, table))
    if kind != "remap":
        columns = {name: column for name, column in columns.items() if name not in BAD}
    if kind == "all":
        models.append(_fitted(latent, GDA, table, known, engine))
        if len(values) > 2:
            columns |= {"expected_dawid_skene": views.expected(ds), "expected_glad": views.expected(ability)}
        curve = models[-1].infer(table)
        columns |= _latent(views, curve) | _families(table) | _extras(table)
    columns |= _more(more, table, tuple(columns))
    by_grade = kind == "remap" if by_grade is None else by_grade
    if by_grade:
        columns = _by_grade(columns, views)
    return LabelFeatures(
        table,
        tuple(columns),
        np.column_stack(list(columns.values())),
        views.start,
        views.part(views.expected(ds)),
        {"kind": kind, "by_grade": by_grade, "good": good},
        _seen(models),
    )


class _Views:
    """Tables of documents and assessors as columns of labels."""

    def __init__(self, table: Judgments, values: Floats, good: float) -> None:
        self.table, self.values, self.good = table, values, good
        self.item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))
        self.label = values[table.grade]

    @property
    def start(self) -> Floats:
        """What labels say by themselves, from 0 to 1."""
        return self.part(self.label)

    def part(self, value: Floats) -> Floats:
        """Grades as parts of the scale."""
        reach = self.values[-1] - self.values[0]
        return (value - self.values[0]) / reach if reach > 0 else np.zeros(len(value))

    def of_document(self, consensus: Consensus, name: str) -> Floats:
        return np.asarray(consensus.document_table[name].to_numpy(), dtype=np.float64)[self.item]

    def of_assessor(self, consensus: Consensus, name: str) -> Floats:
        return np.asarray(consensus.assessor_table[name].to_numpy(), dtype=np.float64)[self.table.assessor]

    def shares(self, consensus: Consensus) -> Floats:
        """(n_labels, n_grades) the probability of each grade of the label's document."""
        return np.column_stack([self.of_document(consensus, name) for name in consensus.share_names])

    def right(self, consensus: Consensus) -> Floats:
        """The chance that the label is its document's true grade."""
        chance: Floats = self.shares(consensus)[np.arange(len(self.label)), self.table.grade]
        return chance

    def is_good(self, consensus: Consensus) -> Floats:
        """The chance that the label's document is good."""
        chance: Floats = self.shares(consensus)[:, self.values >= self.good].sum(axis=1)
        return chance

    def expected(self, consensus: Consensus) -> Floats:
        """The expected grade of the label's document."""
        return np.asarray(self.shares(consensus) @ self.values)


def without_honeypots(table: Judgments) -> Judgments:
    """The judgments of documents that are no honeypots."""
    planted = table.extras.get("honeypot", np.full(len(table), NO_HONEYPOT)) != NO_HONEYPOT
    if not planted.any():
        return table
    pots = np.add.reduceat(planted, table.offsets[:-1]) > 0
    if pots.all():
        raise InputError("every judged document is a honeypot", fix="give judgments of other documents")
    return table.where(~np.repeat(pots, np.diff(table.offsets)))


def _good(good: float | None, values: Floats) -> float:
    if good is None:
        return float((values[0] + values[-1]) / 2) if len(values) > 1 else float(values[0])
    require_number("good", good, -np.inf)
    return float(good)


def _fitted(
    model: Aggregator | None, cls: type[Aggregator], table: Judgments, gold: Gold | None, engine: Engine | None
) -> Aggregator:
    """A model as it was given; fitted on these labels where none was."""
    if model is not None:
        return model
    if gold is not None and (table.positions(gold.query, gold.document) < 0).all():
        gold = None  # the experts graded other documents, which is usual
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a feature need not be at rest to the last digit
        return cls().fit(table, gold, engine=engine)


def _require_columns(consensus: Consensus, name: str, role: str, cls: str) -> None:
    if name not in consensus.assessor_table.column_names:
        raise UsageError(f"{role} is a fitted {cls} of these grades; a {consensus.method} has no '{name}'.")


def _published(views: _Views, ds: Consensus, glad: Consensus, pots: Floats) -> Columns:
    """REMAP's raw features."""
    table, grades = views.table, range(len(views.values))
    tasks = np.bincount(table.assessor, minlength=table.n_assessors)
    bad = np.bincount(table.assessor, views.label < views.good, table.n_assessors)
    names = [int(value) for value in views.values]
    good_ds, good_glad = views.is_good(ds), views.is_good(glad)
    return {
        "label": views.label,
        **{f"says_{names[g]}_if_{names[c]}": views.of_assessor(ds, f"says_{g}_if_{c}") for c in grades for g in grades},
        "ability": views.of_assessor(glad, "ability"),
        "right_dawid_skene": views.right(ds),
        "right_glad": views.right(glad),
        "good_dawid_skene": good_ds,
        "good_glad": good_glad,
        "bad_dawid_skene": 1 - good_ds,
        "bad_glad": 1 - good_glad,
        "log_tasks": np.log(tasks)[table.assessor],
        "share_bad": (bad / tasks)[table.assessor],
        "honeypots_right": pots[table.assessor],
    }


def _by_grade(columns: Columns, views: _Views) -> Columns:
    """Each feature but the label once for every grade, 0 where the label is another one."""
    given = views.table.grade
    apart: Columns = {"label": columns["label"]}
    for code in reversed(range(len(views.values))):
        here = given == code
        for name in list(columns)[1:]:
            apart[f"{name}_of_{int(views.values[code])}"] = np.where(here, columns[name], 0.0)
    return apart


def _honeypots(told: Judgments, table: Judgments) -> Floats:
    """Each assessor's share of honeypots answered right, drawn to that of all."""
    found = honeypot_accuracy(told)
    asked, right = (np.asarray(found[name], dtype=np.float64) for name in ("asked", "right"))
    usual = (right.sum() + 1) / (asked.sum() + 2)
    share = (right + PSEUDO_HONEYPOTS * usual) / (asked + PSEUDO_HONEYPOTS)
    smoothed: Floats = share[ids.match(told.assessors, table.assessors)]
    return smoothed


def _latent(views: _Views, curve: Consensus) -> Columns:
    """What a latent model knows, by the names of its columns; what it does not say is not there."""
    of_documents, of_assessors = curve.document_table.column_names, curve.assessor_table.column_names
    return {
        **{f"latent_{name}": views.of_document(curve, name) for name in ("relevance", "sd") if name in of_documents},
        **{
            name: views.of_assessor(curve, name)
            for name in ("informativeness", "slope", "bias")
            if name in of_assessors
        },
    }


def _families(table: Judgments) -> Columns:
    """The size of the assessor's family, and which it is where there are few."""
    if table.families is None or table.assessor_family is None:
        return {}
    family = table.family_of
    size = np.bincount(family)[family][table.assessor].astype(np.float64)
    columns = {"family_size": size}
    if len(table.families) <= MOST_FAMILIES:
        own = table.assessor_family[table.assessor]
        for code, name in enumerate(table.families.to_pylist()):
            columns[f"{FAMILY}{name}"] = (own == code).astype(np.float64)
    return columns


def _extras(table: Judgments) -> Columns:
    """Numbers that the judgments bring along: how long it took, what it cost."""
    return {
        name: np.asarray(column, dtype=np.float64)
        for name, column in table.extras.items()
        if name not in ("honeypot", "time")
    }


def _more(more: Any, table: Judgments, taken: tuple[str, ...]) -> Columns:
    """Further columns of numbers from a table of query, document, assessor; blank where it has no such label."""
    if more is None:
        return {}
    from crowdrank.judgments.bad_rows import BadRows
    from crowdrank.judgments.formats import open_source

    source, _ = open_source(more, None, None)
    found = Roles(("document", "assessor"), ("query",)).find_columns(source.names, source.name)
    read = source.read(source.names, BadRows())
    query = read[found["query"]] if "query" in found else pa.chunked_array([["all"] * len(read)])
    item = table.positions(query.combine_chunks(), read[found["document"]].combine_chunks())
    assessor = ids.match(table.assessors, read[found["assessor"]].combine_chunks())
    own = np.repeat(np.arange(table.n_items), np.diff(table.offsets)) * table.n_assessors + table.assessor
    by_key = np.argsort(own)
    wanted = np.where((item >= 0) & (assessor >= 0), item * table.n_assessors + assessor, -1)
    place = by_key[np.minimum(np.searchsorted(own, wanted, sorter=by_key), len(own) - 1)]
    there = own[place] == wanted
    columns: Columns = {}
    for name in source.names:
        if name in found.values() or name in ("grade", "honeypot"):
            continue
        if name in taken:
            raise InputError("a label feature has this name", source=source.name, column=name, fix="rename it")
        values = parse_floats(read[name])
        if values is None:
            raise InputError("it is not all numbers", source=source.name, column=name, fix="leave it out")
        columns[name] = np.full(len(table), np.nan)
        columns[name][place[there]] = values[there]
    return columns


def _seen(models: list[Aggregator]) -> pa.Array:
    """The queries whose expert grades a model has seen, as text."""
    seen = [model.gold_.query.cast(pa.string()) for model in models if model.gold_ is not None]
    return pa.chunked_array(seen, pa.string()).unique() if seen else pa.array([], pa.string())
