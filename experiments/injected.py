"""Inject assessors of known quality into a crowd, and check whether models recognize them (GDA, Table 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from crowdrank._typing import Grades, Integers
from crowdrank.consensus.model import Aggregator
from crowdrank.evaluation.evaluate import evaluate
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from crowdrank.readers.combine import combine
from crowdrank.readers.read import read_judgments
from experiments.base import UNJUDGED, Chosen, Fits, Row, Table, Tell, compared, fit_all, ranking, seeds_text

INJECTED = "(injected)"
"""Id of an injected assessor; a second one has a name before it."""


def inject_assessor(
    crowd: Judgments, query: pa.Array, document: pa.Array, codes: Grades | Integers, name: str = INJECTED
) -> Judgments:
    """Return the crowd with one more assessor who gave these grades; other columns of the crowd are dropped."""
    grades = np.array(crowd.scale.values, np.int64)[codes]
    rows = {"query": query, "document": document, "assessor": [name] * len(grades), "grade": grades}
    return combine(replace(crowd, extras={}), read_judgments(pa.table(rows), grades=str(crowd.scale)))


def with_random(crowd: Judgments, seed: int, name: str = INJECTED) -> Judgments:
    """Return the crowd with one more assessor who gives every document a uniformly random grade.

    >>> import pandas as pd
    >>> votes = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "x"], "grade": [0, 1]})
    >>> with_random(read_judgments(votes), seed=0)
    <Judgments: 4 judgments of 2 documents in 1 query by 2 assessors, grades 0,1>
    """
    query, document = crowd.queries.take(crowd.item_query), crowd.documents.take(crowd.item_document)
    codes = np.random.default_rng(seed).integers(0, len(crowd.scale), crowd.n_items)
    return inject_assessor(crowd, query, document, codes, name)


def informativeness(model: Aggregator) -> tuple[float, float]:
    """Return the informativeness of the injected assessor and the median of the others, in nats; NaN if unknown."""
    assessors = model.consensus_.assessors
    if "informativeness" not in assessors:
        return float("nan"), float("nan")
    is_injected, nats = assessors["assessor"] == INJECTED, assessors["informativeness"]
    injected_nats = float(nats[is_injected].sum()) if is_injected.any() else float("nan")
    return injected_nats, float(nats[~is_injected].median())


def injected_tables(
    chosen: Chosen,
    fits: Fits,
    crowd: Judgments,
    gold: Gold,
    measures: Sequence[str],
    *,
    baseline: str,
    seeds: Sequence[int],
    tell: Tell,
) -> tuple[Table, Table]:
    """Return tables with an expert and a random assessor injected together, and with one assessor at a time."""
    expert = inject_assessor(crowd, gold.query, gold.document, gold.code, f"expert {INJECTED}")
    both = with_random(expert, seeds[0], f"random {INJECTED}")
    together = compared(
        "injected-together",
        "An expert and a random assessor injected together",
        fit_all(chosen, both, on="the crowd with an expert and a random assessor", tell=tell),
        gold.frame,
        measures,
        baseline=baseline,
    )
    note = f"The expert gives the gold grades; the random assessor judges all documents ({seeds_text(seeds[:1])})."
    return replace(together, notes=(note, *together.notes)), _one_at_a_time(
        chosen, fits, crowd, gold, seeds=seeds, tell=tell
    )


def _one_at_a_time(
    chosen: Chosen, fits: Fits, crowd: Judgments, gold: Gold, *, seeds: Sequence[int], tell: Tell
) -> Table:
    """Return AP and informativeness with an expert, a random assessor and a reversed expert, one at a time."""
    highest = len(gold.scale) - 1
    kinds = {
        "expert": [inject_assessor(crowd, gold.query, gold.document, gold.code)],
        "random": [with_random(crowd, seed) for seed in seeds],
        "reversed": [inject_assessor(crowd, gold.query, gold.document, highest - gold.code)],
    }
    results = {
        kind: [_fit_injected(chosen, table, gold, kind, tell) for table in tables] for kind, tables in kinds.items()
    }
    return Table(
        "injected",
        "One assessor injected: AP, and that assessor's informativeness in nats",
        tuple(_row(run, model, gold, results) for run, model in fits.models.items()),
        (
            f"Injected, one at a time: the expert, with the gold grades of all {len(gold):,} gold documents; a random "
            f"assessor, uniform on the grades on all {crowd.n_items:,} documents (means over {seeds_text(seeds)}); "
            f"and a reversed expert, {highest} - gold on the gold documents.",
            "AP is against the same gold that was injected: it shows whether a method recognizes which assessor to "
            "trust or to reverse, not how good its consensus is otherwise.",
            "nats crowd is the median informativeness of the crowd's own assessors, with nobody injected; methods "
            "without informativeness have blanks.",
        ),
    )


InjectedResult = dict[str, tuple[float, float]]
"""AP and the informativeness of the injected assessor, by run."""


def _fit_injected(chosen: Chosen, crowd: Judgments, gold: Gold, kind: str, tell: Tell) -> InjectedResult:
    fits = fit_all(chosen, crowd, on=f"the crowd with one injected assessor ({kind})", tell=tell)
    return {run: (_average_precision(model, gold), informativeness(model)[0]) for run, model in fits.models.items()}


def _row(run: str, model: Aggregator, gold: Gold, results: dict[str, list[InjectedResult]]) -> Row:
    missing = (float("nan"), float("nan"))
    means = {
        kind: np.mean([one.get(run, missing) for one in draws], axis=0).tolist() for kind, draws in results.items()
    }
    return {
        "run": run,
        "AP crowd": _average_precision(model, gold),
        **{f"AP {kind}": ap for kind, (ap, _) in means.items()},
        "nats crowd": informativeness(model)[1],
        **{f"nats {kind}": nats for kind, (_, nats) in means.items()},
    }


def _average_precision(model: Aggregator, gold: Gold) -> float:
    return evaluate(ranking(model), gold.frame, "AP", unjudged=UNJUDGED).means["AP"]
