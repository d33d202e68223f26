"""The one vLLM of these tests, for a gateway that would start and stop its own."""

from __future__ import annotations

from typing import Any

from app.engine.vllm_engine import VllmEngine


class Borrowed:
    """An engine that somebody else starts and stops."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...
