"""What stands around the code: the workflow does what .ci/run does, versions agree, links lead somewhere."""

from __future__ import annotations

import ast
import re
import tarfile
import zipfile
from pathlib import Path
from textwrap import wrap
from xml.etree import ElementTree

import pytest

import crowdrank
from crowdrank._glossary import GLOSSARY
from crowdrank.assessors.advice import ADVICE
from crowdrank.collection import POLICIES
from crowdrank.consensus.result import DOCUMENT_ESTIMATES
from crowdrank.judgments.columns import EXPERT_GRADED, SCALE_COLUMN
from crowdrank.judgments.scale import Scale
from tools import release, walks

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


def test_the_page_of_files_has_every_column_of_a_consensus() -> None:
    page = (REPOSITORY / "docs" / "files.md").read_text(encoding="utf-8")
    section = page.split("## The columns of a consensus")[1].split("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\|(.*?)\|", section, re.MULTILINE))))
    scale = Scale.parse("0-1")
    columns = {"query", "document", *DOCUMENT_ESTIMATES, "grade", *scale.share_names, *scale.true_share_names}
    assert named == {*columns, "judgments", EXPERT_GRADED, SCALE_COLUMN}


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
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
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


def functions_of(path: Path) -> set[str]:
    """Return the functions of a module, and its methods as `Class.method`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            functions |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return functions


@pytest.mark.parametrize("name", walks.WALKS)
def test_walks_name_functions_that_exist(name: str) -> None:
    _, steps = walks.WALKS[name]
    assert 10 <= len(steps) <= 20
    missing = [one for one in steps if one.function not in functions_of(REPOSITORY / "src" / "crowdrank" / one.file)]
    assert not missing
    listed = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert all(f"`{one.file}`, `{one.function}`" in listed for one in steps)


@pytest.mark.parametrize("name", walks.WALKS)
def test_pictures_of_walks_are_legible_in_light_and_dark(name: str) -> None:
    drawn = ElementTree.fromstring(walks.picture(name))
    texts = ["".join(one.itertext()) for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {f"{number} {one.function}" for number, one in enumerate(walks.WALKS[name][1], 1)} <= set(texts)
    assert max(map(len, texts)) <= 30
    assert "prefers-color-scheme: dark" in walks.picture(name)
    assert all(len(wrap(one.about, 29)) <= 2 for one in walks.WALKS[name][1]), "a box has two lines"


MODULE_PATH = re.compile(r"(?<![\w/.{}<>*-])((?:[\w-]+/)*\w+\.pyi?)\b(?![\w{}*])")
OTHER_MODULES = {"sitecustomize.py", "tests/a/test_x.py", "tests/a/test_y.py"}
"""Modules of Python and of examples."""


def documented_texts() -> dict[str, str]:
    """Return the texts that name modules of the project, by file: pages, and docstrings of its modules."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in READ_ON_THE_FORGE}
    folders = [REPOSITORY / name for name in ("src", "tools", "experiments", "benchmarks")]
    modules = [path for folder in folders for path in folder.rglob("*.py")]
    return pages | {str(path): "\n".join(docstrings(path.read_text(encoding="utf-8"))) for path in modules}


def test_modules_that_pages_and_docstrings_name_exist() -> None:
    folders = ("src", "tests", "tools", "experiments", "benchmarks")
    files = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py*")]
    known = {f"/{path.relative_to(REPOSITORY).as_posix()}" for path in files}
    missing = [
        f"{name}: {path}"
        for name, text in documented_texts().items()
        for path in MODULE_PATH.findall(text)
        if path not in OTHER_MODULES and not any(one.endswith(f"/{path}") for one in known)
    ]
    assert not missing


def docstrings(text: str) -> list[str]:
    """Return the docstrings of a module and of everything in it, also of constants."""
    values = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    return [value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]


def test_pre_commit_runs_the_linters_without_the_net() -> None:
    config = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert {one["repo"] for one in config["repos"]} == {"local"}
    entries = [hook["entry"] for one in config["repos"] for hook in one["hooks"]]
    assert [Path(entry.split()[0]).name for entry in entries] == ["ruff", "ruff", "mypy"]


def test_workflows_install_the_newest_and_the_lowest_versions() -> None:
    jobs = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    commands = {name: [step.get("run") for step in job["steps"]] for name, job in jobs.items()}
    assert "make test CONSTRAINED=" in commands["newest"]
    assert "make test-lowest" in commands["lowest"]
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{target}: " in makefile for target in ("test", "test-lowest"))
    assert "CONSTRAINED ?= -c constraints.txt" in makefile
