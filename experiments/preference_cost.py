"""What preferences chosen by the policy save: quality by money, against random pairs and further labels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from crowdrank import GDA, Budget, get_policy, read_preferences
from crowdrank._typing import Floats
from crowdrank.collection.preference_pairs import PreferencePairs
from crowdrank.judgments.table import Judgments
from crowdrank.readers.read import read_judgments
from experiments.base import Row, Table, Tell

ROUNDS = 8
"""Number of rounds in which the budget is spent."""
WORLDS = 10
"""Number of simulated collections on which money is spent, with different random seeds."""
QUERIES, DOCUMENTS, TOP = 20, 20, 5
"""Number of queries and of documents per query of a simulated world, and of documents at the top."""
WORLD_MONEY = 40.0
"""Money per round in a simulated world; a label costs 1."""
IMAGE_MONEY, IMAGE_TOP = 250.0, 10
"""Money per round on image search, where a preference costs 1, and number of images at the top."""
RESAMPLES = 2000
"""Number of bootstrap samples."""
RUNS = {
    "random-pairs": "preferences between two random documents of a random query",
    "preferences": "preferences chosen by the policy `preferences`",
    "random-labels": "labels of random documents",
    "ndcg@10": "labels chosen by the policy `ndcg@10`",
}
"""Meaning of each run."""
Relevance = Mapping[tuple[str, str], float]
Curve = Floats
"""Quality after each round by unit (world or query), (ROUNDS + 1, n_units)."""


@dataclass
class World:
    """Simulated documents, and assessors who answer as often as they are asked."""

    seed: int
    truth: Floats = field(init=False)
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        truth = self.rng.normal(size=(QUERIES, DOCUMENTS))
        self.truth = (truth - truth.mean()) / truth.std()
        self.sharpness = np.exp(self.rng.normal(0.4, 0.5, 8))
        self.offset = self.rng.normal(0.3, 0.5, 8)
        self.labels: list[tuple[str, str, str, int]] = []
        self.preferences: list[tuple[str, str, str, str, int]] = []
        for query in range(QUERIES):
            for document in range(DOCUMENTS):
                self.label(query, document)

    def label(self, query: int, document: int) -> None:
        """Let an assessor who has not judged a document grade it; all have judged it after five labels."""
        done = {one[2] for one in self.labels if one[:2] == (str(query), str(document))}
        left = [judge for judge in range(5) if f"g{judge}" not in done]
        if left:
            judge = int(self.rng.choice(left))
            seen = self.truth[query, document] + self.rng.normal(0, 0.6 + 0.1 * judge)
            self.labels.append((str(query), str(document), f"g{judge}", int(np.digitize(seen, [-0.8, 0.2, 1.1]))))

    def compare(self, query: int, left: int, right: int) -> None:
        """Let a random assessor compare two documents."""
        one = int(self.rng.integers(8))
        difference = self.truth[query, left] - self.truth[query, right]
        latent = self.sharpness[one] * difference + self.offset[one] + self.rng.logistic()
        answer = 0 if abs(latent) < 0.4 else -int(np.sign(latent)) * (2 if abs(latent) > 2.5 else 1)
        self.preferences.append((str(query), str(left), str(right), f"a{one}", answer))

    @property
    def pool(self) -> pd.DataFrame:
        """All documents."""
        rows = [(str(query), str(document)) for query in range(QUERIES) for document in range(DOCUMENTS)]
        return pd.DataFrame(rows, columns=["query", "document"])

    def fit(self) -> tuple[Judgments, Any, GDA]:
        """Fit GDA to what was bought so far; return the judgments, the preferences (None without any) and the model."""
        columns = ["query", "document", "assessor", "grade"]
        judgments = read_judgments(pd.DataFrame(self.labels, columns=columns), grades="0-3")
        rows = pd.DataFrame(self.preferences, columns=["query", "left", "right", "assessor", "preference"])
        preferences = read_preferences(rows, repeats="keep") if len(rows) else None
        return judgments, preferences, fit(judgments, preferences)

    def buy(self, run: str, fitted: tuple[Judgments, Any, GDA], price: float) -> None:
        """Spend the money of a round."""
        judgments, preferences, model = fitted
        n_pairs = int(WORLD_MONEY / price + 1e-9)
        if run == "random-pairs":
            for _ in range(n_pairs):
                left, right = self.rng.choice(DOCUMENTS, 2, replace=False)
                self.compare(int(self.rng.integers(QUERIES)), int(left), int(right))
        elif run == "preferences":
            budget = Budget(WORLD_MONEY, {"human": price})
            asked = PreferencePairs(TOP).next(self.pool, judgments, preferences, model, budget)
            for row in asked.table.to_pylist():
                self.compare(int(row["query"]), int(row["left"]), int(row["right"]))
        elif run == "random-labels":
            for document in self.rng.integers(QUERIES * DOCUMENTS, size=int(WORLD_MONEY)):
                self.label(*divmod(int(document), DOCUMENTS))
        else:
            wanted = get_policy(run).next(self.pool, judgments, model, WORLD_MONEY)
            for row in wanted.to_arrow().to_pylist():
                self.label(int(row["query"]), int(row["document"]))

    def quality(self, model: GDA) -> tuple[float, float]:
        """Return the mean Kendall tau over queries: of all pairs, and of those with one of the best `TOP` documents."""
        scores, found = relevance(model), np.zeros((QUERIES, DOCUMENTS))
        for (query, document), value in scores.items():
            found[int(query), int(document)] = value
        a, b = np.triu_indices(DOCUMENTS, 1)
        agreement = np.sign(found[:, a] - found[:, b]) * np.sign(self.truth[:, a] - self.truth[:, b])
        best = np.argsort(np.argsort(-self.truth, axis=1), axis=1) < TOP
        at_top = best[:, a] | best[:, b]
        return float(agreement.mean()), float((agreement * at_top).sum() / at_top.sum())


def fit(judgments: Judgments, preferences: Any) -> GDA:
    """Fit GDA without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GDA().fit(judgments, preferences=preferences)


def relevance(model: GDA) -> Relevance:
    """Return the relevance of each (query, document), as texts."""
    table = model.consensus_.document_table
    keys = zip(map(str, table["query"].to_pylist()), map(str, table["document"].to_pylist()), strict=True)
    return dict(zip(keys, table["relevance"].to_pylist(), strict=True))


def world_tables(price: float, tell: Tell, worlds: int = WORLDS) -> list[Table]:
    """Return quality by money in simulated worlds, of all pairs and at the top."""
    curves: dict[str, list[list[tuple[float, float]]]] = {run: [] for run in RUNS}
    for seed in range(worlds):
        tell(f"cost: simulated world {seed + 1} of {worlds}")
        for run in RUNS:
            world = World(seed)
            points = []
            for number in range(ROUNDS + 1):
                fitted = world.fit()
                points.append(world.quality(fitted[2]))
                if number < ROUNDS:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        world.buy(run, fitted, price)
            curves[run].append(points)
    note = f"{worlds} worlds; a label costs 1, a preference {price:g}; {ROUNDS} rounds of {WORLD_MONEY:g}."
    of_top = f"Kendall's tau of pairs with one of the best {TOP} documents"
    titles = ("Tau", "Kendall's tau of all pairs"), (f"Tau@{TOP}", of_top)
    return [
        cost_table(
            f"cost-worlds{'-top' if number else ''}",
            f"Simulated worlds: {title} by money",
            {run: np.array(found)[:, :, number].T for run, found in curves.items()},
            measure,
            ROUNDS * WORLD_MONEY,
            (note,),
        )
        for number, (measure, title) in enumerate(titles)
    ]


def image_tables(
    answers: pd.DataFrame, judgments: Judgments, price: float, tell: Tell, rounds: int = ROUNDS
) -> list[Table]:
    """Return third answers predicted by money on image search, whose first two answers are bought."""
    third = answers[(answers["answer"] == "answer-3") & (answers["preference"] != 0)]
    wins = third.assign(winner=np.where(third["preference"] < 0, third["left"], third["right"]))
    order = wins.groupby(["query", "winner"]).size().groupby(level=0).rank(ascending=False, method="first")
    best = {key for key, rank in order.items() if rank <= IMAGE_TOP}
    at_top = np.array(
        [
            (q, a) in best or (q, b) in best
            for q, a, b in zip(third["query"], third["left"], third["right"], strict=True)
        ]
    )
    curves: dict[str, list[tuple[pd.Series[float], pd.Series[float]]]] = {}
    for run in ("random-pairs", "preferences"):
        shop, points = _ImageAnswers(answers), []
        for number in range(rounds + 1):
            tell(f"cost: images, {run}, round {number} of {rounds}")
            preferences = shop.bought()
            model = fit(judgments, preferences)
            right = predicted(third, relevance(model))
            points.append((_by_query(right, third), _by_query(right[at_top], third[at_top])))
            if number < rounds:
                shop.buy(run, judgments, preferences, model, Budget(IMAGE_MONEY * price, {"human": price}))
        curves[run] = points
    money = rounds * IMAGE_MONEY * price
    note = f"{rounds} rounds of {IMAGE_MONEY:g} preferences; {len(third):,} third answers, {at_top.sum():,} at the top."
    names = ("accuracy", f"accuracy@{IMAGE_TOP}")
    titles = "third answers predicted", f"third answers with one of the best {IMAGE_TOP} images predicted"
    return [
        cost_table(
            f"cost-images{'-top' if number else ''}",
            f"Image search: {titles[number]} by money",
            {run: np.stack([one[number].to_numpy() for one in points]) for run, points in curves.items()},
            names[number],
            money,
            (note,),
        )
        for number in range(2)
    ]


class _ImageAnswers:
    """First and second answers to all pairs, given in this order when a pair is asked."""

    def __init__(self, answers: pd.DataFrame) -> None:
        self.rows: dict[tuple[str, frozenset[str]], list[tuple[Any, ...]]] = {}
        for row in answers[answers["answer"] != "answer-3"].itertuples(index=False):
            key = str(row.query), frozenset((str(row.left), str(row.right)))
            self.rows.setdefault(key, []).append((row.query, row.left, row.right, row.answer, row.preference))
        documents = {(query, one) for query, pair in self.rows for one in pair}
        self.pool = pd.DataFrame(sorted(documents), columns=["query", "document"])
        self.taken: list[tuple[Any, ...]] = []
        self.rng = np.random.default_rng(0)

    def bought(self) -> Any:
        """Return the answers bought so far, None without any."""
        rows = pd.DataFrame(self.taken, columns=["query", "left", "right", "assessor", "preference"])
        return read_preferences(rows) if len(rows) else None

    def buy(self, run: str, judgments: Judgments, preferences: Any, model: GDA, budget: Budget) -> None:
        """Buy the next answer to each pair that is asked; pairs whose answers are all bought give none."""
        if run == "preferences":
            asked = PreferencePairs(IMAGE_TOP).next(self.pool, judgments, preferences, model, budget).table.to_pylist()
            keys = [(row["query"], frozenset((row["left"], row["right"]))) for row in asked]
        else:
            names, n = list(self.rows), int(budget.money / budget.price + 1e-9)
            open_pairs = [number for number, key in enumerate(names) if self.rows[key]]
            keys = [names[number] for number in self.rng.choice(open_pairs, n, replace=False)]
        self.taken += [self.rows[key].pop(0) for key in keys if self.rows.get(key)]


def predicted(answers: pd.DataFrame, scores: Mapping[Any, float]) -> Floats:
    """Return whether scores predict each answer: 1, 0, or 0.5 for equal scores."""
    sides = [
        np.array([scores.get(key, 0.0) for key in zip(answers["query"], answers[side], strict=True)])
        for side in ("left", "right")
    ]
    agreement = np.sign(sides[1] - sides[0]) * np.sign(answers["preference"].to_numpy())
    return np.asarray((agreement + 1) / 2, np.float64)


def _by_query(values: Floats, answers: pd.DataFrame) -> pd.Series[float]:
    return pd.Series(values, index=answers["query"].to_numpy()).groupby(level=0).mean()


def cost_table(
    name: str, title: str, curves: Mapping[str, Curve], measure: str, money: float, notes: Sequence[str]
) -> Table:
    """Return a row per run: quality at the end, its difference from random pairs, and the share of money saved.

    The share saved is that of the money with which a run reaches the final quality of random pairs, by linear
    interpolation between rounds; it is at least 0 only if the run reaches it, and -1 stands for not reaching it.
    """
    n_units = next(iter(curves.values())).shape[1]
    drawn = np.random.default_rng(0).integers(0, n_units, (RESAMPLES, n_units))
    means = {run: curve[:, drawn].mean(axis=2) for run, curve in curves.items()}  # (n_points, RESAMPLES)
    rows: list[Row] = []
    for run, curve in curves.items():
        whole, target = curve.mean(axis=1), curves["random-pairs"].mean(axis=1)[-1]
        difference = means[run][-1] - means["random-pairs"][-1]
        saved = np.array([share_saved(means[run][:, one], means["random-pairs"][-1, one]) for one in range(RESAMPLES)])
        row: Row = {"run": run, "at the start": whole[0], measure: whole[-1], "minus random": whole[-1] - target}
        row |= dict(zip(("lower", "upper"), np.quantile(difference, [0.025, 0.975]), strict=True))
        share = share_saved(whole, target)
        reached = share if share >= 0 else float("nan")
        row |= {"money for the same": money * (1.0 - reached), "saved": reached}
        bounds = np.quantile(saved, [0.025, 0.975], method="lower")
        row |= dict(zip(("saved lower", "saved upper"), bounds, strict=True))
        rows.append(row)
    return Table(name, title, tuple(rows), tuple(notes))


def share_saved(quality: Floats, target: float) -> float:
    """Return the share of the money that is left when the quality first reaches a target, or -1 if it never does.

    >>> round(share_saved(np.array([0.5, 0.6, 0.7]), 0.65), 6), share_saved(np.array([0.5, 0.6]), 0.7)
    (0.25, -1.0)
    """
    reached = np.flatnonzero(quality >= target - 1e-12)
    if not len(reached):
        return -1.0
    first = int(reached[0])
    if first == 0:
        return 1.0
    step = (target - quality[first - 1]) / (quality[first] - quality[first - 1])
    return float(1.0 - (first - 1 + step) / (len(quality) - 1))
