"""Earlier results of a run's folder: where they are kept, and what changed since."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from crowdrank._disk import link_or_copy
from crowdrank._files import CACHE_FOLDER_NAME, MANIFEST_FILE_NAME
from crowdrank._folders import READ_FAILURES, read_parquet
from crowdrank._text import counted
from crowdrank.errors import InputError
from crowdrank.pipeline.run_result import PREVIOUS, RUN_FILE, TABLE_FILES, RunResult, read_csv

SIZE_NAMES = {
    "judgments": "Judgments",
    "assessors": "Assessors",
    "judged_documents": "Judged documents",
    "documents": "Documents",
    "features": "Features",
    "expert_grades": "Expert grades",
}
"""Numbers of a run that are compared with those of the previous run, and what they are called."""


def copy_previous_results(folder: Path, draft: Path, result: RunResult) -> None:
    """Put the earlier results of a folder into the subfolder `previous` of the draft that replaces it.

    If the earlier run had the same inputs and settings, its own `previous` is kept instead.
    """
    earlier = _read_metadata(folder)
    source = folder / PREVIOUS if earlier is not None and _is_same_run(earlier, result) else folder
    if earlier is None or not source.is_dir():
        return
    skipped = {CACHE_FOLDER_NAME, PREVIOUS, MANIFEST_FILE_NAME} if source == folder else set()
    for entry in source.iterdir():
        if entry.name in skipped or entry.name.startswith("."):
            continue
        target = draft / PREVIOUS / entry.name
        target.parent.mkdir(exist_ok=True)
        if entry.is_dir():
            shutil.copytree(entry, target, copy_function=link_or_copy)
        else:
            link_or_copy(entry, target)


def describe_changes(folder: Path, result: RunResult) -> tuple[str, ...]:
    """Return the differences between the earlier results in a folder and new ones, in sentences."""
    earlier = _read_metadata(folder)
    if earlier is None:
        return ()
    if _is_same_run(earlier, result):
        return tuple(earlier.get("changes", ()))
    new = result.to_dict()
    changes = [
        f"{title}: {earlier['sizes'].get(name, 0):,} before, {new['sizes'][name]:,} now."
        for name, title in SIZE_NAMES.items()
        if earlier["sizes"].get(name, 0) != new["sizes"][name]
    ]
    if (scales := earlier.get("scales", new["scales"])) != new["scales"]:
        before, now = (" / ".join(map(str, one)) for one in (scales, new["scales"]))
        changes.append(f"Scale of the judgments: {before} before, {now} now.")
    names = [name for name, value in new["settings"].items() if earlier["settings"].get(name) != value]
    if names:
        changes.append(f"Other settings: {', '.join(names)}.")
    if earlier["versions"]["crowdrank"] != new["versions"]["crowdrank"]:
        changes.append(f"Earlier version of crowdrank: {earlier['versions']['crowdrank']}.")
    return (*changes, *_changed_labels(folder, result), *_changed_ranker(earlier, new))


def _changed_labels(folder: Path, result: RunResult) -> list[str]:
    """Return how many documents and assessors have another grade or flag than in the earlier results."""
    changes = []
    tables = (
        ("documents", ("query", "document"), "grade", "consensus grade"),
        ("assessors", ("assessor",), "flag", "flag"),
    )
    for name, keys, column, title in tables:
        file = folder / TABLE_FILES[name]
        try:
            before = (read_parquet if file.suffix == ".parquet" else read_csv)(file)
        except (*READ_FAILURES, InputError):
            continue
        old, new = _values_by_key(before, keys, column), _values_by_key(result.tables[name], keys, column)
        common = [key for key in new if key in old]
        n = sum(old[key] != new[key] for key in common)
        if n:
            changes.append(f"{n:,} of {counted(len(common), name.removesuffix('s'))} have another {title}.")
    return changes


def _values_by_key(table: pa.Table, keys: tuple[str, ...], value_column: str) -> dict[tuple[str, ...], str]:
    columns = [map(str, table[name].to_pylist()) for name in keys]
    return dict(zip(zip(*columns, strict=True), map(str, table[value_column].to_pylist()), strict=True))


def _changed_ranker(earlier: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    old, now = earlier["rankers"], new["rankers"]
    if not old or not now:
        return []
    changes = []
    if old["chosen"] != now["chosen"]:
        changes.append(f"Selected ranker: {old['chosen']} before, {now['chosen']} now.")
    before, after = (_test_mean(rankers) for rankers in (old, now))
    if before is not None and after is not None and before != after:
        same = sorted(old["test_queries"]) == sorted(now["test_queries"])
        where = "the same" if same else "other"
        changes.append(
            f"Mean of the selected ranker on the test queries: {before:.4f} before, {after:.4f} now ({where} queries)."
        )
    return changes


def _test_mean(rankers: Mapping[str, Any]) -> float | None:
    """Return the mean of the selected candidate on the test queries."""
    return next((one["mean"] for one in rankers["contrasts"] if one["candidate"] == rankers["chosen"]), None)


def _is_same_run(earlier: Mapping[str, Any], result: RunResult) -> bool:
    settings = json.loads(json.dumps(result.settings.to_dict()))
    return bool(earlier["inputs"] == dict(result.inputs) and earlier["settings"] == settings)


def _read_metadata(folder: Path) -> dict[str, Any] | None:
    """Return run.json of the earlier results; None if there is none or it is not of this version."""
    try:
        earlier = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
        known = all(isinstance(earlier[name], dict) for name in ("inputs", "settings", "sizes", "versions"))
        return earlier if known and "rankers" in earlier else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
