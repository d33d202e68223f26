"""`bench edges`: every mode answers the same questions, and what is counted of it."""

from __future__ import annotations

import pytest

from bench.auto import Told
from bench.edges import Settings, Tally, measure, tapes
from edge.models import default_directory, pair
from edge.protocol.frames import Usage


def test_occupancy_is_streams_per_step_and_steps_are_per_token() -> None:
    tally = Tally("shared")
    told = [Told((1, 2, 3, 4), [], Usage(steps=2)), Told((5, 6, 7, 8), [], Usage(steps=4))]
    tally.add(0.0, told, steps=4)
    row = tally.row(2, weights_mib=100.0, copies=2)
    assert (row["occupancy"], row["steps_per_token"], row["weights_mib"]) == (1.5, 0.75, 200.0)


@pytest.mark.model
async def test_all_modes_are_measured_on_the_same_answers() -> None:
    pytest.importorskip("xllamacpp", reason="needs the extra `bench`")
    files = pair(default_directory())
    taped, draft_s = await tapes(files.target, files.draft, 2, 8)
    assert all(tape.drafts is not None and len(tape.drafts) == 8 for tape in taped)
    rounds = Settings(tokens=8, rounds=1)
    rows = await measure((files.target, files.draft), taped, draft_s, rounds, lambda: None)
    found = {row["mode"]: row for row in rows}
    assert list(found) == ["shared", "shared, no drafts", "dedicated", "one after another", "llama.cpp"]
    assert all(row["tok_s"] > 0 for row in rows)
    assert found["shared, no drafts"]["steps_per_token"] == pytest.approx(1)
    assert found["dedicated"]["weights_mib"] == 2 * found["shared"]["weights_mib"]
