"""The experiments of collection, small: layouts, verdicts, and that policies do not see the gold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdrank.collection.replay import Crowd
from crowdrank.consensus.dawid_skene import DawidSkene
from crowdrank.consensus.gda import GDA
from crowdrank.errors import UsageError
from crowdrank.readers.features import read_features
from crowdrank.readers.read import read_judgments
from crowdrank.simulation.world import simulate
from experiments import next_label, next_label_features, overlap, settled
from experiments.base import Table
from experiments.overlap_claims import claim_tables, equal_budget_summary, equal_budget_verdict
from experiments.overlap_judges import GRADES, agreement_table, habits_table
from experiments.subsample import equal_count
from tools.results import load_results

SMALL: dict[str, Any] = {"n_estimators": 8, "learning_rate": 0.2, "num_leaves": 7, "min_child_samples": 10}


@pytest.fixture(scope="module")
def labels() -> overlap.LabelSet:
    return overlap.simulated_set("A", train=30, test=25)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "TREES", SMALL)


def test_a_label_set_has_eleven_labels_and_keeps_test_queries_apart(labels: overlap.LabelSet) -> None:
    assert set(np.diff(labels.judgments.offsets)) == {11}
    assert not set(labels.gold["query"]) & set(labels.judgments.queries.to_pylist())
    assert labels.first_queries(5).n_queries == 5


@pytest.mark.usefixtures("small")
def test_the_layout_of_the_papers_tables(labels: overlap.LabelSet) -> None:
    table = overlap.ranker_table("LambdaMART", labels, ["if-good-3", "single"], overlap.trees, [0])
    assert table.name == "lambdamart-a"
    assert list(table.rows[0]) == ["run", "nDCG@3", "nDCG@1", "nDCG@5", "nDCG@10"]
    assert table.rows[0]["nDCG@3"] >= table.rows[1]["nDCG@3"]
    costs = overlap.cost_table(labels, overlap.SCHEMES, [0, 1])
    row = costs.row("if-good-3")
    assert row["labeling overhead"] == pytest.approx(row["by the formula"])
    bound = costs.row("good-till-bad")
    assert bound["labeling overhead"] <= bound["by the formula"]
    assert costs.row("if-good-x3")["rest:good"] == pytest.approx(costs.row("single")["rest:good"] / 3)
    assert costs.row("overlap-11")["training overhead"] == 11


@pytest.mark.usefixtures("small")
def test_equal_budgets_spend_as_many_labels(labels: overlap.LabelSet) -> None:
    table = overlap.equal_budget_table("LambdaMART", labels, ["if-good-3", "overlap-3", "single"], overlap.trees, [0])
    assert table.comparison is not None
    assert table.comparison.baseline == "if-good-3"
    assert "Training queries: if-good-3 " in " ".join(table.notes)
    assert "overlap-3 10, single 30" in " ".join(table.notes)
    assert equal_budget_verdict(table) in ("yes", "no", "undecided")
    assert equal_budget_summary([table]).rows[0]["if-good-3 is best"] == equal_budget_verdict(table)


def test_the_answer_on_equal_budgets_follows_the_tests() -> None:
    class Rows:
        def __init__(self, rows: list[dict[str, Any]]) -> None:
            self.rows = rows

        def to_pylist(self) -> list[dict[str, Any]]:
            return self.rows

    class Compared:
        baseline = "if-good-3"

        def __init__(self, *tests: tuple[float, bool]) -> None:
            runs = [
                {"run": f"r{i}", "measure": "nDCG@3", "difference": d, "significant": s}
                for i, (d, s) in enumerate(tests)
            ]
            self.rows = Rows(runs)

    def word(*tests: tuple[float, bool]) -> str | None:
        return equal_budget_verdict(Table("equal-A", "", (), (), Compared(*tests)))  # type: ignore[arg-type]

    assert word((-0.1, True), (-0.1, True)) == "yes"
    assert word((-0.1, True), (0.1, True)) == "no"
    assert word((-0.1, True), (0.1, False)) == "undecided"


@pytest.mark.usefixtures("small")
def test_the_papers_claim_is_tested_against_every_setting_on_the_same_queries(labels: overlap.LabelSet) -> None:
    table = overlap.ranker_table("LambdaMART", labels, overlap.SCHEMES, overlap.trees, [0])
    few = overlap.ranker_table("LambdaMART", labels, ["if-good-3", "single"], overlap.trees, [0])
    claim, tests = claim_tables({"LambdaMART A": table, "LambdaMART few": few}, [])
    (row,) = claim.rows
    assert row["over single"] == pytest.approx(table.row("if-good-3")["nDCG@3"] - table.row("single")["nDCG@3"])
    assert {row["better than single"], row["best of all"]} <= {"confirmed", "refuted", "undecided"}
    assert row["mean of it"] == max(one["nDCG@3"] for one in table.rows if one["run"] not in ("if-good-3", "single"))
    assert [one["run"] for one in tests.rows] == [name for name in overlap.SCHEMES if name != "if-good-3"]
    assert not claim_tables({"LambdaMART few": few}, [])


def test_more_labels_agree_more_with_experts() -> None:
    many = overlap.simulated_set("A", train=120, test=5)
    table = agreement_table("A", many.judgments, many.train_gold, [0, 1])
    assert [row["run"] for row in table.rows][:2] == ["1 label", "2 labels"]
    assert table.row("11 labels")["majority"] > table.row("3 labels")["majority"] > table.row("1 label")["majority"]
    assert table.row("2 labels")["majority"] == table.row("2 labels")["highest"]  # a tie of two is the higher label
    assert table.row("best judge")["majority"] > table.row("median judge")["majority"]
    habits = habits_table("A", many.judgments)
    for grade in GRADES:
        judge, majority = (habits.row(f"most {grade}: {who}") for who in ("judge", "majority"))
        assert sum(judge[name] for name in GRADES) == pytest.approx(1)
        assert judge["labels"] == majority["labels"] >= 100
        assert judge["p"] < 0.05


def test_expert_grades_of_training_documents_train_nothing(labels: overlap.LabelSet) -> None:
    other = replace(labels, train_gold=labels.train_gold.iloc[:0])
    one, two = (overlap.train_and_evaluate(each, "single", overlap.network, 0) for each in (labels, other))
    assert one.means == two.means


def test_a_set_labeled_by_the_claim_allows_its_schemes() -> None:
    plus = overlap.simulated_set("plus", train=30, test=25)
    assert set(np.diff(plus.judgments.offsets)) == {1, 3}
    costs = overlap.cost_table(plus, overlap.PLUS_SCHEMES, [0])
    row = costs.row("if-good-3")
    assert row["labeling overhead"] == len(plus.judgments) / plus.judgments.n_items  # its own labels, in their order


def test_simulated_sets_cost_what_the_papers_do() -> None:
    found = overlap.experiment(["if-good-3"], only=["costs"])
    for name in ("costs-A", "costs-B"):  # OVERLAP, Tables 6 and 7
        table = found.table(name)
        assert 3.5 <= table.row("single")["rest:good"] <= 3.7
        assert 1.41 <= table.row("if-good-3")["labeling overhead"] <= 1.45
    assert 1.45 <= found.table("costs-plus").row("if-good-3")["labeling overhead"] <= 1.51  # Table 8: 1.48


def test_only_schemes_can_be_named() -> None:
    with pytest.raises(UsageError, match="entropy is not a labeling scheme"):
        overlap.experiment(["entropy"])
    with pytest.raises(UsageError, match="There is no policy 'x'"):
        next_label.experiment(["x"])
    with pytest.raises(UsageError, match="There is no policy to run"):
        next_label.experiment([])


@pytest.fixture(scope="module")
def replayed() -> list[next_label.Replayed]:
    world = simulate(queries=12, documents=8, labels=7, assessors=15, grades=3, random_state=1)
    full = read_judgments(world.judgments)
    five = [equal_count(full, 5, seed) for seed in (0, 1)]
    return [next_label.Replayed(one, Crowd.of(one), world.gold, one, seed) for seed, one in enumerate(five)]


def test_tables_of_policies(replayed: list[next_label.Replayed], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_label, "ROUNDS", 4)
    runs = ["random", "if-good-3", "ndcg@10"]
    area, half, curve = next_label.setting_tables("rf10", replayed, runs)
    assert [row["run"] for row in area.rows] == runs
    assert [row["run"] for row in half.rows] == [next_label.FULL, *runs]
    assert len(curve.rows[0]) == 2 + 4
    assert curve.row("random")["labels a document"] == pytest.approx(2.5, abs=0.01)
    assert "the quality of 5 everywhere" in " ".join(half.notes)
    means = [curve.row("random")[f"{2.5 * (number + 1) / 4:.2f}"] for number in range(4)]
    assert area.row("random")["nDCG@10"] == pytest.approx(np.mean(means))


def test_how_many_labels_are_to_be_had_informs_no_policy() -> None:
    """The same judgments so far, and fewer who could judge some documents: the same documents are asked about."""
    full = read_judgments(simulate(queries=10, documents=8, labels=8, assessors=15, random_state=2).judgments)
    so_far = equal_count(full, 2, 0)
    place = np.arange(len(full)) - np.repeat(full.offsets[:-1], np.diff(full.offsets))
    item = np.repeat(np.arange(full.n_items), np.diff(full.offsets))
    fewer = full.where((place < 7) | (item % 2 == 0))  # of every other document one label less
    for name in next_label.RUNS:
        policy = next_label.policy_for(name, "rf10", 0)
        model = GDA().fit(so_far) if policy.takes_model else None
        asked = [policy.next(Crowd.of(crowd).pool, so_far, model, 15) for crowd in (full, fewer)]
        assert asked[0].pair.tolist() == asked[1].pair.tolist()
        assert not asked[0].unmet


@pytest.mark.data
def test_experts_are_scored_on_documents_that_nobody_bought(data_folder: Any) -> None:
    judges = next_label.dl20_crowds([0])[0].full
    few = judges.where(judges.item_query[np.repeat(np.arange(judges.n_items), np.diff(judges.offsets))] < 6)
    table = next_label.expert_setting(few)
    found, number, scored = next_label.strategies(table, 5, 0)
    assert number == int(2.5 * few.n_items / 50)
    assert len(scored) >= few.n_items - 4 * number
    assert {"llm", "experts"} < set(found)
    assert all(len(values) == few.n_items and np.isfinite(values).all() for values in found.values())


def test_tables_of_policies_with_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_label_features, "ROUNDS", 2)
    world = simulate(queries=12, documents=8, labels=4, assessors=12, grades=3, honeypots=0, random_state=1)
    crowd = Crowd.of(read_judgments(world.judgments))
    setting = next_label_features.Setting("mq2008", read_features(world.features), {0: crowd}, world.gold, "")
    end, saved, curve, noise = next_label_features.setting_tables(setting, ["random", "ndcg@10"])
    variants = ["ndcg@10-ranking", "ndcg@10-choice", "ndcg@10-features"]
    assert [row["run"] for row in end.rows] == ["random", "random-features", "ndcg@10", *variants]
    assert [row["run"] for row in saved.rows] == ["random-features", *variants]
    for run in ("ndcg@10", "ndcg@10-features"):
        assert curve.row(run)["Tau, 2.00"] == end.row(run)["Tau"]
    assert curve.row("ndcg@10")["Tau, 1.00"] == curve.row("ndcg@10-choice")["Tau, 1.00"]  # the same first labels
    assert curve.row("ndcg@10-ranking")["Tau, 1.00"] == curve.row("ndcg@10-features")["Tau, 1.00"]
    assert [row["run"] for row in noise.rows] == ["ndcg@10", "ndcg@10-noise"]
    assert noise.row("ndcg@10") == end.row("ndcg@10")
    with pytest.raises(UsageError, match="There is no data set 'rf10'"):
        next_label_features.experiment(only=["rf10"])


def test_settled_pairs_of_a_small_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = read_judgments(simulate(queries=12, documents=15, labels=8, honeypots=0.0, random_state=3).judgments)
    monkeypatch.setattr(settled, "read_crowd", lambda name, seed: everything)
    monkeypatch.setattr(settled, "STAGES", (2, 4))
    done = settled.experiment(["gda", "dawid-skene"], seeds=[0], only=["simulated"])
    assert [table.name for table in done.tables] == ["rules", "labels", "stop", "models"]
    rows = done.table("labels").rows
    assert [(row["labels"], row["pairs"]) for row in rows] == [(2, everything.n_items), (4, everything.n_items)]
    total = sum(row["settled pairs"] for row in rows)
    assert done.table("models").row("gda")["settled pairs"] == total
    assert done.table("rules").row("simulated")["range of a grade: settled"] == pytest.approx(
        total / 2 / everything.n_items
    )
    stop = done.table("stop").row("simulated")
    assert 0 < stop["labels bought"] < 1
    assert stop["settled"] >= rows[-1]["settled"]


def test_rules_of_settled_pairs_follow_their_definitions() -> None:
    judgments = read_judgments(simulate(queries=12, documents=15, labels=8, random_state=3).judgments)
    for model in (GDA().fit(judgments), DawidSkene().fit(judgments)):
        found = settled.certainties(model)
        assert list(found) == [settled.CHOSEN, *(rule for rule in found if rule != settled.CHOSEN)]
        assert set(found) == set(settled.RULES)
        shares = model.consensus_.documents[model.consensus_.true_share_names].to_numpy()
        assert found["P(grade)"].tolist() == pytest.approx(shares.max(axis=1).tolist())
        assert all(((one > 0) & (one <= 1 + 1e-9)).all() for one in found.values())
        names = model.consensus_.documents["grade"].to_list()
        assert [model.consensus_.labels[code] for code in settled.consensus_grades(model)] == names


def test_settled_results_keep_the_promise() -> None:
    tables = {table["name"]: table["rows"] for table in load_results()["settled"]["tables"]}
    for row in tables["rules"]:
        assert row[f"{settled.CHOSEN}: keep"] >= settled.PROMISED, row["run"]
    assert {row["run"] for row in tables["rules"]} == set(settled.DATA)
    assert all(row["keep their grade"] >= settled.PROMISED for row in tables["stop"])
    rasch = [row for row in tables["models"] if row["run"] == "rasch"]
    assert all(row["keep their grade"] >= settled.PROMISED for row in rasch)
    others = [row for row in tables["models"] if row["run"] in ("dawid-skene", "one-coin")]
    assert min(row["keep their grade"] for row in others) < settled.PROMISED
