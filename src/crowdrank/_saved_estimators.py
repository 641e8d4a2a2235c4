"""Save and load estimators as folders of JSON, Parquet and text files, and named arrays as Parquet, without pickle."""

from __future__ import annotations

import inspect
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

import crowdrank
from crowdrank._estimator import Estimator
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
from crowdrank.errors import InputError

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
