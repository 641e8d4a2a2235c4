"""What is known of every label."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import crowdrank
from crowdrank import GDA, GLAD, DawidSkene, LabelFeatures, OneCoinDawidSkene, label_features, read_judgments
from crowdrank.errors import CrowdrankError, InputError, UsageError
from crowdrank.label_learning.label_features import FAMILY_PREFIX, without_honeypots


@pytest.fixture(scope="module")
def binary() -> Any:
    return crowdrank.simulate(queries=20, documents=8, label_grades=2, labels=3, random_state=1)


@pytest.fixture(scope="module")
def graded() -> Any:
    return crowdrank.simulate(queries=20, documents=8, label_grades=5, labels=3, families=2, random_state=2)


@pytest.mark.parametrize(("kind", "of_two", "of_five"), [("mgbdt", 13, 34), ("remap", 29, 1 + 5 * 35)])
def test_the_papers_lists_have_their_lengths(binary: Any, graded: Any, kind: str, of_two: int, of_five: int) -> None:
    for world, n in ((binary, of_two), (graded, of_five)):
        features = label_features(world.judgments, kind=kind)
        assert len(features.names) == len(set(features.names)) == features.matrix.shape[1] == n
        assert np.isfinite(features.matrix).all()


def test_each_feature_is_what_it_says(binary: Any) -> None:
    features = label_features(binary.judgments, kind="all", good=1)
    frame = features.frame
    clean = binary.judgments[binary.judgments["honeypot"].isna()]
    assert len(frame) == len(clean)
    model = DawidSkene().fit(clean)
    documents = model.consensus_.documents.set_index(["query", "document"])
    assessors = model.consensus_.assessors.set_index("assessor")
    for row in frame.sample(20, random_state=0).itertuples():
        own, who = documents.loc[(row.query, row.document)], assessors.loc[row.assessor]
        by = clean[clean["assessor"] == row.assessor]
        assert row.label == row.grade
        assert row.says_1_if_0 == pytest.approx(who["says_1_if_0"])
        assert row.right_dawid_skene == pytest.approx(own[f"true{row.grade}"])
        assert row.good_dawid_skene == pytest.approx(own["true1"])
        assert row.log_tasks == pytest.approx(np.log(len(by)))
        assert row.share_bad == pytest.approx((by["grade"] == 0).mean())
    assert np.allclose(frame["duration"].sum(), clean["duration"].sum())
    assert {"latent_relevance", "latent_sd", "informativeness", "cost"} <= set(features.names)


def test_doubled_features_stand_where_their_grade_is(binary: Any) -> None:
    plain, doubled = (label_features(binary.judgments, kind=kind) for kind in ("mgbdt", "remap"))
    given = doubled.column("label")
    for name in plain.names[1:]:
        for grade in (0, 1):
            assert np.allclose(doubled.column(f"{name}_of_{grade}"), np.where(given == grade, plain.column(name), 0))


def test_the_published_lists_can_be_read_for_each_grade_apart(binary: Any) -> None:
    assert len(label_features(binary.judgments, kind="mgbdt", by_grade=True).names) == 1 + 2 * 12
    assert len(label_features(binary.judgments, kind="remap", by_grade=False).names) == 15


def test_honeypots_are_left_out_but_tell_of_their_assessors(binary: Any) -> None:
    features = label_features(binary.judgments, kind="mgbdt")
    planted = binary.judgments[binary.judgments["honeypot"].notna()]
    assert len(planted) > 0
    assert not set(planted["document"]) & set(features.frame["document"])
    answered = planted.assign(right=planted["grade"] == planted["honeypot"]).groupby("assessor")["right"]
    usual = (answered.sum().sum() + 1) / (answered.count().sum() + 2)
    shares = features.frame.groupby("assessor")["honeypots_right"].first()
    for who, share in shares.items():
        right, asked = answered.get_group(who).agg(["sum", "count"]) if who in answered.groups else (0, 0)
        assert share == pytest.approx((right + 2 * usual) / (asked + 2))


def test_what_honeypots_are_answered_changes_no_other_feature(binary: Any) -> None:
    frame = binary.judgments
    planted = frame["honeypot"].notna()
    other = frame.assign(grade=np.where(planted, 1 - frame["grade"], frame["grade"]))
    one, two = (label_features(labels, kind="all") for labels in (frame, other))
    for name in one.names:
        assert (name == "honeypots_right") != np.array_equal(one.column(name), two.column(name)), name


def test_expert_grades_reach_features_only_where_they_are_given(binary: Any) -> None:
    queries = binary.gold["query"].unique()
    gold = binary.gold.assign(grade=(binary.gold["grade"] >= 2).astype(int))
    training = gold[gold["query"].isin(queries[:10])]
    with_gold, without = label_features(binary.judgments, gold=training), label_features(binary.judgments)
    assert not np.allclose(with_gold.matrix, without.matrix)
    assert set(with_gold.gold_queries.to_pylist()) == {str(query) for query in queries[:10]}
    assert len(without.gold_queries) == 0


def test_grades_of_other_documents_are_no_grades(binary: Any) -> None:
    elsewhere = pd.DataFrame({"query": ["nowhere"], "document": ["d"], "grade": [1]})
    assert len(label_features(binary.judgments, kind="mgbdt", gold=elsewhere).gold_queries) == 0


def test_fitted_models_are_used_as_they_are(binary: Any) -> None:
    clean = without_honeypots(read_judgments(binary.judgments))
    models: dict[str, Any] = {"dawid_skene": DawidSkene(), "glad": GLAD(), "latent": GDA()}
    fitted = {name: model.fit(clean) for name, model in models.items()}
    assert np.allclose(label_features(binary.judgments, **fitted).matrix, label_features(binary.judgments).matrix)
    early = DawidSkene(n_iter=1, tol=0)
    with pytest.warns(match="not converged"):
        early.fit(clean)
    assert not np.allclose(
        label_features(binary.judgments, dawid_skene=early).matrix, label_features(binary.judgments).matrix
    )
    with pytest.raises(UsageError) as caught:
        label_features(binary.judgments, dawid_skene=OneCoinDawidSkene().fit(clean))
    assert caught.value.parameter == "dawid_skene"


def test_families_are_told(graded: Any) -> None:
    features = label_features(graded.judgments)
    family = features.judgments.frame["family"]
    for name in ("family-1", "family-2"):
        assert (features.column(FAMILY_PREFIX + name) == (family == name)).all()
    few = features.aligned((*features.names, FAMILY_PREFIX + "unheard-of"))
    assert (few[:, -1] == 0).all()
    with pytest.raises(InputError) as caught:
        features.aligned(("mood",))
    assert caught.value.kind == "missing-label-features"


def test_more_columns_join_by_ids(binary: Any) -> None:
    clean = binary.judgments[binary.judgments["honeypot"].isna()]
    more = clean[["query", "document", "assessor"]].assign(clicks=np.arange(len(clean)))
    features = label_features(binary.judgments, more=more.sample(frac=1, random_state=0).iloc[5:])
    found = features.frame.merge(more, on=["query", "document", "assessor"], suffixes=("", "_own"))
    assert found["clicks"].isna().sum() == 5
    there = found["clicks"].notna()
    assert (found["clicks"][there] == found["clicks_own"][there]).all()
    for kind, frame in (("not-numeric", more.assign(clicks="many")), ("duplicate-name", more.assign(ability=1))):
        with pytest.raises(InputError) as caught:
            label_features(binary.judgments, kind="mgbdt", more=frame)
        assert caught.value.kind == kind
        assert caught.value.location.column in ("clicks", "ability")
    assert label_features(binary.judgments, kind="remap", more=more).names[-1] == "clicks_of_0"


def test_features_come_back_in_the_users_library(binary: Any) -> None:
    polars = pytest.importorskip("polars")
    frame = label_features(polars.from_pandas(binary.judgments), kind="mgbdt").frame
    assert isinstance(frame, polars.DataFrame)


def test_few_assessors_and_grades_work() -> None:
    rows = pd.DataFrame({"document": list("abcd"), "assessor": "ann", "grade": [0, 1, 1, 0]})
    one = label_features(rows)
    assert len(one) == 4
    assert np.isfinite(one.matrix).all()
    same = label_features(rows.assign(grade=1), kind="mgbdt")
    assert np.isfinite(same.matrix).all()


def test_invalid_arguments_are_refused(binary: Any) -> None:
    table = read_judgments(binary.judgments)
    honeypot = pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": [1], "honeypot": [1]})
    calls: list[tuple[str, Any]] = [
        ("invalid-parameter", lambda: label_features(binary.judgments, kind="ramp")),
        ("honeypots", lambda: label_features(honeypot)),
        ("unknown-name", lambda: label_features(binary.judgments, kind="mgbdt").column("mood")),
        ("usage", lambda: LabelFeatures.of(table, {})),
        ("honeypots", lambda: LabelFeatures.of(table, {"x": np.zeros(len(table))})),
        ("wrong-length", lambda: LabelFeatures.of(table, {"x": np.zeros(3)})),
    ]
    for kind, call in calls:
        with pytest.raises(CrowdrankError) as caught:
            call()
        assert caught.value.kind == kind
