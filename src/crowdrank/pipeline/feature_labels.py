"""Labels that also use the features of the documents, compared with those that do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from crowdrank._text import counted, format_p
from crowdrank._typing import Floats
from crowdrank.collection import SETTLED_PROBABILITY
from crowdrank.collection.belief import grade_certainty
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.result import Consensus, grade_codes
from crowdrank.evaluation.evaluate import evaluate_codes
from crowdrank.evaluation.measures import parse_measures
from crowdrank.pipeline.contrasts import Contrast, adjust_contrasts, contrast_values, difference_text
from crowdrank.pipeline.run_data import RunData
from crowdrank.pipeline.run_result import NOT_FOR_RANKERS
from crowdrank.pipeline.run_settings import RunSettings

WITH_FEATURES = "with features"
"""Name of the labels that also use the features of the documents."""
WITHOUT_FEATURES = "without features"
"""Name of the labels that use judgments alone."""
WEIGHTS = {"feature_weight": "weight of the features", "feature_slope": "slope of log odds on the features"}
"""Parameters of models that say how much the features count, and their names."""


@dataclass(frozen=True)
class FeatureLabels:
    """Labels that used features beside the labels that did not, on the same judged documents.

    Attributes:
        features: names of the features that were used; empty if the data did not allow it.
        weight: weight rho of the features in the prior of relevance, from 0 to 1; in models of true grades, the slope
            of the log odds of a grade on the prediction from the features. None if features were not used.
        weight_name: name of the weight.
        n_documents: number of documents.
        n_changed: number of documents whose consensus grade differs.
        width, width_without: mean width of the interval of relevance.
        settled, settled_without: share of the documents whose grade has a certainty of at least 0.95.
        agreement: agreement with the expert grades by measure, with minus without features, and p-values adjusted over
            the measures; empty without experts.

    """

    features: tuple[str, ...]
    weight: float | None
    weight_name: str
    n_documents: int
    n_changed: int
    width: float
    width_without: float
    settled: float
    settled_without: float
    agreement: Mapping[str, Contrast] = field(default_factory=dict)

    @classmethod
    def compare(
        cls, data: RunData, without: Aggregator, model: Aggregator, settings: RunSettings, *, same_scale: bool
    ) -> FeatureLabels:
        """Compare the labels of a model that used features with those of one that did not.

        Args:
            data: data of the run.
            without: model without features.
            model: model with features, of the same judgments.
            settings: settings of the run.
            same_scale: whether experts and assessors use the same grades.

        """
        labels = {WITHOUT_FEATURES: _Labels.of(without), WITH_FEATURES: _Labels.of(model)}
        plain, other = labels.values()
        theta: Mapping[str, Floats] = getattr(model, "theta_", {})
        name = next((one for one in WEIGHTS if one in theta), None)
        return cls(
            model.consensus_.features_used,
            None if name is None else float(theta[name][0]),
            WEIGHTS[name or "feature_weight"],
            len(plain.grade),
            int((plain.grade != other.grade).sum()),
            float(other.width.mean()),
            float(plain.width.mean()),
            float((other.certainty >= SETTLED_PROBABILITY).mean()),
            float((plain.certainty >= SETTLED_PROBABILITY).mean()),
            _agreement(data, labels, settings, same_scale=same_scale),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return asdict(self)

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> FeatureLabels:
        """Return the object of the dictionary that :meth:`to_dict` returned."""
        agreement = {measure: Contrast(**one) for measure, one in fields["agreement"].items()}
        return cls(**{**fields, "features": tuple(fields["features"]), "agreement": agreement})

    def rows(self) -> list[dict[str, str]]:
        """Return the figures with and without features side by side, as text."""
        settled, width = self.settled - self.settled_without, self.width - self.width_without
        figures = [
            (
                f"{measure} against experts",
                f"{one.other_mean:.4f}",
                f"{one.mean:.4f}",
                f"{one.difference:+.4f}",
                f"{one.lower:+.4f} to {one.upper:+.4f}",
                format_p(one.adjusted_p),
            )
            for measure, one in self.agreement.items()
        ]
        figures += [
            ("mean width of the interval", f"{self.width_without:.3f}", f"{self.width:.3f}", f"{width:+.3f}", "", ""),
            ("settled documents", f"{self.settled_without:.1%}", f"{self.settled:.1%}", f"{settled:+.1%}", "", ""),
            ("documents with another grade", "", f"{self.n_changed:,} of {self.n_documents:,}", "", "", ""),
            (self.weight_name, "", "not used" if self.weight is None else f"{self.weight:.2f}", "", "", ""),
        ]
        names = ("figure", WITHOUT_FEATURES, WITH_FEATURES, "difference", "95% interval", "p")
        return [dict(zip(names, row, strict=True)) for row in figures]

    def describe(self) -> str:
        """Return what the features change, in a few sentences."""
        if not self.features:
            return "The features could not be used for labels; the warnings say why."
        documents = f"{self.n_changed:,} of {counted(self.n_documents, 'document')}"
        text = (
            f"Labels that also use {counted(len(self.features), 'feature')} give {documents} another grade; the mean "
            f"width of intervals is {self.width:.3f} instead of {self.width_without:.3f}."
        )
        if self.agreement:
            measure, contrast = next(iter(self.agreement.items()))
            text = f"{text} Their {measure} against experts is {contrast.mean:.4f}: {difference_text(contrast)}."
        return f"{text} {NOT_FOR_RANKERS}"


@dataclass(frozen=True, eq=False)
class _Labels:
    """Labels of the judged documents, (n_documents,) each: relevance, width of its interval, grade, its certainty."""

    relevance: Floats
    width: Floats
    grade: Any
    certainty: Floats

    @classmethod
    def of(cls, model: Aggregator) -> _Labels:
        consensus: Consensus = model.consensus_
        table = consensus.document_table
        relevance, lower, upper = (table[name].to_numpy() for name in ("relevance", "lower", "upper"))
        return cls(relevance, upper - lower, grade_codes(table["grade"], consensus.labels), grade_certainty(model))


def _agreement(
    data: RunData, labels: Mapping[str, _Labels], settings: RunSettings, *, same_scale: bool
) -> dict[str, Contrast]:
    """Return the agreement of two kinds of labels with the expert grades: the measure of the run, Tau, grades."""
    if data.gold is None:
        return {}
    code = data.gold.for_items(data.labels).code
    graded = np.flatnonzero(code >= 0)
    if not len(graded):
        return {}
    queries, query = np.unique(data.labels.item_query[graded], return_inverse=True)
    values = np.array(data.gold.scale.values, dtype=np.float64)
    expert, ids = values[code[graded]] - values[0], data.labels.queries.take(pa.array(queries))
    measures = parse_measures([settings.measure, "Tau"])
    by_measure: dict[str, dict[str, Floats]] = {str(measure): {} for measure in measures}
    if same_scale:
        by_measure["GradeAccuracy"] = {}
    for name, one in labels.items():
        evaluation = evaluate_codes(query, one.relevance[graded], expert, ids, measures)
        for measure in measures:
            by_measure[str(measure)][name] = evaluation.values(measure)
        if same_scale:
            is_equal = (one.grade[graded] == code[graded]).astype(np.float64)
            by_measure["GradeAccuracy"][name] = np.bincount(query, is_equal) / np.bincount(query)
    contrasts = {}
    for measure_name, found in by_measure.items():
        ours, theirs = found[WITH_FEATURES], found[WITHOUT_FEATURES]
        known = ~np.isnan(ours) & ~np.isnan(theirs)
        if known.any():
            seed = settings.random_state
            contrasts[measure_name] = contrast_values(
                f"labels {WITH_FEATURES}", ours[known], f"labels {WITHOUT_FEATURES}", theirs[known], seed
            )
    return dict(zip(contrasts, adjust_contrasts(list(contrasts.values())), strict=True))
