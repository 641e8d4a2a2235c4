"""Read judgments of umbrela (github.com/castorini/umbrela): JSON Lines with one judgment of a query and a passage.

umbrela writes the grade 0 for an answer that it cannot read, with `result_status` 0; such an answer is no grade here.
Its lines have the texts of query and passage, and no ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crowdrank.errors import InputError, shown
from crowdrank.judgments.scale import Scale
from crowdrank.llm_judges.batch import read_json_objects
from crowdrank.llm_judges.judge_labels import JudgedCall
from crowdrank.llm_judges.replies import OK, UNREADABLE, Reply
from crowdrank.readers.json_files import is_encodable
from crowdrank.readers.texts import Texts

UMBRELA_SCALE = "0-3"
"""Scale of the judgments of umbrela."""
UMBRELA_KEYS = frozenset(("query", "passage", "judgment", "prediction"))
"""Keys that each line of a file of umbrela has."""
IdsByText = Mapping[tuple[str, str], tuple[str, str]]
"""(query, document) ids of each (query, document) pair of texts."""


def is_umbrela_file(path: Path) -> bool:
    """Return whether the first line of a file is a judgment of umbrela."""
    first = next(read_json_objects(path), None)
    return first is not None and "custom_id" not in first[1] and set(first[1]) >= UMBRELA_KEYS


def ids_by_text(pairs: Iterable[tuple[str, str]], texts: Texts) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the ids of (query, document) pairs by their texts, with and without the title of the document."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for query, document in pairs:
        parts = texts.of_document(query, document)
        both = " ".join(parts[name] for name in ("title", "text") if name in parts)
        for text in (parts.get("text", ""), both):
            found.setdefault((texts.queries[query].strip(), text.strip()), (query, document))
    return found


def read_umbrela(path: Path, ids: IdsByText | None = None, scale: Scale | None = None) -> list[JudgedCall]:
    """Read the judgments of a file of umbrela; each model is a judge.

    Args:
        path: the file.
        ids: ids by the texts of query and passage; without them, the texts are the ids.
        scale: the grades, by default 0-3.

    Raises:
        InputError: a line is not a judgment of umbrela, or its texts are not in `ids`.

    """
    scale = Scale.parse(UMBRELA_SCALE) if scale is None else scale
    samples: dict[tuple[str, str, str], int] = {}
    judged = []
    for location, line in read_json_objects(path):
        query, document = _pair_ids(line, path, location, ids)
        model = line.get("model")
        judge = model if isinstance(model, str) and model.strip() and is_encodable(model) else "umbrela"
        sample = samples[query, document, judge] = samples.get((query, document, judge), -1) + 1
        answer = _read_answer(line, scale)
        judged.append(JudgedCall(query, document, judge, sample, judge, judge, "", scale, answer))
    return judged


def _pair_ids(line: Mapping[str, Any], path: Path, location: str, ids: IdsByText | None) -> tuple[str, str]:
    """Return the ids of the query and the passage of a judgment."""
    query, passage = line.get("query"), line.get("passage")
    valid = all(isinstance(text, str) and text.strip() and is_encodable(text) for text in (query, passage))
    if not valid or "judgment" not in line:
        fix = "give a file with the keys query, passage, prediction, judgment and result_status in each line"
        raise InputError(
            "it is not a judgment of umbrela", source=str(path), place=location, kind="not-umbrela", fix=fix
        )
    assert isinstance(query, str)
    assert isinstance(passage, str)
    if ids is None:
        return query, passage
    found = ids.get((query.strip(), passage.strip()))
    if found is None:
        problem = f"the requests have no pair with the query {shown(query)} and this passage"
        fix = "give the requests and texts that umbrela judged"
        raise InputError(problem, source=str(path), place=location, kind="unknown-text", fix=fix)
    return found


def _read_answer(line: Mapping[str, Any], scale: Scale) -> Reply:
    """Return the grade of a line, or why it has none."""
    prediction = line.get("prediction")
    text = prediction if isinstance(prediction, str) and is_encodable(prediction) else ""
    code = scale.code(line["judgment"])
    if "result_status" in line:
        readable = line["result_status"] in (1, True)
    else:  # older versions do not mark the 0 that stands for an unreadable answer
        readable = str(line["judgment"]) != "0" or re.search(r"(?<!\d)0(?!\d)", text) is not None
    if not readable:
        return Reply(UNREADABLE, problem="umbrela could not read the answer", text=text)
    if code is None:
        problem = f"{shown(line['judgment'])} is not a grade of the scale {scale}; set grades to the scale of the file"
        return Reply(UNREADABLE, problem=problem, text=text)
    return Reply(OK, scale.names[code], text=text)
