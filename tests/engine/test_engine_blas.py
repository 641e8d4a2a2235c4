"""Results do not depend on the number of BLAS threads."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier

from threadpoolctl import threadpool_info, threadpool_limits

from crowdrank.consensus import METHODS
from crowdrank.engine import passes
from crowdrank.engine.passes import single_blas_thread

FITS = """
import hashlib
import sys
import warnings

import numpy as np
import pandas as pd

from crowdrank import DaskEngine, LocalEngine, read_judgments
from crowdrank.consensus import METHODS, get_aggregator

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    document = np.repeat(np.arange(20_003), 3)  # enough for OpenBLAS to use several threads
    grade = np.clip(rng.integers(0, 4, 20_003)[document] + rng.integers(-1, 2, len(document)), 0, 3)
    judgments = read_judgments(pd.DataFrame({
        "query": document // 20,
        "document": document,
        "assessor": rng.integers(0, 11_000, len(document)),  # enough for arrays over assessors, too
        "grade": grade,
    }))
    engine = LocalEngine() if sys.argv[1] == "local" else DaskEngine(workers=1)
    with engine:
        for method in sys.argv[2:] or [name for name in METHODS if name != "auto"]:
            model = get_aggregator(method)
            short = {"n_iter": 3, "tol": 0.0, "partners": 1}  # all pairs would take as long as all other methods
            model.set_params(**{k: v for k, v in short.items() if k in model.get_params()})
            model.fit(judgments, engine=engine)
            digest = hashlib.sha256()
            for column in ("relevance", "sd", "lower", "upper", "p0", "p3"):
                digest.update(model.consensus_.document_table[column].to_numpy().tobytes())
            for name in sorted(model.theta_):
                digest.update(np.ascontiguousarray(model.theta_[name]).tobytes())
            print(method, digest.hexdigest())
"""
NAMES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@cache
def digests(n_threads: int, engine: str, *methods: str) -> dict[str, str]:
    """Fit in a process with this number of BLAS threads; return a digest of each result by method."""
    env = {**os.environ, **dict.fromkeys(NAMES, str(n_threads))}
    done = subprocess.run(
        [sys.executable, "-c", FITS, engine, *methods], env=env, capture_output=True, text=True, check=True
    )
    return dict(line.split() for line in done.stdout.splitlines())


def test_every_method_gives_the_same_bytes_with_one_and_two_blas_threads() -> None:
    assert set(digests(1, "local")) == {name for name in METHODS if name != "auto"}
    assert digests(1, "local") == digests(2, "local")


def test_a_cluster_gives_the_bytes_of_the_local_engine() -> None:
    methods = ("gda", "rasch", "bwa")
    assert digests(2, "dask", *methods) == {name: digests(1, "local")[name] for name in methods}


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_the_limit_ends_with_the_last_of_overlapping_blocks() -> None:
    passes._blas_controller.cache_clear()  # other tests may have loaded more libraries
    meet = Barrier(2)

    def inside(_: int) -> set[int]:
        with single_blas_thread():
            meet.wait(timeout=30)
            return blas_threads()

    with threadpool_limits(2, user_api="blas"):
        with single_blas_thread():
            with ThreadPoolExecutor(2) as pool:
                assert list(pool.map(inside, range(2))) == [{1}, {1}]
            assert blas_threads() == {1}
        assert blas_threads() == {2}
