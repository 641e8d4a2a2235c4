"""Options that the verbs of `collect` share, said once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank.collection import POLICIES
from crowdrank.consensus import METHODS

if TYPE_CHECKING:
    from crowdrank.collection.base import Policy
    from crowdrank.collection.pool import Pool
    from crowdrank.judgments.table import Judgments

JudgmentsFile = Annotated[
    Path,
    typer.Argument(
        help="The judgments so far; a file that is not there yet holds none.", metavar="JUDGMENTS", show_default=False
    ),
]
Pairs = Annotated[
    Path,
    typer.Option(
        "--pairs",
        help="The pool: pairs of query and document that may be judged (CSV, qrels, LETOR, ...); with a column "
        "honeypot, the right answer of planted ones.",
        show_default=False,
    ),
]
MaybePairs = Annotated[
    Path | None, typer.Option("--pairs", help="The pool; judgments of other documents are refused.", show_default=False)
]
PolicyName = Annotated[
    str, typer.Option("--policy", "-p", help=f"One of: {', '.join(POLICIES)}; k is a number, as in if-good-3.")
]
Assessors = Annotated[
    Path | None,
    typer.Option(
        "--assessors",
        help="Who may be asked: a table of assessor and, if any, kind (crowd, expert, llm) and price. Without it, "
        "requests name nobody.",
        show_default=False,
    ),
]
Prices = Annotated[
    str | None, typer.Option(help="What a label of a kind costs, as in crowd=0.05,expert=2,llm=0.001; 1 unless told.")
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        "-m",
        help=f"The model of what is known: {', '.join(METHODS)}. Policies that ask a model need gda, rasch, "
        "dawid-skene or one-coin.",
    ),
]
Settled = Annotated[float, typer.Option(help="A document whose grade is as probable as this is settled.")]
Good = Annotated[float | None, typer.Option(help="From which grade on a label is good; 2 unless told.")]
Seed = Annotated[int | None, typer.Option(help="Draw the order of equals; as they stand unless told.")]


def policy_of(name: str, *, settled: float | None = None, good: float | None = None, seed: int | None = None) -> Policy:
    """A policy with the options that it has."""
    from crowdrank.collection import get_policy

    policy = get_policy(name)
    told = {"settled": settled, "good": good, "random_state": seed}
    known = policy.get_params()
    return policy.set_params(**{one: value for one, value in told.items() if one in known and value is not None})


def pool_of(
    pairs: Path, assessors: Path | None, prices: dict[str, float], exclude: Path | None = None, **options: Any
) -> Pool:
    """The pool with those who may be asked."""
    from crowdrank.collection.pool import Pool, read_roster
    from crowdrank.judgments.read import excluded_ids

    pool = Pool.read(pairs, **options)
    if assessors is not None:
        pool = pool.with_roster(read_roster(assessors, prices))
    if exclude is not None and pool.roster is not None:
        pool = pool.with_roster(pool.roster.without(excluded_ids(exclude)))
    return pool


def fitted(method: str, judgments: Judgments, unjudgeable_as: str = "lowest") -> Any:
    """A model of the judgments; how far it is shows when it takes long."""
    from crowdrank.consensus import get_aggregator

    return get_aggregator(method, unjudgeable_as=unjudgeable_as).fit(judgments, progress=True)
