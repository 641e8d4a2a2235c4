"""Plan the calls of LLM judges, make those without a reply in the ledger, and collect the labels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._progress import Report
from crowdrank._typing import Floats
from crowdrank.collection.pool import Pool, Roster
from crowdrank.errors import Fix, UsageError, shown
from crowdrank.judgments.scale import Scale
from crowdrank.llm_judges.caller import Caller, Clock, classify_response
from crowdrank.llm_judges.judge_labels import JudgedCall, JudgeLabels
from crowdrank.llm_judges.judges import Judge, select_judges
from crowdrank.llm_judges.judging_task import Call, JudgingTask, estimate_tokens, max_input_tokens, read_pair_texts
from crowdrank.llm_judges.ledger import PENDING, CallRecord, Ledger
from crowdrank.llm_judges.replies import FAILED, Reply

RETRYABLE_STATUSES = ("failed", "unreadable", "refused")
"""Statuses of calls that can be made again on request."""
MAX_PRICE_SAMPLE_PAIRS = 200
"""Maximum number of pairs of a pool from which the mean price of a label is estimated."""


@dataclass
class JudgeEstimate:
    """Number of calls of a judge that a plan makes, and their estimated cost.

    Attributes:
        judge: name of the judge.
        pairs: number of pairs to judge.
        calls: number of calls to make.
        answered: number of calls that are not made because the ledger has their outcome.
        input_tokens: estimated tokens of the requests, by the rule of `estimate_tokens`.
        output_tokens: largest possible number of tokens of the replies.
        cost: cost of these tokens.
        max_cost: upper bound of the cost.

    """

    judge: str
    pairs: int = 0
    calls: int = 0
    answered: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    max_cost: float = 0.0

    def add_call(self, judge: Judge, body: Mapping[str, Any]) -> None:
        """Add the tokens and costs of a call to make."""
        tokens, replies = estimate_tokens(body), judge.max_tokens
        self.calls += 1
        self.input_tokens += tokens
        self.output_tokens += replies
        if judge.prices is not None:
            self.cost += judge.prices.cost(tokens, replies)
            self.max_cost += judge.prices.cost(max_input_tokens(body), replies)


@dataclass(frozen=True)
class JudgingPlan:
    """Calls of a judging task, and which of them are to be made.

    Attributes:
        task: the task.
        keys: ledger key of each call of the task, in order.
        calls_to_make: (ledger key, call); of calls with equal requests, only the first.
        estimates: estimated costs of the calls to make, one per judge.

    """

    task: JudgingTask
    keys: Sequence[str]
    calls_to_make: Sequence[tuple[str, Call]]
    estimates: Sequence[JudgeEstimate]

    @classmethod
    def for_task(cls, task: JudgingTask, statuses: Mapping[str, str], retry: Collection[str] = ()) -> JudgingPlan:
        """Return the plan for a task.

        Args:
            task: the task.
            statuses: status of the calls in the ledger by key.
            retry: those of `RETRYABLE_STATUSES` whose calls are made again.

        """
        keys, calls_to_make = [], dict[str, Call]()
        estimates = {judge.name: JudgeEstimate(judge.name) for judge in task.judge_of_pair}
        for call in task.calls():
            body = task.request_body(call)
            key = task.ledger_key(call, body)
            estimate = estimates[call.judge.name]
            estimate.pairs += call.sample == 0
            keys.append(key)
            if key in calls_to_make:
                continue
            if statuses.get(key, PENDING) in (PENDING, *retry):
                calls_to_make[key] = call
                estimate.add_call(call.judge, body)
            else:
                estimate.answered += 1
        return cls(task, keys, list(calls_to_make.items()), list(estimates.values()))


@dataclass(frozen=True, eq=False)
class JudgingResult:
    """Labels of LLM judges, and the costs of their calls.

    Attributes:
        labels: labels and failures of all calls of the task that ended, in this run or an earlier one.
        not_asked: number of calls of the task without an outcome in the ledger.
        stopped: why a judge was stopped, by name of the judge.
        charged: cost of all calls in the ledger.
        uncertain: part of `charged` for attempts whose outcome is unknown.

    """

    labels: JudgeLabels
    not_asked: int
    stopped: Mapping[str, str]
    charged: float
    uncertain: float


def check_budget(judges: Sequence[Judge], budget: float | None) -> None:
    """Raise UsageError if a judge has prices and there is no budget, or a budget and no judge has prices."""
    priced = [judge.name for judge in judges if judge.prices is not None]
    if priced and budget is None:
        problem = f"the judge {shown(priced[0])} has prices, but there is no budget"
        raise UsageError(problem, kind="no-budget", fix=Fix("set the maximum cost with {}", "budget", 5))
    if budget is not None and not priced:
        fix = "write prices = { input = 0.15, output = 0.6 } for each judge that costs money, or leave the budget out"
        raise UsageError("is given, but no judge has prices", parameter="budget", kind="no-prices", fix=fix)


def run_judges(
    plan: JudgingPlan,
    ledger: Ledger,
    budget: float | None = None,
    *,
    clock: Clock | None = None,
    report: Report | None = None,
) -> JudgingResult:
    """Make the calls of a plan and return the labels of all calls of its task.

    Args:
        plan: the plan, made with the statuses of the ledger.
        ledger: store of the outcomes and costs.
        budget: maximum total cost of all calls in the ledger, or None without a limit.
        clock: clock of the calls; tests pass one that does not wait.
        report: progress callback.

    """
    caller = Caller(plan.task, ledger, budget, clock or Clock(), report=report)
    stopped = caller.make_calls(plan.calls_to_make) if plan.calls_to_make else {}
    return collect_labels(plan, ledger, stopped)


def collect_labels(plan: JudgingPlan, ledger: Ledger, stopped: Mapping[str, str] | None = None) -> JudgingResult:
    """Return the labels of all calls of a plan that have an outcome in the ledger."""
    judged = list(_judged_calls(plan, ledger))
    labels = JudgeLabels.from_calls(judged)
    not_asked = len(plan.keys) - len(judged)
    return JudgingResult(labels, not_asked, dict(stopped or {}), ledger.charged, ledger.uncertain)


def _judged_calls(plan: JudgingPlan, ledger: Ledger) -> Iterator[JudgedCall]:
    """Yield the calls of a plan that ended; of calls with equal requests, the first one has the cost."""
    seen: set[str] = set()
    for key, call in zip(plan.keys, plan.task.calls(), strict=True):
        record = ledger.find_call(key)
        if record is None or record.status == PENDING:
            continue
        judge, scale = call.judge, call.judge.scale(plan.task.scale)
        yield JudgedCall(
            call.query,
            call.document,
            judge.name,
            call.sample,
            judge.family,
            judge.model,
            judge.prompt.digest,
            scale,
            _read_stored_reply(record, scale),
            None if judge.prices is None else 0.0 if key in seen else record.charged,
            record.seconds,
            record.time,
            call.right,
        )
        seen.add(key)


def _read_stored_reply(record: CallRecord, scale: Scale) -> Reply:
    """Return the reply of a call that ended, parsed again from the stored response."""
    if record.status == FAILED:
        return Reply(FAILED, problem=record.problem, text=record.reply)
    answer = classify_response(200, {}, record.reply, scale).answer
    return answer if answer.status == record.status else Reply(record.status, problem=record.problem, text=record.reply)


def default_ledger_path(labels_path: Path) -> Path:
    """Return the default path of a ledger, in the folder of the file of labels.

    >>> default_ledger_path(Path("labels.csv")).name
    'labels.ledger.sqlite'
    """
    return labels_path.with_name(f"{labels_path.name.removesuffix('.gz').rpartition('.')[0]}.ledger.sqlite")


def judge_roster(
    judges: Sequence[Judge], pool: Pool, texts: Sequence[Path], scale: Scale, price: float | None = None
) -> Roster:
    """Return a roster, the table of assessors and their prices per label, of LLM judges.

    Args:
        judges: the judges; those whose prompt compares two documents are left out.
        pool: pairs that may be judged.
        texts: files with the texts of queries and documents, from which the price of judges with prices is estimated.
        scale: scale of the project; a judge can have another one.
        price: price of a label of every judge; by default that of its calls, which is 0 without prices.

    Raises:
        UsageError: a judge has prices, and neither texts nor a price of its labels are given.
        InputError: a text cannot be read or is missing.

    """
    judges = select_judges(judges, compares=False)
    names = pa.array([judge.name for judge in judges])
    if price is not None:
        return Roster.of(names, "llm", price)
    priced = [judge for judge in judges if judge.prices is not None]
    if priced and not texts:
        problem = f"has the judge {shown(priced[0].name)} with prices per token, and the price of a label is not known"
        by_price = Fix("give the price of a label with {}", "prices", "llm=0.001")
        fixes = [Fix("give the texts with {}", "texts"), by_price]
        raise UsageError(problem, parameter="judges", kind="no-texts", fix=fixes)
    roster = Roster.of(names, "llm", 0.0)
    return Roster(names, roster.kind, _estimate_label_prices(judges, pool, texts, scale)) if priced else roster


def _estimate_label_prices(judges: Sequence[Judge], pool: Pool, texts: Sequence[Path], scale: Scale) -> Floats:
    """Return the estimated cost of a label of each judge: the mean over evenly spaced pairs of the pool."""
    rows = np.unique(np.linspace(0, len(pool) - 1, min(len(pool), MAX_PRICE_SAMPLE_PAIRS)).round().astype(np.int64))
    columns = (column.take(pa.array(rows)).to_pylist() for column in (pool.query, pool.document))
    pairs = [(str(query), str(document)) for query, document in zip(*columns, strict=True)]
    found = read_pair_texts(pairs, texts, ids_as_queries=True)
    plans = [JudgingPlan.for_task(JudgingTask(pairs, [judge] * len(pairs), found, scale), {}) for judge in judges]
    return np.array([plan.estimates[0].cost / len(pairs) for plan in plans])
