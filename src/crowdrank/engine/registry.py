"""Engines by the names that users write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowdrank.engine.local import LocalEngine
from crowdrank.errors import UsageError, near

if TYPE_CHECKING:
    from crowdrank.engine.dask import DaskEngine

SCHEMES = ("tcp://", "tls://", "ws://", "wss://", "ucx://")


def get_engine(name: str, n_jobs: int | None = None, dashboard: bool = False) -> LocalEngine | DaskEngine:
    """`local`, or `dask` for processes here, or `dask=tcp://host:port` for a cluster.

    Args:
        name: what the user wrote.
        n_jobs: of the local engine; with `dask`, so many processes are started here, or as many as there are cores.
        dashboard: serve Dask's dashboard of processes started here.

    >>> get_engine("local", 2)
    LocalEngine(n_jobs=2, shard_size=262144)
    >>> get_engine("spark")
    Traceback (most recent call last):
    crowdrank.errors.UsageError: There is no engine 'spark'; take local, dask, or dask=tcp://host:port.
    """
    kind, equals, address = name.partition("=")
    if dashboard and name != "dask":
        raise UsageError("--dashboard is for --engine dask; another cluster has its own, and local has none.")
    if name == "local":
        return LocalEngine(1 if n_jobs is None else n_jobs)
    if kind != "dask" or (equals and not address):
        raise UsageError(
            f"There is no engine '{name}'{near(kind, ['local', 'dask'])}; take local, dask, or dask=tcp://host:port."
        )
    if address and not address.startswith(SCHEMES):
        raise UsageError(f"'{address}' is no address of a Dask scheduler; write it as in dask=tcp://10.0.0.1:8786.")
    from crowdrank.engine.dask import DaskEngine, require_dask

    require_dask(own=not address)
    return DaskEngine(address) if address else DaskEngine(workers=n_jobs, dashboard=dashboard)
