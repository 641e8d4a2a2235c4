"""Stages of fitted consensus models; models of the same judgments share one stored copy of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from crowdrank._disk import ScratchFolder, file_digest, link_or_copy
from crowdrank._files import write_file
from crowdrank._folders import FolderKind, Manifest, open_folder, write_folder
from crowdrank.consensus._base import Aggregator
from crowdrank.errors import Message
from crowdrank.pipeline.stage_cache import StageCache

MODEL_STAGE = FolderKind("consensus-stage", 1, "cached consensus model", "crowdrank run")
MODEL = "model"
"""Name of the folder of the saved model in a stage."""
JUDGMENTS_FILE = "judgments.parquet"
"""Name of the file with the judgments of a saved model."""
WARNINGS_FILE = "warnings.json"
"""Name of the file with the data warnings of a fit."""
JUDGMENTS = "judgments"
"""Name of the stages that hold judgments; the key of each is the digest of its file."""

Fit = tuple[Aggregator, list[Message]]
"""Fitted model and the data warnings of its fit."""


def save_fit(fit: Fit, path: Path, cache: StageCache) -> None:
    """Save a fitted model with its data warnings; its judgments become a stage of their own."""
    model, messages = fit
    with write_folder(path, MODEL_STAGE) as folder:
        model.save(folder / MODEL)
        (folder / WARNINGS_FILE).write_text(json.dumps([message.to_dict() for message in messages]), encoding="utf-8")
        for file in sorted((folder / MODEL).rglob(JUDGMENTS_FILE)):
            digest = file_digest(file)
            shared = cache.shared_file(JUDGMENTS, digest)
            if file_digest(shared) == digest:
                file.unlink()
            else:  # not stored yet, or damaged
                with write_file(shared) as draft:
                    file.replace(draft)


def load_fit(path: Path, cache: StageCache) -> Fit:
    """Load what :func:`save_fit` wrote; raise an error if the model or its judgments are missing or changed."""
    open_folder(path, MODEL_STAGE)
    stored = json.loads((path / WARNINGS_FILE).read_text(encoding="utf-8"))
    scratch = ScratchFolder(path.parent)
    try:
        folder = scratch.path / MODEL
        shutil.copytree(path / MODEL, folder, copy_function=link_or_copy)
        for name, digest in Manifest.read(folder).entries.items():
            if not (folder / name).exists():
                link_or_copy(cache.shared_file(JUDGMENTS, digest), folder / name)
        return Aggregator.load(folder), [Message.from_dict(fields) for fields in stored]
    finally:
        scratch.close()
