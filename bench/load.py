"""A streaming HTTP client of few instructions, so that a bench of the gateway measures the gateway: of an answer only
what tells that it is whole is parsed.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

_COMPLETION = re.compile(rb'"completion_tokens":\s*(\d+)')
_READ = 1 << 16


@dataclass(slots=True)
class Tally:
    """What clients have received."""

    requests: int = 0
    tokens: int = 0
    errors: int = 0
    gaps_s: list[float] = field(default_factory=list)
    """Between two arrivals of one answer, if asked for."""


async def one_answer(port: int, key: str, tally: Tally, *, model: str, tokens: int, gaps: bool = False) -> None:
    """Ask once and read to the end. What goes wrong counts as an error."""
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": "Go on."}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": tokens,
            "min_tokens": tokens,
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    tally.requests += 1
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        tally.errors += 1
        return
    try:
        writer.write(head.encode() + body)
        await _read(reader, tally, gaps=gaps)
    except (OSError, asyncio.IncompleteReadError):
        tally.errors += 1
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, tally: Tally, *, gaps: bool) -> None:
    status = await reader.readuntil(b"\r\n\r\n")
    end, last = b"", 0.0
    while data := await reader.read(_READ):
        now = time.perf_counter()
        if gaps and last:
            tally.gaps_s.append(now - last)
        last = now
        end = (end + data)[-2048:]
    counted = _COMPLETION.search(end)
    if b" 200 " not in status[:20] or b"[DONE]" not in end or counted is None:
        tally.errors += 1
        return
    tally.tokens += int(counted[1])


async def keep_asking(port: int, key: str, tally: Tally, stop: asyncio.Event, **options: Any) -> None:
    """One client: answer after answer, until told to stop."""
    while not stop.is_set():
        await one_answer(port, key, tally, **options)
