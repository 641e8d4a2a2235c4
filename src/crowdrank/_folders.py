"""Write folders as a whole and replace only those that crowdrank wrote completely.

Each folder contains a manifest, `crowdrank.json`: the kind of folder, the version of its layout and the SHA-256 digest
of every file. A folder is replaced only if it is empty or if its manifest lists everything in it, and loaded only if
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
from crowdrank._disk import (
    SCRATCH_NAME,
    file_digest,
    flush_tree,
    new_draft_path,
    read_json,
    remove,
    resolve_links,
    temporary_path,
    write_error,
)
from crowdrank._files import (
    CACHE,
    DRAFT_NAME,
    MANIFEST,
    Rename,
    check_parent,
    current_step,
    inside_draft,
    locked,
    mark_private,
    one_step,
    recover,
    write_file,
)
from crowdrank.errors import InputError

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
        cache_names: pattern of the names in the subfolder `CACHE`, if this kind has one; the manifest omits them.
        optional: prefixes of the names of files that the user may delete.

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
    target = resolve_links(path)
    if inside_draft(target):  # put in place with its parent folder
        target.mkdir()
        yield target
        write_manifest(target, kind)
        return
    check_output_folder(path, kind)
    with current_step(path) as step:
        draft = step.new_draft(target, wait=wait)
        _check_owned(path, target, kind)
        draft.mkdir()
        with mark_private(draft):
            yield draft
        write_manifest(draft, kind)
        flush_tree(draft)
        step.renames.append(Rename(draft, target, file_digest(draft / MANIFEST)))


def check_output_folder(path: str | Path, kind: FolderKind) -> None:
    """Raise OutputError if a folder of this kind cannot be written at `path`; call it before long work begins."""
    target = resolve_links(path)
    check_parent(path, target)
    here = Path.cwd()
    if target == here or target in here.parents:
        raise write_error(path, "it is or contains the current folder", kind="current-folder", fix="name a new folder")
    if target.exists() and not target.is_dir():
        raise write_error(path, "it is a file, not a folder", kind="not-a-folder", fix="choose another name")
    if os.path.ismount(target):
        fix = f"name a folder in it: {Path(path) / kind.name}"
        raise write_error(path, "a mount point cannot be replaced", kind="mount-point", fix=fix)
    _check_owned(path, target, kind)


def _check_owned(path: str | Path, target: Path, kind: FolderKind) -> None:
    """Raise OutputError unless a folder is empty or crowdrank wrote everything in it as this kind of folder."""
    if not target.is_dir() or not any(_user_entries(target)):
        return
    try:
        manifest = Manifest.read(target)
    except (OSError, ValueError) as problem:
        other = min(_user_entries(target))
        why = "its crowdrank.json cannot be read" if (target / MANIFEST).exists() else f"it contains {other}"
        reason = f"{why}; crowdrank did not write this folder"
        raise write_error(path, reason, kind="foreign-folder", fix="name a new folder") from problem
    if manifest.kind != kind.name:
        reason = f"it is a folder of another kind ({manifest.kind})"
        raise write_error(path, reason, kind="other-kind", fix="name a new folder")
    foreign = next(_foreign_entries(target, manifest, kind), None)
    if foreign is not None:
        reason, fixes = f"it contains {foreign}, which crowdrank did not write", ("move that file", "name a new folder")
        raise write_error(path, reason, kind="foreign-files", fix=fixes)


def _user_entries(folder: Path) -> Iterator[str]:
    return (entry.name for entry in folder.iterdir() if not _is_temporary(entry.name))


def _is_temporary(name: str) -> bool:
    """Return whether a name is that of a temporary file or of a file of the operating system."""
    return (
        name in (*SYSTEM_FILES, f".{MANIFEST}.journal")
        or DRAFT_NAME.fullmatch(name) is not None
        or SCRATCH_NAME.fullmatch(name) is not None
    )


def _foreign_entries(folder: Path, manifest: Manifest, kind: FolderKind) -> Iterator[str]:
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
    """Contents of `crowdrank.json`: kind, layout version, crowdrank version and digests of the files of a folder."""

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
    folder, fix = Path(path), f"name a folder written by {kind.written_by}"
    if not folder.exists() and folder.parent.is_dir():
        recover(folder)
    if not folder.exists():
        raise InputError("there is no such folder", source=str(path), kind="no-folder", fix=fix)
    if not folder.is_dir():
        raise InputError("it is a file, not a folder", source=str(path), kind="not-a-folder", fix=fix)
    if temporary_path(folder / MANIFEST, "journal").exists():
        with locked(folder):
            pass  # completes the interrupted update
    try:
        manifest = Manifest.read(folder)
    except (OSError, ValueError) as problem:
        why = f"there is no {MANIFEST} in it" if isinstance(problem, FileNotFoundError) else str(problem).split("\n")[0]
        text = f"it is not a {kind.title} ({why})"
        raise InputError(text, source=str(path), kind="no-manifest", fix=fix) from problem
    if manifest.kind != kind.name:
        text = f"it is not a {kind.title} but a folder of kind '{manifest.kind}'"
        raise InputError(text, source=str(path), kind="other-kind", fix=fix)
    if manifest.format != kind.format:
        raise InputError(
            f"it was written by crowdrank {manifest.version} in format {manifest.format}, and this is crowdrank "
            f"{crowdrank.__version__} with format {kind.format}",
            source=str(path),
            kind="other-version",
            fix="create it again with this version",
        )
    _check_entries(path, manifest, kind)
    return manifest


def _check_entries(path: str | Path, manifest: Manifest, kind: FolderKind) -> None:
    """Raise InputError unless all files of a manifest exist and match their digests."""
    for name, digest in manifest.entries.items():
        file = Path(path) / name
        if not file.exists() and name.startswith(kind.optional):
            continue
        if not file.is_file():
            text = f"there is no {name} in it"
            raise InputError(text, source=str(path), kind="missing-file", fix="create it again")
        if file_digest(file) != digest:
            text = f"{name} was changed after crowdrank wrote it"
            raise InputError(text, source=str(path), kind="changed-file", fix="create it again")


@contextmanager
def update_folder(path: str | Path, manifest: Manifest, name: str) -> Iterator[Path]:
    """Yield a draft path; after the block, it becomes the file `name` of a folder and is listed in its manifest."""
    folder = resolve_links(path)
    with locked(folder):
        if Manifest.read(folder) != manifest:
            reason = f"another process has changed {path}"
            raise write_error(name, reason, kind="changed", fix="run the command again")
        with one_step(folder / MANIFEST):
            with write_file(folder / name) as draft:
                yield draft
                digest = file_digest(draft)
            with write_file(folder / MANIFEST) as draft:
                replace(manifest, entries={**manifest.entries, name: digest}).write(draft)


def remove_folder(path: str | Path, kind: FolderKind) -> None:
    """Delete a folder that crowdrank wrote, if it exists; raise OutputError if it contains other files."""
    target = resolve_links(path)
    with locked(target):
        if not target.exists():
            return
        _check_owned(path, target, kind)
        draft = new_draft_path(target)
        target.rename(draft)
        remove(draft)


def reason(problem: Exception, folder: str | Path) -> str:
    """Return why a folder cannot be read, as a message quotes it in parentheses.

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
