"""Text with hostile ids in it: what terminals and Markdown renderers make of it."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdrank._text import escape_invisible, markdown_text

HOSTILE = (
    "![x](http://evil.example/p.png)",
    "[x](javascript:alert(1))",
    "[x][y]",
    "[^1]",
    "[y]: http://evil.example",
    "<img src=x onerror=alert(1)>",
    "<!-- comment",
    "</td></tr></table>",
    "<https://evil.example>",
    "&lt;b&gt; &amp; &#60;",
    "`code` ``more`` ```",
    "a|b\\|c\\\\|d",
    "two\nlines\r\n\n# and a heading",
    "http://evil.example/x?y=1",
    "ftp://evil.example",
    "www.evil.example",
    "evil.example.com",
    "//evil.example.com",
    "ann@evil.example",
    "mailto:ann@evil.example",
    "@someone",
    "ask (@someone) of #123, GH-7, owner/name#5",
    "# heading",
    "#123",
    "===",
    "---",
    "- item",
    "+ item",
    "* item",
    "1. item",
    "2) item",
    "> quote",
    "    code",
    "\tcode",
    "~~gone~~ ~one~",
    "**bold** __bold__ *x* _x_",
    "$x^2$ and $$y$$",
    ":smile: ::: note",
    "!!! note",
    "??? note",
    "{: onclick=alert(1) }",
    "{{ 7*7 }}",
    "/// note",
    "[ ] task",
    "[x] task",
    "ends in \\",
    "\x1b[31mred\x9b0m\x07\u202eabc\ud800",
    "ends in www.",
)


@pytest.mark.parametrize("char", [*map(chr, [*range(0x20), *range(0x7F, 0xA0)]), *"\u202e\u2066\u200f\u2028\ud800"])
def test_nothing_that_a_terminal_obeys_is_left(char: str) -> None:
    shown = escape_invisible(f"a{char}b")
    assert shown.isprintable()
    assert shown.isascii()
    assert eval(f'"{shown}"') == f"a{char}b"


def test_other_text_is_left_alone() -> None:
    for text in ("d_1", "häß", "日本語", "नमस्ते", "👩\u200d🔬", "C:\\x1b", " "):
        assert escape_invisible(text) == text
    assert escape_invisible("a\n\tb\x1b", keep_characters="\n\t") == "a\n\tb\\x1b"


def markdown_it(text: str) -> str:
    """Render CommonMark with GitHub's extensions; bare addresses become links where linkify-it-py is installed."""
    parser = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": find_spec("linkify_it") is not None})
    return str(parser.render(text))


def mistune(text: str) -> str:
    """Render with every extension that has a syntax of its own, among them links of bare addresses."""
    plugins = [
        "strikethrough",
        "footnotes",
        "table",
        "url",
        "task_lists",
        "def_list",
        "abbr",
        "mark",
        "math",
        "spoiler",
    ]
    return str(pytest.importorskip("mistune").create_markdown(escape=False, plugins=plugins)(text))


def python_markdown(text: str) -> str:
    """Render as MkDocs does."""
    return str(pytest.importorskip("markdown").markdown(text, extensions=["extra", "admonition", "sane_lists"]))


class Page(HTMLParser):
    """The tags and the visible text of a page; the comments that we write ourselves are left out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, Any]] = []
        self.text = ""
        self.feed(page)
        self.close()
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        assert data == " "


@pytest.mark.parametrize("render", [markdown_it, mistune, python_markdown])
@pytest.mark.parametrize("place", ["PLACE", "- PLACE", "| a | b |\n| --- | --- |\n| PLACE | end |"])
def test_markdown_renders_as_the_text(render: Callable[[str], str], place: str) -> None:
    plain = Page(render(place))
    for text in HOSTILE:
        found = Page(render(place.replace("PLACE", markdown_text(text))))
        assert found.text == plain.text.replace("PLACE", " ".join(escape_invisible(text).split())), text
        assert found.tags == plain.tags, text


@given(st.text(alphabet="ab1 \n\t\\`*_[](){}<>&|~$#+-=:!?/@.^\"'w;,%", min_size=1))
def test_whatever_an_id_holds_no_markup_comes_of_it(text: str) -> None:
    place = "| a |\n| --- |\n| -PLACE- |"
    found = Page(markdown_it(place.replace("PLACE", markdown_text(text))))
    assert found.tags == Page(markdown_it(place)).tags
    assert found.text == f"a -{' '.join(escape_invisible(text).strip().split())}-"


def test_plain_sentences_stay_readable() -> None:
    for text in ("With 18 expert queries, gda is chosen: nDCG@10 is 0.4321 (+3.2% against average).", "-0.0123", "3/5"):
        assert markdown_text(text) == text
