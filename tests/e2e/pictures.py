"""Remakes the pictures of the page in docs/images, from a running gateway with the embedded model:

    python -m tests.e2e.pictures http://127.0.0.1:8000 sk-pl-… ADMIN_KEY [FOLDER]

With a folder every view is taken there in each width and theme, for a look at all of them. Figures in the pictures are
what this machine gave: let it be idle. The pages' type is Inter and JetBrains Mono (Debian: fonts-inter,
fonts-jetbrains-mono).
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.e2e.test_page import ANSWER, ARGUMENTS

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LIFTED_MS = 380
"""After a rollback: its drafts have risen and not yet faded."""
ROUND_TRIP_MS = "80"
SIZES = {"desktop": (1360, 850), "phone": (390, 844)}


def start(page: Page) -> None:
    page.wait_for_timeout(300)


def streaming(page: Page) -> None:
    _far(page)
    _suggest(page, 0)
    page.wait_for_selector(".ghost", state="attached")
    page.wait_for_timeout(LIFTED_MS)


def answer(page: Page) -> None:
    _far(page)
    _suggest(page, 1)
    page.wait_for_selector(ANSWER)
    page.click("text=Compare with cloud only")
    page.wait_for_selector(".comparison")
    page.wait_for_timeout(500)


def settings(page: Page) -> None:
    page.click("#settings-button")
    page.wait_for_timeout(300)


def left(page: Page) -> None:
    _suggest(page, 0)
    page.wait_for_selector(ANSWER)
    page.click("[data-view=left]")
    page.wait_for_timeout(300)


def race(page: Page) -> None:
    _far(page)
    page.click("[data-view=race]")
    page.click("#race-suggestions button >> nth=0")
    page.wait_for_selector(".verdict[data-same]")
    page.wait_for_timeout(3000)  # in the midst of being played
    page.locator(".lane").last.scroll_into_view_if_needed()


VIEWS: dict[str, Callable[[Page], None]] = {
    "start": start,
    "streaming": streaming,
    "answer": answer,
    "settings": settings,
    "left": left,
    "race": race,
}
KEPT = {
    ("start", "desktop", "light"): "start",
    ("streaming", "desktop", "light"): "streaming",
    ("answer", "desktop", "dark"): "dark",
    ("race", "desktop", "light"): "race",
    ("left", "desktop", "light"): "left",
    ("answer", "phone", "light"): "phone",
    ("race", "phone", "dark"): "phone-race",
    ("ops", "desktop", "light"): "ops",
    ("ops", "desktop", "dark"): "ops-dark",
}
"""What docs/ shows, and its name there."""


def main(url: str, key: str, admin_key: str, folder: Path | None) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        for size in SIZES:
            for scheme in ("light", "dark"):
                for name, prepare in VIEWS.items():
                    if path := _path(name, size, scheme, folder):
                        page = _open(browser, f"{url}/#key={key}", size, scheme)
                        page.wait_for_selector('#connection[data-state="open"]')
                        page.wait_for_selector('#offer[data-state="ready"]', state="attached")
                        page.wait_for_timeout(1000)  # until a few pings have told the distance
                        prepare(page)
                        page.screenshot(path=path)
                        page.close()
                if path := _path("ops", size, scheme, folder):
                    _operations(browser, url, key, admin_key, size, scheme, path)
        browser.close()


def _path(name: str, size: str, scheme: str, folder: Path | None) -> Path | None:
    if folder is not None:
        return folder / f"{name}-{size}-{scheme}.png"
    kept = KEPT.get((name, size, scheme))
    return None if kept is None else IMAGES / f"page-{kept}.png"


def _operations(browser: Browser, url: str, key: str, admin_key: str, size: str, scheme: str, path: Path) -> None:
    """Two tabs that ask, twelve plain streams beside them, and the board that shows them all."""
    board = _open(browser, f"{url}/ops#key={admin_key}", size, scheme)
    board.wait_for_selector("#tiles div")
    tabs = [_open(browser, f"{url}/#key={key}", "desktop", "light") for _ in range(2)]
    for round_ in range(3):
        for tab in tabs:
            tab.wait_for_selector('#connection[data-state="open"]')
            tab.evaluate(_LOAD, [key, 2 + 2 * round_])
            tab.fill("#question", "Tell me a long story about a bicycle race.")
            tab.press("#question", "Enter")
        board.wait_for_timeout(8000)
        for tab in tabs:
            tab.keyboard.press("Escape")
            tab.wait_for_selector("#send:not([hidden])")
    board.locator("#tiles div:nth-child(2) dd").filter(has_text=re.compile("^0")).wait_for()  # nobody in the queue
    for tab in tabs:
        tab.fill("#question", "Say this nine times: the first rider breaks the wind, and the others follow behind.")
        tab.press("#question", "Enter")
        tab.locator(".answer").last.locator("[data-origin]").first.wait_for()
    for tab in tabs:
        tab.evaluate(_LOAD, [key, 5])
    board.wait_for_timeout(2500)
    board.screenshot(path=path)
    for page in (*tabs, board):
        page.close()


_LOAD = """([key, count]) => {
  for (let i = 0; i < count; i++)
    fetch("/v1/chat/completions", {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: document.querySelector("#model").value, max_tokens: 20 + 10 * i, stream: true,
                             messages: [{ role: "user", content: "Explain how bread is made, in ten steps." }] }),
    });
}"""


_FAR = """(ms) => {
  const slider = document.getElementById("rtt");
  slider.value = ms;
  slider.dispatchEvent(new Event("input"));
}"""


def _open(browser: Browser, address: str, size: str, scheme: str) -> Page:
    width, height = SIZES[size]
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        device_scale_factor=1.25 if size == "phone" else 1,
    )
    page.set_default_timeout(120_000)
    page.goto(address)
    return page


def _far(page: Page) -> None:
    page.evaluate(_FAR, ROUND_TRIP_MS)  # on a phone the panel is folded up
    page.wait_for_timeout(800)


def _suggest(page: Page, which: int) -> None:
    page.locator("#suggestions button").nth(which).click()


if __name__ == "__main__":
    address, key, admin_key, *rest = sys.argv[1:]
    main(address, key, admin_key, Path(rest[0]) if rest else None)
