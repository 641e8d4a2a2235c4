"""Auto: choose among models by how well each predicts held-out judgments."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from crowdrank._estimator import unknown_name_error
from crowdrank._folders import Fields, require
from crowdrank._progress import Report, reporting
from crowdrank._text import counted
from crowdrank.consensus import DEFAULT_METHOD, METHODS, get_aggregator
from crowdrank.consensus.assembly import join_consensus
from crowdrank.consensus.grade_rules import DEFAULT_RULE
from crowdrank.consensus.held_out import MIN_JUDGMENTS, HeldOutFolds, Score, Scores
from crowdrank.consensus.model import Aggregator, EMAggregator, FitOptions
from crowdrank.consensus.result import Consensus
from crowdrank.constraints import Constraints, Number, OneOf
from crowdrank.engine.passes import Engine
from crowdrank.errors import Fix, InputError, UsageError
from crowdrank.judgments import frames
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.preferences import Preferences
from crowdrank.judgments.table import UNJUDGEABLE, Judgments
from crowdrank.on_disk.sharded import ShardedJudgments

SCORE_TOLERANCE = 1e-9
"""Scores closer than this are tied, and the simpler candidate is chosen."""
MAX_GRADE_ERRORS = 2.0
"""Number of standard errors below the best score of grades up to which the ranking decides between candidates."""
CHOICE_SCHEMA = pa.schema(
    [
        ("method", pa.string()),
        ("ranking", pa.float64()),
        ("grades", pa.float64()),
        ("chosen_for", pa.string()),
        ("note", pa.string()),
    ]
)
"""Columns of `Auto.choice_table_`, one row per candidate; ranking and grades are mean log scores."""


@dataclass(frozen=True)
class CandidateModel:
    """Candidate for the choice of a model: a method with its parameters.

    Attributes:
        name: name of the candidate.
        method: name of the method, a key of `METHODS`.
        parameters: parameters of the method.
        needs: what the judgments must have for the candidate: `families`, `unjudgeable` or nothing.

    """

    name: str
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""

    def reason_to_skip(self, judgments: Judgments) -> str:
        """Return the reason why the candidate cannot differ from others on these judgments, or an empty string."""
        if self.needs == "families" and judgments.families is None:
            return "left out: there are no families"
        if self.needs == "unjudgeable" and not (judgments.grade == UNJUDGEABLE).any():
            return "left out: there is no 'cannot judge' answer"
        return ""


CANDIDATES = {
    candidate.name: candidate
    for candidate in (
        CandidateModel("majority", "majority"),
        CandidateModel("average", "average"),
        CandidateModel("family-mean", "family-mean", needs="families"),
        CandidateModel("bwa", "bwa"),
        CandidateModel("dawid-skene", "dawid-skene"),
        CandidateModel("one-coin", "one-coin"),
        CandidateModel("threshold-dawid-skene", "threshold-dawid-skene"),
        CandidateModel("glad", "glad"),
        CandidateModel("rasch", "rasch"),
        CandidateModel("gda", "gda"),
        CandidateModel("gda-unjudgeable", "gda", {"unjudgeable_as": "model"}, needs="unjudgeable"),
    )
}
"""Default candidates of :class:`Auto` by name, simplest first."""


def find_candidates(names: Sequence[str] | None) -> list[CandidateModel]:
    """Return the candidates with these names, or the default ones if `names` is None.

    Raises:
        UsageError: a name is unknown.

    """
    if names is None:
        return list(CANDIDATES.values())
    if isinstance(names, str) or not names:
        raise UsageError(f'must be a list of names such as ["average", "gda"], not {names!r}', parameter="candidates")
    known = {**{method: CandidateModel(method, method) for method in METHODS if method != "auto"}, **CANDIDATES}
    for name in names:
        if name not in known:
            raise unknown_name_error("candidate", name, known)
    return [known[name] for name in dict.fromkeys(names)]


@dataclass(frozen=True)
class ChoiceReason:
    """Reason for the choice among candidates; `str` gives it as two sentences.

    Attributes:
        ranking: candidate chosen for the ranking.
        grades: candidate chosen for the grades.
        other_ranking: best of the other candidates for the ranking; empty if rankings were not compared.
        other_grades: best of the other candidates for the grades; empty if candidates were not compared.
        best_ranking: whether the candidate for the ranking has the best score; if not, it is the default method, and
            the best score is not clearly above that of the default.
        best_grades: whether the candidate for the grades has the best score; if not, it has the best ranking of the
            candidates whose grades are not significantly worse, or, without rankings, it is the default.
        n_candidates: number of candidates that were compared; 0 if there were too few judgments to compare.
        n_judgments: number of held-out judgments on documents that others judged too.
        n_folds: number of folds.
        unit: unit that was held out as a whole: `assessor` or `family`.
        ranked: whether there were enough pairs of documents to compare rankings.

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
        clauses = [_choice_clause(self.grades, self.other_grades, self.best_grades, f"which grades {givers} give")]
        if self.ranked:
            if not self.best_grades:
                clauses = [
                    f"{self.grades} predicts the grades they give about as well as {self.other_grades}, "
                    "and preferences better"
                ]
            prefer = "which documents held-out assessors prefer"
            clauses.insert(0, _choice_clause(self.ranking, self.other_ranking, self.best_ranking, prefer))
        else:
            clauses.append("there are too few pairs of documents to compare rankings")
        return (
            f"{', and '.join(clauses)}. The comparison of {counted(self.n_candidates, 'candidate')} used "
            f"{counted(self.n_judgments, 'judgment')} in {self.n_folds} folds of whole {units}, and no expert grades."
        )


def _choice_clause(chosen: str, runner_up: str, is_best: bool, predicted: str) -> str:
    if is_best:
        return f"{chosen} predicts best {predicted}{f' (next: {runner_up})' if runner_up else ''}"
    return f"{chosen} is the default and {runner_up} does not predict clearly better {predicted}"


@dataclass(frozen=True)
class Choice:
    """Result of comparing candidates: their order by score, best first.

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
        """Return the choice with candidates in descending order of score.

        Candidates whose grades are not significantly worse than the best come first, best ranking first. With too few
        pairs of documents to score rankings, the order by grades is also the order by ranking.
        """
        grades = {name: score.grades for name, score in scores.items()}
        if not folds.has_pairs:
            order = order_by_score(grades)
            return cls(order, order, scores, notes, folds)
        ranking = {name: score.ranking for name, score in scores.items()}
        return cls(order_by_score(ranking), order_by_grades(grades, ranking), scores, notes, folds)

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
        """Return the reason for the choice of the first candidates."""
        ranking, grades, folds = self.by_ranking, self.by_grades, self.folds
        if not self.scores:
            return ChoiceReason(ranking[0], grades[0], n_judgments=folds.n_judgments, unit=folds.unit)
        ranked, best_grades = folds.has_pairs, self._has_best_score(grades[0], "grades")
        return ChoiceReason(
            ranking=ranking[0],
            grades=grades[0],
            other_ranking="".join(ranking[1:2]) if ranked else "",
            other_grades="".join(grades[1:2]) if best_grades else self._best("grades"),
            best_ranking=not ranked or self._has_best_score(ranking[0], "ranking"),
            best_grades=best_grades,
            n_candidates=len(self.scores),
            n_judgments=folds.n_judgments,
            n_folds=len(folds.folds),
            unit=folds.unit,
            ranked=ranked,
        )

    def _best(self, purpose: str) -> str:
        return _descending({name: getattr(score, purpose) for name, score in self.scores.items()})[0]

    def _has_best_score(self, name: str, purpose: str) -> bool:
        means = {one: getattr(score, purpose).mean for one, score in self.scores.items()}
        return bool(means[name] >= means[self._best(purpose)] - SCORE_TOLERANCE)


def order_by_score(scores: Mapping[str, Score]) -> list[str]:
    """Return the names in descending order of mean score; tied names keep their order.

    The default method comes first if the best score is not clearly above its score (`Score.is_clearly_above`).

    >>> import numpy as np
    >>> scores = {name: Score(mean, mean + np.array([-0.1, 0.1])) for name, mean in (("bwa", -2.0), ("rasch", -1.0))}
    >>> order_by_score(scores), order_by_score({**scores, "gda": Score(-1.1, np.array([-1.0, -1.2]))})
    (['rasch', 'bwa'], ['gda', 'rasch', 'bwa'])
    """
    order = _descending(scores)
    if DEFAULT_METHOD in scores and not scores[order[0]].is_clearly_above(scores[DEFAULT_METHOD]):
        order.sort(key=lambda name: name != DEFAULT_METHOD)
    return order


def order_by_grades(grades: Mapping[str, Score], ranking: Mapping[str, Score]) -> list[str]:
    """Return the names in descending order of the score of grades, after those that are about as good as the best.

    These are the candidates that the best one does not beat by more than `MAX_GRADE_ERRORS` standard errors; they are
    in descending order of the score of their ranking.

    >>> import numpy as np
    >>> grades = {name: Score(mean, mean + np.array([-0.1, 0.1])) for name, mean in (("a", -1.0), ("b", -1.0))}
    >>> ranking = {"a": Score(-0.6, np.array([-0.6])), "b": Score(-0.5, np.array([-0.5]))}
    >>> order_by_grades({**grades, "c": Score(-3.0, np.array([-3.1, -2.9]))}, {**ranking, "c": ranking["b"]})
    ['b', 'a', 'c']
    """
    order = _descending(grades)
    best = grades[order[0]]
    near = [name for name in grades if name == order[0] or not best.is_clearly_above(grades[name], MAX_GRADE_ERRORS)]
    first = _descending({name: ranking[name] for name in near})
    return first + [name for name in order if name not in first]


def _descending(scores: Mapping[str, Score]) -> list[str]:
    """Return the names in descending order of mean score; tied names keep their order."""
    order, remaining = [], list(scores)
    while remaining:
        best = max(scores[name].mean for name in remaining)
        order.append(next(name for name in remaining if scores[name].mean >= best - SCORE_TOLERANCE))
        remaining.remove(order[-1])
    return order


def no_candidate_error(notes: Mapping[str, str]) -> InputError:
    """Return the exception to raise if no candidate model can be fitted to the judgments."""
    reasons = "; ".join(f"{name}: {note}" for name, note in notes.items())
    fix = Fix("name other methods with {}", "candidates")
    return InputError(f"no candidate can be fitted to these judgments ({reasons})", fix=fix, kind="no-candidate")


DEFAULT_WITHOUT_OVERLAP = "average"
"""Method for judgments without a document that was judged twice."""


class Auto(Aggregator):
    """Fit the models that best predict held-out judgments: one for the ranking, one for the grades.

    No expert grades are used for the choice. Assessors are held out in a few folds, whole families together, so that
    copies of an assessor cannot predict each other. Each candidate is fitted to the other folds. Its ranking is scored
    by the log probability of which of two documents of a query a held-out assessor prefers, given how far apart they
    are ranked; its grades by that of an assessor's answer, given the grade of the document and the loss that `grade_by`
    minimizes (`held_out.py`). All families have the same weight. For the ranking the candidate with the best score is
    chosen, unless `gda`, the default, is a candidate and the best one is better by less than the standard error of the
    difference over folds. For the grades, the candidate with the best score of the ranking is chosen among those whose
    grades the best one does not beat by more than two standard errors; without pairs of documents, as for the ranking.

    The chosen models are then fitted to all judgments: relevance, sd, lower and upper come from one, grade and P(grade)
    from the other. Parameters of assessors come from the model for the ranking, or, if that has none, from the model
    for the grades. `add` updates the chosen models; only `fit` chooses.

    Args:
        candidates: names of methods or of `CANDIDATES`; by default all of `CANDIDATES`.
        folds: maximum number of folds.
        unjudgeable_as: use 'cannot judge' answers as the lowest grade (`lowest`), leave them out (`drop`), or use only
            candidates that model them (`model`). Candidates with a setting of their own keep it.
        interval: the level of `lower` and `upper`.
        grade_by: rule for the grade: `median`, `mode` or `mean` of P(grade). Grades are compared by its loss: absolute
            error, zero-one loss or squared error.

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
        find_candidates(self.candidates)

    def _make_model(self, candidate: CandidateModel) -> Any:
        model = get_aggregator(candidate.method)
        shared = {name: getattr(self, name) for name in ("unjudgeable_as", "interval", "grade_by")}
        known = {name: value for name, value in shared.items() if name in model._parameter_names()}
        return model.set_params(**{**known, **candidate.parameters})

    def _choose(self, judgments: Judgments, engine: Engine | None, report: Report) -> Choice:
        """Score the candidates that can be fitted to these judgments; return the choice among them.

        With too few judgments to compare candidates, the choice is that of `_choose_default`.
        """
        candidates = find_candidates(self.candidates)
        notes = {candidate.name: candidate.reason_to_skip(judgments) for candidate in candidates}
        usable = [candidate for candidate in candidates if not notes[candidate.name]]
        folds = HeldOutFolds.split(judgments, self.folds)
        if not folds.is_sufficient:
            default = self._choose_default(usable, notes, judgments, engine)
            report(1, 1, float("nan"))
            return Choice([default], [default], {}, notes, folds)
        scores: dict[str, Scores] = {}
        for candidate in usable:
            try:
                scores[candidate.name] = folds.score(partial(self._make_model, candidate), engine, self.grade_by)
            except (InputError, UsageError) as problem:
                notes[candidate.name] = f"left out: {problem}"
                continue
            report(len(scores), len(usable), scores[candidate.name].ranking.mean)
        if not scores:
            raise no_candidate_error(notes)
        return Choice.by_scores(scores, notes, folds)

    def _choose_default(
        self, candidates: list[CandidateModel], notes: dict[str, str], judgments: Judgments, engine: Engine | None
    ) -> str:
        """Return the name of the default method if it is a candidate that can be fitted, else of the first that can.

        A note is added for each candidate whose fit fails.
        """
        overlap = int(np.diff(judgments.offsets).max(initial=0)) > 1
        default = DEFAULT_METHOD if overlap else DEFAULT_WITHOUT_OVERLAP
        for candidate in sorted(candidates, key=lambda candidate: candidate.name != default):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the final fit warns
                    self._make_model(candidate).fit(judgments, engine=engine)
            except (InputError, UsageError) as problem:
                notes[candidate.name] = f"left out: {problem}"
            else:
                return candidate.name
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
        sample = sample.to_one_scale()
        sample = sample.with_unjudgeable("drop") if self.unjudgeable_as == "drop" else sample
        with reporting(options.progress, type(self).__name__) as report:
            choice = self._choose(sample, options.engine, report)
        options = replace(options, progress=options.progress is True)
        chosen = {
            candidate.name: self._fit_candidate(candidate, table, gold, init, options)
            for candidate in find_candidates(self.candidates)
            if candidate.name in (choice.by_ranking[0], choice.by_grades[0])
        }
        self.choice_table_, self.reason_ = choice.table(), choice.reason()
        self._set_estimators(chosen[self.reason_.ranking], chosen[self.reason_.grades], judgments)
        return self

    def _fit_candidate(
        self, candidate: CandidateModel, table: Any, gold: Gold | None, init: Auto | None, options: FitOptions
    ) -> EMAggregator:
        """Fit a candidate to all judgments, from the estimator of `init` that has the same class, if there is one."""
        model: EMAggregator = self._make_model(candidate)
        estimators = () if init is None else (init.ranking_estimator_, init.grade_estimator_)
        start = next((estimator for estimator in estimators if type(estimator) is type(model)), None)
        return model._fit(table, gold, start, options)

    def _set_estimators(self, ranking: EMAggregator, grades: EMAggregator, judgments: Any) -> None:
        consensus = join_consensus(ranking.consensus_, grades.consensus_, judgments)
        self.ranking_estimator_, self.grade_estimator_, self.consensus_ = ranking, grades, consensus
        self.judgments_, self.gold_ = judgments, ranking.gold_
        compared = [score for score in self.choice_table_["ranking"].to_pylist() if score is not None]
        self.history_ = compared or [float("nan")]
        self.n_iter_, self.converged_ = len(self.history_), ranking.converged_ and grades.converged_

    def _add(self, judgments: Judgments, n_iter: int | None, options: FitOptions) -> Self:
        ranking = self.ranking_estimator_._add(judgments, n_iter, options)
        same = self.grade_estimator_ is self.ranking_estimator_
        grades = ranking if same else self.grade_estimator_._add(judgments, n_iter, options)
        self._set_estimators(ranking, grades, judgments)
        return self

    def _infer(self, judgments: Judgments, preferences: Preferences | None = None) -> Consensus:
        ranking, grades = self.ranking_estimator_._infer(judgments), self.grade_estimator_._infer(judgments)
        return join_consensus(ranking, grades, judgments)

    def posterior_table(self, judgments: Any = None) -> pa.Table:
        """Return the table of posteriors of documents by the model for the ranking."""
        self._require_fitted()
        return self.ranking_estimator_.posterior_table(judgments)

    @property
    def choice_(self) -> Any:
        """Scores of the candidates, one row each, as a DataFrame of the library that the judgments came in."""
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
        return {"choice": self.choice_table_.to_pylist(), "reason": asdict(self.reason_)}

    def _read_state(self, folder: Path, fields: Fields, files: Iterable[str]) -> None:
        ranking: Any = Aggregator.load(folder / "ranking")
        grades: Any = Aggregator.load(folder / "grades") if (folder / "grades").exists() else ranking
        for estimator in (ranking, grades):
            require(isinstance(estimator, EMAggregator), "a chosen estimator is not a single model")
            require(
                _same_judgments(estimator.judgments_, ranking.judgments_),
                "the models were fitted to different judgments",
            )
        self.choice_table_ = pa.Table.from_pylist(fields.sequence("choice"), schema=CHOICE_SCHEMA)
        self.reason_ = ChoiceReason(**fields.object("reason"))
        require(self.reason_.unit in ("assessor", "family"), "the reason is not that of a choice")
        self._set_estimators(ranking, grades, ranking.judgments_)


def _same_judgments(one: Judgments, other: Judgments) -> bool:
    """Return whether two tables have the same judgments and scales."""
    arrays = ("item_query", "item_document", "offsets", "assessor", "grade", "assessor_scale")
    ids = ("queries", "documents", "assessors")
    return one is other or (
        one.scales == other.scales
        and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)
        and all(getattr(one, name).equals(getattr(other, name)) for name in ids)
    )
