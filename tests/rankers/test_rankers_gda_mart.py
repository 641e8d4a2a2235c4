"""GDA-PW-MART: gradients compared with the definition of the loss, and rankers of simulated judgments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm as normal

import crowdrank
from crowdrank import Ensemble, GDAPairwise, GDAPairwiseMART, Instances, read_features
from crowdrank._typing import Floats
from crowdrank.errors import InputError, UsageError
from crowdrank.rankers.gda_mart import JudgmentObjective
from crowdrank.rankers.training_data import RankingData


def crowd(seed: int, difficulty: bool = False, labels: int = 3) -> GDAPairwise:
    world = crowdrank.simulate(
        queries=3, documents=4, labels=labels, assessors=6, grades=3, honeypots=0, random_state=seed
    )
    return GDAPairwise(n_iter=5, tol=10, difficulty=difficulty).fit(world.judgments)


def data_of(model: GDAPairwise, weight: Floats | None = None) -> RankingData:
    table = model.consensus_.document_table
    shares = np.column_stack([table[name].to_numpy() for name in model.consensus_.share_names])
    return RankingData.from_ids(np.arange(len(table), dtype=float)[:, None], shares, table["query"], weight)


def objective_of(
    data: RankingData, model: GDAPairwise, items: Any = None, n_jobs: int = 1, **parameters: Any
) -> JudgmentObjective:
    items = np.arange(len(data.grade)) if items is None else items
    return JudgmentObjective(data, GDAPairwiseMART(**parameters), model, items, n_jobs)


def chance(model: GDAPairwise, left: int, right: int, off: float, eps: Floats) -> float:
    """P(grade of judgment `left` | grade of `right`), eq. 7 word by word; `off` is left's score minus right's."""
    table = model.judgments_
    item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))
    params, n = model.theta_["params"], len(table.scale)
    one, two = params[table.assessor[left]], params[table.assessor[right]]
    its, eps_of_both = two[2 * n + table.grade[right]], eps[item[left]] * eps[item[right]]
    widths = [np.sqrt(np.exp(one[2 * n + g] + its) * eps_of_both) for g in range(n)]
    means = [one[g] - two[table.grade[right]] for g in range(n)]
    parts = [np.exp(one[n + g]) * normal.pdf(off, means[g], np.sqrt(widths[g])) for g in range(n)]
    return float(parts[table.grade[left]] / sum(parts))


def cost(model: GDAPairwise, score: Floats, change: Floats, eps: Floats) -> float:
    """Eq. 14 with |dZ| held, every pair of judgments of every pair of documents."""
    table = model.judgments_
    total = 0.0
    for d in range(table.n_items):
        for other in range(d + 1, table.n_items):
            if table.item_query[d] != table.item_query[other]:
                continue
            for i in range(table.offsets[d], table.offsets[d + 1]):
                for j in range(table.offsets[other], table.offsets[other + 1]):
                    off = score[d] - score[other]
                    total -= change[d, other] * np.log(chance(model, i, j, off, eps))
                    total -= change[d, other] * np.log(chance(model, j, i, -off, eps))
    return total


def swap_changes(data: RankingData, score: Floats) -> Floats:
    gain, changes = data.gain("exponential"), np.zeros((len(score), len(score)))
    for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        order = start + np.argsort(-score[start:stop], kind="stable")
        discount = np.zeros(len(score))
        discount[order] = 1 / np.log2(np.arange(stop - start) + 2)
        ideal = (np.sort(gain[start:stop])[::-1] / np.log2(np.arange(stop - start) + 2)).sum()
        for d in range(start, stop):
            for other in range(start, stop):
                changes[d, other] = abs((gain[d] - gain[other]) * (discount[d] - discount[other])) / ideal
    return changes


@pytest.mark.parametrize("difficulty", [False, True])
@settings(max_examples=2)
@given(seed=st.integers(0, 100))
def test_gradients_equal_finite_differences_of_the_loss(difficulty: bool, seed: int) -> None:
    model = crowd(seed, difficulty)
    data = data_of(model)
    n = len(data.grade)
    score = np.random.default_rng(seed).normal(size=n)
    eps = np.ones(n)
    if difficulty:
        eps = model.consensus_.document_table["difficulty"].to_numpy()
    gradient, hessian = objective_of(data, model, max_pairs=100, min_curvature=1e-12)(score)
    changes, step = swap_changes(data, score), 1e-4
    here = cost(model, score, changes, eps)
    for row in range(0, n, 3):
        move = step * np.eye(n)[row]
        up, down = cost(model, score + move, changes, eps), cost(model, score - move, changes, eps)
        assert gradient[row] == pytest.approx((up - down) / (2 * step), rel=1e-4, abs=1e-6)
        assert hessian[row] == pytest.approx((up - 2 * here + down) / step**2, rel=1e-3, abs=1e-5)


@settings(max_examples=10)
@given(seed=st.integers(0, 100), most=st.integers(1, 20))
def test_gradients_of_a_query_sum_to_zero(seed: int, most: int) -> None:
    model = crowd(seed)
    data = data_of(model, np.random.default_rng(seed).uniform(0, 2, len(data_of(model).grade)))
    score = np.random.default_rng(seed).normal(size=len(data.grade))
    gradient, hessian = objective_of(data, model, max_pairs=most)(score)
    assert np.abs(np.add.reduceat(gradient, data.offsets[:-1])).max() < 1e-10
    assert (hessian >= 0).all()


def test_few_pairs_of_judgments_approximate_all() -> None:
    """Every judgment is used equally often, so that the sum over few pairs is close to the full one."""
    model = crowd(2, labels=6)
    data, n = data_of(model), len(data_of(model).grade)
    score = np.random.default_rng(0).normal(size=n)
    whole = objective_of(data, model, max_pairs=36)(score)[0]
    assert np.array_equal(whole, objective_of(data, model, max_pairs=1000)(score)[0])
    few = objective_of(data, model, max_pairs=12)(score)[0]
    assert not np.array_equal(few, whole)
    assert np.corrcoef(few, whole)[0, 1] > 0.97


def test_the_hessian_has_a_lower_bound() -> None:
    model = crowd(3)
    data, n = data_of(model), len(data_of(model).grade)
    score = 50 * np.random.default_rng(0).normal(size=n)  # so far apart that the likelihood is flat
    flat, bounded = (objective_of(data, model, min_curvature=least)(score)[1] for least in (1e-12, 0.1))
    assert (bounded > flat).all()
    assert flat.min() < 1e-6 < 1e-3 < bounded.min()


def test_gradients_do_not_depend_on_the_number_of_threads() -> None:
    model = crowd(4)
    data, n = data_of(model), len(data_of(model).grade)
    one, two = (objective_of(data, model, n_jobs=t)(np.arange(n, dtype=np.float64) % 5) for t in (1, 2))
    assert np.array_equal(one, two)


def test_it_learns_to_rank_from_judgments() -> None:
    world = crowdrank.simulate(queries=60, documents=10, labels=3, random_state=7)
    features, model = read_features(world.features), GDAPairwise().fit(world.judgments)
    ranker = GDAPairwiseMART(model, n_estimators=40).fit(features)
    run = world.gold[["query", "document"]].assign(score=ranker.predict(features))
    assert crowdrank.evaluate(run, world.gold, "nDCG@10").means["nDCG@10"] > 0.85
    # The same with ids as arguments, and with instances.
    id_arguments: dict[str, Any] = {"query": world.features["query"], "document": world.features["document"]}
    beside = GDAPairwiseMART(model, n_estimators=40).fit(features.matrix, **id_arguments)
    made = Instances.from_labels(model, features)
    joined = GDAPairwiseMART(model, n_estimators=40).fit(**made.arguments)
    assert np.array_equal(beside.predict(features.matrix), ranker.predict(features))
    assert np.array_equal(joined.predict(features), ranker.predict(features))


def test_a_sample_of_judgments_is_unbiased() -> None:
    """The mean over seeds equals the sum over all pairs."""
    model = crowd(4, labels=6)
    data = data_of(model)
    n = len(data.grade)
    score = np.random.default_rng(4).normal(size=n)

    def gradients(most: int, seed: int) -> Floats:
        settings: dict[str, Any] = {"max_pairs": most, "min_curvature": 1e-12, "random_state": seed}
        return np.stack(objective_of(data, model, **settings)(score))

    whole = gradients(36, 0)
    assert np.allclose(whole, gradients(36, 1), rtol=1e-12)
    drawn = np.stack([gradients(4, seed) for seed in range(600)])
    assert np.array_equal(drawn[5], gradients(4, 5))
    assert not np.array_equal(drawn[5], drawn[6])
    assert np.abs(drawn[:, 0].sum(axis=1)).max() < 1e-9  # gradients of each query sum to zero
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - whole) < 5 * error + 1e-9).all()
    assert (error < 0.2 * np.abs(whole).max(axis=1, keepdims=True)).all()


def test_a_sample_does_not_depend_on_the_order_of_rows_or_of_scores() -> None:
    model = crowd(4, labels=6)
    data = data_of(model)
    n = len(data.grade)
    back = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(data.offsets[:-1], data.offsets[1:], strict=True)])
    turned = RankingData.from_ids(data.features[back], data.labels[back], data.query[back])
    score = np.random.default_rng(4).normal(size=n)
    parameters: dict[str, Any] = {"max_pairs": 5, "random_state": 3, "measure": None}
    one = objective_of(data, model, **parameters)(score)
    other = objective_of(turned, model, np.arange(n)[back], **parameters)(score[back])
    assert np.allclose(np.stack(one)[:, back], np.stack(other), rtol=1e-12)
    # The sample stays the same if two documents swap ranks: the loss has no jump there.
    near = np.zeros(n)
    near[0] = 1e-9
    up, down = (objective_of(data, model, **parameters)(sign * near)[0] for sign in (1, -1))
    assert np.allclose(up, down, atol=1e-6)


def test_samples_reach_most_judgments() -> None:
    """Most judgments change the gradient if they are changed, although each pair of documents uses only two pairs."""
    world = crowdrank.simulate(queries=3, documents=8, labels=12, assessors=12, grades=3, honeypots=0, random_state=2)
    model = GDAPairwise(n_iter=5, tol=10).fit(world.judgments)
    data = data_of(model)
    objective = objective_of(data, model, max_pairs=2, measure=None, random_state=1)
    base = objective(np.zeros(len(data.grade)))[0]
    has_effect = []
    for judgment in range(len(objective.grade)):
        kept = objective.grade[judgment]
        objective.grade[judgment] = 2 - kept if kept != 1 else 0
        has_effect.append(bool((objective(np.zeros(len(data.grade)))[0] != base).any()))
        objective.grade[judgment] = kept
    assert np.mean(has_effect) > 0.5


def test_a_frame_with_ids_and_features_needs_no_other_arguments() -> None:
    world = crowdrank.simulate(queries=15, documents=8, labels=3, random_state=7)
    model = GDAPairwise().fit(world.judgments)
    expected = GDAPairwiseMART(model, n_estimators=5).fit(read_features(world.features))
    ranker = GDAPairwiseMART(model, n_estimators=5).fit(world.features)
    assert ranker.features_ == expected.features_
    assert np.array_equal(ranker.predict(world.features), expected.predict(read_features(world.features)))
    # Judgments are found by the ids in the frame; `query` defines the groups.
    groups = pd.factorize(world.features["query"])[0]
    beside = GDAPairwiseMART(model, n_estimators=5).fit(world.features, query=groups)
    assert np.array_equal(beside.predict(world.features), expected.predict(world.features))
    bare = world.features.drop(columns="query")
    with_query = GDAPairwiseMART(model, n_estimators=5).fit(bare, query=world.features["query"])
    assert np.array_equal(with_query.predict(bare), expected.predict(world.features))
    with pytest.raises(UsageError) as caught:
        Ensemble([GDAPairwiseMART(model)]).fit(world.features, np.arange(len(bare)) % 3)
    assert caught.value.kind == "no-ids"
    both = Ensemble([ranker, expected], prefit=True).fit(world.features, np.arange(len(bare)) % 3)
    assert np.isfinite(both.predict(world.features)).all()
    # Without a measure the labels are not used.
    free = GDAPairwiseMART(model, n_estimators=5, measure=None).fit(world.features, np.ones(len(bare)))
    assert np.ptp(free.predict(world.features)) > 0
    with pytest.raises(InputError, match="no query has two documents of different labels"):
        GDAPairwiseMART(model, gains=(0, 0, 0, 0, 0)).fit(world.features)


def test_items_take_the_place_of_ids() -> None:
    world = crowdrank.simulate(queries=15, documents=8, labels=3, random_state=7)
    model = GDAPairwise().fit(world.judgments)
    features = read_features(world.features)
    expected = GDAPairwiseMART(model, n_estimators=5).fit(features)
    items = model.judgments_.positions(features.query, features.document)
    query = pd.factorize(world.features["query"])[0]
    ranker = GDAPairwiseMART(model, n_estimators=5).fit(features.matrix, query=query, items=items)
    assert np.array_equal(ranker.predict(features.matrix), expected.predict(features))
    some = np.where(np.arange(len(items)) < 5, -1, items)
    with pytest.warns(UserWarning, match="5 documents without judgments"):
        left = GDAPairwiseMART(model, n_estimators=5).fit(features, items=some)
    assert np.array_equal(
        left.predict(features), GDAPairwiseMART(model, n_estimators=5).fit(world.features.iloc[5:]).predict(features)
    )
    for invalid in (items[1:], items + 1, items.astype(float)):
        with pytest.raises(UsageError) as caught:
            GDAPairwiseMART(model).fit(features, items=invalid)
        assert (caught.value.kind, caught.value.parameter) == ("bad-items", "items")
    with pytest.raises(UsageError) as caught:
        GDAPairwiseMART(model).fit(features.matrix, items=items)
    assert caught.value.parameter == "query"


def test_an_invalid_weight_is_named_by_its_row_in_the_input() -> None:
    world = crowdrank.simulate(queries=10, documents=6, labels=2, random_state=7)
    model = GDAPairwise().fit(world.judgments)
    more = pd.concat([world.features.head(1).assign(document="new"), world.features], ignore_index=True)
    weight = np.ones(len(more))
    weight[4] = -2
    with (
        pytest.warns(UserWarning, match="1 document without judgments"),
        pytest.raises(InputError, match="row 5: the weight -2 is invalid"),
    ):
        GDAPairwiseMART(model).fit(more, sample_weight=weight)


def test_rows_without_judgments_are_left_out_with_a_warning() -> None:
    world = crowdrank.simulate(queries=10, documents=6, labels=2, random_state=7)
    model = GDAPairwise().fit(world.judgments)
    more = pd.concat([world.features, world.features.tail(3).assign(document=["new-1", "new-2", "new-3"])])
    with pytest.warns(UserWarning, match="3 documents without judgments in the model were left out"):
        ranker = GDAPairwiseMART(model, n_estimators=3).fit(read_features(more))
    assert np.array_equal(
        ranker.predict(read_features(more)),
        GDAPairwiseMART(model, n_estimators=3).fit(read_features(world.features)).predict(read_features(more)),
    )
    with pytest.raises(InputError, match="no document has judgments in the model"):
        GDAPairwiseMART(model).fit(
            read_features(world.features.assign(query="x" + world.features["query"].astype(str)))
        )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": None}, "model must be a fitted GDAPairwise"),
        ({"model": crowdrank.Average()}, r"model must be a fitted GDAPairwise or None, not Average\(\)"),
        ({"max_pairs": 0}, "max_pairs must be a whole number of at least 1"),
        ({"min_curvature": 0}, "min_curvature must be a number above 0"),
        ({"measure": "P@5"}, "measure must be one of nDCG, DCG, ERR, AP"),
    ],
)
def test_invalid_parameters_are_refused(settings: dict[str, Any], said: str) -> None:
    model = crowd(1)
    with pytest.raises(UsageError, match=said):
        GDAPairwiseMART(**{"model": model, **settings}).fit(np.eye(3), query=[1, 1, 1], document=["a", "b", "c"])
    with pytest.raises(UsageError) as caught:
        GDAPairwiseMART(model).fit(np.eye(3), query=[1, 1, 1])
    assert caught.value.parameter == "document"
