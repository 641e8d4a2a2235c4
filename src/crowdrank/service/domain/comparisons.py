"""Choice of the pairs of documents that a project compares, if the user gives single documents."""

from __future__ import annotations

import random
from collections.abc import Collection

Comparison = tuple[str, str]
"""Two documents in the order of their ids."""


def choose_comparisons(
    documents: Collection[str], known: Collection[Comparison], n_wanted: int, rng: random.Random
) -> list[Comparison]:
    """Return new comparisons, so that each document of a query has at least `n_wanted`, as far as there are others.

    All documents are linked by comparisons, so that the model can order them, and each has about as many as the others.

    Args:
        documents: documents of the query.
        known: comparisons that exist; their documents may be compared again with new ones.
        n_wanted: number of comparisons of each document.
        rng: random order of the documents.

    >>> choose_comparisons(["a", "b", "c"], [("a", "b")], 1, random.Random(0))
    [('b', 'c')]

    """
    partners: dict[str, set[str]] = {}
    for first, second in known:
        partners.setdefault(first, set()).add(second)
        partners.setdefault(second, set()).add(first)
    linked = sorted(partners)
    new = sorted(set(documents) - partners.keys())
    rng.shuffle(new)
    partners |= {name: set() for name in new}
    rank = {name: rng.random() for name in partners}
    chosen: list[Comparison] = []

    def compare(name: str, candidates: Collection[str]) -> bool:
        free = [one for one in candidates if one != name and one not in partners[name]]
        if free:
            other = min(free, key=lambda one: (len(partners[one]), rank[one]))
            partners[name].add(other)
            partners[other].add(name)
            chosen.append((min(name, other), max(name, other)))
        return bool(free)

    for name in new:
        compare(name, linked)
        linked.append(name)
    for name in sorted(documents, key=lambda one: (len(partners[one]), rank[one])):
        while len(partners[name]) < n_wanted and compare(name, linked):
            pass
    return chosen
