"""The summary of a run without rankers: the quality of labels and assessors in words."""

from __future__ import annotations

from crowdrank._text import counted
from crowdrank.assessors.agreement import krippendorff_alpha
from crowdrank.assessors.flags import UNRELIABLE_FLAGS
from crowdrank.pipeline.result import RunResult


def summarize_labels(result: RunResult) -> list[str]:
    """Return the result of a run without rankers in short paragraphs."""
    assessors, documents = result.tables["assessors"], result.tables["documents"]
    alpha = krippendorff_alpha(result.model.judgments_)
    flags = assessors["flag"].to_pylist()
    unreliable = sum(flag in UNRELIABLE_FLAGS for flag in flags)
    parts = [
        f"The consensus by {result.settings.method} labels {counted(len(documents), 'document')} from "
        f"{counted(result.sizes['judgments'], 'judgment')} by {counted(len(assessors), 'assessor')}.",
        f"{alpha}.",
        f"{counted(unreliable, 'assessor')} of {len(assessors):,} answer at random or in reverse.",
    ]
    if result.expert_offset is not None:
        parts.append(f"{result.expert_offset}.")
    return parts
