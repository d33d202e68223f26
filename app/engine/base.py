"""The seam between the gateway and whatever runs the target model.

`Engine.submit(request)` gives a `Generation` (generation.py): the same class for every engine. The gateway reads its
events from any position, offers drafts and cancels; the engine appends to it. A draft goes straight to the mailbox next
to the engine's head (`edge.protocol.verifying`): by the time it gets there, the head has moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from edge.openai.vocabulary import Vocabulary
from edge.protocol.errors import InvalidRequest
from edge.protocol.frames import ModelInfo, Policy, Reason, Sampling, TokenLogprob, Usage
from edge.protocol.verifying import Rule

if TYPE_CHECKING:
    from app.engine.generation import Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One stream, validated: ids lie in the vocabulary, `sampling.seed` is set, the prompt fits the context."""

    id: str
    tenant: str
    weight: float = 1.0
    """The tenant's share of a busy target, beside others'."""
    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    """Of the whole output, `committed` included."""
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    policy: Policy = "eager"
    hold_s: float = 1.0
    rule: Rule = "exact"
    """`typical`: the prompt isn't here, and drafts that are plausible pass (edge/protocol/verifying.py)."""
    committed: tuple[int, ...] = ()
    """Output so far, made elsewhere: prefilled, and the output goes on behind it."""
    logprobs: int | None = None
    """Number of alternatives to report per token; None: no logprobs."""
    drafter: str = ""
    """What drafts for it, as far as is known: streams of one drafter and tenant share what is known of its drafts."""

    def check(self, model: ModelInfo) -> None:
        """Raises InvalidRequest for what would stop a model, or could never run on it."""
        held = len(self.prompt) + len(self.committed)
        if not self.prompt:
            raise InvalidRequest("the prompt is empty")
        if len(self.prompt) >= model.context or held > model.context:
            raise InvalidRequest(f"prompt and output so far have {held} tokens, the context {model.context}")
        if not all(0 <= token < model.vocabulary for token in (*self.prompt, *self.committed)):
            raise InvalidRequest(f"an id of the prompt or output is not in the vocabulary of {model.vocabulary}")


@dataclass(frozen=True, slots=True)
class Commit:
    """Output tokens from position `start` on: what one step gave, or several if the reader was slow."""

    start: int
    tokens: tuple[int, ...]
    drafted: int
    """How many were drafts of the edge, verified in time."""
    step_s: float
    queue_s: float
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A draft left a hole; drafts are taken again from this epoch on."""

    lowest_epoch: int


@dataclass(frozen=True, slots=True)
class Widened:
    """How far ahead drafting is worth it now, in tokens past the head."""

    ahead: int


@dataclass(frozen=True, slots=True)
class Finished:
    length: int
    reason: Reason
    kept_bytes: int | None
    usage: Usage
    error: str | None = None
    """A code of edge.protocol.errors, with reason `error`."""


Event = Commit | Refused | Widened


@dataclass(frozen=True, slots=True)
class Load:
    """How busy an engine is."""

    running: int
    waiting: int
    context_used: int
    """Tokens in the KV cache."""
    context_total: int
    step_s: float
    """Recent mean duration of a step, seconds; 0 before the first."""
    last_step_tokens: int = 0
    last_step_s: float = 0.0
    """The newest step, as a sample of what a step of so many tokens takes; 0 where the engine doesn't tell."""
    step_error: float = 0.0
    """90th percentile of the cost model's relative error over recent steps."""
    waiting_of: Mapping[str, int] = field(default_factory=dict)
    """`waiting` by tenant."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One replica of an engine that has several."""

    index: int
    state: str
    """starting, up, draining or down."""
    pid: int
    """Of its process, on whatever host that is."""
    streams: int
    load: Load
    restarts: int
    fault: str | None
    """Why it isn't up."""


class Engine(Protocol):
    """Runs one target model. Methods are called on the event loop and never block it."""

    model: ModelInfo
    vocabulary: Vocabulary

    async def start(self) -> None:
        """Load the model. Raises if it can't be."""
        ...

    async def stop(self) -> None:
        """End all generations (reason `cancelled`) and free the model. Idempotent."""
        ...

    def submit(self, request: Request) -> Generation:
        """Queue a stream. Raises Overloaded when the queue is full, EngineFailed when the engine is dead."""
        ...

    def load(self) -> Load: ...

    def failure(self) -> str | None:
        """Why the engine can't work any more; None while it can."""
        ...


class Observer(Protocol):
    """Who wants to know what an engine does, step by step. Called on the event loop; must not block."""

    def queued(self, seconds: float) -> None:
        """A stream has left the queue after so long."""
        ...

    def stepped(self, tokens: int, seconds: float) -> None:
        """A step computed so many tokens in so long."""
        ...


@runtime_checkable
class Observable(Protocol):
    """An engine that tells: one that runs in the gateway's own process."""

    observer: Observer | None


@runtime_checkable
class Replicated(Protocol):
    """What an engine of several replicas can tell besides."""

    moved: int
    """How often a stream went on elsewhere since the start."""

    def replicas(self) -> Sequence[ReplicaState]: ...

    async def drain(self, index: int, *, within_s: float) -> None:
        """Give a replica nothing new, let its streams end, move what is left after `within_s`, and start it anew."""
        ...
