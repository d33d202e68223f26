"""`bench load`: thousands of hybrid streams over a few sockets, a gateway on one core and its clients on the other.

Every stream is a device's: the product's own drafting state machine, one draft for each commit, a good half of them
right; the model is scripted on both sides, so each token that comes is compared with what the target says.

    delay        from when a step's tokens leave the engine's thread until a stream's commit is decoded at the client
    µs           CPU time of the gateway's event loop (the scripted engine has a thread of its own): first without
                 drafts, divided by commits; then with drafts, what is more than that, divided by draft frames
    kB a stream  what the gateway's memory grew by from before the first socket, divided by streams
    soak         streams end and others begin, sockets break and come back; slopes by least squares past the first third
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import psutil
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from bench.gateway import Address, Plan, cores, gateway, pinned
from bench.report import Report, machine
from edge.protocol import frames
from edge.protocol.drafting import DraftingSession
from edge.protocol.errors import ProtocolError
from edge.protocol.ledger import Ledger
from edge.script import Script, ScriptVocabulary

ALPHA: Final = 0.6
PROMPTS: Final = tuple((number, number + 1, number + 2) for number in range(40, 44))
LONGEST: Final = 500
"""Tokens of a stream: more than a run takes."""
WARM_S: Final = 5.0
"""At most; never more than a part of the run takes."""
SAMPLE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Crowd:
    streams: int
    sockets: int
    seconds: float
    step_s: float
    soak_s: float


@dataclass(slots=True)
class Tally:
    began: int = 0
    """Streams that have had a commit."""
    commits: int = 0
    drafts: int = 0
    ended: int = 0
    errors: int = 0
    faults: list[str] = field(default_factory=list)
    """The first few."""
    arrivals: array[float] = field(default_factory=lambda: array("d"))
    """Of commits, on the monotonic clock that the gateway's process has too."""

    def fault(self, what: str) -> None:
        self.errors += 1
        if len(self.faults) < 5:
            self.faults.append(what)


class References:
    """What the target says to each prompt."""

    def __init__(self) -> None:
        script = Script(ScriptVocabulary())
        self.fingerprint = script.vocabulary.fingerprint
        self.vocabulary = script.vocabulary.size
        self.tokens = [script.greedy(prompt, LONGEST) for prompt in PROMPTS]


class Socket:
    """One device: some streams, one reader. `drafting`: whether a commit is answered by a draft."""

    def __init__(self, address: Address, references: References, tally: Tally, random: Random) -> None:
        self._address = address
        self._references = references
        self._tally = tally
        self._random = random
        self._codec = frames.edge_codec()
        self._sessions: dict[int, tuple[DraftingSession, list[int]]] = {}
        self._next = 0
        self.drafting = False
        self.socket: ClientConnection | None = None

    async def dial(self) -> None:
        url = f"ws://127.0.0.1:{self._address.port}/v1/verify"
        protocols = [Subprotocol(frames.MSGPACK)]
        self.socket = await connect(
            url, subprotocols=protocols, compression=None, ping_interval=None, max_queue=None, open_timeout=60
        )
        await self._send(frames.Hello(frames.VERSION, self._address.key, fingerprint=self._references.fingerprint))

    async def open(self, tokens: int = LONGEST) -> None:
        number, which = self._next, self._random.randrange(len(PROMPTS))
        self._next += 1
        reference = self._references.tokens[which]
        self._sessions[number] = DraftingSession(number, window=4, block=1, ledger=Ledger()), reference
        greedy = frames.Sampling(temperature=0)
        await self._send(frames.Open(number, "scripted", PROMPTS[which], sampling=greedy, max_tokens=tokens))

    async def read(self, ended: Callable[[], Awaitable[None]]) -> None:
        """Until the socket is lost. `ended`: told when a stream has ended."""
        assert self.socket is not None  # noqa: S101
        async for data in self.socket:
            frame = self._codec.decode(data)
            if isinstance(frame, frames.Commit):
                await self._commit(frame)
            elif isinstance(frame, frames.Opened):
                self._sessions[frame.stream][0].opened(frame)
            elif isinstance(frame, frames.Finish):
                del self._sessions[frame.stream]
                self._tally.ended += 1
                await ended()
            elif isinstance(frame, frames.Error):
                self._tally.fault(f"{frame.code}: {frame.message}")

    async def _commit(self, frame: frames.Commit) -> None:
        self._tally.arrivals.append(time.monotonic())
        self._tally.commits += 1
        self._tally.began += frame.start == 0
        session, reference = self._sessions[frame.stream]
        try:
            session.commit(frame)
        except ProtocolError as error:
            self._tally.fault(error.code)
            return
        if list(frame.tokens) != reference[frame.start : frame.start + len(frame.tokens)]:
            self._tally.fault("another token than the target's")
        if self.drafting and session.wants_draft and session.end < len(reference):
            right = self._random.random() < ALPHA
            session.draft(reference[session.end] if right else (reference[session.end] + 1) % 256)
            if (draft := session.next_block(flush=True)) is not None:
                self._tally.drafts += 1
                await self._send(draft)

    async def _send(self, frame: frames.EdgeFrame) -> None:
        assert self.socket is not None  # noqa: S101
        await self.socket.send(self._codec.encode(frame))


@dataclass(frozen=True, slots=True)
class Spent:
    """Of the gateway, at one moment."""

    loop_s: float
    commits: int
    drafts: int

    @classmethod
    def now(cls, process: psutil.Process, tally: Tally) -> Spent:
        (own,) = (thread for thread in process.threads() if thread.id == process.pid)
        return cls(own.user_time + own.system_time, tally.commits, tally.drafts)


async def steady(crowd: Crowd, address: Address, process: psutil.Process, before: int) -> dict[str, Any]:
    """All streams at once, none of which ends; `before`: the gateway's memory, bytes."""
    references, tally = References(), Tally()
    sockets = [Socket(address, references, tally, Random(number)) for number in range(crowd.sockets)]  # noqa: S311
    for each in sockets:
        await each.dial()
    reading = [asyncio.create_task(each.read(_nothing)) for each in sockets]
    for number in range(crowd.streams):
        await sockets[number % crowd.sockets].open()
    while tally.began < crowd.streams and not any(task.done() for task in reading):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    await asyncio.sleep(min(WARM_S, crowd.seconds))
    plain = await _spend(crowd.seconds, process, tally)
    for each in sockets:
        each.drafting = True
    await asyncio.sleep(min(WARM_S, crowd.seconds))
    tally.arrivals = array("d")
    drafted = await _spend(crowd.seconds, process, tally)
    memory = process.memory_info().rss
    lost = sum(task.done() for task in reading)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    for each in sockets:
        if each.socket is not None:
            each.socket.transport.abort()
    us_per_commit = 1e6 * plain.loop_s / plain.commits
    return {
        "streams": crowd.streams,
        "sockets": crowd.sockets,
        "errors": tally.errors + lost,
        "faults": tally.faults,
        "commits_per_stream_s": drafted.commits / crowd.streams / crowd.seconds,
        "draft_frames_per_s": drafted.drafts / crowd.seconds,
        "us_per_commit": us_per_commit,
        "us_per_draft_frame": 1e6 * (drafted.loop_s - us_per_commit / 1e6 * drafted.commits) / drafted.drafts,
        "loop_busy": drafted.loop_s / crowd.seconds,
        "kb_per_stream": (memory - before) / crowd.streams / 1e3,
        "arrivals": tally.arrivals,
    }


async def _nothing() -> None:
    return None


async def _spend(seconds: float, process: psutil.Process, tally: Tally) -> Spent:
    first = Spent.now(process, tally)
    await asyncio.sleep(seconds)
    last = Spent.now(process, tally)
    return Spent(last.loop_s - first.loop_s, last.commits - first.commits, last.drafts - first.drafts)


async def soak(crowd: Crowd, address: Address, process: psutil.Process, report: Report) -> dict[str, Any]:
    """Streams of 20 to 120 tokens; each socket lives for 20 to 90 s, and one in two is cut off without a word."""
    references, tally, stop = References(), Tally(), asyncio.Event()

    async def device(number: int) -> None:
        random = Random(number)  # noqa: S311
        while not stop.is_set():
            one = Socket(address, references, tally, random)
            one.drafting = True
            await one.dial()

            async def another(one: Socket = one) -> None:
                await one.open(random.randint(20, 120))

            for _ in range(crowd.streams // crowd.sockets):
                await another()
            reading = asyncio.create_task(one.read(another))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(random.uniform(20, 90)):
                    await stop.wait()
            assert one.socket is not None  # noqa: S101
            if reading.done():
                tally.fault("a socket was lost")
            reading.cancel()
            if random.random() < 0.5:
                one.socket.transport.abort()
            else:
                await one.socket.close()
            await asyncio.gather(reading, return_exceptions=True)

    devices = asyncio.gather(*(device(number) for number in range(crowd.sockets)))
    times, memory, handles, began = list[float](), list[float](), list[int](), time.monotonic()
    while (at := time.monotonic() - began) < crowd.soak_s and not devices.done():
        times.append(at / 60)
        memory.append(process.memory_info().rss / 1e6)
        handles.append(process.num_fds())
        if len(times) % 12 == 0:
            report.say(f"{at:5.0f} s  {memory[-1]:6.1f} MB  {handles[-1]} handles  {tally.ended} ended")
        await asyncio.sleep(SAMPLE_S)
    stop.set()
    with contextlib.suppress(ConnectionClosed):
        await devices
    past = len(times) // 3
    return {
        "soak_s": crowd.soak_s,
        "soak_errors": tally.errors,
        "soak_faults": tally.faults,
        "soak_streams_ended": tally.ended,
        "soak_rss_mb": memory[-1],
        "soak_slope_mb_per_min": float(np.polyfit(times[past:], memory[past:], 1)[0]),
        "soak_handles": [min(handles[past:]), max(handles[past:])],
        "soak_handles_slope_per_min": float(np.polyfit(times[past:], handles[past:], 1)[0]),
    }


def delays_ms(steps: np.ndarray[Any, Any], arrivals: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """From the last step that ended before each arrival, milliseconds. Both ascending, seconds."""
    at = np.searchsorted(steps, arrivals, side="right") - 1
    delays: np.ndarray[Any, Any] = (arrivals[at >= 0] - steps[at[at >= 0]]) * 1e3
    return delays


async def measure(crowd: Crowd, report: Report) -> dict[str, Any]:
    client, server = cores()
    with tempfile.TemporaryDirectory() as folder, pinned(client):
        times = Path(folder) / "times"
        plan = Plan(
            engine="scripted",
            step_s=crowd.step_s,
            core=server,
            streams=crowd.streams,
            queue=2 * crowd.streams,
            step_tokens=8 * crowd.streams,
            prefill_tokens=crowd.streams,
            tenant_streams=8 * crowd.streams,
            grace_s=10.0,
            times=str(times),
        )
        async with gateway(plan) as address:
            process = psutil.Process(address.pid)
            found = await steady(crowd, address, process, process.memory_info().rss)
            steps = np.fromfile(times)
            delays = delays_ms(steps, np.array(found.pop("arrivals")))
            for quantile in (50, 99):
                found[f"commit_delay_p{quantile}_ms"] = float(np.percentile(delays, quantile))
            if crowd.soak_s:
                await asyncio.sleep(plan.grace_s + 2)
                found |= await soak(crowd, address, process, report)
    return found


def command(report: Report, crowd: Crowd) -> None:
    data = asyncio.run(measure(crowd, report))
    report.table("Hybrid streams, scripted engine", [data])
    report.result({**data, "load_1m": machine()["load_1m"]})
