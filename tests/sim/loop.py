"""An event loop on virtual time: when nothing is ready, the clock jumps to the next timer.

Every callback belongs to the process in whose context it was scheduled. So a process can be frozen (its callbacks wait)
and killed (its tasks, timers and threads are gone), while the others go on.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from greenlet import getcurrent

from tests.sim import threads

T = TypeVar("T")


class Stuck(AssertionError):
    """Nothing can happen any more, or things happen without end."""


class Process:
    """What lives and dies as one: a gateway, a replica, a device."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen_until = 0.0
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.threads: dict[threads.Thread, None] = {}
        self.held: list[asyncio.Handle] = []
        """Callbacks that wait for the end of the freeze."""

    def __repr__(self) -> str:
        return self.name

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task in this process, whoever starts it."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class VirtualLoop(asyncio.BaseEventLoop):
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, latency: Callable[[], float], *, most_turns: int) -> None:
        """`latency`: how long it takes until a thread that was woken runs, seconds; drawn each time.

        `most_turns`: callbacks after which it counts as an endless loop.
        """
        super().__init__()
        self.now = 0.0
        self.latency = latency
        self.turns = 0
        self.hub = getcurrent()
        """The greenlet of the loop itself: threads that wait switch back to it."""
        self._most_turns = most_turns
        self.set_task_factory(_task)

    def time(self) -> float:
        return self.now

    def freeze(self, process: Process, seconds: float) -> None:
        """Nothing of the process runs for so long."""
        process.frozen_until = max(process.frozen_until, self.now + seconds)
        contextvars.Context().run(self.call_later, seconds, self._thaw, process)

    def kill(self, process: Process) -> None:
        """At once. What its tasks do as they unwind must have no effect: cut its network and disk before."""
        process.alive = False
        process.frozen_until = self.now
        self._thaw(process)
        for thread in list(process.threads):
            thread.kill()
        for handle in self._scheduled:
            if _process(handle) is process:
                handle.cancel()
        contextvars.Context().run(self._reap, process)

    def _reap(self, process: Process) -> None:
        """A task that takes its cancellation for something else is cancelled again: the dead don't go on."""
        for task in list(process.tasks):
            task.cancel()
        if process.tasks:
            self.call_later(0.01, self._reap, process)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        return super().run_in_executor(threads.Executor() if executor is None else executor, func, *args)

    def _thaw(self, process: Process) -> None:
        if process.frozen_until <= self.now:
            self._ready.extend(process.held)
            process.held.clear()

    def _write_to_self(self) -> None:
        """There is no selector to wake."""

    def _process_events(self, event_list: Any) -> None:
        pass

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0].cancelled():
            heapq.heappop(scheduled)
        if not ready:
            if not scheduled:
                raise Stuck("nothing is left to happen, and the simulation isn't over")
            self.now = max(self.now, scheduled[0].when())
        while scheduled and scheduled[0].when() <= self.now:
            ready.append(heapq.heappop(scheduled))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            process = _process(handle)
            if process is not None and process.frozen_until > self.now:
                process.held.append(handle)
                continue
            self.turns += 1
            handle._run()
        if self.turns > self._most_turns:
            raise Stuck(f"{self.turns} callbacks, and no end at {self.now:.3f} s")


def _process(handle: Any) -> Process | None:
    found: Process | None = handle._context.get(PROCESS)
    return found


def _task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    context = options.get("context")
    process = PROCESS.get() if context is None else context.get(PROCESS)
    task = asyncio.Task(work, loop=loop, **options)
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(lambda done: process.tasks.pop(done, None), context=contextvars.Context())
        if not process.alive:
            task.cancel()
    return task
