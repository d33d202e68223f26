"""docs/protocol-vectors.json says what the code does: whoever ports the protocol can trust it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from edge.protocol import frames
from edge.protocol.frames import JSON, MSGPACK, cloud_codec, edge_codec
from tests.edge.protocol.vectors import EXAMPLES, PATH, replay, rollback_trace, write

VECTORS: dict[str, Any] = json.loads(PATH.read_text())


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=[name for name, _ in EXAMPLES])
def test_frames(number: int) -> None:
    vector, (name, frame) = VECTORS["frames"][number], EXAMPLES[number]
    assert vector["name"] == name
    up = isinstance(frame, get_args(frames.EdgeFrame))
    for subprotocol, data in ((JSON, vector["json"]), (MSGPACK, bytes.fromhex(vector["msgpack"]))):
        sender, receiver = edge_codec(subprotocol), cloud_codec(subprotocol)
        if not up:
            sender, receiver = receiver, sender
        assert sender.encode(frame) == data
        assert receiver.decode(data) == frame


@pytest.mark.parametrize("vector", VECTORS["padded"], ids=lambda vector: str(vector["frame"])[:8])
def test_padded(vector: dict[str, Any]) -> None:
    for subprotocol, data in ((JSON, vector["json"]), (MSGPACK, bytes.fromhex(vector["msgpack"]))):
        receiver = cloud_codec(subprotocol)
        envelope = receiver.decode(data)
        assert (envelope.size, envelope.tick_ms) == (vector["size"], vector["tick_ms"])
        frame = receiver.unwrap(envelope)
        assert frame == (None if vector["frame"] is None else cloud_codec(JSON).decode(vector["frame"]))
        assert len(data) in (64, 128, 256)


def test_every_frame_has_a_vector() -> None:
    kinds = {json.loads(vector["json"])[0] for vector in VECTORS["frames"]}
    every = get_args(frames.EdgeFrame) + get_args(frames.CloudFrame)
    assert kinds == {kind.__struct_config__.tag for kind in every}


def test_rollback() -> None:
    assert replay(VECTORS["rollback"]) == VECTORS["rollback"]
    assert [step["call"] for step in rollback_trace()["steps"]] == [
        step["call"] for step in VECTORS["rollback"]["steps"]
    ]


@pytest.mark.parametrize("vector", VECTORS["schedules"], ids=lambda vector: vector["machine"])
def test_schedules(vector: dict[str, Any]) -> None:
    assert replay(vector) == vector


def test_schedules_visit_what_matters() -> None:
    steps = [step for vector in VECTORS["schedules"] for step in vector["steps"]]
    given = {step["gives"] for step in steps if step["call"][0] == "offer"}
    assert given == {"taken", "stale", "dropped", "refused"}
    assert sum(bool(step["gives"]["rolled_back"]) for step in steps if step["call"][0] == "commit") > 10
    assert len(VECTORS["schedules"]) >= 24


def test_writing_them_anew_changes_nothing(tmp_path: Path) -> None:
    copy = tmp_path / PATH.name
    copy.write_text(PATH.read_text())
    write(copy)
    assert json.loads(copy.read_text()) == VECTORS
