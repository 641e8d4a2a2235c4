"""Time to score one query, compared with LightGBM, and memory of `crowdrank rank` for small and large files."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Result, at_most, in_own_process, peak_bytes

DOCUMENTS, FEATURES, TREES, LEAVES = 100, 46, 100, 31
"""Sizes of the query and of the forest."""
N_REPEATS = 500
"""Number of times that a query is scored in each way."""
ROWS, COLUMNS, PER_QUERY = 20_000, 30, 100
"""Rows, features and documents per query of the small file; the large one has ten times the rows."""
FORMATS = ("letor", "csv", "jsonl", "parquet")


def _training_data(n: int, n_features: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, n_features))
    worth = X[:, :5].sum(axis=1) + rng.normal(size=n)
    return X, np.digitize(worth, [0.0, 2.0, 4.0]).astype(np.float64), np.arange(n) // 100


def _medians(work: dict[str, Callable[[], object]], n_repeats: int = N_REPEATS) -> dict[str, float]:
    """Return the median milliseconds of CPU time of each function, measured in turns; other load does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(n_repeats):
        for name, function in work.items():
            start = time.process_time()
            function()
            seconds[name].append(time.process_time() - start)
    return {name: 1e3 * float(np.median(values[n_repeats // 10 :])) for name, values in seconds.items()}


def _scoring_times() -> dict[str, float]:
    """Measure LightGBM's predict, and ours on a matrix, on frames and with an ensemble."""
    import pandas as pd
    import polars as pl

    from crowdrank import Ensemble, Ranker
    from crowdrank.rankers.lambdamart import LambdaMART
    from crowdrank.rankers.linear import GLS

    X, y, query = _training_data(20_000, FEATURES)
    names = [f"feature_{number}" for number in range(FEATURES)]
    frame = pd.DataFrame(X, columns=names)
    forest = LambdaMART(n_estimators=TREES, num_leaves=LEAVES).fit(frame, y, query=query)
    with tempfile.TemporaryDirectory() as folder:
        forest.save(folder)
        ranker: Any = Ranker.load(folder)
    ensemble = Ensemble.from_weights([ranker, GLS().fit(frame, y, query=query)], [1, 1])
    one = X[:DOCUMENTS].copy()
    ids = {"query": ["q"] * DOCUMENTS, "document": [f"d{number}" for number in range(DOCUMENTS)]}
    with_ids = pd.DataFrame(ids).join(frame.iloc[:DOCUMENTS])
    polars, codes, booster = pl.from_pandas(with_ids), np.zeros(DOCUMENTS, np.int64), ranker.booster_
    assert np.array_equal(ranker.predict(with_ids), booster.predict(one, raw_score=True))
    assert np.array_equal(ranker.predict(polars), ranker.predict(one))
    return _medians(
        {
            "lightgbm": lambda: booster.predict(one, num_threads=1),
            "lightgbm_default": lambda: booster.predict(one),
            "matrix": lambda: ranker.predict(one),
            "pandas": lambda: ranker.predict(with_ids),
            "polars": lambda: ranker.predict(polars),
            "ensemble": lambda: ensemble.predict(one, codes),
        }
    )


def predict() -> list[Result]:
    """Divide the median time to score 100 documents by that of LightGBM's `Booster.predict` on the same forest."""
    times = in_own_process(_scoring_times)
    # The faster of LightGBM's default and one thread.
    lightgbm = min(times["lightgbm"], times["lightgbm_default"])
    results = [
        at_most(
            f"scoring {DOCUMENTS} documents, CPU time, {kind}: crowdrank / LightGBM",
            times[kind] / lightgbm,
            goal,
            ms=times[kind],
        )
        for kind, goal in (("matrix", 1.5), ("pandas", 5.0), ("polars", 5.0))
    ]
    ratio = times["ensemble"] / lightgbm
    ensemble = Result("scoring, ensemble of the forest and a GLS over LightGBM", ratio, "none", True)
    ensemble.details = {"ms": float(f"{times['ensemble']:.4g}"), "lightgbm_ms": float(f"{lightgbm:.4g}")}
    return [*results, ensemble]


def _write_features(path: Path, rows: int) -> None:
    """Write random features in the format of the suffix."""
    import pandas as pd

    rng = np.random.default_rng(1)
    names = [f"f{number + 1}" for number in range(COLUMNS)]
    frame = pd.DataFrame(rng.normal(size=(rows, COLUMNS)).round(4), columns=names)
    frame.insert(0, "query", np.arange(rows) // PER_QUERY)
    frame.insert(1, "document", [f"document-{number}" for number in range(rows)])
    match path.suffix:
        case ".parquet":
            frame.to_parquet(path)
        case ".csv":
            frame.to_csv(path, index=False)
        case ".jsonl":
            frame.to_json(path, orient="records", lines=True)
        case ".letor":
            values = frame[names].to_numpy().tolist()
            with path.open("w") as stream:
                for number, row in enumerate(values):
                    cells = " ".join(f"{place}:{value}" for place, value in enumerate(row, 1))
                    stream.write(f"0 qid:{number // PER_QUERY} {cells} # docid = document-{number}\n")


def _rank_memory(folder: Path, path: Path) -> int:
    """Return the peak memory of a process that ranks a file."""
    from crowdrank.rankers.rank_files import FeatureBatches, rank_files
    from crowdrank.rankers.ranker import Ranker

    ranker = Ranker.load(folder / "model")
    rank_files(ranker, FeatureBatches([path], ranker.features_), path.with_suffix(".run.parquet"), check=True)
    return peak_bytes()


def _save_model(folder: Path) -> None:
    from crowdrank.rankers.ensemble import Ensemble
    from crowdrank.rankers.lambdamart import LambdaMART
    from crowdrank.rankers.linear import GLS

    X, y, query = _training_data(5000, COLUMNS)
    Ensemble([LambdaMART(n_estimators=20), GLS()]).fit(X, y, query=query).save(folder / "model")


def memory() -> list[Result]:
    """Divide the peak memory of ranking a file of 200,000 rows by that of 20,000 rows, for each format."""
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        in_own_process(_save_model, folder)
        for suffix in FORMATS:
            peaks = []
            for rows in (ROWS, 10 * ROWS):
                path = folder / f"features.{suffix}"
                in_own_process(_write_features, path, rows)
                peaks.append(in_own_process(_rank_memory, folder, path))
                path.unlink()
            megabytes = {f"mb_{rows}": peak / 1e6 for rows, peak in zip((ROWS, 10 * ROWS), peaks, strict=True)}
            ratio = peaks[1] / peaks[0]
            results.append(
                at_most(f"peak memory of `rank`, {suffix}: {10 * ROWS:,} rows / {ROWS:,}", ratio, 1.2, **megabytes)
            )
    return results
