"""`bench vllm --overhead`: what drafts cost around vLLM's model, in the gateway's process and in EngineCore's.

- A draft's way on the asyncio side: from `Generation.offer` until its call is answered, processor time of that thread.
  The streams hold, and each draft lies behind the head: its path is checked and no step follows. With drafts that come
  in one turn of the event loop, that come apart (one a millisecond), and with each waiting for the one before.
- Bookkeeping in a step: what the plugin's scheduler adds to vLLM's own, with all streams drafting (right 80% of the
  time, by script). vLLM's own scheduling stands beside it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any

from app.engine.base import Commit, Request
from app.engine.generation import Generation
from app.engine.vllm_engine import VllmEngine
from bench.hf_model import NAME, convert
from bench.paced import PacedDevice, Replay
from bench.prompts import PROMPTS
from bench.report import Report
from edge.drafters.scripted import right_with
from edge.protocol.frames import Message, Policy, Sampling

STREAMS = 64
TOKENS = 48
DRAFT = 4
"""Tokens of a draft."""
OFFERS = 50
"""From each stream."""
OFFER_LIMIT_US = 100.0
STEP_LIMIT_MS = 1.0


def _request(engine: VllmEngine, name: str, prompt: int, policy: Policy) -> Request:
    return Request(
        id=f"{name}-{prompt}",
        tenant=f"tenant-{prompt % 4}",
        prompt=tuple(engine.vocabulary.render([Message("user", PROMPTS[prompt % len(PROMPTS)])])),
        sampling=Sampling(temperature=0.0, seed=0),
        max_tokens=TOKENS,
        min_tokens=TOKENS,
        policy=policy,
        hold_s=3600.0,
    )


async def _first(generation: Generation) -> None:
    async for event in generation.events():
        if isinstance(event, Commit):
            return


async def _offer(engine: VllmEngine, generations: Sequence[Generation], apart_s: float, epochs: range) -> float:
    """Microseconds of this thread per draft, sleeping not counted."""
    drafts = [(generation, tuple(generation.ledger.tokens)) for generation in generations]
    asleep_s = await _sleeping(apart_s, len(epochs) * len(drafts)) if apart_s else 0.0
    began = time.thread_time()
    for epoch in epochs:
        for generation, tokens in drafts:
            generation.offer(epoch, 0, tokens)
            if apart_s:
                await asyncio.sleep(apart_s)
        if not apart_s:
            await engine._messenger.delivered()
    await engine._messenger.delivered()
    return (time.thread_time() - began - asleep_s) / (len(epochs) * len(drafts)) * 1e6


async def _sleeping(apart_s: float, times: int) -> float:
    """What so many naps cost this thread by themselves, seconds."""
    began = time.thread_time()
    for _ in range(times):
        await asyncio.sleep(apart_s)
    return time.thread_time() - began


async def offers(engine: VllmEngine) -> tuple[float, float, float]:
    """(drafts of all streams at a time, a millisecond apart, a stream alone), microseconds each."""
    generations = [engine.submit(_request(engine, "held", i, "hold")) for i in range(STREAMS)]
    await asyncio.gather(*map(_first, generations))
    found = (
        await _offer(engine, generations, 0.0, range(1, 1 + OFFERS)),
        await _offer(engine, generations, 0.001, range(1 + OFFERS, 1 + 2 * OFFERS)),
        await _offer(engine, generations[:1], 0.0, range(1 + 2 * OFFERS, 1 + 8 * OFFERS)),
    )
    for generation in generations:
        generation.cancel()
    return found


async def bookkeeping(engine: VllmEngine, utility: Any) -> tuple[float, float, int]:
    """(ours, vLLM's own) milliseconds of scheduling per step, and how many steps there were."""
    plain = [engine.submit(_request(engine, "plain", i, "eager")) for i in range(STREAMS)]
    await asyncio.gather(*(PacedDevice(None).run(generation) for generation in plain))
    await utility("paceline_watch")
    size = engine.vocabulary.size
    devices: list[tuple[PacedDevice, Generation]] = []
    for i, generation in enumerate(plain):
        right = right_with(0.8, i)
        drafts = [token if right(at) else (token + 1) % size for at, token in enumerate(generation.ledger.tokens)]
        devices.append((PacedDevice(Replay(drafts)), engine.submit(_request(engine, "drafted", i, "eager"))))
    await asyncio.gather(*(device.run(generation) for device, generation in devices))
    steps, ours, vllm = await utility("paceline_watch")
    return ours / steps * 1e3, vllm / steps * 1e3, steps


async def run() -> dict[str, Any]:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    engine = VllmEngine(
        str(convert()),
        model_id=NAME,
        context=256,
        streams=STREAMS,
        queue=STREAMS,
        draft_tokens=DRAFT,
        scheduler="bench.vllm_watch.WatchedScheduler",
    )
    await engine.start()
    try:
        together_us, apart_us, alone_us = await offers(engine)
        ours_ms, vllm_ms, steps = await bookkeeping(engine, engine._llm.engine_core.call_utility_async)
    finally:
        await engine.stop()
    return {
        "streams": STREAMS,
        "offer_us": apart_us,
        "offer_together_us": together_us,
        "offer_alone_us": alone_us,
        "step_ms": ours_ms,
        "vllm_step_ms": vllm_ms,
        "steps": steps,
    }


def command(report: Report) -> None:
    found = asyncio.run(run())
    report.table(f"What drafts cost around the model, {STREAMS} streams", [found])
    report.say(
        f"A draft on the asyncio side, one a millisecond: {found['offer_us']:.1f} µs (limit {OFFER_LIMIT_US:.0f})"
    )
    report.say(f"Bookkeeping of a step: {found['step_ms']:.2f} ms (limit {STEP_LIMIT_MS:.0f})")
    report.result({**found, "offer_limit_us": OFFER_LIMIT_US, "step_limit_ms": STEP_LIMIT_MS})
