"""The pages of the library: one for each room, from the public names; mkdocstrings fills them."""

from __future__ import annotations

import crowdrank
from crowdrank.reports import charts

TITLES = {
    "judgments": "Judgments, features, expert grades",
    "engine": "Engines",
    "evaluation": "Measures and comparisons",
    "simulation": "Simulated worlds",
    "consensus": "Consensus",
    "assessors": "Assessors",
    "rankers": "Rankers",
    "training": "Learned targets and weights",
    "collection": "What to label next",
    "pipeline": "The whole run",
    "reports": "Reports",
    "testing": "Contract checks",
}
"""The rooms with public names, in their order, and what their pages are called; other rooms go by their names."""


def pages() -> dict[str, str]:
    """The text of each page, by its address.

    >>> [name for name in pages()][:2], "crowdrank.consensus.gda.GDA" in pages()["api/consensus.md"]
    (['api/judgments.md', 'api/engine.md'], True)
    """
    rooms: dict[str, list[str]] = {room: [] for room in TITLES}
    public = {**crowdrank._LOCATIONS, **dict.fromkeys(crowdrank.testing.__all__, "testing")}
    for name, home in public.items():
        rooms.setdefault(home.split(".")[0], []).append(f"{home}.{name}")
    return {f"api/{room}.md": _page(room, names) for room, names in rooms.items() if names}


def _page(room: str, names: list[str]) -> str:
    parts = [f"# {TITLES.get(room, room)}", *(f"::: crowdrank.{name}" for name in names)]
    if room == "reports":
        drawn = (getattr(charts, name) for name in charts.__all__)
        parts += ["## Charts", *(f"::: {chart.__module__}.{chart.__name__}" for chart in drawn)]
    return "\n\n".join(parts) + "\n"
