"""Outputs are whole or unchanged: errors, interrupts, full disks, other processes and foreign files."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crowdrank import _disk
from crowdrank._disk import ScratchFolder
from crowdrank._files import (
    CACHE_FOLDER_NAME,
    MANIFEST_FILE_NAME,
    check_output_file,
    locked,
    recover,
    write_file,
    write_together,
)
from crowdrank._folders import FolderKind, check_output_folder, open_folder, remove_folder, update_folder, write_folder
from crowdrank.errors import CrowdrankError, InputError, OutputError

KIND = FolderKind("thing", 1, "thing", "a test")
CACHED = FolderKind("thing", 1, "thing", "a test", r"[a-z]+-[0-9a-f]{4}")
PROBLEMS = [ValueError("no"), KeyboardInterrupt(), SystemExit(1), MemoryError(), OSError(errno.ENOSPC, "No space left")]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def refused(
    kind: str, error: type[CrowdrankError] = OutputError, naming: str = ""
) -> Iterator[pytest.ExceptionInfo[CrowdrankError]]:
    """Expect an error of this kind whose problem contains a text."""
    with pytest.raises(error) as caught:
        yield caught
    assert caught.value.kind == kind
    assert naming in caught.value.problem


def make_folder(path: Path, text: str, kind: FolderKind = KIND) -> None:
    with write_folder(path, kind) as draft:
        (draft / "a.txt").write_text(text)


def fail_in_file(path: Path, problem: BaseException) -> None:
    with write_file(path) as draft:
        draft.write_text("half of the n")
        raise problem


def fail_in_folder(path: Path, problem: BaseException) -> None:
    with write_folder(path, KIND) as draft:
        (draft / "a.txt").write_text("half of the n")
        raise problem


# One file.


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_failed_write_leaves_the_old_file(problem: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    expected = OutputError if isinstance(problem, OSError) else type(problem)
    with pytest.raises(expected) as caught:
        fail_in_file(path, problem)
    if expected is OutputError:
        assert str(caught.value) == f"{path}: cannot be written: No space left (nothing was changed)."
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(real)
    with write_file(link) as draft:
        draft.write_text("new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_permissions_of_the_old_file_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "private.csv"
    path.write_text("old")
    path.chmod(0o600)
    with write_file(path) as draft:
        draft.write_text("new")
    assert path.stat().st_mode & 0o777 == 0o600


def test_long_names_are_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250)
    with write_file(path) as draft:
        draft.write_text("done")
    assert path.read_text() == "done"
    assert names(tmp_path) == [path.name]


def test_an_output_is_checked_before_work(tmp_path: Path) -> None:
    with refused("no-parent-folder"):
        check_output_file(tmp_path / "none" / "a.csv")
    with refused("is-folder"):
        check_output_file(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with refused("not-a-file"):
        check_output_file(tmp_path / "pipe")
    (tmp_path / "pipe").unlink()
    (tmp_path / "file").write_text("")
    with refused("not-a-folder"):
        check_output_folder(tmp_path / "file", KIND)
    check_output_file(tmp_path / "new.csv")
    check_output_folder(tmp_path / "new", KIND)
    assert names(tmp_path) == ["file"]


def test_a_read_only_folder_is_refused_before_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(dir: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(dir))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    for check in (check_output_file, lambda path: check_output_folder(path, KIND)):
        with pytest.raises(OutputError, match="Read-only file system"):
            check(tmp_path / "a.csv")


def test_data_is_on_disk_before_it_is_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    sync, replace = os.fsync, os.replace

    def record_sync(handle: int) -> None:
        events.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().name}")
        sync(handle)

    def record_replace(one: Any, other: Any) -> None:
        events.append("rename")
        replace(one, other)

    if not Path("/proc/self/fd").exists():
        pytest.skip("there is no /proc to see which file is flushed")
    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "replace", record_replace)
    with write_file(tmp_path / "a.txt") as draft:
        draft.write_text("new")
        name = draft.name
    assert events == [f"sync {name}", "rename", f"sync {tmp_path.name}"]


# Folders.


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_failed_write_leaves_the_old_folder(problem: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "model"
    make_folder(path, "old")
    with pytest.raises(OutputError if isinstance(problem, OSError) else type(problem)):
        fail_in_folder(path, problem)
    assert (path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_folder_replaces_a_folder(at_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not at_once:
        monkeypatch.setattr(_disk, "_exchange_system_call", lambda: None)
    path = tmp_path / "model"
    make_folder(path, "old")
    make_folder(path, "new")
    assert (path / "a.txt").read_text() == "new"
    assert names(tmp_path) == ["model"]
    assert open_folder(path, KIND).entries.keys() == {"a.txt"}


def test_a_folder_with_changed_files_is_replaced_by_the_same_content(tmp_path: Path) -> None:
    path = tmp_path / "model"
    make_folder(path, "text")
    (path / "a.txt").write_text("changed")
    make_folder(path, "text")
    assert (path / "a.txt").read_text() == "text"


def test_a_failed_rename_brings_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model"
    make_folder(path, "old")
    rename = os.rename

    def fail(one: Any, other: Any) -> None:
        if str(one).endswith(".draft"):
            raise OSError(errno.EIO, "Input/output error")
        rename(one, other)

    monkeypatch.setattr(_disk, "_exchange_system_call", lambda: None)
    monkeypatch.setattr(os, "rename", fail)
    with refused("write-failed"):
        make_folder(path, "new")
    assert (path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("thesis.txt", "thesis.txt"),
        ("sub/thesis.txt", "sub/thesis.txt"),
        (f"{CACHE_FOLDER_NAME}/thesis.txt", f"{CACHE_FOLDER_NAME}/thesis.txt"),
        (".hidden", ".hidden"),
        (".notes.lock", ".notes.lock"),
    ],
)
def test_foreign_files_are_never_touched(name: str, foreign: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    make_folder(path, "old", CACHED)
    other = path / name
    other.parent.mkdir(exist_ok=True)
    other.write_text("precious")
    with refused("foreign-files", naming=foreign):
        make_folder(path, "new", CACHED)
    with refused("foreign-files", naming=foreign):
        remove_folder(path, CACHED)
    assert other.read_text() == "precious"
    assert (path / "a.txt").read_text() == "old"


def test_a_link_or_an_empty_folder_inside_is_foreign(tmp_path: Path) -> None:
    path = tmp_path / "out"
    make_folder(path, "old")
    (path / "empty").mkdir()
    with refused("foreign-files", naming="empty/"):
        make_folder(path, "new")
    (path / "empty").rmdir()
    (path / "link").symlink_to(tmp_path)
    with refused("foreign-files", naming="link"):
        make_folder(path, "new")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"crowdrank": "0.1.0"}', "\x00", '{"kind": "thing"}'])
def test_a_folder_without_a_valid_manifest_is_not_replaced(content: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.mkdir()
    (path / "model.json").write_text("precious")
    (path / MANIFEST_FILE_NAME).write_text(content)
    with pytest.raises(OutputError):
        make_folder(path, "new")
    assert (path / "model.json").read_text() == "precious"


def test_a_folder_of_another_kind_is_not_replaced(tmp_path: Path) -> None:
    make_folder(tmp_path / "out", "old")
    with refused("other-kind"):
        make_folder(tmp_path / "out", "new", FolderKind("other", 1, "other thing", "a test"))
    assert (tmp_path / "out" / "a.txt").read_text() == "old"


def test_system_files_do_not_make_a_folder_foreign(tmp_path: Path) -> None:
    make_folder(tmp_path / "out", "old")
    (tmp_path / "out" / ".DS_Store").write_text("")
    make_folder(tmp_path / "out", "new")
    assert (tmp_path / "out" / "a.txt").read_text() == "new"


def test_the_current_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out"
    make_folder(path, "old")
    monkeypatch.chdir(path)
    for name in (".", path, ".."):
        with refused("current-folder"):
            make_folder(Path(name), "new")


@pytest.mark.parametrize("at_once", [True, False])
def test_the_cache_moves_to_the_new_folder(at_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not at_once:
        monkeypatch.setattr(_disk, "_exchange_system_call", lambda: None)
    path = tmp_path / "out"
    with write_folder(path, CACHED) as draft:
        (draft / CACHE_FOLDER_NAME).mkdir()
    (path / CACHE_FOLDER_NAME / "fit-00ff").write_text("cached")
    make_folder(path, "new", CACHED)
    assert (path / CACHE_FOLDER_NAME / "fit-00ff").read_text() == "cached"
    assert open_folder(path, CACHED).entries.keys() == {"a.txt"}


def test_a_folder_inside_a_draft_has_its_own_manifest(tmp_path: Path) -> None:
    with write_folder(tmp_path / "out", KIND) as draft:
        make_folder(draft / "model", "inner")
        with write_file(draft / "b.txt") as inner:
            inner.write_text("b")
    assert open_folder(tmp_path / "out" / "model", KIND).entries.keys() == {"a.txt"}
    assert open_folder(tmp_path / "out", KIND).entries.keys() == {"b.txt", "model/a.txt", f"model/{MANIFEST_FILE_NAME}"}


# Reading a folder.


def test_changed_and_missing_files_are_found(tmp_path: Path) -> None:
    path = tmp_path / "out"
    make_folder(path, "text")
    (path / "a.txt").write_text("texT")
    with refused("changed-file", InputError):
        open_folder(path, KIND)
    (path / "a.txt").unlink()
    with refused("missing-file", InputError):
        open_folder(path, KIND)
    with refused("no-folder", InputError):
        open_folder(tmp_path / "none", KIND)


def test_other_kinds_and_formats_are_refused(tmp_path: Path) -> None:
    make_folder(tmp_path / "out", "text", FolderKind("thing", 7, "thing", "a test"))
    with refused("other-version", InputError):
        open_folder(tmp_path / "out", KIND)
    with refused("other-kind", InputError):
        open_folder(tmp_path / "out", FolderKind("other", 1, "other thing", "a test"))


@pytest.mark.parametrize("name", ["../a.txt", "/etc/passwd", "x/../../a.txt", ""])
def test_entries_stay_inside_the_folder(name: str, tmp_path: Path) -> None:
    make_folder(tmp_path / "out", "text")
    about = json.loads((tmp_path / "out" / MANIFEST_FILE_NAME).read_text())
    about["entries"] = {name: "0"}
    (tmp_path / "out" / MANIFEST_FILE_NAME).write_text(json.dumps(about))
    with refused("no-manifest", InputError):
        open_folder(tmp_path / "out", KIND)


def test_one_file_of_a_folder_is_replaced_with_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "out"
    make_folder(path, "text")
    manifest = open_folder(path, KIND)
    with update_folder(path, manifest, "report.html") as draft:
        draft.write_text("page")
    with refused("changed"), update_folder(path, manifest, "report.html"):
        pass
    assert open_folder(path, KIND).entries.keys() == {"a.txt", "report.html"}
    assert names(path) == ["a.txt", MANIFEST_FILE_NAME, "report.html"]


# Several outputs.


def write_both(folder: Path, text: str) -> None:
    with write_together(folder / "a.txt"):
        for name in ("a.txt", "b.txt"):
            with write_file(folder / name) as draft:
                draft.write_text(text)
        make_folder(folder / "c", text)


def read_both(folder: Path) -> list[str]:
    return [(folder / name).read_text() for name in ("a.txt", "b.txt", "c/a.txt")]


def test_a_failed_step_changes_nothing(tmp_path: Path) -> None:
    write_both(tmp_path, "old")

    def fail() -> None:
        with write_together(tmp_path / "a.txt"):
            with write_file(tmp_path / "a.txt") as draft:
                draft.write_text("new")
            fail_in_file(tmp_path / "b.txt", OSError(errno.ENOSPC, "No space left"))

    with refused("write-failed") as caught:
        fail()
    assert caught.value.location.source == str(tmp_path / "b.txt")
    assert read_both(tmp_path) == ["old"] * 3
    assert names(tmp_path) == ["a.txt", "b.txt", "c"]


CRASH = """
import os, sys
from pathlib import Path
from crowdrank import _files
sys.path.insert(0, {tests!r})
from test_files import write_both
apply, left = _files.Rename.apply, {after}
def crash(self, **options):
    global left
    if left == 0:
        os._exit(9)
    left -= 1
    apply(self, **options)
_files.Rename.apply = crash
write_both(Path({folder!r}), "new")
os._exit(0)
"""


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_step_that_died_is_completed(after: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_both(tmp_path, "old")
    code = CRASH.format(tests=str(Path(__file__).parent), after=after, folder=str(tmp_path))
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    recover(tmp_path / "a.txt")
    assert read_both(tmp_path) == ["new"] * 3
    assert "a.txt" in capsys.readouterr().err or after
    write_both(tmp_path, "newer")
    assert read_both(tmp_path) == ["newer"] * 3
    assert names(tmp_path) == ["a.txt", "b.txt", "c"]


def test_a_moved_or_copied_step_is_completed_where_it_is(tmp_path: Path) -> None:
    write_both(tmp_path, "old")
    code = CRASH.format(tests=str(Path(__file__).parent), after=1, folder=str(tmp_path))
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    shutil.copytree(tmp_path, tmp_path.parent / "copy")
    recover(tmp_path.parent / "copy" / "a.txt")
    assert read_both(tmp_path.parent / "copy") == ["new"] * 3
    assert read_both(tmp_path) == ["new", "old", "old"]
    tmp_path.rename(tmp_path.parent / "moved")
    recover(tmp_path.parent / "moved" / "a.txt")
    assert read_both(tmp_path.parent / "moved") == ["new"] * 3


def test_an_update_that_died_is_completed_when_the_folder_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "out"
    make_folder(path, "text")
    code = f"""
import os
from pathlib import Path
from crowdrank import _files, _folders
apply, left = _files.Rename.apply, 1
def crash(self, **options):
    global left
    if left == 0:
        os._exit(9)
    left -= 1
    apply(self, **options)
_files.Rename.apply = crash
with _folders.update_folder({str(path)!r}, _folders.Manifest.read(Path({str(path)!r})), "report.html") as draft:
    draft.write_text("page")
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    assert ".crowdrank.json.journal" in names(path)
    assert open_folder(path, KIND).entries.keys() == {"a.txt", "report.html"}
    assert names(path) == ["a.txt", MANIFEST_FILE_NAME, "report.html"]
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("content", ["", "[[1, 2]]", '[["/etc/x", "/etc/passwd", ""]]', "null", "[[]]"])
def test_a_strange_journal_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / ".a.txt.journal").write_text(content)
    with refused("invalid-journal"):
        recover(tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "old"


# Leftovers of processes that died.


def test_drafts_of_dead_processes_are_removed(tmp_path: Path) -> None:
    make_folder(tmp_path / "out", "old", CACHED)
    for name in (".out.0123456789abcdef.draft", ".a.txt.0123456789abcdef.draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half.txt").write_text("")
    for name in (".out.backup.draft", ".out.0123.draft", ".out2.0123456789abcdef.draft"):
        (tmp_path / name).write_text("precious")
    make_folder(tmp_path / "out", "new", CACHED)
    assert names(tmp_path) == [
        ".a.txt.0123456789abcdef.draft",
        ".out.0123.draft",
        ".out.backup.draft",
        ".out2.0123456789abcdef.draft",
        "out",
    ]


def test_an_old_folder_without_a_new_one_comes_back(tmp_path: Path) -> None:
    make_folder(tmp_path / "out", "old", CACHED)
    (tmp_path / "out").rename(tmp_path / ".out.0123456789abcdef.old")
    draft = tmp_path / ".out.0123456789abcdef.draft"
    (draft / CACHE_FOLDER_NAME).mkdir(parents=True)
    (draft / CACHE_FOLDER_NAME / "fit-00ff").write_text("cached")
    with locked(tmp_path / "out"):
        assert (tmp_path / "out" / "a.txt").read_text() == "old"
        assert (tmp_path / "out" / CACHE_FOLDER_NAME / "fit-00ff").read_text() == "cached"
    assert names(tmp_path) == ["out"]


def test_scratch_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
    code = f"""
import os
from crowdrank._disk import (ScratchFolder)
scratch = ScratchFolder({str(tmp_path)!r})
(scratch.path / "state").touch()
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True)
    (tmp_path / "crowdrank-notes.scratch").write_text("not a scratch folder")
    assert len(names(tmp_path)) == 2
    mine, other = ScratchFolder(tmp_path), ScratchFolder(tmp_path)
    assert names(tmp_path) == sorted([mine.path.name, other.path.name, "crowdrank-notes.scratch"])
    mine.close()
    del other
    assert names(tmp_path) == ["crowdrank-notes.scratch"]


# Locks.

HOLD = """
import sys, time
from crowdrank._files import (locked)
with locked({path!r}):
    print("held", flush=True)
    sys.stdin.readline()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(path=str(path))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_or_waits(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    process = holder(path)
    with refused("locked"), locked(path, wait=False):
        pass
    done = threading.Event()

    def write() -> None:
        with write_file(path) as draft:
            draft.write_text("new")
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    time.sleep(0.2)
    assert not done.is_set()
    process.communicate("\n")
    thread.join()
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    process = holder(tmp_path / "a.txt")
    process.kill()
    process.communicate()
    with locked(tmp_path / "a.txt", wait=False):
        pass
    assert names(tmp_path) == []


def test_threads_exclude_each_other(tmp_path: Path) -> None:
    counter = tmp_path / "n.txt"
    counter.write_text("0")

    def count() -> None:
        for _ in range(20):
            with locked(counter):
                number = int(counter.read_text())
                with write_file(counter) as draft:
                    draft.write_text(str(number + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read_text() == "80"
    assert names(tmp_path) == ["n.txt"]
