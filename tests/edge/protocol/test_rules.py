"""Rules 1 to 4 of docs/protocol.md with the schedules that break without them; a peer without a rule fails there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from edge.protocol.drafting import DraftingSession
from edge.protocol.errors import Contradiction, Gap
from edge.protocol.frames import Commit, Draft, Error, Opened, Window
from edge.protocol.ledger import Ledger
from edge.protocol.verifying import Offered, Verifier
from tests.edge.protocol.cloud import Cloud, Machine, reference
from tests.edge.protocol.device import Device, Job
from tests.edge.protocol.network import Clock, Network, Weather


def opened(*, epoch: int = 0, head: int = 0, window: int = 16) -> Opened:
    return Opened(1, "r", 1, 0, 0, epoch, head, window)


def drafted(session: DraftingSession, *tokens: int) -> Draft | None:
    """Draft `tokens`, then flush."""
    for token in tokens:
        session.draft(token)
    return session.next_block(flush=True)


def offer(verifier: Verifier, draft: Draft | None) -> Offered:
    assert draft is not None
    return verifier.offer(draft.epoch, draft.start, draft.tokens)


def step(verifier: Verifier, *tokens: int, limit: int = 8, now: float = 0.0) -> None:
    """A step after which `tokens` are output."""
    candidates = verifier.candidates(limit)
    verifier.ledger.append(tokens)
    verifier.stepped(tokens, len(candidates), now)


# Rule 1: commit


def test_a_commit_that_differs_rolls_back_to_the_first_difference() -> None:
    session = DraftingSession(1)
    drafted(session, 10, 11, 12, 13)
    change = session.commit(Commit(1, 0, (10, 99)))
    assert change.rolled_back == (11, 12, 13)
    assert (change.keep, change.feed) == (1, (99,))
    assert session.epoch == 1
    assert session.ledger.tokens == [10, 99]


def test_without_the_comparison_drafts_would_become_text() -> None:
    class Trusting(DraftingSession):
        __slots__ = ()

        def draft(self, token: int) -> None:
            self.ledger.append([token])

    session = Trusting(1)
    session.draft(10)
    with pytest.raises(Contradiction):
        session.commit(Commit(1, 0, (99,)))


def test_a_commit_that_overlaps_is_taken_once() -> None:
    session = DraftingSession(1)
    session.commit(Commit(1, 0, (10, 11)))
    assert session.commit(Commit(1, 1, (11, 12))).committed == (12,)
    assert session.commit(Commit(1, 0, (10, 11, 12))).committed == ()
    assert session.ledger.tokens == [10, 11, 12]


def test_a_gap_and_a_contradiction_are_errors_and_change_nothing() -> None:
    session = DraftingSession(1)
    session.commit(Commit(1, 0, (10,)))
    drafted(session, 11)
    with pytest.raises(Gap):
        session.commit(Commit(1, 2, (12,)))
    with pytest.raises(Contradiction):
        session.commit(Commit(1, 0, (99,)))
    assert (session.ledger.tokens, session.tail, session.epoch) == ([10], [11], 1)


def test_a_slow_socket_gets_one_commit_for_many_steps() -> None:
    """A queue of commits would grow without bound; the cursor sends what the ledger holds by then."""
    job = Job((1, 39), 99, lambda position, asked: None)
    commits: list[int] = []
    clock = Clock()
    cloud = Cloud(clock, Machine(flush_s=0.4))
    network = Network(clock, Weather(), cloud)
    Device(network, [job])
    clock.run(most=5000, observe=lambda: commits.append(len(job.session.ledger)))
    assert job.session.ledger.tokens == reference(job.prompt, 99)
    assert len(set(commits)) <= 5  # 40 steps


# Rule 2: epoch


class NoEpochOnResume(DraftingSession):
    __slots__ = ()

    def opened(self, frame: Opened, *, resumed: bool = False) -> None:
        self.stream, self.window = frame.stream, frame.window


@pytest.mark.parametrize(("kind", "hole"), [(DraftingSession, False), (NoEpochOnResume, True)])
def test_a_draft_lost_with_the_socket_leaves_no_hole(kind: type[DraftingSession], *, hole: bool) -> None:
    session, verifier = kind(1), Verifier(Ledger(), "hold")
    offer(verifier, drafted(session, 10, 11))
    drafted(session, 12)  # lost
    session.opened(opened(epoch=verifier.lowest_epoch), resumed=True)
    result = offer(verifier, drafted(session, 13))
    assert (result is Offered.REFUSED) == hole
    assert verifier.pending == ([10, 11] if hole else [10, 11, 12, 13])


def test_resume_begins_an_epoch_even_if_the_cloud_has_seen_none_of_the_last() -> None:
    """All of epoch 1 was lost: the cloud would take it, so `opened` names it, but a part of it would leave a hole."""
    session, verifier = DraftingSession(1), Verifier(Ledger())
    offer(verifier, drafted(session, 10))
    step(verifier, 99)
    session.commit(Commit(1, 0, (99,)))
    drafted(session, 11)  # lost
    session.opened(opened(epoch=verifier.lowest_epoch, head=1), resumed=True)
    assert offer(verifier, drafted(session, 12)) is Offered.TAKEN
    assert verifier.pending == [11, 12]


@pytest.mark.parametrize("told", [True, False])
def test_an_edge_that_starts_again_at_epoch_0_is_not_ignored(*, told: bool) -> None:
    """A device that lost its memory resumes: without the epoch in `opened` its drafts would be stale for good."""
    verifier = Verifier(Ledger())
    verifier.offer(5, 0, [10])
    session = DraftingSession(1)
    session.opened(opened(epoch=verifier.lowest_epoch if told else 0))
    result = offer(verifier, drafted(session, 10, 11))
    assert (result is Offered.TAKEN) == told
    assert told or result is Offered.STALE


def test_a_fresh_stream_takes_drafts_sent_before_opened() -> None:
    """`opened` of a fresh stream names epoch 0: what was sent meanwhile counts and isn't sent twice."""
    session, verifier = DraftingSession(1), Verifier(Ledger())
    lowest = verifier.lowest_epoch
    assert offer(verifier, drafted(session, 10)) is Offered.TAKEN
    session.opened(opened(epoch=lowest))
    assert session.next_block(flush=True) is None
    assert verifier.lowest_epoch == 1


class NoEpochOnRollback(DraftingSession):
    __slots__ = ()

    def _begin_epoch(self, lowest: int = 0) -> None:
        self._sent = self.head


@pytest.mark.parametrize(("kind", "taken"), [(DraftingSession, True), (NoEpochOnRollback, False)])
def test_drafts_after_a_rollback_are_not_taken_for_those_before(kind: type[DraftingSession], *, taken: bool) -> None:
    session, verifier = kind(1), Verifier(Ledger())
    offer(verifier, drafted(session, 10, 11))
    step(verifier, 99)
    session.commit(Commit(1, 0, (99,)))
    assert (offer(verifier, drafted(session, 12)) is Offered.TAKEN) == taken


def test_an_epoch_is_one_contiguous_path() -> None:
    """Overtaken, the edge goes on from the commit's end: under the old epoch that would look like a lost draft."""
    session = DraftingSession(1)
    first = drafted(session, 10)
    session.commit(Commit(1, 0, (10, 11, 12)))
    second = drafted(session, 13)
    assert first is not None
    assert second is not None
    assert second.epoch > first.epoch
    assert second.start == 3


class NoEpochOnRefusal(DraftingSession):
    __slots__ = ()

    def refused(self, frame: Error) -> None:
        pass


@pytest.mark.parametrize(("kind", "recovers"), [(DraftingSession, True), (NoEpochOnRefusal, False)])
def test_a_refused_draft_is_followed_by_the_whole_tail(kind: type[DraftingSession], *, recovers: bool) -> None:
    session, verifier = kind(1), Verifier(Ledger(), held_tokens=2)
    offer(verifier, drafted(session, 10, 11, 12))  # the third does not fit, so the fourth leaves a hole
    assert offer(verifier, drafted(session, 13)) is Offered.REFUSED
    assert verifier.pending == [10, 11]  # what lies before the hole stays good
    verifier.held_tokens = 8
    session.refused(Error(1, "draft_refused", epoch=verifier.lowest_epoch))
    assert (offer(verifier, drafted(session, 14)) is Offered.TAKEN) == recovers
    assert (verifier.pending == [10, 11, 12, 13, 14]) == recovers


def test_a_long_tail_is_sent_again_in_frames_that_the_cloud_takes() -> None:
    """In one frame it would be dropped as too long, the next would leave a hole, and all be sent again, for ever."""
    session = DraftingSession(1, window=100, draft_tokens=40)
    for token in range(100):
        session.draft(token)
    session.refused(Error(1, "draft_refused", epoch=1))
    sizes = []
    while (draft := session.next_block()) is not None:
        sizes.append((draft.start, len(draft.tokens)))
    assert sizes == [(0, 40), (40, 40), (80, 20)]


def test_an_old_refusal_changes_nothing() -> None:
    session = DraftingSession(1)
    drafted(session, 10, 11)
    session.commit(Commit(1, 0, (99,)))
    session.refused(Error(1, "draft_refused", epoch=1))
    assert session.epoch == 1


# Rule 3: path check


def test_a_draft_behind_the_head_continues_the_path_only_if_it_matches() -> None:
    verifier = Verifier(Ledger([10, 11]))
    assert verifier.offer(0, 0, [10, 11, 12]) is Offered.TAKEN
    assert verifier.pending == [12]
    verifier = Verifier(Ledger([10, 11]))
    assert verifier.offer(0, 0, [10, 99, 12]) is Offered.DROPPED
    assert verifier.offer(0, 3, [13]) is Offered.DROPPED
    assert not verifier.pending
    assert (verifier.stats.matched, verifier.stats.compared, verifier.stats.dropped) == (1, 2, 3)


class NoPathCheck(Verifier):
    __slots__ = ()

    def _check_path(self, start: int, tokens: Sequence[int], fresh: int, new: int) -> Offered:
        self.pending.extend(tokens[max(0, self.head - start) :])
        return Offered.TAKEN


@pytest.mark.parametrize(("kind", "wasted"), [(Verifier, 0), (NoPathCheck, 1)])
def test_a_path_that_left_the_output_costs_no_step(kind: type[Verifier], wasted: int) -> None:
    """A token drafted behind one that was never output was drafted from another text: checking it wastes a row."""
    verifier = kind(Ledger([10]))
    verifier.offer(0, 0, [99, 12])
    step(verifier, 11)
    assert verifier.stats.verified == wasted


def test_a_hole_is_refused_once_per_epoch() -> None:
    verifier = Verifier(Ledger())
    results = [verifier.offer(0, 3, [10]), verifier.offer(0, 4, [11]), verifier.offer(1, 0, [10])]
    assert results == [Offered.REFUSED, Offered.DROPPED, Offered.TAKEN]


# Rule 4: hold


def held(policy: str, *, vain: int, hold_s: float = 1.0) -> Verifier:
    verifier = Verifier(Ledger(), policy, hold_s)  # type: ignore[arg-type]
    for i in range(vain + 1):  # before the first step there is nothing to wait for
        assert verifier.ready(now=10.0 * i)
        step(verifier, 10, now=10.0 * i)
    return verifier


def test_hold_waits_for_a_candidate_but_not_longer_than_hold_s() -> None:
    verifier = held("hold", vain=0)
    assert not verifier.ready(now=0.9)
    assert verifier.waits_until() == 1.0
    assert verifier.ready(now=1.0)


def test_hold_ends_with_a_usable_candidate_only() -> None:
    verifier = held("hold", vain=0)
    verifier.offer(0, 0, [99])  # late and wrong
    assert not verifier.ready(now=0.5)
    verifier.offer(1, 1, [11])
    assert verifier.ready(now=0.5)


def test_two_waits_in_vain_make_the_stream_eager_until_a_draft_matches() -> None:
    verifier = held("hold", vain=2)
    assert verifier.ready(now=20.0), "a device that is gone would cost hold_s a token"
    assert verifier.offer(0, 3, [11]) is Offered.TAKEN
    step(verifier, 11, 12, now=21.0)
    assert not verifier.ready(now=21.5)


def test_a_wait_that_a_wrong_draft_ended_was_not_in_vain() -> None:
    verifier = held("hold", vain=1)
    verifier.offer(0, 2, [99])
    step(verifier, 10, now=10.5)
    assert not verifier.ready(now=11.0)


def test_a_wrong_draft_that_comes_during_the_step_does_not_make_up_for_the_wait() -> None:
    verifier = held("hold", vain=1)
    candidates = verifier.candidates(8)
    verifier.offer(0, 2, [99])
    verifier.ledger.append([10])
    verifier.stepped([10], len(candidates), 20.0)
    assert verifier.ready(now=20.5)


def test_one_wait_in_vain_does_not() -> None:
    assert not held("hold", vain=1).ready(now=10.5)


def test_eager_never_waits() -> None:
    verifier = held("eager", vain=0)
    assert verifier.ready(now=0.0)
    assert verifier.waits_until() is None


def test_the_window_is_at_least_one() -> None:
    """With a window of 0 the edge would never draft again, and hold would always wait in vain."""
    session = DraftingSession(1)
    session.opened(opened(window=0))
    assert session.wants_draft


@dataclass(slots=True)
class NoFlush(DraftingSession):
    def next_block(self, *, flush: bool = False) -> Draft | None:
        if (self.end - self._sent) % self.block:
            return None
        return DraftingSession.next_block(self)


@pytest.mark.parametrize(("kind", "holds"), [(DraftingSession, False), (NoFlush, True)])
def test_a_partial_block_is_sent_when_drafting_stops(kind: type[DraftingSession], *, holds: bool) -> None:
    """Otherwise hold waits for tokens that sit on the edge, and the edge, with a full window, for the commit."""
    session, verifier = kind(1, block=4), held("hold", vain=0)
    session.opened(opened(window=3))
    session.commit(Commit(1, 0, (10,)))
    for token in (11, 12, 13):
        session.draft(token)
    draft = session.next_block()
    if draft is not None:
        offer(verifier, draft)
    assert verifier.ready(now=0.1) != holds


def test_sync_stops_after_its_block_whatever_the_window() -> None:
    session = DraftingSession(1, block=2, limit=2)
    session.widen(Window(1, 64))
    session.opened(opened(window=64))
    drafted(session, 10, 11)
    assert not session.wants_draft
    session.commit(Commit(1, 0, (10, 11, 12)))
    assert session.wants_draft
