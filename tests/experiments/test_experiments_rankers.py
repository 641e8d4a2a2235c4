"""The experiments of rankers: what a ranker may see, what is said of the figures, and the figures on public data."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank import Features, read_features, read_judgments, simulate
from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation.comparison import Comparison, compare, compare_evaluations
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.pipeline.candidates import Candidate
from crowdrank.pipeline.run_settings import RunSettings
from experiments import crowd_rankers, get_experiment, rankers
from experiments.base import Experiment, Table, average_repeats, select_names
from experiments.crowd_rankers import (
    BASELINE,
    CLAIM,
    CLAIMED,
    MEASURES,
    claim_table,
    describe_claim,
    descriptive_table,
    dl20_setting,
    generated_setting,
    mslr_setting,
    random_labels,
    setting_table,
)
from experiments.documents import mq2008, query_numbers, query_parts
from experiments.driver import Fold, Setting, rotate_parts, select, train_candidates
from experiments.rankers import given_labels, given_setting

TREES: Mapping[str, Any] = {"n_estimators": 8, "num_leaves": 6, "min_child_samples": 5, "patience": 5}
GIVEN = {candidate.name: candidate for candidate in rankers.CANDIDATES}
CROWD = {candidate.name: candidate for candidate in crowd_rankers.CANDIDATES}


@pytest.fixture(scope="module")
def documents() -> Features:
    world = simulate(queries=60, documents=10, features=8, labels=1, honeypots=0, random_state=2)
    return read_features(world.features.assign(grade=world.documents["grade"]))


@pytest.fixture(scope="module")
def given(documents: Features) -> Setting:
    """Given labels, the first fold only."""
    setting = given_setting(documents, query_numbers(documents) % 5)
    return replace(setting, splits=(setting.splits[0][:1],))


@pytest.fixture(scope="module")
def tiny() -> Setting:
    """Generated documents with two crowds and small trees."""
    sizes = {"queries": 30, "documents": 8, "features": 8, "random_state": 5}
    return replace(generated_setting([0, 1], sizes), settings=RunSettings(trees=TREES))


def scores(setting: Setting, candidate: Candidate, fold: Fold) -> Any:
    """Return the scores of the test rows of a fold."""
    view = setting.view(0, fold)
    return view.ranker(candidate).predict(view.data.matrix(fold.test), view.data.query[fold.test])


def with_grades(setting: Setting, grade: Any) -> Setting:
    return replace(setting, features=replace(setting.features, grade=grade))


def strict(table: Table) -> dict[str, Any]:
    """The table as JSON and back; NaN is refused."""
    found: dict[str, Any] = json.loads(json.dumps(Experiment("one", (table,), ()).to_dict(), allow_nan=False))
    return found


# Given labels.


def test_letor_folds_test_every_part_once_and_share_nothing() -> None:
    part = np.repeat([2, 0, 1, 3, 4], 3)
    splits = rotate_parts(part, crowd=(0, 1, 2, 3), experts=(0, 1, 2, 3))
    assert sorted(np.concatenate([fold.test for fold in splits]).tolist()) == list(range(15))
    for fold in splits:
        assert sorted(np.concatenate([fold.crowd, fold.test]).tolist()) == list(range(15))
        assert set(fold.validation) <= set(fold.crowd)
    # The published folds: the third is trained on S3, S4, S5, validated on S1 and tested on S2.
    third = splits[2]
    assert [set(part[rows]) for rows in (third.crowd, third.validation, third.test)] == [{0, 2, 3, 4}, {0}, {1}]


def test_every_ranker_and_peer_learns(given: Setting) -> None:
    (fold,) = given.splits[0]
    candidates = [one for name, one in GIVEN.items() if name != "lambdarank-net"]
    rankings = train_candidates(given, candidates)
    assert given.features.grade is not None
    for name, score in rankings.scores.items():
        assert np.corrcoef(score[0, fold.test], given.features.grade[fold.test])[0, 1] > 0.4, name
        assert np.isnan(np.delete(score[0], fold.test)).all()


def test_the_ridge_and_the_trees_are_selected_by_validation(given: Setting) -> None:
    (fold,) = given.splits[0]
    grade = given.features.grade
    assert grade is not None
    other = grade.copy()
    other[fold.validation] = 4 - other[fold.validation]
    selected = set()
    for setting in (given, with_grades(given, other)):
        ranker: Any = setting.view(0, fold).ranker(GIVEN["tree-features"])
        selected.add((0 if ranker.tree_features_ is None else ranker.tree_features_.n_trees_, ranker.mu_))
    assert len(selected) == 2  # other validation grades, another number of trees or ridge


def test_grades_of_test_queries_are_not_seen(given: Setting) -> None:
    (fold,) = given.splits[0]
    assert given.features.grade is not None
    grade = given.features.grade.copy()
    grade[fold.test] = 4 - grade[fold.test]
    for name in ("lightgbm", "xgboost", "lambdamart", "gls"):
        one, other = (scores(setting, GIVEN[name], fold) for setting in (given, with_grades(given, grade)))
        np.testing.assert_array_equal(one, other)


def test_a_peer_that_is_not_installed_is_left_out_with_a_note(given: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    table = given_labels(given, [GIVEN[name] for name in ("xgboost", "lightgbm", "lambdamart")])
    assert [row["run"] for row in table.rows] == ["lightgbm", "lambdamart"]
    assert "xgboost was left out: XGBoost is not installed; pip install xgboost-cpu" in " ".join(table.notes)
    assert any(note.startswith("By nDCG@10, lambdamart is ") for note in table.notes)
    strict(table)
    with pytest.raises(InputError) as caught:
        given_labels(given, [GIVEN["xgboost"]])
    assert caught.value.kind == "no-ranker"


def test_runs_are_named_or_refused() -> None:
    assert select_names(None, GIVEN) == list(GIVEN)
    assert [one.name for one in select(rankers.CANDIDATES, ["gls", "gls"])] == ["gls"]
    with pytest.raises(UsageError, match="There is no ranker 'gda' in this experiment; it has: lightgbm, xgboost"):
        select_names(["gda"], GIVEN)
    with pytest.raises(UsageError, match="There is no ranker to run"):
        select_names([], GIVEN)


@pytest.mark.parametrize("name", ["rankers", "crowd-rankers"])
def test_a_wrong_run_is_refused_before_data_are_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROWDRANK_DATA", raising=False)
    with pytest.raises(UsageError, match="There is no ranker 'magic'"):
        get_experiment(name)(["magic"])
    with pytest.raises(UsageError, match="Set CROWDRANK_DATA"):
        get_experiment(name)(None)


# Crowd labels.


def test_only_the_control_sees_expert_grades(tiny: Setting) -> None:
    fold = tiny.splits[0][0]
    assert tiny.features.grade is not None
    reversed_grades = with_grades(tiny, 4 - tiny.features.grade)
    for name, candidate in CROWD.items():
        if name != "family-mean":
            one, other = (scores(setting, candidate, fold) for setting in (tiny, reversed_grades))
            assert np.array_equal(one, other) == (name != "expert-labels"), name


def test_judgments_of_test_queries_are_not_seen(tiny: Setting) -> None:
    fold = tiny.splits[0][1]
    view = tiny.view(0, fold)
    tested = set(tiny.features.take(fold.test).query.to_pylist())
    assert tested.isdisjoint(view.data.judgments.queries.to_pylist())
    assert view.data.labels.n_items == len(fold.crowd)
    for rows, _ in (view.labels("average", "relevance"), random_labels(view)):
        np.testing.assert_array_equal(rows, fold.crowd)


def test_labels_stand_at_their_documents(tiny: Setting) -> None:
    view = tiny.view(0, tiny.splits[0][0])
    grades = view.data.labels.frame.groupby(["query", "document"])["grade"].agg(["mean", set])
    (rows, mean), (_, drawn) = view.labels("average", "relevance"), random_labels(view)
    pairs = list(zip(tiny.features.query.to_pylist(), tiny.features.document.to_pylist(), strict=True))
    for place, row in enumerate(rows):
        assert mean[place] == pytest.approx(grades.loc[pairs[row], "mean"])
        assert drawn[place] in grades.loc[pairs[row], "set"]
    assert (drawn != mean).any()


def test_family_means_need_families(tiny: Setting) -> None:
    short = replace(tiny, splits=(tiny.splits[0][:1],))
    rankings = train_candidates(short, [CROWD["gls"], CROWD["family-mean"]])
    assert list(rankings.scores) == ["gls"]
    assert rankings.notes == ["family-mean was left out: the judgments name no families."]
    crowd = read_judgments(simulate(source=tiny.features, labels=3, families=2, random_state=1).judgments)
    grouped = replace(short, crowds=(crowd,))
    assert np.ptp(scores(grouped, CROWD["family-mean"], tiny.splits[0][0])) > 0


def test_a_table_counts_every_query_once(tiny: Setting) -> None:
    calls: list[str] = []
    candidates = [CROWD[name] for name in ("average", "gls", "expert-labels")]
    table = setting_table(replace(tiny, once=("gls",)), candidates, tell=calls.append)
    assert table.comparison is not None
    assert table.comparison.baseline == "average"
    assert table.comparison.evaluations["average"].counts.queries == 30
    assert len(calls) == 2 * 5 * 2 + 5  # gls has one repeat
    assert table.row("expert-labels")["nDCG@10"] > 0.5
    strict(table)


def test_few_queries_are_described_and_not_tested(tiny: Setting) -> None:
    fold = tiny.splits[0][0]
    half = [Fold(fold.crowd, fold.experts, fold.validation[:0], fold.test)]
    table = descriptive_table(replace(tiny, splits=(half, half)), [CROWD[name] for name in (BASELINE, "gls", CLAIMED)])
    assert table.comparison is None
    assert [row["run"] for row in table.rows] == [BASELINE, "gls", CLAIMED]
    assert list(table.row("gls")) == ["run", *(f"{m}{sd}" for m in MEASURES for sd in ("", " sd"))]
    assert table.row("gls")["nDCG@10"] > 0.5
    assert table.row("gls")["nDCG@10 sd"] > 0
    assert "6 queries" in table.notes[0]  # test queries, not training queries
    assert not describe_claim(table)
    assert not claim_table([table])
    strict(table)


def test_repeats_are_averaged_query_by_query() -> None:
    gold = pd.DataFrame({"query": [1, 1, 2, 2, 3], "document": [1, 2, 1, 2, 1], "grade": [1, 0, 0, 1, 0]})
    right, wrong = (evaluate(gold.assign(score=sign * gold["grade"]), gold, "RR") for sign in (1, -1))
    both = average_repeats([right, wrong])
    np.testing.assert_array_equal(both.values("RR"), [0.75, 0.75, np.nan])
    assert both.means == {"RR": 0.75}


def test_folds_without_validation_do_not_share_queries() -> None:
    query = np.repeat(np.arange(12), 3)
    for fold in rotate_parts(query_parts(query, seed=1), crowd=(0, 1, 2, 3), experts=(0, 1, 2, 3), validation=()):
        assert set(query[fold.crowd]).isdisjoint(query[fold.test])
        assert len(fold.crowd) + len(fold.test) == len(query)
        assert not len(fold.validation)


def shifted(by: float, spread: float, others: Sequence[float] = (0.0, 0.0, 0.0)) -> Table:
    """Return a table in which the claimed run differs from the average by about `by`, other baselines by `others`."""
    rng = np.random.default_rng(0)
    gold = pd.DataFrame({"query": np.repeat(np.arange(200), 2), "document": [1, 2] * 200, "grade": [1, 0] * 200})
    base = evaluate(gold.assign(score=0.0), gold, ["nDCG@10"])
    gains = dict(zip(CLAIM.baselines, (others[0], 0.0, *others[1:]), strict=True)) | {CLAIMED: by}
    runs = {}
    for run, gain in gains.items():
        values = base.values("nDCG@10") + gain + (spread * rng.standard_normal(200) if run == CLAIMED else 0.0)
        column = base.per_query.set_column(1, "nDCG@10", [values])
        runs[run] = replace(base, per_query=column, means={"nDCG@10": float(values.mean())})
    rows = tuple({"run": run, **one.means} for run, one in runs.items())
    return Table("one", "One", rows, (), compare_evaluations(runs, baseline=BASELINE))


@pytest.mark.parametrize(
    ("by", "spread", "others", "word"),
    [
        (0.05, 0.1, (0, 0, 0), "confirmed"),
        (0.05, 0.1, (0, 0, 0.05), "undecided"),  # one of the four baselines is as good
        (0.05, 0.01, (0, 0, 0.06), "refuted"),
        (-0.05, 0.1, (0, 0, 0), "refuted"),
        (0.0, 0.01, (0, 0, 0), "refuted"),
        (0.0, 0.5, (0, 0, 0), "undecided"),
    ],
)
def test_the_claim_is_judged_by_the_figures_of_all_baselines(
    by: float, spread: float, others: Sequence[float], word: str
) -> None:
    table = shifted(by, spread, others)
    sentence, *differences = describe_claim(table)
    assert f"gda-pairwise-mart is {word} here" in sentence
    assert [f" {other}: " in one for other, one in zip(CLAIM.baselines, differences, strict=True)] == [True] * 4
    claim, tests = claim_table([table, Table("none", "None", ())])
    assert claim.notes[0].endswith(f" is {word} in 1 of 1.")
    assert [row["run"] for row in tests.rows] == list(CLAIM.baselines)
    assert tests.row("average")["one difference"] == pytest.approx(by, abs=0.1)
    assert not describe_claim(Table("none", "None", ()))
    assert not claim_table([])
    strict(claim)
    strict(tests)


def test_a_claim_needs_all_baselines(tiny: Setting) -> None:
    once = replace(tiny, crowds=tiny.crowds[:1], splits=tiny.splits[:1])
    assert not claim_table([setting_table(once, [CROWD[name] for name in (BASELINE, CLAIMED)])])
    table = setting_table(once, [CROWD[name] for name in (*CLAIM.baselines, CLAIMED)])
    assert f"By nDCG@10, {CLAIMED} is " in table.notes[-2]
    assert table.notes[-1].startswith("Only some of the runs were trained")
    claim, _ = claim_table([table])
    assert claim.rows[0]["its mean"] == max(table.row(name)["nDCG@10"] for name in CLAIM.baselines)
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
    assert any("lambdamart is not significantly different from lightgbm" in note for note in table.notes)
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
    train, test = (setting.features.take(rows) for rows in (fold.crowd, fold.test))
    assert set(train.query.to_pylist()).isdisjoint(test.query.to_pylist())
    assert (len(train.query.unique()), len(train.query), len(test.query)) == (43, 5000, 5000)
    table = descriptive_table(setting, [CROWD[name] for name in ("gls", "expert-labels")])
    assert table.comparison is None
    assert "Descriptive only: 43 queries for training" in " ".join(table.notes)
    assert table.row("expert-labels")["nDCG@10"] > 0.25  # a random order has less than .2


@pytest.mark.data
def test_dl20_rankers_are_near_the_prototype(data_folder: Path) -> None:
    assert data_folder.is_dir()
    setting = dl20_setting(1)
    assert np.isnan(setting.features.matrix).mean() > 0.5
    table = setting_table(setting, [CROWD[name] for name in ("family-mean", "expert-labels")])
    assert table.row("expert-labels")["nDCG@10"] == pytest.approx(0.752, abs=0.03)
    assert table.row("family-mean")["nDCG@10"] == pytest.approx(0.758, abs=0.03)
