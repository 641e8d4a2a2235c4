"""Commands that `tools.torture` interrupts, their tiny inputs, and checks of what they leave behind."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.killable import Outcome, run_forked

OUT = "out"
"""Subfolder of a trial with all outputs."""
TEMPORARY = re.compile(r"\..+\.(?:lock|journal|[0-9a-f]{16}\.(?:draft|old))|crowdrank-\w{8}\.scratch")
"""Names that only a running or an interrupted command may leave."""
CACHE = "stages"
"""Subfolder of a run that may change at any time."""
REPORT = "report.html"
"""File that a run adds after its results are in place."""
VARYING = ("profile.json", REPORT, "report.md")
"""Files of a run that contain how long it took."""
FOREIGN = {
    f"{OUT}/notes.txt": "notes of a user",
    f"{OUT}/.labels.csv.draft": "a user's own draft",
    f"{OUT}/labels.csv.0123456789abcdef.draft": "not a temporary file of crowdrank",
    f"{OUT}/labels.csv.bak": "query,document\n",
    "tmp/crowdrank-notes.txt": "not a scratch folder",
}
"""Files of a user beside the outputs, which no command may touch."""

SMALL_FORESTS = "[trees]\nn_estimators = 3\n[forest]\nn_trees = 3\n"
"""Content of run.toml: the time of a run is that of its files, not of its trees."""
COLUMNS = ("query", "document", "assessor", "grade")
"""Columns of the batches of judgments."""
BATCHES = 3
"""Number of batches that the judgments are divided into."""

Tree = dict[str, str]


@dataclass(frozen=True)
class Case:
    """A command, what it writes, and the command that made the outputs it replaces.

    Attributes:
        name: identifies the case in the table.
        words: arguments of the command line.
        outputs: files and folders that it writes in `OUT`.
        earlier: commands that make the old outputs; without any, the outputs do not exist.
        settle: command after which all outputs must be old or all new; an output name means that the step at this
            output is completed by `recover`. Without it, this must hold at every moment.
        repeats: running the command again gives the same outputs.

    """

    name: str
    words: tuple[str, ...]
    outputs: tuple[str, ...]
    earlier: tuple[tuple[str, ...], ...] = ()
    settle: tuple[str, ...] = ()
    repeats: bool = True


def words(line: str) -> tuple[str, ...]:
    """Split the arguments of a command; all commands are quiet."""
    return ("-q", *line.split())


_WORLD = "simulate -o out/world --overwrite --queries 3 --documents 3 --assessors 4 --features 3 --seed"
_RUN = (
    "run in/run.toml -j in/judgments.csv -f in/features.letor -e in/gold.qrels -o out/run --method majority "
    "--candidates majority,average,gls --folds 2 --no-refit --threads 1 --baseline"
)
_TABLES = "aggregate in/judgments.csv -o out/table.csv --assessors out/who.csv --save out/model -m"
_FOLDER = "aggregate in/parts --work out/shards -o out/consensus --threads 1 -m"
_TRAIN = "train -f in/features.letor -o out/ranker --threads 1 -r"
_EXPORT = "export out/ranker -o out/export --to"
_RANK = "rank -m out/ranker -f in/features.letor -o out/ranking.csv"
_NEXT = "collect next out/labels.csv --pairs in/pairs.csv --budget 7 -o out/requests.csv"
_ESTIMATE = "estimate in/live.csv in/new.csv --labels in/documents.csv --expert in/gold.qrels -o out/estimates.csv"
_JUDGED = "judge read -o out/judged.csv"
_STATUS = words("collect status out/labels.csv -m majority")


def _adding(name: str) -> list[Case]:
    file = f"labels.{name}"
    first, second = (words(f"collect add out/{file} in/batch-{number}.csv") for number in (0, 1))
    return [
        Case(f"collect add, new .{name}", first, (file,)),
        Case(f"collect add, .{name}", second, (file,), (first,)),
    ]


_FIRST = words("collect add out/labels.csv in/batch-0.csv")
_REQUESTS = ("requests.csv", "labels.requests.csv")

CASES = (
    Case("simulate, new", words(f"{_WORLD} 2"), ("world",)),
    Case("simulate", words(f"{_WORLD} 2"), ("world",), (words(f"{_WORLD} 1"),)),
    Case("aggregate, new", words(f"{_TABLES} average"), ("table.csv", "who.csv", "model"), (), ("table.csv",)),
    Case(
        "aggregate",
        words(f"{_TABLES} average"),
        ("table.csv", "who.csv", "model"),
        (words(f"{_TABLES} majority"),),
        ("table.csv",),
    ),
    Case("aggregate folder, new", words(f"{_FOLDER} average"), ("shards", "consensus"), (), ()),
    Case("aggregate folder", words(f"{_FOLDER} average"), ("shards", "consensus"), (words(f"{_FOLDER} majority"),)),
    Case("train, new", words(f"{_TRAIN} lambdamart -s n_estimators=3"), ("ranker",)),
    Case("train", words(f"{_TRAIN} lambdamart -s n_estimators=3"), ("ranker",), (words(f"{_TRAIN} gls"),)),
    Case("export, new", words(f"{_EXPORT} solr"), ("export",), (words(f"{_TRAIN} gls"),)),
    Case("export", words(f"{_EXPORT} solr"), ("export",), (words(f"{_TRAIN} gls"), words(f"{_EXPORT} ranklib"))),
    Case("rank, new", words(_RANK), ("ranking.csv",), (words(f"{_TRAIN} gls"),)),
    Case(
        "rank",
        words(_RANK),
        ("ranking.csv",),
        (words(f"{_TRAIN} gls"), words(_RANK), words(f"{_TRAIN} single-feature")),
    ),
    Case("estimate, new", words(_ESTIMATE), ("estimates.csv",)),
    Case("estimate", words(_ESTIMATE), ("estimates.csv",), (words(f"{_ESTIMATE} --measure P@5"),)),
    *_adding("csv"),
    *_adding("csv.gz"),
    *_adding("jsonl"),
    *_adding("parquet"),
    Case("collect next, new", words(_NEXT), _REQUESTS, (_FIRST,), _STATUS, repeats=False),
    Case("collect next", words(_NEXT), _REQUESTS, (_FIRST, words(_NEXT)), _STATUS, repeats=False),
    Case(
        "judge read",
        words(f"{_JUDGED} in/results-0.jsonl in/results-1.jsonl"),
        ("judged.csv", "judged.failures.csv"),
        (words(f"{_JUDGED} in/results-0.jsonl"),),
        ("judged.csv",),
    ),
    Case(
        "report", words("report out/run"), ("run",), (words(f"{_RUN} gls"),), words("report out/run -o tmp/page.html")
    ),
    Case("run, new", words(f"{_RUN} gls"), ("run",)),
    Case("run", words(f"{_RUN} gls"), ("run",), (words(f"{_RUN} majority"),)),
)


def make_inputs(folder: Path) -> None:
    """Write the inputs of all commands, and files of a user, into a new folder."""
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    (folder / OUT).mkdir(parents=True)
    (folder / "tmp").mkdir()
    line = "simulate -o in --queries 12 --documents 6 --assessors 8 --features 4 --labels 3 --seed 1"
    expect_success(run_forked(words(line), folder), line)
    given = folder / "in"
    with (given / "judgments.csv").open(encoding="utf-8", newline="") as stream:
        rows = [[row[name] for name in COLUMNS] for row in csv.DictReader(stream)]
    for number in range(BATCHES):
        with (given / f"batch-{number}.csv").open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([COLUMNS, *rows[number::BATCHES]])
        (given / f"results-{number}.jsonl").write_text(_batch_results(number), encoding="utf-8")
    (given / "run.toml").write_text(SMALL_FORESTS, encoding="utf-8")
    (given / "parts").mkdir()
    for number in (0, 1):
        pq.write_table(pa_csv.read_csv(given / f"batch-{number}.csv"), given / f"parts/{number}.parquet")
    with (given / "documents.csv").open(encoding="utf-8", newline="") as stream:
        documents = list(csv.DictReader(stream))
    pairs = [f"{row['query']},{row['document']}" for row in documents]
    (given / "pairs.csv").write_text("\n".join(["query,document", *pairs, ""]), encoding="utf-8")
    for name, scores in (("live", range(len(pairs))), ("new", [row["relevance"] for row in documents])):
        scored = [f"{pair},{score}" for pair, score in zip(pairs, scores, strict=True)]
        (given / f"{name}.csv").write_text("\n".join(["query,document,score", *scored, ""]), encoding="utf-8")
    for name, content in FOREIGN.items():
        (folder / name).write_text(content, encoding="utf-8")


def _batch_results(number: int) -> str:
    """Return results of a batch of requests to LLM judges, half of them without a grade."""
    lines = []
    for document in range(6):
        body = {"choices": [{"message": {"content": "2" if document % 2 else "perhaps"}}]}
        custom_id = f"q{number}/d{document}/judge/0/family/0f0f0f/0-3"
        lines.append({"custom_id": custom_id, "response": {"status_code": 200, "body": body}, "error": None})
    return "".join(json.dumps(line) + "\n" for line in lines)


def expect_success(done: Outcome, line: object) -> None:
    """Stop if a command that prepares trials fails."""
    if done.code:
        raise RuntimeError(f"{line} failed with exit code {done.code}: {done.text}")


@dataclass(frozen=True)
class Prepared:
    """A case with a folder to copy for each trial, and its outputs before and after an uninterrupted command."""

    case: Case
    folder: Path
    old: dict[str, Tree]
    new: dict[str, Tree]
    newer: dict[str, Tree]  # after the same command once more
    seconds: float
    points: tuple[str, ...]

    @classmethod
    def make(cls, case: Case, inputs: Path, place: Path) -> Prepared:
        """Run the command twice without interruption; both runs must give the same outputs."""
        folder = place / re.sub(r"\W+", "-", case.name)
        shutil.copytree(inputs, folder)
        for line in case.earlier:
            expect_success(run_forked(line, folder), line)
        if case.name == "report":
            _replace_report(folder / OUT / "run")
        found = []
        for turn in range(2):
            trial = place / f"{folder.name}.{turn}"
            shutil.copytree(folder, trial)
            done = run_forked(case.words, trial)
            expect_success(done, case.words)
            found.append(snapshots(trial, case.outputs))
            problems = [*leftovers(trial), *broken_manifests(trial), *touched(trial)]
            if problems:
                raise RuntimeError(f"{case.name} without interruption: {problems}")
        if found[0] != found[1]:
            raise RuntimeError(f"{case.name} gives different results each time: {different(found[0], found[1])}")
        newer = found[0]
        if not case.repeats:
            expect_success(run_forked(case.words, trial), case.words)
            newer = snapshots(trial, case.outputs)
        for turn in range(2):
            shutil.rmtree(place / f"{folder.name}.{turn}")
        return cls(case, folder, snapshots(folder, case.outputs), found[0], newer, done.seconds, done.points)


def _replace_report(folder: Path) -> None:
    from crowdrank._folders import open_folder, update_folder
    from crowdrank.pipeline.run_result import RUN

    with update_folder(folder, open_folder(folder, RUN), "report.html") as draft:
        draft.write_text("an older report", encoding="utf-8")


def different(one: dict[str, Tree], other: dict[str, Tree]) -> list[str]:
    """Return the paths whose content differs."""
    pairs = ((one.get(name, {}), other.get(name, {}), name) for name in {**one, **other})
    return [f"{name}/{path}" for a, b, name in pairs for path in {**a, **b} if a.get(path) != b.get(path)]


def snapshots(trial: Path, outputs: tuple[str, ...]) -> dict[str, Tree]:
    """Return a digest of every file of each output; an output that does not exist has none."""
    return {name: _snapshot(trial / OUT / name) for name in outputs}


def _snapshot(path: Path) -> Tree:
    if path.is_file():
        return {"": _digest(path)}
    files = {one.relative_to(path).as_posix(): one for one in sorted(path.rglob("*")) if one.is_file()}
    kept = {
        name: _digest(one)
        for name, one in files.items()
        if not name.startswith(f"{CACHE}/") and not any(TEMPORARY.fullmatch(part) for part in Path(name).parts)
    }
    if set(kept) == {"crowdrank.json"} and not _json(path / "crowdrank.json")["entries"]:
        return {}  # a run that has only its cache so far
    return kept


def without_report(tree: Tree) -> Tree:
    """Return the digests of a run whose report is not written yet, or could not be written."""
    return {name: known for name, known in tree.items() if name != REPORT}


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _digest(path: Path) -> str:
    """Return a digest of a file without times and durations."""
    content = path.read_bytes()
    if path.name == "crowdrank.json":
        about = json.loads(content)
        entries = about["entries"].items()
        about["entries"] = {name: "" if name in VARYING else known for name, known in entries if name != REPORT}
        content = json.dumps(about).encode()
    elif path.name == "profile.json":
        content = b""
    elif path.name in VARYING:
        content = re.sub(rb'<details class="more" id="profile">.*?</details>', b"", content, flags=re.DOTALL)
        content = re.sub(rb"\d+(?:\.\d+)? (?:s|seconds?|minutes?)\b", b"", content)
    elif path.name.endswith(".requests.csv"):
        content = re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", b"", content)
    return hashlib.sha256(content).hexdigest()


def broken_manifests(trial: Path) -> list[str]:
    """Return what is wrong with the folders that crowdrank wrote: entries that are missing, changed or not listed."""
    found = []
    for path in (trial / OUT).rglob("crowdrank.json"):
        folder = path.parent
        place = folder.relative_to(trial).parts
        if CACHE in place or any(TEMPORARY.fullmatch(part) for part in place):
            continue
        entries = _json(path)["entries"]
        for name, known in entries.items():
            file = folder / name
            if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != known:
                found.append(f"{file.relative_to(trial)} is not as crowdrank.json says")
        if folder.parent == trial / OUT:
            unlisted = set(_snapshot(folder)) - set(entries) - {"crowdrank.json"}
            found += [f"{name} is not in crowdrank.json" for name in unlisted]
    return found


def leftovers(trial: Path) -> list[str]:
    """Return temporary files and folders below a trial."""
    found = (path for path in trial.rglob("*") if TEMPORARY.fullmatch(path.name))
    return [f"{path.relative_to(trial)} was left" for path in found]


def touched(trial: Path) -> list[str]:
    """Return the files of a user that have changed or gone."""
    return [
        f"{name} was changed"
        for name, content in FOREIGN.items()
        if not (trial / name).is_file() or (trial / name).read_text(encoding="utf-8") != content
    ]


def rows_in(path: Path, names: tuple[str, ...]) -> Counter[tuple[str, ...]]:
    """Return how often each combination of values of some columns is in a table."""
    import pyarrow.parquet as pq

    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
    else:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8", newline="") as stream:
            rows = [json.loads(line) for line in stream] if ".jsonl" in path.name else list(csv.DictReader(stream))
    return Counter(tuple(str(row[name]) for name in names) for row in rows)
