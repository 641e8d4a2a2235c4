"""Labeling schemes (OVERLAP): what each costs, how good a ranker it makes, and which is best for the money."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from crowdrank._text import counted
from crowdrank.collection import get_policy
from crowdrank.collection.accounts import Account, account, first_ratio
from crowdrank.collection.schemes import Scheme
from crowdrank.errors import UsageError
from crowdrank.evaluation.comparison import compare_evaluations
from crowdrank.evaluation.evaluate import Evaluation, evaluate
from crowdrank.judgments.datasets import dataset
from crowdrank.judgments.read import Features, read_features, read_judgments
from crowdrank.judgments.table import Judgments
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.lambdamart import LambdaMART, usual_threads
from crowdrank.rankers.network import LambdaRankNet
from crowdrank.simulation.world import simulate
from experiments.base import (
    UNJUDGED,
    Experiment,
    Row,
    Table,
    Tell,
    comparison_table,
    quiet,
    seeds_told,
    testing_protocol,
)
from experiments.lessons import over_repeats
from experiments.rankers import against, query_numbers

MEASURES = ("nDCG@3", "nDCG@1", "nDCG@5", "nDCG@10")
MAIN = "nDCG@3"
"""As in the paper."""
JUDGES = 11
BASELINE, CLAIMED = "single", "if-good-3"
SCHEMES = (
    "if-good-3",
    "overlap-3",
    "overlap-11",
    "majority-3",
    "majority-11",
    "if-good-x3",
    "highest-3",
    "good-till-bad",
    "single",
)
SERIES = ("if-good-2", "if-good-3", "if-good-4", "if-good-5", "if-good-6", "good-till-bad", "single")
PLUS = ("if-good-2", "if-good-3", "if-good-x3", "single")
"""What can be sampled of a set that was labeled by if-good-3 itself."""
LISTS = ("overlap-3", "if-good-3")
"""Schemes that are tried with one list for each judge too."""
WORLD: Mapping[str, Any] = {
    "documents": 19,
    "features": 20,
    "assessors": 120,
    "spammers": 0.0,
    "adversaries": 0.0,
    "honeypots": 0.0,
}
"""The paper's judges are employees: none is a spammer. Grades 0-4, each half as common as the one below."""
TRAIN, TEST = 400, 1000
DRAWS = 2
TREES: Mapping[str, Any] = {"n_estimators": 80, "learning_rate": 0.1, "num_leaves": 15, "min_child_samples": 20}
NETWORK: Mapping[str, Any] = {"hidden": (32,), "epochs": 30, "learning_rate": 0.005, "batch": 16}
SETS = {"A": 0, "B": 1}
"""Two label sets, as the paper has Clean07 and Clean08: worlds of these seeds."""
PLUS_SEED = 2

Make = Callable[[], Ranker]


def trees() -> Ranker:
    """LambdaMART as the experiment sets it; draws run side by side, each in one thread."""
    return LambdaMART(**TREES, n_jobs=1)


def network() -> Ranker:
    """The LambdaRank network as the experiment sets it."""
    return LambdaRankNet(**NETWORK, n_jobs=1)


@dataclass(frozen=True, eq=False)
class Lessons:
    """A label set: documents to learn from with their judgments, and others to be tested on."""

    name: str
    judgments: Judgments
    train: Features
    test: Features
    gold: pd.DataFrame

    def scored(self, ranker: Ranker) -> Evaluation:
        """A ranker on the test queries, against the experts' grades."""
        frame = {"query": self.test.query.to_pandas(), "document": self.test.document.to_pandas()}
        run = pd.DataFrame({**frame, "score": ranker.predict(self.test, self.test.query)})
        return evaluate(run, self.gold, list(MEASURES), unjudged=UNJUDGED)

    def part(self, queries: int) -> Judgments:
        """The judgments of the first so many queries."""
        item = np.repeat(np.arange(self.judgments.n_items), np.diff(self.judgments.offsets))
        return self.judgments.where(self.judgments.item_query[item] < queries)


def world(seed: int, train: int = TRAIN, test: int = TEST) -> Lessons:
    """A generated world with power: many test queries."""
    made = simulate(queries=train + test, labels=JUDGES, random_state=seed, **WORLD)
    features = read_features(made.features)
    learns = query_numbers(features) < train
    queries = set(features.query.filter(_mask(learns)).to_pylist())
    seen = made.judgments[made.judgments["query"].isin(queries)]
    return Lessons(
        f"seed {seed}",
        read_judgments(seen, grades="0-4"),
        features.take(np.flatnonzero(learns)),
        features.take(np.flatnonzero(~learns)),
        made.gold[~made.gold["query"].isin(queries)],
    )


def mslr(seed: int) -> Lessons:
    """The first 5,000 documents of MSLR-WEB10K fold 1 each, to learn from (judged by a simulated crowd) and to test."""
    data = dataset("mslr-5k")
    train, test = (read_features(data.path(f"{part}.txt.gz"), format="letor") for part in ("train", "test"))
    crowd = {name: value for name, value in WORLD.items() if name not in ("documents", "features")}
    made = simulate(source=train, labels=JUDGES, random_state=seed, **crowd)
    assert test.grade is not None
    gold = {"query": test.query.to_pandas(), "document": test.document.to_pandas(), "grade": test.grade.astype(int)}
    return Lessons("mslr-5k", read_judgments(made.judgments, grades="0-4"), train, test, pd.DataFrame(gold))


def _mask(flags: Any) -> Any:
    import pyarrow as pa

    return pa.array(flags)


def experiment(
    methods: Sequence[str] | None = None, *, seeds: Sequence[int] = tuple(range(DRAWS)), tell: Tell = quiet
) -> Experiment:
    """All tables, for the schemes named or for all."""
    chosen = list(SCHEMES) if methods is None else [_named(name) for name in methods]
    if BASELINE not in chosen:
        chosen.append(BASELINE)
    sets = {name: world(seed) for name, seed in SETS.items()}
    plus = _labeled_by_claim(world(PLUS_SEED), PLUS_SEED)
    rankers: dict[str, Make] = {"LambdaMART": trees}
    notes: list[str] = []
    if find_spec("torch") is None:
        notes.append("LambdaRankNet was left out: PyTorch is not installed (pip install 'crowdrank[neural]').")
    else:
        rankers = {"LambdaRankNet": network, **rankers}
    tables: list[Table] = []
    for ranker, make in rankers.items():
        for name, lessons in sets.items():
            tables.append(accuracy_table(f"{ranker} {name}", lessons, chosen, make, ranker, seeds, tell=tell))
    for ranker, make in rankers.items():
        tables.append(accuracy_table(f"{ranker} plus", plus, PLUS, make, ranker, seeds[:1], tell=tell))
    tables += [cost_table(f"costs {name}", one, chosen, seeds) for name, one in {**sets, "plus": plus}.items()]
    tables += [series_table(name, one, seeds, tell=tell) for name, one in sets.items()]
    tables += [lists_table(sets["A"], seeds, tell=tell)]
    tables += [equal_table(name, one, chosen, seeds, tell=tell) for name, one in sets.items()]
    tables.append(descriptive_table(chosen, seeds, tell=tell))
    tables.append(claim_table([table for table in tables if table.name.startswith("equal")]))
    return Experiment("overlap", tuple(tables), (*_protocol(sets["A"], seeds, tables), *notes))


def _named(name: str) -> str:
    if not isinstance(get_policy(name), Scheme):
        raise UsageError(f"{name} is not a labeling scheme; the schemes are: {', '.join(SCHEMES)}.")
    return name


def _protocol(lessons: Lessons, seeds: Sequence[int], tables: Sequence[Table]) -> list[str]:
    return [
        f"Label sets A and B (for Clean07 and Clean08): generated worlds of {seeds_told(list(SETS.values()))}, "
        f"{TRAIN} queries to learn from ({counted(lessons.judgments.n_items, 'document')}, {JUDGES} labels each by 120 "
        f"honest simulated judges) and {TEST:,} other queries to test on the experts' grades. The set 'plus' (for "
        f"Clean+) is a third world whose labels were bought by {CLAIMED}: what else it allows is tried on it.",
        "A scheme's labels are drawn from a document's labels in random order "
        f"({seeds_told(seeds)}); a query's value is its mean over the draws, and tests count each query once.",
        f"Trees: {', '.join(f'{name} {value:g}' for name, value in TREES.items())}. Network: "
        f"{', '.join(f'{name} {value}' for name, value in NETWORK.items())}. One configuration each, none tuned, no "
        "validation queries.",
        "Overlapping labels are rows of one list, in which a document competes with itself, as in the paper; the table "
        "of lists has one list for each judge too.",
        "Labeling and training overhead are labels bought and training rows by documents; a good label of if-good-x3 "
        "counts three times. The formula is n/(r+1) + n r k/(r+1), r the ratio of good to other first labels.",
        "At equal label budgets every scheme spends as many labels as single does on all training queries: one that "
        "buys more of a document learns from fewer queries. There, schemes whose labels are all rows are shown with "
        "one list for each judge too.",
        f"The claim that {CLAIMED} is best for its cost: refuted where another scheme is better beyond chance at "
        f"equal budgets (p by Holm, {MAIN}), confirmed where it beats every other beyond chance, else undecided.",
        "mslr-5k has 43 queries on either side: its figures are shown without tests.",
        *testing_protocol(next(table for table in tables if table.comparison is not None)),
    ]


def scheme_of(name: str) -> Scheme:
    """A scheme by its name."""
    found = get_policy(name)
    assert isinstance(found, Scheme)
    return found


def _labeled_by_claim(lessons: Lessons, seed: int) -> Lessons:
    return replace(lessons, name="plus", judgments=scheme_of(CLAIMED).sample(lessons.judgments, seed))


# What is learned.


def learned(
    lessons: Lessons, name: str, make: Make, seed: int, *, lists: str = "duplicates", queries: int = 0
) -> Evaluation:
    """A ranker on what a scheme buys."""
    scheme = scheme_of(name)
    judgments = lessons.part(queries) if queries else lessons.judgments
    rows = scheme.training(scheme.sample(judgments, seed), lessons.train, lists=lists, missing="skip")
    return lessons.scored(make().fit(**rows.arguments))


def all_learned(
    work: Mapping[str, Callable[[int], Evaluation]], seeds: Sequence[int], tell: Tell, on: str
) -> dict[str, Evaluation]:
    """Every run for every draw, side by side; the value of a query is its mean over the draws."""
    places = [(name, seed) for name in work for seed in seeds]

    def one(place: tuple[str, int]) -> Evaluation:
        tell(f"{place[0]} on {on}, draw {place[1]}")
        return work[place[0]](place[1])

    with warnings.catch_warnings(), ThreadPoolExecutor(min(usual_threads(), len(places))) as pool:
        warnings.simplefilter("ignore")
        found = dict(zip(places, pool.map(one, places), strict=True))
    return {name: over_repeats([found[name, seed] for seed in seeds]) for name in work}


def accuracy_table(
    title: str,
    lessons: Lessons,
    chosen: Sequence[str],
    make: Make,
    ranker: str,
    seeds: Sequence[int],
    *,
    tell: Tell = quiet,
) -> Table:
    """The paper's Tables 1-5: schemes by the quality of the ranker that they make, the best first."""
    work = {name: _learner(lessons, name, make) for name in chosen}
    found = all_learned(work, seeds, tell, title)
    order = sorted(found, key=lambda name: -found[name].means[MAIN])
    comparison = compare_evaluations({name: found[name] for name in order}, baseline=BASELINE)
    return comparison_table(title.lower().replace(" ", "-"), f"{ranker}, label set {title.split()[-1]}", comparison)


def _learner(lessons: Lessons, name: str, make: Make, **options: Any) -> Callable[[int], Evaluation]:
    return lambda seed: learned(lessons, name, make, seed, **options)


def costs(lessons: Lessons, name: str, seed: int) -> Account:
    """What a scheme costs on a label set."""
    scheme = scheme_of(name)
    ratio = first_ratio(scheme, lessons.judgments, seed)
    return account(scheme, scheme.sample(lessons.judgments, seed), ratio)


def cost_table(title: str, lessons: Lessons, chosen: Sequence[str], seeds: Sequence[int]) -> Table:
    """The paper's Tables 6-8."""
    rows: list[Row] = []
    for name in PLUS if lessons.name == "plus" else chosen:
        found = [costs(lessons, name, seed) for seed in seeds]
        expected = [one.expected / one.documents for one in found if one.expected is not None]
        rows.append(
            {
                "run": name,
                "labeling overhead": float(np.mean([one.labeling for one in found])),
                "by the formula": float(np.mean(expected)) if expected else float("nan"),
                "training overhead": float(np.mean([one.training for one in found])),
                "rest:good": float(np.mean([one.rest_to_good for one in found])),
            }
        )
    note = "For good-till-bad the formula is an upper bound. Means over the draws."
    return Table(title.replace(" ", "-"), f"Costs, label set {title.split()[-1]}", tuple(rows), (note,))


def series_table(name: str, lessons: Lessons, seeds: Sequence[int], *, tell: Tell = quiet) -> Table:
    """The paper's Figures 4-6: how many labels are enough."""
    found = all_learned({one: _learner(lessons, one, trees) for one in SERIES}, seeds, tell, f"if-good-k, set {name}")
    comparison = compare_evaluations(found, baseline=BASELINE)
    return comparison_table(f"series-{name}", f"if-good-k by k, LambdaMART, label set {name}", comparison)


def lists_table(lessons: Lessons, seeds: Sequence[int], *, tell: Tell = quiet) -> Table:
    """Duplicates in one list, and one list for each judge."""
    work = {BASELINE: _learner(lessons, BASELINE, trees)}
    for name in LISTS:
        work[name] = _learner(lessons, name, trees)
        work[f"{name}, a list per judge"] = _learner(lessons, name, trees, lists="per-judge")
    comparison = compare_evaluations(all_learned(work, seeds, tell, "lists"), baseline=BASELINE)
    return comparison_table("lists", "One list, or one for each judge, LambdaMART, label set A", comparison)


# For the money.


def equal_table(
    name: str, lessons: Lessons, chosen: Sequence[str], seeds: Sequence[int], *, tell: Tell = quiet
) -> Table:
    """Every scheme with as many labels as single needs for all training queries, next to if-good-3."""
    work, queries = {}, {}
    for one in chosen:
        overhead = costs(lessons, one, seeds[0]).labeling
        queries[one] = max(round(lessons.judgments.n_queries / overhead), 10)
        work[one] = _learner(lessons, one, trees, queries=queries[one])
        if one in LISTS:
            work[f"{one}, a list per judge"] = _learner(lessons, one, trees, queries=queries[one], lists="per-judge")
    found = all_learned(work, seeds, tell, f"equal budgets, set {name}")
    baseline = CLAIMED if CLAIMED in found else BASELINE
    table = comparison_table(
        f"equal-{name}",
        f"Equal label budgets, LambdaMART, label set {name}",
        compare_evaluations(found, baseline=baseline),
    )
    told = ", ".join(f"{one} {number}" for one, number in queries.items())
    return replace(table, notes=(*table.notes, f"Training queries: {told}.", *verdict(table)))


def judged(table: Table) -> str | None:
    """What an equal-budget table makes of the claim; None where it was not put to the test."""
    if table.comparison is None or table.comparison.baseline != CLAIMED:
        return None
    rows = _others(table)
    if any(row["significant"] and row["difference"] > 0 for row in rows):
        return "refuted"
    return "confirmed" if all(row["significant"] and row["difference"] < 0 for row in rows) else "undecided"


def _others(table: Table) -> list[dict[str, Any]]:
    """The tests of other schemes; its own labels in other lists are no other scheme."""
    rows = [] if table.comparison is None else table.comparison.rows.to_pylist()
    return [row for row in rows if row["measure"] == MAIN and not row["run"].startswith(CLAIMED)]


def verdict(table: Table) -> list[str]:
    """The same in a sentence."""
    word = judged(table)
    if word is None or table.comparison is None:
        return []
    rows = _others(table)
    better = [row["run"] for row in rows if row["significant"] and row["difference"] > 0]
    worse = [row["run"] for row in rows if row["significant"] and row["difference"] < 0]
    return [
        f"The claim that {CLAIMED} is best for its cost is {word} here: better than it beyond chance: "
        f"{', '.join(better) or 'none'}; worse: {', '.join(worse) or 'none'}.",
        *against(table, f"{CLAIMED}, a list per judge", BASELINE, MAIN),
    ]


def claim_table(tables: Sequence[Table]) -> Table:
    """The claim on all label sets."""
    rows: list[Row] = []
    for table in tables:
        there = {row["run"]: row[MAIN] for row in table.rows}
        best = max(there, key=lambda run: there[run])
        claimed = there.get(CLAIMED, float("nan"))
        rows.append(
            {"run": table.name, CLAIMED: claimed, "best": best, MAIN: there[best], "claim": judged(table) or ""}
        )
    words = [str(row["claim"]) for row in rows]
    note = f"{CLAIMED} as the best scheme for its cost: {', '.join(words)}."
    return Table("claim", f"The paper's claim for {CLAIMED}, {MAIN} at equal label budgets", tuple(rows), (note,))


def descriptive_table(chosen: Sequence[str], seeds: Sequence[int], *, tell: Tell = quiet) -> Table:
    """Real features, a simulated crowd, too few queries for tests."""
    lessons = mslr(0)
    found = all_learned({name: _learner(lessons, name, trees) for name in chosen}, seeds, tell, "mslr-5k")
    rows = [
        {"run": name, "labeling overhead": costs(lessons, name, seeds[0]).labeling, **one.means}
        for name, one in found.items()
    ]
    queries = len(lessons.test.query.unique())
    note = f"Documents and features of MSLR-WEB10K, judges simulated; {queries} test queries. There are no tests."
    return Table("mslr-5k", "mslr-5k, LambdaMART", tuple(rows), (note,))
