"""vLLM as an engine. A stream is an ordinary request of its AsyncLLM; drafts go by utility calls to the scheduler.

    Generation.offer ──► Messenger ──► EngineCore: DraftScheduler (vllm_plugin.py), where paths are checked
    Generation.apply ◄── Reader ◄── AsyncLLM's outputs, each with the stream's counts so far

One task per stream waits for its outputs. The engine's process may die at any time: vLLM notices at once, every
stream ends with `engine_failed`, and `failure` says so to the readiness probe.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.engine.base import Load, Request
from app.engine.fairness import may_wait
from app.engine.generation import Generation, Progress
from app.engine.vllm_messenger import Messenger
from app.engine.vllm_reader import Reader, refuse, sampling_fields, structured_fields
from app.engine.vllm_start import SCHEDULER, Plan, start
from edge.openai.hf_vocabulary import HfVocabulary
from edge.openai.vocabulary import Vocabulary
from edge.protocol.errors import EngineFailed, InvalidRequest, Overloaded
from edge.protocol.frames import ModelInfo, Reason

logger = logging.getLogger(__name__)

_EARLY = 64
"""Drafts kept for a stream that vLLM hasn't been told of yet."""


@dataclass(slots=True, eq=False)
class _Stream:
    generation: Generation
    reader: Reader
    fields: dict[str, Any]
    """Of its SamplingParams."""
    began: float
    """Seconds."""
    task: asyncio.Task[None] | None = None
    added: bool = False
    """vLLM knows the request: what is said of it now gets there behind it."""
    drafts: list[tuple[int, int, Sequence[int]]] = field(default_factory=list)
    park_at: int | None = None


class VllmEngine:
    """Implements `Engine`. `model` and `vocabulary` exist once it has started."""

    model: ModelInfo
    vocabulary: Vocabulary

    def __init__(
        self,
        model: str,
        *,
        model_id: str,
        context: int = 2048,
        streams: int = 8,
        threads: int = 1,
        queue: int = 128,
        draft_tokens: int = 8,
        window: int = 32,
        held_tokens: int = 256,
        share_prefixes: bool = False,
        arguments: str = "",
        ahead: bool = False,
        scheduler: str = SCHEDULER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`model`: a Hugging Face folder, or a name on the hub. `arguments`: more for vLLM; these, `ahead` and
        `scheduler` are vllm_start.py's.

        `share_prefixes`: whether a tenant may profit from another's prompt in the prefix cache.
        """
        self._plan = Plan(
            model=model,
            context=context,
            streams=streams,
            draft_tokens=draft_tokens,
            threads=threads,
            arguments=arguments,
            ahead=ahead,
            scheduler=scheduler,
        )
        self._model_id = model_id
        self._queue = queue
        self._window = window
        self._held_tokens = held_tokens
        self._share_prefixes = share_prefixes
        self._clock = clock
        self._streams: dict[str, _Stream] = {}
        self._of_generation: dict[Generation, _Stream] = {}
        self._stream_s = 1.0
        """Recent mean time that a stream runs, seconds."""
        self._step_s = 0.0
        self._last_step = 0, 0.0
        """Tokens and duration of the newest step."""
        self._failure: str | None = "the engine isn't running"
        self._llm: Any = None
        self._messenger: Messenger

    async def start(self) -> None:
        """Raises RuntimeError or ValueError: hooks that are missing, arguments that won't do, a model that can't be."""
        llm = self._llm = await asyncio.to_thread(start, self._plan)
        config = llm.model_config
        ends = config.try_get_generation_config().get("eos_token_id") or ()
        tokenizer = llm.renderer.tokenizer
        self.vocabulary = await asyncio.to_thread(
            HfVocabulary, tokenizer, size=config.get_vocab_size(), ends=(ends,) if isinstance(ends, int) else ends
        )
        self.model = ModelInfo(self._model_id, self.vocabulary.fingerprint, self.vocabulary.size, config.max_model_len)
        self._messenger = Messenger(llm.engine_core.call_utility_async, self._refused)
        scheduler = await llm.engine_core.call_utility_async("paceline_start")
        logger.info("vllm_started", extra={"scheduler": scheduler})
        self._failure = None

    async def stop(self) -> None:
        llm, self._llm = self._llm, None
        if llm is None:
            return
        self._failure = self._failure or "the engine was stopped"
        tasks = [stream.task for stream in self._streams.values() if stream.task is not None]
        for stream in list(self._streams.values()):
            self.cancel(stream.generation)
        await asyncio.gather(*tasks, return_exceptions=True)
        if hasattr(self, "_messenger"):
            await self._messenger.close()
        await asyncio.to_thread(llm.shutdown)
        llm.shutdown = _nothing  # __del__ calls it again, at the interpreter's end, when half of vLLM is gone

    def submit(self, request: Request) -> Generation:
        if (failure := self.failure()) is not None:
            raise EngineFailed(failure)
        self._check(request)
        waiting, full = self._waiting(), len(self._streams) >= self._plan.streams
        if full and not may_wait(waiting, request.tenant, request.weight, self._queue):
            raise Overloaded(
                f"{waiting.total()} requests are waiting, {waiting[request.tenant]} of them yours",
                retry_after_s=self._retry_after_s(),
            )
        max_tokens = min(request.max_tokens, self.model.context - len(request.prompt))
        reader = Reader(request, self.vocabulary, max_tokens=max_tokens)
        generation = Generation(request, self, window=self._window)
        reason = reader.replay()
        if reason is not None:  # what was carried here was the whole output
            generation.apply(Progress(usage=reader.usage, finished=reader.finish(reason)))
            return generation
        fields = sampling_fields(request, self.vocabulary, max_tokens=max_tokens, held_tokens=self._held_tokens)
        stream = _Stream(generation, reader, fields, self._clock())
        self._streams[request.id] = self._of_generation[generation] = stream
        stream.task = asyncio.create_task(self._run(stream), name=f"stream {request.id}")
        return generation

    def load(self) -> Load:
        began = [stream for stream in self._streams.values() if stream.reader.began]
        used = sum(len(stream.generation.request.prompt) + stream.reader.length for stream in began)
        waiting = self._waiting()
        load = len(began), waiting.total(), used, self._cache_tokens(), self._step_s
        return Load(*load, *self._last_step, waiting_of=waiting)

    def _waiting(self) -> Counter[str]:
        """Streams that haven't begun, by tenant."""
        return Counter(s.generation.request.tenant for s in self._streams.values() if not s.reader.began)

    def failure(self) -> str | None:
        if self._failure is None and self._llm.errored:
            self._failure = "vLLM's engine process died"
        return self._failure

    # Worker: what generations ask for.

    def offer(self, generation: Generation, epoch: int, start: int, tokens: Sequence[int]) -> None:
        stream = self._of_generation.get(generation)
        if stream is None:
            return
        if stream.added:
            self._messenger.offer(generation.request.id, epoch, start, tokens)
        elif len(stream.drafts) < _EARLY:
            stream.drafts.append((epoch, start, tokens))

    def cancel(self, generation: Generation) -> None:
        stream = self._of_generation.get(generation)
        if stream is not None:
            self._end(stream, "cancelled")
            if stream.task is not None:
                stream.task.cancel()

    def park(self, generation: Generation, at: int | None) -> None:
        stream = self._of_generation.get(generation)
        if stream is None:
            return
        stream.park_at = at
        if stream.added:
            self._messenger.park(generation.request.id, at)

    # One stream's task.

    async def _run(self, stream: _Stream) -> None:
        request, finished = stream.generation.request, False
        try:
            outputs = await self._add(stream)
            self._say_early(stream)
            while not finished:
                output = outputs.get_nowait() or await outputs.get()
                finished = output.finished
                if self._take(stream, output):
                    break
        except asyncio.CancelledError:
            pass  # `cancel` has ended the generation; vLLM is told below
        except ValueError as error:
            logger.info("vllm_refused", extra={"reason": str(error)})
            self._end(stream, "error", InvalidRequest.code)
            return
        except Exception:
            if self.failure() is None:  # else it is no fault of this stream's, and all of them come here
                logger.exception("stream_failed")
            self._end(stream, "error", EngineFailed.code)
            return
        if not finished and self._llm is not None:
            await self._llm.abort(request.id)

    async def _add(self, stream: _Stream) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        request = stream.generation.request
        prompt: dict[str, Any] = {"type": "token", "prompt_token_ids": [*request.prompt, *request.committed]}
        if not self._share_prefixes:  # else how fast a prompt is read tells what other tenants have asked
            prompt["cache_salt"] = request.tenant
        grammar = request.sampling.grammar
        structure = None if grammar is None else StructuredOutputsParams(**structured_fields(grammar))
        params = SamplingParams(**stream.fields, output_kind=RequestOutputKind.DELTA, structured_outputs=structure)
        outputs = await self._llm.add_request(request.id, prompt, params)
        stream.added = True
        return outputs

    def _say_early(self, stream: _Stream) -> None:
        name = stream.generation.request.id
        if stream.park_at is not None:
            self._messenger.park(name, stream.park_at)
        for epoch, start_, tokens in stream.drafts:
            self._messenger.offer(name, epoch, start_, tokens)
        stream.drafts.clear()

    def _take(self, stream: _Stream, output: Any) -> bool:
        """True if it was the last that counts."""
        progress = stream.reader.take(output)
        self._step_s += (progress.step_s - self._step_s) * (0.1 if self._step_s else 1.0)
        report = stream.reader.report
        self._last_step = report.step_tokens, report.step_s
        stream.generation.apply(progress)
        stream.generation.widen(self._window if report.worthwhile else 1)
        if progress.finished is not None:
            self._forget(stream)
        return progress.finished is not None

    def _end(self, stream: _Stream, reason: Reason, error: str | None = None) -> None:
        finished = stream.reader.finish(reason, error)
        stream.generation.apply(Progress(usage=stream.reader.usage, finished=finished))
        self._forget(stream)

    def _forget(self, stream: _Stream) -> None:
        self._streams.pop(stream.generation.request.id, None)
        self._of_generation.pop(stream.generation, None)
        self._stream_s += 0.2 * (self._clock() - stream.began - self._stream_s)

    def _refused(self, name: str, lowest_epoch: int) -> None:
        stream = self._streams.get(name)
        if stream is not None:
            stream.generation.apply(Progress(refused=lowest_epoch))

    def _check(self, request: Request) -> None:
        request.check(self.model)
        if request.id in self._streams:
            raise InvalidRequest(f"a stream {request.id} is running")
        refuse(request)

    def _cache_tokens(self) -> int:
        cache = self._llm.vllm_config.cache_config if self._llm is not None else None
        return 0 if cache is None else int(cache.num_gpu_blocks or 0) * int(cache.block_size or 0)

    def _retry_after_s(self) -> float:
        """When the queue will have moved on by a place, at the pace of the streams before."""
        return min(60.0, max(1.0, self._stream_s / self._plan.streams))


def _nothing() -> None:
    pass
