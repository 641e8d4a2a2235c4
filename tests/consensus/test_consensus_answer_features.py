"""Test the refusal of features that are functions of the answers, and the level of the test of usefulness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank import GDA, DawidSkene, read_judgments
from crowdrank.consensus.answer_features import AnswerModel
from crowdrank.errors import InputError
from experiments.feature_leaks import (
    FOUND,
    draw_crowd,
    genuine_features,
    leaking_features,
    null_level,
    refused_features,
)
from terminal import crowdrank


def tables(seed: int, *, alike: bool = False) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return judgments, genuine features and leaking features."""
    frame, relevance = draw_crowd(seed, alike=alike)
    documents = pd.DataFrame({"query": np.arange(600) // 20, "document": np.arange(600)})
    genuine, leaking = genuine_features(relevance, seed), leaking_features(frame, seed)
    return frame, documents.assign(**genuine), documents.assign(**leaking)


@pytest.mark.parametrize("model", [GDA(n_iter=20, tol=1.0), DawidSkene(n_iter=20, tol=1.0)], ids=str)
def test_features_that_are_functions_of_the_answers_are_refused(model: Any) -> None:
    judgments, genuine, leaking = tables(1)
    mixed = genuine.assign(**{name: leaking[name] for name in FOUND})
    with pytest.raises(InputError) as caught:
        model.fit(judgments, features=mixed)
    assert caught.value.kind == "leaking-features"
    assert all(name in str(caught.value) for name in FOUND)
    assert not any(name in str(caught.value) for name in genuine.columns[2:])


@pytest.mark.parametrize("alike", [False, True])
def test_genuine_features_are_not_refused(alike: bool) -> None:
    judgments, genuine, leaking = tables(2, alike=alike)
    columns = {name: genuine[name].to_numpy() for name in genuine.columns[2:]}
    assert refused_features(judgments, columns) == []
    assert refused_features(judgments, {"mean": leaking["mean grade"].to_numpy()}) == ["mean"]


def test_documents_with_one_answer_reveal_nothing() -> None:
    judgments, _, _ = tables(3)
    single = judgments.drop_duplicates("document")
    model = AnswerModel.fit(read_judgments(single))
    assert len(model.rows) == len(model.item) == 0
    assert not model.correlations(np.zeros(0)).are_large(1)


def test_useless_features_are_used_in_at_most_five_percent_of_worlds() -> None:
    assert null_level(10, 15, 3, 150) <= 0.05


def test_the_command_line_refuses_them(tmp_path: Path) -> None:
    judgments, _, leaking = tables(4, alike=True)
    judgments.to_csv(tmp_path / "labels.csv", index=False)
    leaking[["query", "document", "mean grade"]].to_csv(tmp_path / "features.csv", index=False)
    result = crowdrank("aggregate", "labels.csv", "--features", "features.csv", cwd=tmp_path)
    assert result.returncode == 2
    assert "mean grade" in result.stderr
    assert "leave out" in result.stderr
