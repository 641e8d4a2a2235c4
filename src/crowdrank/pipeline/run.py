"""The main function: from judgments, features and some expert grades to labels, a ranker and a report."""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import crowdrank
from crowdrank._files import CACHE_FOLDER_NAME, MANIFEST_FILE_NAME, locked
from crowdrank._folders import Manifest, check_output_folder, update_folder, write_folder
from crowdrank._progress import reporting
from crowdrank._text import counted
from crowdrank.assessors.agreement import agreement_table, copies_warning, krippendorff_alpha
from crowdrank.assessors.assessor_report import UNRELIABLE_FLAGS, assess
from crowdrank.assessors.preference_report import add_preference_columns
from crowdrank.consensus import get_aggregator
from crowdrank.consensus.calibration import Calibration, calibrate
from crowdrank.consensus.families import describe_effective_assessors, effective_assessors
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.result import Consensus
from crowdrank.engine.passes import Engine
from crowdrank.errors import Fix, InputError, UsageError, attempt
from crowdrank.judgments.scale import GradeMapLike
from crowdrank.pipeline.consensus_fits import ConsensusFits
from crowdrank.pipeline.previous_results import copy_previous_results, describe_changes
from crowdrank.pipeline.result_tables import (
    documents_table,
    markdown,
    next_table,
    order_table,
)
from crowdrank.pipeline.run_data import RunData, build_run_data
from crowdrank.pipeline.run_result import RUN, Provenance, RunResult, python_call
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.stage_cache import PROFILE_FILE, Profiler, StageCache, digest
from crowdrank.readers.features import Features
from crowdrank.readers.leak_check import check_leaks

if TYPE_CHECKING:
    from crowdrank.pipeline.feature_labels import FeatureLabels
    from crowdrank.pipeline.run_rankers import TrainingPlan


def summarize_labels(result: RunResult) -> list[str]:
    """Return the result of a run without rankers in short paragraphs."""
    assessors, documents = result.tables["assessors"], result.tables["documents"]
    alpha = krippendorff_alpha(result.model.judgments_)
    flags = assessors["flag"].to_pylist()
    unreliable = sum(flag in UNRELIABLE_FLAGS for flag in flags)
    families = f" in {counted(result.sizes['families'], 'family')}" if "families" in result.sizes else ""
    if "preferences" in result.sizes:
        families += f", and from {counted(result.sizes['preferences'], 'preference')}"
    parts = [
        f"The consensus by {result.consensus_method} labels {counted(len(documents), 'document')} from "
        f"{counted(result.sizes['judgments'], 'judgment')} by {counted(len(assessors), 'assessor')}{families}.",
        f"{alpha}.",
        f"{counted(unreliable, 'assessor')} of {len(assessors):,} answer at random or in reverse.",
    ]
    if effective := describe_effective_assessors(len(assessors), effective_assessors(result.model)):
        parts.insert(1, effective)
    if result.expert_offset is not None:
        parts.append(f"{result.expert_offset}.")
    return parts


LIBRARIES = ("numpy", "numba", "lightgbm", "pyarrow")
"""Libraries whose versions are reported."""

WriteReport = Callable[[RunResult, Path], object]
"""Function that writes a report of a result into the folder with its files."""


def run(
    judgments: Any,
    features: Any = None,
    expert: Any = None,
    honeypots: Any = None,
    *,
    preferences: Any = None,
    output: str | Path | None = None,
    progress: bool = False,
    engine: Engine | None = None,
    provenance: Provenance | None = None,
    report: WriteReport | None = None,
    expert_map: GradeMapLike | None = None,
    profiler: Profiler | None = None,
    **settings: Any,
) -> RunResult:
    """Compute labels from judgments, train rankers on them, and select and test one by expert grades.

    Args:
        judgments: `Judgments`, a path or a DataFrame.
        features: features of the documents: `Features`, a path or a DataFrame. Without them the result has labels and
            assessors, but no ranker.
        expert: expert grades of some queries: `Gold`, a path or a DataFrame. They select and test the ranker.
        honeypots: documents with known grades that check assessors, likewise; no ranker is trained on them.
        preferences: preferences between two judged documents: `Preferences`, a path or a DataFrame. The consensus by
            GDA uses them, and a candidate is trained on the probabilities of pairs.
        output: folder for the results. Finished stages are cached in it, so that an interrupted run resumes. Earlier
            results are moved to its subfolder `previous` once the new ones are complete.
        progress: show progress bars.
        engine: cluster for consensus models, remappers and least squares (`DaskEngine`); by default local threads.
            Trees are always trained locally.
        provenance: command that started the run, for the report; by default the Python call.
        report: function that writes a report of the result into the folder of the results, which is complete by then.
        expert_map: grades of the judgments that each expert grade stands for if the scales differ, such as
            `0=0-1,1=2-4`.
        profiler: measures time and memory of the stages; one that has already measured the reading of the inputs
            includes it in the profile. By default a new one.
        settings: attributes of `RunSettings`, such as `measure="AP"` or `test=0.5`.

    >>> import crowdrank
    >>> world = crowdrank.simulate(queries=40, documents=10, gold_queries=15, random_state=1)
    >>> result = run(world.judgments, world.features, world.gold, candidates=["majority", "average", "expert-only"])
    >>> sorted(result.comparison["candidate"])
    ['average', 'ensemble-all', 'ensemble-crowd', 'ensemble-expert', 'ensemble-weighted', 'expert-only', 'majority']
    >>> result.ranker.predict(crowdrank.read_features(world.features)).shape
    (441,)
    """
    run_settings = RunSettings.of(settings)
    folder = None if output is None else Path(output)
    if folder is not None:
        check_output_folder(folder, RUN)
    profiler = profiler or Profiler()
    with nullcontext() if folder is None else locked(folder, wait=False), profiler:
        data, label_features = prepare_data(
            judgments, features, expert, honeypots, run_settings, expert_map, profiler, preferences
        )
        if provenance is None:
            inputs = {"judgments": judgments, "features": features, "expert": expert, "honeypots": honeypots}
            inputs["preferences"] = preferences
            provenance = Provenance(python=python_call(inputs, run_settings, folder, engine))
        provenance = replace(provenance, units={**data.judgments.report.units, **provenance.units})
        plan = None
        if data.has_features:
            from crowdrank.pipeline.run_rankers import TrainingPlan

            plan = TrainingPlan.choose(data, run_settings)
        cache = _open_cache(folder, profiler)
        runner = _Runner(data, label_features, run_settings, plan, cache, engine, progress)
        result = replace(runner.run(), provenance=provenance, backend=data.judgments.backend)
        if folder is not None:
            result = _write(result, folder, report, profiler)
            cache.delete_unused()
        return replace(result, profile=profiler.profile())


def _write(result: RunResult, folder: Path, report: WriteReport | None, profiler: Profiler) -> RunResult:
    """Write the files of a run, then its report; return the result with its differences to the previous one.

    The results are complete before anything is drawn, and remain if a report cannot be written.
    """
    with profiler.stage("files"):
        changes, failures = attempt("The comparison with the previous run", lambda: describe_changes(folder, result))
        result = replace(result, changes=changes or (), notes=(*result.notes, *failures))
        text, failures = attempt("report.md", lambda: markdown(result))
        result = replace(result, notes=(*result.notes, *failures))
    with write_folder(folder, RUN) as draft:
        with profiler.stage("files"):
            result.save(draft)
            if text is not None:
                (draft / "report.md").write_text(text, encoding="utf-8")
            copy_previous_results(folder, draft, result)
        profiler.profile().save(draft / PROFILE_FILE)
    if report is None:
        return result
    with profiler.stage("report"):
        current = replace(result, profile=profiler.profile())
        _, failures = attempt("The report", lambda: report(current, folder))
    _, more = attempt(PROFILE_FILE, lambda: _update_profile(folder, profiler))
    return replace(result, notes=(*result.notes, *failures, *more))


def _update_profile(folder: Path, profiler: Profiler) -> None:
    """Replace the profile in the folder of a run by one that also has the time of the report."""
    with update_folder(folder, Manifest.read(folder), PROFILE_FILE) as draft:
        profiler.profile().save(draft)


def prepare_data(
    judgments: Any,
    features: Any,
    expert: Any,
    honeypots: Any,
    settings: RunSettings,
    expert_map: GradeMapLike | None = None,
    profiler: Profiler | None = None,
    preferences: Any = None,
) -> tuple[RunData, Features | None]:
    """Return the data of a run, and the features that its labels also use, if the settings ask for such labels."""
    profiler = profiler or Profiler()
    if settings.feature_labels and features is None:
        fix = Fix("give features of the documents with {}", "features")
        raise UsageError("needs features", parameter="feature_labels", kind="no-features", fix=fix)

    if preferences is not None:
        get_aggregator(settings.method, **settings.consensus_parameters[settings.method])._check_preferences()

    def build(used_features: Any) -> RunData:
        unjudgeable_as = settings.unjudgeable_as
        with profiler.stage("read"):
            data = build_run_data(
                judgments, used_features, expert, honeypots, unjudgeable_as=unjudgeable_as, expert_map=expert_map
            )
            return data if preferences is None else data.with_preferences(preferences)

    checked = build(features if settings.rankers or settings.feature_labels else None)
    with profiler.stage("features"):
        leaks = check_leaks(checked.leaks(), allow_leaks=settings.allow_leak)
    data = checked if settings.rankers or not checked.has_features else build(None)
    return replace(data, notes=(*data.notes, *leaks)), checked.features if settings.feature_labels else None


def _open_cache(folder: Path | None, profiler: Profiler) -> StageCache:
    """Return the cache of finished stages in a folder; create the folder if it does not exist."""
    if folder is None:
        return StageCache(None, profiler)
    if not (folder / MANIFEST_FILE_NAME).exists():
        with write_folder(folder, RUN) as draft:
            (draft / CACHE_FOLDER_NAME).mkdir()
    return StageCache(folder / CACHE_FOLDER_NAME, profiler)


@dataclass(eq=False)
class _Runner:
    """Stages of a run: consensus and assessors, then candidates, selection, test and the final ranker."""

    data: RunData
    label_features: Features | None
    settings: RunSettings
    plan: TrainingPlan | None
    cache: StageCache
    engine: Engine | None
    progress: bool

    def __post_init__(self) -> None:
        parameters = self.settings.consensus_parameters
        self.fits = ConsensusFits(self.data, self.cache, self.settings.n_jobs, self.engine, parameters)

    def run(self) -> RunResult:
        """Run all stages; the result has no provenance and no profile yet."""
        model, stage = self._fit_consensus(), self.cache.profiler.stage
        with stage("assessors"):
            # Assessors are not compared with expert grades that seem to be those of other documents.
            reference = None if self.data.doubts_experts else self.data.gold
            assessors = assess(model, self.data.judgments, reference)
            pairs = agreement_table(self.data.judgments)
            copies = copies_warning(model.judgments_, pairs)
        if copies is not None:
            self.data = replace(self.data, notes=(*self.data.notes, copies))
        consensus, calibration = self._calibrate(model)
        documents, gold = documents_table(consensus, self.data), self.data.gold
        scale = self.data.labels.main_scale
        same_scale = gold is not None and gold.grade_map is None and len(gold.scale) == len(scale)
        with stage("next"):
            wanted = next_table(documents, model, self.data, self.settings.measure)
        tables = {"documents": documents, "assessors": assessors.table, "pairs": pairs, "next": wanted}
        if self.data.preferences is not None:
            tables["preference_assessors"] = add_preference_columns(None, model)
            tables["order"] = order_table(self.fits.pair_probabilities(self.settings.method))
        feature_labels = None
        if self.label_features is not None:
            feature_labels, feature_tables = self._feature_labels(model, self.label_features, same_scale=same_scale)
            tables |= feature_tables
        choice = getattr(model, "reason_", None)  # only the method `auto` has one
        labels = RunResult(
            settings=self.settings,
            model=model,
            tables=tables,
            rankers=None,
            summary=(
                *([] if choice is None else [f"Consensus by auto: {choice}"]),
                *([] if calibration is None else [f"{calibration}."]),
                *([] if feature_labels is None else [feature_labels.describe()]),
            ),
            protocol=(),
            notes=(*self.data.notes, *self.fits.notes),
            sizes=_sizes(self.data),
            inputs=_digests(self.data, self.label_features),
            provenance=Provenance(),
            versions=_versions(),
            expert_offset=assessors.expert_offset,
            same_scale=same_scale,
            expert_grades=() if gold is None else gold.scale.values,
            feature_labels=feature_labels,
            calibration=calibration,
        )
        if self.plan is None:
            return replace(labels, summary=(*summarize_labels(labels), *labels.summary))
        from crowdrank.pipeline.run_rankers import RankerStages

        return RankerStages(self.data, self.fits, self.settings, self.plan, self.cache, self.progress).run(labels)

    def _fit_consensus(self) -> Aggregator:
        """Return the consensus model of the labels; raise InputError if it cannot be fitted."""
        method = self.settings.method
        with reporting(self.progress, f"consensus by {method}") as report:
            self.fits.fit(method, report)
        if method in self.fits.failed:
            raise InputError(self.fits.failed[method], fix="use another consensus method")
        return self.fits.model(method)

    def _calibrate(self, model: Aggregator) -> tuple[Consensus, Calibration | None]:
        """Return the consensus with calibrated grade probabilities, if there are expert grades that are not doubted.

        Rankers are trained on labels without calibration, which has seen the expert grades of the test queries.
        """
        gold, labels = self.data.gold, self.data.labels
        if gold is None or self.data.doubts_experts or not self.settings.calibrate:
            return model.consensus_, None
        grade_by = model.grade_by
        return calibrate(model.consensus_, gold.for_items(labels), labels.item_query, grade_by=grade_by)

    def _feature_labels(
        self, without: Aggregator, features: Features, *, same_scale: bool
    ) -> tuple[FeatureLabels, dict[str, pa.Table]]:
        """Fit the consensus also with features; return its comparison with the one without them, and its tables."""
        from crowdrank.pipeline.feature_labels import FeatureLabels

        method = self.settings.method
        with reporting(self.progress, f"consensus by {method} with features") as report:
            model = self.fits.fit_with_features(method, features, report)
        labels = FeatureLabels.compare(self.data, without, model, self.settings, same_scale=same_scale)
        documents = documents_table(model.consensus_, self.data)
        wanted = next_table(documents, model, self.data, self.settings.measure)
        return labels, {"documents_with_features": documents, "next_with_features": wanted}


def _digests(data: RunData, label_features: Features | None) -> dict[str, str]:
    features = data.digests["features"] if data.has_features or label_features is None else digest(label_features)
    return {
        "judgments": data.digests["judgments"],
        **({} if data.preferences is None else {"preferences": data.digests["preferences"]}),
        **({"features": features} if data.has_features or label_features is not None else {}),
        "expert grades": digest(np.flatnonzero(data.is_graded), data.expert[data.is_graded]),
    }


def _sizes(data: RunData) -> dict[str, int]:
    return {
        "judgments": len(data.judgments),
        "assessors": data.judgments.n_assessors,
        "documents": len(data.query),
        "judged_documents": data.judgments.n_items,
        "queries": len(data.query_ids),
        "features": len(data.features.names),
        "expert_grades": int(data.is_graded.sum()),
        "expert_queries": data.n_expert_queries,
        **({"families": _n_families(data)} if data.has_families else {}),
        **({} if data.preferences is None else {"preferences": len(data.preferences)}),
    }


def _n_families(data: RunData) -> int:
    """Return the number of families; an assessor without a family is a family of one."""
    family = data.labels.assessor_family
    assert family is not None
    return len(np.unique(family[family >= 0])) + int((family < 0).sum())


def _versions() -> dict[str, str]:
    """Return the versions of crowdrank, Python and the main libraries."""
    libraries = {name: version(name) for name in LIBRARIES}
    return {"crowdrank": crowdrank.__version__, "python": platform.python_version(), **libraries}
