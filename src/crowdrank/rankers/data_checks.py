"""Checks of training data: features and labels that a ranker cannot learn from."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from crowdrank._text import counted
from crowdrank._typing import Booleans, Floats, Integers
from crowdrank.errors import CrowdrankWarning, InputError
from crowdrank.rankers.ranking_data import RankingData, differ_within


class ConstantFeatureWarning(CrowdrankWarning):
    """Some features are constant or missing in every row, so that a ranker cannot learn from them."""


class MissingValueWarning(CrowdrankWarning):
    """Some features have missing values, which the ranker replaces."""


def warn_constant_features(data: RankingData) -> None:
    """Warn of features that are constant or missing in every row; raise InputError if all are."""
    missing = np.asarray(np.isnan(data.features).all(axis=0))
    constant = np.asarray((data.features[:1] == data.features).all(axis=0))
    if (missing | constant).all():
        fix = "give features that differ between documents"
        raise InputError("no feature differs between two rows", kind="no-features", fix=fix)
    for chosen, kind, how in ((constant, "constant-features", "constant"), (missing, "missing-features", "missing")):
        if chosen.any():
            verb = "is" if chosen.sum() == 1 else "are"
            problem = f"{_feature_list(data.names, chosen)} {verb} {how} in every row and not used"
            warnings.warn(ConstantFeatureWarning(problem, kind=kind), stacklevel=4)


def warn_missing_values(features: Floats, names: Sequence[str], ranker: str) -> None:
    """Warn of features with missing values, which the ranker replaces by the mean."""
    missing = np.isnan(features)
    some = np.asarray(missing.any(axis=0) & ~missing.all(axis=0))
    if some.any():
        verb = "has" if some.sum() == 1 else "have"
        problem = f"{_feature_list(names, some)} {verb} missing values, which {ranker} replaces by the mean"
        warnings.warn(MissingValueWarning(problem, kind="missing-values"), stacklevel=4)


def require_differences(values: Floats, offsets: Integers) -> None:
    """Raise InputError unless some query has two documents with different labels (or gains)."""
    if not differ_within(values, offsets):
        fix = "give labels that differ within queries"
        raise InputError("no query has two documents of different labels", kind="no-differences", fix=fix)


def _feature_list(names: Sequence[str], chosen: Booleans) -> str:
    """Return the number of chosen features and the names of the first."""
    listed = [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]
    return f"{counted(len(listed), 'feature')} ({', '.join(listed[:3])}{', ...' if len(listed) > 3 else ''})"
