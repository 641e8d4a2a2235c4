"""Create an engine by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowdrank._base import require_integer
from crowdrank.engine.local import LocalEngine
from crowdrank.errors import Fix, UsageError, near, shown

if TYPE_CHECKING:
    from crowdrank.engine.dask import DaskEngine

SCHEDULER_URL_SCHEMES = ("tcp://", "tls://", "ws://", "wss://", "ucx://")
"""URL schemes of addresses of Dask schedulers."""


def get_engine(name: str, n_jobs: int | None = None, dashboard: bool = False) -> LocalEngine | DaskEngine:
    """Return an engine by its name.

    Args:
        name: `local`, `dask` for a cluster of processes on this machine, or `dask=tcp://host:port` for the cluster of
            a scheduler.
        n_jobs: number of threads with `local` (default 1), of processes with `dask` (default: one per core).
        dashboard: whether a cluster of processes on this machine serves Dask's dashboard.

    Raises:
        UsageError: there is no such engine, or its packages are not installed.

    >>> get_engine("local", 2)
    LocalEngine(n_jobs=2, shard_size=262144)
    >>> get_engine("spark")
    Traceback (most recent call last):
    crowdrank.errors.UsageError: engine must be 'local', 'dask' or 'dask=tcp://host:port', not 'spark'.

    """
    kind, equals, address = name.partition("=")
    if n_jobs is not None:
        require_integer("n_jobs", n_jobs, 1)
    if kind not in ("local", "dask") or (equals and (kind == "local" or not address.startswith(SCHEDULER_URL_SCHEMES))):
        known = "'local', 'dask' or 'dask=tcp://host:port'"
        guess = "" if kind == "dask" else near(kind, ["local", "dask"])
        raise UsageError(f"must be {known}, not {shown(name)}{guess}", parameter="engine", kind="unknown-engine")
    if dashboard and name != "dask":
        fix = Fix("use {}", "engine", "dask")
        raise UsageError("needs a cluster that crowdrank starts", parameter="dashboard", kind="no-dashboard", fix=fix)
    if kind == "local":
        return LocalEngine(1 if n_jobs is None else n_jobs)
    from crowdrank.engine.dask import DaskEngine, require_dask

    require_dask(starts_cluster=not address)
    return DaskEngine(address) if address else DaskEngine(workers=n_jobs, dashboard=dashboard)
