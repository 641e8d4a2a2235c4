"""Collection of labels: which document to label next, by whom and at what price; `base.py` has the contract."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from crowdrank._base import load_class
from crowdrank.errors import UsageError, near, shown

if TYPE_CHECKING:
    from crowdrank.collection.base import Policy

POLICIES = {
    "single": "schemes.Single",
    "overlap-k": "schemes.Overlap",
    "majority-k": "schemes.Majority",
    "highest-k": "schemes.Highest",
    "if-good-k": "schemes.IfGood",
    "good-till-bad": "schemes.GoodTillBad",
    "if-good-xk": "schemes.IfGoodTimes",
    "random": "model_policies.Random",
    "widest-interval": "model_policies.WidestInterval",
    "entropy": "model_policies.EntropyDrop",
    "ndcg@k": "model_policies.TopGain",
}
"""Location of each policy by its name on the command line, in which k is a number; modules are loaded when needed."""

ALIASES = {r"(\d+)-overlap": "overlap-{0}", r"mv-?(\d+)": "majority-{0}", r"ndcg": "ndcg@10"}
"""Names of policies in the paper, and short forms, as patterns."""


def get_policy(name: str, **parameters: Any) -> Policy:
    """Return a policy by its name on the command line, which may contain a number.

    Args:
        name: a name such as `if-good-3`, `overlap-5` (or `5-overlap`) or `ndcg@10`.
        parameters: further parameters of the policy.

    Raises:
        UsageError: there is no such policy, or a parameter is unknown or invalid.

    >>> get_policy("if-good-x2"), get_policy("5-overlap"), get_policy("good-till-bad-5"), get_policy("ndcg@5")
    (IfGoodTimes(k=2), Overlap(k=5), GoodTillBad(k=5), TopGain(k=5))
    >>> get_policy("if-bad-3")
    Traceback (most recent call last):
    crowdrank.errors.UsageError: There is no policy 'if-bad-3'; take one of: single, overlap-k, majority-k, highest-k,
    if-good-k, good-till-bad, if-good-xk, random, widest-interval, entropy, ndcg@k (k is a number).

    """
    wanted = name.strip().lower()
    for pattern, form in ALIASES.items():
        if alias := re.fullmatch(pattern, wanted):
            wanted = form.format(*alias.groups())
    for known, location in POLICIES.items():
        number = r"(\d+)" if known.endswith("k") else r"(?:-(\d+))?" if known == "good-till-bad" else "()"
        if match := re.fullmatch(re.escape(known.removesuffix("k")) + number, wanted):
            policy: Policy = load_class("collection", location)()
            policy.set_params(**({"k": int(match[1])} if match[1] else {}), **parameters)
            policy._check_parameters()
            return policy
    raise UsageError(
        f"There is no policy {shown(name)}{near(wanted, POLICIES)}; take one of: {', '.join(POLICIES)} (k is a number)",
        kind="unknown-name",
    )
