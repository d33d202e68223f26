"""The edge's state machine, call by call. Its rules, and what breaks without them: test_rules.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.drafting import DraftingSession
from edge.protocol.errors import Contradiction
from edge.protocol.frames import Commit, Draft, Error, Finish, Opened, Usage, Window
from edge.protocol.ledger import Ledger


def session_with(*tail: int, block: int = 1, window: int = 16) -> DraftingSession:
    session = DraftingSession(1, window, block)
    for token in tail:
        session.draft(token)
    return session


def test_whole_blocks_travel_and_the_rest_waits() -> None:
    session = session_with(10, 11, 12, 13, 14, block=2)
    assert session.next_block() == Draft(1, 0, 0, (10, 11, 12, 13))
    assert session.next_block() is None
    assert session.next_block(flush=True) == Draft(1, 0, 4, (14,))
    assert session.next_block(flush=True) is None


def test_a_full_window_flushes_by_itself() -> None:
    session = session_with(10, 11, 12, block=2, window=3)
    assert not session.wants_draft
    assert session.next_block() == Draft(1, 0, 0, (10, 11, 12))


def test_a_commit_that_agrees_leaves_the_tail_alone() -> None:
    session = session_with(10, 11, 12)
    session.next_block()
    change = session.commit(Commit(1, 0, (10, 11), 2))
    assert (change.committed, change.agreed, change.rolled_back) == ((10, 11), 2, ())
    assert (change.keep, change.feed) == (3, ())  # the drafter's cache holds three, and all are still good
    assert (session.head, session.tail, session.epoch) == (2, [12], 0)
    assert session.next_block(flush=True) is None  # 12 is on its way


def test_a_commit_that_outruns_the_tail_is_fed() -> None:
    session = session_with(10)
    change = session.commit(Commit(1, 0, (10, 11, 12)))
    assert (change.agreed, change.rolled_back, change.keep, change.feed) == (1, (), 1, (11, 12))
    assert (session.end, session.epoch, session.stats.rollbacks) == (3, 1, 0)


def test_a_commit_of_what_was_not_sent_yet_moves_the_sending_on() -> None:
    session = session_with(10, 11, block=4)
    session.commit(Commit(1, 0, (10,)))
    assert session.next_block(flush=True) == Draft(1, 0, 1, (11,))


def test_resume_sends_the_tail_again_under_the_lowest_epoch_that_counts() -> None:
    session = session_with(10, 11, 12)
    session.next_block()
    session.commit(Commit(1, 0, (10,)))
    session.opened(Opened(7, "r", 3, 0, 0, 6, 2, 4), resumed=True)
    assert session.next_block(flush=True) == Draft(7, 6, 1, (11, 12))
    assert session.ahead == 4


def test_a_cloud_that_knows_less_than_the_edge_is_an_error() -> None:
    session = session_with()
    session.commit(Commit(1, 0, (10, 11)))
    with pytest.raises(Contradiction):
        session.opened(Opened(1, "r", 3, 0, 0, 0, 1, 16), resumed=True)


def test_a_smaller_window_pauses_and_takes_nothing_back() -> None:
    session = session_with(10, 11, 12, 13)
    session.widen(Window(1, 2))
    assert session.tail == [10, 11, 12, 13]
    assert not session.wants_draft
    session.commit(Commit(1, 0, (10, 11, 12)))
    assert session.wants_draft


def test_the_edges_own_limit_holds_whatever_the_cloud_says() -> None:
    session = DraftingSession(1, limit=3)
    session.widen(Window(1, 100))
    assert session.ahead == 3
    session.widen(Window(1, 2))
    assert session.ahead == 2


def test_it_goes_on_from_tokens_that_it_carries() -> None:
    session = DraftingSession(1, ledger=Ledger([10, 11]))
    session.draft(12)
    assert session.next_block() == Draft(1, 0, 2, (12,))


def test_a_commit_that_comes_twice_counts_its_drafts_once() -> None:
    session = session_with(10, 11)
    for _ in range(2):
        session.commit(Commit(1, 0, (10, 11), 2))
    assert (session.stats.accepted, session.stats.agreed) == (2, 2)


def test_the_counts_tell_the_story() -> None:
    session = session_with(10, 11, 12)
    session.next_block()
    session.commit(Commit(1, 0, (10,), 1))
    session.commit(Commit(1, 1, (99,)))
    session.draft(13)
    session.finished(Finish(1, 2, "stop", None, Usage()))
    stats = session.stats
    assert (stats.drafted, stats.sent, stats.agreed, stats.accepted) == (4, 3, 1, 1)
    assert (stats.rolled_back, stats.rollbacks) == (3, 1)


calls = st.one_of(
    st.tuples(st.just("draft"), st.integers(0, 2)),
    st.tuples(st.just("send"), st.booleans()),
    st.tuples(st.just("commit"), st.lists(st.integers(0, 2), max_size=4)),
    st.tuples(st.just("resume"), st.integers(0, 5)),
    st.tuples(st.just("refuse"), st.integers(0, 5)),
)


@given(st.lists(calls, max_size=40), st.integers(1, 4))
def test_whatever_happens_an_epochs_drafts_are_one_path_from_the_head(
    schedule: list[tuple[str, object]], block: int
) -> None:
    session = DraftingSession(1, block=block)
    paths: dict[int, tuple[int, list[int]]] = {}
    for call, argument in schedule:
        if call == "draft" and session.wants_draft:
            session.draft(int(str(argument)))
        elif call == "commit":
            assert isinstance(argument, list)
            session.commit(Commit(1, session.head, tuple(argument)))
        elif call == "resume":
            session.opened(Opened(1, "r", 0, 0, 0, int(str(argument)), session.head, 16), resumed=True)
        elif call == "refuse":
            session.refused(Error(1, "draft_refused", epoch=int(str(argument))))
        draft = session.next_block(flush=bool(argument)) if call == "send" else None
        if draft is not None:
            if draft.epoch not in paths:
                assert draft.epoch > max(paths, default=-1)
                assert draft.start == session.head
                paths[draft.epoch] = (draft.start, [])
            start, path = paths[draft.epoch]
            assert draft.start == start + len(path) or (draft.start == session.head > start + len(path))
            path += draft.tokens
            assert draft.start + len(draft.tokens) <= session.end
        assert session.head <= session._sent <= session.end
