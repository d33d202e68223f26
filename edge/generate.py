"""One request to a runtime."""

from __future__ import annotations

from msgspec import Struct

from edge.pacing import LEAST_SURVIVAL
from edge.protocol.frames import Message, Policy, Privacy, Sampling


class Generate(Struct, frozen=True, kw_only=True):
    """Exactly one of `prompt` (ids) and `messages` is set."""

    model: str = ""
    """Empty: the gateway's first, or the first that the drafter's vocabulary fits."""
    prompt: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()
    committed: tuple[int, ...] = ()
    """Output made before, to go on behind; with its seed and choice in `sampling`."""
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    """Of the whole output. None: as many as the context holds."""
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    policy: Policy | None = None
    """None: the gateway's default."""
    coupled: bool = True
    """Draft with the target's own noise (docs/protocol.md, "Coupled drafts")."""
    draft: bool = True
    """False: cloud-only, over the same socket."""
    draft_length: int | None = None
    """γ, tokens a round, of policy `sync`."""
    least_survival: float = LEAST_SURVIVAL
    """Drafting pauses when the next token's chance to become output is lower, 0 to 1. `sync` drafts whole rounds."""
    privacy: Privacy = "full"
    logprobs: int | None = None
