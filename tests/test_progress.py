"""Progress told from several threads."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from crowdrank.progress import ProgressBar


def test_the_bar_is_whole_before_another_thread_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = ProgressBar._open

    def slowly(bar: ProgressBar, most: int) -> None:
        opened(bar, most)
        task, bar._task = bar._task, None
        time.sleep(0.05)  # the others come by while the bar has no task yet
        bar._task = task

    monkeypatch.setattr(ProgressBar, "_open", slowly)
    problems: list[Any] = []

    def work(bar: ProgressBar) -> None:
        try:
            bar(1, 10, float("nan"))
        except KeyError as problem:
            problems.append(problem)

    with ProgressBar("working", after=0.0) as bar:
        threads = [threading.Thread(target=work, args=(bar,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems
