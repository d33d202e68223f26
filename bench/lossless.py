"""`bench lossless`: hybrid streams equal the cloud-only stream, token for token, whatever the drafts are.

Every prompt × sampling × policy × kind of draft, once with one stream at a time and once with eight together, of all
kinds mixed. The reference is the same engine, cloud-only, one stream at a time. Where two runs part, ties.py says
whether floating-point noise explains it; then the comparison goes on from the reference's prefix. Anything else is a
fault.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from app.engine.base import Engine, Request
from app.engine.llama_cpp import LlamaCppEngine, LlamaCppModel
from app.engine.model import Model
from bench.hybrid import KINDS, Device, Drafts, Kind, first_difference
from bench.noise import Noise, Sample, measure
from bench.prompts import PROMPTS
from bench.report import Report
from bench.ties import Difference, Judge
from edge import llama
from edge.models import default_directory, pair
from edge.protocol.frames import Message, Policy, Sampling

POLICIES: tuple[Policy, ...] = ("eager", "hold")
RULES: dict[str, Sampling] = {
    "greedy": Sampling(temperature=0),
    "sampled": Sampling(temperature=0.8, top_p=0.95),
}
BATCHES = (1, 8)
TIES_ALLOWED = 0.002
"""Share of all compared tokens."""


@dataclass(frozen=True, slots=True)
class Case:
    prompt: int
    rule: str
    policy: Policy
    kind: Kind
    batch: int

    @property
    def name(self) -> str:
        return f"{self.rule} {self.policy} {self.kind} ×{self.batch}"


@dataclass(slots=True)
class Tally:
    """What was compared, by case name."""

    streams: int = 0
    tokens: Counter[str] = field(default_factory=Counter)
    ties: list[Difference] = field(default_factory=list)
    faults: list[Difference] = field(default_factory=list)
    verified: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)

    @property
    def tie_share(self) -> float:
        return len(self.ties) / max(1, self.tokens.total())

    def rows(self) -> list[dict[str, Any]]:
        """One row per case; drafts accepted and steps show that drafts took part at all."""
        ties, faults = Counter(d.case for d in self.ties), Counter(d.case for d in self.faults)
        return [
            {
                "case": case,
                "tokens": tokens,
                "ties": ties[case],
                "faults": faults[case],
                "verified": self.verified[case],
                "accepted": self.accepted[case],
                "steps_per_token": self.steps[case] / tokens,
            }
            for case, tokens in sorted(self.tokens.items())
        ]


@dataclass(slots=True)
class Comparison:
    """Compares streams of one engine with their references."""

    engine: Engine
    prompts: Sequence[tuple[int, ...]]
    tokens: int
    """Of every output, exactly: it can't end before, and is cut there."""
    advance: Callable[[], None] = lambda: None
    """Called once per stream."""
    references: dict[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    _count: int = 0

    def request(self, prompt: int, rule: str, policy: Policy, committed: Sequence[int] = ()) -> Request:
        sampling = RULES[rule]
        self._count += 1
        return Request(
            id=f"lossless-{self._count}",
            tenant="bench",
            prompt=self.prompts[prompt],
            sampling=Sampling(sampling.temperature, top_p=sampling.top_p, seed=1000 + prompt),
            max_tokens=self.tokens,
            min_tokens=self.tokens,
            policy=policy,
            hold_s=0.1,
            committed=tuple(committed),
        )

    async def refer(self) -> None:
        """The cloud-only outputs, one stream at a time."""
        for rule in RULES:
            for prompt in range(len(self.prompts)):
                device = Device(Drafts("none", (), self.engine.vocabulary.size))
                output = await device.run(self.engine, self.request(prompt, rule, "eager"))
                self.references[prompt, rule] = tuple(output)
                self.advance()

    async def compare(self, cases: Iterable[Case], judge: Judge, together: int) -> None:
        """Run cases, `together` at a time, each as soon as there is room for it."""
        waiting = iter(cases)

        async def work() -> None:
            for case in waiting:
                await self._compare(case, judge)
                self.advance()

        async with asyncio.TaskGroup() as group:
            for _ in range(together):
                group.create_task(work())

    async def _compare(self, case: Case, judge: Judge) -> None:
        tally, reference = self.tally, self.references[case.prompt, case.rule]
        tally.streams += 1
        tally.tokens[case.name] += len(reference)
        committed: tuple[int, ...] = ()
        while len(committed) < len(reference):
            device = self._device(case, reference)
            output = await device.run(self.engine, self.request(case.prompt, case.rule, case.policy, committed))
            tally.verified[case.name] += device.usage.verified
            tally.accepted[case.name] += device.usage.accepted
            tally.steps[case.name] += device.usage.steps
            at = first_difference(output, reference)
            if at is None:
                return
            difference = self._judge(case, judge, output, at)
            if not difference.tie:
                tally.faults.append(difference)
                return
            tally.ties.append(difference)
            committed = reference[: at + 1]

    def _device(self, case: Case, reference: tuple[int, ...]) -> Device:
        """Windows and blocks of many sizes, so that the engine makes batches of many shapes."""
        seed = case.prompt * 16 + case.batch
        drafts = Drafts(case.kind, reference, self.engine.vocabulary.size, seed)
        leave_at = len(reference) // 2 if case.kind == "leaves" else None
        return Device(drafts, window=1 + (3 * case.prompt + 4) % 8, block=1 + case.prompt % 3, leave_at=leave_at)

    def _judge(self, case: Case, judge: Judge, output: Sequence[int], at: int) -> Difference:
        sample = Sample(self.prompts[case.prompt], self.references[case.prompt, case.rule])
        sampling = self.request(case.prompt, case.rule, case.policy).sampling
        return judge.judge(case.prompt, case.name, sample, sampling, output, at)


def all_cases(prompts: int, batch: int, policies: Sequence[Policy] = POLICIES, seed: int = 0) -> list[Case]:
    """Every combination; shuffled when streams run together, so that steps hold all kinds."""
    cases = [
        Case(prompt, rule, policy, kind, batch)
        for rule in RULES
        for policy in policies
        for kind in KINDS
        for prompt in range(prompts)
    ]
    if batch > 1:
        order = np.random.default_rng(seed).permutation(len(cases))
        return [cases[i] for i in order]
    return cases


@dataclass(frozen=True, slots=True)
class Result:
    tally: Tally
    noise: Noise

    def data(self) -> dict[str, Any]:
        tally = self.tally
        return {
            "streams": tally.streams,
            "tokens": tally.tokens.total(),
            "ties": len(tally.ties),
            "tie_share": tally.tie_share,
            "faults": len(tally.faults),
            "noise": self.noise.largest,
            "noise_rows": self.noise.rows,
            "noise_by_shape": self.noise.summary(),
            "rows": tally.rows(),
            "differences": [msgspec.to_builtins(d) for d in (*tally.faults, *tally.ties)],
        }


@asynccontextmanager
async def _target(steady: bool) -> AsyncIterator[tuple[LlamaCppEngine, LlamaCppModel]]:
    """The embedded target twice: behind the engine, and for the judge."""
    path = pair(default_directory()).target
    engine = LlamaCppEngine(path, model_id="target", context=512, streams=8, threads=1, steady=steady)
    await engine.start()
    try:
        settings = llama.ContextSettings(sequences=8, tokens=4096, threads=1, steady=steady)
        model = LlamaCppModel(llama.Model(path), settings)
        try:
            yield engine, model
        finally:
            model.close()
    finally:
        await engine.stop()


async def run(
    engine: Engine,
    model: Model,
    prompts: Sequence[tuple[int, ...]],
    tokens: int,
    advance: Callable[[], None] = lambda: None,
) -> Result:
    """References, then the noise on their contexts, then every case."""
    comparison = Comparison(engine, prompts, tokens, advance)
    await comparison.refer()
    samples = [Sample(prompt, comparison.references[i, "greedy"]) for i, prompt in enumerate(prompts[:8])]
    noise = measure(model, samples, advance)
    judge = Judge(model, noise.largest, min_tokens=tokens)
    for batch in BATCHES:
        await comparison.compare(all_cases(len(prompts), batch), judge, together=batch)
    return Result(comparison.tally, noise)


def streams(prompts: int) -> int:
    """How many streams a run takes, references included."""
    return prompts * len(RULES) * (1 + len(BATCHES) * len(POLICIES) * len(KINDS))


def command(report: Report, prompts: int, tokens: int, *, steady: bool) -> None:
    result = asyncio.run(_embedded(report, prompts, tokens, steady=steady))
    data = result.data()
    report.table("Noise of a logit between batch shapes", data["noise_by_shape"])
    report.table("Hybrid against cloud-only", data["rows"])
    if data["differences"]:
        report.table("Where they parted", data["differences"])
    report.say(
        f"{data['streams']} streams, {data['tokens']} tokens compared: {data['faults']} faults,"
        f" {data['ties']} floating-point ties ({data['tie_share']:.3%}, at most {TIES_ALLOWED:.1%});"
        f" noise at most {data['noise']:.4f} over {data['noise_rows']} rows"
    )
    report.result({"steady": steady, "prompts": prompts, "tokens_per_prompt": tokens, **data})
    if data["faults"] or data["tie_share"] > TIES_ALLOWED:
        raise SystemExit(1)


async def _embedded(report: Report, prompts: int, tokens: int, *, steady: bool) -> Result:
    async with _target(steady) as (engine, model):
        rendered = [tuple(engine.vocabulary.render([Message("user", text)])) for text in PROMPTS[:prompts]]
        with report.progress() as progress:
            task = progress.add_task("streams", total=streams(prompts))
            return await run(engine, model, rendered, tokens, lambda: progress.advance(task))
