"""The site: it builds without a warning, asks the net for nothing, and its generated pages say what is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from crowdrank.cli.app import app
from experiments import EXPERIMENTS
from tools import command_line, figures, results
from tools.mathml import mathml

REPOSITORY = Path(__file__).parent.parent.parent
LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?((?:https?:)?//[^\"> ]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does: strictly."""
    pytest.importorskip("mkdocs")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(REPOSITORY)
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        config = load_config(str(REPOSITORY / "mkdocs.yml"), site_dir=str(folder), strict=True)
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    return folder


def test_every_page_is_there_and_asks_for_nothing(site: Path) -> None:
    pages = {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert {"index.html", "start.html", "methods.html", "papers/gda.html", "api/consensus.html"} <= set(pages)
    for name, text in pages.items():
        assert not LOADED.findall(text), name
        assert 'class="arithmatex"' not in text, f"{name} has an equation that was not drawn"
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", style.read_text(encoding="utf-8")), style.name
    assert pages["methods.html"].count('<math display="block">') >= 9
    assert pages["papers/gda.html"].count('<math display="block">') >= 13


@pytest.mark.parametrize(
    ("method", "page"),
    [
        *((name, "gda") for name in ("GDA", "GDA-PW", "GDA-PW-MART", "informativeness", "Metrikov")),
        *(
            (name, "gda")
            for name in ("Gaussian discriminant analysis", "polytomous Rasch", "EM", "document difficulty")
        ),
        *((name, "overlap") for name in ("OVERLAP", "if-good-k", "good-till-bad", "k-overlap", "Mv11", "Mityagin")),
        *((name, "overlap") for name in ("Good-till-bad", "Highest-3", "if-good-xk", "labeling overhead")),
        *((name, "remap") for name in ("REMAP", "RD", "Rw", "Rm", "reweighting by deviations", "Ustinovskiy")),
        *(
            (name, "remap")
            for name in ("feature extension", "remapping and reweighting", "honeypots", "label features")
        ),
        *((name, "mgbdt") for name in ("MGBDT", "Algorithm 1", "meta-gradient boosted", "Gauss Markov")),
    ],
)
def test_the_search_finds_methods_by_their_names_in_the_papers(site: Path, method: str, page: str) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    words = re.split(r"[\s\-]+", method.lower())
    found = {
        entry["location"].split("#")[0]
        for entry in index["docs"]
        if set(words) <= set(re.findall(r"\w+", re.sub("<[^>]+>", " ", f"{entry['title']} {entry['text']}").lower()))
    }
    assert f"papers/{page}.html" in found


def test_a_result_on_a_page_is_the_one_in_the_json(site: Path) -> None:
    found = results.load_results()
    assert {"rf10", "web5", "dl20"} <= set(found)
    for name, experiment in found.items():
        text = (site / "results" / f"{name}.html").read_text(encoding="utf-8")
        first = experiment["tables"][0]["rows"][0]
        floats = {column: value for column, value in first.items() if isinstance(value, float)}
        shown = [f"{value:+.2f}" if column.endswith("%") else f"{value:.4f}" for column, value in floats.items()]
        assert shown
        assert all(figure in text for figure in shown), name
    chosen = (site / "choose-a-method.html").read_text(encoding="utf-8")
    gda = next(row for row in found["dl20"]["tables"][0]["rows"] if row["run"] == "gda")
    assert f"{gda['nDCG@10']:.4f}" in chosen


def test_every_verb_and_option_is_on_the_page_of_the_command_line() -> None:
    import typer

    text = command_line.page()
    root = typer.main.get_command(app)
    for name, verb in command_line.commands(root, "crowdrank"):
        assert f"## {name}\n" in text
        for option in verb.params:
            assert all(f"`{word}`" in text for word in option.opts if word.startswith("--")), (name, option.opts)


def test_results_name_best_and_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    details = [
        {"run": run, "measure": "AP", "significant": run == "b", "best": run == "b", "lower": low, "upper": low,
         "difference": low, "p": low, "p_holm": low}
        for run, low in (("a|x", None), ("b", 0.1))
    ]  # fmt: skip
    experiment = {
        "experiment": "rf10",
        "tables": [
            {
                "name": "one",
                "title": "A title",
                "rows": [{"run": "a|x", "AP": 0.5, "n": 1000}, {"run": "b", "AP": None, "n": 2}],
                "notes": ["A *note*."],
                "tests": {"baseline": "a|x", "details": details},
            }
        ],
        "protocol": ["Seed 0."],
    }
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    assert list(results.pages()) == ["results/index.md"]
    (tmp_path / "rf10.json").write_text(json.dumps(experiment))
    text = results.pages()["results/rf10.md"]
    assert "| a&#124;x | 0.5000 | 1,000 |" in text
    assert "| b | **†** | 2 |" in text
    assert "A &#42;note&#42;." in text
    assert "python -m experiments rf10" in text


def test_figures_on_the_pages_are_those_of_today() -> None:
    for path, text in figures.current_pages().items():
        name = path.relative_to(REPOSITORY).as_posix()
        assert path.is_file(), f"{name} is missing: make figures"
        assert path.read_text(encoding="utf-8") == text, f"{name} is not what it should be: make figures"
    known = {path.name for path in figures.current_pages()}
    assert {path.name for path in (REPOSITORY / "docs" / "results").glob("*.md")} <= known


def test_figures_that_are_not_there_are_refused() -> None:
    shown = figures.figures("rf10 crowd | gda, average | Tau, AP").splitlines()
    assert shown[0] == "| run | Tau | AP |"
    assert [line.split(" | ")[0] for line in shown[2:4]] == ["| gda", "| average"]
    for wrong in ("rf11 crowd", "rf10 crowds", "rf10 crowd | gdb", "rf10 crowd | | X"):
        with pytest.raises(ValueError, match=r"is missing|has no"):
            figures.figures(wrong)
    (claim,) = [table for table in results.load_results()["experts"]["tables"] if table["name"] == "claim"]
    assert figures.notes("experts claim").count("\n- ") == len(claim["notes"]) - 1
    with pytest.raises(ValueError, match="has no table"):
        figures.notes("experts claims")
    assert figures.links("nothing, rf10").endswith("[rf10](results/rf10.md).")
    assert figures.links("nothing") == ""


def test_figures_take_the_place_of_old_ones_and_leave_the_rest() -> None:
    page = "Before.\n\n<!-- {0} -->\n\nold\n\n<!-- end -->\n\nBetween.\n\n<!-- demo -->\n<!-- end -->\n\nAfter.\n"
    once = figures.fill(page.format("figures rf10 crowd | gda | AP"))
    assert figures.fill(once) == once
    assert "old" not in once
    assert "\n| run | AP |\n" in once
    for words in (
        "Before.\n\n<!-- figures",
        "<!-- end -->\n\nBetween.\n\n<!-- demo -->\n\n> - On ",
        "\n\nAfter.\n",
    ):
        assert words in once


def test_make_results_knows_every_study() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    (line,) = [line for line in makefile.splitlines() if line.startswith("EXPERIMENTS :=")]
    assert set(line.split()[2:]) == set(EXPERIMENTS)


@pytest.mark.parametrize(
    ("tex", "expected"),
    [
        (r"\frac{a}{2}", "<mfrac><mrow><mi>a</mi></mrow><mrow><mn>2</mn></mrow></mfrac>"),
        (r"x^{a'}_g", "<msubsup><mi>x</mi><mi>g</mi><mrow><mi>a</mi><mo>′</mo></mrow></msubsup>"),
        (r"a < b", "<mi>a</mi><mo>&lt;</mo><mi>b</mi>"),
        (r"\log p", '<mi>log</mi><mspace width="0.17em"/><mi>p</mi>'),
        (r"\text{one~two}", "<mtext>one\N{NO-BREAK SPACE}two</mtext>"),
    ],
)
def test_equations(tex: str, expected: str) -> None:
    assert mathml(tex) == f"<math>{expected}</math>"


@pytest.mark.parametrize("tex", [r"\left(x", r"\frac{a}", "{a", r"\text a", "x_"])
def test_equations_that_cannot_be_drawn_are_refused(tex: str) -> None:
    with pytest.raises(ValueError, match="The equation"):
        mathml(tex)
