"""Interrupt commands at every moment and check that nothing is lost: `python -m tools.torture` or `make torture`.

Four kinds of trials, each on a copy of a tiny folder:

- points: kill the process before and after each call that renames, deletes, creates or flushes something;
- random: kill it at a random moment; every fifth trial starts a new Python interpreter;
- full disk: a file system that is full, or a limit on the size of files;
- two writers: two commands with the same output at once.

After a kill, each output must be old or new, never in between; the same command must then give the results of an
uninterrupted one, leave no temporary files and not touch other files.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.killable import Child, Kill, Outcome, run_forked, warm_up, without_charts
from tools.torture_cases import (
    CASES,
    OUT,
    Case,
    Prepared,
    broken_manifests,
    different,
    leftovers,
    make_inputs,
    rows_in,
    snapshots,
    touched,
    without_report,
)

KEY = ("query", "document", "assessor")
"""Columns that identify a judgment."""
FRESH = 5
"""One of this many random kills is of a new interpreter, the others are of forked processes."""
LATE = 0.7
"""Share of random kills in the last part of a command, and where this part begins."""
PAGE = 4096
"""Bytes of a page, the unit of the size of a file system in memory."""
N_REPEATS = 12
"""Number of trials of each pair of writers."""
NO_CHARTS = "import sys\nsys.modules['vl_convert'] = None\n"
"""Content of sitecustomize.py for new interpreters; see `without_charts`."""


@dataclass
class Result:
    """Result of one trial."""

    group: str
    name: str
    state: str = ""
    killed: bool = False
    refused: bool = False
    identical: bool = False
    problems: list[str] = field(default_factory=list)
    how: str = ""
    folder: str = ""


@dataclass
class Trial:
    """A copy of a prepared folder in which one command is interrupted."""

    prepared: Prepared
    folder: Path
    result: Result

    @classmethod
    def begin(cls, prepared: Prepared, group: str, how: str) -> Trial:
        """Copy the folder."""
        folder = Path(tempfile.mkdtemp(prefix="trial-", dir=prepared.folder.parent))
        shutil.copytree(prepared.folder, folder, dirs_exist_ok=True)
        return cls(prepared, folder, Result(group, prepared.case.name, how=how, folder=str(folder)))

    @property
    def case(self) -> Case:
        """The command and its outputs."""
        return self.prepared.case

    def require(self, holds: bool, problem: str) -> None:
        """Record a problem unless a condition holds."""
        if not holds:
            self.result.problems.append(problem)

    def look(self, *, settled: bool) -> str:
        """Return whether the outputs are old or new; record a problem if they are neither."""
        now, old, new = snapshots(self.folder, self.case.outputs), self.prepared.old, self.prepared.new
        begun = not settled and any((self.folder / OUT).glob("*/.crowdrank.json.journal"))
        states = set()
        for name in self.case.outputs:
            if now[name] == old[name] and now[name] == new[name]:
                continue
            if now[name] in (old[name], new[name]):
                states.add("new" if now[name] == new[name] else "old")
            elif self.case.name.startswith("run") and now[name] == without_report(new[name]):
                states.add("new")  # the results are in place, the report is not yet
            elif not (begun and self._is_whole(name, now)):
                changed = different({name: now[name]}, {name: old[name]})
                self.require(False, f"out/{name} is neither old nor new: {changed[:4]}")
        if self.case.settle and settled:
            self.require(len(states) < 2, f"some outputs are old and some are new: {self._states(now)}")
        if not begun:
            self.result.problems += broken_manifests(self.folder)
        return "old" if states == {"old"} else "new" if states <= {"new"} and not begun else "between"

    def _is_whole(self, name: str, now: dict[str, Any]) -> bool:
        """Return whether each file in a folder is old or new; the folder's journal completes the step."""
        old, new = self.prepared.old[name], self.prepared.new[name]
        return all(known in (old.get(path), new.get(path)) for path, known in now[name].items())

    def _states(self, now: dict[str, Any]) -> dict[str, str]:
        return {name: "new" if now[name] == self.prepared.new[name] else "old" for name in self.case.outputs}

    def settle(self) -> None:
        """Run the command that completes what was interrupted."""
        from crowdrank._files import recover

        if len(self.case.settle) == 1:
            recover(self.folder / OUT / self.case.settle[0])
            return
        done = run_forked(self.case.settle, self.folder)
        self.require(done.code == 0, f"{shlex.join(self.case.settle)} failed: {done.text[-300:]}")

    def run_again(self) -> None:
        """Run the same command to its end and compare the results with those of an uninterrupted command."""
        seen = snapshots(self.folder, self.case.outputs)
        first = self.case.outputs[0]
        done = run_forked(self.case.words, self.folder)
        self.require(done.code == 0, f"the same command again failed with exit code {done.code}: {done.text[-300:]}")
        now = snapshots(self.folder, self.case.outputs)
        allowed = [self.prepared.new] if self.case.repeats else [self.prepared.new, self.prepared.newer]
        self.result.identical = now in allowed
        self.require(now in allowed, f"the same command again gives other results: {different(now, allowed[0])[:4]}")
        if not self.case.repeats and now == self.prepared.newer:
            self.require(
                seen[first] == self.prepared.new[first],
                f"the same command again replaced {first} of the interrupted command, which nobody has seen",
            )
        self.finish()

    def finish(self) -> None:
        """Check the folder for leftovers and changes of other files."""
        self.result.problems += [*leftovers(self.folder), *broken_manifests(self.folder), *touched(self.folder)]

    def end(self) -> Result:
        """Delete the folder unless there are problems; return the result."""
        if not self.result.problems:
            shutil.rmtree(self.folder)
        return self.result


def kill_trial(prepared: Prepared, group: str, how: str, interrupt: Callable[[Path], Outcome], settle: bool) -> Result:
    """Interrupt a command, look at its outputs, complete the step if asked to, and run the command again."""
    trial = Trial.begin(prepared, group, how)
    done = interrupt(trial.folder)
    trial.result.killed = done.killed
    trial.require(done.killed or done.code == 0, f"exit code {done.code}: {done.text[-300:]}")
    trial.require("Traceback" not in done.text, f"traceback: {done.text[-300:]}")
    trial.result.state = trial.look(settled=False)
    if settle and prepared.case.settle:
        trial.settle()
        trial.result.state = trial.look(settled=True)
    trial.run_again()
    return trial.end()


def kill_at_point(prepared: Prepared, kill: Kill, settle: bool) -> Result:
    """Kill a command at one of its calls."""
    when = "after" if kill.after else "before"
    name = prepared.points[kill.number - 1] if kill.number <= len(prepared.points) else "end"
    how = f"{kill} ({name}): python -m tools.killable {kill.number} {when} {shlex.join(prepared.case.words)}"
    return kill_trial(
        prepared, "points", how, lambda folder: run_forked(prepared.case.words, folder, kill), settle=settle
    )


def kill_at_moment(prepared: Prepared, share: float, fresh: bool, settle: bool) -> Result:
    """Kill a command after a share of its usual time."""

    def interrupt(folder: Path) -> Outcome:
        if not fresh:
            return Child.start(prepared.case.words, folder).wait(kill_after=share * prepared.seconds)
        usual = _fresh(prepared, None)
        return _fresh(prepared, share * usual.seconds, folder)

    how = f"after {share:.0%} of its time{' in a new interpreter' if fresh else ''}: {shlex.join(prepared.case.words)}"
    return kill_trial(prepared, "random", how, interrupt, settle)


def _fresh(prepared: Prepared, kill_after: float | None, folder: Path | None = None) -> Outcome:
    """Run `python -m crowdrank` in a new interpreter; without a folder, in a copy that is deleted."""
    place = folder or Path(tempfile.mkdtemp(prefix="whole-", dir=prepared.folder.parent))
    if folder is None:
        shutil.copytree(prepared.folder, place, dirs_exist_ok=True)
    began = time.monotonic()
    process = start_fresh(prepared.case.words, place)
    try:
        text = process.communicate(timeout=kill_after)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        text = process.communicate()[0]
    if folder is None:
        shutil.rmtree(place)
    return Outcome(process.returncode, text, seconds=time.monotonic() - began)


def start_fresh(line: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    """Start `python -m crowdrank` in a folder."""
    site = folder / "tmp" / "sitecustomize.py"
    site.write_text(NO_CHARTS, encoding="utf-8")
    roots = [str(site.parent), *(path for path in sys.path if path)]
    return subprocess.Popen(
        [sys.executable, "-m", "crowdrank", *line],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": os.pathsep.join(roots)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


# Full disks.


def limit_files(prepared: Prepared, size: int) -> Result:
    """Run a command that cannot write files larger than a size, and then once more without this limit."""
    how = f"files of at most {size} bytes: {shlex.join(prepared.case.words)}"
    trial = Trial.begin(prepared, "file limit", how)
    return _after_refusal(trial, run_forked(prepared.case.words, trial.folder, largest_file=size))


def fill_disk(prepared: Prepared, pages: int) -> Result:
    """Run a command on a file system with a few free pages, and then once more with enough of them."""
    trial = Trial.begin(prepared, "full disk", f"{pages} free pages: {shlex.join(prepared.case.words)}")
    out = trial.folder / OUT
    kept = trial.folder / "kept"
    out.rename(kept)
    out.mkdir()
    mount(out, 1 << 26)
    try:
        shutil.copytree(kept, out, dirs_exist_ok=True)
        shutil.rmtree(kept)
        about = os.statvfs(out)
        mount(out, (about.f_blocks - about.f_bfree + pages) * PAGE, again=True)
        done = run_forked(prepared.case.words, trial.folder)
        mount(out, 1 << 26, again=True)
        return _after_refusal(trial, done)
    finally:
        if trial.result.problems:
            shutil.copytree(out, kept)
        subprocess.run(["umount", str(out)], check=True)
        if not trial.result.problems:
            shutil.rmtree(trial.folder, ignore_errors=True)


def mount(place: Path, size: int, *, again: bool = False) -> None:
    """Mount a file system in memory, or change its size."""
    option = f"{'remount,' if again else ''}size={size}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(place)], check=True, capture_output=True)


def can_mount() -> bool:
    """Return whether this process may mount a file system."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            mount(Path(folder), PAGE)
        except (OSError, subprocess.CalledProcessError):
            return False
        subprocess.run(["umount", folder], check=True)
    return True


def _after_refusal(trial: Trial, done: Outcome) -> Result:
    trial.require("Traceback" not in done.text, f"traceback: {done.text[-600:]}")
    trial.result.refused = done.code != 0
    if done.code:
        trial.require(done.code == 2, f"exit code {done.code}: {done.text[-300:]}")
        trial.require("Error: " in done.text, f"no message: {done.text[-300:]}")
        now = snapshots(trial.folder, trial.case.outputs)
        first = all(now[name] == trial.prepared.old[name] for name in trial.case.outputs)
        trial.require(first or "nothing was changed" not in done.text, "'nothing was changed' is not true")
        trial.result.state = trial.look(settled="was already replaced" not in done.text)
        trial.result.problems += leftovers(trial.folder)
    else:
        trial.result.state = trial.look(settled=True)
        trial.require(trial.result.state == "new", "exit code 0, but the outputs are not new")
    if trial.result.refused:
        trial.run_again()
    return trial.end() if trial.result.group == "file limit" else trial.result


# Two writers.


def write_twice(prepared: Prepared, lines: tuple[tuple[str, ...], tuple[str, ...]], kind: str) -> Result:
    """Run two commands with the same output at the same time."""
    trial = Trial.begin(prepared, "two writers", f"{shlex.join(lines[0])} & {shlex.join(lines[1])}")
    trial.result.name = f"{kind}: {prepared.case.name}"
    ends = [one.wait() for one in [Child.start(line, trial.folder) for line in lines]]
    return check_writers(trial, ends, lines, kind)


def check_writers(
    trial: Trial, ends: list[Outcome], lines: tuple[tuple[str, ...], tuple[str, ...]], kind: str
) -> Result:
    """Check the outputs of two commands."""
    codes = sorted(one.code for one in ends)
    text = "\n".join(one.text for one in ends)
    out, case = trial.folder / OUT, trial.case
    trial.require("Traceback" not in text, f"traceback: {text[-600:]}")
    if kind == "run":
        trial.require(codes == [0, 2] and "another crowdrank process" in text, f"exit codes {codes}: {text[-300:]}")
        trial.require(trial.look(settled=True) == "new", "the run is not complete")
    else:
        trial.require(codes == [0, 0], f"exit codes {codes}: {text[-300:]}")
    if kind in ("two batches", "one batch"):
        batches = {line[-1] for line in (*case.earlier, *lines)}
        expected = sum((rows_in(trial.folder / one, KEY) for one in batches), Counter[tuple[str, ...]]())
        found = rows_in(out / case.outputs[0], KEY)
        trial.require(found == expected, f"judgments: {found.total()} instead of {expected.total()}")
    if kind == "requests":
        asked = [rows_in(out / name, KEY[:2]) for name in ("requests.csv", "other.csv")]
        ledger = rows_in(out / "labels.requests.csv", KEY[:2])
        trial.require(asked[0] + asked[1] == ledger, f"{ledger.total()} in the ledger, {asked} in the files")
        trial.require(max(ledger.values()) == 1, "a pair was requested twice")
    if kind == "tables":
        trial.look(settled=True)
    trial.result.identical = not trial.result.problems
    trial.finish()
    return trial.end()


def writer_jobs(prepared: Sequence[Prepared]) -> Iterator[tuple[Any, ...]]:
    """Yield the pairs of commands that are run at once."""
    for one in (one for _ in range(N_REPEATS) for one in prepared):
        name, line = one.case.name, one.case.words
        if name.startswith("collect add"):
            yield write_twice, one, (line, (*line[:-1], "in/batch-2.csv")), "two batches"
            yield write_twice, one, (line, line), "one batch"
        elif name == "collect next, new":
            other = tuple(word.replace("requests.csv", "other.csv") for word in line)
            yield write_twice, one, (line, other), "requests"
        elif name == "aggregate":
            yield write_twice, one, (line, one.case.earlier[0]), "tables"
        elif name == "run":
            yield write_twice, one, (line, line), "run"


# All trials.


def point_jobs(prepared: Sequence[Prepared], most: int) -> Iterator[tuple[Any, ...]]:
    """Yield kills at calls spread evenly over each command; half of them with the command that completes a step."""
    for one in prepared:
        calls = len(one.points)
        count = min(most, calls)
        for number in (1 + (2 * place + 1) * calls // (2 * count) for place in range(count)):
            for after in (False, True):
                yield kill_at_point, one, Kill(number, after), number % 2 == 0


def random_jobs(prepared: Sequence[Prepared], kills: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """Yield kills at random moments, most of them when the command is about to write."""
    drawn = random.Random(seed)
    for number in range(kills):
        late = drawn.random() < LATE
        share = drawn.uniform(LATE, 1.0) if late else drawn.uniform(0.0, 1.0)
        yield kill_at_moment, prepared[number % len(prepared)], share, number % FRESH == 0, drawn.random() < 0.5


def disk_jobs(prepared: Sequence[Prepared], mounts: bool) -> Iterator[tuple[Any, ...]]:
    """Yield trials with file sizes and free pages from 0 to enough."""
    for one in prepared:
        for power in range(-1, 18, 1):
            yield limit_files, one, 0 if power < 0 else 1 << power
        for pages in (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64) if mounts else ():
            yield fill_disk, one, pages


_deadline = 0.0


def work(job: tuple[Any, ...]) -> Result | None:
    """Do a job, unless time is up."""
    if time.monotonic() > _deadline:
        return None
    result: Result = job[0](*job[1:])
    return result


def prepare(task: tuple[Case, Path]) -> Prepared:
    """Prepare the folder of a case."""
    case, base = task
    return Prepared.make(case, base / "inputs", base)


def start(base: Path, cases: Sequence[Case]) -> None:
    """Import all modules and create the inputs before processes are forked."""
    without_charts()
    make_inputs(base / "inputs")
    shutil.copytree(base / "inputs", base / "warm")
    warm_up([line for case in cases for line in (*case.earlier, case.words)], base / "warm")


def table(results: Sequence[Result]) -> str:
    """Return the counts of the results by kind of trial and command."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for one in results:
        groups.setdefault((one.group, one.name), []).append(one)
    head = ("kind", "command", "trials", "killed", "refused", "old", "between", "new", "identical", "violations")
    rows: list[tuple[str, ...]] = [head]
    for (group, name), found in sorted(groups.items()):
        states = Counter(one.state for one in found)
        counts = [len(found), *(sum(getattr(one, what) for one in found) for what in ("killed", "refused"))]
        counts += [states[state] for state in ("old", "between", "new")]
        counts += [sum(one.identical for one in found), sum(bool(one.problems) for one in found)]
        rows.append((group, name, *map(str, counts)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def jobs_of(kinds: str, prepared: Sequence[Prepared], chosen: argparse.Namespace) -> list[tuple[Any, ...]]:
    """Return the trials of some kinds, in the order of the kinds."""
    mounts = "disk" in kinds and can_mount()
    if "disk" in kinds and not mounts:
        sys.stderr.write("File systems cannot be mounted here: only file sizes are limited.\n")
    known: dict[str, Callable[[], Iterator[tuple[Any, ...]]]] = {
        "points": lambda: point_jobs(prepared, chosen.points),
        "random": lambda: random_jobs(prepared, chosen.kills, chosen.seed),
        "disk": lambda: disk_jobs(prepared, mounts),
        "writers": lambda: writer_jobs(prepared),
    }
    return [job for kind in kinds.split(",") for job in known[kind]()]


def run_all(cases: Sequence[Case], base: Path, chosen: argparse.Namespace) -> tuple[list[Result], int]:
    """Run all trials, two at a time; return their results and how many were skipped because time was up."""
    results: list[Result] = []
    start(base, cases)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        prepared = pool.map(prepare, [(case, base) for case in cases], chunksize=1)
        jobs = jobs_of(chosen.kinds, prepared, chosen)
        for number, result in enumerate(pool.imap_unordered(work, jobs), 1):
            if result is not None:
                results.append(result)
                report(result)
            if number % 20 == 0:
                sys.stderr.write(f"\r{number:,} of {len(jobs):,} trials")
    return results, len(jobs) - len(results)


def report(result: Result) -> None:
    """Print the violations of a trial and how to repeat it."""
    if result.problems:
        sys.stderr.write(f"\n{result.name}, {result.how}\n  in {result.folder}\n")
        sys.stderr.writelines(f"  {problem}\n" for problem in result.problems)


def main() -> None:
    """Run all trials and print the counts; exit with 1 if anything was lost."""
    global _deadline
    parser = argparse.ArgumentParser(description="Interrupt commands and check that nothing is lost.")
    parser.add_argument("--kills", type=int, default=200, help="number of kills at random moments")
    parser.add_argument("--seconds", type=float, default=1500.0, help="maximum time; trials that remain are skipped")
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    parser.add_argument("--points", type=int, default=sys.maxsize, help="maximum number of points of each command")
    parser.add_argument("--kinds", default="random,writers,points,disk", help="kinds of trials, separated by commas")
    parser.add_argument("--only", action="append", help="name of a command in the table; may be given several times")
    chosen = parser.parse_args()
    _deadline = time.monotonic() + chosen.seconds
    cases = [case for case in CASES if not chosen.only or case.name in chosen.only]
    base = Path(tempfile.mkdtemp(prefix="torture-"))
    results, skipped = run_all(cases, base, chosen)
    bad, killed = sum(bool(one.problems) for one in results), sum(one.killed for one in results)
    sys.stdout.write(f"\n{table(results)}\n\n{len(results):,} trials, {killed:,} kills, {bad:,} violations")
    sys.stdout.write(f", {skipped:,} skipped because time was up.\n" if skipped else ".\n")
    if bad or not results:
        sys.stdout.write(f"The folders are kept in {base}; copy one of those without a number to repeat a trial.\n")
        sys.exit(1)
    shutil.rmtree(base)


if __name__ == "__main__":
    main()
