"""Test the sample of docstrings and names for a reader who does not know the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import sample_for_reader
from tools.sample_for_reader import find_docstrings, find_names, main

MODULE = '''"""Read things."""

LIMIT = 3
"""Maximum number of things."""
__all__ = ["Reader"]


class Reader:
    """Reader of things."""

    def __init__(self, path):
        """Set the path."""

    def read(self, count, *, strict=False):
        """Read `count` things."""

        def inner(hidden):
            """Return nothing."""


def parse(text: str, /):
    return text
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    source = tmp_path / "crowdrank"
    (source / "things").mkdir(parents=True)
    (source / "things" / "read.py").write_text(MODULE)
    monkeypatch.setattr(sample_for_reader, "SOURCE", source)
    return source


def test_docstrings_are_those_of_the_module_its_definitions_and_constants(package: Path) -> None:
    assert dict(find_docstrings(package / "things" / "read.py")) == {
        "crowdrank.things.read": "Read things.",
        "crowdrank.things.read.LIMIT": "Maximum number of things.",
        "crowdrank.things.read.Reader": "Reader of things.",
        "crowdrank.things.read.Reader.__init__": "Set the path.",
        "crowdrank.things.read.Reader.read": "Read `count` things.",
    }


def test_names_are_those_of_constants_definitions_and_parameters(package: Path) -> None:
    prefix = "crowdrank.things.read"
    assert list(find_names(package / "things" / "read.py")) == [
        f"{prefix}.LIMIT",
        f"{prefix}.Reader",
        f"{prefix}.Reader.read",
        f"{prefix}.Reader.read, parameter count",
        f"{prefix}.Reader.read, parameter strict",
        f"{prefix}.parse",
        f"{prefix}.parse, parameter text: str",
    ]


def test_the_sample_has_the_wanted_size_and_depends_on_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for seed in ("1", "1", "2"):
        main(["--seed", seed, "--count", "5", "evaluation", "_files"])
        outputs.append(capsys.readouterr().out)
    first, again, other = outputs
    assert first == again != other
    docstrings, names = first.split("# Names\n\n")
    assert [line.partition(".")[0] for line in names.splitlines()] == ["1", "2", "3", "4", "5"]
    assert "\n5. crowdrank." in docstrings
    assert "\n6. crowdrank." not in docstrings


def test_the_default_has_all_packages(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--count", "100000"])
    names = capsys.readouterr().out.split("# Names\n\n")[1]
    assert ". crowdrank._files.write_file\n" in names
    assert ". crowdrank.readers.read.read_judgments\n" in names
    assert ". crowdrank.evaluation.evaluate.evaluate\n" in names


def test_an_unknown_package_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["nothing"])
    assert refused.value.code == 2
    assert "there is no package or module nothing" in capsys.readouterr().err
