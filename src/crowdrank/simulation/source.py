"""Read real documents with features and expert grades, for a simulated crowd."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from crowdrank._typing import Booleans, Integers
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments.bad_rows import no_rows_error
from crowdrank.judgments.features import Features, concat_features, read_features
from crowdrank.judgments.formats import FORMAT_BY_SUFFIX
from crowdrank.judgments.letor import feature_position
from crowdrank.judgments.limits import BYTES_PER_FLOAT, MAX_BYTES, too_large_error
from crowdrank.simulation.documents import Documents, GradedDocuments, Texts, draw_difficulty, draw_honeypot_relevance

MAX_GRADE = 10
"""Maximum expert grade."""


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
    parts = [_features(one) for one in sources]
    names = tuple(str(one) if isinstance(one, str | Path) else "the features" for one in sources)
    grade = np.concatenate([_grades(part, name) for part, name in zip(parts, names, strict=True)])
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


def _features(source: Any) -> Features:
    if isinstance(source, Features):
        return source
    is_path = isinstance(source, str | Path)
    known = is_path and Path(str(source).lower().removesuffix(".gz")).suffix in FORMAT_BY_SUFFIX
    return read_features(source, format="letor" if is_path and not known else None)


def _grades(features: Features, name: str) -> Integers:
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


def _choose_honeypots(rng: np.random.Generator, graded: GradedDocuments, number: int) -> Booleans:
    bottom, top = (rng.permutation(np.flatnonzero(graded.grade == end)) for end in (0, graded.grades - 1))
    from_top = min(number // 2, len(top) // 2)
    from_bottom = min(number - from_top, len(bottom) // 2)
    from_top = min(number - from_bottom, len(top) // 2)
    chosen = np.zeros(len(graded), dtype=bool)
    chosen[bottom[:from_bottom]] = True
    chosen[top[:from_top]] = True
    return chosen
