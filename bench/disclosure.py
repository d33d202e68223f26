"""`bench disclosure`: what each privacy mode sends, read from the wire, beside what the disclosure log says was sent.

One question with personal data in it is asked in each mode, as `paceline-edge chat` asks it, of the embedded pair or of
a scripted one. Between device and gateway stands a capture of TCP's bytes (capture.py) that shares no code with either;
the messages that it found are taken apart here, by MessagePack alone, and the token ids in them turned into text.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
from pydantic import SecretStr

from bench.capture import Capture
from bench.gateway import Plan, gateway
from bench.report import Report, machine
from edge.config import DeviceSettings, Mode
from edge.drafters.base import Drafter
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.openai.vocabulary import Vocabulary
from edge.privacy import Disclosure, DisclosureLog
from edge.protocol.frames import Message, Sampling
from edge.redacted import RedactedRoute
from edge.route import LocalRoute, Question, Route, open_hybrid
from edge.script import Script, ScriptVocabulary
from edge.terminal import SilentAnswer

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
DATA: Final = ("Ada Lovelace", "ada@example.org", "4111 1111 1111 1111")
TEXT: Final = f"My name is {DATA[0]}. Write to {DATA[1]} that my card {DATA[2]} was charged twice."

_UNRECORDED: Final = frozenset({"hello", "ping"})
"""What every socket says, whatever is asked."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What left, by the wire or by the log."""

    prompt: bytes = b""
    """What the prompt's token ids decode to."""
    drafts: bytes = b""
    draft_tokens: int = 0
    size: int = 0
    """Bytes of all messages about the question."""
    by_http: bytes = b""
    """The messages of a question asked over HTTP, as `role: content` lines."""
    http_size: int = 0


def on_the_wire(capture: Capture, vocabulary: Vocabulary) -> Sent:
    messages = [(message, msgspec.msgpack.decode(message)) for message in capture.messages()]
    told = [(message, frame) for message, frame in messages if frame[0] not in _UNRECORDED]
    drafted = [frame[4] for _, frame in told if frame[0] == "draft"]
    bodies = capture.bodies()
    said = [f"{m['role']}: {m['content']}" for body in bodies for m in msgspec.json.decode(body)["messages"]]
    return Sent(
        _text([token for _, frame in told if frame[0] == "open" for token in frame[3]], vocabulary),
        _text([token for tokens in drafted for token in tokens], vocabulary),
        sum(map(len, drafted)),
        sum(len(message) for message, _ in told),
        "\n".join(said).encode(),
        sum(map(len, bodies)),
    )


def by_the_log(disclosures: Sequence[Disclosure]) -> Sent:
    sent = Sent()
    for disclosure in disclosures:
        text, over = disclosure.sent.text.encode(), disclosure.over
        if over is None:
            raise RuntimeError("a request without its end in the log")
        if disclosure.sent.route == "hybrid":
            sent = Sent(text, over.drafts.encode(), over.draft_tokens, over.bytes_up, sent.by_http, sent.http_size)
        else:
            sent = Sent(sent.prompt, sent.drafts, sent.draft_tokens, sent.size, text, over.bytes_up)
    return sent


def _text(tokens: Sequence[int], vocabulary: Vocabulary) -> bytes:
    data = b"".join(vocabulary.piece(token) for token in tokens)
    return data.decode(errors="replace").encode()  # as the log writes bytes that are no text


async def ask(mode: Mode, port: int, key: str, drafter: Drafter, tokens: int) -> tuple[Capture, list[Disclosure]]:
    """One question in this mode, and the same over HTTP for comparison where the mode allows it."""
    question = Question(
        messages=(Message("user", TEXT),), sampling=Sampling(temperature=0.8, seed=5), max_tokens=tokens
    )
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        capture = await stack.enter_async_context(Capture(port))
        settings = DeviceSettings(  # type: ignore[call-arg]
            _env_file=None, url=capture.url, api_key=SecretStr(key), state_dir=folder, privacy=mode
        )
        async with AsyncExitStack() as routes:
            route: Route
            if mode == "local":
                route = LocalRoute(drafter)
            else:
                route = await routes.enter_async_context(open_hybrid(settings, drafter, print))
            if mode == "redacted":
                route = RedactedRoute(route, settings)
            await route.ask(question, SilentAnswer())
            await route.compare(question)
        return capture, DisclosureLog(settings.disclosures()).read()


async def run(engine: str, tokens: int) -> list[dict[str, Any]]:
    rows = []
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(gateway(Plan(engine=engine, step_s=0.005, streams=2)))
        drafter = _drafter(engine)
        stack.callback(drafter.close)
        assert drafter.vocabulary is not None  # noqa: S101 (both have one)
        for mode in MODES:
            capture, disclosures = await ask(mode, address.port, address.key, drafter, tokens)
            wire, log = on_the_wire(capture, drafter.vocabulary), by_the_log(disclosures)
            everything = b"".join(bytes(sent) for sent in capture.connections) + wire.prompt + wire.drafts
            rows.append(
                {
                    "mode": mode,
                    "wire": _shown(wire),
                    "equal": wire == log,
                    "data_on_the_wire": sum(datum.encode() in everything for datum in DATA),
                    "connections": len(capture.connections),
                }
            )
    return rows


def _drafter(engine: str) -> Drafter:
    if engine == "scripted":
        return ScriptedDrafter(Script(ScriptVocabulary()), right_with(0.7))
    from edge.drafters.llama_cpp import LlamaCppDrafter
    from edge.models import default_directory, pair

    return LlamaCppDrafter(pair(default_directory()).draft)


def _shown(sent: Sent) -> dict[str, Any]:
    return {
        "prompt": sent.prompt.decode(),
        "drafts": sent.drafts.decode(),
        "draft_tokens": sent.draft_tokens,
        "bytes": sent.size,
        "http": sent.by_http.decode(),
        "http_bytes": sent.http_size,
    }


def command(report: Report, engine: str, tokens: int) -> None:
    rows = asyncio.run(run(engine, tokens))
    report.say(f"The question: {TEXT}")
    for row in rows:
        wire = row["wire"]
        report.say(f"\n{row['mode']}: {wire['bytes']} bytes of messages, {wire['http_bytes']} of HTTP bodies")
        for what in ("prompt", "drafts", "http"):
            report.say(f"  {what:<7} {wire[what]!r}")
    counted = ("bytes", "draft_tokens", "http_bytes")
    table = [row | {what: row["wire"][what] for what in counted} for row in rows]
    report.table("what left, by the wire", table, ("mode", "connections", *counted, "data_on_the_wire", "equal"))
    report.say(f"equal: to the disclosure log, byte for byte. data_on_the_wire: of {len(DATA)} in the question.")
    report.result({"rows": rows, "engine": engine, "machine": machine()})
    if not all(row["equal"] for row in rows):
        raise SystemExit("the disclosure log differs from the wire")
