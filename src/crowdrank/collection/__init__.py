"""Collection of labels: which documents to label next, by whom and at what cost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from crowdrank._estimator import load_estimator_class
from crowdrank.errors import UsageError, near, shown

if TYPE_CHECKING:
    from crowdrank.collection.policy import Policy

SETTLED_PROBABILITY = 0.95
"""Default certainty of its grade at which a document is settled."""
GOOD = 2.0
"""Default lowest grade of a good label: Good on the scale Bad, Fair, Good, Excellent, Perfect."""
SCHEMES: dict[str, dict[str, Any]] = {
    "single": {"rule": "overlap", "k": 1},
    "overlap-k": {"rule": "overlap"},
    "majority-k": {"rule": "majority"},
    "highest-k": {"rule": "highest"},
    "if-good-k": {"rule": "if-good"},
    "good-till-bad": {"rule": "good-till-bad", "k": 11},
    "if-good-xk": {"rule": "if-good-x"},
}
"""Parameters of each labeling scheme by its name, in which k is a number."""
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("schemes.Scheme", parameters) for name, parameters in SCHEMES.items()},
    "random": ("model_policies.Random", {}),
    "widest-interval": ("model_policies.WidestInterval", {}),
    "entropy": ("model_policies.InformationGain", {}),
    "ndcg@k": ("model_policies.TopGain", {}),
    "compare": ("compare_runs.CompareRuns", {}),
}
"""Class and parameters of each policy by its name on the command line; modules are imported when needed."""
BEST_POLICY = "ndcg@k"
"""Policy with the best mean gain per label over random labels in the experiment `next-label`."""
ALIASES = {r"(\d+)-overlap": "overlap-{0}", r"mv-?(\d+)": "majority-{0}", r"ndcg": "ndcg@10"}
"""Other names of policies (those of the paper, and short ones), as regular expressions."""


def get_policy(name: str, **parameters: Any) -> Policy:
    """Return a policy by its name on the command line.

    Args:
        name: a name such as `if-good-3`, `overlap-5` (or `5-overlap`) or `ndcg@10`.
        parameters: further parameters of the policy.

    Raises:
        UsageError: there is no such policy, or a parameter is unknown or invalid.

    >>> get_policy("if-good-x2"), get_policy("5-overlap"), get_policy("ndcg@5")
    (Scheme(rule='if-good-x', k=2), Scheme(k=5), TopGain(k=5))
    >>> get_policy("if-bad-3")
    Traceback (most recent call last):
    crowdrank.errors.UsageError: There is no policy 'if-bad-3'; take one of: single, overlap-k, majority-k, highest-k,
    if-good-k, good-till-bad, if-good-xk, random, widest-interval, entropy, ndcg@k, compare (k is a number).

    """
    wanted = name.strip().lower()
    for pattern, form in ALIASES.items():
        if alias := re.fullmatch(pattern, wanted):
            wanted = form.format(*alias.groups())
    for known, (location, defaults) in POLICIES.items():
        number = r"(\d+)" if known.endswith("k") else r"(?:-(\d+))?" if known == "good-till-bad" else "()"
        if match := re.fullmatch(re.escape(known.removesuffix("k")) + number, wanted):
            k = {"k": int(match[1])} if match[1] else {}
            policy: Policy = load_estimator_class("collection", location)().set_params(**defaults | k | parameters)
            policy._check_parameters()
            return policy
    raise UsageError(
        f"There is no policy {shown(name)}{near(wanted, POLICIES)}; take one of: {', '.join(POLICIES)} (k is a number)",
        kind="unknown-name",
    )
