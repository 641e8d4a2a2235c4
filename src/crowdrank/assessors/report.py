"""The report on assessors: one row each, the most informative first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crowdrank._notebook import MAX_TABLE_ROWS, heading, html_table, panel
from crowdrank._text import counted
from crowdrank._typing import Floats
from crowdrank.assessors.flags import FLAGS, Evidence, flag, sentences
from crowdrank.assessors.honeypots import accuracy, honeypot_accuracy
from crowdrank.assessors.leave_one_out import States, crowd_curve, leave_one_out_consensus
from crowdrank.assessors.trend import (
    independence,
    joint_counts,
    measure_trend,
    measured_information,
    spread_of_information,
)
from crowdrank.consensus._base import Aggregator
from crowdrank.consensus._coerce import as_gold, as_judgments
from crowdrank.consensus.information import information
from crowdrank.consensus.result import Consensus
from crowdrank.errors import InputError, NotFittedError
from crowdrank.judgments import frames, ids
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.table import NO_HONEYPOT, Judgments

Columns = dict[str, Any]


@dataclass(frozen=True, eq=False)
class AssessorReport:
    """Per assessor: how much, how informative, how biased, how often right; a flag and the evidence for it.

    assessor, judgments
    informativeness: what an answer tells of the truth, in nats; info_0, info_1, ...: the part of each grade
    slope: how the expected answer rises with the crowd's: 1 like the crowd, 0 random, negative reversed
    rise, rise_lower, rise_upper: the same measured on the assessor's own judgments against the others', with its 95 %
        interval; no model smooths it, and flags rest on it
    bias: mean answer minus the crowd's on the same documents, in grades
    agreement: share of answers equal to the consensus grade
    honeypots, honeypots_right, honeypot_share, honeypot_lower, honeypot_upper: with Wilson's interval
    gold_judgments, gold_right, gold_accuracy, gold_lower, gold_upper: against expert grades, where there are any
    duration: the median, where there is one
    flag: careful, careless, random, reversed, few (too few judgments to say), or blank
    evidence: the numbers in a sentence
    """

    method: str
    table: pa.Table
    scale: Scale
    modeled: bool  # whether informativeness comes from the model, or else is measured on the judgments
    backend: str = "pandas"

    def __repr__(self) -> str:
        flags = ", ".join(f"{number} {name}" for name, number in self.flags.items() if name)
        return f"<AssessorReport by {self.method}: {counted(len(self.table), 'assessor')}; {flags or 'no flags'}>"

    def _repr_html_(self) -> str:
        shown = ["assessor", "judgments", "informativeness", "flag", "evidence"]
        rows = self.table.select(shown).slice(0, MAX_TABLE_ROWS).to_pylist()
        return panel(heading(repr(self).strip("<>")), html_table(rows, shown, len(self.table)))

    @cached_property
    def frame(self) -> Any:
        """The report as a DataFrame of the library that the judgments came in."""
        return frames.from_arrow(self.table, self.backend)

    @property
    def flags(self) -> dict[str, int]:
        """How many assessors have each flag."""
        found = Counter(self.table["flag"].to_pylist())
        return {name: found[name] for name in FLAGS if found[name]}


def assess(model: Aggregator, judgments: Any = None, gold: Any = None) -> AssessorReport:
    """Report on the assessors of judgments, by a fitted model.

    Args:
        model: any fitted model; one without states (votes, GLAD) has its assessors' informativeness measured on the
            judgments, against the votes of the others.
        judgments: `Judgments`, a path or a DataFrame; those of the fit unless given.
        gold: expert grades; those of the fit unless given.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=20, documents=10, assessors=8, spammers=0.25, random_state=3)
    >>> report = assess(crowdrank.GDA().fit(world.judgments))
    >>> world.assessors.query("kind.str.endswith('spammer')")["assessor"].tolist()
    ['worker-2', 'worker-6']
    >>> sorted(report.frame.loc[report.frame["flag"] == "random", "assessor"])
    ['worker-2', 'worker-6']
    """
    if not hasattr(model, "consensus_"):
        raise NotFittedError(f"This {type(model).__name__} is not fitted yet; call fit first.")
    given = model.judgments_ if judgments is None else as_judgments(judgments, model.judgments_)
    answers, states = given.on_main_scale(), _on_main_scale(given, _states_of(model, given))
    table = answers.with_unjudgeable(model.unjudgeable_as)
    if table.scale != model.consensus_.scale:
        raise InputError(f"the grades {table.scale} are not those fitted ({model.consensus_.scale})")
    if states is not None and len(table.assessors) < len(answers.assessors):
        states = states[0], states[1][ids.match(answers.assessors, table.assessors)]
    columns: Columns = {
        "assessor": table.assessors,
        "judgments": np.bincount(table.assessor, minlength=table.n_assessors),
        **_quality(table, states),
        "agreement": _agreement(table, model.consensus_),
        **_honeypot_columns(answers, table.assessors),
        **_gold_columns(table, model.gold_ if gold is None else as_gold(gold, given)),
        **({"duration": _medians(table)} if "duration" in table.extras else {}),
    }
    columns |= {name: columns.pop(name) for name in ("flag", "evidence")}  # the words stand last
    rows = pa.table({name: _arrow(column) for name, column in columns.items()})
    rows = rows.sort_by([("informativeness", "descending"), ("assessor", "ascending")])
    return AssessorReport(type(model).__name__, rows, table.scale, states is not None, table.backend)


def _arrow(column: Any) -> pa.Array:
    """The column with null for NaN."""
    return column if isinstance(column, pa.Array) else pa.array(column, from_pandas=True)


def _states_of(model: Aggregator, table: Judgments) -> States | None:
    """The model's states with a row per assessor of the table; one it has not met answers as the crowd does."""
    states = model._states(model.theta_)
    if states is None:
        return None
    prior, likelihood = states
    met = model.consensus_.assessor_table
    place = ids.match(met["assessor"].combine_chunks(), table.assessors)
    rows = likelihood[np.maximum(place, 0)]
    counts = met["judgments"].to_numpy()
    rows[place < 0] = np.tensordot(counts / counts.sum(), likelihood, axes=1)
    return prior, rows


def _on_main_scale(given: Judgments, states: States | None) -> States | None:
    """The answers of the states where `Judgments.on_main_scale` puts them."""
    if states is None or given.maps_to_one_scale:
        return states
    prior, likelihood = states
    widest, onto = len(given.main_scale), given.main_scale_codes
    moved = likelihood.copy()  # 'cannot judge' comes after the grades of all scales and stays there
    moved[:, :widest] = 0.0
    for number, own in enumerate(given.scales):
        of = np.flatnonzero(given.assessor_scale == number)
        moved[np.ix_(of, onto[number, : len(own)])] = likelihood[of, : len(own)]
    return prior, moved


def _quality(table: Judgments, states: States | None) -> Columns:
    """Informativeness, slope and bias, and what they say."""
    others = leave_one_out_consensus(table, states)
    trend, counts = measure_trend(table, others), joint_counts(table, others)
    total, parts, error = _measured(counts) if states is None else _modeled(table, states)
    evidence = Evidence(trend, independence(counts), total, error)
    lower, upper = evidence.rise_interval
    return {
        "informativeness": total,
        **{f"info_{int(value)}": parts[:, code] for code, value in enumerate(table.scale.values)},
        "slope": trend.rise if states is None else model_slopes(table, states),
        "rise": trend.rise,
        "rise_lower": lower,
        "rise_upper": upper,
        "bias": trend.bias,
        "flag": flag(evidence),
        "evidence": sentences(evidence),
    }


def _modeled(table: Judgments, states: States) -> tuple[Floats, Floats, Floats]:
    total, parts = information(*states)
    n = np.bincount(table.assessor, minlength=table.n_assessors)
    return total, parts, spread_of_information(states[1] * states[0]) / np.sqrt(n)


def _measured(counts: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
    total, parts = measured_information(counts)
    n = np.maximum(counts.sum(axis=(1, 2)), 1)
    used, met = (counts.sum(axis=2) > 0).sum(axis=1), (counts.sum(axis=1) > 0).sum(axis=1)
    # Counts of chance alone hold this much on average (Miller and Madow).
    by_chance = np.maximum(used - 1, 0) * np.maximum(met - 1, 0) / (2 * n)
    return np.maximum(total - by_chance, 0.0), parts, spread_of_information(counts / n[:, None, None]) / np.sqrt(n)


def model_slopes(table: Judgments, states: States) -> Floats:
    """How each assessor's expected answer rises with the crowd's over the states, by the model's curves.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> table = read_judgments(pd.DataFrame({"document": ["a", "a"], "assessor": ["x", "y"], "grade": [0, 1]}))
    >>> curves = np.stack([np.eye(2), np.full((2, 2), 0.5)])
    >>> model_slopes(table, (np.array([0.5, 0.5]), curves)).tolist()
    [2.0, 0.0]
    """
    prior, likelihood = states
    grades = np.arange(len(table.scale))
    counts = np.bincount(table.assessor, minlength=table.n_assessors)
    crowd = grades @ crowd_curve(likelihood, counts, len(grades))
    own = likelihood[:, : len(grades)]
    answers = np.einsum("g,ags->as", grades, own) / np.maximum(own.sum(axis=1), 1e-300)
    off = prior * (crowd - prior @ crowd / prior.sum())
    spread = float(off @ crowd)
    if spread < 1e-12:
        return np.zeros(len(likelihood))  # a crowd whose answers never change has no direction
    slopes: Floats = answers @ off / spread
    return slopes


def _agreement(table: Judgments, consensus: Consensus) -> Floats:
    """Share of each assessor's answers that equal the consensus grade; NaN where there is none."""
    documents = consensus.document_table
    place = table.positions(documents["query"].combine_chunks(), documents["document"].combine_chunks())
    codes = pc.index_in(documents["grade"].combine_chunks(), pa.array(consensus.labels)).to_numpy(zero_copy_only=False)
    of_item = np.full(table.n_items, NO_HONEYPOT, np.int8)
    of_item[place[place >= 0]] = codes[place >= 0]
    share: Floats = accuracy(table, np.repeat(of_item, np.diff(table.offsets)))["share"].astype(np.float64)
    return share


def _honeypot_columns(answers: Judgments, assessors: pa.Array) -> Columns:
    """Accuracy on honeypots as answered: 'cannot judge' is right where that is the right answer, and only there."""
    place = ids.match(answers.assessors, assessors)
    found = {name: column[place] for name, column in honeypot_accuracy(answers).items()}
    return _named("honeypot", found, ("honeypots", "honeypots_right"))


def _gold_columns(table: Judgments, gold: Gold | None) -> Columns:
    if gold is None:
        return {}
    codes = gold.codes_by_name(table)
    of_item = np.where(codes < 0, NO_HONEYPOT, codes).astype(np.int8)
    found = _named(
        "gold", accuracy(table, np.repeat(of_item, np.diff(table.offsets))), ("gold_judgments", "gold_right")
    )
    return {name.replace("gold_share", "gold_accuracy"): column for name, column in found.items()}


def _named(kind: str, found: Columns, counts: tuple[str, str]) -> Columns:
    asked, right = counts
    return {
        asked: found["asked"],
        right: found["right"],
        **{f"{kind}_{name}": found[name] for name in ("share", "lower", "upper")},
    }


def _medians(table: Judgments) -> Floats:
    """Each assessor's median duration; NaN where none is known."""
    duration = table.extras["duration"].astype(np.float64)
    known = np.isfinite(duration)
    who, values = table.assessor[known], duration[known]
    ordered = values[np.lexsort((values, who))]
    n = np.bincount(who, minlength=table.n_assessors)
    start = np.cumsum(n) - n
    middle = np.full(table.n_assessors, np.nan)
    there = n > 0
    low, high = start[there] + (n[there] - 1) // 2, start[there] + n[there] // 2
    middle[there] = (ordered[low] + ordered[high]) / 2
    return middle
