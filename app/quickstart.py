"""`make run`: everything on one machine, so that the first look takes one command.

Models, gateway, one edge device asking one question, and then the gateway stays up. Gateway and device are processes of
their own, started through the same commands that a person would type; this file only holds their hands.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx2
from rich.console import Console

from app.config import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

QUESTION = "Tell me how bread is made, step by step."
START_S = 120.0
"""How long the gateway may take to load its model and answer."""
STOP_S = 15.0
"""How long it may take to end its streams before it is killed."""


class QuickstartError(Exception):
    """Something that the user can mend; the message says how."""


def main() -> int:
    """Run it all. Returns the exit status; Ctrl-C at any point ends what was started and is no error."""
    console = Console(highlight=False)
    settings = Settings()
    # Ctrl-C and `kill` take the same way out, so that the gateway never outlives us.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _step("The embedded model pair", [_script("paceline-edge"), "models", "pull"])
        _step("The database", [sys.executable, "-m", "alembic", "upgrade", "head"])
        # One for this run, unless the operator chose one: it is in the address printed below.
        admin_key = settings.admin_key.get_secret_value() or secrets.token_urlsafe(24)
        with _gateway(settings, console, admin_key) as process:
            _ask(settings, console)
            _invite(settings, console, admin_key)
            stay(process, _log(settings))
    except QuickstartError as error:
        console.print(f"[red]✗[/] {error}")
        return 1
    except KeyboardInterrupt:
        console.print("\nStopped.")
    return 0


def _step(name: str, arguments: Sequence[str]) -> None:
    if subprocess.run(arguments, check=False).returncode:  # noqa: S603
        raise QuickstartError(f"{name} could not be set up; the lines above say why.")


@contextmanager
def _gateway(settings: Settings, console: Console, admin_key: str) -> Iterator[subprocess.Popen[bytes]]:
    """The gateway, ready to serve; stopped on the way out. Its log goes to a file, this terminal is for people."""
    base = f"http://{settings.host}:{settings.port}"
    if _answers(f"{base}/healthz"):
        raise QuickstartError(
            f"Something already serves {base}. Stop it, or choose another port: PACELINE_PORT=8010 make run"
        )
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    log = _log(settings)
    with log.open("ab") as output:
        # A session of its own: Ctrl-C reaches us alone, and we stop it in order.
        process = subprocess.Popen(  # noqa: S603
            [_script("paceline-gateway"), "serve"],
            env={**os.environ, "PACELINE_ADMIN_KEY": admin_key},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            # Threads of the target and of the drafter that share a core slow each other by far more than half.
            _pin(process.pid, core=0)
            _wait_until_ready(process, base, log, console)
            yield process
        finally:
            _stop(process, console)


def _wait_until_ready(process: subprocess.Popen[bytes], base: str, log: Path, console: Console) -> None:
    began = time.monotonic()
    with console.status(f"Starting the gateway on {base} and loading the target model …"):
        while not _answers(f"{base}/readyz"):
            if process.poll() is not None:
                stay(process, log)
            if time.monotonic() - began > START_S:
                raise QuickstartError(f"The gateway was not ready after {START_S:.0f} s.\n{_tail(log)}")
            time.sleep(0.1)
    console.print(f"[green]✓[/] Gateway on {base}, ready after {time.monotonic() - began:.1f} s (log: {log})")


def stay(process: subprocess.Popen[bytes], log: Path) -> None:
    """For as long as the gateway lives. Raises QuickstartError when it has ended by itself."""
    status = process.wait()
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    raise QuickstartError(f"The gateway {how}.\n{_tail(log)}")


def _log(settings: Settings) -> Path:
    return settings.data_dir / "gateway.log"


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url, timeout=2.0).is_success
    except httpx2.HTTPError:
        return False


def _tail(log: Path, lines: int = 15) -> str:
    with log.open(errors="replace") as text:
        return f"The end of {log}:\n" + "".join(deque(text, lines))


def _stop(process: subprocess.Popen[bytes], console: Console) -> None:
    if process.poll() is not None:
        return
    with console.status("Stopping the gateway …"):
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _pin(pid: int, core: int) -> None:
    """Give a process a core of its own where there are two or more; elsewhere, and off Linux, leave it."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(pid, {cores[core % len(cores)]})


def _ask(settings: Settings, console: Console) -> None:
    console.rule(f"[bold]An edge device asks: {QUESTION}[/]")
    gateway = {"PACELINE_URL": f"http://{settings.host}:{settings.port}", "PACELINE_API_KEY": _key(settings)}
    environment = {**os.environ, **gateway}
    process = subprocess.Popen(  # noqa: S603
        [_script("paceline-edge"), "chat", QUESTION, "--compare", "--max-tokens", "150"],
        env=environment,
    )
    _pin(process.pid, core=1)
    try:
        if process.wait():
            raise QuickstartError("The device's question failed; the lines above say why. Try: paceline-edge doctor")
    except KeyboardInterrupt:
        process.wait()  # Ctrl-C reached it too
        raise


def _key(settings: Settings) -> str:
    path = settings.data_dir / "initial-key"
    try:
        return path.read_text().strip()
    except OSError as error:
        raise QuickstartError(
            f"No API key at {path} ({error.strerror}). Make one with: paceline-gateway keys create, and write it there."
        ) from error


def _invite(settings: Settings, console: Console, admin_key: str) -> None:
    base, key = f"http://{settings.host}:{settings.port}", _key(settings)
    model = settings.target_id or settings.target_path.stem
    request = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello!"}}], "stream": true}}'
    console.rule("[bold]Up and running, Ctrl-C stops it[/]")
    # Not through rich: whole lines, to be copied.
    sys.stdout.write(f"""
A page that drafts in the browser:
  {base}/#key={key}

What the gateway is doing, live:
  {base}/ops#key={admin_key}

Chat from this terminal, as a device:
  PACELINE_API_KEY={key} {os.path.relpath(_script("paceline-edge"))} chat

Any OpenAI client: base URL {base}/v1, or
  curl -N {base}/v1/chat/completions \\
    -H 'Authorization: Bearer {key}' \\
    -H 'Content-Type: application/json' -d '{request}'

""")
    sys.stdout.flush()


def _script(name: str) -> str:
    """Path of a command of ours, in the environment that runs this."""
    return os.path.join(os.path.dirname(sys.executable), name)


if __name__ == "__main__":
    sys.exit(main())
