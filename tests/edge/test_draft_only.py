"""Draft-only streams on the device: they live on drafts, so what stops the drafts ends them, with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from edge.config import DeviceSettings
from edge.drafters.base import Drafter
from edge.drafters.ngram import NgramDrafter
from edge.drafters.scripted import ScriptedDrafter, right_with
from edge.errors import EdgeError
from edge.protocol.errors import InvalidRequest
from edge.protocol.frames import Message, Sampling
from edge.route import Question, open_hybrid
from edge.terminal import SilentAnswer
from tests.app.serving import Running, scripted, serving

QUESTION = Question(messages=(Message("user", "hello"),), sampling=Sampling(temperature=0, seed=1), max_tokens=20)


async def ask(running: Running, tmp_path: Path, drafter: Drafter | None) -> int:
    settings = DeviceSettings(  # type: ignore[call-arg]
        _env_file=None,
        url=running.url,
        api_key=SecretStr(running.key),
        state_dir=tmp_path / "state",
        privacy="draft_only",
        draft_rate=0,
    )
    async with open_hybrid(settings, drafter, print) as route:
        return (await route.ask(QUESTION, SilentAnswer())).figures.tokens


async def test_it_runs_to_its_end_whatever_the_cloud_thinks_of_the_drafts(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", scripted(step_s=0.001)) as running:
        assert await ask(running, tmp_path, ScriptedDrafter(running.script, right_with(0.5))) == QUESTION.max_tokens


@pytest.mark.parametrize("drafter", [None, NgramDrafter()])
async def test_it_needs_a_language_model_here(tmp_path: Path, drafter: Drafter | None) -> None:
    async with serving(tmp_path / "data") as running:
        with pytest.raises(InvalidRequest, match="language model"):
            await ask(running, tmp_path, drafter)


async def test_a_drafter_that_fails_ends_the_answer(tmp_path: Path) -> None:
    def right(position: int) -> bool:
        if position == 5:
            raise RuntimeError("the script says that this draft fails")
        return True

    async with serving(tmp_path / "data", scripted(step_s=0.001)) as running:
        with pytest.raises(EdgeError, match="can't go on"):
            await ask(running, tmp_path, ScriptedDrafter(running.script, right))
