"""LightGBM's text format, for services that load LightGBM: the trees as they are, with the user's feature names."""

from __future__ import annotations

import re
from typing import ClassVar

from crowdrank.rankers.boosting import BoostedTrees
from crowdrank.rankers.export.exporter import Exporter, Guide, Target

_RESERVED = re.compile(r"[\s\",:\[\]{}]")
"""Characters that LightGBM refuses in names."""


class LightGBM(Exporter):
    """LightGBM itself."""

    title: ClassVar[str] = "LightGBM"
    name_rule: ClassVar[str] = "a name has no white space, comma, colon, quote or bracket"

    def can_hold(self, name: str) -> bool:
        """Return whether LightGBM accepts a name."""
        return bool(name) and _RESERVED.search(name) is None

    def write_trees(self, ranker: BoostedTrees, target: Target) -> Guide:
        """Write `model.txt`."""
        text = ranker.booster_.model_to_string(num_iteration=ranker.best_iteration_)
        names = " ".join(ranker.features_)
        target.write_text(
            "model.txt", re.sub("(?m)^feature_names=.*$", lambda _: f"feature_names={names}", text, count=1)
        )
        code = "lightgbm.Booster(model_file='model.txt').predict(rows, raw_score=True)"
        return Guide({"model.txt": "the model in LightGBM's text format"}, [f"Score rows in Python with `{code}`."])
