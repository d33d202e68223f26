"""`python -m bench.hf_model`: the embedded draft as a Hugging Face folder that vLLM loads, in the model cache.

transformers won't save a model that it loaded from GGUF, so the weights move into a fresh one. Takes about a minute;
needs torch, transformers, gguf and accelerate (`make install-vllm`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from edge.models import default_directory, ensure

NAME = "SmolLM2-135M-Instruct-HF"
_DROPPED = (
    "quantization_config", "_name_or_path", "_model_name_or_path", "architectures", "transformers_version",
    "torch_dtype",
)  # fmt: skip


def folder(directory: Path | None = None) -> Path:
    """Where it lies, or would."""
    return (directory or default_directory()) / NAME


def convert(directory: Path | None = None) -> Path:
    """Make the folder unless it is there. Raises edge.models.ModelError if the draft can't be had."""
    made = folder(directory)
    if (made / "config.json").is_file():
        return made
    draft = ensure(directory or default_directory(), target=False).draft
    part = made.with_name(f"{NAME}.partial")
    part.mkdir(parents=True, exist_ok=True)
    _write_tokenizer(draft, part)
    _write_weights(draft, part)
    os.replace(part, made)
    return made


def _write_tokenizer(draft: Path, goal: Path) -> None:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(draft.parent, gguf_file=draft.name)
    # The GGUF says "smollm": digits one by one. transformers takes every byte-level tokenizer of a Llama for GPT-2's.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.save_pretrained(goal)


def _write_weights(draft: Path, goal: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(draft.parent, gguf_file=draft.name, dtype=torch.float32)
    kept = {key: value for key, value in loaded.config.to_dict().items() if key not in _DROPPED}
    model: Any = LlamaForCausalLM(LlamaConfig(**kept))
    model.load_state_dict(loaded.state_dict(), strict=False)
    model.tie_weights()
    model.config.architectures = ["LlamaForCausalLM"]
    model.to(torch.bfloat16).save_pretrained(goal)


if __name__ == "__main__":
    sys.stdout.write(f"{convert()}\n")
