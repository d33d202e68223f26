"""`bench drafters`: α and tokens a second of each drafter that runs here, against the embedded target's own answers.

At each place of the target's greedy answers the drafter proposes a token behind the target's text, is told the right
one, and goes on: α is the share of the target's tokens that it would have said, silence counting as wrong. Tokens a
second: of runs of 8 proposals, one after the other, as the draft-ahead loop makes them. Contract: what every drafter
must keep (bench/contract.py); a drafter without rates has no runtime here, or only a script.

"By text" is the same 4-bit model, but its text goes through a tokenizer of single bytes and back to the target's
tokens: what handing drafts over as text costs when the tokenizers agree as little as they can. With another pair than
the embedded one it is the embedded draft model, of another family than the target.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import contract
from bench.byte_vocabulary import END, ByteVocabulary
from bench.pairs import fetched
from bench.report import Report
from edge.drafters.base import Drafter
from edge.drafters.by_text import ByTextDrafter
from edge.drafters.llama_cpp import LlamaCppDrafter
from edge.drafters.ngram import NgramDrafter
from edge.evaluate import PROMPTS, Reader
from edge.models import Pair
from edge.openai.vocabulary import Vocabulary
from edge.protocol.frames import Message, Sampling

_GREEDY = Sampling(temperature=0.0, seed=0)
_RUN = 8


def measure(drafter: Drafter, answers: Sequence[tuple[list[int], list[int]]]) -> dict[str, Any]:
    """`answers`: prompts and the target's outputs, token ids."""
    right = silent = places = made = 0
    seconds = 0.0
    for prompt, output in answers:
        continuation = drafter.begin(prompt, _GREEDY, coupled=False)
        continuation.propose()  # the prompt is computed with the first one
        continuation.rollback(0)
        for place, token in enumerate(output):
            proposal = continuation.propose()
            places += 1
            silent += proposal is None
            if proposal is not None and proposal.token == token:
                right += 1
                continue
            continuation.rollback(place)
            continuation.feed([token])
        for start in range(0, len(output) - _RUN, _RUN):
            continuation.rollback(0)
            continuation.feed(output[:start])
            continuation.propose()
            began = time.perf_counter()
            proposals = [continuation.propose() for _ in range(_RUN)]
            seconds += time.perf_counter() - began
            made += sum(proposal is not None for proposal in proposals)
        continuation.close()
    return {
        "alpha": right / places,
        "silent": silent / places,
        "tokens_per_s": made / seconds if made else None,
    }


def by_bytes(drafter: LlamaCppDrafter, target: Vocabulary) -> Drafter:
    """`drafter`, translated to bytes and from there to the target's tokens."""
    end = {END: "<|im_end|>"}
    through = ByTextDrafter(drafter, ByteVocabulary(), markup=end, own=drafter.markup)
    return ByTextDrafter(through, target, markup=drafter.markup, own=end)


def run(files: Pair, tokens: int, embedded: Path | None = None) -> dict[str, Any]:
    """`embedded`: a draft model of another family than the pair's; None: the pair is the embedded one."""
    reader = Reader(files.target, 1)
    render = reader.model.vocabulary.render
    prompts = [render([Message("user", prompt)]) for prompt in PROMPTS]
    answers = [(prompt, reader.greedy(prompt, tokens)) for prompt in prompts]
    model = LlamaCppDrafter(files.draft, streams=1, threads=1)
    drafters: dict[str, Callable[[], Drafter]] = {
        "llama.cpp": lambda: model,
        "by text": lambda: by_bytes(model, model.vocabulary),
        "n-gram": NgramDrafter,
    }
    other = None
    if embedded is not None:
        other = LlamaCppDrafter(embedded, streams=1, threads=1)
        target = reader.model.vocabulary
        stranger = ByTextDrafter(other, target, markup=target.markup, own=other.markup)
        drafters["by text"] = lambda: stranger
    rows = [{"drafter": name} | measure(make(), answers) for name, make in drafters.items()]
    for used in (model, other, reader):
        if used is not None:
            used.close()
    return {"answers": len(answers), "tokens": sum(len(output) for _, output in answers), "rows": rows}


def command(report: Report, pair: str, tokens: int, *, with_contract: bool) -> None:
    files = fetched(report, pair)
    embedded = None if pair == "smollm2" else fetched(report, "smollm2").draft
    found = {"pair": pair} | run(files, tokens, embedded)
    outcomes = contract.run() if with_contract else {}
    rows = {row["drafter"]: row for row in found["rows"]}
    for name, outcome in outcomes.items():
        rows.setdefault(name, {"drafter": name})["contract"] = str(outcome)
    found["rows"] = list(rows.values())
    columns = ("drafter", "alpha", "silent", "tokens_per_s", "contract")
    report.table(f"drafters against the target's {found['tokens']} tokens", found["rows"], columns)
    report.result(found)
    if any(outcome.counts["failed"] for outcome in outcomes.values()):
        raise SystemExit("a drafter breaks the contract")
