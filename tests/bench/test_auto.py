"""`bench auto`: what is taken down and replayed, what it adds up, and the real pair for a few tokens."""

from __future__ import annotations

import pytest

from app.engine.scripted import ScriptedEngine
from bench.auto import (
    SCHEMES,
    Settings,
    Tally,
    Tape,
    Told,
    compared,
    judge_all,
    measure,
    prepare,
    rate_together,
    record,
)
from bench.auto import run as run_real
from bench.paced import Arrival, Replay
from edge.drafters.scripted import ScriptedDrafter, repeating
from edge.models import default_directory, pair
from edge.protocol.frames import Usage
from edge.script import Script, ScriptVocabulary

PROMPTS = [tuple(b"first prompt"), tuple(b"another prompt"), tuple(b"the third"), tuple(b"and a fourth")]


def test_a_tape_holds_what_the_drafter_says_behind_the_targets_own_output() -> None:
    script = Script(ScriptVocabulary())
    output = script.greedy(PROMPTS[0], 30)
    drafter = ScriptedDrafter(script, repeating([True, True, False]))
    drafts, seconds = record(drafter, PROMPTS[0], output)
    assert [draft == token for draft, token in zip(drafts, output, strict=True)] == [True, True, False] * 10
    assert len(seconds) == 30


def test_a_replay_proposes_by_position() -> None:
    replay = Replay([5, 6, 7, 8])
    assert [proposal.token for _ in range(3) if (proposal := replay.propose())] == [5, 6, 7]
    replay.rollback(1)
    replay.feed([99])
    proposal = replay.propose()
    assert proposal is not None
    assert proposal.token == 7
    replay.feed([1, 2, 3])
    assert replay.propose() is None


def test_the_rate_counts_only_while_all_streams_run() -> None:
    slow = [Arrival(10.0, 1), Arrival(11.0, 1), Arrival(12.0, 1), Arrival(13.0, 1)]
    fast = [Arrival(10.5, 1), Arrival(12.0, 3)]
    assert rate_together([slow, fast]) == pytest.approx(5 / 1.5)
    with pytest.raises(ValueError, match="longer"):
        rate_together([slow, [Arrival(8.0, 1), Arrival(9.0, 3)]])


def test_a_changed_answer_is_told() -> None:
    tape = Tape((1,), (4, 5, 6), None)
    arrivals = [Arrival(1.0, 1), Arrival(3.0, 2)]
    tally = Tally("auto")
    tally.add(0.0, [Told((4, 5, 6), arrivals, Usage(completion=3, steps=2))], [tape], 0.1)
    row = tally.row("F16", 0.02)
    assert (row["target"], row["policy"], row["tok_s"], row["whole_tok_s"]) == ("F16", "auto", 1.0, 1.0)
    assert (row["identical"], row["t_d_ms"], row["step_error_p90"]) == (True, 20.0, 0.1)
    tally.add(0.0, [Told((4, 9, 6), arrivals, Usage(completion=3, steps=2))], [tape], 0.1)
    assert tally.parted[0].at == 1
    assert not tally.row("F16", 0.02)["identical"]


def test_auto_is_compared_with_the_best_of_the_others() -> None:
    rates = {"cloud": 10.0, "eager": 20.0, "hold": 15.0, "auto": 18.0}
    whole = {"cloud": 9.0, "eager": 9.0, "hold": 2.0, "auto": 9.9}
    rows = [{"target": "F16", "policy": p, "tok_s": rates[p], "whole_tok_s": whole[p]} for p in rates]
    assert compared(rows) == {
        "target": "F16",
        "best_fixed": "eager",
        "auto_over_best_fixed": 0.9,
        "auto_over_cloud": 1.8,
        "best_fixed_whole": "cloud",
        "auto_over_best_fixed_whole": pytest.approx(1.1),
        "auto_over_cloud_whole": pytest.approx(1.1),
    }


async def test_every_policy_gives_the_targets_text_and_drafts_save_steps() -> None:
    settings = Settings(tokens=24, rounds=1, streams=4)
    engine = ScriptedEngine(step_s=0.01, streams=8)
    await engine.start()
    try:
        drafter = ScriptedDrafter(engine.script, repeating([True] * 7 + [False]))
        tapes, draft_s = await prepare(engine, drafter, PROMPTS, settings.tokens)
        assert [tape.drafts is None for tape in tapes] == [False, True, False, True]
        tallies = await measure(engine, tapes, max(draft_s, 0.002), settings, lambda: None)
    finally:
        await engine.stop()
    rows = {tally.scheme: tally.row("scripted", draft_s) for tally in tallies}
    assert list(rows) == [scheme for scheme, _ in SCHEMES]
    assert all(row["identical"] and row["ties"] == 0 and row["tok_s"] > 0 for row in rows.values())
    assert rows["cloud"]["verified_per_token"] == 0
    assert rows["cloud"]["steps_per_token"] == 1
    for scheme in ("eager", "hold"):
        assert rows[scheme]["accepted_per_token"] > 0
        assert rows[scheme]["steps_per_token"] < 1


@pytest.mark.model
async def test_the_real_pair_runs_by_every_policy() -> None:
    files = pair(default_directory())
    tallies, tapes, draft_s = await run_real(files.target, files.draft, Settings(tokens=12, rounds=1, streams=2))
    judge_all(tallies, tapes, files.target, 12)
    rows = [tally.row("F16", draft_s) for tally in tallies]
    assert [row["policy"] for row in rows] == [scheme for scheme, _ in SCHEMES]
    assert all(row["identical"] for row in rows)
    assert draft_s > 0
    hold = rows[2]  # which waits for the drafts
    assert hold["accepted_per_token"] > 0
