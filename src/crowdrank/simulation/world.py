"""Simulate data from a few settings, and write it to files."""

from __future__ import annotations

import filecmp
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from crowdrank._estimator import OPTION_NAMES
from crowdrank._folders import FolderKind, check_output_folder, write_folder
from crowdrank.constraints import Number, check_parameter
from crowdrank.errors import Fix, OutputError, UsageError, shown
from crowdrank.simulation.crowd import draw_assessors, draw_judgments
from crowdrank.simulation.simulated_documents import (
    MAX_GRADE,
    RealDocuments,
    draw_documents,
    read_source,
    real_documents,
)

WORLD_FOLDER = FolderKind("world", 1, "simulated world", "'crowdrank simulate'")
_SETTING_CONSTRAINTS = {
    **dict.fromkeys(("queries", "documents", "labels", "assessors", "features"), Number(1, integer=True)),
    **dict.fromkeys(("grades", "label_grades"), Number(2, MAX_GRADE + 1, integer=True)),
    "random_state": Number(0, integer=True),
    **dict.fromkeys(("grade_ratio", "spammers", "adversaries", "copies"), Number(0, 1)),
    "honeypots": Number(0, 0.5),
    **dict.fromkeys(("noise", "family_error"), Number(0, 100)),
    **dict.fromkeys(("price", "expert_price"), Number(0)),
}
_DOCUMENT_SETTINGS = ("queries", "documents", "features", "grades", "grade_ratio", "honeypots")
_ASSESSOR_SETTINGS = (
    *("spammers", "adversaries", "grades", "label_grades", "noise"),
    *("families", "family_error", "copies", "price"),
)


@dataclass(frozen=True)
class WorldSettings:
    """Settings of a simulation; :func:`simulate` describes them.

    >>> WorldSettings(queries=10).label_grades
    5
    >>> WorldSettings(spammers=1.5)
    Traceback (most recent call last):
    crowdrank.errors.UsageError: spammers must be a number of at least 0 and at most 1, not 1.5.
    """

    queries: int = 100
    documents: int = 20
    labels: int = 5
    assessors: int = 60
    features: int = 20
    grades: int = 5
    grade_ratio: float = 0.5
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
        for name, default in (("label_grades", self.grades), ("gold_queries", self.queries)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        limits = {
            "families": Number(0, self.assessors, integer=True),
            "gold_queries": Number(0, self.queries, integer=True),
        }
        for name, constraint in {**_SETTING_CONSTRAINTS, **limits}.items():
            value = getattr(self, name)
            check_parameter(name, value, [constraint])
            object.__setattr__(self, name, int(value) if constraint.integer else float(value))
        if self.spammers + self.adversaries > 1:
            raise UsageError(
                f"spammers ({self.spammers}) and adversaries ({self.adversaries}) must have a sum of at most 1",
                kind="shares-above-1",
            )


@dataclass(frozen=True, eq=False)
class World:
    """Simulated judgments of a crowd, and the true parameters of documents and assessors.

    Attributes:
        judgments: query, document, assessor, family (if there are families), grade, time, duration (seconds), cost,
            honeypot (the correct grade, or missing).
        gold: query, document and expert grade.
        features: query, document, f1, f2, ...
        assessors: assessor, kind, rigor, noise, activity, favorite, seconds, price, family, copy_of.
        documents: query, document, relevance, grade, difficulty, honeypot.
        settings: settings of the simulation.

    >>> world = simulate(queries=3, documents=4, labels=2, assessors=5)
    >>> world.judgments.groupby("document").size().unique().tolist()
    [2]

    """

    judgments: pd.DataFrame
    gold: pd.DataFrame
    features: pd.DataFrame
    assessors: pd.DataFrame
    documents: pd.DataFrame
    settings: WorldSettings

    def write(self, folder: str | Path) -> None:
        """Write all tables into a new folder, or replace a folder that this method wrote.

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
        check_output_folder(folder, WORLD_FOLDER)
        _check_ids(self.documents)
        texts = {
            "judgments.csv": _csv_text(self.judgments),
            "gold.qrels": _qrels_text(self.gold),
            "features.letor": _letor_text(self.features, self.documents["grade"]),
            "assessors.csv": _csv_text(self.assessors),
            "documents.csv": _csv_text(self.documents),
            "world.json": _settings_text(self.settings),
        }
        with write_folder(folder, WORLD_FOLDER) as draft:
            for name, text in texts.items():
                (draft / name).write_text(text, encoding="utf-8", newline="\n")

    def is_in(self, folder: str | Path) -> bool:
        """Return whether the files of a folder are those of this world, byte by byte."""
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
    grade_ratio: float | None = None,
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
    """Simulate judgments of a crowd of mixed quality on documents of known relevance.

    Args:
        source: real documents with features and expert grades instead of synthetic ones: a path of a LETOR file or a
            table, a :class:`crowdrank.Features`, a DataFrame, or a list of these. Then `documents`, `features` and
            `grades` come from the data.
        queries: number of queries, by default 100; with a source, its first `queries` queries, by default all.
        documents: mean number of documents per query, by default 20.
        labels: number of assessors who judge each document.
        assessors: number of assessors; a few of them do most of the work.
        features: number of features, by default 20. The first 60 % depend on relevance (not linearly), the others are
            noise.
        grades: number of expert grades, by default 5.
        grade_ratio: frequency of each grade relative to the next lower one, by default 0.5.
        label_grades: number of grades of the crowd, by default that of the experts. With 2, a label is positive if and
            only if the perceived grade exceeds the assessor's rigor.
        spammers: share of assessors whose labels do not depend on the document.
        adversaries: share of assessors who reverse the scale.
        honeypots: share of documents that are easy and have a known answer. With a source, documents of the lowest and
            the highest grade become honeypots, at most half of each grade.
        noise: factor of the noise of all assessors who read the documents; with 0 they differ in rigor only. With 1,
            the noise of an ordinary assessor has a standard deviation of 0.14 times the number of grades.
        families: number of families to which the honest assessors are assigned. A family shares an error for each
            document, in addition to the noise of its members.
        family_error: standard deviation of the shared error, relative to the noise of an ordinary assessor with
            `noise=1`. Both are proportional to the difficulty of a document.
        copies: share of assessors that are second accounts of another assessor of the same kind and family. They have
            its parameters and give its grade to every document that both judge.
        price: price of a label of an ordinary assessor; less noise costs more, and spammers are paid like careless
            assessors.
        expert_price: price of an expert's label.
        gold_queries: number of queries with expert grades (the first ones), by default all.
        random_state: random seed.

    Returns:
        The judgments, the expert grades, the features and the true parameters.

    >>> world = simulate(queries=5, documents=4, random_state=7)
    >>> world.gold.head(2)
      query document  grade
    0     1      1-1      0
    1     1      1-2      1
    >>> real = simulate(source=world.features.assign(grade=world.documents["grade"]), families=2)
    >>> sorted(real.judgments["family"].dropna().unique())
    ['family-1', 'family-2']

    """
    arguments = {name: value for name, value in locals().items() if value is not None}
    graded = None if source is None else _read_documents(arguments)
    if graded is not None:
        arguments |= {**graded.sizes(), "source": graded.source}
    settings = WorldSettings(**arguments)
    for_documents, for_assessors, for_judgments = np.random.default_rng(settings.random_state).spawn(3)
    if graded is None:
        generated = draw_documents(for_documents, **_select_settings(settings, _DOCUMENT_SETTINGS))
    else:
        generated = real_documents(for_documents, graded, honeypots=settings.honeypots)
    crowd = draw_assessors(for_assessors, settings.assessors, **_select_settings(settings, _ASSESSOR_SETTINGS))
    return World(
        judgments=draw_judgments(for_judgments, generated, crowd, n_labels=settings.labels),
        gold=generated.gold_frame(settings.queries if settings.gold_queries is None else settings.gold_queries),
        features=generated.feature_frame(),
        assessors=crowd.frame(),
        documents=generated.frame(),
        settings=settings,
    )


def _read_documents(arguments: Mapping[str, Any]) -> RealDocuments:
    """Read the real documents; check the other arguments of :func:`simulate` before."""
    for name in ("documents", "features", "grades", "grade_ratio"):
        if name in arguments:
            problem = f"comes from the data and cannot be {arguments[name]!r}"
            raise UsageError(problem, parameter=name, fix=["omit it", Fix("omit {}", "source")])
    # The largest number of gold queries is known only after the files are read.
    WorldSettings(**{name: value for name, value in arguments.items() if name not in ("source", "gold_queries")})
    return read_source(arguments["source"], arguments.get("queries"))


def _select_settings(settings: WorldSettings, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in names}


def _check_ids(documents: pd.DataFrame) -> None:
    """Raise OutputError if an id has spaces, which separate fields, or a #, which begins a comment in LETOR files."""
    for role in ("query", "document"):
        unfit = [one for one in documents[role].unique() if "#" in one or len(one.split()) != 1]
        if unfit:
            problem = f"gold.qrels and features.letor cannot contain the {role} {shown(unfit[0])}"
            raise OutputError(problem, kind="unfit-id", fix="use ids without spaces and #")


def _csv_text(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False, lineterminator="\n")


def _qrels_text(gold: pd.DataFrame) -> str:
    rows = zip(gold["query"], gold["document"], gold["grade"], strict=True)
    return "".join(f"{query} 0 {document} {grade}\n" for query, document, grade in rows)


def _letor_text(features: pd.DataFrame, grade: pd.Series[int]) -> str:
    values = features.drop(columns=["query", "document"]).to_numpy().tolist()
    form = " ".join(["%d qid:%s", *(f"{column}:%r" for column in range(1, len(values[0]) + 1)), "# docid = %s\n"])
    rows = zip(grade, features["query"], values, features["document"], strict=True)
    return "".join(form % (grade, query, *row, document) for grade, query, row, document in rows)


def _settings_text(settings: WorldSettings) -> str:
    values = {OPTION_NAMES.get(name, name): value for name, value in asdict(settings).items()}
    return json.dumps(values, indent=2) + "\n"
