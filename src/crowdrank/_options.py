"""Dataclass fields that are options of the command line and of TOML files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import Field, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from crowdrank._estimator import OPTION_NAMES, require_one_of
from crowdrank.constraints import Constraint, check_parameter
from crowdrank.errors import Fix, InputError


def option(default: Any, help: str, *flags: str, valid: Constraint | None = None, **typer_arguments: Any) -> Any:
    """Return a dataclass field that the command line and TOML files offer as an option.

    Args:
        default: default value of the field.
        help: description of the option, one or two short sentences.
        flags: flags of the option, such as `--set` and `-s`; without a long flag, it is the name of the field.
        valid: constraint of the value, which the help states too.
        typer_arguments: further arguments of `typer.Option`.

    """
    about = help if valid is None else f"{help.removesuffix('.')}: {valid}."
    metadata = {"help": about, "flags": flags, "more": typer_arguments, "valid": valid}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def option_fields(dataclass_type: type) -> Iterator[tuple[Field[Any], Any]]:
    """Yield the fields of a dataclass that are options, each with its type."""
    hints = get_type_hints(dataclass_type)
    for one in fields(dataclass_type):
        if "help" in one.metadata:
            yield one, hints[one.name]


def option_name(parameter: str) -> str:
    """Return the name of the option for a Python parameter, on the command line and in TOML files.

    >>> option_name("random_state"), option_name("measure"), option_name("gold_grades")
    ('seed', 'measure', 'expert_grades')
    """
    return documented_name(OPTION_NAMES.get(parameter, parameter))


def documented_name(name: str) -> str:
    """Return the documented name of an option: `gold...` is an alias of `expert...`, which the help does not show.

    >>> documented_name("gold-grades"), documented_name("grades")
    ('expert-grades', 'grades')
    """
    return re.sub(r"^gold(?=[-_]|$)", "expert", name)


def union_members(type_hint: Any) -> tuple[Any, ...]:
    """Return the types of a union except None; for any other type, the type itself.

    >>> union_members(int | None)
    (<class 'int'>,)
    """
    if get_origin(type_hint) not in (Union, UnionType):
        return (type_hint,)
    return tuple(one for one in get_args(type_hint) if one is not type(None))


def check_choices(settings: Any) -> None:
    """Raise UsageError if the value of an option is none of the choices of its type, or violates its constraint."""
    for one, hint in option_fields(type(settings)):
        value, kind, valid = getattr(settings, one.name), union_members(hint)[0], one.metadata["valid"]
        if value is None and kind is not hint:
            continue
        if get_origin(kind) is Literal:
            require_one_of(one.name, value, get_args(kind))
        if valid is not None:
            check_parameter(one.name, value, [valid])


def read_toml(path: Path, fix: Fix | None = None) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        InputError: the file cannot be read; or it is not TOML, for which the error has `fix`.

    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"it cannot be read ({problem.strerror})", source=str(path), kind="no-file") from problem
    except (ValueError, RecursionError) as problem:  # not UTF-8, not TOML, a number with thousands of digits
        raise InputError(
            f"it is not TOML ({str(problem)[:200]})", source=str(path), kind="not-toml", fix=fix or ()
        ) from problem
