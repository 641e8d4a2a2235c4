"""The papers: cited where their methods are described, found by name, and judged by the stored results."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from crowdrank import label_features, simulate
from crowdrank.assessors.agreement import honeypot_accuracy
from tools.results import load_results

yaml = pytest.importorskip("yaml")
REPOSITORY = Path(__file__).parent.parent.parent
DOCS = REPOSITORY / "docs"
PAPERS = ("GDA", "OVERLAP", "REMAP", "MGBDT")
OBJECTS = {
    "consensus.gda:GDA": ("GDA",),
    "consensus.gda_pairwise:GDAPairwise": ("GDA",),
    "rankers.gda_mart:GDAPairwiseMART": ("GDA",),
    "collection.schemes:Scheme": ("OVERLAP",),
    "label_learning.linear_remapper:LinearRemapper": ("REMAP",),
    "label_learning.boosted_remapper:BoostedRemapper": ("MGBDT",),
    "label_learning.label_features:label_features": ("REMAP", "MGBDT"),
    "rankers.tree_features:TreeFeatures": ("REMAP",),
}
PAGES = {
    "methods.md": ("GDA", "OVERLAP"),
    "rankers.md": ("GDA", "REMAP", "MGBDT"),
    "collecting.md": ("OVERLAP",),
    **{f"papers/{name.lower()}.md": (name,) for name in PAPERS},
}
METHODS = {
    "GDA": ("gda", "aggregate world/judgments.csv -m gda "),
    "GDA-PW": ("gda", "aggregate world/judgments.csv -m gda-pairwise "),
    "GDA-PW-MART": ("gda", "train -f world/features.letor -r gda-pairwise-mart "),
    "REMAP": ("remap", "remap fit world/judgments.csv -f world/features.letor --expert world/gold.qrels -r linear "),
    "RD": (
        "remap",
        "train -f world/features.letor --judgments world/judgments.csv --instances overlap -r rd "
        "-s estimator=pointwise-gbdt ",
    ),
    "MGBDT": ("mgbdt", "remap fit world/judgments.csv -f world/features.letor --expert world/gold.qrels -r boosted "),
    "OVERLAP": ("overlap", "collect cost world/judgments.csv"),
    "if-good-k": ("overlap", "--policy if-good-3 "),
}
"""Page of each method of a paper, and a command on it that runs the method."""


def references() -> dict[str, dict[str, Any]]:
    """Return the references of the citation file by the short name of the paper."""
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    return {one["abbreviation"]: one for one in cited["references"]}


def require_citation(text: str, paper: dict[str, Any]) -> None:
    """Fail unless the text has authors, year and title of a paper, in this order."""
    authors = ", ".join(author["family-names"] for author in paper["authors"])
    words = " ".join(text.replace("*", "").split())
    assert f"{authors} {paper['year']}: {paper['title']}" in words


def test_the_citation_file_has_the_papers() -> None:
    found = references()
    assert list(found) == list(PAPERS)
    years = {name: (one["year"], one["collection-title"]) for name, one in found.items()}
    assert years == {
        "GDA": (2015, "CIKM 2015"),
        "OVERLAP": (2010, "SIGIR 2010"),
        "REMAP": (2016, "SIGIR 2016"),
        "MGBDT": (2016, "ICML 2016"),
    }


@pytest.mark.parametrize("name", OBJECTS)
def test_docstrings_cite_the_papers_of_their_methods(name: str) -> None:
    module, attribute = name.split(":")
    doc = getattr(importlib.import_module(f"crowdrank.{module}"), attribute).__doc__
    for paper in OBJECTS[name]:
        require_citation(doc, references()[paper])


@pytest.mark.parametrize("page", PAGES)
def test_pages_cite_the_papers_of_their_methods(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for paper in PAGES[page]:
        require_citation(text, references()[paper])


def test_every_paper_has_a_page_in_the_navigation() -> None:
    navigation = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    assert set(re.findall(r": (papers/\w+\.md)$", navigation, re.MULTILINE)) == {
        f"papers/{path.name}" for path in (DOCS / "papers").glob("*.md")
    }


@pytest.mark.parametrize("method", METHODS)
def test_a_command_on_the_page_of_a_method_runs_it(method: str) -> None:
    """Blocks of commands on pages are run by another test."""
    page, command = METHODS[method]
    text = " ".join((DOCS / "papers" / f"{page}.md").read_text(encoding="utf-8").split())
    assert method in text
    assert f"crowdrank {command}" in text or command in text


@pytest.mark.parametrize(("kind", "page", "count"), [("remap", "remap", 15), ("mgbdt", "mgbdt", 13)])
def test_the_table_of_label_features_is_that_of_the_code(kind: str, page: str, count: int) -> None:
    text = (DOCS / "papers" / f"{page}.md").read_text(encoding="utf-8")
    section = text.split(f"features of a label{', and the 29' if kind == 'remap' else ''}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1:4] for line in section.splitlines() if re.match(r"\| \d", line)]
    named = [name for _, _, columns in rows for name in re.findall(r"`(\w+)`", columns)]
    numbers = [int(number) for row, *_ in rows for number in row.split("-")]
    assert max(numbers) == len(named) == count
    world = simulate(queries=10, documents=5, label_grades=2, random_state=1)
    computed = label_features(world.judgments, kind=kind).names
    if kind == "mgbdt":
        assert list(computed) == named
        return
    copies = [f"{name}_of_{grade}" for grade in (1, 0) for name in named[1:]]
    assert list(computed) == [named[0], *copies]
    assert len(computed) == 29
    assert honeypot_accuracy(label_features(world.judgments, kind=kind).judgments)["asked"].sum() == 0


# Verdicts that a page states in words.


def rows(experiment: str, table: str) -> dict[str, dict[str, Any]]:
    """Return the rows of a stored table by their run."""
    (found,) = [one for one in load_results()[experiment]["tables"] if one["name"] == table]
    return {row["run"]: row for row in found["rows"]}


def test_gda_finds_the_injected_expert_and_the_random_assessor() -> None:
    together = rows("rf10", "injected-together")
    baselines = ("majority", "average", "dawid-skene-ml", "rasch-difficulty")
    for measure in ("AP", "nDCG", "Tau"):
        best = max(together[run][measure] for run in baselines)
        assert min(together[run][measure] for run in ("gda", "gda-pairwise")) > best, measure
    injected = rows("rf10", "injected")
    for run in ("gda", "gda-joint", "gda-pairwise", "gda-pairwise-joint"):
        assert injected[run]["nats random"] < 0.01 < injected[run]["nats crowd"], run
        assert rows("rf10", "agreement")[run]["all gold, tau"] > 0.5, run
    assert injected["gda-pairwise"]["nats expert"] < injected["gda-pairwise"]["nats crowd"]
    assert injected["gda"]["nats expert"] > injected["gda"]["nats crowd"]


def test_halves_of_rf10_agree_on_relevance_and_not_on_difficulty() -> None:
    halves = rows("rf10", "split-half")
    for run in ("gda-difficulty", "gda-pairwise-difficulty", "rasch-difficulty"):
        assert halves[run]["difficulty"] < 0.2 < 0.4 < halves[run]["relevance"]


def test_learned_prior_takes_much_of_the_distance_between_em_and_gda() -> None:
    table = rows("rf10", "crowd")
    assert table["dawid-skene"]["AP"] - table["dawid-skene-ml"]["AP"] > 0.5 * (
        table["gda"]["AP"] - table["dawid-skene-ml"]["AP"]
    )


def test_overlap_is_judged_by_the_stored_results() -> None:
    claim = rows("overlap", "claim")
    assert all(row["over single"] > 0 for run, row in claim.items() if run.startswith("LambdaRankNet"))
    assert all(claim[f"LambdaMART {name}"]["over single"] < 0 for name in "AB")
    tests = {**rows("overlap", "claim-tests")["if-good-x3"], **rows("overlap", "claim-tests-plus")["if-good-x3"]}
    for name in ("A", "B", "plus"):
        assert tests[f"LambdaRankNet {name} difference"] > 0 > tests[f"LambdaRankNet {name} p"] - 0.05
        assert tests[f"LambdaMART {name} p"] > 0.05
    for name in "ab":
        for ranker in ("lambdaranknet", "lambdamart"):
            means = rows("overlap", f"{ranker}-{name}")
            assert means["majority-3"]["nDCG@3"] > means["overlap-3"]["nDCG@3"]
    for name in "AB":
        assert 1.4 <= rows("overlap", f"costs-{name}")["if-good-3"]["labeling overhead"] <= 1.5
        agreement = rows("overlap", f"agreement-{name}")
        assert (
            agreement["1 label"]["majority"] < agreement["11 labels"]["majority"] < agreement["best judge"]["majority"]
        )
        assert all(row["p"] < 0.001 for row in rows("overlap", f"habits-{name}").values())
        for ranker in ("lambdaranknet", "lambdamart"):
            series = rows("overlap", f"series-{ranker}-{name.lower()}")
            assert max(series, key=lambda run: series[run]["nDCG@3"]) != "good-till-bad"


@pytest.mark.parametrize(
    ("page", "experiment"),
    [
        ("evidence.md", "experts"),
        ("evidence.md", "expert-budget"),
        ("papers/remap.md", "experts"),
        ("papers/mgbdt.md", "experts"),
    ],
)
def test_pages_say_which_runs_are_older_than_the_code(page: str, experiment: str) -> None:
    """Runs that name no commit were made before the changes that the pages name; remove the sentence after a run."""
    text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
    is_old = "commit" not in load_results()[experiment]
    assert bool(re.search(rf"run of `{experiment}` (shown here )?is older than", text)) == is_old
    names = {row["run"] for row in load_results()["experts"]["tables"][0]["rows"]}
    assert ({"gbdt-rd", "pooled-gls"} <= names) == ("commit" in load_results()["experts"])


def test_remap_and_mgbdt_are_judged_by_the_stored_results() -> None:
    for row in rows("experts", "mq2008-ablation").values():
        gains = [value for value in row.values() if isinstance(value, float)]
        assert max(gains) - min(gains) < 2
    trees = rows("experts", "mq2008-tree-features")
    for run in ("linear-t", "boosted-t", "gls-average"):
        assert trees["300 trees"][f"{run}, validation %"] < trees["0 trees"][f"{run}, validation %"]
    for experiment in ("rigor", "quality"):
        assert rows(experiment, "monotone")["generated, linear"]["monotone"] >= 4
    (table,) = [one for one in load_results()["experts"]["tables"] if one["name"] == "generated-importances"]
    leading = {
        name: [row["label feature"] for row in table["rows"] if row["run"] == name]
        for name in ("boosted-t", "boosted-w")
    }
    assert set(leading["boosted-t"][:2]) == {"good_dawid_skene", "good_glad"}
    assert leading["boosted-w"][0].startswith("right_")
    for data in ("mq2008", "generated", "dl20"):
        by_run = {run: row["DCG@10 %"] for run, row in rows("experts", data).items()}
        assert by_run["linear-w+t"] > max(gain for run, gain in by_run.items() if run.startswith("gbdt-"))
        assert by_run["boosted-t"] - by_run["linear-t"] < 0.11
        assert (by_run["boosted-t"] > by_run["boosted-w"]) == (data == "generated")
        assert 0.15 < by_run["linear-t"] - by_run["linear-w"] < 0.85
        assert (by_run["linear-w+t"] - by_run["linear-t"] > 0.01) == (data == "dl20")
    for data, claimed in (("mq2008", "linear-w+t"), ("generated", "boosted-w+t")):
        by_run = {run: row["DCG@10 %"] for run, row in rows("experts", data).items()}
        assert by_run["gls-average"] > 0.5 * by_run[claimed]
    assert by_run["ensemble"] > by_run["boosted-w+t"]
