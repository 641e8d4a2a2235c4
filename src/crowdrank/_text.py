"""Text for people: user data (ids, file names, grade names) escaped for terminal, Markdown, notebooks; and numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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


def escape_invisible(text: str, *, keep_characters: str = "") -> str:
    r"""Return the text with invisible control characters and lone surrogates written as escapes.

    Control characters can change a terminal's colors, title and cursor, and Unicode's bidirectional controls change
    the order in which text is displayed. A lone surrogate cannot be encoded.

    Args:
        text: text to print.
        keep_characters: control characters to leave unchanged, such as a newline.

    Returns:
        The text; an ESC in it is written as `\x1b`.

    >>> print(escape_invisible("red: \x1b[31m, reversed: \u202eabc"))
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
    parts = _AUTOLINK_PATTERN.split(escape_invisible(text).strip())
    escaped = _EMPTY_COMMENT.join(_DOMAIN_DOT.sub(r"\\.", part.translate(_MARKDOWN_ESCAPES)) for part in parts)
    if start := _BLOCK_START_PATTERN.match(escaped):
        last = start.end() - 1
        return f"{escaped[:last]}&#{ord(escaped[last])};{escaped[last + 1 :]}"
    return escaped


MIN_FIXED_POINT_NUMBER = 0.01
"""Minimum absolute value of a number with four decimals; smaller numbers have two significant digits."""


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table; texts are escaped.

    >>> markdown_table([{"query": "a|b", "nDCG": 0.5}])
    ['| query | nDCG |', '| --- | --- |', '| a&#124;b | 0.5000 |']
    """
    if not rows:
        return ["(none)"]
    names = list(rows[0])
    body = ([_markdown_cell(row[name]) for name in names] for row in rows)
    lines = [[_markdown_cell(name) for name in names], ["---"] * len(names), *body]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _markdown_cell(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}" if value == 0 or abs(value) >= MIN_FIXED_POINT_NUMBER else f"{value:.2g}"
    return markdown_text(str(value))


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


MAX_TABLE_ROWS = 5
"""Maximum number of rows of a table in a notebook."""
MAX_CELL_LENGTH = 60
"""Maximum number of characters of a table cell."""


def panel(*html_blocks: str) -> str:
    """Return an HTML block that contains other HTML blocks.

    >>> panel(heading("3 documents"))
    '<div><p><b>3 documents</b></p></div>'
    """
    return f"<div>{''.join(html_blocks)}</div>"


def heading(text: str) -> str:
    """Return a bold paragraph with escaped text.

    >>> heading("<script>")
    '<p><b>&lt;script&gt;</b></p>'
    """
    return f"<p><b>{_escape_html(text)}</b></p>"


def paragraph(text: str) -> str:
    """Return a paragraph with escaped text.

    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    return f"<p>{_escape_html(text)}</p>"


def html_table(
    rows: Sequence[Mapping[str, Any]], column_names: Iterable[str] | None = None, total_rows: int | None = None
) -> str:
    """Return an HTML table of the first rows, and the number of rows left out.

    >>> html_table([{"id": "<b>", "x": 0.25}])
    '<table><thead><tr><th>id</th><th>x</th></tr></thead><tbody><tr><td>&lt;b&gt;</td><td>0.250</td></tr></tbody></table>'
    """
    if not rows:
        return ""
    columns = list(rows[0]) if column_names is None else list(column_names)
    head = "".join(f"<th>{_escape_html(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{_escape_html(format_cell(row.get(name)))}</td>' for name in columns)}</tr>"
        for row in rows[:MAX_TABLE_ROWS]
    )
    omitted = (len(rows) if total_rows is None else total_rows) - min(MAX_TABLE_ROWS, len(rows))
    more = f"<p>… {omitted:,} more rows</p>" if omitted > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def format_cell(value: Any) -> str:
    """Return the text of a table cell: on one line, truncated if it is long.

    >>> format_cell(0.123456), format_cell(None), format_cell(3), format_cell("x" * 100)[-3:]
    ('0.123', '', '3', 'xx…')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    text = f"{value:.3f}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= MAX_CELL_LENGTH else text[: MAX_CELL_LENGTH - 1] + "…"


def _escape_html(text: str) -> str:
    """Escape HTML and make control characters visible."""
    from html import escape  # rarely needed, and slow to import

    return escape(escape_invisible(text))


REPLACEMENT = "\ufffd"
"""Character shown in place of one that cannot be shown."""
JOINERS = "\u200c\u200d"
"""Invisible characters that join or separate letters in many scripts."""


MIN_DISPLAYED_P = 0.0005
"""Smallest p-value that is not rounded to 0.000; reports/page.js has the same value."""


def signed(value: float, digits: int = 4) -> str:
    """Return a difference with its sign, with a minus sign as wide as the plus.

    >>> signed(-0.01234), signed(0.5, 1)
    ('−0.0123', '+0.5')
    """
    return f"{value:+.{digits}f}".replace("-", "−")


def minus_signs(text: str) -> str:
    """Return a text with minus signs in place of the hyphens before negative numbers.

    >>> minus_signs("gda-pw-mart is -0.0072 [-0.0410, +0.0251]")
    'gda-pw-mart is −0.0072 [−0.0410, +0.0251]'
    >>> minus_signs("-0.5 to 0.5")
    '−0.5 to 0.5'
    """
    return re.sub(r"(?:(?<=[\s(\[])|^)-(?=\d)", "−", text)


def percent(share: float) -> str:
    """Return a share in percent.

    >>> percent(0.694), percent(float("nan"))
    ('69%', '–')
    """
    return "–" if math.isnan(share) else f"{100 * share:.0f}%"


def format_p(p: float) -> str:
    """Format a p-value with three decimals, never as 0.

    >>> format_p(0.0312), format_p(0.0001)
    ('0.031', '< 0.001')
    """
    return f"{p:.3f}" if p >= MIN_DISPLAYED_P else "< 0.001"


def one_line(value: Any, max_length: int = 40) -> str:
    """Return an id or a text on one line, truncated if it is long.

    Characters that cannot be shown are replaced: some stop the rendering of a chart, others reverse text.

    >>> one_line("a  b"), one_line("x" * 50, max_length=10), one_line(chr(1) + "c")
    ('a b', 'xxxxxxxxx…', '\ufffdc')
    """
    text = " ".join("".join(map(_printable, str(value))).split())
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _printable(char: str) -> str:
    return char if char.isprintable() or char.isspace() or char in JOINERS else REPLACEMENT


def distinct_lines(values: Iterable[Any], max_length: int = 40) -> list[str]:
    """Return each id on one line; truncated ids that would be equal are numbered.

    >>> distinct_lines(["ann", "x" * 50, "x" * 60], max_length=10)
    ['ann', 'xxxxxxxxx…', 'xxxxxxxxx… (2)']
    """
    counts: dict[str, int] = {}
    lines = []
    for value in values:
        line = one_line(value, max_length)
        counts[line] = counts.get(line, 0) + 1
        lines.append(line if counts[line] == 1 else f"{line} ({counts[line]})")
    return lines
