"""A look at judgments before anything is done with them: what is in them, what is wrong, what to know."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdrank.judgments.table import NO_HONEYPOT, UNJUDGEABLE, Judgments, counted

MANY = 20
"""From this many judgments on, one single answer is a habit."""


@dataclass(frozen=True)
class Inspection:
    """Facts, problems (rows that cannot be used) and remarks (things to know)."""

    facts: dict[str, str]
    problems: list[str]
    remarks: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The same, ready for JSON."""
        return asdict(self)


def inspect(judgments: Judgments) -> Inspection:
    """Look over judgments that were read with `on_bad_rows="skip"`.

    >>> import pandas as pd
    >>> from crowdrank import read_judgments
    >>> inspect(read_judgments(pd.DataFrame({"document": ["a"], "assessor": ["x"], "grade": [1]}))).facts["documents"]
    '1'
    """
    return Inspection(_facts(judgments), _problems(judgments), _remarks(judgments))


def _facts(judgments: Judgments) -> dict[str, str]:
    per_item = np.diff(judgments.offsets)
    per_assessor = np.bincount(judgments.assessor, minlength=judgments.n_assessors)
    facts = {
        "rows": f"{judgments.report.rows:,}",
        "judgments": f"{len(judgments):,}",
        "queries": f"{judgments.n_queries:,}",
        "documents": f"{judgments.n_items:,}",
        "assessors": f"{judgments.n_assessors:,}",
        "judgments per document": _spread(per_item),
        "judgments per assessor": _spread(per_assessor),
    }
    for number, scale in enumerate(judgments.scales):
        mine = judgments.grade[judgments.assessor_scale[judgments.assessor] == number]
        counts = np.bincount(mine[mine >= 0], minlength=len(scale))
        shares = counts / max(counts.sum(), 1)
        listed = ", ".join(f"{name}: {share:.1%}" for name, share in zip(scale.names, shares, strict=True))
        facts["grades" if len(judgments.scales) == 1 else f"grades, scale {scale}"] = listed
    if judgments.n_unjudgeable:
        facts["cannot judge"] = f"{judgments.n_unjudgeable:,} ({judgments.n_unjudgeable / len(judgments):.1%})"
    if judgments.families is not None:
        facts["families"] = f"{len(judgments.families):,}"
    for name, column in judgments.extras.items():
        facts[name] = _extra(name, column, judgments)
    return facts


def _spread(counts: NDArray[np.int64]) -> str:
    low, middle, high = (int(np.quantile(counts, q, method="nearest")) for q in (0, 0.5, 1))
    return f"{low} to {high:,}, median {middle}"


def _extra(name: str, column: NDArray[Any], judgments: Judgments) -> str:
    if name == "honeypot":
        planted = column != NO_HONEYPOT
        right = judgments.grade[planted] == column[planted]
        return f"{int(planted.sum()):,} judgments, {right.mean():.1%} right" if planted.any() else "none"
    missing = np.isnat(column) if name == "time" else np.isnan(column)
    known = column[~missing]
    if not len(known):
        return "none"
    if name == "time":
        return f"{known.min().astype('datetime64[s]')} to {known.max().astype('datetime64[s]')}"
    return f"total {known.sum():,.2f}, median {np.median(known):,.2f}"


def _problems(judgments: Judgments) -> list[str]:
    report = judgments.report
    return [
        f"{counted(n, 'row')} ({reason}), the first: {report.examples[reason]}" for reason, n in report.skipped.items()
    ]


def _remarks(judgments: Judgments) -> list[str]:
    report, remarks = judgments.report, []
    if report.repeats:
        remarks.append(
            f"{counted(report.repeats, 'repeated judgment')} of an assessor on the same document; the last one holds "
            f"(--repeats)."
        )
    if report.excluded:
        remarks.append(f"{counted(report.excluded, 'judgment')} of excluded assessors left out.")
    alone = int((np.diff(judgments.offsets) == 1).sum())
    if alone:
        remarks.append(f"{counted(alone, 'document')} of {judgments.n_items:,} with a single judgment.")
    remarks += _remarks_on_assessors(judgments)
    for scale in judgments.scales if len(judgments.scales) == 1 else ():
        counts = np.bincount(judgments.grade[judgments.grade >= 0], minlength=len(scale))
        rare = [name for name, count in zip(scale.names, counts, strict=True) if count < 0.001 * counts.sum()]
        if rare:
            remarks.append(
                f"fewer than 0.1% of the judgments are {', '.join(rare)}; if the scale does not hold them, give it "
                f"with --grades."
            )
    if len(judgments.scales) > 1 and not all(judgments.scale_maps):
        remarks.append("the scales differ and have no map to one scale: votes and Dawid-Skene will refuse them.")
    return remarks


def _remarks_on_assessors(judgments: Judgments) -> list[str]:
    per_grade = np.zeros((judgments.n_assessors, 128), np.int64)
    np.add.at(per_grade, (judgments.assessor, judgments.grade.astype(np.int64) - UNJUDGEABLE), 1)
    total = per_grade.sum(axis=1)
    stuck = int(((per_grade.max(axis=1) == total) & (total >= MANY)).sum())
    once = int((total == 1).sum())
    remarks = []
    if once:
        remarks.append(f"{counted(once, 'assessor')} with a single judgment.")
    if stuck:
        remarks.append(f"{counted(stuck, 'assessor')} with {MANY} judgments or more and one single answer.")
    return remarks
