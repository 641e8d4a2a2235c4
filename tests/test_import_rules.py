"""Test the order of packages, names and sizes of files, the cost of importing and the cache of compiled code."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

import pytest

import crowdrank

PACKAGE = Path(crowdrank.__file__).parent
ORDER = (
    "judgments",
    "readers",
    "on_disk",
    "engine",
    "evaluation",
    "simulation",
    "consensus",
    "assessors",
    "estimation",
    "rankers",
    "label_learning",
    "collection",
    "pipeline",
    "reports",
    "llm_judges",
    "service",
    "testing",
    "cli",
)
"""Order of the packages: each imports only from those before it. Some do not exist yet."""
PACKAGES = tuple(name for name in ORDER if (PACKAGE / name / "__init__.py").exists())
BASE_MODULES = tuple(sorted(path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")))
"""Modules that import no package of the project; every package may use them."""
MAX_CODE_LINES = 450
"""Maximum number of lines of a file that are neither blank nor comments nor docstrings."""
OUTSIDE = {"benchmarks", "experiments", "tests", "tools"}
"""Folders of the repository that are not part of the library."""


def imported_modules(path: Path) -> set[str]:
    """Return the full names of the modules that a file imports, anywhere in the file."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return modules


def crowdrank_imports(path: Path) -> set[str]:
    """Return the packages and modules of crowdrank that a file imports, anywhere in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "crowdrank":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("crowdrank.")}
    return found


def test_every_package_is_in_the_order() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(PACKAGES)


def test_the_library_imports_nothing_outside_of_it() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert not {name.split(".")[0] for name in imported_modules(path)} & OUTSIDE, path


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_from_packages_before_it(package: str) -> None:
    allowed = {*BASE_MODULES, *PACKAGES[: PACKAGES.index(package) + 1]}
    for path in (PACKAGE / package).rglob("*.py"):
        assert crowdrank_imports(path) <= allowed, path


@pytest.mark.parametrize("module", BASE_MODULES)
def test_base_modules_use_no_package(module: str) -> None:
    assert crowdrank_imports(PACKAGE / f"{module}.py") <= set(BASE_MODULES)


def n_code_lines(path: Path) -> int:
    """Return the number of lines of a file that are neither blank nor comments nor docstrings."""
    with path.open("rb") as file:
        tokens = [
            token for token in tokenize.tokenize(file.readline) if token.type not in (tokenize.COMMENT, tokenize.NL)
        ]
    previous = [tokenize.NEWLINE, *(token.type for token in tokens)]
    layout = (tokenize.ENCODING, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    for token, before in zip(tokens, previous, strict=False):
        is_docstring = token.type == tokenize.STRING and before in layout
        if token.type not in layout and not is_docstring:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def test_no_file_is_long_and_no_name_of_a_file_or_public_class_is_used_twice() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if "versions" not in path.parts]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    long = [path for path, text in texts.items() if text.count("\n") > MAX_CODE_LINES]
    assert {path: n_code_lines(path) for path in long if n_code_lines(path) > MAX_CODE_LINES} == {}
    classes = Counter(
        name for text in texts.values() for name in re.findall(r"^class ([A-Za-z]\w*)", text, re.MULTILINE)
    )
    names = Counter(path.stem for path in files if path.stem != "__init__")
    assert [name for name, count in (classes + names).items() if count > 1] == []


def loaded_by(code: str) -> set[str]:
    out = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(out.stdout.split())


@pytest.mark.parametrize("code", ["import crowdrank", "import crowdrank.cli.app"])
def test_importing_is_light(code: str) -> None:
    heavy = {"numba", "lightgbm", "pandas", "pyarrow", "scipy", "numpy", "sklearn", "torch", "altair", "jinja2"}
    assert not loaded_by(code) & heavy


COMPILES = """
import pandas, crowdrank
from crowdrank import _numba
from crowdrank.consensus import e_step_kernels, result
_numba.use_numpy = False
from crowdrank.consensus.glad import expect_abilities
frame = pandas.DataFrame({"task": [1, 1, 2], "worker": ["a", "b", "a"], "label": [0, 1, 2]})
crowdrank.DawidSkene(5, 1.0).fit(frame)
crowdrank.GLAD(5, 1.0).fit(frame)
for kernel in (e_step_kernels.make_e_step_kernel(3), expect_abilities, result.posterior_summaries):
    print(sum(kernel.compiled.stats.cache_misses.values()))
"""


def test_a_second_process_compiles_nothing() -> None:
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", COMPILES], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0", "0"]


CACHE = """
import sys; sys.path.insert(0, sys.argv[1])
from crowdrank import _numba
from crowdrank.consensus.votes import count_votes
from crowdrank.consensus.dawid_skene import digamma
_numba.use_numpy = False
if sys.argv[2] == "kernel":
    assert abs(digamma(1.0) + 0.5772156649) < 1e-9
else:
    import pandas, crowdrank
    frame = pandas.DataFrame({"task": [1, 1, 2], "worker": ["a", "b", "a"], "label": [0, 1, 2]})
    assert crowdrank.MajorityVote().fit(frame).consensus_.n_documents == 2
    assert crowdrank.__file__.startswith(sys.argv[1])
stats = count_votes.compiled.stats
print(stats.cache_path, sum(stats.cache_hits.values()))
"""


def without_override() -> list[str]:
    """Return the command prefix under which even root cannot write a read-only folder."""
    if os.getuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root without setpriv can write everywhere")
    return ["setpriv", "--bounding-set=-dac_override"]


@pytest.mark.skipif(os.name != "posix", reason="modes of folders are POSIX")
def test_a_read_only_install_and_home_work(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "lib" / "crowdrank", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "home").mkdir()
    for folder in [tmp_path / "home", *(path for path in (tmp_path / "lib").rglob("*") if path.is_dir())]:
        folder.chmod(0o555)
    cache = tmp_path / "tmp" / f"crowdrank-numba-{os.getuid()}"
    cache.parent.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "TMPDIR": str(cache.parent)}

    def cache_use(action: str) -> tuple[str, str]:
        """Return the cache folder of a kernel in a new process and how often it was read from there."""
        command = [*without_override(), sys.executable, "-c", CACHE, str(tmp_path / "lib"), action]
        done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        place, hits = done.stdout.split()
        return place, hits

    assert cache_use("fit")[1] == "0"
    place, hits = cache_use("fit")
    assert hits == "1", "the second process reads what the first one compiled"
    assert Path(place).parent == cache
    assert cache.stat().st_mode & 0o777 == 0o700
    assert cache_use("kernel")[0] == place
    cache.chmod(0o777)
    assert cache_use("kernel")[0] == "None", "a folder that others can write is not used"


CALLER = """
from crowdrank._numba import njit
from {between} import {name}

@njit()
def caller(x: float) -> float:
    return {name}(x) + 1.0

print(caller.compiled(1.0), sum(caller.compiled.stats.cache_hits.values()))
"""


def test_a_change_of_a_called_kernel_compiles_its_callers_again(tmp_path: Path) -> None:
    kernel = "from crowdrank._numba import njit\n{more}\n@njit()\ndef {name}(x: float) -> float:\n    return {value}\n"
    inner = tmp_path / "inner.py"
    outer = kernel.format(name="outer", value="2.0 * inner(x)", more="from inner import inner")
    (tmp_path / "outer.py").write_text(outer)
    (tmp_path / "caller.py").write_text(CALLER.format(between="outer", name="outer"))
    source = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])}
    # Python's own byte code of a file of the same size, written in the same second, would hide the change.
    environment = os.environ | source | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}

    def result(value: str) -> list[str]:
        inner.write_text(kernel.format(name="inner", value=value, more=""))
        command = [sys.executable, str(tmp_path / "caller.py")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    assert result("x + 1.0") == ["5.0", "0"]
    assert result("x + 1.0") == ["5.0", "1"]
    assert result("x + 3.0") == ["9.0", "0"], "a called kernel, in another file, changed"
    assert result("x + 3.0") == ["9.0", "1"]


def test_every_public_name_is_there() -> None:
    for name in crowdrank.__all__:
        assert getattr(crowdrank, name).__doc__, name
