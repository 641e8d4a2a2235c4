"""Simulated assessors of known quality: do learned targets and weights of labels grow with it (REMAP 6.1)."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from crowdrank._files import write_file
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.judgments.table import Judgments
from crowdrank.label_learning.boosted_remapper import BoostedRemapper
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.label_learning.linear_remapper import LinearRemapper
from crowdrank.label_learning.remapper import Remapper
from crowdrank.rankers.boosting import default_threads
from crowdrank.readers.datasets import dataset
from crowdrank.readers.features import Features, read_features
from crowdrank.readers.read import read_judgments
from experiments.agreement import spearman
from experiments.base import Experiment, Row, Table, Tell, quiet, seeds_text, select_names
from experiments.documents import generated_documents, joined, mq2008, query_numbers

SEEDS = (0, 1, 2, 3, 4)
MIN_MONOTONE = 4
"""Minimum number of monotone splits of the generated documents."""
ASSESSORS = 40
RIDGES = (0.1, 1.0)
PARAMETERS: Mapping[str, Any] = {"ridge": RIDGES, "tree_features": 0, "patience": 30, "standard_errors": 0.0}
"""Parameters of the remappers: the best step is taken, as in the papers."""
REMAPPERS: Mapping[str, Callable[..., Remapper]] = {"linear": LinearRemapper, "boosted": BoostedRemapper}


@dataclass(frozen=True, eq=False)
class Source:
    """Graded documents, split by query: some to label, some for expert gradients, the rest for early stopping.

    Attributes:
        name: name of the data set.
        title: title of its table.
        features: documents with features and expert grades.
        shares: shares of the queries to label and for expert gradients.

    """

    name: str
    title: str
    features: Features
    shares: tuple[float, float] = (0.4, 0.4)

    @property
    def grades(self) -> Floats:
        """Expert grade of every document (n,)."""
        assert self.features.grade is not None
        return np.asarray(self.features.grade, dtype=np.float64)

    def split(self, seed: int) -> tuple[Integers, Integers, Integers]:
        """Return the rows to label, for expert gradients, and for early stopping, in a random split by query."""
        query = query_numbers(self.features)
        n = int(query.max()) + 1
        ends = np.cumsum([round(share * n) for share in self.shares])
        part = np.searchsorted(ends, np.random.default_rng(seed).permutation(n), side="right")
        to_label, for_gradients, for_stopping = (np.flatnonzero(part[query] == number) for number in range(3))
        return to_label, for_gradients, for_stopping


class KnownAssessors(ABC):
    """One label per document by simulated assessors of known quality, and what a remapper learns about the labels.

    Attributes:
        name: name of the experiment.
        mode: what the remapper learns: targets (T) or weights (W).
        quality: name of the quality of assessors.
        learns: description of the learned value.
        generated: sizes of the generated documents.
        tried: how these sizes were chosen.

    """

    name: str
    mode: str
    quality: str
    learns: str
    generated: ClassVar[Mapping[str, Any]]
    tried: str

    @abstractmethod
    def levels(self, grades: Floats) -> Floats:
        """Return the values of the quality, in increasing order."""

    @abstractmethod
    def label(self, grades: Floats, own: Floats, highest: float, rng: np.random.Generator) -> Integers:
        """Return labels 0 and 1 of documents with these grades by assessors of these qualities."""

    @abstractmethod
    def columns(self, label: Integers, own: Floats, levels: Floats) -> dict[str, Any]:
        """Return the label features, one per level of quality as in the paper."""

    @abstractmethod
    def read(self, remapper: Remapper, label: Integers, own: Floats, level: float) -> float:
        """Return the learned value of the labels of one level."""

    def simulate_labels(self, source: Source, rows: Integers, seed: int) -> tuple[Judgments, Floats, Floats]:
        """Return one label per document, the quality of each label's assessor, and the levels."""
        rng = np.random.default_rng([seed, 1])
        levels = self.levels(source.grades)
        of_assessor = np.resize(levels, ASSESSORS)
        who = rng.integers(ASSESSORS, size=len(rows))
        label = self.label(source.grades[rows], of_assessor[who], source.grades.max(), rng)
        table = read_judgments(
            pd.DataFrame(
                {
                    "query": source.features.query.to_pandas()[rows],
                    "document": source.features.document.to_pandas()[rows],
                    "assessor": who,
                    "grade": label,
                }
            )
        )
        own = of_assessor[[int(name) for name in table.assessors.to_pylist()]][table.assessor]
        return table, own, levels

    def learn(self, source: Source, seed: int, cls: Callable[..., Remapper], **options: Any) -> Row:
        """Fit a remapper on one split; return the learned value of every level, and whether it is monotone."""
        to_label, for_gradients, for_stopping = source.split(seed)
        table, own, levels = self.simulate_labels(source, to_label, seed)
        label = np.asarray(table.grade, dtype=np.int64)
        label_features = LabelFeatures.of(table, self.columns(label, own, levels))
        parts = (source.features.take(rows) for rows in (for_gradients, for_stopping))
        expert, held_out = ((part, part.grade, part.query) for part in parts)
        settings: dict[str, Any] = {**PARAMETERS, "random_state": seed, **options}
        remapper = cls(self.mode, **settings).fit(label_features, source.features, expert, eval_set=held_out)
        learned = np.array([self.read(remapper, label, own, level) for level in levels])
        values = {f"{self.quality} {level:g}": float(value) for level, value in zip(levels, learned, strict=True)}
        row = {**values, "rank correlation": rank_correlation(levels, learned)}
        return {**row, "monotone": _yes_if_monotone(learned)}


def rank_correlation(levels: Floats, values: Floats) -> float:
    """Return Spearman's rank correlation; 0 if all values are equal, because then nothing was learned.

    >>> rank_correlation(np.array([0, 1, 2]), np.array([5.0, 7.0, 9.0]))
    1.0
    >>> rank_correlation(np.array([0, 1, 2]), np.array([5.0, 5.0, 5.0]))
    0.0
    """
    return 0.0 if np.ptp(values) == 0 else spearman(levels, values)


def generated(sizes: Mapping[str, Any]) -> Source:
    """Return generated documents."""
    return Source("generated", "Generated documents", generated_documents(sizes))


def letor(sizes: Mapping[str, Any]) -> Source:
    """Return the documents of MQ2008."""
    return Source("mq2008", "MQ2008", mq2008()[0])


def mslr(sizes: Mapping[str, Any]) -> Source:
    """Return the first documents of MSLR-WEB10K."""
    data = dataset("mslr-5k")
    return Source(
        "mslr-5k",
        "MSLR-WEB10K, 10,000 documents",
        joined([read_features(data.path(n), format="letor") for n in data.files]),
    )


SOURCES: Mapping[str, Callable[[Mapping[str, Any]], Source]] = {
    "generated": generated,
    "mq2008": letor,
    "mslr-5k": mslr,
}


def run(
    design: KnownAssessors,
    methods: Sequence[str] | None,
    only: Sequence[str] | None,
    *,
    seeds: Sequence[int] = SEEDS,
    keep: Path | None = None,
    tell: Tell = quiet,
) -> Experiment:
    """Return a table per data set, and one with the number of monotone splits; splits in `keep` are not repeated."""
    chosen, sets = select_names(methods, REMAPPERS, "remapper"), select_names(only, SOURCES, "data set")
    sources = [SOURCES[name](design.generated) for name in sets]
    tables = [split_table(design, source, chosen, seeds=seeds, keep=keep, tell=tell) for source in sources]
    return Experiment(
        design.name,
        (*tables, count_table(design, tables, chosen, len(seeds))),
        tuple(protocol(design, seeds)),
    )


def split_table(
    design: KnownAssessors,
    source: Source,
    chosen: Sequence[str],
    *,
    seeds: Sequence[int] = SEEDS,
    keep: Path | None = None,
    tell: Tell = quiet,
) -> Table:
    """Return the learned values of each remapper on each split, and their mean over the splits."""
    splits = [(name, seed) for name in chosen for seed in seeds]

    def learn(split: tuple[str, int]) -> Row:
        name, seed = split
        path = None if keep is None else keep / f"{design.name}-{source.name}-{name}-{seed}.json"
        if path is not None and path.is_file():
            stored: Row = json.loads(path.read_text(encoding="utf-8"))
            return stored
        tell(f"{name} on {source.name}, split {seeds.index(seed) + 1} of {len(seeds)}")
        row = design.learn(source, seed, REMAPPERS[name])
        if path is not None:
            with write_file(path) as draft:
                draft.write_text(json.dumps(row), encoding="utf-8")
        return row

    with ThreadPoolExecutor(min(default_threads(), len(splits))) as pool:
        learned = dict(zip(splits, pool.map(learn, splits), strict=True))
    rows: list[Row] = []
    for name in chosen:
        own = [learned[name, seed] for seed in seeds]
        rows += [{"run": f"{name}, split {number}", **row} for number, row in enumerate(own, 1)]
        means = {column: float(np.mean([row[column] for row in own])) for column in own[0] if column != "monotone"}
        rows.append({"run": f"{name}, mean", **means, "monotone": _yes_if_monotone(_level_values(design, means))})
    return Table(source.name, f"{source.title}: {design.learns}", tuple(rows), (describe_split(source),))


def _yes_if_monotone(values: Sequence[float] | Floats) -> str:
    return "yes" if (np.diff(values) > 0).all() else "no"


def _level_values(design: KnownAssessors, row: Row) -> list[float]:
    """Return the learned values of a row, in order of quality."""
    return [value for column, value in row.items() if column.startswith(design.quality)]


def describe_split(source: Source) -> str:
    """Return a sentence on the size of a data set and how it is split."""
    features, (to_label, for_gradients) = source.features, source.shares
    n, grades = len(features.query.unique()), counted(int(source.grades.max()) + 1, "grade")
    return (
        f"{counted(len(features.query), 'document')} of {counted(n, 'query')}, "
        f"{counted(len(features.names), 'feature')}, {grades}; in every split {to_label:.0%} of the queries are "
        f"labeled, {for_gradients:.0%} have expert grades for gradients and the rest are for early stopping."
    )


def count_table(design: KnownAssessors, tables: Sequence[Table], chosen: Sequence[str], splits: int) -> Table:
    """Return the number of splits in which the learned value grows with quality, against the goal."""
    rows: list[Row] = []
    for table in tables:
        for name in chosen:
            own = [row for row in table.rows if row["run"].startswith(f"{name}, split")]
            mean = table.row(f"{name}, mean")
            values = _level_values(design, mean)
            rows.append(
                {
                    "run": f"{table.name}, {name}",
                    "splits": len(own),
                    "monotone": sum(row["monotone"] == "yes" for row in own),
                    "rank correlation": mean["rank correlation"],
                    "lowest": values[0],
                    "highest": values[-1],
                }
            )
    notes = []
    for row in (row for row in rows if row["run"].startswith("generated, ")):
        met = "" if splits < len(SEEDS) else f": {'met' if row['monotone'] >= MIN_MONOTONE else 'not met'}"
        notes.append(
            f"{row['run'].split(', ')[1]} is monotone in {row['monotone']} of {row['splits']} splits of the generated "
            f"documents, where the goal is {MIN_MONOTONE} of {len(SEEDS)}{met}."
        )
    return Table("monotone", f"How often {design.learns} grows with {design.quality}", tuple(rows), tuple(notes))


def protocol(design: KnownAssessors, seeds: Sequence[int]) -> list[str]:
    """Return the protocol of all data sets."""
    ridges = ", ".join(f"{ridge:g}" for ridge in RIDGES)
    return [
        f"{counted(len(seeds), 'split')} of the queries of each data set ({seeds_text(seeds)}); every labeled "
        f"document has one label, as in the paper, by one of {ASSESSORS} assessors drawn evenly; each level has as "
        "many assessors.",
        "The remapper maximizes DCG@10 by LambdaRank gradients (gains 15, 7, 3, 1, 0 for grades 4 to 0); the ridge "
        f"({ridges}) and the number of steps are the best ones on the queries for early stopping, also if the gain is "
        "not significant (standard_errors 0), with a patience of 30 steps; all other parameters have their defaults.",
        "linear is REMAP, boosted is MGBDT; there are no significance tests, only splits.",
        "Monotone means that the learned value is higher at every level than at the level below. How much targets "
        "matter depends on the documents: if the features predict all grades equally well and there are many "
        "documents, every increasing target gives the same linear ranker, and the learned values are random.",
        f"The sizes of the generated documents were chosen with results of this experiment in view: {design.tried}",
    ]
