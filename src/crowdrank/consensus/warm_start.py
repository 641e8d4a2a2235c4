"""Parameters of a fitted model for other judgments, whose assessors may be others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from crowdrank._typing import Arrays
from crowdrank.errors import UsageError
from crowdrank.judgments import ids
from crowdrank.judgments.table import Judgments

if TYPE_CHECKING:
    from crowdrank.consensus._base import Aggregator


def aligned_parameters(model: Aggregator, init: Aggregator, table: Judgments) -> Arrays | None:
    """Return the parameters of `init` for the assessors of `table`; new assessors get those of `_new_assessors`.

    Returns:
        The parameters, or None if `init` was fitted to other grades.

    Raises:
        UsageError: `init` is another kind of model.

    """
    require_same_class(model, init)
    init._require_fitted()
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


def require_same_class(model: Aggregator, init: Aggregator) -> None:
    """Raise UsageError unless a model can start from `init`."""
    if type(init) is not type(model):
        name = type(model).__name__
        raise UsageError(f"must be a fitted {name}, not {type(init).__name__}", parameter="init", kind="other-model")
