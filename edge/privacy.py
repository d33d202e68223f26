"""What leaves this device, by whose leave, and the record of it.

A target model that verifies losslessly must see the context's token ids, and token ids are text to anyone who has the
tokenizer. So nothing here claims to hide them: mode `full` sends the templated prompt, `redacted` the same with
placeholders for what was recognised as personal data, `local` sends nothing, and the log shows what each has meant.
`draft_only` sends draft tokens alone.

The log is the device's own file: mode 0600, JSON lines, two per request. The first is written before anything leaves,
the second when the request is over; a request without its second line was interrupted. At `limit_bytes` the file is set
aside as `.1`, replacing the one before, so at most twice that is kept.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from edge.protocol.frames import Draft, EdgeFrame, Message, Open

LIMIT_BYTES: Final = 10 << 20


class Prompt(Struct, frozen=True, tag="prompt"):
    """A request is about to leave."""

    id: str
    at: str
    """ISO 8601, UTC."""
    gateway: str
    model: str
    mode: str
    route: str
    """`hybrid`: token ids over the WebSocket; `cloud-only`: messages over HTTP."""
    tokens: int | None
    """Prompt tokens sent; None: text was sent."""
    text: str
    """What left, as text: what the token ids decode to (control tokens decode to nothing), or the messages."""


class Over(Struct, frozen=True, tag="over"):
    """A request has ended."""

    id: str
    bytes_up: int
    """All that was sent for this request, WebSocket or HTTP payload."""
    draft_tokens: int
    drafts: str
    """What the draft tokens sent decode to, rejected ones included."""


class Disclosure(Struct, frozen=True):
    """One request as the log shows it."""

    sent: Prompt
    over: Over | None
    """None: interrupted, or still running."""


class DisclosureLog:
    """Append-only, bounded, private to the user. Raises OSError where the file system does."""

    def __init__(self, path: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.path = path
        self.aside = path.with_name(f"{path.name}.1")
        self._limit_bytes = limit_bytes

    def write(self, line: Prompt | Over) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.path.exists() and self.path.stat().st_size >= self._limit_bytes:
            self.path.replace(self.aside)
        # 0600 from the first byte on: a chmod afterwards would leave a moment in which others can open it.
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        data = msgspec.json.encode(line) + b"\n"
        try:
            if (written := os.write(file, data)) < len(data):  # the disk is full: half a line would spoil the next
                os.ftruncate(file, os.fstat(file).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        finally:
            os.close(file)

    def read(self, last: int | None = None) -> list[Disclosure]:
        """The last so many requests, oldest first; all of them with None."""
        sent: dict[str, Prompt] = {}
        over: dict[str, Over] = {}
        for line in self._lines():
            if isinstance(line, Prompt):
                sent[line.id] = line
            else:
                over[line.id] = line
        found = [Disclosure(prompt, over.get(key)) for key, prompt in sent.items()]
        return found if last is None else found[max(0, len(found) - last) :]

    def clear(self) -> None:
        for path in (self.path, self.aside):
            path.unlink(missing_ok=True)

    def _lines(self) -> Iterator[Prompt | Over]:
        decoder = msgspec.json.Decoder(Prompt | Over)
        for path in (self.aside, self.path):
            if not path.exists():
                continue
            with path.open("rb") as file:
                for line in file:
                    try:
                        yield decoder.decode(line)
                    except msgspec.DecodeError:  # cut short by a power loss: the other lines still count
                        continue


@dataclass(slots=True)
class _Running:
    id: str
    bytes_up: int = 0
    drafts: list[int] = field(default_factory=list)


class Recorder:
    """Writes the log from what the socket is about to send: hand `observe` to the connection.

    A stream that had to be opened anew (another gateway, or after the grace time) has left anew: a request of its own.
    """

    def __init__(
        self,
        log: DisclosureLog,
        *,
        gateway: str,
        mode: str,
        now: Callable[[], str],
        new_id: Callable[[], str],
        piece: Callable[[int], bytes] | None = None,
    ) -> None:
        """`now` gives ISO 8601 times, `piece` a token's bytes; without it (no tokenizer here) ids are shown."""
        self._log = log
        self._gateway = gateway
        self._mode = mode
        self._now = now
        self._new_id = new_id
        self._piece = piece
        self._running: dict[int, _Running] = {}

    def observe(self, frame: EdgeFrame, size: int) -> None:
        """`size`: bytes of the encoded frame."""
        if isinstance(frame, Open):
            self._running[frame.stream] = _Running(self._opened(frame))
        stream: int | None = getattr(frame, "stream", None)
        running = None if stream is None else self._running.get(stream)
        if running is not None:
            running.bytes_up += size
            if isinstance(frame, Draft):
                running.drafts += frame.tokens

    def asked(self, model: str, messages: Sequence[Message]) -> Callable[[int], None]:
        """A request over HTTP is about to leave; call the result with its bytes when it is over."""
        key = self._new_id()
        self._log.write(
            Prompt(key, self._now(), self._gateway, model, self._mode, "cloud-only", None, _transcript(messages))
        )
        return lambda size: self._log.write(Over(key, size, 0, ""))

    def over(self) -> None:
        """All streams so far have ended."""
        for running in self._running.values():
            self._log.write(Over(running.id, running.bytes_up, len(running.drafts), self._text(running.drafts)))
        self._running.clear()

    def _opened(self, frame: Open) -> str:
        tokens = [*frame.prompt, *frame.committed]
        text = _transcript(frame.messages) if frame.messages else self._text(tokens)
        count = None if frame.messages else len(tokens)
        key = self._new_id()
        self._log.write(Prompt(key, self._now(), self._gateway, frame.model, self._mode, "hybrid", count, text))
        return key

    def _text(self, tokens: Sequence[int]) -> str:
        if self._piece is None:
            return f"token ids {' '.join(map(str, tokens))}" if tokens else ""
        return b"".join(self._piece(token) for token in tokens).decode("utf-8", errors="replace")


def _transcript(messages: Sequence[Message]) -> str:
    return "\n".join(f"{message.role}: {message.content}" for message in messages)
