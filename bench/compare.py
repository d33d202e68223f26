"""`bench compare`: all schemes on a model pair over named networks, each beside the cloud-only stream.

Cloud-only, the cloud with n-gram speculation, synchronous at the best γ that the formula finds for what eager has
measured so far, hold, eager and auto; greedy, and at temperature 0.8 (seeded, top_p 0.95) with top-1 and with coupled
drafts. Every question goes to all of them in turn, so that a slow moment of the machine moves all alike. Cloud-only
runs once more while the device drafts for nobody, since both share one machine's memory here.

An answer that isn't the cloud-only one's is judged (ties.py) once all is over: a floating-point tie, or a fault.

N-gram speculation runs beside the gateway, in this process, without a network: an answer that streams has the same ITL
over any, so its row stands for a cloud that speculates by itself. Its TTFT lacks the network, though; and since its
drafts arrive during a step, they skip the token that this step makes, which an engine's own speculation would not.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import psutil

from app.engine.llama_cpp import LlamaCppModel
from bench.comparison import BUSY, Case, Sample, beside_busy, cases, measured, row
from bench.hybrid import first_difference
from bench.noise import Sample as Context
from bench.noise import measure
from bench.pair import Live, ask, drafting, live
from bench.pairs import fetched
from bench.profiles import profile
from bench.prompts import prompt_set
from bench.report import Report
from bench.ties import Judge
from edge import llama
from edge.models import Pair, default_directory
from edge.models import pair as embedded
from edge.protocol.frames import Message, Sampling
from edge.runtime import Generate

COLUMNS = {
    "temperature": "T",
    "drafting": "drafts",
    "scheme": "scheme",
    "itl_ms": "ITL",
    "itl_low_ms": "from",
    "itl_high_ms": "to",
    "over_cloud": "/ cloud",
    "over_busy_cloud": "/ busy",
    "itl_p95_ms": "p95",
    "ttft_ms": "TTFT",
    "alpha": "α",
    "gamma": "γ",
    "steps_per_token": "steps",
    "wasted_per_token": "wasted",
    "up_bytes_per_token": "bytes up",
    "edge_cpu_ms_per_token": "edge CPU",
    "cloud_cpu_ms_per_token": "cloud CPU",
    "over_formula": "/ formula",
    "ties": "ties",
    "faults": "faults",
}
"""Of the table for people; the JSON has more."""


NOISE_SEQUENCES = 8
"""Answers that the noise is measured on, alone and together."""


@dataclass(frozen=True, slots=True)
class Settings:
    networks: Sequence[str]
    temperatures: Sequence[float] = (0.0, 0.8)
    prompts: int = 6
    tokens: int = 100
    rounds: int = 1
    asks: str = "chat"
    """A prompt set."""
    pair: str = "smollm2"

    @property
    def answers(self) -> int:
        return self.rounds * self.prompts * len(self.networks) * len(cases(self.temperatures))


Samples = dict[tuple[str, Case], list[Sample]]


async def run(
    settings: Settings, advance: Callable[[], None] = lambda: None, files: Pair | None = None
) -> list[Mapping[str, Any]]:
    links = {name: profile(name).link for name in settings.networks}
    found: Samples = {}
    rtts: dict[str, float] = {}
    async with live(links, files) as pair:
        cloud = psutil.Process(pair.cloud_pid)
        for number in range(settings.rounds):
            for prompt in range(settings.prompts):
                for name in links:
                    await _question(pair, cloud, settings, name, prompt, number, found, advance)
                    rtts[name] = max(links[name].median_s, pair.runtimes[name].connection.rtt_s or 0.0)
    rows = [row(name, case, samples, _cloud(found, name, case), rtts[name]) for (name, case), samples in found.items()]
    faults = await asyncio.to_thread(_faults, found, settings, files or embedded(default_directory()))
    return [
        {"pair": settings.pair, **made, "ties": made["other_text"] - faults[at], "faults": faults[at]}
        for at, made in zip(found, beside_busy(rows), strict=True)
    ]


def _cloud(found: Samples, name: str, case: Case) -> Sequence[Sample]:
    """What the cloud alone has said to the same questions."""
    return found[name, Case("cloud", "eager", case.temperature, "none")]


def _faults(found: Samples, settings: Settings, files: Pair) -> Counter[tuple[str, Case]]:
    """How many of a case's answers part from the cloud-only one by more than the noise explains."""
    faults: Counter[tuple[str, Case]] = Counter()
    parted = [
        (at, number, sample.answer.tokens, reference.answer.tokens)
        for at, samples in found.items()
        for number, (sample, reference) in enumerate(zip(samples, _cloud(found, *at), strict=True))
        if sample.answer.tokens != reference.answer.tokens
    ]
    if not parted:
        return faults
    loaded = llama.Model(files.target)
    model = LlamaCppModel(loaded, llama.ContextSettings(sequences=NOISE_SEQUENCES, tokens=8192))
    try:
        render, texts = model.vocabulary.render, prompt_set(settings.asks)
        prompts = [tuple(render([Message("user", text)])) for text in texts[: settings.prompts]]
        said = {number % settings.prompts: reference for _, number, _, reference in parted}
        first = list(said.items())[:NOISE_SEQUENCES]
        noise = measure(model, [Context(prompts[prompt], output[:96]) for prompt, output in first]).largest
        judge = Judge(model, noise)
        for (name, case), number, tokens, reference in parted:
            prompt, at = number % settings.prompts, first_difference(tokens, reference)
            sampling = _request(case, texts[prompt], _seed(settings, number), settings.tokens, None).sampling
            assert at is not None  # noqa: S101
            context = Context(prompts[prompt], reference)
            faults[name, case] += not judge.judge(prompt, case.scheme, context, sampling, tokens, at).tie
    finally:
        model.close()
    return faults


def _seed(settings: Settings, number: int) -> int:
    """Of the number-th question, all rounds counted."""
    return 1000 * (number // settings.prompts) + number % settings.prompts


async def _question(
    pair: Live[str],
    cloud: psutil.Process,
    settings: Settings,
    name: str,
    prompt: int,
    number: int,
    found: Samples,
    advance: Callable[[], None],
) -> None:
    """One question to all cases over one network."""
    runtime = pair.runtimes[name]
    link_s = max(profile(name).link.median_s, runtime.connection.rtt_s or 0.0)
    text, seed = prompt_set(settings.asks)[prompt], _seed(settings, number * settings.prompts + prompt)
    # Both sides compute the prompt before, as they have when a conversation goes on.
    warm = Case("eager", "eager", 0.0, "top-1")
    await ask(runtime, _request(warm, text, seed, 8, None))
    for case in cases(settings.temperatures):
        length = None
        if case.policy == "sync":
            eager = found[name, Case("eager", "eager", case.temperature, case.drafting)]
            length = measured(eager, link_s).best_length()
        request = _request(case, text, seed, settings.tokens, length)
        edge_s, cloud_s = time.process_time(), _cpu_s(cloud)
        with drafting(pair.drafter, text) if case.scheme == BUSY else nullcontext():
            answer = await ask(pair.beside if case.drafting == "n-gram" else runtime, request)
        sample = Sample(answer, time.process_time() - edge_s, _cpu_s(cloud) - cloud_s, length)
        found.setdefault((name, case), []).append(sample)
        advance()


def _request(case: Case, text: str, seed: int, tokens: int, length: int | None) -> Generate:
    return Generate(
        messages=(Message("user", text),),
        sampling=Sampling(temperature=case.temperature, top_p=0.95 if case.temperature else 1.0, seed=seed),
        max_tokens=tokens,
        policy=case.policy,
        draft=case.drafting != "none",
        coupled=case.drafting == "coupled",
        draft_length=length,
    )


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def command(report: Report, settings: Settings) -> None:
    files = fetched(report, settings.pair)
    with report.progress() as progress:
        task = progress.add_task("answers", total=settings.answers)
        rows = asyncio.run(run(settings, lambda: progress.advance(task), files))
    for name in settings.networks:
        report.say(f"{name}: {profile(name).source}")
        own = [{short: row[key] for key, short in COLUMNS.items()} for row in rows if row["network"] == name]
        report.table(f"{name}: {settings.pair}, ms; steps, drafts, bytes and CPU per token", own)
    report.result({"rows": rows})
