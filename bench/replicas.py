"""`bench ray`: what a replica's death costs its streams, and how throughput grows with replicas.

Death: streams on two replicas, every other one with a device that drafts (60% right); when half of the tokens are out,
one replica's process gets SIGKILL. Every output must equal that of the same request undisturbed. The real model runs
with `steady`, where logits don't depend on the batch, so "equal" has no exceptions for ties.

Scaling is simulated: scripted engines whose steps sleep, so that replicas don't compete for this machine's cores. It
measures what the pool and Ray add, not what a model gains.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from app.engine.base import Engine, Request
from app.engine.generation import Generation
from app.engine.llama_cpp import LlamaCppEngine, open_vocabulary
from app.engine.ray_pool import RayHost, RayPool
from app.engine.scripted import ScriptedEngine
from bench.hybrid import Device, Drafts
from bench.prompts import PROMPTS
from bench.report import Report
from edge.models import default_directory, pair
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Message, Sampling
from edge.script import ScriptVocabulary

CONTEXT = 512
SCALES = (1, 2, 4, 8)
STEP_S = 0.1
"""Of the scripted engines while scaling: long beside what 8 of them compute on two cores."""
SCALING_STREAMS = 8
"""On each replica."""
SCALING_TOKENS = 60


@dataclass(frozen=True, slots=True)
class Death:
    engine: str
    streams: int
    moved: int
    identical: int
    detect_s: float
    """From SIGKILL until the pool had moved the streams."""
    lost_s: tuple[float, ...]
    """For each moved stream: from SIGKILL to its next token."""

    def data(self) -> dict[str, Any]:
        return {
            "engine": self.engine,
            "streams": self.streams,
            "moved": self.moved,
            "identical": self.identical,
            "detect_s": self.detect_s,
            "lost_s_median": median(self.lost_s) if self.lost_s else None,
            "lost_s_max": max(self.lost_s, default=None),
        }


class _ObservedPool(RayPool):
    """Keeps what was submitted, to see how far the streams are."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, cpus=0.0, **options)
        self.generations: list[Generation] = []

    def submit(self, request: Request) -> Generation:
        generation = super().submit(request)
        self.generations.append(generation)
        return generation


def _requests(prompts: Sequence[tuple[int, ...]], tokens: int) -> list[Request]:
    """Greedy and sampled ones, of tenants that share nothing."""
    return [
        Request(
            id=f"stream-{i}",
            tenant=f"tenant-{i}",
            prompt=prompt,
            sampling=Sampling(temperature=0) if i % 4 < 2 else Sampling(temperature=0.8, top_p=0.95, seed=i),
            max_tokens=tokens,
            min_tokens=tokens,
        )
        for i, prompt in enumerate(prompts)
    ]


async def _run(pool: RayPool, requests: Sequence[Request], references: Sequence[Sequence[int]]) -> list[list[int]]:
    """All together; every other stream has a device, once there is something that it can draft from."""

    def device(i: int) -> Device:
        reference = tuple(references[i]) if references else ()
        return Device(Drafts("mostly" if reference and i % 2 else "none", reference, pool.vocabulary.size, seed=i))

    return await asyncio.gather(*(device(i).run(pool, request) for i, request in enumerate(requests)))


async def die(
    engine: str,
    build: Callable[[], Engine],
    vocabulary: Callable[[], AbstractContextManager[Vocabulary]],
    *,
    streams: int,
    tokens: int,
) -> Death:
    """Undisturbed, then with one of two replicas killed when half of the tokens are out."""
    pool = _ObservedPool(build, vocabulary, replicas=2, streams=streams)
    await pool.start()
    try:
        texts = (PROMPTS[i % len(PROMPTS)] for i in range(streams))
        prompts = [tuple(pool.vocabulary.render([Message("user", text)])) for text in texts]
        requests = _requests(prompts, tokens)
        references = await _run(pool, requests, ())
        pool.generations.clear()
        running = asyncio.ensure_future(_run(pool, requests, references))
        while sum(len(generation.ledger) for generation in pool.generations) < streams * tokens / 2:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.01)
        killed = time.monotonic()
        os.kill(pool.replicas()[0].pid, signal.SIGKILL)
        while not pool.moved and not running.done():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        detect_s = time.monotonic() - killed
        outputs = await running
    finally:
        await pool.stop()
    identical = sum(output == reference for output, reference in zip(outputs, references, strict=True))
    return Death(engine, streams, pool.moved, identical, detect_s, tuple(detect_s + gap for gap in pool.gaps_s))


async def throughput(replicas: int) -> float:
    """Tokens per second of all streams on so many scripted replicas, every slot taken."""
    build = partial(ScriptedEngine, step_s=STEP_S, streams=SCALING_STREAMS)
    pool = RayPool(build, _scripted, replicas=replicas, cpus=0.0, streams=SCALING_STREAMS)
    await pool.start()
    try:
        requests = _requests([(i, i + 1) for i in range(replicas * SCALING_STREAMS)], SCALING_TOKENS)
        began = time.monotonic()
        await _run(pool, requests, ())
        return len(requests) * SCALING_TOKENS / (time.monotonic() - began)
    finally:
        await pool.stop()


def _scripted() -> AbstractContextManager[Vocabulary]:
    return nullcontext(ScriptVocabulary())


async def _measure(streams: int, tokens: int, advance: Callable[[], None]) -> tuple[list[Death], dict[int, float]]:
    host = RayHost(ScriptedEngine, replicas=max(SCALES), address="", cpus=0.0, gpus=0.0, start_s=60.0)
    await host.open()  # one Ray for all
    try:
        target = pair(default_directory()).target
        real = partial(LlamaCppEngine, target, model_id="target", context=CONTEXT, streams=streams, steady=True)
        deaths = [await die("llama_cpp", real, partial(open_vocabulary, target), streams=streams, tokens=tokens)]
        advance()
        scripted = partial(ScriptedEngine, step_s=0.03, streams=streams)
        deaths.append(await die("scripted", scripted, _scripted, streams=streams, tokens=2 * tokens))
        advance()
        scaling: dict[int, float] = {}
        for replicas in SCALES:
            scaling[replicas] = await throughput(replicas)
            advance()
    finally:
        await host.close()
    return deaths, scaling


def command(report: Report, streams: int, tokens: int) -> None:
    with report.progress() as progress:
        task = progress.add_task("parts", total=2 + len(SCALES))
        deaths, scaling = asyncio.run(_measure(streams, tokens, lambda: progress.advance(task)))
    report.table("One of two replicas killed when half of the tokens were out", [death.data() for death in deaths])
    linear = scaling[1]
    report.table(
        f"Throughput by replicas (simulated: scripted engines that sleep {STEP_S * 1000:.0f} ms a step)",
        [
            {"replicas": replicas, "tok_s": rate, "of_linear": rate / (replicas * linear)}
            for replicas, rate in scaling.items()
        ],
    )
    report.result(
        {
            "moved": sum(death.moved for death in deaths),
            "identical": all(death.identical == death.streams for death in deaths),
            "lost_s_max": max((max(death.lost_s, default=0.0) for death in deaths), default=0.0),
            "scaling": {str(replicas): rate for replicas, rate in scaling.items()},
            "simulated": ["scaling", "scripted"],
            "rows": [death.data() for death in deaths],
        }
    )
