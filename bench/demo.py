"""`bench demo`: the embedded model pair for real, cloud-only beside eager, hold and auto.

The gateway with the F16 target and the device with its 4-bit draft each have a process, a core and one thread; between
them is the delaying proxy. Greedy, so the text must be the same whichever way it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from app.engine.llama_cpp import LlamaCppModel
from bench.hybrid import first_difference
from bench.link import Link
from bench.noise import Sample, measure
from bench.pair import Answer, ask, drafting, live
from bench.prompts import PROMPTS
from bench.report import Report
from bench.ties import Judge
from edge import llama
from edge.models import default_directory, pair
from edge.protocol.frames import Message, Policy, Sampling
from edge.runtime import Generate, Runtime

SCHEMES: tuple[tuple[str, Policy], ...] = (
    ("cloud", "eager"),
    ("busy", "eager"),
    ("eager", "eager"),
    ("hold", "hold"),
    ("auto", "auto"),
)
"""`busy` is cloud-only while the device drafts for nobody: both models share one machine's memory, as they never do in
use."""
CLOUD_ONLY = ("cloud", "busy")

SEQUENCES = 8
"""Answers that the noise is measured on, alone and together."""


@dataclass(slots=True)
class Sums:
    """Of one scheme at one round-trip time, over all prompts."""

    span_s: float = 0.0
    """First to last token's arrival."""
    tokens: int = 0
    steps: float = 0.0
    alphas: list[float] = field(default_factory=list)
    draft_s: list[float] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)

    def add(self, answer: Answer) -> None:
        figures, measures = answer.ended.figures, answer.ended.measures
        self.span_s += (figures.itl_s or 0.0) * (figures.tokens - 1)
        self.tokens += figures.tokens - 1
        self.steps += answer.ended.usage.steps
        for values, value in (
            (self.alphas, figures.acceptance_rate),
            (self.draft_s, measures.draft_s),
            (self.step_s, measures.step_s),
        ):
            if value is not None:
                values.append(value)

    @property
    def itl_ms(self) -> float:
        return 1e3 * self.span_s / max(1, self.tokens)


@dataclass(slots=True)
class Parting:
    """An answer that differs from the cloud-only one."""

    prompt: int
    case: str
    at: int
    reference: tuple[int, ...]
    found: tuple[int, ...]
    tie: bool = False
    """Set once it has been judged, with the error of the logits that would explain it."""
    distance: float | None = None


@dataclass(slots=True)
class Network:
    """All answers at one round-trip time."""

    rtt_ms: float
    sums: dict[str, Sums] = field(default_factory=lambda: {scheme: Sums() for scheme, _ in SCHEMES})
    parted: list[Parting] = field(default_factory=list)
    answers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Cloud-only's, by prompt."""

    def add(self, prompt: int, answers: dict[str, Answer]) -> None:
        self.answers[prompt] = answers["cloud"].tokens
        for scheme, answer in answers.items():
            self.sums[scheme].add(answer)
            reference = answers["cloud"].tokens
            at = first_difference(answer.tokens, reference)
            if at is not None:
                self.parted.append(Parting(prompt, f"{scheme}, RTT {self.rtt_ms:g} ms", at, reference, answer.tokens))

    def row(self) -> dict[str, Any]:
        cloud, eager, hold, auto = (self.sums[scheme] for scheme in ("cloud", "eager", "hold", "auto"))
        return {
            "rtt_ms": self.rtt_ms,
            "cloud_itl_ms": cloud.itl_ms,
            "busy_cloud_itl_ms": self.sums["busy"].itl_ms,
            "eager_itl_ms": eager.itl_ms,
            "hold_itl_ms": hold.itl_ms,
            "auto_itl_ms": auto.itl_ms,
            "alpha": _mean(eager.alphas),
            "identical": all(parting.tie for parting in self.parted),
            "ties": sum(parting.tie for parting in self.parted),
            "eager_over_cloud": eager.itl_ms / cloud.itl_ms,
            "auto_over_cloud": auto.itl_ms / cloud.itl_ms,
            "eager_over_busy_cloud": eager.itl_ms / self.sums["busy"].itl_ms,
            "eager_steps_per_token": eager.steps / max(1, eager.tokens),
            "hold_steps_per_token": hold.steps / max(1, hold.tokens),
            "t_d_ms": 1e3 * _mean(eager.draft_s),
            "t_v_ms": 1e3 * _mean(cloud.step_s),
            "tokens": cloud.tokens,
        }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


async def answer(runtime: Runtime, text: str, scheme: str, policy: Policy, tokens: int) -> Answer:
    request = Generate(
        messages=(Message("user", text),),
        sampling=Sampling(temperature=0, seed=0),
        max_tokens=tokens,
        policy=policy,
        draft=scheme not in CLOUD_ONLY,
    )
    return await ask(runtime, request)


async def run(
    rtts_ms: Sequence[float], prompts: int, tokens: int, advance: Callable[[], None] = lambda: None
) -> list[Network]:
    """Prompt by prompt, all networks and schemes in turn, so that a slow moment of the machine hits no row alone."""
    async with live({rtt: Link(rtt / 1e3) for rtt in rtts_ms}) as running:
        runtimes = running.runtimes
        for runtime in runtimes.values():
            await answer(runtime, PROMPTS[-1], "warm-up", "eager", 8)
        networks_found = [Network(rtt) for rtt in rtts_ms]
        for prompt in range(prompts):
            for network in networks_found:
                answers = {}
                runtime = runtimes[network.rtt_ms]
                # Both sides compute the prompt before, as they have when a conversation goes on: otherwise the cloud
                # would have it from its first turn here, and the device alone would pay for it.
                await answer(runtime, PROMPTS[prompt], "prompt", "eager", 8)
                for scheme, policy in SCHEMES:
                    with drafting(running.drafter, PROMPTS[prompt]) if scheme == "busy" else nullcontext():
                        answers[scheme] = await answer(runtime, PROMPTS[prompt], scheme, policy, tokens)
                    advance()
                network.add(prompt, answers)
        return networks_found


def judge(
    partings: Sequence[Parting], answers: Mapping[int, tuple[int, ...]], model: LlamaCppModel, *, min_tokens: int = 0
) -> float:
    """Tell floating-point ties from faults, as `bench lossless` does. Returns the noise that was measured for it.

    `answers`: the references by prompt, those of partings among them; `model` holds `SEQUENCES` sequences.
    """
    prompts = {prompt: tuple(model.vocabulary.render([Message("user", PROMPTS[prompt])])) for prompt in answers}
    parted = {parting.prompt for parting in partings}
    first = sorted(answers, key=lambda prompt: prompt not in parted)[:SEQUENCES]
    noise = measure(model, [Sample(prompts[prompt], answers[prompt][:96]) for prompt in first]).largest
    for p in partings:
        sample = Sample(prompts[p.prompt], p.reference)
        found = Judge(model, noise, min_tokens).judge(p.prompt, p.case, sample, Sampling(temperature=0), p.found, p.at)
        p.tie, p.distance = found.tie, found.distance
    return noise


def command(report: Report, rtts_ms: Sequence[float], prompts: int, tokens: int) -> None:
    with report.progress() as progress:
        task = progress.add_task("answers", total=len(rtts_ms) * prompts * len(SCHEMES))
        found = asyncio.run(run(rtts_ms, prompts, tokens, lambda: progress.advance(task)))
    parted = [parting for network in found for parting in network.parted]
    if parted:
        model = LlamaCppModel(
            llama.Model(pair(default_directory()).target), llama.ContextSettings(sequences=SEQUENCES, tokens=8192)
        )
        noise = judge(parted, found[0].answers, model)
        model.close()
        for p in parted:
            verdict = f"a floating-point tie (noise {noise:.3f})" if p.tie else "NOT the same text"
            report.say(f"Prompt {p.prompt}, {p.case} parts from cloud-only at token {p.at}: {verdict}")
    rows = [network.row() for network in found]
    report.table("The embedded pair, ms per token", rows)
    report.result({"rows": rows})
