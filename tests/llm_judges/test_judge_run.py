"""Asking judges at an endpoint with the faults of real services: nothing is lost, overspent or guessed."""

from __future__ import annotations

import itertools
import math
import random
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from crowdrank import read_judgments
from crowdrank._progress import ProgressBar
from crowdrank.cli.app import app
from crowdrank.errors import CrowdrankError, InputError, OutputError
from crowdrank.judgments.scale import Scale
from crowdrank.llm_judges import caller, replies
from crowdrank.llm_judges.caller import BUDGET_SPENT_REASON, Caller
from crowdrank.llm_judges.judges import Judge, Prices, Prompt
from crowdrank.llm_judges.judging_plan import JudgingPlan, JudgingResult, run_judges
from crowdrank.llm_judges.judging_task import read_judging_task
from crowdrank.llm_judges.ledger import Ledger, open_ledger

from .fake_endpoint import Behavior, Reply, document_of, error, serve
from .judging_project import ManualClock, Project, refusal

SCALE = Scale.parse("0-3")
PRICES = Prices(input=1.0, output=2.0)
Run = Callable[..., Any]


def judge(url: str, name: str = "j", **fields: Any) -> Judge:
    return Judge(name, url, "m", Prompt.read("graded", Path()), **{"family": "m", "concurrency": 2, **fields})


def ask(
    project: Project,
    clock: ManualClock,
    *judges: Judge,
    budget: float | None = None,
    retry: tuple[str, ...] = (),
    ledger: str = "l.sqlite",
) -> JudgingResult:
    texts = [Path("docs.jsonl"), Path("queries.jsonl")]
    task = read_judging_task(Path("requests.csv"), texts, judges, SCALE)
    with open_ledger(Path(ledger)) as opened:
        plan = JudgingPlan.for_task(task, opened.statuses(), retry)
        return run_judges(plan, opened, budget, clock=clock)


def records(ledger: str = "l.sqlite") -> pd.DataFrame:
    with sqlite3.connect(ledger) as connection:
        return pd.read_sql("SELECT * FROM call ORDER BY document, sample", connection)


def by_number(*replies: Reply) -> Behavior:
    """Answer requests with the replies in order, and with the last one from then on."""
    return lambda number, body: replies[min(number, len(replies) - 1)]


def test_every_document_gets_a_label(project: Project, clock: ManualClock) -> None:
    with serve(lambda number, body: Reply(f'{{"grade": "{document_of(body)[-1]}"}}')) as served:
        result = ask(project, clock, judge(served.url, prices=PRICES), budget=1.0)
    table = result.labels.labels.to_pandas()
    assert table[["document", "label"]].sort_values("document").values.tolist() == [
        ["d0", "0"],
        ["d1", "1"],
        ["d2", "2"],
    ]
    assert set(table["assessor"]) == {"j"}
    assert set(table["prompt"]) == {Prompt.read("graded", Path()).digest}
    assert result.charged == pytest.approx(served.cost(1.0, 2.0))
    assert table["cost"].sum() == pytest.approx(result.charged)
    assert (result.not_asked, result.uncertain, len(result.labels.failures)) == (0, 0.0, 0)


@pytest.mark.parametrize(
    ("fault", "uncertain"),
    [
        (error(500), False),
        (error(503), False),
        (error(429), False),
        (error(504), True),
        (Reply(None, 200, raw="<html>busy</html>"), True),
        (Reply(None, 200, raw='{"object": "list"}'), True),
        (error(200, "overloaded"), True),
        (Reply(cut="before"), True),
        (Reply(cut="within"), True),
    ],
)
def test_a_fault_is_tried_again(project: Project, clock: ManualClock, fault: Reply, uncertain: bool) -> None:
    project.write_pairs(1)
    with serve(by_number(fault, fault, Reply("2"))) as served:
        result = ask(project, clock, judge(served.url, prices=PRICES), budget=1.0)
    assert len(served.bodies) == 3
    assert result.labels.labels["label"].to_pylist() == ["2"]
    assert records()["attempts"].tolist() == [3]
    assert (result.uncertain > 0) == uncertain
    assert result.charged >= served.cost(1.0, 2.0)
    assert len(clock.waits) == 2


def test_waits_grow_and_vary(project: Project, clock: ManualClock) -> None:
    project.write_pairs(1)
    with serve(by_number(error(500))) as served:
        result = ask(project, clock, judge(served.url, attempts=4))
    assert len(served.bodies) == 4
    assert all(bound / 2 <= wait <= bound for wait, bound in zip(clock.waits, (1, 2, 4), strict=True))
    assert result.labels.count("failed") == 1
    assert len(result.labels.labels) == 0
    assert "500" in result.labels.failures["problem"][0].as_py()
    waits = [Caller(None, None, rng=random.Random(1))._backoff_seconds(20, None) for _ in range(2)]  # type: ignore[arg-type]
    assert 30 <= waits[0] <= 60


def test_retry_after_is_obeyed_for_the_whole_judge(project: Project, clock: ManualClock) -> None:
    project.write_pairs(4)
    limited = error(429, headers={"Retry-After": "17"})
    with serve(by_number(Reply(), limited, Reply())) as served:
        ask(project, clock, judge(served.url, concurrency=1))
    assert len(served.bodies) == 5
    assert sum(clock.waits) == pytest.approx(17)


def test_retry_after_can_be_a_date() -> None:
    headers = {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}
    assert caller.classify_response(429, headers, "", SCALE).wait_seconds == 0.0
    assert caller.classify_response(429, {"retry-after": "soon"}, "", SCALE).wait_seconds is None


@pytest.mark.parametrize(
    "fault", [error(401), error(404), Reply(None, 307, raw=""), error(429, error_code="insufficient_quota")]
)
def test_an_error_that_repeats_for_every_call_stops_the_judge(
    project: Project, clock: ManualClock, fault: Reply
) -> None:
    project.write_pairs(20)
    with serve(by_number(fault)) as served:
        result = ask(project, clock, judge(served.url, concurrency=1))
        assert len(served.bodies) == 1
        assert list(result.stopped) == ["j"]
        assert (result.not_asked, len(result.labels.failures)) == (20, 0)
        served.behavior = by_number(Reply())
        again = ask(project, clock, judge(served.url))
    assert (again.not_asked, len(again.labels.labels)) == (0, 20)


def test_a_wait_that_is_too_long_stops_the_judge(project: Project, clock: ManualClock) -> None:
    with serve(by_number(error(429, headers={"Retry-After": "86400"}))) as served:
        result = ask(project, clock, judge(served.url, concurrency=1))
    assert list(result.stopped) == ["j"]
    assert len(served.bodies) == 1
    assert sum(clock.waits) < 86400


def test_the_circuit_opens_and_closes(project: Project, clock: ManualClock) -> None:
    project.write_pairs(30)
    bad = caller.FAILURES_BEFORE_CIRCUIT_OPENS + 1  # the circuit opens, the first probe fails, the second succeeds
    with serve(lambda number, body: error(500) if number < bad else Reply()) as served:
        result = ask(project, clock, judge(served.url, concurrency=1, attempts=2))
    opened = [wait for wait in clock.waits if wait > 20]
    assert [round(wait / caller.CIRCUIT_OPEN_SECONDS) for wait in opened] == [1, 2]
    assert len(result.labels.labels) + len(result.labels.failures) == 30
    assert result.stopped == {}


def test_a_service_that_is_down_stops_its_judge_but_not_others(project: Project, clock: ManualClock) -> None:
    project.write_pairs(30)
    with serve(by_number(Reply())) as served, serve(by_number(error(500))) as broken:
        judges = (judge(served.url, "good"), judge(broken.url, "bad", concurrency=8, attempts=3))
        result = ask(project, clock, *judges)
    assert list(result.stopped) == ["bad"]
    assert result.labels.counts["good"]["ok"] == 30
    assert len(broken.bodies) < 30, "it was not asked for all documents"
    assert result.not_asked > 0


def test_a_service_that_limits_every_request_does_not_use_up_the_calls(project: Project, clock: ManualClock) -> None:
    project.write_pairs(40)
    with serve(by_number(error(429))) as served:
        result = ask(project, clock, judge(served.url, concurrency=4))
    assert list(result.stopped) == ["j"]
    assert len(result.labels.failures) < 5, "the others wait for the next run"
    assert len(served.bodies) < 40


def test_requests_that_were_under_way_when_the_circuit_opened_do_not_open_it_again(clock: ManualClock) -> None:
    queue = caller.JudgeQueue(judge("http://127.0.0.1:1/v1"), iter(()), clock)
    failed = caller.AttemptOutcome(replies.Reply("failed"), is_final=False)
    for _ in range(20):
        queue.record_outcome(failed, started_at=0.0)
    assert (queue.n_openings, queue.stopped) == (1, "")


def test_openings_of_a_circuit_are_counted_in_a_row(clock: ManualClock) -> None:
    queue = caller.JudgeQueue(judge("http://127.0.0.1:1/v1"), iter(()), clock)
    failed, answered = (
        caller.AttemptOutcome(replies.Reply(status), is_final=status == "ok") for status in ("failed", "ok")
    )
    for _ in range(caller.MAX_CIRCUIT_OPENINGS + 2):
        for _ in range(caller.FAILURES_BEFORE_CIRCUIT_OPENS):
            queue.record_outcome(failed, started_at=float("inf"))
        assert (queue.n_openings, queue.stopped) == (1, "")
        queue.record_outcome(answered, started_at=float("inf"))
    assert queue.n_openings == 0


def test_no_connection_is_no_answer(project: Project, clock: ManualClock) -> None:
    with serve(by_number(Reply())) as served:
        gone = served.url
    result = ask(project, clock, judge(gone, attempts=2, prices=PRICES), budget=1.0)
    assert result.labels.count("ok") == 0
    assert result.charged == 0


def test_a_timeout_stays_charged(project: Project, clock: ManualClock) -> None:
    project.write_pairs(1)
    with serve(by_number(Reply(seconds=0.6), Reply("3"))) as served:
        result = ask(project, clock, judge(served.url, prices=PRICES, timeout=0.2), budget=1.0)
    assert result.labels.labels["label"].to_pylist() == ["3"]
    assert result.uncertain > 0
    assert result.charged >= served.cost(1.0, 2.0)


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply("7"), "unreadable"),
        (Reply("I would say 2"), "unreadable"),
        (Reply('{"grade": ', fields={"finish_reason": "length"}), "unreadable"),
        (Reply("", message={"refusal": "No."}), "refused"),
        (error(400, error_code="content_filter"), "refused"),
        (error(400, "too long"), "failed"),
    ],
)
def test_what_is_not_a_grade_is_listed_and_asked_again_on_request(
    project: Project, clock: ManualClock, reply: Reply, status: str
) -> None:
    project.write_pairs(1)
    with serve(by_number(reply)) as served:
        result = ask(project, clock, judge(served.url))
        assert len(result.labels.labels) == 0
        assert result.labels.failures["status"].to_pylist() == [status]
        assert result.labels.failures["problem"][0].as_py()
        assert ask(project, clock, judge(served.url)).labels.count(status) == 1
        assert len(served.bodies) == 1, "it is not asked again by itself"
        served.behavior = by_number(Reply("1"))
        retried = ask(project, clock, judge(served.url), retry=(status,))
    assert retried.labels.labels["label"].to_pylist() == ["1"]
    assert len(served.bodies) == 2


def test_replies_are_not_asked_for_again(project: Project, clock: ManualClock) -> None:
    with serve(by_number(Reply("2"))) as served:
        first = ask(project, clock, judge(served.url))
        again = ask(project, clock, judge(served.url))
        assert len(served.bodies) == 3
        ask(project, clock, judge(served.url, parameters={"temperature": 0.5}))
        assert len(served.bodies) == 6, "another request"
    assert again.labels.labels.equals(first.labels.labels)


def test_equal_requests_are_asked_and_paid_once(project: Project, clock: ManualClock) -> None:
    Path("docs.jsonl").write_text('{"document": "d0", "text": "x"}\n{"document": "d1", "text": "x"}\n')
    Path("requests.csv").write_text("query,document\nq,d0\nq,d1\nq,d0\n")
    with serve(by_number(Reply("2"))) as served:
        one = judge(served.url, prices=PRICES)
        task = read_judging_task(Path("requests.csv"), [Path("docs.jsonl"), Path("queries.jsonl")], [one], SCALE)
        (planned,) = JudgingPlan.for_task(task, {}).estimates
        result = ask(project, clock, one, budget=1.0)
    assert planned.calls == len(served.bodies) == 1
    assert result.labels.labels["document"].to_pylist() == ["d0", "d1"]
    assert sum(result.labels.labels["cost"].to_pylist()) == pytest.approx(result.charged)


@pytest.mark.parametrize("budget", [0.001, 0.004, 0.012])
@pytest.mark.parametrize("concurrency", [1, 7])
def test_the_budget_is_never_exceeded(project: Project, clock: ManualClock, budget: float, concurrency: int) -> None:
    """Faults of every kind, and the service charges every request that its model answered."""
    project.write_pairs(40)
    faults = itertools.cycle([Reply(), Reply(cut="within"), Reply(), error(500), Reply(usage=False), Reply("seven")])
    with serve(lambda number, body: next(faults)) as served:
        result = ask(project, clock, judge(served.url, prices=PRICES, concurrency=concurrency), budget=budget)
        assert served.cost(1.0, 2.0) <= result.charged <= budget
        assert result.stopped == {"j": BUDGET_SPENT_REASON}
        more = ask(project, clock, judge(served.url, prices=PRICES, concurrency=concurrency), budget=budget)
        assert served.cost(1.0, 2.0) <= more.charged <= budget
    assert result.not_asked > 0


def test_a_spent_budget_is_an_exit_code_and_can_be_raised(project: Project) -> None:
    project.write_pairs(40)
    with serve(by_number(Reply("1"))) as served:
        project.write_judges({"name": "j", "endpoint": served.url, "model": "m", "prices": vars(PRICES)})
        words = ["judge", "run", *project.words, "-o", "labels.csv", "--budget"]
        spent = CliRunner().invoke(app, [*words, "0.004"])
        raised = CliRunner().invoke(app, [*words, "10"])
    assert spent.exit_code == 3
    assert "run the command again" not in spent.output
    assert spent.output.count("--budget") == 2
    assert raised.exit_code == 0, raised.output
    assert len(pd.read_csv("labels.csv")) == 40


def test_failed_attempts_are_in_the_progress(
    project: Project, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [Path("docs.jsonl"), Path("queries.jsonl")]
    with serve(lambda number, body: error(500)) as served, open_ledger(Path("l.sqlite")) as ledger:
        task = read_judging_task(Path("requests.csv"), texts, [judge(served.url, attempts=3)], SCALE)
        report = ProgressBar("asking judges", after=0, every=0)
        run_judges(JudgingPlan.for_task(task, {}), ledger, clock=clock, report=report)
    assert "(1 failed attempt)" in capsys.readouterr().err


def test_money_that_was_reserved_and_not_needed_is_spent_on_other_calls(project: Project, clock: ManualClock) -> None:
    project.write_pairs(10)
    with serve(by_number(Reply())) as served:
        one = ask(project, clock, judge(served.url, prices=PRICES), budget=10, ledger="a.sqlite")
        cost = one.charged / 10
        result = ask(project, clock, judge(served.url, prices=PRICES, concurrency=10), budget=10 * cost * 1.3)
    assert result.labels.count("ok") > 5


def test_pace_and_concurrency(project: Project, clock: ManualClock) -> None:
    project.write_pairs(12)
    with serve(lambda number, body: Reply(seconds=0.02)) as served:
        ask(project, clock, judge(served.url, requests_per_minute=30, concurrency=3))
    assert served.most_running <= 3
    assert clock.seconds == pytest.approx(11 * 2.0)


def test_samples_and_probabilities_are_written(project: Project, run: Run) -> None:
    project.write_pairs(1)
    grades = itertools.cycle(["1", "1", "3", "x", "3", "1"])
    with serve(lambda number, body: Reply(next(grades))) as served:
        project.write_judges({"name": "j", "endpoint": served.url, "model": "m", "samples": 6, "concurrency": 1})
        done = run("run", *project.words, "-o", "labels.csv")
    assert (done["labels"], done["failures"]) == (1, 1)
    table = pd.read_csv("labels.csv", dtype={"label": str})
    assert table[["label", "samples"]].values.tolist() == [["1", 5]]
    assert table[["p0", "p1", "p2", "p3"]].values.tolist() == [[0, 0.6, 0, 0.4]]
    assert pd.read_csv("labels.failures.csv")["status"].tolist() == ["unreadable"]
    judgments = read_judgments("labels.csv", grades="0-3")
    assert (len(judgments), judgments.report.columns["grade"]) == (1, "label")
    assert judgments.families is not None
    assert judgments.families.to_pylist() == ["m"]


def test_seeds_of_samples_differ(project: Project, clock: ManualClock) -> None:
    project.write_pairs(1)
    with serve(by_number(Reply())) as served:
        ask(project, clock, judge(served.url, samples=3, parameters={"seed": 5}))
    assert sorted(body["seed"] for body in served.bodies) == [5, 6, 7]


def test_token_probabilities_are_requested_and_used(project: Project, clock: ManualClock) -> None:
    likely = [{"token": token, "logprob": math.log(p)} for token, p in (("2", 0.4), ("1", 0.59), ("The", 0.01))]
    logprobs = {"content": [{"token": "2", "top_logprobs": likely}]}
    with serve(by_number(Reply("2", fields={"logprobs": logprobs}))) as served:
        result = ask(project, clock, judge(served.url, logprobs=True, answer="choice"))
    assert served.bodies[0]["logprobs"] is True
    assert served.bodies[0]["structured_outputs"] == {"choice": ["0", "1", "2", "3"]}
    row = result.labels.labels.to_pylist()[0]
    assert row["label"] == "1", "the label is the most probable grade"
    assert (row["p1"], row["p2"]) == pytest.approx((59 / 99, 40 / 99))


def test_requests_go_to_the_judge_that_they_name(project: Project, run: Run) -> None:
    project.write_pairs(4, assessors=["a", "", "ann", "b"])
    with serve(by_number(Reply("0"))) as served:
        project.write_judges(*({"name": name, "endpoint": served.url, "model": name} for name in "abc"))
        done = run("run", *project.words, "-o", "labels.csv", "--only", "a,c")
    table = pd.read_csv("labels.csv")
    assert sorted(zip(table["document"], table["assessor"], strict=True)) == [("d0", "a"), ("d1", "a"), ("d1", "c")]
    assert done["not_asked"] == 0


def test_the_key_is_sent_and_stored_nowhere(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    key = "sk-very-secret-123"
    monkeypatch.setenv("SECRET_KEY", f" {key}\n")
    with serve(by_number(error(401, f"Incorrect API key provided: {key}"))) as served:
        project.write_judges({"name": "j", "endpoint": served.url, "model": "m", "key_variable": "SECRET_KEY"})
        stopped = refusal("run", *project.words, "-o", "labels.csv")
        served.behavior = by_number(Reply(f"You sent {key}"))
        done = CliRunner().invoke(app, ["judge", "run", *project.words, "-o", "labels.csv"])
    assert served.headers[0]["authorization"] == f"Bearer {key}"
    assert stopped.kind == "judge-stopped"
    assert key not in str(stopped) + done.output + "".join(capfd.readouterr())
    for path in project.folder.iterdir():
        assert key.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("value", [None, "", "bad\nkey", "schlüssel"])
def test_a_missing_key_is_an_error_before_anything_is_sent(
    project: Project, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("SECRET_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("SECRET_KEY", value)
    with serve(by_number(Reply())) as served:
        project.write_judges({"name": "j", "endpoint": served.url, "model": "m", "key_variable": "SECRET_KEY"})
        problem = refusal("run", *project.words, "-o", "labels.csv")
    assert problem.kind in ("no-key", "invalid-key")
    assert served.bodies == []
    assert not value or value not in str(problem)


def test_a_dry_run_sends_and_writes_nothing(project: Project, run: Run) -> None:
    with serve(by_number(Reply())) as served:
        prices = {"input": 1.0, "output": 2.0}
        project.write_judges({"name": "j", "endpoint": served.url, "model": "m", "prices": prices, "samples": 2})
        before = sorted(path.name for path in project.folder.iterdir())
        planned = run("run", *project.words, "-o", "labels.csv", "--dry-run")
        assert served.bodies == []
        assert sorted(path.name for path in project.folder.iterdir()) == before
        done = run("run", *project.words, "-o", "labels.csv", "--budget", 1)
        assert run("run", *project.words, "-o", "labels.csv", "--dry-run")["calls"] == 0
    assert planned["judges"][0]["pairs"] == 3
    assert planned["calls"] == 6 == len(served.bodies)
    assert done["charged"] <= planned["max_cost"]
    assert planned["cost"] < planned["max_cost"]


def test_prices_need_a_budget_and_a_budget_needs_prices(project: Project) -> None:
    project.write_judges({"name": "j", "endpoint": "http://127.0.0.1:1/v1", "model": "m"})
    assert refusal("run", *project.words, "-o", "labels.csv", "--budget", 1).kind == "no-prices"
    prices = {"input": 1.0, "output": 2.0}
    project.write_judges({"name": "j", "endpoint": "http://127.0.0.1:1/v1", "model": "m", "prices": prices})
    problem = refusal("run", *project.words, "-o", "labels.csv")
    assert (problem.kind, problem.fix.parameter if problem.fix else "") == ("no-budget", "budget")


def test_requests_of_a_policy_are_answered_and_added(project: Project, run: Run) -> None:
    """The loop of a collection: a policy names judges, these answer, and the answers are added."""
    Path("pool.csv").write_text("query,document\nq,d0\nq,d1\nq,d2\n")
    Path("who.csv").write_text("assessor,kind,price\na,llm,1\nb,llm,1\n")
    policy = ["next", "all.csv", "--pairs", "pool.csv", "--assessors", "who.csv", "--budget", "4", "-p", "overlap-2"]
    with serve(lambda number, body: Reply(document_of(body)[-1])) as served:
        project.write_judges(*({"name": name, "endpoint": served.url, "model": name} for name in "ab"))
        collect(*policy, "-o", "requests.csv")
        requested = pd.read_csv("requests.csv")
        assert set(requested["assessor"]) <= {"a", "b"}
        assert run("run", *project.words, "-o", "labels.csv")["labels"] == len(requested) == len(served.bodies)
        collect("add", "all.csv", "labels.csv", "--grades", "0-3")
    added = read_judgments("all.csv", grades="0-3")
    assert len(added) == len(requested)
    assert added.families is not None


def collect(*words: str) -> None:
    done = CliRunner().invoke(app, ["collect", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_without_httpx2_the_error_names_the_extra(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write_judges({"name": "j", "endpoint": "http://127.0.0.1:1/v1", "model": "m"})
    monkeypatch.setitem(sys.modules, "httpx2", None)
    problem = refusal("run", *project.words, "-o", "labels.csv")
    assert problem.kind == "no-package"
    assert "crowdrank[llm]" in str(problem)


def test_replies_are_written_as_plain_text(project: Project, run: Run) -> None:
    project.write_pairs(1)
    with serve(by_number(Reply("=HYPERLINK(1) \ud800"))) as served:
        project.write_judges({"name": "j", "endpoint": served.url, "model": "m"})
        assert run("run", *project.words, "-o", "labels.csv", "--csv-safe")["failures"] == 1
    assert pd.read_csv("labels.failures.csv")["reply"].tolist() == ["'=HYPERLINK(1) ?"]


def test_a_second_process_on_a_ledger_is_refused(project: Project, clock: ManualClock) -> None:
    with open_ledger(Path("l.sqlite")), serve(by_number(Reply())) as served:
        errors: list[BaseException] = []

        def other() -> None:
            try:
                ask(project, clock, judge(served.url))
            except CrowdrankError as problem:
                errors.append(problem)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert served.bodies == []
    assert isinstance(errors[0], OutputError)
    assert errors[0].kind == "locked"


@pytest.mark.parametrize("content", [b"query,document\n", b"SQLite format 3\0" + b"x" * 200])
def test_another_file_is_no_ledger(project: Project, content: bytes) -> None:
    Path("l.sqlite").write_bytes(content)
    with pytest.raises(InputError) as problem, open_ledger(Path("l.sqlite")):
        pass
    assert problem.value.kind == "not-a-ledger"
    assert Path("l.sqlite").read_bytes() == content


def test_another_database_is_no_ledger(project: Project) -> None:
    with sqlite3.connect("l.sqlite") as connection:
        connection.execute("CREATE TABLE call (key TEXT)")
    connection.close()
    with pytest.raises(InputError), open_ledger(Path("l.sqlite")):
        pass


def test_a_full_disk_is_an_output_error_and_the_answers_stay(
    project: Project, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write_pairs(6)
    with serve(by_number(Reply("1"))) as served:
        settle, calls = Ledger.settle, itertools.count()

        def failing(self: Ledger, *arguments: Any) -> None:
            if next(calls) == 3:
                self._connection.execute("PRAGMA max_page_count = 1")
                arguments = (*arguments[:3], {**arguments[3], "reply": "x" * 100_000})
            settle(self, *arguments)

        monkeypatch.setattr(Ledger, "settle", failing)
        with pytest.raises(OutputError):
            ask(project, clock, judge(served.url, concurrency=1))
        monkeypatch.undo()
        monkeypatch.chdir(project.folder)
        result = ask(project, clock, judge(served.url))
    assert result.labels.count("ok") == 6
    assert len(served.bodies) == 7, "only the call that could not be stored is repeated"
