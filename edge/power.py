"""Whether a device runs on battery, and how hot it is: Linux (sysfs) and macOS (pmset); elsewhere nothing is known."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SYS: Final = Path("/sys/class")
_ASK_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Power:
    on_battery: bool = False
    celsius: float | None = None
    """The hottest sensor; None: none can be read."""


def look(root: Path = _SYS) -> Power:
    """The present state; `root` is where Linux keeps its classes of devices."""
    if sys.platform == "darwin":
        return Power(_pmset_says_battery(), None)
    return Power(_discharging(root / "power_supply"), _hottest(root / "thermal"))


def _discharging(supplies: Path) -> bool:
    """A mains supply that is on line decides; without any, a battery that discharges."""
    found = list(supplies.glob("*"))
    mains = [_text(supply / "online") for supply in found if _text(supply / "type") in ("Mains", "USB")]
    if "1" in mains:
        return False
    return any(_text(s / "type") == "Battery" and _text(s / "status") == "Discharging" for s in found)


def _hottest(zones: Path) -> float | None:
    """Sensors report thousandths of a degree."""
    readings = [text for zone in zones.glob("thermal_zone*") if (text := _text(zone / "temp")).lstrip("-").isdigit()]
    return max((int(text) / 1000 for text in readings), default=None)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):  # not every device has every file, and some refuse to be read
        return ""


def _pmset_says_battery() -> bool:
    try:
        said = subprocess.run(["/usr/bin/pmset", "-g", "batt"], capture_output=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"'Battery Power'" in said.stdout
