"""Threads as greenlets on the virtual loop: one runs at a time, and gives way only where a thread would wait.

`Thread`, `Condition` and `Executor` stand in for those of the standard library; a thread that is woken runs a drawn
latency later, so seeds differ in who comes first.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from concurrent import futures
from functools import partial
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    from tests.sim.loop import VirtualLoop

_LEAST_S = 1e-6


def _loop() -> VirtualLoop:
    loop: Any = asyncio.get_running_loop()
    return loop  # type: ignore[no-any-return]


class Thread:
    def __init__(self, target: Callable[[], object], name: str = "", daemon: bool | None = None) -> None:
        from tests.sim.loop import PROCESS

        self.target = target
        self.name = name
        self._loop = _loop()
        self._context = contextvars.copy_context()
        self._process = self._context.get(PROCESS)
        self._over = Condition()
        self._greenlet = greenlet(self._run, parent=self._loop.hub)
        self._greenlet.gr_context = contextvars.copy_context()

    def start(self) -> None:
        if self._process is not None:
            self._process.threads[self] = None
        _threads[self._greenlet] = self
        self.wake()

    def wake(self, after_s: float = 0.0) -> asyncio.TimerHandle:
        """Go on, in this thread's own process, after so long and the latency of a wake-up."""
        delay_s = after_s + _LEAST_S + self._loop.latency()
        return self._loop.call_later(delay_s, self._greenlet.switch, context=self._context)

    def give_way(self) -> None:
        """For the thread itself: wait until somebody wakes it."""
        self._loop.hub.switch()

    def join(self) -> None:
        while not self._greenlet.dead:
            self._over.wait()

    def kill(self) -> None:
        self._greenlet.throw(GreenletExit)
        self._forget()

    def _run(self) -> None:
        try:
            self.target()
        finally:
            self._forget()
            self._loop.call_soon(self._over.notify_all)

    def _forget(self) -> None:
        _threads.pop(self._greenlet, None)
        if self._process is not None:
            self._process.threads.pop(self, None)


_threads: dict[greenlet, Thread] = {}


def current() -> Thread:
    """The thread that asks."""
    return _threads[getcurrent()]


def sleep(seconds: float) -> None:
    thread = current()
    thread.wake(seconds)
    thread.give_way()


class Condition:
    """There is nothing to lock: nobody else runs until somebody waits."""

    def __init__(self) -> None:
        self._waiting: dict[Thread, asyncio.TimerHandle | None] = {}
        """Beside each: what will wake it if nobody does."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None and timeout <= 0:
            return False
        thread = current()
        self._waiting[thread] = None if timeout is None else thread.wake(timeout)
        thread.give_way()
        if thread in self._waiting:
            del self._waiting[thread]
            return False
        return True

    def notify(self) -> None:
        if self._waiting:
            thread = next(iter(self._waiting))
            expiry = self._waiting.pop(thread)
            if expiry is not None:
                expiry.cancel()
            thread.wake()

    def notify_all(self) -> None:
        while self._waiting:
            self.notify()


class Executor(futures.Executor):
    """Runs calls one after the other."""

    def __init__(self, max_workers: int = 1, thread_name_prefix: str = "") -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._thread: Thread | None = None
        self._closed = False

    def submit(self, call: Callable[..., Any], /, *args: Any, **options: Any) -> futures.Future[Any]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: futures.Future[Any] = futures.Future()
        self._calls.append(partial(_carry_out, future, partial(call, *args, **options)))
        if self._thread is None:
            self._thread = Thread(self._work)
            self._thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        if wait and self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while self._calls:
            self._calls.popleft()()
        self._thread = None


def _carry_out(future: futures.Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)
