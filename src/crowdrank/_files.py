"""Write files and folders so that a crash, a full disk or a second process loses nothing.

Every output is written as a draft beside its destination, flushed to disk and then renamed, under a lock:

    with write_file(path) as draft: ...            # one file
    with write_folder(path, kind) as draft: ...    # one folder
    with one_step(primary): ...                    # several of these, put in place together

A folder written by crowdrank contains `crowdrank.json`, its manifest: the kind of folder, the version of its layout and
the SHA-256 digest of every file. A folder is replaced only if it is empty or if its manifest lists everything in it.

The destination NAME has these temporary neighbors, which the next process that locks NAME completes or removes:

    .NAME.lock                        held while the destination is read and replaced
    .NAME.<16 hex digits>.draft       new content, or old content about to be deleted
    .NAME.<16 hex digits>.old         old folder, where the system cannot exchange two folders in one step
    .NAME.journal                     renames that belong together and have begun
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import crowdrank
from crowdrank.errors import InputError, OutputError
from crowdrank.progress import is_quiet

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

MANIFEST = "crowdrank.json"
"""Name of the file that marks a folder as written by crowdrank."""
LOCK_SECONDS = 600.0
"""Maximum time to wait for another process that writes the same output."""
NOTICE_SECONDS = 2.0
"""Time after which a message says what is waited for."""
SYSTEM_FILES = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
"""Files that operating systems put into folders; they are not user data."""
LONGEST_NAME = 180
"""Maximum bytes of a file name that is repeated in the names of its temporary neighbors."""

CACHE = "stages"
"""Name of the subfolder that is kept when the rest of a folder is replaced."""

_DRAFT = re.compile(r"\..+\.[0-9a-f]{16}\.(?:draft|old)")
_SCRATCH = re.compile(r"crowdrank-\w{8}\.scratch")


@dataclass(frozen=True)
class FolderKind:
    """Kind of folder that crowdrank writes.

    Attributes:
        name: identifies the kind in the manifest.
        format: version of the layout; folders with another version are refused.
        title: what messages call such a folder.
        written_by: command or method that writes it, for messages.
        cache_names: pattern of the names in the subfolder `CACHE`, if this kind has one; the manifest omits them.

    """

    name: str
    format: int
    title: str
    written_by: str
    cache_names: str = ""


# Files.


@contextmanager
def write_file(path: str | Path) -> Iterator[Path]:
    """Yield a draft path; when the block succeeds, the file written there replaces `path`.

    >>> folder = Path(tempfile.mkdtemp())
    >>> with write_file(folder / "a.txt") as draft:
    ...     _ = draft.write_text("done")
    >>> (folder / "a.txt").read_text()
    'done'
    """
    target = _resolved(path)
    if _inside_draft(target):  # it becomes visible with its folder
        yield target
        return
    check_output_file(path)
    with _output(path) as step:
        draft = step.new_draft(target)
        yield draft
        if target.exists():
            shutil.copymode(target, draft)
        _sync(draft)
        step.renames.append(_Rename(draft, target))


def check_output_file(path: str | Path) -> None:
    """Raise OutputError if a file cannot be written at `path`; call it before long work begins."""
    target = _resolved(path)
    _check_parent(path, target)
    if target.is_dir():
        raise OutputError(f"Cannot write {path}: it is a folder; name a file.")


def _check_parent(path: str | Path, target: Path) -> None:
    if not target.parent.is_dir():
        raise OutputError(f"Cannot write {path}: the folder {Path(path).parent} does not exist; make it first.")
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass  # the folder accepts new files
    except OSError as problem:
        raise OutputError(f"Cannot write {path}: {_why(problem)}: {Path(path).parent}.") from problem


# Folders.


@contextmanager
def write_folder(path: str | Path, kind: FolderKind, *, wait: bool = True) -> Iterator[Path]:
    """Yield an empty draft folder; when the block succeeds, it replaces the folder `path`.

    Raises:
        OutputError: `path` contains files that crowdrank did not write, or cannot be written.

    """
    target = _resolved(path)
    if _inside_draft(target):  # it becomes visible with the folder around it
        target.mkdir()
        yield target
        write_manifest(target, kind)
        return
    check_output_folder(path, kind)
    with _output(path) as step:
        draft = step.new_draft(target, wait=wait)
        _check_owned(path, target, kind)
        draft.mkdir()
        with _private(draft):
            yield draft
        write_manifest(draft, kind)
        _sync_tree(draft)
        step.renames.append(_Rename(draft, target, draft.stat().st_ino))


def check_output_folder(path: str | Path, kind: FolderKind) -> None:
    """Raise OutputError if a folder of this kind cannot be written at `path`; call it before long work begins."""
    target = _resolved(path)
    _check_parent(path, target)
    here = Path.cwd()
    if target == here or target in here.parents:
        raise OutputError(f"Cannot write {path}: it is or contains the current folder; name a new folder.")
    if target.exists() and not target.is_dir():
        raise OutputError(f"Cannot write {path}: it is a file, not a folder; choose another name.")
    if os.path.ismount(target):
        inside = Path(path) / kind.name
        raise OutputError(f"Cannot write {path}: a mount point cannot be replaced; name a folder in it: {inside}.")
    _check_owned(path, target, kind)


def _check_owned(path: str | Path, target: Path, kind: FolderKind) -> None:
    """Refuse to replace a folder unless it is empty or everything in it was written by crowdrank as this kind."""
    if not target.is_dir() or not any(_user_entries(target)):
        return
    try:
        manifest = Manifest.read(target)
    except (OSError, ValueError) as problem:
        other = min(_user_entries(target))
        why = "its crowdrank.json cannot be read" if (target / MANIFEST).exists() else f"it contains {other}"
        raise OutputError(f"Cannot write {path}: {why}; it is not a folder of crowdrank: name a new one.") from problem
    if manifest.kind != kind.name:
        raise OutputError(f"Cannot write {path}: it is a folder of another kind ({manifest.kind}); name a new one.")
    foreign = next(_foreign(target, manifest, kind), None)
    if foreign is not None:
        raise OutputError(
            f"Cannot write {path}: it contains {foreign}, which crowdrank did not write; move that file away or name "
            "a new folder."
        )


def _user_entries(folder: Path) -> Iterator[str]:
    return (entry.name for entry in folder.iterdir() if not _is_temporary(entry.name))


def _is_temporary(name: str) -> bool:
    """Return whether a name in a folder of crowdrank's is that of a temporary or a system file."""
    return (
        name in (*SYSTEM_FILES, f".{MANIFEST}.journal")
        or _DRAFT.fullmatch(name) is not None
        or _SCRATCH.fullmatch(name) is not None
    )


def _foreign(folder: Path, manifest: Manifest, kind: FolderKind) -> Iterator[str]:
    """Yield the relative paths of entries that are neither in the manifest nor in the cache."""
    cached = re.compile(rf"{kind.cache_names}|\.(?:{kind.cache_names})\.lock")
    for name in _tree(folder, depth_of_cache=bool(kind.cache_names)):
        place, _, within = name.partition("/")
        if within and place == CACHE and kind.cache_names:
            if not cached.fullmatch(within):
                yield name
        elif name not in manifest.entries and name != MANIFEST:
            yield name


def _tree(folder: Path, *, depth_of_cache: bool = False) -> Iterator[str]:
    """Yield the relative paths of all files, links and empty folders (`name/`) below a folder.

    Omit temporary and system files. Of a cache, yield its direct entries only.
    """
    for root, folders, files in os.walk(folder):
        place = Path(root).relative_to(folder)
        whole = [name for name in folders if (Path(root) / name).is_symlink()]
        if depth_of_cache and place == Path(CACHE):
            whole = list(folders)
        if not folders and not files and place not in (Path(), Path(CACHE)):
            yield f"{place.as_posix()}/"
        folders[:] = [name for name in folders if name not in whole and not _is_temporary(name)]
        yield from ((place / name).as_posix() for name in (*files, *whole) if not _is_temporary(name))


@dataclass(frozen=True)
class Manifest:
    """Contents of `crowdrank.json`: what a folder is, and the digest of each of its files."""

    kind: str
    format: int
    version: str
    entries: Mapping[str, str]  # SHA-256 by relative path with forward slashes

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a folder; raise OSError or ValueError where there is no valid one."""
        about = _read_json(folder / MANIFEST)
        if not isinstance(about, dict):
            raise ValueError(f"{MANIFEST} is not an object")
        values = [about.get(name) for name in ("kind", "format", "crowdrank", "entries")]
        for value, wanted in zip(values, (str, int, str, dict), strict=True):
            if not isinstance(value, wanted):
                raise ValueError(f"{MANIFEST} is incomplete")
        entries = {str(name): str(digest) for name, digest in about["entries"].items()}
        unsafe = next((name for name in entries if not _is_inside(name)), None)
        if unsafe is not None:
            raise ValueError(f"{MANIFEST} lists {unsafe!r}, which is outside of the folder")
        return cls(about["kind"], about["format"], about["crowdrank"], entries)

    def write(self, path: Path) -> None:
        """Write the manifest to a file."""
        about = {"crowdrank": self.version, "kind": self.kind, "format": self.format, "entries": dict(self.entries)}
        path.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _read_json(path: Path) -> Any:
    """Read a JSON file; raise OSError or ValueError where that fails, however deep its values are nested."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as problem:
        raise ValueError(f"{path.name} is nested too deeply") from problem


def _is_inside(name: str) -> bool:
    r"""Return whether a relative path stays inside its folder.

    >>> [_is_inside(name) for name in ("a.csv", "model/trees.txt", "../a", "/etc/passwd", "a/../../b", "C:\\x", "")]
    [True, True, False, False, False, False, False]
    """
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and not any(one == ".." or set(one) & set("\\:\0") for one in parts)


def write_manifest(folder: Path, kind: FolderKind) -> None:
    """Write the manifest of all files that are in a folder now."""
    names = [name for name in sorted(_tree(folder)) if name != MANIFEST and not name.endswith("/")]
    entries = {name: digest(folder / name) for name in names}
    Manifest(kind.name, kind.format, crowdrank.__version__, entries).write(folder / MANIFEST)


def digest(path: Path) -> str:
    """Return the SHA-256 digest of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def open_folder(path: str | Path, kind: FolderKind) -> Manifest:
    """Check that a folder is of this kind and unchanged since crowdrank wrote it; return its manifest.

    Raises:
        InputError: there is no such folder, it is of another kind or version, or a file in it is missing or changed.

    """
    folder, remedy = Path(path), f"name a folder written by {kind.written_by}"

    def refused(problem: str, fix: str = remedy) -> InputError:
        return InputError(problem, source=str(path), remedy=fix)

    if not folder.is_dir():
        raise refused("it is a file, not a folder" if folder.exists() else "there is no such folder")
    recover(folder / MANIFEST)
    try:
        manifest = Manifest.read(folder)
    except (OSError, ValueError) as problem:
        why = f"there is no {MANIFEST} in it" if isinstance(problem, FileNotFoundError) else str(problem).split("\n")[0]
        raise refused(f"it is not a {kind.title} ({why})") from problem
    if manifest.kind != kind.name:
        raise refused(f"it is not a {kind.title} but a folder of kind '{manifest.kind}'")
    if manifest.format != kind.format:
        raise refused(
            f"it was written by crowdrank {manifest.version} in format {manifest.format}, and this is crowdrank "
            f"{crowdrank.__version__} with format {kind.format}",
            "make it again with this version",
        )
    for name, known in manifest.entries.items():
        place = folder / name
        if not place.is_file():
            raise refused(f"there is no {name} in it", "make it again")
        if digest(place) != known:
            raise refused(f"{name} was changed after crowdrank wrote it", "make it again")
    return manifest


@contextmanager
def update_folder(path: str | Path, kind: FolderKind, name: str) -> Iterator[Path]:
    """Yield a draft path; after the block, it becomes the file `name` of a folder and is listed in its manifest."""
    folder = _resolved(path)
    with locked(folder):
        manifest = Manifest.read(folder)
        if manifest.kind != kind.name:
            raise OutputError(f"Cannot write {folder / name}: {path} is not a {kind.title}.")
        with one_step(folder / MANIFEST):
            with write_file(folder / name) as draft:
                yield draft
                known = digest(draft)
            with write_file(folder / MANIFEST) as draft:
                entries = {**manifest.entries, name: known}
                Manifest(kind.name, kind.format, manifest.version, entries).write(draft)


def remove_folder(path: str | Path, kind: FolderKind) -> None:
    """Delete a folder that crowdrank wrote, if it exists; refuse one that contains anything else."""
    target = _resolved(path)
    with locked(target):
        if not target.exists():
            return
        _check_owned(path, target, kind)
        draft = _draft_of(target)
        target.rename(draft)
        _remove(draft)


# Several outputs in one step.


@dataclass
class _Rename:
    """A draft that is complete and takes the place of its target."""

    draft: Path
    target: Path
    inode: int = 0  # of a folder's draft: tells whether the exchange has happened

    def apply(self) -> None:
        """Put the draft in place; applying it twice does no harm."""
        if self.inode:
            if not (self.target.exists() and self.target.stat().st_ino == self.inode) and self.draft.exists():
                _exchange(self.draft, self.target)
        elif self.draft.exists():
            self.draft.replace(self.target)
        _sync_folder(self.target.parent)

    def to_json(self) -> list[Any]:
        return [str(self.draft), str(self.target), self.inode]


@dataclass
class _Step:
    """Outputs that are written together; `renames` are applied when all drafts are complete."""

    primary: Path
    drafts: list[Path] = field(default_factory=list)
    renames: list[_Rename] = field(default_factory=list)
    held: ExitStack = field(default_factory=ExitStack)

    def new_draft(self, target: Path, *, wait: bool = True) -> Path:
        """Lock a target until the step ends and return the path of its draft."""
        self.held.enter_context(locked(target, wait=wait))
        self.drafts.append(_draft_of(target))
        return self.drafts[-1]

    def commit(self) -> None:
        """Put all drafts in place; with several of them, a journal lets another process complete the rest."""
        journal = _beside(self.primary, "journal")
        if len(self.renames) > 1:
            draft = _draft_of(journal)
            self.drafts.append(draft)
            draft.write_text(json.dumps([one.to_json() for one in self.renames]), encoding="utf-8")
            _sync(draft)
            draft.replace(journal)
            _sync_folder(journal.parent)
        for done, one in enumerate(self.renames):
            try:
                one.apply()
            except OSError as problem:
                if done == 0:
                    journal.unlink(missing_ok=True)
                    raise
                raise OutputError(
                    f"Cannot write {one.target}: {_why(problem)}. {self.renames[done - 1].target} is new already; "
                    "the same command completes the rest."
                ) from problem
        if len(self.renames) > 1:
            journal.unlink(missing_ok=True)
            _sync_folder(journal.parent)
        self.renames.clear()

    def close(self) -> None:
        """Remove what is left of the drafts and release the locks."""
        if not _beside(self.primary, "journal").exists():
            for draft in self.drafts:
                _remove(draft)
        self.held.close()


_steps = threading.local()


@contextmanager
def one_step(primary: str | Path) -> Iterator[None]:
    """Put all files and folders that are written in the block in place together, at its end.

    If the process dies in between, the next process that locks `primary` completes the step.
    """
    target = _resolved(primary)
    with locked(target), _new_step(primary):
        yield


@contextmanager
def _new_step(path: str | Path) -> Iterator[_Step]:
    before = getattr(_steps, "current", None)
    step = _steps.current = _Step(_resolved(path))
    try:
        yield step
        _steps.current = before
        step.commit()
    except (OutputError, InputError):
        raise
    except OSError as problem:
        raise OutputError(f"Cannot write {path}: {_why(problem)}. Nothing was changed.") from problem
    finally:
        _steps.current = before
        step.close()


@contextmanager
def _output(path: str | Path) -> Iterator[_Step]:
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
        raise OutputError(f"Cannot write {path}: {_why(problem)}. Nothing was changed.") from problem


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
    target = _resolved(path)
    if any(one in _held.locked or one in _held.private for one in (target, *target.parents)):
        yield
        return
    lock = _beside(target, "lock")
    handle = _acquire(lock, path, wait)
    _held.locked.add(target)
    try:
        _recover(target)
        yield
    finally:
        _held.locked.discard(target)
        with suppress(OSError):
            lock.unlink()  # while it is held: whoever waits for it sees that and makes a new one
        os.close(handle)


@contextmanager
def _private(draft: Path) -> Iterator[None]:
    """Mark a draft folder as known to this thread only: nothing in it needs a lock."""
    _held.private.add(draft)
    try:
        yield
    finally:
        _held.private.discard(draft)


def _inside_draft(target: Path) -> bool:
    return any(one in _held.private for one in target.parents)


def _acquire(lock: Path, path: str | Path, wait: bool) -> int:
    """Return the descriptor of the lock file, locked."""
    began, noticed, pause = time.monotonic(), False, 0.01
    while True:
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except OSError as problem:
            raise OutputError(f"Cannot write {path}: {_why(problem)}. Nothing was changed.") from problem
        try:
            if _try_lock(handle) and _is_current(handle, lock):
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


def _is_current(handle: int, lock: Path) -> bool:
    """Return whether the locked file is still the one at the path: its holder deletes it before letting go."""
    try:
        return os.path.samestat(os.fstat(handle), lock.stat())
    except FileNotFoundError:
        return False


if sys.platform == "win32":

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# Recovery.


def recover(path: str | Path) -> None:
    """Complete a step that an interrupted process began at `path`, if there is one; call it before reading."""
    target = _resolved(path)
    if _beside(target, "journal").exists():
        with locked(target):
            pass  # locking completes it


def _recover(target: Path) -> None:
    """Complete or remove what an interrupted process left beside a locked output, and inside of a locked folder."""
    for path in (target, target / MANIFEST):
        if path.parent.is_dir():
            _complete_journal(_beside(path, "journal"))
    own = re.compile(rf"{re.escape(_stem(target))}\.[0-9a-f]{{16}}\.(draft|old)")
    left = sorted(one for one in target.parent.iterdir() if own.fullmatch(one.name))
    for old in (one for one in left if one.suffix == ".old"):
        if not target.exists():
            old.rename(target)
    for draft in left:
        if draft.exists():
            _return_cache(draft, target)
            _remove(draft)
    if target.is_dir() and not target.is_symlink() and (target / MANIFEST).exists():
        for one in target.iterdir():
            if _DRAFT.fullmatch(one.name):
                _remove(one)


def _complete_journal(journal: Path) -> None:
    try:
        listed = _read_json(journal)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as problem:
        raise OutputError(f"{journal} cannot be read ({_why(problem)}); delete it and try again.") from problem
    done = []
    for draft, target, inode in (_entry(journal, one) for one in (listed if isinstance(listed, list) else [None])):
        pattern = rf"{re.escape(_stem(target))}\.[0-9a-f]{{16}}\.draft"
        if draft.parent != target.parent or not re.fullmatch(pattern, draft.name):
            raise OutputError(f"{journal} is not a journal of crowdrank; move it away and try again.")
        if draft.exists():
            _Rename(draft, target, inode).apply()
            done.append(str(target))
    journal.unlink()
    _sync_folder(journal.parent)
    if done and not is_quiet():
        sys.stderr.write(f"Completed what an interrupted command had begun to write: {', '.join(done)}.\n")


def _entry(journal: Path, listed: Any) -> tuple[Path, Path, int]:
    match listed:
        case [str(draft), str(target), int(inode)] if _is_path(draft + target):
            return Path(draft), Path(target), inode
    raise OutputError(f"{journal} is not a journal of crowdrank; move it away and try again.")


def _is_path(text: str) -> bool:
    """Return whether the file system could have a path of this text."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _return_cache(draft: Path, target: Path) -> None:
    """Move a cache back that was on its way from the old folder to the new one."""
    if (draft / CACHE).is_dir() and (target / MANIFEST).exists() and not (target / CACHE).exists():
        (draft / CACHE).rename(target / CACHE)


# Renaming and flushing.


def _exchange(draft: Path, target: Path) -> None:
    """Put a draft folder in the place of a folder, which need not exist, and delete the old one.

    The cache moves first: if the process dies after that, recovery moves it back. Where the system cannot exchange two
    folders in one step, the old one is renamed away first, and recovery renames it back if the new one did not follow.
    """
    if not target.exists():
        draft.rename(target)
        return
    moved = (target / CACHE).is_dir() and not (draft / CACHE).exists()
    if moved:
        (target / CACHE).rename(draft / CACHE)
    old = draft
    try:
        if not _exchange_at_once(draft, target):
            old = draft.with_suffix(".old")
            target.rename(old)
            try:
                draft.rename(target)
            except BaseException:
                old.rename(target)
                raise
    except BaseException:
        if moved:
            (draft / CACHE).rename(target / CACHE)
        raise
    _sync_folder(target.parent)
    _remove(old)


def _exchange_at_once(one: Path, other: Path) -> bool:
    """Exchange two paths atomically; return False where the system or the file system cannot."""
    exchange = _exchange_call()
    if exchange is None:
        return False
    if exchange(os.fsencode(one), os.fsencode(other)) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))


def _exchange_call() -> Callable[[bytes, bytes], int] | None:
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


def _sync(path: Path) -> None:
    """Flush a file to disk."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, where the system can."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP):  # not for folders of this file system
            raise
    finally:
        os.close(handle)


def _sync_tree(folder: Path) -> None:
    for root, _, files in os.walk(folder):
        for name in files:
            _sync(Path(root) / name)
        _sync_folder(Path(root))


def _remove(path: Path) -> None:
    """Delete a temporary file or folder; one that cannot be deleted now is deleted by a later process."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


# Temporary folders.


class ScratchFolder:
    """Temporary folder that is deleted with this object, at exit or, after a crash, by a later process.

    >>> scratch = ScratchFolder()
    >>> scratch.path.is_dir(), scratch.close(), scratch.path.exists()
    (True, None, False)
    """

    def __init__(self, parent: str | Path | None = None) -> None:
        place = Path(tempfile.gettempdir() if parent is None else parent)
        _clear_scratch(place)
        self.path, handle = _locked_scratch(place)
        self._finalizer = weakref.finalize(self, _delete_scratch, self.path, handle)

    def close(self) -> None:
        """Delete the folder now."""
        self._finalizer()


def _locked_scratch(place: Path) -> tuple[Path, int | None]:
    while True:
        path = Path(tempfile.mkdtemp(prefix="crowdrank-", suffix=".scratch", dir=place))
        if sys.platform == "win32":
            return path, None
        handle = os.open(path, os.O_RDONLY)
        if _try_lock(handle) and path.exists():  # nobody took it for the leftover of a dead process
            return path, handle
        os.close(handle)


def _delete_scratch(path: Path, handle: int | None) -> None:
    _remove(path)
    if handle is not None:
        os.close(handle)


def _clear_scratch(place: Path) -> None:
    """Delete the scratch folders of processes that no longer run: nobody holds their locks."""
    if sys.platform == "win32":
        return
    for path in place.glob("crowdrank-*.scratch"):
        if not _SCRATCH.fullmatch(path.name) or path.is_symlink():
            continue
        with suppress(OSError):  # another user's, or deleted meanwhile
            handle = os.open(path, os.O_RDONLY)
            try:
                if path.stat().st_uid == os.getuid() and _try_lock(handle):
                    _remove(path)
            finally:
                os.close(handle)


# Names and messages.


def _resolved(path: str | Path) -> Path:
    """Return the absolute path that links lead to, so that a link is written through and not replaced."""
    return Path(os.path.realpath(path))


def _stem(target: Path) -> str:
    """Return the beginning of the names of an output's temporary neighbors."""
    name = target.name
    if len(os.fsencode(name)) > LONGEST_NAME:
        name = hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()
    return f".{name}"


def _beside(target: Path, suffix: str) -> Path:
    return target.parent / f"{_stem(target)}.{suffix}"


def _draft_of(target: Path) -> Path:
    return _beside(target, f"{secrets.token_hex(8)}.draft")


def _why(problem: BaseException) -> str:
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem).split("\n")[0]


def reason(problem: Exception, folder: str | Path) -> str:
    """Return why a folder cannot be read, for the parentheses of a message.

    >>> reason(FileNotFoundError(2, "No such file or directory", "./ranker.json"), ".")
    'there is no ranker.json in it'
    >>> reason(KeyError("format"), "."), reason(ValueError("It is odd."), ".")
    ("'format' is missing", 'It is odd')
    """
    if isinstance(problem, OSError) and not Path(folder).exists():
        return "there is no such folder"
    if isinstance(problem, NotADirectoryError):
        return "it is a file, not a folder"
    name = Path(os.fsdecode(problem.filename)).name if isinstance(problem, OSError) and problem.filename else ""
    if isinstance(problem, FileNotFoundError) and name:
        return f"there is no {name} in it"
    if isinstance(problem, OSError) and problem.strerror:
        return f"{name}: {problem.strerror}" if name else problem.strerror
    return f"{problem} is missing" if isinstance(problem, KeyError) else str(problem).split("\n")[0].rstrip(".")
