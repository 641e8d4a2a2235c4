"""The command `crowdrank collect add`: add a batch of new judgments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdrank._text import counted
from crowdrank.cli import collect_options as c
from crowdrank.cli import options as o
from crowdrank.cli.console import note_text, print_columns, print_json, print_line, print_note
from crowdrank.cli.from_settings import FieldsOf
from crowdrank.errors import Fix, Message, UsageError
from crowdrank.judgments.read_options import ReadOptions

if TYPE_CHECKING:
    from crowdrank.collection.judgment_file import JudgmentFile
    from crowdrank.collection.merge_batch import MergeResult
    from crowdrank.collection.pool import Pool
    from crowdrank.judgments.table import Judgments

COUNT_NAMES = ("added", "changed", "known", "older", "unknown", "excluded")
READ_OPTION_NAMES = ("format", "columns", "separator", "grades", "unjudgeable", "exclude", "on_bad_rows", "max_bytes")


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

    Existing lines stay as they are. New judgments follow them; a changed judgment replaces its line.

    Examples:
        crowdrank collect add labels.csv export.json
        crowdrank collect add labels.csv monday.csv tuesday.csv --pairs pool.csv
    """
    from crowdrank._files import locked
    from crowdrank.collection.judgment_file import JudgmentFile, batch_has_time_zone, write_new_file
    from crowdrank.collection.merge_batch import read_existing
    from crowdrank.collection.pool import Pool
    from crowdrank.judgments.judging_database import find_database
    from crowdrank.judgments.write import check_outputs

    if find_database(judgments) is not None and output is None:
        fix = [Fix("write a file with {}", "output", "labels.csv"), Fix("send the judgments to the judging service")]
        raise UsageError(f"{judgments} is a database, which only the judging service writes", fix=fix)
    target = judgments if output is None else output
    check_outputs({"output": target}, [*new, pairs, reading.exclude, *([] if output is None else [judgments])])
    file_options = {"format": reading.format, "columns": reading.columns, "separator": reading.separator}
    batch_options = {"format": batch_reading.format, "columns": batch_reading.columns}
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
        from crowdrank.collection.merge_batch import batch_scale, merge_batch
        from crowdrank.judgments.combine import combine
        from crowdrank.judgments.encode_options import excluded_ids
        from crowdrank.judgments.read import read_judgments

        so_far, unjudgeable = self.judgments, self.reading.unjudgeable
        scale = batch_scale(so_far, self.reading.grades)
        table = read_judgments(
            batch,
            **read_options,
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
    from crowdrank.collection.request_ledger import OutstandingRequests, ledger_path

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
