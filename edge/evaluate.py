"""`paceline-edge evaluate`: how good a draft is for a target, before anything is served.

Perplexity says how good the draft is by itself, α how often it says what the target says; only α saves steps. α is
counted behind the target's own greedy text: at each place, is the draft's likeliest token the target's next? While
drafts are right their context is the target's text, so runs of agreement are runs of accepted drafts, and one pass
over the text gives them all:

    α at position i    of the runs of i - 1 right drafts, the share whose i-th is right too
    E[A]               mean right drafts in a run of at most γ

Perplexity: exp of the mean negative log-likelihood a token, in windows of `_WINDOW` tokens, of which the first half is
context only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from edge.errors import EdgeError
from edge.llama import Context, ContextSettings, LlamaError, Model
from edge.protocol.frames import Message
from edge.protocol.latency import expected_accepted
from edge.verdict import Measured, judge

LENGTH: Final = 8
"""γ: the longest run of drafts that is counted."""
_WINDOW: Final = 256
_TIMED: Final = 24
"""Tokens whose decoding is timed."""

PROMPTS: Final = (
    "Explain in a few sentences why the sky is blue at noon and red at sunset.",
    "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
    "List ten animals that live in the sea, with one fact about each.",
    "Write a polite e-mail to a landlord about a broken heater.",
    "A train leaves at 9:40 and arrives at 13:05. How long is the journey? Show the steps.",
    "Write a short poem about a lighthouse in a storm.",
)


class Evaluation(Struct, frozen=True, kw_only=True):
    draft: str
    """As llama.cpp describes it, weights and quantisation."""
    target: str
    perplexity: float
    target_perplexity: float
    perplexity_text: str
    tokens: int
    """Of the target's answers: places at which the two were compared."""
    alpha: float
    alpha_by_position: tuple[float | None, ...]
    """None: no run came that far."""
    expected_accepted: float
    """E[A], counted, for drafts of LENGTH tokens."""
    expected_accepted_formula: float
    """The same if agreement were independent from place to place: α(1 - α^γ)/(1 - α)."""
    draft_tokens_per_s: float
    target_tokens_per_s: float
    draft_bytes: int
    """Of its weights in memory."""
    target_bytes: int
    recommendation: str
    """For a cloud with the target's speed here, `rtt_s` away."""


def evaluate(
    draft: Path,
    target: Path,
    *,
    text: str | None = None,
    tokens: int = 64,
    threads: int = 1,
    rtt_s: float = 0.08,
    progress: Callable[[str], None] = lambda what: None,
) -> Evaluation:
    """`tokens`: of each answer of the target. `text`: what perplexity is measured on; None: those answers.

    Raises EdgeError: a file can't be loaded, tokenizers differ, or the text is too short.
    """
    try:
        with_target = Reader(target, threads)
    except LlamaError as error:
        raise EdgeError(str(error)) from error
    try:
        with_draft = Reader(draft, threads)
    except LlamaError as error:
        with_target.close()
        raise EdgeError(str(error)) from error
    try:
        return _compare(with_draft, with_target, text, tokens, rtt_s, progress)
    finally:
        with_draft.close()
        with_target.close()


def _compare(
    draft: Reader, target: Reader, text: str | None, tokens: int, rtt_s: float, progress: Callable[[str], None]
) -> Evaluation:
    if draft.model.vocabulary.fingerprint != target.model.vocabulary.fingerprint:
        raise EdgeError("The two have different tokenizers: this draft's ids mean other texts to that target.")
    agreed: list[list[bool]] = []
    answers: list[int] = []
    for number, prompt in enumerate(PROMPTS, start=1):
        progress(f"answer {number} of {len(PROMPTS)}")
        context = target.model.vocabulary.render([Message("user", prompt)])
        answer = target.greedy(context, tokens)
        rows = draft.rows([*context, *answer])[len(context) - 1 : -1]
        agreed.append([int(row.argmax()) == token for row, token in zip(rows, answer, strict=True)])
        answers += [*context, *answer]
    progress("perplexity")
    ids = answers if text is None else target.model.vocabulary.encode(text)
    if len(ids) < _WINDOW:
        raise EdgeError(f"The text has {len(ids)} tokens; perplexity takes at least {_WINDOW}.")
    by_position = alpha_by_position(agreed)
    alpha = sum(map(sum, agreed)) / sum(map(len, agreed))
    draft_s, target_s = draft.token_s(answers), target.token_s(answers)
    return Evaluation(
        draft=draft.model.description,
        target=target.model.description,
        perplexity=draft.perplexity(ids),
        target_perplexity=target.perplexity(ids),
        perplexity_text="the text given" if text is not None else "the target's own answers, prompts included",
        tokens=sum(map(len, agreed)),
        alpha=alpha,
        alpha_by_position=by_position,
        expected_accepted=mean_run(agreed),
        expected_accepted_formula=expected_accepted(alpha, LENGTH),
        draft_tokens_per_s=1 / draft_s,
        target_tokens_per_s=1 / target_s,
        draft_bytes=draft.model.bytes,
        target_bytes=target.model.bytes,
        recommendation=judge(Measured(draft_s, target_s, rtt_s, alpha)).advice,
    )


def alpha_by_position(agreed: Sequence[Sequence[bool]], length: int = LENGTH) -> tuple[float | None, ...]:
    """For the 1st to the length-th draft of a run begun at every place: how often it is right if those before were."""
    tried, right = [0] * length, [0] * length
    for places in agreed:
        for start in range(len(places)):
            for depth, good in enumerate(places[start : start + length]):
                tried[depth] += 1
                right[depth] += good
                if not good:
                    break
    return tuple(r / t if t else None for r, t in zip(right, tried, strict=True))


def mean_run(agreed: Sequence[Sequence[bool]], length: int = LENGTH) -> float:
    """E[A]: mean length of the agreeing beginning, over all places with a whole run behind them."""
    runs = [
        next((i for i, good in enumerate(places[start : start + length]) if not good), length)
        for places in agreed
        for start in range(len(places) - length + 1)
    ]
    return sum(runs) / len(runs) if runs else 0.0


class Reader:
    """A model with a context to read texts in."""

    def __init__(self, path: Path, threads: int) -> None:
        self.model = Model(path)
        settings = ContextSettings(tokens=1024, batch_tokens=_WINDOW, threads=threads)
        try:
            self._context = Context(self.model, settings)
        except LlamaError:
            self.model.close()
            raise

    def close(self) -> None:
        self._context.close()
        self.model.close()

    def rows(self, tokens: Sequence[int]) -> list[NDArray[np.float32]]:
        """Logits, (V,) each, behind every one of the tokens."""
        self._context.remove(0, 0)
        rows: list[NDArray[np.float32]] = []
        for start in range(0, len(tokens), _WINDOW):
            part = tokens[start : start + _WINDOW]
            self._context.decode(part, range(start, start + len(part)), [0] * len(part), [True] * len(part))
            rows += [self._context.logits(i).copy() for i in range(len(part))]
        return rows

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """Up to `count` tokens behind the prompt; the end token is the last, if it comes."""
        token = int(self.rows(prompt)[-1].argmax())
        answer = [token]
        while len(answer) < count and token not in self.model.vocabulary.ends:
            self._context.decode([token], [len(prompt) + len(answer) - 1], [0], [True])
            token = int(self._context.logits(0).argmax())
            answer.append(token)
        return answer

    def token_s(self, tokens: Sequence[int]) -> float:
        """Median seconds to decode one token behind a short context."""
        self.rows(tokens[: _WINDOW // 2])
        times = []
        for position, token in enumerate(tokens[_WINDOW // 2 :][:_TIMED], start=_WINDOW // 2):
            began = time.perf_counter()
            self._context.decode([token], [position], [0], [True])
            times.append(time.perf_counter() - began)
        return float(np.median(times))

    def perplexity(self, tokens: Sequence[int]) -> float:
        losses: list[float] = []
        for start in range(0, len(tokens) - _WINDOW + 1, _WINDOW // 2):
            window = tokens[start : start + _WINDOW]
            rows = self.rows(window)
            losses += [-log_softmax(rows[i - 1], window[i]) for i in range(_WINDOW // 2, _WINDOW)]
        return math.exp(sum(losses) / len(losses))


def log_softmax(row: NDArray[np.float32], token: int) -> float:
    """Natural log of the probability of `token` by logits, (V,)."""
    wide = row.astype(np.float64)
    top = wide.max()
    return float(wide[token] - top - math.log(np.exp(wide - top).sum()))
