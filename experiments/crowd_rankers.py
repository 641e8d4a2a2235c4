"""Rankers trained on crowd labels and tested on expert grades: which labels give the best ranker?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crowdrank import read_features
from crowdrank._text import counted
from crowdrank._typing import Floats, Integers
from crowdrank.pipeline.candidates import (
    Candidate,
    consensus_candidate,
    expert_candidate,
    gda_pairwise_mart,
    lambdamart,
    least_squares,
    soft_lambdamart,
)
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.pipeline.training_view import TrainingView
from crowdrank.rankers.ranker import Ranker
from crowdrank.readers.datasets import dataset
from experiments.base import (
    Experiment,
    Row,
    Table,
    Tell,
    averaged,
    describe_difference,
    quiet,
    seeds_text,
    testing_protocol,
)
from experiments.claims import Claim, best_run, tests_table
from experiments.dl20 import COVERED, sizes_text
from experiments.documents import (
    LABELS,
    PARTS,
    crowd_over,
    describe_crowd,
    dl20_documents,
    generated_documents,
    joined,
    mq2008,
    query_numbers,
    query_parts,
)
from experiments.driver import (
    SMALL_TREES,
    TREES,
    Fold,
    Setting,
    compare_rankings,
    describe_trees,
    evaluate_repeats,
    rotate_parts,
    select,
    train_candidates,
)
from experiments.rankers import reweighted_regression, tree_ensemble

MEASURES = ("nDCG@1", "nDCG@3", "nDCG@5", "nDCG@10")
MAIN = "nDCG@10"
BASELINE = "average"
CLAIMED = "gda-pairwise-mart"
SOFT_PAIRS = "soft-pairs"
CLAIM = Claim("GDA", (CLAIMED,), ("random-label", BASELINE, "dawid-skene", SOFT_PAIRS), MAIN, 0.01)
"""The paper's claim that its ranker largely outperforms LambdaMART on a random label, the average, the expected grade
by EM, and pair probabilities by EM. A gain of 0.01 would support it."""
SEEDS = (0, 1)
DRAWS = (0, 1, 2)
"""Seeds of the crowds on mslr-5k, which is small."""
GENERATED: Mapping[str, Any] = {"queries": 600, "documents": 20, "features": 20, "random_state": 100}
REPEATS = 3
MANY_JUDGES: Mapping[str, Any] = {"partners": 5}
"""Parameters of GDAPairwise if documents have about 55 judgments."""


# Candidates.


def thorough_pairwise_mart(view: TrainingView, n_rows: int, has_validation: bool) -> Ranker:
    """Return an unfitted GDA-PW-MART that uses every judgment of a document."""
    return gda_pairwise_mart(view, n_rows, has_validation).set_params(max_pairs=max(9, int(view.data.n_labels.max())))


def random_labels(view: TrainingView) -> tuple[Integers, Floats]:
    """Return the rows with crowd labels, and one random label of each."""
    labels = view.data.labels
    item = np.repeat(np.arange(labels.n_items), np.diff(labels.offsets))
    order = np.lexsort((np.random.default_rng(view.settings.random_state).random(len(item)), item))
    grade = np.array(labels.main_scale.values, np.float64)[labels.grade[order[labels.offsets[:-1]]]]
    return view.crowd, view.data.by_row(grade)[view.crowd]


CANDIDATES = (
    consensus_candidate("average", "LambdaMART on average grades", "average", "relevance"),
    consensus_candidate("majority", "LambdaMART on majority votes", "majority", "grade"),
    consensus_candidate("dawid-skene", "LambdaMART on expected gains by Dawid-Skene", "dawid-skene", "probabilities"),
    consensus_candidate("gda", "LambdaMART on expected gains by GDA", "gda", "probabilities"),
    consensus_candidate(
        "family-mean", "LambdaMART on the mean of family means", "family-mean", "relevance", needs_families=True
    ),
    Candidate("random-label", "LambdaMART on a random label", lambda view: view.fit(lambdamart, *random_labels(view))),
    consensus_candidate(
        SOFT_PAIRS, "LambdaMART on pair probabilities", "dawid-skene", "probabilities", soft_lambdamart
    ),
    consensus_candidate(
        CLAIMED,
        "boosted trees fitted to pairs of judgments",
        "gda-pairwise",
        "probabilities",
        thorough_pairwise_mart,
        with_items=True,
    ),
    consensus_candidate("gls", "least squares on average grades", "average", "relevance", least_squares),
    consensus_candidate("rd", "reweighted least squares", "average", "relevance", reweighted_regression),
    consensus_candidate("ensemble", "LambdaMART and least squares", "average", "relevance", tree_ensemble),
    expert_candidate("expert-labels", "LambdaMART on expert grades"),
)


# The experiment.


def experiment(
    methods: Sequence[str] | None = None,
    *,
    seeds: Sequence[int] = SEEDS,
    keep: Path | None = None,
    tell: Tell = quiet,
) -> Experiment:
    """Compare all candidates, or those in `methods`, on all data sets.

    An interrupted experiment resumes from `keep`.
    """
    candidates = select(CANDIDATES, methods)
    tested = (mq2008_setting(seeds), generated_setting(seeds[:1]), dl20_setting())
    tables = [setting_table(one, candidates, keep=keep, tell=tell) for one in tested]
    described = descriptive_table(mslr_setting(), candidates, keep=keep, tell=tell)
    protocol = _protocol(tables, len(candidates))
    return Experiment("crowd-rankers", (*tables, described, *claim_table(tables)), tuple(protocol))


def _protocol(tables: Sequence[Table], n_candidates: int) -> list[str]:
    return [
        "Runs with the name of a consensus are LambdaMART on it: on the average grade, the majority vote, the "
        "probabilities of grades by Dawid-Skene or GDA (as expected gains), or the mean of family means. random-label "
        "is LambdaMART on one random judgment of each document; soft-pairs on P(d > d') by Dawid-Skene's posterior; "
        "gls and rd are linear on the average; ensemble is LambdaMART and gls on the average; expert-labels, a "
        "control, is LambdaMART on expert grades of the same training documents.",
        "gda-pairwise-mart is trained on the judgments themselves, all of each document, with assessor parameters "
        "estimated by the pairwise GDA.",
        "No model saw judgments or grades of test queries. Validation queries, where there are any, decide on early "
        "stopping, ridges and ensemble weights by the labels that the run is trained on, never by expert grades "
        "(except in expert-labels).",
        f"Every run had one configuration per table ({counted(n_candidates, 'run')} in "
        f"{counted(len(tables) + 1, 'table')}); nothing was tuned on test queries.",
        "With several repeats, the value of a query is its mean over repeats, so tests count each query once.",
        f"The paper claims that {CLAIMED} largely outperforms LambdaMART on a random label, on the average, on the "
        f"grades expected by EM, and on pair probabilities by EM: here {', '.join(CLAIM.baselines)}. The claim is "
        f"confirmed if the run is significantly better than each of the four by {MAIN} (p by Holm's method over the "
        "four); refuted if it is significantly worse than one of them, or if the 95% interval of its gain over the "
        f"best of them lies below {CLAIM.min_gain:g}; otherwise undecided.",
        "mslr-5k has too few queries for tests; its table is descriptive and does not count for the claim.",
        *testing_protocol(tables[0]),
    ]


# Settings.


def _setting(name: str, title: str, **fields: Any) -> Setting:
    """Return a setting with the measures of this experiment; `trees` are parameters of boosted trees."""
    trees = fields.pop("trees")
    notes = (*fields.pop("notes"), describe_trees(trees))
    settings = RunSettings(measure=MAIN, trees=trees)
    return Setting(name, title, measures=MEASURES, settings=settings, notes=notes, **fields)


def mq2008_setting(seeds: Sequence[int]) -> Setting:
    """Return MQ2008 with simulated crowds and LETOR's folds."""
    features, part = mq2008()
    notes = (
        f"Documents, features and expert grades are those of MQ2008; {counted(LABELS, 'label')} per document by "
        f"simulated crowds ({describe_crowd(seeds)}).",
        "LETOR's folds: three parts for training, one for validation, one for the test.",
    )
    crowds = tuple(crowd_over(features, seed) for seed in seeds)
    splits = (rotate_parts(part, crowd=(0, 1, 2, 3), experts=(0, 1, 2, 3)),) * len(crowds)
    return _setting(
        "mq2008", "MQ2008, simulated crowds", features=features, crowds=crowds, splits=splits, trees=TREES, notes=notes
    )


def generated_setting(seeds: Sequence[int], sizes: Mapping[str, Any] = GENERATED) -> Setting:
    """Return generated documents with simulated crowds."""
    features = generated_documents(sizes)
    notes = (
        f"Documents are generated ({', '.join(f'{name} {value}' for name, value in sizes.items())}, grades 0-4); "
        f"{counted(LABELS, 'label')} per document by simulated crowds ({describe_crowd(seeds)}).",
        "Five folds by query: three fifths for training, one for validation, one for the test.",
    )
    crowds = tuple(crowd_over(features, seed) for seed in seeds)
    splits = (rotate_parts(query_numbers(features) % PARTS, crowd=(0, 1, 2, 3), experts=(0, 1, 2, 3)),) * len(crowds)
    title = "Generated documents, simulated crowds"
    return _setting("generated", title, features=features, crowds=crowds, splits=splits, trees=TREES, notes=notes)


def dl20_setting(repeats: int = REPEATS) -> Setting:
    """Return DL20 with LLM judges; the features are scores of retrieval systems."""
    features, judges = dl20_documents()
    notes = (
        f"{counted(len(features.query), 'passage')} of TREC Deep Learning 2020, judged by the {judges.n_assessors} LLM "
        f"judges with more than {COVERED:,} judgments ({sizes_text(judges)}); tested on NIST's grades.",
        f"Features are the scores of {counted(len(features.names), 'retrieval system')}, scaled to 0-1 within the "
        "query; scores of systems that did not return the passage are missing.",
        f"{repeats} x {PARTS} folds by query ({seeds_text(range(repeats))}), without validation queries; "
        f"{CLAIMED}, which is slow here, is trained in the first {PARTS} only.",
        "gls and rd have a fixed ridge and replace a missing score by the mean; the ensemble's weights are equal; the "
        f"pairwise GDA pairs each judgment with {MANY_JUDGES['partners']} others.",
    )
    query = query_numbers(features)
    uses: dict[str, Any] = {"crowd": (0, 1, 2, 3), "experts": (0, 1, 2, 3), "validation": ()}
    return _setting(
        "dl20",
        "DL20, LLM judges",
        features=features,
        crowds=(judges,) * repeats,
        splits=tuple(rotate_parts(query_parts(query, seed), **uses) for seed in range(repeats)),
        trees=SMALL_TREES,
        notes=notes,
        parameters={"gda-pairwise": MANY_JUDGES},
        once=(CLAIMED,),
    )


def mslr_setting(seeds: Sequence[int] = DRAWS) -> Setting:
    """Return the first documents of MSLR-WEB10K with simulated crowds, in one split."""
    data = dataset("mslr-5k")
    parts = [read_features(data.path(name), format="letor") for name in data.files]
    features = joined(parts)
    train, test = np.split(np.arange(len(features.query)), [len(parts[0].query)])
    n_train, n_test = (counted(len(part.query.unique()), "query") for part in parts)
    notes = (
        f"Descriptive only: {n_train} for training and {n_test} for the test are too few for significance tests.",
        "Documents, features and expert grades are the first 5,000 of train and of test in MSLR-WEB10K's first fold; "
        f"{counted(LABELS, 'label')} per document by simulated crowds ({describe_crowd(seeds)}). sd is the standard "
        "deviation of the means over crowds; it does not cover other queries.",
        "There are no validation queries; gls and rd have a fixed ridge, and the ensemble's weights are equal.",
    )
    split = [Fold(train, train, test[:0], test)]
    return _setting(
        "mslr-5k",
        "MSLR-WEB10K, first documents, simulated crowds (descriptive only)",
        features=features,
        crowds=tuple(crowd_over(features, seed) for seed in seeds),
        splits=(split,) * len(seeds),
        trees=SMALL_TREES,
        notes=notes,
    )


# Tables.


def setting_table(
    setting: Setting, candidates: Sequence[Candidate], *, keep: Path | None = None, tell: Tell = quiet
) -> Table:
    """Return the table of all candidates, with paired tests against LambdaMART on the average."""
    table = compare_rankings(setting, train_candidates(setting, candidates, keep=keep, tell=tell), BASELINE)
    notes = [*table.notes, *describe_claim(table)]
    if CLAIM.verdict(table.comparison) is not None and len(candidates) < len(CANDIDATES):
        notes.append("Only some of the runs were trained.")
    return replace(table, notes=tuple(notes))


def descriptive_table(
    setting: Setting, candidates: Sequence[Candidate], *, keep: Path | None = None, tell: Tell = quiet
) -> Table:
    """Return means and standard deviations over repeats, without tests."""
    rankings = train_candidates(setting, candidates, keep=keep, tell=tell)
    evaluations = {name: evaluate_repeats(setting, score) for name, score in rankings.scores.items()}
    first = next(iter(evaluations.values()))
    draws = [{name: repeats[number].means for name, repeats in evaluations.items()} for number in range(len(first))]
    notes = (first[0].notes()[0], *setting.notes, *rankings.notes)
    return Table(setting.name, setting.title, averaged(draws), notes)


def describe_claim(table: Table) -> list[str]:
    """Return sentences about the claim: the verdict, and the difference to each baseline of the paper."""
    word = CLAIM.verdict(table.comparison)
    if word is None:
        return []
    singles = [
        sentence
        for other in CLAIM.baselines
        for sentence in describe_difference(table.comparison, CLAIMED, other, MAIN)
    ]
    return [f"The paper's claim for {CLAIMED} is {word} here.", *singles]


def claim_table(tables: Sequence[Table]) -> list[Table]:
    """Return the verdict on all data sets with the best baseline, and the tests; [] if the claim was not tested."""
    rows: list[Row] = []
    for table in tables:
        word = CLAIM.verdict(table.comparison)
        if table.comparison is None or word is None:
            continue
        best = best_run(table.comparison, CLAIM.baselines, MAIN)
        means = {run: one.means[MAIN] for run, one in table.comparison.evaluations.items()}
        rows.append(
            {
                "run": table.name,
                CLAIMED: means[CLAIMED],
                "best baseline": best,
                "its mean": means[str(best)],
                "claim": word,
            }
        )
    if not rows:
        return []
    note = CLAIM.sentence([str(row["claim"]) for row in rows])
    verdicts = Table("claim", f"The paper's claim for {CLAIMED}, {MAIN}", tuple(rows), (note,))
    return [verdicts, *tests_table("claim-tests", {table.name: (CLAIM, table.comparison) for table in tables})]
