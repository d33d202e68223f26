from __future__ import annotations

import io
import sys

import pytest

from edge.ask import Answered
from edge.config import DeviceSettings
from edge.errors import EdgeError
from edge.figures import Figures
from edge.protocol.frames import Message, Sampling
from edge.redacted import RedactedRoute
from edge.route import Question
from edge.terminal import Answer, PlainAnswer, SilentAnswer

FIGURES = Figures(tokens=1, ttft_s=None, itl_s=None, largest_gap_s=None)


class Echo:
    """A route that says what it was asked, in pieces of two characters."""

    title, name, verified = "echo", "echo", True

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, question: Question, answer: Answer) -> Answered:
        text = question.messages[-1].content
        self.asked.append(text)
        answer.committed([(text[i : i + 2], "cloud") for i in range(0, len(text), 2)], 0)
        answer.rest("")
        return Answered(text=text, reason="stop", figures=FIGURES)

    async def compare(self, question: Question) -> Answered | None:
        return Answered(text=question.messages[-1].content, reason="stop", figures=FIGURES)


def shown() -> tuple[PlainAnswer, io.StringIO]:
    screen = io.StringIO()
    return PlainAnswer(screen), screen


def question(text: str) -> Question:
    return Question(messages=(Message("user", text),), sampling=Sampling(seed=1))


def settings() -> DeviceSettings:
    return DeviceSettings(_env_file=None, privacy="redacted")  # type: ignore[call-arg]


async def test_data_stay_and_the_answer_shows_them() -> None:
    echo = Echo()
    route = RedactedRoute(echo, settings())
    answer, screen = shown()
    text = "mail ada@example.org now"
    answered = await route.ask(question(text), answer)
    assert echo.asked == ["mail [EMAIL_1] now"]
    assert answered.text == screen.getvalue() == text
    compared = await route.compare(question(text))
    assert compared is not None
    assert compared.text == text


async def test_placeholders_last_for_the_conversation() -> None:
    echo = Echo()
    route = RedactedRoute(echo, settings())
    for text in ("a@example.org", "b@example.org", "a@example.org"):
        await route.ask(question(text), SilentAnswer())
    assert echo.asked == ["[EMAIL_1]", "[EMAIL_2]", "[EMAIL_1]"]


def test_without_the_recognisers_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "edge.redaction.redactor", None)
    with pytest.raises(EdgeError, match=r"paceline\[redact\]"):
        RedactedRoute(Echo(), settings())
