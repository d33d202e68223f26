"""`paceline-edge doctor`: is everything there, how fast is it, and does drafting pay on this device."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from typing import Literal

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.text import Text

from edge.ask import Answered, ask_hybrid
from edge.chat import advice
from edge.cloud import Cloud
from edge.config import DeviceSettings, gateway_url
from edge.drafters.base import Drafter
from edge.drafters.load import DrafterUnavailable, load_drafter, mlc_model
from edge.errors import EdgeError
from edge.generate import Generate
from edge.models import ModelError, find
from edge.protocol.errors import ProtocolError
from edge.protocol.frames import Message, ModelInfo, Sampling
from edge.route import connected, recorder_for
from edge.runtime import Runtime
from edge.terminal import SilentAnswer
from edge.verdict import Measured, Verdict, judge
from edge.worker import Worker

_PROMPTS = (
    "Write a short story about a lighthouse keeper.",
    "List the months of the year, each with one holiday in it.",
)
"""Prose and a list: drafts do well on the second."""
_TOKENS = 48
_GREEDY = Sampling(temperature=0.0, seed=0)

State = Literal["ok", "failed", "absent"]
_MARKS: dict[State, tuple[str, str]] = {"ok": ("✓", "green"), "failed": ("✗", "red"), "absent": ("–", "dim")}


class Check(Struct, frozen=True):
    name: str
    state: State
    """`absent`: not there, and not needed."""
    detail: str
    advice: str = ""


class Report(Struct):
    checks: list[Check]
    measured: Measured | None = None
    verdict: Verdict | None = None

    @property
    def healthy(self) -> bool:
        return all(check.state != "failed" for check in self.checks)


Note = Callable[[Check], None]


def run_doctor(settings: DeviceSettings, *, as_json: bool) -> int:
    """Returns the exit status: 0 if nothing that is needed is missing."""
    console = Console(stderr=as_json)
    report = Report([])

    def note(check: Check) -> None:
        report.checks.append(check)
        if not as_json:
            console.print(_line(check))

    try:
        with console.status("Looking and measuring …"):
            asyncio.run(examine(settings, report, note))
    except KeyboardInterrupt:
        return 130
    if as_json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    elif report.measured is not None and report.verdict is not None:
        console.print(_verdict_lines(report.measured, report.verdict))
    return 0 if report.healthy else 1


async def examine(settings: DeviceSettings, report: Report, note: Note) -> None:
    """Everything, in the order in which one thing needs the other."""
    for check in (*installed(), draft_model(settings)):
        note(check)
    drafter = await asyncio.to_thread(_drafter, settings)
    try:
        await examine_gateway(settings, drafter, report, note)
    except (EdgeError, ProtocolError) as error:
        note(Check("measurement", "failed", advice(error)))
    finally:
        if drafter is not None:
            drafter.close()


def installed() -> list[Check]:
    checks = [Check("paceline", "ok", f"{_version('paceline')} on Python {sys.version.split()[0]}")]
    llama = _version("llama-cpp-python")
    wish = "" if llama else "`pip install 'paceline[llama]'` for drafts by a model; --drafter ngram needs none"
    checks.append(Check("llama.cpp", "ok" if llama else "absent", llama or "not installed", wish))
    checks.append(_mlc())
    return checks


def _mlc() -> Check:
    """Its distributions have many names, and the one called mlc-llm on the public index is an empty one."""
    if find_spec("mlc_llm") is None:
        return Check("MLC", "absent", "not installed, not needed")
    names = packages_distributions().get("mlc_llm", [])
    return Check("MLC", "ok", ", ".join(f"{name} {_version(name)}" for name in names) or "from its source")


def draft_model(settings: DeviceSettings) -> Check:
    if settings.drafter == "mlc":
        return _mlc_model(settings)
    if settings.drafter != "llama":
        return Check("draft model", "absent", f"drafter {settings.drafter} needs none")
    try:
        path = find(settings.draft_model, settings.model_dir.expanduser())
    except ModelError as error:
        return Check("draft model", "failed", f"{settings.draft_model} is missing", str(error))
    return Check("draft model", "ok", f"{path.name}, {path.stat().st_size / 1e6:.0f} MB")


def _mlc_model(settings: DeviceSettings) -> Check:
    if find_spec("mlc_llm") is None:
        return Check("draft model", "failed", "drafter mlc without MLC-LLM", "docs/edge.md says how to install it")
    try:
        folder, library = mlc_model(settings)
    except DrafterUnavailable as error:
        return Check("draft model", "failed", settings.draft_model, str(error))
    return Check("draft model", "ok", f"{folder.name}, compiled to {library.name}")


def _drafter(settings: DeviceSettings) -> Drafter | None:
    """The drafter, if it can be had without a download; the checks before have said why not."""
    if draft_model(settings).state == "failed":
        return None
    try:
        return load_drafter(settings)
    except EdgeError:
        return None


async def examine_gateway(settings: DeviceSettings, drafter: Drafter | None, report: Report, note: Note) -> None:
    """What can be found out over the network. Raises EdgeError or ProtocolError when that breaks half-way."""
    url, key = gateway_url(settings.url), settings.key()
    if not key:
        wish = "Set PACELINE_API_KEY or give --key; `paceline-gateway keys create` makes one."
        note(Check("API key", "failed", "none", wish))
    try:
        async with Cloud(url, key, allow_plain=settings.allow_plain) as cloud:
            models = await cloud.models()
    except EdgeError as error:
        note(Check("gateway", "failed", url, advice(error)))
        return
    note(Check("gateway", "ok", f"{url}, key accepted"))
    note(Check("models", "ok" if models else "failed", ", ".join(models) or "none is ready"))
    recorder = recorder_for(settings, drafter)
    try:
        async with connected(settings, drafter, recorder) as (connection, model, fits):
            if drafter is not None and drafter.fingerprint:
                note(_same_tokenizer(model, drafter))
            async with Runtime(connection, drafter if fits else None) as runtime:
                await _measure(runtime, model, report, note)
    finally:
        if recorder is not None:
            recorder.over()


def _same_tokenizer(model: ModelInfo, drafter: Drafter) -> Check:
    name = drafter.name
    if model.match:
        return Check("tokenizer", "ok", f"{name} has the one of {model.id}")
    wish = "Name a draft model of the same family by PACELINE_DRAFT_MODEL, or use --drafter ngram."
    return Check("tokenizer", "failed", f"{name} has another one than {model.id}", wish)


async def _measure(runtime: Runtime, model: ModelInfo, report: Report, note: Note) -> None:
    alone = await _answer(runtime, model, _PROMPTS[0], draft=False)
    step_s, rtt_s = alone.figures.itl_s, runtime.connection.rtt_s
    note(Check("round trip", "ok", "not measured" if rtt_s is None else f"{1000 * rtt_s:.1f} ms (R)"))
    if step_s is None:
        note(Check("target", "failed", "the answer was too short to measure"))
        return
    note(Check("target", "ok", f"{1000 * step_s:.1f} ms a token on its own (t_v)"))
    if runtime.drafter is None:
        return
    draft_s = await _timed(runtime.drafter)
    if draft_s is not None:
        note(Check("drafter", "ok", f"{1000 * draft_s:.1f} ms a token (t_d)"))
    drafted = [await _answer(runtime, model, prompt, draft=True) for prompt in _PROMPTS]
    alpha = acceptance_rate(drafted)
    if alpha is None or draft_s is None:
        note(Check("acceptance", "absent", "nothing to compare: the drafter had no proposals for these prompts"))
        return
    note(Check("acceptance", "ok", f"{alpha:.2f} of the draft tokens agreed (α)"))
    report.measured = Measured(draft_s, step_s, rtt_s or 0.0, alpha)
    report.verdict = judge(report.measured)


async def _answer(runtime: Runtime, model: ModelInfo, prompt: str, *, draft: bool) -> Answered:
    request = Generate(
        model=model.id,
        messages=(Message("user", prompt),),
        sampling=_GREEDY,
        max_tokens=_TOKENS,
        policy="eager",
        draft=draft,
    )
    return await ask_hybrid(runtime, request, SilentAnswer())


async def _timed(drafter: Drafter) -> float | None:
    worker = Worker()
    try:
        return await worker.run(lambda: draft_time(drafter))
    finally:
        await worker.close()  # Ctrl-C leaves the call under way, and the drafter must not be closed under it


def draft_time(drafter: Drafter) -> float | None:
    """Median seconds of a proposal, after the prompt. None if there were too few."""
    prompt = drafter.vocabulary.render([Message("user", _PROMPTS[0])]) if drafter.vocabulary is not None else []
    continuation = drafter.begin(prompt, _GREEDY)
    times: list[float] = []
    try:
        for _ in range(25):
            began = time.perf_counter()
            if continuation.propose() is None:
                break
            times.append(time.perf_counter() - began)
    finally:
        continuation.close()
    return statistics.median(times[1:]) if len(times) > 4 else None  # the first one computes the prompt


def acceptance_rate(answers: Sequence[Answered]) -> float | None:
    """α over all of them, each counted by its length; None if no draft was compared."""
    rates = [(a.figures.acceptance_rate, a.figures.tokens) for a in answers]
    known = [(rate, tokens) for rate, tokens in rates if rate is not None]
    total = sum(tokens for _, tokens in known)
    return sum(rate * tokens for rate, tokens in known) / total if total else None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _line(check: Check) -> Text:
    mark, style = _MARKS[check.state]
    text = Text.assemble((f"{mark} ", style), (f"{check.name:<12} ", "bold"), check.detail)
    if check.advice and check.advice != check.detail:
        text.append(f"\n  → {check.advice}", style="yellow" if check.state == "failed" else "dim")
    return text


def _verdict_lines(measured: Measured, verdict: Verdict) -> Text:
    """The formulas' times by scheme, the winner marked, and the advice."""
    text = Text("\nExpected time between tokens\n", style="bold")
    for scheme, itl_s in verdict.itl_s.items():
        best = scheme == verdict.best
        text.append(f"{'▸' if best else ' '} {scheme:<12} {1000 * itl_s:7.1f} ms", style="green" if best else "")
        if scheme == "synchronous":
            balance = f"the paper's balance point is {verdict.balanced_draft_length:.1f}"
            text.append(f"  ({verdict.draft_length} tokens a round; {balance})", style="dim")
        text.append("\n")
    text.append(f"\n{verdict.advice}")
    return text
