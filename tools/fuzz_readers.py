"""Fuzz the readers: every input raises a CrowdrankError or is read with every row counted.

    run(count=60_000, seconds=600, seed=1)   -> {"inputs": 60000, "read": ..., "refused": ...}

A violation raises AssertionError and names the saved input. A crash of the process leaves the last input in the folder.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import sqlite3
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from crowdrank import Estimate, Gold, Judgments, estimate, read_features, read_gold, read_judgments, read_run
from crowdrank.errors import CrowdrankError, DataWarning
from crowdrank.llm_judges.batch import read_batch_results
from crowdrank.llm_judges.judge_labels import JudgeLabels
from crowdrank.llm_judges.judges import read_judges
from crowdrank.llm_judges.umbrela import read_umbrela
from crowdrank.rankers.rank_files import FeatureBatches
from crowdrank.readers.features import Features
from tools.mutations import mutate, mutate_cells

MAX_MESSAGE_LENGTH = 1500
"""Maximum number of characters of a message."""

SOFT_LABELS = "query,document,assessor,grade,p0,p1,p2\nq,a,ann,2,,,\nq,a,gpt,1,0.1,0.6,0.3\nq,b,gpt,0,1,0,\n"
CSV = (
    "query,document,assessor,grade,family,time,duration,cost,honeypot\n"
    'q1,d1,ann,2,x,2024-05-31T10:15:00,1.5,0.1,2\nq1,"d,2",bob,0,,,,,\n"q\n2",d1,ann,1,x,1717150500,2,,\n'
)
JSONL = (
    '{"query": "q1", "document": 1, "assessor": "ann", "grade": 2, "honeypot": 2}\n'
    '{"query": "q1", "document": 2, "assessor": "bob", "grade": 0, "cost": 0.5}\n'
)
FLAT = [{"query": "q1", "document": 1, "worker": "ann", "label": 2}, {"document": "d2", "worker": "bob", "label": 0}]
RF10 = "topicID\tworkerID\tdocID\tgold\tlabel\n1\tw1\td1\t-1\t0\n1\tw2\td1\t2\t-2\n2\tw1\td2\t-2\t-2\n"
QRELS = "1 0 d1 2\n1 0 d2 0\n2 0 d1 1\n"
LETOR = "2 qid:10 1:0.5 2:3 # docid = GX-1\n0 qid:10 1:0.1 46:1e-3\n1 qid:11 2:7\n"
RUN = "1 Q0 d1 1 9.5 tag\n1 Q0 d2 2 8.5 tag\n"
TOLOKA = (
    "INPUT:query\tINPUT:docid\tOUTPUT:result\tGOLDEN:result\tASSIGNMENT:worker_id\tASSIGNMENT:status\t"
    "ASSIGNMENT:submitted\tASSIGNMENT:reward\n"
    "jam\td1\t2\t\tw1\tAPPROVED\t2024-05-31T10:16:00\t0.01\njam\td1\t1\t2\tw2\tSUBMITTED\t\t0.01\n"
    "jam\td2\t0\t\tw3\tREJECTED\t\t0.01\njam\td3\t\t\t\t\t\t\n"
)
MTURK = (
    '"HITId","Reward","WorkerId","AssignmentStatus","SubmitTime","WorkTimeInSeconds","Input.query","Input.document",'
    '"Answer.grade"\n'
    '"H1","$0.05","W1","Approved","Fri Nov 07 12:38:00 PST 2014","17","jam","d1","2"\n'
    '"H1","$0.05","W2","Submitted","2014-11-07T20:38:00Z","8","jam","d1","1"\n'
    '"H2","$0.05","W3","Rejected","","1","jam","d2","0"\n'
)
RADIO = (
    "HITId,WorkerId,AssignmentStatus,Input.query,Input.document,Answer.grade.0,Answer.grade.1,Answer.grade.2\n"
    "H1,W1,Approved,jam,d1,false,false,true\nH1,W2,Approved,jam,d1,FALSE,TRUE,FALSE\n"
)
QUEPID = 'query,docid,Ann Lee,bob@x.org, =eve\n"jam, sweet",d1,2,1,\njam,d2,,,0\njam,d3,,,\n'
OPENSEARCH: dict[str, Any] = {
    "judgmentRatings": [
        {"query": "jam", "ratings": [{"docId": "d1", "rating": "2.000"}, {"docId": "d2", "rating": "0.0"}]},
        {"query": "tea", "ratings": [{"docId": "d1", "rating": "1"}]},
        {"query": "none", "ratings": [], "failures": [{"docId": "d3"}]},
    ]
}
NAMED = "query,document,assessor,grade,scale\nq,a,ann,Good,Bad|Good\nq,b,ann,Bad,Bad|Good\nq,a,bob,Bad,Bad|Good\n"
LABEL_STUDIO: list[Any] = [
    {
        "id": 1,
        "data": {"query": "jam", "document": "d1"},
        "annotations": [
            {
                "completed_by": 10,
                "lead_time": 4.25,
                "created_at": "2021-03-09T22:16:08.728353Z",
                "result": [
                    {"from_name": "grade", "value": {"choices": ["2"]}},
                    {"from_name": "why", "value": {"text": ["x"]}},
                ],
            },
            {"completed_by": {"id": 11, "email": "bob@x.org"}, "result": [{"value": {"rating": 1}}]},
            {"completed_by": 12, "was_canceled": True, "result": []},
            {"completed_by": 13, "ground_truth": True, "result": [{"value": {"rating": 2}}]},
            7,
        ],
        "predictions": [{"result": []}],
    },
    {"id": 2, "data": {"query": "jam", "document": "d2"}, "annotations": []},
]


DOCCANO = (
    '{"id": 1, "text": "jam", "query_id": 7, "passage_id": 31, "label": ["2"], "Comments": []}\n'
    '{"id": 2, "text": "tea", "query_id": 7, "passage_id": 32, "label": [], "Comments": []}\n'
    '{"id": 3, "text": "tea", "query_id": 8, "passage_id": 32, "label": [[0, 3, "1"]], "Comments": ["?"]}\n'
)
SHEET = "xl/worksheets/sheet1.xml"


def excel() -> bytes:
    """Return a table as an Excel workbook."""
    sink = io.BytesIO()
    pd.DataFrame({"docid": [1, "d2"], "worker": ["ann", "bob"], "label": [2, 0]}).to_excel(sink, index=False)
    return sink.getvalue()


def with_part(workbook: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Return a workbook with another first sheet."""
    sink = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(workbook)) as old, zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as new:
        for part in old.infolist():
            content = old.read(part)
            new.writestr(zipfile.ZipInfo(part.filename), change(content) if part.filename == SHEET else content)
    return sink.getvalue()


def parquet(**options: Any) -> bytes:
    """Return the sample table as a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(pd.read_csv(io.StringIO(CSV)), preserve_index=False), sink, **options)
    return sink.getvalue()


BATCH_RESULTS = "".join(
    json.dumps(line) + "\n"
    for line in (
        {
            "custom_id": "q1/d%201/gpt/0/openai/0f0f0f/0-3",
            "response": {
                "status_code": 200,
                "body": {
                    "model": "gpt",
                    "created": 1700000000,
                    "choices": [
                        {
                            "message": {"content": '{"grade": "2"}', "refusal": None},
                            "finish_reason": "stop",
                            "logprobs": {
                                "content": [
                                    {"token": '{"grade": "2"}', "top_logprobs": [{"token": "2", "logprob": -0.1}]}
                                ]
                            },
                        }
                    ],
                    "usage": {"prompt_tokens": 10, "completion_tokens": 5},
                },
            },
            "error": None,
        },
        {"custom_id": "q1/d2/gpt/0/openai/0f0f0f/Bad,Good", "response": None, "error": {"message": "expired"}},
    )
)
UMBRELA = (
    '{"model": "gpt", "query": "jam", "passage": "text", "prediction": "2", "judgment": 2, "result_status": 1}\n'
    '{"model": "gpt", "query": "jam", "passage": "other", "prediction": "?", "judgment": 0, "result_status": 0}\n'
)
JUDGES = (
    '[[judge]]\nname = "a"\nendpoint = "http://127.0.0.1:8000/v1"\nmodel = "m"\nprompt = "binary"\nsamples = 2\n'
    'key_variable = "KEY"\nprices = { input = 0.5, output = 1.5 }\nparameters = { temperature = 0, max_tokens = 9 }\n'
)
DATABASE = """
CREATE TABLE project (name TEXT, grades TEXT);
INSERT INTO project VALUES ('jam', '["Bad", "Good"]');
CREATE TABLE judgment (project TEXT, query TEXT, document TEXT, assessor TEXT, kind TEXT, family TEXT, answer TEXT,
    grade INTEGER, received INTEGER, active_ms INTEGER, price REAL, pair_kind TEXT, gold_grade INTEGER, comment TEXT,
    is_current INTEGER);
INSERT INTO judgment VALUES ('jam', 'q1', 'd1', 'ann', 'human', NULL, 'grade', 1, 1700000000000, 900, 1.0, 'gold', 0,
    NULL, 1), ('jam', 'q1', 'd2', 'gpt', 'llm', 'x', 'cannot-judge', NULL, 1700000001000, NULL, 0.1, 'real', NULL, 'no',
    1), ('jam', 'q1', 'd3', 'ann', 'human', NULL, 'grade', 0, 1700000002000, 900, 1.0, 'real', NULL, NULL, 0);
"""
"""Tables of the judging service that are read."""


def judging_database() -> bytes:
    """Return a database of the judging service."""
    with sqlite3.connect(":memory:") as connection:
        connection.executescript(DATABASE)
        return connection.serialize()


VALID = pa.table({"document": ["a", "b"], "assessor": ["ann", "bob"], "grade": [0, 1]})
"""Valid table that is read with a mutated file of scales or of excluded assessors."""


PAIRS = pd.DataFrame({"query": list("aabbcc"), "document": list("xyxyxy")})
LABELS = PAIRS.assign(grade=[0, 1, 1, 0, 2, 0], p0=[0.7, 0.2, 0.3, 0.9, 0.1, 0.6]).assign(
    p1=lambda table: 0.9 - table["p0"], p2=0.1
)
SAMPLE = PAIRS.assign(grade=[0, 1, 2, 0, 1, 0], probability=[0.5, 1.0, 0.25, 0.5, 1.0, 0.125], draw=[1, 1, 1, 2, 2, 2])
RUNS = {"live": PAIRS.assign(score=[3, 2, 1, 2, 1, 2]), "new": PAIRS.assign(score=[1.5, 2, 3, 2.5, 2, 1])}
"""Two runs with labels and a sample of expert grades, of which one is mutated."""


def read_rf10(path: Path, **options: Any) -> Judgments:
    """Read a file as TREC RF10."""
    return read_judgments(path, format="trec-rf10", **options)


def read_rf10_gold(path: Path, **options: Any) -> Gold:
    """Read a file as the expert grades of TREC RF10."""
    return read_gold(path, format="trec-rf10", **options)


def read_with_scales(path: Path) -> Judgments:
    """Read a valid table with a file of scales."""
    return read_judgments(VALID, scales=path).to_one_scale()


def read_with_exclude(path: Path) -> Judgments:
    """Read a valid table with a file of excluded assessors."""
    return read_judgments(VALID, exclude=path)


def read_in_batches(path: Path) -> Features:
    """Read features of a ranker row by row."""
    names = ("f1", "f2") if path.suffix in (".letor", ".txt") else ("cost",)
    return FeatureBatches([path], names, n_rows=1).read_all()


def estimate_quietly(runs: Mapping[str, Any], labels: Any, expert: Any) -> Estimate:
    """Estimate the quality of runs, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return estimate(runs, labels, expert, measure="nDCG@2")


def estimate_run(path: Path) -> Estimate:
    """Estimate the quality of a run, from a sample of documents."""
    return estimate_quietly({**RUNS, "new": path}, LABELS, SAMPLE)


def estimate_labels(path: Path) -> Estimate:
    """Estimate the quality of runs by labels, from a sample of documents."""
    return estimate_quietly(RUNS, path, SAMPLE)


def estimate_labels_by_query(path: Path) -> Estimate:
    """Estimate the quality of runs by labels, from the grades of two queries."""
    return estimate_quietly(RUNS, path, SAMPLE[["query", "document", "grade"]].head(4))


def estimate_sample(path: Path) -> Estimate:
    """Estimate the quality of runs from a sample of documents or of queries."""
    return estimate_quietly(RUNS, LABELS, path)


def csv_bytes(table: pd.DataFrame) -> bytes:
    """Return a table as a CSV file."""
    return str(table.to_csv(index=False)).encode()


def read_batch_labels(path: Path) -> JudgeLabels:
    """Read results of a batch of requests to LLM judges."""
    return JudgeLabels.from_calls(read_batch_results([path]).judged)


def read_umbrela_labels(path: Path) -> JudgeLabels:
    """Read judgments of umbrela."""
    return JudgeLabels.from_calls(read_umbrela(path))


Reader = Callable[..., Any]


def zipped(name: str, content: bytes) -> bytes:
    """Return a ZIP archive with one file."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, content)
    return archive.getvalue()


SAMPLES: Mapping[str, tuple[str, bytes, tuple[Reader, ...]]] = {
    "csv": ("a.csv", CSV.encode(), (read_judgments, read_gold, read_features, read_in_batches, read_run)),
    "soft labels": ("soft.csv", SOFT_LABELS.encode(), (read_judgments,)),
    "tsv": ("a.tsv", CSV.replace(",", "\t").encode(), (read_judgments,)),
    "jsonl": ("a.jsonl", JSONL.encode(), (read_judgments, read_gold, read_in_batches, read_run)),
    "json": ("a.json", json.dumps(FLAT).encode(), (read_judgments, read_gold, read_features)),
    "parquet": ("a.parquet", parquet(compression="none"), (read_judgments, read_gold, read_in_batches)),
    "parquet zstd": ("a.parquet", parquet(compression="zstd", row_group_size=2), (read_judgments, read_in_batches)),
    "doccano": ("ann.jsonl", DOCCANO.encode(), (read_judgments, read_gold)),
    "xlsx": ("a.xlsx", excel(), (read_judgments, read_gold, read_features)),
    "utf-16": ("a.csv", CSV.encode("utf-16"), (read_judgments, read_gold, read_features, read_in_batches)),
    "semicolons": ("a.csv", CSV.replace(",", ";").encode(), (read_judgments,)),
    "csv.gz": ("a.csv.gz", gzip.compress(CSV.encode(), mtime=0), (read_judgments, read_in_batches)),
    "csv.bz2": ("a.csv.bz2", bz2.compress(CSV.encode()), (read_judgments, read_in_batches)),
    "csv.xz": ("a.csv.xz", lzma.compress(CSV.encode()), (read_judgments, read_in_batches)),
    "csv in zip": ("a.zip", zipped("a.csv", CSV.encode()), (read_judgments, read_in_batches)),
    "named grades": ("named.csv", NAMED.encode(), (read_judgments, read_gold)),
    "quotes in tsv": ("a.tsv", CSV.replace(",", "\t").replace("ann", '"ann').encode(), (read_judgments,)),
    "jsonl.gz": ("a.jsonl.gz", gzip.compress(JSONL.encode(), mtime=0), (read_judgments,)),
    "parquet.gz": ("a.parquet.gz", gzip.compress(parquet(), mtime=0), (read_judgments,)),
    "qrels": ("a.qrels", QRELS.encode(), (read_judgments, read_gold)),
    "run": ("a.run", RUN.encode(), (read_run,)),
    "letor": ("a.letor", LETOR.encode(), (read_features, read_in_batches, read_gold, read_judgments)),
    "trec-rf10": ("a.txt", RF10.encode(), (read_rf10, read_rf10_gold)),
    "toloka": ("a.tsv", TOLOKA.encode(), (read_judgments,)),
    "mturk": ("a.csv", MTURK.encode(), (read_judgments,)),
    "mturk radio": ("a.csv", RADIO.encode(), (read_judgments,)),
    "quepid": ("a.csv", QUEPID.encode(), (read_judgments, read_gold)),
    "opensearch": ("a.json", json.dumps(OPENSEARCH).encode(), (read_judgments, read_gold)),
    "label-studio": ("a.json", json.dumps(LABEL_STUDIO).encode(), (read_judgments, read_gold)),
    "unknown suffix": ("a.txt", LETOR.encode(), (read_features, read_gold, read_judgments)),
    "database": ("judging.db", judging_database(), (read_judgments, read_gold)),
    "scales": ("scales.csv", b"assessor,grades,maps_to\nann,0-2,0|1|2\n*,0-2,\n", (read_with_scales,)),
    "exclude": ("names.txt", b"ann\n", (read_with_exclude,)),
    "run to estimate": ("new.csv", csv_bytes(RUNS["new"]), (estimate_run,)),
    "labels to correct": ("labels.csv", csv_bytes(LABELS), (estimate_labels, estimate_labels_by_query)),
    "sample of experts": ("sample.csv", csv_bytes(SAMPLE), (estimate_sample,)),
    "batch results": ("results.jsonl", BATCH_RESULTS.encode(), (read_batch_labels,)),
    "umbrela": ("umbrela.jsonl", UMBRELA.encode(), (read_umbrela_labels,)),
    "judges": ("judges.toml", JUDGES.encode(), (read_judges,)),
}


NAMES_OF_TABLES = ("new.csv", "labels.csv", "sample.csv", "soft.csv")
"""Names of tables with many numbers; often only cells are mutated, so that more of them are read."""


@dataclass(frozen=True)
class Case:
    """Input of a reader: format, name and bytes of a file, and the options of the reader."""

    format: str
    name: str
    content: bytes
    read: Reader
    options: Mapping[str, Any] = field(default_factory=dict)


def cases(seed: int) -> Iterator[Case]:
    """Yield mutated samples of every format without end; the same seed gives the same inputs."""
    rng = random.Random(seed)
    formats = list(SAMPLES)
    while True:
        rng.shuffle(formats)
        for format in formats:
            name, sample, readers = SAMPLES[format]
            read = rng.choice(readers)
            yield Case(format, name, _mutated_file(name, sample, rng), read, _options(read, rng))


def _mutated_file(name: str, sample: bytes, rng: random.Random) -> bytes:
    """Return a mutated file; of a compressed one mostly the content is mutated, else its compressed bytes."""
    if name in NAMES_OF_TABLES and rng.random() < 0.5:
        return mutate_cells(sample, rng)
    if not name.endswith((".gz", ".bz2", ".xz", ".zip", ".xlsx")) or rng.random() > 0.7:
        return mutate(sample, rng)
    if name.endswith(".xlsx"):
        return with_part(sample, lambda sheet: mutate(sheet, rng))
    if name.endswith(".zip"):
        return zipped("a.csv", mutate(CSV.encode(), rng))
    if name.endswith(".bz2"):
        return bz2.compress(mutate(bz2.decompress(sample), rng))
    if name.endswith(".xz"):
        return lzma.compress(mutate(lzma.decompress(sample), rng), preset=0)
    return gzip.compress(mutate(gzip.decompress(sample), rng), compresslevel=1, mtime=0)


def _options(read: Reader, rng: random.Random) -> dict[str, Any]:
    """Return random options of a reader."""
    known: dict[str, tuple[Any, ...]] = {}
    if read in (read_judgments, read_rf10, read_gold, read_rf10_gold):
        known |= {"on_bad_rows": ("skip",), "grades": ("0-2", "0-3", "no,maybe,yes"), "unjudgeable": ("-2", "0,x")}
    if read in (read_judgments, read_rf10):
        known |= {"repeats": ("first", "error"), "exclude": (["ann", "w1"],), "family_pattern": ("(.)", "(z)|(a)")}
    if read in (read_gold, read_rf10_gold):
        known |= {"unjudgeable_as": ("drop",)}
    if read in (read_judgments, read_gold, read_features):
        known |= {"max_bytes": (50, 4096, "1GB")}
    chances = {"on_bad_rows": 0.5, "unjudgeable_as": 0.3}
    return {name: rng.choice(values) for name, values in known.items() if rng.random() < chances.get(name, 0.1)}


def check(case: Case, folder: Path) -> bool:
    """Read a case from `folder`; return whether it was read or else refused.

    Raises:
        AssertionError: the error is not a CrowdrankError, its message is longer than one line, or a row is not counted.
            The input stays in the folder.
    """
    path = folder / case.name
    path.write_bytes(case.content)
    about = f"{case.read.__name__}({str(path)!r}, **{dict(case.options)!r})"
    try:
        result = case.read(path, **case.options)
    except CrowdrankError as problem:
        message = str(problem)
        message.encode()
        plain = message.replace(str(path), "")
        valid = message.endswith(".") and "\n" not in plain and len(plain) < MAX_MESSAGE_LENGTH
        assert valid, f"{about}: {message!r}"
        return False
    except Exception as problem:
        raise AssertionError(f"{about} raised {type(problem).__name__}: {problem}") from problem
    _check_result(result, case, about)
    return True


def _check_result(result: Any, case: Case, about: str) -> None:
    """Assert that every row is used or counted."""
    if isinstance(result, Features):
        assert result.matrix.shape == (len(result.query), len(result.names)), about
        assert len(result.document) == len(result.query), about
        assert len(set(result.names)) == len(result.names), about
    if isinstance(result, Estimate):
        json.dumps(result.to_dict(), allow_nan=False)
        figures = (result.rows[name].to_numpy() for name in ("lower", "estimate", "upper"))
        assert (np.diff(np.column_stack(list(figures))) >= 0).all(), f"{about}: {result.to_dict()}"
    if not isinstance(result, Judgments | Gold):
        return
    report = result.report
    uncounted = report.rows - len(result) - report.repeats - report.excluded - sum(report.skipped.values())
    assert uncounted == 0, f"{about}: {uncounted} rows are neither used nor counted"
    lines = _count_lines(case)
    assert lines in (None, report.rows), f"{about}: {lines} lines, but {report.rows} rows"
    if isinstance(result, Judgments):
        assert result.offsets[-1] == len(result), about
        assert (np.diff(result.offsets) > 0).all(), about


def _count_lines(case: Case) -> int | None:
    """Return the number of rows of a file with one row per line, or None; this count does not use the readers."""
    content = case.content.removeprefix(b"\xef\xbb\xbf")
    if case.format == "jsonl":
        return sum(bool(line.decode().strip()) for line in content.split(b"\n"))
    if case.format == "qrels":
        return sum(bool(line.split()) for line in content.split(b"\n"))
    if case.format == "letor":
        return sum(bool(line.partition(b"#")[0].split()) for line in content.split(b"\n"))
    return None


def run(count: int, seconds: float, seed: int, folder: Path | None = None) -> dict[str, int]:
    """Check up to `count` inputs for up to `seconds` seconds; return the counts of inputs, read and refused.

    Args:
        count: maximum number of inputs.
        seconds: maximum time.
        seed: random seed.
        folder: folder for the inputs, by default a new temporary one; after a violation or a crash, it contains the
            last input.
    """
    folder = Path(tempfile.mkdtemp(prefix="crowdrank-fuzz-")) if folder is None else folder
    end = time.monotonic() + seconds
    counts = {"inputs": 0, "read": 0, "refused": 0}
    for case in cases(seed):
        if counts["inputs"] >= count or time.monotonic() > end:
            break
        counts["inputs"] += 1
        counts["read" if check(case, folder) else "refused"] += 1
    return counts
