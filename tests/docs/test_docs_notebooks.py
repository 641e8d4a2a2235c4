"""The notebooks run, and what they print is what stands in them; their cells are run here, without a kernel."""

from __future__ import annotations

import ast
import contextlib
import io
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("altair")

FOLDER = Path(__file__).parent.parent.parent / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def run_cell(source: str, names: dict[str, Any]) -> str:
    """What a cell prints, and how its last expression shows itself as text."""
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(ast.Module(tree.body[: -1 if last else None], []), "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    quiet = value is None or source.rstrip().endswith(";") or not isinstance(repr(value), str)
    return shown.getvalue() + ("" if quiet or is_chart(value) else repr(value))


def is_chart(value: Any) -> bool:
    return hasattr(value, "to_dict") and type(value).__module__.startswith("altair")


def kept(cell: Any) -> str:
    """What the notebook holds of a cell as text; of pictures nothing."""
    parts = []
    for one in cell.outputs:
        data = one.get("data", {})
        parts.append(one.get("text", "") if one.output_type == "stream" else data.get("text/plain", ""))
        if "image/png" in data:
            parts[-1] = ""
    return "".join(parts)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_says_what_it_said(path: Path) -> None:
    import altair
    import pandas as pd

    names: dict[str, Any] = {"__name__": "notebook"}
    with altair.renderers.enable("default"), pd.option_context("display.precision", 3, "display.width", 80):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                assert run_cell(cell.source, names).split() == kept(cell).split(), cell.source


def test_notebooks_are_small_and_name_no_machine() -> None:
    assert len(NOTEBOOKS) >= 3
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert len(text) < 500_000
        assert not [word for word in ("/tmp/", "/home/", "/work/", "/root/", "site-packages") if word in text]
        cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        assert cells
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "run it again from the top"
