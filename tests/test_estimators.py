"""Parameters of estimators: constraints, nested names, and setting all of them or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import crowdrank
from crowdrank import GLS, RD, DawidSkene, Ensemble, GDAPairwiseMART, LambdaMART, PointwiseGBDT
from crowdrank._estimator import Estimator
from crowdrank.constraints import Constraints, Flag, InstanceOf, Number, OneOf, Parsed, SequenceOf, check_parameter
from crowdrank.errors import NotFittedError, UsageError
from crowdrank.evaluation.measures import parse_gains


class Base(Estimator):
    _parameter_constraints: ClassVar[Constraints] = {"size": [Number(1, integer=True)], "missing": [Flag()]}

    def __init__(self, size: Any = 1) -> None:
        self.size = size


class Derived(Base):
    _parameter_constraints: ClassVar[Constraints] = {"size": [Number(2, integer=True)], "mode": [OneOf("a", "b"), None]}

    def __init__(self, size: Any = 2, mode: Any = None, inner: Any = None) -> None:
        super().__init__(size)
        self.mode, self.inner = mode, inner


@pytest.mark.parametrize(
    ("constraint", "valid", "invalid"),
    [
        (Number(1, integer=True), [1, np.int64(5), 10**30], [0, 1.0, True, "1", None, np.float64(2)]),
        (Number(0, 1, above=True, below=True), [0.5, np.float32(0.5)], [0, 1, -1, float("nan"), False]),
        (Number(0, finite=False), [0, float("inf")], [float("nan"), -1e-9]),
        (Number(0), [0, 3], [float("inf")]),
        (OneOf("a", "b", 0), ["a", 0, 0.0, np.str_("b")], ["c", None, False, ["a"], np.array(["a", "b"])]),
        (Flag(), [True, np.bool_(False)], [0, 1, "True", None]),
        (SequenceOf(Number(0)), [[1], (0, 2.5), np.array([1.0])], [[], "12", [-1], 3, {1}, np.array(1.0)]),
        (SequenceOf(Number(0), length=2), [(1, 2)], [(1,), (1, 2, 3)]),
        (SequenceOf(Number(0), empty=True), [()], ["", None]),
        (InstanceOf(dict, "a dict"), [{}], [[], None]),
    ],
)
def test_constraints(constraint: Any, valid: list[Any], invalid: list[Any]) -> None:
    assert [value for value in valid if not constraint.accepts(value)] == []
    assert [value for value in invalid if constraint.accepts(value)] == []


def test_an_invalid_value_names_the_parameter_the_alternatives_and_a_close_value() -> None:
    with pytest.raises(UsageError) as caught:
        check_parameter("mode", "lowset", [OneOf("lowest", "drop"), None])
    assert caught.value.parameter == "mode"
    assert caught.value.kind == "invalid-parameter"
    assert str(caught.value) == "mode must be one of lowest, drop or None, not 'lowset' (did you mean 'lowest'?)."


def test_a_parsed_value_keeps_the_error_of_its_parser() -> None:
    with pytest.raises(UsageError, match="decrease"):
        check_parameter("gains", (3, 1), [Parsed(parse_gains)])
    with pytest.raises(UsageError):
        check_parameter("gains", object(), [Parsed(parse_gains)])


def test_constraints_of_a_subclass_replace_those_of_its_base() -> None:
    Base(1)._check_parameters()
    Derived(2, "a")._check_parameters()
    for wrong, name in ((Base(0), "size"), (Derived(1), "size"), (Derived(2, "c"), "mode")):
        with pytest.raises(UsageError) as caught:
            wrong._check_parameters()
        assert caught.value.parameter == name


def test_nested_parameters_are_read_and_set() -> None:
    made = RD(GLS(mu=2.0))
    assert made.get_params()["estimator__mu"] == 2.0
    assert "estimator__mu" not in made.get_params(deep=False)
    made.set_params(estimator__mu=3.0, delta=2.0)
    assert (made.get_params()["estimator__mu"], made.delta) == (3.0, 2.0)
    pair = Ensemble([LambdaMART(), GLS()]).set_params(members__1__mu=5.0)
    assert pair.get_params()["members__1__mu"] == 5.0
    deep = Derived(inner=made).set_params(inner__estimator__mu=4.0)
    assert deep.get_params()["inner__estimator__mu"] == 4.0
    replaced = made.set_params(estimator__n_estimators=4, estimator=PointwiseGBDT(target="gain")).get_params()
    assert (replaced["estimator__n_estimators"], replaced["estimator__target"]) == (4, "gain")


@pytest.mark.parametrize(
    "wrong",
    [
        {"delta": 3.0, "seed": 1},
        {"estimator__mu": 3.0, "estimator__nu": 4},
        {"delta": 3.0, "delta__nothing": 1},
        {"estimator__target": "gain", "estimator__mu": 1.0, "estimator__mu__deeper": 1},
    ],
)
def test_set_params_changes_all_or_nothing(wrong: dict[str, Any]) -> None:
    made = RD(GLS(mu=2.0), delta=5.0)
    before = repr(made.get_params())
    with pytest.raises(UsageError) as caught:
        made.set_params(**wrong)
    assert caught.value.kind == "unknown-parameter"
    assert repr(made.get_params()) == before


def test_an_unknown_parameter_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"'n_estimator' \(did you mean 'n_estimators'\?\)"):
        LambdaMART().set_params(n_estimator=5)


def test_copies_do_not_share_estimators_unless_they_are_used_as_fitted() -> None:
    made = RD(GLS(mu=7.0))
    copy = made.unfitted().set_params(estimator__mu=3.0)
    assert made.get_params()["estimator__mu"] == 7.0
    assert copy.estimator is not made.estimator
    world = crowdrank.simulate(queries=10, documents=6, labels=3, random_state=1)
    model = crowdrank.GDAPairwise().fit(world.judgments)
    assert GDAPairwiseMART(model).unfitted().model is model
    fitted = [GLS().fit([[0.0], [1.0]], [0, 1], query=[1, 1])]
    assert Ensemble(fitted, prefit=True).unfitted().members is fitted
    assert Ensemble(fitted).unfitted().members is not fitted


def test_saved_parameters_are_checked_on_load(tmp_path: Path) -> None:
    ranker = GLS(mu=[1.0, 2.0]).set_params(random_state=np.int64(3))
    ranker.fit([[0.0], [1.0], [3.0]], [0, 1, 2], query=[1] * 3, eval_set=([[0.0], [1.0]], [0, 1], [1, 1]))
    ranker.save(tmp_path / "ranker")
    assert GLS.load(tmp_path / "ranker").get_params() == {**ranker.get_params(), "mu": (1.0, 2.0), "random_state": 3}


def test_a_ranker_of_the_users_own_class_is_loaded(tmp_path: Path) -> None:
    class OwnGLS(GLS):
        pass

    OwnGLS().fit([[0.0], [1.0]], [0, 1], query=[1, 1]).save(tmp_path / "own")
    assert type(OwnGLS.load(tmp_path / "own")) is OwnGLS
    assert type(crowdrank.Ranker.load(tmp_path / "own")) is OwnGLS


def test_not_fitted_is_an_error_of_scikit_learn_too() -> None:
    theirs = pytest.importorskip("sklearn.exceptions")
    with pytest.raises(theirs.NotFittedError):
        DawidSkene().predict()
    with pytest.raises(NotFittedError):
        GLS().predict([[1.0]])
