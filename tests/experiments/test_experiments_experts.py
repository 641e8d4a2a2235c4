"""The experiments of learned targets and weights: what may be seen, what is counted, and what is said of the papers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank.errors import UsageError
from crowdrank.evaluation.comparison import Comparison, compare_evaluations
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.label_learning.boosted_remapper import BoostedRemapper
from crowdrank.label_learning.linear_remapper import LinearRemapper
from crowdrank.pipeline.candidates import Candidate
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.training_view import TrainingView
from crowdrank.rankers.ranker import Ranker
from experiments import PARTS, driver, experts, get_experiment, known_assessors
from experiments.base import Experiment, Table
from experiments.command import experiment as run_command
from experiments.command import words
from experiments.driver import Setting, train_candidates
from experiments.expert_candidates import CANDIDATES, CONTROLS, LEARNED, MARTS, REMAPPERS, TREE_RD, single_labels
from experiments.expert_claims import CLAIMS, MODE_CLAIMS, claim_tables, describe_headline, mode_tables
from experiments.experts import FEATURE_SETS, generated_setting, select_groups, setting_tables
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
    """Known targets and weights come out again by level."""

    class KnownRemapper:
        def __init__(self, mode: str, **settings: Any) -> None:
            self.mode = mode

        def fit(self, labels: Any, *rest: Any, **more: Any) -> KnownRemapper:
            numbers = np.arange(1, len(labels.names) + 1) if self.mode == "W" else np.arange(len(labels.names))
            self.targets_ = self.weights_ = labels.matrix @ numbers
            return self

    remapper: Any = KnownRemapper
    rigor = Rigor().learn(source, 0, remapper)
    assert [rigor[f"rigor {level}"] for level in range(4)] == [1, 2, 3, 4]
    assert rigor["monotone"] == "yes"
    quality = Quality().learn(source, 0, remapper)
    assert [quality[f"quality {level:g}"] for level in (0, 0.5, 0.75, 1)] == [1, 2, 3, 4]
    monkeypatch.setitem(known_assessors.REMAPPERS, "linear", remapper)
    table = split_table(Quality(), source, ["linear"], seeds=(0, 1))
    assert table.row("linear, mean")["quality 1"] == 4
    counts = count_table(Quality(), [table], ["linear"], 2)
    assert counts.row("generated, linear")["monotone"] == 2
    assert counts.notes == (
        "linear is monotone in 2 of 2 splits of the generated documents, where the goal is 4 of 5.",
    )


@pytest.mark.parametrize("experiment", [Rigor(), Quality()])
def test_both_remappers_have_a_row_for_every_split(source: Source, experiment: Any, tmp_path: Path) -> None:
    messages: list[str] = []
    options: dict[str, Any] = {"seeds": (0, 1), "keep": tmp_path, "tell": messages.append}
    table = split_table(experiment, source, ["linear", "boosted"], **options)
    assert [row["run"] for row in table.rows] == [
        f"{name}, {which}" for name in ("linear", "boosted") for which in ("split 1", "split 2", "mean")
    ]
    for row in table.rows:
        levels = [row[name] for name in row if name.startswith(experiment.quality)]
        assert len(levels) == 4
        assert (row["monotone"] == "yes") == all(a < b for a, b in pairwise(levels))
    assert len(messages) == 4
    assert split_table(experiment, source, ["linear", "boosted"], **options) == table
    assert len(messages) == 4  # no split is repeated
    strict(table, count_table(experiment, [table], ["linear", "boosted"], 2))


def test_weights_of_reversed_assessors_fall(source: Source) -> None:
    """The mechanism itself, where the quality is extreme: nothing but reversed and perfect assessors."""
    world = generated({"queries": 150, "documents": 12, "features": 10, "random_state": 3})
    for cls in (LinearRemapper, BoostedRemapper):
        row = Quality().learn(world, 0, cls)
        assert row["quality 0"] < 0.5 * row["quality 1"]


# The comparison.

BY_NAME = {candidate.name: candidate for candidate in CANDIDATES}


@pytest.fixture(scope="module")
def tiny() -> Any:
    """Few documents, small trees, at most 5 trees among the features, and remappers of a few steps."""
    setting = generated_setting(0, {"queries": 120, "documents": 8, "features": 6, "random_state": 5})
    quick = {"n_iter": 2, "ridge": 0.1}
    settings = RunSettings(measure="DCG@10", trees=SMALL, linear=quick, boosted=quick)
    with pytest.MonkeyPatch.context() as patch:
        for module in ("crowdrank.rankers.linear", "crowdrank.label_learning.remapper"):
            patch.setattr(f"{module}.AUTO_TREES", (0, 5))
        yield replace(setting, settings=settings)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def tables(tiny: Setting, kept: Path) -> list[Table]:
    return setting_tables(tiny, CANDIDATES, keep=kept)


def test_an_interrupted_experiment_resumes(
    tiny: Setting, tables: list[Table], kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what failed, and what is not in the folder, is trained again; the tables are the same."""
    scores = sorted(kept.glob("fold-scores-*"))
    n_folds = len(tiny.splits[0])
    assert len(scores) == n_folds * (len(CANDIDATES) - 1)  # there are no families
    scores[0].unlink()
    trained: list[str] = []
    train = driver._train

    def record(candidate: Candidate, view: TrainingView) -> Ranker:
        trained.append(candidate.name)
        return train(candidate, view)

    monkeypatch.setattr(driver, "_train", record)
    again = setting_tables(tiny, CANDIDATES, keep=kept)
    assert len(trained) - trained.count("family-mean") == 1
    assert [table.to_dict() for table in again] == [table.to_dict() for table in tables]


def test_no_candidate_sees_grades_of_test_or_crowd_documents(tiny: Setting) -> None:
    """Every candidate gives the same scores if the grades of test and crowd documents are reversed."""
    first = replace(tiny, splits=(tiny.splits[0][:1],))
    (fold,) = first.splits[0]
    assert tiny.features.grade is not None
    grade = tiny.features.grade.copy()
    hidden = np.concatenate([fold.test, fold.crowd])
    grade[hidden] = 4 - grade[hidden]
    other = replace(first, features=replace(tiny.features, grade=grade))
    one, two = (train_candidates(setting, CANDIDATES).scores for setting in (first, other))
    assert set(one) == set(BY_NAME) - {"family-mean"}
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def test_experts_reach_no_consensus_and_no_label_feature(tiny: Setting) -> None:
    fold = tiny.splits[0][0]
    assert sorted(np.concatenate([fold.crowd, fold.experts, fold.validation, fold.test])) == list(
        range(len(tiny.features.query))
    )
    assert tiny.features.grade is not None
    other = replace(tiny, features=replace(tiny.features, grade=4 - tiny.features.grade))
    one, two = (setting.view(0, fold) for setting in (tiny, other))
    for parameters in REMAPPERS.values():
        labels = [view.remapper_sample(parameters["kind"]) for view in (one, two)]
        np.testing.assert_array_equal(labels[0].matrix, labels[1].matrix)
        assert not len(labels[0].gold_queries)
    crowd = set(np.array(tiny.features.query.to_pylist())[fold.crowd])
    assert set(one.data.judgments.queries.to_pylist()) <= crowd
    assert one.data.labels.n_items < one.data.judgments.n_items  # rankers are not trained on honeypots


def test_single_labels_are_all_labels_of_the_crowd(tiny: Setting) -> None:
    view = tiny.view(0, tiny.splits[0][0])
    rows, y = single_labels(view)
    assert len(rows) == len(view.data.labels)
    crowd, average = view.labels("average", "relevance")
    np.testing.assert_allclose(np.bincount(rows, y)[crowd] / np.bincount(rows)[crowd], average)


def test_learned_labels_and_their_control_have_the_same_choices(tiny: Setting) -> None:
    view = tiny.view(0, tiny.splits[0][0])
    control: Any = view.ranker(BY_NAME["gls-average"])
    assert control.tree_features == "auto"
    assert control.mu == "auto"
    for name in LEARNED:
        kind: Any = name.split("-")[0]
        remapper = view.remapper(kind, mode=name.split("-")[1].upper(), **REMAPPERS[kind])
        assert remapper.tree_features == "auto"
        assert view.ranker(BY_NAME[name]) is remapper.ranker_


def test_the_table_has_the_papers_layout_and_every_control(tables: list[Table]) -> None:
    table, importances = tables
    assert table.comparison is not None
    runs = [row["run"] for row in table.rows]
    assert runs == [run for run in BY_NAME if run != "family-mean"]
    baselines = {f"{prefix}{label}" for prefix in ("", "gbdt-", "gls-") for label in MARTS}
    assert {*baselines, "rd", TREE_RD, *LEARNED, *CONTROLS} - {"family-mean"} <= set(runs)
    assert {f"mart-{name}" for name in LEARNED if name.endswith("t")} <= set(runs)
    assert table.comparison.baseline == "majority"
    assert all(table.row("majority")[f"DCG@{k} %"] == 0 for k in (1, 5, 10))
    row, base = table.row("expert-only"), table.row("majority")
    assert row["DCG@10 %"] == pytest.approx(100 * (row["DCG@10"] - base["DCG@10"]) / base["DCG@10"])
    assert table.comparison.evaluations["majority"].counts.queries == 120
    assert sum("claim" in note for note in table.notes) == len(CLAIMS)
    assert any(" gls-average: " in note for note in table.notes)
    assert {row["run"] for row in importances.rows} == {"boosted-w", "boosted-t"}
    assert all(0 <= row["importance"] <= 1 for row in importances.rows)
    claim, mgbdt, remap = claim_tables([table])
    assert [row["run"] for row in claim.rows] == ["generated, MGBDT", "generated, REMAP"]
    assert claim.rows[0]["baseline"] in CLAIMS[0].baselines
    assert claim.rows[0]["control"] in CONTROLS
    assert len(mgbdt.rows) == 2 * 8  # two claimed runs, the eight baselines of MGBDT's Table 4
    assert len(remap.rows) == 9  # the nine of REMAP's
    (modes,) = mode_tables([table])
    assert len(modes.rows) == len(MODE_CLAIMS)
    for row in modes.rows:
        run, other = row["run"].split(": ")[1].split(" over ")
        assert row["difference"] == pytest.approx(table.row(run)["DCG@10"] - table.row(other)["DCG@10"])
        assert row["verdict"] in ("confirmed", "refuted", "undecided")
    strict(*tables, claim, mgbdt, remap, modes)


def test_ablation_and_numbers_of_trees(tiny: Setting) -> None:
    once = replace(tiny, splits=(tiny.splits[0],))
    labels = once.view(0, once.splits[0][0]).remapper_sample("remap")
    assert select_groups(labels, FEATURE_SETS["all"]).names == labels.names
    basic = select_groups(labels, ())
    assert basic.names == (
        "label",
        *(f"{name}_of_{grade}" for grade in (1, 0) for name in ("log_tasks", "share_bad", "honeypots_right")),
    )
    np.testing.assert_array_equal(basic.column("share_bad_of_0"), labels.column("share_bad_of_0"))
    assert any("glad" in name for name in select_groups(labels, ("glad",)).names)
    table = experts.tree_count_table(once, counts=(0, 3))
    assert [row["run"] for row in table.rows] == ["0 trees", "3 trees"]
    runs = ("linear-t", "boosted-t", "gls-average")
    assert set(table.rows[0]) == {"run", *(f"{run}, {of} %" for run in runs for of in ("validation", "test"))}
    assert table.rows[0] | {"run": ""} != table.rows[1] | {"run": ""}
    ablation = experts.ablation_table(once)
    assert [row["run"] for row in ablation.rows] == ["linear-w", "linear-t", "linear-w+t"]
    assert len({round(ablation.row("linear-t")[f"{name} %"], 9) for name in FEATURE_SETS}) > 1
    strict(table, ablation)


def drawn(gains: Mapping[str, float], spread: float) -> Comparison:
    """Return a comparison of runs whose DCG@10 differs from that of a baseline by about `gains`."""
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
    claims = [replace(claim, baselines=MARTS) for claim in CLAIMS]
    gains = {**dict(zip(MARTS, marts, strict=True)), **dict(zip(names, claimed, strict=True))}
    comparison = drawn(gains, spread)
    assert [claim.verdict(comparison) for claim in claims] == words
    if list(claimed) == [0.1, 0.3, 0.3]:  # the worst run decides, whatever the best one gains
        assert claims[0].decision(comparison) == ("boosted-t", "refuted")
    assert not any(claim.verdict(comparison) for claim in CLAIMS)  # baselines of the papers are missing
    few = drawn({"majority": 0.0, "boosted-t": 0.1}, spread)
    assert claims[0].verdict(few) is None
    assert not describe_headline(few, claims[0])


# The command.


def test_wrong_parts_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROWDRANK_DATA", raising=False)
    with pytest.raises(UsageError, match="The experiment rf10 runs as a whole; --only is for preferences, robustness"):
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
    experiment = get_experiment("quality")(["linear"], only=["mq2008"], seeds=(0,))
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
    once = replace(setting, splits=(setting.splits[0][:1],))
    names = ("majority", "family-mean", "expert-only", "gls-majority")
    rankings = train_candidates(once, [BY_NAME[name] for name in names])
    (fold,) = once.splits[0]
    assert setting.features.grade is not None
    truth = setting.features.grade[fold.test]
    assert all(np.corrcoef(score[0, fold.test], truth)[0, 1] > 0.2 for score in rankings.scores.values())
    assert set(rankings.scores) == set(names)
