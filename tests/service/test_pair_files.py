"""Test the command that creates a project from files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crowdrank.cli.app import app
from crowdrank.errors import CrowdrankError, InputError
from crowdrank.service.database import Database
from crowdrank.service.pairs import list_pairs
from crowdrank.service.projects import get_project

TEXT = {"query": "q", "document": "a", "query_text": "jam", "title": "Plums", "text": "Boil."}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pairs.csv").write_text("query,document,honeypot\nq,a,\nq,b,Good\n", encoding="utf-8")
    (tmp_path / "texts.jsonl").write_text(json.dumps(TEXT) + "\n", encoding="utf-8")
    (tmp_path / "rules.md").write_text("# Rules\n", encoding="utf-8")
    return tmp_path


def arguments(folder: Path, **changes: str) -> list[str]:
    options = {"pairs": "pairs.csv", "texts": "texts.jsonl", "guidelines": "rules.md", **changes}
    paths = [word for name, file in options.items() for word in (f"--{name}", str(folder / file))]
    return ["new-project", str(folder / "judging.db"), "jam", "--grades", "Bad,Good", "--json", *paths]


def test_a_project_is_created_with_its_pairs(folder: Path) -> None:
    done = CliRunner().invoke(app, arguments(folder))
    assert json.loads(done.stdout) == {"project": "jam", "pairs": 2, "documents": 2}
    database = Database(folder / "judging.db")
    with database.read() as connection:
        project = get_project(connection, "jam")
        stored = list_pairs(connection, project)
    database.close()
    assert project.guidelines == "# Rules\n"
    assert [(pair.kind, pair.query_text, pair.title) for pair in stored] == [
        ("real", "jam", "Plums"),
        ("gold", "jam", ""),
    ]


def test_settings_are_options(folder: Path) -> None:
    options = ["--policy", "ndcg@10", "--labels", "1-5", "--settled", "0.95", "--budget", "100"]
    assert CliRunner().invoke(app, [*arguments(folder), *options]).exit_code == 0
    database = Database(folder / "judging.db")
    with database.read() as connection:
        project = get_project(connection, "jam")
    database.close()
    assert (project.policy, project.settled, project.budget) == ("ndcg@10", 0.95, 100.0)
    assert project.quotas["human"] == (1, 5)


@pytest.mark.parametrize(
    ("option", "value", "parameter"),
    [
        ("--policy", "compare", "policy"),
        ("--labels", "1-2-3", "labels"),
        ("--labels", "many", "labels"),
        ("--labels", "5-1", "labels"),
        ("--settled", "95", "settled"),
        ("--budget", "-1", "budget"),
    ],
)
def test_bad_settings_create_nothing(folder: Path, option: str, value: str, parameter: str) -> None:
    error = CliRunner().invoke(app, [*arguments(folder), option, value]).exception
    assert isinstance(error, CrowdrankError)
    assert error.parameter == parameter
    assert not (folder / "judging.db").exists()


@pytest.mark.parametrize("changes", [{"pairs": "missing.csv"}, {"texts": "rules.md"}, {"guidelines": "missing.md"}])
def test_nothing_is_created_if_a_file_cannot_be_read(folder: Path, changes: dict[str, str]) -> None:
    error = CliRunner().invoke(app, arguments(folder, **changes)).exception
    assert isinstance(error, InputError)
    assert not (folder / "judging.db").exists()
    assert CliRunner().invoke(app, arguments(folder)).exit_code == 0


def test_a_second_project_of_the_same_name_is_refused(folder: Path) -> None:
    assert CliRunner().invoke(app, arguments(folder)).exit_code == 0
    error = CliRunner().invoke(app, arguments(folder)).exception
    assert isinstance(error, CrowdrankError)
    assert error.kind == "name-taken"
