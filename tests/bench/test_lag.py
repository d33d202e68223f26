from __future__ import annotations

import asyncio
import time

from bench.lag import Lag, lag_probe


async def test_a_loop_that_is_held_shows() -> None:
    with lag_probe(period_s=0.001) as lag:
        await asyncio.sleep(0.005)
        time.sleep(0.05)  # noqa: ASYNC251  the fault that the probe is there to find
        await asyncio.sleep(0.005)
    assert max(lag.samples) > 0.04
    count = len(lag.samples)
    await asyncio.sleep(0.005)
    assert len(lag.samples) == count


def test_percentiles_are_in_milliseconds() -> None:
    assert Lag([0.001, 0.002, 0.003]).percentile_ms(50) == 2.0
    assert Lag().percentile_ms(99) == 0.0
