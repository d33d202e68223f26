"""What networks do to a device: portals, proxies, moves, sleep. Cuts are tested in tests/e2e and by `bench cuts`."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from edge.cloud import Cloud
from edge.connection import Connection, Timing
from edge.errors import Insecure, Intercepted, Unreachable
from edge.protocol.frames import Commit, Message, Open, Resume, Sampling
from edge.serve.proxy import Proxy
from edge.surroundings import Surroundings, own_address, uptime
from tests.edge.peer import Peer, Told, finish, opened, playing, stream

QUICK = Timing(connect_s=5.0, backoff_s=0.001, backoff_cap_s=0.01, watch_s=0.01, probe_s=0.05)


@asynccontextmanager
async def answering(answer: str) -> AsyncIterator[str]:
    """Something that is no gateway, and says the same to everybody."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer.replace("\n", "\r\n").encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("HTTP/1.1 302 Found\nLocation: http://login.example/\nContent-Length: 0\n\n", "sends us to login.example"),
        ("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", "answers with a web page"),
        ("HTTP/1.1 511 Network Authentication Required\nContent-Length: 0\n\n", "sign in first"),
    ],
)
async def test_a_network_that_wants_a_sign_in_is_told_from_a_gateway_that_is_down(answer: str, message: str) -> None:
    async with answering(answer) as url:
        with pytest.raises(Intercepted, match=message):
            await Connection(url, key="k").__aenter__()


PORTALS = [
    ("HTTP/1.1 302 Found\nLocation: http://login.example/\nContent-Length: 0\n\n", "sends us to login.example"),
    ("HTTP/1.1 200 OK\nContent-Type: text/html\nContent-Length: 5\n\nhello", "answers with a web page"),
    ("HTTP/1.1 511 Network Authentication Required\nContent-Length: 0\n\n", "sign in first"),
]


@pytest.mark.parametrize(("answer", "message"), PORTALS)
async def test_over_http_a_sign_in_page_is_no_answer_either(answer: str, message: str) -> None:
    async with answering(answer) as url:
        async with Cloud(url, "k") as cloud:
            with pytest.raises(Intercepted, match=message):
                await cloud.models()
            with pytest.raises(Intercepted, match=message):
                async for _ in cloud.answer([Message("user", "hello")], "m", Sampling(), 5):
                    pass
        async with Proxy(url, "k") as proxy:
            with pytest.raises(Intercepted, match=message):
                await proxy.send("POST", "/v1/chat/completions", b"{}")


async def test_a_stream_outlives_a_network_that_wants_a_sign_in_meanwhile() -> None:
    """Its socket is lost, the portal answers, somebody signs in: the stream goes on where it was."""
    signed_in = asyncio.Event()
    refused: list[None] = []

    async def play(peer: Peer) -> None:
        await peer.greet()
        if peer.number == 0:
            request = await peer.take(Open)
            await peer.send(opened(request.stream), Commit(request.stream, 0, (1, 2)))
            peer.cut()
            return
        resume = await peer.take(Resume)
        await peer.send(opened(resume.stream, head=2), Commit(resume.stream, 2, (3,)), finish(resume.stream, 3))
        await peer.gone()

    async with playing(play) as gateway:
        port = int(gateway.rpartition(":")[2])
        first = True

        async def network(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal first
            if first or signed_in.is_set():
                first = False
                there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer), return_exceptions=True)
                return
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://login.example/\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()
            refused.append(None)
            if len(refused) == 3:
                signed_in.set()

        server = await asyncio.start_server(network, "127.0.0.1", 0)
        told = Told()
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, Connection(url, key="k", timing=QUICK) as connection:
            own = stream(told)
            connection.open(own)
            await told.over()
    assert len(refused) == 3
    assert told.error is None
    assert own.session.ledger.tokens == [1, 2, 3]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that nobody has signed, and its key, in one file."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("needs openssl to make a certificate")
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made: list[str | Path] = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-keyout",
        file,
        "-out",
        file,
    ]
    done = subprocess.run([*made, *subject], capture_output=True, check=True)  # noqa: S603
    if b"CERTIFICATE" not in file.read_bytes():  # some versions write the one over the other
        raise RuntimeError(done.stderr.decode())
    return file


async def test_over_tls_only_a_gateway_with_a_valid_certificate_is_greeted(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    greeted: list[Peer] = []

    async def play(peer: Peer) -> None:
        await peer.greet()
        greeted.append(peer)
        await peer.gone()

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    async with playing(play, tls=tls) as address:
        url = f"https://localhost:{address.rpartition(':')[2]}"
        with pytest.raises(Intercepted, match="certificate is not valid"):
            await Connection(url, key="k").__aenter__()
        async with Cloud(url, "k") as cloud:
            with pytest.raises(Intercepted, match="certificate is not valid"):
                await cloud.models()
        assert not greeted
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        async with Connection(url, key="k") as connection:
            assert connection.welcome.models
    assert len(greeted) == 1


async def test_the_key_does_not_follow_a_redirect_to_another_host() -> None:
    greeted: list[Peer] = []

    async def play(peer: Peer) -> None:
        greeted.append(peer)
        await peer.greet()

    async with playing(play) as elsewhere:
        target = elsewhere.replace("http", "ws") + "/v1/verify"
        redirect = f"HTTP/1.1 307 Temporary Redirect\nLocation: {target}\nContent-Length: 0\n\n"
        async with answering(redirect) as url:
            with pytest.raises(Intercepted):
                await Connection(url, key="k").__aenter__()
    assert not greeted


@pytest.mark.parametrize("url", ["http://gateway.example:8000", "ws://192.168.1.5/v1/verify", "gateway.local"])
def test_outside_this_machine_there_is_tls_or_nothing(url: str) -> None:
    with pytest.raises(Insecure, match="unencrypted"):
        Connection(url, key="k")
    Connection(url, key="k", allow_plain=True)


def test_the_http_side_keeps_the_same_rule() -> None:
    with pytest.raises(Insecure, match="PACELINE_ALLOW_PLAIN"):
        Cloud("http://gateway.example", "k")
    Cloud("https://gateway.example", "k")
    Cloud("http://[::1]:8000", "k")


async def test_a_proxy_of_the_environment_is_used_outside_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.gone()

    async with playing(play) as url:
        port = int(url.rpartition(":")[2])

        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append((await reader.readuntil(b"\r\n\r\n")).splitlines()[0])
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_pump(reader, upstream_writer), _pump(upstream_reader, writer))

        server = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        async with server, Connection("http://gateway.example:8000", key="k", allow_plain=True) as connection:
            assert connection.welcome.models
    assert asked == [b"CONNECT gateway.example:8000 HTTP/1.1"]


async def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering("HTTP/1.1 407 Proxy Authentication Required\nContent-Length: 0\n\n") as proxy:
        monkeypatch.setenv("https_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(Unreachable, match="the proxy on the way to"):
            await Connection("http://gateway.example:8000", key="k", allow_plain=True).__aenter__()


async def test_this_machine_and_what_no_proxy_names_are_reached_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(peer: Peer) -> None:
        await peer.greet()
        await peer.gone()

    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with playing(play) as url, Connection(url, key="k") as connection:
        assert connection.connected
    monkeypatch.setenv("no_proxy", "gateway.example")
    with pytest.raises(Unreachable, match="no gateway at"):  # the name itself is looked up, and isn't there
        await Connection("http://gateway.example:8000", key="k", allow_plain=True, timing=QUICK).__aenter__()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


class World:
    """A device's clock and address, in the test's hand."""

    def __init__(self) -> None:
        self.slept_s = 0.0
        self.address: str | None = "10.0.0.1"

    def surroundings(self) -> Surroundings:
        loop = asyncio.get_running_loop()
        return Surroundings(loop.time, uptime=lambda: loop.time() + self.slept_s, own_address=lambda _: self.address)


@pytest.mark.parametrize("what", ["slept", "moved"])
async def test_after_sleep_or_a_move_a_dead_socket_is_found_out_and_the_stream_goes_on(what: str) -> None:
    world = World()

    async def play(peer: Peer) -> None:
        await peer.greet()
        if peer.number == 0:
            request = await peer.take(Open)
            await peer.send(opened(request.stream), Commit(request.stream, 0, (1, 2)))
            peer.answers_pings = False  # nothing gets through any more, and nobody says so
            await peer.gone()
            return
        resume = await peer.take(Resume)
        await peer.send(opened(resume.stream, head=2), Commit(resume.stream, 2, (3,)), finish(resume.stream, 3))
        await peer.gone()

    told = Told()
    async with (
        playing(play) as url,
        Connection(url, key="k", timing=QUICK, surroundings=world.surroundings()) as connection,
    ):
        own = stream(told)
        connection.open(own)
        await told.until(lambda: told.commits)
        if what == "slept":
            world.slept_s = 60.0
        else:
            world.address = "192.168.7.7"
        await told.over()
    assert own.session.ledger.tokens == [1, 2, 3]
    assert own.attachments == 2


async def test_after_sleep_a_socket_that_still_answers_is_kept() -> None:
    world = World()
    probed = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.greet()
        request = await peer.take(Open)
        await peer.send(opened(request.stream), Commit(request.stream, 0, (1,)))
        listening = asyncio.create_task(peer.gone())  # and answering pings
        await probed.wait()
        await peer.send(finish(request.stream, 1))
        await listening

    told = Told()
    async with (
        playing(play) as url,
        Connection(url, key="k", timing=QUICK, surroundings=world.surroundings()) as connection,
    ):
        own = stream(told)
        connection.open(own)
        await told.until(lambda: told.commits)
        world.slept_s = 60.0
        asyncio.get_running_loop().call_later(0.15, probed.set)  # past the probe
        await told.over()
    assert told.error is None
    assert own.attachments == 1


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
async def test_a_wall_clock_that_is_set_changes_nothing(monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    set_back = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.greet()
        request = await peer.take(Open)
        await peer.send(opened(request.stream), Commit(request.stream, 0, (1,)))
        peer.answers_pings = False  # a probe would find the socket dead
        listening = asyncio.create_task(peer.gone())
        await set_back.wait()
        await peer.send(Commit(request.stream, 1, (2,)), finish(request.stream, 2))
        await listening

    told = Told()
    real = time.time
    async with playing(play) as url, Connection(url, key="k", timing=QUICK) as connection:
        own = stream(told)
        connection.open(own)
        await told.until(lambda: told.commits)
        monkeypatch.setattr(time, "time", lambda: real() + jump_s)
        asyncio.get_running_loop().call_later(0.15, set_back.set)  # many looks, and a probe's time
        await told.over()
    assert told.error is None
    assert own.attachments == 1
    assert own.session.ledger.tokens == [1, 2]


def test_a_clock_that_stands_still_looks_like_sleep_and_one_that_runs_does_not() -> None:
    now, up = [0.0], [100.0]
    around = Surroundings(lambda: now[0], uptime=lambda: up[0], own_address=lambda _: "a")
    around.settle(("127.0.0.1", 1))
    now[0], up[0] = 5.0, 105.0
    assert not around.changed()
    up[0] += 60.0
    assert around.changed()
    assert not around.changed(), "it is said once"


def test_this_machine_knows_its_own_address() -> None:
    assert own_address(("127.0.0.1", 9)) == "127.0.0.1"
    assert uptime() <= uptime()
