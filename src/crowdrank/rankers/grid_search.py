"""Search for a hyperparameter on a geometric grid that extends itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crowdrank.errors import Fix, UsageError

Evaluate = Callable[[float], float]
MAX_EXTENSIONS = 20
"""Maximum number of values that are added to a grid."""


def choose_value(parameter: str, values: Sequence[float], evaluate: Evaluate | None) -> tuple[float, list[float]]:
    """Return the value with the highest result, and all results; several values are searched by :func:`search_grid`.

    Args:
        parameter: name of the parameter, for messages.
        values: one value, or the start of a grid.
        evaluate: function that returns the validation measure for a value; None without validation queries.

    """
    if evaluate is None:
        require_one_value(parameter, values)
        return values[0], []
    return search_grid(evaluate, values) if len(values) > 1 else (values[0], [evaluate(values[0])])


def require_one_value(parameter: str, values: Sequence[float]) -> None:
    """Raise UsageError if there are several values, for use without validation queries."""
    if len(values) > 1:
        fixes = [Fix("give {}, on which one is chosen", "eval_set"), Fix("give one value")]
        raise UsageError("has several values", parameter=parameter, kind="no-validation", fix=fixes)


def search_grid(evaluate: Evaluate, values: Sequence[float]) -> tuple[float, list[float]]:
    """Return the value with the highest result, and all results in the order in which values were tried.

    While the best value is the largest or the smallest (above 0), the next value of the geometric grid is tried too.
    Of equal results the first wins.

    >>> search_grid(lambda value: -abs(value - 1000), [1.0, 10.0])[0]
    1000.0
    """
    results = {value: evaluate(value) for value in map(float, values)}
    positive = sorted(value for value in results if value > 0)
    ratio = positive[-1] / positive[-2] if len(positive) > 1 else 10.0
    for _ in range(MAX_EXTENSIONS):
        best = max(results, key=results.__getitem__)
        if best == max(results):
            beyond = best * ratio
        elif best == min(results) and best > 0:
            beyond = best / ratio
        else:
            break
        results[beyond] = evaluate(beyond)
    return max(results, key=results.__getitem__), list(results.values())
