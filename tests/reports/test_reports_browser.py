"""The report in a browser: charts are drawn, nothing is requested, tables work, and ids cannot run."""

from __future__ import annotations

import base64
import itertools
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from crowdrank._text import one_line
from crowdrank.reports.page import script_json, write_report
from crowdrank.reports.report_data import ReportData

playwright = pytest.importorskip("playwright.sync_api", reason="tests in a browser need Playwright (extra test)")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="the tests in a browser need Chromium (Debian: apt-get install chromium)"
)


@dataclass
class OpenPage:
    """A page in the browser, and what it logged and requested."""

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def rows(self, table: str) -> list[list[str]]:
        """Return the cells that a table shows, without the lines below the rows."""
        rows = self.page.locator(f'[data-table="{table}"] tbody tr:not(.below)')
        return [row.locator("td").all_inner_texts() for row in rows.all()]

    def column(self, table: str, title: str) -> list[str]:
        """Return the cells of a column, by the first word of its title."""
        heads = self.page.locator(f'[data-table="{table}"] thead th').all_inner_texts()
        place = [head.split()[0] for head in heads].index(title)
        return [row[place].strip() for row in self.rows(table)]

    def sort(self, table: str, title: str) -> None:
        """Click the header of a column."""
        self.page.locator(f'[data-table="{table}"] thead button', has_text=title).first.click()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        # As root, in a container, Chromium has no sandbox to start.
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def open_page(browser: Any, path: Path, width: int = 1366) -> OpenPage:
    view = OpenPage(browser.new_page(viewport={"width": width, "height": 850}))
    view.page.on("console", lambda message: view.messages.append(message.text))
    view.page.on("pageerror", lambda problem: view.messages.append(str(problem)))
    view.page.on("dialog", lambda dialog: view.messages.append(f"a dialog: {dialog.message}"))
    view.page.on("request", lambda request: view.requests.append(request.url))
    view.page.goto(path.as_uri())
    return view


@pytest.fixture(scope="module")
def report_path(ranker_run: Path) -> Path:
    return write_report(ranker_run)


@pytest.fixture(scope="module")
def report(browser: Any, report_path: Path) -> Iterator[OpenPage]:
    view = open_page(browser, report_path)
    yield view
    view.page.close()


def test_charts_are_drawn(report: OpenPage) -> None:
    pictures = report.page.locator("figure img")
    assert pictures.count() >= 9
    for picture in pictures.all():
        assert picture.evaluate("async one => { await one.decode(); return one.naturalWidth; }") > 150
        assert picture.get_attribute("alt")
    n_colors = pictures.first.evaluate(
        """one => { const canvas = document.createElement('canvas'); canvas.width = 200; canvas.height = 200;
        const pen = canvas.getContext('2d'); pen.drawImage(one, 0, 0, 200, 200);
        const seen = new Set(); const data = pen.getImageData(0, 0, 200, 200).data;
        for (let at = 0; at < data.length; at += 4) seen.add(data.slice(at, at + 3).join());
        return seen.size; }"""
    )
    assert n_colors > 10  # not a blank image


def test_nothing_is_requested_or_logged(browser: Any, report_path: Path) -> None:
    view = open_page(browser, report_path)
    view.page.wait_for_load_state("networkidle")
    assert [url for url in view.requests if not url.startswith("data:")] == [report_path.as_uri()]
    assert not view.messages
    view.page.close()


def test_the_first_screen_has_four_cards(report: OpenPage) -> None:
    report.page.evaluate("scrollTo(0, 0)")
    for question in ("Is my ranker better?", "By how much?", "Can I trust the labels?", "What next?"):
        box = report.page.get_by_role("heading", name=question).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 850


def test_tables_sort_by_number_and_by_name(report: OpenPage) -> None:
    def judgments() -> list[int]:
        return [int(cell.replace(",", "")) for cell in report.column("assessors", "judgments")]

    report.sort("assessors", "judgments")
    assert judgments() == sorted(judgments(), reverse=True)
    most = judgments()[0]
    report.sort("assessors", "judgments")
    assert judgments() == sorted(judgments())
    assert judgments()[0] < most
    head = report.page.locator('[data-table="assessors"] th[aria-sort]')
    assert head.get_attribute("aria-sort") == "ascending"
    report.sort("assessors", "assessor")
    assert report.column("assessors", "assessor") == sorted(report.column("assessors", "assessor"))
    report.sort("rankers", "test")
    values = [float(cell) for cell in report.column("rankers", "nDCG@10,") if cell]
    assert values


def test_tables_are_searched_filtered_and_paged(report: OpenPage) -> None:
    table = report.page.locator('[data-table="assessors"]')
    name = report.column("assessors", "assessor")[3]
    table.get_by_role("searchbox").fill(name.upper())
    assert report.column("assessors", "assessor") == [name]
    table.get_by_role("searchbox").fill("no such assessor")
    assert report.rows("assessors") == []
    assert "no matches" in table.locator(".count").inner_text()
    table.get_by_role("searchbox").fill("")
    table.get_by_role("combobox").select_option("drop")
    assert set(report.column("assessors", "advice")) == {"drop"}
    table.get_by_role("combobox").select_option("")
    first = report.column("assessors", "assessor")
    table.get_by_role("button", name="next").click()
    second = report.column("assessors", "assessor")
    assert first
    assert second
    assert not set(first) & set(second)
    table.get_by_role("button", name="previous").click()
    assert report.column("assessors", "assessor") == first


def test_evidence_is_below_each_assessor(report: OpenPage) -> None:
    shown = report.page.locator('[data-table="assessors"] tr.below').all_inner_texts()
    assert len(shown) == len(report.rows("assessors"))
    assert all("nats" in text for text in shown)


def test_estimates_are_never_cut_off(report: OpenPage) -> None:
    circles = report.page.locator('[data-table="next"] tbody circle').all()
    places = [float(circle.get_attribute("cx") or "nan") for circle in circles]
    values = [float(cell.split()[0].replace("−", "-")) for cell in report.column("next", "relevance")]
    assert len(places) == len(values) > 3
    by_value = sorted(zip(values, places, strict=True))
    for (value, place), (more, further) in itertools.pairwise(by_value):
        assert further > place or more - value < 0.02


def test_hostile_ids_cannot_run(browser: Any, hostile_run: Path, hostile_ids: tuple[str, ...]) -> None:
    view = open_page(browser, write_report(hostile_run))
    table = view.page.locator('[data-table="assessors"]')
    for name in hostile_ids:
        searched = one_line(name, 200)
        table.get_by_role("searchbox").fill(searched)
        shown = table.locator("tbody td.id").all_text_contents()
        while table.get_by_role("button", name="next").is_enabled():
            table.get_by_role("button", name="next").click()
            shown += table.locator("tbody td.id").all_text_contents()
        assert searched in shown
    assert view.page.evaluate("window.stolen") is None
    assert "stolen" not in view.page.title()
    assert view.page.locator(".table b, .table img, .table script, .card b, .card img").count() == 0
    assert not view.messages
    assert [url for url in view.requests if not url.startswith("data:")] == [(hostile_run / "report.html").as_uri()]
    view.page.close()


def test_the_policy_blocks_injected_scripts(browser: Any, report_path: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    broken = report_path.read_text().replace(
        "</main>", "<script>window.stolen=1</script><img src=x onerror='window.stolen=1'></main>"
    )
    page.write_text(broken)
    view = open_page(browser, page)
    assert view.page.evaluate("window.stolen") is None
    assert any("Content Security Policy" in message for message in view.messages)
    view.page.close()


def test_a_narrow_screen_is_usable(browser: Any, report_path: Path) -> None:
    view = open_page(browser, report_path, width=360)
    assert view.page.evaluate("document.documentElement.scrollWidth") <= 360
    card = view.page.locator(".card").first.bounding_box()
    assert card is not None
    assert card["width"] > 300
    view.page.locator('[data-table="assessors"] input').fill("worker")
    assert view.rows("assessors")
    sizes = view.page.evaluate(
        "[...document.querySelectorAll('p, td, li')].map(one => parseFloat(getComputedStyle(one).fontSize))"
    )
    assert min(sizes) >= 11
    view.page.close()


def test_a_phone_shows_the_main_figures_and_scroll_hints(browser: Any, report_path: Path) -> None:
    view = open_page(browser, report_path, width=390)
    for link in view.page.locator("nav a").all():
        box = link.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390, "no section is out of reach"
    table = view.page.locator('[data-table="rankers"]')
    assert "test" in table.locator("thead th").nth(1).inner_text()
    for place in (1, 2):
        value = table.locator("tbody tr:not(.below)").first.locator("td").nth(place)
        box = (value.locator(".value") if place == 2 else value).bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390, "the test and the difference stand on the first screen"
    for area in (table.locator(".scrollable"), view.page.locator("figure.scrollable").first):
        assert area.locator(".hint").is_visible()
        assert "right" in (area.get_attribute("class") or "").split()
        assert area.evaluate("one => getComputedStyle(one, '::after').backgroundImage").startswith("linear-gradient")
        area.locator(":scope > :last-child").evaluate("box => { box.scrollLeft = box.scrollWidth; }")
        view.page.wait_for_function("one => !one.classList.contains('right')", arg=area.element_handle())
        assert "left" in (area.get_attribute("class") or "").split()
    # A desktop screen needs no sideways scrolling.
    view.page.set_viewport_size({"width": 1280, "height": 850})
    view.page.wait_for_function("() => !document.querySelector('.hint.shown, .scrollable.right, .scrollable.left')")
    view.page.close()


def test_p_values_are_never_zero_and_differences_have_signs(browser: Any, report_path: Path, tmp_path: Path) -> None:
    page = re.sub(r"<figure.*?</figure>", "", report_path.read_text(), flags=re.DOTALL)
    match = re.search(r'id="data-rankers">(.*?)</script>', page, re.DOTALL)
    assert match
    table = json.loads(match.group(1))
    heads = [column["title"] for column in table["columns"]]
    over, p = heads.index("over majority"), heads.index("p (Holm)")
    for row, difference, chance in zip(table["rows"], (0.05, -0.05), (0.0001, 0.0312), strict=False):
        row[over], row[p] = [-0.1, difference, 0.1], chance
    first, second = (row[0] for row in table["rows"][:2])
    (tmp_path / "report.html").write_text(page.replace(match.group(1), script_json(table)))
    view = open_page(browser, tmp_path / "report.html")
    rows = {row[0]: row for row in view.rows("rankers")}
    assert (rows[first][p], rows[second][p]) == ("< 0.001", "0.031")
    assert (rows[first][over].strip(), rows[second][over].strip()) == ("+0.0500", "−0.0500")
    biases = view.column("assessors", "bias")
    assert any(cell.startswith("+") for cell in biases)
    assert all(cell[0] in "+−" for cell in biases if cell and float(cell.replace("−", "-")))
    assert not view.messages
    view.page.close()


def test_a_report_without_experts_fits_a_narrow_screen_too(browser: Any, majority_run: Path) -> None:
    view = open_page(browser, write_report(majority_run), width=360)
    assert view.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert not view.messages
    view.page.close()


def test_it_opens_without_scripts(browser: Any, report_path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report_path.as_uri())
    assert "assessors.csv" in page.locator('[data-table="assessors"]').inner_text()
    assert page.locator(".card .answer").first.inner_text()
    context.close()


def test_it_prints(report: OpenPage, tmp_path: Path) -> None:
    report.page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    report.page.emulate_media(media="print")
    assert not report.page.locator("nav").is_visible()
    assert report.page.locator("figure img").first.is_visible()
    report.page.emulate_media(media="screen")


def test_printing_shows_more_rows_and_opens_details(browser: Any, report_path: Path, ranker_data: ReportData) -> None:
    shown = open_page(browser, report_path)
    shown.page.locator('[data-table="next"]').get_by_role("button", name="next").click()
    before = shown.rows("next")
    shown.page.emulate_media(media="print")
    shown.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert len(shown.rows("assessors")) == len(ranker_data.assessors) > 12
    assert len(ranker_data.next) > 60
    assert len(shown.rows("next")) == 60
    count = shown.page.locator('[data-table="next"] .count')
    assert count.is_visible()
    assert count.inner_text().startswith(f"60 of {len(ranker_data.next):,}")
    assert shown.page.locator("ul.summary").is_visible()
    shown.page.evaluate("dispatchEvent(new Event('afterprint'))")
    shown.page.emulate_media(media="screen")
    assert shown.rows("next") == before
    assert not shown.page.locator("ul.summary").is_visible()
    assert not shown.messages
    shown.page.close()


@pytest.mark.parametrize("width", [390, 1280, 1600])
def test_a_report_on_labels_fits_the_screen(browser: Any, labels_run: Path, width: int) -> None:
    view = open_page(browser, labels_run / "report.html", width=width)
    assert view.page.evaluate("document.documentElement.scrollWidth") <= width
    assert view.page.locator(".card").count() == 2
    assert view.page.locator("section").count() == 4
    boxes = [card.bounding_box() for card in view.page.locator(".card").all()]
    page_width = view.page.locator(".cards").bounding_box()["width"]
    used = sum(box["width"] for box in boxes) if width > 640 else boxes[0]["width"]
    assert used > 0.9 * page_width
    flags = view.page.locator(".scroll:has(.flags)")
    assert flags.evaluate("box => box.scrollWidth - box.clientWidth") <= 2
    passage = view.page.locator('[data-table="disputed"] tr.below span[title]').first
    assert passage.inner_text().endswith("…")
    assert len(passage.get_attribute("title")) > len(passage.inner_text())
    heads = view.page.locator("[data-table] thead th").all()
    assert heads
    assert all(head.get_attribute("title") for head in heads)
    assert not view.messages
    view.page.close()


def test_text_of_charts_is_inside_the_image(browser: Any, report_path: Path) -> None:
    view = open_page(browser, report_path)
    sources = [image.get_attribute("src") for image in view.page.locator("figure img").all()]
    view.page.close()
    page = browser.new_page()
    for source in sources:
        page.set_content(base64.b64decode(source.partition(",")[2]).decode())
        outside = page.evaluate(
            """() => { const box = document.querySelector('svg').getBoundingClientRect();
            return [...document.querySelectorAll('text')].filter((text) => {
              const own = text.getBoundingClientRect();
              return own.width && (own.left < box.left - 1 || own.right > box.right + 1);
            }).map((text) => text.textContent); }"""
        )
        assert outside == []
    page.close()
