"""Text to tool calls, as it comes: the name as soon as it is known, arguments piece by piece. Pure.

    text ──marker──► head ──name, arguments:──► arguments ──closing brace──► tail ──</tool_call>──► text

Text is held back while it could be the beginning of a marker. What begins like a call and isn't one is given out as the
text that it is: an answer may talk about markup. How many characters come at once makes no difference.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from edge.openai.tools import HERMES, ToolSyntax

_HEAD: Final = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\]*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')
_LONGEST_HEAD: Final = 256


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of the answer's `index`-th call. The first piece of a call has its name."""

    index: int
    arguments: str = ""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Parsed:
    text: str = ""
    calls: tuple[CallDelta, ...] = ()


class ToolCallParser:
    """`names`: the tools that exist; a call of another is text."""

    def __init__(self, names: Collection[str], syntax: ToolSyntax = HERMES) -> None:
        self._names = frozenset(names)
        self._syntax = syntax
        self._held = ""
        self._state = "text"
        self._arguments = _Braces()
        self._text: list[str] = []
        self._calls: list[CallDelta] = []
        self.count = 0
        """Calls begun so far."""

    def push(self, text: str) -> Parsed:
        self._held += text
        while self._step():
            pass
        return self._take()

    def finish(self) -> Parsed:
        """No more text comes: what was held back as the possible beginning of a call is text."""
        if self._state == "head":
            self._text.append(self._syntax.marker)
        if self._state in ("head", "text") and self._held.strip():
            self._text.append(self._held)
        self._held = ""
        return self._take()

    def _take(self) -> Parsed:
        parsed = Parsed("".join(self._text), tuple(self._calls))
        self._text, self._calls = [], []
        return parsed

    def _step(self) -> bool:
        """Go on as far as one state goes; False when more text is needed."""
        match self._state:
            case "text":
                return self._find_marker()
            case "head":
                return self._read_head()
            case "arguments":
                return self._read_arguments()
            case _:
                return self._read_tail()

    def _find_marker(self) -> bool:
        marker = self._syntax.marker
        before, found, rest = self._held.partition(marker)
        if found:
            if before.strip() or not self.count:
                self._say(before)
            self._held, self._state = rest, "head"
            return True
        kept = next((n for n in range(len(marker) - 1, 0, -1) if self._held.endswith(marker[:n])), 0)
        shown = self._held[: len(self._held) - kept]
        if self.count and not shown.strip():  # the line break between two calls is no text
            return False
        self._say(shown)
        self._held = self._held[len(shown) :]
        return False

    def _read_head(self) -> bool:
        head = _HEAD.match(self._held)
        if head is not None and head[1] in self._names:
            self._calls.append(CallDelta(self.count, name=head[1]))
            self.count += 1
            self._held, self._state, self._arguments = self._held[head.end() :], "arguments", _Braces()
            return True
        if head is not None or len(self._held) > _LONGEST_HEAD or self._syntax.closing in self._held:
            self._say(self._syntax.marker)
            self._state = "text"
            return True
        return False

    def _read_arguments(self) -> bool:
        end = self._arguments.end(self._held)
        piece = self._held if end is None else self._held[:end]
        if piece:
            self._calls.append(CallDelta(self.count - 1, piece))
        self._held = self._held[len(piece) :]
        if end is not None:
            self._state = "tail"
        return end is not None

    def _read_tail(self) -> bool:
        _, found, rest = self._held.partition(self._syntax.closing)
        if found:
            self._held, self._state = rest, "text"
        return bool(found)

    def _say(self, text: str) -> None:
        if text:
            self._text.append(text)


class _Braces:
    """Finds where a JSON object that comes in pieces ends."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def end(self, piece: str) -> int | None:
        """How many characters of this piece belong to the object, if it ends in it."""
        for at, character in enumerate(piece):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped = character == "\\"
                self._quoted = character != '"'
            elif character == '"':
                self._quoted = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return at + 1
        return None
