"""Ask the model at the endpoint that CROWDRANK_CHAT_ENDPOINT names, such as a llama.cpp server on this machine.

Without it, a local server takes the place of the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest

from .fake_endpoint import Reply, serve
from .judging_project import Project


@pytest.fixture
def endpoint() -> Iterator[str]:
    """Return the base URL of the endpoint."""
    if named := os.environ.get("CROWDRANK_CHAT_ENDPOINT"):
        yield named
        return
    with serve(lambda *_: Reply()) as local:
        yield local.url


@pytest.mark.parametrize("prompt", ["graded", "binary"])
def test_a_model_answers(endpoint: str, project: Project, run: Callable[..., Any], prompt: str) -> None:
    judge = {
        "endpoint": endpoint,
        "model": os.environ.get("CROWDRANK_CHAT_MODEL", "default"),
        "prompt": prompt,
        "concurrency": 1,
        "parameters": {"temperature": 0, "max_tokens": 100},
        "prices": {"input": 1.0, "output": 1.0},
    }
    schema, pattern = {"name": "schema", "answer": "schema", "logprobs": True}, {"name": "pattern", "answer": "pattern"}
    project.write_judges({**judge, **schema}, {**judge, **pattern})
    done = run("run", *project.words, "-o", "labels.csv", "--budget", 1)
    assert done["judges"]["schema"]["ok"] == 3
    assert done["judges"]["pattern"]["ok"] + done["judges"]["pattern"]["unreadable"] == 3
    assert (done["not_asked"], done["uncertain"], done["stopped"]) == (0, 0, {})
    assert 0 < done["charged"] < 0.01
    table = pd.read_csv("labels.csv")
    assert set(table["label"]) <= ({0, 1} if prompt == "binary" else {0, 1, 2, 3})
    shares = table.filter(regex="^p[0-9]").dropna()
    assert shares.empty or shares.sum(axis=1).to_numpy() == pytest.approx(1)
