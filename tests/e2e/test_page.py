"""The page in a real browser, against the real gateway on the scripted engine."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edge.script import Script, ScriptVocabulary
from tests.e2e.gateway import Gateway

pytest.importorskip("playwright", reason="playwright drives the browser, and is not installed")
from playwright.async_api import Page, async_playwright, expect

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="the browser `chromium` is not installed")

expect.set_options(timeout=60_000)
"""As long as a loaded machine may need; a test that fails takes it, and no other."""

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
VERSES = "one rider leads and two follow. one rider leads and three follow. one rider leads and two follow the leader."
CUT_SOCKETS = """
const Real = WebSocket;
window.sockets = [];
window.WebSocket = class extends Real {
  constructor(...given) { super(...given); window.sockets.push(this); }
  send(data) { if (navigator.onLine) super.send(data); }
  set onmessage(hear) { super.onmessage = (event) => { if (navigator.onLine) hear(event); }; }
};
"""
"""Chromium leaves open sockets alone when it is told to be offline: with this, nothing passes them then."""
ANSWER = '.answer[aria-busy="false"]'


class Recital(Script):
    """Says one text, whatever it is asked: so a prompt can be made that drafts well, or that drafts wrongly."""

    def __init__(self, text: str) -> None:
        super().__init__(ScriptVocabulary())
        self._tokens = [*self.vocabulary.encode(text), self.vocabulary.end]

    def logits(self, prompt_key: int, position: int, previous: int) -> NDArray[np.float32]:
        logits = np.zeros(self.vocabulary.size, np.float32)
        logits[self._tokens[min(position, len(self._tokens) - 1)]] = 50.0
        return logits


@asynccontextmanager
async def opened(gateway: Gateway, fragment: str = "", width: int = 1000) -> AsyncIterator[Page]:
    """The page, which must not have complained of anything when we leave: no error, nothing that the CSP stopped."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        context = await browser.new_context(viewport={"width": width, "height": 800}, reduced_motion="reduce")
        context.set_default_timeout(60_000)
        page = await context.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None)
        await page.goto(f"{gateway.url}/{fragment}")
        yield page
        await browser.close()
    assert complaints == []


async def ask(page: Page, question: str) -> None:
    await expect(page.locator("#connection")).to_have_attribute("data-state", "open")
    await page.fill("#question", question)
    await page.press("#question", "Enter")


async def text_of(page: Page) -> str:
    """The first answer's text as it stands on the page, without drafts and what fades."""
    shown: str = await page.evaluate(
        """() => [...document.querySelector(".answer .text").childNodes]
           .filter((node) => !(node.ariaHidden === "true")).map((node) => node.textContent).join("")"""
    )
    return shown


@pytest.mark.parametrize("width", [1000, 390])
async def test_a_conversation_in_hybrid(width: int, tmp_path: Path) -> None:
    async with (
        Gateway(tmp_path, Recital(VERSES), step_s=0.04) as gateway,
        opened(gateway, f"#key={gateway.key}", width=width) as page,
    ):
        assert "key" not in page.url
        await page.evaluate(
            """() => { window.ghosts = 0; new MutationObserver((changes) => changes.forEach(({addedNodes}) =>
               addedNodes.forEach((node) => { if (node.className === "ghost") window.ghosts += 1; })
            )).observe(document.getElementById("turns"), {childList: true, subtree: true}); }"""
        )
        await ask(page, "one rider leads and two follow.")
        await page.wait_for_selector(ANSWER)
        assert await text_of(page) == VERSES
        assert await page.locator('.text [data-origin="accepted"]').count() > 10
        assert await page.locator('.text [data-origin="corrected"]').count() > 0
        assert await page.evaluate("window.ghosts") > 0
        steps = float(await page.locator('[data-figure="steps"] dd').inner_text())
        assert 0 < steps < 0.9
        await page.click("text=Compare with cloud only")
        await expect(page.locator(".comparison caption")).to_have_attribute("data-same", "true")
        # The next question carries the conversation, and the answer stands below the first.
        await ask(page, "and then?")
        await expect(page.locator(ANSWER)).to_have_count(2)


async def test_an_answer_goes_on_over_a_restarted_gateway(tmp_path: Path) -> None:
    """Rule 7, edge-carried resume: the new gateway has never heard of the stream."""
    long = VERSES * 4
    async with Gateway(tmp_path, Recital(long), step_s=0.15) as first:
        key, port = first.key, first.port
        async with opened(first, f"#key={key}") as page:
            await page.click("#settings-button")
            await page.select_option("#length", "512")
            await ask(page, "a question that holds none of the answer")
            await expect(page.locator(".text [data-origin]").nth(5)).to_be_attached()
            await first.__aexit__()
            await expect(page.locator(".answer[data-away]")).to_be_attached()
            shown = await page.locator(".text [data-origin]").count()
            async with Gateway(tmp_path, Recital(long), port=port):
                await page.wait_for_selector(ANSWER)
                assert await text_of(page) == long
                assert shown < len(ScriptVocabulary().encode(long))
                await page.close()


async def test_a_wrong_key_is_said_and_can_be_mended(tmp_path: Path) -> None:
    async with Gateway(tmp_path, Recital(VERSES)) as gateway, opened(gateway, "#key=sk-pl-wrong") as page:
        await expect(page.locator("#key-hint[data-problem]")).to_be_visible()
        await expect(page.locator("#send")).to_be_disabled()
        await page.fill("#key", gateway.key)
        await page.press("#key", "Enter")
        await ask(page, "one rider")
        await page.wait_for_selector(ANSWER)


async def test_output_that_looks_like_a_page_does_nothing(tmp_path: Path) -> None:
    hostile = (
        "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script> [a](javascript:0)"
    )
    async with Gateway(tmp_path, Recital(hostile)) as gateway, opened(gateway, f"#key={gateway.key}") as page:
        await ask(page, hostile)
        await page.wait_for_selector(ANSWER)
        assert await text_of(page) == hostile
        assert await page.title() == "Paceline"
        assert await page.locator("#turns img, #turns script, #turns a").count() == 0


async def test_stopping_keeps_what_there_is_and_the_next_question_can_be_asked(tmp_path: Path) -> None:
    async with (
        Gateway(tmp_path, Recital(VERSES * 4), step_s=0.2) as gateway,
        opened(gateway, f"#key={gateway.key}") as page,
    ):
        await ask(page, "hello")
        await expect(page.locator(".text [data-origin]").nth(3)).to_be_attached()
        await page.keyboard.press("Escape")
        await page.wait_for_selector('.answer[data-reason="cancelled"]')
        assert (VERSES * 4).startswith(await text_of(page))
        await expect(page.locator("#send")).to_be_visible()


async def test_a_phone_scrolls_in_one_direction_only(tmp_path: Path) -> None:
    async with (
        Gateway(tmp_path, Recital("w" * 400)) as gateway,
        opened(gateway, f"#key={gateway.key}", width=390) as page,
    ):
        await page.click("#settings-button")
        await ask(page, "w" * 300)
        await page.wait_for_selector(ANSWER)
        assert await page.evaluate("document.documentElement.scrollWidth") == 390
