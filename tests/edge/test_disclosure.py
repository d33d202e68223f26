"""What each privacy mode sends, read from the wire by a capture of its own, is what the disclosure log says."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pydantic import SecretStr

from bench.capture import Capture
from edge.config import DeviceSettings, Mode
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.openai.vocabulary import Vocabulary
from edge.privacy import Disclosure, DisclosureLog
from edge.protocol.frames import Message, Sampling
from edge.redacted import RedactedRoute
from edge.route import LocalRoute, Question, open_hybrid
from edge.terminal import SilentAnswer
from tests.app.serving import scripted, serving

DATUM = "ada@example.org"
QUESTION = Question(
    messages=(Message("user", f"write to {DATUM} about the bridge"),),
    sampling=Sampling(temperature=0.8, seed=5),
    max_tokens=30,
)


def text_of(frames: list[list[object]], tag: str, field: int, vocabulary: Vocabulary) -> bytes:
    """What the token ids in a field of all frames of a type decode to."""
    ids = [token for frame in frames if frame[0] == tag for token in frame[field]]  # type: ignore[attr-defined]
    return b"".join(vocabulary.piece(token) for token in ids)


def check(capture: Capture, disclosure: Disclosure, vocabulary: Vocabulary) -> None:
    """The log's word on a hybrid request against the captured messages, byte for byte."""
    messages = {message: msgspec.msgpack.decode(message) for message in capture.messages()}
    of_stream = {message: frame for message, frame in messages.items() if frame[0] not in ("hello", "ping")}
    frames = list(of_stream.values())
    assert {frame[0] for frame in frames} <= {"open", "draft", "cancel"}
    assert disclosure.over is not None
    assert text_of(frames, "open", 3, vocabulary).decode(errors="replace").encode() == disclosure.sent.text.encode()
    assert text_of(frames, "draft", 4, vocabulary).decode(errors="replace").encode() == disclosure.over.drafts.encode()
    assert sum(map(len, of_stream)) == disclosure.over.bytes_up
    assert disclosure.over.draft_tokens == sum(len(frame[4]) for frame in frames if frame[0] == "draft")


@pytest.mark.parametrize("mode", ["full", "redacted"])
async def test_the_log_is_what_the_wire_carried(tmp_path: Path, mode: Mode) -> None:
    async with (
        serving(tmp_path / "data", scripted(step_s=0.002)) as running,
        Capture(int(running.url.rpartition(":")[2])) as capture,
    ):
        settings = DeviceSettings(  # type: ignore[call-arg]
            _env_file=None,
            url=capture.url,
            api_key=SecretStr(running.key),
            state_dir=tmp_path / "state",
            privacy=mode,
        )
        drafter = ScriptedDrafter(running.script, right_with(0.6))
        async with open_hybrid(settings, drafter, print) as hybrid:
            route = RedactedRoute(hybrid, settings) if mode == "redacted" else hybrid
            await route.ask(QUESTION, SilentAnswer())
            await route.compare(QUESTION)
    asked, compared = DisclosureLog(settings.disclosures()).read()
    check(capture, asked, running.script.vocabulary)
    (body,) = capture.bodies()
    assert compared.over is not None
    assert len(body) == compared.over.bytes_up
    sent = msgspec.json.decode(body)["messages"]
    assert "\n".join(f"{m['role']}: {m['content']}" for m in sent) == compared.sent.text
    everything = b"".join(bytes(sent) for sent in capture.connections)
    text = text_of([msgspec.msgpack.decode(m) for m in capture.messages()], "open", 3, running.script.vocabulary)
    assert (DATUM.encode() in text) == (DATUM.encode() in everything) == (mode == "full")
    assert (b"[EMAIL_1]" in text) == (mode == "redacted")


async def test_draft_only_sends_no_token_of_the_prompt(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "data", scripted(step_s=0.002)) as running,
        Capture(int(running.url.rpartition(":")[2])) as capture,
    ):
        settings = DeviceSettings(  # type: ignore[call-arg]
            _env_file=None,
            url=capture.url,
            api_key=SecretStr(running.key),
            state_dir=tmp_path / "state",
            privacy="draft_only",
        )
        drafter = ScriptedDrafter(running.script, right_with(1.0))
        async with open_hybrid(settings, drafter, print) as route:
            answered = await route.ask(QUESTION, SilentAnswer())
            assert await route.compare(QUESTION) is None
    assert answered.figures.tokens == QUESTION.max_tokens
    (asked,) = DisclosureLog(settings.disclosures()).read()
    assert (asked.sent.text, asked.sent.tokens) == ("", 0)
    check(capture, asked, running.script.vocabulary)
    assert capture.bodies() == []
    frames = [msgspec.msgpack.decode(message) for message in capture.messages()]
    assert [frame[3] for frame in frames if frame[0] == "open"] == [[]]
    assert all(DATUM not in str(frame) for frame in frames)


async def test_local_sends_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as running, Capture(int(running.url.rpartition(":")[2])) as capture:
        route = LocalRoute(ScriptedDrafter(running.script, right_with(1.0)))
        await route.ask(QUESTION, SilentAnswer())
    assert capture.connections == []
