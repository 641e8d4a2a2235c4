"""Alter saved folders at random, load and use them: the outcome is a result or a CrowdrankError.

    python -m tools.fuzz_saved --count 5000 --seconds 600 --seed 1

Models, rankers, remappers, shards, checkpoints, a run, a ledger and a journal are created once. Each case alters a copy
of one of them; in half of the cases the digests in its manifests are then updated, as an attacker would. The cases run
in a child process, so that a crash is detected and its case is reported.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crowdrank import _files
from crowdrank._files import MANIFEST_FILE_NAME
from crowdrank._folders import FolderKind, Manifest, write_manifest
from crowdrank._saved_estimators import arrays_from_table, arrays_to_table
from crowdrank.errors import CrowdrankError
from tools.mutations import mutate

Use = Callable[[Path], None]
REPLACEMENTS: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 255, 2**31, -(2**31), 2**53, 2**63, 10**30, 0.5, -0.0, 1e308, float("nan"),
    float("inf"), "", "x", "0", "-1", "../../etc/passwd", "/etc/passwd", "NaN", "\ud800", "a" * 5000, [], {}, [[]],
    [0], ["x"], {"x": 1}, [None] * 3, [-1, 2**40],
)  # fmt: skip
"""Values that replace others in JSON files."""
EXTREMES = (-1, 0, 1, 2, 5, 100, 127, -128, 2**31 - 1, -(2**31), 2**40, 2**63 - 1)
FLOATS = (np.nan, np.inf, -np.inf, -1.0, 0.0, 1e300, -1e300, 1e-300, 1e11, 2.0, 0.5)
CASE_SECONDS = 120
"""Maximum number of seconds of a case; a longer one ends the process."""
FAST = Path("/dev/shm")
"""Folder in memory, if there is one: most of the time is spent on copying files."""
MEMORY = 12 << 30
"""Maximum number of bytes of memory of the child process."""


@dataclass(frozen=True)
class Artifact:
    """Saved folder, the function that uses an altered copy of it, and its relative frequency."""

    name: str
    folder: Path
    use: Use
    weight: float = 1.0


def run(count: int, seconds: float, seed: int) -> dict[str, int]:
    """Run cases in a child process; return the numbers of refused and used copies of each artifact.

    Raises:
        AssertionError: a case raised another exception or ended the process.

    """
    with tempfile.NamedTemporaryFile("r", suffix=".case") as case:
        command = [sys.executable, "-m", "tools.fuzz_saved", "--worker", case.name]
        command += ["--count", str(count), "--seconds", str(seconds), "--seed", str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        last = case.read()
    if done.returncode:
        how = f"signal {-done.returncode}" if done.returncode < 0 else "an exception"
        raise AssertionError(f"seed {seed}, case {last}: the process ended by {how}.\n{done.stderr[-6000:]}")
    outcomes: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return outcomes


def work(count: int, seconds: float, seed: int, case_file: Path, first: int = 0) -> dict[str, int]:
    """Run cases in this process; write the number of the current one to `case_file`."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=FAST if FAST.is_dir() else None) as name:
        root = Path(name)
        (root / "artifacts").mkdir()
        artifacts = make_artifacts(root / "artifacts")
        weights = np.array([one.weight for one in artifacts])
        deadline = time.monotonic() + seconds
        for number in range(first, first + count):
            if time.monotonic() > deadline:
                break
            drawn = np.random.default_rng([seed, number]).choice(len(artifacts), p=weights / weights.sum())
            artifact = artifacts[int(drawn)]
            case_file.write_text(f"{number} ({artifact.name})")
            signal.alarm(CASE_SECONDS)
            outcomes[f"{artifact.name}: {run_case(artifact, [seed, number, 1], root / 'case')}"] += 1
        signal.alarm(0)
    return dict(sorted(outcomes.items()))


def run_case(artifact: Artifact, seed: Sequence[int], place: Path) -> str:
    """Alter a copy of an artifact, then load and use it; return "refused" or "used"."""
    copy_alter_value(artifact, np.random.default_rng(seed), place)
    try:
        artifact.use(place)
    except CrowdrankError:
        return "refused"
    except BaseException as problem:
        saved = Path(tempfile.mkdtemp(prefix="crowdrank-fuzz-")) / artifact.name
        copy_alter_value(artifact, np.random.default_rng(seed), saved)
        frames = "".join(traceback.format_exception(problem)[-12:])
        raise AssertionError(f"seed {seed}: {artifact.name}, saved in {saved}:\n{frames}") from problem
    return "used"


def copy_alter_value(artifact: Artifact, rng: np.random.Generator, place: Path) -> None:
    """Copy an artifact and alter the copy."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(artifact.folder, place, copy_function=shutil.copyfile)
    kinds = manifest_kinds(place)
    keep_valid = bool(rng.random() < 0.5)
    for _ in range(1 if rng.random() < 0.7 else int(rng.integers(2, 4))):
        alter(place, rng, keep_valid=keep_valid)
    if keep_valid:
        update_digests(place, kinds)


# Altering.


def manifest_kinds(folder: Path) -> dict[str, FolderKind]:
    """Return the kinds of a folder and those inside it by their relative paths, innermost first."""
    found = {}
    for path in sorted(folder.rglob(MANIFEST_FILE_NAME), key=lambda path: -len(path.parts)):
        manifest = Manifest.read(path.parent)
        found[str(path.parent.relative_to(folder))] = FolderKind(manifest.kind, manifest.format, "", "")
    return found


def update_digests(folder: Path, kinds: dict[str, FolderKind]) -> None:
    """Update the digests in the manifests of an altered folder."""
    _update_shard_digests(folder)
    for name, kind in kinds.items():
        if (folder / name).is_dir():
            write_manifest(folder / name, kind)


def _update_shard_digests(folder: Path) -> None:
    """Update the digests of shards, if their codes can still be read."""
    try:
        about = json.loads((folder / "judgments.json").read_text())
        for shard in about["shards"]:
            digest = hashlib.blake2b(digest_size=16)
            with (folder / f"codes-{shard['number']:05d}.npy").open("rb") as stream:
                for _ in range(5):
                    digest.update(np.ascontiguousarray(np.load(stream)).data)
            shard["digest"] = digest.hexdigest()
        (folder / "judgments.json").write_text(json.dumps(about))
    except Exception:  # there are no shards, or they cannot be read
        return


def alter(folder: Path, rng: np.random.Generator, *, keep_valid: bool) -> None:
    """Alter one file of a folder, but not a manifest that is updated later."""
    files = sorted(
        path for path in folder.rglob("*") if path.is_file() and not (keep_valid and path.name == MANIFEST_FILE_NAME)
    )
    if not files:
        return
    path = files[rng.integers(len(files))]
    kind = rng.random()
    if kind < 0.03:
        path.unlink()
    elif kind < 0.08:
        other = files[rng.integers(len(files))]
        if other.exists():
            mine, theirs = path.read_bytes(), other.read_bytes()
            path.write_bytes(theirs)
            other.write_bytes(mine)
    elif kind < 0.3:
        mutate_file(path, rng)
    else:
        try:
            by_suffix(path)(path, rng)
        except Exception:  # an earlier change made it unreadable: damage it further
            mutate_file(path, rng)


def by_suffix(path: Path) -> Callable[[Path, np.random.Generator], None]:
    """Return the function that alters files of this kind."""
    known = {".json": alter_json, ".journal": alter_json, ".npy": alter_npy, ".arrow": alter_ipc}
    known |= {".csv": alter_lines, ".txt": alter_lines, ".md": alter_lines, ".parquet": alter_parquet}
    return known.get(path.suffix, mutate_file)


def mutate_file(path: Path, rng: np.random.Generator) -> None:
    """Change bytes of a file, or create it."""
    content = path.read_bytes() if path.exists() else b""
    path.write_bytes(mutate(content, random.Random(rng.bytes(8))))


def alter_json(path: Path, rng: np.random.Generator) -> None:
    """Replace, remove, rename or repeat a value, at any depth."""
    value = json.loads(path.read_text())
    if rng.random() < 0.03:
        path.write_text("[" * 100_000 + "]" * 100_000 if rng.random() < 0.5 else json.dumps(_replacement(rng)))
        return
    path.write_text(json.dumps(_alter_value(value, rng)))


def _alter_value(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, dict) and value:
        key = sorted(value)[rng.integers(len(value))]
        kind = rng.random()
        if kind < 0.1:
            return {name: one for name, one in value.items() if name != key}
        if kind < 0.15:
            return {("x" if name == key else name): one for name, one in value.items()}
        return {**value, key: _alter_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = int(rng.integers(len(value)))
        kind = rng.random()
        if kind < 0.15:
            return value[:place] + value[place + 1 :]
        if kind < 0.3:
            return value[: place + 1] + value[place:]
        return [*value[:place], _alter_value(value[place], rng), *value[place + 1 :]]
    return _replacement(rng, value)


def _replacement(rng: np.random.Generator, value: Any = None) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.4:
        return (-value, value + 1, value - 1, float(value), str(value), value * 1000)[rng.integers(6)]
    return REPLACEMENTS[rng.integers(len(REPLACEMENTS))]


def alter_parquet(path: Path, rng: np.random.Generator) -> None:
    """Alter a column, the rows or the metadata of a Parquet file."""
    table = pq.ParquetFile(path).read()
    if table.column_names == ["name", "dtype", "shape", "bytes"] and rng.random() < 0.8:
        pq.write_table(arrays_to_table(_alter_arrays(arrays_from_table(table), rng)), path)
        return
    metadata = table.schema.metadata or {}
    if b"crowdrank" in metadata and rng.random() < 0.4:
        about = json.dumps(_alter_value(json.loads(metadata[b"crowdrank"]), rng))
        table = table.replace_schema_metadata({"crowdrank": about})
    else:
        table = _alter_table(table, rng)
    pq.write_table(table, path)


def _alter_arrays(arrays: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    if not arrays:
        return {"x": np.zeros(1)}
    names = sorted(arrays)
    name, other = (names[rng.integers(len(names))] for _ in range(2))
    array = arrays[name]
    match rng.integers(9):
        case 0:
            return {one: values for one, values in arrays.items() if one != name}
        case 1:
            return {("x" if one == name else one): values for one, values in arrays.items()}
        case 2:
            return {**arrays, name: arrays[other]}
        case 3:
            return {**arrays, name: array.astype([np.float64, np.int64, np.float32, np.bool_][rng.integers(4)])}
        case 4:
            return {**arrays, name: array.T if rng.random() < 0.5 else array.ravel()}
        case 5:
            return {**arrays, name: array[: len(array) // 2] if array.ndim else array}
        case 6:
            return {**arrays, name: np.concatenate([array, array]) if array.ndim else array}
        case 7:
            return {**arrays, name: np.full(array.shape, _extreme(array.dtype, rng), array.dtype)}
        case _:
            return {**arrays, name: _set_extremes(array, rng)}


def _extreme(dtype: Any, rng: np.random.Generator) -> Any:
    if np.dtype(dtype).kind == "f":
        return FLOATS[rng.integers(len(FLOATS))]
    return np.array(EXTREMES[rng.integers(len(EXTREMES))]).astype(dtype)


def _set_extremes(array: Any, rng: np.random.Generator) -> Any:
    changed = array.copy()
    if changed.size:
        for place in rng.integers(0, changed.size, int(rng.integers(1, 4))):
            changed.reshape(-1)[place] = _extreme(changed.dtype, rng)
    return changed


def _alter_table(table: pa.Table, rng: np.random.Generator) -> pa.Table:
    names = table.column_names
    if not names:
        return pa.table({"x": [1]})
    place = int(rng.integers(len(names)))
    name, column = names[place], table[names[place]]
    match rng.integers(9):
        case 0:
            return table.drop_columns([name])
        case 1:
            return table.rename_columns([("x" if one == name else one) for one in names])
        case 2:
            return table.select([names[at] for at in rng.permutation(len(names))])
        case 3:
            return table.slice(0, int(rng.integers(len(table) + 1)))
        case 4:
            return pa.concat_tables([table, table])
        case 5:
            return table.take(pa.array(rng.permutation(len(table))))
        case 6:
            kinds = (pa.string(), pa.int64(), pa.float64(), pa.int32(), pa.int8(), pa.bool_(), pa.large_string())
            return table.set_column(place, name, column.cast(kinds[rng.integers(len(kinds))], safe=False))
        case 7:
            return table.set_column(place, name, table[names[rng.integers(len(names))]])
        case _:
            values = column.to_pylist()
            for at in rng.integers(0, max(len(values), 1), int(rng.integers(1, 4))):
                values[at] = _replacement_cell(column.type, rng)
            return table.set_column(place, name, pa.array(values, column.type))


def _replacement_cell(kind: pa.DataType, rng: np.random.Generator) -> Any:
    if rng.random() < 0.2:
        return None
    if pa.types.is_integer(kind):
        least, most = (-(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1)
        return min(max(EXTREMES[rng.integers(len(EXTREMES))], least), most)
    if pa.types.is_floating(kind):
        return FLOATS[rng.integers(len(FLOATS))]
    if pa.types.is_list(kind):
        return [EXTREMES[rng.integers(len(EXTREMES))]]
    if pa.types.is_boolean(kind):
        return bool(rng.random() < 0.5)
    text = ("", "x", "0", "<f8", "|O", "|V8", "a" * 300)[rng.integers(7)]
    return text.encode() if pa.types.is_large_binary(kind) else text


def alter_npy(path: Path, rng: np.random.Generator) -> None:
    """Alter one array of a file."""
    arrays = []
    with path.open("rb") as stream:
        while stream.tell() < path.stat().st_size:
            arrays.append(np.load(stream))
    named = _alter_arrays({f"{number:02d}": array for number, array in enumerate(arrays)}, rng)
    with path.open("wb") as stream:
        for array in named.values():
            np.save(stream, array)


def alter_ipc(path: Path, rng: np.random.Generator) -> None:
    """Alter a column or the rows of an Arrow file."""
    with pa.OSFile(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    table = _alter_table(table, rng)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def alter_lines(path: Path, rng: np.random.Generator) -> None:
    """Alter a line of a text, or a value in it; in most cases, update the sizes of LightGBM's trees."""
    lines = path.read_bytes().decode().split("\n")
    if path.suffix == ".txt" and "end of trees" in lines and rng.random() < 0.9:
        place = int(rng.integers(lines.index("end of trees")))
    else:
        place = int(rng.integers(len(lines)))
    match rng.integers(6):
        case 0:
            del lines[place]
        case 1:
            lines.insert(place, lines[place])
        case 2:
            other = int(rng.integers(len(lines)))
            lines[place], lines[other] = lines[other], lines[place]
        case _:
            lines[place] = _alter_line(lines[place], rng)
    text = "\n".join(lines)
    path.write_text(
        _update_tree_sizes(text) if rng.random() < 0.8 else text, encoding="utf-8", errors="replace", newline=""
    )


def _alter_line(line: str, rng: np.random.Generator) -> str:
    separator = "," if "," in line else " "
    head, equals, rest = line.partition("=") if separator == " " else ("", "", line)
    cells = (rest or head).split(separator)
    place = int(rng.integers(len(cells)))
    kind = rng.random()
    if kind < 0.15:
        del cells[place]
    elif kind < 0.3:
        cells.insert(place, cells[place])
    elif kind < 0.6 and cells[place].lstrip("-").isdigit():
        cells[place] = str(int(cells[place]) + int(rng.integers(-3, 4)))
    else:
        odd = (*EXTREMES, *FLOATS, "", "x", "1_0", "-", "\x00", "é", '"', "2024-13-45", "1e999", "9" * 40)
        cells[place] = str(odd[rng.integers(len(odd))])
    return f"{head}{equals}{separator.join(cells)}" if rest else separator.join(cells)


def _update_tree_sizes(text: str) -> str:
    """Update the sizes of the trees in a LightGBM model."""
    head, found, rest = text.partition("Tree=")
    if not found or "end of trees" not in rest or "tree_sizes=" not in head:
        return text
    body = found + rest[: rest.index("end of trees")]
    sizes = " ".join(str(len(f"Tree={part}".encode())) for part in body.split("Tree=")[1:])
    lines = [f"tree_sizes={sizes}" if line.startswith("tree_sizes=") else line for line in head.split("\n")]
    return "\n".join(lines) + found + rest


# Artifacts.


def make_artifacts(root: Path) -> list[Artifact]:
    """Create small folders of every kind."""
    import crowdrank
    from crowdrank.on_disk.storage import load

    world = crowdrank.simulate(
        queries=12, documents=4, assessors=6, labels=4, gold_queries=8, families=2, random_state=1
    )
    judgments, gold = crowdrank.read_judgments(world.judgments), crowdrank.read_gold(world.gold)
    artifacts = [*_models(root, judgments, gold), *_rankers(root, world), *_remappers(root)]
    artifacts += [
        *_shards(root, world.judgments),
        *_checkpoints(root, judgments),
        *_run(root),
        _ledger(root, judgments),
    ]
    artifacts += [_journal(root)]
    (root / "judgments").mkdir()
    _save_judgments(judgments, root / "judgments" / "judgments.parquet")
    artifacts.append(
        Artifact("judgments", root / "judgments", lambda folder: _use_judgments(load(folder / "judgments.parquet")))
    )
    return artifacts


def _save_judgments(judgments: Any, path: Path) -> None:
    from crowdrank.on_disk.storage import save

    save(judgments, path)


def _use_judgments(judgments: Any) -> None:
    assert len(judgments.frame) == len(judgments)
    repr(judgments)
    if judgments.maps_to_one_scale:
        judgments.to_one_scale().with_unjudgeable("lowest").where(np.ones(len(judgments), bool))


def _models(root: Path, judgments: Any, gold: Any) -> list[Artifact]:
    from crowdrank.consensus import get_aggregator
    from crowdrank.consensus.model import Aggregator

    subset = judgments.where(np.arange(len(judgments)) < 20)

    def use(folder: Path) -> None:
        model = Aggregator.load(folder)
        repr(model), model._repr_html_(), model.consensus_.documents, model.consensus_.assessors
        model.predict()
        model.infer(subset)
        model.posterior(subset)
        model.add(subset, n_iter=1)

    settings: dict[str, dict[str, Any]] = {
        "majority": {}, "bwa": {}, "dawid-skene": {}, "one-coin": {}, "glad": {}, "rasch": {}, "gda-pairwise": {},
        "gda": {"unjudgeable_as": "model", "difficulty": True}, "auto": {"candidates": ("average", "dawid-skene")},
    }  # fmt: skip
    artifacts = []
    for method, options in settings.items():
        limits = {} if method in ("majority", "auto") else {"n_iter": 5}
        model = get_aggregator(method, **options, **limits)
        model.fit(judgments, gold if method in ("gda", "glad") else None).save(root / method)
        artifacts.append(Artifact(f"model {method}", root / method, use, 0.5 if method == "auto" else 1.0))
    return artifacts


def _rankers(root: Path, world: Any) -> list[Artifact]:
    from crowdrank.rankers import get_ranker
    from crowdrank.rankers.ranker import Ranker

    rows = world.features.merge(world.gold, on=["query", "document"])
    X, y, query = rows.drop(columns=["query", "document", "grade"]), rows["grade"], rows["query"]
    trees = get_ranker("lambdamart", n_estimators=4, num_leaves=4, min_child_samples=2)
    linear = get_ranker("gls")
    rankers = {"lambdamart": trees, "gls": linear, "ensemble": get_ranker("ensemble", members=[trees, linear])}
    rankers["tree-features"] = get_ranker("tree-features", n_trees=4)
    rankers["rd"] = get_ranker("rd")
    rankers["lambdarank-net"] = get_ranker("lambdarank-net", hidden=(4,), epochs=2)

    def use(folder: Path) -> None:
        ranker = Ranker.load(folder)
        assert len(ranker.predict(X, query)) == len(X)
        ranker._repr_html_()

    for name, ranker in rankers.items():
        ranker.fit(X, y, query=query).save(root / name)
    return [Artifact(f"ranker {name}", root / name, use, 3.0 if name == "lambdamart" else 1.0) for name in rankers]


def _remappers(root: Path) -> list[Artifact]:
    import crowdrank
    from crowdrank.label_learning.boosted_remapper import BoostedRemapper
    from crowdrank.label_learning.label_features import label_features
    from crowdrank.label_learning.linear_remapper import LinearRemapper
    from crowdrank.label_learning.remapper import Remapper

    world = crowdrank.simulate(queries=16, documents=4, label_grades=2, gold_queries=12, random_state=1)
    labels = label_features(world.judgments, kind="remap")
    X = world.features.drop(columns=["query", "document"])

    def use(folder: Path) -> None:
        remapper = Remapper.load(folder)
        remapper.transform(labels)
        remapper.predict(X)
        repr(remapper), remapper._repr_html_()

    remappers: dict[str, Any] = {
        "linear": LinearRemapper(n_iter=2, tree_features=0),
        "boosted": BoostedRemapper(n_iter=2, tree_features=5),
    }
    for name, remapper in remappers.items():
        remapper.fit(labels, world.features, world.gold).save(root / name)
    return [Artifact(f"remapper {name}", root / name, use) for name in remappers]


def _shards(root: Path, frame: Any) -> list[Artifact]:
    import crowdrank
    from crowdrank.consensus.assembly import StoredConsensus
    from crowdrank.on_disk.sharded import load_sharded

    (root / "partitions").mkdir()
    frame.to_parquet(root / "partitions" / "0.parquet")
    work = crowdrank.read_partitions(root / "partitions", work=root / "shards", shard_size=80)
    crowdrank.DawidSkene(n_iter=1).fit(work, output=root / "stored")

    def load(folder: Path) -> None:
        judgments = load_sharded(folder)
        for place in range(len(judgments.shards)):
            judgments.load(place)
            judgments.query_indexes(place)
        repr(judgments), judgments.sample()

    def fit(folder: Path) -> None:
        crowdrank.DawidSkene(n_iter=1).fit(load_sharded(folder)).consensus_.documents  # noqa: B018

    def read(folder: Path) -> None:
        consensus = StoredConsensus(folder)
        repr(consensus), consensus.documents, consensus.assessors, consensus._repr_html_()

    return [
        Artifact("shards", root / "shards", load, 2.0),
        Artifact("shards, fitted", root / "shards", fit, 0.3),
        Artifact("stored consensus", root / "stored", read),
    ]


def _checkpoints(root: Path, judgments: Any) -> list[Artifact]:
    from crowdrank.consensus import get_aggregator
    from crowdrank.consensus.saved_models import Checkpoint

    class StoppedError(Exception):
        """Exception that ends a fit after a few iterations."""

    def stop(iteration: int, *rest: object) -> None:
        if iteration == 3:
            raise StoppedError

    artifacts = []
    for method in ("dawid-skene", "glad", "gda-pairwise"):
        folder = root / f"checkpoint-{method}"
        with contextlib.suppress(StoppedError):
            get_aggregator(method).fit(judgments, checkpoint=Checkpoint(folder, every=0.0), progress=stop)

        def use(folder: Path, method: str = method) -> None:
            get_aggregator(method, n_iter=4).fit(judgments, checkpoint=folder)

        artifacts.append(Artifact(f"checkpoint {method}", folder, use, 0.5))
    return artifacts


def _run(root: Path) -> list[Artifact]:
    import crowdrank
    from crowdrank.pipeline.run_result import RunResult, reading_run
    from crowdrank.reports import page
    from crowdrank.reports.page import SECTIONS
    from crowdrank.reports.report_data import ReportData

    world = crowdrank.simulate(queries=14, documents=4, gold_queries=12, assessors=5, random_state=1)
    ranking = world.documents[["query", "document"]].assign(score=world.documents["relevance"])
    ranking.to_csv(root / "live.csv", index=False)
    options: dict[str, Any] = {
        "candidates": ["average", "gls"],
        "feature_labels": True,
        "baseline": str(root / "live.csv"),
    }
    result = crowdrank.run(world.judgments, world.features, world.gold, output=root / "run", **options)
    assert result.estimate is not None
    shutil.rmtree(root / "run" / "stages")

    def read(folder: Path) -> None:
        result = RunResult.load(folder)
        no_figures = mock.patch.object(page, "draw_figures", return_value=dict.fromkeys(SECTIONS, ()))
        with no_figures, reading_run(folder):  # charts take seconds
            page.render(ReportData(result, folder))

    def report(folder: Path) -> None:
        page.write_report(folder)

    return [Artifact("run", root / "run", read, 2.0), Artifact("run, with charts", root / "run", report, 0.02)]


def _ledger(root: Path, judgments: Any) -> Artifact:
    import pandas as pd

    from crowdrank.collection.requests import OutstandingRequests

    items = judgments.to_arrow().slice(0, 6).to_pandas()
    (root / "ledger").mkdir()
    rows = items[["query", "document", "assessor"]].assign(kind="human", price=1.5, had=1, asked="2024-05-31T12:00:00Z")
    pd.DataFrame(rows).to_csv(root / "ledger" / "a.requests.csv", index=False)

    def use(folder: Path) -> None:
        waiting = OutstandingRequests.read(folder / "a.requests.csv")
        waiting.where(waiting.is_outstanding(judgments)).by_kind()
        waiting.append(waiting).by_kind()

    return Artifact("ledger", root / "ledger", use)


def _journal(root: Path) -> Artifact:
    """Create the files that a crash between two renames leaves."""
    folder = root / "journal"
    folder.mkdir()
    renames = [[f".{name}.0123456789abcdef.draft", name, ""] for name in ("a.csv", "b.csv")]
    (folder / "a.csv").write_text("old")
    (folder / ".b.csv.0123456789abcdef.draft").write_text("new")
    (folder / ".a.csv.journal").write_text(json.dumps(renames))

    def use(folder: Path) -> None:
        with contextlib.redirect_stderr(io.StringIO()):
            _files.recover(folder / "a.csv")

    return Artifact("journal", folder, use, 0.3)


def main() -> None:
    """Run cases from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5_000, help="Maximum number of cases.")
    parser.add_argument("--seconds", type=float, default=600.0, help="Maximum time.")
    parser.add_argument("--seed", type=int, default=0, help="Random seed.")
    parser.add_argument("--case", type=int, default=0, help="Number of the first case.")
    parser.add_argument("--worker", type=Path, help="Run the cases in this process; write their numbers to this file.")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if arguments.worker is None:
        outcomes = run(arguments.count, arguments.seconds, arguments.seed)
        for name, number in outcomes.items():
            print(f"{number:7,} {name}")  # noqa: T201
        return
    print(json.dumps(work(arguments.count, arguments.seconds, arguments.seed, arguments.worker, arguments.case)))  # noqa: T201


if __name__ == "__main__":
    main()
