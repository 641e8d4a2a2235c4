"""Charts as Altair objects, for notebooks, the report, and PNG or SVG files (`chart.save("a.svg")`).

Charts need the extra `report` (Altair). Colors are those of Okabe and Ito, which color-blind people can distinguish.

>>> import crowdrank
>>> from crowdrank.reports import charts
>>> model = crowdrank.GDA().fit(crowdrank.simulate(queries=5, documents=6, random_state=1).judgments)
>>> charts.convergence(model).to_dict()["mark"]["type"]
'line'
"""

from crowdrank.reports.charts import theme as theme  # first: its error says how to install Altair
from crowdrank.reports.charts.assessors import (
    answers_over_time,
    confusion,
    family_agreement,
    grade_curves,
    grade_shares,
    informativeness,
    informativeness_by_agreement,
)
from crowdrank.reports.charts.documents import (
    convergence,
    difficulty_by_duration,
    difficulty_by_relevance,
    document_trace,
    importance_of_features,
    learned_by_feature,
    relevance_intervals,
    reliability,
    uncertainty,
)
from crowdrank.reports.charts.rankers import differences_by_query, estimates, quality_by_cost, ranker_comparison

__all__ = [
    "answers_over_time",
    "confusion",
    "convergence",
    "differences_by_query",
    "difficulty_by_duration",
    "difficulty_by_relevance",
    "document_trace",
    "estimates",
    "family_agreement",
    "grade_curves",
    "grade_shares",
    "importance_of_features",
    "informativeness",
    "informativeness_by_agreement",
    "learned_by_feature",
    "quality_by_cost",
    "ranker_comparison",
    "relevance_intervals",
    "reliability",
    "uncertainty",
]
