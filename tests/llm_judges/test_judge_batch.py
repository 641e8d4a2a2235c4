"""Batch files: what is written comes back, in any order, repeated or incomplete; umbrela's files; nothing is sent."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from crowdrank import MajorityVote, read_judgments
from crowdrank.errors import InputError
from crowdrank.llm_judges.batch import CallId, read_batch_results
from crowdrank.llm_judges.umbrela import read_umbrela

from .judging_project import Project, refusal

Run = Callable[..., Any]
JUDGE: dict[str, Any] = {"name": "gpt a", "endpoint": "https://api.example.com/v1", "model": "gpt", "family": "gpt/4"}


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def put_lines(path: str, objects: list[dict[str, Any]]) -> None:
    Path(path).write_text("".join(json.dumps(one) + "\n" for one in objects))


def result(custom_id: str, content: str | None, **more: Any) -> dict[str, Any]:
    """Return a line of a batch output, as OpenAI writes it."""
    message = {"role": "assistant", "content": content, "refusal": more.pop("refusal", None)}
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    choices = [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}]
    body = {"id": "c", "object": "chat.completion", "created": 1_700_000_000, "model": "gpt-1", "choices": choices}
    response = {"status_code": 200, "request_id": "r", "body": {**body, "usage": usage}}
    return {"id": "b", "custom_id": custom_id, "response": response, "error": None, **more}


@pytest.fixture
def batch(project: Project, run: Run) -> list[str]:
    """Prepare a batch of three requests; return their custom ids."""
    project.write_judges({**JUDGE, "prices": {"input": 1.0, "output": 10.0}})
    assert run("prepare", *project.words, "-o", "batch.jsonl")["requests"] == 3
    return [line["custom_id"] for line in lines("batch.jsonl")]


def test_a_batch_has_the_format_of_openai(batch: list[str]) -> None:
    for line in lines("batch.jsonl"):
        assert set(line) == {"custom_id", "method", "url", "body"}
        assert (line["method"], line["url"]) == ("POST", "/v1/chat/completions")
        assert line["body"]["model"] == "gpt"
        assert [message["role"] for message in line["body"]["messages"]] == ["system", "user"]
        schema = line["body"]["response_format"]["json_schema"]["schema"]
        assert schema["properties"]["grade"]["enum"] == ["0", "1", "2", "3"]
    assert len(set(batch)) == 3
    assert "stream" not in line["body"]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_repeated_and_reordered_lines_give_the_same_labels(batch: list[str], run: Run, order: int) -> None:
    results = [result(one, f'{{"grade": "{number}"}}') for number, one in enumerate(batch)]
    results += [results[0], {"id": "b", "custom_id": batch[1], "response": None, "error": {"message": "expired"}}]
    random.Random(order).shuffle(results)
    put_lines("results.jsonl", results)
    done = run("read", "results.jsonl", "--judges", "judges.toml", "-o", "labels.csv")
    assert (done["labels"], done["failures"], done["repeated"]) == (3, 0, 2)
    table = pd.read_csv("labels.csv", dtype={"label": str}).sort_values("document")
    assert table["document"].tolist() == ["d0", "d1", "d2"]
    assert table["label"].tolist() == ["0", "1", "2"]
    assert table["cost"].tolist() == pytest.approx([0.002] * 3)
    assert set(table["assessor"]) == {"gpt a"}
    assert set(table["family"]) == {"gpt/4"}
    assert set(table["prompt"]) == {CallId.parse(batch[0]).prompt}  # type: ignore[union-attr]
    judgments = read_judgments("labels.csv", grades="0-3")
    assert MajorityVote().fit(judgments).consensus_.n_documents == 3


def test_failures_are_listed_and_are_no_labels(batch: list[str], run: Run) -> None:
    refused = result(batch[0], None, refusal="I will not judge this.")
    rejected = {"id": "b", "custom_id": batch[1], "response": {"status_code": 400, "body": None}, "error": "too long"}
    put_lines("results.jsonl", [refused, rejected])
    done = run("read", "results.jsonl", "--batch", "batch.jsonl", "-o", "labels.csv")
    assert (done["labels"], done["failures"]) == (0, 3)
    assert (done["judges"]["gpt a"]["refused"], done["judges"]["gpt a"]["failed"]) == (1, 1)
    failures = pd.read_csv("labels.failures.csv").set_index("document")
    assert failures["status"].to_dict() == {"d0": "refused", "d1": "failed", "d2": "missing"}
    assert failures.loc["d0", "reply"] == "I will not judge this."
    assert failures.loc["d1", "problem"] == "too long"


@pytest.mark.parametrize("content", ["7", "The grade is 2, perhaps", "", None, '{"grade": 99}'])
def test_a_reply_without_a_grade_is_unreadable(batch: list[str], run: Run, content: str | None) -> None:
    put_lines("results.jsonl", [result(batch[0], content)])
    done = run("read", "results.jsonl", "-o", "labels.csv")
    assert (done["labels"], done["judges"]["gpt a"]["unreadable"]) == (0, 1)


def test_ids_of_any_text_survive() -> None:
    call_id = CallId("what is 1/2 %?", "https://x.org/a?b=c d\n", "é|,:judge", 3, "ü", "0f0f0f", "Bad,Fair,Good")
    assert str(call_id).isascii()
    assert CallId.parse(str(call_id)) == call_id


def test_a_batch_of_one_scale_and_family_needs_no_other_file(batch: list[str], run: Run) -> None:
    for name in ("requests.csv", "docs.jsonl", "queries.jsonl", "judges.toml", "batch.jsonl"):
        Path(name).unlink()
    put_lines("results.jsonl", [result(batch[2], "3")])
    assert run("read", "results.jsonl", "-o", "labels.csv")["labels"] == 1


@pytest.mark.parametrize("custom_id", [None, 7, "", "request-1", "a/b/c/d/e/f/g", "q/d/j/0/f/p/0"])
def test_results_of_another_batch_are_refused(tmp_path: Path, custom_id: Any) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(result(custom_id, "2")) + "\n")
    with pytest.raises(InputError) as problem:
        read_batch_results([path])
    assert (problem.value.kind, problem.value.location.place) == ("unknown-custom-id", "line 1")


def test_a_line_that_is_cut_is_an_error_with_its_place(batch: list[str]) -> None:
    Path("results.jsonl").write_text(json.dumps(result(batch[0], "2")) + "\n" + '{"id": "b", "custom_')
    problem = refusal("read", "results.jsonl", "-o", "labels.csv")
    assert problem.location.place == "line 2"
    assert not Path("labels.csv").exists()


def test_the_output_is_not_an_input(batch: list[str], project: Project) -> None:
    assert refusal("prepare", *project.words, "-o", "docs.jsonl").kind == "output-is-input"
    assert refusal("read", "batch.jsonl", "-o", "batch.jsonl").kind == "output-is-input"
    assert refusal("prepare", *project.words, "-o", "batch.csv").kind == "usage"


def test_prepare_and_read_load_no_network_code(batch: list[str], project: Project) -> None:
    put_lines("results.jsonl", [result(batch[0], "2")])
    words = [["prepare", *project.words, "-o", "b.jsonl"], ["read", "results.jsonl", "-o", "labels.csv"]]
    code = (
        "import sys; from typer.testing import CliRunner; from crowdrank.cli.app import app\n"
        f"for words in {words!r}: assert CliRunner().invoke(app, ['judge', *words]).exit_code == 0\n"
        "assert not {'httpx2', 'httpcore2', 'crowdrank.llm_judges.caller'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# umbrela.


def umbrela(judgment: Any, prediction: str, **more: Any) -> dict[str, Any]:
    texts = {"query": "strawberry jam", "passage": "text 0", "prompt": "..."}
    return {"model": "gpt-4o", **texts, "prediction": prediction, "judgment": judgment, **more}


def test_umbrela_marks_unreadable_answers_with_grade_0(project: Project, run: Run) -> None:
    answers = [
        umbrela(3, "##final score: 3", result_status=1),
        umbrela(0, "##final score: 0", result_status=1, passage="text 1"),
        umbrela(0, "I cannot say.", result_status=0, passage="text 2"),
    ]
    put_lines("umbrela.jsonl", answers)
    words = ("read", "umbrela.jsonl", "--requests", "requests.csv", "--texts", "docs.jsonl", "--texts", "queries.jsonl")
    done = run(*words, "-o", "labels.csv")
    assert (done["labels"], done["failures"]) == (2, 1)
    table = pd.read_csv("labels.csv")
    assert table[["query", "document", "label"]].values.tolist() == [["q", "d0", 3], ["q", "d1", 0]]
    assert set(table["assessor"]) == {"gpt-4o"}
    failures = pd.read_csv("labels.failures.csv")
    assert failures[["document", "status"]].values.tolist() == [["d2", "unreadable"]]


def test_umbrela_without_a_status(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    answers = [umbrela(0, "score: 0"), umbrela(0, "no idea, 10 reasons"), umbrela(2, "score: 2"), umbrela(7, "7")]
    path.write_text("".join(json.dumps(one) + "\n" for one in answers))
    statuses = [call.answer.status for call in read_umbrela(path)]
    assert statuses == ["ok", "unreadable", "ok", "unreadable"]
    assert "0-3" in read_umbrela(path)[3].answer.problem
    assert [call.sample for call in read_umbrela(path)] == [0, 1, 2, 3]


def test_umbrela_texts_that_were_not_requested_are_an_error(project: Project) -> None:
    put_lines("umbrela.jsonl", [umbrela(3, "3", passage="another text")])
    words = ("read", "umbrela.jsonl", "--requests", "requests.csv", "--texts", "docs.jsonl", "--texts", "queries.jsonl")
    assert refusal(*words, "-o", "labels.csv").kind == "unknown-text"
    assert refusal("read", "umbrela.jsonl", "--requests", "requests.csv", "-o", "labels.csv").kind == "no-ids"
