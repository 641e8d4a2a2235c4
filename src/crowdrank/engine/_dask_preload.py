"""Loaded first by the workers of a cluster that we start: Ctrl-C is for the process that leads them, which ends them.

A terminal sends it to all of them; workers that died of it could not tell what they know any more.
"""

from __future__ import annotations

import signal
import threading
from typing import Any


def dask_setup(worker: Any) -> None:
    """Hear no Ctrl-C; Dask calls this when a worker begins."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
