"""Remakes the pictures of the page in docs/images, from a running gateway with the embedded model:

    python -m tests.e2e.pictures http://127.0.0.1:8000 sk-pl-… ADMIN_KEY

Figures in them are what this machine gave: let it be idle. The pages' type is Inter (Debian: fonts-inter).
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
ROUND_TRIP_MS = "80"


def main(url: str, key: str, admin_key: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        address = f"{url}/#key={key}"
        page = _open(browser, address, 1360, 850, "light")
        _keep(page, "start")
        _far(page)
        _rolled_back(page)
        _keep(page, "streaming")
        page.wait_for_selector(ANSWER)
        page.click("[data-view=left]")
        _keep(page, "left")
        page.click("[data-view=race]")
        page.click("#race-suggestions button >> nth=0")
        page.wait_for_selector(".verdict[data-same]", timeout=90_000)
        page.wait_for_timeout(6000)  # until it has been played
        page.locator(".verdict").scroll_into_view_if_needed()
        _keep(page, "race")
        operations = browser.new_page(viewport={"width": 1360, "height": 850})
        operations.goto(f"{url}/ops#key={admin_key}")
        operations.wait_for_selector("#tiles div")
        page.click("[data-view=chat]")
        for suggestion in (1, 2):
            page.fill("#question", "Tell me a long story about a bicycle race." * suggestion)
            page.press("#question", "Enter")
            operations.wait_for_timeout(4000)
            page.keyboard.press("Escape")
            page.wait_for_selector("#send:not([hidden])")
        page.fill("#question", "Explain how bread is made, in ten steps.")
        page.press("#question", "Enter")
        operations.wait_for_timeout(3000)
        _keep(operations, "ops")
        page = _open(browser, address, 1360, 850, "dark")
        page.click("#suggestions button >> nth=1")
        page.wait_for_selector(ANSWER, timeout=60_000)
        page.click("text=Compare with cloud only")
        page.wait_for_selector(".comparison", timeout=60_000)
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
    page.wait_for_selector('#offer[data-state="ready"]')
    page.wait_for_timeout(1000)  # until a few pings have told the distance
    return page


def _far(page: Page) -> None:
    page.fill("#rtt", ROUND_TRIP_MS)
    page.wait_for_timeout(800)


def _rolled_back(page: Page) -> None:
    page.click("#suggestions button >> nth=0")
    page.wait_for_selector(".ghost", state="attached")
    page.wait_for_timeout(LIFTED_MS)


def _keep(page: Page, name: str) -> None:
    page.screenshot(path=IMAGES / f"page-{name}.png")


if __name__ == "__main__":
    main(*sys.argv[1:4])
