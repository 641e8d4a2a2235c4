"""Auto: fits the candidates and chooses by how well each predicts judgments that it has not seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from crowdrank._base import unknown_name
from crowdrank._folders import write_folder
from crowdrank._progress import Report, reporting
from crowdrank._saved import Fields, require
from crowdrank._text import counted
from crowdrank._typing import Arrays
from crowdrank.consensus import METHODS, get_aggregator, model_files, scoring
from crowdrank.consensus._base import Aggregator, Table
from crowdrank.consensus._coerce import as_judgments
from crowdrank.consensus.checkpoints import Checkpoint
from crowdrank.consensus.on_disk import ASSESSORS, CONSENSUS, DOCUMENTS, StoredConsensus, output_of, write_about
from crowdrank.consensus.result import Consensus
from crowdrank.consensus.warm_start import require_same_class
from crowdrank.constraints import Constraints, Number, OneOf
from crowdrank.engine.base import Engine
from crowdrank.engine.shards import Shard
from crowdrank.errors import ConvergenceWarning, DataWarning, InputError, UsageError
from crowdrank.judgments import frames
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.sharded import ShardedJudgments
from crowdrank.judgments.table import UNJUDGEABLE, Judgments

LEAST = 50
"""With fewer held-out judgments than this on documents that others judged too, nothing is chosen."""
DEFAULT, ALONE = "dawid-skene", "average"
"""What is taken where nothing can be chosen; and where no document was judged twice, so that no model has a footing."""
TIE = 1e-9
"""Scores closer than this are tied, and the simpler candidate is taken: rounding must not choose."""


@dataclass(frozen=True)
class Candidate:
    """A method with settings, and what the judgments must have for it to be worth a fit."""

    name: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    needs: str = ""  # "families" or "unjudgeable"


CANDIDATES = {
    candidate.name: candidate
    for candidate in (
        Candidate("majority", "majority"),
        Candidate("average", "average"),
        Candidate("family-mean", "family-mean", needs="families"),
        Candidate("bwa", "bwa"),
        Candidate("dawid-skene", "dawid-skene"),
        Candidate("one-coin", "one-coin"),
        Candidate("glad", "glad"),
        Candidate("rasch", "rasch"),
        Candidate("gda", "gda"),
        Candidate("gda-unjudgeable", "gda", {"unjudgeable_as": "model"}, needs="unjudgeable"),
    )
}
"""The candidates unless others are named, simplest first."""

Scores = dict[str, tuple[float, float]]
"""The mean log scores of each candidate, by rank and by grade."""
CHOICE = pa.schema(
    [
        (name, pa.float64() if name in ("ranking", "grades") else pa.string())
        for name in ("method", "ranking", "grades", "chosen_for", "note")
    ]
)


@dataclass(frozen=True, eq=False)
class Trial:
    """Judgments on one scale and their folds. A held-out one can be predicted if others judged the document."""

    judgments: Judgments
    answer: NDArray[np.int8]  # (n,) 'cannot judge' as the lowest
    item: NDArray[np.int64]  # (n,)
    fold: NDArray[np.int64]  # (n,)
    predictable: NDArray[np.bool_]  # (n,)

    @classmethod
    def of(cls, judgments: Judgments, n_folds: int) -> Trial:
        """Judgments dealt out to at most `n_folds` folds."""
        answer = judgments.with_unjudgeable("lowest").grade
        item = np.repeat(np.arange(judgments.n_items), np.diff(judgments.offsets))
        fold = scoring.folds(judgments, n_folds)
        held = np.zeros((fold.max() + 1, judgments.n_items))
        np.add.at(held, (fold, item), 1)
        return cls(judgments, answer, item, fold, held.sum(axis=0)[item] > held[fold, item])

    @property
    def folds(self) -> NDArray[np.int64]:
        """The folds with something to predict."""
        return np.unique(self.fold[self.predictable])

    @property
    def who(self) -> str:
        """Who is held out whole."""
        return "assessor" if self.judgments.families is None else "family"

    @cached_property
    def group(self) -> NDArray[np.int64]:
        """With which others a judgment is compared: the assessor's on the query or, where those are few, all on it.

        Where even those are few, it is -1 everywhere.
        """
        n_queries, rows = self.judgments.n_queries, self.predictable
        query = self.judgments.item_query[self.item].astype(np.int64)
        for whose in (self.judgments.assessor, self.fold):
            group = whose.astype(np.int64) * n_queries + query
            if comparable(group[rows], self.item[rows], self.answer[rows]) >= LEAST:
                return group
        return np.full(len(group), -1)

    @property
    def ranks(self) -> bool:
        """Whether held-out judgments can be compared, so that they tell of a ranking."""
        return bool(self.group[0] >= 0)

    def scores(self, make: Callable[[], Aggregator], engine: Engine | None) -> tuple[float, float]:
        """The mean log scores by rank and by grade of a candidate, fitted to all folds but one in turn."""
        judgments, n_answers = self.judgments, len(self.judgments.scale)
        family = judgments.family_of if judgments.families is not None else np.zeros(judgments.n_assessors, np.int32)
        answers = np.zeros((judgments.n_assessors, n_answers, n_answers))
        pairs, folds, families = [], [], []
        for fold in self.folds:
            rows, shares, grade = self._read(make(), fold, engine)
            assessor, answer = judgments.assessor[rows], self.answer[rows]
            answers += scoring.answer_counts(assessor, answer, grade, judgments.n_assessors, n_answers)
            _, first, group = np.unique(self.group[rows], return_index=True, return_inverse=True)
            pairs.append(scoring.pair_counts(group, self.item[rows], answer, shares, n_answers))
            folds.append(np.full(len(first), fold))
            families.append(family[assessor[first]])
        answered = answers.sum(axis=(1, 2))
        heard = answered > 0
        by_grade = scoring.score_grades(answers[heard], balanced(family[heard], answered[heard]))
        if not self.ranks:
            return float("nan"), by_grade
        compared = np.concatenate(pairs)
        weights = balanced(np.concatenate(families), compared.sum(axis=1))
        return scoring.score_pairs(compared, np.concatenate(folds), weights), by_grade

    def _read(
        self, model: Aggregator, fold: int, engine: Engine | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """A fold's judgments, and where the documents stand and what grade they have by the other folds."""
        keep = self.fold != fold
        train = self.judgments.where(keep)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", DataWarning)  # parts of the crowd; the fit to all of it will say so
            consensus = model.fit(train, engine=engine).consensus_
        place = np.full(self.judgments.n_items, -1)
        place[np.unique(self.item[keep])] = np.arange(train.n_items)
        rows = np.flatnonzero(self.predictable & ~keep)
        at, table = place[self.item[rows]], consensus.document_table
        shares = scoring.rank_shares(table["relevance"].to_numpy(), train.item_query)
        grade = pc.index_in(table["grade"].combine_chunks(), pa.array(consensus.labels)).to_numpy()
        return rows, shares[at], grade[at]


class Auto(Aggregator):
    """The candidate that best predicts held-out judgments: one for the ranking, one for the grades. No gold is used.

    Assessors are held out whole, in a few folds, and with families whole families, so that copies cannot vote for
    themselves. Every candidate is fitted to the others, and read by one yardstick (`scoring.py`): for the ranking, the
    log probability of which of two documents of a query a held-out assessor prefers, given how far apart they are
    ranked; for grades, that of an answer, given the grade of the document. Where there are families, each weighs the
    same. The winners are then fitted to everything: relevance, sd, lower and upper come from the one, grade and
    P(grade) from the other; assessors are told as the one for the ranking sees them or, where that is a vote, the one
    for grades.

    Args:
        candidates: names of methods or of `CANDIDATES`; by default all of `CANDIDATES`.
        folds: how many parts the assessors are held out in; fewer where there are fewer families.
        unjudgeable_as: 'cannot judge' answers as the lowest grade (`lowest`) or left out (`drop`), in candidates that
            do not say otherwise themselves; with `model` only those take part that can take it as an answer of its own.
        interval: the level of `lower` and `upper`.

    Attributes:
        choice_: one row per candidate: method, ranking and grades (the scores), chosen_for, note.
        reason_: why, in a sentence.
        ranking_, grades_: the fitted winners.
        history_: the score by rank of each candidate in turn.

    >>> from crowdrank import simulate
    >>> world = simulate(queries=30, documents=10, random_state=1)
    >>> model = Auto(candidates=("average", "dawid-skene")).fit(world.judgments)
    >>> model.choice_[["method", "chosen_for"]].to_dict("list")
    {'method': ['average', 'dawid-skene'], 'chosen_for': ['', 'ranking and grades']}
    >>> model.reason_
    'dawid-skene for ranking and grades: it predicts held-out judgments best (mean log score by rank ...'
    """

    n_iter: ClassVar[int] = 1  # type: ignore[misc]
    tol: ClassVar[float] = 0.0  # type: ignore[misc]
    shrinks: ClassVar[bool] = True
    _parameter_constraints: ClassVar[Constraints] = {
        "folds": [Number(2, integer=True)],
        "unjudgeable_as": [OneOf("lowest", "drop", "model")],
    }

    ranking_: Aggregator
    grades_: Aggregator
    choice_table: pa.Table
    reason_: str

    def __init__(
        self,
        candidates: tuple[str, ...] | None = None,
        folds: int = 5,
        *,
        unjudgeable_as: str = "lowest",
        interval: float = 0.95,
    ) -> None:
        self.candidates = candidates
        self.folds = folds
        self.unjudgeable_as = unjudgeable_as
        self.interval = interval

    @property
    def choice_(self) -> Any:
        """One row per candidate: method, ranking, grades, chosen_for, note; in the library the judgments came in."""
        self._require_fitted()
        return frames.from_arrow(self.choice_table, self.consensus_.backend)

    # The choice.

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._named()

    def _named(self) -> list[Candidate]:
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

    def _model(self, candidate: Candidate) -> Aggregator:
        settings = {"unjudgeable_as": self.unjudgeable_as, "interval": self.interval, **candidate.options}
        return get_aggregator(candidate.method, **settings)

    def _fit(
        self,
        table: Any,
        gold: Gold | None,
        theta: Arrays | None,
        engine: Engine | None,
        progress: bool | Report,
        checkpoint: str | Path | Checkpoint | None,
        rounds: int | None = None,
    ) -> Self:
        """Choose, then fit the winners to everything; what was known before is not needed for that."""
        if checkpoint is not None:
            raise UsageError("Auto keeps no checkpoint, being many short fits; fit the method of your choice with one.")
        # On disk the choice is made by a sample of whole queries.
        on_disk = isinstance(table, ShardedJudgments)
        usable = (table.sample() if on_disk else table).on_one_scale()
        usable = usable.with_unjudgeable("drop") if self.unjudgeable_as == "drop" else usable
        with reporting(progress, type(self).__name__) as report:
            by_rank, by_grade = self._choose(usable, engine, report)
        everything = replace(table, output=None) if on_disk else table
        self.ranking_ = self._model(by_rank).fit(everything, gold, engine=engine, progress=progress is True)
        same = by_grade == by_rank
        again = self._model(by_grade)
        self.grades_ = self.ranking_ if same else again.fit(everything, gold, engine=engine, progress=progress is True)
        self.converged_ = self.ranking_.converged_ and self.grades_.converged_
        self.theta_, self.judgments_, self.gold_ = self.assessing.theta_, table, gold
        if on_disk:
            self.consensus_ = joined_on_disk(self.ranking_.consensus_, self.grades_.consensus_, table)
        else:
            self.consensus_ = joined(self.ranking_.consensus_, self.grades_.consensus_)
        return self

    def _choose(self, judgments: Judgments, engine: Engine | None, report: Report) -> tuple[Candidate, Candidate]:
        """The candidates for ranking and for grades; fills `choice_table`, `reason_`, `history_`."""
        self.history_, self.n_iter_ = [], 0
        notes = {one.name: pointless(one, judgments) for one in self._named()}
        able = {one.name: one for one in self._named() if not notes[one.name]}
        trial = Trial.of(judgments, self.folds)
        few = too_little(trial)
        if few:
            scores: Scores = {}
            ranked = graded = [self._default(able, notes, judgments, engine)]
            self._report(float("nan"), 1, report)
        else:
            scores = self._cross_validated(able, notes, trial, engine, report)
            graded = best_first({name: by_grade for name, (_, by_grade) in scores.items()})
            ranked = best_first({name: by_rank for name, (by_rank, _) in scores.items()}) if trial.ranks else graded
        self.choice_table = choice_table(scores, notes, ranked[0], graded[0])
        self.reason_ = f"{ranked[0]} by default: {few}." if few else reason(scores, ranked, graded, trial)
        return able[ranked[0]], able[graded[0]]

    def _default(
        self, able: dict[str, Candidate], notes: dict[str, str], judgments: Judgments, engine: Engine | None
    ) -> str:
        """The default, if it is among the candidates and takes these judgments; else the first that does."""
        first = DEFAULT if int(np.diff(judgments.offsets).max(initial=0)) > 1 else ALONE
        for name in sorted(able, key=lambda name: name != first):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the fit that counts will say so
                    self._model(able[name]).fit(judgments, engine=engine)
            except (InputError, UsageError) as problem:
                notes[name] = f"left out: {problem}"
            else:
                return name
        raise nobody(notes)

    def _cross_validated(
        self,
        able: dict[str, Candidate],
        notes: dict[str, str],
        trial: Trial,
        engine: Engine | None,
        report: Report,
    ) -> Scores:
        """The mean log scores of each candidate; one that cannot take the judgments is left out, and that is noted."""
        scores: Scores = {}
        for name, candidate in able.items():
            try:
                scores[name] = trial.scores(partial(self._model, candidate), engine)
            except (InputError, UsageError) as problem:
                notes[name] = f"left out: {problem}"
                continue
            self._report(scores[name][0], len(able), report)
        if not scores:
            raise nobody(notes)
        return scores

    def _report(self, score: float, most: int, report: Report) -> None:
        self.history_.append(score)
        self.n_iter_ += 1
        report(self.n_iter_, most, score)

    # What is told of the assessors, and what the passes are, is the winner's.

    @property
    def assessing(self) -> Aggregator:
        """The winner by whom assessors are told: that for the ranking, unless only the one for grades knows them."""
        knows = self.ranking_._states(self.ranking_.theta_) is not None
        return self.ranking_ if knows else self.grades_

    @property
    def in_grades(self) -> bool:
        """As of the winner for the ranking."""
        return self.ranking_.in_grades

    def grade_curves(self, assessor: Any = None) -> Any:
        """As the winner's."""
        self._require_fitted()
        return self.assessing.grade_curves(assessor)

    def grade_gaussians(self, assessor: Any = None) -> Any:
        """Return the Gaussians of the model for assessors."""
        self._require_fitted()
        return self.assessing.grade_gaussians(assessor)

    def _prepare(self, table: Table) -> Table:
        """As the winner does."""
        return self.assessing._prepare(table)

    def _adopt(self, init: Aggregator, table: Judgments) -> Arrays | None:
        """As the winner of `init` does."""
        require_same_class(self, init)
        init._require_fitted()
        assert isinstance(init, Auto)
        return init.assessing._adopt(init.assessing, table)

    def _start(self, shard: Shard) -> Arrays:
        """As the winner does."""
        return self.assessing._start(shard)

    def _accumulate(self, shard: Shard, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """As the winner does."""
        return self.assessing._accumulate(shard, local, theta)

    def _maximize(self, theta: Arrays | None, statistics: Arrays, n_jobs: int = 1) -> Arrays:
        """As the winner does."""
        return self.assessing._maximize(theta, statistics, n_jobs)

    def _finish(self, shard: Shard, local: Arrays, theta: Arrays) -> Arrays:
        """As the winner does."""
        return self.assessing._finish(shard, local, theta)

    def _states(self, theta: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """As the winner's."""
        return self.assessing._states(theta)

    # Results and storage.

    def infer(self, judgments: Any = None) -> Consensus:
        """The consensus of other judgments by the winners; none given, that of the fit."""
        self._require_fitted()
        if judgments is None:
            return self.consensus_
        table = as_judgments(judgments, self.judgments_)
        return joined(self.ranking_.infer(table), self.grades_.infer(table))

    def _write_state(self, folder: Path) -> dict[str, Any]:
        """Write the winners, each into a folder of its own, and the table of all candidates."""
        self.ranking_.save(folder / "ranking")
        if self.grades_ is not self.ranking_:
            self.grades_.save(folder / "grades")
        choice = {"choice": self.choice_table.to_pylist(), "reason": self.reason_}
        return {**super()._write_state(folder), **choice}

    def _read_state(self, folder: Path, fields: Fields, files: Iterable[str]) -> None:
        """Read the winners; parameters and results are theirs."""
        model_files.read_data(self, folder, fields, files)
        self.ranking_ = Aggregator.load(folder / "ranking")
        grades = folder / "grades"
        self.grades_ = Aggregator.load(grades) if grades.exists() else self.ranking_
        for winner in (self.ranking_, self.grades_):
            require(not isinstance(winner, Auto), "a winner is not a single model")
            require(_same(winner.judgments_, self.judgments_), "the winners were fitted to other judgments")
        self.choice_table = pa.Table.from_pylist(fields.sequence("choice"), schema=CHOICE)
        self.reason_ = fields.text("reason")
        self.theta_ = self.assessing.theta_
        self.consensus_ = joined(self.ranking_.consensus_, self.grades_.consensus_)


def _same(one: Judgments, other: Judgments) -> bool:
    """Return whether two tables have the same judgments and scales."""
    names = ("item_query", "item_document", "offsets", "assessor", "grade", "assessor_scale")
    ids = ("queries", "documents", "assessors")
    return (
        one.scales == other.scales
        and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
        and all(getattr(one, name).equals(getattr(other, name)) for name in ids)
    )


def pointless(candidate: Candidate, judgments: Judgments) -> str:
    """Why a fit would be of no use, if so."""
    if candidate.needs == "families" and judgments.families is None:
        return "left out: there are no families"
    if candidate.needs == "unjudgeable" and not (judgments.grade == UNJUDGEABLE).any():
        return "left out: there is no 'cannot judge' answer to use"
    return ""


def nobody(notes: dict[str, str]) -> InputError:
    """What is said where no candidate is left."""
    told = "; ".join(f"{name}: {note}" for name, note in notes.items())
    return InputError(f"no candidate can be fitted to these judgments ({told})", fix="name others")


def too_little(trial: Trial) -> str:
    """Why nothing can be chosen, if so."""
    if len(trial.folds) and trial.predictable.sum() >= LEAST:
        return ""
    who = "another assessor" if trial.who == "assessor" else f"assessors of another {trial.who}"
    return (
        f"to choose, {LEAST} judgments are needed of documents that {who} judged too, and there are "
        f"{counted(int(trial.predictable.sum()), 'such judgment')}"
    )


def comparable(group: NDArray[np.int64], item: NDArray[np.int64], answer: NDArray[np.int8]) -> int:
    """How many pairs of different answers to different documents there are within groups.

    >>> comparable(np.array([0, 0, 0, 1]), np.array([3, 4, 4, 5]), np.array([1, 1, 0, 0], np.int8))
    1
    """
    return _alike(group) - _alike(group, answer) - _alike(group, item) + _alike(group, item, answer)


def _alike(*columns: NDArray[Any]) -> int:
    """How many pairs of rows are the same in all columns."""
    row = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        row = np.unique(row * (int(column.max()) + 1) + column, return_inverse=True)[1]
    counts = np.bincount(row)
    return int((counts * (counts - 1) // 2).sum())


def balanced(family: NDArray[np.int32], size: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights by which every family has the same, and all together as much as before.

    >>> balanced(np.array([0, 0, 0, 1], np.int32), np.ones(4)).round(2).tolist()
    [0.67, 0.67, 0.67, 2.0]
    """
    total = np.bincount(family, weights=size)
    heard = total > 0
    weights: NDArray[np.float64] = np.where(heard, total.sum() / heard.sum() / np.maximum(total, 1e-300), 0.0)[family]
    return weights


def best_first(scores: dict[str, float]) -> list[str]:
    """The names by falling score; tied ones in their order.

    >>> best_first({"a": -2.0, "b": -1.0, "c": -1.0 + 1e-12})
    ['b', 'c', 'a']
    """
    found, waiting = [], list(scores)
    while waiting:
        best = max(scores[name] for name in waiting)
        found.append(next(name for name in waiting if scores[name] >= best - TIE))
        waiting.remove(found[-1])
    return found


def choice_table(scores: Scores, notes: dict[str, str], by_rank: str, by_grade: str) -> pa.Table:
    """One row per candidate: its scores and what it was chosen for, or why it was left out."""
    rows = []
    for name, note in notes.items():
        ranking, grades = scores.get(name, (None, None))
        chosen = [what for what, winner in (("ranking", by_rank), ("grades", by_grade)) if winner == name]
        rows.append(
            {
                "method": name,
                "ranking": ranking,
                "grades": grades,
                "chosen_for": " and ".join(chosen),
                "note": note,
            }
        )
    return pa.Table.from_pylist(rows, schema=CHOICE)


def reason(scores: Scores, ranked: list[str], graded: list[str], trial: Trial) -> str:
    """Why the winners won, in a sentence."""
    if ranked[0] == graded[0]:
        won = f"{ranked[0]} for ranking and grades: it predicts"
    else:
        won = f"{ranked[0]} for ranking, {graded[0]} for grades: they predict"
    told = []
    for what, kind, order in (("rank", 0, ranked), ("grade", 1, graded)):
        second = f", then {order[1]} {scores[order[1]][kind]:.4f}" if len(order) > 1 else ""
        told.append(f"by {what} {scores[order[0]][kind]:.4f}{second}")
    if not trial.ranks:
        told[0] = "by rank none: there are no two to compare"
    folds = f"{len(trial.folds)} folds of whole {'families' if trial.who == 'family' else 'assessors'}"
    n = counted(int(trial.predictable.sum()), "judgment")
    return f"{won} held-out judgments best (mean log score {'; '.join(told)}; {n} in {folds})."


def joined(ranking: Consensus, grades: Consensus) -> Consensus:
    """Relevance from the one, grades from the other; assessors from the one that knows how informative they are."""
    documents = _documents(ranking.document_table, grades.document_table, grades.share_names)
    return Consensus("Auto", documents, _assessors(ranking, grades), grades.scale, grades.labels, grades.backend)


def _documents(ranking: pa.Table, grades: pa.Table, shares: list[str]) -> pa.Table:
    graded = {"grade", *shares}
    return pa.table({name: (grades if name in graded else ranking)[name] for name in ranking.column_names})


def _assessors(ranking: Consensus, grades: Consensus) -> pa.Table:
    informed = "informativeness" in ranking.assessor_table.column_names
    return (ranking if informed else grades).assessor_table


def joined_on_disk(ranking: Consensus, grades: Consensus, judgments: ShardedJudgments) -> StoredConsensus:
    """As `joined`, a file at a time into the folder of the consensus."""
    assert isinstance(ranking, StoredConsensus)
    assert isinstance(grades, StoredConsensus)
    output = output_of(judgments)
    with write_folder(output, CONSENSUS) as folder:
        (folder / DOCUMENTS).mkdir()
        for one, other in zip(ranking.document_files(), grades.document_files(), strict=True):
            tables = [pq.read_table(path) for path in (one, other)]
            pq.write_table(_documents(tables[0], tables[1], grades.share_names), folder / DOCUMENTS / one.name)
        pq.write_table(_assessors(ranking, grades), folder / ASSESSORS)
        write_about(folder, "Auto", len(judgments), grades.scale, grades.labels, grades.n_documents)
    return StoredConsensus(output)
