"""An engine without weights (edge/script.py): deterministic output, and steps that take as long as it is told.

It checks what a real KV cache would take in silence: a run that doesn't continue its sequence is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from app.engine.batching import BatchingEngine
from app.engine.model import Run
from app.engine.scheduler import Capacity
from edge.script import Script, ScriptVocabulary


class ScriptedModel:
    """`fail_at`: the number of the step (from 0) that raises, to test what then happens."""

    def __init__(
        self,
        script: Script,
        sequences: int,
        *,
        step_s: float = 0.0,
        token_s: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        fail_at: int | None = None,
    ) -> None:
        """A step takes `step_s` and `token_s` per token in it, seconds; what its own work leaves of that is slept."""
        self.vocabulary: ScriptVocabulary = script.vocabulary
        self.steps = 0
        self.tokens = 0
        """Computed in all steps."""
        self._script = script
        self._held: list[list[int]] = [[] for _ in range(sequences)]
        self._keys = [0] * sequences
        self._prompts = [0] * sequences
        """Lengths."""
        self._cost = (step_s, token_s)
        self._sleep = sleep
        self._clock = clock
        self._fail_at = fail_at
        self._rows: list[NDArray[np.float32]] = []

    def begin(self, sequence: int, prompt: Sequence[int], kept: int) -> None:
        self.remove(sequence, kept)
        self._keys[sequence], self._prompts[sequence] = self._script.key(prompt), len(prompt)

    def copy(self, source: int, target: int, length: int) -> None:
        self._held[target] = self._held[source][:length]

    def remove(self, sequence: int, start: int) -> None:
        del self._held[sequence][start:]

    def decode(self, runs: Sequence[Run]) -> None:
        if self.steps == self._fail_at:
            raise RuntimeError("the script says that this step fails")
        self.steps += 1
        count = sum(len(run.tokens) for run in runs)
        self.tokens += count
        step_s, token_s = self._cost
        cost_s = step_s + token_s * count
        ready = self._clock() + cost_s
        self._rows = []
        for run in runs:
            self._compute(run)
        if cost_s:
            self._sleep(max(0.0, ready - self._clock()))

    def logits(self, row: int) -> NDArray[np.float32]:
        return self._rows[row]

    def close(self) -> None:
        self._rows = []

    def _compute(self, run: Run) -> None:
        held = self._held[run.sequence]
        if run.start != len(held):
            raise RuntimeError(f"a run starts at {run.start}, its sequence holds {len(held)} tokens")
        held.extend(run.tokens)
        for at in range(len(held) - run.rows, len(held)):
            position = at + 1 - self._prompts[run.sequence]
            self._rows.append(self._script.logits(self._keys[run.sequence], position, held[at]))


class ScriptedEngine(BatchingEngine):
    def __init__(
        self,
        *,
        model_id: str = "scripted",
        script: Script | None = None,
        step_s: float = 0.0,
        token_s: float = 0.0,
        streams: int = 8,
        context: int = 2048,
        queue: int = 128,
        queue_s: float = float("inf"),
        draft_tokens: int = 8,
        step_tokens: int = 256,
        prefill_tokens: int = 64,
        window: int = 32,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        fail_at: int | None = None,
        kv_tokens: int | None = None,
        reserve_tokens: int | None = None,
        tenant_kv: float = 1.0,
    ) -> None:
        """`kv_tokens`, `reserve_tokens`, `tenant_kv`: as in `Capacity`; the first is enough for all by default."""
        self.script = script or Script(ScriptVocabulary())
        capacity = Capacity(
            sequences=streams,
            context=context,
            kv_tokens=kv_tokens or streams * context,
            step_tokens=step_tokens,
            prefill_tokens=prefill_tokens,
            draft_tokens=draft_tokens,
            queue=queue,
            queue_s=queue_s,
            reserve_tokens=reserve_tokens,
            tenant_kv=tenant_kv,
        )

        def load_model() -> ScriptedModel:
            return ScriptedModel(
                self.script, streams, step_s=step_s, token_s=token_s, sleep=sleep, clock=clock, fail_at=fail_at
            )

        super().__init__(load_model, capacity, model_id=model_id, window=window, clock=clock)
