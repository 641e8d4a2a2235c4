"""Size of the report of a run, and the time in which Chromium draws it, compared with an empty page."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, at_most, in_own_process

JUDGMENTS, ASSESSORS = 1_000_000, 10_000
RANKER_QUERIES = 300
"""Number of queries of the run with rankers."""
PAGES = 5
"""Number of times that each page is opened."""
MAX_MEGABYTES, MAX_SECONDS = 6.0, 3.0
EMPTY_PAGE = "<!doctype html><title>empty</title><p>empty</p>"
WHEN_DRAWN = """async () => {
  await Promise.all([...document.images].map((image) => image.decode()));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return document.images.length;
}"""
"""Script that ends when all charts are decoded and the page has been drawn after that; it returns their number."""


def _write_reports(folder: str, n_judgments: int) -> dict[str, int]:
    """Write the reports of labels alone and of a run with rankers; return the number of judgments of each."""
    import crowdrank

    documents, labels = 20, 5
    world = crowdrank.simulate(
        queries=n_judgments // (documents * labels),
        documents=documents,
        labels=labels,
        features=2,
        assessors=ASSESSORS,
        gold_queries=60,
        random_state=0,
    )
    place = Path(folder)
    crowdrank.run(world.judgments, expert=world.gold, output=place / "labels", n_jobs=1)
    texts = world.judgments[["query", "document"]].drop_duplicates()
    crowdrank.write_report(place / "labels", place / "labels.html", texts=texts.assign(text="word " * 200))
    smaller = crowdrank.simulate(queries=RANKER_QUERIES, documents=20, gold_queries=60, random_state=0)
    crowdrank.run(
        smaller.judgments,
        smaller.features,
        smaller.gold,
        output=place / "rankers",
        candidates=["majority", "gls", "linear-gls", "expert-only"],
        n_jobs=1,
    )
    crowdrank.write_report(place / "rankers", place / "rankers.html")
    (place / "empty.html").write_text(EMPTY_PAGE)
    return {"labels": len(world.judgments), "rankers": len(smaller.judgments)}


def _draw(page: Path) -> dict[str, float]:
    """Open a file in a new browser; return the seconds until it is drawn, the renderer's CPU time and its charts."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 1366, "height": 850})
        processes = browser.new_browser_cdp_session()
        before, start = _renderer_seconds(processes), time.perf_counter()
        view.goto(page.as_uri())
        charts = view.evaluate(WHEN_DRAWN)
        seconds, cpu = time.perf_counter() - start, _renderer_seconds(processes) - before
        browser.close()
    return {"seconds": seconds, "cpu": cpu, "charts": charts}


def _renderer_seconds(processes: Any) -> float:
    """Return the CPU time of the processes that draw pages: renderers, and the process of the graphics card."""
    known = processes.send("SystemInfo.getProcessInfo")["processInfo"]
    return float(sum(one["cpuTime"] for one in known if one["type"] in ("renderer", "GPU")))


def _median_of(draws: list[dict[str, float]], name: str) -> float:
    return statistics.median(one[name] for one in draws)


def report_size(n_judgments: int = JUDGMENTS) -> list[Result]:
    """Measure the size of reports, and the time to draw them relative to that of an empty page."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        counts = in_own_process(_write_reports, folder, n_judgments)
        pages = {name: Path(folder) / f"{name}.html" for name in ("empty", *counts)}
        # In turns, so that other load of the machine affects all pages alike.
        draws: dict[str, list[dict[str, float]]] = {name: [] for name in pages}
        for _ in range(PAGES):
            for name, page in pages.items():
                draws[name].append(_draw(page))
        empty = {name: _median_of(draws["empty"], name) for name in ("seconds", "cpu")}
        for name, n in counts.items():
            size, title = pages[name].stat().st_size / 1e6, f"report of {name}, {n:,} judgments"
            results.append(at_most(f"megabytes of the {title}", size, MAX_MEGABYTES))
            drawn = {figure: _median_of(draws[name], figure) for figure in ("seconds", "cpu", "charts")}
            details = {**drawn, "empty": empty["seconds"], "empty cpu": empty["cpu"]}
            results.append(at_most(f"seconds to draw the {title}", drawn["seconds"], MAX_SECONDS, **details))
            ratio = drawn["cpu"] / empty["cpu"]
            results.append(at_most(f"CPU time to draw the {title} / an empty page", ratio, 4))
    return results
