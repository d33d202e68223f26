"""The streams of edges, from `open` until nobody can ask for them any more.

            open                     socket lost, or resumed elsewhere
    ──────────────► attached ◄──────────────────────────────► detached
                       │                 resume                   │ grace time over: cancelled
                       │ finish sent                              ▼
                       └──────────► finished ──────────────────► gone
                                      grace time over, or the tenant's oldest when it opens too many

A finished stream stays through the grace time, so that an edge whose socket broke just then gets the rest and `finish`.
Whoever holds a stream is its `Holder`. A new one fences the old: what the old does later doesn't reach the stream.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from app.engine.generation import Generation
from app.telemetry import Pace
from app.tenants.terms import TenantId
from edge.protocol.errors import Fenced, TooManyStreams, UnknownResumeToken


class Holder(Protocol):
    """A socket's hold on one stream."""

    def fence(self) -> None:
        """Let go: the stream is another's now. Must not block."""
        ...


@dataclass(slots=True, eq=False)
class HeldStream:
    id: str
    secret: str
    tenant: TenantId
    generation: Generation
    pace: Pace
    text: bool
    """Its commits carry text."""
    holder: Holder | None = None
    socket: int = 0
    """The newest socket that held it."""
    finished: bool = False
    """`finish` was sent once."""
    accounted: bool = False
    expiry: asyncio.TimerHandle | None = None

    @property
    def resume_token(self) -> str:
        return f"{self.id}.{self.secret}"


class Streams:
    """All streams of edges. At most `per_tenant` each: what is kept in memory is bounded, whatever a tenant does."""

    def __init__(self, *, grace_s: float, per_tenant: int, account: Callable[[str, Generation], None]) -> None:
        self._grace_s = grace_s
        self._per_tenant = per_tenant
        self._account = account
        self._sockets = count(1)
        self._held: dict[str, HeldStream] = {}
        self._of_tenant: dict[str, dict[str, HeldStream]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def number_socket(self) -> int:
        """A number for a new socket, higher than all before."""
        return next(self._sockets)

    def __iter__(self) -> Iterator[HeldStream]:
        return iter(list(self._held.values()))

    def make_room(self, tenant: TenantId) -> None:
        """Forget the tenant's oldest finished stream if it holds as many as it may. Raises TooManyStreams."""
        own = self._of_tenant.get(tenant.id, {})
        if len(own) < self._per_tenant:
            return
        for stream in own.values():
            if stream.finished:
                self._remove(stream)
                return
        raise TooManyStreams(f"at most {self._per_tenant} streams of a tenant are open or resumable at a time")

    def add(self, tenant: TenantId, generation: Generation, pace: Pace, *, text: bool) -> HeldStream:
        """Keep a new stream; nobody holds it yet."""
        stream = HeldStream(secrets.token_hex(8), secrets.token_urlsafe(32), tenant, generation, pace, text)
        self._held[stream.id] = stream
        self._of_tenant.setdefault(tenant.id, {})[stream.id] = stream
        return stream

    def find(self, tenant: TenantId, token: str) -> HeldStream:
        """The tenant's stream with this resume token. Raises UnknownResumeToken, whatever is wrong with it."""
        name, _, secret = token.partition(".")
        stream = self._held.get(name)
        # The id is no secret; the comparison of what is one takes the same time wherever it differs.
        if (
            stream is None
            or not hmac.compare_digest(stream.secret.encode(), secret.encode())
            or stream.tenant.id != tenant.id
        ):
            raise UnknownResumeToken("no such stream, or its grace time has ended")
        return stream

    def attach(self, stream: HeldStream, holder: Holder, *, socket: int) -> None:
        """`holder` reads the stream now; whoever did before is fenced.

        Raises Fenced if a newer socket has had it: a `resume` that was long on its way must not take the stream back.
        """
        if socket < stream.socket:
            raise Fenced("the stream was resumed on a newer socket")
        stream.socket = socket
        before, stream.holder = stream.holder, holder
        if before is not None:
            before.fence()
        if stream.expiry is not None:
            stream.expiry.cancel()
            stream.expiry = None
        if stream.generation.finished is None:
            stream.generation.attach()

    def detach(self, stream: HeldStream, holder: Holder) -> None:
        """The holder's socket is lost. Nothing happens if the stream is another's by now."""
        if stream.holder is not holder:
            return
        stream.holder = None
        if stream.generation.finished is None:
            stream.generation.detach()
        self._expire_later(stream)

    def finish(self, stream: HeldStream, holder: Holder) -> None:
        """The holder has sent `finish`."""
        if stream.holder is not holder:
            return
        stream.holder = None
        stream.finished = True
        self._account_once(stream)
        self._expire_later(stream)

    def close(self) -> None:
        """Forget all: the gateway stops."""
        for stream in self:
            self._remove(stream)

    def _expire_later(self, stream: HeldStream) -> None:
        stream.expiry = asyncio.get_running_loop().call_later(self._grace_s, self._remove, stream)

    def _remove(self, stream: HeldStream) -> None:
        if stream.expiry is not None:
            stream.expiry.cancel()
        if self._held.pop(stream.id, None) is None:
            return
        own = self._of_tenant[stream.tenant.id]
        del own[stream.id]
        if not own:
            del self._of_tenant[stream.tenant.id]
        stream.generation.cancel()
        self._account_once(stream)

    def _account_once(self, stream: HeldStream) -> None:
        if not stream.accounted:
            stream.accounted = True
            self._account(stream.tenant.id, stream.generation)
