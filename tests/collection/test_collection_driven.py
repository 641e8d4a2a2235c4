"""Policies that ask a model: the kernels next to their references, what is wanted, and who is asked."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import pairwise

import collection_reference as references
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crowdrank
from crowdrank import GDA, GLAD, Average, DawidSkene, Judgments, read_judgments
from crowdrank.collection import get_policy, policy_kernels
from crowdrank.collection.belief import (
    PAIRS_PER_SMALL_CHUNK,
    Belief,
    column_entropy,
    exponential_gains,
    gains_if_known,
    mutual_information,
    mutual_information_by_assessor,
    value_of_labels,
)
from crowdrank.collection.model_policies import MIN_DCG
from crowdrank.collection.pool import Pool, Roster
from crowdrank.collection.replay import Crowd, replay
from crowdrank.collection.requests import MAX_REQUESTS_PER_BLOCK, Budget, PoolState, RankedRequests
from crowdrank.collection.status import collection_status
from crowdrank.errors import DataWarning, Fix, UsageError
from crowdrank.readers.combine import combine
from experiments.subsample import equal_count


@cache
def judged() -> Judgments:
    return read_judgments(crowdrank.simulate(queries=12, documents=8, labels=4, assessors=15, random_state=5).judgments)


@cache
def gda() -> GDA:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GDA().fit(judged())


@settings(max_examples=60)
@given(data=st.data())
def test_assignment_equals_its_reference(data: st.DataObject) -> None:
    n_pairs, n_assessors = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    pairs = rng.integers(0, n_pairs, data.draw(st.integers(1, 12)))
    judged_by = {p: set(np.flatnonzero(rng.random(n_assessors) < 0.3).tolist()) for p in range(n_pairs)}
    allowed = [np.flatnonzero(rng.random(n_assessors) < 0.8).tolist() for _ in range(n_pairs)]
    if data.draw(st.booleans()):
        allowed = [list(range(n_assessors))] * n_pairs
    merit = rng.integers(0, 3, (len(pairs) if data.draw(st.booleans()) else 1, n_assessors)).astype(float)
    price = rng.choice([0.0, 0.5, 1.0, 2.0], n_assessors)
    load, most = rng.integers(0, 3, n_assessors), data.draw(st.integers(1, 6))
    money, turn = data.draw(st.floats(0, 8)), rng.permutation(n_assessors)
    offsets = np.cumsum([0, *(len(judged_by[p]) for p in range(n_pairs))])
    codes = np.array([a for p in range(n_pairs) for a in sorted(judged_by[p])], np.int32)
    listed = np.array([a for who in allowed for a in who], np.int32)
    chosen = np.empty(len(pairs), np.int64)
    empty = np.full(len(pairs), -1)
    judgments, permission = (offsets, codes, np.arange(n_assessors)), (np.cumsum([0, *map(len, allowed)]), listed)
    assessors, requests = (price, load.copy(), turn), (np.full(n_pairs, -1), empty.copy(), empty.copy())
    policy_kernels.assign_requests(
        pairs, pairs, judgments, permission, merit, assessors, most, money, requests, 0, chosen
    )
    expected = references.assign_requests(
        pairs.tolist(), judged_by, allowed, merit, price.tolist(), load.tolist(), most, money, turn.tolist()
    )
    assert np.maximum(chosen, -1).tolist() == expected


@settings(max_examples=60)
@given(data=st.data())
def test_top_gains_equal_their_reference(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    sizes = rng.integers(1, 9, data.draw(st.integers(1, 4)))
    n, k = int(sizes.sum()), data.draw(st.integers(1, 6))
    same_chance, same_after = data.draw(st.booleans()), data.draw(st.booleans())  # one row for all documents
    chance = rng.dirichlet(np.ones(3), 1 if same_chance else n)
    after = rng.choice([0.0, 1.0, 3.0, 7.0], (1 if same_after else n, 3)) + rng.random((1 if same_after else n, 3))
    outcomes = chance.T.copy(), after.T.copy()
    chance, after = np.broadcast_to(chance, (n, 3)), np.broadcast_to(after, (n, 3))
    score = (chance * after).sum(axis=1)
    offsets = np.append(0, np.cumsum(sizes))
    gain = np.empty(n)
    policy_kernels.top_gains(offsets, *outcomes, k, 1 / np.log2(np.arange(2, k + 2)), MIN_DCG, gain)
    for start, stop in pairwise(offsets):
        for d in range(start, stop):
            expected = references.top_gain(score[start:stop], d - start, chance[d], after[d], k)
            assert gain[d] == pytest.approx(expected, abs=1e-9)


def test_information_is_bayes_rule() -> None:
    rng = np.random.default_rng(0)
    posterior, curves = rng.dirichlet(np.ones(4), 6), rng.dirichlet(np.ones(3), (5, 4)).transpose(0, 2, 1).copy()
    noise = -(curves * np.log(curves)).sum(axis=1)
    result = np.full((6, 5), -1.0)
    some = (np.arange(7) * 2, rng.integers(0, 5, 12).astype(np.int32))
    policy_kernels.allowed_information(posterior, curves, noise, np.arange(6), some, result)
    for row in range(6):
        listed = set(some[1][2 * row : 2 * row + 2].tolist())
        for a in range(5):
            expected = references.information(posterior[row], curves[a]) if a in listed else -1.0
            assert result[row, a] == pytest.approx(expected, abs=1e-12)


def test_the_belief_of_a_line_is_near_the_posterior_itself() -> None:
    belief = Belief.from_model(PoolState.of(Pool.of(judged()), judged()), gda())
    exact = gda().posterior().drop(columns=["query", "document"]).to_numpy()
    assert np.abs(belief.posterior(np.arange(judged().n_items)) - exact).sum(axis=1).mean() < 0.15
    drop = belief.information(np.arange(judged().n_items))
    mean = [references.information(row, belief.mean_likelihood) for row in exact]
    assert np.corrcoef(drop, mean)[0, 1] > 0.97


def test_what_is_looked_up_on_the_grid_is_what_is_worked_out() -> None:
    belief = Belief.from_model(PoolState.of(Pool.of(judged()), judged()), gda())
    pair = np.arange(judged().n_items)
    spelt_out = belief.posterior(pair)
    np.testing.assert_allclose(
        belief.information(pair), [references.information(row, belief.mean_likelihood) for row in spelt_out], atol=0.01
    )
    np.testing.assert_allclose(belief.entropy(pair), -(spelt_out * np.log(spelt_out + 1e-300)).sum(axis=1), atol=0.02)
    above = np.cumsum(belief.grade_given_state, axis=0) > 0.5  # the median is the first grade with half below
    grade_of_state = np.eye(len(above))[above.argmax(axis=0)]
    np.testing.assert_allclose(belief.certainty(pair), (spelt_out @ grade_of_state).max(axis=1), atol=0.05)
    chance, value = belief.gain_distribution(pair)
    np.testing.assert_allclose((chance * value).sum(axis=0), spelt_out @ belief.gain, atol=0.15, rtol=0.05)


def test_small_kernels_are_numpy() -> None:
    rng = np.random.default_rng(0)
    table, x, y = rng.random((4, 3)), rng.uniform(-1, 5, 50), rng.uniform(-1, 4, 50)
    row, other, found = rng.integers(-1, 50, 80), (0.25, 1.5), np.empty(80)
    at_x, at_y = np.append(x, other[0])[row], np.append(y, other[1])[row]
    policy_kernels.interpolate_bilinear(row, x, y, other, ((0.0, 1.0), (0.0, 1.0)), table, found)
    for place in range(80):
        inner = [np.interp(at_y[place], np.arange(3), line) for line in table]
        assert found[place] == pytest.approx(np.interp(at_x[place], np.arange(4), inner), abs=1e-5)
    values = np.empty((2, 80))
    policy_kernels.interpolate_at_points(row, x, y, other, np.array([-1.0, 0.5]), (0.0, 0.5), table[:, 0], values)
    for column, point in enumerate((-1.0, 0.5)):
        np.testing.assert_allclose(
            values[column], np.interp(at_x + at_y * point, np.arange(4) * 0.5, table[:, 0]), atol=1e-5
        )


def test_what_answers_tell_is_bayes_rule_however_many_are_asked() -> None:
    rng = np.random.default_rng(0)
    n = 2 * PAIRS_PER_SMALL_CHUNK + 3
    shares, curves = np.eye(4)[rng.integers(0, 4, n)].T, rng.dirichlet(np.ones(3), (5, 4)).transpose(0, 2, 1).copy()
    shares[:, 3:] = rng.dirichlet(np.ones(4), n - 3).T
    expected = [[references.information(column, one) for one in curves] for column in shares.T]
    np.testing.assert_allclose(mutual_information_by_assessor(curves, shares), expected, atol=1e-12)
    np.testing.assert_allclose(mutual_information(curves[2], shares), np.array(expected)[:, 2], atol=1e-12)
    spread = [-sum(p * np.log(p) for p in column if p > 0) for column in shares.T]
    np.testing.assert_allclose(column_entropy(shares), spread, atol=1e-12)


def test_the_belief_of_grades_is_the_consensus() -> None:
    model = DawidSkene().fit(judged())
    belief = Belief.from_model(PoolState.of(Pool.of(judged()), judged()), model)
    shares = model.consensus_.documents[model.consensus_.true_share_names].to_numpy()
    np.testing.assert_array_equal(belief.posterior(np.arange(judged().n_items)), shares)
    np.testing.assert_allclose(belief.certainty(np.arange(judged().n_items)), shares.max(axis=1))


def test_pairs_without_a_label_come_first_and_have_the_prior() -> None:
    frame = judged().frame
    new = pd.DataFrame({"query": frame["query"].iloc[0], "document": ["new-1", "new-2"]})
    pool = Pool.read(pd.concat([frame[["query", "document"]], new]))
    belief = Belief.from_model(PoolState.of(pool, judged()), gda())
    np.testing.assert_allclose(belief.posterior(np.array([len(pool) - 1]))[0], belief.prior)
    for name in ("widest-interval", "entropy", "ndcg@3"):
        asked = get_policy(name).next(pool, judged(), gda(), 5)
        assert set(asked.pair[:2].tolist()) == {len(pool) - 2, len(pool) - 1}
        assert asked.reason[:2].tolist() == ["no label so far"] * 2


def test_settled_pairs_are_not_asked_about() -> None:
    belief = Belief.from_model(PoolState.of(Pool.of(judged()), judged()), gda())
    sure = np.flatnonzero(belief.is_settled(np.arange(judged().n_items), 0.7))
    assert 0 < len(sure) < judged().n_items
    for name in ("widest-interval", "entropy", "ndcg@10"):
        asked = get_policy(name).set_params(settled=0.7).next(Pool.of(judged()), judged(), gda(), 10_000)
        assert sorted(asked.pair.tolist()) == sorted(set(range(judged().n_items)) - set(sure.tolist()))
        with pytest.raises(UsageError, match="settled must be a number above 0 and below 1"):
            get_policy(name).set_params(settled=1.5).next(Pool.of(judged()), judged(), gda(), 5)


@pytest.mark.parametrize("grade_by", ["mode", "mean"])
def test_certainty_follows_the_rule_for_grades(grade_by: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GDA(grade_by=grade_by).fit(judged())
    belief = Belief.from_model(PoolState.of(Pool.of(judged()), judged()), model)
    curves = belief.grade_given_state
    grade = curves.argmax(axis=0) if grade_by == "mode" else np.rint(np.arange(len(curves)) @ curves).astype(int)
    assert belief.grade_of_state.argmax(axis=0).tolist() == grade.tolist()


@pytest.mark.parametrize("name", ["entropy", "widest-interval", "ndcg@10"])
def test_settled_pairs_of_a_model_of_grades_are_a_warning(name: str) -> None:
    policy, pool = get_policy(name), Pool.of(judged())
    model = DawidSkene().fit(judged())
    for request in (
        lambda: policy.next(pool, judged(), model, 5),
        lambda: collection_status(pool, judged(), model),
    ):
        with pytest.warns(DataWarning) as caught:
            request()
        (problem,) = [one.message for one in caught]
        assert isinstance(problem, DataWarning)
        assert problem.kind == "overconfident-model"
        assert [(fix.parameter, fix.value) for fix in problem.fixes if isinstance(fix, Fix)] == [("method", "gda")]
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        get_policy(name).set_params(settled=None).next(pool, judged(), model, 5)
        policy.next(pool, judged(), gda(), 5)
        collection_status(pool, judged(), gda())


def test_settled_pairs_keep_their_grade_when_all_labels_are_in() -> None:
    settled = kept = 0
    for seed in (0, 1):
        world = crowdrank.simulate(queries=40, documents=15, labels=16, honeypots=0.0, random_state=seed)
        everything = read_judgments(world.judgments)
        part = equal_count(everything, 6, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, final = GDA().fit(part), GDA().fit(everything)
        place = everything.positions(*part.item_ids())
        is_kept = (
            model.consensus_.documents["grade"].to_numpy() == final.consensus_.documents["grade"].to_numpy()[place]
        )
        belief = Belief.from_model(PoolState.of(Pool.of(part), part), model)
        is_settled = belief.is_settled(np.arange(part.n_items), 0.95)
        settled, kept = settled + int(is_settled.sum()), kept + int(is_kept[is_settled].sum())
    assert settled > 50
    assert kept >= 0.93 * settled


def test_a_budget_for_which_there_are_unlabeled_pairs_is_spent() -> None:
    rng = np.random.default_rng(7)
    n, relevance = 450, rng.normal(-0.4, 1.1, 450)
    pool = pd.DataFrame({"query": [f"q{i // 30}" for i in range(n)], "document": [f"d{i}" for i in range(n)]})
    labeled = rng.permutation(n)[:225]
    noisy = relevance[labeled] + 0.9 * rng.normal(size=225)
    labels = pool.iloc[labeled].assign(
        assessor=[f"a{a}" for a in rng.integers(0, 12, 225)], grade=(noisy[:, None] > [0.2, 1.0, 1.8]).sum(axis=1)
    )
    for name in ("ndcg@10", "entropy", "widest-interval"):
        requests = get_policy(name).next(pool, labels, None, 225)
        assert sorted(requests.pair.tolist()) == sorted(set(range(n)) - set(labeled.tolist()))
        assert requests.unspent == ()


def test_pairs_without_a_label_are_never_settled() -> None:
    frame = judged().frame
    new = pd.DataFrame({"query": frame["query"].iloc[0], "document": ["new-1", "new-2"]})
    pool = Pool.read(pd.concat([frame[["query", "document"]].drop_duplicates(), new]))
    for model in (gda(), DawidSkene().fit(judged())):
        belief = Belief.from_model(PoolState.of(pool, judged()), model)
        unlabeled = np.array([len(pool) - 2, len(pool) - 1])
        assert (belief.certainty(unlabeled) > 0.01).all()
        assert not belief.is_settled(unlabeled, 0.01).any()


def test_each_asks_first_for_what_it_wants_most() -> None:
    pool, table = Pool.of(judged()), gda().consensus_.documents
    width = (table["upper"] - table["lower"]).to_numpy()
    wide = get_policy("widest-interval").set_params(settled=None).next(pool, judged(), gda(), 5)
    assert width[wide.pair].min() >= np.sort(width)[-5]
    belief = Belief.from_model(PoolState.of(pool, judged()), gda())
    drop = belief.information(np.arange(len(pool)))
    much = get_policy("entropy").set_params(settled=None).next(pool, judged(), gda(), 5)
    assert drop[much.pair].min() >= np.sort(drop)[-5]


def test_the_value_of_a_label_follows_from_the_model_of_answers() -> None:
    model = gda()
    state = PoolState.of(Pool.of(model.judgments_), model.judgments_)
    belief, highest = Belief.from_model(state, model), float(exponential_gains(model.consensus_.scale).max())
    knowledge = gains_if_known(state, belief.gain_distribution, 10, highest)
    expected = belief.relative_information(np.arange(len(state.pool))) * knowledge
    np.testing.assert_allclose(value_of_labels(model)[belief.row], expected)
    votes = value_of_labels(crowdrank.MajorityVote().fit(model.judgments_))
    assert (votes >= 0).all()
    assert votes.max() > 0


def test_the_top_is_what_ndcg_asks_about() -> None:
    asked = get_policy("ndcg@1").set_params(settled=None).next(Pool.of(judged()), judged(), gda(), 12)
    rank = gda().consensus_.documents.groupby("query")["relevance"].rank(ascending=False).to_numpy()
    assert rank[asked.pair].mean() < rank.mean() - 1


def test_who_tells_more_per_price_is_asked() -> None:
    table = gda().consensus_.assessors.sort_values("informativeness")
    middling, best = table["assessor"].iloc[len(table) // 2], table["assessor"].iloc[-1]
    # Documents that neither has judged, one of them judged by another.
    fresh = Pool.read(pd.DataFrame({"query": "new", "document": [f"new-{number}" for number in range(9)]}))
    one = pd.DataFrame({"query": ["new"], "document": ["new-0"], "assessor": ["new"], "grade": [0]})
    known = combine(judged(), read_judgments(one, grades="0-4"))
    policy = get_policy("entropy").set_params(settled=None, variety=0)
    for price, who in ((1.0, best), (10_000.0, middling)):
        roster = Roster.of([middling, best])
        roster.price[1] = price
        asked = policy.next(fresh.with_roster(roster), known, gda(), 200_000)
        assert asked.frame["assessor"].unique().tolist() == [who]


def test_a_family_that_spoke_is_asked_less() -> None:
    rows = [
        {"document": f"d{d}", "assessor": f"a{a}", "grade": (d * a) % 3, "family": "x"}
        for d in range(9)
        for a in range(3)
    ]
    rows += [{"document": "e", "assessor": f"b{b}", "grade": b % 2, "family": "y"} for b in range(3)]
    rows += [{"document": f"f{b}", "assessor": f"b{b}", "grade": 1, "family": "y"} for b in range(3)]
    table = read_judgments(pd.DataFrame(rows), grades="0-2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GDA().fit(table)
    state = PoolState.of(Pool.of(table).with_roster(Roster.of(["a0", "b0", "new"])), table)
    belief = Belief.from_model(state, model)
    assert state.pool.roster is not None
    result, alone = belief._family_answers(np.array([0]), state.pool.roster), np.array([[3.0, 0.0, 0.0]])
    np.testing.assert_array_equal(result, alone)


def test_variety_spreads_the_work() -> None:
    pool = Pool.of(judged()).with_roster(Roster.of(judged().assessors))
    most = {}
    for variety in (0.0, 2.0):
        policy = get_policy("entropy").set_params(settled=None, variety=variety)
        asked = policy.next(pool, judged(), gda(), 60)
        now, before = (np.bincount(who, minlength=judged().n_assessors) for who in (asked.assessor, judged().assessor))
        most[variety] = now @ before
    assert most[2.0] < most[0.0]


def test_an_expert_of_whom_nothing_is_known_tells_more_than_anyone() -> None:
    for model in (gda(), DawidSkene().fit(judged())):
        roster = Roster.of(["new expert", "new face"], ["expert", "human"])
        belief = Belief.from_model(PoolState.of(Pool.of(judged()).with_roster(roster), judged()), model)
        result = belief.assessor_information(np.arange(10), roster)
        assert (result[:, 0] > result[:, 1]).all()


def test_llms_first_and_experts_where_money_is_left() -> None:
    kinds = ["llm" if number else "expert" for number in range(judged().n_assessors)]
    roster = Roster.of(judged().assessors, kinds, {"llm": 1, "expert": 50})
    asked = (
        get_policy("entropy")
        .set_params(settled=None)
        .next(Pool.of(judged()).with_roster(roster), judged(), gda(), Budget(60))
    )
    assert asked.by_kind()["llm"][0] > 0
    assert asked.cost <= 60


def test_models_that_say_nothing_of_answers_are_refused() -> None:
    for model in (Average().fit(judged()), GLAD(n_iter=2, tol=1.0).fit(judged())):
        with pytest.raises(UsageError) as caught:
            get_policy("entropy").next(Pool.of(judged()), judged(), model, 5)
        assert caught.value.kind == "no-answer-model"
        assert caught.value.fix is not None
        assert caught.value.fix.parameter == "method"
    with pytest.raises(UsageError) as caught:
        get_policy("entropy").next(Pool.of(judged()), judged(), "gda", 5)
    assert caught.value.parameter == "consensus"


def test_without_a_model_one_is_fitted() -> None:
    asked = get_policy("entropy").set_params(settled=None).next(Pool.of(judged()), judged(), None, 7)
    assert asked.to_arrow().equals(
        get_policy("entropy")
        .set_params(settled=None)
        .next(Pool.of(judged()), judged(), GDA().fit(judged()), 7)
        .to_arrow()
    )


def test_ranked_in_order_without_sorting_all() -> None:
    rng = np.random.default_rng(0)
    priority = rng.integers(0, 50, 3 * MAX_REQUESTS_PER_BLOCK).astype(float)
    ranked = RankedRequests(np.arange(len(priority)), priority, np.zeros(len(priority), np.int8), ("why",))
    for first in (0, 10, 5000, len(priority)):
        order = np.concatenate(list(ranked.blocks(first)))
        np.testing.assert_array_equal(order, np.argsort(-priority, kind="stable"))


@given(seed=st.integers(0, 10_000), first=st.integers(0, 400))
def test_ranked_that_say_at_most_how_much_come_in_the_order_of_what_they_are_priority(seed: int, first: int) -> None:
    rng = np.random.default_rng(seed)
    at_most = rng.integers(0, 30, 3000).astype(float)
    priority = at_most * rng.choice([0.0, 0.5, 1.0, np.nan], 3000)
    ranked = RankedRequests(np.arange(3000), at_most, np.zeros(3000, np.int8), ("why",), lambda rows: priority[rows])
    open_ = np.flatnonzero(~np.isnan(priority))
    expected = open_[np.argsort(-priority[open_], kind="stable")]
    np.testing.assert_array_equal(np.concatenate([[], *ranked.blocks(first)]), expected)
    np.testing.assert_array_equal(ranked.wanted().priority, priority[open_])


def test_what_is_worked_out_late_is_what_is_worked_out_for_all() -> None:
    pool = Pool.of(judged())
    model = DawidSkene().fit(judged())
    state = PoolState.of(pool, judged())
    for name in ("widest-interval", "ndcg@3"):
        policy = get_policy(name).set_params(settled=0.9)
        ranked = policy.rank_requests(state, model)
        assert ranked.exact_priority is not None
        whole = ranked.wanted()
        asked = policy.next(pool, judged(), model, 10)
        assert asked.pair.tolist() == whole.pair[np.argsort(-whole.priority, kind="stable")][:10].tolist()
        assert (Belief.from_model(state, model).certainty(whole.pair) < 0.9).all()
        assert (ranked.priority[np.isin(ranked.pair, whole.pair)] >= whole.priority).all()


def test_a_replay_buys_each_label_once_and_keeps_to_its_money() -> None:
    world = crowdrank.simulate(queries=8, documents=6, labels=5, assessors=12, random_state=2)
    full = read_judgments(world.judgments)
    for name in ("random", "if-good-3", "entropy", "ndcg@5"):
        policy = get_policy(name).set_params(random_state=1)
        curve = replay(policy, Crowd.of(full), world.gold, ["nDCG@5"], budget=100, rounds=5)
        labels = [point.labels for point in curve.points]
        assert labels == sorted(set(labels))
        assert labels[-1] == int(curve.bought.sum()) == curve.points[-1].money <= 100
        assert curve.at_cost(10) is curve.points[0].evaluation
        assert curve.at_cost(100) is curve.points[-1].evaluation
        again = replay(policy, Crowd.of(full), world.gold, ["nDCG@5"], budget=100, rounds=5)
        assert (again.bought == curve.bought).all()


def test_a_replay_that_buys_everything_knows_as_much_as_a_fit() -> None:
    world = crowdrank.simulate(queries=8, documents=6, labels=3, assessors=12, random_state=2)
    full = read_judgments(world.judgments)
    curve = replay(get_policy("random"), Crowd.of(full), world.gold, ["nDCG@5"], budget=len(full), rounds=3)
    assert curve.bought.all()
    assert len(combine(full, full)) == len(full)
