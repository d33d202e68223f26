"""Which path serves a request: hybrid, else the gateway's HTTP API, else the drafter alone.

A path is left for the next one as long as the client has seen nothing: before a stream's first tokens, or at any time
before a whole answer is there. What the hybrid path can't do (no tokenizer here, a model that the drafter doesn't fit,
a prediction, whatever the gateway refuses over the socket) is no failure of it: the gateway does it, and its answer is
the one that counts.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from edge.drafters.base import Drafter
from edge.errors import EdgeError, Unreachable
from edge.ladder import Ladder, Path
from edge.openai.errors import Rejected
from edge.openai.render import Renderer
from edge.openai.vocabulary import Vocabulary
from edge.privacy import Recorder
from edge.protocol.errors import ProtocolError
from edge.protocol.frames import Message, ModelInfo, Policy
from edge.serve.answer import first_pieces, pieces
from edge.serve.proxy import Proxy
from edge.serve.question import Name, Plan, Question, plan
from edge.serve.socket import Socket
from edge.serve.sources import Source, alone, hybrid

STREAM_TYPE: Final = "text/event-stream; charset=utf-8"
BODY_TYPE: Final = "application/json"


class NoPath(Exception):
    """Nothing could serve the request. `message` is for the client."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Unfit(Exception):
    """This path can't do what was asked; another can. No fault of the path."""


@dataclass(slots=True)
class Served:
    """A response. `close` must be awaited, however it ends."""

    path: Path
    status: int
    headers: dict[str, str]
    body: AsyncGenerator[bytes, None]
    why: str = ""
    """Why it wasn't a better path."""
    life: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def close(self) -> None:
        await self.body.aclose()
        await self.life.aclose()


@dataclass(frozen=True, slots=True)
class Device:
    """What this device answers with."""

    drafter: Drafter | None
    context: int
    """Of the drafter alone, tokens."""
    policy: Policy | None
    coupled: bool
    privacy: str


class Dispatcher:
    def __init__(
        self,
        device: Device,
        socket: Socket,
        proxy: Proxy,
        ladder: Ladder,
        *,
        recorder: Recorder | None,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """`clock`: for the ladder's rests; `now`: seconds since 1970, for the answers' dates."""
        self._device = device
        self._socket = socket
        self._proxy = proxy
        self._ladder = ladder
        self._recorder = recorder
        self._clock = clock
        self._now = now
        self._running = 0

    async def answer(self, endpoint: Name, question: Question) -> Served:
        """Raises Rejected, NoPath, or what the drafter raises."""
        privacy = question.wishes.privacy or self._device.privacy
        if privacy in ("redacted", "draft_only"):
            raise Rejected(f"This endpoint doesn't do privacy mode '{privacy}': use 'full' or 'local'.", "paceline")
        if privacy == "local":
            return await self._first_of(["local"], endpoint, question)
        return await self._first_of(self._ladder.order(self._clock()), endpoint, question)

    async def fetch(self, path: str) -> Served:
        """A GET of the gateway's. Raises NoPath."""
        try:
            passed = await self._proxy.send("GET", path)
        except Unreachable as error:
            raise NoPath(f"{error}.") from error
        served = Served("cloud", passed.status, passed.headers, passed.body)
        served.life.push_async_callback(passed.close)
        return served

    async def _first_of(self, paths: list[Path], endpoint: Name, question: Question) -> Served:
        reasons: list[str] = []
        takes = {"hybrid": self._hybrid, "cloud": self._cloud, "local": self._local}
        for path in paths:
            try:
                served = await takes[path](endpoint, question)
            except Unfit as error:
                reasons.append(f"{path}: {error}")
            except EdgeError as error:
                self._ladder.failed(path, self._clock())
                reasons.append(f"{path}: {error.message}")
            else:
                self._ladder.worked(path)
                served.why = "; ".join(reasons) or self._resting(path, paths)
                return served
        raise NoPath(f"Nothing can answer now ({'; '.join(reasons)}).")

    def _resting(self, path: Path, paths: list[Path]) -> str:
        return "" if path == "hybrid" or "hybrid" in paths or paths == ["local"] else "hybrid: failed a moment ago"

    # The paths. Each raises Unfit, EdgeError or Rejected.

    async def _hybrid(self, endpoint: Name, question: Question) -> Served:
        try:
            runtime = await self._socket.runtime()
            vocabulary = runtime.vocabulary
            if vocabulary is None:
                raise Unfit("no tokenizer of the target on this device")
            model = _model(runtime.connection.welcome.models, question.model, vocabulary)
            made = await self._plan(endpoint, question, vocabulary, model.context)
            if any(job.prediction for job in made.jobs):
                raise Unfit("a prediction is drafted from in the cloud")
            wishes = question.wishes
            coupled = self._device.coupled if wishes.draft_sampling is None else wishes.draft_sampling == "coupled"
            source = hybrid(runtime, model.id, policy=wishes.policy or self._device.policy, coupled=coupled)
            return await self._serve("hybrid", made, source, question)
        except ProtocolError as error:  # over HTTP the gateway says it in the client's own terms
            raise Unfit(error.message) from error

    async def _cloud(self, endpoint: Name, question: Question) -> Served:
        body = msgspec.json.encode(question.body)
        over: Callable[[int], None] | None = None
        if self._recorder is not None:
            over = self._recorder.asked(question.model, [Message("request", body.decode())])
        passed = await self._proxy.send("POST", f"/v1/{endpoint}", body)
        served = Served("cloud", passed.status, passed.headers, passed.body)
        served.life.push_async_callback(passed.close)
        if over is not None:
            served.life.callback(over, len(body))
        if passed.gone:
            await served.close()
            raise Unreachable(f"the gateway answers with HTTP status {passed.status}")
        return served

    async def _local(self, endpoint: Name, question: Question) -> Served:
        drafter = self._device.drafter
        if drafter is None or drafter.vocabulary is None:
            raise Unfit("no language model on this device")
        made = await self._plan(endpoint, question, drafter.vocabulary, self._device.context)
        if any(job.logprobs is not None for job in made.jobs):
            raise Unfit("logprobs are the target's, which is out of reach")
        return await self._serve("local", made, alone(drafter, drafter.vocabulary), question)

    async def _plan(self, endpoint: Name, question: Question, vocabulary: Vocabulary, context: int) -> Plan:
        return await asyncio.to_thread(
            plan,
            endpoint,
            question,
            vocabulary,
            context=context,
            seed=secrets.randbits(53),
            new_id=lambda prefix: prefix + secrets.token_hex(12),
            created=int(self._now()),
        )

    async def _serve(self, path: Path, made: Plan, source: Source, question: Question) -> Served:
        """The answer, whole or from its first tokens on."""
        answer = pieces(made.jobs, made.renderer, source)
        self._running += 1
        try:
            if question.stream:
                first = await first_pieces(answer)
                body, kind = _going_on(first, answer, made.renderer), STREAM_TYPE
            else:
                body, kind = _whole(b"".join([piece async for piece in answer])), BODY_TYPE
        except BaseException:
            await answer.aclose()
            self._ended()
            raise
        served = Served(path, 200, {"content-type": kind, "cache-control": "no-cache"}, body)
        served.life.callback(self._ended)
        served.life.push_async_callback(answer.aclose)
        return served

    def _ended(self) -> None:
        self._running -= 1
        if self._recorder is not None and not self._running:
            self._recorder.over()


def error_body(message: str, kind: str, code: str, param: str | None = None) -> dict[str, Any]:
    """In OpenAI's shape."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _model(models: tuple[ModelInfo, ...], name: str, vocabulary: Vocabulary) -> ModelInfo:
    found = next((model for model in models if model.id == name), None)
    if found is None:
        raise Unfit("the gateway offers no such model on the socket")
    if found.fingerprint != vocabulary.fingerprint:
        raise Unfit(f"the tokenizer on this device is not that of {found.id}")
    return found


async def _whole(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


async def _going_on(
    first: bytes, answer: AsyncGenerator[bytes, None], renderer: Renderer
) -> AsyncGenerator[bytes, None]:
    """The status has gone out: what goes wrong from here on is an event, which OpenAI's clients raise."""
    yield first
    try:
        async for piece in answer:
            if piece:
                yield piece
    except (EdgeError, ProtocolError) as error:
        yield renderer.failed(error_body(error.message, "server_error", "stream_lost"))
