"""An answer on a terminal, as it comes: every token in the colour of its origin, drafts dim behind the head until they
are committed or vanish.

Only the last line and the drafts are redrawn; a line that is full is printed for good, so that the answer stays in the
scrollback and may be longer than the screen. On a pipe there is nothing but the text.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBars
from rich.table import Table
from rich.text import Text

from edge.figures import Figures
from edge.models import Progress
from edge.privacy import Disclosure

if TYPE_CHECKING:
    from edge.evaluate import Evaluation

_VANISHES_S: Final = 0.35
"""How long drafts that were rolled back stay, struck through: long enough to be seen."""
_WORD = re.compile(r"\s*\S+|\s+")


STYLES: Final[Mapping[str, str]] = {
    "accepted": "green",
    "corrected": "underline yellow",
    "cloud": "bright_blue",
    "unverified": "italic",
    "drafted": "dim",
    "gone": "dim strike red",
}
"""By origin (edge.events), of the drafter alone, of drafts ahead and of those rolled back. Attributes beside the
colours tell them apart where there is no colour."""


class Answer(Protocol):
    """Where an answer is shown. A context manager; its calls follow the stream's events."""

    def drafted(self, text: str) -> None: ...

    def committed(self, parts: Sequence[tuple[str, str]], agreed: int) -> None:
        """The next output tokens, text and origin of each; the first `agreed` drafts are now among them."""
        ...

    def rolled_back(self) -> None:
        """All drafts that are left are void."""
        ...

    def rest(self, text: str) -> None:
        """Text that was withheld and belongs to no further token."""
        ...

    def __enter__(self) -> Answer: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class PlainAnswer:
    """The text alone, for pipes and files."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def drafted(self, text: str) -> None:
        pass

    def committed(self, parts: Sequence[tuple[str, str]], agreed: int) -> None:
        self.rest("".join(text for text, _ in parts))

    def rolled_back(self) -> None:
        pass

    def rest(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()

    def __enter__(self) -> PlainAnswer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.write("\n")
        self._file.flush()


class SilentAnswer(PlainAnswer):
    """Nothing is shown: the caller wants the whole, or only the figures."""

    def __init__(self) -> None:
        super().__init__(StringIO())


class LiveAnswer:
    """The answer in colour. `clock` gives seconds; it only times how rolled-back drafts fade."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._line = Text()
        """Committed text of the line that isn't full yet."""
        self._tail: list[str] = []
        self._vanishing: list[tuple[str, float]] = []
        self._live = Live(
            self,
            console=console,
            refresh_per_second=20,
            vertical_overflow="crop",
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def drafted(self, text: str) -> None:
        self._tail.append(printable(text))

    def committed(self, parts: Sequence[tuple[str, str]], agreed: int) -> None:
        del self._tail[:agreed]
        self._append(parts)

    def rolled_back(self) -> None:
        if self._tail:
            now = self._clock()
            self._vanishing = [(text, until) for text, until in self._vanishing if until > now]
            self._vanishing.append(("".join(self._tail), now + _VANISHES_S))
            self._tail = []

    def rest(self, text: str) -> None:
        self._append([(text, "cloud")])

    def _append(self, parts: Sequence[tuple[str, str]]) -> None:
        line = self._line.copy()
        for text, origin in parts:
            line.append(printable(text), style=STYLES[origin])
        while (end := line_break(line.plain, self._console.width)) is not None:
            full = line[:end]
            full.rstrip()
            self._line = Text()  # or the refresh that comes with the print would show this line twice
            self._console.print(full, no_wrap=True, overflow="ignore", crop=False)
            line = line[end:]
        self._line = line

    def __enter__(self) -> LiveAnswer:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tail, self._vanishing = [], []
        self._live.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by the refreshing thread too, so it only reads."""
        now = self._clock()
        text = self._line.copy()
        for gone, until in self._vanishing:
            if until > now:
                text.append(gone.replace("\n", "⏎"), style=STYLES["gone"])
        text.append("".join(self._tail).replace("\n", "⏎"), style=STYLES["drafted"])
        yield text


def printable(text: str) -> str:
    """Without control characters, which a model could be made to write to take over a terminal."""
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character == "\t":
        return "    "
    return "�" if unicodedata.category(character) == "Cc" and character != "\n" else character


def line_break(plain: str, width: int) -> int | None:
    """Where the second line of `plain` begins, wrapped at words to `width` cells; None while one line holds it all."""
    used = 0
    for word in _WORD.finditer(plain):
        blank, newline, _ = word.group().partition("\n")
        if newline:
            return word.start() + len(blank) + 1
        cells = cell_len(word.group())
        if used + cells > width and word.group().strip():
            if word.start() > 0:
                return word.end() - len(word.group().lstrip())
            return _cells_to_index(word.group(), width)
        used += cells
    return None


def _cells_to_index(word: str, width: int) -> int:
    """A word longer than a line is cut where the line ends; at least one character goes."""
    used = 0
    for index, character in enumerate(word):
        used += cell_len(character)
        if used > width:
            return max(1, index)
    return len(word)


def legend() -> Text:
    names = {
        "accepted": "accepted draft",
        "corrected": "correction",
        "cloud": "cloud's own",
        "drafted": "draft ahead",
        "gone": "rolled back",
    }
    return Text(" · ").join(Text(name, style=STYLES[origin]) for origin, name in names.items())


def figures_table(rows: Mapping[str, Figures]) -> Table:
    """One row a route. Times in milliseconds."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for name in (
        "tokens",
        "TTFT\nms",
        "ITL\nms",
        "largest\ngap ms",
        "α",
        "acc.\n/step",
        "steps\n/token",
        "B up\n/token",
        "B down\n/token",
    ):
        table.add_column(name, justify="right")
    for route, f in rows.items():
        table.add_row(
            route,
            str(f.tokens),
            _number(_ms(f.ttft_s), 0),
            _number(_ms(f.itl_s), 1),
            _number(_ms(f.largest_gap_s), 0),
            _number(f.acceptance_rate, 2),
            _number(f.accepted_per_step, 2),
            _number(f.steps_per_token, 2),
            _number(f.bytes_up_per_token, 1),
            _number(f.bytes_down_per_token, 1),
        )
    return table


def figures_line(f: Figures) -> Text:
    """The same of one answer, in a line."""
    parts = [f"{f.tokens} tokens", f"TTFT {_number(_ms(f.ttft_s), 0)} ms", f"ITL {_number(_ms(f.itl_s), 1)} ms"]
    if f.acceptance_rate is not None:
        parts.append(f"α {_number(f.acceptance_rate, 2)}")
    if f.steps_per_token is not None:
        parts.append(f"{_number(f.steps_per_token, 2)} steps/token")
    if f.bytes_up_per_token is not None and f.bytes_down_per_token is not None:
        parts.append(f"{f.bytes_up_per_token:.0f} B up, {f.bytes_down_per_token:.0f} B down a token")
    return Text(" · ".join(parts), style="dim")


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


@contextmanager
def model_progress(console: Console) -> Iterator[Progress]:
    """A bar for each step that `edge.models.ensure` reports; nothing at all if it has nothing to do."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bars = ProgressBars(*columns, console=console)
    tasks: dict[str, TaskID] = {}

    def report(what: str, done: int, total: int | None) -> None:
        if what not in tasks:
            bars.start()  # not before: even an empty set of bars leaves a blank line
            tasks[what] = bars.add_task(what, total=total)
        bars.update(tasks[what], completed=done)

    try:
        yield report
    finally:
        if tasks:
            bars.stop()


def disclosures_report(disclosures: Sequence[Disclosure], path: str) -> Text:
    """What left the device, request by request: counts, bytes, and the text it decodes to."""
    if not disclosures:
        return Text(f"Nothing has left this device, as far as {path} says.")
    report = Text()
    for disclosure in disclosures:
        sent, over = disclosure.sent, disclosure.over
        report.append(f"{sent.at}  {sent.gateway}  {sent.model}\n", style="bold")
        prompt = f"{sent.tokens} prompt tokens" if sent.tokens is not None else "the messages as text"
        rest = f"{over.draft_tokens} draft tokens, {over.bytes_up} bytes up" if over else "interrupted, or not over yet"
        report.append(f"  {sent.route}, privacy {sent.mode}: {prompt}, {rest}\n", style="dim")
        report.append(f"{_indented(sent.text)}\n")
        if over and over.drafts:
            report.append("  drafts:\n", style="dim")
            report.append(f"{_indented(over.drafts)}\n")
    report.rstrip()
    return report


def _indented(text: str) -> str:
    return "\n".join(f"  │ {line}" for line in printable(text).splitlines())


def evaluation_report(found: Evaluation) -> Group:
    """What `paceline-edge evaluate` measured."""
    table = Table(box=None, header_style="dim")
    for name in ("", "weights", "tokens/s", "perplexity"):
        table.add_column(name, justify="left" if not name else "right")
    table.add_row(
        f"draft   {found.draft}",
        f"{found.draft_bytes / 1e6:.0f} MB",
        f"{found.draft_tokens_per_s:.1f}",
        f"{found.perplexity:.3f}",
    )
    table.add_row(
        f"target  {found.target}",
        f"{found.target_bytes / 1e6:.0f} MB",
        f"{found.target_tokens_per_s:.1f}",
        f"{found.target_perplexity:.3f}",
    )
    positions = "  ".join("–" if alpha is None else f"{alpha:.2f}" for alpha in found.alpha_by_position)
    return Group(
        table,
        Text(f"Perplexity on {found.perplexity_text}.", style="dim"),
        Text(f"α = {found.alpha:.3f} over {found.tokens} tokens; by position in a run of drafts: {positions}"),
        Text(
            f"E[A] = {found.expected_accepted:.2f} accepted of {len(found.alpha_by_position)} drafts, counted; "
            f"{found.expected_accepted_formula:.2f} if places were independent"
        ),
        Text(found.recommendation, style="bold"),
    )
