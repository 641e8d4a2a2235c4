"""The page: its cards, tables and sections, its size, and that ids stay text."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import crowdrank
from crowdrank import MajorityVote
from crowdrank._glossary import GLOSSARY
from crowdrank._text import escape_invisible, format_p, minus_signs, one_line, percent, signed
from crowdrank.assessors.agreement import wilson
from crowdrank.assessors.assessor_report import CARELESS
from crowdrank.consensus.families import describe_effective_assessors, effective_assessors
from crowdrank.consensus.model import Aggregator
from crowdrank.errors import CrowdrankWarning, InputError, Message, OutputError, UsageError
from crowdrank.pipeline.contrasts import Contrast, adjust_contrasts, decide_verdict, detectable_standard_errors
from crowdrank.pipeline.result_tables import MAX_TABLE_ROWS, markdown
from crowdrank.pipeline.run_result import RunResult
from crowdrank.reports import cards, charts, svg_images
from crowdrank.reports import page as report_page
from crowdrank.reports import report_tables as report_tables
from crowdrank.reports.cards import better_card, gain_card, make_cards, next_card, short_answers, trust_card
from crowdrank.reports.page import flag_counts, render, script_json, write_report
from crowdrank.reports.report_data import ReportData
from crowdrank.reports.report_tables import (
    AnswerList,
    Table,
    assessor_table,
    document_table,
    feature_table,
    make_tables,
    ranker_table,
)

MAX_BYTES = 6_000_000


@pytest.fixture(scope="module")
def page(ranker_data: ReportData) -> str:
    return render(ranker_data)


@pytest.fixture
def no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make charts unavailable, which also makes rendering fast."""
    monkeypatch.setattr(svg_images, "find_spec", lambda name: None)


def load_data(folder: Path) -> ReportData:
    return ReportData(RunResult.load(folder), folder)


def with_result(data: ReportData, **changes: Any) -> ReportData:
    return ReportData(replace(data.result, **changes), data.folder)


def with_rankers(data: ReportData, **changes: Any) -> ReportData:
    return with_result(data, rankers=replace(data.rankers, **changes))


def with_tables(data: ReportData, **frames: pd.DataFrame) -> ReportData:
    tables = {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in frames.items()}
    return with_result(data, tables={**data.result.tables, **tables})


def with_contrast(data: ReportData, **figures: Any) -> ReportData:
    """Return the data with other figures in the comparison with the baseline, which is the only alternative."""
    contrast = data.rankers.contrast(data.chosen, data.baseline)
    assert contrast is not None
    others = tuple(one for one in data.rankers.contrasts if one is not contrast)
    (new,) = adjust_contrasts([replace(contrast, **figures)])
    return with_rankers(data, contrasts=(new, *others), verdict=decide_verdict([new]))


def embedded(page: str, name: str) -> Any:
    match = re.search(f'<script type="application/json" id="data-{name}">(.*?)</script>', page, re.DOTALL)
    assert match
    return json.loads(match.group(1))


def cells(table: Table | Message, title: str) -> list[Any]:
    assert isinstance(table, Table)
    place = [column.title for column in table.columns].index(title)
    return [row[place] for row in table.rows]


def test_cards_come_before_the_sections(page: str, ranker_data: ReportData) -> None:
    questions = [card.question for card in make_cards(ranker_data)]
    assert questions == ["Is my ranker better?", "By how much?", "Can I trust the labels?", "What next?"]
    places = [page.index(question, page.index("<main>")) for question in questions]
    assert places == sorted(places)
    assert places[-1] < page.index('id="rankers"')
    text = unescape(page)
    for sentence in (*ranker_data.result.summary, *ranker_data.result.protocol):
        assert minus_signs(sentence) in text


def test_the_page_requests_nothing_and_allows_one_script(page: str) -> None:
    assert "default-src 'none'" in unescape(page)
    assert "unsafe-inline" not in page
    sources = re.findall(r'(?:src|href)="([^"]{0,30})', page)
    assert sources
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert page.count("<script>") == 1
    assert "http://" not in re.sub(r"data:image[^\"]*", "", page).replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def test_tables_have_all_rows_in_order_and_help_for_every_column(page: str, ranker_data: ReportData) -> None:
    tables = {name: table for name, table in make_tables(ranker_data).items() if isinstance(table, Table)}
    assert set(tables) == {"rankers", "features", "assessors", "pairs", "next", "disputed"}
    for name, table in tables.items():
        assert embedded(page, name)["rows"] == table.rows
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert all(column.help and column.help != column.title for column in table.columns)
    assert set(cells(tables["assessors"], "assessor")) == set(ranker_data.assessors["assessor"])
    names = {name.removesuffix(" (selected)") for name in cells(tables["rankers"], "candidate")}
    assert names == set(ranker_data.comparison["candidate"]) - set(ranker_data.rankers.left_out)
    for name, title in (("disputed", "spread (grades)"), ("pairs", "kappa")):
        values = [value for value in cells(tables[name], title) if value is not None]
        assert values == sorted(values, reverse=True)
        assert tables[name].columns[tables[name].sorted_by].title == title


def test_votes_and_dispute_equal_counting(ranker_data: ReportData) -> None:
    table = ranker_data.assessors.set_index("assessor")
    informative = table.index[
        (table["informativeness"] >= CARELESS * ranker_data.median_informativeness) & (table["flag"] != "reversed")
    ]
    assert 0 < len(informative) < len(table)
    judged = ranker_data.model.judgments_.frame.astype({"query": str, "document": str})
    grades = judged.groupby(["query", "document"])["grade"]
    is_informative = judged["assessor"].isin(informative)
    for at in range(0, len(ranker_data.documents), 17):
        row = ranker_data.documents.iloc[at]
        answers = grades.get_group((str(row["query"]), str(row["document"])))
        assert ranker_data.votes[at].tolist() == [int((answers == value).sum()) for value in ranker_data.grade_values]
        assert ranker_data.dispute[at] == pytest.approx(answers[is_informative[answers.index]].std(), nan_ok=True)


def test_documents_with_equal_answers_are_not_disputed(
    monkeypatch: pytest.MonkeyPatch, labels_data: ReportData
) -> None:
    spread = np.array([0.0, 0.5, np.nan, 1.5, 0.0, 0.5])
    monkeypatch.setitem(labels_data.__dict__, "dispute", spread)
    assert labels_data.most_disputed().tolist() == [3, 1, 5]
    monkeypatch.setitem(labels_data.__dict__, "dispute", np.zeros(6))
    assert labels_data.most_disputed().tolist() == []
    assert report_page._disputed_trace(labels_data) is None


def test_paid_is_the_sum_of_costs(ranker_data: ReportData) -> None:
    judgments = ranker_data.model.judgments_
    assessor = np.array(judgments.assessors.to_pylist())[judgments.assessor]
    cost = pd.DataFrame({"assessor": assessor, "cost": judgments.extras["cost"]})
    assert ranker_data.cost_by_assessor == pytest.approx(cost.groupby("assessor")["cost"].sum().to_dict())


def test_trust_follows_the_agreement_with_experts(ranker_data: ReportData) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    graded = ranker_data.against_experts
    assert len(graded) > 20
    assert ranker_data.result.same_scale
    kappa = ranker_data.kappa_with_experts("consensus")
    assert kappa == pytest.approx(
        metrics.cohen_kappa_score(graded["consensus"].astype(int), graded["expert"].astype(int), weights="quadratic")
    )
    assert f"{kappa:.2f}" in trust_card(ranker_data).sentences[0]
    n_equal = int((graded["consensus"] == graded["expert"]).sum())
    lower, upper = (percent(float(end)) for end in wilson(n_equal, len(graded)))
    assert f"95% interval {lower} to {upper}" in trust_card(ranker_data).sentences[0]
    other_scale = with_result(ranker_data, same_scale=False)
    assert "Spearman" in trust_card(other_scale).sentences[0]


def test_expert_grades_of_a_scale_of_equal_length_correspond_by_position(ranker_data: ReportData) -> None:
    documents = ranker_data.result.tables["documents"]
    shifted = documents.set_column(
        documents.column_names.index("expert"), "expert", pc.add(documents["expert"], pa.scalar(1.0))
    )
    tables = {**ranker_data.result.tables, "documents": shifted}
    other = with_result(ranker_data, tables=tables, expert_grades=(1.0, 2.0, 3.0, 4.0, 5.0))
    assert other.against_experts["expert"].tolist() == ranker_data.against_experts["expert"].tolist()


def test_meanings_of_flags_name_the_reference(ranker_data: ReportData) -> None:
    table = ranker_data.result.tables["assessors"]
    n = len(table)
    flags = pa.array(["strict"] * 2 + ["lenient"] * 2 + [""] * (n - 4))
    references = pa.array(["experts"] * 3 + ["others"] * (n - 3))
    for name, column in (("flag", flags), ("bias_reference", references)):
        table = table.set_column(table.column_names.index(name), name, column)
    data = with_result(ranker_data, tables={**ranker_data.result.tables, "assessors": table})
    meanings = {row["flag"]: row["help"] for row in flag_counts(data)}
    assert "than the experts on" in meanings["strict"]
    assert "than the experts or other assessors on" in meanings["lenient"]


@pytest.mark.usefixtures("no_charts")
def test_families_count_as_fewer_assessors(labels_data: ReportData) -> None:
    frame = labels_data.model.judgments_.frame
    families = frame.assign(family=frame["assessor"].str[-1])
    result = crowdrank.run(families, method="one-coin")
    n_eff = effective_assessors(result.model)
    assert n_eff is not None
    sentence = describe_effective_assessors(families["assessor"].nunique(), n_eff)
    assert f"count as {n_eff:.1f}" in sentence
    for text in (" ".join(result.summary), markdown(result), render(ReportData(result, labels_data.folder))):
        assert sentence in text
    assert "count as" not in " ".join(labels_data.result.summary)


@pytest.mark.usefixtures("no_charts")
def test_equal_weights_are_claimed_only_for_votes_and_averages(labels_data: ReportData) -> None:
    frame = labels_data.model.judgments_.frame
    families = frame.assign(family=frame["assessor"].str[-1])
    tables = {"average": frame, "family-mean": families, "highest": frame, "auto": families}
    found = {
        method: ReportData(crowdrank.run(table, method=method), labels_data.folder) for method, table in tables.items()
    }
    assert found["average"].equal_weights == "the same weight as all others"
    assert "family" in found["family-mean"].equal_weights
    assert not found["highest"].equal_weights
    n_families = families["family"].nunique()
    assert found["family-mean"].sizes["families"] == n_families
    assert f"in {n_families} families on" in render(found["family-mean"])
    assert "same weight" not in render(found["family-mean"])
    assert set(found["family-mean"].assessors["family"]) == set(families["family"])
    assert "family" not in found["average"].assessors
    # A method that chooses others names them.
    auto = found["auto"].result
    chosen = auto.model.reason_.ranking  # type: ignore[attr-defined]
    assert chosen in auto.to_dict()["consensus_method"]
    for text in (" ".join(auto.summary), markdown(auto), render(found["auto"])):
        assert f"auto ({chosen}" in text


def test_agreement_is_that_of_the_grades_in_the_files(ranker_data: ReportData) -> None:
    graded = ranker_data.against_experts
    written = ranker_data.result.tables["documents"].to_pandas().set_index(["query", "document"])["grade"]
    places = pd.MultiIndex.from_frame(graded[["query", "document"]])
    assert graded["consensus"].tolist() == written.loc[places].astype(int).tolist()
    votes = MajorityVote().fit(ranker_data.model.judgments_).consensus_.documents
    majority = pd.DataFrame(votes).set_index(["query", "document"])["grade"]
    assert graded["majority"].tolist() == majority.loc[places].astype(int).tolist()


def test_the_terminal_also_answers_for_the_baseline(ranker_data: ReportData) -> None:
    rankers = ranker_data.rankers
    assert rankers.verdict is not None
    for decisive, n in ((ranker_data.baseline, 0), ("average", 1)):
        verdict = replace(rankers.verdict, decisive=decisive)
        answers = dict(short_answers(with_rankers(ranker_data, verdict=verdict)))
        found = set(answers) - {"Is my ranker better?", "By how much?", "Can I trust the labels?"}
        assert len(found) == n
        contrast = rankers.contrast(ranker_data.chosen, ranker_data.baseline)
        assert contrast is not None
        assert contrast.percent is not None
        assert all(answers[question].startswith(f"{signed(contrast.percent, 1)}%") for question in found)


def test_a_consensus_that_is_worse_than_majority_votes_is_not_trusted(
    ranker_data: ReportData, monkeypatch: pytest.MonkeyPatch
) -> None:
    graded = ranker_data.against_experts
    worse = (graded["expert"] + (np.arange(len(graded)) % 3 == 0)).clip(upper=4)
    other = ReportData(ranker_data.result, ranker_data.folder)
    monkeypatch.setitem(vars(other), "against_experts", graded.assign(consensus=worse, majority=graded["expert"]))
    card = trust_card(other)
    assert card.tone == "open"
    assert "majority votes: 1.00); majority votes agree better" in card.sentences[0]


@pytest.mark.parametrize(
    ("figures", "answer", "tone"),
    [
        ((0.05, 0.02, 0.08, 0.01), "Yes", "good"),
        ((0.05, -0.01, 0.11, 0.2), "Not shown", "open"),
        ((-0.05, -0.11, 0.01, 0.2), "Not shown", "open"),
        ((-0.05, -0.08, -0.02, 0.01), "No, it is worse", "bad"),
    ],
)
def test_better_or_not(
    ranker_data: ReportData, figures: tuple[float, float, float, float], answer: str, tone: str
) -> None:
    difference, lower, upper, p = figures
    data = with_contrast(ranker_data, difference=difference, lower=lower, upper=upper, p=p)
    card, gain = better_card(data), gain_card(data)
    assert (card.answer, card.tone) == (answer, tone)
    assert card.versus.endswith("majority votes")
    assert gain.interval == (lower, difference, upper)
    assert gain.tone == tone
    is_open_gain = answer == "Not shown" and difference > 0
    assert any("test queries" in step for step in next_card(data).steps) == is_open_gain


def test_documents_that_all_assessors_judged_are_not_judged_again(ranker_data: ReportData) -> None:
    table, n = ranker_data.next.head(3), len(ranker_data.assessors)
    some = with_tables(ranker_data, next=table.assign(judgments=[n, 2, n]))
    (step,) = [step for step in next_card(some).steps if "next.csv" in step]
    assert str(table["document"].iloc[1]) in step
    assert str(table["document"].iloc[0]) not in step
    (step,) = [
        step for step in next_card(with_tables(some, next=table.assign(judgments=n))).steps if "next.csv" in step
    ]
    assert step.startswith("All assessors judged")


@pytest.mark.parametrize(
    ("command", "file"), [("", "new.letor"), ("run -f x/a.tsv.gz -o b", "new.tsv.gz"), ("run -f a.b.csv", "new.csv")]
)
def test_the_command_names_the_format_of_the_features(ranker_data: ReportData, command: str, file: str) -> None:
    data = with_result(ranker_data, provenance=replace(ranker_data.result.provenance, command=command))
    assert f" -f {file} " in next_card(data).command


def test_comparisons_with_simple_candidates_are_on_the_first_screen(ranker_data: ReportData) -> None:
    lines = better_card(ranker_data).comparisons
    verdict = ranker_data.rankers.verdict
    assert verdict is not None
    names = [name for name in ("majority", "average", "expert-only") if name != verdict.decisive]
    assert len(lines) == len(names)
    for name, line in zip(names, lines, strict=True):
        contrast = ranker_data.rankers.contrast(ranker_data.chosen, name)
        assert contrast is not None
        assert contrast.percent is not None
        assert line.startswith(f"{signed(contrast.percent, 1)}%")
        assert ("not significant" in line) == (contrast.adjusted_p > 0.05)
        assert format_p(contrast.adjusted_p) in line


def test_the_number_of_test_queries_follows_from_the_interval(ranker_data: ReportData) -> None:
    error = 0.05
    data = with_contrast(ranker_data, difference=0.05, lower=0.05 - 1.96 * error, upper=0.05 + 1.96 * error, p=0.3)
    contrast = data.rankers.contrast(data.chosen, data.baseline)
    assert contrast is not None
    n_tests = sum(one.p_holm is not None for one in data.rankers.contrasts)
    assert n_tests > 1
    needed = int(np.ceil(round(contrast.n_queries * detectable_standard_errors(n_tests) ** 2, 6)))
    assert any(f"about {needed:,} test queries" in step for step in next_card(data).steps)


def test_random_assessors_are_named(ranker_data: ReportData) -> None:
    flagged = ranker_data.assessors[ranker_data.assessors["flag"] == "random"]
    assert len(flagged)
    step = next_card(ranker_data).steps[0]
    assert all(name in step for name in flagged.sort_values("judgments", ascending=False)["assessor"].head(5))
    assert f"{flagged['judgments'].sum():,} judgments" in step
    assert "almost no weight" in step
    reliable = ranker_data.assessors[~ranker_data.assessors["flag"].isin(["random", "reversed"])]
    data = with_tables(ranker_data, assessors=reliable)
    assert not any("at random" in step for step in next_card(data).steps)
    assert trust_card(data).sentences[-1].startswith("None of")


@pytest.mark.parametrize(("slope", "is_inverted"), [(-1.0, True), (0.1, False)])
def test_reversed_assessors_are_named(ranker_data: ReportData, slope: float, is_inverted: bool) -> None:
    table = ranker_data.assessors.assign(flag="")
    table.loc[:1, "flag"], table.loc[:1, "model_direction"] = "reversed", slope
    step = next_card(with_tables(ranker_data, assessors=table)).steps[0]
    assert all(name in step for name in table["assessor"].head(2))
    assert f"{table['judgments'].head(2).sum():,} judgments" in step
    assert ("inverted" in step) == is_inverted


def test_majority_votes_do_not_invert_reversed_assessors(majority_run: Path) -> None:
    data = load_data(majority_run)
    table = data.assessors.assign(flag="")
    table.loc[0, "flag"] = "reversed"
    step = next_card(with_tables(data, assessors=table)).steps[0]
    assert "exclude these assessors" in step


def test_answers_below_documents_equal_the_judgments(ranker_data: ReportData) -> None:
    judged = ranker_data.model.judgments_.frame.astype({"query": str, "document": str})
    informativeness = ranker_data.assessors.set_index("assessor")["informativeness"]
    levels = ["high", "typical", "low", "none"]
    for name in ("next", "disputed"):
        table = make_tables(ranker_data)[name]
        assert isinstance(table, Table)
        for document, query, *_, line in table.rows[:40]:
            rows = judged[(judged["query"] == query) & (judged["document"] == document)]
            answers = re.findall(r"(\S+): (\d+) \((?:reversed, )?(\w+)\)", line)
            expected = zip(rows["assessor"], rows["grade"].astype(str), strict=True)
            assert sorted(answer[:2] for answer in answers) == sorted(expected)
            assert informativeness[[who for who, *_ in answers]].is_monotonic_decreasing
            order = [levels.index(level) for *_, level in answers]
            assert order == sorted(order)


def test_many_answers_are_cut_and_votes_have_no_levels(majority_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_data(majority_run)
    rows = data.documents.assign(place=range(len(data.documents))).to_dict("records")
    list_answers = AnswerList(data)
    assert not any("(" in list_answers(row) for row in rows)
    monkeypatch.setattr("crowdrank.reports.report_tables.MAX_ANSWERS", 2)
    assert max(row["judgments"] for row in rows) > 2
    for row in rows:
        line, n = list_answers(row), row["judgments"]
        assert line.endswith(f" and {n - 2} more") == (n > 2)
        assert line.count(": ") == min(n, 2)


def test_expert_graded_documents_are_marked(ranker_data: ReportData) -> None:
    table = make_tables(ranker_data)["disputed"]
    assert isinstance(table, Table)
    rows = table.rows
    without_expert = set(zip(ranker_data.next["query"], ranker_data.next["document"], strict=True))
    marked = [row[-1].startswith("graded by an expert; ") for row in rows]
    assert marked == [(query, document) not in without_expert for document, query, *_ in rows]
    assert set(marked) == {True, False}


def test_the_numbers_of_documents_add_up(ranker_data: ReportData, page: str) -> None:
    counts = {name: n for name, n, _ in ranker_data.document_counts}
    judged, honeypots = counts["judged by the crowd"], counts["honeypots"]
    assert honeypots == judged - ranker_data.model.judgments_.n_items > 0
    assert counts["labeled"] == judged - honeypots
    assert counts["in training"] == counts["labeled"]
    assert counts["labeled and graded"] == len(ranker_data.against_experts)
    text = re.sub(r"<[^>]*>", "", unescape(page))
    assert all(f"{n:,}" in text for n in counts.values())


@pytest.mark.usefixtures("no_charts")
def test_the_command_or_call_is_shown(ranker_data: ReportData) -> None:
    provenance = ranker_data.result.provenance
    for changed in (provenance, replace(provenance, command="crowdrank run -j '<b>'", python="")):
        html = render(with_result(ranker_data, provenance=changed))
        match = re.search(r'<pre id="again">(.*?)</pre>', html, re.DOTALL)
        assert match
        assert unescape(match.group(1)) == (changed.command or changed.python)


def test_differences_have_signs_and_p_values_are_not_rounded_to_zero(ranker_data: ReportData) -> None:
    table = ranker_table(ranker_data)
    kinds = {column.title: (column.kind, column.signed) for column in table.columns}
    assert kinds["over majority"] == ("interval", True)
    assert kinds["p (Holm)"] == ("p", False)
    assert "p" not in kinds
    assert [column.title for column in table.columns][:2] == ["candidate", "nDCG@10, test"]
    small = ranker_data.comparison.assign(**{"nDCG@10 p_holm": 0.0001})
    assert cells(ranker_table(with_tables(ranker_data, comparison=small)), "p (Holm)")[0] == 0.0001


def test_times_and_costs_have_units(ranker_data: ReportData) -> None:
    def helps(units: dict[str, str]) -> dict[str, str]:
        data = with_result(ranker_data, provenance=replace(ranker_data.result.provenance, units=units))
        return {column.title: column.help for column in assessor_table(data).columns}

    assert "in US dollars" in helps({"cost": "US dollars"})["cost (US dollars)"]
    assert "simulated" in helps({"cost": "simulated"})["cost (simulated)"]
    assert "'duration'" in helps({})["time per judgment (unit of the file)"]
    assert "time per judgment (seconds)" in helps({"duration": "seconds"})


def test_relevance_has_its_unit(ranker_data: ReportData, majority_run: Path) -> None:
    for data, unit in ((ranker_data, "standard deviations"), (load_data(majority_run), "grades")):
        columns = document_table(data, "spread (grades)", data.most_disputed()).columns
        assert columns[2].title == f"relevance ({unit})"
        assert unit in columns[3].help


def test_a_run_without_experts_is_not_tested(majority_run: Path) -> None:
    data = load_data(majority_run)
    better, gain, trust, following = make_cards(data)
    assert (better.answer, gain.answer, trust.answer) == ("Not tested", "Not known", "Not checked")
    assert {better.tone, gain.tone} == {"none"}
    assert any("50 queries" in step for step in following.steps)
    html = render(data)
    assert 'id="training"' not in html
    assert "Agreement within and between families" in html


@pytest.mark.usefixtures("no_charts")
def test_a_selected_baseline_is_not_better(ranker_data: ReportData) -> None:
    data = with_rankers(ranker_data, chosen=ranker_data.baseline, verdict=decide_verdict([], is_baseline=True))
    assert better_card(data).tone == "open"
    assert gain_card(data).interval is None
    assert render(data)


@pytest.mark.usefixtures("no_charts")
def test_without_charts_the_report_says_how_to_install_them(ranker_data: ReportData) -> None:
    html = render(ranker_data)
    assert "<img" not in html
    assert "pip install 'crowdrank[report]'" in unescape(html)
    assert len(embedded(html, "assessors")["rows"]) == len(ranker_data.assessors)


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


def test_the_report_works_without_the_chart_packages(ranker_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "core.html"
    command = [sys.executable, "-c", CORE_ONLY, str(ranker_run), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    path, problem = done.stdout.splitlines()
    assert path == str(out)
    assert "pip install 'crowdrank[report]'" in problem
    assert "<img" not in out.read_text()


@pytest.mark.usefixtures("no_charts")
def test_hostile_ids_are_text(hostile_run: Path, hostile_ids: tuple[str, ...]) -> None:
    html = render(load_data(hostile_run))
    assert html.count("<script") == 1 + html.count('<script type="application/json"')
    assert embedded(html, "next")["rows"]
    shown = {row[0] for row in embedded(html, "assessors")["rows"]}
    assert {one_line(name, 200) for name in hostile_ids} <= shown
    body = re.sub(r"<script.*?</script>|<style.*?</style>", "", html, flags=re.DOTALL)
    assert not re.search(r"<(img|b|i)\b(?! src=\"data:image)", body)
    assert "49" not in re.findall(r"7\*7[^<]*", body)


def test_hostile_ids_are_text_in_markdown(hostile_run: Path) -> None:
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render((hostile_run / "report.md").read_text())
    own = {"!--", "h1", "h2", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    assert set(re.findall(r"<([^\s>/]+)", rendered)) == own
    body = unescape(re.sub(r"<!-- -->", "", rendered))
    shown = pd.read_csv(hostile_run / "next.csv", dtype=str, keep_default_na=False).head(MAX_TABLE_ROWS)
    for cell in (*shown["query"], *shown["document"]):
        assert f"<td>{escape_invisible(cell)}</td>" in body


@pytest.mark.usefixtures("no_charts")
def test_many_assessors_are_cut(ranker_data: ReportData) -> None:
    n, table = 20_000, ranker_data.assessors
    many = pd.concat([table] * (n // len(table) + 1), ignore_index=True).head(n)
    many["assessor"] = [f"assessor-with-a-rather-long-id-{at:08d}" for at in range(n)]
    html = render(with_tables(ranker_data, assessors=many))
    assert len(html.encode()) < MAX_BYTES
    shown = embedded(html, "assessors")
    assert (shown["total"], len(shown["rows"])) == (n, 5000)
    unreliable = int(many["flag"].isin(["random", "reversed"]).sum())
    assert sum(row[1] in ("drop", "check") for row in shown["rows"]) == min(unreliable, 5000)


def test_columns_are_explained_as_in_the_glossary(ranker_data: ReportData) -> None:
    helps = {column.title: column.help for column in report_tables.assessor_table(ranker_data).columns}
    assert helps["informativeness"] == GLOSSARY["informativeness"]
    assert GLOSSARY["flag"] in helps["flag"]


def test_folders_that_cannot_be_read_or_written_are_refused(ranker_run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        write_report(tmp_path)
    assert caught.value.kind == "no-manifest"
    copy = tmp_path / "copy"
    shutil.copytree(ranker_run, copy, ignore=shutil.ignore_patterns("stages", "report.html"))
    (copy / "comparison.csv").unlink()
    with pytest.raises(InputError) as caught:
        write_report(copy)
    assert caught.value.kind == "missing-file"
    assert not (copy / "report.html").exists()
    with pytest.raises(OutputError):
        write_report(ranker_run, tmp_path / "nowhere" / "report.html")
    with pytest.raises(UsageError) as usage:
        write_report(RunResult.load(ranker_run))
    assert usage.value.parameter == "output"


@pytest.mark.usefixtures("no_charts")
def test_the_same_run_gives_the_same_page(ranker_run: Path) -> None:
    assert render(load_data(ranker_run)) == render(load_data(ranker_run))


def test_the_same_chart_gives_the_same_image() -> None:
    chart = charts.confusion([0, 1, 1], [0, 0, 1])
    assert report_page.draw(chart) == report_page.draw(chart)


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_embedded_json_cannot_end_its_element(value: Any) -> None:
    text = script_json(value)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == value


@pytest.mark.usefixtures("no_charts")
def test_warnings_are_on_the_first_screen_and_notes_are_not(ranker_data: ReportData) -> None:
    note, warning = Message("54 honeypots are left out", severity="note"), Message("One <grade>", severity="warning")

    def parts(*notes: Message) -> tuple[str, str]:
        first, _, rest = render(with_result(ranker_data, notes=notes)).partition('id="rankers"')
        return unescape(first), unescape(rest)

    first, rest = parts(note, warning)
    assert str(warning) in first
    assert str(note) not in first
    assert str(note) in rest
    assert 'class="notes"' not in parts(note)[0]
    assert 'id="remarks"' not in parts(warning)[1]


@pytest.mark.usefixtures("no_charts")
def test_candidates_that_were_not_trained_are_listed_with_reasons(ranker_data: ReportData) -> None:
    known = (ranker_data.chosen, ranker_data.baseline)
    name = next(name for name in ranker_data.comparison["candidate"] if name not in known)
    data, complete = (with_rankers(ranker_data, left_out=reasons) for reasons in ({name: "no <time>"}, {}))
    assert ranker_table(data).total == len(ranker_table(data).rows) == len(ranker_table(complete).rows) - 1
    assert f"{name} (no <time>)" in unescape(render(data))
    assert 'class="left-out"' not in render(complete)


@pytest.mark.usefixtures("no_charts")
def test_one_assessor_has_no_measured_reliability(ranker_data: ReportData) -> None:
    one = with_tables(ranker_data, assessors=ranker_data.assessors.head(1).assign(flag=""))
    data = with_result(one, sizes={**one.sizes, "assessors": 1})
    assert "second one" in trust_card(data).sentences[-1]
    assert "second assessor" in next_card(data).steps[0]
    assert "by 1 assessor on" in render(data)


def test_the_chart_shows_the_median_of_the_evidence(ranker_data: ReportData) -> None:
    table = ranker_data.assessors.copy()
    table.loc[table["informativeness"].nlargest(8).index, "flag"] = "few"
    spec = charts.informativeness(table).to_dict()
    drawn = [row["x"] for rows in spec["datasets"].values() for row in rows if "x" in row]
    median = with_tables(ranker_data, assessors=table).median_informativeness
    assert drawn == [median]
    assert median < table["informativeness"].median()


def test_the_offset_from_experts_is_shown(page: str, ranker_data: ReportData) -> None:
    offset = ranker_data.result.expert_offset
    assert offset is not None
    assert f"{offset}." in trust_card(ranker_data).sentences
    assert minus_signs(str(offset)) in unescape(page)


def test_the_weight_in_the_consensus_is_that_of_the_model(ranker_data: ReportData) -> None:
    fitted = ranker_data.model.consensus_.assessors.set_index("assessor")["informativeness"]
    one = ranker_data.assessors.head(1)
    enough = ranker_data.assessors.loc[ranker_data.assessors["flag"] != "few", "assessor"]
    share = fitted[one["assessor"].iloc[0]] / fitted[enough].median()
    assert f"({percent(share)} of" in ranker_data.weight_in_consensus(one)


def test_a_report_on_labels_has_two_cards_and_no_rankers(labels_data: ReportData) -> None:
    trust, following = make_cards(labels_data)
    assert (trust.question, following.question) == ("Can I trust the labels?", "What next?")
    assert f"{labels_data.result.expert_offset}." in trust.sentences
    assert not following.command
    html = render(labels_data)
    assert set(re.findall(r'<section id="(\w+)"', html)) == {"answers", "assessors", "documents", "protocol"}
    assert set(make_tables(labels_data)) == {"assessors", "pairs", "next", "disputed"}
    assert html.count("<figure") >= 4
    assert "folds" not in re.findall(r"<th>(\w+)</th>", html)


def test_labels_without_experts_ask_for_some(labels_data: ReportData) -> None:
    documents = labels_data.documents.assign(expert=np.nan)
    data = with_result(with_tables(labels_data, documents=documents), expert_offset=None)
    trust, following = make_cards(data)
    assert trust.answer == "Not checked"
    assert any("experts grade at least 20" in step for step in following.steps)


@pytest.mark.usefixtures("no_charts")
def test_texts_are_shown_saved_and_shown_again(labels_run: Path, labels_data: ReportData, tmp_path: Path) -> None:
    saved = pd.read_parquet(labels_run / "texts.parquet")
    assert list(zip(saved["query"], saved["document"], strict=True)) == labels_data.shown_documents()
    for name in ("next", "disputed"):
        table = make_tables(labels_data)[name]
        assert all(text == "Query: what is <b>bold</b>?" for text in cells(table, "query text"))
        assert all(
            text.startswith("Document: <script>") and "long text" in text for text in cells(table, "document text")
        )
    copy = tmp_path / "copy"
    shutil.copytree(labels_run, copy)
    before = (copy / "report.html").read_text()
    assert "what is" in write_report(copy).read_text()
    assert embedded(before, "next")["rows"] == embedded((copy / "report.html").read_text(), "next")["rows"]
    assert RunResult.load(copy).tables["texts"].num_rows == len(saved)
    document = labels_data.next["document"].iloc[0]
    assert f"{document} “<script>" in next_card(labels_data).steps[-2]


@pytest.mark.usefixtures("no_charts")
def test_texts_without_a_known_id_are_refused(labels_run: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "texts.csv", tmp_path / "report.html"
    path.write_text("document,text\nunknown,hello\n")
    with pytest.raises(InputError) as caught:
        write_report(labels_run, out, texts=path)
    assert caught.value.kind == "no-known-id"
    assert caught.value.fix is not None
    assert not out.exists()


@pytest.mark.usefixtures("no_charts")
def test_changes_since_the_previous_run_have_a_section(labels_data: ReportData) -> None:
    data = with_result(labels_data, changes=("Judgments: 10 before, 20 now.", "2 of <3> documents differ."))
    html = render(data)
    assert 'id="changes"' in html
    assert all(change in unescape(html) for change in data.result.changes)
    assert 'id="changes"' not in render(labels_data)


@pytest.mark.usefixtures("no_charts")
def test_features_have_a_section_if_the_result_has_them(ranker_data: ReportData) -> None:
    features = pd.DataFrame(
        {
            "feature": ["bm25", "<b>constant</b>"],
            "used": [True, False],
            "reason": ["", "all values are equal"],
            "missing": [0.25, 0.0],
            "minimum": [-1.5, 2.0],
            "maximum": [8.0, 2.0],
            "importance": [0.75, None],
        }
    )
    data = with_tables(ranker_data, features=features)
    rows = {row[0]: row for row in feature_table(data).rows}
    assert rows["bm25"] == ["bm25", 0.75, "yes", "", 0.25, -1.5, 8.0]
    assert rows["<b>constant</b>"][1:4] == [None, "no", "all values are equal"]
    html = render(data)
    assert 'id="features"' in html
    assert "<b>constant" not in html
    tables = {name: table for name, table in ranker_data.result.tables.items() if name != "features"}
    without = replace(ranker_data, result=replace(ranker_data.result, tables=tables))
    assert 'id="features"' not in render(without)


def test_a_contrast_that_was_not_tested_is_left_out(ranker_data: ReportData) -> None:
    only: tuple[Contrast, ...] = tuple(
        one for one in ranker_data.rankers.contrasts if one.other == ranker_data.baseline
    )
    assert better_card(with_rankers(ranker_data, contrasts=only, verdict=decide_verdict(only))).comparisons == []


def with_alternatives(data: ReportData, figures: dict[str, tuple[float, float]]) -> ReportData:
    """Return the data with other differences and p-values in the comparisons with alternatives."""
    contrast = data.rankers.contrast(data.chosen, data.baseline)
    assert contrast is not None
    new = adjust_contrasts([replace(contrast, other=name, difference=size, p=p) for name, (size, p) in figures.items()])
    return with_rankers(data, contrasts=tuple(new), verdict=decide_verdict(new), alternative=data.rankers.ranker)


@pytest.mark.parametrize(
    ("figures", "answer", "decisive"),
    [
        ({"majority": (0.2, 0.001), "best-feature": (0.1, 0.04)}, "better", "best-feature"),
        ({"majority": (0.2, 0.001), "best-feature": (0.1, 0.06)}, "open", "best-feature"),
        ({"majority": (0.05, 0.01), "average": (0.2, 0.03)}, "better", "average"),
        ({"majority": (0.2, 0.001), "best-feature": (-0.01, 0.9), "average": (0.05, 0.5)}, "open", "best-feature"),
        ({"majority": (0.2, 0.03), "best-feature": (0.1, 0.03)}, "open", "best-feature"),
        ({"majority": (0.2, 0.001), "best-feature": (-0.1, 0.06)}, "open", "best-feature"),
        ({"majority": (0.2, 0.001), "best-feature": (-0.1, 0.03), "average": (-0.2, 0.5)}, "open", "average"),
        ({"majority": (0.2, 0.001), "best-feature": (-0.1, 0.01), "average": (-0.2, 0.5)}, "worse", "best-feature"),
    ],
)
def test_the_ranker_is_better_only_if_it_beats_every_alternative(
    ranker_data: ReportData, figures: dict[str, tuple[float, float]], answer: str, decisive: str
) -> None:
    data = with_alternatives(ranker_data, figures)
    verdict = data.rankers.verdict
    assert verdict is not None
    assert (verdict.answer, verdict.decisive) == (answer, decisive)
    better, gain, _, following = make_cards(data)
    assert better.tone == gain.tone == {"better": "good", "open": "open", "worse": "bad"}[answer]
    assert gain.interval is not None
    assert gain.interval[1] == figures[decisive][0]
    assert all(name in better.sentences[0] for name in figures)  # all that it must beat are named
    if answer != "better":
        assert decisive in better.versus
    model = "model" if figures[decisive][0] > 0 else "alternative"
    assert f"/{model} " in following.command
    assert (decisive in following.steps[-1]) == (model == "alternative")


def test_a_better_ranking_in_a_file_is_kept(ranker_data: ReportData) -> None:
    data = with_alternatives(ranker_data, {"runs/live.trec": (-0.1, 0.001)})
    card = next_card(with_rankers(data, alternative=None))
    assert card.command == ""
    assert "live.trec" in card.steps[-1]
    better = better_card(data)
    assert "runs/" not in better.versus
    assert better.sentences[0].count("live.trec") == 1  # there is no list of alternatives


# Parts that cannot be made.


def fail(*values: Any, **options: Any) -> Any:
    raise RuntimeError("planned failure <b>here</b>")


def render_with_failures(data: ReportData) -> tuple[str, list[Message]]:
    """Return the page, and the warnings about parts that could not be made."""
    new = ReportData(data.result, data.folder)
    with pytest.warns(CrowdrankWarning) as caught:
        page = render(new)
    messages = [one.message.message for one in caught if isinstance(one.message, CrowdrankWarning)]
    assert messages == new.failures
    assert {message.kind for message in messages} == {"failed-part"}
    assert "<b>here" not in page
    return page, messages


CHARTS = (
    *("ranker_comparison", "differences_by_query", "informativeness", "informativeness_by_agreement", "grade_curves"),
    *("uncertainty", "confusion", "relevance_intervals", "document_trace", "learned_by_feature"),
    *("importance_of_features", "reliability"),
)


@pytest.fixture
def quick_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw all charts as an empty image."""
    monkeypatch.setattr(report_page, "draw_svg", lambda spec: '<svg width="100"></svg>')


@pytest.mark.usefixtures("quick_charts")
@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_that_fails_costs_that_chart(
    ranker_data: ReportData, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    whole = render(ReportData(ranker_data.result, ranker_data.folder))
    assert whole.count("<figure") == len(CHARTS)
    monkeypatch.setattr(charts, name, fail)
    page, messages = render_with_failures(ranker_data)
    assert len(messages) == 1
    assert page.count("<figure") == len(CHARTS) - 1
    assert page.count('<p class="failed">') == 1


@pytest.mark.usefixtures("quick_charts")
def test_a_section_whose_charts_cannot_be_listed_costs_these_charts(
    ranker_data: ReportData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReportData, "against_experts", property(fail))
    page, messages = render_with_failures(ranker_data)
    assert len(messages) == 4, "the charts, the card on trust, and two sections"
    assert page.count("<figure") == len(CHARTS) - 5
    assert embedded(page, "assessors")["rows"]


@pytest.mark.usefixtures("no_charts")
@pytest.mark.parametrize("name", ["assessor", "pair", "document", "ranker", "feature"])
def test_a_table_that_fails_costs_that_table(
    ranker_data: ReportData, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(report_tables, f"{name}_table", fail)
    page, messages = render_with_failures(ranker_data)
    n_failed = 2 if name == "document" else 1
    assert len(messages) == page.count('<p class="failed">') == n_failed
    assert page.count('<script type="application/json"') == 6 - n_failed


@pytest.mark.usefixtures("no_charts")
@pytest.mark.parametrize("name", ["better_card", "gain_card", "trust_card", "next_card"])
def test_a_card_that_fails_costs_that_card(ranker_data: ReportData, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(cards, name, fail)
    page, messages = render_with_failures(ranker_data)
    assert len(messages) == 1
    assert page.count("<article") == 4
    (place,) = [
        at
        for at, card in enumerate(make_cards(ReportData(ranker_data.result, ranker_data.folder)))
        if card.answer == "Not available"
    ]
    assert place == ["better_card", "gain_card", "trust_card", "next_card"].index(name)


@pytest.mark.usefixtures("no_charts")
@pytest.mark.parametrize(
    ("function", "section"),
    [
        ("reports.page.interval_bar", "answers"),
        ("pipeline.deployment.describe_deployable", "rankers"),
        ("reports.page.flag_counts", "assessors"),
        ("reports.page._files", "protocol"),
    ],
)
def test_a_section_that_fails_costs_that_section(
    ranker_data: ReportData, monkeypatch: pytest.MonkeyPatch, function: str, section: str
) -> None:
    monkeypatch.setattr(f"crowdrank.{function}", fail)
    page, (message,) = render_with_failures(ranker_data)
    assert section in message.problem
    assert re.search(f'<section id="{section}"[^>]*>\\s*<p class="failed">', page)
    assert page.count('<p class="failed">') == 1
    others = {"answers", "rankers", "assessors", "documents", "features", "training", "protocol"}
    assert set(re.findall('<section id="([^"]*)"[^>]*>\\s*<(?!p class="failed")', page)) == others - {section}


@pytest.mark.usefixtures("no_charts")
def test_curves_of_assessors_are_computed_once(ranker_data: ReportData, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = Aggregator.answer_states

    def count(self: Aggregator) -> Any:
        calls.append(self)
        return real(self)

    monkeypatch.setattr(Aggregator, "answer_states", count)
    render(ReportData(ranker_data.result, ranker_data.folder))
    assert len(calls) == 1
