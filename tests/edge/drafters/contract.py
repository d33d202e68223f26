"""What every drafter must keep, as a test that each drafter's own test file runs.

The runtime rolls back and feeds at any position, in any order. So after any history a continuation must be as good as a
fresh one behind the same tokens: that is what `check` demands, and that several continuations don't disturb each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from edge.drafters.base import Continuation, Drafter
from edge.protocol.frames import Sampling


@dataclass(frozen=True)
class Propose:
    count: int


@dataclass(frozen=True)
class Rollback:
    share: float
    """Of the output so far, how much is kept: 0 to 1."""


@dataclass(frozen=True)
class Feed:
    tokens: tuple[int, ...]


Operation = Propose | Rollback | Feed
Tie = Callable[[Sequence[int], int, int], bool]
"""Whether floating-point noise decides, behind an output, which of two tokens is proposed."""


def operations(tokens: st.SearchStrategy[int], *, most: int = 12) -> st.SearchStrategy[list[Operation]]:
    return st.lists(
        st.one_of(
            st.builds(Propose, st.integers(1, 5)),
            st.builds(Rollback, st.floats(0, 1)),
            st.builds(Feed, st.lists(tokens, max_size=4).map(tuple)),
        ),
        max_size=most,
    )


def samplings() -> st.SearchStrategy[Sampling]:
    return st.one_of(
        st.just(Sampling(temperature=0, seed=1)),
        st.builds(lambda seed: Sampling(temperature=0.8, top_p=0.95, seed=seed), st.integers(0, 2**53)),
    )


def never(output: Sequence[int], one: int, other: int) -> bool:
    return False


def check(
    drafter: Drafter,
    prompt: Sequence[int],
    sampling: Sampling,
    history: Sequence[Operation],
    tie: Tie = never,
) -> None:
    """Run `history` on one continuation, beside another one, and compare it with fresh ones."""
    continuation = drafter.begin(prompt, sampling)
    neighbour = drafter.begin(prompt, sampling)
    output: list[int] = []
    for operation in history:
        _apply(continuation, output, operation)
        neighbour.propose()
    fresh = drafter.begin(prompt, sampling, committed=output)
    again = drafter.begin(prompt, sampling)
    again.feed(output)
    expected = propose(fresh, 4)

    def same(found: list[int]) -> bool:
        for i, (one, other) in enumerate(zip(expected, found, strict=False)):
            if one != other:
                return tie([*output, *expected[:i]], one, other)
        return len(found) == len(expected)

    assert same(propose(continuation, 4)), "a history leaves its mark"
    assert same(propose(again, 4)), "fed tokens and committed ones differ"
    fresh.rollback(len(output))
    assert same(propose(fresh, 4)), "a rollback leaves its mark"
    for used in (continuation, neighbour, fresh, again):
        used.close()
        used.close()


def propose(continuation: Continuation, count: int) -> list[int]:
    """Up to `count` proposals; fewer once there is nothing to propose, and then it stays so."""
    tokens: list[int] = []
    for _ in range(count):
        proposal = continuation.propose()
        if proposal is None:
            assert continuation.propose() is None, "nothing to propose, until feed brings more"
            break
        assert 0 <= proposal.confidence <= 1
        tokens.append(proposal.token)
    return tokens


def _apply(continuation: Continuation, output: list[int], operation: Operation) -> None:
    match operation:
        case Propose(count):
            output += propose(continuation, count)
        case Rollback(share):
            del output[round(share * len(output)) :]
            continuation.rollback(len(output))
        case Feed(tokens):
            output += tokens
            continuation.feed(tokens)
