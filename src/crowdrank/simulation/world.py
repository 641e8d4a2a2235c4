"""A world from a few settings, and its files."""

from __future__ import annotations

import filecmp
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from crowdrank._folders import FolderKind, check_output_folder, write_folder
from crowdrank.errors import OutputError, UsageError, shown
from crowdrank.simulation.assessors import draw_assessors
from crowdrank.simulation.documents import Documents, draw_documents
from crowdrank.simulation.judging import judge
from crowdrank.simulation.source import Graded, read_source, real_documents

WORLD = FolderKind("world", 1, "simulated world", "'crowdrank simulate'")


@dataclass(frozen=True)
class Settings:
    """What a world is made of; the names are explained at :func:`simulate`.

    >>> Settings(queries=10).label_grades
    5
    >>> Settings(spammers=1.5)
    Traceback (most recent call last):
    crowdrank.errors.UsageError: spammers is 1.5, but must be a number from 0 to 1.
    """

    queries: int = 100
    documents: int = 20
    labels: int = 5
    assessors: int = 60
    features: int = 20
    grades: int = 5
    label_grades: int | None = None
    spammers: float = 0.15
    adversaries: float = 0.03
    honeypots: float = 0.05
    noise: float = 1.0
    families: int = 0
    family_error: float = 1.0
    copies: float = 0.0
    price: float = 0.05
    expert_price: float = 1.0
    gold_queries: int | None = None
    random_state: int = 0
    source: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("queries", "documents", "labels", "assessors", "features"):
            self._whole(name, 1)
        self._whole("grades", 2, 11)
        self._fill("label_grades", self.grades)
        self._whole("label_grades", 2, 11)
        self._whole("families", 0, self.assessors)
        self._fill("gold_queries", self.queries)
        self._whole("gold_queries", 0, self.queries)
        self._whole("random_state", 0)
        for name in ("spammers", "adversaries", "copies"):
            self._number(name, 1)
        self._number("honeypots", 0.5)
        self._number("noise", 100)
        self._number("family_error", 100)
        self._number("price")
        self._number("expert_price")
        if self.spammers + self.adversaries > 1:
            together = f"spammers is {self.spammers} and adversaries is {self.adversaries}"
            raise UsageError(f"{together}, but their sum must be at most 1.")

    def _fill(self, name: str, value: int) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    def _whole(self, name: str, low: int, high: int | None = None) -> None:
        object.__setattr__(self, name, _whole(name, getattr(self, name), low, high))

    def _number(self, name: str, high: float | None = None) -> None:
        value = getattr(self, name)
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not 0 <= value < np.inf or (high is not None and value > high):
            allowed = "of at least 0" if high is None else f"from 0 to {high}"
            raise UsageError(f"{name} is {value!r}, but must be a number {allowed}.")
        object.__setattr__(self, name, float(value))


@dataclass(frozen=True, eq=False)
class World:
    """Judgments of a crowd, and the truth behind them.

    judgments: query, document, assessor, family (where there are any), grade, time, duration (seconds), cost,
        honeypot (the right grade, or blank)
    gold: query, document, grade (the experts')
    features: query, document, f1, f2, ...
    assessors: assessor, kind, rigor, noise, activity, favourite, seconds, price, family, copy_of
    documents: query, document, relevance, grade, difficulty, honeypot

    >>> world = simulate(queries=3, documents=4, labels=2, assessors=5)
    >>> world.judgments.groupby("document").size().unique().tolist()
    [2]
    """

    judgments: pd.DataFrame
    gold: pd.DataFrame
    features: pd.DataFrame
    assessors: pd.DataFrame
    documents: pd.DataFrame
    settings: Settings

    def write(self, folder: str | Path) -> None:
        """Write the world's files into a new folder, or replace one that was written by this method.

        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> simulate(queries=1, documents=2, labels=1, honeypots=0).write(folder)
        >>> sorted(path.name for path in folder.iterdir())
        ['assessors.csv', 'crowdrank.json', 'documents.csv', 'features.letor', 'gold.qrels', 'judgments.csv',
        'world.json']
        >>> print((folder / "gold.qrels").read_text(), end="")
        1 0 1-1 1
        1 0 1-2 0
        """
        check_output_folder(folder, WORLD)
        _refuse_spaces(self.documents)
        files: dict[str, Callable[[Path], None]] = {
            "judgments.csv": partial(_write_csv, self.judgments),
            "gold.qrels": partial(_write_qrels, self.gold),
            "features.letor": partial(_write_letor, self.features, self.documents["grade"]),
            "assessors.csv": partial(_write_csv, self.assessors),
            "documents.csv": partial(_write_csv, self.documents),
            "world.json": partial(_write_settings, self.settings),
        }
        with write_folder(folder, WORLD) as draft:
            for name, write in files.items():
                write(draft / name)

    def is_in(self, folder: str | Path) -> bool:
        """Whether a folder holds this very world, byte by byte."""
        with TemporaryDirectory() as fresh:
            self.write(fresh)
            names = [path.name for path in Path(fresh).iterdir()]
            return filecmp.cmpfiles(fresh, folder, names, shallow=False)[0] == names


def simulate(
    *,
    source: Any = None,
    queries: int | None = None,
    documents: int | None = None,
    labels: int = 5,
    assessors: int = 60,
    features: int | None = None,
    grades: int | None = None,
    label_grades: int | None = None,
    spammers: float = 0.15,
    adversaries: float = 0.03,
    honeypots: float = 0.05,
    noise: float = 1.0,
    families: int = 0,
    family_error: float = 1.0,
    copies: float = 0.0,
    price: float = 0.05,
    expert_price: float = 1.0,
    gold_queries: int | None = None,
    random_state: int = 0,
) -> World:
    """A world in which a crowd of mixed quality has judged documents whose true relevance is known.

    source: real documents with features and expert grades instead of invented ones: a path of a LETOR file (or of a
        table), a :class:`crowdrank.Features`, or a list of these. Then `documents`, `features` and `grades` come from
        the data.
    queries, documents: how many queries, and about how many documents each has; 100 and 20 unless given. Of a source
        the first `queries` queries are taken; all of them unless given.
    labels: how many assessors judge each document (all of them, where there are fewer).
    assessors: how many there are; a few do most of the work.
    features: how many columns, 20 unless given; the first 60 % tell of relevance, not linearly, the others are noise.
    grades: how many the experts use, 0 the worst, 5 unless given; each is half as common as the one below.
    label_grades: how many the crowd uses; the experts' number unless given. With 2 a label is positive if and only
        if the perceived grade exceeds the assessor's rigor.
    spammers, adversaries: shares of the assessors who do not look, and who turn the scale round.
    honeypots: share of the tasks, and of the documents, that are clear-cut and planted with a known answer. Of a
        source, documents of the lowest and the highest grade are made honeypots, of each grade at most half.
    noise: multiplies the noise of everyone who looks; 0 leaves differences of rigor only. At 1 the noise of an
        ordinary assessor has a standard deviation of 0.14 times the number of grades.
    families: into how many families the honest assessors are dealt. A family misperceives each document together,
        and its members then err each for themselves.
    family_error: how large the shared error is, in units of an ordinary assessor's noise: at 1 it has the same
        standard deviation, at 0 there is none. It does not depend on `noise`; both grow with a document's difficulty.
    copies: share of the assessors who are second accounts of another of the same kind and family: they have its
        qualities, and its answer on every document that both judge. One of each kind and family is no copy.
    price, expert_price: what a label of an ordinary assessor costs, and one of an expert. Less noise is dearer, and a
        spammer paid as a careless assessor.
    gold_queries: the experts graded the first so many queries; all of them unless given.
    random_state: the same seed and settings give the same world.

    >>> world = simulate(queries=5, documents=4, random_state=7)
    >>> world.gold.head(2)
      query document  grade
    0     1      1-1      0
    1     1      1-2      1
    >>> real = simulate(source=world.features.assign(grade=world.documents["grade"]), families=2)
    >>> sorted(real.judgments["family"].dropna().unique())
    ['family-1', 'family-2']
    """
    sizes: dict[str, Any] = {"queries": queries, "documents": documents, "features": features, "grades": grades}
    crowd: dict[str, Any] = {
        "labels": labels,
        "assessors": assessors,
        "label_grades": label_grades,
        "spammers": spammers,
        "adversaries": adversaries,
        "honeypots": honeypots,
        "noise": noise,
        "families": families,
        "family_error": family_error,
        "copies": copies,
        "price": price,
        "expert_price": expert_price,
        "random_state": random_state,
    }
    if source is None:
        given = {name: value for name, value in sizes.items() if value is not None}
        return _world(Settings(**given, **crowd, gold_queries=gold_queries), None)
    Settings(**crowd)  # what is wrong is told before the files are read
    graded = _real(source, **sizes)
    return _world(Settings(**_sizes(graded), **crowd, gold_queries=gold_queries, source=graded.source), graded)


def _real(source: Any, queries: int | None, **invented: int | None) -> Graded:
    """The real documents to use; sizes of invented ones are refused."""
    for name, value in invented.items():
        if value is not None:
            told = f"{name} is {value!r}"
            raise UsageError(f"{told}, but comes from the data where source (--from) is given; leave it out.")
    if queries is None:
        return read_source(source)
    queries = _whole("queries", queries, 1)
    return read_source(source).first(queries)


def _sizes(graded: Graded) -> dict[str, Any]:
    queries = len(set(graded.query))
    documents = max(1, round(len(graded) / queries))
    return {"queries": queries, "documents": documents, "features": len(graded.names), "grades": graded.grades}


def _world(settings: Settings, graded: Graded | None) -> World:
    for_documents, for_assessors, for_judgments = np.random.default_rng(settings.random_state).spawn(3)
    collection = _documents(for_documents, settings, graded)
    crowd = draw_assessors(
        for_assessors,
        settings.assessors,
        spammers=settings.spammers,
        adversaries=settings.adversaries,
        grades=settings.grades,
        label_grades=settings.label_grades or settings.grades,
        noise=settings.noise,
        families=settings.families,
        family_error=settings.family_error,
        copies=settings.copies,
        price=settings.price,
    )
    return World(
        judgments=judge(for_judgments, collection, crowd, labels=settings.labels),
        gold=collection.gold_frame(settings.queries if settings.gold_queries is None else settings.gold_queries),
        features=collection.feature_frame(),
        assessors=crowd.frame(),
        documents=collection.frame(),
        settings=settings,
    )


def _documents(rng: np.random.Generator, settings: Settings, graded: Graded | None) -> Documents:
    if graded is not None:
        return real_documents(rng, graded, honeypots=settings.honeypots)
    return draw_documents(
        rng,
        queries=settings.queries,
        documents=settings.documents,
        features=settings.features,
        grades=settings.grades,
        honeypots=settings.honeypots,
    )


def _whole(name: str, value: Any, low: int, high: int | None = None) -> int:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        allowed = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise UsageError(f"{name} is {value!r}, but must be a whole number {allowed}.")
    return int(value)


def _refuse_spaces(documents: pd.DataFrame) -> None:
    """Ids in qrels and LETOR files are words, and what follows a # in a LETOR file is a comment."""
    for role in ("query", "document"):
        unfit = [one for one in documents[role].unique() if "#" in one or len(one.split()) != 1]
        if unfit:
            problem = f"gold.qrels and features.letor cannot hold the {role} {shown(unfit[0])}"
            raise OutputError(f"{problem}; use ids without spaces and #.")


def _write_csv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False, lineterminator="\n")


def _write_qrels(gold: pd.DataFrame, path: Path) -> None:
    rows = zip(gold["query"], gold["document"], gold["grade"], strict=True)
    _write_lines(path, [f"{query} 0 {document} {grade}" for query, document, grade in rows])


def _write_letor(features: pd.DataFrame, grade: pd.Series[int], path: Path) -> None:
    values = features.drop(columns=["query", "document"]).to_numpy().tolist()
    form = " ".join(["%d qid:%s", *(f"{column}:%r" for column in range(1, len(values[0]) + 1)), "# docid = %s"])
    rows = zip(grade, features["query"], values, features["document"], strict=True)
    _write_lines(path, [form % (grade, query, *row, document) for grade, query, row, document in rows])


def _write_settings(settings: Settings, path: Path) -> None:
    _write_lines(path, [json.dumps(asdict(settings), indent=2)])


def _write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n" if lines else "", encoding="utf-8", newline="\n")
