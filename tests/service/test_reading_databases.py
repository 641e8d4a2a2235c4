"""Test that commands and readers take a database of the service in place of a file."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from crowdrank.cli.app import app
from crowdrank.collection.pool import Pool
from crowdrank.collection.requests import ledger_path
from crowdrank.errors import InputError, UsageError
from crowdrank.judgments.table import UNJUDGEABLE
from crowdrank.readers.judging_database import (
    EARLIER_GENERATION_REASON,
    TRAINING_PAIR_REASON,
    DatabaseAddress,
    find_database,
)
from crowdrank.readers.read import read_gold, read_judgments
from crowdrank.service.domain.pairs import PairRow
from crowdrank.service.store.database import Database
from crowdrank.service.store.migrations import upgrade

from .judging import Judging
from .small_project import GRADES, START, add_small_project


@pytest.fixture
def judged(database: Database, database_target: str) -> str:
    add_small_project(database)
    return database_target


def test_the_answers_of_a_project_are_judgments(judged: str) -> None:
    table = read_judgments(judged)
    assert table.scale.names == tuple(GRADES)
    assert not table.report.guessed
    assert dict(table.report.skipped) == {EARLIER_GENERATION_REASON: 1, TRAINING_PAIR_REASON: 1}
    assert table.report.rows == 6
    assert table.assessors.to_pylist() == ["ann", "bob", "gpt_p1"]
    query, document = (one.to_pylist() for one in table.item_ids())
    assert list(zip(query, document, strict=True)) == [("q1", "d1"), ("q2", "d1")]
    assert table.grade.tolist() == [2, UNJUDGEABLE, 1, 2]
    assert table.families is not None
    assert table.assessor_family is not None
    assert table.families.to_pylist() == ["gpt"]
    assert table.assessor_family.tolist() == [-1, -1, 0]
    assert table.extras["cost"].tolist() == [1.0, 5.0, 0.01, 1.0]
    assert table.extras["duration"][[0, 3]].tolist() == [2.5, 1.0]
    assert np.isnan(table.extras["duration"][[1, 2]]).all()
    assert table.report.units["duration"] == "seconds"
    assert table.extras["time"][0] == np.datetime64(START, "ms")
    assert table.extras["honeypot"].tolist() == [-2, -2, -2, 2]
    assert table.has_soft_labels
    assert [table.extras[name][2] for name in table.scale.share_names] == [0.25, 0.5, 0.25]
    assert np.isnan(table.extras["p0"][[0, 1, 3]]).all()


def test_a_path_object_is_read_too(judged: str) -> None:
    assert len(read_judgments(Path(judged))) == 4
    assert len(read_judgments([judged])) == 4


def test_the_users_scale_and_answers_come_first(judged: str) -> None:
    assert read_judgments(judged, grades="Awful,Bad,Fair,Good").scale.names[0] == "Awful"
    with pytest.raises(InputError) as caught:
        read_judgments(judged, unjudgeable="broken link")
    assert caught.value.location.column == "grade"


def test_gold_pairs_and_answers_of_experts_are_expert_grades(database: Database, judged: str) -> None:
    assert read_gold(judged, unjudgeable_as="drop").query.to_pylist() == ["q2", "q2"]
    expert = "SELECT id FROM assessor WHERE kind = 'expert'"
    change = f"UPDATE answer SET kind = 'grade', grade = 1 WHERE assessor_id = ({expert})"
    database.write(lambda connection: connection.execute(text(change)))
    grades = read_gold(judged)
    assert sorted(zip(grades.query.to_pylist(), grades.code.tolist(), strict=True)) == [
        ("q1", 1),
        ("q2", 0),
        ("q2", 2),
    ]
    database.write(lambda connection: connection.execute(text("DELETE FROM answer")))
    database.write(lambda connection: connection.execute(text("UPDATE pair SET kind = 'real', gold_grade = NULL")))
    with pytest.raises(InputError) as caught:
        read_gold(judged)
    assert caught.value.kind == "no-rows"


def test_adjudicated_grades_are_expert_grades(database: Database, database_target: str) -> None:
    project = Judging(database, kinds=("human", "human", "expert"))
    lead, other_lead, expert = project.assessors

    def decide(assessor: int, document: str, grade: int, comment: str | None = "adjudicated") -> None:
        project.answer(assessor, query="q0", document=document, grade=grade, comment=comment)

    def grades() -> dict[str, int]:
        found = read_gold(database_target)
        return dict(zip(found.document.to_pylist(), found.code.tolist(), strict=True))

    project.judge(other_lead, grade=3, comment="adjudicated")  # a judge who happens to write this comment
    decide(lead, "d0", 2)
    decide(lead, "d1", 2, comment=None)
    assert grades() == {"d0": 2}
    decide(expert, "d0", 0, comment=None)
    assert grades() == {"d0": 2}
    project.answer(lead, kind="cannot-judge", query="q1", document="d2", comment="adjudicated")  # not a grade
    project.add(PairRow("q1", "d9", kind="gold", gold_grade=1))
    project.answer(lead, query="q1", document="d9", grade=3, comment="adjudicated")  # its grade is known
    assert grades() == {"d0": 2, "d9": 1}
    decide(lead, "d1", 1)
    decide(other_lead, "d1", 3)
    assert grades() == {"d0": 2, "d1": 3, "d9": 1}, "the latest decision counts"
    project.reopen(documents=["d0"])
    assert grades() == {"d1": 3, "d9": 1}, "a decision of an earlier generation does not count"


def test_the_open_pairs_are_a_pool(database: Database, judged: str) -> None:
    pool = Pool.read(judged, extras=True)
    assert pool.document.to_pylist() == ["d1", "d2", "d1"]
    assert pool.honeypot is not None
    assert pool.honeypot.to_pylist() == [None, None, "Good"]
    assert pool.extras is not None
    assert pool.extras["query_text"].to_pylist() == ["text of q1", "text of q1", "text of q2"]
    database.write(lambda connection: connection.execute(text("UPDATE pair SET is_open = false WHERE gold_grade = 2")))
    assert Pool.read(judged).document.to_pylist() == ["d1", "d2"]


def with_project(target: str, project: str) -> str:
    return f"{target}{'&' if '?' in target else '?'}project={project}"


def test_one_of_several_projects_must_be_named(database: Database, judged: str) -> None:
    add_small_project(database, "tea & coffee")
    for target in (judged, with_project(judged, "jma")):
        with pytest.raises(InputError) as caught:
            read_judgments(target)
        assert caught.value.kind == "no-project"
        assert caught.value.fix is not None
        assert "'jam', 'tea & coffee'" in caught.value.fix.text
    assert len(read_judgments(with_project(judged, "jam"))) == 4
    assert len(read_judgments(Path(with_project(judged, "jam")))) == 4
    with pytest.raises(InputError) as caught:
        read_judgments(with_project(judged, "tea%20%26%20coffee"))
    assert caught.value.kind == "no-rows"


def test_a_database_without_projects_has_no_rows(database: Database, database_target: str) -> None:
    with pytest.raises(InputError) as caught:
        read_judgments(database_target)
    assert caught.value.kind == "no-rows"


def test_a_database_has_no_file_format(judged: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_judgments(judged, format="csv")
    assert caught.value.parameter == "format"


def test_another_sqlite_file_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
    with pytest.raises(InputError) as caught:
        read_judgments(tmp_path / "other.db")
    assert caught.value.kind == "other-format"


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "judging.db"
    database = Database(path)
    upgrade(database)
    database.close()
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(InputError) as caught:
        read_judgments(path)
    assert caught.value.kind == "damaged"


def test_an_unreachable_server_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_judgments(f"postgresql://ann:secret@/judging?host={tmp_path}")
    assert caught.value.kind == "damaged"
    assert "secret" not in str(caught.value)


def test_a_missing_file_with_a_project_is_reported_as_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_judgments(tmp_path / "judging.db?project=jam")
    assert caught.value.kind == "no-file"


def test_pathlib_does_not_change_the_address_of_a_database() -> None:
    for url in ("postgresql://ann@host/judging", "postgresql:///judging", "postgresql://ann@/judging?host=%2Frun"):
        assert find_database(Path(url)) == find_database(url) == DatabaseAddress(url)


def run(*arguments: str) -> dict[str, object]:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    result: dict[str, object] = json.loads(done.stdout)
    return result


def test_commands_take_a_database(judged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("aggregate", judged, "-m", "majority")["judgments"] == 4
    assert run("validate", judged)["valid"] is True
    assert run("collect", "status", judged, "-m", "majority")["labels"] == 4
    requested = run("collect", "next", judged, "--policy", "overlap-2", "--budget", "10", "-o", "requests.csv")
    assert requested["requests"] == 2  # d2 has no answer in its generation
    assert ledger_path(judged).exists()
    assert run("collect", "status", judged, "-m", "majority")["out"] == 2


def test_judgments_are_not_added_to_a_database(judged: str, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("query,document,assessor,grade\nq1,d1,eve,Good\n")
    with pytest.raises(UsageError):
        CliRunner().invoke(app, ["collect", "add", judged, str(tmp_path / "new.csv")], catch_exceptions=False)
    done = CliRunner().invoke(
        app, ["collect", "add", judged, str(tmp_path / "new.csv"), "-o", str(tmp_path / "all.csv")]
    )
    assert done.exit_code == 0, done.output
    assert len(read_judgments(tmp_path / "all.csv", grades=GRADES, unjudgeable="cannot-judge")) == 5
