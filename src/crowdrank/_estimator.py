"""Base class of estimators: parameters by name, scikit-learn's interface, and saving as folders without pickle."""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

import crowdrank
from crowdrank._folders import (
    MAX_SAVED_INTEGER,
    Fields,
    FolderKind,
    Manifest,
    loading,
    open_folder,
    read_parquet,
    require,
    write_folder,
)
from crowdrank._typing import Arrays
from crowdrank.constraints import Constraint, Constraints, Number, OneOf, check_parameter
from crowdrank.errors import InputError, NotFittedError, UsageError, near, shown

OPTION_NAMES = {
    "random_state": "seed",
    "n_jobs": "threads",
    "eval_set": "validation",
    "trusted_proxies": "trusted_proxy",
}
"""Option name (command line and TOML files) of each Python parameter whose option has a different name."""


def require_integer(name: str, value: object, minimum: int) -> None:
    """Raise UsageError unless a parameter's value is an integer of at least `minimum`."""
    check_parameter(name, value, [Number(minimum, integer=True)])


def require_number(name: str, value: object, minimum: float, *, exclusive: bool = False) -> None:
    """Raise UsageError unless a parameter's value is finite and at least (if `exclusive`: above) `minimum`."""
    check_parameter(name, value, [Number(minimum, above=exclusive)])


def require_one_of(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise UsageError unless a parameter's value is one of the choices."""
    check_parameter(name, value, [OneOf(*choices)])


class Estimator:
    """Base class of all estimators; compatible with scikit-learn, which need not be installed.

    A subclass stores the arguments of its constructor under their names and does nothing else there. It declares the
    valid values in `_parameter_constraints`; constraints of base classes apply too. Attributes that a fit sets end
    with an underscore.

    >>> class Ridge(Estimator):
    ...     _parameter_constraints = {"mu": [Number(0)], "solver": [OneOf("cholesky", "svd")]}
    ...
    ...     def __init__(self, mu=1.0, solver="cholesky"):
    ...         self.mu, self.solver = mu, solver
    >>> Ridge(mu=2), Ridge().set_params(solver="svd").get_params()
    (Ridge(mu=2), {'mu': 1.0, 'solver': 'svd'})
    >>> Ridge(mu=-1)._check_parameters()
    Traceback (most recent call last):
    crowdrank.errors.UsageError: mu must be a number of at least 0, not -1.
    """

    _parameter_constraints: ClassVar[Constraints] = {}
    _metadata_request: dict[str, dict[str, bool | str | None]]
    """Metadata routing requests of scikit-learn by method, as set by `set_fit_request` and its siblings."""

    # Parameters.

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor.

        Args:
            deep: include the parameters of nested estimators, as `ranker__n_estimators`, or `members__0__mu`
                for estimators in a list.

        """
        parameters = {name: getattr(self, name) for name in self._parameter_names()}
        if deep:
            for name, value in list(parameters.items()):
                for path, estimator in _nested_estimators(name, value):
                    parameters |= {f"{path}__{inner}": one for inner, one in estimator.get_params().items()}
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters of the constructor; if a name is unknown, change nothing.

        Raises:
            UsageError: there is no parameter of that name.

        """
        for estimator, name, value in list(self._assignments(parameters)):
            setattr(estimator, name, value)
        return self

    def _assignments(self, parameters: Mapping[str, Any]) -> Iterator[tuple[Estimator, str, Any]]:
        """Yield the estimator, name and value of every parameter to set; raise UsageError for an unknown name."""
        nested_parameters: dict[str, dict[str, Any]] = {}
        for path, value in parameters.items():
            name, _, rest = path.partition("__")
            if name not in self._parameter_names():
                raise self._unknown_parameter(name)
            if rest:
                nested_parameters.setdefault(name, {})[rest] = value
            else:
                yield self, name, value
        for name, nested in nested_parameters.items():
            for path, estimator in _nested_estimators(name, parameters.get(name, getattr(self, name))):
                prefix = path[len(name) + 2 :] + "__" if path != name else ""
                own = [one for one in nested if one.startswith(prefix)]
                yield from estimator._assignments({one.removeprefix(prefix): nested.pop(one) for one in own})
            if nested:
                raise UsageError(f"has no parameter {shown(min(nested))}", parameter=name, kind="unknown-parameter")

    def _unknown_parameter(self, name: str) -> UsageError:
        known = self._parameter_names()
        return UsageError(
            f"{type(self).__name__} has no parameter '{name}'{near(name, known)}; it has: {', '.join(known)}",
            kind="unknown-parameter",
        )

    def _check_parameters(self) -> None:
        """Raise UsageError unless every parameter has a valid value; a subclass may add checks of combinations."""
        names = set(self._parameter_names())
        constraints: dict[str, Sequence[Constraint | None]] = {}
        for cls in reversed(type(self).__mro__):
            constraints |= vars(cls).get("_parameter_constraints", {})
        for name, alternatives in constraints.items():
            if name in names:
                check_parameter(name, getattr(self, name), alternatives)

    def __repr__(self) -> str:
        # Compared as text: arrays and models among the values have no simple equality.
        defaults = {name: repr(one.default) for name, one in inspect.signature(type(self).__init__).parameters.items()}
        parameters = self.get_params(deep=False)
        changed = [f"{name}={value!r}" for name, value in parameters.items() if repr(value) != defaults[name]]
        return f"{type(self).__name__}({', '.join(changed)})"

    # scikit-learn.

    def unfitted(self) -> Self:
        """Return an unfitted copy with the same parameters; nested estimators are copied unfitted too."""
        kept = self._fitted_parameters()
        parameters = self.get_params(deep=False)
        made = type(self)(**{name: one if name in kept else _unfitted_copy(one) for name, one in parameters.items()})
        if "_metadata_request" in vars(self):
            made._metadata_request = copy.deepcopy(self._metadata_request)
        return made

    def _fitted_parameters(self) -> tuple[str, ...]:
        """Return the names of parameters that hold a fitted estimator, which `unfitted` shares instead of copying."""
        return ()

    def __sklearn_clone__(self) -> Self:
        return self.unfitted()

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether the estimator is fitted: it has a public attribute that ends with an underscore."""
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet; call fit first.")


def _nested_estimators(name: str, value: object) -> Iterator[tuple[str, Estimator]]:
    """Yield each estimator in a parameter's value (itself or a list item) with the prefix of its parameter names."""
    if isinstance(value, Estimator):
        yield name, value
    elif isinstance(value, list | tuple):
        yield from ((f"{name}__{place}", one) for place, one in enumerate(value) if isinstance(one, Estimator))


def _unfitted_copy(value: Any) -> Any:
    if isinstance(value, Estimator):
        return value.unfitted()
    if isinstance(value, list | tuple):
        return type(value)(map(_unfitted_copy, value))
    return copy.deepcopy(value)


def load_class(package: str, class_path: str) -> Any:
    """Import and return a class of a crowdrank package by its path in the package, such as `gda.GDA`.

    >>> load_class("consensus", "votes.Average").__name__
    'Average'
    """
    module, name = class_path.split(".")
    return getattr(importlib.import_module(f"crowdrank.{package}.{module}"), name)


def unknown_name(category: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown name of a category such as "ranker"; it lists the known names."""
    known = list(known)
    return UsageError(
        f"There is no {category} {shown(name)}{near(name, known)}; take one of: {', '.join(known)}", kind="unknown-name"
    )


class FittedEstimator(Estimator, ABC):
    """Base class of estimators that can be saved and loaded without pickle.

    Each kind of estimator (aggregator, ranker, remapper) declares its kind of folder and how its state is written.
    """

    _folder: ClassVar[FolderKind]
    """Kind of folder that `save` writes."""
    _file: ClassVar[str]
    """Name of the JSON file without its suffix; also the key under which the file stores the name of the class."""

    @classmethod
    @abstractmethod
    def _registered_classes(cls) -> Iterable[type[Any]]:
        """Yield the built-in classes of this kind of estimator."""

    @abstractmethod
    def _write_state(self, folder: Path) -> dict[str, Any]:
        """Write the fitted state into files of a folder; return values to add to the JSON file."""

    @abstractmethod
    def _read_state(self, folder: Path, fields: Fields, files: Iterable[str]) -> None:
        """Restore the fitted state that `_write_state` wrote; raise ValueError if it is incomplete or inconsistent.

        Args:
            folder: folder of the saved estimator.
            fields: values of the JSON file.
            files: paths of all files in the folder, relative to it.

        """

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator into a folder of JSON, Parquet and text files.

        Raises:
            OutputError: the folder cannot be written, or has files that crowdrank did not write.

        """
        self._require_fitted()
        with write_folder(path, self._folder) as folder:
            content = {
                "crowdrank": crowdrank.__version__,
                self._file: type(self).__name__,
                "parameters": self._saved_parameters(),
                **self._write_state(folder),
            }
            (folder / f"{self._file}.json").write_text(
                json.dumps(content, indent=2, default=_to_json_value), encoding="utf-8"
            )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load an estimator that :meth:`save` wrote; the base class of a kind loads every estimator of that kind.

        Raises:
            InputError: the folder has no saved estimator of this kind, or one of its files was damaged or altered.

        """
        folder = Path(path)
        files = cls._open_saved(folder).entries
        with loading(folder, f"it is not a {cls._folder.title}"), np.errstate(all="ignore"):
            fields = Fields.read(folder / f"{cls._file}.json")
            found = cls._find_class(fields.text(cls._file))
            if found is None:
                raise InputError(f"it holds a {fields.text(cls._file)}, not a {cls.__name__}", source=str(path))
            estimator = found().set_params(**_with_tuples(fields.object("parameters")))
            estimator._check_parameters()
            estimator._read_state(folder, fields, files)
        return estimator

    def _saved_parameters(self) -> dict[str, Any]:
        """Return the parameters for the JSON file; subclasses leave out nested estimators, which are fitted state."""
        return self.get_params(deep=False)

    @classmethod
    def _open_saved(cls, folder: Path) -> Manifest:
        """Return the manifest of a saved estimator; for the folder of a run, the error names the estimator in it."""
        try:
            return open_folder(folder, cls._folder)
        except InputError as problem:
            inside, file = folder / "model", f"{cls._file}.json"
            if (inside / file).exists() and not (folder / file).exists():
                message = f"it is not a {cls._folder.title}"
                raise InputError(message, source=str(folder), fix=f"name {inside}") from problem
            raise

    @classmethod
    def _find_class(cls, class_name: str) -> type[Self] | None:
        """Return this class or the subclass that has this name, or None."""
        own: list[type[Any]] = [cls]
        for one in own:  # grows while it is read
            own += one.__subclasses__()
        for found in [*cls._registered_classes(), *own]:
            if found.__name__ == class_name and issubclass(found, cls) and not inspect.isabstract(found):
                return found
        return None


def _with_tuples(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters with lists converted back to tuples, which JSON cannot represent."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()}


def _to_json_value(value: Any) -> Any:
    """Return a JSON value for an object that JSON lacks: a number or list for NumPy values, otherwise a string."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)


SAVED_DTYPES = ("<f8", "<f4", "<i8", "<i4", "|i1", "|b1")
"""NumPy dtypes that saved arrays can have."""
MAX_DIMENSIONS = 8
"""Maximum number of dimensions of a saved array."""


def arrays_to_table(arrays: Arrays) -> pa.Table:
    """Return a table with one row per array: name, dtype, shape and bytes.

    >>> arrays_from_table(arrays_to_table({"a": np.arange(4.0).reshape(2, 2)}))["a"].tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    return pa.table(
        {
            "name": list(arrays),
            "dtype": [array.dtype.str for array in arrays.values()],
            "shape": pa.array([list(array.shape) for array in arrays.values()], pa.list_(pa.int64())),
            "bytes": pa.array([array.tobytes() for array in arrays.values()], pa.large_binary()),
        }
    )


def read_arrays(path: Path) -> Arrays:
    """Read arrays from a Parquet file that holds a table made by :func:`arrays_to_table`."""
    return arrays_from_table(read_parquet(path))


def arrays_from_table(table: pa.Table) -> Arrays:
    """Return the arrays by name; raise ValueError if dtype, shape and number of bytes of one are inconsistent."""
    require(table.column_names == ["name", "dtype", "shape", "bytes"], "it is not a table of arrays")
    arrays: Arrays = {}
    for name, dtype, shape, data in zip(*(column.to_pylist() for column in table.columns), strict=True):
        require(isinstance(name, str) and name not in arrays, "the name of an array is missing or occurs twice")
        require(dtype in SAVED_DTYPES, f"the array {name} has another type")
        require(isinstance(data, bytes) and isinstance(shape, list), f"the array {name} is incomplete")
        sizes = [size for size in shape if isinstance(size, int) and 0 <= size <= MAX_SAVED_INTEGER]
        expected = math.prod(sizes) * np.dtype(dtype).itemsize
        require(
            len(sizes) == len(shape) <= MAX_DIMENSIONS and expected == len(data), f"the array {name} has another shape"
        )
        arrays[name] = np.frombuffer(data, dtype).reshape(sizes).copy()
    return arrays
