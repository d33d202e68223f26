"""An HTTP answer being made: the generations of its jobs, and their output through a renderer. For all of OpenAI's
endpoints, streamed or whole.

A stream is sent as FastAPI's EventSourceResponse, given bytes: its own encoder (for endpoints that yield) would make a
Pydantic model of every chunk, and sends status 200 before we know whether the engine takes the request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

from fastapi import Request
from fastapi.responses import Response
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse
from starlette.types import Receive, Scope, Send

from app.api import admission
from app.api.deps import Gateway
from app.engine.base import Commit, Finished
from app.errors import BadRequest, GatewayError, ShuttingDown, Unavailable
from app.telemetry import Pace
from app.tenants.terms import TenantId
from edge.merging import merged
from edge.openai.job import Job
from edge.openai.prediction import Predictor
from edge.openai.render import Renderer
from edge.protocol.errors import InvalidRequest

KEEPALIVE_S = 15.0
"""A comment is sent after this long without a token: proxies close connections that are silent for a minute."""


async def respond(request: Request, answer: Answer, *, stream: bool) -> Response:
    """The answer as a response. It ends with the response, however that ends."""
    if stream:
        return AnswerStream(answer)
    try:
        body = await _unless_disconnected(request, answer.body())
    finally:
        answer.end()
    if body is None:
        return Response(status_code=499)  # nobody is there to read it; the access log is
    return Response(body, media_type="application/json")


class Answer:
    """The generations of one HTTP request, one for each job. `end` must be called; it aborts what still runs."""

    def __init__(
        self,
        gateway: Gateway,
        tenant: TenantId,
        jobs: Sequence[Job],
        renderer: Renderer,
        clock: Callable[[], float],
        *,
        id: str,  # noqa: A002
        begun: float,
    ) -> None:
        """`begun`: when the request came, seconds by `clock`. Raises RateLimited, Overloaded or EngineFailed."""
        self.renderer = renderer
        self._gateway = gateway
        self._tenant = tenant
        self._clock = clock
        self._pace = Pace(gateway.metrics, "chat", tenant.name, begun)
        self._predictors = [Predictor(job.prediction) if job.prediction else None for job in jobs]
        self._ended = False
        self.generations = gateway.submit(tenant, admission.job_requests(jobs, tenant, id=id))
        for index, generation in enumerate(self.generations):
            gateway.answers.add(generation)
            gateway.metrics.opened.labels("chat").inc()
            self._predict(index, ())

    async def pieces(self, keepalive_s: float) -> AsyncIterator[bytes | None]:
        """What the renderer has to send, as it comes; None after `keepalive_s` without a token.

        Raises GatewayError when the engine fails.
        """
        yield self.renderer.begin()
        events = [generation.events() for generation in self.generations]
        async with contextlib.aclosing(merged(events, quiet_s=keepalive_s)) as items:
            async for item in items:
                if item is None:
                    yield None
                    continue
                index, event = item
                if event is None:
                    yield self._finish(index)
                elif isinstance(event, Commit):
                    self._pace.commit(len(event.tokens), self._clock())
                    self._predict(index, event.tokens)
                    yield self.renderer.push(index, event.tokens, event.logprobs)
        self._pace.finish()
        yield self.renderer.end([generation.usage() for generation in self.generations])

    async def body(self) -> bytes:
        """The whole answer, of a renderer that collects."""
        return b"".join([piece async for piece in self.pieces(KEEPALIVE_S) if piece])

    def end(self) -> None:
        """Abort what still runs and account for all of it. Idempotent."""
        if self._ended:
            return
        self._ended = True
        for generation in self.generations:
            generation.cancel()
            self._gateway.answers.discard(generation)
            self._gateway.account(self._tenant.id, generation)

    def _finish(self, index: int) -> bytes:
        finished = self.generations[index].finished
        assert finished is not None, "events() ends once the generation has finished"  # noqa: S101
        if finished.reason in ("error", "cancelled"):
            raise _failure(finished)
        return self.renderer.finish(index, finished.reason, finished.kept_bytes)

    def _predict(self, index: int, tokens: Sequence[int]) -> None:
        predictor = self._predictors[index]
        offer = predictor.push(tokens) if predictor else None
        if offer is not None:
            self.generations[index].offer(offer.epoch, offer.start, offer.tokens)


class AnswerStream(EventSourceResponse):
    """A streamed answer. However it ends, its generations end with it: when the client leaves, within one step."""

    def __init__(self, answer: Answer) -> None:
        # Without X-Accel-Buffering nginx would collect the chunks.
        super().__init__(self._events(), headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.end()

    async def _events(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._answer.pieces(KEEPALIVE_S):
                if piece is None:
                    yield KEEPALIVE_COMMENT
                elif piece:
                    yield piece
        except GatewayError as error:
            # The status has gone out already; OpenAI's clients raise on an event that holds an error.
            yield self._answer.renderer.failed(error.body())


def _failure(finished: Finished) -> GatewayError:
    if finished.reason == "cancelled":
        return ShuttingDown("The gateway is shutting down.", retry_after_s=5)
    if finished.error == InvalidRequest.code:
        return BadRequest(
            "No token is left that the grammar (within its limits), logit_bias and the vocabulary allow together."
        )
    return Unavailable("The engine failed while it was answering.")


async def _unless_disconnected(request: Request, work: Coroutine[None, None, bytes]) -> bytes | None:
    """The work's result; None, and the work is cancelled, if the client goes away before it is there."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
