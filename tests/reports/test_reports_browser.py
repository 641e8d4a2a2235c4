"""The report in a real browser: charts are drawn, nothing is asked for, tables work, ids do nothing."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from crowdrank.reports.formatting import plain_id
from crowdrank.reports.page import in_script, write_report
from crowdrank.reports.report_data import ReportData

playwright = pytest.importorskip("playwright.sync_api", reason="the tests in a browser need Playwright (extra dev)")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="the tests in a browser need Chromium (Debian: apt-get install chromium)"
)


@dataclass
class Opened:
    """A page, and what it did while it was opened and used."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def rows(self, sheet: str) -> list[list[str]]:
        """The cells that a table shows, sentences left out."""
        found = self.page.locator(f'[data-sheet="{sheet}"] tbody tr:not(.below)')
        return [row.locator("td").all_inner_texts() for row in found.all()]

    def column(self, sheet: str, title: str) -> list[str]:
        """The cells of a column."""
        heads = self.page.locator(f'[data-sheet="{sheet}"] thead th').all_inner_texts()
        place = [head.split()[0] for head in heads].index(title)
        return [row[place].strip() for row in self.rows(sheet)]

    def sort(self, sheet: str, title: str) -> None:
        """Click the head of a column."""
        self.page.locator(f'[data-sheet="{sheet}"] thead button', has_text=title).first.click()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        # As root, in a container, Chromium has no sandbox to start.
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def opened(browser: Any, path: Path, width: int = 1366) -> Opened:
    found = Opened(browser.new_page(viewport={"width": width, "height": 850}))
    found.page.on("console", lambda said: found.complaints.append(said.text))
    found.page.on("pageerror", lambda problem: found.complaints.append(str(problem)))
    found.page.on("dialog", lambda dialog: found.complaints.append(f"a dialog: {dialog.message}"))
    found.page.on("request", lambda asked: found.requests.append(asked.url))
    found.page.goto(path.as_uri())
    return found


@pytest.fixture(scope="module")
def written(whole: Path) -> Path:
    return write_report(whole)


@pytest.fixture(scope="module")
def report(browser: Any, written: Path) -> Iterator[Opened]:
    found = opened(browser, written)
    yield found
    found.page.close()


def test_charts_are_drawn(report: Opened) -> None:
    pictures = report.page.locator("figure img")
    assert pictures.count() >= 12
    for picture in pictures.all():
        assert picture.evaluate("async one => { await one.decode(); return one.naturalWidth; }") > 150
        assert picture.get_attribute("alt")
    # Ink, not a blank sheet: some pixels of the first chart are neither white nor one color.
    ink = pictures.first.evaluate(
        """one => { const canvas = document.createElement('canvas'); canvas.width = 200; canvas.height = 200;
        const pen = canvas.getContext('2d'); pen.drawImage(one, 0, 0, 200, 200);
        const seen = new Set(); const data = pen.getImageData(0, 0, 200, 200).data;
        for (let at = 0; at < data.length; at += 4) seen.add(data.slice(at, at + 3).join());
        return seen.size; }"""
    )
    assert ink > 10


def test_nothing_is_asked_for_and_nothing_complains(browser: Any, written: Path) -> None:
    found = opened(browser, written)
    found.page.wait_for_load_state("networkidle")
    assert [url for url in found.requests if not url.startswith("data:")] == [written.as_uri()]
    assert not found.complaints
    found.page.close()


def test_the_first_screen_has_the_four_answers(report: Opened) -> None:
    report.page.evaluate("scrollTo(0, 0)")
    for question in ("Is my ranker better?", "By how much?", "Can I trust the labels?", "What next?"):
        box = report.page.get_by_role("heading", name=question).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 850


def test_tables_sort_by_number_and_by_name(report: Opened) -> None:
    def judgments() -> list[int]:
        return [int(cell.replace(",", "")) for cell in report.column("assessors", "judgments")]

    report.sort("assessors", "judgments")
    assert judgments() == sorted(judgments(), reverse=True)
    most = judgments()[0]
    report.sort("assessors", "judgments")
    assert judgments() == sorted(judgments())
    assert judgments()[0] < most
    head = report.page.locator('[data-sheet="assessors"] th[aria-sort]')
    assert head.get_attribute("aria-sort") == "ascending"
    report.sort("assessors", "assessor")
    assert report.column("assessors", "assessor") == sorted(report.column("assessors", "assessor"))
    report.sort("rankers", "test")
    values = [float(cell) for cell in report.column("rankers", "nDCG@10,") if cell]
    assert values


def test_tables_are_searched_filtered_and_paged(report: Opened) -> None:
    sheet = report.page.locator('[data-sheet="assessors"]')
    name = report.column("assessors", "assessor")[3]
    sheet.get_by_role("searchbox").fill(name.upper())
    assert report.column("assessors", "assessor") == [name]
    sheet.get_by_role("searchbox").fill("nobody is called so")
    assert report.rows("assessors") == []
    assert "nothing found" in sheet.locator(".count").inner_text()
    sheet.get_by_role("searchbox").fill("")
    sheet.get_by_role("combobox").select_option("drop")
    assert set(report.column("assessors", "do")) == {"drop"}
    sheet.get_by_role("combobox").select_option("")
    first = report.column("assessors", "assessor")
    sheet.get_by_role("button", name="next").click()
    second = report.column("assessors", "assessor")
    assert first
    assert second
    assert not set(first) & set(second)
    sheet.get_by_role("button", name="previous").click()
    assert report.column("assessors", "assessor") == first


def test_evidence_stands_with_each_assessor(report: Opened) -> None:
    shown = report.page.locator('[data-sheet="assessors"] tr.below').all_inner_texts()
    assert len(shown) == len(report.rows("assessors"))
    assert all("nats" in text for text in shown)


def test_the_middle_of_an_interval_is_never_cut(report: Opened) -> None:
    circles = report.page.locator('[data-sheet="uncertain"] tbody circle').all()
    places = [float(circle.get_attribute("cx") or "nan") for circle in circles]
    values = [float(cell.split()[0].replace("−", "-")) for cell in report.column("uncertain", "relevance")]
    assert len(places) == len(values) > 3
    by_value = sorted(zip(values, places, strict=True))
    for (value, place), (more, further) in itertools.pairwise(by_value):
        assert further > place or more - value < 0.02


def test_hostile_ids_do_nothing(browser: Any, hostile: Path, names: tuple[str, ...]) -> None:
    found = opened(browser, write_report(hostile))
    sheet = found.page.locator('[data-sheet="assessors"]')
    for name in names:
        asked = plain_id(name, 200)
        sheet.get_by_role("searchbox").fill(asked)
        shown = sheet.locator("tbody td.id").all_text_contents()
        while sheet.get_by_role("button", name="next").is_enabled():
            sheet.get_by_role("button", name="next").click()
            shown += sheet.locator("tbody td.id").all_text_contents()
        assert asked in shown
    assert found.page.evaluate("window.stolen") is None
    assert "stolen" not in found.page.title()
    assert found.page.locator(".sheet b, .sheet img, .sheet script, .card b, .card img").count() == 0
    assert not found.complaints
    assert [url for url in found.requests if not url.startswith("data:")] == [(hostile / "report.html").as_uri()]
    found.page.close()


def test_what_got_past_the_escapes_would_not_run(browser: Any, written: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    broken = written.read_text().replace(
        "</main>", "<script>window.stolen=1</script><img src=x onerror='window.stolen=1'></main>"
    )
    page.write_text(broken)
    found = opened(browser, page)
    assert found.page.evaluate("window.stolen") is None
    assert any("Content Security Policy" in said for said in found.complaints)
    found.page.close()


def test_a_narrow_screen_is_usable(browser: Any, written: Path) -> None:
    found = opened(browser, written, width=360)
    assert found.page.evaluate("document.documentElement.scrollWidth") <= 360
    card = found.page.locator(".card").first.bounding_box()
    assert card is not None
    assert card["width"] > 300
    found.page.locator('[data-sheet="assessors"] input').fill("worker")
    assert found.rows("assessors")
    sizes = found.page.evaluate(
        "[...document.querySelectorAll('p, td, li')].map(one => parseFloat(getComputedStyle(one).fontSize))"
    )
    assert min(sizes) >= 11
    found.page.close()


def test_a_phone_shows_what_matters_and_says_where_there_is_more(browser: Any, written: Path) -> None:
    found = opened(browser, written, width=390)
    for link in found.page.locator("nav a").all():
        box = link.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390, "no section is out of reach"
    sheet = found.page.locator('[data-sheet="rankers"]')
    assert "test" in sheet.locator("thead th").nth(1).inner_text()
    for place in (1, 2):
        value = sheet.locator("tbody tr:not(.below)").first.locator("td").nth(place)
        box = (value.locator(".val") if place == 2 else value).bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390, "the test and the difference stand on the first screen"
    for hold in (sheet.locator(".hold"), found.page.locator("figure.hold").first):
        assert hold.locator(".hint").is_visible()
        assert "right" in (hold.get_attribute("class") or "").split()
        assert hold.evaluate("one => getComputedStyle(one, '::after').backgroundImage").startswith("linear-gradient")
        hold.locator(":scope > :last-child").evaluate("box => { box.scrollLeft = box.scrollWidth; }")
        found.page.wait_for_function("one => !one.classList.contains('right')", arg=hold.element_handle())
        assert "left" in (hold.get_attribute("class") or "").split()
    # On a desk nothing has to be slid.
    found.page.set_viewport_size({"width": 1280, "height": 850})
    found.page.wait_for_function("() => !document.querySelector('.hint.shown, .hold.right, .hold.left')")
    found.page.close()


def test_no_p_is_zero_and_differences_have_signs(browser: Any, written: Path, tmp_path: Path) -> None:
    page = re.sub(r"<figure.*?</figure>", "", written.read_text(), flags=re.DOTALL)
    told = re.search(r'id="data-rankers">(.*?)</script>', page, re.DOTALL)
    assert told
    sheet = json.loads(told.group(1))
    heads = [column["title"] for column in sheet["columns"]]
    over, p = heads.index("over majority"), heads.index("p")
    for row, difference, chance in zip(sheet["rows"], (0.05, -0.05), (0.0001, 0.0312), strict=False):
        row[over], row[p] = [-0.1, difference, 0.1], chance
    first, second = (row[0] for row in sheet["rows"][:2])
    (tmp_path / "report.html").write_text(page.replace(told.group(1), in_script(sheet)))
    found = opened(browser, tmp_path / "report.html")
    rows = {row[0]: row for row in found.rows("rankers")}
    assert (rows[first][p], rows[second][p]) == ("< 0.001", "0.031")
    assert (rows[first][over].strip(), rows[second][over].strip()) == ("+0.0500", "−0.0500")
    biases = found.column("assessors", "bias")
    assert any(cell.startswith("+") for cell in biases)
    assert all(cell[0] in "+−" for cell in biases if float(cell.replace("−", "-")))
    assert not found.complaints
    found.page.close()


def test_a_report_without_experts_fits_a_narrow_screen_too(browser: Any, alone: Path) -> None:
    found = opened(browser, write_report(alone), width=360)
    assert found.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert not found.complaints
    found.page.close()


def test_it_opens_without_scripts(browser: Any, written: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(written.as_uri())
    assert "assessors.csv" in page.locator('[data-sheet="assessors"]').inner_text()
    assert page.locator(".card .short").first.inner_text()
    context.close()


def test_it_prints(report: Opened, tmp_path: Path) -> None:
    report.page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    report.page.emulate_media(media="print")
    assert not report.page.locator("nav").is_visible()
    assert report.page.locator("figure img").first.is_visible()
    report.page.emulate_media(media="screen")


def test_paper_shows_what_clicks_would(browser: Any, written: Path, found: ReportData) -> None:
    shown = opened(browser, written)
    shown.page.locator('[data-sheet="uncertain"]').get_by_role("button", name="next").click()
    before = shown.rows("uncertain")
    shown.page.emulate_media(media="print")
    shown.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert len(shown.rows("assessors")) == len(found.assessors) > 12
    assert len(found.documents) > 60
    assert len(shown.rows("uncertain")) == 60
    count = shown.page.locator('[data-sheet="uncertain"] .count')
    assert count.is_visible()
    assert count.inner_text().startswith(f"60 of {len(found.documents):,}")
    assert shown.page.locator(".paragraph").is_visible()
    shown.page.evaluate("dispatchEvent(new Event('afterprint'))")
    shown.page.emulate_media(media="screen")
    assert shown.rows("uncertain") == before
    assert not shown.page.locator(".paragraph").is_visible()
    assert not shown.complaints
    shown.page.close()
