"""Parse names of measures such as ``nDCG@10`` or ``AP(rel=2)@100``, spelled as in ir_measures.

One default differs: ``nDCG@10`` has exponential gains here and linear gains in ir_measures. Names that state the gains,
``nDCG(dcg='exp-log2')@10`` and ``nDCG(dcg='log2')@10``, mean the same in both.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

from crowdrank.errors import UsageError, near

Gains = str | tuple[float, ...]
"""Gain of a grade: 'linear' (the grade), 'exponential' (2^grade - 1), or the gains of grades 0, 1, 2, ..."""

MAX_GRADE = 30
"""Highest grade that has the exponential gain 2^grade - 1."""
JUDGED_CUTOFF = 10
"""Cutoff of Judged@k if no evaluated measure has a cutoff."""
CORRELATIONS = ("Tau", "TauB", "Spearman")
GRADE_MEASURES = ("GradeAccuracy", "GradeMAE")
GAIN_MEASURES = ("DCG", "nDCG")

_OPTIONS_BY_MEASURE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(GAIN_MEASURES, ("dcg", "gains")),
    "AP": ("rel",),
    "ERR": ("max_grade",),
    "P": ("rel",),
    "RR": ("rel",),
    **dict.fromkeys(("Judged", *CORRELATIONS, *GRADE_MEASURES), ()),
}
_MEASURES_WITH_CUTOFF = ("P", "Judged")
_MEASURES_WITHOUT_CUTOFF = (*CORRELATIONS, *GRADE_MEASURES)
_MEASURE_ALIASES = {"NDCG": "nDCG", "MAP": "AP", "MRR": "RR", "Precision": "P"}  # as in ir_measures
_DCG_NAMES = {"linear": "log2", "exponential": "exp-log2"}
_MEASURE_PATTERN = re.compile(r"(?P<name>\w+)(?:\((?P<options>.*)\))?(?:@(?P<cutoff>\d+))?")
_SEPARATOR_PATTERN = re.compile(r"[\s,]+(?![^(]*\))")
_SYNTAX_ADVICE = "write name, options and cutoff as in AP(rel=2)@100"


@dataclass(frozen=True)
class Measure:
    """Evaluation measure with its options; ``parse_measure(str(measure))`` returns an equal one.

    ======================  ====================================================================================
    DCG, nDCG               gains discounted by log2(rank + 1); the gain of a grade is 2^grade - 1, the grade itself
                            with ``dcg='log2'``, or from a table with ``gains='0,1,3,7,15'``; nDCG divides by the DCG
                            of the best order
    AP, P, RR               average precision, precision, reciprocal rank; relevant is a grade of at least `rel` (1)
    ERR                     expected reciprocal rank; a reader stops at a document with probability
                            (2^grade - 1) / 2^max_grade; `max_grade` is 4 unless stated, as in gdeval
    Judged                  share of the first documents that have a gold grade
    Tau                     (concordant - discordant) / pairs with different gold grades; equal scores count 0
    TauB, Spearman          Kendall's tau-b, and Spearman's rank correlation with mean ranks for ties
    GradeAccuracy           share of documents whose grade in the run is the gold grade
    GradeMAE                mean absolute difference of the two grades; lower is better
    ======================  ====================================================================================

    >>> str(Measure("AP", cutoff=100, rel=2))
    'AP(rel=2)@100'
    >>> str(Measure("nDCG", cutoff=10, gains="linear"))
    "nDCG(dcg='log2')@10"
    """

    name: str
    cutoff: int | None = None
    rel: int = 1
    gains: Gains = "exponential"
    max_grade: int = 4

    def __post_init__(self) -> None:
        if self.name not in _OPTIONS_BY_MEASURE:
            raise _unknown_measure_error(self.name)
        if self.name in _MEASURES_WITH_CUTOFF and self.cutoff is None:
            raise UsageError(f"{self.name} needs a cutoff", kind="no-cutoff", fix=f"write {self.name}@10, for example")
        if self.name in _MEASURES_WITHOUT_CUTOFF and self.cutoff is not None:
            fix = f"write {self.name} without @{self.cutoff}"
            raise UsageError(f"{self.name} has no cutoff", kind="unknown-option", fix=fix)
        for option in ("cutoff", "rel", "max_grade"):
            value = getattr(self, option)
            if value is not None and (type(value) is not int or value < 1):
                problem = f"the {option} of {self.name} must be a whole number of at least 1, not {value!r}"
                raise UsageError(problem, kind="invalid-measure")
        for field in fields(self)[2:]:
            if getattr(self, field.name) != field.default and field.name not in _OPTIONS_BY_MEASURE[self.name]:
                raise _unknown_option_error(self.name, field.name)

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger value is better.

        >>> Measure("nDCG").higher_is_better, Measure("GradeMAE").higher_is_better
        (True, False)
        """
        return self.name != "GradeMAE"

    def with_gains(self, gains: str | Sequence[float]) -> Measure:
        """Return the measure with other gains, if it is DCG or nDCG and has the default gains.

        >>> str(Measure("nDCG").with_gains("linear")), str(Measure("AP").with_gains("linear"))
        ("nDCG(dcg='log2')", 'AP')
        """
        chosen = effective_gains(self, gains)
        return replace(self, gains=chosen) if self.name in GAIN_MEASURES else self

    def __str__(self) -> str:
        options = []
        if self.rel != 1:
            options.append(f"rel={self.rel}")
        if not isinstance(self.gains, str):
            options.append(f"gains='{','.join(map(_format_gain, self.gains))}'")
        elif self.gains != "exponential":
            options.append(f"dcg='{_DCG_NAMES[self.gains]}'")
        if self.max_grade != 4:
            options.append(f"max_grade={self.max_grade}")
        option_text = f"({','.join(options)})" if options else ""
        return f"{self.name}{option_text}{'' if self.cutoff is None else f'@{self.cutoff}'}"


def parse_measure(name: str | Measure) -> Measure:
    """Return the measure of a name.

    >>> parse_measure("nDCG(dcg='log2')@10")
    Measure(name='nDCG', cutoff=10, rel=1, gains='linear', max_grade=4)
    >>> str(parse_measure("nDCG(gains='0,1,3,7,15')@10"))
    "nDCG(gains='0,1,3,7,15')@10"
    >>> parse_measure("nDGC")
    Traceback (most recent call last):
    crowdrank.errors.UsageError: there is no measure 'nDGC' (did you mean 'nDCG'?); the measures are DCG, nDCG, AP,
    ERR, P, RR, Judged, Tau, TauB, Spearman, GradeAccuracy, GradeMAE.
    """
    if isinstance(name, Measure):
        return name
    match = _MEASURE_PATTERN.fullmatch(name.strip())
    if match is None:
        raise UsageError(f"{name!r} is not a measure", kind="invalid-measure", fix=_SYNTAX_ADVICE)
    kind = _MEASURE_ALIASES.get(match["name"], match["name"])
    if kind not in _OPTIONS_BY_MEASURE:
        raise _unknown_measure_error(kind)
    cutoff = int(match["cutoff"]) if match["cutoff"] else None
    return Measure(kind, cutoff=cutoff, **_parse_options(kind, name, match["options"] or ""))


def parse_measures(measures: str | Measure | Iterable[str | Measure]) -> tuple[Measure, ...]:
    """Return the distinct measures; a text can contain several names, separated by spaces or commas.

    >>> [str(measure) for measure in parse_measures("nDCG@10, AP(rel=2) MAP(rel=2)")]
    ['nDCG@10', 'AP(rel=2)']
    """
    if isinstance(measures, Measure):
        return (measures,)
    if isinstance(measures, str):
        measures = [name for name in _SEPARATOR_PATTERN.split(measures) if name]
    parsed = tuple(dict.fromkeys(parse_measure(measure) for measure in measures))
    if not parsed:
        raise UsageError(f"must not be empty; the measures are {', '.join(_OPTIONS_BY_MEASURE)}", parameter="measures")
    return parsed


def parse_gains(gains: str | Sequence[float]) -> Gains:
    """Return the gains for a name, a comma-separated text of numbers, or numbers.

    >>> parse_gains("exponential"), parse_gains("0,1,3"), parse_gains([0, 1, 3])
    ('exponential', (0.0, 1.0, 3.0), (0.0, 1.0, 3.0))
    """
    if isinstance(gains, str) and gains in _DCG_NAMES:
        return gains
    try:
        table = tuple(float(gain) for gain in (gains.split(",") if isinstance(gains, str) else gains))
    except (TypeError, ValueError):
        table = ()
    if not table or not all(math.isfinite(gain) and gain >= 0 for gain in table):
        problem = (
            f"must be linear, exponential, or the gains of grades 0, 1, 2, ... (numbers of at least 0, such as "
            f"0,1,3,7,15), not {gains!r}"
        )
        raise UsageError(problem, parameter="gains")
    if any(later < earlier for earlier, later in pairwise(table)):
        problem = f"must not decrease from one grade to the next, as {gains!r} do"
        raise UsageError(problem, parameter="gains", fix="begin with the gain of the lowest grade")
    return table


def effective_gains(measure: str | Measure | None, gains: str | Sequence[float]) -> Gains:
    """Return the gains that the name of a measure states, or else `gains`.

    >>> effective_gains("nDCG(dcg='log2')", [0, 1]), effective_gains("nDCG", [0, 1]), effective_gains(None, "linear")
    ('linear', (0.0, 1.0), 'linear')
    """
    parsed = None if measure is None else parse_measure(measure)
    return parse_gains(gains) if parsed is None or parsed.gains == "exponential" else parsed.gains


def _parse_options(measure_name: str, name: str, text: str) -> dict[str, Any]:
    try:
        call = ast.parse(f"measure({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError
        options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{name!r} has invalid options", kind="invalid-measure", fix=_SYNTAX_ADVICE) from error
    for option in options:
        if option not in _OPTIONS_BY_MEASURE[measure_name]:
            raise _unknown_option_error(measure_name, option)
    if "dcg" in options and "gains" in options:
        raise UsageError(f"{name!r} has both dcg and gains", kind="invalid-measure", fix="use one of them")
    if "dcg" in options:
        dcg = options.pop("dcg")
        options["gains"] = next((gains for gains, dcg_name in _DCG_NAMES.items() if dcg == dcg_name), None)
        if options["gains"] is None:
            problem = f"must be 'log2' (the gain is the grade) or 'exp-log2' (2^grade - 1), not {dcg!r}"
            raise UsageError(problem, parameter="dcg")
    elif "gains" in options:
        options["gains"] = parse_gains(options["gains"])
    return options


def _format_gain(gain: float) -> str:
    return str(int(gain)) if gain == int(gain) else repr(gain)


def _unknown_measure_error(name: str) -> UsageError:
    measures = ", ".join(_OPTIONS_BY_MEASURE)
    problem = f"there is no measure {name!r}{near(name, _OPTIONS_BY_MEASURE)}; the measures are {measures}"
    return UsageError(problem, kind="unknown-measure")


def _unknown_option_error(measure_name: str, option: str) -> UsageError:
    known, similar = (
        ", ".join(_OPTIONS_BY_MEASURE[measure_name]) or "none",
        near(option, _OPTIONS_BY_MEASURE[measure_name]),
    )
    return UsageError(f"{measure_name} has no option {option!r}{similar}; its options: {known}", kind="unknown-option")
