"""The picture of a report: its first screen, drawn by Chromium, in few enough colors to be small.

Beside it goes what the run says of itself in a paragraph, as text of the same name.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

WIDTH, HEIGHT = 1280, 800
COLORS = 128


def take(report: Path, picture: Path) -> None:
    """Draw the first screen of a report into a PNG file."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("Chromium is not here (Debian: apt-get install chromium).")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(report.resolve().as_uri())
        page.wait_for_load_state("networkidle")
        drawn = page.screenshot()
        browser.close()
    few = Image.open(io.BytesIO(drawn)).convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
    few.save(picture, optimize=True)
    about = json.loads((report.parent / "run.json").read_text(encoding="utf-8"))
    picture.with_suffix(".txt").write_text(about["paragraph"] + "\n", encoding="utf-8")


def main() -> None:
    """Take the report and the picture from the command line."""
    if len(sys.argv) != 3:
        sys.exit("Say which report and which picture: python -m tools.picture report.html report.png")
    take(Path(sys.argv[1]), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
