"""Test the judging page of the service in a real browser, by keyboard only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select

from crowdrank.service import pairs, people, projects, schema
from crowdrank.service.application import create_application
from crowdrank.service.database import Database

from .browser_pages import OpenPage, chromium, needs_browser, serve_in_thread
from .service_world import PASSWORD, World, create_invitation, create_world

HOSTILE = "</script><script>alert(1)</script><img src=https://example.org/x onerror=alert(2)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def world(sqlite_database: Database) -> Iterator[World]:
    """Return a service with pages; the pairs of project alpha have hostile texts."""
    with create_world(sqlite_database, create_application) as world:
        rows = [
            pairs.PairRow(f"q{query}", f"d{place}", query_text="green apples", title=f"Apple {place}", body=HOSTILE)
            for query in range(3)
            for place in range(20)
        ]

        def write(connection: Any) -> None:
            pairs.add_pairs(connection, projects.get_project(connection, "alpha"), rows, world.database.now())

        world.database.write(write)
        yield world


@pytest.fixture
def address(world: World) -> Iterator[str]:
    with serve_in_thread(world.app) as url:
        yield url


@pytest.fixture
def judging(browser: Any, world: World, address: str) -> Iterator[OpenPage]:
    """Open the judging page as the judge of project alpha."""
    context = browser.new_context(viewport={"width": 1100, "height": 800})
    context.add_cookies([{"name": "crowdrank-session", "value": world.session("judge"), "url": address}])
    view = OpenPage(context.new_page())
    view.listen()
    view.page.goto(f"{address}/projects/alpha/judge")
    view.page.wait_for_selector(".card")
    yield view
    assert [url for url in view.requests if not url.startswith(f"{address}/")] == []
    context.close()


def stored_answers(world: World) -> list[tuple[str, int | None]]:
    """Return kind and grade of the answers of the judge, in the order of the events."""
    answer = schema.answer
    wanted = select(answer.c.kind, answer.c.grade).where(answer.c.assessor_id == world.ids["judge"])
    with world.database.read() as connection:
        return [(kind, grade) for kind, grade in connection.execute(wanted.order_by(answer.c.event_id))]


@needs_browser
def test_the_loop_works_by_keyboard(judging: OpenPage, world: World) -> None:
    for key, count in (("3", 1), ("0", 2), ("u", 3)):
        judging.press(key)
        judging.wait_for_text("#progress-text", f"{count} judged")
    judging.press("z")
    judging.wait_for_text("#progress-text", "2 judged")
    judging.press("c")
    judging.page.keyboard.type("1 or 2?")
    judging.page.keyboard.press("Escape")
    judging.press("1")
    judging.wait_for_text("#progress-text", "3 judged")
    assert stored_answers(world) == [("grade", 3), ("grade", 0), ("grade", 1)]
    assert judging.page.locator(".card script, .card img").count() == 0
    assert HOSTILE in judging.text(".card")
    judging.page.reload()
    judging.wait_for_text("#progress-text", "3 judged")
    assert not [text for text in judging.messages if "Autofocus" not in text]


@needs_browser
def test_answers_survive_a_lost_connection(judging: OpenPage, world: World) -> None:
    judging.press("2")
    judging.wait_for_text("#progress-text", "1 judged")
    context = judging.page.context
    context.set_offline(True)
    judging.press("3")
    judging.wait_for_text("#connection", "1 not sent yet")
    assert stored_answers(world) == [("grade", 2)]
    context.set_offline(False)
    judging.page.reload()  # also a closed tab: the answer is kept in the browser
    judging.page.wait_for_selector(".card")
    judging.page.wait_for_function("() => !Object.values(localStorage).some((text) => text.includes('client_id'))")
    assert stored_answers(world) == [("grade", 2), ("grade", 3)]
    judging.wait_for_text("#progress-text", "2 judged")


@needs_browser
def test_an_answer_whose_response_is_lost_counts_once(judging: OpenPage, world: World) -> None:
    def lose_response(route: Any) -> None:
        route.fetch()
        route.abort()

    judging.page.route("**/answers", lose_response)
    judging.press("2")
    judging.wait_for_text("#connection", "1 not sent yet")
    assert stored_answers(world) == [("grade", 2)]
    judging.page.unroute("**/answers")
    judging.page.reload()  # sends the answer again
    judging.wait_for_text("#progress-text", "1 judged")
    judging.press("z")
    judging.wait_for_text("#progress-text", "0 judged")
    assert stored_answers(world) == []


@needs_browser
@pytest.mark.parametrize("width", [1100, 360])
def test_the_page_is_accessible_and_fits_the_screen(judging: OpenPage, width: int) -> None:
    judging.page.set_viewport_size({"width": width, "height": 740})
    assert judging.page.evaluate("document.documentElement.scrollWidth") <= width
    assert judging.serious_problems() == []


@needs_browser
def test_all_documents_of_a_query_can_be_shown_together(browser: Any, world: World, address: str) -> None:
    def change(connection: Any) -> None:
        projects.update_project(connection, projects.get_project(connection, "alpha"), layout={"mode": "query"})

    world.database.write(change)
    context = browser.new_context()
    context.add_cookies([{"name": "crowdrank-session", "value": world.session("judge"), "url": address}])
    view = OpenPage(context.new_page())
    view.page.goto(f"{address}/projects/alpha/judge")
    view.page.wait_for_selector(".card")
    assert view.page.locator(".card").count() > 1
    view.press("j1")
    view.wait_for_text("#progress-text", "1 judged")
    context.close()


@needs_browser
def test_grades_with_names_are_stored(browser: Any, world: World, address: str) -> None:
    now = world.database.now()

    def create(connection: Any) -> None:
        fruit = projects.create_project(connection, "fruit", "Bad,Fair,Good", now)
        people.add_member(connection, fruit.id, world.ids["judge"], "judge", now)
        pairs.add_pairs(connection, fruit, [pairs.PairRow("q", "d1"), pairs.PairRow("q", "d2")], now)

    world.database.write(create)
    context = browser.new_context()
    context.add_cookies([{"name": "crowdrank-session", "value": world.session("judge"), "url": address}])
    view = OpenPage(context.new_page())
    view.page.goto(f"{address}/projects/fruit/judge")
    view.page.wait_for_selector(".card")
    view.press("3")
    view.wait_for_text("#progress-text", "1 judged")
    view.press("u")
    view.wait_for_text("#message", "All done")
    assert stored_answers(world) == [("grade", 2), ("cannot-judge", None)]
    context.close()


@needs_browser
def test_people_join_by_a_link_and_sign_in(browser: Any, world: World, address: str) -> None:
    secret = create_invitation(world)
    context = browser.new_context()
    view = OpenPage(context.new_page())
    view.listen()
    view.page.goto(f"{address}/join#{secret}")
    view.page.wait_for_selector("#join:not([hidden])")
    assert view.serious_problems() == []
    view.page.fill("#name", "newcomer")
    view.page.fill("#password", "short")
    view.page.click("button.primary")
    view.page.wait_for_selector("#problem:not([hidden])")
    view.page.fill("#password", PASSWORD)
    view.page.click("button.primary")
    view.wait_for_text("h1", "Projects")
    view.page.wait_for_load_state("networkidle")  # the button works once the script is loaded
    view.page.click("text=Sign out")
    view.wait_for_text("h1", "Sign in")
    assert view.serious_problems() == []
    view.page.fill("#name", "newcomer")
    view.page.fill("#password", PASSWORD)
    view.page.click("button.primary")
    view.wait_for_text("h1", "Projects")
    view.page.click("text=Judge")
    view.page.wait_for_selector(".card")
    context.close()
