"""A device's questions against the real gateway on the scripted model: what is shown, compared and put on record."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from pathlib import Path

import pytest

from edge.config import DeviceSettings
from edge.drafters.base import Drafter
from edge.drafters.ngram import NgramDrafter
from edge.drafters.scripted import ScriptedContinuation, ScriptedDrafter, right_with
from edge.errors import EdgeError, Unreachable
from edge.openai.vocabulary import fingerprint
from edge.privacy import DisclosureLog
from edge.protocol.errors import Unauthorised
from edge.protocol.frames import Message, Sampling
from edge.route import LocalRoute, Question, open_hybrid
from edge.script import Script
from edge.terminal import PlainAnswer, SilentAnswer
from tests.app.serving import Running, scripted, serving

QUESTION = Question(
    messages=(Message("user", "tell me a story"),),
    sampling=Sampling(temperature=0.8, top_p=0.95, seed=5),
    max_tokens=40,
)


def settings_for(running: Running, tmp_path: Path, **changes: object) -> DeviceSettings:
    fields: dict[str, object] = {"url": running.url, "api_key": running.key, "state_dir": tmp_path / "state"}
    return DeviceSettings(_env_file=None, **{**fields, **changes})  # type: ignore[arg-type, call-arg]


def no_warning(text: str) -> None:
    raise AssertionError(text)


@pytest.mark.parametrize("right", [1.0, 0.6, 0.0])
async def test_the_answer_is_the_clouds_whatever_is_drafted(tmp_path: Path, right: float) -> None:
    async with serving(tmp_path / "data", scripted(step_s=0.002)) as running:
        settings = settings_for(running, tmp_path)
        shown = io.StringIO()
        drafter = ScriptedDrafter(running.script, right_with(right))
        async with open_hybrid(settings, drafter, no_warning) as route:
            with PlainAnswer(shown) as answer:
                hybrid = await route.ask(QUESTION, answer)
            cloud = await route.compare(QUESTION)
    assert cloud is not None
    assert hybrid.text == cloud.text == shown.getvalue().removesuffix("\n")
    assert len(hybrid.text) > 20
    assert hybrid.figures.tokens == cloud.figures.tokens == 40
    assert hybrid.reason == cloud.reason == "length"
    assert hybrid.measures is not None
    assert hybrid.measures.drafted > 0


async def test_what_left_is_on_record_for_both_routes(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", scripted(step_s=0.002)) as running:
        settings = settings_for(running, tmp_path)
        drafter = ScriptedDrafter(running.script, right_with(0.6))
        async with open_hybrid(settings, drafter, no_warning) as route:
            hybrid = await route.ask(QUESTION, SilentAnswer())
            await route.compare(QUESTION)
    first, second = DisclosureLog(settings.disclosures()).read()
    assert hybrid.measures is not None
    assert first.over is not None
    assert (first.sent.route, first.sent.model, first.sent.mode) == ("hybrid", "scripted", "full")
    assert first.sent.text == "user\ntell me a storyassistant\n", "the templated prompt"
    assert first.over.bytes_up == hybrid.measures.bytes_up
    assert first.over.draft_tokens > 0
    assert len(first.over.drafts) > 0
    assert (second.sent.route, second.sent.text) == ("cloud-only", "user: tell me a story")
    assert second.over is not None
    assert second.over.bytes_up > len("tell me a story")


async def test_the_record_can_be_switched_off(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as running:
        settings = settings_for(running, tmp_path, disclosure_log=False)
        async with open_hybrid(settings, None, no_warning) as route:
            await route.ask(QUESTION, SilentAnswer())
            await route.compare(QUESTION)
    assert not settings.disclosures().exists()


async def test_a_drafter_with_another_tokenizer_is_replaced_and_that_is_said(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as running:
        stranger = ScriptedDrafter(running.script, right_with(1.0))
        stranger.fingerprint = fingerprint([b"a", b"b"], frozenset({1}))
        warnings: list[str] = []
        async with open_hybrid(settings_for(running, tmp_path), stranger, warnings.append) as route:
            answered = await route.ask(QUESTION, SilentAnswer())
            cloud = await route.compare(QUESTION)
        assert "drafted here by ngram" in route.title
    assert cloud is not None
    assert answered.text == cloud.text
    assert len(warnings) == 1
    assert "another tokenizer" in warnings[0]


@pytest.mark.parametrize("drafter", [None, NgramDrafter()])
async def test_a_device_without_a_model(tmp_path: Path, drafter: Drafter | None) -> None:
    async with (
        serving(tmp_path / "data") as running,
        open_hybrid(settings_for(running, tmp_path), drafter, no_warning) as route,
    ):
        shown = io.StringIO()
        with PlainAnswer(shown) as answer:
            answered = await route.ask(QUESTION, answer)
        cloud = await route.compare(QUESTION)
    assert cloud is not None
    assert answered.text == cloud.text == shown.getvalue().removesuffix("\n")


async def test_a_wrong_key_and_an_unknown_model_are_told(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as running:
        with pytest.raises(Unauthorised):
            async with open_hybrid(settings_for(running, tmp_path, api_key="sk-pl-wrong"), None, no_warning):
                pass
        with pytest.raises(EdgeError, match="no model 'gpt-9'; it has scripted"):
            async with open_hybrid(settings_for(running, tmp_path, model="gpt-9"), None, no_warning):
                pass
        gone = settings_for(running, tmp_path)
    with pytest.raises(Unreachable):
        async with open_hybrid(gone, None, no_warning):
            pass


async def test_alone_the_drafter_answers_and_nothing_leaves(tmp_path: Path) -> None:
    script = Script(scripted().script.vocabulary, length=12)
    route = LocalRoute(ScriptedDrafter(script, right_with(1.0)))
    shown = io.StringIO()
    with PlainAnswer(shown) as answer:
        answered = await route.ask(Question(messages=QUESTION.messages, sampling=Sampling(temperature=0)), answer)
    prompt = script.vocabulary.render(QUESTION.messages)
    expected = b"".join(script.vocabulary.piece(t) for t in script.greedy(prompt, 12)).decode()
    assert answered.text == expected == shown.getvalue().removesuffix("\n")
    assert (answered.reason, answered.figures.tokens) == ("stop", 12)
    assert answered.figures.bytes_up_per_token == 0
    assert await route.compare(QUESTION) is None


async def test_alone_it_stops_at_max_tokens() -> None:
    route = LocalRoute(ScriptedDrafter(scripted().script, right_with(1.0)))
    answered = await route.ask(QUESTION, SilentAnswer())
    assert (answered.reason, answered.figures.tokens) == ("length", 40)


def test_alone_without_a_model_nobody_answers() -> None:
    with pytest.raises(EdgeError, match="nobody answers"):
        LocalRoute(None)


async def test_alone_a_stopped_answer_leaves_the_drafter_usable() -> None:
    closed: list[bool] = []

    class Watched(ScriptedDrafter):
        def begin(
            self, prompt: Sequence[int], sampling: Sampling, *, committed: Sequence[int] = (), coupled: bool = True
        ) -> ScriptedContinuation:
            continuation = super().begin(prompt, sampling, committed=committed, coupled=coupled)
            continuation.close = lambda: closed.append(True)  # type: ignore[method-assign]
            return continuation

    route = LocalRoute(Watched(scripted().script, right_with(1.0), draft_s=0.002))
    task = asyncio.create_task(route.ask(QUESTION, SilentAnswer()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == [True]
