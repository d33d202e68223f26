"""The embedded engine: llama.cpp under our own continuous batching loop, on CPU, Metal or CUDA as it was built."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from app.engine.batching import BatchingEngine
from app.engine.model import Run
from app.engine.scheduler import Capacity
from edge.llama import Context, ContextSettings, Model
from edge.llama_vocabulary import LlamaVocabulary


class LlamaCppModel:
    """A GGUF behind the seam of the step loop (model.py)."""

    def __init__(self, model: Model, settings: ContextSettings) -> None:
        self._model = model
        self._context = Context(model, settings)

    @property
    def vocabulary(self) -> LlamaVocabulary:
        return self._model.vocabulary

    def begin(self, sequence: int, prompt: Sequence[int], kept: int) -> None:
        self._context.remove(sequence, kept)

    def copy(self, source: int, target: int, length: int) -> None:
        self._context.copy(source, target, length)

    def remove(self, sequence: int, start: int) -> None:
        self._context.remove(sequence, start)

    def decode(self, runs: Sequence[Run]) -> None:
        tokens: list[int] = []
        positions: list[int] = []
        sequences: list[int] = []
        wanted: list[bool] = []
        for run in runs:
            count = len(run.tokens)
            tokens += run.tokens
            positions += range(run.start, run.start + count)
            sequences += [run.sequence] * count
            wanted += [False] * (count - run.rows) + [True] * run.rows
        self._context.decode(tokens, positions, sequences, wanted)

    def logits(self, row: int) -> NDArray[np.float32]:
        return self._context.logits(row)

    def close(self) -> None:
        self._context.close()
        self._model.close()


@contextmanager
def open_vocabulary(path: str | PathLike[str]) -> Iterator[LlamaVocabulary]:
    """A model's tokenizer without the model. Raises edge.llama.LlamaError."""
    model = Model(path, vocabulary_only=True)
    try:
        yield model.vocabulary
    finally:
        model.close()


class LlamaCppEngine(BatchingEngine):
    def __init__(
        self,
        path: str | PathLike[str],
        *,
        model_id: str,
        context: int = 2048,
        streams: int = 8,
        threads: int = 1,
        gpu_layers: int = 0,
        kv_tokens: int | None = None,
        queue: int = 128,
        queue_s: float = float("inf"),
        step_tokens: int = 252,
        prefill_tokens: int = 63,
        draft_tokens: int = 8,
        reserve_tokens: int | None = None,
        prefill_slowdown: float = 0.2,
        tenant_kv: float = 1.0,
        window: int = 32,
        share_prefixes: bool = False,
        flash_attention: bool = True,
        wide_cache: bool = False,
        steady: bool = False,
        progress: Callable[[float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`start` raises edge.llama.LlamaError if the file can't be loaded or memory is short.

        `context`: tokens of a stream, prompt and output. `kv_tokens`: of all streams together; fewer than streams ×
        context keep streams waiting that might need more than is left. For the other capacities see scheduler.py, for
        `flash_attention`, `wide_cache` and `steady` edge/llama.py.
        """
        capacity = Capacity(
            sequences=streams,
            context=context,
            kv_tokens=kv_tokens or streams * context,
            step_tokens=step_tokens,
            prefill_tokens=prefill_tokens,
            draft_tokens=draft_tokens,
            queue=queue,
            queue_s=queue_s,
            share_prefixes=share_prefixes,
            reserve_tokens=reserve_tokens,
            prefill_slowdown=prefill_slowdown,
            tenant_kv=tenant_kv,
        )
        settings = ContextSettings(
            sequences=streams,
            tokens=capacity.kv_tokens,
            batch_tokens=step_tokens,
            threads=threads,
            flash_attention=flash_attention,
            wide_cache=wide_cache,
            steady=steady,
        )

        def load_model() -> LlamaCppModel:
            return LlamaCppModel(Model(path, gpu_layers=gpu_layers, progress=progress), settings)

        super().__init__(load_model, capacity, model_id=model_id, window=window, clock=clock)
