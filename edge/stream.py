"""One stream's life across sockets: what to send when, and what to make of what comes. No I/O.

                attach (no resume token)                 opened
    WAITING ───────────────────────────► OPENING ──────────────────► LIVE
     ▲ ▲ │      attach (resume token)                    opened       │
     │ │ └─────────────────────────────► RESUMING ────────────────────┤
     │ └── unknown_resume ──────────────────┘                         │
     └──────────────── detach (socket lost), from any ────────────────┤
                                     finish, final error, cancel      ▼
                                     from any ──────────────────► ENDED

Rules:
1. `resume` is tried first: the cloud still has the stream, and sends from where we are. When it is refused (the
   gateway was restarted, or the grace time ended), the stream is opened anew with all that was committed, its seed and
   its choice: the device carries the whole state, so any gateway can go on from there.
2. Drafts may follow `open` at once. After any later attachment they wait for `opened`, which says from which epoch on
   the cloud takes them.
3. Nothing is queued: a frame is made when the socket can take it, so a slow socket sends fewer and larger drafts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from msgspec.structs import replace

from edge.errors import from_frame
from edge.protocol.drafting import DraftingSession, Reconciliation
from edge.protocol.errors import InvalidRequest, Overloaded, ProtocolError, UnknownResumeToken
from edge.protocol.frames import (
    Cancel,
    CloudFrame,
    Commit,
    Draft,
    EdgeFrame,
    Error,
    Finish,
    Open,
    Opened,
    Resume,
    Window,
)

_DRAFT_CODES = frozenset({"draft_refused", "draft_too_long", "unknown_stream"})
"""Errors that a draft can bring; while a stream is being attached, any other is the answer to `open` or `resume`."""


class Phase(Enum):
    WAITING = "waiting"
    OPENING = "opening"
    RESUMING = "resuming"
    LIVE = "live"
    ENDED = "ended"


class Listener(Protocol):
    """Whoever runs the stream. Called on the event loop; must not block."""

    def opened(self, frame: Opened) -> None: ...

    def committed(self, frame: Commit, change: Reconciliation) -> None: ...

    def widened(self) -> None: ...

    def finished(self, frame: Finish, left: tuple[int, ...]) -> None: ...

    def failed(self, error: Exception) -> None: ...


@dataclass(slots=True)
class Traffic:
    """Bytes of encoded frames; what WebSocket, TLS and TCP add is left out."""

    up: int = 0
    down: int = 0
    openings: int = 0
    """Of `up`, what `open` and `resume` frames took: the prompt, mostly."""


@dataclass(slots=True)
class Stream:
    """`request.stream` is a placeholder: each attachment gets an id of its own."""

    request: Open
    session: DraftingSession
    listener: Listener
    phase: Phase = Phase.WAITING
    attachments: int = 0
    flush: bool = False
    """Drafting has stopped, so a partial block goes too."""
    retry_after_s: float | None = None
    """The cloud was too busy to take the stream back: attach again after this time."""
    resume_token: str = ""
    traffic: Traffic = field(default_factory=Traffic)
    _announcement: Open | Resume | Cancel | None = None

    def attach(self, stream: int) -> None:
        """A socket is there; `stream` is a fresh id on it."""
        self.attachments += 1
        self.retry_after_s = None
        self.session.stream = stream
        held = self.session.ledger.tokens
        if self.resume_token:
            self.phase = Phase.RESUMING
            self._announcement = Resume(stream, self.resume_token, len(held))
        else:
            self.phase = Phase.OPENING
            self._announcement = replace(self.request, stream=stream, committed=tuple(held))

    def detach(self) -> None:
        """The socket is gone, with all that was on its way."""
        self._announcement = None
        if self.phase is not Phase.ENDED:
            self.phase = Phase.WAITING

    def cancel(self) -> None:
        """Nobody wants the rest. Idempotent."""
        told = self.phase is Phase.LIVE or (self.phase is not Phase.ENDED and self._announcement is None)
        if self.phase is Phase.WAITING or not told:
            self._announcement = None
        else:
            self._announcement = Cancel(self.session.stream)
        self.phase = Phase.ENDED

    def fail(self, error: Exception) -> None:
        if self.phase is not Phase.ENDED:
            self.phase = Phase.ENDED
            self._announcement = None
            self.listener.failed(error)

    def outgoing(self) -> EdgeFrame | None:
        """The next frame to send, if any."""
        if self._announcement is not None:
            frame, self._announcement = self._announcement, None
            return frame
        first_opening = self.phase is Phase.OPENING and self.attachments == 1
        if self.phase is Phase.LIVE or first_opening:
            return self.session.next_block(flush=self.flush)
        return None

    def sent(self, frame: EdgeFrame, size: int) -> None:
        self.traffic.up += size
        if not isinstance(frame, Draft | Cancel):
            self.traffic.openings += size

    def receive(self, frame: CloudFrame, size: int) -> None:
        """Take a frame of this stream. Raises Gap or Contradiction if the cloud broke the protocol."""
        if self.phase is Phase.ENDED:
            return
        self.traffic.down += size
        match frame:
            case Commit():
                self.listener.committed(frame, self.session.commit(frame))
            case Opened():
                self._opened(frame)
            case Window():
                self.session.widen(frame)
                self.listener.widened()
            case Finish():
                left = self.session.finished(frame)
                self.phase = Phase.ENDED
                self.listener.finished(frame, left)
            case Error():
                self._error(frame)

    def _opened(self, frame: Opened) -> None:
        self.session.opened(frame, resumed=self.attachments > 1)
        self.resume_token = frame.resume
        sampling = replace(self.request.sampling, seed=frame.seed, choice=frame.choice)
        self.request = replace(self.request, sampling=sampling)
        self.phase = Phase.LIVE
        self.listener.opened(frame)

    def _error(self, frame: Error) -> None:
        error = from_frame(frame)
        attaching = self.phase in (Phase.OPENING, Phase.RESUMING) and frame.code not in _DRAFT_CODES
        if frame.code == "draft_refused":
            self.session.refused(frame)
        elif attaching and self._goes_on_after(error):
            self.phase = Phase.WAITING
        elif attaching or frame.final:
            self.fail(error)

    def _goes_on_after(self, error: ProtocolError) -> bool:
        """Whether a refused attachment can be made another way, or later."""
        if self.phase is Phase.RESUMING and isinstance(error, UnknownResumeToken | InvalidRequest):
            self.resume_token = ""
            return True
        if self.attachments > 1 and isinstance(error, Overloaded):
            self.retry_after_s = error.retry_after_s
            return True
        return False
