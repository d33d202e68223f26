from __future__ import annotations

from app.engine.placement import BLOCK, SLACK, Placement

LONG = tuple(range(4 * BLOCK))


def test_the_least_loaded_replica_gets_the_stream() -> None:
    assert Placement().choose({0: 3, 1: 1, 2: 2}, "a", LONG) == 1
    assert Placement().choose({4: 2, 7: 2}, "a", LONG) == 4


def test_a_shared_beginning_is_worth_some_imbalance_but_not_more() -> None:
    placement = Placement()
    placement.placed(0, "a", LONG)
    question = (*LONG, 1, 2, 3)
    assert placement.choose({0: SLACK, 1: 0}, "a", question) == 0
    assert placement.choose({0: SLACK + 1, 1: 0}, "a", question) == 1


def test_the_longest_shared_beginning_wins() -> None:
    placement = Placement()
    placement.placed(0, "a", LONG[: 2 * BLOCK])
    placement.placed(1, "a", LONG[: 3 * BLOCK])
    assert placement.choose({0: 0, 1: 1}, "a", LONG) == 1


def test_a_prompt_that_differs_early_shares_nothing() -> None:
    placement = Placement()
    placement.placed(1, "a", LONG)
    assert placement.choose({0: 0, 1: 0}, "a", (9, *LONG[1:])) == 0


def test_tenants_share_nothing() -> None:
    placement = Placement()
    placement.placed(1, "a", LONG)
    assert placement.choose({0: 0, 1: 0}, "b", LONG) == 0


def test_a_lost_replica_remembers_nothing() -> None:
    placement = Placement()
    placement.placed(1, "a", LONG)
    placement.lost(1)
    assert placement.choose({0: 0, 1: 0}, "a", LONG) == 0


def test_the_memory_is_bounded_and_drops_the_longest_unused() -> None:
    placement = Placement(blocks=4)
    placement.placed(1, "a", LONG)
    placement.placed(1, "a", [5] * 4 * BLOCK)
    assert placement.choose({0: 0, 1: 0}, "a", LONG) == 0
    assert placement.choose({0: 0, 1: 0}, "a", [5] * 4 * BLOCK) == 1
