"""Families of assessors who err together: stated in the input, or detected."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crowdrank import GDA, Auto, FamilyMean, Judgments, assess, evaluate, read_judgments, read_partitions, simulate
from crowdrank.consensus import e_step_kernels, get_aggregator
from crowdrank.consensus.families import effective_assessors
from crowdrank.consensus.family_weights import correlation_increments, nested_weights
from crowdrank.consensus.find_families import assessor_correlations, find_families
from crowdrank.errors import DataWarning, UsageError
from crowdrank.readers.datasets import dataset
from experiments.base import gold_in
from experiments.dl20 import thorough


def dense(seed: int, families: int) -> Judgments:
    world = simulate(queries=40, documents=20, assessors=24, labels=24, families=families, random_state=seed)
    return read_judgments(world.judgments)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), coarse=st.sampled_from([0.0, 0.3, 0.5]), fine=st.sampled_from([0.5, 0.8, 1.0]))
def test_weights_solve_the_correlation_matrix(seed: int, coarse: float, fine: float) -> None:
    """R^-1 1 of each item, R from the definition; with one level n / (1 + (n - 1) rho) in total."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, 5)
    offsets = np.append(0, np.cumsum(sizes))
    assessor = np.concatenate([rng.permutation(7)[:size] for size in sizes]).astype(np.int32)
    finest = rng.integers(0, 4, 7).astype(np.int32)
    levels = np.stack([finest // 2, finest])
    fine = min(fine, 0.999)  # copies make R singular
    increments = correlation_increments((coarse, fine), levels, None)
    found = nested_weights(offsets, assessor, levels, increments)
    one_level = nested_weights(offsets, assessor, levels[1:], correlation_increments(fine, levels[1:], None))
    for item in range(5):
        rows = slice(offsets[item], offsets[item + 1])
        top, own = levels[:, assessor[rows]]
        same_top, same = top[:, None] == top, own[:, None] == own
        matrix = np.where(same, fine, np.where(same_top, coarse, 0.0))
        np.fill_diagonal(matrix, 1.0)
        assert np.allclose(found[rows], np.linalg.solve(matrix, np.ones(len(own))))
        n = same.sum(axis=1)
        assert np.allclose(one_level[rows], 1 / (1 + (n - 1) * fine))


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_weighted_posteriors_equal_their_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    offsets = np.append(0, np.cumsum(rng.integers(1, 5, 6)))
    n = int(offsets[-1])
    assessor, grade = rng.integers(0, 4, n).astype(np.int32), rng.integers(0, 3, n).astype(np.int8)
    likelihood, prior = rng.dirichlet(np.ones(3), (4, 5)).transpose(0, 2, 1), rng.dirichlet(np.ones(5))
    weight, gold = rng.uniform(0.1, 1.0, n), rng.integers(-1, 3, 6).astype(np.int8)
    expert = rng.dirichlet(np.ones(3), 5).T
    posterior, counts, states = np.empty((6, 5)), np.zeros((4, 3, 5)), np.zeros(5)
    total = e_step_kernels.weighted_e_step(
        offsets,
        assessor,
        grade,
        gold,
        weight,
        np.log(prior)[None],
        np.log(likelihood),
        expert,
        posterior,
        counts,
        states,
    )
    expected, logs = np.zeros((4, 3, 5)), 0.0
    for item in range(6):
        rows = np.arange(offsets[item], offsets[item + 1])
        product = prior * (likelihood[assessor[rows], grade[rows]] ** weight[rows, None]).prod(axis=0)
        product *= expert[gold[item]] if gold[item] >= 0 else 1.0
        logs += np.log(product.sum())
        assert np.allclose(posterior[item], product / product.sum())
        for row in rows:
            expected[assessor[row], grade[row]] += product / product.sum()
    assert np.allclose(counts, expected)
    assert np.allclose(states, posterior.sum(axis=0))
    assert total == pytest.approx(logs)


def test_correlations_equal_pandas() -> None:
    judgments = read_judgments(simulate(queries=10, documents=20, assessors=8, labels=5, random_state=2).judgments)
    found, common = assessor_correlations(judgments, np.arange(judgments.n_assessors))
    item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
    wide = pd.DataFrame({"item": item, "assessor": judgments.assessor, "grade": judgments.grade}).pivot(
        index="item", columns="assessor", values="grade"
    )
    assert np.allclose(found, wide.astype(float).corr().fillna(0), atol=1e-9)
    assert (common == wide.notna().astype(int).T.dot(wide.notna().astype(int))).to_numpy().all()


@pytest.mark.parametrize("seed", range(3))
def test_independent_assessors_are_no_families(seed: int) -> None:
    judgments = dense(seed, families=0)
    assert not find_families(judgments).groups


@pytest.mark.parametrize("seed", range(3))
def test_families_are_found_as_they_are(seed: int) -> None:
    judgments = dense(seed, families=3)
    found = find_families(judgments)
    same = [one[:, None] == one for one in (found.family, judgments.family_of)]
    assert np.array_equal(*same)
    assert found.n_eff < 12


def test_families_do_not_hang_on_names_or_order() -> None:
    judgments = dense(1, families=3)
    frame = judgments.frame.drop(columns="family").sample(frac=1, random_state=0)
    other = read_judgments(frame.assign(assessor="x" + frame["assessor"].astype(str)))
    groups = [
        {frozenset(str(table.assessors[int(one)].as_py()).removeprefix("x") for one in group) for group in found.groups}
        for table, found in ((judgments, find_families(judgments)), (other, find_families(other)))
    ]
    assert groups[0] == groups[1] != set()


def crowd(
    family: NDArray[np.int64], finer: NDArray[np.int64] | None = None, seed: int = 0, n: int = 1_500
) -> Judgments:
    """Answers with errors that correlate by 0.6 in a family, or by 0.3 in a family and 0.6 in a finer one."""
    rng, size = np.random.default_rng(seed), len(family)
    shared = [0.6] if finer is None else [0.3, 0.3]
    relevance, noise = rng.normal(size=(n, 1)), 0.8 * np.exp(rng.normal(0, 0.3, size))
    error = np.sqrt(1 - sum(shared)) * rng.normal(size=(n, size))
    for part, codes in zip(shared, (family, finer), strict=False):
        error += np.sqrt(part) * rng.normal(size=(n, size))[:, codes]
    grade = ((relevance + noise * error)[..., None] > [-0.3, 0.5, 1.3]).sum(axis=-1)
    document, assessor = np.indices(grade.shape)
    columns = {"document": document.ravel(), "assessor": assessor.ravel(), "grade": grade.ravel()}
    return read_judgments(pd.DataFrame(columns), grades="0-3")


def kinds(caught: pytest.WarningsRecorder) -> set[str]:
    return {warning.message.kind for warning in caught if isinstance(warning.message, DataWarning)}


SINGLE = np.arange(30)


@pytest.mark.parametrize(
    "family", [SINGLE // 5, np.where(SINGLE < 15, 0, SINGLE), np.where(SINGLE < 25, 0, SINGLE)], ids=str
)
def test_families_are_found_whatever_their_share_of_the_crowd(family: NDArray[np.int64]) -> None:
    found = find_families(crowd(family))
    assert np.array_equal(found.family[:, None] == found.family, family[:, None] == family)
    assert not found.untestable
    assert found.detectable < 0.3


def test_nested_families_are_found_with_their_correlations() -> None:
    found = find_families(crowd(SINGLE // 15, SINGLE // 5))
    for codes, expected in ((found.family, SINGLE // 15), (found.finer, SINGLE // 5)):
        assert np.array_equal(codes[:, None] == codes, expected[:, None] == expected)
    assert found.correlation == pytest.approx(np.full(30, 0.3), abs=0.15)
    assert found.finer_correlation == pytest.approx(np.full(30, 0.6), abs=0.15)


def test_sparse_crowds_are_untestable() -> None:
    world = simulate(queries=10, documents=20, assessors=30, labels=3, families=3, random_state=1)
    with pytest.warns(DataWarning) as caught:
        model = GDA(families="found").fit(world.judgments.drop(columns="family"))
    assert "families-untestable" in kinds(caught)
    assert model.found_families_ is not None
    assert model.found_families_.untestable
    assert "n_eff" not in model.consensus_.documents


def test_auto_reports_families_and_applies_none() -> None:
    judgments = crowd(SINGLE // 5, n=400)
    with pytest.warns(DataWarning) as caught:
        auto = GDA(families="auto").fit(judgments)
    assert "families-found" in kinds(caught)
    assert auto.found_families_ is not None
    assert len(auto.found_families_.groups) == 6
    assert np.array_equal(relevance(auto), relevance(GDA(families="none").fit(judgments)))
    assert auto.n_eff_ == 30
    assert effective_assessors(auto) is None
    found = auto.found_families_.to_dict()
    assert sorted(itertools.chain(*found["groups"])) == sorted(judgments.assessors.to_pylist())
    assert all(len({name // 5 for name in group}) == 1 for group in found["groups"])
    assert found["n_eff"] < 15
    assert 0 < found["detectable"] < min(found["correlations"])
    assert not found["untestable"]
    assert not found["ambiguous"]


@pytest.mark.parametrize(
    ("method", "kind"), [("rasch", True), ("bwa", True), ("glad", True), ("gda", False), ("average", False)]
)
def test_models_that_ignore_families_say_so(method: str, kind: bool) -> None:
    judgments = copied(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = get_aggregator(method).fit(judgments)
    assert any(getattr(one.message, "kind", "") == "families-unused" for one in caught) == kind
    assert (effective_assessors(model) is None) == (method != "gda")


def test_auto_says_if_the_selected_method_ignores_families() -> None:
    with pytest.warns(DataWarning) as caught:
        Auto(candidates=("rasch",)).fit(copied(2))
    assert "families-unused" in kinds(caught)


def test_the_mean_of_families_says_if_there_are_none() -> None:
    judgments = copied(0)
    with pytest.warns(DataWarning) as caught:
        FamilyMean().fit(replace(judgments, families=None, assessor_family=None))
    assert kinds(caught) == {"no-families"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FamilyMean().fit(judgments)


def test_correlations_do_not_fall_from_coarse_to_fine_families() -> None:
    with pytest.raises(UsageError) as caught:
        GDA(family_correlation=(0.8, 0.2)).fit(copied(1))
    assert caught.value.parameter == "family_correlation"
    assert GDA(family_correlation=(0.2, 0.8)).fit(copied(1)).n_eff_ < 7


def test_the_number_of_independent_assessors_is_in_every_report() -> None:
    model = GDA().fit(copied(2))
    assert assess(model).n_eff == effective_assessors(model) == pytest.approx(6)
    auto = Auto(candidates=("gda",)).fit(copied(2))
    assert assess(auto).n_eff == pytest.approx(6)
    assert assess(GDA(families="none").fit(copied(2))).n_eff is None


def test_copies_are_named() -> None:
    judgments = copied(2)
    names = judgments.assessors.to_pylist()
    groups = [{names[one] for one in group} for group in find_families(judgments).copies]
    assert len(groups) == 1
    assert {"copy 0", "copy 1"} < groups[0]


def copied(times: int) -> Judgments:
    """A crowd, and an assessor with `times` copies, all of one family."""
    frame = simulate(queries=20, documents=10, assessors=6, labels=6, spammers=0, random_state=4).judgments
    first = frame["assessor"].iloc[0]
    copies = [frame[frame["assessor"] == first].assign(assessor=f"copy {n}") for n in range(times)]
    family = frame.assign(family=frame["assessor"].astype(str))
    joined = pd.concat([family, *(each.assign(family=str(first)) for each in copies)])
    return read_judgments(joined[["query", "document", "assessor", "grade", "family"]])


def relevance(model: GDA) -> NDArray[np.float64]:
    table = model.consensus_.document_table.sort_by([("query", "ascending"), ("document", "ascending")])
    return np.asarray(table["relevance"].to_numpy(), np.float64)


def test_a_family_of_copies_has_one_voice() -> None:
    alone, many = GDA().fit(copied(0)), GDA().fit(copied(12))
    outvoted = GDA(families="none").fit(copied(12))
    assert np.corrcoef(relevance(alone), relevance(many))[0, 1] > 0.99
    assert np.corrcoef(relevance(alone), relevance(outvoted))[0, 1] < 0.97


def test_correlation_zero_takes_a_family_as_independent() -> None:
    judgments = copied(3)
    one, other = GDA(family_correlation=0).fit(judgments), GDA(families="none").fit(judgments)
    assert np.array_equal(relevance(one), relevance(other))


def test_found_families_are_shown_saved_and_used_again(tmp_path: Path) -> None:
    judgments = dense(2, families=3)
    plain = replace(judgments, families=None, assessor_family=None)
    with pytest.warns(DataWarning):
        model = GDA(families="found").fit(plain)
    shown = model.consensus_.assessors.set_index("assessor")["family"].dropna()
    stated = np.bincount(judgments.family_of)
    assert sorted(shown.str.split("/").str[0].value_counts()) == sorted(stated[stated > 1])
    assert model.n_eff_ == pytest.approx(find_families(judgments).n_eff)
    sizes = model.consensus_.documents["n_eff"]
    assert sizes.to_numpy() == pytest.approx(np.full(len(sizes), model.n_eff_))
    model.save(tmp_path / "model")
    loaded = GDA.load(tmp_path / "model")
    again = loaded.infer(plain).document_table
    assert np.allclose(again["relevance"], model.consensus_.document_table["relevance"], atol=1e-9)


@pytest.mark.data
@pytest.mark.usefixtures("data_folder")
def test_one_voice_beats_the_mean_of_family_means_on_dl20() -> None:
    """The goals of DL20: nDCG@10, AP and Tau, without gold."""
    data = dataset("trec-dl20")
    judges = thorough(data.read_judgments(), 8_000)
    gold = gold_in(data.read_gold(), judges)
    measures = ["nDCG@10", "AP(rel=2)", "Tau"]
    means = evaluate(GDA().fit(judges).consensus_, gold, measures, unjudged="skip").means
    assert all(means[name] >= goal for name, goal in zip(measures, (0.68, 0.61, 0.70), strict=True))
    assert isinstance(judges.families, pa.Array)


def nested_frame() -> pd.DataFrame:
    names = [f"{vendor}/{model}/{prompt}" for vendor in "ab" for model in "xy" for prompt in (1, 2)]
    frame: pd.DataFrame = crowd(np.arange(8), n=60).frame
    frame["assessor"] = frame["assessor"].map(dict(enumerate(names)))
    return frame


def test_separators_in_names_give_nested_families(tmp_path: Path) -> None:
    judgments = read_judgments(nested_frame(), family_separator="/")
    assert judgments.family_levels.tolist() == [[0, 0, 0, 0, 2, 2, 2, 2], [0, 0, 1, 1, 2, 2, 3, 3]]
    model = GDA(family_correlation=(0.3, 1.0)).fit(judgments)
    expected = 4 / 1.3  # a model counts as one judge, and two models of a vendor as 2 / 1.3
    assert model.n_eff_ == pytest.approx(expected)
    assert model.consensus_.documents["n_eff"].to_numpy() == pytest.approx(np.full(60, expected))
    model.save(tmp_path / "model")
    assert GDA.load(tmp_path / "model").n_eff_ == pytest.approx(expected)


def test_nested_families_on_disk_weigh_as_in_memory(tmp_path: Path) -> None:
    frame = nested_frame().assign(query="q")
    (tmp_path / "in").mkdir()
    frame.to_parquet(tmp_path / "in" / "part.parquet")
    on_disk = read_partitions(tmp_path / "in", work=tmp_path / "work", family_separator="/", grades="0-3")
    stored, memory = (
        GDA().fit(table) for table in (on_disk, read_judgments(frame, family_separator="/", grades="0-3"))
    )
    assert relevance(stored) == pytest.approx(relevance(memory), abs=1e-9)
    assert "n_eff" in stored.consensus_.documents


def test_ambiguous_families_count_once_and_experts_decide() -> None:
    """Members that share one view: a family of 12 and 12 single ones fit as well as the reverse."""
    rng, n = np.random.default_rng(3), 1_500
    true = rng.normal(size=n)
    view = np.repeat([[1.0] * 12 + [0.0] * 12], n, axis=0) * (0.62 * rng.normal(size=(n, 1)))
    seen = true[:, None] + view + 0.5 * rng.normal(size=(n, 24))
    grade = (seen[..., None] > [-0.3, 0.5, 1.3]).sum(axis=-1)
    document, assessor = np.indices(grade.shape)
    columns = {"document": document.ravel(), "assessor": assessor.ravel(), "grade": grade.ravel()}
    judgments = read_judgments(pd.DataFrame(columns), grades="0-3")
    found = find_families(judgments)
    assert found.ambiguous
    assert found.n_eff == pytest.approx(2.0)
    expert = np.where(np.arange(n) < 600, (true[:, None] > [-0.3, 0.5, 1.3]).sum(axis=1), np.nan)
    rooted = find_families(judgments, expert)
    assert not rooted.ambiguous
    assert [group.tolist() for group in rooted.groups] == [list(range(12))]
