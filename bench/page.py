"""`bench page`: how fast the draft model is in a browser's tab, and what its drafts bring there.

Chromium runs the page's own modules: the drafter in WebAssembly on one thread and on two, then answers by the cloud
alone and by hybrid over the page's own connection, with its own network delay. The gateway has a process and a core of
its own; so has the browser, except for the drafter's rate by itself.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from playwright.async_api import async_playwright

from bench.gateway import Plan, cores, gateway, pinned
from bench.prompts import PROMPTS
from bench.report import Report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Page

THREADS = (1, 2)
SCHEMES = ("cloud", "eager")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]

PREPARE = """
async ({ key, threads }) => {
  const { ModelDrafter } = await import("/js/drafters/model.js");
  const { aboutDrafter, drafterFile } = await import("/js/drafters/store.js");
  const { Wllama } = await import("/vendor/wllama/index.js");
  const about = await aboutDrafter(key);
  const file = await drafterFile(about, { key, onProgress() {} });
  const base = "/vendor/wllama";
  window.drafter = await ModelDrafter.load({ Wllama, base, file, name: about.id, threads });
  return window.drafter.threads;
}
"""

RATE = """
async ({ question, tokens }) => {
  const prompt = await window.drafter.encode([{ role: "user", content: question }]);
  const draft = window.drafter.begin(prompt, { sampling: { temperature: 0 } });
  await draft.propose();
  const began = performance.now();
  let count = 0;
  while (count < tokens && (await draft.propose()) !== null) count += 1;
  return count / ((performance.now() - began) / 1000);
}
"""

ANSWER = """
async ({ key, question, scheme, rtt, tokens }) => {
  const { browser, Connection } = await import("/js/connection.js");
  const { buyTicket } = await import("/js/credentials.js");
  const { NoDrafter } = await import("/js/drafters/none.js");
  const { acceptanceRate } = await import("/js/figures.js");
  const { Network } = await import("/js/network.js");
  const { HybridStream } = await import("/js/runtime.js");
  const network = new Network();
  network.rttMs = rtt;
  const url = `ws://${location.host}/v1/verify`;
  const connection = new Connection({ url, ticket: () => buyTicket(key), environment: network.around(browser()) });
  const { models } = await connection.connect();
  let text = "";
  const outcome = await new Promise((ended) => {
    const view = { pending() {}, away() {}, back() {}, ended,
                   committed: (pieces) => { for (const piece of pieces) text += piece.text; } };
    const request = { model: models[0].id, messages: [{ role: "user", content: question }],
                      sampling: { temperature: 0, seed: 1 }, max_tokens: tokens, policy: "eager" };
    const drafter = scheme === "cloud" ? new NoDrafter() : window.drafter;
    window.stream = new HybridStream({ connection, drafter, request, view });
    window.stream.start();
  });
  connection.close();
  const { figures, session } = window.stream;
  return { text, itl: figures.itlMs, tokens: figures.tokens, alpha: acceptanceRate(session.stats),
           accepted: outcome.usage?.accepted, steps: outcome.usage?.steps, reason: outcome.reason };
}
"""


@asynccontextmanager
async def tab(address: str) -> AsyncIterator[Page]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        page = await browser.new_page()
        # A page without the key does nothing by itself.
        await page.goto(address)
        yield page
        await browser.close()


async def run(
    rtts_ms: Sequence[float], prompts: int, tokens: int, advance: Callable[[], None]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of the drafter's rates, and of the answers. Raises RuntimeError if an answer doesn't end as it should."""
    edge_core, cloud_core = cores()
    rates, rows = [], []
    async with gateway(Plan(engine="llama_cpp", core=cloud_core, streams=1)) as address:
        url = f"http://127.0.0.1:{address.port}/"
        for threads in THREADS:
            async with tab(url) as page:
                found = await page.evaluate(PREPARE, {"key": address.key, "threads": threads})
                rate = await page.evaluate(RATE, {"question": PROMPTS[0], "tokens": tokens})
                rates.append({"threads": found, "tokens/s": rate, "ms a token": 1000 / rate})
                advance()
        with pinned(edge_core):
            async with tab(url) as page:
                await page.evaluate(PREPARE, {"key": address.key, "threads": 1})
                for rtt in rtts_ms:
                    rows += await _answers(page, address.key, rtt, prompts, tokens, advance)
    return rates, rows


async def _answers(
    page: Page, key: str, rtt: float, prompts: int, tokens: int, advance: Callable[[], None]
) -> list[dict[str, Any]]:
    """One row per scheme; prompt by prompt, so that a slow moment of the machine hits both."""
    answers: dict[str, list[dict[str, Any]]] = {scheme: [] for scheme in SCHEMES}
    for question in PROMPTS[:prompts]:
        asked = {"key": key, "question": question, "rtt": rtt}
        # Both sides have computed the prompt before, as when a conversation goes on.
        await page.evaluate(ANSWER, {**asked, "scheme": "eager", "tokens": 4})
        for scheme in SCHEMES:
            answer = await page.evaluate(ANSWER, {**asked, "scheme": scheme, "tokens": tokens})
            if answer["reason"] not in ("stop", "length"):
                raise RuntimeError(f"an answer ended with {answer['reason']}")
            answers[scheme].append(answer)
            advance()
    return [_row(rtt, scheme, found, answers["cloud"]) for scheme, found in answers.items()]


def _row(rtt: float, scheme: str, found: list[dict[str, Any]], cloud: list[dict[str, Any]]) -> dict[str, Any]:
    gaps = sum(answer["tokens"] - 1 for answer in found)
    alphas = [answer["alpha"] for answer in found if answer["alpha"] is not None]
    return {
        "RTT ms": rtt,
        "scheme": scheme,
        "ITL ms": sum(answer["itl"] * (answer["tokens"] - 1) for answer in found) / gaps,
        "steps a token": sum(a["steps"] for a in found) / sum(a["tokens"] for a in found),
        "accepted a token": sum(a["accepted"] for a in found) / sum(a["tokens"] for a in found),
        "α": sum(alphas) / len(alphas) if alphas else None,
        "same text": sum(a["text"] == b["text"] for a, b in zip(found, cloud, strict=True)),
        "answers": len(found),
    }


def command(report: Report, rtts_ms: Sequence[float], prompts: int, tokens: int) -> None:
    with report.progress() as progress:
        task = progress.add_task("answers", total=len(THREADS) + len(rtts_ms) * prompts * len(SCHEMES))
        rates, rows = asyncio.run(run(rtts_ms, prompts, tokens, lambda: progress.advance(task)))
    report.table("The draft model in a tab, by itself", rates)
    report.table("Cloud alone and hybrid, drafts by the tab on one thread", rows)
    report.result({"drafter": rates, "answers": rows})
