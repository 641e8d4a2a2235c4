"""The command `crowdrank datasets`: list public data sets."""

from __future__ import annotations

from crowdrank.cli.console import print_cells, print_json, print_line
from crowdrank.cli.options import AsJson


def datasets(json: AsJson = False) -> None:
    """List the public data sets that crowdrank reads, where to get them, and which are installed."""
    from rich.text import Text

    from crowdrank.judgments.datasets import DATA_FOLDER_VARIABLE, DATASETS

    entries = [
        {"name": d.name, "found": d.is_complete, "about": d.about, "origin": d.origin, "files": list(d.files)}
        for d in DATASETS.values()
    ]
    if json:
        print_json(entries)
        return
    rows = [[str(d["name"]), "yes" if d["found"] else "no", Text(f"{d['about']}\nfrom {d['origin']}")] for d in entries]
    print_cells(["data set", "found", "description"], rows, [True] * 3)
    print_line(f"Data sets are searched in {DATA_FOLDER_VARIABLE}, each in the folder of its name.")
