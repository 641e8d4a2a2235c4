"""What stands around the code: the workflow does what .ci/run does, versions agree, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import crowdrank
from crowdrank.collection import POLICIES
from tools import release

yaml = pytest.importorskip("yaml")
REPOSITORY = Path(__file__).parent.parent.parent


def test_the_workflow_mirrors_what_must_hold_before_a_change_lands() -> None:
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    steps = "\n".join(step.get("run", "") for step in workflow["jobs"]["check"]["steps"])
    ours = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    for line in re.findall(r"^(?:make|\.venv/bin/python) .*$", ours, re.MULTILINE):
        assert line in steps, line
    assert "chromium" in steps


def test_versions_agree() -> None:
    assert release.version() == crowdrank.__version__


def test_the_citation_has_what_its_format_asks_for() -> None:
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert cited["license"] == "Apache-2.0"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(name: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)", (REPOSITORY / name).read_text(encoding="utf-8")):
        assert (REPOSITORY / link).exists(), link


def test_every_policy_stands_on_its_page() -> None:
    page = (REPOSITORY / "docs" / "collecting.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    for name in POLICIES:
        assert any(f"`{name.removesuffix('k')}" in row for row in rows), name
