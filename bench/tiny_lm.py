"""`python -m bench.tiny_lm TEXT FOLDER`: a small language model whose weights were never in fewer than 32 bits.

Every pair of models at hand was in 4 bits once, so what 4 bits cost can't be seen on them. This one is trained for it,
on one CPU thread: a Llama of 3 million weights, rows that divide by 256 as llama.cpp's K-quants want them, and a
byte-level vocabulary of its own. Leaves weights (`model.pt`), the same as a GGUF in F32, and `tokenizer.json`; prints a
line of JSON after each few steps. Needs torch, tokenizers and gguf (`make install-vllm` brings them).

The position code is the original Llama's (neighbouring dimensions turn together), which is llama.cpp's too.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

EPSILON = 1e-5
END = "<|end|>"
GGUF_NAME = "tiny-lm-F32.gguf"
WEIGHTS_NAME = "model.pt"


@dataclass(frozen=True, slots=True)
class Shape:
    vocabulary: int = 2048
    width: int = 256
    layers: int = 4
    heads: int = 8
    inner: int = 512
    context: int = 256


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, EPSILON)


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.attn_norm, self.ffn_norm = Norm(shape.width), Norm(shape.width)
        self.attn_q, self.attn_k, self.attn_v, self.attn_output = (_linear(shape.width, shape.width) for _ in range(4))
        self.ffn_gate, self.ffn_up = _linear(shape.width, shape.inner), _linear(shape.width, shape.inner)
        self.ffn_down = _linear(shape.inner, shape.width)

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        """`x`: (B, T, width). `turn`: (T, dimensions of a head / 2), complex."""
        h = self.attn_norm(x)
        q, k, v = (self._split(made(h)) for made in (self.attn_q, self.attn_k, self.attn_v))
        read = functional.scaled_dot_product_attention(_turned(q, turn), _turned(k, turn), v, is_causal=True)
        x = x + self.attn_output(read.transpose(1, 2).flatten(2))
        h = self.ffn_norm(x)
        down: Tensor = self.ffn_down(functional.silu(self.ffn_gate(h)) * self.ffn_up(h))
        return x + down

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class TinyLm(nn.Module):
    """Names are GGUF's, so that writing one is a copy. Embedding and output share their weights."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocabulary, shape.width)
        self.blk = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.output_norm = Norm(shape.width)
        nn.init.normal_(self.token_embd.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) → logits, (B, T, vocabulary)."""
        x = self.token_embd(tokens)
        turn = _turns(tokens.shape[1], self.shape.width // self.shape.heads)
        for layer in self.blk:
            x = layer(x, turn)
        return functional.linear(self.output_norm(x), self.token_embd.weight)


def _linear(width: int, out: int) -> nn.Linear:
    made = nn.Linear(width, out, bias=False)
    nn.init.normal_(made.weight, std=0.02)
    return made


def _turns(length: int, dimensions: int) -> Tensor:
    speed = 10_000.0 ** (-torch.arange(0, dimensions, 2) / dimensions)
    angle = torch.outer(torch.arange(length), speed)
    return torch.polar(torch.ones_like(angle), angle)


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turn).flatten(-2)


def load(folder: Path) -> TinyLm:
    held = torch.load(folder / WEIGHTS_NAME, weights_only=True)
    model = TinyLm(Shape(**held["shape"]))
    model.load_state_dict(held["weights"])
    return model


def train(text: str, folder: Path, shape: Shape, *, steps: int, batch: int, rate: float, seed: int = 0) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    tokenizer = _tokenizer(text, shape.vocabulary)
    ids = torch.tensor(tokenizer.encode(text).ids)
    model = TinyLm(shape)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))
    mean = 0.0
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * _schedule(step / steps)
        starts = torch.randint(len(ids) - shape.context - 1, (batch,))
        window = torch.stack([ids[start : start + shape.context + 1] for start in starts])
        loss = functional.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        mean += (loss.item() - mean) / min(step + 1, 50)
        if (step + 1) % 10 == 0 or step + 1 == steps:
            _say({"step": step + 1, "of": steps, "loss": mean})
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.save({"shape": asdict(shape), "weights": model.state_dict()}, folder / WEIGHTS_NAME)
    part = folder / f"{GGUF_NAME}.partial"
    write_gguf(model, json.loads(tokenizer.to_str())["model"], part)
    part.replace(folder / GGUF_NAME)  # last: if it is there, all is


def _schedule(done: float) -> float:
    """Up over the first 4%, down to a twentieth by a cosine."""
    return min(done / 0.04, 1.0) * (0.05 + 0.95 * (1 + math.cos(math.pi * done)) / 2)


def _tokenizer(text: str, size: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return tokenizer


def write_gguf(model: TinyLm, bpe: dict[str, Any], path: Path) -> None:
    """`bpe`: the part `model` of a tokenizer.json."""
    import gguf

    shape = model.shape
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny-lm")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    words = sorted(bpe["vocab"], key=bpe["vocab"].__getitem__)
    words += [f"<|unused{n}|>" for n in range(shape.vocabulary - len(words))]
    kinds = [gguf.TokenType.CONTROL if word.startswith("<|") else gguf.TokenType.NORMAL for word in words]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in bpe["merges"]])
    writer.add_eos_token_id(bpe["vocab"][END])
    writer.add_bos_token_id(bpe["vocab"][END])
    writer.add_add_bos_token(False)
    for name, weight in model.state_dict().items():
        writer.add_tensor(name, weight.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rate", type=float, default=3e-3)
    asked = parser.parse_args()
    train(
        asked.text.read_text(encoding="utf-8"),
        asked.folder,
        Shape(),
        steps=asked.steps,
        batch=asked.batch,
        rate=asked.rate,
    )
