"""Validate several inputs together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank import read_gold, read_judgments, read_partitions
from crowdrank.errors import InputError
from crowdrank.judgments.summary import uncertain_scale_note
from crowdrank.readers.validation import ValidationReport, _mean_judgments, check_expert_grades, validate

LABELS = pd.DataFrame(
    {
        "query": ["1", "1", "1", "2"],
        "document": ["d1", "d2", "d1", "d1"],
        "assessor": list("xxyy"),
        "grade": [0, 4, 1, 2],
    }
)


def kinds(report: ValidationReport) -> dict[str, str]:
    return {message.kind: message.severity for message in report.fit}


def grades(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"query": ["1", "1"], "document": ["d1", "d2"], "grade": [0, 4], **columns})


def test_inputs_that_fit() -> None:
    features = pd.DataFrame({"query": ["1", "1", "2"], "document": ["d1", "d2", "d1"], "bm25": [1.0, 2.0, 1.5]})
    run = pd.DataFrame({"query": ["1", "1"], "document": ["d1", "d2"], "score": [1.0, 2.0]})
    report = validate(LABELS, gold=grades(), features=features, runs=[run, run])
    assert report.is_valid
    assert list(report.inputs) == ["judgments", "gold", "features", "run 1", "run 2"]
    assert report.fit == ()
    assert report.inputs["judgments"].facts["columns"].startswith("query = query, document = document")
    assert report.to_dict()["inputs"]["features"]["facts"]["features"] == "1"


def test_a_feature_that_is_the_grade() -> None:
    documents = [f"d{number}" for number in range(12)]
    values = [number % 3 for number in range(12)]
    gold = pd.DataFrame({"document": documents, "grade": values})
    leak = [1 - 2.0 * value for value in values]
    features = pd.DataFrame({"document": documents, "bm25": range(12), "leak": leak, "flat": 1.0})
    report = validate(gold=gold, features=features)
    assert kinds(report) == {"feature-equals-grade": "warning"}
    assert "'leak'" in report.fit[0].problem


@pytest.mark.parametrize("name", ["gold", "features", "run"])
def test_each_input_alone(name: str, tmp_path: Path) -> None:
    frames: dict[str, Any] = {
        "gold": grades(),
        "features": pd.DataFrame({"document": ["a"], "bm25": [1.0]}),
        "run": pd.DataFrame({"document": ["a"], "score": [1.0]}),
    }
    words = {"runs": [frames[name]]} if name == "run" else {name: frames[name]}
    report = validate(**words)
    assert list(report.inputs) == [name]
    assert report.is_valid


def test_nothing_in_common_and_ids_of_another_form() -> None:
    report = validate(LABELS, gold=grades(query=["01", "01"], document=["D1", " d2"]))
    assert not report.is_valid
    assert kinds(report)["nothing-in-common"] == "error"
    alike = [message for message in report.fit if message.kind == "look-alike-ids"]
    assert [message.severity for message in alike] == ["warning", "warning"]
    assert "'01' and '1'" in alike[0].problem
    assert "'D1' and 'd1'" in alike[1].problem


def test_some_in_common() -> None:
    run = pd.DataFrame({"query": ["1", "1"], "document": ["d1", "z"], "score": [1.0, 2.0]})
    report = validate(LABELS, runs=[run])
    assert kinds(report) == {"partial-overlap": "note"}
    assert "1 of 2 documents of the run (50.0%)" in report.fit[0].problem
    without = validate(gold=grades(), runs=[run])
    assert "expert grades" in without.fit[0].problem


@pytest.mark.parametrize(
    ("values", "options", "severity"),
    [([1, 5], {}, "warning"), ([0, 4], {}, None), ([0, 2], {}, "warning"), ([0, 1], {"grades": "0,1"}, "warning")],
)
def test_scales(values: list[int], options: dict[str, str], severity: str | None) -> None:
    report = validate(LABELS, gold=grades(grade=values), gold_options=options)
    assert kinds(report).get("scales-differ") == severity
    if severity == "warning":
        (message,) = (one for one in report.fit if one.kind == "scales-differ")
        assert message.fixes[1].parameter == "grades"


def test_an_input_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    twice = pd.DataFrame({"document": ["a", "a"], "score": [1.0, 2.0]})
    report = validate(tmp_path / "none.csv", gold=tmp_path / "none.qrels", features=tmp_path / "f.csv", runs=[twice])
    assert [message.kind for message in report.problems] == ["no-file", "no-file", "no-file", "duplicate-documents"]
    assert not report.is_valid


def test_bad_rows_and_notes_of_features(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("document,assessor,grade\na,x,1\nb,,1\nc,x,bad\n")
    (tmp_path / "f.csv").write_text("document,bm25,zero,target\na,1,0,1\nb,2,0,0\n")
    report = validate(tmp_path / "a.csv", features=tmp_path / "f.csv")
    assert [message.kind for message in report.inputs["judgments"].problems] == ["bad-rows", "bad-rows"]
    notes = {message.kind: message.severity for message in report.inputs["features"].messages}
    assert notes == {"grade-like-features": "warning", "constant-features": "note"}


def test_judgments_on_disk(tmp_path: Path) -> None:
    LABELS.to_parquet(tmp_path / "a.parquet")
    report = validate(read_partitions(tmp_path, on_bad_rows="skip"), gold=grades(document=["d1", "D2"]))
    assert kinds(report) == {"partial-overlap": "note", "look-alike-ids": "warning"}


# Expert grades and judgments of the same ids.


def world(n_queries: int = 4) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return judgments of two assessors, who are right three times of four, and expert grades of the documents."""
    rng = np.random.default_rng(3)
    pairs = [(f"q{query}", f"d{query}{document:02d}") for query in range(n_queries) for document in range(1, 26)]
    experts = pd.DataFrame(pairs, columns=["query", "document"]).assign(grade=rng.integers(3, size=len(pairs)))
    votes = [
        experts.assign(assessor=name, grade=np.where(rng.random(len(pairs)) < 0.75, experts["grade"], 1))
        for name in ("ann", "bob")
    ]
    return pd.concat(votes), experts


def warning_kinds(votes: pd.DataFrame, experts: pd.DataFrame) -> list[str]:
    return [message.kind for message in validate(votes, gold=experts).fit if message.severity == "warning"]


def test_expert_grades_of_the_same_ids_agree() -> None:
    votes, experts = world()
    assert warning_kinds(votes, experts) == []
    assert warning_kinds(votes, experts.assign(grade=2 - experts["grade"])) == ["reversed-grades"]
    assert warning_kinds(votes, experts.head(20).assign(grade=2 - experts["grade"])) == []  # too few to tell


def shift_numbers(names: pd.Series[str], step: int) -> list[str]:
    return [f"{name[0]}{int(name[1:]) + step:0{len(name) - 1}d}" for name in names]


@pytest.mark.parametrize(
    ("shift", "words"),
    [
        (lambda experts: experts.assign(document=shift_numbers(experts["document"], 1)), "document id is -1"),
        (lambda experts: experts.assign(document=shift_numbers(experts["document"], -1)), "document id is +1"),
        (lambda experts: experts.assign(grade=np.roll(experts["grade"], 1)), "is -1"),
    ],
)
def test_shifted_ids_of_expert_grades_are_found(shift: Any, words: str) -> None:
    votes, experts = world()
    (message,) = validate(votes, gold=shift(experts)).fit[-1:]
    assert (message.kind, message.severity) == ("shifted-ids", "warning")
    assert words in message.problem


def test_shifted_queries_of_expert_grades_are_found() -> None:
    votes, experts = world(8)
    both = [frame.assign(document="d" + frame["document"].str[-2:]) for frame in (votes, experts)]
    shifted = both[1].assign(query=shift_numbers(both[1]["query"], 1))
    (message,) = validate(both[0], gold=shifted).fit[-1:]
    assert message.kind == "shifted-ids"
    assert "query id is -1" in message.problem


@pytest.mark.parametrize("step", [1, -1])
def test_shifted_grades_are_found_although_neighbors_have_similar_grades(step: int) -> None:
    rng = np.random.default_rng(5)
    pairs = [(f"q{query}", f"{query}-{rng.integers(10**6)}-{place}x") for query in range(8) for place in range(60)]
    experts = pd.DataFrame(pairs, columns=["query", "document"])
    experts["grade"] = rng.integers(4, size=len(pairs) // 2).repeat(2)
    votes = pd.concat(
        experts.assign(assessor=name, grade=(experts["grade"] + rng.integers(-1, 2, len(pairs))).clip(0, 3))
        for name in ("ann", "bob")
    )
    assert warning_kinds(votes, experts) == []
    shifted = experts.assign(grade=np.roll(experts["grade"], step))
    assert np.corrcoef(shifted["grade"], experts["grade"])[0, 1] > 0.4  # by no means chance
    (message,) = validate(votes, gold=shifted).fit
    assert (message.kind, message.severity) == ("shifted-ids", "warning")
    assert f"row of each grade is {-step:+d}" in message.problem


def test_features_that_run_refuses_are_a_warning() -> None:
    _, experts = world(12)
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.1, len(experts))
    features = experts[["query", "document"]].assign(
        bm25=rng.random(len(experts)), verdict=np.exp(experts["grade"] + noise)
    )
    (message,) = validate(gold=experts, features=features).fit
    assert (message.kind, message.severity, message.location.column) == ("leak", "warning", "verdict")


def test_rows_that_cannot_be_used_are_notes_on_request() -> None:
    votes, experts = world()
    votes = votes.assign(grade=np.where(np.arange(len(votes)) == 3, 7, votes["grade"]))
    for on_bad_rows, severity in (("error", "error"), ("skip", "note")):
        report = validate(votes, gold=experts, read_options={"grades": "0-2", "on_bad_rows": on_bad_rows})
        messages = report.inputs["judgments"].messages
        assert [one.severity for one in messages if one.kind == "bad-rows"] == [severity]
        advised = {fix.parameter for one in messages if one.kind == "bad-rows" for fix in one.fixes}
        assert ("on_bad_rows" in advised) == (on_bad_rows == "error")
        assert report.is_valid == (severity == "note")
        assert list(report.inputs) == ["judgments", "gold"]


def test_expert_grades_of_other_documents_are_found() -> None:
    votes, experts = world()
    other = experts.assign(grade=np.random.default_rng(9).permutation(experts["grade"]))
    assert warning_kinds(votes, other) == ["experts-disagree"]
    judgments, gold = read_judgments(votes), read_gold(other)
    assert [message.kind for message in check_expert_grades(gold, judgments)] == ["experts-disagree"]


def test_scales_that_begin_differently_are_a_warning() -> None:
    votes, experts = world()
    assert warning_kinds(votes, experts.assign(grade=experts["grade"] + 1)) == ["scales-differ"]
    assert warning_kinds(votes, experts[experts["grade"] > 0]) == ["scales-differ"]
    assert warning_kinds(votes, experts[experts["grade"] < 2]) == ["scales-differ"]


def test_numbers_of_named_grades_are_no_other_scale() -> None:
    votes, experts = world()
    named = votes.assign(grade=votes["grade"].map({0: "Bad (0)", 1: "Fair (1)", 2: "Good (2)"}))
    assert validate(named, gold=experts).fit == ()
    assert warning_kinds(named, experts.assign(grade=experts["grade"] + 1)) == ["scales-differ"]


def test_warnings_about_judgments_that_nothing_can_check() -> None:
    votes, _ = world()
    alone = validate(votes[votes["assessor"] == "ann"])
    assert [message.kind for message in alone.warnings] == ["one-assessor"]
    by_ann = (votes["assessor"] == "ann").to_numpy()
    apart = validate(pd.concat([votes[by_ann].head(50), votes[~by_ann].tail(50)]))
    assert [message.kind for message in apart.warnings] == ["no-overlap"]
    assert (apart.is_valid, apart.to_dict()["warnings"]) == (True, 1)
    stray = pd.concat([votes] * 10).assign(assessor=np.repeat(list("abcdefghij"), 200))
    stray = pd.concat([stray, pd.DataFrame({"query": "q0", "document": "d001", "assessor": ["z"], "grade": [9]})])
    assert [message.kind for message in validate(stray).warnings] == ["rare-grades"]
    assert validate(stray, read_options={"grades": "0-9"}).warnings == []


def test_swapped_queries_and_documents_are_noticed() -> None:
    labels = pd.DataFrame(
        {"docid": ["q", "q", "q", "r"], "qid": ["a", "b", "b", "c"], "worker": [1, 1, 2, 1], "grade": 1}
    )
    (warning,) = (one for one in validate(labels).inputs["judgments"].messages if one.severity == "warning")
    assert warning.kind == "one-document-per-query"
    (fix,) = warning.fixes
    assert (fix.parameter, fix.value) == ("columns", "query=docid,document=qid")
    for right in (labels.rename(columns={"docid": "qid", "qid": "docid"}), labels.drop(columns="qid"), labels[:1]):
        messages = validate(right).inputs["judgments"].messages
        assert "one-document-per-query" not in [message.kind for message in messages]


def test_a_long_list_of_unused_grades_is_cut() -> None:
    labels = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [0, 100]})
    (note,) = (one for one in validate(labels).inputs["judgments"].messages if one.kind == "inferred-scale")
    assert "91 more" in note.problem
    assert len(note.problem) < 150


def test_ids_that_are_words_for_blanks_and_roles_that_may_be_swapped() -> None:
    votes, _ = world()
    blank = validate(votes.assign(document=votes["document"].replace("d001", "NaN")))
    assert [message.kind for message in blank.warnings] == ["blank-like-ids"]
    swapped = validate(votes.rename(columns={"document": "assessor", "assessor": "document"}))
    (note,) = [message for message in swapped.inputs["judgments"].messages if message.kind == "few-documents"]
    assert note.fix is not None
    assert note.fix.value == "document=assessor,assessor=document"


def test_many_different_grades_may_be_scores() -> None:
    votes, _ = world()
    scores = votes.assign(grade=np.arange(len(votes)) % 40)
    assert [message.kind for message in validate(scores).warnings] == ["many-grades"]
    assert validate(scores, read_options={"grades": "0-39"}).warnings == []
    tens = votes.assign(grade=np.arange(len(votes)) % 11)
    assert validate(tens).warnings == []


def test_fixes_of_bad_rows_are_fields() -> None:
    votes, _ = world()
    (problem,) = validate(votes.assign(grade=votes["grade"].astype(float).replace(2.0, 1.5))).problems
    assert [fix.parameter for fix in problem.fixes] == [None, "grades", "on_bad_rows"]


def test_a_few_grades_above_all_others_make_a_scale_uncertain() -> None:
    labels = pd.DataFrame({"document": range(3000), "assessor": "x", "grade": np.arange(3000) % 3})
    assert uncertain_scale_note(read_judgments(labels)) is None
    labels.loc[:1, "grade"] = [3, 4]
    message = uncertain_scale_note(read_judgments(labels))
    assert message is not None
    assert (message.kind, message.severity, message.fixes[0].parameter) == ("rare-grades", "warning", "grades")
    assert uncertain_scale_note(read_judgments(labels, grades="0-4")) is None
    unjudged = labels.assign(grade="?")
    assert uncertain_scale_note(read_judgments(unjudged, unjudgeable="?", grades=None)) is None


def test_stray_grades_far_above_all_others_are_a_warning_with_a_complete_fix() -> None:
    labels = pd.DataFrame({"document": range(9000), "assessor": "x", "grade": np.arange(9000) % 4})
    labels.loc[:2, "grade"] = [5, 5, 10]
    message = uncertain_scale_note(read_judgments(labels))
    assert message is not None
    assert (message.kind, message.severity) == ("rare-grades", "warning")
    (fix,) = message.fixes
    assert (fix.parameter, fix.value) == ("grades", "0-3")
    assert fix.also is not None
    assert (fix.also.parameter, fix.also.value) == ("on_bad_rows", "skip")
    assert len(read_judgments(labels, grades="0-3", on_bad_rows="skip")) == 8997


def test_mean_judgments_are_shares_of_the_scale_of_each_assessor(tmp_path: Path) -> None:
    path = tmp_path / "scales.csv"
    path.write_text("assessor,grades\nbinary,0-1\ngraded,0-4\n")
    rows = [("a", "binary", 1), ("a", "graded", 2), ("b", "binary", 0), ("b", "graded", 4), ("c", "graded", 4)]
    table = read_judgments(pd.DataFrame(rows, columns=["document", "assessor", "grade"]), scales=path)
    assert _mean_judgments([table.item_ids()], table)[0].tolist() == [0.75, 0.5, 1.0]


def team_files(folder: Path, offset: int, n_documents: int = 100) -> list[Path]:
    """Judgments of two teams of three; the grades of the second team begin at `offset`."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5, n_documents)
    paths = []
    for team, lowest in (("a", 0), ("b", offset)):
        rows = [
            (document, f"{team}{who}", lowest + int(np.clip(truth[document] + rng.integers(-1, 2), 0, 4)))
            for document in range(n_documents)
            for who in range(3)
        ]
        paths.append(folder / f"team-{team}.csv")
        pd.DataFrame(rows, columns=["document", "assessor", "grade"]).to_csv(paths[-1], index=False)
    return paths


def test_files_whose_scales_are_shifted_are_a_warning(tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    paths, few = team_files(tmp_path, offset=1), team_files(tmp_path / "few", offset=1, n_documents=3)
    (warning,) = validate(paths).warnings
    assert warning.kind == "shifted-scales"
    assert [fix.parameter for fix in warning.fixes] == ["scales", "grades"]
    assert [text in warning.problem for text in ("team-a.csv never has 5", "team-b.csv never has 0")] == [True, True]
    assert [note.kind for note in read_judgments(paths).report.notes] == ["shifted-scales"]
    assert validate(paths, read_options={"grades": "0-5"}).warnings == []
    assert validate(paths[0]).warnings == []
    assert "shifted-scales" not in [message.kind for message in validate(few).warnings]
    assert validate(team_files(tmp_path, offset=0)).warnings == []


def test_a_scales_file_can_name_files(tmp_path: Path) -> None:
    paths, scales = team_files(tmp_path, offset=1), tmp_path / "scales.csv"
    scales.write_text("file,grades,maps_to\nteam-a.csv,0-4,0|1|2|3|4\n*/team-b*,1-5,0|1|2|3|4\n")
    table = read_judgments(paths, scales=scales)
    assert [str(table.scales[code]) for code in table.assessor_scale] == ["0-4"] * 3 + ["1-5"] * 3
    assert table.families is None
    assert table.report.notes == ()
    both = pd.concat(map(pd.read_csv, paths)).assign(assessor="ann").drop_duplicates(["document"])
    both[:50].to_csv(paths[0], index=False)
    both[50:].assign(grade=lambda rows: rows["grade"] + 1).to_csv(paths[1], index=False)
    with pytest.raises(InputError, match=r"'ann' has the scale 0-4 in .*team-a.csv and 1-5 in"):
        read_judgments(paths, scales=scales)
