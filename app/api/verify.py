"""The WebSocket of edges, /v1/verify: protocol `paceline.v1` (docs/protocol.md).

Who does what on a socket:

    Wire               bytes to frames and back, padding and counting (wire.py)
    Session.run        the only reader: takes a frame, acts on it, answers errors; ends with the socket
    Attachment         a task for each stream that sends its commits (attachment.py)
    Streams            what outlives the socket: detached and finished streams (streams.py)

Nothing is queued on the way: an edge that doesn't read what it is sent is, in the end, not read itself.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable

import structlog
from fastapi import APIRouter, WebSocket
from fastapi.responses import PlainTextResponse
from starlette.websockets import WebSocketDisconnect

from app.api import admission, origin
from app.api.attachment import Attachment
from app.api.deps import Gateway, GatewayDep
from app.api.socket_limits import ErrorBudget, StreamIds
from app.api.streams import HeldStream
from app.api.wire import Wire
from app.telemetry import Pace
from app.tenants.service import DatabaseAway
from app.tenants.terms import CALLER, TenantId
from edge.protocol import errors, frames

router = APIRouter()
log = structlog.get_logger("paceline.verify")

_TIMER_S = 0.001
"""By how much a timer may fire early, by rounding."""
_ENDS_STREAM = (
    errors.UnknownStream,
    errors.TooManyStreams,
    errors.UnknownModel,
    errors.VocabularyMismatch,
    errors.InvalidRequest,
    errors.Overloaded,
    errors.RateLimited,
    errors.UnknownResumeToken,
    errors.EngineFailed,
    errors.Fenced,
)
"""Answers to `open`, `resume` or a frame of a stream that isn't there: there is no such stream afterwards."""


@router.websocket("/v1/verify")
async def verify(websocket: WebSocket, gateway: GatewayDep) -> None:
    headers = websocket.headers
    if not origin.is_allowed(headers.get("origin"), headers.get("host", ""), gateway.settings.origin_list):
        message = "pages from elsewhere may not connect; PACELINE_ORIGINS can name them\n"
        await websocket.send_denial_response(PlainTextResponse(message, status_code=403))
        return
    subprotocol = next((p for p in frames.SUBPROTOCOLS if p in websocket.scope["subprotocols"]), None)
    if subprotocol is None or gateway.draining:
        status, message = (
            (503, "shutting down") if gateway.draining else (400, f"offer a subprotocol of {frames.SUBPROTOCOLS}")
        )
        await websocket.send_denial_response(PlainTextResponse(f"{message}\n", status_code=status))
        return
    await websocket.accept(subprotocol)
    session = Session(gateway, websocket, subprotocol)
    gateway.metrics.sockets.inc()
    try:
        await session.run()
    except DatabaseAway:
        await session.wire.close(1013, "try again later")  # RFC 6455's registry; to an edge it is a socket lost
    except Exception:  # the root of this socket's task
        log.exception("socket.failed")
        await session.wire.close(1011, "internal error")
    finally:
        gateway.metrics.sockets.dec()
        await session.leave()


class Session:
    """One socket."""

    def __init__(self, gateway: Gateway, websocket: WebSocket, subprotocol: str) -> None:
        self._gateway = gateway
        self._websocket = websocket
        self._limits = gateway.settings.limits
        self._tenant = TenantId("", "")
        self._fingerprint = ""
        self._drafter = ""
        self._number = gateway.streams.number_socket()
        self._ids = StreamIds()
        self._attached: dict[int, Attachment] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._errors = ErrorBudget(gateway.settings.socket_errors, time.monotonic())
        self._active_at = time.monotonic()
        self.wire = Wire(
            websocket,
            frames.cloud_codec(subprotocol, frame_bytes=self._limits.frame_bytes),
            gateway.metrics.socket_bytes(""),
            busy=lambda: bool(self._attached),
            spawn=self._spawn,
        )
        self._handlers: dict[type, Callable[..., Awaitable[None]]] = {
            frames.Open: self._open,
            frames.Draft: self._draft,
            frames.Resume: self._resume,
            frames.Cancel: self._cancel,
            frames.Ping: self._ping,
            frames.Hello: self._hello_again,
        }

    async def run(self) -> None:
        """Until the socket is gone, by either side."""
        try:
            await self._greet()
            while True:
                await self._step()
        except errors.Fatal as error:
            await self._close_with(error)
        except (WebSocketDisconnect, asyncio.CancelledError):
            self.wire.closed = True

    async def leave(self) -> None:
        """Detach what is attached, and leave no task behind."""
        self.wire.leave()
        attached, self._attached = self._attached, {}
        for attachment in attached.values():
            if attachment.task is not None:
                attachment.task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for attachment in attached.values():
            self._gateway.streams.detach(attachment.stream, attachment)

    async def _greet(self) -> None:
        """Raises Fatal if the peer doesn't introduce itself in time and properly."""
        try:
            async with asyncio.timeout(self._limits.hello_s):
                hello = self.wire.codec.decode(await self.wire.receive())  # never in an envelope
        except TimeoutError:
            raise errors.HelloTimeout(f"no hello within {self._limits.hello_s:g} s") from None
        except errors.ProtocolError as error:
            raise errors.HelloExpected(f"the first frame must be hello: {error.message}") from None
        if not isinstance(hello, frames.Hello):
            raise errors.HelloExpected("the first frame must be hello")
        if hello.version != frames.VERSION:
            raise errors.VersionMismatch(f"this gateway speaks version {frames.VERSION}")
        self._tenant = await self._authenticate(hello)
        self._fingerprint = hello.fingerprint
        self._drafter = f"{hello.agent} {hello.fingerprint}"
        structlog.contextvars.bind_contextvars(tenant=self._tenant.id)
        self._websocket.scope[CALLER] = self._tenant
        self.wire.counted = self._gateway.metrics.socket_bytes(self._tenant.name)
        model = self._gateway.engine.model
        info = frames.ModelInfo(
            model.id, model.fingerprint, model.vocabulary, model.context, model.fingerprint == hello.fingerprint
        )
        allowed = (info,) if self._tenant.terms.allows_model(model.id) else ()
        await self.wire.send(frames.Welcome(frames.VERSION, allowed, self._limits))

    async def _authenticate(self, hello: frames.Hello) -> TenantId:
        if bool(hello.auth) == bool(hello.ticket):
            raise errors.Unauthorised("hello carries either auth (an API key) or a ticket")
        if hello.ticket:
            tenant = self._gateway.tickets.redeem(hello.ticket)
        else:
            tenant = await self._gateway.tenants.authenticate(hello.auth)
        if tenant is None:
            raise errors.Unauthorised(
                "this ticket is unknown, used or too old" if hello.ticket else "this API key is wrong or revoked"
            )
        return tenant

    async def _step(self) -> None:
        """Take one frame. Raises Fatal; any other fault of the peer is answered, and the socket goes on."""
        try:
            frame = self.wire.decode(await self._receive_active())
            if frame is not None:
                await self._handlers[type(frame)](frame)
        except errors.Fatal:
            raise
        except errors.ProtocolError as error:
            await self._report(error)

    async def _receive_active(self) -> bytes | str:
        """The next message. Raises Idle once the socket has had neither streams nor frames for `idle_s`."""
        idle_s = self._limits.idle_s
        while True:
            left_s = idle_s if self._attached else self._idle_in_s()
            try:
                async with asyncio.timeout(left_s):
                    message = await self.wire.receive()
            except TimeoutError:
                if not self._attached and self._idle_in_s() < _TIMER_S:
                    raise errors.Idle(f"no streams and no frames for {idle_s:g} s") from None
                continue
            self._active_at = time.monotonic()
            return message

    def _idle_in_s(self) -> float:
        return self._active_at + self._limits.idle_s - time.monotonic()

    # Frames

    async def _open(self, frame: frames.Open) -> None:
        self._claim(frame.stream)
        begun = time.monotonic()
        engine, settings = self._gateway.engine, self._gateway.settings
        try:
            self._gateway.quotas.request(self._tenant)
            if frame.model != engine.model.id or not self._tenant.terms.allows_model(frame.model):
                raise errors.UnknownModel(f"no model {frame.model[:100]!r} here")
            if self._fingerprint and self._fingerprint != engine.model.fingerprint:
                raise errors.VocabularyMismatch("the drafter's token ids mean other texts than this model's")
            prompt = await asyncio.to_thread(admission.templated, frame, engine)
            request = admission.stream_request(
                frame,
                prompt,
                engine.model,
                self._tenant,
                id=f"stream-{secrets.token_hex(8)}",
                seed=secrets.randbits(53),
                policy=settings.default_policy,
                hold_s=settings.hold_ms / 1000,
                drafter=self._drafter,
            )
            self._gateway.streams.make_room(self._tenant)
            (generation,) = self._gateway.submit(self._tenant, [request])
        except errors.StreamError as error:
            error.stream = frame.stream
            raise
        pace = Pace(self._gateway.metrics, "edge", self._tenant.name, begun)
        stream = self._gateway.streams.add(self._tenant, generation, pace, text=frame.text)
        self._gateway.metrics.opened.labels("edge").inc()
        shown = prompt if frame.text and frame.messages else ()
        await self._attach(frame.stream, stream, len(frame.committed), shown)

    async def _resume(self, frame: frames.Resume) -> None:
        self._claim(frame.stream)
        try:
            stream = self._gateway.streams.find(self._tenant, frame.token)
        except errors.StreamError as error:
            error.stream = frame.stream
            raise
        head = len(stream.generation.ledger)
        if frame.held > head:
            raise errors.InvalidRequest(f"held: the stream has {head} tokens only", stream=frame.stream)
        self._gateway.metrics.resumed.inc()
        await self._attach(frame.stream, stream, frame.held, ())

    async def _attach(self, id: int, stream: HeldStream, start: int, prompt: tuple[int, ...]) -> None:  # noqa: A002
        vocabulary = self._gateway.engine.vocabulary
        attachment = Attachment(
            id,
            stream,
            start,
            vocabulary=vocabulary,
            send=self.wire.send,
            ended=self._ended,
            fenced=self._fenced,
        )
        self._attached[id] = attachment
        try:
            self._gateway.streams.attach(stream, attachment, socket=self._number)
        except errors.Fenced as error:  # of this stream alone: the socket is fine
            del self._attached[id]
            error.stream = id
            await self._report(error)
            return
        generation = stream.generation
        pieces = tuple(vocabulary.piece(token).decode(errors="replace") for token in prompt)
        await self.wire.send(
            frames.Opened(
                id,
                stream.resume_token,
                len(generation.request.prompt),
                generation.request.sampling.seed or 0,
                generation.request.sampling.choice,
                generation.lowest_epoch,
                len(generation.ledger),
                generation.window,
                prompt,
                pieces,
            )
        )
        if self._attached.get(id) is attachment:  # not fenced meanwhile
            attachment.begin()
            assert attachment.task is not None  # noqa: S101
            self._tasks.add(attachment.task)
            attachment.task.add_done_callback(self._reap)

    async def _draft(self, frame: frames.Draft) -> None:
        attachment = self._stream(frame.stream)
        if attachment is None:
            return
        if len(frame.tokens) > self._limits.draft_tokens:
            raise errors.DraftTooLong(
                f"{len(frame.tokens)} tokens, at most {self._limits.draft_tokens} are taken", stream=frame.stream
            )
        if not self._gateway.quotas.take_drafts(self._tenant, len(frame.tokens)):
            self._gateway.metrics.drafts_over_quota(self._tenant.name, len(frame.tokens))
            return  # the stream goes on without; an edge takes that for drafts that came too late
        attachment.stream.generation.offer(frame.epoch, frame.start, frame.tokens)

    async def _cancel(self, frame: frames.Cancel) -> None:
        attachment = self._stream(frame.stream)
        if attachment is not None:
            attachment.stream.generation.cancel()

    async def _ping(self, frame: frames.Ping) -> None:
        await self.wire.send(frames.Pong(frame.nonce))

    async def _hello_again(self, frame: frames.Hello) -> None:
        raise errors.MalformedFrame("hello was said already")

    # Bookkeeping

    def _claim(self, stream: int) -> None:
        """Take a new id. Raises StreamReused or TooManyStreams."""
        self._ids.use(stream)
        if len(self._attached) >= self._limits.streams:
            raise errors.TooManyStreams(f"at most {self._limits.streams} streams on a socket", stream=stream)

    def _stream(self, stream: int) -> Attachment | None:
        """None: it is over, and the frame crossed its `finish` on the way. Raises UnknownStream."""
        attachment = self._attached.get(stream)
        if attachment is None and stream not in self._ids:
            raise errors.UnknownStream(f"no stream {stream} on this socket", stream=stream)
        return attachment

    def _ended(self, attachment: Attachment) -> None:
        self._attached.pop(attachment.id, None)
        self._active_at = time.monotonic()
        self._gateway.streams.finish(attachment.stream, attachment)

    def _fenced(self, attachment: Attachment) -> None:
        """Another holder has the stream. If that is on another socket, this one is a leftover: it is closed."""
        self._attached.pop(attachment.id, None)
        holder = attachment.stream.holder
        if any(other is holder for other in self._attached.values()):
            message = "the stream was resumed under another id"
            self._spawn(self.wire.send(frames.Error(attachment.id, errors.Fenced.code, message, final=True)))
        else:
            self._spawn(self._close_with(errors.Fenced("the stream was resumed on another socket")))

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or isinstance(task.exception(), WebSocketDisconnect | RuntimeError | None):
            return  # a lost socket: the reader sees it too
        log.error("stream.failed", exc_info=task.exception())

    async def _report(self, error: errors.ProtocolError) -> None:
        """Tell the peer what it did wrong. Raises TooManyErrors once it has done so too often."""
        self._gateway.metrics.socket_errors.labels(error.code).inc()
        self._gateway.metrics.note("/v1/verify", error.code)
        await self.wire.send(
            frames.Error(
                error.stream,
                error.code,
                error.message[:500],
                final=isinstance(error, _ENDS_STREAM),
                retry_after_s=getattr(error, "retry_after_s", None),
            )
        )
        if not self._errors.spend(time.monotonic()):
            raise errors.TooManyErrors("too many errors on this socket")

    async def _close_with(self, error: errors.Fatal) -> None:
        self._gateway.metrics.socket_errors.labels(error.code).inc()
        self._gateway.metrics.note("/v1/verify", error.code)
        try:
            await self.wire.send(frames.Error(None, error.code, error.message[:500], final=True))
        except (WebSocketDisconnect, RuntimeError):
            return
        await self.wire.close(error.close or 1011, error.code)
