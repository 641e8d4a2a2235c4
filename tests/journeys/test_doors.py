"""Short stories of the pages that `docs/index.md` lists: what a page says, typed on real files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from .conftest import Terminal, take_part
from .judging_team import ANNOTATORS, GRADES, Passages, Person, Service

COLUMNS = {"topicID": "query", "docID": "document", "workerID": "assessor", "label": "grade"}


@pytest.fixture
def crowd(data_folder: Path) -> pd.DataFrame:
    """Return judgments of a web crowd, one per document and worker, in the order in which they came."""
    rows = pd.read_csv(data_folder / "trec-rf10" / "trec-rf10-data.txt.gz", sep="\t", dtype=str)
    rows = take_part(rows, "topicID", 4).rename(columns=COLUMNS)
    return rows.drop_duplicates(["query", "document", "assessor"])


@pytest.mark.data
def test_buy_fewer_labels(crowdrank: Terminal, crowd: pd.DataFrame) -> None:
    pairs = crowd[["query", "document"]].drop_duplicates()
    pairs.to_csv(crowdrank.path("pool.csv"), index=False)
    by_pair = crowd.groupby(["query", "document"])[["assessor", "grade"]]
    answers = {pair: rows.to_numpy().tolist() for pair, rows in by_pair}
    reading, budget = ("--unjudgeable", "-2", "--grades", "0-2"), 150
    n_labels = 0
    for policy in ("if-good-3", "if-good-3", "ndcg@10"):
        words = ("collect", "next", "labels.csv", "--pairs", "pool.csv", "--policy", policy, "--budget", budget)
        crowdrank(*words, *reading, "-o", "requests.csv")
        wanted = crowdrank.table("requests.csv")
        assert 0 < len(wanted) <= budget
        batch = [
            (query, document, *answers[query, document].pop(0))
            for query, document in wanted[["query", "document"]].to_numpy()
            if answers[query, document]
        ]
        pd.DataFrame(batch, columns=list(COLUMNS.values())).to_csv(crowdrank.path("batch.csv"), index=False)
        crowdrank("collect", "add", "labels.csv", "batch.csv", "--pairs", "pool.csv", *reading)
        n_labels += len(batch)
        assert len(crowdrank.table("labels.csv")) == n_labels
    status = ("collect", "status", "labels.csv", "--pairs", "pool.csv", *reading, "--labels", "grades.qrels")
    assert crowdrank.json(*status)["labels"] == n_labels
    judged = crowdrank.table("labels.csv").groupby(["query", "document"]).size()
    assert len(crowdrank.path("grades.qrels").read_text().splitlines()) == len(judged)


@pytest.mark.data
def test_decide_whom_to_exclude(crowdrank: Terminal, data_folder: Path) -> None:
    file = data_folder / "trec-rf10" / "trec-rf10-data.txt.gz"
    crowdrank("assessors", file, "-m", "gda", "-o", "assessors.csv", "--pairs", "pairs.csv")
    people = crowdrank.table("assessors.csv").set_index("assessor")
    checked = people[people["honeypots"].astype(int) >= 20]
    checked = checked.assign(share=checked["honeypot_share"].astype(float))
    bad = checked[checked["flag"] == "random"]
    assert len(bad) >= 3
    assert bad["share"].max() < checked[checked["flag"] == "careful"]["share"].min()
    assert (people["evidence"] != "").all()
    is_random = people["flag"] == "random"
    crowdrank.write("exclude.txt", "".join(f"{name}\n" for name in people[is_random].index))
    used, tau = {}, {}
    for name, options in {"all": (), "without": ("--exclude", "exclude.txt")}.items():
        used[name] = crowdrank.json("aggregate", file, "-m", "average", *options, "-o", f"{name}.csv")["judgments"]
        scores = crowdrank.json("evaluate", f"{name}.csv", "--expert", file, "--measures", "Tau", "--unjudged", "skip")
        tau[name] = scores["means"]["Tau"]
    assert used["all"] - used["without"] == people[is_random]["judgments"].astype(int).sum()
    assert tau["without"] > tau["all"]


@pytest.mark.data
def test_score_documents_in_files(crowdrank: Terminal, data_folder: Path) -> None:
    train, test = (data_folder / "mq2008" / f"S{number}.txt.gz" for number in (1, 2))
    crowdrank("train", "-f", train, "--labels", train, "-o", "ranker")
    checked = crowdrank.json("rank", "-m", "ranker", "-f", test, "-o", "run.trec", "--check")
    assert checked["documents"] == len(crowdrank.path("run.trec").read_text().splitlines())
    trained = crowdrank.json("evaluate", "run.trec", "--expert", test, "--measures", "nDCG@10")["means"]["nDCG@10"]
    assert trained > 0.6
    script = (
        "import crowdrank, pandas as pd, sys\n"
        "features = crowdrank.read_features(sys.argv[1])\n"
        "scores = crowdrank.Ranker.load('ranker').predict(features)\n"
        "pd.DataFrame({'query': features.query, 'document': features.document, 'score': scores}).to_csv('python.csv')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(test)], cwd=crowdrank.folder, check=True)
    ranked = pd.read_csv(crowdrank.path("run.trec"), sep=" ", header=None, dtype={0: str, 2: str})
    loaded = crowdrank.table("python.csv").set_index(["query", "document"])["score"]
    assert np.allclose(ranked.set_index([0, 2])[4].sort_index(), loaded.sort_index(), atol=1e-6)


@pytest.mark.data
def test_change_one_import_of_crowd_kit(crowdrank: Terminal, data_folder: Path) -> None:
    file = data_folder / "web-5grade" / "label.csv"
    code = (
        "import pandas as pd\nfrom {module} import DawidSkene\n"
        f"frame = pd.read_csv({str(file)!r}, dtype=str).rename(columns={{'item': 'task'}})\n"
        "DawidSkene(n_iter=100).fit_predict(frame).sort_index().to_csv('{module}.csv')\n"
        "DawidSkene(n_iter=20, tol=0{more}).fit_predict(frame).sort_index().to_csv('{module}-exact.csv')\n"
    )
    labels, exact = [], []
    for module, more in {"crowdkit.aggregation": "", "crowdrank": ", prior=0"}.items():
        script = crowdrank.write("mine.py", code.replace("{module}", module).replace("{more}", more))
        subprocess.run([sys.executable, script.name], cwd=crowdrank.folder, check=True)
        labels.append(pd.read_csv(crowdrank.path(f"{module}.csv"), dtype=str).set_index("task")["agg_label"])
        exact.append(crowdrank.path(f"{module}-exact.csv").read_text())
    assert exact[0] == exact[1]
    assert (labels[0].index == labels[1].index).all()
    assert 0.9 < (labels[0] == labels[1]).mean() < 1, "the prior changes some labels"


@pytest.mark.data
def test_judge_without_a_server(crowdrank: Terminal, data_folder: Path, browser: Any) -> None:
    passages = Passages.read(data_folder / "dl19-people" / "agreement", 2)
    passages.write(crowdrank)
    words = ("--texts", "texts.jsonl", "--guidelines", "rules.md", "--grades", ",".join(GRADES))
    crowdrank("collect", "page", "pairs.csv", *words, "-o", "judge.html")
    given = passages.answers[ANNOTATORS[0]]
    ann = Person(browser, "ann", offline=True)
    ann.page.goto(crowdrank.path("judge.html").as_uri())
    for number in range(1, len(given) + 1):
        pair = passages.find(ann.text(".card .body"))
        ann.press(str(GRADES.index(given[pair])))
        ann.wait_for_text("#progress-text", f"{number} of {len(given)}")
        ann.page.reload()
    ann.page.fill("#assessor", "ann")
    crowdrank.path("answers.csv").write_bytes(ann.download("#save").read_bytes())
    ann.close()
    crowdrank(
        *("collect", "add", "labels.csv", "answers.csv", "--grades", ",".join(GRADES)),
        *("--unjudgeable", "cannot-judge"),
    )
    labels = crowdrank.table("labels.csv").set_index(["query", "document"])
    assert labels["grade"].to_dict() == given
    assert set(labels["assessor"]) == {"ann"}


def test_try_the_judging_service(crowdrank: Terminal, browser: Any) -> None:
    with Service(crowdrank, "--demo") as service:
        visitor = Person(browser, "visitor")
        visitor.join(service.admin_link)  # as a lead
        visitor.page.click("a[href$='/judge']")
        visitor.page.wait_for_selector(".card")
        shown = visitor.text(".card .body")
        visitor.press("1")
        visitor.wait_for_text("#progress-text", "1 judged")
        visitor.page.wait_for_selector(".card")
        assert visitor.text(".card .body") != shown
        visitor.close()
