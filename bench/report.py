"""How a bench says what it found: a table for people, a JSON object as the last line, progress on stderr."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

Row = Mapping[str, Any]
_WIDTH = 200


class Report:
    """Prints a bench's result. `rows` of a table and the JSON have the same keys, so the two can be compared."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        people = Console(stderr=as_json)
        # Into a file or a pipe nobody's terminal sets the width.
        self._people = people if people.is_terminal else Console(stderr=as_json, width=_WIDTH)
        self._screen = Console(stderr=True)

    def say(self, text: str) -> None:
        """A line for people."""
        self._people.print(text, highlight=False)

    def table(self, title: str, rows: Sequence[Row], columns: Sequence[str] = ()) -> None:
        """One column per key of the first row, or those named."""
        table = Table(title=title, title_justify="left")
        keys = list(columns or (rows[0] if rows else ()))
        for key in keys:
            table.add_column(key, justify="right")
        for row in rows:
            table.add_row(*(show(row.get(key)) for key in keys))
        self._people.print(table)

    def result(self, data: Row) -> None:
        """With --json: one object, the last line of standard output."""
        if self._as_json:
            sys.stdout.write(json.dumps(dict(data)) + "\n")
            sys.stdout.flush()

    def progress(self) -> Progress:
        """A progress bar on standard error; use as a context manager."""
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._screen,
            transient=True,
        )


def show(value: Any) -> str:
    """A cell: three significant figures of a float, a dash for what was not measured."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return str(value)


def machine() -> dict[str, Any]:
    """What a figure was measured on."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load_1m": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def describe(found: Row) -> str:
    """The machine in a line. A load near the number of cores means that somebody else was measured too."""
    return (
        f"{found['cpu']}, {found['cores']} cores, {found['system']}, Python {found['python']}, "
        f"load before the run {found['load_1m']}"
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    wide = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "no AVX2")
    return f"{name} ({wide})"
