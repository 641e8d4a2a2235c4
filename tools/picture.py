"""Take a screenshot of a report with Chromium, and save the summary of the run as text beside it."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

WIDTH, HEIGHT = 1280, 800
COLORS = 128
"""Number of colors; few colors make a small file."""


def take_screenshot(report: Path, picture: Path) -> None:
    """Write a PNG file with the first screen of a report, and its summary."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("Chromium is not installed (Debian: apt-get install chromium).")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(report.resolve().as_uri())
        page.wait_for_load_state("networkidle")
        screenshot = page.screenshot()
        browser.close()
    image = Image.open(io.BytesIO(screenshot)).convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
    image.save(picture, optimize=True)
    about = json.loads((report.parent / "run.json").read_text(encoding="utf-8"))
    picture.with_suffix(".txt").write_text("\n".join(about["summary"]) + "\n", encoding="utf-8")


def main() -> None:
    """Read the paths of the report and the picture from the command line."""
    if len(sys.argv) != 3:
        sys.exit("Name a report and a picture: python -m tools.picture report.html report.png")
    take_screenshot(Path(sys.argv[1]), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
