"""The first screen of the report: is my ranker better, by how much, can I trust the labels, what next."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from shlex import quote, split
from typing import TYPE_CHECKING

import pandas as pd

from crowdrank._assessor_kinds import LLM
from crowdrank._text import counted, distinct_lines, format_p, one_line, percent, signed
from crowdrank.assessors.advice import ADVICE
from crowdrank.assessors.agreement import wilson
from crowdrank.assessors.assessor_report import UNRELIABLE_FLAGS
from crowdrank.errors import Message
from crowdrank.judgments.columns import is_letor_feature
from crowdrank.pipeline.result_tables import DIFFERS_FROM_EXPERT, describe_next
from crowdrank.pipeline.run_data import EXPERT_DOUBTS
from crowdrank.pipeline.run_result import ALTERNATIVE
from crowdrank.reports.report_data import N_NEXT_DOCUMENTS_SHOWN, ReportData

if TYPE_CHECKING:
    from crowdrank.pipeline.contrasts import Contrast

MAX_NAMED_ASSESSORS = 5
"""Maximum number of assessors that a sentence names."""
BASELINE_NAMES = {"majority": "majority votes"}
"""Names of baselines in headlines, if they differ from the candidate's name."""
TRUST_QUESTION = "Can I trust the labels?"
ONE_ASSESSOR = "With one assessor, reliability cannot be measured"
MIN_GRADED_DOCUMENTS = 20
"""Minimum number of expert-graded documents to compare labels with."""
MIN_TEST_QUERIES = 20
"""Minimum number of test queries that is advised."""
KAPPA_MARGIN = 0.02
"""Difference in kappa from which majority votes count as better than the consensus."""
TRUST_LEVELS = ((0.8, "Yes", "good"), (0.6, "Mostly", "good"), (0.4, "With care", "open"), (-math.inf, "Hardly", "bad"))
"""Minimum agreement with experts, text and color of the card, after Landis and Koch (1977)."""


@dataclass(frozen=True)
class Card:
    """Question of the first screen with its answer.

    Attributes:
        question: question of the reader.
        answer: answer in a word or a number.
        tone: good, bad, open (not decided) or none.
        sentences: evidence.
        versus: what the answer is compared with; continues `answer`.
        comparisons: other comparisons, one line each.
        interval: lower end, estimate and upper end of the difference, if there is one.
        steps: what to do, in order.
        command: command of the last step.

    """

    question: str
    answer: str
    tone: str
    sentences: list[str] = field(default_factory=list)
    versus: str = ""
    comparisons: list[str] = field(default_factory=list)
    interval: tuple[float, float, float] | None = None
    steps: list[str] = field(default_factory=list)
    command: str = ""


def make_cards(data: ReportData) -> list[Card]:
    """Return the cards of the first screen; without rankers, those about labels."""
    makers = {TRUST_QUESTION: trust_card, "What next?": next_card}
    return [*_ranker_cards(data), *(_make_card(data, question, make) for question, make in makers.items())]


def short_answers(data: ReportData) -> list[tuple[str, str]]:
    """Return the questions of the first screen with their answers, without evidence."""
    trust = _make_card(data, TRUST_QUESTION, lambda data: Card(TRUST_QUESTION, *_agreement_with_experts(data)))
    rankers = [(card.question, f"{card.answer}{card.versus}") for card in _ranker_cards(data)]
    return [*rankers, *_baseline_answer(data), (TRUST_QUESTION, f"{trust.answer}. {trust.sentences[0]}")]


def _baseline_answer(data: ReportData) -> list[tuple[str, str]]:
    """Return the difference to the baseline if another alternative decides the verdict."""
    verdict = data.rankers.verdict if data.has_rankers else None
    contrast = None if verdict is None else data.rankers.contrast(data.chosen, data.baseline)
    if verdict is None or contrast is None or verdict.decisive == data.baseline:
        return []
    return [("And over the baseline?", _compared(data, contrast))]


def _ranker_cards(data: ReportData) -> list[Card]:
    makers = {"Is my ranker better?": better_card, "By how much?": gain_card} if data.has_rankers else {}
    return [_make_card(data, question, make) for question, make in makers.items()]


def _make_card(data: ReportData, question: str, make: Callable[[ReportData], Card]) -> Card:
    """Return a card, or one that says why it could not be made."""
    card = data.make_or_warn(f"The answer to {question!r}", lambda: make(data))
    return Card(question, "Not available", "none", [str(card)]) if isinstance(card, Message) else card


def _contrast(data: ReportData) -> Contrast | None:
    """Return the difference between the selected ranker and the alternative that decides the verdict."""
    verdict = data.rankers.verdict
    return data.rankers.contrast(data.chosen, verdict.decisive) if verdict is not None else None


def _n_tests(data: ReportData) -> int:
    """Return the number of differences over which p-values are adjusted, at least 1."""
    return max(sum(one.p_holm is not None for one in data.rankers.contrasts), 1)


TONES = {"better": "good", "worse": "bad", "open": "open", "baseline": "open"}
"""Tone of the cards on the ranker, by the answer of the verdict."""


def better_card(data: ReportData) -> Card:
    """Return the card on whether the selected ranker is better than everything the user would otherwise use."""
    question, verdict, contrast = "Is my ranker better?", data.rankers.verdict, _contrast(data)
    if verdict is None:
        return Card(question, "Not tested", "none", ["There were no expert-graded queries to test it on."])
    selected = f"Selected: {data.chosen} ({data.candidate(data.chosen)['about']})."
    if contrast is None:
        return Card(question, "It is the baseline", "open", [selected])
    name, n = BASELINE_NAMES.get(contrast.other, data.short_name(contrast.other)), len(verdict.alternatives)
    answers = {
        "better": ("Yes", f", better than {name if n == 1 else f'all {n} alternatives'}"),
        "worse": ("No, it is worse", f" than {name}"),
        "open": ("Not shown", f" against {name}"),
        "baseline": ("It is the baseline", ""),
    }
    answer, versus = answers[verdict.answer]
    names = ", ".join(map(data.short_name, verdict.alternatives))
    rule = f"To be better, it must be significantly better than each of {n} alternatives ({names}). " * (n > 1)
    adjusted = " (adjusted by Holm's method)" * (_n_tests(data) > 1)
    sentences = [
        f"{rule}The difference to {data.short_name(contrast.other)} {'decides' if n > 1 else 'is tested'}: p "
        f"{format_p(contrast.adjusted_p)}{adjusted} on {counted(contrast.n_queries, 'test query')} that were not used "
        "to select the ranker.",
        selected,
    ]
    return Card(question, answer, TONES[verdict.answer], sentences, versus, _other_alternatives(data, contrast.other))


def _other_alternatives(data: ReportData, decisive: str) -> list[str]:
    """Return a line for each other alternative that the selected ranker is compared with."""
    verdict = data.rankers.verdict
    names = [] if verdict is None else [name for name in verdict.alternatives if name != decisive]
    contrasts = (data.rankers.contrast(data.chosen, name) for name in names)
    return [_compared(data, one) for one in contrasts if one is not None]


def _compared(data: ReportData, one: Contrast) -> str:
    """Return a difference with its significance."""
    from crowdrank.pipeline.contrasts import ALPHA

    significant = f"{'not ' * (one.adjusted_p > ALPHA)}significant (p {format_p(one.adjusted_p)})"
    return f"{_difference_size(one)} {_preposition(one)} {data.short_name(one.other)}: {significant}"


def _difference_size(contrast: Contrast) -> str:
    return signed(contrast.difference) if contrast.percent is None else f"{signed(contrast.percent, 1)}%"


def _preposition(contrast: Contrast) -> str:
    return "over" if contrast.difference > 0 else "against"


def gain_card(data: ReportData) -> Card:
    """Return the card with the difference to the decisive alternative and its interval."""
    question, measure, verdict, contrast = "By how much?", data.measure, data.rankers.verdict, _contrast(data)
    if verdict is None:
        return Card(question, "Not known", "none", ["Expert grades of some queries would show it."])
    if contrast is None:
        mean = data.candidate(data.chosen)[f"{measure} mean"]
        return Card(question, f"{mean:.4f}", "open", [f"Its {measure} on the test queries."])
    name = data.short_name(contrast.other)
    sentences = [
        f"{measure} is {contrast.mean:.4f}, that of {name} {contrast.other_mean:.4f}: "
        f"{signed(contrast.difference)}, 95% interval {signed(contrast.lower)} to {signed(contrast.upper)}.",
        f"Better on {counted(contrast.n_better, 'test query')}, worse on {contrast.n_worse}, equal on "
        f"{contrast.n_equal}.",
    ]
    interval = (contrast.lower, contrast.difference, contrast.upper)
    versus = f" {_preposition(contrast)} {name}"
    return Card(question, _difference_size(contrast), TONES[verdict.answer], sentences, versus, interval=interval)


def trust_card(data: ReportData) -> Card:
    """Return the card on the agreement of labels with experts, and of assessors with each other."""
    answer, tone, sentences = _agreement_with_experts(data)
    alpha = data.alpha
    if not math.isnan(alpha.value):
        sentences.append(
            f"The agreement of assessors with each other is {agreement_level(alpha.value)} (Krippendorff's alpha "
            f"{alpha.value:.2f}, 95% interval {alpha.lower:.2f} to {alpha.upper:.2f})."
        )
    if data.result.expert_offset is not None:
        sentences.append(f"{data.result.expert_offset}.")
    return Card(TRUST_QUESTION, answer, tone, [*sentences, _unreliable_assessors(data)])


def _agreement_with_experts(data: ReportData) -> tuple[str, str, list[str]]:
    """Return the answer, its tone and the evidence on how well labels agree with expert grades."""
    graded = data.against_experts
    if len(graded) < MIN_GRADED_DOCUMENTS:
        which = f"only {len(graded):,}" if len(graded) else "none"
        sentences = [f"Experts graded {which} of these documents, so the labels cannot be compared with them."]
        if data.models_assessors and not math.isnan(data.reliability):
            sentences.append(
                f"According to the model, {percent(data.reliability)} of the variance of relevance is differences "
                "between documents; the rest is uncertainty."
            )
        return "Not checked", "open", sentences
    expert, votes_are_better = graded["expert"].to_numpy(), False
    if data.result.same_scale:
        consensus, majority = (graded[name].to_numpy() for name in ("consensus", "majority"))
        value, majority_value = (data.kappa_with_experts(name) for name in ("consensus", "majority"))
        votes_are_better = majority_value > value + KAPPA_MARGIN
        n_equal, n_majority = int((consensus == expert).sum()), int((majority == expert).sum())
        low, high = (percent(float(end)) for end in wilson(n_equal, len(graded)))
        better = "; majority votes agree better" * (votes_are_better or n_majority > n_equal)
        sentences = [
            f"The consensus grade equals the expert grade for {percent(n_equal / len(graded))} of {len(graded):,} "
            f"documents (95% interval {low} to {high}; majority votes: {percent(n_majority / len(graded))}), and is "
            f"at most one grade off for {percent(float((abs(consensus - expert) <= 1).mean()))}; weighted kappa "
            f"{value:.2f} (majority votes: {majority_value:.2f}){better}."
        ]
    else:
        value = float(graded["relevance"].corr(graded["expert"], method="spearman"))
        lower, upper = _correlation_interval(value, len(graded))
        sentences = [
            f"Spearman's correlation of relevance and expert grades is {value:.2f} (95% interval {lower:.2f} to "
            f"{upper:.2f}, {len(graded):,} documents)."
        ]
    answer, tone = next((levels[1:] for levels in TRUST_LEVELS if value >= levels[0]), TRUST_LEVELS[-1][1:])
    return (*(("With care", "open") if votes_are_better and tone == "good" else (answer, tone)), sentences)


def _correlation_interval(value: float, n: int) -> tuple[float, float]:
    """Return the 95% interval of a correlation of n > 3 pairs (Fisher's transformation).

    >>> [round(end, 2) for end in _correlation_interval(0.5, 60)]
    [0.28, 0.67]
    """
    middle, margin = math.atanh(min(max(value, -1 + 1e-12), 1 - 1e-12)), 1.96 / math.sqrt(n - 3)
    return math.tanh(middle - margin), math.tanh(middle + margin)


def agreement_level(alpha: float) -> str:
    """Return a word for Krippendorff's alpha, by Krippendorff's own limits of 0.8 and 0.667.

    >>> agreement_level(0.3), agreement_level(0.7), agreement_level(0.9)
    ('low', 'moderate', 'high')
    """
    return "high" if alpha >= 0.8 else "moderate" if alpha >= 0.667 else "low"


def _unreliable_assessors(data: ReportData) -> str:
    """Return how many assessors answer at random or in reverse."""
    table, n = data.assessors, counted(len(data.assessors), "assessor")
    unreliable = table[table["flag"].isin(UNRELIABLE_FLAGS)]
    if len(table) == 1:
        return f"{ONE_ASSESSOR}: have a second one judge some of the same documents."
    if not len(unreliable):
        return f"None of {n} answers at random or in reverse."
    corrected = "; the consensus corrects for it" * data.models_assessors
    share = _share_of_judgments(data, unreliable)
    return f"{len(unreliable):,} of {n} answer at random or in reverse: {share}{corrected}."


def next_card(data: ReportData) -> Card:
    """Return the card on what to do next, the most useful first."""
    steps = [
        *(data.result.note_text(note) for note in data.warnings if note.kind in EXPERT_DOUBTS),
        *([f"Have a second assessor judge some of the same documents. {ONE_ASSESSOR}."] * (len(data.assessors) == 1)),
        *_random_assessors(data),
        *_reversed_assessors(data),
        *(_more_test_queries(data) if data.has_rankers else _more_expert_grades(data)),
        *_label_next(data),
    ]
    if not data.has_rankers:
        return Card("What next?", "", "none", steps=[*steps, "Add features of the documents to train a ranker."])
    step, model = _ranker_to_use(data)
    command = (
        f"crowdrank rank -m {quote(str(data.folder / model))} -f {_new_features(data)} -o run.trec" if model else ""
    )
    return Card("What next?", "", "none", steps=[*steps, step], command=command)


def _new_features(data: ReportData) -> str:
    """Return the name of a file of new features in the format of those of the run."""
    words = split(data.result.provenance.command)
    suffixes = [Path(after).suffixes for word, after in pairwise(words) if word in ("-f", "--features")]
    if any(suffixes):
        return "new" + "".join(suffixes[0][-2 if suffixes[0][-1:] == [".gz"] else -1 :])
    is_letor = all(map(is_letor_feature, data.result.tables["features"]["feature"].to_pylist()))
    return "new.letor" if is_letor else "new.csv"


def _ranker_to_use(data: ReportData) -> tuple[str, str]:
    """Return which ranker to use, in a sentence, and the folder of its model; empty for a ranking in a file."""
    contrast = _contrast(data)
    if contrast is None or contrast.difference > 0:
        return "Rank new documents:", "model"
    name = data.short_name(contrast.other)
    about = data.candidate(contrast.other)
    note = f" ({about['note']})" if about.get("note") else ""
    verdict = data.rankers.verdict
    is_worse = verdict is not None and verdict.answer == "worse"
    reason = "is better" if is_worse else "is not shown to be worse, and is simpler"
    if data.rankers.alternative is None:
        return f"Keep {name}{note}: it {reason}.", ""
    return f"Rank new documents by {name}{note}, which {reason}:", ALTERNATIVE


def _random_assessors(data: ReportData) -> list[str]:
    flagged = _flagged(data, "random")
    if not len(flagged):
        return []
    weight = data.weight_in_consensus(flagged) if data.models_assessors else data.equal_weights
    effect = f" have {weight} in the consensus" if weight else " are used as they are"
    cost = sum(data.cost_by_assessor.get(str(name), 0.0) for name in flagged["assessor"])
    total = (
        f" They cost {cost:,.2f} of {sum(data.cost_by_assessor.values()):,.2f} ({data.unit('cost')})." if cost else ""
    )
    return [
        f"Stop asking {counted(len(flagged), 'assessor')} who answer{'s' * (len(flagged) == 1)} at random: "
        f"{_names(flagged)}. Their {_share_of_judgments(data, flagged)}{effect}.{total}{_llm_advice(flagged)}"
    ]


def _reversed_assessors(data: ReportData) -> list[str]:
    flagged = _flagged(data, "reversed")
    if not len(flagged):
        return []
    if not data.models_assessors:
        effect = "are used as they are: exclude these assessors, or use the consensus method gda, which weights them"
    elif (flagged["model_direction"] < 0).all():
        effect = f"are inverted by the consensus and have {data.weight_in_consensus(flagged)}"
    else:
        effect = f"have {data.weight_in_consensus(flagged)} in the consensus"
    return [
        f"Check whether {counted(len(flagged), 'assessor')} reversed the scale: {_names(flagged)}. Their "
        f"{_share_of_judgments(data, flagged)} {effect}.{_llm_advice(flagged)}"
    ]


def _llm_advice(flagged: pd.DataFrame) -> str:
    """Return the advice on assessors with one flag if all are LLM judges."""
    if "kind" not in flagged or set(flagged["kind"]) != {LLM}:
        return ""
    advice = ADVICE[flagged["flag"].iloc[0]].llm
    return f" {advice[0].upper()}{advice[1:]}."


def _flagged(data: ReportData, flag: str) -> pd.DataFrame:
    """Return the assessors with a flag, those with most judgments first."""
    table = data.assessors
    return table[table["flag"] == flag].sort_values("judgments", ascending=False, kind="stable")


def _names(assessors: pd.DataFrame) -> str:
    more = (
        f" and {len(assessors) - MAX_NAMED_ASSESSORS:,} more (listed below)"
        if len(assessors) > MAX_NAMED_ASSESSORS
        else ""
    )
    return f"{', '.join(distinct_lines(assessors['assessor'].head(MAX_NAMED_ASSESSORS), 24))}{more}"


def _share_of_judgments(data: ReportData, assessors: pd.DataFrame) -> str:
    n = int(assessors["judgments"].sum())
    return f"{counted(n, 'judgment')} ({percent(n / max(int(data.assessors['judgments'].sum()), 1))} of all)"


def _more_expert_grades(data: ReportData) -> list[str]:
    if len(data.against_experts) >= MIN_GRADED_DOCUMENTS:
        return []
    return [f"Have experts grade at least {MIN_GRADED_DOCUMENTS} of the judged documents, to check the labels."]


def _more_test_queries(data: ReportData) -> list[str]:
    """Return how many test queries would make the observed gain significant, if it is not yet."""
    from crowdrank.pipeline.contrasts import EXPERT_QUERIES, detectable_standard_errors

    if not data.tested:
        return [f"Have experts grade {EXPERT_QUERIES} queries, to select and to test a ranker."]
    contrast, verdict = _contrast(data), data.rankers.verdict
    if contrast is None or verdict is None or verdict.answer != "open":
        return []
    size, n = abs(contrast.difference), contrast.n_queries
    error = (contrast.upper - contrast.lower) / (2 * 1.96)
    if not error > 0:
        return []
    if size < error:  # a number of queries for a difference within its own noise would be a guess
        return [
            f"If small differences matter, have experts grade more queries: on {n:,} test queries, the difference is "
            "smaller than its standard error."
        ]
    if contrast.difference < 0:  # more queries would show that the alternative is better
        return []
    # A difference that is not significant on n queries needs more than n, whatever the interval says.
    detectable = detectable_standard_errors(_n_tests(data)) * error
    needed = max(math.ceil(n * (detectable / size) ** 2), n + 1, MIN_TEST_QUERIES)
    return [
        f"Have experts grade more queries: if the true difference is {size:+.4f}, as measured, it would be significant "
        f"with a probability of 80% on about {needed:,} test queries; there were {n:,}."
    ]


def _label_next(data: ReportData) -> list[str]:
    """Return which documents to have judged again, or to check if experts have graded all."""
    if not len(data.next):
        return [describe_next(data.result.tables["next"])]
    is_open = data.next["judgments"] < len(data.assessors)
    listed = data.next[is_open] if is_open.any() and len(data.assessors) > 1 else data.next
    names = "; ".join(_document_name(data, row) for row in listed.head(N_NEXT_DOCUMENTS_SHOWN).to_dict("records"))
    if data.next["reason"].iloc[0] == DIFFERS_FROM_EXPERT:
        return [f"Check the documents whose label differs most from the expert grade: first {names} (all: next.csv)."]
    if len(data.assessors) > 1 and not is_open.any():
        return [f"All assessors judged the least certain documents. Ask others: first {names} (all: next.csv)."]
    return [f"Have the documents judged again where another label is most useful: first {names} (all: next.csv)."]


def _document_name(data: ReportData, row: Mapping[Hashable, str]) -> str:
    """Return the ids of a document and its query, with its title or the beginning of its text if there is one."""
    texts = data.texts.get((row["query"], row["document"]), {})
    title = one_line(texts.get("title") or texts.get("text") or "", 50)
    quoted = f" “{title}”" if title else ""
    return f"{one_line(row['document'], 24)}{quoted} of query {one_line(row['query'], 24)}"
