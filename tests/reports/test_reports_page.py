"""The page: what it answers, from which folders, how large it is, and that ids stay text."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import crowdrank
from crowdrank._text import visible
from crowdrank.assessors.flags import CARELESS
from crowdrank.consensus import METHODS, get_aggregator
from crowdrank.consensus.latent import NODES
from crowdrank.errors import ConvergenceWarning, InputError, OutputError
from crowdrank.evaluation.comparison import Comparison
from crowdrank.pipeline.markdown import N_ROWS
from crowdrank.pipeline.result import RunResult
from crowdrank.reports import charts, embedded_charts
from crowdrank.reports.cards import Answer, answers, better, how_much, trust, weighted_kappa, what_next
from crowdrank.reports.formatting import plain_id, real_minus, signed
from crowdrank.reports.page import again, in_script, render, write_report
from crowdrank.reports.report_data import ReportData
from crowdrank.reports.tables import Answered, assessor_sheet, document_sheet, ranker_sheet

LARGEST = 6_000_000


@pytest.fixture(scope="module")
def page(found: ReportData) -> str:
    return render(found)


@pytest.fixture
def no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts take their time, and not every test is about them."""
    monkeypatch.setattr(embedded_charts, "find_spec", lambda name: None)


def embedded(page: str, name: str) -> Any:
    told = re.search(f'<script type="application/json" id="data-{name}">(.*?)</script>', page, re.DOTALL)
    assert told
    return json.loads(told.group(1))


def test_the_page_answers_the_four_questions_first(page: str, found: ReportData) -> None:
    first = page.index("<main>")
    places = [
        page.index(question, first)
        for question in ("Is my ranker better?", "By how much?", "Can I trust", "What next?")
    ]
    assert places == sorted(places)
    assert places[-1] < page.index('id="rankers"')
    assert unescape(page).count(real_minus(found.about["paragraph"])) == 1
    assert all(real_minus(sentence) in unescape(page) for sentence in found.about["protocol"])


def test_the_page_asks_for_nothing_and_allows_one_script(page: str) -> None:
    assert "default-src 'none'" in unescape(page)
    assert "unsafe-inline" not in page
    sources = re.findall(r'(?:src|href)="([^"]{0,30})', page)
    assert sources
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert page.count("<script>") == 1
    assert "http://" not in re.sub(r"data:image[^\"]*", "", page).replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def test_the_tables_hold_every_assessor_and_candidate(page: str, found: ReportData) -> None:
    assert {row[0] for row in embedded(page, "assessors")["rows"]} == set(found.assessors["assessor"])
    told = {row[0].removesuffix(" (chosen)") for row in embedded(page, "rankers")["rows"]}
    assert told == set(found.comparison["candidate"]) - set(found.left_out)
    widths = [row[3] for row in embedded(page, "uncertain")["rows"]]
    assert widths == sorted(widths, reverse=True)
    apart = [row[-2] for row in embedded(page, "disputed")["rows"]]
    assert apart == sorted(apart, reverse=True)


def test_votes_and_dispute_equal_counting(found: ReportData) -> None:
    table = found.assessors.set_index("assessor")
    telling = table.index[
        (table["informativeness"] >= CARELESS * found.usual_information) & (table["flag"] != "reversed")
    ]
    assert 0 < len(telling) < len(table)
    assert found.model is not None
    assert found.votes is not None
    judged = found.model.judgments_.frame.astype({"query": str, "document": str})
    grades = judged.groupby(["query", "document"])["grade"]
    heard = judged["assessor"].isin(telling)
    for at in range(0, len(found.documents), 17):
        row = found.documents.iloc[at]
        given = grades.get_group((str(row["query"]), str(row["document"])))
        assert found.votes[at].tolist() == [int((given == value).sum()) for value in found.grade_values]
        apart = given[heard[given.index]].std()
        assert found.dispute[at] == pytest.approx(apart, nan_ok=True), "who tells little makes no dispute"


def test_what_was_paid_equals_the_sum(found: ReportData) -> None:
    assert found.model is not None
    cost = pd.DataFrame(
        {
            "assessor": np.array(found.model.judgments_.assessors.to_pylist())[found.model.judgments_.assessor],
            "cost": found.model.judgments_.extras["cost"],
        }
    )
    assert found.paid == pytest.approx(cost.groupby("assessor")["cost"].sum().to_dict())


def test_agreement_with_experts_is_that_of_the_grades(found: ReportData) -> None:
    both = found.against_experts
    assert len(both) > 20
    assert found.experts_on_scale
    kappa = weighted_kappa(both["consensus"].to_numpy(), both["expert"].to_numpy())
    from sklearn.metrics import cohen_kappa_score

    assert kappa == pytest.approx(
        cohen_kappa_score(both["consensus"].astype(int), both["expert"].astype(int), weights="quadratic")
    )
    assert f"weighted kappa {kappa:.2f}" in trust(found).sentences[0]
    votes = replace(found, training=found.training.assign(majority=found.training["expert"]))
    assert trust(votes).tone != "good", "a consensus that plain votes beat is not praised"
    assert "Majority votes agree better" in trust(votes).sentences[1]
    other = replace(found, training=found.training.assign(expert=found.training["expert"] * 10))
    assert "Spearman" in trust(other).sentences[0]


def _with_test(found: ReportData, difference: float, lower: float, upper: float, p: float) -> ReportData:
    table, measure = found.comparison.copy(), found.measure
    chosen = table["candidate"] == found.chosen
    base = table.loc[table["candidate"] == found.baseline, f"{measure} mean"].iloc[0]
    for name, value in {
        "mean": base + difference,
        "difference": difference,
        "lower": lower,
        "upper": upper,
        "p": p,
    }.items():
        table.loc[chosen, f"{measure} {name}"] = value
    return replace(found, comparison=table)


@pytest.mark.parametrize(
    ("told", "short", "against", "tone"),
    [
        ((0.05, 0.02, 0.08, 0.01), "Yes", ", over majority votes", "good"),
        ((0.05, -0.01, 0.11, 0.2), "Not shown", " against majority votes", "open"),
        ((-0.05, -0.08, -0.02, 0.01), "No, it is worse", " than majority votes", "bad"),
    ],
)
def test_better_or_not(
    found: ReportData, told: tuple[float, float, float, float], short: str, against: str, tone: str
) -> None:
    tested = _with_test(found, *told)
    assert (better(tested).short, better(tested).against, better(tested).tone) == (short, against, tone)
    assert how_much(tested).against == (" over majority" if told[0] > 0 else " against majority")
    assert how_much(tested).interval == pytest.approx((told[1], told[0], told[2]))
    asked = [step for step in what_next(tested).steps if step.startswith("Grade more queries")]
    assert bool(asked) == (short == "Not shown")


def test_more_test_queries_are_reckoned_by_the_interval(found: ReportData) -> None:
    told = _with_test(found, 0.05, 0.05 - 1.96 * 0.05, 0.05 + 1.96 * 0.05, 0.3)
    n = int(told.candidate(told.chosen)["test_queries"])
    step = next(step for step in what_next(told).steps if step.startswith("Grade more"))
    needed = int(np.ceil(round(n * 2.8**2, 6)))
    assert f"about {needed:,} test queries" in step


def test_spammers_are_named(found: ReportData) -> None:
    bad = found.assessors[found.assessors["flag"] == "random"]
    assert len(bad), "the world has spammers"
    step = what_next(found).steps[0]
    assert all(name in step for name in bad.sort_values("judgments", ascending=False)["assessor"].head(5))
    assert f"Their {bad['judgments'].sum():,} judgments" in step
    assert "count for next to nothing" in step
    clean = replace(found, assessors=found.assessors[~found.assessors["flag"].isin(["random", "reversed"])])
    assert not what_next(clean).steps[0].startswith("Stop paying")
    assert "None of" in trust(clean).sentences[-1]


def test_those_who_turn_the_scale_round_are_named(found: ReportData, alone: Path) -> None:
    def told(findings: ReportData, slope: float) -> str:
        table = findings.assessors.assign(flag="")
        table.loc[:1, "flag"], table.loc[:1, "model_slope"] = "reversed", slope
        turned = replace(findings, assessors=table)
        step = next(step for step in what_next(turned).steps if step.startswith("Ask 2 assessors whether"))
        assert all(name in step for name in table["assessor"].head(2))
        assert f"Their {table['judgments'].head(2).sum():,} judgments" in step
        return step

    assert "are read the other way round by the consensus, and count for much" in told(found, -1.0)
    assert "other way round" not in told(found, 0.1)
    assert "count in full" in told(ReportData.read(alone), -1.0), "votes turn nobody round"
    assert not any("upside down" in step for step in what_next(_without_flags(found)).steps)


def _without_flags(found: ReportData) -> ReportData:
    return replace(found, assessors=found.assessors.assign(flag=""))


def test_who_answered_what_is_what_was_answered(found: ReportData) -> None:
    assert found.model is not None
    judged = found.model.judgments_.frame.astype({"query": str, "document": str})
    for by in ("uncertain", "disputed"):
        sheet = document_sheet(found, by)
        assert sheet is not None
        assert sheet.columns[-1].kind == "words"
        for document, query, *_, line in sheet.rows[:40]:
            of = judged[(judged["query"] == query) & (judged["document"] == document)]
            answers = re.findall(r"(\S+): (\d+) \((?:reversed, )?(much|usual|little|nothing)\)", line)
            assert sorted(answer[:2] for answer in answers) == sorted(
                zip(of["assessor"], of["grade"].astype(str), strict=True)
            )
            nats = found.assessors.set_index("assessor")["informativeness"][[who for who, *_ in answers]]
            assert nats.is_monotonic_decreasing
            words = [word for *_, word in answers]
            assert words == sorted(words, key=["much", "usual", "little", "nothing"].index)


def test_votes_have_no_weights_and_many_answers_are_cut(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ReportData.read(alone)
    places = range(len(found.documents))
    assert not any("(" in line for line in Answered(found).lines(places).values())
    monkeypatch.setattr("crowdrank.reports.tables.MOST_ANSWERS", 2)
    lines = Answered(found).lines(places)
    n = found.documents["judgments"].to_numpy()
    assert n.max() > 2
    assert all(line.endswith(f" and {n[at] - 2} more") == (n[at] > 2) for at, line in lines.items())
    assert all(line.count(": ") == min(n[at], 2) for at, line in lines.items())


def test_every_number_of_documents_is_explained(found: ReportData, page: str) -> None:
    counts = {name: n for name, n, _ in found.kinds_of_documents}
    judged, planted = counts["judged by the crowd"], counts["honeypots among them"]
    assert found.model is not None
    assert planted == judged - found.model.judgments_.n_items > 0
    assert counts["labeled"] == judged - planted
    assert counts["learned from"] == counts["labeled"], "every judged document of this world has features"
    assert counts["labeled and graded"] == len(found.against_experts)
    text = " ".join(unescape(page).split())
    assert f"on {judged:,} documents ({planted:,} of them honeypots)" in text
    assert f"{counts['labeled']:,} documents are labeled: the {judged:,} that were judged, less {planted:,}" in text


def test_the_call_of_a_run_from_frames_is_told(page: str, found: ReportData) -> None:
    told = re.search(r'<pre id="again">(.*?)</pre>', page, re.DOTALL)
    assert told
    assert unescape(told.group(1)) == found.about["origin"]["python"]
    old = replace(found, about={name: value for name, value in found.about.items() if name != "origin"})
    assert "did not keep the names of its files" in again(old)[0]
    typed = replace(found, about={**found.about, "origin": {"command": "crowdrank run -j '<b>'"}})
    assert again(typed)[1] == "crowdrank run -j '<b>'"


def test_differences_and_p_values_are_told_as_such(found: ReportData) -> None:
    sheet = ranker_sheet(found)
    kinds = {column.title: (column.kind, column.signed) for column in sheet.columns}
    assert kinds["over majority"] == ("interval", True)
    assert kinds["p"] == kinds["p (Holm)"] == ("p", False)
    assert [column.title for column in sheet.columns][:2] == ["candidate", "nDCG@10, test"], "what matters comes first"
    small = found.comparison.assign(**{"nDCG@10 p": 0.0001})
    place = [column.title for column in sheet.columns].index("p")
    assert ranker_sheet(replace(found, comparison=small)).rows[0][place] == 0.0001, "rounding makes no 0 of it"


def test_times_and_costs_have_units(found: ReportData) -> None:
    def helps(units: dict[str, str]) -> dict[str, str]:
        told = replace(found, about={**found.about, "origin": {"units": units}})
        return {column.title: column.help for column in assessor_sheet(told).columns}

    def heads(units: dict[str, str]) -> list[str]:
        return list(helps(units))

    assert helps({"cost": "US dollars"})["paid (US dollars)"].endswith("in US dollars")
    assert helps({"cost": "simulated"})["paid (simulated)"].endswith("; simulated, in no unit of the world")
    assert {"time per judgment (as in your file)", "paid (as in your file)"} <= set(heads({}))
    assert {"time per judgment (seconds)", "paid (US dollars)"} <= set(
        heads({"duration": "seconds", "cost": "US dollars"})
    )


def test_every_relevance_says_its_scale(found: ReportData, alone: Path) -> None:
    for findings, unit in ((found, "standard deviations"), (ReportData.read(alone), "grades")):
        sheet = document_sheet(findings, "uncertain")
        assert sheet is not None
        assert [column.title for column in sheet.columns][2] == f"relevance ({unit})"
        assert unit in sheet.columns[3].help


def test_without_experts_it_says_so(alone: Path) -> None:
    found = ReportData.read(alone)
    told: list[Answer] = answers(found)
    assert told[0].short == "Not tested"
    assert (told[2].short, told[2].tone) == ("Not checked", "open")
    assert not any("discounts" in sentence for sentence in told[2].sentences), "votes discount nobody"
    page = render(found)
    assert "Let experts grade 50 queries" in page
    assert "Nothing was remapped here" in page
    assert "Agreement within and between families" in page, "families have a chart where they are named"


@pytest.mark.usefixtures("no_charts")
def test_a_baseline_that_is_chosen_is_no_victory(found: ReportData) -> None:
    told = replace(found, about={**found.about, "chosen": found.baseline})
    assert better(told).tone == "open"
    assert how_much(told).interval is None
    render(told)


@pytest.mark.usefixtures("no_charts")
def test_without_altair_the_report_opens_and_says_how(found: ReportData) -> None:
    page = render(found)
    assert "<img" not in page
    assert "pip install 'crowdrank[report]'" in unescape(page)
    assert {row[0] for row in embedded(page, "assessors")["rows"]} == set(found.assessors["assessor"])


CORE_ONLY = """
import sys
sys.modules |= {"altair": None, "vl_convert": None}
import crowdrank
print(crowdrank.write_report(sys.argv[1], sys.argv[2]))
try:
    from crowdrank.reports import charts
except crowdrank.errors.UsageError as problem:
    print(problem)
"""


def test_a_core_install_reports_and_says_what_charts_need(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "core.html"
    done = subprocess.run([sys.executable, "-c", CORE_ONLY, whole, out], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        str(out),
        "Charts need Altair; install it with: pip install 'crowdrank[report]'.",
    ]
    assert "No charts" in out.read_text()


@pytest.mark.usefixtures("no_charts")
def test_hostile_ids_are_text(hostile: Path, names: tuple[str, ...]) -> None:
    found = ReportData.read(hostile)
    page = render(found)
    assert page.count("<script") == 1 + page.count('<script type="application/json"')
    for name in ("assessors", "uncertain"):
        assert embedded(page, name)["rows"]
    shown = {row[0] for row in embedded(page, "assessors")["rows"]}
    assert {plain_id(name, 200) for name in names} <= shown, "an id is shown as it is, NA and 007 too"
    body = re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.DOTALL)
    assert not re.search(r"<(img|b|i)\b(?! src=\"data:image)", body)
    assert "49" not in re.findall(r"7\*7[^<]*", body)


def test_hostile_ids_are_text_in_markdown(hostile: Path) -> None:
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render((hostile / "report.md").read_text())
    own = {"!--", "h1", "h2", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    assert set(re.findall(r"<([^\s>/]+)", rendered)) == own
    body = unescape(re.sub(r"<!-- -->", "", rendered))
    shown = pd.read_csv(hostile / "next.csv", dtype=str, keep_default_na=False).head(N_ROWS)
    for cell in (*shown["query"], *shown["document"]):
        assert f"<td>{visible(cell)}</td>" in body


def test_very_many_rows_are_cut_and_it_is_said(found: ReportData) -> None:
    n = 20_000
    many = pd.concat([found.assessors] * (n // len(found.assessors) + 1), ignore_index=True).head(n)
    many["assessor"] = [f"assessor-with-a-rather-long-id-{at:08d}" for at in range(n)]
    documents = pd.concat([found.documents] * 500, ignore_index=True)
    documents["document"] = [f"https-www-example-org-some-page-{at:08d}" for at in range(len(documents))]
    told = replace(found, assessors=many, documents=documents, model=None)
    page = render(told)
    assert len(page.encode()) < LARGEST
    sheet = embedded(page, "assessors")
    assert (sheet["total"], len(sheet["rows"])) == (n, 5000)
    bad = many["flag"].isin(["random", "reversed"]).sum()
    assert sum(row[1] in ("drop", "check") for row in sheet["rows"]) == min(bad, 5000), (
        "the flagged are never cut first"
    )
    assert embedded(page, "uncertain")["total"] == len(documents)


def test_a_folder_of_another_kind_or_a_damaged_one_is_refused(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no crowdrank\.json"):
        write_report(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy, ignore=shutil.ignore_patterns("stages", "report.html"))
    (copy / "comparison.csv").unlink()
    (copy / "report.html").unlink(missing_ok=True)
    with pytest.raises(InputError, match=r"there is no comparison\.csv"):
        write_report(copy)
    assert not (copy / "report.html").exists()
    with pytest.raises(OutputError, match="does not exist"):
        write_report(whole, tmp_path / "nowhere" / "report.html")


@pytest.mark.usefixtures("no_charts")
def test_a_folder_without_the_model_gives_less_but_opens(whole: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy, ignore=shutil.ignore_patterns("stages", "report.html"))
    shutil.rmtree(copy / "consensus")
    page = write_report(copy).read_text()
    assert 'id="data-uncertain"' in page
    assert 'id="data-disputed"' not in page


@pytest.mark.usefixtures("no_charts")
def test_the_same_run_gives_the_same_page(whole: Path) -> None:
    assert render(ReportData(RunResult.load(whole), whole)) == render(ReportData(RunResult.load(whole), whole))


def test_the_same_chart_gives_the_same_picture() -> None:
    chart = charts.confusion([0, 1, 1], [0, 0, 1])
    assert embedded_charts.drawn("documents", chart) == embedded_charts.drawn("documents", chart)


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_whatever_ids_hold_no_script_element_ends(value: Any) -> None:
    told = in_script(value)
    assert not set(told) & set("<>&\u2028\u2029")
    assert json.loads(told) == value


def test_sheets_have_a_cell_for_every_column(found: ReportData) -> None:
    for sheet in (assessor_sheet(found), ranker_sheet(found), document_sheet(found, "disputed")):
        assert sheet is not None
        assert all(len(row) == len(sheet.columns) for row in sheet.rows)


def test_notebooks_show_our_objects_and_ids_stay_text(names: tuple[str, ...]) -> None:
    votes = pd.DataFrame(
        {
            "query": "q",
            "document": ["a", "b"] * 3,
            "assessor": [names[0], names[0], "y", "y", "z", "z"],
            "grade": [1, 0] * 3,
        }
    )
    model = crowdrank.DawidSkene()
    assert "not fitted yet" in model._repr_html_()
    model.fit(votes)
    world = crowdrank.simulate(queries=12, documents=6, random_state=1)
    runs = {names[1]: world.gold.assign(score=1.0), "b": world.gold.assign(score=world.gold["grade"])}
    comparison: Comparison = crowdrank.compare(runs, world.gold, "AP")
    done = crowdrank.run(world.judgments, world.features, candidates=["gls"])
    shown = [
        model._repr_html_(),
        model.consensus_._repr_html_(),
        comparison._repr_html_(),
        crowdrank.assess(model)._repr_html_(),
        done._repr_html_(),
        done.ranker._repr_html_(),
    ]
    for html in shown:
        assert "<table>" in html
        assert "<script" not in html
    assert "&lt;script&gt;" in shown[0]
    assert done.paragraph in unescape(shown[4])


@pytest.mark.parametrize("method", METHODS)
def test_every_model_shows_itself_in_a_notebook(method: str) -> None:
    world = crowdrank.simulate(queries=6, documents=5, families=2, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        shown = get_aggregator(method).fit(world.judgments)._repr_html_()
    assert shown.count("<table>") == 2
    assert type(get_aggregator(method)).__name__ in shown


def test_remappers_show_themselves_in_a_notebook() -> None:
    world = crowdrank.simulate(queries=24, documents=6, random_state=5)
    remapper = crowdrank.LinearRemapper(n_iter=2, ridge=0.1)
    assert "not fitted yet" in remapper._repr_html_()
    shown = remapper.fit(world.judgments, world.features, world.gold)._repr_html_()
    assert "on the validation queries" in shown
    assert "<table>" in shown


def test_simple_ways_stand_on_the_first_screen(found: ReportData) -> None:
    mean = {name: found.candidate(name)[f"{found.measure} mean"] for name in (found.chosen, "average", "expert-only")}
    for name, line in zip(("average", "expert-only"), better(found).beside, strict=False):
        off = mean[found.chosen] - mean[name]
        assert line.startswith(f"{signed(100 * off / mean[name], 1)}% {'over' if off > 0 else 'against'} {name}: ")
        p = re.search(f"{name} p (?:< )?([0-9.]+[0-9])", better(found).sentences[1])
        assert p
        assert line.endswith("within chance" if float(p[1]) > 0.05 else "beyond chance")
    assert found.per_query is not None
    few = found.per_query[found.per_query["candidate"].isin([found.chosen, "majority"])]
    assert not better(replace(found, per_query=few)).beside
    against = re.search(r"against average \(.*?p (.*?)[,)]", found.about["paragraph"])
    assert found.chosen == "average" or (against and f"average p {against[1]}" in better(found).sentences[1])
    assert what_next(found).command.startswith("crowdrank rank -m ")


@pytest.mark.parametrize("method", METHODS)
def test_the_scale_of_relevance_is_that_of_the_numbers(method: str) -> None:
    world = crowdrank.simulate(queries=12, documents=6, families=2, honeypots=0, random_state=1)
    frame = world.judgments[["query", "document", "assessor", "family"]].assign(grade=world.judgments["grade"] + 10)
    model = get_aggregator(method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(crowdrank.read_judgments(frame, grades="10,11,12,13,14"))
    relevance = model.consensus_.documents["relevance"]
    assert model.in_grades == (relevance.mean() > 5), "grades begin with 10, a line has 0 in the middle"
    if model.answer_states() is not None:
        curves = model.grade_curves(frame["assessor"].iloc[0])
        assert len(curves) == (len(NODES) if model.assessor_estimator_.on_a_line else 5)
        assert (curves.filter(regex=r"^p\d").sum(axis=1) > 0.9).all()


@pytest.mark.usefixtures("no_charts")
def test_only_what_asks_for_care_is_yellow(found: ReportData) -> None:
    calm, stern = "54 honeypots are left out. There is nothing to do.", "One grade only: have more graded."

    def parts(notes: list[str]) -> tuple[str, str]:
        page = unescape(render(replace(found, about={**found.about, "notes": notes})))
        first, _, rest = page.partition('id="rankers"')
        return first, rest

    first, rest = parts([calm, stern])
    assert stern in first
    assert calm not in first
    assert calm in rest
    first, rest = parts([calm])
    assert 'class="notes"' not in first
    assert "Good to know" in rest
    assert "Good to know" not in parts([stern])[1]


def test_candidates_left_out_are_told_apart(found: ReportData, no_charts: None) -> None:
    name = next(name for name in found.comparison["candidate"] if name not in (found.chosen, found.baseline))
    told = replace(found, about={**found.about, "left_out": {name: "no <time>"}})
    assert len(ranker_sheet(told).rows) == len(ranker_sheet(_all_tried(found)).rows) - 1 == ranker_sheet(told).total
    assert f"Left out, and not in the table: {name} (no <time>)." in unescape(render(told))
    assert "Left out, and" not in render(_all_tried(found))


def _all_tried(found: ReportData) -> ReportData:
    return replace(found, about={**found.about, "left_out": {}})


def test_one_assessor_is_not_judged(found: ReportData, no_charts: None) -> None:
    one = found.assessors.head(1).assign(flag="")
    told = replace(found, assessors=one, about={**found.about, "sizes": {**found.sizes, "assessors": 1}})
    assert trust(told).sentences[-1].startswith("With one assessor nobody can be told apart")
    assert what_next(told).steps[0].startswith("Have a second assessor judge some of the same documents")
    page = render(told)
    assert "by 1 assessor on" in page
    assert "None of" not in page


def test_the_chart_has_the_median_of_the_evidence(found: ReportData) -> None:
    table = found.assessors.copy()
    table.loc[table["informativeness"].nlargest(8).index, "flag"] = "few"
    spec = charts.informativeness(table).to_dict()
    drawn = [row["x"] for data in spec["datasets"].values() for row in data if "x" in row]
    usual = replace(found, assessors=table).usual_information
    assert drawn == [usual]
    assert usual < table["informativeness"].median()
    assert "flag few left out" in spec["title"]["subtitle"][0]


def test_documents_that_next_csv_leaves_out_are_marked(found: ReportData) -> None:
    sheet = document_sheet(found, "uncertain")
    assert sheet is not None
    asked = set(zip(found.next["query"].astype(str), found.next["document"].astype(str), strict=True))
    marked = [row[-1].startswith("graded by an expert; ") for row in sheet.rows]
    assert marked == [(query, document) not in asked for document, query, *_ in sheet.rows]
    assert set(marked) == {True, False}


def test_pairs_and_the_offset_from_experts_are_shown(page: str, found: ReportData) -> None:
    assert found.pairs is not None
    rows = embedded(page, "pairs")["rows"]
    assert {(row[0], row[1]) for row in rows} <= set(zip(found.pairs["assessor"], found.pairs["other"], strict=True))
    kappas = [row[-1] for row in rows if row[-1] is not None]
    assert kappas == sorted(kappas, reverse=True)
    assert found.expert_offset is not None
    assert f"{found.expert_offset}." in trust(found).sentences
    assert real_minus(str(found.expert_offset)) in unescape(page)


def test_the_weight_in_the_consensus_is_the_consensus_models_own(found: ReportData) -> None:
    assert found.model is not None
    fitted = found.model.consensus_.assessors.set_index("assessor")["informativeness"]
    one = found.assessors.head(1)
    assert f"({fitted[one['assessor'].iloc[0]]:.3f} nats per answer" in found.weight_in_consensus(one)
