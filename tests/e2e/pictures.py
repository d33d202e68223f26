"""Remakes the pictures of the page in docs/images, from a running gateway with the embedded model:

    python -m tests.e2e.pictures http://127.0.0.1:8000 sk-pl-…

Figures in them are what this machine gave: let it be idle.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.e2e.test_page import ANSWER, ARGUMENTS

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LIFTED_MS = 380
"""After a rollback: its drafts have risen and not yet faded."""


def main(url: str, key: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        address = f"{url}/#key={key}"
        page = _open(browser, address, 1100, 800, "light")
        _keep(page, "start")
        _rolled_back(page)
        _keep(page, "streaming")
        page = _open(browser, address, 1100, 800, "dark")
        _rolled_back(page)
        page.wait_for_selector(ANSWER)
        page.click("text=Compare with cloud only")
        page.wait_for_selector(".comparison")
        page.wait_for_timeout(500)
        _keep(page, "dark")
        page = _open(browser, address, 390, 844, "light")
        _rolled_back(page)
        page.wait_for_selector(ANSWER)
        page.wait_for_timeout(2000)
        _keep(page, "phone")
        browser.close()


def _open(browser: Browser, address: str, width: int, height: int, scheme: str) -> Page:
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        device_scale_factor=1.25 if width < 500 else 1,
    )
    page.goto(address)
    page.wait_for_selector('#connection[data-state="open"]')
    page.wait_for_timeout(1000)  # until a few pings have told the distance
    return page


def _rolled_back(page: Page) -> None:
    page.click(".suggestions button >> nth=0")
    page.wait_for_selector(".ghost")
    page.wait_for_timeout(LIFTED_MS)


def _keep(page: Page, name: str) -> None:
    page.screenshot(path=IMAGES / f"page-{name}.png")


if __name__ == "__main__":
    main(*sys.argv[1:3])
