"""Documentation page for each class of errors.

The documentation is not installed with the package, so a page is named by its title and its path in the repository.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crowdrank.errors import CrowdrankError, InputError, NotFittedError, OutputError, UsageError

ERRORS_PAGE_TITLE = "Errors and warnings"


@dataclass(frozen=True)
class Page:
    """A page of the documentation, or a section of it."""

    title: str
    section: str = ""
    file: str = "docs/refused.md"

    def __str__(self) -> str:
        section = f", section '{self.section}'" if self.section else ""
        return f"the page '{self.title}'{section} ({self.file} in crowdrank's repository)"


PAGE_BY_ERROR: dict[type[CrowdrankError], Page] = {
    InputError: Page(ERRORS_PAGE_TITLE, "Input files"),
    UsageError: Page(ERRORS_PAGE_TITLE, "Options"),
    OutputError: Page(ERRORS_PAGE_TITLE, "Output files and folders"),
    NotFittedError: Page("Five minutes", "The same in Python", "docs/start.md"),
    CrowdrankError: Page(ERRORS_PAGE_TITLE),
}


def page_for(error: CrowdrankError) -> Page:
    """Return the documentation page for the class of an error, or for its nearest base class.

    >>> print(page_for(UsageError("There is no method 'x'.")))
    the page 'Errors and warnings', section 'Options' (docs/refused.md in crowdrank's repository)
    """
    return next(PAGE_BY_ERROR[kind] for kind in type(error).__mro__ if kind in PAGE_BY_ERROR)


def help_for(error: CrowdrankError, command_line: Sequence[str]) -> str:
    """Return where to find help with an error: the help of the command, and a documentation page.

    >>> print(help_for(UsageError("There is no method 'x'."), ["-q", "aggregate", "labels.csv"]))
    crowdrank aggregate --help; the page 'Errors and warnings', section 'Options' (docs/refused.md in crowdrank's
    repository)
    """
    arguments = [word for word in command_line if not word.startswith("-")]
    command = " ".join(arguments[: 2 if arguments[:1] in (["collect"], ["judge"], ["remap"]) else 1])
    return f"crowdrank {command} --help; {page_for(error)}"
