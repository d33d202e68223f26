"""Schemes beside each other: is hybrid quicker, and is its text the same?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import NETWORKS, Asks, Json, Which, asked, floats, networks, pair_of
from bench.report import Report

app = typer.Typer()


@app.command()
def schemes(
    alpha: Annotated[str, typer.Option(help="Acceptance rates.")] = "0,0.5,0.8,0.9",
    rtt_ms: Annotated[str, typer.Option(help="Round-trip times, ms.")] = "0,20,80,200",
    run_s: Annotated[float, typer.Option(help="About how long each stream runs.")] = 4.0,
    repeats: Annotated[int, typer.Option(help="Streams per scheme and row.")] = 1,
    as_json: Json = False,
) -> None:
    """Cloud, synchronous, hold and eager, beside simulation and formula (scripted models, about 6 minutes)."""
    from bench import schemes as bench

    bench.command(Report(as_json=as_json), floats(alpha), floats(rtt_ms), bench.Settings(run_s=run_s, repeats=repeats))


@app.command()
def demo(
    rtt_ms: Annotated[str, typer.Option(help="Round-trip times, ms.")] = "0,80",
    prompts: Annotated[int, typer.Option(help="How many prompts.")] = 6,
    tokens: Annotated[int, typer.Option(help="Of each answer.")] = 100,
    as_json: Json = False,
) -> None:
    """Cloud-only, eager and hold on the embedded model pair (about 3 minutes)."""
    from bench import demo as bench

    bench.command(Report(as_json=as_json), floats(rtt_ms), prompts, tokens)


@app.command()
def compare(
    network: Annotated[str, typer.Option(help=NETWORKS)] = "fibre,transatlantic",
    temperature: Annotated[str, typer.Option(help="Temperatures.")] = "0,0.8",
    prompts: Annotated[int, typer.Option(help="How many of the 50 prompts.", min=1, max=50)] = 6,
    tokens: Annotated[int, typer.Option(help="Of each answer.", min=2)] = 100,
    rounds: Annotated[int, typer.Option(help="How often all take turns.", min=1)] = 1,
    asks: Asks = "chat",
    pair: Which = "smollm2",
    as_json: Json = False,
) -> None:
    """Every scheme on a model pair over named networks, greedy and sampled (about 10 minutes)."""
    from bench import compare as bench

    question = (prompts, tokens, rounds, asked(asks, prompts), pair_of(pair))
    settings = bench.Settings(networks(network), floats(temperature), *question)
    bench.command(Report(as_json=as_json), settings)


@app.command()
def replay(
    network: Annotated[str, typer.Option(help=NETWORKS)] = "80",
    t_d_ms: Annotated[float, typer.Option(help="A draft token, ms.", min=0.1)] = 10.0,
    t_v_ms: Annotated[float, typer.Option(help="A target step, ms.", min=0.1)] = 30.0,
    temperature: Annotated[str, typer.Option(help="Temperatures.")] = "0,0.8",
    prompts: Annotated[int, typer.Option(help="How many of the 50 prompts.", min=1, max=50)] = 3,
    tokens: Annotated[int, typer.Option(help="Of each answer.", min=2, max=384)] = 64,
    recording: Annotated[Path | None, typer.Option(help="Made if missing, else played; prompts as in it.")] = None,
    asks: Asks = "chat",
    pair: Which = "smollm2",
    simulate: Annotated[bool, typer.Option("--simulate", help="The event simulation alone, no clock.")] = False,
    as_json: Json = False,
) -> None:
    """The real pair's acceptance patterns at draft and step times of your choice (about 2 minutes a network)."""
    from bench import replay as bench

    t_d_s, t_v_s = t_d_ms / 1e3, t_v_ms / 1e3
    question = (prompts, tokens, asked(asks, prompts), pair_of(pair))
    settings = bench.Settings(networks(network), t_d_s, t_v_s, floats(temperature), *question)
    bench.command(Report(as_json=as_json), settings, recording, simulate_only=simulate)


@app.command()
def lossless(
    prompts: Annotated[int, typer.Option(help="How many of the 50 prompts.")] = 50,
    tokens: Annotated[int, typer.Option(help="Of each output.")] = 64,
    steady: Annotated[bool, typer.Option(help="Batches whose results don't depend on their shape.")] = False,
    as_json: Json = False,
) -> None:
    """Hybrid equals cloud-only, token for token (all 50 prompts: about 40 minutes)."""
    from bench import lossless as bench

    bench.command(Report(as_json=as_json), prompts, tokens, steady=steady)


@app.command()
def wan(
    network: Annotated[str, typer.Option(help=NETWORKS)] = "0,20,80,200",
    trips: Annotated[int, typer.Option(help="Round trips through each.")] = 50,
    as_json: Json = False,
) -> None:
    """How exactly the delaying proxy delays (about 20 seconds)."""
    from bench import accuracy as bench

    bench.command(Report(as_json=as_json), networks(network), trips)
