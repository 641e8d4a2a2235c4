"""Walks through the code, as lists for CONTRIBUTING.md and as pictures for docs/assets.

`make figures` writes both. A test checks that every file and function exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import groupby
from textwrap import wrap


@dataclass(frozen=True)
class Step:
    """Step of a walk.

    Attributes:
        file: path of the module in `src/crowdrank/`.
        function: function, or method as `Class.method`.
        about: what it does, a short phrase.

    """

    file: str
    function: str
    about: str

    @property
    def package(self) -> str:
        """First folder of the path; for the judging service, also the second."""
        first, *others = self.file.split("/")
        return f"{first}/{others[0]}" if first == "service" else first


WALKS = {
    "run": (
        "A judgment through `crowdrank run`",
        [
            Step("cli/run_commands.py", "run", "merge the options and the TOML file"),
            Step("pipeline/run_settings.py", "RunConfig.read", "read judgments, features and expert grades"),
            Step("readers/inputs.py", "open_input", "find the files and their formats"),
            Step("readers/inputs.py", "read_roles", "find the columns of query, document, assessor, grade"),
            Step("readers/encode.py", "encode_part", "replace ids and answers of a file by codes"),
            Step("readers/merge.py", "merge_parts", "merge the files, sorted by query and document"),
            Step("pipeline/run.py", "run", "lock the folder, open the cache, run the stages"),
            Step("pipeline/run_data.py", "build_run_data", "join judgments, features and expert grades"),
            Step("pipeline/consensus_fits.py", "ConsensusFits.fit", "fit the model, or load it from the cache"),
            Step("consensus/model.py", "Aggregator.fit", "start, iterate and finish a fit"),
            Step("consensus/gda.py", "GDA._accumulate", "E-step: relevance of each document"),
            Step("consensus/gda.py", "GDA._maximize", "M-step: parameters of each assessor"),
            Step("consensus/assembly.py", "ConsensusBuilder.build", "make tables with ids of documents and assessors"),
            Step("assessors/assessor_report.py", "assess", "compute informativeness and flags"),
            Step("pipeline/selection.py", "train_and_select", "train rankers on the labels, select one"),
            Step("pipeline/ranker_test.py", "summarize", "test it on queries that were held out"),
            Step("pipeline/deployment.py", "make_deployable", "make one forest for search engines"),
            Step("pipeline/run_result.py", "RunResult.save", "write the files of the run"),
            Step("reports/page.py", "write_report", "write the HTML report"),
        ],
    ),
    "answer": (
        "An answer through the judging service",
        [
            Step("service/web/access.py", "find_actor", "find who asks, by session or token"),
            Step("service/web/access.py", "InProject.__call__", "check the role in the project"),
            Step("service/web/routes/judging_routes.py", "get_next_pairs", "take the request for pairs"),
            Step("service/domain/assignment.py", "next_pairs", "choose pairs and lease them to the judge"),
            Step("service/domain/quotas.py", "reserve_labels", "limit them by the budget"),
            Step("service/web/protection.py", "parse_json", "refuse malformed JSON, NaN and NUL"),
            Step("service/web/routes/judging_routes.py", "record_answers", "take the answers"),
            Step("service/store/database.py", "Database.write", "open a transaction, and try again on conflict"),
            Step("service/domain/answers.py", "record_answers", "lock the member and check the answers"),
            Step("service/domain/quotas.py", "change_taken", "count the answers of each pair"),
            Step("service/model/refits.py", "Refits.run_due", "find projects with new answers"),
            Step("service/model/fits.py", "fit_project", "fit the model and store a snapshot"),
            Step("service/domain/progress.py", "coded_answers", "read the answers as judgments"),
            Step("consensus/model.py", "Aggregator.fit", "estimate relevance and assessors"),
            Step("assessors/assessor_report.py", "assess", "compute informativeness and flags"),
            Step("service/model/label_plan.py", "plan_labels", "let the policy rank the next labels"),
            Step("service/model/fits.py", "act_on_flags", "act on flagged assessors, such as pausing them"),
            Step("service/model/label_plan.py", "write_plan", "store priorities that `next_pairs` follows"),
            Step("service/web/routes/result_routes.py", "get_consensus", "return the labels"),
        ],
    ),
}
"""Title and steps of each walk, at most 20."""


def steps_list(name: str) -> str:
    """Return the steps of a walk as a numbered list, below its picture."""
    title, steps = WALKS[name]
    picture = f"![{title.replace('`', '')}](docs/assets/walk-{name}.svg)"
    lines = [f"{number}. `{one.file}`, `{one.function}`: {one.about}." for number, one in enumerate(steps, 1)]
    return "\n".join([picture, "", *lines])


LABEL_WIDTH, BOX_WIDTH, BOX_HEIGHT, GAP, ROW_GAP, MARGIN = 124, 208, 66, 22, 24, 16
"""Sizes in pixels: column of package names, boxes, space between boxes and between rows, and margin."""
BOXES_PER_ROW = 4
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.name { font: 600 12px ui-monospace, monospace }
.package { font: 600 12px system-ui, sans-serif; fill: #57606a }
.page { fill: #ffffff } .box { fill: #ddf4ff; stroke: #54aeff } .band { fill: #f6f8fa }
.arrow { stroke: #57606a; fill: none; stroke-width: 1.5 } .tip { fill: #57606a }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .package { fill: #9198a1 }
  .page { fill: #0d1117 } .box { fill: #0c2d6b; stroke: #388bfd } .band { fill: #161b22 }
  .arrow { stroke: #9198a1 } .tip { fill: #9198a1 }
}"""

ARROW_TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="tip" d="M0 0L8 4L0 8z"/></marker>'
)


def picture(name: str) -> str:
    """Return an SVG picture of a walk: one band per package, boxes from left to right; it has a dark scheme, too."""
    title, steps = WALKS[name]
    bands = _bands(steps)
    n_columns = max(len(numbered) for _, numbered in bands)
    width = MARGIN * 2 + LABEL_WIDTH + n_columns * (BOX_WIDTH + GAP)
    height = MARGIN * 2 + len(bands) * (BOX_HEIGHT + ROW_GAP)
    parts, previous = [], None
    for row, (package, numbered) in enumerate(bands):
        y = MARGIN + ROW_GAP // 2 + row * (BOX_HEIGHT + ROW_GAP)
        parts.append(_rectangle("band", MARGIN, y - 7, width - 2 * MARGIN, BOX_HEIGHT + 14))
        parts.append(f'<text class="package" x="{MARGIN + 10}" y="{y + BOX_HEIGHT // 2 + 4}">{escape(package)}</text>')
        for column, (number, step) in enumerate(numbered):
            x = MARGIN + LABEL_WIDTH + column * (BOX_WIDTH + GAP)
            parts += [*_arrow(previous, (x, y)), *_box(number, step, x, y)]
            previous = (x, y)
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
    about = f"<title>{escape(title.replace('`', ''))}</title><style>{STYLE}</style><defs>{ARROW_TIP}</defs>"
    return "\n".join([opening, about, _rectangle("page", 0, 0, width, height), *parts, "</svg>", ""])


def _rectangle(kind: str, x: int, y: int, width: int, height: int) -> str:
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'


def _bands(steps: list[Step]) -> list[tuple[str, list[tuple[int, Step]]]]:
    """Return rows of at most `BOXES_PER_ROW` successive steps of one package, numbered."""
    bands = []
    for package, group in groupby(enumerate(steps, 1), key=lambda pair: pair[1].package):
        numbered = list(group)
        for start in range(0, len(numbered), BOXES_PER_ROW):
            bands.append((package, numbered[start : start + BOXES_PER_ROW]))
    return bands


def _box(number: int, step: Step, x: int, y: int) -> list[str]:
    lines = wrap(step.about.replace("`", ""), 29)
    texts = [f'<text x="{x + 10}" y="{y + 38 + 16 * at}">{escape(line)}</text>' for at, line in enumerate(lines)]
    name = f'<text class="name" x="{x + 10}" y="{y + 19}">{number} {escape(step.function)}</text>'
    return [_rectangle("box", x, y, BOX_WIDTH, BOX_HEIGHT), name, *texts]


def _arrow(start: tuple[int, int] | None, end: tuple[int, int]) -> list[str]:
    """Return the arrow from one box to the next: to the right, or down and back to the first column."""
    if start is None:
        return []
    (x, y), (to_x, to_y), middle = start, end, BOX_HEIGHT // 2
    if y == to_y:
        path = f"M{x + BOX_WIDTH} {y + middle}H{to_x - 1}"
    else:
        path = f"M{x + BOX_WIDTH // 2} {y + BOX_HEIGHT}V{to_y - ROW_GAP // 2}H{to_x + BOX_WIDTH // 2}V{to_y - 1}"
    return [f'<path class="arrow" d="{path}" marker-end="url(#tip)"/>']
