"""Write an export: files of the engine, list of features, rows for comparison and a README, as one folder."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

import crowdrank
from crowdrank._disk import file_digest, write_error
from crowdrank._files import MANIFEST
from crowdrank._folders import FolderKind, Manifest, check_output_folder, write_folder
from crowdrank._text import counted, markdown_text
from crowdrank._typing import Floats
from crowdrank.errors import CrowdrankWarning, Message, UsageError, shown
from crowdrank.judgments.write import write_table
from crowdrank.rankers.base import Ranker
from crowdrank.rankers.boosting import BoostedTrees
from crowdrank.rankers.export import get_exporter
from crowdrank.rankers.export.base import Exporter, Guide, Target, find_exportable
from crowdrank.rankers.export.linear_model import LinearModel
from crowdrank.rankers.export.parity import N_ROWS, parity_rows

EXPORT = FolderKind("export", 1, "exported ranker", "crowdrank export")
DEFAULT_NAME = "crowdrank"
"""Default name of the model in the search engine."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")
"""Pattern of names that are valid in URLs and files of every engine."""
EXPECTED_SCORE = "expected_score"
"""Last column of `parity.csv`."""


def export(ranker: Ranker, to: str, path: str | Path, *, name: str = DEFAULT_NAME) -> Path:
    """Write a ranker as a folder for a search engine; nothing is sent anywhere.

    The folder has the model in the engine's format, `features.csv` with the features and their ranges in training,
    `parity.csv` with rows of features and the scores that the engine must return for them, and a README with the next
    steps. Engines with a server also get `upload.sh`.

    Args:
        ranker: a fitted ranker: one forest (`LambdaMART`, `PointwiseGBDT`, `GDAPairwiseMART`) or a linear one (`GLS`,
            `RD`, `SingleFeature`).
        to: name of the engine: `elasticsearch-ltr`, `opensearch-ltr`, `elasticsearch`, `solr`, `vespa`, `ranklib`,
            `lightgbm` or `onnx`.
        path: folder to write; an earlier export there is replaced.
        name: name of the model in the engine.

    Returns:
        The path of the folder.

    Raises:
        UsageError: there is no such engine, or it cannot evaluate the ranker.
        OutputError: the folder cannot be written, or has files that crowdrank did not write.

    >>> import tempfile
    >>> world = crowdrank.simulate(queries=20, documents=10, random_state=1)
    >>> ranker = crowdrank.LambdaMART(n_estimators=5).fit(world.features, world.gold["grade"])
    >>> folder = export(ranker, "solr", Path(tempfile.mkdtemp()) / "solr")
    >>> sorted(path.name for path in folder.iterdir() if path.suffix in (".json", ".csv"))
    ['crowdrank.json', 'feature_store.json', 'features.csv', 'model.json', 'parity.csv']

    """
    exporter = get_exporter(to)
    if not _NAME.fullmatch(name):
        problem = f"must have lowercase letters, digits and underscores only, not {shown(name)}"
        raise UsageError(problem, parameter="name", kind="invalid-name")
    ranker._require_fitted()
    check_output_folder(path, EXPORT)
    _require_unedited(path)
    model = find_exportable(ranker)
    exporter.check_names(ranker.features_)
    notes = exporter.check(model, Target(Path(path), name, ranker.feature_statistics_))
    with write_folder(path, EXPORT) as folder:
        target = Target(folder, name, ranker.feature_statistics_)
        guide = exporter.write(model, target)
        write_table(_feature_table(ranker, model), folder / "features.csv")
        write_table(_parity_table(ranker, model, exporter), folder / "parity.csv")
        target.write_text("README.md", _readme(ranker, model, exporter, guide, notes))
    for note in notes:
        warnings.warn(CrowdrankWarning(note), stacklevel=2)
    return Path(path)


def _require_unedited(path: str | Path) -> None:
    """Raise OutputError if the user has edited a file of an earlier export, such as its template of queries."""
    folder = Path(path)
    if not (folder / MANIFEST).exists():
        return
    for file, digest in Manifest.read(folder).entries.items():
        if (folder / file).exists() and file_digest(folder / file) != digest:
            fixes = ("name a new folder", "move that file")
            raise write_error(path, f"{file} in it was edited", kind="edited-file", fix=fixes)


def _feature_table(ranker: Ranker, model: BoostedTrees | LinearModel) -> pa.Table:
    """Return number, name, importance and training statistics of each feature; for linear models also the weights."""
    statistics = ranker.feature_statistics_
    columns: dict[str, Sequence[object] | Floats] = {
        "number": list(range(1, ranker.n_features_in_ + 1)),
        "name": list(ranker.features_),
        "importance": ranker.feature_importances_,
    }
    for column in ("minimum", "maximum", "missing_share"):
        unknown = np.full(ranker.n_features_in_, np.nan)
        columns[column] = unknown if statistics is None else getattr(statistics, column)
    if isinstance(model, LinearModel):
        columns |= {"weight": model.weights, "value_if_missing": model.fill}
    return pa.table({name: _without_nan(values) for name, values in columns.items()})


def _parity_table(ranker: Ranker, model: BoostedTrees | LinearModel, exporter: Exporter) -> pa.Table:
    rows = parity_rows(
        model,
        ranker.feature_statistics_,
        with_missing=exporter.handles_missing(model),
        margin=exporter.margin,
    )
    scores = ranker.predict(rows)
    if isinstance(model, LinearModel) and not exporter.adds_intercept:
        scores = scores - model.intercept
    columns = [_without_nan(column) for column in (*rows.T, scores)]
    return pa.Table.from_arrays(columns, names=[*ranker.features_, EXPECTED_SCORE])


def _without_nan(values: Sequence[object] | Floats) -> pa.Array:
    """Return an Arrow array with null for NaN, which CSV shows as an empty cell."""
    return pa.array(values, from_pandas=True)


def _readme(
    ranker: Ranker,
    model: BoostedTrees | LinearModel,
    exporter: Exporter,
    guide: Guide,
    notes: Sequence[Message],
) -> str:
    kind = "a linear model" if isinstance(model, LinearModel) else counted(model.best_iteration_, "tree")
    files = {
        **guide.files,
        "features.csv": "features, with their ranges and shares of missing values in training",
        "parity.csv": f"{N_ROWS} rows of features, and the score that the engine must return for each (to 1e-5)",
    }
    steps = list(guide.steps)
    if isinstance(model, LinearModel) and not exporter.adds_intercept:
        steps.append(
            f"The engine has no intercept: add {model.intercept:.6g} to its scores to get those of the ranker."
        )
    steps += [f"Warning: {markdown_text(str(note))}" for note in notes]
    lines = [
        f"# {type(ranker).__name__} for {exporter.title}",
        "",
        f"{kind[0].upper()}{kind[1:]} on {counted(ranker.n_features_in_, 'feature')}, written by crowdrank "
        f"{crowdrank.__version__}. Nothing has been sent to a server.",
        "",
        *(f"- `{file}`: {contents}" for file, contents in files.items()),
        "",
        *(f"{number}. {step}" for number, step in enumerate(steps, 1)),
        "",
    ]
    return "\n".join(lines)
