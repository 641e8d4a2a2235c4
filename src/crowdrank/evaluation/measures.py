"""What is asked: names such as ``nDCG@10`` or ``AP(rel=2)@100`` as measures, spelt as in ir_measures."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from crowdrank.errors import UsageError, near

Gains = str | tuple[float, ...]
"""How a grade becomes a gain: 'linear' (the grade), 'exponential' (2^grade - 1), or the gains of grades 0, 1, 2, ..."""


@dataclass(frozen=True)
class _Kind:
    options: tuple[str, ...]
    cutoff: Literal["optional", "required", "none"]
    higher_is_better: bool = True


_KINDS = {
    "DCG": _Kind(("dcg", "gains"), "optional"),
    "nDCG": _Kind(("dcg", "gains"), "optional"),
    "AP": _Kind(("rel",), "optional"),
    "ERR": _Kind(("max_grade",), "optional"),
    "P": _Kind(("rel",), "required"),
    "RR": _Kind(("rel",), "optional"),
    "Tau": _Kind((), "none"),
    "TauB": _Kind((), "none"),
    "Spearman": _Kind((), "none"),
    "GradeAccuracy": _Kind((), "none"),
    "GradeMAE": _Kind((), "none", higher_is_better=False),
}
_ALIASES = {"NDCG": "nDCG", "MAP": "AP", "MRR": "RR", "Precision": "P"}  # ir_measures has the same
_GAIN_NAMES = {
    "linear": "linear",
    "log2": "linear",
    "exponential": "exponential",
    "exp-log2": "exponential",
}
_DCG_NAMES = {"linear": "log2", "exponential": "exp-log2"}
_NAME = re.compile(r"(?P<name>\w+)(?:\((?P<options>.*)\))?(?:@(?P<cutoff>\d+))?")
_BETWEEN_NAMES = re.compile(r"[\s,]+(?![^(]*\))")

CORRELATIONS = ("Tau", "TauB", "Spearman")
GRADE_MEASURES = ("GradeAccuracy", "GradeMAE")
GAIN_MEASURES = ("DCG", "nDCG")


@dataclass(frozen=True)
class Measure:
    """One measure with its options; ``str(measure)`` is its name, and parsing that name gives the measure back.

    ======================  ====================================================================================
    DCG, nDCG               gains discounted by log2(rank + 1); ``dcg='exp-log2'`` takes 2^grade - 1 for the gain
                            of a grade, ``gains='0,1,3,7,15'`` a table; nDCG divides by the DCG of the best order
    AP, P, RR               average precision, precision, reciprocal rank; relevant is a grade of at least `rel` (1)
    ERR                     expected reciprocal rank; a reader stops at a document with probability
                            (2^grade - 1) / 2^max_grade; `max_grade` is 4 unless stated, as in gdeval
    Tau                     (concordant - discordant) / pairs with different gold grades; equal scores count 0
    TauB, Spearman          Kendall's tau-b, and Spearman's rank correlation with mean ranks for ties
    GradeAccuracy           share of documents whose grade in the run is the gold grade
    GradeMAE                mean absolute difference of the two grades; lower is better
    ======================  ====================================================================================

    >>> str(Measure("AP", cutoff=100, rel=2))
    'AP(rel=2)@100'
    >>> Measure("GradeMAE").higher_is_better
    False
    """

    name: str
    cutoff: int | None = None
    rel: int = 1
    gains: Gains | None = None
    max_grade: int = 4

    def __post_init__(self) -> None:
        if self.name not in _KINDS:
            raise UsageError(_unknown(self.name))
        kind = _KINDS[self.name]
        if kind.cutoff == "required" and self.cutoff is None:
            raise UsageError(f"{self.name} needs a cutoff; write {self.name}@10, for example.")
        if kind.cutoff == "none" and self.cutoff is not None:
            raise UsageError(f"{self.name} looks at all documents; write {self.name} without @{self.cutoff}.")
        for option, value in (("cutoff", self.cutoff), ("rel", self.rel), ("max_grade", self.max_grade)):
            _require_positive(self.name, option, value)
        for option, stated in (("rel", self.rel != 1), ("gains", self.gains), ("max_grade", self.max_grade != 4)):
            if stated and option not in kind.options:
                raise UsageError(_unknown_option(self.name, option))

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger value is a better one.

        >>> Measure("nDCG").higher_is_better
        True
        """
        return _KINDS[self.name].higher_is_better

    def __str__(self) -> str:
        options = []
        if self.rel != 1:
            options.append(f"rel={self.rel}")
        if isinstance(self.gains, str):
            options.append(f"dcg='{_DCG_NAMES[self.gains]}'")
        elif self.gains is not None:
            options.append(f"gains='{','.join(map(_short, self.gains))}'")
        if self.max_grade != 4:
            options.append(f"max_grade={self.max_grade}")
        stated = f"({','.join(options)})" if options else ""
        return f"{self.name}{stated}{'' if self.cutoff is None else f'@{self.cutoff}'}"


def parse_measure(name: str | Measure) -> Measure:
    """The measure that a name asks for.

    >>> parse_measure("nDCG(dcg='exp-log2')@10")
    Measure(name='nDCG', cutoff=10, rel=1, gains='exponential', max_grade=4)
    >>> str(parse_measure("nDCG(gains='0,1,3,7,15')@10"))
    "nDCG(gains='0,1,3,7,15')@10"
    >>> parse_measure("nDGC")
    Traceback (most recent call last):
    crowdrank.errors.UsageError: There is no measure 'nDGC' (did you mean 'nDCG'?); the measures are DCG, nDCG, AP,
    ERR, P, RR, Tau, TauB, Spearman, GradeAccuracy, GradeMAE.
    """
    if isinstance(name, Measure):
        return name
    found = _NAME.fullmatch(name.strip())
    if found is None:
        raise UsageError(
            f"{name!r} is not how a measure is written; write its name, options and cutoff as in AP(rel=2)@100."
        )
    kind = _ALIASES.get(found["name"], found["name"])
    if kind not in _KINDS:
        raise UsageError(_unknown(kind))
    options = _options(kind, name, found["options"])
    cutoff = int(found["cutoff"]) if found["cutoff"] else None
    return Measure(kind, cutoff=cutoff, **options)


def parse_measures(measures: str | Measure | Iterable[str | Measure]) -> tuple[Measure, ...]:
    """The measures asked for, each one once; a text may hold several names, apart by spaces or commas.

    >>> [str(measure) for measure in parse_measures("nDCG@10, AP(rel=2) MAP(rel=2)")]
    ['nDCG@10', 'AP(rel=2)']
    """
    if isinstance(measures, Measure):
        return (measures,)
    if isinstance(measures, str):
        measures = [name for name in _BETWEEN_NAMES.split(measures) if name]
    asked = tuple(dict.fromkeys(parse_measure(measure) for measure in measures))
    if not asked:
        raise UsageError(f"No measure is named; the measures are {', '.join(_KINDS)}.")
    return asked


def parse_gains(gains: str | Sequence[float]) -> Gains:
    """How grades become gains, from a name, a text of numbers or the numbers themselves.

    >>> parse_gains("exponential"), parse_gains("0,1,3"), parse_gains([0, 1, 3])
    ('exponential', (0.0, 1.0, 3.0), (0.0, 1.0, 3.0))
    """
    if isinstance(gains, str) and gains in _GAIN_NAMES:
        return _GAIN_NAMES[gains]
    try:
        table = tuple(float(gain) for gain in (gains.split(",") if isinstance(gains, str) else gains))
    except (TypeError, ValueError):
        table = ()
    if not table or not all(math.isfinite(gain) and gain >= 0 for gain in table):
        raise UsageError(
            f"{gains!r} is not a way to turn grades into gains; use linear, exponential, or the gains of grades "
            "0, 1, 2, ... as numbers of at least 0, such as 0,1,3,7,15."
        )
    if any(later < earlier for earlier, later in pairwise(table)):
        raise UsageError(f"The gains {gains!r} fall from one grade to the next; name that of the lowest grade first.")
    return table


def _options(kind: str, name: str, text: str | None) -> dict[str, Any]:
    try:
        call = ast.parse(f"measure({text or ''})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError
        stated = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError) as problem:
        raise UsageError(f"The options in {name!r} cannot be read; write them as in AP(rel=2)@100.") from problem
    for option in stated:
        if option not in _KINDS[kind].options:
            raise UsageError(_unknown_option(kind, option))
    if "dcg" in stated and "gains" in stated:
        raise UsageError(f"{name!r} states both dcg and gains; state one of them.")
    if "dcg" in stated:
        stated["gains"] = _dcg_gains(stated.pop("dcg"))
    elif "gains" in stated:
        stated["gains"] = parse_gains(stated["gains"])
    return stated


def _dcg_gains(dcg: object) -> str:
    for gains, name in _DCG_NAMES.items():
        if dcg == name:
            return gains
    raise UsageError(f"dcg={dcg!r} is not known; use 'log2' (the grade) or 'exp-log2' (2^grade - 1).")


def _require_positive(name: str, option: str, value: object) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (whole and value >= 1):  # type: ignore[operator]
        raise UsageError(f"{name} has {option} {value!r}; use a whole number of at least 1.")


def _short(gain: float) -> str:
    return str(int(gain)) if gain == int(gain) else repr(gain)


def _unknown(name: str) -> str:
    return f"There is no measure {name!r}{near(name, _KINDS)}; the measures are {', '.join(_KINDS)}."


def _unknown_option(kind: str, option: str) -> str:
    known, meant = ", ".join(_KINDS[kind].options) or "none", near(option, _KINDS[kind].options)
    return f"{kind} has no option {option!r}{meant}; its options: {known}."
