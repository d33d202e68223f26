"""The simulation holds on its first seeds, gives the same events again, and finds faults that are planted in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.sim.plan import FAULTS, draw
from tests.sim.world import simulate

ROOT = Path(__file__).resolve().parents[2]
PLANTED = {
    "token_doubled": (50, "another text"),
    "streams_crossed": (50, "another text"),
    "usage_counted_twice": (50, "usage of"),
    "stream_leaked": (50, "left behind: streams"),
    "slot_leaked": (50, "left behind: slots"),
    "unfair": (100, "a slot for who was charged more"),
}
"""Each patch of faults/: within how many seeds it must be found, and as what."""


@pytest.mark.parametrize("seed", range(10))
def test_a_seed_holds(seed: int) -> None:
    assert simulate(seed).fault is None


def test_plans_have_every_fault_and_are_a_seeds_own() -> None:
    plans = [draw(seed) for seed in range(100)]
    assert {fault for plan in plans for fault in plan.faults} == set(FAULTS)
    assert plans == [draw(seed) for seed in range(100)]
    assert len({repr(plan) for plan in plans}) == 100


def test_a_seed_gives_the_same_events_in_another_process() -> None:
    """Neither addresses, nor hashes of strings, nor what was simulated before may matter."""
    seeds = range(40, 46)
    one, other = (_traces(seeds, hash_seed="1"), _traces(reversed(seeds), hash_seed="2"))
    assert one == other[::-1]
    assert len(set(one)) == len(seeds)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str, tmp_path: Path) -> None:
    most, told = PLANTED[name]
    for folder in ("app", "edge", "alembic", "tests/sim"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests/__init__.py").touch()
    patch = ROOT / "tests/sim/faults" / f"{name}.patch"
    subprocess.run(["git", "apply", str(patch)], cwd=tmp_path, check=True)  # noqa: S603, S607
    ran = _run(tmp_path, "-m", "tests.sim", "--seeds", str(most), "--processes", "1")
    assert ran.returncode == 1, f"not found in {most} seeds"
    assert told in ran.stdout
    again = re.search(r"make sim SEED=(\d+)", ran.stdout)
    assert again is not None
    ran = _run(tmp_path, "-m", "tests.sim", "--seed", again[1])
    assert told in ran.stdout, "the seed gives the same fault again"


def _traces(seeds: Iterable[int], *, hash_seed: str) -> list[str]:
    script = "import sys; from tests.sim.world import simulate; print(*(simulate(int(s)).trace for s in sys.argv[1:]))"
    return _run(ROOT, "-c", script, *map(str, seeds), PYTHONHASHSEED=hash_seed).stdout.split()


def _run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python on the sources in that folder."""
    given = os.environ | environment | {"PYTHONPATH": str(folder)}
    return subprocess.run(  # noqa: S603
        [sys.executable, *command], cwd=folder, env=given, capture_output=True, text=True, check=False
    )
