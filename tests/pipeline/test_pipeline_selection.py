"""Candidates, their selection, and that nothing leaks from held-out queries."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import crowdrank
from crowdrank.errors import UsageError
from crowdrank.label_learning.remapped_labels import rescale_labels
from crowdrank.pipeline import training_view
from crowdrank.pipeline.candidates import BY_NAME, TREE_FEATURES, Candidate, choose_candidates, lambdamart
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.dry_run import count_fits
from crowdrank.pipeline.ensembles import CROWD, EXPERT, WEIGHTED
from crowdrank.pipeline.run_data import MAX_SHARED_MATRICES, RunData, build_run_data
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.selection import (
    ExpertScorer,
    ExpertSplit,
    SelectionResult,
    choose_forest,
    refit,
    select_candidate,
    select_or_default,
    split_expert_queries,
    train_and_select,
)
from crowdrank.pipeline.stage_cache import StageCache
from crowdrank.pipeline.training import CandidateTraining
from crowdrank.pipeline.training_view import RemapperKind, TrainingView
from crowdrank.rankers.ensemble import EQUAL_WEIGHT_PRIOR_QUERIES, shrunk_weights
from crowdrank.rankers.lambdamart import LambdaMART
from crowdrank.rankers.linear import AUTO_TREES, GLS
from crowdrank.rankers.model_selection import Validation
from crowdrank.rankers.ranker import Ranker
from crowdrank.rankers.training_data import RankingData
from crowdrank.simulation.world import World

FEW: list[str | Candidate] = ["majority", "average", "gls", "expert-only"]
TREES = {"n_estimators": 10}


@pytest.fixture(scope="module")
def world() -> World:
    return crowdrank.simulate(queries=40, documents=10, gold_queries=18, random_state=1)


def data_of(world: World) -> RunData:
    return build_run_data(world.judgments, world.features, world.gold)


def training_on(data: RunData, settings: RunSettings) -> CandidateTraining:
    return CandidateTraining(data, ConsensusFits(data, StageCache(None)), settings, StageCache(None))


def selected(
    data: RunData, candidates: list[str | Candidate], settings: RunSettings, split: ExpertSplit
) -> SelectionResult:
    named = [BY_NAME[one] if isinstance(one, str) else one for one in candidates]
    return train_and_select(training_on(data, settings), named, split)


@pytest.mark.parametrize(("n", "folds", "test"), [(6, 0, 6), (7, 2, 2)])
def test_seven_expert_queries_are_enough_for_selection_and_test(n: int, folds: int, test: int) -> None:
    split = split_expert_queries(np.arange(n), RunSettings())
    assert (len(split.folds), len(split.test)) == (folds, test)


def test_no_candidate_is_trained_on_queries_it_is_evaluated_on(world: World) -> None:
    data, settings = data_of(world), RunSettings(trees=TREES)
    seen: list[tuple[set[int], set[int]]] = []

    def spying(view: Any) -> Ranker:
        crowd, expert = (set(data.query[rows].tolist()) for rows in (view.crowd, view.experts))
        seen.append((crowd, expert))
        return BY_NAME["average"].fit(view)

    spy = Candidate("average", "", spying, ("average",), experts=True)
    parts = split_expert_queries(data.graded_queries, settings)
    selected(data, [spy, "majority"], settings, parts)
    test, development = set(parts.test.tolist()), set(parts.development.tolist())
    folds = [set(fold.tolist()) for fold in parts.folds]
    pairs = list(combinations(range(len(folds)), 2))
    assert len(seen) == 1 + len(folds) + len(pairs) == count_fits(spy, parts, True, RunSettings(refit=False))
    for crowd, expert in seen:
        assert not crowd & test
        assert not expert & test
        assert expert <= development
    unseen = [[k for k, fold in enumerate(folds) if not (crowd | expert) & fold] for crowd, expert in seen]
    assert sorted(unseen, key=lambda one: (len(one), one)) == [[], *([k] for k in range(len(folds))), *map(list, pairs)]


def test_progress_reaches_the_end_if_a_candidate_fails(world: World) -> None:
    def fail(view: Any) -> Ranker:
        raise UsageError("cannot be fitted here")

    data, settings = data_of(world), RunSettings(trees=TREES)
    steps: list[tuple[int, int]] = []
    split = split_expert_queries(data.graded_queries, settings)
    outcome = train_and_select(
        training_on(data, settings),
        [BY_NAME["average"], Candidate("failing", "", fail, ("average",), experts=True)],
        split,
        lambda step, most, measure: steps.append((step, most)),
    )
    assert set(outcome.failed) == {"failing"}
    assert steps[-1][0] == steps[-1][1]


def test_grades_of_test_queries_change_neither_scores_nor_selection(world: World) -> None:
    settings = RunSettings(trees=TREES, linear={"n_iter": 3, "ridge": 0.1})
    names: list[str | Candidate] = ["majority", "gda", "linear-remap", "crowd-and-expert", "expert-only"]
    data = data_of(world)
    parts = split_expert_queries(data.graded_queries, settings)
    scrambled = data.expert.copy()
    rows = np.flatnonzero(np.isin(data.query, parts.test) & ~np.isnan(scrambled))
    scrambled[rows] = np.random.default_rng(0).permutation(scrambled[rows])
    outcomes = []
    for expert in (data.expert, scrambled):
        outcomes.append(selected(replace(data, expert=expert), names, settings, parts))
    assert not outcomes[0].failed
    for name, score in outcomes[0].scores.items():
        np.testing.assert_array_equal(score, outcomes[1].scores[name], err_msg=name)
    assert outcomes[0].chosen == outcomes[1].chosen


@pytest.mark.parametrize(
    "names",
    [
        ["majority", "average", "gls"],
        ["majority", "expert-only", "best-feature"],
        ["majority", "linear-gls", "crowd-and-expert"],
    ],
)
def test_grades_of_a_fold_change_no_score_and_no_weight_of_the_fold(world: World, names: list[str | Candidate]) -> None:
    data, settings = data_of(world), RunSettings(trees=TREES, folds=3, linear={"n_iter": 3, "ridge": 0.1})
    parts = split_expert_queries(data.graded_queries, settings)
    rows = data.graded_rows(parts.folds[0])
    reversed_grades = data.expert.copy()
    reversed_grades[rows] = reversed_grades[rows].max() - reversed_grades[rows]
    one, two = (
        selected(replace(data, expert=expert), names, settings, parts) for expert in (data.expert, reversed_grades)
    )
    fold, others = data.rows_of(parts.folds[0]), data.rows_of(np.concatenate(parts.folds[1:]))
    assert not one.failed
    for name, score in one.scores.items():
        np.testing.assert_array_equal(score[fold], two.scores[name][fold], err_msg=name)
    for name, weights in one.fold_weights.items():
        np.testing.assert_array_equal(weights[0], two.fold_weights[name][0], err_msg=name)
    assert (one.fold_weights[WEIGHTED][1:] != two.fold_weights[WEIGHTED][1:]).any(), "the grades are used elsewhere"
    assert len(set(one.fold_weights[WEIGHTED][0])) > 1, "the weights of the fold are chosen"
    assert (one.scores[WEIGHTED][others] != two.scores[WEIGHTED][others]).any()


def test_weights_are_equal_if_no_model_has_seen_neither_of_two_folds(world: World) -> None:
    data, settings = data_of(world), RunSettings(trees=TREES, folds=2)
    outcome = selected(data, FEW, settings, split_expert_queries(data.graded_queries, settings))
    assert not outcome.failed
    np.testing.assert_array_equal(outcome.fold_weights[WEIGHTED], np.full((2, 4), 0.25))
    np.testing.assert_array_equal(outcome.fold_weights[EXPERT], np.full((2, 2), 0.5))
    assert len(set(outcome.weights[WEIGHTED].values())) > 1, "the final weights are chosen"


def test_crowd_candidate_is_trained_once_if_no_fold_hides_a_label(world: World) -> None:
    graded = set(world.gold["query"])
    apart = world.judgments[~world.judgments["query"].isin(graded)]
    data, settings = build_run_data(apart, world.features, world.gold), RunSettings(trees=TREES)
    counted: list[int] = []

    def counting(view: Any) -> Ranker:
        counted.append(1)
        return BY_NAME["average"].fit(view)

    split = split_expert_queries(data.graded_queries, settings)
    selected(data, [replace(BY_NAME["average"], fit=counting), "expert-only"], settings, split)
    assert len(counted) == 1


@pytest.mark.parametrize("kind", ["linear", "boosted"])
def test_least_squares_on_remapped_labels_equals_ranker_of_remapper(world: World, kind: RemapperKind) -> None:
    options = {"n_iter": 5, "ridge": 0.1}
    data, settings = (
        data_of(world),
        RunSettings(linear=options, boosted=options),
    )
    view = training_on(data, settings).view(*split_expert_queries(data.graded_queries, settings).without())
    ranker = BY_NAME[f"{kind}-gls"].fit(view)
    own = view.remapper(kind).ranker_
    known = data.features
    # But for the weights that features are standardized with, and so what the ridge weighs, they are the same.
    assert np.corrcoef(ranker.predict(known), own.predict(known))[0, 1] > 0.9999


@pytest.mark.parametrize("kind", ["linear", "boosted"])
def test_least_squares_on_remapped_labels_has_the_trees_of_the_remapper(world: World, kind: RemapperKind) -> None:
    options = {"n_iter": 5, "ridge": 0.1, "tree_features": 5}
    data, settings = data_of(world), RunSettings(linear=options, boosted=options)
    view = training_on(data, settings).view(*split_expert_queries(data.graded_queries, settings).without())
    ranker, own = BY_NAME[f"{kind}-gls"].fit(view), view.remapper(kind).ranker_
    assert isinstance(ranker, GLS)
    assert ranker.tree_features_ is own.tree_features_
    assert len(ranker.coef_) == data.features.matrix.shape[1] + 5
    assert np.corrcoef(ranker.predict(data.features), own.predict(data.features))[0, 1] > 0.999


@pytest.mark.parametrize("factor", [1.0, -1.0])
def test_forest_is_trained_on_learned_labels_only_if_they_are_better(
    world: World, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    data, settings = data_of(world), RunSettings(linear={"n_iter": 2, "ridge": 0.1}, trees=TREES)
    view = training_on(data, settings).view(*split_expert_queries(data.graded_queries, settings).without())
    truth = factor * np.nan_to_num(data.expert, nan=0.0)[view.crowd]  # the best or the worst labels
    monkeypatch.setattr(TrainingView, "remapped_labels", lambda *_, **__: (truth, np.ones(len(truth))))
    start = view.starting_labels("linear")
    assert np.allclose(start[1], 0.5 * data.n_labels[view.crowd])
    expected = rescale_labels(truth, np.ones(len(truth))) if factor > 0 else rescale_labels(*start)
    ranker = BY_NAME["linear-remap"].fit(view)
    alone = view.fit(lambdamart, view.crowd, *expected)
    assert np.array_equal(ranker.predict(data.features), alone.predict(data.features))


def test_number_of_trees_is_chosen_if_there_are_validation_queries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, settings = data_of(world), RunSettings(linear={"n_iter": 2, "ridge": 0.1})
    view = training_on(data, settings).view(*split_expert_queries(data.graded_queries, settings).without())
    fixed = BY_NAME["gls-trees"].fit(view)
    assert isinstance(fixed, GLS)
    assert fixed.tree_features_ is not None
    assert fixed.tree_features_.n_trees_ == TREE_FEATURES
    monkeypatch.setattr(training_view, "MIN_QUERIES_FOR_VALIDATION", 1)
    chosen = BY_NAME["gls-trees"].fit(view)
    assert chosen.get_params()["tree_features"] == "auto"
    assert chosen.validation_queries_
    assert view.remapper("linear", tree_features="auto").best_params_["tree_features"] in AUTO_TREES
    n_trees = int(view.remapper("linear", tree_features="auto").best_params_["tree_features"])
    assert len(BY_NAME["remap-trees"].fit(view).coef_) == data.features.matrix.shape[1] + n_trees  # type: ignore[attr-defined]


def test_early_stopping_has_queries_of_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[tuple[list[int], list[int]]] = []
    fit = GLS.fit

    def recording(ranker: GLS, *arguments: Any, **options: Any) -> GLS:
        fits.append(tuple(np.unique(query).tolist() for query in (options["query"], options["eval_set"][2])))
        return fit(ranker, *arguments, **options)

    monkeypatch.setattr(training_view, "MIN_QUERIES_FOR_VALIDATION", 1)
    monkeypatch.setattr(GLS, "fit", recording)
    data, settings = data_of(world), RunSettings()
    split = split_expert_queries(data.graded_queries, settings)
    for _ in range(2):
        view = training_on(data, settings).view(*split.without())
        BY_NAME["gls"].fit(view)
    train, validation = fits[0]
    assert validation
    assert not set(train) & set(validation)
    assert sorted(train + validation) == np.unique(data.query[view.crowd]).tolist()
    assert fits[0] == fits[1], "the queries depend on the seed alone"


def test_remappers_of_a_result_have_names_of_their_own(world: World) -> None:
    data, settings = data_of(world), RunSettings(linear={"n_iter": 2, "ridge": 0.1}, trees=TREES)
    names: list[str | Candidate] = ["majority", "linear-gls", "linear-remap", "remap-trees"]
    split = split_expert_queries(data.graded_queries, settings)
    remappers = selected(data, names, settings, split).remappers
    assert list(remappers) == ["linear", "remap-trees"]
    assert [remapper.tree_features for remapper in remappers.values()] == [0, "auto"]
    known = {str(data.query_ids[query].as_py()) for query in split.development.tolist()}
    assert all(set(remapper.ranker_.validation_queries_) == known for remapper in remappers.values())


def test_remapper_is_fitted_to_a_sample_of_many_labels(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(training_view, "MAX_LABELS_PER_DOCUMENT", 2)
    monkeypatch.setattr(training_view, "MAX_DOCUMENTS", 100)
    data, settings = (
        data_of(world),
        RunSettings(linear={"n_iter": 3, "ridge": 0.1}, trees=TREES),
    )
    view = training_on(data, settings).view(*split_expert_queries(data.graded_queries, settings).without())
    some = view.remapper_sample("remap")
    assert np.diff(some.judgments.offsets).max() == 2
    assert some.judgments.n_items == 100
    assert len(view.remap("linear").target) == int(data.n_labels[view.crowd].sum()), "all labels are remapped"


def test_ensemble_scores_equal_predictions_of_ensemble(world: World) -> None:
    data, settings = data_of(world), RunSettings(trees=TREES)
    outcome = selected(data, FEW, settings, split_expert_queries(data.graded_queries, settings))
    rows = data.rows_of(outcome.split.test)
    known = data.features.take(rows)
    assert outcome.weights
    for name in outcome.weights:
        np.testing.assert_allclose(
            outcome.ranker(name).predict(known, known.query), outcome.scores[name][rows], atol=1e-9, err_msg=name
        )


def test_expert_scorer_agrees_with_evaluate(world: World) -> None:
    data = data_of(world)
    score = np.random.default_rng(0).normal(size=len(data.query))
    frame = world.features[["query", "document"]].assign(score=score)
    planted = world.documents.loc[world.documents["honeypot"], "document"]
    gold = world.gold[~world.gold["document"].isin(planted)]
    found = crowdrank.evaluate(frame, gold, "nDCG@10", unjudged="skip").means["nDCG@10"]
    judge = ExpertScorer(data, data.graded_queries, RunSettings())
    assert judge.values(score).mean() == pytest.approx(found)


def test_safe_candidate_is_selected_unless_another_leads_clearly() -> None:
    rng = np.random.default_rng(0)
    safe = rng.uniform(0.3, 0.9, 30)
    noisy = safe + rng.normal(0.01, 0.2, 30)
    better = safe + rng.normal(0.1, 0.02, 30)
    assert select_candidate({WEIGHTED: safe, "noisy": noisy}).name == WEIGHTED
    assert select_candidate({WEIGHTED: safe, "noisy": noisy, "better": better}).name == "better"


def test_without_values_the_crowd_ensemble_or_a_preferred_forest_is_selected() -> None:
    choice = select_or_default({}, 3)
    assert choice.name == CROWD
    assert choose_forest(["average", "gda"], {}, choice).name == "gda"
    assert choose_forest(["average"], {}, choice).name == "average"
    with pytest.raises(UsageError) as error:
        choose_forest([], {}, choice)
    assert error.value.parameter == "deployable"


def test_the_best_forest_is_selected() -> None:
    values = {"average": np.array([0.4, 0.5]), "gda": np.array([0.3, 0.5]), CROWD: np.array([0.6, 0.6])}
    choice = select_or_default(values, 2)
    assert choice.name == CROWD
    assert choose_forest(["average", "gda"], values, choice).name == "average"


def test_ensemble_weights_are_shrunk_towards_uniform() -> None:
    def found(n: int) -> tuple[float, float]:
        rng = np.random.default_rng(1)
        y, query = rng.integers(0, 3, 10 * n), np.repeat(np.arange(n), 10)
        votes = np.stack([y + rng.normal(0, 0.5, 10 * n), rng.normal(0, 1, 10 * n), rng.normal(0, 1, 10 * n)])
        lists = RankingData.from_ids(votes.T, y, query)
        weights = shrunk_weights(votes, Validation(lists), steps=10)
        assert weights.sum() == pytest.approx(1)
        return float(weights[0]), float(weights.min())

    few, many = found(4), found(400)
    assert 1 / 3 < few[0] < 0.5
    equal_part = EQUAL_WEIGHT_PRIOR_QUERIES / (4 + EQUAL_WEIGHT_PRIOR_QUERIES) / 3
    assert few[1] > equal_part - 1e-9  # it is never taken away
    assert many[0] > 0.85


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_progress_increases_to_the_end(world: World, n_jobs: int) -> None:
    data, settings = data_of(world), RunSettings(trees=TREES, folds=2, n_jobs=n_jobs)
    training, split = training_on(data, settings), split_expert_queries(data.graded_queries, settings)
    candidates = [BY_NAME[name] for name in ("majority", "expert-only")]
    shares: list[float] = []

    def report(done: int, most: int, measure: float) -> None:
        shares.append(done / most)

    outcome = train_and_select(training, candidates, split, report)
    n_shares = len(shares)
    refit(training, outcome, WEIGHTED, report)
    for part in (shares[:n_shares], shares[n_shares:]):
        assert part == sorted(part)
        assert part[-1] == 1
        assert len(part) > 6, "fits report their progress"


def test_reasons_of_skipped_candidates(world: World) -> None:
    data = build_run_data(world.judgments, world.features)
    kept, out = choose_candidates(data, None, thorough=True)
    expected = {name for name, candidate in BY_NAME.items() if not candidate.needs_preferences}
    assert {candidate.name for candidate in kept} | set(out) == expected, "without preferences those are not named"
    assert out["expert-only"] == "there are no expert grades"


def test_items_of_the_data_are_those_of_label_features_and_models(world: World) -> None:
    """Rankers and remappers find labels by item codes, without ids."""
    grade = world.judgments["grade"]
    judgments = crowdrank.read_judgments(
        world.judgments.assign(grade=grade.where(grade.index % 9 > 0, -2)), grades="0-4", unjudgeable="-2"
    )
    for unjudgeable_as in ("lowest", "drop", "model"):
        data = build_run_data(judgments, world.features, world.gold, unjudgeable_as=unjudgeable_as)
        assert data.labels is not data.judgments, "there are honeypots"
        fits = ConsensusFits(data, StageCache(None))
        for table in (fits.label_features("remap").judgments, fits.model("gda-pairwise").judgments_):
            items = table.positions(data.features.query, data.features.document)
            np.testing.assert_array_equal(items, data.item)


def test_equal_fits_of_several_candidates_and_folds_are_computed_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, settings = data_of(world), RunSettings(trees=TREES, folds=2, n_jobs=2)
    split = split_expert_queries(data.graded_queries, settings)
    names: list[str | Candidate] = ["average", "expert-only"]
    fitted: list[int] = []
    fit = LambdaMART.fit

    def counting(ranker: LambdaMART, *arguments: Any, **options: Any) -> LambdaMART:
        fitted.append(1)
        return fit(ranker, *arguments, **options)

    monkeypatch.setattr(LambdaMART, "fit", counting)
    once = selected(data, names, settings, split)
    n_once = len(fitted)
    twice = selected(data, [*names, replace(BY_NAME["average"], name="twin")], settings, split)
    assert len(fitted) == 2 * n_once, "the twin is not fitted again"
    np.testing.assert_array_equal(twice.scores["twin"], twice.scores["average"])
    np.testing.assert_array_equal(twice.scores["average"], once.scores["average"])


def test_scores_do_not_depend_on_the_number_of_parallel_fits(world: World) -> None:
    data = data_of(world)
    outcomes = []
    for n_jobs in (1, 2):
        settings = RunSettings(trees=TREES, folds=2, n_jobs=n_jobs)
        split = split_expert_queries(data.graded_queries, settings)
        outcomes.append(selected(data, ["majority", "gda", "expert-only"], settings, split))
    for name, score in outcomes[0].scores.items():
        np.testing.assert_array_equal(outcomes[1].scores[name], score)


def test_a_fit_in_one_thread_multiplies_matrices_in_one_thread(world: World) -> None:
    def blas_threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    training = training_on(data_of(world), RunSettings(trees=TREES, folds=2, n_jobs=1))
    with threadpool_limits(2, user_api="blas"), training.workers() as workers:
        assert workers.submit(blas_threads).result() == {1}


def test_the_same_rows_share_a_matrix(world: World) -> None:
    data = data_of(world)
    rows = np.flatnonzero(data.item >= 0)
    shared = data.shared_matrix(rows)
    assert data.shared_matrix(rows.copy()) is shared
    np.testing.assert_array_equal(shared.matrix, data.features.matrix[rows])
    for first in range(MAX_SHARED_MATRICES):
        some = data.shared_matrix(np.arange(first, len(data.query)))
        np.testing.assert_array_equal(some.matrix, data.features.matrix[first:])
    assert data.shared_matrix(rows) is not shared, "only the most recent are kept"
