"""Call a function for many arguments in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

S = TypeVar("S")
T = TypeVar("T")


def map_in_order(function: Callable[[S], T], arguments: Sequence[S], n_jobs: int) -> Iterator[T]:
    """Call a function with each argument in threads; yield results in order and keep only a few in memory."""
    if n_jobs == 1:
        yield from map(function, arguments)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(n_jobs) as pool:
        pending: deque[Future[T]] = deque()
        try:
            for argument in arguments:
                pending.append(pool.submit(function, argument))
                if len(pending) > n_jobs:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
