"""Where a connection's streams are (under an id on the socket, or waiting for one), and whose turn it is to send.

Nothing is queued: `next_frame` asks the streams themselves, one frame each in turn.
"""

from __future__ import annotations

import asyncio

from edge.protocol.frames import EdgeFrame
from edge.stream import Phase, Stream


class Roster:
    """All methods are called on the event loop."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        """There are streams, so a socket is wanted."""
        self.ready = asyncio.Event()
        """Some stream may have something to send. Whoever sends clears it."""
        self.waiting: list[Stream] = []
        """Streams without a socket; empty while there is one, but for those told to come back later."""
        self._placed: dict[int, Stream] = {}
        self._turns: dict[int, None] = {}
        """Ids of streams that may have something to send, in turn: a dict for its order and its set of keys."""
        self._next_id = 0
        self._retries: set[asyncio.TimerHandle] = set()

    def __len__(self) -> int:
        return len(self._placed) + len(self.waiting)

    def live(self) -> list[Stream]:
        return [s for s in (*self._placed.values(), *self.waiting) if s.phase is not Phase.ENDED]

    def get(self, key: int) -> Stream | None:
        return self._placed.get(key)

    def wait(self, stream: Stream) -> None:
        """There is no socket for it now."""
        self._remove_waiting(stream)
        self.waiting.append(stream)
        self.wanted.set()

    def place(self, stream: Stream) -> None:
        """Give it an id on the present socket. Ids are never used twice."""
        self._remove_waiting(stream)
        key, self._next_id = self._next_id, self._next_id + 1
        self._placed[key] = stream
        stream.attach(key)
        self.wanted.set()
        self.mark(stream)

    def place_again(self, stream: Stream) -> None:
        """After a refused attachment: at once in another way, or when the cloud said to come again."""
        del self._placed[stream.session.stream]
        self._turns.pop(stream.session.stream, None)
        if stream.retry_after_s is None:
            self.place(stream)
            return
        self.wait(stream)

        def again() -> None:
            self._retries.discard(handle)
            if stream in self.waiting:
                self.place(stream)

        handle = asyncio.get_running_loop().call_later(stream.retry_after_s, again)
        self._retries.add(handle)

    def displace(self) -> None:
        """The socket is gone: all wait for another, but those that have ended."""
        self._cancel_retries()
        for stream in self._placed.values():
            stream.detach()
            if stream.phase is not Phase.ENDED:
                self.waiting.append(stream)
        self._placed.clear()
        self._turns.clear()
        self._update_wanted()

    def clear(self) -> None:
        self._cancel_retries()
        self._placed.clear()
        self._turns.clear()
        self.waiting.clear()
        self._update_wanted()

    def mark(self, stream: Stream) -> None:
        """It may have something to send, or has ended."""
        if stream.phase is Phase.ENDED:
            self._remove_waiting(stream)
            self._update_wanted()
        key = stream.session.stream
        if self._placed.get(key) is stream:
            self._turns[key] = None
            self.ready.set()

    def next_frame(self) -> tuple[Stream, EdgeFrame] | None:
        """The next frame to send. A stream that has ended and said so is forgotten."""
        while self._turns:
            key = next(iter(self._turns))
            del self._turns[key]
            stream = self._placed[key]
            frame = stream.outgoing()
            if frame is not None:
                self._turns[key] = None
                return stream, frame
            if stream.phase is Phase.ENDED:
                del self._placed[key]
                self._update_wanted()
        return None

    def _remove_waiting(self, stream: Stream) -> None:
        self.waiting = [other for other in self.waiting if other is not stream]

    def _cancel_retries(self) -> None:
        for handle in self._retries:
            handle.cancel()
        self._retries.clear()

    def _update_wanted(self) -> None:
        if not len(self):
            self.wanted.clear()
