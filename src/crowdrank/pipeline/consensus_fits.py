"""Consensus models of a run, each fitted once to the crowd labels, without expert grades."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdrank._disk import ScratchFolder, file_digest, link_or_copy, source_digest
from crowdrank._files import write_file
from crowdrank._folders import FolderKind, Manifest, open_folder, write_folder
from crowdrank._numba import available_threads
from crowdrank._progress import Report
from crowdrank._text import enumerate_names
from crowdrank._typing import Floats, Integers
from crowdrank.consensus import get_aggregator
from crowdrank.consensus.grade_rules import choose_grades
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.pair_probabilities import PairProbabilities
from crowdrank.consensus.result import Consensus
from crowdrank.engine.passes import Engine, LocalEngine
from crowdrank.errors import CrowdrankError, DataWarning, Fix, InputError, Message, UsageError
from crowdrank.evaluation.measures import MAX_GRADE
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.stage_cache import StageCache, digest
from crowdrank.readers.features import Features

if TYPE_CHECKING:
    from crowdrank.label_learning.label_features import LabelFeatures

MODEL_STAGE = FolderKind("consensus-stage", 1, "cached consensus model", "crowdrank run")
MODEL = "model"
"""Name of the folder of the saved model in a stage."""
JUDGMENTS_FILE = "judgments.parquet"
"""Name of the file with the judgments of a saved model."""
WARNINGS_FILE = "warnings.json"
"""Name of the file with the data warnings of a fit."""
JUDGMENTS = "judgments"
"""Name of the stages that hold judgments; the key of each is the digest of its file."""

Fit = tuple[Aggregator, list[Message]]
"""Fitted model and the data warnings of its fit."""


def save_fit(fit: Fit, path: Path, cache: StageCache) -> None:
    """Save a fitted model with its data warnings; its judgments become a stage of their own."""
    model, messages = fit
    with write_folder(path, MODEL_STAGE) as folder:
        model.save(folder / MODEL)
        (folder / WARNINGS_FILE).write_text(json.dumps([message.to_dict() for message in messages]), encoding="utf-8")
        for file in sorted((folder / MODEL).rglob(JUDGMENTS_FILE)):
            digest = file_digest(file)
            shared = cache.shared_file(JUDGMENTS, digest)
            if file_digest(shared) == digest:
                file.unlink()
            else:  # not stored yet, or damaged
                with write_file(shared) as draft:
                    file.replace(draft)


def load_fit(path: Path, cache: StageCache) -> Fit:
    """Load what :func:`save_fit` wrote; raise an error if the model or its judgments are missing or changed."""
    open_folder(path, MODEL_STAGE)
    stored = json.loads((path / WARNINGS_FILE).read_text(encoding="utf-8"))
    scratch = ScratchFolder(path.parent)
    try:
        folder = scratch.path / MODEL
        shutil.copytree(path / MODEL, folder, copy_function=link_or_copy)
        for name, digest in Manifest.read(folder).entries.items():
            if not (folder / name).exists():
                link_or_copy(cache.shared_file(JUDGMENTS, digest), folder / name)
        return Aggregator.load(folder), [Message.from_dict(fields) for fields in stored]
    finally:
        scratch.close()


MANY_JUDGMENTS_PER_DOCUMENT = 10
"""Mean number of judgments per document above which the pairwise model uses fewer partners per judgment."""
FEW_PARTNERS = 5
"""Number of partners per judgment in the pairwise model if documents have many judgments."""


class ConsensusFits:
    """Consensus models of the labels of a run.

    Models see the crowd labels of all queries, including test queries, but no expert grade.

    Args:
        data: data of the run.
        cache: cache of the fitted models.
        n_jobs: number of threads.
        engine: where to fit; by default threads on this machine.
        parameters: parameters of models, by method.

    Attributes:
        failed: error message of each method that cannot be fitted to these labels.

    """

    def __init__(
        self,
        data: RunData,
        cache: StageCache,
        n_jobs: int | None = None,
        engine: Engine | None = None,
        parameters: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.data, self.cache, self.engine = data, cache, engine
        self.parameters = parameters or {}
        self.n_jobs = n_jobs or available_threads()
        self.failed: dict[str, str] = {}
        self._fitted: set[str] = set()
        self._methods_by_warning: dict[Message, list[str]] = {}
        self._not_converged: dict[str, int] = {}  # number of iterations by method

    def fit(self, method: str, report: Report | bool = False) -> None:
        """Fit a method; if it cannot be fitted to these labels, record why in `failed`."""
        if method not in self.failed:
            try:
                self._get_model(method, f"consensus-{method}", self.key(method), report)
            except CrowdrankError as problem:
                self.failed[method] = str(problem).rstrip(".")

    def fit_with_features(self, method: str, features: Features, report: Report | bool = False) -> Aggregator:
        """Return the model with a prior of relevance from features; it serves neither training nor tests."""
        stage, key = f"consensus-{method}-with-features", digest(self.key(method), features)
        return self._get_model(method, stage, key, report, features)

    def _get_model(
        self, method: str, stage: str, key: str, report: Report | bool = False, features: Features | None = None
    ) -> Aggregator:
        """Return a fitted model, from the cache if it is there; record its data warnings."""
        model, messages = self.cache.get(
            stage,
            key,
            lambda: self._fit_model(method, report, features),
            lambda fit, path: save_fit(fit, path, self.cache),
            lambda path: load_fit(path, self.cache),
        )
        name = method if features is None else f"{method} with features"
        if name not in self._fitted:
            self._fitted.add(name)
            for message in messages:
                self._methods_by_warning.setdefault(message, []).append(name)
            if not getattr(model, "converged_", True):
                self._not_converged[name] = model.n_iter_
        return model

    def key(self, method: str) -> str:
        """Return the cache key of a method: labels, parameters and source code."""
        parts = (source_digest(), self.data.digests["labels"], method, self.method_parameters(method))
        return digest(*parts, *([self.data.digests["preferences"]] if self.takes_preferences(method) else []))

    def takes_preferences(self, method: str) -> bool:
        """Return whether there are preferences and a method can use them."""
        if self.data.preferences is None:
            return False
        try:
            get_aggregator(method, **self.method_parameters(method))._check_preferences()
        except UsageError:
            return False
        return True

    def pair_probabilities(self, method: str) -> PairProbabilities:
        """Return the joint posterior of the documents of `data.labels`, in their order."""
        return self.cache.remember("pairs", self.key(method), lambda: PairProbabilities.from_model(self.model(method)))

    def method_parameters(self, method: str) -> dict[str, Any]:
        """Return the parameters of a method that are not the defaults."""
        labels = self.data.labels
        many = method == "gda-pairwise" and len(labels) > MANY_JUDGMENTS_PER_DOCUMENT * labels.n_items
        return {**({"partners": FEW_PARTNERS} if many else {}), **self.parameters.get(method, {})}

    def _fit_model(self, method: str, report: Report | bool, features: Features | None) -> Fit:
        """Fit a method; return the model and its data warnings without repetition."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = get_aggregator(method, **self.method_parameters(method))
            engine = self.engine or LocalEngine(self.n_jobs)
            preferences = self.data.preferences if self.takes_preferences(method) else None
            model.fit(self.data.labels, features=features, preferences=preferences, engine=engine, progress=report)
        return model, list(dict.fromkeys(one.message.message for one in caught if isinstance(one.message, DataWarning)))

    @property
    def notes(self) -> list[Message]:
        """Data warnings of the models, each with the models that raised it, and models that did not converge."""
        notes = [
            replace(message, problem=f"{message.problem} (consensus by {enumerate_names(methods)})")
            for message, methods in self._methods_by_warning.items()
        ]
        if self._not_converged:
            names, n_iter = list(self._not_converged), max(self._not_converged.values())
            methods = enumerate_names(names)
            problem = f"Consensus by {methods} did not converge in {n_iter} iterations; labels may still change"
            command = f"crowdrank aggregate -m {names[0].partition(' ')[0]} -s n_iter={3 * n_iter}"
            fix = Fix(f"see whether they do with more iterations: {command}")
            notes.append(Message(problem, "not-converged", "warning", fixes=(fix,)))
        return notes

    def has(self, method: str) -> bool:
        """Return whether a method was fitted."""
        return method in self._fitted

    def model(self, method: str) -> Aggregator:
        """Return a fitted model; raise InputError if the method cannot be fitted."""
        self.fit(method)
        if method in self.failed:
            raise InputError(self.failed[method], kind="not-fitted")
        return self._get_model(method, f"consensus-{method}", self.key(method))

    def labels(self, method: str, target: str) -> Floats:
        """Return a consensus as labels of the rows, NaN without a judgment.

        Args:
            method: name of the consensus model.
            target: `probabilities` of the grades, `expected-grade`, most probable `grade`, or `relevance`, which is
                shifted so that it is at least 0.

        Returns:
            (n_rows,), or (n_rows, n_grades) for `probabilities`.

        """
        key = digest(self.key(method), self.data.digests["features"], target)
        return self.cache.remember(
            "labels", key, lambda: self.data.by_row(consensus_labels(self.model(method).consensus_, target))
        )

    def label_features(self, kind: str) -> LabelFeatures:
        """Return the features of every label; the documents are those of `data.labels`, in the same order."""
        methods = {"dawid_skene": "dawid-skene", "glad": "glad", **({"latent": "gda"} if kind == "all" else {})}

        from crowdrank.label_learning.label_features import label_features

        def make() -> LabelFeatures:
            models: dict[str, Any] = {name: self.model(method) for name, method in methods.items()}
            return label_features(self.data.judgments, kind=kind, **models)

        return self.cache.remember("label-features", digest(kind, *map(self.key, methods.values())), make)

    def random_order(self, kind: str, random_state: int) -> tuple[Integers, Integers]:
        """Return the random rank of each label within its document, (n_labels,), and of each document, (n_items,)."""

        def make() -> tuple[Integers, Integers]:
            labels, rng = self.label_features(kind), np.random.default_rng(random_state)
            order = np.lexsort((rng.random(len(labels)), labels.item))
            rank = np.empty(len(labels), np.int64)
            rank[order] = np.arange(len(labels)) - labels.judgments.offsets[labels.item[order]]
            return rank, rng.permutation(labels.judgments.n_items)

        return self.cache.remember("random-order", digest(self.data.digests["labels"], kind, random_state), make)


def consensus_labels(consensus: Consensus, target: str) -> Floats:
    """Return the labels of the items of a consensus; targets are those of :meth:`ConsensusFits.labels`."""
    table = consensus.document_table
    if target == "relevance":
        relevance = table["relevance"].to_numpy()
        return np.asarray(relevance - min(0.0, float(relevance.min())))
    values = np.array(consensus.scale.values, dtype=np.int64)
    if values[0] < 0 or values[-1] > MAX_GRADE:
        raise InputError(f"the grades {consensus.scale} are not within 0 and {MAX_GRADE}", kind="no-gains")
    probabilities = np.zeros((len(table), values[-1] + 1))
    probabilities[:, values] = np.column_stack([table[name].to_numpy() for name in consensus.true_share_names])
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    if target == "probabilities":
        return probabilities
    if target == "grade":
        return choose_grades(probabilities, "mode").astype(np.float64)
    return np.asarray(probabilities @ np.arange(probabilities.shape[1]))
