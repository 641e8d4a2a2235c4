"""Metadata routing of scikit-learn (`query`, `sample_weight`) without importing scikit-learn."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from crowdrank._base import Estimator, unknown_name
from crowdrank.errors import UsageError

Request = bool | str | None
"""Whether a method asks for metadata: True, False, None (an error if it is passed), or the name to ask for."""


class MetadataRequests(Estimator):
    """Requests for metadata by method, as meta-estimators of scikit-learn read them."""

    _default_requests: ClassVar[Mapping[str, Mapping[str, Request]]] = {}
    """Metadata of each method, and whether it is requested by default."""

    def set_fit_request(self, **requests: Request) -> Self:
        """Set which metadata scikit-learn passes to `fit`; see scikit-learn's user guide on metadata routing.

        Args:
            requests: names of metadata, each with True, False, None or another name.

        """
        return self._set_request("fit", requests)

    def set_predict_request(self, **requests: Request) -> Self:
        """Set which metadata scikit-learn passes to `predict`."""
        return self._set_request("predict", requests)

    def set_score_request(self, **requests: Request) -> Self:
        """Set which metadata scikit-learn passes to `score`."""
        return self._set_request("score", requests)

    def _set_request(self, method: str, requests: Mapping[str, Request]) -> Self:
        known = self._requests()
        for name in requests:
            if name not in known[method]:
                raise unknown_name(f"metadata of {method}", name, known[method])
        self._metadata_request = {**known, method: {**known[method], **requests}}
        return self

    def _requests(self) -> dict[str, dict[str, Request]]:
        defaults = {method: dict(requests) for method, requests in self._default_requests.items()}
        changed: dict[str, dict[str, Request]] = vars(self).get("_metadata_request", {})
        return defaults | changed

    def get_metadata_routing(self) -> Any:
        """Return the requests as an object of scikit-learn.

        Returns:
            A :class:`sklearn.utils.metadata_routing.MetadataRequest`.

        """
        from sklearn.utils.metadata_routing import MetadataRequest

        routing = MetadataRequest(owner=self)
        for method, requests in self._requests().items():
            for name, alias in requests.items():
                getattr(routing, method).add_request(param=name, alias=alias)
        return routing


def require_routed_score() -> None:
    """Raise UsageError if a cross-validation of scikit-learn calls `fit` and will call `score` without the queries.

    Without metadata routing, `GridSearchCV(ranker, grid).fit(X, y, query=query)` passes `query` to `fit` only.
    scikit-learn turns an error of `score` into a score of NaN; it stops if no fit succeeds.
    """
    validation = sys.modules.get("sklearn.model_selection._validation")
    if validation is None or sys.modules["sklearn"].get_config()["enable_metadata_routing"]:
        return
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_globals is vars(validation) and "scorer" in frame.f_locals:
            scorer = frame.f_locals["scorer"]
            scorers = getattr(scorer, "_scorers", {"score": scorer}).values()
            if any(type(one).__name__ == "_PassthroughScorer" for one in scorers):  # the estimator's own `score`
                raise UsageError(
                    "is passed to fit only, and the ranker cannot be scored without it",
                    parameter="query",
                    kind="not-routed",
                    fix=(
                        "give X as a DataFrame with a column 'query'",
                        "call sklearn.set_config(enable_metadata_routing=True) before",
                    ),
                )
            return
