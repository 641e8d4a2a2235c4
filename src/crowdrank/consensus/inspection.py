"""Tables of a fitted model: posteriors of documents, and probabilities of assessors' grades by relevance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crowdrank._typing import Floats
from crowdrank.consensus.fit_data import as_judgments
from crowdrank.consensus.latent import NODES
from crowdrank.consensus.result import item_ids
from crowdrank.errors import InputError, UsageError, shown
from crowdrank.judgments import ids

if TYPE_CHECKING:
    from crowdrank.consensus.model import EMAggregator


def posterior_table(model: EMAggregator, judgments: Any = None) -> pa.Table:
    """Return one row per document with P(node) on the latent scale, or P(grade)."""
    if not model.on_nodes:
        consensus = model.infer(judgments)
        documents = consensus.document_table
        if model.in_grades:
            return documents.select(["query", "document", *consensus.share_names])
        posterior = normal_posterior(documents["relevance"].to_numpy(), documents["sd"].to_numpy())
        return pa.table({name: documents[name] for name in ("query", "document")} | _node_columns(NODES, posterior))
    table = as_judgments(model.judgments_ if judgments is None else judgments, model.judgments_)
    prepared, theta, passes = model._open_passes(table)
    passes.accumulate(theta)
    posterior = np.concatenate([model._line_posterior(local) for local in passes.local_arrays()])
    return pa.table({**item_ids(prepared), **_node_columns(theta["nodes"], posterior)})


def normal_posterior(relevance: Floats, sd: Floats) -> Floats:
    """Return the probability of a normal posterior in the cell of each node, (n_documents, n_nodes).

    >>> normal_posterior(np.zeros(1), np.full(1, 1e-3)).argmax()
    np.int64(10)
    """
    from scipy.special import ndtr

    bounds = np.concatenate([[-np.inf], (NODES[1:] + NODES[:-1]) / 2, [np.inf]])
    return np.diff(ndtr((bounds - relevance[:, None]) / sd[:, None]), axis=1)


def _node_columns(nodes: Floats, posterior: Floats) -> dict[str, Floats]:
    return {f"{node + 0.0:.2f}": values for node, values in zip(nodes, posterior.T, strict=True)}


def grade_curves(model: EMAggregator, assessor: Any = None) -> pa.Table:
    """Return one row per assessor and state of a document, with the probability of each grade.

    Raises:
        UsageError: the model has no probabilities of single answers.
        InputError: there is no such assessor.

    """
    states = model._states(model.theta_)
    if states is None:
        raise UsageError(f"{type(model).__name__} has no grade curves: it has no model of answers", kind="no-curves")
    names, rows = _select_assessors(model, assessor)
    scale = model.consensus_.scale
    nodes = model.theta_.get("nodes", NODES)
    on_nodes = model.on_a_line and states[1].shape[2] >= len(nodes)
    relevance = nodes if on_nodes else np.array(scale.values)
    n_grades, n_states = len(scale), len(relevance)
    curves = states[1][rows][:, :n_grades, :n_states].transpose(0, 2, 1).reshape(-1, n_grades)
    columns = {"assessor": names.take(pa.array(np.repeat(rows, n_states))), "relevance": np.tile(relevance, len(rows))}
    return pa.table(columns | dict(zip(scale.share_names, curves.T, strict=True)))


def grade_gaussians(model: EMAggregator, assessor: Any = None) -> pa.Table:
    """Return one row per assessor and grade with mu, width and alpha.

    Raises:
        UsageError: grades are not Gaussians over relevance in this model.
        InputError: there is no such assessor.

    """
    names, rows = _select_assessors(model, assessor)
    theta = {name: array[rows] if name in model.assessor_arrays else array for name, array in model.theta_.items()}
    gaussians = model._gaussians(theta)
    if gaussians is None:
        problem = f"{type(model).__name__} does not model grades as Gaussians"
        raise UsageError(problem, kind="no-gaussians", fix="use GDA or GDAPairwise (gda, gda-pairwise)")
    row, grade = np.nonzero(~np.isnan(gaussians[0]))
    prepared = model._prepare(model.judgments_)
    labels = [
        model.consensus_.labels if scale == model.consensus_.scale else scale.values if scale.numeric else scale.names
        for scale in prepared.scales
    ]
    given = [labels[scale][code] for scale, code in zip(prepared.assessor_scale[rows[row]], grade, strict=True)]
    mu, width, alpha = (values[row, grade] for values in gaussians)
    columns = {"assessor": names.take(pa.array(rows[row])), "grade": _as_column(given)}
    return pa.table({**columns, "mu": mu, "width": width, "alpha": alpha})


def _select_assessors(model: EMAggregator, assessor: Any) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the ids of all assessors, and the rows of one assessor or of all."""
    names = model.consensus_.assessor_table["assessor"].combine_chunks()
    if assessor is None:
        return names, np.arange(len(names))
    rows = ids.match(names, pa.array([assessor]).cast(names.type))
    if rows[0] < 0:
        raise InputError(f"there is no assessor {shown(assessor)}", fix="name one that judged", kind="unknown-assessor")
    return names, rows


def _as_column(grades: list[Any]) -> pa.Array:
    """Return grades of several scales as one column: numbers, or text if some have names."""
    if all(isinstance(grade, int | float) for grade in grades):
        return pa.array(grades)
    return pa.array([str(grade) for grade in grades])
