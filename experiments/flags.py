"""Goals of the flags of assessors: how many judgments each flag needs, and strictness on data of people.

The simulated crowds are not those of `crowdrank.simulate`. Assessors see the relevance of a document with normal noise
and cut it into four grades. Every assessor has the same number of judgments, of random documents.

In the agreement round of dl19-people, eight people judged the same documents, so that their mean answers are
comparable. Most of these judgments are left out, so that four couples share most documents only with each other, as in
the main round. The joint fit of what is left must agree in sign and order with the means of all judgments.
In both rounds together, the people who are flagged must have the same sign as in the agreement round. The order of all
eight is not a goal there: the documents of one couple occur in both rounds, and the answers of annotator-8 in the main
round agree less with those of annotator-8 in the agreement round (kappa .37) than with those of five others.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from crowdrank import GDA, assess, read_judgments
from crowdrank._typing import Floats
from crowdrank.assessors.severity import fit_severity
from crowdrank.judgments.table import Judgments
from crowdrank.readers.datasets import dataset
from experiments.base import Row, Table
from experiments.robustness import Goal

N_JUDGMENTS, LABELS_PER_DOCUMENT, SEEDS = (10, 30, 100, 300), (3, 5), range(10)
CUTS = np.array([-0.3, 0.5, 1.3])
"""Thresholds between grades."""
ASSESSORS = {"honest": 36, "random": 5, "constant": 3, "reversed": 4, "strict": 6, "careless": 6}
"""Number of assessors of each kind in a crowd; a multiple of the numbers of labels per document."""
EXPECTED = {
    "random": "random",
    "constant": "random",
    "reversed": "reversed",
    "strict": "strict",
    "careless": "careless",
}
"""Flag of each kind of assessors who are not honest."""
NO_FAULT = ("", "careful", "few")
"""Flags that state no fault."""
MAX_FALSE, MIN_FOUND = 0.05, 0.95
"""Maximum share of honest assessors with a fault, and minimum share of others whose fault is found."""
N_COMMON, N_SPLITS = 20, 50
"""Number of documents that all couples keep, and number of random choices of them."""
MIN_CLEAR_BIAS = 0.1
"""Minimum difference from the mean of all people, in grades, whose sign is compared."""


def draw_crowd(n_judgments: int, labels_per_document: int, seed: int) -> tuple[Judgments, dict[str, str]]:
    """Return the judgments of a crowd and the kind of each assessor.

    >>> judgments, kinds = draw_crowd(10, 5, 0)
    >>> len(judgments), judgments.n_items, len(kinds)
    (600, 120, 60)
    """
    rng = np.random.default_rng([n_judgments, labels_per_document, seed])
    kind = np.repeat(list(ASSESSORS), list(ASSESSORS.values()))
    noise = 0.5 * np.exp(rng.normal(0, 0.25, len(kind))) * np.where(kind == "careless", 4, 1)
    cuts = CUTS + rng.normal(0, 0.1, (len(kind), 1))
    n_documents = len(kind) * n_judgments // labels_per_document
    relevance = rng.normal(size=n_documents)
    # Each permutation gives every assessor one judgment, of documents of their own.
    assessor = np.concatenate([rng.permutation(len(kind)) for _ in range(n_judgments)])
    document = np.repeat(np.arange(n_documents), labels_per_document)
    seen = relevance[document] + noise[assessor] * rng.normal(size=len(document))
    grade = (seen[:, None] > cuts[assessor]).sum(axis=1)
    of = kind[assessor]
    grade = np.where(of == "strict", np.maximum(grade - 1, 0), np.where(of == "reversed", 3 - grade, grade))
    grade = np.where(of == "random", rng.permutation(grade), np.where(of == "constant", 0, grade))
    names = [f"{one}-{number}" for number, one in enumerate(kind)]
    frame = pd.DataFrame({"document": document, "assessor": np.array(names)[assessor], "grade": grade})
    return read_judgments(frame, grades="0-3"), dict(zip(names, kind.tolist(), strict=True))


@cache
def flags_by_kind(n_judgments: int, labels_per_document: int, seeds: Sequence[int] = SEEDS) -> pd.DataFrame:
    """Return the kind and the flag of each assessor of several crowds."""
    parts = []
    for seed in seeds:
        judgments, kinds = draw_crowd(n_judgments, labels_per_document, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = assess(GDA().fit(judgments)).table.select(["assessor", "flag"]).to_pandas()
        parts.append(frame.assign(kind=frame["assessor"].map(kinds)))
    flags: pd.DataFrame = pd.concat(parts)
    return flags


def share_found(kind: str, n_judgments: int, labels_per_document: int) -> float:
    """Return the share of assessors of a kind with its flag; of honest ones, with any flag that states a fault."""
    flags = flags_by_kind(n_judgments, labels_per_document).query("kind == @kind")["flag"]
    return float((~flags.isin(NO_FAULT) if kind == "honest" else flags == EXPECTED[kind]).mean())


def detection_row(kind: str, labels_per_document: int) -> Row:
    """Return a row of the table of detection: the share by number of judgments."""
    label = f"{kind} (any fault)" if kind == "honest" else kind
    shares = {str(n): share_found(kind, n, labels_per_document) for n in N_JUDGMENTS}
    return {"run": f"{label}, {labels_per_document} labels", **shares}


def tables() -> list[Table]:
    """Return the share of assessors of each kind who get their flag, by number of judgments."""
    rows = tuple(detection_row(kind, k) for kind, k in product([*EXPECTED, "honest"], LABELS_PER_DOCUMENT))
    notes = (
        f"{len(SEEDS)} crowds of {sum(ASSESSORS.values())} assessors: "
        + ", ".join(f"{number} {kind}" for kind, number in ASSESSORS.items())
        + ". Columns: judgments per assessor. Rows: kind of assessor and labels per document.",
    )
    return [Table("flags", "Share of assessors with the flag of their kind", rows, notes)]


def agreement_round() -> Judgments:
    """Return the judgments of the documents that all eight people judged."""
    return read_judgments(dataset("dl19-people").path("agreement"))


def thinned_rounds() -> tuple[Floats, Floats]:
    """Return sign and order of severity in thinned agreement rounds, against the means of all judgments.

    Returns:
        Share of people of clear severity with the same sign, and Kendall's tau, (n_splits,) each.

    """
    judged = agreement_round()
    answers = np.full((judged.n_items, judged.n_assessors), np.nan)
    answers[judged.item, judged.assessor] = judged.grade
    answers = answers[~np.isnan(answers).any(axis=1)]
    truth = answers.mean(axis=0) - answers.mean()
    is_clear = np.abs(truth) > MIN_CLEAR_BIAS
    couple = np.arange(answers.shape[1]) // 2
    signs, taus = [], []
    for seed in range(N_SPLITS):
        order = np.random.default_rng(seed).permutation(len(answers))
        owner = np.where(np.arange(len(answers)) < N_COMMON, -1, order % (couple.max() + 1))
        kept = (owner[:, None] < 0) | (owner[:, None] == couple)
        document, person = np.nonzero(kept)
        frame = pd.DataFrame({"document": document, "assessor": person, "grade": answers[order][kept].astype(int)})
        found = fit_severity(read_judgments(frame, grades="0-3"))
        signs.append(np.mean(np.sign(found.bias[is_clear]) == np.sign(truth[is_clear])))
        taus.append(float(kendalltau(found.bias, truth).statistic))
    return np.array(signs), np.array(taus)


def flagged_in_both_rounds() -> pd.DataFrame:
    """Return the people whom both rounds together flag as strict or lenient: bias there and in the agreement round."""
    people = dataset("dl19-people")
    judged = read_judgments([people.path("main"), people.path("agreement")])
    report = assess(GDA().fit(judged)).table.to_pandas().set_index("assessor")
    agreement = fit_severity(agreement_round()).bias
    report["agreement_bias"] = pd.Series(agreement, agreement_round().assessors.to_pylist())
    flagged: pd.DataFrame = report.loc[report["flag"].isin(["strict", "lenient"]), ["bias", "agreement_bias"]]
    return flagged


def goals() -> list[Goal]:
    """Return the shares of flags in simulated crowds, and sign and order of strictness on dl19-people."""
    honest = max(share_found("honest", n, k) for n, k in product(N_JUDGMENTS, LABELS_PER_DOCUMENT))
    found = [
        Goal(f"{kind} with 300 judgments, {k} labels: flagged {flag}", share_found(kind, 300, k), at_least=MIN_FOUND)
        for (kind, flag), k in product(EXPECTED.items(), LABELS_PER_DOCUMENT)
    ]
    signs, taus = thinned_rounds()
    main = assess(GDA().fit(dataset("dl19-people").read_judgments())).table.to_pandas()
    flagged = flagged_in_both_rounds()
    same_sign = float((np.sign(flagged["bias"]) == np.sign(flagged["agreement_bias"])).mean())
    return [
        Goal("honest with any number of judgments: highest share with a fault", honest, at_most=MAX_FALSE),
        *found,
        Goal("dl19-people, thinned: share of equal signs of bias", float(signs.mean()), at_least=0.95),
        Goal("dl19-people, thinned: Kendall's tau of bias", float(taus.mean()), at_least=0.8),
        Goal("dl19-people, both rounds: share of flagged people with equal sign", same_sign, at_least=1.0),
        Goal("dl19-people, main round without experts: number of biases", float(main["bias"].notna().sum()), at_most=0),
    ]
