"""Policies with a prior from features: predictions of pairs without a label, requests, and `collect --features`."""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from crowdrank import GDA, Aggregator, DawidSkene, Features, GDAPairwise, Judgments, read_judgments
from crowdrank.collection import get_policy
from crowdrank.collection.belief import Belief, consensus_rows
from crowdrank.collection.pool import Pool, Roster
from crowdrank.collection.replay import Crowd, Curve, model_ranking, replay
from crowdrank.collection.requests import Budget, PoolState
from crowdrank.collection.status import collection_status
from crowdrank.consensus.feature_prior import prior_moments
from crowdrank.errors import DataWarning, UsageError
from terminal import crowdrank

N_QUERIES, N_DOCUMENTS, RHO = 20, 12, 0.9
MODEL_POLICIES = ("widest-interval", "entropy", "ndcg@3")


@cache
def world() -> tuple[pd.DataFrame, Features, pd.DataFrame]:
    """Three grades of each document by six assessors, a feature that correlates with relevance, and relevance."""
    rng = np.random.default_rng(0)
    n = N_QUERIES * N_DOCUMENTS
    feature = rng.normal(size=n)
    relevance = RHO * feature + np.sqrt(1 - RHO**2) * rng.normal(size=n)
    item = np.repeat(np.arange(n), 3)
    assessor = np.concatenate([rng.choice(6, 3, replace=False) for _ in range(n)])
    grade = np.digitize(relevance[item] + 0.7 * rng.normal(size=3 * n), [-0.5, 0.8])
    ids = {"query": [f"q{one // N_DOCUMENTS}" for one in range(n)], "document": [f"d{one}" for one in range(n)]}
    table = pd.DataFrame(ids)
    judgments = table.iloc[item].assign(assessor=[f"a{one}" for one in assessor], grade=grade).reset_index(drop=True)
    features = Features(pa.array(ids["query"]), pa.array(ids["document"]), feature[:, None], ("score",))
    return judgments, features, table.assign(grade=np.digitize(relevance, [-0.5, 0.8]), relevance=relevance)


@cache
def judged() -> Judgments:
    """Judgments of the first half of the documents of each query."""
    frame = world()[0]
    number = frame["document"].str[1:].astype(int) % N_DOCUMENTS
    return read_judgments(frame[number < N_DOCUMENTS // 2])


@cache
def pool() -> Pool:
    """All documents."""
    return Pool.read(world()[2][["query", "document"]])


@cache
def fitted(kind: type[Aggregator], with_features: bool = True, **parameters: Any) -> Aggregator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(**parameters).fit(judged(), features=world()[1] if with_features else None)


def unlabeled() -> Any:
    """Return the pairs without a label."""
    return np.flatnonzero(PoolState.of(pool(), judged()).n_labels == 0)


def belief(model: Aggregator) -> Belief:
    return Belief.from_model(PoolState.of(pool(), judged()), model)


def test_the_belief_of_an_unlabeled_pair_is_its_prior_on_the_line() -> None:
    model, pairs = fitted(GDA), unlabeled()
    weight = float(model.theta_["feature_weight"][0])  # type: ignore[attr-defined]
    scores = model.feature_scores_  # type: ignore[attr-defined]
    mean, variance = prior_moments(scores.score[pairs], weight)  # rows of the features are the pairs of the pool
    nodes = model.theta_["nodes"]  # type: ignore[attr-defined]
    density = np.exp(-0.5 * (nodes - mean[:, None]) ** 2 / variance[:, None])
    expected = density / density.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(belief(model).posterior(pairs), expected, atol=2e-3)
    predicted = model.consensus_.prediction_table
    assert predicted is not None
    assert set(belief(model).row[pairs]) == set(range(judged().n_items, judged().n_items + len(predicted)))


def test_the_belief_of_an_unlabeled_pair_is_its_prior_of_grades() -> None:
    model, pairs = fitted(DawidSkene), unlabeled()
    table = model.consensus_.documents.set_index(["query", "document"])
    ids = world()[2].iloc[pairs]
    expected = table.loc[list(zip(ids["query"], ids["document"], strict=True)), model.consensus_.true_share_names]
    np.testing.assert_array_equal(belief(model).posterior(pairs), expected.to_numpy())
    assert np.ptp(belief(model).posterior(pairs)[:, 0]) > 0.5


def test_predictions_with_a_state_of_unjudgeable_documents() -> None:
    model, pairs = fitted(GDA, unjudgeable_as="model"), unlabeled()
    posterior = belief(model).posterior(pairs)
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0)
    chance, gain = belief(model).gain_distribution(pairs)
    np.testing.assert_allclose((chance * gain).sum(axis=0), posterior @ belief(model).gain, atol=0.15)


def test_labeled_pairs_keep_their_rows_and_pairs_without_features_the_prior() -> None:
    known = world()[1].take(np.flatnonzero(np.arange(len(pool())) != unlabeled()[0]))
    model = GDA().fit(judged(), features=known)
    state = PoolState.of(pool(), judged())
    row = consensus_rows(state, model)
    assert row[state.item >= 0].tolist() == state.item[state.item >= 0].tolist()
    assert row[unlabeled()[0]] == -1
    assert (state.item == PoolState.of(pool(), judged()).item).all()
    found = Belief.from_model(state, model)
    np.testing.assert_allclose(found.posterior(unlabeled()[:1])[0], found.prior)
    for name in MODEL_POLICIES:
        first = get_policy(name).next(pool(), judged(), model, 2)
        assert first.pair[0] == unlabeled()[0]
        assert first.reason[0] == "no label so far"
        assert first.reason[1] != "no label so far"


@pytest.mark.parametrize("name", ["entropy", "ndcg@3"])
@pytest.mark.parametrize("kind", [GDA, DawidSkene])
def test_features_decide_which_unlabeled_pairs_are_worth_a_label(kind: type[Aggregator], name: str) -> None:
    score = world()[1].matrix[:, 0]
    policy = get_policy(name).set_params(settled=None)
    with_features = policy.next(pool(), judged(), fitted(kind), 40)
    without = policy.next(pool(), judged(), fitted(kind, False), 40)
    assert set(without.reason) == {"no label so far"}
    assert set(with_features.reason) == {policy.reason.format(**policy.get_params())}  # type: ignore[attr-defined]
    new = np.intersect1d(with_features.pair, unlabeled())
    assert len(new) > 0
    if name == "ndcg@3":  # documents that may be among the best of their query
        assert score[new].mean() > score[without.pair].mean() + 0.3
    else:  # documents whose grade is open
        certain = belief(fitted(kind)).certainty(np.arange(len(pool())))
        assert certain[with_features.pair].mean() < certain[unlabeled()].mean()


def test_a_document_without_a_label_is_never_settled_by_features() -> None:
    certain = belief(fitted(GDA)).certainty(np.arange(len(pool())))
    level = float(np.quantile(certain[unlabeled()], 0.5))
    assert not belief(fitted(GDA)).is_settled(unlabeled(), level).any()
    for name in MODEL_POLICIES:
        asked = get_policy(name).set_params(settled=level).next(pool(), judged(), fitted(GDA), 10_000)
        assert set(unlabeled().tolist()) <= set(asked.pair.tolist())
        assert len(asked) < len(pool())


def test_a_label_gains_more_from_the_assessor_who_knows_more() -> None:
    """Assessors are chosen for unlabeled pairs by their own priors: where a grade is certain nobody tells much."""
    roster = Roster.of(judged().assessors)
    pairs, found = unlabeled(), belief(fitted(GDA))
    information = found.assessor_information(pairs, roster).mean(axis=1)
    assert np.corrcoef(information, found.information(pairs))[0, 1] > 0.95
    asked = get_policy("entropy").next(pool().with_roster(roster), judged(), fitted(GDA), Budget(20, most=1000))
    assert len(asked) == 20
    assert (asked.assessor >= 0).all()


def test_every_model_with_features_serves_every_policy() -> None:
    for model in (fitted(GDA), fitted(DawidSkene), fitted(GDAPairwise)):
        for name in MODEL_POLICIES:
            assert len(get_policy(name).set_params(settled=None).next(pool(), judged(), model, 15)) == 15
    status = collection_status(pool(), judged(), fitted(GDA))
    assert status.documents == len(pool())
    assert status.judged == judged().n_items


def test_next_fits_gda_with_features() -> None:
    policy = get_policy("ndcg@3")
    own = policy.next(pool(), judged(), None, 30, features=world()[1])
    assert own.pair.tolist() == policy.next(pool(), judged(), fitted(GDA), 30).pair.tolist()
    with pytest.raises(UsageError) as error:
        policy.next(pool(), judged(), fitted(GDA), 30, features=world()[1])
    assert (error.value.parameter, error.value.kind) == ("features", "fitted-model")
    with pytest.raises(UsageError) as error:
        get_policy("if-good-3").next(pool(), judged(), None, 30, features=world()[1])
    assert (error.value.parameter, error.value.kind) == ("features", "no-model")


def test_features_that_cannot_be_used_leave_the_policy_as_it_is() -> None:
    policy = get_policy("ndcg@3")
    few = judged().where(judged().item < 10)
    plain = policy.next(pool(), few, GDA().fit(few), 20)
    with pytest.warns(DataWarning) as found:
        asked = policy.next(pool(), few, None, 20, features=world()[1])
    assert "few-labeled-documents" in {one.message.kind for one in found if isinstance(one.message, DataWarning)}
    assert asked.pair.tolist() == plain.pair.tolist()
    assert asked.reasons() == plain.reasons() == {"no label so far": 20}


def test_a_ranking_has_the_predictions() -> None:
    ranking = model_ranking(fitted(GDA), pool())
    relevance = world()[2]["relevance"].to_numpy()
    assert np.corrcoef(ranking["score"].to_numpy()[unlabeled()], relevance[unlabeled()])[0, 1] > 0.7
    assert not model_ranking(fitted(GDA, False), pool())["score"].to_numpy()[unlabeled()].any()
    in_grades = model_ranking(fitted(DawidSkene, False), pool())["score"].to_numpy()
    judged_items = np.setdiff1d(np.arange(len(pool())), unlabeled())
    np.testing.assert_allclose(in_grades[unlabeled()], in_grades[judged_items].mean())


def test_a_replay_with_features_ranks_better_from_few_labels() -> None:
    frame, features, gold = world()
    crowd = Crowd.of(read_judgments(frame))
    grades = gold[["query", "document", "grade"]]

    def replayed(features: Features | None) -> Curve:
        policy = get_policy("ndcg@10")
        return replay(policy, crowd, grades, ["nDCG@10"], budget=120, rounds=2, features=features)

    plain, prior = replayed(None), replayed(features)
    assert [point.labels for point in prior.points] == [60, 120]
    assert prior.points[0].bought.sum() == 60
    assert (prior.points[1].bought >= prior.points[0].bought).all()
    assert (prior.bought == prior.points[1].bought).all()
    first = [curve.points[0].evaluation.means["nDCG@10"] for curve in (plain, prior)]
    assert first[1] > first[0] + 0.05
    constant = Features(features.query, features.document, np.ones((len(features.query), 1)), ("one",))
    with pytest.warns(DataWarning) as found:
        same = replayed(constant)
    assert {one.message.kind for one in found if isinstance(one.message, DataWarning)} == {"constant-features"}
    assert same.table() == plain.table()


# The command line.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a pool with a score column, judgments of half of it and of all of it, features, and expert grades."""
    folder = tmp_path_factory.mktemp("collect")
    frame, features, gold = world()
    scores = gold[["query", "document"]].assign(score=features.matrix[:, 0])
    scores.assign(title="a title").to_csv(folder / "pool.csv", index=False)
    scores.to_csv(folder / "features.csv", index=False)
    scores.assign(score=1.0).to_csv(folder / "constant.csv", index=False)
    judged().frame.to_csv(folder / "labels.csv", index=False)
    frame.merge(scores, on=["query", "document"]).to_csv(folder / "all.csv", index=False)
    gold[["query", "document", "grade"]].to_csv(folder / "gold.csv", index=False)
    return folder


def collect_next(folder: Path, *words: str) -> tuple[dict[str, Any], str]:
    done = crowdrank("collect", "next", "labels.csv", "--pairs", "pool.csv", "--budget", "20", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return (json.loads(done.stdout) if "--json" in words else {}), done.stderr


def test_requests_follow_features(folder: Path) -> None:
    for number, option in enumerate((("-f", "features.csv"), ("--signal", "score"))):
        output = f"requests{number}.csv"
        summary, _ = collect_next(folder, "-p", "ndcg@3", *option, "--again", "--json", "-o", output)
        assert summary["features_used"] == ["score"]
        expected = get_policy("ndcg@3").next(pool(), judged(), fitted(GDA), 20)
        assert pd.read_csv(folder / output)["document"].tolist() == expected.frame["document"].tolist()
    summary, _ = collect_next(folder, "-p", "ndcg@3", "--again", "--json")
    assert summary["features_used"] == []
    assert summary["reasons"] == {"no label so far": 20}


def test_assessors_do_not_see_the_signal(folder: Path) -> None:
    words = ("-p", "entropy", "--again", "--signal", "score", "--to", "label-studio", "-o", "tasks.json")
    collect_next(folder, *words)
    tasks = json.loads((folder / "tasks.json").read_text())
    assert len(tasks) == 20
    assert all(set(task["data"]) == {"query", "document", "title", "labels"} for task in tasks)


def test_useless_features_are_named_in_a_warning(folder: Path) -> None:
    summary, errors = collect_next(folder, "-p", "ndcg@3", "--again", "-f", "constant.csv", "--json")
    assert summary["features_used"] == []
    assert summary["reasons"] == {"no label so far": 20}
    assert "left out" in errors


@pytest.mark.parametrize(
    "words",
    [
        ("-f", "features.csv"),  # the default policy has no model
        ("--signal", "score"),
        ("-p", "random", "-f", "features.csv"),
        ("-p", "entropy", "--signal", "scroe"),
        ("-p", "entropy", "-f", "missing.csv"),
        ("-p", "entropy", "-f", "labels.csv"),
        ("-p", "entropy", "-m", "rasch", "-f", "features.csv"),
        ("-p", "entropy", "-f", "features.csv", "-o", "features.csv"),
    ],
)
def test_bad_options_are_refused(folder: Path, words: tuple[str, ...]) -> None:
    before = (folder / "features.csv").read_bytes()
    done = crowdrank("collect", "next", "labels.csv", "--pairs", "pool.csv", "--budget", "5", *words, cwd=folder)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert (folder / "features.csv").read_bytes() == before


def test_recorded_judgments_are_replayed_with_features(folder: Path) -> None:
    replayed = ("collect", "simulate", "--from", "all.csv", "--expert", "gold.csv", "-p", "ndcg@10", "--rounds", "1")
    words = (*replayed, "--budget", "60", "--measures", "nDCG@10", "--json")
    found = []
    for option in ((), ("-f", "features.csv"), ("--signal", "score")):
        done = crowdrank(*words, *option, cwd=folder)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout)["curve"][0]["nDCG@10"])
    assert found[1] == found[2] > found[0] + 0.05
    for bad in (("--signal", "score"), ("-f", "features.csv"), ("-f", "features.csv", "-m", "majority")):
        assert crowdrank("collect", "simulate", *bad, cwd=folder).returncode == 2
