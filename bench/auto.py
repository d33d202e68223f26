"""`bench auto`: policy auto beside cloud-only, eager and hold; eight greedy streams on the real engine in this process.

Half of the streams draft by n-gram, live. The other half replay what the Q4_1 draft model proposes: first the target's
own output is taken down, then, alone on the machine, the drafter's choice at each position behind it and how long a
token takes; that is the pace at which the drafts come. All policies take turns on one engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from app.engine.base import Engine, Request
from app.engine.llama_cpp import LlamaCppEngine, LlamaCppModel
from bench.batching import CONTEXT
from bench.demo import SEQUENCES, Parting, judge
from bench.hybrid import first_difference
from bench.paced import Arrival, PacedDevice, Replay
from bench.prompts import PROMPTS
from bench.report import Report
from edge import llama
from edge.drafters.base import Drafter
from edge.drafters.llama_cpp import LlamaCppDrafter
from edge.drafters.ngram import NgramDrafter
from edge.models import default_directory, pair
from edge.protocol.frames import Message, Policy, Sampling, Usage

SCHEMES: Final[tuple[tuple[str, Policy], ...]] = (
    ("cloud", "eager"),
    ("eager", "eager"),
    ("hold", "hold"),
    ("auto", "auto"),
)
GREEDY: Final = Sampling(temperature=0.0, seed=0)


@dataclass(frozen=True, slots=True)
class Settings:
    tokens: int = 96
    """Of each answer, exactly."""
    rounds: int = 3
    streams: int = 8
    targets: tuple[str, ...] = ("F16", "Q4_1")


@dataclass(frozen=True, slots=True)
class Told:
    """One answer."""

    tokens: tuple[int, ...]
    arrivals: list[Arrival]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Tape:
    """A question: the target's answer to it, and what the drafter says at each of its positions."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    drafts: tuple[int, ...] | None
    """None: its device drafts by n-gram."""


@dataclass(slots=True)
class Tally:
    """All rounds of one policy."""

    scheme: str
    rates: list[float] = field(default_factory=list)
    """Tokens per second while all streams run."""
    whole_rates: list[float] = field(default_factory=list)
    """The same to the end of the last answer, the streams that are left included."""
    usages: list[Usage] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    """The cost model's, as the engine reports it after each round."""
    parted: list[Parting] = field(default_factory=list)

    def add(self, began: float, told: Sequence[Told], tapes: Sequence[Tape], error: float) -> None:
        self.rates.append(rate_together([one.arrivals for one in told]))
        self.whole_rates.append(sum(len(one.tokens) for one in told) / (max(t.arrivals[-1].at for t in told) - began))
        self.usages += [one.usage for one in told]
        self.errors.append(error)
        for prompt, (one, tape) in enumerate(zip(told, tapes, strict=True)):
            at = first_difference(one.tokens, tape.output)
            if at is not None:
                self.parted.append(Parting(prompt, self.scheme, at, tape.output, one.tokens))

    def row(self, target: str, draft_s: float) -> dict[str, Any]:
        steps, completion = sum(u.steps for u in self.usages), sum(u.completion for u in self.usages)
        return {
            "target": target,
            "policy": self.scheme,
            "tok_s": median(self.rates),
            "whole_tok_s": median(self.whole_rates),
            "steps_per_token": steps / completion,
            "verified_per_token": sum(u.verified for u in self.usages) / completion,
            "accepted_per_token": sum(u.accepted for u in self.usages) / completion,
            "step_error_p90": median(self.errors),
            "t_d_ms": 1e3 * draft_s,
            "identical": all(parting.tie for parting in self.parted),
            "ties": sum(parting.tie for parting in self.parted),
        }


def rate_together(streams: Sequence[Sequence[Arrival]]) -> float:
    """Tokens per second of all streams, from when the last has begun until the first ends.

    Raises ValueError if they never ran all at once.
    """
    begin, end = max(one[0].at for one in streams), min(one[-1].at for one in streams)
    if end <= begin:
        raise ValueError("the first answer ended before the last began: ask for longer ones (--tokens)")
    return sum(tokens for one in streams for at, tokens in one if begin < at <= end) / (end - begin)


def record(drafter: Drafter, prompt: Sequence[int], output: Sequence[int]) -> tuple[tuple[int, ...], list[float]]:
    """What the drafter proposes at each position behind `output` as it stands there, and the seconds of each call."""
    continuation = drafter.begin(prompt, GREEDY)
    drafts: list[int] = []
    seconds: list[float] = []
    for position, token in enumerate(output):
        began = time.perf_counter()
        proposal = continuation.propose()
        seconds.append(time.perf_counter() - began)
        if proposal is None:
            break
        drafts.append(proposal.token)
        continuation.rollback(position)
        continuation.feed([token])
    continuation.close()
    return tuple(drafts), seconds


async def prepare(
    engine: Engine, drafter: Drafter, prompts: Sequence[tuple[int, ...]], tokens: int
) -> tuple[list[Tape], float]:
    """The target's answers, and behind every other one the drafter's proposals, made while all else is idle; and t_d,
    seconds.
    """
    answers = await ask_all(engine, [Tape(prompt, (), ()) for prompt in prompts], SCHEMES[0], 0.0, tokens)
    tapes: list[Tape] = []
    calls: list[float] = []
    for i, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        drafts = None
        if i % 2 == 0:
            drafts, seconds = await asyncio.to_thread(record, drafter, prompt, answer.tokens)
            calls += seconds[1:]  # the first computes the prompt
        tapes.append(Tape(prompt, answer.tokens, drafts))
    return tapes, median(calls)


async def ask_all(
    engine: Engine, tapes: Sequence[Tape], scheme: tuple[str, Policy], draft_s: float, tokens: int
) -> list[Told]:
    """All questions at once."""

    async def one(index: int, tape: Tape) -> Told:
        request = Request(
            id=f"{scheme[0]}-{index}",
            tenant="bench",
            prompt=tape.prompt,
            sampling=GREEDY,
            max_tokens=tokens,
            min_tokens=tokens,
            policy=scheme[1],
            drafter="ngram" if tape.drafts is None else "replay",
        )
        if scheme[0] == "cloud":
            device = PacedDevice(None)
        elif tape.drafts is None:
            device = PacedDevice(NgramDrafter().begin(tape.prompt, GREEDY))
        else:
            device = PacedDevice(Replay(tape.drafts), draft_s, whole_calls=True)
        generation = engine.submit(request)
        try:
            arrivals = await device.run(generation)
        finally:
            generation.cancel()
        if len(generation.ledger) != tokens:
            raise RuntimeError(f"an answer has {len(generation.ledger)} tokens, not {tokens}: {generation.finished}")
        return Told(tuple(generation.ledger.tokens), arrivals, generation.usage())

    return await asyncio.gather(*(one(index, tape) for index, tape in enumerate(tapes)))


async def measure(
    engine: Engine, tapes: Sequence[Tape], draft_s: float, settings: Settings, advance: Callable[[], None]
) -> list[Tally]:
    """A round that doesn't count, in which the engine gets to know steps and drafts; then all policies in turn."""
    tallies = [Tally(scheme) for scheme, _ in SCHEMES]
    for number in range(settings.rounds + 1):
        for scheme, tally in zip(SCHEMES, tallies, strict=True):
            began = time.perf_counter()
            told = await ask_all(engine, tapes, scheme, draft_s, settings.tokens)
            if number:
                tally.add(began, told, tapes, engine.load().step_error)
            advance()
    return tallies


async def run(
    target: Path, draft: Path, settings: Settings, advance: Callable[[], None] = lambda: None
) -> tuple[list[Tally], list[Tape], float]:
    """One target. Gives the tallies, their partings not yet judged, the tapes, and t_d in seconds."""
    # Twice the slots: a prompt stays computed in its last answer's slot while the next answer runs in another.
    engine = LlamaCppEngine(target, model_id="target", context=CONTEXT, streams=2 * settings.streams, threads=1)
    await engine.start()
    try:
        prompts = [tuple(engine.vocabulary.render([Message("user", text)])) for text in PROMPTS[: settings.streams]]
        drafter = LlamaCppDrafter(draft, streams=1, context=CONTEXT, threads=1)
        try:
            tapes, draft_s = await prepare(engine, drafter, prompts, settings.tokens)
        finally:
            drafter.close()
        return await measure(engine, tapes, draft_s, settings, advance), tapes, draft_s
    finally:
        await engine.stop()


def judge_all(
    tallies: Sequence[Tally],
    tapes: Sequence[Tape],
    target: Path,
    tokens: int,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Tell ties from faults, in place, and `say` each."""
    partings = [parting for tally in tallies for parting in tally.parted]
    if partings:
        model = LlamaCppModel(llama.Model(target), llama.ContextSettings(sequences=SEQUENCES, tokens=8192))
        try:
            answers = {prompt: tape.output for prompt, tape in enumerate(tapes)}
            noise = judge(partings, answers, model, min_tokens=tokens)
        finally:
            model.close()
        for p in partings:
            verdict = "a floating-point tie" if p.tie else "NO floating-point tie"
            say(f"Prompt {p.prompt}, {p.case} parts at token {p.at}: {verdict} ({p.distance:.3f}, noise {noise:.3f})")


def compared(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of one target's rows: auto beside the best fixed policy and beside cloud-only, while all run and to the end."""
    found: dict[str, Any] = {"target": rows[0]["target"]}
    for key, suffix in (("tok_s", ""), ("whole_tok_s", "_whole")):
        rates = {row["policy"]: row[key] for row in rows}
        auto = rates.pop("auto")
        best = max(rates, key=lambda policy: rates[policy])
        found |= {
            f"best_fixed{suffix}": best,
            f"auto_over_best_fixed{suffix}": auto / rates[best],
            f"auto_over_cloud{suffix}": auto / rates["cloud"],
        }
    return found


def command(report: Report, settings: Settings) -> None:
    files = pair(default_directory())
    rows: list[dict[str, Any]] = []
    summary: list[dict[str, Any]] = []
    with report.progress() as progress:
        task = progress.add_task("measurements", total=len(settings.targets) * len(SCHEMES) * (settings.rounds + 1))
        for name in settings.targets:
            target = {"F16": files.target, "Q4_1": files.draft}[name]
            tallies, tapes, draft_s = asyncio.run(run(target, files.draft, settings, lambda: progress.advance(task)))
            judge_all(tallies, tapes, target, settings.tokens, report.say)
            found = [tally.row(name, draft_s) for tally in tallies]
            rows += found
            summary.append(compared(found))
    report.table(f"SmolLM2, {settings.streams} streams, half n-gram, half replayed drafts; medians of rounds", rows)
    report.table("auto", summary)
    report.result({"rows": rows, "auto": summary})
    if not all(row["identical"] for row in rows):
        raise SystemExit("A policy changed an answer by more than the noise that was measured explains.")
