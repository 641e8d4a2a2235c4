"""Fuzz the readers: every input is refused with a CrowdrankError, or read with every row counted.

    run(count=60_000, seconds=600, seed=1)   -> {"inputs": 60000, "read": ..., "refused": ...}

A violation raises AssertionError and names the saved input. A crash of the process leaves the last input in the folder.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from crowdrank import Gold, Judgments, read_features, read_gold, read_judgments, read_run
from crowdrank.errors import CrowdrankError
from crowdrank.judgments.read import Features

LONGEST_MESSAGE = 1500
MOST_MUTATIONS = 4

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
        {"query": "none", "ratings": []},
    ]
}
LABEL_STUDIO: list[Any] = [
    {
        "id": 1,
        "data": {"query": "jam", "document": "d1"},
        "annotations": [
            {
                "completed_by": 10,
                "lead_time": 4.25,
                "created_at": "2021-03-09T22:16:08.728353Z",
                "result": [{"value": {"choices": ["2"]}}],
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


SOUND = pa.table({"document": ["a", "b"], "assessor": ["ann", "bob"], "grade": [0, 1]})
"""A table without a fault, to be read with a mutated file of scales or of excluded assessors."""


def read_rf10(path: Path, **options: Any) -> Judgments:
    """Read a file as TREC RF10."""
    return read_judgments(path, format="trec-rf10", **options)


def read_rf10_gold(path: Path, **options: Any) -> Gold:
    """Read a file as the expert grades of TREC RF10."""
    return read_gold(path, format="trec-rf10", **options)


def read_with_scales(path: Path) -> Judgments:
    """Read a sound table with a file of scales."""
    return read_judgments(SOUND, scales=path).on_one_scale()


def read_with_exclude(path: Path) -> Judgments:
    """Read a sound table with a file of excluded assessors."""
    return read_judgments(SOUND, exclude=path)


Reader = Callable[..., Any]
SAMPLES: Mapping[str, tuple[str, bytes, tuple[Reader, ...]]] = {
    "csv": ("a.csv", CSV.encode(), (read_judgments, read_gold, read_features, read_run)),
    "tsv": ("a.tsv", CSV.replace(",", "\t").encode(), (read_judgments,)),
    "jsonl": ("a.jsonl", JSONL.encode(), (read_judgments, read_gold, read_run)),
    "json": ("a.json", json.dumps(FLAT).encode(), (read_judgments, read_gold, read_features)),
    "parquet": ("a.parquet", parquet(compression="none"), (read_judgments, read_gold)),
    "parquet zstd": ("a.parquet", parquet(compression="zstd", row_group_size=2), (read_judgments,)),
    "doccano": ("ann.jsonl", DOCCANO.encode(), (read_judgments, read_gold)),
    "xlsx": ("a.xlsx", excel(), (read_judgments, read_gold, read_features)),
    "utf-16": ("a.csv", CSV.encode("utf-16"), (read_judgments, read_gold, read_features)),
    "semicolons": ("a.csv", CSV.replace(",", ";").encode(), (read_judgments,)),
    "csv.gz": ("a.csv.gz", gzip.compress(CSV.encode(), mtime=0), (read_judgments,)),
    "jsonl.gz": ("a.jsonl.gz", gzip.compress(JSONL.encode(), mtime=0), (read_judgments,)),
    "parquet.gz": ("a.parquet.gz", gzip.compress(parquet(), mtime=0), (read_judgments,)),
    "qrels": ("a.qrels", QRELS.encode(), (read_judgments, read_gold)),
    "run": ("a.run", RUN.encode(), (read_run,)),
    "letor": ("a.letor", LETOR.encode(), (read_features, read_gold, read_judgments)),
    "trec-rf10": ("a.txt", RF10.encode(), (read_rf10, read_rf10_gold)),
    "toloka": ("a.tsv", TOLOKA.encode(), (read_judgments,)),
    "mturk": ("a.csv", MTURK.encode(), (read_judgments,)),
    "mturk radio": ("a.csv", RADIO.encode(), (read_judgments,)),
    "quepid": ("a.csv", QUEPID.encode(), (read_judgments, read_gold)),
    "opensearch": ("a.json", json.dumps(OPENSEARCH).encode(), (read_judgments, read_gold)),
    "label-studio": ("a.json", json.dumps(LABEL_STUDIO).encode(), (read_judgments, read_gold)),
    "looked into": ("a.txt", LETOR.encode(), (read_features, read_gold, read_judgments)),
    "scales": ("scales.csv", b"assessor,grades,maps_to\nann,0-2,0|1|2\n*,0-2,\n", (read_with_scales,)),
    "exclude": ("names.txt", b"ann\n", (read_with_exclude,)),
}
TOKENS = (
    *(b",", b"\t", b'"', b"'", b"\n", b"\r", b"\r\n", b"\0", b" ", b"#", b":", b"|", b"\\", b"{", b"}", b"[", b"]"),
    *(b'<row r="9999999">', b'<c r="XFD9"><v>1</v></c>', b"<c", b"</row>", b"&lol;"),
    *(b"qid:", b"docid = ", b"null", b"true", b"nan", b"inf", b"-2", b"-1", b"0", b"1", b'"1"', b"1.0"),
    *(b"1e999", b"-1e308", b"1e-400", b"9" * 30, b"9" * 5000, b"9007199254740993", b"18446744073709551616", b"1_0"),
    *(
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\\ud800",
        b'"\\udfff"',
        b"\xc2\xa0",
        b"\xe2\x80\xa8",
        b"\x1f\x8b",
    ),
    *(b"=cmd", b"1:1", b"1000000:1", b"2147483648:1", b"x" * 3000),
)
DEPTHS = (20, 200, 2000, 20_000)


@dataclass(frozen=True)
class Case:
    """One input: the bytes of a file, and how it is read."""

    format: str
    name: str
    content: bytes
    read: Reader
    options: Mapping[str, Any] = field(default_factory=dict)


def cases(seed: int) -> Iterator[Case]:
    """Yield inputs without end: samples of every format, mutated; the same seed gives the same inputs."""
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
    if not name.endswith((".gz", ".xlsx")) or rng.random() > 0.7:
        return mutated(sample, rng)
    if name.endswith(".xlsx"):
        return with_part(sample, lambda sheet: mutated(sheet, rng))
    return gzip.compress(mutated(gzip.decompress(sample), rng), compresslevel=1, mtime=0)


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


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Return the bytes after one or a few random changes."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, MOST_MUTATIONS)):
        rng.choice(MUTATIONS)(changed, rng)
    return bytes(changed)


def _flip_bit(content: bytearray, rng: random.Random) -> None:
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _set_byte(content: bytearray, rng: random.Random) -> None:
    place = rng.randint(0, len(content))
    content[place : place + 1] = bytes([rng.randrange(256)])


def _truncate(content: bytearray, rng: random.Random) -> None:
    del content[rng.randint(0, len(content)) :]


def _delete_slice(content: bytearray, rng: random.Random) -> None:
    place = rng.randint(0, len(content))
    del content[place : place + rng.randint(1, 40)]


def _duplicate_slice(content: bytearray, rng: random.Random) -> None:
    place = rng.randint(0, len(content))
    piece = content[place : place + rng.randint(1, 120)]
    where = rng.choice((place, rng.randint(0, len(content))))
    content[where:where] = piece * rng.choice((1, 1, 1, 20))


def _insert_token(content: bytearray, rng: random.Random) -> None:
    place = rng.randint(0, len(content))
    content[place:place] = rng.choice(TOKENS)


def _replace_number(content: bytearray, rng: random.Random) -> None:
    """Put a token in the place of a digit: so the structure around it stays."""
    digits = [place for place, byte in enumerate(content) if 48 <= byte <= 57]
    if digits:
        place = rng.choice(digits)
        content[place : place + 1] = rng.choice(TOKENS)


def _nest(content: bytearray, rng: random.Random) -> None:
    place, depth = rng.randint(0, len(content)), rng.choice(DEPTHS)
    start, end = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    content[place:place] = start * depth + b"1" + (end * depth if rng.random() < 0.7 else b"")


def _change_line(content: bytearray, rng: random.Random) -> None:
    """Repeat, drop or move a line."""
    lines = bytes(content).splitlines(keepends=True)
    if lines:
        line = lines.pop(rng.randrange(len(lines)))
        for _ in range(rng.choice((0, 1, 2))):
            lines.insert(rng.randint(0, len(lines)), line)
        content[:] = b"".join(lines)


MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(_flip_bit, _flip_bit, _set_byte, _truncate, _delete_slice, _duplicate_slice),
    *(_insert_token, _insert_token, _replace_number, _replace_number, _change_line, _nest),
)


def check(case: Case, folder: Path) -> bool:
    """Read a case from `folder`; return whether it was read or else refused.

    Raises:
        AssertionError: another error than a CrowdrankError, a message that is no single sentence, or a row without a
            count. The input stays in the folder.
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
        sound = message.endswith(".") and "\n" not in plain and len(plain) < LONGEST_MESSAGE
        assert sound, f"{about}: {message!r}"
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
    """Return the number of rows of a file with one row per line, counted another way; None for other formats."""
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
        count: the number of inputs.
        seconds: when to stop, if the inputs take longer.
        seed: the seed of the inputs.
        folder: where the inputs are written; after a violation or a crash, the last one is there. By default a new
            temporary folder.
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
