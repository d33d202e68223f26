"""Networks by name. Each says where its figures come from, and which of them are ours for want of a source.

Measured networks vary more than these: a profile is a place to compare at, not a forecast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from bench.link import Link

_QUARTILE: Final = 0.6744897501960817
"""Of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class Profile:
    link: Link
    source: str


def _mbit(rate: float) -> float:
    """Bytes per second."""
    return rate * 1e6 / 8


PROFILES: Final[dict[str, Profile]] = {
    "lan": Profile(
        Link(0.0005, up_bytes_per_s=_mbit(1000), down_bytes_per_s=_mbit(1000)),
        "Rate: IEEE 802.3ab. The round trip is ours: two switches and two hosts.",
    ),
    "fibre": Profile(
        Link(0.012, 0.0005, "normal", _mbit(86), _mbit(80)),
        "Measuring Broadband America 2016 (FCC), Verizon Fios 75/75: 11.55 ms, 79.7 Mbit/s down, 85.7 up."
        " Jitter is ours.",
    ),
    "5g": Profile(
        Link(0.030, 0.002, "normal", _mbit(10), _mbit(50), 0.0005),
        "Rizvi et al., arXiv 2507.18834: few users are regularly under 20 ms, about 60% see less than 50 Mbit/s."
        " Kottkamp (Rohde & Schwarz, 2022): up to 18 ms one way under load. Jitter, the rate up and loss are ours.",
    ),
    "4g": Profile(
        Link(0.070, 0.005, "normal", _mbit(12), _mbit(12), 0.001),
        "WebPageTest's connectivity profile LTE: 12/12 Mbit/s, 70 ms. Jitter and loss are ours.",
    ),
    "transatlantic": Profile(
        Link(0.080, 0.0005, "normal", _mbit(100), _mbit(100)),
        "Light in 5,600 km of fibre takes 56 ms there and back; Verizon promises 90 ms between New York and London."
        " Rates and jitter are ours.",
    ),
    "satellite": Profile(
        # The quartiles are of the round trip, the jitter is of each way.
        Link(0.050, 0.010 / _QUARTILE / math.sqrt(2), "normal", _mbit(20), _mbit(150), 0.005),
        "Starlink. Michel et al., A First Look at Starlink Performance (IMC 2022), told on blog.apnic.net 2022-11-28:"
        " median 50 ms, quartiles 40 and 60. Rates: a test of tweakers.net, 2021. Loss is ours.",
    ),
    "geostationary": Profile(
        Link(0.600, 0.010, "normal", _mbit(10), _mbit(100), 0.001),
        "The geostationary link that Michel et al. (IMC 2022) compare with: about 600 ms at least, 100/10 Mbit/s."
        " Jitter and loss are ours.",
    ),
    "train": Profile(
        Link(0.070, 0.015, "exponential", _mbit(5), _mbit(10), 0.01, outage_every_s=20.0, outage_s=1.5),
        "Wang et al., An Active-Passive Measurement Study of TCP Performance over LTE on High-speed Rails (MobiCom"
        " 2019): longer and more varied round trips, more loss and frequent handovers. All figures are ours.",
    ),
}


def profile(name: str) -> Profile:
    """Raises ValueError with the names there are; `80` or `80ms` is a plain round-trip time."""
    found = PROFILES.get(name)
    if found is not None:
        return found
    try:
        rtt_ms = float(name.removesuffix("ms"))
    except ValueError:
        raise ValueError(f"no network {name!r}: choose of {', '.join(PROFILES)}, or a round-trip time in ms") from None
    if not 0 <= rtt_ms < math.inf:
        raise ValueError(f"a round-trip time can't be {name!r}")
    return Profile(Link(rtt_ms / 1e3), "A round-trip time and nothing else.")
