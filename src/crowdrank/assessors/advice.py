"""Advice by flag and kind of assessor."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from crowdrank._assessor_kinds import KIND_PLURALS

FAULTS = ("random", "reversed", "copy", "careless", "strict", "lenient")
"""Flags that call for an action, the most serious first."""
REFERENCES = {"experts": "the experts", "others": "other assessors"}
"""Reference of a bias in words."""


@dataclass(frozen=True)
class Advice:
    """Advice on assessors with a flag.

    Attributes:
        word: the advice in a word.
        finding: what the flag means; `{reference}` stands for whom the assessors are compared with.
        people: what to do if they are people, experts among them; empty if there is nothing to do.
        llm: what to do if they are LLM judges.

    """

    word: str
    finding: str
    people: str = ""
    llm: str = ""

    def text(self, kinds: Collection[str] = (), reference: str = "others") -> str:
        """Return the finding and what to do, for people and for LLM judges if the kinds differ or are unknown.

        Args:
            kinds: kinds of the assessors; empty text for unknown ones.
            reference: whom the assessors are compared with.

        >>> ADVICE["reversed"].text({"llm"})
        'low grades for good documents and high grades for bad ones: check the order of the grades in the prompt'
        >>> ADVICE["careful"].text({""})
        'clearly more informative than most. People: give them more work. LLM judges: ask these first'
        """
        finding = self.finding.format(reference=reference)
        if not self.people:
            return finding
        if kinds and set(kinds) <= {"llm"}:
            return f"{finding}: {self.llm}"
        if kinds and set(kinds) <= {"human", "expert"}:
            return f"{finding}: {self.people}"
        return f"{finding}. {KIND_PLURALS['human'].capitalize()}: {self.people}. {KIND_PLURALS['llm']}: {self.llm}"


EXPLAIN_GRADES = ("explain the grades by examples", "describe each grade in the prompt, with an example")
ADVICE: Mapping[str, Advice] = {
    "careful": Advice("pay", "clearly more informative than most", "give them more work", "ask these first"),
    "": Advice("keep", "nothing stands out"),
    "copy": Advice(
        "check",
        "same answers as another assessor, so that they count twice and look too good",
        "ask whether they worked together, and pay for one of them",
        "ask one of them, or put them into one family",
    ),
    "lenient": Advice("calibrate", "grades higher than {reference} on the same documents", *EXPLAIN_GRADES),
    "strict": Advice("calibrate", "grades lower than {reference} on the same documents", *EXPLAIN_GRADES),
    "careless": Advice(
        "train",
        "clearly less informative than most, but not random",
        "show them examples",
        "improve the prompt, lower the temperature or use a better model",
    ),
    "random": Advice(
        "drop",
        "answers do not depend on the documents",
        "ask them for no more",
        "check that the prompt contains the document and that replies are read correctly, or use another model",
    ),
    "reversed": Advice(
        "check",
        "low grades for good documents and high grades for bad ones",
        "ask whether they reversed the scale",
        "check the order of the grades in the prompt",
    ),
    "few": Advice("wait", "too few judgments, or too similar documents, to decide"),
}
"""Advice by flag of an assessor."""
