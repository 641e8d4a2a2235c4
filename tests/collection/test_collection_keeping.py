"""Files of judgments that grow, and requests that are out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdrank import Judgments, read_judgments
from crowdrank.collection import get_policy
from crowdrank.collection.add_batch import JudgmentFile, merge_batch, write_new_file
from crowdrank.collection.pool import Pool, Roster
from crowdrank.collection.requests import Budget, OutstandingRequests
from crowdrank.errors import UsageError

ID = st.sampled_from(['a,"b"', "c d", "é\nf", "g"])
ROW = st.tuples(ID, st.sampled_from(["x", 'y"', "z;"]), st.integers(0, 2))


def table(rows: list[Any]) -> Judgments:
    return read_judgments(pd.DataFrame(rows, columns=["document", "assessor", "grade"]), grades="0-2")


def held(judgments: Judgments) -> dict[tuple[str, str], int]:
    return {(row.document, row.assessor): int(row.grade) for row in judgments.frame.itertuples()}


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.csv.gz", "a.parquet"])
@settings(max_examples=8)
@given(old=st.lists(ROW, min_size=1, max_size=5), new=st.lists(ROW, min_size=1, max_size=5))
def test_a_file_that_grows_holds_what_was_added(
    tmp_path_factory: pytest.TempPathFactory, name: str, old: list[Any], new: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("grows") / name
    write_new_file(path, table(old))
    before = _lines(path)
    so_far = read_judgments(path, grades="0-2")
    done = merge_batch(so_far, table(new))
    if done.new is not None:
        JudgmentFile.open(path).add(done.new, changed=bool(done.changed))
    assert held(read_judgments(path, grades="0-2")) == {**held(table(old)), **held(table(new))}
    if not done.changed:
        assert _lines(path)[: len(before)] == before


def _lines(path: Path) -> bytes:
    if path.suffix == ".parquet":
        return b""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def test_of_several_lines_of_one_judgment_the_last_is_renewed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("document,assessor,grade\nd,ann,0\nd,ann,1\ne,ann,2\n")
    JudgmentFile.open(path).add(table([("d", "ann", 2)]), changed=True)
    assert path.read_text() == "document,assessor,grade\nd,ann,0\nd,ann,2\ne,ann,2\n"
    assert held(read_judgments(path)) == {("d", "ann"): 2, ("e", "ann"): 2}


def test_other_columns_stay(tmp_path: Path) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text(
        '{"doc": "d", "worker": "ann", "label": 0, "remark": [1, "é"]}\n\n{"doc": "e", "worker": "ann", "label": 2}'
    )
    JudgmentFile.open(lines).add(table([("d", "ann", 1), ("f", "bea", 0)]), changed=True)
    rows = [json.loads(line) for line in lines.read_text().splitlines() if line]
    assert rows[0]["remark"] == [1, "é"]
    assert [row["label"] for row in rows] == [1, 2, 0]
    packed = tmp_path / "a.parquet"
    whole = pa.table(
        {"doc": pa.array(["d", "e"]).dictionary_encode(), "worker": ["ann", "ann"], "label": [0, 2], "x": [1.5, 2.5]}
    )
    pq.write_table(whole, packed)
    JudgmentFile.open(packed).add(table([("d", "ann", 1), ("f", "bea", 0)]), changed=True)
    kept = pq.read_table(packed)
    assert kept.schema.names == whole.schema.names
    assert kept["x"].to_pylist() == [2.5, None, None]
    assert held(read_judgments(packed)) == {("d", "ann"): 1, ("e", "ann"): 2, ("f", "bea"): 0}


def test_exports_of_platforms_are_not_added_to(tmp_path: Path) -> None:
    path = tmp_path / "book.csv"
    path.write_text("query,docid,ann,bob\njam,d1,2,\n")
    with pytest.raises(UsageError) as caught:
        JudgmentFile.open(path)
    assert caught.value.kind == "not-a-table"
    assert caught.value.fix is not None
    assert caught.value.fix.parameter == "output"


def test_times_are_marked_as_those_in_the_file(tmp_path: Path) -> None:
    row = {"document": ["d"], "assessor": ["ann"], "grade": [1], "time": ["2024-05-31T10:15:00Z"]}
    for there, written in (
        ("2024-01-01T00:00:00+01:00", "2024-05-31T10:15:00Z"),
        ("2024-01-01", "2024-05-31T10:15:00"),
    ):
        path = tmp_path / "a.csv"
        path.write_text(f"document,assessor,grade,time\ne,ann,0,{there}\n")
        JudgmentFile.open(path).add(read_judgments(pd.DataFrame(row)), utc=True)
        assert path.read_text().splitlines()[1:] == [f"e,ann,0,{there}", f"d,ann,1,{written}"]


# Requests that are out.

POOL = pd.DataFrame({"query": "q", "document": list("abcd")})
SO_FAR = [("a", "x", 2), ("b", "x", 0), ("c", "x", 2)]


def judged(rows: list[Any]) -> Judgments:
    frame = pd.DataFrame(rows, columns=["document", "assessor", "grade"]).assign(query="q")
    return read_judgments(frame, grades="0-2")


@pytest.mark.parametrize("name", ["single", "overlap-3", "if-good-3", "good-till-bad", "random", "entropy", "ndcg@2"])
@pytest.mark.parametrize("named", [False, True])
def test_no_policy_asks_twice_for_one_thing(name: str, named: bool) -> None:
    pool, so_far = Pool.read(POOL), judged(SO_FAR)
    if named:
        pool = pool.with_roster(Roster.of(list("vwxyz")))
    policy = get_policy(name)
    if name == "random":
        policy.set_params(k=3)
    outstanding, asked = OutstandingRequests.none(), []
    for _ in range(6):
        requests = policy.next(pool, so_far, None, Budget(2), outstanding)
        outstanding = outstanding.append(OutstandingRequests.of(requests, so_far))
        asked += list(zip(requests.pair.tolist(), requests.assessor.tolist(), strict=True))
    if named:
        assert len(set(asked)) == len(asked)
        assert not {(place, 2) for place in range(3)} & set(asked)  # x judged them
    at_once = policy.next(pool, so_far, None, Budget(100))
    most = np.array([2, 2, 2, 3]) if name == "random" else np.bincount(at_once.pair, minlength=4)
    assert (np.bincount([pair for pair, _ in asked], minlength=4) <= most).all()


@pytest.mark.parametrize("name", ["overlap-3", "random"])
def test_each_round_has_other_honeypots(name: str) -> None:
    documents = [f"d{number}" for number in range(100)]
    frame = pd.DataFrame({"query": "q", "document": documents, "honeypot": ["1"] * 50 + [""] * 50})
    pool, policy, budget = Pool.read(frame), get_policy(name), Budget(20, honeypots=0.5)

    def honeypots(so_far: Judgments | None, outstanding: OutstandingRequests | None = None) -> list[int]:
        requests = policy.next(pool, so_far, None, budget, outstanding)
        planted: list[int] = requests.pair[requests.is_honeypot].tolist()
        assert len(set(planted)) == 10
        return planted

    first_requests = policy.next(pool, None, None, budget)
    came_back = judged([(f"d{number}", "x", 1) for number in range(50, 60)])
    first = honeypots(None)
    assert honeypots(None) == first
    for later in (honeypots(came_back), honeypots(None, OutstandingRequests.of(first_requests, None))):
        assert len(set(later) & set(first)) < 8


def test_pairs_without_a_request_come_before_second_requests() -> None:
    pool, policy = Pool.read(POOL), get_policy("overlap-2")
    first = policy.next(pool, None, None, Budget(2))
    second = policy.next(pool, None, None, Budget(2), OutstandingRequests.of(first, None))
    assert sorted([*first.pair.tolist(), *second.pair.tolist()]) == [0, 1, 2, 3]


def test_outstanding_requests_count_as_load() -> None:
    pool, policy, so_far = Pool.read(POOL).with_roster(Roster.of(["y", "z"])), get_policy("overlap-3"), judged(SO_FAR)
    budget = Budget(3, most=2)
    first = policy.next(pool, so_far, None, budget)
    outstanding = OutstandingRequests.of(first, so_far)
    second = policy.next(pool, so_far, None, budget, outstanding)
    assert np.bincount([*first.assessor.tolist(), *second.assessor.tolist()]).tolist() == [2, 2]


def test_an_answer_by_name_before_a_request_to_anyone_does_not_use_up_later_answers() -> None:
    pool, policy = Pool.read(POOL[:1]), get_policy("overlap-3")
    by_name = OutstandingRequests.of(policy.next(pool.with_roster(Roster.of(["x"])), None, None, Budget(1)), None)
    answered = judged([("a", "x", 2)])
    anyone = OutstandingRequests.of(policy.next(pool, answered, None, Budget(1)), answered)
    both = by_name.append(anyone)
    assert both.is_outstanding(answered).tolist() == [False, True]
    assert both.is_outstanding(judged([("a", "x", 2), ("a", "y", 1)])).tolist() == [False, False]


def test_what_came_back_is_seen_from_the_judgments() -> None:
    pool, so_far = Pool.read(POOL), judged(SO_FAR)
    anyone = OutstandingRequests.of(get_policy("overlap-3").next(pool, so_far, None, Budget(7)), so_far)
    assert anyone.is_outstanding(so_far).all()
    assert anyone.is_outstanding(None).all()
    more = judged([*SO_FAR, ("a", "y", 1), ("d", "y", 1), ("d", "z", 1)])
    left = anyone.where(anyone.is_outstanding(more))
    assert len(left) == len(anyone) - 3
    by_name = OutstandingRequests.of(
        get_policy("overlap-3").next(pool.with_roster(Roster.of(["x", "y", "z"])), so_far, None, Budget(99)), so_far
    )
    assert len(by_name) == 9
    out = by_name.where(by_name.is_outstanding(more))
    assert sorted(zip(*(out.column(name).to_pylist() for name in ("document", "assessor")), strict=True)) == [
        ("a", "z"), ("b", "y"), ("b", "z"), ("c", "y"), ("c", "z"), ("d", "x"),
    ]  # fmt: skip
    both = by_name.append(anyone)  # who was named answers that request, not one to anyone
    assert both.is_outstanding(more).sum() == len(out) + len(anyone)


def test_a_judgment_that_was_there_answers_nothing(tmp_path: Path) -> None:
    so_far = judged([*SO_FAR, ("a", "y", 1)])
    asked = OutstandingRequests.of(
        get_policy("overlap-3").next(Pool.read(POOL), judged(SO_FAR), None, Budget(99)), so_far
    )
    assert asked.is_outstanding(so_far).all()
    asked.write(tmp_path / "a.csv")
    again = OutstandingRequests.read(tmp_path / "a.csv")
    assert again.is_outstanding(so_far).all()
    assert again.column("had").equals(asked.column("had"))
    assert again.column("assessor").null_count == len(asked)
    assert dict(again.by_kind()) == {"human": len(asked)}


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_a_new_file_with_blank_cells_can_be_read_and_added_to(name: str, tmp_path: Path) -> None:
    rows = pd.DataFrame(
        {"document": ["a", "b"], "assessor": "x", "grade": 0, "honeypot": ["", "4"], "cost": ["", "0.5"]}
    )
    new = read_judgments(rows, grades="0-4")
    write_new_file(tmp_path / name, new)
    found = read_judgments(tmp_path / name, grades="0-4")
    more = read_judgments(rows.assign(assessor="y"), grades="0-4")
    JudgmentFile.open(tmp_path / name).add(more)
    assert len(found) == 2
    again = read_judgments(tmp_path / name, grades="0-4").frame
    assert again["cost"].fillna(-1).tolist() == [-1, -1, 0.5, 0.5]


def test_random_pairs_are_not_requested_while_a_request_is_outstanding() -> None:
    pool, policy = Pool.read(POOL), get_policy("random")
    first = policy.next(pool, None, None, Budget(3))
    second = policy.next(pool, None, None, Budget(100), OutstandingRequests.of(first, None))
    assert sorted([*first.pair.tolist(), *second.pair.tolist()]) == list(range(len(pool)))
