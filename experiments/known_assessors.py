"""Assessors of whom one thing is known: does what is learned of their labels grow with it (REMAP 6.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.judgments.datasets import dataset
from crowdrank.judgments.read import Features, read_features, read_judgments
from crowdrank.judgments.table import Judgments
from crowdrank.label_learning.boosted import BoostedRemapper
from crowdrank.label_learning.label_features import LabelFeatures
from crowdrank.label_learning.linear import LinearRemapper
from crowdrank.label_learning.remapper import Remapper
from crowdrank.rankers.lambdamart import usual_threads
from experiments.base import Experiment, Row, Table, Tell, quiet, seeds_told
from experiments.lessons import generated_documents
from experiments.rankers import joined, mq2008, named, query_numbers

SEEDS = (0, 1, 2, 3, 4)
WANTED = 4
"""So many splits of the generated documents are to be monotone."""
ASSESSORS = 40
RIDGES = (0.1, 1.0)
REMAPPERS: Mapping[str, Callable[..., Remapper]] = {"linear": LinearRemapper, "boosted": BoostedRemapper}


@dataclass(frozen=True, eq=False)
class Source:
    """Graded documents: some to be labeled, some for the experts that steer, the rest for those that say stop."""

    name: str
    title: str
    features: Features
    shares: tuple[float, float] = (0.4, 0.4)

    @property
    def grades(self) -> Floats:
        """The experts' grade of every document."""
        assert self.features.grade is not None
        return np.asarray(self.features.grade, dtype=np.float64)

    def split(self, seed: int) -> tuple[Integers, Integers, Integers]:
        """Rows to be labeled, to steer by, and to stop by; whole queries, by chance."""
        query = query_numbers(self.features)
        n = int(query.max()) + 1
        ends = np.cumsum([round(share * n) for share in self.shares])
        part = np.searchsorted(ends, np.random.default_rng(seed).permutation(n), side="right")
        labeled, steering, stopping = (np.flatnonzero(part[query] == number) for number in range(3))
        return labeled, steering, stopping


class KnownAssessors(ABC):
    """One label of each document by assessors of whom one quality is known, and what is learned of their labels."""

    name: str
    mode: str
    quality: str
    learns: str
    generated: ClassVar[Mapping[str, Any]]
    """The sizes of the generated documents."""
    tried: str
    """How these sizes came about."""

    @abstractmethod
    def levels(self, grades: Floats) -> Floats:
        """The values of the quality, in rising order."""

    @abstractmethod
    def label(self, grades: Floats, own: Floats, highest: float, rng: np.random.Generator) -> Integers:
        """Labels 0 and 1 of documents of these grades by assessors of this quality."""

    @abstractmethod
    def columns(self, label: Integers, own: Floats, levels: Floats) -> dict[str, Any]:
        """The label features: one for each level, as in the paper."""

    @abstractmethod
    def read(self, remapper: Remapper, label: Integers, own: Floats, level: float) -> float:
        """What was learned of the labels of a level."""

    def ask(self, source: Source, rows: Integers, seed: int) -> tuple[Judgments, Floats, Floats]:
        """One label of each of the documents; the quality of each label's assessor, and the levels."""
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

    def learned(self, source: Source, seed: int, cls: Callable[..., Remapper], **options: Any) -> Row:
        """What one split says: the learned number for every level, and whether it grows."""
        labeled, steering, stopping = source.split(seed)
        table, own, levels = self.ask(source, labeled, seed)
        label = np.asarray(table.grade, dtype=np.int64)
        told = LabelFeatures.of(table, self.columns(label, own, levels))
        expert, held_out = (
            (part, part.grade, part.query) for part in (source.features.take(rows) for rows in (steering, stopping))
        )
        settings: dict[str, Any] = {"ridge": RIDGES, "random_state": seed, **options}
        remapper = cls(self.mode, **settings).fit(told, source.features, expert, eval_set=held_out)
        found = np.array([self.read(remapper, label, own, level) for level in levels])
        values = {f"{self.quality} {level:g}": float(value) for level, value in zip(levels, found, strict=True)}
        growing = bool((np.diff(found) > 0).all())
        return {**values, "rank correlation": rank_correlation(levels, found), "monotone": "yes" if growing else "no"}


def rank_correlation(levels: Floats, values: Floats) -> float:
    """Spearman's; 0 where nothing differs, for then nothing was learned.

    >>> rank_correlation(np.array([0, 1, 2]), np.array([5.0, 7.0, 9.0]))
    1.0
    >>> rank_correlation(np.array([0, 1, 2]), np.array([5.0, 5.0, 5.0]))
    0.0
    """
    if np.ptp(values) == 0:
        return 0.0
    return float(np.round(np.corrcoef(rankdata(levels), rankdata(values))[0, 1], 12))


# Documents.


def generated(sizes: Mapping[str, Any]) -> Source:
    """Generated documents."""
    return Source("generated", "Generated documents", generated_documents(sizes))


def letor(sizes: Mapping[str, Any]) -> Source:
    """MQ2008's documents."""
    return Source("mq2008", "MQ2008", mq2008()[0])


def mslr(sizes: Mapping[str, Any]) -> Source:
    """The first documents of MSLR-WEB10K."""
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


# The experiment.


def run(
    design: KnownAssessors,
    methods: Sequence[str] | None,
    only: Sequence[str] | None,
    *,
    seeds: Sequence[int] = SEEDS,
    tell: Tell = quiet,
) -> Experiment:
    """A table for each set of documents, and how often what was learned grows."""
    chosen, sets = named(methods, REMAPPERS, "remapper"), named(only, SOURCES, "data set")
    sources = [SOURCES[name](design.generated) for name in sets]
    tables = [split_table(design, source, chosen, seeds=seeds, tell=tell) for source in sources]
    return Experiment(
        design.name,
        (*tables, count_table(design, tables, chosen, len(seeds))),
        tuple(protocol(design, seeds)),
    )


def split_table(
    design: KnownAssessors, source: Source, chosen: Sequence[str], *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet
) -> Table:
    """What each split of the documents taught each remapper, and the mean over the splits."""
    places = [(name, seed) for name in chosen for seed in seeds]

    def learn(place: tuple[str, int]) -> Row:
        name, seed = place
        tell(f"{name} on {source.name}, split {seeds.index(seed) + 1} of {len(seeds)}")
        return design.learned(source, seed, REMAPPERS[name])

    with ThreadPoolExecutor(min(usual_threads(), len(places))) as pool:
        found = dict(zip(places, pool.map(learn, places), strict=True))
    rows: list[Row] = []
    for name in chosen:
        own = [found[name, seed] for seed in seeds]
        rows += [{"run": f"{name}, split {number}", **row} for number, row in enumerate(own, 1)]
        means = {column: float(np.mean([row[column] for row in own])) for column in own[0] if column != "monotone"}
        rows.append({"run": f"{name}, mean", **means, "monotone": "yes" if _grows(design, means) else "no"})
    return Table(source.name, f"{source.title}: {design.learns}", tuple(rows), (sizes_told(source),))


def _grows(design: KnownAssessors, row: Row) -> bool:
    values = [value for column, value in row.items() if column.startswith(design.quality)]
    return bool((np.diff(values) > 0).all())


def sizes_told(source: Source) -> str:
    """The documents of a source and what becomes of them."""
    features, (labeled, steering) = source.features, source.shares
    n, grades = len(features.query.unique()), counted(int(source.grades.max()) + 1, "grade")
    return (
        f"{counted(len(features.query), 'document')} of {counted(n, 'query')}, "
        f"{counted(len(features.names), 'feature')}, {grades}; in every split {labeled:.0%} of the queries are "
        f"labeled, {steering:.0%} steer and the rest say when to stop."
    )


def count_table(design: KnownAssessors, tables: Sequence[Table], chosen: Sequence[str], splits: int) -> Table:
    """In how many splits what was learned grows with the quality, and whether that is what was asked for."""
    rows: list[Row] = []
    for table in tables:
        for name in chosen:
            own = [row for row in table.rows if row["run"].startswith(f"{name}, split")]
            mean = table.row(f"{name}, mean")
            values = {column: value for column, value in mean.items() if column.startswith(design.quality)}
            rows.append(
                {
                    "run": f"{table.name}, {name}",
                    "splits": len(own),
                    "monotone": sum(row["monotone"] == "yes" for row in own),
                    "rank correlation": mean["rank correlation"],
                    "lowest": next(iter(values.values())),
                    "highest": list(values.values())[-1],
                }
            )
    made = [row for row in rows if row["run"].startswith("generated, ")]
    notes = []
    for row in made:
        met = "" if splits < len(SEEDS) else f": {'met' if row['monotone'] >= WANTED else 'not met'}"
        notes.append(
            f"{row['run'].split(', ')[1]} is monotone in {row['monotone']} of {row['splits']} splits of the generated "
            f"documents, where {WANTED} of {len(SEEDS)} were asked for{met}."
        )
    return Table("monotone", f"How often {design.learns} grows with {design.quality}", tuple(rows), tuple(notes))


def protocol(design: KnownAssessors, seeds: Sequence[int]) -> list[str]:
    """What holds for all data sets."""
    ridges = ", ".join(f"{ridge:g}" for ridge in RIDGES)
    return [
        f"{counted(len(seeds), 'split')} of the queries of each data set ({seeds_told(seeds)}); every labeled "
        f"document has one label, as in the paper, by one of {ASSESSORS} assessors drawn evenly; each level has as "
        "many assessors.",
        "What is raised is DCG@10 by LambdaRank gradients (gains 15, 7, 3, 1, 0 of grades 4 to 0); the ridge "
        f"({ridges}) and the number of steps are those that were best on the queries that say when to stop; everything "
        "else is as the library has it.",
        "linear is REMAP's functions, boosted MGBDT's; there are no tests, but the splits.",
        "Monotone means that the learned number is higher at every level than at the one below. How far targets matter "
        "depends on the documents: where features tell of all grades alike and documents are many, any rising target "
        "makes the same linear ranker, and what is learned follows chance.",
        f"The sizes of the generated documents were settled with this experiment in view: {design.tried}",
    ]
