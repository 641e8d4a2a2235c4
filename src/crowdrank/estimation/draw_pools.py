"""What documents were drawn for: which ones a draw could reach, and a check that it fits the compared rankings.

An estimate by document corrects the labels of documents with a positive probability of being drawn. Labels of others
keep their bias. The documents that were not drawn are not in the file of a sample, so that each of its rows has digests
of the documents that could be drawn (column `drawn_for`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Booleans, Integers
from crowdrank.errors import Fix, InputError, Message, UsageError, shown
from crowdrank.evaluation.evaluate import as_gold, as_run
from crowdrank.evaluation.measures import Measure, parse_measure
from crowdrank.readers.sources import BadRows, FrameSource

RUN_PREFIX, POOL_PREFIX = "run:", "pool:"
"""Prefixes of digests: of the first documents of a ranking that could be drawn, and of all that could be."""
DIGEST_BYTES = 6


def first_documents(run: Any, cutoff: int | None, name: str) -> pa.Table:
    """Return query and document of the first k documents of a ranking and of those tied with them; None: of all."""
    frame = FrameSource(as_run(run), f"the run '{name}'").read(["query", "document", "score"], BadRows())
    if cutoff is not None:
        order = frame.sort_by([("query", "ascending"), ("score", "descending")])
        query, score = (np.asarray(order[name].combine_chunks()) for name in ("query", "score"))
        is_other = np.append(True, query[1:] != query[:-1])
        first = _last_true(is_other | np.append(True, score[1:] != score[:-1]))  # of the documents of equal score
        frame = order.filter(pa.array(first - _last_true(is_other) < cutoff))
    if not len(frame):
        raise InputError("there are no documents", source=f"run '{name}'", kind="no-rows")
    return frame.select(["query", "document"])


def _last_true(values: Booleans) -> Integers:
    """Return the index of the last true value up to each place, (n,)."""
    return np.maximum.accumulate(np.where(values, np.arange(len(values)), 0))


def describe_draw(runs: Mapping[str, Any], measure: Measure, pool: pa.Table) -> tuple[str, list[Message]]:
    """Return what documents are drawn for, for the column `drawn_for`, and a warning if some cannot be drawn.

    Args:
        runs: rankings by name.
        measure: the measure that they are compared by.
        pool: query and document of all pairs that can be drawn or were drawn before.

    """
    digests, n_missing = [], 0
    for name, run in runs.items():
        first = first_documents(run, measure.cutoff, name)
        is_known = _is_in(first, pool)
        n_missing += int((~is_known).sum())
        digests.append(RUN_PREFIX + _digest(first.filter(pa.array(is_known))))
    text = " ".join([str(measure), *dict.fromkeys(digests), POOL_PREFIX + _digest(pool)])
    if not n_missing:
        return text, []
    documents = counted(n_missing, "first document")
    problem = f"{documents} of the rankings cannot be drawn, so that the bias of their labels stays"
    fix = Fix("give all first documents of the rankings as pairs")
    return text, [Message(problem, "pairs-not-drawn", "warning", fixes=(fix,))]


def check_drawn_for(texts: Iterable[str], runs: Mapping[str, Any], measure: Measure, labels: Any) -> None:
    """Raise InputError unless each draw could reach all labeled documents among the first of the runs.

    This is so if the documents were drawn for these runs (the same first documents in any order), and for the first k
    or more; or if all documents with a label could be drawn.

    Args:
        texts: column `drawn_for` of each draw.
        runs: the runs that are compared, by name.
        measure: the measure that they are compared by.
        labels: the labels.

    """
    labeled = FrameSource(as_gold(labels), "the labels").read(["query", "document"], BadRows())
    all_labeled = POOL_PREFIX + _digest(labeled)
    for text in dict.fromkeys(texts):
        drawn_for, digests = _parse(text)
        if all_labeled in digests:
            continue
        again = "draw documents for these rankings and this measure, with a new file of judgments"
        fixes = [again, "draw them from all labeled documents"]
        if drawn_for.cutoff is not None and (measure.cutoff is None or measure.cutoff > drawn_for.cutoff):
            problem = f"the documents were drawn for {drawn_for}, and {measure} counts others, which could not be drawn"
            raise InputError(problem, source="the expert grades", kind="drawn-for-others", fix=fixes)
        for name, run in runs.items():
            first = first_documents(run, drawn_for.cutoff, name)
            known = first.filter(pa.array(_is_in(first, labeled)))
            if not {RUN_PREFIX + _digest(table) for table in (first, known)} & digests:
                problem = (
                    f"the documents were drawn for other rankings: some first documents of {shown(name)} could not be "
                    f"drawn, so that the bias of their labels would not be corrected"
                )
                raise InputError(problem, source="the expert grades", kind="drawn-for-others", fix=fixes)


def _parse(text: str) -> tuple[Measure, set[str]]:
    """Return measure and digests of a cell of the column `drawn_for`."""
    name, *digests = text.split() or [""]
    try:
        return parse_measure(name), set(digests)
    except UsageError as error:
        problem = f"{shown(text)} in the column 'drawn_for' does not begin with a measure"
        fix = "leave the column as `collect next` wrote it"
        raise InputError(problem, source="the expert grades", kind="drawn-for-others", fix=fix) from error


def _is_in(pairs: pa.Table, others: pa.Table) -> Booleans:
    """Return whether each pair is one of the others, (n_pairs,)."""
    known = set(_keys(others))
    return np.array([key in known for key in _keys(pairs)], np.bool_)


def _keys(pairs: pa.Table) -> list[str]:
    ids = (map(str, pairs[name].to_pylist()) for name in ("query", "document"))
    return [f"{query}\0{document}" for query, document in zip(*ids, strict=True)]


def _digest(pairs: pa.Table) -> str:
    """Return a digest of a set of pairs of query and document.

    >>> one = pa.table({"query": ["q", "q"], "document": ["a", "b"]})
    >>> _digest(one) == _digest(one.take([1, 0, 1])), _digest(one) == _digest(one.take([0]))
    (True, False)
    """
    lines = "\n".join(sorted(set(_keys(pairs))))
    return hashlib.blake2b(lines.encode(errors="surrogatepass"), digest_size=DIGEST_BYTES).hexdigest()
