"""The latest results of each benchmark, with their date and machine, in benchmarks/results.json."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.measure import Result

PATH = Path(__file__).parent / "results.json"


def load() -> dict[str, Any]:
    """Return the stored results by the name of the benchmark."""
    stored: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8")) if PATH.is_file() else {}
    return stored


def store(name: str, results: Sequence[Result], **details: Any) -> None:
    """Replace the stored results of a benchmark; those of other benchmarks stay.

    Args:
        name: name of the benchmark.
        results: its results.
        details: further measurements, as JSON.

    """
    entry = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "results": [asdict(result) for result in results],
        **details,
    }
    PATH.write_text(json.dumps({**load(), name: entry}, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def machine() -> str:
    """Return the model of the processor and the number of cores."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)$", info.read_text(), re.MULTILINE) if info.is_file() else None
    model = found[1].strip() if found else platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores"
