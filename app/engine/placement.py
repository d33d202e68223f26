"""Which replica gets a new stream. Pure: no clock, no I/O.

By load first: a replica that has room, with the fewest streams. Among those that have at most `SLACK` more than the
least loaded one, the replica that has already computed the longest beginning of the prompt for this tenant, for its KV
cache still holds it (slots.py keeps prefixes per tenant too, so nothing is learnt across tenants). The stream then
stays where it is: its cache is there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

SLACK = 2
"""How many more streams a replica may have than another for the sake of a shared prefix."""
BLOCK = 32
"""Prompts are remembered in pieces of this many tokens."""


class Placement:
    def __init__(self, *, blocks: int = 4096) -> None:
        """`blocks`: how many pieces of prompts are remembered for each replica; the longest unused are forgotten."""
        self._bound = blocks
        self._seen: dict[int, OrderedDict[int, None]] = {}

    def choose(self, streams: Mapping[int, int], tenant: str, prompt: Sequence[int]) -> int:
        """One of the replicas in `streams` (replica → how many streams it has; not empty)."""
        least = min(streams.values())
        near = [replica for replica, count in streams.items() if count <= least + SLACK]
        blocks = _blocks(tenant, prompt)
        return min(near, key=lambda replica: (-self._known(replica, blocks), streams[replica], replica))

    def placed(self, replica: int, tenant: str, prompt: Sequence[int]) -> None:
        """The replica computes this prompt."""
        seen = self._seen.setdefault(replica, OrderedDict())
        for block in _blocks(tenant, prompt):
            seen[block] = None
            seen.move_to_end(block)
        while len(seen) > self._bound:
            seen.popitem(last=False)

    def lost(self, replica: int) -> None:
        """Its cache is gone."""
        self._seen.pop(replica, None)

    def _known(self, replica: int, blocks: Sequence[int]) -> int:
        """How many of a prompt's first blocks the replica has seen."""
        seen = self._seen.get(replica)
        return 0 if seen is None else next((i for i, b in enumerate(blocks) if b not in seen), len(blocks))


def _blocks(tenant: str, prompt: Sequence[int]) -> list[int]:
    """A number for each beginning of the prompt that is a multiple of BLOCK long."""
    numbers: list[int] = []
    number = hash(tenant)
    for start in range(0, len(prompt) - BLOCK + 1, BLOCK):
        number = hash((number, *prompt[start : start + BLOCK]))
        numbers.append(number)
    return numbers
