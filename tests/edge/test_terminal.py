from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from edge.figures import Arrivals
from edge.terminal import LiveAnswer, PlainAnswer, figures_table, legend, line_break, model_progress

ACCEPTED, CORRECTED, CLOUD = "accepted", "corrected", "cloud"


def console(width: int = 20, **options: object) -> Console:
    return Console(
        file=io.StringIO(),
        width=width,
        height=10,
        force_terminal=True,
        color_system="standard",
        **options,  # type: ignore[arg-type]
    )


def written(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def shown(answer: LiveAnswer, width: int = 20) -> str:
    """The live region now, as plain text."""
    plain = Console(file=io.StringIO(), width=width)
    plain.print(answer)
    return written(plain).rstrip("\n")


def test_a_pipe_gets_the_text_and_nothing_else() -> None:
    file = io.StringIO()
    with PlainAnswer(file) as answer:
        answer.drafted(" never")
        answer.committed([("The", CLOUD), (" cat", ACCEPTED)], 0)
        answer.rolled_back()
        answer.committed([(" sat", CORRECTED)], 0)
        answer.rest("!")
    assert file.getvalue() == "The cat sat!\n"


def test_drafts_stand_behind_the_head_until_they_are_committed_or_vanish() -> None:
    now = 0.0
    answer = LiveAnswer(console(), clock=lambda: now)
    answer.committed([("The", CLOUD)], 0)
    answer.drafted(" cat")
    answer.drafted(" is")
    assert shown(answer) == "The cat is"
    answer.committed([(" cat", ACCEPTED), (" sat", CORRECTED)], 1)
    answer.rolled_back()
    assert shown(answer) == "The cat sat is", "what was rolled back stays for a moment, struck through"
    answer.drafted(" down")
    now = 10.0
    assert shown(answer) == "The cat sat down"


def test_a_full_line_is_printed_once_and_stays() -> None:
    screen = console(width=20)
    words = [f"w{n:02} " for n in range(30)]
    with LiveAnswer(screen, clock=lambda: 0.0) as answer:
        for word in words:
            answer.committed([(word, CLOUD)], 0)
    text = re.sub(r"\x1b\[[\d;]*m", "", written(screen))
    # Every line but the last is printed for good: followed by a newline, it is never moved back over.
    for first in range(0, 25, 5):
        line = "".join(words[first : first + 5]).strip()
        assert text.count(f"{line}\n\r\x1b[2K") == 1


def test_a_model_cannot_take_over_the_terminal() -> None:
    screen = console(width=80)
    with LiveAnswer(screen, clock=lambda: 0.0) as answer:
        answer.drafted("\x1b[2J")
        answer.committed([("a\x1b]0;title\x07b\tc\x9b31m\nrest", CLOUD)], 0)
    text = written(screen)
    assert "\x1b]" not in text
    assert "\x1b[2J" not in text
    assert "\x9b" not in text
    assert "a�]0;title�b    c�31m" in text


def test_every_origin_looks_different_without_colour_too() -> None:
    screen = console(width=80, no_color=True)
    screen.print(legend())
    codes = written(screen)
    assert "\x1b[4mcorrection" in codes
    assert "\x1b[2;9mrolled back" in codes
    assert "\x1b[3" not in codes.replace("\x1b[3m", ""), "no colour"


@given(st.text(alphabet="ab \n日é", max_size=60), st.integers(2, 12))
def test_lines_fit_and_nothing_is_lost(plain: str, width: int) -> None:
    rest, lines = plain, []
    while (end := line_break(rest, width)) is not None:
        assert end > 0
        lines.append(rest[:end])
        rest = rest[end:]
    assert "".join(lines) + rest == plain
    assert all(cell_len(line.rstrip()) <= width for line in lines)


@given(st.text(alphabet="ab \n日", max_size=40), st.text(alphabet="ab \n日", max_size=10), st.integers(2, 12))
def test_a_line_once_broken_stays_so_whatever_follows(plain: str, more: str, width: int) -> None:
    end = line_break(plain, width)
    if end is not None:
        assert line_break(plain + more, width) == end


def test_the_table_puts_both_routes_side_by_side() -> None:
    hybrid, cloud = Arrivals(asked=1.0), Arrivals(asked=1.0)
    hybrid.arrived(1.25, 1)
    hybrid.arrived(1.35, 4)
    cloud.arrived(1.5, 1)
    screen = console(width=100)
    screen.print(
        figures_table(
            {
                "hybrid": hybrid.figures(steps=2, accepted=3, agreed=9, compared=10, bytes_up=50, bytes_down=200),
                "cloud only": cloud.figures(),
            }
        )
    )
    lines = [line.split() for line in written(screen).splitlines()]
    assert ["hybrid", "5", "250", "25.0", "100", "0.90", "1.50", "0.40", "10.0", "40.0"] in lines
    assert ["cloud", "only", "1", "500", *"–––––––"] in lines


def test_a_progress_bar_per_step() -> None:
    screen = console(width=80)
    with model_progress(screen) as report:
        report("downloading", 10, 100)
        report("downloading", 100, 100)
        report("unpacking", 5, None)
    assert "downloading" in written(screen)
    assert "unpacking" in written(screen)


@pytest.mark.parametrize("width", [80, 100])
def test_the_table_fits_a_terminal(width: int) -> None:
    screen = console(width=width)
    arrivals = Arrivals(asked=0.0)
    arrivals.arrived(12.345, 1)
    arrivals.arrived(23.456, 999)
    screen.print(
        figures_table({"cloud only": arrivals.figures(steps=999, accepted=1, bytes_up=99999, bytes_down=999999)})
    )
    assert "…" not in written(screen)
