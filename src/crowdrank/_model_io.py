"""Save and load estimators as folders of JSON, Parquet and text files, without pickle."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

import crowdrank
from crowdrank._base import Estimator
from crowdrank._folders import FolderKind, Manifest, open_folder, write_folder
from crowdrank._saved import Fields, loading
from crowdrank.errors import InputError


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
