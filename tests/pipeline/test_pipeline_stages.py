"""StageCache: names by content, and what happens to what cannot be read."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import crowdrank
from crowdrank._disk import source_digest
from crowdrank.pipeline.stage_cache import STAGE_NAMES, StageCache, digest


@given(npst.arrays(np.float64, 4, elements=st.floats(allow_nan=False)), st.integers(0, 3), st.floats(allow_nan=False))
def test_other_content_has_another_name(array: np.ndarray, place: int, value: float) -> None:
    other = array.copy()
    other[place] = value
    same = array.tobytes() == other.tobytes()
    assert (digest(array) == digest(other)) is same


def test_parts_do_not_run_into_each_other() -> None:
    assert digest(np.arange(2), np.arange(3)) != digest(np.arange(3), np.arange(2))
    assert digest("ab", "c") != digest("a", "bc")


def test_judgments_have_the_name_of_their_content() -> None:
    frame = pd.DataFrame({"document": ["a", "b"], "assessor": ["x", "y"], "grade": [0, 1]})
    name = digest(crowdrank.read_judgments(frame))
    assert name == digest(crowdrank.read_judgments(frame.copy()))
    assert name != digest(crowdrank.read_judgments(frame.assign(grade=[1, 0])))
    assert name != digest(crowdrank.read_judgments(frame.assign(assessor=["x", "z"])))
    assert name != digest(crowdrank.read_judgments(frame.assign(family=["f", "g"])))


def test_what_cannot_be_read_is_made_again(tmp_path: Path) -> None:
    def arrays() -> tuple[StageCache, np.ndarray]:
        cache = StageCache(tmp_path / "stages")
        return cache, cache.arrays("sum", "k", lambda: {"a": np.arange(3)})["a"]

    (first, made), (second, stored) = arrays(), arrays()
    assert [(cache.made, cache.reused) for cache in (first, second)] == [(1, 0), (0, 1)]
    place = first.path("sum", "k")
    assert place is not None
    place.write_bytes(place.read_bytes()[:20])
    third, again = arrays()
    assert third.made == 1
    for one in (made, stored, again):
        np.testing.assert_array_equal(one, np.arange(3))


def test_a_stage_is_computed_and_read_once_in_a_run(tmp_path: Path) -> None:
    for folder in (None, tmp_path / "stages"):
        cache, calls = StageCache(folder), list[int]()

        def make(calls: list[int] = calls) -> dict[str, np.ndarray]:
            calls.append(1)
            return {"a": np.arange(3)}

        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda _, cache=cache, make=make: cache.arrays("sum", "k", make), range(8)))
        assert all(one is results[0] for one in results)
        assert (len(calls), cache.made, cache.reused) == (1, 1, 0)


def test_a_forgotten_stage_is_computed_again() -> None:
    cache = StageCache(None)
    one, two = (cache.remember("fit", "k", list[int]) for _ in range(2))
    other = cache.remember("other", "k", list[int])
    cache.forget("fit")
    assert one is two
    assert cache.remember("fit", "k", list) is not one
    assert cache.remember("other", "k", list) is other


HOSTILE_NAMES = (
    *("feature:bm25", "feature:BM25", "feature:a/b", "feature:a\\b", "feature:../../x", "feature: ", "feature:\u00e9"),
    *("feature:" + "x" * 300, "feature:" + "x" * 300 + "y", "feature:a\0b", "feature:."),
)


def test_names_of_users_become_distinct_plain_file_names(tmp_path: Path) -> None:
    cache = StageCache(tmp_path / "stages")
    for place, name in enumerate(HOSTILE_NAMES):
        cache.arrays(name, digest("k"), lambda place=place: {"a": np.array(place)})  # type: ignore[misc]
    files = sorted(path.name for path in (tmp_path / "stages").iterdir())
    assert len({name.casefold() for name in files}) == len(HOSTILE_NAMES)
    assert all(name.isascii() and re.fullmatch(STAGE_NAMES, name) and len(name) < 120 for name in files)
    again = StageCache(tmp_path / "stages")
    for place, name in enumerate(HOSTILE_NAMES):
        stored = again.arrays(name, digest("k"), lambda: {"a": np.array(-1)})
        assert stored["a"] == place
    assert again.reused == len(HOSTILE_NAMES)
    StageCache(tmp_path / "stages").delete_unused()
    assert not list((tmp_path / "stages").iterdir())


SOURCE = (
    "import sys; sys.path.insert(0, sys.argv[1]); from crowdrank._disk import source_digest; print(source_digest())"
)


def test_a_change_of_the_source_gives_other_keys(tmp_path: Path) -> None:
    def key() -> str:
        done = subprocess.run(
            [sys.executable, "-c", SOURCE, str(tmp_path)], capture_output=True, text=True, check=True, env={"PATH": ""}
        )
        return done.stdout.strip()

    package = Path(crowdrank.__file__).parent
    shutil.copytree(package, tmp_path / "crowdrank", ignore=shutil.ignore_patterns("__pycache__"))
    first = key()
    assert first == key() == source_digest()
    with (tmp_path / "crowdrank" / "consensus" / "votes.py").open("a") as stream:
        stream.write("# changed\n")
    assert key() != first
