"""A process that crashes writes no core: in its memory are prompts, answers and keys."""

from __future__ import annotations


def forbid() -> None:
    """For this process and those that it starts. The hard limit stays, so a person can allow it again from outside."""
    try:
        import resource
    except ImportError:  # Windows writes none by itself
        return
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
