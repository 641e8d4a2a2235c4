"""Let LLM judges judge pairs of a judging service, through its API.

Each judge is an assessor of the service. It leases pairs, its endpoint is called as in `judge run`, with a ledger, and
its grades are sent to the service. A pair without a grade gets the answer "later", so that others get it first. A
comparison of two documents is asked in both orders; both preferences are one answer, so that both or none are sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlsplit

from crowdrank.errors import JudgeError, UsageError, shown
from crowdrank.judgments.scale import Scale
from crowdrank.llm_judges.caller import Clock, require_httpx2
from crowdrank.llm_judges.judges import Judge, select_judges
from crowdrank.llm_judges.judging_plan import JudgingPlan, JudgingResult, run_judges
from crowdrank.llm_judges.judging_task import JudgingTask
from crowdrank.llm_judges.ledger import Ledger
from crowdrank.llm_judges.replies import PREFERENCE_NAMES
from crowdrank.readers.texts import Texts

if TYPE_CHECKING:
    import httpx2

TIMEOUT_SECONDS = 60.0
"""Maximum number of seconds to wait for a response of the service."""
MAX_ATTEMPTS = 4
"""Maximum number of attempts per request; a repeated request changes nothing."""
FIRST_RETRY_SECONDS = 1.0
"""Seconds before the second attempt; the n-th repetition waits n times as long."""
PAIRS_PER_CONCURRENT_CALL = 4
"""Number of pairs that a judge leases at a time, per concurrent call of the judge."""
MAX_LEASED_PAIRS = 100
"""Maximum number of pairs that a judge leases at a time."""


@dataclass(frozen=True)
class LeasedPair:
    """Pair that the service reserves for a judge.

    Attributes:
        token: token of the lease, sent back with the answer.
        query, document, other: ids of the pair; of a comparison, `document` is on the left and `other` on the right.
        content: texts of the pair, as the service sends them.

    """

    token: str
    query: str
    document: str
    content: Mapping[str, Any]
    other: str = ""

    @classmethod
    def from_json(cls, lease: Mapping[str, Any]) -> LeasedPair:
        """Return a leased pair from its JSON object in the API."""
        content = lease["content"]
        other = (content.get("other") or {}).get("document", "")
        return cls(lease["token"], content["query"], content["document"], content, other)

    @property
    def orders(self) -> list[tuple[str, ...]]:
        """Ids of the query and the document, or of the query and the two documents in both orders."""
        if not self.other:
            return [(self.query, self.document)]
        return [(self.query, self.document, self.other), (self.query, self.other, self.document)]

    @property
    def parts(self) -> dict[str, dict[str, str]]:
        """Title and text of each document that are not blank, by id."""
        found = {self.document: _document_parts(self.content)}
        return found | ({self.other: _document_parts(self.content["other"])} if self.other else {})


class ServiceClient:
    """Client of a judging service for one judge; use it in a `with` statement.

    Args:
        url: address of the service, such as `http://127.0.0.1:8000`.
        project: name of the project.
        token: API token of the judge.

    """

    def __init__(self, url: str, project: str, token: str) -> None:
        require_httpx2()
        import httpx2

        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            problem, fix = "is not an http or https address", "write it like http://127.0.0.1:8000"
            raise UsageError(problem, parameter="url", kind="invalid-address", fix=fix)
        self._base = f"{url.rstrip('/')}/api/projects/{quote(project, safe='')}"
        headers = {"Authorization": f"Bearer {token}"}
        self._client = httpx2.Client(headers=headers, timeout=TIMEOUT_SECONDS, follow_redirects=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def fetch_task(self) -> tuple[Scale, bool]:
        """Return the scale of the project, and whether it asks which of two documents is better."""
        project = self._send("GET", "")
        return Scale.parse(project["grades"]), project["task"] == "preferences"

    def lease_pairs(self, count: int) -> tuple[list[LeasedPair], str]:
        """Lease up to `count` pairs; return them, and the status of the judge or why it gets no pairs."""
        found = self._send("POST", "/next", params={"count": count})
        return [LeasedPair.from_json(lease) for lease in found["leases"]], found["reason"] or found["status"]

    def send_answers(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """Send answers, JSON objects of the API, unless there are none."""
        if answers:
            self._send("POST", "/answers", json=list(answers))

    def release_leases(self, leases: Sequence[LeasedPair]) -> None:
        """Return leases without an answer, so that the service can give the pairs to others."""
        if leases:
            self._send("POST", "/leases/return", json={"tokens": [lease.token for lease in leases]})

    def _send(self, method: str, path: str, **content: Any) -> Any:
        """Send a request and return the parsed JSON of the response; raise JudgeError if it is refused."""
        response = self._request(method, path, **content)
        document = _parse_json(response)
        if response.is_success:
            return document
        refusal = document if isinstance(document, dict) else {}
        said = refusal.get("problem") or f"code {response.status_code}"
        fix = refusal.get("fix") or ""
        raise JudgeError(f"The judging service refused a request: {said}", kind="service-refused", fix=fix)

    def _request(self, method: str, path: str, **content: Any) -> httpx2.Response:
        """Send a request up to `MAX_ATTEMPTS` times; raise JudgeError if the connection is lost each time."""
        import httpx2

        attempt = 1
        while True:
            try:
                return self._client.request(method, self._base + path, **content)
            except httpx2.TransportError as lost:
                if attempt == MAX_ATTEMPTS:
                    problem = f"no response from the judging service at {self._base.partition('/api/')[0]}"
                    fix = "check its address and that it runs; then run the command again"
                    raise JudgeError(problem, kind="no-service", fix=fix) from lost
            time.sleep(FIRST_RETRY_SECONDS * attempt)
            attempt += 1


def _parse_json(response: httpx2.Response) -> Any:
    """Return the parsed JSON of a response; raise JudgeError if it is not JSON."""
    try:
        return response.json()
    except ValueError as problem:
        fix = "check the address of the service"
        raise JudgeError("The response is not that of a judging service", kind="not-a-service", fix=fix) from problem


@dataclass
class JudgeProgress:
    """Progress of one judge.

    Attributes:
        answered: number of grades sent.
        put_off: ids of query and documents of the pairs that got the answer "later" because a call gave no grade.
        status: why the judge got no more pairs, or was stopped.

    """

    answered: int = 0
    put_off: set[tuple[str, ...]] = field(default_factory=set)
    status: str = ""


@dataclass(eq=False)
class ServiceJudging:
    """Judging of pairs of a project by several LLM judges.

    Attributes:
        judges: the judges.
        clients: client of the service for each judge, by name.
        scale: scale of the project.
        compares: whether the project asks which of two documents is better.
        ledger: store of the outcomes and costs.
        budget: maximum total cost of all calls in the ledger, or None without a limit.
        retry: statuses in the ledger whose calls are made again.
        clock: clock of the calls; tests pass one that does not wait.
        progress: progress by name of the judge.
        stopped: why a judge was stopped, by name of the judge.

    """

    judges: Sequence[Judge]
    clients: Mapping[str, ServiceClient]
    scale: Scale
    compares: bool
    ledger: Ledger
    budget: float | None = None
    retry: Sequence[str] = ()
    clock: Clock = field(default_factory=Clock)
    progress: dict[str, JudgeProgress] = field(init=False)
    stopped: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.progress = {judge.name: JudgeProgress() for judge in self.judges}
        for judge in self.judges:
            select_judges([judge], compares=self.compares, source=f"judge {judge.name}")
            if not self.compares and judge.scale(self.scale).names != self.scale.names:
                problem = (
                    f"The judge {shown(judge.name)} has the grades {judge.scale(self.scale)}, and the project has "
                    f"{self.scale}"
                )
                fix = "leave grades out of the file of judges, and use a prompt that is not binary"
                raise UsageError(problem, kind="other-scale", fix=fix)

    def run(self) -> Iterator[int]:
        """Judge until no judge gets a pair; yield the number of grades sent for each batch of pairs."""
        idle = set(self.stopped)
        while working := [judge for judge in self.judges if judge.name not in idle]:
            leases_by_judge = {judge.name: self._lease_pairs(judge) for judge in working}
            idle |= {name for name, leases in leases_by_judge.items() if not leases}
            if any(leases_by_judge.values()):
                yield self._judge_pairs(leases_by_judge)
                idle |= set(self.stopped)

    def _lease_pairs(self, judge: Judge) -> list[LeasedPair]:
        """Lease pairs for a judge; return leases of pairs that it answered with "later" before."""
        progress, client = self.progress[judge.name], self.clients[judge.name]
        leases, progress.status = client.lease_pairs(
            min(PAIRS_PER_CONCURRENT_CALL * judge.concurrency, MAX_LEASED_PAIRS)
        )
        again = [lease for lease in leases if lease.orders[0] in progress.put_off]
        client.release_leases(again)
        return [lease for lease in leases if lease not in again]

    def _judge_pairs(self, leases_by_judge: Mapping[str, Sequence[LeasedPair]]) -> int:
        """Call the judges for their leased pairs and send the answers; return the number of grades.

        Pairs with a document without a text are not judged. All leases are returned if an error is raised.
        """
        judges = {judge.name: judge for judge in self.judges}
        asked = [
            (judges[name], lease)
            for name, leases in leases_by_judge.items()
            for lease in leases
            if all(lease.parts.values())
        ]
        task = JudgingTask(
            [pair for _, lease in asked for pair in lease.orders],
            [judge for judge, lease in asked for _ in lease.orders],
            _pair_texts([lease for _, lease in asked]),
            self.scale,
        )
        try:
            plan = JudgingPlan.for_task(task, self.ledger.statuses(), self.retry)
            result = run_judges(plan, self.ledger, self.budget, clock=self.clock)
        except BaseException:
            for name, leases in leases_by_judge.items():
                self.clients[name].release_leases(leases)
            raise
        return self._send_answers(leases_by_judge, result)

    def _send_answers(self, leases_by_judge: Mapping[str, Sequence[LeasedPair]], result: JudgingResult) -> int:
        """Send grades and return their number.

        Pairs without a grade get the answer "later"; if their judge was stopped, their leases are returned instead.
        """
        self.stopped.update(result.stopped)
        labels = {(row["assessor"], _asked_pair(row)): row for row in result.labels.labels.to_pylist()}
        n_sent = 0
        for name, leases in leases_by_judge.items():
            progress, client = self.progress[name], self.clients[name]
            found = [(lease, [labels.get((name, pair)) for pair in lease.orders]) for lease in leases]
            graded = [
                _answer_object(lease, [row for row in rows if row is not None], self.scale)
                for lease, rows in found
                if None not in rows
            ]
            missing = [lease for lease, rows in found if None in rows]
            client.send_answers(graded)
            if name in result.stopped:
                progress.status = result.stopped[name]
                client.release_leases(missing)
            else:
                client.send_answers(
                    [{"client_id": lease.token, "lease": lease.token, "kind": "later"} for lease in missing]
                )
                progress.put_off.update(lease.orders[0] for lease in missing)
            progress.answered += len(graded)
            n_sent += len(graded)
        return n_sent


def _asked_pair(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ids in a row of the table of labels or preferences, in the order in which they were asked."""
    return (row["query"], row["left"], row["right"]) if "left" in row else (row["query"], row["document"])


def _answer_object(lease: LeasedPair, rows: Sequence[Mapping[str, Any]], scale: Scale) -> dict[str, Any]:
    """Return the answer to a pair, as an object of the API, from a row of the table of labels for each order."""
    grades = [PREFERENCE_NAMES[row["preference"] + 1] if lease.other else row["label"] for row in rows]
    answer = {"client_id": lease.token, "lease": lease.token, "grade": grades[0]}
    if lease.other:
        answer["swapped_grade"] = grades[1]
    probabilities = [None] if lease.other else [rows[0].get(name) for name in scale.share_names]
    seconds = [row["seconds"] for row in rows]
    return (
        answer
        | ({} if None in seconds else {"active_ms": round(1000 * sum(seconds))})
        | ({} if None in probabilities else {"probabilities": probabilities})
    )


def _pair_texts(leases: Sequence[LeasedPair]) -> Texts:
    """Return the texts of pairs; a query without a text has its id as text."""
    return Texts(
        {lease.query: lease.content["query_text"] or lease.query for lease in leases},
        {lease.query: lease.content["need"] for lease in leases},
        {(lease.query, document): parts for lease in leases for document, parts in lease.parts.items()},
    )


def _document_parts(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the title and text of a document that are not blank; its further fields are lines of the text."""
    fields = [f"{name}: {value}" for name, value in content["fields"].items() if str(value).strip()]
    text = "\n\n".join(part for part in (content["body"], "\n".join(fields)) if part)
    return {name: value for name, value in (("title", content["title"]), ("text", text)) if value.strip()}
