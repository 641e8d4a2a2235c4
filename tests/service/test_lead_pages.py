"""Test the pages of leads: who may open them, what they show, and how they work in a real browser."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi import FastAPI

from crowdrank.service import answers, pairs, people, projects
from crowdrank.service.application import create_application
from crowdrank.service.database import Database
from crowdrank.service.disputes import filter_pairs, most_disputed, read_fitted_pairs
from crowdrank.service.model_fits import fit_project

from .browser_pages import OpenPage, chromium, needs_browser, serve_in_thread
from .service_world import World, create_world

HOSTILE = "</td><script>alert(1)</script><img src=https://example.org/x onerror=alert(2)>"
LEAD_PAGES = ("",)
"""Ends of the addresses of the pages of leads."""
FIT_SECONDS = 120
"""Maximum time of a fit in a browser test, since the first one compiles the model."""

ACTORS = ("anonymous", "stranger", "judge", "lead", "other lead", "admin", "lead token read")
PUBLIC = dict.fromkeys(ACTORS, 200)
PERSON = {**PUBLIC, "anonymous": 303, "lead token read": 403}
MEMBER = {**PERSON, "stranger": 404, "other lead": 404}
LEAD = {**MEMBER, "judge": 403}
PAGES = {
    ("GET", "/login"): PUBLIC,
    ("GET", "/join"): PUBLIC,
    ("GET", "/"): PERSON,
    ("GET", "/projects/{project}/judge"): MEMBER,
    ("GET", "/projects/{project}"): LEAD,
}
"""Every page, and the status for each actor. A page without an entry fails a test."""


@pytest.fixture
def world(sqlite_database: Database) -> Iterator[World]:
    """Return a service with pages, and answers of two people to six pairs."""
    with create_world(sqlite_database, create_application) as world:
        answer_pairs(world)
        yield world


def answer_pairs(world: World) -> None:
    """Let the lead and the judge answer six pairs of alpha; they differ on the last one, whose texts are hostile."""
    now = world.database.now()

    def write(connection: Any) -> None:
        alpha = projects.get_project(connection, "alpha")
        hostile = pairs.PairRow("q2", "d5", query_text=HOSTILE, title=HOSTILE)
        pairs.add_pairs(connection, alpha, [hostile], now)
        grades = {"lead": (0, 1, 2, 3, 3, 0), "judge": (0, 1, 2, 3, 3, 3)}
        for name, given in grades.items():
            listed = [
                answers.Answer(f"{name} {place}", grade=grade, query="q2", document=f"d{place}")
                for place, grade in enumerate(given)
            ]
            answers.record_answers(connection, alpha, world.ids[name], listed, now)

    world.database.write(write)


def fit_majority(world: World) -> projects.Project:
    with world.database.read() as connection:
        alpha = projects.get_project(connection, "alpha")
    fit_project(world.database, alpha, "majority")
    return alpha


def page_routes(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Return method and path of every route that is not one of the API or a static file."""

    def walk(routes: Iterable[Any]) -> Iterator[tuple[str, str]]:
        for route in routes:
            if hasattr(route, "original_router"):
                if not route.include_context.prefix:
                    yield from walk(route.original_router.routes)
            elif hasattr(route, "methods") and not route.path.startswith("/api/"):
                yield from ((method, route.path) for method in route.methods if method != "HEAD")

    return walk(app.routes)


def test_each_role_may_open_the_pages_that_the_table_says(world: World) -> None:
    assert sorted(page_routes(world.app)) == sorted(PAGES)
    wrong = {}
    for (method, path), statuses in PAGES.items():
        for actor, expected in statuses.items():
            status = world.request(actor, method, path.format(project="alpha")).status_code
            if status != expected:
                wrong[path, actor] = (status, expected)
    assert wrong == {}


def test_visitors_sign_in_and_come_back(world: World) -> None:
    answer = world.request("anonymous", "GET", "/projects/alpha")
    assert answer.headers["location"] == "/login?next=/projects/alpha"


@pytest.mark.parametrize("end", LEAD_PAGES)
def test_hostile_names_and_texts_are_escaped(world: World, end: str) -> None:
    now = world.database.now()

    def add(connection: Any) -> None:
        alpha = projects.get_project(connection, "alpha")
        people.add_member(connection, alpha.id, people.create_assessor(connection, HOSTILE, now=now).id, "judge", now)

    world.database.write(add)
    fit_majority(world)
    text = world.request("lead", "GET", f"/projects/alpha{end}").text
    assert "<script>alert" not in text
    assert "onerror=alert(2)>" not in text
    if end != "/settings":
        assert "&lt;script&gt;alert(1)" in text


# Settled and disputed pairs.


def test_pairs_are_settled_or_disputed(world: World) -> None:
    alpha = fit_majority(world)
    with world.database.read() as connection:
        fitted = read_fitted_pairs(connection, alpha)
        assert fitted is not None
        assert (len(fitted.probabilities), fitted.n_settled, fitted.n_newer) == (6, 5, 0)
        (disputed,) = most_disputed(connection, alpha, fitted, 10)
        assert (disputed.query, disputed.document, disputed.title) == ("q2", "d5", HOSTILE)
        assert filter_pairs(connection, alpha, fitted, "disputed", 0, 10) == [disputed]
        assert filter_pairs(connection, alpha, fitted, "disputed", disputed.pair_id, 10) == []
        assert filter_pairs(connection, alpha, None, "disputed", 0, 10) == []
        assert len(filter_pairs(connection, alpha, fitted, "unfinished", 0, 1000)) == 54
        assert len(filter_pairs(connection, alpha, fitted, "all", 0, 1000)) == 60
        assert filter_pairs(connection, alpha, fitted, "closed", 0, 1000) == []
    chosen = pairs.PairFilter(pair_ids=[disputed.pair_id])
    world.database.write(lambda connection: pairs.close_pairs(connection, alpha, chosen))
    with world.database.read() as connection:
        fitted = read_fitted_pairs(connection, alpha)
        assert fitted is not None
        assert fitted.disputed() == []
        (closed,) = filter_pairs(connection, alpha, fitted, "closed", 0, 1000)
        assert closed.pair_id == disputed.pair_id


# In a browser.


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def address(world: World) -> Iterator[str]:
    with serve_in_thread(world.app) as url:
        yield url


@contextmanager
def signed_in(browser: Any, world: World, address: str, name: str = "lead") -> Iterator[OpenPage]:
    """Open a browser with the session of a person; it must log nothing and request nothing from others."""
    context = browser.new_context(viewport={"width": 1100, "height": 800})
    context.add_cookies([{"name": "crowdrank-session", "value": world.session(name), "url": address}])
    context.set_default_timeout(10_000)
    view = OpenPage(context.new_page())
    view.listen()
    yield view
    assert view.messages == []
    assert [url for url in view.requests if not url.startswith(f"{address}/")] == []
    context.close()


@needs_browser
@pytest.mark.parametrize("end", LEAD_PAGES)
def test_pages_are_accessible_and_fit_the_screen(browser: Any, world: World, address: str, end: str) -> None:
    fit_majority(world)
    with signed_in(browser, world, address) as view:
        for width in (1100, 360):
            view.page.set_viewport_size({"width": width, "height": 740})
            view.page.goto(f"{address}/projects/alpha{end}")
            assert view.page.evaluate("document.documentElement.scrollWidth") <= width
            assert view.serious_problems() == []


@needs_browser
def test_fit_the_model_on_the_dashboard(browser: Any, world: World, address: str) -> None:
    with signed_in(browser, world, address) as view:
        view.page.goto(f"{address}/projects/alpha")
        assert view.page.locator("#model table").count() == 0
        view.page.click("#fit")
        view.page.locator("#model strong").first.wait_for(timeout=1000 * FIT_SECONDS)
        assert "gda" in view.text("#model")
        assert view.page.locator("#assessors svg").count() == 2


@needs_browser
def test_pause_and_resume_a_member(browser: Any, world: World, address: str) -> None:
    button = f"#pause-{world.ids['judge']}"

    def is_paused() -> bool:
        with world.database.read() as connection:
            alpha = projects.get_project(connection, "alpha")
            return people.get_member(connection, alpha.id, world.ids["judge"]).is_paused

    with signed_in(browser, world, address) as view:
        view.page.goto(f"{address}/projects/alpha")
        view.page.click(button)
        view.wait_for_text(button, "Resume")
        assert is_paused()
        view.page.click(button)
        view.wait_for_text(button, "Pause")
        assert not is_paused()


@needs_browser
def test_problems_are_shown_in_place(browser: Any, world: World, address: str) -> None:
    with signed_in(browser, world, address, "other lead") as view:
        view.page.goto(f"{address}/projects/beta")  # has no answers
        view.page.click("#fit")
        view.page.locator("section:has(#fit) .problem").wait_for()
        assert view.page.locator(".problem:visible").count() == 1
        assert len(view.messages) == 1  # the browser logs the status 409
        view.messages.clear()
