"""Test the judging page of the service in a real browser, by keyboard only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, update
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

import crowdrank
from crowdrank.readers.read_options import CANNOT_JUDGE
from crowdrank.service.domain import pairs, people, projects
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database
from crowdrank.service.web.web_app import create_application

from .browser_pages import FILL_STORAGE, OpenPage, Proxy, chromium, needs_browser, serve_in_thread
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
def proxy(world: World) -> Proxy:
    return Proxy(world.app)


@pytest.fixture
def address(proxy: Proxy) -> Iterator[str]:
    with serve_in_thread(proxy) as url:
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


# Answers leave the browser only when the service has said that they are stored, or that they never can be.


def unsent(view: OpenPage, name: str = "answers") -> int:
    """Return the number of answers that the browser keeps; `name` is `answers` or `refused`."""
    key = f"crowdrank-{name}:alpha:judge"
    return int(view.page.evaluate(f"JSON.parse(localStorage.getItem('{key}') || '[]').length"))


def wait_until_sent(view: OpenPage) -> None:
    view.page.wait_for_function("() => JSON.parse(localStorage.getItem('crowdrank-answers:alpha:judge')).length === 0")
    view.page.wait_for_selector("#waiting", state="hidden")


def sign_in_again(view: OpenPage, world: World, address: str, name: str = "judge") -> None:
    """Change the session of the browser, as a sign-in in another tab does, and come back to the page."""
    cookie = {"name": "crowdrank-session", "value": world.session(name), "url": address}
    view.page.context.add_cookies([cookie])
    view.page.evaluate("window.dispatchEvent(new Event('focus'))")


OTHER_SITE = "http://127.0.0.2:9/"
FOREIGN: dict[str, Any] = {
    **{f"page-{status}": HTMLResponse("<h1>Proxy</h1>", status) for status in (200, 400, 403, 404, 413, 422, 502)},
    "redirect": RedirectResponse("/login", 302),
    "redirect-to-another-site": RedirectResponse(OTHER_SITE, 302),
    "no-content": Response(status_code=204),
    "empty-list": JSONResponse([]),
    "json-200": JSONResponse({"ok": True}),
    "json-422": JSONResponse({"error": "blocked"}, 422),
    "error-of-no-answer": JSONResponse({"problem": "blocked", "kind": "policy", "client_id": "other"}, 403),
    "echo": lambda body: Response(body, media_type="application/json"),
}
"""Responses that a proxy or another server may give in place of the service."""


@needs_browser
@pytest.mark.parametrize("name", FOREIGN)
def test_answers_are_kept_while_somebody_else_responds(
    judging: OpenPage, world: World, proxy: Proxy, name: str
) -> None:
    proxy.reply = FOREIGN[name]
    judging.press("23")
    judging.page.wait_for_selector("#waiting", state="visible")
    judging.wait_for_text("#waiting-text", "2 answers")
    assert (unsent(judging), stored_answers(world)) == (2, [])
    judging.page.reload()
    judging.page.wait_for_selector("#waiting", state="visible")
    assert unsent(judging) == 2
    proxy.reply = None
    judging.page.click("#retry")
    wait_until_sent(judging)
    assert stored_answers(world) == [("grade", 2), ("grade", 3)]
    assert unsent(judging, "refused") == 0
    judging.wait_for_text("#progress-text", "2 judged")
    judging.requests = [url for url in judging.requests if url != OTHER_SITE]


@needs_browser
def test_a_proxy_that_accepts_small_requests_gets_answers_one_by_one(
    judging: OpenPage, world: World, proxy: Proxy
) -> None:
    proxy.reply = HTMLResponse("", 502)
    judging.press("23")
    judging.wait_for_text("#waiting-text", "2 answers")
    proxy.reply = lambda body: HTMLResponse("", 413) if body.count(b"client_id") > 1 else None
    judging.page.click("#retry")
    wait_until_sent(judging)
    assert stored_answers(world) == [("grade", 2), ("grade", 3)]


@needs_browser
def test_answers_wait_for_the_next_sign_in(judging: OpenPage, world: World, address: str) -> None:
    world.database.write(lambda connection: connection.execute(delete(schema.session)))
    judging.press("2")
    judging.wait_for_text("#waiting-text", "1 answer is")
    assert judging.page.locator("#waiting a[target=_blank]").get_attribute("href") == ""  # opens the sign-in page
    assert judging.serious_problems() == []
    sign_in_again(judging, world, address)
    wait_until_sent(judging)
    judging.press("3")
    wait_until_sent(judging)
    assert stored_answers(world) == [("grade", 2), ("grade", 3)]


@needs_browser
def test_a_stale_form_token_is_renewed(judging: OpenPage, world: World, address: str) -> None:
    sign_in_again(judging, world, address)
    judging.press("2")
    judging.wait_for_text("#progress-text", "1 judged")
    assert stored_answers(world) == [("grade", 2)]
    judging.page.click("#sign-out")
    judging.wait_for_text("h1", "Sign in")
    with world.database.read() as connection:
        assert len(connection.execute(select(schema.session)).all()) == 1  # only the first session is left


@needs_browser
def test_answers_are_not_sent_as_somebody_else(judging: OpenPage, world: World, address: str) -> None:
    sign_in_again(judging, world, address, "lead")
    judging.press("2")
    judging.wait_for_text("#waiting-text", "lead")
    assert unsent(judging) == 1
    with world.database.read() as connection:
        assert connection.execute(select(schema.event)).all() == []
    sign_in_again(judging, world, address)
    wait_until_sent(judging)
    assert stored_answers(world) == [("grade", 2)]


@needs_browser
def test_answers_of_a_deleted_project_can_be_saved(judging: OpenPage, world: World, tmp_path: Path) -> None:
    def rename(old: str, new: str) -> None:  # for the service, a deleted project and an unknown name are the same
        project = schema.project
        renamed = update(project).where(project.c.name == old).values(name=new)
        world.database.write(lambda connection: connection.execute(renamed))

    rename("alpha", "old alpha")
    judging.press("2u")
    judging.wait_for_text("#waiting-text", "2 answers")
    with judging.page.expect_download() as download:
        judging.page.click("#save-waiting")
    answers = tmp_path / "answers.csv"
    download.value.save_as(answers)
    saved = crowdrank.read_judgments(answers, grades="0-3", unjudgeable=CANNOT_JUDGE)
    assert (saved.n_items, saved.assessors.to_pylist()) == (2, ["judge"])
    assert unsent(judging) == 2
    rename("old alpha", "alpha")
    judging.page.click("#retry")
    wait_until_sent(judging)
    assert stored_answers(world) == [("grade", 2), ("cannot-judge", None)]


@needs_browser
def test_answers_to_closed_pairs_are_stored(judging: OpenPage, world: World) -> None:
    def close(connection: Any) -> None:
        alpha = projects.get_project(connection, "alpha")
        pairs.close_pairs(connection, alpha, pairs.PairFilter(queries=["q0", "q1", "q2"]))
        projects.update_project(connection, alpha, is_open=False)

    world.database.write(close)
    judging.press("2")
    wait_until_sent(judging)
    assert stored_answers(world) == [("grade", 2)]
    judging.press("3")
    wait_until_sent(judging)
    judging.wait_for_text("#message", "closed")
    assert stored_answers(world) == [("grade", 2), ("grade", 3)]


@needs_browser
def test_an_answer_that_cannot_be_stored_is_shown_and_holds_up_no_other(
    judging: OpenPage, world: World, proxy: Proxy, tmp_path: Path
) -> None:
    proxy.reply = HTMLResponse("", 502)
    title = judging.text(".card .title")
    judging.press("23")
    judging.wait_for_text("#waiting-text", "2 answers")
    lease = judging.page.evaluate("JSON.parse(localStorage.getItem('crowdrank-answers:alpha:judge'))[0].lease")
    lost = delete(schema.lease).where(schema.lease.c.token == lease)  # as in a backup from before
    world.database.write(lambda connection: connection.execute(lost))
    proxy.reply = None
    judging.page.click("#retry")
    wait_until_sent(judging)
    assert stored_answers(world) == [("grade", 3)]
    judging.page.reload()
    judging.wait_for_text("#refused-list li", title)
    judging.wait_for_text("#progress-text", "1 judged")
    assert judging.page.locator("#refused-list li").count() == 1
    assert judging.serious_problems() == []
    with judging.page.expect_download() as download:
        judging.page.click("#save-refused")
    download.value.save_as(tmp_path / "refused.csv")
    assert crowdrank.read_judgments(tmp_path / "refused.csv", grades="0-3").n_items == 1
    judging.page.click("#forget-refused")
    judging.page.wait_for_selector("#refused", state="hidden")
    assert unsent(judging, "refused") == 0


@needs_browser
def test_full_storage_swallows_no_answer(judging: OpenPage, world: World, proxy: Proxy) -> None:
    judging.page.evaluate(FILL_STORAGE)
    proxy.reply = HTMLResponse("", 502)
    judging.press("23")
    judging.page.wait_for_selector("#no-room", state="visible")
    judging.wait_for_text("#waiting-text", "2 answers")
    assert unsent(judging) == 0
    is_kept_open = "!window.dispatchEvent(new Event('beforeunload', { cancelable: true }))"
    assert judging.page.evaluate(is_kept_open)
    proxy.reply = None
    judging.page.click("#retry")
    judging.wait_for_text("#progress-text", "2 judged")
    assert stored_answers(world) == [("grade", 2), ("grade", 3)]
    assert not judging.page.evaluate(is_kept_open)
    judging.page.evaluate("for (const key of Object.keys(localStorage)) localStorage.removeItem(key)")
    judging.press("1")
    judging.page.wait_for_selector("#no-room", state="hidden")


@needs_browser
def test_an_undo_whose_response_is_lost_withdraws_one_answer(judging: OpenPage, world: World) -> None:
    for key, count in (("1", 1), ("2", 2), ("3", 3)):
        judging.press(key)
        judging.wait_for_text("#progress-text", f"{count} judged")

    def lose_response(route: Any) -> None:
        route.fetch()
        route.abort()

    judging.page.route("**/undo", lose_response)
    with judging.page.expect_event("requestfailed"):
        judging.press("z")
    judging.page.unroute("**/undo")
    judging.press("z")
    judging.wait_for_text("#progress-text", "2 judged")
    assert stored_answers(world) == [("grade", 1), ("grade", 2)]
    judging.press("0")
    judging.wait_for_text("#progress-text", "3 judged")
    judging.press("z")
    judging.wait_for_text("#progress-text", "2 judged")
    assert stored_answers(world) == [("grade", 1), ("grade", 2)]


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
    view.page.wait_for_url(f"{address}/projects/alpha/judge")
    view.page.wait_for_selector(".card")
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
