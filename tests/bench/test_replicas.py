"""`bench ray`: it kills what it says, and compares what it should."""

from __future__ import annotations

import importlib.util
from functools import partial

import pytest

from bench.replicas import Death


def test_a_death_is_summed_up() -> None:
    data = Death("scripted", 4, 2, 3, 0.01, (0.5, 1.5, 4.0)).data()
    assert (data["moved"], data["identical"], data["lost_s_median"], data["lost_s_max"]) == (2, 3, 1.5, 4.0)
    assert Death("scripted", 4, 0, 4, 0.0, ()).data()["lost_s_max"] is None


@pytest.mark.ray
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray isn't installed")
@pytest.mark.filterwarnings("ignore::ResourceWarning:ray", "ignore::FutureWarning:ray")
async def test_a_replica_is_killed_and_its_streams_are_the_same() -> None:
    from app.engine.scripted import ScriptedEngine
    from bench.replicas import _scripted, die

    death = await die("scripted", partial(ScriptedEngine, step_s=0.01, streams=4), _scripted, streams=4, tokens=60)
    assert death.identical == 4
    assert death.moved == len(death.lost_s) == 2
