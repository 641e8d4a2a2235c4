"""Report on assessors who give preferences: information per answer, position bias with a test, ties and cycles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crowdrank._typing import Arrays, Floats, Integers
from crowdrank.consensus.gda import GDA
from crowdrank.consensus.latent import information
from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.pair_probabilities import shard_covariances
from crowdrank.consensus.preference_assessors import (
    DIFFERENCES,
    answer_information,
    answer_probabilities,
    answer_scores,
)
from crowdrank.engine.passes import single_blas_thread
from crowdrank.judgments import ids
from crowdrank.judgments.preferences import Preferences

CONFIDENCE_Z = 1.959963984540054
"""Number of standard errors on each side of a 95% interval."""
MAX_MISSING = 0.99
"""Maximum share of the information on assessors that is missing because relevance is not known."""
MIN_VARIANCE = 1e-12
"""Minimum variance of the difference of two documents."""


def add_preference_columns(report: pa.Table | None, model: Aggregator) -> pa.Table:
    """Return a report with the columns of preferences; assessors with preferences alone are added.

    The columns are those of :func:`preference_table`.

    Args:
        report: rows of assessors with judgments; None if there are none.
        model: fitted model. If it was fitted without preferences, the report is returned as it is.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"left": ["a", "b"], "right": ["b", "c"], "assessor": "x", "preference": [-1, -1]})
    >>> add_preference_columns(None, GDA().fit(None, preferences=rows)).column_names[:4]
    ['assessor', 'preferences', 'preference_information', 'sharpness']
    """
    estimator = model.assessor_estimator_
    if not isinstance(estimator, GDA) or estimator.preferences_ is None:
        assert report is not None
        return report
    table = preference_table(estimator)
    if report is None:
        return table
    known = ids.match(table["assessor"].combine_chunks(), report["assessor"].combine_chunks())
    rows = pa.array(known, mask=known < 0)
    for name in table.column_names[1:]:
        column = table[name].combine_chunks().take(rows)
        report = report.append_column(name, pc.fill_null(column, 0) if name == "preferences" else column)
    new = table.take(pa.array(np.setdiff1d(np.arange(len(table)), known)))
    if report["assessor"].type != new["assessor"].type:
        report, new = (_with_text_ids(one) for one in (report, new))
    return pa.concat_tables([report, new], promote_options="default")


def _with_text_ids(table: pa.Table) -> pa.Table:
    return table.set_column(table.column_names.index("assessor"), "assessor", table["assessor"].cast(pa.string()))


def preference_table(model: GDA) -> pa.Table:
    """Return one row per assessor with preferences, those with the most information per answer first.

    Columns: `preferences`, their number; `preference_information`, the mutual information in nats of an answer and the
    difference of two random documents; `sharpness`; `position_bias`, P(left) - P(right) for two documents of equal
    relevance, with its 95% interval (`position_bias_lower`, `position_bias_upper`) and the p-value of no bias
    (`position_bias_p`); `ties`, the share of ties; `cycles`, the share of the sets of three documents with three
    decided answers that form a cycle (a before b before c before a), 1/4 for random answers. Columns of bias need known
    positions.
    """
    assert model.preferences_ is not None
    source = model.consensus_.assessor_table
    chosen = np.flatnonzero(source["preferences"].to_numpy() > 0)
    _, theta, passes = model._open_passes(model.judgments_, model.preferences_)
    counts = passes.accumulate(theta)["preference_counts"][chosen]
    params = theta["preference_params"][chosen]
    own = source.take(pa.array(chosen))
    columns = {
        "assessor": own["assessor"],
        "preferences": own["preferences"],
        "preference_information": preference_information(params, theta["preference_active"]),
        "sharpness": own["sharpness"],
    }
    if "position_bias" in own.column_names:
        missing = missing_information(model)[chosen]
        columns |= {"position_bias": own["position_bias"], **_position_bias(params, theta, counts, missing)}
    if "ties" in own.column_names:
        columns["ties"] = own["ties"]
    cyclic, triads = count_cycles(model.preferences_)
    at = ids.match(model.preferences_.assessors, own["assessor"].combine_chunks())
    share = cyclic[at] / np.maximum(triads[at], 1)
    columns["cycles"] = pa.array(np.where(triads[at] > 0, share, np.nan), from_pandas=True)
    order = [("preference_information", "descending"), ("assessor", "ascending")]
    return pa.table(columns).sort_by(order)


def preference_information(params: Floats, active: Floats) -> Floats:
    """Return the mutual information of an answer and the difference of two documents in nats, (n_assessors,).

    The relevance of documents is N(0, 1), so that their difference is N(0, 2).

    >>> params = np.array([[-9.0, 0.0, 0.0, 0.0], [9.0, 0.0, 0.0, 0.0]])
    >>> preference_information(params, np.array([True, True, False, False])).round(2).tolist()
    [0.0, 0.67]
    """
    prior = np.exp(-(DIFFERENCES**2) / 4)
    likelihood = answer_probabilities(params, active.astype(bool)).transpose(0, 2, 1)
    return information(prior / prior.sum(), likelihood)[0]


def _position_bias(params: Floats, theta: Arrays, counts: Floats, missing: Floats) -> dict[str, Floats]:
    """Return interval and p-value of the position bias of each assessor.

    The posterior of the offset o is normal with the precision at the mode, where relevance is integrated out. The test
    divides the prior out of it: the estimate by the answers alone is compared with 0 (Wald).
    """
    from scipy.special import ndtr

    active = theta["preference_active"].astype(bool)
    mean, precision = theta["preference_mean"], 1.0 / theta["preference_sd"] ** 2
    complete = answer_information(params, active, counts) + np.diag(precision)
    offset, posterior = params[:, 1], 1.0 / observed_variance(complete, missing)[:, 1]
    by_answers = np.maximum(posterior - precision[1], 1e-9)
    estimate = (posterior * offset - precision[1] * mean[1]) / by_answers

    def bias(at: Floats) -> Floats:
        moved = params.copy()
        moved[:, 1] = at
        equal = answer_probabilities(moved, active, np.zeros(1))[:, 0]
        return np.asarray(equal[:, 3:].sum(axis=1) - equal[:, :2].sum(axis=1))

    error = CONFIDENCE_Z / np.sqrt(posterior)
    return {
        "position_bias_lower": bias(offset - error),
        "position_bias_upper": bias(offset + error),
        "position_bias_p": 2.0 * ndtr(-np.abs(estimate) * np.sqrt(by_answers)),
    }


def observed_variance(complete: Floats, missing: Floats) -> Floats:
    """Return the variances by the observed information, complete minus missing (Louis 1982), (n_assessors, 4).

    >>> observed_variance(np.array([[[4.0]]]), np.array([[[3.0]]])).tolist()
    [[1.0]]
    """
    root = np.linalg.inv(np.linalg.cholesky(complete))
    share, axes = np.linalg.eigh(root @ missing @ root.transpose(0, 2, 1))
    axes = root.transpose(0, 2, 1) @ axes
    return np.asarray((axes**2 / (1.0 - np.clip(share, 0.0, MAX_MISSING))[:, None, :]).sum(axis=2))


@single_blas_thread()
def missing_information(model: GDA) -> Floats:
    """Return the information on the parameters of assessors that is missing because relevance is not known.

    It is the posterior covariance of the gradient of the log likelihood of an assessor's answers, (n_assessors, 4, 4).
    An answer's gradient is taken as linear in the difference of its documents (Gauss-Hermite rule with two points),
    and the differences of the answers have the joint posterior of the documents.
    """
    _, theta, passes = model._open_passes(model.judgments_, model.preferences_)
    missing = np.zeros((len(theta["preference_params"]), 4, 4))
    for number in range(len(passes.shards)):
        shard = passes.shards.load(number)
        if shard.preferences is None or not len(shard.preferences):
            continue
        preferences, weight = shard.preferences, model._start(shard)["preference_weight"]
        ends = preferences.query_offsets[1]
        for query, (items, mode, covariance) in enumerate(shard_covariances(model, shard, theta)):
            rows = slice(ends[query], ends[query + 1])
            left, right = (np.searchsorted(items, side[rows]) for side in (preferences.left, preferences.right))
            known, code = np.unique(preferences.assessor[rows], return_inverse=True)
            variance = np.diagonal(covariance)
            sd = np.sqrt(np.maximum(variance[left] + variance[right] - 2.0 * covariance[left, right], MIN_VARIANCE))
            own = theta["preference_params"][known][code], theta["preference_active"].astype(bool)
            high, low = (
                answer_scores(*own, mode[left] - mode[right] + step, preferences.answer[rows]) for step in (sd, -sd)
            )
            slope = weight[rows, None] * (high - low) / (2.0 * sd[:, None])
            by_item = np.zeros((len(known), len(items), 4))
            np.add.at(by_item, (code, left), slope)
            np.subtract.at(by_item, (code, right), slope)
            missing[known] += by_item.transpose(0, 2, 1) @ (covariance @ by_item)
    return missing


def count_cycles(preferences: Preferences) -> tuple[Integers, Integers]:
    """Return the number of cycles and of sets of three documents with decided answers, (n_assessors,) each.

    An assessor's answers on two documents are decided if more of them are for one than for the other.

    >>> import pandas as pd
    >>> from crowdrank import read_preferences
    >>> rows = pd.DataFrame({"winner": ["a", "b", "c", "a"], "loser": ["b", "c", "a", "d"], "assessor": "x"})
    >>> [numbers.tolist() for numbers in count_cycles(read_preferences(rows))]
    [[1], [1]]
    """
    from scipy.sparse import csr_array

    n_assessors = len(preferences.assessors)
    cyclic, triads = np.zeros(n_assessors, np.int64), np.zeros(n_assessors, np.int64)
    left, right = preferences.item_index
    sign = -np.sign(preferences.answer).astype(np.int64)
    order = np.argsort(preferences.assessor, kind="stable")
    bounds = np.searchsorted(preferences.assessor[order], np.arange(n_assessors + 1))
    for code in range(n_assessors):
        rows = order[bounds[code] : bounds[code + 1]]
        items, own = np.unique(np.stack([left[rows], right[rows]]), return_inverse=True)
        shape = (len(items), len(items))
        cells: Any = (sign[rows], tuple(own.reshape(2, -1)))
        votes: Any = csr_array(cells, shape=shape)
        votes = votes - votes.T
        wins: Any = (votes > 0).astype(np.int64)
        decided = wins + wins.T
        cyclic[code] = (wins @ wins).multiply(wins.T).sum() // 3
        triads[code] = (decided @ decided).multiply(decided).sum() // 6
    return cyclic, triads
