"""The first screen: is my ranker better, by how much, can I trust the labels, what next."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

import pandas as pd

from crowdrank._text import counted
from crowdrank.evaluation.significance import format_p
from crowdrank.pipeline.summary import CONTROLS
from crowdrank.reports.formatting import percent, plain_id, plain_ids, signed
from crowdrank.reports.report_data import ReportData

ALPHA = 0.05
POWER = 2.8
"""So many standard errors apart, a difference is found significant four times in five."""
NAMED = 5
VOTES = {"majority": "majority votes"}
"""What a baseline is called in large letters, where its name alone says too little."""
ALONE = "With one assessor nobody can be told apart"
BAD = ("random", "reversed")
ADVICE = {
    "careful": "pay",
    "": "keep",
    "lenient": "calibrate",
    "strict": "calibrate",
    "careless": "train",
    "random": "drop",
    "reversed": "check",
    "few": "wait",
}
"""Advice by flag of an assessor."""
MEANING = {
    "pay": "clearly more informative than most: give them more work",
    "keep": "nothing stands out",
    "calibrate": "grades lower (strict) or higher (lenient) on the same documents: show them where each grade begins",
    "train": "clearly less informative than most, but not random: show them examples",
    "drop": "answers do not depend on the documents: do not pay for more",
    "check": "low grades for good documents and high grades for bad ones: ask whether the scale was read upside down",
    "wait": "too few judgments to decide",
}
FEWEST = 20
"""Of fewer documents that experts graded nothing is said."""
CLEARLY = 0.02
"""Majority votes count as better from so much more kappa on."""
TRUST = ((0.8, "Yes", "good"), (0.6, "Mostly", "good"), (0.4, "With care", "open"), (-math.inf, "Hardly", "bad"))
"""Words for agreement beyond chance, after Landis and Koch (1977)."""


@dataclass(frozen=True)
class Answer:
    """One card of the first screen.

    Attributes:
        question: what a reader asks.
        short: the answer in a word or a number.
        against: what it is compared with, to be read in one go with `short`.
        tone: good, bad, open (not decided) or none.
        sentences: what it rests on.
        beside: what else to know at the first glance, in a line each.
        interval: lower, middle and upper of a difference to draw, or None.
        steps: what to do, in order.
        command: what to type after the last of them.

    """

    question: str
    short: str
    tone: str
    sentences: list[str]
    interval: tuple[float, float, float] | None = None
    steps: list[str] = field(default_factory=list)
    command: str = ""
    against: str = ""
    beside: list[str] = field(default_factory=list)


def answers(found: ReportData) -> list[Answer]:
    """Return the cards of the first screen; without rankers, those about labels."""
    rankers = [better(found), how_much(found)] if found.has_rankers else []
    return [*rankers, trust(found), what_next(found)]


def better(found: ReportData) -> Answer:
    """Whether the chosen ranker beats the baseline on queries that it never saw."""
    question = "Is my ranker better?"
    row = found.candidate(found.chosen)
    if not found.tested:
        return Answer(question, "Not tested", "none", ["No expert-graded query was there to test on."])
    if found.chosen == found.baseline:
        return Answer(question, "It is the baseline", "open", [f"The choice fell on {found.baseline} itself."])
    p, off, n = (row[f"{found.measure} p"], row[f"{found.measure} difference"], int(row["test_queries"]))
    on = f"on {counted(n, 'test query')} that played no part in the choice"
    by_luck, rival = f"p {format_p(p)}", VOTES.get(found.baseline, found.baseline)
    if p > ALPHA:
        told, tone = ("Not shown", f" against {rival}"), "open"
        said = f"Against {found.baseline} the difference is within chance ({by_luck}), {on}."
    elif off > 0:
        told, tone = ("Yes", f", over {rival}"), "good"
        said = f"It beats {found.baseline} beyond chance ({by_luck}), {on}."
    else:
        told, tone = ("No, it is worse", f" than {rival}"), "bad"
        said = f"It loses to {found.baseline} beyond chance ({by_luck}), {on}."
    chosen = f"Chosen: {found.chosen} ({row['about']})."
    lines, by_itself = _controls(found)
    return Answer(question, told[0], tone, [said, *by_itself, chosen], against=told[1], beside=lines)


def how_much(found: ReportData) -> Answer:
    """The difference to the baseline, its interval, and on how many queries."""
    question, measure = "By how much?", found.measure
    row = found.candidate(found.chosen)
    if not found.tested:
        return Answer(question, "Not known", "none", ["Expert grades of some queries would tell."])
    mean = row[f"{measure} mean"]
    if found.chosen == found.baseline:
        return Answer(question, f"{mean:.4f}", "open", [f"Its {measure} on the test queries."])
    off, lower, upper = (row[f"{measure} {name}"] for name in ("difference", "lower", "upper"))
    base = mean - off
    part = f"{signed(100 * off / base, 1)}%" if base > 0 else signed(off)
    tone = "good" if lower > 0 else "bad" if upper < 0 else "open"
    said = [
        f"{measure} is {mean:.4f}, that of {found.baseline} {base:.4f}: {signed(off)}, "
        f"95% interval {signed(lower)} to {signed(upper)}."
    ]
    contrast = found.rankers.contrast(found.chosen, found.baseline)
    if contrast is not None:
        better = counted(contrast.n_better, "test query")
        said.append(f"Better on {better}, worse on {contrast.n_worse}, equal on {contrast.n_equal}.")
    against = f" {'over' if off > 0 else 'against'} {found.baseline}"
    return Answer(question, part, tone, said, (lower, off, upper), against=against)


def _controls(found: ReportData) -> tuple[list[str], list[str]]:
    """Return a line for each simple candidate that the selected one is compared with, and their p-values."""
    lines, p_values = [], []
    for name in CONTROLS:
        contrast = found.rankers.contrast(found.chosen, name)
        if contrast is None or name == found.baseline:
            continue
        off, percent = contrast.difference, contrast.percent
        size = signed(off) if percent is None else f"{signed(percent, 1)}%"
        significance = "significant" if contrast.p <= ALPHA else "not significant"
        lines.append(f"{size} {'over' if off > 0 else 'against'} {name}: {significance}")
        p_values.append(f"{name} p {format_p(contrast.p)}")
    return lines, [f"Against simple candidates: {', '.join(p_values)}."] if lines else []


def trust(found: ReportData) -> Answer:
    """How far the consensus agrees with experts, how far assessors with each other, and who spoils it."""
    both, said = found.against_experts, []
    short, tone = "Not checked", "open"
    if len(both) >= FEWEST and found.result.same_scale:
        value, sentences = _like_experts(both)
        said += sentences
        short, tone = next(((word, tone) for least, word, tone in TRUST if value >= least), TRUST[-1][1:])
        if len(sentences) > 1 and tone == "good":
            short, tone = "With care", "open"
    elif len(both) >= FEWEST:
        value = float(both["relevance"].corr(both["expert"], method="spearman"))
        said.append(f"Relevance and the experts' grades correlate {value:.2f} (Spearman, {len(both):,} documents).")
        short, tone = next(((word, tone) for least, word, tone in TRUST if value >= least), TRUST[-1][1:])
    else:
        graded = "too few" if len(both) else "none"
        said.append(f"Experts graded {graded} of these documents, so that nothing can be said by them.")
        if found.models_assessors and not math.isnan(found.reliability):
            said.append(
                f"By the model's own account {percent(found.reliability)} of the spread in relevance is difference "
                "between documents, the rest is doubt."
            )
    if not math.isnan(found.alpha.value):
        said.append(
            f"Single answers agree {agreeing(found.alpha.value)} with each other (Krippendorff's alpha "
            f"{found.alpha.value:.2f})."
        )
    if found.result.expert_offset is not None:
        said.append(f"{found.result.expert_offset}.")
    return Answer("Can I trust the labels?", short, tone, [*said, _spoilt(found)])


def _like_experts(both: Any) -> tuple[float, list[str]]:
    """Weighted kappa of consensus and experts, and it in words; a second sentence where plain votes do better."""
    ours, theirs = both["consensus"].to_numpy(), both["expert"].to_numpy()
    value, against, more = weighted_kappa(ours, theirs), "", []
    if len(both):
        votes = both["majority"].to_numpy()
        against = f" (majority votes {percent(float((votes == theirs).mean()))})"
        if weighted_kappa(votes, theirs) > value + CLEARLY:
            more = [f"Majority votes agree better with the experts here, kappa {weighted_kappa(votes, theirs):.2f}."]
    equal, near = float((ours == theirs).mean()), float((abs(ours - theirs) <= 1).mean())
    told = (
        f"The consensus gives the experts' grade to {percent(equal)} of {len(both):,} documents{against}, and is at "
        f"most one grade off on {percent(near)}; weighted kappa {value:.2f}."
    )
    return (-1.0 if math.isnan(value) else value), [told, *more]


def agreeing(alpha: float) -> str:
    """A word for Krippendorff's alpha, by his own marks of 0.8 and 0.667.

    >>> agreeing(0.3), agreeing(0.7), agreeing(0.9)
    ('little', 'fairly', 'well')
    """
    return "well" if alpha >= 0.8 else "fairly" if alpha >= 0.667 else "little"


def weighted_kappa(first: Any, second: Any) -> float:
    """Cohen's kappa with quadratic weights: agreement of grades beyond chance, near misses counting in part.

    >>> import numpy as np
    >>> weighted_kappa(np.array([0.0, 1, 2]), np.array([0.0, 1, 2]))
    1.0
    """
    apart = float(((first - second) ** 2).mean())
    by_chance = float(first.var() + second.var() + (first.mean() - second.mean()) ** 2)
    return 1 - apart / by_chance if by_chance > 0 else float("nan")


def _spoilt(found: ReportData) -> str:
    table = found.assessors
    bad = table["flag"].isin(BAD)
    if len(table) == 1:
        return f"{ALONE}: have a second one judge some of the same documents."
    share = table.loc[bad, "judgments"].sum() / max(table["judgments"].sum(), 1)
    if not bad.any():
        return f"None of {counted(len(table), 'assessor')} answers at random or in reverse."
    return (
        f"{int(bad.sum()):,} of {counted(len(table), 'assessor')} answer at random or in reverse: "
        f"{percent(float(share))} of all judgments{', which the consensus allows for' * found.models_assessors}."
    )


def what_next(found: ReportData) -> Answer:
    """What would help most, in order."""
    steps = [
        *([f"Have a second assessor judge some of the same documents. {ALONE}."] if len(found.assessors) == 1 else []),
        *_stop_paying(found),
        *_ask_whether_turned(found),
        *_more_test_queries(found),
        *_label_next(found),
    ]
    if not found.has_rankers:
        return Answer("What next?", "", "none", [], None, [*steps, "Add features of the documents to train a ranker."])
    steps.append("Rank new documents:")
    command = f"crowdrank rank -m {quote(str(found.folder / 'model'))} -f new.letor -o run.trec"
    return Answer("What next?", "", "none", [], None, steps, command)


def _stop_paying(found: ReportData) -> list[str]:
    """Those who do not look: who they are, and what their answers count for."""
    bad = _flagged(found, "random")
    if not len(bad):
        return []
    weight = (
        f"for {found.weight_in_consensus(bad)} in the consensus"
        if found.models_assessors
        else "in full, as everybody's do"
    )
    cost = sum(found.paid.get(str(name), 0.0) for name in bad["assessor"])
    paid = f", and cost {cost:,.2f} of {sum(found.paid.values()):,.2f} ({found.unit('cost')})" if cost else ""
    return [
        f"Stop paying {counted(len(bad), 'assessor')} who answer{'s' * (len(bad) == 1)} at random: {_named(bad)}. "
        f"Their {_share_of_judgments(found, bad)} count {weight}{paid}."
    ]


def _ask_whether_turned(found: ReportData) -> list[str]:
    """Those who turn the scale round: who they are, and what their answers count for."""
    turned = _flagged(found, "reversed")
    if not len(turned):
        return []
    if not found.models_assessors:
        weight = "count in full, against the truth: leave them out (--exclude), or let --method gda weigh them"
    elif (turned["model_slope"] < 0).all():
        weight = f"are read the other way round by the consensus, and count for {found.weight_in_consensus(turned)}"
    else:
        weight = f"count for {found.weight_in_consensus(turned)} in the consensus"
    return [
        f"Ask {counted(len(turned), 'assessor')} whether they read the scale upside down (reversed): "
        f"{_named(turned)}. Their {_share_of_judgments(found, turned)} {weight}."
    ]


def _flagged(found: ReportData, flag: str) -> pd.DataFrame:
    """The assessors with a flag, the busiest first."""
    table = found.assessors
    return table[table["flag"] == flag].sort_values("judgments", ascending=False, kind="stable")


def _named(some: pd.DataFrame) -> str:
    more = f" and {len(some) - NAMED:,} more (listed below)" if len(some) > NAMED else ""
    return f"{', '.join(plain_ids(some['assessor'].head(NAMED), 24))}{more}"


def _share_of_judgments(found: ReportData, some: pd.DataFrame) -> str:
    n = int(some["judgments"].sum())
    return f"{counted(n, 'judgment')} ({percent(n / max(int(found.assessors['judgments'].sum()), 1))} of all)"


def _more_test_queries(found: ReportData) -> list[str]:
    if not found.has_rankers:
        return []
    if not found.tested:
        return ["Let experts grade 50 queries: a ranker can then be chosen by them, and tested."]
    row, measure = found.candidate(found.chosen), found.measure
    if found.chosen == found.baseline or not row[f"{measure} p"] > ALPHA:
        return []
    off, n = abs(row[f"{measure} difference"]), int(row["test_queries"])
    error = (row[f"{measure} upper"] - row[f"{measure} lower"]) / (2 * 1.96)
    if not error > 0:
        return []
    if off < 0.1 * error:
        return [f"Grade more queries by experts if a small difference matters: {n} test queries show none."]
    # Fewer than six queries show nothing, and what was within chance on n needs more than n.
    needed = max(math.ceil(n * (POWER * error / off) ** 2), n + 1, FEWEST)
    return [
        f"Grade more queries by experts: a difference like this shows on about {needed:,} test queries four times in "
        f"five; there were {n:,}."
    ]


def _label_next(found: ReportData) -> list[str]:
    if not len(found.next):
        return []
    first = found.next.head(3)
    names = [
        f"{plain_id(row['document'], 24)} of query {plain_id(row['query'], 24)}" for row in first.to_dict("records")
    ]
    return [f"Have the least certain documents judged again, first {'; '.join(names)} (the rest: next.csv)."]
