"""Labeling schemes (OVERLAP): their costs, the rankers that they train, and both for the same number of labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from crowdrank._estimator import require_one_of
from crowdrank._text import counted
from crowdrank.collection import get_policy
from crowdrank.collection.schemes import Scheme, SchemeCost, counted_cost
from crowdrank.errors import UsageError
from crowdrank.evaluation.comparison import compare_evaluations
from crowdrank.evaluation.evaluate import Evaluation, evaluate
from crowdrank.judgments.table import Judgments
from crowdrank.rankers import InstanceKind
from crowdrank.rankers.boosting import default_threads
from crowdrank.rankers.lambdamart import LambdaMART
from crowdrank.rankers.network import LambdaRankNet
from crowdrank.rankers.ranker import Ranker
from crowdrank.readers.datasets import dataset
from crowdrank.readers.features import Features, read_features
from crowdrank.readers.read import read_judgments
from crowdrank.simulation.world import simulate
from experiments.base import (
    UNJUDGED,
    Experiment,
    Row,
    Table,
    Tell,
    average_repeats,
    comparison_table,
    quiet,
    seeds_text,
    testing_protocol,
)
from experiments.documents import query_numbers, run_frame
from experiments.overlap_claims import (
    BASELINE,
    CLAIMED,
    MAIN,
    MIN_GAIN,
    OTHERS,
    claim_tables,
    equal_budget_notes,
    equal_budget_summary,
)
from experiments.overlap_judges import agreement_table, habits_table

MEASURES = ("nDCG@3", "nDCG@1", "nDCG@5", "nDCG@10")
JUDGES = 11
"""Number of labels per document."""
SCHEMES = (CLAIMED, *OTHERS)
SERIES = ("if-good-2", "if-good-3", "if-good-4", "if-good-5", "if-good-6", "good-till-bad", "single")
PLUS_SCHEMES = ("if-good-2", "if-good-3", "if-good-x3", "single")
"""Schemes whose labels are all in a set that was labeled by if-good-3."""
LISTS = ("overlap-3", "if-good-3")
"""Schemes that are also tried with one list per judge."""
CROWD: Mapping[str, Any] = {"assessors": 120, "spammers": 0.0, "adversaries": 0.0, "honeypots": 0.0}
"""Simulated judges: as in the paper, honest employees."""
SETS: Mapping[str, tuple[int, float]] = {"A": (0, 0.36), "B": (1, 0.355), "plus": (2, 0.42)}
"""Random seed and ratio of grade frequencies of each label set, for the paper's Clean07, Clean08 and Clean+.

The ratios give single labels the papers' 3.5 to 3.7 (Clean+: 3.2) labels below Good per label of at least Good.
"""
TRAIN, TEST = 400, 1000
"""Number of queries."""
DRAWS = 2
"""Number of random orders of the labels."""
TREES: Mapping[str, Any] = {"n_estimators": 80, "learning_rate": 0.1, "num_leaves": 15, "min_child_samples": 20}
NETWORK: Mapping[str, Any] = {"hidden": (32,), "epochs": 30, "learning_rate": 0.005, "batch": 16}
PARTS = ("judges", "costs", "rankers", "series", "lists", "equal", "mslr-5k")
"""Parts of the experiment that can be run alone."""

Make = Callable[[], Ranker]


def trees() -> Ranker:
    """Return LambdaMART; draws run in parallel, each in one thread."""
    return LambdaMART(**TREES, n_jobs=1)


def network() -> Ranker:
    """Return the LambdaRank network."""
    return LambdaRankNet(**NETWORK)


RANKERS: Mapping[str, Make] = {"LambdaRankNet": network, "LambdaMART": trees}
"""Rankers of the paper: LambdaRank, which its figures and most tables use, and LambdaMART."""


@dataclass(frozen=True, eq=False)
class LabelSet:
    """Training documents with their labels, and test documents with expert grades (`gold`).

    If `in_order`, labels are bought in the order of their times, otherwise in random order. No ranker sees the expert
    grades of training documents (`train_gold`).
    """

    name: str
    judgments: Judgments
    train: Features
    test: Features
    gold: pd.DataFrame
    train_gold: pd.DataFrame
    in_order: bool = False

    def order(self, seed: int) -> int | None:
        """Return the random state of `Scheme.sample` for a draw."""
        return None if self.in_order else seed

    def evaluate(self, ranker: Ranker) -> Evaluation:
        """Evaluate a ranker on the test queries."""
        frame = {"query": self.test.query.to_pandas(), "document": self.test.document.to_pandas()}
        run = pd.DataFrame({**frame, "score": ranker.predict(self.test, self.test.query)})
        return evaluate(run, self.gold, list(MEASURES), unjudged=UNJUDGED)

    def first_queries(self, queries: int) -> Judgments:
        """Return the judgments of the first queries."""
        return self.judgments.where(self.judgments.by_row(self.judgments.item_query) < queries)


def simulated_set(name: str, train: int = TRAIN, test: int = TEST) -> LabelSet:
    """Simulate a label set; that of the name `plus` was labeled by if-good-3."""
    seed, grade_ratio = SETS[name]
    world = simulate(
        queries=train + test,
        documents=19,
        features=20,
        labels=JUDGES,
        grade_ratio=grade_ratio,
        random_state=seed,
        **CROWD,
    )
    features = read_features(world.features)
    is_train = query_numbers(features) < train
    queries = set(features.query.filter(pa.array(is_train)).to_pylist())
    labels = read_judgments(world.judgments[world.judgments["query"].isin(queries)], grades="0-4")
    if name == "plus":
        labels = get_scheme(CLAIMED).sample(labels)
    in_train = world.gold["query"].isin(queries)
    train_side, test_side = (features.take(np.flatnonzero(mask)) for mask in (is_train, ~is_train))
    gold = world.gold[~in_train], world.gold[in_train]
    return LabelSet(name, labels, train_side, test_side, *gold, in_order=name == "plus")


def mslr(seed: int = 0) -> LabelSet:
    """Return documents of MSLR-WEB10K, fold 1: 5,000 for training with simulated labels, and 5,000 for testing."""
    data = dataset("mslr-5k")
    train, test = (read_features(data.path(f"{part}.txt.gz"), format="letor") for part in ("train", "test"))
    world = simulate(source=train, labels=JUDGES, random_state=seed, **CROWD)
    gold, train_gold = (run_frame(part, part.grade, "grade").astype({"grade": int}) for part in (test, train))
    return LabelSet("mslr-5k", read_judgments(world.judgments, grades="0-4"), train, test, gold, train_gold)


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    seeds: Sequence[int] = tuple(range(DRAWS)),
    tell: Tell = quiet,
) -> Experiment:
    """Return the tables of some schemes (by default all) and of some parts (by default all)."""
    schemes = list(SCHEMES) if methods is None else list(methods)
    schemes += [] if BASELINE in schemes else [BASELINE]
    for name in schemes:
        get_scheme(name)
    parts = PARTS if only is None else tuple(only)
    for name in parts:
        require_one_of("only", name, PARTS)
    sets = {name: simulated_set(name) for name in SETS} if parts != ("mslr-5k",) else {}
    main = {name: one for name, one in sets.items() if name != "plus"}
    tables: list[Table] = []
    if "judges" in parts:
        tables += [agreement_table(name, one.judgments, one.train_gold, seeds) for name, one in main.items()]
        tables += [habits_table(name, one.judgments) for name, one in main.items()]
    if "rankers" in parts:
        compared = {
            f"{ranker} {name}": ranker_table(
                ranker, one, PLUS_SCHEMES if name == "plus" else schemes, make, seeds, tell=tell
            )
            for ranker, make in RANKERS.items()
            for name, one in sets.items()
        }
        tables += [*compared.values(), *claim_tables(compared, [f"{ranker} plus" for ranker in RANKERS])]
    if "costs" in parts:
        tables += [cost_table(one, PLUS_SCHEMES if name == "plus" else schemes, seeds) for name, one in sets.items()]
    if "series" in parts:
        tables += [
            series_table(ranker, one, make, seeds, tell=tell)
            for ranker, make in RANKERS.items()
            for one in main.values()
        ]
    if "lists" in parts:
        tables += [lists_table(ranker, main["A"], make, seeds, tell=tell) for ranker, make in RANKERS.items()]
    if "equal" in parts:
        equal = [
            equal_budget_table(ranker, one, schemes, make, seeds, tell=tell)
            for ranker, make in RANKERS.items()
            for one in main.values()
        ]
        tables += [*equal, equal_budget_summary(equal)]
    if "mslr-5k" in parts:
        tables.append(mslr_table(schemes, seeds, tell=tell))
    return Experiment("overlap", tuple(tables), tuple(_protocol(seeds, tables)))


def get_scheme(name: str) -> Scheme:
    """Return a scheme by its name."""
    policy = get_policy(name)
    if not isinstance(policy, Scheme):
        raise UsageError(f"{name} is not a labeling scheme; the schemes are: {', '.join(SCHEMES)}.")
    return policy


def _protocol(seeds: Sequence[int], tables: Sequence[Table]) -> list[str]:
    settings = [f"{name} {value}" for name, value in (*TREES.items(), *NETWORK.items())]
    compared = next((table for table in tables if table.comparison is not None), None)
    return [
        f"Label sets A and B stand for Clean07 and Clean08: simulated worlds with {TRAIN} training queries, {JUDGES} "
        f"labels per document by {CROWD['assessors']} honest judges, and {TEST:,} test queries with expert grades. The "
        f"set plus stands for Clean+: a third world whose labels were bought by {CLAIMED}. The frequencies of the "
        "grades were set so that single labels have the paper's ratio of other to good labels; eight ratios were "
        "tried, without looking at rankers.",
        f"A scheme buys the labels of a document in random order ({seeds_text(seeds)}; on plus, by time). The value of "
        "a query is its mean over the draws, and tests count each query once.",
        f"Settings of trees and network: {', '.join(settings)}. Nothing was tuned; there are no validation queries.",
        "Labels of one document are rows of one list, in which the document competes with itself, as in the paper; "
        "'a list per judge' has one list with the first label of each document, one with the second, and so on.",
        "Labeling and training overhead are labels bought and weights of training rows per document; a good label of "
        "if-good-x3 has the weight 3. The formula is n/(r+1) + n r k/(r+1) with the ratio r of good to other first "
        "labels.",
        "At equal label budgets every scheme buys as many labels as single does for all training queries, so a scheme "
        "with more labels per document has fewer queries.",
        "The paper claims that if-good-k is significantly better than one label per document, and than the other "
        f"settings, on the same queries: here {CLAIMED} on A and B, if-good-2 on plus. A claim is confirmed if it "
        f"is significantly better than each (Holm's correction, {MAIN}), refuted if it is significantly worse than one "
        f"or the interval of its gain over the best lies below {MIN_GAIN:g}, and undecided otherwise.",
        f"Whether {CLAIMED} is best at equal budgets is our question: no if another scheme is significantly better "
        f"(Holm's correction, {MAIN}), yes if {CLAIMED} is significantly better than all others.",
        "mslr-5k has 43 queries on either side; its figures have no tests.",
        *([] if compared is None else testing_protocol(compared)),
    ]


# Rankers.


def train_and_evaluate(
    labels: LabelSet, name: str, make: Make, seed: int, *, overlap: InstanceKind = "overlap", queries: int = 0
) -> Evaluation:
    """Train a ranker on the labels that a scheme buys, and evaluate it."""
    scheme = get_scheme(name)
    judgments = labels.first_queries(queries) if queries else labels.judgments
    bought = scheme.sample(judgments, labels.order(seed))
    rows = scheme.training_instances(bought, labels.train, overlap=overlap, missing="skip")
    return labels.evaluate(make().fit(**rows.arguments))


def run_all(
    runs: Mapping[str, Callable[[int], Evaluation]], seeds: Sequence[int], tell: Tell, title: str
) -> dict[str, Evaluation]:
    """Return the evaluation of every run in parallel; the value of a query is its mean over the seeds."""
    places = [(name, seed) for name in runs for seed in seeds]

    def run(place: tuple[str, int]) -> Evaluation:
        tell(f"{place[0]} on {title}, draw {place[1]}")
        return runs[place[0]](place[1])

    with warnings.catch_warnings(), ThreadPoolExecutor(min(default_threads(), len(places))) as pool:
        warnings.simplefilter("ignore")
        found = dict(zip(places, pool.map(run, places), strict=True))
    return {name: average_repeats([found[name, seed] for seed in seeds]) for name in runs}


def ranker_table(
    ranker: str, labels: LabelSet, schemes: Sequence[str], make: Make, seeds: Sequence[int], *, tell: Tell = quiet
) -> Table:
    """Return the quality of the ranker of each scheme, the best first (OVERLAP, Tables 1-5)."""
    runs = {name: partial(train_and_evaluate, labels, name, make) for name in schemes}
    used = seeds[:1] if labels.in_order else seeds
    found = run_all(runs, used, tell, f"{ranker} {labels.name}")
    order = sorted(found, key=lambda name: -found[name].means[MAIN])
    comparison = compare_evaluations({name: found[name] for name in order}, baseline=BASELINE)
    return comparison_table(f"{ranker}-{labels.name}".lower(), f"{ranker}, label set {labels.name}", comparison)


def series_table(ranker: str, labels: LabelSet, make: Make, seeds: Sequence[int], *, tell: Tell = quiet) -> Table:
    """Return the quality by the number of labels per good document (OVERLAP, Figures 4-6)."""
    runs = {name: partial(train_and_evaluate, labels, name, make) for name in SERIES}
    title = f"if-good-k by k, {ranker}, label set {labels.name}"
    comparison = compare_evaluations(run_all(runs, seeds, tell, title), baseline=BASELINE)
    return comparison_table(f"series-{ranker}-{labels.name}".lower(), title, comparison)


def lists_table(ranker: str, labels: LabelSet, make: Make, seeds: Sequence[int], *, tell: Tell = quiet) -> Table:
    """Return the quality with one list per query, and with one list per judge."""
    runs = {BASELINE: partial(train_and_evaluate, labels, BASELINE, make)}
    for name in LISTS:
        runs[name] = partial(train_and_evaluate, labels, name, make)
        runs[f"{name}, a list per judge"] = partial(train_and_evaluate, labels, name, make, overlap="per-judge-lists")
    title = f"One list, or one per judge, {ranker}, label set {labels.name}"
    comparison = compare_evaluations(run_all(runs, seeds, tell, title), baseline=BASELINE)
    return comparison_table(f"lists-{ranker}".lower(), title, comparison)


# Costs.


def get_cost(labels: LabelSet, name: str, seed: int) -> SchemeCost:
    """Return the cost of a scheme on a label set."""
    return counted_cost(get_scheme(name), labels.judgments, random_state=labels.order(seed))


def cost_table(labels: LabelSet, schemes: Sequence[str], seeds: Sequence[int]) -> Table:
    """Return the costs of schemes (OVERLAP, Tables 6-8)."""
    columns = {
        "labeling overhead": "labeling_overhead",
        "by the formula": "formula",
        "training overhead": "training_overhead",
        "rest:good": "rest_to_good",
    }
    rows: list[Row] = []
    for name in schemes:
        costs = [get_cost(labels, name, seed) for seed in seeds]
        means = {title: float(np.mean([getattr(cost, field) for cost in costs])) for title, field in columns.items()}
        rows.append({"run": name, **means})
    note = "For good-till-bad the formula is an upper bound. Means over the draws."
    return Table(f"costs-{labels.name}", f"Costs, label set {labels.name}", tuple(rows), (note,))


def equal_budget_table(
    ranker: str, labels: LabelSet, schemes: Sequence[str], make: Make, seeds: Sequence[int], *, tell: Tell = quiet
) -> Table:
    """Return the quality of every scheme with as many labels as single buys for all training queries."""
    runs, queries = {}, {}
    for name in schemes:
        overhead = get_cost(labels, name, seeds[0]).labeling_overhead
        queries[name] = max(round(labels.judgments.n_queries / overhead), 10)
        run = partial(train_and_evaluate, labels, name, make, queries=queries[name])
        runs[name] = run
        if name in LISTS:
            runs[f"{name}, a list per judge"] = partial(run, overlap="per-judge-lists")
    title = f"Equal label budgets, {ranker}, label set {labels.name}"
    found = run_all(runs, seeds, tell, title)
    comparison = compare_evaluations(found, baseline=CLAIMED if CLAIMED in found else BASELINE)
    table = comparison_table(f"equal-{ranker}-{labels.name}".lower(), title, comparison)
    numbers = ", ".join(f"{name} {number}" for name, number in queries.items())
    return replace(table, notes=(*table.notes, f"Training queries: {numbers}.", *equal_budget_notes(table)))


def mslr_table(schemes: Sequence[str], seeds: Sequence[int], *, tell: Tell = quiet) -> Table:
    """Return costs and quality on documents of MSLR-WEB10K, which are too few for tests."""
    labels = mslr()
    runs = {name: partial(train_and_evaluate, labels, name, trees) for name in schemes}
    rows = [
        {"run": name, "labeling overhead": get_cost(labels, name, seeds[0]).labeling_overhead, **one.means}
        for name, one in run_all(runs, seeds, tell, "mslr-5k").items()
    ]
    queries = counted(len(labels.test.query.unique()), "test query")
    note = f"Documents and features of MSLR-WEB10K, simulated judges; {queries}. There are no tests."
    return Table("mslr-5k", "mslr-5k, LambdaMART", tuple(rows), (note,))
