"""`bench edges`: N devices on one shared target, beside N targets of their own (the paper's dedicated instances).

The same F16 target, questions, drafts and cores; greedy, answers of one length. Drafts are replayed: what the Q4_1
draft model proposes behind the target's own output, a token every t_d, which is measured alone before. So N devices
draft at their own speed without taking the target's cores. In turn, every round:

- `shared`: one engine, all cores, N streams (policy auto); `shared, no drafts`: the same without devices.
- `dedicated`: N engines of one stream, a thread each, all at once, on the same cores.
- `one after another`: the shared engine, one stream at a time, with drafts.
- `llama.cpp`: its own server with N slots and its own draft model, which does take the same cores; drafts as many
  tokens as its authors chose.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

from app.engine.base import Engine
from app.engine.llama_cpp import LlamaCppEngine
from bench.auto import Tape, Told, ask_all, record
from bench.batching import CONTEXT
from bench.llama_server import LlamaServer
from bench.prompts import PROMPTS
from bench.report import Report
from edge.drafters.llama_cpp import LlamaCppDrafter
from edge.models import default_directory, pair
from edge.protocol.frames import Message, Policy

_AUTO: Final[tuple[str, Policy]] = ("auto", "auto")
_CLOUD: Final[tuple[str, Policy]] = ("cloud", "eager")


@dataclass(frozen=True, slots=True)
class Settings:
    edges: Sequence[int] = (1, 4, 8)
    tokens: int = 48
    """Of each answer, exactly."""
    rounds: int = 2
    cores: int | None = None
    """For all engines together; None: all. With one, no engine's threads wait for each other."""


@dataclass(slots=True)
class Steps:
    """Counts an engine's steps: its observer."""

    count: int = 0

    def queued(self, seconds: float) -> None:
        pass

    def stepped(self, tokens: int, seconds: float) -> None:
        self.count += 1


@dataclass(slots=True)
class Tally:
    """All rounds of one mode."""

    mode: str
    rates: list[float] = field(default_factory=list)
    occupancy: list[float] = field(default_factory=list)
    """Streams that a step gave something, on average."""
    steps_per_token: list[float] = field(default_factory=list)
    memory_mib: float | None = None

    def add(self, began: float, told: Sequence[Told], steps: int) -> None:
        tokens = sum(len(one.tokens) for one in told)
        self.rates.append(tokens / (time.perf_counter() - began))
        given = sum(one.usage.steps for one in told)
        self.occupancy.append(given / max(1, steps))
        self.steps_per_token.append(given / tokens)

    def row(self, edges: int, weights_mib: float, copies: int) -> dict[str, Any]:
        return {
            "edges": edges,
            "mode": self.mode,
            "tok_s": median(self.rates),
            "tok_s_low": min(self.rates),
            "tok_s_high": max(self.rates),
            "occupancy": median(self.occupancy) if self.occupancy else None,
            "steps_per_token": median(self.steps_per_token) if self.steps_per_token else None,
            "memory_mib": self.memory_mib,
            "weights_mib": weights_mib * copies,
        }


async def tapes(target: Path, draft: Path, count: int, tokens: int) -> tuple[list[Tape], float]:
    """The target's answers and the drafter's proposals behind them, made while all else is idle; and t_d, seconds."""
    engine = LlamaCppEngine(target, model_id="target", context=CONTEXT, streams=count, threads=_threads())
    drafter = LlamaCppDrafter(draft, streams=1, context=CONTEXT, threads=1)
    await engine.start()
    try:
        prompts = [tuple(engine.vocabulary.render([Message("user", text)])) for text in PROMPTS[:count]]
        asked = [Tape(prompt, (), ()) for prompt in prompts]
        answers = await ask_all(engine, asked, _CLOUD, 0.0, tokens)
        made: list[Tape] = []
        calls: list[float] = []
        for prompt, answer in zip(prompts, answers, strict=True):
            drafts, seconds = await asyncio.to_thread(record, drafter, prompt, answer.tokens)
            calls += seconds[1:]  # the first computes the prompt
            made.append(Tape(prompt, answer.tokens, drafts))
        return made, median(calls)
    finally:
        drafter.close()
        await engine.stop()


async def measure(
    files: tuple[Path, Path], taped: Sequence[Tape], draft_s: float, settings: Settings, advance: Callable[[], None]
) -> list[dict[str, Any]]:
    """The rows of one number of edges, `len(taped)`."""
    target, draft = files
    count, weights_mib = len(taped), target.stat().st_size / 2**20
    names = ("shared", "shared, no drafts", "dedicated", "one after another", "llama.cpp")
    tallies = {name: Tally(name) for name in names}
    before = _private_mib()
    shared = await _engine(target, count, _threads())
    tallies["shared"].memory_mib = tallies["shared, no drafts"].memory_mib = _private_mib() - before
    before = _private_mib()
    own = [await _engine(target, 1, 1) for _ in taped]
    tallies["dedicated"].memory_mib = _private_mib() - before
    before = _private_mib()
    try:
        with LlamaServer(target, slots=count, context=CONTEXT, threads=_threads(), draft=draft) as server:
            tallies["llama.cpp"].memory_mib = _private_mib() - before
            for number in range(settings.rounds + 1):  # the first warms up, and the engines get to know their steps
                await _round(tallies, shared, own, server, taped, draft_s, settings.tokens, counted=number > 0)
                advance()
    finally:
        for engine in (shared, *own):
            await engine.stop()
    extra = {"dedicated": count}
    return [tally.row(count, weights_mib, extra.get(name, 1)) for name, tally in tallies.items()]


async def _round(
    tallies: dict[str, Tally],
    shared: LlamaCppEngine,
    own: Sequence[LlamaCppEngine],
    server: LlamaServer,
    taped: Sequence[Tape],
    draft_s: float,
    tokens: int,
    *,
    counted: bool,
) -> None:
    async def together(engine: Engine, scheme: tuple[str, Policy]) -> list[Told]:
        return await ask_all(engine, taped, scheme, draft_s, tokens)

    async def dedicated() -> list[Told]:
        told = await asyncio.gather(
            *(ask_all(engine, [tape], _AUTO, draft_s, tokens) for engine, tape in zip(own, taped, strict=True))
        )
        return [one for (one,) in told]

    async def one_after_another() -> list[Told]:
        return [one for tape in taped for one in await ask_all(shared, [tape], _AUTO, draft_s, tokens)]

    async def take(mode: str, engines: Sequence[LlamaCppEngine], work: Callable[[], Awaitable[list[Told]]]) -> None:
        for engine in engines:
            engine.observer = Steps()
        began = time.perf_counter()
        told = await work()
        steps = sum(engine.observer.count for engine in engines if isinstance(engine.observer, Steps))
        if counted:
            tallies[mode].add(began, told, steps)

    await take("shared", [shared], lambda: together(shared, _AUTO))
    await take("shared, no drafts", [shared], lambda: together(shared, _CLOUD))
    await take("dedicated", own, dedicated)
    await take("one after another", [shared], one_after_another)
    began = time.perf_counter()
    await asyncio.to_thread(server.generate, [tape.prompt for tape in taped], tokens)
    if counted:
        tallies["llama.cpp"].rates.append(len(taped) * tokens / (time.perf_counter() - began))


async def _engine(target: Path, streams: int, threads: int) -> LlamaCppEngine:
    engine = LlamaCppEngine(target, model_id="target", context=CONTEXT, streams=streams, threads=threads)
    await engine.start()
    return engine


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _keep_to(cores: int) -> None:
    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not 0 < cores <= len(mine):
        raise SystemExit(f"--cores {cores}: this process can be kept to 1 to {len(mine)} cores here.")
    os.sched_setaffinity(0, mine[:cores])


def _private_mib() -> float:
    """Memory of this process that isn't a mapped file: without weights, which all copies here share."""
    found = psutil.Process().memory_info()
    return float(found.rss - getattr(found, "shared", 0)) / 2**20


def command(report: Report, settings: Settings) -> None:
    files = pair(default_directory())
    if settings.cores is not None:
        _keep_to(settings.cores)
    cores = _threads()
    with report.progress() as progress:
        task = progress.add_task("rounds", total=len(settings.edges) * (settings.rounds + 1))
        taped, draft_s = asyncio.run(tapes(files.target, files.draft, max(settings.edges), settings.tokens))
        rows = [
            row
            for count in settings.edges
            for row in asyncio.run(
                measure((files.target, files.draft), taped[:count], draft_s, settings, lambda: progress.advance(task))
            )
        ]
    title = (
        f"SmolLM2 F16, {cores} cores, {settings.tokens} tokens an answer, drafts replayed at t_d {1e3 * draft_s:.1f} ms"
    )
    report.table(title, rows)
    report.result({"rows": rows, "t_d_ms": 1e3 * draft_s, "tokens": settings.tokens, "cores": cores})
