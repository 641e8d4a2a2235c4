"""The experiment on robustness: goals with their figures, and parts that are not repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import robustness, unused_grades
from experiments.robustness import Goal, experiment


def test_parts_in_the_folder_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def goals() -> list[Goal]:
        runs.append("unused-grades")
        return [Goal("right", 0.9, at_least=0.8), Goal("wrong", 0.3, at_most=0.2)]

    monkeypatch.setattr(unused_grades, "goals", goals)
    assert robustness.PARTS["unused-grades"] == "unused_grades"
    first = experiment(only=["unused-grades"], keep=tmp_path).to_dict()
    assert experiment(only=["unused-grades"], keep=tmp_path).to_dict() == first
    assert runs == ["unused-grades"]
    (table,) = first["tables"]
    assert [row["reached"] for row in table["rows"]] == [True, False]
    assert experiment(only=["unused-grades"]).to_dict() == first
    assert len(runs) == 2
