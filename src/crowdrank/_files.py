"""Write files so that a crash, a full disk or a second process loses nothing.

Every output is written as a draft beside its destination, flushed to disk and then renamed, under a lock:

    with write_file(path) as draft: ...            # one file
    with write_folder(path, kind) as draft: ...    # one folder, see `_folders.py`
    with one_step(primary): ...                    # several of these, put in place together

The destination NAME has these temporary neighbors, which the next process that locks NAME completes or removes:

    .NAME.lock                        held while the destination is read and replaced
    .NAME.<16 hex digits>.draft       new content, or old content about to be deleted
    .NAME.<16 hex digits>.old         old folder, where the system cannot exchange two folders in one step
    .NAME.journal                     renames that belong together and have begun
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crowdrank._disk import (
    beside,
    draft_of,
    exchange,
    file_digest,
    message_of,
    read_json,
    remove,
    resolved,
    stem_of,
    sync,
    sync_folder,
    try_lock,
)
from crowdrank._progress import is_quiet
from crowdrank.errors import InputError, OutputError

MANIFEST = "crowdrank.json"
"""Name of the file that marks a folder as written by crowdrank."""
CACHE = "stages"
"""Name of the subfolder that is kept when the rest of a folder is replaced."""
DRAFT = re.compile(r"\..+\.[0-9a-f]{16}\.(?:draft|old)")
"""Pattern of the names of drafts."""
LOCK_SECONDS = 600.0
"""Maximum time to wait for another process that writes the same output."""
NOTICE_SECONDS = 2.0
"""Time after which a message says what is waited for."""


@contextmanager
def write_file(path: str | Path) -> Iterator[Path]:
    """Yield a draft path; when the block succeeds, the file written there replaces `path`.

    >>> folder = Path(tempfile.mkdtemp())
    >>> with write_file(folder / "a.txt") as draft:
    ...     _ = draft.write_text("done")
    >>> (folder / "a.txt").read_text()
    'done'
    """
    target = resolved(path)
    if inside_draft(target):  # it becomes visible with its folder
        yield target
        return
    check_output_file(path)
    with output(path) as step:
        draft = step.new_draft(target)
        yield draft
        sync(draft)
        if target.exists():
            shutil.copymode(target, draft)
        step.renames.append(Rename(draft, target))


def check_output_file(path: str | Path) -> None:
    """Raise OutputError if a file cannot be written at `path`; call it before long work begins."""
    target = resolved(path)
    check_parent(path, target)
    if target.is_dir():
        raise OutputError(f"Cannot write {path}: it is a folder; name a file.")
    if target.exists() and not target.is_file():
        raise OutputError(f"Cannot write {path}: it is not a regular file; name another file.")


def check_parent(path: str | Path, target: Path) -> None:
    """Raise OutputError if the folder around an output does not exist or accepts no new files."""
    if not target.parent.is_dir():
        raise OutputError(f"Cannot write {path}: the folder {Path(path).parent} does not exist; make it first.")
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass  # the folder accepts new files
    except OSError as problem:
        raise OutputError(f"Cannot write {path}: {message_of(problem)}: {Path(path).parent}.") from problem


# Several outputs in one step.


@dataclass
class Rename:
    """A draft that is complete and takes the place of its target."""

    draft: Path
    target: Path
    manifest: str = ""  # digest of a folder's manifest: tells whether the exchange has happened

    def apply(self, *, recovering: bool = False) -> None:
        """Put the draft in place; in recovery, a draft that is in place already does no harm."""
        if not self.draft.exists():
            return
        old = self.draft
        if not self.manifest:
            self.draft.replace(self.target)
        elif not recovering or file_digest(self.target / MANIFEST) != self.manifest:
            old = exchange(self.draft, self.target, keep=CACHE)
        try:
            sync_folder(self.target.parent)
        except OSError as problem:
            raise OutputError(
                f"{self.target} was replaced, but could not be flushed to disk ({message_of(problem)}); a power "
                "failure may undo it."
            ) from problem
        remove(old)

    def to_json(self, folder: Path) -> list[str]:
        """Return what a journal in `folder` lists; the paths are relative, so that both can be moved together."""
        return [os.path.relpath(self.draft, folder), os.path.relpath(self.target, folder), self.manifest]


@dataclass
class _Step:
    """Outputs that are written together; `renames` are applied when all drafts are complete."""

    primary: Path
    drafts: list[Path] = field(default_factory=list)
    renames: list[Rename] = field(default_factory=list)
    held: ExitStack = field(default_factory=ExitStack)

    def new_draft(self, target: Path, *, wait: bool = True) -> Path:
        """Lock a target until the step ends and return the path of its draft."""
        self.held.enter_context(locked(target, wait=wait))
        self.drafts.append(draft_of(target))
        return self.drafts[-1]

    def commit(self) -> None:
        """Put all drafts in place; with several of them, a journal lets another process complete the rest."""
        journal = beside(self.primary, "journal")
        if len(self.renames) > 1:
            draft = draft_of(self.primary)
            self.drafts.append(draft)
            draft.write_text(json.dumps([one.to_json(journal.parent) for one in self.renames]), encoding="utf-8")
            sync(draft)
            draft.replace(journal)
            sync_folder(journal.parent)
        for done, one in enumerate(self.renames):
            try:
                one.apply()
            except OutputError:
                raise
            except OSError as problem:
                if done == 0:
                    journal.unlink(missing_ok=True)
                    raise
                raise OutputError(
                    f"Cannot write {one.target}: {message_of(problem)}. {self.renames[done - 1].target} was "
                    "already replaced. Run the same command again to write the rest."
                ) from problem
        if len(self.renames) > 1:
            journal.unlink(missing_ok=True)
            sync_folder(journal.parent)
        self.renames.clear()

    def close(self) -> None:
        """Remove what is left of the drafts and release the locks."""
        if not beside(self.primary, "journal").exists():
            for draft in self.drafts:
                remove(draft)
        self.held.close()


_steps = threading.local()


@contextmanager
def one_step(primary: str | Path) -> Iterator[None]:
    """Put all files and folders that are written in the block in place together, at its end.

    If the process dies in between, the next process that locks `primary` completes the step.
    """
    target = resolved(primary)
    with locked(target), _new_step(primary):
        yield


@contextmanager
def _new_step(path: str | Path) -> Iterator[_Step]:
    before = getattr(_steps, "current", None)
    step = _steps.current = _Step(resolved(path))
    try:
        yield step
        _steps.current = before
        step.commit()
    except (OutputError, InputError):
        raise
    except OSError as problem:
        raise OutputError(f"Cannot write {path}: {message_of(problem)}. Nothing was changed.") from problem
    finally:
        _steps.current = before
        step.close()


@contextmanager
def output(path: str | Path) -> Iterator[_Step]:
    """Yield the step that an output belongs to: the surrounding one, or one of its own."""
    current = getattr(_steps, "current", None)
    if current is None:
        with _new_step(path) as step:
            yield step
        return
    try:
        yield current
    except (OutputError, InputError):
        raise
    except OSError as problem:
        raise OutputError(f"Cannot write {path}: {message_of(problem)}. Nothing was changed.") from problem


# Locks.


class _Held(threading.local):
    """Paths that this thread has locked, and drafts that only it knows."""

    def __init__(self) -> None:
        self.locked: set[Path] = set()
        self.private: set[Path] = set()


_held = _Held()


@contextmanager
def locked(path: str | Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of an output, so that no other process or thread reads and replaces it meanwhile.

    Temporary files that an earlier, interrupted process left beside the output are completed or removed first. A thread
    can lock a path that it holds already, or that is inside a folder it holds.

    Args:
        path: file or folder; it need not exist.
        wait: wait until the lock is free, for up to `LOCK_SECONDS`; otherwise raise at once.

    Raises:
        OutputError: another process holds the lock.

    """
    target = resolved(path)
    if any(one in _held.locked or one in _held.private for one in (target, *target.parents)):
        yield
        return
    lock = beside(target, "lock")
    handle = _acquire(lock, path, wait)
    _held.locked.add(target)
    try:
        try:
            _recover(target)
        except OutputError:
            raise
        except OSError as problem:
            raise OutputError(f"Cannot complete an interrupted write of {path}: {message_of(problem)}.") from problem
        yield
    finally:
        _held.locked.discard(target)
        with suppress(OSError):
            lock.unlink()  # while it is locked: a waiting process notices in `_is_current` and creates a new file
        os.close(handle)


@contextmanager
def private(draft: Path) -> Iterator[None]:
    """Mark a draft folder as known to this thread only: nothing in it needs a lock."""
    _held.private.add(draft)
    try:
        yield
    finally:
        _held.private.discard(draft)


def inside_draft(target: Path) -> bool:
    return any(one in _held.private for one in target.parents)


def _acquire(lock: Path, path: str | Path, wait: bool) -> int:
    """Return the descriptor of the lock file, locked."""
    began, noticed, pause = time.monotonic(), False, 0.01
    while True:
        try:
            handle = _open_lock(lock)
        except OSError as problem:
            raise OutputError(f"Cannot write {path}: {message_of(problem)}. Nothing was changed.") from problem
        try:
            if try_lock(handle) and _is_current(handle, lock):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        waited = time.monotonic() - began
        if not wait or waited > LOCK_SECONDS:
            raise OutputError(
                f"Cannot write {path}: another crowdrank process is writing it; wait until it ends or name another "
                "output."
            )
        if waited > NOTICE_SECONDS and not noticed and not is_quiet():
            noticed = True
            sys.stderr.write(f"Waiting for another crowdrank process that is writing {path!s}.\n")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)


def _open_lock(lock: Path) -> int:
    """Open a lock file, which may belong to another user who lets us read it only."""
    flags = os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.open(lock, os.O_RDWR | flags, 0o666)
    except PermissionError:
        return os.open(lock, os.O_RDONLY | flags, 0o666)


def _is_current(handle: int, lock: Path) -> bool:
    """Return whether the locked file is still the one at the path: its holder deletes it before letting go."""
    try:
        return os.path.samestat(os.fstat(handle), lock.stat())
    except FileNotFoundError:
        return False


# Recovery.


def recover(path: str | Path) -> list[Path]:
    """Complete or remove what an interrupted process left at `path`; call it before reading.

    Returns:
        The outputs of the step that had begun, if there was one.

    """
    target = resolved(path)
    journal = beside(target, "journal")
    listed = [one.target for one in _read_journal(journal)] if journal.exists() else []
    gone = not target.exists() and any(target.parent.glob(f"{glob.escape(stem_of(target))}.*.old"))
    if listed or gone or beside(target, "lock").exists():
        with locked(target):
            pass  # locking does it
    return listed


def _recover(target: Path) -> None:
    """Complete or remove what an interrupted process left beside a locked output, and inside of a locked folder."""
    for path in (target, target / MANIFEST):
        if path.parent.is_dir():
            _complete_journal(beside(path, "journal"))
    own = re.compile(rf"{re.escape(stem_of(target))}\.[0-9a-f]{{16}}\.(draft|old)")
    left = sorted(one for one in target.parent.iterdir() if own.fullmatch(one.name))
    for old in (one for one in left if one.suffix == ".old"):
        if not target.exists():
            old.rename(target)
    for draft in left:
        if draft.exists():
            _return_cache(draft, target)
            remove(draft)
    if (target / MANIFEST).exists():
        for one in (*target.iterdir(), *(target / CACHE).glob("*")):
            if DRAFT.fullmatch(one.name):
                remove(one)


def _complete_journal(journal: Path) -> None:
    if not journal.exists():
        return
    renames = _read_journal(journal)
    left = [one for one in renames if one.draft.exists()]  # the others are in place already
    for one in renames:
        one.apply(recovering=True)
    journal.unlink(missing_ok=True)
    for one in renames:
        with locked(one.target):
            pass  # removes the lock of the process that died
    sync_folder(journal.parent)
    if left and not is_quiet():
        names = ", ".join(str(one.target) for one in left)
        sys.stderr.write(f"Completed the outputs of an interrupted command: {names}.\n")


def _read_journal(journal: Path) -> list[Rename]:
    """Return the renames that a journal lists; raise OutputError if it is not one of crowdrank's."""
    try:
        listed = read_json(journal)
    except FileNotFoundError:  # another process has completed it
        return []
    except (OSError, ValueError) as problem:
        raise OutputError(_INVALID.format(journal=journal, why=message_of(problem))) from problem
    renames = [_rename_of(one, journal.parent) for one in listed] if isinstance(listed, list) else []
    known = [one for one in renames if one is not None]
    if not known or len(known) < len(renames):
        raise OutputError(_INVALID.format(journal=journal, why="its entries are not those of crowdrank"))
    return known


_INVALID = "{journal} is not a valid journal ({why}); move it to another folder and run the command again."


def _rename_of(listed: Any, folder: Path) -> Rename | None:
    """Return the rename that a journal in `folder` lists, or None if it is not one of crowdrank's."""
    match listed:
        case [str(draft), str(target), str(manifest)] if "\0" not in draft + target:
            one = Rename(Path(os.path.normpath(folder / draft)), Path(os.path.normpath(folder / target)), manifest)
        case _:
            return None
    own = re.fullmatch(rf"{re.escape(stem_of(one.target))}\.[0-9a-f]{{16}}\.draft", one.draft.name)
    return one if own and one.draft.parent == one.target.parent else None


def _return_cache(draft: Path, target: Path) -> None:
    """Move a cache back that was on its way from the old folder to the new one."""
    if (draft / CACHE).is_dir() and (target / MANIFEST).exists() and not (target / CACHE).exists():
        (draft / CACHE).rename(target / CACHE)
