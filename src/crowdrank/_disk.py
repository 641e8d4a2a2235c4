"""Low-level file operations (temporary names, locks, flushing, renaming, digests) for `_files.py` and `_folders.py`."""

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
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import crowdrank
from crowdrank.errors import OutputError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

MAX_NAME_BYTES = 180
"""Maximum length in bytes of an output's name in the names of its temporary files; a longer name is hashed."""
SCRATCH_NAME_PATTERN = re.compile(r"crowdrank-\w{8}\.scratch")
"""Pattern of the names of scratch folders, which are temporary."""
_SCRATCH_LOCK_NAME = ".lock"
_MIN_SCRATCH_AGE_SECONDS = 60.0
"""Minimum age at which an empty scratch folder is deleted; a newer one may be about to be locked by its process."""


# Names and messages.


def resolve_links(path: str | Path) -> Path:
    """Return the absolute path with symbolic links resolved, so that writing replaces the link's target."""
    return Path(os.path.realpath(path))


def temporary_prefix(target: Path) -> str:
    """Return the prefix that the names of all temporary files of an output have."""
    name = target.name
    if len(os.fsencode(name)) > MAX_NAME_BYTES:
        name = hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()
    return f".{name}"


def temporary_path(target: Path, suffix: str) -> Path:
    """Return the path of a temporary file beside an output."""
    return target.parent / f"{temporary_prefix(target)}.{suffix}"


def new_draft_path(target: Path) -> Path:
    """Return a new, unique path for a draft: the new content of an output before it replaces the old one."""
    return temporary_path(target, f"{secrets.token_hex(8)}.draft")


def error_text(error: BaseException) -> str:
    """Return the text of an exception, for an OSError without error number and file name."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error).split("\n")[0]


def write_error(path: str | Path, reason: str, *, kind: str = "output", fix: str | Sequence[str] = ()) -> OutputError:
    """Return the error for an output that cannot be written.

    >>> print(write_error("out.csv", "it is a folder", kind="is-folder", fix="name a file"))
    out.csv: cannot be written: it is a folder; name a file.
    """
    return OutputError(f"cannot be written: {reason}", source=str(path), kind=kind, fix=fix)


def failed_write_error(path: str | Path, os_error: OSError) -> OutputError:
    """Return the error for a write that the operating system refused before anything was changed."""
    return write_error(path, f"{error_text(os_error)} (nothing was changed)", kind="write-failed")


def file_digest(path: Path) -> str:
    """Return the SHA-256 digest of a file, or an empty string if the file does not exist."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def read_json(path: Path) -> Any:
    """Read a JSON file; raise OSError if it cannot be read, ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as problem:
        raise ValueError(f"{path.name} is nested too deeply") from problem


# Locks.


if sys.platform == "win32":

    def try_lock(descriptor: int) -> bool:
        """Try to lock an open file; return False if another process has locked it."""
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:

    def try_lock(descriptor: int) -> bool:
        """Try to lock an open file; return False if another process or thread has locked it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# Renaming and flushing.


def replace_folder(draft: Path, target: Path, kept_subfolder: str) -> Path:
    """Replace a folder, which need not exist, by a draft; return the new path of the old folder.

    The subfolder `kept_subfolder` of the old folder moves to the draft first; if the process dies after that, recovery
    moves it back. If the system cannot exchange two folders in one step, the old one is renamed first, and recovery
    renames it back if the draft did not take its place.
    """
    if not target.exists():
        draft.rename(target)
        return draft
    moved = (target / kept_subfolder).is_dir() and not (draft / kept_subfolder).exists()
    if moved:
        (target / kept_subfolder).rename(draft / kept_subfolder)
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
        if moved and not (target / kept_subfolder).exists():  # unless the exchange succeeded before the interrupt
            (draft / kept_subfolder).rename(target / kept_subfolder)
        raise
    return old


def _exchange_atomically(first: Path, second: Path) -> bool:
    """Exchange two paths atomically; return False if the operating system or file system does not support it."""
    exchange = _exchange_system_call()
    if exchange is None:
        return False
    if exchange(os.fsencode(first), os.fsencode(second)) == 0:
        return True
    error_number = ctypes.get_errno()
    if error_number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(error_number, os.strerror(error_number), str(second))


def _exchange_system_call() -> Callable[[bytes, bytes], int] | None:
    """Return the system call that exchanges two paths (renameat2 on Linux, renamex_np on macOS), or None."""
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
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(folder: Path) -> None:
    """Flush the directory entries of a folder to disk, if the file system supports it."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP):  # this file system cannot flush folders
            raise
    finally:
        os.close(descriptor)


def flush_tree(folder: Path) -> None:
    """Flush a folder and everything in it to disk."""
    for root, _, files in os.walk(folder):
        for name in files:
            flush(Path(root) / name)
        flush_folder(Path(root))


def link_or_copy(existing_path: str | Path, target: str | Path) -> None:
    """Create a hard link, or a copy on a file system without hard links."""
    try:
        os.link(existing_path, target)
    except OSError:
        shutil.copy2(existing_path, target)


def remove(path: Path) -> None:
    """Delete a temporary file or folder; ignore errors, because a later process deletes what is left."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


# Temporary folders.


class ScratchFolder:
    """Temporary folder; it is deleted with this object, at exit or, after a crash, by a later process.

    >>> scratch = ScratchFolder()
    >>> scratch.path.is_dir(), scratch.close(), scratch.path.exists()
    (True, None, False)
    """

    def __init__(self, parent: str | Path | None = None) -> None:
        parent_path = Path(tempfile.gettempdir() if parent is None else parent)
        _delete_abandoned_scratch_folders(parent_path)
        self.path, descriptor = _create_scratch_folder(parent_path)
        self._finalizer = weakref.finalize(self, _delete_scratch_folder, self.path, descriptor)

    def close(self) -> None:
        """Delete the folder now."""
        self._finalizer()


def _create_scratch_folder(parent: Path) -> tuple[Path, int]:
    """Create and lock a scratch folder; return its path and the descriptor of its lock file."""
    path = Path(tempfile.mkdtemp(prefix="crowdrank-", suffix=".scratch", dir=parent))
    descriptor = os.open(path / _SCRATCH_LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try_lock(descriptor)
    return path, descriptor


def _delete_scratch_folder(path: Path, descriptor: int) -> None:
    if sys.platform == "win32":
        os.close(descriptor)
        remove(path)
    else:
        remove(path)
        os.close(descriptor)


def _delete_abandoned_scratch_folders(parent: Path) -> None:
    """Delete the scratch folders that no running process has locked."""
    if sys.platform == "win32":
        return
    for path in parent.glob("crowdrank-*.scratch"):
        if not SCRATCH_NAME_PATTERN.fullmatch(path.name) or path.is_symlink():
            continue
        with suppress(OSError):  # another user's, deleted meanwhile, or so new that it has no lock yet
            if path.stat().st_uid != os.getuid():
                continue
            descriptor = os.open(path / _SCRATCH_LOCK_NAME, os.O_RDWR)
            try:
                # A running process may have created its lock file but not locked it yet.
                if try_lock(descriptor) and _is_used_or_old(path):
                    remove(path)
            finally:
                os.close(descriptor)


def _is_used_or_old(path: Path) -> bool:
    """Return whether a scratch folder contains files or is older than the minimum age."""
    return time.time() - path.stat().st_mtime > _MIN_SCRATCH_AGE_SECONDS or any(
        one.name != _SCRATCH_LOCK_NAME for one in path.iterdir()
    )


@cache
def source_digest() -> str:
    """Return a digest of the version and the Python files, or of the RECORD file if imported from a zip file."""
    digest = hashlib.blake2b(crowdrank.__version__.encode(), digest_size=16)
    package = Path(__file__).parent
    paths = sorted(package.rglob("*.py"))
    for path in paths:
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    if not paths:
        digest.update((_read_record_file() or "").encode())
    return digest.hexdigest()


def _read_record_file() -> str | None:
    """Return the text of the installation's RECORD file (its files and their hashes), or None."""
    try:
        return metadata.distribution("crowdrank").read_text("RECORD")
    except metadata.PackageNotFoundError:
        return None
