"""`crowdrank collect add`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdrank.cli import collect_options as c
from crowdrank.cli import options as o
from crowdrank.cli.console import complain, say, say_json

if TYPE_CHECKING:
    from crowdrank.judgments.table import Judgments


@o.limits_size
def collect_add(
    judgments: c.JudgmentsFile,
    new: Annotated[
        list[Path],
        typer.Argument(
            help="Batches of new judgments, as platforms export them or in any format that is read.",
            metavar="NEW...",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Where to write; into JUDGMENTS itself unless told.", rich_help_panel=o.OUTPUT
        ),
    ] = None,
    pairs: c.MaybePairs = None,
    exclude: o.Exclude = None,
    new_format: Annotated[str | None, typer.Option(help="The format of the batches, where it is not seen.")] = None,
    new_columns: Annotated[str | None, typer.Option(help="Which column of the batches is what.")] = None,
    format: o.Format = None,
    columns: o.Columns = None,
    separator: o.Separator = None,
    grades: o.Grades = None,
    unjudgeable: o.Unjudgeable = None,
    on_bad_rows: o.OnBadRows = "error",
    json: o.AsJson = False,
) -> None:
    """Add batches of judgments: check, merge, say what changed. The same batch twice changes nothing.

    What stands in JUDGMENTS stays as it is; new judgments come after it, and one given anew takes the old one's line.
    """
    from crowdrank._files import locked
    from crowdrank._text import counted
    from crowdrank.collection.judgment_file import JudgmentFile, batch_is_zoned, start
    from crowdrank.collection.merge_batch import add, read_round, scale_of
    from crowdrank.collection.pool import Pool
    from crowdrank.collection.request_ledger import OutstandingRequests, back_told, ledger_of
    from crowdrank.judgments.merge import combine
    from crowdrank.judgments.read import excluded_ids, read_judgments
    from crowdrank.judgments.write import check_outputs

    target = judgments if output is None else output
    check_outputs({"-o": target}, [*new, pairs, exclude, *([] if output is None else [judgments])])
    with locked(target):
        reading = {"format": format, "columns": columns, "separator": separator}
        before = so_far = read_round(judgments, **reading, grades=grades, unjudgeable=unjudgeable)
        home = JudgmentFile.of(judgments, **reading) if judgments.exists() and output is None else None
        pool = None if pairs is None else Pool.read(pairs)
        barred = excluded_ids(exclude)
        steps = []
        left_out: list[str] = []
        news: Judgments | None = None
        for batch in new:
            scale = scale_of(so_far, grades)
            answers = unjudgeable if so_far is None or unjudgeable is not None else so_far.unjudgeable or None
            read = read_judgments(
                batch,
                format=new_format,  # type: ignore[arg-type]
                columns=new_columns,
                grades=None if scale is None else scale.names,
                unjudgeable=answers,
                on_bad_rows=on_bad_rows,  # type: ignore[arg-type]
            )
            left_out += [f"{batch}: {counted(n, 'row')} left out ({why})." for why, n in read.report.skipped.items()]
            step = add(
                so_far,
                read,
                source=str(batch),
                pool=pool,
                exclude=barred,
                on_bad_rows=on_bad_rows,
            )
            so_far = step.judgments
            if step.news is not None:
                news = step.news if news is None else combine(news, step.news)
            steps.append((str(batch), step))
        notes = left_out + [note for _, step in steps for note in step.notes]
        utc = any(batch_is_zoned(batch, format=new_format, columns=new_columns) for batch in new)
        if news is not None and home is not None:
            lost = home.lost(news)
            if lost:
                notes.append(
                    f"{judgments} has no column for {', '.join(lost)}, which the batches have and which is not kept; "
                    "add the column, or write all of it elsewhere with -o."
                )
            home.keep(news, changed=any(step.changed for _, step in steps), utc=utc)
        elif so_far is not None and (news is not None or output is not None):
            start(target, so_far, utc=utc)
    asked = OutstandingRequests.read(ledger_of(judgments))
    was_out, is_out = (int(asked.out(one).sum()) for one in (before, so_far))
    if json:
        counts = ("added", "changed", "known", "older", "unknown", "excluded")
        say_json(
            {
                "batches": [{"batch": name, **{one: getattr(step, one) for one in counts}} for name, step in steps],
                "judgments": 0 if so_far is None else len(so_far),
                "output": str(target) if news is not None else None,
                "came_back": was_out - is_out,
                "out": is_out,
                "notes": notes,
            }
        )
        return
    for note in notes:
        complain(f"Note: {note}")
    for name, step in steps:
        say(f"{name}: {step.told()}")
    if was_out:
        say(back_told(was_out, is_out))
    say(f"Written to {target}." if news is not None else f"{judgments} is as it was.")
