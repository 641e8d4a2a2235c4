"""`crowdrank collect`: choose what to label next with files; here are all commands but next, simulate and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank._text import counted
from crowdrank.cli import collect_next_command, collect_simulate_command
from crowdrank.cli import collect_options as c
from crowdrank.cli import options as o
from crowdrank.cli.console import (
    note_text,
    print_columns,
    print_json,
    print_line,
    print_note,
    print_read_report,
    print_table,
)
from crowdrank.cli.from_settings import FieldsOf, add_command, command_group
from crowdrank.errors import Fix, Message, UsageError
from crowdrank.readers.read_options import ReadOptions

if TYPE_CHECKING:
    from crowdrank.collection.add_batch import JudgmentFile, MergeResult
    from crowdrank.collection.pool import Pool
    from crowdrank.collection.requests import OutstandingRequests
    from crowdrank.collection.status import FinalGrades, Status
    from crowdrank.judgments.table import Judgments

COUNT_NAMES = ("added", "changed", "known", "older", "unknown", "excluded")
READ_OPTION_NAMES = (
    *("format", "columns", "separator", "grades", "unjudgeable", "exclude", "on_bad_rows", "max_bytes"),
    "assessor_name",
)


def collect_add(
    judgments: c.JudgmentFile,
    new: Annotated[
        list[Path],
        typer.Argument(help="Batches of new judgments, in any format.", metavar="NEW...", show_default=False),
    ],
    output: Annotated[Path | None, o.output_option("File for all judgments.", show_default="JUDGMENTS")] = None,
    pairs: Annotated[Path | None, o.path_option("Pool; judgments of other documents are errors.")] = None,
    *,
    reading: Annotated[ReadOptions, FieldsOf(ReadOptions, o.READING, only=READ_OPTION_NAMES)],
    batch_reading: Annotated[
        ReadOptions, FieldsOf(ReadOptions, "Reading batches", prefix="new_", only=("format", "columns"))
    ],
    json: o.AsJson = False,
) -> None:
    """Add batches of judgments to a file. Adding the same batch twice changes nothing.

    Existing lines stay as they are. New judgments follow them; a changed judgment replaces its line. Batches of
    preferences are added to a file of preferences; a changed answer follows the old one, and the last one counts.

    Examples:
        crowdrank collect add labels.csv export.json
        crowdrank collect add labels.csv monday.csv tuesday.csv --pairs pool.csv
        crowdrank collect add preferences.csv answers.csv --pairs pool.csv
    """
    from crowdrank._files import locked
    from crowdrank.cli.collect_preferences import add_preferences, are_preferences
    from crowdrank.collection.add_batch import JudgmentFile, batch_has_time_zone, read_existing, write_new_file
    from crowdrank.collection.pool import Pool
    from crowdrank.readers.judging_database import find_database
    from crowdrank.readers.write import check_outputs

    if find_database(judgments) is not None and output is None:
        fix = [Fix("write a file with {}", "output", "labels.csv"), Fix("send the judgments to the judging service")]
        raise UsageError(f"{judgments} is a database, which only the judging service writes", fix=fix)
    target = judgments if output is None else output
    check_outputs({"output": target}, [*new, pairs, reading.exclude, *([] if output is None else [judgments])])
    file_options = {"format": reading.format, "columns": reading.columns, "separator": reading.separator}
    batch_options = {"format": batch_reading.format, "columns": batch_reading.columns}
    if are_preferences(new, batch_options):
        pool = None if pairs is None else Pool.read(pairs)
        add_preferences(judgments, new, output, pool, file_options, batch_options, as_json=json)
        return
    with locked(target):
        before = read_existing(judgments, **file_options, grades=reading.grades, unjudgeable=reading.unjudgeable)
        file = JudgmentFile.open(judgments, **file_options) if judgments.exists() and output is None else None
        merged = _Merge(before, reading, None if pairs is None else Pool.read(pairs))
        for batch in new:
            merged.add(batch, batch_options)
        utc = any(batch_has_time_zone(batch, **batch_options) for batch in new)
        if file is not None and merged.new is not None:
            merged.notes += _note_lost_columns(file, merged.new, judgments)
            file.add(merged.new, changed=any(step.changed for _, step in merged.steps), utc=utc)
        elif merged.judgments is not None and (merged.new is not None or output is not None):
            write_new_file(target, merged.judgments, utc=utc)
            merged.notes += _note_unjudgeable(merged.judgments, reading)
    _print_result(merged, judgments, target, before, as_json=json)


@dataclass
class _Merge:
    """Judgments after the batches merged so far, and what each batch changed."""

    judgments: Judgments | None
    reading: ReadOptions
    pool: Pool | None
    new: Judgments | None = None
    steps: list[tuple[str, MergeResult]] = field(default_factory=list)  # by batch
    columns: list[dict[str, str]] = field(default_factory=list)  # of each batch
    notes: list[Message | str] = field(default_factory=list)

    def add(self, batch: Path, read_options: dict[str, Any]) -> None:
        """Read a batch of new judgments and merge it into the existing ones."""
        from crowdrank.collection.add_batch import batch_scale, merge_batch, read_batch
        from crowdrank.readers.combine import combine
        from crowdrank.readers.read_options import excluded_ids

        so_far, unjudgeable = self.judgments, self.reading.unjudgeable
        scale = batch_scale(so_far, self.reading.grades)
        table = read_batch(
            batch,
            **read_options,
            assessor_name=self.reading.assessor_name,
            grades=None if scale is None else scale.names,
            unjudgeable=unjudgeable if so_far is None or unjudgeable is not None else so_far.unjudgeable or None,
            on_bad_rows=self.reading.on_bad_rows,
        )
        step = merge_batch(
            so_far,
            table,
            source=str(batch),
            pool=self.pool,
            exclude=excluded_ids(self.reading.exclude),
            on_bad_rows=self.reading.on_bad_rows,
        )
        self.judgments = step.judgments
        if step.new is not None:
            self.new = step.new if self.new is None else combine(self.new, step.new)
        self.steps.append((str(batch), step))
        self.columns.append(dict(table.report.columns))
        skipped = table.report.skipped.items()
        self.notes += [f"{batch}: {counted(n, 'row')} left out ({reason})." for reason, n in skipped]
        self.notes += [*table.report.notes, *step.notes]


def _note_lost_columns(judgment_file: JudgmentFile, new_judgments: Judgments, path: Path) -> Sequence[Message]:
    """Return a note if the batches have columns that the file of judgments lacks, so that these are lost."""
    if not (lost := judgment_file.missing_columns(new_judgments)):
        return []
    fixes = (Fix("add the column"), Fix("write all judgments to another file with {}", "output"))
    problem = f"{path} has no column for {', '.join(lost)}, which the batches have and which is not kept"
    return [Message(problem, "lost-columns", "note", fixes=fixes)]


def _note_unjudgeable(judgments: Judgments, reading: ReadOptions) -> Sequence[Message]:
    """Return a note if a new file has 'cannot judge' answers that only an option tells from grades."""
    if not judgments.n_unjudgeable or not judgments.unjudgeable or reading.unjudgeable is not None:
        return []
    answer = judgments.unjudgeable[0]
    fix = Fix("read the file with {}", "unjudgeable", answer)
    return [Message(f"'cannot judge' answers are written as {answer}", "unjudgeable-answers", "note", fixes=(fix,))]


def _print_result(
    merged: _Merge, judgment_path: Path, output_path: Path, old_judgments: Judgments | None, *, as_json: bool
) -> None:
    from crowdrank.collection.requests import OutstandingRequests, ledger_path

    requests = OutstandingRequests.read(ledger_path(judgment_path))
    was_out, is_out = (int(requests.is_outstanding(table).sum()) for table in (old_judgments, merged.judgments))
    written = str(output_path) if merged.new is not None else None
    if as_json:
        batches = [
            {"batch": name, **{one: getattr(step, one) for one in COUNT_NAMES}, "columns": columns}
            for (name, step), columns in zip(merged.steps, merged.columns, strict=True)
        ]
        total = 0 if merged.judgments is None else len(merged.judgments)
        counts = {"judgments": total, "output": written, "came_back": was_out - is_out, "out": is_out}
        print_json({"batches": batches, **counts, "notes": [note_text(note) for note in merged.notes]})
        return
    for note in merged.notes:
        print_note(note)
    for (name, step), columns in zip(merged.steps, merged.columns, strict=True):
        print_columns(columns, [Path(name)])
        print_line(f"{name}: {_counts_text(step)}")
    if was_out:
        print_line(f"{counted(was_out - is_out, 'request')} answered, {is_out:,} outstanding.")
    print_line(f"Written to {written}." if written is not None else f"{judgment_path} is unchanged.")


def _counts_text(step: MergeResult) -> str:
    """Return what was done with the judgments of a batch as a sentence."""
    left_out = {"older than existing ones": step.older, "documents not in the pool": step.unknown}
    left_out["excluded assessors"] = step.excluded
    parts = [f"{counted(step.added, 'judgment')} added", f"{step.changed:,} changed", f"{step.known:,} unchanged"]
    parts += [f"{number:,} left out ({reason})" for reason, number in left_out.items() if number]
    return f"{', '.join(parts)}; {counted(len(step.judgments), 'judgment')} in total."


def collect_status(
    judgments: c.JudgmentFile,
    pairs: Annotated[
        Path | None, o.path_option("Pool of query-document pairs.", show_default="the judged documents")
    ] = None,
    labels: Annotated[
        Path | None,
        o.path_option(
            "File for the estimated grades: .qrels, .json (judgment list for OpenSearch), or a table. If no document "
            "was judged twice, they are the answers themselves.",
            help_panel=o.OUTPUT,
        ),
    ] = None,
    price: Annotated[float, typer.Option(help="Price of a label, if the judgments have no costs.")] = 1.0,
    *,
    model: c.Model,
    parameters: Annotated[c.PolicyOptions, FieldsOf(c.PolicyOptions, only=("settled",))],
    reading: o.Reading,
    json: o.AsJson = False,
) -> None:
    """Show how many documents are settled, what was spent, and what the rest may cost.

    Examples:
        crowdrank collect status labels.csv --pairs pool.csv
        crowdrank collect status labels.csv --labels grades.qrels
    """
    from crowdrank.collection.add_batch import read_existing
    from crowdrank.collection.pool import Pool
    from crowdrank.collection.requests import OutstandingRequests, ledger_path
    from crowdrank.collection.status import check_grades_output, collection_status, final_grades, write_grades
    from crowdrank.readers.write import check_distinct_paths

    estimator = model.build()
    if labels is not None:
        check_grades_output(labels)
        check_distinct_paths({"labels": labels}, o.input_files([judgments], reading, ledger_path(judgments), pairs))
    pool = None if pairs is None else Pool.read(pairs)
    so_far = read_existing(judgments, **asdict(reading))
    listed = OutstandingRequests.read(ledger_path(judgments))
    outstanding = listed.where(listed.is_outstanding(so_far))
    if so_far is None:
        _print_without_judgments(judgments, pool, outstanding, as_json=json)
        return
    print_read_report(so_far.report, [judgments])
    estimator.fit(so_far, progress=True)
    o.print_copies(estimator.judgments_)
    result = collection_status(pool or Pool.of(so_far), so_far, estimator, settled=parameters.settled, price=price)
    grades = None if labels is None else final_grades(so_far, estimator)
    if grades is not None and labels is not None:
        write_grades(grades.consensus, labels)
    if json:
        out = {
            "out": len(outstanding),
            "out_cost": outstanding.cost,
            "out_by_kind": dict(outstanding.by_kind()),
        }
        written = {} if grades is None else {"from_one_answer": grades.n_single, "other_than_it": grades.n_overruled}
        files = {"labels_output": labels, "columns": dict(so_far.report.columns)}
        print_json({**asdict(result), **out, **written, **files})
        return
    for sentence in _status_sentences(result):
        print_line(sentence)
    _print_outstanding(outstanding)
    if grades is not None and labels is not None:
        print_line(_grades_sentence(grades, labels))


def _print_without_judgments(
    judgment_path: Path, pool: Pool | None, outstanding: OutstandingRequests, *, as_json: bool
) -> None:
    n_documents = 0 if pool is None else len(pool)
    if as_json:
        print_json({"documents": n_documents, "judged": 0, "labels": 0, "out": len(outstanding)})
        return
    unjudged = f" {counted(n_documents, 'document')} of the pool without a judgment." if pool is not None else ""
    print_line(f"There are no judgments in {judgment_path} yet.{unjudged}")
    _print_outstanding(outstanding)


def _print_outstanding(outstanding: OutstandingRequests) -> None:
    if len(outstanding):
        kinds = ", ".join(f"{number:,} by {kind}" for kind, number in outstanding.by_kind().items())
        print_line(f"{c.outstanding_text(outstanding)}: {kinds}.")


def _status_sentences(status: Status) -> list[str]:
    from crowdrank.collection.belief import MODELS

    judged = f"{counted(status.documents, 'document')} in the pool: {status.judged:,} judged"
    if status.settled is not None:
        share = status.settled / max(status.documents, 1)
        judged += f", {status.settled:,} settled at {status.level:.0%} ({share:.0%})"
    labels = f"{counted(status.labels, 'label')} by {counted(status.assessors, 'assessor')}"
    price = f"{status.spent:,.10g} spent ({status.spent / max(status.labels, 1):.3g} per label)"
    if status.forecast_labels is None:
        forecast = f"Settled documents and a forecast need a model of assessors: -m {', '.join(MODELS)}."
    elif not status.forecast_labels:
        forecast = "All documents are settled."
    else:
        number = counted(status.forecast_labels, "more label")
        forecast = f"About {number} (about {status.forecast:,.0f}) would settle the others; this is a rough estimate."
    return [f"{judged}.", f"{labels}, {price}.", forecast]


def _grades_sentence(grades: FinalGrades, path: Path) -> str:
    written = f"Grades of {counted(grades.consensus.n_documents, 'document')} written to {path}"
    if grades.are_answers:
        return f"{written}: the only answer of each, because no document was judged twice."
    overruled = ""
    if grades.n_overruled:
        overruled = f" ({grades.n_overruled:,} of these with another grade; -m majority writes the answers)"
    return f"{written}; {grades.n_single:,} rest on a single answer{overruled}."


def collect_disagreements(
    judgments: o.JudgmentFiles,
    top: Annotated[int, typer.Option(help="Number of documents to show.")] = 10,
    output: Annotated[Path | None, o.output_option("File for all such documents.")] = None,
    *,
    model: c.Model,
    reading: o.Reading,
    csv_safe: o.CsvSafe = False,
    json: o.AsJson = False,
) -> None:
    """List the documents whose assessors disagree most, and the grades that they confuse.

    Examples:
        crowdrank collect disagreements labels.csv --top 20 -o disagreements.csv
    """
    from crowdrank.collection.status import confusions, disagreements
    from crowdrank.readers.write import check_outputs

    estimator = model.build()
    check_outputs({"output": output}, o.input_files(judgments, reading))
    table = o.read_judgment_files(judgments, reading)
    documents, confused = disagreements(table, estimator.fit(table, progress=True)), confusions(table)
    o.write_tables([(output, documents)], csv_safe=csv_safe)
    if json:
        listed = {"documents": documents.slice(0, top).to_pylist(), "disagreeing": len(documents)}
        print_json({**listed, "confusions": confused, "columns": dict(table.report.columns)})
        return
    if not len(documents):
        print_line("No two assessors of a document disagree.")
        return
    print_table(documents, max_rows=top)
    pairs = ", ".join(f"{row['grades']} ({row['share']:.0%})" for row in confused[:5])
    print_line(f"{counted(len(documents), 'document')} with different grades. Most often confused: {pairs}.")
    if output is not None:
        print_line(f"Written to {output}.")


def collect_page(
    requests: Annotated[
        Path, typer.Argument(help="Pairs to judge, such as the requests of `collect next`.", show_default=False)
    ],
    texts: Annotated[
        list[Path],
        typer.Option(help="Texts of queries and documents (JSON Lines, CSV, ...). Repeatable.", show_default=False),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file.", rich_help_panel=o.OUTPUT)] = Path(
        "judge.html"
    ),
    grades: Annotated[str, typer.Option(help="Grades from least to most relevant, such as 0-3 or Bad,Good.")] = "0-3",
    assessor: Annotated[
        str | None, typer.Option(help="Only the requests for this assessor.", show_default="all requests")
    ] = None,
    guidelines: Annotated[Path | None, o.path_option("Guidelines in Markdown.")] = None,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Judging",
    seed: Annotated[int, typer.Option(help="Random seed of the order.")] = 0,
    json: o.AsJson = False,
) -> None:
    """Write one HTML file with which a person judges in a browser, without a server.

    The answers stay in the browser until they are saved as a file, which `collect add` reads with
    `--unjudgeable cannot-judge`.

    Examples:
        crowdrank collect page requests.csv --texts docs.jsonl --grades Bad,Fair,Good -o judge.html
    """
    from crowdrank._files import check_output_file
    from crowdrank.judgments.scale import Scale
    from crowdrank.readers.write import check_distinct_paths
    from crowdrank.service.web.judging_page import make_offline_page

    check_output_file(output)
    check_distinct_paths({"output": output}, [requests, *texts, *([] if guidelines is None else [guidelines])])
    page = make_offline_page(
        requests,
        texts,
        Scale.parse(grades).names,
        assessor=assessor,
        guidelines="" if guidelines is None else read_guidelines(guidelines),
        title=title,
        random_state=seed,
    )
    page.write(output)
    if json:
        print_json({"output": output, "pairs": page.n_pairs, "without_text": page.n_without_text})
        return
    without = f" {counted(page.n_without_text, 'pair')} without a text." if page.n_without_text else ""
    print_line(f"A page with {counted(page.n_pairs, 'pair')} to judge is in {output}.{without}")


def read_guidelines(path: Path) -> str:
    """Return the text of a file of guidelines; raise InputError if it is not UTF-8."""
    from crowdrank.readers.files import check_size, encoding_error, first_undecodable_line, open_decompressed

    check_size(path)
    with open_decompressed(path) as stream:
        content = stream.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise encoding_error(path, first_undecodable_line(path)) from problem


collect = command_group("collect", "Choose what to label next, add the answers, and follow the progress.")
add_command(collect, collect_next_command.collect_next, command_name="next")
add_command(collect, collect_page, command_name="page")
add_command(collect, collect_add, command_name="add")
add_command(collect, collect_status, command_name="status")
add_command(collect, collect_disagreements, command_name="disagreements")
add_command(collect, collect_simulate_command.collect_cost, command_name="cost")
add_command(collect, collect_simulate_command.collect_simulate, command_name="simulate")
