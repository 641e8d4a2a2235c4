"""GDA: its parts against references, what it finds in data drawn from itself, and its figures on RF10."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.stats
from numpy.typing import NDArray

from crowdrank import GDA, GDAPairwise, Judgments, Rasch, assess, evaluate, read_judgments
from crowdrank.consensus.curves import GaussianCurves
from crowdrank.consensus.latent import NODES, PRIOR, information
from crowdrank.errors import UsageError
from crowdrank.readers.combine import combine
from crowdrank.readers.datasets import dataset
from experiments.difficulty import draw_skewed


def drawn(
    seed: int, items: int = 3000, assessors: int = 60, per_item: int = 5
) -> tuple[pd.DataFrame, NDArray[np.float64]]:
    """Judgments drawn from the model: curves from a normal prior, relevance standard normal."""
    rng = np.random.default_rng(seed)
    relevance = rng.standard_normal(items)
    mean = np.array([-1.2, 0.0, 1.2, 0.3, 0.2, -0.5])
    curves = mean + rng.standard_normal((assessors, 6)) * np.array([0.6, 0.3, 0.6, 0.8, 0.6, 0.8])
    item = np.repeat(np.arange(items), per_item)
    assessor = np.concatenate([rng.choice(assessors, per_item, replace=False) for _ in range(items)])
    scores = curves[assessor, :3] * relevance[item, None] + curves[assessor, 3:]
    grade = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return pd.DataFrame({"document": item, "assessor": assessor, "grade": grade}), relevance


@pytest.mark.parametrize(("level", "share"), [(0.5, 0.5), (0.95, 0.95)])
def test_intervals_cover_what_they_say_on_data_drawn_from_the_model(level: float, share: float) -> None:
    covered = []
    for seed in range(3):
        frame, relevance = drawn(seed)
        table = GDA(interval=level).fit(frame).consensus_.documents.set_index("document").loc[range(len(relevance))]
        covered.append(((table["lower"] <= relevance) & (relevance <= table["upper"])).mean())
    assert np.mean(covered) == pytest.approx(share, abs=0.02)


def test_reversed_assessors_are_read_in_reverse() -> None:
    frame, _ = drawn(0, items=800)
    flipped = frame.assign(grade=np.where(frame["assessor"] == 7, 2 - frame["grade"], frame["grade"]))
    one, other = (GDA().fit(each).consensus_ for each in (frame, flipped))
    found = [table.documents.set_index("document").loc[range(800), "relevance"] for table in (one, other)]
    assert np.corrcoef(found[0], found[1])[0, 1] > 0.99
    slope = other.assessors.set_index("assessor")["separation"]
    assert slope.loc[7] < 0 < slope.drop(7).median()


def test_a_document_that_nobody_can_judge_sinks() -> None:
    frame, _ = drawn(0, items=300)
    broken = pd.DataFrame({"document": -1, "assessor": range(6), "grade": [-2, -2, -2, -2, -2, 1]})
    judgments = read_judgments(pd.concat([frame, broken]), unjudgeable=-2)
    table = GDA(unjudgeable_as="model").fit(judgments).consensus_.documents.set_index("document")
    assert table["unjudgeable"].idxmax() == -1
    assert table.loc[-1, "relevance"] == table["relevance"].min()
    assert table["unjudgeable"].drop(-1).max() < 0.5


def test_the_crowds_curve_gives_usable_grades() -> None:
    frame, relevance = drawn(1, items=1500)
    table = GDA().fit(frame).consensus_.documents.set_index("document").loc[range(1500)]
    means = pd.Series(relevance).groupby(table["grade"].to_numpy()).mean()
    assert list(means.index) == [0, 1, 2]
    assert means.is_monotonic_increasing


MEASURES = ["AP", "nDCG", "Tau"]


def figures(model: GDA, gold: pd.DataFrame) -> list[float]:
    return list(evaluate(model.consensus_.documents, gold, MEASURES, unjudged="skip").means.values())


@pytest.mark.data
@pytest.mark.parametrize(
    ("unjudgeable_as", "reference"), [("lowest", [0.787, 0.829, 0.671]), ("model", [0.796, 0.835, 0.691])]
)
def test_the_reference_figures_on_rf10(rf10: Judgments, unjudgeable_as: str, reference: list[float]) -> None:
    model = GDA(unjudgeable_as=unjudgeable_as).fit(rf10)
    assert figures(model, dataset("trec-rf10").read_gold().frame) == pytest.approx(reference, abs=0.005)


@pytest.mark.data
def test_injected_assessors_are_seen_through_on_rf10(rf10: Judgments) -> None:
    """A random assessor on every document tells nothing; one that answers 2 - gold tells nearly everything."""
    rng = np.random.default_rng(0)
    gold = dataset("trec-rf10").read_gold().frame
    items = pa.table(
        {
            "query": rf10.queries.take(pa.array(rf10.item_query)),
            "document": rf10.documents.take(pa.array(rf10.item_document)),
            "assessor": ["RANDOM"] * rf10.n_items,
            "grade": rng.integers(0, 3, rf10.n_items),
        }
    )
    reverse = gold.assign(assessor="REVERSED", grade=2 - gold["grade"])
    crowd = replace(rf10, extras={})
    for frame in (items, reverse):
        crowd = combine(crowd, read_judgments(frame, grades="0-2"))
    model = GDA().fit(crowd)
    about = model.consensus_.assessors.set_index("assessor")
    assert about.loc["RANDOM", "informativeness"] < 0.01
    assert about.loc["REVERSED", "separation"] < 0
    assert figures(model, gold)[0] >= 0.92


def test_a_random_assessor_tells_nothing() -> None:
    curves = np.array([[0.0, 0.0, 0.0, 1.0, 0.5, -1.0]])
    total, parts = information(PRIOR, GaussianCurves(np.ones(1), tied_variance=True, nodes=NODES).probabilities(curves))
    assert total[0] == pytest.approx(0, abs=1e-12)
    assert np.allclose(parts, 0, atol=1e-12)


def on_two_scales(seed: int, flipped: bool = False) -> tuple[pd.DataFrame, NDArray[np.float64], dict[str, str]]:
    """Half of the assessors answer yes or no, half on five grades, about the same relevance."""
    rng = np.random.default_rng(seed)
    relevance = rng.standard_normal(600)
    rows = []
    for a in range(12):
        binary = a % 2 == 0
        cuts = [0.3] if binary else [-1.0, -0.3, 0.4, 1.1]
        items = rng.choice(600, 300, replace=False)
        seen = relevance[items] + rng.normal(0, 0.6, 300)
        grade = np.searchsorted(cuts, -seen if flipped and a == 0 else seen)
        name = f"{'yesno' if binary else 'stars'}-{a}"
        rows.append(pd.DataFrame({"document": items, "assessor": name, "grade": grade}))
    frame = pd.concat(rows, ignore_index=True)
    return frame, relevance, {name: "0-1" if name.startswith("yesno") else "0-4" for name in frame["assessor"].unique()}


def read_two_scales(path: Path, frame: pd.DataFrame, scales: dict[str, str]) -> Judgments:
    lines = ["assessor,grades", *(f"{name},{grades}" for name, grades in scales.items())]
    path.write_text("\n".join(lines) + "\n")
    return read_judgments(frame, scales=path)


@pytest.mark.parametrize("cls", [GDA, Rasch, GDAPairwise])
def test_assessors_with_scales_of_their_own_meet_on_one_line(cls: type[GDA], tmp_path: Path) -> None:
    frame, relevance, scales = on_two_scales(0)
    judgments = read_two_scales(tmp_path / "scales.csv", frame, scales)
    model = cls().fit(judgments)
    table = model.consensus_.documents.set_index("document")
    assert np.corrcoef(table["relevance"], relevance[table.index])[0, 1] > 0.9
    assert set(table["grade"]) <= set(range(5))
    assert str(model.consensus_.scale) == "0-4"
    stars = cls().fit(read_judgments(frame[frame["assessor"].str.startswith("stars")]))
    alone = stars.consensus_.documents.set_index("document")
    both = np.corrcoef(table.loc[alone.index, "relevance"], relevance[alone.index])[0, 1]
    assert both > np.corrcoef(alone["relevance"], relevance[alone.index])[0, 1]
    model.save(tmp_path / "model")
    again = cls.load(tmp_path / "model").infer(judgments).documents.set_index("document")
    assert np.allclose(again["relevance"], table["relevance"], atol=1e-9)


def test_a_reversed_assessor_on_a_scale_of_its_own_is_seen(tmp_path: Path) -> None:
    frame, _, scales = on_two_scales(1, flipped=True)
    report = assess(GDA().fit(read_two_scales(tmp_path / "scales.csv", frame, scales)))
    flags = report.frame.set_index("assessor")["flag"]
    assert flags["yesno-0"] == "reversed"
    assert not flags.drop("yesno-0").isin(["reversed", "random"]).any()


@pytest.mark.parametrize("difficulty", [False, True])
@pytest.mark.parametrize("tied_variance", [True, False])
def test_an_ordinal_reversed_assessor_counts_as_noise(tied_variance: bool, difficulty: bool) -> None:
    frame, relevance = drawn(0, items=800)
    flipped = frame.assign(grade=np.where(frame["assessor"] == 7, 2 - frame["grade"], frame["grade"]))
    model = GDA(tied_variance=tied_variance, difficulty=difficulty, n_iter=30, tol=1e-4)
    informativeness = {}
    for ordinal in (False, True):
        model.set_params(ordinal=ordinal).fit(flipped)
        informativeness[ordinal] = model.consensus_.assessors.set_index("assessor").loc[7, "informativeness"]
    assert informativeness[True] < 0.002 < 0.02 < informativeness[False]
    table = model.consensus_.documents.set_index("document").loc[range(800)]
    assert np.corrcoef(table["relevance"], relevance)[0, 1] > 0.8
    gaussians = model.grade_gaussians()
    gaussians = gaussians[gaussians["mu"].abs() < 3.0]  # the range in which answers are in order
    assert (gaussians.groupby("assessor")["mu"].diff().dropna() > -1e-3).all()


@pytest.mark.parametrize(("tied_variance", "tolerance"), [(True, 0.005), (False, 0.03)])
def test_difficulty_of_skewed_grades_is_not_relevance(tied_variance: bool, tolerance: float) -> None:
    frame, relevance, log_eps = draw_skewed(0)
    assert (frame["grade"] == 0).mean() > 2 * (frame["grade"] >= 3).mean()

    def fit(difficulty: bool) -> Any:
        model = GDA(tied_variance=tied_variance, difficulty=difficulty, tol=1e-4).fit(frame)
        return model.consensus_.documents.set_index("document").loc[range(len(relevance))]

    plain, table = fit(difficulty=False), fit(difficulty=True)
    taus = [scipy.stats.kendalltau(one["relevance"], relevance).statistic for one in (plain, table)]
    assert taus[1] > taus[0] - tolerance
    assert scipy.stats.spearmanr(table["difficulty"], log_eps).statistic > 0.3
    assert abs(scipy.stats.spearmanr(table["difficulty"], relevance).statistic) < 0.25


def test_gaussians_of_assessors_with_known_parameters() -> None:
    """With difficulty and many judgments per assessor, mu, w and alpha are near the true ones."""
    rng = np.random.default_rng(0)
    relevance, eps = rng.standard_normal(3000), np.exp(0.5 * rng.standard_normal(3000))
    mu, width, alpha = np.array([-1.0, 0.2, 1.4]), 0.6, np.array([0.4, 0.35, 0.25])
    item, assessor = np.repeat(np.arange(3000), 10), np.tile(np.arange(10), 3000)
    scores = np.log(alpha) - 0.5 * (relevance[item, None] - mu) ** 2 / (width * eps[item, None])
    grade = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    frame = pd.DataFrame({"document": item, "assessor": assessor, "grade": grade})
    table = GDA(difficulty=True).fit(frame).grade_gaussians()
    mean = table.groupby("grade")[["mu", "width", "alpha"]].mean()
    assert mean["mu"].to_numpy() == pytest.approx(mu, abs=0.2)
    assert mean["width"].to_numpy() == pytest.approx(width, abs=0.15)
    assert mean["alpha"].to_numpy() == pytest.approx(alpha, abs=0.08)


@pytest.mark.parametrize("options", [{}, {"tied_variance": False}, {"difficulty": True}, {"unjudgeable_as": "model"}])
def test_gaussians_give_the_curves(options: dict[str, Any]) -> None:
    frame, _ = drawn(0, items=200)
    if "unjudgeable_as" in options:
        frame.loc[::20, "grade"] = -2
    model = GDA(n_iter=10, tol=1e-3, **options).fit(read_judgments(frame, unjudgeable=-2, grades="0-2"))
    curves, table = model.grade_curves(7), model.grade_gaussians(7)
    assert table["grade"].tolist() == [0, 1, 2]
    assert set(table["assessor"]) == {7}
    mu, width, alpha = (table[name].to_numpy() for name in ("mu", "width", "alpha"))
    if "difficulty" not in options:
        assert alpha @ mu == pytest.approx(0, abs=1e-6)
        assert alpha @ (width + mu**2) == pytest.approx(1, abs=1e-6)
    density = alpha * np.exp(-0.5 * (curves[["relevance"]].to_numpy() - mu) ** 2 / width) / np.sqrt(width)
    shares = curves[["p0", "p1", "p2"]].to_numpy()
    expected = shares / shares.sum(axis=1, keepdims=True)
    assert np.allclose(density / density.sum(axis=1, keepdims=True), expected, atol=1e-6)


def test_gaussians_have_the_grades_of_each_scale(tmp_path: Path) -> None:
    frame, _, scales = on_two_scales(0)
    model = GDA(n_iter=5, tol=1e-2).fit(read_two_scales(tmp_path / "scales.csv", frame, scales))
    grades = model.grade_gaussians().groupby("assessor")["grade"].agg(list)
    assert grades["yesno-0"] == [0, 1]
    assert grades["stars-1"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("options", [{"difficulty": True}, {"tied_variance": False}, {"unjudgeable_as": "model"}])
def test_a_model_of_another_kind_is_no_start(options: dict[str, Any]) -> None:
    frame, _ = drawn(0, items=200)
    short: dict[str, Any] = {"n_iter": 5, "tol": 1.0}
    warm = GDA(**short, **options).fit(frame, init=GDA(**short).fit(frame))
    assert warm.history_ == GDA(**short, **options).fit(frame).history_


def test_an_ordinal_fit_can_start_from_a_reversed_assessor() -> None:
    frame, _ = drawn(0, items=400)
    frame["grade"] = np.where(frame["assessor"] == 7, 2 - frame["grade"], frame["grade"])
    model = GDA(ordinal=True).fit(frame, init=GDA().fit(frame))
    slopes = model.theta_["curves"][:, :3]
    assert (np.diff(slopes, axis=1) > -1e-6).all()


def test_hard_documents_are_told_from_easy_ones() -> None:
    rng = np.random.default_rng(0)
    hard = rng.random(800) < 0.3
    relevance = rng.standard_normal(800)
    item, assessor = np.repeat(np.arange(800), 12), np.tile(np.arange(12), 800)
    scores = np.array([-3.0, 0.0, 3.0]) * relevance[item, None] + np.array([-1.5, 0.0, -1.5])
    scores = scores / np.where(hard, 4.0, 0.8)[item, None]
    grade = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    frame = pd.DataFrame({"document": item, "assessor": assessor, "grade": grade})
    table = GDA(difficulty=True).fit(frame).consensus_.documents.set_index("document").loc[range(800)]
    assert table.loc[hard, "difficulty"].mean() > 1.2 * table.loc[~hard, "difficulty"].mean()


def test_joint_estimation_is_overconfident_and_marginal_is_not() -> None:
    """What METHODS tells of the paper's way: curves too steep, intervals too narrow."""
    frame, relevance = drawn(0, assessors=1000)  # sparse: 15 judgments each
    covered = {}
    for estimation in ("joint", "marginal"):
        model = GDA(estimation=estimation).fit(frame)
        table = model.consensus_.documents.set_index("document").loc[range(len(relevance))]
        covered[estimation] = ((table["lower"] <= relevance) & (relevance <= table["upper"])).mean()
        assert np.corrcoef(table["relevance"], relevance)[0, 1] > 0.75
    assert covered["joint"] < covered["marginal"] - 0.02
    assert covered["marginal"] == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("options", [{}, {"difficulty": True}, {"unjudgeable_as": "model"}])
def test_the_whole_posterior_has_the_mean_and_the_interval_shown(options: dict[str, Any]) -> None:
    frame, _ = drawn(0, items=200)
    model = GDA(**options).fit(frame)
    whole, table = model.posterior(), model.consensus_.documents
    points = whole.columns[2:].astype(float).to_numpy()
    shares = whole.iloc[:, 2:].to_numpy()
    assert np.allclose(shares.sum(axis=1), 1)
    assert np.allclose(shares @ points, table["relevance"], atol=1e-9)
    assert whole[["query", "document"]].equals(table[["query", "document"]])


def test_adding_without_iterations_leaves_the_assessors_and_knows_the_documents_exactly() -> None:
    frame, _ = drawn(0, items=400)
    old, new = frame[frame["document"] < 300], frame[frame["document"] >= 250]
    model = GDA().fit(old)
    curves = model.theta_["curves"].copy()
    expected = model.infer(frame).documents
    model.add(new, n_iter=0)
    assert np.array_equal(model.theta_["curves"], curves)
    assert np.allclose(model.consensus_.documents["relevance"], expected["relevance"], atol=1e-12)
    with pytest.raises(UsageError, match="n_iter"):
        model.add(new, n_iter=-1)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("estimation", "map"), ("families", "some"), ("family_correlation", 2), ("ordinal", "yes"), ("difficulty", 3)],
)
def test_settings_that_mean_nothing_are_refused(setting: str, value: object) -> None:
    frame, _ = drawn(0, items=20)
    with pytest.raises(UsageError, match=setting):
        GDA().set_params(**{setting: value}).fit(frame)
