"""Read the grade, and probabilities of the grades, from the reply of a language model.

A reply that does not state exactly one grade of the scale in the requested form is unreadable; it is never a grade.
"""

from __future__ import annotations

import bisect
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crowdrank.judgments.scale import Scale

OK, UNREADABLE, REFUSED, FAILED = "ok", "unreadable", "refused", "failed"
STATUSES = (OK, UNREADABLE, REFUSED, FAILED)
"""Statuses of a call: a grade, a reply without a grade, a refusal of the model, no reply of the model."""
TOP_LOGPROBS = 20
"""Number of most probable tokens that are requested for each position of a reply."""
MAX_UNLISTED_PROBABILITY = 0.1
"""Maximum probability of grades that are not among the listed tokens, relative to that of the listed grades.

Above it, token probabilities give no probabilities of grades."""
TRUNCATED_REPLY_PROBLEM = "the reply was cut at max_tokens; raise it and retry unreadable replies"
"""Problem of a reply that reached the maximum number of tokens before its grade."""
PREFERENCE_NAMES = ("left", "tie", "right")
"""Default answers of a judge that compares two documents."""
PREFERENCE_SCALES: dict[tuple[str, ...], tuple[int, ...]] = {PREFERENCE_NAMES: (-1, 0, 1), ("left", "right"): (-1, 1)}
"""Preference that each answer stands for, by the names of the possible answers."""
MAX_EXCERPT_LENGTH = 300
"""Maximum number of characters of a reply in the list of failures."""

_THINKING_BLOCK = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_CODE_FENCE = re.compile(r"\A```(?:json)?[ \t]*\n(.*?)\n?```\Z", re.DOTALL)
_ANSWER_LINES = {
    name: re.compile(
        rf"(?:^|\n)[ \t]*\**{name}\**[ \t]*[:=][ \t]*\**[ \t]*(?P<answer>[^\n]*?)[ \t*.]*\Z", re.IGNORECASE
    )
    for name in ("grade", "preference")
}


@dataclass(frozen=True)
class Reply:
    """Grade of a judge's reply, or the reason why it has none.

    Attributes:
        status: one of `STATUSES`.
        grade: name of the grade, "" if there is none.
        probabilities: probability of each grade of the scale from token probabilities, or None.
        problem: why there is no grade.
        text: text of the reply.
        input_tokens, output_tokens: numbers of tokens, None if the reply does not say.

    """

    status: str
    grade: str = ""
    probabilities: tuple[float, ...] | None = None
    problem: str = ""
    text: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None


def answer_name(scale: Scale) -> str:
    """Return the name of the answers of a scale in requests and replies, `grade` or `preference`."""
    return "preference" if scale.names in PREFERENCE_SCALES else "grade"


def answer_instruction(answer_mode: str, scale: Scale) -> str:
    """Return the sentence of a prompt that describes the form of the answer in one of `ANSWER_MODES`.

    >>> answer_instruction("pattern", Scale.parse("0,1"))
    'Explain your decision in one sentence. Then end with a line that has the form "Grade: X", where X is one of 0, 1.'
    """
    listed, name = ", ".join(scale.names), answer_name(scale)
    if answer_mode == "schema":
        return f'Answer with a JSON object that has one key, "{name}", whose value is one of {listed}.'
    if answer_mode == "pattern":
        form = f'end with a line that has the form "{name.capitalize()}: X"'
        return f"Explain your decision in one sentence. Then {form}, where X is one of {listed}."
    return f"Answer with one of {listed} and nothing else."


def answer_format(answer_mode: str, scale: Scale) -> dict[str, Any]:
    """Return the keys of a request that restrict the answer to the grades; none in the mode `pattern`."""
    if answer_mode == "choice":
        return {"structured_outputs": {"choice": list(scale.names)}}
    if answer_mode == "guided-choice":
        return {"guided_choice": list(scale.names)}
    if answer_mode == "grammar":
        return {"grammar": f"root ::= {' | '.join(json.dumps(name, ensure_ascii=False) for name in scale.names)}"}
    if answer_mode == "pattern":
        return {}
    name = answer_name(scale)
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", "enum": list(scale.names)}},
        "required": [name],
        "additionalProperties": False,
    }
    return {"response_format": {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}}


def read_reply(body: Any, scale: Scale) -> Reply:
    """Read the grade from a chat completion; `body` is the parsed JSON of the response.

    >>> reply = {"choices": [{"message": {"content": '{"grade": "2"}'}}], "usage": {"prompt_tokens": 9}}
    >>> answer = read_reply(reply, Scale.parse("0-3"))
    >>> answer.status, answer.grade, answer.input_tokens
    ('ok', '2', 9)
    """
    choice = _first_choice(body)
    if choice is None:
        return Reply(FAILED, problem="the reply is not a chat completion")
    usage = body.get("usage")
    return replace(
        _read_choice(choice, scale),
        input_tokens=_token_count(usage, "prompt_tokens"),
        output_tokens=_token_count(usage, "completion_tokens"),
    )


def _read_choice(choice: Mapping[str, Any], scale: Scale) -> Reply:
    """Read the grade from a choice of a chat completion."""
    message = choice["message"]
    refusal, text = message.get("refusal"), message.get("content")
    text = text if isinstance(text, str) else ""
    if isinstance(refusal, str) and refusal:
        return Reply(REFUSED, problem="the model refused to answer", text=refusal)
    if choice.get("finish_reason") == "content_filter":
        return Reply(REFUSED, problem="the content filter of the service stopped the reply", text=text)
    found = find_grade(text, scale)
    if found is None:
        cut = choice.get("finish_reason") == "length"
        problem = TRUNCATED_REPLY_PROBLEM if cut else f"the reply does not state one {answer_name(scale)} of the scale"
        return Reply(UNREADABLE, problem=problem, text=text)
    code, position = found
    probabilities = token_probabilities(choice.get("logprobs"), text, position, scale)
    return Reply(OK, scale.names[code], probabilities, text=text)


def _first_choice(body: Any) -> dict[str, Any] | None:
    """Return the first choice of a chat completion, or None if the body is not a chat completion."""
    choices = body.get("choices") if isinstance(body, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) and isinstance(choice.get("message"), dict) else None


def _token_count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and 0 <= value < 2**53 else None


def find_grade(text: str, scale: Scale) -> tuple[int, int] | None:
    r"""Return the code of the grade that a reply states, and the position of the grade in the text, or None.

    The reply is the grade alone, a JSON object with the key `grade`, or ends with a line such as `Grade: 2`. For a
    preference, the key is `preference`, and the line is such as `Preference: left`. What a model thinks aloud in
    `<think>` at the beginning is skipped. A number elsewhere in the text is not a grade.

    >>> scale = Scale.parse("0-3")
    >>> [find_grade(text, scale) for text in ("2", '{"grade": 3}', "It fits.\nGrade: 1", "2 of 3 are wrong", "7")]
    [(2, 0), (3, 10), (1, 16), None, None]
    """
    thoughts = _THINKING_BLOCK.match(text)
    start = thoughts.end() if thoughts else 0
    rest = text[start:].strip()
    start = text.index(rest, start)
    fenced = _CODE_FENCE.match(rest)
    if fenced:
        rest, start = fenced[1].strip(), start + fenced.start(1)
    if rest.startswith("{"):
        return _find_json_grade(text, rest, start, scale)
    line = _ANSWER_LINES[answer_name(scale)].search(rest)
    stated = line["answer"] if line else rest
    code = scale.code(stated.strip(" \"'"))
    return None if code is None else (code, start + (line.start("answer") if line else 0))


def _find_json_grade(text: str, document: str, start: int, scale: Scale) -> tuple[int, int] | None:
    """Return the code and the position of the grade in a JSON object with the key of the answer, or None."""
    name = answer_name(scale)
    try:
        value = json.loads(document, object_pairs_hook=_refuse_repeated_keys)
    except (ValueError, RecursionError):
        return None
    grade = value.get(name)
    if isinstance(grade, bool) or not isinstance(grade, str | int | float):
        return None
    code = scale.code(grade)
    key = re.search(rf'"{name}"\s*:\s*"?', document)
    return None if code is None else (code, start + key.end() if key else text.index(document))


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise ValueError if it states a key twice, since it then states two grades."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def token_probabilities(logprobs: Any, text: str, position: int, scale: Scale) -> tuple[float, ...] | None:
    """Return the probability of each grade from the likely tokens where the grade begins in the text, or None.

    Args:
        logprobs: the field `logprobs` of a choice.
        text: text of the reply. The concatenated tokens contain it, and perhaps more: llama.cpp removes code fences.
        position: position in the text at which the grade begins.
        scale: grades of the judge.

    """
    entries = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return None
    tokens = [entry.get("token") for entry in entries]
    if not all(isinstance(token, str) for token in tokens):
        return None
    start = "".join(tokens).find(text)
    ends = list(itertools.accumulate(map(len, tokens)))
    index = bisect.bisect_right(ends, start + position)
    return None if start < 0 or index >= len(entries) else _grade_probabilities(entries[index], scale)


def _grade_probabilities(entry: Mapping[str, Any], scale: Scale) -> tuple[float, ...] | None:
    """Return the normalized probabilities of grades from the likely tokens at the position of the grade.

    A token counts for the grade that begins with it. Return None if it begins several grades, or if grades without a
    likely token could have more than `MAX_UNLISTED_PROBABILITY`.
    """
    likely = _likely_tokens(entry.get("top_logprobs"))
    totals = [0.0] * len(scale)
    for token, probability in likely:
        begun = token.strip(" \"'\n\t").casefold()
        fitting = [code for code, name in enumerate(scale.names) if begun and name.casefold().startswith(begun)]
        if len(fitting) > 1:
            return None
        for code in fitting:
            totals[code] += probability
    total = sum(totals)
    unseen = totals.count(0.0) * min((probability for _, probability in likely), default=0.0)
    return (
        tuple(value / total for value in totals) if total > 0 and unseen <= MAX_UNLISTED_PROBABILITY * total else None
    )


def _likely_tokens(candidates: Any) -> list[tuple[str, float]]:
    """Return (token, probability) of the field `top_logprobs`; an empty list if the field is invalid."""
    likely = []
    for candidate in candidates if isinstance(candidates, list) else []:
        token, logprob = (
            (candidate.get("token"), candidate.get("logprob")) if isinstance(candidate, dict) else (None, 0)
        )
        if not isinstance(token, str) or not isinstance(logprob, int | float) or math.isnan(logprob):
            return []
        likely.append((token, math.exp(min(logprob, 0.0))))
    return likely


def combine_samples(answers: Sequence[Reply], scale: Scale) -> tuple[str, tuple[float, ...]]:
    """Return the most probable grade of several answers and the mean of their probabilities.

    Answers without token probabilities count fully for their grade. Of equally probable grades, the one that was
    answered first is returned.

    >>> combine_samples([Reply(OK, "1"), Reply(OK, "2"), Reply(OK, "2")], Scale.parse("0-2"))[0]
    '2'
    """
    shares = [answer.probabilities or [float(name == answer.grade) for name in scale.names] for answer in answers]
    means = [sum(column) / len(answers) for column in zip(*shares, strict=True)]
    order = [scale.names.index(answer.grade) for answer in answers]
    highest = max(means)
    tied = [code for code, mean in enumerate(means) if math.isclose(mean, highest, rel_tol=1e-9)]
    best = next((code for code in order if code in tied), tied[0])
    return scale.names[best], tuple(means)


def excerpt(text: str) -> str:
    """Return at most `MAX_EXCERPT_LENGTH` characters of a text, with `?` for characters that UTF-8 cannot encode."""
    cut = text if len(text) <= MAX_EXCERPT_LENGTH else text[: MAX_EXCERPT_LENGTH - 3] + "..."
    return cut.encode(errors="replace").decode()
