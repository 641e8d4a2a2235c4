"""Which system is better, from LLM labels and few expert grades: errors, rankings of systems, coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.consensus.gda import GDA
from crowdrank.estimation.by_document import (
    N_FOLDS,
    Sample,
    calibrate_gains,
    corrected_gains,
    document_gains,
    document_weights,
    draw_sample,
    expected_gains,
    gain_variances,
    inclusion_probabilities,
)
from crowdrank.estimation.by_query import ByQueryEstimator, ContrastEstimate, sample_mean
from crowdrank.estimation.joined_runs import JoinedRuns, join_runs
from crowdrank.evaluation.measures import Measure, parse_measure
from crowdrank.readers.datasets import dataset
from experiments.base import SEEDS, Experiment, Row, Table, Tell, quiet, seeds_text
from experiments.dl20 import COVERED, thorough

MEASURE = "nDCG@10"
N_PAIRS, N_DRAWS = 40, 60
"""Number of pairs of systems, and of draws of queries and documents per pair and seed."""
N_QUERIES = 300
DIFFERENCE = np.array([-1.0, 1.0])
"""Number of queries with labels, drawn with replacement from those of DL20."""
EXPERT_QUERIES = (10, 20)
BUDGETS = (100, 300, 1000)
FLOOR, LEVEL = 0.2, 0.95
N_RANKINGS, N_WORLDS = 20, 1000


@dataclass(frozen=True)
class Systems:
    """Systems of DL20 with labels and expert grades of all documents.

    Attributes:
        labels: (n_queries, n_systems) values from the labels.
        experts: (n_queries, n_systems) values from the experts.
        weight: (n_rows, n_systems) weight of each document's gain, with the ideal DCG of the labels.
        predicted: (n_rows,) gains that the labels expect.
        truth: (n_rows,) gains of the experts.
        variance: (n_rows,) variance of the gain by the probabilities of the labels.
        query: (n_rows,) query of each document.

    """

    labels: Floats
    experts: Floats
    weight: Floats
    predicted: Floats
    truth: Floats
    variance: Floats
    query: Integers

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.labels)


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """Return the tables on DL20 and on simulated queries; the labels are those of GDA."""
    tell("gda on DL20")
    systems, n_judges = load_dl20_systems()
    tables = (
        comparison_table(systems, seeds, tell),
        ranking_table(systems, seeds, tell),
        coverage_table(seeds, tell),
    )
    return Experiment("estimate", tables, tuple(_protocol(n_judges, systems)))


def load_dl20_systems() -> tuple[Systems, int]:
    """Return the systems of DL20 with the labels of GDA, and the number of LLM judges."""
    data = dataset("trec-dl20")
    judges = thorough(data.read_judgments(), COVERED)
    labels = GDA().fit(judges).consensus_.documents
    features = pd.read_csv(data.path("judged_features.tsv.gz"), sep="\t", dtype={"qid": str, "docid": str})
    return load_systems(features, labels), judges.n_assessors


def load_systems(features: pd.DataFrame, labels: pd.DataFrame) -> Systems:
    """Return the systems, whose scores are columns of the features, joined with labels and NIST's grades."""
    pairs = features.rename(columns={"qid": "query", "docid": "document", "nist_grade": "grade"})
    names = [name for name in pairs.columns if name not in ("query", "document", "grade")]
    runs = {}
    for name in names:
        known = pairs[name].notna()
        runs[name] = pairs.loc[known, ["query", "document"]].assign(score=pairs.loc[known, name])
    joined = join_runs(runs, labels, pairs[["query", "document", "grade"]])
    return _as_arrays(joined, parse_measure(MEASURE))


def _as_arrays(joined: JoinedRuns, measure: Measure) -> Systems:
    assert joined.sample is not None
    n_rows = len(joined.is_labeled)
    grades = np.zeros(n_rows)
    grades[joined.sample.row] = joined.sample.grade
    weights = []
    for aligned in joined.alignments.values():
        ranking, weight = aligned.ranking, document_weights(aligned, measure)
        judged = ranking.judged
        weights.append(np.bincount(ranking.row[judged], weight[judged], n_rows))
    return Systems(
        labels=joined.label_values(measure),
        experts=joined.expert_values(measure),
        weight=np.column_stack(weights),
        predicted=expected_gains(joined.first, measure)[:-1],
        truth=document_gains(grades, measure),
        variance=gain_variances(joined.first, measure),
        query=joined.query_of_row,
    )


def comparison_table(systems: Systems, seeds: Sequence[int], tell: Tell) -> Table:
    """Return the error of the difference of two systems, relative to experts alone, over pairs and draws."""
    rows: list[Row] = []
    for n_expert in EXPERT_QUERIES:
        draws = []
        for seed in seeds:
            tell(f"comparisons with {n_expert} expert queries, seed {seed}")
            draws += _comparisons(systems, n_expert, np.random.default_rng(seed))
        found = np.array(draws)  # (n_pairs, n_figures), one row per pair and seed
        grades = found[:, 0].mean()
        rows += [
            _comparison_row("labels alone", n_expert, 0.0, found[:, 1], found[:, 2], found[:, 8]),
            _comparison_row("by query", n_expert, grades, found[:, 3], found[:, 2], found[:, 6]),
            _comparison_row("by document", n_expert, grades, found[:, 4], found[:, 5], found[:, 7]),
        ]
    notes = (
        f"{N_PAIRS} random pairs of the {systems.labels.shape[1]} systems, {N_DRAWS} draws each, {seeds_text(seeds)}. "
        f"A draw has {N_QUERIES} queries, drawn with replacement from the {systems.n_queries} of DL20; labels exist "
        "for all, and experts graded the first 10 documents of both systems for 10 or 20 of them, or as many documents "
        "drawn with known probabilities from all queries.",
        "RMSE is that of the difference in nDCG@10 to its mean over all queries; the ratio is to the RMSE of experts "
        "alone with the same queries. Ratios and coverages are means over the pairs. By document, the ideal DCG is "
        "that of the labels, in the true difference and in that of experts alone too.",
        f"Coverage is that of the intervals of level {LEVEL:g}; of labels alone, that of the t interval over queries.",
    )
    return Table("comparisons", "Error of a comparison of two systems", tuple(rows), notes)


def _comparison_row(run: str, n_expert: int, grades: float, error: Floats, alone: Floats, covered: Floats) -> Row:
    ratio = error / alone
    return {
        "run": run,
        "expert queries": n_expert,
        "expert grades": round(float(grades)),
        "RMSE": float(np.sqrt((error**2).mean())),
        "RMSE experts alone": float(np.sqrt((alone**2).mean())),
        "ratio": float(ratio.mean()),
        "ratio sd": float(ratio.std(ddof=1)),
        "coverage": float(covered.mean()),
    }


def _comparisons(systems: Systems, n_expert: int, rng: np.random.Generator) -> list[list[float]]:
    """Return figures of pairs of systems: grades, errors of each estimator, and coverages."""
    rows_of_query = [np.flatnonzero(systems.query == query) for query in range(systems.n_queries)]
    results: list[list[float]] = []
    while len(results) < N_PAIRS:
        pair = rng.choice(systems.labels.shape[1], 2, replace=False)
        used = (systems.weight[:, pair] != 0).any(axis=1)
        rows = [one[used[one]] for one in rows_of_query]
        results.append(_compare_pair(systems, pair, rows, n_expert, rng))
    return results


def _compare_pair(
    systems: Systems, pair: Integers, rows: list[Integers], n_expert: int, rng: np.random.Generator
) -> list[float]:
    labels, experts = (values[:, pair[0]] - values[:, pair[1]] for values in (systems.labels, systems.experts))
    weight = systems.weight[:, pair[0]] - systems.weight[:, pair[1]]
    fixed_ideal = np.bincount(systems.query, weight * systems.truth, systems.n_queries)
    target, fixed_target = float(experts.mean()), float(fixed_ideal.mean())
    budget = round(n_expert * float(np.mean([len(one) for one in rows])))
    errors, covered = [], []
    for _ in range(N_DRAWS):
        queries = rng.integers(0, systems.n_queries, N_QUERIES)
        is_expert = np.arange(N_QUERIES) < n_expert
        by_query = ByQueryEstimator.of_differences(labels[queries], experts[queries], is_expert).estimate(
            DIFFERENCE, LEVEL
        )
        by_document = _estimate_documents(systems, weight, [rows[query] for query in queries], budget, rng)
        alone = sample_mean(labels[queries]).contrast(LEVEL, 0.0, sample_mean(labels[queries]), 1.0)
        errors.append(
            [
                alone.value - target,
                by_query.experts - target,
                by_query.value - target,
                by_document.value - fixed_target,
                float(fixed_ideal[queries[:n_expert]].mean()) - fixed_target,
            ]
        )
        covered.append([_covers(by_query, target), _covers(by_document, fixed_target), _covers(alone, target)])
    rmse = np.sqrt(np.square(errors).mean(axis=0))
    return [float(budget), *rmse.tolist(), *np.mean(covered, axis=0).tolist()]


def _covers(estimate: ContrastEstimate, target: float) -> bool:
    return estimate.lower <= target <= estimate.upper


def _estimate_documents(
    systems: Systems, weight: Floats, rows: list[Integers], budget: int, rng: np.random.Generator
) -> ContrastEstimate:
    """Estimate the difference of two systems from a sample of the documents of some queries."""
    values, slope = values_by_document(systems, weight, rows, budget, rng)
    mean = sample_mean(values)
    return mean.contrast(LEVEL, 0.0, mean, slope)


def values_by_document(
    systems: Systems, weight: Floats, rows: list[Integers], budget: int, rng: np.random.Generator
) -> tuple[Floats, float]:
    """Return the corrected difference of each query, (n_queries,), and the slope of the expert gains on the labels."""
    row, query = np.concatenate(rows), np.repeat(np.arange(len(rows)), [len(one) for one in rows])
    sizes = np.abs(weight[row]) * np.sqrt(systems.variance[row])
    probability = inclusion_probabilities(sizes, budget, FLOOR)
    drawn = draw_sample(probability, rng)
    sample = Sample(drawn, np.zeros(len(drawn)), probability[drawn], np.ones(len(drawn)))
    truth = systems.truth[row[drawn]]
    fold = rng.permutation(len(rows)) % N_FOLDS
    calibrated, slope = calibrate_gains(systems.predicted[row], fold[query], sample, truth)
    ((_, gains),) = corrected_gains(calibrated, sample, truth)
    return np.bincount(query, weight[row] * gains, len(rows)).astype(np.float64), slope


def ranking_table(systems: Systems, seeds: Sequence[int], tell: Tell) -> Table:
    """Return Kendall's tau of rankings of all systems with the ranking by all expert grades."""
    truth = systems.experts.mean(axis=0)
    tau_labels = float(kendalltau(systems.labels.mean(axis=0), truth)[0])
    rows: list[Row] = [{"run": "labels alone", "expert grades": 0, "tau": tau_labels, "tau sd": float("nan")}]
    used = np.flatnonzero((systems.weight != 0).any(axis=1))
    for budget in BUDGETS:
        tell(f"rankings with {budget} expert grades")
        found: dict[str, list[float]] = {"experts alone": [], "by document": []}
        for seed in seeds:
            rng = np.random.default_rng([seed, budget])
            for _ in range(N_RANKINGS):
                found["experts alone"].append(_tau_of_queries(systems, used, budget, rng, truth))
                found["by document"].append(_tau_of_documents(systems, used, budget, rng, truth))
        for run, taus in found.items():
            rows.append(
                {
                    "run": run,
                    "expert grades": budget,
                    "tau": float(np.mean(taus)),
                    "tau sd": float(np.std(taus, ddof=1)),
                }
            )
    notes = (
        f"Kendall's tau with the ranking of the {len(truth)} systems by NIST's grades of all documents ({MEASURE}); "
        f"{N_RANKINGS} draws for each of {seeds_text(seeds)}.",
        "Experts alone graded the first 10 documents of all systems for random queries, as far as the grades reach. By "
        "document, as many documents are drawn from all queries, by their weight in the differences of the systems to "
        "their mean.",
    )
    return Table("rankings", "Ranking of all systems", tuple(rows), notes)


def _tau_of_queries(systems: Systems, used: Integers, budget: int, rng: np.random.Generator, truth: Floats) -> float:
    """Return the tau of the mean over random queries; the last query is graded as far as the budget reaches."""
    rest, values = budget, []
    for query in rng.permutation(systems.n_queries):
        rows = used[systems.query[used] == query]
        graded = rng.permutation(rows)[:rest]
        gains = systems.truth[graded] @ systems.weight[graded]
        values.append(systems.experts[query] if len(graded) == len(rows) else gains)
        rest -= len(graded)
        if not rest:
            break
    return float(kendalltau(np.mean(values, axis=0), truth)[0])


def _tau_of_documents(systems: Systems, used: Integers, budget: int, rng: np.random.Generator, truth: Floats) -> float:
    weight = systems.weight[used]
    deviation = weight - weight.mean(axis=1, keepdims=True)
    sizes = np.sqrt((deviation**2).sum(axis=1) * systems.variance[used])
    probability = inclusion_probabilities(sizes, budget, FLOOR)
    drawn = draw_sample(probability, rng)
    sample = Sample(drawn, np.zeros(budget), probability[drawn], np.ones(budget))
    gains = systems.truth[used[drawn]]
    fold = (rng.permutation(systems.n_queries) % N_FOLDS)[systems.query[used]]
    calibrated, _ = calibrate_gains(systems.predicted[used], fold, sample, gains)
    ((_, corrected),) = corrected_gains(calibrated, sample, gains)
    return float(kendalltau(corrected @ weight, truth)[0])


def coverage_table(seeds: Sequence[int], tell: Tell) -> Table:
    """Return the coverage of intervals on simulated queries, with good and with badly biased labels."""
    rows: list[Row] = []
    for quality in ("good", "biased", "reversed"):
        for n_expert in (10, 20, 50):
            tell(f"coverage with {quality} labels, {n_expert} expert queries")
            rng = np.random.default_rng([*seeds, n_expert])
            covered = [_covers(*_simulated_queries(quality, n_expert, rng)) for _ in range(2 * N_WORLDS)]
            rows.append(
                {"run": f"by query, {n_expert} queries", "labels": quality, "coverage": float(np.mean(covered))}
            )
        rng = np.random.default_rng(list(seeds))
        tell(f"coverage with {quality} labels by document")
        covered = [_covers(*_simulated_documents(quality, rng)) for _ in range(N_WORLDS)]
        rows.append({"run": "by document, 300 grades", "labels": quality, "coverage": float(np.mean(covered))})
    notes = (
        f"Coverage of intervals of level {LEVEL:g}. By query: {2 * N_WORLDS:,} worlds with 200 further queries; the "
        "value of a query is beta(2, 2). Good labels add noise of sd .12, biased ones exceed the value by .4 and end "
        "at 1, and reversed ones fall where it rises.",
        f"By document: {N_WORLDS:,} worlds of 100 queries with 12 documents of grades 0 to 3, two rankings by DCG@5; "
        "biased labels are two grades too high for documents that the second ranking prefers.",
    )
    return Table("coverage", "Coverage of the intervals", tuple(rows), notes)


def _simulated_queries(quality: str, n_expert: int, rng: np.random.Generator) -> tuple[ContrastEstimate, float]:
    truth = rng.beta(2, 2, n_expert + 200)
    noise = rng.normal(0, 0.12, len(truth))
    predicted = {"good": truth, "biased": np.minimum(truth + 0.4, 1.0), "reversed": 1 - 0.5 * truth}[quality] + noise
    is_expert = np.arange(len(truth)) < n_expert
    run = ByQueryEstimator(predicted[:, None], truth[:, None], is_expert, np.zeros(len(truth), np.bool_))
    return run.estimate(np.ones(1), LEVEL), 0.5


def _simulated_documents(quality: str, rng: np.random.Generator) -> tuple[ContrastEstimate, float]:
    n_queries, n_documents = 100, 12
    relevance = rng.normal(0.8, 1.0, (n_queries, n_documents))
    first, second = (relevance + rng.normal(0, 1.5, relevance.shape) for _ in range(2))
    gains = np.exp2(np.clip(np.round(relevance), 0, 3)) - 1
    prefers_second = (second > first).astype(np.float64)
    shift: Floats = {"good": 0 * relevance, "biased": 2 * prefers_second, "reversed": -2 * relevance}[quality]
    predicted = np.exp2(np.clip(relevance + shift + rng.normal(0, 0.7, relevance.shape), 0, 3)) - 1
    discount = np.append(1 / np.log2(np.arange(2, 7)), np.zeros(n_documents - 5))
    ranks = (np.argsort(np.argsort(-scores, axis=1), axis=1) for scores in (first, second))
    first_weight, second_weight = (discount[rank].ravel() for rank in ranks)
    systems = Systems(
        labels=np.empty((n_queries, 0)),
        experts=np.empty((n_queries, 0)),
        weight=np.empty((0, 0)),
        predicted=predicted.ravel(),
        truth=gains.ravel(),
        variance=np.ones(gains.size),
        query=np.repeat(np.arange(n_queries), n_documents),
    )
    rows = list(np.arange(gains.size).reshape(n_queries, n_documents))
    # Both rankings have the same noise, so that the true difference is 0.
    return _estimate_documents(systems, second_weight - first_weight, rows, 300, rng), 0.0


def _protocol(n_judges: int, systems: Systems) -> list[str]:
    bias = float((systems.labels - systems.experts).mean())
    return [
        f"Data: TREC Deep Learning 2020 passages; the labels are the consensus (gda) of the {n_judges} LLM judges of "
        f"more than {COVERED:,} items, without expert grades; NIST's grades 0-3 are those of the experts.",
        f"{counted(systems.labels.shape[1], 'system')} ranked the judged passages of "
        f"{counted(systems.n_queries, 'query')}; passages without a grade of NIST are not in the data, so that every "
        "document is judged.",
        f"On average, the labels alone put {MEASURE} {bias:+.3f} from its value by the experts.",
        "Weights of labels and calibrations are cross-fitted as in crowdrank.estimate; nothing was tuned on these "
        f"data. The floor of probabilities is {FLOOR:g}.",
    ]
