"""Whether plans of expert grades come true: predicted against realized intervals, and typical values of DL20."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from crowdrank._typing import Floats
from crowdrank.collection.compare_runs import CompareRuns, pool_of_runs
from crowdrank.consensus.gda import GDA
from crowdrank.estimation.designs import DesignModel, designs_of_pilot
from crowdrank.estimation.estimate import estimate
from crowdrank.estimation.prepared import PreparedEstimate, prepare_estimate
from crowdrank.estimation.typical_values import LABELS, TYPICAL_SHARES
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import dataset
from experiments.base import SEEDS, Experiment, Row, Table, Tell, quiet, seeds_text, select_names
from experiments.dl20 import COVERED, thorough
from experiments.estimate_coverage import World, make_world

PARTS = ("typical", "simulated", "dl20")
MEASURE = "nDCG@10"
TYPICAL_MEASURES = ("nDCG@5", "nDCG@10", "nDCG@20", "P@10")
N_PAIRS = 15
"""Number of random pairs of systems per seed."""
N_REPLICATES = 40
"""Number of simulated comparisons of each world."""
WORLDS = {
    "good labels": ("good", 1.0, 20),
    "biased labels": ("biased", 1.0, 20),
    "overconfident labels": ("overconfident", 1.0, 20),
    "few queries differ": ("good", 0.2, 60),
}
"""Labels, share of the queries in which the systems differ, and number of expert queries of the pilot, by world."""
N_PILOT_QUERIES, N_QUERIES = 100, 150
"""Number of queries with labels in the pilot, and after it."""
PILOT_GRADES = 200
"""Number of expert grades of a pilot by document."""
N_REPLAYED = 27
"""Number of DL20's 54 queries in a pilot; the others are the rest."""
BUDGETS = {"simulated": ((20, 50), (100, 300, 1000)), "dl20": ((10, 20), (50, 100, 200))}
"""Numbers of expert queries by query, and of expert grades by document."""
LEVEL = 0.95
CONTRAST = np.array([-1.0, 1.0])

Frames = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Comparison:
    """Two rankings with labels and true grades of all documents."""

    runs: Frames
    labels: pd.DataFrame
    truth: pd.DataFrame

    def of_queries(self, queries: Any) -> Comparison:
        """Return the comparison with some of the queries."""

        def part(frame: pd.DataFrame) -> pd.DataFrame:
            return frame[frame["query"].isin(queries)]

        return Comparison({name: part(run) for name, run in self.runs.items()}, part(self.labels), part(self.truth))

    def grades_of_documents(self, n_grades: int, seed: int, measure: str = MEASURE) -> pd.DataFrame:
        """Return the true grades of documents that the policy `compare` draws."""
        policy = CompareRuns(self.runs, self.labels, measure=measure, random_state=seed)
        drawn = policy.next(pool_of_runs(self.runs, measure), budget=n_grades).frame
        kinds = {name: self.truth[name].dtype for name in ("query", "document")}
        columns = drawn.astype(kinds)[["query", "document", "probability", "draw"]]
        return pd.DataFrame(columns.merge(self.truth))

    def grades_of_queries(self, queries: Any) -> pd.DataFrame:
        """Return the true grades of all documents of some queries."""
        return self.truth[self.truth["query"].isin(queries)]

    def designs(self, expert: pd.DataFrame) -> dict[str, DesignModel]:
        """Return the designs that a pilot predicts, by name."""
        return _designs(self.prepare(expert, MEASURE))

    def prepare(self, expert: pd.DataFrame, measure: str) -> PreparedEstimate:
        """Join the rankings with labels and expert grades."""
        return prepare_estimate(self.runs, self.labels, expert, measure, "auto", 0, allow_feature_labels=True)

    def realize(self, expert: pd.DataFrame, seed: int) -> tuple[float, float]:
        """Return half the width of the interval of the difference, and what the labels are worth in experts' grades."""
        result = estimate(self.runs, self.labels, expert, measure=MEASURE, level=LEVEL, random_state=seed)
        row = result.rows.to_pylist()[1]
        half = (row["difference_upper"] - row["difference_lower"]) / 2
        return half, 1 + row["difference_worth"] / result.n_expert_grades


def _designs(prepared: PreparedEstimate) -> dict[str, DesignModel]:
    return {model.name: model for model in designs_of_pilot(prepared, CONTRAST)}


def experiment(
    methods: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    seeds: Sequence[int] = SEEDS,
    tell: Tell = quiet,
) -> Experiment:
    """Return typical values of DL20, and predicted and realized intervals on simulated worlds and on DL20."""
    parts = select_names(only, dict.fromkeys(PARTS), "part")
    tables = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "simulated" in parts:
            tables.append(simulated_table(tell))
        if {"typical", "dl20"} & set(parts):
            systems = Systems.load()
            if "dl20" in parts:
                tables.append(replay_table(systems, seeds, tell))
            if "typical" in parts:
                tables.append(typical_table(systems, seeds, tell))
    notes = (
        f"Level of the intervals {LEVEL:g}; {MEASURE} where no measure is named. Plans are those of `crowdrank.plan`, "
        "realized intervals those of `crowdrank.estimate`; documents are drawn by the policy compare.",
        "Ratio is the mean predicted half width divided by the mean realized one; error is the median of |ln(predicted "
        "/ realized)| of single plans. Worth: number of grades of experts alone, by query, for the same error, "
        "relative to the grades of the design.",
    )
    return Experiment("plan", tuple(tables), notes)


def simulated_table(tell: Tell) -> Table:
    """Return predicted and realized intervals on simulated worlds."""
    rows: list[Row] = []
    for world, (labels, share, n_pilot) in WORLDS.items():
        setting = World("graded", labels, "better", share)
        found: dict[str, list[list[float]]] = {}
        for number in range(N_REPLICATES):
            tell(f"{world}, {number}")
            rng = np.random.default_rng([number, 1])
            pilot, rest = (_as_comparison(make_world(setting, size, rng)) for size in (N_PILOT_QUERIES, N_QUERIES))
            designs = pilot.designs(pilot.grades_of_queries(range(n_pilot)))
            designs["from documents"] = pilot.designs(pilot.grades_of_documents(PILOT_GRADES, number))["document"]
            _replay(designs, rest, BUDGETS["simulated"], number, found)
        rows += [_replay_row(f"{world}: {run}", np.array(values)) for run, values in found.items()]
    notes = (
        f"{N_REPLICATES} simulated comparisons per world, those of estimate-coverage. A pilot has {N_PILOT_QUERIES} "
        f"queries with labels, of which experts graded 20 (60 if the systems differ in a fifth of the queries only), "
        f"or {PILOT_GRADES} drawn documents (from documents); the plan is for {N_QUERIES} new queries.",
    )
    return Table("simulated", "Predicted and realized intervals on simulated worlds", tuple(rows), notes)


def _as_comparison(world: Frames) -> Comparison:
    return Comparison({"live": world["live"], "new": world["new"]}, world["labels"], world["truth"])


def _replay(
    designs: Mapping[str, DesignModel],
    rest: Comparison,
    budgets: tuple[Sequence[int], Sequence[int]],
    seed: int,
    found: dict[str, list[list[float]]],
) -> None:
    """Append predicted and realized half widths and worths of each design and budget to `found`."""
    queries = rest.truth["query"].unique()
    n_queries, experts = len(queries), designs["experts"]
    order = np.random.default_rng([seed, 2]).permutation(n_queries)

    def worth(model: DesignModel, n_grades: float) -> float:
        alone = model.query_variance / model.error(n_queries, n_grades) ** 2
        return alone * experts.documents_per_query / n_grades

    for n_expert in budgets[0]:
        n_grades = n_expert * experts.documents_per_query
        half, realized_worth = rest.realize(rest.grades_of_queries(queries[order[:n_expert]]), seed)
        model = designs["query"]
        row = [n_grades, model.half_width(n_queries, n_grades, LEVEL), half, worth(model, n_grades), realized_worth]
        found.setdefault(f"by query, {n_expert} expert queries", []).append(row)
    for n_grades in budgets[1]:
        half, _ = rest.realize(rest.grades_of_documents(n_grades, seed), seed)
        for name, about in (("document", ""), ("from documents", ", from documents")):
            if name in designs:
                model = designs[name]
                half_width = model.half_width(n_queries, n_grades, LEVEL) / model.scale
                row = [n_grades, half_width, half, worth(model, n_grades), np.nan]
                found.setdefault(f"by document, {n_grades} grades{about}", []).append(row)


def _replay_row(run: str, values: Floats) -> Row:
    grades, predicted, realized, worth, realized_worth = values.T
    return {
        "run": run,
        "expert grades": round(float(grades.mean())),
        "predicted": float(predicted.mean()),
        "realized": float(realized.mean()),
        "ratio": float(predicted.mean() / realized.mean()),
        "error": float(np.median(np.abs(np.log(predicted / realized)))),
        "worth": float(np.median(worth)),
        "realized worth": float(np.median(realized_worth)),
    }


@dataclass(frozen=True)
class Systems:
    """Systems of DL20 with NIST's grades and the judges who judged nearly all passages."""

    judges: Judgments
    truth: pd.DataFrame
    runs: Frames

    @classmethod
    def load(cls) -> Systems:
        """Read the data."""
        data = dataset("trec-dl20")
        judges = thorough(data.read_judgments(), COVERED)
        features = pd.read_csv(data.path("judged_features.tsv.gz"), sep="\t", dtype={"qid": str, "docid": str})
        pairs = features.rename(columns={"qid": "query", "docid": "document", "nist_grade": "grade"})
        runs = {}
        for name in pairs.columns.drop(["query", "document", "grade"]):
            known = pairs[name].notna()
            runs[name] = pairs.loc[known, ["query", "document"]].assign(score=pairs.loc[known, name])
        return cls(judges, pairs[["query", "document", "grade"]], runs)

    def labels(self, n_judges: int, seed: int) -> pd.DataFrame:
        """Return the consensus (gda) of random judges."""
        rng = np.random.default_rng([seed, n_judges])
        chosen = rng.choice(self.judges.n_assessors, n_judges, replace=False)
        some = self.judges.where(np.isin(self.judges.assessor, chosen))
        return pd.DataFrame(GDA().fit(some).consensus_.documents)

    def pairs(self, labels: pd.DataFrame, seed: int) -> list[Comparison]:
        """Return comparisons of random pairs of systems."""
        rng, names = np.random.default_rng(seed), list(self.runs)
        drawn = [rng.choice(len(names), 2, replace=False) for _ in range(N_PAIRS)]
        return [
            Comparison({names[place]: self.runs[names[place]] for place in pair}, labels, self.truth) for pair in drawn
        ]


def replay_table(systems: Systems, seeds: Sequence[int], tell: Tell) -> Table:
    """Return predicted and realized intervals on DL20: plans from a part of the queries, realized on the rest."""
    found: dict[str, list[list[float]]] = {}
    for seed in seeds:
        for number, pair in enumerate(systems.pairs(systems.labels(3, seed), seed)):
            tell(f"replay {number} of seed {seed}")
            order = np.random.default_rng([seed, number]).permutation(pair.truth["query"].unique())
            pilot, rest = pair.of_queries(order[:N_REPLAYED]), pair.of_queries(order[N_REPLAYED:])
            _replay(pilot.designs(pilot.truth), rest, BUDGETS["dl20"], number, found)
    notes = (
        f"{N_PAIRS} random pairs of systems of TREC DL20 for each of {seeds_text(seeds)}; labels are the consensus "
        f"(gda) of three random LLM judges, experts NIST's. The pilot is a random half of the queries with all grades "
        f"({N_REPLAYED} queries); the plan is realized on the other half.",
    )
    rows = tuple(_replay_row(run, np.array(values)) for run, values in found.items())
    return Table("dl20", "Predicted and realized intervals on DL20", rows, notes)


def typical_table(systems: Systems, seeds: Sequence[int], tell: Tell) -> Table:
    """Return the typical values of DL20 for plans without a pilot."""
    found: dict[tuple[str, int], list[list[float]]] = {}
    for n_labels in LABELS:
        for seed in seeds:
            labels = systems.labels(n_labels, seed)
            for measure in TYPICAL_MEASURES:
                tell(f"typical values of {measure}, {n_labels} labels, seed {seed}")
                values = [_typical_values(pair, measure) for pair in systems.pairs(labels, seed)]
                found.setdefault((measure, n_labels), []).extend(values)
    rows = []
    for (measure, n_labels), values in sorted(found.items(), key=lambda one: TYPICAL_MEASURES.index(one[0][0])):
        means = np.mean(values, axis=0)
        variance = float(means[0])
        unexplained = means[3:-1] / means[2]
        rows.append(
            {
                "run": f"{measure}, {n_labels} labels per document",
                "sd": float(np.sqrt(variance)),
                "documents": float(means[1]),
                "by query": float(np.mean([one[-1] for one in values]) / variance),
                **{
                    f"by document, {share:.0%}": float(one)
                    for share, one in zip(TYPICAL_SHARES, unexplained, strict=True)
                },
            }
        )
    notes = (
        f"{N_PAIRS} random pairs of systems of TREC DL20 for each of {seeds_text(seeds)}; labels are the consensus "
        "(gda) of random LLM judges. sd: root of the mean variance of the difference of a query by NIST's grades. "
        "Documents: different first documents of both systems in a query.",
        "By query, by document: share of the variance of the difference that the labels do not explain, for the "
        "share of documents that experts grade.",
    )
    return Table("typical", "Typical values of DL20", tuple(rows), notes)


def _typical_values(pair: Comparison, measure: str) -> list[float]:
    prepared = pair.prepare(pair.truth, measure)
    designs = _designs(prepared)
    query, document = designs["query"], designs["document"]
    at = np.log(TYPICAL_SHARES)
    return [
        query.query_variance,
        query.documents_per_query,
        document.query_variance,
        *np.interp(at, np.log(document.shares), document.grade_variances).tolist(),
        float(query.grade_variances[0]),
    ]
