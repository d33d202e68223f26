from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from edge.ask import Answered
from edge.chat import Screens, Wishes, advice, comparison, converse, incidents, question_of
from edge.errors import Unreachable
from edge.events import Measures
from edge.figures import Figures
from edge.keyboard import Lines
from edge.protocol.errors import Unauthorised
from edge.route import Question
from edge.terminal import Answer


def answered(text: str, *, itl_s: float = 0.03, **measured: object) -> Answered:
    measures: dict[str, object] = {
        **dict.fromkeys(("draft_s", "step_s", "rtt_s", "drafted_per_token", "wasted_per_token")),
        **dict.fromkeys(("drafted", "wasted", "bytes_up", "bytes_down", "bytes_opening"), 0),
        "gaps_s": (),
        "attachments": 1,
        "drafter_failed": False,
    }
    figures = Figures(tokens=9, ttft_s=0.1, itl_s=itl_s, largest_gap_s=0.1, steps_per_token=0.5)
    return Answered(
        text=text,
        reason="stop",
        figures=figures,
        measures=Measures(**{**measures, **measured}),  # type: ignore[arg-type]
    )


def test_the_comparison_says_what_is_so() -> None:
    same = comparison(answered("abc", itl_s=0.015), answered("abc")).plain
    assert same == "Same text · 50% less time between tokens · 0.50 target steps a token instead of 1"
    assert "20% more time" in comparison(answered("abc", itl_s=0.036), answered("abc")).plain
    assert "differ from character 3 on" in comparison(answered("abc"), answered("abd")).plain
    assert "differ from character 4 on" in comparison(answered("abc"), answered("abcd")).plain


def test_what_was_mended_is_told() -> None:
    assert incidents(answered("")) == []
    told = incidents(answered("", drafter_failed=True, attachments=3))
    assert "drafter failed" in told[0].plain
    assert "lost 2×" in told[1].plain


def test_errors_say_what_to_do() -> None:
    assert "PACELINE_API_KEY" in advice(Unauthorised("revoked"))
    assert "paceline-gateway serve" in advice(Unreachable("no gateway there"))


class Endless:
    """A route whose first answer never ends by itself."""

    title = name = "endless"
    verified = True

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.begun = asyncio.Event()

    async def ask(self, question: Question, answer: Answer) -> Answered:
        self.asked.append([message.content for message in question.messages])
        if len(self.asked) == 1:
            self.begun.set()
            await asyncio.Event().wait()
        return answered("fine")

    async def compare(self, question: Question) -> Answered | None:
        return None


async def test_an_interrupted_answer_is_forgotten_and_the_conversation_goes_on(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first\nsecond\nthird\n")
    route = Endless()
    console = Console(file=io.StringIO())
    with keys.open() as file:
        lines = Lines(file.fileno())
        task = asyncio.create_task(converse(route, Wishes(as_json=True), Screens(console, console), lines))
        await route.begun.wait()
        task.cancel()  # as asyncio.run does on Ctrl-C
        await task
    assert route.asked == [["first"], ["second"], ["second", "fine", "third"]]
    assert isinstance(console.file, io.StringIO)
    assert "stopped" in console.file.getvalue()


async def test_lines_come_from_pipes_and_end_with_them() -> None:
    read, write = os.pipe()
    try:
        lines = Lines(read)
        waiting = asyncio.create_task(lines.next())
        os.write(write, "one\r\ntwo\nthrée".encode())
        assert await waiting == "one"
        assert await lines.next() == "two", "though nothing more can be read yet"
        os.close(write)
        assert await lines.next() == "thrée"
        assert await lines.next() is None
    finally:
        os.close(read)


@pytest.mark.parametrize("given", [None, 7])
def test_a_seed_is_drawn_once_for_both_routes(given: int | None) -> None:
    question = question_of(Wishes(seed=given, temperature=1.0), [])
    assert question.sampling.seed is not None
    assert given is None or question.sampling.seed == given
