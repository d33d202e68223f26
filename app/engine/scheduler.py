"""Continuous batching: which tokens of which streams the next step computes. Pure: no clock, thread or model.

    add ──► waiting ──place──► running ──schedule──► Batch ──► the model ──► outcomes ──update──► running, or over

A step holds, for all streams that are due: the last token and some drafts of those that decode, then pieces of the
prompts of those that don't yet. Decoding comes first, since somebody watches it; prompts fill what is left of the
step's token budget, at most `prefill_tokens` of them while others decode, so that a long prompt costs the others a
little in many steps instead of one long gap (Sarathi-Serve, arXiv 2403.02310). Once the cost of prompt tokens is known,
a long prompt gets what lengthens the step by `prefill_slowdown`.

Who waits is placed by the tenants' virtual time (fairness.py). Streams of policy `auto` are decided upon by auto.py,
from what the steps before have shown; the others get drafts in turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.engine.acceptance import Acceptances
from app.engine.auto import Auto, Outlook, Plan, Turn
from app.engine.fairness import FairClock
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
    queue: int = 128
    """Streams that wait for a slot, of all tenants (fairness.py says how many of one)."""
    queue_s: float = float("inf")
    """Expected wait for a slot, seconds, beyond which a stream is refused."""
    share_prefixes: bool = False
    """Whether a tenant may profit from another's prompt."""
    prefill_slowdown: float = 0.2
    """By how much a long prompt may lengthen the steps of those that decode."""
    prefill_least: int = 1
    """Of a long prompt in any step, however much that costs."""
    reserve_tokens: int | None = None
    """Room kept for a stream's further output; None: for all that it may become. With less, more streams run, and when
    the cache is full one of them waits and is computed again.
    """
    tenant_kv: float = 1.0
    """Part of the KV cache that one tenant's streams may hold together."""

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
    began: float = 0.0
    deciding: int = 0
    """Streams of policy `auto` that decode, those that were held included."""
    explores: bool = False

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
        self.fair = FairClock()
        self.auto = Auto()
        self._acceptances = Acceptances()
        self._prefill_s: float | None = None
        """What a prompt's token adds to a step of others, seconds."""
        self._waiting: tuple[float, float] | None = None
        """Nothing is stepped for want of drafts: since when, and until when."""

    def add(self, stream: Stream) -> None:
        """Queue a stream. Whoever calls bounds the queue: a refusal must reach the client before it gets here."""
        request = stream.request
        stream.outlook = Outlook(self._acceptances.of(request.drafter, request.tenant), request.weight)
        stream.grows_by = self.capacity.reserve_tokens
        self.fair.enter(request.tenant)
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
        self.fair.leave(stream.request.tenant)

    def park(self, stream: Stream, at: int | None) -> None:
        """Nobody reads the stream: it stops at length `at` and never holds. None: somebody reads it again."""
        stream.park_at = at
        if stream in self.aside and not stream.parked:
            self.aside.remove(stream)
            self.waiting.appendleft(stream)

    def schedule(self, now: float) -> Batch:
        """The next step; without chunks if nothing is due. Its edits must be carried out in any case."""
        self._preempt()
        self._admit()
        due = [stream for stream in self.running if stream.due(now)]
        decoding = [stream for stream in due if stream.missing == 1]
        prefilling = sorted((stream for stream in due if stream.missing > 1), key=self._charged)
        room = self.capacity.step_tokens - len(decoding)
        pieces = self._pieces(prefilling, decoding, room)
        room -= sum(pieces)
        fixed = [stream for stream in decoding if stream.request.policy != "auto"]
        deciding = [stream for stream in decoding if stream.request.policy == "auto"]
        shares = share_drafts([stream.draftable() for stream in fixed], room, self.capacity.draft_tokens)
        plan = self._plan(deciding, now, others=len(fixed) + sum(shares) + sum(pieces), room=room - sum(shares))
        batch = Batch(self.slots.edits, began=now, deciding=len(deciding), explores=plan.explores)
        self.slots.edits = []
        batch.chunks += [_chunk(stream, 1, share, now) for stream, share in zip(fixed, shares, strict=True)]
        if plan.until is None:
            for i, (stream, share) in enumerate(zip(deciding, plan.shares, strict=True)):
                if i not in plan.held:
                    batch.chunks.append(_chunk(stream, 1, share, now))
        batch.chunks += [_chunk(stream, n, 0, now) for stream, n in zip(prefilling, pieces, strict=True) if n]
        return batch

    def update(self, batch: Batch, outputs: Sequence[Sequence[int]], now: float) -> None:
        """What the step gave each chunk's stream: nothing where the prompt isn't through, else at least one token."""
        self._learn(batch, outputs, now - batch.began)
        for chunk, tokens in zip(batch.chunks, outputs, strict=True):
            stream, run = chunk.stream, chunk.run
            kept = agreement(chunk.candidates, tokens)
            if run.rows:  # the output's last token is computed in the next step, for the logits behind it
                kept = min(kept, len(tokens) - 1)
            stream.cached = run.start + len(run.tokens) - len(chunk.candidates) + kept
            if kept < len(chunk.candidates):
                self.slots.edits.append(Remove(run.sequence, stream.cached))
            if tokens:
                stream.take(tokens, len(chunk.candidates), now)

    def worthwhile(self) -> list[tuple[Stream, bool]]:
        """For each decoding stream of policy `auto`: whether drafts of it would be checked if it had enough."""
        streams = [stream for stream in self.running if stream.request.policy == "auto" and stream.missing == 1]
        room = self.capacity.step_tokens - len(streams)
        return list(zip(streams, self.auto.worthwhile([self._turn(s) for s in streams], room), strict=True))

    def _plan(self, deciding: Sequence[Stream], now: float, *, others: int, room: int) -> Plan:
        if self._waiting is not None:
            self.auto.savings.wait(now - self._waiting[0])
        self._waiting = None
        if not deciding:
            return Plan()
        plan = self.auto.plan(
            [self._turn(stream) for stream in deciding], now, others=others, room=room, busy=others > 0
        )
        if plan.until is not None:
            self._waiting = now, plan.until
        return plan

    def _turn(self, stream: Stream) -> Turn:
        assert stream.outlook is not None  # noqa: S101  streams get theirs in `add`
        reads, hold_s = len(stream.context), stream.request.hold_s
        return Turn(stream.outlook, stream.draftable(), reads, self.capacity.draft_tokens, hold_s)

    def _pieces(self, prefilling: Sequence[Stream], decoding: Sequence[Stream], room: int) -> list[int]:
        """Tokens of each prompt in the step, who has been charged least first."""
        left = room
        if decoding:
            left = min(left, self.capacity.prefill_tokens)
            if self._prefill_s is None and self.auto.cost.largest:  # a small piece shows what they cost
                left = min(left, max(self.capacity.prefill_least, self.capacity.prefill_tokens // 4))
            elif self._prefill_s:
                plain_s = self.auto.cost.predict(len(decoding), sum(len(stream.context) for stream in decoding))
                afforded = int(self.capacity.prefill_slowdown * plain_s / self._prefill_s)
                left = min(left, max(self.capacity.prefill_least, afforded))
        pieces: list[int] = []
        for stream in prefilling:
            pieces.append(min(stream.missing, left))
            left -= pieces[-1]
        return pieces

    def _learn(self, batch: Batch, outputs: Sequence[Sequence[int]], seconds: float) -> None:
        """Charge the tenants, and take from the step what it says about costs. A clock that stands teaches nothing."""
        size = sum(len(chunk.run.tokens) for chunk in batch.chunks)
        if seconds <= 0 or not size:
            return
        for chunk in batch.chunks:
            request = chunk.stream.request
            self.fair.charge(request.tenant, seconds * len(chunk.run.tokens) / size, request.weight)
        decoding = [chunk for chunk in batch.chunks if chunk.stream.missing == 1]
        context = sum(len(chunk.stream.context) for chunk in decoding)
        decoded = sum(len(chunk.run.tokens) for chunk in decoding)
        if decoded < size:
            if decoded and self.auto.cost.seen(decoded):
                added_s = max(0.0, seconds - self.auto.cost.predict(decoded, context)) / (size - decoded)
                self._prefill_s = (
                    added_s if self._prefill_s is None else self._prefill_s + 0.2 * (added_s - self._prefill_s)
                )
            return
        self.auto.cost.observe(size, context, seconds)
        if batch.deciding and all(chunk.stream.request.policy == "auto" for chunk in decoding):
            counts = [len(tokens) for tokens in outputs]
            worth = sum(n * chunk.stream.request.weight for n, chunk in zip(counts, batch.chunks, strict=True))
            plain_s = self.auto.cost.predict(batch.deciding, context * batch.deciding // len(decoding))
            if batch.explores:
                self.auto.explored(worth, seconds)
            self.auto.stepped(sum(counts), worth, batch.deciding, size, seconds, plain_s)

    def _charged(self, stream: Stream) -> float:
        return self.fair.at(stream.request.tenant)

    def _preempt(self) -> None:
        """The cache is full: of the tenant who was charged most, the latest stream waits and is computed again."""
        while not self.slots.fit() and len(self.running) > 1:
            stream = max(reversed(self.running), key=self._charged)
            self.running.remove(stream)
            self.slots.release(stream)
            self.waiting.appendleft(stream)

    def _admit(self) -> None:
        """Place who waits, the least charged tenant first, for as long as there is room or can be made."""
        held: dict[str, int] = {}
        for stream in sorted(self.waiting, key=self._charged):
            tenant = stream.request.tenant
            if tenant not in held:
                held[tenant] = self.slots.reserved(tenant)
            if not self._within_quota(stream, held[tenant]):
                continue
            while not self.slots.place(stream):
                if not self._set_aside():
                    return
                held.clear()
            self.waiting.remove(stream)
            self.running.append(stream)
            held[tenant] = held[tenant] + stream.reserved if tenant in held else self.slots.reserved(tenant)

    def _within_quota(self, stream: Stream, held: int) -> bool:
        """Whether its tenant, which holds so much of the KV cache, may hold as much more; its only one always runs."""
        return not held or held + stream.reserved <= self.capacity.tenant_kv * self.capacity.kv_tokens

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
        if self._waiting is not None:
            waits.append(self._waiting[1])
        return min(waits, default=None)


def share_drafts(wanted: Sequence[int], room: int, per_stream: int) -> list[int]:
    """Split a step's room for drafts: a token each in turn, until all have what they want or may have.

    This is how the fixed policies take part; for `auto` see budget.py.
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
