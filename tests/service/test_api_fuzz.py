"""Send generated JSON to every endpoint with a body: the answer is never a failure of the service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowdrank.service.domain.credentials import Throttle
from crowdrank.service.store.database import Database
from crowdrank.service.store.migrations import upgrade

from .conftest import ManualClock
from .service_world import World, create_world

MAX_EXAMPLES = 25
TEXT = st.text(max_size=20) | st.sampled_from(
    ["alpha", "judge", "0-3", "grade", "read", "a" * 300, "\ud800", "\0", "q0"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return a service that all examples use; administrators and leads act in it."""
    path: Path = tmp_path_factory.mktemp("fuzz") / "judging.db"
    database = Database(path, clock=ManualClock())
    upgrade(database)
    with create_world(database, throttle=Throttle(free_per_name=10**9, free_per_address=10**9)) as world:
        yield world
    database.close()


def described_bodies(app: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the JSON schema of the body of each endpoint that has one."""
    description = app.openapi()
    found = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                schema = content["application/json"]["schema"]
                found[method.upper(), path] = {**schema, "components": description["components"]}
    return found


def values_of(schema: dict[str, Any], components: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that mostly have the form of a JSON schema, with some of any other form."""
    if "$ref" in schema:
        return values_of(components["schemas"][schema["$ref"].rpartition("/")[2]], components)
    if "anyOf" in schema:
        return st.one_of([values_of(one, components) for one in schema["anyOf"]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")])) | SCALARS
    if schema.get("type") == "array" and "items" in schema:
        return st.lists(values_of(schema["items"], components), max_size=3)
    if schema.get("type") == "object" and "properties" in schema:
        fields = {name: values_of(one, components) | VALUES for name, one in schema["properties"].items()}
        required = {name: fields.pop(name) for name in schema.get("required", [])}
        return st.fixed_dictionaries(required, optional=fields)
    by_type: dict[str, st.SearchStrategy[Any]] = {
        "string": TEXT,
        "integer": st.integers() | st.integers(0, 5),
        "number": st.floats() | st.floats(0, 1),
        "boolean": st.booleans(),
        "null": st.none(),
        "object": st.dictionaries(TEXT, VALUES, max_size=3),
    }
    return by_type.get(schema.get("type", ""), VALUES)


def send_generated(world: World, method: str, address: str, bodies: st.SearchStrategy[Any]) -> set[int]:
    """Send generated bodies for people of several roles; return the statuses of the answers."""
    headers = {name: world.session_headers(name) for name in ("judge", "lead", "admin")}
    statuses: set[int] = set()

    @settings(
        max_examples=MAX_EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(body=bodies | VALUES, actor=st.sampled_from(list(headers)))
    def send(body: Any, actor: str) -> None:
        content = json.dumps(body).encode()
        sent = {**headers[actor], "Content-Type": "application/json"}
        answer = world.client.request(method, address, content=content, headers=sent)
        world.client.cookies.clear()
        statuses.add(answer.status_code)
        assert answer.status_code < 500, (method, address, content)
        if answer.status_code >= 400:
            assert set(answer.json()) == {"problem", "kind", "parameter", "fix", "client_id"}

    send()
    return statuses


def test_generated_bodies_never_make_the_service_fail(shared_world: World) -> None:
    described = described_bodies(shared_world.app)
    assert len(described) > 20
    statuses: set[int] = set()
    for (method, path), schema in described.items():
        address = path.format(project="alpha", assessor_id=shared_world.ids["judge"])
        statuses |= send_generated(shared_world, method, address, values_of(schema, schema["components"]))
    assert {200, 400, 422} <= statuses
