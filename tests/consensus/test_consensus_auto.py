"""Auto: its choice, its reasons, and its chosen models."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import GDA, Auto, DawidSkene, read_judgments, simulate
from crowdrank.consensus import held_out
from crowdrank.consensus.auto import CANDIDATES, ChoiceReason, order_by_grades
from crowdrank.consensus.held_out import HeldOutFolds, Score, count_comparable_pairs
from crowdrank.consensus.posterior_check import check
from crowdrank.errors import InputError, UsageError
from crowdrank.evaluation.evaluate import evaluate
from experiments.auto import Outcome, Setting, outcome, regret_table, scores_table
from experiments.base import quiet
from terminal import crowdrank

FAST = ("majority", "average", "bwa", "dawid-skene", "gda")


def chosen(model: Auto) -> dict[str, str]:
    return {row["method"]: row["chosen_for"] for row in model.choice_table_.to_pylist() if row["chosen_for"]}


def copies(seed: int, copied: int = 12) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Three careful assessors of three families, and one poor one with many copies in a fourth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, 240)
    query = np.arange(240) // 12
    poor = np.where(rng.random(240) < 0.35, truth, rng.integers(0, 4, 240))
    answers = {
        f"good{n}": ("family" + str(n), np.clip(truth + rng.choice([-1, 0, 0, 0, 1], 240), 0, 3)) for n in range(3)
    }
    for n in range(copied):
        answers[f"copy{n}"] = ("copies", np.where(rng.random(240) < 0.95, poor, rng.integers(0, 4, 240)))
    frames = [
        pd.DataFrame({"query": query, "document": np.arange(240), "assessor": who, "family": family, "grade": grade})
        for who, (family, grade) in answers.items()
    ]
    gold = pd.DataFrame({"query": query, "document": np.arange(240), "grade": truth}).astype({"query": str})
    return pd.concat(frames), gold.astype({"document": str})


# The choice.


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_copies_do_not_vote_for_themselves(seed: int) -> None:
    frame, gold = copies(seed)
    model = Auto(candidates=("majority", "average", "family-mean", "dawid-skene")).fit(frame)
    assert model.reason_.ranking in ("family-mean", "dawid-skene")  # both use the families
    assert (model.reason_.n_folds, model.reason_.unit) == (4, "family")
    # Without families the copies predict each other.
    blind = Auto(candidates=("majority", "average", "dawid-skene")).fit(frame.drop(columns="family"))
    outvoted = DawidSkene(families="none").fit(frame)
    tau, *worse = (evaluate(one.consensus_.documents, gold, ["Tau"]).means["Tau"] for one in (model, blind, outvoted))
    assert tau > max(worse) + 0.1


@pytest.mark.parametrize("seed", [11])
def test_the_choice_is_near_the_best(seed: int) -> None:
    world = simulate(queries=40, random_state=seed)
    one = Setting("a world", read_judgments(world.judgments), world.gold, ("AP(rel=2)", "Tau"))
    found = outcome(one, FAST, tell=quiet)
    worst = min(row["Tau"] for row in found.runs.values())
    assert found.regret("Tau") < 0.02 < found.best("Tau")[1] - worst
    regret = regret_table([one], {"a world": found})
    assert regret.row("mean")["regret"] == pytest.approx(np.mean([found.regret("AP(rel=2)"), found.regret("Tau")]))
    assert [row["run"] for row in scores_table(one, found).rows] == list(FAST)


@pytest.mark.parametrize(("n_folds", "is_clear"), [(3, False), (5, True), (30, True)])
def test_few_folds_need_a_larger_difference(n_folds: int, is_clear: bool) -> None:
    difference = np.linspace(-1.0, 1.0, n_folds)
    standard_error = difference.std(ddof=1) / np.sqrt(n_folds)
    better, worse = Score(0.0, difference + 1.2 * standard_error), Score(0.0, np.zeros(n_folds))
    assert better.is_clearly_above(worse) == is_clear


def test_regret_knows_which_way_is_better() -> None:
    runs = {"a": {"GradeMAE": 0.2}, "b": {"GradeMAE": 0.5}, "auto": {"GradeMAE": 0.3}}
    assert Outcome(Auto(), runs, ()).best("GradeMAE") == ("a", 0.2)
    assert Outcome(Auto(), runs, ()).regret("GradeMAE") == pytest.approx(0.1)


@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 1000))
def test_order_and_names_do_not_matter(seed: int) -> None:
    frame = simulate(queries=6, documents=8, assessors=12, random_state=seed).judgments[
        ["query", "document", "assessor", "grade"]
    ]
    one = Auto(candidates=FAST).fit(frame)
    assessors = frame["assessor"].unique()
    number = dict(zip(assessors, np.random.default_rng(seed).permutation(len(assessors)), strict=True))
    named = frame.assign(assessor=[f"{number[who]}-{who}" for who in frame["assessor"]])
    other = Auto(candidates=FAST).fit(named.sample(frac=1, random_state=seed))
    assert chosen(one) == chosen(other)
    for column in ("ranking", "grades"):
        assert one.choice_[column].to_numpy() == pytest.approx(other.choice_[column].to_numpy(), abs=1e-6)


def test_results_are_those_of_the_chosen_models() -> None:
    world = simulate(queries=30, documents=10, random_state=5)
    model = Auto(candidates=FAST, interval=0.5).fit(world.judgments)
    documents = model.consensus_.documents
    by_rank, by_grade = (one.consensus_.documents for one in (model.ranking_estimator_, model.grade_estimator_))
    assert documents[["relevance", "sd", "lower", "upper"]].equals(by_rank[["relevance", "sd", "lower", "upper"]])
    assert documents[["grade", "p0", "p4"]].equals(by_grade[["grade", "p0", "p4"]])
    assert model.ranking_estimator_.interval == 0.5
    assert model.posterior().equals(model.ranking_estimator_.posterior())
    curves = model.assessor_estimator_.grade_curves()
    assert model.grade_curves().equals(curves)
    assert model.answer_states() is not None
    assert check(model, model.judgments_).log_score == check(model.assessor_estimator_, model.judgments_).log_score


@pytest.mark.parametrize("n_iter", [0, 3])
def test_added_judgments_update_the_chosen_models_without_a_new_choice(n_iter: int) -> None:
    frame = simulate(queries=20, documents=10, random_state=5).judgments[["query", "document", "assessor", "grade"]]
    old = frame["query"].isin(frame["query"].unique()[:15])
    model = Auto(candidates=FAST).fit(frame[old])
    table, estimators = model.choice_table_, (type(model.ranking_estimator_), type(model.grade_estimator_))
    alone = type(model.ranking_estimator_)().fit(frame[old]).add(frame[~old], n_iter=n_iter)
    model.add(frame[~old], n_iter=n_iter)
    assert model.choice_table_ is table
    assert (type(model.ranking_estimator_), type(model.grade_estimator_)) == estimators
    documents = model.consensus_.documents
    assert documents["relevance"].equals(alone.consensus_.documents["relevance"])
    assert len(documents) == len(frame.drop_duplicates(["query", "document"]))
    assert len(model.judgments_) == len(model.grade_estimator_.judgments_) == len(frame)
    assert set(model.infer(frame).documents["document"]) == set(documents["document"])


def test_fit_starts_from_the_models_of_another_auto() -> None:
    frame = simulate(queries=10, random_state=1).judgments
    first = Auto(candidates=("dawid-skene",)).fit(frame)
    again = Auto(candidates=("dawid-skene",)).fit(frame, init=first)
    assert again.ranking_estimator_.n_iter_ < first.ranking_estimator_.n_iter_


def test_the_table_has_every_candidate_and_says_who_was_left_out() -> None:
    frame = simulate(queries=10, random_state=1).judgments[["query", "document", "assessor", "grade"]]
    table = Auto().fit(frame).choice_.set_index("method")
    assert list(table.index) == list(CANDIDATES)
    assert table.loc["family-mean", "note"] == "left out: there are no families"
    assert table.loc["gda-unjudgeable", "note"].startswith("left out: there is no 'cannot judge' answer")
    assert table["ranking"].notna().sum() == len(CANDIDATES) - 2
    assert " and ".join(table["chosen_for"][table["chosen_for"] != ""]).split(" and ") in (
        ["ranking", "grades"],
        ["grades", "ranking"],
    )


def test_a_candidate_that_cannot_take_the_judgments_is_left_out() -> None:
    frame = simulate(queries=10, random_state=1).judgments[["query", "document", "assessor", "grade"]]
    broken = frame.assign(grade=np.where(np.arange(len(frame)) % 9, frame["grade"], -2))
    judgments = read_judgments(broken, unjudgeable=-2)
    model = Auto(candidates=("average", "dawid-skene", "gda"), unjudgeable_as="model").fit(judgments)
    assert chosen(model) == {"gda": "ranking and grades"}
    assert model.choice_["note"].str.contains("unjudgeable_as must be one of lowest, drop").tolist() == [
        True,
        True,
        False,
    ]
    with pytest.raises(InputError) as caught:
        Auto(candidates=("average",), unjudgeable_as="model").fit(judgments)
    assert (caught.value.kind, caught.value.fix.parameter) == ("no-candidate", "candidates")  # type: ignore[union-attr]
    both = Auto(candidates=("gda", "gda-unjudgeable")).fit(judgments)
    assert both.choice_["ranking"].notna().all()
    dropped = Auto(candidates=("gda", "gda-unjudgeable"), unjudgeable_as="drop").fit(judgments)
    assert chosen(dropped) == {"gda": "ranking and grades"}
    assert dropped.consensus_.documents["relevance"].equals(
        GDA(unjudgeable_as="drop").fit(judgments).consensus_.documents["relevance"]
    )


@pytest.mark.parametrize(
    "keep",
    [
        pytest.param(lambda frame: frame.sort_values(["query", "document"]).head(8), id="eight judgments"),
        pytest.param(lambda frame: frame.assign(family="one"), id="one family"),
    ],
)
def test_the_default_is_used_if_there_are_too_few_judgments(keep: Any) -> None:
    frame = keep(simulate(queries=10, random_state=2).judgments[["query", "document", "assessor", "grade"]])
    model = Auto().fit(frame)
    assert chosen(model) == {"gda": "ranking and grades"}
    assert (model.reason_.ranking, model.reason_.n_candidates) == ("gda", 0)
    assert str(model.reason_).startswith("gda is the default for these judgments. ")
    assert model.choice_["ranking"].isna().all()
    assert model.consensus_.documents.equals(GDA().fit(frame).consensus_.documents)
    assert chosen(Auto(candidates=("bwa", "average")).fit(frame)) == {"bwa": "ranking and grades"}


@pytest.mark.parametrize(
    "keep",
    [
        pytest.param(lambda frame: frame.drop_duplicates(["query", "document"]), id="one judgment per document"),
        pytest.param(lambda frame: frame[frame["assessor"] == frame["assessor"].iloc[0]], id="one assessor"),
    ],
)
def test_the_average_is_used_if_no_document_was_judged_twice(keep: Any) -> None:
    frame = keep(simulate(queries=10, random_state=2).judgments[["query", "document", "assessor", "grade"]])
    model = Auto().fit(frame)
    assert chosen(model) == {"average": "ranking and grades"}
    assert model.reason_ == ChoiceReason("average", "average")


def test_without_pairs_of_documents_grades_decide() -> None:
    frame = simulate(queries=20, documents=10, random_state=3).judgments[["document", "assessor", "grade"]]
    alone = frame.assign(query=frame["document"])  # every document is a query of its own
    model = Auto(candidates=("average", "dawid-skene")).fit(alone)
    assert list(chosen(model).values()) == ["ranking and grades"]
    assert not model.reason_.ranked
    assert model.choice_["ranking"].isna().all()
    assert "too few pairs of documents to compare rankings" in str(model.reason_)


def test_rankings_are_compared_within_one_query() -> None:
    frame = simulate(queries=1, documents=60, labels=6, random_state=5).judgments[["document", "assessor", "grade"]]
    model = Auto(candidates=("majority", "gda")).fit(frame)
    assert model.reason_.ranked
    assert model.choice_["ranking"].between(np.log(0.3), 0.0).all()


def test_folds_are_compared_if_assessors_have_one_document_per_query() -> None:
    frame = simulate(queries=60, documents=10, labels=4, assessors=80, random_state=4).judgments
    once = frame.drop_duplicates(["query", "assessor"])
    folds = HeldOutFolds.split(read_judgments(once), 5)
    assert folds.has_pairs
    query = folds.judgments.item_query[folds.item]
    assert (folds.group == folds.fold * folds.judgments.n_queries + query).all()
    model = Auto(candidates=("majority", "gda")).fit(once)
    assert model.choice_["ranking"].between(np.log(0.3), -0.1).all()


@pytest.mark.parametrize(
    ("options", "parameter", "kind"),
    [
        ({"candidates": "gda"}, "candidates", "usage"),
        ({"candidates": ()}, "candidates", "usage"),
        ({"candidates": ("gda", "auto")}, None, "unknown-name"),
        ({"folds": 1}, "folds", "invalid-parameter"),
        ({"folds": True}, "folds", "invalid-parameter"),
    ],
)
def test_invalid_parameters(options: dict[str, Any], parameter: str | None, kind: str) -> None:
    with pytest.raises(UsageError) as caught:
        Auto(**options).fit(pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": [1]}))
    assert (caught.value.parameter, caught.value.kind) == (parameter, kind)


def test_a_checkpoint_is_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": [1]})
    with pytest.raises(UsageError) as caught:
        Auto().fit(frame, checkpoint=tmp_path / "state")
    assert caught.value.parameter == "checkpoint"


def test_the_choice_is_saved(tmp_path: Path) -> None:
    model = Auto(candidates=FAST).fit(simulate(queries=10, random_state=1).judgments)
    model.save(tmp_path / "model")
    loaded = Auto.load(tmp_path / "model")
    assert loaded.choice_.equals(model.choice_)
    assert loaded.reason_ == model.reason_
    assert type(loaded.grade_estimator_) is type(model.grade_estimator_)


def test_the_command_line_shows_the_choice(tmp_path: Path) -> None:
    simulate(queries=10, random_state=1).judgments.to_csv(tmp_path / "labels.csv", index=False)
    words = ["aggregate", "labels.csv", "-m", "auto", "-s", 'candidates=["average", "gda"]']
    text = crowdrank(*words, cwd=tmp_path).stdout
    assert "Log score of held-out judgments" in text
    result = json.loads(crowdrank(*words, "--json", cwd=tmp_path).stdout)
    assert [row["method"] for row in result["choice"]] == ["average", "gda"]
    assert result["reason"]["n_candidates"] == 2
    assert str(ChoiceReason(**result["reason"])) in text


# Scores, against slow references.


def test_whole_families_are_held_out_in_folds_of_about_one_size() -> None:
    judgments = read_judgments(simulate(queries=30, assessors=40, families=6, random_state=1).judgments)
    fold, family = held_out.assign_folds(judgments, 3), judgments.family_of[judgments.assessor]
    assert all(len(set(fold[family == one])) == 1 for one in np.unique(family))
    alone = read_judgments(simulate(queries=30, assessors=40, random_state=1).judgments)
    sizes = np.bincount(held_out.assign_folds(alone, 5))
    assert sizes.max() < 1.3 * sizes.min()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 12), bins=st.integers(1, 5))
def test_tied_items_share_their_places(seed: int, n: int, bins: int) -> None:
    rng = np.random.default_rng(seed)
    relevance, query = rng.integers(0, 4, n).astype(float), np.sort(rng.integers(0, 2, n))
    found = held_out.rank_bin_memberships(relevance, query, bins)
    for item in range(n):
        mine = np.flatnonzero(query == query[item])
        below, tied = (relevance[mine] < relevance[item]).sum(), (relevance[mine] == relevance[item]).sum()
        # Places are spread evenly over the tie: sample them finely.
        places = (below + (np.arange(6000) + 0.5) / 6000 * tied) / len(mine)
        expected = np.bincount(np.minimum((places * bins).astype(int), bins - 1), minlength=bins) / 6000
        assert found[item] == pytest.approx(expected, abs=2e-3)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 15))
def test_pairs_are_counted_as_one_by_one(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    group = np.unique(rng.integers(0, 3, n), return_inverse=True)[1]
    answer, item = rng.integers(0, 4, n), rng.integers(0, 6, n)
    place = rng.integers(0, 3, 6)[item]
    found = held_out.pair_counts(group, item, answer, np.eye(3)[place], 4)
    expected = np.zeros_like(found)
    counted = [
        (i, j)
        for i, j in combinations(range(n), 2)
        if group[i] == group[j] and answer[i] != answer[j] and item[i] != item[j]
    ]
    for i, j in counted:
        high, low = (i, j) if answer[i] > answer[j] else (j, i)
        expected[group[i], place[high] - place[low] + 2] += 1 / max((group == group[i]).sum() - 1, 1)
    assert found == pytest.approx(expected)
    assert count_comparable_pairs(group, item, answer.astype(np.int8)) == len(counted)


def test_pairs_are_scored_by_the_other_folds() -> None:
    pairs = np.array([[1.0, 2.0, 5.0], [3.0, 1.0, 4.0], [0.0, 1.0, 9.0]])
    fold, weight = np.array([0, 1, 1]), np.array([1.0, 2.0, 1.0])
    right = [(2 * 4 + 9 + 0.5) / (2 * 7 + 9 + 1), (5 + 0.5) / (6 + 1)]  # learned from fold 1, from fold 0
    gained = 5 * np.log(right[0]) + np.log(1 - right[0]) + 2 * np.log(0.5)
    gained += (2 * 4 + 9) * np.log(right[1]) + 2 * 3 * np.log(1 - right[1]) + (2 * 1 + 1) * np.log(0.5)
    score, by_fold = held_out.score_pairs(pairs, fold, weight)
    assert score == pytest.approx(gained / (8 + 2 * 8 + 10))
    assert by_fold @ [8, 2 * 8 + 10] == pytest.approx(gained)


def test_grades_are_scored_by_the_loss_of_their_rule() -> None:
    rng = np.random.default_rng(0)
    truth, assessor = rng.integers(0, 4, 4000), rng.integers(0, 20, 4000)
    answer = np.clip(truth + rng.choice([-1, 0, 0, 0, 1], 4000), 0, 3)
    wrong = rng.random(4000) < 0.3
    step = np.where(truth < 2, truth + 1, truth - 1)
    far = np.where(truth < 2, truth + 2, truth - 2)
    rarely_far = np.where(wrong & (rng.random(4000) < 0.5), far, truth)  # fewer errors, but larger ones
    often_near = np.where(wrong, step, truth)

    def score(grade: Any, rule: str) -> float:
        counts = held_out.answer_counts(assessor, answer, grade, 20, 4)
        return held_out.score_grades(counts, np.arange(20) % 2, np.ones(20), rule)[0]

    assert score(rarely_far, "mode") > score(often_near, "mode")
    assert score(often_near, "mean") > score(rarely_far, "mean")


def test_of_about_equally_good_grades_those_with_the_better_ranking_are_chosen() -> None:
    spread = np.array([-0.1, 0.1, 0.0, -0.05, 0.05])
    means = {"gda": (-1.0, -0.6), "threshold-dawid-skene": (-1.01, -0.5), "average": (-3.0, -0.1)}
    errors = {"gda": 0.0, "threshold-dawid-skene": 1.0, "average": 1.0}
    grades = {name: Score(mean, mean + errors[name] * spread) for name, (mean, _) in means.items()}
    ranking = {name: Score(mean, mean + spread) for name, (_, mean) in means.items()}
    assert order_by_grades(grades, ranking) == ["threshold-dawid-skene", "gda", "average"]


def test_the_reason_says_that_the_ranking_decided() -> None:
    reason = ChoiceReason("gda", "dawid-skene", "rasch", "gda", best_grades=False, n_candidates=3, n_folds=5)
    assert "dawid-skene predicts the grades they give about as well as gda, and preferences better" in str(reason)


def test_grades_are_taken_by_their_word() -> None:
    rng = np.random.default_rng(0)
    truth, assessor = rng.integers(0, 4, 2000), rng.integers(0, 20, 2000)
    answer = np.where(rng.random(2000) < 0.7, truth, rng.integers(0, 4, 2000))
    shifted, noisy = np.minimum(truth + 1, 3), np.where(rng.random(2000) < 0.2, rng.integers(0, 4, 2000), truth)
    score = {
        name: held_out.score_grades(
            held_out.answer_counts(assessor, answer, grade, 20, 4), np.arange(20) % 2, np.ones(20)
        )[0]
        for name, grade in {"true": truth, "noisy": noisy, "a step too high": shifted, "none": 0 * truth}.items()
    }
    assert score["true"] > score["noisy"] > score["a step too high"]
    assert score["noisy"] > score["none"]
    # 70% known and a quarter of the rest by luck: what a perfect grade can reach.
    best = 0.775 * np.log(0.775) + 0.225 * np.log(0.075)
    assert score["true"] == pytest.approx(best, abs=0.05)
