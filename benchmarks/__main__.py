"""Run all benchmarks, or those whose name contains one of the words: `python -m benchmarks [WORD ...]`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from benchmarks import (
    collection,
    consensus,
    encoding,
    features,
    first_use,
    latent,
    pipeline,
    preferences,
    rankers,
    report,
    scoring,
    service,
    soak,
    training,
)
from benchmarks.measure import Result
from benchmarks.stored_results import store

BENCHMARKS: dict[str, Callable[[], Result | list[Result]]] = {
    "dawid-skene-rf10": lambda: consensus.dawid_skene("RF10", 40),
    "dawid-skene-1m-numbers": lambda: consensus.dawid_skene("1M number ids", 40),
    "dawid-skene-1m-text": lambda: consensus.dawid_skene("1M text ids", 60),
    "first-use": first_use.aggregate,
    "kernel": consensus.kernel,
    "growth": consensus.growth,
    "threads": consensus.threads,
    "encoding": encoding.encoding,
    "memory": consensus.memory,
    "glad": consensus.glad,
    "gda-rf10": latent.gda_over_dawid_skene,
    "pairwise-rf10": latent.pairwise_over_gda,
    "feature-prior": features.feature_prior,
    "latent-growth": latent.growth,
    "latent-memory": latent.memory,
    "preferences": preferences.fits,
    "preferences-memory": preferences.memory,
    "preferences-bradley-terry": preferences.bradley_terry,
    "lambdamart-iteration": rankers.iterations,
    "lambdamart-threads": rankers.threads,
    "lambdamart-mq2008": rankers.mq2008,
    "scoring": scoring.predict,
    "scoring-memory": scoring.memory,
    "training": training.step,
    "collection": collection.next_requests,
    "remap-size": pipeline.remap_size,
    "remap-tenth": lambda: pipeline.remap_size(0.1),
    "run-over-script": pipeline.run_over_script,
    "report": report.report_size,
    "service-load": service.load,
    "service-kills": service.kills,
    "service-soak": soak.soak,
}
NEEDS_DATA = ("dawid-skene-rf10", "glad", "gda-rf10", "pairwise-rf10", "feature-prior", "lambdamart-mq2008")


def main() -> None:
    """Run benchmarks, print a line for each result and store it in benchmarks/results.json."""
    words = sys.argv[1:]
    for name, run in BENCHMARKS.items():
        if words and not any(word in name for word in words):
            continue
        if name in NEEDS_DATA and not os.environ.get("CROWDRANK_DATA"):
            print(f"skip {name}: CROWDRANK_DATA is not set")  # noqa: T201
            continue
        measured = run()
        results = measured if isinstance(measured, list) else [measured]
        for result in results:
            print(result.line(), flush=True)  # noqa: T201
        store(name, results)


if __name__ == "__main__":
    main()
