"""`paceline-edge`: ask, look and keep house on a device. Wiring only: a command imports what it needs when it runs."""

from __future__ import annotations

import sys
from enum import StrEnum
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from edge import core_dumps

if TYPE_CHECKING:
    from rich.console import Console

    from edge.config import DeviceSettings

app = typer.Typer(
    name="paceline-edge",
    help="Answers from a large model in the cloud, drafted ahead on this device.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
models_app = typer.Typer(help="Model files on this device.", no_args_is_help=True)
app.add_typer(models_app, name="models")


class PolicyOption(StrEnum):
    eager = "eager"
    hold = "hold"
    auto = "auto"
    sync = "sync"


class DrafterOption(StrEnum):
    llama = "llama"
    mlc = "mlc"
    ngram = "ngram"
    none = "none"


class PrivacyOption(StrEnum):
    full = "full"
    redacted = "redacted"
    draft_only = "draft_only"
    local = "local"


class ServePrivacyOption(StrEnum):
    full = "full"
    local = "local"


Url = Annotated[str | None, typer.Option("--url", help="The gateway's address.", show_default=False)]
Key = Annotated[str | None, typer.Option("--key", help="API key. [env: PACELINE_API_KEY]", show_default=False)]
TargetModel = Annotated[str | None, typer.Option("--model", help="The target model's id.", show_default=False)]
Drafting = Annotated[DrafterOption | None, typer.Option("--drafter", help="What drafts on this device.")]
DraftModel = Annotated[
    str | None, typer.Option("--draft-model", help="GGUF file, or its name in the model cache.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of text for people.")]


def main() -> None:
    """Entry point; an interrupt ends it without a traceback."""
    core_dumps.forbid()
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)


@app.command()
def chat(
    question: Annotated[str | None, typer.Argument(help="What to ask; without it, a conversation.")] = None,
    url: Url = None,
    key: Key = None,
    model: TargetModel = None,
    policy: Annotated[PolicyOption | None, typer.Option(help="What the cloud does when no draft has come.")] = None,
    drafter: Drafting = None,
    draft_model: DraftModel = None,
    draft_length: Annotated[
        int | None, typer.Option(min=1, max=64, help="Tokens a round of policy sync.", show_default=False)
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer.")] = None,
    temperature: Annotated[float, typer.Option(min=0, max=100)] = 0.0,
    top_p: Annotated[float, typer.Option(min=0.0001, max=1)] = 1.0,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same answer.")] = None,
    privacy: Annotated[PrivacyOption | None, typer.Option(help="What may leave this device.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Ask cloud-only as well; figures side by side.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask a question, or hold a conversation; every token is coloured by where it came from."""
    from edge.chat import Wishes, run_chat

    settings = _settings(
        url=url,
        api_key=key,
        model=model,
        policy=policy and policy.value,
        drafter=drafter and drafter.value,
        draft_model=draft_model,
        draft_length=draft_length,
        privacy=privacy and privacy.value,
    )
    wishes = Wishes(
        max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed, compare=compare, as_json=as_json
    )
    raise typer.Exit(run_chat(settings, wishes, question))


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8001,
    url: Url = None,
    key: Key = None,
    policy: Annotated[PolicyOption | None, typer.Option(help="What the cloud does when no draft has come.")] = None,
    drafter: Drafting = None,
    draft_model: DraftModel = None,
    privacy: Annotated[ServePrivacyOption | None, typer.Option(help="What may leave this device.")] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Without a gateway the draft model may answer alone, unverified.")
    ] = False,
) -> None:
    """An OpenAI-compatible endpoint on this device: drafted here, decided in the cloud (needs the extra `serve`)."""
    settings = _settings(
        url=url,
        api_key=key,
        policy=policy and policy.value,
        drafter=drafter and drafter.value,
        draft_model=draft_model,
        privacy=privacy and privacy.value,
    )
    try:
        from edge.serve.command import run_serve
    except ImportError as error:
        _fail(f"The endpoint needs {error.name}, which isn't installed: pip install 'paceline[serve]'.")
    raise typer.Exit(run_serve(settings, host=host, port=port, local=local))


@app.command()
def doctor(
    url: Url = None,
    key: Key = None,
    model: TargetModel = None,
    drafter: Drafting = None,
    draft_model: DraftModel = None,
    as_json: AsJson = False,
) -> None:
    """Check what is installed and reachable, measure, and say whether drafting pays here."""
    from edge.doctor import run_doctor

    settings = _settings(url=url, api_key=key, model=model, drafter=drafter and drafter.value, draft_model=draft_model)
    raise typer.Exit(run_doctor(settings, as_json=as_json))


@app.command()
def disclosures(
    last: Annotated[int | None, typer.Option(min=1, help="Only the last so many requests.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Delete the log.")] = False,
    as_json: AsJson = False,
) -> None:
    """What has left this device, request by request."""
    import msgspec

    from edge.privacy import DisclosureLog
    from edge.terminal import disclosures_report

    log = DisclosureLog(_settings().disclosures())
    if clear:
        log.clear()
        typer.echo(f"Deleted {log.path}.", err=as_json)
    found = log.read(last)
    if as_json:
        typer.echo(msgspec.json.encode({"path": str(log.path), "disclosures": found}).decode())
    elif not clear:
        _console().print(disclosures_report(found, str(log.path)))


@models_app.command("pull")
def models_pull(
    target: Annotated[bool, typer.Option("--target/--draft-only", help="Also make the F16 target.")] = True,
    directory: Annotated[Path | None, typer.Option("--to", help="Model cache.", show_default=False)] = None,
) -> None:
    """Bring the embedded pair (SmolLM2-135M-Instruct: 4-bit draft, F16 target) into the model cache."""
    from edge.models import ModelError, ensure
    from edge.terminal import model_progress

    console = _console()
    try:
        with model_progress(console) as progress:
            files = ensure(directory or _settings().model_dir, target=target, progress=progress)
    except ModelError as error:
        _fail(str(error))
    for file in (files.draft, files.target) if target else (files.draft,):
        console.print(f"{file}", highlight=False, soft_wrap=True)


@models_app.command("list")
def models_list(as_json: AsJson = False) -> None:
    """Model files in the cache."""
    import msgspec

    directory = _settings().model_dir.expanduser()
    files = sorted(directory.glob("*.gguf")) if directory.is_dir() else []
    if as_json:
        listed = [{"name": file.name, "bytes": file.stat().st_size} for file in files]
        typer.echo(msgspec.json.encode({"directory": str(directory), "models": listed}).decode())
        return
    typer.echo(
        f"{directory}:" if files else f"{directory} holds no models. `paceline-edge models pull` gets the default."
    )
    for file in files:
        typer.echo(f"  {file.stat().st_size / 1e6:8.1f} MB  {file.name}")


@app.command()
def quantize(
    target: Annotated[str, typer.Argument(help="GGUF file, or its name in the model cache.")],
    bits: Annotated[int, typer.Option(help="A weight: 8, 6, 5, 4, 3 or 2.")] = 4,
    kind: Annotated[str, typer.Option(help="llama.cpp's name instead, such as Q4_0.", show_default=False)] = "",
    out: Annotated[Path | None, typer.Option("--out", help="Where to; default: beside the target.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a draft model: the target's weights in fewer bits."""
    import msgspec

    from edge.errors import EdgeError
    from edge.models import ModelError, find
    from edge.quantize import KINDS, make_draft

    if not kind and bits not in KINDS:
        _fail(f"--bits {bits}: there are {', '.join(map(str, KINDS))}.")
    try:
        path = find(target, _settings().model_dir.expanduser())
        with _console(stderr=as_json).status(f"Quantising {path.name} …"):
            made = make_draft(path, kind or KINDS[bits], out)
    except (EdgeError, ModelError) as error:
        _fail(str(error))
    if made.requantised:
        typer.secho(f"The source is {made.source}: what it lost to its bits stays lost.", err=True, fg="yellow")
    if as_json:
        facts = {"path": str(made.path), "source": made.source, "made": made.made, "bytes": made.made_bytes}
        typer.echo(msgspec.json.encode(facts | {"requantised": made.requantised}).decode())
        return
    typer.echo(f"{made.path}: {made.made}, {made.made_bytes / 1e6:.0f} MB of weights ({made.source_bytes / 1e6:.0f}).")
    typer.echo(f"How good it is: paceline-edge evaluate {made.path} --target {path}")


@app.command()
def evaluate(
    draft: Annotated[str, typer.Argument(help="GGUF file, or its name in the model cache.")],
    target: Annotated[str, typer.Option("--target", help="The model that it drafts for, as GGUF.")],
    text: Annotated[Path | None, typer.Option("--text", help="Measure perplexity on this file.")] = None,
    tokens: Annotated[int, typer.Option(min=16, max=512, help="Of each of the six answers.")] = 64,
    threads: Annotated[int, typer.Option(min=1)] = 1,
    rtt_ms: Annotated[float, typer.Option(min=0, help="Round trip to the cloud, for the recommendation.")] = 80.0,
    as_json: AsJson = False,
) -> None:
    """Measure a draft against a target: perplexity, acceptance, speed, memory, and whether it pays."""
    import msgspec

    from edge.errors import EdgeError
    from edge.evaluate import evaluate as measure
    from edge.models import ModelError, find
    from edge.terminal import evaluation_report

    directory = _settings().model_dir.expanduser()
    try:
        content = text.read_text(encoding="utf-8") if text is not None else None
        with _console(stderr=as_json).status("Loading …") as status:
            found = measure(
                find(draft, directory),
                find(target, directory),
                text=content,
                tokens=tokens,
                threads=threads,
                rtt_s=rtt_ms / 1000,
                progress=lambda what: status.update(f"Measuring: {what} …"),
            )
    except (EdgeError, ModelError, OSError, UnicodeError) as error:
        _fail(str(error))
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
    else:
        _console().print(evaluation_report(found))


@app.command()
def version() -> None:
    """Print the version."""
    try:
        typer.echo(f"paceline {installed_version('paceline')}")
    except PackageNotFoundError:
        typer.echo("paceline, not installed")


def _settings(**given: object) -> DeviceSettings:
    """The settings, with what the command line gave in front. Ends the program with a sentence if one is wrong."""
    from pydantic import ValidationError

    from edge.config import DeviceSettings, gateway_url

    try:
        settings = DeviceSettings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
        gateway_url(settings.url)
    except ValidationError as error:
        first = error.errors()[0]
        _fail(f"Setting PACELINE_{'_'.join(map(str, first['loc'])).upper()}: {first['msg']}")
    except ValueError as error:
        _fail(str(error))
    return settings


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr)


def _fail(message: str) -> NoReturn:
    typer.secho(message, err=True, fg=typer.colors.RED)
    raise typer.Exit(1)


if __name__ == "__main__":
    main()
