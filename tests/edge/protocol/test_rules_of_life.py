"""Rules 5 to 7 of docs/protocol.md: how streams end, are left and are resumed. As in test_rules.py."""

from __future__ import annotations

import pytest

from edge.openai.text import OutputText
from edge.protocol.drafting import DraftingSession
from edge.protocol.errors import Contradiction
from edge.protocol.frames import Commit, Finish, Resume, Usage
from tests.edge.protocol.cloud import END, Cloud, Machine, Stream, reference, target
from tests.edge.protocol.device import Device, Job
from tests.edge.protocol.network import Clock, Loss, Network, Socket, Weather

# Rule 5: ends


def ended(cloud: type[Cloud]) -> Job:
    """A stream whose end token lies inside an accepted run."""
    job = Job((1, 5), 50, lambda position, asked: target((1, 5), position), "hold", draft_s=0.001)
    clock = Clock()
    network = Network(clock, Weather(), cloud(clock, Machine(candidates=(16,))))
    Device(network, [job])
    clock.run(most=2000)
    return job


class PublishesPastTheEnd(Cloud):
    def _stepped(self, stream: Stream, candidates: tuple[int, ...]) -> None:
        super()._stepped(stream, candidates)
        if stream.reason == "stop":
            stream.ledger.append([7])
            stream.drafted.append(False)


def test_nothing_is_published_past_the_end() -> None:
    job = ended(Cloud)
    assert job.session.ledger.tokens[-1] == END
    assert job.done
    assert ended(PublishesPastTheEnd).session.ledger.tokens[-1] != END  # what the edge would show


def test_finish_says_how_long_the_output_is() -> None:
    session = DraftingSession(1)
    session.commit(Commit(1, 0, (10,)))
    with pytest.raises(Contradiction):
        session.finished(Finish(1, 2, "stop", None, Usage()))
    session.draft(11)
    session.next_block(flush=True)
    assert session.finished(Finish(1, 1, "stop", None, Usage())) == (11,)
    assert session.next_block(flush=True) is None
    assert not session.wants_draft


def test_text_that_may_begin_a_stop_string_is_withheld() -> None:
    text = OutputText(["END"])
    text.push(b"so EN")
    assert text.take() == "so "  # "so EN" could not be taken back
    assert text.push(b"D.")
    assert (text.take(), text.kept_bytes) == ("", 3)


# Rule 6: leaving


class World:
    """One device with one stream of 60 tokens, on a network that breaks at given frames."""

    def __init__(self, losses: dict[int, Loss], *, cloud: type[Cloud] = Cloud, notice_s: float = 0.1) -> None:
        self.clock = Clock()
        self.cloud = cloud(self.clock, Machine(grace_s=5.0))
        self.network = Network(self.clock, Weather(losses=losses, notice_s=notice_s), self.cloud)
        self.job = Job((3, 59), 99, lambda position, asked: target((3, 59), position))

    def run(self, *, dies_at: float | None = None) -> Job:
        self.device = Device(self.network, [self.job], dies_at=dies_at)
        self.clock.run(most=5000)
        return self.job


def test_a_stream_without_a_socket_runs_32_tokens_ahead_and_parks() -> None:
    class Watched(Cloud):
        ahead = 0

        def _stepped(self, stream: Stream, candidates: tuple[int, ...]) -> None:
            super()._stepped(stream, candidates)
            if stream.socket is None:
                Watched.ahead = max(Watched.ahead, stream.verifier.head - stream.sent)

    world = World({}, cloud=Watched)
    world.clock.at(0.3, lambda: world.device.socket.lose(Loss.CUT) if world.device.socket else None)
    world.run(dies_at=0.3)
    assert 32 <= Watched.ahead <= 32 + 8  # the step that passes 32 may accept a few more
    assert len(world.job.session.ledger) < 59
    assert not world.cloud.streams, "after the grace time nothing is left"


def test_a_dropped_connection_loses_and_doubles_nothing() -> None:
    world = World({30: Loss.CUT})
    assert world.run().session.ledger.tokens == reference((3, 59), 99)
    assert (world.job.attempts, world.job.opens) == (2, 1)


class NoFence(Cloud):
    def _resume(self, socket: Socket, frame: Resume) -> None:
        stream = self.streams[frame.token]
        self._attach(stream, socket, frame.stream, frame.held)


@pytest.mark.parametrize(("kind", "done"), [(Cloud, True), (NoFence, False)])
def test_the_late_close_of_the_old_socket_does_not_touch_the_stream(kind: type[Cloud], *, done: bool) -> None:
    """The edge is back on a new socket before the cloud notices that the old one is gone."""
    world = World({}, cloud=kind)
    first: list[Socket] = []

    def leave() -> None:
        socket = world.device.socket
        assert socket is not None
        first.append(socket)
        world.device.lost(socket)

    world.clock.at(0.3, leave)
    world.clock.at(0.5, lambda: world.cloud.lost(first[0]))
    assert world.run().done == done


def test_a_late_resume_on_a_socket_that_was_given_up_does_not_take_the_stream_back() -> None:
    cloud = Cloud(Clock())
    network = Network(cloud.clock, Weather(), cloud)
    job = Job((3, 59), 99, lambda position, asked: None)
    device = Device(network, [job])
    first = device.socket
    assert first is not None
    cloud.clock.at(0.3, lambda: device.lost(first))
    cloud.clock.at(0.5, lambda: cloud.received(first, Resume(9, "r1", 0)))
    cloud.clock.run(most=5000)
    assert job.done


def test_a_finished_stream_replays_its_finish() -> None:
    """The finish is lost with the socket: without the ledger kept, the edge would wait or open again for nothing."""
    world = World({})
    seen: list[bool] = []

    def cut_at_finish() -> None:
        stream = next(iter(world.cloud.streams.values()), None)
        if stream is not None and stream.told and not seen and world.device.socket is not None:
            seen.append(True)
            world.device.socket.lose(Loss.CUT)

    world.device = Device(world.network, [world.job])
    world.clock.run(most=5000, observe=cut_at_finish)
    assert seen
    assert world.job.done
    assert (world.job.attempts, world.job.opens) == (2, 1)


# Rule 7: edge-carried resume


def test_a_gateway_that_lost_everything_goes_on_from_what_the_device_holds() -> None:
    world = World({30: Loss.RESTART})
    assert world.run().session.ledger.tokens == reference((3, 59), 99)
    assert world.job.opens == 2


def test_after_the_grace_time_too() -> None:
    world = World({})
    world.device = Device(world.network, [world.job])
    first = world.device.socket
    assert first is not None
    world.clock.at(0.3, lambda: world.cloud.lost(first))
    world.clock.at(20.0, lambda: world.device.lost(first))
    world.clock.run(most=5000)
    assert world.job.session.ledger.tokens == reference((3, 59), 99)
    assert world.job.opens == 2


def test_positions_stay_absolute() -> None:
    """Noise is a function of the position: counted from 0 again, the text would be another one."""
    whole = reference((3, 59), 99)
    cloud = Cloud(Clock())
    network = Network(cloud.clock, Weather(), cloud)
    job = Job((3, 59), 99, lambda position, asked: None)
    job.session.ledger.append(whole[:20])
    job.cache += whole[:20]
    Device(network, [job])
    cloud.clock.run(most=5000)
    assert job.session.ledger.tokens == whole


@pytest.mark.parametrize("max_tokens", [6, 99])
def test_an_output_that_was_already_complete_finishes_at_once(max_tokens: int) -> None:
    """The finish was lost together with the gateway: the device holds the end token, or max_tokens, already."""
    cloud = Cloud(Clock())
    network = Network(cloud.clock, Weather(), cloud)
    job = Job((3, 5), max_tokens, lambda position, asked: None)
    job.session.ledger.append(reference((3, 5), 99))
    Device(network, [job])
    cloud.clock.run(most=100)
    assert job.session.finish is not None
    assert job.session.finish.usage.steps == 0
