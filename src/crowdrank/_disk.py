"""Names, locks, flushing and renaming of files; the building blocks of `_files.py` and `_folders.py`."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from crowdrank.errors import OutputError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

MAX_NAME_BYTES = 180
"""Maximum number of bytes of a file name that the names of its temporary files repeat; a longer one is hashed."""
SCRATCH_NAME = re.compile(r"crowdrank-\w{8}\.scratch")
"""Pattern of the names of temporary folders."""
_SCRATCH_LOCK = ".lock"
_MIN_AGE_SECONDS = 60.0
"""Minimum age at which an empty temporary folder is deleted; its process may not have locked a newer one yet."""


# Names and messages.


def resolve_links(path: str | Path) -> Path:
    """Return the absolute path without symbolic links: writing there keeps the link and replaces its target."""
    return Path(os.path.realpath(path))


def temporary_prefix(target: Path) -> str:
    """Return the prefix of the names of an output's temporary files."""
    name = target.name
    if len(os.fsencode(name)) > MAX_NAME_BYTES:
        name = hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()
    return f".{name}"


def temporary_path(target: Path, suffix: str) -> Path:
    """Return the path of a temporary file in the folder of an output."""
    return target.parent / f"{temporary_prefix(target)}.{suffix}"


def new_draft_path(target: Path) -> Path:
    """Return a new, unique path for the draft of an output."""
    return temporary_path(target, f"{secrets.token_hex(8)}.draft")


def error_text(problem: BaseException) -> str:
    """Return the text of an error without its number and file name."""
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem).split("\n")[0]


def write_error(path: str | Path, reason: str, *, kind: str = "output", fix: str | Sequence[str] = ()) -> OutputError:
    """Return the error for an output that cannot be written.

    >>> print(write_error("out.csv", "it is a folder", kind="is-folder", fix="name a file"))
    out.csv: cannot be written: it is a folder; name a file.
    """
    return OutputError(f"cannot be written: {reason}", source=str(path), kind=kind, fix=fix)


def failed_write(path: str | Path, problem: OSError) -> OutputError:
    """Return the error for a write that the system refused, before anything was changed."""
    return write_error(path, f"{error_text(problem)} (nothing was changed)", kind="write-failed")


def file_digest(path: Path) -> str:
    """Return the SHA-256 digest of a file, or "" if there is none."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def read_json(path: Path) -> Any:
    """Read a JSON file; raise OSError or ValueError if that fails, also if its values are nested too deeply."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as problem:
        raise ValueError(f"{path.name} is nested too deeply") from problem


# Locks.


if sys.platform == "win32":

    def try_lock(handle: int) -> bool:
        """Lock an open file, unless another process has it locked; return whether it is locked now."""
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:

    def try_lock(handle: int) -> bool:
        """Lock an open file, unless another process or thread has it locked; return whether it is locked now."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# Renaming and flushing.


def exchange_folders(draft: Path, target: Path, keep: str) -> Path:
    """Replace a folder, which need not exist, by a draft; return the path at which the old folder is now.

    The subfolder `keep` of the old folder moves to the new one first; if the process dies after that, recovery moves it
    back. Where the system cannot exchange two folders in one step, the old one is renamed first, and recovery renames
    it back if the new one did not take its place.
    """
    if not target.exists():
        draft.rename(target)
        return draft
    moved = (target / keep).is_dir() and not (draft / keep).exists()
    if moved:
        (target / keep).rename(draft / keep)
    old = draft
    try:
        if not _exchange_atomically(draft, target):
            old = draft.with_suffix(".old")
            target.rename(old)
            try:
                draft.rename(target)
            except BaseException:
                if not target.exists():
                    old.rename(target)
                raise
    except BaseException:
        if moved and not (target / keep).exists():  # unless the exchange succeeded before the interrupt
            (draft / keep).rename(target / keep)
        raise
    return old


def _exchange_atomically(one: Path, other: Path) -> bool:
    """Exchange two paths atomically; return False where the system or the file system cannot."""
    exchange = _system_exchange()
    if exchange is None:
        return False
    if exchange(os.fsencode(one), os.fsencode(other)) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))


def _system_exchange() -> Callable[[bytes, bytes], int] | None:
    """Return the system call that exchanges two paths: renameat2 on Linux, renamex_np on macOS."""
    if sys.platform == "win32":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    at_current_folder, exchange, swap = -100, 2, 2
    if hasattr(library, "renameat2"):
        return lambda one, other: int(library.renameat2(at_current_folder, one, at_current_folder, other, exchange))
    if hasattr(library, "renamex_np"):
        return lambda one, other: int(library.renamex_np(one, other, swap))
    return None


def flush(path: Path) -> None:
    """Flush a file to disk."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, where the system can."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP):  # this file system cannot flush folders
            raise
    finally:
        os.close(handle)


def flush_tree(folder: Path) -> None:
    """Flush a folder and everything in it to disk."""
    for root, _, files in os.walk(folder):
        for name in files:
            flush(Path(root) / name)
        flush_folder(Path(root))


def remove(path: Path) -> None:
    """Delete a temporary file or folder; one that cannot be deleted now is deleted by a later process."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


# Temporary folders.


class ScratchFolder:
    """Temporary folder, deleted when this object is, at exit or, after a crash, by a later process.

    >>> scratch = ScratchFolder()
    >>> scratch.path.is_dir(), scratch.close(), scratch.path.exists()
    (True, None, False)
    """

    def __init__(self, parent: str | Path | None = None) -> None:
        place = Path(tempfile.gettempdir() if parent is None else parent)
        _delete_abandoned_scratch(place)
        self.path, handle = _create_scratch(place)
        self._finalizer = weakref.finalize(self, _delete_scratch, self.path, handle)

    def close(self) -> None:
        """Delete the folder now."""
        self._finalizer()


def _create_scratch(place: Path) -> tuple[Path, int]:
    """Create a temporary folder and return it with the descriptor of its locked file."""
    path = Path(tempfile.mkdtemp(prefix="crowdrank-", suffix=".scratch", dir=place))
    handle = os.open(path / _SCRATCH_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try_lock(handle)
    return path, handle


def _delete_scratch(path: Path, handle: int) -> None:
    if sys.platform == "win32":
        os.close(handle)
        remove(path)
    else:
        remove(path)
        os.close(handle)


def _delete_abandoned_scratch(place: Path) -> None:
    """Delete the temporary folders that no running process has locked."""
    if sys.platform == "win32":
        return
    for path in place.glob("crowdrank-*.scratch"):
        if not SCRATCH_NAME.fullmatch(path.name) or path.is_symlink():
            continue
        with suppress(OSError):  # another user's, deleted meanwhile, or so new that it has no lock yet
            if path.stat().st_uid != os.getuid():
                continue
            handle = os.open(path / _SCRATCH_LOCK, os.O_RDWR)
            try:
                # A running process may have created its lock file but not locked it yet.
                if try_lock(handle) and _is_used_or_old(path):
                    remove(path)
            finally:
                os.close(handle)


def _is_used_or_old(path: Path) -> bool:
    """Return whether a temporary folder contains files or is older than the minimum age."""
    return time.time() - path.stat().st_mtime > _MIN_AGE_SECONDS or any(
        one.name != _SCRATCH_LOCK for one in path.iterdir()
    )
