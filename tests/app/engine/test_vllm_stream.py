"""What runs inside vLLM's process, without vLLM: when a stream is due, what it has checked, what it reports."""

from __future__ import annotations

from app.engine.vllm_stream import KEY, Opening, RemoteStream
from edge.protocol.frames import Policy


def stream(policy: Policy = "eager", committed: tuple[int, ...] = (), max_tokens: int = 20) -> RemoteStream:
    opening = Opening("s", policy, 1.0, 256, committed, 100)
    made = RemoteStream.of({KEY: list(opening)}, max_tokens)  # a list: what msgpack makes of it
    assert made is not None
    return made


def step(made: RemoteStream, says: tuple[int, ...], now: float = 0.0, limit: int = 8) -> tuple[int, ...]:
    """A step of a target that says `says`; gives the drafts that were checked."""
    candidates = made.candidates(limit, now)
    agreed = next((i for i, token in enumerate(candidates) if token != says[i]), len(candidates))
    made.take(says[: agreed + 1], candidates, now, 0.03)
    return tuple(candidates)


def test_an_ordinary_request_is_no_stream() -> None:
    assert RemoteStream.of(None, 5) is None
    assert RemoteStream.of({"kv_transfer_params": {}}, 5) is None


def test_positions_count_from_the_carried_output() -> None:
    made = stream(committed=(7, 8), max_tokens=4)
    assert (made.head, made.max_tokens) == (2, 6)
    assert made.offer(0, 2, (9, 10), 0.0) is None
    assert step(made, (9, 10, 11)) == (9, 10)
    assert made.verifier.ledger.tokens == [7, 8, 9, 10, 11]


def test_its_report_counts_from_the_beginning() -> None:
    made = stream()
    step(made, (1,))
    made.offer(0, 1, (2, 3, 9), 5.0)
    step(made, (2, 3, 4), now=7.0)
    report = made.report()
    assert (report.drafted, report.verified, report.accepted, report.matched, report.steps) == (3, 3, 2, 0, 2)
    assert (report.step_s, report.queue_s) == (0.03, 2.0)


def test_no_more_is_checked_than_can_be_of_use() -> None:
    made = stream(max_tokens=4)
    made.offer(0, 0, (1, 2, 3, 4, 5, 6), 0.0)
    assert len(made.candidates(8, 0.0)) == 3
    made.park_at = 2
    assert len(made.candidates(8, 0.0)) == 1


def test_it_holds_until_a_draft_comes_or_it_has_waited_long_enough() -> None:
    made = stream("hold")
    assert made.due(0.0)
    step(made, (1,), now=10.0)
    assert not made.due(10.5)
    assert made.waits_until() == 11.0
    assert made.due(11.0)
    made.offer(0, 1, (2,), 10.5)
    assert made.due(10.5)
    assert made.waits_until() is None


def test_parked_it_never_holds_and_stops_at_its_length() -> None:
    made = stream("hold")
    step(made, (1,), now=0.0)
    made.park_at = 2
    assert made.due(0.0)
    step(made, (2,), now=0.0)
    assert made.parked
    assert not made.due(1e9)
    made.park_at = None
    assert made.waits_until() == 1.0


def test_a_hole_and_an_id_that_cannot_be_are_refused_with_the_epoch_that_counts() -> None:
    made = stream()
    assert made.offer(3, 1, (5,), 0.0) == 4
    assert made.offer(4, 0, (100,), 0.0) == 5
    assert made.offer(5, 0, (99,), 0.0) is None
    assert made.candidates(8, 0.0) == [99]


def test_a_step_is_planned_behind_tokens_under_way() -> None:
    made = stream("hold", max_tokens=9)
    made.offer(0, 0, (1, 2, 3, 4, 5, 6), 0.0)
    first = made.candidates(2, 0.0)
    assert first == [1, 2]
    assert made.due(0.0, flying=3)
    second = made.candidates(2, 0.0, flying=3)  # behind 1, 2 and the step's own token, which will be 3
    assert second == [4, 5]
    made.take((1, 2, 3), first, 0.1, 0.1)
    made.take((4, 5, 6), second, 0.2, 0.1)
    report = made.report()
    assert (made.head, report.verified, report.accepted, report.matched) == (6, 4, 4, 2)


def test_what_was_planned_behind_a_rejected_draft_is_rejected_and_counted_once() -> None:
    made = stream(max_tokens=20)
    made.offer(0, 0, (1, 2, 3, 4, 5, 6), 0.0)
    first, second = made.candidates(2, 0.0), made.candidates(2, 0.0, flying=3)
    made.take((1, 9), first, 0.1, 0.1)
    assert made.candidates(8, 0.1) == []
    made.take((10,), second, 0.2, 0.1)
    stats = made.verifier.stats
    assert (stats.drafted, stats.verified, stats.accepted, stats.dropped) == (6, 4, 1, 5)


def test_behind_tokens_under_way_nothing_is_held_or_said_past_the_end() -> None:
    made = stream("hold", max_tokens=5)
    made.offer(0, 0, (1, 2, 3, 4, 5, 6), 0.0)
    assert made.draftable() == 4
    assert made.draftable(flying=3) == 1
    assert not made.due(0.0, flying=6)  # no draft is left for it: what is under way comes first
    made.park_at = 3
    assert not made.due(0.0, flying=3)
    assert made.due(0.0, flying=2)
