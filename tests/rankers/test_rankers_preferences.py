"""Rankers trained on probabilities that one document is better than another, also by `crowdrank train`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import crowdrank
from crowdrank import GDA, Instances, LambdaMART
from crowdrank.simulation.world import World
from terminal import Run
from terminal import crowdrank as command


def preferences_of(world: World, per_query: int = 15) -> pd.DataFrame:
    """Return simulated preferences between documents by their expert grades."""
    rng, rows = np.random.default_rng(0), []
    for query, grades in world.gold.groupby("query"):
        grade = dict(zip(grades["document"], grades["grade"], strict=True))
        for _ in range(per_query):
            left, right = rng.choice(sorted(grade), 2, replace=False)
            better = 1.5 * (grade[left] - grade[right]) + rng.logistic() > 0
            rows.append((query, left, right, f"p{rng.integers(3)}", -1 if better else 1))
    return pd.DataFrame(rows, columns=["query", "left", "right", "assessor", "preference"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("preferences")
    world = crowdrank.simulate(queries=30, documents=8, labels=2, random_state=2)
    preferences_of(world).to_csv(folder / "preferences.csv", index=False)
    for name in ("judgments", "features", "gold"):
        getattr(world, name).to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.fixture
def run(folder: Path) -> Run:
    return lambda *words: command(*words, cwd=folder)


def test_instances_carry_the_probabilities_of_their_pairs(folder: Path) -> None:
    model = GDA().fit(None, preferences=str(folder / "preferences.csv"))
    rows = Instances.from_posterior(model, str(folder / "features.csv"))
    assert rows.y.min() == 0  # relevance, counted from the lowest one
    one, other = rows.split(0.4)
    for part in (one, other):
        sizes = np.bincount(part.lists)
        assert len(part.arguments["pair_probabilities"]) == (sizes**2).sum()
    start, stop = np.flatnonzero(one.lists == one.lists[0])[[0, -1]] + [0, 1]
    pairs = one.arguments["pair_probabilities"][: (stop - start) ** 2].reshape(stop - start, -1)
    higher = one.y[start:stop, None] > one.y[None, start:stop]
    assert (pairs[higher] > 0.5).all()
    soft = LambdaMART(n_estimators=5).fit(**one.arguments)
    hard = LambdaMART(n_estimators=5).fit(**{**one.arguments, "pair_probabilities": None})
    assert not np.allclose(soft.predict(other.features), hard.predict(other.features))


@pytest.mark.parametrize("judgments", [[], ["--judgments", "judgments.csv"]])
def test_train_on_preferences(run: Run, folder: Path, judgments: list[str], tmp_path: Path) -> None:
    words = ("train", "-f", "features.csv", "--preferences", "preferences.csv", "-s", "n_estimators=20")
    done = run(*words, *judgments, "-o", tmp_path / "ranker", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranker"] == "lambdamart"
    table = str(folder / "judgments.csv") if judgments else None
    model = GDA().fit(table, preferences=str(folder / "preferences.csv"))
    rows = Instances.from_posterior(model, str(folder / "features.csv"), missing="skip")
    expected = LambdaMART(n_estimators=20).fit(**rows.arguments).predict(rows.features)
    assert crowdrank.Ranker.load(tmp_path / "ranker").predict(rows.features) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-r", "gls"), "--preferences train LambdaMART, not gls"),
        (("--labels", "gold.csv"), "--preferences are used instead of labels; leave out --labels"),
        (("--target", "grade"), "--target cannot be used together with preferences"),
        (("--judgments", "judgments.csv", "--k", "2"), "--k cannot be used together with preferences"),
    ],
)
def test_options_without_a_meaning_are_refused(run: Run, words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = run("train", "-f", "features.csv", "--preferences", "preferences.csv", "-o", tmp_path / "r", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "r").exists()
