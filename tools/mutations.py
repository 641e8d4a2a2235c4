"""Damage bytes at random: bits, slices, tokens, numbers, lines and nesting."""

from __future__ import annotations

import random
from collections.abc import Callable

MAX_MUTATIONS = 4
"""Maximum number of changes of one input."""
TOKENS = (
    *(b",", b"\t", b'"', b"'", b"\n", b"\r", b"\r\n", b"\0", b" ", b"#", b":", b"|", b"\\", b"{", b"}", b"[", b"]"),
    *(b'<row r="9999999">', b'<c r="XFD9"><v>1</v></c>', b"<c", b"</row>", b"&lol;"),
    *(b"qid:", b"docid = ", b"null", b"true", b"nan", b"inf", b"-2", b"-1", b"0", b"1", b'"1"', b"1.0"),
    *(b"1e999", b"-1e308", b"1e-400", b"9" * 30, b"9" * 5000, b"9007199254740993", b"18446744073709551616", b"1_0"),
    *(
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\\ud800",
        b'"\\udfff"',
        b"\xc2\xa0",
        b"\xe2\x80\xa8",
        b"\x1f\x8b",
    ),
    *(b"=cmd", b"1:1", b"1000000:1", b"2147483648:1", b"x" * 3000),
)
"""Pieces of text and bytes that readers often treat specially."""
CELLS = ("", "0", "-0", "-1", "1", "2", "0.5", "127", "1e18", "1e300", "-1e300", "1e-300", "nan", "inf", "x", "a")
"""Numbers and texts that a cell of a table is replaced by."""
DEPTHS = (20, 200, 2000, 20_000)
"""Depths of nested lists and objects."""


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Return the bytes after a few random changes.

    >>> mutate(b"query,document", random.Random(1)) == mutate(b"query,document", random.Random(1))
    True
    """
    changed = bytearray(content)
    for _ in range(rng.randint(1, MAX_MUTATIONS)):
        rng.choice(MUTATIONS)(changed, rng)
    return bytes(changed)


def mutate_cells(content: bytes, rng: random.Random) -> bytes:
    r"""Return a CSV file without quotes after a few changes of cells, rows and columns.

    >>> mutate_cells(b"document,grade\na,1", random.Random(0))
    b'document\n1e18'
    """
    rows = [line.split(",") for line in content.decode().splitlines()]
    for _ in range(rng.randint(1, MAX_MUTATIONS)):
        row, column, change = rng.randrange(1, len(rows)), rng.randrange(len(rows[0])), rng.random()
        if change < 0.7:
            rows[row][column] = rng.choice(CELLS)
        elif change < 0.8:
            rows.insert(row, list(rng.choice(rows[1:])))
        elif change < 0.9 and len(rows) > 2:
            del rows[row]
        elif len(rows[0]) > 1:
            rows = [[*cells[:column], *cells[column + 1 :]] for cells in rows]
    return "\n".join(map(",".join, rows)).encode()


def _random_slice(content: bytearray, rng: random.Random) -> slice:
    """Return a slice of up to 120 bytes or, sometimes, of any length."""
    start = rng.randint(0, len(content))
    longest = len(content) if rng.random() < 0.1 else 120
    return slice(start, min(len(content), start + rng.randint(1, max(1, longest))))


def _flip_bit(content: bytearray, rng: random.Random) -> None:
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _set_byte(content: bytearray, rng: random.Random) -> None:
    place = rng.randint(0, len(content))
    content[place : place + 1] = bytes([rng.randrange(256)])


def _truncate(content: bytearray, rng: random.Random) -> None:
    del content[rng.randint(0, len(content)) :]


def _delete_slice(content: bytearray, rng: random.Random) -> None:
    del content[_random_slice(content, rng)]


def _fill_slice(content: bytearray, rng: random.Random) -> None:
    part = _random_slice(content, rng)
    content[part] = bytes(part.stop - part.start)


def _duplicate_slice(content: bytearray, rng: random.Random) -> None:
    part = _random_slice(content, rng)
    place = rng.choice((part.start, rng.randint(0, len(content))))
    content[place:place] = content[part] * rng.choice((1, 1, 1, 20))


def _insert_token(content: bytearray, rng: random.Random) -> None:
    place = rng.randint(0, len(content))
    content[place:place] = rng.choice(TOKENS)


def _insert_bytes(content: bytearray, rng: random.Random) -> None:
    place = rng.randint(0, len(content))
    content[place:place] = rng.randbytes(rng.randint(1, 40))


def _replace_digit(content: bytearray, rng: random.Random) -> None:
    """Replace a digit by a token, which keeps the structure around it."""
    digits = [place for place, byte in enumerate(content) if 48 <= byte <= 57]
    if digits:
        place = rng.choice(digits)
        content[place : place + 1] = rng.choice(TOKENS)


def _nest(content: bytearray, rng: random.Random) -> None:
    place, depth = rng.randint(0, len(content)), rng.choice(DEPTHS)
    start, end = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    content[place:place] = start * depth + b"1" + (end * depth if rng.random() < 0.7 else b"")


def _change_line(content: bytearray, rng: random.Random) -> None:
    """Repeat, drop or move a line."""
    lines = bytes(content).splitlines(keepends=True)
    if lines:
        line = lines.pop(rng.randrange(len(lines)))
        for _ in range(rng.choice((0, 1, 2))):
            lines.insert(rng.randint(0, len(lines)), line)
        content[:] = b"".join(lines)


MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(_flip_bit, _flip_bit, _set_byte, _truncate, _delete_slice, _fill_slice, _duplicate_slice, _insert_bytes),
    *(_insert_token, _insert_token, _replace_digit, _replace_digit, _change_line, _nest),
)
"""Changes, each as often as it is drawn."""
