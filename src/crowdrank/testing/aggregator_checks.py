"""Checks that an aggregator satisfies its contract."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from crowdrank.consensus.model import Aggregator
from crowdrank.consensus.votes import Average, MajorityVote
from crowdrank.engine.passes import LocalEngine
from crowdrank.errors import ConvergenceWarning, DataWarning, InputError, NotFittedError, OutputError, UsageError
from crowdrank.readers.read import read_judgments
from crowdrank.testing.estimator_checks import assert_frames_close, frame_converters, raises

CROWD_SEEDS = range(3)
"""Random states of the example judgments in checks that rows or ids in another order change nothing."""
NO_PRIOR_PARAMETERS = {"prior": 0, "ability_sd": float("inf")}
"""Parameters that switch off the prior on assessors, for models that have these parameters."""


COPIES_TOLERANCE = 0.05
"""Maximum mean change of relevance, in standard deviations, if copies of an assessor are added to a family."""


def example_judgments(
    random_state: int = 0, n_items: int = 60, n_assessors: int = 8, n_grades: int = 3, judged_share: float = 0.6
) -> pd.DataFrame:
    """Return random judgments of documents of two queries by assessors of different quality.

    Args:
        random_state: random seed.
        n_items: number of documents.
        n_assessors: number of assessors.
        n_grades: number of grades.
        judged_share: probability that an assessor judges a document.

    """
    rng = np.random.default_rng(random_state)
    truth = rng.integers(0, n_grades, n_items)  # the first draw, as in `example_features`
    quality = rng.uniform(0.4, 0.95, n_assessors)
    item, assessor = np.nonzero(rng.random((n_items, n_assessors)) < judged_share)
    right = rng.random(len(item)) < quality[assessor]
    grade = np.where(right, truth[item], rng.integers(0, n_grades, len(item)))
    return pd.DataFrame(
        {
            "query": np.where(item % 2, "odd", "even"),
            "document": [f"d{number}" for number in item],
            "assessor": [f"w{number}" for number in assessor],
            "grade": grade,
        }
    )


def example_features(n_items: int = 60) -> pd.DataFrame:
    """Return a feature of the documents of `example_judgments`: the true grade with noise."""
    truth = np.random.default_rng(0).integers(0, 3, n_items)
    item = np.arange(n_items)
    score = truth + np.random.default_rng(1).normal(0, 0.5, n_items)
    return pd.DataFrame(
        {"query": np.where(item % 2, "odd", "even"), "document": [f"d{number}" for number in item], "score": score}
    )


def _fit_copy(model: Aggregator, judgments: Any, **options: Any) -> Aggregator:
    """Return a copy of the model, fitted without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        return model.unfitted().fit(judgments, **options)


def _document_frame(model: Aggregator) -> pd.DataFrame:
    frame: pd.DataFrame = model.consensus_.document_table.to_pandas()
    return frame.set_index(["query", "document"]).sort_index()


def _assessor_frame(model: Aggregator) -> pd.DataFrame:
    frame: pd.DataFrame = model.consensus_.assessor_table.to_pandas()
    return frame.set_index("assessor").sort_index()


def check_result_tables(model: Aggregator) -> None:
    """Check that fit returns the model, and that its tables of documents and assessors are complete and finite."""
    frame = example_judgments()
    assert model.fit(frame) is model, "fit must return the model itself"
    table, about = _document_frame(model), _assessor_frame(model)
    assert len(table) == len(frame[["query", "document"]].drop_duplicates()), "every document must have one row"
    expected = {"relevance", "sd", "lower", "upper", "grade", "p0", "p1", "p2", "judgments"}
    assert expected <= set(table.columns), f"the table of documents lacks {sorted(expected - set(table.columns))}"
    assert about["judgments"].sum() == len(frame) == table["judgments"].sum(), "both tables must count all judgments"
    for names in (model.consensus_.share_names, model.consensus_.true_share_names):
        assert np.allclose(table[names].sum(axis=1), 1), "the probabilities of grades must sum to 1"
    assert np.isfinite(table[["relevance", "sd", "lower", "upper"]]).all(axis=None), "relevance must be finite"
    inside = table["relevance"].between(table["lower"] - 1e-9, table["upper"] + 1e-9)
    assert inside.all(), "relevance must lie between lower and upper"
    assert model.converged_, "the model must converge on a small crowd"
    assert model.n_iter_ == len(model.history_), "history_ must have one value per iteration"


def check_predict_needs_fit(model: Aggregator) -> None:
    """Check that predict, infer, posterior and add raise NotFittedError before fit."""
    for name, method in (("predict", model.predict), ("infer", model.infer), ("posterior", model.posterior)):
        with raises(NotFittedError, f"{name} before fit"):
            method()
    with raises(NotFittedError, "add before fit"):
        model.add(example_judgments())


def check_unfitted_copy_of_fitted_model(model: Aggregator) -> None:
    """Check that an unfitted copy of a fitted model has the same parameters and is not fitted."""
    fitted = _fit_copy(model, example_judgments()).set_params(interval=0.5)
    copy = fitted.unfitted()
    assert copy.get_params() == fitted.get_params(), "a copy must have the same parameters"
    assert not copy.__sklearn_is_fitted__(), "a copy must not be fitted"


def check_order_of_rows_does_not_matter(model: Aggregator) -> None:
    """Check that shuffled judgments give the same tables."""
    for seed in CROWD_SEEDS:
        frame = example_judgments(seed)
        one, other = _fit_copy(model, frame), _fit_copy(model, frame.sample(frac=1, random_state=seed))
        assert_frames_close(_document_frame(one), _document_frame(other), 1e-6, "shuffling rows")
        assert_frames_close(_assessor_frame(one), _assessor_frame(other), 1e-6, "shuffling rows")


def check_ids_do_not_matter(model: Aggregator) -> None:
    """Check that the same judgments with other ids, which sort in another order, give the same results."""
    for seed in CROWD_SEEDS:
        frame, rng = example_judgments(seed), np.random.default_rng(seed)
        names = {
            column: {old: f"{number}-{old}" for old, number in zip(ids, rng.permutation(len(ids)), strict=True)}
            for column in ("query", "document", "assessor")
            for ids in [frame[column].unique()]
        }
        renamed = frame.assign(**{column: frame[column].map(names[column]) for column in names})
        one, other = _fit_copy(model, frame), _fit_copy(model, renamed)
        expected = _document_frame(one).rename(index=names["query"], level=0).rename(index=names["document"], level=1)
        assert_frames_close(expected.sort_index(), _document_frame(other), 1e-6, "renaming ids")
        expected = _assessor_frame(one).rename(index=names["assessor"]).sort_index()
        assert_frames_close(expected, _assessor_frame(other), 1e-6, "renaming ids")


def check_copied_documents_change_no_assessor(model: Aggregator) -> None:
    """Check that the parameters of assessors do not change if every document occurs four times.

    A prior has less effect with more data, so it is switched off. If that is impossible, the informativeness of
    assessors before and after must correlate; the bound is lower if a meta-estimator chose another model.
    """
    frame = example_judgments(n_items=80)
    has_no_prior = _switch_off_prior(model)
    copies = [frame.assign(document=frame["document"] + f"-copy{copy}") for copy in range(4)]
    fits = [_fit_copy(model, table) for table in (frame, pd.concat(copies))]
    once, many = map(_assessor_frame, fits)
    if "informativeness" in once.columns and not has_no_prior:
        correlation = np.corrcoef(once["informativeness"], many["informativeness"])[0, 1]
        same_model = len({type(fit.assessor_estimator_) for fit in fits}) == 1
        bound = 0.9 if same_model else 0.8
        assert correlation > bound, f"copies of documents must not change assessors; they correlate {correlation:.2f}"
    else:
        parameters = once.drop(columns="judgments")
        assert_frames_close(parameters, many.drop(columns="judgments"), 1e-4, "copying all documents")
    assert (many["judgments"] == 4 * once["judgments"]).all(), "judgments of copies must be counted"


def _switch_off_prior(model: Aggregator) -> bool:
    """Switch off the prior on assessors; return whether the model has a parameter for it that allows this."""
    known = {name: getattr(model, name) for name in NO_PRIOR_PARAMETERS if name in model._parameter_names()}
    model.set_params(**{name: NO_PRIOR_PARAMETERS[name] for name in known})
    try:
        model._check_parameters()
    except UsageError:
        model.set_params(**known)
        return False
    return bool(known)


def check_identical_assessors_are_equal(model: Aggregator) -> None:
    """Check that two assessors with the same judgments get the same parameters."""
    frame = example_judgments()
    twin = frame[frame["assessor"] == "w0"].assign(assessor="twin")
    about = _assessor_frame(_fit_copy(model, pd.concat([frame, twin])))
    other = about.loc[["twin"]].rename(index={"twin": "w0"})
    assert_frames_close(about.loc[["w0"]], other, 1e-12, "an assessor with the same judgments")


def check_small_inputs(model: Aggregator) -> None:
    """Check that results are finite for a single judgment, assessor or document, and for equal grades."""
    crowd = example_judgments()
    inputs = {
        "one judgment per document": crowd.drop_duplicates(["query", "document"]),
        "one assessor": crowd.query("assessor == 'w0'"),
        "one document": crowd.query("document == 'd0'"),
        "one judgment": crowd.head(1),
        "equal grades": crowd.assign(grade=1),
        "a grade that nobody used": crowd.assign(grade=crowd["grade"] * 2),
    }
    for name, frame in inputs.items():
        fitted = _fit_copy(model, frame)
        for table in (_document_frame(fitted), _assessor_frame(fitted)):
            assert np.isfinite(table.select_dtypes("number")).all(axis=None), f"{name} must give finite numbers"


def check_threads_do_not_change_results(model: Aggregator) -> None:
    """Check that results are identical for one and two threads."""
    frame = example_judgments(n_items=300)
    one, other = (_fit_copy(model, frame, engine=LocalEngine(n_jobs, shard_size=100)).consensus_ for n_jobs in (1, 2))
    assert one.document_table.equals(other.document_table), "documents must not depend on the number of threads"
    assert one.assessor_table.equals(other.assessor_table), "assessors must not depend on the number of threads"


def check_shard_size_does_not_matter(model: Aggregator) -> None:
    """Check that smaller shards give the same results up to rounding."""
    frame = example_judgments(n_items=300)
    whole, cut = _fit_copy(model, frame), _fit_copy(model, frame, engine=LocalEngine(2, shard_size=50))
    assert_frames_close(_document_frame(whole), _document_frame(cut), 1e-8, "smaller shards")
    assert_frames_close(_assessor_frame(whole), _assessor_frame(cut), 1e-8, "smaller shards")


def check_save_and_load(model: Aggregator) -> None:
    """Check that a loaded model has the same parameters, results and predictions, and that judgments can be added."""
    frame = example_judgments()
    fitted = _fit_copy(model, frame, gold=frame.drop_duplicates(["query", "document"]).head(5))
    more = example_judgments(1).assign(document=lambda new: new["document"] + "-new")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        fitted.save(path)
        written = {one.suffix for one in path.rglob("*") if one.is_file()}
        assert written <= {".json", ".parquet"}, f"save must write JSON and Parquet only, not {written}"
        for loader in (type(model), Aggregator):
            loaded = loader.load(path)
            assert type(loaded) is type(model), "load must return a model of the same class"
            assert loaded.get_params() == fitted.get_params(), "load must restore the parameters"
            for name in ("document_table", "assessor_table"):
                same = getattr(loaded.consensus_, name).equals(getattr(fitted.consensus_, name))
                assert same, f"load must restore the {name} of consensus_"
            assert np.allclose(loaded.history_, fitted.history_, equal_nan=True), "load must restore history_"
            assert loaded.predict(frame).equals(fitted.predict(frame)), "a loaded model must predict the same"
    assert_frames_close(_document_frame(loaded.add(more)), _document_frame(fitted.add(more)), 1e-12, "add after load")


def check_features(model: Aggregator) -> None:
    """Check that a model refuses features, or uses, records and saves them and predicts documents without judgments."""
    frame, features = example_judgments(), example_features()
    try:
        model._check_features()
    except UsageError:
        with raises(UsageError, "features for a model without a prior", kind="no-prior", parameter="features"):
            model.unfitted().fit(frame, features=features)
        return
    first = features.iloc[0]
    rest = frame[(frame["query"] != first["query"]) | (frame["document"] != first["document"])]
    fitted = _fit_copy(model, rest, features=features)
    assert fitted.consensus_.features_used == ("score",), "the consensus must record the features"
    documents = fitted.consensus_.all_documents().to_pandas()
    assert len(documents) == len(features), "documents with features must get a row"
    assert documents["judgments"].tolist().count(0) == 1, "documents without judgments must have 0 of them"
    assert np.isfinite(documents.select_dtypes("number")).all(axis=None), "features must give finite numbers"
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "model")
        loaded = type(model).load(Path(folder) / "model").consensus_
    assert loaded.features_used == fitted.consensus_.features_used, "load must restore the names of features"
    assert loaded.all_documents().equals(fitted.consensus_.all_documents()), "load must restore all documents"
    plain = _fit_copy(model, rest).consensus_
    assert not plain.features_used, "a consensus without features must record none"
    assert plain.prediction_table is None, "a consensus without features must have judged documents only"


def check_copies_in_a_family_change_nothing(model: Aggregator) -> None:
    """Check that copies of an assessor in one family with correlation 1 hardly change results, if families are used."""
    parameters = model.get_params(deep=False)
    if "family_correlation" not in parameters:
        return
    model = model.set_params(families="column", family_correlation=1.0)
    frame = example_judgments(n_items=120).assign(family=lambda made: made["assessor"])
    copies = [frame[frame["assessor"] == "w0"].assign(assessor=f"copy {number}") for number in range(4)]
    alone, many = (_document_frame(_fit_copy(model, one)) for one in (frame, pd.concat([frame, *copies])))
    gap = float((alone["relevance"] - many.loc[alone.index, "relevance"]).abs().mean())
    limit = COPIES_TOLERANCE * float(alone["relevance"].std())
    assert gap < limit, f"copies within a family must not change relevance, which changed by {gap:.3f}"
    shares = [name for name in alone.columns if name in ("p0", "p1", "p2")]
    gap = float((alone[shares] - many.loc[alone.index, shares]).abs().to_numpy().mean())
    assert gap < COPIES_TOLERANCE / 5, f"copies within a family must not change P(grade), which changed by {gap:.3f}"
    expected = frame.groupby(["query", "document"]).size().loc[many.index]
    assert np.allclose(many["n_eff"], expected), "copies within a family must count as one judgment"


def check_save_keeps_other_files(model: Aggregator) -> None:
    """Check that save refuses a folder with files that crowdrank did not write."""
    fitted = _fit_copy(model, example_judgments())
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "notes.txt"
        other.write_text("mine")
        with raises(OutputError, "saving into a folder with other files"):
            fitted.save(folder)
        assert other.read_text() == "mine", "save must not touch other files"


def check_predict_equals_fit_predict(model: Aggregator) -> None:
    """Check that predict, fit_predict and predict_proba agree with the results of the fit."""
    frame = example_judgments()
    fitted = _fit_copy(model, frame)
    assert fitted.predict().equals(fitted.predict(frame)), "predict must return the labels of the fit"
    assert model.unfitted().fit_predict(frame).equals(fitted.predict()), "fit_predict must equal fit and predict"
    shares = fitted.predict_proba(frame)
    expected = _document_frame(fitted).loc[shares.index, fitted.consensus_.true_share_names]
    assert np.allclose(shares.to_numpy(), expected, atol=1e-12), "predict_proba must return the shares of the fit"


def check_fit_in_two_steps(model: Aggregator) -> None:
    """Check that a fit to half of the documents with the rest added later gives about the same results as one fit.

    A model that chooses another one keeps its choice, so it is compared with a fit of the chosen model.
    """
    frame = example_judgments(n_items=120)
    half = frame["document"].isin(frame["document"].unique()[:60])
    updated = _fit_copy(model, frame[half]).add(frame[~half])
    single: Aggregator = getattr(updated, "ranking_estimator_", updated)
    one, two = _document_frame(_fit_copy(single, frame)), _document_frame(updated)
    gap = float((one["relevance"] - two["relevance"]).abs().mean())
    assert gap < 0.02, f"adding in two steps must end where one fit ends; relevance differs by {gap:.3f}"
    assert (one["judgments"] == two["judgments"]).all(), "added judgments must be counted"


def check_adding_known_judgments_changes_nothing(model: Aggregator) -> None:
    """Check that results hardly change if the same judgments are added again."""
    frame = example_judgments()
    fitted = _fit_copy(model, frame)
    before = _document_frame(fitted)
    assert_frames_close(before, _document_frame(fitted.add(frame)), 0.005, "adding the same judgments again")


def check_added_judgments_use_the_scale(model: Aggregator) -> None:
    """Check that added judgments with named grades are read on the scale of the model."""
    names = {0: "Bad", 1: "Fair", 2: "Good"}
    frame = example_judgments().assign(grade=lambda made: made["grade"].map(names))
    fitted = _fit_copy(model, read_judgments(frame, grades=list(names.values()), unjudgeable="broken"))
    more = pd.DataFrame(
        {"query": "odd", "document": ["new", "new"], "assessor": ["w0", "w1"], "grade": ["Good", "broken"]}
    )
    count = _document_frame(fitted.add(more)).loc[("odd", "new"), "judgments"]
    assert count == 2, "added judgments must be read on the scale of the model"


def check_expert_grades_are_fixed(model: Aggregator) -> None:
    """Check that a document with an expert grade has this grade with probability 1, also as its true grade."""
    gold = pd.DataFrame({"query": ["even", "odd"], "document": ["d0", "d1"], "grade": [2, 0]})
    fitted = _fit_copy(model, example_judgments(), gold=gold)
    table = _document_frame(fitted)
    for query, document, grade in gold.itertuples(index=False):
        found = table.loc[(query, document)]
        assert found["grade"] == grade, "a document must have its expert grade"
        for names in (fitted.consensus_.share_names, fitted.consensus_.true_share_names):
            assert np.isclose(found[names[grade]], 1), "an expert grade must be certain"
    assert "gold_accuracy" in _assessor_frame(fitted), "assessors must have their accuracy on expert grades"


def check_results_have_type_of_input(model: Aggregator) -> None:
    """Check that results are of the same DataFrame library as the input: pandas, PyArrow or Polars (if installed)."""
    for convert in frame_converters():
        frame = convert(example_judgments())
        consensus = _fit_copy(model, frame).consensus_
        for result in (consensus.documents, consensus.assessors):
            assert type(result) is type(frame), f"results for {type(frame)} must be of that type"


def check_crowd_kit_frames(model: Aggregator) -> None:
    """Check that DataFrames with the columns task, worker and label give labels by task, as in crowd-kit."""
    frame = example_judgments().query("query == 'odd'").drop(columns="query")
    frame = frame.rename(columns={"document": "task", "assessor": "worker", "grade": "label"})
    labels = model.fit_predict(frame)
    assert list(labels.index) == list(frame["task"].drop_duplicates()), "labels must be indexed by task, in order"
    assert labels.index.name == "task", "the index of labels must be named task"


def check_unjudgeable_answers(model: Aggregator) -> None:
    """Check that `unjudgeable_as` makes 'cannot judge' answers the lowest grade or leaves them out."""
    broken = pd.DataFrame({"query": "even", "document": "broken", "assessor": ["w0", "w1", "w2"], "grade": -2})
    judgments = read_judgments(pd.concat([example_judgments(), broken]), unjudgeable=-2)
    lowest = _document_frame(_fit_copy(model.set_params(unjudgeable_as="lowest"), judgments))
    assert lowest.loc[("even", "broken"), "grade"] == 0, "unjudgeable_as='lowest' must give the lowest grade"
    dropped = _document_frame(_fit_copy(model.set_params(unjudgeable_as="drop"), judgments))
    assert ("even", "broken") not in dropped.index, "unjudgeable_as='drop' must leave the document out"


def check_mixed_scales(model: Aggregator) -> None:
    """Check that judgments on different scales are mapped to one scale if there is a map, else used or refused.

    A model whose inputs include `scales` uses several scales as they are.
    """
    frame = pd.DataFrame({"document": ["a", "a"], "assessor": ["crowd", "llm"], "grade": [1, 3]})
    with tempfile.TemporaryDirectory() as folder:
        scales = Path(folder) / "scales.csv"
        scales.write_text("assessor,grades\ncrowd,0-1\nllm,0-3\n")
        mixed = read_judgments(frame, scales=scales)
        scales.write_text("assessor,grades,maps_to\ncrowd,0-1,0|3\nllm,0-3,0|1|2|3\n")
        mapped = read_judgments(frame, scales=scales)
    if "scales" in model.takes:
        assert _document_frame(_fit_copy(model, mixed))["grade"].isin(range(4)).all(), (
            "grades must be on the longest scale"
        )
    else:
        with raises((InputError, UsageError), "judgments on two scales without a map"):
            _fit_copy(model, mixed)
    assert _fit_copy(model, mapped).predict().tolist() == [3], "scales with a map must be mapped"


def check_progress(model: Aggregator) -> None:
    """Check that a progress function is called once per iteration."""
    seen: list[int] = []
    fitted = _fit_copy(model, example_judgments(), progress=lambda iteration, *_: seen.append(iteration))
    assert seen == list(range(1, fitted.n_iter_ + 1)), f"progress must count the iterations, not {seen}"


def check_init_of_another_class(model: Aggregator) -> None:
    """Check that fit refuses a model of another class as `init`."""
    other = Average() if isinstance(model, MajorityVote) else MajorityVote()
    with raises(UsageError, "init of another class", kind="other-model", parameter="init"):
        model.fit(example_judgments(), init=other.fit(example_judgments()))


def check_interval_is_checked(model: Aggregator) -> None:
    """Check that fit refuses an interval above 1."""
    with raises(UsageError, "interval=1.5", parameter="interval"):
        model.set_params(interval=1.5).fit(example_judgments())


def check_grade_curves(model: Aggregator) -> None:
    """Check that grade curves are probabilities; a model without states must raise an error for them."""
    frame = example_judgments()
    fitted = _fit_copy(model, frame)
    if fitted.answer_states() is None:
        with raises(UsageError, "grade_curves of a model without states", kind="no-curves"):
            fitted.grade_curves()
        return
    table = fitted.grade_curves()
    assert set(table["assessor"]) == set(frame["assessor"]), "every assessor must have curves"
    assert np.allclose(table[["p0", "p1", "p2"]].sum(axis=1), 1, atol=1e-6), "curves must sum to 1"
    one = fitted.grade_curves("w0").reset_index(drop=True)
    assert one.equals(table[table["assessor"] == "w0"].reset_index(drop=True)), "one assessor must have its own rows"
    with raises(InputError, "an unknown assessor", kind="unknown-assessor"):
        fitted.grade_curves("nobody")


def check_grade_gaussians(model: Aggregator) -> None:
    """Check that the Gaussians of an assessor have positive widths and weights that sum to 1, if the model has any."""
    frame = example_judgments()
    fitted = _fit_copy(model, frame)
    estimator = fitted.assessor_estimator_
    if estimator._gaussians(estimator.theta_) is None:
        with raises(UsageError, "grade_gaussians of a model without Gaussians", kind="no-gaussians"):
            fitted.grade_gaussians()
        return
    table = fitted.grade_gaussians()
    assert list(table.columns) == ["assessor", "grade", "mu", "width", "alpha"], "the columns must be these"
    assert set(table["assessor"]) == set(frame["assessor"]), "every assessor must have Gaussians"
    assert (table["width"] > 0).all(), "widths must be positive"
    assert np.allclose(table.groupby("assessor")["alpha"].sum(), 1, atol=1e-6), "weights must sum to 1"
    one = fitted.grade_gaussians("w0").reset_index(drop=True)
    own = table[table["assessor"] == "w0"].reset_index(drop=True)
    assert one["grade"].equals(own["grade"]), "one assessor must have its own rows"
    assert np.allclose(one["mu"], own["mu"], atol=1e-6), "one assessor must have its own rows"
