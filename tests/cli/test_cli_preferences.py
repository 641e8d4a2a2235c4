"""`crowdrank aggregate --preferences` and `crowdrank assessors --preferences`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crowdrank import GDA, read_preferences, validate
from crowdrank.consensus.trace import trace_preferences
from crowdrank.errors import UsageError
from terminal import Run, crowdrank

LABELS = "query,document,assessor,grade\n" + "".join(
    f"q{query},{document},{judge},{grade}\n"
    for query in range(4)
    for document, grade in (("a", 2), ("b", 1), ("c", 0))
    for judge in "xy"
)
PREFERENCES = "query,left,right,judge,preference\n" + "".join(
    f"q{query},{left},{right},{judge},{answer}\n"
    for query in range(4)
    for left, right, answer in (("a", "b", "left"), ("b", "a", "right"), ("c", "b", "tie"), ("c", "e", "right"))
    for judge in "xz"
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "labels.csv").write_text(LABELS)
    (tmp_path / "p.csv").write_text(PREFERENCES)
    (tmp_path / "gold.csv").write_text("query,document,grade\nq0,a,2\n")
    return lambda *words, **more: crowdrank(*words, cwd=tmp_path, **more)


def test_aggregate_uses_preferences(run: Run, tmp_path: Path) -> None:
    done = run("aggregate", "labels.csv", "--preferences", "p.csv", "-o", "c.csv", "--assessors", "a.csv")
    assert done.returncode == 0, done.stderr
    assert "24 judgments of 12 documents in 4 queries" in done.stdout
    assert "32 preferences between 16 documents in 4 queries by 2 assessors" in done.stdout
    documents = pd.read_csv(tmp_path / "c.csv")
    model = GDA().fit(str(tmp_path / "labels.csv"), preferences=str(tmp_path / "p.csv"))
    assert documents["relevance"].to_numpy() == pytest.approx(model.consensus_.documents["relevance"].to_numpy())
    assert documents["preferences"].sum() == 64
    assert documents.loc[documents["document"] == "e", "judgments"].eq(0).all()
    assessors = pd.read_csv(tmp_path / "a.csv").set_index("assessor")
    assert {"preferences", "sharpness", "position_bias", "ties"} <= set(assessors)
    assert assessors.loc["z", "ties"] == 0.25


def test_aggregate_uses_preferences_alone(run: Run, tmp_path: Path) -> None:
    done = run("aggregate", "--preferences", "p.csv", "-o", "c.parquet", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["judgments"], summary["preferences"]["used"]) == (0, 32)
    assert "grade" not in pd.read_parquet(tmp_path / "c.parquet")
    assert "written to x.csv" in run("aggregate", "--preferences", "p.csv", "-o", "x.csv").stdout


def test_rows_that_are_not_used_are_counted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(PREFERENCES + "q0,a,a,x,left\nq0,a,b,x,tie\n")
    words = ("aggregate", "--preferences", "p.csv")
    refused = run(*words)
    assert refused.returncode == 2
    assert "--preferences-on-bad-rows skip" in refused.stderr
    done = run(*words, "--preferences-on-bad-rows", "skip")
    assert "1 preference skipped (a document against itself); 1 repeated preference" in done.stdout


def test_excluded_ids_are_those_of_judgments_and_preferences(run: Run, tmp_path: Path) -> None:
    labels, preferences = tmp_path / "labels.csv", tmp_path / "p.csv"
    words = ("labels.csv", "--preferences", "p.csv", "--exclude", "ex.txt")
    for ids, expected in (("z", 0), ("y", 0), ("y\nz", 0), ("w", 1)):
        (tmp_path / "ex.txt").write_text(f"{ids}\n")
        exclude = {"exclude": str(tmp_path / "ex.txt")}
        report = validate(labels, preferences=preferences, read_options=exclude, preference_options=exclude)
        kinds = [one.kind for found in report.inputs.values() for one in found.messages]
        assert kinds.count("unknown-excluded") == expected
        done = run("aggregate", *words)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("to exclude") == expected
    for command in ("assessors", "run"):
        more = () if command == "assessors" else ("-o", "r", "--features", "f.csv")
        (tmp_path / "f.csv").write_text(
            "query,document,bm25\n" + "".join(f"q{q},{d},{q}\n" for q in range(4) for d in "abc")
        )
        (tmp_path / "ex.txt").write_text("z\n")
        assert "to exclude" not in run(command, *words, *more).stderr
    assert read_preferences(tmp_path / "p.csv", exclude=["y"]).report.notes[0].kind == "unknown-excluded"


def test_the_report_has_columns_of_preferences(run: Run, tmp_path: Path) -> None:
    done = run("assessors", "labels.csv", "--preferences", "p.csv", "-o", "r.csv")
    assert done.returncode == 0, done.stderr
    assert "Assessors of preferences, the most informative first" in done.stdout
    report = pd.read_csv(tmp_path / "r.csv").set_index("assessor")
    assert report.index.tolist() == ["x", "y", "z"]
    assert report["preferences"].tolist() == [16, 0, 16]
    assert report["judgments"].isna().tolist() == [False, False, True]
    alone = run("assessors", "--preferences", "p.csv", "--json")
    rows = json.loads(alone.stdout)["assessors"]
    assert {row["assessor"] for row in rows} == {"x", "z"}
    assert {"sharpness", "position_bias", "ties"} <= set(rows[0])


def test_preferences_are_used_with_other_options(run: Run, tmp_path: Path) -> None:
    (tmp_path / "features.csv").write_text(
        "query,document,bm25\n" + "".join(f"q{q},{d},{9 - 3 * i}\n" for q in range(4) for i, d in enumerate("abce"))
    )
    words = ("aggregate", "labels.csv", "--preferences", "p.csv", "-o", "c.csv")
    for more in (("--checkpoint", "k"), ("--features", "features.csv"), ("--expert", "gold.csv")):
        done = run(*words, *more)
        assert done.returncode == 0, done.stderr
    expert = run("aggregate", "--preferences", "p.csv", "-o", "c.csv", "--expert", "gold.csv", "--json")
    assert json.loads(expert.stdout)["gold_unjudged"] == 0
    assert pd.read_csv(tmp_path / "c.csv")["expert_graded"].sum() == 1
    assert run("assessors", "--preferences", "p.csv", "--expert", "gold.csv").returncode == 0


def test_a_saved_model_is_updated_with_preferences(run: Run, tmp_path: Path) -> None:
    saved = run("aggregate", "labels.csv", "--preferences", "p.csv", "--save", "m")
    assert saved.returncode == 0, saved.stderr
    (tmp_path / "new.csv").write_text("query,left,right,judge,preference\nq0,a,c,x,left\nq0,a,b,x,tie\n")
    done = run("aggregate", "--update", "m", "--preferences", "new.csv", "-o", "c.csv", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    counts = summary["preferences"]
    assert (counts["used"], counts["added"], counts["replaced"], summary["added"]) == (33, 1, 1, 0)
    assert GDA.load(tmp_path / "m").preferences_ is not None
    both = run("aggregate", "new-labels.csv", "--update", "m", "--preferences", "new.csv")
    assert both.returncode == 2  # there is no such file
    assert run("aggregate", "--update", "m").returncode == 2
    assert run("aggregate", "-m", "dawid-skene", "labels.csv", "--save", "d").returncode == 0
    refused = run("aggregate", "--update", "d", "--preferences", "new.csv")
    assert "--preferences cannot be used by DawidSkene" in refused.stderr


REFUSED = [
    (("-m", "dawid-skene"), "--preferences cannot be used by DawidSkene; use GDA (gda)"),
    (("-s", "estimation=joint"), "--preferences cannot be used by the joint estimation"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_options_that_do_not_go_with_preferences_are_refused(run: Run, words: tuple[str, ...], message: str) -> None:
    done = run("aggregate", "labels.csv", "--preferences", "p.csv", "-o", "c.csv", *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_wrong_files_are_refused(run: Run, tmp_path: Path) -> None:
    assert "give the file as preferences" in run("aggregate", "p.csv").stderr
    assert "give the file as judgments" in run("aggregate", "--preferences", "labels.csv").stderr
    nothing = run("aggregate")
    assert nothing.returncode == 2
    assert "there are no judgments; give JUDGMENTS, or give --preferences" in nothing.stderr
    assert run("assessors").returncode == 2
    assert run("aggregate", "--preferences", "p.csv", "-o", "c.qrels").returncode == 2
    with_experts = run("aggregate", "labels.csv", "--preferences", "p.csv", "--expert", "gold.csv", "--no-calibrate")
    assert with_experts.returncode == 0, with_experts.stderr
    assert not (tmp_path / "c.qrels").exists()


def test_trace_shows_the_effect_of_preferences(run: Run, tmp_path: Path) -> None:
    words = ("trace", "--preferences", "p.csv", "--document", "b", "--query", "q0")
    done = run(*words, "labels.csv", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["steps"]) == 2
    rows = pd.DataFrame(found["preferences"])
    assert sorted(rows["other"]) == ["a"] * 4 + ["c"] * 2
    assert set(rows.loc[rows["other"] == "a", "answer"]) == {"worse"}
    assert (rows.loc[rows["other"] == "a", "pull"] < 0).all()
    assert rows["pull"].abs().is_monotonic_decreasing
    # The derivative is that of the log probability of the answer.
    model = GDA().fit(str(tmp_path / "labels.csv"), preferences=str(tmp_path / "p.csv"))
    shown = trace_preferences(model, "b", "q0").to_pandas()
    assert shown["pull"].to_numpy() == pytest.approx(rows["pull"].to_numpy(), abs=1e-6)
    params, table = model.theta_["preference_params"], model.consensus_.documents.set_index(["query", "document"])
    row = rows[(rows["other"] == "a") & (rows["side"] == "right")].iloc[0]  # a was left and is better
    log_s, offset, log_cut, _ = params[model.consensus_.assessors["assessor"].tolist().index(row["assessor"])]

    def log_probability(relevance: float) -> float:
        x = np.exp(log_s) * (table["relevance"]["q0", "a"] - relevance) + offset
        return float(-np.log1p(np.exp(np.exp(log_cut) - x)))

    at = table["relevance"]["q0", "b"]
    expected = (log_probability(at + 1e-5) - log_probability(at - 1e-5)) / 2e-5
    assert row["pull"] == pytest.approx(expected, abs=1e-4)
    alone = run(*words, "-o", "t.csv")
    assert alone.returncode == 0, alone.stderr
    assert "With 6 preferences: relevance" in alone.stdout
    assert len(pd.read_csv(tmp_path / "t.csv")) == 6


def test_trace_needs_inputs_and_a_known_document(run: Run) -> None:
    assert run("trace", "--document", "b").returncode == 2
    unknown = run("trace", "--preferences", "p.csv", "--document", "z", "--query", "q0")
    assert unknown.returncode == 2
    assert "no judgment" in unknown.stderr
    with pytest.raises(UsageError) as caught:
        trace_preferences(GDA().fit(pd.DataFrame({"document": ["a", "b"], "assessor": "x", "grade": [0, 1]})), "a")
    assert caught.value.kind == "no-preferences"


def test_check_compares_preferences_with_the_model(run: Run) -> None:
    alone = run("check", "--preferences", "p.csv", "--json")
    assert alone.returncode == 0, alone.stderr
    found = json.loads(alone.stdout)
    assert list(found) == ["preferences"]
    rows = {row["statistic"]: row for row in found["preferences"]["statistics"]}
    assert rows["ties"]["number"] == 32
    assert rows["ties"]["observed"] == 0.25
    assert rows["agreement"]["observed"] == 1.0
    both = run("check", "labels.csv", "--preferences", "p.csv", "--json")
    assert both.returncode == 0, both.stderr
    assert {"log_score", "agreement", "assessors", "preferences"} <= set(json.loads(both.stdout))
    assert "0 of 2 assessors of preferences differ" in run("check", "labels.csv", "--preferences", "p.csv").stdout
    assert run("check").returncode == 2
    assert run("check", "--preferences", "p.csv", "-m", "majority").returncode == 2
