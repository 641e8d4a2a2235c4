"""Files of an export, as written for a forest of two small trees; `python` this file to write them again."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest

from crowdrank.rankers.export import EXPORTERS, get_exporter
from crowdrank.rankers.export.exportable_models import LEAF, Forest, LinearModel, Tree
from crowdrank.rankers.export.exporter import ForestExporter, Target
from crowdrank.rankers.training_data import FeatureStatistics

GOLDEN = Path(__file__).parent / "golden"
NAMES = ("bm25", "title_length", "age")
FOREST = Forest(
    NAMES,
    (
        Tree(
            np.array([0, LEAF, 2, LEAF, LEAF]),
            np.array([0.1, 0, -2.5, 0, 0]),
            np.array([True, False, False, False, False]),
            np.array([1, 0, 3, 0, 0]),
            np.array([2, 0, 4, 0, 0]),
            np.array([0, -0.25, 0, 0.125, 0.5]),
        ),
        Tree(np.array([LEAF]), np.zeros(1), np.zeros(1, bool), np.zeros(1, int), np.zeros(1, int), np.array([0.75])),
    ),
)
LINEAR = LinearModel(NAMES, np.array([0.5, 0.0, -0.1]), 1.5, np.array([3.0, 7.0, 2.0]))
STATISTICS = FeatureStatistics(np.array([0.0, 1, -9]), np.array([20.0, 9, 9]), np.array([0.0, 0, 0.25]))
TEXT_ENGINES = [name for name in EXPORTERS if name not in ("opensearch-ltr", "lightgbm", "onnx")]
"""Engines whose files are text and depend on the forest only; those of OpenSearch equal those of Elasticsearch."""
CASES = [(name, FOREST) for name in TEXT_ENGINES] + [
    (name, LINEAR) for name in TEXT_ENGINES if get_exporter(name).supports_linear
]


def write_case(engine: str, model: Forest | LinearModel, parent: Path) -> Path:
    folder = parent / f"{engine}-linear" if isinstance(model, LinearModel) else parent / engine
    folder.mkdir(parents=True, exist_ok=True)
    target, exporter = Target(folder, "products", STATISTICS), get_exporter(engine)
    if isinstance(model, LinearModel):
        exporter.write_linear(model, target)
    else:
        assert isinstance(exporter, ForestExporter)
        exporter.write_forest(model, target)
    return folder


def texts(folder: Path) -> dict[str, str]:
    """Return the files of a folder, without the upload script, which is a file of the package."""
    return {path.name: path.read_text() for path in folder.iterdir() if path.name != "upload.sh"}


@pytest.mark.parametrize(
    ("engine", "model"), CASES, ids=lambda one: one if isinstance(one, str) else type(one).__name__
)
def test_files_are_as_before(engine: str, model: Forest | LinearModel, tmp_path: Path) -> None:
    folder = write_case(engine, model, tmp_path)
    assert texts(folder) == texts(GOLDEN / folder.name)


def test_both_ltr_plugins_get_the_same_files(tmp_path: Path) -> None:
    for model in (FOREST, LINEAR):
        folders = [write_case(engine, model, tmp_path) for engine in ("elasticsearch-ltr", "opensearch-ltr")]
        assert texts(folders[0]) == texts(folders[1])


@pytest.mark.parametrize("engine", [name for name in TEXT_ENGINES if name != "ranklib"])
def test_the_upload_stops_while_a_template_has_placeholders(engine: str, tmp_path: Path) -> None:
    folder = write_case(engine, FOREST, tmp_path)
    environment = {"HOST": "http://search.example", "COLLECTION": "shop", "APPLICATION": str(tmp_path)}
    command = ["sh", str(folder / "upload.sh")]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", **environment})
    assert done.returncode == 2
    assert "REPLACE_ME" in done.stderr


@pytest.mark.parametrize(
    ("engine", "template", "sent"),
    [
        ("elasticsearch-ltr", "featureset.json", 3),
        ("elasticsearch", "feature_extractors.json", 1),
        ("solr", "feature_store.json", 2),
    ],
)
def test_the_upload_sends_valid_json(engine: str, template: str, sent: int, tmp_path: Path) -> None:
    """A `curl` that copies what it is given stands for the server."""
    folder = write_case(engine, FOREST, tmp_path)
    edited = (folder / template).read_text().replace("REPLACE_ME", "title")
    (folder / template).write_text(edited)
    fake = tmp_path / "bin" / "curl"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\n"
        f'n=$(ls "{tmp_path}" | grep -c sent); url=; body=\n'
        "while [ $# -gt 0 ]; do\n"
        '  case "$1" in --data-binary) body="${2#@}"; shift;; http*) url="$1";; esac; shift\n'
        "done\n"
        f'echo "$url" >> "{tmp_path}/urls"\n'
        f'[ -z "$body" ] || cat "$body" > "{tmp_path}/sent$n"\n'
    )
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    environment = {"PATH": f"{fake.parent}:/usr/bin:/bin", "HOST": "http://search.example", "COLLECTION": "shop"}
    done = subprocess.run(["sh", folder / "upload.sh"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    urls = (tmp_path / "urls").read_text().split()
    assert len(urls) == sent
    assert all(url.startswith("http://search.example/") for url in urls)
    bodies = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("sent*"))]
    assert bodies
    if engine == "elasticsearch":
        assert set(bodies[0]) == {"inference_config", "input", "definition"}
        extractors = bodies[0]["inference_config"]["learning_to_rank"]["feature_extractors"]
        assert [one["query_extractor"]["feature_name"] for one in extractors] == list(NAMES)


if __name__ == "__main__":
    for engine, model in CASES:
        (write_case(engine, model, GOLDEN) / "upload.sh").unlink(missing_ok=True)
