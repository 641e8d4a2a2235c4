"""Export of rankers to search engines, one file per engine; `exporter.py` has the contract of an exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crowdrank._estimator import load_estimator_class, unknown_name_error

if TYPE_CHECKING:
    from crowdrank.rankers.export.exporter import Exporter

EXPORTERS = {
    "elasticsearch-ltr": "elasticsearch.ElasticsearchLTR",
    "opensearch-ltr": "elasticsearch.OpenSearchLTR",
    "elasticsearch": "elasticsearch.Elasticsearch",
    "solr": "solr.Solr",
    "vespa": "vespa.Vespa",
    "ranklib": "ranklib.RankLib",
    "lightgbm": "lightgbm_text.LightGBM",
    "onnx": "onnx_graph.ONNX",
}
"""Location of each exporter by the name of its engine; modules are loaded when needed."""


def get_exporter(name: str) -> Exporter:
    """Return an exporter by the name of its engine.

    Raises:
        UsageError: there is no such engine.

    >>> get_exporter("solr").title
    'Solr'

    """
    if name not in EXPORTERS:
        raise unknown_name_error("search engine", name, EXPORTERS)
    exporter: Exporter = load_estimator_class("rankers.export", EXPORTERS[name])()
    return exporter
