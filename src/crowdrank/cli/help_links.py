"""What helps with which kind of error: the one place that says it.

Whoever installed a wheel has no pages at hand, so a page is named by its title, and by its place in the repository.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crowdrank.errors import CrowdrankError, InputError, NotFittedError, OutputError, UsageError

REFUSED = "When something is refused"


@dataclass(frozen=True)
class Page:
    """A page of the documentation, or a part of it."""

    title: str
    part: str = ""
    file: str = "docs/refused.md"

    def __str__(self) -> str:
        part = f", '{self.part}'" if self.part else ""
        return f"the page '{self.title}'{part} ({self.file} in crowdrank's repository)"


PAGES: dict[type[CrowdrankError], Page] = {
    InputError: Page(REFUSED, "A file that was given"),
    UsageError: Page(REFUSED, "An option"),
    OutputError: Page(REFUSED, "A result that cannot be written"),
    NotFittedError: Page("Five minutes", "The same in Python", "docs/start.md"),
    CrowdrankError: Page(REFUSED),
}


def page_for(problem: CrowdrankError) -> Page:
    """The page for an error, by its class or the nearest above it.

    >>> print(page_for(UsageError("There is no method 'x'.")))
    the page 'When something is refused', 'An option' (docs/refused.md in crowdrank's repository)
    """
    return next(PAGES[kind] for kind in type(problem).__mro__ if kind in PAGES)


def help_for(problem: CrowdrankError, words: Sequence[str]) -> str:
    """Where to read on: the verb's own help first, which everybody has.

    >>> print(help_for(UsageError("There is no method 'x'."), ["-q", "aggregate", "labels.csv"]))
    crowdrank aggregate --help; the page 'When something is refused', 'An option' (docs/refused.md in crowdrank's
    repository)
    """
    said = [word for word in words if not word.startswith("-")]
    verb = " ".join(said[: 2 if said[:1] == ["collect"] else 1])
    return f"crowdrank {verb} --help; {page_for(problem)}"
