"""What vLLM's next step does for whom: the rules of our own loop (scheduler.py), for what vLLM leaves to us. No vllm
import.

- Who waits for a place gets it by the tenants' virtual time (fairness.py), and who has been charged most gives up its
  own first when memory is short. vLLM orders requests by a number each, its priority.
- Streams of policy `auto`: which drafts are checked, who sits out, and whether all wait for the next draft (auto.py).

Steps may overlap: `planned` notes what a step was meant to do, and `stepped` is told of them in that order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from app.engine.acceptance import Acceptances
from app.engine.auto import Auto, Outlook, Plan, Turn
from app.engine.fairness import FairClock
from app.engine.vllm_stream import RemoteStream

LOOK_EVERY: Final = 32
"""Steps after which it is looked again whose drafts are worth making."""


class Seat(NamedTuple):
    """A decoding stream of policy `auto`, as the step to come would find it."""

    stream: RemoteStream
    context: int
    """Tokens of KV cache that it reads."""
    flying: int


class Part(NamedTuple):
    """What a stream had of a step."""

    stream: RemoteStream
    computed: int
    """Tokens: its next one and the drafts behind it, or a piece of its prompt."""
    decodes: bool
    context: int
    gave: int


class _Planned(NamedTuple):
    began: float
    deciding: int
    explores: bool


class Turns:
    def __init__(self, draft_tokens: int) -> None:
        """`draft_tokens`: most of one stream that are checked in a step."""
        self.auto = Auto()
        self.fair = FairClock()
        self.batches: Counter[int] = Counter()
        """How many steps had so many streams."""
        self.until: float | None = None
        """The streams of policy `auto` wait for a draft, at most until then."""
        self._limit = draft_tokens
        self._acceptances = Acceptances()
        self._since: float | None = None
        self._planned: deque[_Planned] = deque()
        self._ended = 0.0
        self.steps = 0

    def enter(self, stream: RemoteStream) -> None:
        if stream.verifier.policy == "auto":
            stream.outlook = Outlook(self._acceptances.of(stream.drafter, stream.tenant), stream.weight)
        self.fair.enter(stream.tenant)

    def leave(self, stream: RemoteStream) -> None:
        self.fair.leave(stream.tenant)

    def priority(self, tenant: str) -> int:
        """Of a tenant's requests, microseconds charged per weight: the lowest goes first."""
        return round(1e6 * self.fair.at(tenant))

    def plan(self, seats: Sequence[Seat], now: float, *, others: int, room: int) -> Plan:
        """`others`: tokens in the step that aren't decided here. `room`: most drafts in all."""
        if self._since is not None:
            self.auto.savings.wait(now - self._since)
        self.until = self._since = None
        if not seats:
            return Plan()
        turns = [self._turn(seat, seat.stream.draftable(seat.flying)) for seat in seats]
        plan = self.auto.plan(turns, now, others=others, room=room, busy=others > 0 or any(s.flying for s in seats))
        if plan.until is not None:
            self.until, self._since = plan.until, now
        return plan

    def planned(self, now: float, seats: int, plan: Plan) -> None:
        """A step began: with so many seats, by this plan."""
        self._planned.append(_Planned(now, seats, plan.explores))

    def seconds(self, now: float) -> float:
        """What the oldest step under way takes if it ends at `now`: it runs since the one before has ended."""
        return now - max(self._planned[0].began, self._ended)

    def stepped(self, parts: Sequence[Part], now: float) -> None:
        """The oldest step under way has ended. Charges the tenants, and takes from it what it says about costs."""
        seconds, planned = self.seconds(now), self._planned.popleft()
        self._ended = now
        size = sum(part.computed for part in parts)
        if not size or seconds <= 0:
            return
        self.steps += 1
        self.batches[len(parts)] += 1
        shares: dict[tuple[str, float], int] = {}
        context, decodes = 0, True
        for part in parts:
            payer = part.stream.tenant, part.stream.weight
            shares[payer] = shares.get(payer, 0) + part.computed
            context += part.context
            decodes = decodes and part.decodes
        for (tenant, weight), computed in shares.items():
            self.fair.charge(tenant, seconds * computed / size, weight)
        if not decodes:
            return
        self.auto.cost.observe(size, context, seconds)
        if planned.deciding and all(part.stream.decided for part in parts):
            worth = sum(part.gave * part.stream.weight for part in parts)
            plain_s = self.auto.cost.predict(planned.deciding, context * planned.deciding // len(parts))
            if planned.explores:
                self.auto.explored(worth, seconds)
            gave = sum(part.gave for part in parts)
            self.auto.stepped(gave, worth, planned.deciding, size, seconds, plain_s)

    def look(self, seats: Sequence[Seat], room: int) -> None:
        """Every so many steps: whose drafts would be checked if there were enough of them."""
        if self.steps % LOOK_EVERY or not seats:
            return
        worth = self.auto.worthwhile([self._turn(seat, self._limit) for seat in seats], room)
        for seat, worthwhile in zip(seats, worth, strict=True):
            seat.stream.worthwhile = worthwhile

    def _turn(self, seat: Seat, pending: int) -> Turn:
        assert seat.stream.outlook is not None  # noqa: S101  streams of policy `auto` get theirs in `enter`
        return Turn(seat.stream.outlook, pending, seat.context, self._limit, seat.stream.verifier.hold_s)
