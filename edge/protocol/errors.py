"""Everything a peer can do wrong, with the code it is told and what happens to its socket.

    ProtocolError                 code, message; the socket goes on unless `close` is set
    ├── MalformedFrame            bad_frame            the bytes are not a frame
    ├── UnknownFrame              unknown_frame        a well-formed frame of a type that we don't know
    ├── FrameTooLarge             frame_too_large      dropped unread
    ├── StreamError               concerns one stream; the others go on
    │   ├── UnknownStream         unknown_stream       no such stream on this socket
    │   ├── StreamReused          stream_reused        ids are never used twice on a socket
    │   ├── TooManyStreams        too_many_streams
    │   ├── UnknownModel          unknown_model
    │   ├── VocabularyMismatch    vocabulary_mismatch  the drafter's ids mean other texts than the target's
    │   ├── InvalidRequest        invalid_request      a field of `open` that can't be honoured; message names it
    │   ├── Overloaded            overloaded           the queue is full; `retry_after_s` says when to try again
    │   │   └── RateLimited       rate_limited         over the tenant's own quota; `retry_after_s` as above
    │   ├── DraftRefused          draft_refused        a hole, or tokens that can't be; the epoch must rise
    │   ├── DraftTooLong          draft_too_long
    │   ├── UnknownResumeToken    unknown_resume       never issued, or its grace time has ended
    │   ├── Gap                   gap                  a commit that starts past what is held
    │   ├── Contradiction         contradiction        an overlap that differs from what is held
    │   └── EngineFailed          engine_failed        the target model's side broke; nothing the peer did
    └── Fatal                     the socket is closed with `close`
        ├── VersionMismatch       version_mismatch     4400
        ├── HelloExpected         hello_expected       4400  a first frame other than hello
        ├── Unauthorised          invalid_api_key      4401
        ├── HelloTimeout          hello_timeout        4408
        ├── Idle                  idle_timeout         4408
        ├── Fenced                fenced               4409  the streams were resumed on another socket
        └── TooManyErrors         too_many_errors      4429

Two closes come from the WebSocket layer itself: 1009 for a message above the hard limit, 1007 for text that isn't
UTF-8.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """A peer broke a rule. `code` and `message` may be sent to it; nothing else may."""

    code = "protocol_error"
    close: int | None = None

    def __init__(self, message: str = "", *, stream: int | None = None) -> None:
        super().__init__(message or self.code)
        self.message = message or self.code
        self.stream = stream


class MalformedFrame(ProtocolError):
    code = "bad_frame"


class UnknownFrame(ProtocolError):
    code = "unknown_frame"


class FrameTooLarge(ProtocolError):
    code = "frame_too_large"


class StreamError(ProtocolError):
    code = "stream_error"


class UnknownStream(StreamError):
    code = "unknown_stream"


class StreamReused(StreamError):
    code = "stream_reused"


class TooManyStreams(StreamError):
    code = "too_many_streams"


class UnknownModel(StreamError):
    code = "unknown_model"


class VocabularyMismatch(StreamError):
    code = "vocabulary_mismatch"


class InvalidRequest(StreamError):
    code = "invalid_request"


class Overloaded(StreamError):
    code = "overloaded"

    def __init__(self, message: str = "", *, retry_after_s: float = 1.0, stream: int | None = None) -> None:
        super().__init__(message, stream=stream)
        self.retry_after_s = retry_after_s


class RateLimited(Overloaded):
    code = "rate_limited"


class DraftRefused(StreamError):
    code = "draft_refused"


class DraftTooLong(StreamError):
    code = "draft_too_long"


class UnknownResumeToken(StreamError):
    code = "unknown_resume"


class Gap(StreamError):
    code = "gap"


class Contradiction(StreamError):
    code = "contradiction"


class EngineFailed(StreamError):
    code = "engine_failed"


class Fatal(ProtocolError):
    close = 4400


class VersionMismatch(Fatal):
    code = "version_mismatch"


class HelloExpected(Fatal):
    code = "hello_expected"


class Unauthorised(Fatal):
    code = "invalid_api_key"
    close = 4401


class HelloTimeout(Fatal):
    code = "hello_timeout"
    close = 4408


class Idle(Fatal):
    code = "idle_timeout"
    close = 4408


class Fenced(Fatal):
    code = "fenced"
    close = 4409


class TooManyErrors(Fatal):
    code = "too_many_errors"
    close = 4429
