"""Parameters of a fitted model for judgments of other assessors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from crowdrank._typing import Arrays
from crowdrank.judgments import ids
from crowdrank.judgments.table import Judgments

if TYPE_CHECKING:
    from crowdrank.consensus._base import EMAggregator


def aligned_parameters(model: EMAggregator, init: EMAggregator, table: Judgments) -> Arrays | None:
    """Return the parameters of `init` for the assessors of `table`; new assessors get those of `_new_assessors`.

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
    return theta
