"""Files and settings of a run, their defaults, and the TOML files that set them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_origin

from crowdrank._options import (
    check_choices,
    documented_name,
    option,
    option_fields,
    option_name,
    read_toml,
    union_members,
)
from crowdrank.consensus import METHODS, get_aggregator
from crowdrank.consensus.calibration import CALIBRATE_HELP
from crowdrank.constraints import Number, OneOf
from crowdrank.errors import Fix, InputError, UsageError, near, parameter_prefix, shown
from crowdrank.readers.read_options import EXPERT_FLAGS, GoldReadOptions, PreferenceReadOptions, ReadOptions

if TYPE_CHECKING:
    from crowdrank.judgments.gold import Gold
    from crowdrank.judgments.preferences import Preferences
    from crowdrank.judgments.table import Judgments
    from crowdrank.readers.features import Features

FOREST_PARAMETERS = ("n_trees", "learning_rate", "num_leaves")
"""Parameters of the forest that imitates the selected ranker."""


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run.

    Fields that are options have their description in the help; the others are tables of a TOML file:

    Attributes:
        method_settings: parameters of the consensus model.
        trees, linear, boosted: parameters of LambdaMART and of the linear and boosted remappers.
        forest: parameters of `distill` for the forest that imitates the selected ranker, such as `n_trees`.

    >>> RunSettings(measure="AP").test, RunSettings(gains="linear").measure
    (0.35, "nDCG(dcg='log2')@10")
    """

    method: str = option("gda", "Consensus model whose labels are written", "-m", valid=OneOf(*METHODS))
    measure: str = option("nDCG@10", "Measure that rankers are selected and compared by, such as nDCG@10 or AP.")
    gains: str = option("exponential", "Gain of each grade: exponential, linear, or a list such as 0,1,3,7,15.")
    candidates: tuple[str, ...] | None = option(
        None, "Candidates to train, such as majority,gda,expert-only; ensembles are made of them."
    )
    thorough: bool = option(False, "Train slow candidates too.")
    deployable: bool = option(False, "Select among single forests only, which search engines can evaluate.")
    baseline: str = option(
        "majority", "Baseline: a candidate, feature:NAME, a TREC run (file), or a saved ranker or remapper (folder)."
    )
    rankers: bool = option(True, "Train rankers if there are features.")
    feature_labels: bool = option(
        False, "Report also labels that use the features. No ranker is trained or tested on them."
    )
    calibrate: bool = option(True, CALIBRATE_HELP)
    allow_leak: bool = option(False, "Use features that seem to hold the expert grades.")
    test: float = option(
        0.35, "Share of the expert queries held out for the final test (0: no test)", valid=Number(0, 1, below=True)
    )
    folds: int = option(5, "Number of cross-validation folds for the selection", valid=Number(2, integer=True))
    refit: bool = option(True, "Train the selected ranker again on all data, including the test queries.")
    unjudgeable_as: Literal["lowest", "drop", "model"] = option(
        "lowest", "Use 'cannot judge' answers as the lowest grade, drop them, or let the method model them."
    )
    n_jobs: int | None = option(None, "Number of threads", show_default="one per core", valid=Number(1, integer=True))
    random_state: int = option(0, "Random seed", valid=Number(0, integer=True))
    method_settings: Mapping[str, Any] = field(default_factory=dict)
    trees: Mapping[str, Any] = field(default_factory=dict)
    linear: Mapping[str, Any] = field(default_factory=dict)
    boosted: Mapping[str, Any] = field(default_factory=dict)
    forest: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RunSettings:
        """Return settings from values by name; candidates may be a text with commas.

        >>> RunSettings.of({"mesure": "AP"})
        Traceback (most recent call last):
        crowdrank.errors.UsageError: A run has no setting 'mesure' (did you mean 'measure'?); it has:
        method, ...
        >>> RunSettings.of({"candidates": "majority, gda"}).candidates
        ('majority', 'gda')
        """
        names = [one.name for one in fields(cls)]
        unknown = next((name for name in values if name not in names), None)
        if unknown is not None:
            raise UsageError(f"A run has no setting '{unknown}'{near(unknown, names)}; it has: {', '.join(names)}.")
        return cls(**{**values, "candidates": _split_names(values.get("candidates"))})

    def __post_init__(self) -> None:
        from crowdrank.evaluation.measures import parse_measure
        from crowdrank.rankers.model_selection import check_validation

        check_choices(self)
        check_validation(self.measure)
        object.__setattr__(self, "measure", str(parse_measure(self.measure).with_gains(self.gains)))
        if isinstance(self.candidates, str) or (self.candidates is not None and not self.candidates):
            raise UsageError("must be one or more names", parameter="candidates")
        if self.method_settings:
            get_aggregator(self.method).set_params(**self.method_settings)._check_parameters()
        unknown = next((name for name in self.forest if name not in FOREST_PARAMETERS), None)
        if unknown is not None:
            problem = f"must have {', '.join(FOREST_PARAMETERS)}, not '{unknown}'{near(unknown, FOREST_PARAMETERS)}"
            raise UsageError(problem, parameter="forest", kind="unknown-parameter")
        if self.unjudgeable_as == "model" and not _models_unjudgeable(self.method):
            problem = f"'model' needs a consensus method that models 'cannot judge' answers, not {self.method}"
            raise UsageError(problem, parameter="unjudgeable_as", fix=Fix("take {}", "method", "gda"))
        if self.feature_labels:
            self._check_feature_labels()

    def _check_feature_labels(self) -> None:
        """Raise UsageError if the consensus model cannot use features."""
        from crowdrank.consensus.feature_prior import FeatureAggregator

        able = [method for method in METHODS if isinstance(get_aggregator(method), FeatureAggregator)]
        if self.method not in able:
            problem = f"needs a consensus method that can use features ({', '.join(able)}), not {self.method}"
            raise UsageError(problem, parameter="feature_labels", kind="no-prior", fix=Fix("take {}", "method", "gda"))
        get_aggregator(self.method, **self.consensus_parameters[self.method])._check_features()

    @property
    def consensus_parameters(self) -> dict[str, dict[str, Any]]:
        """Parameters of consensus models that are not the defaults, by method."""
        parameters = {self.method: dict(self.method_settings)}
        if self.unjudgeable_as == "model":
            for method in filter(_models_unjudgeable, METHODS):
                parameters[method] = {"unjudgeable_as": "model", **parameters.get(method, {})}
        return parameters

    def to_dict(self) -> dict[str, Any]:
        """Return the settings by name, ready for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def _models_unjudgeable(method: str) -> bool:
    """Return whether a consensus model can model 'cannot judge' answers."""
    try:
        get_aggregator(method, unjudgeable_as="model")._check_parameters()
    except UsageError:
        return False
    return True


def _split_names(names: Any) -> Any:
    """Return names as a tuple: from a list, or from a text with commas between them."""
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",") if name.strip()]
    return tuple(names) if isinstance(names, list) else names


TABLES = tuple(one.name for one in fields(RunSettings) if "help" not in one.metadata)
"""Tables that a TOML file may have: parameters of models."""


@dataclass(frozen=True)
class RunFiles:
    """Input files and output folder of a run."""

    judgments: list[Path] = option([], "Judgments of the crowd. Repeatable.", "-j")
    preferences: list[Path] = option(
        [], "Preferences between two judged documents, for the consensus by gda and for a candidate. Repeatable."
    )
    features: list[Path] = option(
        [], "Features of documents: LETOR, CSV, ... Without them no ranker is trained. Repeatable.", "-f"
    )
    expert: Path | None = option(None, "Expert grades of some queries.", *EXPERT_FLAGS)
    honeypots: Path | None = option(None, "Honeypots with their correct grades; no ranker is trained on them.")
    texts: list[Path] = option([], "Texts of queries and documents that the report shows. Repeatable.")
    output: Path | None = option(None, "Folder for the results.", "-o")


PREFIXES: Mapping[type, str] = {
    RunFiles: "",
    RunSettings: "",
    ReadOptions: "",
    GoldReadOptions: "expert_",
    PreferenceReadOptions: "preferences_",
}
"""Prefix of the names of options for each dataclass whose fields are options of a run."""


@dataclass(frozen=True)
class RunConfig:
    """Files, read options and settings of a run."""

    files: RunFiles
    settings: RunSettings
    reading: ReadOptions
    expert_reading: GoldReadOptions
    preference_reading: PreferenceReadOptions

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> RunConfig:
        """Return the configuration that options by name give; options that are missing have their defaults."""
        values: dict[type, dict[str, Any]] = {}
        for kind, prefix in PREFIXES.items():
            names = {prefix + option_name(one.name): one.name for one, _ in option_fields(kind)}
            values[kind] = {names[name]: value for name, value in options.items() if name in names}
        tables = {name: options[name] for name in TABLES if name in options}
        hints = {one.name: hint for one, hint in option_fields(RunFiles)}
        files = {name: _paths(value, hints[name]) for name, value in values[RunFiles].items()}
        if not files.get("judgments"):
            fixes = (Fix("name them with {}", "judgments"), Fix("name them in the TOML file"))
            raise UsageError("A run needs judgments", kind="no-judgments", fix=fixes)
        reading, expert_reading = ReadOptions(**values[ReadOptions]), GoldReadOptions(**values[GoldReadOptions])
        preference_reading = PreferenceReadOptions(**values[PreferenceReadOptions])
        for one in (reading, expert_reading, preference_reading):
            with parameter_prefix(PREFIXES[type(one)]):
                check_choices(one)
        settings = RunSettings.of({**values[RunSettings], **tables})
        return cls(RunFiles(**files), settings, reading, expert_reading, preference_reading)

    def read(self) -> tuple[Judgments, Features | None, Gold | None, Gold | None]:
        """Read judgments, features, expert grades and honeypots."""
        from crowdrank.readers.files import default_max_bytes
        from crowdrank.readers.read import read_gold, read_judgments

        files, features, expert, honeypots = self.files, None, None, None
        with default_max_bytes(self.reading.max_bytes):
            source = files.judgments[0] if len(files.judgments) == 1 else files.judgments
            judgments = read_judgments(source, **asdict(self.reading))
            if files.features:
                from crowdrank.rankers.rank_files import join_features

                features = join_features(files.features)
            if files.expert is not None:
                with parameter_prefix(PREFIXES[GoldReadOptions]):
                    expert = read_gold(files.expert, **asdict(self.expert_reading), scale=judgments.main_scale)
            if files.honeypots is not None:
                honeypots = read_gold(files.honeypots, grades=self.reading.grades, scale=judgments.main_scale)
        return judgments, features, expert, honeypots

    def read_preferences(self) -> Preferences | None:
        """Read the preferences, without the assessors that are excluded from the judgments; None without files."""
        from crowdrank.readers.preference_files import read_preferences

        if not self.files.preferences:
            return None
        shared = {"exclude": self.reading.exclude, "max_bytes": self.reading.max_bytes}
        with parameter_prefix(PREFIXES[PreferenceReadOptions]):
            return read_preferences(self.files.preferences, **(asdict(self.preference_reading) | shared))


def _paths(value: Any, hint: Any) -> Any:
    """Return a list of paths if that is the type of the option, otherwise one path or None."""
    if hint != list[Path]:
        return None if value is None else Path(value)
    return [Path(one) for one in (value if isinstance(value, list | tuple) else [value])]


def read_config(path: Path) -> dict[str, Any]:
    r"""Read the options in a TOML file, with the types of the options; paths are relative to its folder.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "run.toml"
    >>> _ = place.write_text('judgments = "labels.csv"\ntest = 0.5\n[trees]\nnum_leaves = 7')
    >>> options = read_config(place)
    >>> options["judgments"].name, options["test"], options["trees"]
    ('labels.csv', 0.5, {'num_leaves': 7})
    """
    options = _documented(read_toml(path, Fix("if it contains judgments, give it with {}", "judgments", path)), path)
    hints = {
        prefix + option_name(one.name): hint for kind, prefix in PREFIXES.items() for one, hint in option_fields(kind)
    }
    _require_known(options, list(hints), str(path))
    return {name: _converted(value, hints.get(name), name, path) for name, value in options.items()}


def _documented(options: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return options by their documented names; raise InputError if one is there under two names."""
    renamed = {documented_name(name): value for name, value in options.items()}
    if len(renamed) < len(options):
        twice = next(name for name in options if name != documented_name(name) and documented_name(name) in options)
        problem = f"{documented_name(twice)} and {twice} are two names of one option"
        raise InputError(problem, source=str(path), kind="option-twice", fix=f"leave out {twice}")
    return renamed


def _require_known(options: Mapping[str, Any], names: list[str], source: str) -> None:
    """Raise InputError if a TOML file has an option or a table that a run does not have."""
    for name, value in options.items():
        kind, known = ("table", TABLES) if isinstance(value, dict) else ("option", names)
        if name not in known:
            problem = f"a run has no {kind} '{name}'{near(name, known)}"
            raise InputError(problem, source=source, kind="unknown-option", fix=f"the {kind}s are {', '.join(known)}")


def _converted(value: Any, hint: Any, name: str, config: Path) -> Any:
    """Return a value of a TOML file as its option takes it; a table is returned unchanged."""
    kind = union_members(hint)[0]
    if kind == list[Path] and isinstance(value, list):
        return [_converted(one, Path, name, config) for one in value]
    if kind in (Path, list[Path]) and isinstance(value, str):
        return config.parent / value
    if kind in (Path, list[Path]):
        raise InputError(f"{name} must be a path, not {shown(value)}", source=str(config), kind="option-type")
    if kind is bool and not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, not {shown(value)}", source=str(config), kind="option-type")
    if kind is str or get_origin(kind) in (Literal, tuple):
        return _text(value, name, config)
    return value


def _text(value: Any, name: str, config: Path) -> str:
    """Return the text of an option: numbers and lists may be written as in TOML.

    >>> _text(["Bad", "Good"], "grades", Path("run.toml")), _text(-2, "unjudgeable", Path("run.toml"))
    ('Bad,Good', '-2')
    """
    values = value if isinstance(value, list) else [value]
    simple = all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in values)
    if not simple or (isinstance(value, list) and any("," in str(one) for one in value)):
        raise InputError(f"{name} must be a text, not {shown(value)}", source=str(config), kind="option-type")
    return ",".join(map(str, values))
