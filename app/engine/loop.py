"""The worker thread of an engine: takes mail, schedules, runs the model, picks tokens, publishes. Once per step, in
that order.

It never spins: without work it sleeps on its inbox, until something comes or a stream that holds has waited long
enough. It talks to the event loop with one `call_soon_threadsafe` per step (two when mail has ended or refused
something), whatever the number of streams.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.engine.base import Finished, Load
from app.engine.generation import Generation, Progress
from app.engine.inbox import Inbox, Mail, Offer
from app.engine.model import Model
from app.engine.output import Output, Picked
from app.engine.scheduler import Batch, Capacity, Chunk, Scheduler
from app.engine.slots import Begin, Copy, Edit, Remove
from app.engine.stream import Stream
from edge.protocol.errors import EngineFailed, InvalidRequest
from edge.protocol.frames import Reason, Usage
from edge.protocol.ledger import agreement
from edge.protocol.sampling import NothingLeft
from edge.protocol.verifying import Offered

logger = logging.getLogger(__name__)

WINDOW_STEPS = 32
"""Steps after which it is looked at anew how far ahead drafting is worth it."""


@dataclass(slots=True)
class Published:
    """What a step tells the event loop."""

    load: Load
    progress: list[tuple[Generation, Progress]] = field(default_factory=list)
    placed: list[Generation] = field(default_factory=list)
    """Those that have left the queue."""
    failure: str | None = None
    windows: list[tuple[Generation, bool]] = field(default_factory=list)
    """Whose drafts are worth the whole window, and whose not, if that was looked at."""


@dataclass(slots=True, eq=False)
class _Job:
    generation: Generation
    stream: Stream
    output: Output
    queued: bool = True


class StepLoop:
    """Runs in its own thread, from `run` on; everything else of it belongs to that thread too."""

    def __init__(
        self,
        model: Model,
        capacity: Capacity,
        inbox: Inbox,
        publish: Callable[[Published], None],
        clock: Callable[[], float],
    ) -> None:
        """`publish` is called in the worker thread; `clock` is monotonic, in seconds, and stamps the offers too."""
        self._model = model
        self._inbox = inbox
        self._publish = publish
        self._clock = clock
        self._scheduler = Scheduler(capacity)
        self._jobs: dict[Generation, _Job] = {}
        self._by_stream: dict[Stream, _Job] = {}
        self._progress: list[tuple[Generation, Progress]] = []
        self._step_s = 0.0
        self._last_step = (0, 0.0)
        self._steps = 0

    def run(self) -> None:
        """Until the inbox says stop, or the model fails: then all streams end with reason `error`."""
        failure: str | None = None
        idle = True
        try:
            while not self._take(self._inbox.collect(self._patience() if idle else 0.0)):
                self._send()  # cancellations and refusals don't wait for the step
                idle = not self._step()
                self._send()
        except Exception as error:
            logger.exception("engine_failed")
            failure = f"{type(error).__name__}: {error}"
        for job in list(self._jobs.values()):
            self._end(job, "error" if failure else "cancelled", EngineFailed.code if failure else None)
        self._send(failure)

    def _patience(self) -> float | None:
        """How long to wait for mail when nothing is due, seconds."""
        wakes_at = self._scheduler.wakes_at()
        return None if wakes_at is None else max(0.0, wakes_at - self._clock())

    def _take(self, mail: Mail) -> bool:
        """Carry out what came; True when it says stop."""
        for generation, stream, output in mail.submitted:
            job = self._jobs[generation] = self._by_stream[stream] = _Job(generation, stream, output)
            self._scheduler.add(stream)
            reason = output.replay(stream.ledger.tokens)
            if reason is not None:  # what was carried here was the whole output
                self._end(job, reason)
        for generation, at in mail.parks.items():
            if generation in self._jobs:
                self._scheduler.park(self._jobs[generation].stream, at)
        for offer in mail.offers:
            self._offer(offer)
        for generation in mail.cancels:
            if generation in self._jobs:
                self._end(self._jobs[generation], "cancelled")
        return mail.stop

    def _offer(self, offer: Offer) -> None:
        job = self._jobs.get(offer.generation)
        if job is None:
            return
        if job.stream.offer(offer.epoch, offer.start, offer.tokens, offer.at) is Offered.REFUSED:
            refused = Progress(refused=job.stream.verifier.lowest_epoch)
            self._progress.append((job.generation, refused))

    def _step(self) -> bool:
        """One step of the model. False: nothing was due."""
        began = self._clock()
        batch = self._scheduler.schedule(began)
        for edit in batch.edits:
            self._edit(edit)
        if not batch.chunks:
            return False
        self._model.decode(batch.runs)
        picked = self._pick(batch)
        now = self._clock()
        self._step_s += (now - began - self._step_s) * (0.1 if self._step_s else 1.0)
        self._steps += 1
        self._last_step = (sum(len(run.tokens) for run in batch.runs), now - began)
        self._scheduler.update(batch, [pick.tokens if pick else () for pick in picked], now)
        for chunk, pick in zip(batch.chunks, picked, strict=True):
            if pick is not None:
                self._advance(chunk, pick, now - began)
        return True

    def _pick(self, batch: Batch) -> list[Picked | None]:
        """For each chunk whose context is through, the tokens that the target says."""
        picked: list[Picked | None] = []
        row = 0
        for chunk in batch.chunks:
            picked.append(self._pick_one(chunk, row) if chunk.run.rows else None)
            row += chunk.run.rows
        return picked

    def _pick_one(self, chunk: Chunk, row: int) -> Picked:
        output = self._by_stream[chunk.stream].output
        try:
            return output.advance(chunk.candidates, self._rows(row))
        except NothingLeft:  # this request's own doing: the others go on
            return Picked((), (), "error", InvalidRequest.code)
        except Exception:  # of this request's parameters, most likely: no reason to end the others
            logger.exception("pick_failed")
            return Picked((), (), "error", EngineFailed.code)

    def _rows(self, first: int) -> Callable[[int], NDArray[np.float32]]:
        return lambda i: self._model.logits(first + i)

    def _advance(self, chunk: Chunk, pick: Picked, step_s: float) -> None:
        """Note what a step gave one stream, and end the stream if its output has ended."""
        job = self._by_stream[chunk.stream]
        drafted = agreement(chunk.candidates, pick.tokens)
        usage, waited_s = _usage(chunk.stream), chunk.queue_s if drafted else 0.0
        progress = Progress(pick.tokens, drafted, step_s, waited_s, pick.logprobs, usage)
        self._progress.append((job.generation, progress))
        if pick.reason is not None:
            self._end(job, pick.reason, pick.error)

    def _end(self, job: _Job, reason: Reason, error: str | None = None) -> None:
        stream = job.stream
        self._scheduler.end(stream)
        del self._jobs[job.generation], self._by_stream[stream]
        usage = _usage(stream)
        finished = Finished(stream.head, reason, job.output.kept_bytes, usage, error)
        self._progress.append((job.generation, Progress(usage=usage, finished=finished)))

    def _edit(self, edit: Edit) -> None:
        match edit:
            case Begin(sequence, prompt, kept):
                self._model.begin(sequence, prompt, kept)
            case Copy(source, target, length):
                self._model.copy(source, target, length)
            case Remove(sequence, start):
                self._model.remove(sequence, start)

    def _send(self, failure: str | None = None) -> None:
        """Tell the event loop, if there is anything to tell."""
        scheduler, slots = self._scheduler, self._scheduler.slots
        placed = [job for job in self._jobs.values() if job.queued and job.stream.sequence is not None]
        for job in placed:
            job.queued = False
        if self._progress or placed or failure is not None:
            total = scheduler.capacity.kv_tokens
            running, waiting = len(scheduler.running), len(scheduler.waiting)
            error = scheduler.auto.cost.error() or 0.0
            load = Load(running, waiting, slots.tokens, total, self._step_s, *self._last_step, error)
            windows = self._windows()
            self._publish(Published(load, self._progress, [job.generation for job in placed], failure, windows))
            self._progress = []

    def _windows(self) -> list[tuple[Generation, bool]]:
        """Every so many steps: whose drafts are worth making more than one ahead."""
        if self._steps % WINDOW_STEPS:
            return []
        return [(self._by_stream[stream].generation, worth) for stream, worth in self._scheduler.worthwhile()]


def _usage(stream: Stream) -> Usage:
    stats = stream.verifier.stats
    return Usage(
        prompt=len(stream.request.prompt),
        completion=stream.head,
        drafted=stats.drafted,
        verified=stats.verified,
        accepted=stats.accepted,
        matched=stats.matched,
        steps=stream.steps,
    )
