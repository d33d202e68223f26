"""llama.cpp for both sides: a model file, its tokenizer, and a KV cache of several sequences.

The only module that knows llama-cpp-python's low-level API. `decode` releases the GIL while it computes. Raises
LlamaError, whose text names what failed and says what llama.cpp said about it.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from edge.llama_cells import SLACK, Cells, FreeCells, OrderedCells
from edge.llama_vocabulary import LlamaVocabulary

logger = logging.getLogger(__name__)


class LlamaError(Exception):
    """llama.cpp could not do what was asked."""


class CacheFull(LlamaError):
    """There is no room in the KV cache for the step; nothing of it was computed."""


class Model:
    """A loaded GGUF. Contexts on it must be closed before it."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        gpu_layers: int = 0,
        vocabulary_only: bool = False,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Load a file. `progress` is told the share that is loaded, 0 to 1. Raises LlamaError.

        `vocabulary_only`: no weights, so no context can be made on it; takes milliseconds and little memory.
        """
        self.path = Path(path)
        if not self.path.is_file():
            raise LlamaError(f"no such model file: {self.path}")
        _start()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        params.vocab_only = vocabulary_only
        if progress is not None:
            params.progress_callback = llama_cpp.llama_progress_callback(_reporter(progress))
        handle = llama_cpp.llama_model_load_from_file(str(self.path).encode(), params)
        if handle is None:
            raise LlamaError(f"{self.path.name} can't be loaded as a model{_last_words()}")
        self._handle: Any = handle
        self.vocabulary = LlamaVocabulary(handle)
        self.trained_context = int(llama_cpp.llama_model_n_ctx_train(handle))
        """Tokens that the model was trained on at a time."""
        self.bytes = int(llama_cpp.llama_model_size(handle))
        """Of its weights."""
        self.parameters = int(llama_cpp.llama_model_n_params(handle))
        self.description = _describe(handle)
        """Architecture, size and quantisation, as llama.cpp puts it."""

    @property
    def handle(self) -> Any:
        if self._handle is None:
            raise LlamaError(f"{self.path.name} was closed")
        return self._handle

    def close(self) -> None:
        """Free it. Idempotent."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self.vocabulary.close()
            llama_cpp.llama_model_free(handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSettings:
    """The defaults make results depend least on what else is in a batch (docs/results.md, "Ties")."""

    sequences: int = 1
    tokens: int = 2048
    """Of the KV cache, all sequences together if `unified`, else each."""
    batch_tokens: int = 256
    """In one call of `decode`."""
    micro_tokens: int = 63
    """Computed at a time. From 64 on llama.cpp's CPU attention goes another way, with other rounding."""
    threads: int = 1
    flash_attention: bool = True
    unified: bool = True
    """One pool of cells for all sequences: then runs of different lengths are computed at once."""
    wide_cache: bool = False
    """Keys and values in F32 instead of F16."""
    steady: bool = False
    """On one CPU thread, logits are then the same to the bit whatever else is in a batch, and was before.

    One token is computed as if it were two: llama.cpp's kernels for a single one round otherwise than those for more
    (and are faster). And cells stay in order (llama_cells.py), which takes a quarter more of them. Needs `unified`."""


class Context:
    """A KV cache and the scratch memory to extend it. Calls come from one thread at a time."""

    def __init__(self, model: Model, settings: ContextSettings) -> None:
        """Raises LlamaError, for example when memory is short."""
        if settings.steady and not settings.unified:
            raise LlamaError("steady results need a unified cache")
        self.settings = settings
        self.vocabulary_size = model.vocabulary.size
        handle = llama_cpp.llama_init_from_model(model.handle, _context_params(settings))
        if handle is None:
            raise LlamaError(f"no context of {settings.tokens} tokens for {model.path.name}{_last_words()}")
        self._handle: Any = handle
        memory = llama_cpp.llama_get_memory(handle)
        self._cells: Cells = FreeCells(memory, unified=settings.unified)
        if settings.steady:
            cells = int(llama_cpp.llama_n_ctx(handle))
            self._cells = OrderedCells(handle, memory, cells=cells, dead=settings.sequences + 1)
        self._batch = llama_cpp.llama_batch_init(settings.batch_tokens + 1, 0, 1)
        self._rows: list[int] = []
        """Where among the rows that were computed those are that were wanted."""
        self._logits: NDArray[np.float32] = np.empty((0, self.vocabulary_size), np.float32)

    def decode(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[int],
        wanted: Sequence[bool],
    ) -> None:
        """Compute tokens of any number of sequences at once: one element of each argument per token.

        Raises CacheFull or LlamaError; the KV cache is then as it was.
        """
        count = len(tokens)
        if not 0 < count <= self.settings.batch_tokens:
            raise LlamaError(f"a batch of {count} tokens, it takes 1 to {self.settings.batch_tokens}")
        outputs = [bool(want) for want in wanted]
        for i in range(count):
            self._put(i, tokens[i], positions[i], sequences[i])
        scratch = self.settings.steady and count % self.settings.micro_tokens == 1
        if scratch:
            self._put(count, 0, 0, self.settings.sequences)
            outputs.append(False)
        self._rows = self._mark(outputs)
        self._cells.make_room(len(outputs))
        status = llama_cpp.llama_decode(self._handle, self._batch)
        if status == 1:
            raise CacheFull(f"no room for {count} tokens in a KV cache of {self.settings.tokens}")
        if status:
            raise LlamaError(f"decode failed with status {status}{_last_words()}")
        for i in range(count):
            self._cells.wrote(sequences[i], positions[i] + 1)
        if scratch:
            self._cells.wrote(self.settings.sequences, 1)
            self.remove(self.settings.sequences, 0)
        self._fetch_logits(sum(outputs))

    def logits(self, row: int) -> NDArray[np.float32]:
        """Logits, shape (vocabulary,), of the row-th wanted token. A view, valid until the next `decode`."""
        view: NDArray[np.float32] = self._logits[self._rows[row]]
        return view

    def remove(self, sequence: int, start: int) -> None:
        """Forget a sequence's positions from `start` on. Raises LlamaError if the model's memory can't be cut there."""
        if not self._cells.remove(sequence, start):
            raise LlamaError(f"this model's memory can't be rolled back to position {start}")

    def copy(self, source: int, target: int, length: int) -> None:
        """Make `target` hold the first `length` positions of `source`, and nothing else."""
        self.remove(target, 0)
        self._cells.copy(source, target, length)

    def close(self) -> None:
        """Free it. Idempotent."""
        handle, self._handle = self._handle, None
        if handle is not None:
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(handle)

    def _put(self, at: int, token: int, position: int, sequence: int) -> None:
        batch = self._batch
        batch.token[at] = token
        batch.pos[at] = position
        batch.n_seq_id[at] = 1
        batch.seq_id[at][0] = sequence

    def _mark(self, outputs: list[bool]) -> list[int]:
        """Ask for rows; with `steady`, for two where one is wanted of what is computed at a time (`outputs` is
        changed).

        Returns the places of those that were wanted.
        """
        wanted = list(outputs)
        if self.settings.steady:
            micro = self.settings.micro_tokens
            for begin in range(0, len(outputs), micro):
                block = outputs[begin : begin + micro]
                if sum(block) == 1:
                    at = block.index(True)
                    outputs[begin + (at - 1 if at else 1)] = True
        self._batch.n_tokens = len(outputs)
        places, place = [], 0
        for i, output in enumerate(outputs):
            self._batch.logits[i] = output
            if wanted[i]:
                places.append(place)
            place += output
        return places

    def _fetch_logits(self, rows: int) -> None:
        """Waits for the computation, on devices that work asynchronously."""
        if rows:
            pointer = llama_cpp.llama_get_logits(self._handle)
            self._logits = np.ctypeslib.as_array(pointer, (rows, self.vocabulary_size))


def quantize(source: str | os.PathLike[str], target: str | os.PathLike[str], kind: str, *, threads: int = 0) -> None:
    """Write `source` in another precision: `kind` is llama.cpp's name, such as F16, Q8_0, Q4_1 or Q3_K_S.

    A source that is itself quantised is dequantised first, so F16 of a 4-bit file holds what the 4 bits hold. The
    target appears only when it is whole. `threads` 0: as many as there are cores. Raises LlamaError.
    """
    _start()
    name = "LLAMA_FTYPE_ALL_F32" if kind == "F32" else f"LLAMA_FTYPE_MOSTLY_{kind}"
    file_type = getattr(llama_cpp, name, None)
    if file_type is None:
        raise LlamaError(f"unknown kind of quantisation: {kind}")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = file_type
    params.allow_requantize = True
    params.nthread = threads
    partial = Path(f"{os.fspath(target)}.partial")
    status = llama_cpp.llama_model_quantize(os.fspath(source).encode(), str(partial).encode(), ctypes.byref(params))
    if status:
        partial.unlink(missing_ok=True)
        raise LlamaError(f"{Path(source).name} can't be written as {kind}{_last_words()}")
    partial.replace(target)


def _context_params(settings: ContextSettings) -> Any:
    params = llama_cpp.llama_context_default_params()
    sequences, cells = settings.sequences, settings.tokens
    if settings.steady:
        sequences += 2  # for the token that is only there for company, and for what is dead
        cells += max(SLACK, cells // 4)
    params.n_ctx = cells if settings.unified else cells * sequences
    params.n_batch = settings.batch_tokens + 1
    params.n_ubatch = min(settings.micro_tokens, settings.batch_tokens + 1)
    params.n_seq_max = sequences
    params.n_threads = params.n_threads_batch = settings.threads
    params.flash_attn_type = (
        llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        if settings.flash_attention
        else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    params.kv_unified = settings.unified
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32 if settings.wide_cache else llama_cpp.GGML_TYPE_F16
    params.no_perf = True
    return params


def _reporter(progress: Callable[[float], None]) -> Callable[[float, Any], bool]:
    def report(share: float, _data: Any) -> bool:
        progress(share)
        return True

    return report


def _describe(handle: Any) -> str:
    buffer = ctypes.create_string_buffer(256)
    llama_cpp.llama_model_desc(handle, buffer, len(buffer))
    return buffer.value.decode(errors="replace")


_ERROR_LEVEL = 4
_CONTINUED_LEVEL = 5
_complaints: deque[str] = deque(maxlen=4)
"""The last errors that llama.cpp logged: it returns only a status."""


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _log(level: int, text: bytes, _data: Any) -> None:
    message = text.decode(errors="replace").strip()
    if level == _ERROR_LEVEL and message:
        _complaints.append(message)
    if message and level != _CONTINUED_LEVEL:
        logger.debug("llama.cpp: %s", message)


@functools.cache
def _start() -> None:
    llama_cpp.llama_log_set(_log, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()


@atexit.register
def _close_left_open() -> None:
    """The binding opens two handles on /dev/null at import and never closes them: a warning each at the end."""
    from llama_cpp import _utils

    for handle in (_utils.outnull_file, _utils.errnull_file):
        handle.close()


def _last_words() -> str:
    """What llama.cpp has logged as errors since it was last asked."""
    words = "; ".join(_complaints)
    _complaints.clear()
    return f": {words}" if words else ""
