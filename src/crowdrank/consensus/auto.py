"""Auto: choose among models by how well each predicts held-out judgments."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from crowdrank._base import unknown_name
from crowdrank._progress import Report, reporting
from crowdrank._saved import Fields, require
from crowdrank._text import counted
from crowdrank.consensus import DEFAULT_METHOD, METHODS, get_aggregator
from crowdrank.consensus._base import Aggregator, EMAggregator
from crowdrank.consensus.assembly import join_consensus
from crowdrank.consensus.em_loop import FitOptions
from crowdrank.consensus.grade_rules import DEFAULT_RULE
from crowdrank.consensus.held_out import MIN_JUDGMENTS, HeldOutFolds, Score, Scores
from crowdrank.consensus.result import Consensus
from crowdrank.constraints import Constraints, Number, OneOf
from crowdrank.engine.base import Engine
from crowdrank.errors import Fix, InputError, UsageError
from crowdrank.judgments import frames
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import UNJUDGEABLE, Judgments

DEFAULT_WITHOUT_OVERLAP = "average"
"""Method for judgments without a document that was judged twice."""
TOLERANCE = 1e-9
"""Scores closer than this are tied, and the simpler candidate is chosen."""
PURPOSES = ("ranking", "grades")


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
class ChoiceReason:
    """Why the candidates were chosen; the text has two sentences.

    Attributes:
        ranking: candidate chosen for the ranking.
        grades: candidate chosen for the grades.
        other_ranking: the candidate with the best score of its ranking among the others, if rankings were compared.
        other_grades: the candidate with the best score of its grades among the others, if candidates were compared.
        best_ranking: whether the chosen ranking has the best score; otherwise it is the default, and no other is
            significantly better.
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
        prefer, give = "which documents held-out assessors prefer", "which grades they give"
        if not self.ranked:
            give = "which grades held-out assessors give"
        by_grade = self._clause(self.grades, self.other_grades, self.best_grades, give)
        if self.ranked:
            clauses = f"{self._clause(self.ranking, self.other_ranking, self.best_ranking, prefer)}, and {by_grade}"
        else:
            clauses = f"{by_grade}, and there are too few queries or pairs of documents to compare rankings"
        return (
            f"{clauses}. The comparison of {counted(self.n_candidates, 'candidate')} used "
            f"{counted(self.n_judgments, 'judgment')} in {self.n_folds} folds of whole {units}, and no expert grades."
        )

    @staticmethod
    def _clause(chosen: str, other: str, is_best: bool, what: str) -> str:
        if is_best:
            return f"{chosen} predicts best {what}{f' (next: {other})' if other else ''}"
        return f"{chosen} is the default and {other} does not predict significantly better {what}"


class Auto(Aggregator):
    """Fit the models that best predict held-out judgments: one for the ranking, one for the grades.

    No expert grades are used for the choice. Assessors are held out in a few folds, whole families together, so that
    copies of an assessor cannot predict each other. Each candidate is fitted to the other folds. Its ranking is scored
    by the log probability of which of two documents of a query a held-out assessor prefers, given how far apart they
    are ranked; its grades by that of an assessor's answer, given the grade of the document (`scoring.py`). All
    families have the same weight. The candidate with the best score is chosen, unless `gda`, the default, is a
    candidate and the best one is not significantly better (two standard errors of the difference over folds). If the
    judgments have one query only, the model for the grades is used for the ranking too.

    The chosen models are then fitted to all judgments: relevance, sd, lower and upper come from one, grade and P(grade)
    from the other. Parameters of assessors come from the model for the ranking, or, if that has none, from the model
    for the grades. `add` updates the chosen models; only `fit` chooses.

    Args:
        candidates: names of methods or of `CANDIDATES`; by default all of `CANDIDATES`.
        folds: maximum number of folds.
        unjudgeable_as: use 'cannot judge' answers as the lowest grade (`lowest`), leave them out (`drop`), or use only
            candidates that model them (`model`). Candidates with a setting of their own keep it.
        interval: the level of `lower` and `upper`.
        grade_by: rule for the grade: `median`, `mode` or `mean` of P(grade).

    Attributes:
        choice_: one row per candidate: method, ranking and grades (the scores), chosen_for, note.
        choice_table_: `choice_` as an Arrow table.
        reason_: a :class:`ChoiceReason`.
        ranking_estimator_: the fitted model for the ranking.
        grade_estimator_: the fitted model for the grades.
        history_: the score of each candidate's ranking.

    >>> from crowdrank import simulate
    >>> world = simulate(queries=30, documents=10, random_state=1)
    >>> model = Auto(candidates=("average", "dawid-skene")).fit(world.judgments)
    >>> model.choice_[["method", "chosen_for"]].to_dict("list")
    {'method': ['average', 'dawid-skene'], 'chosen_for': ['', 'ranking and grades']}
    >>> model.reason_.ranking
    'dawid-skene'
    """

    shrinks: ClassVar[bool] = True
    _parameter_constraints: ClassVar[Constraints] = {
        "folds": [Number(2, integer=True)],
        "unjudgeable_as": [OneOf("lowest", "drop", "model")],
    }

    ranking_estimator_: EMAggregator
    grade_estimator_: EMAggregator
    choice_table_: pa.Table
    reason_: ChoiceReason

    def __init__(
        self,
        candidates: tuple[str, ...] | None = None,
        folds: int = 5,
        *,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
        grade_by: str = DEFAULT_RULE,
    ) -> None:
        self.candidates = candidates
        self.folds = folds
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval
        self.grade_by = grade_by

    # Choice.

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._candidates()

    def _candidates(self) -> list[Candidate]:
        if self.candidates is None:
            return list(CANDIDATES.values())
        if isinstance(self.candidates, str) or not self.candidates:
            raise UsageError(
                f'must be a list of names such as ["average", "gda"], not {self.candidates!r}', parameter="candidates"
            )
        known = {**{method: Candidate(method, method) for method in METHODS if method != "auto"}, **CANDIDATES}
        for name in self.candidates:
            if name not in known:
                raise unknown_name("candidate", name, known)
        return [known[name] for name in dict.fromkeys(self.candidates)]

    def _build(self, candidate: Candidate) -> Any:
        model = get_aggregator(candidate.method)
        shared = {name: getattr(self, name) for name in ("unjudgeable_as", "interval", "grade_by")}
        known = {name: value for name, value in shared.items() if name in model._parameter_names()}
        return model.set_params(**{**known, **candidate.parameters})

    def _choose(
        self, judgments: Judgments, engine: Engine | None, report: Report
    ) -> tuple[Choice, dict[str, Candidate]]:
        """Return the choice among the candidates that can be fitted to these judgments."""
        notes = {one.name: one.reason_to_skip(judgments) for one in self._candidates()}
        usable = {one.name: one for one in self._candidates() if not notes[one.name]}
        folds = HeldOutFolds.split(judgments, self.folds)
        scores: dict[str, Scores] = {}
        for candidate in usable.values() if folds.is_sufficient else ():
            try:
                scores[candidate.name] = folds.score(partial(self._build, candidate), engine)
            except (InputError, UsageError) as problem:
                notes[candidate.name] = f"left out: {problem}"
                continue
            report(len(scores), len(usable), scores[candidate.name].ranking.mean)
        if not folds.is_sufficient:
            default = self._first_that_fits(usable, notes, judgments, engine)
            report(1, 1, float("nan"))
            return Choice([default], [default], scores, notes, folds), usable
        if not scores:
            raise no_candidate_error(notes)
        by_grade = best_first({name: one.grades for name, one in scores.items()})
        by_rank = best_first({name: one.ranking for name, one in scores.items()}) if folds.has_pairs else by_grade
        return Choice(by_rank, by_grade, scores, notes, folds), usable

    def _first_that_fits(
        self, usable: dict[str, Candidate], notes: dict[str, str], judgments: Judgments, engine: Engine | None
    ) -> str:
        """Return the default method if it is a candidate that can be fitted, otherwise the first that can."""
        overlap = int(np.diff(judgments.offsets).max(initial=0)) > 1
        default = DEFAULT_METHOD if overlap else DEFAULT_WITHOUT_OVERLAP
        for name in sorted(usable, key=lambda name: name != default):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the final fit warns
                    self._build(usable[name]).fit(judgments, engine=engine)
            except (InputError, UsageError) as problem:
                notes[name] = f"left out: {problem}"
            else:
                return name
        raise no_candidate_error(notes)

    # Contract.

    def _fit(
        self, judgments: Judgments | ShardedJudgments, gold: Gold | None, init: Self | None, options: FitOptions
    ) -> Self:
        if options.checkpoint is not None:
            fix = "fit the method of your choice with a checkpoint"
            raise UsageError("is not available for Auto, which makes many short fits", parameter="checkpoint", fix=fix)
        table: Any = judgments
        sample: Any = judgments
        if isinstance(judgments, ShardedJudgments):
            table, sample = replace(judgments, output=None), judgments.sample()
        sample = sample.on_one_scale()
        sample = sample.with_unjudgeable("drop") if self.unjudgeable_as == "drop" else sample
        with reporting(options.progress, type(self).__name__) as report:
            choice, usable = self._choose(sample, options.engine, report)
        bar = replace(options, progress=options.progress is True)
        chosen = {
            name: self._build(usable[name])._fit(table, gold, self._start_of(init, name, usable), bar)
            for name in dict.fromkeys((choice.by_rank[0], choice.by_grade[0]))
        }
        self.choice_table_, self.reason_ = choice.table(), choice.reason()
        self.history_ = choice.history()
        self._set_estimators(chosen[choice.by_rank[0]], chosen[choice.by_grade[0]], judgments)
        return self

    @staticmethod
    def _start_of(init: Auto | None, name: str, usable: dict[str, Candidate]) -> Any:
        """Return the estimator of `init` that the model of a candidate can start from, if there is one."""
        if init is None:
            return None
        cls = type(get_aggregator(usable[name].method))
        return next((one for one in (init.ranking_estimator_, init.grade_estimator_) if type(one) is cls), None)

    def _set_estimators(self, ranking: EMAggregator, grades: EMAggregator, judgments: Any) -> None:
        consensus = join_consensus(ranking.consensus_, grades.consensus_, judgments)
        self.ranking_estimator_, self.grade_estimator_, self.consensus_ = ranking, grades, consensus
        self.judgments_, self.gold_ = judgments, ranking.gold_
        self.n_iter_, self.converged_ = len(self.history_), ranking.converged_ and grades.converged_

    def _add(self, judgments: Judgments, rounds: int | None, options: FitOptions) -> Self:
        ranking = self.ranking_estimator_._add(judgments, rounds, options)
        same = self.grade_estimator_ is self.ranking_estimator_
        grades = ranking if same else self.grade_estimator_._add(judgments, rounds, options)
        self._set_estimators(ranking, grades, judgments)
        return self

    def _infer(self, judgments: Judgments) -> Consensus:
        ranking, grades = self.ranking_estimator_._infer(judgments), self.grade_estimator_._infer(judgments)
        return join_consensus(ranking, grades, judgments)

    def posterior_table(self, judgments: Any = None) -> pa.Table:
        """Return the posterior of the model for the ranking."""
        self._require_fitted()
        return self.ranking_estimator_.posterior_table(judgments)

    @property
    def choice_(self) -> Any:
        """One row per candidate, as a DataFrame of the library that the judgments came in."""
        self._require_fitted()
        return frames.from_arrow(self.choice_table_, self.consensus_.backend)

    @property
    def assessor_estimator_(self) -> EMAggregator:
        """The model for the ranking, or, if that has no model of answers, the model for the grades."""
        return self.ranking_estimator_ if self.ranking_estimator_.answer_states() else self.grade_estimator_

    @property
    def in_grades(self) -> bool:
        """Whether the relevance of the model for the ranking is in grades."""
        return self.ranking_estimator_.in_grades

    # Storage.

    def _write_state(self, folder: Path) -> dict[str, Any]:
        """Write the fitted models into subfolders."""
        self.ranking_estimator_.save(folder / "ranking")
        if self.grade_estimator_ is not self.ranking_estimator_:
            self.grade_estimator_.save(folder / "grades")
        choice = {"choice": self.choice_table_.to_pylist(), "reason": asdict(self.reason_)}
        return {"history": self.history_, **choice}

    def _read_state(self, folder: Path, fields: Fields, files: Iterable[str]) -> None:
        ranking: Any = Aggregator.load(folder / "ranking")
        grades: Any = Aggregator.load(folder / "grades") if (folder / "grades").exists() else ranking
        for estimator in (ranking, grades):
            require(isinstance(estimator, EMAggregator), "a chosen estimator is not a single model")
            require(_equal(estimator.judgments_, ranking.judgments_), "the models were fitted to different judgments")
        self.history_ = fields.numbers("history")
        self.choice_table_ = pa.Table.from_pylist(fields.sequence("choice"), schema=CHOICE_SCHEMA)
        self.reason_ = ChoiceReason(**fields.object("reason"))
        require(self.reason_.unit in ("assessor", "family"), "the reason is not that of a choice")
        self._set_estimators(ranking, grades, ranking.judgments_)


@dataclass(frozen=True)
class Choice:
    """Candidates in the order of their scores.

    Attributes:
        by_rank: names of candidates, best ranking first.
        by_grade: names of candidates, best grades first.
        scores: scores of the candidates that were compared.
        notes: note on each candidate, empty or why it was left out.
        folds: the held-out judgments.

    """

    by_rank: list[str]
    by_grade: list[str]
    scores: dict[str, Scores]
    notes: dict[str, str]
    folds: HeldOutFolds

    def history(self) -> list[float]:
        """Return the score of each candidate's ranking."""
        return [one.ranking.mean for one in self.scores.values()] or [float("nan")]

    def table(self) -> pa.Table:
        """Return one row per candidate: its scores and what it was chosen for, or why it was left out."""
        rows = []
        for name, note in self.notes.items():
            purposes = dict(zip(PURPOSES, (self.by_rank[0], self.by_grade[0]), strict=True))
            chosen_for = " and ".join(purpose for purpose, chosen in purposes.items() if chosen == name)
            row: dict[str, Any] = {"method": name, "chosen_for": chosen_for, "note": note}
            if name in self.scores:
                row |= {"ranking": self.scores[name].ranking.mean, "grades": self.scores[name].grades.mean}
            rows.append(row)
        return pa.Table.from_pylist(rows, schema=CHOICE_SCHEMA)

    def reason(self) -> ChoiceReason:
        """Return why the first candidates were chosen."""
        if not self.scores:
            return ChoiceReason(
                self.by_rank[0], self.by_grade[0], n_judgments=self.folds.n_judgments, unit=self.folds.unit
            )
        ranking, grades = ({name: getattr(one, kind).mean for name, one in self.scores.items()} for kind in PURPOSES)
        ranked = self.folds.has_pairs
        return ChoiceReason(
            self.by_rank[0],
            self.by_grade[0],
            self.by_rank[1] if ranked and len(self.by_rank) > 1 else "",
            self.by_grade[1] if len(self.by_grade) > 1 else "",
            not ranked or ranking[self.by_rank[0]] >= max(ranking.values()) - TOLERANCE,
            grades[self.by_grade[0]] >= max(grades.values()) - TOLERANCE,
            len(self.scores),
            self.folds.n_judgments,
            len(self.folds.folds),
            self.folds.unit,
            ranked,
        )


def best_first(scores: Mapping[str, Score]) -> list[str]:
    """Return the names by falling score, tied names in their order.

    The default method is first if no other is significantly better.

    >>> scores = {name: Score(mean, mean + np.array([-0.1, 0.1])) for name, mean in (("bwa", -2.0), ("rasch", -1.0))}
    >>> best_first(scores), best_first({**scores, "gda": Score(-1.1, np.array([-1.0, -1.2]))})
    (['rasch', 'bwa'], ['gda', 'rasch', 'bwa'])
    """
    order, remaining = [], list(scores)
    while remaining:
        best = max(scores[name].mean for name in remaining)
        order.append(next(name for name in remaining if scores[name].mean >= best - TOLERANCE))
        remaining.remove(order[-1])
    if DEFAULT_METHOD in scores and not scores[order[0]].is_significantly_above(scores[DEFAULT_METHOD]):
        order.sort(key=lambda name: name != DEFAULT_METHOD)
    return order


def no_candidate_error(notes: Mapping[str, str]) -> InputError:
    """Return the error for judgments to which no candidate can be fitted."""
    reasons = "; ".join(f"{name}: {note}" for name, note in notes.items())
    fix = Fix("name other methods with {}", "candidates")
    return InputError(f"no candidate can be fitted to these judgments ({reasons})", fix=fix, kind="no-candidate")


def _equal(one: Judgments, other: Judgments) -> bool:
    """Return whether two tables have the same judgments and scales."""
    arrays = ("item_query", "item_document", "offsets", "assessor", "grade", "assessor_scale")
    ids = ("queries", "documents", "assessors")
    return one is other or (
        one.scales == other.scales
        and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)
        and all(getattr(one, name).equals(getattr(other, name)) for name in ids)
    )
