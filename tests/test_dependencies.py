"""Test the bounds and extras of pyproject.toml: what is installed, by which commands, and what tests may import."""

from __future__ import annotations

import ast
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tools import lowest_versions

REPOSITORY = Path(__file__).parent.parent
PYPROJECT = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
EXTRAS: dict[str, list[str]] = tomllib.loads(PYPROJECT)["project"]["optional-dependencies"]
PEERS = {"crowdkit", "ir_measures", "onnxruntime", "ppi_py", "sklearn", "treelite", "xgboost"}
"""Modules of the extra `peers`."""


def test_every_dependency_has_one_lower_bound() -> None:
    found = list(lowest_versions.requirements(PYPROJECT))
    unbounded = {name for name, version in found if version is None}
    assert unbounded == {"pandas-stubs", "scipy-stubs"}, "these follow the version of their library"
    assert len({name for name, _ in found}) == len(set(found)), "a dependency of two extras has the same bound in both"


def test_constraints_name_the_lowest_versions() -> None:
    lines = lowest_versions.constraints(PYPROJECT).splitlines()
    assert "numpy==2.0" in lines
    assert "crowd-kit==1.4.2" in lines, "a pinned version is its own lower bound"
    assert not any(line.startswith("crowdrank") for line in lines)
    with pytest.raises(ValueError, match="numpy<3"):
        lowest_versions.constraints('[project]\nname = "x"\ndependencies = ["numpy<3,!=2"]')


def test_dev_has_the_tests_the_peers_and_the_pages() -> None:
    assert "crowdrank[test,peers,docs]" in EXTRAS["dev"]
    distributions = packages_distributions()
    names = {name for name, _ in lowest_versions.requirements(PYPROJECT)}
    for module in PEERS & distributions.keys():
        assert {name.lower().replace("_", "-") for name in distributions[module]} & names, module


def imported_peers(tree: ast.Module) -> set[str]:
    """Return the peers that a module imports before it asks for them with `pytest.importorskip`."""
    peers: set[str] = set()
    for node in tree.body:
        match node:
            case ast.Import(names=names):
                peers |= {one.name.split(".")[0] for one in names}
            case ast.ImportFrom(module=str(module)):
                peers.add(module.split(".")[0])
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="importorskip"))):
                break
    return peers & PEERS


def test_tests_are_collected_without_peers() -> None:
    assert imported_peers(ast.parse("import sklearn.base")) == {"sklearn"}
    assert not imported_peers(ast.parse("import pytest\npytest.importorskip('sklearn')\nimport sklearn"))
    files = [
        path for folder in ("src", "tests", "tools", "experiments") for path in (REPOSITORY / folder).rglob("*.py")
    ]
    found = {path.name: peers for path in files if (peers := imported_peers(ast.parse(path.read_text("utf-8"))))}
    assert not found, "import peers with pytest.importorskip, in the test if only some tests need them"
