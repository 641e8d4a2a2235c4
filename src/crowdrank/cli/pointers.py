"""Which page of the documentation helps with which kind of error: the one place that says it."""

from __future__ import annotations

from crowdrank.errors import CrowdrankError, InputError, NotFittedError, OutputError, UsageError

PAGES: dict[type[CrowdrankError], str] = {
    InputError: "docs/refused.md#a-file-that-was-given",
    UsageError: "docs/refused.md#an-option",
    OutputError: "docs/refused.md#a-result-that-cannot-be-written",
    NotFittedError: "docs/start.md#the-same-in-python",
    CrowdrankError: "docs/refused.md",
}


def page_for(problem: CrowdrankError) -> str:
    """The page for an error, by its class or the nearest above it.

    >>> page_for(UsageError("There is no method 'x'."))
    'docs/refused.md#an-option'
    """
    return next(PAGES[kind] for kind in type(problem).__mro__ if kind in PAGES)
