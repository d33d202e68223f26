"""The page's drafting state machine does what edge/protocol/drafting.py does, on 10,000 random schedules."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from edge.protocol.drafting import DraftingSession
from edge.protocol.errors import ProtocolError
from edge.protocol.frames import JSON, Commit, Error, Finish, Opened, Usage, Window, cloud_codec
from edge.protocol.ledger import Ledger

NODE = shutil.which("node")
SCHEDULES = 10_000
Schedule = dict[str, Any]

pytestmark = pytest.mark.skipif(NODE is None, reason="Node.js runs the page's modules, and is not installed")


def test_the_port_equals_the_original() -> None:
    codec = cloud_codec(JSON)
    runs = [_run(random.Random(seed), codec.encode) for seed in range(SCHEDULES)]  # noqa: S311
    schedules, expected = [schedule for schedule, _ in runs], [shown for _, shown in runs]
    assert NODE is not None
    replay = subprocess.run(  # noqa: S603
        [NODE, str(Path(__file__).with_name("replay.mjs"))],
        input=json.dumps(schedules),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert replay.returncode == 0, replay.stderr
    for schedule, wanted, shown in zip(schedules, expected, json.loads(replay.stdout), strict=True):
        assert shown == wanted, schedule
    reached = {shown[0] for steps in expected for shown in steps if isinstance(shown[0], str)}
    assert reached == {"gap", "contradiction"}, "the schedules no longer reach what they were made to reach"


def _run(chance: random.Random, encode: Any) -> tuple[Schedule, list[list[Any]]]:
    """A random schedule, and what the original shows at each of its steps. Three token ids make agreement likely."""
    committed = [chance.randrange(3) for _ in range(chance.choice([0, 0, 2]))]
    limit, block = chance.choice([None, None, 3]), chance.choice([1, 2, 4])
    session = DraftingSession(1, block=block, ledger=Ledger(committed), limit=limit)
    steps: list[list[Any]] = []
    shown = []
    for _ in range(chance.randrange(4, 24)):
        name, argument, act = _step(chance, session)
        frame = argument if name in ("draft", "block") else encode(argument)
        steps.append([name, [frame, act] if name == "opened" else frame])
        shown.append(_shown(session, name, argument, act))
    return {"limit": limit, "block": block, "committed": committed, "steps": steps}, shown


def _step(chance: random.Random, session: DraftingSession) -> tuple[str, Any, bool]:
    name = chance.choices(
        ["draft", "block", "commit", "opened", "refused", "window", "finish"], [12, 6, 8, 1, 1, 2, 0.4]
    )[0]
    epoch, flag = max(0, session.epoch + chance.randrange(-1, 3)), chance.random() < 0.5
    match name:
        case "draft":
            return name, chance.randrange(3), flag
        case "block":
            return name, flag, flag
        case "commit":
            return name, _commit(chance, session), flag
        case "opened":
            head = max(0, session.head + chance.choice([-1, 0, 0, 0, 2]))
            return name, Opened(chance.randrange(9), "token", 4, 7, 0, epoch, head, chance.randrange(1, 9)), flag
        case "refused":
            return name, Error(1, "draft_refused", epoch=chance.choice([None, epoch])), flag
        case "window":
            return name, Window(1, chance.randrange(1, 9)), flag
        case _:
            length = max(0, session.head - chance.choice([0, 0, 1]))
            return "finish", Finish(1, length, "stop", None, Usage()), flag


def _commit(chance: random.Random, session: DraftingSession) -> Commit:
    """Mostly one that follows what was drafted for a while; now and then one that breaks the rules."""
    start = max(0, session.head - chance.choice([0, 0, 0, 1, 2]))
    known = session.ledger.tokens[start:] + session.tail
    tokens = [*known[: chance.randrange(len(known) + 1)], chance.randrange(3)]
    if chance.random() < 0.03:
        start += chance.randrange(1, 4)
    if chance.random() < 0.03:
        tokens[0] = 3
    return Commit(1, start, tuple(tokens), drafted=chance.randrange(len(tokens) + 1))


def _shown(session: DraftingSession, name: str, argument: Any, flag: bool) -> list[Any]:
    try:
        result = _act(session, name, argument, flag)
    except ProtocolError as error:
        result = error.code
    stats = session.stats
    counts = [stats.drafted, stats.sent, stats.agreed, stats.rolled_back, stats.rollbacks, stats.accepted]
    state = [session.stream, session.epoch, session.head, session.end, session.ahead, session.wants_draft]
    return [result, *state, list(session.tail), counts]


def _act(session: DraftingSession, name: str, argument: Any, flag: bool) -> Any:
    match name:
        case "draft":
            if session.wants_draft:
                session.draft(argument)
        case "block":
            sent = session.next_block(flush=argument)
            return sent and [sent.stream, sent.epoch, sent.start, list(sent.tokens)]
        case "commit":
            change = session.commit(argument)
            return [list(change.committed), change.agreed, list(change.rolled_back), change.keep, list(change.feed)]
        case "opened":
            session.opened(argument, resumed=flag)
        case "refused":
            session.refused(argument)
        case "window":
            session.widen(argument)
        case "finish":
            return list(session.finished(argument))
    return None
