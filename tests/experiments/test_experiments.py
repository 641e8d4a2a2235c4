"""Experiments: their known figures on public data, and what does not need data."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank import GDA, Auto, DawidSkene, Judgments, read_gold, read_judgments, simulate
from crowdrank.consensus import METHODS
from crowdrank.consensus.auto import CANDIDATES
from crowdrank.errors import CrowdrankError, InputError, UsageError
from crowdrank.readers.datasets import dataset
from experiments import EXPERIMENTS, auto, feature_prior, get_experiment, rf10, web5
from experiments.agreement import agreement_table
from experiments.base import Experiment, Table, averaged, choose, compared, fit_all, quiet
from experiments.calibration import draw, reliability
from experiments.command import experiment as run_command
from experiments.command import source_commit
from experiments.dl20 import drawn_judges
from experiments.few_classes import FewClassDawidSkene
from experiments.halves import split_half_table
from experiments.injected import INJECTED, informativeness, inject_assessor, with_random
from experiments.subsample import equal_count
from experiments.threshold_prior import held_out_score
from terminal import experiments_process

FAST = ("majority", "average", "dawid-skene", "gda")


def crowd(seed: int = 0, items: int = 60, assessors: int = 8) -> Judgments:
    rng = np.random.default_rng(seed)
    item = np.repeat(np.arange(items), 4)
    truth = rng.integers(0, 3, items)
    who = np.concatenate([rng.choice(assessors, 4, replace=False) for _ in range(items)])
    grade = np.clip(truth[item] + rng.integers(-1, 2, len(item)), 0, 2)
    frame = pd.DataFrame({"query": item // 20, "document": item, "assessor": who, "grade": grade})
    return read_judgments(frame.assign(family=[f"f{one % 2}" for one in who]))


def strict(experiment: Experiment) -> dict[str, Any]:
    """The experiment as JSON and back; NaN is refused."""
    found: dict[str, Any] = json.loads(json.dumps(experiment.to_dict(), allow_nan=False))
    return found


# Without data.


def test_without_data_one_sentence_names_the_variable(tmp_path: Path) -> None:
    done = experiments_process("rf10", cwd=tmp_path, CROWDRANK_DATA=None)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: Set CROWDRANK_DATA")
    assert done.stderr.count("\n") == 1


def test_an_empty_data_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWDRANK_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"label\.csv: there is no such file; get it from"):
        run_command("web5")


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("rf11", {}, r"There is no experiment 'rf11' \(did you mean 'rf10'\?\); the experiments are: rf10"),
        ("rf10", {"methods": "magic"}, "There is no method 'magic'"),
        ("rf10", {"methods": ","}, "There is no method to run"),
        ("rf10", {"output": Path("none/out")}, "the folder none does not exist"),
        ("rf10", {"output": Path("file")}, "Cannot make the folder file"),
    ],
)
def test_a_wrong_word_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, Any], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(CrowdrankError, match=expected):
        run_command(name, **options)


def test_results_name_the_commit_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = source_commit()
    if found is not None:  # there is a repository
        assert re.fullmatch(r"[0-9a-f]{8}\+?", found)
    monkeypatch.setattr("experiments.command.__file__", str(tmp_path / "experiments" / "command.py"))
    assert source_commit() is None


def test_every_study_has_its_file() -> None:
    assert all(callable(get_experiment(name)) for name in EXPERIMENTS)


def test_all_methods_run_unless_named() -> None:
    assert [*choose(), "auto"] == list(METHODS)
    with pytest.raises(UsageError, match="no method to run"):
        choose([])
    assert list(choose(["gda-pairwise-joint", "average"], rf10.VARIANTS)) == ["gda-pairwise-joint", "average"]
    with pytest.raises(UsageError, match=r"There is no method 'gda-jint' \(did you mean 'gda-joint'\?\)"):
        choose(["gda-jint"], rf10.VARIANTS)


def test_fewer_classes_than_grades_still_rank_documents() -> None:
    judgments = crowd()
    model = FewClassDawidSkene(2).fit(judgments)
    assert model.theta_["likelihood"].shape == (judgments.n_assessors, 3, 2)
    found = model.consensus_.documents
    average = choose(["average"])["average"]().fit(judgments).consensus_.documents
    assert np.corrcoef(found["relevance"], average["relevance"])[0, 1] > 0.8
    assert found["relevance"].between(0, 2).all()
    shares = found[["p0", "p1", "p2"]].to_numpy()
    assert shares.sum(axis=1) == pytest.approx(1)
    assert (shares @ [0, 1, 2]) == pytest.approx(found["relevance"].to_numpy())  # a class stands for its grades


def test_a_method_that_cannot_take_the_judgments_is_left_out_and_told() -> None:
    chosen = choose(["average", "dawid-skene"], {"wrong": ("dawid-skene", {"unjudgeable_as": "model"})})
    fits = fit_all(chosen, crowd(), on="a crowd")
    assert list(fits.models) == ["average", "dawid-skene"]
    assert fits.notes[0].startswith("wrong was left out: ")
    with pytest.raises(InputError, match="no method can be fitted on a crowd"):
        fit_all({"wrong": chosen["wrong"]}, crowd(), on="a crowd")


def test_a_comparison_tells_its_documents_and_tests() -> None:
    judgments = crowd()
    gold = pd.DataFrame({"query": np.arange(50) // 20, "document": np.arange(50), "grade": np.arange(50) % 3})
    fits = fit_all(choose(["average", "majority"]), judgments, on="a crowd")
    table = compared("crowd", "A crowd", fits, gold, ["AP", "Tau"], baseline="dawid-skene")
    assert table.comparison is not None
    assert table.comparison.baseline == "average"
    assert "3 queries and 50 documents were scored." in table.notes
    assert set(table.row("majority")) == {"run", "AP", "Tau"}
    strict(Experiment("one", (table,), ()))


def test_equal_counts_are_equal_and_follow_the_seed() -> None:
    judgments = crowd()
    few = equal_count(judgments.where(np.arange(len(judgments)) != 0), 4, seed=1)
    assert few.n_items == judgments.n_items - 1
    one, same, other = (equal_count(judgments, 2, seed) for seed in (1, 1, 2))
    assert set(np.diff(one.offsets)) == {2}
    assert one.frame.equals(same.frame)
    assert not one.frame.equals(other.frame)


def test_at_most_so_many_judges_of_a_family_are_drawn() -> None:
    judges = crowd()
    kept = drawn_judges(judges, 3, seed=0)
    assert np.bincount(judges.family_of[kept]).tolist() == [3, 3]
    assert drawn_judges(judges, 9, seed=0).all()


def test_an_injected_assessor_is_found_again() -> None:
    judgments = crowd()
    gold = read_gold(pd.DataFrame({"query": [0, 0], "document": [0, 1], "grade": [0, 2]}))
    both = inject_assessor(judgments, gold.query, gold.document, gold.code)
    assert len(both) == len(judgments) + 2
    model = DawidSkene().fit(both)
    about = model.consensus_.assessors.set_index("assessor")["informativeness"]
    assert informativeness(model) == (about[INJECTED], about.drop(INJECTED).median())


def test_agreement_is_blank_where_nobody_judged_enough() -> None:
    gold = read_gold(pd.DataFrame({"query": [0], "document": [0], "grade": [0]}))
    table = agreement_table(fit_all(choose(["gda"]), crowd(), on="a crowd"), crowd(), {"gold": gold})
    assert strict(Experiment("one", (table,), ()))["tables"][0]["rows"][0]["gold"] is None


def test_the_relevance_drawn_does_not_depend_on_the_random_assessor() -> None:
    world = draw(GDA().fit(crowd(items=2000)), seed=3)
    frame = with_random(world.judgments, 3).frame
    random = frame[frame["assessor"] == INJECTED]["grade"].to_numpy()
    assert abs(np.corrcoef(random, world.relevance)[0, 1]) < 0.1


def test_a_calibrated_share_is_reliable() -> None:
    rng = np.random.default_rng(0)
    shares = rng.dirichlet([1, 1, 1], 20_000)
    code = (rng.random((20_000, 1)) > np.cumsum(shares, axis=1)[:, :-1]).sum(axis=1)
    rows = reliability("exact", shares, code)
    assert len(rows) == 10
    assert sum(row["pairs"] for row in rows) == shares.size
    assert all(abs(row["expected"] - row["observed"]) < 0.04 for row in rows)


def test_one_draw_has_no_spread() -> None:
    (row,) = averaged([{"a": {"AP": 0.5}}])
    assert Table("one", "One", (row,)).to_dict()["rows"][0]["AP sd"] is None


# On public data.


def close(row: dict[str, Any], expected: list[float], within: float) -> bool:
    found = [value for value in row.values() if isinstance(value, float)]
    return found == pytest.approx(expected, abs=within)


def test_every_variant_on_rf10_can_be_fitted() -> None:
    chosen = choose(["dawid-skene", "rasch", "threshold-dawid-skene", "gda", "gda-pairwise"], rf10.VARIANTS)
    fits = fit_all(chosen, read_judgments(crowd().frame, unjudgeable=0), on="a crowd")
    assert set(rf10.VARIANTS) < set(fits.models) == set(chosen)


def test_the_claims_of_gda_are_tested_against_its_baselines() -> None:
    judgments = crowd()
    rng = np.random.default_rng(0)
    items = np.arange(60)
    gold = pd.DataFrame({"query": items // 20, "document": items, "grade": rng.integers(0, 3, 60)})
    names = ["gda", "gda-pairwise", *(name for name in rf10.BASELINES if name != "random")]
    fits = fit_all(choose(names, rf10.VARIANTS), judgments, on="a crowd")
    (table, *_) = rf10.crowd_tables(fits, *(read_gold(gold),) * 2)
    claim, tests = rf10.claim_tables(table)
    assert [row["run"] for row in claim.rows] == list(rf10.CLAIMS)
    assert {word for row in claim.rows for word in list(row.values())[1:]} <= {"confirmed", "refuted", "undecided"}
    assert len(tests.rows) == 2 * len(rf10.BASELINES)
    few = fit_all(choose(["average"]), judgments, on="a crowd")
    assert not rf10.claim_tables(rf10.crowd_tables(few, *(read_gold(gold),) * 2)[0])


@pytest.mark.data
def test_rf10_has_the_known_figures(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_folder.is_dir()
    difficulty = {"gda-difficulty": choose(["gda"], rf10.VARIANTS)["gda-difficulty"]}
    # Each variant is fitted seven times.
    monkeypatch.setattr(rf10, "VARIANTS", {"gda-unjudgeable": rf10.VARIANTS["gda-unjudgeable"]})
    rf10_experiment = get_experiment("rf10")(FAST, seeds=(0,))
    table = rf10_experiment.table("crowd")
    assert close(table.row("gda"), [0.787, 0.829, 0.671], 0.005)
    assert close(table.row("gda-unjudgeable"), [0.796, 0.835, 0.691], 0.005)
    assert "100 queries and 4,460 documents were scored." in table.notes
    assert "100 queries and 3,277 documents were scored." in rf10_experiment.table("nist-judged").notes
    parts = [rf10_experiment.table(half).comparison for half in ("odd", "even")]
    assert [half.evaluations["gda"].counts.queries for half in parts if half is not None] == [50, 50]
    strict(rf10_experiment)
    sees_through_the_injected(rf10_experiment)
    assert table.row("random")["Tau"] == pytest.approx(0, abs=1e-9)
    assert table.row("random")["AP"] < min(row["AP"] for row in table.rows if row["run"] != "random")
    together = rf10_experiment.table("injected-together")
    assert set(together.row("gda")) == {"run", "AP", "nDCG", "Tau"}
    assert together.row("gda")["Tau"] > together.row("average")["Tau"] + 0.1
    assert rf10_experiment.table("agreement").row("gda")["all gold, tau"] > 0.5
    assert rf10_experiment.table("agreement").row("gda")["all gold"] == pytest.approx(0.66, abs=0.05)
    judgments = dataset("trec-rf10").read_judgments()
    halves = split_half_table(
        difficulty, fit_all(difficulty, judgments, on="the crowd"), judgments, seeds=(0,), tell=quiet
    )
    assert halves.row("gda-difficulty")["relevance"] > 0.4


def sees_through_the_injected(rf10_experiment: Experiment) -> None:
    gda = rf10_experiment.table("injected").row("gda")
    assert gda["nats random"] < 0.01 < gda["nats crowd"]
    assert abs(gda["AP random"] - gda["AP crowd"]) < 0.005
    assert min(gda["AP expert"], gda["AP reversed"]) > 0.9
    assert np.isnan(rf10_experiment.table("injected").row("average")["nats expert"])


@pytest.mark.data
def test_web5_has_the_known_figures(data_folder: Path, tmp_path: Path) -> None:
    words = ["web5", "--methods", "majority,dawid-skene", "-o", "out"]
    done = experiments_process(*words, cwd=tmp_path, CROWDRANK_DATA=str(data_folder))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "web5.json").read_text())
    assert found["command"] == "python -m experiments web5 --methods majority,dawid-skene"
    (row,) = (row for row in found["tables"][0]["rows"] if row["run"] == "dawid-skene-no-prior")
    assert row["GradeAccuracy"] == pytest.approx(0.829, abs=0.005)
    assert "Difference to dawid-skene [95% interval], p by Holm" in done.stdout
    assert "Protocol. Data: web search relevance" in done.stdout


@pytest.mark.data
def test_dl20_has_the_known_figures(data_folder: Path) -> None:
    assert data_folder.is_dir()
    experiment = get_experiment("dl20")(["average", "family-mean"], seeds=(0,))
    assert close(experiment.table("judges").row("family-mean"), [0.613, 0.848, 0.680, 0.702], 0.003)
    assert "(55: gpt-4o 1, llama3.2 27, mistral 27)" in experiment.protocol[1]
    one = experiment.table("per-family-1")
    assert one.row("average")["AP(rel=2)"] == pytest.approx(one.row("family-mean")["AP(rel=2)"])
    strict(experiment)


@pytest.mark.data
def test_calibration_covers(data_folder: Path) -> None:
    assert data_folder.is_dir()
    experiment = get_experiment("calibration")(["dawid-skene", "gda"], seeds=(0,))
    row = experiment.table("coverage").row("gda")
    assert row["50% covers"] == pytest.approx(0.50, abs=0.03)
    assert row["95% covers"] == pytest.approx(0.95, abs=0.03)
    assert row["nats random"] < 0.01
    full = [row for row in experiment.table("reliability").rows if row["pairs"] > 500]
    assert len(full) >= 8
    assert all(row["observed"] == pytest.approx(row["expected"], abs=0.04) for row in full)
    assert [row["run"] for row in experiment.table("coverage").rows] == ["gda"]
    assert [row["run"] for row in experiment.table("against-gold").rows] == ["dawid-skene", "gda"]
    strict(experiment)


def test_auto_elsewhere_tells_both_regrets(monkeypatch: pytest.MonkeyPatch) -> None:
    world = simulate(queries=10, documents=8, labels=3, random_state=1)
    small = auto.Setting("small", read_judgments(world.judgments), world.gold, auto.SIMULATED_MEASURES)
    monkeypatch.setattr(auto, "elsewhere", lambda sets: {"simulated, small": lambda seed: small})
    monkeypatch.setattr(auto, "Auto", lambda: Auto(candidates=FAST))
    table = auto.elsewhere_table([], ["average", "dawid-skene"], seeds=(0,), tell=quiet)
    assert [row["run"] for row in table.rows] == ["simulated, small"]
    (row,) = table.rows
    model = Auto(candidates=FAST).fit(small.judgments).choice_.set_index("method")["chosen_for"]
    assert [row["chosen for ranking"]] == list(model.index[model.str.startswith("ranking")])
    assert np.isfinite([row["ranking"], row["grades"]]).all()


@pytest.mark.data
def test_auto_is_near_the_best(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_folder.is_dir()
    # Without GLAD, which takes most of the time and is nowhere near the best.
    candidates = tuple(name for name in CANDIDATES if name != "glad")
    monkeypatch.setattr(auto, "Auto", lambda: Auto(candidates=candidates))
    crowd, web, judges = auto.public_sets()
    # The expert grades of web5 are those of its own assessors; without these, only the order is judged.
    sets = [crowd, replace(auto.without_experts(web), measures=("TauB",)), judges]
    methods = [name for name in candidates if name in METHODS]
    outcomes = {one.name: auto.outcome(one, methods, tell=quiet) for one in sets}
    table = auto.regret_table(sets, outcomes)
    assert table.row("mean")["regret"] <= 0.005
    assert table.row("worst")["regret"] <= 0.015
    scores = outcomes["rf10"].auto.choice_.set_index("method")["ranking"]
    assert scores["gda-unjudgeable"] > scores["gda"] > scores["rasch"] > scores["average"] > scores["one-coin"]


@pytest.mark.data
def test_the_gold_of_web5_is_the_majority_of_nine_assessors(data_folder: Path) -> None:
    assert data_folder.is_dir()
    data = dataset("web-5grade")
    crowd, gold = data.read_judgments(), data.read_gold()
    n_majorities, n_equal = web5.count_majorities(crowd, gold)
    assert n_majorities == n_equal > 2_000
    scores = {prior: held_out_score(prior, web5.without_experts(crowd)) for prior in ("learned", 0.25, 1.0)}
    assert scores["learned"] > scores[0.25] > scores[1.0]


def test_intervals_with_a_prior_from_features_hold() -> None:
    table = feature_prior.coverage_table("gda", [5], quiet)
    assert [row["run"] for row in table.rows][-1] == "rho 0.8, 3 labels"
    for row in table.rows:
        assert 0.92 <= row["covered"] <= 0.98
    assert table.row("rho 0.8, 2 labels")["RMSE"] < table.row("rho 0, 2 labels")["RMSE"] - 0.03
    assert table.row("rho 0.8, 2 labels")["RMSE without labels"] < 0.9


def test_the_gain_by_features_is_relative_to_that_of_a_label() -> None:
    values = {1: (0.5, 0.6), 2: (0.7, 0.75), 3: (0.8, 0.8)}
    tables = {
        n: Table(
            "t",
            "t",
            tuple({"run": run, "nDCG@10": x, "Tau": x} for run, x in zip(("m", "m-features"), both, strict=True)),
        )
        for n, both in values.items()
    }
    gain = feature_prior.gain_table("m", tables)
    assert [row["Tau"] for row in gain.rows] == pytest.approx([0.5, 0.5])


def test_difficulty_prints_the_goal_figures() -> None:
    done = get_experiment("difficulty")(["gda"], seeds=[7])
    simulated, reverse = done.table("simulated"), done.table("reversed")
    plain, hard = simulated.row("gda, seed 7"), simulated.row("gda-difficulty, seed 7")
    assert hard["Tau"] >= plain["Tau"] - 0.002
    assert hard["true difficulty"] >= 0.4
    assert abs(hard["expert grade"]) <= 0.25
    ordinal, both = reverse.row("gda-ordinal, seed 7"), reverse.row("gda-difficulty-ordinal, seed 7")
    assert both["Tau"] >= ordinal["Tau"] - 0.01
    assert reverse.row("gda-widths-ordinal, seed 7")["nats reversed"] < 0.001
