"""The page of the command line, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from crowdrank.cli.app import app
from tools.markdown import plain, table

OPENING = """# Command line

Made from the program itself: what stands here is what `crowdrank VERB --help` says.

`crowdrank --install-completion` teaches your shell the verbs and options. `--quiet` before the verb leaves only
results and errors. Without a terminal, or with the environment variable `NO_COLOR`, nothing is colored. Every verb
with `--json` prints one JSON document and nothing else on standard output. Exit codes: 0 done, 2 something was asked
for that cannot be done (one sentence on standard error says what and how to mend it), 130 interrupted (Ctrl-C), 143
terminated (SIGTERM).
"""


def page() -> str:
    """Every verb with its arguments and options."""
    root = typer.main.get_command(app)
    parts = [OPENING, "## crowdrank", _options(root)]
    for name, command in _verbs(root, "crowdrank"):
        parts += [f"## {name}", plain(command.help or ""), f"```text\n{_usage(name, command)}\n```", _options(command)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _verbs(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    for verb, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _verbs(command, f"{name} {verb}")
        else:
            yield f"{name} {verb}", command


def _usage(name: str, command: Any) -> str:
    arguments = [_argument(one) for one in command.params if one.param_type_name == "argument"]
    needed = [f"{one.opts[0]} {_value(one)}" for one in command.params if _is_option(one) and one.required]
    return " ".join([name, *needed, "[OPTIONS]", *arguments])


def _argument(one: Any) -> str:
    name = str(one.metavar or one.name).upper()
    many = f"{name}..." if one.nargs == -1 else name
    return many if one.required else f"[{many}]"


def _is_option(one: Any) -> bool:
    return one.param_type_name == "option" and not one.hidden


def _options(command: Any) -> str:
    """One table for each group of options, in the order of the first of each."""
    groups: dict[str, list[list[str]]] = {}
    for one in command.params:
        if one.param_type_name == "argument":
            row = [f"`{one.metavar or one.name.upper()}`", plain(one.help or "")]
            groups.setdefault("Arguments", []).append(row)
        elif _is_option(one):
            groups.setdefault(one.rich_help_panel or "Options", []).append([_names(one), _meaning(one)])
    return "\n\n".join(table([name.lower(), "what it does"], rows, [True, True]) for name, rows in groups.items())


def _names(one: Any) -> str:
    names = [f"`{name}`" for name in (*one.opts, *one.secondary_opts)]
    return f"{', '.join(names)} {plain(_value(one))}".rstrip()


def _value(one: Any) -> str:
    """What the option takes; a flag takes nothing."""
    return "" if one.is_flag else str(one.metavar or one.name).upper().replace("_", "-")


def _meaning(one: Any) -> str:
    said = plain(one.help or "")
    default = one.default
    if one.required:
        return f"{said} *Needed.*"
    if default is None or one.is_flag or not one.show_default or callable(default):
        return said
    return f"{said} *Unless given: `{default}`.*"
