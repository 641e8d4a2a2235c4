"""Messages name options on the command line, and only those that the command has."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import typer

import crowdrank
from crowdrank.cli.app import app
from crowdrank.cli.console import option_writer, print_read_report
from crowdrank.errors import Fix, Message
from crowdrank.judgments.table import ReadReport
from terminal import crowdrank as run_crowdrank
from terminal import without_columns
from tools.command_line import commands

PACKAGE = Path(crowdrank.__file__).parent
COMMANDS = dict(commands(typer.main.get_command(app)))
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def literals(path: Path) -> list[Fix]:
    """Return the fixes in a file whose text and parameter are literals."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Fix":
            words: list[Any] = [one.value for one in node.args if isinstance(one, ast.Constant)]
            if len(words) == len(node.args) and words:
                found.append(Fix(*words))
    return found


FIXES = sorted({fix for path in PACKAGE.rglob("*.py") for fix in literals(path)}, key=str)


@pytest.mark.parametrize("name", COMMANDS)
def test_fixes_name_options_of_the_command(name: str) -> None:
    options = {word for one in COMMANDS[name].params for word in (*one.opts, *one.secondary_opts)}
    assert len(FIXES) >= 5
    for fix in FIXES:
        text = fix.render(option_writer(COMMANDS[name].params))
        assert text is None or set(OPTION.findall(text)) <= options, fix
        assert not OPTION.search(fix.text), "a parameter is a field of the fix"


def texts(path: Path) -> list[str]:
    """Return the strings in a file that are not docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in alone]
    return [one.value for one in constants if isinstance(one.value, str)]


def names_option(text: str) -> bool:
    """Return whether a text names an option; the flags of an option itself are no text."""
    return OPTION.search(text) is not None and not OPTION.fullmatch(text)


def test_the_library_names_no_options() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "cli"]
    found = {str(path.relative_to(PACKAGE)) for path in files if any(map(names_option, texts(path)))}
    assert not found


def test_a_parameter_is_written_as_the_command_takes_it() -> None:
    write = option_writer(COMMANDS["crowdrank aggregate"].params)
    assert write("grades", "Bad,Very good") == "--grades 'Bad,Very good'"
    assert write("n_jobs", None) == "--threads"
    assert write("judgments", None) == "JUDGMENTS"
    assert write("ordinal", True) == "-s ordinal=True"
    assert write("gold_grades", "0-4") == "--expert-grades 0-4"
    assert write("validation", "0.2") is None
    assert option_writer(COMMANDS["crowdrank simulate"].params)("overwrite", True) == "--overwrite"


def test_columns_notes_and_skipped_rows_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    note = Message("the scale is a guess", "scale-in-doubt", "note", fixes=(Fix("give it with {}", "grades", "0-4"),))
    columns = {"query": "topic", "document": "docid", "grade": "label"}
    print_read_report(ReadReport(columns=columns, notes=(note,), skipped={"no grade": 2}), [Path("labels.csv")])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Columns of labels.csv: query = topic, document = docid, grade = label."
    assert lines[1].startswith("Note: the scale is a guess")
    assert lines[2] == "Note: 2 rows left out (no grade)."


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("train", "-f", "f.csv", "-o", "model"), "The features have no grades; name a file of labels with --labels."),
        (("run", "-f", "f.csv"), "A run needs judgments; name them with --judgments, or name them in the TOML file."),
        (
            ("aggregate", "f.csv", "--work", "w"),
            "--work is for a folder of Parquet files, and f.csv is not one; leave it out.",
        ),
    ],
)
def test_golden_messages(words: tuple[str, ...], error: str, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("query,document,bm25\nq,a,1\nq,b,2\n")
    done = run_crowdrank(*words, cwd=tmp_path)
    assert (done.returncode, without_columns(done.stderr)) == (2, f"Error: {error}\n")
