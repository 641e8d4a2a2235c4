"""Time of choosing the next requests, relative to one pass of a model over the same judgments."""

from __future__ import annotations

import warnings

from benchmarks.data import random_labels
from benchmarks.measure import Result, at_most, best, in_own_process

PAIRS, LABELS, ASSESSORS, REQUESTS = 1_000_000, 5_000_000, 500, 1_000
RUNS = 3
POLICIES = ("if-good-3", "widest-interval", "entropy", "ndcg@10")


def _seconds() -> dict[str, dict[str, float]]:
    """Measure one pass of Dawid-Skene and of GDA, and the choice of requests by each policy with that model."""
    from crowdrank import GDA, DawidSkene, read_judgments
    from crowdrank.collection import get_policy
    from crowdrank.collection.pool import Pool, Roster
    from crowdrank.engine.passes import LocalEngine

    frame = random_labels(LABELS, items=PAIRS, assessors=ASSESSORS)
    frame["query"] = frame["task"] // 100
    judgments = read_judgments(frame)
    pool = Pool.of(judgments)
    pools = {"no roster": pool, f"{ASSESSORS} assessors": pool.with_roster(Roster.of(judgments.assessors))}
    seconds: dict[str, dict[str, float]] = {}
    for model in (DawidSkene(n_iter=2, tol=1e9), GDA(n_iter=2, tol=1e9)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(judgments)
        passes = LocalEngine().open(model, model._prepare(judgments), None)
        passes.accumulate(model.theta_)
        times = seconds.setdefault(type(model).__name__, {})
        # In turns, so that other load of the machine affects all measurements alike.
        for _ in range(RUNS):
            duration = best(lambda passes=passes, model=model: passes.accumulate(model.theta_), 1)  # type: ignore[misc]
            times["pass"] = min(times.get("pass", duration), duration)
            for name in POLICIES:
                policy = get_policy(name)
                for kind, open_ in pools.items():
                    duration = best(lambda p=policy, m=model, o=open_: p.next(o, judgments, m, REQUESTS), 1)  # type: ignore[misc]
                    times[f"{name}, {kind}"] = min(times.get(f"{name}, {kind}", duration), duration)
    return seconds


def next_requests() -> list[Result]:
    """Divide the time of choosing 1,000 requests by that of one pass (E-step, one thread)."""
    results = []
    for model, times in in_own_process(_seconds).items():
        for name, duration in times.items():
            if name != "pass":
                title = f"next {REQUESTS:,} requests of {PAIRS:,} pairs, {name} / a pass of {model}, {LABELS:,} labels"
                results.append(at_most(title, duration / times["pass"], 1, ours=duration, a_pass=times["pass"]))
    return results
