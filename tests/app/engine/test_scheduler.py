from __future__ import annotations

from dataclasses import replace

import pytest

from app.engine.base import Request
from app.engine.scheduler import Batch, Capacity, Chunk, Scheduler, share_drafts
from app.engine.slots import Remove
from app.engine.stream import Stream
from edge.protocol.verifying import Offered, accept
from tests.app.engine.requests import request

CAPACITY = Capacity(sequences=3, context=100, kv_tokens=300, step_tokens=16, prefill_tokens=4, draft_tokens=3)


def stream_of(made: Request | None = None) -> Stream:
    return Stream.of(made or request(), context=CAPACITY.context)


def scheduler_of(*streams: Stream, capacity: Capacity = CAPACITY) -> Scheduler:
    scheduler = Scheduler(capacity)
    for stream in streams:
        scheduler.add(stream)
    return scheduler


def truth(position: int) -> int:
    """What the target says at an output position, whatever the stream."""
    return 1000 + position


def outputs(batch: Batch) -> list[list[int]]:
    return [answer(chunk) for chunk in batch.chunks]


def answer(chunk: Chunk) -> list[int]:
    if not chunk.run.rows:
        return []
    head = chunk.stream.head
    return accept(chunk.candidates, lambda i: truth(head + i))


def step(scheduler: Scheduler, now: float = 0.0) -> Batch:
    batch = scheduler.schedule(now)
    scheduler.update(batch, outputs(batch), now)
    return batch


def shape(batch: Batch) -> list[tuple[int, int, int, int]]:
    return [(chunk.run.sequence, chunk.run.start, len(chunk.run.tokens), chunk.run.rows) for chunk in batch.chunks]


def test_nothing_to_do_is_an_empty_batch() -> None:
    assert step(Scheduler(CAPACITY)).chunks == []


def test_a_prompt_is_computed_and_gives_the_first_token_in_the_same_step() -> None:
    stream = stream_of()
    scheduler = scheduler_of(stream)
    assert shape(step(scheduler)) == [(0, 0, 5, 1)]
    assert stream.ledger.tokens == [truth(0)]
    assert shape(step(scheduler)) == [(0, 5, 1, 1)]
    assert stream.ledger.tokens == [truth(0), truth(1)]


def test_all_streams_share_a_step() -> None:
    scheduler = scheduler_of(stream_of(), stream_of(), stream_of())
    step(scheduler)
    assert [run.sequence for run in step(scheduler).runs] == [0, 1, 2]


def test_a_long_prompt_goes_in_pieces_of_the_budget() -> None:
    scheduler = scheduler_of(stream_of(request(range(40))))
    assert shape(step(scheduler)) == [(0, 0, 16, 0)]
    assert shape(step(scheduler)) == [(0, 16, 16, 0)]
    assert shape(step(scheduler)) == [(0, 32, 8, 1)]


def test_a_long_prompt_takes_smaller_pieces_while_others_decode_and_does_not_stop_them() -> None:
    decoding = stream_of()
    scheduler = scheduler_of(decoding)
    step(scheduler)
    scheduler.add(stream_of(request(range(100, 140))))
    for start in range(0, 40, 4):
        assert shape(step(scheduler)) == [(0, decoding.cached - 1, 1, 1), (1, start, 4, int(start == 36))]


def test_drafts_leave_room_for_prompts() -> None:
    streams = [stream_of(), stream_of()]
    scheduler = scheduler_of(*streams, capacity=replace(CAPACITY, step_tokens=8, draft_tokens=10))
    step(scheduler)
    step(scheduler)
    for stream in streams:
        stream.offer(1, stream.head, range(10), 0.0)
    scheduler.add(stream_of(request(range(20))))
    assert [len(run.tokens) for run in step(scheduler).runs] == [2, 2, 4]


def test_right_drafts_are_all_accepted_and_one_more_token_is_won() -> None:
    stream = stream_of()
    scheduler = scheduler_of(stream)
    step(scheduler)
    assert stream.offer(1, 1, [truth(1), truth(2), truth(3)], 0.0) is Offered.TAKEN
    batch = step(scheduler)
    assert shape(batch) == [(0, 5, 4, 4)]
    assert stream.ledger.tokens == [truth(i) for i in range(5)]
    assert shape(step(scheduler)) == [(0, 9, 1, 1)]


def test_a_rejected_draft_is_removed_from_the_cache_before_the_next_step() -> None:
    stream = stream_of()
    scheduler = scheduler_of(stream)
    step(scheduler)
    stream.offer(1, 1, [truth(1), 7, truth(3)], 0.0)
    step(scheduler)
    assert stream.ledger.tokens == [truth(0), truth(1), truth(2)]
    batch = step(scheduler)
    assert batch.edits == [Remove(0, 7)]
    assert shape(batch) == [(0, 7, 1, 1)]
    assert batch.chunks[0].run.tokens == (truth(2),)


def test_a_step_checks_at_most_so_many_drafts_of_a_stream() -> None:
    stream = stream_of()
    scheduler = scheduler_of(stream)
    step(scheduler)
    stream.offer(1, 1, [truth(i) for i in range(1, 11)], 0.0)
    assert [len(step(scheduler).chunks[0].candidates) for _ in range(3)] == [3, 3, 2]


def test_no_draft_is_checked_past_the_last_token() -> None:
    stream = stream_of(request(max_tokens=3))
    scheduler = scheduler_of(stream)
    step(scheduler)
    stream.offer(1, 1, [truth(1), truth(2), truth(3)], 0.0)
    assert step(scheduler).chunks[0].candidates == (truth(1),)


def test_the_oldest_draft_used_says_how_long_it_waited() -> None:
    stream = stream_of()
    scheduler = scheduler_of(stream)
    step(scheduler)
    stream.offer(1, 1, [truth(1), truth(2), truth(3)], 10.0)
    stream.offer(1, 4, [truth(4)], 11.0)
    stream.offer(1, 5, [truth(5)], 12.0)
    assert step(scheduler, 15.0).chunks[0].queue_s == 5.0
    assert stream.head == 5
    assert step(scheduler, 15.0).chunks[0].queue_s == 3.0
    assert step(scheduler, 15.0).chunks[0].queue_s == 0.0


def test_hold_waits_for_a_draft_and_names_the_time() -> None:
    stream = stream_of(request(policy="hold", hold_s=2.0))
    scheduler = scheduler_of(stream)
    step(scheduler, 1.0)
    assert step(scheduler, 2.9).chunks == []
    assert scheduler.wakes_at() == 3.0
    assert len(step(scheduler, 3.0).chunks) == 1
    stream.offer(1, 2, [truth(2)], 3.1)
    assert scheduler.wakes_at() is None
    assert len(step(scheduler, 3.1).chunks) == 1


def test_a_stream_that_holds_costs_the_others_nothing() -> None:
    holding, eager = stream_of(request(policy="hold", hold_s=9.0)), stream_of()
    scheduler = scheduler_of(holding, eager)
    step(scheduler)
    assert [chunk.stream for chunk in step(scheduler).chunks] == [eager]


def test_a_parked_stream_stops_at_its_length_and_never_holds() -> None:
    stream = stream_of(request(policy="hold", hold_s=9.0))
    scheduler = scheduler_of(stream)
    step(scheduler)
    scheduler.park(stream, 4)
    stream.offer(1, 1, [truth(1), truth(2), truth(3)], 0.0)
    while step(scheduler).chunks:
        pass
    assert stream.head == 4
    assert scheduler.wakes_at() is None
    scheduler.park(stream, None)
    assert scheduler.wakes_at() == 9.0


def test_a_parked_stream_gives_its_slot_to_who_waits_and_goes_on_when_it_is_read_again() -> None:
    parked, other = stream_of(), stream_of(request((9, 8)))
    scheduler = scheduler_of(parked, capacity=replace(CAPACITY, sequences=1))
    step(scheduler)
    step(scheduler)
    scheduler.park(parked, 2)
    scheduler.add(other)
    assert [chunk.stream for chunk in step(scheduler).chunks] == [other]
    assert (parked.sequence, scheduler.aside) == (None, [parked])
    scheduler.park(parked, None)
    assert [chunk.stream for chunk in step(scheduler).chunks] == [other]
    scheduler.end(other)
    assert shape(step(scheduler)) == [(0, 0, 7, 1)]
    assert parked.ledger.tokens == [truth(0), truth(1), truth(2)]


def test_a_stream_that_is_not_yet_where_it_parks_keeps_its_slot() -> None:
    stream = stream_of()
    scheduler = scheduler_of(stream, stream_of(), capacity=replace(CAPACITY, sequences=1))
    scheduler.park(stream, 2)
    step(scheduler)
    assert [chunk.stream for chunk in step(scheduler).chunks] == [stream]
    assert [chunk.stream for chunk in step(scheduler).chunks] != [stream]


def test_a_stream_set_aside_can_be_taken_out() -> None:
    stream = stream_of()
    scheduler = scheduler_of(stream, stream_of(), capacity=replace(CAPACITY, sequences=1))
    scheduler.park(stream, 1)
    step(scheduler)
    step(scheduler)
    assert scheduler.aside == [stream]
    scheduler.end(stream)
    assert scheduler.aside == []


def test_streams_wait_for_a_slot_in_order() -> None:
    streams = [stream_of(request(id=str(i))) for i in range(5)]
    scheduler = scheduler_of(*streams)
    step(scheduler)
    assert (scheduler.running, list(scheduler.waiting)) == (streams[:3], streams[3:])
    scheduler.end(streams[1])
    batch = step(scheduler)
    assert streams[3].sequence == 1
    assert batch.chunks[-1].stream is streams[3]


def test_a_stream_that_waits_can_be_taken_out() -> None:
    streams = [stream_of() for _ in range(4)]
    scheduler = scheduler_of(*streams)
    step(scheduler)
    scheduler.end(streams[3])
    scheduler.end(streams[3])
    assert not scheduler.waiting


def test_short_of_cache_a_stream_stays_queued_until_there_is_room() -> None:
    capacity = replace(CAPACITY, kv_tokens=100)
    first, second = stream_of(request(max_tokens=60)), stream_of(request(max_tokens=60))
    scheduler = scheduler_of(first, second, capacity=capacity)
    step(scheduler)
    assert (scheduler.running, list(scheduler.waiting)) == ([first], [second])
    scheduler.end(first)
    step(scheduler)
    assert scheduler.running == [second]


def test_a_request_for_more_than_the_context_holds_is_cut_to_it() -> None:
    assert stream_of(request(range(90), max_tokens=500)).max_tokens == 10


def test_the_budget_must_hold_a_token_of_each_stream() -> None:
    with pytest.raises(ValueError, match="step_tokens"):
        Capacity(sequences=8, context=10, kv_tokens=80, step_tokens=8)
    with pytest.raises(ValueError, match="kv_tokens"):
        Capacity(sequences=8, context=100, kv_tokens=80)


@pytest.mark.parametrize(
    ("wanted", "room", "expected"),
    [
        ([5, 5], 100, [4, 4]),
        ([5, 1, 5], 6, [3, 1, 2]),
        ([0, 0], 6, [0, 0]),
        ([3, 3, 3], 2, [1, 1, 0]),
        ([3], 0, [0]),
        ([], 5, []),
    ],
)
def test_room_for_drafts_is_shared_a_token_each_in_turn(wanted: list[int], room: int, expected: list[int]) -> None:
    assert share_drafts(wanted, room, 4) == expected


def test_the_tenant_that_was_charged_least_gets_the_next_slot() -> None:
    small = replace(CAPACITY, sequences=1)
    greedy, first, second, modest = (stream_of(request(tenant=tenant, max_tokens=1)) for tenant in ("a", "a", "a", "b"))
    scheduler = scheduler_of(greedy, first, second, modest, capacity=small)
    batch = scheduler.schedule(0.0)
    scheduler.update(batch, outputs(batch), 1.0)
    scheduler.end(greedy)
    scheduler.schedule(1.0)
    assert scheduler.running == [modest]


def test_a_tenant_may_hold_no_more_than_its_part_of_the_cache() -> None:
    capacity = replace(CAPACITY, tenant_kv=0.5)
    streams = [stream_of(request(tenant=tenant, max_tokens=90)) for tenant in ("a", "a", "b")]
    scheduler = scheduler_of(*streams, capacity=capacity)
    scheduler.schedule(0.0)
    assert scheduler.running == [streams[0], streams[2]]


def test_when_the_cache_is_full_a_stream_waits_and_is_computed_again() -> None:
    capacity = replace(CAPACITY, sequences=2, kv_tokens=100, reserve_tokens=4)
    streams = [stream_of(request(tenant=tenant, max_tokens=60)) for tenant in ("a", "b")]
    scheduler = scheduler_of(*streams, capacity=capacity)
    preempted = False
    for i in range(200):
        step(scheduler, float(i))
        preempted = preempted or (len(scheduler.waiting) == 1)
        for stream in streams:
            if stream in scheduler.running and stream.head >= 60:
                scheduler.end(stream)
        assert scheduler.slots.tokens <= capacity.kv_tokens
    assert preempted
    assert [stream.ledger.tokens[:60] for stream in streams] == [[truth(i) for i in range(60)]] * 2


def test_a_long_prompt_lengthens_the_steps_of_others_by_less_than_a_fifth() -> None:
    def cost_s(size: int) -> float:
        return 0.030 + 0.001 * size

    capacity = replace(CAPACITY, context=2000, kv_tokens=6000, step_tokens=256, prefill_tokens=64)
    writing = Stream.of(request(max_tokens=1500), context=2000)
    scheduler = scheduler_of(writing, capacity=capacity)
    now, durations = 0.0, []
    for i in range(160):
        if i == 60:
            scheduler.add(Stream.of(request(range(1, 601)), context=2000))
        batch = scheduler.schedule(now)
        durations.append(cost_s(sum(len(run.tokens) for run in batch.runs)))
        now += durations[-1]
        scheduler.update(batch, outputs(batch), now)
    alone, others = durations[59], durations[60:160]
    assert sum(others) / len(others) < 1.2 * alone
    assert all(duration < 1.25 * alone for duration in others[1:])  # the first piece shows what a piece costs
