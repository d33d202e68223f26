"""`bench vllm`: vLLM alone, with its own n-gram speculation, and with the drafts of devices; RTT 0, greedy.

Drafts are cut from the reference, the output of vLLM alone: a device proposes a token every quarter of a plain step,
and each is the reference's with probability α, by a hash of its position. So α is exact, and drafting costs the machine
nothing. All engines are up from the start and take turns, so that a slow moment of the machine hits all of them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from app.engine.base import Request
from app.engine.vllm_engine import VllmEngine
from app.engine.vllm_start import Plan, engine_args, environment
from bench.hf_model import NAME, convert
from bench.paced import PacedDevice, Replay
from bench.prompts import PROMPTS
from bench.report import Report
from edge.drafters.scripted import right_with
from edge.protocol.frames import Message, Policy, Sampling

GREEDY = Sampling(temperature=0.0, seed=0)
_NGRAM = {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2}


@dataclass(frozen=True, slots=True)
class Settings:
    alphas: Sequence[float] = (0.6, 0.8, 0.9)
    streams: Sequence[int] = (1, 8)
    tokens: int = 64
    rounds: int = 3
    draft_tokens: int = 8
    """Checked in a step of one stream, at most."""
    ngram: bool = True
    ahead: bool = False
    """An engine that plans a step ahead takes part too (it needs a GPU)."""


@dataclass(frozen=True, slots=True)
class Told:
    """One stream, as its client saw it."""

    tokens: tuple[int, ...]
    begun: float
    first: float
    last: float
    """Seconds: when it was asked for, and when its first and last tokens came."""
    steps: int

    @property
    def itl_s(self) -> float:
        return (self.last - self.first) / max(1, len(self.tokens) - 1)


Client = Callable[[str, int], Awaitable[Told]]
"""Ask a question as stream number i."""


@dataclass(slots=True)
class Plain:
    """vLLM without us."""

    llm: Any
    vocabulary: Any
    settings: Settings
    _count: Any = field(default_factory=itertools.count)

    async def ask(self, question: str, _: int) -> Told:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0,
            max_tokens=self.settings.tokens,
            min_tokens=self.settings.tokens,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        prompt = {"type": "token", "prompt_token_ids": self.vocabulary.render([Message("user", question)])}
        tokens: list[int] = []
        begun, first, last, steps = time.perf_counter(), 0.0, 0.0, 0
        async for output in self.llm.generate(prompt, params, f"plain-{next(self._count)}"):
            last = time.perf_counter()
            first = first or last
            steps += 1
            tokens += output.outputs[0].token_ids
        return Told(tuple(tokens), begun, first, last, steps)


@dataclass(slots=True)
class Hybrid:
    engine: VllmEngine
    settings: Settings
    references: dict[str, tuple[int, ...]]
    name: str = "hybrid"
    _count: Any = field(default_factory=itertools.count)

    async def batches(self) -> Counter[int]:
        """Steps by their streams, since the last call."""
        return Counter(dict(await self.engine._llm.engine_core.call_utility_async("paceline_batches")))

    def client(self, policy: Policy, alpha: float | None, draft_s: float) -> Client:
        async def ask(question: str, stream: int) -> Told:
            reference, vocabulary = self.references[question], self.engine.vocabulary
            right = right_with(alpha or 0.0, stream)
            drafts = [token if right(i) else (token + 1) % vocabulary.size for i, token in enumerate(reference)]
            device = PacedDevice(None if alpha is None else Replay(drafts), draft_s)
            request = Request(
                id=f"{self.name}-{next(self._count)}",
                tenant="bench",
                prompt=tuple(vocabulary.render([Message("user", question)])),
                sampling=GREEDY,
                max_tokens=self.settings.tokens,
                min_tokens=self.settings.tokens,
                policy=policy,
                drafter=f"right {alpha}",
            )
            begun = time.perf_counter()
            generation = self.engine.submit(request)
            arrivals = await device.run(generation)
            tokens, steps = tuple(generation.ledger.tokens), generation.usage().steps
            return Told(tokens, begun, arrivals[0].at, arrivals[-1].at, steps)

        return ask


async def measure(client: Client, streams: int) -> list[Told]:
    return list(await asyncio.gather(*(client(PROMPTS[i], i) for i in range(streams))))


@dataclass(slots=True)
class Cell:
    """A row in the making."""

    mode: str
    alpha: float | None
    streams: int
    rounds: list[list[Told]] = field(default_factory=list)
    batches: Counter[int] = field(default_factory=Counter)
    """How many steps had so many streams."""

    def row(self, references: dict[str, tuple[int, ...]]) -> dict[str, Any]:
        told = [one for answers in self.rounds for one in answers]
        spans = [max(t.last for t in answers) - min(t.begun for t in answers) for answers in self.rounds]
        tokens = [sum(len(t.tokens) for t in answers) for answers in self.rounds]
        same = [t.tokens == references[PROMPTS[i]] for answers in self.rounds for i, t in enumerate(answers)]
        return {
            "mode": self.mode,
            "alpha": self.alpha,
            "streams": self.streams,
            "tok_s": median(n / s for n, s in zip(tokens, spans, strict=True)),
            "itl_ms": median(sum(t.itl_s for t in answers) / len(answers) for answers in self.rounds) * 1e3,
            "steps_per_token": sum(t.steps for t in told) / sum(tokens),
            "batch": sum(n * steps for n, steps in self.batches.items()) / self.batches.total()
            if self.batches
            else None,
            "identical": all(same),
        }


async def run(settings: Settings, advance: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    plan = Plan(model=str(convert()), context=512, streams=max(settings.streams), draft_tokens=settings.draft_tokens)
    # vLLM's n-gram lookup is compiled by numba, whose first call gives the process's OpenMP a thread per core, whatever
    # the model was given: its steps would then fight with the other engines' for the cores.
    os.environ.setdefault("NUMBA_NUM_THREADS", str(plan.threads))
    async with AsyncExitStack() as stack:
        engine = await _start(plan, stack)
        plain = Plain(await _start_plain(plan, stack, None), engine.vocabulary, settings)
        speculative = {**_NGRAM, "num_speculative_tokens": settings.draft_tokens}
        ngram = None
        if settings.ngram:
            ngram = Plain(await _start_plain(plan, stack, speculative), engine.vocabulary, settings)
        references: dict[str, tuple[int, ...]] = {}
        for told, prompt in zip(await measure(plain.ask, max(settings.streams)), PROMPTS, strict=False):
            references[prompt] = told.tokens
        hybrid = Hybrid(engine, settings, references)
        ahead = None
        if settings.ahead:
            ahead = Hybrid(await _start(dataclasses.replace(plan, ahead=True), stack), settings, references, "ahead")
        cells: list[Cell] = []
        for streams in settings.streams:
            warm = [hybrid.client("eager", None, 0.0)]
            warm += [ngram.ask] if ngram else []
            warm += [ahead.client("eager", None, 0.0)] if ahead else []
            for client in warm:
                await measure(client, streams)  # warm; n-gram's code is compiled at its first use
            step_s = median(t.itl_s for t in await measure(plain.ask, streams))
            clients = _clients(settings, plain, ngram, hybrid, step_s / 4)
            if ahead is not None:
                clients += [
                    ("ahead", alpha, ahead.client("eager", alpha, step_s / 4)) for alpha in (None, *settings.alphas)
                ]
            await hybrid.batches()
            made = [(Cell(mode, alpha, streams), client) for mode, alpha, client in clients]
            for _ in range(settings.rounds):
                for cell, client in made:
                    cell.rounds.append(await measure(client, streams))
                    cell.batches += await hybrid.batches()
                    advance()
            cells += [cell for cell, _ in made]
        return [cell.row(references) for cell in cells]


def _clients(
    settings: Settings, plain: Plain, ngram: Plain | None, hybrid: Hybrid, draft_s: float
) -> list[tuple[str, float | None, Client]]:
    clients: list[tuple[str, float | None, Client]] = [("cloud", None, plain.ask)]
    clients.append(("eager", None, hybrid.client("eager", None, draft_s)))
    if ngram is not None:
        clients.append(("ngram", None, ngram.ask))
    policies: tuple[Policy, ...] = ("eager", "hold", "auto")
    clients += [(p, alpha, hybrid.client(p, alpha, draft_s)) for alpha in settings.alphas for p in policies]
    return clients


async def _start(plan: Plan, stack: AsyncExitStack) -> VllmEngine:
    engine = VllmEngine(
        plan.model,
        model_id=NAME,
        context=plan.context,
        streams=plan.streams,
        draft_tokens=plan.draft_tokens,
        ahead=plan.ahead,
    )
    await engine.start()
    stack.push_async_callback(engine.stop)
    return engine


async def _start_plain(plan: Plan, stack: AsyncExitStack, speculative: dict[str, Any] | None) -> Any:
    from vllm.v1.engine.async_llm import AsyncLLM

    def start() -> Any:
        arguments = dataclasses.replace(
            engine_args(plan), scheduler_cls=None, scheduling_policy="fcfs", speculative_config=speculative
        )
        with environment(plan):
            return AsyncLLM.from_engine_args(arguments)

    llm = await asyncio.to_thread(start)
    stack.push_async_callback(asyncio.to_thread, llm.shutdown)
    return llm


def command(report: Report, settings: Settings) -> None:
    modes = 2 + settings.ngram + settings.ahead + (3 + settings.ahead) * len(settings.alphas)
    cells = len(settings.streams) * settings.rounds * modes
    report.say("Starting vLLM, once for each way of running it: a minute each …")
    with report.progress() as progress:
        task = progress.add_task("measurements", total=cells)
        rows = asyncio.run(run(settings, lambda: progress.advance(task)))
    report.table("vLLM on this machine, greedy, RTT 0; eager without α: no drafts come", rows)
    for streams in settings.streams:
        itl_ms = {row["mode"]: row["itl_ms"] for row in rows if row["alpha"] is None and row["streams"] == streams}
        for mode in ("eager", *(["ahead"] if settings.ahead else [])):
            ratio = itl_ms[mode] / itl_ms["cloud"]
            report.say(f"{mode} without drafts, {streams} streams: {ratio:.3f} × vLLM alone (ITL; goal 1.03)")
    report.result({"rows": rows})
