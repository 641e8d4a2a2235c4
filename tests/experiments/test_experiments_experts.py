"""The experiments of learned targets and weights: what may be seen, what is counted, and what is said of the papers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank.errors import UsageError
from crowdrank.evaluation.comparison import Comparison, compare_evaluations
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.label_learning.boosted import BoostedRemapper
from crowdrank.label_learning.linear import LinearRemapper
from experiments import PARTS, expert_lessons, experts, get_experiment, known_assessors
from experiments.base import Experiment, Table
from experiments.command import experiment as run_command
from experiments.command import words
from experiments.expert_claims import CLAIMS, claim_table, headline, judged, verdict
from experiments.expert_lessons import CONTROLS, LEARNERS, MARTS, REMAPPED, folds
from experiments.experts import FEATURE_SETS, Setting, generated_setting, only_groups, setting_tables
from experiments.known_assessors import Source, count_table, generated, split_table
from experiments.quality import Quality
from experiments.rigor import Rigor

SMALL: Mapping[str, Any] = {"n_estimators": 8, "num_leaves": 6, "min_child_samples": 5, "patience": 5}


def strict(*tables: Table) -> dict[str, Any]:
    """The tables as JSON and back; NaN is refused."""
    found: dict[str, Any] = json.loads(json.dumps(Experiment("one", tables, ()).to_dict(), allow_nan=False))
    return found


# Assessors of whom something is known.


@pytest.fixture(scope="module")
def source() -> Source:
    return generated({"queries": 60, "documents": 10, "features": 8, "random_state": 3})


def test_a_split_deals_whole_queries(source: Source) -> None:
    parts = source.split(0)
    query = np.array(source.features.query.to_pylist())
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(query)))
    found = [set(query[rows]) for rows in parts]
    assert [len(part) for part in found] == [24, 24, 12]
    assert not found[0] & found[1]
    assert not (found[0] | found[1]) & found[2]
    assert not np.array_equal(parts[0], source.split(1)[0])


def test_labels_follow_rigor_and_quality(source: Source) -> None:
    rows = source.split(0)[0]
    grade = dict(zip(source.features.document.to_pylist(), source.grades, strict=True))
    table, own, levels = Rigor().simulate_labels(source, rows, seed=1)
    truth = np.array([grade[name] for name in table.frame["document"]])
    assert levels.tolist() == [0, 1, 2, 3]
    assert np.array_equal(table.grade, truth > own)
    assert len(table) == len(rows)
    table, own, levels = Quality().simulate_labels(source, np.arange(len(source.grades)), seed=1)
    truth = np.array([grade[name] for name in table.frame["document"]]) >= 2
    right = [(table.grade == truth)[own == level].mean() for level in levels]
    assert right[0] == 0
    assert right[3] == 1
    assert 0.35 < right[1] < 0.65 < right[2] < 0.9


def test_what_is_learned_is_read_from_the_right_labels(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets and weights that are given, not learned, come out again by level."""

    class Told:
        def __init__(self, mode: str, **settings: Any) -> None:
            self.mode = mode

        def fit(self, labels: Any, *rest: Any, **more: Any) -> Told:
            numbers = np.arange(1, len(labels.names) + 1) if self.mode == "W" else np.arange(len(labels.names))
            self.targets_ = self.weights_ = labels.matrix @ numbers
            return self

    remapper_class: Any = Told
    rigor = Rigor().learn(source, 0, remapper_class)
    assert [rigor[f"rigor {level}"] for level in range(4)] == [1, 2, 3, 4]
    assert rigor["monotone"] == "yes"
    quality = Quality().learn(source, 0, remapper_class)
    assert [quality[f"quality {level:g}"] for level in (0, 0.5, 0.75, 1)] == [1, 2, 3, 4]
    monkeypatch.setitem(known_assessors.REMAPPERS, "linear", remapper_class)
    table = split_table(Quality(), source, ["linear"], seeds=(0, 1))
    assert table.row("linear, mean")["quality 1"] == 4
    counts = count_table(Quality(), [table], ["linear"], 2)
    assert counts.row("generated, linear")["monotone"] == 2
    assert counts.notes == (
        "linear is monotone in 2 of 2 splits of the generated documents, where the goal is 4 of 5.",
    )


@pytest.mark.parametrize("experiment", [Rigor(), Quality()])
def test_both_remappers_have_a_row_for_every_split(source: Source, experiment: Any) -> None:
    calls: list[str] = []
    table = split_table(experiment, source, ["linear", "boosted"], seeds=(0, 1), tell=calls.append)
    assert [row["run"] for row in table.rows] == [
        f"{name}, {which}" for name in ("linear", "boosted") for which in ("split 1", "split 2", "mean")
    ]
    for row in table.rows:
        levels = [row[name] for name in row if name.startswith(experiment.quality)]
        assert len(levels) == 4
        assert (row["monotone"] == "yes") == all(a < b for a, b in pairwise(levels))
    assert len(calls) == 4
    strict(table, count_table(experiment, [table], ["linear", "boosted"], 2))


def test_weights_of_reversed_assessors_fall(source: Source) -> None:
    """The mechanism itself, where the quality is extreme: nothing but reversed and perfect assessors."""
    world = generated({"queries": 150, "documents": 12, "features": 10, "random_state": 3})
    for cls in (LinearRemapper, BoostedRemapper):
        row = Quality().learn(world, 0, cls)
        assert row["quality 0"] < 0.5 * row["quality 1"]


# The comparison.


@pytest.fixture(scope="module")
def tiny() -> Setting:
    setting = generated_setting(0, {"queries": 150, "documents": 10, "features": 8, "random_state": 5})
    return replace(setting, trees=SMALL, n_trees=5)


@pytest.fixture(scope="module")
def quick() -> Any:
    """Remappers of a few steps."""
    patch = pytest.MonkeyPatch()
    for name, cls in (("LinearRemapper", LinearRemapper), ("BoostedRemapper", BoostedRemapper)):
        patch.setattr(expert_lessons, name, lambda mode, cls=cls, **more: cls(mode, n_iter=4, ridge=0.1, learning_rate=0.03, **more))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def tables(tiny: Setting, quick: Any) -> list[Table]:
    assert quick is None
    return setting_tables(tiny, list(LEARNERS))


def test_folds_share_no_part_and_test_every_row_once() -> None:
    part = np.repeat(np.arange(5), 3)
    found = folds(part)
    assert sorted(np.concatenate([fold.test for fold in found]).tolist()) == list(range(15))
    for fold in found:
        rows = np.concatenate([fold.crowd, fold.train, fold.validate, fold.test])
        assert sorted(rows.tolist()) == list(range(15))
        assert len(fold.crowd) == 6


def test_nobody_sees_grades_of_the_test_and_the_crowd_has_none(tiny: Setting, quick: Any) -> None:
    """Whatever the grades of test and crowd documents are, every run gives the same scores."""
    assert quick is None
    fold = folds(tiny.parts[0])[0]
    assert tiny.features.grade is not None
    grade = tiny.features.grade.copy()
    hidden = np.concatenate([fold.test, fold.crowd])
    grade[hidden] = 4 - grade[hidden]
    other = replace(tiny, features=replace(tiny.features, grade=grade))
    lessons = [setting.lesson(0, fold) for setting in (tiny, other)]
    for name in LEARNERS:
        if name != "family-mean":
            one, two = (LEARNERS[name](lesson) for lesson in lessons)
            np.testing.assert_array_equal(one, two, err_msg=name)


def test_experts_reach_no_consensus_and_no_label_feature(tiny: Setting) -> None:
    fold = folds(tiny.parts[0])[0]
    assert tiny.features.grade is not None
    other = replace(tiny, features=replace(tiny.features, grade=4 - tiny.features.grade))
    one, two = (setting.lesson(0, fold) for setting in (tiny, other))
    for family in ("linear", "boosted"):
        np.testing.assert_array_equal(one.known[family].matrix, two.known[family].matrix)
        assert not len(one.known[family].gold_queries)
    crowd = set(np.array(tiny.features.query.to_pylist())[fold.crowd])
    assert set(one.told.queries.to_pylist()) <= crowd
    assert one.judgments.n_items < one.told.n_items  # honeypots are read, and not learned from


def test_trees_are_fitted_to_the_labels_of_the_crowds_documents_only(tiny: Setting) -> None:
    fold = folds(tiny.parts[0])[0]
    lesson = tiny.lesson(0, fold)
    assert lesson.extended(0) is tiny.features
    extended = lesson.extended(3)
    assert extended.matrix.shape[1] == tiny.features.matrix.shape[1] + 3
    for rows, is_same in ((fold.test, True), (fold.crowd[:5], False)):
        changed = tiny.lesson(0, fold)
        labels = changed.labels("average", "relevance").copy()
        labels[rows] = 1 - labels[rows]
        changed.labels = partial(lambda labels, method, target: labels, labels)  # type: ignore[method-assign]
        assert np.array_equal(changed.forest, lesson.forest) is is_same


def test_the_table_has_the_papers_layout_and_every_control(tables: list[Table], tiny: Setting) -> None:
    table, mattered = tables
    assert table.comparison is not None
    runs = [row["run"] for row in table.rows]
    assert runs == [run for run in LEARNERS if run != "family-mean"]
    assert {*MARTS, "rd", *REMAPPED, *CONTROLS} - {"family-mean"} <= set(runs)
    assert {f"mart-{name}" for name in REMAPPED if name.endswith("t")} <= set(runs)
    assert table.comparison.baseline == "majority"
    assert all(table.row("majority")[f"DCG@{k} %"] == 0 for k in (1, 5, 10))
    row, base = table.row("expert-only"), table.row("majority")
    assert row["DCG@10 %"] == pytest.approx(100 * (row["DCG@10"] - base["DCG@10"]) / base["DCG@10"])
    assert table.comparison.evaluations["majority"].counts.queries == 150
    assert row["DCG@10"] > 3  # a random order has about 2
    assert sum("headline" in note for note in table.notes) == len(CLAIMS)
    assert any(" than gls-average beyond chance" in note for note in table.notes)
    assert {row["run"] for row in mattered.rows} == {"boosted-w", "boosted-t"}
    assert all(0 <= row["importance"] <= 1 for row in mattered.rows)
    (claim,) = claim_table([table])
    assert [row["run"] for row in claim.rows] == ["generated, MGBDT", "generated, REMAP"]
    assert claim.rows[0]["baseline"] in MARTS
    assert claim.rows[0]["control"] in CONTROLS
    strict(*tables, claim)


def test_ablation_and_numbers_of_trees(tiny: Setting, quick: Any) -> None:
    assert quick is None
    labels = tiny.lesson(0, folds(tiny.parts[0])[0]).known["linear"]
    assert only_groups(labels, FEATURE_SETS["all"]).names == labels.names
    basic = only_groups(labels, ())
    assert basic.names == (
        "label",
        *(f"{name}_of_{grade}" for grade in (1, 0) for name in ("log_tasks", "share_bad", "honeypots_right")),
    )
    np.testing.assert_array_equal(basic.column("share_bad_of_0"), labels.column("share_bad_of_0"))
    assert any("glad" in name for name in only_groups(labels, ("glad",)).names)
    table = experts.number_table(tiny, numbers=(0, 3))
    assert [row["run"] for row in table.rows] == ["0 trees", "3 trees"]
    assert set(table.rows[0]) == {
        "run",
        *(f"{run}-t, {of} %" for run in ("linear", "boosted") for of in ("validation", "test")),
    }
    assert table.rows[0] | {"run": ""} != table.rows[1] | {"run": ""}
    ablation = experts.ablation_table(tiny)
    assert [row["run"] for row in ablation.rows] == ["linear-w", "linear-t", "linear-w+t"]
    assert len({round(ablation.row("linear-t")[f"{name} %"], 9) for name in FEATURE_SETS}) > 1
    strict(table, ablation)


def drawn(gains: Mapping[str, float], spread: float) -> Comparison:
    """Runs that differ from majority votes by so much in DCG@10, more or less."""
    rng = np.random.default_rng(0)
    gold = pd.DataFrame({"query": np.repeat(np.arange(300), 2), "document": [1, 2] * 300, "grade": [1, 0] * 300})
    base = evaluate(gold.assign(score=0.0), gold, ["DCG@10"])
    runs = {}
    for run, gain in gains.items():
        values = base.values("DCG@10") + gain + spread * rng.standard_normal(300)
        column = base.per_query.set_column(1, "DCG@10", [values])
        runs[run] = replace(base, per_query=column, means={"DCG@10": float(values.mean())})
    return compare_evaluations(runs, baseline="majority")


@pytest.mark.parametrize(
    ("marts", "claimed", "spread", "words"),
    [
        ([0, 0, 0, 0], [0.1, 0.1, 0.1], 0.1, ["confirmed", "confirmed"]),
        ([0, 0, 0.1, 0], [0.1, 0.1, 0.1], 0.01, ["refuted", "refuted"]),  # one baseline is as good
        ([0, 0, 0, 0.2], [0.1, 0.3, 0.3], 0.1, ["refuted", "confirmed"]),  # one of two claimed runs is worse
        ([0, 0, 0, 0], [0.1, 0.01, 0.1], 0.3, ["undecided", "confirmed"]),
    ],
)
def test_the_headline_is_judged_by_the_figures(
    marts: Sequence[float], claimed: Sequence[float], spread: float, words: Sequence[str]
) -> None:
    names = ("boosted-t", "boosted-w+t", "linear-w+t")
    gains = {**dict(zip(MARTS, marts, strict=True)), **dict(zip(names, claimed, strict=True))}
    comparison = drawn(gains, spread)
    assert [headline(comparison, paper) for paper in ("MGBDT", "REMAP")] == words
    few = drawn({"majority": 0.0, "boosted-t": 0.1}, spread)
    assert judged(few, "boosted-t") is None
    assert not verdict(few, "MGBDT")


# The command.


def test_wrong_parts_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROWDRANK_DATA", raising=False)
    with pytest.raises(UsageError, match="The experiment rf10 runs as a whole; --only is for rigor, quality, experts"):
        run_command("rf10", only="mq2008")
    for name in PARTS:
        with pytest.raises(UsageError, match="'magic'"):
            get_experiment(name)(None, only=["magic"])
    with pytest.raises(UsageError, match="There is no remapper 'magic'"):
        get_experiment("rigor")(["magic"])
    assert words("a, b,") == ["a", "b"]


# On public data.


@pytest.mark.data
def test_weights_grow_with_quality_on_mq2008(data_folder: Path) -> None:
    assert data_folder.is_dir()
    experiment = get_experiment("quality")(["linear"], only=["mq2008"], seeds=(0, 1))
    row = experiment.table("mq2008").row("linear, mean")
    assert row["quality 0"] < row["quality 0.5"] < 0.5 * row["quality 1"]
    assert row["rank correlation"] > 0.7
    strict(*experiment.tables)


@pytest.mark.data
def test_dl20_has_judges_of_all_families_and_nist_as_experts(data_folder: Path) -> None:
    assert data_folder.is_dir()
    setting = experts.dl20_setting()
    assert setting.crowds[0].n_assessors == 19
    assert setting.crowds[0].families is not None
    fold = folds(setting.parts[0])[0]
    lesson = setting.lesson(0, fold)
    scores = {name: LEARNERS[name](lesson) for name in ("majority", "family-mean", "expert-only", "gls-average")}
    assert setting.features.grade is not None
    truth = setting.features.grade[fold.test]
    assert all(np.corrcoef(score, truth)[0, 1] > 0.2 for score in scores.values())
