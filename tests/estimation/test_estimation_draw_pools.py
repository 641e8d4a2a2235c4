"""Test that documents which were drawn for some rankings are not used to compare others."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from estimation_worlds import make_world
from typer.testing import CliRunner

import crowdrank
from crowdrank.cli.app import app
from crowdrank.collection.compare_runs import CompareRuns, pool_of_runs
from crowdrank.errors import DataWarning, InputError
from crowdrank.evaluation.evaluate import evaluate

WORLD = make_world(150)
LIVE, NEW = WORLD.runs["live"], WORLD.runs["new"]
NOISE = np.random.default_rng(5).normal(0, 2, len(LIVE))
OTHER = LIVE.assign(score=NOISE)


def draw(
    runs: dict[str, pd.DataFrame], measure: str = "nDCG@5", pairs: pd.DataFrame | None = None, seed: int = 0
) -> pd.DataFrame:
    policy = CompareRuns(runs, WORLD.labels, measure=measure, random_state=seed)
    frame: pd.DataFrame = policy.next(pool_of_runs(runs, measure) if pairs is None else pairs, budget=150).frame
    return frame.merge(WORLD.truth, on=["query", "document"])


def refused(runs: dict[str, pd.DataFrame], sample: pd.DataFrame, measure: str = "nDCG@5") -> str:
    with pytest.raises(InputError) as caught:
        crowdrank.estimate(runs, WORLD.labels, sample, measure=measure)
    assert caught.value.fixes
    return caught.value.kind


def test_a_sample_for_other_rankings_or_a_deeper_measure_is_refused() -> None:
    sample = draw({"live": LIVE, "new": NEW})
    assert refused({"live": LIVE, "other": OTHER}, sample) == "drawn-for-others"
    assert refused({"live": LIVE, "new": NEW}, sample, "P@10") == "drawn-for-others"
    assert refused({"live": LIVE, "new": NEW}, sample, "DCG") == "drawn-for-others"


def test_a_sample_fits_its_rankings_in_any_order_part_of_them_and_a_smaller_cutoff() -> None:
    sample = draw({"live": LIVE, "new": NEW, "other": OTHER})
    first = NEW["score"].groupby(NEW["query"]).rank(ascending=False) <= 5
    reversed_first = NEW.assign(score=np.where(first, 100 - NEW["score"], NEW["score"]))
    for runs in ({"live": LIVE, "new": NEW}, {"other": OTHER, "new": reversed_first}):
        for measure in ("nDCG@5", "P@3", "DCG@1"):
            assert crowdrank.estimate(runs, WORLD.labels, sample, measure=measure).unit == "document"
    without = sample.drop(columns="drawn_for")
    assert crowdrank.estimate({"live": LIVE, "other": NEW}, WORLD.labels, without, measure="P@10").unit == "document"


def test_a_sample_of_all_labeled_documents_is_unbiased_for_any_ranking() -> None:
    pairs, runs = WORLD.labels[["query", "document"]], {"live": LIVE, "other": OTHER}
    truth = [evaluate(run, WORLD.truth, "P@5", no_relevant="zero").means["P@5"] for run in runs.values()]
    errors = []
    for seed in range(30):
        sample = draw({"live": LIVE, "new": NEW}, "P@5", pairs, seed)
        table = crowdrank.estimate(runs, WORLD.labels, sample, measure="P@5").table
        errors.append(table["difference"][1] - (truth[1] - truth[0]))
    assert abs(np.mean(errors)) < 4 * np.std(errors, ddof=1) / np.sqrt(30)


def test_first_documents_that_are_not_in_the_pool_are_a_warning_and_refused_later() -> None:
    runs, pairs = {"live": LIVE, "new": NEW}, WORLD.truth[["query", "document"]].iloc[3:]
    requests = CompareRuns(runs, WORLD.labels, measure="nDCG@5").next(pairs, budget=150)
    assert [note.kind for note in requests.notes] == ["pairs-not-drawn"]
    sample = requests.frame.merge(WORLD.truth, on=["query", "document"])
    assert refused(runs, sample) == "drawn-for-others"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        assert crowdrank.estimate(runs, WORLD.labels.iloc[3:], sample, measure="nDCG@5").unit == "document"


def test_the_commands_keep_what_documents_were_drawn_for(tmp_path: Path) -> None:
    for name, run in {"live": LIVE, "new": NEW, "other": OTHER}.items():
        run.to_csv(tmp_path / f"{name}.csv", index=False)
    WORLD.labels.to_csv(tmp_path / "labels.csv", index=False)
    runs, labels = f"{tmp_path / 'live.csv'},{tmp_path / 'new.csv'}", ["--labels", str(tmp_path / "labels.csv")]

    def invoke(*words: object) -> tuple[int, BaseException | None]:
        done = CliRunner().invoke(app, list(map(str, words)))
        return done.exit_code, done.exception

    sample, graded, expert = (tmp_path / name for name in ("sample.csv", "graded.csv", "expert.csv"))
    drawn = ["--policy", "compare", "--runs", runs, *labels, "--kind", "expert", "--budget", 100, "-o", sample]
    assert invoke("collect", "next", expert, *drawn)[0] == 0
    pd.read_csv(sample).merge(WORLD.truth, on=["query", "document"]).to_csv(graded, index=False)
    assert invoke("collect", "add", expert, graded)[0] == 0
    for file in (graded, expert):
        used = ["--against", tmp_path / "live.csv", *labels, "--expert", file]
        assert invoke("gate", tmp_path / "new.csv", *used)[0] in (0, 1, 3)
        error = invoke("gate", tmp_path / "other.csv", *used)[1]
        assert isinstance(error, InputError)
        assert error.kind == "drawn-for-others"
