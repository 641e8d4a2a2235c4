"""Preferences beside grades: whether both together are better than either, on people's and an LLM judge's answers.

On image search, three people compared each of 41,538 pairs of images. Grades are the mean relevance (0-100) of an
image. Two answers to a share of the pairs are given to the models, and the third answer to the other pairs is
predicted. On TREC DL20, an LLM judge compared passages of NIST grade 1 or more; the order of these passages is compared
with NIST's. Simulated worlds show whether intervals hold.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from crowdrank import GDA, read_preferences
from crowdrank._typing import Booleans, Floats
from crowdrank.constraints import Number, check_parameter
from crowdrank.errors import UsageError
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import Dataset, dataset
from crowdrank.readers.read import read_judgments
from experiments.base import Experiment, Row, Table, Tell, quiet, select_names
from experiments.dl20 import COVERED, thorough
from experiments.preference_cost import RUNS as COST_RUNS
from experiments.preference_cost import image_tables, predicted, world_tables

SHARES = (0.02, 0.05, 0.1, 0.3)
"""Shares of the pairs whose first two answers are given to the models."""
RESAMPLES = 2000
"""Number of bootstrap samples of queries."""
GRADE_STEP = 5
"""Width of a grade of images on the scale of their mean relevance, 0-100."""
WORLDS = 20
"""Number of simulated collections of preferences, with different random seeds."""
IMAGES = Dataset(
    "image-preferences",
    "image search: three answers to each of 41,538 pairs of images, and the mean relevance of each image",
    "the authors of the data",
    ("preferences.tsv.gz", "relevance.tsv.gz"),
)
RUNS = {
    "grades": "GDA on grades alone",
    "bradley-terry": "one relevance per document, by wins and ties alone, with a normal prior of variance 1",
    "preferences": "GDA on preferences alone",
    "average": "mean of the standardized mean grade and the standardized share of wins of a document in its query",
    "both": "GDA on grades and preferences",
}
"""Meaning of each run."""
Key = tuple[Any, Any]
Scores = Callable[[Any], Floats]


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    price: float = 1.0,
    tell: Tell = quiet,
) -> Experiment:
    """All tables or those of some parts, for the runs named or for all; `price` is that of a preference."""
    names = select_names(methods, RUNS)
    if "both" not in names:
        raise UsageError("The other runs are compared with the run 'both'; name it too.")
    check_parameter("price", price, [Number(0, above=True)])
    parts: dict[str, Callable[[], list[Table]]] = {
        "images": lambda: [image_table(names, share, tell) for share in SHARES],
        "dl20": lambda: [dl20_table(names, tell)],
        "coverage": lambda: [coverage_table(tell)],
        "cost": lambda: [*image_tables(image_answers(), image_grades(), price, tell), *world_tables(price, tell)],
    }
    tables = [table for name in select_names(only, parts) for table in parts[name]()]
    return Experiment("preferences", tuple(tables), PROTOCOL)


PROTOCOL = (
    "Image search: 102 queries, 2,919 images, three answers on -2..2 to each of 41,538 pairs, without ids of people. "
    "The first and the second answer count as two assessors. Grades are the mean relevance of an image in steps of 5, "
    "by one assessor.",
    "Accuracy is the share of right third answers to the pairs whose answers were not given; third answers that are "
    "ties are left out, and equal scores are half right.",
    "TREC DL20: the grades are those of judges of more than 8,000 items, with families; the preferences are those of "
    "one LLM judge, without positions. The pool of the preferences has only passages of NIST grade 1 or more, so Tau "
    "is computed inside the pool: (concordant - discordant) / pairs of different NIST grades, by query.",
    "Simulated worlds: 30 queries of 10 documents, two grades of each document by 5 assessors, 40 preferences of each "
    "query by 8 assessors with sharpness exp(N(0.4, 0.5)) and position bias N(0.3, 0.5). Relevance is standardized.",
    "Quality by money: every document has one grade (image search: its mean relevance) before the first of the rounds; "
    "after each round, GDA is fitted to all answers. An image pair is answered by its first, then its second answer. A "
    "label costs 1. Money for the same is that with which a run reaches the final quality of random pairs; saved is "
    "the share of the budget that is left then, -1 in an interval if some samples never reach it. Runs: "
    + "; ".join(f"{name}: {about}" for name, about in COST_RUNS.items())
    + ". One configuration of the policy was tried.",
    f"Intervals are those of the bootstrap over queries ({RESAMPLES:,} samples), at 95%. Differences are paired.",
    "Runs: " + "; ".join(f"{name}: {about}" for name, about in RUNS.items()) + ".",
    "Grades of images in steps of 10 were tried too: with 10% of the pairs, grades alone lose 0.016 and both 0.0003. "
    "Otherwise every run has one configuration, and no run saw the answers or grades that it is measured against.",
)
"""Protocol of the experiment."""


# Runs.


def relevance(model: GDA) -> dict[Key, float]:
    """Return the relevance of each (query, document)."""
    table = model.consensus_.document_table
    keys = zip(table["query"].to_pylist(), table["document"].to_pylist(), strict=True)
    return dict(zip(keys, table["relevance"].to_pylist(), strict=True))


def fit(judgments: Judgments | None, preferences: Preferences | None) -> dict[Key, float]:
    """Fit GDA without warnings, and return the relevance of each document."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return relevance(GDA().fit(judgments, preferences=preferences))


def score(names: Sequence[str], judgments: Judgments, preferences: Preferences) -> dict[str, dict[Key, float]]:
    """Return the scores of documents by run; a document without a score has 0."""
    runs: Mapping[str, Callable[[], dict[Key, float]]] = {
        "grades": lambda: fit(judgments, None),
        "bradley-terry": lambda: bradley_terry(preferences),
        "preferences": lambda: fit(None, preferences),
        "average": lambda: average(judgments, preferences),
        "both": lambda: fit(judgments, preferences),
    }
    return {name: runs[name]() for name in names}


def left_wins(preferences: Preferences) -> Floats:
    """Return 1 for each preference for the left document, 0.5 for a tie, and 0."""
    return np.asarray((1 - np.sign(preferences.answer)) / 2, np.float64)


def wins(preferences: Preferences) -> tuple[Floats, Floats]:
    """Return the number of wins of each compared document, a tie counting half, and of comparisons."""
    won, (left, right), n = left_wins(preferences), preferences.item_index, preferences.n_items
    total = np.bincount(left, won, n) + np.bincount(right, 1.0 - won, n)
    return total.astype(np.float64), np.bincount(np.concatenate([left, right]), minlength=n).astype(np.float64)


def item_keys(preferences: Preferences) -> list[Key]:
    """Return the (query, document) of each compared document."""
    return list(zip(*(column.to_pylist() for column in preferences.item_ids()), strict=True))


def bradley_terry(preferences: Preferences) -> dict[Key, float]:
    """Return relevance by Bradley and Terry's model with a standard normal prior, by Newton's method for each query.

    >>> rows = {"left": ["a", "b"], "right": ["b", "c"], "assessor": "x", "preference": [-1, -1]}
    >>> scores = bradley_terry(read_preferences(pd.DataFrame(rows)))
    >>> scores["all", "a"] > scores["all", "b"] > scores["all", "c"]
    True
    """
    won, (left, right), keys = left_wins(preferences), preferences.item_index, item_keys(preferences)
    found: dict[Key, float] = {}
    for query in np.unique(preferences.query):
        rows = preferences.query == query
        items = np.unique([left[rows], right[rows]])
        a, b = np.searchsorted(items, left[rows]), np.searchsorted(items, right[rows])
        scores = np.zeros(len(items))
        for _ in range(30):
            p = 1.0 / (1.0 + np.exp(scores[b] - scores[a]))
            gradient, hessian = -scores, np.eye(len(items))
            for side, sign in ((a, 1.0), (b, -1.0)):
                np.add.at(gradient, side, sign * (won[rows] - p))
                np.add.at(hessian, (side, side), p * (1 - p))
            for one, other in ((a, b), (b, a)):
                np.add.at(hessian, (one, other), -p * (1 - p))
            scores = scores + np.clip(np.linalg.solve(hessian, gradient), -1.0, 1.0)
        found |= {keys[item]: float(value) for item, value in zip(items, scores, strict=True)}
    return found


def average(judgments: Judgments, preferences: Preferences) -> dict[Key, float]:
    """Return the mean of the standardized mean grade and the standardized smoothed share of wins, within queries."""
    grade = judgments.scale.values
    means = np.bincount(judgments.item, np.asarray(grade)[judgments.grade], judgments.n_items)
    ids = (column.to_pylist() for column in judgments.item_ids())
    graded = dict(zip(zip(*ids, strict=True), means / np.diff(judgments.offsets), strict=True))
    won, n = wins(preferences)
    shares = dict(zip(item_keys(preferences), (won + 1) / (n + 2), strict=True))
    one, other = standardize(graded), standardize(shares)
    return {key: one.get(key, 0.0) + other.get(key, 0.0) for key in {**one, **other}}


def standardize(scores: Mapping[Key, float]) -> dict[Key, float]:
    """Return scores with mean 0 and standard deviation 1 within each query, 0 for equal ones.

    >>> standardize({("q", "a"): 1.0, ("q", "b"): 3.0, ("r", "a"): 5.0})
    {('q', 'a'): -1.0, ('q', 'b'): 1.0, ('r', 'a'): 0.0}
    """
    values = pd.Series(list(scores.values()), index=pd.MultiIndex.from_tuples(scores))
    by_query = values.groupby(level=0)
    spread = by_query.transform(lambda column: column.std(ddof=0)).replace(0.0, 1.0)
    return dict(zip(scores, ((values - by_query.transform("mean")) / spread).to_list(), strict=True))


# Tables.


def image_table(names: Sequence[str], share: float, tell: Tell) -> Table:
    """Return the share of held-out third answers that each run predicts, with a share of the pairs given."""
    answers, judgments = image_answers(), image_grades()
    compared = answers[["query", "left", "right"]].drop_duplicates()
    chosen = compared[np.random.default_rng(0).random(len(compared)) < share]
    is_given = answers.set_index(["query", "left", "right"]).index.isin(pd.MultiIndex.from_frame(chosen))
    given = answers[is_given & (answers["answer"] != "answer-3")]
    held_out = answers[~is_given & (answers["answer"] == "answer-3") & (answers["preference"] != 0)]
    tell(f"images, {share:.0%} of the pairs")
    scores = score(names, judgments, read_preferences(given, columns="assessor=answer"))
    right = {name: predicted(held_out, one) for name, one in scores.items()}
    query = held_out["query"].to_numpy()
    counts = pd.Series(1.0, index=query).groupby(level=0).sum()
    sums = {name: pd.Series(values, index=query).groupby(level=0).sum() for name, values in right.items()}
    rows = compare_runs({name: (one, counts) for name, one in sums.items()}, "accuracy")
    title = f"Image search: third answers predicted with two answers to {share:.0%} of the pairs"
    note = f"{len(chosen):,} pairs given, {len(held_out):,} third answers predicted."
    return Table(f"images-{share:.0%}".replace("%", ""), title, rows, (note,))


def image_answers() -> pd.DataFrame:
    """Return three answers to each pair of images: query, left, right, answer, preference."""
    return pd.read_csv(IMAGES.path("preferences.tsv.gz"), sep="\t")


def image_grades() -> Judgments:
    """Return the mean relevance of each image as a grade of one assessor."""
    grades = pd.read_csv(IMAGES.path("relevance.tsv.gz"), sep="\t")
    grade = (grades["mean_relevance"] / GRADE_STEP).round().astype(int)
    columns = {"query": grades["query"], "document": grades["image"], "grade": grade, "assessor": "people"}
    return read_judgments(pd.DataFrame(columns), grades=f"0-{100 // GRADE_STEP}")


def dl20_table(names: Sequence[str], tell: Tell) -> Table:
    """Return Kendall's tau with NIST's grades inside the pool of DL20's preferences."""
    data = dataset("trec-dl20")
    tell("DL20")
    judges = thorough(data.read_judgments(), COVERED)
    preferences = read_preferences(data.path("preferences.tsv.gz"))
    pool = {(str(query), str(document)) for query, document in item_keys(preferences)}
    gold = data.read_gold().frame.astype({"query": str, "document": str})
    inside = gold[[key in pool for key in zip(gold["query"], gold["document"], strict=True)]]
    runs = {}
    for name, one in score(names, judges, preferences).items():
        runs[name] = taus(inside, {(str(query), str(document)): value for (query, document), value in one.items()})
    ones = {name: (values, pd.Series(1.0, index=values.index)) for name, values in runs.items()}
    note = f"{len(preferences):,} preferences, {len(inside):,} passages of the pool, {len(runs[names[0]])} queries."
    title = "TREC DL20: order inside the pool of the preferences"
    return Table("dl20", title, compare_runs(ones, "Tau"), (note,))


def taus(gold: pd.DataFrame, scores: Mapping[Key, float]) -> pd.Series[float]:
    """Return (concordant - discordant) / pairs of different grades by query, without queries that have no such pair."""
    found = {}
    for query, rows in gold.groupby("query"):
        grade = rows["grade"].to_numpy()
        values = np.array([scores.get((query, document), 0.0) for document in rows["document"]])
        a, b = np.triu_indices(len(rows), 1)
        differs = grade[a] != grade[b]
        if differs.any():
            agreement = np.sign(values[a] - values[b]) * np.sign(grade[a] - grade[b])
            found[query] = float(agreement[differs].mean())
    return pd.Series(found)


def compare_runs(runs: Mapping[str, tuple[Any, Any]], measure: str) -> tuple[Row, ...]:
    """Return a row per run: the figure with its interval, and the paired difference of the run `both` from it.

    Args:
        runs: by run, sums and counts by query; a figure is the sum of the sums divided by that of the counts.
        measure: name of the figure.

    """
    sums = np.stack([np.asarray(one, np.float64) for one, _ in runs.values()])
    counts = np.asarray(next(iter(runs.values()))[1], np.float64)
    drawn = np.random.default_rng(0).integers(0, len(counts), (RESAMPLES, len(counts)))
    samples = sums[:, drawn].sum(axis=2) / counts[drawn].sum(axis=1)
    figures, both = sums.sum(axis=1) / counts.sum(), list(runs).index("both")
    rows = []
    for number, name in enumerate(runs):
        low, high = np.quantile(samples[number], [0.025, 0.975])
        row: Row = {"run": name, measure: figures[number], "lower": low, "upper": high}
        low, high = np.quantile(samples[both] - samples[number], [0.025, 0.975])
        difference = (figures[both] - figures[number], low, high) if number != both else (float("nan"),) * 3
        row |= dict(zip(("both minus run", "difference lower", "difference upper"), difference, strict=True))
        rows.append(row)
    return tuple(rows)


# Coverage on simulated worlds.


def coverage_table(tell: Tell) -> Table:
    """Return the share of documents whose true relevance is inside the 95% interval."""
    covered: dict[str, list[Booleans]] = {"grades": [], "preferences": [], "both": []}
    for seed in range(WORLDS):
        tell(f"simulated world {seed + 1} of {WORLDS}")
        truth, judgments, preferences = draw_world(seed)
        given = {"grades": (judgments, None), "preferences": (None, preferences), "both": (judgments, preferences)}
        for name, (one, other) in given.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                table = GDA().fit(one, preferences=other).consensus_.document_table.to_pandas()
            true = np.array([truth[int(q), int(d)] for q, d in zip(table["query"], table["document"], strict=True)])
            covered[name].append(((table["lower"] <= true) & (true <= table["upper"])).to_numpy())
    rows = []
    for name, worlds in covered.items():
        by_world = np.array([one.mean() for one in worlds])
        error = by_world.std(ddof=1) / np.sqrt(WORLDS)
        share = float(np.concatenate(worlds).mean())
        rows.append({"run": name, "coverage": share, "lower": share - 1.96 * error, "upper": share + 1.96 * error})
    note = f"{WORLDS} worlds; lower and upper are 1.96 standard errors over worlds away."
    return Table("coverage", "Coverage of 95% intervals in simulated worlds", tuple(rows), (note,))


def draw_world(seed: int) -> tuple[Floats, Judgments, Preferences]:
    """Return true relevance, (30, 10), and judgments and preferences drawn from it."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(30, 10))
    truth = (truth - truth.mean()) / truth.std()
    sharpness, offset = np.exp(rng.normal(0.4, 0.5, 8)), rng.normal(0.3, 0.5, 8)
    rows, grades = [], []
    for query in range(30):
        for _ in range(40):
            left, right = rng.choice(10, 2, replace=False)
            one = rng.integers(8)
            latent = sharpness[one] * (truth[query, left] - truth[query, right]) + offset[one] + rng.logistic()
            answer = 0 if abs(latent) < 0.4 else -int(np.sign(latent)) * (2 if abs(latent) > 2.5 else 1)
            rows.append((query, left, right, f"a{one}", answer))
        for document in range(10):
            for judge in rng.choice(5, 2, replace=False):
                seen = truth[query, document] + rng.normal(0, 0.6 + 0.1 * judge)
                grades.append((query, document, f"g{judge}", int(np.digitize(seen, [-0.8, 0.2, 1.1]))))
    frame = pd.DataFrame(rows, columns=["query", "left", "right", "assessor", "preference"])
    labels = pd.DataFrame(grades, columns=["query", "document", "assessor", "grade"])
    return truth, read_judgments(labels), read_preferences(frame, repeats="keep")
