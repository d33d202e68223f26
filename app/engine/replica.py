"""One engine in a process of its own, and what passes between it and the pool that uses it (pool.py).

    pool ──Mail──► Replica.post        submits, offers, parks, cancels of one turn of the gateway's event loop
    pool ◄──News── Replica.news        what all steps since the last news gave; also a beat each second

Both are one-way: nobody waits for an answer. Mails are numbered, since the transport may overtake itself, and each news
says up to which number they were carried out; so the pool knows how far behind the replica is, and holds back (a pool's
mail grows by merging, its offers are bounded). The path check and the mailbox of drafts stay beside the engine's head,
in here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

import msgspec

from app.engine.base import Engine, Load, Request
from app.engine.generation import Generation, Progress
from edge.protocol.errors import StreamError
from edge.protocol.frames import ModelInfo

BEAT_S = 1.0
"""A replica without news says so this often."""
TELL_AFTER = 16
"""After this many mails the pool is told that they were taken, even if there is no other news."""


@dataclass(slots=True)
class Mail:
    """To be carried out in the order of the fields. A stream's `key` is used for one submission only."""

    number: int = 0
    submits: list[tuple[int, Request]] = field(default_factory=list)
    parks: dict[int, int | None] = field(default_factory=dict)
    offers: list[tuple[int, int, int, tuple[int, ...]]] = field(default_factory=list)
    """Key, epoch, start, tokens."""
    cancels: list[int] = field(default_factory=list)


@dataclass(slots=True)
class News:
    taken: int
    """Mails up to this number were carried out."""
    load: Load
    progress: list[tuple[int, Progress]] = field(default_factory=list)
    windows: list[tuple[int, int]] = field(default_factory=list)
    rejected: list[tuple[int, str]] = field(default_factory=list)
    """Submissions that the engine didn't take: key, code of edge.protocol.errors."""
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a replica says once its model is loaded."""

    model: ModelInfo
    pid: int


_encoder = msgspec.msgpack.Encoder()
_mail = msgspec.msgpack.Decoder(Mail)
_news = msgspec.msgpack.Decoder(News)
_loaded = msgspec.msgpack.Decoder(Loaded)


def encode(message: Mail | News | Loaded) -> bytes:
    return _encoder.encode(message)


def decode_news(data: bytes) -> News:
    """Raises msgspec.MsgspecError: gateway and replica aren't of the same version."""
    return _news.decode(data)


def decode_loaded(data: bytes) -> Loaded:
    return _loaded.decode(data)


class Replica:
    """Lives in its process's event loop; whatever carries the bytes calls it there."""

    def __init__(self, build: Callable[[], Engine]) -> None:
        self._build = build
        self._engine: Engine
        self._generations: dict[int, Generation] = {}
        self._taken = 0
        self._told = 0
        """The last number that the pool has been told."""
        self._early: dict[int, Mail] = {}
        """Mails that came before one that was sent earlier."""
        self._progress: list[tuple[int, Progress]] = []
        self._windows: list[tuple[int, int]] = []
        self._rejected: list[tuple[int, str]] = []
        self._changed = asyncio.Event()

    async def start(self) -> bytes:
        """Build the engine and load its model: gives an encoded `Loaded`. Raises what the engine raises."""
        self._engine = self._build()
        await self._engine.start()
        return encode(Loaded(self._engine.model, os.getpid()))

    async def stop(self) -> None:
        """After `start`."""
        await self._engine.stop()

    async def post(self, data: bytes) -> None:
        """Take an encoded `Mail`."""
        mail = _mail.decode(data)
        self._early[mail.number] = mail
        while (due := self._early.pop(self._taken + 1, None)) is not None:
            self._taken = due.number
            self._carry_out(due)

    async def news(self) -> AsyncGenerator[bytes, None]:
        """Encoded `News` without end, for one reader. A slow reader gets the news of several steps at once."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), BEAT_S)
            self._changed.clear()
            self._told = self._taken
            news = News(
                self._taken,
                self._engine.load(),
                self._progress,
                self._windows,
                self._rejected,
                self._engine.failure(),
            )
            self._progress, self._windows, self._rejected = [], [], []
            yield encode(news)

    def _carry_out(self, mail: Mail) -> None:
        for key, request in mail.submits:
            self._submit(key, request)
        for key, at in mail.parks.items():
            if key in self._generations:
                self._generations[key].park(at)
        for key, epoch, start, tokens in mail.offers:
            if key in self._generations:
                self._generations[key].offer(epoch, start, tokens)
        for key in mail.cancels:
            if key in self._generations:
                self._generations[key].cancel()
        if mail.submits or self._taken - self._told >= TELL_AFTER:
            self._changed.set()

    def _submit(self, key: int, request: Request) -> None:
        try:
            generation = self._engine.submit(request)
        except StreamError as error:
            self._rejected.append((key, error.code))
            return
        self._generations[key] = generation
        generation.relay(lambda progress: self._relay(key, progress), lambda ahead: self._widen(key, ahead))
        if generation.finished is not None:  # what was carried here was the whole output
            self._relay(key, Progress(usage=generation.usage(), finished=generation.finished))

    def _relay(self, key: int, progress: Progress) -> None:
        self._progress.append((key, progress))
        if progress.finished is not None:
            del self._generations[key]
        self._changed.set()

    def _widen(self, key: int, ahead: int) -> None:
        self._windows.append((key, ahead))
        self._changed.set()
