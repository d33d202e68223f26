"""`paceline-gateway`: serve, and what the operator does beside it (tenants and keys: tenants_cli.py)."""

from __future__ import annotations

import shlex
import socket
import sqlite3
from contextlib import closing
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import httpx2
import structlog
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sqlalchemy.engine import make_url

from app import tenants_cli
from app.console import fail, load_settings, read_settings, show
from app.engines import build_engine
from app.main import StartError, create_app
from app.plan.command import plan
from app.server import Server
from app.telemetry import configure_logging
from edge import core_dumps
from edge.address import free

log = structlog.get_logger("paceline.cli")
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they would show local variables
    help="Paceline's cloud side: the gateway.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(tenants_cli.tenants, name="tenants")
app.add_typer(tenants_cli.keys, name="keys")
app.command("usage")(tenants_cli.usage)
replicas = typer.Typer(no_args_is_help=True, help="The replicas of a running gateway.")
app.add_typer(replicas, name="replicas")
UrlOption = Annotated[str, typer.Option(help="The running gateway. Empty: PACELINE_HOST and PACELINE_PORT.")]


def main() -> None:
    core_dumps.forbid()
    app()


class AnnouncingServer(Server):
    """Says where it listens, as soon as it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            Console(stderr=True).print(f"Gateway on [bold]{self.url}[/bold] (Ctrl-C stops it)", highlight=False)


class LoadingBar:
    """How much of a model is loaded, on a terminal; nothing in a log file. Called from the thread that loads."""

    def __init__(self, what: str) -> None:
        self._progress = Progress(console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(f"Loading {what}", total=1.0)

    def __call__(self, share: float) -> None:
        if not self._progress.console.is_terminal:
            return
        self._progress.start()
        self._progress.update(self._task, completed=share)
        if share >= 1.0:
            self.close()

    def close(self) -> None:
        self._progress.stop()


@app.command(context_settings={"allow_extra_args": True})
def serve(
    context_: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0: any free one.")] = None,
    engine: Annotated[str | None, typer.Option(help="llama_cpp, vllm or scripted.")] = None,
    model: Annotated[str | None, typer.Option(help="The target: a GGUF, for vLLM a folder or hub name.")] = None,
    model_id: Annotated[str | None, typer.Option(help="The model's name in the API.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of the target.")] = None,
    streams: Annotated[int | None, typer.Option(help="Streams in one step of the target.")] = None,
    context: Annotated[int | None, typer.Option(help="Prompt and output of one stream, tokens.")] = None,
    replicas: Annotated[int | None, typer.Option(help="Engines in processes of their own, by Ray; 0: none.")] = None,
) -> None:
    """Start the gateway. Every setting can also be given as PACELINE_* or in .env; see .env.example.

    With --engine vllm, what follows a `--` goes to vLLM: serve --engine vllm --model NAME -- --quantization fp8
    """
    given = {
        "host": host,
        "port": port,
        "engine": engine,
        "target_model": model,
        "target_id": model_id,
        "target_threads": threads,
        "engine_streams": streams,
        "context": context,
        "replicas": replicas,
        "vllm_args": shlex.join(context_.args) or None,
    }
    settings = load_settings(**given)
    if context_.args and settings.engine != "vllm":
        fail(f"Unexpected: {shlex.join(context_.args)}. Only --engine vllm takes more, behind a --.")
    if settings.engine == "vllm" and settings.vllm_model.endswith(".gguf"):
        fail("vLLM needs --model: a Hugging Face folder, in the model cache or a path, or a name on the hub.")
    if settings.engine == "llama_cpp" and not settings.target_path.is_file():
        fail(
            f"There is no model file {settings.target_path}.\nGet the embedded pair with `paceline-edge models pull`,"
            " name another file with --model, or try without a model: --engine scripted."
        )
    if settings.port and not free(settings.host, settings.port):
        fail(f"Port {settings.port} of {settings.host} is in use: stop what listens there, or choose another --port.")
    configure_logging(settings.log_format, settings.log_level)
    try:
        loading = LoadingBar(settings.target_path.name)
        built = build_engine(settings, progress=loading)
    except ImportError as error:
        extra = error.name if error.name in ("ray", "vllm") else "llama"
        what = "--replicas" if extra == "ray" else f"The engine {settings.engine}"
        fail(f"{what} needs {error.name}, which isn't installed: pip install 'paceline[{extra}]'.")
    if settings.engine == "vllm":
        Console(stderr=True).print(f"Starting vLLM with {settings.vllm_model}, a minute or so …", highlight=False)
    try:
        server = AnnouncingServer(create_app(settings, built), settings, load=partial(read_settings, **given))
        server.run()
    except KeyboardInterrupt:
        return  # uvicorn has stopped cleanly, and then passes the signal on
    except StartError as error:
        log.debug("start.failed", exc_info=error)
        fail(str(error), status=3)
    finally:
        loading.close()
    if not server.started:
        raise typer.Exit(3)


app.command()(plan)


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="The copy; it must not exist yet.")],
) -> None:
    """Copy the database to a file, also while a gateway runs. SQLite only: PostgreSQL has pg_dump."""
    url = make_url(load_settings().database)
    if url.get_backend_name() != "sqlite":
        fail(f"This database is PostgreSQL's: pg_dump --format=custom --file={target} {url.database}")
    if not url.database or not Path(url.database).is_file():
        fail(f"There is no database {url.database}.")
    if target.exists():
        fail(f"{target} exists already.")
    with closing(sqlite3.connect(url.database)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy)
    target.chmod(0o600)
    typer.echo(f"{url.database} is in {target}.")


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(metadata.version("paceline"))


@replicas.command("list")
def list_replicas(url: UrlOption = "") -> None:
    """The replicas of a running gateway, and how they are."""
    table = Table("replica", "state", "streams", "restarts", "last fault")
    for one in _ask_gateway("GET", "/admin/replicas", url):
        table.add_row(str(one["index"]), one["state"], str(one["streams"]), str(one["restarts"]), one["fault"] or "")
    show(table)


@replicas.command("drain")
def drain_replica(
    index: Annotated[int, typer.Argument(help="The replica, as `replicas list` numbers it.")],
    within: Annotated[
        float, typer.Option(help="Seconds until streams that are left are moved to other replicas.")
    ] = 60.0,
    url: UrlOption = "",
) -> None:
    """Empty a replica of a running gateway and start it anew. No stream is lost. Waits until it is done."""
    _ask_gateway("POST", f"/admin/replicas/{index}/drain", url, {"within_s": within}, timeout_s=within + 60)
    typer.echo(f"Replica {index} is empty and starts anew.")


def _ask_gateway(method: str, path: str, url: str, body: Any = None, *, timeout_s: float = 30.0) -> Any:
    """What a running gateway answers the operator."""
    settings = load_settings()
    base = url or f"http://{settings.host}:{settings.port}"
    key = settings.admin_key.get_secret_value()
    if not key:
        fail("Set PACELINE_ADMIN_KEY to the running gateway's.")
    headers = {"Authorization": f"Bearer {key}"}
    try:
        answer = httpx2.request(method, base + path, json=body, headers=headers, timeout=timeout_s)
    except httpx2.HTTPError as error:
        fail(f"{base} can't be reached: {error}")
    if answer.status_code >= 400:
        fail(f"{base} says: {answer.json()['error']['message']}")
    return answer.json()
