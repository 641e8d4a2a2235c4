"""What a run left in its folder, read back: all that a report is made of."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from crowdrank._folders import Manifest, open_folder
from crowdrank._saved import Fields, loading, read_parquet, require
from crowdrank.assessors.agreement import Alpha, krippendorff_alpha
from crowdrank.assessors.flags import CAREFUL, CARELESS
from crowdrank.assessors.reference import ExpertOffset
from crowdrank.consensus._base import Aggregator
from crowdrank.errors import InputError
from crowdrank.judgments.table import UNJUDGEABLE
from crowdrank.pipeline.run import RUN, RUN_FILE
from crowdrank.reports.run_schema import check_about, check_tables

AS_GIVEN = "as in your file"
"""The unit of what came without one."""
NOTHING = 0.05
"""An answer that tells less than this share of the usual one tells nothing worth naming."""
TEXT = (
    "assessor",
    "other",
    "query",
    "document",
    "candidate",
    "about",
    "note",
    "flag",
    "evidence",
    "feature",
    "remapper",
)
"""Columns that stay text, whatever they look like: an id may be 007 or NA."""


@dataclass(frozen=True, eq=False)
class Findings:
    """The files of a run.

    Attributes:
        folder: path of the run's folder in commands that the report shows.
        manifest: lists the run's files.
        about: run.json.
        assessors, documents, comparison, training, next: the tables of the same names.
        pairs: agreement of pairs of assessors, likewise; None in runs of earlier versions.
        remapping, per_query: likewise; None where nothing was remapped or tested.
        model: the consensus model with its judgments; None where the folder has none.

    """

    folder: Path
    manifest: Manifest
    about: dict[str, Any]
    assessors: pd.DataFrame
    documents: pd.DataFrame
    comparison: pd.DataFrame
    training: pd.DataFrame
    next: pd.DataFrame
    pairs: pd.DataFrame | None
    remapping: pd.DataFrame | None
    per_query: pd.DataFrame | None
    model: Aggregator | None

    @classmethod
    def read(cls, folder: str | Path, shown_as: str | Path | None = None) -> Findings:
        """Read the folder that `crowdrank run` wrote.

        >>> Findings.read("no-such-folder")
        Traceback (most recent call last):
        crowdrank.errors.InputError: no-such-folder: there is no such folder; name a folder written by 'crowdrank run'.
        """
        place = Path(folder)
        manifest = open_folder(place, RUN)
        if RUN_FILE not in manifest.entries:
            raise InputError(
                "its run has not finished", source=str(place), fix="give the same 'crowdrank run' again to resume it"
            )
        with reading(place):
            about = Fields.read(place / RUN_FILE)
            check_about(about)
            tables = {
                "assessors": read_csv(place / "assessors.csv"),
                "documents": read_parquet(place / "consensus.parquet").to_pandas(),
                "comparison": read_csv(place / "comparison.csv"),
                "training": read_parquet(place / "training.parquet").to_pandas(),
                "next": read_csv(place / "next.csv"),
                "pairs": _if_listed(place, "pairs.csv", manifest),
                "remapping": _if_listed(place, "remapping.csv", manifest),
                "per_query": _if_listed(place, "per_query.csv", manifest),
            }
            check_tables(about, tables)
            found = cls(
                folder=place if shown_as is None else Path(shown_as),
                manifest=manifest,
                about=dict(about.values),
                model=_model(place / "consensus"),
                **tables,
            )
            found._check_model()
        return found

    def _check_model(self) -> None:
        """Raise ValueError unless the documents are judged in the saved consensus, on the same grades."""
        if self.model is None:
            return
        judged = self.model.judgments_
        place = judged.positions(*(pa.array(self.documents[name].astype(str)) for name in ("query", "document")))
        require((place >= 0).all(), "a document has no judgments in the consensus")
        require(len(self.grade_values) == len(judged.on_main_scale().scale), "the consensus has other grades")

    def has(self, name: str) -> bool:
        """Return whether the run has a file or a folder of this name."""
        return any(entry == name or entry.startswith(f"{name.rstrip('/')}/") for entry in self.manifest.entries)

    # What was asked.

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the run."""
        return dict(self.about["settings"])

    @property
    def measure(self) -> str:
        """What rankers were chosen and compared by."""
        return str(self.settings["measure"])

    @property
    def chosen(self) -> str:
        """The name of the chosen ranker."""
        return str(self.about["chosen"])

    @property
    def sizes(self) -> dict[str, int]:
        """How much there was of everything."""
        return dict(self.about["sizes"])

    @property
    def warnings(self) -> list[str]:
        """The notes of the run that ask for care."""
        return [note for note in self.about.get("notes", []) if not asks_nothing(note)]

    @property
    def remarks(self) -> list[str]:
        """The notes of the run that ask for nothing."""
        return [note for note in self.about.get("notes", []) if asks_nothing(note)]

    # Rankers.

    @property
    def tested(self) -> bool:
        """Whether rankers were tested on expert-graded queries."""
        return f"{self.measure} mean" in self.comparison

    @cached_property
    def measures(self) -> list[str]:
        """What was measured in the test, what was asked for first."""
        names = [name.removesuffix(" mean") for name in map(str, self.comparison) if name.endswith(" mean")]
        return sorted(names, key=lambda name: name != self.measure)

    @cached_property
    def baseline(self) -> str:
        """What the others were compared with: whose difference is 0 and has no interval."""
        told = str(self.settings["baseline"])
        if not self.tested or (self.comparison["candidate"] == told).any():
            return told
        itself = self.comparison[f"{self.measure} mean"].notna() & self.comparison[f"{self.measure} p"].isna()
        return str(self.comparison.loc[itself, "candidate"].iloc[0]) if itself.any() else told

    @property
    def left_out(self) -> dict[str, str]:
        """The candidates that were not tried, and why."""
        return dict(self.about.get("left_out") or {})

    def candidate(self, name: str) -> dict[str, Any]:
        """The figures of a candidate."""
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
        """Whether relevance is in standard deviations on a line of its own, else it is in grades."""
        return self.model is not None and not self.model.in_grades

    @property
    def knows_assessors(self) -> bool:
        """Whether the consensus weighs assessors by how they answer, as votes do not."""
        return self.model is not None and self.model.answer_states() is not None

    @cached_property
    def usual_information(self) -> float:
        """Median informativeness of the assessors with enough judgments, in nats."""
        return crowd_median(self.assessors)

    def weight_in_consensus(self, some: pd.DataFrame) -> str:
        """Return how much the consensus model counts the answers of some assessors, in words and nats.

        The report's own informativeness may rest on expert grades, which the consensus did not see.
        """
        assert self.model is not None
        fitted = self.model.consensus_.assessor_table.to_pandas().astype({"assessor": str}).set_index("assessor")
        nats = fitted["informativeness"].reindex(self.assessors["assessor"]).fillna(0.0).to_numpy()
        median = crowd_median(self.assessors.assign(informativeness=nats))
        chosen = self.assessors["assessor"].isin(some["assessor"]).to_numpy()
        mean = float(np.average(nats[chosen], weights=np.maximum(self.assessors["judgments"][chosen], 1)))
        return f"{WEIGHTS[weight_word(mean, median)]} ({mean:.3f} nats per answer; the median is {median:.3f})"

    @property
    def expert_offset(self) -> ExpertOffset | None:
        """Mean difference between the assessors and the experts, in grades."""
        offset = self.about.get("expert_offset")
        return None if offset is None else ExpertOffset(**offset)

    def unit(self, column: str) -> str:
        """In what durations or costs are."""
        known = self.about.get("origin", {}).get("units", {})
        return str(known.get(column, AS_GIVEN))

    @property
    def relevance_unit(self) -> str:
        """What relevance is counted in, for heads of columns."""
        return "standard deviations" if self.on_a_line else "grades"

    @property
    def grade_range(self) -> str:
        """The grades from the lowest to the best."""
        values = self.grade_values
        return f"{values[0]:.0f} to {values[-1]:.0f}" if values else "grades"

    # Which documents.

    @property
    def honeypots(self) -> int:
        """How many documents were planted to check assessors: judged, but not labeled."""
        return max(self.sizes["judged_documents"] - len(self.documents), 0)

    @cached_property
    def kinds_of_documents(self) -> list[tuple[str, int, str]]:
        """How many documents there are of each kind that the report speaks of, and what they serve."""
        sizes, learned = self.sizes, int((self.training["labels"] > 0).sum())
        told = [("judged by the crowd", sizes["judged_documents"], "what shows who is reliable")]
        if self.honeypots:
            told += [
                ("honeypots among them", self.honeypots, "planted to check assessors: no label is made of them"),
            ]
        return [
            *told,
            ("labeled", len(self.documents), "judged and no honeypot: the documents of all tables and charts here"),
            ("with features", sizes["documents"], "what a ranker can rank"),
            (
                "learned from",
                learned,
                "labeled and with features: what rankers learn from",
            ),
            ("graded by experts", sizes["expert_grades"], "with features and no honeypot: for the choice and the test"),
            ("labeled and graded", len(self.against_experts), "what 'Can I trust the labels?' rests on"),
        ]

    @cached_property
    def grade_values(self) -> list[float]:
        """The values of the grades, from the columns of their probabilities."""
        names = [str(name) for name in self.documents if str(name)[:1] == "p" and str(name)[1:].lstrip("-").isdigit()]
        return [float(name[1:]) for name in names]

    @cached_property
    def likeliest(self) -> NDArray[np.float64]:
        """The likeliest grade of each document, as a number; of two alike the higher."""
        shares = self.documents[[f"p{value:.0f}" for value in self.grade_values]].to_numpy(np.float64)
        place = shares.shape[1] - 1 - shares[:, ::-1].argmax(axis=1)
        grades: NDArray[np.float64] = np.array(self.grade_values)[place]
        return grades

    @cached_property
    def against_experts(self) -> pd.DataFrame:
        """The documents that experts graded and the crowd judged: consensus, majority (where known), expert."""
        found = self.documents[["query", "document", "relevance"]].astype({"query": str, "document": str})
        found = found.assign(consensus=self.likeliest)
        known = self.training.loc[self.training["expert"].notna()]
        columns = [name for name in ("majority", "expert") if name in known]
        known = known[["query", "document", *columns]].astype({"query": str, "document": str})
        return known.merge(found, on=["query", "document"])

    @property
    def experts_on_scale(self) -> bool:
        """Whether the experts' grades are those of the crowd, so that the two may be equal."""
        return bool(self.against_experts["expert"].isin(self.grade_values).all())

    @cached_property
    def alpha(self) -> Alpha | None:
        """How far the answers of single assessors agree."""
        return None if self.model is None else krippendorff_alpha(self.model.judgments_)

    @cached_property
    def reliability(self) -> float:
        """The share of the spread of relevance that is differences between documents and not doubt about them.

        By the model's own account of its doubt; NaN where it has none.
        """
        if "sd" not in self.documents:
            return float("nan")
        spread, doubt = float(self.documents["relevance"].var(ddof=0)), float((self.documents["sd"] ** 2).mean())
        return spread / (spread + doubt) if spread + doubt > 0 else float("nan")

    @cached_property
    def votes(self) -> NDArray[np.int64] | None:
        """How often each grade was given to each document of `documents`: (n_documents, n_grades)."""
        if self.model is None:
            return None
        return self._counts(np.ones(self.model.judgments_.n_assessors, np.bool_))

    def _counts(self, heard: NDArray[np.bool_]) -> NDArray[np.int64]:
        """How often each grade was given to each document by some of the assessors."""
        assert self.model is not None
        table = self.model.judgments_.on_main_scale()
        item = np.repeat(np.arange(table.n_items), np.diff(table.offsets))
        judged, size = (table.grade != UNJUDGEABLE) & heard[table.assessor], len(table.scale)
        counts = np.bincount(item[judged] * size + table.grade[judged], minlength=table.n_items * size)
        place = table.positions(*(pa.array(self.documents[name].astype(str)) for name in ("query", "document")))
        return counts.reshape(-1, size)[place]

    @cached_property
    def heard(self) -> NDArray[np.bool_]:
        """Which assessors can make a document disputed: (n_assessors,).

        All where the consensus weighs everybody alike; else those whose answers tell as much as usual and more. Who
        answers at random disagrees everywhere, and who is reversed says by the other grade the same as the others.
        """
        assert self.model is not None
        names = list(map(str, self.model.judgments_.assessors.to_pylist()))
        if not self.knows_assessors:
            return np.ones(len(names), np.bool_)
        known = self.assessors.set_index("assessor").reindex(names)
        words = [weight_word(nats, self.usual_information) for nats in known["informativeness"].fillna(0.0)]
        told: NDArray[np.bool_] = np.isin(words, ["usual", "much"]) & (known["flag"] != "reversed").to_numpy()
        return told

    @cached_property
    def dispute(self) -> NDArray[np.float64]:
        """How far apart the answers of those who are `heard` are on each document.

        Their standard deviation, in grades; NaN of fewer than two answers.
        """
        if self.model is None:
            return np.full(len(self.documents), np.nan)
        votes, values = self._counts(self.heard), np.array(self.grade_values)
        n = votes.sum(axis=1)
        mean = votes @ values / np.maximum(n, 1)
        squares = votes @ values**2 / np.maximum(n, 1) - mean**2
        return np.where(n > 1, np.sqrt(np.maximum(squares * n / np.maximum(n - 1, 1), 0.0)), np.nan)

    @cached_property
    def paid(self) -> dict[str, float]:
        """What each assessor's labels cost, where that is known."""
        if self.model is None or "cost" not in self.model.judgments_.extras:
            return {}
        table = self.model.judgments_
        cost = np.nan_to_num(table.extras["cost"].astype(np.float64))
        total = np.bincount(table.assessor, weights=cost, minlength=table.n_assessors)
        return dict(zip(map(str, table.assessors.to_pylist()), total.tolist(), strict=True))


WEIGHTS = {"nothing": "next to nothing", "little": "little", "usual": "as much as usual", "much": "much"}
"""How much an answer tells, next to the crowd's median: what is said of one answer, and of many."""


def crowd_median(assessors: pd.DataFrame) -> float:
    """Return the median informativeness of the assessors with enough judgments, or of all if there are none.

    >>> crowd_median(pd.DataFrame({"informativeness": [0.1, 0.3, 0.9], "flag": ["few", "", "careful"]}))
    0.6
    """
    known = assessors.loc[assessors["flag"] != "few", "informativeness"]
    return float((known if len(known) else assessors["informativeness"]).median())


def weight_word(nats: float, usual: float) -> str:
    """How much an answer tells next to the usual one; the marks are those of the flags careless and careful.

    >>> [weight_word(nats, 0.3) for nats in (0.001, 0.1, 0.3, 0.6)]
    ['nothing', 'little', 'usual', 'much']
    """
    share = nats / usual if usual > 0 else 1.0
    return "nothing" if share < NOTHING else "little" if share < CARELESS else "usual" if share <= CAREFUL else "much"


def asks_nothing(note: str) -> bool:
    """Whether a note says itself that nothing is to be done about it.

    >>> asks_nothing("54 honeypots are left out. There is nothing to do."), asks_nothing("Few queries: label more.")
    (True, False)
    """
    return note.rstrip(". ").lower().endswith("there is nothing to do")


def reading(folder: str | Path) -> AbstractContextManager[None]:
    """Turn every failure to read the files of a run into an InputError."""
    return loading(folder, "its files cannot be read", "give the same 'crowdrank run' again: what is finished is kept")


def _if_listed(folder: Path, name: str, manifest: Manifest) -> pd.DataFrame | None:
    return read_csv(folder / name) if name in manifest.entries else None


def _model(folder: Path) -> Aggregator | None:
    return Aggregator.load(folder) if folder.is_dir() else None


def read_csv(path: Path) -> pd.DataFrame:
    """A table that we wrote: ids stay the text they were, blanks of other columns are missing numbers."""
    types = dict.fromkeys(TEXT, pa.string())
    table = pyarrow.csv.read_csv(
        path,
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=False),
    )
    empty = [name for name in table.column_names if pa.types.is_null(table[name].type)]
    for name in empty:  # a column without any number
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.float64()))
    frame: pd.DataFrame = table.to_pandas()
    return frame
