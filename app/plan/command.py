"""`paceline-gateway plan`: the question from the command line, the answer as tables or JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from app.console import show
from app.plan.advice import ALPHAS, RTTS_S, Expectation, Question, expectations, recommended, where_it_pays
from app.plan.hardware import names, roofline
from app.plan.offered import POLICIES


def plan(
    hardware: Annotated[str, typer.Option(help=f"Of one replica: {', '.join(names('hardware'))}.")] = "h100",
    target: Annotated[str, typer.Option(help=f"The model: {', '.join(names('targets'))}.")] = "llama_70b_bf16",
    load: Annotated[float, typer.Option(min=1, help="Offered to the replica, tokens a second.")] = 1000.0,
    alpha: Annotated[
        float, typer.Option(min=0, max=1, help="Acceptance rate; `paceline-edge doctor` measures it.")
    ] = 0.8,
    draft_ms: Annotated[float, typer.Option(min=0.1, help="A device's time to draft a token, ms.")] = 10.0,
    rtt_ms: Annotated[float, typer.Option(min=0, help="Round-trip time, ms.")] = 40.0,
    jitter_ms: Annotated[float, typer.Option(min=0, help="Its standard deviation, ms.")] = 5.0,
    context: Annotated[int, typer.Option(min=1, help="Tokens of a stream in the KV cache, mean.")] = 2048,
    tokens: Annotated[int, typer.Option(min=2, help="Of an answer.")] = 256,
    where: Annotated[bool, typer.Option("--where", help="Also at which α and round trips hybrid pays.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Which policy for this hardware, model pair, network and load, and what to expect. Simulated, about a minute."""
    try:
        roof = roofline(hardware, target, context)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    question = Question(
        roof=roof,
        load=load,
        alpha=alpha,
        draft_s=draft_ms / 1e3,
        rtt_s=rtt_ms / 1e3,
        jitter_s=jitter_ms / 1e3,
        tokens=tokens,
    )
    with Progress(console=Console(stderr=True), transient=True) as progress:
        cells = len(ALPHAS) * len(RTTS_S) if where else 0
        task = progress.add_task("simulating", total=len(POLICIES) + cells)
        found = expectations(question, lambda: progress.advance(task))
        ratios = where_it_pays(question, lambda: progress.advance(task)) if where else []
    if as_json:
        answer = {
            "simulated": True,
            "recommended": recommended(found, load).policy,
            "draft_length": question.draft_length,
            "single_step_ms": roof.single_s * 1e3,
            "knee_tokens": roof.knee_tokens,
            "streams_in_memory": roof.streams,
            "policies": [asdict(expectation) for expectation in found],
            "cloud_itl_over_eager": ratios,
        }
        sys.stdout.write(json.dumps(answer) + "\n")
        return
    _print(Console(), question, found, ratios)


def _print(console: Console, question: Question, found: list[Expectation], ratios: list[list[float]]) -> None:
    roof, best = question.roof, recommended(found, question.load)
    table = Table(title=f"Simulated, {question.load:g} tokens/s offered", title_justify="left")
    for name in ("policy", "window", "batch", "ITL ms", "p99", "tokens/s", "steps/token", "wasted/token"):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for e in found:
        table.add_row(
            e.policy,
            str(e.window),
            f"{e.batch:.1f}",
            f"{e.itl_s * 1e3:.1f}",
            f"{e.itl_p99_s * 1e3:.1f}",
            f"{e.throughput:.0f}",
            f"{e.steps_per_token:.2f}",
            f"{e.wasted_per_token:.2f}",
            style="bold" if e is best else "",
        )
    show(table)
    console.print(
        f"Best here: {best.policy}. A lone stream's step takes {roof.single_s * 1e3:.1f} ms; computing binds from "
        f"{roof.knee_tokens:.0f} tokens a step on; the memory beside the weights holds {roof.streams} such streams. "
        f"Best γ of sync: {question.draft_length} (the paper's balance point: {question.balanced_length:.1f}).",
        highlight=False,
    )
    if best.policy == "cloud":
        console.print("Drafts don't pay here: hybrid loses to cloud-only.", highlight=False)
    elif found[0].batch > roof.streams:
        console.print("Without drafts this load needs more memory than there is.", highlight=False)
    if ratios:
        pays = Table(title="Cloud-only's ITL over eager's at this load: below 1 hybrid loses", title_justify="left")
        pays.add_column("α")
        for rtt_s in RTTS_S:
            pays.add_column(f"{rtt_s * 1e3:g} ms", justify="right")
        for alpha, row in zip(ALPHAS, ratios, strict=True):
            pays.add_row(f"{alpha:g}", *(f"[{'green' if r > 1.01 else 'red'}]{r:.2f}[/]" for r in row))
        console.print(pays)
