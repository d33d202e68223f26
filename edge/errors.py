"""What can go wrong on the device, beside what the cloud answers (edge.protocol.errors, raised as it comes).

EdgeError
├── Unreachable      no gateway there: the first connection failed, or there never was a stream to resume
│   └── Intercepted  somebody else answers in its place: a network that wants a sign-in, say
├── Insecure         an address outside this machine without TLS
├── ConnectionLost   gone for longer than a stream can be resumed; what was committed has been delivered
└── Closed           the connection was closed here while a stream ran
"""

from __future__ import annotations

from edge.protocol import errors
from edge.protocol.errors import ProtocolError
from edge.protocol.frames import Error


class EdgeError(Exception):
    """`message` is fit for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Unreachable(EdgeError):
    pass


class Intercepted(Unreachable):
    pass


class Insecure(EdgeError):
    pass


class ConnectionLost(EdgeError):
    pass


class Closed(EdgeError):
    pass


def _tree(root: type[ProtocolError]) -> dict[str, type[ProtocolError]]:
    found = {root.code: root}
    for kind in root.__subclasses__():
        found |= _tree(kind)
    return found


_BY_CODE = _tree(errors.ProtocolError)


def from_frame(frame: Error) -> ProtocolError:
    """The typed error that an `error` frame stands for; ProtocolError with its code if we don't know the code."""
    kind = _BY_CODE.get(frame.code, ProtocolError)
    if issubclass(kind, errors.Overloaded):
        return kind(frame.message, retry_after_s=frame.retry_after_s or 1.0, stream=frame.stream)
    error = kind(frame.message, stream=frame.stream)
    error.code = frame.code
    return error


def from_close(code: int, reason: str) -> ProtocolError | None:
    """The error that a close code stands for when no `error` frame told it; None: an ordinary loss, to be mended."""
    kinds: dict[int, type[ProtocolError]] = {
        4401: errors.Unauthorised,
        4409: errors.Fenced,
        4429: errors.TooManyErrors,
        4400: errors.Fatal,
    }
    kind = kinds.get(code)
    return None if kind is None else kind(reason)


def is_fatal(error: ProtocolError) -> bool:
    """Whether a new connection would meet the same refusal."""
    return isinstance(error, errors.Fatal) and not isinstance(error, errors.HelloTimeout | errors.Idle)
