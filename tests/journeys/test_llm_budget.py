"""An LLM judge with a budget: on files, and in a project of the judging service beside people."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llm_judges.fake_endpoint import FakeEndpoint, Reply, document_of, serve

from .conftest import FULL, Terminal
from .judging_team import ANNOTATORS, GRADES, Passages, Person, Service

pytestmark = pytest.mark.data

JUDGES = dict(zip(("first", "second"), ANNOTATORS, strict=False))
"""Judges, and the annotator whose answers each of them gives."""
SCALE = ",".join(GRADES)
PRICES = (0.15, 0.6)
CONCURRENCY = 2


@pytest.fixture
def passages(crowdrank: Terminal, data_folder: Path) -> Passages:
    """Return passages whose files are in the folder of the terminal."""
    found = Passages.read(data_folder / "dl19-people" / "agreement", None if FULL else 5)
    found.write(crowdrank)
    return found


@pytest.fixture
def endpoint(passages: Passages, crowdrank: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEndpoint]:
    """Serve language models that answer as people did; judges.toml names them."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)

    def answer(number: int, body: dict[str, Any]) -> Reply:
        pair = passages.find(document_of(body))
        return Reply(json.dumps({"grade": passages.answers[JUDGES[body["model"]]][pair]}), seconds=0.02)

    with serve(answer) as served:
        tables = [
            f'[[judge]]\nname = "{name}"\nendpoint = "{served.url}"\nmodel = "{name}"\nconcurrency = {CONCURRENCY}\n'
            f'token_variable = "TOKEN_{name.upper()}"\nparameters = {{ temperature = 0, max_tokens = 64 }}\n'
            f"prices = {{ input = {PRICES[0]}, output = {PRICES[1]} }}\n"
            for name in JUDGES
        ]
        crowdrank.write("judges.toml", "\n".join(tables))
        yield served


def run_words(budget: float) -> list[str]:
    """Return the words of `judge run` with a budget."""
    words = ["judge", "run", "pairs.csv", "--texts", "texts.jsonl", "--judges", "judges.toml", "--grades", SCALE]
    return [*words, "-o", "labels.csv", "--budget", str(budget)]


def interrupt(terminal: Terminal, words: list[str], endpoint: FakeEndpoint, number: signal.Signals) -> int:
    """Start a command, send it a signal after four more requests, and return its exit code."""
    expected = len(endpoint.bodies) + 4
    script = str(Path(sysconfig.get_path("scripts")) / "crowdrank")
    process = subprocess.Popen(
        [script, *words], cwd=terminal.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while len(endpoint.bodies) < expected and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors
    return process.returncode


def asked(endpoint: FakeEndpoint, passages: Passages) -> Counter[tuple[str, tuple[str, str]]]:
    """Return how often each judge was asked for each pair."""
    return Counter((body["model"], passages.find(document_of(body))) for body in endpoint.bodies)


def check_labels(path: Path, passages: Passages) -> None:
    """Check that a file has the answers of all judges to all pairs."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["assessor"] in JUDGES]
    found = {(row["assessor"], (row["query"], row["document"])): row.get("label") or row["grade"] for row in rows}
    assert len(found) == len(rows)
    assert found == {
        (name, pair): passages.answers[annotator][pair] for name, annotator in JUDGES.items() for pair in passages.texts
    }


def test_files_are_judged_within_the_budget(crowdrank: Terminal, passages: Passages, endpoint: FakeEndpoint) -> None:
    n_calls = len(JUDGES) * len(passages.texts)
    plan = crowdrank.json(*run_words(1)[:-2], "--dry-run")
    assert sum(one["calls"] for one in plan["judges"]) == n_calls
    crowdrank(*run_words(1)[:-2], code=2)  # judges with prices need a budget
    assert endpoint.bodies == []

    budget = plan["max_cost"] / 4
    for _ in range(2):  # the second time, the rest of the budget is too small for another call
        done = crowdrank.json(*run_words(budget), code=3)
        assert endpoint.cost(*PRICES) <= done["charged"] + 1e-9 <= budget + 1e-9
    first = len(endpoint.bodies)
    assert 0 < first < n_calls
    assert sum(1 for _ in crowdrank.path("labels.csv").open()) == first + 1

    assert interrupt(crowdrank, run_words(1), endpoint, signal.SIGINT) == 130
    assert interrupt(crowdrank, run_words(1), endpoint, signal.SIGKILL) == -9
    done = crowdrank.json(*run_words(1))
    assert endpoint.cost(*PRICES) <= done["charged"] + 1e-9
    calls = asked(endpoint, passages)
    assert len(calls) == n_calls
    assert sum(calls.values()) - n_calls <= 2 * len(JUDGES) * CONCURRENCY, "only calls without a reply are repeated"
    check_labels(crowdrank.path("labels.csv"), passages)
    crowdrank(*run_words(1))
    assert sum(asked(endpoint, passages).values()) == sum(calls.values())

    labels = crowdrank.json("aggregate", "labels.csv", "--grades", SCALE, "-o", "consensus.csv")
    assert (labels["judgments"], labels["documents"]) == (n_calls, len(passages.texts))
    assert len(crowdrank.table("consensus.csv")) == len(passages.texts)


def test_judges_work_in_a_project_beside_people(
    crowdrank: Terminal, passages: Passages, endpoint: FakeEndpoint, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--pairs", "pairs.csv", "--texts", "texts.jsonl", "--grades", SCALE, "--guidelines", "rules.md")
    crowdrank("new-project", "judging.db", "laws", *words)
    with Service(crowdrank) as service:
        lead = Person(browser, "lea")
        lead.join(service.admin_link)
        lead.open(f"{service.url}/projects/laws/settings")
        lead.page.fill("#llm-min", str(len(JUDGES)))
        lead.page.fill("#llm-max", str(len(JUDGES)))
        with lead.page.expect_response("**/api/projects/laws") as saved:
            lead.page.click("#settings button.primary")
        assert saved.value.ok
        for name in JUDGES:
            lead.open(f"{service.url}/projects/laws/people")
            lead.page.fill("#judge-name", name)
            lead.page.fill("#judge-family", name)
            with lead.page.expect_response("**/members") as added:
                lead.page.click("#add-judge button")
            assert added.value.ok
            lead.open(f"{service.url}/projects/laws/people")
            lead.page.select_option("#token-judge", label=name)
            lead.page.fill("#token-name", "judging")
            monkeypatch.setenv(f"TOKEN_{name.upper()}", lead.create_secret("#add-token", "#token"))

        line = ["judge", "service", service.url, "--project", "laws", "--judges", "judges.toml"]
        line += ["--ledger", "laws.sqlite", "--budget"]
        n_calls = len(JUDGES) * len(passages.texts)
        done = crowdrank.json(*line, "0.002", code=3)
        assert 0 < len(endpoint.bodies) < n_calls
        assert endpoint.cost(*PRICES) <= done["charged"] + 1e-9 <= 0.002 + 1e-9
        assert interrupt(crowdrank, [*line, "1"], endpoint, signal.SIGINT) == 130
        assert interrupt(crowdrank, [*line, "1"], endpoint, signal.SIGKILL) == -9
        crowdrank(*line, "1")
        calls = asked(endpoint, passages)
        assert len(calls) == n_calls
        assert sum(calls.values()) - n_calls <= 2 * len(JUDGES) * CONCURRENCY

        lead.open(f"{service.url}/projects/laws")
        check_labels(lead.download("text=CSV"), passages)
        lead.close()
    labels = crowdrank.json("aggregate", "judging.db", "-o", "consensus.csv")
    assert (labels["judgments"], labels["documents"]) == (n_calls, len(passages.texts))
