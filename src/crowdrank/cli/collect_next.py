"""`crowdrank collect next`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from crowdrank.cli import collect_options as c
from crowdrank.cli import options as o
from crowdrank.cli.console import complain, note_left_out, say, say_json, show_table
from crowdrank.errors import UsageError


@o.reads_judgments()
def collect_next(
    judgments: c.JudgmentsFile,
    pairs: c.Pairs,
    budget: Annotated[
        float, typer.Option(help="What may be spent; at a price of 1 a number of labels.", show_default=False)
    ],
    policy: c.PolicyName = "if-good-3",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The requests.", rich_help_panel=o.OUTPUT, show_default=False),
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            help="For a platform: label-studio (.json), toloka (.tsv), mturk (.csv), quepid (.csv); csv is our own "
            "table with assessor, price and reason.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = "csv",
    assessors: c.Assessors = None,
    prices: c.Prices = None,
    kind: Annotated[str, typer.Option(help="Who answers requests that name nobody: crowd, expert, llm.")] = "crowd",
    most: Annotated[int | None, typer.Option(help="How many labels one assessor may give in all.")] = None,
    honeypots: Annotated[float, typer.Option(help="Share of the money for planted pairs.")] = 0.0,
    method: c.Method = "gda",
    again: Annotated[
        bool, typer.Option("--again", help="Forget what was asked before and has not come back: it may be asked again.")
    ] = False,
    settled: c.Settled = 0.95,
    good: c.Good = None,
    seed: c.Seed = None,
    reading: o.Reading = o.TOLD,
    unjudgeable_as: o.UnjudgeableAs = "lowest",
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Say which pairs to have judged next, by whom, at what price, and why.

    Requests that were written (-o) and have not come back are not asked again; they are listed beside JUDGMENTS, in
    NAME.requests.csv.
    """
    from crowdrank._files import check_output_file, locked, one_step, recover
    from crowdrank._text import counted
    from crowdrank.collection.merge_batch import costs_told, read_round
    from crowdrank.collection.platforms import check_requests, write_requests
    from crowdrank.collection.pool import parse_prices
    from crowdrank.collection.request_ledger import OutstandingRequests, ledger_of
    from crowdrank.collection.requests import Budget
    from crowdrank.judgments.write import check_distinct

    wanted = c.policy_of(policy, settled=settled, good=good, seed=seed)
    wanted._check_parameters()
    terms = Budget(budget, parse_prices(prices), kind, most, honeypots)
    ledger = ledger_of(judgments)
    if csv_safe and to != "csv":
        raise UsageError(f"--csv-safe changes ids, and {to} returns them with the answers; leave it out.")
    if output is not None:
        check_requests(output, to)
        check_output_file(ledger)
        inputs = [judgments, ledger, pairs, assessors, reading["exclude"], reading["scales"]]
        check_distinct({"-o": output}, inputs)
        if output.resolve() in recover(ledger):
            _show_completed(output, json=json)
            return
    pool = c.pool_of(pairs, assessors, dict(terms.prices), reading["exclude"])
    so_far = read_round(judgments, **reading)
    note_left_out(so_far)
    model = c.fitted(method, so_far, unjudgeable_as) if so_far is not None and wanted.takes_model else None
    with nullcontext() if output is None else locked(ledger):
        listed = OutstandingRequests.read(ledger)
        out = listed.out(so_far)
        if again:
            listed, out = listed.where(~out), out[~out]
        waiting = listed.where(out)
        asked = wanted.next(pool, so_far, model, terms, waiting)
        if output is not None:
            with one_step(ledger):
                write_requests(asked, output, to, csv_safe=csv_safe)
                if len(asked) or again:
                    listed.and_then(OutstandingRequests.of(asked, so_far)).write(ledger)
    summary = {
        "policy": policy,
        "requests": len(asked),
        "cost": asked.cost,
        "kinds": {one: {"labels": n, "cost": money} for one, (n, money) in asked.by_kind().items()},
        "reasons": asked.reasons(),
        "unmet": asked.unmet,
        "out": len(waiting),
        "notes": list(asked.notes),
        "output": None if output is None else str(output),
    }
    if json:
        say_json(summary)
        return
    for note in asked.notes:
        complain(f"Note: {note}")
    if not len(asked):
        said = "the policy has what it asks for" if not len(waiting) else waiting.told()
        say(f"Nothing more is wanted: {said}.")
        return
    show_table(asked.to_arrow())
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in asked.reasons().items())
    written = "" if output is None else f"; written to {output}"
    unmet = f"; for {counted(asked.unmet, 'label')} more nobody is left" if asked.unmet else ""
    say(f"{counted(len(asked), 'label')} wanted: {costs_told(asked.by_kind())} ({reasons}){unmet}{written}.")
    if len(waiting):
        say(f"Besides, {waiting.told()}: --again asks for them again.")


def _show_completed(output: Path, *, json: bool) -> None:
    """Say that an interrupted command was completed; to ask for more at once would replace requests not yet seen."""
    if json:
        say_json({"completed": True, "output": str(output)})
    else:
        say(f"Completed the interrupted command: its requests are in {output}. Give the command again to ask for more.")
