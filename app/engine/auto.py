"""Policy `auto`: what the next step does for each stream. Pure; times are arguments, in seconds.

With the step's cost (cost.py) and each draft's chance (acceptance.py) known, one question is left: what brings the most
expected weighted tokens per second?
1. How many drafts of whom are checked: budget.py, over all totals. Streams whose drafts don't pay get none, and are
   decoded as if they had no edge.
2. Whether to step at once, or to wait for the next draft: only if the expected rate, the wait included, is better.
3. Whether a stream without drafts joins the step. It does while its token costs less time than it is worth at the
   long-run price of a second (recent weighted tokens per second); beyond that it waits for its drafts until they are
   overdue.

All that can go wrong is paid from savings, so the guarantee holds whatever is believed wrongly: `Savings` compares what
the streams got with what the target alone would have given them in that time. Without savings, a step is a plain one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from app.engine.acceptance import Acceptance
from app.engine.budget import Budget, choose
from app.engine.cost import CostModel
from edge.protocol.ledger import agreement
from edge.protocol.verifying import Offered, Verifier

ALLOWANCE = 0.01
"""Of the target's own time: what auto may lose in the long run. The guarantee (1.03) leaves the rest for a plain step's
estimate to be wrong, and for the tries of a new engine.
"""
KEPT_STEPS = 32
"""Savings of more plain steps than this are forgotten: old gains buy no new losses."""
EXPLORATION = 0.01
"""Of the time: for trying totals whose cost isn't known, or was last seen long ago."""
FIRST_TRIES = 3
"""Plain steps' worth of exploration that a new engine begins with."""
BETTER = 1.02
"""A rate must be better by this factor to be believed; a wait's by `BETTER_WAIT`."""
BETTER_WAIT = 1.05
OPTIMISM = 0.7
"""A total is tried only if it would be the best one should it cost this part of what is believed."""
LOOK_AHEAD = 8
"""Arrivals up to which a wait is considered."""
PATIENCE = 0.5
"""A draft that is later than expected by this part of its usual interval isn't waited for any longer."""


@dataclass(slots=True)
class Outlook:
    """What is known of one stream's drafts: how good they are and when the next will come."""

    acceptance: Acceptance
    weight: float = 1.0
    interval_s: float | None = None
    """Between two drafts of an epoch; None: not known yet."""
    recovery_s: float | None = None
    """From a rejection to the first draft of the next epoch."""
    length: float = 1.0
    """Tokens of a draft."""
    _last: float | None = None
    _rejected: float | None = None

    def offer(self, verifier: Verifier, epoch: int, start: int, tokens: Sequence[int], at: float) -> Offered:
        """Hand the stream's mailbox a draft, and learn from what becomes of it."""
        anew, stats = epoch > verifier.epoch, verifier.stats
        compared, agreed = stats.compared, stats.agreed
        offered = verifier.offer(epoch, start, tokens)
        if offered is not Offered.STALE:
            self.acceptance.add_late(stats.compared - compared, stats.agreed - agreed)
            self.arrived(len(tokens), at, anew=anew)
            if offered is not Offered.TAKEN:
                self.rejected(at)
        return offered

    def take(self, pending: Sequence[int], tokens: Sequence[int], at: float) -> None:
        """A step gave `tokens` where `pending` was expected."""
        agreed = agreement(pending, tokens)
        compared = min(len(pending), agreed + 1, len(tokens))
        self.acceptance.add(compared, agreed)
        if compared > agreed:
            self.rejected(at)

    def arrived(self, tokens: int, at: float, *, anew: bool) -> None:
        """A draft of `tokens` came; `anew`: the first of its epoch."""
        self.length += 0.2 * (tokens - self.length)
        if anew and self._rejected is not None:
            self.recovery_s = _blend(self.recovery_s, at - self._rejected)
        elif not anew and self._last is not None:
            self.interval_s = _blend(self.interval_s, at - self._last)
        self._last, self._rejected = at, None

    def rejected(self, at: float) -> None:
        """What is on its way of this epoch is of no use."""
        if self._rejected is None:
            self._rejected = at

    @property
    def flows(self) -> bool:
        """Whether more drafts of this epoch can be of use: the next isn't a round trip away."""
        return self._rejected is None

    def expected(self, now: float) -> tuple[float, float] | None:
        """When the next draft should come, and after that it is given up; None: nothing is known, or it is overdue."""
        since, after = (self._last, self.interval_s) if self._rejected is None else (self._rejected, self.recovery_s)
        if since is None or after is None:
            return None
        due, overdue = since + after, since + (1 + PATIENCE) * after
        return (max(due, now), overdue) if now < overdue else None


def _blend(mean: float | None, value: float) -> float:
    return value if mean is None else mean + 0.2 * (value - mean)


@dataclass(slots=True)
class Savings:
    """Time that drafts have saved, less what was risked and lost. Below 0 nothing may be risked."""

    seconds: float = 0.0

    def step(self, tokens: int, streams: int, seconds: float, plain_s: float) -> None:
        """A step gave `tokens` to `streams` (those that waited count too) in `seconds`; a plain one takes `plain_s`."""
        earned = (1 + ALLOWANCE) * plain_s * tokens / streams
        self.seconds = min(KEPT_STEPS * plain_s, self.seconds + earned - seconds)

    def wait(self, seconds: float) -> None:
        self.seconds -= seconds


@dataclass(frozen=True, slots=True)
class Turn:
    """A stream that could take part in the step: its next token and `pending` drafts."""

    outlook: Outlook
    pending: int
    context: int
    """Tokens of KV cache that its part of the step reads."""
    limit: int
    """Most drafts of it that may be checked."""
    hold_s: float

    def gains(self, pending: int) -> list[float]:
        return [self.outlook.weight * s for s in self.outlook.acceptance.survivals(min(pending, self.limit))]


@dataclass(frozen=True, slots=True)
class Plan:
    shares: tuple[int, ...] = ()
    """Drafts of each turn to check."""
    held: frozenset[int] = frozenset()
    """Turns that wait for their drafts while the others are stepped."""
    until: float | None = None
    """Nothing is stepped before this time, unless a draft comes."""
    explores: bool = False


@dataclass(slots=True)
class Auto:
    cost: CostModel = field(default_factory=CostModel)
    savings: Savings = field(default_factory=Savings)
    price: float = 0.0
    """Recent weighted tokens per second."""
    _tries_s: float | None = None
    """What exploration may spend now, seconds; None before the first step."""
    _steps: int = 0
    _tried: dict[int, int] = field(default_factory=dict)
    """For each size of a step: when it was last seen, as a count of steps."""

    def plan(self, turns: Sequence[Turn], now: float, *, others: int, room: int, busy: bool) -> Plan:
        """`others`: tokens in the step that aren't decided here. `room`: most drafts in all. `busy`: something else is
        due, so that nothing may wait for these streams.
        """
        base = sum(turn.outlook.weight for turn in turns)
        size, context = len(turns) + others, sum(turn.context for turn in turns)
        seconds = self._seconds(size, context)
        gains = [turn.gains(turn.pending) for turn in turns]
        known = min(room, max(0, self.cost.largest - size))
        best = choose(gains, base, seconds, known)
        trial = self._try(gains, base, seconds, min(room, self.cost.largest), size, best)
        if trial is not None:
            return Plan(trial.shares, explores=True)
        plain = choose(gains, base, seconds, known, exactly=0)
        if self.savings.seconds < 0:
            return Plan(plain.shares)
        if best.rate <= BETTER * plain.rate:
            best = plain
        until = None if busy else self._wait(turns, best, now, size, context)
        if until is not None:
            return Plan(until=until)
        return Plan(best.shares, self._hold(turns, best, now, size, context))

    def stepped(self, tokens: int, weighted: float, streams: int, size: int, seconds: float, plain_s: float) -> None:
        """A step of `size` tokens gave `streams` streams `tokens`, worth `weighted`, in `seconds`."""
        self._steps += 1
        self._tried[size] = self._steps
        self.savings.step(tokens, streams, seconds, plain_s)
        if self._tries_s is None:
            self._tries_s = FIRST_TRIES * seconds
        self._tries_s = min(FIRST_TRIES * plain_s, self._tries_s + EXPLORATION * seconds)
        self.price = _blend(self.price or None, weighted / seconds) if seconds > 0 else self.price

    def explored(self, weighted: float, seconds: float) -> None:
        """A trial took `seconds`: charge what the same tokens would have cost less, at the price."""
        if self._tries_s is not None and self.price > 0:
            self._tries_s -= max(0.0, seconds - weighted / self.price)

    def worthwhile(self, turns: Sequence[Turn], room: int) -> list[bool]:
        """For each stream: whether some of its drafts would be checked if all had as many as they may."""
        gains = [turn.gains(turn.limit) for turn in turns]
        base = sum(turn.outlook.weight for turn in turns)
        seconds = self._seconds(len(turns), sum(turn.context for turn in turns))
        return [share > 0 for share in choose(gains, base, seconds, room).shares]

    def _seconds(self, size: int, context: int, wait_s: float = 0.0) -> Callable[[int], float]:
        """Time of a step as a function of its drafts, after a wait."""
        return lambda drafts: wait_s + self.cost.predict(size + drafts, context)

    def _try(
        self,
        gains: list[list[float]],
        base: float,
        seconds: Callable[[int], float],
        room: int,
        size: int,
        best: Budget,
    ) -> Budget | None:
        """A total whose cost is unknown, or was seen longest ago, if it may be the best and its loss is allowed for."""
        most = min(room, sum(map(len, gains)))
        if self._tries_s is None or self._tries_s <= 0 or not most:
            return None
        unseen = [n for n in range(1, most + 1) if not self.cost.seen(size + n)]
        total = unseen[-1] if unseen else min(range(1, most + 1), key=lambda n: self._tried.get(size + n, 0))
        if not unseen and not self._stale(size + total):
            return None
        trial = choose(gains, base, seconds, most, exactly=total)
        loss = trial.seconds - trial.value / self.price if self.price > 0 else 0.0
        return trial if loss <= self._tries_s and trial.rate > OPTIMISM * best.rate else None

    def _stale(self, size: int) -> bool:
        """Whether a size was last seen a hundred steps ago: 1% of the steps look at it again."""
        return self._steps - self._tried.get(size, 0) > 1 / EXPLORATION

    def _wait(self, turns: Sequence[Turn], best: Budget, now: float, size: int, context: int) -> float | None:
        """Until when to wait for drafts, if that gives a better rate."""
        arrivals: list[tuple[float, int]] = []
        give_up: list[float] = []
        for i, turn in enumerate(turns):
            expected = turn.outlook.expected(now) if turn.outlook.flows else None
            if expected is not None:
                due, overdue = expected
                arrivals += [(due + k * (turn.outlook.interval_s or 0.0), i) for k in range(LOOK_AHEAD)]
                give_up.append(overdue)
        base = sum(turn.outlook.weight for turn in turns)
        room = max(0, self.cost.largest - size)
        pending = [turn.pending for turn in turns]
        for at, i in sorted(arrivals)[:LOOK_AHEAD]:
            wait_s = at - now
            if wait_s > min(self.savings.seconds, turns[i].hold_s):
                break
            pending[i] += max(1, round(turns[i].outlook.length))
            gains = [turn.gains(count) for turn, count in zip(turns, pending, strict=True)]
            if choose(gains, base, self._seconds(size, context, wait_s), room).rate > BETTER_WAIT * best.rate:
                return min(give_up)
        return None

    def _hold(self, turns: Sequence[Turn], best: Budget, now: float, size: int, context: int) -> frozenset[int]:
        """Streams without drafts whose token would cost more than it is worth, and whose drafts are expected."""
        total = size + best.drafts
        step_s = self.cost.predict(total, context)
        held: set[int] = set()
        for i, turn in enumerate(turns):
            expected = turn.outlook.expected(now)
            if turn.pending or expected is None or len(held) + 1 == len(turns):
                continue
            saved_s = step_s - self.cost.predict(max(1, total - 1), context - turn.context)
            affordable = expected[0] - now <= min(turn.hold_s, self.savings.seconds)
            if affordable and turn.outlook.weight < self.price * saved_s:
                held.add(i)
        return frozenset(held)
