"""GDA-PW-MART: its forces by the definition of the loss, and what it makes of a crowd."""

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
from crowdrank.rankers.ranking_data import Lists, gather


def crowd(seed: int, difficulty: bool = False, labels: int = 3) -> GDAPairwise:
    world = crowdrank.simulate(
        queries=3, documents=4, labels=labels, assessors=6, grades=3, honeypots=0, random_state=seed
    )
    return GDAPairwise(n_iter=5, tol=10, difficulty=difficulty).fit(world.judgments)


def lists_of(model: GDAPairwise, weight: Floats | None = None) -> Lists:
    table = model.consensus_.document_table
    shares = np.column_stack([table[name].to_numpy() for name in model.consensus_.share_names])
    return gather(np.arange(len(table), dtype=float)[:, None], shares, table["query"], weight)


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


def swap_changes(lists: Lists, score: Floats) -> Floats:
    gain, changes = lists.gain("exponential"), np.zeros((len(score), len(score)))
    for start, stop in zip(lists.offsets[:-1], lists.offsets[1:], strict=True):
        order = start + np.argsort(-score[start:stop], kind="stable")
        discount = np.zeros(len(score))
        discount[order] = 1 / np.log2(np.arange(stop - start) + 2)
        ideal = (np.sort(gain[start:stop])[::-1] / np.log2(np.arange(stop - start) + 2)).sum()
        for d in range(start, stop):
            for other in range(start, stop):
                changes[d, other] = abs((gain[d] - gain[other]) * (discount[d] - discount[other])) / ideal
    return changes


@pytest.mark.parametrize("difficulty", [False, True])
@settings(max_examples=5)
@given(seed=st.integers(0, 100))
def test_forces_are_the_slopes_of_the_loss(difficulty: bool, seed: int) -> None:
    model = crowd(seed, difficulty)
    lists = lists_of(model)
    n = len(lists.y)
    score = np.random.default_rng(seed).normal(size=n)
    eps = np.ones(n)
    if difficulty:
        eps = model.consensus_.document_table["difficulty"].to_numpy()
    slope, curve = JudgmentObjective(lists, model, np.arange(n), most_pairs=100, min_curvature=1e-12)(score)
    changes, step = swap_changes(lists, score), 1e-4
    here = cost(model, score, changes, eps)
    for row in range(0, n, 3):
        move = step * np.eye(n)[row]
        up, down = cost(model, score + move, changes, eps), cost(model, score - move, changes, eps)
        assert slope[row] == pytest.approx((up - down) / (2 * step), rel=1e-4, abs=1e-6)
        assert curve[row] == pytest.approx((up - 2 * here + down) / step**2, rel=1e-3, abs=1e-5)


@settings(max_examples=10)
@given(seed=st.integers(0, 100), most=st.integers(1, 20))
def test_forces_within_a_query_sum_to_zero(seed: int, most: int) -> None:
    model = crowd(seed)
    lists = lists_of(model, np.random.default_rng(seed).uniform(0, 2, len(lists_of(model).y)))
    score = np.random.default_rng(seed).normal(size=len(lists.y))
    slope, curve = JudgmentObjective(lists, model, np.arange(len(score)), most_pairs=most)(score)
    assert np.abs(np.add.reduceat(slope, lists.offsets[:-1])).max() < 1e-10
    assert (curve >= 0).all()


def test_few_pairs_of_judgments_stand_for_all() -> None:
    """Every judgment is looked at as often as any other, so that a bounded sum is near the whole one."""
    model = crowd(2, labels=6)
    lists, n = lists_of(model), len(lists_of(model).y)
    score = np.random.default_rng(0).normal(size=n)
    whole = JudgmentObjective(lists, model, np.arange(n), most_pairs=36)(score)[0]
    assert np.array_equal(whole, JudgmentObjective(lists, model, np.arange(n), most_pairs=1000)(score)[0])
    few = JudgmentObjective(lists, model, np.arange(n), most_pairs=12)(score)[0]
    assert not np.array_equal(few, whole)
    assert np.corrcoef(few, whole)[0, 1] > 0.97


def test_curvature_is_bounded_from_below() -> None:
    model = crowd(3)
    lists, n = lists_of(model), len(lists_of(model).y)
    score = 50 * np.random.default_rng(0).normal(size=n)  # so far apart that the likelihood is flat
    flat, bounded = (
        JudgmentObjective(lists, model, np.arange(n), min_curvature=least)(score)[1] for least in (1e-12, 0.1)
    )
    assert (bounded > flat).all()
    assert flat.min() < 1e-6 < 1e-3 < bounded.min()


def test_threads_change_nothing() -> None:
    model = crowd(4)
    lists, n = lists_of(model), len(lists_of(model).y)
    one, two = (
        JudgmentObjective(lists, model, np.arange(n), n_jobs=t)(np.arange(n, dtype=np.float64) % 5) for t in (1, 2)
    )
    assert np.array_equal(one, two)


def test_it_learns_from_judgments_what_documents_are_worth() -> None:
    world = crowdrank.simulate(queries=60, documents=10, labels=3, random_state=7)
    features, model = read_features(world.features), GDAPairwise().fit(world.judgments)
    ranker = GDAPairwiseMART(model, n_estimators=40).fit(features)
    run = world.gold[["query", "document"]].assign(score=ranker.predict(features))
    assert crowdrank.evaluate(run, world.gold, "nDCG@10").means["nDCG@10"] > 0.85
    # The same by ids beside a matrix, by instances, and in another order of rows.
    options: dict[str, Any] = {"query": world.features["query"], "document": world.features["document"]}
    beside = GDAPairwiseMART(model, n_estimators=40).fit(features.matrix, **options)
    made = Instances.from_labels(model, features)
    joined = GDAPairwiseMART(model, n_estimators=40).fit(**made.arguments)
    assert np.array_equal(beside.predict(features.matrix), ranker.predict(features))
    assert np.array_equal(joined.predict(features), ranker.predict(features))


def test_a_sample_of_judgments_stands_for_all() -> None:
    """The mean over seeds is the sum over all pairs; the first judgments alone say something else."""
    model = crowd(4, labels=6)
    lists = lists_of(model)
    n = len(lists.y)
    score = np.random.default_rng(4).normal(size=n)

    def forces(most: int, seed: int) -> Floats:
        settings: dict[str, Any] = {"most_pairs": most, "min_curvature": 1e-12, "random_state": seed}
        return np.stack(JudgmentObjective(lists, model, np.arange(n), **settings)(score))

    whole = forces(36, 0)
    assert np.allclose(whole, forces(36, 1), rtol=1e-12)
    drawn = np.stack([forces(4, seed) for seed in range(600)])
    assert np.array_equal(drawn[5], forces(4, 5))
    assert not np.array_equal(drawn[5], drawn[6])
    assert np.abs(drawn[:, 0].sum(axis=1)).max() < 1e-9  # forces within all queries sum to zero
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - whole) < 5 * error + 1e-9).all()
    assert (error < 0.2 * np.abs(whole).max(axis=1, keepdims=True)).all()


def test_a_sample_does_not_depend_on_the_order_of_rows_or_of_scores() -> None:
    model = crowd(4, labels=6)
    lists = lists_of(model)
    n = len(lists.y)
    back = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(lists.offsets[:-1], lists.offsets[1:], strict=True)])
    turned = gather(lists.X[back], lists.labels[back], lists.query[back])
    score = np.random.default_rng(4).normal(size=n)
    options: dict[str, Any] = {"most_pairs": 5, "random_state": 3, "measure": None}
    one = JudgmentObjective(lists, model, np.arange(n), **options)(score)
    other = JudgmentObjective(turned, model, np.arange(n)[back], **options)(score[back])
    assert np.allclose(np.stack(one)[:, back], np.stack(other), rtol=1e-12)
    # Two documents that change places are still distinguished by the same judgments: the loss has no jump there.
    near = np.zeros(n)
    near[0] = 1e-9
    up, down = (JudgmentObjective(lists, model, np.arange(n), **options)(sign * near)[0] for sign in (1, -1))
    assert np.allclose(up, down, atol=1e-6)


def test_every_judgment_of_a_document_is_looked_at_somewhere() -> None:
    """Turn the last judgments of all documents round: a sample of few pairs feels it."""
    world = crowdrank.simulate(queries=3, documents=8, labels=12, assessors=12, grades=3, honeypots=0, random_state=2)
    model = GDAPairwise(n_iter=5, tol=10).fit(world.judgments)
    lists = lists_of(model)
    objective = JudgmentObjective(lists, model, np.arange(len(lists.y)), most_pairs=2, measure=None, random_state=1)
    base = objective(np.zeros(len(lists.y)))[0]
    felt = []
    for judgment in range(len(objective.grade)):
        kept = objective.grade[judgment]
        objective.grade[judgment] = 2 - kept if kept != 1 else 0
        felt.append(bool((objective(np.zeros(len(lists.y)))[0] != base).any()))
        objective.grade[judgment] = kept
    assert np.mean(felt) > 0.5  # of 12 judgments, 7 partners with 2 pairs each reach most; the first two are 17%


def test_a_frame_of_ids_and_features_is_enough() -> None:
    world = crowdrank.simulate(queries=15, documents=8, labels=3, random_state=7)
    model = GDAPairwise().fit(world.judgments)
    expected = GDAPairwiseMART(model, n_estimators=5).fit(read_features(world.features))
    ranker = GDAPairwiseMART(model, n_estimators=5).fit(world.features)
    assert ranker.features_ == expected.features_
    assert np.array_equal(ranker.predict(world.features), expected.predict(read_features(world.features)))
    # Ids of the columns find judgments; `query` beside them says the lists.
    lists = pd.factorize(world.features["query"])[0]
    beside = GDAPairwiseMART(model, n_estimators=5).fit(world.features, query=lists)
    assert np.array_equal(beside.predict(world.features), expected.predict(world.features))
    bare = world.features.drop(columns="query")
    result = GDAPairwiseMART(model, n_estimators=5).fit(bare, query=world.features["query"])
    assert np.array_equal(result.predict(bare), expected.predict(world.features))
    # Another ranker's rows have no ids: none are made up.
    with pytest.raises(UsageError, match="finds judgments by ids"):
        Ensemble([GDAPairwiseMART(model)]).fit(world.features, np.arange(len(bare)))
    both = Ensemble([ranker, expected], prefit=True).fit(world.features, np.arange(len(bare)) % 3)
    assert np.isfinite(both.predict(world.features)).all()
    # Without a measure the labels say nothing, and may be anything.
    free = GDAPairwiseMART(model, n_estimators=5, measure=None).fit(world.features, np.ones(len(bare)))
    assert np.ptp(free.predict(world.features)) > 0
    with pytest.raises(InputError, match="no query has two documents of different labels"):
        GDAPairwiseMART(model, gains=(0, 0, 0, 0, 0)).fit(world.features)


def test_a_weight_that_is_none_is_named_by_its_own_row() -> None:
    world = crowdrank.simulate(queries=10, documents=6, labels=2, random_state=7)
    model = GDAPairwise().fit(world.judgments)
    more = pd.concat([world.features.head(1).assign(document="new"), world.features], ignore_index=True)
    weight = np.ones(len(more))
    weight[4] = -2
    with (
        pytest.warns(UserWarning, match="1 document without judgments"),
        pytest.raises(InputError, match="row 5: the weight -2 is not one"),
    ):
        GDAPairwiseMART(model).fit(more, sample_weight=weight)


def test_rows_without_judgments_are_left_out_and_said() -> None:
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
        ({"most_pairs": 0}, "most_pairs must be a whole number of at least 1"),
        ({"min_curvature": 0}, "min_curvature must be a number above 0"),
        ({"measure": "P@5"}, "measure is one of nDCG, DCG, ERR, AP"),
    ],
)
def test_settings_that_mean_nothing(settings: dict[str, Any], said: str) -> None:
    model = crowd(1)
    with pytest.raises(UsageError, match=said):
        GDAPairwiseMART(**{"model": model, **settings}).fit(np.eye(3), query=[1, 1, 1], document=["a", "b", "c"])
    with pytest.raises(UsageError, match="finds judgments by ids: give Features, or query and document of each row"):
        GDAPairwiseMART(model).fit(np.eye(3), query=[1, 1, 1])
