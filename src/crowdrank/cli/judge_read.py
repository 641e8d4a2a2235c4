"""The command `crowdrank judge read`: read the results of a batch of requests to LLM judges."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank._text import counted
from crowdrank.cli import judge_options as j
from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_status
from crowdrank.errors import Fix, UsageError

if TYPE_CHECKING:
    from crowdrank.llm_judges.labels import JudgedCall


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
    grades: Annotated[str, typer.Option(help="umbrela: scale of the judgments.")] = j.DEFAULT_GRADES,
    *,
    limits: o.SizeLimit,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """Read the results of a batch of requests to LLM judges as labels.

    Lines can be repeated, in any order, and incomplete. A reply without a grade of the scale is listed as a failure and
    is never a label.

    Examples:
        crowdrank judge read results.jsonl -o labels.csv
        crowdrank judge read results.jsonl errors.jsonl --batch batch.jsonl --judges judges.toml -o labels.csv
        crowdrank judge read umbrela.jsonl --requests pairs.csv --texts docs.jsonl -o labels.csv
    """
    from crowdrank.judgments.write import check_outputs
    from crowdrank.llm_judges.batch import read_batch_results
    from crowdrank.llm_judges.judges import read_judges
    from crowdrank.llm_judges.labels import JudgeLabels, failures_path
    from crowdrank.llm_judges.umbrela import is_umbrela

    failures = failures_path(output)
    check_outputs({"output": output, "failures": failures}, [*results, batch, judges, requests, *(texts or [])])
    n_repeated = 0
    if is_umbrela(results[0]):
        judged = _read_umbrela(results, requests, texts or [], grades)
    else:
        by_name = {judge.name: judge for judge in read_judges(judges)} if judges is not None else {}
        read = read_batch_results(results, by_name, batch)
        judged, n_repeated = read.judged, read.n_repeated
    labels = JudgeLabels.of(judged)
    labels.write(output, failures, csv_safe=csv_safe)
    if json:
        summary = {row.pop("assessor"): row for row in labels.summary().to_pylist()}
        counts = {"labels": len(labels.labels), "failures": len(labels.failures), "repeated": n_repeated}
        print_json({**counts, "judges": summary, "output": output, "failures_output": failures})
        return
    if n_repeated:
        print_status(f"Note: {counted(n_repeated, 'repeated line')} left out.")
    j.print_labels(labels, output, failures)


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
        pairs = [(query, document) for query, document, _ in read_requests(requests_path)]
        ids = ids_by_text(pairs, read_pair_texts(pairs, text_paths, ids_as_queries=True))
    return [call for path in paths for call in read_umbrela(path, ids, scale)]
