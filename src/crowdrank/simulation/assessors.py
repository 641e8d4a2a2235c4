"""The crowd of a world: who the assessors are, and what grade each gives to what they see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from crowdrank.simulation.documents import Flags, Floats, Ints, Texts

# Those who look, with their shares among themselves.
HONEST = {"careful": 0.3, "ordinary": 0.5, "careless": 0.2}
# Those who do not, with theirs.
SPAMMERS = {"random-spammer": 0.5, "constant-spammer": 0.3, "centre-spammer": 0.2}
ADVERSARY = "adversary"
# Standard deviation of what is seen, as a share of the scale; a spammer sees nothing.
NOISE = {"careful": 0.06, "ordinary": 0.14, "careless": 0.3, ADVERSARY: 0.14}
# Median seconds for a document of ordinary difficulty.
SECONDS = {"careful": 30.0, "ordinary": 22.0, "careless": 14.0, ADVERSARY: 18.0} | dict.fromkeys(SPAMMERS, 4.0)


@dataclass(frozen=True, eq=False)
class Assessors:
    """Assessors and the truth about them.

    `rigour` is on the scale of expert grades, `noise` too; `favourite` is the one grade of a constant spammer.

    >>> assessors = draw_assessors(np.random.default_rng(1), 4, spammers=0.5, adversaries=0.25)
    >>> sorted(assessors.kind)
    ['adversary', 'constant-spammer', 'ordinary', 'random-spammer']
    """

    assessor: Texts
    kind: Texts
    rigour: Ints
    noise: Floats
    activity: Floats  # sums to 1
    favourite: Ints
    seconds: Floats
    grades: int
    label_grades: int

    def __len__(self) -> int:
        return len(self.assessor)

    @property
    def looks(self) -> Flags:
        """Whether each assessor's grades depend on the document at all.

        >>> draw_assessors(np.random.default_rng(1), 2, spammers=1).looks.tolist()
        [False, False]
        """
        return ~np.isin(self.kind, list(SPAMMERS))

    def frame(self) -> pd.DataFrame:
        """The truth about every assessor; blank where a quality means nothing for the kind.

        >>> draw_assessors(np.random.default_rng(1), 1, noise=0).frame()
           assessor      kind  rigour  noise  activity  favourite  seconds
        0  worker-1  ordinary ...     0.0       1.0       <NA> ...
        """
        looks = self.looks
        return pd.DataFrame(
            {
                "assessor": self.assessor,
                "kind": self.kind,
                "rigour": pd.Series(self.rigour, dtype="Int64").where(looks),
                "noise": np.where(looks, self.noise, np.nan),
                "activity": self.activity,
                "favourite": pd.Series(self.favourite, dtype="Int64").where(self.kind == "constant-spammer"),
                "seconds": self.seconds,
            }
        )

    def cuts(self) -> Floats:
        """Where each assessor's grades begin on the scale of relevance, (n_assessors, label_grades - 1).

        A rigorous assessor's grades begin later. For a crowd of two grades the one cut lies between the
        expert grades r and r + 1, r the rigour: a positive label if and only if the grade > r (REMAP eq. 11).

        >>> crowd = draw_assessors(np.random.default_rng(1), 1, label_grades=2, noise=0)
        >>> crowd.cuts().item() == crowd.rigour.item() + 0.5
        True
        """
        grades, label_grades = self.grades, self.label_grades
        even = np.arange(1, label_grades) * grades / label_grades - 0.5
        shift = (self.rigour - (grades - 2) / 2) * 2 / label_grades
        return np.asarray(even + shift[:, None])

    def label(self, rng: np.random.Generator, who: Ints, relevance: Floats, difficulty: Floats) -> Ints:
        """The grades that assessors `who` give to documents of such relevance and difficulty.

        >>> crowd = draw_assessors(np.random.default_rng(1), 1, noise=0)
        >>> crowd.label(np.random.default_rng(0), np.zeros(2, int), np.array([-0.5, 4.5]), np.ones(2)).tolist()
        [0, 4]
        """
        highest = self.label_grades - 1
        perceived = relevance + self.noise[who] * difficulty * rng.normal(size=len(who))
        cuts = self.cuts()
        honest = np.sum([perceived > cuts[who, border] for border in range(highest)], axis=0)
        central = np.clip(np.rint(rng.normal(highest / 2, 0.5, len(who))), 0, highest)
        kind = self.kind[who]
        given = np.select(
            [kind == name for name in (*SPAMMERS, ADVERSARY)],
            [rng.integers(highest + 1, size=len(who)), self.favourite[who], central, highest - honest],
            default=honest,
        )
        return np.asarray(given, dtype=np.int64)


def draw_assessors(
    rng: np.random.Generator,
    number: int,
    *,
    spammers: float = 0.0,
    adversaries: float = 0.0,
    grades: int = 5,
    label_grades: int = 5,
    noise: float = 1.0,
) -> Assessors:
    """Assessors worker-1, worker-2, ...; `spammers` and `adversaries` are shares of them, `noise` a multiplier.

    >>> crowd = draw_assessors(np.random.default_rng(1), 20, spammers=0.1, label_grades=2)
    >>> int(crowd.looks.sum()), crowd.assessor[11]
    (18, 'worker-12')
    """
    # Every quality has its own generator, so that a change of one leaves the others as they were.
    sorting, judging, wobbling, working, liking, timing = rng.spawn(6)
    kind = _kinds(sorting, number, spammers, adversaries)
    activity = working.lognormal(0, 1.3, number)
    width = len(str(number))
    return Assessors(
        assessor=np.array([f"worker-{n:0{width}}" for n in range(1, number + 1)], dtype=object),
        kind=kind,
        rigour=judging.integers(grades - 1, size=number),
        noise=noise * grades * _by_kind(NOISE, kind) * wobbling.lognormal(0, 0.2, number),
        activity=activity / activity.sum(),
        favourite=liking.integers(label_grades, size=number),
        seconds=(_by_kind(SECONDS, kind) * timing.lognormal(0, 0.25, number)).round(1),
        grades=grades,
        label_grades=label_grades,
    )


def _kinds(rng: np.random.Generator, number: int, spammers: float, adversaries: float) -> Texts:
    """A kind for everyone: numbers as near the shares as whole numbers can be, order by chance."""
    honest = 1 - spammers - adversaries
    shares = {kind: share * honest for kind, share in HONEST.items()}
    shares |= {ADVERSARY: adversaries} | {kind: share * spammers for kind, share in SPAMMERS.items()}
    ends = np.rint(np.cumsum(list(shares.values())) * number).astype(np.int64)
    kinds = np.repeat(np.array(list(shares), dtype=object), np.diff(ends, prepend=0))
    return np.asarray(rng.permutation(kinds))


def _by_kind(values: dict[str, float], kind: Texts) -> Floats:
    return np.array([values.get(name, 0.0) for name in kind])
