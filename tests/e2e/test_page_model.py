"""The page for real: the draft model in WebAssembly in the tab, the target on llama.cpp behind the gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from edge.models import default_directory, pair
from tests.e2e.gateway import Gateway
from tests.e2e.test_page import ANSWER, CHROMIUM, CUT_SOCKETS, ask, opened, text_of

pytest.importorskip("playwright", reason="playwright drives the browser, and is not installed")
pytest.importorskip("llama_cpp", reason="llama.cpp runs the target, and is not installed")
from playwright.async_api import Page, expect

from app.engine.llama_cpp import LlamaCppEngine

ROOT = Path(__file__).parents[2]
MODELS = pair(default_directory())
MISTAKEN = (
    "Correct the spelling mistakes and write out the whole text: Cyclists ride close behind one anothr in a line."
)
QUESTION = "Why is the sky blue?"
STORY = "Tell me a story about a cyclist."

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="the browser `chromium` is not installed"),
    pytest.mark.skipif(not MODELS.target.is_file(), reason="the embedded models are not in the cache: make models"),
    pytest.mark.skipif(not (ROOT / "static/vendor/wllama").is_dir(), reason="the page's libraries: make page"),
    pytest.mark.timeout(240),
]


def target() -> LlamaCppEngine:
    return LlamaCppEngine(MODELS.target, model_id=MODELS.target.stem, streams=2)


async def test_the_model_in_the_tab_drafts_and_the_text_is_the_apis(tmp_path: Path) -> None:
    """Policy hold, so that drafts are in time however slow this machine is; the text must not depend on it. At
    temperature 1 both sides use the same noise, from the seed that the page drew, and still differ now and then.
    """
    async with Gateway(tmp_path, target(), hold_ms=30_000) as gateway, opened(gateway) as page:
        sent = await _ready(page, gateway)
        await page.evaluate(
            """() => { window.ghosts = 0; new MutationObserver((changes) => changes.forEach(({addedNodes}) =>
               addedNodes.forEach((node) => { if (node.className === "ghost") window.ghosts += 1; })
            )).observe(document.getElementById("turns"), {childList: true, subtree: true}); }"""
        )
        # n-grams copy the mistake, the target mends it: a rollback, drawn. Then the same conversation with the model.
        await _choose(page, drafter="ngram", policy="eager", temperature="0", length="64")
        await ask(page, MISTAKEN)
        await expect(page.locator(ANSWER)).to_have_count(1)
        await _rollbacks_drawn(page, answer=0)
        await page.select_option("#drafter", "model")
        await page.select_option("#policy", "hold")
        await page.select_option("#temperature", "1")
        await ask(page, STORY)
        await expect(page.locator(ANSWER)).to_have_count(2, timeout=200_000)
        model_answer = page.locator(ANSWER).nth(1)
        assert await model_answer.locator('.text [data-origin="accepted"]').count() > 10
        await _rollbacks_drawn(page, answer=1)
        await page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        await model_answer.get_by_text("Copy").click()
        assert await page.evaluate("window.copied") == await _by_api(gateway, sent)


async def test_a_race_on_the_real_target_gives_one_text(tmp_path: Path) -> None:
    async with Gateway(tmp_path, target()) as gateway, opened(gateway, f"#key={gateway.key}") as page:
        await _choose(page, drafter="ngram", policy="eager", temperature="0.8", length="64")
        await page.click("[data-view=race]")
        await ask(page, "Repeat this twice: A paceline is a line of cyclists who ride close behind one another.")
        await expect(page.locator(".verdict")).to_have_attribute("data-same", "true")


async def test_privacy_mode_local_sends_nothing(tmp_path: Path) -> None:
    async with Gateway(tmp_path, target()) as gateway, opened(gateway) as page:
        sent = await _ready(page, gateway)
        await _choose(page, privacy="local", length="64")
        await ask(page, QUESTION)
        await page.wait_for_selector(ANSWER, timeout=200_000)
        assert len(await text_of(page)) > 40
        assert {json.loads(frame)[0] for frame in sent} <= {"hello", "ping"}
        await page.click("[data-view=left]")
        await expect(page.locator(".left-body")).to_have_text("Nothing.")


async def test_reload_and_offline_go_on_with_the_answer_and_it_is_the_apis(tmp_path: Path) -> None:
    async with Gateway(tmp_path, target()) as gateway, opened(gateway) as page:
        await page.add_init_script(CUT_SOCKETS)
        sent = await _ready(page, gateway)
        await _choose(page, drafter="ngram", policy="eager", temperature="0", length="512")
        await ask(page, "Write the numbers from 1 to 300 in words, one on each line.")
        await expect(page.locator(".text [data-origin]").nth(5)).to_be_attached()
        await page.reload()
        await expect(page.locator("#connection")).to_have_attribute("data-state", "open")
        await expect(page.locator(".text [data-origin]").nth(12)).to_be_attached()
        await page.context.set_offline(True)
        await expect(page.locator(".answer[data-away]")).to_be_attached()
        await page.context.set_offline(False)
        await page.wait_for_selector(ANSWER, timeout=200_000)
        assert await page.locator(ANSWER).get_attribute("data-reason") != "error"
        assert [json.loads(frame)[0] for frame in sent].count("resume") >= 2
        await page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        await page.locator(ANSWER).get_by_text("Copy").click()
        assert await page.evaluate("window.copied") == await _by_api(gateway, sent)


async def test_draft_only_answers_without_a_token_of_the_question_going_up(tmp_path: Path) -> None:
    async with Gateway(tmp_path, target()) as gateway, opened(gateway, width=390) as page:
        sent = await _ready(page, gateway)
        await _choose(page, privacy="draft_only", length="64")
        await ask(page, QUESTION)
        await page.wait_for_selector(ANSWER, timeout=200_000)
        assert len(await text_of(page)) > 40
        assert await page.locator('.text [data-origin="accepted"]').count() > 10
        frames: list[Any] = [json.loads(frame) for frame in sent]
        [opening] = [frame for frame in frames if frame[0] == "open"]
        _, _, _, prompt, messages, committed, *_ = opening
        assert (prompt, messages, committed) == ([], [], [])
        assert "draft_only" in opening
        assert {frame[0] for frame in frames} <= {"hello", "ping", "open", "draft"}
        await page.click("[data-view=left]")
        await expect(page.locator(".left summary")).to_contain_text("no token of the question")
        await expect(page.locator(".left-body")).not_to_contain_text("question")
        await expect(page.locator(".left-body pre")).to_have_count(1)  # the drafts; no messages


async def _ready(page: Page, gateway: Gateway) -> list[str]:
    """Load the page until the draft model runs in it; gives the frames that it sends from now on."""
    sent: list[str] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(str(frame))))
    # The page draws its seed from here: the same each time, so that the test is, too.
    await page.add_init_script("crypto.getRandomValues = (array) => array.fill(7);")
    await page.goto(f"{gateway.url}/?threads=1#key={gateway.key}")
    await expect(page.locator("#offer")).to_have_attribute("data-state", "ready")
    return sent


async def _rollbacks_drawn(page: Page, answer: int) -> None:
    """Each correction in an answer stands where a rolled-back draft was drawn, and lifted off. Then counts anew."""
    corrected = await page.locator(ANSWER).nth(answer).locator('.text [data-origin="corrected"]').count()
    assert await page.evaluate("window.ghosts") >= corrected > 0
    await page.evaluate("window.ghosts = 0")


async def _choose(page: Page, **settings: str) -> None:
    await page.click("#settings-button")
    for name, value in settings.items():
        await page.select_option(f"#{name}", value)


async def _by_api(gateway: Gateway, sent: list[str]) -> str:
    """What a plain client of the API gets for the question and seed that the page sent."""
    opening: list[Any] = [json.loads(frame) for frame in sent if frame.startswith('["open"')][-1]
    _, _, model, _, messages, _, sampling, max_tokens, *_ = opening
    body = {"model": model, "messages": messages, "max_tokens": max_tokens, **sampling}
    async with httpx2.AsyncClient(timeout=60) as client:
        headers = {"Authorization": f"Bearer {gateway.key}"}
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers)
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text
