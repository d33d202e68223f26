"""What the event loop hands to the engine's worker thread. Bounded; putting never blocks and never fails."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import NamedTuple

from app.engine.generation import Generation
from app.engine.output import Output
from app.engine.stream import Stream


class Submitted(NamedTuple):
    generation: Generation
    stream: Stream
    output: Output


class Offer(NamedTuple):
    generation: Generation
    epoch: int
    start: int
    tokens: tuple[int, ...]
    at: float
    """When it came, seconds."""


@dataclass(slots=True)
class Mail:
    """All that has come since the last look, in the order in which it is to be carried out."""

    submitted: list[Submitted] = field(default_factory=list)
    parks: dict[Generation, int | None] = field(default_factory=dict)
    offers: list[Offer] = field(default_factory=list)
    cancels: dict[Generation, None] = field(default_factory=dict)
    stop: bool = False


class Inbox:
    """Submissions are bounded by the engine's queue, parks and cancels by its streams, offers by `offers`.

    Over that bound an offer is dropped. That is safe: a draft is a hint, and the hole that it leaves is refused like
    any other.
    """

    def __init__(self, offers: int = 4096) -> None:
        self._bound = offers
        self._mail = Mail()
        self._changed = threading.Condition()

    def submit(self, submitted: Submitted) -> None:
        with self._changed:
            self._mail.submitted.append(submitted)
            self._changed.notify()

    def park(self, generation: Generation, at: int | None) -> None:
        with self._changed:
            self._mail.parks[generation] = at
            self._changed.notify()

    def offer(self, offer: Offer) -> None:
        with self._changed:
            if len(self._mail.offers) < self._bound:
                self._mail.offers.append(offer)
                self._changed.notify()

    def cancel(self, generation: Generation) -> None:
        with self._changed:
            self._mail.cancels[generation] = None
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._mail.stop = True
            self._changed.notify()

    def collect(self, timeout_s: float | None) -> Mail:
        """For the worker: take everything; if there is nothing, wait at most `timeout_s` for something (None: for
        ever).
        """
        with self._changed:
            if self._mail == Mail():
                self._changed.wait(timeout_s)
            mail, self._mail = self._mail, Mail()
            return mail
