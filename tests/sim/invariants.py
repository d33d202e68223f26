"""What must hold, whatever happens. Each is checked as soon as it can be: after a step, a commit, a flush, in the end.

- Text: what a stream has committed, in the gateway and on the device, is the beginning of what the model says to that
  prompt; and in the end all of it. Every job has a prompt of its own, so a token that was lost, doubled, or is another
  stream's shows.
- Accounts: every draft is accounted for (VerifyingStats, DraftingStats).
- Usage: what the database says a tenant has used is what gateways made for it; of one that was killed, at least what it
  had written and at most what it had made. A stream that nothing disturbed is charged what its device got.
- Bounds: slots, queue, KV cache.
- Fairness: nobody gets a slot while a tenant that was charged less waits for one.
- Leaks: once all is over nothing is left of a stream, in any process: task, slot, mailbox, account, timer.
- Errors: an error that no fault explains, a logged exception, a task that failed unseen.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from unittest import mock

from app.engine.generation import Generation
from app.engine.pool import Pool
from app.engine.scheduler import Scheduler
from app.engine.scripted import ScriptedEngine
from app.engine.stream import Stream
from app.tenants.repository import Counts
from edge.errors import ConnectionLost, Unreachable
from edge.events import Committed, Ended
from edge.protocol import errors
from edge.protocol.frames import Sampling
from edge.protocol.sampling import Sampler
from edge.script import Script, ScriptVocabulary
from tests.sim.engines import step_loop
from tests.sim.plan import LENGTH, Job

if TYPE_CHECKING:
    from tests.sim.cluster import Incarnation
    from tests.sim.device import Device
    from tests.sim.world import World


_ALWAYS = ("Incarnation._live", "UsageCounter.run", "Pool._keep", "async_generator_asend")
"""What runs in a gateway that serves nobody."""


class Violated(AssertionError):
    pass


class MemoScript(Script):
    """Remembers its logits: simulations ask for the same ones again and again."""

    def __init__(self) -> None:
        super().__init__(ScriptVocabulary(), length=LENGTH, kept=50_000)
        self.key = lru_cache(maxsize=10_000)(super().key)  # type: ignore[method-assign]

    def _computed(self, prompt_key: int, position: int, previous: int) -> Any:
        with mock.patch.object(random, "_urandom", os.urandom):  # numpy draws some even for a generator with a key
            return super()._computed(prompt_key, position, previous)


@lru_cache(maxsize=10_000)
def reference(script: Script, prompt: tuple[int, ...], sampling: Sampling) -> tuple[int, ...]:
    """What the model says, to its own end."""
    key, vocabulary, output = script.key(prompt), script.vocabulary, list[int]()
    sampler = Sampler(sampling, vocabulary.size, prompt, None)
    while vocabulary.end not in output[-1:]:
        row = script.logits(key, len(output), output[-1] if output else prompt[-1])
        output.append(sampler.pick(row, len(output)))
        sampler.push(output[-1])
    return tuple(output)


def expected(script: Script, job: Job) -> tuple[tuple[int, ...], str]:
    """A job's whole output, and its text."""
    tokens, text = list[int](), b""
    for token in reference(script, job.prompt, job.sampling)[: job.max_tokens]:
        tokens.append(token)
        text += script.vocabulary.piece(token)
        cuts = [at for stop in job.stop if (at := text.find(stop.encode())) >= 0]
        if cuts:
            return tuple(tokens), text[: min(cuts)].decode(errors="replace")
    return tuple(tokens), text.decode(errors="replace")


class Invariants:
    def __init__(self, world: World) -> None:
        self.world = world
        self._generations: dict[Generation, int] = {}
        """Those that run, and how far their ledgers were compared."""
        self._placed: dict[Scheduler, set[Stream]] = {}
        world.engines.before_step = self.stepping

    def check(self, holds: bool, what: str, *about: object) -> None:
        if not holds:
            text = f"{what} {' '.join(map(str, about))}".strip()
            self.world.fail(text)
            raise Violated(text)

    # Text

    def began(self, generation: Generation) -> None:
        self._generations[generation] = 0

    def compare(self) -> None:
        """The gateways' ledgers with the reference, as far as they have grown."""
        for generation, compared in list(self._generations.items()):
            tokens, request = generation.ledger.tokens, generation.request
            if len(tokens) > compared:
                whole = reference(self.world.script, request.prompt, request.sampling)
                right = tuple(tokens[compared:]) == whole[compared : len(tokens)]
                self.check(right, "another text in the gateway", request.id, compared, tokens)
                self._generations[generation] = len(tokens)
            if generation.finished is not None:
                self.check(generation.finished.length == len(tokens), "finished at another length", request.id)
                del self._generations[generation]

    def committed(self, device: Device, job: Job, event: Committed) -> None:
        held = device.outputs[job]
        self.check(event.start == len(held), "a hole, or a token twice, at the device", device.process, job.prompt[0])
        held.extend(token.id for token in event.tokens)
        whole = reference(self.world.script, job.prompt, job.sampling)
        self.check(tuple(held) == whole[: len(held)], "another text at the device", device.process, held, whole)

    def ended(self, device: Device, job: Job, event: Ended, text: str | None) -> None:
        tokens, whole = expected(self.world.script, job)
        held = tuple(device.outputs[job])
        self.check(event.reason in ("stop", "length"), "ended by", event.reason, device.process)
        self.check(held == tokens, "the output ends elsewhere", device.process, held, tokens)
        self.check(text is None or text == whole, "other words at the device", device.process, repr(text), repr(whole))
        self.check(event.usage.completion == len(held), "usage differs from what was delivered", event.usage)

    # Errors

    def failed(self, device: Device, job: Job, error: Exception) -> None:
        """A stream ended with an error: only a fault may be the cause."""
        faults = self.world.plan.faults
        network = {"cut", "silence", "stall", "unreachable", "move", "sleep", "gateway_freezes"}
        gateway = {"gateway_crashes", "gateway_restarts", "engine_dies", "disk_fails", "disk_down", "disk_forgets"}
        engine = {"engine_dies", "replica_dies", "replica_silent", "launch_fails", "gateway_freezes"}
        causes: dict[type[Exception], set[str]] = {
            Unreachable: network | gateway | engine,
            ConnectionLost: network | gateway | engine,
            errors.EngineFailed: engine | gateway,
            errors.TooManyStreams: {*faults, "none"},  # the tenant's other devices
        }
        explained = any(isinstance(error, kind) and (by & faults or "none" in by) for kind, by in causes.items())
        starting = isinstance(error, Unreachable) and self.world.loop.now < 5.0
        self.world.trace("failed", device.process.name, type(error).__name__)
        self.check(explained or starting, "an error without a cause:", repr(error), device.process, sorted(faults))

    def logged(self, name: str, text: str, why: str) -> None:
        """Something was logged as an error."""
        causes = {
            "usage.flush_failed": {"disk_fails", "disk_down", "disk_forgets"},
            "engine_failed": {"engine_dies"},
            "replica_lost": {"replica_dies", "replica_silent", "engine_dies", "gateway_freezes"},
            "replica_start_failed": {"launch_fails", "replica_dies"},
            "the drafter failed": {"drafter_fails"},
            # Of a killed process's tasks, nothing is left but what they held.
            "The garbage collector is trying to clean up non-checked-in connection": {"gateway_crashes"},
        }
        explained = any(text.startswith(begin) and by & self.world.plan.faults for begin, by in causes.items())
        self.check(explained, "logged as an error:", name, text, why)

    # The engine

    def stepping(self, engine: ScriptedEngine) -> None:
        """In the middle of a step: it is scheduled, and computed next."""
        loop = step_loop(engine)
        with suppress(Violated):  # it is noted, and the engine is not to blame itself
            self.compare()
            if loop is not None:
                self._bounds(engine, loop._scheduler)
                self._fair(loop._scheduler)

    def _bounds(self, engine: ScriptedEngine, scheduler: Scheduler) -> None:
        capacity, slots = engine.capacity, scheduler.slots
        self.check(len(scheduler.running) <= capacity.sequences, "too many streams run")
        self.check(slots.tokens <= capacity.kv_tokens, "the KV cache is overfull", slots.tokens)
        held = [slot.stream for slot in slots.slots if slot.stream is not None]
        self.check(len(held) == len(scheduler.running), "a slot is lost or held twice")
        self.check(set(held) == set(scheduler.running), "a slot is held by another")
        for stream in (*scheduler.running, *scheduler.waiting, *scheduler.aside):
            stats, pending = stream.verifier.stats, len(stream.verifier.pending)
            accounted = stats.accepted + stats.matched + stats.dropped + pending
            self.check(
                stats.drafted == accounted, "drafts that aren't accounted for", stream.request.id, stats, pending
            )
            self.check(stats.accepted <= stats.verified, "accepted without being verified", stats)
            self.check(stats.agreed <= stats.compared, "agreed without being compared", stats)
            self.check(pending <= stream.verifier.held_tokens, "a mailbox without bound", pending)

    def _fair(self, scheduler: Scheduler) -> None:
        before, now = self._placed.get(scheduler, set()), set(scheduler.running)
        self._placed[scheduler] = now
        held = {stream: scheduler.slots.reserved(stream.request.tenant) for stream in scheduler.waiting}
        waiting = [stream for stream in scheduler.waiting if scheduler._within_quota(stream, held[stream])]
        least = min((scheduler._charged(stream) for stream in waiting), default=None)
        if least is None:
            return
        for stream in scheduler.running:
            ahead = stream not in before and scheduler._charged(stream) > least + 1e-9
            self.check(not ahead, "a slot for who was charged more", stream.request.tenant, stream.request.id)

    # The end

    def left(self, life: Incarnation) -> list[str]:
        """What is left in a gateway that serves nobody any more."""
        gateway = life.gateway
        if gateway is None:
            return []
        engine: Any = gateway.engine
        found: dict[str, object] = {
            "links": life.links,
            "sessions": life.sessions,
            "streams": gateway.streams._held,
            "streams of tenants": gateway.streams._of_tenant,
            "accounts": gateway.accounts._open,
            "answers": gateway.answers,
            "sockets": int(gateway.metrics.sockets._value.get()),
            "tasks": [task for task in life.process.tasks if _what(task) not in _ALWAYS],
        }
        if isinstance(engine, Pool):
            found |= {"pool": engine._live, "homeless": engine._homeless}
            for place in engine._places:
                found |= {f"place {place.index}": place.streams, f"unseen {place.index}": place._unseen}
        else:
            found |= self._left_in_engine(engine)
        for replica in life.host.alive() if life.host is not None else []:
            one: Any = replica.replica
            found |= {f"{replica.process} generations": one._generations, f"{replica.process} early": one._early}
            found |= {f"{replica.process} {what}": value for what, value in self._left_in_engine(one._engine).items()}
        return [f"{what}: {value}" for what, value in found.items() if value]

    def _left_in_engine(self, engine: ScriptedEngine) -> dict[str, object]:
        loop = step_loop(engine)
        found: dict[str, object] = {
            "live": engine._live,
            "queued": engine._queued,
            "submitted": engine._submitted,
            "began": engine._began,
        }
        if loop is not None:
            scheduler, mail = loop._scheduler, engine._inbox._mail
            found |= {
                "jobs": loop._jobs,
                "by stream": loop._by_stream,
                "progress": loop._progress,
                "running": scheduler.running,
                "waiting": scheduler.waiting,
                "aside": scheduler.aside,
                "slots": [slot for slot in scheduler.slots.slots if slot.stream is not None],
                "present": +scheduler.fair._streams,
                "mail": [mail.submitted, mail.parks, mail.offers, mail.cancels] if mail != type(mail)() else [],
            }
        return found

    def over(self, rows: Sequence[tuple[str, Counts]]) -> None:
        """`rows` of the database, by tenant's id."""
        self.compare()
        stored: dict[str, int] = {}
        for tenant, counts in rows:
            stored[tenant] = stored.get(tenant, 0) + counts.completion
        least, most = dict[str, int](), dict[str, int]()
        for life in self.world.cluster.lives:
            counted = life.counted()
            sure = counted if life.orderly else life.flushed
            for tenant, tokens in counted.items():
                most[tenant] = most.get(tenant, 0) + tokens
                least[tenant] = least.get(tenant, 0) + sure.get(tenant, 0)
        for tenant in most | stored:
            low, high, found = least.get(tenant, 0), most.get(tenant, 0), stored.get(tenant, 0)
            self.check(low <= found <= high, f"usage of {tenant}: {found} stored, made {low} to {high}")
        self._delivered()

    def _delivered(self) -> None:
        """What each undisturbed job was charged is what its device got."""
        made: dict[tuple[int, ...], list[int]] = {}
        for life in self.world.cluster.lives:
            for _, generation in life.served:
                made.setdefault(generation.request.prompt, []).append(life.made(generation))
        for device in self.world.devices:
            for job, output in device.outputs.items():
                charged = made.get(job.prompt, [])
                self.check(sum(charged) >= len(output), "delivered and not counted", job.prompt[0], charged)
                if len(charged) == 1 and device.done.get(job) in ("stop", "length"):
                    self.check(charged == [len(output)], "counted and not delivered", job.prompt[0], charged, output)


def _what(task: asyncio.Task[Any]) -> str:
    work = task.get_coro()
    return str(getattr(work, "__qualname__", type(work).__name__))
