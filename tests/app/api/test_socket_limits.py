from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.socket_limits import ErrorBudget, StreamIds
from edge.protocol.errors import StreamReused, TooManyStreams


def test_a_burst_is_allowed_and_then_one_each_second() -> None:
    budget = ErrorBudget(3, now=0.0)
    assert [budget.spend(0.0) for _ in range(4)] == [True, True, True, False]
    assert budget.spend(2.0)
    assert not budget.spend(2.5)
    assert all(budget.spend(1000.0) for _ in range(3)), "it fills up again"
    assert not budget.spend(1000.0), "but not past the burst"


@given(st.lists(st.integers(0, 40)))
def test_ids_are_remembered_as_a_set_would(ids: list[int]) -> None:
    used, reference = StreamIds(), set[int]()
    for stream in ids:
        if stream in reference:
            with pytest.raises(StreamReused):
                used.use(stream)
        else:
            used.use(stream)
            reference.add(stream)
        assert {i for i in range(42) if i in used} == reference


def test_counting_up_takes_one_run_however_long() -> None:
    ids = StreamIds()
    for stream in range(10_000):
        ids.use(stream)
    assert (ids._starts, ids._ends) == ([0], [10_000])


def test_scattered_ids_are_refused_before_they_fill_the_memory() -> None:
    ids = StreamIds()
    for stream in range(0, 2 * StreamIds.MOST_RUNS, 2):
        ids.use(stream)
    with pytest.raises(TooManyStreams):
        ids.use(2 * StreamIds.MOST_RUNS)
    assert len(ids._starts) == StreamIds.MOST_RUNS
