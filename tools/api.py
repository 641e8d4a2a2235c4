"""Pages of the library reference: one per package, with its public names; mkdocstrings fills them."""

from __future__ import annotations

import crowdrank
from crowdrank.reports import charts

TITLES = {
    "judgments": "Judgments, features, expert grades",
    "engine": "Engines",
    "evaluation": "Measures and comparisons",
    "simulation": "Simulation",
    "consensus": "Consensus",
    "assessors": "Assessors",
    "rankers": "Rankers",
    "label_learning": "Learned targets and weights",
    "collection": "What to label next",
    "pipeline": "The whole run",
    "reports": "Reports",
    "testing": "Contract checks",
}
"""Titles of the pages of packages, in their order; the page of another package has its name as title."""


def pages() -> dict[str, str]:
    """Return the text of each page, by its path.

    >>> [name for name in pages()][:2], "crowdrank.consensus.gda.GDA" in pages()["api/consensus.md"]
    (['api/judgments.md', 'api/engine.md'], True)
    """
    packages: dict[str, list[str]] = {package: [] for package in TITLES}
    public = {**crowdrank._LOCATIONS, **dict.fromkeys(crowdrank.testing.__all__, "testing")}
    for name, module in public.items():
        packages.setdefault(module.split(".")[0], []).append(f"{module}.{name}")
    return {f"api/{package}.md": _page(package, names) for package, names in packages.items() if names}


def _page(package: str, names: list[str]) -> str:
    parts = [f"# {TITLES.get(package, package)}", *(f"::: crowdrank.{name}" for name in names)]
    if package == "reports":
        functions = (getattr(charts, name) for name in charts.__all__)
        parts += ["## Charts", *(f"::: {function.__module__}.{function.__name__}" for function in functions)]
    return "\n\n".join(parts) + "\n"
