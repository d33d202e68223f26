"""`bench replay`: what is recorded of a drafter, and that it is played with the times that were asked for."""

from __future__ import annotations

import pytest

from bench.replay import Settings, Tape, decisions, run, simulated
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


def test_the_simulation_alone_weighs_answers_by_their_length() -> None:
    tapes = [
        Tape(0, 0.0, "top-1", (True,) * 30, (0.9,) * 30),
        Tape(1, 0.0, "top-1", (False,) * 10, (0.9,) * 10),
    ]
    settings = Settings(["20"], t_d_s=0.004, t_v_s=0.012, temperatures=[0.0], prompts=2)
    found = {row["scheme"]: row for row in simulated(settings, tapes)}
    assert list(found) == ["cloud", "eager", "sync", "hold"]
    assert {row["kind"] for row in found.values()} == {"simulated"}
    assert found["cloud"]["sim_ms"] == pytest.approx(12)
    assert found["cloud"]["alpha"] is None
    assert found["eager"]["alpha"] == pytest.approx(0.75)
    # The second answer is as slow as cloud-only, the first quicker: the mean lies between, nearer to the longer.
    alone = {row["scheme"]: row for row in simulated(settings, tapes[:1])}
    assert found["eager"]["sim_ms"] == pytest.approx((alone["eager"]["sim_ms"] * 29 + 12 * 9) / 38)


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
