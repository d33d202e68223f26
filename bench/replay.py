"""`bench replay`: the real pair's decisions, played at times of one's choice.

Once, without a clock, the pair's target answers and the draft model proposes at every position of the answer: where
it is right, and how sure it is. Then gateway and runtime run over named networks with the scripted models, which take
exactly t_v a step and t_d a draft token, and whose drafts are right where the recording's were. So the times are a
GPU's, if one likes, and the acceptance patterns are a real pair's; every row says `replay`. Behind a wrong draft the
recording's confidence at the same position stands for the one that the draft model would have had there.

N-gram speculation isn't replayed: its drafts come in bursts or not at all. Beside each row is the event simulation
(events.py) on the same patterns, with the network's median round trip and nothing else of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from app.engine.base import Request
from app.engine.llama_cpp import LlamaCppEngine
from bench.comparison import BUSY, Case, Drafting, Sample, cases, row
from bench.events import Outcome, Times, best_sync, simulate, simulate_cloud
from bench.gateway import Plan, cores, gateway, pinned, proxies
from bench.hybrid import Device, Drafts
from bench.pair import ask
from bench.pairs import fetched
from bench.profiles import profile
from bench.prompts import PROMPTS, prompt_set
from bench.report import Report
from edge.connection import Connection, Timing
from edge.drafters.base import Drafter
from edge.drafters.llama_cpp import LlamaCppDrafter
from edge.drafters.scripted import ScriptedDrafter
from edge.models import Pair
from edge.protocol.frames import Message, Sampling
from edge.runtime import Generate, Runtime
from edge.script import Script, ScriptVocabulary

COLUMNS = {
    "temperature": "T",
    "drafting": "drafts",
    "scheme": "scheme",
    "itl_ms": "ITL",
    "itl_low_ms": "from",
    "itl_high_ms": "to",
    "over_cloud": "/ cloud",
    "sim_ms": "simulated",
    "over_sim": "/ simulated",
    "itl_p95_ms": "p95",
    "alpha": "α",
    "gamma": "γ",
    "steps_per_token": "steps",
    "wasted_per_token": "wasted",
    "over_formula": "/ formula",
    "other_text": "differ",
}
"""Of the table for people; the JSON has more."""
_TIMING = Timing(ping_s=0.5)
_CONTEXT = 2048
_LONGEST = 24
"""γ of `sync`, at most."""


class Tape(msgspec.Struct, frozen=True):
    """One answer of the target, and at each of its positions what the drafter proposed behind it."""

    prompt: int
    temperature: float
    drafting: Drafting
    right: tuple[bool, ...]
    confidence: tuple[float, ...]
    """The drafter's own probability of its proposal."""


@dataclass(frozen=True, slots=True)
class Settings:
    networks: Sequence[str]
    t_d_s: float = 0.010
    t_v_s: float = 0.030
    temperatures: Sequence[float] = (0.0, 0.8)
    prompts: int = 3
    tokens: int = 64
    asks: str = "chat"
    """A prompt set; of a recording that is made."""
    pair: str = "smollm2"
    """Recorded, if a recording is made; else only named."""

    @property
    def answers(self) -> int:
        return self.prompts * len(self.networks) * len(_cases(self.temperatures))


def _cases(temperatures: Sequence[float]) -> list[Case]:
    """Without those that only real models have: n-grams, and a machine that two models share."""
    return [case for case in cases(temperatures) if case.drafting != "n-gram" and case.scheme != BUSY]


def _kinds(temperature: float) -> list[Drafting]:
    """Ways of drafting."""
    return sorted({case.drafting for case in _cases([temperature])} - {"none"})


def decisions(
    drafter: Drafter, prompt: Sequence[int], output: Sequence[int], sampling: Sampling, *, coupled: bool
) -> tuple[tuple[bool, ...], tuple[float, ...]]:
    """Where the drafter proposes the token of `output` behind what `output` has before it, and how sure it is."""
    continuation = drafter.begin(prompt, sampling, coupled=coupled)
    right: list[bool] = []
    confidence: list[float] = []
    for position, token in enumerate(output):
        proposal = continuation.propose()
        right.append(proposal is not None and proposal.token == token)
        confidence.append(0.0 if proposal is None else proposal.confidence)
        continuation.rollback(position)
        continuation.feed([token])
    continuation.close()
    return tuple(right), tuple(confidence)


async def record(settings: Settings, files: Pair, advance: Callable[[], None] = lambda: None) -> list[Tape]:
    """Raises RuntimeError for an answer without two tokens."""
    engine = LlamaCppEngine(files.target, model_id="target", context=_CONTEXT, streams=1, threads=1)
    drafter = LlamaCppDrafter(files.draft, streams=1, context=_CONTEXT, threads=1)
    await engine.start()
    tapes: list[Tape] = []
    try:
        for number, text in enumerate(prompt_set(settings.asks)[: settings.prompts]):
            prompt = tuple(engine.vocabulary.render([Message("user", text)]))
            for t in settings.temperatures:
                sampling = Sampling(temperature=t, top_p=0.95 if t else 1.0, seed=number)
                request = Request(
                    id=f"{number}-{t}", tenant="bench", prompt=prompt, sampling=sampling, max_tokens=settings.tokens
                )
                output = await Device(Drafts("none", (), engine.vocabulary.size)).run(engine, request)
                if len(output) < 2:
                    raise RuntimeError(f"the answer to prompt {number} has {len(output)} tokens")
                for kind in _kinds(t):
                    coupled = kind == "coupled"
                    right, sure = await asyncio.to_thread(decisions, drafter, prompt, output, sampling, coupled=coupled)
                    tapes.append(Tape(number, t, kind, right, sure))
                    advance()
    finally:
        drafter.close()
        await engine.stop()
    return tapes


@dataclass(slots=True)
class Deck:
    """The tape that one network's drafter plays at present. Its runtime stays, as a device's does."""

    tape: Tape

    def right(self, position: int) -> bool:
        return self.tape.right[position % len(self.tape.right)]

    def confidence(self, position: int) -> float:
        return self.tape.confidence[position % len(self.tape.confidence)]


@dataclass(frozen=True, slots=True)
class Played:
    sample: Sample
    simulated_s: float
    """Per token."""


def _ideal(tape: Tape, times: Times, case: Case) -> tuple[int, Outcome]:
    """The best γ of `sync`, and what the simulation has for this case; for auto that is eager's."""
    length, best = best_sync(tape.right, times, _LONGEST)
    found = {
        "cloud": simulate_cloud(tape.right, times),
        "sync": best,
        "hold": simulate(tape.right, times, "hold"),
    }.get(case.scheme)
    return length, found or simulate(tape.right, times, "eager")


def simulated(settings: Settings, tapes: Sequence[Tape]) -> list[Mapping[str, Any]]:
    """The event simulation alone on the recorded patterns: no clock runs, so a busy machine does no harm."""
    rows: list[Mapping[str, Any]] = []
    for name in settings.networks:
        times = Times(settings.t_d_s, settings.t_v_s, profile(name).link.median_s)
        for case in (case for case in _cases(settings.temperatures) if case.scheme != "auto"):
            kind = "top-1" if case.drafting == "none" else case.drafting
            own = [tape for tape in tapes if (tape.temperature, tape.drafting) == (case.temperature, kind)]
            intervals = [len(tape.right) - 1 for tape in own]
            ideal = [_ideal(tape, times, case)[1] for tape in own]
            itl_s = sum(one.itl_s * n for one, n in zip(ideal, intervals, strict=True)) / sum(intervals)
            right = [good for tape in own for good in tape.right]
            rows.append(
                {
                    "kind": "simulated",
                    "pair": settings.pair,
                    "network": name,
                    "rtt_ms": times.rtt_s * 1e3,
                    "temperature": case.temperature,
                    "drafting": case.drafting,
                    "scheme": case.scheme,
                    "alpha": None if case.drafting == "none" else sum(right) / len(right),
                    "sim_ms": itl_s * 1e3,
                    "over_cloud": itl_s / settings.t_v_s,
                    "steps_per_token": sum(one.steps_per_token for one in ideal) / len(ideal),
                }
            )
    return rows


async def _play(runtime: Runtime, script: Script, settings: Settings, case: Case, tape: Tape, rtt_s: float) -> Played:
    length, ideal = _ideal(tape, Times(settings.t_d_s, settings.t_v_s, rtt_s), case)
    request = Generate(
        prompt=tuple(script.vocabulary.encode(PROMPTS[tape.prompt])),
        sampling=Sampling(temperature=0, seed=0),
        max_tokens=len(tape.right),
        policy=case.policy,
        draft=case.drafting != "none",
        draft_length=length if case.scheme == "sync" else None,
    )
    return Played(Sample(await ask(runtime, request), 0.0, 0.0, length if case.scheme == "sync" else None), ideal.itl_s)


async def run(
    settings: Settings, tapes: Sequence[Tape], advance: Callable[[], None] = lambda: None
) -> list[Mapping[str, Any]]:
    """All rows; questions go to all schemes in turn."""
    script = Script(ScriptVocabulary())
    links = {name: profile(name).link for name in settings.networks}
    edge_core, cloud_core = cores()
    found: dict[tuple[str, Case], list[Played]] = {}
    rtts: dict[str, float] = {}
    async with AsyncExitStack() as stack:
        plan = Plan(engine="scripted", step_s=settings.t_v_s, core=cloud_core)
        address = await stack.enter_async_context(gateway(plan))
        ports = await stack.enter_async_context(proxies(address.port, links))
        # Not before: a child begins where its parent is.
        stack.enter_context(pinned(edge_core))
        for name, port in ports.items():
            url = f"http://127.0.0.1:{port}"
            socket = await stack.enter_async_context(Connection(url, key=address.key, timing=_TIMING))
            deck = Deck(tapes[0])
            drafter = ScriptedDrafter(script, deck.right, draft_s=settings.t_d_s, confidence=deck.confidence)
            runtime = await stack.enter_async_context(Runtime(socket, drafter))
            # The proxy's own delay is a part of the network; jitter and outages aren't of the simulation's.
            await _play(runtime, script, settings, _cases([0.0])[0], tapes[0], links[name].median_s)
            rtts[name] = rtt_s = max(links[name].median_s, min(socket.rtt_s or 0.0, links[name].median_s + 0.002))
            for number in range(settings.prompts):
                for case in _cases(settings.temperatures):
                    kind = "top-1" if case.drafting == "none" else case.drafting
                    deck.tape = next(
                        t for t in tapes if (t.prompt, t.temperature, t.drafting) == (number, case.temperature, kind)
                    )
                    played = await _play(runtime, script, settings, case, deck.tape, rtt_s)
                    found.setdefault((name, case), []).append(played)
                    advance()
    return [
        {"pair": settings.pair}
        | _row(name, case, played, found[name, Case("cloud", "eager", case.temperature, "none")], rtts[name])
        for (name, case), played in found.items()
    ]


def _row(name: str, case: Case, played: Sequence[Played], cloud: Sequence[Played], rtt_s: float) -> dict[str, Any]:
    samples = [one.sample for one in played]
    simulated_s = sum(p.simulated_s * p.sample.intervals for p in played) / sum(s.intervals for s in samples)
    made = row(name, case, samples, [one.sample for one in cloud], rtt_s)
    return {
        **made,
        "kind": "replay",
        "sim_ms": simulated_s * 1e3,
        "over_sim": made["itl_ms"] / (simulated_s * 1e3),
        # The scripted models', so of no meaning.
        "edge_cpu_ms_per_token": None,
        "cloud_cpu_ms_per_token": None,
    }


def load(report: Report, path: Path | None, settings: Settings) -> list[Tape]:
    """The recording in `path`; made, and left there, if there is none."""
    if path is not None and path.is_file():
        return msgspec.json.decode(path.read_bytes(), type=list[Tape])
    files = fetched(report, settings.pair)
    with report.progress() as progress:
        kinds = sum(len(_kinds(t)) for t in settings.temperatures)
        task = progress.add_task("recording", total=settings.prompts * kinds)
        tapes = asyncio.run(record(settings, files, lambda: progress.advance(task)))
    if path is not None:
        path.write_bytes(msgspec.json.encode(tapes))
    return tapes


def command(report: Report, settings: Settings, recording: Path | None, *, simulate_only: bool = False) -> None:
    report.say("Replay: real acceptance patterns, scripted models with times of our choice.")
    tapes = load(report, recording, settings)
    if simulate_only:
        rows = simulated(settings, tapes)
        report.table(f"Simulated on {settings.pair}'s patterns, not live; ms", rows)
        report.result({"rows": rows})
        return
    with report.progress() as progress:
        task = progress.add_task("answers", total=settings.answers)
        rows = asyncio.run(run(settings, tapes, lambda: progress.advance(task)))
    times = f"t_d {settings.t_d_s * 1e3:g} ms, t_v {settings.t_v_s * 1e3:g} ms"
    for name in settings.networks:
        own = [{short: row[key] for key, short in COLUMNS.items()} for row in rows if row["network"] == name]
        report.table(f"{name}, replay of {settings.pair} at {times}; ms", own)
    report.result({"rows": rows})
