"""The pairs that may be judged, and who may be asked at what price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.errors import InputError, UsageError, near, shown
from crowdrank.judgments import ids
from crowdrank.judgments.bad_rows import BadRows
from crowdrank.judgments.columns import COLUMN_ALIASES, parse_column_map, refuse_duplicate_columns, resolve_columns
from crowdrank.judgments.encode import parse_floats
from crowdrank.judgments.formats import open_source
from crowdrank.judgments.sources import Source, no_rows_error
from crowdrank.judgments.table import NO_QUERY, Judgments

KINDS = ("crowd", "expert", "llm")
ANYONE = -1
"""The assessor of a request that anyone may answer."""


@dataclass(frozen=True, eq=False)
class Roster:
    """Who may be asked: one row for each assessor.

    >>> Roster.of(["ann", "gpt"], kinds=["expert", "llm"], prices={"expert": 50})
    <Roster: 2 assessors (1 expert at 50, 1 llm at 1)>
    """

    assessors: pa.Array  # (n,) ids
    kind: NDArray[np.object_]  # (n,) each one of KINDS
    price: Floats  # (n,)

    def __post_init__(self) -> None:
        if not len(self.assessors) == len(self.kind) == len(self.price):
            raise UsageError(f"There are {len(self)} assessors, {len(self.kind)} kinds and {len(self.price)} prices.")

    @classmethod
    def of(cls, assessors: Any, kinds: Any = "crowd", prices: float | Mapping[str, float] = 1.0) -> Roster:
        """A roster of ids; `kinds` is one kind or one for each, `prices` one price or one for each kind (else 1)."""
        names = assessors if isinstance(assessors, pa.Array) else pa.array(list(assessors))
        kind = np.full(len(names), kinds, object) if isinstance(kinds, str) else np.array(list(kinds), object)
        per_kind = prices if isinstance(prices, Mapping) else dict.fromkeys(KINDS, prices)
        for one in dict.fromkeys(kind):
            require_kind(one)
        return cls(names, kind, np.array([float(per_kind.get(one, 1.0)) for one in kind]))

    def __len__(self) -> int:
        return len(self.assessors)

    def __repr__(self) -> str:
        told = []
        for kind in dict.fromkeys(self.kind):
            prices = np.unique(self.price[self.kind == kind])
            between = f"{prices[0]:g}" if len(prices) == 1 else f"{prices[0]:g}-{prices[-1]:g}"
            told.append(f"{int((self.kind == kind).sum()):,} {kind} at {between}")
        return f"<Roster: {counted(len(self), 'assessor')} ({', '.join(told)})>"

    def without(self, excluded: Any) -> Roster:
        """The roster without some ids."""
        keep = ids.match(pa.array([str(one) for one in excluded], pa.string()), self.assessors) < 0
        return Roster(self.assessors.filter(pa.array(keep)), self.kind[keep], self.price[keep])


def require_kind(kind: object) -> None:
    """Refuse a kind of assessors that there is not."""
    if kind not in KINDS:
        raise UsageError(
            f"There is no kind of assessors {shown(kind)}{near(kind, KINDS)}; the kinds are: {', '.join(KINDS)}."
        )


@dataclass(frozen=True, eq=False)
class Pool:
    """The pairs of query and document that may be judged, each once.

    Without a roster anyone may judge any pair, and requests name nobody. With `allowed`, a pair has a list of its own
    of those who may judge it.

    >>> import pandas as pd
    >>> Pool.read(pd.DataFrame({"qid": ["q", "q"], "docid": ["a", "b"]}))
    <Pool: 2 documents in 1 query>
    """

    query: pa.Array  # (n,) ids
    document: pa.Array  # (n,) ids
    roster: Roster | None = None
    allowed: tuple[Integers, NDArray[np.int32]] | None = (
        None  # where each pair's list starts (n + 1,); places in roster
    )
    honeypot: pa.Array | None = None  # (n,) the right answer of planted pairs, null for all others
    made_of: Judgments | None = field(default=None, repr=False)  # whose items these are, in their order

    def __post_init__(self) -> None:
        if self.allowed is not None:
            offsets, who = self.allowed
            within = self.roster is not None and (who < len(self.roster)).all() and (who >= 0).all()
            if not within or len(offsets) != len(self.query) + 1 or offsets[-1] != len(who):
                raise UsageError("Who may judge each pair has to be a list of places in the roster for each pair.")

    def __len__(self) -> int:
        return len(self.query)

    def __repr__(self) -> str:
        told = f"{counted(len(self), 'document')} in {counted(len(self.query.unique()), 'query')}"
        planted = int(self.planted.sum())
        return f"<Pool: {told}{f', {planted:,} of them planted' if planted else ''}>"

    @property
    def planted(self) -> Booleans:
        """Which pairs are honeypots: (n,)."""
        if self.honeypot is None:
            return np.zeros(len(self), bool)
        return np.asarray(pc.is_valid(self.honeypot))

    def with_roster(self, roster: Roster) -> Pool:
        """The pool with those who may be asked; lists of those allowed are kept, for those on the roster."""
        if self.allowed is None or self.roster is None:
            return replace(self, roster=roster)
        onto = ids.match(roster.assessors, self.roster.assessors)
        offsets, who = self.allowed
        places = onto[who]
        kept = np.concatenate([[0], np.cumsum(places >= 0)])
        return replace(self, roster=roster, allowed=(kept[offsets], places[places >= 0].astype(np.int32)))

    @classmethod
    def of(cls, judgments: Judgments, *, replay: bool = False) -> Pool:
        """The pairs of judgments; to `replay` them, each may be judged by those who judged it."""
        pairs = item_ids(judgments)
        if not replay:
            return cls(*pairs, made_of=judgments)
        roster = Roster.of(judgments.assessors)
        return cls(*pairs, roster, (judgments.offsets.astype(np.int64), judgments.assessor), made_of=judgments)

    @classmethod
    def read(
        cls,
        source: Any,
        *,
        format: str | None = None,
        columns: str | Mapping[str, str] | None = None,
        separator: str | None = None,
    ) -> Pool:
        """Pairs from a file (CSV, qrels, LETOR, ...) or a DataFrame with the columns document and, if any, query.

        A column `assessor` lists who may judge the pair, one a row; a column `honeypot` the right answer of planted
        pairs. A pair that stands there twice is taken once.
        """
        opened, _ = open_source(source, format, separator)
        found = resolve_columns(
            opened.names,
            source=opened.name,
            required_roles=["document"],
            optional_roles=["query", "assessor", "honeypot"],
            column_map=parse_column_map(columns),
        )
        table = opened.read(list(dict.fromkeys(found.values())), BadRows())
        if not len(table):
            raise no_rows_error(opened.name)
        query, queries = _coded(table, found, "query", opened)
        document, documents = _coded(table, found, "document", opened)
        key = query.astype(np.int64) * len(documents) + document
        _, first, pair = np.unique(key, return_index=True, return_inverse=True)
        order = np.argsort(first)  # pairs in the order of the file
        rows, pair = first[order], np.argsort(order)[pair]
        pool = cls(queries.take(pa.array(query[rows])), documents.take(pa.array(document[rows])))
        if "honeypot" in found:
            pool = replace(pool, honeypot=_answers(table[found["honeypot"]].take(pa.array(rows))))
        return pool if "assessor" not in found else _with_allowed(pool, pair, table[found["assessor"]])


def item_ids(judgments: Judgments) -> tuple[pa.Array, pa.Array]:
    """The query and the document of each item."""
    return (
        judgments.queries.take(pa.array(judgments.item_query)),
        judgments.documents.take(pa.array(judgments.item_document)),
    )


def find_pairs(query: pa.Array, document: pa.Array, wanted_query: pa.Array, wanted_document: pa.Array) -> Integers:
    """For each wanted pair of ids its place among others, or -1.

    >>> find_pairs(*(pa.array(ids) for ids in (["q", "q"], ["a", "b"], ["q", "r"], ["b", "b"]))).tolist()
    [1, -1]
    """
    queries, documents = query.unique(), document.unique()
    keys = ids.match(queries, query) * len(documents) + ids.match(documents, document)
    q, d = ids.match(queries, wanted_query), ids.match(documents, wanted_document)
    found = ids.match(pa.array(keys), pa.array(q * len(documents) + d))
    return np.where((q >= 0) & (d >= 0), found, -1)


def _coded(table: pa.Table, found: Mapping[str, str], role: str, source: Source) -> tuple[NDArray[np.int32], pa.Array]:
    if role not in found:
        return np.zeros(len(table), np.int32), pa.array([NO_QUERY])
    codes, names = ids.encode(table[found[role]])
    if (codes < 0).any():
        place = source.place(int(np.argmax(codes < 0)))
        raise InputError(
            f"the {role} is missing", source=source.name, place=place, column=found[role], fix="fill it in"
        )
    return codes, names


def _answers(column: pa.ChunkedArray) -> pa.Array:
    text = pc.utf8_trim_whitespace(column.combine_chunks().cast(pa.string()))
    blank = pc.equal(pc.fill_null(text, ""), "")
    return pc.if_else(blank, pa.scalar(None, pa.string()), text)


def _with_allowed(pool: Pool, pair: Integers, column: pa.ChunkedArray) -> Pool:
    who, names = ids.encode(column)
    named = who >= 0
    order = np.argsort(pair[named], kind="stable")
    offsets = np.searchsorted(pair[named][order], np.arange(len(pool) + 1)).astype(np.int64)
    return replace(pool, roster=Roster.of(names), allowed=(offsets, who[named][order].astype(np.int32)))


def read_roster(source: Any, prices: Mapping[str, float] | None = None, separator: str | None = None) -> Roster:
    """Who may be asked, from a table with the columns assessor and, if any, kind (crowd, expert, llm) and price.

    >>> import pandas as pd
    >>> read_roster(pd.DataFrame({"worker": ["ann", "gpt"], "kind": ["expert", "llm"]}), {"expert": 50, "llm": 1})
    <Roster: 2 assessors (1 expert at 50, 1 llm at 1)>
    """
    opened, _ = open_source(source, None, separator)
    refuse_duplicate_columns(opened.names, opened.name)
    found = resolve_columns(
        opened.names, source=opened.name, required_roles=["assessor"], optional_roles=["cost"], aliases=COLUMN_ALIASES
    )
    kind_column = ["kind"] if "kind" in opened.names else []
    table = opened.read([*found.values(), *kind_column], BadRows())
    if not len(table):
        raise no_rows_error(opened.name)
    codes, names = ids.encode(table[found["assessor"]])
    if (codes < 0).any() or len(names) < len(codes):
        row = int(np.argmax(codes < 0)) if (codes < 0).any() else _first_repeated_judgment(codes)
        told = "is missing" if codes[row] < 0 else f"{shown(names[int(codes[row])].as_py())} stands there twice"
        raise InputError(
            f"the assessor {told}",
            source=opened.name,
            place=opened.place(row),
            column=found["assessor"],
            fix="give each a row",
        )
    kinds = (
        [str(kind or "crowd").strip().lower() or "crowd" for kind in table["kind"].to_pylist()] if kind_column else []
    )
    for row, kind in enumerate(kinds):
        if kind not in KINDS:
            raise InputError(
                f"there is no kind of assessors {shown(kind)}",
                source=opened.name,
                place=opened.place(row),
                column="kind",
                fix=f"the kinds are: {', '.join(KINDS)}",
            )
    roster = Roster.of(names, kinds or "crowd", prices or {})
    return roster if "cost" not in found else replace(roster, price=_prices(roster, table[found["cost"]], opened))


def _first_repeated_judgment(codes: NDArray[np.int32]) -> int:
    seen: set[int] = set()
    for row, code in enumerate(codes.tolist()):
        if code in seen:
            return row
        seen.add(code)
    return 0


def _prices(roster: Roster, column: pa.ChunkedArray, source: Source) -> Floats:
    told = parse_floats(column)
    bad = None if told is None else np.isinf(told) | (told < 0)
    if told is None or (bad is not None and bad.any()):
        row = 0 if bad is None else int(np.argmax(bad))
        raise InputError(
            f"{shown(column[row].as_py())} is not a price",
            source=source.name,
            place=source.place(row),
            fix="write a number from 0 up",
        )
    return np.where(np.isnan(told), roster.price, told)


def parse_prices(text: str | Mapping[str, float] | None) -> dict[str, float]:
    """Prices of kinds from `crowd=0.05,expert=2` (or a mapping).

    >>> parse_prices("crowd=0.05, expert=2")
    {'crowd': 0.05, 'expert': 2.0}
    """
    if text is None:
        return {}
    pairs = text.items() if isinstance(text, Mapping) else [part.partition("=")[::2] for part in text.split(",")]
    prices: dict[str, float] = {}
    for kind, price in pairs:
        require_kind(str(kind).strip())
        try:
            prices[str(kind).strip()] = float(price)
        except ValueError:
            raise UsageError(f"--prices cannot read '{price}'; write kind=number, as in crowd=0.05.") from None
        if not 0 <= prices[str(kind).strip()] < np.inf:
            raise UsageError(f"--prices has {price} for {kind}; a price is a number from 0 up.")
    return prices


def as_pool(pool: Any) -> Pool:
    """`Pool` as it is; `Judgments` as their pairs; a path or a DataFrame is read."""
    if isinstance(pool, Pool):
        return pool
    return Pool.of(pool) if isinstance(pool, Judgments) else Pool.read(Path(pool) if isinstance(pool, str) else pool)
