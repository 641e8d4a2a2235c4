"""Ask a real model at the endpoint that CROWDRANK_CHAT_ENDPOINT names, such as a llama.cpp server on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from .judging_project import Project

ENDPOINT = os.environ.get("CROWDRANK_CHAT_ENDPOINT", "")


@pytest.mark.skipif(not ENDPOINT, reason="CROWDRANK_CHAT_ENDPOINT is not set: no model is asked")
@pytest.mark.parametrize("prompt", ["graded", "binary"])
def test_a_real_model_answers(project: Project, run: Callable[..., Any], prompt: str) -> None:
    judge = {
        "endpoint": ENDPOINT,
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
    assert len(shares) == 0 or shares.sum(axis=1).to_numpy() == pytest.approx(1)
