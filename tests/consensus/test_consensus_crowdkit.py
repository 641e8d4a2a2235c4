"""Code written for crowd-kit runs on crowdrank: the same calls on both."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import crowdrank
from crowdrank.errors import InputError

crowdkit = pytest.importorskip("crowdkit.aggregation")
NAMES = ["MajorityVote", "DawidSkene", "OneCoinDawidSkene", "GLAD"]
LABELS: dict[str, list[Any]] = {
    "numbers": [0, 1, 2],
    "numbers with gaps": [1, 5, 7],
    "text": ["bad", "fair", "good"],
    "numbers as text": ["2", "10", "30"],
    "truth": [False, True],
    "fractions": [0.5, 1.5, 2.0],
    "one label": ["yes"],
}


def frame(kind: str, seed: int = 0) -> pd.DataFrame:
    """A good crowd, so that every method finds the truth; the same tasks and workers for every kind of label."""
    rng = np.random.default_rng(seed)
    labels = LABELS[kind]
    truth = rng.integers(0, len(labels), 40)
    rows = [
        (f"task-{task}", f"worker-{worker}", truth[task] if rng.random() < 0.9 else rng.integers(0, len(labels)))
        for task in range(40)
        for worker in range(7)
    ]
    made = pd.DataFrame(rows, columns=["task", "worker", "label"]).sample(frac=1, random_state=seed)
    return made.assign(label=[labels[place] for place in made["label"]]).reset_index(drop=True)


def both(name: str, *arguments: Any, **options: Any) -> tuple[Any, Any]:
    return getattr(crowdrank, name)(*arguments, **options), getattr(crowdkit, name)(*arguments, **options)


def quiet(call: Any, *arguments: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments)


PEER_FAILS = {("GLAD", "truth"), ("GLAD", "one label"), ("OneCoinDawidSkene", "one label")}
"""Models and labels with which crowd-kit ends in an error or divides by zero."""


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for kind in LABELS for name in NAMES if (name, kind) not in PEER_FAILS]
)
def test_the_same_calls_give_the_same_kind_of_answers(name: str, kind: str) -> None:
    data = frame(kind)
    ours, theirs = both(name)
    labels, peer_shares = quiet(ours.fit_predict, data), quiet(theirs.fit_predict_proba, data)
    peer_labels = theirs.labels_  # what its fit_predict returns, without a second fit
    assert labels.index.name == peer_labels.index.name == "task"
    assert labels.name == peer_labels.name
    assert labels.dtype == peer_labels.dtype
    # A learned prior may settle a close call otherwise.
    assert (labels == peer_labels.loc[labels.index]).mean() >= 0.95
    shares = quiet(ours.fit_predict_proba, data)
    assert shares.index.name == "task"
    assert set(shares.index) == set(peer_shares.index)
    assert sorted(shares.columns, key=str) == sorted(peer_shares.columns, key=str)
    assert np.allclose(shares.sum(axis=1), 1, atol=1e-6)
    assert ours.fit(data) is ours
    assert ours.labels_.equals(labels)
    assert ours.probas_.equals(shares)


@pytest.mark.parametrize("name", ["DawidSkene", "OneCoinDawidSkene", "GLAD"])
def test_the_number_of_iterations_is_the_first_argument(name: str) -> None:
    data = frame("numbers")
    for ours in (getattr(crowdrank, name)(3), getattr(crowdrank, name)(n_iter=3, tol=0)):
        quiet(ours.fit, data)
        assert ours.n_iter == 3
        assert len(ours.loss_history_) <= 3


def test_dawid_skene_tells_priors_and_errors_as_crowd_kit_does() -> None:
    data = frame("text")
    ours = crowdrank.DawidSkene(n_iter=300, tol=1e-12, prior=0).fit(data)
    theirs = quiet(crowdkit.DawidSkene(n_iter=300, tol=1e-12).fit, data)
    assert np.allclose(ours.priors_, theirs.priors_.loc[ours.priors_.index], atol=1e-6)
    errors = ours.errors_.loc[theirs.errors_.index, theirs.errors_.columns]
    assert np.allclose(errors, theirs.errors_, atol=1e-5)
    assert errors.index.names == theirs.errors_.index.names


def test_skills_and_abilities_are_told_by_worker() -> None:
    data = frame("numbers")
    for name, attribute in (("MajorityVote", "skills_"), ("OneCoinDawidSkene", "skills_"), ("GLAD", "alphas_")):
        ours, theirs = both(name)
        mine, peers = getattr(quiet(ours.fit, data), attribute), getattr(quiet(theirs.fit, data), attribute)
        assert mine.index.name == "worker"
        assert mine.name == peers.name
        assert np.corrcoef(mine, peers.loc[mine.index])[0, 1] > 0.9
    betas = crowdrank.GLAD().fit(data).betas_
    assert betas.index.name == "task"
    assert len(betas) == 40


def test_true_labels_are_held() -> None:
    data = frame("text")
    true = pd.Series({"task-0": "good", "task-1": "bad"})
    for call in (crowdrank.DawidSkene().fit_predict, crowdkit.DawidSkene().fit_predict):
        labels = quiet(call, data, true)
        assert labels.loc[["task-0", "task-1"]].tolist() == ["good", "bad"]


def test_a_true_label_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="the true label 'great' is not among the labels 'bad', 'fair', 'good'"):
        crowdrank.DawidSkene().fit(frame("text"), pd.Series({"task-0": "great"}))


def test_true_labels_of_other_tasks_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        crowdrank.DawidSkene().fit(frame("text"), pd.Series({"worker-0": "good"}))
    assert caught.value.kind == "no-expert-grades"


def test_a_missing_label_is_named() -> None:
    data = frame("text")
    data.loc[3, "label"] = None
    with pytest.raises(InputError, match="the frame, row 4, column 'label': the label is missing"):
        crowdrank.MajorityVote().fit(data)


def test_text_labels_survive_storage_and_adding(tmp_path: Any) -> None:
    data = frame("text")
    model = crowdrank.MajorityVote().fit(data.iloc[:200])
    model.save(tmp_path / "model")
    loaded = crowdrank.MajorityVote.load(tmp_path / "model").add(data.iloc[200:])
    assert loaded.predict().sort_index().equals(crowdrank.MajorityVote().fit_predict(data).sort_index())
    some = data[data["label"] != "good"]
    assert set(model.predict(some)) == {"bad", "fair"}
    with pytest.raises(InputError, match="the scales differ"):
        loaded.add(frame("truth"))
