"""Which cells of llama.cpp's KV cache hold what, for those who care about the order.

Attention adds up a sequence's values in the order of their cells, in half precision. llama.cpp fills holes as they
appear: after rollbacks a sequence's cells are not in the order of its positions any more, and the same context gives
other logits, by a few hundredths. Ordered cells are a log: what is rolled back keeps its cell, in the name of a
sequence that nobody reads, and new tokens go behind everything. When the log gets long, the live sequences are written
again, one behind the other.
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import llama_cpp

SLACK = 1024
"""Dead cells that are put up with, beside as many as there are live ones: attention looks at all of them."""


class Cells(Protocol):
    def make_room(self, count: int) -> None:
        """Called before `count` tokens are computed."""
        ...

    def wrote(self, sequence: int, end: int) -> None:
        """A token was computed that makes the sequence hold `end` positions."""
        ...

    def remove(self, sequence: int, start: int) -> bool:
        """Forget positions from `start` on; False if the model's memory can't be cut there."""
        ...

    def copy(self, source: int, target: int, length: int) -> None:
        """Make `target`, which is empty, hold the first `length` positions of `source`."""
        ...


class FreeCells:
    """llama.cpp's own way."""

    def __init__(self, memory: Any, *, unified: bool) -> None:
        self._memory = memory
        self._unified = unified

    def make_room(self, count: int) -> None:
        pass

    def wrote(self, sequence: int, end: int) -> None:
        pass

    def remove(self, sequence: int, start: int) -> bool:
        return bool(llama_cpp.llama_memory_seq_rm(self._memory, sequence, start, -1))

    def copy(self, source: int, target: int, length: int) -> None:
        if self._unified:
            llama_cpp.llama_memory_seq_cp(self._memory, source, target, 0, length)
        else:  # separate pools are only copied whole
            llama_cpp.llama_memory_seq_cp(self._memory, source, target, -1, -1)
            self.remove(target, length)


class OrderedCells:
    def __init__(self, handle: Any, memory: Any, *, cells: int, dead: int) -> None:
        """`cells`: size of the cache. `dead`: the sequence that keeps what was rolled back."""
        self._handle = handle
        self._memory = memory
        self._cells = cells
        self._dead = dead
        self._lengths: dict[int, int] = {}
        self._end = 0
        """Cells of the log; llama.cpp's next is the one behind."""

    def make_room(self, count: int) -> None:
        live = sum(self._lengths.values())
        if self._end + count > self._cells or self._end > 2 * live + SLACK:
            self._rewrite()

    def wrote(self, sequence: int, end: int) -> None:
        self._lengths[sequence] = end
        self._end += 1

    def remove(self, sequence: int, start: int) -> bool:
        if self._lengths.get(sequence, 0) <= start:
            return True
        llama_cpp.llama_memory_seq_cp(self._memory, sequence, self._dead, start, -1)
        self._lengths[sequence] = start
        return bool(llama_cpp.llama_memory_seq_rm(self._memory, sequence, start, -1))

    def copy(self, source: int, target: int, length: int) -> None:
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, 0, length)
        self._lengths[target] = length

    def _rewrite(self) -> None:
        """Save the live sequences, empty the cache, and put them back in one piece each."""
        saved = [(sequence, self._save(sequence)) for sequence, length in self._lengths.items() if length]
        llama_cpp.llama_memory_clear(self._memory, False)
        for sequence, data in saved:
            if not llama_cpp.llama_state_seq_set_data(self._handle, data, len(data), sequence):
                raise RuntimeError(f"sequence {sequence} can't be put back into the KV cache")
        self._end = sum(self._lengths.values())

    def _save(self, sequence: int) -> ctypes.Array[ctypes.c_uint8]:
        size = llama_cpp.llama_state_seq_get_size(self._handle, sequence)
        data: ctypes.Array[ctypes.c_uint8] = (ctypes.c_uint8 * size)()
        llama_cpp.llama_state_seq_get_data(self._handle, data, size, sequence)
        return data
