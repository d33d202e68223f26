"""The plugin's scheduler with a stopwatch. Loaded by name in vllm's EngineCore process, by `bench vllm --overhead`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.engine.core import EngineCore

from app.engine.vllm_plugin import DraftScheduler


class Stopwatch:
    """Splits time between two parties that call each other: who was called last is charged."""

    def __init__(self) -> None:
        self.spent = {"ours": 0.0, "vllm": 0.0}
        self.steps = 0
        self._parties: list[str] = []
        self._since = 0.0

    def wrap(self, party: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._switch()
            self._parties.append(party)
            try:
                return function(*args, **kwargs)
            finally:
                self._switch()
                self._parties.pop()

        return timed

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._parties:
            self.spent[self._parties[-1]] += now - self._since
        self._since = now


_WATCHED = (
    "schedule", "update_from_output", "get_num_unfinished_requests", "add_request", "_update_after_schedule",
    "_update_request_with_output", "_free_request",
)  # fmt: skip
watch = Stopwatch()
for _name in _WATCHED:
    setattr(AsyncScheduler, _name, watch.wrap("vllm", getattr(AsyncScheduler, _name)))


class WatchedScheduler(DraftScheduler):
    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        watch.steps += bool(scheduler_output.total_num_scheduled_tokens)
        return super().update_from_output(scheduler_output, model_runner_output)


for _name in (*_WATCHED, "offer", "park"):
    setattr(WatchedScheduler, _name, watch.wrap("ours", getattr(WatchedScheduler, _name)))


def paceline_watch(core: EngineCore) -> tuple[int, float, float]:
    """(steps, seconds of ours, seconds of vLLM's own scheduling) since the last call."""
    del core
    told = watch.steps, watch.spent["ours"], watch.spent["vllm"]
    watch.steps, watch.spent["ours"], watch.spent["vllm"] = 0, 0.0, 0.0
    return told


EngineCore.paceline_watch = paceline_watch
