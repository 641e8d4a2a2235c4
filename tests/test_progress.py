"""Progress reported from several threads."""

from __future__ import annotations

import threading

import pytest

from crowdrank._progress import ProgressBar


def test_a_bar_is_whole_before_another_thread_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    half_open, used, opened = threading.Event(), threading.Event(), ProgressBar._open_bar

    def slowly(bar: ProgressBar, most: int) -> None:
        opened(bar, most)
        task, bar._task = bar._task, None
        half_open.set()
        used.wait(0.2)  # the other thread comes by while the bar has no task
        bar._task = task

    monkeypatch.setattr(ProgressBar, "_open_bar", slowly)
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


def test_in_a_file_there_are_plain_lines_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("fitting", after=0.0) as bar:
        for number in range(5):
            bar(number, 5, -0.5)
    assert capsys.readouterr().err == ""
    with ProgressBar("fitting", after=0.0, every=0.0) as bar:
        bar(1, 5, -0.5)
        bar.stage("reading", 2)
        bar.show_share(0.5)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" after ")[0] for line in lines] == [
        "fitting (-0.50000): step 2 of 5",
        "reading: step 1 of 2",
        "reading: step 1 of 2 (50%)",
    ]
