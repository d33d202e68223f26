"""A stream's sending task, with a generation that the test fills and a socket that the test blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from app.api.attachment import Attachment
from app.api.streams import HeldStream
from app.engine.base import Finished, Request
from app.engine.generation import Generation, Progress
from app.engine.scripted import ScriptedEngine
from app.telemetry import Metrics, Pace
from app.tenants.service import TenantId
from edge.protocol import frames
from edge.script import ScriptVocabulary


class IdleWorker:
    def offer(self, generation: Generation, epoch: int, start: int, tokens: Sequence[int]) -> None: ...

    def cancel(self, generation: Generation) -> None: ...

    def park(self, generation: Generation, at: int | None) -> None: ...


class Socket:
    """Each `send` waits to be let through."""

    def __init__(self) -> None:
        self.sent: list[frames.CloudFrame] = []
        self.waiting = asyncio.Event()
        self._through = asyncio.Semaphore(0)

    async def send(self, frame: frames.CloudFrame) -> None:
        self.waiting.set()
        await self._through.acquire()
        self.waiting.clear()
        self.sent.append(frame)

    def let_through(self, count: int = 1) -> None:
        for _ in range(count):
            self._through.release()


def held(generation: Generation, *, text: bool = False) -> HeldStream:
    engine = ScriptedEngine()
    pace = Pace(Metrics(engine.load, lambda: 0), "edge", "t", 0.0)
    return HeldStream("id", "secret", TenantId("t", "t"), generation, pace, text)


def generation(**fields: object) -> Generation:
    request = Request(id="g", tenant="t", prompt=(1,), sampling=frames.Sampling(seed=1), max_tokens=2000, **fields)  # type: ignore[arg-type]
    return Generation(request, IdleWorker(), window=8)


async def test_what_comes_while_the_socket_is_slow_is_one_commit() -> None:
    made, socket, ended = generation(), Socket(), list[Attachment]()
    attachment = Attachment(
        4, held(made), 0, vocabulary=ScriptVocabulary(), send=socket.send, ended=ended.append, fenced=ended.append
    )
    attachment.begin()
    assert attachment.task is not None
    made.apply(Progress(tokens=(1,)))
    await socket.waiting.wait()
    for token in range(2, 1001):
        made.apply(Progress(tokens=(token,), drafted=token % 2))
    for ahead in range(1, 9):
        made.widen(ahead)
    made.apply(Progress(finished=Finished(1000, "length", None, frames.Usage(completion=1000))))
    socket.let_through(10)
    await attachment.task
    commits = [frame for frame in socket.sent if isinstance(frame, frames.Commit)]
    assert [(commit.start, len(commit.tokens)) for commit in commits] == [(0, 1), (1, 999)]
    assert commits[1].drafted == 499
    assert [frame.ahead for frame in socket.sent if isinstance(frame, frames.Window)] == [8]
    assert isinstance(socket.sent[-1], frames.Finish)
    assert len(socket.sent) == 4
    assert ended == [attachment]


async def test_text_goes_on_where_an_earlier_socket_left_it() -> None:
    made = generation()
    tokens = tuple("né☃e".encode())
    made.apply(Progress(tokens=tokens[:5]))  # ends within the snowman
    made.apply(Progress(tokens=tokens[5:], finished=Finished(len(tokens), "length", None, frames.Usage())))
    shown = []
    for start in range(len(tokens) + 1):
        socket = Socket()
        socket.let_through(10)
        attachment = Attachment(
            1,
            held(made, text=True),
            start,
            vocabulary=ScriptVocabulary(),
            send=socket.send,
            ended=lambda _: None,
            fenced=lambda _: None,
        )
        attachment.begin()
        assert attachment.task is not None
        await attachment.task
        shown.append("".join(frame.text for frame in socket.sent if isinstance(frame, frames.Commit)))
    assert shown == ["né☃e", "é☃e", "é☃e", "☃e", "☃e", "☃e", "e", ""]


async def test_a_fenced_stream_sends_no_more() -> None:
    made, socket, fenced = generation(), Socket(), list[Attachment]()
    attachment = Attachment(
        1, held(made), 0, vocabulary=ScriptVocabulary(), send=socket.send, ended=fenced.append, fenced=fenced.append
    )
    attachment.begin()
    assert attachment.task is not None
    made.apply(Progress(tokens=(1,)))
    await socket.waiting.wait()
    attachment.fence()
    socket.let_through(10)
    await asyncio.gather(attachment.task, return_exceptions=True)
    assert socket.sent == []
    assert fenced == [attachment]
