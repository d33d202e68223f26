"""Several replicas of one engine behind the seam of one: places streams, and carries them on when a replica is lost.

              submit                     lost (process killed, node gone, engine failed, silent)
    Request ──────────► at a place ──────────────────────────────────────► homeless ──► at another place ──► …
                          its news feed the Generation                      until there is room; there it goes on
                                                                            with `committed` = ledger

A stream is placed once and stays. The ledger in this process is the truth: what a lost replica had computed but not yet
told is computed again, and since a token is a function of logits, seed, choice and position alone (docs/sampling.md),
what was told and what follows fit together: no token is lost or doubled. Drafts that lay in the lost replica's mailbox
are gone: the edge is told by `Refused`, as after any hole, and sends its tail again under a higher epoch.

Where replicas run is the business of a `Host` (ray_pool.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, aclosing
from dataclasses import replace

import msgspec

from app.engine.base import Finished, Load, ReplicaState, Request
from app.engine.fairness import may_wait
from app.engine.generation import Generation, Progress
from app.engine.moving import Moving
from app.engine.place import Host, Place, ReplicaLost
from app.engine.placement import Placement
from app.engine.replica import Loaded, News, decode_loaded, decode_news
from edge.openai.vocabulary import Vocabulary
from edge.protocol.errors import EngineFailed, Overloaded
from edge.protocol.frames import ModelInfo, Reason

logger = logging.getLogger(__name__)

MAX_LOSSES = 3
"""A stream that was on more replicas than this as they died is ended: it may be what kills them."""


class Pool:
    """Implements `Engine`; `model` and `vocabulary` exist once it is started."""

    model: ModelInfo
    vocabulary: Vocabulary

    def __init__(
        self,
        host: Host,
        vocabulary: Callable[[], AbstractContextManager[Vocabulary]],
        *,
        replicas: int,
        streams: int = 8,
        queue: int = 128,
        window: int = 32,
        silence_s: float = 30.0,
        homeless_s: float = 120.0,
        retry_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`vocabulary` opens the target's tokenizer in this process; it is called in a thread. `streams` and `queue`:
        what a replica runs and queues, at most.

        `silence_s`: a replica that says nothing for so long is killed. `homeless_s`: how long a stream may wait for
        another. `retry_s`: the pause before the second attempt to start a replica; doubles with each, up to a minute.
        """
        self._host = host
        self._open_vocabulary = vocabulary
        self._places = [Place(index) for index in range(replicas)]
        self._streams, self._queue, self._window = streams, queue, window
        self._silence_s, self._homeless_s, self._retry_s = silence_s, homeless_s, retry_s
        self._clock = clock
        self._placement = Placement()
        self._keys = 0
        self._live: dict[Generation, Moving] = {}
        self._homeless: deque[Moving] = deque()
        self._stream_s = 1.0
        """Recent mean life of a stream, seconds."""
        self._keepers: list[asyncio.Task[None]] = []
        self._opened = ExitStack()
        self._stopped: str | None = "the engine isn't running"
        self.moved = 0
        """How often a stream went on elsewhere."""
        self.gaps_s: deque[float] = deque(maxlen=1024)
        """For the last of those: from the loss of the replica to the next token, seconds."""

    async def start(self) -> None:
        try:
            self.vocabulary = await asyncio.to_thread(self._opened.enter_context, self._open_vocabulary())
            await self._host.open()
            launches = (self._launch(place) for place in self._places)
            results = await asyncio.gather(*launches, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
                self.model = result.model
        except BaseException:
            await self.stop()
            raise
        self._stopped = None
        self._keepers = [asyncio.create_task(self._keep(place)) for place in self._places]

    async def stop(self) -> None:
        self._stopped = "the engine was stopped"
        keepers, self._keepers = self._keepers, []
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        for stream in list(self._live.values()):
            self._finish(stream, "cancelled")
        self._homeless.clear()
        await asyncio.gather(*(place.remote.stop() for place in self._places if place.remote is not None))
        for place in self._places:
            place.end()
        await self._host.close()
        await asyncio.to_thread(self._opened.close)

    def submit(self, request: Request) -> Generation:
        if (failure := self.failure()) is not None:
            raise EngineFailed(failure)
        request.check(self.model)
        stream = Moving(Generation(request, self, window=self._window), self._clock())
        if not self._place(stream):
            waiting = self.load().waiting
            raise Overloaded(f"{waiting} requests are waiting", retry_after_s=self._retry_after_s())
        self._live[stream.generation] = stream
        return stream.generation

    def load(self) -> Load:
        up = [place for place in self._places if place.remote is not None]
        return Load(
            running=sum(place.load.running for place in up),
            waiting=sum(place.waiting().total() for place in up) + len(self._homeless),
            context_used=sum(place.load.context_used for place in up),
            context_total=sum(place.load.context_total for place in up),
            step_s=sum(place.load.step_s for place in up) / len(up) if up else 0.0,
        )

    def failure(self) -> str | None:
        """None while a replica takes streams. That may change again: lost replicas are started anew."""
        if self._stopped is not None or any(place.state == "up" for place in self._places):
            return self._stopped
        return f"no replica is up: {next((place.fault for place in self._places if place.fault), 'all are drained')}"

    def replicas(self) -> Sequence[ReplicaState]:
        return [place.report() for place in self._places]

    async def drain(self, index: int, *, within_s: float) -> None:
        """Give the replica no new streams, let its streams end, move those that are left after `within_s` seconds to
        other replicas, and start it anew. Nothing is lost.
        """
        place = self._places[index]
        if place.state != "up":
            return
        place.state = "draining"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while place.streams and place.state == "draining":
                    place.emptied.clear()
                    await place.emptied.wait()
        if place.state == "draining" and place.remote is not None:
            self._evict(place, blame=False)
            self._settle()
            await place.remote.stop()  # its keeper notices, and starts another

    # What a generation wants

    def offer(self, generation: Generation, epoch: int, start: int, tokens: Sequence[int]) -> None:
        stream = self._live.get(generation)
        if stream is not None and stream.place is not None:
            stream.place.offer(stream.key, epoch, start, tokens)

    def cancel(self, generation: Generation) -> None:
        stream = self._live.get(generation)
        if stream is not None and stream.place is not None:
            stream.cancelled = True
            stream.place.cancel(stream.key)
        elif stream is not None:
            self._homeless.remove(stream)
            self._finish(stream, "cancelled")

    def park(self, generation: Generation, at: int | None) -> None:
        stream = self._live.get(generation)
        if stream is not None:
            stream.park_at = at
            if stream.place is not None:
                stream.place.park(stream.key, at)

    # Streams

    def _place(self, stream: Moving) -> bool:
        """Give a stream a home; False: there is no room."""
        request = replace(stream.generation.request, committed=tuple(stream.generation.ledger.tokens))
        room = {
            place.index: len(place.streams)
            for place in self._places
            if place.state == "up" and may_wait(place.waiting(), request.tenant, request.weight, self._queue)
        }
        if not room:
            return False
        place = self._places[self._placement.choose(room, request.tenant, request.prompt)]
        self._placement.placed(place.index, request.tenant, request.prompt)
        self._keys += 1
        stream.place, stream.key = place, self._keys
        place.streams[stream.key] = stream
        place.submit(stream.key, request)
        if stream.park_at is not None:
            place.park(stream.key, stream.park_at)
        return True

    def _settle(self) -> None:
        """Homes for the homeless, in order, as far as there is room for each one's tenant."""
        for stream in [stream for stream in self._homeless if self._place(stream)]:
            self._homeless.remove(stream)
            generation = stream.generation
            if generation.lowest_epoch > 0:  # its drafts are lost
                generation.apply(Progress(refused=generation.lowest_epoch))

    def _evict(self, place: Place, *, blame: bool) -> None:
        """All streams of a place become homeless. `blame`: their replica died under them."""
        for key, stream in list(place.streams.items()):
            stream.losses += blame
            if stream.cancelled:  # and the replica didn't live to do it
                self._finish(stream, "cancelled")
            elif stream.losses > MAX_LOSSES:
                self._finish(stream, "error")
            else:
                self.moved += 1
                self._unhouse(place, key)

    def _unhouse(self, place: Place, key: int) -> None:
        stream = place.streams.pop(key)
        stream.place = None
        stream.before = stream.generation.usage()
        stream.lost_at = self._clock() if stream.lost_at is None else stream.lost_at
        self._homeless.append(stream)
        asyncio.get_running_loop().call_later(self._homeless_s, self._give_up, stream, key)

    def _give_up(self, stream: Moving, key: int) -> None:
        """End a stream that has had no home since it was at a place as `key`."""
        if stream in self._homeless and stream.key == key:
            self._homeless.remove(stream)
            self._finish(stream, "error")

    def _finish(self, stream: Moving, reason: Reason, code: str = EngineFailed.code) -> None:
        generation = stream.generation
        error = code if reason == "error" else None
        finished = Finished(len(generation.ledger), reason, None, generation.usage(), error)
        self._apply(stream, Progress(finished=finished))

    def _apply(self, stream: Moving, progress: Progress) -> None:
        stream.generation.apply(progress)
        if progress.tokens and stream.lost_at is not None:
            self.gaps_s.append(self._clock() - stream.lost_at)
            stream.lost_at = None
        if progress.finished is not None:
            self._live.pop(stream.generation, None)
            self._stream_s += 0.2 * (self._clock() - stream.began - self._stream_s)
            if stream.place is not None:
                stream.place.streams.pop(stream.key, None)
                if not stream.place.streams:
                    stream.place.emptied.set()

    def _retry_after_s(self) -> float:
        """When some queue will have moved on by a place, at the pace of the streams before."""
        return min(60.0, max(1.0, self._stream_s / (self._streams * len(self._places))))

    # Replicas

    async def _keep(self, place: Place) -> None:
        """The life of a place: listens to its replica, and starts another when that is lost, for ever."""
        while self._stopped is None:
            try:
                await self._listen(place)
            except ReplicaLost as lost:
                place.fault = str(lost)
            except Exception:  # the root of this task: a replica that can't be understood is no use
                logger.exception("replica_not_understood replica=%d", place.index)
                place.fault = "internal error"
            if self._stopped is not None:
                return
            drained = place.state == "draining"
            if not drained:
                logger.error("replica_lost replica=%d pid=%d: %s", place.index, place.pid, place.fault)
            place.end()
            self._placement.lost(place.index)
            self._evict(place, blame=not drained)
            self._settle()
            await self._restart(place)
            self._settle()

    async def _restart(self, place: Place) -> None:
        pause_s = self._retry_s
        while True:
            try:
                await self._launch(place)
            except ReplicaLost as lost:
                place.fault = str(lost)
                logger.error("replica_start_failed replica=%d: %s", place.index, lost)
                await asyncio.sleep(pause_s)
                pause_s = min(60.0, 2 * pause_s)
            else:
                place.restarts += 1
                logger.warning("replica_restarted replica=%d pid=%d", place.index, place.pid)
                return

    async def _launch(self, place: Place) -> Loaded:
        """Raises ReplicaLost if the replica can't start, or isn't what this process expects."""
        place.state = "starting"
        remote, data = await self._host.launch(place.index)
        try:
            loaded = decode_loaded(data)
        except msgspec.MsgspecError as error:
            remote.kill()
            raise ReplicaLost(f"it runs another version: {error}") from error
        if loaded.model.fingerprint != self.vocabulary.fingerprint:
            remote.kill()
            raise ReplicaLost("its vocabulary isn't the gateway's: the model files differ")
        place.begin(remote, loaded)
        return loaded

    async def _listen(self, place: Place) -> None:
        """Until the replica is lost: raises ReplicaLost."""
        assert place.remote is not None  # noqa: S101  it was launched
        async with aclosing(place.remote.news()) as news:
            while True:
                try:
                    told = decode_news(await self._next(news))
                except StopAsyncIteration:
                    raise ReplicaLost("it has ended") from None
                except msgspec.MsgspecError as error:
                    raise ReplicaLost(f"it runs another version: {error}") from error
                self._hear(place, told)

    async def _next(self, news: AsyncGenerator[bytes, None]) -> bytes:
        """Raises ReplicaLost if nothing comes."""
        told = asyncio.ensure_future(anext(news))
        try:
            for _ in range(2):  # the first wait may have expired because it was this process that was stopped
                done, _ = await asyncio.wait([told], timeout=self._silence_s / 2)
                if done:
                    return told.result()
            raise ReplicaLost(f"silent for {self._silence_s:.0f} s")
        finally:
            told.cancel()
            await asyncio.wait([told])

    def _hear(self, place: Place, news: News) -> None:
        place.heard(news)
        for key, progress in news.progress:
            stream = place.streams.get(key)
            if stream is not None and not _broke(news, progress):
                self._apply(stream, stream.counted(progress))
        for key, ahead in news.windows:
            if key in place.streams:
                place.streams[key].generation.widen(ahead)
        for key, code in news.rejected:
            self._rejected(place, key, code)
        if news.failure is not None:
            raise ReplicaLost(news.failure)
        self._settle()

    def _rejected(self, place: Place, key: int, code: str) -> None:
        """A replica's queue may be fuller than it was thought to be; anything else is the request's own fault."""
        stream = place.streams.get(key)
        if stream is None:
            return
        if stream.cancelled:
            self._finish(stream, "cancelled")
        elif code == Overloaded.code:
            self._unhouse(place, key)
        else:
            self._finish(stream, "error", code)


def _broke(news: News, progress: Progress) -> bool:
    """Whether a stream ended only because its engine failed: then it goes on elsewhere."""
    return news.failure is not None and progress.finished is not None and progress.finished.reason == "error"
