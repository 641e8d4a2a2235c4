"""Progress told from several threads."""

from __future__ import annotations

import threading

import pytest

from crowdrank.progress import ProgressBar


def test_a_bar_is_whole_before_another_thread_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    half_open, used, opened = threading.Event(), threading.Event(), ProgressBar._open

    def slowly(bar: ProgressBar, most: int) -> None:
        opened(bar, most)
        task, bar._task = bar._task, None
        half_open.set()
        used.wait(0.2)  # the other thread comes by while the bar has no task
        bar._task = task

    monkeypatch.setattr(ProgressBar, "_open", slowly)
    problems: list[KeyError] = []

    def come_by(bar: ProgressBar) -> None:
        half_open.wait()
        try:
            bar(1, 10, float("nan"))
        except KeyError as problem:
            problems.append(problem)
        used.set()

    with ProgressBar("working", after=0.0) as bar:
        other = threading.Thread(target=come_by, args=(bar,))
        other.start()
        bar(1, 10, float("nan"))
        other.join()
    assert not problems
