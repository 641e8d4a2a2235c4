"""Memory of this process."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")
"""File in which Linux states the memory of a process in pages: total, resident, ..."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resident_bytes() -> int:
    """Return the resident memory of this process; the maximum so far where it is not known, as on macOS.

    >>> 0 <= resident_bytes() < 2**50
    True
    """
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except OSError:
        return peak_bytes()


def peak_bytes() -> int:
    """Return the maximum resident memory of this process so far; 0 on Windows, which does not state it."""
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def trim_heap() -> None:
    """Return freed memory to the system; glibc keeps that of arrays of less than 32 MB."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
