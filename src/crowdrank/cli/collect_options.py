"""Options that the commands of `collect` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank._options import option
from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.collection import GOOD, POLICIES, SETTLED_PROBABILITY

if TYPE_CHECKING:
    from crowdrank.collection.policy import Policy
    from crowdrank.collection.pool import Pool, Roster
    from crowdrank.collection.requests import OutstandingRequests
    from crowdrank.judgments.table import Judgments
    from crowdrank.readers.read_options import ReadOptions

POLICY_HELP = f"{', '.join(POLICIES)}; k is a number, such as if-good-3"
JudgmentFile = Annotated[
    Path,
    typer.Argument(
        help="File of the judgments so far, which need not exist, or a database of the judging service.",
        metavar="JUDGMENTS",
        show_default=False,
    ),
]
MaybeJudgmentFile = Annotated[
    Path | None,
    typer.Argument(
        help="File of the judgments so far, which need not exist, or a database of the judging service. For the policy "
        "preferences, it may be left out.",
        metavar="JUDGMENTS",
        show_default=False,
    ),
]
PAIRS_HELP = (
    "Pool of query-document pairs that may be judged (CSV, qrels, LETOR, ...); a column `honeypot` has the correct "
    "answer of honeypots (blank or false for other pairs), and further columns are texts and URLs for the assessors."
)
Pairs = Annotated[Path, o.path_option(PAIRS_HELP)]


def good_option() -> Any:
    """Return the dataclass field of the option `--good`; None leaves the default of the policy."""
    return option(None, "Lowest grade of a good label.", show_default=f"{GOOD:g}")


@dataclass(frozen=True)
class PolicyOptions:
    """Options for parameters of labeling policies; each policy uses those that it has."""

    settled: float = option(SETTLED_PROBABILITY, "Certainty of its grade at which a document is settled.")
    good: float | None = good_option()
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
    pairs: Path | Pool,
    assessors_path: Path | None,
    prices: dict[str, float],
    excluded_path: Path | None = None,
    *,
    extras: bool = False,
    more_assessors: Callable[[Pool], Roster] | None = None,
) -> Pool:
    """Read the pool of query-document pairs, unless it is one, and the available assessors, without excluded ones.

    With `extras`, the pool keeps further columns, such as texts and URLs. `more_assessors` returns assessors who are
    not in the table of assessors.
    """
    from crowdrank.collection.pool import Pool, read_roster
    from crowdrank.readers.read_options import excluded_ids

    pool = pairs if isinstance(pairs, Pool) else Pool.read(pairs, extras=extras)
    if assessors_path is not None:
        pool = pool.with_roster(read_roster(assessors_path, prices))
    if more_assessors is not None:
        more = more_assessors(pool)
        pool = pool.with_roster(more if pool.roster is None else pool.roster.joined(more))
    if excluded_path is not None and pool.roster is not None:
        pool = pool.with_roster(pool.roster.without(excluded_ids(excluded_path)))
    return pool


def grade_names(judgments: Judgments | None, read_options: ReadOptions) -> Sequence[str] | None:
    """Return the names of the grades from the options or from the judgments; None if they are not known."""
    from crowdrank.judgments.scale import Scale

    if read_options.grades is not None:
        return Scale.parse(read_options.grades).names
    return None if judgments is None else judgments.main_scale.names


def outstanding_text(outstanding: OutstandingRequests) -> str:
    """Return the number, age and price of outstanding requests."""
    since = min(day[:10] for day in outstanding.column("asked").to_pylist())
    return f"{counted(len(outstanding), 'request')} outstanding since {since} (for {outstanding.cost:g})"
