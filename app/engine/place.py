"""A pool's place for one replica: replicas come and go in it. What is sent to the replica is gathered here."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Literal, Protocol

from app.engine.base import Load, ReplicaState, Request
from app.engine.replica import Loaded, Mail, News, encode

if TYPE_CHECKING:
    from app.engine.moving import Moving

IN_FLIGHT = 64
"""Mails that the replica hasn't taken yet; past that they are merged until it has."""
MAIL_OFFERS = 4096
"""Offers in one mail; more are dropped, which is safe (docs/protocol.md, rule 3)."""
NOTHING = Load(0, 0, 0, 0, 0.0)


class ReplicaLost(Exception):
    """A replica is gone, or can't be used any more; the message says why."""


class Remote(Protocol):
    """A started replica as this process sees it."""

    def post(self, data: bytes) -> None:
        """Send to `Replica.post`. Doesn't wait; what a lost replica is sent is lost."""
        ...

    def news(self) -> AsyncGenerator[bytes, None]:
        """What `Replica.news` gives. Raises ReplicaLost as soon as the replica is known to be dead."""
        ...

    async def stop(self) -> None:
        """Let it free what it holds, for some seconds at most, and end its process."""
        ...

    def kill(self) -> None:
        """End its process, whatever state it is in. Idempotent."""
        ...


class Host(Protocol):
    """Where replicas run."""

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Idempotent."""
        ...

    async def launch(self, index: int) -> tuple[Remote, bytes]:
        """Start a replica and load its model: gives what `Replica.start` gave. Raises ReplicaLost."""
        ...


@dataclass(slots=True, eq=False)
class Place:
    index: int
    state: Literal["starting", "up", "draining", "down"] = "starting"
    streams: dict[int, Moving] = field(default_factory=dict)
    """Those that live here, by key."""
    load: Load = NOTHING
    remote: Remote | None = None
    pid: int = 0
    restarts: int = 0
    fault: str | None = None
    """Why the last replica was lost, or the next one couldn't start; None while one is up."""
    emptied: asyncio.Event = field(default_factory=asyncio.Event)
    _mail: Mail = field(default_factory=Mail)
    _sent: int = 0
    """Number of the last mail."""
    _taken: int = 0
    _unseen: dict[int, list[str]] = field(default_factory=dict)
    """Mails that aren't taken: whose streams each of them submits."""
    _flushing: bool = False

    def waiting(self) -> Counter[str]:
        """Streams in the replica's queue by tenant: those that it told of, and those that it hasn't seen yet."""
        return Counter(self.load.waiting_of) + Counter(chain(*self._unseen.values(), _tenants(self._mail)))

    def report(self) -> ReplicaState:
        return ReplicaState(self.index, self.state, self.pid, len(self.streams), self.load, self.restarts, self.fault)

    def begin(self, remote: Remote, loaded: Loaded) -> None:
        """A replica is up."""
        self.remote, self.pid = remote, loaded.pid
        self.state, self.fault = "up", None

    def end(self) -> None:
        """It is no more. Its streams are left to the pool."""
        remote, self.remote = self.remote, None
        self.state, self.load, self._mail = "down", NOTHING, Mail()
        self._sent = self._taken = 0
        self._unseen.clear()
        self.emptied.set()
        if remote is not None:
            remote.kill()

    def submit(self, key: int, request: Request) -> None:
        self._mail.submits.append((key, request))
        self._flush_soon()

    def offer(self, key: int, epoch: int, start: int, tokens: Sequence[int]) -> None:
        if len(self._mail.offers) < MAIL_OFFERS:
            self._mail.offers.append((key, epoch, start, tuple(tokens)))
            self._flush_soon()

    def park(self, key: int, at: int | None) -> None:
        self._mail.parks[key] = at
        self._flush_soon()

    def cancel(self, key: int) -> None:
        self._mail.cancels.append(key)
        self._flush_soon()

    def heard(self, news: News) -> None:
        """The replica has told something: note how far it is, and send what had to wait for that."""
        self.load, self._taken = news.load, news.taken
        for number in [number for number in self._unseen if number <= news.taken]:
            del self._unseen[number]
        if self._mail != Mail():
            self._flush_soon()

    def _flush_soon(self) -> None:
        """Once per turn of the event loop, whatever the number of streams."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self.remote is None or self._sent - self._taken >= IN_FLIGHT:
            return
        mail, self._mail = self._mail, Mail()
        self._sent += 1
        mail.number = self._sent
        if mail.submits:
            self._unseen[mail.number] = _tenants(mail)
        self.remote.post(encode(mail))


def _tenants(mail: Mail) -> list[str]:
    return [request.tenant for _, request in mail.submits]
