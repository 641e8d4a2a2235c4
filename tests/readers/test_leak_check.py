"""Features that hold expert grades or answers of assessors, and honest ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import crowdrank
from crowdrank import Judgments, read_gold, read_judgments
from crowdrank._typing import Floats, Integers
from crowdrank.errors import InputError
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.readers.datasets import dataset
from crowdrank.readers.features import read_features
from crowdrank.readers.leak_check import (
    FALSE_ALARM_RATE,
    HONEST_AGREEMENT,
    HONEST_ANSWERS,
    Leak,
    _answer_groups,
    _rank_agreement,
    _with_ranks,
    check_leaks,
    explained_variance,
    find_leaks,
    honest_threshold,
)
from crowdrank.readers.validation import validate
from crowdrank.simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::crowdrank.errors.DataWarning")

KEYS = ["query", "document"]


@cache
def world() -> World:
    return crowdrank.simulate(queries=40, documents=20, gold_queries=30, random_state=1)


@cache
def documents() -> pd.DataFrame:
    """Return the documents of the world with expert grades, of which half are missing."""
    frame = world().features[KEYS].merge(world().gold, on=KEYS, how="left")
    return frame.assign(grade=frame["grade"].where(np.random.default_rng(0).random(len(frame)) < 0.5))


@cache
def judgments() -> Judgments:
    return read_judgments(world().judgments)


def codes(frame: pd.DataFrame, column: str = "query") -> Integers:
    return np.asarray(pd.factorize(frame[column])[0], np.int64)


def leaks(column: Any, *, with_answers: bool = False) -> list[Leak]:
    """Return the leaks of one feature."""
    frame = documents()
    answers = judgments() if with_answers else None
    item = None if answers is None else answers.positions(*(pa.array(frame[name].astype(str)) for name in KEYS))
    grades = frame["grade"].to_numpy(float)
    return find_leaks(["x"], np.asarray(column, float)[:, None], grades, codes(frame), answers, item)


def noisy_grade(noise: float) -> Any:
    return documents()["grade"] + noise * np.random.default_rng(1).normal(size=len(documents()))


def by_document(values: Any) -> Any:
    return documents()["document"].map(values)


def test_a_noisy_leak_with_blanks_where_grades_are_missing_is_certain() -> None:
    column = noisy_grade(0.6)
    (leak,) = leaks(column)
    assert 0.9 < leak.ndcg < 0.985
    assert (leak.kind, leak.is_certain, leak.is_reversed) == ("blanks", True, False)
    with pytest.raises(InputError) as error:
        check_leaks([leak], allow_leaks=False)
    assert error.value.kind == "leak"
    assert [one.kind for one in check_leaks([leak], allow_leaks=True)] == ["leak"]
    filled = column.fillna(pd.Series(np.random.default_rng(2).normal(1, 1, len(column))))
    (suspected,) = leaks(filled)
    assert (suspected.kind, suspected.is_certain) == ("agreement", False)
    assert [one.kind for one in check_leaks([suspected], allow_leaks=False)] == ["leak-suspected"]


@pytest.mark.parametrize("noise", [0.3, 0.6])
def test_the_ndcg_of_a_reversed_leak_is_of_the_direction_that_leaks(noise: float) -> None:
    column = -noisy_grade(noise)
    (leak,) = leaks(column)
    assert leak.is_reversed
    assert "lowest values first" in leak.message().problem
    graded = documents().assign(score=-column).dropna()
    graded = graded[graded.groupby("query")["grade"].transform("nunique") > 1].astype({"grade": int})
    means = evaluate(graded[[*KEYS, "score"]], graded[[*KEYS, "grade"]], "nDCG@10").means
    assert leak.ndcg == pytest.approx(means["nDCG@10"], abs=1e-6)
    (upright,) = leaks(-column)
    assert upright.ndcg == pytest.approx(leak.ndcg)
    assert not upright.is_reversed


def test_an_honest_feature_of_the_pool_that_was_graded_is_no_leak() -> None:
    """Experts often grade what one system returned: its scores are blank where grades are missing."""
    assert leaks(noisy_grade(3.0)) == []


@pytest.mark.parametrize("code", [[3, 1, 4, 0, 2], [10, 10.5, 3, -2, 7]])
def test_recoded_grades_are_leaks(code: list[float]) -> None:
    (leak,) = leaks(documents()["grade"].map(dict(enumerate(code))))
    assert (leak.kind, leak.is_certain) == ("grades", True)


def test_several_values_per_grade_are_a_leak() -> None:
    value = documents()["grade"] * 3 + np.random.default_rng(3).integers(0, 3, len(documents()))
    (leak,) = leaks((value * 7) % 15)
    assert (leak.kind, leak.is_certain) == ("grades", True)
    assert max(leak.ndcg, leak.correlation) < 0.99


@pytest.mark.parametrize("function", ["mean", "max", "median", "std"])
def test_functions_of_the_answers_are_leaks(function: str) -> None:
    values = by_document(world().judgments.groupby("document")["grade"].agg(function))
    for column in (values, np.exp(values), -values):
        (leak,) = leaks(column, with_answers=True)
        assert (leak.kind, leak.is_certain) == ("answers", True)
    assert not [leak for leak in leaks(values) if leak.kind == "answers"]


def test_a_consensus_among_the_features_is_suspected() -> None:
    consensus = crowdrank.GDA().fit(judgments()).consensus_.documents.set_index("document")["relevance"]
    (leak,) = leaks(by_document(consensus), with_answers=True)
    assert (leak.kind, leak.is_certain) == ("answers", False)
    assert leak.explained > honest_threshold(HONEST_ANSWERS) ** 2


def test_the_answers_of_one_assessor_are_a_leak() -> None:
    labels = world().judgments
    busiest = labels["assessor"].value_counts().index[0]
    own = labels[labels["assessor"] == busiest].set_index("document")["grade"]
    recoded = by_document(own).map({0: 5.0, 1: 2.0, 2: 8.0, 3: 1.0, 4: 9.0})
    (leak,) = leaks(recoded, with_answers=True)
    assert (leak.kind, leak.assessor, leak.is_certain) == ("answers", busiest, True)
    assert busiest in leak.message().problem
    others = np.random.default_rng(0).normal(size=len(documents()))
    (leak,) = leaks(recoded.fillna(pd.Series(others)), with_answers=True)
    assert leak.assessor == busiest


def test_validate_warns_of_every_kind() -> None:
    mean = by_document(world().judgments.groupby("document")["grade"].mean())
    features = world().features.assign(mean=mean.to_numpy(), similar=noisy_grade(0.6).to_numpy())
    gold = documents().dropna().astype({"grade": int})
    report = validate(world().judgments, gold=read_gold(gold), features=features)
    found = {one.location.column: one.kind for one in report.fit if one.kind.startswith("leak")}
    assert found == {"mean": "leak", "similar": "leak"}
    report = validate(world().judgments, features=features)
    assert [one.location.column for one in report.fit if one.kind == "leak"] == ["mean"]


@pytest.mark.parametrize("options", [{}, {"grades": 3, "labels": 2}, {"labels": 1}, {"noise": 0.5, "spammers": 0.0}])
def test_simulated_features_are_honest(options: dict[str, Any]) -> None:
    for seed in (0, 1):
        one = crowdrank.simulate(queries=40, documents=15, random_state=seed, **options)
        frame = one.features.merge(one.gold, on=KEYS, how="left")
        names = [str(name) for name in one.features if name not in KEYS]
        answers = read_judgments(one.judgments)
        item = answers.positions(*(pa.array(frame[name].astype(str)) for name in KEYS))
        grades = frame["grade"].to_numpy(float)
        assert find_leaks(names, frame[names].to_numpy(), grades, codes(frame), answers, item) == []


# Public features.


def system_scores(folder: Path, name: str) -> tuple[list[str], Floats, Floats, pd.DataFrame]:
    frame = pd.read_csv(folder / name / "judged_features.tsv.gz", sep="\t", dtype={"qid": str, "docid": str})
    names = list(frame.columns[3:])
    return names, frame[names].to_numpy(float), frame["nist_grade"].to_numpy(float), frame


@pytest.mark.data
def test_no_public_feature_is_a_false_alarm(data_folder: Path) -> None:
    n_features = 0
    for file in ("mq2008/S1.txt.gz", "mq2008/S3.txt.gz", "mslr-5k/train.txt.gz", "mslr-5k/test.txt.gz"):
        features = read_features(data_folder / file)
        assert features.grade is not None
        query = codes(pd.DataFrame({"query": features.query.to_pylist()}))
        assert find_leaks(features.names, features.matrix, np.asarray(features.grade, float), query) == []
        n_features += len(features.names)
    for name in ("trec-dl20", "dl19-people"):
        names, matrix, grades, frame = system_scores(data_folder, name)
        answers = dataset(name).read_judgments()
        item = answers.positions(pa.array(frame["qid"]), pa.array(frame["docid"]))
        assert find_leaks(names, matrix, grades, codes(frame, "qid"), answers, item) == []
        n_features += len(names)
    assert n_features * FALSE_ALARM_RATE < 0.1, "no alarm is expected"


@pytest.mark.data
def test_thresholds_follow_from_the_scores_of_retrieval_systems(data_folder: Path) -> None:
    _, matrix, grades, frame = system_scores(data_folder, "trec-dl20")
    query = codes(frame, "qid")
    agreement = [_rank_agreement(sign * matrix, grades, query)[1] for sign in (1, -1)]
    z = np.arctanh(np.max(agreement, axis=0))
    assert (z.mean(), z.std()) == pytest.approx(HONEST_AGREEMENT, abs=0.01)
    answers = dataset("trec-dl20").read_judgments()
    item = answers.positions(pa.array(frame["qid"]), pa.array(frame["docid"]))
    is_judged = item >= 0
    alike = _answer_groups(answers.to_main_scale().with_unjudgeable("lowest"))[0][item[is_judged]]
    explained = [max(explained_variance(one, alike) for one in _with_ranks(column)) for column in matrix[is_judged].T]
    z = np.arctanh(np.sqrt(explained))
    assert (z.mean(), z.std()) == pytest.approx(HONEST_ANSWERS, abs=0.01)
