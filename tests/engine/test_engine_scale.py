"""The benchmark of large data works, on small data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import scale


def test_every_step_is_measured_and_every_goal_has_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In this process: that each step has one of its own matters for memory, which is not looked at here.
    monkeypatch.setattr(scale, "in_own_process", lambda work, *arguments: work(*arguments))
    sizes = ["--small", "--sizes", "5e3,1e4", "--only", "scale"]  # a cluster takes long to start
    found = scale.main([*sizes, "--out", str(tmp_path / "out"), "--folder", str(tmp_path)])
    assert [(one.step, one.labels) for one in found] == [
        (step, labels)
        for labels in (5_000, 10_000)
        for step in ("simulate", "read and shuffle", "Dawid-Skene, 10 iterations", "GDA, 3 iterations")
    ]
    assert all(one.seconds > 0 and one.peak_bytes > 0 for one in found)
    written = json.loads((tmp_path / "out" / "scale.json").read_text())
    assert len(written["measured"]) == 8
    assert len(written["verdicts"]) == 6
    assert "<svg" in (tmp_path / "out" / "scale.svg").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # what was drawn is gone
