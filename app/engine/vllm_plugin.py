"""Drafts from afar inside vLLM. Loaded by name in its EngineCore process and its workers; imports nothing of the
gateway's.

vLLM checks what a request holds in `spec_token_ids`, wherever it came from. So the scheduler below puts a stream's
drafts there just before each step, and a proposer that proposes nothing keeps vLLM from looking for its own:

    utility call ──► RemoteStream.offer ──► schedule: candidates ──► vLLM's step ──► update_from_output: take, report

A stream that isn't due (it holds, or nobody reads it) is passed over by `next_decode_eligible_step`: its KV cache and
its place in the batch stay. When nothing is due the loop sleeps on its queue until a draft comes, or the alarm rings.
A parked stream gives its place to one that waits.

Written against vLLM 0.32; `missing_hooks` (vllm_hooks.py) says at the start what another version lacks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.engine.core import EngineCore
from vllm.v1.request import Request, RequestStatus
from vllm.v1.sample import rejection_sampler

from app.engine.auto import Plan
from app.engine.vllm_stream import KEY, RemoteStream
from app.engine.vllm_turns import Part, Seat, Turns

_NEVER = 1 << 62
"""A step that never comes."""
_FAR = float("inf")
_RANK_EVERY = 8
"""Steps."""


class NullProposer:
    """Drafts come from afar, so the engine's own proposer proposes nothing."""

    def __init__(self, vllm_config: Any) -> None:
        if vllm_config.scheduler_config.async_scheduling:
            from app.engine import vllm_ahead

            vllm_ahead.install()

    def load_model(self, *_: Any, **__: Any) -> None:
        """vLLM calls it for every proposer."""

    def propose(self, sampled_token_ids: Sequence[Any], *_: Any, **__: Any) -> list[list[int]]:
        return [[] for _ in sampled_token_ids]


def expand_batch_to_tokens(
    x: torch.Tensor, cu_num_tokens: torch.Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0
) -> torch.Tensor:
    """Repeat each request's value for each of its drafts, as vLLM's function of that name does.

    On a CPU, 0.32.0's own leaves its result uninitialised: temperature, top_k and top_p are then garbage wherever
    drafts are checked.
    """
    counts = torch.diff(cu_num_tokens.long(), prepend=cu_num_tokens.new_zeros(1).long())
    if replace_from != replace_to:
        x = torch.where(x == replace_from, torch.as_tensor(replace_to, dtype=x.dtype, device=x.device), x)
    return torch.repeat_interleave(x, counts, output_size=num_tokens)


if not torch.cuda.is_available():
    rejection_sampler.expand_batch_to_tokens = expand_batch_to_tokens

_check = rejection_sampler.RejectionSampler.forward


def sample(self: Any, metadata: Any, draft_probs: Any, logits: torch.Tensor, sampling_metadata: Any) -> Any:
    """A step that checks no drafts samples as vLLM does without speculation: the other way costs 1 to 2% of a step."""
    if metadata.max_spec_len == 0:
        return self.sampler(logits=logits, sampling_metadata=sampling_metadata)
    return _check(self, metadata, draft_probs, logits, sampling_metadata)


rejection_sampler.RejectionSampler.forward = sample


class Alarm:
    """Calls `ring` in a thread of its own at the time it is set to; the earliest of several."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._at: float | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="paceline-alarm", daemon=True).start()

    def set(self, at: float) -> None:
        """`at`: seconds of the monotonic clock."""
        with self._changed:
            if self._at is None or at < self._at:
                self._at = at
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._at is None or self._at > time.monotonic():
                    self._changed.wait(None if self._at is None else max(0.0, self._at - time.monotonic()))
                self._at = None
            self._ring()


class DraftScheduler(AsyncScheduler):
    """vLLM's scheduler, with the drafts of remote devices. Runs in EngineCore's one thread.

    It serves both ways of running vLLM: with one step at a time, or (async_scheduling) with the next one planned while
    one runs. Then a request's `num_output_placeholders` are its tokens under way, if all of its drafts are accepted.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.scheduler_config.async_scheduling:
            _keep_ahead(self.vllm_config)
        self.streams: dict[str, RemoteStream] = {}
        """By the stream's id, as utility calls name it; and below by the request's, as vLLM does."""
        self._by_request: dict[str, RemoteStream] = {}
        self._over: dict[str, RemoteStream] = {}
        """Ended in the step under way: their last output still gets its report."""
        self._aside: dict[str, Request] = {}
        """Parked requests that gave up their place in the batch."""
        self.turns = Turns(self.num_spec_tokens)
        self._ended: Any = None
        """The step (SchedulerOutput) whose output is being taken, and how long it took."""
        self._ended_s = 0.0
        self._now = 0.0
        self.alarm: Alarm | None = None

    # What utility calls do.

    def offer(self, drafts: Sequence[tuple[str, int, int, Sequence[int]]]) -> list[tuple[str, int]]:
        """Take (stream, epoch, start, tokens); returns (stream, lowest epoch taken again) of those refused."""
        now = time.monotonic()
        self.turns.until = None
        refused: list[tuple[str, int]] = []
        for name, epoch, start, tokens in drafts:
            stream = self.streams.get(name)
            lowest = None if stream is None else stream.offer(epoch, start, tokens, now)
            if lowest is not None:
                refused.append((name, lowest))
        return refused

    def park(self, parks: Sequence[tuple[str, int | None]]) -> None:
        """Streams that nobody reads, and the length at which they stop; None: somebody reads again."""
        for name, at in parks:
            if name in self.streams:
                self.streams[name].park_at = at

    # What vLLM calls.

    def add_request(self, request: Request) -> None:
        params = request.sampling_params
        stream = None if params is None else RemoteStream.of(params.extra_args, request.max_tokens)
        if stream is not None:
            self.streams[stream.id] = self._by_request[request.request_id] = stream
            self.turns.enter(stream)
        super().add_request(request)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        now = time.monotonic()
        self._move_parked()
        self._rank()
        plan, seats = self._prepare(now)
        output = super().schedule(*args, **kwargs)
        self.turns.planned(now, seats, plan)
        return output

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        super()._update_after_schedule(scheduler_output)
        for name in scheduler_output.num_scheduled_tokens:
            self.requests[name].spec_token_ids = []  # else as many drafts as a drafter in the worker would make

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        now = self._now = time.monotonic()
        self._ended, self._ended_s = scheduler_output, self.turns.seconds(now)
        streams = self._streams_of(scheduler_output)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        for of_client in outputs.values():
            for output in of_client.outputs:
                stream = self._by_request.get(output.request_id) or self._over.get(output.request_id)
                if stream is not None:
                    said = output.kv_transfer_params
                    output.kv_transfer_params = (
                        {KEY: stream.report()} if said is None else {**said, KEY: stream.report()}
                    )
        self._over.clear()
        self.turns.stepped(self._parts(streams), now)
        return outputs

    def _update_request_with_output(self, request: Request, new_token_ids: list[int], *args: Any, **kwargs: Any) -> Any:
        result = super()._update_request_with_output(request, new_token_ids, *args, **kwargs)
        stream = self._by_request.get(request.request_id)
        if stream is not None:
            checked = self._ended.scheduled_spec_decode_tokens.get(request.request_id, ())
            stream.step_tokens = self._ended.total_num_scheduled_tokens
            stream.take(result[0], checked, self._now, self._ended_s)
        return result

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        """The proposer's (empty) drafts must not take the place of the devices'."""

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        stream = self._by_request.pop(request.request_id, None)
        self._aside.pop(request.request_id, None)
        if stream is not None:
            self.streams.pop(stream.id, None)
            self._over[request.request_id] = stream
            self.turns.leave(stream)
        return super()._free_request(request, *args, **kwargs)

    def get_num_unfinished_requests(self) -> int:
        """What isn't due is no work: without any the loop sleeps on its queue, and the alarm wakes it."""
        now, parked, wake = time.monotonic(), 0, _FAR
        unfinished: int = super().get_num_unfinished_requests()
        for request in self.running:
            stream = self._by_request.get(request.request_id)
            if stream is None or not _decodes(request) or self._due(request, stream, now):
                return unfinished
            parked += stream.parked
            wake = min(wake, self._wakes(stream))
        unfinished -= len(self.running)
        unfinished += sum(not self._by_request[name].parked for name in self._aside)
        if len(self.running) == self.max_num_running_reqs and not parked:  # and nobody can make room
            unfinished = 0
        if unfinished <= 0 and wake < _FAR and self.alarm is not None:
            self.alarm.set(wake)
        return unfinished

    # How a step is prepared.

    def _due(self, request: Request, stream: RemoteStream, now: float) -> bool:
        if self.turns.until is not None and now < self.turns.until and stream.decided:
            return False
        return stream.due(now, request.num_output_placeholders)

    def _wakes(self, stream: RemoteStream) -> float:
        """When a stream that isn't due becomes so by itself."""
        until = self.turns.until if stream.decided else stream.waits_until()
        return _FAR if until is None else until

    def _prepare(self, now: float) -> tuple[Plan, int]:
        """Put the streams' drafts where vLLM looks for them, or have streams passed over. Returns what was decided for
        those of policy `auto`, and how many there are.
        """
        seats: list[Seat] = []
        requests: list[Request] = []
        others = len(self.waiting)
        for request in self.running:
            stream = self._by_request.get(request.request_id)
            request.spec_token_ids = []
            if stream is None:
                others += 1
                continue
            flying = request.num_output_placeholders
            request.next_decode_eligible_step = 0
            if not _decodes(request):
                others += request.num_tokens - request.num_computed_tokens
            elif not stream.due(now, flying):
                request.next_decode_eligible_step = _NEVER
            elif stream.decided:
                seats.append(Seat(stream, request.num_tokens, flying))
                requests.append(request)
            else:
                others += 1 + self._draft(request, stream, self.num_spec_tokens, now)
        room = max(0, self.max_num_scheduled_tokens - others - len(seats))
        plan = self.turns.plan(seats, now, others=others, room=room)
        for i, (request, seat) in enumerate(zip(requests, seats, strict=True)):
            if plan.until is not None or i in plan.held:
                request.next_decode_eligible_step = _NEVER
            else:
                self._draft(request, seat.stream, plan.shares[i], now)
        self.turns.look(seats, room)
        return plan, len(seats)

    def _draft(self, request: Request, stream: RemoteStream, limit: int, now: float) -> int:
        """Have up to `limit` drafts checked. Returns how many."""
        flying = request.num_output_placeholders
        candidates = stream.candidates(limit, now, flying)
        if candidates and request.use_structured_output:
            if flying:  # what the grammar allows behind tokens that aren't known can't be said: wait for them
                request.next_decode_eligible_step = _NEVER
                return 0
            candidates = self.structured_output_manager.validate_tokens(request, candidates)
        request.spec_token_ids = candidates
        return len(candidates)

    def _rank(self) -> None:
        """vLLM takes the lowest priority first from those that wait, and the highest when memory must be freed.

        For want of the second alone a step in eight is often enough.
        """
        if not self.waiting and self.turns.steps % _RANK_EVERY:
            return
        priorities: dict[str, int] = {}

        def rank(request: Request) -> None:
            stream = self._by_request.get(request.request_id)
            if stream is not None:
                if stream.tenant not in priorities:
                    priorities[stream.tenant] = self.turns.priority(stream.tenant)
                request.priority = priorities[stream.tenant]

        for request in self.running:
            rank(request)
        if len(self.waiting) > 1 and len(self.running) < self.max_num_running_reqs:
            waiting = list(self.waiting)
            self.waiting.remove_requests(waiting)
            for request in waiting:
                rank(request)
                self.waiting.add_request(request)

    def _streams_of(self, scheduler_output: Any) -> dict[str, RemoteStream]:
        """Those of our streams that have a part in a step. What it gives them is noted there."""
        streams: dict[str, RemoteStream] = {}
        for name in scheduler_output.num_scheduled_tokens:
            if (stream := self._by_request.get(name)) is not None:
                stream.gave = 0
                streams[name] = stream
        return streams

    def _parts(self, streams: dict[str, RemoteStream]) -> list[Part]:
        """Of the step that ended."""
        computed, checked = self._ended.num_scheduled_tokens, self._ended.scheduled_spec_decode_tokens
        parts: list[Part] = []
        for name, stream in streams.items():
            count, request = computed[name], self.requests.get(name)
            decodes = count == 1 + (len(checked[name]) if name in checked else 0)
            parts.append(Part(stream, count, decodes, 0 if request is None else request.num_tokens, stream.gave))
        return parts

    def _move_parked(self) -> None:
        """Parked streams leave the batch to those that wait for a place, and come back when they are read."""
        for name, request in list(self._aside.items()):
            if not self._by_request[name].parked:
                del self._aside[name]
                self.waiting.prepend_request(request)
        for request in [request for request in self.waiting if self._is_parked(request)]:
            self._set_aside(request)  # preempted for want of memory: running again it would say one token more
        if self.waiting and len(self.running) >= self.max_num_running_reqs:
            parked = next((request for request in self.running if self._can_leave(request)), None)
            if parked is not None:
                self.running.remove(parked)
                self._preempt_request(parked, time.monotonic())
                self._set_aside(parked)

    def _can_leave(self, request: Request) -> bool:
        return self._is_parked(request) and _decodes(request) and not request.num_output_placeholders

    def _is_parked(self, request: Request) -> bool:
        stream = self._by_request.get(request.request_id)
        return stream is not None and stream.parked

    def _set_aside(self, request: Request) -> None:
        if request.status is RequestStatus.PREEMPTED:
            self.waiting.remove_request(request)
            self._aside[request.request_id] = request


def _keep_ahead(config: Any) -> None:
    """EngineCore checks its configuration once more when all is up, and would refuse to plan ahead (vllm_start.py)."""
    check = config.__post_init__

    def check_again() -> None:
        config.scheduler_config.async_scheduling = None
        check()
        config.scheduler_config.async_scheduling = True

    object.__setattr__(config, "__post_init__", check_again)


def _decodes(request: Request) -> bool:
    """Whether its next step is one token (and drafts behind it): the prompt is through, or in the step under way."""
    flying = request.num_output_placeholders
    through: bool = request.num_computed_tokens == request.num_tokens - 1 + flying
    return through and request.num_output_tokens + flying > 0


# Utility calls: whatever is an attribute of EngineCore can be called from the gateway's process.


def paceline_start(core: EngineCore) -> str:
    """Give the scheduler what it needs of the core. Returns the name of what schedules."""
    scheduler: Any = core.scheduler
    if isinstance(scheduler, DraftScheduler) and scheduler.alarm is None:
        queue: Any = core.input_queue  # EngineCoreProc's
        scheduler.alarm = Alarm(lambda: queue.put_nowait((EngineCoreRequestType.WAKEUP, None)))
        core.check_for_draft_tokens = False  # else each step ends by asking the workers for the proposer's drafts
    return type(scheduler).__name__


def paceline_offer(core: EngineCore, drafts: Any) -> list[tuple[str, int]]:
    scheduler: Any = core.scheduler
    refused: list[tuple[str, int]] = scheduler.offer(drafts)
    return refused


def paceline_park(core: EngineCore, parks: Any) -> None:
    scheduler: Any = core.scheduler
    scheduler.park(parks)


def paceline_batches(core: EngineCore) -> list[tuple[int, int]]:
    """(streams in a step, how many such steps there were) since the last call."""
    scheduler: Any = core.scheduler
    batches = sorted(scheduler.turns.batches.items())
    scheduler.turns.batches.clear()
    return batches


def paceline_streams(core: EngineCore) -> list[str]:
    """Those that the scheduler knows."""
    scheduler: Any = core.scheduler
    return list(scheduler.streams)


for _call in (paceline_start, paceline_offer, paceline_park, paceline_batches, paceline_streams):
    setattr(EngineCore, _call.__name__, _call)
