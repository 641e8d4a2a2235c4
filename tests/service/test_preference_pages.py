"""Test the pages of projects that ask for preferences in a real browser: keyboard, mouse and phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import HTMLResponse

from crowdrank.readers.preference_files import read_preferences
from crowdrank.service.domain import people
from crowdrank.service.domain.leases import find_live_leases
from crowdrank.service.domain.pairs import PairRow, add_pairs
from crowdrank.service.domain.progress import answers_of
from crowdrank.service.domain.projects import create_project, get_project
from crowdrank.service.model.fits import fit_project
from crowdrank.service.model.project_charts import ChartData, list_charts
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database
from crowdrank.service.web.web_app import create_application

from .browser_pages import OpenPage, Proxy, chromium, needs_browser, serve_in_thread
from .preference_project import Comparing, comparison, shown_left
from .service_world import World, create_world

HOSTILE = "<img src=x onerror=alert(1)> " + "a long text about apples " * 60


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def world(sqlite_database: Database) -> Iterator[World]:
    """Return a service with the project fruit, which asks for preferences."""
    with create_world(sqlite_database, create_application) as world:
        now = world.database.now()

        def create(connection: Any) -> None:
            settings = {"task": "preferences", "quotas": {"human": (1, 3)}}
            fruit = create_project(connection, "fruit", None, now, **settings)
            rows = [
                PairRow("q", f"d{place}", query_text="green apples", title=f"Apple {place}", body=HOSTILE)
                for place in range(5)
            ]
            add_pairs(connection, fruit, rows, now)
            for name, role in (("judge", "judge"), ("lead", "lead")):
                people.add_member(connection, fruit.id, world.ids[name], role, now)

        world.database.write(create)
        yield world


@pytest.fixture
def proxy(world: World) -> Proxy:
    return Proxy(world.app)


@pytest.fixture
def address(proxy: Proxy) -> Iterator[str]:
    with serve_in_thread(proxy) as url:
        yield url


def open_page(browser: Any, world: World, address: str, name: str, path: str, **options: Any) -> OpenPage:
    context = browser.new_context(**options)
    context.add_cookies([{"name": "crowdrank-session", "value": world.session(name), "url": address}])
    view = OpenPage(context.new_page())
    view.listen()
    view.page.goto(f"{address}/projects/fruit{path}")
    return view


def stored(world: World) -> list[tuple[str, str, int]]:
    """Return left, right and preference of the answers as they are exported."""
    with world.database.read() as connection:
        table = answers_of(connection, get_project(connection, "fruit"))
    return list(zip(*(table[name].to_pylist() for name in ("left", "right", "preference")), strict=True))


def shown(view: OpenPage) -> tuple[str, str]:
    """Return the ids of the documents on the left and on the right."""
    left, right = view.page.locator(".pane .title").all_inner_texts()
    return f"d{left.split()[-1]}", f"d{right.split()[-1]}"


@needs_browser
def test_preferences_are_given_by_keyboard(browser: Any, world: World, address: str) -> None:
    view = open_page(browser, world, address, "judge", "/judge", viewport={"width": 1100, "height": 800})
    expected = []
    for number, (key, preference) in enumerate((("ArrowLeft", -1), (" ", 0), ("ArrowRight", 1)), start=1):
        view.page.wait_for_selector(".pane")
        expected.append((*shown(view), preference))
        view.page.keyboard.press(key)
        view.wait_for_text("#progress-text", f"{number} judged")
    assert sorted(stored(world)) == sorted(expected)
    view.press("z")
    view.wait_for_text("#progress-text", "2 judged")
    assert shown(view) == expected[2][:2]
    assert sorted(stored(world)) == sorted(expected[:2])
    view.press("u")
    view.wait_for_text("#progress-text", "3 judged")
    assert view.page.locator(".card img").count() == 0
    assert view.serious_problems() == []
    boxes = [view.page.locator(".pane").nth(place).bounding_box() for place in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    assert not [text for text in view.messages if "Autofocus" not in text]
    view.page.context.close()


@needs_browser
def test_the_space_bar_presses_the_focused_button(browser: Any, world: World, address: str) -> None:
    view = open_page(browser, world, address, "judge", "/judge")
    view.page.wait_for_selector(".pane")
    expected = [(*shown(view), 1)]
    view.page.locator("button.grade").nth(2).focus()
    view.page.keyboard.press(" ")
    view.wait_for_text("#progress-text", "1 judged")
    assert stored(world) == expected
    view.page.context.close()


@needs_browser
@pytest.mark.parametrize("is_phone", [False, True])
def test_preferences_are_given_by_mouse_and_on_a_phone(
    browser: Any, world: World, address: str, is_phone: bool
) -> None:
    size = {"width": 375, "height": 667} if is_phone else {"width": 1100, "height": 800}
    view = open_page(browser, world, address, "judge", "/judge", viewport=size, has_touch=is_phone, is_mobile=is_phone)
    expected = []
    for number, (place, preference) in enumerate(((0, -1), (1, 1)), start=1):
        view.page.wait_for_selector(".pane")
        expected.append((*shown(view), preference))
        side = view.page.locator(".pane .side").nth(place)
        if is_phone:
            side.tap()
        else:
            side.click()
        view.wait_for_text("#progress-text", f"{number} judged")
    expected.append((*shown(view), 0))
    tie = view.page.locator("button.grade").nth(1)
    if is_phone:
        tie.tap()
    else:
        tie.click()
    view.wait_for_text("#progress-text", "3 judged")
    assert sorted(stored(world)) == sorted(expected)
    assert view.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    if is_phone:
        boxes = [view.page.locator(".pane").nth(place).bounding_box() for place in (0, 1)]
        assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]
        assert min(box["width"] for box in boxes) > 300
        assert view.serious_problems() == []
    view.page.context.close()


@needs_browser
def test_marking_a_text_is_no_answer(browser: Any, world: World, address: str) -> None:
    view = open_page(browser, world, address, "judge", "/judge")
    view.page.wait_for_selector(".pane")
    box = view.page.locator(".pane .title").first.bounding_box()
    view.page.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2)
    view.page.mouse.down()
    view.page.mouse.move(box["x"] + 60, box["y"] + box["height"] / 2, steps=4)
    view.page.mouse.up()
    assert view.page.evaluate("document.getSelection().toString()")
    view.page.keyboard.press("c")
    view.page.keyboard.type("left or right?")
    assert stored(world) == []
    view.page.context.close()


@needs_browser
def test_unsent_preferences_are_saved_as_preferences(
    browser: Any, world: World, address: str, proxy: Proxy, tmp_path: Path
) -> None:
    view = open_page(browser, world, address, "judge", "/judge")
    view.page.wait_for_selector(".pane")
    expected = shown(view)
    proxy.reply = HTMLResponse("", 502)
    view.page.keyboard.press("ArrowRight")
    view.page.wait_for_selector("#save-waiting", state="visible")
    with view.page.expect_download() as download:
        view.page.click("#save-waiting")
    download.value.save_as(tmp_path / "answers.csv")
    saved = read_preferences(tmp_path / "answers.csv").frame
    assert saved[["left", "right", "assessor", "preference"]].to_numpy().tolist() == [[*expected, "judge", 1]]
    proxy.reply = None
    view.page.click("#retry")
    view.wait_for_text("#progress-text", "1 judged")
    assert stored(world) == [(*expected, 1)]
    view.page.context.close()


@needs_browser
def test_a_lead_adjudicates_a_comparison(browser: Any, world: World, address: str) -> None:
    view = open_page(browser, world, address, "lead", "")
    row = world.request("lead", "GET", "/api/projects/fruit/pairs").json()[0]
    documents = {name: row[name] for name in ("query", "document", "other")}

    def add(connection: Any) -> None:
        fruit = get_project(connection, "fruit")
        people.add_member(connection, fruit.id, world.ids["admin"], "judge", world.database.now())

    world.database.write(add)
    for name, grade in (("judge", "left"), ("admin", "right")):
        answer = {"client_id": "first", "grade": grade, **documents}
        assert world.request(name, "POST", "/api/projects/fruit/answers", json=answer).status_code == 200
    view.page.goto(f"{address}/projects/fruit/pairs?show=disputed")
    view.wait_for_text("#pairs", "Apple")
    assert view.serious_problems() == []
    view.page.locator("#pairs select").select_option("right")
    view.page.click("#pairs form button")
    view.wait_for_text(".done", "recorded")
    labels = world.request("lead", "GET", "/api/projects/fruit/labels.csv").text.splitlines()
    assert [line.replace('"', "") for line in labels] == [
        "query,left,right,preference,source",
        f"q,{row['document']},{row['other']},1,adjudicated",
    ]
    view.page.context.close()


def test_dashboard_and_charts_show_comparisons(sqlite_database: Database) -> None:
    with create_world(sqlite_database, create_application) as world:
        comparing = Comparing(sqlite_database, 3, kinds=["human"] * 3, name="fruit", quotas={"human": (3, 3)})
        comparing.add(comparison("q0", "y", "x", kind="gold", gold_grade="right"))
        comparing.update(honeypot_share=0.3)
        for assessor in comparing.assessors:
            while leases := comparing.next(assessor).leases:
                left, right = shown_left(leases[0])
                comparing.answer(assessor, leases[0], grade="left" if left < right else "right")
        fitted = fit_project(sqlite_database, comparing.project)
        with sqlite_database.read() as connection:
            assert find_live_leases(connection, comparing.project, 1, 1, 0) == []
            charts = dict(list_charts(ChartData.read(connection, comparing.project, fitted.snapshot)))
        assert {"grades", "agreement", "honeypots"} <= charts.keys()
        assert len(comparing.rows(schema.standing)) == 10
        for path in ("", "/pairs", "/pairs?show=disputed", "/settings", "/people"):
            assert world.request("admin", "GET", f"/projects/fruit{path}").status_code == 200
        assert "p = " in world.request("admin", "GET", "/projects/fruit").text
        found = world.request("admin", "GET", "/api/projects/fruit/consensus").json()["pairs"]
        assert {(one["document"] < one["other"], one["grade"]) for one in found} == {(True, "left")}
        assert {one["agreement"] for one in fitted.snapshot.agreement} == {1.0}
