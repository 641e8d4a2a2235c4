"""Setup of Dask workers that crowdrank starts."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Worker


def dask_setup(worker: Worker) -> None:
    """Ignore SIGINT: a terminal sends it to all processes, but only the client handles it and stops the workers."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
