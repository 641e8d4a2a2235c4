"""Pages of the documentation that help with each kind of error.

An installed package has no pages, so a page is named by its title and by its place in the repository.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crowdrank.errors import CrowdrankError, InputError, NotFittedError, OutputError, UsageError

ERRORS = "Errors and warnings"


@dataclass(frozen=True)
class Page:
    """A page of the documentation, or a section of it."""

    title: str
    section: str = ""
    file: str = "docs/refused.md"

    def __str__(self) -> str:
        section = f", section '{self.section}'" if self.section else ""
        return f"the page '{self.title}'{section} ({self.file} in crowdrank's repository)"


PAGES: dict[type[CrowdrankError], Page] = {
    InputError: Page(ERRORS, "Input files"),
    UsageError: Page(ERRORS, "Options"),
    OutputError: Page(ERRORS, "Output files and folders"),
    NotFittedError: Page("Five minutes", "The same in Python", "docs/start.md"),
    CrowdrankError: Page(ERRORS),
}


def page_for(problem: CrowdrankError) -> Page:
    """Return the page for an error, by its class or the nearest base class.

    >>> print(page_for(UsageError("There is no method 'x'.")))
    the page 'Errors and warnings', section 'Options' (docs/refused.md in crowdrank's repository)
    """
    return next(PAGES[kind] for kind in type(problem).__mro__ if kind in PAGES)


def help_for(problem: CrowdrankError, words: Sequence[str]) -> str:
    """Return where to read more: the help of the command, and a page.

    >>> print(help_for(UsageError("There is no method 'x'."), ["-q", "aggregate", "labels.csv"]))
    crowdrank aggregate --help; the page 'Errors and warnings', section 'Options' (docs/refused.md in crowdrank's
    repository)
    """
    arguments = [word for word in words if not word.startswith("-")]
    command = " ".join(arguments[: 2 if arguments[:1] == ["collect"] else 1])
    return f"crowdrank {command} --help; {page_for(problem)}"
