"""A checkpoint is used only by a fit that would have made it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crowdrank import GDA, DawidSkene, LocalEngine, read_judgments
from crowdrank.errors import InputError


def labels(seed: int = 0, documents: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    document = np.repeat(np.arange(documents), 5)
    grade = np.clip(rng.integers(0, 3, documents)[document] + rng.integers(-1, 2, len(document)), 0, 2)
    return pd.DataFrame({"document": document, "assessor": np.tile(np.arange(5), documents), "grade": grade})


def interrupted(model: Any, judgments: Any, folder: Path, **options: Any) -> None:
    def interrupt(iteration: int, most: int, objective: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(judgments, checkpoint=folder, progress=interrupt, **options)


def families(*names: str) -> pd.DataFrame:
    frame = labels()
    return frame.assign(family=frame["assessor"].map(dict(enumerate(names))))


def test_other_families_do_not_resume(tmp_path: Path) -> None:
    interrupted(GDA(), families("a", "a", "b", "b", "b"), tmp_path / "state")
    with pytest.raises(InputError, match="another model"):
        GDA().fit(families("a", "a", "a", "b", "b"), checkpoint=tmp_path / "state")
    whole = GDA().fit(families("a", "a", "b", "b", "b"))
    resumed = GDA().fit(families("a", "a", "b", "b", "b"), checkpoint=tmp_path / "state")
    assert resumed.consensus_.document_table.equals(whole.consensus_.document_table)


def test_other_scales_of_assessors_do_not_resume(tmp_path: Path) -> None:
    def judgments(wide: tuple[int, ...]) -> Any:
        grades = ["0-4" if one in wide else "0-2" for one in range(5)]
        pd.DataFrame({"assessor": range(5), "grades": grades}).to_csv(tmp_path / "scales.csv", index=False)
        return read_judgments(labels(), scales=tmp_path / "scales.csv")

    interrupted(GDA(), judgments((0, 1)), tmp_path / "state")
    with pytest.raises(InputError, match="another model"):
        GDA().fit(judgments((0, 2)), checkpoint=tmp_path / "state")


def test_other_expert_grades_do_not_resume(tmp_path: Path) -> None:
    gold = pd.DataFrame({"document": range(9), "grade": [0, 1, 2] * 3})
    interrupted(DawidSkene(), labels(), tmp_path / "state", gold=gold)
    for other in (gold.assign(grade=[2, 1, 0] * 3), None):
        with pytest.raises(InputError, match="another model"):
            DawidSkene().fit(labels(), gold=other, checkpoint=tmp_path / "state")
    assert DawidSkene().fit(labels(), gold=gold, checkpoint=tmp_path / "state").converged_


def test_another_start_does_not_resume(tmp_path: Path) -> None:
    start = DawidSkene().fit(labels(1))
    interrupted(DawidSkene(), labels(), tmp_path / "state", init=start)
    with pytest.raises(InputError, match="another model"):
        DawidSkene().fit(labels(), checkpoint=tmp_path / "state")
    assert DawidSkene().fit(labels(), init=start, checkpoint=tmp_path / "state").converged_


def test_other_shards_do_not_resume(tmp_path: Path) -> None:
    interrupted(DawidSkene(), labels(), tmp_path / "state", engine=LocalEngine(shard_size=50))
    with pytest.raises(InputError, match="another model"):
        DawidSkene().fit(labels(), checkpoint=tmp_path / "state")


def test_another_version_of_the_code_does_not_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(DawidSkene(), labels(), tmp_path / "state")
    monkeypatch.setattr("crowdrank.consensus.saved_models.source_digest", lambda: "other")
    with pytest.raises(InputError, match="another version of crowdrank"):
        DawidSkene().fit(labels(), checkpoint=tmp_path / "state")
