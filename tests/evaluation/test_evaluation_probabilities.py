"""Test gold with the probability of each grade, as a consensus has it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import crowdrank
from crowdrank.errors import InputError
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.readers.read import read_gold

SHARES = np.array([[0.2, 0.5, 0.3], [0.9, 0.1, 0.0], [0.1, 0.1, 0.8], [0.0, 0.0, 1.0]])
RUN = pd.DataFrame({"query": "q", "document": list("abcde"), "score": [3.0, 2.0, 2.0, 2.0, 1.0]})


def soft_gold(shares: np.ndarray = SHARES) -> pd.DataFrame:
    documents = pd.DataFrame({"query": "q", "document": list("abcd"), "grade": shares.argmax(axis=1)})
    return documents.assign(**{f"p{grade}": shares[:, grade] for grade in range(3)})


def mean_over_grades(measure: str) -> float:
    """Return the expectation of a measure over all combinations of grades."""
    total = 0.0
    for grades in product(range(3), repeat=4):
        probability = float(np.prod(SHARES[np.arange(4), grades]))
        if probability > 0:
            total += probability * evaluate(RUN, soft_gold().assign(grade=grades)[GRADES], measure).means[measure]
    return total


GRADES = ["query", "document", "grade"]


@pytest.mark.parametrize("measure", ["DCG@3", "P@2", "P(rel=2)@3", "RR", "RR(rel=2)@3", "ERR(max_grade=2)@4"])
def test_values_are_expectations_over_the_grades(measure: str) -> None:
    assert evaluate(RUN, soft_gold(), measure).means[measure] == pytest.approx(mean_over_grades(measure), rel=1e-12)


def test_average_precision_divides_by_the_expected_number_of_relevant_documents() -> None:
    relevance, total = SHARES[:, 1:].sum(axis=1), 0.0
    for relevant in product((0, 1), repeat=4):
        probability = float(np.prod(np.where(relevant, relevance, 1 - relevance)))
        if any(relevant):
            value = evaluate(RUN, soft_gold().assign(grade=relevant)[GRADES], "AP").means["AP"]
            total += probability * value * sum(relevant)
    assert evaluate(RUN, soft_gold(), "AP").means["AP"] == pytest.approx(total / relevance.sum(), rel=1e-12)


def test_ndcg_divides_by_the_best_order_of_expected_gains() -> None:
    gains = SHARES @ [0.0, 1.0, 3.0]
    best = (np.sort(gains)[::-1] / np.log2(np.arange(2, 6))).sum()
    dcg = evaluate(RUN, soft_gold(), "DCG").means["DCG"]
    assert evaluate(RUN, soft_gold(), "nDCG").means["nDCG"] == pytest.approx(dcg / best)


def test_certain_probabilities_give_the_values_of_the_grades() -> None:
    certain = soft_gold(np.eye(3)[[1, 0, 2, 2]])
    measures = "nDCG@3 AP RR P@2 ERR Tau GradeMAE"
    run = RUN.assign(grade=1)
    soft, hard = evaluate(run, certain, measures), evaluate(run, certain[GRADES], measures)
    assert soft.means == pytest.approx(hard.means, rel=1e-12)
    assert soft.expected_grades
    assert not hard.expected_grades


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_and_consensuses_keep_the_probabilities(tmp_path: Path, suffix: str) -> None:
    world = crowdrank.simulate(queries=4, documents=6, random_state=1)
    consensus = crowdrank.DawidSkene(tol=0.1).fit(world.judgments).consensus_
    run = consensus.documents[["query", "document"]].assign(score=range(consensus.n_documents))
    path = tmp_path / f"consensus.{suffix}"
    consensus.documents.to_csv(path, index=False) if suffix == "csv" else consensus.documents.to_parquet(path)
    expected = evaluate(run, consensus.documents, "nDCG@5 AP").means
    assert evaluate(run, path, "nDCG@5 AP").means == pytest.approx(expected)
    assert evaluate(run, consensus, "nDCG@5 AP").means == expected
    assert expected != evaluate(run, consensus.documents[GRADES], "nDCG@5 AP").means
    gold = read_gold(path)
    assert gold.take(np.array([3, 1])).frame["p1"].tolist() == pytest.approx(gold.frame["p1"].iloc[[3, 1]].tolist())


@pytest.mark.parametrize("value", [1.5, -0.2, 0.6])
def test_probabilities_that_are_none_are_refused(value: float) -> None:
    gold = soft_gold()
    gold.loc[2, "p0"] = value
    with pytest.raises(InputError) as caught:
        evaluate(RUN, gold, "nDCG")
    assert caught.value.kind == "not-a-share"
    assert (caught.value.location.place, caught.value.location.column) == ("row 3", "p0")
