"""Models with preferences besides the fit: storage, warm starts, updates, checkpoints, gold, families, features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank import GDA, Preferences, read_judgments, read_preferences
from crowdrank.consensus.calibration import calibrate_model
from crowdrank.errors import InputError, UsageError
from crowdrank.readers.preference_files import combine_preferences

pytestmark = pytest.mark.filterwarnings("ignore::crowdrank.errors.DataWarning")


class World:
    """Simulated preferences, judgments, expert grades and features, and the true relevance of documents."""

    def __init__(self, seed: int = 0, n_queries: int = 20, n_documents: int = 8) -> None:
        rng = np.random.default_rng(seed)
        self.relevance = rng.normal(size=(n_queries, n_documents))
        query, document = (part.ravel() for part in np.indices(self.relevance.shape))
        items = pd.DataFrame({"query": [f"q{one}" for one in query], "document": [f"d{one}" for one in document]})
        truth, n = self.relevance.ravel(), 700
        row, left, judge = (rng.integers(0, end, n) for end in (n_queries, n_documents, 6))
        right = (left + rng.integers(1, n_documents, n)) % n_documents
        latent = 1.8 * (self.relevance[row, left] - self.relevance[row, right]) + 0.3 + rng.logistic(size=n)
        columns = {"query": ("q", row), "left": ("d", left), "right": ("d", right), "assessor": ("a", judge)}
        frame = pd.DataFrame({name: [f"{prefix}{one}" for one in codes] for name, (prefix, codes) in columns.items()})
        self.preferences = frame.assign(preference=np.where(np.abs(latent) < 0.3, 0, -np.sign(latent).astype(int)))
        cuts = [-0.6, 0.6]
        grades = [
            items.assign(assessor=judge, grade=np.digitize(truth + rng.normal(0, 0.7, len(truth)), cuts))
            for judge in ("a0", "g1", "g2")
        ]
        self.judgments = pd.concat(grades)
        self.gold = items.assign(grade=np.digitize(truth, cuts))
        noise = rng.normal(size=(2, len(truth)))
        self.features = items.assign(bm25=truth + 0.8 * noise[0], other=noise[1])

    def correlation(self, documents: pd.DataFrame) -> float:
        """Return the correlation of estimates with the true relevance."""
        cells = zip(documents["query"], documents["document"], strict=True)
        truth = [self.relevance[int(query[1:]), int(document[1:])] for query, document in cells]
        return float(np.corrcoef(truth, documents["relevance"])[0, 1])


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def both(world: World) -> GDA:
    return GDA().fit(world.judgments, preferences=world.preferences)


@pytest.fixture(scope="module")
def alone(world: World) -> GDA:
    return GDA().fit(None, preferences=world.preferences)


def same(one: GDA, other: GDA) -> bool:
    tables = [[getattr(model.consensus_, name) for model in (one, other)] for name in ("documents", "assessors")]
    return one.theta_.keys() == other.theta_.keys() and all(
        [
            *(first.equals(second) for first, second in tables),
            *(np.array_equal(one.theta_[name], other.theta_[name], equal_nan=True) for name in one.theta_),
        ]
    )


def relevance(model: GDA) -> Any:
    return model.consensus_.documents.set_index(["query", "document"])["relevance"]


@pytest.mark.parametrize("kind", ["both", "alone"])
def test_a_loaded_model_is_the_saved_one(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    model: GDA = request.getfixturevalue(kind)
    model.save(tmp_path / "model")
    loaded, again = (GDA.load(tmp_path / "model") for _ in range(2))
    assert same(model, loaded)
    assert isinstance(loaded.preferences_, Preferences)
    assert model.preferences_ is not None
    assert loaded.preferences_.to_arrow().equals(model.preferences_.to_arrow())
    assert loaded.preferences_.report == model.preferences_.report
    assert loaded.posterior().equals(model.posterior())
    more = World(1, 3).preferences[:20]
    assert same(again.add(preferences=more), loaded.add(preferences=more))


def test_winners_and_families_are_saved(world: World, tmp_path: Path) -> None:
    table = world.preferences[world.preferences["preference"] == -1].drop(columns="preference")
    table = table.rename(columns={"left": "winner", "right": "loser"})
    table["family"] = table["assessor"].map({"a1": "f", "a2": "f"})
    model = GDA().fit(None, preferences=table)
    model.save(tmp_path / "model")
    loaded = GDA.load(tmp_path / "model")
    assert same(model, loaded)
    assert loaded.preferences_ is not None
    assert loaded.preferences_.to_arrow().equals(read_preferences(table).to_arrow())


@pytest.mark.parametrize("change", ["no-file", "short"])
def test_damaged_preferences_are_refused(both: GDA, tmp_path: Path, change: str) -> None:
    both.save(tmp_path / "model")
    path = tmp_path / "model" / "preferences.parquet"
    if change == "no-file":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError):
        GDA.load(tmp_path / "model")


def test_a_fit_starts_from_a_fitted_model(world: World, both: GDA) -> None:
    again = GDA().fit(world.judgments, preferences=world.preferences, init=both)
    assert again.n_iter_ < both.n_iter_ / 2
    assert np.allclose(relevance(again), relevance(both), atol=0.02)
    plain = GDA().fit(world.judgments)
    started = GDA().fit(world.judgments, preferences=world.preferences, init=plain)
    assert np.allclose(relevance(started), relevance(both), atol=0.05)
    without = GDA().fit(world.judgments, init=both)
    assert not [name for name in without.theta_ if name.startswith("preference")]


def test_the_first_tie_of_an_update_gets_initial_cut_points(world: World) -> None:
    table = world.preferences
    first = GDA().fit(None, preferences=table[table["preference"] != 0])
    assert "ties" not in first.consensus_.assessors
    added: Any = first.add(preferences=table[table["preference"] == 0][:3], n_iter=None)
    assert added.consensus_.assessors["ties"].max() > 0
    assert np.isfinite(added.history_).all()
    assert (added.preferences_.answer == 0).sum() == 3


def test_updates_are_near_a_full_fit(world: World) -> None:
    judgments, preferences = read_judgments(world.judgments), read_preferences(world.preferences)
    later = np.arange(len(preferences)) % 30 == 0
    model = GDA().fit(judgments, preferences=preferences.where(~later))
    before = model.full_fit_.n_judgments
    model.add(preferences=preferences.where(later))
    assert model.preferences_ is not None
    assert len(model.preferences_) == len(preferences)
    model.add(world.judgments[:5].assign(assessor="new"))
    assert model.full_fit_.n_judgments == before  # updates, no full fit
    full = GDA().fit(model.judgments_, preferences=preferences)
    assert np.abs(relevance(model) - relevance(full).reindex(relevance(model).index)).quantile(0.95) < 0.05
    with pytest.raises(UsageError) as error:
        model.add()
    assert error.value.kind == "no-input"


def test_judgments_are_added_to_preferences_alone(world: World) -> None:
    model = GDA().fit(None, preferences=world.preferences)
    model.add(world.judgments)
    assert same(model, GDA().fit(world.judgments, preferences=world.preferences))


def test_a_new_preference_replaces_the_old_one() -> None:
    rows = {"query": "q", "left": ["a", "b", "a"], "right": ["b", "c", "b"], "assessor": ["x", "x", "y"]}
    old = read_preferences(pd.DataFrame({**rows, "preference": [-1, 0, 1]}))
    newer = {"query": "q", "left": ["b", "b"], "right": ["a", "c"], "assessor": "x", "preference": [1, 1]}
    both = combine_preferences(old, read_preferences(pd.DataFrame(newer)))
    found = {tuple(row.values())[1:4]: row["preference"] for row in both.to_arrow().to_pylist()}
    expected = {("a", "b", "x"): -1, ("a", "b", "y"): 1, ("b", "a", "x"): 1, ("b", "c", "x"): 1}
    assert found == expected  # the other order is another question
    assert both.report.repeats == 1
    winners = read_preferences(pd.DataFrame({"winner": ["a"], "loser": ["b"], "assessor": ["x"]}))
    with pytest.raises(InputError) as error:
        combine_preferences(old, winners)
    assert error.value.kind == "positions-differ"
    turned = read_preferences(pd.DataFrame({"winner": ["b"], "loser": ["a"], "assessor": ["x"]}))
    assert combine_preferences(winners, turned).to_arrow()["winner"].to_pylist() == ["b"]


def test_families_are_combined() -> None:
    rows = {"left": ["a", "b"], "right": ["b", "c"], "assessor": ["x", "y"], "preference": 0}
    old = read_preferences(pd.DataFrame({**rows, "family": ["f", None]}))
    new = read_preferences(pd.DataFrame({**rows, "assessor": ["z", "y"], "family": ["f", "g"]}))
    both = combine_preferences(old, new)
    by_assessor = {row["assessor"]: row["family"] for row in both.to_arrow().to_pylist()}
    assert by_assessor == {"x": "f", "y": "g", "z": "f"}


@pytest.mark.parametrize("with_grades", [True, False])
def test_an_interrupted_fit_resumes(world: World, tmp_path: Path, *, with_grades: bool) -> None:
    judgments = world.judgments if with_grades else None

    def interrupt(iteration: int, most: int, objective: float) -> None:
        if iteration == 3:
            raise KeyboardInterrupt

    folder = tmp_path / "state"
    with pytest.raises(KeyboardInterrupt):
        GDA().fit(judgments, preferences=world.preferences, checkpoint=folder, progress=interrupt)
    with pytest.raises(InputError) as error:
        GDA().fit(judgments, preferences=world.preferences[:-1], checkpoint=folder)
    assert error.value.kind == "other-fit"
    resumed = GDA().fit(judgments, preferences=world.preferences, checkpoint=folder)
    assert same(resumed, GDA().fit(judgments, preferences=world.preferences))
    assert not folder.exists()


def test_other_preferences_are_estimated_with_the_fitted_parameters(both: GDA) -> None:
    other = World(3, 6)
    plain = both.infer(other.judgments)
    assert "preferences" not in plain.documents
    joint = both.infer(other.judgments, preferences=other.preferences)
    assert other.correlation(joint.documents) > other.correlation(plain.documents)
    only = both.infer(preferences=other.preferences)
    assert "grade" not in only.documents
    assert other.correlation(only.documents) > 0.6
    assert both.infer() is both.consensus_


# What a fit uses besides preferences.


def test_expert_grades_move_documents_of_preferences_alone(world: World, alone: GDA) -> None:
    some = world.gold[::3]
    model = GDA().fit(None, some, preferences=world.preferences)
    documents, before = (one.consensus_.documents for one in (model, alone))
    is_graded = documents["expert_graded"].to_numpy() == 1
    assert is_graded.sum() == len(some)
    assert world.correlation(documents[is_graded]) > world.correlation(before[is_graded])
    assert world.correlation(documents) > world.correlation(before)
    assert "grade" not in documents


def test_grades_are_calibrated_by_expert_grades(world: World) -> None:
    model = GDA().fit(world.judgments, world.gold[::2], preferences=world.preferences)
    calibration = calibrate_model(model)
    assert calibration.n_expert_grades == len(world.gold[::2])
    shares = model.consensus_.documents[["p0", "p1", "p2"]]
    assert shares.sum(axis=1).to_numpy() == pytest.approx(1.0)
    only = GDA().fit(None, world.gold, preferences=world.preferences)
    with pytest.raises(UsageError) as error:
        calibrate_model(only)
    assert error.value.kind == "no-grades"


def test_families_found_in_grades_hold_for_preferences() -> None:
    rng, world = np.random.default_rng(0), World(4, 60)
    shared = world.judgments[world.judgments["assessor"] == "g1"]
    others = [
        shared.assign(assessor=name, grade=np.clip(world.gold["grade"] + rng.integers(-1, 2, len(shared)), 0, 2))
        for name in ("b1", "b2", "b3", "b4")
    ]
    judgments = pd.concat([world.judgments, *others, shared.assign(assessor="a1")])
    found = GDA(families="found").fit(judgments, preferences=world.preferences)
    family = found.consensus_.assessors.set_index("assessor")["family"]
    assert family["a1"] == family["g1"]
    apart = GDA(families="none").fit(judgments, preferences=world.preferences)
    assert found.consensus_.documents["sd"].mean() > apart.consensus_.documents["sd"].mean()
    assert GDA(families="auto", n_iter=2, tol=1).fit(None, preferences=world.preferences).found_families_ is None


@pytest.mark.parametrize("with_grades", [True, False])
def test_features_set_the_prior(world: World, tmp_path: Path, *, with_grades: bool) -> None:
    judgments = world.judgments[::4] if with_grades else None
    table = world.preferences[:200]
    new = world.features[:2].assign(document=["new1", "new2"], bm25=[3.0, -3.0])
    model = GDA().fit(judgments, features=pd.concat([world.features, new]), preferences=table)
    plain = GDA().fit(judgments, preferences=table)
    documents = model.consensus_.documents.set_index("document")
    known = documents.drop(["new1", "new2"]).reset_index()
    labeled = known[(known["preferences"] > 0) | (known["judgments"] > 0)]
    assert world.correlation(labeled) > world.correlation(plain.consensus_.documents) + 0.02
    assert model.theta_["feature_weight"][0] > 0.3
    assert documents.loc["new1", "relevance"] > documents.loc["new2", "relevance"]
    assert documents.loc["new1", "preferences"] == 0
    model.save(tmp_path / "model")
    assert same(GDA.load(tmp_path / "model"), model)
