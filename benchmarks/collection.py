"""The next requests out of a million open pairs, over one pass of the consensus over the same judgments."""

from __future__ import annotations

import warnings

from benchmarks.data import drawn
from benchmarks.measure import Result, at_most, best, in_own_process

PAIRS, LABELS, ASSESSORS, REQUESTS = 1_000_000, 5_000_000, 500, 1_000
RUNS = 3
POLICIES = ("if-good-3", "widest-interval", "entropy", "ndcg@10")


def _seconds() -> dict[str, dict[str, float]]:
    """Seconds of one pass of Dawid-Skene and of GDA, and of the next requests by each policy that asks it."""
    from crowdrank import GDA, DawidSkene, read_judgments
    from crowdrank.collection import get_policy
    from crowdrank.collection.pool import Pool, Roster
    from crowdrank.engine.local import LocalEngine

    frame = drawn(LABELS, items=PAIRS, assessors=ASSESSORS)
    frame["query"] = frame["task"] // 100
    judgments = read_judgments(frame)
    pool = Pool.of(judgments)
    pools = {"anyone": pool, "roster": pool.with_roster(Roster.of(judgments.assessors))}
    seconds: dict[str, dict[str, float]] = {}
    for model in (DawidSkene(n_iter=2, tol=1e9), GDA(n_iter=2, tol=1e9)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(judgments)
        passes = LocalEngine().open(model, model.prepared(judgments), None)
        passes.accumulate(model.theta_)
        found = seconds.setdefault(type(model).__name__, {})
        # Turn by turn, so that a busy moment of the machine meets all alike.
        for _ in range(RUNS):
            took = best(lambda passes=passes, model=model: passes.accumulate(model.theta_), 1)  # type: ignore[misc]
            found["pass"] = min(found.get("pass", took), took)
            for name in POLICIES:
                policy = get_policy(name)
                for kind, open_ in pools.items():
                    took = best(lambda p=policy, m=model, o=open_: p.next(o, judgments, m, REQUESTS), 1)  # type: ignore[misc]
                    found[f"{name}, {kind}"] = min(found.get(f"{name}, {kind}", took), took)
    return seconds


def next_requests() -> list[Result]:
    """The next 1,000 requests over one pass (the E-step alone, one thread), for requests to anyone and to a roster."""
    results = []
    for model, found in in_own_process(_seconds).items():
        for name, took in found.items():
            if name != "pass":
                told = (
                    f"{REQUESTS:,} requests of {PAIRS:,} pairs, {name}, over one pass of {model} over {LABELS:,} labels"
                )
                results.append(at_most(told, took / found["pass"], 1, ours=took, a_pass=found["pass"]))
    return results
