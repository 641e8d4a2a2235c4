"""Steps of a remapper: in memory, or on an engine, where a step is a few sums over blocks of documents.

Per step there: the normal equations of the least squares behind the labels; then, with how the measure pulls at them,
the gradients of coefficients (linear), or for each level of a tree the sums of slopes by bin (boosted). Nothing that
grows with the labels comes back but the sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import linalg
from scipy.special import expit

from crowdrank._typing import Arrays, Floats
from crowdrank.engine.base import Engine
from crowdrank.label_learning import kernels
from crowdrank.label_learning.gls_gradients import Background, factored, normal_equations

if TYPE_CHECKING:
    from crowdrank.label_learning.boosted import BoostedFunctions
    from crowdrank.label_learning.linear import LinearFunctions
    from crowdrank.label_learning.remapper import Functions, Learned

LABELS_PER_BLOCK = 1 << 16
"""Enough that a pass dwarfs what is sent for it."""
WIDEST = 30.0
"""Weights are sigma of numbers within this: all labels together never weigh nothing."""


def chance(raw: Floats) -> Floats:
    """Sigma of numbers, none too far out.

    >>> chance(np.array([0.0, -1e9])).round(6).tolist()
    [0.5, 0.0]
    """
    return np.asarray(expit(np.clip(raw, -WIDEST, WIDEST)))


class Climb(ABC):
    """The least squares behind the labels and the functions of labels, taking steps together."""

    functions: Functions
    coefficients: Floats
    """Of the least squares, the intercept last."""

    @property
    @abstractmethod
    def weight(self) -> float:
        """What all labels weigh together."""

    @abstractmethod
    def solve(self, mu: float) -> None:
        """The least squares on the targets and weights as they stand."""

    @abstractmethod
    def climb(self, V: Floats, slope: Floats, rate: float) -> None:
        """Move the functions up along dM/ds of the rows of V."""

    def scores(self, V: Floats) -> Floats:
        """The scores of other rows."""
        return np.asarray(V @ self.coefficients[:-1] + self.coefficients[-1])

    def kept(self) -> Any:
        """What `learned` needs to make of the functions as they stand."""
        return self.functions.kept()

    def learned(self, kept: Any) -> Learned:
        """The functions as they stood."""
        return self.functions.learned(kept)


class Steps(Climb):
    """Steps in memory."""

    def __init__(self, functions: Functions, background: Background, of_weight: bool) -> None:
        self.functions, self.background, self.of_weight = functions, background, of_weight

    @property
    def weight(self) -> float:
        """What all labels weigh together."""
        return float(self.functions.weight.sum())

    def solve(self, mu: float) -> None:
        """The least squares on the targets and weights as they stand."""
        self.background.solve(self.functions.target, self.functions.weight, mu)
        self.coefficients = self.background.coefficients

    def climb(self, V: Floats, slope: Floats, rate: float) -> None:
        """Move the functions up along dM/ds of the rows of V."""
        self.functions.step(*self.background.slopes(V, slope, of_weight=self.of_weight), rate)


def blocks(offsets: Any, of_documents: Arrays, of_labels: Arrays, size: int = LABELS_PER_BLOCK) -> list[Arrays]:
    """Runs of whole documents with their labels; `item` is the document of each label within its block.

    >>> cut = blocks(np.array([0, 2, 3, 5]), {"X": np.zeros((3, 1))}, {"y": np.arange(5)}, size=2)
    >>> [(len(block["X"]), block["item"].tolist()) for block in cut]
    [(2, [0, 0, 1]), (1, [0, 0])]
    """
    n_blocks = max(1, int(offsets[-1]) // size)
    ends = np.unique(np.searchsorted(offsets, np.linspace(0, offsets[-1], n_blocks + 1)))
    cut = []
    for first, last in pairwise(ends):
        start, stop = offsets[first], offsets[last]
        cut.append(
            {
                **{name: values[first:last] for name, values in of_documents.items()},
                **{name: values[start:stop] for name, values in of_labels.items()},
                "item": np.repeat(np.arange(last - first), np.diff(offsets[first : last + 1])),
            }
        )
    return cut


def equations(block: Arrays, target: Floats, weight: Floats) -> Arrays:
    """The sums of the normal equations over a block."""
    n = len(block["X"])
    mass, moment = (np.bincount(block["item"], amount, n).astype(np.float64) for amount in (weight, weight * target))
    gram, right = normal_equations(np.ascontiguousarray(block["X"]), mass, moment)
    return {"gram": np.triu(gram), "right": right, "weight": np.array([weight.sum()])}


def slopes(block: Arrays, theta: Arrays, target: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """dM/dt and dM/dw of every label of a block, as `Background.slopes` has them."""
    pull, coefficients = theta["pull"], theta["coefficients"]
    lean = (block["X"] @ pull[:-1] + pull[-1])[block["item"]]
    fitted = (block["X"] @ coefficients[:-1] + coefficients[-1])[block["item"]]
    return weight * lean, (target - fitted) * lean


class EngineSteps(Climb):
    """Steps on the blocks of an engine; a subclass states what a step of the functions is."""

    def __init__(self, model: Any, cut: list[Arrays], engine: Engine) -> None:
        self.passes = engine.passes(model, cut)
        self.sums = self.passes.accumulate(self._begun())

    @abstractmethod
    def _begun(self) -> Arrays | None:
        """What the first pass is told."""

    @abstractmethod
    def _step(self, pulled: Arrays, rate: float) -> Arrays:
        """One step of the functions; the normal equations after it."""

    @property
    def weight(self) -> float:
        """What all labels weigh together."""
        return float(self.sums["weight"][0])

    def solve(self, mu: float) -> None:
        """The least squares on the targets and weights as they stand."""
        self._factor = factored(self.sums["gram"], mu)
        self.coefficients = linalg.cho_solve(self._factor, self.sums["right"], check_finite=False)

    def climb(self, V: Floats, slope: Floats, rate: float) -> None:
        """Move the functions up along dM/ds of the rows of V."""
        pull = linalg.cho_solve(self._factor, np.append(slope @ V, slope.sum()), check_finite=False)
        self.sums = self._step({"pull": pull, "coefficients": self.coefficients}, rate)


class LinearRows:
    """Blocks under linear functions: targets and weights are made of the coefficients in every pass."""

    locality: ClassVar[str] = "item"
    carries: ClassVar[tuple[str, ...]] = ()

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def _start(self, block: Arrays) -> Arrays:
        """Nothing is kept."""
        return {}

    def _restart(self, block: Arrays) -> Arrays:
        """As at the start."""
        return self._start(block)

    def _accumulate(self, block: Arrays, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """The normal equations or, where the theta tells of a pull, the gradients of the coefficients."""
        assert theta is not None
        Y = block["Y"]
        weight = chance(Y @ theta["alpha"])
        target = chance(Y @ theta["beta"]) if "T" in self.mode else block["start"]
        if "pull" not in theta:
            return local, equations(block, target, weight)
        of_target, of_weight = slopes(block, theta, target, weight)
        return local, {
            "beta": Y.T @ (of_target * target * (1 - target)),
            "alpha": Y.T @ (of_weight * weight * (1 - weight)),
        }

    def _finish(self, block: Arrays, local: Arrays, theta: Arrays) -> Arrays:
        """Nothing is asked of single labels."""
        return {}


class LinearSteps(EngineSteps):
    """Steps of linear functions."""

    functions: LinearFunctions

    def __init__(self, functions: LinearFunctions, cut: list[Arrays], engine: Engine) -> None:
        self.functions, self.mode = functions, functions.mode
        super().__init__(LinearRows(functions.mode), cut, engine)

    def _begun(self) -> Arrays:
        return {"alpha": self.functions.alpha, "beta": self.functions.beta}

    def _step(self, pulled: Arrays, rate: float) -> Arrays:
        gradients = self.passes.accumulate({**self._begun(), **pulled})
        self.functions.move(
            gradients["beta"] if "T" in self.mode else None, gradients["alpha"] if "W" in self.mode else None, rate
        )
        return self.passes.accumulate(self._begun())


class BoostedRows:
    """Blocks under sums of trees: where every label stands is kept between passes."""

    locality: ClassVar[str] = "item"
    carries: ClassVar[None] = None

    def __init__(self, mode: str, width: int) -> None:
        self.roles = tuple(role for role, letter in (("target", "T"), ("raw", "W")) if letter in mode)
        self.width = width

    def _start(self, block: Arrays) -> Arrays:
        """Targets as they start, weights of 1/2."""
        n = len(block["start"])
        return {"target": block["start"].astype(np.float64), "raw": np.zeros(n)}

    def _restart(self, block: Arrays) -> Arrays:
        """As at the start."""
        return self._start(block)

    def _accumulate(self, block: Arrays, local: Arrays, theta: Arrays | None) -> tuple[Arrays, Arrays]:
        """The normal equations, after the trees told of are added; or a level of the trees that are being grown."""
        if theta is None or "level" not in theta:
            local = local if theta is None else self._with_trees(block, local, theta)
            return local, equations(block, local["target"], chance(local["raw"]))
        level = int(theta["level"][0])
        local = self._aimed(block, local, theta) if level == 0 else {**local}
        statistics: Arrays = {}
        for role in self.roles:
            aim, node = local[f"{role}_aim"], local[f"{role}_node"].copy()
            sums = np.zeros((2**level, block["bins"].shape[1] * self.width))
            kernels.count_level(block["bins"], aim, node, *self._splits(theta, role), level, self.width, sums)
            local[f"{role}_node"] = node
            statistics[f"{role}_sums"] = sums
            if level == 0:
                statistics[f"{role}_totals"] = np.array([aim.sum(), (aim**2).sum(), len(aim)])
        return local, statistics

    def _aimed(self, block: Arrays, local: Arrays, theta: Arrays) -> Arrays:
        """What the trees are fitted to, from dM/dt and dM/dw."""
        weight = chance(local["raw"])
        of_target, of_weight = slopes(block, theta, local["target"], weight)
        aims = {"target": of_target, "raw": of_weight * weight * (1 - weight)}
        nowhere = np.zeros(len(weight), np.int32)
        told = {f"{role}_{name}": value for role in self.roles for name, value in (("aim", aims[role]),)}
        return {**local, **told, **{f"{role}_node": nowhere for role in self.roles}}

    def _splits(self, theta: Arrays, role: str) -> list[Any]:
        return [theta[f"{role}_{name}"] for name in ("feature", "threshold", "counted")]

    def _with_trees(self, block: Arrays, local: Arrays, theta: Arrays) -> Arrays:
        moved = {name: local[name] for name in ("target", "raw")}
        depth = int(theta["depth"][0])
        for role in self.roles:
            node, nothing = local[f"{role}_node"].copy(), np.zeros((0, 0))
            kernels.count_level(
                block["bins"], local[f"{role}_aim"], node, *self._splits(theta, role), depth, self.width, nothing
            )
            moved[role] = moved[role] + theta[f"{role}_value"][node]
        return moved

    def _finish(self, block: Arrays, local: Arrays, theta: Arrays) -> Arrays:
        """Nothing is asked of single labels."""
        return {}


class BoostedSteps(EngineSteps):
    """Steps of boosted functions: trees from summed histograms."""

    functions: BoostedFunctions

    def __init__(self, functions: BoostedFunctions, cut: list[Arrays], engine: Engine) -> None:
        self.functions, self.grow = functions, functions.grow
        self.width = 2 * int(np.max(self.grow.binned.n_bins))
        self.rows = BoostedRows(functions.mode, self.width)
        super().__init__(self.rows, cut, engine)

    def _begun(self) -> None:
        return None

    def _step(self, pulled: Arrays, rate: float) -> Arrays:
        grown = {role: _Growing(self.grow, self.width) for role in self.rows.roles}
        for level in range(self.grow.depth):
            told: Arrays = {"level": np.array([level]), **pulled}
            for role, tree in grown.items():
                told |= {f"{role}_{name}": value for name, value in tree.splits().items()}
            sums = self.passes.accumulate(told)
            for role, tree in grown.items():
                tree.choose(level, sums[f"{role}_sums"], sums.get(f"{role}_totals"))
        told = {"depth": np.array([self.grow.depth])}
        for role, tree in grown.items():
            made, scale = tree.made()
            self.functions.trees[0 if role == "target" else 1].append(made)
            told |= {f"{role}_{name}": value for name, value in tree.splits().items()}
            told[f"{role}_value"] = rate * tree.value * scale
        return self.passes.accumulate(told)


class _Growing:
    """A tree while it grows, level by level, from sums over all rows."""

    def __init__(self, grow: Any, width: int) -> None:
        self.grow, self.width, n = grow, width, grow.n_nodes
        self.feature, self.threshold = np.full(n, kernels.LEAF, np.int64), np.zeros(n, np.int64)
        self.value, self.gain, self.size = np.zeros(n), np.zeros(n), np.zeros(n)
        self.counted = np.zeros(n, np.bool_)
        self.counted[0] = True
        self.before, self.energy = np.zeros((1, len(grow.binned.n_bins) * width)), 0.0

    def splits(self) -> Arrays:
        """What rows need to know to find their nodes."""
        # Copies: what was sent stands for a pass that may have to be made again.
        return {name: getattr(self, name).copy() for name in ("feature", "threshold", "counted")}

    def choose(self, level: int, sums: Floats, totals: Floats | None) -> None:
        """Split the nodes of a level."""
        if totals is not None:
            self.energy, self.size[0] = float(totals[1]), totals[2]
            self.value[0] = totals[0] / totals[2]
        kernels.choose_level(
            self.before,
            sums,
            self.grow.binned.n_bins,
            level,
            self.width,
            self.grow.least,
            self.energy,
            self.feature,
            self.threshold,
            self.value,
            self.gain,
            self.size,
            self.counted,
        )
        self.before = sums

    def made(self) -> tuple[Any, float]:
        """The tree, scaled so that what it says is 1 in the mean square, and that scale."""
        leaf = (self.feature == kernels.LEAF) & (self.size > 0)
        length = float(np.sqrt((self.size[leaf] * self.value[leaf] ** 2).sum() / self.size[0]))
        scale = 1 / length if length > 0 else 0.0
        tree = self.grow.tree(self.feature, self.threshold, self.value, self.gain)
        return replace(tree, value=tree.value * scale), scale
