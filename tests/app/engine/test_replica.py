"""One replica, driven as a pool drives it: mails in, news out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import msgspec
import pytest

from app.engine.generation import Progress
from app.engine.replica import TELL_AFTER, Mail, News, Replica, decode_loaded, decode_news, encode
from app.engine.scripted import ScriptedEngine
from edge.protocol.frames import Sampling, TokenLogprob, Usage
from tests.app.engine.requests import PROMPT, request, script


@asynccontextmanager
async def listening(replica: Replica) -> AsyncIterator[AsyncGenerator[bytes, None]]:
    loaded = decode_loaded(await replica.start())
    assert loaded.model.fingerprint == script().vocabulary.fingerprint
    async with aclosing(replica.news()) as news:
        yield news
    await replica.stop()


async def until_finished(news: AsyncGenerator[bytes, None], *keys: int) -> dict[int, list[Progress]]:
    """What streams were told until all of them ended."""
    got: dict[int, list[Progress]] = {key: [] for key in keys}
    async for data in news:
        for key, progress in decode_news(data).progress:
            got[key].append(progress)
        if all(told and told[-1].finished is not None for told in got.values()):
            return got
    raise AssertionError("news ended")


def tokens(told: list[Progress]) -> list[int]:
    return [token for progress in told for token in progress.tokens]


async def test_submits_come_back_as_progress() -> None:
    async with listening(replica := Replica(ScriptedEngine)) as news:
        await replica.post(encode(Mail(1, submits=[(7, request()), (9, request((8, 8), max_tokens=5))])))
        told = await until_finished(news, 7, 9)
    assert tokens(told[7]) == script().greedy(PROMPT, 40)
    assert tokens(told[9]) == script().greedy((8, 8), 5)
    assert told[9][-1].finished is not None
    assert told[9][-1].finished.usage == Usage(prompt=2, completion=5, steps=5)


async def test_mails_are_carried_out_in_their_order_however_they_arrive() -> None:
    expected = script().greedy(PROMPT, 40)
    async with listening(replica := Replica(ScriptedEngine)) as news:
        await replica.post(encode(Mail(3, cancels=[1])))
        await replica.post(encode(Mail(2, offers=[(1, 0, 0, tuple(expected[:4]))])))
        await replica.post(encode(Mail(1, submits=[(1, request(policy="hold", hold_s=1e6, max_tokens=1000))])))
        told = await until_finished(news, 1)
    assert told[1][-1].finished is not None
    assert told[1][-1].finished.reason == "cancelled"


async def test_news_say_how_far_the_mails_are() -> None:
    async with listening(replica := Replica(ScriptedEngine)) as news:
        for number in range(1, TELL_AFTER + 1):
            await replica.post(encode(Mail(number)))
        assert decode_news(await anext(news)).taken == TELL_AFTER


async def test_what_the_engine_refuses_is_told() -> None:
    async with listening(replica := Replica(lambda: ScriptedEngine(queue=1, streams=1))) as news:
        submits = [(key, request(max_tokens=1000)) for key in range(3)]
        await replica.post(encode(Mail(1, submits=[*submits, (3, request(()))])))
        rejected = dict(decode_news(await anext(news)).rejected)
    assert rejected[3] == "invalid_request"
    assert rejected[2] == "overloaded"
    assert 0 not in rejected


async def test_a_failed_engine_is_told() -> None:
    async with listening(replica := Replica(lambda: ScriptedEngine(fail_at=3))) as news:
        await replica.post(encode(Mail(1, submits=[(1, request())])))
        async for data in news:
            told = decode_news(data)
            if told.failure is not None:
                break
    assert "the script says" in (told.failure or "")


async def test_a_stream_parks_where_it_is_told() -> None:
    async with listening(replica := Replica(ScriptedEngine)) as news:
        await replica.post(encode(Mail(1, submits=[(1, request(max_tokens=1000))], parks={1: 12})))
        got: list[int] = []
        while len(got) < 12:
            got += tokens([progress for _, progress in decode_news(await anext(news)).progress])
        assert not decode_news(await anext(news)).progress  # a beat: it runs no further
        await replica.post(encode(Mail(2, parks={1: None})))
        assert decode_news(await anext(news)).progress
    assert len(got) == 12


def test_messages_survive_the_way() -> None:
    logprob = TokenLogprob(3, -0.5, ((3, -0.5), (4, -1.0)))
    mail = Mail(4, [(1, request(sampling=Sampling(seed=2**63 - 1), stop=("\n",)))], {1: None}, [(1, 2, 3, (4, 5))], [1])
    assert msgspec.msgpack.decode(encode(mail), type=Mail) == mail
    news = News(4, ScriptedEngine().load(), [(1, Progress((1, 2), 1, 0.1, 0.2, (logprob,)))], [(1, 8)], [(2, "x")])
    assert decode_news(encode(news)) == news


def test_news_of_another_version_are_an_error() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_news(msgspec.msgpack.encode({"taken": "?"}))
