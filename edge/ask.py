"""One question, answered by one of three routes. What is shown goes to an `Answer`, what was measured comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import aclosing

from msgspec import Struct

from edge.cloud import Cloud, Done
from edge.drafters.base import Drafter
from edge.errors import EdgeError
from edge.events import Committed, Drafted, Ended, Measures, RolledBack
from edge.figures import Arrivals, Figures
from edge.generate import Generate
from edge.openai.text import OutputText
from edge.protocol.frames import Message, Sampling
from edge.runtime import Runtime
from edge.terminal import Answer
from edge.worker import Worker

LOCAL_TOKENS = 512
"""Longest answer of a drafter alone when nothing else was said: it may never end by itself."""


class Answered(Struct, frozen=True, kw_only=True):
    text: str
    reason: str
    figures: Figures
    measures: Measures | None = None
    """Of the hybrid route."""


async def ask_hybrid(runtime: Runtime, request: Generate, answer: Answer) -> Answered:
    """Drafted here, decided by the cloud. Cancelling it cancels the stream. Raises what `Runtime.generate` raises."""
    piece = runtime.vocabulary.piece if runtime.vocabulary is not None else None
    text: list[str] = []
    async with aclosing(runtime.generate(request)) as events:
        async for event in events:
            match event:
                case Drafted():
                    for token in event.tokens:
                        answer.drafted(piece(token).decode(errors="ignore") if piece else "·")
                case Committed():
                    answer.committed([(t.text, t.origin) for t in event.tokens], event.agreed)
                    text.append(event.text)
                case RolledBack():
                    answer.rolled_back()
                case Ended():
                    answer.rest(event.text)
                    text.append(event.text)
                    return Answered(
                        text="".join(text), reason=event.reason, figures=event.figures, measures=event.measures
                    )
    raise EdgeError("the stream ended without saying so")


async def ask_cloud(
    cloud: Cloud,
    model: str,
    messages: Sequence[Message],
    sampling: Sampling,
    max_tokens: int | None,
    answer: Answer,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Answered, int]:
    """The same model without this device's help, over HTTP as any client would ask. And the bytes sent.

    Raises as `Cloud` does.
    """
    arrivals = Arrivals(clock())
    text: list[str] = []
    async for item in cloud.answer(messages, model, sampling, max_tokens):
        if isinstance(item, Done):
            answer.rest("")
            arrivals.tokens = item.tokens  # a chunk of text may hold several, or a token none
            figures = arrivals.figures(bytes_up=item.bytes_up, bytes_down=item.bytes_down)
            return Answered(text="".join(text), reason=item.reason, figures=figures), item.bytes_up
        arrivals.arrived(clock(), 1)
        text.append(item.text)
        answer.committed([(item.text, "cloud")], 0)
    raise EdgeError("the answer ended without saying so")


async def ask_local(
    drafter: Drafter,
    messages: Sequence[Message],
    sampling: Sampling,
    max_tokens: int | None,
    answer: Answer,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Answered:
    """The drafter alone: nothing leaves the device, and nobody verifies it. `sampling.seed` is set."""
    vocabulary = drafter.vocabulary
    if vocabulary is None:
        raise EdgeError("This drafter is no language model: alone it can't answer. Use --drafter llama.")
    arrivals = Arrivals(clock())
    output, text, reason = OutputText(), list[str](), "length"
    prompt = vocabulary.render(messages)
    worker = Worker()
    continuation = drafter.begin(prompt, sampling)
    try:
        for _ in range(max_tokens or LOCAL_TOKENS):
            proposal = await worker.run(continuation.propose)
            if proposal is None:  # its context is full
                break
            arrivals.arrived(clock(), 1)
            if proposal.token in vocabulary.ends:
                reason = "stop"
                break
            output.push(vocabulary.piece(proposal.token))
            text.append(output.take())
            answer.committed([(text[-1], "unverified")], 0)
    finally:
        await worker.close()  # Ctrl-C leaves a call under way, and the drafter must not be closed under it
        continuation.close()
    text.append(output.take(final=True))
    answer.rest(text[-1])
    return Answered(text="".join(text), reason=reason, figures=arrivals.figures(bytes_up=0, bytes_down=0))
