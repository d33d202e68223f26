"""`bench load`, small: every figure is there, and a fault is counted."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.crowd import Crowd, Tally, command, delays_ms
from bench.report import Report


def test_a_small_crowd_gets_its_text_and_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    command(Report(as_json=True), Crowd(streams=12, sockets=3, seconds=1.0, step_s=0.05, soak_s=11.0))
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["streams"], found["errors"], found["faults"]) == (12, 0, [])
    assert found["commits_per_stream_s"] > 0
    assert found["draft_frames_per_s"] > 0
    assert {"commit_delay_p99_ms", "us_per_draft_frame", "us_per_commit", "kb_per_stream"} <= set(found)
    assert (found["soak_errors"], found["soak_faults"]) == (0, [])
    assert found["soak_streams_ended"] > 0


def test_a_delay_is_that_of_the_last_step_before() -> None:
    steps, arrivals = np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, 1.25, 2.5, 9.0])
    assert delays_ms(steps, arrivals).tolist() == [0.0, 250.0, 500.0, 6000.0]


def test_a_fault_is_counted_and_the_first_are_told() -> None:
    tally = Tally()
    for number in range(9):
        tally.fault(f"fault {number}")
    assert (tally.errors, len(tally.faults)) == (9, 5)
