"""Compare measures with trec_eval, gdeval and ir_measures (all through ir_measures) and SciPy."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from evaluation_reference import REFERENCES, random_world, tau

from crowdrank.evaluation.evaluate import Ties, Unjudged, evaluate

ir_measures = pytest.importorskip("ir_measures")
LINEAR = ["nDCG(dcg='log2')", *(f"nDCG(dcg='log2')@{k}" for k in (1, 5, 10))]
TREC = [*LINEAR, "AP", "AP(rel=2)", "AP(rel=2)@5", "P@1", "P@5", "P(rel=3)@10"]
TREC += ["RR", "RR(rel=2)", "AP@100", "P@100"]


def plain_name(name: str) -> str:
    """Return the name as ir_measures prints it: without the default gains of ir_measures."""
    return str(ir_measures.parse_measure(name))


def peer_values(run: pd.DataFrame, gold: pd.DataFrame, names: list[str], provider: str) -> pd.DataFrame:
    measures = [ir_measures.parse_measure(name) for name in names]
    metrics = ir_measures.providers.registry[provider].iter_calc(
        measures,
        gold.rename(columns={"query": "query_id", "document": "doc_id", "grade": "relevance"}),
        run.rename(columns={"query": "query_id", "document": "doc_id"}),
    )
    rows = [(metric.query_id, str(metric.measure), metric.value) for metric in metrics]
    return pd.DataFrame(rows, columns=["query", "measure", "value"]).pivot(
        index="query", columns="measure", values="value"
    )


def our_values(run: pd.DataFrame, gold: pd.DataFrame, names: list[str], ties: Ties) -> pd.DataFrame:
    frame = evaluate(run, gold, names, ties=ties, unjudged="nonrelevant", no_relevant="zero").frame
    return pd.DataFrame(frame).set_index("query")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ties", ["expected", "document"])
def test_equal_to_trec_eval(seed: int, ties: Ties) -> None:
    run, gold = random_world(seed, ties=ties == "document")
    ours = our_values(run, gold, TREC, ties)
    theirs = peer_values(run, gold, TREC, "pytrec_eval")
    assert set(ours.index) == set(theirs.index)
    names = [plain_name(name) for name in TREC]
    np.testing.assert_allclose(ours[TREC], theirs.loc[ours.index, names], atol=1e-9, rtol=0)


def test_means_are_those_of_ir_measures() -> None:
    run, gold = random_world(11, ties=True)
    means = evaluate(run, gold, TREC, ties="document", unjudged="nonrelevant", no_relevant="zero").means
    theirs = ir_measures.calc_aggregate(
        [ir_measures.parse_measure(name) for name in TREC],
        gold.rename(columns={"query": "query_id", "document": "doc_id", "grade": "relevance"}),
        run.rename(columns={"query": "query_id", "document": "doc_id"}),
    )
    expected = {str(measure): value for measure, value in theirs.items()}
    assert {plain_name(name): value for name, value in means.items()} == pytest.approx(expected, abs=1e-9)


@pytest.mark.skipif(shutil.which("perl") is None, reason="gdeval is a Perl program")
@pytest.mark.parametrize("ties", ["expected", "document"])
def test_equal_to_gdeval_which_prints_five_decimals(ties: Ties) -> None:
    run, gold = (
        frame.assign(query=frame["query"].str.removeprefix("q"))  # gdeval wants numbers for queries
        for frame in random_world(3, ties=ties == "document")
    )
    peer_names = ["ERR@20", "nDCG(dcg='exp-log2')@20", "ERR@5"]
    names = ["ERR@20", "nDCG@20", "ERR@5"]
    theirs = peer_values(run, gold, peer_names, "gdeval").fillna(0.0)
    ours = our_values(run, gold, names, ties)
    np.testing.assert_allclose(ours.loc[theirs.index, names], theirs[peer_names], atol=1e-5, rtol=0)


@pytest.mark.parametrize("unjudged", ["skip", "nonrelevant"])
def test_judged_equals_ir_measures(unjudged: Unjudged) -> None:
    run, gold = random_world(7, ties=False)
    names = ["Judged@1", "Judged@5", "Judged@30"]
    theirs = peer_values(run, gold, names, "judged")
    evaluation = evaluate(run, gold, names, unjudged=unjudged)
    ours = evaluation.frame.set_index("query")
    np.testing.assert_allclose(ours.loc[theirs.index, names], theirs[names], atol=1e-12, rtol=0)
    assert evaluation.judged == evaluation.means
    assert set(ours.loc[ours.index.difference(theirs.index), names].to_numpy().ravel()) <= {0.0}


def test_skipping_unjudged_documents_equals_judged_only_of_ir_measures() -> None:
    run, gold = random_world(9, ties=False)
    ours = evaluate(run, gold, "nDCG(dcg='log2')@5 AP P@5", unjudged="skip", no_relevant="zero").frame
    peer_names = ["nDCG(judged_only=True)@5", "AP(judged_only=True)", "P(judged_only=True)@5"]
    theirs = peer_values(run, gold, peer_names, "pytrec_eval").loc[ours["query"], peer_names]
    np.testing.assert_allclose(ours.drop(columns="query"), theirs, atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", REFERENCES)
def test_equal_to_the_obvious_computation(name: str) -> None:
    run, gold = random_world(8, ties=False, highest=3)
    ours = evaluate(run, gold, name, unjudged="skip").frame.set_index("query")[name]
    ranked = run.merge(gold, on=["query", "document"]).sort_values("score", ascending=False)
    for query, pool in gold.groupby("query"):
        lowest = 2 if "rel=2" in name else 1
        if pool["grade"].max() < lowest:
            assert np.isnan(ours[query])
        else:
            listed = ranked.loc[ranked["query"] == query, "grade"].tolist()
            assert ours[query] == pytest.approx(REFERENCES[name](listed, pool["grade"].tolist()), abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("unjudged", ["skip", "nonrelevant"])
def test_correlations_equal_scipy(seed: int, unjudged: Unjudged) -> None:
    run, gold = random_world(seed, ties=True)
    names = ["Tau", "TauB", "Spearman"]
    ours = evaluate(run, gold, names, unjudged=unjudged).frame.set_index("query")
    both = run.merge(gold, on=["query", "document"])
    for query, pool in gold.groupby("query"):
        rows = both[both["query"] == query]
        scores, grades = rows["score"].tolist(), rows["grade"].tolist()
        if pool["grade"].nunique() == 1:
            assert ours.loc[query, names].isna().all()
        elif len(set(grades)) < 2 or len(set(scores)) < 2:
            assert ours.loc[query, names].tolist() == [0.0, 0.0, 0.0]
        else:
            expected = [
                tau(scores, grades),
                scipy.stats.kendalltau(scores, grades).statistic,
                scipy.stats.spearmanr(scores, grades).statistic,
            ]
            np.testing.assert_allclose(ours.loc[query, names].tolist(), expected, atol=1e-12)


def test_correlations_of_a_long_list() -> None:
    rng = np.random.default_rng(0)
    grades = rng.integers(0, 4, 3000)
    frame = pd.DataFrame({"document": np.arange(3000), "score": np.round(grades + rng.normal(0, 2, 3000), 1)})
    means = evaluate(frame, frame.assign(grade=grades), "TauB Spearman").means
    assert means["TauB"] == pytest.approx(scipy.stats.kendalltau(frame["score"], grades).statistic, abs=1e-12)
    assert means["Spearman"] == pytest.approx(scipy.stats.spearmanr(frame["score"], grades).statistic, abs=1e-12)
