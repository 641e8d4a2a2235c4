"""Charts of a project as of the newest fit of the model: those of the report of a run, as far as they apply."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from crowdrank.consensus import get_aggregator
from crowdrank.readers.read import read_judgments
from crowdrank.readers.read_options import CANNOT_JUDGE
from crowdrank.reports.svg_images import draw_in_new_process, title_of
from crowdrank.service.domain.progress import answers_of
from crowdrank.service.domain.projects import Project
from crowdrank.service.model.fits import Snapshot, list_reliabilities, list_standings
from crowdrank.service.service_errors import Unavailable
from crowdrank.service.store.database import Database

if TYPE_CHECKING:
    import pandas as pd

EXPLANATIONS = {
    "progress": "A line that has become flat means that nobody judges, or that all pairs are complete.",
    "grades": "An assessor whose bars differ much from the consensus is strict or lenient, or got other documents.",
    "informativeness": "How much an answer says about the relevance of a document. Near 0, answers are random.",
    "agreement": "Assessors at the lower left are the least reliable. Look at their answers first.",
    "honeypots": "Rows are the correct grades of honeypots, columns the grades that assessors gave.",
    "uncertainty": "Documents with wide intervals need more answers.",
    "relevance": "The query whose documents have the widest intervals. If intervals overlap, the order is not certain.",
    "families": "LLM judges of one family that agree much more with each other than with others make the same errors.",
}
"""What to look for in each chart, by name."""
MIN_ASSESSORS = 8
"""Minimum number of assessors of a histogram."""
MAX_PROJECTS = 10
"""Maximum number of projects whose charts are kept in memory."""


@dataclass(frozen=True)
class ChartImage:
    """A chart as an SVG image; the title describes it for readers who cannot see it."""

    title: str
    svg: str


class ChartImages:
    """Charts of projects as of their newest fits, drawn once for each fit.

    They are drawn in a process of their own, one project at a time, so that other requests are not delayed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._images: dict[int, tuple[int, dict[str, ChartImage]]] = {}  # id of the snapshot, and images, by project

    def get(self, database: Database, project: Project, snapshot: Snapshot) -> dict[str, ChartImage]:
        """Return the charts of a project by name.

        Raises:
            Unavailable: drawing failed.

        """
        with self._lock:
            snapshot_id, images = self._images.pop(project.id, (0, {}))
            if snapshot_id != snapshot.id:
                images = _draw(database, project, snapshot)
            self._images[project.id] = (snapshot.id, images)  # the last one is the newest
            if len(self._images) > MAX_PROJECTS:
                del self._images[next(iter(self._images))]
        return images


def _draw(database: Database, project: Project, snapshot: Snapshot) -> dict[str, ChartImage]:
    with database.read() as connection:
        data = ChartData.read(connection, project, snapshot)
    specs = {name: chart.to_dict() for name, chart in list_charts(data)}
    try:
        drawn = draw_in_new_process(list(specs.values()))
    except subprocess.SubprocessError as problem:
        raise Unavailable("the charts could not be drawn", kind="no-charts", fix="try again") from problem
    return {name: ChartImage(title_of(spec), svg) for (name, spec), svg in zip(specs.items(), drawn, strict=True)}


@dataclass(frozen=True, eq=False)
class ChartData:
    """What the charts of a project show.

    Attributes:
        project: the project.
        snapshot: the fit.
        answers: grades given until the fit.
        documents: consensus of each pair, with the number of its answers.
        assessors: reliability of each assessor, with the columns of the assessor report.

    """

    project: Project
    snapshot: Snapshot
    answers: pd.DataFrame
    documents: pd.DataFrame
    assessors: pd.DataFrame

    @classmethod
    def read(cls, connection: Connection, project: Project, snapshot: Snapshot) -> ChartData:
        """Return the data of a fit."""
        import pandas as pd

        answers = answers_of(connection, project).to_pandas()
        if project.asks_preferences:
            answers = _as_grades(answers, project)
        is_used = (answers["grade"] != CANNOT_JUDGE) & (answers["time"] <= pd.Timestamp(snapshot.created, unit="ms"))
        answers = answers[is_used].reset_index(drop=True)
        documents = pd.DataFrame([vars(one) for one in list_standings(connection, project, snapshot)])
        if project.asks_preferences:
            documents["document"] += " | " + documents["other"]
        n_answers = answers.groupby(["query", "document"]).size().rename("judgments").reset_index()
        documents = documents.merge(n_answers, "left", ["query", "document"]).astype({"lower": float, "upper": float})
        reliabilities = list_reliabilities(connection, snapshot)
        found = [
            (one.assessor, one.informativeness, one.flags[0]["flag"] if one.flags else "") for one in reliabilities
        ]
        assessors = pd.DataFrame(found, columns=["assessor", "informativeness", "flag"])
        assessors = assessors.astype({"informativeness": float}).merge(_agreement(answers, documents), on="assessor")
        return cls(project, snapshot, answers, documents, assessors)


def _as_grades(answers: pd.DataFrame, project: Project) -> pd.DataFrame:
    """Return preferences as grades of comparisons, with the sides as on the pages of leads."""
    import pandas as pd

    names = dict(enumerate(project.grades, start=-1))
    is_swapped = answers["right"] < answers["left"]
    sign = 1 - 2 * is_swapped.astype(int)
    sides = answers["left"].where(~is_swapped, answers["right"]), answers["right"].where(~is_swapped, answers["left"])
    changed = {
        "document": sides[0] + " | " + sides[1],
        "grade": (sign * answers["preference"]).map(names),
        "honeypot": pd.Series(sign * answers["honeypot"]).map(names),
    }
    return answers.assign(**changed)


def _agreement(answers: pd.DataFrame, documents: pd.DataFrame) -> pd.DataFrame:
    """Return the answers of each assessor, and the shares equal to the consensus and to the grades of honeypots."""
    consensus = documents[["query", "document", "grade"]].rename(columns={"grade": "consensus"})
    graded = answers.merge(consensus, "left", ["query", "document"])
    graded["agreement"] = (graded["grade"] == graded["consensus"]).astype(float).where(graded["consensus"].notna())
    graded["honeypot_share"] = (graded["grade"] == graded["honeypot"]).astype(float).where(graded["honeypot"].notna())
    return (
        graded.groupby("assessor")
        .agg(
            judgments=("grade", "size"),
            agreement=("agreement", "mean"),
            honeypots=("honeypot", "count"),
            honeypot_share=("honeypot_share", "mean"),
        )
        .reset_index()
    )


def list_charts(data: ChartData) -> Iterator[tuple[str, Any]]:
    """Return the names and charts that the data of a project suffice for."""
    from crowdrank.reports import charts

    answers, grades = data.answers, list(data.project.grades)
    if answers["time"].nunique() > 1:
        yield "progress", charts.answers_over_time(answers)
    yield "grades", charts.grade_shares(answers, grades, data.documents["grade"].tolist())
    if data.assessors["informativeness"].notna().any():
        if len(data.assessors) >= MIN_ASSESSORS:
            yield "informativeness", charts.informativeness(data.assessors)
        yield "agreement", charts.informativeness_by_agreement(data.assessors)
    gold = answers[answers["honeypot"].notna()]
    if len(gold):
        title = "Answers to honeypots"
        yield (
            "honeypots",
            charts.confusion(gold["grade"], gold["honeypot"], title, "given", "correct", grades, "answer"),
        )
    if data.project.asks_preferences:
        return
    yield from _relevance_charts(data)
    if answers["family"].notna().any():
        judgments = read_judgments(answers[["query", "document", "assessor", "family", "grade"]], grades=grades)
        yield "families", charts.family_agreement(judgments)


def _relevance_charts(data: ChartData) -> Iterator[tuple[str, Any]]:
    from crowdrank.reports import charts
    from crowdrank.reports.charts.documents import least_certain_query

    known = data.documents.dropna(subset=["lower", "upper"])
    if not len(known) or data.snapshot.method == "auto":  # of auto, the unit of relevance is not stored
        return
    on_a_line = not get_aggregator(data.snapshot.method).in_grades
    yield "uncertainty", charts.uncertainty(known, on_a_line=on_a_line)
    yield "relevance", charts.relevance_intervals(known, least_certain_query(known), on_a_line=on_a_line)
