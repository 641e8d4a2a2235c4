"""What to label next, by whom, at what price: policies (`base.py`), one contract, named as on the command line.

>>> policy_named("if-good-4"), policy_named("ndcg@5")
(IfGood(k=4), TopGain(k=5))
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

from crowdrank.errors import UsageError, near

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
"""The names of the policies on the command line, and where each lives (loaded when asked for); k is a number."""

OTHER_NAMES = {r"(\d+)-overlap": "overlap-{0}", r"mv-?(\d+)": "majority-{0}", r"ndcg": "ndcg@10"}
"""As the paper calls some of them, and short forms."""


def policy_named(name: str) -> Policy:
    """A policy from its name with its number, as in `if-good-3`, `overlap-5` (or `5-overlap`), `ndcg@10`.

    >>> policy_named("if-good-x2"), policy_named("5-overlap"), policy_named("good-till-bad-5")
    (IfGoodTimes(k=2), Overlap(k=5), GoodTillBad(k=5))
    >>> policy_named("if-bad-3")
    Traceback (most recent call last):
    crowdrank.errors.UsageError: There is no policy 'if-bad-3'; the policies are: single, overlap-k, majority-k,
    highest-k, if-good-k, good-till-bad, if-good-xk, random, widest-interval, entropy, ndcg@k (k is a number).
    """
    asked = name.strip().lower()
    for pattern, usual in OTHER_NAMES.items():
        found = re.fullmatch(pattern, asked)
        asked = usual.format(*found.groups()) if found else asked
    for known, home in POLICIES.items():
        form = re.escape(known.removesuffix("k")) + r"(\d+)" if known.endswith("k") else re.escape(known)
        form += r"(?:-(\d+))?" if known == "good-till-bad" else ""
        found = re.fullmatch(form, asked)
        if found:
            number = next((int(part) for part in found.groups() if part), None)
            policy = _policy_class(home)()
            return policy if number is None else policy.set_params(k=number).checked()
    meant, listed = near(asked, POLICIES), ", ".join(POLICIES)
    raise UsageError(f"There is no policy '{name}'{meant}; the policies are: {listed} (k is a number).")


def _policy_class(home: str) -> type[Policy]:
    module, name = home.split(".")
    found: type[Policy] = getattr(importlib.import_module(f"crowdrank.collection.{module}"), name)
    return found
