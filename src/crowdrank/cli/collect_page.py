"""The command `crowdrank collect page`: write a file with which one person judges without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_line


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
    from crowdrank.judgments.write import check_distinct
    from crowdrank.service.offline_page import make_offline_page

    check_output_file(output)
    check_distinct({"output": output}, [requests, *texts, *([] if guidelines is None else [guidelines])])
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
    from crowdrank.judgments.files import check_size, encoding_error, first_undecodable_line, open_decompressed

    check_size(path)
    with open_decompressed(path) as stream:
        content = stream.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise encoding_error(path, first_undecodable_line(path)) from problem
