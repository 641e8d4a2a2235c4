"""`crowdrank demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from crowdrank.cli.options import AsJson
from crowdrank.cli.screen import complain, say, say_json


def demo(
    seed: Annotated[int, typer.Option(help="The same seed makes the same world.")] = 0,
    json: AsJson = False,
) -> None:
    """Simulate a crowd, aggregate its judgments with every method, and compare them with the experts."""
    from crowdrank.cli.compare import show_comparison
    from crowdrank.consensus import METHODS, model_class
    from crowdrank.evaluation.comparison import compare
    from crowdrank.judgments.read import read_judgments
    from crowdrank.simulation.world import simulate

    world = simulate(queries=200, seed=seed)
    judgments = read_judgments(world.judgments)
    if not json:
        say(f"A simulated crowd (seed {seed}): {repr(judgments).strip('<>').removeprefix('Judgments: ')}.")
        kinds = world.assessors["kind"].value_counts()
        say("Its assessors: " + ", ".join(f"{count} {kind}" for kind, count in kinds.items()) + ".")
    # The pairwise model takes longer than all others together, which is no way to be introduced; auto is one of them.
    methods = [method for method in METHODS if method not in ("gda-pairwise", "auto")]
    complain(f"Aggregating with {', '.join(methods)} (the first time, kernels are compiled: half a minute).")
    runs = {method: model_class(method)().fit(judgments).consensus_.documents for method in methods}
    comparison = compare(runs, world.gold, ["nDCG@10", "AP(rel=2)", "Tau", "GradeAccuracy"], gains="exponential")
    if json:
        say_json(comparison.to_dict())
        return
    show_comparison(comparison)
