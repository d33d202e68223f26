"""The cloud's state machine, call by call. Its rules, and what breaks without them: test_rules.py."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.ledger import Ledger
from edge.protocol.verifying import Offered, Verifier, VerifyingStats, accept


def step(verifier: Verifier, tokens: Sequence[int], *, limit: int = 8, now: float = 0.0) -> tuple[int, ...]:
    candidates = verifier.candidates(limit)
    verifier.ledger.append(tokens)
    verifier.stepped(tokens, len(candidates), now)
    return candidates


def counts(stats: VerifyingStats) -> dict[str, int]:
    names = ("drafted", "verified", "accepted", "matched", "compared", "dropped")
    return {name: value for name in names if (value := getattr(stats, name))}


def test_a_step_that_accepts_all_gives_one_more() -> None:
    verifier = Verifier(Ledger())
    verifier.offer(0, 0, [10, 11])
    assert step(verifier, [10, 11, 12]) == (10, 11)
    assert counts(verifier.stats) == {"drafted": 2, "verified": 2, "accepted": 2, "compared": 2}
    assert verifier.stats.acceptance_rate == 1.0
    assert verifier.offer(0, 2, [12, 13]) is Offered.TAKEN  # 12 came late and matched: the epoch lives on
    assert verifier.pending == [13]
    assert verifier.stats.matched == 1


def test_a_step_that_rejects_ends_the_epoch() -> None:
    verifier = Verifier(Ledger())
    verifier.offer(0, 0, [10, 11, 12])
    step(verifier, [10, 99])
    assert not verifier.pending
    assert verifier.offer(0, 3, [13]) is Offered.DROPPED
    assert counts(verifier.stats) == {"drafted": 4, "verified": 3, "accepted": 1, "compared": 2, "dropped": 3}
    assert verifier.stats.acceptance_rate == 0.5
    assert verifier.offer(1, 2, [12]) is Offered.TAKEN


def test_candidates_past_the_limit_wait_for_the_next_step() -> None:
    verifier = Verifier(Ledger())
    verifier.offer(0, 0, [10, 11, 12, 13])
    assert step(verifier, [10, 11], limit=1) == (10,)
    assert verifier.candidates(8) == (12, 13)
    assert counts(verifier.stats) == {"drafted": 4, "verified": 1, "accepted": 1, "matched": 1, "compared": 2}


def test_a_draft_that_arrives_during_the_step_is_compared_with_what_it_gave() -> None:
    verifier = Verifier(Ledger())
    verifier.offer(0, 0, [10])
    candidates = verifier.candidates(8)
    verifier.offer(0, 1, [11, 12])
    verifier.ledger.append([10, 11])
    verifier.stepped([10, 11], len(candidates), 0.0)
    assert verifier.pending == [12]
    assert counts(verifier.stats) == {"drafted": 3, "verified": 1, "accepted": 1, "matched": 1, "compared": 2}


@pytest.mark.parametrize(
    ("sent_again", "pending", "dropped"),
    [([10, 11, 12], [12], 1), ([99], [], 1), ([10, 98], [], 2)],
)
def test_an_epoch_that_begins_during_the_step_does_not_take_its_acceptances(
    sent_again: list[int], pending: list[int], dropped: int
) -> None:
    verifier = Verifier(Ledger())
    verifier.offer(0, 0, [10])
    candidates = verifier.candidates(8)
    verifier.offer(1, 0, sent_again)
    verifier.ledger.append([10, 11])
    verifier.stepped([10, 11], len(candidates), 0.0)
    stats = verifier.stats
    assert verifier.pending == pending
    assert stats.accepted == 1
    assert stats.drafted == stats.accepted + stats.matched + stats.dropped + len(pending)
    assert stats.dropped == dropped


def test_a_draft_sent_twice_counts_once() -> None:
    verifier = Verifier(Ledger([10]))
    for _ in range(3):
        assert verifier.offer(0, 0, [10, 11]) is Offered.TAKEN
    assert verifier.pending == [11]
    assert counts(verifier.stats) == {"drafted": 2, "matched": 1, "compared": 1}


def test_what_is_sent_again_under_a_new_epoch_does_not_sway_the_acceptance_rate() -> None:
    verifier = Verifier(Ledger([10, 11]))
    for epoch in range(3):
        verifier.offer(epoch, 0, [10, 11])
    assert counts(verifier.stats) == {"drafted": 6, "matched": 2, "compared": 2, "dropped": 4}


def test_a_higher_epoch_replaces_and_a_lower_one_is_ignored() -> None:
    verifier = Verifier(Ledger())
    verifier.offer(3, 0, [10, 11])
    assert verifier.offer(4, 0, [12]) is Offered.TAKEN
    assert verifier.offer(3, 2, [13]) is Offered.STALE
    assert verifier.pending == [12]
    assert verifier.lowest_epoch == 5
    assert counts(verifier.stats) == {"drafted": 3, "dropped": 2}


def test_no_more_than_held_tokens_are_kept() -> None:
    verifier = Verifier(Ledger(), held_tokens=3)
    assert verifier.offer(0, 0, list(range(10))) is Offered.TAKEN
    assert verifier.pending == [0, 1, 2]
    assert verifier.offer(0, 10, [10]) is Offered.REFUSED
    assert verifier.pending == [0, 1, 2]
    assert counts(verifier.stats) == {"drafted": 11, "dropped": 8}


def test_what_was_past_held_tokens_is_taken_when_it_comes_again() -> None:
    verifier = Verifier(Ledger(), held_tokens=2)
    verifier.offer(0, 0, [10, 11, 12])
    step(verifier, [10, 11])
    assert verifier.offer(0, 2, [12]) is Offered.TAKEN
    assert verifier.pending == [12]


@pytest.mark.parametrize("token", [-1, 50, 2**31])
def test_an_id_outside_the_vocabulary_never_reaches_the_engine(token: int) -> None:
    verifier = Verifier(Ledger(), vocabulary=50)
    verifier.offer(0, 0, [10])
    assert verifier.offer(0, 1, [11, token]) is Offered.REFUSED
    assert verifier.pending == [10]


def test_a_draft_that_contradicts_its_own_epoch_is_refused() -> None:
    verifier = Verifier(Ledger())
    verifier.offer(0, 0, [10, 11])
    assert verifier.offer(0, 1, [99]) is Offered.REFUSED
    assert verifier.pending == [10, 11]


def test_a_late_match_ends_the_run_of_vain_waits() -> None:
    verifier = Verifier(Ledger(), "hold", 1.0)
    for now in (0.0, 2.0, 4.0):
        step(verifier, [10], now=now)
    assert verifier.waits_until() is None
    verifier.offer(0, 2, [10])
    assert verifier.waits_until() == 5.0


@pytest.mark.parametrize(
    ("candidates", "text", "output"),
    [([], [7], [7]), ([7, 8], [7, 8, 9], [7, 8, 9]), ([7, 8], [7, 9, 9], [7, 9]), ([1], [7, 8], [7])],
)
def test_accept_stops_at_the_first_difference(candidates: list[int], text: list[int], output: list[int]) -> None:
    asked: list[int] = []

    def pick(i: int) -> int:
        asked.append(i)
        return text[i]

    assert accept(candidates, pick) == output
    assert asked == list(range(len(output)))  # no row is sampled that says nothing


offers = st.tuples(st.just("offer"), st.integers(0, 4), st.integers(0, 12), st.lists(st.integers(-1, 3), max_size=5))
nothing: st.SearchStrategy[list[int]] = st.just([])
begins = st.tuples(st.just("begin"), st.integers(0, 5), st.just(0), nothing)
ends = st.tuples(st.just("end"), st.just(0), st.just(0), nothing)


@given(st.lists(st.one_of(offers, offers, begins, ends), max_size=50), st.integers(0, 6))
def test_whatever_a_device_sends_the_accounts_balance(
    schedule: list[tuple[str, int, int, list[int]]], held_tokens: int
) -> None:
    """Any positions, epochs and ids, at any time, also during a step."""
    verifier = Verifier(Ledger(), held_tokens=held_tokens, vocabulary=3)
    text = [0, 1, 2, 0, 1, 0, 0, 2, 1, 1] * 30
    candidates: tuple[int, ...] | None = None
    for call, a, b, tokens in schedule:
        if call == "offer":
            verifier.offer(a, b, tokens)
        elif call == "begin":
            candidates = verifier.candidates(a)
        elif candidates is not None:
            head = verifier.head
            output = accept(candidates, lambda i, head=head: text[head + i])  # type: ignore[misc]
            verifier.ledger.append(output)
            verifier.stepped(output, len(candidates), 0.0)
            candidates = None
        stats, pending = verifier.stats, verifier.pending
        assert stats.drafted == stats.accepted + stats.matched + stats.dropped + len(pending)
        assert stats.agreed <= stats.compared <= verifier.head
        assert min(counts(stats).values(), default=0) >= 0
        assert len(pending) <= held_tokens
        assert all(0 <= token < 3 for token in pending)
