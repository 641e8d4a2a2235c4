"""A policy that draws documents with known probabilities, for an estimate of which ranking is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats
from crowdrank.collection.policy import Policy, assign
from crowdrank.collection.pool import Pool
from crowdrank.collection.requests import Budget, PairStatus, PoolState, RankedRequests, Requests
from crowdrank.consensus.model import Aggregator
from crowdrank.constraints import Constraints, Number
from crowdrank.errors import Fix, Message, UsageError
from crowdrank.estimation.by_document import draw_sample, error_effects, inclusion_probabilities
from crowdrank.estimation.draw_pools import describe_draw, first_documents
from crowdrank.estimation.prepared import MEASURES_BY_UNIT
from crowdrank.evaluation.alignment import align
from crowdrank.evaluation.evaluate import as_gold, as_run
from crowdrank.evaluation.measures import Measure, parse_measure
from crowdrank.judgments.columns import find_probability_columns
from crowdrank.judgments.pair_index import PairIndex
from crowdrank.readers.sources import BadRows, FrameSource

REASON = "drawn to compare rankings"


class CompareRuns(Policy):
    """Draw documents that tell rankings apart, with known probabilities, for :func:`crowdrank.estimate`.

    A document is drawn with a probability proportional to its weight in the difference of the rankings, times the
    uncertainty of its label. Documents that were judged or requested before are not drawn again; a later call is a
    further draw, and `estimate` combines the draws (column `draw`). Let the assessors answer all requests of a draw.

    Args:
        runs: rankings by name, as in :func:`crowdrank.estimate`; without them, all documents are equally probable.
        labels: labels of the documents, as in :func:`crowdrank.estimate`; without them, labels are taken as equally
            uncertain.
        measure: the measure to compare the rankings by: DCG, nDCG or P.
        floor: share of the requests that is spread evenly over all documents, so that no probability is near 0.
        random_state: random seed.

    >>> import pandas as pd
    >>> pool = pd.DataFrame({"query": "q", "document": list("abcd")})
    >>> runs = {"old": pool.assign(score=[4, 3, 2, 1]), "new": pool.assign(score=[1, 3, 2, 4])}
    >>> requests = CompareRuns(runs, measure="DCG@3").next(pool, budget=2)
    >>> requests.frame[["document", "probability", "draw"]]
      document  probability  draw
    0        a     0.696575     1
    1        d     0.696575     1

    """

    other_pairs: ClassVar[PairStatus] = "not-drawn"
    _parameter_constraints: ClassVar[Constraints] = {"floor": [Number(0, 1, above=True)]}

    def __init__(
        self,
        runs: Mapping[str, Any] | None = None,
        labels: Any = None,
        *,
        measure: str = "nDCG@10",
        floor: float = 0.2,
        random_state: int | None = 0,
    ) -> None:
        self.runs = runs
        self.labels = labels
        self.measure = measure
        self.floor = floor
        self.random_state = random_state

    def rank_requests(self, state: PoolState, model: Aggregator | None) -> RankedRequests:
        """Return a request for each pair without label or request; `next` draws among them."""
        pair = np.flatnonzero(_is_open(state))
        return RankedRequests(pair, np.zeros(len(pair)), np.zeros(len(pair), np.int8), (REASON,))

    def _choose_requests(
        self, state: PoolState, model: Aggregator | None, budget: Budget, notes: list[Message]
    ) -> Requests:
        """Draw documents."""
        notes.extend(self._input_notes())
        wanted = self.rank_requests(state, None)
        n_before = len(state.pool) - len(wanted) - int(state.pool.is_honeypot.sum())
        rng = np.random.default_rng([self.random_state or 0, n_before])
        probability = np.zeros(len(state.pool))
        n_drawn = _affordable(budget, state.pool, len(wanted))
        probability[wanted.pair] = inclusion_probabilities(self._sizes(state.pool)[wanted.pair], n_drawn, self.floor)
        drawn = wanted.pair[draw_sample(probability[wanted.pair], rng)]
        ranked = RankedRequests(drawn, np.zeros(len(drawn)), np.zeros(len(drawn), np.int8), wanted.reasons)
        requests = assign(ranked, state, budget, self.random_state, notes=notes, other_pairs=self.other_pairs)
        if requests.unmet:
            problem = f"nobody can judge {counted(requests.unmet, 'drawn document')}, so the sample is not random"
            warning = Message(
                problem, "sample-incomplete", "warning", fixes=(Fix("add assessors with {}", "assessors"),)
            )
            requests = replace(requests, notes=(*requests.notes, warning))
        if not len(requests):
            return requests
        own = np.where(requests.is_honeypot, np.nan, probability[requests.pair])
        requests = replace(requests, probability=own, draw=n_before + 1)
        if self.runs is None:
            return requests
        drawable = pa.table({"query": state.pool.query, "document": state.pool.document})
        drawable = drawable.filter(pa.array(~state.pool.is_honeypot))
        text, messages = describe_draw(self.runs, checked_measure(self.measure), drawable)
        return replace(requests, drawn_for=text, notes=(*requests.notes, *messages))

    def _input_notes(self) -> list[Message]:
        """Return notes about runs and labels that make the sample less useful for a comparison."""
        notes = []
        if self.runs is not None and len(self.runs) == 1:
            problem = "there is one ranking, so that documents are drawn for its value, not for a difference"
            fix = Fix("give both rankings to compare them")
            notes.append(Message(problem, "one-ranking", "note", fixes=(fix,)))
        if self.runs is not None and self.labels is None:
            problem = "there are no labels, so that all documents count as equally uncertain"
            fix = Fix("give the labels of the estimate with {}, and it needs fewer grades", "labels")
            notes.append(Message(problem, "no-labels", "note", fixes=(fix,)))
        return notes

    def _sizes(self, pool: Pool) -> Floats:
        if self.runs is None:
            return np.ones(len(pool))
        measure = checked_measure(self.measure)
        gold = pa.table({"query": pool.query, "document": pool.document, **labels_of_pool(self.labels, pool)})
        runs = {name: as_run(run) for name, run in self.runs.items()}
        alignments = [
            align(run, gold, ties="expected", with_grades=False, run_name=f"run '{name}'") for name, run in runs.items()
        ]
        return error_effects(alignments, measure)


def checked_measure(measure: str | Measure) -> Measure:
    """Return a measure that can be estimated by document; raise UsageError for others."""
    parsed = parse_measure(measure)
    if parsed.name not in MEASURES_BY_UNIT["document"]:
        problem = f"must be one of {', '.join(MEASURES_BY_UNIT['document'])} to draw documents, not {parsed}"
        raise UsageError(problem, kind="measure-not-estimated", parameter="measure")
    return parsed


def pool_of_runs(runs: Mapping[str, Any], measure: str) -> Pool:
    """Return the documents that a measure counts: the first k of each run and those tied with them, or all."""
    cutoff = checked_measure(measure).cutoff
    return Pool.read(pa.concat_tables([first_documents(run, cutoff, name) for name, run in runs.items()]))


def _is_open(state: PoolState) -> Booleans:
    return np.asarray(state.open_pairs & (state.n_labels == 0))


def _affordable(budget: Budget, pool: Pool, n_wanted: int) -> int:
    """Return the number of labels that the budget buys at the highest price; raise UsageError if it is 0."""
    price = budget.price if pool.roster is None else float(pool.roster.price.max(initial=0.0))
    has_honeypots = bool(budget.honeypots) and bool(pool.is_honeypot.any())
    money = budget.money * (1 - budget.honeypots if has_honeypots else 1.0)
    number = n_wanted if price == 0 else min(n_wanted, int(money / price + 1e-9))
    if n_wanted and not number:
        problem = f"of {budget.money:g} buys no label: a label costs up to {price:g}"
        raise UsageError(problem, parameter="budget", kind="budget-too-small", fix="raise it")
    return number


def labels_of_pool(labels: Any, pool: Pool) -> dict[str, Floats]:
    """Return grades and probabilities of grades of the pairs; pairs without a label have the mean probabilities."""
    if labels is None:
        return {"grade": np.ones(len(pool))}
    source = FrameSource(as_gold(labels), "the labels")
    shares = find_probability_columns(source.names)
    table = source.read(["query", "document", "grade", *shares], BadRows())
    query, document = (table[name].combine_chunks() for name in ("query", "document"))
    row = PairIndex.from_ids(query, document).positions(pool.query, pool.document)
    columns = {"grade": np.where(row >= 0, np.asarray(table["grade"], dtype=np.float64)[row], 0.0)}
    for name in shares:
        share = np.asarray(table[name])
        columns[name] = np.where(row >= 0, share[row], share.mean())
    return columns
