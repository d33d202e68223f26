"""Lines from a person, while the event loop goes on: the connection stays alive between two questions."""

from __future__ import annotations

import asyncio
import os


class Lines:
    """Reads a file descriptor (0 is stdin) line by line.

    No thread waits in `input()`: it could not be stopped when Ctrl-C ends the program. A terminal in line mode becomes
    readable when a line is whole, and has the kernel's line editing.
    """

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._read = bytearray()
        self._ended = False

    async def next(self) -> str | None:
        """The next line without its end; None at the end of input."""
        while b"\n" not in self._read and not self._ended:
            await self._readable()
            data = os.read(self._descriptor, 1 << 16)
            self._read += data
            self._ended = not data
        if not self._read:
            return None
        line, _, rest = self._read.partition(b"\n")
        self._read = rest
        return line.decode("utf-8", errors="replace").removesuffix("\r")

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        try:
            loop.add_reader(self._descriptor, readable.set)
        except (OSError, NotImplementedError):  # a regular file is always readable, and not watchable
            return
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._descriptor)
