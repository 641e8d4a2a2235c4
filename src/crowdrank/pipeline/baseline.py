"""Baseline of a run: a candidate, a feature, a ranking in a file, or a saved ranker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from crowdrank._typing import Floats
from crowdrank.errors import Fix, Message, UsageError, near
from crowdrank.judgments import frames
from crowdrank.judgments.pair_index import PairIndex
from crowdrank.pipeline.candidates import BY_NAME, Candidate, feature_candidate
from crowdrank.pipeline.ensembles import ENSEMBLES
from crowdrank.pipeline.run_data import RunData, no_common_documents
from crowdrank.pipeline.run_settings import RunSettings
from crowdrank.rankers.rank_files import pad_letor, rank_documents, validation_queries_warning
from crowdrank.rankers.ranker import Ranker, is_saved_ranker
from crowdrank.rankers.training_data import require_features
from crowdrank.readers.runs import read_run

FEATURE_PREFIX = "feature:"


def add_baseline(
    data: RunData, baseline: str, candidates: list[Candidate]
) -> tuple[list[Candidate], dict[str, Floats]]:
    """Add the baseline to the candidates if it is not one of them.

    Args:
        data: data of the run.
        baseline: name of a candidate or ensemble, `feature:NAME`, or the path of a ranking (TREC run) or of a saved
            ranker or remapper.
        candidates: candidates of the run.

    Returns:
        The candidates, and the scores of the rows, (n_rows,), by the name of the ranking if the baseline is one.

    """
    names = [*(candidate.name for candidate in candidates), *ENSEMBLES]
    if baseline in names or baseline == RunSettings.baseline:
        return candidates, {}
    if baseline in BY_NAME and not BY_NAME[baseline].reason_to_skip(data):
        return [*candidates, BY_NAME[baseline]], {}
    if baseline.startswith(FEATURE_PREFIX):
        return [*candidates, _feature_baseline(data, baseline)], {}
    if Path(baseline).is_file() or is_saved_ranker(baseline):
        return candidates, {baseline: read_run_scores(data, Path(baseline))}
    if Path(baseline).is_dir():
        problem, fix = f"'{baseline}' is a folder without a ranker", "name the folder of a ranker, or a TREC run"
        raise UsageError(problem, parameter="baseline", kind="baseline-folder", fix=fix)
    problem = (
        f"'{baseline}' is neither a candidate of this run nor a file{near(baseline, names)}; the candidates are "
        f"{', '.join(names)}"
    )
    is_feature = data.has_features and baseline in data.features.names
    fixes = [Fix("for the feature, use {}", "baseline", FEATURE_PREFIX + baseline)] if is_feature else []
    raise UsageError(problem, parameter="baseline", kind="unknown-baseline", fix=fixes)


def check_baseline(settings: RunSettings, baseline: str, failed: Mapping[str, str]) -> list[Message]:
    """Return a warning if the baseline of the settings was not trained and another one took its place.

    Args:
        settings: settings of the run.
        baseline: baseline of the results.
        failed: reasons why candidates were not trained, by name.

    """
    name = settings.baseline
    if baseline == name or (name == RunSettings.baseline and name not in failed):
        return []
    reason = f" ({failed[name]})" if name in failed else ""
    problem = f"The baseline {name} was not trained{reason}; the baseline is {baseline} instead"
    return [Message(problem, "other-baseline", "warning", fixes=(Fix("name another one with {}", "baseline"),))]


def _feature_baseline(data: RunData, baseline: str) -> Candidate:
    name, names = baseline.removeprefix(FEATURE_PREFIX), data.features.names
    if name not in names:
        problem = f"names the feature '{name}', which the features do not have{near(name, names)}"
        raise UsageError(problem, parameter="baseline", kind="unknown-feature")
    return feature_candidate(baseline, describe_baseline(baseline), name)


def read_run_scores(data: RunData, path: Path) -> Floats:
    """Return the scores of the rows in a ranking, -inf for documents that it does not rank."""
    ranking = baseline_ranking(data, path)
    query, document = (ranking[name].combine_chunks() for name in ("query", "document"))
    row = PairIndex.from_unique_ids(query, document, str(path)).positions(data.features.query, data.features.document)
    if (row < 0).all():
        raise no_common_documents("ranked", query, document, data.features)
    scores = ranking["score"].to_numpy()
    return np.asarray(np.where(row >= 0, scores[row], -np.inf), dtype=np.float64)


def baseline_ranking(data: RunData, path: Path) -> pa.Table:
    """Return query, document and score of each row of a ranking in a file, or of the documents by a saved ranker."""
    if is_saved_ranker(path):
        ranker = Ranker.load(path)
        features = pad_letor(data.features, ranker.features_)
        require_features(features.names, ranker.features_, str(path))
        return rank_documents(ranker, features).drop_columns("rank")
    ranking = read_run(path)
    return pa.table({name: frames.column_to_arrow(ranking, name) for name in ("query", "document", "score")})


def check_validation_queries(baseline: str, test_queries: pa.Array) -> list[Message]:
    """Return a warning if the baseline is a saved ranker that was fitted or validated on test queries."""
    if not is_saved_ranker(baseline):
        return []
    return validation_queries_warning(Ranker.load(baseline), baseline, test_queries)


def describe_baseline(name: str) -> str:
    """Return the description of a feature, or of a ranking or saved ranker by its path.

    >>> describe_baseline("feature:bm25"), describe_baseline("runs/production.trec")
    ('the feature bm25 alone', 'the ranking in production.trec')
    """
    if name.startswith(FEATURE_PREFIX):
        return f"the feature {name.removeprefix(FEATURE_PREFIX)} alone"
    return f"the {'ranker' if is_saved_ranker(name) else 'ranking'} in {Path(name).name}"
