"""Values that a report shows, derived from the result of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd

from crowdrank._text import percent
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.assessors.advice import REFERENCES
from crowdrank.assessors.agreement import Alpha, krippendorff_alpha, weighted_kappa
from crowdrank.assessors.assessor_report import CAREFUL, CARELESS
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.consensus.model import Aggregator
from crowdrank.errors import Message, attempt
from crowdrank.judgments.table import UNJUDGEABLE
from crowdrank.pipeline.run_result import RankerResults, RunResult, to_pandas
from crowdrank.pipeline.run_settings import RunSettings

T = TypeVar("T")
UNKNOWN_UNIT = "unit of the file"
"""Unit of durations and costs whose unit is not known."""
MAX_UNINFORMATIVE_SHARE = 0.05
"""Share of the median informativeness below which an assessor counts as uninformative."""
MAX_DOCUMENTS = 500
"""Maximum number of documents in a table of the report."""
N_NEXT_DOCUMENTS_SHOWN = 3
"""Number of documents to label next that the first screen names."""


@dataclass(frozen=True, eq=False)
class ReportData:
    """Result of a run as a report shows it: tables as pandas DataFrames with ids as text, and derived values.

    Attributes:
        result: result of the run.
        folder: folder of the run, for the commands that the report shows.
        failures: warnings about parts of the report that could not be made.

    """

    result: RunResult
    folder: Path
    failures: list[Message] = field(default_factory=list)

    def make_or_warn(self, part: str, make: Callable[[], T]) -> T | Message:
        """Return what `make` returns; if it fails, add a warning that names the part to `failures` and return it."""
        made, messages = attempt(part, make)
        self.failures.extend(messages)
        return messages[0] if messages else cast(T, made)

    @property
    def settings(self) -> RunSettings:
        """Settings of the run."""
        return self.result.settings

    @property
    def measure(self) -> str:
        """Measure that rankers are selected and compared by."""
        return self.settings.measure

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers of judgments, documents, queries, ..."""
        return dict(self.result.sizes)

    @property
    def model(self) -> Aggregator:
        """The fitted consensus model."""
        return self.result.model

    @property
    def warnings(self) -> list[Message]:
        """Messages of the run that ask the reader to check something."""
        return [note for note in self.result.notes if note.severity != "note"]

    @property
    def remarks(self) -> list[Message]:
        """Messages of the run that need no action."""
        return [note for note in self.result.notes if note.severity == "note"]

    # Tables.

    @cached_property
    def documents(self) -> pd.DataFrame:
        """Consensus of each document."""
        return self._table("documents")

    @cached_property
    def assessors(self) -> pd.DataFrame:
        """Reliability of each assessor."""
        return self._table("assessors")

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """Agreement of pairs of assessors."""
        return self._table("pairs")

    @cached_property
    def next(self) -> pd.DataFrame:
        """Documents to label next."""
        return self._table("next")

    @cached_property
    def next_with_features(self) -> pd.DataFrame:
        """Documents to label next by labels that used features, with the width and the grade without features."""
        table = self._table("next_with_features").head(MAX_DOCUMENTS)
        if not len(table):
            return table
        table = table.assign(rank=range(1, len(table) + 1))
        keys = ["query", "document"]
        plain = self.documents[[*keys, "grade"]].assign(width_without=self.interval_width)
        return table.merge(plain.rename(columns={"grade": "grade_without"}), "left", keys)

    @cached_property
    def preference_assessors(self) -> pd.DataFrame:
        """Reliability of each assessor with preferences."""
        return self._table("preference_assessors")

    @cached_property
    def order(self) -> pd.DataFrame:
        """Pairs of documents at the top of queries whose order is reported."""
        return self._table("order")

    @cached_property
    def comparison(self) -> pd.DataFrame:
        """Results of each candidate."""
        return self._table("comparison")

    @cached_property
    def features(self) -> pd.DataFrame:
        """Values and importance of each feature."""
        return self._table("features")

    @cached_property
    def remapping(self) -> pd.DataFrame:
        """Learned targets and weights by feature of the labels."""
        return self._table("remapping")

    @cached_property
    def per_query(self) -> pd.DataFrame:
        """Value of each candidate on each test query."""
        return self._table("per_query")

    @cached_property
    def texts(self) -> dict[tuple[str, str], dict[str, str]]:
        """Texts of queries and documents, by query and document."""
        rows = self._table("texts").to_dict("records")
        return {(row["query"], row["document"]): {str(name): text for name, text in row.items()} for row in rows}

    def _table(self, name: str) -> pd.DataFrame:
        """Return a table of the result; an empty one if the result does not have it."""
        return to_pandas(self.result.tables[name]) if name in self.result.tables else pd.DataFrame()

    # Rankers.

    @property
    def has_rankers(self) -> bool:
        """Whether rankers were trained."""
        return self.result.rankers is not None

    @property
    def rankers(self) -> RankerResults:
        """Rankers and their comparison."""
        assert self.result.rankers is not None
        return self.result.rankers

    @property
    def chosen(self) -> str:
        """Name of the selected candidate."""
        return self.rankers.chosen

    @property
    def baseline(self) -> str:
        """Name of the candidate that the others are compared with."""
        return self.rankers.baseline

    @property
    def baseline_name(self) -> str:
        """Name of the baseline in headlines."""
        return self.short_name(self.baseline)

    def short_name(self, name: str) -> str:
        """Return the name of a candidate as headlines show it; of a path, only the name of the file."""
        from crowdrank.pipeline.baseline import FEATURE_PREFIX
        from crowdrank.pipeline.candidates import BY_NAME

        return name if name in BY_NAME or name.startswith(FEATURE_PREFIX) else Path(name).name

    @property
    def tested(self) -> bool:
        """Whether rankers were tested on expert-graded queries."""
        return "per_query" in self.result.tables

    @cached_property
    def measures(self) -> list[str]:
        """Measures of the test, that of the settings first."""
        names = [name.removesuffix(" mean") for name in map(str, self.comparison) if name.endswith(" mean")]
        return sorted(names, key=lambda name: name != self.measure)

    def candidate(self, name: str) -> dict[str, Any]:
        """Return the figures of a candidate."""
        rows = self.comparison[self.comparison["candidate"] == name].to_dict("records")
        return {str(key): value for key, value in rows[0].items()} if rows else {}

    @cached_property
    def details(self) -> pd.DataFrame:
        """One row per measure and candidate, as in `Comparison.details`."""
        figures = ("mean", "difference", "lower", "upper", "p", "p_holm")
        rows = [
            {"measure": name, "run": row["candidate"], **{figure: row[f"{name} {figure}"] for figure in figures}}
            for name in self.measures
            for row in self.comparison.to_dict("records")
        ]
        return pd.DataFrame(rows, columns=["measure", "run", *figures])

    # Labels.

    @property
    def on_a_line(self) -> bool:
        """Whether relevance is a real number in standard deviations; otherwise it is in grades."""
        return not self.model.in_grades

    @cached_property
    def models_assessors(self) -> bool:
        """Whether the consensus weighs assessors by their reliability."""
        return self.model.answer_states() is not None

    @cached_property
    def equal_weights(self) -> str:
        """Weight of the answers of an assessor in a consensus that does not weigh assessors; empty for other methods.

        It is that of all others for votes and averages, and that of its family for means of families.
        """
        from crowdrank.consensus.votes import Average, FamilyMean, MajorityVote

        model = self.model.assessor_estimator_
        if isinstance(model, FamilyMean) and "families" in self.sizes:
            return "an equal part of the weight of their family"
        return "the same weight as all others" if isinstance(model, MajorityVote | Average) else ""

    def bias_reference(self, assessors: pd.DataFrame) -> str:
        """Return what the biases of some assessors are measured against, in words."""
        names = set(assessors["bias_reference"]) if "bias_reference" in assessors else {"others"}
        return " or ".join(text for name, text in REFERENCES.items() if name in names)

    @cached_property
    def median_informativeness(self) -> float:
        """Median informativeness of the assessors with enough judgments, in nats."""
        return median_informativeness(self.assessors)

    def weight_in_consensus(self, assessors: pd.DataFrame) -> str:
        """Return the weight of the answers of some assessors in the consensus, in words and as a share of the median.

        The consensus does not use expert grades, so its informativeness in nats can differ from that of the report.
        """
        fitted = to_pandas(self.model.consensus_.assessor_table).set_index("assessor")
        nats = fitted["informativeness"].reindex(self.assessors["assessor"]).fillna(0.0).to_numpy()
        median = median_informativeness(self.assessors.assign(informativeness=nats))
        selected = self.assessors["assessor"].isin(assessors["assessor"]).to_numpy()
        mean = float(np.average(nats[selected], weights=np.maximum(self.assessors["judgments"][selected], 1)))
        weight = WEIGHTS[informativeness_level(mean, median)]
        return weight if median <= 0 else f"{weight} ({percent(mean / median)} of that of a median assessor)"

    def unit(self, column: str) -> str:
        """Return the unit of durations or costs."""
        return str(self.result.provenance.units.get(column, UNKNOWN_UNIT))

    @property
    def relevance_unit(self) -> str:
        """Unit of relevance, for column titles."""
        return "standard deviations" if self.on_a_line else "grades"

    @cached_property
    def grade_values(self) -> list[float]:
        """Values of the grades."""
        return list(self.model.consensus_.scale.values)

    @property
    def grade_range(self) -> str:
        """The lowest and the highest grade."""
        return f"{self.grade_values[0]:.0f} to {self.grade_values[-1]:.0f}"

    # Documents.

    @cached_property
    def interval_width(self) -> Floats:
        """Width of the interval of the relevance of each document, (n_documents,)."""
        width: Floats = (self.documents["upper"] - self.documents["lower"]).to_numpy(np.float64)
        return width

    def next_document_positions(self) -> Integers:
        """Return the positions of the documents to label next, the most useful first."""
        place = pd.MultiIndex.from_frame(self.documents[["query", "document"]])
        rows = self.next.head(MAX_DOCUMENTS)
        return np.asarray(place.get_indexer(pd.MultiIndex.from_frame(rows[["query", "document"]])), dtype=np.int64)

    def most_disputed(self) -> Integers:
        """Return the positions of documents on which informative assessors differ, the largest differences first."""
        n_disputed = int((self.dispute > 0).sum())
        return np.argsort(-self.dispute, kind="stable")[: min(n_disputed, MAX_DOCUMENTS)]

    def shown_documents(self) -> list[tuple[str, str]]:
        """Return the queries and documents that the tables of the report show."""
        rows = self.documents.iloc[np.union1d(self.next_document_positions(), self.most_disputed())]
        return list(dict.fromkeys(zip(rows["query"], rows["document"], strict=True)))

    @property
    def honeypots(self) -> int:
        """Number of honeypots: documents that were judged but not labeled."""
        return max(self.sizes["judged_documents"] - len(self.documents), 0)

    @cached_property
    def document_counts(self) -> list[tuple[str, int, str]]:
        """Kinds of documents: name, number, and what they are used for."""
        sizes = self.sizes
        counts = [("judged by the crowd", sizes["judged_documents"], "show how reliable assessors are")]
        if self.honeypots:
            counts.append(("honeypots", self.honeypots, "judged to check assessors; they have no label"))
        counts.append(("labeled", len(self.documents), "judged documents without the honeypots"))
        if self.has_rankers:
            labels = self.result.tables["training"]["labels"].to_numpy()
            counts += [
                ("with features", sizes["documents"], "can be ranked"),
                ("in training", int((labels > 0).sum()), "labeled and with features"),
            ]
        return [
            *counts,
            (
                "graded by experts",
                sizes["expert_grades"],
                "select and test rankers" if self.has_rankers else "check labels",
            ),
            ("labeled and graded", len(self.against_experts), "compare labels with expert grades"),
        ]

    @cached_property
    def against_experts(self) -> pd.DataFrame:
        """The labeled documents with an expert grade: consensus grade, majority vote and expert grade as numbers."""
        graded = self.documents["expert"].notna().to_numpy()
        frame = self.documents.loc[graded, ["query", "document", "relevance", "expert"]]
        values, names = np.array(self.grade_values), self.documents.loc[graded, "grade"]
        codes = names.map({name: self.model.consensus_.scale.code(str(name)) for name in names.unique()})
        votes = self.votes[graded] / np.maximum(self.votes[graded].sum(axis=1, keepdims=True), 1)
        majority = choose_grades(votes, "mode")
        if self.result.same_scale and self.result.expert_grades:  # grades correspond by position
            position = np.searchsorted(self.result.expert_grades, frame["expert"])
            frame = frame.assign(expert=values[position])
        return frame.assign(consensus=values[codes.to_numpy(np.int64)], majority=values[majority])

    def kappa_with_experts(self, column: str) -> float:
        """Return the quadratic kappa of a column of `against_experts` with the expert grades, on the same scale."""
        codes = [np.searchsorted(self.grade_values, self.against_experts[name]) for name in (column, "expert")]
        return weighted_kappa(codes[0], codes[1], len(self.grade_values))

    @cached_property
    def alpha(self) -> Alpha:
        """Agreement of the assessors."""
        return krippendorff_alpha(self.model.judgments_)

    @cached_property
    def reliability(self) -> float:
        """Share of the variance of relevance that is not posterior variance; NaN if the model has no variance."""
        if "sd" not in self.documents:
            return float("nan")
        variance, posterior = float(self.documents["relevance"].var(ddof=0)), float((self.documents["sd"] ** 2).mean())
        return variance / (variance + posterior) if variance + posterior > 0 else float("nan")

    @cached_property
    def votes(self) -> Integers:
        """Number of answers by document and grade, (n_documents, n_grades)."""
        return self._counts(np.ones(self.model.judgments_.n_assessors, np.bool_))

    def _counts(self, included: Booleans) -> Integers:
        """Return the number of answers by document and grade of the assessors in a mask."""
        table = self.model.judgments_.to_main_scale()
        item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))
        judged, size = (table.grade != UNJUDGEABLE) & included[table.assessor], len(table.scale)
        counts = np.bincount(item[judged] * size + table.grade[judged], minlength=table.n_items * size)
        return counts.reshape(-1, size)

    @cached_property
    def informative_assessors(self) -> Booleans:
        """Which assessors can make a document disputed, (n_assessors,).

        All if the consensus does not weigh assessors; otherwise those with at least typical informativeness whose
        answers are not reversed.
        """
        names = list(map(str, self.model.judgments_.assessors.to_pylist()))
        if not self.models_assessors:
            return np.ones(len(names), np.bool_)
        known = self.assessors.set_index("assessor").reindex(names)
        median = self.median_informativeness
        levels = [informativeness_level(nats, median) for nats in known["informativeness"].fillna(0.0)]
        informative: Booleans = np.isin(levels, ["typical", "high"]) & (known["flag"] != "reversed").to_numpy()
        return informative

    @cached_property
    def dispute(self) -> Floats:
        """Standard deviation of the answers of informative assessors on each document; NaN with fewer than two."""
        votes, values = self._counts(self.informative_assessors), np.array(self.grade_values)
        n = votes.sum(axis=1)
        mean = votes @ values / np.maximum(n, 1)
        squares = votes @ values**2 / np.maximum(n, 1) - mean**2
        return np.where(n > 1, np.sqrt(np.maximum(squares * n / np.maximum(n - 1, 1), 0.0)), np.nan)

    @property
    def compared_with_experts(self) -> bool:
        """Whether some assessors are compared with experts."""
        return "compared_with" in self.assessors and bool((self.assessors["compared_with"] == "experts").any())

    @cached_property
    def cost_by_assessor(self) -> dict[str, float]:
        """Cost of the judgments of each assessor, if it is known."""
        table = self.model.judgments_
        if "cost" not in table.extras:
            return {}
        cost = np.nan_to_num(table.extras["cost"].astype(np.float64))
        total = np.bincount(table.assessor, weights=cost, minlength=table.n_assessors)
        return dict(zip(map(str, table.assessors.to_pylist()), total.tolist(), strict=True))


WEIGHTS = {
    "none": "almost no weight",
    "low": "low weight",
    "typical": "typical weight",
    "high": "high weight",
}
"""Weight in the consensus by level of informativeness."""


def median_informativeness(assessors: pd.DataFrame) -> float:
    """Return the median informativeness of the assessors with enough judgments, or of all if there are none.

    >>> median_informativeness(pd.DataFrame({"informativeness": [0.1, 0.3, 0.9], "flag": ["few", "", "careful"]}))
    0.6
    """
    known = assessors.loc[assessors["flag"] != "few", "informativeness"]
    return float((known if len(known) else assessors["informativeness"]).median())


def informativeness_level(nats: float, median: float) -> str:
    """Return the level of an assessor's informativeness; the limits are those of the flags careless and careful.

    >>> [informativeness_level(nats, 0.3) for nats in (0.001, 0.1, 0.3, 0.6)]
    ['none', 'low', 'typical', 'high']
    """
    share = nats / median if median > 0 else 1.0
    if share < MAX_UNINFORMATIVE_SHARE:
        return "none"
    return "low" if share < CARELESS else "typical" if share <= CAREFUL else "high"
