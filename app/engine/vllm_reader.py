"""One stream on the gateway's side of vLLM: what to ask for, and what its outputs mean. No vllm import.

vLLM ends an output at its end tokens and its length; stop strings are found here, by the same rule as everywhere else,
since vLLM would need the tokenizer in its own loop and cuts the text, not the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from app.engine.base import Finished, Request
from app.engine.generation import Progress
from app.engine.vllm_stream import KEY, Opening, Report
from edge.openai import structured
from edge.openai.text import OutputText
from edge.openai.vocabulary import Vocabulary
from edge.protocol.errors import EngineFailed, InvalidRequest
from edge.protocol.frames import Grammar, Reason, TokenLogprob, Usage

_REASONS: Final[dict[str, Reason]] = {"stop": "stop", "length": "length", "abort": "cancelled", "repetition": "stop"}
_SEEDS: Final = 2**63


def refuse(request: Request) -> None:
    """Raises InvalidRequest, naming the field, for what vLLM can't do while it checks drafts."""
    sampling = request.sampling
    faults = (
        (
            bool(request.committed) and sampling.grammar is not None,
            "committed: vLLM would take it for the prompt, behind which a grammar begins anew",
        ),
        (
            request.min_tokens > 0 and sampling.grammar is not None,
            "min_tokens: vLLM can't combine it with a grammar, which may have come to its end before",
        ),
        (request.rule != "exact", "privacy: vLLM can't do draft_only; the llama.cpp engine can"),
        (sampling.min_p > 0, "min_p: vLLM can't combine it with speculative decoding"),
        (bool(sampling.bias), "logit_bias: vLLM can't combine it with speculative decoding"),
        (
            bool(request.committed) and (sampling.presence_penalty != 0 or sampling.frequency_penalty != 0),
            "committed: vLLM would count it to the prompt, which presence_penalty and frequency_penalty leave out",
        ),
    )
    fault = next((message for wrong, message in faults if wrong), None)
    if fault is not None:
        raise InvalidRequest(fault)


def sampling_fields(request: Request, vocabulary: Vocabulary, *, max_tokens: int, held_tokens: int) -> dict[str, Any]:
    """The arguments of vLLM's SamplingParams, but for `output_kind`. `max_tokens`: of the whole output."""
    sampling, done = request.sampling, len(request.committed)
    opening = Opening(
        stream=request.id,
        policy=request.policy,
        hold_s=request.hold_s,
        held_tokens=held_tokens,
        committed=request.committed,
        vocabulary=vocabulary.size,
        tenant=request.tenant,
        weight=request.weight,
        drafter=request.drafter,
    )
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "seed": _seed(request),
        "max_tokens": max_tokens - done,
        "min_tokens": min(max(0, request.min_tokens - done), max_tokens - done),
        "stop_token_ids": sorted(vocabulary.ends),
        "logprobs": request.logprobs,
        "detokenize": False,
        "skip_clone": True,
        "extra_args": {KEY: opening},
    }


def structured_fields(grammar: Grammar) -> dict[str, Any]:
    """The arguments of vLLM's StructuredOutputsParams: its backend `guidance` then allows what our engines do."""
    if grammar.kind == "lark":
        return {"grammar": grammar.source}
    return {"json": structured.spaced(grammar.source)}


def _seed(request: Request) -> int | None:
    """vLLM draws from a generator per request, which begins anew: so choices, and an output that is gone on with, get
    streams of noise of their own.
    """
    sampling = request.sampling
    if sampling.seed is None or sampling.temperature == 0:
        return None
    return (sampling.seed + 0x9E3779B97F4A7C15 * sampling.choice + 0xD1B54A32D192ED03 * len(request.committed)) % _SEEDS


class Reader:
    """Turns a stream's outputs into the progress of its generation."""

    def __init__(self, request: Request, vocabulary: Vocabulary, *, max_tokens: int) -> None:
        """`max_tokens`: of the whole output."""
        self._request = request
        self._vocabulary = vocabulary
        self._max_tokens = max_tokens
        self._text = OutputText(request.stop)
        self._length = 0
        self._report = Report(0, 0, 0, 0, 0, 0.0, 0.0)
        self.began = False
        """An output has come: the request has left vLLM's queue."""

    @property
    def usage(self) -> Usage:
        report = self._report
        return Usage(
            prompt=len(self._request.prompt),
            completion=self._length,
            drafted=report.drafted,
            verified=report.verified,
            accepted=report.accepted,
            matched=report.matched,
            steps=report.steps,
        )

    @property
    def length(self) -> int:
        """Tokens of output, `committed` included."""
        return self._length

    @property
    def report(self) -> Report:
        """Of the last output."""
        return self._report

    def replay(self) -> Reason | None:
        """Take `request.committed`; says why the output ends with it, if it does."""
        reason: Reason | None = None
        for token in self._request.committed:
            reason = self._append(token) or reason
            if reason is None and token in self._vocabulary.ends:
                reason = "stop"
        return "length" if reason is None and self._length >= self._max_tokens else reason

    def take(self, output: Any) -> Progress:
        """`output`: vLLM's RequestOutput, of kind DELTA. `finished` is set in the progress when it was the last."""
        self.began = True
        completion = output.outputs[0]
        before = self._report
        said = (output.kv_transfer_params or {}).get(KEY)
        report = self._report = before if said is None else Report(*said)
        tokens, reason = self._cut(completion.token_ids)
        if reason is None and output.finished:
            reason = _REASONS.get(completion.finish_reason or "", "error")
        drafted = min(report.accepted - before.accepted, len(tokens))
        return Progress(
            tokens,
            drafted,
            report.step_s,
            report.queue_s if drafted else 0.0,
            _logprobs(tokens, completion.logprobs, self._request.logprobs),
            self.usage,
            finished=None if reason is None else self.finish(reason),
        )

    def finish(self, reason: Reason, error: str | None = None) -> Finished:
        """The end as it stands. `error`: a code, with reason `error`."""
        error = error or (EngineFailed.code if reason == "error" else None)
        return Finished(self._length, reason, self._text.kept_bytes, self.usage, error)

    def _cut(self, token_ids: Sequence[int]) -> tuple[tuple[int, ...], Reason | None]:
        tokens: list[int] = []
        for token in token_ids:
            tokens.append(token)
            reason = self._append(token)
            if reason is not None:
                return tuple(tokens), reason
        return tuple(tokens), None

    def _append(self, token: int) -> Reason | None:
        self._length += 1
        if not self._request.stop:
            return None
        stopped = self._text.push(self._vocabulary.piece(token), stoppable=self._length >= self._request.min_tokens)
        self._text.take()  # only what may begin a stop string is kept here
        return "stop" if stopped else None


def _logprobs(tokens: Sequence[int], found: Any, top: int | None) -> tuple[TokenLogprob, ...]:
    """From vLLM's: for each token a dict of id → Logprob, by rank, the token's own among them."""
    if top is None or found is None:
        return ()
    return tuple(_logprob(token, entry, top) for token, entry in zip(tokens, found, strict=False))


def _logprob(token: int, entry: dict[int, Any], top: int) -> TokenLogprob:
    ranked = sorted(entry.items(), key=lambda item: cast("int", item[1].rank))
    listed = tuple((id_, _finite(value.logprob)) for id_, value in ranked[:top])
    return TokenLogprob(token, _finite(entry[token].logprob), listed)


def _finite(logprob: float) -> float:
    """JSON has no infinity; -9999.0 stands for it in OpenAI's API."""
    return max(float(logprob), -9999.0)
