"""Padding: what a watcher of the encrypted socket can tell from its messages' sizes and times, and how that is hidden.

1. A message is wrapped in an envelope (`Padded`) and filled up to `size` bytes; a longer one to the next doubling, but
   no further than the receiver takes.
2. While streams run a message leaves at each tick, whether or not there is something to say; an empty envelope says
   nothing. What came between two ticks travels in one commit or draft, as on a slow socket.
3. After the last stream this goes on to the end of a run of ticks, so that the length of an answer shows coarsely.

The device asks for it by sending envelopes; each says what padding its sender wants back.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

RUN_TICKS: Final = 64
ENVELOPE_BYTES: Final = 32
"""A receiver takes envelopes so much longer than the frames it takes. What surrounds frame and filler is less."""


class Padding(Struct, frozen=True):
    size: Annotated[int, Meta(ge=64, le=4096)] = 512
    """Bytes of a message at least."""
    tick_ms: Annotated[int, Meta(ge=10, le=1000)] = 50


class Padded(Struct, frozen=True, array_like=True, tag="pad"):
    """The envelope: around a frame of either side, or around nothing (null)."""

    size: Annotated[int, Meta(ge=64, le=4096)]
    tick_ms: Annotated[int, Meta(ge=10, le=1000)]
    frame: msgspec.Raw
    filler: str = ""


def pad(message: bytes | str | None, padding: Padding, *, text: bool, most: int) -> bytes | str:
    """`message` (an encoded frame; None: nothing to say) in its envelope.

    `text`: for the JSON subprotocol. `most`: bytes of the largest frame that the receiver takes.
    """
    most += ENVELOPE_BYTES
    if text:
        assert not isinstance(message, bytes), "the JSON subprotocol sends text"  # noqa: S101
        head = f'["pad",{padding.size},{padding.tick_ms},{message or "null"},"'
        length = len(head.encode()) + 2
        return head + " " * (_full(length, padding.size, most) - length) + '"]'
    assert not isinstance(message, str), "the MessagePack subprotocol sends bytes"  # noqa: S101
    numbers = msgspec.msgpack.encode(padding.size) + msgspec.msgpack.encode(padding.tick_ms)
    head_bytes = b"\x95\xa3pad" + numbers + (message or b"\xc0")
    # A 32-bit length whatever the filler's: a header that grows with it would leave out some sizes.
    count = _full(len(head_bytes) + 5, padding.size, most) - len(head_bytes) - 5
    return head_bytes + b"\xdb" + count.to_bytes(4, "big") + b" " * count


def _full(length: int, size: int, most: int) -> int:
    while size < length:
        size *= 2
    return max(length, min(size, most))


class Cadence:
    """When padded messages leave. Times are arguments, in seconds of any one clock."""

    def __init__(self, tick_s: float) -> None:
        self._tick_s = tick_s
        self._origin = 0.0
        self._ticks = 0
        """Sent in this run; 0: nothing is running."""

    @property
    def running(self) -> bool:
        return self._ticks > 0

    def wait_s(self, now: float) -> float:
        """How long until the next message may leave."""
        return max(0.0, self._origin + self._ticks * self._tick_s - now) if self._ticks else 0.0

    def sent(self, now: float, *, busy: bool) -> None:
        """A message has left. `busy`: there are streams, so the next tick brings another one."""
        if not self._ticks:
            self._origin = now
        # A tick that was slept through is left out: two messages at once would tell of it for longer.
        self._ticks = max(self._ticks, int((now - self._origin) / self._tick_s)) + 1
        if not busy and self._ticks >= RUN_TICKS and self._ticks % RUN_TICKS == 0:
            self._ticks = 0
