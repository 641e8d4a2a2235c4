"""Read real documents with features and expert grades, for a simulated crowd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from crowdrank._typing import Floats
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments.formats import FORMAT_BY_SUFFIX
from crowdrank.judgments.letor import feature_position
from crowdrank.judgments.limits import BYTES_PER_FLOAT, MAX_BYTES, too_large_error
from crowdrank.judgments.read import Features, read_features
from crowdrank.judgments.sources import no_rows_error
from crowdrank.simulation.documents import Documents, Flags, Ints, Texts, draw_difficulty, draw_honeypot_relevance

HIGHEST_GRADE = 10
"""Maximum expert grade."""


@dataclass(frozen=True, eq=False)
class Graded:
    """Real documents with features and expert grades, in the order of their files.

    `grades` is the number of expert grades: 0 to the highest in the files.
    """

    source: tuple[str, ...]
    query: Texts
    document: Texts
    features: Floats  # (n_documents, n_features)
    names: tuple[str, ...]  # (n_features,)
    grade: Ints
    grades: int

    def __len__(self) -> int:
        return len(self.document)

    def first(self, queries: int) -> Graded:
        """Return the documents of the first `queries` queries, with the scale of all documents.

        >>> frame = pd.DataFrame({"qid": ["a", "b", "b"], "docid": [1, 1, 2], "grade": [0, 1, 2], "bm25": [0, 3, 4]})
        >>> one = read_source(frame).first(1)
        >>> one.query.tolist(), one.grades
        (['a'], 3)
        """
        kept = pd.factorize(self.query)[0] < queries
        return replace(
            self,
            query=self.query[kept],
            document=self.document[kept],
            features=self.features[kept],
            grade=self.grade[kept],
        )


def read_source(source: Any) -> Graded:
    """Read documents from a path, a :class:`Features`, a DataFrame, or a list of these.

    A file with an unknown suffix is read as LETOR.

    >>> frame = pd.DataFrame({"qid": [7, 7], "docid": ["a", "b"], "grade": [0, 2], "bm25": [0.5, 3.0]})
    >>> graded = read_source(frame)
    >>> graded.document.tolist(), graded.names, graded.grades
    (['a', 'b'], ('bm25',), 3)
    """
    sources = source if isinstance(source, list | tuple) else [source]
    if not sources:
        raise UsageError("must name at least one file", parameter="source")
    parts = [_features(one) for one in sources]
    names = tuple(_source_name(one) for one in sources)
    grade = np.concatenate([_grades(part, name) for part, name in zip(parts, names, strict=True)])
    columns = _columns(parts, names)
    graded = Graded(
        source=names,
        query=_texts(parts, "query"),
        document=_texts(parts, "document"),
        features=np.concatenate([part.on_columns(columns).matrix for part in parts]),
        names=columns,
        grade=grade,
        grades=int(grade.max()) + 1,
    )
    _refuse_one_grade(graded)
    _refuse_repeats(graded)
    return graded


def real_documents(rng: np.random.Generator, graded: Graded, *, honeypots: float = 0.0) -> Documents:
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
    return Documents(
        query=graded.query,
        document=graded.document,
        features=graded.features,
        names=graded.names,
        relevance=relevance,
        grade=graded.grade,
        difficulty=difficulty,
        honeypot=honeypot,
        grades=graded.grades,
    )


def _features(source: Any) -> Features:
    if isinstance(source, Features):
        return source
    is_path = isinstance(source, str | Path)
    known = is_path and Path(str(source).lower().removesuffix(".gz")).suffix in FORMAT_BY_SUFFIX
    return read_features(source, format="letor" if is_path and not known else None)


def _source_name(source: Any) -> str:
    return str(source) if isinstance(source, str | Path) else "the features"


def _grades(features: Features, name: str) -> Ints:
    grade = features.grade
    if grade is None:
        fixes = ("use a LETOR file", "use a table with a column 'grade'")
        raise InputError("there are no expert grades", source=name, kind="no-grades", fix=fixes)
    if not len(grade):
        raise no_rows_error(name)
    bad = ~((grade >= 0) & (grade <= HIGHEST_GRADE) & (grade == np.rint(grade)))
    if bad.any():
        row = int(np.argmax(bad))
        problem = f"{grade[row]:g} is not an expert grade" if np.isfinite(grade[row]) else "the expert grade is missing"
        fix = f"use whole numbers from 0 to {HIGHEST_GRADE}"
        raise InputError(problem, source=name, place=f"document {row + 1}", kind="invalid-grade", fix=fix)
    return grade.astype(np.int64)


def _columns(parts: Sequence[Features], names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the features of all parts; LETOR files have all positions up to the last in a line."""
    longest = max((part.names for part in parts), key=len)
    if not longest:
        fix = "write LETOR lines such as: 2 qid:10 1:0.5"
        raise InputError("there are no features", source=", ".join(names), kind="no-features", fix=fix)
    if all(part.zeros_omitted for part in parts):
        last = max(feature_position(name) for part in parts for name in part.names)
        if last * sum(len(part.matrix) for part in parts) * BYTES_PER_FLOAT > MAX_BYTES:
            raise too_large_error(", ".join(names), f"a table of all features up to position {last:,}", MAX_BYTES)
        return tuple(f"f{number}" for number in range(1, last + 1))
    for part, name in zip(parts, names, strict=True):
        if part.names != longest:
            problem = "the features differ from those of the other files"
            raise InputError(problem, source=name, kind="other-features", fix="use files with the same features")
    return longest


def _texts(parts: Sequence[Features], role: str) -> Texts:
    return np.array([one for part in parts for one in getattr(part, role).to_pylist()], dtype=object)


def _refuse_one_grade(graded: Graded) -> None:
    if (graded.grade == graded.grade[0]).all():
        problem, fix = f"every document has the grade {graded.grade[0]}", "use data with at least two grades"
        raise InputError(problem, source=", ".join(graded.source), kind="one-grade", fix=fix)


def _refuse_repeats(graded: Graded) -> None:
    repeated = pd.DataFrame({"query": graded.query, "document": graded.document}).duplicated().to_numpy()
    if repeated.any():
        row = int(np.argmax(repeated))
        problem = f"the document {shown(graded.document[row])} of query {shown(graded.query[row])} occurs twice"
        source, fix = ", ".join(graded.source), "keep one of the rows"
        raise InputError(problem, source=source, kind="repeated-document", fix=fix)


def _choose_honeypots(rng: np.random.Generator, graded: Graded, number: int) -> Flags:
    bottom, top = (rng.permutation(np.flatnonzero(graded.grade == end)) for end in (0, graded.grades - 1))
    from_top = min(number // 2, len(top) // 2)
    from_bottom = min(number - from_top, len(bottom) // 2)
    from_top = min(number - from_bottom, len(top) // 2)
    chosen = np.zeros(len(graded), dtype=bool)
    chosen[bottom[:from_bottom]] = True
    chosen[top[:from_top]] = True
    return chosen
