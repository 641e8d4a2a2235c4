"""Take screenshots with Chromium: of a report, with the summary of the run as text beside it, and of the service."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 1280, 800
JUDGING_HEIGHT = 460
"""Height of the picture of the judging page, below which there is nothing."""
COLORS = 128
"""Number of colors; few colors make a small file."""


@contextmanager
def open_page() -> Iterator[Any]:
    """Open an empty page in Chromium."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("Chromium is not installed (Debian: apt-get install chromium).")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        browser.close()


def save_screenshot(page: Any, picture: Path, height: int = HEIGHT) -> None:
    """Write a PNG file with the top of a page."""
    from PIL import Image

    screenshot = page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
    image = Image.open(io.BytesIO(screenshot)).convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
    image.save(picture, optimize=True)


def take_report(report: Path, picture: Path) -> None:
    """Write a PNG file with the first screen of a report, and its summary."""
    with open_page() as page:
        page.goto(report.resolve().as_uri())
        page.wait_for_load_state("networkidle")
        save_screenshot(page, picture)
    about = json.loads((report.parent / "run.json").read_text(encoding="utf-8"))
    picture.with_suffix(".txt").write_text("\n".join(about["summary"]) + "\n", encoding="utf-8")


def take_service(folder: Path) -> None:
    """Write judging.png and dashboard.png with pages of the demo of the judging service."""
    command = [sys.executable, "-m", "crowdrank", "serve", "--demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service, open_page() as page:
        assert service.stdout is not None
        try:
            link = re.search(r"http://\S+", service.stdout.readline())[0]  # type: ignore[index]
            page.goto(link)
            page.fill("#name", "dora")
            page.fill("#password", "correct horse battery")
            page.click("#join button")
            page.click("text=Dashboard")
            page.wait_for_selector("#model strong")
            save_screenshot(page, folder / "dashboard.png")
            page.click("text=Judge")
            page.wait_for_selector(".card")
            save_screenshot(page, folder / "judging.png", JUDGING_HEIGHT)
        finally:
            service.terminate()


def main() -> None:
    """Read from the command line what to take a picture of."""
    match sys.argv[1:]:
        case ["service", folder]:
            take_service(Path(folder))
        case [report, picture]:
            take_report(Path(report), Path(picture))
        case _:
            sys.exit(
                "Name a report and a picture (report.html report.png), or a folder for the service (service docs)."
            )


if __name__ == "__main__":
    main()
