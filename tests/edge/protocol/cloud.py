"""A gateway and an engine without weights, as far as the protocol sees them: docs/protocol.md and nothing else.

The target's text is a function of the prompt and the position, so what any stream must come to is known beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from edge.protocol import frames
from edge.protocol.frames import Cancel, Commit, Draft, Finish, Frame, Open, Opened, Reason, Resume, Usage, Window
from edge.protocol.ledger import Ledger
from edge.protocol.verifying import Offered, Verifier, accept
from tests.edge.protocol.device import DRAFT_TOKENS
from tests.edge.protocol.network import Clock, Socket

END = 0
"""The token that ends an output."""
PARK_AHEAD = 32


def target(prompt: Sequence[int], position: int) -> int:
    """The target's token. `prompt` is (key, position of the end token)."""
    key, end = prompt
    return END if position == end else 1 + (key * 7919 + position * 104729) % 997 % 50


def reference(prompt: Sequence[int], max_tokens: int) -> list[int]:
    """The whole output."""
    return [target(prompt, i) for i in range(min(prompt[1] + 1, max_tokens))]


@dataclass(slots=True)
class Machine:
    """What the cloud's side is like, drawn once per example."""

    step_s: float = 0.03
    hold_s: float = 0.2
    grace_s: float = 5.0
    candidates: Sequence[int] = (8,)
    """Most draft tokens of a stream in a step, one after the other."""
    windows: Sequence[int] = (16,)
    held_tokens: int = 256
    flush_s: float = 0.0
    """How long commits pile up before the cursor is read: a slow socket."""


@dataclass(slots=True, eq=False)
class Stream:
    token: str
    prompt: tuple[int, ...]
    max_tokens: int
    verifier: Verifier
    socket: Socket | None
    id: int
    sent: int
    """The outbound cursor: how much of the ledger the edge has been sent."""
    drafted: list[bool]
    """By position: whether it was an accepted draft."""
    stepping: bool = False
    steps: int = 0
    reason: Reason | None = None
    newest: int = 0
    """Number of the newest socket that it was ever on."""
    told: bool = False
    """Whether `finish` went out on this socket."""
    flushing: bool = False
    attachments: int = 0
    waits_from: float = 0.0
    windows: int = 0

    @property
    def ledger(self) -> Ledger:
        return self.verifier.ledger

    @property
    def parked(self) -> bool:
        return self.socket is None and self.verifier.head >= self.sent + PARK_AHEAD

    def ended(self) -> Reason | None:
        tokens = self.ledger.tokens
        if tokens and tokens[-1] == END:
            return "stop"
        return "length" if len(tokens) >= self.max_tokens else None


@dataclass(slots=True, eq=False)
class Cloud:
    clock: Clock
    machine: Machine = field(default_factory=Machine)
    streams: dict[str, Stream] = field(default_factory=dict)
    """By resume token."""
    sockets: dict[Socket, dict[int, Stream]] = field(default_factory=dict)
    issued: int = 0
    longest_hold_s: float = 0.0
    refusals: int = 0

    # what arrives

    def received(self, socket: Socket, frame: Any) -> None:
        here = self.sockets.setdefault(socket, {})
        match frame:
            case Open():
                self._open(socket, frame)
            case Resume():
                self._resume(socket, frame)
            case Draft() if frame.stream in here:
                self._offer(here[frame.stream], frame)
            case Cancel() if frame.stream in here:
                self._end(here[frame.stream], "cancelled")

    def lost(self, socket: Socket) -> None:
        for stream in self.sockets.pop(socket, {}).values():
            stream.socket = None
            self._expire(stream)

    def restart(self) -> None:
        self.streams.clear()
        self.sockets.clear()

    def _open(self, socket: Socket, frame: Open) -> None:
        self.issued += 1
        verifier = Verifier(
            Ledger(frame.committed), frame.policy or "eager", self.machine.hold_s, self.machine.held_tokens
        )
        head = len(frame.committed)
        stream = Stream(
            f"r{self.issued}",
            frame.prompt,
            frame.max_tokens or 1,
            verifier,
            socket,
            frame.stream,
            head,
            [False] * head,
        )
        self.streams[stream.token] = stream
        stream.reason = stream.ended()
        self._attach(stream, socket, frame.stream, head)

    def _resume(self, socket: Socket, frame: Resume) -> None:
        stream = self.streams.get(frame.token)
        if stream is None:
            socket.send(frames.Error(frame.stream, "unknown_resume", final=True), up=False)
            return
        if socket.number < stream.newest:  # of a socket that the edge gave up; the newer one has the stream
            socket.send(frames.Error(frame.stream, "fenced", final=True), up=False)
            return
        if stream.socket is not None:  # fence: the old socket's late frames and close are no longer this stream's
            del self.sockets[stream.socket][stream.id]
        self._attach(stream, socket, frame.stream, frame.held)

    def _attach(self, stream: Stream, socket: Socket, name: int, held: int) -> None:
        if stream.parked:
            stream.waits_from = self.clock.now
        stream.socket, stream.id, stream.sent, stream.told = socket, name, held, False
        stream.attachments += 1
        stream.newest = socket.number
        self.sockets.setdefault(socket, {})[name] = stream
        verifier = stream.verifier
        head, window = verifier.head, self._window(stream)
        self._send(stream, Opened(name, stream.token, 2, 0, 0, verifier.lowest_epoch, head, window))
        self._flush(stream)
        self._consider(stream)
        if stream.reason is not None:
            self._expire(stream)

    def _offer(self, stream: Stream, frame: Draft) -> None:
        verifier = stream.verifier
        assert len(frame.tokens) <= DRAFT_TOKENS
        assert frame.start + len(frame.tokens) <= verifier.head + max(16, *self.machine.windows), "past the window"
        if stream.reason is None and verifier.offer(frame.epoch, frame.start, frame.tokens) is Offered.REFUSED:
            self.refusals += 1
            self._send(stream, frames.Error(stream.id, "draft_refused", epoch=verifier.lowest_epoch))
        assert len(verifier.pending) <= self.machine.held_tokens
        self._consider(stream)

    # the engine

    def _consider(self, stream: Stream) -> None:
        """Start a step, or come back when the wait for a draft ends."""
        now, verifier = self.clock.now, stream.verifier
        if stream.stepping or stream.reason is not None or stream.parked:
            return
        until = verifier.waits_until()
        if not verifier.ready(now):
            assert until is not None
            self.clock.at(until, lambda: self._consider(stream))
            return
        if stream.steps:
            self.longest_hold_s = max(self.longest_hold_s, now - stream.waits_from)
        stream.stepping = True
        limits = self.machine.candidates
        candidates = verifier.candidates(limits[stream.steps % len(limits)])
        self.clock.after(self.machine.step_s, lambda: self._stepped(stream, candidates))

    def _stepped(self, stream: Stream, candidates: tuple[int, ...]) -> None:
        stream.stepping = False
        if stream.reason is not None:
            return
        head = stream.verifier.head
        tokens = accept(candidates, lambda i: target(stream.prompt, head + i))[: stream.max_tokens - head]
        if END in tokens:  # nothing behind the end is ever published
            del tokens[tokens.index(END) + 1 :]
        accepted = min(len(tokens), sum(a == b for a, b in zip(candidates, tokens, strict=False)))
        stream.ledger.append(tokens)
        stream.drafted += [i < accepted for i in range(len(tokens))]
        stream.verifier.stepped(tokens, len(candidates), self.clock.now)
        stream.steps += 1
        stream.waits_from = self.clock.now
        reason = stream.ended()
        if reason is not None:
            self._end(stream, reason)
            return
        self._flush(stream)
        if stream.steps % 3 == 0 and stream.socket is not None:
            self._send(stream, Window(stream.id, self._window(stream)))
        self._consider(stream)

    def _end(self, stream: Stream, reason: Reason) -> None:
        if stream.reason is None:
            stream.reason = reason
            self._flush(stream)
            self._expire(stream)

    # what leaves

    def _window(self, stream: Stream) -> int:
        stream.windows += 1
        return self.machine.windows[stream.windows % len(self.machine.windows)]

    def _send(self, stream: Stream, frame: Frame) -> None:
        if stream.socket is not None:
            stream.socket.send(frame, up=False)

    def _flush(self, stream: Stream) -> None:
        if not stream.flushing:
            stream.flushing = True
            self.clock.after(self.machine.flush_s, lambda: self._read_cursor(stream))

    def _read_cursor(self, stream: Stream) -> None:
        """Send all of the ledger past the cursor in one commit, then `finish`: a slow socket queues nothing."""
        stream.flushing = False
        if stream.socket is None:
            return
        tokens = tuple(stream.ledger.tokens[stream.sent :])
        if tokens:
            drafted = sum(stream.drafted[stream.sent :])
            self._send(stream, Commit(stream.id, stream.sent, tokens, drafted))
            stream.sent += len(tokens)
        if stream.reason is not None and not stream.told:
            stream.told = True
            stats, head = stream.verifier.stats, stream.verifier.head
            usage = Usage(2, head, stats.drafted, stats.verified, stats.accepted, stats.matched, stream.steps)
            self._send(stream, Finish(stream.id, head, stream.reason, None, usage))

    def _expire(self, stream: Stream) -> None:
        """Without a socket, or finished, a stream lives for the grace time; a resume starts it anew."""
        attachments = stream.attachments

        def expire() -> None:
            if stream.attachments == attachments and (stream.socket is None or stream.reason is not None):
                stream.reason = stream.reason or "cancelled"
                self.streams.pop(stream.token, None)
                if stream.socket is not None:
                    self.sockets.get(stream.socket, {}).pop(stream.id, None)

        self.clock.after(self.machine.grace_s, expire)
