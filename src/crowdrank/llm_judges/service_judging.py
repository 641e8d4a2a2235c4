"""Let LLM judges answer pairs of a judging service.

Each judge is an assessor of the service. It takes pairs, its endpoint is asked through the ledger as in `judge run`,
and its grades are sent to the service. A call without a grade puts the pair off, so that others get it first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crowdrank.errors import UsageError, shown
from crowdrank.judgments.scale import Scale
from crowdrank.judgments.texts import Texts
from crowdrank.llm_judges.caller import Clock
from crowdrank.llm_judges.judges import Judge
from crowdrank.llm_judges.judging_task import JudgingTask
from crowdrank.llm_judges.ledger import Ledger
from crowdrank.llm_judges.run import JudgingPlan, JudgingResult, run_judges
from crowdrank.llm_judges.service_client import Lease, ServiceClient

PAIRS_PER_CALLER = 4
"""Number of pairs that a judge takes at a time, for each call that it can have under way."""
MAX_PAIRS = 100
"""Maximum number of pairs that a judge takes at a time."""


@dataclass
class JudgeProgress:
    """What came of a judge's work.

    Attributes:
        answered: number of grades sent.
        put_off: ids of the pairs put off because a call gave no grade.
        status: why the judge got no more pairs, or was stopped.

    """

    answered: int = 0
    put_off: set[tuple[str, str]] = field(default_factory=set)
    status: str = ""


@dataclass(eq=False)
class ServiceJudging:
    """Judges at work in a project.

    Attributes:
        judges: the judges.
        clients: client of the service for each judge, by name.
        scale: scale of the project.
        ledger: where outcomes are stored.
        budget: maximum money for all calls of the ledger, or None without a limit.
        retry: statuses of calls in the ledger that are asked again.
        clock: time and waiting.
        progress: what came of the work of each judge, by name.
        stopped: judges that were stopped, with the reason.

    """

    judges: Sequence[Judge]
    clients: Mapping[str, ServiceClient]
    scale: Scale
    ledger: Ledger
    budget: float | None = None
    retry: Sequence[str] = ()
    clock: Clock = field(default_factory=Clock)
    progress: dict[str, JudgeProgress] = field(init=False)
    stopped: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.progress = {judge.name: JudgeProgress() for judge in self.judges}
        for judge in self.judges:
            if judge.scale(self.scale).names != self.scale.names:
                problem = (
                    f"The judge {shown(judge.name)} has the grades {judge.scale(self.scale)}, and the project has "
                    f"{self.scale}"
                )
                fix = "leave grades out of the file of judges, and use a prompt that is not binary"
                raise UsageError(problem, kind="other-scale", fix=fix)

    def work(self) -> Iterator[int]:
        """Judge until no judge gets a pair; yield the number of grades sent after each round."""
        idle = set(self.stopped)
        while working := [judge for judge in self.judges if judge.name not in idle]:
            held = {judge.name: self._take(judge) for judge in working}
            idle |= {name for name, leases in held.items() if not leases}
            if any(held.values()):
                yield self._judge(held)
                idle |= set(self.stopped)

    def _take(self, judge: Judge) -> list[Lease]:
        """Return new pairs of a judge; pairs that were put off in this run are given back."""
        progress, client = self.progress[judge.name], self.clients[judge.name]
        leases, progress.status = client.next(min(PAIRS_PER_CALLER * judge.concurrency, MAX_PAIRS))
        again = [lease for lease in leases if (lease.query, lease.document) in progress.put_off]
        client.give_back(again)
        return [lease for lease in leases if lease not in again]

    def _judge(self, held: Mapping[str, Sequence[Lease]]) -> int:
        """Ask the judges about the pairs that they hold, and send their answers; return the number of grades."""
        judges = {judge.name: judge for judge in self.judges}
        asked = [(judges[name], lease) for name, leases in held.items() for lease in leases if _document(lease.content)]
        task = JudgingTask(
            [(lease.query, lease.document) for _, lease in asked],
            [judge for judge, _ in asked],
            _texts([lease for _, lease in asked]),
            self.scale,
        )
        try:
            plan = JudgingPlan.of(task, self.ledger.statuses(), self.retry)
            result = run_judges(plan, self.ledger, self.budget, clock=self.clock)
        except BaseException:
            for name, leases in held.items():
                self.clients[name].give_back(leases)
            raise
        return self._send_answers(held, result)

    def _send_answers(self, held: Mapping[str, Sequence[Lease]], result: JudgingResult) -> int:
        """Send grades; put off pairs whose calls gave none, and give back those of judges that were stopped."""
        self.stopped.update(result.stopped)
        labels = {(row["assessor"], row["query"], row["document"]): row for row in result.labels.labels.to_pylist()}
        n_sent = 0
        for name, leases in held.items():
            progress, client = self.progress[name], self.clients[name]
            found = [(lease, labels.get((name, lease.query, lease.document))) for lease in leases]
            graded = [_answer(lease, row, self.scale) for lease, row in found if row is not None]
            missing = [lease for lease, row in found if row is None]
            client.answer(graded)
            if name in result.stopped:
                progress.status = result.stopped[name]
                client.give_back(missing)
            else:
                client.answer([{"client_id": lease.token, "lease": lease.token, "kind": "later"} for lease in missing])
                progress.put_off.update((lease.query, lease.document) for lease in missing)
            progress.answered += len(graded)
            n_sent += len(graded)
        return n_sent


def _answer(lease: Lease, row: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """Return the answer to a pair from a row of labels."""
    answer = {"client_id": lease.token, "lease": lease.token, "grade": row["label"]}
    probabilities = [row.get(name) for name in scale.share_names]
    return (
        answer
        | ({} if row["seconds"] is None else {"active_ms": round(1000 * row["seconds"])})
        | ({} if None in probabilities else {"probabilities": probabilities})
    )


def _texts(leases: Sequence[Lease]) -> Texts:
    """Return the texts of pairs; a query without a text has its id."""
    return Texts(
        {lease.query: lease.content["query_text"] or lease.query for lease in leases},
        {lease.query: lease.content["need"] for lease in leases},
        {(lease.query, lease.document): _document(lease.content) for lease in leases},
    )


def _document(content: Mapping[str, Any]) -> dict[str, str]:
    """Return title and text of a document; its further fields are lines of the text."""
    fields = [f"{name}: {value}" for name, value in content["fields"].items() if str(value).strip()]
    text = "\n\n".join(part for part in (content["body"], "\n".join(fields)) if part)
    return {name: value for name, value in (("title", content["title"]), ("text", text)) if value.strip()}
