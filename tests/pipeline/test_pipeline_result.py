"""The result of a run: saving, loading, labels alone, and earlier results of the same folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import crowdrank
from crowdrank._text import format_p
from crowdrank.assessors.agreement import agreement_table, copies_warning
from crowdrank.errors import Fix, InputError, Message
from crowdrank.evaluation.comparison import holm
from crowdrank.pipeline.result_tables import markdown
from crowdrank.pipeline.run_result import Provenance, RunResult
from crowdrank.simulation.world import World


@pytest.fixture(scope="module")
def world() -> World:
    return crowdrank.simulate(queries=30, documents=8, gold_queries=14, random_state=4)


SETTINGS: dict[str, Any] = {
    "candidates": ["majority", "gls", "linear-gls", "expert-only"],
    "trees": {"n_estimators": 5},
    "linear": {"n_iter": 2, "ridge": 0.1},
}


def test_a_saved_result_is_loaded_as_it_was(world: World, tmp_path: Path) -> None:
    saved = crowdrank.run(world.judgments, world.features, world.gold, output=tmp_path / "run", **SETTINGS)
    loaded = RunResult.load(tmp_path / "run")
    assert loaded.to_dict() == {**saved.to_dict()}
    assert loaded.notes == saved.notes
    assert set(loaded.tables) == set(saved.tables)
    for name, table in saved.tables.items():
        assert loaded.tables[name].column_names == table.column_names
        assert len(loaded.tables[name]) == len(table)
    features = crowdrank.read_features(world.features)
    assert (loaded.ranker.predict(features) == saved.ranker.predict(features)).all()
    assert loaded.rankers is not None
    assert list(loaded.rankers.remappers) == ["linear"]


def test_each_pair_of_candidates_is_tested_once(world: World) -> None:
    result = crowdrank.run(world.judgments, world.features, world.gold, **SETTINGS)
    assert result.rankers is not None
    pairs = [(one.candidate, one.other) for one in result.rankers.contrasts]
    assert len(pairs) == len(set(pairs))
    contrast = result.rankers.contrast(result.chosen, "majority")
    row = result.comparison.set_index("candidate").loc[result.chosen]
    if contrast is None:
        assert result.chosen == "majority"
    else:
        assert contrast.difference == pytest.approx(row["nDCG@10 difference"])
        assert contrast.p == pytest.approx(row["nDCG@10 p"])


def test_p_values_of_the_summary_are_adjusted_for_all_its_tests(world: World) -> None:
    result = crowdrank.run(world.judgments, world.features, world.gold, **SETTINGS)
    assert result.rankers is not None
    assert result.rankers.verdict is not None
    tested = [one for one in result.rankers.contrasts if one.p_holm is not None]
    assert [one.p_holm for one in tested] == pytest.approx(holm([one.p for one in tested]).tolist())
    ours = {one.other for one in tested if one.candidate == result.chosen}
    assert ours >= set(result.rankers.verdict.alternatives)
    text = " ".join(result.summary)
    for one in tested:
        assert f"p {format_p(one.adjusted_p)}" in text or one.candidate == result.chosen
    others = {format_p(one.p) for one in result.rankers.contrasts} - {format_p(one.adjusted_p) for one in tested}
    assert not [p for p in others if f"p {p}" in text]


def test_the_candidate_that_is_best_on_the_test_queries_has_no_p_value(world: World) -> None:
    result = crowdrank.run(world.judgments, world.features, world.gold, **SETTINGS)
    assert result.rankers is not None
    table = result.comparison.set_index("candidate")["nDCG@10 mean"]
    (text,) = [text for text in result.summary if "er mean" in text or "est mean" in text]
    if table.idxmax() == result.chosen:
        assert text == "No other candidate has a higher mean on the test queries."
    else:
        assert text.startswith(f"The highest mean on the test queries is that of {table.idxmax()} ")
        assert ", p " not in text
        assert "interval" not in text


@pytest.mark.usefixtures("no_charts")
def test_without_features_a_run_reports_on_labels(world: World, tmp_path: Path) -> None:
    result = crowdrank.run(world.judgments, expert=world.gold, output=tmp_path / "labels")
    assert result.rankers is None
    assert set(result.tables) == {"documents", "assessors", "pairs", "next"}
    assert result.documents["expert"].notna().any()
    assert result.expert_offset is not None
    with pytest.raises(InputError) as error:
        _ = result.ranker
    assert error.value.kind == "no-ranker"
    page = crowdrank.write_report(tmp_path / "labels").read_text()
    assert 'id="assessors"' in page
    assert 'id="rankers"' not in page
    assert RunResult.load(tmp_path / "labels").rankers is None


def test_earlier_results_are_kept_and_changes_are_listed(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = crowdrank.run(world.judgments, output=folder)
    assert first.changes == ()
    before = (folder / "run.json").read_bytes()
    fewer = world.judgments.iloc[:-100]
    second = crowdrank.run(fewer, output=folder)
    assert f"Judgments: {len(world.judgments):,} before, {len(fewer):,} now." in second.changes
    assert (folder / "previous" / "run.json").read_bytes() == before
    again = crowdrank.run(fewer, output=folder)
    assert again.changes == second.changes
    assert (folder / "previous" / "run.json").read_bytes() == before, "the same run does not replace earlier results"
    assert not (folder / "previous" / "stages").exists()


def test_another_scale_is_a_change(world: World, tmp_path: Path) -> None:
    table = crowdrank.read_judgments(world.judgments)
    crowdrank.run(table, output=tmp_path)
    wider = crowdrank.run(crowdrank.read_judgments(world.judgments, grades="0-5"), output=tmp_path)
    assert "Scale of the judgments: 0-4 before, 0-5 now." in wider.changes


def test_parameters_in_notes_are_those_of_the_command_or_the_call(world: World) -> None:
    note = Message("the scale is not known", "inferred-scale", "note", fixes=(Fix("give it with {}", "grades", "0-3"),))
    result = replace(crowdrank.run(world.judgments), notes=(note,))
    by_command = replace(result, provenance=Provenance(command="crowdrank run"))
    for one, text in ((result, "grades='0-3'"), (by_command, "--grades 0-3")):
        assert text in one.to_dict()["notes"][0]["text"]
        assert text in markdown(one).replace("\\", "")


def test_small_numbers_have_significant_digits(world: World) -> None:
    result = crowdrank.run(world.judgments)
    first = result.tables["next"].slice(0, 1)
    tiny = first.set_column(first.column_names.index("priority"), "priority", pa.array([0.0000123]))
    assert "1.2e-05" in markdown(replace(result, tables={**result.tables, "next": tiny}))


def test_copies_among_assessors_are_a_warning(world: World) -> None:
    frame = world.judgments.drop(columns="honeypot")
    busiest = frame["assessor"].value_counts().index[0]
    copy = frame[frame["assessor"] == busiest].assign(assessor="copy")
    (note,) = (one for one in crowdrank.run(pd.concat([frame, copy])).notes if one.kind == "copies")
    assert note.severity == "warning"
    assert [name in note.problem for name in (busiest, "'copy'")] == [True, True]
    assert note.fixes[-1].parameter == "family_pattern"
    followed = crowdrank.read_judgments(pd.concat([frame, copy]), family_pattern=str(note.fixes[-1].value))
    assert copies_warning(followed) is None
    related = pd.concat([frame.assign(family=frame["assessor"]), copy.assign(family=busiest)])
    for other in (frame, related):
        table = crowdrank.read_judgments(other)
        assert copies_warning(table, agreement_table(table)) is None


def test_the_report_reads_no_file_of_the_run(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a file of the run was read")

    def report(result: RunResult, draft: Path) -> None:
        crowdrank.write_report(result, draft / "report.html", folder=tmp_path / "run")

    monkeypatch.setattr("crowdrank.pipeline.run_result.read_csv", refuse)
    monkeypatch.setattr("crowdrank.pipeline.run_result.read_parquet", refuse)
    monkeypatch.setattr(RunResult, "load", refuse)
    crowdrank.run(world.judgments, output=tmp_path / "run", report=report)
    assert (tmp_path / "run" / "report.html").exists()


def test_copies_are_named_in_groups_with_their_kappa() -> None:
    rng = np.random.default_rng(0)
    grade = rng.integers(0, 3, 60)
    answers = {"a": grade, "b": grade, "c": grade, "x": rng.integers(0, 3, 60)}
    rows = [(f"d{d}", who, one[d]) for who, one in answers.items() for d in range(60)]
    table = crowdrank.read_judgments(pd.DataFrame(rows, columns=["document", "assessor", "grade"]))
    warning = copies_warning(table, agreement_table(table))
    assert warning is not None
    assert "'a', 'b' and 'c' (all of 60 documents, kappa 1.00)" in warning.problem
    assert "'x'" not in warning.problem
