"""What a reply says: grades in the requested form, probabilities, refusals; everything else is no grade."""

from __future__ import annotations

import math
from typing import Any

import pytest

from crowdrank import read_judgments
from crowdrank.judgments.scale import Scale
from crowdrank.llm_judges.judge_labels import JudgedCall, JudgeLabels
from crowdrank.llm_judges.replies import Reply, combine_samples, find_grade, read_reply

SCALE = Scale.parse("0-3")
NAMES = Scale.parse("Bad,Fair,Good")


def chat(content: Any, **choice: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **choice.pop("message", {})}
    return {"choices": [{"message": message, **choice}], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("2", "2"),
        (" 3\n", "3"),
        ('"1"', "1"),
        ('{"grade": "2"}', "2"),
        ('{"grade": 2}', "2"),
        ('{"reason": "fits 0 of it", "grade": 1.0}', "1"),
        ('```json\n{"grade": "0"}\n```', "0"),
        ("It answers half.\nGrade: 2", "2"),
        ("**Grade:** 1.", "1"),
        ("<think>First 3, then 0.</think>\n\n2", "2"),
        ("Grade: 0\n\nGrade: 3", "3"),
    ],
)
def test_grades_in_a_requested_form_are_read(text: str, grade: str) -> None:
    found = find_grade(text, SCALE)
    assert found is not None
    assert SCALE.names[found[0]] == grade
    assert text[found[1] :].lstrip('"').startswith(grade)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4",
        "-1",
        "2.5",
        "The document deserves a 2",
        "2 of 3 claims are wrong",
        "Grade: 7",
        "Grade: 2 or 3",
        "Grade: 2\nBut I am not sure.",
        '{"grade": null}',
        '{"grade": true}',
        '{"grade": [2]}',
        '{"grade": "2", "grade": "3"}',
        '{"score": 2}',
        '{"grade": "2"',
        "<think>2",
        "[" * 100_000,
    ],
)
def test_other_texts_are_no_grade(text: str) -> None:
    assert find_grade(text, SCALE) is None
    answer = read_reply(chat(text), SCALE)
    assert (answer.status, answer.grade) == ("unreadable", "")


def test_names_of_grades_are_read_in_any_case() -> None:
    assert read_reply(chat('{"grade": "fair"}'), NAMES).grade == "Fair"
    assert read_reply(chat("Good"), NAMES).grade == "Good"
    assert read_reply(chat("Excellent"), NAMES).status == "unreadable"


def test_a_refusal_is_no_answer() -> None:
    refused = read_reply(chat(None, message={"refusal": "I cannot."}), SCALE)
    assert (refused.status, refused.text, refused.input_tokens) == ("refused", "I cannot.", 7)
    assert read_reply(chat("2", finish_reason="content_filter"), SCALE).status == "refused"


@pytest.mark.parametrize("body", [None, [], {}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": 2}]}])
def test_a_document_of_another_form_is_a_failure(body: Any) -> None:
    assert read_reply(body, SCALE).status == "failed"


def tokens(*listed: tuple[str, dict[str, float]]) -> dict[str, Any]:
    """Return logprobs with the likely tokens of each position."""
    content = [
        {"token": token, "top_logprobs": [{"token": one, "logprob": math.log(p)} for one, p in likely.items()]}
        for token, likely in listed
    ]
    return {"content": content}


def test_probabilities_come_from_the_token_of_the_grade() -> None:
    likely = {"2": 0.6, " 1": 0.2, "3": 0.1, "x": 0.09, "y": 0.01}
    reply = [('{"grade', {"3": 1.0}), ('": "', {}), ("2", likely), ('"}', {})]
    expected = pytest.approx((0, 2 / 9, 6 / 9, 1 / 9))
    assert read_reply(chat('{"grade": "2"}', logprobs=tokens(*reply)), SCALE).probabilities == expected
    fenced = [("```", {}), ("json\n", {}), *reply, ("\n```", {})]
    assert read_reply(chat('{"grade": "2"}', logprobs=tokens(*fenced)), SCALE).probabilities == expected
    assert read_reply(chat('{"grade": "2"}', logprobs=tokens(*reply[1:])), SCALE).probabilities is None


def test_grades_that_are_not_among_the_likely_tokens_may_not_have_a_large_share() -> None:
    rare = {"The": 0.4, "2": 0.02, "1": 0.015, "It": 0.01}  # 0 and 3 could have 0.01 each
    assert read_reply(chat("2", logprobs=tokens(("2", rare))), SCALE).probabilities is None
    sure = {"2": 0.97, "The": 0.01, "It": 0.001}
    assert read_reply(chat("2", logprobs=tokens(("2", sure))), SCALE).probabilities == (0, 0, 1, 0)


def test_a_token_that_begins_several_grades_gives_no_probabilities() -> None:
    scale = Scale.parse("0-10")
    assert read_reply(chat("10", logprobs=tokens(("1", {"1": 0.9, "2": 0.1}), ("0", {}))), scale).probabilities is None
    halves = tokens(("Fa", {"Fa": 0.5, "Go": 0.49, "x": 0.01}), ("ir", {}))
    assert read_reply(chat("Fair", logprobs=halves), NAMES).probabilities == pytest.approx((0, 50 / 99, 49 / 99))


@pytest.mark.parametrize("logprobs", [{}, {"content": [3]}, {"content": [{"token": "2", "top_logprobs": "x"}]}])
def test_damaged_probabilities_are_left_out(logprobs: Any) -> None:
    answer = read_reply(chat("2", logprobs=logprobs), SCALE)
    assert (answer.grade, answer.probabilities) == ("2", None)


def test_samples_are_combined_to_the_most_probable_grade() -> None:
    answers = [Reply("ok", grade) for grade in ("3", "1", "1", "3", "0")]
    grade, shares = combine_samples(answers, SCALE)
    assert grade == "3", "of equals, the one that was answered first"
    assert shares == pytest.approx((0.2, 0.4, 0, 0.4))
    soft = [Reply("ok", "2", (0, 0.6, 0.4, 0)), Reply("ok", "2", (0, 0.5, 0.5, 0))]
    assert combine_samples(soft, SCALE)[0] == "1"


def test_labels_with_named_grades_state_their_order() -> None:
    calls = [
        JudgedCall("q", document, "gpt", 0, "gpt", "gpt", "", NAMES, Reply("ok", grade))
        for document, grade in (("a", "Good"), ("b", "Bad"))
    ]
    assert read_judgments(JudgeLabels.from_calls(calls).labels).grade.tolist() == [2, 0]
