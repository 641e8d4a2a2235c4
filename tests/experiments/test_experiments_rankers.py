"""The experiments of rankers: what a ranker may see, what is said of the figures, and the figures on public data."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank import read_features, read_judgments, simulate
from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation.comparison import Comparison, compare, compare_evaluations
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.judgments.features import Features
from experiments import get_experiment
from experiments.base import Experiment, Table
from experiments.crowd_rankers import (
    BASELINE,
    CLAIMED,
    LEARNERS,
    MEASURES,
    RIVAL,
    Setting,
    claim_table,
    dl20_setting,
    generated_setting,
    mslr_setting,
    possible,
    setting_table,
    some_told,
    verdict,
)
from experiments.lessons import over_repeats, query_folds
from experiments.rankers import LEARNERS as GIVEN
from experiments.rankers import (
    TREE_RIDGES,
    Fold,
    across,
    folds,
    given_labels,
    mq2008,
    named,
    query_numbers,
    tree_features,
)

TREES: Mapping[str, Any] = {"n_estimators": 8, "num_leaves": 6, "min_child_samples": 5, "patience": 5}


@pytest.fixture(scope="module")
def documents() -> Features:
    world = simulate(queries=60, documents=10, features=8, labels=1, honeypots=0, random_state=2)
    return read_features(world.features.assign(grade=world.documents["grade"]))


@pytest.fixture(scope="module")
def tiny() -> Setting:
    """A generated world with two crowds and small trees."""
    sizes = {"queries": 30, "documents": 8, "features": 8, "random_state": 5}
    return replace(generated_setting([0, 1], sizes), trees=TREES)


def strict(table: Table) -> dict[str, Any]:
    """The table as JSON and back; NaN is refused."""
    found: dict[str, Any] = json.loads(json.dumps(Experiment("one", (table,), ()).to_dict(), allow_nan=False))
    return found


# Given labels.


def test_letor_folds_test_every_part_once_and_share_nothing() -> None:
    part = np.repeat([2, 0, 1, 3, 4], 3)
    splits = folds(part)
    assert sorted(np.concatenate([fold.test for fold in splits]).tolist()) == list(range(15))
    for fold in splits:
        rows = np.concatenate([fold.train, fold.validate, fold.test])
        assert sorted(rows.tolist()) == list(range(15))
    # The published folds: the third learns from S3, S4, S5, stops by S1 and tests S2.
    third = splits[2]
    assert [set(part[rows]) for rows in (third.train, third.validate, third.test)] == [{2, 3, 4}, {0}, {1}]


def test_every_ranker_and_peer_learns(documents: Features) -> None:
    splits = folds(query_numbers(documents) % 5)
    for name in ("lightgbm", "xgboost", "lambdamart", "gls", "rd", "ensemble", "tree-features"):
        score = across(GIVEN[name], documents, splits[:1])
        test = splits[0].test
        assert documents.grade is not None
        assert np.corrcoef(score[test], documents.grade[test])[0, 1] > 0.4, name
        assert np.isnan(np.delete(score, test)).all()


def test_the_ridge_over_trees_is_chosen_by_validation(documents: Features) -> None:
    fold = folds(query_numbers(documents) % 5)[0]
    train, validate = (documents.take(rows) for rows in (fold.train, fold.validate))
    assert validate.grade is not None
    chosen = set()
    for grade in (validate.grade, 4 - validate.grade):
        ranker = tree_features().fit(train, train.grade, eval_set=(validate, grade, None))
        n_trees = 0 if ranker.tree_features_ is None else ranker.tree_features_.n_trees_
        assert len(ranker.history_) >= 4 * len(TREE_RIDGES)
        chosen.add((n_trees, ranker.mu_))
    assert len(chosen) == 2  # other validation grades, another number of trees or ridge


def test_grades_of_test_queries_are_not_seen(documents: Features) -> None:
    fold = folds(query_numbers(documents) % 5)[0]
    assert documents.grade is not None
    other = replace(documents, grade=documents.grade.copy())
    assert other.grade is not None
    other.grade[fold.test] = 4 - other.grade[fold.test]
    for name in ("lightgbm", "xgboost", "lambdamart", "gls"):
        np.testing.assert_array_equal(across(GIVEN[name], documents, [fold]), across(GIVEN[name], other, [fold]))


def test_a_peer_that_is_not_installed_is_left_out_and_told(
    documents: Features, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    splits = folds(query_numbers(documents) % 5)
    table = given_labels(["xgboost", "lightgbm", "lambdamart"], documents, splits)
    assert [row["run"] for row in table.rows] == ["lightgbm", "lambdamart"]
    assert "xgboost was left out: XGBoost is not installed; pip install xgboost-cpu" in " ".join(table.notes)
    assert any(note.startswith("By nDCG@10, lambdamart is ") for note in table.notes)
    strict(table)
    with pytest.raises(InputError, match="no ranker can learn here"):
        given_labels(["xgboost"], documents, splits)


def test_runs_are_named_or_refused() -> None:
    assert named(None, GIVEN) == list(GIVEN)
    assert named(["gls", "gls"], GIVEN) == ["gls"]
    with pytest.raises(UsageError, match="There is no ranker 'gda' in this experiment; it has: lightgbm, xgboost"):
        named(["gda"], GIVEN)
    with pytest.raises(UsageError, match="There is no ranker to run"):
        named([], LEARNERS)


@pytest.mark.parametrize("name", ["rankers", "crowd-rankers"])
def test_a_wrong_run_is_told_before_data_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROWDRANK_DATA", raising=False)
    with pytest.raises(UsageError, match="There is no ranker 'magic'"):
        get_experiment(name)(["magic"])
    with pytest.raises(UsageError, match="Set CROWDRANK_DATA"):
        get_experiment(name)(None)


# A crowd's labels.


def test_only_the_control_sees_expert_grades(tiny: Setting) -> None:
    fold = tiny.splits[0][0]
    assert tiny.features.grade is not None
    reversed_grades = replace(tiny, features=replace(tiny.features, grade=4 - tiny.features.grade))
    for name in LEARNERS:
        if name == "family-mean":
            continue
        one, other = (LEARNERS[name](setting.lesson(0, fold)) for setting in (tiny, reversed_grades))
        assert np.array_equal(one, other) == (name != "expert-labels"), name


def test_judgments_of_test_queries_are_not_seen(tiny: Setting) -> None:
    fold = tiny.splits[0][1]
    lesson = tiny.lesson(0, fold)
    tested = set(tiny.features.take(fold.test).query.to_pylist())
    assert tested.isdisjoint(lesson.judgments.queries.to_pylist())
    assert lesson.judgments.n_items == len(fold.train) + len(fold.validate)
    for labels in (lesson.labels("average", "relevance"), lesson.random_label()):
        np.testing.assert_array_equal(np.flatnonzero(np.isnan(labels)), fold.test)


def test_labels_stand_at_their_documents(tiny: Setting) -> None:
    lesson = tiny.lesson(0, tiny.splits[0][0])
    frame = lesson.judgments.frame
    grades = frame.groupby(["query", "document"])["grade"].agg(["mean", set])
    mean, drawn = lesson.labels("average", "relevance"), lesson.random_label()
    pairs = list(zip(tiny.features.query.to_pylist(), tiny.features.document.to_pylist(), strict=True))
    for row in lesson.fold.train:
        assert mean[row] == pytest.approx(grades.loc[pairs[row], "mean"])
        assert drawn[row] in grades.loc[pairs[row], "set"]
    assert (drawn[lesson.fold.train] != mean[lesson.fold.train]).any()


def test_family_means_need_families(tiny: Setting) -> None:
    runs, notes = possible(tiny, ["average", "family-mean"])
    assert runs == ["average"]
    assert notes == ["There are no families here, so that family-mean is left out."]
    with pytest.raises(UsageError, match="family-mean has no place on generated"):
        possible(tiny, ["family-mean"])
    world = simulate(source=tiny.features, labels=3, families=2, random_state=1)
    crowd = read_judgments(world.judgments)
    grouped = replace(tiny, crowds=(crowd, crowd))
    assert possible(grouped, ["family-mean"]) == (["family-mean"], [])
    assert np.ptp(LEARNERS["family-mean"](grouped.lesson(0, tiny.splits[0][0]))) > 0


def test_a_table_counts_every_query_once(tiny: Setting) -> None:
    calls: list[str] = []
    table = setting_table(replace(tiny, once=("gls",)), ["average", "gls", "expert-labels"], tell=calls.append)
    assert table.comparison is not None
    assert table.comparison.baseline == "average"
    assert table.comparison.evaluations["average"].counts.queries == 30
    assert len(calls) == 2 * 5 * 2 + 5  # gls has one repeat
    assert table.row("expert-labels")["nDCG@10"] > 0.5
    strict(table)


def test_few_queries_are_described_and_not_tested(tiny: Setting) -> None:
    half = [Fold(tiny.splits[0][0].train, np.array([], np.int64), tiny.splits[0][0].test)]
    few = replace(tiny, splits=(half, half), descriptive=True)
    table = setting_table(few, [BASELINE, "gls", CLAIMED])
    assert table.comparison is None
    assert [row["run"] for row in table.rows] == [BASELINE, "gls", CLAIMED]
    assert list(table.row("gls")) == ["run", *(f"{m}{sd}" for m in MEASURES for sd in ("", " sd"))]
    assert table.row("gls")["nDCG@10"] > 0.5
    assert table.row("gls")["nDCG@10 sd"] > 0
    assert "6 queries" in table.notes[0]  # those that are tested, not those that were learned from
    assert not verdict(table)
    assert not claim_table([table])
    strict(table)


def test_repeats_are_averaged_query_by_query() -> None:
    gold = pd.DataFrame({"query": [1, 1, 2, 2, 3], "document": [1, 2, 1, 2, 1], "grade": [1, 0, 0, 1, 0]})
    right, wrong = (evaluate(gold.assign(score=sign * gold["grade"]), gold, "RR") for sign in (1, -1))
    both = over_repeats([right, wrong])
    np.testing.assert_array_equal(both.values("RR"), [0.75, 0.75, np.nan])
    assert both.means == {"RR": 0.75}


def test_folds_of_dl20_do_not_share_queries() -> None:
    query = np.repeat(np.arange(12), 3)
    for fold in query_folds(query, seed=1):
        assert set(query[fold.train]).isdisjoint(query[fold.test])
        assert len(fold.train) + len(fold.test) == len(query)
        assert not len(fold.validate)


def shifted(by: float, spread: float) -> Table:
    """The claim's run above LambdaMART on the average by so much, more or less."""
    rng = np.random.default_rng(0)
    gold = pd.DataFrame({"query": np.repeat(np.arange(200), 2), "document": [1, 2] * 200, "grade": [1, 0] * 200})
    base = evaluate(gold.assign(score=0.0), gold, ["nDCG@10"])
    values = base.values("nDCG@10") + by + spread * rng.standard_normal(200)
    column = base.per_query.set_column(1, "nDCG@10", [values])
    other = replace(base, per_query=column, means={"nDCG@10": float(values.mean())})
    runs = {"average": base, "gda-pairwise-mart": other}
    rows = tuple({"run": run, **one.means} for run, one in runs.items())
    return Table("one", "One", rows, (), compare_evaluations(runs))


@pytest.mark.parametrize(
    ("by", "spread", "word"),
    [(0.05, 0.1, "confirmed"), (-0.05, 0.1, "refuted"), (0.0, 0.01, "refuted"), (0.0, 0.5, "undecided")],
)
def test_the_claim_is_judged_by_the_figures(by: float, spread: float, word: str) -> None:
    table = shifted(by, spread)
    (sentence,) = verdict(table)  # there is no rival in it
    assert f"gda-pairwise-mart is {word} here" in sentence
    (claim,) = claim_table([table, Table("none", "None", ())])
    assert claim.notes == (f"That gda-pairwise-mart beats LambdaMART on the average label is {word} in 1 of 1.",)
    assert not verdict(Table("none", "None", ()))
    assert not claim_table([])


def test_the_rival_is_told_too(tiny: Setting) -> None:
    table = setting_table(replace(tiny, crowds=tiny.crowds[:1], splits=tiny.splits[:1]), [BASELINE, RIVAL, CLAIMED])
    assert f"By nDCG@10, {CLAIMED} is " in table.notes[-2]
    assert f" than {RIVAL} beyond chance: " in table.notes[-2]
    assert table.notes[-1].startswith("Only some runs were asked for")
    assert not some_told(list(LEARNERS), table)
    (claim,) = claim_table([table])
    assert claim.rows[0][RIVAL] == table.row(RIVAL)["nDCG@10"]
    assert f"It beats {RIVAL} beyond chance in " in claim.notes[0]
    strict(claim)


def test_a_comparison_of_evaluations_is_that_of_the_runs() -> None:
    rng = np.random.default_rng(3)
    gold = pd.DataFrame({"query": np.arange(60) // 6, "document": np.arange(60), "grade": rng.integers(0, 3, 60)})
    runs = {name: gold.assign(score=rng.random(60) + weight * gold["grade"]) for name, weight in (("a", 0), ("b", 1))}
    whole: Comparison = compare(runs, gold, ["AP", "nDCG@3"], baseline="a")
    again = compare_evaluations(whole.evaluations, baseline="a")
    assert again.to_dict() == whole.to_dict()
    few = evaluate(runs["b"], gold[gold["query"] < 5], ["AP", "nDCG@3"])
    with pytest.raises(UsageError, match="the run 'few' was evaluated with other measures or on other queries"):
        compare_evaluations({"a": whole.evaluations["a"], "few": few})


# On public data.


@pytest.mark.data
def test_ours_does_not_lose_to_lightgbm(data_folder: Path) -> None:
    assert data_folder.is_dir()
    experiment = get_experiment("rankers")(["lightgbm", "lambdamart"])
    table = experiment.table("mq2008")
    assert table.row("lightgbm")["nDCG@10"] == pytest.approx(0.687, abs=0.005)
    assert table.row("lambdamart")["nDCG@10"] == pytest.approx(table.row("lightgbm")["nDCG@10"], abs=0.005)
    assert "784 queries and 15,211 documents were scored." in table.notes
    assert any("lambdamart is no better and no worse than lightgbm" in note for note in table.notes)
    json.dumps(experiment.to_dict(), allow_nan=False)


@pytest.mark.data
def test_the_parts_of_mq2008_share_no_query(data_folder: Path) -> None:
    assert data_folder.is_dir()
    features, part = mq2008()
    frame = pd.DataFrame({"query": features.query.to_pandas(), "part": part})
    assert frame.groupby("query")["part"].nunique().max() == 1
    assert np.bincount(part).tolist() == [2933, 3635, 3062, 2707, 2874]


@pytest.mark.data
def test_mslr_is_described_only(data_folder: Path) -> None:
    assert data_folder.is_dir()
    setting = mslr_setting([0])
    ((fold,),) = setting.splits
    train, test = (setting.features.take(rows) for rows in (fold.train, fold.test))
    assert set(train.query.to_pylist()).isdisjoint(test.query.to_pylist())
    assert (len(train.query.unique()), len(train.query), len(test.query)) == (43, 5000, 5000)
    table = setting_table(setting, ["gls", "expert-labels"])
    assert table.comparison is None
    assert "Descriptive only: 43 queries to learn from" in " ".join(table.notes)
    assert table.row("expert-labels")["nDCG@10"] > 0.25  # a random order has less than .2


@pytest.mark.data
def test_dl20_rankers_are_near_the_prototype(data_folder: Path) -> None:
    assert data_folder.is_dir()
    setting = dl20_setting(1)
    assert np.isnan(setting.features.matrix).mean() > 0.5
    table = setting_table(setting, ["average", "family-mean", "expert-labels"])
    assert table.row("expert-labels")["nDCG@10"] == pytest.approx(0.752, abs=0.03)
    assert table.row("average")["nDCG@10"] == pytest.approx(0.748, abs=0.03)
    assert table.row("family-mean")["nDCG@10"] == pytest.approx(0.758, abs=0.03)
