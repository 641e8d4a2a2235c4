"""The joint fit of assessors and documents: partners, experts, thin graphs and large crowds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from crowdrank import Average, assess, read_judgments
from crowdrank.assessors import severity as joint
from crowdrank.assessors.assessor_report import describe_thin
from crowdrank.assessors.severity import Severity, fit_severity
from crowdrank.judgments.table import Judgments

BIAS = {"strict": -1.0, "partner": 0.0, "a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0}
COUPLES = (("strict", "partner"), ("a", "b"), ("c", "d"))


def couples(shared: int, seed: int = 0, sd: float = 0.3) -> pd.DataFrame:
    """Return judgments of three couples, 200 documents each, and of documents that all of them judged."""
    rng = np.random.default_rng(seed)
    rows = []
    for document in range(600 + shared):
        truth = rng.integers(1, 4)
        judges = COUPLES[document % 3] if document < 600 else tuple(BIAS)
        rows += [(document, who, int(np.clip(round(truth + BIAS[who] + rng.normal(0, sd)), 0, 4))) for who in judges]
    return pd.DataFrame(rows, columns=["document", "assessor", "grade"])


def fitted(frame: pd.DataFrame, **options: object) -> pd.DataFrame:
    table = read_judgments(frame)
    found: Severity = fit_severity(table, **options)  # type: ignore[arg-type]
    columns = {"bias": found.bias, "error": found.error, "by_experts": found.by_experts, "group": found.group}
    return pd.DataFrame(columns, index=table.assessors.to_pylist())


def test_the_partner_of_a_strict_person_is_not_lenient() -> None:
    found = fitted(couples(60))
    assert found["bias"]["partner"] == pytest.approx(1 / 6, abs=0.1)
    assert found["bias"]["strict"] == pytest.approx(-5 / 6, abs=0.1)
    report = assess(Average().fit(couples(60))).table.to_pandas().set_index("assessor")
    assert report["flag"]["strict"] == "strict"
    assert report["flag"]["partner"] not in ("lenient", "strict")


def test_couples_without_shared_documents_have_no_sign() -> None:
    found = fitted(couples(0))
    assert found["group"].nunique() == 3
    assert found["bias"].isna().all()
    assert np.isinf(found["error"]).all()
    report = assess(Average().fit(couples(0))).table.to_pandas()
    assert set(report["bias_reference"]) == {"thin"}
    assert describe_thin(report["bias_reference"].tolist()).startswith("6 of 6 assessors cannot be flagged strict")
    assert not report["flag"].isin(["strict", "lenient"]).any()


def test_a_bridge_of_one_document_has_a_large_error() -> None:
    thin, connected = fitted(couples(1, sd=0.8)), fitted(couples(100, sd=0.8))
    assert (thin["error"] > 4 * connected["error"]).all()


def test_errors_cover_the_truth() -> None:
    truth = pd.Series(BIAS) - pd.Series(BIAS).mean()
    z = [(one["bias"] - truth) / one["error"] for one in (fitted(couples(60, seed, 0.8)) for seed in range(40))]
    # Grades at the ends of the scale are clipped: the strict assessor's bias is a little smaller.
    inside = pd.concat([one.drop("strict").abs() < 2.6 for one in z])
    assert inside.mean() > 0.9


def test_experts_connect_couples_and_set_the_zero() -> None:
    frame = couples(0)
    grade = frame[frame["assessor"].isin(["partner", "a", "c"])].groupby("document")["grade"].first().to_numpy(float)
    found = fitted(frame, expert_grade=grade)
    assert found["by_experts"].all()
    assert found["bias"].to_dict() == pytest.approx(BIAS, abs=0.1)
    few = np.where(np.arange(600) < 9, grade, np.nan)
    assert not fitted(couples(60), expert_grade=np.append(few, np.full(60, np.nan)), max_level_error=1e-3)[
        "by_experts"
    ].any()


def test_many_assessors_give_the_same_biases_and_similar_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = fitted(couples(60))
    monkeypatch.setattr(joint, "MAX_EXACT_ASSESSORS", 2)
    drawn = fitted(couples(60))
    np.testing.assert_allclose(drawn["bias"], exact["bias"], atol=1e-7)
    np.testing.assert_allclose(drawn["error"], exact["error"], rtol=0.4)
    pd.testing.assert_frame_equal(drawn, fitted(couples(60)))


def test_left_out_assessors_change_no_bias_of_others() -> None:
    frame = couples(60)
    rng = np.random.default_rng(1)
    noise = pd.DataFrame({"document": np.arange(660), "assessor": "noise", "grade": rng.integers(3, 5, 660)})
    table: Judgments = read_judgments(pd.concat([frame, noise]))
    names = table.assessors.to_pylist()
    found = fit_severity(table, left_out=np.array([name == "noise" for name in names]))
    bias = dict(zip(names, found.bias, strict=True))
    assert {name: bias[name] for name in BIAS} == pytest.approx(fitted(frame)["bias"].to_dict())
    assert bias["noise"] > 1
