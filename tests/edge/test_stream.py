"""The life of a stream across sockets, without any."""

from __future__ import annotations

import pytest

from edge.protocol import errors
from edge.protocol.frames import Cancel, Commit, Draft, EdgeFrame, Error, Open, Resume, Window
from edge.stream import Phase, Stream
from tests.edge.peer import Told, finish, opened, stream


def sent(own: Stream) -> list[EdgeFrame]:
    frames = []
    while (frame := own.outgoing()) is not None:
        frames.append(frame)
    return frames


def live(told: Told) -> Stream:
    own = stream(told)
    own.attach(0)
    sent(own)
    own.receive(opened(0), 10)
    return own


@pytest.fixture
async def told() -> Told:
    return Told()


async def test_drafts_may_follow_open_at_once(told: Told) -> None:
    own = stream(told)
    own.attach(3)
    own.session.draft(9)
    first, second = sent(own)
    assert isinstance(first, Open)
    assert second == Draft(3, 1, 0, (9,))
    own.receive(opened(3), 10)
    assert sent(own) == [], "opened names the epoch that they had: they count"


async def test_drafts_wait_for_opened_after_a_resume_and_then_go_again(told: Told) -> None:
    own = live(told)
    own.session.draft(9)
    assert sent(own) == [Draft(0, 1, 0, (9,))]
    own.detach()
    assert sent(own) == []
    own.attach(1)
    own.session.draft(8)
    assert sent(own) == [Resume(1, "token", 0)]
    own.receive(opened(1), 10)
    assert sent(own) == [Draft(1, 2, 0, (9, 8))]


async def test_a_stream_whose_opened_was_lost_is_opened_again(told: Told) -> None:
    own = stream(told)
    own.attach(0)
    sent(own)
    own.detach()
    own.attach(1)
    (again,) = sent(own)
    assert isinstance(again, Open)
    assert again.stream == 1


async def test_a_refused_draft_is_sent_again_under_a_higher_epoch(told: Told) -> None:
    own = live(told)
    own.session.draft(9)
    sent(own)
    own.receive(Error(0, "draft_refused", epoch=5), 10)
    assert sent(own) == [Draft(0, 5, 0, (9,))]
    assert own.phase is Phase.LIVE


async def test_a_draft_that_found_no_stream_is_no_answer_to_open(told: Told) -> None:
    own = stream(told)
    own.attach(0)
    own.receive(Error(0, "unknown_stream", final=False), 10)
    assert own.phase is Phase.OPENING
    own.receive(opened(0), 10)
    assert told.opened_ == [opened(0)]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("unknown_model", errors.UnknownModel),
        ("invalid_request", errors.InvalidRequest),
        ("vocabulary_mismatch", errors.VocabularyMismatch),
        ("too_many_streams", errors.TooManyStreams),
    ],
)
async def test_a_refused_open_is_the_streams_end(told: Told, code: str, kind: type[Exception]) -> None:
    own = stream(told)
    own.attach(0)
    own.receive(Error(0, code, "why", final=True), 10)
    assert own.phase is Phase.ENDED
    assert isinstance(told.error, kind)
    assert str(told.error) == "why"


async def test_an_error_that_we_do_not_know_keeps_its_code(told: Told) -> None:
    own = live(told)
    own.receive(Error(0, "something_new", "why", final=True), 10)
    assert isinstance(told.error, errors.ProtocolError)
    assert told.error.code == "something_new"


async def test_an_engine_that_failed_ends_the_stream(told: Told) -> None:
    own = live(told)
    own.receive(Error(0, "engine_failed", final=True), 10)
    assert isinstance(told.error, errors.EngineFailed)


async def test_cancel_is_sent_only_where_the_cloud_knows_the_stream(told: Told) -> None:
    own = live(told)
    own.session.draft(9)
    own.cancel()
    assert sent(own) == [Cancel(0)]
    own.cancel()
    assert sent(own) == []
    own.receive(Commit(0, 0, (1,)), 10)
    assert told.commits == []

    unsent = stream(told)
    unsent.attach(1)
    unsent.cancel()
    assert sent(unsent) == []

    waiting = stream(told)
    waiting.cancel()
    assert sent(waiting) == []


async def test_a_finished_stream_sends_nothing(told: Told) -> None:
    own = live(told)
    own.session.draft(9)
    own.receive(finish(0, 0), 10)
    assert sent(own) == []
    own.cancel()
    assert sent(own) == []


async def test_a_partial_block_goes_when_drafting_has_stopped(told: Told) -> None:
    own = live(told)
    own.session.block = 4
    own.session.draft(9)
    assert sent(own) == []
    own.flush = True
    assert sent(own) == [Draft(0, 1, 0, (9,))]


async def test_the_clouds_window_is_kept(told: Told) -> None:
    own = live(told)
    assert own.session.ahead == 8
    own.receive(Window(0, 3), 10)
    assert own.session.ahead == 3


async def test_bytes_are_counted_and_the_prompts_apart(told: Told) -> None:
    own = live(told)
    own.sent(Open(0, "m"), 100)
    own.sent(Draft(0, 1, 0, (1,)), 9)
    own.receive(Commit(0, 0, (1,)), 20)
    assert (own.traffic.up, own.traffic.openings, own.traffic.down) == (109, 100, 30)
