"""Test the pages of leads: who may open them, what they show, and how they work in a real browser."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import update

from crowdrank.assessors.advice import ADVICE
from crowdrank.reports import svg_images
from crowdrank.service.domain import answers, pairs, people, projects
from crowdrank.service.domain.answer_fields import Answer
from crowdrank.service.domain.progress import answers_of
from crowdrank.service.model import project_charts
from crowdrank.service.model.disputes import filter_pairs, read_fitted_pairs
from crowdrank.service.model.fits import ACTING_FLAGS, fit_project
from crowdrank.service.model.refits import Refits
from crowdrank.service.service_errors import NotFound
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database
from crowdrank.service.web.protection import SECURITY_HEADERS
from crowdrank.service.web.web_app import create_application

from .browser_pages import OpenPage, chromium, needs_browser, serve_in_thread
from .conftest import ManualClock
from .service_world import World, create_invitation, create_world

HOSTILE = "</td><script>alert(1)</script><img src=https://example.org/x onerror=alert(2)>"
LEAD_PAGES = ("", "/charts", "/pairs", "/pairs?show=disputed", "/people", "/settings")
"""Ends of the addresses of the pages of leads."""
FIT_SECONDS = 120
"""Maximum time of a fit in a browser test, since the first one compiles the model."""

DRAW_SECONDS = 60
"""Maximum time in which a page opens in a browser test, since charts are drawn for it."""

ACTORS = ("anonymous", "stranger", "judge", "lead", "other lead", "admin", "lead token read")
PUBLIC = dict.fromkeys(ACTORS, 200)
PERSON = {**PUBLIC, "anonymous": 303, "lead token read": 403}
MEMBER = {**PERSON, "stranger": 404, "other lead": 404}
LEAD = {**MEMBER, "judge": 403}
ADMIN = {**dict.fromkeys(ACTORS, 403), "anonymous": 303, "admin": 200}
PAGES = {
    ("GET", "/login"): PUBLIC,
    ("GET", "/join"): PUBLIC,
    ("GET", "/"): PERSON,
    ("GET", "/projects/{project}/judge"): MEMBER,
    ("GET", "/new-project"): ADMIN,
    ("POST", "/new-project"): {**ADMIN, "admin": 422},  # the form is empty
    ("GET", "/projects/{project}"): LEAD,
    ("GET", "/projects/{project}/charts"): LEAD,
    ("GET", "/projects/{project}/charts/{name}.svg"): {**LEAD, "lead": 404, "admin": 404},  # there is no fit yet
    ("GET", "/projects/{project}/pairs"): LEAD,
    ("GET", "/projects/{project}/people"): LEAD,
    ("GET", "/projects/{project}/settings"): LEAD,
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
                Answer(f"{name} {place}", grade=grade, query="q2", document=f"d{place}")
                for place, grade in enumerate(given)
            ]
            answers.record_answers(connection, alpha, world.ids[name], listed, now)

    world.database.write(write)


def project_of(world: World) -> projects.Project:
    with world.database.read() as connection:
        return projects.get_project(connection, "alpha")


def fit_majority(world: World) -> projects.Project:
    alpha = project_of(world)
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
            status = world.request(actor, method, path.format(project="alpha", name="grades")).status_code
            if status != expected:
                wrong[path, actor] = (status, expected)
    assert wrong == {}


@pytest.mark.parametrize(
    ("path", "status"),
    [("/nothing", 404), ("/projects/alpha/pairs?after=-1", 422), ("/projects/alpha/pairs?show=none", 422)],
)
def test_people_see_errors_as_pages_and_programs_as_objects(world: World, path: str, status: int) -> None:
    page = world.request("lead", "GET", path)
    assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert page.headers["content-security-policy"] == SECURITY_HEADERS["Content-Security-Policy"]
    assert '<main class="narrow">' in page.text
    assert world.request("lead", "GET", "/api/nothing").json()["kind"] == "not-found"


def test_a_failure_has_a_page_with_security_headers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(people, "list_members", fail)
    page = world.request("lead", "GET", "/projects/alpha/people")
    assert (page.status_code, "secret" in page.text) == (500, False)
    assert page.headers["content-security-policy"] == SECURITY_HEADERS["Content-Security-Policy"]
    assert '<main class="narrow">' in page.text


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
    if end not in ("/settings", "/charts"):
        assert "&lt;script&gt;alert(1)" in text


# Settled pairs.


def test_pairs_are_settled_or_listed_by_a_filter(database: Database) -> None:
    with create_world(database, create_application) as world:
        answer_pairs(world)
        check_filters(world)


def check_filters(world: World) -> None:
    alpha = fit_majority(world)
    with world.database.read() as connection:
        fitted = read_fitted_pairs(connection, alpha)
        assert fitted is not None
        assert (len(fitted.probabilities), fitted.n_settled, fitted.n_newer) == (6, 5, 0)
        (disputed,) = filter_pairs(connection, alpha, fitted, "disputed", 0, 10)
        assert (disputed.query, disputed.document, disputed.title) == ("q2", "d5", HOSTILE)
        assert filter_pairs(connection, alpha, fitted, "disputed", 1, 10) == []
        assert len(filter_pairs(connection, alpha, fitted, "unfinished", 0, 1000)) == 54
        assert len(filter_pairs(connection, alpha, fitted, "all", 0, 1000)) == 60
        assert filter_pairs(connection, alpha, fitted, "closed", 0, 1000) == []
    chosen = pairs.PairFilter(pair_ids=[disputed.pair_id])
    world.database.write(lambda connection: pairs.close_pairs(connection, alpha, chosen))
    with world.database.read() as connection:
        (closed,) = filter_pairs(connection, alpha, fitted, "closed", 0, 1000)
        assert closed.pair_id == disputed.pair_id


def test_disputed_pairs_have_pages(world: World) -> None:
    def answer(connection: Any) -> None:
        alpha = projects.get_project(connection, "alpha")
        keys = [(f"q{query}", f"d{place}") for query in range(3) for place in range(20)]
        for name, grade in (("lead", 0), ("judge", 3)):
            given = [
                Answer(f"{name} {query} {document}", grade=grade, query=query, document=document)
                for query, document in keys
            ]
            answers.record_answers(connection, alpha, world.ids[name], given, world.database.now())

    world.database.write(answer)

    def listed(query: str) -> list[str]:
        page = world.request("lead", "GET", f"/projects/alpha/pairs?show=disputed{query}").text
        assert ("show=disputed&amp;after=50" in page) == (query == "")
        return re.findall(r'name="pair_ids" value="(\d+)"', page)

    first, second = listed(""), listed("&after=50")
    assert (len(first), len(second), len({*first, *second})) == (50, 10, 60)


# Charts.


def test_leads_see_the_state_of_the_model(world: World, clock: ManualClock) -> None:
    changes = {"policy": "NDCG@10", "settled": 0.9, "budget": 20.0, "flag_action": "pause", "min_information": 0.55}
    changed = world.request("lead", "PATCH", "/api/projects/alpha", json=changes).json()
    assert {name: changed[name] for name in changes} == {**changes, "policy": "ndcg@10"}
    fields = world.request("lead", "GET", "/api/projects/alpha/status").json()["model"]
    assert (fields["method"], fields["age"], fields["failure"]) == (None, None, None)
    assert "<strong>" not in world.request("lead", "GET", "/projects/alpha/people").text
    refits = Refits(world.database)
    refits.run_due()
    clock.advance(90)
    flag = {"flag": "random", "is_paused": True, "pause_reason": "random: 40 answers"}
    of_judge = schema.membership.c.assessor_id == world.ids["judge"]
    world.database.write(lambda connection: connection.execute(update(schema.membership).where(of_judge).values(flag)))
    refits._store_failure(project_of(world), RuntimeError("no <luck>"), world.database.now())
    fields = world.request("lead", "GET", "/api/projects/alpha/status").json()["model"]
    failure = fields.pop("failure")
    assert (failure["at"], "no <luck>" in failure["problem"]) == (clock(), True)
    n_settled = fields.pop("n_settled")
    assert 0 <= n_settled <= 6
    assert fields == {
        "policy": "ndcg@10",
        "settled": 0.9,
        "budget": 20.0,
        "spent": 12.0,
        "method": "gda",
        "age": 90_000,
        "n_newer": 0,
        "n_judged": 6,
    }
    page = world.request("lead", "GET", "/projects/alpha").text
    for text in ("1 minute", f"{n_settled} of 6", "90%", "ndcg@10", "12.00", "20.00", "no &lt;luck&gt;", "40 answers"):
        assert text in page
    assert "40 answers" in world.request("lead", "GET", "/projects/alpha/people").text
    settings = world.request("lead", "GET", "/projects/alpha/settings").text
    for text in ('value="ndcg@10"', 'value="90"', 'value="20"', '<option value="pause" selected>', 'value="55"'):
        assert text in settings
    refits.close()


@pytest.mark.parametrize("kind", ["human", "llm"])
@pytest.mark.parametrize("flag", ACTING_FLAGS)
def test_notices_of_flags_are_for_the_kind_of_assessor(world: World, kind: str, flag: str) -> None:
    judge = world.ids["judge"]
    change = update(schema.membership).where(schema.membership.c.assessor_id == judge).values(flag=flag)
    of_kind = update(schema.assessor).where(schema.assessor.c.id == judge).values(kind=kind)
    world.database.write(lambda connection: (connection.execute(change), connection.execute(of_kind)))
    advice = {"human": ADVICE[flag].people, "llm": ADVICE[flag].llm}
    for path in ("", "/people"):
        page = world.request("lead", "GET", f"/projects/alpha{path}").text
        notice = page.split('id="flag-notices"')[1].split("</div>")[0]
        assert {one for one, text in advice.items() if text[1:] in notice} == {kind}


def test_leads_see_who_is_not_asked(world: World) -> None:
    of_judge = schema.membership.c.assessor_id == world.ids["judge"]
    values = {"relative_information": 0.25}
    world.database.write(
        lambda connection: connection.execute(update(schema.membership).where(of_judge).values(values))
    )
    page = world.request("lead", "GET", "/projects/alpha/people").text
    assert ("25%" in page, "not asked" in page) == (True, False)
    world.request("lead", "PATCH", "/api/projects/alpha", json={"min_information": 0.5})
    assert '<span class="badge">not asked</span>' in world.request("lead", "GET", "/projects/alpha/people").text
    members = world.request("lead", "GET", "/api/projects/alpha/members").json()
    found = {one["assessor"]["id"]: one["relative_information"] for one in members}
    assert found[world.ids["judge"]] == 0.25
    world.request("lead", "PATCH", "/api/projects/alpha", json={"min_information": None})
    assert project_of(world).min_information is None


def test_charts_are_drawn_once_per_fit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def draw(specs: Sequence[Any]) -> list[str]:
        drawn.append(len(specs))
        return ["<svg/>" for _ in specs]

    monkeypatch.setattr(project_charts, "draw_in_new_process", draw)
    fit_majority(world)
    for _ in range(2):
        assert "/charts/grades.svg" in world.request("lead", "GET", "/projects/alpha/charts").text
        image = world.request("lead", "GET", "/projects/alpha/charts/grades.svg")
        assert (image.status_code, image.headers["content-type"], image.text) == (200, "image/svg+xml", "<svg/>")
    assert len(drawn) == 1
    assert world.request("lead", "GET", "/projects/alpha/charts/other.svg").status_code == 404
    assert world.request("judge", "GET", "/projects/alpha/charts/grades.svg").status_code == 403
    fit_majority(world)
    world.request("lead", "GET", "/projects/alpha/charts")
    assert len(drawn) == 2


def test_charts_need_an_extra_and_a_fit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "<img" not in world.request("lead", "GET", "/projects/alpha/charts").text  # there is no fit
    fit_majority(world)
    monkeypatch.setattr(svg_images, "find_spec", lambda name: None)
    page = world.request("lead", "GET", "/projects/alpha/charts")
    assert (page.status_code, "crowdrank[report]" in page.text) == (200, True)
    assert "<img" not in page.text


def test_a_failure_to_draw_is_an_error_of_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg_images, "MAX_SECONDS", 0)
    fit_majority(world)
    assert world.request("lead", "GET", "/projects/alpha/charts").status_code == 503


def test_the_charts_depend_on_the_answers(world: World, clock: ManualClock) -> None:
    alpha, now = project_of(world), world.database.now()

    def add(connection: Any) -> None:
        rows = [pairs.PairRow("q9", f"d{place}", kind="gold", gold_grade=3) for place in range(4)]
        pairs.add_pairs(connection, alpha, rows, now)
        for name in ("gpt", "llama"):
            judge = people.create_assessor(connection, name, kind="llm", family=name, now=now)
            people.add_member(connection, alpha.id, judge.id, "judge", now)
            listed = [
                Answer(f"{name} {place}", grade=min(3, place + 1), query="q9", document=f"d{place}")
                for place in range(4)
            ]
            answers.record_answers(connection, alpha, judge.id, listed, now + 1000)

    world.database.write(add)
    clock.advance(60)
    snapshot = fit_project(world.database, alpha, "dawid-skene").snapshot
    with world.database.read() as connection:
        data = project_charts.ChartData.read(connection, alpha, snapshot)
    found = dict(project_charts.list_charts(data))
    assert set(found) == set(project_charts.EXPLANATIONS) - {"informativeness"}  # there are few assessors
    shares = data.assessors.set_index("assessor")[["judgments", "honeypots", "honeypot_share"]]
    assert shares.loc["gpt"].to_dict() == {"judgments": 4, "honeypots": 4, "honeypot_share": 0.5}
    assert shares["honeypots"].to_dict() == {"gpt": 4, "llama": 4, "judge": 0, "lead": 0}


# Projects from files.

PAIRS_FILE = ("pairs.csv", b"query,document,honeypot\nq1,d1,\nq1,d2,Good\n")
TEXTS_FILE = (
    "texts.jsonl",
    b'{"query": "q1", "document": "d1", "query_text": "plum jam", "title": "Jam", "text": "Boil"}',
)


def send_project(world: World, actor: str = "admin", /, **files: tuple[str, bytes]) -> Any:
    listed = {"pairs": PAIRS_FILE, "texts": TEXTS_FILE, **files}
    fields = {"name": "jam", "grades": "Bad, Fair, Good"}
    return world.request(actor, "POST", "/new-project", data=fields, files=listed)


def test_a_project_is_created_from_files(world: World) -> None:
    answer = send_project(world, guidelines=("rules.md", b"# Rules"))
    assert (answer.status_code, answer.json()) == (201, {"next": "/projects/jam"})
    with world.database.read() as connection:
        jam = projects.get_project(connection, "jam")
        assert (jam.grades, jam.guidelines) == (("Bad", "Fair", "Good"), "# Rules")
        real, gold = pairs.list_pairs(connection, jam)
        assert (real.kind, real.query_text, real.title) == ("real", "plum jam", "Jam")
        assert (gold.kind, gold.gold_grade) == ("gold", "Good")
        assert pairs.get_pair_content(connection, jam, real.pair_id).body == "Boil"
        assert people.get_member(connection, jam.id, world.ids["admin"]).role == "lead"
    assert "1 pairs have a document without" in world.request("admin", "GET", "/projects/jam").text
    body = {"client_id": "a", "pair_id": real.pair_id, "grade": "Bad"}
    assert world.request("admin", "POST", "/api/projects/jam/answers", json=body).status_code == 200
    assert "no-texts" not in world.request("admin", "GET", "/projects/jam").text  # judging has begun


@pytest.mark.parametrize(
    "files",
    [
        {"pairs": ("pairs.csv", b"")},
        {"pairs": ("pairs.csv", b"a,b\n1,2\n")},
        {"pairs": ("judging.db", b"SQLite format 3\0")},
        {"pairs": ("pairs.csv", b"query,document,honeypot\nq1,d1,Excellent\n"), "texts": ("", b"")},
        {"texts": ("texts.csv", b"document,title\nother,Jam\n")},
        {"guidelines": ("rules.md", b"\xff\xfe\xfa")},
    ],
)
def test_nothing_is_created_from_bad_files(world: World, files: dict[str, tuple[str, bytes]]) -> None:
    answer = send_project(world, **files)
    assert answer.status_code == 422
    assert tempfile.gettempdir() not in answer.text
    with world.database.read() as connection, pytest.raises(NotFound):
        projects.get_project(connection, "jam")


def test_files_may_be_larger_than_other_requests(sqlite_database: Database) -> None:
    limits = {"max_body_bytes": 100, "max_upload_bytes": 5000}
    with create_world(sqlite_database, create_application, **limits) as world:
        assert send_project(world, guidelines=("rules.md", b"x" * 5000)).status_code == 413
        assert send_project(world, guidelines=("rules.md", b"x" * 1000)).status_code == 201


def test_a_project_needs_the_form_token_of_an_administrator(world: World) -> None:
    headers = {**world.session_headers("admin"), "X-Form-Token": "wrong"}
    assert world.client.post("/new-project", headers=headers, files={"pairs": PAIRS_FILE}).status_code == 403
    assert send_project(world, "lead").status_code == 403
    assert send_project(world, "admin token manage").status_code == 403


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
    context.set_default_navigation_timeout(1000 * DRAW_SECONDS)
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
def test_charts_are_images(browser: Any, world: World, address: str) -> None:
    fit_majority(world)
    with signed_in(browser, world, address) as view:
        view.page.goto(f"{address}/projects/alpha")
        view.page.click("#model >> text=Charts")
        view.page.locator(".charts img").first.wait_for(timeout=1000 * DRAW_SECONDS)
        view.page.wait_for_function("() => [...document.images].every((image) => image.naturalWidth > 100)")


@needs_browser
def test_fit_the_model_on_the_dashboard(browser: Any, world: World, address: str) -> None:
    with signed_in(browser, world, address) as view:
        view.page.goto(f"{address}/projects/alpha")
        assert view.page.locator("#disputed tbody tr").count() == 1  # without a fit, too
        assert view.page.locator("#disputed svg, a[href$='labels.csv']").count() == 0
        view.page.click("#fit")
        view.page.locator("#disputed svg").first.wait_for(timeout=1000 * FIT_SECONDS)
        assert "gda" in view.text("#model")
        assert view.page.locator("#assessors svg").count() == 2


@needs_browser
def test_pause_and_resume_a_member(browser: Any, world: World, address: str) -> None:
    button = f"#pause-{world.ids['judge']}"

    def is_paused() -> bool:
        with world.database.read() as connection:
            return people.get_member(connection, project_of(world).id, world.ids["judge"]).is_paused

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


@needs_browser
def test_close_and_reopen_pairs_in_bulk(browser: Any, world: World, address: str) -> None:
    def closed() -> list[str]:
        with world.database.read() as connection:
            found = filter_pairs(connection, project_of(world), None, "closed", 0, 1000)
        return [pair.document for pair in found]

    with signed_in(browser, world, address) as view:
        view.page.goto(f"{address}/projects/alpha/pairs?show=unfinished")
        for place in (0, 1):
            view.page.locator("[name=pair_ids]").nth(place).check()
        view.page.click("text=Close selected")
        view.wait_for_text(".done", "2")
        assert closed() == ["d0", "d1"]
        view.page.goto(f"{address}/projects/alpha/pairs?show=closed")
        view.page.check("[data-select-all]")
        view.page.click("text=Reopen selected")
        view.wait_for_text(".done", "2")
        assert closed() == []
        with world.database.read() as connection:
            assert {pair.generation for pair in pairs.list_pairs(connection, project_of(world))} == {1}


@needs_browser
def test_start_a_new_generation_of_one_pair_and_of_several(browser: Any, world: World, address: str) -> None:
    def generations() -> list[int]:
        with world.database.read() as connection:
            return [pair.generation for pair in pairs.list_pairs(connection, project_of(world), limit=3)]

    with signed_in(browser, world, address) as view:
        view.page.goto(f"{address}/projects/alpha/pairs")
        view.page.click("text=New generation of selected")
        view.page.locator(".problem:visible").wait_for()  # no pair is selected
        view.page.locator("#pairs button", has_text="New generation").first.click()
        view.page.click("#confirmation >> text=Cancel")
        view.page.locator("#pairs button", has_text="New generation").first.click()
        view.page.click("#confirm")
        view.wait_for_text("#pairs tr:nth-child(1)", "generation 2")
        assert generations() == [2, 1, 1]
        for place in (0, 1):
            view.page.locator("[name=pair_ids]").nth(place).check()
        view.page.click("text=New generation of selected")
        assert view.serious_problems() == []
        view.page.click("#confirm")
        view.wait_for_text("#pairs tr:nth-child(1)", "generation 3")
        assert generations() == [3, 2, 1]


@needs_browser
def test_remove_a_member(browser: Any, world: World, address: str) -> None:
    with signed_in(browser, world, address) as view:
        view.page.goto(f"{address}/projects/alpha/people")
        assert view.page.locator(f"#remove-{world.ids['lead']}").count() == 0  # oneself
        view.page.click(f"#remove-{world.ids['judge']}")
        view.page.click("#confirm")
        view.page.locator(f"#remove-{world.ids['judge']}").wait_for(state="detached")
        view.page.goto(f"{address}/projects/alpha")
        view.wait_for_text("#assessors .badge", "removed")
    with world.database.read() as connection:
        assert people.find_member(connection, project_of(world).id, world.ids["judge"]) is None


@needs_browser
def test_the_next_page_of_pairs_goes_on_after_the_last_one(browser: Any, world: World, address: str) -> None:
    with signed_in(browser, world, address) as view:
        view.page.goto(f"{address}/projects/alpha/pairs")
        assert view.page.locator("[name=pair_ids]").count() == 50
        view.page.click("text=Next page")
        view.page.locator("text=First page").wait_for()
        assert view.page.locator("[name=pair_ids]").count() == 10


@needs_browser
def test_adjudicate_a_disputed_pair(browser: Any, world: World, address: str) -> None:
    alpha = fit_majority(world)
    with signed_in(browser, world, address) as view:
        view.page.goto(f"{address}/projects/alpha/pairs?show=disputed")
        assert view.page.locator("select[name=grade]").count() == 1
        listed = [" ".join(text.split()) for text in view.page.locator(".given-answers li").all_inner_texts()]
        time = "2023-11-14 22:13 UTC"
        assert listed == [f"lead: 0 {time}", f"judge: 3 {time}"]
        assert view.serious_problems() == []
        view.page.select_option("select[name=grade]", "3")
        view.page.click("#pairs form button")
        view.wait_for_text("#pairs", "There are no such pairs")
        view.page.click("text=Adjudicated")
        view.wait_for_text(".given-answers", "adjudicated")
        assert view.page.locator("select[name=grade]").count() == 1
    with world.database.read() as connection:
        rows = answers_of(connection, alpha).to_pylist()
    given = {row["assessor"]: row for row in rows if (row["query"], row["document"]) == ("q2", "d5")}
    assert {name: row["grade"] for name, row in given.items()} == {"lead": "3", "judge": "3"}
    assert given["lead"]["comment"] == "adjudicated"
    fit_majority(world)
    with world.database.read() as connection:
        fitted = read_fitted_pairs(connection, alpha)
        assert fitted is not None
        assert fitted.n_settled == 6


@needs_browser
def test_invite_somebody_who_joins_in_another_browser(browser: Any, world: World, address: str) -> None:
    with signed_in(browser, world, address) as view:
        view.page.goto(f"{address}/projects/alpha/people")
        view.page.select_option("#invite-kind", "expert")
        view.page.click("#invite button")
        view.page.locator("#invitation-link-value").wait_for()
        link = view.page.input_value("#invitation-link-value")
        view.page.click("#invitation-link button")
        view.wait_for_text("#invitation-link button", "Copied")
        assert link.startswith(f"{address}/join#")
        context = browser.new_context()
        guest = context.new_page()
        guest.goto(link)
        guest.fill("#name", "Eve")
        guest.fill("#password", "correct horse battery")
        guest.click("#join button")
        guest.wait_for_url(f"{address}/projects/alpha/judge")
        assert guest.goto(f"{address}/projects/alpha/judge").status == 200
        assert guest.goto(f"{address}/projects/alpha/people").status == 403
        context.close()
        view.page.reload()
        view.wait_for_text("#members", "Eve")
        assert view.page.locator("#invitations tr").count() == 0  # it is used up


@needs_browser
def test_revoke_an_invitation(browser: Any, world: World, address: str) -> None:
    secret = create_invitation(world)
    with signed_in(browser, world, address) as view:
        view.page.goto(f"{address}/projects/alpha/people")
        view.page.click("#invitations button")
        view.page.locator("#invitations table").wait_for(state="detached")
    with world.database.read() as connection, pytest.raises(NotFound):
        people.find_invitation(connection, secret, world.database.now())


@needs_browser
def test_add_an_llm_judge_that_answers_with_its_token(browser: Any, world: World, address: str) -> None:
    with signed_in(browser, world, address) as view:
        view.page.goto(f"{address}/projects/alpha/people")
        view.page.fill("#judge-name", "llama <70b>")
        view.page.fill("#judge-family", "llama")
        view.page.click("#add-judge button")
        view.wait_for_text("#members", "llama <70b>")
        view.wait_for_text("#unasked", "LLM")
        view.page.fill("#token-name", "nightly")
        view.page.click("#add-token button")
        view.page.locator("#token-value").wait_for()
        secret = view.page.input_value("#token-value")
        view.wait_for_text("#tokens", "nightly")
    headers = {"Authorization": f"Bearer {secret}"}
    me = world.client.get("/api/me", headers=headers).json()
    assert me["name"] == "llama <70b>"


@needs_browser
def test_change_the_settings(browser: Any, world: World, address: str) -> None:
    with signed_in(browser, world, address) as view:
        view.page.goto(f"{address}/projects/alpha/settings")
        view.page.fill("#guidelines-text", "# Rules")
        view.page.click("#guidelines button")
        view.wait_for_text("#guidelines-version", "2")
        view.page.fill("#llm-min", "1")
        view.page.fill("#llm-max", "2")
        view.page.fill("#lease-seconds", "1.5")
        view.page.fill("#honeypot-share", "7")
        view.page.fill("#policy", "entropy")
        view.page.fill("#settled", "95")
        view.page.fill("#qualification-share", "80")
        view.page.select_option("#flag-action", "honeypots")
        view.page.fill("#min-information", "40")
        view.page.select_option("#mode", "query")
        view.page.click("#settings button")
        view.wait_for_text(".done:visible", "saved")
        view.page.click("#toggle")
        view.wait_for_text(".badge", "closed")
    alpha = project_of(world)
    assert (alpha.guidelines, alpha.guidelines_version) == ("# Rules", 2)
    assert alpha.quotas == {"human": (2, 3), "llm": (1, 2), "expert": (0, 0)}
    assert (alpha.lease_seconds, alpha.honeypot_share, alpha.layout) == (90, 0.07, {"mode": "query"})
    assert (alpha.policy, alpha.settled, alpha.budget, alpha.flag_action) == ("entropy", 0.95, None, "honeypots")
    assert (alpha.qualification_share, alpha.min_information) == (0.8, 0.4)
    assert not alpha.is_open


def ranking_file(sign: int) -> dict[str, Any]:
    rows = [f"q{query} Q0 d{place} 0 {sign * place} run" for query in range(3) for place in range(20)]
    return {"name": "run.trec", "mimeType": "text/plain", "buffer": "\n".join(rows).encode()}


@needs_browser
def test_compare_rankings_in_the_browser(browser: Any, world: World, address: str) -> None:
    with signed_in(browser, world, address) as view:
        view.page.goto(f"{address}/projects/alpha/settings")
        view.page.fill("#policy", "compare")
        view.page.fill("#measure", "P@5")
        view.page.fill("#pairs-per-draw", "4")
        view.page.fill("#human-min", "1")
        view.page.click("#settings button")
        view.wait_for_text(".done:visible", "saved")
        view.page.fill("#ranking-name", "live")
        wrong = {"name": "run.trec", "mimeType": "text/plain", "buffer": b"q0 0 d0 2"}
        view.page.set_input_files("#ranking-file", wrong)
        view.page.click("#add-ranking button")
        view.wait_for_text(".problem:visible", "Ranking 'live'")
        assert len(view.messages) == 1  # the browser logs the status 422
        view.messages.clear()
        for name, sign in (("live", 1), ("old", 1), ("new", -1)):
            view.page.fill("#ranking-name", name)
            view.page.set_input_files("#ranking-file", ranking_file(sign))
            view.page.click("#add-ranking button")
            view.wait_for_text("#rankings", name)
        view.page.click("#remove-ranking-2")
        view.page.locator("#rankings tr", has_text="old").wait_for(state="detached")
        view.page.goto(f"{address}/projects/alpha")
        view.wait_for_text("#comparison", "No pairs are drawn yet")
        view.page.click("#draw")
        view.wait_for_text("#comparison", "5 of 9")  # five pairs were answered before
        let_judge_answer(world)
        view.page.set_viewport_size({"width": 360, "height": 740})
        view.page.reload()
        view.wait_for_text("#comparison", "9 of 9")
        assert view.page.locator("#comparison tbody tr").count() == 2
        assert view.page.evaluate("document.documentElement.scrollWidth") <= 360
        assert view.serious_problems() == []
        view.page.click("#discard")
        view.page.click("#confirm")
        view.wait_for_text("#comparison", "No pairs are drawn yet")


def let_judge_answer(world: World) -> None:
    while leases := world.request("judge", "POST", "/api/projects/alpha/next").json()["leases"]:
        body = {"client_id": leases[0]["token"], "lease": leases[0]["token"], "grade": 2}
        assert world.request("judge", "POST", "/api/projects/alpha/answers", json=body).status_code == 200


@needs_browser
def test_create_a_project_in_the_browser(browser: Any, world: World, address: str) -> None:
    with signed_in(browser, world, address, "admin") as view:
        view.page.set_viewport_size({"width": 360, "height": 740})
        view.page.goto(f"{address}/new-project")
        assert view.page.evaluate("document.documentElement.scrollWidth") <= 360
        assert view.serious_problems() == []
        view.page.fill("#name", "jam")
        view.page.fill("#grades", "Bad, Good")
        name, content = PAIRS_FILE
        view.page.set_input_files("#pairs", {"name": name, "mimeType": "text/csv", "buffer": b"a,b\n1,2\n"})
        view.page.click("#new-project button")
        view.page.locator(".problem").wait_for()
        assert len(view.messages) == 1  # the browser logs the status 422
        view.messages.clear()
        view.page.set_input_files("#pairs", {"name": name, "mimeType": "text/csv", "buffer": content})
        view.page.click("#new-project button")
        view.page.wait_for_url(f"{address}/projects/jam")
