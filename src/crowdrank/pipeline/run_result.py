"""The result of a run: tables, models and text, which the terminal, the reports and the files of a run show."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from crowdrank._folders import Fields, FolderKind, loading, open_folder, read_parquet
from crowdrank._text import counted, heading, html_table, panel, paragraph
from crowdrank.assessors.reference import ExpertOffset
from crowdrank.consensus.calibration import Calibration
from crowdrank.consensus.model import Aggregator
from crowdrank.errors import InputError, Message, option_parameter, python_parameter
from crowdrank.judgments import frames
from crowdrank.pipeline.result_checks import ESTIMATE_NUMBERS, check_metadata, check_tables
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.stage_cache import PROFILE_FILE, STAGE_NAMES, RunProfile
from crowdrank.readers.write import write_table

if TYPE_CHECKING:
    from crowdrank.estimation.estimate import Estimate
    from crowdrank.label_learning.remapper import Remapper
    from crowdrank.pipeline.contrasts import Contrast, Verdict
    from crowdrank.pipeline.feature_labels import FeatureLabels
    from crowdrank.rankers.boosting import BoostedTrees
    from crowdrank.rankers.ranker import Ranker


@dataclass(frozen=True)
class Provenance:
    """How a run was started.

    Attributes:
        command: shell command; empty if the run was started from Python.
        python: Python call; empty if the run was started from the command line.
        units: units of the durations and costs of the judgments, by column, if known.

    """

    command: str = ""
    python: str = ""
    units: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return asdict(self)


def python_call(inputs: Mapping[str, Any], settings: RunSettings, output: Path | None, engine: Any = None) -> str:
    """Return the Python call of a run; DataFrames are shown by name and size.

    >>> files = {"judgments": "labels.csv", "features": [0, 0], "expert": None}
    >>> print(python_call(files, RunSettings(random_state=3), Path("out")))
    import crowdrank
    <BLANKLINE>
    crowdrank.run(
        judgments="labels.csv",
        features=features,  # list, 2 rows
        random_state=3,
        output="out",
    )
    """
    defaults = RunSettings().to_dict()
    changed = {name: value for name, value in settings.to_dict().items() if value != defaults[name]}
    lines = [_argument(name, value) for name, value in inputs.items() if value is not None]
    lines += [f"{name}={_literal(value)}," for name, value in changed.items()]
    lines += [] if output is None else [f"output={_literal(str(output))},"]
    lines += [] if engine is None else [f"engine=engine,  # {type(engine).__name__}"]
    return "\n".join(["import crowdrank", "", "crowdrank.run(", *(f"    {line}" for line in lines), ")"])


def _argument(name: str, value: Any) -> str:
    if isinstance(value, str | Path):
        return f"{name}={_literal(str(value))},"
    library = type(value).__module__.partition(".")[0]
    kind = type(value).__name__ if library == "builtins" else f"{library} {type(value).__name__}"
    size = f", {counted(len(value), 'row')}" if hasattr(value, "__len__") else ""
    return f"{name}={name},  # {kind}{size}"


def _literal(value: Any) -> str:
    """Return a value as Python code, with double quotes around plain text."""
    plain = isinstance(value, str) and value.isprintable() and not set(value) & set("\"\\'")
    return f'"{value}"' if plain else repr(value)


RUN_FILE = "run.json"
"""Name of the file with everything of a run but its tables and models."""
PREVIOUS = "previous"
"""Name of the folder with the results that a run replaced."""
DEPLOYABLE = "deployable"
"""Name of the folder with the forest for search engines, and of the forest in comparisons."""
RUN = FolderKind("run", 5, "run", "'crowdrank run'", STAGE_NAMES, optional=("report.", PROFILE_FILE, f"{PREVIOUS}/"))
ALTERNATIVE = "alternative"
"""Name of the folder with the ranker of an alternative that the selected ranker is not ahead of."""
NOT_FOR_RANKERS = (
    "No ranker is trained or tested on these labels, because labels that used features favor rankers that use the same "
    "features."
)
"""Note on labels with features."""
TABLE_FILES = {
    "documents": "consensus.parquet",
    "assessors": "assessors.csv",
    "pairs": "pairs.csv",
    "next": "next.csv",
    "comparison": "comparison.csv",
    "per_query": "per_query.csv",
    "training": "training.parquet",
    "remapping": "remapping.csv",
    "features": "features.csv",
    "texts": "texts.parquet",
    "documents_with_features": "consensus_with_features.parquet",
    "next_with_features": "next_with_features.csv",
    "estimate": "estimate.csv",
    "preference_assessors": "preference_assessors.csv",
    "order": "order.csv",
}
"""Tables of a run and their files; a run has some or all of them."""
TEXT_COLUMNS = (
    *("assessor", "other", "query", "document", "next_document", "candidate", "about", "note", "flag", "evidence"),
    *("compared_with", "bias_reference"),
    *("feature", "remapper", "run", "reason"),
)
"""Columns of CSV files that are read as text, even if an id looks like a number."""
FLOAT_COLUMNS = (
    *("relevance", "lower", "upper", "width", "informativeness", "slope", "bias", "agreement", "difference", "kappa"),
    *("priority", "gain", "selection_mean", "value", "target", "weight", "missing", "minimum", "maximum", "importance"),
    *(
        "preference_information",
        "sharpness",
        "position_bias",
        "position_bias_lower",
        "position_bias_upper",
        "position_bias_p",
        "ties",
        "cycles",
    ),
    "probability",
    *ESTIMATE_NUMBERS,
)
"""Columns of CSV files that are read as floats, even if all values are whole numbers."""


@dataclass(frozen=True, eq=False)
class Deployable:
    """One forest that search engines can evaluate, in place of the best ranker.

    Attributes:
        ranker: the forest.
        n_trees: its number of trees.
        imitates: name of the candidate that it imitates; empty if it is the selected ranker itself.
        contrast: difference on the test queries to the ranker that is selected without regard to deployment; None if
            nothing was tested, or if that is the forest itself.
        rank_correlation: mean Kendall's tau-b within test queries with the scores of that ranker, likewise.

    """

    ranker: BoostedTrees
    n_trees: int
    imitates: str = ""
    contrast: Contrast | None = None
    rank_correlation: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the ranker, ready for JSON."""
        contrast = None if self.contrast is None else asdict(self.contrast)
        values = {"n_trees": self.n_trees, "imitates": self.imitates, "rank_correlation": self.rank_correlation}
        return {**values, "contrast": contrast}

    @classmethod
    def load(cls, fields: Mapping[str, Any], folder: Path) -> Deployable:
        """Load the forest from its folder; `fields` are those of :meth:`to_dict`."""
        from crowdrank.pipeline.contrasts import Contrast
        from crowdrank.rankers.boosting import BoostedTrees
        from crowdrank.rankers.ranker import Ranker

        ranker = Ranker.load(folder)
        if not isinstance(ranker, BoostedTrees):
            raise ValueError("the deployable ranker is not a forest")
        contrast = fields["contrast"]
        return cls(**{**fields, "ranker": ranker, "contrast": None if contrast is None else Contrast(**contrast)})


@dataclass(frozen=True, eq=False)
class RankerResults:
    """Rankers of a run and their comparison.

    Attributes:
        chosen: name of the selected candidate.
        reason: why it was selected.
        baseline: name of the candidate that the others are compared with.
        ranker: the selected ranker.
        deployable: one forest for search engines; None if it could not be made.
        remappers: fitted remappers by name.
        weights: weight of each member of each ensemble.
        left_out: reasons why candidates were not trained, by name.
        selection_queries, test_queries: ids of the expert-graded queries that served the selection and the test.
        contrasts: differences between pairs of candidates on the test queries.
        verdict: whether the selected candidate is better than everything the user would otherwise use; None if nothing
            was tested.
        alternative: ranker of the alternative that decides the verdict, if the selected ranker is not ahead of it and
            the alternative is no ranking in a file.

    """

    chosen: str
    reason: str
    baseline: str
    ranker: Ranker
    deployable: Deployable | None
    remappers: Mapping[str, Remapper] = field(default_factory=dict)
    weights: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    selection_queries: tuple[str, ...] = ()
    test_queries: tuple[str, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    verdict: Verdict | None = None
    alternative: Ranker | None = None

    def contrast(self, candidate: str, other: str) -> Contrast | None:
        """Return the difference between two candidates on the test queries, if it was tested."""
        return next((one for one in self.contrasts if (one.candidate, one.other) == (candidate, other)), None)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the models, ready for JSON."""
        return {
            "chosen": self.chosen,
            "reason": self.reason,
            "baseline": self.baseline,
            "deployable": None if self.deployable is None else self.deployable.to_dict(),
            "remappers": list(self.remappers),
            "weights": {name: dict(weights) for name, weights in self.weights.items()},
            "left_out": dict(self.left_out),
            "selection_queries": list(self.selection_queries),
            "test_queries": list(self.test_queries),
            "contrasts": [asdict(one) for one in self.contrasts],
            "verdict": None if self.verdict is None else asdict(self.verdict),
            "has_alternative": self.alternative is not None,
        }

    def save(self, folder: Path) -> None:
        """Save the models into the folder of a run."""
        self.ranker.save(folder / "model")
        if self.alternative is not None:
            self.alternative.save(folder / ALTERNATIVE)
        if self.deployable is not None:
            self.deployable.ranker.save(folder / DEPLOYABLE)
        if self.remappers:
            (folder / "remappers").mkdir()
        for name, remapper in self.remappers.items():
            remapper.save(folder / "remappers" / name)

    @classmethod
    def load(cls, fields: Mapping[str, Any], folder: Path) -> RankerResults:
        """Load the models from the folder of a run; `fields` are those of :meth:`to_dict`."""
        from crowdrank.label_learning.remapper import Remapper
        from crowdrank.pipeline.contrasts import Contrast, Verdict
        from crowdrank.rankers.ranker import Ranker

        remappers = {name: Remapper.load(folder / "remappers" / name) for name in fields["remappers"]}
        contrasts = tuple(Contrast(**one) for one in fields["contrasts"])
        queries = {name: tuple(fields[name]) for name in ("selection_queries", "test_queries")}
        deployable, verdict = fields["deployable"], fields["verdict"]
        own = {name: value for name, value in fields.items() if name != "has_alternative"}
        has_alternative = fields["has_alternative"]
        return cls(
            **{
                **own,
                **queries,
                "ranker": Ranker.load(folder / "model"),
                "deployable": None if deployable is None else Deployable.load(deployable, folder / DEPLOYABLE),
                "remappers": remappers,
                "contrasts": contrasts,
                "verdict": None if verdict is None else Verdict.load(verdict),
                "alternative": Ranker.load(folder / ALTERNATIVE) if has_alternative else None,
            }
        )


@dataclass(frozen=True, eq=False)
class RunResult:
    """Result of a run; the files in its folder hold the same.

    Attributes:
        settings: settings of the run.
        model: the fitted consensus model.
        tables: the tables of `TABLE_FILES` that the run has, as Arrow tables.
        rankers: the rankers; None if the run trained none.
        summary: what was found, in short paragraphs, the most important first.
        protocol: how candidates were trained, selected and tested, in sentences.
        notes: warnings and notes.
        sizes: numbers of judgments, documents, queries, ...
        inputs: digest of each input.
        provenance: the command or call of the run.
        versions: versions of crowdrank, Python and main libraries.
        expert_offset: mean difference between assessors and experts, in grades; None without expert grades.
        same_scale: whether the grades of experts correspond to those of assessors one by one, by position.
        expert_grades: value of each grade of the experts' scale; empty without expert grades.
        estimate: quality of the selected ranker and of a baseline that is a run file; None without such a baseline.
        feature_labels: labels that also used features, compared with the others; None unless the settings ask for it.
        calibration: calibration of the grade probabilities by expert grades; None without expert grades, or if the
            settings leave it out.
        changes: differences to the previous run in the same folder, in sentences.
        profile: time and memory of each stage; empty for a run of an earlier version.
        backend: DataFrame library of `documents`, `assessors`, `comparison` and `next`.

    """

    settings: RunSettings
    model: Aggregator
    tables: Mapping[str, pa.Table]
    rankers: RankerResults | None
    summary: tuple[str, ...]
    protocol: tuple[str, ...]
    notes: tuple[Message, ...]
    sizes: Mapping[str, int]
    inputs: Mapping[str, str]
    provenance: Provenance
    versions: Mapping[str, str]
    expert_offset: ExpertOffset | None = None
    same_scale: bool = False
    expert_grades: tuple[float, ...] = ()
    estimate: Estimate | None = None
    feature_labels: FeatureLabels | None = None
    calibration: Calibration | None = None
    changes: tuple[str, ...] = ()
    profile: RunProfile = field(default_factory=RunProfile)
    backend: str = "pandas"

    def __repr__(self) -> str:
        rankers = "" if self.rankers is None else f", ranker {self.rankers.chosen}"
        return f"<RunResult: {counted(self.sizes['judgments'], 'judgment')}{rankers}>"

    def _repr_html_(self) -> str:
        if self.rankers is None:
            return panel(heading(repr(self).strip("<>")), *map(paragraph, self.summary))
        measure = self.settings.measure
        figures = (f"{measure} {name}" for name in ("mean", "difference", "lower", "upper"))
        rows = self.tables["comparison"].to_pylist()
        names = [name for name in ("candidate", "selection_mean", *figures) if name in rows[0]]
        title = heading(f"Ranker: {self.rankers.chosen}")
        return panel(title, *map(paragraph, self.summary), html_table(rows, names))

    @property
    def ranker(self) -> Ranker:
        """The selected ranker, to `predict` with or to `save`."""
        return self._rankers().ranker

    @property
    def deployable(self) -> Ranker:
        """The forest for search engines: the selected ranker if it is one forest, otherwise its imitation."""
        deployable = self._rankers().deployable
        if deployable is None:
            fix = "distill the ranker yourself with crowdrank.distill"
            raise InputError("the run made no forest for search engines", kind="no-forest", fix=fix)
        return deployable.ranker

    @property
    def chosen(self) -> str:
        """Name of the selected candidate."""
        return self._rankers().chosen

    @property
    def seconds(self) -> float:
        """Duration of the run."""
        return self.profile.seconds

    @property
    def consensus_method(self) -> str:
        """Name of the consensus method; for `auto`, also of those that it chose.

        The first one is for the ranking, the second one, if it is another, for the grades.
        """
        reason = getattr(self.model, "reason_", None)
        if reason is None:
            return self.settings.method
        return f"{self.settings.method} ({' and '.join(dict.fromkeys((reason.ranking, reason.grades)))})"

    def note_text(self, note: Message) -> str:
        """Return the text of a note, with parameters as options if the run was started from the command line."""
        return note.render(option_parameter if self.provenance.command else python_parameter)

    def _rankers(self) -> RankerResults:
        if self.rankers is None:
            raise InputError("the run trained no ranker", kind="no-ranker", fix="give features of the documents")
        return self.rankers

    @cached_property
    def documents(self) -> Any:
        """Consensus of each document, as a DataFrame."""
        return self._frame("documents")

    @cached_property
    def assessors(self) -> Any:
        """Reliability of each assessor, as a DataFrame."""
        return self._frame("assessors")

    @cached_property
    def comparison(self) -> Any:
        """Results of each candidate, as a DataFrame."""
        return self._frame("comparison")

    @cached_property
    def next(self) -> Any:
        """Documents to label next, those first where another label is most useful, as a DataFrame."""
        return self._frame("next")

    def _frame(self, name: str) -> Any:
        if name not in self.tables:
            raise InputError(f"the run has no table {name!r}", kind="no-table")
        return frames.from_arrow(self.tables[name], self.backend)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but tables, models and the profile, ready for JSON: equal for equal inputs and settings."""
        return {
            "versions": dict(self.versions),
            "settings": self.settings.to_dict(),
            "inputs": dict(self.inputs),
            "provenance": self.provenance.to_dict(),
            "sizes": dict(self.sizes),
            "consensus_method": self.consensus_method,
            "scales": [str(scale) for scale in self.model.judgments_.scales],
            "summary": list(self.summary),
            "rankers": None if self.rankers is None else self.rankers.to_dict(),
            "expert_offset": None if self.expert_offset is None else asdict(self.expert_offset),
            "same_scale": self.same_scale,
            "expert_grades": list(self.expert_grades),
            "estimate": _estimate_to_dict(self.estimate),
            "feature_labels": None if self.feature_labels is None else self.feature_labels.to_dict(),
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "notes": [{**note.to_dict(), "text": self.note_text(note)} for note in self.notes],
            "protocol": list(self.protocol),
            "changes": list(self.changes),
        }

    def save(self, folder: Path) -> None:
        """Write all files of the run into an empty folder."""
        self.model.save(folder / "consensus")
        if self.rankers is not None:
            self.rankers.save(folder)
        for name, table in self.tables.items():
            write_table(table, folder / TABLE_FILES[name])
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
        (folder / RUN_FILE).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> RunResult:
        """Read the folder that a run wrote.

        >>> RunResult.load("no-such-folder")
        Traceback (most recent call last):
        crowdrank.errors.InputError: no-such-folder: there is no such folder; name a folder written by 'crowdrank run'.
        """
        place = Path(folder)
        manifest = open_folder(place, RUN)
        if RUN_FILE not in manifest.entries:
            fix = "run the same 'crowdrank run' again to resume it"
            raise InputError("its run has not finished", source=str(place), kind="unfinished", fix=fix)
        with reading_run(place):
            fields = Fields.read(place / RUN_FILE)
            check_metadata(fields)
            tables = {
                name: _READERS[Path(file).suffix](place / file)
                for name, file in TABLE_FILES.items()
                if file in manifest.entries
            }
            model = Aggregator.load(place / "consensus")
            check_tables(fields, tables, model)
            profile = place / PROFILE_FILE
            return cls._from_dict(
                fields.values, place, tables, model, RunProfile.load(profile) if profile.exists() else RunProfile()
            )

    @classmethod
    def _from_dict(
        cls,
        fields: Mapping[str, Any],
        folder: Path,
        tables: Mapping[str, pa.Table],
        model: Aggregator,
        profile: RunProfile,
    ) -> RunResult:
        from crowdrank.pipeline.feature_labels import FeatureLabels

        offset, rankers, with_features = (fields[name] for name in ("expert_offset", "rankers", "feature_labels"))
        calibration = fields.get("calibration")
        return cls(
            settings=RunSettings.of(fields["settings"]),
            model=model,
            tables=tables,
            rankers=None if rankers is None else RankerResults.load(rankers, folder),
            summary=tuple(fields["summary"]),
            protocol=tuple(fields["protocol"]),
            notes=tuple(Message.from_dict(_without_text(note)) for note in fields["notes"]),
            sizes=fields["sizes"],
            inputs=fields["inputs"],
            provenance=Provenance(**fields["provenance"]),
            versions=fields["versions"],
            expert_offset=None if offset is None else ExpertOffset(**offset),
            same_scale=fields["same_scale"],
            expert_grades=tuple(fields.get("expert_grades", ())),
            estimate=_estimate_from_dict(fields["estimate"], tables),
            feature_labels=None if with_features is None else FeatureLabels.load(with_features),
            calibration=None if calibration is None else Calibration.load(calibration),
            changes=tuple(fields["changes"]),
            profile=profile,
        )


def _without_text(note: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a message in run.json without its text."""
    return {name: value for name, value in note.items() if name != "text"}


def _estimate_to_dict(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    from crowdrank.pipeline.baseline_estimate import estimate_to_dict

    return estimate_to_dict(estimate)


def _estimate_from_dict(fields: Mapping[str, Any] | None, tables: Mapping[str, pa.Table]) -> Estimate | None:
    if fields is None:
        return None
    from crowdrank.pipeline.baseline_estimate import estimate_from_dict

    return estimate_from_dict(fields, tables["estimate"])


def reading_run(folder: str | Path) -> Any:
    """Return a context in which every failure to read the files of a run becomes an InputError."""
    return loading(folder, "its files cannot be read", "run the same 'crowdrank run' again; finished stages are kept")


def read_csv(path: Path) -> pa.Table:
    """Read a table of a run: ids are text, columns without any number are floats."""
    table = pyarrow.csv.read_csv(
        path,
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={
                **dict.fromkeys(TEXT_COLUMNS, pa.string()),
                **dict.fromkeys(FLOAT_COLUMNS, pa.float64()),
            },
            strings_can_be_null=False,
        ),
    )
    for place, name in enumerate(table.column_names):
        if pa.types.is_null(table[name].type):
            table = table.set_column(place, name, table[name].cast(pa.float64()))
    return table


_READERS: Mapping[str, Callable[[Path], pa.Table]] = {".csv": read_csv, ".parquet": read_parquet}


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return an Arrow table as a pandas DataFrame with ids as text."""
    frame: pd.DataFrame = table.to_pandas()
    names = [name for name in TEXT_COLUMNS if name in frame]
    return frame.assign(**{name: frame[name].fillna("").astype(str) for name in names})


def json_number(value: Any) -> Any:
    """Return None in place of a number that JSON does not have.

    >>> json_number(float("nan")), json_number(0.5), json_number("text")
    (None, 0.5, 'text')
    """
    return None if isinstance(value, float) and not np.isfinite(value) else value
