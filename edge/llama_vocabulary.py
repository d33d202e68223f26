"""The tokenizer and chat template that a GGUF brings along, by llama.cpp."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import jinja2
import llama_cpp
from jinja2.sandbox import ImmutableSandboxedEnvironment

from edge.openai.vocabulary import fingerprint
from edge.protocol.errors import EngineFailed, InvalidRequest
from edge.protocol.frames import Message

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""What llama.cpp assumes of a model that brings no template."""

_MOST_CHARACTERS = 1 << 20
"""That a template adds to the messages."""


class LlamaVocabulary:
    """Implements edge.openai.vocabulary.Vocabulary. Thread-safe. Once its model is closed it can't encode any more."""

    def __init__(self, model: Any) -> None:
        """`model`: llama.cpp's handle."""
        self._vocabulary: Any = llama_cpp.llama_model_get_vocab(model)
        self.size = int(llama_cpp.llama_vocab_n_tokens(self._vocabulary))
        self.pieces: tuple[bytes, ...] = tuple(_piece(self._vocabulary, token) for token in range(self.size))
        self.ends = frozenset(
            token for token in range(self.size) if llama_cpp.llama_vocab_is_eog(self._vocabulary, token)
        )
        self.fingerprint = fingerprint(self.pieces, self.ends)
        self._begin = int(llama_cpp.llama_vocab_bos(self._vocabulary))
        self._adds_begin = bool(llama_cpp.llama_vocab_get_add_bos(self._vocabulary))
        self.markup = {token: self._text(token) for token in range(self.size) if not self.pieces[token]}
        """How control tokens are written in a prompt."""
        template = llama_cpp.llama_model_chat_template(model, None)
        self._template = _environment().from_string(template.decode() if template else CHATML)
        self._markup = {
            "bos_token": self._text(self._begin),
            "eos_token": self._text(int(llama_cpp.llama_vocab_eos(self._vocabulary))),
        }

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        if self._vocabulary is None:
            raise EngineFailed("the model was closed")
        data = text.encode()
        room = len(data) + 8
        while True:
            ids = (llama_cpp.llama_token * room)()
            count = llama_cpp.llama_tokenize(self._vocabulary, data, len(data), ids, room, False, special)
            if count >= 0:
                return list(ids[:count])
            room = -count

    def close(self) -> None:
        """For the model: its memory is about to go."""
        self._vocabulary = None

    def piece(self, token: int) -> bytes:
        return self.pieces[token]

    def render(self, messages: Sequence[Message]) -> list[int]:
        """Raises InvalidRequest if the template refuses the messages (their roles or order, mostly)."""
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            parts = self._template.generate(messages=turns, add_generation_prompt=True, **self._markup)
            text = _joined(parts, most=_MOST_CHARACTERS + sum(len(m.role) + len(m.content) for m in messages))
        except (jinja2.TemplateError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise InvalidRequest(f"the model's chat template refuses these messages: {error}") from error
        ids = self.encode(text, special=True)
        if self._adds_begin and ids[:1] != [self._begin]:
            ids.insert(0, self._begin)
        return ids

    def _text(self, token: int) -> str:
        """How a control token is written in a prompt."""
        if token < 0:
            return ""
        text: bytes = llama_cpp.llama_vocab_get_text(self._vocabulary, token)
        return text.decode(errors="replace")


def _piece(vocabulary: Any, token: int) -> bytes:
    buffer = ctypes.create_string_buffer(64)
    length = llama_cpp.llama_token_to_piece(vocabulary, token, buffer, len(buffer), 0, False)
    if length < 0:
        buffer = ctypes.create_string_buffer(-length)
        length = llama_cpp.llama_token_to_piece(vocabulary, token, buffer, len(buffer), 0, False)
    return buffer.raw[:length]


def _environment() -> ImmutableSandboxedEnvironment:
    """Templates come with model files, which come from anywhere: hence the sandbox."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda pattern: datetime.now(UTC).strftime(pattern)
    return environment


def _joined(parts: Iterable[str], *, most: int) -> str:
    """Raises ValueError over `most` characters: a template can loop for longer than memory lasts."""
    text, length = [], 0
    for part in parts:
        length += len(part)
        if length > most:
            raise ValueError(f"it makes more than {most} characters of them")
        text.append(part)
    return "".join(text)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
