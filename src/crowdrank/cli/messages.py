"""Render errors, warnings and notes that name options of the current command (`--grades`, not `grades=`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from itertools import chain
from shlex import quote
from typing import Any

from typer.core import TyperCommand

from crowdrank._options import option_name
from crowdrank.errors import Message, ParameterText
from crowdrank.judgments.limits import default_max_bytes

SETTING_OPTION = "setting"
"""Name of the command option that sets parameters of a model (`-s`)."""

_CURRENT_OPTIONS: ContextVar[Sequence[Any]] = ContextVar("options", default=())
"""Options of the current command."""


class Command(TyperCommand):
    """Command that makes its options known to `render` and applies `--max-bytes` to every file that it reads."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        _CURRENT_OPTIONS.set(self.params)
        with default_max_bytes(ctx.params.get("max_bytes")):
            return super().invoke(ctx)


def render(message: Message) -> str:
    """Return the text of a message, with parameters written as options of the current command."""
    return message.render(option_writer(_CURRENT_OPTIONS.get()))


def option_writer(options: Iterable[Any]) -> ParameterText:
    """Return a function that writes a Python parameter as an option; it returns None if there is no such option.

    Args:
        options: options and arguments of a typer command.

    """
    known = {one.name: one for one in options}

    def write(name: str, value: object) -> str | None:
        option = known.get(option_name(name))
        if option is None:
            return _as_setting(name, value) if SETTING_OPTION in known else None
        if option.param_type_name == "argument":
            name = (option.metavar or option.name.upper()).removesuffix("...")
            return name if value is None else quote(str(value))
        flag = max(option.opts, key=len)
        return flag if value is None or option.is_flag else f"{flag} {quote(str(value))}"

    return write


def _as_setting(name: str, value: object) -> str | None:
    """Return a model parameter as the option `-s name=value`, or None if no model has the parameter."""
    from crowdrank.consensus import METHODS, get_aggregator
    from crowdrank.rankers import RANKERS, get_ranker

    models: Iterator[Any] = chain(map(get_aggregator, METHODS), map(get_ranker, RANKERS))  # loads as few as needed
    if not any(name in model._parameter_names() for model in models):
        return None
    return f"-s {name}" if value is None else f"-s {name}={quote(str(value))}"
