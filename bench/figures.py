"""`bench figures`: the plots of docs/results.md and its tables, from what other benches said with --json.

Reads `compare.json`, `replay.json`, both also as `NAME_qwen.json`, `edges.json`, `quant.json` and `capacity.json` of a
folder (those that there are; the last line of each is taken) and writes SVGs for a light and a dark page beside them.
Between `<!-- figures NAME -->` and `<!-- end -->` of the document it puts the table of NAME.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench import quantised
from bench.report import show

Row = Mapping[str, Any]
SCHEMES: Final = {"cloud": "#8a8f98", "sync": "#c2571a", "hold": "#2f7ed8", "eager": "#2a9d5c", "auto": "#9b51c9"}
"""Colours that hold on white and on near black."""
PAGES: Final = {"light": ("#ffffff", "#24292f"), "dark": ("#0d1117", "#d0d7de")}
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "compare": {
        "network": "network",
        "temperature": "T",
        "drafting": "drafts",
        "scheme": "scheme",
        "itl_ms": "ITL",
        "over_cloud": "/ cloud",
        "over_cloud_low": "from",
        "over_cloud_high": "to",
        "over_busy_cloud": "/ busy",
        "itl_p95_ms": "p95",
        "ttft_ms": "TTFT",
        "alpha": "α",
        "gamma": "γ",
        "steps_per_token": "steps",
        "wasted_per_token": "wasted",
        "edge_cpu_ms_per_token": "edge CPU",
        "cloud_cpu_ms_per_token": "cloud CPU",
        "over_formula": "/ formula",
    },
    "replay": {
        "network": "network",
        "temperature": "T",
        "drafting": "drafts",
        "alpha": "α",
        "cloud": "cloud, ms",
        "sync": "sync / cloud",
        "hold": "hold / cloud",
        "eager": "eager / cloud",
        "auto": "auto / cloud",
        "eager_over_sim": "eager / simulated",
        "auto_over_sim": "auto / simulated",
    },
    "quant": dict(quantised.COLUMNS),
    "edges": {
        "edges": "edges",
        "mode": "mode",
        "tok_s": "tokens/s",
        "tok_s_low": "least",
        "tok_s_high": "most",
        "occupancy": "streams in a step",
        "steps_per_token": "steps per token",
        "memory_mib": "own memory, MiB",
        "weights_mib": "weights, MiB",
    },
}
COLUMNS.update({f"{name}_qwen": COLUMNS[name] for name in ("compare", "replay")})


def read(path: Path) -> list[Row]:
    """The rows of a bench's last line."""
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8").strip().splitlines()[-1])["rows"]
    return rows


def beside(rows: Sequence[Row]) -> list[Row]:
    """A row for each network, temperature and way of drafting, with all schemes in it."""
    made: list[Row] = []
    clouds = {(r["network"], r["temperature"]): r["itl_ms"] for r in rows if r["scheme"] == "cloud"}
    for place in dict.fromkeys((r["network"], r["temperature"], r["drafting"]) for r in rows):
        network, temperature, drafting = place
        own = {r["scheme"]: r for r in rows if (r["network"], r["temperature"], r["drafting"]) == place}
        if drafting == "none":
            continue
        made.append(
            {
                "network": network,
                "temperature": temperature,
                "drafting": drafting,
                "alpha": own["eager"]["alpha"],
                "cloud": clouds[network, temperature],
                **{scheme: row["over_cloud"] for scheme, row in own.items()},
                **{f"{scheme}_over_sim": row.get("over_sim") for scheme, row in own.items()},
            }
        )
    return made


def table(rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """As Markdown."""
    lines = ["| " + " | ".join(columns.values()) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(show(row.get(key)) for key in columns) + " |" for row in rows]
    return "\n".join(lines)


def fill(document: str, tables: Mapping[str, str]) -> str:
    """The document with each marked table replaced. A name without a table keeps what it has."""

    def put(found: re.Match[str]) -> str:
        made = tables.get(found[1])
        return found[0] if made is None else f"<!-- figures {found[1]} -->\n{made}\n<!-- end -->"

    return re.sub(r"<!-- figures (\w+) -->\n.*?<!-- end -->", put, document, flags=re.DOTALL)


def draw(path: Path, title: str, labels: tuple[str, str], plot: Callable[[Any], None]) -> None:
    """`plot` onto axes, once for each page: PATH-light.svg and PATH-dark.svg, the same bytes for the same figures."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "paceline"
    for page, (ground, ink) in PAGES.items():
        figure = Figure(figsize=(7.2, 3.8), facecolor=ground, layout="constrained")
        axes = figure.add_subplot(facecolor=ground)
        plot(axes)
        axes.set_title(title, color=ink, fontsize=10)
        axes.set_xlabel(labels[0], color=ink)
        axes.set_ylabel(labels[1], color=ink)
        axes.tick_params(colors=ink)
        axes.grid(alpha=0.25)
        axes.spines[:].set_color(ink)
        legend = axes.legend(frameon=False, labelcolor=ink, fontsize=9)
        legend.set_zorder(3)
        figure.savefig(f"{path}-{page}.svg", metadata={"Date": None, "Creator": None})


def over_networks(rows: Sequence[Row], temperature: float, drafting: str) -> Callable[[Any], None]:
    """ITL with its interval, by scheme, over networks in the order of their round trips."""
    networks = sorted({str(row["network"]): float(row["rtt_ms"]) for row in rows}.items(), key=lambda item: item[1])
    names = [name for name, _ in networks]

    def plot(axes: Any) -> None:
        for i, (scheme, colour) in enumerate(SCHEMES.items()):
            own = [
                row
                for row in rows
                if row["scheme"] == scheme
                and row["temperature"] == temperature
                and row["drafting"] in ("none", drafting)
            ]
            own.sort(key=lambda row: names.index(row["network"]))
            middle = [float(row["itl_ms"]) for row in own]
            below = [max(0.0, row["itl_ms"] - row["itl_low_ms"]) for row in own]
            above = [max(0.0, row["itl_high_ms"] - row["itl_ms"]) for row in own]
            at = [names.index(row["network"]) + 0.06 * (i - 2) for row in own]
            axes.errorbar(at, middle, (below, above), color=colour, marker="o", ms=4, capsize=2, lw=1.2, label=scheme)
        axes.set_xticks(range(len(networks)), [f"{name}\n{rtt:.0f} ms" for name, rtt in networks], fontsize=8)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:.0f}")
        axes.yaxis.set_minor_formatter("{x:.0f}")

    return plot


def over_load(rows: Sequence[Row]) -> Callable[[Any], None]:
    def plot(axes: Any) -> None:
        for scheme, colour in SCHEMES.items():
            own = sorted((row for row in rows if row["policy"] == scheme), key=lambda row: row["load"])
            x, y = [row["load"] for row in own], [row["steps_per_token"] for row in own]
            axes.plot(x, y, color=colour, marker="o", ms=4, lw=1.2, label=scheme)
        axes.set_ylim(bottom=0)

    return plot


def over_bits(rows: Sequence[Row]) -> Callable[[Any], None]:
    """α with its interval by the bits that a weight takes, one line for each width of the activations."""
    kinds = {
        "llama.cpp, activations in 8 bits": ("llama.cpp", 8, "#c2571a"),
        "rounded, activations in 16": ("rounded, torch", 16, "#2a9d5c"),
        "in 8": ("rounded, torch", 8, "#2f7ed8"),
        "in 4": ("rounded, torch", 4, "#9b51c9"),
    }

    def plot(axes: Any) -> None:
        for label, (by, bits, colour) in kinds.items():
            own = sorted(
                (row for row in rows if (row["by"], row["activation_bits"]) == (by, bits)),
                key=lambda row: row["weight_bits"],
            )
            x, y = [row["weight_bits"] for row in own], [row["alpha"] for row in own]
            below = [max(0.0, row["alpha"] - row["alpha_low"]) for row in own]
            above = [max(0.0, row["alpha_high"] - row["alpha"]) for row in own]
            axes.errorbar(x, y, (below, above), color=colour, marker="o", ms=4, capsize=2, lw=1.2, label=label)

    return plot


def command(folder: Path, document: Path) -> None:
    """Remake all plots and tables that `folder` has figures for."""
    found = {path.stem: read(path) for path in sorted(folder.glob("*.json"))}
    network = ("network and its round trip", "ITL, ms")
    for name, title in (
        ("compare", "Embedded pair, live, greedy"),
        ("replay", "Replay of the embedded pair, greedy, t_d 10 ms, t_v 30 ms"),
        ("replay_qwen", "Replay of Qwen2.5-Coder 1.5B / 0.5B, greedy, t_d 10 ms, t_v 30 ms"),
    ):
        if name in found:
            draw(folder / f"itl-{name}", title, network, over_networks(found[name], 0.0, "top-1"))
    if "capacity" in found:
        first = found["capacity"][0]["target"]
        rows = [row for row in found["capacity"] if row["target"] == first]
        labels = ("load, tokens/s", "target steps per token")
        draw(folder / "steps-capacity", f"Simulated: {first}", labels, over_load(rows))
    if "quant" in found:
        rows = [row for row in found["quant"] if row["test"] == "yes"]
        draw(
            folder / "alpha-quant",
            "Drafts of fewer bits, for the same model in F16",
            ("bits a weight", "α"),
            over_bits(rows),
        )
    for name in {"replay", "replay_qwen"} & set(found):
        found[name] = beside(found[name])
    tables = {name: table(found[name], columns) for name, columns in COLUMNS.items() if name in found}
    text = document.read_text(encoding="utf-8")
    document.write_text(fill(text, tables), encoding="utf-8")
