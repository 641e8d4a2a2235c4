"""Prior of threshold confusion: how well each predicts held-out judgments, next to its figures against gold."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank.consensus.threshold_dawid_skene import ThresholdDawidSkene
from crowdrank.judgments import ids
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from experiments.base import Row, Table, choose, fit_all, gold_in
from experiments.subsample import Score

METHOD = "threshold-dawid-skene"
PRIORS: tuple[str | float, ...] = ("learned", 0.25, 0.5, 1.0, 2.0, 4.0)
"""The default, and the penalties among which Zhou et al. choose by the likelihood of held-out judgments."""
N_FOLDS = 5
RANDOM_STATE = 0


def prior_table(parts: Mapping[str, Judgments], gold: Gold, score: Score) -> Table:
    """Return one row per part of the judgments and prior."""
    variants = {f"prior {prior}": (METHOD, {"prior": prior}) for prior in PRIORS}
    rows: list[Row] = []
    for name, judgments in parts.items():
        fits = fit_all(choose([METHOD], variants), judgments, on=name)
        figures = score(fits, gold_in(gold, judgments), ["TauB"])
        for prior in PRIORS:
            run = f"prior {prior}"
            rows.append({"run": f"{name}, {run}", "held-out": held_out_score(prior, judgments), **figures[run]})
    note = (
        f"held-out is the mean log probability of a judgment that was left out of the fit, in {N_FOLDS} random folds; "
        "higher is better, and it knows no gold. A prior that is a number is a fixed penalty."
    )
    return Table("priors", f"Priors of {METHOD}", tuple(rows), (note,))


def held_out_score(prior: str | float, judgments: Judgments) -> float:
    """Return the mean log probability of the judgments of each fold, predicted from the other folds."""
    fold = np.random.default_rng(RANDOM_STATE).permutation(len(judgments)) % N_FOLDS
    logs = [_log_probabilities(prior, judgments, fold == number) for number in range(N_FOLDS)]
    return float(np.concatenate(logs).mean())


def _log_probabilities(prior: str | float, judgments: Judgments, left_out: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return log probabilities of the judgments left out whose document and assessor have others in the fit."""
    training = judgments.where(~left_out)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ThresholdDawidSkene(prior=prior).fit(training)
    query, document = pa.array(judgments.item_query), pa.array(judgments.item_document)
    place = training.positions(judgments.queries.take(query), judgments.documents.take(document))
    item = np.repeat(place, np.diff(judgments.offsets))[left_out]
    assessor = ids.match(training.assessors, judgments.assessors)[judgments.assessor[left_out]]
    known = (item >= 0) & (assessor >= 0)
    posterior = np.column_stack([model.consensus_.document_table[name] for name in model.consensus_.true_share_names])
    answers = model.theta_["likelihood"][assessor[known], judgments.grade[left_out][known]]
    logs: NDArray[np.float64] = np.log((posterior[item[known]] * answers).sum(axis=1))
    return logs
