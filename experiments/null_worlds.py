"""What `run` and `compare` say with few test queries: significant summaries without a difference, and coverage."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

import crowdrank
from crowdrank._typing import Floats
from crowdrank.errors import UsageError
from crowdrank.estimation.by_query import ByQueryEstimator
from crowdrank.evaluation.comparison import difference_intervals, fisher_p_values, paired_t
from crowdrank.pipeline.contrasts import ALPHA, Contrast, adjust_contrasts, decide_verdict
from experiments.base import SEEDS, Experiment, Row, Table, Tell, quiet, seeds_text

N_TEST = (8, 12, 14, 20, 30)
"""Numbers of test queries."""
N_WORLDS, N_RUNS = 400, 67
"""Number of simulated tests per number of test queries and seed, and of whole runs per seed."""
N_SELECTION = 24
"""Number of queries on which the simulated candidates are selected."""
N_CANDIDATES, N_ALTERNATIVES = 8, 4
"""Number of simulated candidates, of which the first are the alternatives, and the last on learned labels."""
N_QUERIES, N_DOCUMENTS = 40, 8
"""Number of queries and of documents per query of a whole run."""
N_TREES = 20
"""Number of trees of the candidates of a whole run."""
N_TRUTH, N_SAMPLES = 100_000, 500
"""Number of queries from which true means are computed, and of samples per seed for the coverage."""
CUTS = np.array([0.3, 1.1, 1.9])
"""Thresholds of relevance between the grades 0 to 3."""
WORLDS = {
    "equal": "equally noisy rankings",
    "better": "the second ranking is less noisy",
    "close": "the second ranking is the first with further noise",
    "skewed": "the second ranking is the first with a little of the true relevance",
}
"""Worlds in which the coverage is measured."""
CANDIDATES = "majority,average,expert-only,best-feature"
"""Candidates of the whole runs."""


def experiment(methods: Sequence[str] | None = None, *, seeds: Sequence[int] = SEEDS, tell: Tell = quiet) -> Experiment:
    """Return the share of significant summaries if no ranker is better, and the coverage of intervals."""
    if methods is not None:
        raise UsageError("The experiment null-worlds has no methods to select.")
    tables = (simulated_table(seeds, tell), runs_table(seeds, tell), coverage_table(seeds, tell))
    protocol = (
        "All worlds are simulated; no public data are used. One configuration: the defaults of run and compare. A "
        f"summary is significant if a p-value of its tests is at most {ALPHA:g}.",
    )
    return Experiment("null-worlds", tables, protocol)


def simulated_table(seeds: Sequence[int], tell: Tell) -> Table:
    """Return the share of significant summaries of simulated candidates that are equally good."""
    rows: list[Row] = []
    for n_test in N_TEST:
        tell(f"summaries with {n_test} test queries")
        numbers = [(seed, n_test, number) for seed in seeds for number in range(N_WORLDS)]
        found = [simulate_summary(n_test, np.random.default_rng(one)) for one in numbers]
        means = np.mean(found, axis=0).tolist()
        names = ("significant", "better or worse", "not adjusted", "against the best")
        rows.append({"run": f"{n_test} test queries", **dict(zip(names, means, strict=True))})
    notes = (
        f"{N_WORLDS * len(seeds):,} simulated tests per row ({seeds_text(seeds)}) of {N_CANDIDATES} equally good "
        f"candidates, whose values of a query correlate .5. The best on {N_SELECTION} other queries is selected and "
        f"compared with {N_ALTERNATIVES} alternatives, and the best on learned labels with the best of the others.",
        "Significant: share in which any p-value of the summary is at most .05, adjusted by Holm's method as in run; "
        "wanted: at most .05. Better or worse: that of a verdict that the selected ranker is better than all "
        "alternatives, or worse than one. Not adjusted: any p-value without Holm's method. Against the best: the "
        "p-value of the selected candidate against the one with the highest mean on the test queries, which run does "
        "not print.",
    )
    return Table("summaries", "Significant summaries if no ranker is better", tuple(rows), notes)


def simulate_summary(n_test: int, rng: np.random.Generator) -> list[float]:
    """Return for one test whether the summary, the verdict, and tests that run does not make are significant."""
    shared = rng.normal(size=(N_SELECTION + n_test, 1))
    values = shared + rng.normal(size=(N_SELECTION + n_test, N_CANDIDATES))
    means, test = values[:N_SELECTION].mean(axis=0), values[N_SELECTION:]
    chosen = int(means.argmax())
    pairs = [(chosen, other) for other in range(N_ALTERNATIVES) if other != chosen]
    learned, plain = N_CANDIDATES - 1, int(means[:-1].argmax())
    pairs = list(dict.fromkeys([*pairs, (learned, plain)]))
    best = int(test.mean(axis=0).argmax())
    differences = np.column_stack([test[:, one] - test[:, other] for one, other in [*pairs, (chosen, best)]])
    *p_values, against_best = fisher_p_values(differences).tolist()
    contrasts = [
        Contrast(str(one), str(other), 0.0, 0.0, float(differences[:, place].mean()), 0.0, 0.0, p, 0, 0, n_test)
        for place, ((one, other), p) in enumerate(zip(pairs, p_values, strict=True))
    ]
    adjusted = adjust_contrasts(contrasts)
    ours = [one for one in adjusted if one.candidate == str(chosen) and int(one.other) < N_ALTERNATIVES]
    return [
        float(min(one.adjusted_p for one in adjusted) <= ALPHA),
        float(decide_verdict(ours).answer in ("better", "worse")),
        float(min(one.p for one in contrasts) <= ALPHA),
        float(against_best <= ALPHA),
    ]


def runs_table(seeds: Sequence[int], tell: Tell) -> Table:
    """Return the share of significant summaries of whole runs whose features are noise."""
    found = []
    for seed in seeds:
        tell(f"{N_RUNS} runs, seed {seed}")
        found += [run_null_world(1000 * seed + number) for number in range(N_RUNS)]
    means = np.mean(found, axis=0)
    row: Row = {
        "run": "features are noise",
        "runs": len(found),
        "significant": float(means[0]),
        "better or worse": float(means[1]),
        "table": float(means[2]),
    }
    notes = (
        f"Runs on {N_QUERIES} queries with {N_DOCUMENTS} documents, 36 of them with expert grades, {CANDIDATES} and "
        f"their ensembles, with {N_TREES} trees; three features that are noise, so that no ranker is better.",
        "Significant, better or worse: as above. Table: share in which the table of candidates has a p (Holm) of at "
        "most .05, which is adjusted for all candidates against the baseline.",
    )
    return Table("runs", "Whole runs", (row,), notes)


def run_null_world(seed: int) -> list[float]:
    """Return for one run whether its summary, its verdict and its table of candidates have a significant p-value."""
    judgments, features, expert = _null_world(np.random.default_rng(seed))
    options: dict[str, Any] = {"refit": False, "forest": {"n_trees": 5}, "trees": {"n_estimators": N_TREES}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = crowdrank.run(
            judgments, features, expert, random_state=seed, n_jobs=1, candidates=CANDIDATES, **options
        )
    assert result.rankers is not None
    assert result.rankers.verdict is not None
    tested = [one.p_holm for one in result.rankers.contrasts if one.p_holm is not None]
    table = result.comparison[f"{result.settings.measure} p_holm"]
    return [
        float(min(tested, default=1.0) <= ALPHA),
        float(result.rankers.verdict.answer in ("better", "worse")),
        float((table <= ALPHA).any()),
    ]


def _null_world(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return judgments, features that are noise, and expert grades of the first 36 queries."""
    n_pairs, n_labels, n_assessors = N_QUERIES * N_DOCUMENTS, 3, 12
    relevance = rng.normal(0, 1, n_pairs)
    cuts = np.array([0.0, 0.9, 1.7])
    query = np.array([f"q{number:03d}" for number in np.arange(n_pairs) // N_DOCUMENTS])
    pairs = pd.DataFrame({"query": query, "document": [f"d{number}" for number in range(n_pairs)]})
    features = pairs.assign(**{f"f{number}": rng.normal(size=n_pairs) for number in range(3)})
    item = np.repeat(np.arange(n_pairs), n_labels)
    assessor = np.concatenate([rng.permutation(n_assessors)[:n_labels] for _ in range(n_pairs)])
    seen = relevance[item] + 0.7 * rng.normal(size=len(item))
    judgments = pairs.iloc[item].assign(
        assessor=[f"a{number}" for number in assessor], grade=(seen[:, None] > cuts).sum(axis=1)
    )
    expert = pairs.assign(grade=(relevance[:, None] > cuts).sum(axis=1))
    return judgments.reset_index(drop=True), features, expert[expert["query"] < "q036"]


def coverage_table(seeds: Sequence[int], tell: Tell) -> Table:
    """Return the coverage of the intervals of differences and of single systems."""
    rows: list[Row] = []
    for world in WORLDS:
        tell(f"coverage, {world}")
        first, second = _draw_values(world, N_TRUTH, np.random.default_rng(len(world)))
        for n_test in N_TEST:
            found = np.concatenate(
                [_coverages(first, second, n_test, np.random.default_rng([seed, n_test])) for seed in seeds]
            )
            names = ("run, compare", "compare, t-test", "estimate", "single system")
            means = dict(zip(names, found.mean(axis=0).tolist(), strict=True))
            rows.append({"run": f"{world}, {n_test} queries", **means})
    notes = (
        f"Share of {N_SAMPLES * len(seeds):,} samples of queries ({seeds_text(seeds)}) whose 95% interval has the true "
        "value: of the difference by run and compare (inverts the randomization test), by `compare --test t`, and by "
        "estimate from expert grades of these queries; and of the mean of the first ranking by estimate.",
        f"Values are nDCG@10 of 20 documents of grades 0 to 3; the truth is the mean of {N_TRUTH:,} queries. Worlds: "
        f"{'; '.join(f'{name}: {about}' for name, about in WORLDS.items())}. In the last one a quarter of the "
        "differences is 0 and a few are large, so that few queries do not show how large they are.",
    )
    return Table("coverage", "Coverage of intervals with few queries", tuple(rows), notes)


def _draw_values(world: str, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return nDCG@10 of two rankings, (n,) each."""
    relevance = rng.normal(-0.4, 0.7, (n, 1)) + rng.normal(0, 1, (n, 20))
    gains = 2.0 ** (relevance[..., None] > CUTS).sum(axis=2) - 1
    first = 0.5 * relevance + rng.normal(size=relevance.shape)
    second = {
        "equal": lambda: 0.5 * relevance + rng.normal(size=relevance.shape),
        "better": lambda: 1.2 * relevance + rng.normal(size=relevance.shape),
        "close": lambda: first + 0.4 * rng.normal(size=relevance.shape),
        "skewed": lambda: first + 0.15 * relevance,
    }[world]()
    return _ndcg(first, gains), _ndcg(second, gains)


def _ndcg(score: Floats, gains: Floats) -> Floats:
    discounts = 1 / np.log2(np.arange(2, 12))
    order = np.argsort(-score, axis=1)[:, :10]
    ideal = -np.sort(-gains, axis=1)[:, :10] @ discounts
    dcg = np.take_along_axis(gains, order, axis=1) @ discounts
    return np.asarray(dcg / np.maximum(ideal, 1.0))


def _coverages(first: Floats, second: Floats, n_test: int, rng: np.random.Generator) -> Floats:
    """Return whether each interval of each sample has the true value, (n_samples, n_intervals)."""
    drawn = rng.integers(0, len(first), (n_test, N_SAMPLES))
    differences, mean, truth = (second - first)[drawn], float(first.mean()), float((second - first).mean())
    low, high = difference_intervals(differences).T
    found = np.empty((N_SAMPLES, 4))
    found[:, 0] = (low <= truth) & (truth <= high)
    nobody = np.zeros(n_test)
    known = np.ones(n_test, np.bool_)
    for sample, queries in enumerate(drawn.T):
        found[sample, 1] = paired_t(second[queries], first[queries] + truth) > ALPHA
        parts = np.column_stack([first[queries], second[queries]])
        estimator = ByQueryEstimator(np.column_stack([nobody, nobody]), parts, known, parts[:, 0] == parts[:, 1])
        for place, (contrast, target) in enumerate((((-1.0, 1.0), truth), ((1.0, 0.0), mean)), start=2):
            interval = estimator.estimate(np.array(contrast), 1 - ALPHA)
            found[sample, place] = interval.lower <= target <= interval.upper
    return found
