"""The files and settings of a run, from the command line and TOML files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_origin

from crowdrank._options import check_choices, option, option_fields, option_name, union_members
from crowdrank._toml import read_toml
from crowdrank.errors import Fix, InputError, UsageError, near, parameter_prefix, shown
from crowdrank.judgments.read_options import GoldReadOptions, ReadOptions
from crowdrank.pipeline.settings import RunSettings

if TYPE_CHECKING:
    from crowdrank.judgments.features import Features
    from crowdrank.judgments.gold import Gold
    from crowdrank.judgments.table import Judgments

TABLES = ("method_settings", "trees", "linear", "boosted", "forest")
"""Tables that a TOML file may have: parameters of models."""


@dataclass(frozen=True)
class RunFiles:
    """Input files and output folder of a run."""

    judgments: list[Path] = option([], "Judgments of the crowd. Repeatable.", "-j")
    features: list[Path] = option(
        [], "Features of documents: LETOR, CSV, ... Without them no ranker is trained. Repeatable.", "-f"
    )
    expert: Path | None = option(None, "Expert grades of some queries.", "-e")
    honeypots: Path | None = option(None, "Honeypots with their correct grades; no ranker is trained on them.")
    texts: list[Path] = option([], "Texts of queries and documents that the report shows. Repeatable.")
    output: Path | None = option(None, "Folder for the results.", "-o")


PREFIXES: Mapping[type, str] = {RunFiles: "", RunSettings: "", ReadOptions: "", GoldReadOptions: "expert_"}
"""Prefix of the names of options for each dataclass whose fields are options of a run."""


@dataclass(frozen=True)
class RunConfig:
    """Files, read options and settings of a run."""

    files: RunFiles
    settings: RunSettings
    reading: ReadOptions
    expert_reading: GoldReadOptions

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> RunConfig:
        """Return the configuration that options by name give; options that are missing have their defaults."""
        values: dict[type, dict[str, Any]] = {}
        for kind, prefix in PREFIXES.items():
            names = {prefix + option_name(one.name): one.name for one, _ in option_fields(kind)}
            values[kind] = {names[name]: value for name, value in options.items() if name in names}
        tables = {name: options[name] for name in TABLES if name in options}
        files = {name: _paths(value, name) for name, value in values[RunFiles].items()}
        if not files.get("judgments"):
            fixes = (Fix("name them with {}", "judgments"), Fix("name them in the TOML file"))
            raise UsageError("A run needs judgments", kind="no-judgments", fix=fixes)
        reading, expert_reading = ReadOptions(**values[ReadOptions]), GoldReadOptions(**values[GoldReadOptions])
        check_choices(reading)
        with parameter_prefix("expert_"):
            check_choices(expert_reading)
        settings = RunSettings.of({**values[RunSettings], **tables})
        return cls(RunFiles(**files), settings, reading, expert_reading)

    def read(self) -> tuple[Judgments, Features | None, Gold | None, Gold | None]:
        """Read judgments, features, expert grades and honeypots."""
        from crowdrank.judgments.limits import default_max_bytes
        from crowdrank.judgments.read import read_gold, read_judgments
        from crowdrank.rankers.trec_run import join_features

        files, expert, honeypots = self.files, None, None
        with default_max_bytes(self.reading.max_bytes):
            source = files.judgments[0] if len(files.judgments) == 1 else files.judgments
            judgments = read_judgments(source, **asdict(self.reading))
            features = join_features(files.features) if files.features else None
            if files.expert is not None:
                with parameter_prefix("expert_"):
                    expert = read_gold(files.expert, **asdict(self.expert_reading), scale=judgments.main_scale)
            if files.honeypots is not None:
                honeypots = read_gold(files.honeypots, grades=self.reading.grades, scale=judgments.main_scale)
        return judgments, features, expert, honeypots


def _paths(value: Any, name: str) -> Any:
    """Return a list of paths where several are allowed, otherwise one path or None."""
    if name not in ("judgments", "features", "texts"):
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
    options = read_toml(path, Fix("if it contains judgments, give it with {}", "judgments", path))
    hints = {
        prefix + option_name(one.name): hint for kind, prefix in PREFIXES.items() for one, hint in option_fields(kind)
    }
    _require_known(options, list(hints), str(path))
    return {name: _converted(value, hints.get(name), name, path) for name, value in options.items()}


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
