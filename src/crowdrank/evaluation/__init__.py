"""Evaluation measures with exact treatment of ties, significance tests and comparison tables.

>>> import pandas as pd
>>> run = pd.DataFrame({"query": [1, 1], "document": ["a", "b"], "score": [0.2, 0.7]})
>>> gold = pd.DataFrame({"query": [1, 1], "document": ["a", "b"], "grade": [0, 2]})
>>> evaluate(run, gold, ["nDCG@10", "RR(rel=2)"]).means
{'nDCG@10': 1.0, 'RR(rel=2)': 1.0}
"""

from crowdrank.evaluation.comparison import Comparison, compare
from crowdrank.evaluation.evaluate import Conventions, Counts, Evaluation, evaluate
from crowdrank.evaluation.measures import Gains, Measure, parse_gains, parse_measure, parse_measures
from crowdrank.evaluation.significance import bootstrap_interval, effect_size, fisher_randomization, holm, paired_t

__all__ = [
    "Comparison", "Conventions", "Counts", "Evaluation", "Gains", "Measure", "bootstrap_interval", "compare",
    "effect_size", "evaluate", "fisher_randomization", "holm", "paired_t", "parse_gains", "parse_measure",
    "parse_measures",
]  # fmt: skip
