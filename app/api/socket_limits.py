"""What one socket may do: how many errors it may cause, and that it uses no stream id twice. Pure."""

from __future__ import annotations

from bisect import bisect_right

from edge.protocol.errors import StreamReused, TooManyStreams


class ErrorBudget:
    """A token bucket: `burst` errors at once, and one more each second. An honest edge causes a few, by races."""

    def __init__(self, burst: int, now: float) -> None:
        self._burst = burst
        self._left = float(burst)
        self._at = now

    def spend(self, now: float) -> bool:
        """Whether this error was still allowed. `now`: seconds, monotonic."""
        self._left = min(self._burst, self._left + (now - self._at))
        self._at = now
        self._left -= 1
        return self._left >= 0


class StreamIds:
    """The ids used on a socket, as runs of consecutive numbers: an edge that counts up needs one, ever."""

    MOST_RUNS = 1024

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, stream: int) -> bool:
        at = bisect_right(self._starts, stream) - 1
        return at >= 0 and stream < self._ends[at]

    def use(self, stream: int) -> None:
        """Raises StreamReused; or TooManyStreams, when the ids are too scattered to remember."""
        if stream in self:
            raise StreamReused("stream ids are never used twice on a socket", stream=stream)
        at = bisect_right(self._starts, stream)
        joins_left = at > 0 and self._ends[at - 1] == stream
        joins_right = at < len(self._starts) and self._starts[at] == stream + 1
        if joins_left and joins_right:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif joins_left:
            self._ends[at - 1] += 1
        elif joins_right:
            self._starts[at] -= 1
        elif len(self._starts) >= self.MOST_RUNS:
            raise TooManyStreams("this socket's stream ids leave too many gaps; count them up", stream=stream)
        else:
            self._starts.insert(at, stream)
            self._ends.insert(at, stream + 1)
