"""Write the page of the command line from the commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from crowdrank.cli.app import app
from tools.markdown import plain, table

OPENING = """# Command line

Generated from the program: the same text as `crowdrank COMMAND --help`.

`crowdrank --install-completion` installs completion of commands and options for your shell. `--quiet` before the
command prints only results and errors. Without a terminal, or with the environment variable `NO_COLOR`, nothing is
colored. With `--json` a command prints one JSON document on standard output and nothing else. Exit codes: 0 success,
2 error (one line on standard error says what is wrong and how to fix it), 3 budget spent (of `judge run` and
`judge service`; the answers so far are written), 1 worse and 3 not enough evidence (of `gate`), 130 interrupted
(Ctrl-C), 143 terminated (SIGTERM). If the reader of the output closes it (`crowdrank aggregate labels.csv | head`), the
command still finishes its work, writes its files and ends with the same exit code.
"""


def page() -> str:
    """Return the page with every command, its arguments, options and examples."""
    root = typer.main.get_command(app)
    parts = [OPENING, "## crowdrank", _options(root)]
    for name, command in commands(root):
        usage = f"```text\n{_usage(name, command)}\n```"
        parts += [f"## {name}", plain(command.help or ""), usage, _options(command), _examples(command)]
    return "\n\n".join(part for part in parts if part) + "\n"


def commands(group: Any, name: str = "crowdrank") -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name."""
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


def _usage(name: str, command: Any) -> str:
    arguments = [_argument(one) for one in command.params if one.param_type_name == "argument"]
    needed = [f"{one.opts[0]} {_value(one)}" for one in command.params if _is_option(one) and one.required]
    return " ".join([name, *needed, "[OPTIONS]", *arguments])


def _argument(one: Any) -> str:
    name = str(one.metavar or one.name).upper().removesuffix("...")
    many = f"{name}..." if one.nargs == -1 else name
    return many if one.required else f"[{many}]"


def _is_option(one: Any) -> bool:
    return one.param_type_name == "option" and not one.hidden


def _options(command: Any) -> str:
    """Return one table per panel, in the order of the help."""
    panels: dict[str, list[list[str]]] = {"Arguments": [], "Options": []}
    for one in command.params:
        if one.param_type_name == "argument":
            panels["Arguments"].append([f"`{_argument(one)}`", plain(one.help or "")])
        elif _is_option(one):
            panels.setdefault(one.rich_help_panel or "Options", []).append([_names(one), _meaning(one)])
    return "\n\n".join(table([name, "Description"], rows, [True, True]) for name, rows in panels.items() if rows)


def _examples(command: Any) -> str:
    """Return the examples that follow the options in the help."""
    lines = [line.replace("\\[", "[") for line in (command.epilog or "").split("\n\n")[1:]]
    return "Examples:\n\n```text\n" + "\n".join(lines) + "\n```" if lines else ""


def _names(one: Any) -> str:
    names = [f"`{name}`" for name in (*one.opts, *one.secondary_opts)]
    return f"{', '.join(names)} {plain(_value(one))}".rstrip()


def _value(one: Any) -> str:
    """Return what stands for the value of an option; a flag has none."""
    return "" if one.is_flag else str(one.metavar or one.name.upper().replace("_", "-"))


def _meaning(one: Any) -> str:
    text, default = plain(one.help or ""), one.default
    if one.required:
        return f"{text} *Required.*"
    if isinstance(one.show_default, str):
        return f"{text} *Default: {plain(one.show_default)}.*"
    if default is None or one.is_flag or not one.show_default or callable(default):
        return text
    return f"{text} *Default: `{default}`.*"
