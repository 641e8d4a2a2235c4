"""The command `crowdrank judge prepare`: write requests to LLM judges as a batch file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from crowdrank._text import counted
from crowdrank.cli import judge_options as j
from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_line, print_note
from crowdrank.errors import Fix, Message


def judge_prepare(
    requests: j.RequestFile,
    texts: j.TextFiles,
    judges: j.JudgesFile,
    output: Annotated[Path, o.output_option("Batch file (.jsonl).")],
    *,
    task_options: j.Task,
    limits: o.SizeLimit,
    json: o.AsJson = False,
) -> None:
    """Write requests to LLM judges as a batch file in the format of OpenAI. Nothing is sent.

    Services with the Batch API of OpenAI read it, and vLLM does: `vllm run-batch -i batch.jsonl -o results.jsonl`.

    Examples:
        crowdrank judge prepare requests.csv --texts docs.jsonl --judges judges.toml -o batch.jsonl
    """
    from crowdrank.judgments.write import check_distinct
    from crowdrank.llm_judges.batch import check_batch_output, write_batch

    check_batch_output(output)
    check_distinct({"output": output}, [requests, *texts, judges])
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
    from crowdrank.llm_judges.batch import MAX_BATCH_REQUESTS, SHORT_ID_LENGTH

    notes = []
    if len(models) > 1:
        fix = Fix("write a file per judge with {}", "only", "NAME")
        problem = f"the file has requests to {len(models)} models, and most services accept one model per file"
        notes.append(Message(problem, "several-models", "note", fixes=(fix,)))
    if n_requests > MAX_BATCH_REQUESTS:
        problem = f"OpenAI accepts up to {MAX_BATCH_REQUESTS:,} requests per file"
        notes.append(Message(problem, "many-requests", "note", fixes=(Fix("split the requests"),)))
    if longest_id > SHORT_ID_LENGTH:
        problem = f"a custom_id has {longest_id} characters, and some services accept up to {SHORT_ID_LENGTH}"
        notes.append(Message(problem, "long-custom-id", "note"))
    return notes
