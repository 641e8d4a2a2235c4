"""Kernels: functions that numba compiles on their first call, or that NumPy computes if the arrays are small."""

from __future__ import annotations

import hashlib
import inspect
import os
import signal
import stat
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property, update_wrapper
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from concurrent.futures import Future

SMALL_ARRAY_ELEMENTS = 1 << 16
"""Default number of array elements below which a call uses NumPy, if the kernel has such a version.

Loading numba and its cached code takes about half a second, compiling the kernels of a fit several seconds; NumPy needs
up to a few milliseconds more than compiled code per call of this size. The choice depends only on the data, so that
the same data gives the same result.
"""
use_numpy = True
"""Whether kernels use their NumPy version for small arrays; tests of compiled code set it to False."""

_compiling = threading.RLock()


class Kernel:
    """Function that numba compiles when it is first called.

    Importing a module with kernels does not import numba.

    Attributes:
        function: the function to compile.
        numpy: a function with the same arguments and results in NumPy, for small arrays; None: always compile.
        small: number of array elements below which a call uses NumPy.
        options: options of `numba.njit`.

    """

    def __init__(
        self, function: Callable[..., Any], numpy: Callable[..., Any] | None, small: int, options: dict[str, Any]
    ) -> None:
        self.function, self.numpy, self.small, self.options = function, numpy, small, options
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Call the NumPy version or the compiled function."""
        if self.numpy is None or not use_numpy:
            return self.compiled(*arguments)
        n_elements = sum(one.size for one in arguments if isinstance(one, np.ndarray))
        return (self.numpy if n_elements < self.small else self.compiled)(*arguments)

    @cached_property
    def compiled(self) -> Any:
        """The function as numba's dispatcher, which compiles it for the types of its first call or loads cached code.

        Compiled code is cached in `NUMBA_CACHE_DIR` if that is set, else beside the source, else in the user's cache
        folder (these are numba's rules), else in a private folder for temporary files. If there is none, every process
        compiles the function.
        """
        with _compiling:
            numba = _import_numba()
            if not self.options.get("cache"):
                return numba.njit(**self.options)(self.function)
            try:
                return self._cached_dispatcher(numba)
            except RuntimeError:  # numba has no folder that it can write
                folder = private_temporary_folder()
            if folder is None:
                return numba.njit(**{**self.options, "cache": False})(self.function)
            before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
            try:
                return self._cached_dispatcher(numba)
            finally:
                numba.config.CACHE_DIR = before

    def _cached_dispatcher(self, numba: Any) -> Any:
        """Return a dispatcher whose cached code is valid until a file with a function that it calls changes.

        Numba compares only the file of the function itself, although compiled code contains the functions it calls.
        """
        dispatcher = numba.njit(**self.options)(self.function)
        index = dispatcher._cache._cache_file
        index._source_stamp = (index._source_stamp, *map(_file_digest, sorted(self._source_files())))
        return dispatcher

    def _source_files(self) -> set[str]:
        """Return the files of the functions that the function calls, directly or through other functions."""
        files: set[str] = set()
        seen, pending = {self.function}, [self.function]
        while pending:
            names = inspect.getclosurevars(pending.pop())
            called = map(_python_function, (*names.globals.values(), *names.nonlocals.values()))
            new = {function for function in called if function is not None} - seen
            files |= {function.__code__.co_filename for function in new}
            seen |= new
            pending += new
        return files


def njit(
    *, cache: bool = True, numpy: Callable[..., Any] | None = None, small: int = SMALL_ARRAY_ELEMENTS, **options: Any
) -> Callable[..., Kernel]:
    """Return a decorator that makes a function a kernel.

    Args:
        cache: store compiled code on disk.
        numpy: see :class:`Kernel`.
        small: see :class:`Kernel`.
        options: options of `numba.njit`.

    """
    return lambda function: Kernel(function, numpy, small, {"cache": cache, **options})


def _python_function(value: object) -> FunctionType | None:
    """Return the function of a kernel, or a function itself; None for other values."""
    value = value.function if isinstance(value, Kernel) else value
    return value if isinstance(value, FunctionType) else None


@cache
def _file_digest(path: str) -> str:
    return hashlib.blake2b(Path(path).read_bytes()).hexdigest()


def with_item(values: tuple[float, ...], index: int, new_value: float) -> tuple[float, ...]:
    """Return a tuple with another value at an index.

    Compiled code keeps a short tuple in registers, and a short array in memory.
    """
    return (*values[:index], new_value, *values[index + 1 :])


def _import_numba() -> Any:
    """Import numba, and let it compile kernels that call kernels or :func:`with_item`."""
    import numba
    from numba.core import event, types
    from numba.core.cgutils import alloca_once
    from numba.extending import intrinsic, overload, typeof_impl

    def set_in_copy(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, index, value = arguments
        copy = alloca_once(builder, values.type)  # the compiler keeps it in registers if the index is constant
        builder.store(values, copy)
        builder.store(value, builder.gep(copy, [index.type(0), index], inbounds=True))
        return builder.load(copy)

    if Kernel not in typeof_impl.registry:
        typeof_impl.register(Kernel)(lambda kernel, context: types.Dispatcher(kernel.compiled))
        set_item = intrinsic(
            lambda typing_context, values, index, value: (values(values, index, values.dtype), set_in_copy)
        )
        overload(with_item)(lambda values, index, value: lambda values, index, value: set_item(values, index, value))
        event.Listener.register(_DeferredSignals)
        event.register("numba:compiler_lock", _DeferredSignals())
    return numba


class _DeferredSignals:
    """Listener of numba that holds SIGINT and SIGTERM back while the main thread compiles.

    An exception of a signal handler inside a callback of LLVM is lost, or becomes an error of the compiler.
    """

    def __init__(self) -> None:
        self.depth = 0  # numba's lock is taken again for a function that the compiled one calls
        self.received: list[int] = []
        self.handlers: dict[int, Any] = {}

    def notify(self, event: Any) -> None:
        """Replace the signal handlers when compilation starts; restore them and raise the signals when it ends."""
        if threading.current_thread() is not threading.main_thread():
            return
        self.depth += 1 if event.is_start else -1
        if event.is_start and self.depth == 1:
            before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            self.handlers = {number: handler for number, handler in before.items() if callable(handler)}
            for number in self.handlers:
                signal.signal(number, lambda number, frame: self.received.append(number))
        elif event.is_end and self.depth == 0:
            for number, handler in self.handlers.items():
                signal.signal(number, handler)
            received, self.received = self.received, []
            if received:
                signal.raise_signal(received[0])


def private_temporary_folder() -> Path | None:
    """Return a folder for temporary files that only this user can write, or None.

    Cached code is pickled: anybody who can write it can run code in this process. A folder that belongs to another user
    or that others can access is not used.
    """
    user = os.getuid() if hasattr(os, "getuid") else None
    folder = Path(tempfile.gettempdir()) / f"crowdrank-numba-{'user' if user is None else user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    if user is None:  # Windows: each user has a folder for temporary files
        return folder
    is_private = stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077
    return folder if is_private and os.access(folder, os.W_OK | os.X_OK) else None


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


def available_threads() -> int:
    """Return OMP_NUM_THREADS or else the number of cores.

    >>> available_threads() >= 1
    True
    """
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting) if setting.isdecimal() and int(setting) > 0 else os.cpu_count() or 1
