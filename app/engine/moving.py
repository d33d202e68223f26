"""A stream of a pool: its generation, and where it lives."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from app.engine.generation import Generation, Progress
from app.engine.place import Place
from edge.protocol.frames import Usage


@dataclass(slots=True, eq=False)
class Moving:
    generation: Generation
    began: float
    place: Place | None = None
    """Where it is; None: homeless."""
    key: int = 0
    """Its name there: another one each time."""
    park_at: int | None = None
    cancelled: bool = False
    """Its replica was told to end it. If that is lost first, nobody else needs to take the stream."""
    before: Usage = field(default_factory=Usage)
    """What it used on the replicas where it was before."""
    losses: int = 0
    lost_at: float | None = None
    """When its replica was lost, until its next token comes."""

    def counted(self, progress: Progress) -> Progress:
        """With what was used before. `prompt` and `completion` are of the whole stream anyway."""
        usage, finished = progress.usage, progress.finished
        return replace(
            progress,
            usage=None if usage is None else _sum(usage, self.before),
            finished=None if finished is None else replace(finished, usage=_sum(finished.usage, self.before)),
        )


def _sum(usage: Usage, before: Usage) -> Usage:
    return msgspec.structs.replace(
        usage,
        drafted=usage.drafted + before.drafted,
        verified=usage.verified + before.verified,
        accepted=usage.accepted + before.accepted,
        matched=usage.matched + before.matched,
        steps=usage.steps + before.steps,
    )
