"""Test the command that creates a project from files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crowdrank.cli.app import app
from crowdrank.errors import CrowdrankError, InputError, UsageError
from crowdrank.service.compare.rankings import list_draws, list_rankings
from crowdrank.service.domain.pairs import DocumentRow, PairRow, count_without_text, list_pairs
from crowdrank.service.domain.projects import get_project
from crowdrank.service.store.database import Database

from .judging import Judging
from .preference_project import Comparing

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
    assert json.loads(done.stdout) == {"project": "jam", "pairs": 2, "documents": 2, "without_text": 1}
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


def test_pairs_without_any_text_are_counted(database: Database) -> None:
    judging = Judging(database, 0)
    judging.add(
        PairRow("q", "title", title="a"),
        PairRow("q", "body", body="a"),
        PairRow("q", "link", url="https://example.org/"),
        PairRow("q", "fields", fields={"price": 1}),
        PairRow("q", "nothing"),
        PairRow("p", "nothing", query_text="a query has a text of its own"),
    )
    with database.read() as connection:
        assert count_without_text(connection, judging.project) == 2


def test_comparisons_with_a_document_without_text_are_counted(database: Database) -> None:
    comparing = Comparing(database, 0)
    comparing.add(
        PairRow("q", "a", body="a", other=DocumentRow("b", title="b")),
        PairRow("q", "a", body="a", other=DocumentRow("empty")),
        PairRow("q", "empty", other=DocumentRow("b", title="b")),
        PairRow("q", "void", other=DocumentRow("empty")),
    )
    with database.read() as connection:
        assert count_without_text(connection, comparing.project) == 3


def test_settings_are_options(folder: Path) -> None:
    options = ["--policy", "ndcg@10", "--labels", "1-5", "--settled", "0.95", "--budget", "100"]
    options += ["--min-information", "0.5", "--honeypot-share", "0.1", "--flag-action", "pause"]
    assert CliRunner().invoke(app, [*arguments(folder), *options]).exit_code == 0
    database = Database(folder / "judging.db")
    with database.read() as connection:
        project = get_project(connection, "jam")
    database.close()
    assert (project.policy, project.settled, project.budget) == ("ndcg@10", 0.95, 100.0)
    assert (project.min_information, project.honeypot_share, project.flag_action) == (0.5, 0.1, "pause")
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
        ("--min-information", "50", "min_information"),
        ("--lease-seconds", "0", "lease_seconds"),
        ("--flag-action", "fire", "flag_action"),
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


def write_rankings(folder: Path, *, missing: bool = False) -> None:
    pairs = [(f"q{query}", f"d{document}") for query in range(4) for document in range(5)]
    lines = [f"{query},{document}\n" for query, document in pairs[missing:]]
    (folder / "pool.csv").write_text("query,document\n" + "".join(lines), encoding="utf-8")
    for name, sign in (("live", 1), ("new", -1)):
        rows = [f"{query} Q0 {document} 0 {sign * place} run\n" for place, (query, document) in enumerate(pairs)]
        (folder / f"{name}.trec").write_text("".join(rows), encoding="utf-8")


def compare_options(folder: Path) -> list[str]:
    runs = f"{folder / 'live.trec'},{folder / 'new.trec'}"
    return ["--policy", "compare", "--runs", runs, "--measure", "P@3", "--pairs-per-draw", "6"]


def test_a_project_that_compares_rankings_has_its_first_draw(folder: Path) -> None:
    write_rankings(folder)
    command = ["new-project", str(folder / "judging.db"), "jam", "--pairs", str(folder / "pool.csv"), "--json"]
    options = [*compare_options(folder), "--labels-from", "expert"]
    done = CliRunner().invoke(app, [*command, *options])
    assert json.loads(done.stdout) == {"project": "jam", "pairs": 20, "documents": 5, "without_text": 20, "drawn": 6}
    database = Database(folder / "judging.db")
    with database.read() as connection:
        project = get_project(connection, "jam")
        assert [one.name for one in list_rankings(connection, project)] == ["live", "new"]
        (progress,) = list_draws(connection, project)
        wanted = [pair for pair in list_pairs(connection, project) if pair.quotas["expert"].target]
    database.close()
    assert (project.policy, project.measure, project.pairs_per_draw) == ("compare", "P@3", 6)
    assert project.quotas == {"human": (0, 0), "llm": (0, 0), "expert": (1, 1)}
    assert (progress.number, progress.n_pairs, len(wanted)) == (1, 6, 6)


@pytest.mark.parametrize("option", ["pool.csv", ""])
def test_documents_of_the_rankings_are_pairs(folder: Path, option: str) -> None:
    write_rankings(folder, missing=True)
    command = ["new-project", str(folder / "judging.db"), "jam", "--json", *compare_options(folder)]
    done = CliRunner().invoke(app, [*command, *(["--pairs", str(folder / option)] if option else [])])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["drawn"] == 6


def test_rankings_that_do_not_fit_create_no_project(folder: Path) -> None:
    write_rankings(folder)
    (folder / "new.trec").write_text("elsewhere Q0 x 0 1 run\n")
    command = ["new-project", str(folder / "judging.db"), "jam", "--pairs", str(folder / "pool.csv")]
    before = sorted(folder.iterdir())
    error = CliRunner().invoke(app, [*command, *compare_options(folder)]).exception
    assert isinstance(error, CrowdrankError)
    assert error.kind == "queries-differ"
    assert sorted(folder.iterdir()) == before
    write_rankings(folder)
    assert CliRunner().invoke(app, [*command, *compare_options(folder)]).exit_code == 0


def test_rankings_need_the_policy_compare_and_it_needs_two(folder: Path) -> None:
    write_rankings(folder)
    one = ["--runs", str(folder / "live.trec")]
    for options, parameter in ((one, "runs"), ([*one, "--policy", "compare"], "policy")):
        error = CliRunner().invoke(app, [*arguments(folder), *options]).exception
        assert isinstance(error, UsageError)
        assert error.parameter == parameter
    assert not (folder / "judging.db").exists()


def test_a_second_project_of_the_same_name_is_refused(folder: Path) -> None:
    assert CliRunner().invoke(app, arguments(folder)).exit_code == 0
    error = CliRunner().invoke(app, arguments(folder)).exception
    assert isinstance(error, CrowdrankError)
    assert error.kind == "name-taken"
