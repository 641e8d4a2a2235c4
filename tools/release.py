"""Build the wheel and the sdist, and check that the wheel works in a clean environment: `python -m tools.release`.

The files are in dist/; nothing is uploaded.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
DIST = REPOSITORY / "dist"
SMOKE = """
import crowdrank
world = crowdrank.simulate(queries=5, documents=6, random_state=1)
assert len(crowdrank.GDA().fit(world.judgments).consensus_.documents)
print(crowdrank.__version__)
"""


def call(*words: object, cwd: Path = REPOSITORY) -> str:
    """Run a command and return its output; exit with its output if it fails."""
    done = subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def version() -> str:
    """Return the version in pyproject.toml; exit if the package or CITATION.cff have another one."""
    number: str = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    lines = {"src/crowdrank/__init__.py": f'__version__ = "{number}"', "CITATION.cff": f"version: {number}"}
    for path, line in lines.items():
        if line not in (REPOSITORY / path).read_text(encoding="utf-8").splitlines():
            sys.exit(f"{path} has no line {line!r}; pyproject.toml has the version {number}.")
    return number


def build() -> tuple[Path, Path]:
    """Build the wheel and the sdist with hatchling."""
    for old in DIST.glob("crowdrank-*"):
        old.unlink()
    call(sys.executable, "-m", "hatchling", "build", "-d", DIST)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def check_content(wheel: Path, sdist: Path) -> None:
    """Exit unless the wheel has the package and nothing else, and the sdist has the files of the project.

    Experiments, tests, tools and benchmarks are not part of the wheel.
    """
    files = zipfile.ZipFile(wheel).namelist()
    required = (
        "crowdrank/__init__.pyi",
        "crowdrank/py.typed",
        "crowdrank/reports/page.html",
        "crowdrank/reports/page.js",
        "crowdrank/cli/app.py",
    )
    missing = [name for name in required if name not in files]
    metadata = f"crowdrank-{version()}.dist-info/"
    unexpected = [name for name in files if not name.startswith(("crowdrank/", metadata))]
    if missing or unexpected:
        sys.exit(f"{wheel.name}: missing {missing}, unexpected {unexpected}.")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    absent = {"pyproject.toml", "LICENSE", "README.md", "CITATION.cff", "mkdocs.yml", "Makefile"} - names
    if absent:
        sys.exit(f"{sdist.name}: missing {sorted(absent)}.")


def check_works(wheel: Path, number: str) -> None:
    """Install the wheel in a new environment and check its version, the library and the demo."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        python, command = folder / "env" / "bin" / "python", folder / "env" / "bin" / "crowdrank"
        call(python, "-m", "pip", "install", "--quiet", "-c", REPOSITORY / "constraints.txt", wheel)
        if call(command, "--version", cwd=folder).strip() != f"crowdrank {number}":
            sys.exit(f"crowdrank --version does not print {number}.")
        call(python, "-c", SMOKE, cwd=folder)
        call(command, "--quiet", "demo", "--queries", "30", "-o", "demo", cwd=folder)
        if not (folder / "demo" / "run" / "report.html").is_file():
            sys.exit("The demo wrote no report.")


def main() -> None:
    """Build and check the files in dist/."""
    number = version()
    wheel, sdist = build()
    check_content(wheel, sdist)
    check_works(wheel, number)
    for path in (wheel, sdist):
        sys.stdout.write(f"{path.relative_to(REPOSITORY)}  {path.stat().st_size / 1e6:.2f} MB\n")


if __name__ == "__main__":
    main()
