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
from crowdrank.judgments import frames, ids

if TYPE_CHECKING:
    from crowdrank.consensus.model import EMAggregator, States
    from crowdrank.consensus.result import Consensus


class InspectionMethods:
    """Mixin with the methods of aggregators that return posteriors of documents and grade curves of assessors."""

    if TYPE_CHECKING:
        consensus_: Consensus

        @property
        def assessor_estimator_(self) -> EMAggregator: ...  # noqa: D102
        def posterior_table(self, judgments: Any = None) -> pa.Table: ...  # noqa: D102
        def _require_fitted(self) -> None: ...

    def answer_states(self) -> States | None:
        """Return P(state) and P(answer | state) of each assessor, or None if the model has no such states.

        A state is a true grade or a node of the latent scale. The informativeness of assessors follows from these.
        """
        self._require_fitted()
        return self.assessor_estimator_._states(self.assessor_estimator_.theta_)

    def posterior(self, judgments: Any = None) -> Any:
        """Return the posterior of each document: P(node) on the latent scale, or P(true grade).

        Args:
            judgments: as in :meth:`infer`.

        Returns:
            A DataFrame of the library that the judgments came in: one row per (query, document), one column per node,
            named by its relevance (or per true grade, true0..; for votes, p0..).

        >>> import pandas as pd
        >>> from crowdrank import GDA
        >>> votes = pd.DataFrame({"document": ["a", "a", "b"], "assessor": ["x", "y", "x"], "grade": [1, 1, 0]})
        >>> list(GDA().fit(votes).posterior().columns)[:4]
        ['query', 'document', '-3.20', '-2.88']

        """
        self._require_fitted()
        return frames.from_arrow(self.posterior_table(judgments), self.consensus_.backend)

    def grade_curves(self, assessor: Any = None) -> Any:
        """Return the probability of each grade that assessors give, by the relevance of the document (GDA, Figure 3).

        Args:
            assessor: id of one assessor; by default all.

        Returns:
            A DataFrame with one row per assessor and node (or true grade, in models of confusion), and one column per
            grade.

        Raises:
            UsageError: the model has no such curves.

        >>> import pandas as pd
        >>> from crowdrank import GDA
        >>> votes = pd.DataFrame({"document": ["a", "a", "b"], "assessor": ["x", "y", "x"], "grade": [1, 1, 0]})
        >>> GDA().fit(votes).grade_curves("x").columns.tolist()
        ['assessor', 'relevance', 'p0', 'p1']

        """
        self._require_fitted()
        return frames.from_arrow(grade_curves(self.assessor_estimator_, assessor), self.consensus_.backend)

    def grade_gaussians(self, assessor: Any = None) -> Any:
        """Return the Gaussian over relevance of each assessor and grade: P(g | r) ~ alpha_g N(r; mu_g, w_g).

        Probabilities do not identify the Gaussians of a model without document difficulty. Of all that give the same
        probabilities, those whose mixture has mean 0 and variance 1 are returned, as documents have: sum_g alpha_g
        mu_g = 0 and sum_g alpha_g (w_g + mu_g^2) = 1. With difficulty they are identified and returned as estimated.

        Args:
            assessor: id of one assessor; by default all.

        Returns:
            A DataFrame with the columns assessor, grade (on the assessor's own scale), mu, width (the variance w) and
            alpha (sums to 1 for each assessor).

        Raises:
            UsageError: the model has no such Gaussians.

        >>> import pandas as pd
        >>> from crowdrank import GDA
        >>> votes = pd.DataFrame({"document": ["a", "a", "b"], "assessor": ["x", "y", "x"], "grade": [1, 1, 0]})
        >>> GDA().fit(votes).grade_gaussians("x").columns.tolist()
        ['assessor', 'grade', 'mu', 'width', 'alpha']

        """
        self._require_fitted()
        table = grade_gaussians(self.assessor_estimator_, assessor)
        return frames.from_arrow(table, self.consensus_.backend)


def posterior_table(model: EMAggregator, judgments: Any = None) -> pa.Table:
    """Return one row per document with P(node) on the latent scale, or P(true grade)."""
    if "nodes" not in model.theta_:
        consensus = model.infer(judgments)
        documents = consensus.document_table
        if model.in_grades:
            return documents.select(["query", "document", *consensus.true_share_names])
        posterior = normal_posterior(documents["relevance"].to_numpy(), documents["sd"].to_numpy())
        return pa.table({name: documents[name] for name in ("query", "document")} | _node_columns(NODES, posterior))
    table = as_judgments(model.judgments_ if judgments is None else judgments, model.judgments_)
    prepared, theta, passes = model._open_passes(table)
    passes.accumulate(theta)
    posterior = np.concatenate([model._line_posterior(local) for local in passes.local_arrays()])
    return pa.table({**item_ids(prepared), **_node_columns(theta["nodes"], posterior)})


def normal_posterior(relevance: Floats, sd: Floats) -> Floats:
    """Return the probability that a normal posterior gives to the interval around each node, (n_documents, n_nodes).

    >>> normal_posterior(np.zeros(1), np.full(1, 1e-3)).argmax()
    np.int64(10)
    """
    from scipy.special import ndtr

    bounds = np.concatenate([[-np.inf], (NODES[1:] + NODES[:-1]) / 2, [np.inf]])
    return np.diff(ndtr((bounds - relevance[:, None]) / sd[:, None]), axis=1)


def _node_columns(nodes: Floats, posterior: Floats) -> dict[str, Floats]:
    return {f"{node + 0.0:.2f}": values for node, values in zip(nodes, posterior.T, strict=True)}


def grade_curves(model: EMAggregator, assessor: Any = None) -> pa.Table:
    """Return a table of P(grade | state): one row per assessor and state of a document, one column per grade.

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
    theta = model.theta_ | {name: model.theta_[name][rows] for name in model._assessor_arrays() if name in model.theta_}
    gaussians = model._gaussians(theta)
    if gaussians is None:
        problem = f"{type(model).__name__} does not model grades as Gaussians"
        raise UsageError(problem, kind="no-gaussians", fix="use GDA or GDAPairwise (gda, gda-pairwise)")
    row, grade = np.nonzero(~np.isnan(gaussians[0]))
    prepared = model._prepare_with(model.judgments_, model.preferences_)
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
