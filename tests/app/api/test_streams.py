"""What is kept of streams, and for how long."""

from __future__ import annotations

import pytest

from app.api.streams import HeldStream, Streams
from app.engine.generation import Generation
from app.tenants.service import TenantId
from edge.protocol.errors import Fenced, TooManyStreams, UnknownResumeToken
from tests.app.api.test_attachment import generation, held

ACME, OTHER = TenantId("a", "acme"), TenantId("o", "other")


class Holder:
    def __init__(self) -> None:
        self.fenced = 0

    def fence(self) -> None:
        self.fenced += 1


@pytest.fixture
def accounted() -> list[Generation]:
    return []


@pytest.fixture
def streams(accounted: list[Generation]) -> Streams:
    return Streams(grace_s=3600, per_tenant=2, account=lambda _, generation: accounted.append(generation))


def add(streams: Streams, tenant: TenantId = ACME) -> HeldStream:
    streams.make_room(tenant)
    made = generation()
    return streams.add(tenant, made, held(made).pace, text=False)


async def test_a_finished_stream_makes_room_for_a_new_one(streams: Streams, accounted: list[Generation]) -> None:
    first, second = add(streams), add(streams)
    for stream in (first, second):
        streams.attach(stream, Holder(), socket=1)
    with pytest.raises(TooManyStreams):
        add(streams)
    add(streams, OTHER)
    assert second.holder is not None
    streams.finish(second, second.holder)
    add(streams)
    with pytest.raises(UnknownResumeToken):
        streams.find(ACME, second.resume_token)
    assert streams.find(ACME, first.resume_token) is first
    assert accounted == [second.generation]
    streams.close()
    assert len(streams) == 0
    assert len(accounted) == 4, "each once"


async def test_an_old_holder_reaches_the_stream_no_more(streams: Streams) -> None:
    stream, old, new = add(streams), Holder(), Holder()
    streams.attach(stream, old, socket=1)
    streams.attach(stream, new, socket=2)
    assert (old.fenced, new.fenced) == (1, 0)
    streams.detach(stream, old)
    streams.finish(stream, old)
    assert (stream.holder, stream.finished, stream.expiry) == (new, False, None)
    with pytest.raises(Fenced):
        streams.attach(stream, old, socket=1)
    assert stream.holder is new
    streams.detach(stream, new)
    assert stream.expiry is not None
    streams.attach(stream, new, socket=2)
    assert stream.expiry is None
    streams.close()
