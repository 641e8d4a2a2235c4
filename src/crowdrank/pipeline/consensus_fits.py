"""What the consensus methods say of the documents, each fitted once, without any expert grade."""

from __future__ import annotations

import filecmp
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crowdrank._progress import Report
from crowdrank._typing import Floats, Integers
from crowdrank.consensus import get_aggregator
from crowdrank.consensus._base import Aggregator
from crowdrank.engine.base import Engine
from crowdrank.engine.local import LocalEngine
from crowdrank.errors import CrowdrankError, DataWarning
from crowdrank.label_learning.label_features import LabelFeatures, label_features
from crowdrank.pipeline.run_data import Material
from crowdrank.pipeline.stage_cache import Stages, code, digest
from crowdrank.rankers.boosting import default_threads
from crowdrank.rankers.labels import read_labels

MANY_LABELS = 10
"""From so many judgments of a document on, the pairwise model takes fewer partners of each."""
JUDGMENTS_FILE = "judgments.parquet"
"""Name of the judgments in a saved model."""
WARNINGS_FILE = "warnings.json"
"""Name of the file with a fit's data warnings, in the folder of its stage."""


class Opinions:
    """Consensus models of a run's labels.

    No expert grade reaches them, so that crowd labels of any query may: they tell of assessors, not of experts.
    """

    def __init__(
        self,
        material: Material,
        stages: Stages,
        n_jobs: int | None = None,
        cluster: Engine | None = None,
        parameters: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.material, self.stages, self.cluster = material, stages, cluster
        self.parameters = parameters or {}  # of methods, by name
        self.n_jobs = n_jobs or default_threads()
        self.failed: dict[str, str] = {}
        self._warned: dict[str, list[str]] = {}  # what was said, and by which methods
        self._unfinished: dict[str, int] = {}  # methods that had not converged, and their iterations
        self._models: dict[str, Aggregator] = {}
        self._labels: dict[tuple[str, str], Floats] = {}
        self._features: dict[str, LabelFeatures] = {}
        self._items: dict[str, Integers] = {}
        self._drawn: dict[tuple[str, int], tuple[Integers, Integers]] = {}
        self.key = digest(code(), material.labels)

    def fit(self, method: str, report: Report | bool = False) -> None:
        """Fit a method; why it cannot be is kept in `failed`, what it warns of is told by `cautions`."""
        if method in self._models or method in self.failed:
            return
        options: dict[str, Any] = {}
        if method == "gda-pairwise" and len(self.material.labels) > MANY_LABELS * self.material.labels.n_items:
            options["partners"] = 5
        options |= self.parameters.get(method, {})
        try:
            self._models[method], found = self.stages.kept(
                f"consensus-{method}",
                digest(self.key, method, options),
                lambda: self._fitted(method, options, report),
                _save,
                _load,
            )
        except CrowdrankError as problem:
            self.failed[method] = str(problem).rstrip(".")
            return
        for sentence in found:
            self._warned.setdefault(sentence, []).append(method)
        model = self._models[method]
        if not getattr(model, "converged_", True):
            self._unfinished[method] = model.n_iter_

    def _fitted(self, method: str, options: dict[str, Any], report: Report | bool) -> tuple[Aggregator, list[str]]:
        """Fit a method; return the model and its data warnings, each once."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = get_aggregator(method, **options)
            model.fit(self.material.labels, engine=self.cluster or LocalEngine(self.n_jobs), progress=report)
        return model, list(dict.fromkeys(str(one.message) for one in caught if one.category is DataWarning))

    @property
    def cautions(self) -> list[str]:
        """What the methods warned of; the same from several of them is said once."""
        told = [f"{sentence} This concerns {_joined(methods)}." for sentence, methods in self._warned.items()]
        if self._unfinished:
            names, most = list(self._unfinished), max(self._unfinished.values())
            # What a model itself advises are its own options, which a run does not have.
            told.append(
                f"{_joined(names)} had not converged after {most} iterations: labels by "
                f"{'it' if len(names) == 1 else 'them'} might still move a little, and so might rankers that learn "
                f"from them. To see whether they do: `crowdrank aggregate -m {names[0]} -s n_iter={3 * most}`."
            )
        return told

    def has(self, method: str) -> bool:
        """Whether a method was fitted."""
        return method in self._models

    def model(self, method: str) -> Aggregator:
        """A fitted model."""
        self.fit(method)
        return self._models[method]

    def labels(self, method: str, target: str) -> Floats:
        """What a consensus says of every row, from 0 up, NaN where nobody judged: (n_rows,) or (n_rows, n_grades)."""
        if (method, target) not in self._labels:
            values = read_labels(self.model(method)).target(target)
            if target == "relevance":
                values = values - min(0.0, float(values.min()))
            self._labels[method, target] = self.material.by_row(values)
        return self._labels[method, target]

    def label_features(self, kind: str) -> LabelFeatures:
        """What is known of every label."""
        if kind not in self._features:
            models: dict[str, Any] = {"dawid_skene": self.model("dawid-skene"), "glad": self.model("glad")}
            if kind == "all":
                models["latent"] = self.model("gda")
            self._features[kind] = label_features(self.material.judgments, kind=kind, **models)
        return self._features[kind]

    def items(self, kind: str) -> Integers:
        """The item of each row among the judgments of label features."""
        if kind not in self._items:
            known = self.material.features
            self._items[kind] = self.label_features(kind).judgments.positions(known.query, known.document)
        return self._items[kind]

    def drawn(self, kind: str, random_state: int) -> tuple[Integers, Integers]:
        """An order by chance of the labels of each document (n_labels,), and one of all documents (n_items,)."""
        if (kind, random_state) not in self._drawn:
            labels, rng = self.label_features(kind), np.random.default_rng(random_state)
            order = np.lexsort((rng.random(len(labels)), labels.item))
            number = np.empty(len(labels), np.int64)
            number[order] = np.arange(len(labels)) - labels.judgments.offsets[labels.item[order]]
            self._drawn = {(kind, random_state): (number, rng.permutation(labels.judgments.n_items))} | {
                known: kept for known, kept in self._drawn.items() if known[1] == random_state
            }
        return self._drawn[kind, random_state]


def _save(fitted: tuple[Aggregator, list[str]], place: Path) -> None:
    """Save a fitted model together with its data warnings."""
    model, found = fitted
    model.save(place)
    (place / WARNINGS_FILE).write_text(json.dumps(found), encoding="utf-8")
    _share_judgments(place / JUDGMENTS_FILE)


def _share_judgments(saved: Path) -> None:
    """Replace saved judgments by a hard link to equal ones of another stage, so that they are stored once."""
    for other in saved.parent.parent.glob(f"consensus-*/{JUDGMENTS_FILE}"):
        if other != saved and filecmp.cmp(other, saved, shallow=False):
            link = saved.with_suffix(".link")
            try:
                link.hardlink_to(other)
            except OSError:  # a file system without hard links keeps both
                return
            link.replace(saved)
            return


def _load(place: Path) -> tuple[Aggregator, list[str]]:
    """Load what `_save` wrote."""
    return Aggregator.load(place), json.loads((place / WARNINGS_FILE).read_text(encoding="utf-8"))


def _joined(names: list[str]) -> str:
    """Names as a sentence has them.

    >>> _joined(["gda"]), _joined(["gda", "glad", "rasch"])
    ('gda', 'gda, glad and rasch')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
