"""Tuning of several parameters on validation queries, over grids that extend themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Settings = dict[str, float]


@dataclass(frozen=True)
class GridLimits:
    """Limits within which a grid may be extended beyond its ends.

    Args:
        low, high: smallest and largest value.
        geometric: the ratio of neighboring values is constant; otherwise their difference is.

    >>> limits = GridLimits(1e-3, 1e3)
    >>> limits.beyond([0.1, 1.0], 0.1), limits.beyond([0.1, 1.0, 10.0], 1.0), limits.beyond([100.0, 1000.0], 1000.0)
    (0.01, None, None)
    """

    low: float
    high: float
    geometric: bool = True

    def beyond(self, grid: Sequence[float], value: float) -> float | None:
        """Return the next value outside an ascending grid if `value` is its end and the limits permit it."""
        if value not in (grid[0], grid[-1]):
            return None
        inner = grid[1] if value == grid[0] else grid[-2]
        # The rounding keeps 0.01 / 10 from becoming 0.0010000000000000002.
        outside = float(f"{value * value / inner if self.geometric else 2 * value - inner:.12g}")
        return outside if self.low <= outside <= self.high else None


def coordinate_search(
    grids: Mapping[str, Sequence[float]],
    limits: Mapping[str, GridLimits],
    evaluate: Callable[[Settings], float],
) -> Settings:
    """Return the best settings found by searching one parameter at a time, again and again until none improves.

    The search starts in the middle of every grid. A grid with limits is extended while its best value is at an end.
    Grids of one value stay fixed. No settings are evaluated twice.

    Args:
        grids: values to try for each parameter.
        limits: limits of the grids that may be extended.
        evaluate: function from settings to a measure; higher is better.

    >>> coordinate_search(
    ...     {"ridge": (0.1, 1.0), "depth": (2, 3)}, {"ridge": GridLimits(1e-6, 1e6)},
    ...     lambda settings: -abs(settings["ridge"] - 100) - abs(settings["depth"] - 2)
    ... )
    {'ridge': 100.0, 'depth': 2}
    """
    values = {name: sorted(set(grid)) for name, grid in grids.items()}
    best = {name: grid[len(grid) // 2] for name, grid in values.items()}
    measured: dict[tuple[float, ...], float] = {}

    def measure(settings: Settings) -> float:
        key = tuple(settings.values())
        if key not in measured:
            measured[key] = evaluate(settings)
        return measured[key]

    measure(best)
    while True:
        before = dict(best)
        for name in (name for name, grid in values.items() if len(grid) > 1):

            def measure_value(value: float, name: str = name) -> float:
                return measure({**best, name: value})

            best[name] = _best_on_grid(values[name], best[name], measure_value, limits.get(name))
        if best == before:
            return best


def _best_on_grid(
    grid: list[float], current: float, measure: Callable[[float], float], limits: GridLimits | None
) -> float:
    """Return the best value of a grid, the current one of equals; extend the grid while the best is at its end."""
    best = max([current, *grid], key=measure)
    while limits is not None and (outside := limits.beyond(grid, best)) is not None:
        grid[:] = sorted([*grid, outside])
        if measure(outside) <= measure(best):
            break
        best = outside
    return best
