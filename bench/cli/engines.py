"""Engines: what batching, policies, vLLM and replicas bring."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Literal

import typer

from bench.cli.options import Json, floats
from bench.report import Report

app = typer.Typer()
AutoTarget = Literal["both", "F16", "Q4_1"]


@app.command()
def batching(
    streams: Annotated[int, typer.Option(help="Streams together.")] = 8,
    tokens: Annotated[int, typer.Option(help="Of each answer.")] = 128,
    rounds: Annotated[int, typer.Option(help="How often the two take turns.")] = 3,
    threads: Annotated[int, typer.Option(help="CPU threads of each.")] = 1,
    as_json: Json = False,
) -> None:
    """Our engine beside llama.cpp's own server, and beside itself with one stream (about 2 minutes)."""
    from bench import batching as bench

    bench.command(Report(as_json=as_json), streams, tokens, rounds, threads)


@app.command()
def edges(
    number: Annotated[str, typer.Option("--edges", help="How many devices.")] = "1,4,8",
    tokens: Annotated[int, typer.Option(help="Of each answer.", min=8, max=384)] = 48,
    rounds: Annotated[int, typer.Option(help="How often all take turns.", min=1)] = 2,
    cores: Annotated[int | None, typer.Option(help="For all engines together; not given: all.", min=1)] = None,
    as_json: Json = False,
) -> None:
    """Devices on one shared target, beside as many targets of their own and llama.cpp's server (about 3 minutes)."""
    from bench import edges as bench

    settings = bench.Settings([int(n) for n in floats(number)], tokens, rounds, cores)
    bench.command(Report(as_json=as_json), settings)


@app.command()
def auto(
    tokens: Annotated[int, typer.Option(help="Of each answer.", min=8, max=384)] = 96,
    rounds: Annotated[int, typer.Option(help="How often all policies take turns.", min=1)] = 3,
    target: Annotated[AutoTarget, typer.Option(help="The F16 target, or the Q4_1 draft model's file as one.")] = "both",
    as_json: Json = False,
) -> None:
    """Policy auto beside cloud-only, eager and hold: 8 streams on the F16 and the 4-bit target (about 6 minutes)."""
    from bench import auto as bench

    targets = ("F16", "Q4_1") if target == "both" else (target,)
    bench.command(Report(as_json=as_json), bench.Settings(tokens, rounds, targets=targets))


@app.command()
def vllm(
    alpha: Annotated[str, typer.Option(help="Acceptance rates.")] = "0.6,0.8,0.9",
    streams: Annotated[str, typer.Option(help="Streams together.")] = "1,8",
    tokens: Annotated[int, typer.Option(help="Of each answer.")] = 64,
    rounds: Annotated[int, typer.Option(help="How often all take turns.")] = 3,
    quick: Annotated[bool, typer.Option(help="One α, 8 streams, 32 tokens, one round, without n-gram.")] = False,
    ahead: Annotated[bool, typer.Option(help="Also an engine that plans a step ahead (needs a GPU).")] = False,
    overhead: Annotated[bool, typer.Option(help="Only what drafts cost around the model (3 minutes).")] = False,
    as_json: Json = False,
) -> None:
    """vLLM alone, with n-gram speculation, and with devices' drafts (about 15 minutes; make install-vllm first)."""
    if find_spec("vllm") is None:
        raise SystemExit("vLLM isn't installed here: make install-vllm, then .venv-vllm/bin/python -m bench vllm")
    if overhead:
        from bench import vllm_overhead

        vllm_overhead.command(Report(as_json=as_json))
        return
    from bench import vllm as bench

    settings = bench.Settings(floats(alpha), [int(n) for n in floats(streams)], tokens, rounds, ahead=ahead)
    if quick:
        settings = bench.Settings((0.8,), (8,), 32, 1, ngram=False)
    bench.command(Report(as_json=as_json), settings)


@app.command()
def ray(
    streams: Annotated[int, typer.Option(help="Streams on two replicas.")] = 16,
    tokens: Annotated[int, typer.Option(help="Of each answer of the real model.")] = 48,
    as_json: Json = False,
) -> None:
    """One of two replicas is killed mid-way; and how throughput scales with replicas, simulated (about 2 minutes)."""
    from bench import replicas as bench

    bench.command(Report(as_json=as_json), streams, tokens)


@app.command()
def simulator(
    tokens: Annotated[int, typer.Option(help="Of each answer.")] = 160,
    as_json: Json = False,
) -> None:
    """The capacity simulation beside live runs on the scripted engine, 12 settings (about 2 minutes)."""
    from bench import simulator as bench

    bench.command(Report(as_json=as_json), tokens)


@app.command()
def capacity(
    measured_s: Annotated[float, typer.Option(help="Simulated time in which streams count, seconds.")] = 20.0,
    seed: Annotated[int, typer.Option(help="Of arrivals, acceptance and jitter.")] = 0,
    as_json: Json = False,
) -> None:
    """Simulated: ITL, goodput and steps per token of each policy as load rises (about 10 minutes)."""
    from bench import capacity as bench

    bench.command(Report(as_json=as_json), measured_s, seed)
