"""A device in a process of its own, to be killed: `python -m tests.faults.edge URL KEY`. Four long streams, drafted."""

from __future__ import annotations

import asyncio
import sys

from tests.faults.processes import Heard, ask, connected


async def main(url: str, key: str) -> None:
    async with connected(url, key) as runtime:
        await asyncio.gather(*(ask(runtime, number, 1900, Heard()) for number in range(4)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
