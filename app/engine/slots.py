"""Who holds which sequence of the KV cache, and what can be reused of it.

A finished stream's keys and values stay where they are until the slot is needed: a new stream whose prompt begins alike
takes them over. Only within a tenant, unless the operator allows more: how fast a prompt is prefilled tells what others
have asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from app.engine.stream import Stream
from edge.protocol.ledger import agreement

COPY_AT_LEAST = 16
"""Copying moves a whole sequence in memory: for fewer tokens, computing them again costs less."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The sequence gets a new occupant, who keeps its first `kept` positions."""

    sequence: int
    prompt: tuple[int, ...]
    kept: int


@dataclass(frozen=True, slots=True)
class Copy:
    source: int
    target: int
    length: int


@dataclass(frozen=True, slots=True)
class Remove:
    sequence: int
    start: int


Edit = Begin | Copy | Remove
"""What must be done to the KV cache, in order, before the next step."""


@dataclass(slots=True)
class Slot:
    sequence: int
    stream: Stream | None = None
    tenant: str = ""
    left: list[int] = field(default_factory=list)
    """What the last stream left behind, while there is no other."""
    used: int = 0
    """When it was left, as a count."""

    @property
    def tokens(self) -> Sequence[int]:
        """What the KV cache holds in this sequence."""
        return self.left if self.stream is None else self.stream.context[: self.stream.cached]


class Slots:
    def __init__(self, sequences: int, kv_tokens: int, *, share_prefixes: bool = False) -> None:
        """`kv_tokens`: how many tokens all sequences can hold together. `share_prefixes`: across tenants too."""
        self.slots = [Slot(i) for i in range(sequences)]
        self.edits: list[Edit] = []
        self._kv_tokens = kv_tokens
        self._share = share_prefixes
        self._clock = count(1)

    @property
    def tokens(self) -> int:
        """Tokens in the KV cache."""
        return sum(len(slot.left) if slot.stream is None else slot.stream.cached for slot in self.slots)

    def place(self, stream: Stream) -> bool:
        """Give the stream a slot, with as much of its prefix as is already computed. False: there is no room now."""
        free = [slot for slot in self.slots if slot.stream is None]
        if not free or not self._make_room(stream.reserved, free):
            return False
        source, common = self._longest_prefix(stream)
        target = self._choose(free, source, common)
        if source is not target:
            common = common if common >= COPY_AT_LEAST else 0
            if source is not None and common:
                self.edits.append(Copy(source.sequence, target.sequence, common))
        self.edits.append(Begin(target.sequence, stream.request.prompt, common))
        target.stream, target.tenant, target.left = stream, stream.request.tenant, []
        stream.sequence, stream.cached = target.sequence, common
        return True

    def release(self, stream: Stream) -> None:
        """The stream is over; what it computed stays for others."""
        if stream.sequence is None:
            return
        slot = self.slots[stream.sequence]
        slot.left, slot.used, slot.stream = stream.context[: stream.cached], next(self._clock), None
        stream.sequence = None

    def _longest_prefix(self, stream: Stream) -> tuple[Slot | None, int]:
        """The slot that holds most of the stream's context. Its last token is always computed: it gives the first
        logits.
        """
        best: tuple[Slot | None, int] = (None, 0)
        wanted = stream.context[:-1]
        for slot in self.slots:
            if self._share or slot.tenant == stream.request.tenant:
                common = agreement(slot.tokens, wanted)
                if common > best[1]:
                    best = slot, common
        return best

    @staticmethod
    def _choose(free: list[Slot], source: Slot | None, common: int) -> Slot:
        """Continue a conversation in its own slot; otherwise leave the source to others and take what was unused
        longest.
        """
        if source in free and source is not None and (common == len(source.left) or len(free) == 1):
            return source
        return min((slot for slot in free if slot is not source), key=lambda slot: slot.used, default=free[0])

    def fit(self) -> bool:
        """Make room for what running streams have grown to. False: they need more than there is."""
        return self._make_room(0, [slot for slot in self.slots if slot.stream is None])

    def reserved(self, tenant: str | None = None) -> int:
        """Tokens kept for running streams: a tenant's, or all."""
        running = [slot.stream for slot in self.slots if slot.stream is not None]
        return sum(stream.reserved for stream in running if tenant in (None, stream.request.tenant))

    def _make_room(self, needed: int, free: list[Slot]) -> bool:
        """Drop what finished streams left behind, the longest unused first, until `needed` tokens fit."""
        room = self._kv_tokens - self.reserved() - needed
        if room < 0:
            return False
        room -= sum(len(slot.left) for slot in free)
        for slot in sorted((slot for slot in free if slot.left), key=lambda slot: slot.used):
            if room >= 0:
                break
            room += len(slot.left)
            slot.left = []
            self.edits.append(Remove(slot.sequence, 0))
        return True
