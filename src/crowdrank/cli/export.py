"""The command `crowdrank export`: write a ranker as files for a search engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_json, print_line
from crowdrank.cli.from_settings import complete_from
from crowdrank.rankers.export import EXPORTERS


def export(
    model: Annotated[Path, typer.Argument(help="Folder of a ranker that `train` or `run` wrote.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            help=f"Search engine: {', '.join(EXPORTERS)}.",
            metavar="ENGINE",
            autocompletion=complete_from(EXPORTERS),
            show_default=False,
        ),
    ],
    output: Annotated[Path, o.output_option("Folder for the files.")],
    name: Annotated[
        str, typer.Option(help="Name of the model in the search engine.", rich_help_panel=o.OUTPUT)
    ] = "crowdrank",
    json: o.AsJson = False,
) -> None:
    """Write a ranker as files for a search engine, with an upload command. Nothing is sent anywhere.

    Examples:
        crowdrank export out/deployable --to elasticsearch-ltr -o export
        crowdrank export ranker --to solr --name products -o export
    """
    from crowdrank.rankers.base import Ranker
    from crowdrank.rankers.export import get_exporter
    from crowdrank.rankers.export.write import export as write_export

    exporter = get_exporter(to)
    ranker = Ranker.load(model)
    folder = write_export(ranker, to, output, name=name)
    files = sorted(path.name for path in folder.iterdir() if path.is_file())
    kind = type(ranker).__name__
    if json:
        features = list(ranker.features_)
        print_json({"ranker": kind, "to": to, "features": features, "files": files, "output": str(output)})
        return
    print_line(
        f"{kind} on {counted(ranker.n_features_in_, 'feature')} for {exporter.title}; written to {output}. "
        f"{output / 'README.md'} has the next steps."
    )
