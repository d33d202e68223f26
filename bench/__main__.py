"""`python -m bench NAME`: what README and docs/results.md quote. With --json, one object as the last line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli import device, engines, schemes, service
from bench.report import Report, describe, machine

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
for group in (schemes, engines, service, device):
    app.add_typer(group.app)


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


def run() -> None:
    app()


if __name__ == "__main__":
    run()
