"""Test the comparison of rankings by the API: rankings, draws, and what judges see of them."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterator
from typing import Any

import pytest

from crowdrank.service.store.database import Database
from crowdrank.service.web.web_app import create_application

from .service_world import World, create_world

ALPHA = "/api/projects/alpha"
SETTINGS = {"policy": "compare", "measure": "nDCG@5", "pairs_per_draw": 6, "quotas": {"human": [1, 1]}}


def trec_run(step: int) -> bytes:
    """Return a run of the queries of alpha, in the order of the documents times a step."""
    lines = [
        f"q{query} Q0 d{place * step % 20} {place + 1} {100 - place} run" for query in range(3) for place in range(20)
    ]
    return "\n".join(lines).encode()


def add_rankings(world: World) -> None:
    for name, step in (("live", 1), ("new", 7)):
        assert send_ranking(world, name, trec_run(step)).status_code == 201


def send_ranking(world: World, name: str, content: bytes, actor: str = "lead") -> Any:
    return world.request(actor, "POST", f"{ALPHA}/rankings", params={"name": name}, content=content)


def judge_all(world: World) -> list[dict[str, Any]]:
    """Let the judge answer all pairs; return what the judge has seen."""
    seen: list[dict[str, Any]] = []
    while leases := world.request("judge", "POST", f"{ALPHA}/next?count=50").json()["leases"]:
        body = [{"client_id": lease["token"], "lease": lease["token"], "grade": 1 + len(seen) % 3} for lease in leases]
        assert world.request("judge", "POST", f"{ALPHA}/answers", json=body).status_code == 200
        seen += leases
    return seen


def test_a_lead_compares_rankings(world: World) -> None:
    changed = world.request("lead", "PATCH", ALPHA, json=SETTINGS).json()
    assert (changed["policy"], changed["measure"], changed["pairs_per_draw"]) == ("compare", "nDCG@5", 6)
    assert judge_all(world) == []
    add_rankings(world)
    listed = world.request("lead", "GET", f"{ALPHA}/rankings").json()
    assert [(one["name"], one["n_documents"]) for one in listed] == [("live", 60), ("new", 60)]
    for number in (1, 2):
        drawn = world.request("lead", "POST", f"{ALPHA}/draws")
        assert (drawn.status_code, drawn.json()["number"], drawn.json()["n_pairs"]) == (201, number, 6)
        assert drawn.json()["messages"] == []
        assert world.request("lead", "POST", f"{ALPHA}/draws").json()["kind"] == "draw-incomplete"
        seen = judge_all(world)
        assert len(seen) == 6
        assert set(seen[0]) == {"token", "expires", "content"}
    found = world.request("lead token read", "GET", f"{ALPHA}/draws").json()
    assert [(one["n_complete"], one["is_complete"]) for one in found["draws"]] == [(6, True), (6, True)]
    estimate = found["estimate"]
    assert (estimate["measure"], estimate["baseline"], estimate["expert_grades"]) == ("nDCG@5", "live", 12)
    live, new = estimate["runs"]
    assert live["difference_lower"] is None
    assert new["difference_lower"] < new["difference"] < new["difference_upper"]
    answers = world.request("lead", "GET", f"{ALPHA}/answers.csv").text
    rows = list(csv.DictReader(io.StringIO(answers)))
    assert sorted({row["draw"] for row in rows}) == ["1", "2"]
    assert all(0 < float(row["probability"]) <= 1 for row in rows)
    actions = [one["action"] for one in world.request("lead", "GET", f"{ALPHA}/audit").json()]
    assert {"ranking.set", "draw.add"} <= set(actions)


def test_judges_do_not_see_the_comparison(world: World) -> None:
    world.request("lead", "PATCH", ALPHA, json=SETTINGS)
    add_rankings(world)
    world.request("lead", "POST", f"{ALPHA}/draws")
    project = world.request("judge", "GET", ALPHA).json()
    assert not {"policy", "measure", "pairs_per_draw"} & set(project)
    for end in ("rankings", "draws"):
        assert world.request("judge", "GET", f"{ALPHA}/{end}").status_code == 403
    lease = world.request("judge", "POST", f"{ALPHA}/next").json()["leases"][0]
    assert set(lease["content"]) == {
        "pair_id", "query", "query_text", "need", "document", "title", "body", "fields", "url",
    }  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"q0 0 d0 1\n", b"\x89PNG", b"q0 Q0 d0 1 high run\n"])
def test_a_bad_ranking_changes_nothing(world: World, content: bytes) -> None:
    add_rankings(world)
    before = world.request("lead", "GET", f"{ALPHA}/rankings").json()
    for name in ("new", "third"):
        answer = send_ranking(world, name, content)
        assert answer.status_code == 422
        assert answer.json()["problem"].startswith(f"ranking '{name}'")
    assert send_ranking(world, "a/b", trec_run(1)).json()["parameter"] == "name"
    assert world.request("lead", "GET", f"{ALPHA}/rankings").json() == before


def test_a_ranking_is_replaced_or_removed(world: World) -> None:
    add_rankings(world)
    assert send_ranking(world, "new", trec_run(3)[:200].rpartition(b"\n")[0]).status_code == 201
    listed = world.request("lead", "GET", f"{ALPHA}/rankings").json()
    assert [one["name"] for one in listed] == ["live", "new"]
    assert listed[1]["n_documents"] < 60
    assert world.request("lead", "DELETE", f"{ALPHA}/rankings/live").status_code == 204
    assert world.request("lead", "DELETE", f"{ALPHA}/rankings/live").json()["kind"] == "no-ranking"
    world.request("lead", "PATCH", ALPHA, json=SETTINGS)
    assert world.request("lead", "POST", f"{ALPHA}/draws").json()["kind"] == "few-rankings"


def test_a_change_of_the_measure_needs_the_draws_to_be_discarded(world: World) -> None:
    world.request("lead", "PATCH", ALPHA, json=SETTINGS)
    add_rankings(world)
    world.request("lead", "POST", f"{ALPHA}/draws")
    refused = world.request("lead", "PATCH", ALPHA, json={"measure": "P@5", "policy": "random"})
    assert (refused.status_code, refused.json()["kind"]) == (409, "draws-exist")
    assert world.request("lead", "GET", ALPHA).json()["policy"] == "compare"
    assert world.request("lead", "DELETE", f"{ALPHA}/draws").status_code == 204
    assert world.request("lead", "PATCH", ALPHA, json={"measure": "P@5"}).json()["measure"] == "P@5"


def test_rankings_may_be_larger_than_other_requests(sqlite_database: Database) -> None:
    with create_world(sqlite_database, max_body_bytes=100, max_upload_bytes=3000) as world:
        assert send_ranking(world, "live", trec_run(1)).status_code == 201
        assert send_ranking(world, "live", trec_run(1) * 3).status_code == 413


PLAN = {**SETTINGS, "pairs_per_draw": 6, "looks": 2, "margin": 0.9}


@pytest.fixture
def site(sqlite_database: Database) -> Iterator[World]:
    """The service with its pages."""
    with create_world(sqlite_database, create_application) as world:
        yield world


def test_each_complete_draw_is_a_look(site: World) -> None:
    world = site
    changed = world.request("lead", "PATCH", ALPHA, json=PLAN).json()
    assert (changed["looks"], changed["margin"]) == (2, 0.9)
    add_rankings(world)
    bounds = []
    for number in (1, 2):
        assert world.request("lead", "POST", f"{ALPHA}/draws").status_code == 201
        judge_all(world)
        found = world.request("lead token read", "GET", f"{ALPHA}/draws").json()["estimate"]
        watching = found["watching"]
        assert (watching["look"], watching["looks"], watching["margin"]) == (number, 2, 0.9)
        assert watching["information"] == number / 2
        bounds.append(watching["bound"])
        (answer,) = watching["answers"]
        new = found["runs"][1]
        kind = "go-on"
        if new["p_holm"] <= 0.05:
            kind = "different"
        elif max(-new["difference_lower"], new["difference_upper"]) < 0.9:
            kind = "not-different"
        assert (answer["run"], answer["answer"]) == ("new", kind)
        assert (answer["forecast"] is not None) == (kind == "go-on" and number == 1)
        page = world.request("lead", "GET", "/projects/alpha").text
        assert f"Look {number} of 2" in page
        assert watching["sentences"][0] in html.unescape(page)
    assert bounds == pytest.approx([2.797, 1.977], abs=2e-3)
    refused = world.request("lead", "POST", f"{ALPHA}/draws")
    assert (refused.status_code, refused.json()["kind"]) == (409, "looks-used")
    assert len(world.request("lead", "GET", f"{ALPHA}/draws").json()["draws"]) == 2


@pytest.mark.parametrize("change", [{"looks": 3}, {"looks": None}, {"margin": 0.1}, {"margin": None}])
def test_looks_and_margin_are_set_before_the_first_draw(world: World, change: dict[str, Any]) -> None:
    world.request("lead", "PATCH", ALPHA, json=PLAN)
    add_rankings(world)
    world.request("lead", "POST", f"{ALPHA}/draws")
    refused = world.request("lead", "PATCH", ALPHA, json=change)
    assert (refused.status_code, refused.json()["kind"]) == (409, "draws-exist")
    assert world.request("lead", "PATCH", ALPHA, json={**PLAN, "pairs_per_draw": 7}).status_code == 200
    assert world.request("lead", "DELETE", f"{ALPHA}/draws").status_code == 204
    assert world.request("lead", "PATCH", ALPHA, json=change).status_code == 200


def test_draws_that_are_not_planned_have_a_warning(world: World) -> None:
    world.request("lead", "PATCH", ALPHA, json=SETTINGS)
    add_rankings(world)
    for number in (1, 2):
        world.request("lead", "POST", f"{ALPHA}/draws")
        judge_all(world)
        estimate = world.request("lead", "GET", f"{ALPHA}/draws").json()["estimate"]
        assert estimate["watching"] is None
        assert ("looks-not-planned" in {one["kind"] for one in estimate["warnings"]}) == (number > 1)
