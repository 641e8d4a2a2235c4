"""Preferences in GDA: the joint posterior, the parameters of assessors, recovery of simulated truth, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit

from crowdrank import GDA, DawidSkene, LocalEngine, assess, read_judgments, read_preferences
from crowdrank.consensus import gda, preference_assessors, preference_posterior
from crowdrank.consensus.latent import standard_nodes
from crowdrank.errors import InputError, UsageError
from crowdrank.judgments.joined import ItemPreferences, join, no_judgments

Array = np.ndarray[Any, Any]


class World(NamedTuple):
    """Simulated preferences and judgments, and the truth."""

    preferences: pd.DataFrame
    judgments: pd.DataFrame
    relevance: Array  # (n_queries, n_documents)
    sharpness: Array
    offset: Array

    def truth(self, documents: pd.DataFrame) -> Array:
        """Return the true relevance of documents, standardized."""
        cells = zip(documents["query"], documents["document"], strict=True)
        truth = np.array([self.relevance[int(query[1:]), int(document[1:])] for query, document in cells])
        return np.asarray((truth - truth.mean()) / truth.std())


def simulate(seed: int, n_queries: int = 30, n_documents: int = 10, per_query: int = 40) -> World:
    rng = np.random.default_rng(seed)
    relevance = rng.normal(size=(n_queries, n_documents))
    sharpness, offset = np.exp(rng.normal(0.4, 0.5, 8)), rng.normal(0.3, 0.5, 8)
    rows, grades = [], []
    for query in range(n_queries):
        for _ in range(per_query):
            left, right = rng.choice(n_documents, 2, replace=False)
            a = rng.integers(8)
            latent = sharpness[a] * (relevance[query, left] - relevance[query, right]) + offset[a] + rng.logistic()
            answer = 0 if abs(latent) < 0.4 else -int(np.sign(latent)) * (2 if abs(latent) > 2.5 else 1)
            rows.append((f"q{query}", f"d{left}", f"d{right}", f"a{a}", answer))
        for document in range(n_documents):
            for judge in rng.choice(5, 2, replace=False):
                seen = relevance[query, document] + rng.normal(0, 0.6 + 0.1 * judge)
                grades.append((f"q{query}", f"d{document}", f"g{judge}", int(np.digitize(seen, [-0.8, 0.2, 1.1]))))
    names = ["query", "left", "right", "assessor", "preference"]
    judgments = pd.DataFrame(grades, columns=["query", "document", "assessor", "grade"])
    return World(pd.DataFrame(rows, columns=names), judgments, relevance, sharpness, offset)


@pytest.fixture(scope="module")
def world() -> World:
    return simulate(0)


@pytest.fixture(scope="module")
def both(world: World) -> GDA:
    return GDA().fit(world.judgments, preferences=read_preferences(world.preferences, repeats="keep"))


# The kernels, compared with obvious versions of the model.


def log_probability(answer: int, difference: float, params: Array) -> float:
    """Return log P(answer | difference), by the definition of the ordered logit; answers are 0 to 4."""
    log_s, offset, log_inner, log_gap = params
    inner = np.exp(log_inner)
    outer = inner + np.exp(log_gap)
    cuts = np.array([-np.inf, -outer, -inner, inner, outer, np.inf])
    x = np.exp(log_s) * difference + offset
    return float(np.log(expit(cuts[answer + 1] - x) - expit(cuts[answer] - x)))


PARAMS = np.array([[0.3, 0.4, -0.5, 0.2], [-0.4, -0.3, 0.1, 0.6]])
THETA = {"preference_params": PARAMS, "preference_active": np.ones(4, bool)}
PAIRS = ((0, 1, 0, 3), (1, 2, 1, 4), (2, 0, 0, 2), (0, 2, 1, 1), (3, 4, 1, 0))  # left, right, assessor, answer


def test_the_joint_posterior_is_the_laplace_approximation() -> None:
    nodes, mean, sd = standard_nodes(41), np.array([0.5, -0.3, 0.1, 0.9, 0.2]), np.array([0.5, 0.7, 0.6, 0.5, 0.6])
    posterior = np.exp(-0.5 * ((nodes - mean[:, None]) / sd[:, None]) ** 2)
    posterior /= posterior.sum(axis=1, keepdims=True)
    left, right, assessor, answer = np.array(PAIRS).T
    query = np.array([0, 0, 0, 0, 1], np.int32)
    pairs = ItemPreferences(left, right, assessor.astype(np.int32), answer.astype(np.int32), query, True)
    weight = np.array([1.0, 0.5, 1.0, 1.0, 1.0])
    result = preference_posterior.joint_posterior(pairs, posterior, nodes, THETA, weight, None)

    def loss(relevance: Array) -> float:
        prior = (-0.5 * ((relevance - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)).sum()
        terms = [
            w * log_probability(k, relevance[i] - relevance[j], PARAMS[a])
            for (i, j, a, k), w in zip(PAIRS, weight, strict=True)
        ]
        return -float(prior + sum(terms))

    best = minimize(loss, mean, method="BFGS", options={"gtol": 1e-8})
    assert np.allclose(result.mode, best.x, atol=1e-4)
    hessian = np.array([[second_difference(loss, best.x, i, j) for j in range(5)] for i in range(5)])
    covariance = np.linalg.inv(hessian)
    evidence = -loss(best.x) + 2.5 * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(hessian)[1]
    assert result.statistics["preference_log_likelihood"][0] == pytest.approx(evidence, abs=1e-3)
    marginal = posterior * np.exp(result.messages)
    assert np.allclose(marginal.sum(axis=1), 1.0)  # the mean of the factor is 1
    found = marginal @ nodes
    assert np.allclose(found, best.x, atol=2e-3)
    assert np.allclose(marginal @ nodes**2 - found**2, np.diag(covariance), rtol=0.01)
    counts = result.statistics["preference_counts"]
    grid = preference_assessors.DIFFERENCES
    for row, (i, j, a, k) in enumerate(PAIRS[:2]):
        own = counts[a, :, k] / counts[a, :, k].sum()
        assert own @ grid == pytest.approx(best.x[i] - best.x[j], abs=1e-3)
        variance = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
        assert own @ grid**2 - (own @ grid) ** 2 == pytest.approx(variance, abs=0.005)
        assert counts[a, :, k].sum() == pytest.approx(weight[row])


def second_difference(function: Any, at: Array, i: int, j: int, step: float = 1e-3) -> float:
    one, other = np.eye(len(at))[i] * step, np.eye(len(at))[j] * step
    corners = function(at + one + other) - function(at + one - other) - function(at - one + other)
    return float((corners + function(at - one - other)) / (4 * step**2))


def test_a_newton_step_follows_the_gradient_of_the_objective() -> None:
    rng = np.random.default_rng(1)
    counts = np.zeros((1, len(preference_assessors.DIFFERENCES), 5))
    counts[0, rng.integers(30, 99, 200), rng.integers(0, 5, 200)] += rng.random(200)
    mean, precision = np.array([0.2, 0.0, -0.5, 0.4]), np.array([2.0, 4.0, 2.0, 2.0])

    def loss(params: Array) -> float:
        grid = enumerate(preference_assessors.DIFFERENCES)
        fit = sum(
            counts[0, place, k] * log_probability(int(k), difference, params)
            for place, difference in grid
            for k in np.flatnonzero(counts[0, place])
        )
        return float(-fit + 0.5 * (precision * (params - mean) ** 2).sum())

    params, active = PARAMS[:1], np.ones(4, bool)
    for _ in range(20):
        params, variance = preference_assessors.newton_step(params, mean, precision, active, counts)
    assert np.abs(approx_fprime(params[0], loss, 1e-6)).max() < 0.01
    assert (variance > 0).all()
    assert (variance[0] < 1 / precision).all()


def test_probabilities_of_answers_sum_to_1() -> None:
    for active in ([True] * 4, [True, True, False, False], [True, False, True, False], [True, False, False, True]):
        shares = preference_assessors.answer_probabilities(PARAMS, np.array(active))
        assert np.allclose(shares.sum(axis=2), 1.0)
        assert (shares[:, :, 2].max() > 0) == active[2]
        assert (shares[:, :, 0].max() > 1e-9) == active[3]


def random_pairs(sizes: list[int], n: int, seed: int = 0) -> ItemPreferences:
    """Return preferences between random documents of queries with these numbers of documents."""
    rng, first = np.random.default_rng(seed), np.append(0, np.cumsum(sizes))
    query = np.sort(rng.integers(0, len(sizes), n))
    left = (rng.random(n) * np.array(sizes)[query]).astype(np.int64)
    right = (left + 1 + (rng.random(n) * (np.array(sizes)[query] - 1)).astype(np.int64)) % np.array(sizes)[query]
    answer, assessor = rng.integers(0, 5, n).astype(np.int32), rng.integers(0, 2, n).astype(np.int32)
    return ItemPreferences(first[query] + left, first[query] + right, assessor, answer, query.astype(np.int32), True)


def joint(pairs: ItemPreferences, n_items: int, mode: Array | None = None) -> preference_posterior.JointPosterior:
    nodes = standard_nodes(41)
    prior = np.exp(-0.5 * (nodes - np.linspace(-1, 1, n_items)[:, None]) ** 2)
    prior /= prior.sum(axis=1, keepdims=True)
    return preference_posterior.joint_posterior(pairs, prior, nodes, THETA, np.ones(len(pairs)), mode)


def test_large_queries_are_sampled_in_linear_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = random_pairs([4, 300, 6, 200], 3000)
    exact = joint(pairs, 510)
    monkeypatch.setattr(preference_posterior, "MAX_EXACT_DOCUMENTS", 100)
    sampled = joint(pairs, 510)
    assert np.array_equal(sampled.mode, exact.mode)
    nodes = standard_nodes(41)
    sd = []
    for one in (exact, sampled):
        posterior = np.exp(-0.5 * (nodes - np.linspace(-1, 1, 510)[:, None]) ** 2 + one.messages)
        posterior /= posterior.sum(axis=1, keepdims=True)
        sd.append(np.sqrt(posterior @ nodes**2 - (posterior @ nodes) ** 2))
    assert np.abs(sd[1] / sd[0] - 1).max() < 0.1
    assert np.abs(sd[1] / sd[0] - 1).mean() < 0.015
    names = ("preference_counts", "preference_log_likelihood")
    counts, evidence = ([one.statistics[name] for one in (exact, sampled)] for name in names)
    assert np.abs(counts[0] - counts[1]).sum() < 0.02 * counts[0].sum()
    assert evidence[1] == pytest.approx(evidence[0], rel=1e-3)
    assert np.array_equal(joint(pairs, 510).messages, sampled.messages)  # the samples are the same


def test_thousands_of_documents_of_a_query_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    n_items, pairs = 5000, random_pairs([5000], 15000)
    curvature, bend = np.ones(n_items), np.full(len(pairs), 0.3)

    def refuse(*arguments: Any) -> None:
        raise AssertionError("the Hessian of a large query is stored as a whole")

    monkeypatch.setattr(preference_posterior, "write_variances", refuse)
    sides = pairs.left, pairs.right
    variance, spread, log_determinant = preference_posterior.sample_variances(*sides, bend, curvature)
    hessian = np.eye(n_items)
    for (one, other), sign in zip(((0, 0), (1, 1), (0, 1), (1, 0)), (1, 1, -1, -1), strict=True):
        np.add.at(hessian, (sides[one], sides[other]), sign * 0.3)
    assert log_determinant == pytest.approx(np.linalg.slogdet(hessian)[1], rel=0.005)
    some = np.arange(0, n_items, 100)
    columns = np.linalg.solve(hessian, np.eye(n_items)[:, some])
    assert np.allclose(variance[some], columns[some, np.arange(len(some))], rtol=0.1)
    assert (spread < 2.0).all()
    assert np.isfinite(joint(pairs, n_items).messages).all()


def test_a_repeated_pass_gives_the_same_bytes() -> None:
    pairs = random_pairs([9, 40, 2], 200)
    one = joint(pairs, 51)
    other = joint(pairs, 51, one.mode)
    assert np.array_equal(one.mode, other.mode)
    assert np.array_equal(one.messages, other.messages)


# Simulated truth is recovered.


def test_preferences_alone_recover_relevance_and_assessors() -> None:
    covered, tables = [], []
    for seed in range(4):
        world = simulate(seed, n_queries=25)
        model = GDA().fit(None, preferences=read_preferences(world.preferences, repeats="keep"))
        documents, truth = model.consensus_.documents, world.truth(model.consensus_.documents)
        assert np.corrcoef(truth, documents["relevance"])[0, 1] > 0.75
        covered.append((truth >= documents["lower"]) & (truth <= documents["upper"]))
        code = model.consensus_.assessors["assessor"].str[1:].astype(int)
        columns = {"true": np.log(world.sharpness[code]), "offset": world.offset[code]}
        tables.append(model.consensus_.assessors.assign(**columns))
        assert "grade" not in documents
        assert "p0" not in documents
        assert documents["preferences"].sum() == 2 * len(world.preferences)
    assert 0.92 <= np.concatenate(covered).mean() <= 0.98
    assessors = pd.concat(tables)
    assert np.corrcoef(np.log(assessors["sharpness"]), assessors["true"])[0, 1] > 0.8
    assert np.corrcoef(assessors["position_bias"], assessors["offset"])[0, 1] > 0.8
    assert np.abs(np.log(assessors["sharpness"]) - assessors["true"]).mean() < 0.3
    assert assessors["ties"].between(0, 0.3).all()


def test_grades_and_preferences_are_better_than_either(world: World, both: GDA) -> None:
    grades = GDA().fit(world.judgments)
    preferences = GDA().fit(None, preferences=world.preferences)
    correlations = []
    for model in (grades, preferences, both):
        documents = model.consensus_.documents
        correlations.append(np.corrcoef(world.truth(documents), documents["relevance"])[0, 1])
    assert correlations[2] > max(correlations[:2]) + 0.03
    documents, truth = both.consensus_.documents, world.truth(both.consensus_.documents)
    assert ((truth >= documents["lower"]) & (truth <= documents["upper"])).mean() > 0.9
    assert both.converged_
    table = both.consensus_.assessors.set_index("assessor")
    assert table.loc["g0", ["informativeness", "separation"]].notna().all()
    assert np.isnan(table.loc["g0", "sharpness"])
    assert np.isnan(table.loc["a0", "informativeness"])
    assert (table.loc["a0", "judgments"], table.loc["g0", "preferences"]) == (0, 0)
    assert len(assess(both).table) == 5  # assessors with judgments


def test_exchanged_sides_give_the_opposite_position_bias(world: World) -> None:
    exchanged = world.preferences.rename(columns={"left": "right", "right": "left"})
    exchanged["preference"] *= -1
    one, other = (GDA().fit(None, preferences=table) for table in (world.preferences, exchanged))
    bias = [model.consensus_.assessors["position_bias"].to_numpy() for model in (one, other)]
    assert np.allclose(bias[0], -bias[1], atol=1e-6)
    relevance = [model.consensus_.documents.set_index(["query", "document"])["relevance"] for model in (one, other)]
    assert np.allclose(relevance[0], relevance[1].reindex(relevance[0].index), atol=1e-6)


def test_the_order_is_that_of_noisy_bradley_terry(world: World) -> None:
    aggregation = pytest.importorskip("crowdkit.aggregation")
    table = world.preferences[world.preferences["preference"] != 0].copy()
    table["preference"] = np.sign(table["preference"])
    documents = GDA().fit(None, preferences=table).consensus_.documents.set_index(["query", "document"])["relevance"]
    sides = {side: list(zip(table["query"], table[side], strict=True)) for side in ("left", "right")}
    label = [b if k > 0 else a for a, b, k in zip(*sides.values(), table["preference"], strict=True)]
    frame = pd.DataFrame({"worker": table["assessor"].to_numpy(), **sides, "label": label})
    theirs = aggregation.NoisyBradleyTerry(n_iter=50).fit_predict(frame)
    theirs.index = pd.MultiIndex.from_tuples(theirs.index)
    aligned = theirs.reindex(documents.index).to_numpy()
    truth = world.truth(documents.reset_index())
    ours, other = (pd.Series(scores).corr(pd.Series(truth), "spearman") for scores in (documents.to_numpy(), aligned))
    assert ours >= other - 0.02
    assert pd.Series(aligned).corr(pd.Series(documents.to_numpy()), "spearman") > 0.7


def test_a_cycle_makes_documents_equal() -> None:
    rows = {"left": ["a", "b", "c"], "right": ["b", "c", "a"], "assessor": "x", "preference": -1}
    documents = GDA().fit(None, preferences=pd.DataFrame(rows)).consensus_.documents
    assert np.abs(documents["relevance"]).max() < 0.05


def test_small_inputs_give_finite_relevance() -> None:
    labels = pd.DataFrame({"query": ["q", "r"], "document": ["a", "z"], "assessor": "g", "grade": [1, 0]})
    rows = {"query": "q", "left": ["a", "b"], "right": ["b", "c"], "assessor": ["x", "y"], "preference": [-1, 0]}
    for judgments in (labels, None):  # two assessors with one answer, and a query with one document
        model = GDA().fit(judgments, preferences=pd.DataFrame(rows))
        documents = model.consensus_.documents
        assert len(documents) == (3 if judgments is None else 4)
        assert np.isfinite(documents[["relevance", "sd", "lower", "upper"]]).all(axis=None)
        assessors = model.consensus_.assessors.set_index("assessor").loc[["x", "y"]]
        assert np.isfinite(assessors[["sharpness", "position_bias", "ties"]]).all(axis=None)
        one = documents.set_index("document")["relevance"]
        assert one["a"] > one["b"]


# Details.


def test_without_preferences_nothing_changes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("joint_posterior", "update_assessors", "initial_assessors", "preference_columns"):
        monkeypatch.delattr(gda, name)
    model = GDA().fit(world.judgments)
    assert not [name for name in model.theta_ if name.startswith("preference")]
    assert "preferences" not in model.consensus_.documents
    assert list(model.consensus_.assessors) == ["assessor", "judgments", "separation", "shift", "informativeness"]


def test_threads_do_not_change_the_result(world: World) -> None:
    models = [
        GDA().fit(world.judgments, preferences=world.preferences, engine=LocalEngine(n_jobs, shard_size=100))
        for n_jobs in (1, 3)
    ]
    assert models[0].consensus_.document_table.equals(models[1].consensus_.document_table)
    assert models[0].history_ == models[1].history_


@pytest.mark.parametrize("parameters", [{"difficulty": True}, {"unjudgeable_as": "model"}, {"tied_variance": False}])
def test_preferences_go_with_other_parameters(world: World, parameters: dict[str, Any]) -> None:
    model = GDA(n_iter=5, tol=0, **parameters)
    documents = model.fit(world.judgments[:200], preferences=world.preferences[:300]).consensus_.documents
    assert np.isfinite(documents[["relevance", "sd", "lower", "upper", "p0"]]).all().all()
    assert np.corrcoef(world.truth(documents), documents["relevance"])[0, 1] > 0.6


def test_winners_have_no_position_bias(world: World) -> None:
    table = world.preferences[world.preferences["preference"] != 0]
    is_left = table["preference"] < 0
    columns = {
        "winner": table["left"].where(is_left, table["right"]),
        "loser": table["right"].where(is_left, table["left"]),
    }
    model = GDA().fit(None, preferences=table[["query", "assessor"]].assign(**columns))
    assert "position_bias" not in model.consensus_.assessors
    assert "ties" not in model.consensus_.assessors
    documents = model.consensus_.documents
    assert np.corrcoef(world.truth(documents), documents["relevance"])[0, 1] > 0.7


def test_copies_in_a_family_count_once(world: World) -> None:
    table = world.preferences
    copies = pd.concat([table.assign(assessor=table["assessor"] + f"-{i}", family=table["assessor"]) for i in range(3)])
    one, three = GDA().fit(None, preferences=table), GDA().fit(None, preferences=copies)
    sd = [model.consensus_.documents["sd"].mean() for model in (one, three)]
    assert sd[1] == pytest.approx(sd[0], rel=0.05)
    alone = GDA(families="none").fit(None, preferences=copies)
    assert alone.consensus_.documents["sd"].mean() < 0.8 * sd[0]


def test_documents_and_assessors_of_one_kind_are_joined() -> None:
    labels = {"query": ["q", "q", "r"], "document": ["a", "b", "c"], "assessor": ["x", "y", "x"], "grade": [1, 0, 1]}
    rows = {"query": ["s", "q"], "left": ["e", "b"], "right": ["f", "d"], "assessor": ["z", "x"], "preference": [1, -1]}
    judgments = read_judgments(pd.DataFrame(labels))
    joined = join(judgments, read_preferences(pd.DataFrame(rows)))
    query, document = (column.to_pylist() for column in joined.item_ids())
    assert list(zip(query, document, strict=True)) == [(q, d) for q, d in zip("qqqrss", "abdcef", strict=True)]
    assert np.diff(joined.offsets).tolist() == [1, 1, 0, 1, 0, 0]
    assert joined.assessors.to_pylist() == ["x", "y", "z"]
    assert joined.to_arrow().equals(judgments.to_arrow())
    pairs = joined.preferences
    assert (pairs.left.tolist(), pairs.right.tolist(), pairs.answer.tolist()) == ([1, 4], [2, 5], [3, 1])
    assert joined.preferences_per_item().tolist() == [0, 1, 1, 0, 1, 1]
    alone = join(no_judgments("pandas"), read_preferences(pd.DataFrame(rows)))
    assert (len(alone), alone.n_items, alone.n_answers) == (0, 4, 2)


def test_the_posterior_is_that_of_the_fit(both: GDA) -> None:
    table = both.posterior()
    nodes = table.columns[2:].astype(float)
    mean = table[table.columns[2:]].to_numpy() @ nodes
    assert np.allclose(mean, both.consensus_.documents["relevance"], atol=1e-4)


# What is refused.


def test_models_that_cannot_use_preferences_refuse_them(world: World, tmp_path: Path) -> None:
    for model in (DawidSkene(), GDA(estimation="joint")):
        with pytest.raises(UsageError) as error:
            model.fit(world.judgments, preferences=world.preferences)
        assert (error.value.parameter, error.value.kind) == ("preferences", "no-preferences")
    plain = DawidSkene().fit(world.judgments)
    for use in (plain.add, plain.infer):
        with pytest.raises(UsageError) as refused:
            use(preferences=world.preferences)
        assert refused.value.kind == "no-preferences"
    with pytest.raises(UsageError) as output:
        GDA().fit(world.judgments, preferences=world.preferences, output=tmp_path / "out")
    assert output.value.parameter == "output"


def test_preferences_alone_have_no_grades(world: World) -> None:
    model = GDA(n_iter=2, tol=1.0).fit(None, preferences=world.preferences)
    for use in (model.predict, model.predict_proba, lambda: assess(model)):
        with pytest.raises(UsageError) as error:
            use()
        assert error.value.kind == "no-grades"


def test_other_documents_are_refused(world: World) -> None:
    other = world.preferences.assign(query="other")
    with pytest.raises(InputError) as error:
        GDA().fit(world.judgments, preferences=other)
    assert error.value.kind == "nothing-in-common"
