"""The command `crowdrank judge service`: let LLM judges answer pairs of a judging service."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank.cli import judge_options as j
from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_line, print_message, print_status, print_table
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.constraints import Number, check_parameter
from crowdrank.errors import Fix, Message

if TYPE_CHECKING:
    from crowdrank.llm_judges.judges import Judge
    from crowdrank.llm_judges.ledger import Ledger
    from crowdrank.llm_judges.service_judging import ServiceJudging

NOT_ASKED = "kind-not-asked"
"""Status of judges in a project that wants no labels of LLM judges."""
Address = Annotated[
    str,
    typer.Argument(help="Address of the service, such as http://127.0.0.1:8000.", metavar="URL", show_default=False),
]


def judge_service(
    url: Address,
    project: Annotated[str, typer.Option(help="Name of the project.", show_default=False)],
    judges: j.JudgesFile,
    ledger: Annotated[Path, o.path_option("File with all replies and costs (SQLite).", "--ledger")],
    only: Annotated[
        str | None,
        typer.Option(help="Names of the judges to ask, separated by commas.", show_default="all"),
    ] = None,
    watch: Annotated[
        float | None,
        typer.Option(help="Look for new pairs after this number of seconds, until interrupted.", show_default="stop"),
    ] = None,
    *,
    spending: Annotated[j.SpendingOptions, FieldsOf(j.SpendingOptions, "Calls")],
    json: o.AsJson = False,
) -> None:
    """Let LLM judges answer pairs of a judging service, which decides what each of them judges.

    Every judge is an LLM judge of the project; `token_variable` in the file of judges names the environment variable
    with its token. Texts are sent to the endpoints of the judges and to nobody else. A call without a grade puts the
    pair off. Running the command again goes on where it stopped. Needs the extra `llm`.

    Examples:
        crowdrank judge service http://127.0.0.1:8000 --project jam --judges judges.toml --ledger jam.sqlite
        crowdrank judge service http://127.0.0.1:8000 --project jam --judges judges.toml --ledger jam.sqlite --budget 5
    """
    from crowdrank.judgments.write import check_distinct
    from crowdrank.llm_judges.judges import read_judges
    from crowdrank.llm_judges.ledger import open_ledger
    from crowdrank.llm_judges.run import check_budget

    check_parameter("watch", watch, [Number(0, above=True), None])
    check_distinct({"ledger": ledger}, [judges])
    chosen = read_judges(judges, j.split_names(only))
    check_budget(chosen, spending.budget)
    tokens = {judge.name: judge.service_token() for judge in chosen}
    for judge in chosen:
        judge.api_key()
    with open_ledger(ledger) as opened:
        work = _judge_pairs(url, project, chosen, tokens, opened, spending, watch)
        rows = [
            {"assessor": name, "answered": one.answered, "put_off": len(one.put_off), "status": one.status}
            for name, one in work.progress.items()
        ]
        charged = opened.charged
    if any(row["status"] == NOT_ASKED for row in rows):
        fix = Fix("set their labels per pair on the page Settings")
        print_message(Message(f"{project} wants no labels of LLM judges", NOT_ASKED, "warning", fixes=(fix,)))
    if json:
        print_json({"judges": rows, "charged": charged, "stopped": work.stopped, "ledger": ledger})
    else:
        import pyarrow as pa

        print_table(pa.Table.from_pylist(rows), max_rows=50)
        print_line(f"{sum(one.answered for one in work.progress.values()):,} grades sent; all replies are in {ledger}.")
    j.raise_if_stopped(work.stopped)


def _judge_pairs(
    url: str,
    project: str,
    judges: Sequence[Judge],
    tokens: Mapping[str, str],
    ledger: Ledger,
    spending: j.SpendingOptions,
    watch: float | None,
) -> ServiceJudging:
    """Let judges answer until there is no pair left or, if `watch` is given, until the command is interrupted."""
    from crowdrank.llm_judges.service_client import ServiceClient
    from crowdrank.llm_judges.service_judging import ServiceJudging

    with ExitStack() as stack:
        clients = {name: stack.enter_context(ServiceClient(url, project, token)) for name, token in tokens.items()}
        scale = clients[judges[0].name].grades()
        work = ServiceJudging(judges, clients, scale, ledger, spending.budget, spending.retried)
        try:
            while True:
                for n_sent in work.work():
                    print_status(f"{n_sent:,} grades sent.")
                if watch is None or len(work.stopped) == len(judges):
                    return work
                time.sleep(watch)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note("All replies are in the ledger; run the command again to go on.")
            raise
