"""Batch files in the format of OpenAI, which vLLM's `run-batch` and most gateways read too.

The `custom_id` of a request has all that is needed to read its result without the file of requests: query, document,
judge, sample, family, prompt and grades, each percent-encoded and separated by slashes. That of a comparison ends with
the right document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from crowdrank._files import check_output_file
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments.scale import Scale
from crowdrank.llm_judges.judge_labels import JudgedCall
from crowdrank.llm_judges.judges import Judge
from crowdrank.llm_judges.judging_task import Call, JudgingTask
from crowdrank.llm_judges.replies import FAILED, PREFERENCE_SCALES, STATUSES, Reply, excerpt, read_reply
from crowdrank.readers.files import numbered_lines, open_decompressed
from crowdrank.readers.json_files import is_encodable
from crowdrank.readers.write import output_stream

BATCH_URL = "/v1/chat/completions"
"""Path of the API to which the service sends each request of a batch file."""
MAX_BATCH_REQUESTS = 50_000
"""Maximum number of requests in a batch file of OpenAI."""
MAX_PORTABLE_ID_LENGTH = 64
"""Maximum length of a `custom_id` that every service accepts; OpenAI and vLLM accept longer ones."""
MISSING_STATUS = "missing"
"""Status of a request of a batch file without a result."""


@dataclass(frozen=True)
class CallId:
    """Fields of the `custom_id` of a request in a batch file.

    Attributes:
        query, document: ids of the pair; the document is the left one of a comparison.
        judge: name of the judge.
        sample: number of the request about the pair, from 0.
        family: family of the judge.
        prompt: digest of the prompt.
        grades: scale of the judge, such as "0-3".
        right: id of the right document of a comparison, or "".

    """

    query: str
    document: str
    judge: str
    sample: int
    family: str
    prompt: str
    grades: str
    right: str = ""

    @classmethod
    def from_call(cls, call: Call, project_scale: Scale) -> CallId:
        """Return the id of a call; `project_scale` is the scale of a judge without one of its own."""
        judge = call.judge
        grades = str(judge.scale(project_scale))
        about_judge = judge.name, call.sample, judge.family, judge.prompt.digest, grades
        return cls(call.query, call.document, *about_judge, call.right)

    def __str__(self) -> str:
        fields = [self.query, self.document, self.judge, self.sample, self.family, self.prompt, self.grades]
        fields += [self.right] if self.right else []
        return "/".join(quote(str(one), safe=",:") for one in fields)

    @classmethod
    def parse(cls, text: Any) -> CallId | None:
        """Parse a `custom_id`; return None if crowdrank did not write it.

        >>> CallId.parse("q%201/d%2F7/gpt/0/openai/0f0f/0-3").document
        'd/7'
        """
        parts = text.split("/") if isinstance(text, str) and is_encodable(text) else []
        if len(parts) not in (7, 8) or not parts[-1]:
            return None
        query, document, judge, sample, *others = (unquote(part, errors="replace") for part in parts)
        if not (query and document and judge and sample.isascii() and sample.isdecimal() and len(sample) < 10):
            return None
        return cls(query, document, judge, int(sample), *others)


def check_batch_path(path: Path) -> None:
    """Raise an error if a path does not end in .jsonl or .jsonl.gz, or cannot be written."""
    if not path.name.lower().endswith((".jsonl", ".jsonl.gz")):
        raise UsageError(f"Cannot write {path}: the name of a batch file ends in .jsonl.")
    check_output_file(path)


def write_batch(task: JudgingTask, path: Path) -> tuple[int, int]:
    """Write all requests of a task as a batch file; return their number and the length of the longest `custom_id`."""
    n_requests = longest = 0
    with output_stream(path) as stream:
        for call in task.calls():
            custom_id = str(CallId.from_call(call, task.scale))
            line = {"custom_id": custom_id, "method": "POST", "url": BATCH_URL, "body": task.request_body(call)}
            stream.write(json.dumps(line).encode() + b"\n")
            n_requests, longest = n_requests + 1, max(longest, len(custom_id))
    return n_requests, longest


@dataclass(frozen=True)
class BatchResults:
    """Results of a batch, one per request.

    Attributes:
        judged: call of each request, with the reply of the judge.
        n_repeated: number of lines that were dropped because another line has the result of the same request.

    """

    judged: list[JudgedCall]
    n_repeated: int


def read_batch_results(
    paths: Sequence[Path], judges: Mapping[str, Judge] | None = None, requests: Path | None = None
) -> BatchResults:
    """Read the results of batch files; lines can be repeated and in any order.

    Of several lines about one request, one with a grade is kept before one with a failure, and the first of equal ones.

    Args:
        paths: files in the format of OpenAI's batch outputs.
        judges: judges by name; their prices give the costs of calls.
        requests: the batch file; requests without a result are then added with the status `missing`.

    Raises:
        InputError: a line is not a result of a request that crowdrank wrote.

    """
    best: dict[CallId, JudgedCall] = {}
    n_lines = 0
    for path in paths:
        for location, line in read_json_objects(path):
            n_lines += 1
            call_id = _require_call_id(line, path, location)
            judged = _read_result_line(call_id, line, judges or {}, path, location)
            if call_id not in best or _status_rank(judged) < _status_rank(best[call_id]):
                best[call_id] = judged
    n_repeated = n_lines - len(best)
    for location, line in read_json_objects(requests) if requests is not None else ():
        assert requests is not None
        call_id = _require_call_id(line, requests, location)
        if call_id not in best:
            missing = Reply(MISSING_STATUS, problem="the results have no line for this request")
            best[call_id] = _new_judged_call(call_id, missing, {}, _parse_scale(call_id, requests, location))
    return BatchResults(list(best.values()), n_repeated)


def _status_rank(call: JudgedCall) -> int:
    """Return the rank of the status of a call, from 0 for a grade to 3 for a failed call."""
    return STATUSES.index(call.answer.status)


def read_json_objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("line N", object) for each line of a JSON Lines file that is not blank.

    Raises:
        InputError: a line is not a JSON object.

    """
    with open_decompressed(path) as stream:
        for number, line in numbered_lines(stream, str(path)):
            text = line.decode().strip()
            if not text:
                continue
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                value = None
            if not isinstance(value, dict):
                problem = f"{shown(text)} is not a JSON object"
                raise InputError(problem, source=str(path), place=f"line {number}", fix="correct or remove the line")
            yield f"line {number}", value


def _require_call_id(line: Mapping[str, Any], path: Path, location: str) -> CallId:
    """Return the parsed `custom_id` of a line; raise InputError if crowdrank did not write it."""
    call_id = CallId.parse(line.get("custom_id"))
    if call_id is None:
        problem = f"the custom_id {shown(line.get('custom_id'))} is not one that crowdrank wrote"
        fix = "give the results of a batch that `crowdrank judge prepare` wrote"
        raise InputError(problem, source=str(path), place=location, kind="unknown-custom-id", fix=fix)
    return call_id


def _parse_scale(call_id: CallId, path: Path, location: str) -> Scale:
    """Return the scale in a `custom_id`; raise InputError if it is not a scale, or not one of preferences."""
    what = "a scale of preferences" if call_id.right else "a scale"
    problem, fix = f"the grades {shown(call_id.grades)} of the custom_id are not {what}", "give the results as written"
    error = InputError(problem, source=str(path), place=location, kind="unknown-custom-id", fix=fix)
    try:
        scale = Scale.parse(call_id.grades)
    except UsageError as cause:
        raise error from cause
    if call_id.right and scale.names not in PREFERENCE_SCALES:
        raise error
    return scale


def _read_result_line(
    call_id: CallId, line: Mapping[str, Any], judges: Mapping[str, Judge], path: Path, location: str
) -> JudgedCall:
    """Return the call and its reply from a line of batch results; an error of the service is a failed call."""
    scale, response, error = _parse_scale(call_id, path, location), line.get("response"), line.get("error")
    body = response.get("body") if isinstance(response, dict) else None
    status_code = response.get("status_code", 200) if isinstance(response, dict) else None
    if error or status_code != 200 or not isinstance(body, dict):
        message = error_message(error) or error_message(body) or f"the service answered with code {status_code}"
        return _new_judged_call(call_id, Reply(FAILED, problem=excerpt(message)), {}, scale)
    answer = read_reply(body, scale)
    judge = judges.get(call_id.judge)
    cost = None
    if judge is not None and judge.prices is not None and None not in (answer.input_tokens, answer.output_tokens):
        cost = judge.prices.cost(answer.input_tokens or 0, answer.output_tokens or 0)
    return _new_judged_call(call_id, answer, body, scale, cost)


def _new_judged_call(
    call_id: CallId, answer: Reply, body: Mapping[str, Any], scale: Scale, cost: float | None = None
) -> JudgedCall:
    """Return a call with its reply; the model and the time are from the response body."""
    model = body.get("model")
    return JudgedCall(
        call_id.query,
        call_id.document,
        call_id.judge,
        call_id.sample,
        call_id.family,
        model if isinstance(model, str) and is_encodable(model) else "",
        call_id.prompt,
        scale,
        answer,
        cost,
        time=_iso_time(body.get("created")),
        right=call_id.right,
    )


def _iso_time(seconds: Any) -> str:
    """Return a Unix time in ISO format, or "" if the value is not a Unix time."""
    if type(seconds) is not int or not 0 < seconds < 2**33:
        return ""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def error_message(error: Any) -> str:
    """Return the text of an error of an OpenAI-compatible service, or "" if there is none.

    The error is a text, or nested objects with keys such as `error`, `message` and `detail`.

    >>> error_message({"error": {"message": "too long"}}), error_message("busy"), error_message(None)
    ('too long', 'busy', '')
    """
    for _ in range(4):
        if not isinstance(error, dict):
            break
        error = error.get("error") or error.get("message") or error.get("detail") or error.get("code")
    return error if isinstance(error, str) and is_encodable(error) else ""
