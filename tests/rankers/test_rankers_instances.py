"""Training instances from judgments and labels, and documents without features or labels."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import crowdrank
from crowdrank import GLS, DawidSkene, Instances, LambdaMART, read_features, read_gold
from crowdrank.errors import CrowdrankWarning, Fix, InputError, NotFittedError, UsageError
from crowdrank.rankers import InstanceKind
from crowdrank.rankers.training_labels import read_labels

FEATURES = pd.DataFrame(
    {"query": ["q", "q", "q", "r", "r"], "document": ["a", "b", "c", "a", "d"], "x": [1.0, 2.0, 3.0, 4.0, 5.0]}
)
JUDGED = pd.DataFrame(
    [
        ("q", "a", "ann", 2), ("q", "a", "bob", 1), ("q", "a", "cid", 1),
        ("q", "b", "ann", 0), ("q", "b", "bob", 3),
        ("q", "c", "cid", 0),
        ("r", "d", "bob", 3), ("r", "d", "ann", 3), ("r", "d", "cid", 0),
        ("r", "a", "cid", 1),
    ],
    columns=["query", "document", "assessor", "grade"],
)  # fmt: skip


def rows(instances: Instances) -> list[tuple[Any, ...]]:
    about = instances.features
    assert np.array_equal(
        about.matrix[:, 0],
        [
            FEATURES.set_index(["query", "document"])["x"][pair]
            for pair in zip(about.query.to_pylist(), about.document.to_pylist(), strict=True)
        ],
    )
    return sorted(zip(about.query.to_pylist(), about.document.to_pylist(), instances.y.tolist(), strict=True))


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("single", {}, [("q", "a", 2), ("q", "b", 0), ("q", "c", 0), ("r", "a", 1), ("r", "d", 3)]),
        ("majority", {}, [("q", "a", 1), ("q", "b", 3), ("q", "c", 0), ("r", "a", 1), ("r", "d", 3)]),
        ("highest", {}, [("q", "a", 2), ("q", "b", 3), ("q", "c", 0), ("r", "a", 1), ("r", "d", 3)]),
        ("highest", {"k": 1}, [("q", "a", 2), ("q", "b", 0), ("q", "c", 0), ("r", "a", 1), ("r", "d", 3)]),
        ("average", {}, [("q", "a", 4 / 3), ("q", "b", 1.5), ("q", "c", 0), ("r", "a", 1), ("r", "d", 2)]),
        ("overlap", {"k": 2}, [("q", "a", 1), ("q", "a", 2), ("q", "b", 0), ("q", "b", 3), ("q", "c", 0),
                               ("r", "a", 1), ("r", "d", 3), ("r", "d", 3)]),
    ],
)  # fmt: skip
def test_every_kind_of_instances_by_hand(kind: InstanceKind, more: dict[str, Any], expected: list[Any]) -> None:
    made = Instances.from_judgments(JUDGED, FEATURES, kind, **more)
    assert rows(made) == [pytest.approx(row) if isinstance(row[2], float) else row for row in expected]
    assert made.counts.notes() == []
    assert made.weight is None
    # One list per query, with adjacent rows.
    assert made.lists.tolist() == sorted(made.lists)
    assert len(np.unique(made.lists)) == 2


def test_per_judge_lists_have_every_document_at_most_once() -> None:
    made = Instances.from_judgments(JUDGED, FEATURES, "per-judge-lists")
    assert len(made) == len(JUDGED)
    frame = pd.DataFrame({"list": made.lists, "document": made.features.document.to_pylist(), "y": made.y})
    assert not frame.duplicated(["list", "document"]).any()
    assert frame.groupby("list")["document"].apply("".join).tolist() == ["abc", "ab", "a", "ad", "d", "d"]


def test_per_assessor_lists_have_the_judgments_of_one_assessor() -> None:
    made = Instances.from_judgments(JUDGED, FEATURES, "per-assessor-lists")
    frame = pd.DataFrame({"list": made.lists, "query": made.features.query.to_pylist(), "y": made.y})
    sizes = sorted(frame.groupby("list").size())
    assert sizes == sorted(JUDGED.groupby(["query", "assessor"]).size())
    assert (frame.groupby("list")["query"].nunique() == 1).all()


def test_good_labels_have_a_weight() -> None:
    made = Instances.from_judgments(JUDGED, FEATURES, "weighted", good_weight=3, good=2)
    assert len(made) == len(JUDGED)
    assert made.weight is not None
    assert np.array_equal(made.weight, np.where(made.y >= 2, 3.0, 1.0))


def test_random_labels_depend_on_the_seed() -> None:
    drawn = [
        rows(Instances.from_judgments(JUDGED, FEATURES, "single", random_state=seed)) for seed in (0, 0, *range(1, 9))
    ]
    assert drawn[0] == drawn[1]
    assert len({tuple(draw) for draw in drawn}) > 1
    for draw in drawn:
        for query, document, grade in draw:
            assert grade in JUDGED[(JUDGED["query"] == query) & (JUDGED["document"] == document)]["grade"].tolist()


def test_cannot_judge_answers_are_the_lowest_grade_or_dropped() -> None:
    judged = crowdrank.read_judgments(JUDGED.replace({"grade": {3: -1}}), unjudgeable="-1")
    lowest = Instances.from_judgments(judged, FEATURES, "highest")
    assert (
        dict(
            zip(
                zip(lowest.features.query.to_pylist(), lowest.features.document.to_pylist(), strict=True),
                lowest.y,
                strict=True,
            )
        )["q", "b"]
        == 0
    )
    dropped = Instances.from_judgments(judged, FEATURES, "overlap", unjudgeable_as="drop")
    assert len(dropped) == len(JUDGED) - 3


@pytest.mark.parametrize("how", ["judgments", "labels"])
def test_documents_without_features_or_labels_are_counted_and_named(how: str) -> None:
    features = pd.concat([FEATURES, pd.DataFrame({"query": ["s"], "document": ["z"], "x": [0.0]})])
    few = features[features["document"] != "b"]
    gold = JUDGED.drop_duplicates(["query", "document"])[["query", "document", "grade"]]

    def make(missing: str) -> Instances:
        if how == "judgments":
            return Instances.from_judgments(JUDGED, few, "majority", missing=missing)
        return Instances.from_labels(gold, few, missing=missing)

    with pytest.warns(CrowdrankWarning) as caught_warnings:
        make("warn")
    assert [one.message.kind for one in caught_warnings] == ["documents-without-features"]  # type: ignore[union-attr]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = make("skip")
    assert made.counts.notes() == [
        "1 document with a label but without features ('b' of query 'q') was left out.",
        "1 document with features but without a label ('z' of query 's') was left out.",
    ]
    assert len(made) == made.counts.documents == 4
    with pytest.raises(InputError) as caught:
        make("error")
    assert caught.value.kind == "documents-without-features"
    assert caught.value.fixes[1] == Fix("leave them out with {}", "missing", "skip")
    with pytest.raises(UsageError, match="missing must be one of warn, skip, error, not 'never'"):
        make("never")


def test_labels_and_features_of_different_documents_are_refused() -> None:
    other = FEATURES.assign(query="no " + FEATURES["query"])
    with pytest.raises(InputError, match=r"no labeled document has features .*'a' of query 'no q'.*'a' of query 'q'"):
        Instances.from_judgments(JUDGED, other)


def test_a_document_with_two_rows_is_refused() -> None:
    with pytest.raises(InputError, match="the features: the document 'a' of query 'q' occurs twice"):
        Instances.from_judgments(JUDGED, pd.concat([FEATURES, FEATURES[:1]]))
    twice = pd.DataFrame({"query": ["q", "q"], "document": ["a", "a"], "relevance": [0.5, 0.7]})
    with pytest.raises(InputError, match="the document 'a' of query 'q' occurs twice"):
        Instances.from_labels(twice, FEATURES)


def test_ids_are_compared_as_text() -> None:
    features = pd.DataFrame({"query": ["1", "1"], "document": ["7", "8"], "x": [0.0, 1.0]})
    made = Instances.from_labels(pd.DataFrame({"query": [1, 1], "document": [8, 7], "grade": [2, 0]}), features)
    assert made.y.tolist() == [0, 2]


# Labels.


@pytest.fixture(scope="module")
def model() -> DawidSkene:
    return DawidSkene().fit(JUDGED)


def test_a_consensus_gives_probabilities_and_weights(model: DawidSkene, tmp_path: Path) -> None:
    table = model.consensus_.documents
    probabilities = table[model.consensus_.true_share_names].to_numpy()
    table.to_csv(tmp_path / "consensus.csv")
    table.to_parquet(tmp_path / "consensus.parquet")
    for labels in (model, model.consensus_, table, tmp_path / "consensus.csv", tmp_path / "consensus.parquet"):
        read = read_labels(labels)
        assert read.probabilities is not None
        assert np.allclose(read.probabilities, probabilities)
        made = Instances.from_labels(labels, FEATURES, weights="certainty")
        assert made.y.shape == (5, 4)
        assert made.weight is not None
        assert made.weight.mean() == pytest.approx(1)
        grades = np.arange(4)
        variance = made.y @ grades**2 - (made.y @ grades) ** 2
        assert np.all(np.diff(made.weight[np.argsort(variance)]) <= 1e-12)
    for target, expected in (
        ("expected-grade", probabilities @ np.arange(4)),
        ("relevance", table["relevance"]),
        ("grade", table["grade"]),
    ):
        assert np.allclose(read.target(target), expected)


def test_probability_columns_are_assigned_by_their_grades() -> None:
    labels = read_labels(pd.DataFrame({"document": ["a"], "p1": [0.25], "p2": [0.75]}))
    assert labels.probabilities is not None
    assert labels.probabilities.tolist() == [[0.0, 0.25, 0.75]]


def test_expert_grades_and_numbers_are_labels(tmp_path: Path) -> None:
    (tmp_path / "expert.qrels").write_text("q 0 a 2\nq 0 b 0\n")
    for gold in (tmp_path / "expert.qrels", read_gold(tmp_path / "expert.qrels")):
        assert read_labels(gold).target("probabilities").tolist() == [2, 0]
    numbers = pd.DataFrame({"query": ["q", "q"], "document": ["a", "b"], "relevance": [0.3, 1.7]})
    assert read_labels(numbers).target("grade").tolist() == [0.3, 1.7]
    with pytest.raises(UsageError) as caught:
        Instances.from_labels(numbers, FEATURES, weights="certainty")
    assert caught.value.kind == "no-probabilities"


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        ({"document": ["a"], "p0": [0.5], "p1": [0.2]}, "row 1: the probabilities of the grades sum to 0.7"),
        ({"document": ["a"], "p0": ["x"], "p1": [0.2]}, "row 1, column 'p0': 'x' is not a finite number"),
        ({"document": [None, "b"], "p0": [0.5, 1.0], "p1": [0.5, 0.0]}, "row 1: the document is missing"),
        ({"document": ["a"], "p0": [0.5], "p99": [0.5]}, "p99 is the probability of a grade above 30"),
        ({"document": ["a"], "relevance": [None]}, "row 1, column 'relevance': the cell is empty"),
    ],
)
def test_invalid_labels_are_refused(frame: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_labels(pd.DataFrame(frame))


def test_a_split_keeps_queries_whole() -> None:
    world = crowdrank.simulate(queries=20, documents=6, random_state=2)
    made = Instances.from_labels(world.gold, world.features)
    train, later = made.split(0.25, random_state=1)
    assert len(train) + len(later) == len(made)
    one, other = set(train.features.query.to_pylist()), set(later.features.query.to_pylist())
    assert len(other) == 5
    assert not one & other
    with pytest.raises(UsageError) as caught:
        made.split(0.001)
    assert caught.value.kind == "empty-part"


def test_overlap_and_consensus_train_rankers() -> None:
    world = crowdrank.simulate(queries=60, documents=10, labels=3, random_state=5)
    test = crowdrank.simulate(queries=60, documents=10, random_state=5)
    model = DawidSkene().fit(world.judgments)
    found = {}
    for name, made in {
        "single": Instances.from_judgments(world.judgments, world.features, "single"),
        "lists": Instances.from_judgments(world.judgments, world.features, "per-judge-lists"),
        "consensus": Instances.from_labels(model, world.features, weights="certainty"),
    }.items():
        ranker = GLS().fit(**made.arguments)
        features = read_features(test.features)
        run = test.gold[["query", "document"]].assign(score=ranker.predict(features))
        found[name] = crowdrank.evaluate(run, test.gold, "nDCG@10").means["nDCG@10"]
    assert found["lists"] > found["single"]
    assert found["consensus"] > found["single"]


def test_instances_provide_an_eval_set() -> None:
    world = crowdrank.simulate(queries=30, documents=8, random_state=5)
    train, later = Instances.from_labels(world.gold, world.features).split(0.3)
    ranker = LambdaMART(n_estimators=10).fit(**train.arguments, eval_set=later.eval_set)
    assert len(ranker.history_) == 10


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"instances": "best"}, "instances must be one of single, overlap"),
        ({"k": 0}, "k must be a whole number of at least 1"),
        ({"good_weight": 0}, "good_weight must be a number above 0"),
        ({"unjudgeable_as": "model"}, "unjudgeable_as must be one of lowest, drop"),
    ],
)
def test_invalid_parameters_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Instances.from_judgments(JUDGED, FEATURES, **settings)


def test_a_model_that_is_not_fitted_is_refused() -> None:
    world = crowdrank.simulate(queries=5, documents=4, random_state=1)
    for model in (crowdrank.DawidSkene(), crowdrank.GDAPairwise(), crowdrank.Auto()):
        name = type(model).__name__
        with pytest.raises(NotFittedError, match=f"{name} is not fitted yet; call fit first"):
            Instances.from_labels(model, world.features)


def test_an_invalid_weight_is_named_by_the_row_of_the_labels() -> None:
    world = crowdrank.simulate(queries=5, documents=4, random_state=1)
    labels = world.gold.iloc[::-1]  # the rows to learn from come in the order of the features
    weight = np.ones(len(labels))
    weight[2] = -1
    with pytest.raises(InputError, match="row 3: the weight -1 is invalid"):
        Instances.from_labels(labels, world.features, weights=weight)
    with pytest.raises(InputError, match=r"the weights have the shape \(2,\), but there are"):
        Instances.from_labels(labels, world.features, weights=[1, 2])
