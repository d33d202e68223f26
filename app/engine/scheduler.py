"""Continuous batching: which tokens of which streams the next step computes. Pure: no clock, thread or model.

    add ──► waiting ──place──► running ──schedule──► Batch ──► the model ──► outcomes ──update──► running, or over

A step holds, for all streams that are due: the last token and some drafts of those that decode, then pieces of the
prompts of those that don't yet. Decoding comes first, since somebody watches it; prompts fill what is left of the
step's token budget, at most `prefill_tokens` of them while others decode, so that a long prompt costs the others a
little in many steps instead of one long gap (Sarathi-Serve, arXiv 2403.02310).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.engine.model import Run
from app.engine.slots import Edit, Remove, Slots
from app.engine.stream import Stream
from edge.protocol.ledger import agreement


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a step and the KV cache can hold, in tokens except where said."""

    sequences: int
    """Streams that run at a time."""
    context: int
    """Prompt and output of one stream."""
    kv_tokens: int
    """Of all sequences together."""
    step_tokens: int = 256
    prefill_tokens: int = 64
    """Of prompts, in a step in which others decode."""
    draft_tokens: int = 8
    """Drafts of one stream that are checked in a step."""
    queue: int = 64
    """Streams that wait for a slot."""
    share_prefixes: bool = False
    """Whether a tenant may profit from another's prompt."""

    def __post_init__(self) -> None:
        if self.step_tokens <= self.sequences:
            raise ValueError(f"step_tokens must exceed the {self.sequences} sequences, it is {self.step_tokens}")
        if self.kv_tokens < self.context:
            raise ValueError("kv_tokens must hold the context of one stream")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One stream's part of a step: a piece of its context, then drafts."""

    stream: Stream
    run: Run
    candidates: tuple[int, ...]
    queue_s: float
    """How long the oldest of the drafts has waited."""


@dataclass(slots=True)
class Batch:
    edits: list[Edit]
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def runs(self) -> list[Run]:
        return [chunk.run for chunk in self.chunks]


class Scheduler:
    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.waiting: deque[Stream] = deque()
        self.running: list[Stream] = []
        self.aside: list[Stream] = []
        """Parked streams that gave their slot to somebody who is read."""
        self.slots = Slots(capacity.sequences, capacity.kv_tokens, share_prefixes=capacity.share_prefixes)

    def add(self, stream: Stream) -> None:
        """Queue a stream. Whoever calls bounds the queue: a refusal must reach the client before it gets here."""
        self.waiting.append(stream)

    def end(self, stream: Stream) -> None:
        """Take a stream out, wherever it is."""
        if stream in self.running:
            self.running.remove(stream)
            self.slots.release(stream)
        elif stream in self.aside:
            self.aside.remove(stream)
        elif stream in self.waiting:
            self.waiting.remove(stream)

    def park(self, stream: Stream, at: int | None) -> None:
        """Nobody reads the stream: it stops at length `at` and never holds. None: somebody reads it again."""
        stream.park_at = at
        if stream in self.aside and not stream.parked:
            self.aside.remove(stream)
            self.waiting.appendleft(stream)

    def schedule(self, now: float) -> Batch:
        """The next step; without chunks if nothing is due. Its edits must be carried out in any case."""
        self._admit()
        due = [stream for stream in self.running if stream.due(now)]
        decoding = [stream for stream in due if stream.missing == 1]
        prefilling = [stream for stream in due if stream.missing > 1]
        room = self.capacity.step_tokens - len(decoding)
        prefill = min(room, sum(stream.missing for stream in prefilling))
        if decoding:
            prefill = min(prefill, self.capacity.prefill_tokens)
        shares = share_drafts([stream.draftable() for stream in decoding], room - prefill, self.capacity.draft_tokens)
        batch = Batch(self.slots.edits)
        self.slots.edits = []
        for stream, share in zip(decoding, shares, strict=True):
            batch.chunks.append(_chunk(stream, 1, share, now))
        for stream in prefilling:
            count = min(stream.missing, prefill)
            prefill -= count
            if count:
                batch.chunks.append(_chunk(stream, count, 0, now))
        return batch

    def update(self, batch: Batch, outputs: Sequence[Sequence[int]], now: float) -> None:
        """What the step gave each chunk's stream: nothing where the prompt isn't through, else at least one token."""
        for chunk, tokens in zip(batch.chunks, outputs, strict=True):
            stream, run = chunk.stream, chunk.run
            accepted = agreement(chunk.candidates, tokens)
            stream.cached = run.start + len(run.tokens) - len(chunk.candidates) + accepted
            if accepted < len(chunk.candidates):
                self.slots.edits.append(Remove(run.sequence, stream.cached))
            if tokens:
                stream.take(tokens, len(chunk.candidates), now)

    def _admit(self) -> None:
        """Place who waits, in order, for as long as there is room or can be made."""
        while self.waiting:
            if self.slots.place(self.waiting[0]):
                self.running.append(self.waiting.popleft())
            elif not self._set_aside():
                return

    def _set_aside(self) -> bool:
        """Take its slot from a stream that is parked: devices that dropped off must not keep the others out.

        What it has computed stays in the cache while there is room, so going on costs little.
        """
        stream = next((stream for stream in self.running if stream.parked), None)
        if stream is None:
            return False
        self.running.remove(stream)
        self.slots.release(stream)
        self.aside.append(stream)
        return True

    def wakes_at(self) -> float | None:
        """When a stream becomes due by itself that isn't now; None: only something new can wake it."""
        waits = [until for stream in self.running if (until := stream.waits_until()) is not None]
        return min(waits, default=None)


def share_drafts(wanted: Sequence[int], room: int, per_stream: int) -> list[int]:
    """Split a step's room for drafts: a token each in turn, until all have what they want or may have.

    Where to spend the room (by chance of survival, by tenant) is decided here and nowhere else.
    """
    shares = [0] * len(wanted)
    for depth in range(per_stream):
        for i, want in enumerate(wanted):
            if room > 0 and want > depth:
                shares[i] += 1
                room -= 1
    return shares


def _chunk(stream: Stream, count: int, drafts: int, now: float) -> Chunk:
    """The next `count` tokens of the context, and `drafts` candidates behind them."""
    assert stream.sequence is not None  # noqa: S101  running streams have a slot
    candidates = stream.verifier.candidates(drafts)
    context = stream.context[stream.cached : stream.cached + count]
    rows = len(candidates) + 1 if count == stream.missing else 0
    run = Run(stream.sequence, stream.cached, (*context, *candidates), rows)
    return Chunk(stream, run, candidates, stream.waited_s(now) if candidates else 0.0)
