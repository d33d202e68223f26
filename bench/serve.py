"""`bench serve`: load on the OpenAI endpoint, as `vllm bench serve` makes it, so that the figures compare.

Requests are sent at random times (Poisson) whether or not earlier ones are answered: an open loop, so a server that
falls behind shows it. Streamed chat completions; prompts in turn. Against a gateway of our own on the embedded target,
in a process and on a core of its own, or against any endpoint (`--url`, key in PACELINE_API_KEY).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.gateway import Plan, cores, gateway, pinned
from bench.prompts import PROMPTS
from bench.report import Report
from bench.service import Objectives, Served, poisson, summary
from edge.cloud import Cloud, Done
from edge.config import DeviceSettings
from edge.errors import EdgeError
from edge.protocol.frames import Message, Sampling


@dataclass(frozen=True, slots=True)
class Settings:
    rate: float
    """Requests a second."""
    requests: int = 40
    tokens: int = 64
    """Of an answer, at most."""
    objectives: Objectives = field(default_factory=Objectives)
    seed: int = 0
    url: str = ""
    """Empty: a gateway of our own."""
    model: str = ""
    """Empty: the first that the endpoint lists."""
    plan: Plan = field(default_factory=lambda: Plan(engine="llama_cpp", core=cores()[1]))


@asynccontextmanager
async def _endpoint(settings: Settings) -> AsyncIterator[Cloud]:
    if settings.url:
        key = DeviceSettings(url=settings.url).key()
        async with Cloud(settings.url, key) as cloud:
            yield cloud
        return
    async with gateway(settings.plan) as address:
        with pinned(cores()[0]):
            async with Cloud(f"http://127.0.0.1:{address.port}", address.key) as cloud:
                yield cloud


async def run(settings: Settings, advance: Callable[[], None] = lambda: None) -> Mapping[str, Any]:
    """Raises edge.errors.EdgeError if the endpoint can't be reached at all."""
    served: list[Served] = []
    failures: list[str] = []
    async with _endpoint(settings) as cloud:
        model = settings.model or (await cloud.models())[0]
        await _ask(cloud, model, 0, settings)  # warm
        began = time.perf_counter()

        async def one(number: int, at: float) -> None:
            await asyncio.sleep(began + at - time.perf_counter())
            try:
                served.append(await _ask(cloud, model, number, settings))
            except EdgeError as error:
                failures.append(str(error))
            advance()

        async with asyncio.TaskGroup() as group:
            for number, at in enumerate(poisson(settings.rate, settings.requests, settings.seed)):
                group.create_task(one(number, at))
        took_s = time.perf_counter() - began
    row = {"rate_per_s": settings.rate, **summary(served, len(failures), took_s, settings.objectives)}
    return {**row, "failures": sorted(set(failures))}


async def _ask(cloud: Cloud, model: str, number: int, settings: Settings) -> Served:
    messages = [Message("user", PROMPTS[number % len(PROMPTS)])]
    sent, arrivals, tokens = time.perf_counter(), list[float](), 0
    async for item in cloud.answer(messages, model, Sampling(temperature=0), settings.tokens):
        if isinstance(item, Done):
            tokens = item.tokens
        else:
            arrivals.append(time.perf_counter())
    return Served(sent, tuple(arrivals) or (time.perf_counter(),), tokens)


def command(report: Report, settings: Settings) -> None:
    """Raises SystemExit with what to do if the endpoint can't be used."""
    with report.progress() as progress:
        task = progress.add_task("requests", total=settings.requests)
        try:
            row = asyncio.run(run(settings, lambda: progress.advance(task)))
        except EdgeError as error:
            raise SystemExit(str(error)) from None
    figures = ("mean", "p50", "p90", "p95", "p99")
    report.table(
        f"{settings.rate:g} requests a second, ms",
        [
            {"": name.upper(), **{figure: row[f"{name}_{figure}_ms"] for figure in figures}}
            for name in ("ttft", "tpot", "itl", "e2el")
        ],
    )
    totals = ("completed", "failed", "duration_s", "requests_per_s", "goodput_per_s", "tokens", "tokens_per_s")
    report.table("Totals", [row], totals)
    for failure in row["failures"]:
        report.say(f"failed: {failure}")
    report.result({"rows": [row]})
