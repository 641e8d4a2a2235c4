"""Pairs of query and document that may be judged, and assessors who may be asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._assessor_kinds import DEFAULT_KIND, KINDS
from crowdrank._estimator import require_number, require_one_of
from crowdrank._text import counted
from crowdrank._typing import Booleans, Codes, Floats, Integers
from crowdrank.errors import UsageError, shown
from crowdrank.judgments import ids
from crowdrank.judgments.columns import COLUMN_ALIASES, GRADE_LIKE_COLUMNS, Roles, parse_column_map
from crowdrank.judgments.pair_index import PairIndex
from crowdrank.judgments.table import Judgments
from crowdrank.readers.formats import open_source
from crowdrank.readers.inputs import RoleTable
from crowdrank.readers.sources import BadRows, Source

HONEYPOT = "honeypot"
ANYONE = -1
"""Assessor of a request that anyone may answer."""
MAX_PRICE_OR_COUNT = 1e9
"""Largest price, and largest number of judgments in a list of requests."""
POOL_ROLES = Roles(("document",), ("query", "assessor", "honeypot"))
"""Roles of the columns of a pool."""
NOT_EXTRA_COLUMNS = GRADE_LIKE_COLUMNS.union(
    *({role, *aliases} for role, aliases in COLUMN_ALIASES.items() if role not in ("query", "document"))
)
"""Names of columns that assessors must not see, such as grades, in lower case."""


@dataclass(frozen=True, eq=False)
class Roster:
    """Assessors who may be asked, with their kinds and prices.

    >>> Roster.of(["ann", "gpt"], kinds=["expert", "llm"], prices={"expert": 50})
    <Roster: 2 assessors (1 expert at 50, 1 llm at 1)>
    """

    assessors: pa.Array  # (n,) ids
    kind: NDArray[np.object_]  # (n,) each one of KINDS
    price: Floats  # (n,) price of a label

    def __post_init__(self) -> None:
        if not len(self.assessors) == len(self.kind) == len(self.price):
            raise UsageError(f"There are {len(self)} assessors, {len(self.kind)} kinds and {len(self.price)} prices.")

    @classmethod
    def of(cls, assessors: Any, kinds: Any = DEFAULT_KIND, prices: float | Mapping[str, float] = 1.0) -> Roster:
        """Return a roster of ids.

        Args:
            assessors: ids.
            kinds: one kind, or one per assessor.
            prices: one price, or a price by kind (1 for other kinds).

        """
        names = assessors if isinstance(assessors, pa.Array) else pa.array(list(assessors))
        kind = np.full(len(names), kinds, object) if isinstance(kinds, str) else np.array(list(kinds), object)
        for one in dict.fromkeys(kind):
            require_one_of("kind", one, KINDS)
        by_kind = prices if isinstance(prices, Mapping) else dict.fromkeys(KINDS, prices)
        return cls(names, kind, np.array([float(by_kind.get(one, 1.0)) for one in kind]))

    def __len__(self) -> int:
        return len(self.assessors)

    def __repr__(self) -> str:
        parts = []
        for kind in dict.fromkeys(self.kind):
            prices = self.price[self.kind == kind]
            low, high = prices.min(), prices.max()
            parts.append(f"{len(prices):,} {kind} at {low:g}" + (f"-{high:g}" if high > low else ""))
        return f"<Roster: {counted(len(self), 'assessor')} ({', '.join(parts)})>"

    def joined(self, other: Roster) -> Roster:
        """Return the assessors of both rosters; raise UsageError if one is in both.

        >>> len(Roster.of(["ann"]).joined(Roster.of(["gpt"], "llm")))
        2
        """
        shared = np.flatnonzero(ids.match(self.assessors, other.assessors) >= 0)
        if len(shared):
            name = shown(other.assessors[int(shared[0])].as_py())
            raise UsageError(f"The assessor {name} is listed twice", kind="duplicate-assessor", fix="list each once")
        return Roster(
            ids.concat_arrays([self.assessors, other.assessors]),
            np.concatenate([self.kind, other.kind]),
            np.concatenate([self.price, other.price]),
        )

    def without(self, excluded: Iterable[object]) -> Roster:
        """Return the roster without some ids."""
        keep = ids.match(pa.array([str(one) for one in excluded], pa.string()), self.assessors) < 0
        return Roster(self.assessors.filter(pa.array(keep)), self.kind[keep], self.price[keep])


@dataclass(frozen=True, eq=False)
class Pool:
    """Pairs of query and document that may be judged, each once.

    Attributes:
        query, document: (n_pairs,) ids.
        roster: assessors who may be asked; without it anyone may judge any pair, and requests name nobody.
        allowed: offsets (n_pairs + 1,) and roster indices of the assessors who may judge each pair; by default all.
        honeypot: (n_pairs,) correct answers of honeypots, null for other pairs.
        source: judgments whose items are the pairs, in the same order.
        extras: further columns (texts, URLs) for the assessors, as text.

    >>> import pandas as pd
    >>> Pool.read(pd.DataFrame({"qid": ["q", "q"], "docid": ["a", "b"]}))
    <Pool: 2 documents in 1 query>

    """

    query: pa.Array
    document: pa.Array
    roster: Roster | None = None
    allowed: tuple[Integers, Codes] | None = None
    honeypot: pa.Array | None = None
    source: Judgments | None = field(default=None, repr=False)
    extras: pa.Table | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.allowed is not None:
            offsets, assessor = self.allowed
            valid = self.roster is not None and (assessor < len(self.roster)).all() and (assessor >= 0).all()
            if not valid or len(offsets) != len(self.query) + 1 or offsets[-1] != len(assessor):
                raise UsageError("must have offsets of all pairs and indices in the roster", parameter="allowed")

    def __len__(self) -> int:
        return len(self.query)

    def __repr__(self) -> str:
        size = f"{counted(len(self), 'document')} in {counted(len(self.query.unique()), 'query')}"
        n_honeypots = int(self.is_honeypot.sum())
        return f"<Pool: {size}{f', {counted(n_honeypots, HONEYPOT)}' if n_honeypots else ''}>"

    @property
    def is_honeypot(self) -> Booleans:
        """Whether each pair is a honeypot (n_pairs,)."""
        return np.zeros(len(self), bool) if self.honeypot is None else np.asarray(pc.is_valid(self.honeypot))

    def with_roster(self, roster: Roster) -> Pool:
        """Return the pool with another roster; `allowed` keeps the assessors of the new roster."""
        if self.allowed is None or self.roster is None:
            return replace(self, roster=roster)
        offsets, assessor = self.allowed
        index = ids.match(roster.assessors, self.roster.assessors)[assessor]
        n_kept = np.concatenate([[0], np.cumsum(index >= 0)])
        return replace(self, roster=roster, allowed=(n_kept[offsets], index[index >= 0].astype(np.int32)))

    def without_extra_column(self, name: str | None) -> Pool:
        """Return the pool without one of its further columns, which assessors must not see."""
        if self.extras is None or name not in self.extras.column_names:
            return self
        return replace(self, extras=self.extras.drop_columns(name))

    def without_pairs(self, query: pa.Array, document: pa.Array) -> Pool:
        """Return the pool without some pairs, such as those with an expert grade; honeypots stay.

        >>> pool = Pool(pa.array(["q", "q"]), pa.array(["a", "b"]))
        >>> pool.without_pairs(pa.array(["q"]), pa.array(["b"])).document.to_pylist()
        ['a']
        """
        own = PairIndex.from_ids(self.query, self.document)
        position = own.positions(query, document)
        keep = self.is_honeypot.copy()
        keep |= ~np.isin(np.arange(len(self)), position)
        rows = pa.array(np.flatnonzero(keep))
        allowed = None
        if self.allowed is not None:
            offsets, assessor = self.allowed
            sizes = np.diff(offsets)
            allowed = np.concatenate([[0], np.cumsum(sizes[keep])]), assessor[np.repeat(keep, sizes)]
        return replace(
            self,
            query=self.query.take(rows),
            document=self.document.take(rows),
            allowed=allowed,
            honeypot=None if self.honeypot is None else self.honeypot.take(rows),
            extras=None if self.extras is None else self.extras.take(rows),
        )

    @classmethod
    def of(cls, judgments: Judgments, *, replay: bool = False) -> Pool:
        """Return the pairs of judgments; for a `replay`, each may be judged by the assessors who judged it."""
        pairs = judgments.item_ids()
        if not replay:
            return cls(*pairs, source=judgments)
        allowed = (judgments.offsets.astype(np.int64), judgments.assessor)
        return cls(*pairs, Roster.of(judgments.assessors), allowed, source=judgments)

    @classmethod
    def read(
        cls,
        source: Any,
        *,
        format: str | None = None,
        columns: str | Mapping[str, str] | None = None,
        separator: str | None = None,
        extras: bool = False,
    ) -> Pool:
        """Read pairs from a file (CSV, qrels, LETOR, ...) or a DataFrame; a repeated pair is read once.

        From a database of the judging service, the open pairs are read.

        Args:
            source: a table with the column document and optionally query, assessor (an assessor who may judge the
                pair, one per row) and honeypot (the correct answer; blank or false if it is none).
            format: file format; by default detected.
            columns: column of each role, such as `query=topic,document=docno`.
            separator: separator between the cells of a text file.
            extras: keep further columns, such as texts and URLs.

        """
        from crowdrank.readers.judging_database import JudgingDatabase

        opened, _ = open_source(source, format, separator, allow_books=False)
        if isinstance(opened, JudgingDatabase):
            opened = opened.open_pairs()
        found = POOL_ROLES.find_columns(opened.names, opened.name, parse_column_map(columns))
        extra_names = _extra_columns(opened, found) if extras else []
        table = opened.read(list(dict.fromkeys((*found.values(), *extra_names))), BadRows())
        by_role = RoleTable.from_table(table, opened, found)
        (query, queries), (document, documents) = by_role.coded_ids("query"), by_role.coded_ids("document")
        index = PairIndex((query, queries), (document, documents))
        rows, pair = index.first_rows, index.pair  # in the order of the file
        pool = cls(queries.take(pa.array(query[rows])), documents.take(pa.array(document[rows])))
        if HONEYPOT in found:
            pool = replace(pool, honeypot=_correct_answers(table[found[HONEYPOT]].take(pa.array(rows))))
        if extra_names:
            texts = {name: table[name].take(pa.array(rows)).cast(pa.string()) for name in extra_names}
            pool = replace(pool, extras=pa.table(texts))
        return _with_allowed(pool, pair, table[found["assessor"]]) if "assessor" in found else pool


def _extra_columns(source: Source, roles: Mapping[str, str]) -> list[str]:
    """Return the columns of a pool that hold neither ids nor grades."""
    if not source.has_user_columns:
        return []
    names = [name for name in source.names if name not in roles.values()]
    return [name for name in names if name.casefold() not in NOT_EXTRA_COLUMNS]


def _correct_answers(column: pa.ChunkedArray) -> pa.Array:
    """Return the correct answers of honeypots as text; blank and "false" cells are no honeypots and null.

    >>> _correct_answers(pa.chunked_array([["False", " ", "Good", None]])).to_pylist()
    [None, None, 'Good', None]
    """
    text = pc.utf8_trim_whitespace(column.combine_chunks().cast(pa.string()))
    is_none = pc.is_in(pc.utf8_lower(pc.fill_null(text, "")), pa.array(["", "false"]))
    return pc.if_else(is_none, pa.scalar(None, pa.string()), text)


def _with_allowed(pool: Pool, pair: Integers, column: pa.ChunkedArray) -> Pool:
    codes, names = ids.encode(column)
    named = codes >= 0
    order = np.argsort(pair[named], kind="stable")
    offsets = np.searchsorted(pair[named][order], np.arange(len(pool) + 1)).astype(np.int64)
    return replace(pool, roster=Roster.of(names), allowed=(offsets, codes[named][order].astype(np.int32)))


def parse_numbers(table: RoleTable, role: str, fix: str, *, blank: bool = False, integer: bool = False) -> Floats:
    """Return a column of numbers from 0 to `MAX_PRICE_OR_COUNT`, NaN for blanks; raise InputError for other cells."""
    values = table.floats(role, allow_blanks=blank, fixes=[fix])
    is_valid = np.isnan(values) | ((values >= 0) & (values <= MAX_PRICE_OR_COUNT))
    is_valid &= np.isnan(values) | (values == np.floor(values)) | (not integer)
    cell = shown(table.cells[role][int(np.argmin(is_valid))].as_py())
    problem = f"{cell} is not a {'whole ' if integer else ''}number of at least 0"
    table.origin.source.require(is_valid, table.origin.column_name(role), problem, fix)
    return values


def read_roster(source: Any, prices: Mapping[str, float] | None = None) -> Roster:
    """Read a roster from a table with the columns assessor and, optionally, kind (human, llm, expert) and price.

    >>> import pandas as pd
    >>> read_roster(pd.DataFrame({"worker": ["ann", "gpt"], "kind": ["expert", "llm"]}), {"expert": 50, "llm": 1})
    <Roster: 2 assessors (1 expert at 50, 1 llm at 1)>
    """
    opened, _ = open_source(source)
    found = Roles(("assessor",), ("cost",)).find_columns(opened.names, opened.name)
    kind_column = ["kind"] if "kind" in opened.names else []
    table = opened.read(list(dict.fromkeys((*found.values(), *kind_column))), BadRows())
    by_role = RoleTable.from_table(table, opened, found)
    codes, names = by_role.coded_ids("assessor")
    is_first = np.zeros(len(codes), bool)
    is_first[np.unique(codes, return_index=True)[1]] = True
    repeated = shown(names[int(codes[np.argmin(is_first)])].as_py())
    opened.require(is_first, found["assessor"], f"the assessor {repeated} occurs twice", "give each one row")
    kinds: list[str] = [DEFAULT_KIND] * len(table)
    if kind_column:
        kinds = [str(cell or "").strip().lower() or DEFAULT_KIND for cell in table["kind"].to_pylist()]
        is_known = np.isin(kinds, KINDS)
        problem = f"there is no kind of assessors {shown(kinds[int(np.argmin(is_known))])}"
        opened.require(is_known, "kind", problem, f"the kinds are: {', '.join(KINDS)}")
    roster = Roster.of(names, kinds, prices or {})
    if "cost" not in found:
        return roster
    price = parse_numbers(by_role, "cost", "write the price as a number", blank=True)
    return replace(roster, price=np.where(np.isnan(price), roster.price, price))


def check_prices(prices: Mapping[str, float]) -> None:
    """Raise UsageError unless the keys are kinds of assessors and the values are prices."""
    for kind, price in prices.items():
        require_one_of("kind", kind, KINDS)
        require_number("prices", price, 0)


def parse_prices(text: str | Mapping[str, float] | None) -> dict[str, float]:
    """Return prices by kind, parsed from text such as `human=0.05,expert=2` or from a mapping.

    >>> parse_prices("human=0.05, expert=2")
    {'human': 0.05, 'expert': 2.0}
    """
    if text is None:
        return {}
    pairs = text.items() if isinstance(text, Mapping) else [part.partition("=")[::2] for part in text.split(",")]
    try:
        prices = {str(kind).strip(): float(price) for kind, price in pairs}
    except ValueError:
        problem = f"cannot be read ({shown(text)}); write kind=number, as in human=0.05"
        raise UsageError(problem, parameter="prices") from None
    check_prices(prices)
    return prices


def as_pool(pool: Any) -> Pool:
    """Return a pool from `Judgments`, a path or a DataFrame; a `Pool` is returned unchanged."""
    if isinstance(pool, Pool):
        return pool
    return Pool.of(pool) if isinstance(pool, Judgments) else Pool.read(Path(pool) if isinstance(pool, str) else pool)
