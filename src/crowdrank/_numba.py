"""Replacement for `numba.njit` that can cache compiled code even if package and home folder are read-only."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba


def njit(*, cache: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with `numba.njit`.

    Compiled code is cached in `NUMBA_CACHE_DIR` if that is set, else beside the source, else in the user's cache folder
    (these are numba's rules), else in a private folder for temporary files. If there is none, every process compiles
    the function.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        if not cache:
            return numba.njit(**options)(function)
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # numba has no folder that it can write
            folder = private_temporary_folder()
        if folder is None:
            return numba.njit(**options)(function)
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
        try:
            return numba.njit(cache=True, **options)(function)
        finally:
            numba.config.CACHE_DIR = before

    return decorate


def private_temporary_folder() -> Path | None:
    """Return a folder for temporary files that only this user can write, or None.

    Cached code is pickled: anybody who can write it can run code in this process. A folder that belongs to another user
    or that others can access is not used.
    """
    user = os.getuid() if hasattr(os, "getuid") else None
    folder = Path(tempfile.gettempdir()) / f"crowdrank-numba-{'user' if user is None else user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    if user is None:  # Windows: each user has a folder for temporary files
        return folder
    is_private = stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077
    return folder if is_private and os.access(folder, os.W_OK | os.X_OK) else None
