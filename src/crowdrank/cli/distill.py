"""The command `crowdrank distill`: replace a ranker by one forest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from crowdrank._options import option
from crowdrank._text import counted
from crowdrank.cli import options as o
from crowdrank.cli.console import print_columns, print_json, print_line
from crowdrank.cli.from_settings import FieldsOf


@dataclass(frozen=True)
class ForestOptions:
    """Options for the forest."""

    n_trees: int = option(500, "Number of trees.", "--trees")
    random_state: int = option(0, "Random seed.")
    n_jobs: int | None = option(None, "Number of threads.", show_default="one per core for large files")


def distill(
    model: Annotated[Path, typer.Argument(help="Folder of a ranker, such as an ensemble.", metavar="<model>")],
    features: o.FeatureFiles,
    output: Annotated[Path, o.output_option("Folder for the forest.")],
    forest_options: Annotated[ForestOptions, FieldsOf(ForestOptions, "Forest")],
    reading: o.FeatureReading,
    size_limit: o.SizeLimit,
    json: o.AsJson = False,
) -> None:
    """Fit one forest that ranks documents as another ranker does, for search engines.

    No labels are needed: any documents with features serve. `crowdrank run` does this for the ranker that it selects.

    Examples:
        crowdrank distill ranker -f features.letor -o forest
    """
    from crowdrank._folders import check_output_folder
    from crowdrank.rankers.base import Ranker
    from crowdrank.rankers.distillation import distill as distill_ranker
    from crowdrank.rankers.distillation import rank_correlation
    from crowdrank.rankers.store import RANKER
    from crowdrank.rankers.trec_run import join_features, pad_letor

    check_output_folder(output, RANKER)
    ranker = Ranker.load(model)
    table = join_features(features, reading.format, reading.columns)
    print_columns(table.columns, features)
    table = pad_letor(table, ranker.features_)
    forest = distill_ranker(ranker, table, **vars(forest_options), progress=True)
    correlation = rank_correlation(ranker.predict(table), forest.predict(table), table.query)
    forest.save(output)
    if json:
        print_json({"trees": forest.best_iteration_, "rank_correlation": correlation, "output": str(output)})
        return
    print_line(
        f"One forest of {counted(forest.best_iteration_, 'tree')} imitates {type(ranker).__name__} (rank correlation "
        f"{correlation:.3f} on these documents); written to {output}."
    )
