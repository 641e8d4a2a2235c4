"""`crowdrank judge`: let LLM judges answer, through batch files or by calling an endpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank._estimator import require_one_of
from crowdrank._options import option
from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_line, print_message, print_note, print_status, print_table
from crowdrank.cli.from_settings import FieldsOf, add_command, command_group
from crowdrank.constraints import Number, check_parameter
from crowdrank.errors import Fix, JudgeError, Message, UsageError

if TYPE_CHECKING:
    from crowdrank.llm_judges.judge_labels import JudgedCall, JudgeLabels
    from crowdrank.llm_judges.judges import Judge
    from crowdrank.llm_judges.judging_plan import JudgeEstimate, JudgingPlan, JudgingResult
    from crowdrank.llm_judges.judging_task import JudgingTask
    from crowdrank.llm_judges.ledger import Ledger
    from crowdrank.llm_judges.service_judging import ServiceJudging

DEFAULT_GRADES = "0-3"
"""Default scale of the answers."""
GRADES_HELP = "Scale of the answers: a range such as 0-4, or names from least to most relevant such as Bad,Fair,Good."
TEXTS_HELP = (
    "Texts of queries and documents (JSON Lines, CSV, ...) with the columns document, text, title, query, query_text, "
    "need. Repeatable."
)
RequestFile = Annotated[
    Path,
    typer.Argument(
        help="Pairs of query and document, such as `collect next` writes, or comparisons (query, left, right). A "
        "request whose assessor is a judge goes to it, one that names nobody goes to all judges.",
        metavar="REQUESTS",
        show_default=False,
    ),
]
TextFiles = Annotated[list[Path], o.path_option(TEXTS_HELP)]
JudgesFile = Annotated[Path, o.path_option("File that describes the judges (TOML).")]


@dataclass(frozen=True)
class TaskOptions:
    """Options for the calls of judges."""

    only: str | None = option(None, "Names of the judges to ask, separated by commas.", show_default="all")
    grades: str = option(DEFAULT_GRADES, GRADES_HELP)
    ids_as_queries: bool = option(False, "Use the id of a query without a text as its text.", "--ids-as-queries")

    def read(self, requests: Path, texts: Sequence[Path], judges_path: Path) -> tuple[list[Judge], JudgingTask]:
        """Read judges, requests and texts, and print notes about them."""
        from crowdrank.judgments.scale import Scale
        from crowdrank.llm_judges.judges import read_judges
        from crowdrank.llm_judges.judging_task import different_scales_note, read_judging_task, truncation_note

        scale = Scale.parse(self.grades)
        judges = read_judges(judges_path, split_names(self.only))
        task = read_judging_task(requests, texts, judges, scale, ids_as_queries=self.ids_as_queries)
        for note in (*task.notes, different_scales_note(judges, scale), truncation_note(task)):
            if note is not None:
                print_note(note)
        return judges, task


@dataclass(frozen=True)
class SpendingOptions:
    """Options for the budget of calls, and which are repeated."""

    budget: float | None = option(None, "Maximum money for all calls of the ledger; needed if judges have prices.")
    retry: str = option(
        "",
        "Ask calls with these outcomes again: failed, unreadable, refused, separated by commas.",
        show_default="none",
    )

    def __post_init__(self) -> None:
        check_parameter("budget", self.budget, [Number(0, above=True), None])
        for status in self.retried:
            require_one_of("retry", status, ("failed", "unreadable", "refused"))

    @property
    def retried(self) -> list[str]:
        """Statuses in the ledger whose calls are made again."""
        return split_names(self.retry)


Task = Annotated[TaskOptions, FieldsOf(TaskOptions, "Requests")]


BUDGET_EXIT_CODE = 3
"""Exit code if the budget is spent before all calls were made; the labels of the others are written."""


def print_labels(labels: JudgeLabels, output: Path, failures: Path) -> None:
    """Print the number of calls by status and their cost, and where labels and failures were written."""
    if len(labels.counts):
        summary = labels.summary()
        costs = [f"{cost:.4g}" for cost in summary["cost"].to_pylist()]  # often far below 0.001
        print_table(summary.set_column(summary.num_columns - 1, "cost", [costs]), max_rows=50)
    what = "preferences" if "preference" in labels.labels.column_names else "labels"
    print_line(f"{len(labels.labels):,} {what} written to {output}; {len(labels.failures):,} failures to {failures}.")


def split_names(names: str | None) -> list[str]:
    """Return names that are separated by commas."""
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def raise_if_stopped(stopped: Mapping[str, str]) -> None:
    """Raise JudgeError if the service of a judge refused or failed its calls; exit with 3 if the budget is spent."""
    from crowdrank.llm_judges.caller import BUDGET_SPENT_REASON

    for name, reason in stopped.items():
        if reason == BUDGET_SPENT_REASON:
            fix = Fix("raise it with {}", "budget")
            print_note(Message(f"the judge {name} was stopped: {reason}", "budget-spent", "note", fixes=(fix,)))
    failed = {name: reason for name, reason in stopped.items() if reason != BUDGET_SPENT_REASON}
    if failed:
        name, reason = next(iter(failed.items()))
        advice = "its answers so far are stored; correct the cause and run the command again"
        raise JudgeError(f"The judge {name} was stopped: {reason}", kind="judge-stopped", fix=advice)
    if stopped:
        raise typer.Exit(BUDGET_EXIT_CODE)


def judge_prepare(
    requests: RequestFile,
    texts: TextFiles,
    judges: JudgesFile,
    output: Annotated[Path, o.output_option("Batch file (.jsonl).")],
    *,
    task_options: Task,
    limits: o.SizeLimit,
    json: o.AsJson = False,
) -> None:
    """Write requests to LLM judges as a batch file in the format of OpenAI. Nothing is sent.

    Services with the Batch API of OpenAI read it, and vLLM does: `vllm run-batch -i batch.jsonl -o results.jsonl`.

    Examples:
        crowdrank judge prepare requests.csv --texts docs.jsonl --judges judges.toml -o batch.jsonl
    """
    from crowdrank.llm_judges.batch import check_batch_path, write_batch
    from crowdrank.readers.write import check_distinct_paths

    check_batch_path(output)
    check_distinct_paths({"output": output}, [requests, *texts, judges])
    chosen, task = task_options.read(requests, texts, judges)
    n_requests, longest_id = write_batch(task, output)
    models = list(dict.fromkeys(judge.model for judge in chosen))
    notes = _batch_notes(n_requests, longest_id, models)
    if json:
        print_json({"requests": n_requests, "pairs": len(task), "models": models, "output": output})
        return
    for note in notes:
        print_note(note)
    print_line(f"{counted(n_requests, 'request')} to {counted(len(chosen), 'judge')} written to {output}.")


def _batch_notes(n_requests: int, longest_id: int, models: list[str]) -> list[Message]:
    """Return notes on limits of services that the batch file may exceed."""
    from crowdrank.llm_judges.batch import MAX_BATCH_REQUESTS, MAX_PORTABLE_ID_LENGTH

    notes = []
    if len(models) > 1:
        fix = Fix("write a file per judge with {}", "only", "NAME")
        problem = f"the file has requests to {len(models)} models, and most services accept one model per file"
        notes.append(Message(problem, "several-models", "note", fixes=(fix,)))
    if n_requests > MAX_BATCH_REQUESTS:
        problem = f"OpenAI accepts up to {MAX_BATCH_REQUESTS:,} requests per file"
        notes.append(Message(problem, "many-requests", "note", fixes=(Fix("split the requests"),)))
    if longest_id > MAX_PORTABLE_ID_LENGTH:
        problem = f"a custom_id has {longest_id} characters, and some services accept up to {MAX_PORTABLE_ID_LENGTH}"
        notes.append(Message(problem, "long-custom-id", "note"))
    return notes


def judge_read(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="Results and errors of a batch (OpenAI's format), or judgments of umbrela (JSON Lines).",
            metavar="RESULTS...",
            show_default=False,
        ),
    ],
    output: Annotated[Path, o.output_option("File for the labels; failures are written beside it.")],
    batch: Annotated[Path | None, o.path_option("The batch file; requests without a result are then listed.")] = None,
    judges: Annotated[Path | None, o.path_option("File that describes the judges, for the costs of calls.")] = None,
    requests: Annotated[Path | None, o.path_option("umbrela: the pairs that were judged.")] = None,
    texts: Annotated[
        list[Path] | None, o.path_option("umbrela: texts of the pairs, which give their ids. Repeatable.")
    ] = None,
    grades: Annotated[str, typer.Option(help="umbrela: scale of the judgments.")] = DEFAULT_GRADES,
    *,
    limits: o.SizeLimit,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Read the results of a batch of requests to LLM judges as labels, or as preferences.

    Lines can be repeated, in any order, and incomplete. A reply without a grade of the scale is listed as a failure and
    is never a label.

    Examples:
        crowdrank judge read results.jsonl -o labels.csv
        crowdrank judge read results.jsonl errors.jsonl --batch batch.jsonl --judges judges.toml -o labels.csv
        crowdrank judge read umbrela.jsonl --requests pairs.csv --texts docs.jsonl -o labels.csv
    """
    from crowdrank.llm_judges.batch import read_batch_results
    from crowdrank.llm_judges.judge_labels import JudgeLabels, failures_path
    from crowdrank.llm_judges.judges import read_judges
    from crowdrank.llm_judges.umbrela import is_umbrela_file
    from crowdrank.readers.write import check_outputs

    failures = failures_path(output)
    check_outputs({"output": output, "failures": failures}, [*results, batch, judges, requests, *(texts or [])])
    n_repeated = 0
    if is_umbrela_file(results[0]):
        judged = _read_umbrela(results, requests, texts or [], grades)
    else:
        by_name = {judge.name: judge for judge in read_judges(judges)} if judges is not None else {}
        read = read_batch_results(results, by_name, batch)
        judged, n_repeated = read.judged, read.n_repeated
    labels = JudgeLabels.from_calls(judged)
    labels.write(output, failures, csv_safe=csv_safe)
    if json:
        summary = {row.pop("assessor"): row for row in labels.summary().to_pylist()}
        counts = {"labels": len(labels.labels), "failures": len(labels.failures), "repeated": n_repeated}
        print_json({**counts, "judges": summary, "output": output, "failures_output": failures})
        return
    if n_repeated:
        print_status(f"Note: {counted(n_repeated, 'repeated line')} left out.")
    print_labels(labels, output, failures)


def _read_umbrela(
    paths: list[Path], requests_path: Path | None, text_paths: list[Path], grades: str
) -> list[JudgedCall]:
    """Read judgments of umbrela, with the ids of requests if these are given."""
    from crowdrank.judgments.scale import Scale
    from crowdrank.llm_judges.judging_task import read_pair_texts, read_requests
    from crowdrank.llm_judges.umbrela import ids_by_text, read_umbrela

    scale = Scale.parse(grades)
    if (requests_path is None) != (not text_paths):
        fixes = (Fix("give the pairs with {}", "requests"), Fix("give the texts with {}", "texts"))
        raise UsageError("Ids of umbrela's judgments need both pairs and texts", kind="no-ids", fix=fixes)
    ids = None
    if requests_path is not None:
        pairs = [(query, one) for (query, *documents), _ in read_requests(requests_path) for one in documents]
        ids = ids_by_text(pairs, read_pair_texts(pairs, text_paths, ids_as_queries=True))
    return [call for path in paths for call in read_umbrela(path, ids, scale)]


@dataclass(frozen=True)
class CallOptions(SpendingOptions):
    """Options for the budget and the ledger of calls."""

    ledger: Path | None = option(
        None, "File with all replies and costs (SQLite).", show_default="beside the output: NAME.ledger.sqlite"
    )
    dry_run: bool = option(False, "Print calls, tokens and costs, and send nothing.", "--dry-run")


def judge_run(
    requests: RequestFile,
    texts: TextFiles,
    judges: JudgesFile,
    output: Annotated[Path, o.output_option("File for the labels; failures and ledger are written beside it.")],
    *,
    task_options: Task,
    calls: Annotated[CallOptions, FieldsOf(CallOptions, "Calls")],
    limits: o.SizeLimit,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Ask LLM judges at OpenAI-compatible endpoints (vLLM, llama.cpp, Ollama, gateways).

    Sends the texts of the requested documents to the endpoints in the file of judges, and to nobody else. Running the
    command again goes on where it stopped: calls that have a reply are not repeated. Comparisons are asked
    in both orders. The exit code is 2 if a judge was stopped by its service, and 3 if the budget is spent before all
    calls were asked. Needs the extra `llm`.

    Examples:
        crowdrank judge run requests.csv --texts docs.jsonl --judges judges.toml -o labels.csv --dry-run
        crowdrank judge run requests.csv --texts docs.jsonl --judges judges.toml -o labels.csv --budget 5
        crowdrank judge run requests.csv --texts docs.jsonl --judges judges.toml -o labels.csv --retry failed
    """
    from crowdrank._progress import reporting
    from crowdrank.llm_judges.caller import PROGRESS_TITLE
    from crowdrank.llm_judges.judge_labels import failures_path
    from crowdrank.llm_judges.judging_plan import JudgingPlan, check_budget, default_ledger_path, run_judges
    from crowdrank.llm_judges.ledger import open_ledger
    from crowdrank.readers.write import check_distinct_paths, check_outputs

    ledger_path, failures = calls.ledger or default_ledger_path(output), failures_path(output)
    check_outputs({"output": output, "failures": failures}, [requests, *texts, judges])
    check_distinct_paths({"ledger": ledger_path, "output": output, "failures": failures}, [requests, *texts, judges])
    chosen, task = task_options.read(requests, texts, judges)
    if calls.dry_run:
        _print_estimates(JudgingPlan.for_task(task, _known_statuses(ledger_path), calls.retried), as_json=json)
        return
    check_budget(chosen, calls.budget)
    for judge in chosen:
        judge.api_key()
    with open_ledger(ledger_path) as ledger:
        plan = JudgingPlan.for_task(task, ledger.statuses(), calls.retried)
        try:
            with reporting(True, PROGRESS_TITLE) as report:
                result = run_judges(plan, ledger, calls.budget, report=report)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(f"All replies are in {ledger_path}; run the command again to go on.")
            raise
    result.labels.write(output, failures, csv_safe=csv_safe)
    if json:
        print_json({**_summary(result), "output": output, "failures_output": failures, "ledger": ledger_path})
    else:
        print_labels(result.labels, output, failures)
        _print_costs(result, calls.budget)
    raise_if_stopped(result.stopped)


def _known_statuses(ledger_path: Path) -> dict[str, str]:
    """Return the status of each call in a ledger by key; an empty dictionary if the file does not exist."""
    from crowdrank.llm_judges.ledger import open_ledger

    if not ledger_path.exists():
        return {}
    with open_ledger(ledger_path) as ledger:
        return ledger.statuses()


def _print_estimates(plan: JudgingPlan, *, as_json: bool) -> None:
    """Print the number of calls of a plan and their estimated cost, by judge."""
    import pyarrow as pa

    from crowdrank.llm_judges.judging_task import BYTES_PER_TOKEN

    rows = [asdict(estimate) for estimate in plan.estimates]
    if as_json:
        print_json({"dry_run": True, "judges": rows, **_totals(plan.estimates)})
        return
    print_table(pa.table({name: [row[name] for row in rows] for name in rows[0]}), max_rows=50)
    total = _totals(plan.estimates)
    print_line(
        f"{total['calls']:,} calls: about {total['input_tokens']:,} tokens of requests ({BYTES_PER_TOKEN} bytes per "
        f"token), at most {total['output_tokens']:,} tokens of replies. About {total['cost']:.4g}, at most "
        f"{total['max_cost']:.4g}. Nothing was sent."
    )


def _totals(estimates: Sequence[JudgeEstimate]) -> dict[str, Any]:
    names = ("calls", "input_tokens", "output_tokens", "cost", "max_cost")
    return {name: sum(getattr(estimate, name) for estimate in estimates) for name in names}


def _summary(result: JudgingResult) -> dict[str, Any]:
    return {
        "labels": len(result.labels.labels),
        "failures": len(result.labels.failures),
        "not_asked": result.not_asked,
        "charged": result.charged,
        "uncertain": result.uncertain,
        "judges": {row.pop("assessor"): row for row in result.labels.summary().to_pylist()},
        "stopped": dict(result.stopped),
    }


def _print_costs(result: JudgingResult, budget: float | None) -> None:
    """Print the cost of the calls, and the number of calls that were not made."""
    if budget is not None:
        unknown = f", of which {result.uncertain:.4g} for calls whose outcome is unknown" if result.uncertain else ""
        print_line(f"{result.charged:.4g} of {budget:g} charged{unknown}.")
    from crowdrank.llm_judges.caller import BUDGET_SPENT_REASON

    if result.not_asked:
        is_spent = BUDGET_SPENT_REASON in result.stopped.values()
        fix = Fix("raise the budget with {}", "budget") if is_spent else Fix("run the command again to ask them")
        note = Message(f"{result.not_asked:,} calls have no outcome", "not-asked", "note", fixes=(fix,))
        print_note(note)


NOT_ASKED = "kind-not-asked"
"""Status of judges in a project that wants no labels of LLM judges."""
Address = Annotated[
    str,
    typer.Argument(help="Address of the service, such as http://127.0.0.1:8000.", metavar="URL", show_default=False),
]


def judge_service(
    url: Address,
    project: Annotated[str, typer.Option(help="Name of the project.", show_default=False)],
    judges: JudgesFile,
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
    spending: Annotated[SpendingOptions, FieldsOf(SpendingOptions, "Calls")],
    json: o.AsJson = False,
) -> None:
    """Let LLM judges answer pairs of a judging service, which decides what each of them judges.

    Every judge is an LLM judge of the project; `token_variable` in the file of judges names the environment variable
    with its token. Texts are sent to the endpoints of the judges and to nobody else. A call without a grade puts the
    pair off. Two documents to compare are asked about in both orders. Running the command again goes on where it
    stopped. Needs the extra `llm`.

    Examples:
        crowdrank judge service http://127.0.0.1:8000 --project jam --judges judges.toml --ledger jam.sqlite
        crowdrank judge service http://127.0.0.1:8000 --project jam --judges judges.toml --ledger jam.sqlite --budget 5
    """
    from crowdrank.llm_judges.judges import read_judges
    from crowdrank.llm_judges.judging_plan import check_budget
    from crowdrank.llm_judges.ledger import open_ledger
    from crowdrank.readers.write import check_distinct_paths

    check_parameter("watch", watch, [Number(0, above=True), None])
    check_distinct_paths({"ledger": ledger}, [judges])
    chosen = read_judges(judges, split_names(only))
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
    raise_if_stopped(work.stopped)


def _judge_pairs(
    url: str,
    project: str,
    judges: Sequence[Judge],
    tokens: Mapping[str, str],
    ledger: Ledger,
    spending: SpendingOptions,
    watch: float | None,
) -> ServiceJudging:
    """Let judges answer until there is no pair left or, if `watch` is given, until the command is interrupted."""
    from crowdrank.llm_judges.service_judging import ServiceClient, ServiceJudging

    with ExitStack() as stack:
        clients = {name: stack.enter_context(ServiceClient(url, project, token)) for name, token in tokens.items()}
        scale, compares = clients[judges[0].name].fetch_task()
        work = ServiceJudging(judges, clients, scale, compares, ledger, spending.budget, spending.retried)
        try:
            while True:
                for n_sent in work.run():
                    print_status(f"{n_sent:,} grades sent.")
                if watch is None or len(work.stopped) == len(judges):
                    return work
                time.sleep(watch)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note("All replies are in the ledger; run the command again to go on.")
            raise


judge = command_group("judge", "Let LLM judges answer: write batch files and read their results, or call an endpoint.")
add_command(judge, judge_prepare, command_name="prepare")
add_command(judge, judge_read, command_name="read")
add_command(judge, judge_run, command_name="run")
add_command(judge, judge_service, command_name="service")
