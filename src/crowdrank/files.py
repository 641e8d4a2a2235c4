"""Write beside, then rename: a reader never sees half a file, and a failed write leaves the old one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crowdrank.errors import OutputError


@contextmanager
def replacing(path: str | Path, marker: str | None = None) -> Iterator[Path]:
    """A path to write to (file or folder); it takes the place of `path` only if the block succeeds.

    A folder takes the place of another only if that is empty or holds the file `marker`: it was written by us.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "a.txt") as draft:
    ...     _ = draft.write_text("done")
    >>> (folder / "a.txt").read_text()
    'done'
    """
    path = Path(path)
    require_folder(path)
    require_ours(path, marker)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield draft
        _put(draft, path)
    except OutputError:
        raise
    except OSError as problem:
        raise OutputError(f"Cannot write {path}: {problem.strerror or problem}; nothing was changed.") from problem
    finally:
        _remove(draft)


def require_folder(path: str | Path) -> None:
    """Refuse an output path whose folder does not exist, before any work is done."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise OutputError(f"Cannot write {path}: the folder {folder} does not exist; make it first.")


def require_ours(path: str | Path, marker: str | None) -> None:
    """Refuse to replace a folder that holds other things than we wrote, before any work is done."""
    path = Path(path)
    if marker is None:
        return
    if not path.name:
        raise OutputError(f"Cannot write {path}: it is the folder you are in; name a new one.")
    if path.is_dir() and any(path.iterdir()) and not (path / marker).exists():
        other = min(entry.name for entry in path.iterdir())
        raise OutputError(f"Cannot write {path}: it holds other files ({other}); name a new folder.")


def reason(problem: Exception, folder: str | Path) -> str:
    """Why a folder cannot be read as what it should be, in words: for the brackets of a sentence about it.

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
    return f"{problem} is missing" if isinstance(problem, KeyError) else _first_line(problem)


def _first_line(problem: Exception) -> str:
    return str(problem).split("\n")[0].rstrip(".")


def _put(draft: Path, path: Path) -> None:
    if not draft.is_dir():
        draft.replace(path)
        return
    if path.exists() and not path.is_dir():
        raise OutputError(f"Cannot write {path}: it is a file, not a folder; choose another name.")
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    if path.exists():
        path.replace(old)
    try:
        draft.replace(path)
    except BaseException:
        # A folder cannot take the place of a full one in one step: until the new one stands, the old one comes back.
        if old.exists():
            old.replace(path)
        raise
    _remove(old)


def _remove(path: Path) -> None:
    """Clear away what is no longer needed; what cannot be cleared away is no reason to fail."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)
