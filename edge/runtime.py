"""Hybrid generation on a device: requests in, events out. How one stream is run, edge/run.py tells."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from edge.budget import Budget
from edge.confidence import Calibration
from edge.connection import Connection
from edge.drafters.base import Drafter
from edge.events import Ended, Event
from edge.generate import Generate
from edge.openai.vocabulary import Vocabulary
from edge.protocol.errors import InvalidRequest, UnknownModel, VocabularyMismatch
from edge.protocol.frames import ModelInfo
from edge.run import Run
from edge.worker import Worker


class Runtime:
    """Runs streams over one connection with one drafter, which stays the caller's to close."""

    def __init__(
        self,
        connection: Connection,
        drafter: Drafter | None,
        *,
        vocabulary: Vocabulary | None = None,
        clock: Callable[[], float] = time.monotonic,
        draw_seed: Callable[[], int] = lambda: secrets.randbits(53),
        budget: Budget | None = None,
    ) -> None:
        """`vocabulary`: the tokenizer, when the drafter has none; without any, the cloud templates and sends text.

        `budget`: what may be drafted, all streams together.
        `draw_seed`: below 2^53, so that JavaScript can hold it.
        """
        self.connection = connection
        self.drafter = drafter
        self.vocabulary = vocabulary or (drafter.vocabulary if drafter is not None else None)
        self._clock = clock
        self._draw_seed = draw_seed
        self._budget = budget
        self._worker = Worker()
        self._calibrations: dict[_Kind, Calibration] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits until the worker thread is done with streams that have ended."""
        await self._worker.close()

    async def generate(self, request: Generate) -> AsyncGenerator[Event, None]:
        """The events of one stream; the last is `Ended`. Leaving early (`aclose`) cancels it.

        Raises what the gateway answered (edge.protocol.errors), or ConnectionLost, Unreachable or Closed (edge.errors).
        """
        run = self._start(request)
        try:
            while True:
                event = await run.next_event()
                yield event
                if isinstance(event, Ended):
                    return
        finally:
            await run.close()

    def model(self, name: str) -> ModelInfo:
        """The model of that name. Raises UnknownModel, or VocabularyMismatch if the drafter's ids mean other texts."""
        models = self.connection.welcome.models
        fits = [m for m in models if self._fits(m)]
        found = [m for m in models if m.id == name] if name else fits[:1] or list(models[:1])
        if not found:
            raise UnknownModel(f"the gateway has no model {name!r}" if name else "the gateway has no model")
        if not self._fits(found[0]):
            raise VocabularyMismatch(f"the tokenizer on this device is not that of {found[0].id!r}")
        return found[0]

    def _fits(self, model: ModelInfo) -> bool:
        own = self.drafter.fingerprint if self.drafter is not None else ""
        if not own and self.vocabulary is not None:
            own = self.vocabulary.fingerprint
        return own in ("", model.fingerprint)

    def _start(self, request: Generate) -> Run:
        if bool(request.prompt) == bool(request.messages):
            raise InvalidRequest("exactly one of prompt and messages must be given")
        request = replace(request, model=self.model(request.model).id)
        if request.sampling.seed is None:
            request = replace(request, sampling=replace(request.sampling, seed=self._draw_seed()))
        if request.messages and self.vocabulary is not None:
            request = replace(request, prompt=tuple(self.vocabulary.render(request.messages)), messages=())
        if request.privacy == "draft_only" and (self.drafter is None or not request.draft or not request.prompt):
            raise InvalidRequest("privacy mode draft_only needs a drafter that is a language model with this tokenizer")
        run = Run(
            request,
            self.connection,
            self.drafter if request.draft else None,
            vocabulary=self.vocabulary,
            worker=self._worker,
            clock=self._clock,
            calibration=self._calibrations.setdefault(_kind(request), Calibration()),
            budget=None if request.privacy == "draft_only" else self._budget,  # there drafts are the answer
        )
        run.start()
        return run


_Kind = tuple[str, bool, bool]
"""Streams whose drafts agree alike: of one target, sampled or greedy, coupled or top-1."""


def _kind(request: Generate) -> _Kind:
    return request.model, request.sampling.temperature > 0, request.coupled


__all__ = ["Generate", "Runtime"]
