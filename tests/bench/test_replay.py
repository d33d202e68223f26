"""`bench replay`: what is recorded of a drafter, and that it is played with the times that were asked for."""

from __future__ import annotations

import pytest

from bench.replay import Settings, Tape, decisions, run
from edge.drafters.scripted import ScriptedDrafter, repeating
from edge.protocol.frames import Sampling
from edge.script import Script, ScriptVocabulary


def test_decisions_are_those_behind_the_targets_own_text_also_past_a_wrong_one() -> None:
    script = Script(ScriptVocabulary())
    prompt = script.vocabulary.encode("what is a paceline?")
    pattern = (True, False, False, True, True, False, True)
    drafter = ScriptedDrafter(script, repeating(pattern), confidence=lambda position: position / 10)
    output = script.greedy(prompt, len(pattern))
    right, confidence = decisions(drafter, prompt, output, Sampling(temperature=0, seed=0), coupled=False)
    assert right == pattern
    assert confidence == pytest.approx([n / 10 for n in range(len(pattern))])


async def test_rows_take_the_times_asked_for_and_the_acceptance_recorded() -> None:
    pattern = (True, True, True, False) * 6
    tape = Tape(0, 0.0, "top-1", pattern, (0.9,) * len(pattern))
    rows = await run(Settings(["20"], t_d_s=0.004, t_v_s=0.012, temperatures=[0.0], prompts=1), [tape])
    assert [row["scheme"] for row in rows] == ["cloud", "eager", "sync", "hold", "auto"]
    found = {row["scheme"]: row for row in rows}
    assert {row["kind"] for row in rows} == {"replay"}
    assert {row["other_text"] for row in rows} == {0}
    # A step can't be faster than it was told to be, and sync pays a round trip for each of its rounds.
    assert found["cloud"]["itl_ms"] >= 12 * 0.9
    assert found["cloud"]["sim_ms"] == pytest.approx(12)
    assert found["sync"]["steps_per_token"] < 1
    assert 0.3 < found["hold"]["alpha"] < 1
