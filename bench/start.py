"""`bench start`: what a start of the device's side takes before the model loads, and memory before and after.

Each case is a process of its own, started several times: seconds by the clock and of CPU to its end, and the most
memory it held. `alone` is the program without a command; the others import what their command needs before the model.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.report import Report, machine

_ROOT: Final = Path(__file__).parents[1]
_LLAMA: Final = "edge.drafters.llama_cpp"
CASES: Final = {
    "alone (--help)": "import edge.cli, contextlib\nwith contextlib.suppress(SystemExit): edge.cli.app(['--help'])",
    "chat, n-gram drafts": "import edge.cli, edge.chat, edge.drafters.ngram",
    "chat, llama.cpp": f"import edge.cli, edge.chat, {_LLAMA}",
    "serve, llama.cpp": f"import edge.cli, edge.serve.command, {_LLAMA}",
    "serve, the model loaded": (
        f"import edge.cli, edge.serve.command\nfrom {_LLAMA} import LlamaCppDrafter\n"
        "from edge.models import default_directory, pair\nLlamaCppDrafter(pair(default_directory()).draft).close()"
    ),
}
BOUND_S: Final = 1.5
"""For all but the last."""


_ONE: Final = """
import json, os, sys, time
began = time.perf_counter()
output = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
pid = os.posix_spawn(sys.executable, [sys.executable, "-c", sys.argv[1]], os.environ, file_actions=output)
_, status, used = os.wait4(pid, 0)
unit = 1 if sys.platform == "darwin" else 1024
seconds = time.perf_counter() - began
print(json.dumps([status, seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * unit]))
"""
"""A small process between: the most that a child held counts its parent's memory, from before it was itself."""


def once(code: str) -> tuple[float, float, int]:
    """Seconds by the clock, seconds of CPU, bytes held at most."""
    told = subprocess.run([sys.executable, "-S", "-c", _ONE, code], stdout=subprocess.PIPE, check=True)  # noqa: S603
    status, seconds, cpu_s, held = json.loads(told.stdout)
    if status:
        raise RuntimeError(f"the start failed with status {status}: {code}")
    return seconds, cpu_s, held


def run(rounds: int) -> list[dict[str, Any]]:
    rows = []
    os.chdir(_ROOT)
    for name, code in CASES.items():
        once(code)  # bytecode and the disk's cache
        measured = [once(code) for _ in range(rounds)]
        clock, cpu, memory = (median(values) for values in zip(*measured, strict=True))
        rows.append({"start": name, "seconds": clock, "cpu_s": cpu, "memory_mb": round(memory / 1e6)})
    return rows


def command(report: Report, rounds: int) -> None:
    rows = run(rounds)
    report.table(f"starts, median of {rounds}", rows)
    report.result({"rows": rows, "bound_s": BOUND_S, "machine": machine()})
    slow = [row["start"] for row in rows[:-1] if row["seconds"] >= BOUND_S]
    if slow:
        raise SystemExit(f"over {BOUND_S} s before the model: {', '.join(slow)}")
