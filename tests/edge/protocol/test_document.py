"""docs/protocol.md names every field and code, its example is what travels, and its fingerprint is the code's."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from edge.openai.vocabulary import fingerprint
from edge.protocol import errors, frames
from edge.protocol.frames import JSON, cloud_codec, edge_codec

DOCUMENT = (Path(__file__).parents[3] / "docs/protocol.md").read_text()
FRAMES = get_args(frames.EdgeFrame) + get_args(frames.CloudFrame)
MAPS = (frames.Sampling, frames.Usage, frames.Limits, frames.ModelInfo)


def section(title: str) -> str:
    return DOCUMENT.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("kind", FRAMES, ids=lambda kind: kind.__struct_config__.tag)
def test_every_frame_has_its_fields_in_the_wires_order(kind: type[frames.Frame]) -> None:
    text = section("Frames")
    at = text.index(f"**`{kind.__struct_config__.tag}`**")
    after = text[at:].split("\n**`")[0].split("\n### ")[0]
    rows = re.findall(r"^\| (\w+) \|", after, re.MULTILINE)
    if rows and "field" in rows:
        assert tuple(rows[rows.index("field") + 1 :]) == kind.__struct_fields__
    else:
        named = after.split("\n\n")[0]
        assert all(name in named for name in kind.__struct_fields__)


@pytest.mark.parametrize("kind", MAPS, ids=lambda kind: kind.__name__)
def test_every_map_has_its_keys(kind: type[msgspec.Struct]) -> None:
    text = section("Limits") if kind is frames.Limits else section("Frames")
    assert all(re.search(rf"\b{name}\b", text) for name in kind.__struct_fields__)


def test_limits_have_the_codes_defaults() -> None:
    for name in frames.Limits.__struct_fields__:
        assert f"| {name} [{getattr(frames.Limits(), name):g}] |" in section("Limits").replace("1048576", "1.04858e+06")


def test_every_error_has_its_code_and_close() -> None:
    text = section("Errors and close codes")
    tree = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.ProtocolError)]
    leaves = [c for c in tree if not c.__subclasses__()]
    assert len(leaves) > 20
    for kind in leaves:
        assert f"`{kind.code}`" in text, kind
        assert kind.close is None or re.search(rf"^\| {kind.close} \| `{kind.code}` ", text, re.MULTILINE), kind


def test_the_example_is_what_travels() -> None:
    block = section("An example, byte by byte").split("```")[1]
    messages = re.findall(r"^([→←]) (\[.*\])\n((?:  [0-9a-f ]+\n)+)", block, re.MULTILINE)
    assert len(messages) == 11
    for arrow, text, dump in messages:
        sender, receiver = (edge_codec, cloud_codec) if arrow == "→" else (cloud_codec, edge_codec)
        data = bytes.fromhex(dump.replace("\n", " "))
        frame = receiver().decode(data)
        assert receiver(JSON).decode(text) == frame
        assert sender().encode(frame) == data
        assert json.loads(text)[0] == frame.__struct_config__.tag


def test_the_fingerprint() -> None:
    assert f"`{fingerprint([b'a', 'é'.encode(), b''], frozenset({2}))}`" in section("The fingerprint")
