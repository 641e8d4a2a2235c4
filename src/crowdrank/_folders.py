"""Folders that crowdrank writes: replaced as a whole, and only if crowdrank wrote everything in them.

Each contains `crowdrank.json`, its manifest: the kind of folder, the version of its layout and the SHA-256 digest of
every file. A folder is replaced only if it is empty or if its manifest lists everything in it, and loaded only if
every listed file exists and matches its digest.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import crowdrank
from crowdrank._disk import SCRATCH, beside, draft_of, file_digest, read_json, remove, resolved, sync_tree
from crowdrank._files import (
    CACHE,
    DRAFT,
    MANIFEST,
    Rename,
    check_parent,
    inside_draft,
    locked,
    one_step,
    output,
    private,
    recover,
    write_file,
)
from crowdrank.errors import InputError, OutputError

SYSTEM_FILES = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})
"""Files that operating systems put into folders; they are not user data."""


@dataclass(frozen=True)
class FolderKind:
    """Kind of folder that crowdrank writes.

    Attributes:
        name: identifies the kind in the manifest.
        format: version of the layout; folders with another version are refused.
        title: what messages call such a folder.
        written_by: command or method that writes it, for messages.
        optional: beginnings of the names of files that the user may delete.
        cache_names: pattern of the names in the subfolder `CACHE`, if this kind has one; the manifest omits them.

    """

    name: str
    format: int
    title: str
    written_by: str
    cache_names: str = ""
    optional: tuple[str, ...] = ()


@contextmanager
def write_folder(path: str | Path, kind: FolderKind, *, wait: bool = True) -> Iterator[Path]:
    """Yield an empty draft folder; when the block succeeds, it replaces the folder `path`.

    Raises:
        OutputError: `path` contains files that crowdrank did not write, or cannot be written.

    """
    target = resolved(path)
    if inside_draft(target):  # it becomes visible with the folder around it
        target.mkdir()
        yield target
        write_manifest(target, kind)
        return
    check_output_folder(path, kind)
    with output(path) as step:
        draft = step.new_draft(target, wait=wait)
        _check_owned(path, target, kind)
        draft.mkdir()
        with private(draft):
            yield draft
        write_manifest(draft, kind)
        sync_tree(draft)
        step.renames.append(Rename(draft, target, file_digest(draft / MANIFEST)))


def check_output_folder(path: str | Path, kind: FolderKind) -> None:
    """Raise OutputError if a folder of this kind cannot be written at `path`; call it before long work begins."""
    target = resolved(path)
    check_parent(path, target)
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
        raise OutputError(f"Cannot write {path}: {why}; crowdrank did not write it: name a new folder.") from problem
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
        or DRAFT.fullmatch(name) is not None
        or SCRATCH.fullmatch(name) is not None
    )


def _foreign(folder: Path, manifest: Manifest, kind: FolderKind) -> Iterator[str]:
    """Yield the relative paths of entries that are neither in the manifest nor in the cache."""
    cached = re.compile(rf"{kind.cache_names}|\.(?:{kind.cache_names})\.lock")
    for name in _tree(folder, only_direct_cache_entries=bool(kind.cache_names)):
        place, _, within = name.partition("/")
        if within and place == CACHE and kind.cache_names:
            if not cached.fullmatch(within):
                yield name
        elif name not in manifest.entries and name != MANIFEST:
            yield name


def _tree(folder: Path, *, only_direct_cache_entries: bool = False) -> Iterator[str]:
    """Yield the relative paths of all files, links and empty folders (`name/`) below a folder.

    Omit temporary and system files. Of a cache, yield its direct entries only.
    """
    for root, folders, files in os.walk(folder):
        place = Path(root).relative_to(folder)
        whole = [name for name in folders if (Path(root) / name).is_symlink()]
        if only_direct_cache_entries and place == Path(CACHE):
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
        about = read_json(folder / MANIFEST)
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
    entries = {name: file_digest(folder / name) for name in names}
    Manifest(kind.name, kind.format, crowdrank.__version__, entries).write(folder / MANIFEST)


def open_folder(path: str | Path, kind: FolderKind) -> Manifest:
    """Check that a folder is of this kind and unchanged since crowdrank wrote it; return its manifest.

    Raises:
        InputError: there is no such folder, it is of another kind or version, or a file in it is missing or changed.

    """
    folder, remedy = Path(path), f"name a folder written by {kind.written_by}"

    def refused(problem: str, fix: str = remedy) -> InputError:
        return InputError(problem, source=str(path), fix=fix)

    if not folder.exists() and folder.parent.is_dir():
        recover(folder)
    if not folder.is_dir():
        raise refused("it is a file, not a folder" if folder.exists() else "there is no such folder")
    if beside(folder / MANIFEST, "journal").exists():
        with locked(folder):
            pass  # completes the interrupted update
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
        if not place.exists() and name.startswith(kind.optional):
            continue
        if not place.is_file():
            raise refused(f"there is no {name} in it", "make it again")
        if file_digest(place) != known:
            raise refused(f"{name} was changed after crowdrank wrote it", "make it again")
    return manifest


@contextmanager
def update_folder(path: str | Path, manifest: Manifest, name: str) -> Iterator[Path]:
    """Yield a draft path; after the block, it becomes the file `name` of a folder and is listed in its manifest."""
    folder = resolved(path)
    with locked(folder):
        if Manifest.read(folder) != manifest:
            raise OutputError(f"Cannot write {name}: {path} has changed meanwhile; run the command again.")
        with one_step(folder / MANIFEST):
            with write_file(folder / name) as draft:
                yield draft
                known = file_digest(draft)
            with write_file(folder / MANIFEST) as draft:
                replace(manifest, entries={**manifest.entries, name: known}).write(draft)


def remove_folder(path: str | Path, kind: FolderKind) -> None:
    """Delete a folder that crowdrank wrote, if it exists; refuse one that contains anything else."""
    target = resolved(path)
    with locked(target):
        if not target.exists():
            return
        _check_owned(path, target, kind)
        draft = draft_of(target)
        target.rename(draft)
        remove(draft)


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
