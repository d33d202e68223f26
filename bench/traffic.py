"""`bench traffic`: what a watcher learns from sizes and times alone, without padding and with it.

The embedded pair answers 20 prompts, several times each with other seeds. Between device and gateway a relay notes when
how many bytes passed which way, as who watches TLS does (TLS adds a constant to each message). A classifier of a few
lines, the nearest mean of a trace's totals, counts and quantiles, has seen the other answers of each prompt and says
which of the 20 it was. Chance is 1 in 20. A better classifier may do better: this is a floor of what shows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.gateway import Plan, cores, gateway, pinned
from bench.pair import ask
from bench.prompts import PROMPTS
from bench.report import Report
from edge.connection import Connection, Timing
from edge.drafters.llama_cpp import LlamaCppDrafter
from edge.generate import Generate
from edge.models import default_directory, pair
from edge.protocol.frames import Message, Sampling
from edge.protocol.padding import RUN_TICKS, Padding
from edge.runtime import Runtime

_PADDING = Padding()
_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class Settings:
    prompts: int = 20
    answers: int = 6
    """Of each prompt."""
    tokens: int = 48


@dataclass(slots=True)
class Trace:
    """What passed during one answer: (seconds, bytes), each way."""

    up: list[tuple[float, int]] = field(default_factory=list)
    down: list[tuple[float, int]] = field(default_factory=list)

    def bytes(self) -> int:
        return sum(size for _, size in (*self.up, *self.down))


class Watcher:
    """A relay before the gateway; `trace` is where what passes is noted."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self.trace = Trace()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Watcher]:
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, far_writer, "up"))
                group.create_task(self._pass(far_reader, writer, "down"))
        except* ConnectionError:
            pass
        finally:
            writer.close()
            far_writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        while data := await reader.read(1 << 16):
            getattr(self.trace, way).append((time.monotonic(), len(data)))
            writer.write(data)
            await writer.drain()
        writer.close()


def features(trace: Trace) -> list[float]:
    """Numbers that say how a trace looks: for each way its total, count, duration, sizes and gaps."""
    found: list[float] = []
    for passed in (trace.up, trace.down):
        times = np.array([at for at, _ in passed] or [0.0])
        sizes = np.array([size for _, size in passed] or [0])
        gaps = np.diff(times) if len(times) > 1 else np.zeros(1)
        found += [float(sizes.sum()), float(len(sizes)), float(times[-1] - times[0]), float(sizes[0])]
        found += [float(np.quantile(sizes, q)) for q in _QUANTILES]
        found += [float(np.quantile(gaps, q)) for q in _QUANTILES]
    return found


def accuracy(samples: NDArray[np.float64], labels: Sequence[int]) -> float:
    """Leave one out: the share of samples, (n, features), whose own label's mean is the nearest of all means.

    A feature counts by how little it varies within a label (linear discriminant analysis, diagonal).
    """
    truth = np.array(labels)
    kinds = np.unique(truth)
    total = samples.std(axis=0)
    told = total > 1e-9 * np.maximum(1.0, abs(samples).max(axis=0))  # less is rounding
    scaled = samples[:, told] / total[told]
    right = 0
    for i in range(len(scaled)):
        others, names = np.delete(scaled, i, axis=0), np.delete(truth, i)
        means = np.array([others[names == kind].mean(axis=0) for kind in kinds])
        spread = (others - means[np.searchsorted(kinds, names)]).std(axis=0)
        far = (((means - scaled[i]) / np.maximum(spread, 1e-3)) ** 2).sum(axis=1)
        right += bool(told.any() and kinds[far.argmin()] == truth[i])
    return right / len(scaled)


async def _watched(settings: Settings, padding: Padding | None, report: Report) -> dict[str, Any]:
    edge_core, cloud_core = cores()
    samples: list[list[float]] = []
    labels: list[int] = []
    sizes: list[int] = []
    times: list[float] = []
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(gateway(Plan(engine="llama_cpp", core=cloud_core, streams=1)))
        watcher = await stack.enter_async_context(Watcher(address.port).listening())
        stack.enter_context(pinned(edge_core))
        drafter = LlamaCppDrafter(pair(default_directory()).draft, streams=1, threads=1)
        stack.callback(drafter.close)
        connection = Connection(
            f"http://127.0.0.1:{watcher.port}",
            key=address.key,
            fingerprint=drafter.fingerprint,
            timing=Timing(ping_s=600.0),
            padding=padding,
        )
        runtime = Runtime(await stack.enter_async_context(connection), drafter)
        await stack.enter_async_context(runtime)
        model = connection.welcome.models[0].id
        bar = stack.enter_context(report.progress())
        task = bar.add_task("padded" if padding else "plain", total=settings.prompts * settings.answers)
        # All prompts in turn, so that whatever changes with time changes for all of them.
        for seed in range(settings.answers):
            for number, prompt in enumerate(PROMPTS[: settings.prompts]):
                await _quiet(padding, watcher)
                watcher.trace = Trace()
                began = time.monotonic()
                sampling = Sampling(temperature=0.8, top_p=0.95, seed=seed)
                message = (Message("user", prompt),)
                await ask(
                    runtime, Generate(model=model, messages=message, sampling=sampling, max_tokens=settings.tokens)
                )
                times.append(time.monotonic() - began)
                await _quiet(padding, watcher)
                samples.append(features(watcher.trace))
                labels.append(number)
                sizes.append(watcher.trace.bytes())
                bar.advance(task)
    return {
        "padding": padding is not None,
        "accuracy": accuracy(np.array(samples), labels),
        "chance": 1 / settings.prompts,
        "answers": len(samples),
        "bytes_p50": int(median(sizes)),
        "answer_s_p50": median(times),
    }


async def _quiet(padding: Padding | None, watcher: Watcher) -> None:
    """Wait until nothing passes any more: a padded socket says nothing for a while after an answer."""
    still_s = 3 * padding.tick_ms / 1000 if padding else 0.02
    while True:
        passed = len(watcher.trace.up) + len(watcher.trace.down)
        await asyncio.sleep(still_s)
        if len(watcher.trace.up) + len(watcher.trace.down) == passed:
            return


async def run(settings: Settings, report: Report) -> dict[str, Any]:
    rows = [await _watched(settings, padding, report) for padding in (None, _PADDING)]
    return {
        "prompts": settings.prompts,
        "tokens": settings.tokens,
        "size": _PADDING.size,
        "tick_ms": _PADDING.tick_ms,
        "run_ticks": RUN_TICKS,
        "rows": rows,
    }


def command(report: Report, settings: Settings) -> None:
    found = asyncio.run(run(settings, report))
    title = f"which of {settings.prompts} prompts was it? {settings.answers} answers each, {settings.tokens} tokens"
    report.table(title, found["rows"])
    report.result(found)
