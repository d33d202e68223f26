"""`python -m bench NAME`: what README and docs/results.md quote. With --json, one object as the last line."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from bench.pairs import PAIRS
from bench.profiles import PROFILES, profile
from bench.prompts import SETS, prompt_set
from bench.report import Report, describe, machine

NETWORKS = f"Of {', '.join(PROFILES)}; round-trip times in ms; or all."
Which = Annotated[str, typer.Option("--pair", help=f"Of models: {', '.join(PAIRS)} (1.5 GB, fetched once).")]
Asks = Annotated[str, typer.Option("--set", help=f"Of prompts: {', '.join(SETS)}.")]
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
AutoTarget = Literal["both", "F16", "Q4_1"]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line of standard output.")]


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

    bench.command(
        Report(as_json=as_json), _floats(alpha), _floats(rtt_ms), bench.Settings(run_s=run_s, repeats=repeats)
    )


@app.command()
def demo(
    rtt_ms: Annotated[str, typer.Option(help="Round-trip times, ms.")] = "0,80",
    prompts: Annotated[int, typer.Option(help="How many prompts.")] = 6,
    tokens: Annotated[int, typer.Option(help="Of each answer.")] = 100,
    as_json: Json = False,
) -> None:
    """Cloud-only, eager and hold on the embedded model pair (about 3 minutes)."""
    from bench import demo as bench

    bench.command(Report(as_json=as_json), _floats(rtt_ms), prompts, tokens)


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

    question = (prompts, tokens, rounds, _asks(asks, prompts), _pair(pair))
    settings = bench.Settings(_networks(network), _floats(temperature), *question)
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
    question = (prompts, tokens, _asks(asks, prompts), _pair(pair))
    settings = bench.Settings(_networks(network), t_d_s, t_v_s, _floats(temperature), *question)
    bench.command(Report(as_json=as_json), settings, recording, simulate_only=simulate)


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

    settings = bench.Settings([int(n) for n in _floats(number)], tokens, rounds, cores)
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

    bench.command(Report(as_json=as_json), _networks(network), trips)


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

    settings = bench.Settings(_floats(alpha), [int(n) for n in _floats(streams)], tokens, rounds, ahead=ahead)
    if quick:
        settings = bench.Settings((0.8,), (8,), 32, 1, ngram=False)
    bench.command(Report(as_json=as_json), settings)


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
def start(
    rounds: Annotated[int, typer.Option(help="How often each is started.", min=1)] = 5,
    as_json: Json = False,
) -> None:
    """Cold start and memory of `paceline-edge` before the model loads, and after (half a minute)."""
    from bench import start as bench

    bench.command(Report(as_json=as_json), rounds)


@app.command()
def drafters(
    tokens: Annotated[int, typer.Option(help="Of each of the six answers.", min=16)] = 64,
    contract: Annotated[bool, typer.Option(help="Run the contract's tests as well.")] = True,
    pair: Which = "smollm2",
    as_json: Json = False,
) -> None:
    """α and tokens a second of each drafter that runs here, and how it keeps the contract (about 4 minutes)."""
    from bench import drafters as bench

    bench.command(Report(as_json=as_json), _pair(pair), tokens, with_contract=contract)


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

    bench.command(Report(as_json=as_json), bench.Settings(_bases(base), answers, tokens, text_tokens, steps))


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


@app.command()
def page(
    rtt_ms: Annotated[str, typer.Option(help="Round-trip times, ms, added in the page.")] = "0,80",
    prompts: Annotated[int, typer.Option(help="How many prompts.")] = 4,
    tokens: Annotated[int, typer.Option(help="Of each answer.")] = 64,
    as_json: Json = False,
) -> None:
    """The draft model in a browser's tab: its rate, and ITL beside cloud-only (about 3 minutes; needs chromium)."""
    from bench import page as bench

    bench.command(Report(as_json=as_json), _floats(rtt_ms), prompts, tokens)


@app.command()
def figures(
    folder: Annotated[Path, typer.Argument(help="With NAME.json of compare, replay, edges, capacity.")] = Path(
        "docs/figures"
    ),
    document: Annotated[Path, typer.Option(help="Its marked tables are replaced.")] = Path("docs/results.md"),
) -> None:
    """Plots (SVG, light and dark) and the tables of docs/results.md from other benches' JSON (seconds)."""
    from bench import figures as bench

    bench.command(folder, document)


@app.callback()
def _machine() -> None:
    Report(as_json=True).say(describe(machine()))


def _floats(text: str) -> list[float]:
    return [float(part) for part in text.split(",") if part]


def _networks(text: str) -> list[str]:
    """Names that there are. `all` is every profile."""
    asked = [part.strip() for part in text.split(",")]
    names = [name for part in asked for name in (PROFILES if part == "all" else (part,))]
    try:
        for name in names:
            profile(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return names


def _pair(name: str) -> str:
    if name not in PAIRS:
        raise typer.BadParameter(f"no pair {name!r}: choose of {', '.join(PAIRS)}")
    return name


def _bases(text: str) -> list[str]:
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in ("tiny", *PAIRS):
            raise typer.BadParameter(f"no base {name!r}: choose of tiny, {', '.join(PAIRS)}")
    return names


def _asks(name: str, prompts: int) -> str:
    """A set of prompts that there is, and that holds so many."""
    try:
        held = len(prompt_set(name))
        if held < prompts:
            raise ValueError(f"the set {name} holds {held} prompts")
    except (ValueError, FileNotFoundError, ModuleNotFoundError) as error:
        raise typer.BadParameter(str(error)) from None
    return name


def run() -> None:
    app()


if __name__ == "__main__":
    run()
