"""Fields of dataclasses that the command line and TOML files offer as options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, field, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from crowdrank._base import OPTION_NAMES, require_one_of


def option(default: Any, help: str, *flags: str, **more: Any) -> Any:
    """Return a dataclass field that is an option.

    Args:
        default: default value of the field.
        help: description of the option, one or two short sentences.
        flags: how the option is written, such as `--set` and `-s`; without a long one, it has its name.
        more: further arguments of `typer.Option`.

    """
    metadata = {"help": help, "flags": flags, "more": more}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def option_fields(settings: type) -> Iterator[tuple[Field[Any], Any]]:
    """Yield the fields of a dataclass that are options, each with its type."""
    hints = get_type_hints(settings)
    for one in fields(settings):
        if "help" in one.metadata:
            yield one, hints[one.name]


def option_name(parameter: str) -> str:
    """Return the name of a parameter on the command line and in TOML files.

    >>> option_name("random_state"), option_name("measure")
    ('seed', 'measure')
    """
    return OPTION_NAMES.get(parameter, parameter)


def members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union other than None, or the type itself.

    >>> members(int | None)
    (<class 'int'>,)
    """
    if get_origin(hint) not in (Union, UnionType):
        return (hint,)
    return tuple(one for one in get_args(hint) if one is not type(None))


def check_choices(settings: Any) -> None:
    """Raise UsageError if a field whose type is a `Literal` has another value."""
    for name, hint in get_type_hints(type(settings)).items():
        value, kind = getattr(settings, name), members(hint)[0]
        if get_origin(kind) is Literal and not (value is None and kind is not hint):
            require_one_of(name, value, get_args(kind))
