"""Profile of a run: time and memory of each stage."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from crowdrank._memory import peak_bytes, resident_bytes
from crowdrank._saved import Fields

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
    calls: int
    reused: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class RunProfile:
    """Time and memory of a run.

    Attributes:
        stages: stages in the order in which they began; the last one is the time between them.
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
        return [self._row(stage) for stage in (*self.stages, total)]

    def _row(self, stage: StageProfile) -> dict[str, str]:
        return {
            "stage": f"{stage.stage} {stage.name}".strip(),
            "calls": f"{stage.calls}" + (f" ({stage.reused} stored)" if stage.reused else ""),
            "seconds": f"{stage.seconds:.1f}",
            "CPU seconds": f"{stage.cpu_seconds:.1f}",
            "CPU": f"{stage.cpu_seconds / max(self.cpu_seconds, 1e-9):.0%}",
            "GB": f"{stage.peak_bytes / _GIGABYTE:.2f}",
        }

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


@dataclass
class _Total:
    calls: int = 0
    reused: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0


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

    _totals: dict[tuple[str, str], _Total] = field(default_factory=dict)
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
        key, thread, outer = (TITLES.get(stage, stage), name), threading.get_ident(), self._current()
        inner = _Measurement(key, time.monotonic(), clock(), peak_bytes(), resident_bytes())
        with self._lock:
            self._totals.setdefault(key, _Total())
            self._innermost[thread] = inner
        try:
            yield inner
        finally:
            self._finish(inner, outer, clock(), thread)

    def _current(self) -> _Measurement | None:
        return self._innermost.get(threading.get_ident())

    def _finish(self, inner: _Measurement, outer: _Measurement | None, cpu_now: float, thread: int) -> None:
        """Add a measurement to the total of its stage, and subtract it from the outer stage."""
        wall, cpu, highest = time.monotonic() - inner.wall, cpu_now - inner.cpu, peak_bytes()
        peak = max(inner.peak, resident_bytes(), highest if highest > inner.highest else 0)
        with self._lock:
            total = self._totals[inner.key]
            total.calls, total.reused = total.calls + 1, total.reused + inner.reused
            total.seconds += wall - inner.inner_wall
            total.cpu_seconds += cpu - inner.inner_cpu
            total.peak_bytes = max(total.peak_bytes, peak)
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
            stages = [StageProfile(*key, **asdict(total)) for key, total in self._totals.items() if total.calls]
            wall, cpu = time.monotonic() - self._began[0], time.process_time() - self._began[1]
            peak = max(self._peak, resident_bytes())
        rest = (max(0.0, wall - sum(one.seconds for one in stages)), cpu - sum(one.cpu_seconds for one in stages))
        return RunProfile((*stages, StageProfile(OTHER, "", 1, 0, *rest, peak)), wall, cpu, peak)
