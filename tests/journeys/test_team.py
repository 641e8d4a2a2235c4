"""Three colleagues judge in browsers, their lead decides the disputes, and the labels have these decisions."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from .conftest import FULL, Terminal
from .judging_team import ANNOTATORS, GRADES, PASSWORD, PHONE, Pair, Passages, Person, Service

pytestmark = pytest.mark.data

PEOPLE = dict(zip(("ann", "ben", "cat"), ANNOTATORS, strict=True))
"""Colleagues, and the annotator whose answers each of them gives."""


class Judge(Person):
    """A colleague on the judging page, who answers as an annotator of the data did."""

    def __init__(self, browser: Any, name: str, passages: Passages, **options: Any) -> None:
        super().__init__(browser, name, **options)
        self.passages, self.is_phone = passages, "is_mobile" in options
        self.grades = passages.answers[PEOPLE[name]]
        self.given: list[Pair] = []

    def wait_for_pair(self) -> bool:
        """Wait for the next pair; return whether there is one."""
        self.page.wait_for_function(
            "() => document.querySelector('.card') || document.getElementById('message').innerText.includes('All done')"
        )
        return bool(self.page.locator(".card").count())

    def judge(self) -> None:
        """Answer the pair on the screen, by a key or on a phone by a button; wait until another one is shown."""
        shown = self.text(".card .body")
        pair = self.passages.find(shown)
        assert pair not in self.given
        buttons = self.page.locator(".card .grades button")
        place = GRADES.index(self.grades[pair])
        if self.is_phone:
            buttons.nth(place).tap()
        else:
            self.press(str(place))  # the digit in the name of the grade
        self.given.append(pair)
        self.page.wait_for_function(
            "shown => document.querySelector('.card .body')?.innerText !== shown", arg=shown, polling=50
        )

    def wait_until_sent(self) -> None:
        """Wait until the page counts all answers that were given and none waits in the browser."""
        self.wait_for_text("#progress-text", f"{len(self.given)} judged")
        self.page.wait_for_function("() => !Object.values(localStorage).some(text => text.includes('client_id'))")

    def sign_in_in_a_new_tab(self) -> None:
        """Follow the link that the page shows to somebody who is signed out."""
        self.page.wait_for_selector("#waiting:not([hidden])")
        with self.page.context.expect_page() as opened:
            self.page.click("#waiting a")
        tab = opened.value
        tab.fill("#name", self.name)
        tab.fill("#password", PASSWORD)
        tab.click("button.primary")
        tab.wait_for_selector(".card, #message")
        tab.close()


@pytest.fixture
def passages(crowdrank: Terminal, data_folder: Path) -> Passages:
    """Return passages whose files are in the folder of the terminal."""
    found = Passages.read(data_folder / "dl19-people" / "agreement", 12 if FULL else 4)
    found.write(crowdrank)
    return found


@pytest.fixture
def service(crowdrank: Terminal) -> Iterator[Service]:
    with Service(crowdrank) as running:
        yield running


@pytest.fixture
def lead(service: Service, crowdrank: Terminal, browser: Any) -> Iterator[Person]:
    """Return the administrator, who has created the project from the files of the team."""
    person = Person(browser, "lea")
    person.join(service.admin_link)
    person.page.click("text=New project")
    person.page.fill("#name", "laws")
    person.page.fill("#grades", ",".join(GRADES))
    for field, name in {"pairs": "pairs.csv", "texts": "texts.jsonl", "guidelines": "rules.md"}.items():
        person.page.set_input_files(f"#{field}", crowdrank.path(name))
    person.page.click("#new-project button.primary")
    person.page.wait_for_url("**/projects/laws")
    yield person
    person.close()


def invite(lead: Person, service: Service) -> str:
    """Return a link for three judges."""
    lead.open(f"{service.url}/projects/laws/people")
    lead.page.fill("#invite-uses", "3")
    return lead.create_secret("#invite", "#invitation-link")


def read_answers(path: Path) -> pd.DataFrame:
    """Return exported answers, by query and document."""
    return pd.read_csv(path, dtype=str, keep_default_na=False).set_index(["query", "document"])


def judge_all(judges: list[Judge]) -> None:
    """Let the judges answer in turns until nobody gets another pair."""
    waiting = judges
    while waiting := [judge for judge in waiting if judge.wait_for_pair()]:
        for judge in waiting:
            judge.judge()
    for judge in judges:
        judge.wait_until_sent()


def disputed_rows(lead: Person, service: Service) -> dict[Pair, str]:
    """Return the pairs under *Disputed* in order, with what is shown of their answers."""
    lead.open(f"{service.url}/projects/laws/pairs?show=disputed")
    found = {}
    for row in lead.page.locator("#pairs tbody tr:has(input[name=pair_ids])").all():
        name = row.locator("input[name=pair_ids]").get_attribute("aria-label").removeprefix("Select ")
        query, _, document = name.partition(", ")
        found[query, document] = row.locator("[data-label=Answers]").inner_text()
    return found


def test_three_colleagues_label_pairs_and_their_lead_adjudicates(
    crowdrank: Terminal, passages: Passages, service: Service, lead: Person, browser: Any
) -> None:
    link = invite(lead, service)
    ann, ben, cat = judges = [Judge(browser, name, passages, **(PHONE if name == "ben" else {})) for name in PEOPLE]
    for judge in judges:
        judge.start_judging(link)
        assert judge.page.locator("#query").inner_text() in passages.queries.values()
        assert judge.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        judge.judge()
        judge.wait_until_sent()

    ben.page.context.set_offline(True)
    ben.judge()
    ben.wait_for_text("#connection", "1 not sent yet")
    ben.page.context.set_offline(False)

    service.stop(signal.SIGKILL)
    ann.judge()
    ann.wait_for_text("#connection", "1 not sent yet")
    service.start()
    for judge in (ann, ben):
        judge.page.reload()
        judge.wait_until_sent()

    cat.page.context.clear_cookies()  # as if the session had expired
    cat.judge()
    cat.sign_in_in_a_new_tab()
    cat.judge()  # the page, still open, sends both answers
    cat.wait_until_sent()
    judge_all(judges)

    lead.open(f"{service.url}/projects/laws")
    answers = read_answers(lead.download("a[href$='answers.csv']"))
    for judge in judges:
        of_judge = answers[answers["assessor"] == judge.name]["grade"]
        assert of_judge.to_dict() == {pair: judge.grades[pair] for pair in judge.given}
    assert (answers.groupby(level=[0, 1]).size() >= 2).all()
    assert len(answers.groupby(level=[0, 1])) == len(passages.texts)

    numbers = answers["grade"].map(GRADES.index)
    n_grades = answers.groupby(level=[0, 1])["grade"].nunique()
    rows = disputed_rows(lead, service)
    assert set(rows) == set(n_grades[n_grades > 1].index)
    for pair, shown in rows.items():
        given = answers.loc[[pair]]
        assert all(text in shown for text in (*given["assessor"], *given["grade"]))

    decisions = {pair: GRADES[int(numbers[pair].min() + number) % len(GRADES)] for number, pair in enumerate(rows)}
    for (query, document), grade in decisions.items():
        row = lead.page.locator(f"tr:has(input[aria-label='Select {query}, {document}'])")
        row.locator("select[name=grade]").select_option(grade)
        row.locator("form button").click()
        row.wait_for(state="detached")
    assert disputed_rows(lead, service) == {}

    lead.open(f"{service.url}/projects/laws")
    with lead.page.expect_response("**/refit") as fitted:
        lead.page.click("#fit")
    assert fitted.value.ok
    lead.open(f"{service.url}/projects/laws")
    labels = read_answers(lead.download("a[href$='labels.csv']"))
    agreed = {pair: numbers[pair].iloc[0] for pair in passages.texts if pair not in decisions}
    assert labels[labels["source"] == "adjudicated"]["grade"].to_dict() == decisions
    assert set(labels.index) == set(passages.texts)

    crowdrank("aggregate", "judging.db", "--expert", "judging.db", "-m", "majority", "-o", "labels.csv")
    found = crowdrank.table("labels.csv").set_index(["query", "document"])["grade"].to_dict()
    assert found == decisions | {pair: GRADES[grade] for pair, grade in agreed.items()}
    crowdrank("run", "--judgments", "judging.db", "-o", "report")
    assert crowdrank.path("report/report.html").exists()
    for judge in judges:
        judge.close()
