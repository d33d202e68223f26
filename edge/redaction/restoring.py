"""Placeholders back to data, in an answer that arrives in pieces.

Text that may be the beginning of a placeholder is withheld until it is one or can't be any more: at most
`_LONGEST` characters. A model writes placeholders as it likes: `\\[EMAIL\\_1\\]` in Markdown, `[email 1]`, `[NAME_1]s`
with its own ending. The brackets say where it begins and ends, so endings stay behind it and `_1` is never taken for
`_10`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_LONGEST: Final = 24
_PLACEHOLDER: Final = re.compile(r"\\?\[\s?([A-Za-z]+)(?:\\?_|[ -])(\d{1,6})\s?\\?\]")
_BEGINNING: Final = re.compile(r"\\?(?:\[\s?(?:[A-Za-z]+(?:\\?(?:[_ -](?:\d{1,6}\s?\\?)?)?)?)?)?\Z")
_FENCE: Final = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)


class Restorer:
    """One answer. `in_code` False: placeholders in fenced code blocks stay, so that code never holds personal data."""

    def __init__(self, originals: Mapping[str, str], *, in_code: bool = True) -> None:
        """`originals`: placeholder to datum (Redactor.originals)."""
        self._originals = originals
        self._in_code = in_code
        self._pending = ""
        self._line = ""
        """The line under way, as it came: a fence counts at a line's beginning only."""
        self._fenced = False

    def push(self, text: str) -> str:
        """The next piece; returns what can be shown now."""
        self._pending += text
        match = _BEGINNING.search(self._pending[-_LONGEST:])
        held = len(match.group()) if match else 0
        ready, self._pending = self._pending[: len(self._pending) - held], self._pending[len(self._pending) - held :]
        return self._restore(ready)

    def end(self) -> str:
        """The rest: no more will come."""
        ready, self._pending = self._pending, ""
        return self._restore(ready)

    def _restore(self, text: str) -> str:
        if self._in_code:
            return _PLACEHOLDER.sub(self._original, text)
        return "".join(self._restore_line(line) for line in text.splitlines(keepends=True))

    def _restore_line(self, line: str) -> str:
        self._line += line
        fence = bool(_FENCE.match(self._line))
        shown = line if self._fenced or fence else _PLACEHOLDER.sub(self._original, line)
        if line.endswith("\n"):
            self._fenced ^= fence
            self._line = ""
        return shown

    def _original(self, match: re.Match[str]) -> str:
        return self._originals.get(f"[{match.group(1).upper()}_{int(match.group(2))}]", match.group())
