"""Test that gold pairs calibrate the labels of a project."""

from __future__ import annotations

import numpy as np
import pytest

from crowdrank._typing import Floats
from crowdrank.service.domain.pairs import PairRow
from crowdrank.service.model import fits
from crowdrank.service.store import schema
from crowdrank.service.store.database import Database

from .judging import Judging

pytestmark = pytest.mark.filterwarnings("ignore::crowdrank.errors.DataWarning")


def judge_gold(database: Database, n_gold: int, *, calibrate: bool) -> Judging:
    """Return a project whose two assessors agree on all pairs, and are right on three of five gold pairs."""
    judging = Judging(database, n_pairs=120, kinds=("human",) * 2, honeypot_share=0.5, calibrate=calibrate)
    grades = [number % 4 if number % 5 < 3 else (number + 1) % 4 for number in range(n_gold)]
    judging.add(
        *(PairRow(f"g{n}", f"g{n}", kind="gold", gold_grade=grade, body="text") for n, grade in enumerate(grades))
    )
    for assessor in judging.assessors:
        while leases := judging.next(assessor).leases:
            document = leases[0].content.document
            grade = int(str(document).lstrip("gd")) % 4
            judging.answer(assessor, leases[0], grade=grade)
    return judging


def probabilities(judging: Judging) -> Floats:
    rows = sorted(judging.rows(schema.standing), key=lambda row: row["pair_id"])
    return np.array([row["probabilities"] for row in rows])


def test_gold_pairs_calibrate_all_labels(database: Database) -> None:
    judging = judge_gold(database, 40, calibrate=True)
    fitted = fits.fit_project(database, judging.project, "majority")
    assert fitted.calibration is not None
    assert fitted.calibration.is_applied
    assert fitted.calibration.n_expert_grades == 40
    found = probabilities(judging)
    assert len(found) == 160
    assert found.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert 0.4 < found.max(axis=1).mean() < 0.8
    updated = fits.update_queries(database, judging.project, fitted, ["q0"], [1, 2])
    assert updated.calibration == fitted.calibration
    np.testing.assert_allclose(probabilities(judging), found)


@pytest.mark.parametrize(("n_gold", "calibrate"), [(19, True), (40, False)])
def test_few_gold_pairs_or_the_setting_leave_labels_alone(database: Database, n_gold: int, calibrate: bool) -> None:
    judging = judge_gold(database, n_gold, calibrate=calibrate)
    fitted = fits.fit_project(database, judging.project, "majority")
    assert (fitted.calibration is None) == (not calibrate)
    assert probabilities(judging).max(axis=1) == pytest.approx(1)
