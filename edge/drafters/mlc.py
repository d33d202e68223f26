"""A drafter that is a small language model, compiled and run by MLC-LLM (W4A16 as q4f16_1: CUDA, Metal, Vulkan, CPU).

Each proposal is a request for one token behind the whole text: MLC's radix prefix cache has all but the last few tokens
computed, and what a rollback leaves is a beginning that it has, too. What is asked for are the likeliest candidates and
their probabilities, not MLC's own choice: so this side picks by the target's rule, with its noise, penalties and
grammar, as the other drafters do. (Facts about MLC are of its main branch in July 2026.)

- MLC's streams bring text; token ids are seen only in the callback of its engine, which is replaced here.
- Candidates come as bytes, and are found among the vocabulary's pieces.
- An aborted request loses its cache. A request for one token needs no abort.
- A prompt that doesn't fit brings no token: no drafts for that stream, and nothing else.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

import numpy as np

from edge.drafters.base import Proposal
from edge.drafters.sampled import SampledContinuation
from edge.errors import EdgeError
from edge.openai.hf_vocabulary import HfVocabulary
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Sampling
from edge.protocol.sampling import NothingLeft, Sampler

_CANDIDATES: Final = 20
"""The most that MLC gives."""
_PATIENCE_S: Final = 120.0
"""For one token. The first request computes a prompt, on a CPU perhaps."""

Candidate = tuple[bytes, float]
"""A token's bytes (a control token's name) and its natural log-probability."""


class MlcError(EdgeError):
    """The model can't be loaded, or its engine gives nothing any more."""


class Candidates(Protocol):
    """Whoever runs the model."""

    def behind(self, tokens: Sequence[int]) -> list[Candidate]:
        """The likeliest next tokens at temperature 1; none if `tokens` don't fit. Raises MlcError."""
        ...

    def close(self) -> None: ...


class MlcDrafter:
    def __init__(self, name: str, engine: Candidates, vocabulary: Vocabulary, names: Mapping[str, int]) -> None:
        """`names`: of the control tokens, with their ids."""
        self.name = name
        self.vocabulary: Vocabulary | None = vocabulary
        self.fingerprint = vocabulary.fingerprint
        self._engine = engine
        self._vocabulary = vocabulary
        # Where two ids have the same bytes the lower one is meant: encoders never give the other.
        pieces = ((vocabulary.piece(token), token) for token in range(vocabulary.size - 1, -1, -1))
        self._ids = {piece: token for piece, token in pieces if piece} | {n.encode(): t for n, t in names.items()}

    def begin(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        committed: Sequence[int] = (),
        coupled: bool = True,
    ) -> SampledContinuation:
        picker = _Picker(self._engine, self._ids, self._vocabulary.size)
        return SampledContinuation(picker, self._vocabulary, prompt, sampling, committed=committed, coupled=coupled)

    def close(self) -> None:
        self._engine.close()


@dataclass(frozen=True, slots=True)
class _Picker:
    engine: Candidates
    ids: Mapping[bytes, int]
    """Of each token's bytes."""
    size: int
    """Of the vocabulary."""

    def pick(self, tokens: Sequence[int], sampler: Sampler, position: int) -> Proposal | None:
        known = {self.ids[data]: value for data, value in self.engine.behind(tokens) if data in self.ids}
        if not known:
            return None
        row = np.full(self.size, -np.inf, np.float32)
        row[list(known)] = list(known.values())
        try:
            token = sampler.pick(row, position)
        except NothingLeft:  # none of the candidates is allowed
            return None
        return Proposal(token, min(1.0, math.exp(known[token]))) if token in known else None

    def close(self) -> None:
        """What MLC computed for the stream leaves its cache when others need the room."""


@dataclass(frozen=True, slots=True)
class _Direct:
    """In the place of MLC's event loop: its callback runs at once, on its own thread, and only fills a queue."""

    def call_soon_threadsafe(self, callback: Callable[..., None], *arguments: Any) -> None:
        callback(*arguments)


class MlcEngine:
    """`Candidates` of an `AsyncMLCEngine`, asked from one thread at a time."""

    def __init__(self, engine: Any, request: Callable[[str, Sequence[int]], Any]) -> None:
        """`request` makes MLC's request for one token, under an id."""
        self._engine = engine
        self._request = request
        self._outputs: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._numbers = itertools.count()
        engine.state.async_event_loop = _Direct()
        engine.state._async_request_stream_callback_impl = self._take  # looked up at each call

    def behind(self, tokens: Sequence[int]) -> list[Candidate]:
        name = f"draft-{next(self._numbers)}"
        self._engine._ffi["add_request"](self._request(name, tokens))
        found: list[Candidate] = []
        while True:
            try:
                whose, output = self._outputs.get(timeout=_PATIENCE_S)
            except Empty:
                raise MlcError(f"MLC gave no token within {_PATIENCE_S:g} s") from None
            if whose != name:
                continue
            if output.request_final_usage_json_str is not None:
                return found
            for line in output.delta_logprob_json_strs or ():
                found += ((bytes(top["bytes"]), top["logprob"]) for top in json.loads(line)["top_logprobs"])

    def close(self) -> None:
        self._engine.terminate()

    def _take(self, outputs: Sequence[Any]) -> None:
        for output in outputs:
            name, (first, *_) = output.unpack()
            self._outputs.put((name, first))


def load(folder: Path, library: Path, *, device: str = "auto", streams: int = 2, context: int = 2048) -> MlcDrafter:
    """The model of a folder that `mlc_llm gen_config` wrote, compiled into `library`. Blocks for seconds.

    Raises MlcError, or ImportError without mlc_llm.
    """
    from mlc_llm import AsyncMLCEngine
    from mlc_llm.protocol.debug_protocol import DebugConfig
    from mlc_llm.protocol.generation_config import GenerationConfig
    from mlc_llm.serve import data
    from mlc_llm.serve.config import EngineConfig

    vocabulary, names = _vocabulary(folder)
    config = EngineConfig(
        max_num_sequence=streams,
        max_single_sequence_length=context,
        max_total_sequence_length=streams * context,
        prefix_cache_max_num_recycling_seqs=streams,
        verbose=False,
    )
    try:
        engine = AsyncMLCEngine(str(folder), device, model_lib=str(library.absolute()), engine_config=config)
    except Exception as error:  # of TVM's own kinds, which have no common root
        raise MlcError(f"MLC can't load {folder.name}: {error!s:.300}") from error
    generation = GenerationConfig(
        # Probabilities are told behind temperature and top_p: these leave them as they are.
        temperature=1.0,
        top_p=1.0,
        frequency_penalty=0.0,
        presence_penalty=0.0,
        repetition_penalty=1.0,
        logprobs=True,
        top_logprobs=_CANDIDATES,
        max_tokens=1,
        seed=0,
        stop_token_ids=[],
        debug_config=DebugConfig(ignore_eos=True),  # an end is a token like others; MLC would keep it to itself
    ).model_dump_json(by_alias=True)

    def request(name: str, tokens: Sequence[int]) -> Any:
        return engine._ffi["create_request"](name, [data.TokenData(list(tokens))], generation)

    return MlcDrafter(folder.name, MlcEngine(engine, request), vocabulary, names)


def _vocabulary(folder: Path) -> tuple[HfVocabulary, dict[str, int]]:
    """Of the tokenizer's files that MLC keeps beside the weights; and the control tokens' names."""
    from transformers import AutoTokenizer

    try:
        config = json.loads((folder / "mlc-chat-config.json").read_text(encoding="utf-8"))
        tokenizer = AutoTokenizer.from_pretrained(str(folder))
    except (OSError, ValueError) as error:
        raise MlcError(f"{folder} is no folder of `mlc_llm gen_config`: {error}") from error
    ends = config.get("eos_token_id", ())
    vocabulary = HfVocabulary(tokenizer, size=config["vocab_size"], ends=(ends,) if isinstance(ends, int) else ends)
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    return vocabulary, {item.content: token for token, item in added.items() if item.special}
