"""Test the policy compare of a project: draws with known probabilities, their answers, and the estimate."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sqlalchemy import update
from typer.testing import CliRunner

import crowdrank
from crowdrank.cli.app import app
from crowdrank.collection.compare_runs import CompareRuns, pool_of_runs
from crowdrank.errors import CrowdrankError, InputError
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.readers.judging_database import ComparisonPlan, read_comparison_plan
from crowdrank.readers.read import read_judgments, read_labels, read_sample
from crowdrank.service.compare.draws import DrawInputs, PoolPair, draw_pairs, read_draw_inputs, write_draw
from crowdrank.service.compare.rankings import (
    decode_table,
    discard_draws,
    list_rankings,
    parse_ranking,
    remove_ranking,
)
from crowdrank.service.domain.answer_fields import Answer
from crowdrank.service.domain.pairs import PairRow
from crowdrank.service.domain.progress import answers_of, file_content, project_status, sampled_answers
from crowdrank.service.model.fits import fit_project
from crowdrank.service.service_errors import Conflict, NotFound
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database, back_up

from .comparison_project import EXPERT, GRADES, HUMAN, MEASURE, N_QUERIES, PAIRS, RUNS, TRUTH, Comparison
from .small_project import add_small_project

pytestmark = pytest.mark.filterwarnings("ignore::crowdrank.errors.DataWarning")


def as_sample(requests: pd.DataFrame) -> pd.DataFrame:
    """Return drawn documents with their true grades."""
    return requests.merge(TRUTH, on=["query", "document"])[["query", "document", "grade", "probability", "draw"]]


def sampled_frame(comparison: Comparison) -> pd.DataFrame:
    with comparison.database.read() as connection:
        answers = sampled_answers(connection, comparison.project)
    frame: pd.DataFrame = answers.select(["query", "document", "grade", "probability", "draw"]).to_pandas()
    return frame.astype({"grade": int}).sort_values(["draw", "query", "document"], ignore_index=True)


def targets(comparison: Comparison, kind: str = "expert") -> list[int]:
    """Return the numbers of labels wanted, of the pairs of which any are."""
    return [row["target"] for row in comparison.rows(schema.quota, kind=kind) if row["target"]]


# Draws, answers and estimates.


def test_estimates_from_database_export_and_files_are_equal(
    database: Database, database_target: str, tmp_path: Path
) -> None:
    comparison = Comparison(database)
    assert comparison.next(EXPERT).leases == ()
    samples, judged, pool = [], None, pool_of_runs(RUNS, MEASURE)
    for number in (1, 2):
        comparison.draw()
        drawn = CompareRuns(RUNS, measure=MEASURE, random_state=7).next(pool, judged, budget=10).frame
        samples.append(as_sample(drawn.assign(draw=number)))
        assert comparison.next(HUMAN).leases == ()
        assert set(comparison.judge_all()) == set(zip(drawn["query"], drawn["document"], strict=True))
        judged = read_judgments(pd.concat(samples).assign(assessor="expert"), grades="0-3")
    comparison.check_invariants()
    sample = pd.concat(samples).sort_values(["draw", "query", "document"], ignore_index=True)
    pd.testing.assert_frame_equal(sampled_frame(comparison), sample, check_dtype=False)
    (row,) = [row for row in comparison.rows(schema.sample_draw) if row["number"] == 1]
    labels = decode_table(row["labels"])
    expected = crowdrank.estimate(RUNS, labels, sample, measure=MEASURE).rows.to_pandas()
    assert expected["difference"][1] != 0
    assert len(read_judgments(database_target)) == 20
    with database.read() as connection:
        (tmp_path / "answers.csv").write_bytes(file_content(answers_of(connection, comparison.project), "csv"))
        (tmp_path / "answers.parquet").write_bytes(file_content(answers_of(connection, comparison.project), "parquet"))
    for expert in (database_target, tmp_path / "answers.csv", tmp_path / "answers.parquet"):
        found = crowdrank.estimate(RUNS, labels, expert, measure=MEASURE)
        assert (found.unit, found.n_expert_grades, found.warnings) == ("document", 20, ())
        pd.testing.assert_frame_equal(found.rows.to_pandas(), expected)
    found = crowdrank.estimate(RUNS, database_target, database_target, measure=MEASURE)
    pd.testing.assert_frame_equal(found.table, expected)
    result = comparison.estimate().result
    assert result is not None
    assert result["expert_grades"] == 20
    assert result["runs"][1]["difference"] == pytest.approx(expected["difference"][1])
    assert 0 < result["runs"][1]["estimate"] < 1
    if database.is_sqlite:
        back_up(tmp_path / "judging.db", tmp_path / "copy.db")
        assert len(read_sample(tmp_path / "copy.db")) == 20


def test_the_plan_of_a_project_is_that_of_the_command(database: Database, database_target: str) -> None:
    comparison = Comparison(database, looks=3, margin=0.5)
    assert read_comparison_plan(database_target) == ComparisonPlan()
    for number in (1, 2):
        comparison.draw()
        comparison.judge_all()
        found = crowdrank.estimate(RUNS, database_target, database_target, measure=MEASURE).to_dict()
        assert (found["watching"]["look"], found["watching"]["looks"], found["watching"]["margin"]) == (number, 3, 0.5)
        assert comparison.estimate().result == found
    options: dict[str, Any] = {"measure": MEASURE, "looks": 4, "margin": 0.25}
    other = crowdrank.estimate(RUNS, database_target, database_target, **options).to_dict()["watching"]
    assert (other["look"], other["looks"], other["margin"]) == (2, 4, 0.25)
    unplanned = crowdrank.estimate(RUNS, database_target, database_target, measure=MEASURE, planned_grades=40)
    assert unplanned.to_dict()["watching"]["looks"] is None


def test_the_command_reads_the_plan_of_a_project(sqlite_database: Database, tmp_path: Path) -> None:
    comparison = Comparison(sqlite_database, looks=3, margin=0.5)
    comparison.draw()
    comparison.judge_all()
    back_up(tmp_path / "judging.db", tmp_path / "copy.db")
    for name, run in RUNS.items():
        run.to_csv(tmp_path / f"{name}.csv", index=False)
    files = [str(tmp_path / name) for name in ("live.csv", "new.csv")]
    known = ["--labels", str(tmp_path / "copy.db"), "--expert", str(tmp_path / "copy.db"), "--measure", MEASURE]
    for words, expected in (([], (1, 3, 0.5)), (["--looks", "5", "--margin", "0.01"], (1, 5, 0.01))):
        done = CliRunner().invoke(app, ["estimate", *files, *known, *words, "--json"])
        assert done.exit_code == 0, done.output
        watching = json.loads(done.stdout)["watching"]
        assert (watching["look"], watching["looks"], watching["margin"]) == expected
    text = CliRunner().invoke(app, ["estimate", *files, *known]).stdout
    assert "Look 1 of 3" in text


def simulated_inputs(comparison: Comparison, labels: pa.Table) -> DrawInputs:
    with comparison.database.read() as connection:
        inputs = read_draw_inputs(connection, comparison.project)
    return replace(inputs, labels=labels)


def drawn_rows(inputs: DrawInputs, seed: int, number: int) -> tuple[pd.DataFrame, DrawInputs, pa.Table]:
    """Draw pairs; return its documents with their grades, the inputs of the next draw, and the labels."""
    draw = draw_pairs(inputs, seed)
    probabilities = dict(draw.pairs)
    pairs = [pair._replace(is_drawn=pair.is_drawn or pair.pair_id in probabilities) for pair in inputs.pairs]
    rows = [
        (pair.query, pair.document, GRADES[pair.query, pair.document], probabilities[pair.pair_id], number)
        for pair in pairs
        if pair.pair_id in probabilities
    ]
    frame = pd.DataFrame(rows, columns=["query", "document", "grade", "probability", "draw"])
    return frame, replace(inputs, number=number + 1, pairs=pairs), draw.labels


def test_the_estimate_over_many_draws_is_unbiased(sqlite_database: Database) -> None:
    comparison = Comparison(sqlite_database, measure="DCG@3", pairs_per_draw=16)
    rng = np.random.default_rng(1)
    biased = np.minimum(TRUTH["grade"] + rng.integers(0, 3, len(TRUTH)), 3)  # above the true grades
    shares = np.full((len(PAIRS), 4), 0.1) + 0.6 * np.eye(4)[biased]
    labels = pa.Table.from_pandas(PAIRS.assign(grade=biased, **{f"p{grade}": shares[:, grade] for grade in range(4)}))
    inputs = simulated_inputs(comparison, labels.select(["query", "document", "grade", "p0", "p1", "p2", "p3"]))
    known = [pair._replace(is_answered=number % 9 == 0) for number, pair in enumerate(inputs.pairs)]
    inputs = replace(inputs, pairs=known)
    truth = {name: evaluate(run, TRUTH, "DCG@3", no_relevant="zero").means["DCG@3"] for name, run in RUNS.items()}
    expected = np.array([truth["live"], truth["new"], truth["new"] - truth["live"]])
    errors, label_errors = [], []
    for seed in range(80):
        first, following, of_pool = drawn_rows(inputs, seed, 1)
        second, _, _ = drawn_rows(following, seed, 2)
        sample = pd.concat([first, second])
        assert not sample.duplicated(["query", "document"]).any()
        assert (first["probability"] == 1).sum() >= 3  # answered before the draw
        live, new = crowdrank.estimate(RUNS, of_pool, sample, measure="DCG@3").rows.to_pylist()
        errors.append(np.array([live["estimate"], new["estimate"], new["difference"]]) - expected)
        label_errors.append(np.array([live["labels_only"], new["labels_only"], new["labels_difference"]]) - expected)
    error = np.std(errors, axis=0, ddof=1) / np.sqrt(len(errors))
    assert np.all(np.abs(np.mean(errors, axis=0)) < 4 * error)
    assert np.abs(np.mean(label_errors, axis=0))[2] > 10 * error[2]


def test_labels_of_the_newest_fit_are_kept_from_the_first_draw_on(sqlite_database: Database, tmp_path: Path) -> None:
    comparison = Comparison(sqlite_database, policy="random", quotas={"human": (1, 1)})
    assert len(comparison.judge_all(HUMAN, d0=0, d1=0, d2=0)) == len(PAIRS)
    fit_project(sqlite_database, comparison.project, "majority")
    comparison.update(policy="compare", quotas={"expert": (1, 1)})
    labels = comparison.draw().labels
    found = read_labels(tmp_path / "judging.db").frame.merge(PAIRS)
    expected = {pair: 0 if pair[1] in ("d0", "d1", "d2") else grade for pair, grade in GRADES.items()}
    assert [expected[row.query, row.document] for row in found.itertuples()] == found["grade"].tolist()
    assert {"p0", "p3"} <= set(found.columns)
    comparison.judge_all()
    fit_project(sqlite_database, comparison.project, "majority")
    comparison.draw()
    stored = {row["number"]: decode_table(row["labels"]) for row in comparison.rows(schema.sample_draw)}
    assert stored[1].equals(labels)
    assert not stored[2].equals(labels)
    assert read_labels(tmp_path / "judging.db").frame["grade"].tolist() == found["grade"].tolist()


def test_pairs_answered_before_are_drawn_with_certainty(sqlite_database: Database) -> None:
    comparison = Comparison(sqlite_database)
    first = pool_of_runs(RUNS, MEASURE)
    query, document = first.query[0].as_py(), first.document[0].as_py()
    comparison.send(EXPERT, Answer("before", grade=2, query=query, document=document))
    draw = comparison.draw()
    assert [probability for _, probability in draw.pairs].count(1.0) >= 1
    assert len(draw.pairs) == 11
    assert (query, document) not in comparison.judge_all()
    frame = sampled_frame(comparison)
    row = frame[(frame["query"] == query) & (frame["document"] == document)]
    assert row[["grade", "probability", "draw"]].to_numpy().tolist() == [[2.0, 1.0, 1.0]]


def test_of_several_labels_of_a_pair_the_median_is_used(sqlite_database: Database, tmp_path: Path) -> None:
    quotas = {"expert": (1, 1), "human": (1, 1)}
    comparison = Comparison(sqlite_database, quotas=quotas, pairs_per_draw=4)
    comparison.draw()
    comparison.judge_all(EXPERT)
    assert comparison.draws()[0].n_complete == 0
    comparison.judge_all(HUMAN, **{f"d{number}": 0 for number in range(6)})
    assert comparison.draws()[0].is_complete
    assert len(sampled_frame(comparison)) == 8
    sample = read_sample(tmp_path / "judging.db")
    assert (len(sample), set(sample.code)) == (4, {0})


def test_a_document_that_cannot_be_judged_has_the_lowest_grade(sqlite_database: Database, tmp_path: Path) -> None:
    comparison = Comparison(sqlite_database, pairs_per_draw=2)
    comparison.draw()
    comparison.judge(EXPERT, kind="cannot-judge")
    comparison.judge(EXPERT, grade=3)
    assert sorted(read_sample(tmp_path / "judging.db").frame["grade"]) == [0, 3]
    assert comparison.estimate().result is not None


# Which pairs are handed out.


def test_settings_keep_the_drawn_pairs(database: Database) -> None:
    comparison = Comparison(database, pairs_per_draw=5)
    assert targets(comparison) == []
    comparison.draw()
    assert targets(comparison) == [1] * 5
    comparison.add(PairRow("new", "new"))
    comparison.update(settled=0.9, quotas={"expert": (2, 2)})
    assert targets(comparison) == [2] * 5
    assert not comparison.project.is_planned
    comparison.update(policy="random", settled=None, quotas={"expert": (1, 2)})
    assert targets(comparison) == [1] * (len(PAIRS) + 1)
    comparison.update(policy="compare")
    assert targets(comparison) == [1] * 5
    comparison.judge_all()
    with database.read() as connection:
        counts = project_status(connection, comparison.project, database.now()).pairs
    assert (counts.complete, counts.unfinished) == (5, 0)
    comparison.check_invariants()
    assert comparison._write(discard_draws) == 1
    assert targets(comparison) == []
    assert len(comparison.rows(schema.answer)) == 5


def test_no_more_pairs_are_drawn_than_the_budget_buys(database: Database) -> None:
    comparison = Comparison(database, quotas={"expert": (1, 1), "human": (2, 2)}, budget=10.0)
    assert len(comparison.draw().pairs) == 3  # a pair costs 3
    comparison._write(discard_draws)
    comparison.update(budget=2.0)
    with pytest.raises(Conflict) as caught:
        comparison.draw()
    assert caught.value.kind == "budget-too-small"


def test_a_draw_whose_judges_are_not_asked_cannot_become_complete(sqlite_database: Database) -> None:
    comparison = Comparison(sqlite_database, pairs_per_draw=4)
    comparison.draw()
    comparison.update(quotas={"human": (1, 1)})
    assert comparison.next(HUMAN).leases == comparison.next(EXPERT).leases == ()
    assert comparison.draws()[0].n_unassignable == 4
    comparison.update(quotas={"expert": (1, 1)})
    assert len(comparison.judge_all()) == 4


def test_honeypots_are_handed_out_beside_the_sample(sqlite_database: Database) -> None:
    comparison = Comparison(sqlite_database, honeypot_share=1.0)
    comparison.add(PairRow("other", "gold", kind="gold", gold_grade=3))
    comparison.draw()
    assert comparison.judge_content(EXPERT).document == "gold"
    assert len(comparison.judge_all()) == 10
    assert len(sampled_frame(comparison)) == 10


def test_gold_and_closed_pairs_are_not_drawn(sqlite_database: Database) -> None:
    comparison = Comparison(sqlite_database, runs={}, pairs_per_draw=1000)
    extended = {
        name: pd.concat([run, pd.DataFrame({"query": ["q0"], "document": ["gold"], "score": [100.0]})])
        for name, run in RUNS.items()
    }
    for name, run in extended.items():
        comparison.set_ranking(name, run)
    comparison.add(PairRow("q0", "gold", kind="gold", gold_grade=3))
    pool = pool_of_runs(extended, MEASURE)
    closed = next(
        document
        for query, document in zip(*map(pa.Array.to_pylist, (pool.query, pool.document)), strict=True)
        if query == "q1"
    )
    comparison.close(queries=["q1"], documents=[closed])
    draw = comparison.draw()
    assert [note.kind for note in draw.notes] == ["pairs-not-drawn"]
    assert len(draw.pairs) == len(pool) - 2
    drawn = set(comparison.judge_all())
    assert not drawn & {("q0", "gold"), ("q1", closed)}


def test_a_draw_is_incomplete_without_all_answers(database: Database, database_target: str) -> None:
    comparison = Comparison(database, pairs_per_draw=4)
    comparison.draw()
    comparison.set_member(EXPERT, is_paused=True)
    (progress,) = comparison.draws()
    assert (progress.n_pairs, progress.n_complete, progress.n_unassignable) == (4, 0, 4)
    assert [warning.kind for warning in progress.warnings] == ["sample-incomplete"]
    comparison.set_member(EXPERT, is_paused=False, relative_information=0.2)
    comparison.update(min_information=0.5)
    assert comparison.draws()[0].n_unassignable == 4
    comparison.update(min_information=None)
    assert comparison.draws()[0].warnings == ()
    left = comparison.lease(EXPERT).content
    comparison.close(pair_ids=[left.pair_id])
    comparison._write(return_all)
    assert len(comparison.judge_all()) == 3
    (progress,) = comparison.draws()
    assert (progress.n_complete, progress.n_closed) == (3, 1)
    assert [warning.kind for warning in progress.warnings] == ["sample-incomplete"]
    assert comparison.estimate().result is None
    assert [note.kind for note in read_sample(database_target).report.notes] == ["sample-incomplete"]
    found = crowdrank.estimate(RUNS, database_target, database_target, measure=MEASURE)
    assert "sample-incomplete" in [warning.kind for warning in found.warnings]
    with pytest.raises(Conflict) as caught:
        comparison.draw()
    assert caught.value.kind == "draw-incomplete"
    comparison.reopen(pair_ids=[left.pair_id], keep_answers=True)
    assert len(comparison.judge_all()) == 1
    assert comparison.draws()[0].is_complete
    assert len(comparison.draw().pairs) == 4
    assert comparison.estimate().result is not None  # of the first draw


def return_all(connection: Any, project: Any) -> None:
    from crowdrank.service.domain.leases import release_leases

    release_leases(connection, project, EXPERT, 0)


# What is refused.


def without_query(run: pd.DataFrame) -> pd.DataFrame:
    return run[run["query"] != "q3"]


def with_others(run: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([run, pd.DataFrame({"query": "q1", "document": ["x", "y"], "score": [90.0, 91.0]})])


@pytest.mark.parametrize(
    ("runs", "settings", "kind"),
    [
        (RUNS, {"policy": "random"}, "other-policy"),
        (RUNS, {"quotas": {"expert": (0, 1)}}, "no-labels-wanted"),
        ({}, {}, "few-rankings"),
        ({"live": RUNS["live"]}, {}, "few-rankings"),
        ({**RUNS, "new": without_query(RUNS["new"])}, {}, "queries-differ"),
        ({**RUNS, "new": with_others(RUNS["new"])}, {}, "pairs-missing"),
        ({name: run.assign(query="x" + run["query"]) for name, run in RUNS.items()}, {}, "nothing-in-common"),
    ],
)
def test_a_draw_that_is_impossible_is_refused(
    sqlite_database: Database, runs: dict[str, pd.DataFrame], settings: dict[str, Any], kind: str
) -> None:
    comparison = Comparison(sqlite_database, runs=runs, **settings)
    with pytest.raises(Conflict) as caught:
        comparison.draw()
    assert caught.value.kind == kind
    assert caught.value.fix is not None
    if kind == "pairs-missing":
        assert "2 documents of ranking 'new'" in caught.value.problem
        assert "'y' of query 'q1'" in caught.value.problem
    assert comparison.rows(schema.sample_draw) == comparison.rows(schema.sampled_pair) == []


def test_documents_below_the_cutoff_and_other_queries_need_no_pairs(sqlite_database: Database) -> None:
    deep = pd.DataFrame({"query": ["q1", "elsewhere"], "document": ["deep", "d0"], "score": [-99.0, 1.0]})
    comparison = Comparison(sqlite_database, runs={name: pd.concat([run, deep]) for name, run in RUNS.items()})
    assert [note.kind for note in comparison.draw().notes] == ["queries-ignored"]
    comparison.judge_all()
    result = comparison.estimate().result
    assert result is not None
    assert result["queries"] == N_QUERIES


def test_draws_end_when_all_pairs_are_drawn(sqlite_database: Database) -> None:
    comparison = Comparison(sqlite_database, pairs_per_draw=1000)
    assert {probability for _, probability in comparison.draw().pairs} == {1.0}
    comparison.judge_all()
    with pytest.raises(Conflict) as caught:
        comparison.draw()
    assert caught.value.kind == "all-drawn"
    truth = {name: evaluate(run, TRUTH, "P@3", no_relevant="zero").means["P@3"] for name, run in RUNS.items()}
    comparison._write(discard_draws)
    comparison.update(measure="P@3")
    comparison.draw()  # all pairs are answered
    result = comparison.estimate().result
    assert result is not None
    assert {row["run"]: row["estimate"] for row in result["runs"]} == pytest.approx(truth)


def test_rankings_and_measure_stay_until_the_draws_are_discarded(sqlite_database: Database) -> None:
    comparison = Comparison(sqlite_database)
    comparison.draw()
    changes: list[Callable[[], object]] = [
        lambda: comparison.set_ranking("new", RUNS["live"]),
        lambda: comparison.set_ranking("third", RUNS["live"]),
        lambda: comparison._write(remove_ranking, "new"),
        lambda: comparison.update(measure="P@5"),
    ]
    for change in changes:
        with pytest.raises(Conflict) as caught:
            change()
        assert caught.value.kind == "draws-exist"
    comparison.update(measure=MEASURE, pairs_per_draw=3)
    comparison._write(discard_draws)
    for change in changes:
        change()
    with sqlite_database.read() as connection:
        assert [one.name for one in list_rankings(connection, comparison.project)] == ["live", "third"]
    with pytest.raises(NotFound):
        comparison._write(remove_ranking, "new")


def test_two_requests_at_the_same_time_make_one_draw(database: Database) -> None:
    comparison = Comparison(database)
    with database.read() as connection:
        inputs = read_draw_inputs(connection, comparison.project)
    draw = draw_pairs(inputs, 1)
    database.write(lambda connection: write_draw(connection, inputs, draw, 1))
    with pytest.raises(Conflict) as caught:
        database.write(lambda connection: write_draw(connection, inputs, draw, 1))
    assert caught.value.kind == "changed-meanwhile"
    assert len(comparison.rows(schema.sample_draw)) == 1


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "no-rows"),
        (b"query,document,score\n", "no-rows"),
        (b"q1 0 d1 2\n", "no-column"),  # qrels
        (b"%PDF-1.7", "other-format"),
        (b"a,b\n1,2\n", "unknown-format"),
        (b"q1 Q0 d1 1 x run\n", None),
        (b"q1 Q0 d1 1 2.5 run\nq1 Q0 d1 2 2.0 run\n", "repeated-document"),
        (b"SQLite format 3\0", None),
    ],
)
def test_files_that_are_no_rankings_are_refused(content: bytes, kind: str | None) -> None:
    with pytest.raises(CrowdrankError) as caught:
        parse_ranking(content, "live")
    assert isinstance(caught.value, InputError)
    assert caught.value.location.source == "ranking 'live'"
    assert kind is None or caught.value.kind == kind


def test_rankings_are_read_as_by_estimate() -> None:
    for content in (
        b"q1 Q0 d1 1 2.5 run\n",
        b"query\tdocument\tscore\nq1\td1\t2.5\n",
        b"qid,docid,relevance\nq1,d1,2.5\n",
    ):
        assert parse_ranking(content, "live").to_pylist() == [{"query": "q1", "document": "d1", "score": 2.5}]


@pytest.mark.parametrize("content", [b"", b"PAR1 damaged PAR1"])
def test_damaged_labels_are_refused(sqlite_database: Database, tmp_path: Path, content: bytes) -> None:
    Comparison(sqlite_database).draw()
    damage = update(schema.sample_draw).values(labels=content)
    sqlite_database.write(lambda connection: connection.execute(damage))
    with pytest.raises(InputError) as caught:
        read_labels(tmp_path / "judging.db")
    assert caught.value.kind == "damaged"


def test_without_a_draw_there_are_no_labels_in_a_database(database: Database, database_target: str) -> None:
    add_small_project(database)
    with pytest.raises(InputError) as caught:
        read_labels(database_target)
    assert caught.value.kind == "no-rows"
    assert "probability" not in read_sample(database_target).extras


def test_a_pool_pair_is_available_while_it_can_be_judged() -> None:
    pair = PoolPair(1, "q", "d", "real", False, False, False)
    assert not pair.is_available
    assert pair._replace(is_answered=True).is_available
    assert not pair._replace(kind="gold", is_open=True).is_available
