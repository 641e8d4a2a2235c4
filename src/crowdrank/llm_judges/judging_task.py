"""Documents to be judged or compared for queries, their texts, and the requests to the language models."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from crowdrank._text import counted
from crowdrank.errors import Fix, InputError, Location, Message, near, shown
from crowdrank.judgments.columns import PREFERENCE_COLUMN_ALIASES, Roles
from crowdrank.judgments.scale import Scale
from crowdrank.llm_judges.judges import DEFAULT_MAX_TOKENS, TOKEN_LIMIT_PARAMETERS, Judge, select_judges
from crowdrank.llm_judges.replies import TOP_LOGPROBS, answer_format, answer_instruction
from crowdrank.readers.formats import open_source
from crowdrank.readers.inputs import RoleTable
from crowdrank.readers.sources import BadRows
from crowdrank.readers.texts import Texts, read_texts

BYTES_PER_TOKEN = 4
"""Assumed number of bytes per token in estimates of costs; English text has about 4 to 5."""
EXTRA_TOKENS_PER_MESSAGE = 64
"""Assumed maximum number of tokens that a chat template adds to a message."""
REQUEST_ROLES = Roles(("document",), ("query", "assessor"))
"""Required and optional columns of a file of requests for grades."""
COMPARISON_REQUEST_ROLES = Roles(("left", "right"), ("query", "assessor"), PREFERENCE_COLUMN_ALIASES)
"""Required and optional columns of a file of requests for preferences."""


@dataclass(frozen=True)
class Call:
    """One request to a judge about a document, or about a left and a right document.

    `sample` numbers the requests of the judge about the same from 0.
    """

    judge: Judge
    query: str
    document: str
    sample: int
    right: str = ""

    @property
    def documents(self) -> tuple[str, ...]:
        """Ids of the document, or of the left and the right document."""
        return (self.document, self.right) if self.right else (self.document,)


@dataclass(frozen=True)
class JudgingTask:
    """Pairs to be judged, the judge of each, and their texts.

    Attributes:
        pairs: (query id, document id), or (query id, left id, right id) for preferences; each occurs once per judge.
        judge_of_pair: judge of each pair.
        texts: texts of queries and documents.
        scale: scale of the project; a judge can have another one.
        notes: notes about the files that were read.

    """

    pairs: Sequence[tuple[str, ...]]
    judge_of_pair: Sequence[Judge]
    texts: Texts
    scale: Scale
    notes: tuple[Message, ...] = ()

    def __len__(self) -> int:
        return len(self.pairs)

    def calls(self) -> Iterator[Call]:
        """Yield all calls in the order of the pairs; each pair has as many calls as its judge has `samples`."""
        for (query, document, *right), judge in zip(self.pairs, self.judge_of_pair, strict=True):
            for sample in range(judge.samples):
                yield Call(judge, query, document, sample, *right)

    def request_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON object of a call that is sent to the endpoint."""
        judge, scale = call.judge, call.judge.scale(self.scale)
        messages = judge.prompt.messages(
            self.texts.queries[call.query],
            self.texts.needs.get(call.query, ""),
            [document_text(self.texts, call.query, one)[: judge.max_characters] for one in call.documents],
            scale,
            answer_instruction(judge.answer, scale),
        )
        parameters = dict(judge.parameters)
        if not any(name in parameters for name in TOKEN_LIMIT_PARAMETERS):
            parameters["max_tokens"] = DEFAULT_MAX_TOKENS
        if isinstance(parameters.get("seed"), int):
            parameters["seed"] += call.sample  # samples of one seed would be equal
        body = {"model": judge.model, "messages": messages, **parameters, **answer_format(judge.answer, scale)}
        return body | ({"logprobs": True, "top_logprobs": TOP_LOGPROBS} if judge.logprobs else {})

    def ledger_key(self, call: Call, body: Mapping[str, Any]) -> str:
        """Return the key of a call in the ledger: a digest of endpoint, request, grades and sample number."""
        parts = [call.judge.endpoint, body, call.judge.scale(self.scale).names, call.sample]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]

    def count_truncated_pairs(self) -> int:
        """Return the number of pairs with a document that is longer than `max_characters` of the judge."""
        return sum(
            any(len(document_text(self.texts, query, one)) > judge.max_characters for one in documents)
            for (query, *documents), judge in zip(self.pairs, self.judge_of_pair, strict=True)
        )


def different_scales_note(judges: Sequence[Judge], project_scale: Scale) -> Message | None:
    """Return a note if judges have different scales, or None."""
    scales = {str(judge.scale(project_scale)) for judge in judges}
    if len(scales) < 2:
        return None
    problem = f"the judges have {len(scales)} scales ({'; '.join(sorted(scales))})"
    fix = Fix("describe them in a file of scales (assessor, grades, maps_to) when you read the labels")
    return Message(problem, "different-scales", "note", fixes=(fix,))


def truncation_note(task: JudgingTask) -> Message | None:
    """Return a note if documents are longer than their judges read, or None."""
    n_truncated = task.count_truncated_pairs()
    if not n_truncated:
        return None
    problem = f"{counted(n_truncated, 'document')} longer than max_characters, of which the judges read the beginning"
    fix = Fix("raise max_characters in the file of judges")
    return Message(problem, "truncated-documents", "note", fixes=(fix,))


def document_text(texts: Texts, query: str, document: str) -> str:
    """Return the title and the text of a document, separated by a blank line; "" if it has neither."""
    found = texts.of_document(query, document)
    return "\n\n".join(found[name] for name in ("title", "text") if name in found)


def estimate_tokens(body: Mapping[str, Any]) -> int:
    """Return the estimated number of tokens of a request: its bytes divided by `BYTES_PER_TOKEN`.

    >>> estimate_tokens({"messages": []})
    4
    """
    return math.ceil(_count_json_bytes(body) / BYTES_PER_TOKEN)


def max_input_tokens(body: Mapping[str, Any]) -> int:
    """Return an upper bound of the tokens of a request: one per byte, and those that a chat template may add.

    >>> max_input_tokens({"messages": []})
    16
    """
    return _count_json_bytes(body) + EXTRA_TOKENS_PER_MESSAGE * len(body["messages"])


def _count_json_bytes(body: Mapping[str, Any]) -> int:
    return len(json.dumps(body, ensure_ascii=False).encode(errors="surrogatepass"))


def read_judging_task(
    requests: Path,
    texts: Sequence[Path],
    judges: Sequence[Judge],
    scale: Scale,
    *,
    ids_as_queries: bool = False,
) -> JudgingTask:
    """Read requests for judgments, assign them to judges, and read the texts of their pairs.

    Args:
        requests: file of pairs, such as `collect next` writes. A request that names a judge goes to that judge, one
            that names nobody to all judges, and one that names somebody else is left out. Comparisons of a left and a
            right document go to judges whose prompt compares, in both orders; other requests go to the other judges.
        texts: files with the texts of queries and documents.
        judges: the judges.
        scale: scale of the project.
        ids_as_queries: use the id of a query without a text as its text.

    Raises:
        InputError: a file cannot be read, no request is for a judge, or a text is missing.

    """
    wanted = read_requests(requests)
    judges = select_judges(judges, compares=bool(wanted) and len(wanted[0][0]) > 2, source=str(requests))
    pairs, judge_of_pair, notes = _assign_requests(wanted, judges, requests)
    return JudgingTask(pairs, judge_of_pair, read_pair_texts(pairs, texts, ids_as_queries), scale, notes)


Request = tuple[tuple[str, ...], str]
"""Ids of a query and a document, or of a query and the two documents to compare, and the assessor or ""."""


def read_requests(path: Path) -> list[Request]:
    """Read the requests of a file; files with a left and a right document request preferences.

    Raises:
        InputError: the file cannot be read, or a document is to be compared with itself.

    """
    opened, _ = open_source(path, allow_books=False)
    names = {name.casefold() for name in opened.names}
    compares = all(names & {side, *PREFERENCE_COLUMN_ALIASES[side]} for side in ("left", "right"))
    roles = COMPARISON_REQUEST_ROLES if compares else REQUEST_ROLES
    columns = roles.find_columns(opened.names, opened.name)
    table = RoleTable.from_table(opened.read(list(dict.fromkeys(columns.values())), BadRows()), opened, columns)
    ids = [list(map(str, table.row_ids(role).to_pylist())) for role in ("query", *roles.required)]
    cells = table.cells["assessor"].to_pylist() if "assessor" in columns else [None] * len(table)
    named = ("" if cell is None or not str(cell).strip() else str(cell) for cell in cells)
    requests = list(zip(zip(*ids, strict=True), named, strict=True))
    for row, (pair, _) in enumerate(requests):
        if len(set(pair[1:])) < len(pair) - 1:
            fix = "compare two different documents"
            raise table.origin.cell_error(row, "right", "a document is compared with itself", [fix], "same-document")
    return requests


def read_pair_texts(pairs: Sequence[tuple[str, ...]], paths: Sequence[Path], ids_as_queries: bool = False) -> Texts:
    """Read the complete texts of pairs of a query and its documents; raise InputError if one is missing.

    With `ids_as_queries`, a query without a text has its id as text.
    """
    queries = list(dict.fromkeys(pair[0] for pair in pairs))
    documents = list(dict.fromkeys(document for pair in pairs for document in pair[1:]))
    found = read_texts([*paths], pa.array(queries, pa.string()), pa.array(documents, pa.string()), max_length=None)
    names = ", ".join(map(str, paths))
    without_text = [query for query in queries if query not in found.queries]
    if without_text and not ids_as_queries:
        problem = f"{counted(len(without_text), 'query')} without a text, such as {shown(without_text[0])}"
        by_file = Fix("add a column query_text, or a file with the columns query and text")
        fixes = [by_file, Fix("if the ids are the texts, give {}", "ids_as_queries")]
        raise InputError(problem, source=names, kind="no-text", fix=fixes)
    found.queries.update({query: query for query in without_text})
    wanted = dict.fromkeys((pair[0], document) for pair in pairs for document in pair[1:])
    missing = [document for query, document in wanted if not document_text(found, query, document).strip()]
    if missing:
        problem = f"{counted(len(missing), 'document')} without a text, such as {shown(missing[0])}"
        raise InputError(problem, source=names, kind="no-text", fix="add texts for all requested documents")
    return found


def _assign_requests(
    requests: Sequence[Request], judges: Sequence[Judge], path: Path
) -> tuple[list[tuple[str, ...]], list[Judge], tuple[Message, ...]]:
    """Return the pairs of requests, the judge of each, and a note on requests for assessors that are not judges.

    Documents to compare are asked about in both orders.
    """
    by_name = {judge.name: judge for judge in judges}
    asked: dict[tuple[tuple[str, ...], str], Judge] = {}
    others = [name for _, name in requests if name and name not in by_name]
    for (query, *documents), name in requests:
        for judge in judges if not name else [by_name[name]] if name in by_name else []:
            for shown_order in (documents, documents[::-1]):
                asked.setdefault(((query, *shown_order), judge.name), judge)
    if not asked:
        problem = f"no request is for one of the judges, but for {shown(others[0])}{near(others[0], by_name)}"
        fix = f"leave the assessor empty, or name one of {', '.join(by_name)}"
        raise InputError(problem, source=str(path), kind="no-requests", fix=fix)
    notes: tuple[Message, ...] = ()
    if others:
        problem = f"{counted(len(others), 'request')} for assessors that are not among the judges left out"
        notes = (Message(problem, "other-assessors", "note", Location(str(path))),)
    return [pair for pair, _ in asked], list(asked.values()), notes
