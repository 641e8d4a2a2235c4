"""What a run is told: one place for its options and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from crowdrank._base import require_number, require_one_of, require_whole
from crowdrank.consensus import METHODS
from crowdrank.errors import UsageError, near
from crowdrank.evaluation.measures import parse_gains
from crowdrank.rankers.validation import check_validation


@dataclass(frozen=True)
class Settings:
    """The options of a run.

    Attributes:
        method: the consensus that is written, and that tells who is reliable.
        measure, gains: what rankers are chosen and compared by.
        candidates: the names of those to try; all that make sense here unless given.
        baseline: the candidate that all others are compared with.
        test: the share of the expert-graded queries that the choice never sees. 0: all of them are for the choice, and
            nothing is tested.
        folds: into how many parts the other expert-graded queries are dealt; each is ranked by what learned from the
            others.
        refit: let the chosen candidate learn once more, from everything, test queries included.
        unjudgeable_as: 'cannot judge' answers of the crowd as the lowest grade (`lowest`) or left out (`drop`).
        n_jobs: as many as the machine has, unless given.
        trees, linear, boosted: settings of LambdaMART and of the two remappers, by their names.
        random_state: of splits and of whatever is drawn.

    >>> Settings(measure="AP").test
    0.35
    """

    method: str = "gda"
    measure: str = "nDCG@10"
    gains: str = "exponential"
    candidates: tuple[str, ...] | None = None
    baseline: str = "majority"
    test: float = 0.35
    folds: int = 5
    refit: bool = True
    unjudgeable_as: str = "lowest"
    n_jobs: int | None = None
    trees: Mapping[str, Any] = field(default_factory=dict)
    linear: Mapping[str, Any] = field(default_factory=dict)
    boosted: Mapping[str, Any] = field(default_factory=dict)
    random_state: int = 0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """From options by name.

        >>> Settings.of({"mesure": "AP"})
        Traceback (most recent call last):
        crowdrank.errors.UsageError: A run has no setting 'mesure' (did you mean 'measure'?); it has:
        method, ...
        >>> Settings.of({"candidates": "majority, gda"}).candidates
        ('majority', 'gda')
        """
        names = [one.name for one in fields(cls)]
        unknown = [name for name in given if name not in names]
        if unknown:
            raise UsageError(
                f"A run has no setting '{unknown[0]}'{near(unknown[0], names)}; it has: {', '.join(names)}."
            )
        return cls(**{**given, "candidates": _names(given.get("candidates"))})

    def __post_init__(self) -> None:
        require_one_of("method", self.method, tuple(METHODS))
        require_one_of("unjudgeable_as", self.unjudgeable_as, ("lowest", "drop"))
        check_validation(self.measure)
        parse_gains(self.gains)
        require_number("test", self.test, 0)
        if self.test >= 1:
            raise UsageError(f"test is a share of the expert-graded queries, below 1, not {self.test:g}.")
        require_whole("folds", self.folds, 2)
        require_whole("random_state", self.random_state, 0)
        if self.n_jobs is not None:
            require_whole("n_jobs", self.n_jobs, 1)
        if isinstance(self.candidates, str) or (self.candidates is not None and not self.candidates):
            raise UsageError("candidates are names, one or more.")

    def to_dict(self) -> dict[str, Any]:
        """The options by name, ready for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def _names(listed: Any) -> Any:
    """Names as a tuple: of a list, or of a text with commas between them."""
    if isinstance(listed, str):
        listed = [name.strip() for name in listed.split(",") if name.strip()]
    return tuple(listed) if isinstance(listed, list) else listed
