"""A tokenizer of the Hugging Face kind behind the project's seam.

Its fingerprint equals llama.cpp's for a GGUF made from the same files: so a device's GGUF drafter is known to mean the
same by its ids. For that, what a token adds to the text and which ids end an output follow llama.cpp's rules here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from edge.openai.vocabulary import fingerprint
from edge.protocol.errors import InvalidRequest
from edge.protocol.frames import Message

_ENDS = frozenset(
    (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
        "<turn|>", "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
        "<end_of_utterance>", "</s>", "< EOT >", "_< EOT >",
        # Of fill-in-the-middle prompts: behind one of them comes another file.
        "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
        "<reponame>", "<|file_sep|>",
    )
)  # fmt: skip
"""Tokens that llama.cpp takes for an end whatever the model's configuration says."""
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class HfVocabulary:
    """Implements edge.openai.vocabulary.Vocabulary. Thread-safe: the tokenizer is used as it is, never reconfigured."""

    def __init__(self, tokenizer: Any, *, size: int, ends: Iterable[int] = ()) -> None:
        """`tokenizer`: a fast one of transformers. `size`: ids of the model, which may pad the tokenizer's.

        `ends`: ids that end an output by the model's generation configuration.
        """
        self._tokenizer = tokenizer
        self.size = size
        self.pieces = _pieces(tokenizer.backend_tokenizer, size)
        self.ends = frozenset((*ends, *_ends(tokenizer)))
        self.fingerprint = fingerprint(self.pieces, self.ends)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=not special)  # type: ignore[no-any-return]

    def piece(self, token: int) -> bytes:
        return self.pieces[token]

    def render(self, messages: Sequence[Message]) -> list[int]:
        """Raises InvalidRequest if the template refuses the messages (their roles or order, mostly)."""
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            text = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        except (jinja2.TemplateError, ValueError) as error:  # ValueError: the tokenizer brings no template
            raise InvalidRequest(f"the model's chat template refuses these messages: {error}") from error
        return self.encode(text, special=True)


def file_fingerprint(tokenizer: Path, *, size: int, ends: Iterable[int]) -> tuple[str, frozenset[int]]:
    """Fingerprint and end ids by a `tokenizer.json` alone, without the library that would run it.

    `size` and `ends`: as of HfVocabulary, `ends` with the tokenizer's own. Raises OSError, KeyError or ValueError.
    """
    backend = _File(json.loads(tokenizer.read_bytes()))
    known = {token for token, item in backend.get_added_tokens_decoder().items() if item.content in _ENDS}
    found = frozenset((*ends, *known))
    return fingerprint(_pieces(backend, size), found), found


@dataclass(frozen=True, slots=True)
class _Added:
    content: str
    special: bool


class _File:
    """What of `tokenizers.Tokenizer` is needed here."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data
        self._names = {token: name for name, token in data["model"]["vocab"].items()}

    def get_added_tokens_decoder(self) -> dict[int, _Added]:
        return {item["id"]: _Added(item["content"], item["special"]) for item in self._data["added_tokens"]}

    def id_to_token(self, token: int) -> str | None:
        return self._names.get(token)

    def to_str(self) -> str:
        return json.dumps({"decoder": self._data["decoder"]})


@contextmanager
def open_vocabulary(model: str) -> Iterator[HfVocabulary]:
    """A model's tokenizer without the model: of a folder, or a name on the hub. Raises OSError or ValueError."""
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    try:
        ends = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:  # there needn't be one
        ends = None
    size = AutoConfig.from_pretrained(model).get_text_config().vocab_size
    tokenizer = AutoTokenizer.from_pretrained(model)
    yield HfVocabulary(tokenizer, size=size, ends=(ends,) if isinstance(ends, int) else ends or ())


def _pieces(backend: Any, size: int) -> tuple[bytes, ...]:
    """What each id adds to the text."""
    added = {
        token: b"" if item.special else item.content.encode()
        for token, item in backend.get_added_tokens_decoder().items()
    }
    convert = _of_byte_level if _is_byte_level(backend) else _of_sentencepiece
    pieces = []
    for token in range(size):
        name = backend.id_to_token(token)
        pieces.append(added[token] if token in added else b"" if name is None else convert(name))
    return tuple(pieces)


def _is_byte_level(backend: Any) -> bool:
    decoder = json.loads(backend.to_str())["decoder"] or {}
    return "ByteLevel" in (decoder.get("type"), *(part["type"] for part in decoder.get("decoders", ())))


def _of_sentencepiece(name: str) -> bytes:
    byte = _BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else name.replace("▁", " ").encode()


def _of_byte_level(name: str) -> bytes:
    return bytes(_BYTES[character] for character in name if character in _BYTES)


def _byte_table() -> dict[str, int]:
    """GPT-2's: printable bytes stand for themselves, the others for the characters from U+0100 on."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in plain)
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_table()


def _ends(tokenizer: Any) -> set[int]:
    special = {item.content: token for token, item in tokenizer.backend_tokenizer.get_added_tokens_decoder().items()}
    found = {token for name, token in special.items() if name in _ENDS}
    return found if tokenizer.eos_token_id is None else found | {tokenizer.eos_token_id}
