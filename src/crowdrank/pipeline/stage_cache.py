"""Cache of the stages of a run, so that an interrupted run can resume, and time and memory of each stage."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa

from crowdrank._arrow import peak_bytes, resident_bytes
from crowdrank._files import write_file
from crowdrank._folders import Fields
from crowdrank._typing import Arrays
from crowdrank.errors import CrowdrankError
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.table import Judgments
from crowdrank.readers.features import Features

PROFILE_FILE = "profile.json"
"""Name of the file with the profile of a run."""
SECONDS_BETWEEN_SAMPLES = 0.05
"""Seconds between two measurements of the memory."""
OTHER = "other"
"""Stage with the time of a run that belongs to no other stage."""
TITLES = {"ranker": "training", "scores": "cross-validation", "deployable": "distillation"}
"""Titles of stages that are not their names in the cache."""
_GIGABYTE = 1e9


@dataclass(frozen=True)
class StageProfile:
    """Time and memory of a stage, without the stages within it.

    Attributes:
        stage: kind of the stage, such as `consensus` or `training`.
        name: name of the model or candidate, if the stage has one.
        calls: how often the stage was run.
        reused: number of these calls whose result an earlier run had stored.
        seconds: wall-clock time. Stages in parallel threads overlap, so that their sum can exceed that of the run.
        cpu_seconds: CPU time of the threads of the stage, without processes on a cluster.
        peak_bytes: maximum resident memory of the process during the stage.

    """

    stage: str
    name: str
    calls: int = 0
    reused: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0


@dataclass(frozen=True)
class RunProfile:
    """Time and memory of a run.

    Attributes:
        stages: stages in the order in which they began; the last entry holds the time outside all stages.
        seconds: wall-clock time of the run.
        cpu_seconds: CPU time of the run.
        peak_bytes: maximum resident memory of the process during the run.

    """

    stages: tuple[StageProfile, ...] = ()
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0

    def rows(self) -> list[dict[str, str]]:
        """Return a table of the stages as text, with the run in the last row.

        >>> stage = StageProfile("consensus", "gda", 1, 0, 2.0, 3.5, 1_500_000_000)
        >>> RunProfile((stage,), 4.0, 5.0, 1_600_000_000).rows()[0]
        {'stage': 'consensus gda', 'calls': '1', 'seconds': '2.0', 'CPU seconds': '3.5', 'CPU': '70%', 'GB': '1.50'}
        """
        total = StageProfile("run", "", 1, 0, self.seconds, self.cpu_seconds, self.peak_bytes)
        return [
            {
                "stage": f"{stage.stage} {stage.name}".strip(),
                "calls": f"{stage.calls}" + (f" ({stage.reused} stored)" if stage.reused else ""),
                "seconds": f"{stage.seconds:.1f}",
                "CPU seconds": f"{stage.cpu_seconds:.1f}",
                "CPU": f"{stage.cpu_seconds / max(self.cpu_seconds, 1e-9):.0%}",
                "GB": f"{stage.peak_bytes / _GIGABYTE:.2f}",
            }
            for stage in (*self.stages, total)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the profile, ready for JSON."""
        return asdict(self)

    def save(self, path: Path) -> None:
        """Write the profile to a file."""
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a profile; raise ValueError if a value is missing or of the wrong type."""
        fields = Fields.read(path)
        stages = fields.sequence("stages", lambda value: isinstance(value, dict), "objects")
        return cls(tuple(StageProfile(**_figures(Fields(one), one)) for one in stages), **_totals(fields))


def _totals(fields: Fields) -> dict[str, Any]:
    times = {name: fields.number(name) for name in ("seconds", "cpu_seconds")}
    return {**times, "peak_bytes": fields.integer("peak_bytes")}


def _figures(fields: Fields, values: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: fields.text(name) for name in ("stage", "name")}
    counts = {name: fields.integer(name) for name in ("calls", "reused")}
    return {**texts, **counts, **_totals(fields)}


@dataclass
class _Measurement:
    """Stage that is being measured: when it began, and what of its time belongs to stages within it."""

    key: tuple[str, str]
    wall: float
    cpu: float
    highest: int
    peak: int
    inner_wall: float = 0.0
    inner_cpu: float = 0.0
    reused: int = 0


@dataclass(eq=False)
class Profiler:
    """Measures the stages of a run; several threads can be in stages at the same time.

    A stage that begins within another one of the same thread is not counted in the outer one. A thread samples the
    memory, so that a shorter peak that is not the highest of the process can be missed.

    >>> profiler = Profiler()
    >>> with profiler, profiler.stage("consensus", "gda"):
    ...     pass
    >>> [(stage.stage, stage.name, stage.calls) for stage in profiler.profile().stages]
    [('consensus', 'gda', 1), ('other', '', 1)]
    """

    _totals: dict[tuple[str, str], StageProfile] = field(default_factory=dict)
    _innermost: dict[int, _Measurement] = field(default_factory=dict)
    _threads: threading.local = field(default_factory=threading.local)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _peak: int = 0
    _began: tuple[float, float] = field(default_factory=lambda: (time.monotonic(), time.process_time()))
    _sampler: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Begin to sample the memory."""
        self._stopped.clear()
        self._sampler = threading.Thread(target=self._sample, name="crowdrank-profiler", daemon=True)
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop sampling."""
        self._stopped.set()
        if self._sampler is not None:
            self._sampler.join()

    def use_thread_clock(self) -> None:
        """Count only the CPU time of the calling thread in its stages, because others run at the same time."""
        self._threads.clock = time.thread_time

    @contextmanager
    def stage(self, stage: str, name: str = "") -> Iterator[_Measurement]:
        """Measure the block as a stage; calls with the same stage and name are added up."""
        clock = getattr(self._threads, "clock", time.process_time)
        key, thread = (TITLES.get(stage, stage), name), threading.get_ident()
        outer = self._innermost.get(thread)
        inner = _Measurement(key, time.monotonic(), clock(), peak_bytes(), resident_bytes())
        with self._lock:
            self._totals.setdefault(key, StageProfile(*key))
            self._innermost[thread] = inner
        try:
            yield inner
        finally:
            self._finish(inner, outer, clock(), thread)

    def _finish(self, inner: _Measurement, outer: _Measurement | None, cpu_now: float, thread: int) -> None:
        """Add a measurement to the total of its stage, and subtract it from the outer stage."""
        wall, cpu, highest = time.monotonic() - inner.wall, cpu_now - inner.cpu, peak_bytes()
        peak = max(inner.peak, resident_bytes(), highest if highest > inner.highest else 0)
        with self._lock:
            total = self._totals[inner.key]
            self._totals[inner.key] = replace(
                total,
                calls=total.calls + 1,
                reused=total.reused + inner.reused,
                seconds=total.seconds + (wall - inner.inner_wall),
                cpu_seconds=total.cpu_seconds + (cpu - inner.inner_cpu),
                peak_bytes=max(total.peak_bytes, peak),
            )
            self._peak = max(self._peak, peak)
            if outer is None:
                del self._innermost[thread]
            else:
                outer.inner_wall += wall
                outer.inner_cpu += cpu
                outer.highest = highest
                self._innermost[thread] = outer

    def _sample(self) -> None:
        """Record the memory in the stages that run, until the profiler stops."""
        while not self._stopped.wait(SECONDS_BETWEEN_SAMPLES):
            memory = resident_bytes()
            with self._lock:
                self._peak = max(self._peak, memory)
                for measurement in self._innermost.values():
                    measurement.peak = max(measurement.peak, memory)

    def profile(self) -> RunProfile:
        """Return the profile of the stages that have finished, and of the time since the profiler was made."""
        with self._lock:
            stages = [total for total in self._totals.values() if total.calls]
            wall, cpu = time.monotonic() - self._began[0], time.process_time() - self._began[1]
            peak = max(self._peak, resident_bytes())
        rest = (max(0.0, wall - sum(one.seconds for one in stages)), cpu - sum(one.cpu_seconds for one in stages))
        return RunProfile((*stages, StageProfile(OTHER, "", 1, 0, *rest, peak)), wall, cpu, peak)


T = TypeVar("T")
DIGEST_BYTES = 16
INPUTS = "inputs.json"
"""Name of the file with the digests of the inputs of the stages."""
STAGE_NAMES = rf"[\w.+-]+-[0-9a-f]{{{2 * DIGEST_BYTES}}}|{re.escape(INPUTS)}"
"""Pattern of the file names in a cache folder; files with other names are never changed."""
MAX_NAME_LENGTH = 60
"""Maximum number of characters of the name of a stage in its file name."""


def digest(*parts: Any) -> str:
    """Return a digest of the content of arrays, tables and JSON values.

    >>> digest("a", 1, np.arange(3)) == digest("a", 1, np.arange(3)), digest("a") == digest("b")
    (True, False)
    """
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        _update(state, part)
    return state.hexdigest()


def _update(state: Any, part: Any) -> None:
    """Add the content of an object to a digest."""
    state.update(type(part).__name__.encode())
    match part:
        case np.ndarray():
            state.update(str(part.dtype).encode() + str(part.shape).encode())
            state.update(np.ascontiguousarray(part).view(np.uint8).data)
        case pa.Array() | pa.ChunkedArray():
            # The buffers of a slice hold more than its values; serialized, only its values count.
            sink = pa.BufferOutputStream()
            table = pa.table({"ids": part}).combine_chunks()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
            state.update(sink.getvalue())
        case Features():
            for content in (part.query, part.document, part.matrix, list(part.names)):
                _update(state, content)
        case Judgments():
            for content in _judgment_content(part):
                _update(state, content)
        case Preferences():
            for content in (*part.to_arrow().columns, part.has_positions):
                _update(state, content)
        case _:
            state.update(json.dumps(part, sort_keys=True, default=str).encode())


def _judgment_content(table: Judgments) -> list[Any]:
    """Return the parts of judgments that a result may depend on, for their digest."""
    ids = [table.queries, table.documents, table.assessors]
    codes = [table.item_query, table.item_document, table.offsets, table.assessor, table.grade, table.assessor_scale]
    scales = [[str(scale) for scale in table.scales], [list(codes or ()) for codes in table.scale_maps]]
    families = [] if table.families is None else [table.families, table.assessor_family, table.family_levels]
    extras = [part for name in sorted(table.extras) for part in (name, table.extras[name])]
    return [*ids, *codes, *scales, *families, *extras]


class StageCache:
    """Finished stages of a run in memory and in a folder, each named by a digest of its inputs.

    Several threads that ask for the same stage wait for the first one.

    Args:
        folder: the folder, from which a later run resumes; None to keep stages in memory only.
        profiler: measures the stages.

    Attributes:
        reused, made: number of stages that were read from the folder and that were computed for it.

    >>> cache = StageCache(None)
    >>> cache.arrays("sum", "key", lambda: {"total": np.array(3)})["total"], cache.made
    (array(3), 1)
    """

    def __init__(self, folder: Path | None, profiler: Profiler | None = None) -> None:
        self.folder = folder
        self.profiler = profiler or Profiler()
        self.reused = self.made = 0
        self._used: set[str] = set()
        self._results: dict[tuple[str, str], Any] = {}
        self._locks: dict[tuple[str, str], threading.Lock] = {}
        self._lock = threading.Lock()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str, key: str) -> Path | None:
        """Return the path of a stage, or None without a folder.

        The name may contain text of the user, such as the name of a feature. In the file name, all but ASCII letters,
        digits and hyphens are replaced, and the digest is also of the name, so that two stages never share a file.
        """
        if self.folder is None:
            return None
        readable = re.sub(r"[^a-zA-Z0-9-]", "_", name[:MAX_NAME_LENGTH])
        return self.folder / f"{readable}-{digest(name, key)}"

    def shared_file(self, name: str, key: str) -> Path:
        """Return the path of a file that several stages refer to by the digest of its content."""
        assert self.folder is not None
        path = self.folder / f"{name}-{key[: 2 * DIGEST_BYTES]}"
        self._used.add(path.name)
        return path

    def get(
        self, name: str, key: str, make: Callable[[], T], save: Callable[[T, Path], None], load: Callable[[Path], T]
    ) -> T:
        """Return the result of a stage from memory or from the folder if it is readable, else make and store it.

        Args:
            name: kind of the stage, and after a hyphen the name of its model, if it has one.
            key: digest of its inputs, of the settings that it depends on and of the source code.
            make: function that computes the result.
            save: function that writes the result to a path.
            load: function that reads what `save` wrote.

        """

        def load_or_make() -> T:
            kind, _, model = name.partition("-")
            with self.profiler.stage(kind, model) as measurement:
                result, is_stored = self._load_or_make(self.path(name, key), make, save, load)
                measurement.reused += is_stored
            self.reused += is_stored
            self.made += not is_stored
            return result

        return self.remember(name, key, load_or_make)

    def remember(self, name: str, key: str, make: Callable[[], T]) -> T:
        """Return the result of a stage from memory, else make it; it is not written to the folder."""
        with self._lock:
            lock = self._locks.setdefault((name, key), threading.Lock())
        with lock:
            if (name, key) not in self._results:
                self._results[name, key] = make()
            result: T = self._results[name, key]
            return result

    def forget(self, name: str) -> None:
        """Remove the stages of a name from memory."""
        self._results = {place: result for place, result in self._results.items() if place[0] != name}

    def _load_or_make(
        self, path: Path | None, make: Callable[[], T], save: Callable[[T, Path], None], load: Callable[[Path], T]
    ) -> tuple[T, bool]:
        """Return the result of a stage, and whether it was stored."""
        if path is not None:
            self._used.add(path.name)
        if path is not None and path.exists():
            try:
                result = load(path)
            except (CrowdrankError, OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error):
                _delete(path)  # damaged, or written by another version
            else:
                return result, True
        result = make()
        if path is not None:
            save(result, path)
        return result, False

    def arrays(self, name: str, key: str, make: Callable[[], Arrays]) -> Arrays:
        """Return the result of a stage that consists of named arrays."""
        return self.get(name, key, make, _save_arrays, _load_arrays)

    def delete_unused(self) -> None:
        """Delete the stages that were not used since the cache was opened."""
        if self.folder is None:
            return
        for path in self.folder.iterdir():
            if path.name not in self._used and path.name != INPUTS and re.fullmatch(STAGE_NAMES, path.name):
                _delete(path)


def _save_arrays(arrays: Arrays, path: Path) -> None:
    with write_file(path) as draft, draft.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # names are ours, none is one of savez's own


def _load_arrays(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
