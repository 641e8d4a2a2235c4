"""The command `crowdrank judge run`: ask LLM judges at OpenAI-compatible endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from crowdrank._options import option
from crowdrank.cli import judge_options as j
from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_line, print_note, print_table
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.errors import Fix, Message

if TYPE_CHECKING:
    from crowdrank.llm_judges.run import JudgeEstimate, JudgingPlan, JudgingResult


@dataclass(frozen=True)
class CallOptions(j.SpendingOptions):
    """Options for the budget and the ledger of calls."""

    ledger: Path | None = option(
        None, "File with all replies and costs (SQLite).", show_default="beside the output: NAME.ledger.sqlite"
    )
    dry_run: bool = option(False, "Print calls, tokens and costs, and send nothing.", "--dry-run")


def judge_run(
    requests: j.RequestFile,
    texts: j.TextFiles,
    judges: j.JudgesFile,
    output: Annotated[Path, o.output_option("File for the labels; failures and ledger are written beside it.")],
    *,
    task_options: j.Task,
    calls: Annotated[CallOptions, FieldsOf(CallOptions, "Calls")],
    limits: o.SizeLimit,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Ask LLM judges at OpenAI-compatible endpoints (vLLM, llama.cpp, Ollama, gateways).

    Sends the texts of the requested documents to the endpoints in the file of judges, and to nobody else. Running the
    command again goes on where it stopped: calls that have a reply are not repeated. Needs the extra `llm`.

    Examples:
        crowdrank judge run requests.csv --texts docs.jsonl --judges judges.toml -o labels.csv --dry-run
        crowdrank judge run requests.csv --texts docs.jsonl --judges judges.toml -o labels.csv --budget 5
        crowdrank judge run requests.csv --texts docs.jsonl --judges judges.toml -o labels.csv --retry failed
    """
    from crowdrank._progress import reporting
    from crowdrank.judgments.write import check_distinct, check_outputs
    from crowdrank.llm_judges.labels import failures_path
    from crowdrank.llm_judges.ledger import open_ledger
    from crowdrank.llm_judges.run import JudgingPlan, check_budget, default_ledger_path, run_judges

    ledger_path, failures = calls.ledger or default_ledger_path(output), failures_path(output)
    check_outputs({"output": output, "failures": failures}, [requests, *texts, judges])
    check_distinct({"ledger": ledger_path, "output": output, "failures": failures}, [requests, *texts, judges])
    chosen, task = task_options.read(requests, texts, judges)
    if calls.dry_run:
        _print_estimates(JudgingPlan.of(task, _known_statuses(ledger_path), calls.retried), as_json=json)
        return
    check_budget(chosen, calls.budget)
    for judge in chosen:
        judge.api_key()
    with open_ledger(ledger_path) as ledger:
        plan = JudgingPlan.of(task, ledger.statuses(), calls.retried)
        try:
            with reporting(True, "asking judges") as report:
                result = run_judges(plan, ledger, calls.budget, report=report)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(f"All replies are in {ledger_path}; run the command again to go on.")
            raise
    result.labels.write(output, failures, csv_safe=csv_safe)
    if json:
        print_json({**_summary(result), "output": output, "failures_output": failures, "ledger": ledger_path})
    else:
        j.print_labels(result.labels, output, failures)
        _print_costs(result, calls.budget)
    j.raise_if_stopped(result.stopped)


def _known_statuses(ledger_path: Path) -> dict[str, str]:
    """Return the statuses of an existing ledger, or none."""
    from crowdrank.llm_judges.ledger import open_ledger

    if not ledger_path.exists():
        return {}
    with open_ledger(ledger_path) as ledger:
        return ledger.statuses()


def _print_estimates(plan: JudgingPlan, *, as_json: bool) -> None:
    """Print what the wanted calls of a plan may cost, by judge."""
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
    """Print what was charged, and how many calls were not asked."""
    if budget is not None:
        unknown = f", of which {result.uncertain:.4g} for calls whose outcome is unknown" if result.uncertain else ""
        print_line(f"{result.charged:.4g} of {budget:g} charged{unknown}.")
    if result.not_asked:
        fix = Fix("run the command again to ask them")
        note = Message(f"{result.not_asked:,} calls have no outcome", "not-asked", "note", fixes=(fix,))
        print_note(note)
