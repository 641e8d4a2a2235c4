"""Let LLM judges judge pairs of a judging service, through its API.

Each judge is an assessor of the service. It leases pairs, its endpoint is called as in `judge run`, with a ledger, and
its grades are sent to the service. A pair without a grade gets the answer "later", so that others get it first.
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
from crowdrank.llm_judges.judges import Judge
from crowdrank.llm_judges.judging_plan import JudgingPlan, JudgingResult, run_judges
from crowdrank.llm_judges.judging_task import JudgingTask
from crowdrank.llm_judges.ledger import Ledger
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
        query, document: ids of the pair.
        content: texts of the pair, as the service sends them.

    """

    token: str
    query: str
    document: str
    content: Mapping[str, Any]

    @classmethod
    def from_json(cls, lease: Mapping[str, Any]) -> LeasedPair:
        """Return a leased pair from its JSON object in the API."""
        content = lease["content"]
        return cls(lease["token"], content["query"], content["document"], content)


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

    def fetch_scale(self) -> Scale:
        """Return the scale of the project; raise UsageError if it asks for preferences."""
        project = self._send("GET", "")
        if project.get("task") == "preferences":
            problem = (
                f"The project {shown(project['name'])} asks which of two documents is better, and judges give grades"
            )
            fix = "name a project that asks for grades"
            raise UsageError(problem, kind="is-preferences", fix=fix)
        return Scale.parse(project["grades"])

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
        put_off: (query id, document id) of the pairs that got the answer "later" because a call gave no grade.
        status: why the judge got no more pairs, or was stopped.

    """

    answered: int = 0
    put_off: set[tuple[str, str]] = field(default_factory=set)
    status: str = ""


@dataclass(eq=False)
class ServiceJudging:
    """Judging of pairs of a project by several LLM judges.

    Attributes:
        judges: the judges.
        clients: client of the service for each judge, by name.
        scale: scale of the project.
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
        again = [lease for lease in leases if (lease.query, lease.document) in progress.put_off]
        client.release_leases(again)
        return [lease for lease in leases if lease not in again]

    def _judge_pairs(self, leases_by_judge: Mapping[str, Sequence[LeasedPair]]) -> int:
        """Call the judges for their leased pairs and send the answers; return the number of grades.

        Pairs whose document has no text are not judged. All leases are returned if an error is raised.
        """
        judges = {judge.name: judge for judge in self.judges}
        asked = [
            (judges[name], lease)
            for name, leases in leases_by_judge.items()
            for lease in leases
            if _document_parts(lease.content)
        ]
        task = JudgingTask(
            [(lease.query, lease.document) for _, lease in asked],
            [judge for judge, _ in asked],
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
        labels = {(row["assessor"], row["query"], row["document"]): row for row in result.labels.labels.to_pylist()}
        n_sent = 0
        for name, leases in leases_by_judge.items():
            progress, client = self.progress[name], self.clients[name]
            found = [(lease, labels.get((name, lease.query, lease.document))) for lease in leases]
            graded = [_answer_object(lease, row, self.scale) for lease, row in found if row is not None]
            missing = [lease for lease, row in found if row is None]
            client.send_answers(graded)
            if name in result.stopped:
                progress.status = result.stopped[name]
                client.release_leases(missing)
            else:
                client.send_answers(
                    [{"client_id": lease.token, "lease": lease.token, "kind": "later"} for lease in missing]
                )
                progress.put_off.update((lease.query, lease.document) for lease in missing)
            progress.answered += len(graded)
            n_sent += len(graded)
        return n_sent


def _answer_object(lease: LeasedPair, row: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """Return the answer to a pair, as an object of the API, from a row of the table of labels."""
    answer = {"client_id": lease.token, "lease": lease.token, "grade": row["label"]}
    probabilities = [row.get(name) for name in scale.share_names]
    return (
        answer
        | ({} if row["seconds"] is None else {"active_ms": round(1000 * row["seconds"])})
        | ({} if None in probabilities else {"probabilities": probabilities})
    )


def _pair_texts(leases: Sequence[LeasedPair]) -> Texts:
    """Return the texts of pairs; a query without a text has its id as text."""
    return Texts(
        {lease.query: lease.content["query_text"] or lease.query for lease in leases},
        {lease.query: lease.content["need"] for lease in leases},
        {(lease.query, lease.document): _document_parts(lease.content) for lease in leases},
    )


def _document_parts(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the title and text of a document that are not blank; its further fields are lines of the text."""
    fields = [f"{name}: {value}" for name, value in content["fields"].items() if str(value).strip()]
    text = "\n\n".join(part for part in (content["body"], "\n".join(fields)) if part)
    return {name: value for name, value in (("title", content["title"]), ("text", text)) if value.strip()}
