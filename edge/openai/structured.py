"""Grammars by llguidance: which tokens may come next, as the mask that the sampling rule takes (DESIGN §4).

A matcher follows one stream. The target's side only ever advances it, since what the rule picks is committed: a row
of a rejected draft is never looked at. A drafter goes back with its drafts.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

import llguidance
import numpy as np
from llguidance import TokenizerWrapper
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from numpy.typing import NDArray

from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Grammar

SPACING: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON is written in one way. Small models left free to choose put out spaces for ever, and each is a draft to miss."""

_tokenizers: WeakKeyDictionary[Vocabulary, llguidance.LLTokenizer] = WeakKeyDictionary()
_lock = threading.Lock()


def check(grammar: Grammar, vocabulary: Vocabulary) -> None:
    """Raises ValueError, whose text says what is wrong, for a grammar that can't be compiled. Call it in a thread.

    It also gets the library ready for the vocabulary, so that a matcher made later takes less than a millisecond.
    """
    if not Matcher(grammar, vocabulary).allowed().any():  # {"$ref": "#"} compiles
        raise ValueError("no output can satisfy it")


class Matcher:
    """Where one output stands in its grammar. Implements edge.protocol.sampling.Constraint."""

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary) -> None:
        """About 0.6 s for a vocabulary of 49,152 the first time, 0.6 ms from then on. Raises ValueError."""
        self._matcher = llguidance.LLMatcher(_tokenizer(vocabulary), _source(grammar))
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error().splitlines()[0])
        self._size = vocabulary.size
        self._ends = vocabulary.ends
        self._end_ids = np.array(sorted(vocabulary.ends), np.int64)
        self._bits = allocate_token_bitmask(1, vocabulary.size)
        self._consumed: list[bool] = []
        """Of each output token: whether it moved the library's matcher. An end token doesn't."""
        self._astray = 0
        """Tokens since the output left the grammar. Only a drafter's can, by what it is fed."""

    def allowed(self) -> NDArray[np.bool_]:
        if self._astray:
            return np.zeros(self._size, np.bool_)
        if self._matcher.is_stopped():
            mask = np.zeros(self._size, np.bool_)
            mask[self._end_ids] = True
            return mask
        fill_next_token_bitmask(self._matcher, self._bits)
        bits = np.unpackbits(self._bits.view(np.uint8)[0], count=self._size, bitorder="little")
        mask = bits.astype(np.bool_)
        mask[self._end_ids] = self._matcher.is_accepting()  # the library knows one end; a model may have several
        return mask

    def push(self, token: int) -> None:
        if self._astray or not (token in self._ends or self._consume(token)):
            self._astray += 1
        else:
            self._consumed.append(token not in self._ends)

    def pop(self, count: int) -> None:
        back = count - min(count, self._astray)
        self._astray -= count - back
        if back:
            self._matcher.rollback(sum(self._consumed[-back:]))
            del self._consumed[-back:]

    def _consume(self, token: int) -> bool:
        return not self._matcher.is_stopped() and self._matcher.try_consume_tokens([token]) == 1


def matcher(grammar: Grammar | None, vocabulary: Vocabulary) -> Matcher | None:
    """A matcher at the beginning of an output; None if any text is allowed. Raises ValueError."""
    return None if grammar is None else Matcher(grammar, vocabulary)


def _source(grammar: Grammar) -> str:
    if grammar.kind == "lark":
        return str(llguidance.LLMatcher.grammar_from_lark(grammar.source))
    return str(llguidance.LLMatcher.grammar_from_json_schema(spaced(grammar.source)))


def spaced(schema: str) -> str:
    """The schema with the one way in which its JSON is written. Raises ValueError if it is no object."""
    parsed = json.loads(schema)
    if not isinstance(parsed, dict):
        raise ValueError("a schema is a JSON object")
    return json.dumps(parsed | {"x-guidance": SPACING})


def _tokenizer(vocabulary: Vocabulary) -> llguidance.LLTokenizer:
    with _lock:
        found = _tokenizers.get(vocabulary)
        if found is None:
            found = _tokenizers[vocabulary] = llguidance.LLTokenizer(
                TokenizerWrapper(_Tokens(vocabulary)), vocabulary.size
            )
        return found


class _Tokens:
    """A vocabulary as the library wants to see one. Its attributes' names are the library's."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._encode = vocabulary.encode
        self.eos_token_id = min(vocabulary.ends)
        self.bos_token_id = None
        pieces = [vocabulary.piece(token) for token in range(vocabulary.size)]
        # Tokens without text are control tokens; the library marks those by a byte that no text has.
        self.tokens: Sequence[bytes] = [piece or b"\xff[%d]" % token for token, piece in enumerate(pieces)]
        self.special_token_ids = [token for token, piece in enumerate(pieces) if not piece]

    def __call__(self, data: bytes) -> list[int]:
        return self._encode(data.decode(errors="replace"))
