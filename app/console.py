"""What the commands of `paceline-gateway` share: their settings, and how they fail."""

from __future__ import annotations

from typing import Any, NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from app.config import Settings


def load_settings(**given: Any) -> Settings:
    """Settings, with what the command line gave on top; ends the program, naming the fault, if one is wrong."""
    try:
        return read_settings(**given)
    except ValidationError as error:
        lines = []
        for fault in error.errors():
            name = "".join(f"PACELINE_{part}".upper() + ": " for part in fault["loc"][:1])
            lines.append(name + fault["msg"].removeprefix("Value error, "))
        fail("\n".join(lines))


def read_settings(**given: Any) -> Settings:
    """The same; raises ValidationError."""
    return Settings(**{name: value for name, value in given.items() if value is not None})


def show(table: Table) -> None:
    """Print a table as wide as it is: a line that wraps can be read, an id that is cut can't be used."""
    console = Console()
    needed = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    Console(width=max(console.width, needed)).print(table)


def fail(message: str, *, status: int = 2) -> NoReturn:
    """Say what is wrong and end the program."""
    Console(stderr=True).print(message, style="red", highlight=False, soft_wrap=True)
    raise typer.Exit(status)
