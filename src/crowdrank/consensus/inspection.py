"""Tables that show what a fitted model believes: posteriors of documents, and answers of assessors by relevance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from crowdrank.consensus._coerce import as_judgments
from crowdrank.consensus.latent import NODES
from crowdrank.consensus.result import item_ids, share_names
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments import ids

if TYPE_CHECKING:
    from crowdrank.consensus._base import Aggregator


def posterior_table(model: Aggregator, judgments: Any = None) -> pa.Table:
    """Return one row per document with P(node) on the latent scale, or P(grade)."""
    if not model.on_nodes:
        consensus = model.infer(judgments)
        return consensus.document_table.select(["query", "document", *consensus.share_names])
    table = as_judgments(model.judgments_ if judgments is None else judgments, model.judgments_)
    prepared, theta, passes = model._open_passes(table)
    passes.accumulate(theta)
    posterior = np.concatenate([model._line_posterior(local) for local in passes.local_arrays()])
    columns = {f"{node + 0.0:.2f}": values for node, values in zip(NODES, posterior.T, strict=True)}
    return pa.table({**item_ids(prepared), **columns})


def grade_curves(model: Aggregator, assessor: Any = None) -> pa.Table:
    """Return one row per assessor and state of a document, with the probability of each grade.

    Raises:
        UsageError: the model has no probabilities of single answers.
        InputError: there is no such assessor.

    """
    states = model._states(model.theta_)
    if states is None:
        raise UsageError(f"{type(model).__name__} has no grade curves: it has no model of answers", kind="no-curves")
    names, scale = model.consensus_.assessor_table["assessor"].combine_chunks(), model.consensus_.scale
    rows = np.arange(len(names))
    if assessor is not None:
        rows = ids.match(names, pa.array([assessor]).cast(names.type))
        if rows[0] < 0:
            raise InputError(
                f"there is no assessor {shown(assessor)}", fix="name one that judged", kind="unknown-assessor"
            )
    on_nodes = model.on_a_line and states[1].shape[2] >= len(NODES)
    relevance = NODES if on_nodes else np.array(scale.values)
    n_grades, n_states = len(scale), len(relevance)
    curves = states[1][rows][:, :n_grades, :n_states].transpose(0, 2, 1).reshape(-1, n_grades)
    columns = {"assessor": names.take(pa.array(np.repeat(rows, n_states))), "relevance": np.tile(relevance, len(rows))}
    return pa.table(columns | dict(zip(share_names(scale), curves.T, strict=True)))
