"""`python -m tests.sim`: run seeds and tell which fail; or one seed, with all that happens in it."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator

from tests.sim.plan import draw
from tests.sim.world import Outcome, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many, one after the other")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: every event")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--keep-going", action="store_true", help="don't stop at the first failure")
    options = parser.parse_args()
    if options.seed is not None:
        return _one(options.seed, trace=options.trace)
    return _many(options)


def _one(seed: int, *, trace: bool) -> int:
    outcome = simulate(seed, keep_log=trace)
    plan = draw(seed)
    for line in outcome.log:
        print(line)  # noqa: T201
    print(f"faults: {', '.join(sorted(plan.faults)) or 'none'}")  # noqa: T201
    print(f"{outcome.events} events in {outcome.virtual_s:.3f} s of virtual time, trace {outcome.trace}")  # noqa: T201
    print(f"seed {seed}: {outcome.fault or 'holds'}")  # noqa: T201
    return outcome.fault is not None


def _many(options: argparse.Namespace) -> int:
    began, done, events, failed = time.perf_counter(), 0, 0, list[Outcome]()
    until = None if options.minutes is None else began + 60 * options.minutes
    for outcome in _outcomes(range(options.first, options.first + options.seeds), options.processes):
        done, events = done + 1, events + outcome.events
        if outcome.fault is not None:
            failed.append(outcome)
            print(f"seed {outcome.seed}: {outcome.fault}", flush=True)  # noqa: T201
            print(f"    again: make sim SEED={outcome.seed}", flush=True)  # noqa: T201
            if not options.keep_going:
                break
        if until is not None and time.perf_counter() > until:
            break
    seconds = time.perf_counter() - began
    print(f"{done} seeds, {events} events, {len(failed)} failed, {seconds:.0f} s ({options.processes} processes)")  # noqa: T201
    return bool(failed)


def _outcomes(seeds: range, processes: int) -> Iterator[Outcome]:
    """`simulate` itself is what the processes get: of this module they couldn't import anything."""
    if processes <= 1:
        yield from map(simulate, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(simulate, seeds, chunksize=8)


if __name__ == "__main__":
    sys.exit(main())
