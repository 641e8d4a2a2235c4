"""Candidates of :class:`crowdrank.Auto`, and the choice among them by their scores on held-out judgments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from crowdrank._base import unknown_name
from crowdrank._text import counted
from crowdrank.consensus import DEFAULT_METHOD, METHODS
from crowdrank.consensus.held_out import MIN_JUDGMENTS, HeldOutFolds, Score, Scores
from crowdrank.errors import Fix, InputError, UsageError
from crowdrank.judgments.table import UNJUDGEABLE, Judgments

TOLERANCE = 1e-9
"""Scores closer than this are tied, and the simpler candidate is chosen."""
CHOICE_SCHEMA = pa.schema(
    [
        ("method", pa.string()),
        ("ranking", pa.float64()),
        ("grades", pa.float64()),
        ("chosen_for", pa.string()),
        ("note", pa.string()),
    ]
)


@dataclass(frozen=True)
class Candidate:
    """A method with its parameters.

    Attributes:
        name: name of the candidate.
        method: name of the method.
        parameters: parameters of the method.
        needs: what the judgments must have for the candidate: `families`, `unjudgeable` or nothing.

    """

    name: str
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""

    def reason_to_skip(self, judgments: Judgments) -> str:
        """Return why the candidate has no use for these judgments, or an empty string."""
        if self.needs == "families" and judgments.families is None:
            return "left out: there are no families"
        if self.needs == "unjudgeable" and not (judgments.grade == UNJUDGEABLE).any():
            return "left out: there is no 'cannot judge' answer"
        return ""


CANDIDATES = {
    candidate.name: candidate
    for candidate in (
        Candidate("majority", "majority"),
        Candidate("average", "average"),
        Candidate("family-mean", "family-mean", needs="families"),
        Candidate("bwa", "bwa"),
        Candidate("dawid-skene", "dawid-skene"),
        Candidate("one-coin", "one-coin"),
        Candidate("threshold-dawid-skene", "threshold-dawid-skene"),
        Candidate("glad", "glad"),
        Candidate("rasch", "rasch"),
        Candidate("gda", "gda"),
        Candidate("gda-unjudgeable", "gda", {"unjudgeable_as": "model"}, needs="unjudgeable"),
    )
}
"""Default candidates, simplest first."""


def find_candidates(names: Sequence[str] | None) -> list[Candidate]:
    """Return the candidates of these names, or the default ones; raise UsageError for an unknown name."""
    if names is None:
        return list(CANDIDATES.values())
    if isinstance(names, str) or not names:
        raise UsageError(f'must be a list of names such as ["average", "gda"], not {names!r}', parameter="candidates")
    known = {**{method: Candidate(method, method) for method in METHODS if method != "auto"}, **CANDIDATES}
    for name in names:
        if name not in known:
            raise unknown_name("candidate", name, known)
    return [known[name] for name in dict.fromkeys(names)]


@dataclass(frozen=True)
class ChoiceReason:
    """Why the candidates were chosen; the text has two sentences.

    Attributes:
        ranking: candidate chosen for the ranking.
        grades: candidate chosen for the grades.
        other_ranking: the candidate with the best score of its ranking among the others, if rankings were compared.
        other_grades: the candidate with the best score of its grades among the others, if candidates were compared.
        best_ranking: whether the chosen ranking has the best score; otherwise it is the default, and no other is
            clearly better.
        best_grades: the same for the grades.
        n_candidates: number of candidates that were compared; 0 if there were too few judgments to compare.
        n_judgments: number of held-out judgments on documents that others judged too.
        n_folds: number of folds.
        unit: unit that was held out as a whole: `assessor` or `family`.
        ranked: whether there were enough queries and pairs of documents to compare rankings.

    >>> print(ChoiceReason("gda", "dawid-skene", "rasch", "gda", n_candidates=9, n_judgments=1200, n_folds=5))
    gda predicts best which documents held-out assessors prefer (next: rasch), and dawid-skene predicts best which
    grades they give (next: gda). The comparison of 9 candidates used 1,200 judgments in 5 folds of whole assessors, and
    no expert grades.

    """

    ranking: str
    grades: str
    other_ranking: str = ""
    other_grades: str = ""
    best_ranking: bool = True
    best_grades: bool = True
    n_candidates: int = 0
    n_judgments: int = 0
    n_folds: int = 0
    unit: str = "assessor"
    ranked: bool = True

    def __str__(self) -> str:
        units = {"assessor": "assessors", "family": "families"}[self.unit]
        if not self.n_candidates:
            return (
                f"{self.ranking} is the default for these judgments. Candidates are compared from {MIN_JUDGMENTS} "
                f"judgments on documents that other {units} judged too, and there are {self.n_judgments:,}."
            )
        givers = "they" if self.ranked else "held-out assessors"
        clauses = [_clause(self.grades, self.other_grades, self.best_grades, f"which grades {givers} give")]
        if self.ranked:
            prefer = "which documents held-out assessors prefer"
            clauses.insert(0, _clause(self.ranking, self.other_ranking, self.best_ranking, prefer))
        else:
            clauses.append("there are too few queries or pairs of documents to compare rankings")
        return (
            f"{', and '.join(clauses)}. The comparison of {counted(self.n_candidates, 'candidate')} used "
            f"{counted(self.n_judgments, 'judgment')} in {self.n_folds} folds of whole {units}, and no expert grades."
        )


def _clause(chosen: str, other: str, is_best: bool, what: str) -> str:
    if is_best:
        return f"{chosen} predicts best {what}{f' (next: {other})' if other else ''}"
    return f"{chosen} is the default and {other} does not predict clearly better {what}"


@dataclass(frozen=True)
class Choice:
    """Candidates in the order of their scores.

    Attributes:
        by_ranking: names of candidates, best ranking first.
        by_grades: names of candidates, best grades first.
        scores: scores of the candidates that were compared.
        notes: note on each candidate, empty or why it was left out.
        folds: the held-out judgments.

    """

    by_ranking: list[str]
    by_grades: list[str]
    scores: Mapping[str, Scores]
    notes: Mapping[str, str]
    folds: HeldOutFolds

    @classmethod
    def by_scores(cls, scores: Mapping[str, Scores], notes: Mapping[str, str], folds: HeldOutFolds) -> Choice:
        """Return the candidates by falling score; without enough pairs, the scores of grades stand for both."""
        by_grades = best_first({name: score.grades for name, score in scores.items()})
        by_ranking = best_first({name: score.ranking for name, score in scores.items()}) if folds.has_pairs else None
        return cls(by_ranking or by_grades, by_grades, scores, notes, folds)

    def table(self) -> pa.Table:
        """Return one row per candidate: its scores and what it was chosen for, or why it was left out."""
        rows = []
        for name, note in self.notes.items():
            purposes = {"ranking": self.by_ranking[0], "grades": self.by_grades[0]}
            chosen_for = " and ".join(purpose for purpose, chosen in purposes.items() if chosen == name)
            row: dict[str, Any] = {"method": name, "chosen_for": chosen_for, "note": note}
            if name in self.scores:
                row |= {purpose: getattr(self.scores[name], purpose).mean for purpose in purposes}
            rows.append(row)
        return pa.Table.from_pylist(rows, schema=CHOICE_SCHEMA)

    def reason(self) -> ChoiceReason:
        """Return why the first candidates were chosen."""
        ranking, grades, folds = self.by_ranking, self.by_grades, self.folds
        if not self.scores:
            return ChoiceReason(ranking[0], grades[0], n_judgments=folds.n_judgments, unit=folds.unit)
        ranked = folds.has_pairs
        return ChoiceReason(
            ranking=ranking[0],
            grades=grades[0],
            other_ranking="".join(ranking[1:2]) if ranked else "",
            other_grades="".join(grades[1:2]),
            best_ranking=not ranked or self._has_best_score(ranking[0], "ranking"),
            best_grades=self._has_best_score(grades[0], "grades"),
            n_candidates=len(self.scores),
            n_judgments=folds.n_judgments,
            n_folds=len(folds.folds),
            unit=folds.unit,
            ranked=ranked,
        )

    def _has_best_score(self, name: str, purpose: str) -> bool:
        means = {one: getattr(score, purpose).mean for one, score in self.scores.items()}
        return bool(means[name] >= max(means.values()) - TOLERANCE)


def best_first(scores: Mapping[str, Score]) -> list[str]:
    """Return the names by falling score, tied names in their order.

    The default method is first if the best is not clearly better.

    >>> import numpy as np
    >>> scores = {name: Score(mean, mean + np.array([-0.1, 0.1])) for name, mean in (("bwa", -2.0), ("rasch", -1.0))}
    >>> best_first(scores), best_first({**scores, "gda": Score(-1.1, np.array([-1.0, -1.2]))})
    (['rasch', 'bwa'], ['gda', 'rasch', 'bwa'])
    """
    order, remaining = [], list(scores)
    while remaining:
        best = max(scores[name].mean for name in remaining)
        order.append(next(name for name in remaining if scores[name].mean >= best - TOLERANCE))
        remaining.remove(order[-1])
    if DEFAULT_METHOD in scores and not scores[order[0]].is_clearly_above(scores[DEFAULT_METHOD]):
        order.sort(key=lambda name: name != DEFAULT_METHOD)
    return order


def no_candidate_error(notes: Mapping[str, str]) -> InputError:
    """Return the exception to raise if no candidate model can be fitted to the judgments."""
    reasons = "; ".join(f"{name}: {note}" for name, note in notes.items())
    fix = Fix("name other methods with {}", "candidates")
    return InputError(f"no candidate can be fitted to these judgments ({reasons})", fix=fix, kind="no-candidate")
