"""Grades by median, mode and mean of P(grade)."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crowdrank
from crowdrank.consensus import METHODS, get_aggregator
from crowdrank.consensus.grade_rules import DEFAULT_RULE, GRADE_RULES, choose_grades
from crowdrank.errors import UsageError

OWN_RULE = {"majority": "mode", "highest": "highest"}


def grades_by_definition(shares: np.ndarray, rule: str) -> int:
    """Return the best grade of one document; of tied grades the middle one, of two the higher."""
    codes = range(len(shares))
    loss = {"mode": [0, *[1] * 9], "median": list(range(10)), "mean": [distance**2 for distance in range(10)]}[rule]
    expected = [sum(share * loss[abs(code - other)] for other, share in enumerate(shares)) for code in codes]
    tied = [code for code in reversed(codes) if expected[code] <= min(expected) + 1e-9]
    return tied[(len(tied) + 1) // 2 - 1]


@settings(max_examples=100, deadline=None)
@given(votes=st.lists(st.integers(0, 3), min_size=2, max_size=6).filter(any), rule=st.sampled_from(GRADE_RULES))
def test_each_rule_minimizes_its_loss(votes: list[int], rule: str) -> None:
    shares = np.array(votes) / sum(votes)
    assert choose_grades(shares[None], rule)[0] == grades_by_definition(shares, rule)


def test_the_mean_is_the_grade_nearest_to_the_expected_grade() -> None:
    shares = np.random.default_rng(0).dirichlet(np.ones(5), 500)
    nearest = np.floor(shares @ np.arange(5) + 0.5)
    assert (choose_grades(shares, "mean") == nearest).all()


@pytest.mark.parametrize("method", METHODS)
def test_the_grade_follows_from_the_shares(method: str) -> None:
    parameters = {"candidates": ("dawid-skene",)} if method == "auto" else {}
    frame = crowdrank.simulate(queries=4, documents=8, labels=3, random_state=1).judgments
    has_parameter = "grade_by" in inspect.signature(type(get_aggregator(method))).parameters
    assert has_parameter == (method not in OWN_RULE)
    for rule in GRADE_RULES if has_parameter else [OWN_RULE[method]]:
        model = get_aggregator(method, **parameters, **({"grade_by": rule} if has_parameter else {})).fit(frame)
        table = model.consensus_.documents
        expected = choose_grades(table[model.consensus_.true_share_names].to_numpy(), rule)
        assert table["grade"].tolist() == expected.tolist()
        assert model.infer(frame).documents["grade"].tolist() == expected.tolist()
    assert get_aggregator(method).grade_by == OWN_RULE.get(method, DEFAULT_RULE)


@pytest.mark.parametrize(("method", "rule"), [("dawid-skene", "mode"), ("average", "mean"), ("highest", "highest")])
def test_labels_of_crowd_kit_keep_their_rule(method: str, rule: str) -> None:
    world = crowdrank.simulate(queries=4, documents=8, labels=3, random_state=1).judgments
    frame = world.assign(task=world["query"] + world["document"])[["task", "assessor", "grade"]]
    frame = frame.rename(columns={"assessor": "worker", "grade": "label"})
    model = get_aggregator(method).fit(frame)
    shares = model.consensus_.documents[model.consensus_.true_share_names].to_numpy()
    assert model.predict().tolist() == choose_grades(shares, rule).tolist()


def test_the_rule_on_disk(tmp_path: Path) -> None:
    frame = crowdrank.simulate(queries=6, documents=8, random_state=1).judgments
    (tmp_path / "in").mkdir()
    frame.to_parquet(tmp_path / "in" / "part.parquet")
    table = crowdrank.read_partitions(tmp_path / "in", shard_size=50)
    for rule in GRADE_RULES:
        model = crowdrank.DawidSkene(grade_by=rule).fit(table)
        shares = model.consensus_.documents[model.consensus_.true_share_names].to_numpy()
        assert model.consensus_.documents["grade"].tolist() == choose_grades(shares, rule).tolist()


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        crowdrank.GDA(grade_by="best").fit(pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": [1]}))
    assert caught.value.parameter == "grade_by"


def test_the_rule_is_saved(tmp_path: Path) -> None:
    frame = crowdrank.simulate(queries=4, documents=8, labels=3, random_state=1).judgments
    crowdrank.DawidSkene(grade_by="mean").fit(frame).save(tmp_path / "model")
    loaded = crowdrank.DawidSkene.load(tmp_path / "model")
    shares = loaded.add(frame, n_iter=0).consensus_.documents
    expected = choose_grades(shares[loaded.consensus_.true_share_names].to_numpy(), "mean")
    assert shares["grade"].tolist() == expected.tolist()
