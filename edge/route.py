"""Where a device's questions go: to the cloud, with drafts from here or (where there is no socket) over HTTP without,
or nowhere (privacy mode `local`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Protocol
from uuid import uuid4

from msgspec import Struct

from edge.ask import Answered, ask_cloud, ask_hybrid, ask_local
from edge.budget import Budget
from edge.cloud import Cloud, Refused, choose_model
from edge.config import DeviceSettings, gateway_url
from edge.connection import Connection
from edge.drafters.base import Drafter
from edge.drafters.ngram import NgramDrafter
from edge.errors import EdgeError, Unreachable
from edge.generate import Generate
from edge.pacing import LEAST_SURVIVAL
from edge.power import look
from edge.privacy import DisclosureLog, Recorder
from edge.protocol.frames import Message, ModelInfo, Policy, Privacy, Sampling
from edge.protocol.padding import Padding
from edge.runtime import Runtime
from edge.terminal import Answer, SilentAnswer


class Question(Struct, frozen=True, kw_only=True):
    messages: tuple[Message, ...]
    sampling: Sampling
    """`seed` is set: then every route gives the same answer."""
    max_tokens: int | None = None


class Route(Protocol):
    title: str
    """One line for the user: who answers, and who drafts."""
    name: str
    """For its row of figures."""
    verified: bool
    """Whether a target model has the last word."""

    async def ask(self, question: Question, answer: Answer) -> Answered: ...

    async def compare(self, question: Question) -> Answered | None:
        """The same without this device's drafts; None where there is nothing to compare with."""
        ...


class LocalRoute:
    name = "this device"
    verified = False

    def __init__(self, drafter: Drafter | None) -> None:
        if drafter is None:
            raise EdgeError("Without a drafter nobody answers in privacy mode `local`. Use --drafter llama.")
        self._drafter = drafter
        self.title = f"{drafter.name} alone: unverified, and nothing leaves this device"

    async def ask(self, question: Question, answer: Answer) -> Answered:
        return await ask_local(self._drafter, question.messages, question.sampling, question.max_tokens, answer)

    async def compare(self, question: Question) -> Answered | None:
        return None


class CloudRoute:
    """Over HTTP, as any client would ask."""

    name = "cloud only"
    verified = True

    def __init__(self, cloud: Cloud, model: str, recorder: Recorder | None) -> None:
        self._cloud = cloud
        self._model = model
        self._recorder = recorder
        self.title = f"{model} at {cloud.url} over HTTP, without drafts"

    async def ask(self, question: Question, answer: Answer) -> Answered:
        over: Callable[[int], None] = lambda size: None  # noqa: E731
        if self._recorder is not None:
            over = self._recorder.asked(self._model, question.messages)
        answered, size = await ask_cloud(
            self._cloud, self._model, question.messages, question.sampling, question.max_tokens, answer
        )
        over(size)
        return answered

    async def compare(self, question: Question) -> Answered | None:
        return None


class HybridRoute:
    verified = True

    def __init__(
        self,
        runtime: Runtime,
        cloud: Cloud,
        model: ModelInfo,
        recorder: Recorder | None,
        *,
        policy: Policy | None,
        coupled: bool,
        draft_length: int | None = None,
        least_survival: float = LEAST_SURVIVAL,
        privacy: Privacy = "full",
    ) -> None:
        self._runtime = runtime
        self._cloud = cloud
        self._model = model
        self._recorder = recorder
        self._policy = policy
        self._coupled = coupled
        self._draft_length = draft_length
        self._least_survival = least_survival
        self._privacy: Privacy = privacy
        drafter = runtime.drafter
        by = f"drafted here by {drafter.name}" if drafter is not None else "without drafts"
        self.name = "hybrid" if drafter is not None else "no drafts"
        self.title = f"{model.id} at {cloud.url}, {by}"
        if privacy == "draft_only":
            self.title += "; the prompt stays here, and so the answer is not the target's own"

    async def ask(self, question: Question, answer: Answer) -> Answered:
        request = Generate(
            model=self._model.id,
            messages=question.messages,
            sampling=question.sampling,
            max_tokens=question.max_tokens,
            policy=self._policy,
            coupled=self._coupled,
            draft_length=self._draft_length,
            least_survival=self._least_survival,
            privacy=self._privacy,
        )
        try:
            return await ask_hybrid(self._runtime, request, answer)
        finally:
            if self._recorder is not None:
                self._recorder.over()

    async def compare(self, question: Question) -> Answered | None:
        if self._privacy == "draft_only":  # cloud-only would send the prompt
            return None
        await self._cloud.models()  # the hybrid route had its connection before the question too
        return await CloudRoute(self._cloud, self._model.id, self._recorder).ask(question, SilentAnswer())


@asynccontextmanager
async def open_route(
    settings: DeviceSettings, drafter: Drafter | None, warn: Callable[[str], None]
) -> AsyncIterator[Route]:
    """Hybrid; over HTTP where no socket can be had, unless in `draft_only`. Raises as `open_hybrid`."""
    async with AsyncExitStack() as stack:
        route: Route
        try:
            route = await stack.enter_async_context(open_hybrid(settings, drafter, warn))
        except Unreachable as error:
            if settings.privacy == "draft_only":  # over HTTP the prompt would go
                raise
            route = await stack.enter_async_context(_open_cloud(settings, drafter, error))
            warn(f"{error.message}. The answers come over HTTP, without drafts.")
        yield route


@asynccontextmanager
async def _open_cloud(
    settings: DeviceSettings, drafter: Drafter | None, without: Unreachable
) -> AsyncIterator[CloudRoute]:
    """Raises `without` if there is no HTTP either, and Refused."""
    async with Cloud(gateway_url(settings.url), settings.key(), allow_plain=settings.allow_plain) as cloud:
        try:
            models = await cloud.models()
        except Unreachable:
            raise without from None
        model = settings.model or next(iter(models), "")
        if model not in models:
            raise Refused(f"The gateway has no model {model!r}; it has {', '.join(models) or 'none'}.")
        yield CloudRoute(cloud, model, recorder_for(settings, drafter))


@asynccontextmanager
async def open_hybrid(
    settings: DeviceSettings, drafter: Drafter | None, warn: Callable[[str], None]
) -> AsyncIterator[HybridRoute]:
    """Connect. Raises Unreachable, Refused, or what the gateway answers to `hello`."""
    recorder = recorder_for(settings, drafter)
    async with connected(settings, drafter, recorder) as (connection, model, fits):
        if drafter is not None and not fits:
            warn(
                f"{drafter.name} has another tokenizer than {model.id}: drafting from the text itself instead "
                "(PACELINE_TARGET_TOKENIZER lets it draft by text)."
            )
            drafter = NgramDrafter()
        cloud = Cloud(gateway_url(settings.url), settings.key(), allow_plain=settings.allow_plain)
        async with cloud, Runtime(connection, drafter, budget=budget_for(settings)) as runtime:
            yield HybridRoute(
                runtime,
                cloud,
                model,
                recorder,
                policy=settings.policy,
                coupled=settings.draft_sampling == "coupled",
                draft_length=settings.draft_length,
                least_survival=settings.draft_survival,
                privacy="full" if settings.privacy == "local" else settings.privacy,
            )


@asynccontextmanager
async def connected(
    settings: DeviceSettings, drafter: Drafter | None, recorder: Recorder | None
) -> AsyncIterator[tuple[Connection, ModelInfo, bool]]:
    """The gateway, the model to ask, and whether the drafter's tokenizer is that model's. Raises as `open_hybrid`."""
    url, key = gateway_url(settings.url), settings.key()
    observe = recorder.observe if recorder is not None else None
    fingerprint = drafter.fingerprint if drafter is not None else ""
    async with AsyncExitStack() as stack:
        padding = Padding() if settings.padding else None
        connect = partial(Connection, url, key=key, observe=observe, allow_plain=settings.allow_plain, padding=padding)
        connection = connect(fingerprint=fingerprint)
        await stack.enter_async_context(connection)
        model = choose_model(connection.welcome.models, settings.model)
        fits = not fingerprint or model.match
        if not fits:
            # The gateway would refuse a stream with drafts in other ids; without a fingerprint it asks nothing.
            await connection.close()
            connection = connect()
            await stack.enter_async_context(connection)
        yield connection, model, fits


def budget_for(settings: DeviceSettings) -> Budget | None:
    """What all streams together may draft; None: as much as helps."""
    allowed = settings.budget()
    return None if allowed.unlimited else Budget(allowed, look, time.monotonic)


def recorder_for(settings: DeviceSettings, drafter: Drafter | None) -> Recorder | None:
    """Keeps the disclosure log, unless the user has switched it off."""
    if not settings.disclosure_log:
        return None
    vocabulary = drafter.vocabulary if drafter is not None else None
    return Recorder(
        DisclosureLog(settings.disclosures()),
        gateway=gateway_url(settings.url),
        mode=settings.privacy,
        now=lambda: datetime.now(UTC).isoformat(timespec="seconds"),
        new_id=lambda: uuid4().hex,
        piece=vocabulary.piece if vocabulary is not None else None,
    )
