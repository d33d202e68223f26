"""POST /v1/chat/completions, for any client of the OpenAI API.

A stream is sent as FastAPI's EventSourceResponse, given bytes: its own encoder (for endpoints that yield) would make a
Pydantic model of every chunk, and sends status 200 before we know whether the engine takes the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from typing import cast

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse
from starlette.types import Receive, Scope, Send

from app.api import admission
from app.api.deps import Gateway, GatewayDep, TenantDep
from app.engine.base import Commit, Event, Finished
from app.engine.base import Request as EngineRequest
from app.engine.generation import Generation
from app.errors import GatewayError, ShuttingDown, Unavailable
from app.telemetry import Pace
from app.tenants.terms import TenantId
from edge.openai import render
from edge.openai.schemas import ChatRequest
from edge.protocol.frames import Reason, TokenLogprob

router = APIRouter()
KEEPALIVE_S = 15.0
"""A comment is sent after this long without a token: proxies close connections that are silent for a minute."""


@router.post("/v1/chat/completions")
async def create_chat_completion(
    chat: ChatRequest, request: Request, gateway: GatewayDep, tenant: TenantDep
) -> Response:
    begun = time.monotonic()
    gateway.require_model(chat.model, tenant)
    prompt = await asyncio.to_thread(gateway.engine.vocabulary.render, render.messages(chat.messages))
    id = f"chatcmpl-{secrets.token_hex(12)}"  # noqa: A001
    requests = admission.chat_requests(chat, prompt, gateway.engine.model, tenant, id=id, seed=secrets.randbits(53))
    answer = Answer(gateway, tenant, requests, Pace(gateway.metrics, "chat", tenant.name, begun))
    created = int(time.time())
    if chat.stream:
        usage = chat.stream_options is not None and chat.stream_options.include_usage
        return AnswerStream(answer, render.StreamRenderer(id, created, chat.model, usage))
    try:
        choices = await _unless_disconnected(request, answer.whole())
    finally:
        answer.end()
    if choices is None:
        return Response(status_code=499)  # nobody is there to read it; the access log is
    body = render.completion(id, created, chat.model, choices, [g.usage() for g in answer.generations])
    return Response(body, media_type="application/json")


@dataclass(frozen=True, slots=True)
class Part:
    """What became of choice `index`: text, or its end."""

    index: int
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    reason: Reason | None = None


class Answer:
    """The generations of one HTTP request, one for each choice. `end` must be called; it aborts what still runs."""

    def __init__(self, gateway: Gateway, tenant: TenantId, requests: Sequence[EngineRequest], pace: Pace) -> None:
        """Raises RateLimited, Overloaded or EngineFailed."""
        self._gateway = gateway
        self._tenant = tenant
        self._pace = pace
        self._ended = False
        self.texts = [
            render.ChoiceText(
                gateway.engine.vocabulary,
                stop=request.stop,
                min_tokens=request.min_tokens,
                logprobs=request.logprobs is not None,
            )
            for request in requests
        ]
        self.generations = gateway.submit(tenant, requests)
        for generation in self.generations:
            gateway.answers.add(generation)
            gateway.metrics.opened.labels("chat").inc()

    async def parts(self, keepalive_s: float) -> AsyncIterator[Part | None]:
        """All choices' output as it comes; None after `keepalive_s` without any. Raises when the engine fails."""
        async with contextlib.aclosing(_merged(self.generations, keepalive_s)) as events:
            async for item in events:
                if item is None:
                    yield None
                    continue
                index, event = item
                if event is None:
                    yield self._last_part(index)
                elif isinstance(event, Commit):
                    self._pace.commit(len(event.tokens), time.monotonic())
                    text = self.texts[index].push(event.tokens)
                    if text or event.logprobs:
                        yield Part(index, text, event.logprobs)
        self._pace.finish()

    async def whole(self) -> list[render.Choice]:
        """The finished choices."""
        texts = [""] * len(self.generations)
        logprobs: list[list[TokenLogprob]] = [[] for _ in self.generations]
        reasons: list[Reason] = ["stop"] * len(self.generations)
        async for part in self.parts(KEEPALIVE_S):
            if part is not None:
                texts[part.index] += part.text
                logprobs[part.index] += part.logprobs
                reasons[part.index] = part.reason or "stop"
        return [
            render.Choice(i, render.AnswerMessage(text), reasons[i], self.texts[i].logprobs(logprobs[i]))
            for i, text in enumerate(texts)
        ]

    def end(self) -> None:
        """Abort what still runs and account for all of it. Idempotent."""
        if self._ended:
            return
        self._ended = True
        for generation in self.generations:
            generation.cancel()
            self._gateway.answers.discard(generation)
            self._gateway.account(self._tenant.id, generation)

    def _last_part(self, index: int) -> Part:
        finished = self.generations[index].finished
        assert finished is not None, "events() ends once the generation has finished"  # noqa: S101
        if finished.reason in ("error", "cancelled"):
            raise _failure(finished)
        return Part(index, self.texts[index].finish(finished.kept_bytes), reason=finished.reason)


class AnswerStream(EventSourceResponse):
    """A streamed answer. However it ends, its generations end with it: when the client leaves, within one step."""

    def __init__(self, answer: Answer, renderer: render.StreamRenderer) -> None:
        # Without X-Accel-Buffering nginx would collect the chunks.
        super().__init__(self._events(), headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._answer = answer
        self._renderer = renderer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.end()

    async def _events(self) -> AsyncIterator[bytes]:
        answer, renderer = self._answer, self._renderer
        for index in range(len(answer.generations)):
            yield renderer.begin(index)
        try:
            async for part in answer.parts(KEEPALIVE_S):
                if part is None:
                    yield KEEPALIVE_COMMENT
                    continue
                logprobs = answer.texts[part.index].logprobs(part.logprobs) if part.logprobs else None
                if part.text or logprobs:
                    yield renderer.text(part.index, part.text, logprobs)
                if part.reason is not None:
                    yield renderer.finish(part.index, part.reason)
        except GatewayError as error:
            # The status has gone out already; OpenAI's clients raise on an event that holds an error.
            yield b"data: " + orjson.dumps(error.body()) + b"\n\n"
            return
        if renderer.include_usage:
            yield renderer.usage([generation.usage() for generation in answer.generations])
        yield render.DONE


def _failure(finished: Finished) -> GatewayError:
    if finished.reason == "cancelled":
        return ShuttingDown("The gateway is shutting down.", retry_after_s=5)
    return Unavailable("The engine failed while it was answering.")


async def _merged(
    generations: Sequence[Generation], keepalive_s: float
) -> AsyncGenerator[tuple[int, Event | None] | None]:
    """(choice, event) as they come; event None: that choice is over. None alone: nothing came for `keepalive_s`."""
    iterators = [generation.events(0) for generation in generations]
    waiting = {asyncio.ensure_future(_next(iterator)): index for index, iterator in enumerate(iterators)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, timeout=keepalive_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                yield None
            for task in done:
                index, event = waiting.pop(task), task.result()
                if event is not None:
                    waiting[asyncio.ensure_future(_next(iterators[index]))] = index
                yield index, event
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _next(events: AsyncIterator[Event]) -> Event | None:
    return cast("Event | None", await anext(events, None))


async def _unless_disconnected(
    request: Request, work: Coroutine[None, None, list[render.Choice]]
) -> list[render.Choice] | None:
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
