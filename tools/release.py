"""Wheel and sdist, and what must hold before they go anywhere: both install in a clean environment and work there.

Nothing is uploaded. `python -m tools.release` leaves the files in dist/.
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
world = crowdrank.simulate(queries=5, documents=6, seed=1)
assert len(crowdrank.GDA().fit(world.judgments).consensus_.documents)
print(crowdrank.__version__)
"""


def call(*words: object, cwd: Path = REPOSITORY) -> str:
    """Run a command; stop where it fails, and say what it said."""
    done = subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def version() -> str:
    """The version of the project; the package and CITATION.cff must say the same."""
    told: str = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    for place, line in (("src/crowdrank/__init__.py", f'__version__ = "{told}"'), ("CITATION.cff", f"version: {told}")):
        if line not in (REPOSITORY / place).read_text(encoding="utf-8").splitlines():
            sys.exit(f"{place} does not say {line!r}, which pyproject.toml does.")
    return told


def build() -> tuple[Path, Path]:
    """The wheel and the sdist, by hatchling itself: no other tool is needed."""
    for old in DIST.glob("crowdrank-*"):
        old.unlink()
    call(sys.executable, "-m", "hatchling", "build", "-d", DIST)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def check_content(wheel: Path, sdist: Path) -> None:
    """What a user needs is inside, and nothing that is ours alone."""
    inside = zipfile.ZipFile(wheel).namelist()
    needed = ("crowdrank/py.typed", "crowdrank/reports/page.html", "crowdrank/reports/page.js", "crowdrank/cli/app.py")
    missing = [name for name in needed if name not in inside]
    strange = [name for name in inside if not name.startswith("crowdrank")]
    if missing or strange:
        sys.exit(f"{wheel.name}: missing {missing}, not wanted {strange}.")
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    lacking = {"pyproject.toml", "LICENSE", "README.md", "CITATION.cff", "mkdocs.yml", "Makefile"} - names
    if lacking:
        sys.exit(f"{sdist.name}: missing {sorted(lacking)}.")


def check_works(wheel: Path, told: str) -> None:
    """In an environment that has nothing but the wheel: the version, the library, the demo with its report."""
    with tempfile.TemporaryDirectory() as named:
        place = Path(named)
        venv.create(place / "env", with_pip=True)
        python, command = place / "env" / "bin" / "python", place / "env" / "bin" / "crowdrank"
        call(python, "-m", "pip", "install", "--quiet", "-c", REPOSITORY / "constraints.txt", wheel)
        if call(command, "--version", cwd=place).strip() != f"crowdrank {told}":
            sys.exit("crowdrank --version says another version.")
        call(python, "-c", SMOKE, cwd=place)
        call(command, "--quiet", "demo", "--queries", "30", "-o", "demo", cwd=place)
        if not (place / "demo" / "run" / "report.html").is_file():
            sys.exit("The demo left no report.")


def main() -> None:
    """Build and check; what is left is in dist/."""
    told = version()
    wheel, sdist = build()
    check_content(wheel, sdist)
    check_works(wheel, told)
    for path in (wheel, sdist):
        sys.stdout.write(f"{path.relative_to(REPOSITORY)}  {path.stat().st_size / 1e6:.2f} MB\n")


if __name__ == "__main__":
    main()
