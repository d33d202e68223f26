"""A gateway under load, and its tenants."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.cli.options import Json
from bench.report import Report

app = typer.Typer()


@app.command()
def serve(
    rate: Annotated[float, typer.Option(help="Requests a second, Poisson; inf: all at once.", min=0.001)] = 1.0,
    requests: Annotated[int, typer.Option(help="How many.", min=1)] = 40,
    tokens: Annotated[int, typer.Option(help="Of each answer, at most.", min=1)] = 64,
    ttft_ms: Annotated[float | None, typer.Option(help="Objective: time to the first token, ms.")] = None,
    tpot_ms: Annotated[float | None, typer.Option(help="Objective: time per further token, ms.")] = None,
    e2el_ms: Annotated[float | None, typer.Option(help="Objective: time to the last token, ms.")] = None,
    url: Annotated[str, typer.Option(help="Any OpenAI endpoint, without /v1; empty: a gateway of our own.")] = "",
    model: Annotated[str, typer.Option(help="Empty: the first that the endpoint lists.")] = "",
    seed: Annotated[int, typer.Option(help="Of the arrivals.")] = 0,
    as_json: Json = False,
) -> None:
    """Load on the OpenAI endpoint: TTFT, TPOT, ITL, goodput under objectives, as `vllm bench serve` (a minute)."""
    from bench import serve as bench
    from bench.service import Objectives

    objectives = Objectives(*(None if ms is None else ms / 1e3 for ms in (ttft_ms, tpot_ms, e2el_ms)))
    bench.command(Report(as_json=as_json), bench.Settings(rate, requests, tokens, objectives, seed, url, model))


@app.command()
def clients(
    clients: Annotated[int, typer.Option(help="Streaming clients at once.")] = 200,
    seconds: Annotated[float, typer.Option(help="All rounds together.")] = 60.0,
    rounds: Annotated[int, typer.Option(help="After each the gateway's memory is read.")] = 10,
    as_json: Json = False,
) -> None:
    """Many clients on the scripted engine: errors, CPU per token, memory; what key and quotas cost (about a minute)."""
    from bench import clients as bench

    bench.command(Report(as_json=as_json), clients, seconds, rounds)


@app.command()
def load(
    streams: Annotated[int, typer.Option(help="Hybrid streams at once.", min=1)] = 2000,
    sockets: Annotated[int, typer.Option(help="That share them.", min=1)] = 200,
    seconds: Annotated[float, typer.Option(help="Of each part: without drafts, and with them.")] = 30.0,
    step_ms: Annotated[float, typer.Option(help="A step of the scripted engine: a commit for every stream.")] = 250.0,
    soak_s: Annotated[float, typer.Option(help="Streams and sockets that come and go, for so long; 0: no soak.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Thousands of hybrid streams on one core: errors, delays, the gateway's cost, its memory (about 2 minutes)."""
    from bench import crowd as bench

    bench.command(Report(as_json=as_json), bench.Crowd(streams, sockets, seconds, step_ms / 1e3, soak_s))


@app.command()
def fairness(
    seconds: Annotated[float, typer.Option(help="Of each part.")] = 20.0,
    stalled: Annotated[int, typer.Option(help="Sockets that nobody reads.")] = 500,
    as_json: Json = False,
) -> None:
    """Two tenants of weights 3 and 1; and one beside another's stalled sockets (about 2 minutes)."""
    from bench import fairness as bench

    bench.command(Report(as_json=as_json), seconds, stalled)
