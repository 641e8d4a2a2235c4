"""Create commands whose options are the fields of dataclasses."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from crowdrank._options import check_choices, documented_name, option_fields, option_name, union_members
from crowdrank.cli.console import Command
from crowdrank.errors import parameter_prefix

MAX_CHOICES_LENGTH = 42
"""Maximum length of a list of choices shown as `[a|b]` after an option; a longer list is part of its help text."""
CommandLineOptions = dict[str, Any]
"""Options that the user typed on the command line, by name, even if the value equals the default."""


@dataclass(frozen=True)
class FieldsOf:
    """Annotation of a command's parameter that is replaced by options for the fields of a dataclass.

    A parameter of type `CommandLineOptions` may have several of these and gets a dictionary of the options that
    the user typed; any other parameter gets an instance of the dataclass.

    Attributes:
        settings: a dataclass whose fields are made with :func:`crowdrank._options.option`.
        panel: title above the options in the help.
        prefix: prefix of the names of the options.
        only: names of the fields to offer; by default all.
        without: names of the fields not to offer.

    """

    settings: type
    panel: str = "Options"
    prefix: str = ""
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def fields(self) -> list[tuple[Field[Any], Any]]:
        """Return the fields that become options, each with its type."""
        return [
            (one, hint)
            for one, hint in option_fields(self.settings)
            if one.name not in self.without and (not self.only or one.name in self.only)
        ]

    def name(self, field: Field[Any]) -> str:
        """Return the name of the option of a field."""
        return self.prefix + option_name(field.name)

    def parameters(self) -> list[inspect.Parameter]:
        """Return one function parameter per option, annotated for typer."""
        return [self._parameter(field, hint) for field, hint in self.fields()]

    def _parameter(self, field: Field[Any], type_hint: Any) -> inspect.Parameter:
        more, kind, about = dict(field.metadata["more"]), union_members(type_hint)[0], field.metadata["help"]
        if get_origin(kind) is Literal:  # the dataclass checks the value
            choices = "|".join(get_args(kind))
            if len(choices) <= MAX_CHOICES_LENGTH:
                more["metavar"] = f"[{choices}]"
            else:
                more["metavar"], about = "NAME", f"{about} One of {', '.join(get_args(kind))}."
            more["autocompletion"] = complete_from(get_args(kind))
        if kind == list[Path]:
            more["metavar"] = "<path>"
        if get_origin(kind) in (Literal, tuple):  # a tuple is written as names separated by commas
            kind = str
        default = None if field.default is MISSING else field.default
        flags = field.metadata["flags"]
        if flags and not any(flag.startswith("--") for flag in flags):
            flags = (f"--{self.name(field).replace('_', '-')}", *flags)
        info = typer.Option(*flags, help=about, rich_help_panel=self.panel, **more)
        annotation: Any = Annotated[kind | None if default is None else kind, info]
        return inspect.Parameter(
            self.name(field), inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )

    def build(self, option_values: Mapping[str, Any]) -> Any:
        """Create the dataclass from the values of the options; raise UsageError if one is invalid."""
        named = {field.name: option_values[self.name(field)] for field, _ in self.fields()}
        with parameter_prefix(self.prefix):
            settings = self.settings(**{name: value for name, value in named.items() if value is not None})
            check_choices(settings)
        return settings


def complete_from(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a shell completion function: it lists the names that start with a text.

    >>> complete_from(["gda", "glad", "rasch"])("g")
    ['gda', 'glad']
    """
    known = list(names)
    return lambda incomplete: [name for name in known if name.startswith(incomplete)]


def command_group(group_name: str, help: str, **more: Any) -> typer.Typer:
    """Return a typer application for a group of commands; `more` are further arguments of typer."""
    return typer.Typer(
        name=group_name,
        help=help,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": documented_name},
        **more,
    )


def add_command(app: typer.Typer, function: Callable[..., None], help_panel: str = "", command_name: str = "") -> None:
    """Add a function to a typer application as a command.

    The docstring is the help; what follows `Examples:` in it is shown below the options.
    """
    about, _, examples = inspect.cleandoc(function.__doc__ or "").partition("Examples:")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    app.command(
        command_name or function.__name__.replace("_", "-"),
        cls=Command,
        help=about.strip(),
        epilog="\n\n".join(["[bold]Examples:[/bold]", *(line.replace("[", "\\[") for line in lines)])
        if lines
        else None,
        rich_help_panel=help_panel or None,
    )(with_options(function))


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function with one option per field of a dataclass in place of each parameter marked by `FieldsOf`."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, tuple[FieldsOf, ...]] = {}
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = {"ctx": context}
    for name, parameter in inspect.signature(function).parameters.items():
        marks = tuple(one for one in get_args(hints[name])[1:] if isinstance(one, FieldsOf))
        if marks:
            groups[name] = marks
            parameters |= {option.name: option for one in marks for option in one.parameters()}
        else:
            parameters[name] = parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)

    @functools.wraps(function)
    def command(ctx: typer.Context, **values: Any) -> None:
        arguments = {name: value for name, value in values.items() if name in hints}
        for name, marks in groups.items():
            wants_typed_options = get_args(hints[name])[0] == CommandLineOptions
            arguments[name] = _command_line_options(ctx, marks) if wants_typed_options else marks[0].build(values)
        function(**arguments)

    command.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    command.__annotations__ = {name: one.annotation for name, one in parameters.items()} | {"return": None}
    return command


def _command_line_options(ctx: typer.Context, field_groups: tuple[FieldsOf, ...]) -> CommandLineOptions:
    names = [one.name(field) for one in field_groups for field, _ in one.fields()]
    sources = {name: ctx.get_parameter_source(name) for name in names}
    return {
        name: ctx.params[name] for name, source in sources.items() if source is not None and source.name != "DEFAULT"
    }
