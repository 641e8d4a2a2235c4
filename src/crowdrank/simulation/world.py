"""Simulate data from a few settings, with synthetic assessors of several kinds, and write it to files."""

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
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.constraints import Number, check_parameter
from crowdrank.errors import Fix, OutputError, UsageError, shown
from crowdrank.simulation.simulated_documents import (
    MAX_GRADE,
    Documents,
    RealDocuments,
    Texts,
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
HONEST_KIND_SHARES = {"careful": 0.3, "ordinary": 0.5, "careless": 0.2}
"""Kinds of honest assessors and their shares of all honest assessors."""
SPAMMER_KIND_SHARES = {"random-spammer": 0.5, "constant-spammer": 0.3, "center-spammer": 0.2}
"""Kinds of assessors who ignore the document, and their shares of all spammers."""
ADVERSARY_KIND = "adversary"
"""Kind of assessors who reverse the scale."""
NOISE_BY_KIND = {"careful": 0.06, "ordinary": 0.14, "careless": 0.3, ADVERSARY_KIND: 0.14}
"""Standard deviation of the relevance that an assessor perceives, by kind of assessor; 1 is the whole scale."""
SECONDS_BY_KIND = {"careful": 30.0, "ordinary": 22.0, "careless": 14.0, ADVERSARY_KIND: 18.0} | dict.fromkeys(
    SPAMMER_KIND_SHARES, 4.0
)
"""Median number of seconds for a document of average difficulty, by kind."""
PRICE_NOISE_BY_KIND = NOISE_BY_KIND | dict.fromkeys(SPAMMER_KIND_SHARES, NOISE_BY_KIND["careless"])
"""Noise that determines the price of a label; a spammer is paid like a careless assessor."""
NO_FAMILY = -1
"""Code of assessors without a family."""
MAX_RANDOM_NUMBERS = 4_000_000
"""Maximum number of random numbers in memory while assessors are drawn for documents."""
JUDGING_START = np.datetime64("2026-01-05T08:00:00", "s")
"""Time at which the judging begins."""
ARRIVAL_SECONDS = 3 * 24 * 3600
"""Number of seconds within which all assessors begin."""
MEAN_PAUSE_SECONDS = 5.0
"""Mean number of seconds between two tasks of an assessor."""


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


@dataclass(frozen=True, eq=False)
class Assessors:
    """Assessors and their true parameters.

    Attributes:
        assessor: ids.
        kind: kind of each assessor, such as `careful` or `random-spammer`.
        rigor: expert grade that a document must exceed to get a positive label from a two-grade assessor.
        noise: standard deviation of the perceived relevance, on the scale of expert grades.
        activity: probability that the next label is by this assessor; sums to 1.
        favorite: the grade that a constant spammer always gives.
        seconds: median duration of a task.
        price: price of a label.
        family: code of the family, or `NO_FAMILY`.
        original: index of the assessor who owns the account; another assessor if the account is a copy.
        grades: number of expert grades.
        label_grades: number of grades of the crowd.
        families: number of families.
        family_error: standard deviation of the error that a family shares, on the scale of expert grades.

    >>> assessors = draw_assessors(np.random.default_rng(1), 4, spammers=0.5, adversaries=0.25)
    >>> sorted(assessors.kind)
    ['adversary', 'constant-spammer', 'ordinary', 'random-spammer']

    """

    assessor: Texts
    kind: Texts
    rigor: Integers
    noise: Floats
    activity: Floats
    favorite: Integers
    seconds: Floats
    price: Floats
    family: Integers
    original: Integers
    grades: int
    label_grades: int
    families: int
    family_error: float

    def __len__(self) -> int:
        return len(self.assessor)

    @property
    def reads_documents(self) -> Booleans:
        """Whether the grades of each assessor depend on the document.

        >>> draw_assessors(np.random.default_rng(1), 2, spammers=1).reads_documents.tolist()
        [False, False]
        """
        return ~np.isin(self.kind, list(SPAMMER_KIND_SHARES))

    @property
    def family_name(self) -> Texts:
        """Name of the family of each assessor, None without a family.

        >>> draw_assessors(np.random.default_rng(1), 4, spammers=0.25, families=2).family_name.tolist()
        [None, 'family-2', 'family-1', 'family-1']
        """
        names = [*(f"family-{number}" for number in range(1, self.families + 1)), None]
        return np.array(names, dtype=object)[self.family]

    @property
    def is_copy(self) -> Booleans:
        """Whether each assessor is a second account of another one.

        >>> int(draw_assessors(np.random.default_rng(1), 10, copies=0.4).is_copy.sum())
        4
        """
        return np.asarray(self.original != np.arange(len(self)))

    def frame(self) -> pd.DataFrame:
        """Return the true parameters of the assessors; a parameter that the kind does not have is missing.

        >>> draw_assessors(np.random.default_rng(1), 1).frame()[["assessor", "kind", "favorite", "price", "copy_of"]]
           assessor      kind  favorite  price copy_of
        0  worker-1  ordinary      <NA>  0.037    None
        """
        reads = self.reads_documents
        return pd.DataFrame(
            {
                "assessor": self.assessor,
                "kind": self.kind,
                "rigor": pd.Series(self.rigor, dtype="Int64").where(reads),
                "noise": np.where(reads, self.noise, np.nan),
                "activity": self.activity,
                "favorite": pd.Series(self.favorite, dtype="Int64").where(self.kind == "constant-spammer"),
                "seconds": self.seconds,
                "price": self.price,
                "family": self.family_name,
                "copy_of": pd.Series(self.assessor[self.original], dtype=object).where(self.is_copy, None),
            }
        )

    def thresholds(self) -> Floats:
        """Return the relevance at which each assessor's grades begin, (n_assessors, label_grades - 1).

        The thresholds increase with the rigor. With two grades, the only threshold is between the expert grades r and
        r + 1 for the rigor r: a label is positive if and only if the grade exceeds r (REMAP eq. 11).

        >>> crowd = draw_assessors(np.random.default_rng(1), 1, label_grades=2, noise=0)
        >>> crowd.thresholds().item() == crowd.rigor.item() + 0.5
        True
        """
        grades, label_grades = self.grades, self.label_grades
        even = np.arange(1, label_grades) * grades / label_grades - 0.5
        shift = (self.rigor - (grades - 2) / 2) * 2 / label_grades
        return np.asarray(even + shift[:, None])

    def shared_errors(self, rng: np.random.Generator, difficulty: Floats) -> Floats:
        """Draw the error that each family shares for every document, (families + 1, n_documents).

        The last row, for assessors without a family, is 0. The error is proportional to the difficulty of the document.

        >>> crowd = draw_assessors(np.random.default_rng(1), 4, families=2)
        >>> errors = crowd.shared_errors(np.random.default_rng(0), np.ones(3))
        >>> errors.shape, errors[NO_FAMILY].tolist()
        ((3, 3), [0.0, 0.0, 0.0])
        """
        errors = self.family_error * difficulty * rng.normal(size=(self.families, len(difficulty)))
        return np.vstack([errors, np.zeros(len(difficulty))])

    def label(self, rng: np.random.Generator, assessor: Integers, relevance: Floats, difficulty: Floats) -> Integers:
        """Draw labels.

        Args:
            rng: random generator.
            assessor: index of the assessor of each label, (n_labels,).
            relevance: relevance of the document of each label, (n_labels,).
            difficulty: its difficulty, (n_labels,).

        Returns:
            The grades, (n_labels,).

        >>> crowd = draw_assessors(np.random.default_rng(1), 1, noise=0)
        >>> crowd.label(np.random.default_rng(0), np.zeros(2, int), np.array([-0.5, 4.5]), np.ones(2)).tolist()
        [0, 4]

        """
        highest, n_labels = self.label_grades - 1, len(assessor)
        perceived = relevance + self.noise[assessor] * difficulty * rng.normal(size=n_labels)
        thresholds = self.thresholds()
        honest = np.sum([perceived > thresholds[assessor, grade] for grade in range(highest)], axis=0)
        central = np.clip(np.rint(rng.normal(highest / 2, 0.5, n_labels)), 0, highest)
        kind = self.kind[assessor]
        grades = np.select(
            [kind == name for name in (*SPAMMER_KIND_SHARES, ADVERSARY_KIND)],
            [rng.integers(highest + 1, size=n_labels), self.favorite[assessor], central, highest - honest],
            default=honest,
        )
        return np.asarray(grades, dtype=np.int64)


def draw_assessors(
    rng: np.random.Generator,
    n_assessors: int,
    *,
    spammers: float = 0.0,
    adversaries: float = 0.0,
    grades: int = 5,
    label_grades: int = 5,
    noise: float = 1.0,
    families: int = 0,
    family_error: float = 1.0,
    copies: float = 0.0,
    price: float = 0.05,
) -> Assessors:
    """Draw assessors worker-1, worker-2, ...; :func:`crowdrank.simulate` describes the parameters.

    >>> crowd = draw_assessors(np.random.default_rng(1), 20, spammers=0.1, label_grades=2)
    >>> int(crowd.reads_documents.sum()), crowd.assessor[11]
    (18, 'worker-12')
    """
    # Each parameter has its own generator, so that changing one does not change the others.
    for_kind, for_rigor, for_noise, for_activity, for_favorite, for_time, for_price, for_family, for_copies = rng.spawn(
        9
    )
    kind = _draw_kinds(for_kind, n_assessors, spammers, adversaries)
    noise_factor = for_noise.lognormal(0, 0.2, n_assessors)
    activity = for_activity.lognormal(0, 1.3, n_assessors)
    family = _draw_families(for_family, kind, families)
    original = _draw_account_owners(for_copies, kind, family, copies)
    width = len(str(n_assessors))
    return Assessors(
        assessor=np.array([f"worker-{n:0{width}}" for n in range(1, n_assessors + 1)], dtype=object),
        kind=kind,
        rigor=for_rigor.integers(grades - 1, size=n_assessors)[original],
        noise=(noise * grades * _values_by_kind(NOISE_BY_KIND, kind) * noise_factor)[original],
        activity=activity / activity.sum(),
        favorite=for_favorite.integers(label_grades, size=n_assessors)[original],
        seconds=(_values_by_kind(SECONDS_BY_KIND, kind) * for_time.lognormal(0, 0.25, n_assessors)).round(1)[original],
        price=_draw_prices(for_price, price, _values_by_kind(PRICE_NOISE_BY_KIND, kind) * noise_factor)[original],
        family=family,
        original=original,
        grades=grades,
        label_grades=label_grades,
        families=families,
        family_error=family_error * grades * NOISE_BY_KIND["ordinary"],
    )


def _draw_kinds(rng: np.random.Generator, n_assessors: int, spammers: float, adversaries: float) -> Texts:
    """Return the kind of each assessor in random order; counts are the shares of `n_assessors`, rounded."""
    honest = 1 - spammers - adversaries
    shares = {kind: share * honest for kind, share in HONEST_KIND_SHARES.items()}
    shares |= {ADVERSARY_KIND: adversaries} | {kind: share * spammers for kind, share in SPAMMER_KIND_SHARES.items()}
    ends = np.rint(np.cumsum(list(shares.values())) * n_assessors).astype(np.int64)
    kinds = np.repeat(np.array(list(shares), dtype=object), np.diff(ends, prepend=0))
    return np.asarray(rng.permutation(kinds))


def _draw_families(rng: np.random.Generator, kind: Texts, families: int) -> Integers:
    """Assign the honest assessors to families whose sizes differ by at most one."""
    family = np.full(len(kind), NO_FAMILY, dtype=np.int64)
    if families:
        honest = rng.permutation(np.flatnonzero(np.isin(kind, list(HONEST_KIND_SHARES))))
        family[honest] = np.arange(len(honest)) % families
    return family


def _draw_account_owners(rng: np.random.Generator, kind: Texts, family: Integers, copies: float) -> Integers:
    """Return the owner of each account: for a share of them another assessor of the same kind and family."""
    original = np.arange(len(kind))
    group = pd.factorize(pd.MultiIndex.from_arrays([kind, family]))[0]
    shuffled = rng.permutation(len(kind))
    # The first of every group is no copy, so that the others of the group can copy it.
    first = np.unique(group[shuffled], return_index=True)[1]
    duplicates = np.delete(shuffled, first)[: round(copies * len(kind))]
    owners = np.setdiff1d(original, duplicates)
    for assessor in duplicates:
        original[assessor] = rng.choice(owners[group[owners] == group[assessor]])
    return original


def _draw_prices(rng: np.random.Generator, price: float, noise: Floats) -> Floats:
    """Draw prices of a label with three significant digits, inversely proportional to the root of the noise."""
    prices = price * np.sqrt(NOISE_BY_KIND["ordinary"] / noise) * rng.lognormal(0, 0.15, len(noise))
    return np.array([float(f"{one:.3g}") for one in prices])


def _values_by_kind(value_by_kind: dict[str, float], kind: Texts) -> Floats:
    """Return the value for the kind of each assessor; 0 for kinds without one."""
    return np.array([value_by_kind.get(name, 0.0) for name in kind])


def draw_judgments(
    rng: np.random.Generator, documents: Documents, assessors: Assessors, *, n_labels: int
) -> pd.DataFrame:
    """Draw `n_labels` judgments per document, ordered by time; assessors are drawn in proportion to activity.

    >>> from crowdrank.simulation.world import draw_assessors
    >>> from crowdrank.simulation.simulated_documents import draw_documents
    >>> documents = draw_documents(np.random.default_rng(0), queries=2, documents=2)
    >>> crowd = draw_assessors(np.random.default_rng(0), 9)
    >>> judgments = draw_judgments(np.random.default_rng(0), documents, crowd, n_labels=3)
    >>> judgments.columns.tolist()
    ['query', 'document', 'assessor', 'grade', 'time', 'duration', 'cost', 'honeypot']
    >>> len(judgments)
    12
    """
    for_choice, for_labels, for_times, for_families = rng.spawn(4)
    n_labels = min(n_labels, len(assessors))
    item = np.repeat(np.arange(len(documents)), n_labels)
    chosen = choose_assessors(for_choice, assessors.activity, len(documents), n_labels)
    assessor = chosen.ravel()
    difficulty = documents.difficulty[item]
    shared_error = assessors.shared_errors(for_families, documents.difficulty)[assessors.family[assessor], item]
    grade = assessors.label(for_labels, assessor, documents.relevance[item] + shared_error, difficulty)
    if assessors.is_copy.any():
        grade = copy_grades(grade.reshape(chosen.shape), chosen, assessors.original).ravel()
    duration = _draw_durations(for_times, assessors, assessor, difficulty)
    time = _draw_times(for_times, assessor, duration, len(assessors))
    order = np.argsort(time, kind="stable")
    item, assessor = item[order], assessor[order]
    family = {"family": assessors.family_name[assessor]} if assessors.families else {}
    return pd.DataFrame(
        {
            "query": documents.query[item],
            "document": documents.document[item],
            "assessor": assessors.assessor[assessor],
            **family,
            "grade": grade[order],
            "time": np.datetime_as_string(JUDGING_START + time[order], timezone="UTC").astype(object),
            "duration": duration[order],
            "cost": assessors.price[assessor],
            "honeypot": _honeypot_grades(documents, assessors.label_grades).take(item).reset_index(drop=True),
        }
    )


def choose_assessors(rng: np.random.Generator, activity: Floats, n_documents: int, n_labels: int) -> Integers:
    """Draw distinct assessors for every document in proportion to their activity, (documents, labels).

    The smallest of exponential waiting times are sequential draws without replacement (the Gumbel-top-k method without
    logarithms).

    >>> sorted(choose_assessors(np.random.default_rng(0), np.array([0.5, 0.3, 0.2]), 1, 3)[0].tolist())
    [0, 1, 2]
    """
    rate = activity.astype(np.float32)
    chosen = np.empty((n_documents, n_labels), dtype=np.int64)
    rows = max(1, MAX_RANDOM_NUMBERS // len(rate))
    for first in range(0, n_documents, rows):
        part = chosen[first : first + rows]
        waiting = rng.standard_exponential((len(part), len(rate)), dtype=np.float32)
        waiting /= rate
        part[:] = np.argpartition(waiting, n_labels - 1, axis=1)[:, :n_labels]
    return chosen


def copy_grades(grade: Integers, chosen_assessors: Integers, original: Integers) -> Integers:
    """Replace the grades (documents, labels) of copies by those of their originals where both judged a document.

    >>> grade, chosen = np.array([[0, 4, 1], [0, 4, 1]]), np.array([[0, 1, 2], [3, 1, 2]])
    >>> copy_grades(grade, chosen, original=np.array([0, 0, 2, 3])).tolist()
    [[0, 0, 1], [0, 4, 1]]
    """
    copied = grade.copy()
    owner = original[chosen_assessors]
    for column in range(chosen_assessors.shape[1]):
        same_owner = owner == chosen_assessors[:, [column]]
        copied = np.where(same_owner, grade[:, [column]], copied)
    return copied


def _draw_durations(rng: np.random.Generator, assessors: Assessors, assessor: Integers, difficulty: Floats) -> Floats:
    """Draw the seconds of each task; difficult documents take longer, except for spammers."""
    factor = np.where(assessors.reads_documents[assessor], np.sqrt(difficulty), 1.0)
    return np.maximum(1.0, assessors.seconds[assessor] * factor * rng.lognormal(0, 0.5, len(assessor))).round(1)


def _draw_times(rng: np.random.Generator, assessor: Integers, duration: Floats, n_assessors: int) -> Integers:
    """Draw the time of each label in whole seconds from the start; the tasks of an assessor do not overlap."""
    arrival = rng.uniform(0, ARRIVAL_SECONDS, n_assessors)
    spent = duration + rng.exponential(MEAN_PAUSE_SECONDS, len(assessor))
    order = np.lexsort((rng.random(len(assessor)), assessor))
    ordered = assessor[order]
    finished = np.cumsum(spent[order])
    first = np.searchsorted(ordered, ordered)
    before = finished[first] - spent[order][first]
    time = np.empty(len(assessor), dtype=np.int64)
    time[order] = (finished - before + arrival[ordered]).astype(np.int64)
    return time


def _honeypot_grades(documents: Documents, label_grades: int) -> pd.Series[int]:
    """Return the correct grade of each honeypot on the crowd's scale; missing for other documents."""
    correct = np.where(documents.grade > 0, label_grades - 1, 0)
    return pd.Series(correct, dtype="Int64").where(documents.honeypot)


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
