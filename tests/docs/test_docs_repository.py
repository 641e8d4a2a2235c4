"""What stands around the code: the workflow does what .ci/run does, versions agree, links lead somewhere."""

from __future__ import annotations

import re
import tarfile
import zipfile
from pathlib import Path

import pytest

import crowdrank
from crowdrank._glossary import GLOSSARY
from crowdrank.collection import POLICIES
from crowdrank.reports.cards import ADVICE
from tools import release

yaml = pytest.importorskip("yaml")
REPOSITORY = Path(__file__).parent.parent.parent


def test_the_workflow_mirrors_what_must_hold_before_a_change_lands() -> None:
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    steps = [step.get("run", "") for step in workflow["jobs"]["check"]["steps"]]
    assert "bash .ci/run --without-data" in steps


def test_the_commands_of_the_readme_run_in_an_empty_environment() -> None:
    ours = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    bare = re.findall(r'^env -i HOME="\$HOME" PATH="\$bare" (make \w+)$', ours, re.MULTILINE)
    assert bare == ["make demo", "make test"]
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert all(f"`{command}`" in readme for command in bare)


def test_versions_agree() -> None:
    assert release.version() == crowdrank.__version__


def archives(folder: Path, *more: str) -> tuple[Path, Path]:
    """Write a wheel and an sdist with the required files and some more in the wheel."""
    wheel, sdist = folder / "crowdrank.whl", folder / "crowdrank.tar.gz"
    package = ("__init__.pyi", "py.typed", "reports/page.html", "reports/page.js", "cli/app.py")
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (*(f"crowdrank/{name}" for name in package), *more):
            archive.writestr(name, "")
    with tarfile.open(sdist, "w:gz") as packed:
        for name in ("pyproject.toml", "LICENSE", "README.md", "CITATION.cff", "mkdocs.yml", "Makefile"):
            packed.add(REPOSITORY / name, f"crowdrank-0/{name}")
    return wheel, sdist


def test_a_wheel_has_the_package_only(tmp_path: Path) -> None:
    release.check_content(*archives(tmp_path, f"crowdrank-{release.version()}.dist-info/METADATA"))
    for name in ("experiments/__init__.py", "crowdrank_extra/__init__.py", "tests/conftest.py"):
        with pytest.raises(SystemExit, match=name):
            release.check_content(*archives(tmp_path, name))


def test_the_citation_has_what_its_format_asks_for() -> None:
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert cited["license"] == "Apache-2.0"


CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
READ_ON_THE_FORGE = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("page", READ_ON_THE_FORGE, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_pages_are_whole_where_nothing_is_built(page: Path) -> None:
    """Links lead to files of the repository and to headings there; nothing waits to be filled in."""
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    for link, place in re.findall(r"\]\((?!https?://)([^)#]*)(?:#([^)]+))?\)", text):
        target = page.parent / link if link else page
        assert target.exists(), link
        assert not place or place in anchors(target), f"{link}#{place}"
    assert not re.search(r"\[\[\w+", text), "a placeholder that only a build would fill"
    assert not re.search(r"^(?:\?\?\?|!!!|:::) ", text, re.MULTILINE), "what only the site's Markdown knows"


def anchors(page: Path) -> set[str]:
    """What headings are called in links, on the forge as on the site."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_policy_stands_on_its_page() -> None:
    page = (REPOSITORY / "docs" / "collecting.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    for name in POLICIES:
        assert any(f"`{name.removesuffix('k')}" in row for row in rows), name


def test_the_glossary_explains_the_words_of_pages_and_report() -> None:
    words = {
        "judgment", "answer", "label", "consensus", "grade", "assessor", "judge", "expert grade", "honeypot", "pair",
        "preference", "ranking", "run", "family", "flag", "informativeness", "item", "pool", "round", "generation",
        "draw", "lease", "quota",
    }  # fmt: skip
    assert words <= GLOSSARY.keys()
    assert all(flag in GLOSSARY["flag"] for flag in ADVICE if flag)
    page = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert all(f"- **{word}**: {meaning}.\n" in page for word, meaning in GLOSSARY.items())
