"""The frames of `paceline.v1`, and how they are encoded.

Every frame is an array whose first element is its type's name; fields follow in the order below. Fields may be added
at the end: a decoder ignores what it doesn't know and takes the default for what it doesn't get. Two WebSocket
subprotocols carry the same Structs: `paceline.v1.msgpack` (binary messages) and `paceline.v1.json` (text messages).

Output tokens are addressed by position: 0 is the first token after the prompt. So every frame is idempotent.

    edge → cloud    hello open draft resume cancel ping
    cloud → edge    welcome opened commit window finish error pong
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from edge.protocol.errors import FrameTooLarge, MalformedFrame, UnknownFrame
from edge.protocol.padding import ENVELOPE_BYTES, Padded

VERSION: Final = 1
MSGPACK: Final = "paceline.v1.msgpack"
JSON: Final = "paceline.v1.json"
SUBPROTOCOLS: Final = (MSGPACK, JSON)

Policy = Literal["eager", "hold", "auto", "sync"]
Privacy = Literal["full", "redacted", "draft_only"]
Reason = Literal["stop", "length", "cancelled", "error"]

Natural = Annotated[int, Meta(ge=0, le=2**53)]  # 2^53: what JavaScript's numbers hold
TokenId = Annotated[int, Meta(ge=0, lt=2**31)]


class Limits(Struct, frozen=True, omit_defaults=True):
    """What the gateway takes from one socket. Over a limit the sender gets an `error`; its other frames still count."""

    frame_bytes: int = 1 << 20
    """A larger frame is dropped unread (`frame_too_large`); four times this closes the socket with 1009."""
    draft_tokens: int = 64
    """Tokens in one draft frame."""
    held_tokens: int = 256
    """Draft tokens of one stream that the cloud keeps past the head; what lies beyond is dropped."""
    streams: int = 64
    """Streams open at a time on one socket."""
    hello_s: float = 10.0
    """Time a new socket has to say hello."""
    idle_s: float = 120.0
    """A socket without streams and without frames for this long is closed."""
    grace_s: float = 60.0
    """How long a stream whose socket was lost, or that has finished, can be resumed."""


class ModelInfo(Struct, frozen=True, omit_defaults=True):
    id: str
    fingerprint: str
    """SHA-256 (hex) of the tokenizer's vocabulary: see docs/protocol.md."""
    vocabulary: int
    """Number of token ids."""
    context: int
    """Prompt and output together, tokens."""
    match: bool = False
    """Whether the fingerprint in `hello` is this model's."""


class Message(Struct, frozen=True, omit_defaults=True):
    role: str
    content: str


class Grammar(Struct, frozen=True):
    """Which outputs are allowed at all. Part of the sampling rule (its mask), so both sides apply the same one."""

    kind: Literal["json_schema", "lark"]
    source: str
    """The schema as JSON text, or a grammar in llguidance's dialect of Lark."""


class Sampling(Struct, frozen=True, omit_defaults=True):
    """How the target picks each token (docs/sampling.md). The defaults are OpenAI's: temperature 1, no filter."""

    temperature: Annotated[float, Meta(ge=0, le=100)] = 1.0
    top_k: Annotated[int, Meta(ge=0)] = 0
    """0: all tokens."""
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=10)] = 1.0
    """Bounded from below, so that no logit grows past what a float holds."""
    bias: tuple[tuple[TokenId, float], ...] = ()
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    """None: the cloud draws one and tells it in `opened`. JavaScript clients keep it below 2^53."""
    choice: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    """Which of `n` choices this stream is: an input to the noise, so that choices differ under one seed."""
    grammar: Grammar | None = None
    """None: any text."""

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) for _, value in self.bias):  # MessagePack can carry them, JSON can't
            raise ValueError("bias must be finite")


class Usage(Struct, frozen=True, omit_defaults=True):
    """What a stream cost, so far or in the end."""

    prompt: int = 0
    completion: int = 0
    drafted: int = 0
    """Draft tokens that reached the cloud, each position of an epoch once; those of a stale epoch don't count."""
    verified: int = 0
    """Draft tokens that were checked in a step."""
    accepted: int = 0
    """Verified draft tokens that became output."""
    matched: int = 0
    """Drafted tokens that came too late to be checked and agreed with what had been committed."""
    steps: int = 0
    """Steps of the target model that gave this stream at least one token."""


class Frame(Struct, frozen=True, array_like=True):
    """Base of all frames."""


class Hello(Frame, frozen=True, tag="hello"):
    """First frame on a socket. Exactly one of `auth` and `ticket` is set."""

    version: int
    auth: str = ""
    ticket: str = ""
    fingerprint: str = ""
    """Of the drafter's vocabulary; empty when drafts will be in the target's ids by construction (n-gram, none)."""
    agent: str = ""


class Welcome(Frame, frozen=True, tag="welcome"):
    version: int
    models: tuple[ModelInfo, ...]
    limits: Limits


class Open(Frame, frozen=True, tag="open"):
    """Start a stream, or go on with one whose output so far the device carries (`committed`, with seed and choice)."""

    stream: Natural
    model: str
    prompt: tuple[TokenId, ...] = ()
    """The templated prompt; or empty, and `messages` are templated by the cloud."""
    messages: tuple[Message, ...] = ()
    committed: tuple[TokenId, ...] = ()
    sampling: Sampling = Sampling()
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    """Counts `committed` too. None: as many as the context holds."""
    min_tokens: Natural = 0
    stop: tuple[str, ...] = ()
    policy: Policy | None = None
    """None: the gateway's default."""
    privacy: Privacy = "full"
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    text: bool = False
    """Commits carry the text as well, for edges that have no tokenizer."""


class Opened(Frame, frozen=True, tag="opened"):
    """Answer to `open` and to `resume`."""

    stream: Natural
    resume: str
    """Secret with which this stream can be resumed, from any socket of the same tenant."""
    prompt_length: Natural
    seed: int
    choice: int
    epoch: Natural
    """The lowest epoch that the cloud will still take drafts of."""
    head: Natural
    """Number of output tokens already committed."""
    window: Natural
    """As in the `window` frame."""
    prompt: tuple[TokenId, ...] = ()
    """The templated prompt, when `messages` were sent and `text` was asked for."""
    pieces: tuple[str, ...] = ()
    """With `prompt`, the text of each of its tokens: an edge without a tokenizer can show drafts that repeat them."""


class Draft(Frame, frozen=True, tag="draft"):
    stream: Natural
    epoch: Natural
    start: Natural
    tokens: tuple[TokenId, ...]


class TokenLogprob(Struct, frozen=True, array_like=True):
    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Commit(Frame, frozen=True, tag="commit"):
    """Output tokens from `start` on. May overlap what the edge holds (the overlap is equal), never leaves a gap."""

    stream: Natural
    start: Natural
    tokens: tuple[TokenId, ...]
    drafted: Natural = 0
    """How many of them were the edge's drafts, verified in time."""
    step_us: Natural = 0
    """Duration of the target step that gave the last of them, µs."""
    queue_us: Natural = 0
    """How long the oldest of the drafts it used had waited for that step, µs."""
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    cuts: tuple[Natural, ...] = ()
    """With `text`, how many characters (code points) of it each token gave; 0 for one that only began a character."""


class Window(Frame, frozen=True, tag="window"):
    """How many tokens past its last commit the edge should draft at most; at least 1."""

    stream: Natural
    ahead: Annotated[int, Meta(ge=1)]


class Resume(Frame, frozen=True, tag="resume"):
    """Go on with a stream on this socket under the id `stream`; the cloud sends `opened`, then all from `held` on."""

    stream: Natural
    token: str
    held: Natural = 0


class Cancel(Frame, frozen=True, tag="cancel"):
    stream: Natural


class Finish(Frame, frozen=True, tag="finish"):
    stream: Natural
    length: Natural
    """Number of output tokens, all of which have been committed."""
    reason: Reason
    kept_bytes: Natural | None
    """UTF-8 bytes of the output text to keep (a stop string was cut off there); None: all."""
    usage: Usage


class Error(Frame, frozen=True, tag="error"):
    """`stream` None: it concerns the socket. After an error with `final` the stream is gone; otherwise it goes on."""

    stream: Natural | None
    code: str
    message: str = ""
    final: bool = False
    epoch: Natural | None = None
    """With `draft_refused`: the lowest epoch that will be taken again."""
    retry_after_s: float | None = None


class Ping(Frame, frozen=True, tag="ping"):
    nonce: Natural


class Pong(Frame, frozen=True, tag="pong"):
    nonce: Natural


EDGE_FRAME_BYTES: Final = 1 << 24
"""What an edge takes. The cloud's largest frame is an `opened` that carries a templated prompt."""

EdgeFrame = Hello | Open | Draft | Resume | Cancel | Ping
CloudFrame = Welcome | Opened | Commit | Window | Finish | Error | Pong


class Codec:
    """Encodes and decodes the frames that one side sends and receives.

    `decode` raises FrameTooLarge, UnknownFrame or MalformedFrame; none of them ends the connection.
    """

    def __init__(self, subprotocol: str, receives: Any, *, frame_bytes: int = 1 << 20) -> None:
        self.subprotocol = subprotocol
        self.text = subprotocol == JSON
        self.frame_bytes = frame_bytes
        encoder = msgspec.json.Encoder() if self.text else msgspec.msgpack.Encoder()
        module = msgspec.json if self.text else msgspec.msgpack
        self._encode: Callable[[Frame], bytes] = encoder.encode
        self._decode: Callable[[Any], Any] = module.Decoder(receives | Padded).decode
        self._decode_tag: Callable[[bytes | str], Any] = module.Decoder(list[Any]).decode
        self._known = {member.__struct_config__.tag: member for member in receives.__args__}

    def encode(self, frame: Frame) -> bytes | str:
        data = self._encode(frame)
        return data.decode() if self.text else data

    def decode(self, data: bytes | str) -> Any:
        size = len(data) if isinstance(data, bytes) or data.isascii() else len(data.encode(errors="surrogatepass"))
        too_large = FrameTooLarge(f"frame of {size} bytes, at most {self.frame_bytes} are taken")
        if size > self.frame_bytes + ENVELOPE_BYTES:
            raise too_large
        if isinstance(data, str) != self.text:
            raise MalformedFrame(f"{self.subprotocol} takes {'text' if self.text else 'binary'} messages")
        try:
            found = self._decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise (too_large if size > self.frame_bytes else self._diagnose(data, error)) from None
        if size > self.frame_bytes and not isinstance(found, Padded):
            raise too_large
        return found

    def unwrap(self, envelope: Padded) -> Any:
        """The frame in it; None if it is empty. Raises as `decode`."""
        data = bytes(envelope.frame)
        if data in (b"null", b"\xc0"):
            return None
        frame = self.decode(data.decode() if self.text else data)
        if isinstance(frame, Padded):
            raise MalformedFrame("an envelope in an envelope")
        return frame

    def _diagnose(self, data: bytes | str, error: Exception) -> UnknownFrame | MalformedFrame:
        """Tell a frame of a type that we don't know from one that is broken: only the second is the peer's fault."""
        try:
            parts = self._decode_tag(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return MalformedFrame(f"not a frame: {error!s:.200}")
        tag = parts[0] if parts else None
        if not isinstance(tag, str):
            return MalformedFrame("not a frame: its first element must be the name of a type")
        if tag == "pad":
            return MalformedFrame(f"invalid pad envelope: {error!s:.200}")
        if tag not in self._known:
            return UnknownFrame(f"unknown frame type {tag[:32]!r}")
        has_stream = self._known[tag].__struct_fields__[0] == "stream" and len(parts) > 1
        stream = parts[1] if has_stream and type(parts[1]) is int and parts[1] >= 0 else None
        return MalformedFrame(f"invalid {tag} frame: {error!s:.200}", stream=stream)


def edge_codec(subprotocol: str = MSGPACK, *, frame_bytes: int = EDGE_FRAME_BYTES) -> Codec:
    """The edge's codec: encodes EdgeFrames, decodes CloudFrames."""
    return Codec(subprotocol, CloudFrame, frame_bytes=frame_bytes)


def cloud_codec(subprotocol: str = MSGPACK, *, frame_bytes: int = 1 << 20) -> Codec:
    """The cloud's codec: encodes CloudFrames, decodes EdgeFrames."""
    return Codec(subprotocol, EdgeFrame, frame_bytes=frame_bytes)
