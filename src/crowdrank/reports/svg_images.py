"""Draw charts as SVG images.

`python -m crowdrank.reports.svg_images` reads a JSON list of Vega-Lite charts and prints the list of their images. A
service draws in such a process, because drawing would hold up its other threads.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

CHART_PACKAGES = ("altair", "vl_convert")
"""Packages of the extra `report`, which draw charts."""
MAX_SECONDS = 60
"""Maximum number of seconds that a process may take to draw."""


def can_draw() -> bool:
    """Return whether the packages that draw charts are installed."""
    return all(find_spec(name) is not None for name in CHART_PACKAGES)


def draw_svg(spec: dict[str, Any]) -> str:
    """Return a Vega-Lite chart as an SVG image; equal charts give equal images."""
    import vl_convert

    return renumber_ids(vl_convert.vegalite_to_svg(spec))


def draw_in_new_process(specs: Sequence[dict[str, Any]]) -> list[str]:
    """Return Vega-Lite charts as SVG images, drawn in a process of their own.

    Raises:
        subprocess.SubprocessError: the process failed, or took more than `MAX_SECONDS`.

    """
    command = [sys.executable, "-m", "crowdrank.reports.svg_images"]
    content = json.dumps(list(specs)).encode()
    done = subprocess.run(command, input=content, capture_output=True, timeout=MAX_SECONDS, check=True)
    images: list[str] = json.loads(done.stdout)
    return images


def title_of(spec: dict[str, Any]) -> str:
    """Return title and subtitle of a chart, for readers who cannot see it."""
    title = spec.get("title", {})
    return ": ".join(line for line in (title.get("text", ""), *title.get("subtitle", [])) if line)


def width_of(svg: str) -> float:
    """Return the width of an image in pixels.

    >>> width_of('<svg class="marks" width="480" height="316"></svg>')
    480.0
    """
    return float(re.search(r'<svg[^>]* width="([\d.]+)"', svg)[1])  # type: ignore[index]


def renumber_ids(svg: str) -> str:
    """Return the image with ids of gradients and clip paths numbered from 0, so that equal charts give equal images.

    >>> renumber_ids('<path id="clip7"/><g clip-path="url(#clip7)"/><text>id="clip7"</text>')
    '<path id="clip0"/><g clip-path="url(#clip0)"/><text>id="clip7"</text>'
    """
    new_ids: dict[str, str] = {}

    def renumber(match: re.Match[str]) -> str:
        prefix, kind = match.group(1), match.group(2)
        return prefix + new_ids.setdefault(match.group(0)[len(prefix) :], f"{kind}{len(new_ids)}")

    return re.sub(r"<[^>]*>", lambda tag: re.sub(r'(id="|url\(#)(gradient_|clip)\d+', renumber, tag.group()), svg)


if __name__ == "__main__":
    json.dump([draw_svg(spec) for spec in json.load(sys.stdin)], sys.stdout)
