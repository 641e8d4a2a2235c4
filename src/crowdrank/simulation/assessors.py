"""The crowd of a world: who the assessors are, and what grade each gives to what they see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from crowdrank._typing import Floats
from crowdrank.simulation.documents import Flags, Ints, Texts

# Those who look, with their shares among themselves.
HONEST = {"careful": 0.3, "ordinary": 0.5, "careless": 0.2}
# Those who do not, with theirs.
SPAMMERS = {"random-spammer": 0.5, "constant-spammer": 0.3, "center-spammer": 0.2}
ADVERSARY = "adversary"
# Standard deviation of what is seen, as a share of the scale; a spammer sees nothing.
NOISE = {"careful": 0.06, "ordinary": 0.14, "careless": 0.3, ADVERSARY: 0.14}
# Median seconds for a document of ordinary difficulty.
SECONDS = {"careful": 30.0, "ordinary": 22.0, "careless": 14.0, ADVERSARY: 18.0} | dict.fromkeys(SPAMMERS, 4.0)
# The noise by which an assessor is paid: a spammer passes for a careless one.
PAID_NOISE = NOISE | dict.fromkeys(SPAMMERS, NOISE["careless"])
NO_FAMILY = -1


@dataclass(frozen=True, eq=False)
class Assessors:
    """Assessors and the truth about them.

    `rigor` is on the scale of expert grades, `noise` and `family_error` too; `favourite` is the one grade of a
    constant spammer. A copy is a second account: its `original` is another assessor, for all others themselves.

    >>> assessors = draw_assessors(np.random.default_rng(1), 4, spammers=0.5, adversaries=0.25)
    >>> sorted(assessors.kind)
    ['adversary', 'constant-spammer', 'ordinary', 'random-spammer']
    """

    assessor: Texts
    kind: Texts
    rigor: Ints
    noise: Floats
    activity: Floats  # sums to 1
    favourite: Ints
    seconds: Floats
    price: Floats
    family: Ints  # NO_FAMILY for those who have none
    original: Ints
    grades: int
    label_grades: int
    families: int
    family_error: float

    def __len__(self) -> int:
        return len(self.assessor)

    @property
    def looks(self) -> Flags:
        """Whether each assessor's grades depend on the document at all.

        >>> draw_assessors(np.random.default_rng(1), 2, spammers=1).looks.tolist()
        [False, False]
        """
        return ~np.isin(self.kind, list(SPAMMERS))

    @property
    def family_name(self) -> Texts:
        """The family of each assessor as a text, None for those who have none.

        >>> draw_assessors(np.random.default_rng(1), 4, spammers=0.25, families=2).family_name.tolist()
        [None, 'family-2', 'family-1', 'family-1']
        """
        names = [*(f"family-{number}" for number in range(1, self.families + 1)), None]
        return np.array(names, dtype=object)[self.family]

    @property
    def is_copy(self) -> Flags:
        """Whether each assessor is the second account of another.

        >>> int(draw_assessors(np.random.default_rng(1), 10, copies=0.4).is_copy.sum())
        4
        """
        return np.asarray(self.original != np.arange(len(self)))

    def frame(self) -> pd.DataFrame:
        """The truth about every assessor; blank where a quality means nothing for the kind.

        >>> draw_assessors(np.random.default_rng(1), 1).frame()[["assessor", "kind", "favourite", "price", "copy_of"]]
           assessor      kind  favourite  price copy_of
        0  worker-1  ordinary       <NA>  0.037    None
        """
        looks = self.looks
        return pd.DataFrame(
            {
                "assessor": self.assessor,
                "kind": self.kind,
                "rigor": pd.Series(self.rigor, dtype="Int64").where(looks),
                "noise": np.where(looks, self.noise, np.nan),
                "activity": self.activity,
                "favourite": pd.Series(self.favourite, dtype="Int64").where(self.kind == "constant-spammer"),
                "seconds": self.seconds,
                "price": self.price,
                "family": self.family_name,
                "copy_of": pd.Series(self.assessor[self.original], dtype=object).where(self.is_copy, None),
            }
        )

    def cuts(self) -> Floats:
        """Where each assessor's grades begin on the scale of relevance, (n_assessors, label_grades - 1).

        A rigorous assessor's grades begin later. For a crowd of two grades the one cut lies between the
        expert grades r and r + 1, r the rigor: a positive label if and only if the grade > r (REMAP eq. 11).

        >>> crowd = draw_assessors(np.random.default_rng(1), 1, label_grades=2, noise=0)
        >>> crowd.cuts().item() == crowd.rigor.item() + 0.5
        True
        """
        grades, label_grades = self.grades, self.label_grades
        even = np.arange(1, label_grades) * grades / label_grades - 0.5
        shift = (self.rigor - (grades - 2) / 2) * 2 / label_grades
        return np.asarray(even + shift[:, None])

    def shared_errors(self, rng: np.random.Generator, difficulty: Floats) -> Floats:
        """What each family misperceives of every document, (families + 1, n_documents); the last row is of no family.

        As an assessor's own noise, it grows with the difficulty of the document.

        >>> crowd = draw_assessors(np.random.default_rng(1), 4, families=2)
        >>> errors = crowd.shared_errors(np.random.default_rng(0), np.ones(3))
        >>> errors.shape, errors[NO_FAMILY].tolist()
        ((3, 3), [0.0, 0.0, 0.0])
        """
        errors = self.family_error * difficulty * rng.normal(size=(self.families, len(difficulty)))
        return np.vstack([errors, np.zeros(len(difficulty))])

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
    families: int = 0,
    family_error: float = 1.0,
    copies: float = 0.0,
    price: float = 0.05,
) -> Assessors:
    """Assessors worker-1, worker-2, ...; the arguments are explained at :func:`crowdrank.simulate`.

    >>> crowd = draw_assessors(np.random.default_rng(1), 20, spammers=0.1, label_grades=2)
    >>> int(crowd.looks.sum()), crowd.assessor[11]
    (18, 'worker-12')
    """
    # Every quality has its own generator, so that a change of one leaves the others as they were.
    sorting, judging, wobbling, working, liking, timing, paying, dealing, copying = rng.spawn(9)
    kind = _kinds(sorting, number, spammers, adversaries)
    wobble = wobbling.lognormal(0, 0.2, number)
    activity = working.lognormal(0, 1.3, number)
    family = _families(dealing, kind, families)
    original = _originals(copying, kind, family, copies)
    width = len(str(number))
    return Assessors(
        assessor=np.array([f"worker-{n:0{width}}" for n in range(1, number + 1)], dtype=object),
        kind=kind,
        rigor=judging.integers(grades - 1, size=number)[original],
        noise=(noise * grades * _by_kind(NOISE, kind) * wobble)[original],
        activity=activity / activity.sum(),
        favourite=liking.integers(label_grades, size=number)[original],
        seconds=(_by_kind(SECONDS, kind) * timing.lognormal(0, 0.25, number)).round(1)[original],
        price=_prices(paying, price, _by_kind(PAID_NOISE, kind) * wobble)[original],
        family=family,
        original=original,
        grades=grades,
        label_grades=label_grades,
        families=families,
        family_error=family_error * grades * NOISE["ordinary"],
    )


def _kinds(rng: np.random.Generator, number: int, spammers: float, adversaries: float) -> Texts:
    """A kind for everyone: numbers as near the shares as whole numbers can be, order by chance."""
    honest = 1 - spammers - adversaries
    shares = {kind: share * honest for kind, share in HONEST.items()}
    shares |= {ADVERSARY: adversaries} | {kind: share * spammers for kind, share in SPAMMERS.items()}
    ends = np.rint(np.cumsum(list(shares.values())) * number).astype(np.int64)
    kinds = np.repeat(np.array(list(shares), dtype=object), np.diff(ends, prepend=0))
    return np.asarray(rng.permutation(kinds))


def _families(rng: np.random.Generator, kind: Texts, families: int) -> Ints:
    """A family for every honest assessor, all families of one size or nearly so."""
    family = np.full(len(kind), NO_FAMILY, dtype=np.int64)
    if families:
        honest = rng.permutation(np.flatnonzero(np.isin(kind, list(HONEST))))
        family[honest] = np.arange(len(honest)) % families
    return family


def _originals(rng: np.random.Generator, kind: Texts, family: Ints, copies: float) -> Ints:
    """Whose account each is: for a share of them another's, of the same kind and family and no copy itself."""
    original = np.arange(len(kind))
    group = pd.factorize(pd.MultiIndex.from_arrays([kind, family]))[0]
    shuffled = rng.permutation(len(kind))
    # The first of every group stays, so that each has someone to copy.
    first = np.unique(group[shuffled], return_index=True)[1]
    copying = np.delete(shuffled, first)[: round(copies * len(kind))]
    copied = np.setdiff1d(original, copying)
    for who in copying:
        original[who] = rng.choice(copied[group[copied] == group[who]])
    return original


def _prices(rng: np.random.Generator, price: float, noise: Floats) -> Floats:
    """Prices of a label, to three digits: half the noise costs 1.4 times as much, and pay is not quite just."""
    drawn = price * np.sqrt(NOISE["ordinary"] / noise) * rng.lognormal(0, 0.15, len(noise))
    return np.array([float(f"{one:.3g}") for one in drawn])


def _by_kind(values: dict[str, float], kind: Texts) -> Floats:
    return np.array([values.get(name, 0.0) for name in kind])
