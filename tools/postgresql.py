"""Start a PostgreSQL server for tests and benchmarks; it listens on a socket in a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Self


def find_program(name: str) -> str | None:
    """Return the path of a program of PostgreSQL, or None if it is not installed.

    Debian has the programs outside of PATH, and pg_ctlcluster, which calls them, in it.
    """
    if shutil.which("pg_ctlcluster") is None:
        return shutil.which(name)
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


class PostgresServer:
    """A PostgreSQL server with a new, empty folder of data, which is deleted at the end of the block.

    Args:
        fsync: whether a commit waits until it is on disk.

    """

    def __init__(self, *, fsync: bool = False) -> None:
        initdb, pg_ctl = find_program("initdb"), find_program("pg_ctl")
        if initdb is None or pg_ctl is None:
            raise FileNotFoundError("PostgreSQL is not installed (Debian: apt-get install postgresql)")
        self.pg_ctl, self.fsync = pg_ctl, fsync
        self.folder = Path(mkdtemp(prefix="crowdrank-pg-"))
        self.as_postgres: list[str] = []
        if os.getuid() == 0:  # the server refuses to run as root
            shutil.chown(self.folder, "postgres")
            self.as_postgres = ["runuser", "-u", "postgres", "--"]
        self._run(initdb, "-D", self.data, "-A", "trust", "-U", "postgres", *([] if fsync else ["--no-sync"]))
        self.start()

    @property
    def data(self) -> str:
        """Folder of the data."""
        return str(self.folder / "data")

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        fsync = "on" if self.fsync else "off"
        options = f"-k {self.folder} -c listen_addresses='' -c fsync={fsync} -c max_connections=200"
        self._run(self.pg_ctl, "-D", self.data, "-o", options, "-l", str(self.folder / "log"), "-w", "start")

    def url(self, name: str = "postgres") -> str:
        """Return the URL of a database of the server."""
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def kill(self) -> None:
        """Kill all processes of the server at once, as a power failure would."""
        parent = int((Path(self.data) / "postmaster.pid").read_text().split()[0])
        processes = [parent, *map(int, _ps("pid=", "--ppid", str(parent)))]
        for process in processes:
            os.kill(process, signal.SIGKILL)
        while any(not state.startswith("Z") for state in _ps("stat=", "-p", ",".join(map(str, processes)))):
            time.sleep(0.01)
        # While nobody waits for the dead process, as in some containers, it seems to run, and the files forbid a start.
        for lock in (Path(self.data) / "postmaster.pid", self.folder / ".s.PGSQL.5432.lock"):
            lock.unlink()

    def _run(self, *command: str) -> None:
        done = subprocess.run([*self.as_postgres, *command], cwd="/", capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stderr}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._run(self.pg_ctl, "-D", self.data, "-m", "immediate", "-w", "stop")
        finally:
            shutil.rmtree(self.folder)


def _ps(column: str, *selection: str) -> list[str]:
    """Return a column of the list of processes."""
    return subprocess.run(["ps", "-o", column, *selection], capture_output=True, text=True).stdout.split()
