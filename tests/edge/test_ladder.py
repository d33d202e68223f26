from __future__ import annotations

from edge.ladder import PATHS, Ladder


def ladder() -> Ladder:
    return Ladder(PATHS, lambda: 1.0, rest_s=2.0, cap_s=10.0)


def test_the_best_path_comes_first() -> None:
    assert ladder().order(0.0) == ["hybrid", "cloud", "local"]


def test_only_the_paths_that_are_allowed_are_tried() -> None:
    assert Ladder(("cloud", "hybrid"), lambda: 1.0).order(0.0) == ["hybrid", "cloud"]


def test_a_path_that_failed_rests() -> None:
    paths = ladder()
    paths.failed("hybrid", 0.0)
    assert paths.order(1.9) == ["cloud", "local"]
    assert paths.order(2.0) == ["hybrid", "cloud", "local"]


def test_each_failure_in_a_row_doubles_the_rest_up_to_a_bound() -> None:
    paths = ladder()
    now = 0.0
    rests = []
    for _ in range(5):
        paths.failed("hybrid", now)
        began = now
        while "hybrid" not in paths.order(now):
            now += 0.5
        rests.append(now - began)
    assert rests == [2.0, 4.0, 8.0, 10.0, 10.0]


def test_one_success_does_not_clear_the_record_and_three_do() -> None:
    paths = ladder()
    paths.failed("hybrid", 0.0)
    paths.worked("hybrid")
    paths.failed("hybrid", 10.0)
    assert "hybrid" not in paths.order(13.9)
    for _ in range(3):
        paths.worked("hybrid")
    paths.failed("hybrid", 20.0)
    assert "hybrid" in paths.order(22.0)


def test_when_all_rest_all_are_tried() -> None:
    paths = ladder()
    for path in PATHS:
        paths.failed(path, 0.0)
    assert paths.order(0.0) == ["hybrid", "cloud", "local"]


def test_jitter_leaves_out_up_to_half_of_a_rest() -> None:
    paths = Ladder(PATHS, lambda: 0.0, rest_s=2.0)
    paths.failed("hybrid", 0.0)
    assert "hybrid" not in paths.order(0.9)
    assert "hybrid" in paths.order(1.0)
