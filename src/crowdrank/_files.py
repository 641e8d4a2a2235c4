"""Write files so that a crash, a full disk or a second process loses nothing.

Every output is written as a draft beside its destination, flushed to disk and then renamed, under a lock:

    with write_file(path) as draft: ...            # one file
    with write_folder(path, kind) as draft: ...    # one folder, see `_folders.py`
    with write_together(path): ...                 # several of these, put in place together

Beside the destination NAME there may be these temporary files; the next process that locks NAME completes or removes
them:

    .NAME.lock                        held while the destination is read and replaced
    .NAME.<16 hex digits>.draft       new content, or old content about to be deleted
    .NAME.<16 hex digits>.old         old folder, where the system cannot exchange two folders in one step
    .NAME.journal                     list of renames that belong together, while they are applied
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
    error_text,
    failed_write_error,
    file_digest,
    flush,
    flush_folder,
    new_draft_path,
    read_json,
    remove,
    replace_folder,
    resolve_links,
    temporary_path,
    temporary_prefix,
    try_lock,
    write_error,
)
from crowdrank._progress import is_quiet
from crowdrank.errors import InputError, OutputError

MANIFEST_FILE_NAME = "crowdrank.json"
"""Name of the file that marks a folder as written by crowdrank."""
CACHE_FOLDER_NAME = "stages"
"""Name of the cache subfolder, which is kept when the rest of a folder is replaced."""
DRAFT_NAME_PATTERN = re.compile(r"\..+\.[0-9a-f]{16}\.(?:draft|old)")
"""Pattern of the names of drafts (new content before it replaces an output) and of replaced folders."""
MAX_LOCK_WAIT_SECONDS = 600.0
"""Maximum number of seconds to wait for another process that writes the same output."""
LOCK_NOTICE_SECONDS = 2.0
"""Seconds of waiting for a lock before a message is printed."""


@contextmanager
def write_file(path: str | Path) -> Iterator[Path]:
    """Yield a draft path; when the block succeeds, the file written there replaces `path`.

    >>> folder = Path(tempfile.mkdtemp())
    >>> with write_file(folder / "a.txt") as draft:
    ...     _ = draft.write_text("done")
    >>> (folder / "a.txt").read_text()
    'done'
    """
    target = resolve_links(path)
    if is_inside_draft(target):  # put in place with its folder
        yield target
        return
    check_output_file(path)
    with current_step(path) as step:
        draft = step.new_draft(target)
        yield draft
        flush(draft)
        if target.exists():
            shutil.copymode(target, draft)
        step.renames.append(Rename(draft, target))


def check_output_file(path: str | Path) -> None:
    """Raise OutputError if a file cannot be written at `path`; call it before long work begins."""
    target = resolve_links(path)
    check_parent_folder(path, target)
    if target.is_dir():
        raise write_error(path, "it is a folder", kind="is-folder", fix="name a file")
    if target.exists() and not target.is_file():
        raise write_error(path, "it is not a regular file", kind="not-a-file", fix="name another file")


def check_parent_folder(path: str | Path, resolved_path: Path) -> None:
    """Raise OutputError if the parent folder of an output does not exist or is not writable."""
    if not resolved_path.parent.is_dir():
        problem = f"the folder {Path(path).parent} does not exist"
        raise write_error(path, problem, kind="no-parent-folder", fix="create the folder first")
    try:
        with tempfile.TemporaryFile(dir=resolved_path.parent):
            pass  # the folder accepts new files
    except OSError as failure:
        raise write_error(path, f"{error_text(failure)}: {Path(path).parent}") from failure


# Several outputs in one step.


@dataclass
class Rename:
    """Replacement of a file or folder by its complete draft.

    Attributes:
        draft: path of the new content before the replacement.
        target: path of the new content after the replacement.
        manifest_digest: digest of the manifest of a draft folder, empty for a file; recovery compares it to find
            out whether the folder is in place already.

    """

    draft: Path
    target: Path
    manifest_digest: str = ""

    def apply(self, *, recovering: bool = False) -> None:
        """Put the draft in place, unless an interrupted process did so before (`recovering`)."""
        if not self.draft.exists():
            return
        old = self.draft
        if not self.manifest_digest:
            self.draft.replace(self.target)
        elif not recovering or file_digest(self.target / MANIFEST_FILE_NAME) != self.manifest_digest:
            old = replace_folder(self.draft, self.target, kept_subfolder=CACHE_FOLDER_NAME)
        try:
            flush_folder(self.target.parent)
        except OSError as problem:
            raise OutputError(
                f"was replaced, but could not be flushed to disk ({error_text(problem)}); a power failure may undo it",
                source=str(self.target),
                kind="not-flushed",
            ) from problem
        remove(old)

    def to_json(self, journal_folder: Path) -> list[str]:
        """Return the journal entry, with paths relative to the journal so that the folder can be moved."""
        return [
            os.path.relpath(self.draft, journal_folder),
            os.path.relpath(self.target, journal_folder),
            self.manifest_digest,
        ]


@dataclass
class _WriteStep:
    """Outputs that are put in place together: `renames` are applied when all drafts are complete."""

    primary: Path
    drafts: list[Path] = field(default_factory=list)
    renames: list[Rename] = field(default_factory=list)
    locks: ExitStack = field(default_factory=ExitStack)

    def new_draft(self, target: Path) -> Path:
        """Lock an output until the step ends; return a path for its draft."""
        self.locks.enter_context(locked(target))
        self.drafts.append(new_draft_path(target))
        return self.drafts[-1]

    def commit(self) -> None:
        """Put all drafts in place; if there are several, write a journal first, so that another process can finish."""
        journal = temporary_path(self.primary, "journal")
        if len(self.renames) > 1:
            draft = new_draft_path(self.primary)
            self.drafts.append(draft)
            draft.write_text(json.dumps([one.to_json(journal.parent) for one in self.renames]), encoding="utf-8")
            flush(draft)
            draft.replace(journal)
            flush_folder(journal.parent)
        for done, one in enumerate(self.renames):
            try:
                one.apply()
            except OutputError:
                raise
            except OSError as problem:
                if done == 0:
                    journal.unlink(missing_ok=True)
                    raise
                raise write_error(
                    one.target,
                    f"{error_text(problem)} ({self.renames[done - 1].target} was already replaced)",
                    kind="partly-written",
                    fix="run the same command again to write the rest",
                ) from problem
        if len(self.renames) > 1:
            journal.unlink(missing_ok=True)
            flush_folder(journal.parent)
        self.renames.clear()

    def close(self) -> None:
        """Remove the remaining drafts and release the locks."""
        if not temporary_path(self.primary, "journal").exists():
            for draft in self.drafts:
                remove(draft)
        self.locks.close()


_open_steps = threading.local()


@contextmanager
def write_together(primary_path: str | Path) -> Iterator[None]:
    """Put all files and folders that the block writes in place together, when the block ends.

    If the process dies in between, the next process that locks `primary_path` completes the step.
    """
    target = resolve_links(primary_path)
    with locked(target), _new_step(primary_path):
        yield


@contextmanager
def _new_step(path: str | Path) -> Iterator[_WriteStep]:
    outer_step = getattr(_open_steps, "current", None)
    step = _open_steps.current = _WriteStep(resolve_links(path))
    try:
        yield step
        _open_steps.current = outer_step
        step.commit()
    except (OutputError, InputError):
        raise
    except OSError as problem:
        raise failed_write_error(path, problem) from problem
    finally:
        _open_steps.current = outer_step
        step.close()


@contextmanager
def current_step(path: str | Path) -> Iterator[_WriteStep]:
    """Yield the step of the enclosing `write_together` block, or a new step for this output alone."""
    current = getattr(_open_steps, "current", None)
    if current is None:
        with _new_step(path) as step:
            yield step
        return
    try:
        yield current
    except (OutputError, InputError):
        raise
    except OSError as problem:
        raise failed_write_error(path, problem) from problem


# Locks.


class _ThreadLocks(threading.local):
    """Outputs that the current thread has locked, and draft folders that only it writes."""

    def __init__(self) -> None:
        self.locked_paths: set[Path] = set()
        self.private_drafts: set[Path] = set()


_thread_locks = _ThreadLocks()


@contextmanager
def locked(path: str | Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock on an output against other processes and threads during the block.

    Temporary files of an earlier, interrupted process are completed or removed first. A thread can lock a path again
    that it has locked already, or that is inside a folder it has locked.

    Args:
        path: file or folder; it need not exist.
        wait: wait until the lock is free, for up to `MAX_LOCK_WAIT_SECONDS`; otherwise raise at once.

    Raises:
        OutputError: another process has locked the output (kind `locked`).

    """
    target = resolve_links(path)
    if any(
        one in _thread_locks.locked_paths or one in _thread_locks.private_drafts for one in (target, *target.parents)
    ):
        yield
        return
    lock_path = temporary_path(target, "lock")
    descriptor = _acquire_lock(lock_path, path, wait)
    _thread_locks.locked_paths.add(target)
    try:
        try:
            _recover_locked(target)
        except OutputError:
            raise
        except OSError as problem:
            reason = f"an interrupted write could not be completed: {error_text(problem)}"
            raise write_error(path, reason, kind="not-recovered") from problem
        yield
    finally:
        _thread_locks.locked_paths.discard(target)
        with suppress(OSError):
            lock_path.unlink()  # while it is locked: a waiting process detects that in `_is_at_path`
        os.close(descriptor)


@contextmanager
def mark_private_draft(draft: Path) -> Iterator[None]:
    """Mark a draft folder as written only by the current thread, so that files in it need no lock."""
    _thread_locks.private_drafts.add(draft)
    try:
        yield
    finally:
        _thread_locks.private_drafts.discard(draft)


def is_inside_draft(target: Path) -> bool:
    """Return whether a path is inside a draft folder that only the current thread writes."""
    return any(one in _thread_locks.private_drafts for one in target.parents)


def _acquire_lock(lock_path: Path, output_path: str | Path, wait: bool) -> int:
    """Wait until a lock file is free and lock it; return its descriptor."""
    began, noticed, pause = time.monotonic(), False, 0.01
    while True:
        try:
            descriptor = _open_lock_file(lock_path)
        except OSError as problem:
            raise failed_write_error(output_path, problem) from problem
        try:
            if try_lock(descriptor) and _is_at_path(descriptor, lock_path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        waited = time.monotonic() - began
        if not wait or waited > MAX_LOCK_WAIT_SECONDS:
            fixes = ("wait until it ends", "name another output")
            raise write_error(output_path, "another crowdrank process is writing it", kind="locked", fix=fixes)
        if waited > LOCK_NOTICE_SECONDS and not noticed and not is_quiet():
            noticed = True
            sys.stderr.write(f"Waiting for another crowdrank process that is writing {output_path!s}.\n")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)


def _open_lock_file(lock_path: Path) -> int:
    """Open a lock file for writing, or read-only if it belongs to another user; return its descriptor."""
    flags = os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.open(lock_path, os.O_RDWR | flags, 0o666)
    except PermissionError:
        return os.open(lock_path, os.O_RDONLY | flags, 0o666)


def _is_at_path(descriptor: int, lock_path: Path) -> bool:
    """Return whether an open lock file is still at its path; its last owner may have deleted it meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), lock_path.stat())
    except FileNotFoundError:
        return False


# Recovery.


def recover(path: str | Path) -> list[Path]:
    """Complete or undo what an interrupted process wrote at `path`; call it before reading `path`.

    Returns:
        The outputs of the interrupted step, if there was one.

    """
    target = resolve_links(path)
    journal = temporary_path(target, "journal")
    listed = [one.target for one in _read_journal(journal)] if journal.exists() else []
    gone = not target.exists() and any(target.parent.glob(f"{glob.escape(temporary_prefix(target))}.*.old"))
    if listed or gone or temporary_path(target, "lock").exists():
        with locked(target):
            pass  # locking completes or removes them
    return listed


def _recover_locked(target: Path) -> None:
    """Complete or remove the temporary files of a locked output, beside it and (for a folder) inside it."""
    for path in (target, target / MANIFEST_FILE_NAME):
        if path.parent.is_dir():
            _complete_journal(temporary_path(path, "journal"))
    own = re.compile(rf"{re.escape(temporary_prefix(target))}\.[0-9a-f]{{16}}\.(draft|old)")
    left = sorted(one for one in target.parent.iterdir() if own.fullmatch(one.name))
    for old in (one for one in left if one.suffix == ".old"):
        if not target.exists():
            old.rename(target)
    for draft in left:
        if draft.exists():
            _restore_cache(draft, target)
            remove(draft)
    if (target / MANIFEST_FILE_NAME).exists():
        for one in (*target.iterdir(), *(target / CACHE_FOLDER_NAME).glob("*")):
            if DRAFT_NAME_PATTERN.fullmatch(one.name):
                remove(one)


def _complete_journal(journal: Path) -> None:
    if not journal.exists():
        return
    renames = _read_journal(journal)
    pending = [one for one in renames if one.draft.exists()]
    for one in renames:
        one.apply(recovering=True)
    journal.unlink(missing_ok=True)
    for one in renames:
        with locked(one.target):
            pass  # removes the lock of the process that died
    flush_folder(journal.parent)
    if pending and not is_quiet():
        names = ", ".join(str(one.target) for one in pending)
        sys.stderr.write(f"Completed the outputs of an interrupted command: {names}.\n")


def _read_journal(journal: Path) -> list[Rename]:
    """Read the renames of a journal; raise OutputError if crowdrank did not write it."""
    try:
        listed = read_json(journal)
    except FileNotFoundError:  # another process has completed it
        return []
    except (OSError, ValueError) as problem:
        raise _invalid_journal_error(journal, error_text(problem)) from problem
    renames = [_parse_rename(one, journal.parent) for one in listed] if isinstance(listed, list) else []
    known = [one for one in renames if one is not None]
    if not known or len(known) < len(renames):
        raise _invalid_journal_error(journal, "crowdrank did not write its entries")
    return known


def _invalid_journal_error(journal: Path, reason: str) -> OutputError:
    fix = "move it to another folder and run the command again"
    return OutputError(f"not a valid journal ({reason})", source=str(journal), kind="invalid-journal", fix=fix)


def _parse_rename(entry: Any, journal_folder: Path) -> Rename | None:
    """Return the rename that a journal entry describes, or None if crowdrank did not write the entry."""
    match entry:
        case [str(draft), str(target), str(manifest)] if "\0" not in draft + target:
            one = Rename(
                Path(os.path.normpath(journal_folder / draft)),
                Path(os.path.normpath(journal_folder / target)),
                manifest,
            )
        case _:
            return None
    own = re.fullmatch(rf"{re.escape(temporary_prefix(one.target))}\.[0-9a-f]{{16}}\.draft", one.draft.name)
    return one if own and one.draft.parent == one.target.parent else None


def _restore_cache(draft: Path, target: Path) -> None:
    """Move the cache back from the draft if the process died before the draft replaced its target."""
    if (
        (draft / CACHE_FOLDER_NAME).is_dir()
        and (target / MANIFEST_FILE_NAME).exists()
        and not (target / CACHE_FOLDER_NAME).exists()
    ):
        (draft / CACHE_FOLDER_NAME).rename(target / CACHE_FOLDER_NAME)
