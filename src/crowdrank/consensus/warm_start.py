"""Parameters of a fitted model for judgments of other assessors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from crowdrank._typing import Arrays
from crowdrank.consensus.experts import first_cuts
from crowdrank.judgments import ids
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments

if TYPE_CHECKING:
    from crowdrank.consensus._base import EMAggregator


def aligned_parameters(model: EMAggregator, init: EMAggregator, table: Judgments, gold: Gold | None) -> Arrays | None:
    """Return the parameters of `init` for the assessors of `table`; new assessors get those of `_new_assessors`.

    If the number of expert grades differs, the cut points between them start from the shares of these grades.

    Returns:
        The parameters, or None if `init` was fitted to other grades.

    """
    prepared = model._prepare(table)
    if init._prepare(init.judgments_).scales != prepared.scales:
        return None
    known = ids.match(init.consensus_.assessor_table["assessor"].combine_chunks(), prepared.assessors)
    theta = dict(init.theta_)
    for name in model.assessor_arrays:
        rows = init.theta_[name][np.maximum(known, 0)]
        rows[known < 0] = model._new_assessors(init.theta_, name, prepared.assessor_scale[known < 0])
        theta[name] = rows
    if "expert_cuts" in theta and _n_grades(gold) != _n_grades(init.gold_):
        codes = np.zeros(0, np.int8) if gold is None else gold.code
        theta["expert_cuts"] = first_cuts(np.bincount(codes, minlength=_n_grades(gold)).astype(np.float64))
    return theta


def _n_grades(gold: Gold | None) -> int:
    return 0 if gold is None else len(gold.scale)
