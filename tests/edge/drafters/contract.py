"""What every drafter must keep, as a test that each drafter's own test file runs.

The runtime rolls back and feeds at any position, in any order. So after any history a continuation must be as good as a
fresh one behind the same tokens: that is what `check` demands, and that several continuations don't disturb each other.
`check_long` demands it of texts that fill the context and run over it, `check_cancelled` of streams that end while they
draft.
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
    assert same(output, expected, propose(continuation, 4), tie), "a history leaves its mark"
    assert same(output, expected, propose(again, 4), tie), "fed tokens and committed ones differ"
    fresh.rollback(len(output))
    assert same(output, expected, propose(fresh, 4), tie), "a rollback leaves its mark"
    for used in (continuation, neighbour, fresh, again):
        used.close()
        used.close()


def same(output: Sequence[int], expected: Sequence[int], found: Sequence[int], tie: Tie) -> bool:
    """Whether these proposals behind `output` are those, up to where a tie parted them."""
    for i, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one != other:
            return tie([*output, *expected[:i]], one, other)
    return len(found) == len(expected)


def check_long(
    drafter: Drafter,
    prompt: Sequence[int],
    text: Sequence[int],
    flood: Sequence[int],
    sampling: Sampling,
    tie: Tie = never,
) -> None:
    """`prompt` and `text` about fill the drafter's context, if it has one; `flood` is more than fits."""
    continuation = drafter.begin(prompt, sampling)
    half = len(text) // 2
    held = 0
    for kept in (len(text), half, len(text), 3, half, 0):
        continuation.feed(text[held:kept])
        continuation.rollback(kept)
        held = kept
        fresh = drafter.begin(prompt, sampling, committed=text[:kept])
        expected = propose(fresh, 4)
        fresh.close()
        assert same(text[:kept], expected, propose(continuation, 4), tie), f"{kept} tokens deep"
        continuation.rollback(kept)
    continuation.feed(flood)
    propose(continuation, 1)  # it may have nothing to say there, and mustn't break
    drowned = drafter.begin([*prompt, *flood], sampling)
    propose(drowned, 1)
    drowned.close()
    continuation.rollback(0)
    assert same((), expected, propose(continuation, 4), tie), "a rollback brings it back"
    continuation.close()


def check_cancelled(
    drafter: Drafter, prompt: Sequence[int], sampling: Sampling, drafted: int, tie: Tie = never
) -> None:
    """Streams end after `drafted` proposals, again and again: their room is free, and nobody else notices."""
    fresh = drafter.begin(prompt, sampling)
    expected = propose(fresh, 6)
    fresh.close()
    neighbour = drafter.begin(prompt, sampling)
    begun = propose(neighbour, 2)
    for _ in range(12):  # more than any drafter here has room for
        left = drafter.begin(prompt, sampling)
        assert same((), expected[:drafted], propose(left, drafted), tie)
        left.close()
        left.feed([prompt[-1]])
        left.rollback(0)
        assert left.propose() is None, "closed"
    assert same((), expected, [*begun, *propose(neighbour, 4)], tie)
    neighbour.close()


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
