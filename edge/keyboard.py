"""Lines from a person, while the event loop goes on: the connection stays alive between two questions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TextIO


async def read_line(prompt: Callable[[], None], file: TextIO | None = None) -> str | None:
    """The next line of `file` (stdin) without its end; None at the end of input. `prompt` is called first, to show one.

    No thread waits in `input()`: it could not be stopped when Ctrl-C ends the program. A terminal in line mode is
    readable when a line is whole, and has the kernel's line editing.
    """
    file = file or sys.stdin
    prompt()
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(file.fileno(), readable.set)
    except (OSError, NotImplementedError):  # a regular file is always readable, and not watchable
        readable.set()
    else:
        try:
            await readable.wait()
        finally:
            loop.remove_reader(file.fileno())
    line = file.readline()
    return line.rstrip("\r\n") if line else None
