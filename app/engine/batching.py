"""An engine on our own continuous batching loop: everything of it but the model.

The event loop's side: it admits, keeps the worker thread, and hands what the worker publishes to the generations.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from app.engine.base import Finished, Load, Observer, Request
from app.engine.fairness import expected_wait_s, may_wait
from app.engine.generation import Generation, Progress
from app.engine.inbox import Inbox, Offer, Submitted
from app.engine.loop import Published, StepLoop
from app.engine.model import Model
from app.engine.output import Output
from app.engine.scheduler import Capacity
from app.engine.stream import Stream
from edge.openai.vocabulary import Vocabulary
from edge.protocol.errors import EngineFailed, InvalidRequest, Overloaded
from edge.protocol.frames import ModelInfo


class BatchingEngine:
    """Implements `Engine`. A subclass says how to load its model; `model` and `vocabulary` exist once it is loaded."""

    model: ModelInfo
    vocabulary: Vocabulary

    def __init__(
        self,
        load_model: Callable[[], Model],
        capacity: Capacity,
        *,
        model_id: str,
        window: int = 32,
        held_tokens: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`load_model` is called in a thread. `window`: how far past the head an edge should draft, tokens."""
        self.capacity = capacity
        self._load_model = load_model
        self._model_id = model_id
        self._window = window
        self._held_tokens = held_tokens
        self._clock = clock
        self._inbox = Inbox()
        self._queued: dict[Generation, None] = {}
        self._live: dict[Generation, None] = {}
        self._load = Load(0, 0, 0, capacity.kv_tokens, 0.0)
        self.observer: Observer | None = None
        self._submitted: dict[Generation, float] = {}
        self._began: dict[Generation, float] = {}
        self._stream_s = 1.0
        """Recent mean time that a stream holds its slot, seconds."""
        self._failure: str | None = None
        self._thread: threading.Thread | None = None
        self._loaded: Model | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        model = self._loaded = await asyncio.to_thread(self._load_model)
        self.vocabulary = model.vocabulary
        self.model = ModelInfo(self._model_id, self.vocabulary.fingerprint, self.vocabulary.size, self.capacity.context)
        self._event_loop = asyncio.get_running_loop()
        loop = StepLoop(model, self.capacity, self._inbox, self._publish, self._clock)
        self._thread = threading.Thread(target=loop.run, name=f"engine {self._model_id}", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._failure = self._failure or "the engine was stopped"
            self._inbox.stop()
            await asyncio.to_thread(thread.join)
        for generation in list(self._live):  # what was submitted too late for the worker, or lost with it
            self._finish(generation, "cancelled")
        model, self._loaded = self._loaded, None
        if model is not None:
            await asyncio.to_thread(model.close)

    def submit(self, request: Request) -> Generation:
        if self._thread is None or self._failure is not None:
            raise EngineFailed(self._failure or "the engine isn't running")
        request.check(self.model)
        self._admit(request)
        stream = Stream.of(
            request,
            context=self.capacity.context,
            vocabulary=self.vocabulary.size,
            held_tokens=self._held_tokens,
        )
        try:
            output = Output(request, self.vocabulary, max_tokens=stream.max_tokens)  # compiles a grammar: 0.6 ms
        except ValueError as error:
            raise InvalidRequest(str(error)) from error
        generation = Generation(request, self, window=self._window)
        self._queued[generation] = None
        self._submitted[generation] = self._clock()
        self._live[generation] = None
        self._inbox.submit(Submitted(generation, stream, output))
        return generation

    def load(self) -> Load:
        return replace(self._load, waiting=len(self._queued), waiting_of=self._waiting())

    def failure(self) -> str | None:
        return self._failure

    def offer(self, generation: Generation, epoch: int, start: int, tokens: Sequence[int]) -> None:
        self._inbox.offer(Offer(generation, epoch, start, tuple(tokens), self._clock()))

    def cancel(self, generation: Generation) -> None:
        self._inbox.cancel(generation)

    def park(self, generation: Generation, at: int | None) -> None:
        self._inbox.park(generation, at)

    def _admit(self, request: Request) -> None:
        """Raises Overloaded if the queue has no place for it."""
        waiting, turn_s = self._waiting(), self._stream_s / self.capacity.sequences
        weights = {generation.request.tenant: generation.request.weight for generation in self._queued}
        wait_s = expected_wait_s(waiting, weights | {request.tenant: request.weight}, request.tenant, turn_s)
        fits = may_wait(waiting, request.tenant, request.weight, self.capacity.queue)
        if not fits or wait_s > self.capacity.queue_s:
            own = waiting[request.tenant]
            raise Overloaded(
                f"{waiting.total()} requests are waiting, {own} of them yours, for about {wait_s:.0f} s",
                retry_after_s=max(min(60.0, max(1.0, turn_s)), wait_s - self.capacity.queue_s),
            )

    def _waiting(self) -> Counter[str]:
        return Counter(generation.request.tenant for generation in self._queued)

    def _publish(self, published: Published) -> None:
        """Called in the worker thread."""
        assert self._event_loop is not None  # noqa: S101  the thread is started after it is set
        try:
            self._event_loop.call_soon_threadsafe(self._apply, published)
        except RuntimeError:  # the event loop is closed: nobody is left to tell
            self._inbox.stop()

    def _apply(self, published: Published) -> None:
        before, self._load = self._load, published.load
        self._failure = self._failure or published.failure
        now = self._clock()
        load = self._load
        if self.observer is not None and load.last_step_s and load.last_step_s != before.last_step_s:
            self.observer.stepped(load.last_step_tokens, load.last_step_s)
        for generation in published.placed:
            self._queued.pop(generation, None)
            if self.observer is not None:
                self.observer.queued(now - self._submitted[generation])
            self._began[generation] = now
        for generation, progress in published.progress:
            generation.apply(progress)
            if progress.finished is not None:
                self._forget(generation, now)
        for generation, worth in published.windows:
            generation.widen(self._window if worth else 1)
        if published.failure is not None:
            for generation in list(self._live):
                self._finish(generation, "error")

    def _forget(self, generation: Generation, now: float) -> None:
        self._live.pop(generation, None)
        self._queued.pop(generation, None)
        self._submitted.pop(generation, None)
        began = self._began.pop(generation, None)
        if began is not None:
            self._stream_s += 0.2 * (now - began - self._stream_s)

    def _finish(self, generation: Generation, reason: Literal["cancelled", "error"]) -> None:
        """End a stream that the worker doesn't know."""
        error = EngineFailed.code if reason == "error" else None
        usage = generation.usage()
        finished = Finished(len(generation.ledger), reason, None, usage, error)
        generation.apply(Progress(finished=finished))
        self._forget(generation, self._clock())
