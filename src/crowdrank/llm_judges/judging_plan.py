"""Let judges answer requests: plan the calls, ask those that the ledger lacks, and collect the labels."""

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
from crowdrank.llm_judges.caller import Caller, Clock
from crowdrank.llm_judges.endpoint import classify
from crowdrank.llm_judges.judge_labels import JudgedCall, JudgeLabels
from crowdrank.llm_judges.judges import Judge
from crowdrank.llm_judges.judging_task import Call, JudgingTask, estimate_tokens, max_input_tokens, read_pair_texts
from crowdrank.llm_judges.ledger import PENDING, CallRecord, Ledger
from crowdrank.llm_judges.replies import FAILED, Reply

RETRIED_STATUSES = ("failed", "unreadable", "refused")
"""Statuses of calls that can be asked again."""
MAX_PRICED_PAIRS = 200
"""Maximum number of pairs of a pool whose requests are estimated for the price of a label."""


@dataclass
class JudgeEstimate:
    """Calls of a judge that would be asked, and what they may cost.

    Attributes:
        judge: name of the judge.
        pairs: number of pairs to judge.
        calls: number of calls that would be asked.
        answered: number of calls that the ledger answers.
        input_tokens: estimated tokens of the requests, by the rule of `estimate_tokens`.
        output_tokens: largest possible number of tokens of the replies.
        cost: cost of these tokens.
        max_cost: largest possible cost.

    """

    judge: str
    pairs: int = 0
    calls: int = 0
    answered: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    max_cost: float = 0.0

    def add(self, judge: Judge, body: Mapping[str, Any]) -> None:
        """Add a call that would be asked."""
        tokens, replies = estimate_tokens(body), judge.max_tokens
        self.calls += 1
        self.input_tokens += tokens
        self.output_tokens += replies
        if judge.prices is not None:
            self.cost += judge.prices.cost(tokens, replies)
            self.max_cost += judge.prices.cost(max_input_tokens(body), replies)


@dataclass(frozen=True)
class JudgingPlan:
    """Calls of a task, by their keys in the ledger.

    Attributes:
        task: the task.
        keys: key of each call of the task, in order.
        wanted: keys and calls to be asked; calls with equal requests are asked once.
        estimates: what the wanted calls may cost, by judge.

    """

    task: JudgingTask
    keys: Sequence[str]
    wanted: Sequence[tuple[str, Call]]
    estimates: Sequence[JudgeEstimate]

    @classmethod
    def of(cls, task: JudgingTask, statuses: Mapping[str, str], retry: Collection[str] = ()) -> JudgingPlan:
        """Return the plan for a task.

        Args:
            task: the task.
            statuses: status of the calls in the ledger by key.
            retry: statuses of calls that are asked again, of `RETRIED_STATUSES`.

        """
        keys, wanted = [], dict[str, Call]()
        estimates = {judge.name: JudgeEstimate(judge.name) for judge in task.judge_of_pair}
        for call in task.calls():
            body = task.body(call)
            key = task.key(call, body)
            estimate = estimates[call.judge.name]
            estimate.pairs += call.sample == 0
            keys.append(key)
            if key in wanted:
                continue
            if statuses.get(key, PENDING) in (PENDING, *retry):
                wanted[key] = call
                estimate.add(call.judge, body)
            else:
                estimate.answered += 1
        return cls(task, keys, list(wanted.items()), list(estimates.values()))


@dataclass(frozen=True, eq=False)
class JudgingResult:
    """Labels of a run of judges, and what it cost.

    Attributes:
        labels: labels and failures of all calls of the task that ended, in this run or an earlier one.
        not_asked: number of calls of the task without an outcome.
        stopped: judges that were stopped, with the reason.
        charged: money for all calls of the ledger.
        uncertain: part of it for attempts whose outcome is unknown.

    """

    labels: JudgeLabels
    not_asked: int
    stopped: Mapping[str, str]
    charged: float
    uncertain: float


def check_budget(judges: Sequence[Judge], budget: float | None) -> None:
    """Raise UsageError if judges have prices and there is no budget, or a budget and no prices."""
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
    """Ask the wanted calls of a plan and return the labels of all calls of its task.

    Args:
        plan: the plan, made with the statuses of the ledger.
        ledger: where outcomes are stored.
        budget: maximum money for all calls of the ledger, or None without a limit.
        clock: time and waiting.
        report: progress callback.

    """
    caller = Caller(plan.task, ledger, budget, clock or Clock(), report=report)
    stopped = caller.ask(plan.wanted) if plan.wanted else {}
    return collect_labels(plan, ledger, stopped)


def collect_labels(plan: JudgingPlan, ledger: Ledger, stopped: Mapping[str, str] | None = None) -> JudgingResult:
    """Return the labels of all calls of a plan that the ledger answers."""
    judged = list(_judged_calls(plan, ledger))
    labels = JudgeLabels.of(judged)
    not_asked = len(plan.keys) - len(judged)
    return JudgingResult(labels, not_asked, dict(stopped or {}), ledger.charged, ledger.uncertain)


def _judged_calls(plan: JudgingPlan, ledger: Ledger) -> Iterator[JudgedCall]:
    """Yield the calls of a plan that ended; what equal calls cost is counted for the first of them."""
    seen: set[str] = set()
    for key, call in zip(plan.keys, plan.task.calls(), strict=True):
        record = ledger.find(key)
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
            _stored_answer(record, scale),
            None if judge.prices is None else 0.0 if key in seen else record.charged,
            record.seconds,
            record.time,
        )
        seen.add(key)


def _stored_answer(record: CallRecord, scale: Scale) -> Reply:
    """Return the answer of a call that ended, with the probabilities and the text in its reply."""
    if record.status == FAILED:
        return Reply(FAILED, problem=record.problem, text=record.reply)
    answer = classify(200, {}, record.reply, scale).answer
    return answer if answer.status == record.status else Reply(record.status, problem=record.problem, text=record.reply)


def default_ledger_path(labels_path: Path) -> Path:
    """Return the path of the ledger beside a file of labels.

    >>> default_ledger_path(Path("labels.csv")).name
    'labels.ledger.sqlite'
    """
    return labels_path.with_name(f"{labels_path.name.removesuffix('.gz').rpartition('.')[0]}.ledger.sqlite")


def judge_roster(
    judges: Sequence[Judge], pool: Pool, texts: Sequence[Path], scale: Scale, price: float | None = None
) -> Roster:
    """Return LLM judges as a roster with the expected price of a label.

    Args:
        judges: the judges.
        pool: pairs that may be judged.
        texts: files with the texts of queries and documents, from which the price of judges with prices is estimated.
        scale: scale of the project; a judge can have another one.
        price: price of a label of every judge; by default that of its calls, which is 0 without prices.

    Raises:
        UsageError: a judge has prices, and neither texts nor a price of its labels are given.
        InputError: a text cannot be read or is missing.

    """
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
    return Roster(names, roster.kind, _label_prices(judges, pool, texts, scale)) if priced else roster


def _label_prices(judges: Sequence[Judge], pool: Pool, texts: Sequence[Path], scale: Scale) -> Floats:
    """Return the mean estimated cost of the calls of each judge for a pair, over an even sample of the pool."""
    rows = np.unique(np.linspace(0, len(pool) - 1, min(len(pool), MAX_PRICED_PAIRS)).round().astype(np.int64))
    columns = (column.take(pa.array(rows)).to_pylist() for column in (pool.query, pool.document))
    pairs = [(str(query), str(document)) for query, document in zip(*columns, strict=True)]
    found = read_pair_texts(pairs, texts, ids_as_queries=True)
    plans = [JudgingPlan.of(JudgingTask(pairs, [judge] * len(pairs), found, scale), {}) for judge in judges]
    return np.array([plan.estimates[0].cost / len(pairs) for plan in plans])
