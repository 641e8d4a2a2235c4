"""Test the judging page without a server: what it holds, and how it works in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import crowdrank
from crowdrank.cli.app import app
from crowdrank.errors import InputError, UsageError
from crowdrank.readers.read_options import CANNOT_JUDGE
from crowdrank.service.web.judging_page import make_offline_page

from .browser_pages import FILL_STORAGE, OpenPage, chromium, needs_browser

GRADES = ["Bad", "Fair", "Good"]
HOSTILE = "</script><script>alert(1)</script><img src=https://example.org/x onerror=alert(2)>"


def write_inputs(folder: Path, documents: int = 3) -> tuple[Path, Path]:
    """Write requests for two queries with some documents each, and their texts; one text is hostile."""
    pairs = [(f"q{query}", f"d{query}{place}") for query in range(2) for place in range(documents)]
    requests, texts = folder / "requests.csv", folder / "texts.jsonl"
    frame = pd.DataFrame(pairs, columns=["query", "document"])
    frame["assessor"] = ["ann", "ben", "ann", "ben", "ann", "ben"][: len(frame)]
    frame.to_csv(requests, index=False)
    rows = [
        {
            "query": query,
            "document": document,
            "query_text": f"green apples {query}",
            "title": f"Title {document}",
            "text": HOSTILE if document == "d00" else f"About apples, {document}. " * 30,
            "url": "javascript:alert(3)" if document == "d00" else "https://example.org/",
        }
        for query, document in pairs
    ]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return requests, texts


def test_a_page_has_the_requests_of_one_assessor_in_order_of_queries(tmp_path: Path) -> None:
    requests, texts = write_inputs(tmp_path)
    assert make_offline_page(requests, [texts], GRADES).n_pairs == 6
    page = make_offline_page(requests, [texts], GRADES, assessor="ann")
    assert page.n_pairs == 3
    assert '"assessor":"ann"' in page.html
    assert page.n_without_text == 0
    with pytest.raises(UsageError) as caught:
        make_offline_page(requests, [texts], GRADES, assessor="anna")
    assert caught.value.parameter == "assessor"


def test_texts_without_a_known_id_are_refused(tmp_path: Path) -> None:
    requests, _ = write_inputs(tmp_path)
    other = tmp_path / "other.csv"
    other.write_text("document,text\nx,y\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        make_offline_page(requests, [other], GRADES)
    assert caught.value.kind == "no-known-id"


def test_the_command_writes_a_page(tmp_path: Path) -> None:
    requests, texts = write_inputs(tmp_path)
    output = tmp_path / "judge.html"
    arguments = ["collect", "page", str(requests), "--texts", str(texts), "-o", str(output), "--json"]
    done = CliRunner().invoke(app, [*arguments, "--grades", "Bad,Fair,Good"])
    assert json.loads(done.stdout) == {"output": str(output), "pairs": 6, "without_text": 0}
    before = output.read_bytes()
    assert isinstance(CliRunner().invoke(app, [*arguments, "--grades", "Bad"]).exception, UsageError)
    assert output.read_bytes() == before


def test_guidelines_that_are_not_utf_8_are_one_error(tmp_path: Path) -> None:
    requests, texts = write_inputs(tmp_path)
    guidelines = tmp_path / "rules.md"
    guidelines.write_bytes(b"# Rules\nna\xefve\n")
    output = tmp_path / "judge.html"
    arguments = ["collect", "page", str(requests), "--texts", str(texts), "-o", str(output)]
    done = CliRunner().invoke(app, [*arguments, "--guidelines", str(guidelines)])
    assert isinstance(done.exception, InputError)
    assert (done.exception.kind, done.exception.location.place) == ("encoding", "line 2")
    assert not output.exists()


# In a browser.


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[OpenPage]:
    """Open a page with six pairs."""
    requests, texts = write_inputs(tmp_path)
    page = make_offline_page(requests, [texts], GRADES, guidelines="# Rules\n<b>bold</b>")
    page.write(tmp_path / "judge.html")
    context = browser.new_context(viewport={"width": 1100, "height": 800})
    view = OpenPage(context.new_page())
    view.listen()
    view.page.goto((tmp_path / "judge.html").as_uri())
    view.page.wait_for_selector(".card")
    yield view
    context.close()


@needs_browser
def test_the_whole_loop_works_by_keyboard(opened: OpenPage, tmp_path: Path) -> None:
    opened.press("3")
    opened.wait_for_text("#progress-text", "1 of 6")
    opened.press("1")
    opened.wait_for_text("#progress-text", "2 of 6")
    opened.press("z")
    opened.wait_for_text("#progress-text", "1 of 6")
    opened.press("l2u13")
    opened.wait_for_text("#progress-text", "5 of 6")
    opened.press("c")
    opened.page.keyboard.type("Not sure, 3 or 2.")
    opened.page.keyboard.press("Escape")
    opened.press("2")
    opened.wait_for_text("#message", "All done")
    opened.page.fill("#assessor", "ann")
    with opened.page.expect_download() as download:
        opened.page.click("#save")
    answers = tmp_path / "answers.csv"
    download.value.save_as(answers)
    frame = pd.read_csv(answers)
    assert sorted(frame["label"]) == sorted(["Good", "Fair", CANNOT_JUDGE, "Bad", "Good", "Fair"])
    assert frame["comment"].dropna().tolist() == ["Not sure, 3 or 2."]
    judgments = crowdrank.read_judgments(answers, grades=GRADES, unjudgeable=CANNOT_JUDGE)
    assert judgments.n_items == 6
    assert judgments.assessors.to_pylist() == ["ann"]


@needs_browser
def test_answers_are_there_after_a_reload(opened: OpenPage) -> None:
    opened.press("12")
    opened.wait_for_text("#progress-text", "2 of 6")
    opened.page.reload()
    opened.wait_for_text("#progress-text", "2 of 6")


@needs_browser
def test_full_storage_swallows_no_answer(opened: OpenPage, tmp_path: Path) -> None:
    opened.press("1")
    opened.wait_for_text("#progress-text", "1 of 6")
    opened.page.evaluate(FILL_STORAGE)
    opened.press("23")
    opened.wait_for_text("#progress-text", "3 of 6")
    assert opened.page.is_visible("#no-room")
    opened.page.fill("#assessor", "ann")
    with opened.page.expect_download() as download:
        opened.page.click("#save")
    download.value.save_as(tmp_path / "answers.csv")
    assert sorted(pd.read_csv(tmp_path / "answers.csv")["label"]) == ["Bad", "Fair", "Good"]


@needs_browser
def test_texts_are_inert_and_nothing_is_requested(opened: OpenPage) -> None:
    shown = []
    for _ in range(6):
        shown.append(opened.text(".card"))
        assert opened.page.locator(".card script, .card img").count() == 0
        opened.press("1")
    assert any(HOSTILE in text for text in shown)
    assert opened.page.locator('a[href^="javascript"]').count() == 0
    assert all(url.startswith(("file:", "data:", "blob:")) for url in opened.requests)
    assert not [text for text in opened.messages if "Autofocus" not in text]


@needs_browser
def test_passages_and_words_are_marked_and_found(opened: OpenPage) -> None:
    while "About" not in opened.text(".card"):
        opened.press("l")
    assert opened.page.locator("mark.term").count() > 0
    opened.page.evaluate(
        "() => { const body = document.querySelector('.body'); const range = document.createRange();"
        " range.setStart(body.firstChild, 0); range.setEnd(body.firstChild, 5);"
        " const selection = getSelection(); selection.removeAllRanges(); selection.addRange(range); }"
    )
    opened.press("e")
    assert opened.text(".evidence q") == "About"
    opened.press("/")
    opened.page.keyboard.type("d")
    assert opened.page.locator("mark.found.here").count() == 1


@needs_browser
@pytest.mark.parametrize("width", [1100, 360])
def test_the_page_is_accessible_and_fits_the_screen(opened: OpenPage, width: int) -> None:
    opened.page.set_viewport_size({"width": width, "height": 740})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.serious_problems() == []
    opened.press("g?")
    assert opened.serious_problems() == []
