"""One conversation's placeholders: the same datum has the same one in every turn, and no two share one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from edge.protocol.frames import Message
from edge.redaction.checked import cards, emails, ibans, keys, national_ids, phones
from edge.redaction.gazetteer import ALSO_WORDS, NO_NAME, STARTERS
from edge.redaction.names import addresses, names
from edge.redaction.spans import Kind, Recogniser, Span, resolve
from edge.redaction.uncued import uncued_names

REGIONS: tuple[str, ...] = ("US", "GB", "DE", "FR", "ES", "JP")
"""Countries whose telephone numbers are found without a country code."""

_LITERAL = re.compile(r"\[[A-Z]+_\d+\]")


def recognisers(*, with_names: bool = True, regions: Sequence[str] = REGIONS) -> tuple[Recogniser, ...]:
    """All of them. `with_names`: names and addresses too, which no checksum confirms."""
    found: tuple[Recogniser, ...] = (emails, ibans, cards, keys, national_ids, phones(*regions))
    return (*found, names, uncued_names, addresses) if with_names else found


class Redactor:
    """Replaces personal data by `[KIND_n]`. `originals` has what each placeholder stands for; it never leaves here."""

    def __init__(self, recognisers: Sequence[Recogniser]) -> None:
        self._recognisers = recognisers
        self._placeholders: dict[str, str] = {}
        self._originals: dict[str, str] = {}
        self._counts: dict[Kind, int] = {}
        self._reserved: set[str] = set()
        self._parts: set[str] = set()
        """Words of names: who was named in full is named by half later."""

    @property
    def originals(self) -> Mapping[str, str]:
        return MappingProxyType(self._originals)

    def redact(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages as they may leave. Earlier turns, answers included, are redacted as they were before."""
        for message in messages:  # what the user wrote in our own form is the user's, and no placeholder
            self._reserved.update(set(_LITERAL.findall(message.content)) - self._originals.keys())
            for span in self.find(message.content):
                value = message.content[span.start : span.end]
                self._placeholder(value, span.kind)
                if span.kind == "NAME":
                    self._parts.update(filter(_tells, value.split()))
        return tuple(Message(message.role, self._replace(message.content)) for message in messages)

    def find(self, text: str) -> list[Span]:
        """What the recognisers find, without overlaps."""
        return resolve(span for recognise in self._recognisers for span in recognise(text))

    def _replace(self, text: str) -> str:
        spans = self.find(text)
        parts, at = list[str](), 0
        for span in spans:
            parts += [self._known(text[at : span.start]), self._placeholders[text[span.start : span.end]]]
            at = span.end
        return "".join([*parts, self._known(text[at:])])

    def _known(self, text: str) -> str:
        """Also what no recogniser sees here but one saw elsewhere: a name that had its cue a sentence before."""
        if not self._placeholders:
            return text
        longest = sorted(self._placeholders.keys() | self._parts, key=len, reverse=True)
        pattern = "|".join(rf"{_edge(value[0], '<!')}{re.escape(value)}{_edge(value[-1], '!')}" for value in longest)
        return re.sub(pattern, lambda match: self._placeholder(match.group(), "NAME"), text)

    def _placeholder(self, value: str, kind: Kind) -> str:
        if value not in self._placeholders:
            while True:
                self._counts[kind] = self._counts.get(kind, 0) + 1
                name = f"[{kind}_{self._counts[kind]}]"
                if name not in self._reserved:
                    break
            self._placeholders[value], self._originals[name] = name, value
        return self._placeholders[value]


def _tells(word: str) -> bool:
    """Whether a word of a name is one by itself too."""
    return len(word) > 2 and word[0].isupper() and word not in ALSO_WORDS | NO_NAME | STARTERS


def _edge(character: str, look: str) -> str:
    """A border that keeps `Ann` out of `Anna`; scripts without spaces have none."""
    return rf"(?{look}\w)" if character.isascii() and character.isalnum() else ""
