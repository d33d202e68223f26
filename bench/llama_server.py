"""llama.cpp's own server in this process, by the wheel `xllamacpp` (extra `bench`), to measure our engine against."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class LlamaServer:
    """A context manager. Flash attention and the size of its batches are left as its authors chose them."""

    def __init__(self, model: Path, *, slots: int, context: int, threads: int, draft: Path | None = None) -> None:
        """`context`: tokens per slot. `draft`: a draft model of its own; how far it drafts is left as it is.

        Raises ModuleNotFoundError without the wheel.
        """
        xllamacpp = importlib.import_module("xllamacpp")
        params = xllamacpp.CommonParams()
        params.model.path = str(model)
        params.n_parallel = slots
        params.n_ctx = slots * context
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.n_gpu_layers = 0
        params.fit_params = False  # or it takes another context when memory is short
        params.warmup = True
        params.cache_ram_mib = 0
        params.verbosity = -1
        params.ui = False
        if draft is not None:
            own = params.speculative.draft
            own.mparams.path = str(draft)
            own.n_gpu_layers = 0
            own.cpuparams.n_threads = own.cpuparams_batch.n_threads = threads
            params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        self._params = params
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix="llama-server-client")
        self._server: Any = None

    def __enter__(self) -> Self:
        self._server = importlib.import_module("xllamacpp").Server(self._params)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()
        self._server = None

    def generate(self, prompts: Sequence[tuple[int, ...]], tokens: int) -> list[str]:
        """Greedy outputs of exactly `tokens` tokens, all prompts at once, a client thread each."""
        return list(self._pool.map(lambda prompt: self._one(prompt, tokens), prompts))

    def _one(self, prompt: tuple[int, ...], tokens: int) -> str:
        request = {"prompt": list(prompt), "max_tokens": tokens, "temperature": 0}
        answer = self._server.handle_completions({**request, "ignore_eos": True, "cache_prompt": False})
        try:
            made, text = answer["usage"]["completion_tokens"], str(answer["choices"][0]["text"])
        except (KeyError, IndexError, TypeError):
            raise RuntimeError(f"llama.cpp's server answered {str(answer)[:500]}") from None
        if made != tokens:
            raise RuntimeError(f"llama.cpp's server made {made} tokens, {tokens} were asked for")
        return text
