"""An edge device without weights: drafts ahead on every stream, reconciles, reconnects, resumes, or carries on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from edge.protocol import frames
from edge.protocol.drafting import DraftingSession
from edge.protocol.frames import Cancel, Commit, Finish, Open, Opened, Policy, Resume, Sampling, Window
from tests.edge.protocol.network import Network, Socket

DRAFT_TOKENS = 8
"""Most in a draft: less than the tails that are sent again."""
Propose = Callable[[int, int], int | None]
"""(position, how many times it was asked before) → token, or None for no idea."""


@dataclass(slots=True, eq=False)
class Job:
    """One stream that the device wants, whatever happens on the way."""

    prompt: tuple[int, ...]
    max_tokens: int
    propose: Propose
    policy: Policy = "eager"
    draft_s: float = 0.01
    block: int = 1
    held_tokens: int = 256
    """Of the cloud's limits: drafts past it would be dropped, so the edge doesn't make them."""
    cancel_at: int | None = None
    """Leave once this many tokens are there."""
    session: DraftingSession = field(init=False)
    resume: str | None = None
    open: bool = False
    """Whether drafts may be sent: on its first socket from the start, later once it is opened."""
    attempts: int = 0
    drafting: bool = False
    asked: int = 0
    rollbacks: int = 0
    cache: list[int] = field(default_factory=list)
    """The output tokens that the drafter's KV cache holds."""
    finished_at: float | None = None
    opens: int = 0

    def __post_init__(self) -> None:
        limit = min(self.held_tokens, self.block if self.policy == "sync" else self.held_tokens)
        self.session = DraftingSession(0, block=self.block, limit=limit, draft_tokens=DRAFT_TOKENS)

    @property
    def done(self) -> bool:
        return self.finished_at is not None


class Device:
    def __init__(self, network: Network, jobs: list[Job], *, dies_at: float | None = None) -> None:
        self.network, self.clock = network, network.clock
        self.jobs = jobs
        self.socket: Socket | None = None
        self.connects = 0
        self._names = 0
        self._dead = False
        if dies_at is not None:
            self.clock.after(dies_at, self._die)
        self.connect()

    def connect(self) -> None:
        self.connects += 1
        self.socket = self.network.connect(self)
        for job in self.jobs:
            if not job.done:
                self._start(job)

    def lost(self, socket: Socket) -> None:
        if socket is self.socket:
            self.socket = None
            if not self._dead:
                self.connect()

    def received(self, socket: Socket, frame: Any) -> None:
        job = next((job for job in self.jobs if job.session.stream == getattr(frame, "stream", None)), None)
        if self._dead or job is None or job.done:
            return
        session = job.session
        match frame:
            case Opened():
                session.opened(frame, resumed=job.attempts > 1)
                job.resume, job.open = frame.resume, True
                self._maybe_cancel(job)
            case Commit():
                self._reconcile(job, frame)
                self._maybe_cancel(job)
            case Window():
                session.widen(frame)
            case Finish():
                session.finished(frame)
                job.finished_at = self.clock.now
            case frames.Error(code="draft_refused"):
                session.refused(frame)
            case frames.Error(code="unknown_resume"):
                job.resume = None
                self._start(job)
        self._go_on(job)

    def _start(self, job: Job) -> None:
        """Resume, or open with what is held: anywhere, as if nothing had happened."""
        assert self.socket is not None
        job.attempts += 1
        job.open = job.attempts == 1
        session = job.session
        session.stream = self._names
        self._names += 1
        if job.resume is not None:
            self.socket.send(Resume(session.stream, job.resume, session.head), up=True)
        else:
            job.opens += 1
            committed = tuple(session.ledger.tokens)
            sampling = Sampling(seed=7)
            self.socket.send(
                Open(
                    session.stream,
                    "m",
                    job.prompt,
                    committed=committed,
                    sampling=sampling,
                    max_tokens=job.max_tokens,
                    policy=job.policy,
                ),
                up=True,
            )
        self._go_on(job)

    def _reconcile(self, job: Job, frame: Commit) -> None:
        change = job.session.commit(frame)
        if len(job.cache) > change.keep:
            del job.cache[change.keep :]
        job.cache.extend(change.feed)
        job.rollbacks += bool(change.feed)
        assert job.cache == job.session.ledger.tokens + job.session.tail

    def _maybe_cancel(self, job: Job) -> None:
        if job.cancel_at is not None and job.session.head >= job.cancel_at and self.socket is not None:
            self.socket.send(Cancel(job.session.stream), up=True)

    def _go_on(self, job: Job) -> None:
        """Begin the next draft token and send what there is to send."""
        if not job.drafting and job.session.wants_draft and not self._dead:
            token = job.propose(job.session.end, job.asked)
            job.asked += 1
            if token is not None:
                job.drafting = True
                rollbacks, drafted = job.rollbacks, token
                self.clock.after(job.draft_s, lambda: self._drafted(job, drafted, rollbacks))
        self._send_drafts(job)

    def _drafted(self, job: Job, token: int, rollbacks: int) -> None:
        job.drafting = False
        if job.rollbacks == rollbacks and not job.done:  # else it was drafted behind tokens that are gone
            job.session.draft(token)
            job.cache.append(token)
        self._go_on(job)

    def _send_drafts(self, job: Job) -> None:
        if self.socket is not None and job.open and not self._dead:
            # Nothing being drafted: out of ideas, or the window is full.
            while (draft := job.session.next_block(flush=not job.drafting)) is not None:
                self.socket.send(draft, up=True)

    def _die(self) -> None:
        self._dead = True
