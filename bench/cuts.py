"""`bench cuts`: the network is cut at random while answers come; what is lost is time, and how much.

The product's gateway and runtime over its own WebSocket, with a proxy between them that resets every connection; the
models are scripted. Several conversations share one socket, so one cut hits them all. Each answer must equal that of
the same request undisturbed, token for token.

Time lost, for each conversation that a cut hit: the longest wait between two commits from the cut to the next one,
less the median wait of the undisturbed answers.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from bench.gateway import Plan, gateway
from bench.link import Link
from bench.report import Report
from bench.wan import Wan
from edge.connection import Connection, Timing
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.events import Committed
from edge.protocol.frames import Sampling
from edge.runtime import Generate, Runtime
from edge.script import Script, ScriptVocabulary

_TOGETHER = 5
"""Conversations on the socket at a time."""


@dataclass(frozen=True, slots=True)
class Settings:
    answers: int = 50
    cuts: int = 100
    tokens: int = 64
    """Of each answer."""
    rtt_s: float = 0.02
    outage_s: float = 0.0
    """How long the network stays away after a cut; 0: only what was connected is lost."""
    step_s: float = 0.01
    seed: int = 0


@dataclass(slots=True)
class Arrivals:
    """One answer as it came: its tokens, and when commits brought them, seconds."""

    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def waits(self) -> list[float]:
        return [after - before for before, after in pairwise(self.times)]


def lost_times(times: Sequence[float], cuts: Sequence[float], usual_s: float) -> list[float]:
    """What each cut cost an answer whose commits came at `times`; a cut outside the answer cost it nothing. Seconds."""
    lost: list[float] = []
    for cut, following in pairwise([*cuts, float("inf")]):
        hit = [after - before for before, after in pairwise(times) if cut < after and before < following]
        if hit and times[0] < cut < times[-1]:
            lost.append(max(0.0, max(hit) - usual_s))
    return lost


def cutting_points(settings: Settings) -> list[list[int]]:
    """For each answer the numbers of tokens after which it cuts the network, ascending."""
    draw = random.Random(settings.seed)  # noqa: S311 - a reproducible accident
    points: list[list[int]] = [[] for _ in range(settings.answers)]
    places = [(answer, token) for answer in range(settings.answers) for token in range(1, settings.tokens - 1)]
    for answer, token in draw.sample(places, settings.cuts):
        points[answer].append(token)
    return [sorted(found) for found in points]


async def run(settings: Settings, report: Report) -> dict[str, Any]:
    script = Script(ScriptVocabulary())
    requests = [_request(script, i, settings.tokens) for i in range(settings.answers)]
    points = cutting_points(settings)
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(gateway(Plan(engine="scripted", step_s=settings.step_s)))
        alone = await stack.enter_async_context(
            Connection(f"http://127.0.0.1:{address.port}", key=address.key, fingerprint=script.vocabulary.fingerprint)
        )
        references = await _undisturbed(alone, script, requests, report)
        usual_s = median([wait for reference in references for wait in reference.waits()])
        wan = await stack.enter_async_context(Wan(address.port, Link(settings.rtt_s), seed=settings.seed))
        socket = await stack.enter_async_context(
            Connection(
                f"http://127.0.0.1:{wan.port}",
                key=address.key,
                fingerprint=script.vocabulary.fingerprint,
                timing=Timing(),
                rng=random.Random(settings.seed),  # noqa: S311
            )
        )
        cut_at: list[float] = []
        network = _Network(wan, settings.outage_s, cut_at)
        drafter = ScriptedDrafter(script, right_with(0.8), draft_s=settings.step_s / 3)
        runtime = await stack.enter_async_context(Runtime(socket, drafter))
        answers = await _cut_answers(runtime, requests, points, network, report)
        await network.settled()
    lost = [s for answer in answers for s in lost_times(answer.times, cut_at, usual_s)]
    return {
        "cuts": len(cut_at),
        "answers": len(answers),
        "identical": sum(a.tokens == r.tokens for a, r in zip(answers, references, strict=True)),
        "hit": len(lost),
        "lost_s_p50": float(np.percentile(lost, 50)) if lost else None,
        "lost_s_p90": float(np.percentile(lost, 90)) if lost else None,
        "lost_s_max": max(lost, default=None),
        "rtt_s": settings.rtt_s,
        "outage_s": settings.outage_s,
    }


class _Network:
    """The proxy's connections, and when they were cut."""

    def __init__(self, wan: Wan, outage_s: float, cut_at: list[float]) -> None:
        self._wan = wan
        self._outage_s = outage_s
        self._cut_at = cut_at
        self._outages: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        self._cut_at.append(time.monotonic())
        self._wan.cut()
        if not self._outage_s:
            self._wan.mend()
            return
        outage = asyncio.create_task(self._mend_later())
        self._outages.add(outage)
        outage.add_done_callback(self._outages.discard)

    async def settled(self) -> None:
        await asyncio.gather(*self._outages)

    async def _mend_later(self) -> None:
        await asyncio.sleep(self._outage_s)
        self._wan.mend()


def _request(script: Script, number: int, tokens: int) -> Generate:
    prompt = tuple(script.vocabulary.encode(f"question {number}"))
    return Generate(prompt=prompt, sampling=Sampling(temperature=0.8, seed=number), max_tokens=tokens)


async def _undisturbed(
    socket: Connection, script: Script, requests: Sequence[Generate], report: Report
) -> list[Arrivals]:
    """The target alone, without drafts and without a proxy."""
    async with Runtime(socket, None, vocabulary=script.vocabulary) as runtime:
        return await _cut_answers(runtime, requests, [[] for _ in requests], None, report)


async def _cut_answers(
    runtime: Runtime,
    requests: Sequence[Generate],
    points: Sequence[Sequence[int]],
    network: _Network | None,
    report: Report,
) -> list[Arrivals]:
    seats = asyncio.Semaphore(_TOGETHER)
    answers = [Arrivals() for _ in requests]

    async def answer(request: Generate, arrivals: Arrivals, cuts: list[int]) -> None:
        async with seats:
            async for event in runtime.generate(request):
                if isinstance(event, Committed):
                    arrivals.times.append(time.monotonic())
                    arrivals.tokens += [token.id for token in event.tokens]
                    while cuts and network is not None and cuts[0] <= len(arrivals.tokens):
                        del cuts[0]
                        network.cut()
            bar.advance(task)

    with report.progress() as bar:
        task = bar.add_task("answers, cut" if network else "answers, undisturbed", total=len(requests))
        async with asyncio.TaskGroup() as group:
            for request, arrivals, cuts in zip(requests, answers, points, strict=True):
                group.create_task(answer(request, arrivals, list(cuts)))
    return answers


def command(report: Report, settings: Settings) -> None:
    found = asyncio.run(run(settings, report))
    report.table(f"{found['cuts']} cuts during {found['answers']} answers", [found])
    report.result(found)
    if found["identical"] != found["answers"]:
        raise SystemExit("an answer differs from its reference")
