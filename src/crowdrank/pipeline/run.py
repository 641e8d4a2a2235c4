"""The one command: judgments, features and some expert grades in; a ranker, and what is known of it, out."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import crowdrank
from crowdrank._files import CACHE, MANIFEST, locked, write_file
from crowdrank._folders import FolderKind, check_output_folder, write_folder, write_manifest
from crowdrank._notebook import heading, html_table, panel, paragraph
from crowdrank._progress import ProgressBar, reporting
from crowdrank._text import counted
from crowdrank.assessors.agreement import agreement_table
from crowdrank.assessors.report import AssessorReport, assess
from crowdrank.consensus.result import Consensus
from crowdrank.engine.base import Engine
from crowdrank.errors import InputError, UsageError, near
from crowdrank.judgments.write import write_table
from crowdrank.pipeline.candidates import Candidate, choose_candidates
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.markdown import markdown
from crowdrank.pipeline.provenance import Origin, call
from crowdrank.pipeline.run_data import RunData, build_run_data
from crowdrank.pipeline.selection import (
    ENSEMBLES,
    CandidateSelection,
    ExpertSplit,
    SelectionResult,
    only_crowd,
    split_expert_queries,
)
from crowdrank.pipeline.settings import RunSettings
from crowdrank.pipeline.stage_cache import INPUTS, STAGE_NAMES, StageCache, code, digest
from crowdrank.pipeline.summary import Verdict
from crowdrank.pipeline.tables import comparison_table, next_table, per_query_table, remapping_table, training_table
from crowdrank.rankers.base import Ranker

RUN_FILE = "run.json"
RUN = FolderKind("run", 1, "run", "'crowdrank run'", STAGE_NAMES, optional=("consensus/", "report."))
STAND_IN = 0.2
"""Without experts, this share of the judged queries is ranked by rankers that did not learn from it."""
FEWEST = 10
"""With fewer judged queries than this nothing is held out."""


@dataclass(eq=False)
class Run:
    """What a run found; the files that `run` writes hold the same.

    Attributes:
        ranker: the chosen one, to `predict` with or to `save`.
        chosen: its name among the candidates.
        paragraph: what was found, in plain words.
        notes: what was left out, and what to be careful about.
        origin: what to type or to call for the same again.

    """

    data: RunData
    settings: RunSettings
    consensus: Consensus
    assessor_report: AssessorReport
    outcome: SelectionResult
    verdict: Verdict
    ranker: Ranker
    notes: list[str]
    fits: ConsensusFits
    seconds: float = 0.0
    inputs: dict[str, str] = field(default_factory=dict)
    origin: Origin = field(default_factory=Origin)

    def __repr__(self) -> str:
        return f"<Run: {self.chosen}, {counted(len(self.outcome.scores), 'candidate')}>"

    def _repr_html_(self) -> str:
        measure = self.settings.measure
        names = [
            "candidate",
            "choice_mean",
            *(f"{measure} {name}" for name in ("mean", "difference", "lower", "upper")),
        ]
        rows = self.comparison.to_dict("records")
        there = [name for name in names if name in rows[0]]
        return panel(heading(f"Ranker: {self.chosen}"), paragraph(self.paragraph), html_table(rows, there))

    @property
    def chosen(self) -> str:
        """The name of the chosen candidate."""
        return self.outcome.chosen

    @property
    def paragraph(self) -> str:
        """What was found, in plain words."""
        return self.verdict.paragraph

    @cached_property
    def comparison(self) -> Any:
        """Every candidate with its figures, as a DataFrame."""
        return comparison_table(self.outcome, self.verdict).to_pandas()

    @cached_property
    def assessors(self) -> Any:
        """Who is reliable, as a DataFrame."""
        return self.assessor_report.frame

    @cached_property
    def next(self) -> Any:
        """What to label next, the least certain first, as a DataFrame."""
        return next_table(self.consensus, self.data).to_pandas()

    def about(self) -> dict[str, Any]:
        """RunSettings, versions, protocol and result, ready for JSON."""
        return {
            "crowdrank": crowdrank.__version__,
            "python": platform.python_version(),
            "versions": {name: _version(name) for name in ("numpy", "numba", "lightgbm", "pyarrow")},
            "settings": self.settings.to_dict(),
            "inputs": self.inputs,
            "origin": self.origin.to_dict(),
            "sizes": self.sizes(),
            "chosen": self.chosen,
            "why": self.outcome.why,
            "weights": self.outcome.weights,
            "left_out": self.outcome.failed,
            "queries": {
                "choice": [str(name) for name in self._ids(self.outcome.parts.development)],
                "test": [str(name) for name in self._ids(self.outcome.parts.test)],
            },
            "paragraph": self.paragraph,
            "expert_offset": self._expert_offset(),
            "notes": self.notes,
            "protocol": self.verdict.protocol,
            "seconds": round(self.seconds, 1),
        }

    def _expert_offset(self) -> dict[str, Any] | None:
        """Return the mean difference between assessors and experts, ready for JSON."""
        offset = self.assessor_report.expert_offset
        return None if offset is None else asdict(offset)

    def sizes(self) -> dict[str, int]:
        """How much there was of everything."""
        return {
            "judgments": len(self.data.judgments),
            "assessors": self.data.judgments.n_assessors,
            "documents": len(self.data.query),
            "judged_documents": self.data.judgments.n_items,
            "queries": len(self.data.query_ids),
            "features": len(self.data.features.names),
            "expert_grades": int((~np.isnan(self.data.expert)).sum()),
            "expert_queries": len(self.data.graded_queries),
        }

    def _ids(self, queries: Any) -> list[Any]:
        return list(self.data.query_ids.take(pa.array(queries)).to_pylist())


def run(
    judgments: Any,
    features: Any,
    expert: Any = None,
    honeypots: Any = None,
    *,
    output: str | Path | None = None,
    progress: bool = False,
    engine: Engine | None = None,
    origin: Origin | None = None,
    report: Callable[[Path], object] | None = None,
    **settings: Any,
) -> Run:
    """Turn judgments into a ranker: consensus, candidates, a choice by expert grades, an honest test.

    Args:
        judgments: `Judgments`, a path or a DataFrame.
        features: `Features`, a path or a DataFrame, of the documents judged and of those that experts graded.
        expert: expert grades of some queries: `Gold`, a path or a DataFrame. Without any, nothing is chosen or tested
            by them, and it is said what 50 queries of them would buy.
        honeypots: planted documents with their right grades, likewise; they tell of assessors, and no ranker learns
            from them.
        output: a folder for the results; finished cache are cached in it, and an interrupted run resumes from them.
            The results of an earlier run stay until the new ones are complete, and are then replaced at once.
        progress: show bars where it takes long.
        engine: a cluster for the consensus models, the remappers and their least squares (`DaskEngine`); by default
            threads here. Trees of rankers grow here in any case.
        origin: how the run was asked for, where it was not by this call; the report tells it.
        report: called with the folder of the new results before they replace the old ones, to add a report to them.
        settings: the attributes of `RunSettings`, as in `measure="AP"` or `test=0.5`.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=40, documents=10, gold_queries=15, random_state=1)
    >>> done = run(world.judgments, world.features, world.gold, candidates=["majority", "average", "expert-only"])
    >>> sorted(done.comparison["candidate"])
    ['average', 'ensemble-all', 'ensemble-crowd', 'ensemble-expert', 'ensemble-weighted', 'expert-only', 'majority']
    >>> done.ranker.predict(crowdrank.read_features(world.features)).shape
    (441,)
    """
    told = RunSettings.of(settings)
    inputs = (judgments, features, expert, honeypots)
    if output is None:
        return _run(*inputs, None, progress, engine, origin, report, told)
    check_output_folder(output, RUN)
    with locked(output, wait=False):
        return _run(*inputs, Path(output), progress, engine, origin, report, told)


def _run(
    judgments: Any,
    features: Any,
    expert: Any,
    honeypots: Any,
    folder: Path | None,
    progress: bool,
    engine: Engine | None,
    origin: Origin | None,
    report: Callable[[Path], object] | None,
    told: RunSettings,
) -> Run:
    began = time.monotonic()
    data = build_run_data(judgments, features, expert, honeypots, unjudgeable_as=told.unjudgeable_as)
    asked = {"judgments": judgments, "features": features, "expert": expert, "honeypots": honeypots}
    origin = origin or Origin(python=call(asked, told, folder, engine))
    candidates, out = choose_candidates(data, told.candidates)
    _require_baseline(told, candidates)
    inputs = _digests(data)
    if folder is not None and not (folder / MANIFEST).exists():
        with write_folder(folder, RUN) as draft:
            (draft / CACHE).mkdir()
    cache = StageCache(None if folder is None else folder / CACHE)
    notes = [*map(str, data.notes), *(_changed(folder, inputs) if folder else [])]
    fits = ConsensusFits(data, cache, told.n_jobs, engine, {told.method: told.method_settings})

    _fit(fits, told.method, progress)
    if told.method in fits.failed:
        raise InputError(fits.failed[told.method], fix="take another method for the consensus")
    consensus = fits.model(told.method).consensus_
    assessors = assess(fits.model(told.method), data.judgments, data.gold)
    candidates = _prepared(fits, candidates, out, progress)
    trial, stand_in = _tried(data, fits, told, candidates, cache, out, progress)
    outcome = trial.outcome
    verdict = Verdict.of(trial, told, stand_in=stand_in)
    ranker = _once_more(trial, progress) if told.refit else outcome.ranker(outcome.chosen)
    done = Run(
        data,
        told,
        consensus,
        assessors,
        outcome,
        verdict,
        ranker,
        [*notes, *map(str, fits.warnings), *_fewer_folds(outcome.parts, told)],
        fits,
        time.monotonic() - began,
        inputs,
        replace(origin, units={**data.judgments.report.units, **origin.units}),
    )
    if folder is not None:
        with write_folder(folder, RUN) as draft:
            _write(done, draft)
            write_manifest(draft, RUN)
            if report is not None:
                report(draft)
        cache.tidy()
    return done


def _require_baseline(settings: RunSettings, candidates: list[Candidate]) -> None:
    """Refuse a baseline that is not tried; without `majority` the usual one gives way to the first."""
    names = [*(candidate.name for candidate in candidates), *ENSEMBLES]
    if settings.baseline not in names and settings.baseline != RunSettings.baseline:
        meant, listed = near(settings.baseline, names), ", ".join(names)
        raise UsageError(f"The baseline '{settings.baseline}' is no candidate here{meant}; there are: {listed}.")


def _digests(data: RunData) -> dict[str, str]:
    return {
        "judgments": data.digests["judgments"],
        "features": data.digests["features"],
        "expert grades": digest(np.flatnonzero(data.is_graded), data.expert[data.is_graded]),
    }


def _changed(folder: Path, inputs: dict[str, str]) -> list[str]:
    """Note what has changed since the folder was last used, and keep what it is now."""
    place, notes = folder / CACHE / INPUTS, []
    before = _kept_inputs(place)
    if before:
        changed = [name for name in inputs if before.get(name) != inputs[name]]
        if changed:
            notes.append(
                f"The {' and the '.join(changed)} have changed since this folder was last used: what depends on them "
                "was made again, and figures of the run before compare with these no more. There is nothing to do."
            )
        if before.get("version") != code():
            notes.append(
                "This folder was used by another version of crowdrank: everything was made again, and figures may "
                "differ a little from those before. There is nothing to do."
            )
    with write_file(place) as draft:
        draft.write_text(json.dumps({**inputs, "version": code()}, indent=2) + "\n", encoding="utf-8")
    return notes


def _kept_inputs(place: Path) -> dict[str, str]:
    """What the inputs were when the folder was last used; nothing where that cannot be read."""
    try:
        told = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _fit(fits: ConsensusFits, method: str, progress: bool) -> None:
    with reporting(progress, f"consensus by {method}") as report:
        fits.fit(method, report)


def _prepared(fits: ConsensusFits, candidates: list[Candidate], out: dict[str, str], progress: bool) -> list[Candidate]:
    """Fit what the candidates ask for; those whose method cannot be fitted here are out."""
    for method in dict.fromkeys(method for candidate in candidates for method in candidate.methods):
        _fit(fits, method, progress)
    kept = []
    for candidate in candidates:
        missing = [method for method in candidate.methods if method in fits.failed]
        if missing:
            out[candidate.name] = f"{missing[0]}: {fits.failed[missing[0]]}"
        else:
            kept.append(candidate)
    if any(candidate.remapper is not None for candidate in kept):
        for kind in ("remap", "all"):
            fits.label_features(kind)
    return kept


def _tried(
    data: RunData,
    fits: ConsensusFits,
    settings: RunSettings,
    candidates: list[Candidate],
    cache: StageCache,
    out: dict[str, str],
    progress: bool,
) -> tuple[CandidateSelection, bool]:
    """The trial, and whether the crowd's own consensus stood in for experts."""
    parts = split_expert_queries(data.graded_queries, settings)
    stand_in = not len(data.graded_queries)
    if stand_in:
        data, parts = _standing_in(data, fits, settings)
    if not parts.folds:
        if not stand_in:
            why = "too few expert-graded queries to learn from and to choose by"
            out |= {candidate.name: why for candidate in candidates if candidate.experts}
        candidates = only_crowd(candidates)
    bar = ProgressBar("training candidates")
    with bar:
        trial = CandidateSelection(data, fits, settings, candidates, parts, cache, bar if progress else None)
        trial.run()
    trial.outcome.failed |= out
    return trial, stand_in


def _once_more(trial: CandidateSelection, progress: bool) -> Ranker:
    """The choice, learned from everything."""
    with ProgressBar("learning from everything") as bar:
        return trial.refit(trial.outcome.chosen, bar if progress else None)


def _fewer_folds(parts: ExpertSplit, settings: RunSettings) -> list[str]:
    """Say where there are fewer folds than were asked for."""
    n = len(parts.development)
    if not parts.folds or len(parts.folds) == settings.folds:
        return []
    return [
        f"The {n} expert queries for the choice are deal_folds into {counted(len(parts.folds), 'fold')}, not "
        f"{settings.folds}: a fold has two queries at least. So few make the choice between rankers unsteady; more "
        "expert-graded queries would steady it."
    ]


def _standing_in(data: RunData, fits: ConsensusFits, settings: RunSettings) -> tuple[RunData, ExpertSplit]:
    """RunData whose consensus grades stand in for experts', and a part of the judged queries to look at."""
    grade = np.round(fits.labels(settings.method, "expected-grade"))
    judged = replace(data, expert=grade)
    queries = judged.graded_queries
    none = np.empty(0, np.int64)
    if len(queries) < FEWEST:
        return replace(data, expert=np.full(len(grade), np.nan)), ExpertSplit((), none)
    drawn = np.random.default_rng(settings.random_state).permutation(queries)[: max(2, round(STAND_IN * len(queries)))]
    return judged, ExpertSplit((), np.sort(drawn))


def _write(done: Run, folder: Path) -> None:
    """Write the results of a run into an empty folder."""
    done.fits.model(done.settings.method).save(folder / "consensus")
    write_table(done.consensus.document_table, folder / "consensus.parquet")
    write_table(done.assessor_report.table, folder / "assessors.csv")
    write_table(agreement_table(done.data.judgments), folder / "pairs.csv")
    write_table(next_table(done.consensus, done.data), folder / "next.csv")
    write_table(training_table(done.data, done.fits, done.outcome, done.settings), folder / "training.parquet")
    done.ranker.save(folder / "model")
    write_table(comparison_table(done.outcome, done.verdict), folder / "comparison.csv")
    more = {
        "remapping.csv": remapping_table(done.outcome),
        "per_query.csv": per_query_table(done.data, done.verdict),
    }
    for name, table in more.items():
        if table is not None:
            write_table(table, folder / name)
    (folder / "report.md").write_text(markdown(done), encoding="utf-8")
    about = json.dumps(done.about(), indent=2, allow_nan=False) + "\n"
    (folder / RUN_FILE).write_text(about, encoding="utf-8")


def _version(name: str) -> str:
    from importlib.metadata import version

    return version(name)
