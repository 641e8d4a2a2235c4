"""A team and its judging service: pairs with texts and real answers, a running service, and people in browsers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from service.browser_pages import OpenPage

from .conftest import Terminal

GRADES = ("Not Relevant (0)", "Relevant (1)", "Highly Relevant (2)", "Perfectly Relevant (3)")
ANNOTATORS = (1, 3, 4)
"""Numbers of people who judged all passages of the agreement phase of dl19-people."""
PASSWORD = "correct horse battery"
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
WAIT_SECONDS = 60
"""Maximum time of a step in a browser, on a busy machine."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class Passages:
    """Passages that three people have judged.

    Attributes:
        texts: text of each pair of query and document.
        queries: text of each query.
        answers: grade of each pair by each annotator.

    """

    texts: dict[Pair, str]
    queries: dict[str, str]
    answers: dict[int, dict[Pair, str]]

    @classmethod
    def read(cls, folder: Path, per_query: int | None) -> Passages:
        """Read the first passages of each query that all annotators have graded; None for all.

        A passage that contains the text of another one is left out, so that a text on a screen tells which it is.
        """
        rows = {number: _read_rows(folder / f"annotator-{number}.jsonl") for number in ANNOTATORS}
        texts: dict[Pair, str] = {}
        for pair, row in rows[ANNOTATORS[0]].items():
            graded = all(len(rows[number][pair]["label"]) == 1 for number in ANNOTATORS)
            text = " ".join(row["text"].split())
            is_distinct = not any(text in other or other in text for other in texts.values())
            same_query = sum(query == pair[0] for query, _ in texts)
            if graded and is_distinct and (per_query is None or same_query < per_query):
                texts[pair] = text
        answers = {number: {pair: rows[number][pair]["label"][0] for pair in texts} for number in ANNOTATORS}
        return cls(texts, {pair[0]: rows[ANNOTATORS[0]][pair]["query"] for pair in texts}, answers)

    def write(self, terminal: Terminal) -> None:
        """Write the files of a team: pairs.csv, texts.jsonl and rules.md."""
        lines = [f"{query},{document}\n" for query, document in self.texts]
        terminal.write("pairs.csv", "query,document\n" + "".join(lines))
        rows = [
            {"query": query, "document": document, "query_text": self.queries[query], "text": text}
            for (query, document), text in self.texts.items()
        ]
        terminal.write("texts.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        terminal.write("rules.md", f"# Guidelines\n\n**{GRADES[3]}**: the passage answers the query.\n")

    def find(self, shown: str) -> Pair:
        """Return the pair whose text is shown."""
        words = " ".join(shown.split())
        (found,) = [pair for pair, text in self.texts.items() if text in words]
        return found


def _read_rows(path: Path) -> dict[Pair, Any]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {(row["query_id"], row["doc_id"]): row for row in rows}


class Service:
    """`crowdrank serve` as a process of its own, on a port that stays the same after a restart."""

    def __init__(self, terminal: Terminal, database: str = "judging.db") -> None:
        self.terminal, self.database = terminal, database
        self.url, self.admin_link = "", ""
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(signal.SIGKILL if problem else signal.SIGINT)

    def start(self) -> None:
        """Start the service and wait until it prints its address."""
        port = self.url.rpartition(":")[2] or "0"
        script = Path(sysconfig.get_path("scripts")) / "crowdrank"
        environment = {**os.environ, "COLUMNS": "300"}
        self.process = subprocess.Popen(
            [script, "serve", self.database, "--port", port],
            cwd=self.terminal.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        printed = []
        for line in self.process.stdout:
            printed.append(line)
            (address,) = re.findall(r"http://\S+", line) or [""]
            if "/join#" in address:
                self.admin_link = address
            elif address:
                self.url = address
                return
        raise AssertionError(f"the service did not start: {''.join(printed)}")

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End the service; it ends with exit code 0 unless it is killed."""
        assert self.process is not None
        self.process.send_signal(number)
        printed, _ = self.process.communicate(timeout=WAIT_SECONDS)
        assert self.process.returncode == (-number if number == signal.SIGKILL else 0), printed
        assert "Traceback" not in printed, printed


class Person(OpenPage):
    """Somebody with a browser of their own."""

    def __init__(self, browser: Any, name: str, **options: Any) -> None:
        options.setdefault("viewport", {"width": 1100, "height": 800})
        super().__init__(browser.new_context(**options).new_page())
        self.name = name
        self.page.set_default_timeout(WAIT_SECONDS * 1000)
        self.listen()

    def join(self, link: str) -> None:
        """Open a link, and choose a name and a password."""
        self.page.goto(link)
        self.page.wait_for_selector("#join:not([hidden])")
        self.page.fill("#name", self.name)
        self.page.fill("#password", PASSWORD)
        self.page.click("#join button.primary")
        self.page.wait_for_url(lambda address: "/join" not in address)

    def start_judging(self, link: str) -> None:
        """Join by a link, which opens the first pair."""
        self.join(link)
        self.page.wait_for_selector(".card")

    def open(self, address: str) -> None:
        """Open a page and wait until its scripts are loaded."""
        self.page.goto(address)
        self.page.wait_for_load_state("networkidle")

    def create_secret(self, form: str, box: str) -> str:
        """Send a form and return the link or token that is shown once."""
        self.page.click(f"{form} button")
        self.page.wait_for_selector(f"{box} input")
        return str(self.page.input_value(f"{box} input"))

    def download(self, link: str) -> Path:
        """Click on a link and return the downloaded file."""
        with self.page.expect_download() as started:
            self.page.click(link)
        return Path(started.value.path())

    def close(self) -> None:
        """Close the browser."""
        self.page.context.close()
