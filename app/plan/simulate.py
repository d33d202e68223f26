"""The engine on a virtual clock: its scheduler, its streams and their mailboxes, with a formula for the model.

    arrivals ─► Cluster ─► Replica: devices ─► offers ─► Scheduler.schedule ─► step_s ─► Scheduler.update ─► commits
                              ▲                                                                                │
                              └────────────────────────────────────────────────────────────────────────────────┘

What decides anything is the product's code (scheduler.py, stream.py, verifying.py, pacing.py); what is made up is the
model (a draft is right or wrong), the step's time (hardware.py) and the network (a delay for each message).

Streams decode only: the context is there when they come, as with prompts that are prefilled on machines of their own.
The gateway's own work costs nothing here.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from app.engine.base import Request
from app.engine.scheduler import Batch, Capacity, Scheduler
from app.engine.stream import Stream
from app.plan.device import RIGHT, Device, Link
from app.plan.hardware import StepTime
from edge.pacing import AcceptanceRate, Measured, pace
from edge.protocol.frames import Policy, Sampling
from edge.protocol.ledger import agreement


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A stream that is asked for. Times in seconds."""

    at: float
    """At the gateway."""
    tokens: int
    policy: Policy = "eager"
    draft_s: float = math.inf
    """t_d; inf: the client has no drafter."""
    right: Callable[[int], bool] = lambda position: False
    alpha: float = 0.0
    rtt_s: float = 0.0
    jitter_s: float = 0.0
    """Standard deviation of the round trip."""
    draft_length: int | None = None
    """γ of `sync`."""
    tenant: str = "default"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a stream."""

    arrival: Arrival
    replica: int
    ttft_s: float
    itl_s: float
    """(last − first commit's arrival at the device) / (tokens − 1)."""
    steps: int
    verified: int
    drafted: int
    """By the device."""
    wasted: int
    ended: float


@dataclass(slots=True)
class Pacer:
    """What edge/run.py asks of edge.pacing after every commit."""

    arrival: Arrival
    bound: int
    cloud_window: int
    step_s: float | None = None
    rate: AcceptanceRate = field(default_factory=AcceptanceRate)

    def window(self, agreed: int, differed: int, step_s: float) -> int:
        self.rate.add(agreed, differed)
        if step_s:
            self.step_s = step_s if self.step_s is None else self.step_s + 0.2 * (step_s - self.step_s)
        arrival = self.arrival
        measured = Measured(arrival.rtt_s, arrival.draft_s, self.step_s, self.rate.value)
        chosen = pace(measured, arrival.policy, bound=self.bound, draft_length=arrival.draft_length)
        return min(chosen.window, self.cloud_window)


@dataclass(slots=True)
class _Job:
    arrival: Arrival
    stream: Stream
    device: Device


class Replica:
    """One engine. `now` is the time up to which all of it is known."""

    def __init__(self, index: int, capacity: Capacity, step_time: StepTime, rng: random.Random, window: int) -> None:
        self.now = 0.0
        self.steps = 0
        self.busy_s = 0.0
        self.outcomes: list[Outcome] = []
        self._index = index
        self._step_time = step_time
        self._rng = rng
        self._window = window
        self._scheduler = Scheduler(capacity)
        self._jobs: dict[Stream, _Job] = {}
        self._count = 0

    @property
    def streams(self) -> int:
        return len(self._jobs)

    def add(self, arrival: Arrival) -> None:
        """Take a stream whose time has come (`now` has reached it)."""
        self._count += 1
        capacity = self._scheduler.capacity
        request = Request(
            id=f"{self._index}-{self._count}",
            tenant=arrival.tenant,
            prompt=(self._count % (1 << 30) + 2,),
            sampling=Sampling(temperature=0, seed=0),
            max_tokens=arrival.tokens,
            policy=arrival.policy,
        )
        stream = Stream.of(request, context=capacity.context)
        one_way, spread = arrival.rtt_s / 2, arrival.jitter_s / math.sqrt(2)
        gauss = self._rng.gauss

        def delay_s() -> float:
            return max(0.0, gauss(one_way, spread)) if spread else one_way

        pacer = Pacer(arrival, stream.verifier.held_tokens, self._window)
        block = pacer.window(0, 0, 0.0) if arrival.policy == "sync" else 1
        device = Device(
            arrival.right, arrival.draft_s, Link(delay_s), Link(delay_s), arrival.tokens, pacer.window, block
        )
        self._jobs[stream] = _Job(arrival, stream, device)
        self._scheduler.add(stream)
        device.open(self.now - one_way)  # it drafts from the moment that it asks

    def step(self, until: float) -> None:
        """One step if anything is due by `until`, else go to `until`, the next arrival."""
        while True:
            self._deliver()
            batch = self._scheduler.schedule(self.now)
            if batch.chunks:
                return self._run(batch)
            self.now = min(until, self._next_event())
            if self.now >= until:
                return None

    def _deliver(self) -> None:
        now = self.now
        for stream, job in self._jobs.items():
            device = job.device
            device.advance(now)
            while (draft := device.received(now)) is not None:
                at, epoch, start, tokens = draft
                stream.offer(epoch, start, tokens, at)

    def _next_event(self) -> float:
        """The engine idles: when something happens that may change that."""
        wakes_at = self._scheduler.wakes_at()
        times = [min(job.device.next_arrival(), job.device.next_event()) for job in self._jobs.values()]
        return min(min(times, default=math.inf), math.inf if wakes_at is None else wakes_at)

    def _run(self, batch: Batch) -> None:
        tokens = sum(len(chunk.run.tokens) for chunk in batch.chunks)
        step_s = self._step_time.step_s(tokens, len(batch.chunks))
        self.steps += 1
        self.busy_s += step_s
        self.now += step_s
        outputs = [_picked(chunk.stream, chunk.candidates) for chunk in batch.chunks]
        self._scheduler.update(batch, outputs, self.now)
        for chunk in batch.chunks:
            stream = chunk.stream
            job = self._jobs[stream]
            job.device.commit(self.now, stream.head, step_s)
            if stream.head >= stream.max_tokens:
                self._end(job)

    def _end(self, job: _Job) -> None:
        self._scheduler.end(job.stream)
        del self._jobs[job.stream]
        device, arrival = job.device, job.arrival
        device.settle()
        self.outcomes.append(
            Outcome(
                arrival,
                self._index,
                device.first - arrival.at + arrival.rtt_s / 2,
                (device.last - device.first) / max(1, arrival.tokens - 1),
                job.stream.steps,
                job.stream.verifier.stats.verified,
                device.drafted,
                device.wasted,
                self.now,
            )
        )


class Cluster:
    """Replicas that share the arrivals: each goes to the one with the fewest streams, as placement.py does."""

    def __init__(
        self, replicas: int, capacity: Capacity, step_time: StepTime, *, seed: int = 0, window: int = 32
    ) -> None:
        """`window`: how far ahead the gateway lets devices draft, tokens."""
        self.replicas = [
            Replica(i, capacity, step_time, random.Random(f"{seed}/{i}"), window)  # noqa: S311  a simulation
            for i in range(replicas)
        ]

    def run(self, arrivals: Iterable[Arrival], progress: Callable[[int], None] = lambda ended: None) -> list[Outcome]:
        """All streams to their ends. `arrivals` by time. `progress` hears how many have ended, after each arrival."""
        waiting = deque(arrivals)
        turns = [(replica.now, i) for i, replica in enumerate(self.replicas)]
        heapq.heapify(turns)
        while turns:
            now, i = turns[0]
            while waiting and waiting[0].at <= now:
                self._place(waiting.popleft(), now)
                progress(sum(len(replica.outcomes) for replica in self.replicas))
            replica = self.replicas[i]
            until = waiting[0].at if waiting else math.inf
            replica.step(until)
            if replica.streams or waiting:
                heapq.heapreplace(turns, (replica.now, i))
            else:
                heapq.heappop(turns)
        return [outcome for replica in self.replicas for outcome in replica.outcomes]

    def _place(self, arrival: Arrival, now: float) -> None:
        ready = [replica for replica in self.replicas if replica.now >= now]
        min(ready, key=lambda replica: replica.streams).add(arrival)


def _picked(stream: Stream, candidates: Sequence[int]) -> list[int]:
    """The target's tokens: the accepted candidates and one more, up to the end of the output."""
    accepted = agreement(candidates, (RIGHT,) * len(candidates))
    return [RIGHT] * min(accepted + 1, stream.max_tokens - stream.head)
