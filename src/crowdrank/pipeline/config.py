"""A run from files: which they are, how they are read, and the TOML file that may say all of it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from crowdrank._base import OPTION_NAMES
from crowdrank.errors import InputError, UsageError, near, parameter_prefix
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.limits import default_limit
from crowdrank.judgments.read import Features, read_gold, read_judgments
from crowdrank.judgments.table import Judgments
from crowdrank.pipeline.settings import Settings
from crowdrank.rankers.trec_run import join_features

PATHS = ("judgments", "features", "expert", "honeypots", "output", "scales", "exclude")
READING = ("format", "columns", "separator", "grades", "scales", "unjudgeable", "repeats", "exclude", "family_pattern")
EXPERT = ("expert_format", "expert_columns", "expert_grades", "expert_unjudgeable")
TABLES = ("trees", "linear", "boosted")


@dataclass(frozen=True)
class Files:
    """The files of a run, and the options to read them with."""

    judgments: Path
    features: list[Path]
    expert: Path | None = None
    honeypots: Path | None = None
    output: Path | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    expert_reading: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> tuple[Files, dict[str, Any]]:
        """The files that options name, and the options that are settings of the run."""
        left = dict(told)
        for name in ("judgments", "features"):
            if not left.get(name):
                raise UsageError(f"A run needs {name}: name them with --{name}, or in the TOML file.")
        reading = {name: left.pop(name) for name in (*READING, "on_bad_rows", "max_bytes") if name in left}
        expert = {name.removeprefix("expert_"): left.pop(name) for name in EXPERT if name in left}
        named = {name: left.pop(name, None) for name in ("judgments", "features", "expert", "honeypots", "output")}
        features = named.pop("features")
        listed = [Path(path) for path in (features if isinstance(features, list) else [features])]
        paths = {name: None if path is None else Path(path) for name, path in named.items()}
        parameters = {option: parameter for parameter, option in OPTION_NAMES.items()}
        left = {parameters.get(name, name): value for name, value in left.items()}
        Settings.of(left)  # what is wrong is told before the files are read
        return cls(features=listed, reading=reading, expert_reading=expert, **paths), left  # type: ignore[arg-type]

    def read(self) -> tuple[Judgments, Features, Gold | None, Gold | None]:
        """Read judgments, features, expert grades and honeypots."""
        with default_limit(self.reading.get("max_bytes")):
            table = read_judgments(self.judgments, **self.reading)
            known = join_features(self.features)
            with parameter_prefix("expert_"):
                expert = None if self.expert is None else read_gold(self.expert, **self.expert_reading)
            planted = None if self.honeypots is None else read_gold(self.honeypots, grades=self.reading.get("grades"))
        return table, known, expert, planted


def read_config(path: Path) -> dict[str, Any]:
    r"""The options in a TOML file; paths are as seen from its folder.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "run.toml"
    >>> _ = place.write_text('judgments = "labels.csv"\ntest = 0.5\n[trees]\nnum_leaves = 7')
    >>> told = read_config(place)
    >>> told["judgments"].name, told["test"], told["trees"]
    ('labels.csv', 0.5, {'num_leaves': 7})
    """
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"it cannot be read ({problem.strerror})", source=str(path)) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InputError(f"it is not TOML ({problem})", source=str(path)) from problem
    _require_known(told, path)
    for name in PATHS:
        if name in told:
            told[name] = _resolved(told[name], name, path)
    return told


def _require_known(told: Mapping[str, Any], path: Path) -> None:
    """Refuse a name that means nothing to a run, in the file that has it."""
    settings = [OPTION_NAMES.get(one.name, one.name) for one in fields(Settings)]
    names = list(dict.fromkeys([*PATHS, *settings, *READING, "on_bad_rows", "max_bytes", *EXPERT]))
    for name, value in told.items():
        if isinstance(value, dict) and name not in TABLES:
            raise InputError(
                f"there is no section '{name}'{near(name, TABLES)}",
                source=str(path),
                fix=f"the sections are {', '.join(TABLES)}",
            )
        if name not in names:
            raise InputError(
                f"a run has no option '{name}'{near(name, names)}",
                source=str(path),
                fix=f"the options are {', '.join(names)}",
            )


def _resolved(value: Any, name: str, config: Path) -> Any:
    if isinstance(value, list) and name == "features":
        return [_resolved(one, name, config) for one in value]
    if not isinstance(value, str):
        raise InputError(f"{name} is a path, not {value!r}", source=str(config))
    return config.parent / value
