"""What a fit takes on trust is said, and only then."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from crowdrank import BWA, GDA, DawidSkene, GDAPairwise, Rasch, simulate
from crowdrank.consensus.data_warnings import find_groups
from crowdrank.errors import DataWarning

LINES = [BWA, GDA, GDAPairwise, Rasch]


@given(seed=st.integers(0, 10_000), experts=st.booleans())
def test_connect_equals_connected_components(seed: int, experts: bool) -> None:
    rng = np.random.default_rng(seed)
    offsets = np.append(0, np.cumsum(rng.integers(1, 4, 8)))
    assessor = rng.integers(0, 12, offsets[-1]).astype(np.int32)
    gold = (rng.integers(0, 4, 8) - 1 if experts else np.full(8, -1)).astype(np.int8)
    item = np.repeat(np.arange(8), np.diff(offsets))
    marked = np.flatnonzero(gold >= 0)
    rows = np.append(item, marked)
    columns = np.append(assessor, np.full(len(marked), 12)) + 8
    graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(21, 21))
    expected = connected_components(graph, directed=False)[1][8:]
    found = find_groups(offsets, assessor, gold, 12)
    assert ((found[:, None] == found) == (expected[:, None] == expected)).all()


def two_groups() -> pd.DataFrame:
    parts = [simulate(queries=5, documents=8, assessors=6, random_state=seed).judgments for seed in (1, 2)]
    named = [
        part.assign(assessor=f"{side} " + part["assessor"].astype(str), query=f"{side} " + part["query"].astype(str))
        for side, part in zip(("left", "right"), parts, strict=True)
    ]
    return pd.concat(named)[["query", "document", "assessor", "grade"]]


@pytest.mark.filterwarnings("ignore::crowdrank.errors.ConvergenceWarning")
@pytest.mark.parametrize("cls", LINES)
def test_groups_without_a_common_document_are_said(cls: type[GDA]) -> None:
    with pytest.warns(DataWarning, match="2 groups without a document in common"):
        cls().fit(two_groups())


def test_experts_of_both_groups_join_them() -> None:
    frame = two_groups()
    gold = frame.groupby(["query", "document"])["grade"].median().astype(int).reset_index()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        GDA().fit(frame, gold=gold)


@pytest.mark.parametrize("cls", [GDA, DawidSkene, Rasch])
def test_a_connected_honest_crowd_gives_no_warning(cls: type[GDA]) -> None:
    frame = simulate(queries=20, documents=10, assessors=8, labels=4, random_state=3).judgments
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        cls().fit(frame)


def test_a_ranking_against_the_grades_is_said() -> None:
    """A few loud documents turn the scale around only if the model is led there: start from reversed curves."""
    frame = simulate(
        queries=20, documents=10, assessors=8, labels=4, spammers=0, adversaries=0, random_state=3
    ).judgments
    frame = frame[["query", "document", "assessor", "grade"]]
    astray = GDA().fit(frame.assign(grade=frame["grade"].max() - frame["grade"]))
    astray.theta_["curves"][:] = -astray.theta_["curves"]
    mirrored = astray.theta_["likelihood"][:, ::-1].copy()
    astray.theta_["likelihood"] = mirrored
    with pytest.warns(DataWarning, match="runs against the mean grades"):
        GDA(n_iter=1).fit(frame, init=astray)


def test_only_reversed_assessors_with_experts_are_read_in_reverse() -> None:
    world = simulate(queries=20, documents=10, assessors=8, labels=4, spammers=0, adversaries=0, random_state=3)
    frame = world.judgments[["query", "document", "assessor", "grade"]]
    turned = frame.assign(grade=frame["grade"].max() - frame["grade"])
    truth = GDA().fit(frame).consensus_.documents
    gold = truth[["query", "document", "grade"]].iloc[::4]
    with pytest.warns(DataWarning, match="run against the expert grades"):
        table = GDA().fit(turned, gold=gold).consensus_.documents
    assert np.corrcoef(truth["relevance"], table["relevance"])[0, 1] > 0.5


@pytest.mark.filterwarnings("ignore::crowdrank.errors.ConvergenceWarning")
@pytest.mark.parametrize("cls", [*LINES, DawidSkene])
@pytest.mark.parametrize("assessors", [1, 4])
def test_documents_judged_once_are_said(cls: type[GDA], assessors: int) -> None:
    grades = np.arange(24) % 3
    frame = pd.DataFrame({"document": range(24), "assessor": np.arange(24) % assessors, "grade": grades})
    with pytest.warns(DataWarning, match="No document was judged by two assessors") as caught:
        cls().fit(frame)
    assert len(caught) == 1
