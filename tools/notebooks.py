"""Run the notebooks of `examples/` and store their outputs without times, versions and paths."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "examples"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def execute(notebook: Any, folder: Path) -> Any:
    """Run a notebook and return it with its outputs."""
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    return notebook


def clean(notebook: Any) -> Any:
    """Remove times, versions and the standard error, which contains paths, from a notebook."""
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell["id"], cell.metadata = f"cell-{number}", {}
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
            for one in cell.outputs:
                one.get("metadata", {}).clear()
    return notebook


def main() -> None:
    """Run the notebooks named on the command line, or all."""
    paths = [Path(word) for word in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb"))
    for path in paths:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        path.write_text(nbformat.writes(clean(execute(notebook, path.parent))) + "\n", encoding="utf-8")
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
