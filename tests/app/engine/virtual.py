"""Devices and a cloud under a virtual clock: the real scheduler and drafting state machine, with given durations.

Time passes only as said: a draft token takes `draft_s`, a frame `rtt_s` / 2, a step what the cost function says.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from app.engine.scheduler import Batch, Capacity, Chunk, Scheduler
from app.engine.stream import Stream
from edge.protocol import frames
from edge.protocol.drafting import DraftingSession
from edge.protocol.frames import Policy
from edge.protocol.verifying import accept
from tests.app.engine.requests import request

CostOf = Callable[[int, int], float]
"""Seconds of a step of so many tokens that reads so much context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A device's drafter and network, durations in seconds."""

    alpha: float = 0.8
    draft_s: float = 0.01
    rtt_s: float = 0.08
    drafts: bool = True


@dataclass(slots=True, eq=False)
class Device:
    number: int
    link: Link
    stream: Stream
    session: DraftingSession
    right: np.ndarray[tuple[int], np.dtype[np.bool_]]
    busy: bool = False
    times: list[float] = field(default_factory=list)
    """When each token was committed on the cloud."""

    def token(self, position: int) -> int:
        return 10 + position % 50 + (0 if self.right[position % len(self.right)] else 100)


class World:
    def __init__(
        self, cost: CostOf, links: list[Link], policy: Policy, *, tokens: int = 400, window: int = 16, prompt: int = 5
    ) -> None:
        capacity = Capacity(
            sequences=len(links),
            context=prompt + tokens + 8,
            kv_tokens=len(links) * (prompt + tokens + 8),
            step_tokens=512,
        )
        self.scheduler = Scheduler(capacity)
        self.now = 0.0
        self.steps = 0
        self._cost = cost
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = count()
        self._stepping = False
        self._over = False
        self._wakes_at = 0.0
        """A stream has ended: from here on it is another load."""
        self.devices: list[Device] = []
        for i, link in enumerate(links):
            stream = Stream.of(
                request(range(1, prompt + 1), max_tokens=tokens, policy=policy, tenant=f"t{i}"),
                context=capacity.context,
            )
            right = np.random.default_rng(i).random(4096) < link.alpha
            device = Device(i, link, stream, DraftingSession(0, window=window, block=1), right)
            self.devices.append(device)
            self.scheduler.add(stream)
            if link.drafts:
                self._after(link.rtt_s / 2, lambda d=device: self._draft(d))  # type: ignore[misc]

    def run(self) -> float:
        """Tokens per second of all streams together, over the time in which all of them run."""
        while not self._over:
            self._step()
            self.now, _, happens = heapq.heappop(self._events)
            happens()
        starts = max(device.times[0] for device in self.devices)
        made = sum(sum(at > starts for at in device.times) for device in self.devices)
        return made / (self.now - starts)

    def _after(self, delay_s: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay_s, next(self._count), happens))

    def _step(self) -> None:
        if self._stepping:
            return
        batch = self.scheduler.schedule(self.now)
        if batch.chunks:
            self._stepping = True
            self.steps += 1
            size = sum(len(run.tokens) for run in batch.runs)
            context = sum(run.start + len(run.tokens) for run in batch.runs)
            self._after(self._cost(size, context), lambda: self._stepped(batch))
            return
        at = self.scheduler.wakes_at()
        if at is not None and not self.now < self._wakes_at <= at:  # one alarm is enough
            self._wakes_at = max(self.now, at)
            self._after(max(0.0, at - self.now), lambda: None)

    def _stepped(self, batch: Batch) -> None:
        self._stepping = False
        outputs = [_answer(chunk) for chunk in batch.chunks]
        self.scheduler.update(batch, outputs, self.now)
        for chunk, tokens in zip(batch.chunks, outputs, strict=True):
            device = next(device for device in self.devices if device.stream is chunk.stream)
            self._over = self._over or device.stream.head == device.stream.max_tokens
            device.times += [self.now] * len(tokens)
            commit = frames.Commit(0, device.stream.head - len(tokens), tuple(tokens), 0)
            if tokens and device.link.drafts:
                self._after(device.link.rtt_s / 2, lambda d=device, c=commit: self._commit(d, c))  # type: ignore[misc]

    def _commit(self, device: Device, commit: frames.Commit) -> None:
        device.session.commit(commit)
        self._draft(device)

    def _draft(self, device: Device) -> None:
        if not device.busy and device.session.wants_draft:
            device.busy = True
            epoch = device.session.epoch
            self._after(device.link.draft_s, lambda: self._drafted(device, epoch))
        self._send(device)

    def _drafted(self, device: Device, epoch: int) -> None:
        device.busy = False
        if epoch == device.session.epoch and device.session.wants_draft:
            device.session.draft(device.token(device.session.end))
        self._draft(device)

    def _send(self, device: Device) -> None:
        block = device.session.next_block(flush=not device.session.wants_draft)
        if block is not None:
            self._after(device.link.rtt_s / 2, lambda: self._offer(device, block))

    def _offer(self, device: Device, block: frames.Draft) -> None:
        device.stream.offer(block.epoch, block.start, block.tokens, self.now)


def _answer(chunk: Chunk) -> list[int]:
    if not chunk.run.rows:
        return []
    head, most = chunk.stream.head, chunk.stream.max_tokens
    return accept(chunk.candidates, lambda i: 10 + (head + i) % 50)[: most - head]


def rate(cost: CostOf, links: list[Link], policy: Policy, tokens: int = 400) -> float:
    return World(cost, links, policy, tokens=tokens).run()
