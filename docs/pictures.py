"""
Record a page, or an element of it, as a PNG by Chromium.

    pytest --tfperf-baseline --tfperf-report perf.html     # tests of a model, with ten recorded runs
    python docs/pictures.py perf.html docs/report.png --width 1100 --height 1640
    python docs/pictures.py perf.html docs/explanation/history.png --width 440 --of "figure:has(.history)" --scale 2
    tfperf analyze tests/data/side_by_side/slow_source.xplane.pb -o trace.html
    python docs/pictures.py trace.html docs/trace_page.png --width 1000 --height 760

The stored pictures have 64 colours, which makes them a third as large.
"""

import argparse
import base64
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers.browser import Browser, Page


def main() -> None:
    """Record what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0].strip())
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1100, help="pixels of the window")
    parser.add_argument("--height", type=int, default=10_000, help="pixels from the top, at most")
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--of", default="html", help="CSS selector of what is recorded")
    parser.add_argument("--scale", type=float, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Browser(folder) as browser:
        page = Page(browser, options.page.resolve())
        page.look(options.width, options.scheme)
        box = page.js(
            f"(({{x, y, width, height}}) => ({{x, y, width, height}}))(document.querySelector({options.of!r}).getBoundingClientRect())"
        )
        margin = 0 if options.of == "html" else 4
        clip = {
            "x": box["x"] - margin,
            "y": box["y"] - margin,
            "width": box["width"] + 2 * margin,
            "height": min(box["height"] + 2 * margin, options.height),
            "scale": options.scale,
        }
        shot = page.send(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
        )
        options.picture.write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    main()
