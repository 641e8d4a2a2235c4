"""`crowdrank collect add`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank.cli import collect_options as c
from crowdrank.cli import options as o
from crowdrank.cli.screen import say, say_json


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
    """Add batches of judgments: check, merge, say what changed. The same batch twice changes nothing."""
    from crowdrank.collection.pool import Pool
    from crowdrank.collection.rounds import add, kept_columns, read_round, require_keepable, scale_of
    from crowdrank.judgments.read import excluded_ids, read_judgments
    from crowdrank.judgments.write import check_output, write_table

    target = judgments if output is None else output
    check_output(target)
    so_far = read_round(
        judgments, format=format, columns=columns, separator=separator, grades=grades, unjudgeable=unjudgeable
    )
    if so_far is not None and output is None:
        require_keepable(judgments, format=format, columns=columns, separator=separator)
    pool = None if pairs is None else Pool.read(pairs)
    barred = excluded_ids(exclude)
    steps = []
    for batch in new:
        scale = scale_of(so_far, grades)
        answers = unjudgeable if so_far is None or unjudgeable is not None else so_far.unjudgeable or None
        read = read_judgments(
            batch,
            format=new_format,
            columns=new_columns,
            grades=None if scale is None else scale.names,
            unjudgeable=answers,
            on_bad_rows=on_bad_rows,
        )
        step = add(so_far, read, source=str(batch), pool=pool, exclude=barred, on_bad_rows=on_bad_rows)
        so_far = step.judgments
        steps.append((str(batch), step))
    changed = any(step.anything for _, step in steps)
    if so_far is not None and (changed or target != judgments):
        write_table(kept_columns(so_far), target)
    if json:
        counts = ("added", "changed", "known", "older", "unknown", "excluded")
        say_json(
            {
                "batches": [{"batch": name, **{one: getattr(step, one) for one in counts}} for name, step in steps],
                "judgments": 0 if so_far is None else len(so_far),
                "output": str(target) if changed else None,
            }
        )
        return
    for name, step in steps:
        say(f"{name}: {step.told()}")
    say(f"Written to {target}." if changed else f"{judgments} is as it was.")
