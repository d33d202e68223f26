from __future__ import annotations

import pytest

from app.engine.acceptance import PRIOR, Acceptances


def test_without_any_record_a_draft_survives_as_the_prior_says() -> None:
    acceptance = Acceptances().of("d", "t")
    assert acceptance.survivals(3) == pytest.approx([PRIOR, PRIOR**2, PRIOR**3])


def test_a_stream_that_is_always_right_is_soon_believed() -> None:
    acceptance = Acceptances().of("d", "t")
    for _ in range(200):
        acceptance.add(4, 4)
    assert acceptance.survivals(4)[3] > 0.9


def test_depths_are_told_apart() -> None:
    acceptance = Acceptances().of("d", "t")
    for _ in range(200):
        acceptance.add(2, 1)  # the first is right, the second never
    first, second = acceptance.survivals(2)
    assert first > 0.95
    assert second < 0.1


def test_a_new_stream_of_a_known_drafter_begins_with_what_is_known() -> None:
    acceptances = Acceptances()
    old = acceptances.of("d", "t")
    for _ in range(200):
        old.add(1, 0)
    assert acceptances.of("d", "t").survivals(1)[0] < 0.1
    assert acceptances.of("d", "other").survivals(1)[0] == pytest.approx(PRIOR)


def test_drafts_that_came_too_late_count_too() -> None:
    acceptance = Acceptances().of("d", "t")
    for _ in range(50):
        acceptance.add_late(1, 0)
    assert acceptance.survivals(1)[0] < 0.2


def test_the_drafter_used_longest_ago_is_forgotten_first() -> None:
    acceptances = Acceptances(drafters=2)
    for _ in range(50):
        acceptances.of("a", "t").add(1, 0)
    acceptances.of("b", "t")
    acceptances.of("a", "t")
    acceptances.of("c", "t")
    assert acceptances.of("a", "t").survivals(1)[0] < 0.2
