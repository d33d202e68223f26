"""Output tokens to text: whole characters only, and nothing of a stop string.

A token may be part of a character and a stop string may begin in one token and end in another. So bytes are withheld
while they could still be the beginning of either. The engine uses this to find the end of an output, the HTTP renderer
and the edge to decide what may be shown.
"""

from __future__ import annotations

from collections.abc import Sequence


class OutputText:
    """The text of one output. `kept_bytes` is set once a stop string is complete: where it begins, in UTF-8 bytes."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stop = [s.encode() for s in stop if s]
        self._withheld = bytearray()
        self._taken_bytes = 0
        self.kept_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes pushed so far."""
        return self._taken_bytes + len(self._withheld)

    @property
    def taken_bytes(self) -> int:
        """Bytes given out so far."""
        return self._taken_bytes

    def push(self, piece: bytes, *, stoppable: bool = True) -> bool:
        """Add a token's bytes. True when they complete a stop string: the text ends before it, whatever follows.

        A piece that is not `stoppable` (of the first `min_tokens`) completes none.
        """
        if self.kept_bytes is not None:
            return True
        before = len(self._withheld)
        self._withheld += piece
        if not stoppable:
            return False
        # The stop string that is complete first cuts, as if the text had come byte by byte: so it doesn't matter how it
        # was cut into tokens. Only those that end in this piece count: what was not to stop before must not stop now.
        found = [
            (at + len(s), at) for s in self._stop if (at := self._withheld.find(s, max(0, before - len(s) + 1))) >= 0
        ]
        if not found:
            return False
        self.cut(self._taken_bytes + min(found)[1])
        return True

    def cut(self, kept_bytes: int) -> None:
        """End the text at this offset, as `finish` says: what lies behind it is never given out."""
        self.kept_bytes = kept_bytes
        del self._withheld[max(0, kept_bytes - self._taken_bytes) :]

    def take(self, *, final: bool = False) -> str:
        """Text that can be shown now and was not given out yet. With `final`, all that is left (broken UTF-8 as �)."""
        length = len(self._withheld)
        if not final and self.kept_bytes is None:
            length -= self._possible_stop()
            length -= _incomplete_character(self._withheld[:length])
        data = bytes(self._withheld[:length])
        del self._withheld[:length]
        self._taken_bytes += length
        return data.decode("utf-8", errors="replace")

    def _possible_stop(self) -> int:
        """Length of the longest end of the withheld bytes that begins a stop string."""
        data = self._withheld
        return max(
            (n for s in self._stop for n in range(1, min(len(s), len(data) + 1)) if data.endswith(s[:n])),
            default=0,
        )


def _incomplete_character(data: bytes | bytearray) -> int:
    """Number of bytes at the end that begin a UTF-8 character without completing it."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xF5:  # begins no character
            return 0
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < needed else 0
        if byte < 0x80:
            return 0
    return 0
