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
from crowdrank.errors import Fix, Message
from crowdrank.judgments.read_options import ReadOptions

if TYPE_CHECKING:
    from crowdrank.collection.judgment_file import JudgmentFile
    from crowdrank.collection.merge_batch import Added
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
    from crowdrank.collection.judgment_file import JudgmentFile, batch_is_zoned, start
    from crowdrank.collection.merge_batch import read_round
    from crowdrank.collection.pool import Pool
    from crowdrank.judgments.write import check_outputs

    target = judgments if output is None else output
    check_outputs({"output": target}, [*new, pairs, reading.exclude, *([] if output is None else [judgments])])
    file_options = {"format": reading.format, "columns": reading.columns, "separator": reading.separator}
    batch_options = {"format": batch_reading.format, "columns": batch_reading.columns}
    with locked(target):
        before = read_round(judgments, **file_options, grades=reading.grades, unjudgeable=reading.unjudgeable)
        file = JudgmentFile.of(judgments, **file_options) if judgments.exists() and output is None else None
        merged = _Merge(before, reading, None if pairs is None else Pool.read(pairs))
        for batch in new:
            merged.add(batch, batch_options)
        utc = any(batch_is_zoned(batch, **batch_options) for batch in new)
        if file is not None and merged.new is not None:
            merged.notes += _note_lost_columns(file, merged.new, judgments)
            file.keep(merged.new, changed=any(step.changed for _, step in merged.steps), utc=utc)
        elif merged.judgments is not None and (merged.new is not None or output is not None):
            start(target, merged.judgments, utc=utc)
    _print_result(merged, judgments, target, before, as_json=json)


@dataclass
class _Merge:
    """Judgments after the batches merged so far, and what each batch changed."""

    judgments: Judgments | None
    reading: ReadOptions
    pool: Pool | None
    new: Judgments | None = None
    steps: list[tuple[str, Added]] = field(default_factory=list)  # by batch
    columns: list[dict[str, str]] = field(default_factory=list)  # of each batch
    notes: list[Message | str] = field(default_factory=list)

    def add(self, batch: Path, read_options: dict[str, Any]) -> None:
        """Read a batch of new judgments and merge it into the existing ones."""
        from crowdrank.collection.merge_batch import add, scale_of
        from crowdrank.judgments.merge import combine
        from crowdrank.judgments.read import excluded_ids, read_judgments

        so_far, unjudgeable = self.judgments, self.reading.unjudgeable
        scale = scale_of(so_far, self.reading.grades)
        table = read_judgments(
            batch,
            **read_options,
            grades=None if scale is None else scale.names,
            unjudgeable=unjudgeable if so_far is None or unjudgeable is not None else so_far.unjudgeable or None,
            on_bad_rows=self.reading.on_bad_rows,
        )
        step = add(
            so_far,
            table,
            source=str(batch),
            pool=self.pool,
            exclude=excluded_ids(self.reading.exclude),
            on_bad_rows=self.reading.on_bad_rows,
        )
        self.judgments = step.judgments
        if step.news is not None:
            self.new = step.news if self.new is None else combine(self.new, step.news)
        self.steps.append((str(batch), step))
        self.columns.append(dict(table.report.columns))
        skipped = table.report.skipped.items()
        self.notes += [f"{batch}: {counted(n, 'row')} left out ({reason})." for reason, n in skipped]
        self.notes += [*table.report.notes, *step.notes]


def _note_lost_columns(judgment_file: JudgmentFile, new_judgments: Judgments, path: Path) -> Sequence[Message]:
    """Return a note if the batches have columns that the file of judgments lacks, so that these are lost."""
    if not (lost := judgment_file.lost(new_judgments)):
        return []
    fixes = (Fix("add the column"), Fix("write all judgments to another file with {}", "output"))
    problem = f"{path} has no column for {', '.join(lost)}, which the batches have and which is not kept"
    return [Message(problem, "lost-columns", "note", fixes=fixes)]


def _print_result(
    merged: _Merge, judgment_path: Path, output_path: Path, old_judgments: Judgments | None, *, as_json: bool
) -> None:
    from crowdrank.collection.request_ledger import OutstandingRequests, back_told, ledger_of

    requests = OutstandingRequests.read(ledger_of(judgment_path))
    was_out, is_out = (int(requests.out(table).sum()) for table in (old_judgments, merged.judgments))
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
        print_line(f"{name}: {step.told()}")
    if was_out:
        print_line(back_told(was_out, is_out))
    print_line(f"Written to {written}." if written is not None else f"{judgment_path} is unchanged.")
