from __future__ import annotations

import pytest

from bench.start import once


def test_a_start_is_measured_by_clock_cpu_and_memory() -> None:
    mine = b"x" * 600_000_000  # isn't counted
    seconds, cpu_s, memory = once("held = b'x' * 200_000_000")
    assert cpu_s > 0
    assert seconds > 0
    assert 200e6 < memory < 400e6
    del mine


def test_a_start_that_fails_is_no_figure() -> None:
    with pytest.raises(RuntimeError, match="failed"):
        once("raise SystemExit(3)")
