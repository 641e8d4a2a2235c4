"""Read public data sets from the files that their authors publish."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdrank.errors import InputError, UsageError, near
from crowdrank.judgments.gold import Gold
from crowdrank.judgments.table import Judgments
from crowdrank.readers.read import read_gold, read_judgments

DATA_FOLDER_VARIABLE = "CROWDRANK_DATA"
"""Name of the environment variable with the folder of all data sets."""


@dataclass(frozen=True)
class Dataset:
    """A public data set, and how to read it.

    Attributes:
        name: name of the data set and of its folder.
        about: description in one line.
        origin: web page and paper of the data set.
        files: names of all files in the folder.
        judgments: name of a file or folder, and options for :func:`crowdrank.read_judgments`, if there are judgments.
        gold: file name and options for :func:`crowdrank.read_gold`, if there are expert grades.

    """

    name: str
    about: str
    origin: str
    files: tuple[str, ...]
    judgments: tuple[str, Mapping[str, Any]] | None = None
    gold: tuple[str, Mapping[str, Any]] | None = None

    @property
    def folder(self) -> Path | None:
        """Folder of the data set, or None if the environment variable CROWDRANK_DATA is not set."""
        root = os.environ.get(DATA_FOLDER_VARIABLE)
        return Path(root) / self.name if root else None

    @property
    def is_complete(self) -> bool:
        """Whether all files of the data set are in its folder."""
        return self.folder is not None and all((self.folder / name).is_file() for name in self.files)

    def path(self, name: str) -> Path:
        """Return the path of a file or folder; if it does not exist, raise an error that names the download page."""
        if self.folder is None:
            raise UsageError(
                f"Set {DATA_FOLDER_VARIABLE} to the folder that holds {self.name}/; get it from {self.origin}."
            )
        path = self.folder / name
        if not path.exists():
            raise InputError(
                "there is no such file", source=str(path), kind="no-file", fix=f"get it from {self.origin}"
            )
        return path

    def read_judgments(self, **options: Any) -> Judgments:
        """Read the judgments; `options` override those of the data set (see :func:`crowdrank.read_judgments`)."""
        if self.judgments is None:
            raise UsageError(f"The data set {self.name} has no judgments by several assessors.")
        name, default_options = self.judgments
        return read_judgments(self.path(name), **{**default_options, **options})

    def read_gold(self, **options: Any) -> Gold:
        """Read the expert grades; `options` override those of the data set (see :func:`crowdrank.read_gold`)."""
        if self.gold is None:
            raise UsageError(f"The data set {self.name} has no file of expert grades; read each part with read_gold.")
        name, default_options = self.gold
        return read_gold(self.path(name), **{**default_options, **options})


DATASETS: Mapping[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "trec-rf10",
            "crowd judgments of web pages for TREC 2010 Relevance Feedback, with NIST grades; 98,453 labels",
            "https://trec.nist.gov/data/relevance.feedback10.html (Buckley, Lease, Smucker 2010)",
            ("trec-rf10-data.txt.gz",),
            ("trec-rf10-data.txt.gz", {"format": "trec-rf10"}),
            ("trec-rf10-data.txt.gz", {"format": "trec-rf10"}),
        ),
        Dataset(
            "web-5grade",
            "web search relevance on five grades (the WB set of SQUARE); 15,567 labels, no query ids; its expert "
            "grades are the majority of nine of its own assessors",
            "http://ir.ischool.utexas.edu/square/ (Sheshadri and Lease 2013)",
            ("label.csv", "truth.csv"),
            ("label.csv", {"grades": "0-4"}),
            ("truth.csv", {"grades": "0-4"}),
        ),
        Dataset(
            "trec-dl20",
            "TREC Deep Learning 2020 passages judged by 81 LLM judges, with NIST grades; 666,826 labels",
            "https://trec.nist.gov/data/deep2020.html (NIST grades; LLM labels derived)",
            ("llm_graded_labels.tsv.gz", "judged_features.tsv.gz"),
            # 144 labels are off the scale.
            ("llm_graded_labels.tsv.gz", {"grades": "0-3", "family_pattern": r"(.*)_p\d+", "on_bad_rows": "skip"}),
            ("judged_features.tsv.gz", {"grades": "0-3", "columns": "grade=nist_grade"}),
        ),
        Dataset(
            "llmjudge-dl23",
            "TREC Deep Learning 2023 passages judged by 33 LLM judges of 7 teams, with NIST grades; 145,959 labels",
            "https://llm4eval.github.io/LLMJudge-benchmark/ (Rahmani et al. 2024)",
            ("llm_graded_labels.tsv.gz", "gold.tsv.gz"),
            # Three labels are off the scale.
            ("llm_graded_labels.tsv.gz", {"grades": "0-3", "family_pattern": r"([^-]*)-.*", "on_bad_rows": "skip"}),
            ("gold.tsv.gz", {"grades": "0-3", "columns": "grade=nist_grade"}),
        ),
        Dataset(
            "adult-content-2",
            "web pages rated by a crowd on four grades, one query; 92,721 labels, 333 true grades",
            "https://github.com/ipeirotis/Get-Another-Label (Ipeirotis)",
            ("labels.csv", "truth.csv"),
            ("labels.csv", {"grades": "0-3", "columns": "assessor=w"}),
            ("truth.csv", {"grades": "0-3"}),
        ),
        Dataset(
            "dl19-people",
            "TREC Deep Learning 2019 passages judged by eight people, with NIST grades; 9,004 labels; all passages "
            "with grades 1-3 but 409 of 5,158 with grade 0",
            "https://trec.nist.gov/data/deep2019.html (NIST grades; people's labels derived)",
            (*(f"main/annotator-{number}.jsonl" for number in range(1, 9)), "qrels.dl19-passage.txt"),
            ("main", {}),
            ("qrels.dl19-passage.txt", {"grades": "0-3"}),
        ),
        Dataset(
            "mq2008",
            "LETOR 4.0 MQ2008: 784 queries, 46 features, grades 0-2 (features and grades only)",
            "https://www.microsoft.com/en-us/research/project/letor-learning-rank-information-retrieval/",
            tuple(f"S{part}.txt.gz" for part in range(1, 6)),
        ),
        Dataset(
            "mslr-5k",
            "the first 5,000 documents of MSLR-WEB10K fold 1, train and test: 136 features, grades 0-4",
            "https://www.microsoft.com/en-us/research/project/mslr/",
            ("train.txt.gz", "test.txt.gz"),
        ),
    )
}


def dataset(name: str) -> Dataset:
    """Return a public data set by name.

    >>> dataset("web-5grade").files
    ('label.csv', 'truth.csv')
    """
    if name not in DATASETS:
        problem = f"There is no data set '{name}'{near(name, DATASETS)}; the data sets are: {', '.join(DATASETS)}."
        raise UsageError(problem)
    return DATASETS[name]
