"""Options that the commands of `collect` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank._options import option
from crowdrank.cli import options as o
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.collection import POLICIES

if TYPE_CHECKING:
    from crowdrank.collection.base import Policy
    from crowdrank.collection.pool import Pool

POLICY_HELP = f"{', '.join(POLICIES)}; k is a number, such as if-good-3"
JudgmentFile = Annotated[
    Path,
    typer.Argument(help="File of the judgments so far; it need not exist.", metavar="JUDGMENTS", show_default=False),
]
Pairs = Annotated[
    Path,
    o.path_option(
        "Pool of query-document pairs that may be judged (CSV, qrels, LETOR, ...); a column `honeypot` has the correct "
        "answer of honeypots."
    ),
]


@dataclass(frozen=True)
class PolicyOptions:
    """Options for parameters of labeling policies; each policy uses those that it has."""

    settled: float = option(0.95, "Probability of its grade at which a document is settled.")
    good: float | None = option(None, "Lowest grade of a good label.", show_default="2")
    random_state: int | None = option(None, "Random seed for the order of equals.", show_default="order of the pool")


@dataclass(frozen=True)
class CollectModel(o.ModelOptions):
    """Options for the consensus model of the judgments so far."""

    method: str = o.method_option("gda", " Policies that use a model need gda, rasch, dawid-skene or one-coin.")


Model = Annotated[CollectModel, FieldsOf(CollectModel, o.MODEL)]


def build_policy(policy_name: str, parameters: Mapping[str, Any]) -> Policy:
    """Create a policy and set its parameters; values that are None or unknown to the policy are ignored."""
    from crowdrank.collection import get_policy

    policy = get_policy(policy_name)
    names = policy.get_params()
    return policy.set_params(**{one: value for one, value in parameters.items() if one in names and value is not None})


def read_pool(
    pairs_path: Path, assessors_path: Path | None, prices: dict[str, float], excluded_path: Path | None = None
) -> Pool:
    """Read the pool of query-document pairs and the available assessors, without excluded ones."""
    from crowdrank.collection.pool import Pool, read_roster
    from crowdrank.judgments.read import excluded_ids

    pool = Pool.read(pairs_path)
    if assessors_path is not None:
        pool = pool.with_roster(read_roster(assessors_path, prices))
    if excluded_path is not None and pool.roster is not None:
        pool = pool.with_roster(pool.roster.without(excluded_ids(excluded_path)))
    return pool
