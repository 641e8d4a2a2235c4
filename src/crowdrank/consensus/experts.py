"""Experts in models with a latent trait: one more assessor, with a scale of its own and a steep curve.

P(expert grade g | relevance r) is proportional to exp(STEEPNESS * (g r - sum of the first g cut points)). At a cut
point two neighboring grades are equally probable. The cut points are estimated with the rest of the model.
"""

from __future__ import annotations

import numpy as np

from crowdrank._normal import normal_quantiles
from crowdrank._typing import Arrays, Floats
from crowdrank.consensus.latent import softmax
from crowdrank.engine.shards import Shard

STEEPNESS = 8.0
"""Slope of the log odds of neighboring expert grades; an expert is all but certain 0.5 from a cut point."""
NEWTON_STEPS = 3
"""Number of Newton steps for the cut points in each iteration."""
LONGEST_STEP = 0.3
"""Maximum length of a Newton step."""


def count_expert_grades(shard: Shard, n_answers: int) -> Arrays:
    """Return the number of documents per expert grade, and of each assessor's answers to them.

    Returns:
        `expert_grades` of shape (n_expert_grades,), `on_gold` of shape (n_assessors, n_answers, n_expert_grades).

    """
    on_gold = np.zeros((shard.n_assessors, n_answers, shard.n_expert_grades))
    answers = shard if shard.soft is None else shard.soft
    expert_grade = np.repeat(shard.gold, np.diff(answers.offsets))
    known = expert_grade >= 0
    share = 1.0 if shard.soft is None else shard.soft.share[known]
    np.add.at(on_gold, (answers.assessor[known], answers.grade[known], expert_grade[known]), share)
    expert_grades = np.bincount(shard.gold[shard.gold >= 0], minlength=shard.n_expert_grades)
    return {"expert_grades": expert_grades.astype(np.float64), "on_gold": on_gold}


def count_states(shard: Shard, posterior: Floats) -> Floats:
    """Return the expected number of documents per expert grade and state, (n_expert_grades, n_states)."""
    counts = np.zeros((shard.n_expert_grades, posterior.shape[1]))
    known = shard.gold >= 0
    np.add.at(counts, shard.gold[known], posterior[known])
    return counts


def first_cuts(expert_grades: Floats) -> Floats:
    """Return cut points (n_expert_grades - 1,) at which a standard normal relevance has the shares of the grades.

    >>> first_cuts(np.array([50.0, 50.0])).tolist()
    [0.0]
    """
    shares = (expert_grades + 0.5) / (expert_grades + 0.5).sum()
    return normal_quantiles(np.cumsum(shares)[:-1])


def expert_lines(cuts: Floats) -> Floats:
    """Return slope and intercept of the score of each expert grade by relevance, (2, n_expert_grades)."""
    return STEEPNESS * np.stack([np.arange(len(cuts) + 1.0), -np.concatenate([[0.0], np.cumsum(cuts)])])


def expert_curves(cuts: Floats, relevance: Floats) -> Floats:
    """Return P(expert grade | relevance), (n_expert_grades, n_points)."""
    slope, intercept = expert_lines(cuts)
    return softmax(slope[:, None] * relevance + intercept[:, None], axis=0)


def estimate_cuts(cuts: Floats, counts: Floats, relevance: Floats) -> Floats:
    """Return cut points after Newton steps on their expected log posterior; their prior is standard normal.

    Args:
        cuts: current cut points, (n_expert_grades - 1,).
        counts: expected number of documents per expert grade and point of relevance, (n_expert_grades, n_points).
        relevance: (n_points,).

    """
    if not len(cuts):
        return cuts
    total = counts.sum(axis=0)
    above = counts[::-1].cumsum(axis=0)[::-1][1:].sum(axis=1)  # documents graded above each cut point
    for _ in range(NEWTON_STEPS):
        exceeds = expert_curves(cuts, relevance)[::-1].cumsum(axis=0)[::-1][1:]  # P(grade above each cut point)
        gradient = STEEPNESS * (exceeds @ total - above) - cuts
        both = np.minimum(exceeds[:, None], exceeds[None])  # P(grade above both cut points)
        hessian = STEEPNESS**2 * ((both - exceeds[:, None] * exceeds[None]) @ total) + np.eye(len(cuts))
        cuts = cuts + np.clip(np.linalg.solve(hessian, gradient), -LONGEST_STEP, LONGEST_STEP)
    return cuts
