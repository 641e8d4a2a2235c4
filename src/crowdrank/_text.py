"""Escape text with user data (ids, file names, grade names) for the terminal and for Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

_INVISIBLE_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (C0, DEL, C1), line and paragraph separators, bidirectional controls and lone surrogates."""
_WHITESPACE_ESCAPES = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}
_MARKDOWN_ESCAPES = {ord(char): f"\\{char}" for char in "\\`*_[]{}"} | {
    ord(char): f"&#{ord(char)};" for char in "&<>|~$"
}
_EMPTY_COMMENT = "<!-- -->"
"""HTML comment that keeps Markdown renderers from turning text into a link, mention, reference or emoji."""
_AUTOLINK_PATTERN = re.compile(
    r"(?<=:)(?=//)"  # http://
    r"|(?<=www)(?=\.)"
    r"|(?<=@)(?=[\w.-]*\.\w)"  # ann@example.com
    r"|(?<=\W@)(?=\w)|(?<=^@)(?=\w)"  # @mention
    r"|(?<=#)(?=\w)|(?<=GH-)(?=\d)"  # references to issues
    r"|(?<=:)(?=[\w+-]+:)",  # :emoji:
    re.IGNORECASE,
)
_DOMAIN_DOT = re.compile(r"(?<=\w)\.(?=[^\W\d_])")
_BLOCK_START_PATTERN = re.compile(r"[#=:!?/%^]|[+-](?=[\s+-]|$)|\d+[.)](?=\s|$)")
"""Markdown at the start of a line that begins a heading, list item or another block."""


def visible(text: str, *, keep_characters: str = "") -> str:
    r"""Return the text with invisible control characters and lone surrogates written as escapes.

    Control characters can change a terminal's colors, title and cursor, and Unicode's bidirectional controls change
    the order in which text is displayed. A lone surrogate cannot be encoded.

    Args:
        text: text to print.
        keep_characters: control characters to leave unchanged, such as a newline.

    Returns:
        The text; an ESC in it is written as `\x1b`.

    >>> print(visible("red: \x1b[31m, reversed: \u202eabc"))
    red: \x1b[31m, reversed: \u202eabc
    """
    return _INVISIBLE_CHARACTERS.sub(
        lambda match: match[0] if match[0] in keep_characters else _escape_character(match[0]), text
    )


def _escape_character(char: str) -> str:
    return _WHITESPACE_ESCAPES.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}")


def markdown_text(text: str) -> str:
    r"""Return Markdown that renders as exactly this text, on one line.

    Works in paragraphs, list items and table cells of CommonMark, GitHub's Markdown (with its links, mentions,
    references, formulas and emoji) and Python-Markdown.

    >>> print(markdown_text("![x](http://example.com) of ann@example.com"))
    &#33;\[x\](http:<!-- -->//example\.com) of ann@<!-- -->example\.com
    """
    parts = _AUTOLINK_PATTERN.split(visible(text).strip())
    escaped = _EMPTY_COMMENT.join(_DOMAIN_DOT.sub(r"\\.", part.translate(_MARKDOWN_ESCAPES)) for part in parts)
    if start := _BLOCK_START_PATTERN.match(escaped):
        last = start.end() - 1
        return f"{escaped[:last]}&#{ord(escaped[last])};{escaped[last + 1 :]}"
    return escaped


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    >>> counted(1, "query"), counted(1200, "query"), counted(2, "assessor")
    ('1 query', '1,200 queries', '2 assessors')
    """
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"


def enumerate_names(names: Sequence[str]) -> str:
    """Return one or more names as a list in a sentence.

    >>> enumerate_names(["gda"]), enumerate_names(["gda", "glad", "rasch"])
    ('gda', 'gda, glad and rasch')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
