"""Documents of a simulation, synthetic or real: features, relevance, expert grades, difficulty, honeypots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments.columns import feature_position
from crowdrank.readers.features import Features, concat_features, read_features
from crowdrank.readers.files import BYTES_PER_FLOAT, MAX_BYTES, too_large_error
from crowdrank.readers.formats import FORMAT_BY_SUFFIX
from crowdrank.readers.sources import no_rows_error

Texts: TypeAlias = npt.NDArray[np.object_]
INFORMATIVE_SHARE = 0.6
"""Share of the features that depend on relevance; the others are noise."""
UNEXPLAINED_DEVIATION = 0.35
"""Standard deviation of the part of relevance that no feature explains; the explained part has about 1."""
QUERY_DEVIATION = 0.35
"""Standard deviation of the shift of relevance that all documents of a query share."""
CANDIDATES_PER_HONEYPOT = 8
"""Number of random documents from which each honeypot is chosen."""
RELEVANCE_SHAPES: tuple[tuple[int, Callable[..., Floats]], ...] = (
    (1, lambda a: 1.3 * np.tanh(1.5 * a)),  # saturating
    (2, lambda a, b: a * b),  # interaction
    (1, lambda a: 2.2 * (a > 0.7)),  # threshold
    (2, lambda a, b: 1.4 * np.where(a > 0, b, 0.0)),  # gate: b matters only if a is positive
    (1, lambda a: 3 * np.exp(-(a**2))),  # peak: relevance is highest in the middle
    (1, lambda a: 1.0 * a),  # linear
)
"""Shapes of the dependence of relevance on features: number of standard-normal columns, and function of them.

Each function has a variance of about 1.

A linear model sees little or nothing of the interaction, the gate and the peak.
"""
MAX_GRADE = 10
"""Maximum expert grade."""


@dataclass(frozen=True, eq=False, kw_only=True)
class GradedDocuments:
    """Documents with features and expert grades, ordered by query or as in their files."""

    query: Texts
    document: Texts
    features: Floats  # (n_documents, n_features)
    names: tuple[str, ...]  # (n_features,)
    grade: Integers
    grades: int  # number of expert grades, from 0 to the highest

    def __len__(self) -> int:
        return len(self.document)


@dataclass(frozen=True, eq=False, kw_only=True)
class Documents(GradedDocuments):
    """Documents with their true parameters.

    `relevance` is on the scale of the expert grades: a document of grade g has a relevance in (g - 0.5, g + 0.5].
    `difficulty` multiplies the noise of all assessors who read the document; its median is 1.

    >>> documents = draw_documents(np.random.default_rng(1), queries=2, documents=3)
    >>> bool((abs(documents.relevance - documents.grade) <= 0.5).all())
    True
    """

    relevance: Floats
    difficulty: Floats
    honeypot: Booleans

    def frame(self) -> pd.DataFrame:
        """Return the true parameters of the documents.

        >>> draw_documents(np.random.default_rng(1), queries=1, documents=2).frame().columns.tolist()
        ['query', 'document', 'relevance', 'grade', 'difficulty', 'honeypot']
        """
        names = ("query", "document", "relevance", "grade", "difficulty", "honeypot")
        return pd.DataFrame({name: getattr(self, name) for name in names})

    def gold_frame(self, queries: int) -> pd.DataFrame:
        """Return the expert grades of the first `queries` queries.

        >>> draw_documents(np.random.default_rng(1), queries=9, documents=1).gold_frame(1)
          query document  grade
        0     1      1-1      0
        """
        first = pd.factorize(self.query)[0] < queries
        return self.frame().loc[first, ["query", "document", "grade"]]

    def feature_frame(self) -> pd.DataFrame:
        """Return the features, one column each.

        >>> draw_documents(np.random.default_rng(1), queries=1, documents=1, features=2).feature_frame()
          query document      f1      f2
        0     1      1-1 ...
        """
        ids = pd.DataFrame({"query": self.query, "document": self.document})
        return pd.concat([ids, pd.DataFrame(self.features, columns=list(self.names))], axis=1)


def draw_documents(
    rng: np.random.Generator,
    *,
    queries: int,
    documents: int,
    features: int = 20,
    grades: int = 5,
    grade_ratio: float = 0.5,
    honeypots: float = 0.0,
) -> Documents:
    """Draw queries "1", "2", ... with about `documents` documents each.

    `features` and `grades` are numbers of features and of grades. `honeypots` is the share of honeypots among all
    documents; the other documents do not depend on it.

    >>> draw_documents(np.random.default_rng(0), queries=2, documents=2).document.tolist()
    ['1-1', '1-2', '1-3', '2-1']
    """
    for_documents, for_honeypots = rng.spawn(2)
    query = np.repeat(np.arange(queries), _draw_query_sizes(for_documents, queries, documents))
    offsets = for_documents.normal(size=(queries, features))
    ordinary = _draw_ordinary_documents(for_documents, query, offsets, grade_shares(grades, grade_ratio))
    planted = _draw_honeypots(for_honeypots, round(len(query) * honeypots / (1 - honeypots)), offsets, grades)
    return _join_and_name_documents(ordinary, planted, grades)


def grade_shares(grades: int, ratio: float = 0.5) -> Floats:
    """Return the share of each expert grade: `ratio` times that of the next lower grade.

    >>> grade_shares(5).round(3).tolist()
    [0.516, 0.258, 0.129, 0.065, 0.032]
    """
    powers = ratio ** np.arange(grades)
    return np.asarray(powers / powers.sum())


def draw_difficulty(rng: np.random.Generator, n_documents: int) -> Floats:
    """Draw the difficulty of documents that are not honeypots; its median is 1.

    >>> round(float(np.median(draw_difficulty(np.random.default_rng(0), 9999))), 1)
    1.0
    """
    return rng.lognormal(0, 0.5, n_documents)


def draw_honeypot_relevance(
    rng: np.random.Generator, has_highest_grade: Booleans, grades: int
) -> tuple[Floats, Floats]:
    """Draw relevance and difficulty of honeypots, which are easy and have the highest or the lowest grade.

    >>> relevance, difficulty = draw_honeypot_relevance(np.random.default_rng(0), np.array([False, True]), 5)
    >>> relevance.round(1).tolist(), bool((difficulty < 0.3).all())
    ([-0.4, 4.5], True)
    """
    margin = rng.uniform(0, 0.1, len(has_highest_grade))
    relevance = np.where(has_highest_grade, grades - 0.5 - margin, -0.5 + margin)
    return relevance, rng.uniform(0.1, 0.3, len(has_highest_grade))


@dataclass(frozen=True, eq=False)
class _DocumentsWithoutIds:
    """Parameters of documents that have no ids yet."""

    query: Integers
    features: Floats
    relevance: Floats
    difficulty: Floats


def _draw_query_sizes(rng: np.random.Generator, queries: int, documents: int) -> Integers:
    spread = 0.3
    sizes = documents * rng.lognormal(-(spread**2) / 2, spread, queries)
    return np.maximum(1, np.rint(sizes)).astype(np.int64)


def _draw_ordinary_documents(
    rng: np.random.Generator, query: Integers, offsets: Floats, shares: Floats
) -> _DocumentsWithoutIds:
    hidden = rng.normal(size=(len(query), offsets.shape[1]))
    shared = QUERY_DEVIATION * rng.normal(size=len(offsets))
    latent = _explained_relevance(hidden) + shared[query] + UNEXPLAINED_DEVIATION * rng.normal(size=len(query))
    difficulty = draw_difficulty(rng, len(query))
    return _DocumentsWithoutIds(
        query, _make_features(hidden, offsets[query]), _to_relevance(latent, shares), difficulty
    )


def _explained_relevance(latent: Floats) -> Floats:
    """Return the part of relevance that the features explain.

    It is a weighted sum of functions of the first features (`RELEVANCE_SHAPES`). If there are more features than these
    functions need, they are used again on the next features, with half the weight.
    """
    informative = max(1, round(latent.shape[-1] * INFORMATIVE_SHARE))
    parts: list[Floats] = []
    weights: list[float] = []
    used = 0
    while used < informative:
        weight = 1.0 if not weights else weights[-1] / 2
        for needed, shape in RELEVANCE_SHAPES:
            if used + needed <= informative:
                parts.append(weight * shape(*np.moveaxis(latent[..., used : used + needed], -1, 0)))
                weights.append(weight)
                used += needed
    return np.asarray(np.sum(parts, axis=0) / np.linalg.norm(weights))


def _make_features(latent: Floats, offset: Floats) -> Floats:
    """Return the features: some normal, some skewed like counts, some with an offset per query."""
    features = latent.copy()
    features[:, 1::3] = np.exp(latent[:, 1::3])
    features[:, 2::3] += offset[:, 2::3]
    # Four decimals: files have the same values as memory.
    return features.round(4)


def _to_relevance(latent: Floats, shares: Floats) -> Floats:
    """Map latent values monotonically to the scale of grades, such that grades have their shares."""
    place = (np.argsort(np.argsort(latent)) + 0.5) / len(latent)
    borders = np.concatenate([[0.0], np.cumsum(shares)])
    return np.asarray(np.interp(place, borders, np.arange(len(borders)) - 0.5))


def _draw_honeypots(rng: np.random.Generator, n_honeypots: int, offsets: Floats, grades: int) -> _DocumentsWithoutIds:
    """Draw honeypots, half of them with the lowest and half with the highest grade.

    Each is the one of several candidates whose features fit its grade best.
    """
    queries, columns = offsets.shape
    query = rng.integers(queries, size=n_honeypots)
    top = np.arange(n_honeypots) % 2 == 1
    candidates = rng.normal(size=(n_honeypots, CANDIDATES_PER_HONEYPOT, columns))
    fit = _explained_relevance(candidates) * np.where(top, 1, -1)[:, None]
    hidden = candidates[np.arange(n_honeypots), fit.argmax(axis=1)]
    relevance, difficulty = draw_honeypot_relevance(rng, top, grades)
    return _DocumentsWithoutIds(query, _make_features(hidden, offsets[query]), relevance, difficulty)


def _join_and_name_documents(ordinary: _DocumentsWithoutIds, honeypots: _DocumentsWithoutIds, grades: int) -> Documents:
    """Add the honeypots to the documents of their query, and ids that do not reveal them."""
    order = np.argsort(np.concatenate([ordinary.query, honeypots.query]), kind="stable")
    query, features, relevance, difficulty = (
        np.concatenate([getattr(ordinary, field.name), getattr(honeypots, field.name)])[order]
        for field in fields(_DocumentsWithoutIds)
    )
    number = np.arange(len(query)) - np.searchsorted(query, query) + 1
    width = len(str(number.max()))
    query_ids = [str(code + 1) for code in query.tolist()]
    document_ids = [f"{text}-{n:0{width}}" for text, n in zip(query_ids, number.tolist(), strict=True)]
    return Documents(
        query=np.array(query_ids, dtype=object),
        document=np.array(document_ids, dtype=object),
        features=features,
        names=tuple(f"f{column}" for column in range(1, features.shape[1] + 1)),
        relevance=relevance,
        grade=np.searchsorted(np.arange(grades - 1) + 0.5, relevance).astype(np.int64),
        difficulty=difficulty,
        honeypot=order >= len(ordinary.query),
        grades=grades,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class RealDocuments(GradedDocuments):
    """Real documents, in the order of their files."""

    source: tuple[str, ...]  # names of the files

    def sizes(self) -> dict[str, int]:
        """Return the settings of a simulation that follow from the documents."""
        queries = len(set(self.query))
        documents = max(1, round(len(self) / queries))
        return {"queries": queries, "documents": documents, "features": len(self.names), "grades": self.grades}


def read_source(source: Any, queries: int | None = None) -> RealDocuments:
    """Read the documents of the first `queries` queries, by default of all.

    Args:
        source: a path, a :class:`Features`, a DataFrame, or a list of these; a file with an unknown suffix is read as
            LETOR.
        queries: number of queries; the scale of grades is that of all documents.

    >>> frame = pd.DataFrame({"qid": ["a", "b", "b"], "docid": [1, 1, 2], "grade": [0, 1, 2], "bm25": [0, 3, 4]})
    >>> graded = read_source(frame, queries=1)
    >>> graded.document.tolist(), graded.names, graded.grades
    ([1], ('bm25',), 3)

    """
    sources = source if isinstance(source, list | tuple) else [source]
    if not sources:
        raise UsageError("must name at least one file", parameter="source")
    parts = [_source_features(one) for one in sources]
    names = tuple(str(one) if isinstance(one, str | Path) else "the features" for one in sources)
    grade = np.concatenate([_read_grades(part, name) for part, name in zip(parts, names, strict=True)])
    features = _with_all_positions(concat_features(parts, names), ", ".join(names))
    query, document = (np.array(ids.to_pylist(), dtype=object) for ids in (features.query, features.document))
    _refuse_one_grade_or_repeats(", ".join(names), query, document, grade)
    selected = pd.factorize(query)[0] < (len(query) if queries is None else queries)
    return RealDocuments(
        source=names,
        query=query[selected],
        document=document[selected],
        features=features.matrix[selected],
        names=features.names,
        grade=grade[selected],
        grades=int(grade.max()) + 1,
    )


def real_documents(rng: np.random.Generator, graded: GradedDocuments, *, honeypots: float = 0.0) -> Documents:
    """Draw relevance and difficulty of real documents, and choose honeypots among them.

    The relevance is uniform within the interval of the grade. Half of the honeypots have the lowest and half the
    highest grade; they are easy. At most half of the documents of a grade become honeypots; if that is too few at one
    end of the scale, the other end has more.

    >>> frame = pd.DataFrame({"docid": range(8), "grade": [0, 1] * 4, "bm25": 1.5})
    >>> documents = real_documents(np.random.default_rng(0), read_source(frame), honeypots=0.25)
    >>> sorted(documents.grade[documents.honeypot].tolist())
    [0, 1]
    """
    for_documents, for_honeypots = rng.spawn(2)
    honeypot = _choose_honeypots(for_honeypots, graded, round(len(graded) * honeypots))
    relevance = graded.grade + 0.5 - for_documents.random(len(graded))
    difficulty = draw_difficulty(for_documents, len(graded))
    top = graded.grade[honeypot] > 0
    relevance[honeypot], difficulty[honeypot] = draw_honeypot_relevance(for_honeypots, top, graded.grades)
    inherited = {field.name: getattr(graded, field.name) for field in fields(GradedDocuments)}
    return Documents(**inherited, relevance=relevance, difficulty=difficulty, honeypot=honeypot)


def _source_features(source: Any) -> Features:
    if isinstance(source, Features):
        return source
    is_path = isinstance(source, str | Path)
    known = is_path and Path(str(source).lower().removesuffix(".gz")).suffix in FORMAT_BY_SUFFIX
    return read_features(source, format="letor" if is_path and not known else None)


def _read_grades(features: Features, name: str) -> Integers:
    grade = features.grade
    if grade is None:
        fixes = ("use a LETOR file", "use a table with a column 'grade'")
        raise InputError("there are no expert grades", source=name, kind="no-grades", fix=fixes)
    if not len(grade):
        raise no_rows_error(name)
    bad = ~((grade >= 0) & (grade <= MAX_GRADE) & (grade == np.rint(grade)))
    if bad.any():
        row = int(np.argmax(bad))
        problem = f"{grade[row]:g} is not an expert grade" if np.isfinite(grade[row]) else "the expert grade is missing"
        fix = f"use whole numbers from 0 to {MAX_GRADE}"
        raise InputError(problem, source=name, place=f"document {row + 1}", kind="invalid-grade", fix=fix)
    return grade.astype(np.int64)


def _with_all_positions(features: Features, source: str) -> Features:
    """Return the features; those of LETOR files with a column for every position up to the last."""
    if not features.names:
        fix = "write LETOR lines such as: 2 qid:10 1:0.5"
        raise InputError("there are no features", source=source, kind="no-features", fix=fix)
    if not features.zeros_omitted:
        return features
    last = max(map(feature_position, features.names))
    if last * len(features.matrix) * BYTES_PER_FLOAT > MAX_BYTES:
        raise too_large_error(source, f"a table of all features up to position {last:,}", MAX_BYTES)
    return features.on_columns([f"f{number}" for number in range(1, last + 1)])


def _refuse_one_grade_or_repeats(source: str, query: Texts, document: Texts, grade: Integers) -> None:
    if (grade == grade[0]).all():
        problem, fix = f"every document has the grade {grade[0]}", "use data with at least two grades"
        raise InputError(problem, source=source, kind="one-grade", fix=fix)
    repeated = pd.DataFrame({"query": query, "document": document}).duplicated().to_numpy()
    if repeated.any():
        row = int(np.argmax(repeated))
        problem = f"the document {shown(document[row])} of query {shown(query[row])} occurs twice"
        raise InputError(problem, source=source, kind="repeated-document", fix="keep one of the rows")


def _choose_honeypots(rng: np.random.Generator, graded: GradedDocuments, n_honeypots: int) -> Booleans:
    bottom, top = (rng.permutation(np.flatnonzero(graded.grade == end)) for end in (0, graded.grades - 1))
    from_top = min(n_honeypots // 2, len(top) // 2)
    from_bottom = min(n_honeypots - from_top, len(bottom) // 2)
    from_top = min(n_honeypots - from_bottom, len(top) // 2)
    chosen = np.zeros(len(graded), dtype=bool)
    chosen[bottom[:from_bottom]] = True
    chosen[top[:from_top]] = True
    return chosen
