"""A virtual clock and a virtual network: frames are encoded, delayed, reordered across streams, lost with a socket.

A WebSocket keeps the order of its messages; what a peer may rely on is less: the order of one stream's frames. So each
stream has a lane of its own, and lanes overtake each other. Nothing is ever lost but by the loss of a socket: at the
n-th frame that is sent, whichever that is.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any, Protocol

from edge.protocol.frames import MSGPACK, Frame, cloud_codec, edge_codec


class Clock:
    """Runs actions in the order of their time; those of the same time in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._planned, (time, self._count, action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay_s, action)

    def run(self, *, most: int, observe: Callable[[], None] = lambda: None) -> None:
        """Until nothing is planned any more. `observe` is called after each action; more than `most` fail."""
        for _ in range(most):
            if not self._planned:
                return
            self.now, _, action = heapq.heappop(self._planned)
            action()
            observe()
        raise AssertionError(f"still busy after {most} actions, at {self.now:.3f} s")


class Loss(Enum):
    """How a socket ends."""

    CUT = "cut"
    """Both directions at once."""
    ABANDONED = "abandoned"
    """The edge gives it up; what it had sent still arrives, late, beside what it sends on its next socket."""
    RESTART = "restart"
    """With the gateway, which comes back without any state."""


class Peer(Protocol):
    def received(self, socket: Socket, frame: Any) -> None: ...

    def lost(self, socket: Socket) -> None:
        """This side has noticed that the socket is gone."""
        ...


class Gateway(Peer, Protocol):
    def restart(self) -> None:
        """Forget everything."""
        ...


@dataclass(slots=True)
class Weather:
    """What the network does, drawn once per example."""

    seed: int = 0
    delay_s: tuple[float, float] = (0.02, 0.02)
    """One way: least and most."""
    losses: Mapping[int, Loss] = field(default_factory=dict)
    """By number of the frame, counted over all sockets and directions, that the socket is lost with."""
    notice_s: float = 1.0
    """The longest that a side may take to notice a loss."""
    subprotocol: str = MSGPACK


class Network:
    """All sockets between the devices and one gateway."""

    def __init__(self, clock: Clock, weather: Weather, gateway: Gateway) -> None:
        self.clock, self.weather, self.gateway = clock, weather, gateway
        self.random = Random(weather.seed)  # noqa: S311
        self.frames = 0
        self.losses = 0
        self.sockets = 0
        self.sent_bytes = 0
        self._to_edge = edge_codec(weather.subprotocol)
        self._to_cloud = cloud_codec(weather.subprotocol)

    def connect(self, device: Peer) -> Socket:
        return Socket(self, device)

    def delay_s(self) -> float:
        return self.random.uniform(*self.weather.delay_s)

    def carry(self, frame: Frame, *, up: bool) -> Any:
        """What comes out at the other side: encoded by one codec, decoded by the other's."""
        sender, receiver = (self._to_edge, self._to_cloud) if up else (self._to_cloud, self._to_edge)
        data = sender.encode(frame)
        self.sent_bytes += len(data)
        return receiver.decode(data)


class Socket:
    """One connection of one device."""

    def __init__(self, network: Network, device: Peer) -> None:
        self._network, self._device = network, device
        self.number = network.sockets
        """In the order in which the gateway accepted them."""
        network.sockets += 1
        self._arrives = {True: True, False: True}
        self._lanes: dict[tuple[bool, int | None], float] = {}
        self._lost = False

    def send(self, frame: Frame, *, up: bool) -> None:
        """From the edge (`up`) or the cloud. Never fails: a side that hasn't noticed a loss sends into the void."""
        network, clock = self._network, self._network.clock
        lane = (up, getattr(frame, "stream", None))
        at = max(self._lanes.get(lane, 0.0), clock.now + network.delay_s())
        self._lanes[lane] = at
        decoded = network.carry(frame, up=up)
        clock.at(at, lambda: self._arrive(decoded, up=up))
        loss = network.weather.losses.get(network.frames)
        network.frames += 1
        if loss is not None and not self._lost:
            self.lose(loss)

    def lose(self, loss: Loss) -> None:
        """From now on nothing arrives; each side notices when it notices."""
        network = self._network
        self._lost = True
        network.losses += 1
        self._arrives = {True: loss is Loss.ABANDONED, False: False}
        if loss is Loss.RESTART:
            network.gateway.restart()
        notice_s = network.weather.notice_s
        network.clock.after(network.random.uniform(0, notice_s), lambda: self._device.lost(self))
        network.clock.after(network.random.uniform(0, notice_s), self._cloud_notices)

    def _cloud_notices(self) -> None:
        self._arrives[True] = False
        self._network.gateway.lost(self)

    def _arrive(self, frame: Any, *, up: bool) -> None:
        if self._arrives[up]:
            (self._network.gateway if up else self._device).received(self, frame)
