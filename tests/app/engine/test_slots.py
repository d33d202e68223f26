from __future__ import annotations

from app.engine.slots import COPY_AT_LEAST, Begin, Copy, Edit, Remove, Slots
from app.engine.stream import Stream
from tests.app.engine.requests import request

SYSTEM = tuple(range(100, 100 + COPY_AT_LEAST))


def placed(slots: Slots, prompt: tuple[int, ...], tenant: str = "t", max_tokens: int = 4) -> tuple[Stream, list[Edit]]:
    stream = Stream.of(request(prompt, tenant=tenant, max_tokens=max_tokens), context=100)
    assert slots.place(stream)
    edits, slots.edits = slots.edits, []
    return stream, edits


def finish(slots: Slots, stream: Stream) -> None:
    """As if all of its context but the last token had been computed."""
    stream.cached = len(stream.context) - 1
    slots.release(stream)


def test_a_fresh_slot_starts_empty() -> None:
    slots = Slots(2, 200)
    stream, edits = placed(slots, (1, 2, 3))
    assert (stream.sequence, stream.cached) == (0, 0)
    assert edits == [Begin(0, (1, 2, 3), 0)]


def test_the_next_turn_of_a_conversation_goes_on_in_its_slot() -> None:
    slots = Slots(2, 200)
    first, _ = placed(slots, (1, 2, 3, 4))
    finish(slots, first)
    second, edits = placed(slots, (1, 2, 3, 4, 5, 6))
    assert edits == [Begin(0, (1, 2, 3, 4, 5, 6), 3)]
    assert (second.sequence, second.cached) == (0, 3)


def test_the_last_token_is_always_computed() -> None:
    slots = Slots(1, 200)
    first, _ = placed(slots, (1, 2, 3, 4, 5))
    finish(slots, first)
    again, _ = placed(slots, (1, 2, 3, 4))
    assert again.missing == 1


def test_a_shared_beginning_is_copied_and_stays_for_others() -> None:
    slots = Slots(3, 300)
    first, _ = placed(slots, (*SYSTEM, 1, 2, 3))
    finish(slots, first)
    second, edits = placed(slots, (*SYSTEM, 7, 8))
    assert edits == [Copy(0, 1, len(SYSTEM)), Begin(1, (*SYSTEM, 7, 8), len(SYSTEM))]
    assert second.cached == len(SYSTEM)


def test_a_running_stream_lends_what_it_has_computed() -> None:
    slots = Slots(2, 200)
    running, _ = placed(slots, (*SYSTEM, 1, 2))
    running.cached = len(SYSTEM) + 1
    _, edits = placed(slots, (*SYSTEM, 1, 9))
    assert edits[0] == Copy(0, 1, len(SYSTEM) + 1)


def test_a_short_beginning_is_not_worth_a_copy() -> None:
    slots = Slots(2, 200)
    running, _ = placed(slots, (1, 2, 3))
    running.cached = 2
    stream, edits = placed(slots, (1, 2, 9))
    assert edits == [Begin(1, (1, 2, 9), 0)]
    assert stream.cached == 0


def test_the_only_free_slot_is_reused_in_place_even_if_its_content_goes_on_otherwise() -> None:
    slots = Slots(1, 200)
    first, _ = placed(slots, (1, 2, 3, 4))
    finish(slots, first)
    _, edits = placed(slots, (1, 2, 9))
    assert edits == [Begin(0, (1, 2, 9), 2)]


def test_another_tenant_profits_from_nothing() -> None:
    slots = Slots(2, 200)
    first, _ = placed(slots, (*SYSTEM, 1))
    finish(slots, first)
    stream, edits = placed(slots, (*SYSTEM, 1), tenant="other")
    assert edits == [Begin(1, (*SYSTEM, 1), 0)]
    assert stream.cached == 0


def test_another_tenants_slot_is_emptied_when_it_is_taken() -> None:
    slots = Slots(1, 200)
    first, _ = placed(slots, (*SYSTEM, 1))
    finish(slots, first)
    stream, edits = placed(slots, (*SYSTEM, 1), tenant="other")
    assert edits == [Begin(0, (*SYSTEM, 1), 0)]
    assert stream.cached == 0


def test_across_tenants_only_if_the_operator_says_so() -> None:
    slots = Slots(2, 200, share_prefixes=True)
    first, _ = placed(slots, (*SYSTEM, 1))
    finish(slots, first)
    stream, _ = placed(slots, (*SYSTEM, 2), tenant="other")
    assert stream.cached == len(SYSTEM)


def test_the_slot_unused_longest_goes_first() -> None:
    slots = Slots(3, 300)
    streams = [placed(slots, (i, i, i))[0] for i in (1, 2, 3)]
    for i in (1, 0, 2):
        finish(slots, streams[i])
    assert placed(slots, (9, 9))[0].sequence == 1
    assert placed(slots, (8, 8))[0].sequence == 0


def test_no_slot_no_place() -> None:
    slots = Slots(1, 200)
    placed(slots, (1, 2, 3))
    assert not slots.place(Stream.of(request(), context=100))


def test_what_others_left_makes_room_oldest_first() -> None:
    slots = Slots(3, 60)
    old, _ = placed(slots, tuple(range(1, 21)))
    young, _ = placed(slots, tuple(range(31, 51)))
    finish(slots, old)
    finish(slots, young)
    assert slots.tokens == 38
    _, edits = placed(slots, (61, 62, 63), max_tokens=30)
    assert edits[0] == Remove(0, 0)
    assert slots.tokens == 19


def test_without_room_nothing_is_dropped() -> None:
    slots = Slots(2, 50)
    placed(slots, (1, 2, 3), max_tokens=40)
    assert not slots.place(Stream.of(request((5, 6), max_tokens=20), context=100))
    assert slots.edits == []
