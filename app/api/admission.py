"""From what a peer asked to what an engine takes: all is checked here, and nothing is checked again behind it."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import msgspec

from app.engine.base import Engine, Request
from app.tenants.terms import TenantId, Terms
from edge.openai import structured
from edge.openai.job import Job
from edge.openai.schemas import MAX_STOP_CHARACTERS, MAX_STOPS
from edge.protocol.errors import InvalidRequest
from edge.protocol.frames import Message, ModelInfo, Open, Policy, Sampling
from edge.protocol.ledger import agreement


def job_requests(jobs: Sequence[Job], tenant: TenantId, *, id: str) -> list[Request]:  # noqa: A002
    """What the engine takes, of jobs that were checked when they were made."""
    return [
        Request(
            id=f"{id}-{index}",
            tenant=tenant.id,
            weight=tenant.terms.weight,
            prompt=job.prompt,
            sampling=job.sampling,
            max_tokens=job.max_tokens,
            min_tokens=job.min_tokens,
            stop=job.stop,
            logprobs=job.logprobs,
        )
        for index, job in enumerate(jobs)
    ]


def templated(frame: Open, engine: Engine) -> tuple[int, ...]:
    """The prompt's ids; tokenises `messages` if that is what was sent, and tries the grammar (slow: call it in a
    thread). Raises InvalidRequest.
    """
    if frame.sampling.grammar is not None:
        try:
            structured.check(frame.sampling.grammar, engine.vocabulary)
        except ValueError as error:
            raise InvalidRequest(f"sampling.grammar: {error}", stream=frame.stream) from error
    if frame.privacy == "draft_only":
        return _beginning(frame, engine)
    if bool(frame.prompt) == bool(frame.messages):
        raise InvalidRequest("send either prompt or messages", stream=frame.stream)
    if frame.prompt:
        return frame.prompt
    for message in frame.messages:
        if message.role not in ("system", "developer", "user", "assistant"):
            raise InvalidRequest(f"messages: unknown role {message.role[:20]!r}", stream=frame.stream)
    return tuple(
        engine.vocabulary.render(
            [Message("system" if m.role == "developer" else m.role, m.content) for m in frame.messages]
        )
    )


def _beginning(frame: Open, engine: Engine) -> tuple[int, ...]:
    """What the template puts between any question and its answer: all that stands before a draft-only stream."""
    if frame.prompt or frame.messages:
        raise InvalidRequest("privacy: in draft_only no prompt is sent", stream=frame.stream)
    one, other = (engine.vocabulary.render([Message("user", text)])[::-1] for text in ("a", "b"))
    return tuple(one[: agreement(one, other)][::-1])


def stream_request(
    frame: Open,
    prompt: tuple[int, ...],
    model: ModelInfo,
    tenant: TenantId,
    *,
    id: str,  # noqa: A002
    seed: int,
    policy: Policy,
    hold_s: float,
    drafter: str = "",
) -> Request:
    """The request of an `open`. Raises InvalidRequest, which names the field."""
    fault = _fault(frame, prompt, model)
    if fault is not None:
        raise InvalidRequest(fault, stream=frame.stream)
    room = model.context - len(prompt)
    return Request(
        id=id,
        tenant=tenant.id,
        weight=tenant.terms.weight,
        prompt=prompt,
        sampling=_seeded(frame.sampling, seed),
        max_tokens=min(room, frame.max_tokens or room),
        min_tokens=frame.min_tokens,
        stop=frame.stop,
        # A draft-only stream waits for drafts whatever its policy: no plan is to be made for it.
        policy="eager" if frame.privacy == "draft_only" else _policy(frame, tenant.terms, policy),
        hold_s=hold_s,
        rule="typical" if frame.privacy == "draft_only" else "exact",
        committed=frame.committed,
        logprobs=frame.logprobs,
        drafter=drafter,
    )


def _fault(frame: Open, prompt: tuple[int, ...], model: ModelInfo) -> str | None:
    sampling, vocabulary = frame.sampling, model.vocabulary
    limit = min(model.context - len(prompt), frame.max_tokens or model.context)
    numbers = (
        sampling.temperature,
        sampling.top_p,
        sampling.min_p,
        sampling.presence_penalty,
        sampling.frequency_penalty,
        sampling.repetition_penalty,
        *(bias for _, bias in sampling.bias),
    )
    checks = (
        (len(prompt) >= model.context, f"prompt: {len(prompt)} tokens don't fit a context of {model.context}"),
        (max(prompt, default=0) >= vocabulary, f"prompt: token ids are below {vocabulary}"),
        (max(frame.committed, default=0) >= vocabulary, f"committed: token ids are below {vocabulary}"),
        (len(frame.committed) > limit, f"committed: {len(frame.committed)} tokens, the output may have {limit}"),
        (bool(frame.committed) and sampling.seed is None, "sampling.seed: `committed` needs the seed it came of"),
        (frame.min_tokens > limit, f"min_tokens: the output may have {limit} tokens"),
        (any(token >= vocabulary for token, _ in sampling.bias), f"sampling.bias: token ids are below {vocabulary}"),
        (not all(map(isfinite, numbers)), "sampling: numbers must be finite"),
        (
            frame.privacy == "draft_only" and sampling.grammar is not None,
            "sampling.grammar: not in draft_only, where drafts needn't be what the target would pick",
        ),
        (len(frame.stop) > MAX_STOPS, f"stop: at most {MAX_STOPS} strings"),
        (
            any(not 0 < len(s) <= MAX_STOP_CHARACTERS for s in frame.stop),
            f"stop: 1 to {MAX_STOP_CHARACTERS} characters each",
        ),
    )
    return next((message for wrong, message in checks if wrong), None)


def _policy(frame: Open, terms: Terms, default: Policy) -> Policy:
    """What was asked for, or the default, or the tenant's first if it may not have that. Raises InvalidRequest."""
    allowed = terms.policies
    if allowed is None or (frame.policy or default) in allowed:
        return frame.policy or default
    if frame.policy:
        raise InvalidRequest(f"policy: you may use {', '.join(allowed)}", stream=frame.stream)
    first: Policy = msgspec.convert(allowed[0], Policy)
    return first


def _seeded(sampling: Sampling, seed: int) -> Sampling:
    if sampling.seed is not None:
        return sampling
    return msgspec.structs.replace(sampling, seed=seed)
