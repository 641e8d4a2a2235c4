"""Engines by name, and their parameters."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from crowdrank import DaskEngine, LocalEngine
from crowdrank.engine.passes import get_engine
from crowdrank.errors import Fix, UsageError


def test_engines_by_name() -> None:
    assert get_engine("local") == LocalEngine()
    assert get_engine("local", 3) == LocalEngine(n_jobs=3)
    own, remote = get_engine("dask", 3, dashboard=True), get_engine("dask=tls://10.0.0.1:8786")
    assert isinstance(own, DaskEngine)
    assert isinstance(remote, DaskEngine)
    assert (own.address, own.workers, own.dashboard, own.is_remote) == (None, 3, True, False)
    assert (remote.address, remote.dashboard, remote.is_remote) == ("tls://10.0.0.1:8786", False, True)


@pytest.mark.parametrize("name", ["dusk", "dask=", "dask=10.0.0.1", "local=2"])
def test_unknown_engines_are_refused(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        get_engine(name)
    assert (refused.value.kind, refused.value.parameter) == ("unknown-engine", "engine")


@pytest.mark.parametrize("name", ["local", "dask=tcp://10.0.0.1:8786"])
def test_only_clusters_of_crowdrank_have_a_dashboard(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        get_engine(name, dashboard=True)
    assert (refused.value.kind, refused.value.parameter) == ("no-dashboard", "dashboard")
    assert refused.value.fix == Fix("use {}", "engine", "dask")


@pytest.mark.parametrize("name", ["local", "dask", "dask=tcp://10.0.0.1:8786"])
def test_the_number_of_jobs_is_checked(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        get_engine(name, 0)
    assert refused.value.parameter == "n_jobs"


@pytest.mark.parametrize("parameters", [{"workers": 0}, {"address": "tcp://a:1", "workers": 2}])
def test_the_number_of_workers_is_checked(parameters: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        DaskEngine(**parameters)
    assert refused.value.parameter == "workers"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError) as refused:
        get_engine("dask")
    assert refused.value.kind == "missing-package"
    assert refused.value.fix == Fix("pip install 'crowdrank[dask]'")
