"""The device: drafters, privacy, network life, a browser's tab."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from bench.cli.options import Json, Which, bases, floats, pair_of
from bench.report import Report

app = typer.Typer()


@app.command()
def drafters(
    tokens: Annotated[int, typer.Option(help="Of each of the six answers.", min=16)] = 64,
    contract: Annotated[bool, typer.Option(help="Run the contract's tests as well.")] = True,
    pair: Which = "smollm2",
    as_json: Json = False,
) -> None:
    """α and tokens a second of each drafter that runs here, and how it keeps the contract (about 4 minutes)."""
    from bench import drafters as bench

    bench.command(Report(as_json=as_json), pair_of(pair), tokens, with_contract=contract)


@app.command()
def quant(
    base: Annotated[str, typer.Option(help="Of tiny, smollm2 (slow), qwen (slower, 1.5 GB to fetch).")] = "tiny",
    answers: Annotated[int, typer.Option(help="Of the small model's target.", min=2, max=59)] = 40,
    tokens: Annotated[int, typer.Option(help="Of each answer.", min=8, max=200)] = 64,
    text_tokens: Annotated[int, typer.Option(help="For perplexity and overlap.", min=256)] = 8192,
    steps: Annotated[int, typer.Option(help="Of the small model's training.", min=10)] = 1200,
    as_json: Json = False,
) -> None:
    """Perplexity, α, speed and memory by bits (2 minutes, 15 more to train first; make install-vllm before)."""
    from bench import quant as bench

    bench.command(Report(as_json=as_json), bench.Settings(bases(base), answers, tokens, text_tokens, steps))


@app.command()
def start(
    rounds: Annotated[int, typer.Option(help="How often each is started.", min=1)] = 5,
    as_json: Json = False,
) -> None:
    """Cold start and memory of `paceline-edge` before the model loads, and after (half a minute)."""
    from bench import start as bench

    bench.command(Report(as_json=as_json), rounds)


@app.command()
def cuts(
    number: Annotated[int, typer.Option("--cuts", help="How often the network is cut, at random.")] = 100,
    answers: Annotated[int, typer.Option(help="Answers, five at a time on one socket.")] = 50,
    tokens: Annotated[int, typer.Option(help="Of each answer.")] = 64,
    rtt_ms: Annotated[float, typer.Option(help="Round-trip time, ms.")] = 20.0,
    outage_ms: Annotated[float, typer.Option(help="How long the network stays away after a cut, ms.")] = 0.0,
    as_json: Json = False,
) -> None:
    """The network is cut during answers: none changes, and how much time each cut costs (about half a minute)."""
    from bench import cuts as bench

    settings = bench.Settings(answers, number, tokens, rtt_s=rtt_ms / 1e3, outage_s=outage_ms / 1e3)
    bench.command(Report(as_json=as_json), settings)


@app.command()
def page(
    rtt_ms: Annotated[str, typer.Option(help="Round-trip times, ms, added in the page.")] = "0,80",
    prompts: Annotated[int, typer.Option(help="How many prompts.")] = 4,
    tokens: Annotated[int, typer.Option(help="Of each answer.")] = 64,
    as_json: Json = False,
) -> None:
    """The draft model in a browser's tab: its rate, and ITL beside cloud-only (about 3 minutes; needs chromium)."""
    from bench import page as bench

    bench.command(Report(as_json=as_json), floats(rtt_ms), prompts, tokens)


@app.command("draft_only")
def draft_only(
    prompts: Annotated[int, typer.Option(help="How many prompts.")] = 12,
    tokens: Annotated[int, typer.Option(help="Of each answer.")] = 64,
    as_json: Json = False,
) -> None:
    """What privacy mode `draft_only` is worth, judged by the target (about 2 minutes; not a timing)."""
    from bench import draft_only as bench

    bench.command(Report(as_json=as_json), prompts, tokens)


@app.command()
def redaction(
    seed: Annotated[int, typer.Option(help="Of the made-up data.")] = 8,
    held_out: Annotated[bool, typer.Option(help="The other 300 messages, with data of Faker's.")] = False,
    as_json: Json = False,
) -> None:
    """Recall and precision of privacy mode `redacted`, on 300 messages in five languages (seconds)."""
    if held_out and find_spec("faker") is None:
        raise SystemExit("the held-out messages are filled by Faker: pip install faker")
    from bench import redaction as bench

    bench.command(Report(as_json=as_json), seed, held_out=held_out)


@app.command()
def disclosure(
    engine: Annotated[str, typer.Option(help="llama_cpp (the embedded pair) or scripted.")] = "llama_cpp",
    tokens: Annotated[int, typer.Option(help="Of each answer.", min=2)] = 32,
    as_json: Json = False,
) -> None:
    """What each privacy mode sends, captured on the wire, beside the disclosure log (half a minute)."""
    from bench import disclosure as bench

    bench.command(Report(as_json=as_json), engine, tokens)


@app.command()
def traffic(
    prompts: Annotated[int, typer.Option(help="To tell apart.", min=2, max=50)] = 20,
    answers: Annotated[int, typer.Option(help="Of each prompt, each with a seed of its own.", min=2)] = 6,
    tokens: Annotated[int, typer.Option(help="Of each answer.", min=2)] = 48,
    as_json: Json = False,
) -> None:
    """What sizes and times of messages give away, without padding and with it (about 10 minutes)."""
    from bench import traffic as bench

    bench.command(Report(as_json=as_json), bench.Settings(prompts, answers, tokens))
