"""Limit of BLAS to one thread during fits, so that results do not depend on the number of BLAS threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

import numpy as np  # noqa: F401  # loads its BLAS
from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_thread_limit = ExitStack()
_n_active_blocks = 0


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread; matrix products with more threads differ in the last digit.

    The limit holds for the process. Blocks may be nested and may overlap in several threads: the number of BLAS threads
    is restored when the last block ends.

    >>> import numpy as np
    >>> with single_blas_thread():
    ...     float(np.ones(3) @ np.ones(3))
    3.0
    """
    global _n_active_blocks
    with _lock:
        if _n_active_blocks == 0:
            _thread_limit.enter_context(_blas_controller().limit(limits=1, user_api="blas"))
        _n_active_blocks += 1
    try:
        yield
    finally:
        with _lock:
            _n_active_blocks -= 1
            if _n_active_blocks == 0:
                _thread_limit.close()


@cache
def _blas_controller() -> ThreadpoolController:
    """Return a controller of the loaded BLAS libraries, NumPy's among them; cached because finding them is slow."""
    return ThreadpoolController()
