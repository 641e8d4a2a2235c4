"""Preferences of LLM judges: both orders of each comparison, soft answers, batch files, and the fit that reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank import GDA, Pool, read_preferences
from crowdrank.errors import InputError
from crowdrank.judgments.scale import Scale
from crowdrank.llm_judges.judges import Prompt, read_judges
from crowdrank.llm_judges.judging_plan import judge_roster
from crowdrank.llm_judges.replies import answer_format, answer_instruction, find_grade

from .fake_endpoint import Behavior, Reply, serve
from .judging_project import Project, refusal

ANSWERS = Scale.parse("left,tie,right")
Run = Callable[..., Any]


def shown(body: dict[str, Any], side: str) -> str:
    """Return the text on a side of a comparison in a request."""
    content = body["messages"][-1]["content"]
    return str(content.split(f"BEGIN {side} ")[1].split("\n", 1)[1].split(f"\nEND {side}")[0])


def answer(preference: str, **fields: Any) -> Reply:
    return Reply(json.dumps({"preference": preference}), fields=fields)


def better_number(number: int, body: dict[str, Any]) -> Reply:
    """Prefer the text with the larger number."""
    return answer("left" if shown(body, "LEFT") > shown(body, "RIGHT") else "right")


def always_left(number: int, body: dict[str, Any]) -> Reply:
    return answer("left")


@pytest.fixture
def compared(project: Project) -> Project:
    """Return a project whose requests are comparisons of three documents."""
    Path("requests.csv").write_text("query,left,right,assessor\nq,d0,d1,\nq,d2,d1,j\n")
    return project


def table(url: str, name: str = "j", **fields: Any) -> dict[str, Any]:
    return {"name": name, "endpoint": url, "model": "m", "prompt": "preference"} | fields


PRICES: dict[str, Any] = {"prices": {"input": 1.0, "output": 2.0}}


def test_every_comparison_is_asked_in_both_orders(compared: Project, run: Run) -> None:
    with serve(better_number) as served:
        compared.write_judges(table(served.url, **PRICES))
        printed = run("run", *compared.words, "-o", "p.csv", "--budget", 1)
    rows = pd.read_csv("p.csv")
    assert sorted(rows[["left", "right", "preference"]].values.tolist()) == [
        ["d0", "d1", 1],
        ["d1", "d0", -1],
        ["d1", "d2", 1],
        ["d2", "d1", -1],
    ]
    assert (printed["labels"], printed["failures"], printed["not_asked"]) == (4, 0, 0)
    assert (rows["cost"] > 0).all()  # each order has its own price
    assert rows["cost"].sum() == pytest.approx(served.cost(1.0, 2.0))
    assert printed["charged"] == pytest.approx(served.cost(1.0, 2.0))
    assert set(rows["kind"]) == {"llm"}
    assert set(rows["prompt"]) == {Prompt.read("preference", Path()).digest}


def test_disagreement_of_the_orders_stays_and_becomes_position_bias(compared: Project, run: Run) -> None:
    Path("requests.csv").write_text("query,left,right\n" + "".join(f"q,d{n},d{n + 1}\n" for n in range(19)))
    documents = [json.dumps({"document": f"d{n}", "text": f"text {n}"}) for n in range(20)]
    Path("docs.jsonl").write_text("\n".join(documents) + "\n")
    with serve(always_left) as served:
        compared.write_judges(table(served.url))
        run("run", *compared.words, "-o", "p.csv")
    preferences = read_preferences("p.csv")
    assert preferences.has_positions
    assert preferences.answer_counts() == {-1: 38}  # neither dropped nor turned into ties
    assert preferences.contradictions == 19
    model = GDA().fit(None, preferences=preferences)
    assert model.consensus_.assessor_table["position_bias"][0].as_py() > 0.3
    assert model.consensus_.document_table["relevance"].to_numpy().std() < 0.1


def test_probabilities_of_tokens_are_kept(compared: Project, run: Run) -> None:
    text = '{"preference": "left"}'
    pieces = [('{"preference": "', -0.01, []), ("left", -0.5, [("left", -0.5), ("right", -1.2), ("tie", -2.5)])]
    content = [
        {"token": token, "logprob": logprob, "top_logprobs": [{"token": one, "logprob": p} for one, p in top]}
        for token, logprob, top in [*pieces, ('"}', -0.01, [])]
    ]
    with serve(lambda number, body: Reply(text, fields={"logprobs": {"content": content}})) as served:
        compared.write_judges(table(served.url, logprobs=True))
        run("run", *compared.words, "-o", "p.csv")
    assert served.bodies[0]["logprobs"] is True
    rows = pd.read_csv("p.csv")
    assert set(rows["preference"]) == {-1}
    assert rows["p_left"].to_numpy() == pytest.approx(0.606 / (0.606 + 0.301 + 0.082), abs=0.01)
    assert rows[["p_left", "p_tie", "p_right"]].sum(axis=1).to_numpy() == pytest.approx(1.0)
    assert len(read_preferences("p.csv")) == 4  # the columns do not disturb the reader


def test_samples_give_the_most_frequent_answer(compared: Project, run: Run) -> None:
    Path("requests.csv").write_text("query,left,right\nq,d0,d1\n")
    behavior: Behavior = lambda number, body: answer("tie" if body["seed"] == 7 else "right")  # noqa: E731
    with serve(behavior) as served:
        parameters = {"seed": 7, "temperature": 1}
        compared.write_judges(table(served.url, samples=3, parameters=parameters, grades=["left", "tie", "right"]))
        run("run", *compared.words, "-o", "p.csv")
    rows = pd.read_csv("p.csv")
    assert len(served.bodies) == 6
    assert rows["preference"].tolist() == [1, 1]
    assert rows["p_right"].to_numpy() == pytest.approx(2 / 3)


def test_without_ties_the_schema_has_two_answers(compared: Project, run: Run) -> None:
    behavior: Behavior = lambda number, body: answer("right" if number else "tie")  # noqa: E731
    with serve(behavior) as served:
        compared.write_judges(table(served.url, grades="left,right", concurrency=1))
        printed = run("run", *compared.words, "-o", "p.csv")
    schema = served.bodies[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"] == {"preference": {"type": "string", "enum": ["left", "right"]}}
    assert (printed["labels"], printed["failures"]) == (3, 1)  # a tie is not on this scale
    failures = pd.read_csv("p.failures.csv")
    assert failures[["query", "left", "right", "status"]].values.tolist() == [["q", "d0", "d1", "unreadable"]]


def test_a_stopped_run_goes_on_without_asking_again(compared: Project, run: Run) -> None:
    with serve(better_number) as served:
        compared.write_judges(table(served.url, concurrency=1, **PRICES))
        estimate = run("run", *compared.words, "-o", "p.csv", "--dry-run")
        budget = 1.2 * estimate["max_cost"] / estimate["calls"]
        first = run("run", *compared.words, "-o", "p.csv", "--budget", budget, code=3)
        n_first = len(served.bodies)
        assert first["not_asked"] == 4 - n_first > 0
        assert first["charged"] <= budget
        run("run", *compared.words, "-o", "p.csv", "--budget", 1)
        assert len(served.bodies) == 4
        run("run", *compared.words, "-o", "p.csv", "--budget", 1)
        assert len(served.bodies) == 4
    assert len(pd.read_csv("p.csv")) == 4


def test_both_orders_asked_for_are_asked_once(compared: Project, run: Run) -> None:
    Path("requests.csv").write_text("query,left,right\nq,d0,d1\nq,d1,d0\nq,d0,d1\n")
    with serve(better_number) as served:
        compared.write_judges(table(served.url))
        run("run", *compared.words, "-o", "p.csv")
    assert len(served.bodies) == 2


def test_batch_files_give_the_same_preferences(compared: Project, run: Run) -> None:
    compared.write_judges(table("http://127.0.0.1:9/v1", **PRICES))
    assert run("prepare", *compared.words, "-o", "batch.jsonl")["requests"] == 4
    lines = [json.loads(line) for line in Path("batch.jsonl").read_text().splitlines()]
    assert len({line["custom_id"] for line in lines}) == 4
    results = []
    for number, line in enumerate(lines):
        message = {"content": better_number(number, line["body"]).content}
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        body = {"choices": [{"message": message}], "usage": usage}
        results.append({"custom_id": line["custom_id"], "response": {"status_code": 200, "body": body}})
    Path("results.jsonl").write_text("".join(json.dumps(one) + "\n" for one in results[:3]))
    printed = run("read", "results.jsonl", "--batch", "batch.jsonl", "--judges", "judges.toml", "-o", "p.csv")
    assert (printed["labels"], printed["failures"]) == (3, 1)
    rows = pd.read_csv("p.csv")
    winner = np.where(rows["preference"] < 0, rows["left"], rows["right"])
    assert winner.tolist() == rows[["left", "right"]].max(axis=1).tolist()
    assert rows["cost"].to_numpy() == pytest.approx((100 * 1.0 + 10 * 2.0) / 1e6)
    assert pd.read_csv("p.failures.csv")["status"].tolist() == ["missing"]
    grade = {**results[0], "custom_id": "q/d0/j/0/m/0f0f/0-3"}
    Path("mixed.jsonl").write_text(json.dumps(results[1]) + "\n" + json.dumps(grade) + "\n")
    assert refusal("read", "mixed.jsonl", "-o", "m.csv").kind == "mixed-answers"
    damaged = {**results[0], "custom_id": results[0]["custom_id"].replace("left,tie,right", "0-3")}
    Path("damaged.jsonl").write_text(json.dumps(damaged) + "\n")
    assert refusal("read", "damaged.jsonl", "-o", "m.csv").kind == "unknown-custom-id"
    assert not Path("m.csv").exists()


def test_judges_get_the_requests_that_their_prompt_can_answer(compared: Project, run: Run) -> None:
    url = "http://127.0.0.1:9/v1"
    compared.write_judges(table(url), table(url, "grader", prompt="graded"))
    printed = run("run", *compared.words, "-o", "p.csv", "--dry-run")
    assert [(row["judge"], row["calls"]) for row in printed["judges"]] == [("j", 4)]
    grades = Path("grades.csv")
    grades.write_text("query,document\nq,d0\nq,d1\n")
    words = [str(grades), *compared.words[1:]]
    printed = run("run", *words, "-o", "p.csv", "--dry-run")
    assert [(row["judge"], row["calls"]) for row in printed["judges"]] == [("grader", 2)]
    assert refusal("run", *words, "-o", "p.csv", "--only", "j", "--dry-run").kind == "other-prompts"
    assert refusal("run", *compared.words, "-o", "p.csv", "--only", "grader", "--dry-run").kind == "other-prompts"


def test_bad_requests_prompts_and_scales_are_refused(compared: Project) -> None:
    compared.write_judges(table("http://127.0.0.1:9/v1"))
    Path("requests.csv").write_text("query,left,right\nq,d0,d1\nq,d1,d1\n")
    error = refusal("run", *compared.words, "-o", "p.csv", "--dry-run")
    assert (error.kind, "row 3" in str(error) or "line 3" in str(error)) == ("same-document", True)
    compared.write_judges(table("http://127.0.0.1:9/v1", grades="0-3"))
    assert refusal("run", *compared.words, "-o", "p.csv", "--dry-run").kind == "invalid-scale"
    compared.write_judges(table("http://127.0.0.1:9/v1", prompt="own.txt"))
    for text in ("{query} {left}", "{query} {left} {right} {document}"):
        Path("own.txt").write_text(text)
        assert refusal("run", *compared.words, "-o", "p.csv", "--dry-run").kind == "invalid-prompt"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("left", 0),
        ('{"preference": "tie"}', 1),
        ("Both fit.\nPreference: right", 2),
        ('{"grade": "left"}', None),
        ("Grade: left", None),
        ("The left document is better", None),
    ],
)
def test_a_preference_is_stated_alone_as_json_or_at_the_end(text: str, found: int | None) -> None:
    code = find_grade(text, ANSWERS)
    assert (None if code is None else code[0]) == found


def test_instruction_and_format_name_the_preference() -> None:
    assert '"preference"' in answer_instruction("schema", ANSWERS)
    assert '"Preference: X"' in answer_instruction("pattern", ANSWERS)
    assert answer_format("choice", ANSWERS) == {"structured_outputs": {"choice": ["left", "tie", "right"]}}
    assert answer_format("schema", ANSWERS)["response_format"]["json_schema"]["name"] == "preference"


def test_judges_that_compare_are_no_candidates_for_grades(compared: Project) -> None:
    compared.write_judges(table("http://127.0.0.1:9/v1"), table("http://127.0.0.1:9/v1", "grader", prompt="graded"))
    pool, judges = Pool.read(pd.DataFrame({"query": ["q"], "document": ["d0"]})), read_judges(Path("judges.toml"))
    assert judge_roster(judges, pool, [], Scale.parse("0-3")).assessors.to_pylist() == ["grader"]
    with pytest.raises(InputError) as problem:
        judge_roster(judges[:1], pool, [], Scale.parse("0-3"))
    assert problem.value.kind == "other-prompts"
