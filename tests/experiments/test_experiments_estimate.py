"""Test the experiment on comparisons of systems from labels and few expert grades."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from crowdrank import FamilyMean
from crowdrank.readers.datasets import dataset
from experiments import estimate
from experiments.base import quiet
from experiments.dl20 import COVERED, thorough

DL20 = dataset("trec-dl20")


def test_intervals_cover_on_simulated_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "N_WORLDS", 150)
    rows = estimate.coverage_table((0,), quiet).rows
    assert {row["labels"] for row in rows} == {"good", "biased", "reversed"}
    assert all(0.91 <= row["coverage"] <= 0.98 for row in rows), rows


def test_systems_are_joined_by_document() -> None:
    features = pd.DataFrame(
        {"qid": list("aabb"), "docid": list("xyxy"), "nist_grade": [3, 0, 1, 2], "s": [2.0, 1.0, 1.0, np.nan], "t": 1.0}
    )
    labels = features.rename(columns={"qid": "query", "docid": "document"})[["query", "document"]].assign(grade=1)
    systems = estimate.load_systems(features, labels)
    assert systems.experts[:, 0].tolist() == pytest.approx([1.0, 1 / (3 + 1 / np.log2(3))])
    assert systems.weight[systems.query == 1, 0].tolist() == pytest.approx([1 / (1 + 1 / np.log2(3)), 0.0])


@pytest.mark.data
def test_labels_and_experts_together_beat_experts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "N_PAIRS", 15)
    monkeypatch.setattr(estimate, "N_DRAWS", 30)
    monkeypatch.setattr(estimate, "EXPERT_QUERIES", (20,))
    features = pd.read_csv(DL20.path("judged_features.tsv.gz"), sep="\t", dtype={"qid": str, "docid": str})
    labels = FamilyMean().fit(thorough(DL20.read_judgments(), COVERED)).consensus_.documents
    systems = estimate.load_systems(features, labels)
    assert systems.labels.shape == (54, 83)
    by_name = {row["run"]: row for row in estimate.comparison_table(systems, (0,), quiet).rows}
    assert by_name["by document"]["ratio"] <= 0.68
    assert by_name["by query"]["ratio"] <= 0.92
    assert by_name["by document"]["coverage"] >= 0.92
