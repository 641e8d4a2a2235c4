"""The public data sets, as published: their sizes, scales and gold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crowdrank import Judgments, read_features, read_gold, read_judgments
from crowdrank.errors import InputError
from crowdrank.readers.validation import check_expert_grades
from judgments_reference import check

pytestmark = pytest.mark.data


def test_trec_rf10(data_folder: Path) -> None:
    path = data_folder / "trec-rf10" / "trec-rf10-data.txt.gz"
    judgments = read_judgments(path, format="trec-rf10", repeats="keep")
    check(judgments)
    assert len(judgments) == judgments.report.rows == 98_453
    assert (judgments.n_assessors, judgments.n_items, judgments.n_queries) == (766, 20_232, 100)
    assert str(judgments.scale) == "0-2"
    assert len(read_gold(path, format="trec-rf10", unjudgeable_as="drop")) == 3_277
    gold = read_gold(path, format="trec-rf10")
    assert len(gold) == 4_460
    thin = read_judgments(path, format="trec-rf10")
    check(thin)
    assert len(thin) + thin.report.repeats == 98_453
    known = gold.for_items(thin).code
    assert (known >= 0).sum() == 4_460
    planted = np.add.reduceat(thin.extras["honeypot"] == -1, thin.offsets[:-1]) > 0
    assert planted.sum() == 4_460 - 3_277
    assert (known[planted] == 0).all()


def test_web_5grade(data_folder: Path) -> None:
    judgments = read_judgments(data_folder / "web-5grade" / "label.csv", repeats="keep")
    check(judgments)
    assert len(judgments) == 15_567
    assert (judgments.n_assessors, judgments.n_items, judgments.n_queries) == (177, 2_665, 1)
    assert str(judgments.scale) == "0-4"
    gold = read_gold(data_folder / "web-5grade" / "truth.csv")
    assert len(gold) == 2_653
    assert str(gold.scale) == "0-4"


def test_trec_dl20(data_folder: Path) -> None:
    path = data_folder / "trec-dl20" / "llm_graded_labels.tsv.gz"
    judgments = read_judgments(path, grades="0-3", on_bad_rows="skip")
    check(judgments)
    assert judgments.report.rows == 666_826
    assert judgments.report.skipped == {"grade off the scale": 144}
    assert (judgments.n_assessors, judgments.n_items, judgments.n_queries) == (81, 11_386, 54)
    with pytest.raises(InputError, match=r"row \d+ \(line \d+\), column 'label': the grade \d is off the scale 0-3"):
        read_judgments(path, grades="0-3")
    features = read_features(data_folder / "trec-dl20" / "judged_features.tsv.gz")
    assert features.matrix.shape == (11_386, 83)
    assert np.isnan(features.matrix).mean() == pytest.approx(0.56, abs=0.01)
    assert np.isnan(features.matrix).all(axis=1).sum() == 1_648
    gold = read_gold(data_folder / "trec-dl20" / "judged_features.tsv.gz")
    assert (gold.for_items(judgments).code >= 0).all()


def test_the_row_named_is_the_first_bad_one(data_folder: Path) -> None:
    import gzip

    path = data_folder / "trec-dl20" / "llm_graded_labels.tsv.gz"
    with pytest.raises(InputError) as caught:
        read_judgments(path, grades="0-3")
    line = int(str(caught.value).split("(line ")[1].split(")")[0])
    with gzip.open(path, "rt") as stream:
        grades = [int(text.rsplit("\t", 1)[1]) for number, text in enumerate(stream, start=1) if 2 <= number <= line]
    assert grades[-1] > 3
    assert max(grades[:-1]) <= 3


def test_mq2008(data_folder: Path) -> None:
    parts = [read_features(data_folder / "mq2008" / f"S{part}.txt.gz", format="letor") for part in range(1, 6)]
    assert sum(len(part.query) for part in parts) == 15_211
    assert sum(len(part.query.unique()) for part in parts) == 784
    assert {part.matrix.shape[1] for part in parts} == {46}
    assert {grade for part in parts if part.grade is not None for grade in part.grade.tolist()} == {0, 1, 2}
    assert parts[0].document[0].as_py().startswith("GX")
    assert np.isfinite(parts[0].matrix).all()


def test_mslr_5k(data_folder: Path) -> None:
    parts = [read_features(data_folder / "mslr-5k" / f"{part}.txt.gz", format="letor") for part in ("train", "test")]
    assert [part.matrix.shape for part in parts] == [(5_000, 136), (5_000, 136)]
    assert sum(len(part.query.unique()) for part in parts) == 86
    assert {grade for part in parts if part.grade is not None for grade in part.grade.tolist()} == {0, 1, 2, 3, 4}
    assert parts[0].document[:3].to_pylist() == ["1", "2", "3"]
    gold = read_gold(data_folder / "mslr-5k" / "train.txt.gz", format="letor")
    assert (len(gold), str(gold.scale)) == (5_000, "0-4")


def test_dl19_people(data_folder: Path) -> None:
    folder = data_folder / "dl19-people"
    main = read_judgments(folder / "main")
    check(main)
    assert (len(main), main.n_assessors) == (9_004, 8)
    assert main.scale.names == ("Not Relevant (0)", "Relevant (1)", "Highly Relevant (2)", "Perfectly Relevant (3)")
    agreement = read_judgments(str(folder / "agreement" / "*.jsonl"))
    check(agreement)
    assert (len(agreement), agreement.n_assessors, agreement.n_items) == (1_503, 8, 188)
    assert agreement.report.skipped == {"not labeled": 754, "several labels": 1}
    assert agreement.report.repeats_by_assessor.keys() == {"annotator-6", "annotator-7"}
    both = read_judgments([folder / "main", folder / "agreement"])
    assert both.n_assessors == 8
    assert len(both) + both.report.repeats == 9_004 + 1_503 + 376


def test_shifted_grades_of_trec_dl20_are_found(data_folder: Path) -> None:
    path = data_folder / "trec-dl20"
    judgments = read_judgments(
        path / "llm_graded_labels.tsv.gz", columns="assessor=judge", grades="0-3", on_bad_rows="skip"
    )
    columns = {"qid": "query", "docid": "document", "nist_grade": "grade"}
    experts = pd.read_csv(path / "judged_features.tsv.gz", sep="\t", usecols=list(columns)).rename(columns=columns)
    assert warnings_of(experts, judgments) == []
    for step in (1, -1):
        shifted = experts.assign(grade=np.roll(experts["grade"], step))
        assert warnings_of(shifted, judgments) == ["shifted-ids"]


def warnings_of(experts: pd.DataFrame, judgments: Judgments) -> list[str]:
    found = check_expert_grades(read_gold(experts), judgments)
    return [message.kind for message in found if message.severity == "warning"]
