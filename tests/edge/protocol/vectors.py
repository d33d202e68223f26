"""Vectors for a port to another language: frames, the trace of a rollback, schedules of both state machines.

`python -m tests.edge.protocol.vectors` writes them anew into docs/protocol-vectors.json, beside those of the sampling
rule. A schedule is a list of calls with what each gives and the state after it; frames are written as their JSON form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from edge.protocol import frames
from edge.protocol.drafting import DraftingSession
from edge.protocol.frames import JSON, MSGPACK, Codec, Frame
from edge.protocol.ledger import Ledger
from edge.protocol.padding import Padding, pad
from edge.protocol.verifying import Verifier

PATH = Path(__file__).parents[3] / "docs/protocol-vectors.json"

USAGE = frames.Usage(prompt=12, completion=3, drafted=5, verified=4, accepted=2, matched=0, steps=2)
EXAMPLES: tuple[tuple[str, Frame], ...] = (
    ("hello", frames.Hello(1, "sk-pl-example", "", "9f86d081", "example/1")),
    ("hello with a ticket", frames.Hello(1, ticket="t-example")),
    ("open with ids", frames.Open(1, "m", (9, 300, 70_000), sampling=frames.Sampling(temperature=0.0), max_tokens=64)),
    (
        "open with messages and text",
        frames.Open(2, "m", messages=(frames.Message("user", "Grüß Gott"),), stop=("\n",), policy="hold", text=True),
    ),
    (
        "open that carries its output",
        frames.Open(3, "m", (9,), committed=(10, 11), sampling=frames.Sampling(temperature=0.5, seed=7, choice=1)),
    ),
    ("draft", frames.Draft(1, 0, 0, (464, 2068, 7586))),
    ("draft of large numbers", frames.Draft(2**53, 300, 70_000, (127, 128, 255, 256, 65_535, 65_536, 2**31 - 1))),
    ("resume", frames.Resume(4, "r-example", 17)),
    ("cancel", frames.Cancel(1)),
    ("ping", frames.Ping(1)),
    (
        "welcome",
        frames.Welcome(1, (frames.ModelInfo("m", "9f86d081", 49_152, 2048, True),), frames.Limits(draft_tokens=32)),
    ),
    ("opened", frames.Opened(1, "r-example", 12, 7, 0, 0, 0, 16)),
    ("commit of one token", frames.Commit(1, 0, (464,), step_us=31_000)),
    ("commit of accepted drafts", frames.Commit(1, 1, (2068, 4419), 1, 31_000, 12_000)),
    (
        "commit with text and logprobs",
        frames.Commit(2, 0, (5,), text="é", logprobs=(frames.TokenLogprob(5, -0.25, ((5, -0.25), (6, -2.0))),)),
    ),
    ("window", frames.Window(1, 8)),
    ("finish", frames.Finish(1, 3, "stop", 11, USAGE)),
    ("finish that keeps all", frames.Finish(1, 3, "length", None, USAGE)),
    ("error of a stream", frames.Error(1, "draft_refused", "drafts leave a hole", epoch=3)),
    ("error of the socket", frames.Error(None, "bad_frame", "not a frame")),
    ("error that ends a stream", frames.Error(1, "overloaded", "the queue is full", final=True, retry_after_s=2.5)),
    ("pong", frames.Pong(1)),
)

PADDED: tuple[tuple[Padding, Frame | None], ...] = (
    (Padding(64, 50), frames.Ping(1)),
    (Padding(64, 50), None),
    (Padding(64, 20), frames.Draft(1, 0, 0, tuple(range(1000, 1020)))),
)


def plain(value: Any) -> Any:
    """As it looks in JSON."""
    return msgspec.to_builtins(value)


def frame_vectors() -> list[dict[str, str]]:
    vectors = []
    for name, frame in EXAMPLES:
        text, data = (Codec(sub, frames.EdgeFrame).encode(frame) for sub in (JSON, MSGPACK))
        assert isinstance(text, str)
        assert isinstance(data, bytes)
        vectors.append({"name": name, "json": text, "msgpack": data.hex()})
    return vectors


class Machine:
    """A state machine driven by calls that JSON can write."""

    def __init__(self, options: dict[str, Any]) -> None:
        raise NotImplementedError

    def call(self, name: str, *arguments: Any) -> Any:
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        raise NotImplementedError

    def stats(self) -> dict[str, int]:
        raise NotImplementedError


class Drafting(Machine):
    FRAMES = {"commit": frames.Commit, "opened": frames.Opened, "refused": frames.Error}  # noqa: RUF012
    FRAMES |= {"widen": frames.Window, "finished": frames.Finish}

    def __init__(self, options: dict[str, Any]) -> None:
        committed = Ledger(options.get("committed", ()))
        self.session = DraftingSession(
            options["stream"], block=options["block"], limit=options["limit"], ledger=committed
        )

    def call(self, name: str, *arguments: Any) -> Any:
        if name == "next_block":
            return plain(self.session.next_block(flush=arguments[0]))
        if name == "draft":
            return self.session.draft(arguments[0])
        frame = msgspec.convert(arguments[0], self.FRAMES[name])
        if name == "opened":
            return self.session.opened(frame, resumed=arguments[1])
        given = getattr(self.session, name)(frame)
        return asdict(given) if name == "commit" else given

    def state(self) -> dict[str, Any]:
        names = ("stream", "head", "tail", "epoch", "wants_draft")
        return {name: plain(getattr(self.session, name)) for name in names}

    def stats(self) -> dict[str, int]:
        return asdict(self.session.stats)


class Verifying(Machine):
    def __init__(self, options: dict[str, Any]) -> None:
        self.verifier = Verifier(Ledger(options.get("committed", ())), **{k: options[k] for k in OPTIONS})

    def call(self, name: str, *arguments: Any) -> Any:
        if name == "offer":
            return self.verifier.offer(*arguments).value
        if name == "candidates":
            return self.verifier.candidates(*arguments)
        tokens, verified, now = arguments
        self.verifier.ledger.append(tokens)
        return self.verifier.stepped(tokens, verified, now)

    def state(self) -> dict[str, Any]:
        names = ("head", "pending", "epoch", "lowest_epoch")
        state = {name: plain(getattr(self.verifier, name)) for name in names}
        return state | {"waits_until": self.verifier.waits_until()}

    def stats(self) -> dict[str, int]:
        return asdict(self.verifier.stats)


OPTIONS = ("policy", "hold_s", "held_tokens", "vocabulary")
MACHINES: dict[str, type[Machine]] = {"drafting": Drafting, "verifying": Verifying}


def step(machine: Machine, call: list[Any]) -> dict[str, Any]:
    gives = machine.call(*call)
    return json.loads(json.dumps({"call": call, "gives": gives, "state": machine.state()}))  # type: ignore[no-any-return]


def replay(vector: dict[str, Any]) -> dict[str, Any]:
    """The vector again, from its options and calls alone."""
    machine = MACHINES[vector["machine"]](vector["options"])
    steps = [step(machine, given["call"]) for given in vector["steps"]]
    return vector | {"steps": steps, "stats": machine.stats()}


def rollback_trace() -> dict[str, Any]:
    """An accepted block, a rollback, a refusal, a resume, the end: once through the edge's machine."""
    usage = plain(USAGE)
    calls: list[list[Any]] = [
        *(["draft", token] for token in (464, 2068, 7586, 21831)),
        ["next_block", False],
        ["opened", ["opened", 1, "r-example", 12, 7, 0, 0, 0, 16], False],
        ["commit", ["commit", 1, 0, [464], 0, 31000, 0]],
        ["draft", 18045],
        ["next_block", False],
        ["commit", ["commit", 1, 1, [2068, 4419], 1, 30000, 12000]],
        ["draft", 11],
        ["draft", 12],
        ["next_block", True],
        ["refused", ["error", 1, "draft_refused", "", False, 2]],
        ["next_block", True],
        ["opened", ["opened", 5, "r-example", 12, 7, 0, 3, 4, 16], True],
        ["commit", ["commit", 5, 3, [11]]],
        ["next_block", True],
        ["widen", ["window", 5, 1]],
        ["commit", ["commit", 5, 3, [11, 12, 13, 14], 1]],
        ["draft", 15],
        ["finished", ["finish", 5, 7, "stop", None, usage]],
    ]
    options = {"stream": 1, "block": 2, "limit": None}
    return replay({"machine": "drafting", "options": options, "steps": [{"call": call} for call in calls]})


def drafting_calls(random: Random, session: DraftingSession) -> Iterator[list[Any]]:
    """A schedule that a right cloud could cause; drafts are right two times of three."""
    text = [random.randrange(5) for _ in range(200)]
    for _ in range(30):
        kind = random.choice(["draft"] * 5 + ["next_block"] * 3 + ["commit"] * 3 + ["opened", "refused", "widen"])
        match kind:
            case "draft" if session.wants_draft:
                wrong = random.randrange(3) == 0
                yield ["draft", text[session.end] + wrong]
            case "next_block":
                yield ["next_block", random.random() < 0.3]
            case "commit":
                start = max(0, session.head - random.randrange(3))
                tokens = text[start : session.head + random.randrange(5)]
                yield ["commit", ["commit", session.stream, start, tokens]]
            case "opened":
                stream, epoch, head = session.stream + 1, random.randrange(session.epoch + 3), session.head + 1
                yield ["opened", ["opened", stream, "r", 1, 0, 0, epoch, head, random.randrange(1, 9)], True]
            case "refused":
                epoch = random.randrange(session.epoch + 3)
                yield ["refused", ["error", session.stream, "draft_refused", "", False, epoch]]
            case "widen":
                yield ["widen", ["window", session.stream, random.randrange(1, 12)]]
    yield ["finished", ["finish", session.stream, session.head, "stop", None, {}]]


def verifying_calls(random: Random, verifier: Verifier) -> Iterator[list[Any]]:
    """What an edge could send, and some of what it shouldn't; steps in between, drafts during them as well."""
    text, now, epoch = [random.randrange(5) for _ in range(300)], 0.0, 0
    for _ in range(14):
        for _ in range(random.randrange(4)):
            epoch = max(0, epoch + random.choice([0, 0, 0, 0, 1, -1]))
            end = verifier.head + len(verifier.pending)
            start = max(0, end - random.choice([0, 0, 0, 1, 2, -1]))
            tokens = [text[start + i] + (random.randrange(5) == 0) for i in range(random.randrange(1, 5))]
            yield ["offer", epoch, start, tokens]
        limit = random.randrange(6)
        candidates = verifier.candidates(limit)
        yield ["candidates", limit]
        if random.randrange(3) == 0:
            head = verifier.head
            yield ["offer", epoch + 1, head, text[head : head + 3]]
        now += random.choice([0.25, 2.0])
        head, accepted = verifier.head, 0
        while accepted < len(candidates) and candidates[accepted] == text[head + accepted]:
            accepted += 1
        yield ["stepped", text[head : head + accepted + 1], len(candidates), now]


def schedule(kind: str, seed: int) -> dict[str, Any]:
    random = Random(seed)  # noqa: S311
    options: dict[str, Any]
    if kind == "drafting":
        options = {"stream": 1, "block": random.choice([1, 2, 4]), "limit": random.choice([None, None, 4])}
        drafting = Drafting(options)
        machine: Machine = drafting
        calls = drafting_calls(random, drafting.session)
    else:
        policy = random.choice(["eager", "hold"])
        options = {"policy": policy, "hold_s": 1.0, "held_tokens": random.choice([3, 256]), "vocabulary": 6}
        verifying = Verifying(options)
        machine, calls = verifying, verifying_calls(random, verifying.verifier)
    steps = [step(machine, call) for call in calls]
    return {"machine": kind, "options": options, "steps": steps, "stats": machine.stats()}


def padded_vectors() -> list[dict[str, Any]]:
    """Frames, and none, in their envelopes."""
    json_codec, msgpack_codec = Codec(JSON, frames.EdgeFrame), Codec(MSGPACK, frames.EdgeFrame)
    found = []
    for padding, frame in PADDED:
        texts = [None if frame is None else codec.encode(frame) for codec in (json_codec, msgpack_codec)]
        packed = pad(texts[1], padding, text=False, most=frames.EDGE_FRAME_BYTES)
        assert isinstance(packed, bytes)
        found.append(
            {
                "size": padding.size,
                "tick_ms": padding.tick_ms,
                "frame": texts[0],
                "json": pad(texts[0], padding, text=True, most=frames.EDGE_FRAME_BYTES),
                "msgpack": packed.hex(),
            }
        )
    return found


def vectors() -> dict[str, Any]:
    schedules = [schedule(kind, seed) for kind in MACHINES for seed in range(12)]
    return {"frames": frame_vectors(), "padded": padded_vectors(), "rollback": rollback_trace(), "schedules": schedules}


def write(path: Path) -> None:
    """Keys of other tests stay. One vector a line, so that a change shows in a diff."""
    held = json.loads(path.read_text()) if path.exists() else {}
    parts = []
    for key, value in (held | json.loads(json.dumps(vectors()))).items():
        if isinstance(value, list):
            lines = ",\n".join(f"  {json.dumps(item, ensure_ascii=False)}" for item in value)
            parts.append(f" {json.dumps(key)}: [\n{lines}\n ]")
        else:
            steps = ",\n".join(f"   {json.dumps(item)}" for item in value.pop("steps"))
            rest = json.dumps(value)[1:-1]
            parts.append(f' {json.dumps(key)}: {{{rest}, "steps": [\n{steps}\n ]}}')
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    write(PATH)
