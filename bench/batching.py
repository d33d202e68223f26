"""`bench batching`: what our continuous batching makes of eight streams, beside llama.cpp's own server.

The same GGUF, threads, context per stream, prompts and number of tokens, greedy; both in this process, taking turns, so
that a slow moment of the machine hits both. Prompts are computed anew each time, on both sides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from app.engine.base import Engine, Request
from app.engine.llama_cpp import LlamaCppEngine
from bench.hybrid import Device, Drafts
from bench.lag import Lag, lag_probe
from bench.llama_server import LlamaServer
from bench.prompts import PROMPTS
from bench.report import Report
from edge.models import default_directory, pair
from edge.protocol.frames import Message, Sampling

CONTEXT = 512
"""Tokens of a stream or slot."""


@dataclass(slots=True)
class Rates:
    """Output tokens per second of all streams together, a sample per round."""

    ours: list[float] = field(default_factory=list)
    llama_server: list[float] = field(default_factory=list)
    one_stream: list[float] = field(default_factory=list)
    lag: list[Lag] = field(default_factory=list)
    """Of the event loop, while all our streams run."""
    same_text: bool = True
    """Whether all outputs of the two began alike; later a floating-point tie may part them."""

    def data(self) -> dict[str, Any]:
        """Medians, and the two ratios that are to hold."""
        ours, server, one = median(self.ours), median(self.llama_server), median(self.one_stream)
        return {
            "ours_tok_s": ours,
            "llama_server_tok_s": server,
            "one_stream_tok_s": one,
            "ours_over_llama_server": ours / server,
            "ours_over_one_stream": ours / one,
            "loop_lag_p99_ms": max((lag.percentile_ms(99) for lag in self.lag), default=0.0),
            "same_text": self.same_text,
        }


async def generate(engine: Engine, prompts: Sequence[tuple[int, ...]], tokens: int, label: str) -> list[list[int]]:
    """Greedy outputs of exactly `tokens` tokens, all prompts at once. Each has a tenant of its own: none is shared."""

    async def one(index: int, prompt: tuple[int, ...]) -> list[int]:
        request = Request(
            id=f"{label}-{index}",
            tenant=f"{label}-{index}",
            prompt=prompt,
            sampling=Sampling(temperature=0),
            max_tokens=tokens,
            min_tokens=tokens,
        )
        return await Device(Drafts("none", (), engine.vocabulary.size)).run(engine, request)

    return await asyncio.gather(*(one(index, prompt) for index, prompt in enumerate(prompts)))


async def compare(
    model: Path,
    *,
    streams: int,
    tokens: int,
    rounds: int,
    threads: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> Rates:
    """Ours, theirs, ours alone, and again."""
    rates = Rates()
    engine = LlamaCppEngine(model, model_id="target", context=CONTEXT, streams=streams, threads=threads)
    await engine.start()
    try:
        prompts = [tuple(engine.vocabulary.render([Message("user", text)])) for text in PROMPTS[:streams]]
        with LlamaServer(model, slots=streams, context=CONTEXT, threads=threads) as server:
            await _round(Rates(), engine, server, prompts, 4, "warm-up")
            advance()
            for number in range(rounds):
                await _round(rates, engine, server, prompts, tokens, str(number))
                advance()
    finally:
        await engine.stop()
    return rates


async def _round(
    rates: Rates,
    engine: Engine,
    server: LlamaServer,
    prompts: Sequence[tuple[int, ...]],
    tokens: int,
    label: str,
) -> None:
    """A sample of each."""
    began = time.perf_counter()
    with lag_probe() as lag:
        outputs = await generate(engine, prompts, tokens, f"all-{label}")
    rates.lag.append(lag)
    rates.ours.append(len(prompts) * tokens / (time.perf_counter() - began))
    began = time.perf_counter()
    theirs = await asyncio.to_thread(server.generate, prompts, tokens)
    rates.llama_server.append(len(prompts) * tokens / (time.perf_counter() - began))
    began = time.perf_counter()
    await generate(engine, prompts[:1], tokens, f"one-{label}")
    rates.one_stream.append(tokens / (time.perf_counter() - began))
    rates.same_text &= all(_begin_alike(engine, *both) for both in zip(outputs, theirs, strict=True))


def _begin_alike(engine: Engine, output: Sequence[int], text: str) -> bool:
    """Whether the first few tokens agree: then both were asked the same."""
    ours = b"".join(engine.vocabulary.piece(token) for token in output).decode(errors="replace")
    return ours[:8] == text[:8]


def command(report: Report, streams: int, tokens: int, rounds: int, threads: int) -> None:
    with report.progress() as progress:
        task = progress.add_task("rounds", total=rounds + 1)
        model = pair(default_directory()).target
        rates = asyncio.run(
            compare(
                model,
                streams=streams,
                tokens=tokens,
                rounds=rounds,
                threads=threads,
                advance=lambda: progress.advance(task),
            )
        )
    data = {"streams": streams, "tokens": tokens, "threads": threads, **rates.data()}
    report.table("Output tokens per second, all streams together", [data])
    report.result(data)
