"""Every frame in both subprotocols; what isn't a frame; and what a frame weighs."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol import frames
from edge.protocol.errors import FrameTooLarge, MalformedFrame, UnknownFrame
from edge.protocol.frames import JSON, MSGPACK, Codec, Commit, Draft, Open, Ping, cloud_codec, edge_codec

EDGE_FRAMES = get_args(frames.EdgeFrame)
CLOUD_FRAMES = get_args(frames.CloudFrame)

naturals = st.integers(0, 2**53)
tokens = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)
finite = st.floats(allow_nan=False, allow_infinity=False)
# Fields whose type does not say all that holds of them, by name.
samplings = st.builds(
    frames.Sampling,
    temperature=st.floats(0, 100),
    top_k=st.integers(0, 1000),
    top_p=st.floats(0, 1, exclude_min=True),
    min_p=st.floats(0, 1),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    repetition_penalty=st.floats(0.01, 10),
    bias=st.lists(st.tuples(st.integers(0, 2**31 - 1), finite), max_size=3).map(tuple),
    seed=st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    choice=st.integers(0, 2**31 - 1),
)
limits = st.builds(
    frames.Limits,
    frame_bytes=naturals,
    draft_tokens=naturals,
    held_tokens=naturals,
    streams=naturals,
    hello_s=finite,
    idle_s=finite,
    grace_s=finite,
)
logprobs = st.builds(
    frames.TokenLogprob,
    token=naturals,
    logprob=finite,
    top=st.lists(st.tuples(naturals, finite), max_size=2).map(tuple),
)
models = st.builds(frames.ModelInfo, id=st.text(), fingerprint=st.text(), vocabulary=naturals, context=naturals)
usages = st.builds(frames.Usage, *[naturals] * 7)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "stream": naturals,
    "prompt": tokens,
    "committed": tokens,
    "tokens": tokens,
    "sampling": samplings,
    "limits": limits,
    "usage": usages,
    "models": st.lists(models, max_size=2).map(tuple),
    "messages": st.lists(st.builds(frames.Message, role=st.text(), content=st.text()), max_size=2).map(tuple),
    "stop": st.lists(st.text(), max_size=2).map(tuple),
    "pieces": st.lists(st.text(), max_size=2).map(tuple),
    "logprobs": st.lists(logprobs, max_size=2).map(tuple),
    "policy": st.sampled_from(["eager", "hold", "auto", "sync", None]),
    "privacy": st.sampled_from(["full", "redacted", "draft_only"]),
    "reason": st.sampled_from(["stop", "length", "cancelled", "error"]),
    "max_tokens": st.one_of(st.none(), st.integers(1, 2**40)),
    "ahead": st.integers(1, 2**40),
    "kept_bytes": st.one_of(st.none(), naturals),
    "epoch": naturals,
    "retry_after_s": st.one_of(st.none(), finite),
}
BY_TYPE = {"int": naturals, "str": st.text(), "bool": st.booleans(), "Natural": naturals}


def instances(kind: type[frames.Frame]) -> st.SearchStrategy[frames.Frame]:
    strategies = dict(FIELDS)
    if kind is Open:
        strategies["logprobs"] = st.one_of(st.none(), st.integers(0, 20))
    fields = {}
    for name in kind.__struct_fields__:
        annotation = str(kind.__annotations__[name])
        if name in strategies:
            fields[name] = strategies[name]
        elif annotation.startswith(("tuple[int", "tuple[Natural")):
            fields[name] = st.lists(naturals, max_size=3).map(tuple)
        else:
            fields[name] = BY_TYPE[annotation]
    return st.builds(kind, **fields)


@pytest.mark.parametrize("subprotocol", [MSGPACK, JSON])
@pytest.mark.parametrize("kind", EDGE_FRAMES + CLOUD_FRAMES, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_frame_survives_the_wire(kind: type[frames.Frame], subprotocol: str, data: st.DataObject) -> None:
    sender, receiver = edge_codec(subprotocol), cloud_codec(subprotocol)
    if kind in CLOUD_FRAMES:
        sender, receiver = receiver, sender
    frame = data.draw(instances(kind))
    assert receiver.decode(sender.encode(frame)) == frame


def raw(subprotocol: str, value: Any) -> bytes | str:
    return msgspec.json.encode(value).decode() if subprotocol == JSON else msgspec.msgpack.encode(value)


@pytest.fixture(params=[MSGPACK, JSON])
def subprotocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def codec(subprotocol: str) -> Codec:
    return cloud_codec(subprotocol)


def test_an_unknown_type_is_told_from_a_broken_frame(codec: Codec) -> None:
    with pytest.raises(UnknownFrame, match="'teleport'"):
        codec.decode(raw(codec.subprotocol, ["teleport", 1, {"a": [1]}]))
    with pytest.raises(UnknownFrame):  # a cloud's frame is not an edge's
        codec.decode(raw(codec.subprotocol, ["commit", 1, 0, [1]]))


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        {},
        {"type": "ping", "nonce": 1},
        [],
        [7],
        [["ping"], 1],
        ["ping"],
        ["ping", -1],
        ["ping", "1"],
        ["ping", True],
        ["ping", 2**53 + 1],
        ["draft", 1, 0, 0, [2**31]],
        ["draft", 1, 0, 0, [-1]],
        ["draft", 1, 0, -5, [1]],
        ["draft", 1, 0, 0, [1.5]],
        ["draft", 1, 0, 0, None],
        ["open", 1, "m", [1], [], [], {"temperature": -1}],
        ["open", 1, "m", [1], [], [], {"top_p": 0}],
        ["open", 1, "m", [1], [], [], {}, 0],
        ["open", 1, "m", [1], [], [], {}, 1, 0, [], "sometimes"],
    ],
)
def test_what_breaks_the_grammar_is_malformed(codec: Codec, value: Any) -> None:
    with pytest.raises(MalformedFrame):
        codec.decode(raw(codec.subprotocol, value))


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x93\xa5", b"\xff" * 9, b"\x91" * 200_000, b"\x92\xa1x" + b"\x91" * 9999]
)
def test_bytes_that_are_no_msgpack(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        cloud_codec(MSGPACK).decode(data)


@pytest.mark.parametrize(
    "data", ["", "{", "nonsense", "[" * 200_000, '["x",' + "[" * 9999, '["\ud800"]', '["open",1,"\\ud800"]']
)
def test_text_that_is_no_json(data: str) -> None:
    with pytest.raises(MalformedFrame):
        cloud_codec(JSON).decode(data)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty", "bias"])
def test_numbers_that_are_not_finite_are_refused(field: str, number: float) -> None:
    """MessagePack can carry them; in a logit they would poison a whole row."""
    value = [[1, number]] if field == "bias" else number
    with pytest.raises(MalformedFrame):
        cloud_codec(MSGPACK).decode(msgspec.msgpack.encode(["open", 1, "m", [1], [], [], {field: value}]))


def test_a_malformed_frame_names_its_stream_if_it_has_one(codec: Codec) -> None:
    for value, stream in [(["draft", 5, -1, 0, []], 5), (["draft", "5", 0, 0, []], None), (["hello", 1, 5], None)]:
        with pytest.raises(MalformedFrame) as caught:
            codec.decode(raw(codec.subprotocol, value))
        assert caught.value.stream == stream


def test_an_error_message_is_short(codec: Codec) -> None:
    for value in (
        ["x" * 100_000],
        ["draft", 1, 0, 0, ["y" * 100_000]],
        ["open", 1, "m", [], [], [], {}, 1, 0, [], "z" * 99_999],
    ):
        with pytest.raises((MalformedFrame, UnknownFrame)) as caught:
            codec.decode(raw(codec.subprotocol, value))
        assert len(caught.value.message) < 300


def test_the_wrong_kind_of_message() -> None:
    with pytest.raises(MalformedFrame, match="takes binary"):
        cloud_codec(MSGPACK).decode('["ping",1]')
    with pytest.raises(MalformedFrame, match="takes text"):
        cloud_codec(JSON).decode(b'["ping",1]')


def test_a_frame_over_the_limit_is_not_read(subprotocol: str) -> None:
    codec = cloud_codec(subprotocol, frame_bytes=100)
    broken: bytes | str = "[" * 101 if subprotocol == JSON else b"\x91" * 101
    with pytest.raises(FrameTooLarge):
        codec.decode(broken)


def test_the_limit_counts_bytes_not_characters() -> None:
    frame = raw(JSON, ["open", 1, "é" * 60])
    assert len(frame) < 100
    with pytest.raises(FrameTooLarge):
        cloud_codec(JSON, frame_bytes=100).decode(frame)


def test_fields_of_a_later_version_are_ignored(codec: Codec) -> None:
    assert codec.decode(raw(codec.subprotocol, ["ping", 7, "extra", {"more": [1, 2]}])) == Ping(7)
    opened = codec.decode(raw(codec.subprotocol, ["open", 1, "m", [1], [], [], {"temperature": 0, "new": 1}]))
    assert opened.sampling == frames.Sampling(temperature=0)


def test_trailing_fields_that_are_missing_have_their_defaults(codec: Codec) -> None:
    assert codec.decode(raw(codec.subprotocol, ["open", 1, "m"])) == Open(1, "m")


def test_a_commit_is_about_20_bytes_and_a_draft_token_at_most_5_more() -> None:
    cloud, edge = cloud_codec(), edge_codec()
    typical = Commit(3, 700, (30_000,), drafted=1, step_us=31_000, queue_us=12_000)
    assert len(cloud.encode(typical)) <= 26
    one, two = (len(edge.encode(Draft(3, 12, 700, (150_000,) * n))) for n in (1, 2))
    assert one <= 20
    assert two - one <= 5
