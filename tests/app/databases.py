"""A private PostgreSQL for the tests: in a temporary folder, reachable by a socket in it alone, gone at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

_START_S = 60.0


def binaries() -> Path | None:
    """The folder of initdb and postgres: on the path, or the newest where Debian puts them."""
    found = shutil.which("initdb")
    if found is not None and (Path(found).resolve().parent / "postgres").is_file():
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    return next((folder for folder in reversed(folders) if (folder / "initdb").is_file()), None)


def why_not() -> str | None:
    """Why there can be none here; None: there can."""
    if binaries() is None:
        return "PostgreSQL isn't installed (Debian: apt install postgresql)"
    if os.getuid() == 0 and _unprivileged() is None:
        return "PostgreSQL doesn't run as root, and there is no other user here"
    return None


class Server:
    """`kill` and `start` are for tests of what becomes of its clients."""

    def __init__(self, folder: Path, command: list[str | Path], owner: dict[str, str | int]) -> None:
        self._folder = folder
        self._command = command
        self._owner = owner
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Waits until it answers. A second one waits until the last of those that were killed are gone."""
        until = time.monotonic() + _START_S
        while True:
            options: dict[str, Any] = self._owner | {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self._process = subprocess.Popen(self._command, cwd=self._folder, **options)  # noqa: S603
            try:
                return self.wait(self._process)
            except RuntimeError:
                self._process.wait(30)
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # its fast shutdown
            self._process.wait(30)

    def new_database(self) -> str:
        """SQLAlchemy's URL of an empty one."""
        name = f"test{next(self._numbers)}"
        asyncio.run(self._execute(f"CREATE DATABASE {name}"))
        return self._url(name)

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Until it answers. Raises RuntimeError if it ends instead."""
        until = time.monotonic() + _START_S
        while True:
            try:
                return asyncio.run(self._execute("SELECT 1"))
            except (OSError, SQLAlchemyError) as error:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"PostgreSQL didn't start: {error}") from error
                time.sleep(0.05)

    async def _execute(self, statement: str) -> None:
        engine = create_async_engine(self._url("postgres"), isolation_level="AUTOCOMMIT")
        try:
            async with engine.connect() as connection:
                await connection.execute(text(statement))
        finally:
            await engine.dispose()

    def _url(self, database: str) -> str:
        return f"postgresql+asyncpg://paceline@/{database}?host={self._folder}"


@contextlib.contextmanager
def postgresql() -> Iterator[Server]:
    """Durability is off: what is tested is what it answers, not that it outlives a power cut."""
    where, user = binaries(), _unprivileged()
    assert where is not None, "ask why_not() first"
    with tempfile.TemporaryDirectory(prefix="pg") as made:
        folder = Path(made)
        owner: dict[str, str | int] = {}
        if os.getuid() == 0 and user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
            owner = {"user": user.pw_uid, "group": user.pw_gid}
        data = folder / "data"
        initialise = [where / "initdb", "-D", data, "-U", "paceline", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"]
        subprocess.run(initialise, check=True, capture_output=True, cwd=folder, **owner)  # type: ignore[call-overload] # noqa: S603
        options = [f"{name}=off" for name in ("fsync", "full_page_writes")]
        command: list[str | Path] = [where / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses="]
        server = Server(folder, [*command, *(part for option in options for part in ("-c", option))], owner)
        try:
            server.start()
            yield server
        finally:
            server.stop()


def _unprivileged() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None
