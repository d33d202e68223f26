"""Logs, metrics, and the one piece of middleware that feeds both. No prompt, completion or token id gets here."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.engine.base import Load, Replicated
from app.tenants.terms import caller
from edge.protocol.frames import Usage

access_log = structlog.get_logger("paceline.access")

_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_POSITIONS = 16
"""Places of drafts in a step that are told apart; those behind share `more`."""
_LATENCY_BUCKETS = (0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


def configure_logging(style: str, level: str) -> None:
    """Send structlog and the standard library's loggers to stderr: JSON, or text for a terminal (`auto` looks)."""
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    last: list[structlog.typing.Processor] = (
        # The default one shows local variables beside each line: prompts among them.
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Uvicorn tells of every socket it opens; the access log below does that once, with the tenant's request id.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    for chatty in ("alembic", "aiosqlite", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


FAULTS_KEPT = 50


@dataclass(frozen=True, slots=True)
class Fault:
    """An error that somebody was told of: when, where and its code; never what they had sent."""

    at: float
    """Seconds since 1970."""
    where: str
    code: str


class Metrics:
    """The gateway's counters, in a registry of their own: two apps in one process don't meet."""

    def __init__(self, load: Callable[[], Load], streams: Callable[[], int], *, tenants: int = 50) -> None:
        """`tenants`: how many have labels of their own; later ones share `other`, so that labels stay bounded."""
        self._most_tenants = tenants
        self._tenants: set[str] = set()
        self.registry = CollectorRegistry()
        r = self.registry
        self.requests = Counter(
            "paceline_requests", "Finished HTTP requests and sockets.", ["route", "status", "tenant"], registry=r
        )
        self.faults: deque[Fault] = deque(maxlen=FAULTS_KEPT)
        self.sockets = Gauge("paceline_sockets", "Open sockets of edges.", registry=r)
        self.opened = Counter("paceline_streams_opened", "Streams that began.", ["kind"], registry=r)
        self.finished = Counter("paceline_streams_finished", "Streams that ended, by reason.", ["reason"], registry=r)
        self.resumed = Counter("paceline_streams_resumed", "Streams resumed on another socket.", registry=r)
        self.socket_errors = Counter("paceline_socket_errors", "Errors sent to edges.", ["code"], registry=r)
        self.commits = Counter("paceline_commits", "Commits sent to edges or HTTP clients.", ["kind"], registry=r)
        self.tokens = Counter("paceline_tokens", "Tokens by what they are.", ["what", "tenant"], registry=r)
        self.steps = Counter("paceline_stream_steps", "Target steps, counted once a stream they served.", registry=r)
        self.bytes = Counter(
            "paceline_socket_bytes", "Payload of the edges' frames.", ["direction", "tenant"], registry=r
        )
        self.ttft = Histogram(
            "paceline_ttft_seconds", "Request to first token.", ["kind", "tenant"], buckets=_LATENCY_BUCKETS, registry=r
        )
        self.itl = Histogram(
            "paceline_itl_seconds",
            "Per stream: (last - first token's time) / (tokens - 1).",
            ["kind", "tenant"],
            buckets=_LATENCY_BUCKETS,
            registry=r,
        )
        self.queue_time = Histogram(
            "paceline_queue_seconds", "A stream's wait for its turn.", buckets=_LATENCY_BUCKETS, registry=r
        )
        self.step_time = Histogram(
            "paceline_step_seconds", "A step of the target.", buckets=_LATENCY_BUCKETS, registry=r
        )
        self.step_tokens = Histogram("paceline_step_tokens", "Tokens in a step.", buckets=_SIZE_BUCKETS, registry=r)
        self.drafts_checked = Counter(
            "paceline_drafts_checked", "Drafts checked in a step, by their place in it.", ["position"], registry=r
        )
        self.drafts_accepted = Counter(
            "paceline_drafts_accepted", "Those of them that became output.", ["position"], registry=r
        )
        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "paceline_streams_held": ("Streams of edges in memory: open, detached or resumable.", streams),
            "paceline_engine_running": ("Streams in the engine's batch.", lambda: load().running),
            "paceline_engine_waiting": ("Streams in the engine's queue.", lambda: load().waiting),
            "paceline_engine_context_used": ("Tokens in the KV cache.", lambda: load().context_used),
            "paceline_engine_context_total": ("Room of the KV cache, tokens.", lambda: load().context_total),
            "paceline_engine_step_seconds": ("Recent mean duration of a step.", lambda: load().step_s),
            "paceline_engine_step_error": (
                "Cost model: 90th percentile of its relative error over recent steps.",
                lambda: load().step_error,
            ),
        }
        for name, (what, value) in gauges.items():
            Gauge(name, what, registry=r).set_function(value)

    def note(self, where: str, code: str) -> None:
        """Remember an error for the operator; the oldest is forgotten."""
        self.faults.append(Fault(time.time(), where[:80], code))

    def tenant(self, name: str) -> str:
        """The label of the tenant of that name; "" is nobody's."""
        if name and name not in self._tenants:
            if len(self._tenants) >= self._most_tenants:
                return "other"
            self._tenants.add(name)
        return name

    def used(self, tenant: str, usage: Usage) -> None:
        """What a stream used since the last time."""
        label = self.tenant(tenant)
        for what in ("prompt", "completion", "drafted", "verified", "accepted", "matched"):
            if count := getattr(usage, what):
                self.tokens.labels(what, label).inc(count)
        self.steps.inc(usage.steps)

    def total_tokens(self, what: str) -> float:
        """Of all tenants."""
        (family,) = self.tokens.collect()
        return sum(s.value for s in family.samples if s.name.endswith("_total") and s.labels["what"] == what)

    def queued(self, seconds: float) -> None:
        self.queue_time.observe(seconds)

    def stepped(self, tokens: int, seconds: float) -> None:
        self.step_tokens.observe(tokens)
        self.step_time.observe(seconds)

    def checked(self, drafts: int, accepted: int) -> None:
        """A step checked so many drafts of a stream and accepted the first `accepted`."""
        for place in range(drafts):
            position = str(place + 1) if place < _POSITIONS else "more"
            self.drafts_checked.labels(position).inc()
            if place < accepted:
                self.drafts_accepted.labels(position).inc()

    def rolled_back(self, tenant: str, tokens: int) -> None:
        """Drafts of a stream that is over which came to nothing."""
        self.tokens.labels("rolled_back", self.tenant(tenant)).inc(max(0, tokens))

    def drafts_over_quota(self, tenant: str, tokens: int) -> None:
        self.tokens.labels("over_quota", self.tenant(tenant)).inc(tokens)

    def socket_bytes(self, tenant: str) -> SocketBytes:
        label = self.tenant(tenant)
        return SocketBytes(self.bytes.labels("up", label), self.bytes.labels("down", label))


@dataclass(frozen=True, slots=True)
class SocketBytes:
    """Of one tenant's sockets, by direction."""

    up: Counter
    down: Counter


class ReplicaMetrics(Collector):
    """Gauges of each replica, read when they are asked for."""

    def __init__(self, engine: Replicated) -> None:
        self._engine = engine

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        up = GaugeMetricFamily("paceline_replica_up", "Whether it takes streams.", labels=["replica"])
        streams = GaugeMetricFamily("paceline_replica_streams", "Streams that live on it.", labels=["replica"])
        used = GaugeMetricFamily("paceline_replica_context_used", "Tokens in its KV cache.", labels=["replica"])
        step = GaugeMetricFamily("paceline_replica_step_seconds", "Recent mean of a step.", labels=["replica"])
        restarts = CounterMetricFamily("paceline_replica_restarts", "How often it was lost.", labels=["replica"])
        for replica in self._engine.replicas():
            label = [str(replica.index)]
            up.add_metric(label, float(replica.state == "up"))
            streams.add_metric(label, replica.streams)
            used.add_metric(label, replica.load.context_used)
            step.add_metric(label, replica.load.step_s)
            restarts.add_metric(label, replica.restarts)
        yield from (up, streams, used, step, restarts)
        moved = CounterMetricFamily("paceline_streams_moved", "Streams that went on at another replica.")
        moved.add_metric([], self._engine.moved)
        yield moved


class Pace:
    """Times of one stream's tokens. `now` is any monotonic clock, seconds."""

    def __init__(self, metrics: Metrics, kind: str, tenant: str, begun: float) -> None:
        """`kind`: chat or edge; `tenant`: its name."""
        self._commits = metrics.commits.labels(kind)
        self._ttft = metrics.ttft.labels(kind, metrics.tenant(tenant))
        self._itl = metrics.itl.labels(kind, metrics.tenant(tenant))
        self._begun = begun
        self._first: float | None = None
        self._last = begun
        self._after_first = 0

    def commit(self, tokens: int, now: float) -> None:
        """`tokens` have been sent at `now`."""
        self._commits.inc()
        if not tokens:
            return
        if self._first is None:
            self._first = now
            self._ttft.observe(now - self._begun)
            tokens -= 1
        self._after_first += tokens
        self._last = now

    def finish(self) -> None:
        if self._first is not None and self._after_first:
            self._itl.observe((self._last - self._first) / self._after_first)


class AccessLog:
    """Outermost ASGI middleware: binds a request id, bounds the body, logs and counts what ended."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, body_bytes: int, body_s: float) -> None:
        self._app = app
        self._metrics = metrics
        self._body_bytes = body_bytes
        self._body_s = body_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        begun = time.monotonic()
        status = 101 if scope["type"] == "websocket" else 499  # 499: the client went away before an answer began
        request_id = f"req-{secrets.token_hex(8)}"

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
            await send(message)

        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request=request_id)
        try:
            bounds = (self._body_bytes, self._body_s)
            await self._app(scope, bounded(receive, *bounds) if scope["type"] == "http" else receive, sending)
        except BaseException:
            status = 500 if status == 499 else status
            raise
        finally:
            # The route's template, not the path: paths are unbounded, and each would be a time series.
            route = getattr(scope.get("route"), "path", "unknown")
            tenant = caller(scope)
            label = self._metrics.tenant(tenant.name if tenant is not None else "")
            self._metrics.requests.labels(route, str(status), label).inc()
            access_log.info(
                "request",
                method=scope.get("method", "WEBSOCKET"),
                route=route,
                status=status,
                duration_ms=round((time.monotonic() - begun) * 1000, 1),
            )


def bounded(receive: Receive, limit: int, within_s: float) -> Receive:
    """`receive` that raises a 413 once the request's body has passed `limit` bytes, a 408 if it isn't whole in time."""
    taken, until, whole = 0, asyncio.get_running_loop().time() + within_s, False

    async def receiving() -> Message:
        nonlocal taken, whole
        if whole:
            return await receive()
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:  # FastAPI passes no other kind on
            raise HTTPException(408, f"The body was not here within {within_s:g} s") from None
        whole = not message.get("more_body", False)
        taken += len(message.get("body", b""))
        if taken > limit:
            raise HTTPException(413, f"The body is larger than {limit} bytes.")
        return message

    return receiving
