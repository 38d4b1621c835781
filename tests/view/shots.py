"""Screenshots of the viewer for its page: `python -m tests.view.shots FOLDER`, after `make browser`."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.runs.view.test_browser import CHROMIUM
from tests.view.example import make_example
from vtune.runs.view.page import write_page

WIDTH, HEIGHT = 1280, 720
PAGES: dict[str, tuple[str, str, str]] = {
    "run": ("#/run/0", ".charted", "h2:text-is('curves')"),
    "list": ("#/0?q=right%3Ayes%20faithful%3Ano", "text=/of \\d+/", "h1"),
    "trajectory": ("#/0/step-000099/1", "text=call 0: python", "h1"),
}
"""Name -> address, element to wait for, and element where the screenshot starts."""


def photograph(page: Any, file: Path, name: str, target: Path) -> None:
    """Take a screenshot of one page of a run's HTML file."""
    path, wait, top = PAGES[name]
    page.goto(f"file://{file}{path}")
    page.wait_for_selector(wait)
    page.locator(top).first.evaluate("one => scrollTo(0, one.getBoundingClientRect().top + scrollY - 12)")
    page.screenshot(path=str(target))


def main(folder: Path, widths: tuple[int, ...], schemes: tuple[str, ...]) -> None:
    """Write a screenshot of each page; names include width and colour scheme if there are several."""
    with tempfile.TemporaryDirectory() as work, sync_playwright() as started:
        run = make_example(Path(work) / "codev-lens")
        file = Path(work) / "page.html"
        write_page([run], file, trajectories=200)
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width in widths:
            for scheme in schemes:
                page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
                for name in PAGES:
                    several = f"-{width}-{scheme}" if len(widths) * len(schemes) > 1 else ""
                    photograph(page, file, name, folder / f"{name}{several}.png")
        browser.close()


if __name__ == "__main__":
    every = "--all" in sys.argv
    main(
        Path(sys.argv[1]),
        (WIDTH, 390) if every else (WIDTH,),
        ("light", "dark") if every else ("light",),
    )
