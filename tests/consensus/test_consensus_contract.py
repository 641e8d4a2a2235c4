"""The contract of every aggregator. The classes are found by introspection: a new model is tested by existing."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import crowdrank.consensus
from crowdrank import Aggregator, LocalEngine, read_judgments
from crowdrank.consensus import METHODS, get_aggregator
from crowdrank.consensus.votes import _Vote
from crowdrank.errors import ConvergenceWarning, NotFittedError, UsageError


def every_aggregator() -> list[type[Aggregator]]:
    for module in pkgutil.iter_modules(crowdrank.consensus.__path__):
        importlib.import_module(f"crowdrank.consensus.{module.name}")
    found, waiting = [], [Aggregator]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if not inspect.isabstract(cls) and cls.__module__.startswith("crowdrank."):
            found.append(cls)
    return sorted(found, key=lambda cls: cls.__name__)


AGGREGATORS = every_aggregator()
VOTES = [cls for cls in AGGREGATORS if issubclass(cls, _Vote)]
FLAT = {"prior": 0, "ability_sd": float("inf")}
"""What switches the priors on assessors off, where a model has them."""
each = pytest.mark.parametrize("cls", AGGREGATORS)


def crowd(seed: int = 0, items: int = 60, assessors: int = 8, grades: int = 3, share: float = 0.6) -> pd.DataFrame:
    """A small crowd of varied quality over two queries, each (document, assessor) at most once."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, grades, items)
    quality = rng.uniform(0.4, 0.95, assessors)
    item, assessor = np.nonzero(rng.random((items, assessors)) < share)
    right = rng.random(len(item)) < quality[assessor]
    grade = np.where(right, truth[item], rng.integers(0, grades, len(item)))
    return pd.DataFrame(
        {
            "query": np.where(item % 2, "odd", "even"),
            "document": [f"d{number}" for number in item],
            "assessor": [f"w{number}" for number in assessor],
            "grade": grade,
        }
    )


def fitted(cls: type[Aggregator], judgments: Any, **options: Any) -> Aggregator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cls().fit(judgments, **options)


def documents(model: Aggregator) -> pd.DataFrame:
    frame: pd.DataFrame = model.consensus_.document_table.to_pandas()
    return frame.set_index(["query", "document"]).sort_index()


def assessors(model: Aggregator) -> pd.DataFrame:
    frame: pd.DataFrame = model.consensus_.assessor_table.to_pandas()
    return frame.set_index("assessor").sort_index()


def assert_close(one: pd.DataFrame, other: pd.DataFrame, tolerance: float = 1e-6) -> None:
    pd.testing.assert_frame_equal(one, other, check_exact=False, rtol=tolerance, atol=tolerance)


def test_the_command_line_knows_every_aggregator() -> None:
    assert {model_class(method) for method in METHODS} == set(AGGREGATORS)


@each
def test_the_constructor_only_stores(cls: type[Aggregator]) -> None:
    defaults = {name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()}
    model = cls(**defaults)
    assert vars(model) == defaults
    assert model.get_params() == defaults


@each
def test_fit_returns_self_and_fills_the_tables(cls: type[Aggregator]) -> None:
    frame = crowd()
    model = cls()
    assert model.fit(frame) is model
    table, about = documents(model), assessors(model)
    assert len(table) == len(frame[["query", "document"]].drop_duplicates())
    assert {"relevance", "sd", "lower", "upper", "grade", "p0", "p1", "p2", "judgments"} <= set(table.columns)
    assert about["judgments"].sum() == len(frame) == table["judgments"].sum()
    shares = table[["p0", "p1", "p2"]]
    assert np.allclose(shares.sum(axis=1), 1)
    numbers = table[["relevance", "sd", "lower", "upper"]]
    assert np.isfinite(numbers).all(axis=None)
    assert (table["lower"] <= table["relevance"] + 1e-9).all()
    assert (table["relevance"] <= table["upper"] + 1e-9).all()
    assert model.converged_
    assert model.n_iter_ == len(model.history_)


@each
def test_an_unfitted_model_says_so(cls: type[Aggregator]) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet; call fit first"):
        cls().predict()


@each
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_permuting_rows_changes_nothing(cls: type[Aggregator], seed: int) -> None:
    frame = crowd(seed)
    shuffled = frame.sample(frac=1, random_state=seed)
    one, other = fitted(cls, frame), fitted(cls, shuffled)
    assert_close(documents(one), documents(other))
    assert_close(assessors(one), assessors(other))


@each
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_renaming_ids_changes_nothing(cls: type[Aggregator], seed: int) -> None:
    frame = crowd(seed)
    names = {
        column: {old: f"{hash((seed, old)) % 10**9}-{old}" for old in frame[column].unique()}
        for column in ("query", "document", "assessor")
    }
    renamed = frame.assign(**{column: frame[column].map(names[column]) for column in names})
    one, other = fitted(cls, frame), fitted(cls, renamed)
    expected = documents(one).reset_index()
    expected = expected.assign(**{column: expected[column].map(names[column]) for column in ("query", "document")})
    assert_close(expected.set_index(["query", "document"]).sort_index(), documents(other))
    assert_close(assessors(one).rename(index=names["assessor"]).sort_index(), assessors(other))


@each
def test_duplicating_all_items_leaves_the_assessors_unchanged(cls: type[Aggregator]) -> None:
    frame = crowd(items=80)
    copies = [frame.assign(document=frame["document"] + f"-copy{copy}") for copy in range(4)]
    # A prior weighs less against more data: without one (or with votes) the parameters are the same.
    flat = {name: value for name, value in FLAT.items() if name in inspect.signature(cls).parameters}
    model = cls(**flat)
    once = model.fit(frame)
    parameters = assessors(once).drop(columns="judgments")
    many = clone(once).fit(pd.concat(copies))
    if cls.shrinks:  # more data, less shrinkage: nearly the same
        assert np.corrcoef(parameters["informativeness"], assessors(many)["informativeness"])[0, 1] > 0.9
    else:
        assert_close(parameters, assessors(many).drop(columns="judgments"), 1e-4)
    assert (assessors(many)["judgments"] == 4 * assessors(once)["judgments"]).all()


@each
def test_twin_assessors_get_equal_parameters(cls: type[Aggregator]) -> None:
    frame = crowd()
    reference = frame[frame["assessor"] == "w0"].assign(assessor="reference")
    about = assessors(fitted(cls, pd.concat([frame, reference])))
    assert_close(about.loc[["w0"]], about.loc[["reference"]].rename(index={"reference": "w0"}), 1e-12)


@each
@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(crowd().drop_duplicates(["query", "document"]), id="one judgment per item"),
        pytest.param(crowd().query("assessor == 'w0'"), id="one assessor"),
        pytest.param(crowd().query("document == 'd0'"), id="one item"),
        pytest.param(crowd().head(1), id="one judgment"),
        pytest.param(crowd().assign(grade=1), id="all grades equal"),
        pytest.param(crowd().assign(grade=lambda frame: frame["grade"] * 2), id="a grade nobody used"),
    ],
)
def test_small_and_odd_inputs_work(cls: type[Aggregator], frame: pd.DataFrame) -> None:
    model = fitted(cls, frame)
    numbers = documents(model).select_dtypes("number")
    assert np.isfinite(numbers).all(axis=None)
    assert np.isfinite(assessors(model).select_dtypes("number")).all(axis=None)


@each
@pytest.mark.parametrize("threads", [1, 2])
def test_same_data_same_bytes_whatever_the_threads(cls: type[Aggregator], threads: int) -> None:
    frame = crowd(items=300)
    one = fitted(cls, frame, engine=LocalEngine(1, shard_size=100))
    other = fitted(cls, frame, engine=LocalEngine(threads, shard_size=100))
    assert one.consensus_.document_table.equals(other.consensus_.document_table)
    assert one.consensus_.assessor_table.equals(other.consensus_.assessor_table)


@each
def test_other_shards_are_equal_to_rounding(cls: type[Aggregator]) -> None:
    frame = crowd(items=300)
    whole, cut = fitted(cls, frame), fitted(cls, frame, engine=LocalEngine(2, shard_size=50))
    assert_close(documents(whole), documents(cut), 1e-8)
    assert_close(assessors(whole), assessors(cut), 1e-8)


@each
def test_save_and_load_round_trip(cls: type[Aggregator], tmp_path: Path) -> None:
    frame = crowd()
    gold = frame.drop_duplicates(["query", "document"]).head(5)
    model = fitted(cls, frame, gold=gold)
    model.save(tmp_path / "model")
    for loader in (cls, Aggregator):
        loaded = loader.load(tmp_path / "model")
        assert type(loaded) is cls
        assert loaded.get_params() == model.get_params()
        assert loaded.consensus_.document_table.equals(model.consensus_.document_table)
        assert loaded.consensus_.assessor_table.equals(model.consensus_.assessor_table)
        assert loaded.history_ == pytest.approx(model.history_, nan_ok=True)
        assert loaded.predict(frame).equals(model.predict(frame))
    more = crowd(seed=1).assign(document=lambda new: new["document"] + "-new")
    assert_close(documents(loaded.add(more)), documents(model.add(more)), 1e-12)
    written = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert not [path for path in written if path.suffix not in (".json", ".parquet")]


@each
def test_clone_has_the_settings_and_nothing_learned(cls: type[Aggregator]) -> None:
    model = fitted(cls, crowd())
    copy = clone(model.set_params(interval=0.5))
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "consensus_")


@each
def test_fit_predict_equals_fit_then_predict(cls: type[Aggregator]) -> None:
    frame = crowd()
    model = fitted(cls, frame)
    assert model.predict().equals(model.predict(frame))
    assert cls().fit_predict(frame).equals(model.predict())
    proba = model.predict_proba(frame)
    assert np.allclose(proba.to_numpy(), documents(model).loc[proba.index, ["p0", "p1", "p2"]], atol=1e-12)


@each
def test_adding_in_two_steps_ends_where_one_fit_ends(cls: type[Aggregator]) -> None:
    frame = crowd(items=120)
    half = frame["document"].isin(frame["document"].unique()[:60])
    one = fitted(cls, frame)
    two = fitted(cls, frame[half]).add(frame[~half])
    gap = (documents(one)["relevance"] - documents(two)["relevance"]).abs()
    assert gap.mean() < 0.02
    assert (documents(one)["judgments"] == documents(two)["judgments"]).all()


@each
def test_adding_the_same_judgments_again_changes_nothing(cls: type[Aggregator]) -> None:
    frame = crowd()
    model = fitted(cls, frame)
    before = documents(model)
    assert_close(before, documents(model.add(frame)), 0.005)


@each
def test_gold_is_held(cls: type[Aggregator]) -> None:
    frame = crowd()
    gold = pd.DataFrame({"query": ["even", "odd"], "document": ["d0", "d1"], "grade": [2, 0]})
    model = fitted(cls, frame, gold=gold)
    table = documents(model)
    assert table.loc[("even", "d0"), "grade"] == 2
    assert table.loc[("odd", "d1"), "grade"] == 0
    assert table.loc[("even", "d0"), "p2"] == pytest.approx(1)
    assert "gold_accuracy" in assessors(model)


@each
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_results_come_back_in_the_same_library(cls: type[Aggregator], library: Any) -> None:
    frame = crowd()
    given_frame = library(frame.to_dict("list"))
    consensus = fitted(cls, given_frame).consensus_
    assert type(consensus.documents) is type(given_frame)
    assert type(consensus.assessors) is type(given_frame)


@each
def test_crowd_kit_frames_work(cls: type[Aggregator]) -> None:
    frame = crowd().query("query == 'odd'")
    renamed = frame.rename(columns={"document": "task", "assessor": "worker", "grade": "label"}).drop(columns="query")
    labels = cls().fit_predict(renamed)
    assert list(labels.index) == list(renamed["task"].drop_duplicates())
    assert labels.index.name == "task"


@each
def test_cannot_judge_answers_are_used_as_chosen(cls: type[Aggregator]) -> None:
    frame = crowd()
    broken = pd.DataFrame({"query": "even", "document": "broken", "assessor": ["w0", "w1", "w2"], "grade": -2})
    judgments = read_judgments(pd.concat([frame, broken]), unjudgeable=-2)
    lowest = documents(cls().set_params(unjudgeable_as="lowest").fit(judgments))
    assert lowest.loc[("even", "broken"), "grade"] == 0
    assert ("even", "broken") not in documents(cls().set_params(unjudgeable_as="drop").fit(judgments)).index


@each
def test_mixed_scales_are_taken_or_refused_without_a_map(cls: type[Aggregator], tmp_path: Path) -> None:
    frame = pd.DataFrame({"document": ["a", "a"], "assessor": ["crowd", "llm"], "grade": [1, 3]})
    scales = tmp_path / "scales.csv"
    scales.write_text("assessor,grades\ncrowd,0-1\nllm,0-3\n")
    if cls.takes_scales:
        assert documents(fitted(cls, read_judgments(frame, scales=scales)))["grade"].isin(range(4)).all()
    else:
        with pytest.raises(ValueError, match="2 scales"):
            cls().fit(read_judgments(frame, scales=scales))
    scales.write_text("assessor,grades,maps_to\ncrowd,0-1,0|3\nllm,0-3,0|1|2|3\n")
    model = fitted(cls, read_judgments(frame, scales=scales))
    assert documents(model)["grade"].tolist() == [3]


@each
def test_progress_is_reported_every_iteration(cls: type[Aggregator]) -> None:
    seen: list[int] = []
    model = fitted(cls, crowd(), progress=lambda iteration, most, objective: seen.append(iteration))
    assert seen == list(range(1, model.n_iter_ + 1))


@each
def test_starting_from_another_kind_is_refused(cls: type[Aggregator]) -> None:
    other = next(kind for kind in AGGREGATORS if kind is not cls)
    with pytest.raises(UsageError, match="starts from its own kind"):
        cls().fit(crowd(), init=fitted(other, crowd()))


@each
def test_unknown_settings_are_refused(cls: type[Aggregator]) -> None:
    with pytest.raises(UsageError, match="has no parameter 'depth'"):
        cls().set_params(depth=3)
    with pytest.raises(UsageError, match="interval is a level between 0 and 1"):
        cls().set_params(interval=1.5).fit(crowd())


@pytest.mark.parametrize("cls", VOTES)
@settings(max_examples=25, deadline=None)
@given(grade=st.integers(0, 4), voters=st.integers(1, 7))
def test_unanimity_wins(cls: type[Aggregator], grade: int, voters: int) -> None:
    frame = pd.DataFrame({"document": "d", "assessor": [f"w{number}" for number in range(voters)], "grade": grade})
    other = pd.DataFrame({"document": "e", "assessor": ["w0", "w1"], "grade": [0, 4]})
    table = documents(fitted(cls, pd.concat([frame, other])))
    row = table.xs("d", level="document").iloc[0]
    assert row["grade"] == grade == row["relevance"]
    assert row["sd"] > 0  # a few votes are not certainty


@each
def test_added_judgments_are_read_on_the_models_scale(cls: type[Aggregator]) -> None:
    names = {0: "Bad", 1: "Fair", 2: "Good"}
    frame = crowd().assign(grade=lambda made: made["grade"].map(names))
    model = cls().fit(read_judgments(frame, grades=list(names.values()), unjudgeable="broken"))
    more = pd.DataFrame(
        {"query": "odd", "document": ["new", "new"], "assessor": ["w0", "w1"], "grade": ["Good", "broken"]}
    )
    assert documents(model.add(more)).loc[("odd", "new"), "judgments"] == 2


@each
def test_saving_spares_a_folder_of_other_things(cls: type[Aggregator], tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    model = fitted(cls, crowd())
    with pytest.raises(OSError, match="crowdrank did not write it"):
        model.save(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


@each
def test_grade_curves_are_probabilities_where_a_model_has_them(cls: type[Aggregator]) -> None:
    model = fitted(cls, crowd())
    if model.states(model.theta_) is None:
        with pytest.raises(UsageError, match="no curves"):
            model.grade_curves()
        return
    table = model.grade_curves()
    assert set(table["assessor"]) == set(crowd()["assessor"])
    assert np.allclose(table[["p0", "p1", "p2"]].sum(axis=1), 1, atol=1e-6)
    one = model.grade_curves("w0")
    assert one.reset_index(drop=True).equals(table[table["assessor"] == "w0"].reset_index(drop=True))
    with pytest.raises(ValueError, match="no assessor 'nobody'"):
        model.grade_curves("nobody")
