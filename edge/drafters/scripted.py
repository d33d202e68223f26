"""A drafter without weights for tests, load tests and measurements: it knows what the scripted model (edge/script.py)
will say, and is right where it is told to be.

Whether the draft for a position is right depends on the position alone, so an event simulation can be run on the same
pattern. "Right" means: what the target would pick behind the same context; behind a wrong draft that is another text.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

from edge.drafters.base import Proposal
from edge.openai.structured import matcher
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Sampling
from edge.protocol.sampling import Sampler
from edge.script import Script

Pattern = Callable[[int], bool]
"""Whether the draft for an output position is right."""

_WRONG = ord("?")  # hardly ever the script's own word, and it ends nothing


def right_with(acceptance_rate: float, seed: int = 0) -> Pattern:
    """Right with this probability (0 to 1), each position by a hash of its own."""

    def right(position: int) -> bool:
        digest = hashlib.blake2b(f"{seed}/{position}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) < acceptance_rate * 2.0**64

    return right


def repeating(pattern: Sequence[bool]) -> Pattern:
    """Position i is right if pattern[i % len(pattern)]."""
    return lambda position: pattern[position % len(pattern)]


class ScriptedDrafter:
    """`draft_s`: seconds that a token takes, the script's own work included; the rest of them is slept.

    `confidence`: of the draft for an output position, 0 to 1.
    """

    name = "scripted"

    def __init__(
        self,
        script: Script,
        right: Pattern,
        *,
        draft_s: float = 0.0,
        confidence: Callable[[int], float] = lambda position: 1.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.vocabulary: Vocabulary | None = script.vocabulary
        self.fingerprint = script.vocabulary.fingerprint
        self._script = script
        self._right = right
        self._draft_s = draft_s
        self._confidence = confidence
        self._sleep = sleep
        self._clock = clock

    def begin(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        committed: Sequence[int] = (),
        coupled: bool = True,
    ) -> ScriptedContinuation:
        """It always knows the target's noise: `coupled` changes nothing."""
        continuation = ScriptedContinuation(self._script, self._right, self._confidence, self._until, prompt, sampling)
        continuation.feed(committed)
        return continuation

    def close(self) -> None:
        pass

    def _until(self) -> Callable[[], None]:
        """What waits until a token that begins now may be ready."""
        if not self._draft_s:
            return lambda: None
        ready = self._clock() + self._draft_s
        return lambda: self._sleep(max(0.0, ready - self._clock()))


class ScriptedContinuation:
    def __init__(
        self,
        script: Script,
        right: Pattern,
        confidence: Callable[[int], float],
        until: Callable[[], Callable[[], None]],
        prompt: Sequence[int],
        sampling: Sampling,
    ) -> None:
        self._script = script
        self._right = right
        self._confidence = confidence
        self._until = until
        self._key = script.key(prompt)
        self._previous = prompt[-1]
        self._constraint = matcher(sampling.grammar, script.vocabulary)
        self._sampler = Sampler(sampling, script.vocabulary.size, prompt, self._constraint)
        self._output: list[int] = []
        self._closed = False

    def propose(self) -> Proposal | None:
        if self._closed:
            return None
        wait = self._until()
        position = len(self._output)
        previous = self._output[-1] if self._output else self._previous
        token = self._sampler.pick(self._script.logits(self._key, position, previous), position)
        if not self._right(position):
            token = self._wrong(token)
        self.feed([token])
        wait()
        return Proposal(token, self._confidence(position))

    def _wrong(self, right: int) -> int:
        """Another token; under a grammar one that it allows, unless it allows one only."""
        if self._constraint is None:
            return _WRONG if right != _WRONG else ord("!")
        allowed = self._constraint.allowed()
        allowed[right] = False
        return int(allowed.argmax()) if allowed.any() else right

    def rollback(self, length: int) -> None:
        self._sampler.pop(len(self._output[length:]))
        del self._output[length:]

    def feed(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._sampler.push(token)
        self._output.extend(tokens)

    def close(self) -> None:
        self._closed = True
