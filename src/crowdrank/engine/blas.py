"""One BLAS thread during fits, so that results do not depend on the number of BLAS threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

import numpy as np  # noqa: F401  # loads its BLAS
from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_limit = ExitStack()
_users = 0


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
    global _users
    with _lock:
        if _users == 0:
            _limit.enter_context(_libraries().limit(limits=1, user_api="blas"))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.close()


@cache
def _libraries() -> ThreadpoolController:
    """Return a handle to the BLAS libraries loaded by now, that of NumPy among them; the search takes milliseconds."""
    return ThreadpoolController()
