"""Assessors of known worth put among a crowd, to see whether a method sees through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank.consensus._base import Aggregator
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.merge import combine
from crowdrank.judgments.read import read_judgments
from crowdrank.judgments.table import Judgments
from experiments.base import UNJUDGED, Chosen, Fits, Row, Table, Tell, fit_all, ranking, seeds_told

INJECTED = "(injected)"
"""So ends the id of an assessor who was put there."""


def injected(crowd: Judgments, query: pa.Array, document: pa.Array, code: NDArray[np.integer]) -> Judgments:
    """The crowd and one more assessor, who gave those grades; of the crowd only the grades are kept."""
    grades = np.array(crowd.scale.values, np.int64)[code]
    rows = {"query": query, "document": document, "assessor": [INJECTED] * len(grades), "grade": grades}
    one = read_judgments(pa.table(rows), grades=str(crowd.scale))
    return combine(replace(crowd, extras={}), one)


def with_random(crowd: Judgments, seed: int) -> Judgments:
    """The crowd and one who gives every document a grade at random, all grades alike.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [0, 1]})
    >>> with_random(read_judgments(votes), seed=0)
    <Judgments: 4 judgments of 2 documents in 1 query by 2 assessors, grades 0,1>
    """
    query, document = crowd.queries.take(crowd.item_query), crowd.documents.take(crowd.item_document)
    code = np.random.default_rng(seed).integers(0, len(crowd.scale), crowd.n_items)
    return injected(crowd, query, document, code)


def informativeness(model: Aggregator) -> tuple[float, float]:
    """Of the injected assessor, and the median of the others, in nats; NaN where there is none."""
    about = model.consensus_.assessors
    if "informativeness" not in about:
        return float("nan"), float("nan")
    ours = about["assessor"] == INJECTED
    nats = about["informativeness"]
    return float(nats[ours].sum()) if ours.any() else float("nan"), float(nats[~ours].median())


def injected_table(
    chosen: Chosen, fits: Fits, crowd: Judgments, gold: Gold, *, seeds: Sequence[int], tell: Tell
) -> Table:
    """What an expert, a random assessor and an expert read in reverse do to each method, one at a time."""
    highest = len(gold.scale) - 1
    kinds = {
        "expert": [injected(crowd, gold.query, gold.document, gold.code)],
        "random": [with_random(crowd, seed) for seed in seeds],
        "reversed": [injected(crowd, gold.query, gold.document, highest - gold.code)],
    }
    found = {kind: [_found(chosen, table, gold, kind, tell) for table in tables] for kind, tables in kinds.items()}
    rows = [_row(run, model, gold, found) for run, model in fits.models.items()]
    return Table(
        "injected",
        "One assessor injected: AP, and that assessor's informativeness in nats",
        tuple(rows),
        (
            f"Injected, one at a time: the expert, with the gold grades of all {len(gold):,} gold documents; a random "
            f"assessor, uniform on the grades on all {crowd.n_items:,} documents (means over {seeds_told(seeds)}); "
            f"and a reversed expert, {highest} - gold on the gold documents.",
            "AP is against the very gold that was injected: it says whether a method finds whom to trust or to read in "
            "reverse, not how good its consensus is otherwise.",
            "nats crowd is the median informativeness of the crowd's own assessors, with nobody injected; methods "
            "without an informativeness have blanks.",
        ),
    )


Found = dict[str, tuple[float, float]]
"""AP, and the nats of the injected assessor, of each run."""


def _found(chosen: Chosen, crowd: Judgments, gold: Gold, kind: str, tell: Tell) -> Found:
    fits = fit_all(chosen, crowd, on=f"the crowd and one injected ({kind})", tell=tell)
    return {run: (_ap(model, gold), informativeness(model)[0]) for run, model in fits.models.items()}


def _row(run: str, model: Aggregator, gold: Gold, found: dict[str, list[Found]]) -> Row:
    nothing = (float("nan"), float("nan"))
    means = {kind: np.mean([one.get(run, nothing) for one in ones], axis=0).tolist() for kind, ones in found.items()}
    return {
        "run": run,
        "AP crowd": _ap(model, gold),
        **{f"AP {kind}": ap for kind, (ap, _) in means.items()},
        "nats crowd": informativeness(model)[1],
        **{f"nats {kind}": nats for kind, (_, nats) in means.items()},
    }


def _ap(model: Aggregator, gold: Gold) -> float:
    return evaluate(ranking(model), gold.frame, "AP", unjudged=UNJUDGED).means["AP"]
