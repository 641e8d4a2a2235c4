"""Run the notebooks of `examples/` again and write them in place; what a machine leaves in them is taken out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "examples"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def executed(notebook: Any, folder: Path) -> Any:
    """The notebook with the outputs of this run."""
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    return notebook


def tidied(notebook: Any) -> Any:
    """The notebook without times, versions, and what goes to standard error (bars and warnings name places)."""
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell["id"], cell.metadata = f"cell-{number}", {}
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
            for one in cell.outputs:
                one.get("metadata", {}).clear()
    return notebook


def main() -> None:
    """Run those that are named, or all."""
    named = [Path(word) for word in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb"))
    for path in named:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        path.write_text(nbformat.writes(tidied(executed(notebook, path.parent))) + "\n", encoding="utf-8")
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
