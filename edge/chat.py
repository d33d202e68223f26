"""`paceline-edge chat`: a question or a conversation on a terminal."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
from rich.console import Console
from rich.text import Text

from edge.ask import Answered
from edge.config import DeviceSettings
from edge.drafters.base import Drafter
from edge.drafters.load import load_drafter
from edge.errors import EdgeError, Unreachable
from edge.keyboard import Lines
from edge.protocol.errors import ProtocolError, Unauthorised
from edge.protocol.frames import Message, Sampling
from edge.redacted import RedactedRoute
from edge.route import LocalRoute, Question, Route, open_route
from edge.terminal import (
    Answer,
    LiveAnswer,
    PlainAnswer,
    SilentAnswer,
    figures_line,
    figures_table,
    legend,
    model_progress,
)

_HINT = "Ctrl-C stops an answer · /new forgets the conversation · Ctrl-D leaves"


@dataclass(frozen=True, slots=True)
class Wishes:
    """How this chat is to be, beside the device's settings."""

    max_tokens: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    compare: bool = False
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Screens:
    out: Console
    """The answer."""
    side: Console
    """All else: the same when it is a terminal, else stderr, so that a pipe gets the answer alone."""


def run_chat(settings: DeviceSettings, wishes: Wishes, question: str | None) -> int:
    """Returns the exit status."""
    out = Console()
    screens = Screens(out, out if out.is_terminal and not wishes.as_json else Console(stderr=True))
    try:
        asyncio.run(_chat(settings, wishes, question, screens))
    except (EdgeError, ProtocolError) as error:
        screens.side.print(Text(advice(error), style="red"))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def advice(error: Exception) -> str:
    """An error as a sentence that says what to do."""
    if isinstance(error, Unauthorised):
        if error.message.startswith("hello carries"):  # it had none to send
            return "The gateway wants an API key: set PACELINE_API_KEY, or give --key. Its operator makes them."
        return f"The gateway refused the API key ({str(error).rstrip('.')}). Give it by PACELINE_API_KEY or --key."
    if isinstance(error, Unreachable):
        return f"{error}. Is `paceline-gateway serve` running there? --url or PACELINE_URL names another."
    return str(error)


async def _chat(settings: DeviceSettings, wishes: Wishes, question: str | None, screens: Screens) -> None:
    with model_progress(screens.side) as fetched:
        drafter = load_drafter(settings, fetched=fetched)
    try:
        async with _route(settings, drafter, screens) as route:
            screens.side.print(Text(route.title, style="bold"))
            if question is None:
                await converse(route, wishes, screens, Lines())
            else:
                await _ask_once(route, wishes, question, screens)
    finally:
        if drafter is not None:
            drafter.close()


@asynccontextmanager
async def _route(settings: DeviceSettings, drafter: Drafter | None, screens: Screens) -> AsyncIterator[Route]:
    if settings.privacy == "local":
        yield LocalRoute(drafter)
        return
    async with open_route(settings, drafter, lambda text: screens.side.print(Text(text, style="yellow"))) as route:
        yield RedactedRoute(route, settings) if settings.privacy == "redacted" else route


def _answer(wishes: Wishes, screens: Screens) -> Answer:
    if wishes.as_json:
        return SilentAnswer()
    return LiveAnswer(screens.out) if screens.out.is_terminal else PlainAnswer(sys.stdout)


def question_of(wishes: Wishes, messages: list[Message]) -> Question:
    # Drawn here rather than by the cloud, so that both routes of a comparison have the same.
    seed = secrets.randbits(53) if wishes.seed is None else wishes.seed
    sampling = Sampling(temperature=wishes.temperature, top_p=wishes.top_p, seed=seed)
    return Question(messages=tuple(messages), sampling=sampling, max_tokens=wishes.max_tokens)


async def _ask_once(route: Route, wishes: Wishes, text: str, screens: Screens) -> None:
    question = question_of(wishes, [Message("user", text)])
    if screens.out.is_terminal and not wishes.as_json:
        if route.verified:
            screens.out.print(legend())
        screens.out.print()
    if (
        wishes.compare
    ):  # both sides compute the prompt now: else whoever asks first would pay for it and the other profit
        await route.ask(msgspec.structs.replace(question, max_tokens=8), SilentAnswer())
    with _answer(wishes, screens) as answer:
        answered = await route.ask(question, answer)
    other: Answered | None = None
    if wishes.compare:
        with screens.side.status("The same question, cloud only …"):
            other = await route.compare(question)
    if wishes.as_json:
        sys.stdout.write(_as_json(question, answered, other) + "\n")
        return
    for incident in incidents(answered):
        screens.side.print(incident)
    rows = {route.name: answered.figures} | ({"cloud only": other.figures} if other else {})
    screens.side.print(figures_table(rows))
    if other:
        screens.side.print(comparison(answered, other))


async def converse(route: Route, wishes: Wishes, screens: Screens, lines: Lines) -> None:
    """Question after question, each with all that was said before, until the input ends."""
    if screens.out.is_terminal:
        if route.verified:
            screens.out.print(legend())
        screens.out.print(Text(_HINT, style="dim"))
    messages: list[Message] = []
    while True:
        screens.side.print("\n[bold]›[/] ", end="")
        if (line := await lines.next()) is None:
            break
        if line.strip() == "/new":
            messages.clear()
        elif line.strip():
            answered = await _turn(route, wishes, [*messages, Message("user", line)], screens)
            if answered is not None:
                messages += [Message("user", line), Message("assistant", answered.text)]
    screens.side.print()


async def _turn(route: Route, wishes: Wishes, messages: list[Message], screens: Screens) -> Answered | None:
    """One answer; None if Ctrl-C stopped it."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101
    try:
        with _answer(wishes, screens) as answer:
            answered = await route.ask(question_of(wishes, messages), answer)
    except asyncio.CancelledError:
        # asyncio.run turns Ctrl-C into the main task's cancellation. This one has been honoured: go on with the next.
        task.uncancel()
        screens.side.print(Text("stopped", style="yellow"))
        return None
    screens.side.print(*incidents(answered), figures_line(answered.figures), sep="\n")
    return answered


def incidents(answered: Answered) -> list[Text]:
    """What went wrong on the way and was mended, for the user to know."""
    found = []
    if answered.measures is not None and answered.measures.drafter_failed:
        found.append(Text("The drafter failed (its log says why): the cloud answered alone.", style="yellow"))
    if answered.measures is not None and answered.measures.attachments > 1:
        lost = answered.measures.attachments - 1
        found.append(Text(f"The connection was lost {lost}× and resumed; no token was.", style="yellow"))
    return found


def comparison(hybrid: Answered, cloud: Answered) -> Text:
    """Whether both routes said the same, and which was faster."""
    if hybrid.text == cloud.text:
        text = Text("Same text", style="green")
    else:
        at = next(
            (i for i, (a, b) in enumerate(zip(hybrid.text, cloud.text, strict=False)) if a != b),
            min(len(hybrid.text), len(cloud.text)),
        )
        why = "a tie in floating point? see docs/results.md"
        text = Text(f"The texts differ from character {at + 1} on ({why})", "yellow")
    if hybrid.figures.itl_s and cloud.figures.itl_s:
        ratio = hybrid.figures.itl_s / cloud.figures.itl_s
        faster = f"{1 - ratio:.0%} less" if ratio < 1 else f"{ratio - 1:.0%} more"
        text.append(f" · {faster} time between tokens", style="default")
    if hybrid.figures.steps_per_token:
        text.append(f" · {hybrid.figures.steps_per_token:.2f} target steps a token instead of 1", style="default")
    return text


def _as_json(question: Question, answered: Answered, other: Answered | None) -> str:
    result = {
        "text": answered.text,
        "reason": answered.reason,
        "seed": question.sampling.seed,
        "figures": answered.figures,
        "cloud_only": other and {"text": other.text, "reason": other.reason, "figures": other.figures},
        "identical": other and other.text == answered.text,
    }
    return msgspec.json.encode(result).decode()
